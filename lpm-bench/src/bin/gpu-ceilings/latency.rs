//! Round-trip latency of one batch at a time, from keys in page-locked memory to answers for the host, by mode and batch size. The table has
//! one level of 2^16 leaves, so a lookup is one load and the transport dominates. Every answer is checked.

use crate::bench::{DeviceBench, THREADS, progress};
use crate::options::{CeilingsPlan, Mode};
use crate::report::LatencyRow;
use anyhow::ensure;
use lpm_bench::launch::LIMIT;
use lpm_bench::stats::quantile;
use lpm_gpu::cu::{
    Arg, Device, DeviceWords, Event, GpuError, HostSide, Kernel, Module, Pinned, Priority, Resident, Shape,
    Shared, Stream,
};
use lpm_gpu::host::HEADER_WORDS;
use std::time::{Duration, Instant};

const STRIDE: u32 = 16;
/// Keys that a block of [`THREADS`] takes at a time.
const KEYS_BLOCK: u32 = 4 * THREADS;
const TIME_MAX: Duration = Duration::from_millis(300);
const WARM_UP: u32 = 3;
/// The doorbell that ends a persistent kernel (`STOP` in `kernels/common.cuh`).
const STOP: u64 = 0xffff_ffff;
/// 64-bit words of a slot of the persistent kernels, and their positions (`Slot` in `kernels/common.cuh`).
const SLOT_WORDS: usize = 8;
const DOORBELL: usize = 0;
const TABLE: usize = 2;

struct FlatTable {
    words: DeviceWords,
    header: DeviceWords,
    lookup: Kernel,
    persistent: Kernel,
}

trait Transport {
    fn write(&mut self, keys: &[u32]) -> Result<(), GpuError>;
    fn submit(&mut self, table: &FlatTable, count: u32) -> Result<(), GpuError>;
    fn is_over(&mut self) -> Result<bool, GpuError>;
    fn read(&mut self, raw: &mut [u32]) -> Result<(), GpuError>;
}

