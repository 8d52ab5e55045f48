//! Plans the parts of an IPv6 table: the width of its direct part, its levels, filters and lines.

use super::table::LEVELS;
use crate::bloom::equations::FilterSize;
use crate::bloom::params::BloomParams;
use crate::cpe::expand::expanded_entries;
use fib::{EngineError, NextHopId, Prefix6};
use lpm_core::engine::Budget;
use lpm_core::hops::HOPS_MAX;
use std::ops::RangeInclusive;

/// Entries a line is sized for: 4.2 of 7.
const LINE_FILL_TENTHS: u64 = 42;
/// The maximum number of primary lines: 2^28 are 16 GiB, and a filter for their entries has fewer than 2^31 words even at a rate of 1 %.
const PRIMARY_MAX: u64 = 1 << 28;
/// Limit of the chunks' memory before the direct part is made narrower.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Spare chunks, so that a new block of 16 bits does not rebuild the table.
const CHUNKS_SPARE: u64 = 8;

/// For each width of the direct part: its bits, and the longest length of each level below it.
const SHAPES: [(u8, [u8; LEVELS]); 4] = [
    (32, [36, 40, 44, 48, 52, 56, 64]),
    (28, [32, 36, 40, 44, 48, 56, 64]),
    (24, [28, 32, 36, 40, 48, 56, 64]),
    (20, [24, 28, 32, 40, 48, 56, 64]),
];

pub(crate) struct Sizes {
    pub(super) direct_bits: u8,
    pub(super) levels: [u8; LEVELS],
    pub(super) chunks: u64,
    /// Entries of each level, then the routes past /64, with room to grow.
    pub(super) rooms: [u64; LEVELS + 1],
    pub(super) filters: [FilterSize; LEVELS + 1],
    pub(super) lines: [u64; LEVELS],
    pub(super) overflow: u64,
}

impl Sizes {
    pub(super) fn for_routes(
        sorted: &[(Prefix6, NextHopId)],
        params: &BloomParams,
        budget: Budget,
    ) -> Result<Self, EngineError> {
        let (direct_bits, levels, chunks) = shape(sorted);
        let groups = groups_of(direct_bits, &levels);
        let rooms: [u64; LEVELS + 1] = std::array::from_fn(|level| {
            let entries = match level {
                LEVELS => sorted.iter().filter(|(prefix, _)| prefix.len() > 64).count() as u64,
                _ => expanded_entries(sorted, &groups[level + 1]),
            };
            entries.saturating_add(if budget.has_reserve() { entries / 10 } else { 0 } + 256)
        });
        let fpr = params.fpr_for(rooms.iter().fold(0, |sum: u64, room| sum.saturating_add(*room)));
        let filters = rooms.map(|room| FilterSize::blocked(room, fpr));
        let lines = std::array::from_fn(|level| rooms[level].saturating_mul(10) / LINE_FILL_TENTHS + 1);
        let primary =
            lines.iter().fold(LEVELS as u64 * chunks, |sum, lines: &u64| sum.saturating_add(*lines));
        if primary > PRIMARY_MAX {
            let what = "lines of the IPv6 hash tables";
            return Err(EngineError::Full { what, used: primary, limit: PRIMARY_MAX });
        }
        Ok(Self { direct_bits, levels, chunks, rooms, filters, lines, overflow: primary / 4 + 1024 })
    }

    pub(super) fn chunk_entries(&self) -> u64 {
        1 << (self.direct_bits - 16)
    }

    pub(super) fn filter_words(&self, level: usize) -> u64 {
        self.filters[level].bits.div_ceil(32)
    }

    /// Lines of a level: primary lines, plus one for each chunk.
    pub(super) fn level_lines(&self, level: usize) -> u64 {
        self.lines[level].saturating_add(self.chunks)
    }

    pub(super) fn bytes(&self) -> u64 {
        let lines = (0..LEVELS).map(|level| self.level_lines(level)).fold(self.overflow, u64::saturating_add);
        let filters: u64 = (0..=LEVELS).map(|level| self.filter_words(level)).fold(0, u64::saturating_add);
        (4 << 16)
            + (HOPS_MAX as u64 + 1) * 4
            + self.chunks * self.chunk_entries() * 4
            + lines.saturating_mul(64).saturating_add(filters.saturating_mul(4))
    }
}

fn shape(sorted: &[(Prefix6, NextHopId)]) -> (u8, [u8; LEVELS], u64) {
    let mut blocks = 0_u64;
    let mut last = None;
    for (prefix, _) in sorted.iter().filter(|(prefix, _)| prefix.len() > 16) {
        let block = prefix.address() >> 112;
        if last != Some(block) {
            blocks += 1;
            last = Some(block);
        }
    }
    let chunks = (blocks + blocks / 4 + CHUNKS_SPARE).min(1 << 16);
    let fits = |bits: u8| (chunks << (bits - 16)) * 4 <= CHUNK_BYTES_MAX;
    let (bits, levels) = SHAPES.into_iter().find(|(bits, _)| fits(*bits)).unwrap_or(SHAPES[3]);
    (bits, levels, chunks)
}

pub(super) fn groups_of(direct_bits: u8, levels: &[u8; LEVELS]) -> Vec<RangeInclusive<u8>> {
    let mut groups = vec![0..=direct_bits];
    let mut from = direct_bits + 1;
    for to in levels {
        groups.push(from..=*to);
        from = to + 1;
    }
    groups.push(65..=128);
    groups
}
