//! The RIB: what the feeds told, and the compiler of it into what an engine has (the FIB).
//!
//! ```text
//! set  -> told, dirty          any number of times; ten changes of one route cost the engine one change, or none
//! commit: compile -> FibDelta -> the engine's apply     taken: told and used go together again
//!                                                       refused: all is as it was before the first `set` since the last commit
//! ```
//! For engines that [want fewer routes](EngineWriter::wants_fewer_routes), compiling leaves out routes that change no answer. A route
//! whose next hop is that of the longest route covering it is not *used*: a lookup that misses it finds the same next hop in that route.
//! In full tables of 2024 that is four routes in ten. A route left out comes back when the route that covers it changes.
//!
//! An engine stores no routes of its own. Each [`Change`] has the next hop that the engine has for the prefix and the one that it gets.
//! An engine that needs more (the route an address falls back to, all routes to rebuild its table) looks it up in the [`Rib`] that comes
//! with the delta.

mod trie;

use crate::{
    Change, EngineError, EngineWriter, Family, FibDelta, Generation, IpPrefix, Key, NextHopId, Prefix, Route,
    Routes,
};
use trie::{ROOT, Trie};

/// The routes of one family.
#[derive(Clone, Debug, Default)]
pub struct RibTable<K: Key> {
    trie: Trie<K>,
    told_len: usize,
    used_len: usize,
    /// The nodes told about since the last commit, each with what was told before.
    dirty: Vec<(u32, NextHopId)>,
    is_plain: bool,
    /// Nodes to compile, each with what its addresses fall back to: empty between calls.
    stack: Vec<(u32, NextHopId)>,
}

impl<K: Key> RibTable<K> {
    /// Makes room for `routes` more routes.
    pub fn reserve(&mut self, routes: usize) {
        self.trie.reserve(routes);
        self.dirty.reserve(routes);
    }

    /// Sets the next hop of `prefix`; [`NextHopId::NONE`] withdraws it. Returns what it was before (`NONE`: no route).
    pub fn set(&mut self, prefix: Prefix<K>, next_hop: NextHopId) -> NextHopId {
        let at = if next_hop.is_none() {
            match self.trie.find(prefix) {
                Some(at) => at,
                None => return NextHopId::NONE,
            }
        } else {
            self.trie.find_or_insert(prefix)
        };
        let node = &mut self.trie[at];
        let old = std::mem::replace(&mut node.told, next_hop);
        if old != next_hop && !std::mem::replace(&mut node.is_dirty, true) {
            self.dirty.push((at, old));
        }
        self.told_len += usize::from(old.is_none() && !next_hop.is_none());
        self.told_len -= usize::from(!old.is_none() && next_hop.is_none());
        old
    }

    /// The next hop of exactly `prefix`; `NONE` when there is no such route.
    #[must_use]
    pub fn get(&self, prefix: Prefix<K>) -> NextHopId {
        self.trie.find(prefix).map_or(NextHopId::NONE, |at| self.trie[at].told)
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
        self.trie.iter().filter(|node| !node.told.is_none()).map(|node| (node.prefix, node.told))
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
        self.trie.iter().filter(|node| !node.used.is_none()).map(|node| (node.prefix, node.used))
    }

    /// Of the routes in [`Self::used`] the longest that covers `prefix` and is shorter: its length and next hop. `prefix` is that of a
    /// change of the delta being committed, or of a route.
    #[must_use]
    pub fn used_above(&self, prefix: Prefix<K>) -> Option<(u8, NextHopId)> {
        let at = self.trie.find(prefix)?;
        self.trie.above(at, |node| (!node.used.is_none()).then_some((node.prefix.len(), node.used)))
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.trie.bytes() + (self.dirty.capacity() * size_of::<(u32, NextHopId)>()) as u64
    }

