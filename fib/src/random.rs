//! Seeded random numbers, identical on every host and in every version.
//!
//! The bits come from ChaCha8, the numbers from integer arithmetic: neither a new sampling library nor a host's `libm` changes a table.

use crate::{Key, Prefix};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Seeded(ChaCha8Rng);

impl Seeded {
    /// The numbers of `seed` for one purpose; another `purpose` gives independent numbers.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose);
        Self(rng)
    }

    /// 32 random bits.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 128 random bits.
    pub fn u128(&mut self) -> u128 {
        u128::from(self.u64()) << 64 | u128::from(self.u64())
    }

    /// A number in `0..limit`; 0 when `limit` is 0. The bias is below `limit` / 2^64.
    #[expect(clippy::cast_possible_truncation, reason = "the product's high half is below limit")]
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.u64()) * limit as u128) >> 64) as usize
    }

    /// A key within `prefix`.
    pub fn inside<K: Key>(&mut self, prefix: Prefix<K>) -> K {
        let host = !K::mask(prefix.len()).to_high_bits();
        K::from_high_bits(prefix.address().to_high_bits() | self.u128() & host)
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u8, high: u8) -> u8 {
        let span = usize::from(high.saturating_sub(low)) + 1;
        low + u8::try_from(self.below(span)).unwrap_or(0)
    }

    /// True with `percent` in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `items`; `None` if it is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

/// Ranks `0..n` with weights, drawn with integer arithmetic.
#[derive(Clone, Debug)]
pub struct WeightedRanks {
    cumulative: Vec<u64>,
}

impl WeightedRanks {
    /// Zipf(1.0): rank k, counted from 1, has a weight proportional to 1/k.
    #[must_use]
    pub fn zipf(ranks: usize) -> Self {
        Self::new((1..=ranks as u64).map(|rank| (1 << 40) / rank))
    }

    pub(crate) fn new(weights: impl Iterator<Item = u64>) -> Self {
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { cumulative: sums.collect() }
    }

    /// A rank, counted from 0.
    pub fn draw(&self, rng: &mut Seeded) -> usize {
        let total = self.cumulative.last().copied().unwrap_or(0);
        let at = rng.below(usize::try_from(total).unwrap_or(usize::MAX)) as u64;
        self.cumulative.partition_point(|sum| *sum <= at)
    }
}

/// SplitMix64 (Vigna): small and fast, for tests and measurement loads. Tables are drawn with [`Seeded`].
#[derive(Clone, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        let mut rng = Seeded::new(1, 2);
        let first: Vec<_> = (0..4).map(|_| rng.below(1000)).collect();
        let mut again = Seeded::new(1, 2);
        assert_eq!(first, (0..4).map(|_| again.below(1000)).collect::<Vec<_>>());
        assert_ne!(Seeded::new(1, 3).u64(), Seeded::new(1, 2).u64());
    }

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut rng = Seeded::new(7, 0);
        let mut seen = [false; 5];
        for _ in 0..500 {
            seen[usize::from(rng.between(3, 7) - 3)] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!((rng.below(0), rng.below(1), rng.pick::<u8>(&[])), (0, 0, None));
    }
}
