//! Random prefixes, and keys that expose a wrong engine.

use crate::oracle::{Oracle, OraclePair};
use crate::random::Seeded;
use crate::{Capacity, Key, NextHopId, Prefix, Route, Routes};

pub(super) trait TestKey: Key {
    fn oracle(pair: &OraclePair) -> &Oracle<Self>;
    fn routes(routes: &mut Routes) -> &mut Vec<Route<Self>>;

    fn random(rng: &mut Seeded) -> Self {
        Self::from_high_bits(rng.u128())
    }

    /// The key with bit `bit` flipped, counted from the most significant.
    fn flipped(self, bit: u8) -> Self {
        let turned = 1u128.checked_shl(127 - u32::from(bit)).unwrap_or(0);
        Self::from_high_bits(self.to_high_bits() ^ turned)
    }

    fn up(self) -> Self {
        Self::from_high_bits(self.to_high_bits().wrapping_add(1 << (128 - u32::from(Self::BITS))))
    }

    fn down(self) -> Self {
        Self::from_high_bits(self.to_high_bits().wrapping_sub(1 << (128 - u32::from(Self::BITS))))
    }
}

impl TestKey for u32 {
    fn oracle(pair: &OraclePair) -> &Oracle<Self> {
        &pair.v4
    }
    fn routes(routes: &mut Routes) -> &mut Vec<Route<Self>> {
        &mut routes.v4
    }
}

impl TestKey for u128 {
    fn oracle(pair: &OraclePair) -> &Oracle<Self> {
        &pair.v6
    }
    fn routes(routes: &mut Routes) -> &mut Vec<Route<Self>> {
        &mut routes.v6
    }
}

/// At most 200 next-hop ids that an engine of `capacity` can hold together: small, medium and the largest.
pub(super) fn palette(capacity: Capacity) -> Vec<NextHopId> {
    let largest = capacity.next_hop_id_max.min(NextHopId::MAX.get());
    let count = usize::try_from(capacity.next_hops_max).unwrap_or(usize::MAX).min(200);
    let mut ids: Vec<u32> = [1, largest, 2, 255, 256, 65_535, 65_536, 1 << 20].into_iter().collect();
    ids.extend(3..=200);
    ids.retain(|id| (1..=largest).contains(id));
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(*id));
    ids.truncate(count);
    ids.into_iter().filter_map(|id| NextHopId::new(id).ok()).collect()
}

/// The first and last key of `prefix`, the key before the first, and the key after the last (wrapping around).
pub(super) fn edges<K: TestKey>(prefix: Prefix<K>) -> [K; 4] {
    let (first, last) = (prefix.address(), prefix.last_address());
    [first, last, first.down(), last.up()]
}

/// Percentage of the short prefixes drawn that stay short in a quick run.
const SHORT_PERCENT: usize = 12;

/// Prefixes near a few addresses, so that they nest, touch and repeat, unlike uniformly random ones.
pub(super) struct Universe<K> {
    bases: Vec<K>,
    /// Draws few short prefixes: one far shorter than the bits that tables index directly covers millions of entries, which an update writes one by one.
    spares_short: bool,
}

impl<K: TestKey> Universe<K> {
    /// Prefixes near `bases` addresses, all ones, zero and random ones; fewer bases make a denser table.
    pub(super) fn new(bases: usize, spares_short: bool, rng: &mut Seeded) -> Self {
        let mut bases: Vec<_> = (0..bases.max(1)).map(|_| K::random(rng)).collect();
        bases[0] = K::mask(K::BITS); // all ones
        if let Some(second) = bases.get_mut(1) {
            *second = K::ZERO;
        }
        Self { bases, spares_short }
    }

    pub(super) fn key(&self, rng: &mut Seeded) -> K {
        let base = self.bases[rng.below(self.bases.len())];
        let shared = rng.between(0, K::BITS);
        let noise = rng.u128().checked_shr(u32::from(shared)).unwrap_or(0);
        K::from_high_bits(base.to_high_bits() ^ noise)
    }

    pub(super) fn prefix(&self, rng: &mut Seeded) -> Prefix<K> {
        // Half of the draws are prefixes of a base itself, which makes chains of nested prefixes.
        let key = if rng.percent(50) { self.bases[rng.below(self.bases.len())] } else { self.key(rng) };
        let (len, short) = (rng.between(0, K::BITS), if K::BITS == 32 { 8 } else { 16 });
        let grows = self.spares_short && len < short && !rng.percent(SHORT_PERCENT);
        Prefix::truncating(key, if grows { len + short } else { len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_wrap_and_neighbours_lie_outside() {
        let ten = Prefix::<u32>::truncating(0x0a00_0000, 8);
        assert_eq!(edges(ten), [0x0a00_0000, 0x0aff_ffff, 0x09ff_ffff, 0x0b00_0000]);
        assert_eq!(edges(Prefix::<u128>::DEFAULT), [0, u128::MAX, u128::MAX, 0]);
        assert_eq!((0u32.flipped(0), 0u32.flipped(31), 0u128.flipped(127)), (1 << 31, 1, 1));
    }

    #[test]
    fn drawn_keys_lie_inside_and_prefixes_nest() {
        let mut rng = Seeded::new(1, 1);
        let universe = Universe::<u128>::new(4, false, &mut rng);
        let prefixes: Vec<_> = (0..200).map(|_| universe.prefix(&mut rng)).collect();
        for prefix in &prefixes {
            assert!(prefix.contains(rng.inside(*prefix)));
        }
        let nested = prefixes.iter().filter(|p| prefixes.iter().any(|q| q != *p && q.covers(**p)));
        assert!(nested.count() > 100);
    }

    #[test]
    fn the_palette_fits_the_engine() {
        let small = Capacity { next_hop_id_max: 100, next_hops_max: 20, table_bytes_max: 0 };
        let ids = palette(small);
        assert!(ids.len() == 20 && ids.iter().all(|id| id.get() <= 100));
        let large =
            Capacity { next_hop_id_max: NextHopId::MAX.get(), next_hops_max: 1 << 24, table_bytes_max: 0 };
        assert!(palette(large).contains(&NextHopId::MAX) && palette(large).len() == 200);
    }
}
