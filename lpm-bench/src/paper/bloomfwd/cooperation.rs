//! Figures 9 and 10: two engines that share each batch (section 4.4). By size of the batch, and by share.
//!
//! The paper's two are a Xeon Phi behind PCIe and a CPU. Here the first is a helper thread with its own AVX-512 unit, over the
//! same table, and the second is the calling thread. On a host with a GPU there is a second pair: GPU and CPU.

use super::subject::Subject;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::paper::data::DataSet;
use crate::paper::drive::{Driven, Load, drive};
use crate::paper::figure::{Figure, Panel, most, over};
use crate::paper::{Bench, Stream};
use crate::table::Fed;
use fib::traffic::Traffic;
use fib::{Family, Isa};
use lpm_bench::stats::Spread;
use lpm_phi::coop::CoopEngine;
use serde_json::json;

/// Buffer sizes of figure 9, in keys, as powers of two. The paper's best is 4 Mi; it uses 2 Mi.
const LOG2: std::ops::RangeInclusive<u32> = 8..=22;
/// The buffer sizes of a quick run.
const LOG2_QUICK: [u32; 8] = [8, 10, 12, 14, 16, 17, 21, 22];
/// Batches in flight: one is the paper's sync, two its async, which is double buffering.
const MODES: [(u16, &str); 2] = [(1, "sync"), (2, "async")];
/// Keys of a batch of figure 10 for two groups of threads: the best of figure 9 on two cores of a server, 512 KB of keys.
const BATCH_GROUPS: usize = 128 << 10;
/// Keys of a batch for a GPU: the paper's 2 Mi would be as fast, with a longer latency.
const BATCH_DEVICE: usize = 256 << 10;

/// A pair of engines that this host has.
#[derive(Clone, Copy, Debug)]
struct Pair {
    name: &'static str,
    first: &'static str,
    batch: usize,
}

/// The pairs of this host. Without a GPU, the figure says why that pair is missing.
fn pairs(bench: &Bench<'_>, figure: &mut Figure) -> Vec<Pair> {
    let mut pairs = vec![Pair { name: "two groups", first: CoopEngine::GROUP, batch: BATCH_GROUPS }];
    match &bench.device {
        Ok(_) => {
            pairs.push(Pair { name: "GPU and CPU", first: lpm_gpu::engine::GAMT, batch: BATCH_DEVICE });
        }
        Err(why) => figure.skipped = Some(format!("the pair of a GPU and a CPU: {why}")),
    }
    pairs
}

/// An engine of `subject`, filled, and checked on `keys` in batches of `batch` keys.
fn ready(
    bench: &Bench<'_>,
    figure: &mut Figure,
    (set, keys): (&DataSet, &Stream),
    subject: &Subject,
    batch: usize,
) -> Result<Fed, Fault> {
    let engine = subject.engine(bench.args.table_memory())?;
    let fed = Fed::filled(engine, &set.tables.told_of(Family::V4))?;
    figure.check(&bench.sample(keys.of_round(0), &set.tables), &mut *fed.looker(batch)?)?;
    Ok(fed)
}

/// The engine `coop` over a pair. `split` is the first engine's share; if `None`, `coop` measures it.
fn coop(
    bench: &Bench<'_>,
    figure: &mut Figure,
    data: (&DataSet, &Stream),
    pair: Pair,
    split: Option<f64>,
) -> Result<Fed, Fault> {
    bench.tell(format!("builds coop, {}", pair.name));
    let mut subject = Subject::coop(Isa::detect()).with("first", &pair.first);
    if let Some(split) = split {
        subject = subject.with("split", &split);
    }
    if let Some(cpus) = helper_cpus() {
        subject = subject.with("cpus", &cpus);
    }
    ready(bench, figure, data, &subject, pair.batch)
}

/// One measurement of `threads` threads, each with its own reader: the helper thread of an idle reader of `coop` would disturb others.
fn drive_once(
    bench: &Bench<'_>,
    fed: &Fed,
    keys: &KeySet,
    (batch, slots): (usize, u16),
    threads: usize,
) -> Result<Driven, Fault> {
    let batch = batch.min(keys.len());
    let readers: Result<Vec<_>, _> = (0..threads).map(|_| fed.reader(slots, batch)).collect();
    let load = Load { keys, batch, slots, seconds: bench.args.seconds() };
    drive(&mut readers?, load).map_err(|source| fed.refused(source))
}

