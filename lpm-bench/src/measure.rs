//! Rates of every contender on every stream, interleaved round by round in one process.
//!
//! A shared host varies during a run. Interleaved contenders meet the same variation, so ratios within a round hold where absolute figures do
//! not. A measurement is one sweep, after an untimed sweep over the first quarter, which refills the caches after the contender before.
//! Rates are by the thread's CPU time, which excludes other processes but not their effect on the caches, so each figure has its share of wall
//! time. Devices and several threads are measured by wall time.

use crate::clock::cpu_s;
use crate::contenders::BuiltContender;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::table::{Looker, Sweep};
use lpm_bench::progress::bar;
use std::time::{Duration, Instant};

/// The length of a sweep in seconds; the oracle would take minutes over a full stream.
const SWEEP_MAX_S: f64 = 0.5;
const SWEEP_MIN_KEYS: usize = 1 << 14;
const WARM_SHARE: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) contender: usize,
    pub(crate) looker: usize,
    pub(crate) stream: usize,
    pub(crate) keys: usize,
    pub(crate) mlps: Vec<f64>,
    /// CPU seconds over wall seconds, one a round; below 1 other processes had the CPU.
    pub(crate) on_cpu: Vec<f64>,
}

/// [`Fault::Measurement`] when the clock stands still.
pub(crate) fn run(
    built: &mut [BuiltContender],
    streams: &[KeySet],
    call: usize,
    rounds: usize,
) -> Result<Vec<Series>, Fault> {
    let mut series = Vec::new();
    for (stream, keys) in streams.iter().enumerate() {
        for (contender, one) in built.iter_mut().enumerate() {
            if one.family != keys.family() {
                continue;
            }
            for (looker, one) in one.lookers().enumerate() {
                let keys = sweep_keys(&mut **one, keys, call)?;
                series.push(Series { contender, looker, stream, keys, mlps: vec![], on_cpu: vec![] });
            }
        }
    }
    let bar = bar("measure [{bar:40}] round {prefix} {msg} eta {eta}", rounds * series.len());
    for round in 0..rounds {
        bar.set_prefix(format!("{}/{rounds}", round + 1));
        for one in &mut series {
            let (contender, keys) = (&mut built[one.contender], &streams[one.stream]);
            bar.set_message(format!("{} {} {}", contender.engine, contender.isa, keys.traffic));
            let Some(looker) = contender.lookers().nth(one.looker) else { continue };
            looker.sweep(keys, 0..one.keys / WARM_SHARE, call)?;
            let (mlps, on_cpu) = timed_sweep(&mut **looker, keys, one.keys, call)?;
            one.mlps.push(mlps);
            one.on_cpu.push(on_cpu);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(series)
}

/// Millions of lookups a second over the first `count` keys, and CPU seconds over wall seconds.
fn timed_sweep(one: &mut dyn Looker, keys: &KeySet, count: usize, call: usize) -> Result<(f64, f64), Fault> {
    let Sweep { took_s, on_cpu } = one.timed(keys, 0..count, call)?;
    if took_s <= 0.0 {
        return Err(Fault::Measurement(format!("{count} keys took no time: the stream is too short")));
    }
    Ok((count as f64 / took_s / 1e6, on_cpu))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) keys: u64,
    pub(crate) cpu_s: f64,
    pub(crate) wall_s: f64,
}

/// Looks up keys from `at` on, `part` at a time and cyclically, until `is_over`, which gets the elapsed time, returns true.
pub(crate) fn sweep_until(
    looker: &mut dyn Looker,
    keys: &KeySet,
    at: &mut usize,
    (part, call): (usize, usize),
    is_over: impl Fn(Duration) -> bool,
) -> Result<Stretch, Fault> {
    let (start, cpu_start_s) = (Instant::now(), cpu_s());
    let mut done = 0;
    loop {
        let end = keys.len().min(*at + part);
        looker.sweep(keys, *at..end, call)?;
        done += (end - *at) as u64;
        *at = end % keys.len();
        let wall = start.elapsed();
        if is_over(wall) {
            return Ok(Stretch { keys: done, cpu_s: cpu_s() - cpu_start_s, wall_s: wall.as_secs_f64() });
        }
    }
}

/// Keys of this contender's sweep: the whole stream, or as many as it does in [`SWEEP_MAX_S`].
fn sweep_keys(one: &mut dyn Looker, keys: &KeySet, call: usize) -> Result<usize, Fault> {
    let probe = keys.len().min(SWEEP_MIN_KEYS.max(one.grain()));
    let (mlps, _) = timed_sweep(one, keys, probe, call)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive count far below 2^53; saturates"
    )]
    let fits = (mlps * 1e6 * SWEEP_MAX_S) as usize;
    // Whole calls, so that every call of a sweep is full.
    let fits = fits.max(probe) / call * call;
    Ok(if fits == 0 { keys.len() } else { fits.min(keys.len()) })
}
