//! The trie that holds a family's routes: a node is a *page*, and the routes of a page lie in one sorted array.
//!
//! A page stands for a block of addresses. It holds the routes of the block that are longer than it by at most [`stride`] bits, and
//! links to the pages of its smaller blocks. An entry takes 8 bytes: 16 bits of place within the block, then what was told and what is
//! used. Few pages lie between the root and a route, and a route's neighbours are in the same cache lines; pages of [`anchor_len`]
//! bits, below which nearly all routes are, are found with a hash map.
//!
//! A route that was withdrawn stays until [`RibTrie::tidy`] takes it out, and so do the pages that it leaves empty: the number of a page
//! stands for its block while changes are compiled.

use crate::{Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

/// The page of all addresses. It is below no other page.
pub(super) const ROOT: u32 = 0;

/// Bits of address within a page. A page has 766 entries at most for IPv4, 12,286 for IPv6; in full tables of 2024 it has 36 and 8 on
/// average.
const fn stride<K: Key>() -> u8 {
    if K::BITS > 32 { 12 } else { 8 }
}

/// The length of blocks whose pages are in the hash map: a multiple of the stride.
const fn anchor_len<K: Key>() -> u8 {
    if K::BITS > 32 { 24 } else { 16 }
}

/// Where an entry is within its page: 12 bits of address, then 4 bits of length. The order is that of prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PagePlace(u16);

impl PagePlace {
    /// In place of a length: a page below. It comes after the route of the same block.
    const PAGE: u16 = 15;
    /// The last place of a page.
    const LAST: Self = Self(u16::MAX);

    /// The place of the block of `len` bits at `address` in a page of `page_len` bits.
    fn new<K: Key>(address: K, page_len: u8, len: u16) -> Self {
        let bits = address.to_high_bits() << page_len >> (u128::BITS - 12);
        Self(u16::try_from(bits).unwrap_or(0) << 4 | len)
    }

    const fn bits(self) -> u16 {
        self.0 >> 4
    }

    const fn len(self) -> u16 {
        self.0 & 15
    }

    /// The last place within the route at this one.
    const fn last(self) -> Self {
        Self(self.0 | (0xfff >> self.len()) << 4 | 15)
    }

    /// The place of the route of `len` bits that covers this one.
    const fn covering(self, len: u16) -> Self {
        Self(self.0 & !(0xffff >> len) | len)
    }

    /// How many of the leading address bits are those of `other`.
    fn shared(self, other: Self) -> u16 {
        let differing = (self.bits() ^ other.bits()) << 4 | 8; // 12 at most
        u16::try_from(differing.leading_zeros()).unwrap_or(0)
    }
}

/// A route, or a page below: place (16 bits), what was told (24), what is used (24); place and the number of the page (32).
#[derive(Clone, Copy, Debug)]
pub(super) struct PageEntry(u64);

impl PageEntry {
    const TOLD_SHIFT: u32 = 24;
    const PLACE_SHIFT: u32 = 48;

    /// Where it is in its page.
    pub(super) const fn place(self) -> PagePlace {
        PagePlace((self.0 >> Self::PLACE_SHIFT) as u16)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
    const fn low(bits: u64) -> u32 {
        bits as u32
    }

    /// The page, if it is one.
    pub(super) fn page(self) -> Option<u32> {
        (self.place().len() == PagePlace::PAGE).then_some(Self::low(self.0))
    }

    /// What the feeds told; `NONE`: no route.
    pub(super) const fn told(self) -> NextHopId {
        NextHopId::from_answer(Self::low(self.0 >> Self::TOLD_SHIFT))
    }

    /// What the engine has for exactly this prefix; `NONE`: nothing.
    pub(super) const fn used(self) -> NextHopId {
        NextHopId::from_answer(Self::low(self.0))
    }

    /// Sets what was told and returns what it was.
    pub(super) const fn set_told(&mut self, told: NextHopId) -> NextHopId {
        let old = self.told();
        self.0 ^= ((old.get() ^ told.get()) as u64) << Self::TOLD_SHIFT;
        old
    }

    /// Sets what is used and returns what it was.
    pub(super) const fn set_used(&mut self, used: NextHopId) -> NextHopId {
        let old = self.used();
        self.0 ^= (old.get() ^ used.get()) as u64;
        old
    }
}

/// A block of addresses.
#[derive(Clone, Debug)]
struct Page<K: Key> {
    /// In order of place.
    entries: Vec<PageEntry>,
    address: K,
    parent: u32,
    /// Where routes are left out: the next hop told for what covers the whole page, as compiled last.
    inherited: NextHopId,
    /// A bit for each length, behind the page's, that routes have or had.
    lens: u16,
    /// Of the block.
    len: u8,
}

impl<K: Key> Page<K> {
    const fn new(address: K, len: u8, parent: u32) -> Self {
        Self { entries: Vec::new(), address, parent, inherited: NextHopId::NONE, lens: 0, len }
    }

    /// Whether routes of `len` bits are in this page and not below.
    const fn holds(&self, len: u8) -> bool {
        len <= self.len + stride::<K>()
    }

    /// The place of `prefix`, which this page holds.
    fn place(&self, prefix: Prefix<K>) -> PagePlace {
        PagePlace::new(prefix.address(), self.len, u16::from(prefix.len() - self.len))
    }

    /// The place of the page right below that covers `address`.
    fn link(&self, address: K) -> PagePlace {
        PagePlace::new(address & K::mask(self.len + stride::<K>()), self.len, PagePlace::PAGE)
    }

    /// The index of the entry at `place`, or where it belongs.
    fn search(&self, place: PagePlace) -> Result<usize, usize> {
        let at = before(&self.entries, place);
        if self.entries.get(at).is_some_and(|entry| entry.place() == place) { Ok(at) } else { Err(at) }
    }

    /// Of the routes of this page that cover `place`, before which there are `at` entries, and are shorter, the longest for which
    /// `next_hop` answers one: its length, and that answer.
    fn above(
        &self,
        at: usize,
        place: PagePlace,
        next_hop: impl Fn(PageEntry) -> NextHopId,
    ) -> Option<(u8, NextHopId)> {
        let mut entries = &self.entries[..at];
        let mut lens = self.lens & ((1 << place.len()) - 1);
        while let Some(last) = entries.last() {
            // What covers both is no longer than what they share.
            lens &= (2 << last.place().shared(place)) - 1;
            let len = u16::try_from(lens.checked_ilog2()?).unwrap_or(0);
            lens ^= 1 << len;
            let covering = place.covering(len);
            let at = before(entries, covering);
            let found = entries.get(at).filter(|entry| entry.place() == covering);
            let found = found.map_or(NextHopId::NONE, |entry| next_hop(*entry));
            if !found.is_none() {
                return Some((self.len + u8::try_from(len).unwrap_or(0), found));
            }
            entries = &entries[..at];
        }
        None
    }

    fn insert(&mut self, at: usize, place: PagePlace, value: u32) {
        if self.entries.len() == self.entries.capacity() {
            // Pages keep their size for long: little room is left over.
            self.entries.reserve_exact(self.entries.len() / 4 + 3);
        }
        self.lens |= 1 << place.len();
        self.entries.insert(at, PageEntry(u64::from(place.0) << PageEntry::PLACE_SHIFT | u64::from(value)));
    }
}

/// The number of entries before `place`.
fn before(entries: &[PageEntry], place: PagePlace) -> usize {
    entries.partition_point(|entry| entry.place() < place)
}

/// The block of an anchor: the first bits of an address.
fn block<K: Key>(address: K) -> u32 {
    let bits = address.to_high_bits() >> (u128::BITS - u32::from(anchor_len::<K>()));
    u32::try_from(bits).unwrap_or(0)
}

/// The pages of one family.
#[derive(Clone, Debug)]
pub(super) struct RibTrie<K: Key> {
    pages: Vec<Page<K>>,
    free: Vec<u32>,
    /// By block.
    anchors: FxHashMap<u32, u32>,
}

impl<K: Key> Default for RibTrie<K> {
    fn default() -> Self {
        Self { pages: vec![Page::new(K::ZERO, 0, ROOT)], free: Vec::new(), anchors: FxHashMap::default() }
    }
}

impl<K: Key> RibTrie<K> {
    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let anchors = self.anchors.capacity() * (size_of::<(u32, u32)>() + 1); // one control byte an entry
        let entries: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        let pages = self.pages.capacity() * size_of::<Page<K>>();
        (pages + entries * size_of::<PageEntry>() + self.free.capacity() * 4 + anchors) as u64
    }

    /// Pages, and entries of the first one.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.pages.len() - self.free.len(), self.entries(ROOT).len())
    }

    fn page(&self, page: u32) -> &Page<K> {
        &self.pages[page as usize]
    }

    /// Sets what all of `page` falls back to, and returns what it was.
    pub(super) fn set_inherited(&mut self, page: u32, inherited: NextHopId) -> NextHopId {
        std::mem::replace(&mut self.pages[page as usize].inherited, inherited)
    }

    /// The entries of `page`.
    pub(super) fn entries(&self, page: u32) -> &[PageEntry] {
        &self.page(page).entries
    }

    /// Entry `at` of `page`.
    pub(super) fn entry(&mut self, page: u32, at: usize) -> &mut PageEntry {
        &mut self.pages[page as usize].entries[at]
    }

    /// The prefix of a route of `page`.
    pub(super) fn prefix(&self, page: u32, entry: PageEntry) -> Prefix<K> {
        let (page, place) = (self.page(page), entry.place());
        let bits = u128::from(place.bits()) << (u128::BITS - 12) >> page.len;
        let len = page.len + u8::try_from(place.len()).unwrap_or(0);
        Prefix::truncating(K::from_high_bits(page.address.to_high_bits() | bits), len)
    }

    /// The page that holds `prefix`, or the last one on the way there.
    fn nearest(&self, prefix: Prefix<K>) -> u32 {
        let is_long = prefix.len() > anchor_len::<K>();
        let anchor = if is_long { self.anchors.get(&block(prefix.address())) } else { None };
        let mut page = anchor.copied().unwrap_or(ROOT);
        while !self.page(page).holds(prefix.len()) {
            let Some(below) = self.below(page, prefix.address()) else { break };
            page = below;
        }
        page
    }

    /// The page right below `page` that covers `address`.
    fn below(&self, page: u32, address: K) -> Option<u32> {
        let page = self.page(page);
        page.search(page.link(address)).ok().and_then(|at| page.entries[at].page())
    }

    /// The index of the first entry behind route `at` of `page` and all that it covers.
    pub(super) fn end(&self, page: u32, at: usize) -> usize {
        let entries = self.entries(page);
        let last = entries[at].place().last();
        at + 1 + entries[at + 1..].iter().take_while(|entry| entry.place() <= last).count()
    }

    /// The index of the entry at `place` of `page`.
    pub(super) fn search(&self, page: u32, place: PagePlace) -> Option<usize> {
        self.page(page).search(place).ok()
    }

    /// Whether the route of `prefix` is entry `at` of `page`.
    pub(super) fn is_at(&self, page: u32, at: usize, prefix: Prefix<K>) -> bool {
        let entry = self.entries(page).get(at).filter(|entry| entry.page().is_none());
        entry.is_some_and(|entry| self.prefix(page, *entry) == prefix)
    }

    /// As [`Self::search`], for an entry that was at index `at`: it is there still unless another came or went before it.
    pub(super) fn search_from(&self, page: u32, at: usize, place: PagePlace) -> Option<usize> {
        let is_there = self.entries(page).get(at).is_some_and(|entry| entry.place() == place);
        if is_there { Some(at) } else { self.search(page, place) }
    }

    /// The page that holds `prefix`, and the index of its entry there.
    pub(super) fn find(&self, prefix: Prefix<K>) -> Option<(u32, usize)> {
        let at = self.nearest(prefix);
        let page = self.page(at);
        let index =
            if page.holds(prefix.len()) { page.search(page.place(prefix)).ok()? } else { return None };
        Some((at, index))
    }

    /// As [`Self::find`]; the entry is made if there is none.
    pub(super) fn find_or_insert(&mut self, prefix: Prefix<K>) -> (u32, usize) {
        let mut at = self.nearest(prefix);
        while !self.page(at).holds(prefix.len()) {
            at = self.add(at, prefix.address());
        }
        let page = &mut self.pages[at as usize];
        let place = page.place(prefix);
        let index = page.search(place).unwrap_or_else(|index| {
            page.insert(index, place, 0);
            index
        });
        (at, index)
    }

    /// Adds the page right below `parent` that covers `address`.
    #[cold]
    fn add(&mut self, parent: u32, address: K) -> u32 {
        let len = self.page(parent).len + stride::<K>();
        let address = address & K::mask(len);
        let mut page = Page::new(address, len, parent);
        let link = self.page(parent).link(address);
        page.inherited = self.inherited(parent, before(self.entries(parent), link), link);
        let at = if let Some(at) = self.free.pop() {
            self.pages[at as usize] = page;
            at
        } else {
            let at = u32::try_from(self.pages.len());
            assert!(at.is_ok(), "2^32 pages of a trie are beyond any memory");
            self.pages.push(page);
            at.unwrap_or(0)
        };
        let above = &mut self.pages[parent as usize];
        let place = above.link(address);
        above.insert(before(&above.entries, place), place, at);
        if len == anchor_len::<K>() {
            self.anchors.insert(block(address), at);
        }
        at
    }

    /// Takes out the entry at `place` of `page` if it is no route any more, and the pages that are empty then.
    pub(super) fn tidy(&mut self, page: u32, place: PagePlace) {
        let (mut page, mut place) = (page, place);
        while let Ok(at) = self.page(page).search(place) {
            let Page { entries, address, len, parent, .. } = &mut self.pages[page as usize];
            if entries[at].page().is_none() && !(entries[at].told().is_none() && entries[at].used().is_none())
            {
                return;
            }
            entries.remove(at);
            if !entries.is_empty() || page == ROOT {
                return;
            }
            let (address, len, parent) = (*address, *len, *parent);
            *entries = Vec::new();
            self.free.push(page);
            if len == anchor_len::<K>() {
                self.anchors.remove(&block(address));
            }
            (page, place) = (parent, self.page(parent).link(address));
        }
    }

    /// The page that holds `prefix` or would have a page below that does, how many of its entries come before, and the place.
    fn seek(&self, prefix: Prefix<K>) -> (u32, usize, PagePlace) {
        let at = self.nearest(prefix);
        let page = self.page(at);
        let place = if page.holds(prefix.len()) { page.place(prefix) } else { page.link(prefix.address()) };
        (at, before(&page.entries, place), place)
    }

    /// Of the routes that cover `prefix` and are shorter, the longest for which `next_hop` answers one: its length, and that answer.
    /// `known` is the page and the index of the entry of `prefix`, if they are known.
    pub(super) fn above(
        &self,
        prefix: Prefix<K>,
        known: Option<(u32, usize)>,
        next_hop: impl Fn(PageEntry) -> NextHopId,
    ) -> Option<(u8, NextHopId)> {
        let (page, mut at, mut place) = match known {
            Some((page, at)) => (page, at, self.entries(page)[at].place()),
            None => self.seek(prefix),
        };
        let mut page = self.page(page);
        loop {
            let found = page.above(at, place, &next_hop);
            if found.is_some() || page.len == 0 {
                return found;
            }
            let parent = self.page(page.parent);
            place = parent.link(page.address);
            at = before(&parent.entries, place);
            page = parent;
        }
    }

    /// Whether the route at `place` of `page` is the default route.
    pub(super) const fn is_default(&self, page: u32, place: PagePlace) -> bool {
        page == ROOT && place.len() == 0
    }

    /// The next hop that `place` of `page`, before which there are `at` entries, falls back to, where [`Page::inherited`] is kept: that of
    /// the longest route above, but not of the default route.
    pub(super) fn inherited(&self, page: u32, at: usize, place: PagePlace) -> NextHopId {
        let page = self.page(page);
        match page.above(at, place, PageEntry::told) {
            Some((0, _)) | None => page.inherited,
            Some((_, told)) => told,
        }
    }

    /// Every route in order of address, then length.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        self.walk(ROOT, (ROOT, 0), PagePlace::LAST)
    }

    /// The routes from `prefix` on, itself included, in order of address, then length.
    pub(super) fn starting_at(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        let (page, at, _) = self.seek(prefix);
        self.walk(ROOT, (page, at), PagePlace::LAST)
    }

    /// The routes at and below `prefix`, in order of address, then length. `known` as for [`Self::above`].
    pub(super) fn within(
        &self,
        prefix: Prefix<K>,
        known: Option<(u32, usize)>,
    ) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        let (page, start, last) = match known {
            Some((page, at)) => (page, at, self.entries(page)[at].place().last()),
            None => {
                let (page, at, place) = self.seek(prefix);
                // Where the page that would hold it is not there, nor is any below.
                if self.page(page).holds(prefix.len()) {
                    (page, at, place.last())
                } else {
                    (page, self.entries(page).len(), PagePlace::LAST)
                }
            }
        };
        self.walk(page, (page, start), last)
    }

    /// The routes of page `top` and of the pages below, from the page and the index of an entry `start` to place `last` of `top`, in
    /// order of address, then length.
    fn walk(
        &self,
        top: u32,
        start: (u32, usize),
        last: PagePlace,
    ) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        let (mut page, mut at) = start;
        std::iter::from_fn(move || {
            loop {
                match self.entries(page).get(at) {
                    Some(entry) if page == top && entry.place() > last => return None,
                    Some(entry) => {
                        let Some(below) = entry.page() else {
                            at += 1;
                            return Some((self.prefix(page, *entry), *entry));
                        };
                        (page, at) = (below, 0);
                    }
                    None if page == top => return None,
                    None => {
                        let Page { address, parent, .. } = *self.page(page);
                        let link = self.page(parent).link(address);
                        (page, at) = (parent, before(self.entries(parent), link) + 1);
                    }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The lengths of the pages that a route of `len` bits needs, and of those among them that the hash map has.
    fn page_lens<K: Key>(len: u8) -> (Vec<u8>, Vec<u8>) {
        let mut trie = RibTrie::<K>::default();
        trie.find_or_insert(Prefix::truncating(K::mask(K::BITS), len));
        let anchored = trie.anchors.values().map(|page| trie.page(*page).len).collect();
        (trie.pages.iter().map(|page| page.len).collect(), anchored)
    }

    #[test]
    fn pages_are_a_stride_apart_and_one_of_the_middle_is_in_the_map() {
        assert_eq!(page_lens::<u32>(8), (vec![0], vec![]));
        assert_eq!(page_lens::<u32>(9), (vec![0, 8], vec![]));
        assert_eq!(page_lens::<u32>(32), (vec![0, 8, 16, 24], vec![16]));
        assert_eq!(page_lens::<u128>(12), (vec![0], vec![]));
        assert_eq!(page_lens::<u128>(48), (vec![0, 12, 24, 36], vec![24]));
    }

    #[test]
    fn a_page_has_little_room_left_over_and_seldom_needs_more() {
        let (mut trie, mut capacities) = (RibTrie::<u32>::default(), BTreeSet::new());
        for routes in 1..=256 {
            trie.find_or_insert(Prefix::truncating((routes - 1) << 24, 8));
            let capacity = trie.pages[0].entries.capacity();
            assert!(capacity <= routes as usize * 5 / 4 + 3, "room for {capacity}, {routes} there");
            capacities.insert(capacity);
        }
        assert!(capacities.len() <= 15, "{capacities:?}");
    }

    #[test]
    fn every_list_counts_as_memory() {
        let mut trie = RibTrie::<u32>::default();
        let routes = (0..100_u32).map(|n| Prefix::truncating(n << 16, 24));
        let places: Vec<_> = routes.map(|prefix| (trie.find_or_insert(prefix).0, prefix)).collect();
        for (page, prefix) in &places[..50] {
            let place = trie.page(*page).place(*prefix);
            trie.tidy(*page, place);
        }
        assert_eq!((trie.free.len(), trie.anchors.len(), trie.size()), (50, 50, (52, 1)));
        let entries: usize = trie.pages.iter().map(|page| page.entries.capacity() * 8).sum();
        let pages = trie.pages.capacity() * size_of::<Page<u32>>();
        let lists = trie.free.capacity() * 4 + trie.anchors.capacity() * 9;
        assert_eq!(trie.bytes(), (pages + entries + lists) as u64);
    }
}
