//! Lookups (section 5.1): the index tree, then the trie of the suffix; the trie of short prefixes if neither matches.
//!
//! Each load of a lookup depends on the load before. So the keys of a chunk descend together, level by level: the loads of one level are
//! independent, and a trie node is prefetched one level before it is read. All leaves of the index tree are equally deep, so its descent
//! has no branch that depends on a key; in the tries, finished lanes leave a list without one. [`Descent::Single`] is the paper's lookup.

use super::params::Descent;
use super::table::MihtTable;
use super::trie::MihtTrie;
use super::words::{IndexKey, TrieKey};
use fib::NextHopId;
use lpm_core::prefetch;
use std::hint::select_unpredictable;

/// Keys that descend together: enough to overlap cache misses, few enough for their state to stay in L1.
const CHUNK: usize = 64;

struct Lanes<K> {
    keys: [K; CHUNK],
    at: [u32; CHUNK],
    best: [NextHopId; CHUNK],
    list: [u8; CHUNK],
}

pub(super) fn answer<K: TrieKey, W: IndexKey>(
    table: &MihtTable<K, W>,
    descent: Descent,
    keys: K::Arrays<'_>,
    out: &mut [NextHopId],
) {
    if descent == Descent::Single {
        for (at, out) in out.iter_mut().enumerate() {
            *out = lookup(table, K::get(keys, at));
        }
        return;
    }
    for (chunk, out) in out.chunks_mut(CHUNK).enumerate() {
        answer_chunk(table, |at| K::get(keys, chunk * CHUNK + at), out);
    }
}

#[inline]
fn lookup<K: TrieKey, W: IndexKey>(table: &MihtTable<K, W>, key: K) -> NextHopId {
    let word = key.index(table.k);
    let (mut at, height) = table.tree.root();
    for _ in 1..height {
        at = table.tree.child(at, word);
    }
    let found = descend_trie(table.nodes(), key, table.tree.leaf_value(at, word), table.k);
    if !found.is_none() {
        return found;
    }
    let MihtTrie { root, base } = table.short();
    descend_trie(table.nodes(), key, root, base)
}

/// The longest match of `key` in the trie at node `at`, which branches on bit `position`; 0 is no node.
#[inline]
fn descend_trie<K: TrieKey>(nodes: &[K::Raw], key: K, mut at: u32, mut position: u8) -> NextHopId {
    let mut best = NextHopId::NONE;
    while at != 0 {
        let node = K::load(&nodes[at as usize]);
        if key.is_covered(node) {
            best = node.next_hop();
            // A priority node has the longest prefix of its subtree: its match is the answer.
            if node.len() > position {
                break;
            }
        }
        at = node.child(key.bit(position));
        position += 1;
    }
    best
}

#[inline]
fn answer_chunk<K: TrieKey, W: IndexKey>(
    table: &MihtTable<K, W>,
    key_at: impl Fn(usize) -> K,
    out: &mut [NextHopId],
) {
    let count = out.len().min(CHUNK);
    let mut lanes =
        Lanes { keys: [K::ZERO; CHUNK], at: [0; CHUNK], best: [NextHopId::NONE; CHUNK], list: [0; CHUNK] };
    for (lane, key) in lanes.keys[..count].iter_mut().enumerate() {
        *key = key_at(lane);
    }
    descend_tree(table, &mut lanes, count);
    let found = lanes.start(count, |_, root| root);
    lanes.descend_tries(table.nodes(), found, table.k);
    let MihtTrie { root, base } = table.short();
    let rest = lanes.start(count, |best, _| if best.is_none() { root } else { 0 });
    lanes.descend_tries(table.nodes(), rest, base);
    out[..count].copy_from_slice(&lanes.best[..count]);
}

#[inline]
fn descend_tree<K: TrieKey, W: IndexKey>(table: &MihtTable<K, W>, lanes: &mut Lanes<K>, count: usize) {
    let mut words = [W::MAX; CHUNK];
    for (word, key) in words[..count].iter_mut().zip(&lanes.keys) {
        *word = key.index(table.k);
    }
    let (root, height) = table.tree.root();
    lanes.at[..count].fill(root);
    for _ in 1..height {
        for (at, word) in lanes.at[..count].iter_mut().zip(&words) {
            *at = table.tree.child(*at, *word);
        }
    }
    let nodes = table.nodes();
    for (at, word) in lanes.at[..count].iter_mut().zip(&words) {
        *at = table.tree.leaf_value(*at, *word);
        prefetch::line(&nodes[*at as usize]);
    }
}

impl<K: TrieKey> Lanes<K> {
    /// Moves each lane to the root that `root` returns, and lists the lanes whose root is not 0. Returns their number.
    #[expect(clippy::cast_possible_truncation, reason = "lanes are fewer than 256")]
    #[inline]
    fn start(&mut self, count: usize, root: impl Fn(NextHopId, u32) -> u32) -> usize {
        let mut listed = 0;
        for lane in 0..count {
            let root = root(self.best[lane], self.at[lane]);
            self.at[lane] = root;
            self.list[listed] = lane as u8;
            listed += usize::from(root != 0);
        }
        listed
    }

    /// Descends tries, whose roots branch on bit `position`, with the first `listed` lanes of the list.
    #[inline]
    fn descend_tries(&mut self, nodes: &[K::Raw], mut listed: usize, mut position: u8) {
        while listed != 0 {
            let mut going_on = 0;
            for index in 0..listed {
                let lane = usize::from(self.list[index]) % CHUNK;
                let key = self.keys[lane];
                let node = K::load(&nodes[self.at[lane] as usize]);
                let matches = key.is_covered(node);
                self.best[lane] = select_unpredictable(matches, node.next_hop(), self.best[lane]);
                // A priority node has the longest prefix of its subtree: its match is the answer.
                let ends = matches & (node.len() > position);
                let child = node.child(key.bit(position));
                self.at[lane] = child;
                prefetch::line(&nodes[child as usize]);
                self.list[going_on] = self.list[index];
                going_on += usize::from((child != 0) & !ends);
            }
            listed = going_on;
            position += 1;
        }
    }
}
