//! The engines `gamt`, `gale` and `sail-gpu`: tables on a GPU, updated while lookups run, read through slots.
//!
//! ```text
//! delta -> side (host table) -> steps: bubbles -> current table; or an image: tables -> second table -> swap
//! keys -> reader -> slot -> lane (by mode) -> device -> slot -> reader -> next hops; grace: updates that are over
//! ```
//!
//! `apply` first updates both host tables and reserves memory for rebuilt ones: a delta without room is refused before
//! anything is visible. Then it runs the steps on the update stream to their end, or uploads rebuilt tables and swaps them
//! in. So every batch submitted after `apply` belongs to the new generation. If a driver call fails after that point, whole
//! tables are uploaded instead. `gale` and `sail-gpu` use a GAMT trie for IPv6: their papers treat IPv4 only. GAMT builds the
//! next trie on a thread while the current one has room ([`GamtOptions::builds_early`]), so that few deltas wait for a build.

mod bubbles;
mod calibrate;
mod doorbell;
#[cfg(test)]
mod freed_test;
mod gpu;
mod grace;
mod lane;
mod modes;
pub mod params;
mod reader;
mod residence;
mod side;
mod slot;
mod tables;
mod trial;

use crate::cu::{GpuError, Kernel, ResidentRoom};
use crate::gale::{GaleOptions, GaleTable};
use crate::gamt::{GamtOptions, GamtTable};
use crate::host::{HostTable, KernelNames};
use crate::sail::{SailOptions, SailTable};
use arc_swap::ArcSwap;
use bubbles::{Bubbles, DeviceWork};
use fib::{
    Capacity, Details, EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter,
    FibDelta, Generation, Isa, Rib,
};
use gpu::{Gpu, LaunchPlan, STALL_MAX, persistent_entry};
use grace::GracePeriods;
use modes::{Modes, measure_mode};
use params::{GpuParams, Mode};
use reader::GpuReader;
use serde::Serialize;
use side::{Limits, Side};
use slot::PersistentKernels;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tables::DeviceTable;

/// Name of the GAMT paper's engine.
pub const GAMT: &str = "gamt";
pub use params::GALE;
/// Name of SAIL_L on the GPU.
pub const SAIL: &str = "sail-gpu";
struct EngineShared {
    /// Room for update kernels while persistent kernels of any engine of the process run.
    _update_rooms: Vec<ResidentRoom>,
    /// The same for lookup kernels; reserved with the first reader that launches them.
    lookup_rooms: Mutex<Vec<ResidentRoom>>,
    gpu: Gpu,
    plan: LaunchPlan,
    persistent: PersistentKernels,
    grace: Arc<GracePeriods>,
    /// Key memory that the driver refused to register, once a reader: its keys are copied.
    refused: AtomicU64,
    v4: ArcSwap<DeviceTable>,
    v6: ArcSwap<DeviceTable>,
}

