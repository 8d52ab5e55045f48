//! The writer's side of a table of bit maps: the route that owns each node, and updates in place.
//!
//! A delta is applied in two passes, so that every answer in between belongs to the old or the new generation:
//!
//! 1. Announces, changes, and withdraws for which another route of the same level takes over, longest prefix first. Next hops are stored
//!    before the bits that lead to them. The heir comes from the RIB, which is in the final state, so one store moves each address.
//! 2. Bits without a route are cleared, shallowest level first: the entries that a cleared bit uncovers are final by then. Chunks without
//!    routes are freed last.
//!
//! A cleared bit leaves its entry unchanged, and a freed chunk keeps its entries until a grace period has passed, for lookups that read
//! the bit before. [`super::grace`] covers lookups that read a bit before it was set.

use super::grace::Grace;
use super::{BitMaps, CHUNK, CHUNKS_MAX, Levels, PIVOT, node, onchip_bits};
use crate::chunks::{Chunks, distinct, entries_of, with_reserve};
use crate::params::SailParams;
use crate::pushing::{Draw, longest_first};
use crate::writes::Writes;
use fib::{Change, Details, EngineError, NextHopId, Prefix4, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
struct SplitBlock {
    chunk: u32,
    routes: u32,
}

#[derive(Debug)]
pub(crate) struct BitMapWriter<S> {
    table: Arc<BitMaps<S>>,
    /// The length of the route that owns each entry of N.
    owners: Vec<u8>,
    owners32: Vec<u8>,
    blocks: BTreeMap<u32, SplitBlock>,
    chunks: Chunks,
    grace: Grace,
    writes: Writes,
}

/// The index of the level that a route is pushed to; `None` for level 32.
fn level_of<S: Levels>(len: u8) -> Option<usize> {
    S::LEVELS.iter().position(|level| *level >= len)
}

fn nodes<S: Levels>(at: usize, prefix: Prefix4) -> Range<usize> {
    let level = S::LEVELS[at];
    let first = S::OFFSETS[at] + node(level, prefix.address());
    first..first + (1 << (level - prefix.len()))
}

fn blocks_of(prefixes: impl Iterator<Item = Prefix4>) -> impl Iterator<Item = u32> {
    prefixes.filter(|prefix| prefix.len() > PIVOT).map(|prefix| prefix.address() >> 8)
}

impl<S: Levels> BitMapWriter<S> {
    const PIVOT_NODES: usize = S::OFFSETS[S::LEVELS.len() - 1];

    /// The length and next hop of the longest route of at most 24 bits above the /24 `block`.
    fn inherited(&self, block: u32) -> (u8, u32) {
        let address = block << 8;
        let nodes = S::LEVELS.iter().zip(S::OFFSETS).map(|(level, offset)| offset + node(*level, address));
        let found = nodes.rev().find(|at| self.table.bits.get(*at) == 1);
        found.map_or((0, 0), |at| (self.owners[at], self.table.hops.get(at)))
    }

    /// Gives the /24 `block` a chunk unless it has one, filled with the current next hops of its addresses.
    fn split(&mut self, block: u32) {
        if self.blocks.contains_key(&block) {
            return;
        }
        let (owner, next_hop) = self.inherited(block);
        let chunk = self.chunks.allocate();
        self.owners32[entries_of(chunk)].fill(owner);
        self.writes.offchip += self.table.n32.edit(entries_of(chunk), |_, _| next_hop);
        let at = Self::PIVOT_NODES + block as usize;
        self.writes.offchip += self.table.hops.set(at, CHUNK | chunk);
        let set = self.table.bits.set(at, 1);
        if set > 0 {
            self.grace.note(PIVOT, Prefix4::truncating(block << 8, PIVOT));
        }
        self.writes.onchip += set;
        self.blocks.insert(block, SplitBlock { chunk, routes: 0 });
    }

    fn draw_chunks(&mut self, prefix: Prefix4, draw: Draw) {
        let Self { table, owners32, blocks, writes, .. } = self;
        let (first, last) = (prefix.address(), prefix.last_address());
        for SplitBlock { chunk, .. } in blocks.range(first >> 8..=last >> 8).map(|(_, block)| block) {
            let entries = entries_of(*chunk);
            let covered = if prefix.len() > PIVOT {
                entries.start + (first & 0xff) as usize..entries.start + (last & 0xff) as usize + 1
            } else {
                entries
            };
            writes.offchip += table
                .n32
                .edit(covered, |at, entry| if draw.takes(&mut owners32[at]) { draw.code } else { entry });
        }
    }

    /// Draws over the nodes that `prefix` covers, except those with a chunk.
    fn draw_nodes(&mut self, at: usize, prefix: Prefix4, draw: Draw) {
        let Self { table, owners, blocks, writes, .. } = self;
        let is_pivot = S::LEVELS[at] == PIVOT;
        writes.offchip += table.hops.edit(nodes::<S>(at, prefix), |at, entry| {
            let is_split = is_pivot && blocks.contains_key(&block_of::<S>(at));
            if !is_split && draw.takes(&mut owners[at]) { draw.code } else { entry }
        });
    }

    fn announce(&mut self, prefix: Prefix4, next_hop: NextHopId, is_new: bool) {
        let draw = Draw::announce(prefix.len(), next_hop.get());
        let Some(at) = level_of::<S>(prefix.len()) else {
            let block = prefix.address() >> 8;
            self.split(block);
            if let Some(block) = self.blocks.get_mut(&block) {
                block.routes += u32::from(is_new);
            }
            self.draw_chunks(prefix, draw);
            return;
        };
        self.draw_chunks(prefix, draw);
        self.draw_nodes(at, prefix, draw);
        let set = self.table.bits.edit(nodes::<S>(at, prefix), |_, _| 1);
        if set > 0 {
            self.grace.note(S::LEVELS[at], prefix);
        }
        self.writes.onchip += set;
    }

    /// Applies a withdrawn route. Returns whether it leaves bits to clear.
    fn withdraw(&mut self, prefix: Prefix4, heir: Option<(u8, NextHopId)>) -> bool {
        let draw = |heir: (u8, NextHopId)| Draw::withdraw(prefix.len(), (heir.0, heir.1.get()));
        self.draw_chunks(prefix, draw(heir.unwrap_or((0, NextHopId::NONE))));
        let Some(at) = level_of::<S>(prefix.len()) else {
            if let Some(block) = self.blocks.get_mut(&(prefix.address() >> 8)) {
                block.routes -= 1;
                return block.routes == 0;
            }
            return false;
        };
        match heir.filter(|(len, _)| level_of::<S>(*len) == Some(at)) {
            Some(heir) => {
                self.draw_nodes(at, prefix, draw(heir));
                false
            }
            None => true,
        }
    }

    fn clear(&mut self, at: usize, prefix: Prefix4) {
        let Self { table, owners, blocks, writes, .. } = self;
        let is_pivot = S::LEVELS[at] == PIVOT;
        writes.onchip += table.bits.edit(nodes::<S>(at, prefix), |at, bit| {
            if owners[at] != prefix.len() || is_pivot && blocks.contains_key(&block_of::<S>(at)) {
                return bit;
            }
            owners[at] = 0;
            0
        });
        if prefix.len() == 0 && S::LEVELS[at] == 0 {
            // Lookups do not read the only bit of level 0.
            writes.offchip += table.hops.set(S::OFFSETS[at], 0);
        }
    }

    /// Frees the chunk of the /24 `block` if it has no longer routes: all its entries are equal then.
    fn merge(&mut self, block: u32) {
        let Some(SplitBlock { chunk, .. }) =
            self.blocks.get(&block).copied().filter(|block| block.routes == 0)
        else {
            return;
        };
        self.blocks.remove(&block);
        let (first, at) = (entries_of(chunk).start, Self::PIVOT_NODES + block as usize);
        let owner = self.owners32[first];
        // The default route is never pushed to level 24, which is not the first level.
        let stays = owner > 0 && level_of::<S>(owner) == Some(S::LEVELS.len() - 1);
        if stays {
            self.owners[at] = owner;
            self.writes.offchip += self.table.hops.set(at, self.table.n32.get(first));
        } else {
            self.owners[at] = 0;
            self.writes.onchip += self.table.bits.set(at, 0);
        }
        self.chunks.free(chunk);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "there are 2^24 of them")]
fn block_of<S: Levels>(at: usize) -> u32 {
    (at - BitMapWriter::<S>::PIVOT_NODES) as u32
}

impl<S: Levels> FibTable<u32> for BitMapWriter<S> {
    type Params = SailParams;
    type Shared = BitMaps<S>;
    type Size = u32;

    fn size(routes: &[(Prefix4, NextHopId)], _: &SailParams, budget: Budget) -> Result<u32, EngineError> {
        let used = distinct(blocks_of(routes.iter().map(|(prefix, _)| *prefix)));
        if used > CHUNKS_MAX.into() {
            return Err(EngineError::Full { what: "chunks of level 32", used, limit: CHUNKS_MAX.into() });
        }
        Ok(with_reserve(used, budget.has_reserve(), CHUNKS_MAX))
    }

    fn size_bytes(size: &u32) -> u64 {
        BitMaps::<S>::bytes_for(*size)
    }

    fn build(size: u32, routes: Routes<u32>, params: &SailParams) -> Result<Self, EngineError> {
        let mut writer = Self {
            table: Arc::new(BitMaps::zeroed(size, params.common.placement)?),
            owners: vec![0; S::NODES],
            owners32: vec![0; entries_of(size + 1).start],
            blocks: BTreeMap::new(),
            chunks: Chunks::new(size),
            grace: Grace::default(),
            writes: Writes::default(),
        };
        for (prefix, next_hop) in routes {
            writer.announce(prefix, next_hop, true);
        }
        writer.grace.ended();
        writer.writes = Writes::default();
        Ok(writer)
    }

    fn shared(&self) -> &Arc<BitMaps<S>> {
        &self.table
    }

    fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        let owners = self.owners.capacity() + self.owners32.capacity();
        let blocks = self.blocks.len() * size_of::<(u32, SplitBlock)>();
        (owners + blocks) as u64 + self.chunks.bytes()
    }

    fn details(&self) -> Details {
        Details::from([
            ("sail_onchip_bytes", onchip_bits(S::LEVELS).div_ceil(8).into()),
            ("sail_onchip_accesses_max", S::LEVELS.iter().filter(|level| **level > 0).count().into()),
            ("sail_offchip_accesses_max", 2.into()),
            ("sail_chunks32", self.chunks.used().into()),
        ])
        .and(self.writes.details())
    }

    fn admits(&self, changes: &[Change<u32>], _: &RibTable<u32>) -> bool {
        let added = changes.iter().filter(|change| change.adds()).map(|change| change.prefix);
        let new = blocks_of(added).filter(|block| !self.blocks.contains_key(block));
        distinct(new) <= self.chunks.available()
    }

    fn owes_grace(&self) -> bool {
        self.chunks.has_limbo()
    }

    fn grace_over(&mut self) {
        self.chunks.end_grace();
        self.grace.ended();
    }

    fn update(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>, synchronize: &dyn Fn()) {
        let changes = longest_first(changes);
        self.writes.updates += changes.len() as u64;
        let pay = |grace: &mut Grace, prefix: Prefix4| {
            if level_of::<S>(prefix.len()).is_some_and(|at| grace.is_owed(S::LEVELS[at], prefix)) {
                synchronize();
                grace.ended();
            }
        };
        let mut left = Vec::new();
        for change in &changes {
            pay(&mut self.grace, change.prefix);
            if !change.withdraws() {
                self.announce(change.prefix, change.new, change.adds());
            } else if self.withdraw(change.prefix, routes.used_above(change.prefix)) {
                left.push(change.prefix);
            }
            self.writes.end_step();
        }
        // Routes were collected longest first; those that leave chunks come last.
        for prefix in left.into_iter().rev() {
            pay(&mut self.grace, prefix);
            match level_of::<S>(prefix.len()) {
                Some(at) => self.clear(at, prefix),
                None => self.merge(prefix.address() >> 8),
            }
            self.writes.end_step();
        }
    }
}
