//! A table of one family: an index tree, priority tries for its keys, and one priority trie for short prefixes.
//!
//! A prefix of at least `k` bits is in the trie of its index key, its first `k` bits. Shorter prefixes are in the trie that the paper
//! calls PT\[-1\] (section 5.1). Lookups read a [`MihtTable`]; a [`TableWriter`] changes a table that no lookup reads.

use super::params::Order;
use super::tree::{TreeStore, TreeWriter};
use super::trie::{MihtTrie, TrieWriter};
use super::words::{IndexKey, TrieKey};
use fib::{Change, EngineError, NextHopId, Prefix};
use lpm_core::memory::{Array, Placement};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

#[derive(Debug)]
pub(super) struct MihtTable<K: TrieKey, W: IndexKey> {
    pub(super) k: u8,
    /// Maps index keys to roots of tries.
    pub(super) tree: TreeStore<W>,
    /// The root of the trie of prefixes shorter than `k`.
    short: AtomicU32,
    nodes: Array<AtomicU64>,
    keys: PhantomData<K>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MihtRoom {
    pub(super) tree_nodes: usize,
    pub(super) trie_nodes: usize,
}

impl MihtRoom {
    /// The room that `keys` index keys and `routes` routes need at most.
    pub(super) fn for_routes(keys: usize, routes: usize, order: Order) -> Self {
        Self { tree_nodes: TreeWriter::nodes_max(keys, order.m), trie_nodes: routes + 1 }
    }

    pub(super) const fn with_reserve(self) -> Self {
        Self {
            tree_nodes: self.tree_nodes + self.tree_nodes / 8 + 32,
            trie_nodes: self.trie_nodes + self.trie_nodes / 8 + 256,
        }
    }

    pub(super) const fn holds(self, other: Self) -> bool {
        self.tree_nodes >= other.tree_nodes && self.trie_nodes >= other.trie_nodes
    }
}

impl<K: TrieKey, W: IndexKey> MihtTable<K, W> {
    pub(super) fn new(order: Order, room: MihtRoom, placement: Placement) -> Result<Self, EngineError> {
        let nodes_max = u32::MAX as usize;
        if room.tree_nodes > nodes_max || room.trie_nodes > nodes_max {
            let used = room.tree_nodes.max(room.trie_nodes) as u64;
            return Err(EngineError::Full { what: "nodes", used, limit: nodes_max as u64 });
        }
        Ok(Self {
            k: order.k,
            tree: TreeStore::new(room.tree_nodes, order.m, placement)?,
            short: AtomicU32::new(0),
            nodes: Array::zeroed(room.trie_nodes * K::WORDS, placement)?,
            keys: PhantomData,
        })
    }

    /// The size of a table with `room`, before rounding to pages.
    pub(super) fn bytes_for(room: MihtRoom, order: Order) -> u64 {
        TreeStore::<W>::bytes_for(room.tree_nodes, order.m) + (room.trie_nodes * K::WORDS * 8) as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.tree.bytes() + self.nodes.bytes()
    }

    pub(super) fn room(&self) -> MihtRoom {
        MihtRoom { tree_nodes: self.tree.capacity(), trie_nodes: self.nodes.len() / K::WORDS }
    }

    #[inline]
    pub(super) fn nodes(&self) -> &[K::Raw] {
        K::nodes(&self.nodes)
    }

    #[cfg(test)]
    pub(super) fn words(&self) -> &[AtomicU64] {
        &self.nodes
    }

    #[inline]
    pub(super) fn short(&self) -> MihtTrie {
        MihtTrie { root: self.short.load(Relaxed), base: 0 }
    }

    /// The trie that `prefix` belongs to; empty if it does not exist.
    fn trie_of(&self, prefix: Prefix<K>) -> MihtTrie {
        if prefix.len() < self.k {
            return self.short();
        }
        MihtTrie { root: self.tree.get(prefix.address().index(self.k)), base: self.k }
    }

