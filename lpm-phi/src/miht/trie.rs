//! Priority tries (section 5.1; Lim, Yim and Swartzlander, "Priority Tries for IP Address Lookup", 2010).
//!
//! A binary trie without empty nodes, in which longer prefixes are nearer to the root. A path branches on the bits of an address past the
//! trie's base, which is 0, or `k` for the trie of an index key. The node after `d` such bits holds
//!
//! - the prefix of exactly those bits if it exists: an *ordinary* node, whose match a lookup keeps while it continues; or else
//! - the longest prefix below it: a *priority* node, at which a lookup that matches it ends.
//!
//! Invariant: every node obeys that rule. So the set of prefixes determines the node of each prefix, up to the order of equally long
//! prefixes. A [`TrieWriter`] changes tries that no lookup reads. All tries of a table share one pool of nodes; number 0 means no node.

use super::words::{TrieKey, TrieNode};
use fib::{NextHopId, Prefix};

#[derive(Clone, Debug)]
pub(super) struct TrieWriter {
    /// Nodes from here on were never used.
    next: u32,
    free: Vec<u32>,
    /// The number of nodes at each depth, 0 for a root: in tries of index keys, then in the trie of short prefixes.
    depths: [Vec<u32>; 2],
}

/// A trie, by its root (0: empty) and the number of bits that all its prefixes share.
#[derive(Clone, Copy, Debug)]
pub(super) struct MihtTrie {
    pub(super) root: u32,
    pub(super) base: u8,
}

/// A node on a path: its number, the position of the bit it branches on, and its parent with the bit that leads here.
#[derive(Clone, Copy, Debug)]
struct TrieStep {
    node: u32,
    position: u8,
    above: Option<(u32, u32)>,
}

impl TrieWriter {
    pub(super) fn new(bits: u8) -> Self {
        let depths = || vec![0; usize::from(bits) + 1];
        Self { next: 1, free: Vec::new(), depths: [depths(), depths()] }
    }

    pub(super) const fn nodes(&self) -> usize {
        self.touched() - 1 - self.free.len()
    }

    /// The number of nodes that were ever used, including node 0.
    pub(super) const fn touched(&self) -> usize {
        self.next as usize
    }

    pub(super) const fn bytes(&self) -> u64 {
        (self.free.capacity() * size_of::<u32>()) as u64
    }

    /// The deepest level and the mean level of nodes (a root is at level 1): in tries of index keys, then in the trie of short prefixes.
    #[expect(clippy::cast_precision_loss, reason = "statistics need no exact value")]
    pub(super) fn levels(&self) -> [(f64, f64); 2] {
        self.depths.each_ref().map(|depths| {
            let (mut deepest, mut sum, mut nodes) = (0, 0, 0);
            for (level, count) in (1_u64..).zip(depths) {
                deepest = if *count > 0 { level } else { deepest };
                sum += level * u64::from(*count);
                nodes += u64::from(*count);
            }
            (deepest as f64, if nodes == 0 { 0.0 } else { sum as f64 / nodes as f64 })
        })
    }

    /// Sets the next hop of `prefix`. Returns the root, and the previous next hop.
    pub(super) fn insert<K: TrieKey>(
        &mut self,
        nodes: &[K::Raw],
        trie: MihtTrie,
        prefix: Prefix<K>,
        next_hop: NextHopId,
    ) -> (u32, NextHopId) {
        let mut carried = TrieNode::new(prefix, next_hop);
        if trie.root == 0 {
            return (self.add::<K>(nodes, carried, trie.base, trie.base), NextHopId::NONE);
        }
        let (mut at, mut position) = (trie.root, trie.base);
        loop {
            let node = K::load(&nodes[at as usize]);
            if (node.address, node.len()) == (carried.address, carried.len()) {
                K::store(&nodes[at as usize], TrieNode { tag: carried.tag, ..node });
                return (trie.root, node.next_hop());
            }
            // The prefix that ends here belongs here, else the longest one. The prefix it displaces is inserted further down.
            let is_ordinary = node.len() == position;
            if !is_ordinary && (carried.len() == position || carried.len() > node.len()) {
                K::store(&nodes[at as usize], TrieNode { children: node.children, ..carried });
                carried = TrieNode { children: 0, ..node };
            }
            let bit = carried.address.bit(position);
            let child = K::load(&nodes[at as usize]).child(bit);
            position += 1;
            if child == 0 {
                let added = self.add::<K>(nodes, carried, trie.base, position);
                let node = K::load(&nodes[at as usize]);
                K::store(&nodes[at as usize], node.with_child(bit, added));
                return (trie.root, NextHopId::NONE);
            }
            at = child;
        }
    }

