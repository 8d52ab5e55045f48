//! Seeded random numbers and routes.

use fib::random::SplitMix64;
use fib::{Key, NextHopId, Prefix};

/// Routes drawn at random.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64()
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    pub(crate) fn next_hop(&mut self) -> NextHopId {
        NextHopId::new(1 + u32::try_from(self.below(6)).unwrap()).unwrap()
    }

    /// An address from one of few ranges, so that routes nest and share nodes.
    pub(crate) fn address<K: Key>(&mut self) -> K {
        let places = [0x0a00_0000_u128 << 96, 0x0a01_8000 << 96, 0xc0a8_0000 << 96, 0x2001_0db8 << 96];
        let place = places[self.below(places.len())];
        // Random bits close to the range, or anywhere below it: a sparse mask keeps neighbours together.
        let noise = u128::from(self.next()) << 64 | u128::from(self.next());
        let sparse = noise & (u128::from(self.next()) << 64 | u128::from(self.next()));
        let kept = [16, 20, 24, 48, 60, 64, 96][self.below(7)];
        let mask = u128::MAX >> kept;
        K::from_high_bits(place | (sparse & (u128::MAX >> 12) & (mask | u128::MAX >> 20)))
    }

    pub(crate) fn prefix<K: Key>(&mut self) -> Prefix<K> {
        let len = match self.below(20) {
            0 => self.below(12),
            1..12 => 12 + self.below(usize::from(K::BITS.min(64)) - 11),
            _ if K::BITS == 128 && self.below(3) == 0 => 65 + self.below(64),
            _ => [16, 24, 32, 25, 20, 8][self.below(6)],
        };
        Prefix::truncating(self.address(), u8::try_from(len).unwrap())
    }
}
