//! The RIB: what the feeds told, and the compiler of it into what an engine has (the FIB).
//!
//! ```text
//! set  -> told, dirty          any number of times; ten changes of one route cost the engine one change, or none
//! commit: compile -> FibDelta -> the engine's apply     taken: told and used go together again
//!                                                       refused: all is as it was before the first `set` since the last commit
//! ```
//! For engines that [want fewer routes](EngineWriter::wants_fewer_routes), compiling leaves out routes that change no answer. A route
//! whose next hop is that of the longest route covering it is not *used*: a lookup that misses it finds the same next hop in that route.
//! In full tables of 2024 that is four routes in ten. A route left out comes back when the route that covers it changes. The default route
//! leaves no route out: else each change of it, and a link that goes is one, would be thousands of changes to the engine.
//!
//! An engine stores no routes of its own. Each [`Change`] has the next hop that the engine has for the prefix and the one that it gets.
//! An engine that needs more (the route an address falls back to, all routes to rebuild its table) looks it up in the [`Rib`] that comes
//! with the delta.

mod trie;

use crate::{
    Change, EngineError, EngineWriter, Family, FibDelta, Generation, IpPrefix, Key, NextHopId, Prefix, Route,
    Routes,
};
use std::net::IpAddr;
use std::ops::Range;
use trie::{Entry, Place, ROOT, Trie};

/// The routes of one family.
#[derive(Clone, Debug, Default)]
pub struct RibTable<K: Key> {
    trie: Trie<K>,
    told_len: usize,
    used_len: usize,
    /// What was told since the last commit, in order.
    dirty: Vec<Told>,
    is_plain: bool,
    /// The memory of the last delta: empty between commits.
    changes: Vec<Change<K>>,
}

