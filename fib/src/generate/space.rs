//! The address space that registries allocate, and the parameters that shape the routes in it.

use crate::random::Seeded;
use crate::{Family, Key, Prefix};

/// Percentages fitted to a full table of January 2024: blocks of each size, routes below each covering route, lengths of runs.
pub(super) struct SpaceShape {
    /// Registries allocate from blocks of this length.
    pub(super) registry_len: u8,
    /// Routes longer than this are grouped in *zones* of this length, each the block of one registry or operator.
    pub(super) zone_len: u8,
    /// Percentage of the runs of roots longer than a zone that open a new zone.
    pub(super) new_zone_percent: usize,
    /// Percentage of the roots no longer than a zone that share a block of `near_short_len` with an older one.
    pub(super) near_short_percent: usize,
    pub(super) near_short_len: u8,
    /// A run near an older one shares a block of one of these lengths with it.
    pub(super) near_lens: [u8; 2],
    /// Percentage of the runs of roots in an existing zone that lie near an older run.
    pub(super) near_root_percent: usize,
    /// Percentage of the runs below a covering route that choose the parent of an older run, so that popular parents get more.
    pub(super) popular_percent: usize,
    /// Percentage of these runs that lie near that older run.
    pub(super) near_child_percent: usize,
    /// The probability that a route is chosen as a parent, in percent of the probability for a route one bit shorter.
    pub(super) longer_parent_percent: u64,
    /// Routes of this length, the most common allocation of a registry, are chosen as a parent twice as often.
    pub(super) hub_len: u8,
    /// Percentage of the drawn places that are drawn again when a longer route than the chosen parent covers them.
    pub(super) direct_percent: usize,
    /// Percentage of the runs below a route that share its next hop.
    pub(super) parent_next_hop_percent: usize,
    /// Percentage of the roots near an older one that share its next hop.
    pub(super) near_next_hop_percent: usize,
    /// Percentage of the routes in a run that share the next hop of the previous one.
    pub(super) run_next_hop_percent: usize,
}

const SHAPE_V4: SpaceShape = SpaceShape {
    registry_len: 8,
    zone_len: 16,
    new_zone_percent: 1,
    near_short_percent: 0,
    near_short_len: 8,
    near_lens: [20, 20],
    near_root_percent: 70,
    popular_percent: 94,
    near_child_percent: 60,
    longer_parent_percent: 68,
    hub_len: 0,
    direct_percent: 75,
    parent_next_hop_percent: 79,
    near_next_hop_percent: 60,
    run_next_hop_percent: 80,
};

const SHAPE_V6: SpaceShape = SpaceShape {
    registry_len: 20,
    zone_len: 32,
    new_zone_percent: 10,
    near_short_percent: 25,
    near_short_len: 28,
    near_lens: [39, 43],
    near_root_percent: 90,
    popular_percent: 97,
    near_child_percent: 91,
    longer_parent_percent: 85,
    hub_len: 32,
    direct_percent: 85,
    parent_next_hop_percent: 74,
    near_next_hop_percent: 70,
    run_next_hop_percent: 91,
};

/// Of a thousand IPv6 roots no longer than a zone, the number that open a new registry block.
const NEW_REGISTRY_PERMILLE: usize = 11;

/// First 16 bits of the IPv6 blocks that registries allocate from, repeated by weight (route collectors, January 2024; RFC 7249 and IANA).
const V6_BLOCKS: [u16; 60] = [
    0x2001, 0x2001, 0x2001, 0x2003, 0x2400, 0x2400, 0x2401, 0x2401, 0x2402, 0x2402, 0x2403, 0x2404, 0x2405,
    0x2406, 0x2407, 0x2408, 0x2409, 0x240a, 0x240d, 0x240e, 0x2600, 0x2600, 0x2602, 0x2602, 0x2603, 0x2604,
    0x2604, 0x2605, 0x2606, 0x2607, 0x2610, 0x2620, 0x2800, 0x2801, 0x2803, 0x2804, 0x2804, 0x2804, 0x2806,
    0x2a00, 0x2a01, 0x2a02, 0x2a02, 0x2a03, 0x2a04, 0x2a05, 0x2a06, 0x2a07, 0x2a09, 0x2a0a, 0x2a0b, 0x2a0c,
    0x2a0d, 0x2a0e, 0x2a0f, 0x2a10, 0x2a11, 0x2a12, 0x2a13, 0x2c0f,
];
/// First 16 bits of blocks that are hardly used: the few very short routes are placed there and cover nothing else.
const V6_WIDE_BLOCKS: [u16; 6] = [0x2002, 0x2410, 0x2418, 0x2630, 0x2638, 0x2c08];

