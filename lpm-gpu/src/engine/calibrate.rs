//! Chooses batch size and stream count for a latency target (GAMT, section 5.4.4), by measurements at start. Latency is the
//! caller's: from `submit` to the answers of `collect`, with all streams of the reader in flight. The setting with the
//! highest throughput wins among those whose median latency meets the target; otherwise the smallest batch on one stream.

use super::gpu::{Gpu, LaunchPlan};
use super::params::GpuParams;
use super::reader::GpuReader;
use super::{GpuEngine, HostTables};
use fib::generate::{TableSpec, table};
use fib::{EngineError, EngineReader, Family, Key, KeyBuffer, Keys, NextHopId, Rib, Route, Routes, SlotId};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Size of the measured tables: enough for the upper levels of a full table.
const ROUTES_V4: usize = 60_000;
const ROUTES_V6: usize = 20_000;
const SEED: u64 = 20_240_101;

/// Batch sizes tried: 256 keys to 1 Mi.
const BATCH_LOG2_MIN: u32 = 8;
const BATCH_LOG2_MAX: u32 = 20;

/// Stream counts tried: the paper's range (figure 18).
const STREAMS: [u16; 7] = [1, 2, 4, 8, 12, 16, 24];

/// A slower batch fails the calibration.
const BATCH_LIMIT: Duration = Duration::from_secs(5);

/// Time limit of a setting, after at least one round.
const SETTING_LIMIT: Duration = Duration::from_millis(40);

/// No new setting starts later than this in a family.
const FAMILY_LIMIT: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    latency: Duration,
    keys_per_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Choice {
    streams: u16,
    batch: usize,
    measured: Measured,
}

pub(super) fn plan(
    name: &'static str,
    params: &GpuParams,
    plan: LaunchPlan,
    target_us: u64,
) -> Result<LaunchPlan, EngineError> {
    let host = HostTables::new(name, params)?;
    let gpu = Gpu::open(name, params.device).map_err(|error| error.into_engine(name))?;
    let mut engine = GpuEngine::assemble(name, params.clone(), host, gpu, plan)?;
    let mut rib = Rib::new();
    rib.announce(&Routes { v4: routes(ROUTES_V4), v6: routes(ROUTES_V6) });
    rib.commit_to(&mut engine)?;
    let target = Duration::from_micros(target_us);
    let v4 = choose(&engine, params, plan, Family::V4, target)?;
    let v6 = choose(&engine, params, plan, Family::V6, target)?;
    let plan =
        LaunchPlan { streams: v4.streams.max(v6.streams), batch_v4: v4.batch, batch_v6: v6.batch, ..plan };
    if params.blocks.is_some() || params.threads.is_some() {
        return Ok(plan);
    }
    fill(&engine, plan, v4, target)
}

/// A table like the Internet's; empty if the generator refuses the size, which it does not.
fn routes<K: Key>(routes: usize) -> Vec<Route<K>> {
    let spec = TableSpec { family: K::FAMILY, routes, seed: SEED, next_hops: 64 };
    let generated = table::<K>(&spec).unwrap_or_default();
    generated.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect()
}

fn choose(
    engine: &GpuEngine,
    params: &GpuParams,
    plan: LaunchPlan,
    family: Family,
    target: Duration,
) -> Result<Choice, EngineError> {
    let start = Instant::now();
    let fixed = [params.streams.unwrap_or(1)];
    let streams: &[u16] = if params.streams.is_some() { &fixed } else { &STREAMS };
    let smallest = 1 << BATCH_LOG2_MIN;
    let mut best = Choice {
        streams: streams[0],
        batch: smallest,
        measured: Measured { latency: Duration::MAX, keys_per_s: 0.0 },
    };
    // The largest batch that meets the target on the first stream count; more streams only add latency.
    let mut largest = smallest;
    for log2 in BATCH_LOG2_MIN..=BATCH_LOG2_MAX {
        let batch = 1 << log2;
        let measured = measure(engine, LaunchPlan { streams: streams[0], ..plan }, family, batch)?;
        if measured.latency > target {
            break;
        }
        largest = batch;
        best = better(best, Choice { streams: streams[0], batch, measured });
        if start.elapsed() > FAMILY_LIMIT {
            break;
        }
    }
    for &streams in &streams[1..] {
        let mut batch = largest;
        while batch >= smallest && start.elapsed() < FAMILY_LIMIT {
            let measured = measure(engine, LaunchPlan { streams, ..plan }, family, batch)?;
            if measured.latency <= target {
                best = better(best, Choice { streams, batch, measured });
                break;
            }
            batch /= 2;
        }
    }
    Ok(best)
}

