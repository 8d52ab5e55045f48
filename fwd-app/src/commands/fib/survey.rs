//! Statistics of a table: routes by length, next hops, nesting, the covered share of the address space.

use fib::{Family, Key, NextHopId, Prefix, RibTable};
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::HashSet;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FamilySurvey {
    pub(super) routes: u64,
    pub(super) by_length: BTreeMap<u8, u64>,
    pub(super) next_hops: u64,
    pub(super) default_route: Option<u32>,
    /// Routes longer than /24 (IPv4) or /64 (IPv6), which need a further level in an engine.
    pub(super) deep: u64,
    /// Routes covered by another non-default route.
    pub(super) nested: u64,
    /// The longest chain of nested routes, without the default route.
    pub(super) nesting_max: u64,
    /// Share of all IPv4 addresses, or of 2000::/3, the IPv6 unicast allocations, covered by non-default routes: 0 to 1.
    pub(super) covered_share: f64,
}

pub(super) fn survey<K: Key>(table: &RibTable<K>) -> FamilySurvey {
    let routes = table.sorted();
    let mut by_length = BTreeMap::new();
    let mut next_hops: HashSet<NextHopId> = HashSet::new();
    for (prefix, next_hop) in &routes {
        *by_length.entry(prefix.len()).or_default() += 1;
        next_hops.insert(*next_hop);
    }
    let deep_above = if K::FAMILY == Family::V4 { 24 } else { 64 };
    let default = table.get(Prefix::DEFAULT);
    let (nested, nesting_max, covered_share) = walk(&routes);
    FamilySurvey {
        routes: routes.len() as u64,
        deep: by_length.range(deep_above + 1..).map(|(_, n)| *n).sum(),
        by_length,
        next_hops: next_hops.len() as u64,
        default_route: (!default.is_none()).then(|| default.get()),
        nested,
        nesting_max,
        covered_share,
    }
}

/// One pass in order of address and length; the stack holds the routes that cover the current one.
fn walk<K: Key>(routes: &[(Prefix<K>, NextHopId)]) -> (u64, u64, f64) {
    let space = match K::FAMILY {
        Family::V4 => Prefix::DEFAULT,
        Family::V6 => Prefix::truncating(K::from_high_bits(1 << 125), 3),
    };
    let (mut nested, mut nesting_max, mut covered_share) = (0, 0, 0.0);
    let mut covering: Vec<Prefix<K>> = Vec::new();
    for (prefix, _) in routes.iter().filter(|(prefix, _)| prefix.len() > 0) {
        while covering.last().is_some_and(|above| !above.covers(*prefix)) {
            covering.pop();
        }
        if covering.is_empty() {
            covered_share += share_of(*prefix, space);
        } else {
            nested += 1;
        }
        covering.push(*prefix);
        nesting_max = nesting_max.max(covering.len() as u64);
    }
    (nested, nesting_max, covered_share)
}

fn share_of<K: Key>(prefix: Prefix<K>, space: Prefix<K>) -> f64 {
    if prefix.covers(space) {
        1.0
    } else if space.covers(prefix) {
        0.5_f64.powi(i32::from(prefix.len()) - i32::from(space.len()))
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Rib;

    fn rib(routes: &[(&str, u32)]) -> Rib {
        let mut rib = Rib::new();
        for (prefix, id) in routes {
            rib.set(prefix.parse().unwrap(), NextHopId::new(*id).unwrap());
        }
        rib
    }

    #[test]
    fn ipv4_counts() {
        let rib = rib(&[
            ("0.0.0.0/0", 9),
            ("0.0.0.0/1", 1),
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("10.1.2.3/32", 1),
            ("11.0.0.0/8", 2),
            ("192.0.0.0/2", 3),
        ]);
        let found = survey(&rib.v4);
        assert_eq!((found.routes, found.next_hops, found.default_route), (7, 4, Some(9)));
        assert_eq!(found.by_length, BTreeMap::from([(0, 1), (1, 1), (2, 1), (8, 2), (16, 1), (32, 1)]));
        assert_eq!((found.deep, found.nested, found.nesting_max), (1, 4, 4));
        assert_eq!(found.covered_share, 0.75);
    }

    #[test]
    fn ipv6_counts() {
        let rib = rib(&[("2000::/4", 1), ("2001:db8::/32", 1), ("2001:db8::1/128", 2), ("fc00::/7", 1)]);
        let found = survey(&rib.v6);
        assert_eq!((found.routes, found.next_hops, found.default_route), (4, 2, None));
        assert_eq!((found.deep, found.nested, found.nesting_max), (1, 2, 3));
        assert_eq!(found.covered_share, 0.5);
        assert_eq!(survey(&self::rib(&[("::/1", 1)]).v6).covered_share, 1.0);
    }

    #[test]
    fn an_empty_table_counts_nothing() {
        let found = survey(&Rib::new().v4);
        assert_eq!((found.routes, found.next_hops, found.nesting_max), (0, 0, 0));
        assert!(found.by_length.is_empty() && found.default_route.is_none() && found.covered_share == 0.0);
    }
}
