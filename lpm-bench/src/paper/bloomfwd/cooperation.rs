//! Figures 9 and 10: two engines that share each batch (section 4.4), by size of the batch and by share.
//!
//! The paper pairs a Xeon Phi behind PCIe with a CPU. Here a helper thread with an AVX-512 unit, or a GPU, is paired with the calling thread.

use super::contest::ContestSubject;
use crate::keys::KeySet;
use crate::paper::bench::{
    Bench, DataSet, Family, Fault, Fed, Figure, Isa, Result, Spread, Stream, Traffic, json, most, over,
};
use crate::paper::drive::{Driven, Load, drive};
use lpm_phi::coop::CoopEngine;

/// Batch sizes of figure 9, in keys, as powers of two. The paper's best is 4 Mi; it uses 2 Mi.
const LOG2: std::ops::RangeInclusive<u32> = 8..=22;
const LOG2_QUICK: [u32; 8] = [8, 10, 12, 14, 16, 17, 21, 22];
/// Batches in flight: one is the paper's sync, two its async (double buffering).
const MODES: [(u16, &str); 2] = [(1, "sync"), (2, "async")];
/// Keys of a batch of figure 10 for two groups of threads: the best of figure 9 on two cores of a server, 512 KB of keys.
const BATCH_GROUPS: usize = 128 << 10;
/// Keys of a batch for a GPU: the paper's 2 Mi would be as fast, with a longer latency.
const BATCH_DEVICE: usize = 256 << 10;

#[derive(Clone, Copy, Debug)]
struct Pair {
    name: &'static str,
    first: &'static str,
    batch: usize,
}

/// The pairs of this host. Without a GPU, the figure states why that pair is missing.
fn pairs(bench: &Bench, figure: &mut Figure) -> Vec<Pair> {
    let mut pairs = vec![Pair { name: "two groups", first: CoopEngine::GROUP, batch: BATCH_GROUPS }];
    match &bench.device {
        Ok(_) => {
            pairs.push(Pair { name: "GPU and CPU", first: lpm_gpu::engine::GAMT, batch: BATCH_DEVICE });
        }
        Err(why) => figure.skipped = Some(format!("the pair of a GPU and a CPU: {why}")),
    }
    pairs
}

fn ready(
    bench: &Bench,
    figure: &mut Figure,
    (set, keys): (&DataSet, &Stream),
    subject: &ContestSubject,
    batch: usize,
) -> Result<Fed> {
    let engine = subject.engine(bench.args.table_memory())?;
    let fed = Fed::filled(engine, &set.tables.routes_of(Family::V4))?;
    figure.check(&bench.sample(keys.of_round(0), &set.tables), &mut *fed.looker(batch)?)?;
    Ok(fed)
}

/// The engine `coop` over a pair. `split` is the first engine's share; if `None`, `coop` measures it.
fn coop(
    bench: &Bench,
    figure: &mut Figure,
    data: (&DataSet, &Stream),
    pair: Pair,
    split: Option<f64>,
) -> Result<Fed> {
    bench.show_progress(format!("builds coop, {}", pair.name));
    let coop = ContestSubject::new("coop".into(), CoopEngine::NAME, Isa::detect(), &[]);
    let mut subject = coop.with("first", &pair.first);
    if let Some(split) = split {
        subject = subject.with("split", &split);
    }
    let cpus: Vec<_> = crate::cpus_allowed().iter().skip(1).map(usize::to_string).collect();
    if !cpus.is_empty() {
        subject = subject.with("cpus", &cpus.join(","));
    }
    ready(bench, figure, data, &subject, pair.batch)
}

struct Turn {
    name: String,
    /// The position on the x axis; `None` is drawn at every position.
    x: Option<f64>,
    engine: usize,
    batch: usize,
    slots: u16,
    /// Threads with a reader each; `None` is `coop`, with its helper thread.
    threads: Option<usize>,
}

/// Measures each of `turns` in each round. Returns its rates in Mlps, and the mean times of a batch in microseconds.
fn take_turns(bench: &Bench, keys: &Stream, engines: &mut [Fed], turns: &[Turn]) -> Result<Vec<[Spread; 2]>> {
    let mut rounds: Vec<_> = turns.iter().map(|_| [Vec::new(), Vec::new()]).collect();
    for round in 0..bench.args.rounds() {
        for (turn, [mlps, mean_us]) in turns.iter().zip(&mut rounds) {
            bench.show_progress(format!("{}, batches of {}, round {}", turn.name, turn.batch, round + 1));
            let driven = turn.measure(bench, &mut engines[turn.engine], keys.of_round(round))?;
            mlps.push(driven.mlps);
            mean_us.push(driven.mean_us);
        }
    }
    Ok(rounds.iter().map(|rounds| rounds.each_ref().map(|rounds| Spread::of_rounds(rounds))).collect())
}

impl Turn {
    /// With new readers, since the helper thread of an idle reader of `coop` would disturb others. Its caller runs on this process's first CPU.
    fn measure(&self, bench: &Bench, fed: &mut Fed, keys: &KeySet) -> Result<Driven> {
        let (slots, batch) = (self.slots, self.batch.min(keys.len()));
        let load = Load { keys, batch, slots, seconds: bench.args.seconds() };
        let caller = move || {
            if self.threads.is_none() {
                // Pinning may be forbidden.
                let _ = crate::pin(crate::cpus_allowed().first().copied());
            }
            let readers = (0..self.threads.unwrap_or(1)).map(|_| fed.reader(slots, batch));
            drive(&mut readers.collect::<Result<Vec<_>, _>>()?, load).map_err(|source| fed.refused(source))
        };
        std::thread::scope(|scope| scope.spawn(caller).join()).map_err(Fault::panicked)?
    }
}

