//! Pushing for all writers: which entries a route's change takes, and which nodes need chunks for longer routes.
//!
//! A writer keeps each entry's *owner*, the length of its route, instead of the pushed trie that the paper keeps on its control plane.

use crate::chunks::{distinct, nodes_of};
use fib::{Change, Prefix4};
use rustc_hash::FxHashMap;

/// The effect of a change on entries: entries whose owner's length is in a range go to another owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    from: u8,
    to: u8,
    owner: u8,
    pub(crate) code: u32,
}

impl Draw {
    /// A route of `len` takes the entries of shorter routes and changes its next hop in its entries.
    pub(crate) const fn announce(len: u8, code: u32) -> Self {
        Self { from: 0, to: len, owner: len, code }
    }

    /// The entries of a route of `len` go to `heir`, its length and code.
    pub(crate) const fn withdraw(len: u8, heir: (u8, u32)) -> Self {
        Self { from: len, to: len, owner: heir.0, code: heir.1 }
    }

    pub(crate) fn owner_after(self, owner: u8) -> Option<u8> {
        (self.from..=self.to).contains(&owner).then_some(self.owner)
    }

    /// Moves an entry of `owner` to the new owner, and returns whether it changes.
    pub(crate) fn takes(self, owner: &mut u8) -> bool {
        self.owner_after(*owner).map(|new| *owner = new).is_some()
    }
}

/// The routes longer than 16 and than 24 bits. A node of these levels has a chunk while it has longer routes.
#[derive(Clone, Debug)]
pub(crate) struct LongRoutes {
    /// The number of routes longer than 16 bits in each /16.
    by16: Vec<u32>,
    /// The number of routes longer than 24 bits in each /24; never 0.
    by24: FxHashMap<u32, u32>,
}

impl LongRoutes {
    pub(crate) fn new() -> Self {
        Self { by16: vec![0; 1 << 16], by24: FxHashMap::default() }
    }

    pub(crate) fn count(&mut self, prefix: Prefix4) {
        if prefix.len() > 16 {
            self.by16[(prefix.address() >> 16) as usize] += 1;
        }
        if prefix.len() > 24 {
            *self.by24.entry(prefix.address() >> 8).or_default() += 1;
        }
    }

    pub(crate) fn discount(&mut self, prefix: Prefix4) {
        if prefix.len() > 16 {
            self.by16[(prefix.address() >> 16) as usize] -= 1;
        }
        if prefix.len() > 24
            && let Some(count) = self.by24.get_mut(&(prefix.address() >> 8))
        {
            *count -= 1;
            if *count == 0 {
                self.by24.remove(&(prefix.address() >> 8));
            }
        }
    }

    pub(crate) fn are_in16(&self, address: u32) -> bool {
        self.by16[(address >> 16) as usize] > 0
    }

    pub(crate) fn are_in24(&self, address: u32) -> bool {
        self.by24.contains_key(&(address >> 8))
    }

    /// The number of nodes of levels 16 and 24 that get their first longer route from `changes`, in order; withdraws are ignored.
    pub(crate) fn new_nodes(&self, changes: &[Change<u32>]) -> [u64; 2] {
        let added = || changes.iter().filter(|change| change.adds()).map(|change| change.prefix);
        [
            distinct(nodes_of(16, added()).filter(|node| !self.are_in16(node << 16))),
            distinct(nodes_of(24, added()).filter(|node| !self.are_in24(node << 8))),
        ]
    }

    /// The net growth in nodes of levels 16 and 24 with longer routes by `changes`, in order.
    pub(crate) fn growth(&self, changes: &[Change<u32>]) -> [i64; 2] {
        let growth = |level: u8, routes: &dyn Fn(u32) -> u32| -> i64 {
            let long = changes.iter().filter(|change| change.prefix.len() > level);
            let net: Vec<_> = long
                .map(|change| {
                    let node = change.prefix.address() >> (32 - level);
                    (node, i64::from(change.adds()) - i64::from(change.withdraws()))
                })
                .collect();
            let of_node = |changes: &[(u32, i64)]| {
                let before = i64::from(routes(changes[0].0));
                let after = before + changes.iter().map(|(_, net)| net).sum::<i64>();
                i64::from(after > 0) - i64::from(before > 0)
            };
            net.chunk_by(|one, next| one.0 == next.0).map(of_node).sum()
        };
        [
            growth(16, &|node| self.by16[node as usize]),
            growth(24, &|node| self.by24.get(&node).copied().unwrap_or(0)),
        ]
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.by16.capacity() * 4 + self.by24.capacity() * 9) as u64
    }
}

/// The heir of a withdrawn route is in its final state then, so one store moves each address from its old answer to its new one.
pub(crate) fn longest_first(changes: &[Change<u32>]) -> Vec<Change<u32>> {
    let mut changes = changes.to_vec();
    changes.sort_unstable_by_key(|change| std::cmp::Reverse(change.prefix.len()));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::NextHopId;

    fn change(address: u32, len: u8, old: u32, new: u32) -> Change<u32> {
        let [old, new] = [old, new].map(NextHopId::from_answer);
        Change { prefix: Prefix4::truncating(address, len), old, new }
    }

    #[test]
    fn a_draw_takes_shorter_owners_or_those_of_a_withdrawn_route() {
        let mut owners = [0, 8, 20, 24];
        let announced = owners.each_mut().map(|owner| Draw::announce(20, 7).takes(owner));
        assert_eq!((announced, owners), ([true, true, true, false], [20, 20, 20, 24]));
        let withdrawn = owners.each_mut().map(|owner| Draw::withdraw(24, (20, 7)).takes(owner));
        assert_eq!((withdrawn, owners), ([false, false, false, true], [20; 4]));
    }

    #[test]
    fn nodes_with_longer_routes_are_counted_once() {
        let mut long = LongRoutes::new();
        [(0x0a01_0200, 25), (0x0a01_0280, 25), (0x0b00_0000, 16), (0x0c01_0200, 24)]
            .into_iter()
            .for_each(|(address, len)| long.count(Prefix4::truncating(address, len)));
        assert!(long.are_in16(0x0a01_0000) && long.are_in24(0x0a01_0299) && !long.are_in24(0x0c01_0200));
        let changes = [
            change(0x0a01_0200, 25, 1, 0),
            change(0x0a01_0240, 27, 0, 1),
            change(0x0a01_0280, 25, 1, 0),
            change(0x0a02_0000, 20, 0, 1),
            change(0x0c01_0200, 24, 1, 0),
            change(0x0d01_0200, 30, 0, 1),
            change(0x0d01_0208, 30, 0, 1),
        ];
        assert_eq!((long.new_nodes(&changes), long.growth(&changes)), ([2, 1], [1, 1]));
        long.discount(Prefix4::truncating(0x0a01_0200, 25));
        assert!(long.are_in24(0x0a01_0200));
        long.discount(Prefix4::truncating(0x0a01_0280, 25));
        assert!(!long.are_in16(0x0a01_0000) && !long.are_in24(0x0a01_0200));
        assert_eq!(longest_first(&changes)[0].prefix.len(), 30);
    }
}
