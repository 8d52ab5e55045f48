//! Deltas decoded from an input: prefixes near a few fixed addresses, so that they nest, share blocks and recur.

use crate::bytes::Bytes;
use fib::{Key, NextHopId, Prefix, Route};
use std::collections::{BTreeMap, BTreeSet};

const CHANGES_MAX: usize = 8;
/// Routes whose edges are looked up after every delta.
const ROUTES_ASKED: usize = 24;
/// The first 64 bits of the IPv6 addresses near which prefixes lie; IPv4 uses the first 32 bits.
const PLACES: [u64; 8] = [
    0x0a00_0000_0000_0000,
    0x0a01_8000_0000_0001,
    0x0a01_80ff_8000_0000,
    0xc0a8_0000_0000_0000,
    0,
    u64::MAX,
    0x2001_0db8_0000_0001,
    0x2001_0db8_0000_8000,
];
/// Next hops: small ones, and the edges of 8, 16 and 24 bits.
const HOPS: [u32; 12] = [1, 2, 3, 4, 255, 256, 65_534, 65_535, 65_536, 65_537, (1 << 24) - 2, (1 << 24) - 1];

/// A prefix from three bytes: its place, its length, and noise for the address.
fn prefix<K: Key>(input: &mut Bytes<'_>) -> Prefix<K> {
    let place = PLACES[input.below(PLACES.len())];
    // Short prefixes fill whole tables, which takes most engines milliseconds, so they are rare.
    let len = match input.u8() {
        short @ 250.. => short - 250,
        middle @ 240.. => middle - 240 + 6,
        long => 16 + long % (K::BITS - 15),
    };
    let noise = u128::from(input.u8());
    let shift = 128_u32.saturating_sub(u32::from(len)).min(127);
    let address = u128::from(place) << 64 | u128::from(place.rotate_left(7));
    Prefix::truncating(K::from_high_bits(address ^ noise << shift), len)
}

fn next_hop(input: &mut Bytes<'_>, id_max: u32) -> NextHopId {
    let byte = input.u8();
    if byte & 3 == 0 {
        return NextHopId::NONE;
    }
    let id = HOPS[usize::from(byte >> 2) % HOPS.len()];
    NextHopId::from_answer(if id > id_max { 1 + id % 7 } else { id })
}

/// The changes of one delta; a prefix occurs at most once, as in every delta.
pub fn changes<K: Key>(input: &mut Bytes<'_>, id_max: u32) -> Vec<Route<K>> {
    let count = input.below(CHANGES_MAX + 1);
    let mut changes = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..count {
        let (prefix, next_hop) = (prefix::<K>(input), next_hop(input, id_max));
        if changes.insert(prefix, next_hop).is_none() {
            order.push(prefix);
        }
    }
    order.into_iter().map(|prefix| Route { prefix, next_hop: changes[&prefix] }).collect()
}

/// The expected routes of one family.
#[derive(Clone, Debug)]
pub struct ExpectedRoutes<K: Key>(pub BTreeMap<Prefix<K>, NextHopId>);

impl<K: Key> Default for ExpectedRoutes<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Key> ExpectedRoutes<K> {
    /// Applies the changes.
    pub fn apply(&mut self, changes: &[Route<K>]) {
        for change in changes {
            if change.next_hop.is_none() {
                self.0.remove(&change.prefix);
            } else {
                self.0.insert(change.prefix, change.next_hop);
            }
        }
    }

    /// The changes that withdraw all routes.
    #[must_use]
    pub fn withdrawn(&self) -> Vec<Route<K>> {
        self.0.keys().map(|prefix| Route { prefix: *prefix, next_hop: NextHopId::NONE }).collect()
    }

    /// The answer by definition: the longest route that contains the key.
    #[must_use]
    pub fn lookup(&self, key: K) -> NextHopId {
        let routes = (0..=K::BITS).rev();
        let mut found = routes.filter_map(|len| self.0.get(&Prefix::truncating(key, len)));
        found.next().copied().unwrap_or(NextHopId::NONE)
    }

    /// Keys at the edges of the changed prefixes and of some routes: first, last, one before, one after.
    #[must_use]
    pub fn keys(&self, changes: &[Route<K>]) -> Vec<K> {
        let step = self.0.len().div_ceil(ROUTES_ASKED).max(1);
        let prefixes = changes.iter().map(|change| change.prefix).chain(self.0.keys().copied().step_by(step));
        let mut keys = BTreeSet::new();
        for prefix in prefixes {
            let (first, last) = (prefix.address().to_high_bits(), prefix.last_address().to_high_bits());
            let one = 1_u128 << (128 - u32::from(K::BITS));
            keys.extend([first, last, first.wrapping_sub(one), last.wrapping_add(one)]);
        }
        keys.into_iter().map(K::from_high_bits).collect()
    }
}