fn better(one: Choice, other: Choice) -> Choice {
    if other.measured.keys_per_s > one.measured.keys_per_s { other } else { one }
}

/// `plan` with the blocks and threads that give `choice` the highest throughput.
fn fill(
    engine: &GpuEngine,
    plan: LaunchPlan,
    choice: Choice,
    target: Duration,
) -> Result<LaunchPlan, EngineError> {
    let mut best = (plan, choice.measured);
    for (blocks, threads) in [
        (plan.blocks / 2, plan.threads),
        (plan.blocks * 2, plan.threads),
        (plan.blocks * 2, plan.threads / 2),
        (plan.blocks / 2, plan.threads * 2),
    ] {
        let tried = LaunchPlan { blocks: blocks.max(1), threads, streams: choice.streams, ..plan };
        let measured = measure(engine, tried, Family::V4, choice.batch)?;
        if measured.latency <= target && measured.keys_per_s > best.1.keys_per_s {
            best = (LaunchPlan { streams: plan.streams, ..tried }, measured);
        }
    }
    Ok(best.0)
}

/// Runs batches of `batch` keys with `plan`, one in flight on each stream.
fn measure(
    engine: &GpuEngine,
    plan: LaunchPlan,
    family: Family,
    batch: usize,
) -> Result<Measured, EngineError> {
    let answers = (engine.v4.host.answers(), engine.v6.host.answers());
    let reader = GpuReader::new(&engine.shared, plan, answers, plan.streams, batch);
    let mut reader = reader.map_err(|error| engine.shared.gpu.fault(error))?;
    // Multiplicative steps through the key space: cheap, and no repetition.
    let keys: KeyBuffer = match family {
        Family::V4 => (0..=u32::MAX).take(batch).map(|at| at.wrapping_mul(0x9e37_79b1)).collect(),
        Family::V6 => (0..batch as u64)
            .map(|at| u128::from(0x2000_0000_0000_0000 | at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3))
            .map(|half| half << 64 | half)
            .collect(),
    };
    let streams = plan.streams;
    let mut submitted = vec![Instant::now(); streams.into()];
    // Warm-up: the driver initialises at first use.
    round(&mut reader, keys.keys(), &mut submitted, |_| {})?;
    let rounds = 4.max(16 / streams);
    let mut latencies = Vec::with_capacity(usize::from(rounds) * usize::from(streams));
    let start = Instant::now();
    for _ in 0..rounds {
        round(&mut reader, keys.keys(), &mut submitted, |latency| latencies.push(latency))?;
        if start.elapsed() > SETTING_LIMIT {
            break;
        }
    }
    let elapsed = start.elapsed().as_secs_f64().max(1e-9);
    latencies.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let keys_per_s = (latencies.len() * batch) as f64 / elapsed;
    Ok(Measured { latency: latencies[latencies.len() / 2], keys_per_s })
}

fn round(
    reader: &mut GpuReader,
    keys: Keys<'_>,
    submitted: &mut [Instant],
    mut take: impl FnMut(Duration),
) -> Result<(), EngineError> {
    for (slot, submitted) in (0..).map(SlotId).zip(submitted.iter_mut()) {
        *submitted = Instant::now();
        reader.submit(slot, keys)?;
    }
    for (slot, submitted) in (0..).map(SlotId).zip(submitted) {
        loop {
            match reader.collect(slot, keys) {
                Poll::Ready(answers) => {
                    let _: &[NextHopId] = answers?;
                    break;
                }
                Poll::Pending if submitted.elapsed() > BATCH_LIMIT => {
                    let limit_ms = u64::try_from(BATCH_LIMIT.as_millis()).unwrap_or(u64::MAX);
                    let stalled = crate::cu::GpuError::Stalled { what: "a batch", limit_ms };
                    return Err(stalled.into_engine("calibration"));
                }
                Poll::Pending => std::hint::spin_loop(),
            }
        }
        take(submitted.elapsed());
    }
    Ok(())
}
