//! A closed loop of batches in flight on an engine: its rate and latency, also during updates.

use super::bench::{EngineError, Fault, Fed, KeySet, Result, Spread};
use crate::device::in_flight;
use crate::updates::Player;
use fib::EngineReader;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Driven<Number = f64> {
    pub(super) mlps: Number,
    pub(super) mean_us: Number,
    pub(super) p99_us: Number,
    batches: u64,
}

impl Driven<Spread> {
    pub(super) fn spread_of(rounds: &[Driven]) -> Self {
        let spread = |of: fn(&Driven) -> f64| rounds.iter().map(of).collect();
        Self {
            mlps: spread(|one| one.mlps),
            mean_us: spread(|one| one.mean_us),
            p99_us: spread(|one| one.p99_us),
            batches: rounds.iter().map(|one| one.batches).sum(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    pub(super) keys: &'a KeySet,
    pub(super) batch: usize,
    pub(super) slots: u16,
    /// The duration, after a warm-up of a tenth of it.
    pub(super) seconds: f64,
}

pub(super) fn drive(readers: &mut [Box<dyn EngineReader>], load: Load<'_>) -> Result<Driven, EngineError> {
    if let [reader] = readers {
        return drive_one(&mut **reader, load, 0);
    }
    // Different start positions, so that readers never look up the same keys at the same time.
    let share = load.keys.len() / readers.len().max(1);
    let driven = std::thread::scope(|scope| {
        let begin = |(number, reader): (usize, &mut Box<dyn EngineReader>)| {
            let reader: &mut dyn EngineReader = &mut **reader;
            drive_one(reader, load, number * share)
        };
        let threads: Vec<_> =
            readers.iter_mut().enumerate().map(|both| scope.spawn(move || begin(both))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Result<Vec<_>, _>>()
    })?;
    let mean = |of: fn(&Driven) -> f64| driven.iter().map(of).sum::<f64>() / driven.len().max(1) as f64;
    Ok(Driven {
        mlps: driven.iter().map(|one| one.mlps).sum(),
        mean_us: mean(|one| one.mean_us),
        p99_us: driven.iter().map(|one| one.p99_us).fold(0.0, f64::max),
        batches: driven.iter().map(|one| one.batches).sum(),
    })
}

fn drive_one(reader: &mut dyn EngineReader, load: Load<'_>, at: usize) -> Result<Driven, EngineError> {
    run(reader, load, at, Duration::from_secs_f64(load.seconds / 10.0))?;
    run(reader, load, at, Duration::from_secs_f64(load.seconds))
}

fn run(
    reader: &mut dyn EngineReader,
    Load { keys, batch, slots, .. }: Load<'_>,
    mut at: usize,
    time: Duration,
) -> Result<Driven, EngineError> {
    let batch = batch.clamp(1, keys.len().max(1));
    let slots = usize::from(slots.clamp(1, reader.slots()));
    // 1 ns to 100 s at 3 digits; longer times are counted as the largest.
    let latency = Histogram::<u64>::new_with_bounds(1, 100_000_000_000, 3);
    let mut latency = latency.unwrap_or_else(|_| unreachable!("these bounds and 3 digits are allowed"));
    let (mut lookups, batches, start) = (0_u64, Cell::new(0), Instant::now());
    let parts = std::iter::from_fn(|| {
        if start.elapsed() >= time && batches.get() > 0 {
            return None;
        }
        if at + batch > keys.len() {
            at = 0;
        }
        at += batch;
        Some(at - batch..at)
    });
    in_flight(reader, keys, slots, parts, |begun, answers| {
        lookups += black_box(answers).len() as u64;
        latency.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        batches.set(batches.get() + 1);
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Driven {
        mlps: lookups as f64 / seconds / 1e6,
        mean_us: latency.mean() / 1e3,
        p99_us: latency.value_at_quantile(0.99) as f64 / 1e3,
        batches: batches.get(),
    })
}

/// Applies deltas at `rate` changes a second until `done`. Returns changes a second.
fn follow(player: &mut Player<'_>, fed: &mut Fed, rate: f64, done: &AtomicBool) -> Result<f64> {
    let start = Instant::now();
    let mut changes = 0;
    while !done.load(Ordering::Acquire) {
        let due = rate > 0.0 && changes as f64 <= start.elapsed().as_secs_f64() * rate;
        let Some(delta) = due.then(|| player.step()).flatten() else {
            std::thread::sleep(Duration::from_micros(100));
            continue;
        };
        fed.apply(delta)?;
        changes += delta.len();
    }
    Ok(changes as f64 / start.elapsed().as_secs_f64())
}

/// Drives `readers` on separate threads while this thread applies deltas to their engine, at `rate` changes per second (0: none).
pub(super) fn drive_with_updates(
    fed: &mut Fed,
    readers: &mut [Box<dyn EngineReader>],
    load: Load<'_>,
    (player, rate): (&mut Player<'_>, f64),
) -> Result<(Driven, f64)> {
    let done = AtomicBool::new(false);
    let (driven, updates) = std::thread::scope(|scope| {
        let lookups = scope.spawn(|| {
            let driven = drive(readers, load);
            done.store(true, Ordering::Release);
            driven
        });
        // On an error of the updates the lookups still run to the end of their time.
        let updates = follow(player, fed, rate, &done);
        (lookups.join(), updates)
    });
    let lookups = driven.map_err(Fault::panicked)?.map_err(|source| fed.refused(source))?;
    Ok((lookups, updates?))
}
