//! The layout of an IPv6 table's nodes in its array of entries, and the room for them.
//!
//! ```text
//! level 0      the top        1 node of 2^16 entries          bits 0..16
//! level 1      chunks         2^(D - 16) entries each         bits 16..D
//! level 2 + i  rows           16 entries each, a cache line   bits D + 4 i .. D + 4 i + 4
//! ```
//! D is 32 for every real table. If routes are scattered over too many of the first 16 bits for [`CHUNK_BYTES_MAX`], D is 28, 24 or 20.
//! All levels share one array, since the arrays of most levels would be below a megabyte and get no huge pages.

use crate::chunks::{distinct, with_reserve, with_spare};
use fib::{EngineError, NextHopId, Prefix6};
use lpm_core::engine::Budget;
use std::ops::Range;

/// The maximum number of levels, for D = 20.
pub(crate) const LEVELS_MAX: usize = 2 + (128 - 20) / ROW_BITS as usize;
const TOP_BITS: u32 = 16;
pub(crate) const ROW_BITS: u32 = 4;
const DIRECT_BITS: [u32; 4] = [32, 28, 24, 20];
/// Limit of the chunks' memory before they are made smaller. Tables of 2024 need 8 MB, or 16 MB with entries of 32 bits.
const CHUNK_BYTES_MAX: u64 = 32 << 20;
/// Spare chunks, so that a new block of 16 bits does not rebuild the table.
const CHUNKS_SPARE: u64 = 8;

#[derive(Clone, Debug)]
pub(crate) struct NodeShape {
    direct_bits: u32,
    levels: usize,
    rooms: [u32; LEVELS_MAX],
    /// The first entry of each level, then the end of the last.
    starts: [usize; LEVELS_MAX + 1],
}

impl NodeShape {
    /// For entries of `entry_bits` bits and at most `nodes_max` nodes a level; [`EngineError::Full`] if a level needs more.
    pub(super) fn for_routes(
        routes: &[(Prefix6, NextHopId)],
        entry_bits: u32,
        nodes_max: u32,
        budget: Budget,
    ) -> Result<Self, EngineError> {
        let long = routes.iter().filter(|(prefix, _)| u32::from(prefix.len()) > TOP_BITS);
        let blocks = distinct(long.map(|(prefix, _)| prefix.address() >> (u128::BITS - TOP_BITS)));
        let chunks = with_spare(blocks, CHUNKS_SPARE, budget.has_reserve(), 1 << TOP_BITS);
        let bytes = |bits: u32| (u64::from(chunks) << (bits - TOP_BITS)) * u64::from(entry_bits / 8);
        let widest = DIRECT_BITS.into_iter().find(|bits| bytes(*bits) <= CHUNK_BYTES_MAX);
        let mut shape = Self::with_direct_bits(widest.unwrap_or(DIRECT_BITS[3]));
        let nodes = shape.count_nodes(routes);
        for (level, used) in nodes.into_iter().enumerate().take(shape.levels) {
            let limit = nodes_max.into();
            if used > limit {
                let what =
                    if level == 1 { "chunks of the IPv6 table" } else { "rows of a level of the IPv6 table" };
                return Err(EngineError::Full { what, used, limit });
            }
            shape.rooms[level] = match level {
                0 => 1,
                1 => chunks.min(nodes_max),
                _ => with_reserve(used, budget.has_reserve(), nodes_max),
            };
            let entries = (shape.rooms[level] as usize) << shape.stride(level);
            shape.starts[level + 1] = shape.starts[level] + entries;
        }
        Ok(shape)
    }

    const fn with_direct_bits(direct_bits: u32) -> Self {
        let levels = 2 + ((u128::BITS - direct_bits) / ROW_BITS) as usize;
        Self { direct_bits, levels, rooms: [0; LEVELS_MAX], starts: [0; LEVELS_MAX + 1] }
    }

    fn count_nodes(&self, routes: &[(Prefix6, NextHopId)]) -> [u64; LEVELS_MAX] {
        let mut count = NodeCount::default();
        for (prefix, _) in routes {
            count.add(self, *prefix, 0);
        }
        count.nodes
    }

    /// Address bits above the rows: D.
    #[inline]
    pub(crate) const fn direct_bits(&self) -> u32 {
        self.direct_bits
    }

    #[inline]
    pub(crate) const fn levels(&self) -> usize {
        self.levels
    }

    pub(super) const fn room(&self, level: usize) -> u32 {
        self.rooms[level]
    }

    pub(super) const fn entries(&self) -> usize {
        self.starts[self.levels]
    }

    #[inline]
    pub(crate) const fn start(&self, level: usize) -> usize {
        self.starts[level]
    }

    #[inline]
    pub(crate) const fn base(&self, level: usize) -> u32 {
        match level {
            0 => 0,
            1 => TOP_BITS,
            _ => self.direct_bits + ROW_BITS * (level as u32 - 2),
        }
    }

