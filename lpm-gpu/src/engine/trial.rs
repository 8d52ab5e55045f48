//! Measurements of a reader at start: rate and latency of batches with all slots in flight. Latency is the caller's, from
//! `submit` to the answers of `collect`.

use super::gpu::Gpu;
use fib::{EngineError, EngineReader, Family, Keys, NextHopId, SlotId};
use lpm_core::memory::{KeyArena, KeyArray, Placement};
use std::task::Poll;
use std::time::{Duration, Instant};

/// A slower batch ends the measurement, and the engine gives the device up: it is not in service yet.
const BATCH_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// The median.
    pub(super) latency: Duration,
    /// In the fastest run.
    pub(super) keys_per_s: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Runs, of which the fastest counts: another process may delay one of them.
    pub(super) runs: u32,
    /// Batches of a run, at least the reader's slots.
    pub(super) batches: usize,
    /// Time limit of all runs. A batch in each slot is measured nevertheless.
    pub(super) limit: Duration,
}

/// Measures batches of `batch` keys of `family`, one in flight in each slot of `reader`.
///
/// # Errors
/// [`EngineError::Memory`]; [`EngineError::Device`], for a batch that takes longer than [`BATCH_LIMIT`], too.
pub(super) fn measure(
    gpu: &Gpu,
    reader: &mut dyn EngineReader,
    (family, batch): (Family, usize),
    effort: Effort,
) -> Result<Measured, EngineError> {
    // In memory as a forwarder's keys. Multiplicative steps through the key space: cheap, and no repetition.
    let mut arena = KeyArena::new(KeyArena::bytes_of::<u64>(batch), Placement::default())?;
    reader.adopt(&arena.memory())?;
    let (mut v4, mut v6) = (None, None);
    let keys = match family {
        Family::V4 => {
            let keys: &mut KeyArray<u32> = v4.insert(arena.take(batch)?);
            (0..=u32::MAX).zip(keys.iter_mut()).for_each(|(at, key)| *key = at.wrapping_mul(0x9e37_79b1));
            Keys::V4(keys)
        }
        Family::V6 => {
            let halves: &mut KeyArray<u64> = v6.insert(arena.take(batch)?);
            let half = |at: u64| 0x2000_0000_0000_0000 | at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3;
            (0..).zip(halves.iter_mut()).for_each(|(at, key)| *key = half(at));
            Keys::V6 { hi: halves, lo: halves }
        }
    };
    // Warm-up: the driver initialises at first use.
    run(gpu, reader, keys, (1, effort.limit), &mut Vec::new())?;
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut keys_per_s = 0.0;
    for _ in 0..effort.runs {
        let left = effort.limit.saturating_sub(start.elapsed());
        let batches_per_s = run(gpu, reader, keys, (effort.batches, left), &mut latencies)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = batches_per_s * batch as f64;
        keys_per_s = f64::max(keys_per_s, rate);
        if start.elapsed() >= effort.limit {
            break;
        }
    }
    latencies.sort_unstable();
    let latency = latencies.get(latencies.len() / 2).copied().unwrap_or_default();
    Ok(Measured { latency, keys_per_s })
}

/// Runs up to `batches` batches, and no new one after `limit`. Adds their latencies to `latencies`; returns batches a second.
fn run(
    gpu: &Gpu,
    reader: &mut dyn EngineReader,
    keys: Keys<'_>,
    (mut batches, limit): (usize, Duration),
    latencies: &mut Vec<Duration>,
) -> Result<f64, EngineError> {
    let start = Instant::now();
    let mut submitted = vec![start; reader.slots().into()];
    let mut ring = (0..reader.slots()).map(SlotId).zip(0_usize..).cycle();
    let mut oldest = ring.clone();
    let (mut sent, mut done) = (0, 0);
    while done < batches {
        if sent < batches && sent - done < submitted.len() {
            let Some((slot, at)) = ring.next() else { break };
            submitted[at] = Instant::now();
            reader.submit(slot, keys)?;
            sent += 1;
            continue;
        }
        let Some((slot, at)) = oldest.next() else { break };
        await_answers(gpu, reader, (slot, keys), submitted[at])?;
        latencies.push(submitted[at].elapsed());
        done += 1;
        if start.elapsed() > limit {
            batches = sent;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    Ok(done as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

fn await_answers(
    gpu: &Gpu,
    reader: &mut dyn EngineReader,
    (slot, keys): (SlotId, Keys<'_>),
    submitted: Instant,
) -> Result<(), EngineError> {
    loop {
        match reader.collect(slot, keys) {
            Poll::Ready(answers) => {
                let _: &[NextHopId] = answers?;
                return Ok(());
            }
            Poll::Pending if submitted.elapsed() > BATCH_LIMIT => {
                return Err(gpu.fault(gpu.device.give_up("a measured batch", BATCH_LIMIT)));
            }
            Poll::Pending => std::hint::spin_loop(),
        }
    }
}
