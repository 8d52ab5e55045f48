//! The writer's side of SAIL_L: the route that owns each entry, chunks, and updates in place (section 4.2, "FIB Update").
//!
//! After each store, every lookup in flight gets an old or a new answer. A delta is applied longest prefix first, and the heir of a
//! withdrawn route comes from the RIB, which is in the final state, so one store moves each address from its old answer to its new one. A
//! chunk is filled with its node's value before one store links it. When no longer route is left, at the end of the delta, one store
//! replaces the link by the value of its entries. The chunk keeps its entries until a grace period has passed, for lookups that read its
//! id before.

use super::layout::{ENTRIES16, SailLayout, SailLevel, SailRoom};
use crate::chunks::{CHUNK_ENTRIES, Chunks, distinct, entries_of, nodes_of, with_reserve};
use crate::codes::HopCodes;
use crate::params::SailParams;
use crate::pushing::{Draw, LongRoutes, longest_first};
use crate::writes::Writes;
use fib::{Change, Details, EngineError, NextHopId, Prefix4, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use std::ops::Range;
use std::sync::Arc;

/// The owner of an entry that leads to a chunk.
const LINK: u8 = u8::MAX;
/// The 64-bit words of B24 that a new chunk writes on chip.
const B24_WORDS: u64 = CHUNK_ENTRIES as u64 / 64;

pub(crate) struct SailWriter<L: SailLayout> {
    table: Arc<L>,
    codes: HopCodes,
    /// The length of the route that owns each entry of BCN, BN24 and N32.
    owners: [Vec<u8>; 3],
    chunks24: Chunks,
    chunks32: Chunks,
    long: LongRoutes,
    writes: Writes,
}

const fn level_of(len: u8) -> SailLevel {
    match len {
        0..=16 => SailLevel::L16,
        17..=24 => SailLevel::L24,
        _ => SailLevel::L32,
    }
}

const fn below(level: SailLevel) -> SailLevel {
    match level {
        SailLevel::L16 => SailLevel::L24,
        SailLevel::L24 | SailLevel::L32 => SailLevel::L32,
    }
}

impl<L: SailLayout> SailWriter<L> {
    /// The index in BN24 for `address`, whose /16 must have a chunk.
    fn place24(&self, address: u32) -> usize {
        let chunk = self.table.chunk(SailLevel::L16, (address >> 16) as usize);
        entries_of(chunk).start + (address >> 8 & 0xff) as usize
    }

    /// The entries that a route covers at its level; the chunks on the path must exist.
    fn covered(&self, prefix: Prefix4) -> Range<usize> {
        let address = prefix.address();
        let (first, level) = match level_of(prefix.len()) {
            SailLevel::L16 => ((address >> 16) as usize, 16),
            SailLevel::L24 => (self.place24(address), 24),
            SailLevel::L32 => {
                let chunk = self.table.chunk(SailLevel::L24, self.place24(address));
                (entries_of(chunk).start + (address & 0xff) as usize, 32)
            }
        };
        first..first + (1 << (level - prefix.len()))
    }

    fn draw(&mut self, level: SailLevel, range: Range<usize>, draw: Draw) {
        let entry = L::entry(level, draw.code);
        let owners = &mut self.owners[level as usize];
        let mut has_links = false;
        self.writes.offchip += self.table.edit(level, range.clone(), |at, old| {
            has_links |= owners[at] == LINK;
            if draw.takes(&mut owners[at]) { entry } else { old }
        });
        if !has_links {
            return;
        }
        for at in range {
            if self.owners[level as usize][at] == LINK {
                let chunk = self.table.chunk(level, at);
                self.draw(below(level), entries_of(chunk), draw);
            }
        }
    }

    /// Splits an entry: a chunk of the level below, filled with the entry's value, replaces it.
    fn split(&mut self, level: SailLevel, at: usize) {
        let owner = self.owners[level as usize][at];
        if owner == LINK {
            return;
        }
        let below = below(level);
        let chunk = if below == SailLevel::L24 { self.chunks24.allocate() } else { self.chunks32.allocate() };
        let filler = L::entry(below, L::code(self.table.get(level, at)));
        self.owners[below as usize][entries_of(chunk)].fill(owner);
        self.writes.offchip += self.table.edit(below, entries_of(chunk), |_, _| filler);
        self.writes.onchip += if below == SailLevel::L24 { B24_WORDS } else { 0 };
        self.writes.onchip += self.table.link(level, at, chunk);
        self.owners[level as usize][at] = LINK;
    }

    /// Replaces the link to a chunk without longer routes by the value of its entries.
    fn merge(&mut self, level: SailLevel, at: usize) {
        if self.owners[level as usize][at] != LINK {
            return; // merged by another withdrawn route
        }
        let (chunk, below) = (self.table.chunk(level, at), below(level));
        let first = entries_of(chunk).start;
        let entry = L::entry(level, L::code(self.table.get(below, first)));
        self.owners[level as usize][at] = self.owners[below as usize][first];
        self.writes.onchip += self.table.edit(level, at..at + 1, |_, _| entry);
        if below == SailLevel::L24 { self.chunks24.free(chunk) } else { self.chunks32.free(chunk) }
    }

    fn announce(&mut self, prefix: Prefix4, next_hop: NextHopId) {
        let (address, len) = (prefix.address(), prefix.len());
        if len > 16 {
            self.split(SailLevel::L16, (address >> 16) as usize);
        }
        if len > 24 {
            self.split(SailLevel::L24, self.place24(address));
        }
        let draw = Draw::announce(len, self.codes.code(next_hop));
        self.draw(level_of(len), self.covered(prefix), draw);
    }

    fn withdraw(&mut self, prefix: Prefix4, heir: (u8, NextHopId)) {
        let draw = Draw::withdraw(prefix.len(), (heir.0, self.codes.code(heir.1)));
        self.draw(level_of(prefix.len()), self.covered(prefix), draw);
        self.long.discount(prefix);
    }

    /// Frees the chunk of level 32 that only the withdrawn `prefix` needed.
    fn merge24(&mut self, prefix: Prefix4) {
        if prefix.len() > 24 && !self.long.are_in24(prefix.address()) {
            self.merge(SailLevel::L24, self.place24(prefix.address()));
        }
    }

    /// Frees the chunk of level 24 that only the withdrawn `prefix` needed, after chunks of level 32 in it.
    fn merge16(&mut self, prefix: Prefix4) {
        if prefix.len() > 16 && !self.long.are_in16(prefix.address()) {
            self.merge(SailLevel::L16, (prefix.address() >> 16) as usize);
        }
    }
}

impl<L: SailLayout> FibTable<u32> for SailWriter<L> {
    type Params = SailParams;
    type Shared = L;
    type Size = SailRoom;

    fn size(
        routes: &[(Prefix4, NextHopId)],
        _: &SailParams,
        budget: Budget,
    ) -> Result<SailRoom, EngineError> {
        let room = |level, what, limit: u32| {
            let used = distinct(nodes_of(level, routes.iter().map(|(prefix, _)| *prefix)));
            if used > limit.into() {
                return Err(EngineError::Full { what, used, limit: limit.into() });
            }
            Ok(with_reserve(used, budget.has_reserve(), limit))
        };
        Ok(SailRoom {
            chunks24: room(16, "chunk ids of level 24", L::ROOM_MAX.chunks24)?,
            chunks32: room(24, "chunk ids of level 32", L::ROOM_MAX.chunks32)?,
        })
    }

    fn size_bytes(room: &SailRoom) -> u64 {
        L::bytes_for(*room)
    }

    fn build(room: SailRoom, routes: Routes<u32>, params: &SailParams) -> Result<Self, EngineError> {
        let table = L::zeroed(room, params.common.placement)?;
        let owners = [ENTRIES16, entries_of(room.chunks24 + 1).start, entries_of(room.chunks32 + 1).start];
        let codes = table.codes();
        let no_route = L::entry(SailLevel::L16, codes.code(NextHopId::NONE));
        table.edit(SailLevel::L16, 0..ENTRIES16, |_, _| no_route);
        let mut writer = Self {
            table: Arc::new(table),
            codes,
            owners: owners.map(|entries| vec![0; entries]),
            chunks24: Chunks::new(room.chunks24),
            chunks32: Chunks::new(room.chunks32),
            long: LongRoutes::new(),
            writes: Writes::default(),
        };
        for (prefix, next_hop) in routes {
            writer.codes.acquire(writer.table.ids(), next_hop);
            writer.long.count(prefix);
            writer.announce(prefix, next_hop);
        }
        writer.codes.check()?;
        writer.writes = Writes::default();
        Ok(writer)
    }

    fn shared(&self) -> &Arc<L> {
        &self.table
    }

    fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        let owners: usize = self.owners.iter().map(Vec::capacity).sum();
        owners as u64 + self.long.bytes() + self.chunks24.bytes() + self.chunks32.bytes()
    }

    fn details(&self) -> Details {
        structure(self.chunks24.used(), self.chunks32.used()).and(self.writes.details())
    }

    fn admits(&self, changes: &[Change<u32>], _: &RibTable<u32>) -> bool {
        let [new16, new24] = self.long.new_nodes(changes);
        new16 <= self.chunks24.available() && new24 <= self.chunks32.available() && self.codes.fit(changes)
    }

    fn owes_grace(&self) -> bool {
        self.chunks24.has_limbo() || self.chunks32.has_limbo() || self.codes.has_limbo()
    }

    fn grace_over(&mut self) {
        self.chunks24.end_grace();
        self.chunks32.end_grace();
        self.codes.end_grace();
    }

    fn update(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>, _: &dyn Fn()) {
        let changes = longest_first(changes);
        self.writes.updates += changes.len() as u64;
        for change in changes.iter().filter(|change| !change.withdraws()) {
            self.codes.acquire(self.table.ids(), change.new);
            if change.adds() {
                // Count before any withdraw: a chunk that is still needed must stay.
                self.long.count(change.prefix);
            }
        }
        for Change { prefix, new, .. } in &changes {
            if new.is_none() {
                let heir = routes.used_above(*prefix).unwrap_or((0, NextHopId::NONE));
                self.withdraw(*prefix, heir);
            } else {
                self.announce(*prefix, *new);
            }
            self.writes.end_step();
        }
        // All entries of a chunk without longer routes are equal only from here on.
        let withdrawn = || changes.iter().filter(|change| change.withdraws()).map(|change| change.prefix);
        withdrawn().for_each(|prefix| self.merge24(prefix));
        withdrawn().for_each(|prefix| self.merge16(prefix));
        self.writes.end_step();
        for change in changes.iter().filter(|change| !change.adds()) {
            self.codes.release(change.old);
        }
    }
}

/// The bits that the paper keeps on chip (figure 4): B16, C16, and B24 of `chunks24` chunks.
pub(crate) const fn onchip_bits(chunks24: u64) -> u64 {
    (1 + 16) * ENTRIES16 as u64 + CHUNK_ENTRIES as u64 * chunks24
}

pub(crate) fn structure(chunks24: u64, chunks32: u64) -> Details {
    Details::from([
        ("sail_onchip_bytes", onchip_bits(chunks24).div_ceil(8).into()),
        ("sail_onchip_accesses_max", 2.into()),
        ("sail_offchip_accesses_max", 2.into()),
        ("sail_chunks24", chunks24.into()),
        ("sail_chunks32", chunks32.into()),
    ])
}
