//! The memory layout of index-tree keys and of priority-trie nodes.
//!
//! Both are atomic words, loaded and stored relaxed: the writer changes only the copy that no lookup reads (see `family`).

use super::params::{MihtParams, Order};
use fib::{Key, NextHopId, Prefix};
use lpm_core::memory;
use std::fmt::Debug;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

const LINE_BYTES: usize = 64;

/// A key of the index tree: the first `k` bits of an address, in the narrowest word that holds them.
pub(super) trait IndexKey: Copy + Ord + Debug + Send + Sync + 'static {
    type Atom: memory::Word + Debug;
    const ATOMS: usize;
    const PER_LINE: usize = LINE_BYTES / size_of::<Self>();
    /// The largest key, which unused places of a node hold too.
    const MAX: Self;

    fn narrow(bits: u128) -> Self;
    fn load(atoms: &[Self::Atom], at: usize) -> Self;
    fn store(self, atoms: &[Self::Atom], at: usize);
}

macro_rules! index_key {
    ($key:ty, $atom:ty) => {
        impl IndexKey for $key {
            type Atom = $atom;
            const ATOMS: usize = 1;
            const MAX: Self = Self::MAX;

            #[expect(clippy::cast_possible_truncation, reason = "its purpose is to truncate")]
            #[inline]
            fn narrow(bits: u128) -> Self {
                bits as Self
            }
            #[inline]
            fn load(atoms: &[$atom], at: usize) -> Self {
                atoms[at].load(Relaxed)
            }
            #[inline]
            fn store(self, atoms: &[$atom], at: usize) {
                atoms[at].store(self, Relaxed);
            }
        }
    };
}

index_key!(u32, AtomicU32);
index_key!(u64, AtomicU64);

impl IndexKey for u128 {
    type Atom = AtomicU64;
    const ATOMS: usize = 2;
    const MAX: Self = Self::MAX;

    #[inline]
    fn narrow(bits: u128) -> Self {
        bits
    }
    #[inline]
    fn load(atoms: &[AtomicU64], at: usize) -> Self {
        let (high, low) = (atoms[at * 2].load(Relaxed), atoms[at * 2 + 1].load(Relaxed));
        Self::from(high) << 64 | Self::from(low)
    }
    #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
    #[inline]
    fn store(self, atoms: &[AtomicU64], at: usize) {
        atoms[at * 2].store((self >> 64) as u64, Relaxed);
        atoms[at * 2 + 1].store(self as u64, Relaxed);
    }
}

/// A node of a priority trie: a prefix, its next hop, and two children (0: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrieNode<K> {
    /// The prefix's whole address, which needs no more room than its suffix and saves a lookup a shift.
    pub(super) address: K,
    /// The prefix's length in the high 8 bits, the next hop in the low 24.
    pub(super) tag: u32,
    /// The child for bit 0 in the low 32 bits, for bit 1 in the high 32.
    pub(super) children: u64,
}

impl<K: TrieKey> TrieNode<K> {
    pub(super) fn new(prefix: Prefix<K>, next_hop: NextHopId) -> Self {
        let tag = u32::from(prefix.len()) << 24 | next_hop.get();
        Self { address: prefix.address(), tag, children: 0 }
    }

    #[inline]
    pub(super) const fn len(self) -> u8 {
        (self.tag >> 24) as u8
    }

    #[inline]
    pub(super) const fn next_hop(self) -> NextHopId {
        NextHopId::from_answer(self.tag)
    }

    pub(super) fn prefix(self) -> Prefix<K> {
        Prefix::truncating(self.address, self.len())
    }

    #[expect(clippy::cast_possible_truncation, reason = "one half")]
    #[inline]
    pub(super) const fn child(self, bit: u32) -> u32 {
        (self.children >> (32 * bit)) as u32
    }

    pub(super) fn with_child(self, bit: u32, child: u32) -> Self {
        let kept = self.children & !(u64::from(u32::MAX) << (32 * bit));
        Self { children: kept | u64::from(child) << (32 * bit), ..self }
    }
}

