//! IPv6 routes longer than /64, found by the first 64 bits of their addresses. They are rare, so scalar code here looks up the keys that
//! may match one. A hash of these bits selects a route's shard. A shard is immutable: an update publishes a new one, so a lookup sees one
//! state of all routes that could match. A change copies the references to the blocks of one shard and a few nodes of one length's routes
//! ([`super::sorted_tree`]).

#![expect(clippy::cast_possible_truncation, reason = "addresses are split into halves on purpose")]

use super::hash::murmur64;
use super::sorted_tree::SortedTree;
use arc_swap::ArcSwap;
use fib::loads::Place;
use fib::{Key, NextHopId, Prefix6};
use lpm_core::drops::Witness;
use lpm_core::retire::Retired;
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SHARDS_MIN: u64 = 256;
/// Target number of routes a shard: a change copies a reference for each /64 among them.
const ROUTES_A_SHARD: u64 = 32;

pub(crate) struct Deep {
    /// The length is a power of two.
    shards: Vec<ArcSwap<Shard>>,
    routes: AtomicU64,
    /// Used only by the writer, but it lives with the table, which readers keep after the writer is dropped.
    retired: Mutex<Retired<Shard>>,
}

#[derive(Clone, Debug)]
struct Shard {
    blocks: FxHashMap<u64, Arc<DeepBlock>>,
    _witness: Witness,
}

impl Default for Shard {
    fn default() -> Self {
        Self { blocks: FxHashMap::default(), _witness: Witness::new("shard of deep routes") }
    }
}

#[derive(Clone, Debug, Default)]
struct DeepBlock {
    /// By length, longest first: next hops by the last 64 bits of the prefix.
    lengths: Vec<(u8, SortedTree<NextHopId>)>,
}

impl DeepBlock {
    fn lookup(&self, low: u64) -> NextHopId {
        let found = self.lengths.iter().find_map(|(len, routes)| routes.get(low & low_mask(*len)));
        found.copied().unwrap_or(NextHopId::NONE)
    }

    /// Sets a route; `NONE` removes it. Returns whether the number of routes changed.
    fn set(&mut self, len: u8, low: u64, next_hop: NextHopId, copied: &mut u64) -> bool {
        let at = self.lengths.partition_point(|(other, _)| *other > len);
        let is_there = self.lengths.get(at).is_some_and(|(other, _)| *other == len);
        if !next_hop.is_none() {
            if !is_there {
                self.lengths.insert(at, (len, SortedTree::default()));
            }
            return self.lengths[at].1.insert(low, next_hop, copied).is_none();
        }
        let is_gone = is_there && self.lengths[at].1.remove(low, copied).is_some();
        if is_gone && self.lengths[at].1.is_empty() {
            self.lengths.remove(at);
        }
        is_gone
    }
}

impl Shard {
    fn set(&mut self, prefix: Prefix6, next_hop: NextHopId, copied: &mut u64) -> bool {
        let (high, low) = split(prefix);
        let Some(block) = self.blocks.get_mut(&high) else {
            let mut block = DeepBlock::default();
            let is_new = block.set(prefix.len(), low, next_hop, copied);
            if is_new {
                self.blocks.insert(high, Arc::new(block));
            }
            return is_new;
        };
        if Arc::get_mut(block).is_none() {
            *copied += (size_of::<DeepBlock>() + size_of_val(&*block.lengths)) as u64;
        }
        let block = Arc::make_mut(block);
        let has_changed = block.set(prefix.len(), low, next_hop, copied);
        if block.lengths.is_empty() {
            self.blocks.remove(&high);
        }
        has_changed
    }
}

/// The mask of a prefix of length `len`, 65..=128, over its last 64 bits.
fn low_mask(len: u8) -> u64 {
    u128::mask(len) as u64
}

const fn split(prefix: Prefix6) -> (u64, u64) {
    ((prefix.address() >> 64) as u64, prefix.address() as u64)
}

