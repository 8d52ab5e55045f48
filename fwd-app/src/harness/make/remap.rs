//! `--remap`: maps the destinations of a trace into a table, so that an anonymised trace hits its routes.
//!
//! ```text
//! block      = the /24 of an IPv4 address, the /64 of an IPv6 one
//! prefix     = a prefix of the table, by a hash of seed and block
//! host bits  = taken from the address within the block; above, a hash of seed and block
//! ```
//! The map is a function of the address, so flows and popularity are preserved. A block stays a block, in order, if its prefix is no longer
//! than a block; else its addresses stay distinct only by their last bits. Two blocks may collide, and a longer prefix wins the lookup as
//! usual. Sources, non-unicast destinations and families without routes are kept.

use super::{PROBES, forwardable};
use crate::datapath::check::{Destination, is_unicast};
use fib::random::SplitMix64;
use fib::{Family, Key, NextHopId, Prefix, Rib};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct AddressMap {
    v4: Arc<[(Prefix<u32>, NextHopId)]>,
    v6: Arc<[(Prefix<u128>, NextHopId)]>,
    seed: u64,
}

impl AddressMap {
    pub(super) fn new(rib: &Rib, seed: u64) -> Self {
        Self {
            v4: forwardable(&rib.v4).into(),
            v6: forwardable(&rib.v6).into(),
            seed: SplitMix64(seed).u64(),
        }
    }

    pub(super) fn map(&self, destination: Destination) -> Option<Destination> {
        if !is_unicast(destination) {
            return None;
        }
        match destination {
            Destination::V4(address) => self.inside(&self.v4, address).map(Destination::V4),
            Destination::V6(address) => self.inside(&self.v6, address).map(Destination::V6),
        }
    }

    fn inside<K: Key>(&self, table: &[(Prefix<K>, NextHopId)], address: K) -> Option<K> {
        let bits = address.to_high_bits();
        let block = !0 << (128 - if K::FAMILY == Family::V4 { 24 } else { 64 });
        let mut random = SplitMix64(self.seed ^ high_half(bits & block));
        let at = (u128::from(random.u64()) * table.len() as u128) >> 64;
        let (prefix, _) = table.get(usize::try_from(at).unwrap_or(0))?;
        let host = !K::mask(prefix.len()).to_high_bits();
        let mut candidate = || {
            let random = u128::from(random.u64()) << 64;
            let host_bits = (random & block | bits & !block) & host;
            K::from_high_bits(prefix.address().to_high_bits() | host_bits)
        };
        (0..PROBES).map(|_| candidate()).find(|key| is_unicast(destination_of(*key)))
    }
}

pub(super) fn destination_of<K: Key>(key: K) -> Destination {
    let bits = key.to_high_bits();
    match K::FAMILY {
        Family::V4 => Destination::V4(u32::try_from(bits >> 96).unwrap_or(0)),
        Family::V6 => Destination::V6(bits),
    }
}

fn high_half(bits: u128) -> u64 {
    u64::try_from(bits >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::IpPrefix;
    use fib::random::Seeded;
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    fn rib(prefixes: &[&str]) -> Rib {
        let mut rib = Rib::new();
        for (prefix, id) in prefixes.iter().zip(1..) {
            rib.set(prefix.parse::<IpPrefix>().unwrap(), NextHopId::new(id).unwrap());
        }
        rib
    }

    const PREFIXES: [&str; 9] = [
        "10.0.0.0/8",
        "192.0.2.0/24",
        "198.51.100.128/25",
        "203.0.113.7/32",
        "0.0.0.0/0",
        "224.0.0.0/3",
        "2001:db8::/32",
        "2001:db8:1::1/128",
        "::/0",
    ];

    fn v4(text: &str) -> u32 {
        text.parse::<std::net::Ipv4Addr>().unwrap().to_bits()
    }

    #[test]
    fn every_unicast_address_becomes_one_of_the_table() {
        let (rib, mut rng) = (rib(&PREFIXES), Seeded::new(1, 1));
        let map = AddressMap::new(&rib, 5);
        let mut found = BTreeSet::new();
        for _ in 0..3000 {
            for destination in [Destination::V4(rng.u32()), Destination::V6(rng.u128())] {
                let new = map.map(destination);
                assert_eq!(new, map.map(destination));
                assert_eq!(new.is_some(), is_unicast(destination), "{destination:?}");
                let Some(new) = new else { continue };
                assert!(is_unicast(new), "{destination:?} became {new:?}");
                let address: IpAddr = match new {
                    Destination::V4(address) => std::net::Ipv4Addr::from_bits(address).into(),
                    Destination::V6(address) => std::net::Ipv6Addr::from_bits(address).into(),
                };
                found.insert(rib.longest(address).unwrap().0.to_string());
            }
        }
        // All but the multicast prefix.
        assert_eq!(found.len(), PREFIXES.len() - 1, "{found:?}");
    }

    #[test]
    fn a_block_stays_a_block_and_another_seed_is_another_map() {
        let rib = rib(&["10.0.0.0/8", "100.64.0.0/10", "2001:db8::/32"]);
        let map = AddressMap::new(&rib, 5);
        for block in 0..100_u32 {
            let to = |last: u32| match map.map(Destination::V4(v4("11.0.0.0") + block * 256 + last)) {
                Some(Destination::V4(address)) => address,
                other => panic!("{other:?}"),
            };
            assert!((0..256).all(|last| to(last) == to(0) + last));
            let to =
                |last: u128| match map.map(Destination::V6(0x2002 << 112 | u128::from(block) << 64 | last)) {
                    Some(Destination::V6(address)) => address,
                    other => panic!("{other:?}"),
                };
            assert!([1, 5, u128::from(u64::MAX)].iter().all(|last| to(*last) == to(0) + last));
        }
        let other = AddressMap::new(&rib, 6);
        let differ = (0..100).map(|block| Destination::V4(v4("11.0.0.0") + block * 256));
        assert!(differ.filter(|address| map.map(*address) != other.map(*address)).count() > 95);
    }

    #[test]
    fn what_has_no_routes_stays() {
        let map = AddressMap::new(&rib(&["10.0.0.0/8", "ff00::/8"]), 1);
        assert_eq!(map.map(Destination::V6(0x2001 << 112)), None);
        for martian in ["127.0.0.1", "224.0.0.5", "255.255.255.255", "0.0.0.0"] {
            assert_eq!(map.map(Destination::V4(v4(martian))), None, "{martian}");
        }
    }
}
