//! FIBs that resemble each other, as in a router with VRFs: seeded variations of one table.

use crate::random::SplitMix64;
use crate::{FibId, Key, NextHopId, Prefix};

/// One route in this many is absent from a variation.
const ROUTES_AN_ABSENT_ONE: u64 = 16;
const NEXT_HOPS: u64 = 255;

/// The next hop in FIB `fib` of the route `prefix`, which has `next_hop` in FIB 0. In the others one route in 16 is absent, and half of the rest
/// have another next hop. It depends on the arguments only, so that updates vary as the table does. A withdraw stays one.
#[must_use]
pub fn variation<K: Key>(seed: u64, fib: FibId, prefix: Prefix<K>, next_hop: NextHopId) -> NextHopId {
    if fib == FibId::MAIN || next_hop.is_none() {
        return next_hop;
    }
    let (hi, lo) = crate::keys::halves(prefix.address().to_high_bits());
    let mut hash = seed;
    for part in [u64::from(fib.0) << 8 | u64::from(prefix.len()), hi, lo] {
        hash = SplitMix64(hash ^ part).u64();
    }
    if hash.is_multiple_of(ROUTES_AN_ABSENT_ONE) {
        return NextHopId::NONE;
    }
    let is_other = hash >> 63 == 1;
    let other =
        u32::try_from((hash >> 32) % NEXT_HOPS).map_or(NextHopId::NONE, |at| NextHopId::from_answer(1 + at));
    if is_other { other } else { next_hop }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix4;

    #[test]
    fn a_variation_is_mostly_the_table_and_always_the_same() {
        let own = NextHopId::from_answer(1 << 20);
        let prefixes: Vec<_> = (0..16_000_u32).map(|at| Prefix4::truncating(at << 8, 24)).collect();
        let of = |fib| prefixes.iter().map(move |prefix| variation(7, FibId(fib), *prefix, own));
        assert!(of(0).all(|next_hop| next_hop == own));
        let [absent, same] =
            [NextHopId::NONE, own].map(|id| of(3).filter(|next_hop| *next_hop == id).count());
        assert!(
            (900..1100).contains(&absent) && (7000..8000).contains(&same),
            "{absent} absent, {same} as they are"
        );
        assert!(of(3).eq(of(3)) && !of(3).eq(of(4)));
        assert!(variation(7, FibId(3), prefixes[0], NextHopId::NONE).is_none());
    }
}