/// As [`drive_once`], of `coop`: the calling thread runs on the first CPU of this process, the helper on another one, if there is one.
fn drive_coop(bench: &Bench<'_>, fed: &mut Fed, keys: &KeySet, shape: (usize, u16)) -> Result<Driven, Fault> {
    let caller = move || {
        // Where it may not be pinned, it runs where the system puts it.
        let _ = crate::pin(crate::cpus_allowed().first().copied());
        drive_once(bench, fed, keys, shape, 1)
    };
    std::thread::scope(|scope| scope.spawn(caller).join()).map_err(Fault::panicked)?
}

/// The CPUs for helper threads: all but the caller's.
fn helper_cpus() -> Option<String> {
    let cpus = crate::cpus_allowed().get(1..).unwrap_or_default();
    let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
    (!cpus.is_empty()).then(|| cpus.join(","))
}

/// Figure 9: lookup rate and latency by size of the buffer.
pub(super) fn figure_9(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Performance of async for different buffer sizes", "keys a buffer");
    figure.x_log = true;
    let (mut speed, mut latency) =
        (Panel::new("million lookups a second"), Panel::log("mean time of a buffer, microseconds"));
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let all = if bench.args.quick { LOG2_QUICK.to_vec() } else { LOG2.collect() };
    let sizes: Vec<usize> =
        all.into_iter().map(|log2| 1 << log2).filter(|size| *size <= bench.args.keys()).collect();
    for pair in pairs(bench, &mut figure) {
        let mut fed = coop(bench, &mut figure, (set, &keys), pair, None)?;
        for size in sizes.iter().copied() {
            let mut rounds = MODES.map(|_| (Vec::new(), Vec::new()));
            for round in 0..bench.args.rounds() {
                bench.tell(format!("{}, buffers of {size}, round {}", pair.name, round + 1));
                for ((slots, _), (mlps, mean_us)) in MODES.into_iter().zip(&mut rounds) {
                    let driven = drive_coop(bench, &mut fed, keys.of_round(round), (size, slots))?;
                    mlps.push(driven.mlps);
                    mean_us.push(driven.mean_us);
                }
            }
            for ((slots, mode), (mlps, mean_us)) in MODES.into_iter().zip(&rounds) {
                let name = format!("{}, {mode}", pair.name);
                speed.add(&name, size as f64, Spread::of(mlps));
                latency.add(&name, size as f64, Spread::of(mean_us));
                figure.rows.push(json!({
                    "pair": pair.name, "mode": mode, "slots": slots, "batch": size, "mlps": Spread::of(mlps),
                    "mean_us": Spread::of(mean_us), "clock": "wall",
                }));
            }
        }
        ours_9(&mut figure, pair, (&speed, &latency));
    }
    figure.panels = vec![speed, latency];
    figure.note =
        "sync has one buffer in flight, async two. On a host with one CPU both halves share it.".into();
    Ok(figure)
}

fn ours_9(figure: &mut Figure, pair: Pair, (speed, latency): (&Panel, &Panel)) {
    let [sync, both] = MODES.map(|(_, mode)| format!("{}, {mode}", pair.name));
    let best = speed.best_x(&both).map(|size| size / f64::from(1 << 20));
    figure.own("the best buffer (there 4)", pair.name, "Mi keys", best);
    figure.ours_of("async over sync, at most", pair.name, most(&speed.ratios(&both, &sync)));
    let time_ms = latency.at(&both, f64::from(2 << 20)).map(|us| us / 1e3);
    figure.own("time of a buffer of 2 Mi (there 28)", pair.name, "ms", time_ms);
}

/// Figure 10: lookup rate by the first engine's share.
pub(super) fn figure_10(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Cooperative execution", "share of the first engine, percent");
    let mut panel = Panel::new("million lookups a second");
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let all: Vec<u32> = (0..=100).step_by(10).collect();
    let shares = if bench.args.quick { vec![0, 20, 40, 50, 60, 80, 100] } else { all };
    for pair in pairs(bench, &mut figure) {
        let rates = by_share(bench, &mut figure, (set, &keys), pair, &shares)?;
        for (share, mlps) in shares.iter().zip(&rates.splits) {
            panel.add(pair.name, f64::from(*share), *mlps);
        }
        let name = format!("{}, split by its profile", pair.name);
        shares.iter().for_each(|share| panel.add(&name, f64::from(*share), rates.by_itself));
        if pair.first == CoopEngine::GROUP {
            for (threads, mlps) in (1_u32..).zip(&rates.threads) {
                let name = format!("bloom by itself, threads: {threads}");
                shares.iter().for_each(|share| panel.add(&name, f64::from(*share), *mlps));
            }
        }
        ours_10(&mut figure, &panel, pair, &rates);
    }
    figure.panels = vec![panel];
    figure.note =
        "Two groups are equal halves of one host, where the paper's Phi was worth four of its CPUs.".into();
    Ok(figure)
}