pub(super) fn figure_9(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let all = if bench.args.quick { LOG2_QUICK.to_vec() } else { LOG2.collect() };
    let sizes = all.into_iter().map(|log2| 1 << log2).filter(|size| *size <= bench.args.keys());
    let sizes: Vec<usize> = sizes.collect();
    for pair in pairs(bench, figure) {
        let [sync, both] = MODES.map(|(_, mode)| format!("{}, {mode}", pair.name));
        let mut fed = [coop(bench, figure, (set, &keys), pair, None)?];
        // By size, since coop's split depends on it.
        for batch in sizes.iter().copied() {
            let turns = MODES.map(|(slots, mode)| {
                let (name, x) = (format!("{}, {mode}", pair.name), Some(batch as f64));
                Turn { name, x, engine: 0, batch, slots, threads: None }
            });
            for (turn, [mlps, mean_us]) in turns.iter().zip(take_turns(bench, &keys, &mut fed, &turns)?) {
                figure.add(0, &turn.name, batch as f64, mlps);
                figure.add(1, &turn.name, batch as f64, mean_us);
                figure.rows.push(json!({
                    "pair": pair.name, "name": turn.name, "slots": turn.slots, "batch": batch, "mlps": mlps,
                    "mean_us": mean_us, "clock": "wall",
                }));
            }
        }
        let (speed, latency) = (&figure.panels[0], &figure.panels[1]);
        let best = speed.best_x(&both).map(|size| size / f64::from(1 << 20));
        let gained = most(&speed.ratios(&both, &sync));
        let [two, four] = [2 << 20, 4 << 20].map(|size| latency.value_at(&both, size));
        figure.record_unclaimed("the best buffer (there 4)", pair.name, "Mi keys", best);
        figure.record_of("async over sync, at most", pair.name, gained);
        figure.record_unclaimed(
            "time of a buffer of 2 Mi (there 28)",
            pair.name,
            "ms",
            two.map(|us| us / 1e3),
        );
        let times = over(four, two);
        figure.record_of("time of a buffer of 4 Mi over one of 2 Mi (nearly)", pair.name, times);
    }
    Ok(())
}

pub(super) fn figure_10(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let all: Vec<u32> = (0..=100).step_by(10).collect();
    let shares = if bench.args.quick { vec![0, 20, 40, 50, 60, 80, 100] } else { all };
    for pair in pairs(bench, figure) {
        let (mut engines, mut turns) = (Vec::new(), Vec::new());
        let [by_itself, alone] =
            ["split by its profile", "first alone, sync"].map(|what| format!("{}, {what}", pair.name));
        let shared = shares.iter().map(|share| (pair.name, Some(f64::from(*share)), Some(*share), 2));
        for (name, x, share, slots) in
            shared.chain([(by_itself.as_str(), None, None, 2), (&alone, None, Some(100), 1)])
        {
            let split = share.map(|share| f64::from(share) / 100.0);
            engines.push(coop(bench, figure, (set, &keys), pair, split)?);
            let (name, engine, batch) = (name.to_owned(), engines.len() - 1, pair.batch);
            turns.push(Turn { name, x, engine, batch, slots, threads: None });
        }
        if pair.first == CoopEngine::GROUP {
            let bloom = ContestSubject::bloom(bench, Isa::detect());
            engines.push(ready(bench, figure, (set, &keys), &bloom, pair.batch)?);
            for threads in 1..=bench.host.cpus.min(2) {
                let (name, engine) = (format!("bloom by itself, threads: {threads}"), engines.len() - 1);
                let (batch, slots, threads) = (pair.batch, 1, Some(threads));
                turns.push(Turn { name, x: None, engine, batch, slots, threads });
            }
        }
        let measured = take_turns(bench, &keys, &mut engines, &turns)?;
        for (Turn { name, x, engine, batch, slots, threads }, [mlps, _]) in turns.iter().zip(measured) {
            let everywhere = || shares.iter().map(|share| f64::from(*share)).collect();
            for x in x.map_or_else(everywhere, |x| vec![x]) {
                figure.add(0, name, x, mlps);
            }
            figure.rows.push(json!({
                "pair": pair.name, "name": name, "first": pair.first, "share_percent": x, "batch": batch,
                "slots": slots, "threads": threads, "mlps": mlps, "clock": "wall",
                "details": engines[*engine].writer.stats().details,
            }));
        }
        let (panel, name) = (figure.panels[0].clone(), pair.name);
        let (best, first) = (panel.most(name), panel.value_at(name, 100.0));
        let two = panel.most("bloom by itself, threads: 2").filter(|_| pair.first == CoopEngine::GROUP);
        figure.record_unclaimed("best share of the first (there 80)", name, "percent", panel.best_x(name));
        for (what, times) in [
            ("the best split over the first alone (there 1.18)", over(best, first)),
            (
                "with double buffering over the first alone without (there 1.33)",
                over(best, panel.most(&alone)),
            ),
            ("split by its profile over the best split", over(panel.most(&by_itself), best)),
            ("the best split over two threads by themselves", over(best, two)),
        ] {
            figure.record_unclaimed(what, name, "times", times);
        }
    }
    Ok(())
}
