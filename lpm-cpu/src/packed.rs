//! Arrays of entries of 1 to 32 bits, packed into 64-bit words.
//!
//! An update writes runs of adjacent entries, 64 bits at a time as in the paper (section 4.2): each word is stored once and whole, so a
//! lookup sees all of its entries before the update or all after it.

use fib::EngineError;
use fib::loads::Loads;
use lpm_core::memory::{Array, Placement};
use lpm_core::publish::Publish as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// An array of entries of `BITS` bits, a power of two. Entry 0 is in the low bits of word 0.
#[derive(Debug)]
pub(crate) struct Packed<const BITS: u32>(Array<AtomicU64>);

impl<const BITS: u32> Packed<BITS> {
    const A_WORD: usize = (64 / BITS) as usize;
    const MASK: u64 = (1 << BITS) - 1;

    pub(crate) fn zeroed(entries: usize, placement: Placement) -> Result<Self, EngineError> {
        Array::zeroed(entries.div_ceil(Self::A_WORD), placement).map(Self)
    }

    pub(crate) const fn bytes_for(entries: u64) -> u64 {
        entries.div_ceil(Self::A_WORD as u64) * 8
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    #[expect(clippy::cast_possible_truncation, reason = "a word has 64 entries at most")]
    const fn shift(at: usize) -> u32 {
        (at % Self::A_WORD) as u32 * BITS
    }

    #[expect(clippy::cast_possible_truncation, reason = "an entry has 32 bits at most")]
    const fn entry(word: u64, at: usize) -> u32 {
        (word >> Self::shift(at) & Self::MASK) as u32
    }

    /// Entry `at`, for a lookup: one load.
    #[inline(always)]
    pub(crate) fn load<L: Loads>(&self, at: usize, loads: &mut L) -> Result<u32, L::Stop> {
        Ok(Self::entry(loads.wide_word(&self.0[at / Self::A_WORD])?, at))
    }

    /// Entry `at`, for the writer, or for a lookup that fences afterwards.
    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> u32 {
        Self::entry(self.0[at / Self::A_WORD].load(Ordering::Relaxed), at)
    }

    /// Sets each entry of `range` to `entry(index, old value)`. Returns the number of stores: one for each word that changes.
    pub(crate) fn edit(&self, range: Range<usize>, mut entry: impl FnMut(usize, u32) -> u32) -> u64 {
        let (mut at, mut stores) = (range.start, 0);
        while at < range.end {
            let word = &self.0[at / Self::A_WORD];
            let old = word.load(Ordering::Relaxed);
            let mut new = old;
            let end = range.end.min((at / Self::A_WORD + 1) * Self::A_WORD);
            for at in at..end {
                let value = u64::from(entry(at, Self::entry(old, at)));
                debug_assert!(value <= Self::MASK, "an entry of {BITS} bits");
                new = new & !(Self::MASK << Self::shift(at)) | value << Self::shift(at);
            }
            if new != old {
                word.publish(new);
                stores += 1;
            }
            at = end;
        }
        stores
    }

    /// Sets each entry of `range` to `value`. Returns the number of stores, as [`Self::edit`].
    pub(crate) fn fill(&self, range: Range<usize>, value: u32) -> u64 {
        let words = range.start.div_ceil(Self::A_WORD)..range.end / Self::A_WORD;
        if words.is_empty() {
            return self.edit(range, |_, _| value);
        }
        let (first, end) = (words.start * Self::A_WORD, words.end * Self::A_WORD);
        let mut stores = self.edit(range.start..first, |_, _| value);
        let new = u64::MAX / Self::MASK * u64::from(value);
        for word in &self.0[words] {
            if word.load(Ordering::Relaxed) != new {
                word.publish(new);
                stores += 1;
            }
        }
        stores + self.edit(end..range.end, |_, _| value)
    }

    /// Copies the entries `range` of `from` to the entries from `to` on, while no lookup sees them. Both ranges must be whole words.
    pub(crate) fn copy(&self, to: usize, from: &Self, range: Range<usize>) {
        debug_assert!([to, range.start, range.end].iter().all(|at| at % Self::A_WORD == 0), "whole words");
        let [to, start, end] = [to, range.start, range.end].map(|at| at / Self::A_WORD);
        for (to, from) in self.0[to..].iter().zip(&from.0[start..end]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn set(&self, at: usize, value: u32) -> u64 {
        self.edit(at..at + 1, |_, _| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::loads::Plain;

    fn edits<const BITS: u32>() {
        let packed = Packed::<BITS>::zeroed(300, Placement::default()).unwrap();
        let mask = u32::try_from(Packed::<BITS>::MASK).unwrap();
        let value = |at: usize| u32::try_from(at * 7 + 1).unwrap() & mask | 1;
        let words = 289 / Packed::<BITS>::A_WORD - 3 / Packed::<BITS>::A_WORD + 1;
        assert_eq!(packed.edit(3..290, |at, old| old ^ value(at)), words as u64, "one store a word");
        for at in 0..300 {
            let right = if (3..290).contains(&at) { value(at) } else { 0 };
            let Ok(loaded) = packed.load(at, &mut Plain);
            assert_eq!((packed.get(at), loaded), (right, right), "entry {at} of {BITS} bits");
        }
        assert_eq!(packed.edit(0..300, |_, old| old), 0, "what does not change is not stored");
        assert_eq!(
            (packed.set(5, 0), packed.get(4), packed.get(5), packed.get(6)),
            (1, value(4), 0, value(6))
        );
    }

    fn fills<const BITS: u32>() {
        let packed = Packed::<BITS>::zeroed(300, Placement::default()).unwrap();
        for range in [5..5, 8..9, 3..7, 1..64, 64..128, 130..263, 0..300] {
            packed.edit(0..300, |_, _| 1);
            packed.fill(range.clone(), 0);
            for at in 0..300 {
                let right = u32::from(!range.contains(&at));
                assert_eq!(packed.get(at), right, "entry {at} of {BITS} bits, {range:?} filled");
            }
        }
        assert_eq!(packed.fill(64..192, 1), 128 / Packed::<BITS>::A_WORD as u64, "one store a word");
        assert_eq!(packed.fill(64..192, 1), 0, "what does not change is not stored");
    }

    #[test]
    fn whole_words_are_copied() {
        let [from, to] = [0; 2].map(|_| Packed::<16>::zeroed(64, Placement::default()).unwrap());
        from.edit(0..64, |at, _| u32::try_from(at).unwrap());
        to.fill(0..64, 99);
        to.copy(8, &from, 16..28);
        for at in 0..64 {
            let right = if (8..20).contains(&at) { at + 8 } else { 99 };
            assert_eq!(to.get(at), u32::try_from(right).unwrap(), "entry {at}");
        }
    }

    #[test]
    fn entries_of_every_width_keep_to_themselves() {
        edits::<1>();
        edits::<8>();
        edits::<16>();
        edits::<32>();
        fills::<1>();
        fills::<8>();
        fills::<16>();
        fills::<32>();
        assert_eq!((Packed::<1>::bytes_for(65), Packed::<8>::bytes_for(8)), (16, 8));
    }
}