/// Mlps per second of wall time.
struct Rates {
    /// Of each fixed share.
    splits: Vec<Spread>,
    /// Of the share that `coop` finds by its profile.
    by_itself: Spread,
    /// Of the first engine alone with one batch in flight, the paper's sync execution.
    alone: Spread,
    /// Of `bloom` on one thread and on two, if there are as many CPUs.
    threads: Vec<Spread>,
}

/// Measures a pair at each share, all in turn.
fn by_share(
    bench: &Bench<'_>,
    figure: &mut Figure,
    (set, keys): (&DataSet, &Stream),
    pair: Pair,
    shares: &[u32],
) -> Result<Rates, Fault> {
    let splits: Vec<_> =
        shares.iter().map(|share| Some(f64::from(*share) / 100.0)).chain([None, Some(1.0)]).collect();
    let made = splits.iter().map(|split| coop(bench, figure, (set, keys), pair, *split));
    let mut made = made.collect::<Result<Vec<_>, _>>()?;
    let plain = ready(bench, figure, (set, keys), &Subject::best_bloom(bench), pair.batch)?;
    let threads = bench.host.cpus.min(2);
    let (mut rounds, mut bloom) = (vec![Vec::new(); made.len()], vec![Vec::new(); threads]);
    for round in 0..bench.args.rounds() {
        bench.tell(format!("{}, round {}", pair.name, round + 1));
        let last = made.len() - 1;
        for (at, (fed, mlps)) in made.iter_mut().zip(&mut rounds).enumerate() {
            let slots = if at == last { 1 } else { 2 };
            mlps.push(drive_coop(bench, fed, keys.of_round(round), (pair.batch, slots))?.mlps);
        }
        for (threads, mlps) in (1..).zip(&mut bloom) {
            mlps.push(drive_once(bench, &plain, keys.of_round(round), (pair.batch, 1), threads)?.mlps);
        }
    }
    let mut rates: Vec<_> = rounds.iter().map(|rounds| Spread::of(rounds)).collect();
    for (at, ((split, fed), mlps)) in splits.iter().zip(&made).zip(&rates).enumerate() {
        let details = fed.writer.stats().details;
        figure.rows.push(json!({
            "pair": pair.name, "first": pair.first, "split": split, "batch": pair.batch, "mlps": mlps,
            "slots": if at + 1 == splits.len() { 1 } else { 2 }, "clock": "wall", "details": details,
        }));
    }
    let threads: Vec<_> = bloom.iter().map(|rounds| Spread::of(rounds)).collect();
    for (number, mlps) in (1..).zip(&threads) {
        let number: u32 = number;
        figure.rows.push(json!({
            "engine": "bloom", "threads": number, "batch": pair.batch, "mlps": mlps, "clock": "wall",
        }));
    }
    let alone = rates.pop().unwrap_or(Spread::from(f64::NAN));
    let by_itself = rates.pop().unwrap_or(Spread::from(f64::NAN));
    Ok(Rates { splits: rates, by_itself, alone, threads })
}

/// Hands in the numbers of section 6.7.
fn ours_10(figure: &mut Figure, panel: &Panel, pair: Pair, rates: &Rates) {
    let (best, first) = (panel.most(pair.name), panel.at(pair.name, 100.0));
    figure.own("best share of the first (there 80)", pair.name, "percent", panel.best_x(pair.name));
    figure.own("the best split over the first alone (there 1.18)", pair.name, "times", over(best, first));
    let without = over(best, Some(rates.alone.median));
    figure.own(
        "with double buffering over the first alone without (there 1.33)",
        pair.name,
        "times",
        without,
    );
    let by_itself = over(Some(rates.by_itself.median), best);
    figure.own("split by its profile over the best split", pair.name, "times", by_itself);
    if let (Some(two), CoopEngine::GROUP) = (rates.threads.get(1), pair.first) {
        let times = over(best, Some(two.median));
        figure.own("the best split over two threads by themselves", pair.name, "times", times);
    }
}