    /// Brings what is used to what was told. Returns what changes, sorted by prefix.
    fn compile(&mut self) -> Vec<Change<K>> {
        let mut changes = Vec::with_capacity(self.dirty.len());
        if self.dirty.len() > self.trie.len() / 8 {
            self.compile_node(ROOT, NextHopId::NONE, &mut changes);
            self.compile_below(ROOT, self.trie[ROOT].told, |_| true, &mut changes);
            return changes;
        }
        let dirty = std::mem::take(&mut self.dirty);
        for (at, before) in &dirty {
            let told = self.trie[*at].told;
            if told == *before {
                continue;
            }
            if self.is_plain {
                self.compile_node(*at, NextHopId::NONE, &mut changes);
                continue;
            }
            let inherited = self.trie.above(*at, |node| (!node.told.is_none()).then_some(node.told));
            let inherited = inherited.unwrap_or(NextHopId::NONE);
            self.compile_node(*at, inherited, &mut changes);
            // The routes right below fall back to this route, or to the one above it. With several changes the route above may have
            // changed too, so its old next hop is not known here: compile below in any case.
            let fallback = |told: NextHopId| if told.is_none() { inherited } else { told };
            if dirty.len() > 1 || fallback(told) != fallback(*before) {
                self.compile_below(*at, fallback(told), NextHopId::is_none, &mut changes);
            }
        }
        self.dirty = dirty;
        changes.sort_unstable_by_key(|change| change.prefix);
        changes
    }

    /// Compiles node `at`, whose addresses fall back to `inherited` without it.
    fn compile_node(&mut self, at: u32, inherited: NextHopId, changes: &mut Vec<Change<K>>) {
        let node = &mut self.trie[at];
        let is_left_out = node.told == inherited && !self.is_plain;
        let new = if is_left_out { NextHopId::NONE } else { node.told };
        let old = std::mem::replace(&mut node.used, new);
        if old != new {
            changes.push(Change { prefix: node.prefix, old, new });
            self.used_len += usize::from(old.is_none());
            self.used_len -= usize::from(new.is_none());
        }
    }

    /// Compiles the nodes below node `at`, whose addresses fall back to `fallback`. `goes_on` gets the next hop told for a node and returns
    /// whether to go on below it.
    fn compile_below(
        &mut self,
        at: u32,
        fallback: NextHopId,
        goes_on: impl Fn(NextHopId) -> bool,
        changes: &mut Vec<Change<K>>,
    ) {
        self.stack.extend(self.trie[at].below().rev().map(|child| (child, fallback)));
        while let Some((at, inherited)) = self.stack.pop() {
            self.compile_node(at, inherited, changes);
            let node = &self.trie[at];
            if goes_on(node.told) {
                let fallback = if node.told.is_none() { inherited } else { node.told };
                self.stack.extend(node.below().rev().map(|child| (child, fallback)));
            }
        }
    }

    /// The changes compiled last have been taken.
    fn settle(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for (at, _) in &dirty {
            self.trie[*at].is_dirty = false;
        }
        for (at, _) in &dirty {
            self.trie.tidy(*at);
        }
        // The list is kept unless it is that of a whole table.
        if dirty.capacity() <= self.trie.len() / 8 {
            self.dirty = dirty;
            self.dirty.clear();
        }
    }

