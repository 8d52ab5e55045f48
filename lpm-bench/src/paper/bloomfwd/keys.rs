//! The keys of figure 3: a given share of them matches a prefix.

use crate::keys::KeySet;
use fib::{IpPrefix, NextHopId, Prefix4};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Addresses reserved by IANA for special use and multicast, which the paper's keys exclude (RFC 6890, RFC 5771, RFC 1112).
const RESERVED: &str = "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 \
    192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4";

fn reserved() -> Vec<Prefix4> {
    let v4 = |text: &str| match text.parse() {
        Ok(IpPrefix::V4(prefix)) => Some(prefix),
        _ => None,
    };
    RESERVED.split(' ').filter_map(v4).collect()
}

pub(super) struct Space {
    /// The routes, without the default route and those that overlap reserved addresses.
    prefixes: Vec<Prefix4>,
    /// The first address of each unreserved range without a route except the default route.
    gaps: Vec<u32>,
    /// The number of addresses in all ranges up to the end of each range.
    gap_ends: Vec<u64>,
}

impl Space {
    pub(super) fn around(routes: &[(Prefix4, NextHopId)]) -> Self {
        let reserved = reserved();
        let routes: Vec<_> = routes.iter().map(|(prefix, _)| *prefix).filter(|one| one.len() > 0).collect();
        let mut taken: Vec<_> =
            routes.iter().chain(&reserved).map(|prefix| (prefix.address(), prefix.last_address())).collect();
        taken.sort_unstable();
        let (mut gaps, mut gap_ends) = (Vec::new(), Vec::new());
        let (mut next, mut total) = (0_u64, 0_u64);
        for (first, last) in taken {
            if let (true, Ok(start)) = (u64::from(first) > next, u32::try_from(next)) {
                total += u64::from(first) - next;
                gaps.push(start);
                gap_ends.push(total);
            }
            next = next.max(u64::from(last) + 1);
        }
        let is_public =
            |route: &Prefix4| !reserved.iter().any(|one| one.covers(*route) || route.covers(*one));
        Self { prefixes: routes.into_iter().filter(is_public).collect(), gaps, gap_ends }
    }

    fn unmatched(&self) -> u64 {
        self.gap_ends.last().copied().unwrap_or(0)
    }

    fn gap_address(&self, at: u64) -> u32 {
        let gap = self.gap_ends.partition_point(|end| *end <= at);
        let before = gap.checked_sub(1).and_then(|gap| self.gap_ends.get(gap)).copied().unwrap_or(0);
        let start = self.gaps.get(gap).copied().unwrap_or(0);
        start.wrapping_add(u32::try_from(at - before).unwrap_or(0))
    }

    /// Keys of which `percent` percent match, evenly over the prefixes, the others over unmatched addresses. `None` if a kind is missing.
    pub(super) fn keys(&self, percent: u32, count: usize, seed: u64) -> Option<KeySet> {
        if percent > 0 && self.prefixes.is_empty() || percent < 100 && self.unmatched() == 0 {
            return None;
        }
        let mut rng = ChaCha12Rng::seed_from_u64(seed ^ u64::from(percent) << 32);
        let draw = |_| {
            if rng.random_range(0..100) < percent {
                let prefix = self.prefixes[rng.random_range(0..self.prefixes.len())];
                prefix.address() | rng.random::<u32>() & (prefix.address() ^ prefix.last_address())
            } else {
                self.gap_address(rng.random_range(0..self.unmatched()))
            }
        };
        let keys = (0..count).map(draw).collect();
        Some(KeySet::from_keys(format!("{percent} % matching"), keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::RouteSet;

    #[test]
    fn keys_match_as_often_as_asked_and_are_never_reserved() {
        let lines = [
            "0.0.0.0/0 9",
            "1.0.0.0/8 1",
            "10.0.0.0/8 2",
            "100.0.0.0/8 3",
            "200.1.2.0/24 4",
            "255.0.0.0/8 5",
        ];
        let tables = RouteSet::of_routes(&lines);
        let space = Space::around(&tables.v4);
        let reserved = reserved();
        assert_eq!(reserved.len(), RESERVED.split(' ').count());
        // 10/8 is reserved, 100/8 has reserved addresses within, 255/8 is in 240/4.
        assert_eq!(space.prefixes.len(), 2);
        for percent in [0, 80, 100] {
            let keys = space.keys(percent, 20_000, 7).unwrap();
            let mut matched = 0_u32;
            for key in keys.v4() {
                assert!(!reserved.iter().any(|prefix| prefix.contains(*key)), "{key:#x}");
                matched += u32::from(tables.oracle.v4.longest_match(*key).is_some_and(|(len, _)| len > 0));
            }
            let unmatched = 100.0 - f64::from(matched) / 200.0;
            assert!((unmatched - f64::from(100 - percent)).abs() < 1.0, "{percent} %: {unmatched} % do not");
        }
    }

    #[test]
    fn every_address_of_every_gap_is_drawn() {
        let space =
            Space::around(&RouteSet::of_routes(&["0.0.0.0/1 1", "128.0.0.0/2 1", "192.0.0.0/3 1"]).v4);
        assert_eq!((space.unmatched(), space.keys(50, 1, 1).is_none()), (0, true), "nothing is left");
        let space =
            Space::around(&RouteSet::of_routes(&["0.0.0.0/1 1", "128.0.0.2/31 1", "128.0.0.8/29 1"]).v4);
        let first: Vec<_> = (0..7).map(|at| space.gap_address(at) - 0x8000_0000).collect();
        assert_eq!(first, [0, 1, 4, 5, 6, 7, 16]);
        let last = space.gap_address(space.unmatched() - 1);
        assert_eq!(last, 0xdfff_ffff, "multicast begins after it");
        let none = Space::around(&[]);
        assert!(none.keys(100, 1, 1).is_none() && none.keys(0, 9, 1).is_some());
    }
}