/// Something told.
#[derive(Clone, Copy, Debug)]
struct Told {
    page: u32,
    /// The index of the entry when it was told.
    at: u32,
    place: Place,
    /// Of the prefix.
    len: u8,
    /// Whether the route may have to be taken out of the trie.
    is_gone: bool,
    before: NextHopId,
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
            self.dirty.push(Told { page, at, place, len, is_gone, before });
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
        let (len, next_hop) = self.trie.above(host, None, Entry::told)?;
        Some((Prefix::truncating(key, len), next_hop))
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
        self.prefixes().map(|prefix| Route { prefix, next_hop: NextHopId::NONE }).collect()
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
        self.trie.above(prefix, self.just_told(prefix), Entry::used)
    }

    /// The page and the index of the entry of `prefix`, if it alone was told since the last commit: an engine asks for what it is told.
    fn just_told(&self, prefix: Prefix<K>) -> Option<(u32, usize)> {
        let [told] = self.dirty.as_slice() else { return None };
        let at = told.at as usize;
        self.trie.is_at(told.page, at, prefix).then_some((told.page, at))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let dirty = self.dirty.capacity() * size_of::<Told>();
        let changes = self.changes.capacity() * size_of::<Change<K>>();
        self.trie.bytes() + (dirty + changes) as u64
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
        for told in &dirty {
            self.compile_told(*told, dirty.len() == 1, &mut changes);
        }
        self.dirty = dirty;
        changes.sort_unstable_by_key(|change| change.prefix);
        changes
    }

    /// Compiles a route that was told, and those that change with it. `is_alone`: nothing else was told.
    fn compile_told(&mut self, told: Told, is_alone: bool, changes: &mut Vec<Change<K>>) {
        let Told { page, place, before, .. } = told;
        let Some(at) = self.trie.search_from(page, told.at as usize, place) else {
            return; // routes stay until the changes have been taken
        };
        if self.is_plain {
            return self.compile_entry(page, at, NextHopId::NONE, changes);
        }
        let inherited = self.trie.inherited(page, at, place);
        self.compile_entry(page, at, inherited, changes);
        if self.trie.is_default(page, place) {
            return;
        }
        // The routes right below fall back to this one, or to what it falls back to. Whether that is what it was, one change alone tells.
        let entries = self.trie.entries(page);
        let fallback = |told: NextHopId| if told.is_none() { inherited } else { told };
        let new = fallback(entries[at].told());
        if !is_alone || new != fallback(before) {
            let below = at + 1..self.trie.end(page, at);
            self.compile_range(page, below, new, false, changes);
        }
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
        rib.leave_out(engine.wants_fewer_routes());
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

    /// The number of routes of a family.
    #[must_use]
    pub fn len_of(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.v4.len(),
            Family::V6 => self.v6.len(),
        }
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
        self.leave_out_anew(engine.wants_fewer_routes());
        let loaded = self.load(engine);
        if loaded.is_err() {
            self.leave_out_anew(!was_plain);
        }
        loaded
    }

    /// Decides anew which routes are used, by whether an engine [wants fewer](EngineWriter::wants_fewer_routes). Nothing was told since
    /// the last commit.
    pub fn leave_out_anew(&mut self, leaves_out: bool) {
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
mod tests {
    use super::*;
    use crate::Prefix4;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn id(value: u32) -> NextHopId {
        NextHopId::from_answer(value)
    }

    fn route(text: &str) -> Prefix4 {
        match text.parse() {
            Ok(IpPrefix::V4(prefix)) => prefix,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// Applies `changes` to a table that follows a RIB.
    fn follow<K: Key>(table: &mut BTreeMap<Prefix<K>, NextHopId>, changes: &[Change<K>]) {
        assert!(changes.is_sorted_by(|a, b| a.prefix < b.prefix), "{changes:?}");
        for change in changes {
            let old = if change.new.is_none() {
                table.remove(&change.prefix)
            } else {
                table.insert(change.prefix, change.new)
            };
            assert_eq!(old.unwrap_or(NextHopId::NONE), change.old, "{}", change.prefix);
            assert_ne!(change.old, change.new, "{}", change.prefix);
        }
    }

    #[test]
    fn a_delta_holds_the_net_change_only() {
        let mut rib = Rib::new();
        let [a, b, c]: [IpPrefix; 3] =
            ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"].map(|p| p.parse().unwrap());
        rib.set(a, id(1));
        rib.set(b, id(2));
        rib.set(c, id(3));
        assert_eq!(rib.take_delta().len(), 3);
        assert!(rib.take_delta().is_empty());
        rib.set(a, id(9));
        rib.set(a, id(1)); // back to what the FIB has
        rib.set(b, NextHopId::NONE);
        rib.set(c, id(4));
        let delta = rib.take_delta();
        assert_eq!((delta.v4.len(), delta.v6.len()), (1, 1));
        assert_eq!((delta.v4[0].old, delta.v4[0].new), (id(2), NextHopId::NONE));
        assert_eq!((delta.v6[0].old, delta.v6[0].new), (id(3), id(4)));
        assert_eq!((rib.len(), rib.full_delta().len()), (2, 2));
    }

    #[test]
    fn withdrawing_what_is_not_there_changes_nothing() {
        let mut rib = Rib::new();
        assert!(rib.set("10.0.0.0/8".parse().unwrap(), NextHopId::NONE).is_none());
        assert!(rib.take_delta().is_empty());
    }

    #[test]
    fn a_route_like_the_one_above_is_left_out_and_comes_back() {
        let (mut rib, mut used) = (Rib::new(), BTreeMap::new());
        let [wide, middle, narrow] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"].map(route);
        let mut set = |prefix, next_hop| {
            rib.v4.set(prefix, id(next_hop));
            follow(&mut used, &rib.take_delta().v4);
            used.keys().copied().collect::<Vec<_>>()
        };
        set(narrow, 1);
        assert_eq!(set(wide, 1), [wide], "the narrow route says no more than the wide one");
        assert_eq!(set(middle, 2), [wide, middle, narrow]);
        assert_eq!(set(wide, 2), [wide, narrow]);
        set(middle, 0);
        assert_eq!(set(wide, 0), [narrow]);
        assert_eq!(rib.len(), 1);
    }

    /// Beside routes that have the default route's next hop before it changes, and beside those that have it after.
    #[test]
    fn a_change_of_the_default_route_is_one_change() {
        let mut rib = Rib::new();
        for at in 0..1000 {
            rib.v4.set(Prefix4::truncating(at << 16, 16), id(1 + at % 2));
            rib.v6.set(Prefix::truncating(u128::from(at) << 96, 32), id(1 + at % 2));
        }
        rib.take_delta();
        for next_hop in [1, 2, 3, 0] {
            rib.v4.set(Prefix::DEFAULT, id(next_hop));
            rib.v6.set(Prefix::DEFAULT, id(next_hop));
            let delta = rib.take_delta();
            assert_eq!((delta.v4.len(), delta.v6.len()), (1, 1), "to {next_hop}");
        }
    }

    #[test]
    fn a_plain_rib_leaves_no_route_out() {
        let mut rib = Rib::plain();
        for prefix in ["10.0.0.0/8", "10.1.0.0/16"].map(route) {
            rib.v4.set(prefix, id(1));
        }
        assert_eq!((rib.take_delta().len(), rib.v4.used_len()), (2, 2));
    }

    #[test]
    fn nothing_is_left_of_routes_withdrawn() {
        let mut rib = Rib::new();
        let prefixes: Vec<_> = (0..1000_u32)
            .map(|n| Prefix4::truncating(n.wrapping_mul(0x9e37_79b9), 8 + (n % 25) as u8))
            .collect();
        for (n, prefix) in prefixes.iter().enumerate() {
            rib.v4.set(*prefix, id([1, 2, 3][n % 3]));
            rib.take_delta();
        }
        for prefix in &prefixes {
            rib.v4.set(*prefix, NextHopId::NONE);
            rib.take_delta();
        }
        assert!(rib.is_empty() && rib.full_delta().is_empty());
        assert_eq!(rib.v4.trie.size(), (1, 0), "pages are given back");
    }

    #[test]
    fn a_refusal_takes_back_what_was_told() {
        let mut rib = Rib::new();
        let [wide, narrow] = ["10.0.0.0/8", "10.1.0.0/16"].map(route);
        rib.v4.set(wide, id(1));
        rib.v4.set(narrow, id(1));
        rib.take_delta();
        let (before, size) = (rib.full_delta(), rib.v4.trie.size());
        rib.v4.set(wide, id(2));
        rib.v4.set(narrow, NextHopId::NONE);
        rib.v4.set(route("10.2.0.0/16"), id(3));
        let refused: Result<(), usize> = rib.commit(|delta, rib| {
            assert_eq!((rib.v4.len(), rib.v4.used_len(), rib.v4.used().count()), (2, 2, 2));
            assert_eq!(rib.v4.used_above(route("10.2.0.0/16")), Some((8, id(2))));
            Err(delta.len())
        });
        assert_eq!(refused, Err(2), "the /8 and the new /16; the one withdrawn was not used");
        assert_eq!((rib.full_delta().v4, rib.v4.trie.size()), (before.v4, size));
        assert_eq!([rib.v4.get(wide), rib.v4.get(narrow)], [id(1), id(1)]);
        assert_eq!((rib.len(), rib.v4.used_len()), (2, 1));
        assert!(rib.take_delta().is_empty());
    }

    /// What is told, and what comes then: `(address bits, length, next hop, what then)`.
    type Script = Vec<(u32, u8, u32, u8)>;

    /// Tells a table what `script` says, in a block of 256 smallest prefixes of `wide + 8` bits, and holds all that the table says against
    /// the definition.
    fn play<K: Key + Default>(script: &Script, wide: u8, is_plain: bool) {
        let mut table = RibTable::<K> { is_plain, ..RibTable::default() };
        let (mut told, mut used) = (BTreeMap::new(), BTreeMap::new());
        let address = |bits: u32| K::from_high_bits(u128::from(bits) << 120 >> wide);
        // So many routes elsewhere that a few changes are compiled one by one.
        let elsewhere = (0..64).map(|bits| Prefix::truncating(K::from_high_bits((128 + bits) << 120), 8));
        // Now and then a default route, pages above all others.
        let default = script.len().is_multiple_of(2).then_some(Prefix::DEFAULT);
        for prefix in elsewhere.chain(default) {
            table.set(prefix, id(9));
            told.insert(prefix, id(9));
        }
        let commit = |table: &mut RibTable<K>, used: &mut BTreeMap<_, _>| {
            let changes = table.compile();
            follow(used, &changes);
            table.settle(changes);
        };
        commit(&mut table, &mut used);
        let mut committed = told.clone();
        for (at, (bits, len, next_hop, then)) in script.iter().enumerate() {
            let prefix = Prefix::truncating(address(*bits), wide + len);
            let before = table.set(prefix, id(*next_hop));
            let old = if *next_hop == 0 { told.remove(&prefix) } else { told.insert(prefix, id(*next_hop)) };
            assert_eq!(before, old.unwrap_or(NextHopId::NONE));
            if at + 1 == script.len() || *then < 2 {
                commit(&mut table, &mut used);
                committed = told.clone();
            } else if *then == 2 {
                let changes = table.compile();
                table.take_back(changes);
                told = committed.clone();
            }
        }
        // The default route leaves no other out.
        let covering = |routes: &BTreeMap<Prefix<K>, NextHopId>, prefix: Prefix<K>| {
            (1..prefix.len())
                .rev()
                .find_map(|len| routes.get(&Prefix::truncating(prefix.address(), len)).copied())
        };
        let above = |routes: &BTreeMap<Prefix<K>, NextHopId>, prefix: Prefix<K>| {
            (0..prefix.len()).rev().find_map(|len| {
                routes.get(&Prefix::truncating(prefix.address(), len)).map(|next_hop| (len, *next_hop))
            })
        };
        assert_eq!((table.len(), table.used_len()), (told.len(), used.len()));
        assert!(table.iter().eq(told.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))));
        assert!(table.used().eq(used.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))));
        for (bits, len, ..) in script {
            let prefix = Prefix::truncating(address(*bits), wide + len);
            assert_eq!(table.get(prefix), told.get(&prefix).copied().unwrap_or_default());
            assert_eq!(table.used_above(prefix), above(&used, prefix), "{prefix}");
            let within = used.range(prefix..).take_while(|(route, _)| prefix.covers(**route));
            assert!(
                table.used_within(prefix).eq(within.map(|(route, next_hop)| (*route, *next_hop))),
                "{prefix}"
            );
        }
        for (prefix, next_hop) in &told {
            let is_used = is_plain || covering(&told, *prefix) != Some(*next_hop);
            assert_eq!(used.get(prefix), is_used.then_some(next_hop), "{prefix}");
        }
        // For an engine of the other kind, and on with its deltas.
        table.choose_anew(!is_plain);
        used = table.used().collect();
        assert_eq!(table.used_len(), used.len());
        for (prefix, next_hop) in &told {
            let is_used = !is_plain || covering(&told, *prefix) != Some(*next_hop);
            assert_eq!(used.get(prefix), is_used.then_some(next_hop), "{prefix} once chosen anew");
        }
        for prefix in told.into_keys() {
            table.set(prefix, NextHopId::NONE);
        }
        commit(&mut table, &mut used);
        assert_eq!((used.len(), table.used_len(), table.trie.size()), (0, 0, (1, 0)));
    }

    proptest! {
        // Few prefixes on both sides of where a page ends: nesting is the rule.
        #[test]
        fn what_is_used_is_what_was_told_less_what_is_superfluous(
            script in prop::collection::vec((0u32..256, 0u8..=8, 0u32..4, 0u8..6), 1..200),
            is_plain: bool,
        ) {
            for wide in [0, 4, 12, 20, 24] {
                play::<u32>(&script, wide, is_plain);
            }
            for wide in [0, 8, 20, 32, 44, 116, 120] {
                play::<u128>(&script, wide, is_plain);
            }
        }
    }
}
