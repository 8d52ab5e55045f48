//! The RIB: the announced routes, and the compiler that derives the routes of an engine (the FIB) from them.
//!
//! ```text
//! set  -> announced, dirty         any number of times; repeated changes of a route are one change to the engine, or none
//! commit: compile -> FibDelta -> the engine's apply     accepted: the used routes follow from the announced ones again
//!                                                       refused:  all changes since the last commit are undone
//! ```
//! A route that the engine has is *used*. For engines that [want fewer routes](crate::EngineInfo::wants_fewer_routes), a route is left out
//! if the longest route that covers it has the same next hop (four in ten in full tables of 2024). It is used again when that one changes.
//! The default route leaves none out, since its change, as after a link failure, would be thousands of changes to the engine.
//!
//! An engine stores no routes. What it needs beyond a [`Change`] (a fallback, all routes) it reads from the [`Rib`] passed with the delta.

mod engines;
mod trie;

use crate::prefix::ByFamily;
use crate::{Change, FibDelta, IpPrefix, Key, NextHopId, Prefix, Route, Routes};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use trie::{PageEntry, PagePlace, ROOT, RibTrie};

/// The routes of one family.
#[derive(Clone, Debug, Default)]
pub struct RibTable<K: Key> {
    trie: RibTrie<K>,
    announced_len: usize,
    used_len: usize,
    dirty: Vec<Dirty>,
    is_plain: bool,
    changes: Vec<Change<K>>,
    uses: FxHashMap<NextHopId, u32>,
    /// Counts additions and removals of keys of `uses`.
    turnover: u64,
}

#[derive(Clone, Copy, Debug)]
struct Dirty {
    page: u32,
    /// The index of the entry at the time of the change.
    at: u32,
    place: PagePlace,
    len: u8,
    is_gone: bool,
    before: NextHopId,
    /// The fallback of its addresses without this route, not counting the default route, once known.
    inherited: Option<NextHopId>,
}