    pub(super) fn has_trie(&self, prefix: Prefix<K>) -> bool {
        self.trie_of(prefix).root != 0
    }
}

#[derive(Clone, Debug)]
pub(super) struct TableWriter {
    pub(super) tree: TreeWriter,
    pub(super) tries: TrieWriter,
}

impl TableWriter {
    pub(super) fn new<K: TrieKey>(order: Order) -> Self {
        Self { tree: TreeWriter::new(order.m), tries: TrieWriter::new(K::BITS) }
    }

    pub(super) const fn routes(&self) -> usize {
        self.tries.nodes()
    }

    /// `routes` come in any order, without duplicates. The nodes of a trie end up adjacent, the upper ones first.
    pub(super) fn fill<K: TrieKey, W: IndexKey>(
        &mut self,
        table: &MihtTable<K, W>,
        routes: &mut [(Prefix<K>, NextHopId)],
    ) {
        let k = table.k;
        let key = |prefix: Prefix<K>| (prefix.len() >= k).then(|| prefix.address().index::<W>(k));
        // Longest first: each prefix is above those that follow, and only ordinary nodes displace one.
        routes.sort_unstable_by_key(|(prefix, _)| {
            (key(*prefix), std::cmp::Reverse(prefix.len()), prefix.address())
        });
        let mut entries = Vec::new();
        for group in routes.chunk_by(|a, b| key(a.0) == key(b.0)) {
            let key = group.first().and_then(|(prefix, _)| key(*prefix));
            let mut trie = MihtTrie { root: 0, base: if key.is_some() { k } else { 0 } };
            for (prefix, next_hop) in group {
                (trie.root, _) = self.tries.insert(table.nodes(), trie, *prefix, *next_hop);
            }
            match key {
                Some(key) => entries.push((key, trie.root)),
                None => table.short.store(trie.root, Relaxed),
            }
        }
        self.tree.fill(&table.tree, entries);
    }

    /// Applies `changes`, withdraws first, so that the other changes can use the nodes that they free.
    pub(super) fn apply<K: TrieKey, W: IndexKey>(&mut self, table: &MihtTable<K, W>, changes: &[Change<K>]) {
        for change in changes.iter().filter(|change| change.withdraws()) {
            self.withdraw(table, change.prefix);
        }
        for change in changes.iter().filter(|change| !change.withdraws()) {
            self.announce(table, change.prefix, change.new);
        }
    }

    fn announce<K: TrieKey, W: IndexKey>(
        &mut self,
        table: &MihtTable<K, W>,
        prefix: Prefix<K>,
        next_hop: NextHopId,
    ) {
        let trie = table.trie_of(prefix);
        let (root, _) = self.tries.insert(table.nodes(), trie, prefix, next_hop);
        if root == trie.root {
            return;
        }
        if prefix.len() < table.k {
            table.short.store(root, Relaxed);
        } else {
            self.tree.insert(&table.tree, prefix.address().index(table.k), root);
        }
    }

    fn withdraw<K: TrieKey, W: IndexKey>(&mut self, table: &MihtTable<K, W>, prefix: Prefix<K>) {
        let trie = table.trie_of(prefix);
        let (root, _) = self.tries.remove(table.nodes(), trie, prefix);
        if root == trie.root {
            return;
        }
        if prefix.len() < table.k {
            table.short.store(root, Relaxed);
        } else {
            self.tree.remove(&table.tree, prefix.address().index::<W>(table.k));
        }
    }

    /// Copies `table` to `copy`, which must be empty and have the same room.
    pub(super) fn copy<K: TrieKey, W: IndexKey>(&self, table: &MihtTable<K, W>, copy: &MihtTable<K, W>) {
        copy.tree.copy_from(&table.tree, self.tree.touched());
        copy.short.store(table.short().root, Relaxed);
        for (from, to) in table.nodes.iter().zip(copy.nodes.iter()).take(self.tries.touched() * K::WORDS) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.tree.bytes() + self.tries.bytes()
    }
}
