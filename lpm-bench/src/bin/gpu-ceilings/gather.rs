//! Random loads of all threads at once, and one chain of dependent loads. They bound the lookups in a table of the same size, by their loads.

use crate::bench::{DeviceBench, THREADS, progress};
use crate::options::CeilingsPlan;
use crate::report::{ChaseRow, GatherRow};
use lpm_bench::launch::time_us;
use lpm_bench::stats::quantile;
use lpm_gpu::cu::{Arg, DeviceWords, GpuError, Kernel, Shape};

/// Loads of a thread in a round, as in the kernel.
const LOADS_ROUND: u64 = 4;

const KERNELS: [(u8, &str, &str); 6] = [
    (4, "frozen", "gather_4_frozen"),
    (4, "live", "gather_4_live"),
    (8, "frozen", "gather_8_frozen"),
    (8, "live", "gather_8_live"),
    (16, "frozen", "gather_16_frozen"),
    (16, "live", "gather_16_live"),
];

pub(crate) fn measure_rate(bench: &mut DeviceBench, plan: &CeilingsPlan) -> Result<Vec<GatherRow>, GpuError> {
    let Some((words, sums)) = memory(bench, plan)? else { return Ok(Vec::new()) };
    let shape = Shape::new(plan.gather_blocks, THREADS);
    let loads =
        u64::from(plan.gather_blocks) * u64::from(THREADS) * u64::from(plan.gather_rounds) * LOADS_ROUND;
    let bar = progress("loads", plan.footprints.len() * KERNELS.len());
    let mut rows = Vec::new();
    let mut seed = plan.seed;
    for &footprint_bytes in &plan.footprints {
        for (width_bytes, load, entry) in KERNELS {
            let kernel = bench.module.kernel(entry)?;
            let bits = (footprint_bytes / u64::from(width_bytes)).ilog2();
            let us = timed(
                bench,
                plan,
                (&kernel, shape),
                &LaunchLoads { words: &words, index_bits: bits, rounds: plan.gather_rounds },
                &sums,
                &mut seed,
            )?;
            let rates: Vec<_> = us.iter().map(|us| loads as f64 / us / 1e3).collect();
            rows.push(GatherRow {
                footprint_bytes,
                width_bytes,
                load,
                giga_loads_s: quantile(&rates, 0.5),
                giga_loads_s_min: quantile(&rates, 0.0),
                giga_loads_s_max: quantile(&rates, 1.0),
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Nanoseconds of one load by one thread, by footprint, with the instructions that compute the next address.
pub(crate) fn measure_time(bench: &mut DeviceBench, plan: &CeilingsPlan) -> Result<Vec<ChaseRow>, GpuError> {
    let Some((words, sums)) = memory(bench, plan)? else { return Ok(Vec::new()) };
    let kernel = bench.module.kernel("chase")?;
    let bar = progress("one load", plan.footprints.len());
    let mut rows = Vec::new();
    let mut seed = plan.seed;
    for &footprint_bytes in &plan.footprints {
        let (launch, bits) = ((&kernel, Shape::new(1, 1)), (footprint_bytes / 4).ilog2());
        let us = timed(
            bench,
            plan,
            launch,
            &LaunchLoads { words: &words, index_bits: bits, rounds: plan.chase_steps },
            &sums,
            &mut seed,
        )?;
        let times: Vec<_> = us.iter().map(|us| us * 1e3 / f64::from(plan.chase_steps)).collect();
        rows.push(ChaseRow { footprint_bytes, load_ns: quantile(&times, 0.5) });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Words for the largest footprint, and room for the threads' sums; `None` when no footprint fits.
fn memory(
    bench: &mut DeviceBench,
    plan: &CeilingsPlan,
) -> Result<Option<(DeviceWords, DeviceWords)>, GpuError> {
    let Some(&bytes) = plan.footprints.iter().max() else { return Ok(None) };
    let words = bench.words(bytes / 4, plan.seed)?;
    let sums = DeviceWords::new(&bench.device, (plan.gather_blocks * THREADS) as usize)?;
    Ok(Some((words, sums)))
}

/// The loads of a launch: `rounds` rounds or steps a thread over 2^`index_bits` of `words`.
struct LaunchLoads<'a> {
    words: &'a DeviceWords,
    index_bits: u32,
    rounds: u32,
}

/// Microseconds of each launch of the plan, after one that fills the caches.
fn timed(
    bench: &mut DeviceBench,
    plan: &CeilingsPlan,
    (kernel, shape): (&Kernel, Shape),
    loads: &LaunchLoads<'_>,
    sums: &DeviceWords,
    seed: &mut u32,
) -> Result<Vec<f64>, GpuError> {
    let mut times_us = Vec::new();
    for _ in 0..=plan.repeat {
        *seed = seed.wrapping_add(0x9e37_79b9); // other addresses each time
        let [bits, seed, rounds] = [loads.index_bits, *seed, loads.rounds].map(Arg::u32);
        let mut args = [Arg::buffer(loads.words), bits, seed, rounds, Arg::buffer(sums)];
        times_us.push(time_us(&mut bench.stream, kernel, shape, &mut args)?);
    }
    times_us.remove(0);
    Ok(times_us)
}
