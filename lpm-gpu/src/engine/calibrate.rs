//! Chooses batch size and stream count for a latency target (GAMT, section 5.4.4), by measurements at start with all streams
//! of the reader in flight. The setting with the highest throughput wins among those whose median latency meets the target;
//! otherwise the smallest batch on one stream. With `mode=auto` each mode has its setting, and the fastest mode is used.

use super::gpu::{Gpu, LaunchPlan};
use super::modes::Modes;
use super::params::{GpuParams, Mode};
use super::trial::{Effort, Measured, measure};
use super::{GpuEngine, HostTables};
use fib::generate::{TableSpec, table};
use fib::{EngineError, Family, Key, Rib, Route, Routes};
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

/// Time limit of a setting.
const SETTING_LIMIT: Duration = Duration::from_millis(40);

/// No new setting starts later than this in a family.
const FAMILY_LIMIT: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug)]
struct Choice {
    streams: u16,
    batch: usize,
    measured: Measured,
}

/// The plan of the fastest mode that the device can do, and these modes, fastest first.
pub(super) fn plan(
    name: &'static str,
    params: &GpuParams,
    modes: &[Mode],
    plan: LaunchPlan,
    target_us: u64,
) -> Result<(LaunchPlan, Vec<Mode>), EngineError> {
    let host = HostTables::new(name, params)?;
    let gpu = Gpu::open(name, params.device).map_err(|error| error.into_engine(name))?;
    let mut engine = GpuEngine::assemble(name, params.clone(), host, gpu, (plan, Modes::in_order(modes)))?;
    let mut rib = Rib::new();
    rib.announce(&Routes { v4: routes(ROUTES_V4), v6: routes(ROUTES_V6) });
    rib.commit_to(&mut engine)?;
    let target = Duration::from_micros(target_us);
    let mut found = Vec::new();
    let mut refused = None;
    for &mode in modes {
        match plan_in_mode(&engine, params, LaunchPlan { mode, ..plan }, target) {
            Ok(planned) => found.push(planned),
            Err(error) if engine.shared.gpu.device.is_lost() => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    found.sort_by(|(_, one), (_, other)| f64::total_cmp(other, one));
    match (found.first(), refused) {
        (Some((fastest, _)), _) => Ok((*fastest, found.iter().map(|(plan, _)| plan.mode).collect())),
        (None, Some(error)) => Err(error),
        (None, None) => Ok((plan, modes.to_vec())),
    }
}

/// `plan` with the best setting of its mode, and its keys a second, of both families in turn.
fn plan_in_mode(
    engine: &GpuEngine,
    params: &GpuParams,
    plan: LaunchPlan,
    target: Duration,
) -> Result<(LaunchPlan, f64), EngineError> {
    let v4 = choose(engine, params, plan, Family::V4, target)?;
    let v6 = choose(engine, params, plan, Family::V6, target)?;
    let rate = v4.measured.keys_per_s + v6.measured.keys_per_s;
    let plan =
        LaunchPlan { streams: v4.streams.max(v6.streams), batch_v4: v4.batch, batch_v6: v6.batch, ..plan };
    if params.blocks.is_some() || params.threads.is_some() {
        return Ok((plan, rate));
    }
    Ok((fill(engine, plan, v4, target)?, rate))
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
        let measured = measure_plan(engine, LaunchPlan { streams: streams[0], ..plan }, family, batch)?;
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
            let measured = measure_plan(engine, LaunchPlan { streams, ..plan }, family, batch)?;
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
        let measured = measure_plan(engine, tried, Family::V4, choice.batch)?;
        if measured.latency <= target && measured.keys_per_s > best.1.keys_per_s {
            best = (LaunchPlan { streams: plan.streams, ..tried }, measured);
        }
    }
    Ok(best.0)
}

fn measure_plan(
    engine: &GpuEngine,
    plan: LaunchPlan,
    family: Family,
    batch: usize,
) -> Result<Measured, EngineError> {
    let rounds = 4.max(16 / plan.streams);
    let batches = usize::from(rounds) * usize::from(plan.streams);
    let mut reader = engine.open_reader(plan, plan.streams, batch)?;
    measure(
        &engine.shared.gpu,
        &mut reader,
        (family, batch),
        Effort { runs: 1, batches, limit: SETTING_LIMIT },
    )
}
