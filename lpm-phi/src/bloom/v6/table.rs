//! The IPv6 table of Bloomfwd (section 4.2): expansion levels, each a counting Bloom filter with its hash table, below a direct part of
//! two steps, 16 bits and then 4 to 16 more. Prefixes past /64 are in a separate table (`deep`). Each direct entry has a mask of the
//! levels with entries below it, and a lookup tries only those, deepest first; uniform random addresses mostly end in the direct part.
//!
//! ```text
//! top entry      31 a chunk follows | 0..24 its number;   or   0..24 next-hop id
//! chunk entry    24..32 levels below: bit i = level i, bit 7 = past /64 | 0..24 next-hop id
//! line           7 slots of (bits 16..64 of the key, 16 bits of next-hop index), then a link to an overflow line or 0
//! link           32..64 number of the line | 16..32 1 | 0..16 zero, unlike in a used slot
//! ```
//! A slot identifies its key: the chunk determines the first 16 bits, which the slot does not hold, and the hash of the other bits plus
//! the chunk's number selects the line. Two keys that differ only in the first 16 bits never share a line.

use crate::bloom::deep::Deep;
use crate::bloom::hash::{Hash32, scale};
use lpm_core::memory::Array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const LEVELS: usize = 7;
pub(crate) const DEEP_BIT: u32 = 1 << 7;
pub(crate) const CHUNK: u32 = 1 << 31;
pub(crate) const HOP_MASK: u32 = (1 << 24) - 1;
pub(crate) const MASK_SHIFT: u32 = 24;

/// A line has its slots, then the word that links to an overflow line.
pub(crate) const LINE_WORDS: usize = 8;
pub(crate) const LINE_SLOTS: usize = 7;

/// The part of the IPv6 table that lookups read.
#[derive(Debug)]
pub(crate) struct Table6 {
    pub(crate) top: Array<AtomicU32>,
    /// Chunks of 2^(direct_bits - 16) entries.
    pub(crate) chunks: Array<AtomicU32>,
    pub(crate) direct_bits: u8,
    pub(crate) hop_ids: Array<AtomicU32>,
    pub(crate) filter: Array<AtomicU32>,
    /// The lines, level after level, then overflow lines.
    pub(crate) lines: Array<AtomicU64>,
    /// The levels' parameters for kernels; the last entry, for routes past /64, has a filter and no lines.
    pub(crate) levels: LevelTable,
    pub(crate) hash: Hash32,
    pub(crate) deep: Deep,
}

/// The levels as arrays, indexed by level, with routes past /64 last: a vector kernel loads each array into one register.
#[derive(Debug, Default)]
pub(crate) struct LevelTable {
    /// Mask of the level's key in an address's [`rest`].
    pub(crate) key_mask: [u64; 8],
    pub(crate) filter_start: [u32; 8],
    pub(crate) filter_words: [u32; 8],
    pub(crate) line_start: [u32; 8],
    /// Primary lines; one line for each possible chunk follows them.
    pub(crate) lines: [u32; 8],
    /// Bits that a key sets in a filter, the same for all levels.
    pub(crate) filter_hashes: u32,
}

impl Table6 {
    pub(crate) fn bytes(&self) -> u64 {
        let arrays = self.top.bytes() + self.chunks.bytes() + self.hop_ids.bytes();
        arrays + self.filter.bytes() + self.lines.bytes() + self.deep.bytes()
    }

    pub(super) fn chunk(&self, hi: u64) -> Option<u32> {
        let top = self.top[(hi >> 48) as usize].load(Ordering::Relaxed);
        (top & CHUNK != 0).then_some(top & HOP_MASK)
    }

    #[inline]
    pub(crate) fn line(&self, level: usize, hash: u32, chunk: u32) -> usize {
        (self.levels.line_start[level] + scale(hash, self.levels.lines[level]) + chunk) as usize
    }

    /// The slot of `key` of `level` below `chunk`: an index into the words of all lines.
    pub(super) fn find(&self, level: usize, key: u64, chunk: u32) -> Option<usize> {
        let mut line = self.line(level, self.hash.hash_64(key), chunk);
        loop {
            let words = &self.lines[line * LINE_WORDS..(line + 1) * LINE_WORDS];
            let hit = words[..LINE_SLOTS].iter().position(|word| {
                let word = word.load(Ordering::Relaxed);
                word & !INDEX_MASK == key && word & INDEX_MASK != 0
            });
            if let Some(slot) = hit {
                return Some(line * LINE_WORDS + slot);
            }
            line = linked(words[LINE_SLOTS].load(Ordering::Relaxed))?;
        }
    }
}

/// The next-hop index in a slot; 0 means that the slot is empty.
pub(crate) const INDEX_MASK: u64 = 0xffff;

/// The overflow line that a link leads to; `None` for 0.
#[inline]
pub(crate) fn linked(link: u64) -> Option<usize> {
    (link != 0).then_some((link >> 32) as usize)
}

pub(super) const fn link_to(line: u32) -> u64 {
    (line as u64) << 32 | 1 << 16
}

/// Bits 16..64 of an address, from its first 64 bits, in the position that slots use.
#[inline]
pub(crate) const fn rest(hi: u64) -> u64 {
    hi << 16
}

/// The hash that a filter uses for a key below a chunk, which distinguishes keys that differ only in the first 16 bits.
#[inline]
pub(crate) const fn filter_hash(hash: u32, chunk: u32) -> u32 {
    hash.wrapping_add(chunk.wrapping_mul(CHUNK_MULTIPLIER))
}

/// 2^32 over the golden ratio: spreads the small numbers of chunks over all bits.
pub(crate) const CHUNK_MULTIPLIER: u32 = 0x9e37_79b1;

#[inline]
pub(crate) fn filter_word(levels: &LevelTable, level: usize, hash: u32) -> usize {
    levels.filter_start[level] as usize + scale(hash, levels.filter_words[level]) as usize
}
