//! The RIB: what the feeds have told, and which of it the FIB does not know yet.
//!
//! A change marks its prefix dirty; [`Rib::take_delta`] compiles everything dirty into one [`FibDelta`] in a single pass,
//! so ten changes of one route between two passes cost the engine one change, or none.

use crate::{Change, Family, FibDelta, IpPrefix, Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

/// The routes of one family.
#[derive(Clone, Debug, Default)]
pub struct RibTable<K: Key> {
    routes: FxHashMap<Prefix<K>, NextHopId>,
    /// Prefixes changed since the last delta, each with the next hop that the FIB has.
    dirty: FxHashMap<Prefix<K>, NextHopId>,
}

impl<K: Key> RibTable<K> {
    /// Makes room for `routes` more routes.
    pub fn reserve(&mut self, routes: usize) {
        self.routes.reserve(routes);
        self.dirty.reserve(routes);
    }

    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns what it was before (`NONE`: no route).
    pub fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId) -> NextHopId {
        let old = if next_hop.is_none() {
            self.routes.remove(&prefix)
        } else {
            self.routes.insert(prefix, next_hop)
        };
        let old = old.unwrap_or(NextHopId::NONE);
        if old != next_hop {
            self.dirty.entry(prefix).or_insert(old);
        }
        old
    }

    /// The next hop of exactly `prefix`; `NONE` when there is no such route.
    #[must_use]
    pub fn get(&self, prefix: Prefix<K>) -> NextHopId {
        self.routes.get(&prefix).copied().unwrap_or(NextHopId::NONE)
    }

    /// The number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// All routes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        self.routes.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))
    }

    /// All routes in order of address, then length.
    #[must_use]
    pub fn sorted(&self) -> Vec<(Prefix<K>, NextHopId)> {
        let mut routes: Vec<_> = self.iter().collect();
        routes.sort_unstable();
        routes
    }

    fn take_changes(&mut self) -> Vec<Change<K>> {
        let dirty = std::mem::take(&mut self.dirty);
        let mut changes: Vec<_> = dirty
            .into_iter()
            .map(|(prefix, known)| (Change { prefix, next_hop: self.get(prefix) }, known))
            .filter(|(change, known)| change.next_hop != *known)
            .map(|(change, _)| change)
            .collect();
        changes.sort_unstable_by_key(|change| change.prefix);
        changes
    }
}

/// The routes of both families, with a dirty set.
#[derive(Clone, Debug, Default)]
pub struct Rib {
    /// IPv4 routes.
    pub v4: RibTable<u32>,
    /// IPv6 routes.
    pub v6: RibTable<u128>,
}

impl Rib {
    /// An empty RIB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns what it was before.
    pub fn set(&mut self, prefix: IpPrefix, next_hop: NextHopId) -> NextHopId {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.set(prefix, next_hop),
            IpPrefix::V6(prefix) => self.v6.set(prefix, next_hop),
        }
    }

    /// The number of routes of a family.
    #[must_use]
    pub fn len_of(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.v4.len(),
            Family::V6 => self.v6.len(),
        }
    }

    /// The number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything that changed since the last call, sorted by prefix within each family; the dirty set is empty after.
    pub fn take_delta(&mut self) -> FibDelta {
        FibDelta { v4: self.v4.take_changes(), v6: self.v6.take_changes() }
    }

    /// A delta that builds the whole RIB in an empty engine, sorted by prefix. The dirty set is left alone.
    #[must_use]
    pub fn full_delta(&self) -> FibDelta {
        fn all<K: Key>(table: &RibTable<K>) -> Vec<Change<K>> {
            table.sorted().into_iter().map(|(prefix, next_hop)| Change { prefix, next_hop }).collect()
        }
        FibDelta { v4: all(&self.v4), v6: all(&self.v6) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap()
    }

    #[test]
    fn a_delta_holds_the_net_change_only() {
        let mut rib = Rib::new();
        let [a, b, c]: [IpPrefix; 3] =
            ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(|p| p.parse().unwrap());
        rib.set(a, id(1));
        rib.set(b, id(2));
        rib.set(c, id(3));
        assert_eq!(rib.take_delta().len(), 3);
        assert!(rib.take_delta().is_empty());
        rib.set(a, id(9));
        rib.set(a, id(1)); // back to what the FIB has
        rib.set(b, NextHopId::NONE);
        rib.set(c, id(4));
        let delta = rib.take_delta();
        assert_eq!((delta.v4.len(), delta.v6.len()), (1, 1));
        assert!(delta.v4[0].next_hop.is_none() && delta.v6[0].next_hop == id(4));
        assert_eq!(rib.len(), 2);
    }

    #[test]
    fn withdrawing_what_is_not_there_changes_nothing() {
        let mut rib = Rib::new();
        assert!(rib.set("10.0.0.0/8".parse().unwrap(), NextHopId::NONE).is_none());
        assert!(rib.take_delta().is_empty());
    }
}
