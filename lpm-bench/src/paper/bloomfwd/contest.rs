//! Timing: every subject looks the same keys up, in turn, round after round, on any number of threads.
//!
//! The load of a shared machine changes during a run; taking turns lets every subject see the same changes, and each point has the
//! least and the greatest of its rounds. Threads share the keys of a round as in the paper's OpenMP loops (`dynamic`, chunk 1: one call
//! at a time), each pinned to a CPU, and a rate is per second of the wall, from the first thread's start to the last one's end. Rounds
//! take the keys of both seeds in turn.

use super::subject::{CALL, FilledEngine};
use crate::keys::KeySet;
use crate::paper::{Bench, Fault, Figure, RouteSet, Spread, Stream, Value, json, with};
use crate::table::Looker;
use crate::threads::Threads;

/// Keys of the first measurement, whose rate tells how many a round takes.
const PROBE: usize = 64 * CALL;
/// The most passes over all keys in a round: each begins with the start of the threads.
const PASSES_MAX: usize = 8;
/// The warm-up, as a share of a round's keys: the previous subject has evicted this one's tables from the caches.
const WARM_SHARE: usize = 4;

/// The lookup rate of a subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupRate {
    /// Millions of lookups a second, all threads together.
    pub(super) mlps: Spread,
    /// CPU seconds over wall seconds of a thread: below 1 something else had its CPU.
    on_cpu: f64,
    /// Threads.
    pub(super) threads: usize,
}

impl LookupRate {
    /// The fields of a row.
    pub(super) fn fields(&self) -> Value {
        json!({ "threads": self.threads, "mlps": self.mlps, "on_cpu": self.on_cpu, "clock": "wall" })
    }
}

/// Measures each of `built` on a stream with all CPUs, and checks a sample of its answers first. Adds the rates to graph `panel` at `x`,
/// and a row of each with the fields that `more` has for it.
///
/// # Errors
/// As [`run_counts`].
pub(super) fn show(
    bench: &Bench,
    figure: &mut Figure,
    (panel, x): (usize, f64),
    built: &mut [FilledEngine],
    data: (&RouteSet, &Stream),
    more: impl Fn(&FilledEngine) -> Value,
) -> Result<(), Fault> {
    let rates = run_counts(bench, figure, built, data, &[bench.threads_max()])?;
    for (one, rate) in built.iter().zip(rates.iter().flatten()) {
        figure.add(panel, &one.subject.name, x, rate.mlps);
        figure.rows.push(with(one.row(rate.fields()), more(one)));
    }
    Ok(())
}

/// Measures each of `built` on a stream with each number of threads in `counts`, in turn, and checks a sample of its answers first.
/// Returns for each of `built` one rate per number of threads.
///
/// # Errors
/// The error of an engine; [`Fault::Measurement`] when a thread panicked or the clock stood still.
pub(super) fn run_counts(
    bench: &Bench,
    figure: &mut Figure,
    built: &mut [FilledEngine],
    (tables, stream): (&RouteSet, &Stream),
    counts: &[usize],
) -> Result<Vec<Vec<LookupRate>>, Fault> {
    let sample = bench.sample(stream.of_round(0), tables);
    let cpus = crate::cpus_allowed();
    let mut all = Vec::new();
    for one in &*built {
        let threads = |count: &usize| Threads::new(*count, cpus, 1, || one.table.looker(CALL));
        let mut contestants =
            counts.iter().map(|count| threads(count).map(Contestant::new)).collect::<Result<Vec<_>, _>>()?;
        if let Some(most) = contestants.iter_mut().max_by_key(|one| one.threads.threads()) {
            figure.check(&sample, &mut most.threads)?;
        }
        all.push(contestants);
    }
    for round in 0..bench.args.rounds() {
        for (contestants, one) in all.iter_mut().zip(&*built) {
            for contestant in contestants {
                let (name, count) = (&one.subject.name, contestant.threads.threads());
                bench.tell(format!("{name}, {count} threads, {}, round {}", stream.traffic(), round + 1));
                contestant.measure(stream.of_round(round), bench.args.seconds())?;
            }
        }
    }
    Ok(all.iter().map(|contestants| contestants.iter().map(Contestant::rate).collect()).collect())
}

/// Threads over a subject's table, and what their rounds gave.
struct Contestant {
    threads: Threads,
    /// Where the next measurement begins.
    at: usize,
    mlps: Vec<f64>,
    on_cpu: Vec<f64>,
}

impl Contestant {
    const fn new(threads: Threads) -> Self {
        Self { threads, at: 0, mlps: Vec::new(), on_cpu: Vec::new() }
    }

    /// One round of about so many seconds.
    fn measure(&mut self, keys: &KeySet, seconds: f64) -> Result<(), Fault> {
        let probe = PROBE.min(keys.len());
        let (mlps, _) = self.sweep(keys, probe)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive count far below 2^53; saturates"
        )]
        let count = ((mlps * 1e6 * seconds) as usize).clamp(probe, PASSES_MAX * keys.len());
        self.sweep(keys, count / WARM_SHARE)?;
        let (mlps, on_cpu) = self.sweep(keys, count)?;
        self.mlps.push(mlps);
        self.on_cpu.push(on_cpu);
        Ok(())
    }

    /// Looks up about `count` keys, from where the last sweep ended. Returns millions of lookups a second, and CPU seconds over wall
    /// seconds.
    fn sweep(&mut self, keys: &KeySet, count: usize) -> Result<(f64, f64), Fault> {
        let (mut done, mut wall_s, mut cpu_s) = (0, 0.0, 0.0);
        while done < count {
            let end = keys.len().min(self.at + count - done);
            let sweep = self.threads.timed(keys, self.at..end, CALL)?;
            done += end - self.at;
            self.at = end % keys.len().max(1);
            wall_s += sweep.took_s;
            cpu_s += sweep.took_s * sweep.on_cpu;
        }
        if wall_s <= 0.0 {
            return Err(Fault::Measurement(format!("{done} keys took no time")));
        }
        Ok((done as f64 / wall_s / 1e6, cpu_s / wall_s))
    }

    fn rate(&self) -> LookupRate {
        let on_cpu = Spread::of(&self.on_cpu).median;
        LookupRate { mlps: Spread::of(&self.mlps), on_cpu, threads: self.threads.threads() }
    }
}