pub(crate) fn measure(bench: &mut DeviceBench, plan: &CeilingsPlan) -> anyhow::Result<Vec<LatencyRow>> {
    let table = FlatTable::new(bench)?;
    let multiprocessors = bench.device.facts().multiprocessors.max(1);
    let bar = progress("latency", plan.modes.len() * plan.batches.len());
    let mut rows = Vec::new();
    for &mode in &plan.modes {
        for &batch in &plan.batches {
            let count = u32::try_from(batch)?;
            let blocks = count.div_ceil(KEYS_BLOCK).clamp(1, multiprocessors);
            let mut transport = transport(&bench.device, mode, &table, count, blocks)?;
            let times = run(&mut *transport, &table, count, plan)?;
            rows.push(LatencyRow {
                mode,
                batch: count,
                batches: times.len(),
                min_us: quantile(&times, 0.0),
                median_us: quantile(&times, 0.5),
                p99_us: quantile(&times, 0.99),
                max_us: quantile(&times, 1.0),
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn run(
    transport: &mut dyn Transport,
    table: &FlatTable,
    count: u32,
    plan: &CeilingsPlan,
) -> anyhow::Result<Vec<f64>> {
    let mut keys = vec![0; count as usize];
    let mut raw = keys.clone();
    let mut times = Vec::new();
    let mut state = plan.seed;
    let begin = Instant::now();
    for number in 0..plan.latency_batches_max + WARM_UP {
        for key in &mut keys {
            // A linear congruential generator (Numerical Recipes): cheap, and other keys each time.
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *key = state;
        }
        transport.write(&keys)?;
        let start = Instant::now();
        transport.submit(table, count)?;
        while !transport.is_over()? {
            if start.elapsed() > LIMIT {
                let limit_ms = u64::try_from(LIMIT.as_millis()).unwrap_or(u64::MAX);
                return Err(GpuError::Stalled { what: "a batch", limit_ms }.into());
            }
            std::hint::spin_loop();
        }
        let us = start.elapsed().as_secs_f64() * 1e6;
        transport.read(&mut raw)?;
        let wrong = keys.iter().zip(&raw).find(|&(key, raw)| key >> (32 - STRIDE) != *raw);
        ensure!(wrong.is_none(), "a wrong answer in a batch of {count}: key and answer are {wrong:x?}");
        if number >= WARM_UP {
            times.push(us);
            if begin.elapsed() > TIME_MAX {
                break;
            }
        }
    }
    Ok(times)
}

impl FlatTable {
    /// One level; the answer of each leaf is its 16 bits.
    fn new(bench: &mut DeviceBench) -> Result<Self, GpuError> {
        let module = Module::new(&bench.device, "gamt")?;
        let units: Vec<u32> = (0..1 << STRIDE).map(|inf: u32| inf << 8).collect();
        let mut shape = [0; HEADER_WORDS];
        // The layout of kernels/gamt.cu: levels, and stride and base of level 1.
        (shape[0], shape[6], shape[7]) = (1, STRIDE, 0);
        let words = DeviceWords::new(&bench.device, units.len())?;
        let header = DeviceWords::new(&bench.device, shape.len())?;
        bench.stream.upload_now(&words, 0, &units)?;
        bench.stream.upload_now(&header, 0, &shape)?;
        Ok(Self {
            words,
            header,
            lookup: module.kernel("gamt_lookup_v4_flat_live")?,
            persistent: module.kernel("gamt_persistent_v4_flat")?,
        })
    }
}

fn transport(
    device: &Device,
    mode: Mode,
    table: &FlatTable,
    count: u32,
    blocks: u32,
) -> Result<Box<dyn Transport>, GpuError> {
    let shape = Shape::new(blocks, THREADS);
    let stream = Stream::new(device, Priority::Usual)?;
    let keys = count as usize;
    Ok(match mode {
        Mode::Persistent => Box::new(Persistent::new(device, stream, table, keys, shape)?),
        Mode::Copy | Mode::Mapped => Box::new(Launched {
            end: stream.event(false)?,
            stream,
            shape,
            keys: Pinned::new(device, keys, HostSide::Writes)?,
            raw: Pinned::new(device, keys, HostSide::Reads)?,
            copies: match mode {
                Mode::Copy => Some((DeviceWords::new(device, keys)?, DeviceWords::new(device, keys)?)),
                _ => None,
            },
        }),
    })
}

struct Launched {
    stream: Stream,
    end: Event,
    shape: Shape,
    keys: Pinned<u32>,
    raw: Pinned<u32>,
    /// Keys and answers on the device; `None` when the kernel uses the host's.
    copies: Option<(DeviceWords, DeviceWords)>,
}

impl Transport for Launched {
    fn write(&mut self, keys: &[u32]) -> Result<(), GpuError> {
        self.keys.slice_mut()?[..keys.len()].copy_from_slice(keys);
        Ok(())
    }

    fn submit(&mut self, table: &FlatTable, count: u32) -> Result<(), GpuError> {
        let Self { stream, end, shape, keys, raw, copies } = self;
        let (words, header) = (Arg::buffer(&table.words), Arg::buffer(&table.header));
        let all = 0..count as usize;
        if let Some((device_keys, device_raw)) = copies {
            stream.upload(device_keys, 0, keys, all.clone())?;
            let (from, to) = (Arg::buffer(device_keys), Arg::buffer(device_raw));
            stream.launch(&table.lookup, *shape, &mut [words, header, from, to, Arg::u32(count)])?;
            stream.download(raw, all, device_raw, 0)?;
        } else {
            let (from, to) = (Arg::pinned(keys), Arg::pinned(raw));
            stream.launch(&table.lookup, *shape, &mut [words, header, from, to, Arg::u32(count)])?;
        }
        stream.record(end)
    }

    fn is_over(&mut self) -> Result<bool, GpuError> {
        self.end.has_come()
    }

    fn read(&mut self, raw: &mut [u32]) -> Result<(), GpuError> {
        raw.copy_from_slice(&self.raw.slice()?[..raw.len()]);
        Ok(())
    }
}

struct Persistent {
    resident: Resident,
    slot: Shared<u64>,
    done: Shared<u32>,
    keys: Shared<u32>,
    raw: Shared<u32>,
    number: u32,
}

impl Persistent {
    fn new(
        device: &Device,
        stream: Stream,
        table: &FlatTable,
        keys: usize,
        shape: Shape,
    ) -> Result<Self, GpuError> {
        let slot = Shared::new(device, SLOT_WORDS)?;
        let done = Shared::new(device, shape.blocks as usize)?;
        let (keys, raw) = (Shared::new(device, keys)?, Shared::new(device, keys)?);
        slot.write(TABLE, &[table.words.address(), table.header.address(), keys.address(), raw.address()])?;
        let bell = slot.clone();
        let resident = Resident::launch(
            stream,
            &table.persistent,
            shape,
            &mut [Arg::shared(&slot), Arg::shared(&done), Arg::u32(shape.blocks)],
            Box::new(move || bell.store(DOORBELL, STOP)),
        )?;
        Ok(Self { resident, slot, done, keys, raw, number: 0 })
    }
}

impl Transport for Persistent {
    fn write(&mut self, keys: &[u32]) -> Result<(), GpuError> {
        self.keys.write(0, keys)
    }

    fn submit(&mut self, _table: &FlatTable, count: u32) -> Result<(), GpuError> {
        self.number += 1;
        self.slot.store(DOORBELL, u64::from(count) << 32 | u64::from(self.number));
        Ok(())
    }

    fn is_over(&mut self) -> Result<bool, GpuError> {
        let over = (0..self.done.len()).all(|part| self.done.load(part) == self.number);
        if !over {
            self.resident.is_running()?; // a kernel that failed says so
        }
        Ok(over)
    }

    fn read(&mut self, raw: &mut [u32]) -> Result<(), GpuError> {
        self.raw.read(0, raw)
    }
}