impl<K: Key> RibTable<K> {
    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns the previous next hop (`NONE`: no route).
    pub fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId) -> NextHopId {
        let (page, at) = if next_hop.is_none() {
            match self.trie.find(prefix) {
                Some(found) => found,
                None => return NextHopId::NONE,
            }
        } else {
            self.trie.find_or_insert(prefix)
        };
        let entry = self.trie.entry(page, at);
        let before = entry.set_announced(next_hop);
        if before != next_hop {
            let (place, len, is_gone) = (entry.place(), prefix.len(), next_hop.is_none());
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            self.dirty.push(Dirty { page, at, place, len, is_gone, before, inherited: None });
            self.count_use(before, next_hop);
            self.announced_len += usize::from(before.is_none());
            self.announced_len -= usize::from(next_hop.is_none());
        }
        before
    }

    /// The next hop of exactly `prefix`; `NONE` if there is no such route.
    #[must_use]
    pub fn get(&self, prefix: Prefix<K>) -> NextHopId {
        self.trie.find(prefix).map_or(NextHopId::NONE, |(page, at)| self.trie.entries(page)[at].announced())
    }

    /// The longest route that covers `key`: its prefix and next hop.
    #[must_use]
    pub fn longest(&self, key: K) -> Option<(Prefix<K>, NextHopId)> {
        let host = Prefix::truncating(key, K::BITS);
        let own = self.get(host);
        if !own.is_none() {
            return Some((host, own));
        }
        let (len, next_hop) = self.trie.above(host, None, PageEntry::announced)?;
        Some((Prefix::truncating(key, len), next_hop))
    }

    fn count_use(&mut self, before: NextHopId, after: NextHopId) {
        if !after.is_none() {
            let uses = self.uses.entry(after).or_default();
            *uses += 1;
            self.turnover += u64::from(*uses == 1);
        }
        if let Entry::Occupied(mut uses) = self.uses.entry(before) {
            *uses.get_mut() -= 1;
            if *uses.get() == 0 {
                uses.remove();
                self.turnover += 1;
            }
        }
    }

    /// Whether any route has this next hop.
    #[must_use]
    pub fn has_route_to(&self, next_hop: NextHopId) -> bool {
        self.uses.contains_key(&next_hop)
    }

    /// The number of routes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.announced_len
    }

    /// Whether there is no route.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All routes in order of address, then length.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        self.trie
            .iter()
            .map(|(prefix, entry)| (prefix, entry.announced()))
            .filter(|(_, announced)| !announced.is_none())
    }

    /// As [`Self::iter`], from `prefix` on, which need not be a route. The search for it takes no longer in a large table.
    pub fn starting_at(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        let routes = self.trie.starting_at(prefix).map(|(prefix, entry)| (prefix, entry.announced()));
        routes.filter(|(_, announced)| !announced.is_none())
    }

    /// As [`Self::iter`], collected.
    #[must_use]
    pub fn sorted(&self) -> Vec<(Prefix<K>, NextHopId)> {
        let mut routes = Vec::with_capacity(self.len());
        routes.extend(self.iter());
        routes
    }

    /// The prefixes of all routes, in order.
    pub fn prefixes(&self) -> impl Iterator<Item = Prefix<K>> {
        self.iter().map(|(prefix, _)| prefix)
    }

    /// The withdrawals of all routes.
    #[must_use]
    pub fn withdrawn(&self) -> Vec<Route<K>> {
        self.prefixes().map(Route::withdrawal).collect()
    }

    /// The number of used routes.
    #[must_use]
    pub const fn used_len(&self) -> usize {
        self.used_len
    }

    /// The used routes after the delta being committed, in order of address, then length.
    pub fn used(&self) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        self.trie.iter().map(|(prefix, entry)| (prefix, entry.used())).filter(|(_, used)| !used.is_none())
    }

    /// The used routes that `prefix` covers, itself included, in the same order.
    pub fn used_within(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        let within = self.trie.within(prefix, self.known_entry(prefix));
        let within = within.map(|(prefix, entry)| (prefix, entry.used()));
        within.filter(|(_, used)| !used.is_none())
    }

    /// The longest used route that covers `prefix` and is shorter: its length and next hop.
    #[must_use]
    pub fn used_above(&self, prefix: Prefix<K>) -> Option<(u8, NextHopId)> {
        self.trie.above(prefix, self.known_entry(prefix), PageEntry::used)
    }

    /// The next hop of the addresses of `prefix` without its own route, not counting the default route.
    #[must_use]
    pub fn used_behind(&self, prefix: Prefix<K>) -> NextHopId {
        // Known from the announced routes. If the longest one is left out, the used route that covers it has its next hop.
        let known = self.only_change(prefix).and_then(|change| change.inherited);
        known.unwrap_or_else(|| {
            let above = self.used_above(prefix).filter(|(len, _)| *len > 0);
            above.map_or(NextHopId::NONE, |(_, next_hop)| next_hop)
        })
    }

    /// The only change since the last commit, if it is of `prefix`: saves a search, since engines ask for the prefixes of their delta.
    fn only_change(&self, prefix: Prefix<K>) -> Option<&Dirty> {
        let [change] = self.dirty.as_slice() else { return None };
        self.trie.is_at(change.page, change.at as usize, prefix).then_some(change)
    }

    fn known_entry(&self, prefix: Prefix<K>) -> Option<(u32, usize)> {
        self.only_change(prefix).map(|change| (change.page, change.at as usize))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let dirty = self.dirty.capacity() * size_of::<Dirty>();
        let changes = self.changes.capacity() * size_of::<Change<K>>();
        let uses = self.uses.capacity() * size_of::<(NextHopId, u32)>();
        self.trie.bytes() + (dirty + changes + uses) as u64
    }

    /// Derives the used routes from the announced ones. Returns the changes, sorted by prefix.
    fn compile(&mut self) -> Vec<Change<K>> {
        let mut changes = std::mem::take(&mut self.changes);
        if self.dirty.len() > self.announced_len / 8 {
            changes.reserve(self.dirty.len());
            let all = 0..self.trie.entries(ROOT).len();
            self.compile_range(ROOT, all, NextHopId::NONE, true, &mut changes);
            return changes;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        // Shorter prefixes first: the fallback of a route must be final when the route is compiled.
        if !self.is_plain {
            dirty.sort_by_key(|change| change.len);
        }
        let is_alone = dirty.len() == 1;
        for change in &mut dirty {
            change.inherited = self.compile_change(*change, is_alone, &mut changes);
        }
        self.dirty = dirty;
        changes.sort_unstable_by_key(|change| change.prefix);
        changes
    }

    /// Compiles a changed route and those that depend on it. Returns its addresses' fallback (not the default route), if routes are left out.
    fn compile_change(
        &mut self,
        change: Dirty,
        is_alone: bool,
        changes: &mut Vec<Change<K>>,
    ) -> Option<NextHopId> {
        let Dirty { page, place, before, .. } = change;
        // Withdrawn routes stay in the trie until the commit is settled.
        let at = self.trie.search_from(page, change.at as usize, place)?;
        if self.is_plain {
            self.compile_entry(page, at, NextHopId::NONE, changes);
            return None;
        }
        let inherited = self.trie.inherited(page, at, place);
        self.compile_entry(page, at, inherited, changes);
        if self.trie.is_default(page, place) {
            return None;
        }
        // The routes right below fall back to this one, or to its fallback. A single change affects them only if that next hop changed.
        let entries = self.trie.entries(page);
        let fallback = |announced: NextHopId| if announced.is_none() { inherited } else { announced };
        let new = fallback(entries[at].announced());
        if !is_alone || new != fallback(before) {
            let below = at + 1..self.trie.end(page, at);
            self.compile_range(page, below, new, false, changes);
        }
        Some(inherited)
    }

    /// Compiles the route at entry `at` of `page`. Its addresses fall back to `inherited` without it.
    fn compile_entry(&mut self, page: u32, at: usize, inherited: NextHopId, changes: &mut Vec<Change<K>>) {
        let entry = self.trie.entry(page, at);
        let is_left_out = entry.announced() == inherited && !self.is_plain;
        let new = if is_left_out { NextHopId::NONE } else { entry.announced() };
        let old = entry.set_used(new);
        if old != new {
            let entry = *entry;
            changes.push(Change { prefix: self.trie.prefix(page, entry), old, new });
            self.used_len += usize::from(old.is_none());
            self.used_len -= usize::from(new.is_none());
        }
    }

    /// Compiles the entries `range` of `page` and the pages below. `all` includes the entries within routes of the range.
    fn compile_range(
        &mut self,
        page: u32,
        range: Range<usize>,
        inherited: NextHopId,
        all: bool,
        changes: &mut Vec<Change<K>>,
    ) {
        let mut at = range.start;
        while at < range.end {
            let entry = self.trie.entries(page)[at];
            if let Some(below) = entry.page() {
                // Nothing changes below a page with the same fallback.
                if self.trie.set_inherited(below, inherited) != inherited || all {
                    let entries = 0..self.trie.entries(below).len();
                    self.compile_range(below, entries, inherited, all, changes);
                }
                at += 1;
                continue;
            }
            self.compile_entry(page, at, inherited, changes);
            let leaves_out = !entry.announced().is_none() && !self.trie.is_default(page, entry.place());
            let end = if leaves_out { self.trie.end(page, at) } else { at + 1 };
            if all {
                self.compile_range(page, at + 1..end, entry.announced(), all, changes);
            }
            at = end;
        }
    }

    fn reselect(&mut self, is_plain: bool) {
        self.is_plain = is_plain;
        let all = 0..self.trie.entries(ROOT).len();
        let mut changes = Vec::new();
        self.compile_range(ROOT, all, NextHopId::NONE, true, &mut changes);
    }

    fn settle(&mut self, mut changes: Vec<Change<K>>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for change in dirty.iter().filter(|change| change.is_gone) {
            self.trie.tidy(change.page, change.place);
        }
        // Keep the allocations, unless they are as large as for a full table.
        let kept = (self.announced_len / 8).max(1024);
        if dirty.capacity() <= kept {
            dirty.clear();
            self.dirty = dirty;
        }
        if changes.capacity() <= kept {
            changes.clear();
            self.changes = changes;
        }
    }

    fn undo(&mut self, mut changes: Vec<Change<K>>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        // In reverse order, so that a route set twice gets its first next hop back.
        for change in dirty.iter_mut().rev() {
            let Some(at) = self.trie.search(change.page, change.place) else {
                continue;
            };
            let undone = self.trie.entry(change.page, at).set_announced(change.before);
            self.count_use(undone, change.before);
            self.announced_len += usize::from(undone.is_none());
            self.announced_len -= usize::from(change.before.is_none());
            change.is_gone = change.before.is_none();
            change.before = undone;
        }
        self.dirty = dirty;
        changes.clear();
        self.changes = changes;
        let changes = self.compile();
        self.settle(changes);
    }
}

