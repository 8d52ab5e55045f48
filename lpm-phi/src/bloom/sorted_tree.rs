//! A persistent sorted map with 64-bit keys: a B+ tree with counted references, whose copies share all equal nodes.
//!
//! A change copies the shared nodes on the path to an entry, at most [`WIDTH`] entries each, and modifies unshared ones in place. A small
//! map is one sorted array. Nodes are removed when empty but never merged: a map that shrinks keeps its depth.

use std::sync::Arc;

const WIDTH: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct SortedTree<V>(SortedNode<V>);

#[derive(Clone, Debug)]
enum SortedNode<V> {
    Leaf(Arc<[(u64, V)]>),
    /// Children, each with a lower bound of its keys that is above all keys of its predecessor; the first bound is ignored.
    Inner(Arc<[(u64, Self)]>),
}

impl<V> Default for SortedTree<V> {
    fn default() -> Self {
        Self(SortedNode::Leaf(Arc::new([])))
    }
}

#[inline]
fn child<V>(nodes: &[(u64, SortedNode<V>)], key: u64) -> usize {
    nodes.partition_point(|(from, _)| *from <= key).saturating_sub(1)
}

impl<V> SortedTree<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn get(&self, key: u64) -> Option<&V> {
        let mut node = &self.0;
        loop {
            match node {
                SortedNode::Inner(nodes) => node = &nodes[child(nodes, key)].1,
                SortedNode::Leaf(entries) => {
                    let at = entries.binary_search_by_key(&key, |(key, _)| *key).ok()?;
                    return Some(&entries[at].1);
                }
            }
        }
    }
}

impl<V: Clone> SortedTree<V> {
    /// Sets the value of `key` and returns the previous one. Adds the bytes that it copies to `copied`.
    pub(super) fn insert(&mut self, key: u64, value: V, copied: &mut u64) -> Option<V> {
        let (before, right) = self.0.insert(key, value, copied);
        if let Some(right) = right {
            let left = std::mem::replace(&mut self.0, SortedNode::Leaf(Arc::new([])));
            self.0 = SortedNode::Inner(Arc::new([(0, left), right]));
        }
        before
    }

    /// Removes `key` and returns its value. Adds the bytes that it copies to `copied`.
    pub(super) fn remove(&mut self, key: u64, copied: &mut u64) -> Option<V> {
        let value = self.get(key).cloned()?; // an absent key copies nothing
        self.0.remove(key, copied);
        while let SortedNode::Inner(nodes) = &self.0
            && let [(_, only)] = &**nodes
        {
            self.0 = only.clone();
        }
        Some(value)
    }
}

fn make_unique<'a, T: Clone>(items: &'a mut Arc<[T]>, copied: &mut u64) -> &'a mut [T] {
    if Arc::get_mut(items).is_none() {
        *copied += size_of_val(&**items) as u64;
    }
    Arc::make_mut(items)
}

/// Inserts `item` at `at`. If the node overflows, splits it and returns the upper half.
fn insert_item<T: Clone>(items: &mut Arc<[T]>, at: usize, item: T, copied: &mut u64) -> Option<Arc<[T]>> {
    *copied += size_of_val(&**items) as u64;
    let (before, behind) = items.split_at(at);
    let more: Arc<[T]> =
        before.iter().cloned().chain(std::iter::once(item)).chain(behind.iter().cloned()).collect();
    if more.len() <= WIDTH {
        *items = more;
        return None;
    }
    let (low, high) = more.split_at(WIDTH / 2);
    *items = low.into();
    Some(high.into())
}

fn remove_item<T: Clone>(items: &mut Arc<[T]>, at: usize, copied: &mut u64) {
    *copied += size_of_val(&**items) as u64;
    let (before, behind) = items.split_at(at);
    *items = before.iter().chain(&behind[1..]).cloned().collect();
}

impl<V> SortedNode<V> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(entries) => entries.is_empty(),
            Self::Inner(nodes) => nodes.is_empty(),
        }
    }
}

impl<V: Clone> SortedNode<V> {
    /// Sets an entry. Returns the previous value, and the new right neighbour of a split node with its lower bound.
    fn insert(&mut self, key: u64, value: V, copied: &mut u64) -> (Option<V>, Option<(u64, Self)>) {
        match self {
            Self::Leaf(entries) => match entries.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(at) => (Some(std::mem::replace(&mut make_unique(entries, copied)[at].1, value)), None),
                Err(at) => {
                    let right = insert_item(entries, at, (key, value), copied);
                    (None, right.map(|right| (right[0].0, Self::Leaf(right))))
                }
            },
            Self::Inner(nodes) => {
                let at = child(nodes, key);
                let (before, right) = make_unique(nodes, copied)[at].1.insert(key, value, copied);
                let right = right.and_then(|right| insert_item(nodes, at + 1, right, copied));
                (before, right.map(|right| (right[0].0, Self::Inner(right))))
            }
        }
    }

    fn remove(&mut self, key: u64, copied: &mut u64) {
        match self {
            Self::Leaf(entries) => {
                if let Ok(at) = entries.binary_search_by_key(&key, |(key, _)| *key) {
                    remove_item(entries, at, copied);
                }
            }
            Self::Inner(nodes) => {
                let at = child(nodes, key);
                let node = &mut make_unique(nodes, copied)[at].1;
                node.remove(key, copied);
                if node.is_empty() {
                    remove_item(nodes, at, copied);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_tree_is_a_map_and_its_copies_do_not_change(
            changes in proptest::collection::vec((0_u64..600, proptest::option::weighted(0.7, 0_u32..9)), 1..2000),
        ) {
            let (mut tree, mut map) = (SortedTree::default(), BTreeMap::new());
            let mut versions = Vec::new();
            for (turn, (key, value)) in changes.into_iter().enumerate() {
                let key = key << 40;
                let before = match value {
                    Some(value) => (tree.insert(key, value, &mut 0), map.insert(key, value)),
                    None => (tree.remove(key, &mut 0), map.remove(&key)),
                };
                prop_assert_eq!(before.0, before.1);
                if turn % 200 == 0 {
                    versions.push((tree.clone(), map.clone()));
                }
            }
            versions.push((tree, map));
            for (tree, map) in versions {
                prop_assert_eq!(tree.is_empty(), map.is_empty());
                for key in 0..600 {
                    prop_assert_eq!(tree.get(key << 40), map.get(&(key << 40)));
                    prop_assert_eq!(tree.get((key << 40) + 1), None);
                }
            }
        }
    }

    #[test]
    fn a_tree_of_many_levels_is_emptied_from_either_end() {
        for is_backwards in [false, true] {
            let mut tree = SortedTree::default();
            (0..20_000).for_each(|key| assert_eq!(tree.insert(key, key, &mut 0), None));
            assert!((0..20_000).all(|key| tree.get(key) == Some(&key)));
            for at in 0..20_000 {
                let key = if is_backwards { 19_999 - at } else { at };
                assert_eq!((tree.remove(key, &mut 0), tree.remove(key, &mut 0)), (Some(key), None));
            }
            assert!(tree.is_empty() && matches!(tree.0, SortedNode::Leaf(_)), "{tree:?}");
        }
    }
}
