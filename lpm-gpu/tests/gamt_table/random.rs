//! Random routes.

use fib::random::Seeded;
use fib::{Key, NextHopId, Prefix};

pub(crate) fn next_hop(random: &mut Seeded) -> NextHopId {
    NextHopId::new(1 + u32::try_from(random.below(6)).unwrap()).unwrap()
}

/// An address from one of few ranges, so that routes nest and share nodes.
fn address<K: Key>(random: &mut Seeded) -> K {
    let places = [0x0a00_0000_u128 << 96, 0x0a01_8000 << 96, 0xc0a8_0000 << 96, 0x2001_0db8 << 96];
    let place = places[random.below(places.len())];
    // Random bits near the range or below it: a sparse mask keeps neighbours close.
    let sparse = random.u128() & random.u128();
    let kept = [16, 20, 24, 48, 60, 64, 96][random.below(7)];
    let mask = u128::MAX >> kept;
    K::from_high_bits(place | (sparse & (u128::MAX >> 12) & (mask | u128::MAX >> 20)))
}

pub(crate) fn prefix<K: Key>(random: &mut Seeded) -> Prefix<K> {
    let len = match random.below(20) {
        0 => random.below(12),
        1..12 => 12 + random.below(usize::from(K::BITS.min(64)) - 11),
        _ if K::BITS == 128 && random.below(3) == 0 => 65 + random.below(64),
        _ => [16, 24, 32, 25, 20, 8][random.below(6)],
    };
    Prefix::truncating(address(random), u8::try_from(len).unwrap())
}