/// An address, as the key of priority tries.
pub(super) trait TrieKey: Key {
    /// A node in memory: two nodes (IPv6) or four (IPv4) per cache line.
    type Raw: Sync;
    const WORDS: usize;
    /// A batch of keys, in the form of [`fib::Keys`].
    type Arrays<'a>: Copy;

    fn order(params: &MihtParams) -> Order;

    fn get(keys: Self::Arrays<'_>, at: usize) -> Self;

    fn nodes(words: &[AtomicU64]) -> &[Self::Raw];
    fn load(raw: &Self::Raw) -> TrieNode<Self>;
    fn store(raw: &Self::Raw, node: TrieNode<Self>);
    fn is_covered(self, node: TrieNode<Self>) -> bool;
    /// The bit after the first `position` bits. Unspecified past the last bit, where no node has a child.
    fn bit(self, position: u8) -> u32;
    /// The first `k` bits; `k` is from 1 to [`Key::BITS`].
    fn index<W: IndexKey>(self, k: u8) -> W;
}

impl TrieKey for u32 {
    type Raw = [AtomicU64; 2];
    const WORDS: usize = 2;
    type Arrays<'a> = &'a [Self];
    fn order(params: &MihtParams) -> Order {
        params.v4
    }

    #[inline]
    fn get(keys: &[Self], at: usize) -> Self {
        keys[at]
    }

    #[inline]
    fn nodes(words: &[AtomicU64]) -> &[Self::Raw] {
        words.as_chunks().0
    }
    #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
    #[inline]
    fn load(raw: &Self::Raw) -> TrieNode<Self> {
        let prefix = raw[0].load(Relaxed);
        TrieNode { address: (prefix >> 32) as Self, tag: prefix as u32, children: raw[1].load(Relaxed) }
    }
    fn store(raw: &Self::Raw, node: TrieNode<Self>) {
        raw[0].store(u64::from(node.address) << 32 | u64::from(node.tag), Relaxed);
        raw[1].store(node.children, Relaxed);
    }
    #[inline]
    fn is_covered(self, node: TrieNode<Self>) -> bool {
        u64::from(self ^ node.address) >> (32 - node.len()) == 0
    }
    #[expect(clippy::cast_possible_truncation, reason = "one bit is kept")]
    #[inline]
    fn bit(self, position: u8) -> u32 {
        (u64::from(self) << position >> 31) as u32 & 1
    }
    #[inline]
    fn index<W: IndexKey>(self, k: u8) -> W {
        W::narrow(u128::from(self >> (32 - k)))
    }
}

impl TrieKey for u128 {
    type Raw = [AtomicU64; 4];
    const WORDS: usize = 4;
    type Arrays<'a> = (&'a [u64], &'a [u64]);
    fn order(params: &MihtParams) -> Order {
        params.v6
    }

    #[inline]
    fn get((high, low): (&[u64], &[u64]), at: usize) -> Self {
        Self::from(high[at]) << 64 | Self::from(low[at])
    }