    /// The changes compiled last have been refused: what was told since the commit before is forgotten.
    fn take_back(&mut self, changes: &[Change<K>]) {
        for change in changes {
            if let Some(at) = self.trie.find(change.prefix) {
                self.trie[at].used = change.old;
                self.used_len += usize::from(change.new.is_none());
                self.used_len -= usize::from(change.old.is_none());
            }
        }
        for (at, before) in &self.dirty {
            let told = std::mem::replace(&mut self.trie[*at].told, *before);
            self.told_len += usize::from(told.is_none() && !before.is_none());
            self.told_len -= usize::from(!told.is_none() && before.is_none());
        }
        self.settle();
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
            self.v4.settle();
            self.v6.settle();
        } else {
            self.v4.take_back(&delta.v4);
            self.v6.take_back(&delta.v6);
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

    /// What changes in the FIB by what was told since the last commit, taken to be committed. Sorted by prefix within each family.
    pub fn take_delta(&mut self) -> FibDelta {
        let delta = FibDelta { v4: self.v4.compile(), v6: self.v6.compile() };
        self.v4.settle();
        self.v6.settle();
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
    use crate::oracle::Oracle4;
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
    fn follow(table: &mut BTreeMap<Prefix4, NextHopId>, changes: &[Change<u32>]) {
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
        assert_eq!(rib.v4.trie.len(), 1, "nodes are given back");
    }

    #[test]
    fn a_refusal_takes_back_what_was_told() {
        let mut rib = Rib::new();
        let [wide, narrow] = ["10.0.0.0/8", "10.1.0.0/16"].map(route);
        rib.v4.set(wide, id(1));
        rib.v4.set(narrow, id(1));
        rib.take_delta();
        let (before, nodes) = (rib.full_delta(), rib.v4.trie.len());
        rib.v4.set(wide, id(2));
        rib.v4.set(narrow, NextHopId::NONE);
        rib.v4.set(route("10.2.0.0/16"), id(3));
        let refused: Result<(), usize> = rib.commit(|delta, rib| {
            assert_eq!((rib.v4.len(), rib.v4.used_len(), rib.v4.used().count()), (2, 2, 2));
            assert_eq!(rib.v4.used_above(route("10.2.0.0/16")), Some((8, id(2))));
            Err(delta.len())
        });
        assert_eq!(refused, Err(2), "the /8 and the new /16; the one withdrawn was not used");
        assert_eq!((rib.full_delta().v4, rib.v4.trie.len()), (before.v4, nodes));
        assert_eq!([rib.v4.get(wide), rib.v4.get(narrow)], [id(1), id(1)]);
        assert_eq!((rib.len(), rib.v4.used_len()), (2, 1));
        assert!(rib.take_delta().is_empty());
    }

    proptest! {
        #[test]
        fn answers_stay_and_no_route_is_superfluous(
            changes in prop::collection::vec((0u32..256, 0u8..=8, 0u32..4, 0u8..6), 1..200),
        ) {
            let (mut rib, mut told, mut used) = (Rib::new(), Oracle4::new(), BTreeMap::new());
            let mut pending = Vec::new();
            for (bits, len, next_hop, then) in changes {
                // Few and near the length of anchors: nesting is the rule.
                let prefix = Prefix4::truncating(bits << 12, 12 + len);
                rib.v4.set(prefix, id(next_hop));
                pending.push((prefix, id(next_hop)));
                match then {
                    0 | 1 => {
                        follow(&mut used, &rib.take_delta().v4);
                        pending.drain(..).for_each(|(prefix, next_hop)| told.set(prefix, next_hop));
                    }
                    2 => {
                        let _ = rib.commit(|_, _| Err::<(), ()>(()));
                        pending.clear();
                    }
                    _ => {}
                }
            }
            follow(&mut used, &rib.take_delta().v4);
            pending.drain(..).for_each(|(prefix, next_hop)| told.set(prefix, next_hop));
            let kept: Oracle4 = used.iter().map(|(prefix, next_hop)| (*prefix, *next_hop)).collect();
            for bits in 0..256_u32 {
                prop_assert_eq!(kept.lookup(bits << 12), told.lookup(bits << 12));
            }
            for (prefix, next_hop) in &used {
                let above = (0..prefix.len()).rev().find_map(|len| {
                    let above = used.get(&Prefix4::truncating(prefix.address(), len))?;
                    Some((len, *above))
                });
                prop_assert_ne!(above.map(|(_, id)| id), Some(*next_hop), "{} is superfluous", prefix);
                prop_assert_eq!(rib.v4.used_above(*prefix), above);
            }
            prop_assert_eq!(rib.v4.len(), told.len());
            prop_assert_eq!(rib.v4.used().collect::<Vec<_>>(), used.into_iter().collect::<Vec<_>>());
        }
    }
}