    #[inline]
    pub(crate) const fn stride(&self, level: usize) -> u32 {
        match level {
            0 => TOP_BITS,
            1 => self.direct_bits - TOP_BITS,
            _ => ROW_BITS,
        }
    }

    /// The level in whose nodes routes of `len` bits end.
    pub(super) const fn level_of(&self, len: u8) -> usize {
        let len = len as u32;
        if len <= TOP_BITS {
            0
        } else if len <= self.direct_bits {
            1
        } else {
            2 + ((len - self.direct_bits - 1) / ROW_BITS) as usize
        }
    }

    /// The index of the entry for `address` in a node of a level.
    #[inline]
    pub(crate) const fn place(&self, level: usize, node: u32, address: u128) -> usize {
        let stride = self.stride(level);
        let slot = (address >> (u128::BITS - self.base(level) - stride)) as usize & ((1 << stride) - 1);
        self.starts[level] + ((node as usize) << stride) + slot
    }

    pub(super) const fn node(&self, level: usize, node: u32) -> Range<usize> {
        let stride = self.stride(level);
        let first = self.starts[level] + ((node as usize) << stride);
        first..first + (1 << stride)
    }

    pub(super) const fn covered(&self, node: u32, prefix: Prefix6) -> Range<usize> {
        let level = self.level_of(prefix.len());
        let first = self.place(level, node, prefix.address());
        first..first + (1 << (self.base(level) + self.stride(level) - prefix.len() as u32))
    }
}

/// Counts the nodes that routes, in order, need.
pub(super) struct NodeCount {
    pub(super) nodes: [u64; LEVELS_MAX],
    /// The block of the node counted last, once a node was counted.
    last: [u128; LEVELS_MAX],
}

impl Default for NodeCount {
    fn default() -> Self {
        Self { nodes: [0; LEVELS_MAX], last: [0; LEVELS_MAX] }
    }
}

impl NodeCount {
    /// Counts the nodes above `prefix` and below level `above` that are not counted yet.
    pub(super) fn add(&mut self, shape: &NodeShape, prefix: Prefix6, above: usize) {
        for level in above + 1..=shape.level_of(prefix.len()) {
            let block = prefix.address() >> (u128::BITS - shape.base(level));
            if self.nodes[level] == 0 || self.last[level] != block {
                self.nodes[level] += 1;
                self.last[level] = block;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(lens: &[(u128, u8)]) -> Vec<(Prefix6, NextHopId)> {
        let mut routes: Vec<_> = lens
            .iter()
            .map(|(block, len)| (Prefix6::truncating(block << 96, *len), NextHopId::NONE))
            .collect();
        routes.sort_unstable_by_key(|(prefix, _)| *prefix);
        routes
    }

    #[test]
    fn nodes_are_counted_and_lie_side_by_side() {
        let routes = routes(&[
            (0x2001_0db8, 32),
            (0x2001_0db8, 33),
            (0x2001_0db8, 48),
            (0x2001_0db9, 40),
            (0x2a00_0000, 17),
        ]);
        let shape = NodeShape::for_routes(&routes, 16, 1 << 15, Budget::Least).unwrap();
        assert_eq!((shape.direct_bits(), shape.levels()), (32, 26));
        assert_eq!(shape.rooms[..8], [1, 2, 2, 2, 1, 1, 0, 0]);
        assert_eq!(shape.starts[..5], [0, 1 << 16, 3 << 16, (3 << 16) + 32, (3 << 16) + 64]);
        assert_eq!(shape.entries(), (3 << 16) + 6 * 16);
        let lens = [0, 16, 17, 32, 33, 36, 37, 127, 128].map(|len| shape.level_of(len));
        assert_eq!(lens, [0, 0, 1, 1, 2, 2, 3, 25, 25]);
        let address = 0x2001_0db8_1234_u128 << 80;
        assert_eq!(shape.place(0, 0, address), 0x2001);
        assert_eq!(shape.place(1, 1, address), (2 << 16) + 0x0db8);
        assert_eq!(shape.place(3, 1, address), shape.node(3, 1).start + 2);
        let covered = shape.covered(1, Prefix6::truncating(address, 30));
        assert_eq!(covered, (2 << 16) + 0x0db8..(2 << 16) + 0x0dbc);
    }

    #[test]
    fn scattered_routes_get_smaller_chunks() {
        for (blocks, direct_bits) in [(100, 32), (300, 28), (20_000, 24), (60_000, 20)] {
            let routes: Vec<_> = (0..blocks).map(|block| (block << 16, 40)).collect();
            let shape = NodeShape::for_routes(&self::routes(&routes), 32, 1 << 16, Budget::Least).unwrap();
            assert_eq!(shape.direct_bits(), direct_bits, "{blocks} blocks");
            let refused = NodeShape::for_routes(&self::routes(&routes), 32, 99, Budget::Ample);
            assert!(
                matches!(refused, Err(EngineError::Full { used, limit: 99, .. }) if used == blocks as u64)
            );
        }
    }
}