    #[inline]
    fn nodes(words: &[AtomicU64]) -> &[Self::Raw] {
        words.as_chunks().0
    }
    #[expect(clippy::cast_possible_truncation, reason = "32 bits are stored")]
    #[inline]
    fn load(raw: &Self::Raw) -> TrieNode<Self> {
        let [high, low, tag, children] = raw.each_ref().map(|word| word.load(Relaxed));
        TrieNode { address: Self::from(high) << 64 | Self::from(low), tag: tag as u32, children }
    }
    #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
    fn store(raw: &Self::Raw, node: TrieNode<Self>) {
        raw[0].store((node.address >> 64) as u64, Relaxed);
        raw[1].store(node.address as u64, Relaxed);
        raw[2].store(u64::from(node.tag), Relaxed);
        raw[3].store(node.children, Relaxed);
    }
    #[inline]
    fn is_covered(self, node: TrieNode<Self>) -> bool {
        let differs = self ^ node.address;
        let (high, len) = ((differs >> 64) as u64, node.len());
        // Nearly all routes have at most 63 bits; only the others need a shift of two words.
        if len < 64 {
            high >> 1 >> (63 - len) == 0
        } else {
            differs.checked_shr(128 - u32::from(len)).unwrap_or(0) == 0
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "its two halves")]
    #[inline]
    fn bit(self, position: u8) -> u32 {
        let half = if position < 64 { (self >> 64) as u64 } else { self as u64 };
        (half << (position & 63) >> 63) as u32
    }
    #[inline]
    fn index<W: IndexKey>(self, k: u8) -> W {
        W::narrow(self >> (128 - k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip<K: TrieKey>(prefix: Prefix<K>, key: K, next_hop: NextHopId, child: u32) {
        let words: Vec<_> = (0..2 * K::WORDS).map(|_| AtomicU64::default()).collect();
        let nodes = K::nodes(&words);
        let node =
            TrieNode::new(prefix, next_hop).with_child(0, 7).with_child(1, child).with_child(0, !child);
        K::store(&nodes[1], node);
        let got = K::load(&nodes[1]);
        assert_eq!(got, node);
        assert_eq!((got.prefix(), got.next_hop()), (prefix, next_hop));
        assert_eq!((got.child(0), got.child(1)), (!child, child));
        assert_eq!(key.is_covered(got), prefix.contains(key), "{prefix} and {key:?}");
        assert!(prefix.last_address().is_covered(got));
        for position in 0..K::BITS {
            assert_eq!(u128::from(key.bit(position)), key.to_high_bits() << position >> 127);
        }
    }

    proptest! {
        #[test]
        fn nodes_keep_what_they_are_given(address: u128, key: u128, len in 0u8..=128, hop in 1u32..1 << 24, child: u32) {
            let next_hop = NextHopId::new(hop).unwrap();
            round_trip(Prefix::<u128>::truncating(address, len), key, next_hop, child);
            round_trip(Prefix::<u128>::truncating(address, len), address, next_hop, child);
            let (address, key) = (u32::from_high_bits(address), u32::from_high_bits(key));
            round_trip(Prefix::<u32>::truncating(address, len), key, next_hop, child);
            round_trip(Prefix::<u32>::truncating(address, len), address, next_hop, child);
        }

        #[test]
        fn index_keys_are_the_first_bits(address: u128, k in 1u8..=128) {
            let right = address >> (128 - k);
            prop_assert_eq!(address.index::<u128>(k), right);
            if k <= 64 {
                prop_assert_eq!(u128::from(address.index::<u64>(k)), right);
            }
            if k <= 32 {
                prop_assert_eq!(u128::from(address.index::<u32>(k)), right);
                prop_assert_eq!(u128::from(u32::from_high_bits(address).index::<u32>(k)), right);
            }
        }
    }

    /// Section 5.1: the 4-prefix key of 00010* and of 00011* is 0001.
    #[test]
    fn the_paper_s_example_of_an_index_key() {
        let keys = [0b00010_u32 << 27, 0b00011 << 27].map(|address| address.index::<u32>(4));
        assert_eq!(keys, [1, 1]);
    }

    #[test]
    fn keys_of_every_width_are_stored() {
        let narrow: Vec<_> = (0..4).map(|_| AtomicU32::default()).collect();
        let wide: Vec<_> = (0..8).map(|_| AtomicU64::default()).collect();
        7_u32.store(&narrow, 3);
        (1_u128 << 100 | 5).store(&wide, 3);
        9_u64.store(&wide, 0);
        assert_eq!(<u32 as IndexKey>::load(&narrow, 3), 7);
        assert_eq!(<u128 as IndexKey>::load(&wide, 3), 1 << 100 | 5);
        assert_eq!(u64::load(&wide, 0), 9);
        assert_eq!([u32::PER_LINE, u64::PER_LINE, u128::PER_LINE], [16, 8, 4]);
    }
}
