//! The index tree: a B+ tree of order `m` that maps the first `k` bits of the longer routes to their priority tries.
//!
//! A node is whole cache lines of keys (one line for the paper's 16 keys of 32 bits, section 5.1) and as many pointers in a second array.
//! In a leaf, pointer `i` is the trie of key `i`. In an internal node, key `i` bounds child `i` from above, and every key below the
//! next child is larger; the last child has no bound. Unused places hold the largest key, so the number of keys that are less selects the
//! child or the place.
//!
//! Invariant: all leaves are equally deep; a node except the root has at least half of `m` entries, rounded up, and no node more than `m`;
//! an internal root has at least two. Lookups read a [`TreeStore`]. A [`TreeWriter`] changes a store that no lookup reads.

use super::words::IndexKey;
use fib::EngineError;
use lpm_core::memory::{Array, Placement};
use std::hint::select_unpredictable;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug)]
pub(super) struct TreeStore<W: IndexKey> {
    keys: Array<W::Atom>,
    pointers: Array<AtomicU32>,
    /// Places of a node: `m`, rounded up to whole lines.
    places: usize,
    root: AtomicU32,
    /// Levels; 1 if the root is a leaf.
    height: AtomicU32,
}

impl<W: IndexKey> TreeStore<W> {
    /// A tree with room for `nodes` nodes of order `m`, whose root is an empty leaf.
    pub(super) fn new(nodes: usize, m: usize, placement: Placement) -> Result<Self, EngineError> {
        let places = m.next_multiple_of(W::PER_LINE);
        let tree = Self {
            keys: Array::zeroed(nodes * places * W::ATOMS, placement)?,
            pointers: Array::zeroed(nodes * places, placement)?,
            places,
            root: AtomicU32::new(0),
            height: AtomicU32::new(1),
        };
        tree.write(0, &NodeEntries::default());
        Ok(tree)
    }

    pub(super) fn bytes_for(nodes: usize, m: usize) -> u64 {
        let places = m.next_multiple_of(W::PER_LINE);
        (nodes * places * (size_of::<W>() + size_of::<u32>())) as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.keys.bytes() + self.pointers.bytes()
    }

    pub(super) fn capacity(&self) -> usize {
        self.pointers.len() / self.places
    }

    #[inline]
    pub(super) fn root(&self) -> (u32, u32) {
        (self.root.load(Relaxed), self.height.load(Relaxed))
    }

    /// The child of the internal node `node` to descend to for `key`.
    #[inline]
    pub(super) fn child(&self, node: u32, key: W) -> u32 {
        let start = node as usize * self.places;
        self.pointers[start + self.less(start, key)].load(Relaxed)
    }

    /// The pointer of `key` in the leaf `node`; 0 if the key is absent.
    #[inline]
    pub(super) fn leaf_value(&self, node: u32, key: W) -> u32 {
        let start = node as usize * self.places;
        // If all keys are less, the last place is read, whose key then differs.
        let at = start + self.less(start, key).min(self.places - 1);
        // An unused place has the pointer 0 and may have any key.
        let value = self.pointers[at].load(Relaxed);
        select_unpredictable(W::load(&self.keys, at) == key, value, 0)
    }

    /// Counts the keys less than `key` by the binary search of section 5.1, without a branch on the result of a comparison.
    #[inline]
    fn less(&self, start: usize, key: W) -> usize {
        let keys = &self.keys[start * W::ATOMS..(start + self.places) * W::ATOMS];
        let (mut base, mut size) = (0, self.places);
        while size > 1 {
            let half = size / 2;
            let is_less = W::load(keys, base + half - 1) < key;
            base = select_unpredictable(is_less, base + half, base);
            size -= half;
        }
        base + usize::from(W::load(keys, base) < key)
    }

    pub(super) fn get(&self, key: W) -> u32 {
        let (mut node, height) = self.root();
        for _ in 1..height {
            node = self.child(node, key);
        }
        self.leaf_value(node, key)
    }