impl EngineShared {
    /// Reserves room for a block of `threads` of each family's lookup kernel, once.
    fn reserve_lookup_rooms(&self, threads: u32) -> Result<(), GpuError> {
        let mut rooms = self.lookup_rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if rooms.iter().all(|room| room.threads() < threads) {
            let kernels = [&self.v4, &self.v6].map(|table| table.load().kernel.clone());
            let reserved = kernels.iter().map(|kernel| ResidentRoom::for_one_block(kernel, threads));
            *rooms = reserved.collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}

struct HostTables {
    v4: Box<dyn HostTable<u32>>,
    v6: Box<dyn HostTable<u128>>,
}

impl HostTables {
    fn new(name: &'static str, params: &GpuParams) -> Result<Self, EngineError> {
        let GamtOptions { headroom_percent, table_bytes_max, .. } = params.gamt;
        let gale = GaleOptions::default();
        params.check_engine(name)?;
        let v4: Box<dyn HostTable<u32>> = match name {
            GALE => Box::new(GaleTable::new(GaleOptions {
                table_bytes_max,
                headroom_percent,
                update_threads: params.update_threads.unwrap_or(gale.update_threads),
                stages: params.stages.unwrap_or(gale.stages),
                ..gale
            })?),
            SAIL => {
                let layout = params.gamt.layout;
                Box::new(SailTable::new(SailOptions { table_bytes_max, headroom_percent, layout })?)
            }
            _ => Box::new(GamtTable::<u32>::new(GamtOptions { builds_early: true, ..params.gamt.clone() })?),
        };
        let options = GamtOptions { levels: params.levels6, builds_early: true, ..params.gamt.clone() };
        Ok(Self { v4, v6: Box::new(GamtTable::<u128>::new(options)?) })
    }
}

/// The writer of a GPU engine.
pub struct GpuEngine {
    name: &'static str,
    params: GpuParams,
    // Dropped before `shared`, as `bubbles` is: they hold the device.
    v4: Side<u32>,
    v6: Side<u128>,
    bubbles: Bubbles,
    modes: Modes,
    shared: Arc<EngineShared>,
    generation: Generation,
    /// Number of the last update on the device, failed ones included.
    update: u64,
    /// Set when a refused delta could not be taken back: the host tables are unusable.
    broken: Option<EngineError>,
}

impl GpuEngine {
    /// Creates engine `name` ([`GAMT`], [`GALE`] or [`SAIL`]) with empty tables.
    ///
    /// # Errors
    /// [`EngineError::Parameter`]; [`EngineError::NoDevice`] without a GPU or with too old a driver; [`EngineError::Memory`] or
    /// [`EngineError::Full`] if empty tables do not fit; [`EngineError::Device`].
    pub fn new(name: &'static str, options: &EngineOptions) -> Result<Self, EngineError> {
        let params = GpuParams::from_options(options)?;
        let host = HostTables::new(name, &params)?;
        let gpu = Gpu::open(name, params.device).map_err(|error| error.into_engine(name))?;
        let mut plan = LaunchPlan::new(&params, gpu.device.facts().multiprocessors);
        let mut modes = Modes::new(&params, gpu.device.facts().memory_pools)?;
        if let Some(target_us) = params.latency_target_us {
            // In the calibration a slow batch is a measurement, not a stall.
            let trial = LaunchPlan { stall: STALL_MAX, ..plan };
            let (chosen, best_first) = calibrate::plan(name, &params, modes.all(), trial, target_us)?;
            plan = LaunchPlan { stall: plan.stall, ..chosen };
            modes = Modes::in_order(&best_first);
        }
        Self::assemble(name, params, host, gpu, (plan, modes))
    }

    fn assemble(
        name: &'static str,
        params: GpuParams,
        host: HostTables,
        gpu: Gpu,
        (plan, modes): (LaunchPlan, Modes),
    ) -> Result<Self, EngineError> {
        let (names_v4, names_v6) = (host.v4.kernels(), host.v6.kernels());
        check_threads(&gpu, &plan, &params, &[names_v4, names_v6])?;
        let ops_threads =
            names_v4.ops.map(|_| params.update_threads.unwrap_or(GaleOptions::default().update_threads));
        let mut bubbles = Bubbles::new(&gpu, ops_threads).map_err(|error| gpu.fault(error))?;
        let persistent = if modes.have(Mode::Persistent) {
            persistent_kernels(&gpu, &names_v4, &names_v6)?
        } else {
            PersistentKernels::default()
        };
        let limits = |others_bytes| Limits { table_bytes_max: params.gamt.table_bytes_max, others_bytes };
        let v4 = Side::new(&gpu, &mut bubbles, host.v4, params.frozen, limits(0))?;
        let v6 = Side::new(&gpu, &mut bubbles, host.v6, params.frozen, limits(v4.current.allocated_bytes()))?;
        let update_rooms = bubbles.rooms(&[v4.ops.as_ref(), v6.ops.as_ref()]);
        let shared = EngineShared {
            _update_rooms: update_rooms.map_err(|error| gpu.fault(error))?,
            lookup_rooms: Mutex::default(),
            plan,
            persistent,
            grace: Arc::default(),
            refused: AtomicU64::new(0),
            v4: ArcSwap::new(Arc::clone(&v4.current)),
            v6: ArcSwap::new(Arc::clone(&v6.current)),
            gpu,
        };
        Ok(Self {
            name,
            params,
            v4,
            v6,
            bubbles,
            modes,
            shared: Arc::new(shared),
            generation: Generation::default(),
            update: 0,
            broken: None,
        })
    }

    /// Makes `delta`, leading to `rib`. If a driver call fails once it may be visible, uploads whole tables, or refuses it.
    fn update(&mut self, delta: &FibDelta, rib: &Rib) -> Result<(), EngineError> {
        self.update += 1;
        let mut showing = false;
        let mut done = self.try_update(delta, rib, &mut showing);
        if done.is_err() && showing && !self.shared.gpu.device.is_lost() {
            self.update += 1;
            done = self.try_update(&FibDelta::new(), rib, &mut showing);
        }
        if done.is_ok() {
            self.finish();
        }
        done
    }

    fn open_reader(&self, plan: LaunchPlan, slots: u16, batch_max: usize) -> Result<GpuReader, EngineError> {
        let room = match plan.mode {
            Mode::Persistent => Ok(()),
            Mode::Copy | Mode::Mapped => self.shared.reserve_lookup_rooms(plan.threads),
        };
        let answers = (self.v4.host.answers(), self.v6.host.answers());
        let reader = room.and_then(|()| GpuReader::new(&self.shared, plan, answers, slots, batch_max));
        reader.map_err(|error| self.shared.gpu.fault(error))
    }

    fn limits(&self, others_bytes: u64) -> Limits {
        Limits { table_bytes_max: self.params.gamt.table_bytes_max, others_bytes }
    }

    /// One attempt of [`Self::update`]. Sets `showing` when the update becomes visible.
    fn try_update(&mut self, delta: &FibDelta, rib: &Rib, showing: &mut bool) -> Result<(), EngineError> {
        let gpu = &self.shared.gpu;
        let limits = self.limits(self.v6.current.allocated_bytes());
        let mut new_v4 = self.v4.prepare(gpu, &delta.v4, &rib.v4, limits)?;
        let limits = self.limits(new_v4.as_ref().unwrap_or(&self.v4.current).allocated_bytes());
        let mut new_v6 = match self.v6.prepare(gpu, &delta.v6, &rib.v6, limits) {
            Ok(new_v6) => new_v6,
            Err(error) => {
                self.v4.fail(new_v4);
                return Err(error);
            }
        };
        *showing = true;
        self.v4.take_steps(self.update, &rib.v4);
        self.v6.take_steps(self.update, &rib.v6);
        let updated = self
            .v4
            .update(gpu, &mut self.bubbles, &rib.v4, new_v4.as_mut())
            .and_then(|()| self.v6.update(gpu, &mut self.bubbles, &rib.v6, new_v6.as_mut()));
        if let Err(error) = updated {
            self.v4.fail(new_v4);
            self.v6.fail(new_v6);
            return Err(error);
        }
        self.v4.commit(new_v4, &self.shared.v4);
        self.v6.commit(new_v6, &self.shared.v6);
        Ok(())
    }

    /// Reverts `delta`, which leads to `rib`, on the host, and on the device as far as it got there.
    #[cold]
    fn take_back(&mut self, delta: &FibDelta, rib: &Rib) {
        let mut before = Rib::plain();
        if self.v4.host.reads_routes() {
            rib.v4.used().for_each(|(prefix, next_hop)| _ = before.v4.set(prefix, next_hop));
            delta.v4.iter().for_each(|change| _ = before.v4.set(change.prefix, change.old));
            before.take_delta();
        }
        let taken = self.v4.take_back(&delta.v4, &before.v4);
        if let Err(error) = taken.and_then(|()| self.v6.take_back(&delta.v6, &before.v6)) {
            self.broken = Some(error);
        } else if !self.shared.gpu.device.is_lost() {
            // Interrupted steps may have left a table between two generations: an update repairs it, this one or the next delta.
            let _ = self.update(&FibDelta::new(), &before);
        }
    }

    /// The update ended on the device: reclaims earlier updates that no batch in flight can see.
    fn finish(&mut self) {
        let over = self.shared.grace.finish(self.update);
        self.v4.host.reclaim(over);
        self.v6.host.reclaim(over);
    }

    fn details(&self) -> Details {
        #[derive(Serialize)]
        struct GpuFigures {
            streams: u16,
            blocks: u32,
            threads: u32,
            batch: usize,
            batch_v6: usize,
            updates: u64,
            #[serde(flatten)]
            work: DeviceWork,
            device_writes: u64,
            rebuilds: u64,
            swaps: u64,
            spare_bytes: u64,
            key_memory_refused: u64,
            v4_table_bytes: u64,
            v6_table_bytes: u64,
        }
        let (plan, done) = (&self.shared.plan, self.bubbles.done);
        let figures = GpuFigures {
            streams: plan.streams,
            blocks: plan.blocks,
            threads: plan.threads,
            batch: plan.batch_v4,
            batch_v6: plan.batch_v6,
            updates: self.update,
            work: done,
            device_writes: done.bubbles + done.device_ops,
            rebuilds: self.v4.rebuilds + self.v6.rebuilds,
            swaps: self.v4.swaps + self.v6.swaps,
            spare_bytes: self.v4.spare_bytes() + self.v6.spare_bytes(),
            key_memory_refused: self.shared.refused.load(Ordering::Relaxed),
            v4_table_bytes: self.v4.current.bytes(),
            v6_table_bytes: self.v6.current.bytes(),
        };
        self.modes
            .details()
            .and(Details::new(&figures))
            .and(self.v4.times())
            .and(self.v6.times())
            .and(self.v4.host.details())
            .and(self.v6.host.details())
    }
}

fn check_threads(
    gpu: &Gpu,
    plan: &LaunchPlan,
    params: &GpuParams,
    names: &[KernelNames],
) -> Result<(), EngineError> {
    for names in names {
        let entry = if params.frozen { names.frozen } else { names.live };
        let kernel = gpu.kernel(names.module, entry).map_err(|error| gpu.fault(error))?;
        if kernel.accepts_threads(plan.threads).is_err() {
            return Err(EngineError::Parameter {
                parameter: "threads",
                value: plan.threads.to_string(),
                wanted: "wanted fewer threads: this device has too few registers for a block of this size",
            });
        }
    }
    Ok(())
}

fn persistent_kernels(
    gpu: &Gpu,
    v4: &KernelNames,
    v6: &KernelNames,
) -> Result<PersistentKernels, EngineError> {
    let kernel = |names: &KernelNames| -> Result<Option<Kernel>, EngineError> {
        let missing = || GpuError::Kernel {
            module: names.module.to_owned(),
            entry: names.live.to_owned(),
            reason: "there is no persistent variant",
        };
        let entry = persistent_entry(names).ok_or_else(missing);
        let kernel = entry.and_then(|entry| gpu.kernel(names.module, &entry));
        kernel.map(Some).map_err(|error| gpu.fault(error))
    };
    Ok(PersistentKernels { v4: kernel(v4)?, v6: kernel(v6)? })
}

impl EngineWriter for GpuEngine {
    fn info(&self) -> EngineInfo {
        EngineInfo {
            isa_name: "ptx".to_owned(),
            capacity: Capacity {
                next_hops_max: self.v4.host.next_hops_max(),
                ..Capacity::of_bytes(self.params.gamt.table_bytes_max)
            },
            may_hang: true,
            numa_node: self.shared.gpu.device.facts().numa_node,
            ..EngineInfo::new(self.name, Isa::Scalar)
        }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // Batches collected since the last delta may free room for this one.
        let over = self.shared.grace.over();
        self.v4.host.reclaim(over);
        self.v6.host.reclaim(over);
        if let Err(error) = self.update(delta, rib) {
            self.take_back(delta, rib);
            return Err(error);
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    fn free_retired(&mut self) {
        self.v4.host.free_retired();
        self.v6.host.free_retired();
    }

    fn generation(&self) -> Generation {
        self.generation
    }

    fn stats(&self) -> EngineStats {
        EngineStats {
            routes_v4: self.v4.host.routes(),
            routes_v6: self.v6.host.routes(),
            table_bytes: self.v4.current.bytes() + self.v6.current.bytes(),
            writer_bytes: self.v4.host.host_bytes() + self.v6.host.host_bytes(),
            retired_bytes: self.v4.host.retired_bytes() + self.v6.host.retired_bytes(),
            details: self.details(),
        }
    }

    /// A reader in the best mode for it that has room on the device.
    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let open = |mode, slots, keys| self.open_reader(LaunchPlan { mode, ..self.shared.plan }, slots, keys);
        let best_first = self.modes.best_first(slots, batch_max, |mode, slots, batch| {
            let has_v6 = self.v6.host.routes() > 0;
            measure_mode(&self.shared.gpu, &mut open(mode, slots, batch)?, has_v6, batch)
        })?;
        let mut opened = open(best_first[0], slots, batch_max);
        for &mode in &best_first[1..] {
            if !matches!(opened, Err(EngineError::Reader { .. } | EngineError::Memory { .. })) {
                break;
            }
            opened = open(mode, slots, batch_max);
        }
        opened.map(|reader| Box::new(reader) as Box<dyn EngineReader>)
    }
}
