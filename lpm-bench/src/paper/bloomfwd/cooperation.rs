//! Figures 9 and 10: two engines that share each batch (section 4.4). By size of the batch, and by share.
//!
//! The paper's two are a Xeon Phi behind PCIe and a CPU. Here the first is a helper thread with its own AVX-512 unit, over the
//! same table, and the second is the calling thread. On a host with a GPU there is a second pair: GPU and CPU.

use super::subject::Subject;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::paper::Bench;
use crate::paper::data::DataSet;
use crate::paper::drive::{Driven, Load, drive};
use crate::paper::figure::{Figure, Panel};
use crate::table::Fed;
use fib::traffic::Traffic;
use fib::{Family, Isa};
use lpm_bench::stats::median;
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
    (set, keys): (&DataSet, &KeySet),
    subject: &Subject,
    batch: usize,
) -> Result<Fed, Fault> {
    let engine = subject.engine(bench.args.table_memory())?;
    let fed = Fed::filled(engine, &set.tables.told_of(Family::V4))?;
    figure.check(&bench.sample(keys, &set.tables), &mut *fed.looker(batch)?)?;
    Ok(fed)
}

/// The engine `coop` over a pair. `split` is the first engine's share; if `None`, `coop` measures it.
fn coop(
    bench: &Bench<'_>,
    figure: &mut Figure,
    data: (&DataSet, &KeySet),
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
        all.into_iter().map(|log2| 1 << log2).filter(|size| *size <= keys.len()).collect();
    for pair in pairs(bench, &mut figure) {
        let mut fed = coop(bench, &mut figure, (set, &keys), pair, None)?;
        for size in sizes.iter().copied() {
            let mut rounds = MODES.map(|_| (Vec::new(), Vec::new()));
            for round in 0..bench.args.rounds() {
                bench.tell(format!("{}, buffers of {size}, round {}", pair.name, round + 1));
                for ((slots, _), (mlps, mean_us)) in MODES.into_iter().zip(&mut rounds) {
                    let driven = drive_coop(bench, &mut fed, &keys, (size, slots))?;
                    mlps.push(driven.mlps);
                    mean_us.push(driven.mean_us);
                }
            }
            for ((slots, mode), (mlps, mean_us)) in MODES.into_iter().zip(&rounds) {
                let name = format!("{}, {mode}", pair.name);
                speed.add(&name, size as f64, median(mlps));
                latency.add(&name, size as f64, median(mean_us));
                figure.rows.push(json!({
                    "pair": pair.name, "mode": mode, "slots": slots, "batch": size, "mlps": median(mlps),
                    "mean_us": median(mean_us), "clock": "wall",
                }));
            }
        }
        said_9(&mut figure, pair, (&speed, &latency));
    }
    figure.panels = vec![speed, latency];
    figure.note = "Between two threads there is no bus: a buffer pays only for handing it over, so it is best while its keys and \
                   answers stay in the caches. One in flight (sync) lets the faster half wait; two hide that. On a host with one \
                   CPU, or a busy one, both halves share it, and there is nothing to gain."
        .into();
    Ok(figure)
}

fn said_9(figure: &mut Figure, pair: Pair, (speed, latency): (&Panel, &Panel)) {
    let [sync, both] = MODES.map(|(_, mode)| format!("{}, {mode}", pair.name));
    let best = speed.best(&both);
    let mi = best.map(|(size, _)| size / f64::from(1 << 20));
    figure.said(format!("{}: the best buffer", pair.name), &[4.0], "Mi keys", "6.7", mi);
    let points = speed.series.iter().filter(|line| line.name == both).flat_map(|line| &line.points);
    let gain = points.filter_map(|(x, mlps)| Some(mlps / speed.at(&sync, *x)?)).reduce(f64::max);
    figure.said(format!("{}: async over sync, at most", pair.name), &[1.13], "times", "6.7", gain);
    let at = latency.at(&both, f64::from(2 << 20)).map(|us| us / 1e3);
    figure.said(format!("{}: time of a buffer of 2 Mi", pair.name), &[28.0], "ms", "6.7", at);
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
        said_10(&mut figure, &panel, pair, &rates);
    }
    figure.panels = vec![panel];
    figure.note = "Seconds are the wall's. Two groups are equal, so half and half is best, where the paper's Phi was worth four of its \
                   CPUs. What two threads reach by themselves, each with its own batches of that size, is what cooperation can \
                   reach at most."
        .into();
    Ok(figure)
}

/// Mlps per second of wall time, medians over the rounds.
struct Rates {
    /// Of each fixed share.
    splits: Vec<f64>,
    /// Of the share that `coop` finds by its profile.
    by_itself: f64,
    /// Of the first engine alone with one batch in flight, the paper's sync execution.
    alone: f64,
    /// Of `bloom` on one thread and on two, if there are as many CPUs.
    threads: Vec<f64>,
}

/// Measures a pair at each share, all in turn.
fn by_share(
    bench: &Bench<'_>,
    figure: &mut Figure,
    (set, keys): (&DataSet, &KeySet),
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
            mlps.push(drive_coop(bench, fed, keys, (pair.batch, slots))?.mlps);
        }
        for (threads, mlps) in (1..).zip(&mut bloom) {
            mlps.push(drive_once(bench, &plain, keys, (pair.batch, 1), threads)?.mlps);
        }
    }
    let mut rates: Vec<_> = rounds.iter().map(|rounds| median(rounds)).collect();
    for (at, ((split, fed), mlps)) in splits.iter().zip(&made).zip(&rates).enumerate() {
        let details = fed.writer.stats().details;
        figure.rows.push(json!({
            "pair": pair.name, "first": pair.first, "split": split, "batch": pair.batch, "mlps": mlps,
            "slots": if at + 1 == splits.len() { 1 } else { 2 }, "clock": "wall", "details": details,
        }));
    }
    let threads: Vec<_> = bloom.iter().map(|rounds| median(rounds)).collect();
    for (number, mlps) in (1..).zip(&threads) {
        let number: u32 = number;
        figure.rows.push(json!({
            "engine": "bloom", "threads": number, "batch": pair.batch, "mlps": mlps, "clock": "wall",
        }));
    }
    let alone = rates.pop().unwrap_or(f64::NAN);
    let by_itself = rates.pop().unwrap_or(f64::NAN);
    Ok(Rates { splits: rates, by_itself, alone, threads })
}

/// Adds the numbers of section 6.7.
fn said_10(figure: &mut Figure, panel: &Panel, pair: Pair, rates: &Rates) {
    let best = panel.best(pair.name);
    let over = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let (share, most) = (best.map(|(share, _)| share), best.map(|(_, mlps)| mlps));
    let first = panel.at(pair.name, 100.0);
    let of = |what: &str| format!("{}: {what}", pair.name);
    figure.said(of("best share of the first"), &[80.0], "percent", "6.7", share);
    figure.said(of("the best split over the first alone"), &[1.18], "times", "6.7", over(most, first));
    let what = of("with double buffering over the first alone without");
    figure.said(what, &[1.33], "times", "6.7", over(most, Some(rates.alone)));
    figure.said(
        of("split by its profile over the best split"),
        &[],
        "times",
        "6.7",
        over(Some(rates.by_itself), most),
    );
    if let (Some(two), CoopEngine::GROUP) = (rates.threads.get(1), pair.first) {
        let times = over(most, Some(*two));
        figure.said(of("the best split over two threads by themselves"), &[], "times", "6.7", times);
    }
}
