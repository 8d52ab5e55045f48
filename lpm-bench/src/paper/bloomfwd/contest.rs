//! Timing: every subject looks the same keys up, in turn, round after round, on any number of threads.
//!
//! The load of a shared machine changes during a run; taking turns lets every subject see the same changes. A rate is per CPU second
//! of each thread, as in `lpm-bench lookup`, summed over the threads; on a quiet host CPU time equals wall time. The rate per
//! second of wall time is reported too. Threads are pinned, one per CPU; each begins at another position of the keys.

use super::subject::{CALL, FilledEngine};
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::measure::sweep_until;
use crate::paper::Bench;
use crate::paper::figure::{Figure, Panel, with};
use crate::table::Looker;
use crate::tables::RouteSet;
use crate::threads::each;
use lpm_bench::stats::median;
use serde_json::{Value, json};
use std::sync::Barrier;
use std::time::Duration;

/// Keys between two readings of the clock.
const STRETCH: usize = 64 * CALL;
/// The warm-up, as a share of a run's time: the previous subject has evicted this one's tables from the caches.
const WARM_SHARE: f64 = 0.25;

/// The lookup rate of a subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupRate {
    /// Millions of lookups per CPU second, all threads together; the median of the rounds.
    pub(super) mlps: f64,
    /// The same per second of wall time.
    mlps_wall: f64,
    /// The best round, per CPU second.
    mlps_best: f64,
    /// Threads.
    pub(super) threads: usize,
}

impl LookupRate {
    /// From Mlps per CPU second and per second of wall time, one pair for each round.
    fn of(threads: usize, rounds: &[(f64, f64)]) -> Self {
        let (cpu, wall): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
        let mlps_best = cpu.iter().copied().fold(0.0, f64::max);
        Self { mlps: median(&cpu), mlps_wall: median(&wall), mlps_best, threads }
    }

    /// The fields of a row.
    pub(super) fn fields(&self) -> Value {
        json!({
            "threads": self.threads, "mlps": self.mlps, "mlps_best": self.mlps_best, "mlps_wall": self.mlps_wall,
            "clock": "cpu",
        })
    }
}

/// Measures each of `built` on `keys` with `threads` threads, and checks a sample of its answers first.
///
/// # Errors
/// As [`run_counts`].
pub(super) fn run(
    bench: &Bench<'_>,
    figure: &mut Figure,
    built: &mut [FilledEngine],
    data: (&RouteSet, &KeySet),
    threads: usize,
) -> Result<Vec<LookupRate>, Fault> {
    run_counts(bench, figure, built, data, &[threads]).map(|rates| rates.into_iter().flatten().collect())
}

/// As [`run`], with all CPUs; adds the rates to `panel` at `x`, and a row of each with the fields `more` to `figure`.
///
/// # Errors
/// As [`run_counts`].
pub(super) fn show(
    bench: &Bench<'_>,
    (figure, panel): (&mut Figure, &mut Panel),
    x: f64,
    built: &mut [FilledEngine],
    data: (&RouteSet, &KeySet),
    more: &Value,
) -> Result<(), Fault> {
    let rates = run(bench, figure, built, data, bench.threads_max())?;
    for (one, rate) in built.iter().zip(&rates) {
        panel.add(&one.subject.name, x, rate.mlps);
        figure.rows.push(with(one.row(rate.fields()), more.clone()));
    }
    Ok(())
}

/// As [`run`], with each number of threads in `counts`, in turn. Returns for each of `built` one rate per number of threads.
///
/// # Errors
/// The error of an engine; [`Fault::Measurement`] when a thread panicked or its clock stood still.
pub(super) fn run_counts(
    bench: &Bench<'_>,
    figure: &mut Figure,
    built: &mut [FilledEngine],
    (tables, keys): (&RouteSet, &KeySet),
    counts: &[usize],
) -> Result<Vec<Vec<LookupRate>>, Fault> {
    let sample = bench.sample(keys, tables);
    let most = counts.iter().copied().max().unwrap_or(0);
    let mut all = Vec::new();
    for one in built.iter_mut() {
        let mut lookers: Vec<Box<dyn Looker>> =
            (0..most).map(|_| one.table.looker(CALL)).collect::<Result<_, _>>()?;
        if let Some(first) = lookers.first_mut() {
            figure.check(&sample, &mut **first)?;
        }
        all.push((lookers, vec![Vec::new(); counts.len()]));
    }
    for round in 1..=bench.args.rounds() {
        for ((lookers, rounds), one) in all.iter_mut().zip(&*built) {
            for (threads, rounds) in counts.iter().zip(rounds) {
                let name = &one.subject.name;
                bench.tell(format!("{name}, {threads} threads, {}, round {round}", keys.traffic));
                rounds.push(together(&mut lookers[..*threads], keys, bench.args.seconds())?);
            }
        }
    }
    let rate = |(threads, rounds): (&usize, &Vec<(f64, f64)>)| LookupRate::of(*threads, rounds);
    Ok(all.iter().map(|(_, rounds)| counts.iter().zip(rounds).map(rate).collect()).collect())
}

/// Runs all lookers at once, each on its own thread and CPU. Returns millions of lookups per CPU second and per second of wall time.
fn together(lookers: &mut [Box<dyn Looker>], keys: &KeySet, seconds: f64) -> Result<(f64, f64), Fault> {
    let cpus = crate::cpus_allowed();
    let barrier = Barrier::new(lookers.len());
    let share = keys.len() / lookers.len().max(1);
    let runs = each(lookers, |number, looker| {
        // Where it may not be pinned, it runs where the system puts it.
        let _ = crate::pin(cpus.get(number % cpus.len().max(1)).copied());
        let mut at = number * share;
        let mut sweep = |seconds| {
            let limit = Duration::from_secs_f64(seconds);
            sweep_until(&mut **looker, keys, &mut at, (STRETCH, CALL), |wall| wall >= limit)
        };
        let warm = sweep(seconds * WARM_SHARE);
        barrier.wait();
        warm.and_then(|_| sweep(seconds))
    })?;
    let (mut mlps, mut mlps_wall) = (0.0, 0.0);
    for run in runs {
        if run.cpu_s <= 0.0 {
            return Err(Fault::Measurement(format!("{} keys took no time", run.keys)));
        }
        mlps += run.keys as f64 / run.cpu_s / 1e6;
        mlps_wall += run.keys as f64 / run.wall_s / 1e6;
    }
    Ok((mlps, mlps_wall))
}
