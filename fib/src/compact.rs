//! Compaction: leaves out routes that change no answer.
//!
//! A route whose next hop is that of the longest route covering it can be left out of a FIB: a lookup that misses it
//! finds the same next hop one route up. In full tables of 2024 that is four routes in ten. A [`Compactor`] stands
//! between the routes told and the engine's own tables and turns each change of the former into changes of the latter;
//! it keeps all that was told, so that a route left out comes back when the one that covers it changes.
//!
//! The routes lie in a binary trie with paths compressed: each node is a route or a fork of two.

use crate::{Change, Key, NextHopId, Prefix};

/// The trie of one family's routes.
#[derive(Clone, Debug)]
pub struct Compactor<K: Key> {
    /// Node 0 is the default route's place, told or not.
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node<K: Key> {
    prefix: Prefix<K>,
    /// `NONE`: a fork only.
    next_hop: NextHopId,
    /// By the bit behind the prefix; 0: none.
    children: [u32; 2],
}

impl<K: Key> Default for Compactor<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key> Compactor<K> {
    /// No routes.
    #[must_use]
    pub fn new() -> Self {
        let root = Node { prefix: Prefix::DEFAULT, next_hop: NextHopId::NONE, children: [0; 2] };
        Self { nodes: vec![root], free: Vec::new(), len: 0 }
    }

    /// The number of routes told.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none are told.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node<K>>()) as u64
    }

    /// Tells that `prefix` has `next_hop` from now on ([`NextHopId::NONE`]: withdrawn), and adds to `out` what changes in
    /// the compacted table: a prefix may come up again in later calls, the last is right, and a change may be none.
    /// Returns the next hop that was told before.
    pub fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId, out: &mut Vec<Change<K>>) -> NextHopId {
        let Place { at, parents, inherited } = self.find(prefix);
        let old = at.map_or(NextHopId::NONE, |at| self.nodes[at as usize].next_hop);
        if old == next_hop {
            return old;
        }
        let kept = if next_hop == inherited { NextHopId::NONE } else { next_hop };
        out.push(Change { prefix, next_hop: kept });
        let or_inherited = |told: NextHopId| if told.is_none() { inherited } else { told };
        let (before, after) = (or_inherited(old), or_inherited(next_hop));
        let at = at.unwrap_or_else(|| self.insert(prefix, parents[0]));
        self.nodes[at as usize].next_hop = next_hop;
        if before != after {
            self.reconsider(at, before, after, out);
        }
        match (old.is_none(), next_hop.is_none()) {
            (true, false) => self.len += 1,
            (false, true) => {
                self.len -= 1;
                self.tidy(at, parents);
            }
            _ => {}
        }
        old
    }

    /// The routes right below node `at` fall back on `after` from now on, no longer on `before`.
    fn reconsider(&self, at: u32, before: NextHopId, after: NextHopId, out: &mut Vec<Change<K>>) {
        let mut stack: Vec<u32> =
            self.nodes[at as usize].children.into_iter().filter(|child| *child != 0).collect();
        while let Some(at) = stack.pop() {
            let node = &self.nodes[at as usize];
            if node.next_hop.is_none() {
                stack.extend(node.children.into_iter().filter(|child| *child != 0));
            } else if node.next_hop == before {
                out.push(Change { prefix: node.prefix, next_hop: node.next_hop });
            } else if node.next_hop == after {
                out.push(Change { prefix: node.prefix, next_hop: NextHopId::NONE });
            }
        }
    }

    /// The node of `prefix`, if there is one; the two nodes above its place, the nearer first; what it inherits.
    fn find(&self, prefix: Prefix<K>) -> Place {
        let mut place = Place { at: None, parents: [0; 2], inherited: NextHopId::NONE };
        let mut at = 0;
        loop {
            let node = &self.nodes[at as usize];
            if node.prefix == prefix {
                place.at = Some(at);
                return place;
            }
            if !node.next_hop.is_none() {
                place.inherited = node.next_hop;
            }
            place.parents = [at, place.parents[0]];
            let child = node.children[branch(prefix, node.prefix.len())];
            if child == 0 || !self.nodes[child as usize].prefix.covers(prefix) {
                return place;
            }
            at = child;
        }
    }

    /// A node for `prefix` below `parent`, which is right above its place.
    fn insert(&mut self, prefix: Prefix<K>, parent: u32) -> u32 {
        let side = branch(prefix, self.nodes[parent as usize].prefix.len());
        let below = self.nodes[parent as usize].children[side];
        let mut node = Node { prefix, next_hop: NextHopId::NONE, children: [0; 2] };
        if below == 0 {
            let at = self.add(node);
            self.nodes[parent as usize].children[side] = at;
            return at;
        }
        let other = self.nodes[below as usize].prefix;
        if prefix.covers(other) {
            node.children[branch(other, prefix.len())] = below;
            let at = self.add(node);
            self.nodes[parent as usize].children[side] = at;
            return at;
        }
        let same = (prefix.address().to_high_bits() ^ other.address().to_high_bits()).leading_zeros();
        let fork_len = u8::try_from(same).unwrap_or(K::BITS);
        let at = self.add(node);
        let mut fork = Node {
            prefix: Prefix::truncating(prefix.address(), fork_len),
            next_hop: NextHopId::NONE,
            children: [0; 2],
        };
        fork.children[branch(prefix, fork_len)] = at;
        fork.children[branch(other, fork_len)] = below;
        let fork = self.add(fork);
        self.nodes[parent as usize].children[side] = fork;
        at
    }

    fn add(&mut self, node: Node<K>) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        let at = u32::try_from(self.nodes.len());
        assert!(at.is_ok(), "2^32 nodes of a trie are beyond any memory");
        self.nodes.push(node);
        at.unwrap_or(0)
    }

    /// Takes out node `at`, no route any more, and the fork above it if that is no fork any more.
    fn tidy(&mut self, at: u32, parents: [u32; 2]) {
        for (at, parent) in [(at, parents[0]), (parents[0], parents[1])] {
            let node = self.nodes[at as usize];
            let [left, right] = node.children;
            if at == 0 || !node.next_hop.is_none() || (left != 0 && right != 0) {
                return;
            }
            let side = branch(node.prefix, self.nodes[parent as usize].prefix.len());
            self.nodes[parent as usize].children[side] = left | right;
            self.free.push(at);
        }
    }
}