    fn write(&self, node: u32, entries: &NodeEntries<W>) {
        let start = node as usize * self.places;
        for at in 0..self.places {
            let (key, pointer) = entries.0.get(at).copied().unwrap_or((W::MAX, 0));
            key.store(&self.keys, start + at);
            self.pointers[start + at].store(pointer, Relaxed);
        }
    }

    fn read(&self, node: u32, len: usize) -> NodeEntries<W> {
        let start = node as usize * self.places;
        let entry = |at| (W::load(&self.keys, at), self.pointers[at].load(Relaxed));
        NodeEntries((start..start + len).map(entry).collect())
    }

    /// Copies the first `nodes` nodes of `other`, which has the same size, and its root.
    pub(super) fn copy_from(&self, other: &Self, nodes: usize) {
        for at in 0..nodes * self.places {
            W::load(&other.keys, at).store(&self.keys, at);
            self.pointers[at].store(other.pointers[at].load(Relaxed), Relaxed);
        }
        self.root.store(other.root.load(Relaxed), Relaxed);
        self.height.store(other.height.load(Relaxed), Relaxed);
    }
}

/// The keys and pointers of a node. The last key of an internal node is `W::MAX`.
#[derive(Clone, Debug)]
struct NodeEntries<W>(Vec<(W, u32)>);

impl<W> Default for NodeEntries<W> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

#[derive(Clone, Debug)]
pub(super) struct TreeWriter {
    m: usize,
    lens: Vec<u32>,
    free: Vec<u32>,
    keys: usize,
}

impl TreeWriter {
    pub(super) fn new(m: usize) -> Self {
        Self { m, lens: vec![0], free: Vec::new(), keys: 0 }
    }

    pub(super) const fn keys(&self) -> usize {
        self.keys
    }

    pub(super) const fn nodes(&self) -> usize {
        self.lens.len() - self.free.len()
    }

    /// The number of nodes that were ever used; all later nodes are zero.
    pub(super) const fn touched(&self) -> usize {
        self.lens.len()
    }

    pub(super) const fn bytes(&self) -> u64 {
        ((self.lens.capacity() + self.free.capacity()) * size_of::<u32>()) as u64
    }

    /// The maximum number of nodes of a tree of order `m` with `keys` keys: every node is at least half full.
    pub(super) fn nodes_max(keys: usize, m: usize) -> usize {
        let least = m.div_ceil(2);
        let (mut level, mut sum) = ((keys / least).max(1), 0);
        while level > 1 {
            sum += level;
            level = (level / least).max(1);
        }
        sum + 1
    }

    /// Fills an empty tree with `entries`, keys ascending. Nodes become seven eighths full, with neighbours adjacent.
    pub(super) fn fill<W: IndexKey>(&mut self, store: &TreeStore<W>, entries: Vec<(W, u32)>) {
        assert!(self.keys == 0 && self.nodes() == 1, "only an empty tree is filled");
        self.keys = entries.len();
        if entries.len() <= self.m {
            self.write(store, 0, &NodeEntries(entries));
            return;
        }
        self.free.push(0);
        let (mut level, mut height) = (entries, 0);
        loop {
            height += 1;
            let nodes = level.len().div_ceil((self.m * 7 / 8).max(self.m.div_ceil(2)));
            // No node may have less than half of `m` entries. A level that fits in one node is the root.
            let most = level.len() / self.m.div_ceil(2);
            let nodes = if level.len() <= self.m { 1 } else { nodes.min(most) };
            let mut parents = Vec::with_capacity(nodes);
            let mut rest = level.as_slice();
            for at in 0..nodes {
                let (mine, after) = rest.split_at(rest.len().div_ceil(nodes - at));
                rest = after;
                let bound = mine.last().map_or(W::MAX, |(key, _)| *key);
                let node = self.allocate();
                let mut mine = NodeEntries(mine.to_vec());
                if height > 1 {
                    mine.unbind();
                }
                self.write(store, node, &mine);
                parents.push((bound, node));
            }
            if let [(_, root)] = parents[..] {
                store.root.store(root, Relaxed);
                store.height.store(height, Relaxed);
                return;
            }
            level = parents;
        }
    }

