//! Lookup kernels alone, with keys and answers on the device, by its own clock: today the bus hides the differences between structures.

use super::host_tables::load;
use crate::keys::KeySet;
use crate::paper::bench::{
    Bench, DataSet, EngineError, Family, Fault, Figure, HopSource, Result, Rib, Spread, Start, Traffic, json,
};
use fib::{Key, Keys, RibTable};
use lpm_bench::launch::time_us;
use lpm_gpu::cu::{Arg, Device, DeviceBuffer, DeviceWords, GpuError, Module, Plain, Priority, Shape, Stream};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout};
use lpm_gpu::host::{HostTable, Image, KernelNames};
use lpm_gpu::sail::{SailOptions, SailTable};
use serde::Serialize;

/// Keys of a launch: enough to fill the largest device many times.
const KEYS: usize = 4 << 20;
/// Measured launches, with different keys if there are enough.
const LAUNCHES: usize = 11;
/// Threads of a block in the engines' launches.
pub(super) const THREADS: u32 = 256;
const THREADS_A_MULTIPROCESSOR: u32 = 2048;
/// Threads of a block in the figure by block size, as in the paper (section 5.1.3).
const BLOCKS: [u32; 4] = [128, 256, 512, 1024];

/// Targets of the kernels on an H200, billions of lookups a second: required, and stretch.
const TARGETS: [(&str, Family, f64, f64); 4] = [
    ("gamt", Family::V4, 30.0, 70.0),
    ("gamt", Family::V6, 10.0, 25.0),
    ("gale", Family::V4, 40.0, 80.0),
    ("sail", Family::V4, 25.0, 50.0),
];

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Timed {
    pub(super) glps: Spread,
    keys: usize,
    table_bytes: u64,
}

pub(super) struct Launcher {
    pub(super) device: Device,
    stream: Stream,
}

pub(super) struct OnDevice {
    pub(super) words: DeviceWords,
    pub(super) header: DeviceWords,
    pub(super) names: KernelNames,
}

pub(super) fn fault(error: GpuError) -> Fault {
    Fault::refused_by("kernels")(error.into_engine("kernels"))
}

impl Launcher {
    pub(super) fn open(device: u32) -> Result<Self> {
        let device = Device::open(device).map_err(fault)?;
        let stream = Stream::new(&device, Priority::Usual).map_err(fault)?;
        Ok(Self { device, stream })
    }

    pub(super) fn gamt(&mut self, options: GamtOptions, routes: &Rib, family: Family) -> Result<OnDevice> {
        match family {
            Family::V4 => self.load(GamtTable::new(options), &routes.v4),
            Family::V6 => self.load(GamtTable::new(options), &routes.v6),
        }
    }

    fn load<K: Key, T: HostTable<K>>(
        &mut self,
        table: Result<T, EngineError>,
        routes: &RibTable<K>,
    ) -> Result<OnDevice> {
        let refused = Fault::refused_by("kernels");
        let mut table = table.map_err(&refused)?;
        load(&mut table, routes).map_err(&refused)?;
        self.upload(&table.image(routes), table.kernels()).map_err(fault)
    }

    fn upload(&mut self, image: &Image<'_>, names: KernelNames) -> Result<OnDevice, GpuError> {
        let words = DeviceWords::new(&self.device, image.words.max(1))?;
        let header = DeviceWords::new(&self.device, image.header.len())?;
        self.stream.fill(&words, 0..image.words, 0)?;
        self.stream.upload_now(&header, 0, &image.header)?;
        for (at, run) in &image.runs {
            self.stream.upload_now(&words, *at as usize, run)?;
        }
        Ok(OnDevice { words, header, names })
    }

    /// Measures several launches of the lookup kernel with blocks of `threads`, after a warm-up.
    pub(super) fn time(&mut self, on: &OnDevice, live: bool, keys: &KeySet, threads: u32) -> Result<Timed> {
        let entry = if live { on.names.live } else { on.names.frozen };
        let timed = match keys.keys(0..keys.len()) {
            Keys::V4(keys) => self.time_on(on, entry, keys, threads),
            Keys::V6 { hi, .. } => self.time_on(on, entry, hi, threads),
        };
        timed.map_err(fault)
    }

