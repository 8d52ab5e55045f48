//! The RIB: what the feeds told, and the compiler of it into what an engine has (the FIB).
//!
//! ```text
//! set  -> told, dirty          any number of times; ten changes of one route cost the engine one change, or none
//! commit: compile -> FibDelta -> the engine's apply     taken: told and used go together again
//!                                                       refused: all is as it was before the first `set` since the last commit
//! ```
//! For engines that [want fewer routes](crate::EngineInfo::wants_fewer_routes), compiling leaves out routes that change no answer. A route
//! whose next hop is that of the longest route covering it is not *used*: a lookup that misses it finds the same next hop in that route.
//! In full tables of 2024 that is four routes in ten. A route left out comes back when the route that covers it changes. The default route
//! leaves no route out: else each change of it, and a link that goes is one, would be thousands of changes to the engine.
//!
//! An engine stores no routes of its own. Each [`Change`] has the next hop that the engine has for the prefix and the one that it gets.
//! An engine that needs more (the route an address falls back to, all routes to rebuild its table) looks it up in the [`Rib`] that comes
//! with the delta.

mod trie;

use crate::{
    Change, EngineError, EngineWriter, FibDelta, Generation, IpPrefix, Key, NextHopId, Prefix, Route, Routes,
};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::ops::Range;
use trie::{PageEntry, PagePlace, ROOT, RibTrie};

/// The routes of one family.
#[derive(Clone, Debug, Default)]
pub struct RibTable<K: Key> {
    trie: RibTrie<K>,
    told_len: usize,
    used_len: usize,
    /// What was told since the last commit, in order.
    dirty: Vec<Dirty>,
    is_plain: bool,
    /// The memory of the last delta: empty between commits.
    changes: Vec<Change<K>>,
    /// How many routes have each next hop.
    uses: FxHashMap<NextHopId, u32>,
    /// Changes of the keys of `uses`.
    turnover: u64,
}

/// A route that was set since the last commit.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    page: u32,
    /// The index of the entry when it was told.
    at: u32,
    place: PagePlace,
    /// Of the prefix.
    len: u8,
    /// Whether the route may have to be taken out of the trie.
    is_gone: bool,
    before: NextHopId,
    /// What its addresses fall back to without it, the default route aside, when that has been looked for.
    inherited: Option<NextHopId>,
}

