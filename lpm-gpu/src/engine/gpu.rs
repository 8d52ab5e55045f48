//! The engine's device, its kernels by name, and their launch plan.

use super::params::{GpuParams, Mode, STREAMS_MAX};
use crate::cu::{Device, Element, GpuError, Kernel, Module, Plain, Shape};
use crate::host::KernelNames;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Default block size: enough warps to hide memory latency, few enough that a batch's last block does not run alone for long.
const THREADS: u32 = 256;

const THREADS_MIN: u32 = 64;

/// Default blocks a multiprocessor: its full 2,048 threads.
const BLOCKS_A_MULTIPROCESSOR: u32 = 8;

/// Default streams of a reader: three overlap two copies and a kernel, the fourth fills gaps.
const STREAMS: u16 = 4;

/// Default keys of a batch: 256 Ki, the paper's choice for controlled latency (section 5.4.4).
pub(super) const BATCH: usize = 1 << 18;

/// Longest wait for a batch, beyond any parameter; then the device is given up.
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);

/// A key on the device: `u32` for IPv4, `u64` for the first 64 bits of IPv6.
pub(super) trait DeviceKey: Plain + Element {
    /// Logarithm of the keys that a thread loads at a time, 16 bytes.
    const A_THREAD_LOG2: u32;
}

impl DeviceKey for u32 {
    const A_THREAD_LOG2: u32 = 2;
}

impl DeviceKey for u64 {
    const A_THREAD_LOG2: u32 = 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaunchPlan {
    /// With `mode=auto` replaced for each reader.
    pub(super) mode: Mode,
    pub(super) streams: u16,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    /// Least threads of a block, for batches that would leave multiprocessors idle.
    pub(super) threads_min: u32,
    pub(super) multiprocessors_log2: u32,
    /// Most IPv4 keys that [`fib::EngineReader::lookup`] puts in a batch.
    pub(super) batch_v4: usize,
    pub(super) batch_v6: usize,
    pub(super) stall: Duration,
}

impl LaunchPlan {
    pub(super) fn new(params: &GpuParams, multiprocessors: u32) -> Self {
        let threads = params.threads.unwrap_or(THREADS);
        let multiprocessors = multiprocessors.max(1);
        let filling = multiprocessors * BLOCKS_A_MULTIPROCESSOR * THREADS / threads;
        Self {
            mode: params.mode.unwrap_or(Mode::Copy),
            streams: params.streams.unwrap_or(STREAMS).clamp(1, STREAMS_MAX),
            blocks: params.blocks.unwrap_or(filling).max(1),
            threads,
            threads_min: params.threads.unwrap_or(THREADS_MIN),
            multiprocessors_log2: multiprocessors.ilog2(),
            batch_v4: BATCH,
            batch_v6: BATCH,
            stall: params.stall.unwrap_or(STALL_MAX).min(STALL_MAX),
        }
    }

    /// The launch for `count` keys, `2^keys_log2` a thread at a time; smaller blocks if that occupies more multiprocessors.
    #[inline]
    pub(super) fn shape(&self, count: u32, keys_log2: u32) -> Shape {
        let even = (count >> keys_log2 >> self.multiprocessors_log2).next_power_of_two();
        let threads = even.max(self.threads_min).min(self.threads);
        // Rounding a block's keys down to a power of two avoids a division, at the cost of a few idle blocks.
        let block_log2 = threads.ilog2() + keys_log2;
        Shape::new(self.blocks.min((count >> block_log2) + 1), threads)
    }
}

pub(super) struct Gpu {
    pub(super) engine: &'static str,
    pub(super) device: Device,
    kernels: Mutex<FxHashMap<String, Kernel>>,
}

impl Gpu {
    pub(super) fn open(engine: &'static str, index: u32) -> Result<Self, GpuError> {
        Ok(Self { engine, device: Device::open(index)?, kernels: Mutex::default() })
    }

    pub(super) fn kernel(&self, module: &'static str, entry: &str) -> Result<Kernel, GpuError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(entry) {
            return Ok(kernel.clone());
        }
        let kernel = Module::new(&self.device, module)?.kernel(entry)?;
        kernels.insert(entry.to_owned(), kernel.clone());
        Ok(kernel)
    }

    #[cold]
    pub(super) fn fault(&self, error: GpuError) -> fib::EngineError {
        error.into_engine(self.engine)
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({}, {:?})", self.engine, self.device)
    }
}

pub(super) fn persistent_entry(names: &KernelNames) -> Option<String> {
    let (module, shape) = names.live.split_once("_lookup_")?;
    Some(format!("{module}_persistent_{}", shape.strip_suffix("_live")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_threads_for_every_key_up_to_its_most_blocks() {
        let plan = LaunchPlan::new(&GpuParams { threads: Some(96), ..GpuParams::default() }, 2);
        for count in [1, 31, 95, 96, 97, 255, 256, 257, 1000, 4095, 4096, 1 << 20] {
            for keys_log2 in [1, 2] {
                let shape = plan.shape(count, keys_log2);
                let keys = (shape.blocks * shape.threads) << keys_log2;
                assert!(keys >= count || shape.blocks == plan.blocks, "{count} keys: {shape:?}");
                assert!(shape.blocks >= 1);
            }
        }
    }

    #[test]
    fn persistent_kernels_are_named_after_lookup_kernels() {
        let entry = |live| persistent_entry(&KernelNames { module: "m", frozen: "", live, ops: None });
        assert_eq!(entry("gamt_lookup_v6_flat_live").as_deref(), Some("gamt_persistent_v6_flat"));
        assert_eq!(entry("gale_lookup_v4_live").as_deref(), Some("gale_persistent_v4"));
        assert_eq!(entry("odd"), None);
    }
}
