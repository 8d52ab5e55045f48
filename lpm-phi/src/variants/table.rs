//! The tables of `bloom-naive` and `bloom-baseline` that lookups read: two copies of one array of words.
//!
//! ```text
//! direct entries | filter of each level | filter of routes past /64 | buckets of each level | entries
//! bucket         number of the first entry of a list, or 0
//! entry          key, low word | key, high word | 24..32 owner's length, 0..24 next-hop id | number of the next entry or 0
//! ```
//! A hash table has buckets with linked lists, as many buckets as entries (section 6.2). The words and the routes past /64 have two copies
//! ([`Copies`]), so every batch sees one generation during any delta.

use super::divisor::Divisor;
use super::hash::{HashName, LevelKey, filter_hashes};
use crate::bloom::deep::Deep;
use lpm_core::copies::Copies;
use lpm_core::memory::Array;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(test)]
thread_local! {
    /// The indices of the words that this thread has read by [`VariantWords::get`].
    pub(crate) static READS: std::cell::RefCell<Vec<usize>> = const { std::cell::RefCell::new(Vec::new()) };
}

pub(crate) const ENTRY_WORDS: usize = 4;
/// Bytes of an expanded prefix in their hash tables: an entry and a bucket.
pub const ENTRY_BYTES: u64 = 4 + 4 * ENTRY_WORDS as u64;
pub(crate) const HOP_MASK: u32 = (1 << 24) - 1;
pub(crate) const OWNER_SHIFT: u32 = 24;

#[derive(Debug)]
pub(crate) struct VariantTable {
    pub(crate) shape: VariantShape,
    pub(super) copies: Copies<VariantWords>,
}

/// One copy of the mutable part of a table.
#[derive(Debug)]
pub(crate) struct VariantWords {
    pub(crate) words: Array<AtomicU32>,
    pub(crate) deep: Deep,
}

#[derive(Clone, Debug)]
pub(crate) struct VariantShape {
    /// Leading bits that index the direct entries; with 0 the only entry is the default route's.
    pub(crate) direct_bits: u8,
    pub(crate) levels: Vec<VariantLevel>,
    /// The filter over the first 64 bits of routes past /64; IPv6 only.
    pub(crate) deep: Option<Filter>,
    /// First word of the entries; number 0 means no entry.
    pub(crate) entries: usize,
    pub(crate) words: usize,
    pub(crate) filter_hash: HashName,
    pub(crate) table_hash: HashName,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct VariantLevel {
    pub(crate) len: u8,
    pub(crate) filter: Filter,
    /// First word of the buckets.
    pub(crate) buckets: usize,
    pub(crate) bucket_count: Divisor,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) start: usize,
    pub(crate) bits: Divisor,
    /// Bits that a key sets.
    pub(crate) hashes: u32,
}

impl Filter {
    #[inline]
    pub(crate) fn places(&self, name: HashName, first: u32) -> impl Iterator<Item = u32> {
        let bits = self.bits;
        filter_hashes(name, first, self.hashes).map(move |hash| bits.remainder(hash))
    }

    pub(crate) const fn words(&self) -> usize {
        self.bits.n.div_ceil(32) as usize
    }
}

impl VariantLevel {
    pub(crate) const fn bucket_words(&self) -> std::ops::Range<usize> {
        self.buckets..self.buckets + self.bucket_count.n as usize
    }
}

impl VariantShape {
    /// Whether a key's filter hash also selects its bucket (section 4.1). The baseline computes its costly hash again.
    #[inline]
    pub(crate) fn reuses_hash(&self) -> bool {
        self.filter_hash == self.table_hash && self.filter_hash != HashName::Rand
    }

    #[inline]
    pub(crate) fn bucket<W: LevelKey>(&self, level: &VariantLevel, key: W, first: u32) -> usize {
        let hash = if self.reuses_hash() { first } else { key.hash(self.table_hash) };
        level.buckets + level.bucket_count.remainder(hash) as usize
    }

    #[inline]
    pub(crate) const fn entry(&self, number: u32) -> usize {
        self.entries + number as usize * ENTRY_WORDS
    }
}

impl VariantWords {
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u32 {
        #[cfg(test)]
        READS.with_borrow_mut(|reads| reads.push(at));
        // The writer never changes a copy that lookups read: `live` and the epochs order these loads.
        self.words[at].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn passes(&self, filter: &Filter, name: HashName, first: u32) -> bool {
        filter
            .places(name, first)
            .all(|bit| self.get(filter.start + (bit / 32) as usize) >> (bit % 32) & 1 == 1)
    }

    /// The entry of the key with these words in the list that begins with `number`; 0 if absent.
    #[inline]
    pub(crate) fn find(&self, shape: &VariantShape, mut number: u32, key: [u32; 2]) -> u32 {
        while number != 0 {
            let at = shape.entry(number);
            let entry = &self.words[at..at + ENTRY_WORDS];
            let word = |i: usize| entry[i].load(Ordering::Relaxed);
            if [word(0), word(1)] == key {
                return number;
            }
            number = word(3);
        }
        0
    }
}

impl VariantTable {
    pub(super) fn new(shape: VariantShape, copies: [VariantWords; 2]) -> Self {
        Self { shape, copies: Copies::new(copies) }
    }

    /// The published copy. Must be called within a batch, under the reader's epoch.
    #[inline]
    pub(crate) fn live(&self) -> &VariantWords {
        self.copies.live()
    }
}

#[inline]
pub(crate) fn next_hop(table: &VariantTable, words: &VariantWords, head: u32, key: [u32; 2]) -> Option<u32> {
    let number = words.find(&table.shape, head, key);
    (number != 0).then(|| words.get(table.shape.entry(number) + 2) & HOP_MASK)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.1: the key's hash, which also selects the bucket, and the hash of that hash.
    #[test]
    fn two_hashes_make_every_place_of_a_key() {
        let filter = Filter { start: 0, bits: Divisor::new(2_434_631), hashes: 7 };
        let level = VariantLevel { len: 24, filter, buckets: 100, bucket_count: Divisor::new(971_555) };
        for name in [HashName::Murmur, HashName::Knuth, HashName::H2] {
            let shape = VariantShape {
                direct_bits: 20,
                levels: vec![level],
                deep: None,
                entries: 0,
                words: 0,
                filter_hash: name,
                table_hash: name,
            };
            let first = 0x0a01_0200_u32.hash(name);
            let second = first.hash(name);
            let wanted = (0..7).map(|i: u32| first.wrapping_add(i.wrapping_mul(second)) % 2_434_631);
            assert!(filter.places(name, first).eq(wanted), "{name}");
            let bucket = shape.bucket(&level, 0x0a01_0200_u32, first);
            assert_eq!(bucket, 100 + (first % 971_555) as usize, "{name}");
        }
    }
}
