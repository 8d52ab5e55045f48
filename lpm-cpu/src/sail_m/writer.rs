//! The writer's side of SAIL_M: the overlay trie pushed to its leaves, and updates in place (section 4.3, "FIB Update").
//!
//! A node is split while any FIB has a longer route below it ([`LongRoutes`] counts the routes of all FIBs). An update pushes only next
//! hops in the rows of its FIB: a run at the level of the route and in chunks below. Only a node that is split or becomes a leaf again is
//! written for every FIB. Each lookup in flight, in any FIB, gets an old or a new answer:
//!
//! - *A change of next hops* is one store an address: the longest prefixes of a delta come first, and the heir of a withdrawn route comes
//!   from the RIB, which is in the final state.
//! - *A split* fills the chunk with the node's vector, for all FIBs, then one store links it: in BC16, or in B24 after C24. No answer
//!   changes. A lookup that found a leaf before reads the node's vector, unchanged until the node is a leaf again. A lookup that found an
//!   earlier 0 in B24 may read the new C24, which leads to current answers.
//! - *A node becomes a leaf again* at the end of a delta, when each FIB has one next hop in all of its chunk. These are stored in the
//!   node's vector, then one store in BC16 or B24 makes lookups read it. A lookup that found a leaf before the split may read this vector
//!   too: it is current. The chunk keeps its next hops until a grace period has passed, for lookups that read its id.

use super::table::{BLOCKS16, OverlayTable, ROWS_MAX};
use crate::chunks::{CHUNK_ENTRIES, Chunks, with_reserve};
use crate::pushing::{Draw, LongRoutes, longest_first};
use crate::sail_l::layout::{ENTRIES16, SailRoom};
use crate::sail_l::writer::structure;
use crate::writes::Writes;
use fib::{Change, Details, EngineError, FibId, NextHopId, Prefix4, RibTable};
use lpm_core::memory::Placement;
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct OverlayWriter {
    table: Arc<OverlayTable>,
    /// The length of the route that owns each next hop.
    owners: Vec<u8>,
    chunks24: Chunks,
    chunks32: Chunks,
    long: LongRoutes,
    writes: Writes,
}

impl OverlayWriter {
    pub(crate) fn new(fibs: u32, room: SailRoom, placement: Placement) -> Result<Self, EngineError> {
        let table = OverlayTable::zeroed(fibs, room, placement)?;
        Ok(Self {
            owners: vec![0; table.block(table.chunk32(room.chunks32 + 1).start).start],
            table: Arc::new(table),
            chunks24: Chunks::new(room.chunks24),
            chunks32: Chunks::new(room.chunks32),
            long: LongRoutes::new(),
            writes: Writes::default(),
        })
    }

    pub(crate) const fn table(&self) -> &Arc<OverlayTable> {
        &self.table
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.owners.capacity() as u64 + self.long.bytes() + self.chunks24.bytes() + self.chunks32.bytes()
    }

    pub(crate) fn details(&self) -> Details {
        structure(self.chunks24.used(), self.chunks32.used())
            .and(self.writes.details())
            .and(Details::from([("sail_fibs", self.table.fibs.into())]))
    }

    pub(crate) fn admits(&self, changes: &[Change<u32>]) -> bool {
        let [new16, new24] = self.long.new_nodes(changes);
        new16 <= self.chunks24.available() && new24 <= self.chunks32.available()
    }

    pub(crate) fn owes_grace(&self) -> bool {
        self.chunks24.has_limbo() || self.chunks32.has_limbo()
    }

    /// Makes chunks freed before a grace period available again: every lookup that ran when [`Self::update`] last returned has ended.
    pub(crate) fn grace_over(&mut self) {
        self.chunks24.end_grace();
        self.chunks32.end_grace();
    }

    /// [`EngineError::Full`] if the next hops of all FIBs need more chunks than have indices.
    pub(crate) fn room_with(
        &self,
        changes: &[Change<u32>],
        has_reserve: bool,
    ) -> Result<SailRoom, EngineError> {
        room(
            self.table.fibs,
            [self.chunks24.used(), self.chunks32.used()],
            self.long.growth(changes),
            has_reserve,
        )
    }

