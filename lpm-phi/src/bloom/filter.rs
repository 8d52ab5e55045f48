//! Counting Bloom filters, blocked to one 32-bit word: all bits of a key lie in one word, so a query is one load.
//!
//! Readers see the bits. The counters (section 3, CBF) belong to the writer. A saturated counter is never decremented: its bit stays set,
//! which can cause a false positive but never lose a route. Removing the filter's last key resets all counters.

use super::hash::{filter_mask, scale};
use lpm_core::publish::Publish as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct CountingFilter {
    words: Range<u32>,
    hashes: u32,
    counters: Vec<u8>,
    keys: u64,
    saturated: bool,
}

impl CountingFilter {
    /// An empty filter in the range `words` of an array, which must be zero there.
    pub(crate) fn new(words: Range<u32>, hashes: u32) -> Self {
        let counters = vec![0; words.len() * 32];
        Self { words, hashes, counters, keys: 0, saturated: false }
    }

    pub(crate) const fn span(&self) -> (u32, u32) {
        (self.words.start, self.words.end - self.words.start)
    }

    pub(crate) fn writer_bytes(&self) -> u64 {
        self.counters.capacity() as u64
    }

    fn place(&self, hash: u32) -> (usize, u32) {
        let (_, n) = self.span();
        (scale(hash, n) as usize, filter_mask(hash, self.hashes))
    }

    pub(crate) fn insert(&mut self, array: &[AtomicU32], hash: u32) {
        let (word, mask) = self.place(hash);
        self.keys += 1;
        for bit in bits_of(mask) {
            let counter = &mut self.counters[word * 32 + bit];
            *counter = counter.saturating_add(1);
            self.saturated |= *counter == u8::MAX;
        }
        let cell = &array[self.words.start as usize + word];
        cell.publish(cell.load(Relaxed) | mask);
    }

    /// Removes the key with this hash, which must have been added.
    pub(crate) fn remove(&mut self, array: &[AtomicU32], hash: u32) {
        let (word, mask) = self.place(hash);
        let mut cleared = 0;
        for bit in bits_of(mask) {
            let counter = &mut self.counters[word * 32 + bit];
            if *counter == u8::MAX {
                continue; // saturated: how many keys share the bit is no longer known
            }
            debug_assert!(*counter > 0, "a key was taken out of the filter that was not in it");
            *counter = counter.saturating_sub(1);
            if *counter == 0 {
                cleared |= 1 << bit;
            }
        }
        let cell = &array[self.words.start as usize + word];
        cell.publish(cell.load(Relaxed) & !cleared);
        self.keys = self.keys.saturating_sub(1);
        if self.keys == 0 && self.saturated {
            self.saturated = false;
            self.counters.fill(0);
            for word in self.words.clone() {
                array[word as usize].publish(0);
            }
        }
    }

    pub(crate) fn occupied(&self) -> usize {
        self.counters.iter().filter(|counter| **counter != 0).count()
    }
}

fn bits_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.checked_sub(1)?;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::equations::FilterSize;
    use crate::bloom::hash::{Hash32, h2, murmur32};
    use crate::bloom::v6::{filter_hash, rest};

    fn hit(filter: &CountingFilter, array: &[AtomicU32], hash: u32) -> bool {
        let (word, mask) = filter.place(hash);
        array[word].load(Relaxed) & mask == mask
    }

    /// The n of AS65000's G1 after expansion (table 3).
    const FULL: u32 = 971_555;

    #[test]
    fn no_false_negative_and_the_asked_rate_at_full_size() {
        for fpr in [0.01, 0.1, 0.3, 0.6, 0.9] {
            let size = FilterSize::blocked(u64::from(FULL), fpr);
            let words = u32::try_from(size.bits / 32).unwrap();
            let array: Vec<AtomicU32> = (0..words).map(|_| AtomicU32::new(0)).collect();
            let mut filter = CountingFilter::new(0..words, size.hashes);
            for hash in [h2, murmur32] {
                let key = |at: u32| hash(at / 16 * 32 + at % 16);
                (0..FULL).for_each(|at| filter.insert(&array, key(at)));
                assert!((0..FULL).all(|at| hit(&filter, &array, key(at))));
                let others =
                    (0..400_000).filter(|at: &u32| hit(&filter, &array, hash(at / 16 * 32 + at % 16 + 16)));
                let rate = others.count() as f64 / 400_000.0;
                assert!((rate / fpr - 1.0).abs() < 0.1, "{size:?}: asked {fpr}, measured {rate}");
                (0..FULL).for_each(|at| filter.remove(&array, key(at)));
                assert_eq!(filter.occupied(), 0);
                assert!(array.iter().all(|word| word.load(Relaxed) == 0));
            }
        }
    }

    #[test]
    fn the_asked_rate_for_ipv6_prefixes_of_every_length() {
        let (n, fpr) = (100_000_u64, 0.1);
        let size = FilterSize::blocked(n, fpr);
        let words = u32::try_from(size.bits / 32).unwrap();
        for hash in [Hash32::H2, Hash32::Murmur] {
            for len in [36, 40, 44, 48, 52, 56, 64] {
                let array: Vec<AtomicU32> = (0..words).map(|_| AtomicU32::new(0)).collect();
                let mut filter = CountingFilter::new(0..words, size.hashes);
                // Runs of 16 consecutive prefixes, every second run left out: 4 runs in each of 1,563 blocks, dealt to 4 registries.
                let key = |at: u64, run: u64, registry: u32| {
                    let block = at / 16;
                    let within = (block % 4 * 32 + run) << (64 - len);
                    let hi = 0x2a00_0000_0000_0000 | (block / 16) << 35 ^ within;
                    filter_hash(hash.hash_64(rest(hi)), registry * 2)
                };
                let registry = |at: u64| u32::try_from(at / 64 % 4).unwrap();
                (0..n).for_each(|at| filter.insert(&array, key(at, at % 16, registry(at))));
                // Prefixes of runs that were left out, and of runs that only other registries have.
                let others = (0..n).filter(|at| match at % 2 {
                    0 => hit(&filter, &array, key(*at, at % 16 + 16, registry(*at))),
                    _ => hit(&filter, &array, key(*at, at % 16, registry(*at) + 4)),
                });
                #[expect(clippy::cast_precision_loss, reason = "at most 100,000")]
                let rate = others.count() as f64 / n as f64;
                assert!((rate / fpr - 1.0).abs() < 0.1, "{hash} /{len}: asked {fpr}, measured {rate}");
            }
        }
    }

    #[test]
    fn a_saturated_counter_keeps_its_bit_until_the_last_key_goes() {
        let array = [AtomicU32::new(0)];
        let mut filter = CountingFilter::new(0..1, 2);
        for _ in 0..300 {
            filter.insert(&array, 77);
        }
        for _ in 0..299 {
            filter.remove(&array, 77);
        }
        assert!(hit(&filter, &array, 77));
        filter.remove(&array, 77);
        assert!(!hit(&filter, &array, 77) && filter.occupied() == 0);
    }
}