    /// Removes `prefix`. Returns the root, and the next hop that was removed; `NONE` if the prefix is absent.
    pub(super) fn remove<K: TrieKey>(
        &mut self,
        nodes: &[K::Raw],
        trie: MihtTrie,
        prefix: Prefix<K>,
    ) -> (u32, NextHopId) {
        let Some(mut gap) = Self::find(nodes, trie, prefix) else {
            return (trie.root, NextHopId::NONE);
        };
        let old = K::load(&nodes[gap.node as usize]).next_hop();
        // The longest prefix below moves up into the gap and leaves a new gap, until the gap is a leaf.
        while let Some(longest) = longest_below::<K>(nodes, gap) {
            let moved = K::load(&nodes[longest.node as usize]);
            let filled = TrieNode { children: K::load(&nodes[gap.node as usize]).children, ..moved };
            K::store(&nodes[gap.node as usize], filled);
            gap = longest;
        }
        self.free.push(gap.node);
        *self.level(trie.base, gap.position) -= 1;
        let Some((above, bit)) = gap.above else { return (0, old) };
        let parent = K::load(&nodes[above as usize]).with_child(bit, 0);
        K::store(&nodes[above as usize], parent);
        (trie.root, old)
    }

    fn find<K: TrieKey>(nodes: &[K::Raw], trie: MihtTrie, prefix: Prefix<K>) -> Option<TrieStep> {
        let mut step = TrieStep { node: trie.root, position: trie.base, above: None };
        while step.node != 0 {
            let node = K::load(&nodes[step.node as usize]);
            if node.prefix() == prefix {
                return Some(step);
            }
            let is_priority = node.len() > step.position;
            if prefix.len() == step.position || is_priority && node.len() < prefix.len() {
                return None; // the prefix would be here
            }
            step = below::<K>(step, prefix.address().bit(step.position), node);
        }
        None
    }

    fn add<K: TrieKey>(&mut self, nodes: &[K::Raw], node: TrieNode<K>, base: u8, position: u8) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        K::store(&nodes[at as usize], node);
        *self.level(base, position) += 1;
        at
    }

    fn level(&mut self, base: u8, position: u8) -> &mut u32 {
        &mut self.depths[usize::from(base == 0)][usize::from(position - base)]
    }
}

fn below<K: TrieKey>(step: TrieStep, bit: u32, node: TrieNode<K>) -> TrieStep {
    TrieStep { node: node.child(bit), position: step.position + 1, above: Some((step.node, bit)) }
}