    /// A copy with more room and `changes` of `fib`, not published yet. The next hops of other FIBs are copied without their routes.
    pub(crate) fn rebuilt(
        &self,
        room: SailRoom,
        placement: Placement,
        fib: FibId,
        changes: &[Change<u32>],
        routes: &RibTable<u32>,
    ) -> Result<Self, EngineError> {
        let mut new = Self::new(self.table.fibs, room, placement)?;
        new.long = self.long.clone();
        new.copy_blocks(self, 0, 0..ENTRIES16);
        for node in 0..ENTRIES16 {
            let Some(from) = self.table.below(node) else { continue };
            let chunk = new.chunks24.allocate();
            let to = OverlayTable::chunk24(chunk);
            new.copy_blocks(self, to.start, from.clone());
            new.table.b24.fill(to.start - ENTRIES16..to.end - ENTRIES16, 1);
            new.table.bc16.set(node, chunk);
            for (from, to) in from.zip(to) {
                let Some(below) = self.table.below(from) else { continue };
                let chunk = new.chunks32.allocate();
                new.copy_blocks(self, new.table.chunk32(chunk).start, below);
                new.table.c24.set(to - ENTRIES16, chunk);
                new.table.b24.set(to - ENTRIES16, 0);
            }
        }
        new.apply_unseen(fib, changes, routes);
        new.writes = Writes::default();
        Ok(new)
    }

    fn copy_blocks(&mut self, old: &Self, to: usize, vectors: Range<usize>) {
        let [from, end, to] = [vectors.start, vectors.end, to].map(|vector| self.table.block(vector).start);
        self.table.hops.copy(to, &old.table.hops, from..end);
        self.owners[to..to + (end - from)].copy_from_slice(&old.owners[from..end]);
    }

    /// Applies `changes` to an unpublished table. Withdraws go first, so that freed chunks are reused.
    fn apply_unseen(&mut self, fib: FibId, changes: &[Change<u32>], routes: &RibTable<u32>) {
        self.count(changes);
        changes.iter().filter(|change| change.withdraws()).for_each(|change| self.push(fib, *change, routes));
        self.merge(changes);
        self.grace_over();
        changes
            .iter()
            .filter(|change| !change.withdraws())
            .for_each(|change| self.push(fib, *change, routes));
    }

    /// Applies `changes` of `fib`, which lead to `routes` and passed [`Self::admits`], while lookups run.
    pub(crate) fn update(&mut self, fib: FibId, changes: &[Change<u32>], routes: &RibTable<u32>) {
        let changes = longest_first(changes);
        self.writes.updates += changes.len() as u64;
        // Count before any withdraw: a chunk that is still needed must stay.
        self.count(&changes);
        for change in &changes {
            self.push(fib, *change, routes);
            self.writes.end_step();
        }
        // All next hops of a FIB in a chunk without longer routes are equal only from here on.
        self.merge(&changes);
        self.writes.end_step();
    }

    fn count(&mut self, changes: &[Change<u32>]) {
        changes.iter().filter(|change| change.adds()).for_each(|change| self.long.count(change.prefix));
    }

    fn push(&mut self, fib: FibId, Change { prefix, new, .. }: Change<u32>, routes: &RibTable<u32>) {
        let (address, len) = (prefix.address(), prefix.len());
        let draw = if new.is_none() {
            let (heir, next_hop) = routes.used_above(prefix).unwrap_or((0, NextHopId::NONE));
            self.long.discount(prefix);
            Draw::withdraw(len, (heir, next_hop.get()))
        } else {
            if len > 16 {
                self.split((address >> 16) as usize);
            }
            if len > 24 {
                self.split(self.vector24(address));
            }
            Draw::announce(len, new.get())
        };
        self.draw(fib, self.covered(prefix), draw);
    }

    /// The vector of level 24 for `address`, whose /16 must be split.
    fn vector24(&self, address: u32) -> usize {
        OverlayTable::chunk24(self.table.bc16.get((address >> 16) as usize)).start
            + (address >> 8 & 0xff) as usize
    }

    /// The vectors that a route covers at its level; the nodes above must be split.
    fn covered(&self, prefix: Prefix4) -> Range<usize> {
        let address = prefix.address();
        let (first, level) = match prefix.len() {
            0..=16 => ((address >> 16) as usize, 16),
            17..=24 => (self.vector24(address), 24),
            _ => {
                let chunk = self.table.c24.get(self.vector24(address) - ENTRIES16);
                (self.table.chunk32(chunk).start + (address & 0xff) as usize, 32)
            }
        };
        first..first + (1 << (level - prefix.len()))
    }

