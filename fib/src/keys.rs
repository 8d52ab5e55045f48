//! Batches of keys: borrowed ([`Keys`]) and owned ([`KeyBuffer`]).
//!
//! Invariant: once [`Keys::check`] or [`Keys::check_answers`] has accepted a batch, the halves of its IPv6 keys have the same length.

use crate::{EngineError, Family, Key, NextHopId};
use std::ops::Range;

/// A batch of keys of one family, in host order. IPv6 keys are two arrays, so that searches of the first 64 bits stream one only.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// IPv4 addresses.
    V4(&'a [u32]),
    /// IPv6 addresses: their first and last 64 bits, in arrays of the same length.
    V6 {
        /// Bits 0..64 of each address.
        hi: &'a [u64],
        /// Bits 64..128 of each address.
        lo: &'a [u64],
    },
}

impl<'a> Keys<'a> {
    /// The number of keys.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::V4(keys) => keys.len(),
            Self::V6 { hi, .. } => hi.len(),
        }
    }

    /// Whether the batch is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The family of the keys.
    #[inline]
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6 { .. } => Family::V6,
        }
    }

    /// The keys of `range`.
    ///
    /// # Panics
    /// When `range` ends behind the last key.
    #[inline]
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Keys<'a> {
        match self {
            Self::V4(keys) => Keys::V4(&keys[range]),
            Self::V6 { hi, lo } => Keys::V6 { hi: &hi[range.clone()], lo: &lo[range] },
        }
    }

    /// The key at `at`, aligned to the most significant of 128 bits as by [`Key::to_high_bits`].
    ///
    /// # Panics
    /// When there is no such key.
    #[inline]
    #[must_use]
    pub fn high_bits(self, at: usize) -> u128 {
        match self {
            Self::V4(keys) => u128::from(keys[at]) << 96,
            Self::V6 { hi, lo } => u128::from(hi[at]) << 64 | u128::from(lo[at]),
        }
    }

    /// Checks that a slot of `limit` keys can take the batch.
    ///
    /// # Errors
    /// [`EngineError::Batch`] for halves of different lengths, and for more keys than `limit`.
    #[inline]
    pub const fn check(self, limit: usize) -> Result<(), EngineError> {
        match self {
            Self::V6 { hi, lo } if hi.len() != lo.len() => {
                Err(EngineError::Batch { keys: hi.len(), limit: lo.len() })
            }
            _ if self.len() > limit => Err(EngineError::Batch { keys: self.len(), limit }),
            _ => Ok(()),
        }
    }

    /// Checks that these can be the keys of a batch that was submitted with `len` keys of `family`.
    ///
    /// # Errors
    /// [`EngineError::Batch`] for halves of different lengths, and for keys of another number or family; a slot holds 0 keys of the latter.
    #[inline]
    pub const fn check_again(self, family: Family, len: usize) -> Result<(), EngineError> {
        let is_same = matches!((self.family(), family), (Family::V4, Family::V4) | (Family::V6, Family::V6));
        let limit = if is_same { len } else { 0 };
        if self.len() != len || self.len() > limit {
            return Err(EngineError::Batch { keys: self.len(), limit });
        }
        self.check(len)
    }

    /// Checks that `out` has a place for each answer and no more.
    ///
    /// # Errors
    /// [`EngineError::Batch`] for halves of different lengths, and when the numbers of keys and answers differ.
    #[inline]
    pub const fn check_answers(self, out: &[NextHopId]) -> Result<(), EngineError> {
        if self.len() != out.len() {
            return Err(EngineError::Batch { keys: self.len(), limit: out.len() });
        }
        self.check(out.len())
    }
}

/// Owned keys: a batch kept beyond a call, or the keys of a measurement. Nothing is allocated after construction.
#[derive(Clone, Debug)]
pub struct KeyBuffer {
    family: Family,
    len: usize,
    v4: Vec<u32>,
    hi: Vec<u64>,
    lo: Vec<u64>,
}

impl KeyBuffer {
    /// An empty buffer with room for `capacity` keys of either family.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let (hi, lo) = (vec![0; capacity], vec![0; capacity]);
        Self { family: Family::V4, len: 0, v4: vec![0; capacity], hi, lo }
    }

    /// All keys.
    #[inline]
    #[must_use]
    pub fn keys(&self) -> Keys<'_> {
        match self.family {
            Family::V4 => Keys::V4(&self.v4[..self.len]),
            Family::V6 => Keys::V6 { hi: &self.hi[..self.len], lo: &self.lo[..self.len] },
        }
    }

    /// The number of keys.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The family of the keys.
    #[inline]
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Removes all keys.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Replaces all keys by `keys`.
    ///
    /// # Panics
    /// When there is no room.
    #[inline]
    pub fn copy_from(&mut self, keys: Keys<'_>) {
        (self.family, self.len) = (keys.family(), keys.len());
        match keys {
            Keys::V4(keys) => copy(keys, &mut self.v4[..self.len]),
            Keys::V6 { hi, lo } => {
                copy(hi, &mut self.hi[..self.len]);
                copy(lo, &mut self.lo[..self.len]);
            }
        }
    }

    /// Appends `key`, which must be of the same family as the keys before.
    ///
    /// # Panics
    /// When there is no room.
    #[inline]
    pub fn push<K: Key>(&mut self, key: K) {
        debug_assert!(self.is_empty() || self.family == K::FAMILY, "a batch is of one family");
        self.family = K::FAMILY;
        let bits = key.to_high_bits();
        match K::FAMILY {
            Family::V4 => self.v4[self.len] = u32::from_high_bits(bits),
            Family::V6 => (self.hi[self.len], self.lo[self.len]) = halves(bits),
        }
        self.len += 1;
    }
}