struct Place {
    at: Option<u32>,
    parents: [u32; 2],
    inherited: NextHopId,
}

/// The bit of `prefix` behind its first `len`, as an index of children.
fn branch<K: Key>(prefix: Prefix<K>, len: u8) -> usize {
    usize::from(prefix.address().to_high_bits() << len.min(127) >> 127 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Oracle4;
    use crate::{IpPrefix, Prefix4};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    fn route(text: &str) -> Prefix4 {
        match text.parse() {
            Ok(IpPrefix::V4(prefix)) => prefix,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// A compactor and the table that follows from its changes.
    #[derive(Default)]
    struct Followed {
        compactor: Compactor<u32>,
        kept: BTreeMap<Prefix4, NextHopId>,
    }

    impl Followed {
        fn set(&mut self, prefix: Prefix4, next_hop: NextHopId) {
            let mut out = Vec::new();
            self.compactor.set(prefix, next_hop, &mut out);
            for change in out {
                if change.next_hop.is_none() {
                    self.kept.remove(&change.prefix);
                } else {
                    self.kept.insert(change.prefix, change.next_hop);
                }
            }
        }
    }

    #[test]
    fn a_route_like_the_one_above_is_left_out_and_comes_back() {
        let mut table = Followed::default();
        let [wide, middle, narrow] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"].map(route);
        table.set(narrow, id(1));
        table.set(wide, id(1));
        assert_eq!(table.kept.len(), 1, "the narrow route says no more than the wide one");
        table.set(middle, id(2));
        assert_eq!(table.kept.len(), 3);
        table.set(wide, id(2));
        assert_eq!(table.kept.keys().copied().collect::<Vec<_>>(), [wide, narrow]);
        table.set(middle, NextHopId::NONE);
        table.set(wide, NextHopId::NONE);
        assert_eq!(table.kept.into_iter().collect::<Vec<_>>(), [(narrow, id(1))]);
        assert_eq!(table.compactor.len(), 1);
    }

    #[test]
    fn nothing_is_left_of_routes_withdrawn() {
        let mut table = Followed::default();
        let prefixes: Vec<_> = (0..1000_u32)
            .map(|n| Prefix4::truncating(n.wrapping_mul(0x9e37_79b9), 8 + (n % 25) as u8))
            .collect();
        for (n, prefix) in prefixes.iter().enumerate() {
            table.set(*prefix, id([1, 2, 3][n % 3]));
        }
        for prefix in &prefixes {
            table.set(*prefix, NextHopId::NONE);
        }
        assert!(table.kept.is_empty() && table.compactor.is_empty());
        assert_eq!(table.compactor.nodes.len() - table.compactor.free.len(), 1, "nodes are given back");
    }

    proptest! {
        #[test]
        fn answers_stay_and_no_route_is_superfluous(
            changes in prop::collection::vec((0u32..256, 0u8..=8, 0u32..4), 1..200),
        ) {
            let (mut table, mut told) = (Followed::default(), Oracle4::new());
            for (bits, len, next_hop) in changes {
                // Eight bits of prefixes right below 128/1 and as deep: nesting is the rule.
                let prefix = Prefix4::truncating(bits << 24, len);
                table.set(prefix, id(next_hop));
                told.set(prefix, id(next_hop));
            }
            let kept: Oracle4 = table.kept.iter().map(|(prefix, next_hop)| (*prefix, *next_hop)).collect();
            for top in 0..256_u32 {
                prop_assert_eq!(kept.lookup(top << 24), told.lookup(top << 24));
            }
            for (prefix, next_hop) in &table.kept {
                let above = (0..prefix.len()).rev().find_map(|len| table.kept.get(&Prefix4::truncating(prefix.address(), len)));
                prop_assert_ne!(above, Some(next_hop), "{} is superfluous", prefix);
            }
            prop_assert_eq!(table.compactor.len(), told.len());
        }
    }
}