impl Deep {
    pub(crate) fn new(room: u64) -> Self {
        let shards = (0..Self::shards_for(room)).map(|_| ArcSwap::from_pointee(Shard::default())).collect();
        Self { shards, routes: AtomicU64::new(0), retired: Mutex::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.routes.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        Self::places_bytes(self.shards.len() as u64) + Self::routes_bytes(self.len())
    }

    pub(crate) fn bytes_of(routes: u64) -> u64 {
        Self::places_bytes(Self::shards_for(routes)) + Self::routes_bytes(routes)
    }

    const fn places_bytes(shards: u64) -> u64 {
        shards * size_of::<ArcSwap<Shard>>() as u64
    }

    const fn routes_bytes(routes: u64) -> u64 {
        routes * 2 * size_of::<(u64, NextHopId)>() as u64
    }

    fn shards_for(routes: u64) -> u64 {
        (routes / ROUTES_A_SHARD).max(SHARDS_MIN).next_power_of_two()
    }

    fn shard_of(&self, high: u64) -> usize {
        murmur64(high) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn retired_bytes(&self) -> u64 {
        self.retired().bytes()
    }

    pub(crate) fn free_retired(&self) {
        self.retired().free();
    }

    fn retired(&self) -> MutexGuard<'_, Retired<Shard>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next hop of the longest route past /64 for the address with these halves; `NONE` without a match.
    pub(crate) fn lookup(&self, high: u64, low: u64) -> NextHopId {
        let shard = self.shards[self.shard_of(high)].load();
        shard.blocks.get(&high).map_or(NextHopId::NONE, |block| block.lookup(low))
    }

    pub(crate) fn place(&self, high: u64) -> Place {
        Place::from_ref(&self.shards[self.shard_of(high)])
    }

    pub(crate) fn load(&self, routes: &[(Prefix6, NextHopId)]) {
        let mut shards: FxHashMap<usize, Shard> = FxHashMap::default();
        for (prefix, next_hop) in routes {
            let shard = shards.entry(self.shard_of(split(*prefix).0)).or_default();
            shard.set(*prefix, *next_hop, &mut 0);
        }
        for (at, shard) in shards {
            self.retired().replace(&self.shards[at], Arc::new(shard), 0);
        }
        self.routes.store(routes.len() as u64, Ordering::Relaxed);
    }

    /// Sets the next hop of `prefix`; `NONE` removes it. Returns whether the number of routes changed.
    pub(crate) fn set(&self, prefix: Prefix6, next_hop: NextHopId) -> bool {
        let (has_changed, _) = self.change(prefix, next_hop);
        if next_hop.is_none() {
            self.routes.fetch_sub(u64::from(has_changed), Ordering::Relaxed);
        } else {
            self.routes.fetch_add(u64::from(has_changed), Ordering::Relaxed);
        }
        has_changed
    }

    /// Sets a route as [`Self::set`] does, without counting it. Also returns the bytes copied, which only the replaced shard keeps.
    fn change(&self, prefix: Prefix6, next_hop: NextHopId) -> (bool, u64) {
        let place = &self.shards[self.shard_of(split(prefix).0)];
        let mut shard = Shard::clone(&place.load());
        let mut copied = (shard.blocks.capacity() * size_of::<(u64, Arc<DeepBlock>)>()) as u64;
        let has_changed = shard.set(prefix, next_hop, &mut copied);
        self.retired().replace(place, Arc::new(shard), copied);
        (has_changed, copied)
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
        let deep = Deep::new(0);
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
        assert!(deep.set(host, NextHopId::NONE) && !deep.set(host, NextHopId::NONE));
        assert_eq!((at(1), deep.len()), (4, 2));
        assert_eq!(deep.lookup(high + 1, 1).get(), 0);
    }

    #[test]
    fn a_change_copies_little_however_many_routes_there_are() {
        let deep = Deep::new(50_000);
        let host = |low: u64| Prefix6::truncating(0x2001_0db8 << 96 | u128::from(low), 128);
        let id = |n| NextHopId::new(n).unwrap();
        let routes: Vec<_> = (0..50_000).map(|low| (host(low), id(1))).collect();
        deep.load(&routes);
        let copied: u64 = (0..1000)
            .map(|turn| {
                let (prefix, next_hop) = match turn % 4 {
                    0 => (host(turn * 37), id(2)),
                    1 => (host(turn * 37), NextHopId::NONE),
                    2 => (host(1_000_000 + turn), id(3)),
                    _ => (Prefix6::truncating(host(turn << 20).address(), 100), id(4)),
                };
                deep.change(prefix, next_hop).1
            })
            .sum();
        println!("{copied} bytes copied by 1,000 changes");
        assert!(copied < 1000 * 8192, "{copied} bytes copied by 1,000 changes");
    }

    #[test]
    fn a_change_copies_few_references_however_many_64s_have_such_routes() {
        let host = |high: u64| Prefix6::truncating(u128::from(high) << 64 | 1, 128);
        let deep = Deep::new(50_000);
        let routes: Vec<_> = (0..50_000).map(|high| (host(high), NextHopId::new(1).unwrap())).collect();
        deep.load(&routes);
        let copied: u64 = (0..1000).map(|high| deep.change(host(high * 41), NextHopId::NONE).1).sum();
        assert!(copied < 1000 * 4096, "{copied} bytes copied by 1,000 changes");
    }
}