impl<K: Key> RibTable<K> {
    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns what it was before (`NONE`: no route).
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
        let before = entry.set_told(next_hop);
        if before != next_hop {
            let (place, len, is_gone) = (entry.place(), prefix.len(), next_hop.is_none());
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            self.dirty.push(Dirty { page, at, place, len, is_gone, before, inherited: None });
            self.count_use(before, next_hop);
            self.told_len += usize::from(before.is_none());
            self.told_len -= usize::from(next_hop.is_none());
        }
        before
    }

    /// The next hop of exactly `prefix`; `NONE` when there is no such route.
    #[must_use]
    pub fn get(&self, prefix: Prefix<K>) -> NextHopId {
        self.trie.find(prefix).map_or(NextHopId::NONE, |(page, at)| self.trie.entries(page)[at].told())
    }

    /// The longest route that covers `key`: its prefix and next hop.
    #[must_use]
    pub fn longest(&self, key: K) -> Option<(Prefix<K>, NextHopId)> {
        let host = Prefix::truncating(key, K::BITS);
        let own = self.get(host);
        if !own.is_none() {
            return Some((host, own));
        }
        let (len, next_hop) = self.trie.above(host, None, PageEntry::told)?;
        Some((Prefix::truncating(key, len), next_hop))
    }

    /// A route changes from next hop `before` to `after`.
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

    /// Whether a route has this next hop.
    #[must_use]
    pub fn has_route_to(&self, next_hop: NextHopId) -> bool {
        self.uses.contains_key(&next_hop)
    }

    /// The number of routes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.told_len
    }

    /// Whether there is no route.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All routes in order of address, then length.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        self.trie.iter().map(|(prefix, entry)| (prefix, entry.told())).filter(|(_, told)| !told.is_none())
    }

    /// As [`Self::iter`], from `prefix` on, itself included. It need not be a route. Finding the first one takes no longer in a large table.
    pub fn starting_at(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        let routes = self.trie.starting_at(prefix).map(|(prefix, entry)| (prefix, entry.told()));
        routes.filter(|(_, told)| !told.is_none())
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

    /// What withdraws all routes.
    #[must_use]
    pub fn withdrawn(&self) -> Vec<Route<K>> {
        self.prefixes().map(Route::withdrawal).collect()
    }

    /// The number of routes that an engine has.
    #[must_use]
    pub const fn used_len(&self) -> usize {
        self.used_len
    }

    /// The routes that an engine has after the delta being committed, in order of address, then length.
    pub fn used(&self) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        self.trie.iter().map(|(prefix, entry)| (prefix, entry.used())).filter(|(_, used)| !used.is_none())
    }

    /// Those of the routes in [`Self::used`] that `prefix` covers, itself included, in the same order.
    pub fn used_within(&self, prefix: Prefix<K>) -> impl Iterator<Item = (Prefix<K>, NextHopId)> {
        let within = self.trie.within(prefix, self.just_told(prefix));
        let within = within.map(|(prefix, entry)| (prefix, entry.used()));
        within.filter(|(_, used)| !used.is_none())
    }

    /// Of the routes in [`Self::used`] the longest that covers `prefix` and is shorter: its length and next hop.
    #[must_use]
    pub fn used_above(&self, prefix: Prefix<K>) -> Option<(u8, NextHopId)> {
        self.trie.above(prefix, self.just_told(prefix), PageEntry::used)
    }

    /// What the addresses of `prefix` fall back to without its own route, the default route aside: the next hop of [`Self::used_above`].
    #[must_use]
    pub fn used_behind(&self, prefix: Prefix<K>) -> NextHopId {
        // The longest route told has the next hop of the longest one used: where it is left out, that covers it.
        let known = self.told_alone(prefix).and_then(|told| told.inherited);
        known.unwrap_or_else(|| {
            let above = self.used_above(prefix).filter(|(len, _)| *len > 0);
            above.map_or(NextHopId::NONE, |(_, next_hop)| next_hop)
        })
    }

    /// What was told of `prefix`, if it alone was told since the last commit: an engine asks for what it is told.
    fn told_alone(&self, prefix: Prefix<K>) -> Option<&Dirty> {
        let [told] = self.dirty.as_slice() else { return None };
        self.trie.is_at(told.page, told.at as usize, prefix).then_some(told)
    }

    /// The page and the index of the entry of `prefix`, as of [`Self::told_alone`].
    fn just_told(&self, prefix: Prefix<K>) -> Option<(u32, usize)> {
        self.told_alone(prefix).map(|told| (told.page, told.at as usize))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let dirty = self.dirty.capacity() * size_of::<Dirty>();
        let changes = self.changes.capacity() * size_of::<Change<K>>();
        let uses = self.uses.capacity() * size_of::<(NextHopId, u32)>();
        self.trie.bytes() + (dirty + changes + uses) as u64
    }

    /// Brings what is used to what was told. Returns what changes, sorted by prefix.
    fn compile(&mut self) -> Vec<Change<K>> {
        let mut changes = std::mem::take(&mut self.changes);
        if self.dirty.len() > self.told_len / 8 {
            changes.reserve(self.dirty.len());
            let all = 0..self.trie.entries(ROOT).len();
            self.compile_range(ROOT, all, NextHopId::NONE, true, &mut changes);
            return changes;
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        // A route after those that cover it, so that it is known what it falls back to.
        if !self.is_plain {
            dirty.sort_by_key(|told| told.len);
        }
        let is_alone = dirty.len() == 1;
        for told in &mut dirty {
            told.inherited = self.compile_told(*told, is_alone, &mut changes);
        }
        self.dirty = dirty;
        changes.sort_unstable_by_key(|change| change.prefix);
        changes
    }

    /// Compiles a route that was told, and those that change with it. `is_alone`: nothing else was told. Returns what the addresses of the
    /// route fall back to without it, the default route aside, where that counts.
    fn compile_told(
        &mut self,
        told: Dirty,
        is_alone: bool,
        changes: &mut Vec<Change<K>>,
    ) -> Option<NextHopId> {
        let Dirty { page, place, before, .. } = told;
        // Routes stay until the changes have been taken.
        let at = self.trie.search_from(page, told.at as usize, place)?;
        if self.is_plain {
            self.compile_entry(page, at, NextHopId::NONE, changes);
            return None;
        }
        let inherited = self.trie.inherited(page, at, place);
        self.compile_entry(page, at, inherited, changes);
        if self.trie.is_default(page, place) {
            return None;
        }
        // The routes right below fall back to this one, or to what it falls back to. Whether that is what it was, one change alone tells.
        let entries = self.trie.entries(page);
        let fallback = |told: NextHopId| if told.is_none() { inherited } else { told };
        let new = fallback(entries[at].told());
        if !is_alone || new != fallback(before) {
            let below = at + 1..self.trie.end(page, at);
            self.compile_range(page, below, new, false, changes);
        }
        Some(inherited)
    }

    /// Compiles entry `at` of `page`, a route whose addresses fall back to `inherited` without it.
    fn compile_entry(&mut self, page: u32, at: usize, inherited: NextHopId, changes: &mut Vec<Change<K>>) {
        let entry = self.trie.entry(page, at);
        let is_left_out = entry.told() == inherited && !self.is_plain;
        let new = if is_left_out { NextHopId::NONE } else { entry.told() };
        let old = entry.set_used(new);
        if old != new {
            let entry = *entry;
            changes.push(Change { prefix: self.trie.prefix(page, entry), old, new });
            self.used_len += usize::from(old.is_none());
            self.used_len -= usize::from(new.is_none());
        }
    }

    /// Compiles the entries `range` of `page`, whose addresses fall back to `inherited` without them, and the pages below. What lies
    /// within a route of those is compiled too if `all` is to be.
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
                // Where that is what it was, nothing changes.
                if self.trie.set_inherited(below, inherited) != inherited || all {
                    let entries = 0..self.trie.entries(below).len();
                    self.compile_range(below, entries, inherited, all, changes);
                }
                at += 1;
                continue;
            }
            self.compile_entry(page, at, inherited, changes);
            let leaves_out = !entry.told().is_none() && !self.trie.is_default(page, entry.place());
            let end = if leaves_out { self.trie.end(page, at) } else { at + 1 };
            if all {
                self.compile_range(page, at + 1..end, entry.told(), all, changes);
            }
            at = end;
        }
    }

    /// Decides anew which routes are used; nothing was told since the last commit.
    fn choose_anew(&mut self, is_plain: bool) {
        self.is_plain = is_plain;
        let all = 0..self.trie.entries(ROOT).len();
        let mut changes = Vec::new();
        self.compile_range(ROOT, all, NextHopId::NONE, true, &mut changes);
    }

    /// The changes compiled last have been taken.
    fn settle(&mut self, mut changes: Vec<Change<K>>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for told in dirty.iter().filter(|told| told.is_gone) {
            self.trie.tidy(told.page, told.place);
        }
        // The lists are kept unless they are those of a whole table.
        let kept = (self.told_len / 8).max(1024);
        if dirty.capacity() <= kept {
            dirty.clear();
            self.dirty = dirty;
        }
        if changes.capacity() <= kept {
            changes.clear();
            self.changes = changes;
        }
    }

    /// The changes compiled last have been refused: what was told since the commit before is forgotten.
    fn take_back(&mut self, mut changes: Vec<Change<K>>) {
        let mut dirty = std::mem::take(&mut self.dirty);
        // The last word first: what was told twice ends as it was before the first.
        for told in dirty.iter_mut().rev() {
            let Some(at) = self.trie.search(told.page, told.place) else {
                continue;
            };
            let forgotten = self.trie.entry(told.page, at).set_told(told.before);
            self.count_use(forgotten, told.before);
            self.told_len += usize::from(forgotten.is_none());
            self.told_len -= usize::from(told.before.is_none());
            told.is_gone = told.before.is_none();
            told.before = forgotten;
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

    /// An empty RIB that leaves no route out: every route told is used.
    #[must_use]
    pub fn plain() -> Self {
        let mut rib = Self::default();
        rib.leave_out(false);
        rib
    }

    /// An empty RIB for `engine`.
    #[must_use]
    pub fn of(engine: &dyn EngineWriter) -> Self {
        let mut rib = Self::default();
        rib.leave_out(engine.info().wants_fewer_routes);
        rib
    }

    /// Whether routes that change no answer are left out from now on; to be said before the first commit.
    pub const fn leave_out(&mut self, leaves_out: bool) {
        self.v4.is_plain = !leaves_out;
        self.v6.is_plain = !leaves_out;
    }

    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns what it was before.
    pub fn set(&mut self, prefix: IpPrefix, next_hop: NextHopId) -> NextHopId {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.set(prefix, next_hop),
            IpPrefix::V6(prefix) => self.v6.set(prefix, next_hop),
        }
    }

    /// Sets every one of `routes`.
    pub fn tell(&mut self, routes: &Routes) {
        for route in &routes.v4 {
            self.v4.set(route.prefix, route.next_hop);
        }
        for route in &routes.v6 {
            self.v6.set(route.prefix, route.next_hop);
        }
    }

    /// Whether a route of either family has this next hop.
    #[must_use]
    pub fn has_route_to(&self, next_hop: NextHopId) -> bool {
        self.v4.has_route_to(next_hop) || self.v6.has_route_to(next_hop)
    }

    /// How often a next hop has got its first route of a family or lost its last one. While it stays, [`Self::has_route_to`] stays.
    #[must_use]
    pub const fn turnover(&self) -> u64 {
        self.v4.turnover + self.v6.turnover
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

    /// Compiles what was told since the last commit and hands it to `apply`, with the RIB as it is then. When `apply` refuses it, what was
    /// told since is forgotten: the RIB is as it was after the last commit, as the engine is.
    ///
    /// # Errors
    /// Those of `apply`.
    pub fn commit<T, E>(&mut self, apply: impl FnOnce(&FibDelta, &Self) -> Result<T, E>) -> Result<T, E> {
        let delta = FibDelta { v4: self.v4.compile(), v6: self.v6.compile() };
        let applied = apply(&delta, self);
        if applied.is_ok() {
            self.v4.settle(delta.v4);
            self.v6.settle(delta.v6);
        } else {
            self.v4.take_back(delta.v4);
            self.v6.take_back(delta.v6);
        }
        applied
    }

    /// Has `engine`, which has taken every delta of this RIB, take what was told since the last commit: see [`Self::commit`].
    ///
    /// # Errors
    /// Those of [`EngineWriter::apply`].
    pub fn commit_to(&mut self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        self.commit(|delta, rib| engine.apply(delta, rib))
    }

    /// Has `engine`, which is empty, take what was committed last.
    ///
    /// # Errors
    /// Those of [`EngineWriter::apply`].
    pub fn load(&self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        engine.apply(&self.full_delta(), self)
    }

    /// Has `engine`, which is empty, take what was committed last in place of the engine that has it, and from then on the deltas.
    /// Nothing was told since the last commit. When `engine` refuses, the other one still fits this RIB.
    ///
    /// # Errors
    /// Those of [`EngineWriter::apply`].
    pub fn move_to(&mut self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        let was_plain = self.v4.is_plain;
        self.leave_out_anew(engine.info().wants_fewer_routes);
        let loaded = self.load(engine);
        if loaded.is_err() {
            self.leave_out_anew(!was_plain);
        }
        loaded
    }

    /// Decides anew which routes are used, by whether an engine [wants fewer](crate::EngineInfo::wants_fewer_routes). Nothing was told since
    /// the last commit.
    fn leave_out_anew(&mut self, leaves_out: bool) {
        let is_plain = !leaves_out;
        if self.v4.is_plain != is_plain {
            self.v4.choose_anew(is_plain);
            self.v6.choose_anew(is_plain);
        }
    }

    /// What changes in the FIB by what was told since the last commit, taken to be committed. Sorted by prefix within each family.
    pub fn take_delta(&mut self) -> FibDelta {
        let delta = FibDelta { v4: self.v4.compile(), v6: self.v6.compile() };
        self.v4.settle(Vec::new());
        self.v6.settle(Vec::new());
        delta
    }

    /// A delta that brings an empty engine to what was committed last, sorted by prefix.
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

#[cfg(test)]
mod tests;
