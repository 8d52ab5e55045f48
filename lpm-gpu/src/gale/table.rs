//! GALE's table on the host: pending changes, and the chunks.

use super::DIRECT_UNITS;
use super::paint::{Long, Painted, units};
use crate::direct::unit::{DELETE, EXTEND, FOLD, INSERT, MODIFY, operation};
use crate::direct::{CHUNK_UNITS, ChunkState, Chunks, PlainAnswers, Unit, check_words, parent, words_max};
use crate::host::{Answers, Due, HEADER_WORDS, HostTable, Image, KernelNames, PrefixOp, UpdateStep};
use fib::{Change, Details, EngineError, IpPrefix, Prefix4, RibTable};
use serde::Serialize;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Units that a thread of the update kernel draws in about the time of one small operation.
const UNITS_A_THREAD: u64 = 4;
/// Least head room, chunks: 1 MiB, against 64 MiB of the direct table.
const CHUNKS_SPARE_MIN: u64 = 1024;

/// Options of a GALE table.
#[derive(Clone, Copy, Debug)]
pub struct GaleOptions {
    /// Limit of the table's device memory, bytes.
    pub table_bytes_max: u64,
    /// Chunks kept free at a rebuild, percent of those in use.
    pub headroom_percent: u32,
    /// Turns of the update kernel (one operation, or four units a thread) beyond which the table is painted on the host and
    /// uploaded instead: a turn takes about a microsecond, an upload of 64 MiB some milliseconds.
    pub rebuild_turns: u64,
    /// Threads of the block that runs operations.
    pub update_threads: u32,
    /// 2; or 1 for the poster's table, which ends at /24: without chunks, a lookup is one load.
    pub stages: u8,
}

