//! The trie that holds a family's routes: binary, with paths compressed. Each node is a route or a fork of two.
//!
//! A way down a full table's trie is some twenty nodes, each a cache miss. Routes longer than [`anchor_len`] are found from an *anchor*
//! instead: a node of that length that stands for a block of addresses with such routes, and that a hash map leads to.
//!
//! A node that is none of these any more stays until [`Trie::tidy`] takes it out, so that a node's number stands for its prefix while
//! changes are compiled.

use crate::{Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

/// Node 0 is the default route's place, a route or not; no other node is below itself, so 0 stands for "none" too.
pub(super) const ROOT: u32 = 0;

/// A place in the trie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<K: Key> {
    pub(super) prefix: Prefix<K>,
    /// What the feeds told; `NONE`: no route.
    pub(super) told: NextHopId,
    /// What the engine has for exactly this prefix; `NONE`: nothing.
    pub(super) used: NextHopId,
    /// By the bit behind the prefix; 0: none.
    pub(super) children: [u32; 2],
    parent: u32,
    /// Whether the node is in the list of what was told since the last commit.
    pub(super) is_dirty: bool,
    /// Whether longer routes are found from here; stays while there are any.
    is_anchor: bool,
}

/// The length of anchors: half of an IPv4 address, and what a registry gives to a network in IPv6.
const fn anchor_len<K: Key>() -> u8 {
    if K::BITS > 32 { 32 } else { 16 }
}

/// The block of an anchor: the first bits of an address.
fn block<K: Key>(prefix: Prefix<K>) -> u32 {
    let bits = prefix.address().to_high_bits() >> (128 - u32::from(anchor_len::<K>()));
    u32::try_from(bits).unwrap_or(0)
}

/// The nodes of one family.
#[derive(Clone, Debug)]
pub(super) struct Trie<K: Key> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    /// By block.
    anchors: FxHashMap<u32, u32>,
}

impl<K: Key> Default for Trie<K> {
    fn default() -> Self {
        Self {
            nodes: vec![Node::new(Prefix::DEFAULT, ROOT)],
            free: Vec::new(),
            anchors: FxHashMap::default(),
        }
    }
}

impl<K: Key> Node<K> {
    const fn new(prefix: Prefix<K>, parent: u32) -> Self {
        let none = NextHopId::NONE;
        Self { prefix, told: none, used: none, children: [0; 2], parent, is_dirty: false, is_anchor: false }
    }

    /// The nodes right below, the one with the smaller addresses first.
    pub(super) fn below(&self) -> impl DoubleEndedIterator<Item = u32> + use<K> {
        self.children.into_iter().filter(|child| *child != 0)
    }
}

impl<K: Key> std::ops::Index<u32> for Trie<K> {
    type Output = Node<K>;
    fn index(&self, at: u32) -> &Node<K> {
        &self.nodes[at as usize]
    }
}

impl<K: Key> std::ops::IndexMut<u32> for Trie<K> {
    fn index_mut(&mut self, at: u32) -> &mut Node<K> {
        &mut self.nodes[at as usize]
    }
}

impl<K: Key> Trie<K> {
    pub(super) fn reserve(&mut self, routes: usize) {
        // Half as many forks as routes, as full tables have them.
        self.nodes.reserve(routes + routes / 2);
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let anchors = self.anchors.capacity() * (size_of::<(u32, u32)>() + 1); // one control byte an entry
        (self.nodes.capacity() * size_of::<Node<K>>() + self.free.capacity() * 4 + anchors) as u64
    }

    /// Nodes in use.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// From node `at`, which covers `prefix`, the node of `prefix`, or the one right above its place.
    fn nearest(&self, mut at: u32, prefix: Prefix<K>) -> u32 {
        loop {
            let node = &self[at];
            if node.prefix.len() == prefix.len() {
                return at;
            }
            let child = node.children[branch(prefix, node.prefix.len())];
            if child == 0 || !self[child].prefix.covers(prefix) {
                return at;
            }
            at = child;
        }
    }

