//! One engine, its readers on a thread each, and its writer, for some seconds.

use super::cycle::Cycle;
use super::report::Row;
use super::{ConcurrentOptions, used_bytes};
use fib::random::Seeded;
use fib::{EngineError, EngineOptions, EngineReader, EngineWriter, FibDelta, NextHopId, Rib, SlotId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

const BATCH_LIMIT: Duration = Duration::from_secs(20);

/// Limit of measured submits a reader, which bounds memory.
const TIMED_MAX: usize = 1 << 20;

#[derive(Default)]
struct SharedState {
    started: AtomicU64,
    finished: AtomicU64,
    stop: AtomicBool,
}

#[derive(Default)]
struct ReaderCounts {
    batches: u64,
    keys: u64,
    wrong: u64,
    submit_ns: Vec<u64>,
}

pub(crate) fn run(row: &mut Row, options: &ConcurrentOptions, cycle: &Cycle) -> Result<(), EngineError> {
    let parameters = EngineOptions::with_parameters(&[
        ("mode", &row.mode),
        ("headroom", "0"),
        ("device", &row.device.to_string()),
    ]);
    let mut writer = fib::Registry::new(&[lpm_gpu::ENGINES]).make(&row.engine, &parameters)?;
    let mut rib = Rib::plain();
    update_rib(&mut rib, &cycle.first);
    rib.commit_to(writer.as_mut())?;
    let batch = cycle.keys.v4.len();
    let readers = (0..row.readers).map(|_| writer.reader(options.slots, batch));
    let mut readers = readers.collect::<Result<Vec<_>, _>>()?;
    let talk = SharedState::default();
    let seconds = Duration::try_from_secs_f64(options.seconds).unwrap_or_default();
    let start = Instant::now();
    let (written, seen) = std::thread::scope(|scope| {
        let looking: Vec<_> = (1..)
            .zip(&mut readers)
            .map(|(seed, reader)| {
                let talk = &talk;
                scope.spawn(move || {
                    let seen = look_up(reader.as_mut(), cycle, talk, seed);
                    if seen.is_err() {
                        talk.stop.store(true, Ordering::Relaxed);
                    }
                    seen
                })
            })
            .collect();
        let written = write(writer.as_mut(), rib, cycle, &talk, seconds, row);
        talk.stop.store(true, Ordering::Relaxed);
        let seen: Vec<_> = looking.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (written, seen)
    });
    row.seconds = start.elapsed().as_secs_f64();
    let mut submit_ns = Vec::new();
    let mut failed = written.err();
    for seen in seen {
        match seen {
            Ok(Ok(seen)) => {
                row.batches += seen.batches;
                row.keys_checked += seen.keys;
                row.wrong += seen.wrong;
                submit_ns.extend(seen.submit_ns);
            }
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(_panic) => row.wrong += 1, // it has said why
        }
    }
    row.submit_ns.summarise(submit_ns);
    let figure = |name| writer.stats().details.get(name).unwrap_or(0.0);
    (row.rebuilds, row.swaps) = (figure("rebuilds"), figure("swaps"));
    failed.map_or(Ok(()), Err)
}

fn update_rib(rib: &mut Rib, delta: &FibDelta) {
    delta.v4.iter().for_each(|change| _ = rib.v4.set(change.prefix, change.new));
    delta.v6.iter().for_each(|change| _ = rib.v6.set(change.prefix, change.new));
}

/// Applies deltas for the given time, and to the end of the cycle.
fn write(
    writer: &mut dyn EngineWriter,
    mut rib: Rib,
    cycle: &Cycle,
    talk: &SharedState,
    time: Duration,
    row: &mut Row,
) -> Result<(), EngineError> {
    let start = Instant::now();
    let mut apply_us = Vec::new();
    let mut applied = 0;
    let mut result = Ok(());
    for (generation, delta) in (1_u64..).zip(cycle.deltas.iter().cycle()) {
        if talk.stop.load(Ordering::Relaxed) || (start.elapsed() > time && applied >= cycle.deltas.len()) {
            break;
        }
        talk.started.store(generation, Ordering::SeqCst);
        update_rib(&mut rib, delta);
        let applied_in = rib.commit(|delta, rib| {
            let begun = Instant::now();
            writer.apply(delta, rib).map(|_| begun.elapsed())
        });
        match applied_in {
            Ok(time) => apply_us.push(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
        talk.finished.store(generation, Ordering::SeqCst);
        applied += 1;
        if generation % cycle.len() == cycle.len() / 2
            && let Err(error) = visit(writer, cycle, generation, row)
        {
            result = Err(error);
            break;
        }
        if generation.is_multiple_of(cycle.len())
            && let Ok(used) = used_bytes(row.device)
        {
            row.note_memory(used);
        }
    }
    row.deltas = applied as u64;
    row.apply_us.summarise(apply_us);
    result
}

/// A short-lived reader: memory is allocated and freed, and a persistent kernel starts and ends while others run.
fn visit(
    writer: &dyn EngineWriter,
    cycle: &Cycle,
    generation: u64,
    row: &mut Row,
) -> Result<(), EngineError> {
    let keys = cycle.keys.v4.len().min(64);
    let mut reader = writer.reader(1, keys)?;
    let mut answers = vec![NextHopId::NONE; keys];
    reader.lookup(cycle.keys.v4.keys().part(0..keys), &mut answers)?;
    row.wrong += cycle.wrong(true, &answers, generation, generation);
    reader.lookup(cycle.keys.v6.keys().part(0..keys), &mut answers)?;
    row.wrong += cycle.wrong(false, &answers, generation, generation);
    row.keys_checked += 2 * keys as u64;
    Ok(())
}

/// Keeps every slot in flight until the stop flag, IPv4 and IPv6 in turn.
fn look_up(
    reader: &mut dyn EngineReader,
    cycle: &Cycle,
    talk: &SharedState,
    seed: u64,
) -> Result<ReaderCounts, EngineError> {
    let mut seen = ReaderCounts::default();
    let mut rng = Seeded::new(seed, 1);
    let slots = reader.slots();
    // For each slot: family, keys, and the complete generation at its submit.
    let mut flying: Vec<Option<(bool, usize, u64)>> = vec![None; slots.into()];
    for turn in 0_u64.. {
        let slot = SlotId(u16::try_from(turn % u64::from(slots)).unwrap_or(0));
        if let Some((is_v4, keys, low)) = flying[usize::from(slot.0)].take() {
            let start = Instant::now();
            let batch = if is_v4 { &cycle.keys.v4 } else { &cycle.keys.v6 }.keys().part(0..keys);
            let answers = loop {
                match reader.collect(slot, batch) {
                    Poll::Ready(answers) => break answers?,
                    Poll::Pending if start.elapsed() > BATCH_LIMIT => {
                        let reason = format!("a batch has not come back for {} s", BATCH_LIMIT.as_secs());
                        return Err(EngineError::Device { engine: "gpu-concurrent", reason, lost: true });
                    }
                    Poll::Pending => std::thread::yield_now(),
                }
            };
            let high = talk.started.load(Ordering::SeqCst);
            seen.wrong += cycle.wrong(is_v4, answers, low, high) + u64::from(answers.len() != keys);
            seen.batches += 1;
            seen.keys += keys as u64;
        }
        if talk.stop.load(Ordering::Relaxed) {
            if flying.iter().all(Option::is_none) {
                break;
            }
            continue;
        }
        // Most batches are full; some are small, as of a lightly loaded forwarder.
        let all = cycle.keys.v4.len();
        let keys = if rng.percent(25) { 1 + rng.below(all) } else { all };
        let is_v4 = turn.is_multiple_of(2) != (turn / u64::from(slots)).is_multiple_of(2);
        let low = talk.finished.load(Ordering::SeqCst);
        let batch = if is_v4 { &cycle.keys.v4 } else { &cycle.keys.v6 };
        let start = Instant::now();
        reader.submit(slot, batch.keys().part(0..keys))?;
        if seen.submit_ns.len() < TIMED_MAX {
            seen.submit_ns.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        flying[usize::from(slot.0)] = Some((is_v4, keys, low));
    }
    Ok(seen)
}