impl Default for GaleOptions {
    fn default() -> Self {
        Self {
            table_bytes_max: 4 << 30,
            headroom_percent: 25,
            rebuild_turns: 4096,
            update_threads: 1024,
            stages: 2,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct GaleWork {
    inserts: u64,
    modifies: u64,
    deletes: u64,
    extends: u64,
    folds: u64,
    stage1_loads: u64,
    stage2_loads: u64,
}

/// GALE over IPv4.
#[derive(Debug)]
pub struct GaleTable {
    options: GaleOptions,
    words_max: u64,
    routes: u64,
    /// Changes since the last steps or image, in order; a route may have several.
    pending: Vec<Change<u32>>,
    turns: u64,
    /// Whether the last delta was made, not refused.
    made: bool,
    /// By /24: its 24 bits.
    longs: BTreeMap<u32, Long>,
    /// Entries of `longs` with routes.
    extended: u64,
    /// /24s that got their first or lost their last long prefix since the last steps.
    touched: Vec<u32>,
    chunks: Chunks,
    capacity: u64,
    painted: OnceCell<Painted>,
    /// Whether the device got an image that includes all pending changes.
    imaged: Cell<bool>,
    given: GaleWork,
}

impl GaleTable {
    /// A table without routes.
    ///
    /// # Errors
    /// [`EngineError::Full`] if the direct table exceeds `options.table_bytes_max`.
    pub fn new(options: GaleOptions) -> Result<Self, EngineError> {
        let mut table = Self {
            options,
            words_max: words_max(options.table_bytes_max),
            routes: 0,
            pending: Vec::new(),
            turns: 0,
            made: false,
            longs: BTreeMap::new(),
            extended: 0,
            touched: Vec::new(),
            chunks: Chunks::default(),
            capacity: 0,
            painted: OnceCell::new(),
            imaged: Cell::new(false),
            given: GaleWork::default(),
        };
        table.check_room(0)?;
        table.capacity = table.capacity_for(0);
        Ok(table)
    }

    /// Chunks of the second stage in use.
    #[must_use]
    pub const fn chunks_in_use(&self) -> u32 {
        self.chunks.used()
    }

    fn check_room(&self, chunks: u64) -> Result<(), EngineError> {
        let words = DIRECT_UNITS as u64 + chunks * CHUNK_UNITS as u64;
        check_words(words, self.words_max)
    }

    fn room(&self) -> u64 {
        self.capacity.max(self.chunks.high_water() as u64)
    }

    fn check_lengths(&self, changes: &[Change<u32>]) -> Result<(), EngineError> {
        let is_long = |change: &&Change<u32>| change.prefix.len() > 24;
        match changes.iter().find(is_long) {
            Some(change) if self.options.stages == 1 => Err(EngineError::Prefix {
                prefix: IpPrefix::V4(change.prefix),
                wanted: "gale with stages=1 holds prefixes up to /24 only; stages=2 holds all",
            }),
            _ => Ok(()),
        }
    }

    fn capacity_for(&self, used: u64) -> u64 {
        if self.options.stages == 1 {
            return 0;
        }
        let wanted = used + (used * u64::from(self.options.headroom_percent) / 100).max(CHUNKS_SPARE_MIN);
        let fit = self.words_max.saturating_sub(DIRECT_UNITS as u64) / CHUNK_UNITS as u64;
        wanted.min(fit)
    }

    fn count(&mut self, change: &Change<u32>) {
        let (prefix, adds) = (change.prefix, change.adds());
        if !adds && !change.withdraws() {
            return;
        }
        self.routes = if adds { self.routes + 1 } else { self.routes - 1 };
        if prefix.len() <= 24 {
            return;
        }
        let slot = prefix.address() >> 8;
        let chunks = &mut self.chunks;
        let long = self.longs.entry(slot).or_insert_with(|| Long { routes: 0, chunk: chunks.allocate() });
        let before = long.routes;
        long.routes = if adds { before + 1 } else { before - 1 };
        if before == 0 {
            self.extended += 1;
            self.touched.push(slot);
        } else if long.routes == 0 {
            self.extended -= 1;
            self.touched.push(slot);
        }
    }

    /// Frees the chunks of /24s without long prefixes; returns those that the device must fold.
    fn sweep(&mut self) -> Vec<(u32, u32)> {
        let mut folded = Vec::new();
        for slot in std::mem::take(&mut self.touched) {
            let Some(Long { routes: 0, chunk }) = self.longs.get(&slot).copied() else { continue };
            self.longs.remove(&slot);
            if self.chunks.state(chunk) == ChunkState::Live {
                folded.push((slot, chunk));
            }
            self.chunks.give_back(chunk);
        }
        folded
    }

    fn settle(&mut self) {
        if self.imaged.replace(false) {
            self.forget_pending();
            self.sweep();
            self.chunks.adopt();
        }
    }

    /// Takes pending changes by length, merged to one a route.
    fn take_pending(&mut self) -> Vec<Change<u32>> {
        self.turns = 0;
        let mut pending = std::mem::take(&mut self.pending);
        // Stable sort: a route's first change has the device's next hop, its last the new one.
        pending.sort_by_key(|change| (change.prefix.len(), change.prefix.address()));
        pending.dedup_by(|later, first| {
            let is_same = later.prefix == first.prefix;
            if is_same {
                first.new = later.new;
            }
            is_same
        });
        pending.retain(|change| change.old != change.new);
        pending
    }

    fn forget_pending(&mut self) {
        self.turns = 0;
        self.pending.clear();
    }

    fn loads(&self, prefix: Prefix4) -> [u64; 2] {
        if prefix.len() > 24 {
            return [1, units(prefix) as u64];
        }
        let first = prefix.address() >> 8;
        let last = prefix.last_address() >> 8;
        let chunks = self.longs.range(first..=last).count();
        [units(prefix) as u64, (chunks * CHUNK_UNITS) as u64]
    }

    fn draw(&mut self, ops: &mut Vec<PrefixOp>, kind: u32, prefix: Prefix4, unit: Unit) {
        let [stage1, stage2] = self.loads(prefix);
        self.given.stage1_loads += stage1;
        self.given.stage2_loads += stage2;
        ops.push(operation(kind, prefix, unit));
    }

    fn count_kinds(&mut self, ops: &[PrefixOp]) {
        let given = &mut self.given;
        let extends_before = given.extends;
        let folds_before = given.folds;
        for op in ops {
            let counter = match op.how & 0xff {
                INSERT => &mut given.inserts,
                MODIFY => &mut given.modifies,
                DELETE => &mut given.deletes,
                EXTEND => &mut given.extends,
                _ => &mut given.folds,
            };
            *counter += 1;
        }
        given.stage1_loads += given.extends - extends_before;
        given.stage2_loads += given.folds - folds_before;
    }
}

impl HostTable<u32> for GaleTable {
    fn limit(&mut self, most: usize) {
        self.words_max = words_max(self.options.table_bytes_max).min(most as u64);
    }

    fn apply(&mut self, changes: &[Change<u32>], _: &RibTable<u32>) -> Result<Due, EngineError> {
        self.settle();
        if let Err(error) = self.check_lengths(changes) {
            self.made = false;
            return Err(error);
        }
        let before = self.extended;
        changes.iter().for_each(|change| self.count(change));
        if self.extended > before
            && let Err(error) = self.check_room(self.extended)
        {
            changes.iter().for_each(|change| self.count(&change.reversed()));
            self.made = false;
            return Err(error);
        }
        self.made = true;
        self.painted = OnceCell::new();
        let units_a_turn = UNITS_A_THREAD * u64::from(self.options.update_threads);
        self.turns +=
            changes.iter().map(|change| 1 + units(change.prefix) as u64 / units_a_turn).sum::<u64>();
        self.pending.extend_from_slice(changes);
        if self.chunks.high_water() as u64 <= self.capacity && self.turns <= self.options.rebuild_turns {
            return Ok(Due::Steps);
        }
        self.rebuild().map(|()| Due::Image)
    }

    fn may_have_changed(&self) -> bool {
        self.made
    }

    /// Renumbers the chunks and drops pending changes: the device gets an image.
    fn rebuild(&mut self) -> Result<(), EngineError> {
        self.check_room(self.extended)?;
        self.longs.retain(|_, long| long.routes != 0);
        for (number, long) in (0..).zip(self.longs.values_mut()) {
            long.chunk = number;
        }
        self.capacity = self.capacity_for(self.extended);
        self.chunks.restart(u32::try_from(self.extended).unwrap_or(u32::MAX));
        self.touched.clear();
        self.forget_pending();
        self.painted = OnceCell::new();
        self.imaged.set(false);
        Ok(())
    }

    /// One launch: extend /24s with chunks; insert and modify routes, longest first; delete routes, shortest first; fold
    /// chunks. In this order each operation changes a lookup's answer to the new one or not at all. While routes are
    /// inserted and modified, a key belongs to its old route, or to its new one if that is longer, which was drawn before. A
    /// delete writes the unit of the route that covers it after the update, which is the new answer.
    fn take_steps(&mut self, update: u64, routes: &RibTable<u32>) -> Vec<UpdateStep> {
        self.settle();
        let mut changed = self.take_pending();
        let mut ops = Vec::with_capacity(changed.len());
        for slot in &self.touched {
            let prefix = Prefix4::truncating(slot << 8, 24);
            match self.longs.get(slot) {
                // New, so without a chunk on the device. A slot may be listed several times.
                Some(long) if long.routes != 0 && self.chunks.state(long.chunk) == ChunkState::New => {
                    ops.push(operation(EXTEND, prefix, Unit(long.chunk << 8)));
                }
                _ => {}
            }
        }
        ops.sort_unstable_by_key(|op: &PrefixOp| op.address);
        ops.dedup();
        for Change { prefix, old, new } in changed.iter().rev().filter(|change| !change.withdraws()) {
            let kind = if old.is_none() { INSERT } else { MODIFY };
            self.draw(&mut ops, kind, *prefix, Unit::route(*new, prefix.len()));
        }
        for Change { prefix, .. } in changed.iter().filter(|change| change.withdraws()) {
            self.draw(&mut ops, DELETE, *prefix, parent(routes, *prefix));
        }
        changed.clear();
        self.pending = changed;
        for (slot, chunk) in self.sweep() {
            ops.push(operation(FOLD, Prefix4::truncating(slot << 8, 24), Unit(chunk << 8)));
        }
        self.chunks.publish(update);
        self.count_kinds(&ops);
        if ops.is_empty() { Vec::new() } else { vec![UpdateStep::Ops(ops)] }
    }

    fn reclaim(&mut self, update: u64) {
        self.chunks.reclaim(update);
    }

    fn image(&self, routes: &RibTable<u32>) -> Image<'_> {
        let words = DIRECT_UNITS + usize::try_from(self.room()).unwrap_or(0) * CHUNK_UNITS;
        let runs = if self.routes == 0 {
            Vec::new()
        } else {
            self.painted.get_or_init(|| Painted::new(routes, &self.longs)).runs()
        };
        self.imaged.set(true);
        Image { header: [0; HEADER_WORDS], runs, words }
    }

    fn kernels(&self) -> KernelNames {
        let (frozen, live) = match self.options.stages {
            1 => ("gale_lookup_v4_direct_frozen", "gale_lookup_v4_direct_live"),
            _ => ("gale_lookup_v4_frozen", "gale_lookup_v4_live"),
        };
        KernelNames { module: "gale", frozen, live, ops: Some("gale_operations") }
    }

    fn answers(&self) -> Arc<dyn Answers<u32>> {
        Arc::new(PlainAnswers)
    }

    fn routes(&self) -> u64 {
        self.routes
    }

    fn host_bytes(&self) -> u64 {
        let longs = self.longs.len() * (size_of::<(u32, Long)>() + 8); // node overhead of the map, about
        let painted = self.painted.get().map_or(0, Painted::bytes);
        let pending = self.pending.capacity() * size_of::<Change<u32>>();
        (longs + pending) as u64 + self.chunks.bytes() + painted
    }

    fn details(&self) -> Details {
        #[derive(Serialize)]
        struct GaleFigures {
            stages: u8,
            update_threads: u32,
            stage1_bytes: u64,
            stage2_bytes: u64,
            chunks: u32,
            chunks_max: u64,
            chunks_waiting: usize,
            #[serde(flatten)]
            work: GaleWork,
        }
        let figures = GaleFigures {
            stages: self.options.stages,
            update_threads: self.options.update_threads,
            stage1_bytes: 4 * DIRECT_UNITS as u64,
            stage2_bytes: 4 * self.room() * CHUNK_UNITS as u64,
            chunks: self.chunks.used(),
            chunks_max: self.capacity,
            chunks_waiting: self.chunks.waiting(),
            work: self.given,
        };
        Details::named(&figures, |name| format!("gale_{name}"))
    }
}