    /// The node of exactly `prefix`.
    pub(super) fn find(&self, prefix: Prefix<K>) -> Option<u32> {
        let top = if prefix.len() > anchor_len::<K>() { *self.anchors.get(&block(prefix))? } else { ROOT };
        Some(self.nearest(top, prefix)).filter(|at| self[*at].prefix == prefix)
    }

    /// The node of `prefix`, which is made if there is none.
    pub(super) fn find_or_insert(&mut self, prefix: Prefix<K>) -> u32 {
        if prefix.len() <= anchor_len::<K>() {
            return self.insert(ROOT, prefix);
        }
        let block = block(prefix);
        let anchor = self.anchors.get(&block).copied().unwrap_or_else(|| {
            let anchor = self.insert(ROOT, Prefix::truncating(prefix.address(), anchor_len::<K>()));
            self[anchor].is_anchor = true;
            self.anchors.insert(block, anchor);
            anchor
        });
        self.insert(anchor, prefix)
    }

    /// As [`Self::find_or_insert`], below node `top`, which covers `prefix`.
    fn insert(&mut self, top: u32, prefix: Prefix<K>) -> u32 {
        let parent = self.nearest(top, prefix);
        if self[parent].prefix == prefix {
            return parent;
        }
        let side = branch(prefix, self[parent].prefix.len());
        let below = self[parent].children[side];
        let at = self.add(Node::new(prefix, parent));
        if below == 0 {
            self[parent].children[side] = at;
            return at;
        }
        let other = self[below].prefix;
        if prefix.covers(other) {
            self[at].children[branch(other, prefix.len())] = below;
            self[below].parent = at;
            self[parent].children[side] = at;
            return at;
        }
        let same = (prefix.address().to_high_bits() ^ other.address().to_high_bits()).leading_zeros();
        let len = u8::try_from(same).unwrap_or(K::BITS);
        let fork = self.add(Node::new(Prefix::truncating(prefix.address(), len), parent));
        self[fork].children[branch(prefix, len)] = at;
        self[fork].children[branch(other, len)] = below;
        self[at].parent = fork;
        self[below].parent = fork;
        self[parent].children[side] = fork;
        at
    }

    fn add(&mut self, node: Node<K>) -> u32 {
        if let Some(at) = self.free.pop() {
            self[at] = node;
            return at;
        }
        let at = u32::try_from(self.nodes.len());
        assert!(at.is_ok(), "2^32 nodes of a trie are beyond any memory");
        self.nodes.push(node);
        at.unwrap_or(0)
    }

    /// Takes node `at` out if it is no route, fork or anchor any more, and then those above it that are none any more.
    pub(super) fn tidy(&mut self, mut at: u32) {
        loop {
            let Node { told, used, children: [left, right], parent, prefix, is_dirty, is_anchor } = self[at];
            let is_route = !told.is_none() || !used.is_none() || is_dirty;
            // Its own parent: the root, or taken out already.
            let is_needed = left != 0 && right != 0 || is_anchor && left | right != 0;
            if parent == at || is_needed {
                return;
            }
            if is_anchor {
                self.anchors.remove(&block(prefix));
                self[at].is_anchor = false;
            }
            if is_route {
                return;
            }
            let (side, child) = (branch(prefix, self[parent].prefix.len()), left | right);
            self[parent].children[side] = child;
            if child != 0 {
                self[child].parent = parent;
            }
            self[at].parent = at;
            self.free.push(at);
            at = parent;
        }
    }

    /// What is found first on the way from right above `at` to the root.
    pub(super) fn above<T>(&self, mut at: u32, what: impl Fn(&Node<K>) -> Option<T>) -> Option<T> {
        while at != ROOT {
            at = self[at].parent;
            if let Some(found) = what(&self[at]) {
                return Some(found);
            }
        }
        None
    }

    /// Every node in order of address, then length: a prefix comes before what it covers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Node<K>> {
        let mut stack = vec![ROOT];
        std::iter::from_fn(move || {
            let node = &self[stack.pop()?];
            stack.extend(node.below().rev());
            Some(node)
        })
    }
}

/// The bit of `prefix` behind its first `len`, as an index of children.
fn branch<K: Key>(prefix: Prefix<K>, len: u8) -> usize {
    usize::from(prefix.address().to_high_bits() << len.min(127) >> 127 == 1)
}
