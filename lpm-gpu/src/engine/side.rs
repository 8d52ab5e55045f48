//! One family's table: on the host, where updates are computed, and on the device, where lookups read it.

use super::bubbles::Bubbles;
use super::gpu::Gpu;
use super::tables::{DeviceTable, Spares, table_bytes};
use crate::cu::Kernel;
use crate::host::{Due, HEADER_WORDS, HostTable, KernelNames, UpdateStep};
use crate::phase::PhaseTime;
use arc_swap::ArcSwap;
use fib::{Change, Details, EngineError, Key, Rib, RibTable};
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Limit of both families' current tables together, bytes.
    pub(super) table_bytes_max: u64,
    /// Allocated bytes of the other family's table: so there is always room for a second table of each, unless lookups hold more.
    pub(super) others_bytes: u64,
}

impl Limits {
    const fn bytes(self) -> u64 {
        self.table_bytes_max.saturating_sub(self.others_bytes)
    }

    fn words(self) -> usize {
        usize::try_from(self.bytes() / 4).unwrap_or(usize::MAX).saturating_sub(HEADER_WORDS)
    }

    fn check(self, words: usize) -> Result<(), EngineError> {
        if table_bytes(words) <= self.bytes() {
            return Ok(());
        }
        let used = table_bytes(words).saturating_add(self.others_bytes);
        Err(EngineError::Full { what: "table bytes", used, limit: self.table_bytes_max })
    }
}

/// Phases of a rebuild. The host table itself measures parts of `host`.
#[derive(Clone, Copy, Debug, Default)]
struct RebuildTimes {
    host: PhaseTime,
    allocate: PhaseTime,
    upload: PhaseTime,
    finish: PhaseTime,
}

pub(super) struct Side<K: Key> {
    pub(super) host: Box<dyn HostTable<K>>,
    pub(super) current: Arc<DeviceTable>,
    spares: Spares,
    pub(super) ops: Option<Kernel>,
    /// The host table was rebuilt, but its image is not in service: steps would not fit the current table.
    stale: bool,
    frozen: bool,
    steps: Vec<UpdateStep>,
    pub(super) rebuilds: u64,
    pub(super) swaps: u64,
    times: RebuildTimes,
}

impl<K: Key> Side<K> {
    pub(super) fn new(
        gpu: &Gpu,
        bubbles: &mut Bubbles,
        host: Box<dyn HostTable<K>>,
        frozen: bool,
        limits: Limits,
    ) -> Result<Self, EngineError> {
        let names = host.kernels();
        let ops = match names.ops {
            Some(entry) => Some(gpu.kernel(names.module, entry).map_err(|error| gpu.fault(error))?),
            None => None,
        };
        let mut spares = Spares::default();
        let empty = Rib::new();
        let image = host.image(K::part(&empty));
        limits.check(image.words)?;
        let kernel = lookup_kernel(gpu, &names, frozen)?;
        let mut current = spares.reserve(gpu, image.words, kernel, (u64::MAX, u64::MAX))?;
        bubbles.write_table(&mut current, &image).map_err(|error| gpu.fault(error))?;
        drop(image);
        Ok(Self {
            host,
            current: Arc::new(current),
            spares,
            ops,
            stale: false,
            frozen,
            steps: Vec::new(),
            rebuilds: 0,
            swaps: 0,
            times: RebuildTimes::default(),
        })
    }

    /// Stage 1: makes `changes` on the host and reserves memory for an image. [`Self::take_back`] reverts it, after errors too.
    pub(super) fn prepare(
        &mut self,
        gpu: &Gpu,
        changes: &[Change<K>],
        routes: &RibTable<K>,
        limits: Limits,
    ) -> Result<Option<DeviceTable>, EngineError> {
        let start = Instant::now();
        self.host.limit(limits.words());
        let adopts = !self.spares.are_held()
            && self.host.early_words().is_some_and(|words| self.makes_room(gpu, words, limits));
        self.host.put_off_rebuilds(!adopts);
        let due = self.host.apply(changes, routes)?;
        self.note(due);
        let renewing = self.stale || (self.frozen && !changes.is_empty());
        if !renewing {
            return Ok(None);
        }
        self.stale = true; // until the swap
        if limits.check(self.host.image(routes).words).is_err() {
            self.host.rebuild()?; // less head room may fit
            self.note(Due::Image);
        }
        let words = self.host.image(routes).words;
        self.times.host.record(start.elapsed());
        limits.check(words)?;
        self.reserve(gpu, words, limits).map(Some)
    }