    /// Adds `key`, which must be absent, with `value`, which must not be 0.
    pub(super) fn insert<W: IndexKey>(&mut self, store: &TreeStore<W>, key: W, value: u32) {
        let mut path = self.path(store, key);
        self.keys += 1;
        let Some((leaf, at)) = path.pop() else { return };
        let mut entries = self.read(store, leaf);
        entries.0.insert(at, (key, value));
        let (mut node, mut height) = (leaf, 1);
        while entries.0.len() > self.m {
            // Split the node: the left half keeps its place in the parent, the right half is inserted after it.
            let right_entries = NodeEntries(entries.0.split_off(entries.0.len().div_ceil(2)));
            let bound = entries.0.last().map_or(W::MAX, |(bound, _)| *bound);
            if height > 1 {
                entries.unbind();
            }
            let right = self.allocate();
            self.write(store, node, &entries);
            self.write(store, right, &right_entries);
            height += 1;
            let Some((parent, at)) = path.pop() else {
                let root = self.allocate();
                self.write(store, root, &NodeEntries(vec![(bound, node), (W::MAX, right)]));
                store.root.store(root, Relaxed);
                store.height.store(height, Relaxed);
                return;
            };
            entries = self.read(store, parent);
            let old_bound = entries.0[at].0;
            entries.0[at] = (bound, node);
            entries.0.insert(at + 1, (old_bound, right));
            node = parent;
        }
        self.write(store, node, &entries);
    }

    /// Removes `key`, which must be present.
    pub(super) fn remove<W: IndexKey>(&mut self, store: &TreeStore<W>, key: W) {
        let mut path = self.path(store, key);
        let Some((leaf, at)) = path.pop() else { return };
        let mut entries = self.read(store, leaf);
        assert!(entries.0.get(at).is_some_and(|entry| entry.0 == key), "the key to remove must be present");
        entries.0.remove(at);
        self.keys -= 1;
        let (mut node, mut is_leaf) = (leaf, true);
        while let Some((parent, at)) = path.pop() {
            if entries.0.len() >= self.m.div_ceil(2) {
                break;
            }
            let mut siblings = self.read(store, parent);
            self.balance(store, &mut siblings, at, &entries, is_leaf);
            (entries, node, is_leaf) = (siblings, parent, false);
        }
        if let ([(_, child)], false) = (&entries.0[..], is_leaf) {
            // The root has one child left, which becomes the root.
            store.root.store(*child, Relaxed);
            store.height.store(store.height.load(Relaxed) - 1, Relaxed);
            self.free_node(node);
            return;
        }
        self.write(store, node, &entries);
    }

    /// Merges child `at`, one entry short, with a neighbour, or splits the entries of both evenly. `entries` are the child's.
    fn balance<W: IndexKey>(
        &mut self,
        store: &TreeStore<W>,
        siblings: &mut NodeEntries<W>,
        at: usize,
        entries: &NodeEntries<W>,
        is_leaf: bool,
    ) {
        let left_at = at.saturating_sub(1); // the left neighbour if there is one, else the right
        let ((bound, left), (right_bound, right)) = (siblings.0[left_at], siblings.0[left_at + 1]);
        let read = |node, own| if own { entries.clone() } else { self.read(store, node) };
        let (mut all, right_entries) = (read(left, left_at == at), read(right, left_at != at));
        if !is_leaf && let Some(last) = all.0.last_mut() {
            last.0 = bound;
        }
        all.0.extend(right_entries.0);
        if all.0.len() <= self.m {
            self.write(store, left, &all);
            self.free_node(right);
            siblings.0[left_at] = (right_bound, left);
            siblings.0.remove(left_at + 1);
            return;
        }
        let right_entries = NodeEntries(all.0.split_off(all.0.len().div_ceil(2)));
        siblings.0[left_at].0 = all.0.last().map_or(W::MAX, |(bound, _)| *bound);
        if !is_leaf {
            all.unbind();
        }
        self.write(store, left, &all);
        self.write(store, right, &right_entries);
    }