    fn draw(&mut self, fib: FibId, vectors: Range<usize>, draw: Draw) {
        let Self { table, owners, writes, .. } = self;
        let mut first = vectors.start;
        while first < vectors.end {
            // The rows of one block.
            let end = vectors.end.min((first / CHUNK_ENTRIES + 1) * CHUNK_ENTRIES);
            let row = table.place(first, fib);
            writes.offchip += table.hops.edit(row..row + (end - first), |at, old| {
                let is_leaf = table.below(first + (at - row)).is_none();
                if is_leaf && draw.takes(&mut owners[at]) { draw.code } else { old }
            });
            first = end;
        }
        for vector in vectors {
            if let Some(below) = self.table.below(vector) {
                self.draw(fib, below, draw);
            }
        }
    }

    fn split(&mut self, vector: usize) {
        if self.table.below(vector).is_some() {
            return;
        }
        let Self { table, owners, writes, .. } = self;
        let is_level16 = vector < ENTRIES16;
        let (chunk, below) = if is_level16 {
            let chunk = self.chunks24.allocate();
            (chunk, OverlayTable::chunk24(chunk))
        } else {
            let chunk = self.chunks32.allocate();
            (chunk, table.chunk32(chunk))
        };
        for fib in (0..table.fibs).map(FibId) {
            let (from, row) = (table.place(vector, fib), table.place(below.start, fib));
            let row = row..row + CHUNK_ENTRIES;
            let owner = owners[from];
            owners[row.clone()].fill(owner);
            writes.offchip += table.hops.fill(row, table.hops.get(from));
        }
        if is_level16 {
            writes.onchip += table.b24.fill(below.start - ENTRIES16..below.end - ENTRIES16, 1);
            writes.onchip += table.bc16.set(vector, chunk);
        } else {
            writes.offchip += table.c24.set(vector - ENTRIES16, chunk);
            writes.onchip += table.b24.set(vector - ENTRIES16, 0);
        }
    }

    /// Makes nodes without longer routes in any FIB leaves again after the withdraws of `changes`: first level 24, then level 16.
    fn merge(&mut self, changes: &[Change<u32>]) {
        let withdrawn = || changes.iter().filter(|change| change.withdraws()).map(|change| change.prefix);
        for prefix in withdrawn().filter(|prefix| prefix.len() > 24) {
            if !self.long.are_in24(prefix.address()) {
                self.make_leaf(self.vector24(prefix.address()));
            }
        }
        for prefix in withdrawn().filter(|prefix| prefix.len() > 16) {
            if !self.long.are_in16(prefix.address()) {
                self.make_leaf((prefix.address() >> 16) as usize);
            }
        }
    }

    /// Makes the node of a vector a leaf, with each FIB's next hop from the chunk below.
    fn make_leaf(&mut self, vector: usize) {
        let Some(below) = self.table.below(vector) else {
            return; // merged by another withdrawn route
        };
        let Self { table, owners, writes, .. } = self;
        for fib in (0..table.fibs).map(FibId) {
            let (from, to) = (table.place(below.start, fib), table.place(vector, fib));
            owners[to] = owners[from];
            writes.offchip += table.hops.set(to, table.hops.get(from));
        }
        if vector < ENTRIES16 {
            self.chunks24.free(table.bc16.get(vector));
            writes.onchip += table.bc16.set(vector, 0);
        } else {
            self.chunks32.free(table.c24.get(vector - ENTRIES16));
            writes.onchip += table.b24.set(vector - ENTRIES16, 1);
        }
    }
}

/// Used chunks are counted in full, as withdraws free them only later. [`EngineError::Full`] beyond the limits.
pub(crate) fn room(
    fibs: u32,
    used: [u64; 2],
    growth: [i64; 2],
    has_reserve: bool,
) -> Result<SailRoom, EngineError> {
    let limit = ROWS_MAX / fibs - BLOCKS16;
    let [need24, need32] = [0, 1].map(|at| used[at].max(used[at].saturating_add_signed(growth[at])));
    if need24 + need32 > limit.into() {
        let what = "chunks of sail-m with so many FIBs";
        return Err(EngineError::Full { what, used: need24 + need32, limit: limit.into() });
    }
    // Both are below the limit, which is below 2^23.
    let left = |need: u64| limit - u32::try_from(need).unwrap_or(limit);
    let chunks24 = with_reserve(need24, has_reserve, left(need32).min(1 << 16));
    let chunks32 = with_reserve(need32, has_reserve, left(chunks24.into()));
    Ok(SailRoom { chunks24, chunks32 })
}