/// IPv4 that is not routed between networks: RFC 6890, RFC 5771 (multicast) and RFC 1112 (class E).
const RESERVED_V4: [(u32, u8); 11] = [
    (0x0000_0000, 8),
    (0x0a00_0000, 8),
    (0x6440_0000, 10),
    (0x7f00_0000, 8),
    (0xa9fe_0000, 16),
    (0xac10_0000, 12),
    (0xc000_0000, 24),
    (0xc000_0200, 24),
    (0xc0a8_0000, 16),
    (0xc612_0000, 15),
    (0xe000_0000, 3),
];
/// Reserved IPv6 space within 2000::/3: 2001::/23 (RFC 6890) and the documentation prefixes of RFC 3849 and RFC 9637.
const RESERVED_V6: [(u128, u8); 3] = [(0x2001 << 112, 23), (0x2001_0db8 << 96, 32), (0x3fff << 112, 20)];

/// Whether no part of `prefix` is reserved space (for IPv6, also whether it lies within 2000::/3).
pub(super) fn is_unicast<K: Key>(prefix: Prefix<K>) -> bool {
    let clear = |address: K, len: u8| {
        let reserved = Prefix::truncating(address, len);
        !reserved.covers(prefix) && !prefix.covers(reserved)
    };
    match K::FAMILY {
        Family::V4 => RESERVED_V4
            .iter()
            .all(|(address, len)| clear(K::from_high_bits(u128::from(*address) << 96), *len)),
        Family::V6 => {
            let global = Prefix::truncating(K::from_high_bits(1 << 125), 3);
            global.covers(prefix)
                && RESERVED_V6.iter().all(|(address, len)| clear(K::from_high_bits(*address), *len))
        }
    }
}

impl SpaceShape {
    pub(super) const fn for_family(family: Family) -> &'static Self {
        match family {
            Family::V4 => &SHAPE_V4,
            Family::V6 => &SHAPE_V6,
        }
    }
}

pub(super) fn anywhere<K: Key>(rng: &mut Seeded) -> K {
    open(K::BITS, None, rng)
}

/// A random address for a root of `len` bits that opens a new block. `older`: an existing block.
pub(super) fn open<K: Key>(len: u8, older: Option<Prefix<K>>, rng: &mut Seeded) -> K {
    let within = |block: K, block_len: u8, rng: &mut Seeded| {
        K::from_high_bits((block & K::mask(block_len)).to_high_bits() | rng.u128() >> block_len)
    };
    let block = |first_16: u16| K::from_high_bits(u128::from(first_16) << 112);
    let registry_len = SpaceShape::for_family(K::FAMILY).registry_len;
    match (K::FAMILY, older) {
        (Family::V4, Some(older)) if rng.percent(60) => within(older.address(), registry_len, rng),
        (Family::V4, _) => K::from_high_bits(u128::from(rng.between(1, 223)) << 120 | rng.u128() >> 8),
        (Family::V6, _) if len < registry_len => {
            within(block(V6_WIDE_BLOCKS[rng.below(V6_WIDE_BLOCKS.len())]), 15, rng)
        }
        (Family::V6, Some(older)) if rng.below(1000) >= NEW_REGISTRY_PERMILLE => {
            within(older.address(), registry_len, rng)
        }
        (Family::V6, _) => within(block(V6_BLOCKS[rng.below(V6_BLOCKS.len())]), 16, rng),
    }
}

/// Percentage of the runs of routes of `len` bits with 2^`octave` routes that continue to twice that length.
pub(super) const fn run_goes_on_percent(family: Family, len: u8, octave: usize) -> usize {
    match (family, len, octave) {
        (Family::V4, 24, 0) => 48,
        (Family::V4, 24, 1) => 42,
        (Family::V4, 24, 2) => 34,
        (Family::V4, _, 0) => 38,
        (Family::V4, _, _) => 27,
        (Family::V6, ..=32, 0) => 5,
        (Family::V6, 48, 0) => 29,
        (Family::V6, _, 0) => 35,
        (Family::V6, _, _) => 38,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IpPrefix;

    #[test]
    fn reserved_space_and_what_covers_it_is_refused() {
        for (text, is) in [
            ("10.1.0.0/16", false),
            ("8.0.0.0/6", false),
            ("172.20.0.0/16", false),
            ("224.0.0.0/8", false),
            ("100.64.0.0/24", false),
            ("0.0.0.0/0", false),
            ("8.0.0.0/8", true),
            ("172.32.0.0/16", true),
            ("192.0.1.0/24", true),
            ("223.255.255.0/24", true),
            ("100.0.0.0/10", true),
            ("2001:db8:1::/48", false),
            ("2001::/32", false),
            ("2001:200::/23", true),
            ("fc00::/7", false),
            ("2a00::/12", true),
            ("2000::/3", false),
        ] {
            let found = match text.parse().unwrap() {
                IpPrefix::V4(prefix) => is_unicast(prefix),
                IpPrefix::V6(prefix) => is_unicast(prefix),
            };
            assert_eq!(found, is, "{text}");
        }
    }
}
