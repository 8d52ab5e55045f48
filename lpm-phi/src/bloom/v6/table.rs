//! The IPv6 table of Bloomfwd (section 4.2): expansion levels, each a counting Bloom filter with its hash table, below a
//! direct part; prefixes past /64 in a table of their own (`deep`).
//!
//! The direct part has two steps, 16 bits and then 4 to 16 more (as many as its memory allows), and each of its entries
//! carries a mask of the levels that hold anything below it. A lookup asks only those, deepest first, each key at its own
//! level; uniform random addresses never leave the direct part.
//!
//! ```text
//! top entry      31 a chunk follows | 0..24 its number;   or   0..24 next-hop id
//! chunk entry    24..32 levels below: bit i = level i, bit 7 = past /64 | 0..24 next-hop id
//! line           6 keys of 64 bits | 6 next-hop indices of 16 bits (0: empty) | number of an overflow line or 0
//! ```

#![expect(
    clippy::cast_possible_truncation,
    reason = "parts of words are cut out on purpose; indices are bounded at build"
)]

use crate::bloom::deep::Deep;
use crate::bloom::hash::{Hash32, scale};
use crate::memory::Array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Hashed levels; bit [`DEEP_BIT`] of a chunk entry's mask stands for prefixes past /64.
pub(crate) const LEVELS: usize = 7;
/// The mask bit of prefixes past /64.
pub(crate) const DEEP_BIT: u32 = 1 << 7;
/// Top entry: a chunk follows.
pub(crate) const CHUNK: u32 = 1 << 31;
/// The next-hop id, or a chunk's number.
pub(crate) const HOP_MASK: u32 = (1 << 24) - 1;
/// The first bit of a chunk entry's level mask.
pub(crate) const MASK_SHIFT: u32 = 24;

/// 64-bit words of a line, and its slots.
pub(crate) const LINE_WORDS: usize = 8;
pub(crate) const LINE_SLOTS: usize = 6;
/// What lookups of IPv6 read.
#[derive(Debug)]
pub(crate) struct Table6 {
    /// 2^16 top entries.
    pub(crate) top: Array<AtomicU32>,
    /// Chunks of 2^(direct_bits - 16) entries.
    pub(crate) chunks: Array<AtomicU32>,
    /// Bits answered by the direct part: 20, 24, 28 or 32.
    pub(crate) direct_bits: u8,
    /// Next-hop ids by the index that slots hold.
    pub(crate) hop_ids: Array<AtomicU32>,
    /// The filters of all levels, one after the other.
    pub(crate) filter: Array<AtomicU32>,
    /// The lines of all levels, one level after the other, then overflow lines.
    pub(crate) lines: Array<AtomicU64>,
    /// What a kernel must know of each level; the last is that of routes past /64, which has a filter and no lines.
    pub(crate) levels: LevelTable,
    /// The hash of all levels.
    pub(crate) hash: Hash32,
    /// Prefixes past /64.
    pub(crate) deep: Deep,
}

/// The levels as arrays, indexed by level, routes past /64 last: a vector kernel loads each array into one register.
#[derive(Debug, Default)]
pub(crate) struct LevelTable {
    /// The bits of the first 64 that are the level's key.
    pub(crate) key_mask: [u64; 8],
    /// First filter word.
    pub(crate) filter_start: [u32; 8],
    /// Filter words.
    pub(crate) filter_words: [u32; 8],
    /// First line.
    pub(crate) line_start: [u32; 8],
    /// Lines that hashes map to.
    pub(crate) lines: [u32; 8],
    /// Bits that a key sets in a filter, the same for all levels.
    pub(crate) filter_hashes: u32,
}

impl Table6 {
    pub(crate) fn bytes(&self) -> u64 {
        let arrays = self.top.bytes() + self.chunks.bytes() + self.hop_ids.bytes();
        arrays + self.filter.bytes() + self.lines.bytes() + self.deep.bytes()
    }

    /// The first line of `level` for a key of this hash.
    pub(crate) const fn line(&self, level: usize, hash: u32) -> usize {
        self.levels.line_start[level] as usize + scale(hash, self.levels.lines[level]) as usize
    }

    /// The slot of `key` of `level`: its line and its number within it. Empty slots are found too if they hold the key.
    pub(super) fn find(&self, level: usize, key: u64, live: bool) -> Option<(usize, usize)> {
        let mut line = self.line(level, self.hash.hash_64(key));
        loop {
            let words = &self.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            let hit = (0..LINE_SLOTS).find(|slot| {
                words[*slot].load(Ordering::Relaxed) == key && (index_at(words, *slot) != 0) == live
            });
            if let Some(slot) = hit {
                return Some((line, slot));
            }
            match link_of(words) {
                0 => return None,
                next => line = next as usize,
            }
        }
    }
}

/// The next-hop index of `slot` of a line; 0 means the slot is empty.
#[inline]
pub(crate) fn index_at(words: &[AtomicU64], slot: usize) -> u16 {
    let word = words[LINE_SLOTS + slot / 4].load(Ordering::Acquire);
    (word >> (slot % 4 * 16)) as u16
}

/// The overflow line behind a line, or 0.
#[inline]
pub(crate) fn link_of(words: &[AtomicU64]) -> u32 {
    (words[LINE_WORDS - 1].load(Ordering::Acquire) >> 32) as u32
}

pub(super) fn set_index(words: &[AtomicU64], slot: usize, index: u16) {
    let word = &words[LINE_SLOTS + slot / 4];
    let shift = slot % 4 * 16;
    let old = word.load(Ordering::Relaxed);
    word.store(old & !(0xffff << shift) | u64::from(index) << shift, Ordering::Release);
}

/// The filter word of a key of `level`.
pub(crate) const fn filter_word(levels: &LevelTable, level: usize, hash: u32) -> usize {
    levels.filter_start[level] as usize + scale(hash, levels.filter_words[level]) as usize
}