/// The routes of both families.
#[derive(Clone, Debug, Default)]
pub struct Rib {
    /// IPv4 routes.
    pub v4: RibTable<u32>,
    /// IPv6 routes.
    pub v6: RibTable<u128>,
}

impl Rib {
    /// An empty RIB.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty RIB that leaves no route out.
    #[must_use]
    pub fn plain() -> Self {
        let mut rib = Self::default();
        rib.leave_out(false);
        rib
    }

    /// Whether to leave out routes that change no answer. Must be called before the first commit.
    pub const fn leave_out(&mut self, leaves_out: bool) {
        self.v4.is_plain = !leaves_out;
        self.v6.is_plain = !leaves_out;
    }

    /// As [`RibTable::set`].
    pub fn set(&mut self, prefix: IpPrefix, next_hop: NextHopId) -> NextHopId {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.set(prefix, next_hop),
            IpPrefix::V6(prefix) => self.v6.set(prefix, next_hop),
        }
    }

    /// As [`RibTable::get`].
    #[must_use]
    pub fn get(&self, prefix: IpPrefix) -> NextHopId {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.get(prefix),
            IpPrefix::V6(prefix) => self.v6.get(prefix),
        }
    }

    /// Sets all `routes`.
    pub fn announce(&mut self, routes: &Routes) {
        for route in &routes.v4 {
            self.v4.set(route.prefix, route.next_hop);
        }
        for route in &routes.v6 {
            self.v6.set(route.prefix, route.next_hop);
        }
    }

    /// Whether any route of either family has this next hop.
    #[must_use]
    pub fn has_route_to(&self, next_hop: NextHopId) -> bool {
        self.v4.has_route_to(next_hop) || self.v6.has_route_to(next_hop)
    }

    /// Counts how often a next hop got its first or lost its last route of a family. The answers of
    /// [`Self::has_route_to`] change only with it.
    #[must_use]
    pub const fn turnover(&self) -> u64 {
        self.v4.turnover + self.v6.turnover
    }

    /// Whether a route was set since the last commit.
    #[must_use]
    pub const fn has_changes(&self) -> bool {
        !self.v4.dirty.is_empty() || !self.v6.dirty.is_empty()
    }

    /// The number of routes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest route that covers `address`: its prefix and next hop.
    #[must_use]
    pub fn longest(&self, address: IpAddr) -> Option<(IpPrefix, NextHopId)> {
        match address {
            IpAddr::V4(address) => {
                self.v4.longest(address.to_bits()).map(|(prefix, id)| (IpPrefix::V4(prefix), id))
            }
            IpAddr::V6(address) => {
                self.v6.longest(address.to_bits()).map(|(prefix, id)| (IpPrefix::V6(prefix), id))
            }
        }
    }

    /// All routes from `prefix` on, itself included: IPv4, then IPv6, in order of address, then length.
    pub fn starting_at(&self, prefix: IpPrefix) -> impl Iterator<Item = (IpPrefix, NextHopId)> {
        let (v4, v6) = match prefix {
            IpPrefix::V4(prefix) => (Some(prefix), Prefix::DEFAULT),
            IpPrefix::V6(prefix) => (None, prefix),
        };
        let v4 = v4.into_iter().flat_map(|prefix| self.v4.starting_at(prefix));
        let v6 = self.v6.starting_at(v6).map(|(prefix, id)| (IpPrefix::V6(prefix), id));
        v4.map(|(prefix, id)| (IpPrefix::V4(prefix), id)).chain(v6)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.v4.bytes() + self.v6.bytes()
    }

    /// Compiles the changes since the last commit and passes them to `apply`, with the resulting RIB. If `apply` refuses, they are undone.
    ///
    /// # Errors
    /// The error of `apply`; the RIB still matches the engine.
    pub fn commit<T, E>(&mut self, apply: impl FnOnce(&FibDelta, &Self) -> Result<T, E>) -> Result<T, E> {
        let delta = FibDelta { v4: self.v4.compile(), v6: self.v6.compile() };
        let applied = apply(&delta, self);
        if applied.is_ok() {
            self.v4.settle(delta.v4);
            self.v6.settle(delta.v6);
        } else {
            self.v4.undo(delta.v4);
            self.v6.undo(delta.v6);
        }
        applied
    }

    /// Selects the used routes again for another kind of engine. There must be no change since the last commit.
    fn reselect_used(&mut self, leaves_out: bool) {
        let is_plain = !leaves_out;
        if self.v4.is_plain != is_plain {
            self.v4.reselect(is_plain);
            self.v6.reselect(is_plain);
        }
    }

    /// The FIB changes since the last commit, which count as committed. Sorted by prefix within each family.
    pub fn take_delta(&mut self) -> FibDelta {
        let delta = FibDelta { v4: self.v4.compile(), v6: self.v6.compile() };
        self.v4.settle(Vec::new());
        self.v6.settle(Vec::new());
        delta
    }

    /// A delta from an empty engine to the committed routes, sorted by prefix.
    #[must_use]
    pub fn full_delta(&self) -> FibDelta {
        fn all<K: Key>(table: &RibTable<K>) -> Vec<Change<K>> {
            let mut changes = Vec::with_capacity(table.used_len());
            changes.extend(table.used().map(|(prefix, new)| Change { prefix, old: NextHopId::NONE, new }));
            changes
        }
        FibDelta { v4: all(&self.v4), v6: all(&self.v6) }
    }
}

impl ByFamily for Rib {
    type Part<K: Key> = RibTable<K>;

    fn v4(&self) -> &RibTable<u32> {
        &self.v4
    }

    fn v6(&self) -> &RibTable<u128> {
        &self.v6
    }
}

impl From<&Rib> for Routes {
    /// All routes announced to `rib`.
    fn from(rib: &Rib) -> Self {
        Self { v4: rib.v4.iter().map(Route::from).collect(), v6: rib.v6.iter().map(Route::from).collect() }
    }
}

#[cfg(test)]
mod tests;