/// A priority node has the longest prefix of its subtree; below an ordinary node a search is needed.
fn longest_below<K: TrieKey>(nodes: &[K::Raw], step: TrieStep) -> Option<TrieStep> {
    let mut longest: Option<(u8, TrieStep)> = None;
    let mut stack = vec![step];
    while let Some(step) = stack.pop() {
        let node = K::load(&nodes[step.node as usize]);
        for bit in 0..2 {
            let child_step = below::<K>(step, bit, node);
            if child_step.node == 0 {
                continue;
            }
            let child = K::load(&nodes[child_step.node as usize]);
            if child.len() == child_step.position && child.children != 0 {
                stack.push(child_step);
            } else if longest.is_none_or(|(len, _)| child.len() > len) {
                longest = Some((child.len(), child_step));
            }
        }
    }
    longest.map(|(_, step)| step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicU64;

    struct FollowedTrie<K: TrieKey> {
        words: Vec<AtomicU64>,
        writer: TrieWriter,
        trie: MihtTrie,
        right: BTreeMap<Prefix<K>, NextHopId>,
    }

    impl<K: TrieKey> FollowedTrie<K> {
        fn new(base: u8, nodes: usize) -> Self {
            let words = (0..(nodes + 1) * K::WORDS).map(|_| AtomicU64::default()).collect();
            Self {
                words,
                writer: TrieWriter::new(K::BITS),
                trie: MihtTrie { root: 0, base },
                right: BTreeMap::new(),
            }
        }

        fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId) {
            let nodes = K::nodes(&self.words);
            let before = self.right.get(&prefix).copied().unwrap_or(NextHopId::NONE);
            let old;
            (self.trie.root, old) = if next_hop.is_none() {
                self.right.remove(&prefix);
                self.writer.remove(nodes, self.trie, prefix)
            } else {
                self.right.insert(prefix, next_hop);
                self.writer.insert(nodes, self.trie, prefix, next_hop)
            };
            assert_eq!(old, before, "{prefix}");
            self.check();
        }

        fn check(&self) {
            let mut found = BTreeMap::new();
            let mut depths = vec![0; usize::from(K::BITS) + 1];
            if self.trie.root != 0 {
                self.check_node(self.trie.root, self.trie.base, &mut found, &mut depths);
            }
            assert_eq!(found, self.right);
            assert_eq!(self.writer.nodes(), self.right.len(), "one node per prefix");
            assert_eq!(self.writer.depths[usize::from(self.trie.base == 0)], depths);
        }

        fn check_node(
            &self,
            at: u32,
            position: u8,
            found: &mut BTreeMap<Prefix<K>, NextHopId>,
            depths: &mut [u32],
        ) -> u8 {
            depths[usize::from(position - self.trie.base)] += 1;
            let node = K::load(&K::nodes(&self.words)[at as usize]);
            assert!(found.insert(node.prefix(), node.next_hop()).is_none(), "{} twice", node.prefix());
            assert!(node.len() >= position, "{} below its length", node.prefix());
            let mut longest = node.len();
            for bit in 0..2 {
                let child = node.child(bit);
                if child != 0 {
                    let mut inner = BTreeMap::new();
                    longest = longest.max(self.check_node(child, position + 1, &mut inner, depths));
                    for prefix in inner.keys() {
                        assert_eq!(prefix.address().bit(position), bit, "{prefix} on the wrong side");
                        assert!(prefix.len() > position, "{prefix} belongs above");
                    }
                    found.extend(inner);
                }
            }
            assert!(node.len() == position || longest == node.len(), "{} is not the longest", node.prefix());
            longest
        }
    }

    fn churn<K: TrieKey>(base: u8, changes: &[(u128, u8, u32)]) {
        let mut trie = FollowedTrie::<K>::new(base, changes.len());
        for (bits, len, hop) in changes {
            let len = base + len % (K::BITS - base + 1);
            let address = K::from_high_bits(bits << 120 >> base);
            let next_hop = NextHopId::new(*hop).unwrap_or(NextHopId::NONE);
            trie.set(Prefix::truncating(address, len), next_hop);
        }
        for prefix in trie.right.clone().into_keys() {
            trie.set(prefix, NextHopId::NONE);
        }
        assert_eq!(trie.trie.root, 0);
    }

    proptest! {
        #[test]
        fn follows_a_map(changes in prop::collection::vec((any::<u128>(), 0u8..=12, 0u32..4), 1..150)) {
            churn::<u32>(0, &changes);
            churn::<u32>(16, &changes);
            churn::<u128>(0, &changes);
            churn::<u128>(32, &changes);
            churn::<u128>(60, &changes);
        }
    }

    #[test]
    fn every_prefix_of_a_full_tree_finds_its_level() {
        for base in [0, 24] {
            let mut trie = FollowedTrie::<u32>::new(base, 1 << 9);
            let prefixes: Vec<_> = (0..=8)
                .flat_map(|len| (0..1_u64 << len).map(move |bits| (bits, len)))
                .map(|(bits, len)| {
                    Prefix::truncating(u32::try_from(bits << (32 - len) >> base).unwrap(), base + len)
                })
                .collect();
            // Shortest first, so that each further prefix displaces another.
            for prefix in &prefixes {
                trie.set(*prefix, NextHopId::MAX);
            }
            assert_eq!(trie.writer.levels()[usize::from(base == 0)].0, 9.0);
            for prefix in prefixes {
                trie.set(prefix, NextHopId::NONE);
            }
        }
    }
}