impl From<Vec<u32>> for KeyBuffer {
    fn from(v4: Vec<u32>) -> Self {
        Self { family: Family::V4, len: v4.len(), v4, hi: Vec::new(), lo: Vec::new() }
    }
}

impl From<(Vec<u64>, Vec<u64>)> for KeyBuffer {
    /// # Panics
    /// When the halves are not equally many.
    fn from((hi, lo): (Vec<u64>, Vec<u64>)) -> Self {
        assert_eq!(hi.len(), lo.len(), "a key has two halves");
        Self { family: Family::V6, len: hi.len(), v4: Vec::new(), hi, lo }
    }
}

impl<K: Key> FromIterator<K> for KeyBuffer {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let bits = keys.into_iter().map(Key::to_high_bits);
        match K::FAMILY {
            Family::V4 => bits.map(u32::from_high_bits).collect::<Vec<_>>().into(),
            Family::V6 => bits.map(halves).unzip::<_, _, Vec<_>, Vec<_>>().into(),
        }
    }
}

/// The first and the last 64 bits of `key`.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a key is split into its two halves")]
pub const fn halves(key: u128) -> (u64, u64) {
    ((key >> 64) as u64, key as u64)
}

/// Copies a kilobyte at a time: for several the C library uses a string instruction, which is slow when another core's cache has the lines.
#[inline]
pub fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    let part = 1024 / size_of::<T>();
    for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Keys<'_> = Keys::V4(&[1, 2, 3]);
    const V6: Keys<'_> = Keys::V6 { hi: &[1, 2, 3], lo: &[4, 5, 6] };

    fn bits(keys: Keys<'_>) -> Vec<u128> {
        (0..keys.len()).map(|at| keys.high_bits(at)).collect()
    }

    #[test]
    fn a_batch_that_does_not_fit_is_refused() {
        let batch = |keys, limit| Err(EngineError::Batch { keys, limit });
        for keys in [V4, V6] {
            assert_eq!((keys.check(3), keys.check(2)), (Ok(()), batch(3, 2)));
            assert_eq!(keys.check_answers(&[NextHopId::NONE; 3]), Ok(()));
            for places in [2, 4] {
                assert_eq!(keys.check_answers(&vec![NextHopId::NONE; places]), batch(3, places));
            }
        }
        for (keys, other) in [(V4, Family::V6), (V6, Family::V4)] {
            assert_eq!(keys.check_again(keys.family(), 3), Ok(()));
            assert_eq!(keys.check_again(other, 3), batch(3, 0));
            assert_eq!([2, 4].map(|len| keys.check_again(keys.family(), len)), [batch(3, 2), batch(3, 4)]);
            let none = keys.part(0..0);
            assert_eq!((none.check_again(other, 0), none.check_again(other, 3)), (Ok(()), batch(0, 0)));
        }
        let odd = Keys::V6 { hi: &[1, 2], lo: &[1] };
        assert_eq!(odd.check_again(Family::V6, 2), batch(2, 1));
        assert_eq!((odd.check(9), odd.check_answers(&[NextHopId::NONE; 2])), (batch(2, 1), batch(2, 1)));
    }

    #[test]
    fn parts_and_buffers_hold_the_same_keys_in_the_same_order() {
        let mut buffer = KeyBuffer::with_capacity(3);
        for keys in [V4, V6, V4.part(1..1), V6.part(2..3)] {
            buffer.copy_from(keys);
            assert_eq!((bits(buffer.keys()), buffer.family()), (bits(keys), keys.family()));
        }
        let collected: KeyBuffer = bits(V6).into_iter().collect();
        assert_eq!(bits(collected.keys()), bits(V6));
        let collected: KeyBuffer = [1_u32, 2, 3].into_iter().collect();
        assert_eq!(bits(collected.keys()), bits(V4));
        buffer.clear();
        bits(V6).into_iter().for_each(|key| buffer.push(key));
        assert_eq!(bits(buffer.keys()), bits(V6));
    }
}