    fn time_on<Word: Plain>(
        &mut self,
        on: &OnDevice,
        entry: &'static str,
        keys: &[Word],
        threads: u32,
    ) -> Result<Timed, GpuError> {
        let kernel = Module::new(&self.device, on.names.module)?.kernel(entry)?;
        let all = DeviceBuffer::new(&self.device, keys.len().max(1))?;
        self.stream.upload_now(&all, 0, keys)?;
        let count = KEYS.min(keys.len());
        let raw = DeviceWords::new(&self.device, count)?;
        let places = (keys.len() / count.max(1)).max(1);
        let blocks = self.device.facts().multiprocessors.max(1) * THREADS_A_MULTIPROCESSOR / threads;
        let (shape, number) = (Shape::new(blocks, threads), u32::try_from(count).unwrap_or(u32::MAX));
        let mut glps = Vec::new();
        for launch in 0..=LAUNCHES {
            // Batches begin at multiples of 16 bytes, for 16-byte loads.
            let keys = Arg::buffer_from(&all, launch % places * (count & !3))?;
            let (words, header) = (Arg::buffer(&on.words), Arg::buffer(&on.header));
            let mut args = [words, header, keys, Arg::buffer(&raw), Arg::u32(number)];
            glps.push(count as f64 / time_us(&mut self.stream, &kernel, shape, &mut args)? / 1e3);
        }
        Ok(Timed { glps: Spread::of_rounds(&glps[1..]), keys: count, table_bytes: on.words.bytes() })
    }
}

pub(super) fn table(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let traffics = [Traffic::Random, Traffic::Table];
    figure.name_places(&traffics);
    let mut launcher = Launcher::open(bench.args.device())?;
    for family in [Family::V4, Family::V6] {
        let Some(set) = bench.main_set(family) else { continue };
        let loaded = load_all(&mut launcher, set, family)?;
        for (x, traffic) in (0_u32..).zip(&traffics) {
            let stream = bench.stream(set, family, traffic)?;
            for (name, on) in &loaded {
                let target = TARGETS.iter().find(|target| (target.0, target.1) == (on.names.module, family));
                for (live, kind) in [(false, "frozen"), (true, "live")] {
                    let timed = launcher.time(on, live, stream.of_round(0), THREADS)?;
                    figure.add(0, &format!("{name}, {family}, {kind}"), x, timed.glps);
                    figure.rows.push(json!({
                        "data": set.name, "table": name, "family": family.to_string(), "traffic": traffic.to_string(),
                        "kind": kind, "kernel": timed, "target_must_glps": target.map(|target| target.2),
                        "target_stretch_glps": target.map(|target| target.3),
                    }));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn by_block_size(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let mut launcher = Launcher::open(bench.args.device())?;
    for family in [Family::V4, Family::V6] {
        let Some(set) = bench.main_set(family) else { continue };
        let stream = bench.stream(set, family, &Traffic::Random)?;
        for (name, on) in load_all(&mut launcher, set, family)? {
            for threads in BLOCKS {
                let timed = launcher.time(&on, true, stream.of_round(0), threads)?;
                figure.add(0, &format!("{name}, {family}"), threads, timed.glps);
                figure.rows.push(json!({
                    "data": set.name, "table": name, "family": family.to_string(), "threads": threads, "kernel": timed,
                }));
            }
        }
    }
    Ok(())
}

/// The tables of a family on the device: GAMT with its chosen levels, and with the paper's best.
fn load_all(launcher: &mut Launcher, set: &DataSet, family: Family) -> Result<Vec<(String, OnDevice)>> {
    let rib = set.start(family, HopSource::Origin, Start::Table);
    let best = if family == Family::V4 { 6 } else { 20 };
    let levels = |levels| GamtOptions { levels, ..GamtOptions::default() };
    let paper = GamtOptions { layout: Layout::Paper, ..levels(Some(best)) };
    let mut loaded = Vec::new();
    for (name, options) in [
        ("GAMT".to_owned(), levels(None)),
        (format!("GAMT, {best} levels"), levels(Some(best))),
        (format!("GAMT, {best} levels, paper's layout"), paper),
    ] {
        loaded.push((name, launcher.gamt(options, &rib, family)?));
    }
    if family == Family::V6 {
        return Ok(loaded);
    }
    let gale = launcher.load(GaleTable::new(GaleOptions::default()), &rib.v4)?;
    let one_stage = GaleTable::new(GaleOptions { stages: 1, ..GaleOptions::default() });
    let up_to_24 = set.up_to_24().start(family, HopSource::Origin, Start::Table);
    let one_stage = launcher.load(one_stage, &up_to_24.v4)?;
    let sail = |layout| SailTable::new(SailOptions { layout, ..SailOptions::default() });
    let flat = launcher.load(sail(Layout::Flat), &rib.v4)?;
    for (name, on) in [("GALE", gale), ("GALE, one stage, up to /24", one_stage), ("SAIL_L", flat)] {
        loaded.push((name.to_owned(), on));
    }
    match launcher.load(sail(Layout::Paper), &rib.v4) {
        Ok(paper) => loaded.push(("SAIL_L, paper's layout".to_owned(), paper)),
        // The entries of this layout are too small for the table.
        Err(why) if why.is_refusal() => {}
        Err(other) => return Err(other),
    }
    Ok(loaded)
}
