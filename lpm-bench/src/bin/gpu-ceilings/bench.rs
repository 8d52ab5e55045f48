//! The opened device and its kernels.

use crate::report::KernelRow;
use indicatif::ProgressBar;
use lpm_bench::launch::LIMIT;
use lpm_bench::progress::bar;
use lpm_gpu::cu::{Arg, Device, DeviceWords, GpuError, Module, Priority, Shape, Stream};

pub(crate) const THREADS: u32 = 256;

#[derive(Debug)]
pub(crate) struct DeviceBench {
    pub(crate) device: Device,
    pub(crate) stream: Stream,
    pub(crate) module: Module,
}

impl DeviceBench {
    pub(crate) fn open(index: u32) -> Result<Self, GpuError> {
        let device = Device::open(index)?;
        let stream = Stream::new(&device, Priority::Usual)?;
        let module = Module::new(&device, "ceilings")?;
        Ok(Self { device, stream, module })
    }

    pub(crate) fn words(&mut self, count: u64, seed: u32) -> Result<DeviceWords, GpuError> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let words = DeviceWords::new(&self.device, count as usize)?;
        let fill = self.module.kernel("fill_words")?;
        let shape = Shape::new(count.div_ceil(THREADS).min(4096), THREADS);
        self.stream.launch(&fill, shape, &mut [Arg::buffer(&words), Arg::u32(count), Arg::u32(seed)])?;
        self.stream.finish(LIMIT)?;
        Ok(words)
    }
}

/// The lookup kernels and the measuring kernels: module and entries.
const KERNELS: [(&str, &[&str]); 4] = [
    (
        "gamt",
        &[
            "gamt_lookup_v4_flat_frozen",
            "gamt_lookup_v4_flat_live",
            "gamt_lookup_v4_paper_frozen",
            "gamt_lookup_v4_paper_live",
            "gamt_lookup_v6_flat_frozen",
            "gamt_lookup_v6_flat_live",
            "gamt_lookup_v6_paper_frozen",
            "gamt_lookup_v6_paper_live",
            "gamt_persistent_v4_flat",
            "gamt_persistent_v6_flat",
        ],
    ),
    (
        "gale",
        &[
            "gale_lookup_v4_frozen",
            "gale_lookup_v4_live",
            "gale_lookup_v4_direct_frozen",
            "gale_lookup_v4_direct_live",
        ],
    ),
    (
        "sail",
        &[
            "sail_lookup_v4_frozen",
            "sail_lookup_v4_live",
            "sail_lookup_v4_paper_frozen",
            "sail_lookup_v4_paper_live",
        ],
    ),
    ("ceilings", &["gather_4_frozen", "gather_16_frozen", "chase"]),
];

pub(crate) fn kernels(device: &Device) -> Result<Vec<KernelRow>, GpuError> {
    let mut rows = Vec::new();
    for (name, entries) in KERNELS {
        let module = Module::new(device, name)?;
        for entry in entries {
            let kernel = module.kernel(entry)?;
            let facts = kernel.facts();
            rows.push(KernelRow {
                entry: (*entry).to_owned(),
                registers: facts.registers,
                local_bytes: facts.local_bytes,
                shared_bytes: facts.shared_bytes,
                threads_multiprocessor: kernel.blocks_multiprocessor_max(THREADS)? * THREADS,
            });
        }
    }
    Ok(rows)
}

pub(crate) fn progress(what: &'static str, steps: usize) -> ProgressBar {
    bar("{msg:>8} {bar:30} {pos}/{len}", steps).with_message(what)
}