    /// The nodes from the root to `key`'s leaf, each with `key`'s place in it.
    fn path<W: IndexKey>(&self, store: &TreeStore<W>, key: W) -> Vec<(u32, usize)> {
        let (mut node, height) = store.root();
        let mut path = Vec::with_capacity(height as usize);
        for level in 0..height {
            let start = node as usize * store.places;
            let at = store.less(start, key);
            path.push((node, at));
            if level + 1 < height {
                node = store.pointers[start + at].load(Relaxed);
            }
        }
        path
    }

    fn read<W: IndexKey>(&self, store: &TreeStore<W>, node: u32) -> NodeEntries<W> {
        store.read(node, self.lens[node as usize] as usize)
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most m")]
    fn write<W: IndexKey>(&mut self, store: &TreeStore<W>, node: u32, entries: &NodeEntries<W>) {
        self.lens[node as usize] = entries.0.len() as u32;
        store.write(node, entries);
    }

    #[expect(clippy::cast_possible_truncation, reason = "room is reserved for at most 2^32 - 1 nodes")]
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.lens.push(0);
            self.lens.len() as u32 - 1
        })
    }

    fn free_node(&mut self, node: u32) {
        self.lens[node as usize] = 0;
        self.free.push(node);
    }

    #[cfg(test)]
    pub(super) fn for_each<W: IndexKey>(&self, store: &TreeStore<W>, mut each: impl FnMut(W, u32)) {
        let (root, height) = store.root();
        let mut stack = vec![(root, height)];
        while let Some((node, height)) = stack.pop() {
            let entries = self.read(store, node);
            if height == 1 {
                entries.0.into_iter().for_each(|(key, value)| each(key, value));
            } else {
                stack.extend(entries.0.into_iter().rev().map(|(_, child)| (child, height - 1)));
            }
        }
    }
}