    /// Memory for a table of `words` next to the one in service.
    fn reserve(&mut self, gpu: &Gpu, words: usize, limits: Limits) -> Result<DeviceTable, EngineError> {
        // Two tables a family (section 4.3), and those that lookups in flight hold: at most twice the limit in all.
        let in_service = self.current.allocated_bytes() + limits.others_bytes.saturating_mul(2);
        let allowance_bytes = limits.table_bytes_max.saturating_mul(2).saturating_sub(in_service);
        let kernel = lookup_kernel(gpu, &self.host.kernels(), self.frozen)?;
        let Self { spares, times, .. } = self;
        let limits = (limits.bytes(), allowance_bytes);
        times.allocate.time(|| spares.reserve(gpu, words, kernel, limits))
    }

    /// Whether there is memory for a table that was built early, among the spares from now on. Without it the current table stays in
    /// service: it still has room.
    fn makes_room(&mut self, gpu: &Gpu, words: u64, limits: Limits) -> bool {
        let words = usize::try_from(words).unwrap_or(usize::MAX);
        let reserved = limits.check(words).and_then(|()| self.reserve(gpu, words, limits));
        reserved.map(|table| self.spares.retire(Arc::new(table))).is_ok()
    }

    /// Reverts `changes` on the host, made or not; `routes` are the routes before them.
    pub(super) fn take_back(
        &mut self,
        changes: &[Change<K>],
        routes: &RibTable<K>,
    ) -> Result<(), EngineError> {
        let due = self.host.take_back(changes, routes)?;
        self.note(due);
        Ok(())
    }

    fn note(&mut self, due: Due) {
        if due == Due::Image {
            self.stale = true;
            self.rebuilds += 1;
        }
    }

    /// Stage 2: takes the steps of update `update`. From here on answers include the update.
    pub(super) fn take_steps(&mut self, update: u64, routes: &RibTable<K>) {
        self.steps = self.host.take_steps(update, routes);
    }

    /// Stage 3: updates the current table, or fills `renewed`, which replaces it.
    pub(super) fn update(
        &mut self,
        gpu: &Gpu,
        bubbles: &mut Bubbles,
        routes: &RibTable<K>,
        renewed: Option<&mut DeviceTable>,
    ) -> Result<(), EngineError> {
        let steps = std::mem::take(&mut self.steps);
        let done = match renewed {
            Some(table) => {
                let image = self.host.image(routes); // includes the steps
                self.times.upload.time(|| bubbles.write_table(table, &image))
            }
            None => bubbles.run(&self.current, self.ops.as_ref(), &steps),
        };
        done.map_err(|error| {
            self.stale = true; // the steps may have run in part
            gpu.fault(error)
        })
    }

    /// The delta failed: `renewed` is dropped, and a table whose steps were taken but not run needs an image.
    pub(super) fn fail(&mut self, renewed: Option<DeviceTable>) {
        self.stale |= !self.steps.is_empty();
        self.steps.clear();
        if let Some(table) = renewed {
            self.spares.retire(Arc::new(table));
        }
    }

    /// Puts a renewed table in service; the writer reuses or frees the previous one ([`Spares`]).
    pub(super) fn commit(&mut self, renewed: Option<DeviceTable>, place: &ArcSwap<DeviceTable>) {
        let Some(table) = renewed else { return };
        let Self { current, spares, .. } = self;
        self.times.finish.time(|| {
            let table = Arc::new(table);
            place.store(Arc::clone(&table));
            spares.retire(std::mem::replace(current, table));
        });
        self.stale = false;
        self.swaps += 1;
    }

    /// The durations of the phases of rebuilds.
    pub(super) fn times(&self) -> Details {
        let RebuildTimes { host, allocate, upload, finish } = &self.times;
        let phases = [("host", host), ("allocate", allocate), ("upload", upload), ("finish", finish)];
        let details = phases.map(|(name, time)| time.details(name));
        details.into_iter().fold(Details::default(), Details::and).of_family(K::FAMILY)
    }

    pub(super) fn spare_bytes(&self) -> u64 {
        self.spares.allocated_bytes()
    }
}

fn lookup_kernel(gpu: &Gpu, names: &KernelNames, frozen: bool) -> Result<Kernel, EngineError> {
    let entry = if frozen { names.frozen } else { names.live };
    gpu.kernel(names.module, entry).map_err(|error| gpu.fault(error))
}
