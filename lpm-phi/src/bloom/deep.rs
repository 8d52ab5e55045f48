//! IPv6 routes longer than /64, by the first 64 bits of their addresses. They are rare, so scalar code here looks up the keys that
//! may match one.
//!
//! A hash of those 64 bits chooses the shard of a route. A shard is immutable: an update publishes a new one, so a lookup sees one
//! state of all routes that could answer it.

#![expect(clippy::cast_possible_truncation, reason = "addresses are split into halves on purpose")]

use super::hash::murmur64;
use arc_swap::ArcSwap;
use fib::loads::Place;
use fib::{Key, NextHopId, Prefix6};
use lpm_core::publish::Publish as _;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 256;

/// All routes longer than /64.
pub(crate) struct Deep {
    shards: Vec<ArcSwap<Shard>>,
    routes: AtomicU64,
}

type Shard = FxHashMap<u64, Arc<Block>>;

/// The routes below one /64.
#[derive(Clone, Debug, Default)]
struct Block {
    /// By length, longest first: the last 64 bits of each prefix, sorted, and its next hop.
    lengths: Vec<(u8, Vec<(u64, NextHopId)>)>,
}

impl Block {
    fn lookup(&self, low: u64) -> NextHopId {
        for (len, routes) in &self.lengths {
            if let Ok(at) = routes.binary_search_by_key(&(low & low_mask(*len)), |(low, _)| *low) {
                return routes[at].1;
            }
        }
        NextHopId::NONE
    }

    /// Sets a route; `NONE` removes it. Returns whether the number of routes changed.
    fn set(&mut self, len: u8, low: u64, next_hop: NextHopId) -> bool {
        let at = self.lengths.partition_point(|(other, _)| *other > len);
        if self.lengths.get(at).is_none_or(|(other, _)| *other != len) {
            if next_hop.is_none() {
                return false;
            }
            self.lengths.insert(at, (len, Vec::new()));
        }
        let routes = &mut self.lengths[at].1;
        match (routes.binary_search_by_key(&low, |(low, _)| *low), next_hop.is_none()) {
            (Ok(found), false) => routes[found].1 = next_hop,
            (Ok(found), true) => {
                routes.remove(found);
                if routes.is_empty() {
                    self.lengths.remove(at);
                }
                return true;
            }
            (Err(place), false) => {
                routes.insert(place, (low, next_hop));
                return true;
            }
            (Err(_), true) => {}
        }
        false
    }
}

/// The mask of a prefix of length `len`, 65..=128, over its last 64 bits.
fn low_mask(len: u8) -> u64 {
    u128::mask(len) as u64
}

fn shard_of(high: u64) -> usize {
    (murmur64(high) >> 56) as usize
}

const fn split(prefix: Prefix6) -> (u64, u64) {
    ((prefix.address() >> 64) as u64, prefix.address() as u64)
}

impl Deep {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(Shard::default())).collect();
        Self { shards, routes: AtomicU64::new(0) }
    }

    /// The number of routes.
    pub(crate) fn len(&self) -> u64 {
        self.routes.load(Ordering::Relaxed)
    }

    /// Approximate bytes of the routes in vectors and maps.
    pub(crate) fn bytes(&self) -> u64 {
        Self::bytes_of(self.len())
    }

    /// Approximate bytes of `routes` routes.
    pub(crate) const fn bytes_of(routes: u64) -> u64 {
        (SHARDS * size_of::<ArcSwap<Shard>>()) as u64 + routes * 2 * size_of::<(u64, NextHopId)>() as u64
    }

    /// The next hop of the longest route past /64 for the address of these halves; `NONE` if there is none.
    pub(crate) fn lookup(&self, high: u64, low: u64) -> NextHopId {
        let shard = self.shards[shard_of(high)].load();
        shard.get(&high).map_or(NextHopId::NONE, |block| block.lookup(low))
    }

    /// The location that [`Self::lookup`] loads.
    pub(crate) fn place(&self, high: u64) -> Place {
        Place::of(&self.shards[shard_of(high)])
    }

    /// Loads many routes into an empty table, building each shard once.
    pub(crate) fn load(&self, routes: &[(Prefix6, NextHopId)]) {
        let mut shards: Vec<FxHashMap<u64, Block>> = vec![FxHashMap::default(); SHARDS];
        // Shortest first: each new length of a block is then inserted at the front.
        let mut sorted = routes.to_vec();
        sorted.sort_unstable_by_key(|(prefix, _)| (prefix.len(), *prefix));
        for (prefix, next_hop) in sorted {
            let (high, low) = split(prefix);
            shards[shard_of(high)].entry(high).or_default().set(prefix.len(), low, next_hop);
        }
        for (place, shard) in self.shards.iter().zip(shards) {
            if !shard.is_empty() {
                let shard: Shard = shard.into_iter().map(|(high, block)| (high, Arc::new(block))).collect();
                place.publish(Arc::new(shard));
            }
        }
        self.routes.store(routes.len() as u64, Ordering::Relaxed);
    }

    /// Sets the next hop of `prefix`. Returns whether it is a new route.
    pub(crate) fn set(&self, prefix: Prefix6, next_hop: NextHopId) -> bool {
        let new = self.change(prefix, next_hop);
        self.routes.fetch_add(u64::from(new), Ordering::Relaxed);
        new
    }

    /// Removes `prefix`. Returns whether it was there.
    pub(crate) fn remove(&self, prefix: Prefix6) -> bool {
        let gone = self.change(prefix, NextHopId::NONE);
        self.routes.fetch_sub(u64::from(gone), Ordering::Relaxed);
        gone
    }

    fn change(&self, prefix: Prefix6, next_hop: NextHopId) -> bool {
        let (high, low) = split(prefix);
        let place = &self.shards[shard_of(high)];
        let mut shard = Shard::clone(&place.load());
        let mut block = shard.get(&high).map(|block| Block::clone(block)).unwrap_or_default();
        let changed = block.set(prefix.len(), low, next_hop);
        if block.lengths.is_empty() {
            shard.remove(&high);
        } else {
            shard.insert(high, Arc::new(block));
        }
        place.publish(Arc::new(shard));
        changed
    }
}

impl fmt::Debug for Deep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deep").field("routes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_wins_and_removal_uncovers() {
        let deep = Deep::new();
        let route = |text: &str| match text.parse() {
            Ok(fib::IpPrefix::V6(prefix)) => prefix,
            other => panic!("{other:?}"),
        };
        let id = |n| NextHopId::new(n).unwrap();
        let (wide, narrow, host) = (route("2001:db8::/65"), route("2001:db8::/96"), route("2001:db8::1/128"));
        deep.load(&[(wide, id(1)), (host, id(3))]);
        assert!(deep.set(narrow, id(2)) && !deep.set(narrow, id(4)));
        let high = 0x2001_0db8_0000_0000;
        let at = |low| deep.lookup(high, low).get();
        assert_eq!([at(1), at(2), at(1 << 32), at(1 << 63)], [3, 4, 1, 0]);
        assert!(deep.remove(host) && !deep.remove(host));
        assert_eq!((at(1), deep.len()), (4, 2));
        assert_eq!(deep.lookup(high + 1, 1).get(), 0);
    }
}
