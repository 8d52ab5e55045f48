//! The trie of a family's routes. A node is a *page*: a sorted array of the routes within a block of addresses.
//!
//! A page holds the routes longer than its block by at most [`stride`] bits, and links to the pages of smaller blocks. An entry has 8 bytes:
//! 16 bits of place, the announced and the used next hop. So few pages lie between the root and a route, and neighbouring routes share
//! cache lines. A hash map finds the pages of [`anchor_len`] bits, which nearly all routes are below.
//!
//! Withdrawn routes, and pages left empty, stay until [`RibTrie::tidy`]: while changes are compiled, a page's number identifies its block.

use crate::{Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;

pub(super) const ROOT: u32 = 0;

/// Bits of address within a page, which has at most 766 entries for IPv4 and 12,286 for IPv6.
const fn stride<K: Key>() -> u8 {
    if K::BITS > 32 { 12 } else { 8 }
}

/// The length of the blocks in the hash map: a multiple of the stride.
const fn anchor_len<K: Key>() -> u8 {
    if K::BITS > 32 { 24 } else { 16 }
}

/// The position of an entry in its page: 12 bits of address, then 4 bits of length. It sorts as prefixes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PagePlace(u16);

impl PagePlace {
    /// Marks a link to a page; in the bits of the length. It sorts after the route of the same block.
    const PAGE: u16 = 15;
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

    const fn last(self) -> Self {
        Self(self.0 | (0xfff >> self.len()) << 4 | 15)
    }

    /// The place of the route of `len` bits that covers this place.
    const fn covering(self, len: u16) -> Self {
        Self(self.0 & !(0xffff >> len) | len)
    }

    fn shared(self, other: Self) -> u16 {
        let differing = (self.bits() ^ other.bits()) << 4 | 8; // 12 at most
        u16::try_from(differing.leading_zeros()).unwrap_or(0)
    }
}

/// A route: place (16 bits), announced next hop (24), used next hop (24). Or a link: place, number of the page (32).
#[derive(Clone, Copy, Debug)]
pub(super) struct PageEntry(u64);

impl PageEntry {
    const ANNOUNCED_SHIFT: u32 = 24;
    const PLACE_SHIFT: u32 = 48;

    pub(super) const fn place(self) -> PagePlace {
        PagePlace((self.0 >> Self::PLACE_SHIFT) as u16)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
    const fn low(bits: u64) -> u32 {
        bits as u32
    }

    pub(super) fn page(self) -> Option<u32> {
        (self.place().len() == PagePlace::PAGE).then_some(Self::low(self.0))
    }

    /// The announced next hop; `NONE`: no route.
    pub(super) const fn announced(self) -> NextHopId {
        NextHopId::from_answer(Self::low(self.0 >> Self::ANNOUNCED_SHIFT))
    }

    /// The next hop that the engine has for exactly this prefix; `NONE`: no route.
    pub(super) const fn used(self) -> NextHopId {
        NextHopId::from_answer(Self::low(self.0))
    }

    pub(super) const fn set_announced(&mut self, announced: NextHopId) -> NextHopId {
        let old = self.announced();
        self.0 ^= ((old.get() ^ announced.get()) as u64) << Self::ANNOUNCED_SHIFT;
        old
    }

    pub(super) const fn set_used(&mut self, used: NextHopId) -> NextHopId {
        let old = self.used();
        self.0 ^= (old.get() ^ used.get()) as u64;
        old
    }
}

#[derive(Clone, Debug)]
struct Page<K: Key> {
    entries: Vec<PageEntry>,
    address: K,
    parent: u32,
    /// Where routes are left out: the announced next hop of the longest route over the whole page, as last compiled.
    inherited: NextHopId,
    /// A bit for each length, relative to the page, of present and former routes.
    lens: u16,
    len: u8,
}

impl<K: Key> Page<K> {
    const fn new(address: K, len: u8, parent: u32) -> Self {
        Self { entries: Vec::new(), address, parent, inherited: NextHopId::NONE, lens: 0, len }
    }

    /// Whether routes of `len` bits belong to this page or a page above.
    const fn holds(&self, len: u8) -> bool {
        len <= self.len + stride::<K>()
    }

    fn place(&self, prefix: Prefix<K>) -> PagePlace {
        PagePlace::new(prefix.address(), self.len, u16::from(prefix.len() - self.len))
    }

    /// The place of the link to the page right below that covers `address`.
    fn link(&self, address: K) -> PagePlace {
        PagePlace::new(address & K::mask(self.len + stride::<K>()), self.len, PagePlace::PAGE)
    }

    fn search(&self, place: PagePlace) -> Result<usize, usize> {
        let at = before(&self.entries, place);
        if self.entries.get(at).is_some_and(|entry| entry.place() == place) { Ok(at) } else { Err(at) }
    }

    /// The longest route of this page that covers `place`, is shorter, and has a `next_hop`. `at` is the number of entries before `place`.
    fn above(
        &self,
        at: usize,
        place: PagePlace,
        next_hop: impl Fn(PageEntry) -> NextHopId,
    ) -> Option<(u8, NextHopId)> {
        let mut entries = &self.entries[..at];
        let mut lens = self.lens & ((1 << place.len()) - 1);
        while let Some(last) = entries.last() {
            // A route that covers both is no longer than the bits they share.
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
            // Pages seldom grow: keep the spare room small.
            self.entries.reserve_exact(self.entries.len() / 4 + 3);
        }
        self.lens |= 1 << place.len();
        self.entries.insert(at, PageEntry(u64::from(place.0) << PageEntry::PLACE_SHIFT | u64::from(value)));
    }
}

fn before(entries: &[PageEntry], place: PagePlace) -> usize {
    entries.partition_point(|entry| entry.place() < place)
}

fn block<K: Key>(address: K) -> u32 {
    let bits = address.to_high_bits() >> (u128::BITS - u32::from(anchor_len::<K>()));
    u32::try_from(bits).unwrap_or(0)
}

#[derive(Clone, Debug)]
pub(super) struct RibTrie<K: Key> {
    pages: Vec<Page<K>>,
    free: Vec<u32>,
    anchors: FxHashMap<u32, u32>,
}

impl<K: Key> Default for RibTrie<K> {
    fn default() -> Self {
        Self { pages: vec![Page::new(K::ZERO, 0, ROOT)], free: Vec::new(), anchors: FxHashMap::default() }
    }
}

impl<K: Key> RibTrie<K> {
    pub(super) fn bytes(&self) -> u64 {
        let anchors = self.anchors.capacity() * (size_of::<(u32, u32)>() + 1); // one control byte an entry
        let entries: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        let pages = self.pages.capacity() * size_of::<Page<K>>();
        (pages + entries * size_of::<PageEntry>() + self.free.capacity() * 4 + anchors) as u64
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.pages.len() - self.free.len(), self.entries(ROOT).len())
    }

    fn page(&self, page: u32) -> &Page<K> {
        &self.pages[page as usize]
    }

    pub(super) fn set_inherited(&mut self, page: u32, inherited: NextHopId) -> NextHopId {
        std::mem::replace(&mut self.pages[page as usize].inherited, inherited)
    }

    pub(super) fn entries(&self, page: u32) -> &[PageEntry] {
        &self.page(page).entries
    }

    pub(super) fn entry(&mut self, page: u32, at: usize) -> &mut PageEntry {
        &mut self.pages[page as usize].entries[at]
    }

    pub(super) fn prefix(&self, page: u32, entry: PageEntry) -> Prefix<K> {
        let (page, place) = (self.page(page), entry.place());
        let bits = u128::from(place.bits()) << (u128::BITS - 12) >> page.len;
        let len = page.len + u8::try_from(place.len()).unwrap_or(0);
        Prefix::truncating(K::from_high_bits(page.address.to_high_bits() | bits), len)
    }

    /// The page of `prefix`, or the last existing page on the path to it.
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

    fn below(&self, page: u32, address: K) -> Option<u32> {
        let page = self.page(page);
        page.search(page.link(address)).ok().and_then(|at| page.entries[at].page())
    }

    /// The index after route `at` of `page` and all that it covers.
    pub(super) fn end(&self, page: u32, at: usize) -> usize {
        let entries = self.entries(page);
        let last = entries[at].place().last();
        at + 1 + entries[at + 1..].iter().take_while(|entry| entry.place() <= last).count()
    }

    pub(super) fn search(&self, page: u32, place: PagePlace) -> Option<usize> {
        self.page(page).search(place).ok()
    }

    pub(super) fn is_at(&self, page: u32, at: usize, prefix: Prefix<K>) -> bool {
        let entry = self.entries(page).get(at).filter(|entry| entry.page().is_none());
        entry.is_some_and(|entry| self.prefix(page, *entry) == prefix)
    }

    /// As [`Self::search`]. The entry was at index `at`, and still is unless entries before it were added or removed.
    pub(super) fn search_from(&self, page: u32, at: usize, place: PagePlace) -> Option<usize> {
        let is_there = self.entries(page).get(at).is_some_and(|entry| entry.place() == place);
        if is_there { Some(at) } else { self.search(page, place) }
    }

    pub(super) fn find(&self, prefix: Prefix<K>) -> Option<(u32, usize)> {
        let at = self.nearest(prefix);
        let page = self.page(at);
        let index =
            if page.holds(prefix.len()) { page.search(page.place(prefix)).ok()? } else { return None };
        Some((at, index))
    }

    /// As [`Self::find`], but inserts the entry if necessary.
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

    /// Removes the entry at `place` of `page` if it is no longer a route, and pages that are empty then.
    pub(super) fn tidy(&mut self, page: u32, place: PagePlace) {
        let (mut page, mut place) = (page, place);
        while let Ok(at) = self.page(page).search(place) {
            let Page { entries, address, len, parent, .. } = &mut self.pages[page as usize];
            if entries[at].page().is_none()
                && !(entries[at].announced().is_none() && entries[at].used().is_none())
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

    /// The page of `prefix` or the last existing one on the path to it, the number of entries before, and the place.
    fn seek(&self, prefix: Prefix<K>) -> (u32, usize, PagePlace) {
        let at = self.nearest(prefix);
        let page = self.page(at);
        let place = if page.holds(prefix.len()) { page.place(prefix) } else { page.link(prefix.address()) };
        (at, before(&page.entries, place), place)
    }

    /// The longest route that covers `prefix`, is shorter, and has a `next_hop`. `known`: the page and the index of its entry.
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

    pub(super) const fn is_default(&self, page: u32, place: PagePlace) -> bool {
        page == ROOT && place.len() == 0
    }

    /// The fallback of `place` in `page`, not counting the default route; only where [`Page::inherited`] is maintained.
    pub(super) fn inherited(&self, page: u32, at: usize, place: PagePlace) -> NextHopId {
        let page = self.page(page);
        match page.above(at, place, PageEntry::announced) {
            Some((0, _)) | None => page.inherited,
            Some((_, announced)) => announced,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        self.walk(ROOT, (ROOT, 0), PagePlace::LAST)
    }

    /// As [`Self::iter`], from `prefix` on.
    pub(super) fn starting_at(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        let (page, at, _) = self.seek(prefix);
        self.walk(ROOT, (page, at), PagePlace::LAST)
    }

    pub(super) fn within(
        &self,
        prefix: Prefix<K>,
        known: Option<(u32, usize)>,
    ) -> impl Iterator<Item = (Prefix<K>, PageEntry)> {
        let (page, start, last) = match known {
            Some((page, at)) => (page, at, self.entries(page)[at].place().last()),
            None => {
                let (page, at, place) = self.seek(prefix);
                // Without the page of `prefix` no page below it exists.
                if self.page(page).holds(prefix.len()) {
                    (page, at, place.last())
                } else {
                    (page, self.entries(page).len(), PagePlace::LAST)
                }
            }
        };
        self.walk(page, (page, start), last)
    }

    /// The routes of page `top` and below, from entry `start` (page, index) to the place `last` of `top`.
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
