//! Seeded random numbers and routes.

use fib::{Key, NextHopId, Prefix};

/// SplitMix64: small, seeded, the same on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