impl<W: IndexKey> NodeEntries<W> {
    fn unbind(&mut self) {
        if let Some(last) = self.0.last_mut() {
            last.0 = W::MAX;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    struct FollowedTree<W: IndexKey> {
        store: TreeStore<W>,
        writer: TreeWriter,
        right: BTreeMap<W, u32>,
    }

    impl<W: IndexKey> FollowedTree<W> {
        fn new(m: usize, keys_max: usize) -> Self {
            let nodes = TreeWriter::nodes_max(keys_max, m);
            let store = TreeStore::new(nodes, m, Placement::default()).unwrap();
            Self { store, writer: TreeWriter::new(m), right: BTreeMap::new() }
        }

        fn flip(&mut self, key: W, value: u32) {
            if self.right.remove(&key).is_some() {
                self.writer.remove(&self.store, key);
            } else {
                self.right.insert(key, value);
                self.writer.insert(&self.store, key, value);
            }
            self.check();
        }

        fn check(&self) {
            let (root, height) = self.store.root();
            let mut seen = BTreeSet::new();
            self.check_node(root, height, None, None, &mut seen);
            assert_eq!(seen.len(), self.writer.nodes(), "every node in use is reachable");
            assert!(self.writer.free.iter().all(|free| !seen.contains(free)));
            assert!(self.writer.nodes() <= TreeWriter::nodes_max(self.writer.keys(), self.writer.m));
            let mut found = Vec::new();
            self.writer.for_each(&self.store, |key, value| found.push((key, value)));
            assert!(found.iter().copied().eq(self.right.iter().map(|(key, value)| (*key, *value))));
            assert_eq!(self.writer.keys(), self.right.len());
        }

        fn check_node(
            &self,
            node: u32,
            height: u32,
            low: Option<W>,
            high: Option<W>,
            seen: &mut BTreeSet<u32>,
        ) {
            assert!(seen.insert(node), "node {node} is reached twice");
            let (m, is_root) = (self.writer.m, node == self.store.root().0);
            let entries = self.writer.read(&self.store, node).0;
            let least = match (is_root, height) {
                (true, 1) => 0,
                (true, _) => 2,
                _ => m.div_ceil(2),
            };
            assert!((least..=m).contains(&entries.len()), "{} entries of {m}", entries.len());
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "{entries:?}");
            let rest = self.store.read(node, self.store.places).0.split_off(entries.len());
            assert!(rest.iter().all(|entry| *entry == (W::MAX, 0)), "unused places");
            if height == 1 {
                let within = |key: W| low.is_none_or(|low| key > low) && high.is_none_or(|high| key <= high);
                assert!(entries.iter().all(|(key, value)| within(*key) && *value != 0));
                return;
            }
            let mut low = low;
            for (at, (bound, child)) in entries.iter().enumerate() {
                let last = at + 1 == entries.len();
                assert!(!last || *bound == W::MAX);
                let bound = if last { high } else { Some(*bound) };
                self.check_node(*child, height - 1, low, bound, seen);
                low = bound;
            }
        }

        fn check_answers(&self, keys: impl Iterator<Item = W>) {
            for key in keys {
                assert_eq!(self.store.get(key), self.right.get(&key).copied().unwrap_or(0), "{key:?}");
            }
        }
    }

    fn churn<W: IndexKey>(m: usize, keys: &[u32], spread: impl Fn(u32) -> W) {
        let mut tree = FollowedTree::<W>::new(m, keys.len());
        for (value, key) in (1..).zip(keys) {
            tree.flip(spread(*key), value);
        }
        tree.check_answers((0..300).map(&spread));
        tree.check_answers([W::MAX].into_iter());
        for key in tree.right.clone().into_keys() {
            tree.flip(key, 0);
        }
        assert_eq!((tree.writer.nodes(), tree.store.root().1), (1, 1), "an empty leaf is left");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn follows_a_map(m in 3usize..40, keys in prop::collection::vec(0u32..300, 1..600)) {
            churn::<u32>(m, &keys, |key| key);
            churn::<u32>(m, &keys, |key| u32::MAX - key);
            churn::<u64>(m, &keys, |key| u64::MAX - u64::from(key) * 0x1_0000_0001);
            churn::<u128>(m, &keys, |key| u128::MAX - (u128::from(key) << 77));
        }

        #[test]
        fn is_filled_at_once(m in 3usize..40, count in 0u32..3000, more in prop::collection::vec(0u32..6000, 0..50)) {
            let mut tree = FollowedTree::<u32>::new(m, count as usize + more.len());
            tree.right = (1..=count).map(|value| (value * 2, value)).collect();
            tree.writer.fill(&tree.store, tree.right.clone().into_iter().collect());
            tree.check();
            tree.check_answers(0..count * 2 + 3);
            for key in more {
                tree.flip(key, 1);
            }
        }
    }

    /// Section 5.1: a node of order 16 holds sixteen keys of 32 bits, which are one cache line, fetched by one access.
    #[test]
    fn a_node_of_the_paper_is_one_line_of_sixteen_keys() {
        let mut tree = FollowedTree::<u32>::new(16, 400);
        (1..=16).for_each(|key| tree.flip(key, 1));
        assert_eq!((tree.store.places, tree.store.root().1), (16, 1), "sixteen keys are in one node");
        tree.flip(17, 1);
        assert_eq!(tree.store.root().1, 2, "the seventeenth splits it");
        // Each step checks that no node has more than sixteen children; with seventeen the root would have no level above it.
        (18..=400).for_each(|key| tree.flip(key, 1));
        assert_eq!(tree.store.root().1, 3);
        let keys = &tree.store.keys[..tree.store.places];
        assert_eq!((size_of_val(keys), keys.as_ptr().addr() % 64), (64, 0));
    }

    #[test]
    fn a_copy_is_the_same() {
        let mut tree = FollowedTree::<u64>::new(8, 500);
        for key in 0..500_u64 {
            tree.flip(key.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1);
        }
        let copy = TreeStore::new(tree.store.capacity(), 8, Placement::default()).unwrap();
        copy.copy_from(&tree.store, tree.writer.touched());
        tree.store = copy;
        tree.check();
    }
}
