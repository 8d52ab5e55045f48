//! The routes told: a hash map for each length.
//!
//! An insert or a modify needs to know whether the route is there, one probe. Only a delete asks for the parent, the
//! longest shorter route over the prefix, one probe for each length that has routes. A trie would answer both with a
//! walk of some twenty dependent loads, and would not be painted from faster: painting goes by length, shortest first.

use super::Unit;
use fib::{Key, NextHopId, Prefix4};
use rustc_hash::FxHashMap;

/// IPv4 routes with their next hops.
#[derive(Debug)]
pub(crate) struct Routes {
    by_len: [FxHashMap<u32, NextHopId>; 33],
    len: u64,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { by_len: std::array::from_fn(|_| FxHashMap::default()), len: 0 }
    }

    /// Sets the next hop of `prefix`, `NONE` to withdraw it; returns what it was.
    pub(crate) fn set(&mut self, prefix: Prefix4, next_hop: NextHopId) -> NextHopId {
        let routes = &mut self.by_len[usize::from(prefix.len())];
        let old = if next_hop.is_none() {
            routes.remove(&prefix.address())
        } else {
            routes.insert(prefix.address(), next_hop)
        };
        self.len += u64::from(!next_hop.is_none());
        self.len -= u64::from(old.is_some());
        old.unwrap_or(NextHopId::NONE)
    }

    /// The next hop of `prefix` itself; `NONE` without such a route.
    pub(crate) fn get(&self, prefix: Prefix4) -> NextHopId {
        self.by_len[usize::from(prefix.len())].get(&prefix.address()).copied().unwrap_or(NextHopId::NONE)
    }

    /// What the longest route shorter than `prefix` and over it writes; zero without one.
    pub(crate) fn parent(&self, prefix: Prefix4) -> Unit {
        self.covering(prefix.address(), prefix.len())
    }

    /// What the longest route over `address` that is shorter than `below` bits writes; zero without one.
    pub(crate) fn covering(&self, address: u32, below: u8) -> Unit {
        for len in (0..below).rev() {
            let routes = &self.by_len[usize::from(len)];
            if routes.is_empty() {
                continue;
            }
            if let Some(next_hop) = routes.get(&(address & u32::mask(len))) {
                return Unit::route(*next_hop, len);
            }
        }
        Unit(0)
    }

    /// The routes of `len` bits.
    pub(crate) fn of_len(&self, len: u8) -> impl Iterator<Item = (Prefix4, NextHopId)> + '_ {
        self.by_len[usize::from(len)]
            .iter()
            .map(move |(address, next_hop)| (Prefix4::truncating(*address, len), *next_hop))
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        let entry = size_of::<(u32, NextHopId)>() + 1; // one control byte an entry
        self.by_len.iter().map(|routes| (routes.capacity() * entry) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    #[test]
    fn a_parent_is_the_longest_shorter_route() {
        let mut routes = Routes::new();
        let [wide, middle, narrow] = [8, 16, 24].map(|len| Prefix4::truncating(0x0a01_0200, len));
        assert_eq!(routes.parent(narrow), Unit(0));
        routes.set(Prefix4::DEFAULT, id(9));
        assert_eq!(routes.parent(narrow), Unit::route(id(9), 0));
        routes.set(wide, id(1));
        routes.set(narrow, id(3));
        assert_eq!(routes.parent(narrow), Unit::route(id(1), 8));
        assert_eq!(routes.set(middle, id(2)), NextHopId::NONE);
        assert_eq!(routes.set(middle, id(4)), id(2));
        assert_eq!(
            (routes.parent(narrow), routes.parent(wide)),
            (Unit::route(id(4), 16), Unit::route(id(9), 0))
        );
        assert_eq!(routes.set(middle, NextHopId::NONE), id(4));
        assert_eq!(routes.set(middle, NextHopId::NONE), NextHopId::NONE);
        assert_eq!((routes.parent(narrow), routes.len()), (Unit::route(id(1), 8), 3));
    }
}
