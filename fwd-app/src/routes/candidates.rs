//! What every source says of each prefix, and which route wins: the one place where that is decided.
//!
//! The order of sources is: the addresses of ports, the control socket, then files and feeds as [`Candidates::set_order`] says, which may be
//! called again at any time. Of one feed the lowest metric comes first. The first route wins whose next hop can forward
//! (RFC 1812 5.3.12.3), else the first that has a next hop. When a prefix has routes of feeds alone and none of their paths leads to a port,
//! the prefix is unreachable, or has no route ([`Candidates::unreachable`]).
//!
//! A change here marks prefixes ([`Marked`]); [`super::commit`] chooses their winners. A next hop whose link fails or comes back, or that
//! gets or loses its way to a gateway, concerns prefixes with several candidates, which a [`Walk`] finds in slices.
//!
//! A route that only files have lies in the RIB and not here, so a forwarder without other sources has two empty tables. The first route
//! of another source brings the file's route here. An entry ends by [`Candidates::forget`], when it has been committed that no other
//! source has the prefix.
//!
//! A feed's routes carry the epoch of their last announcement. [`Candidates::begin_epoch`] makes all of them stale, which costs nothing
//! for a table of any size. [`Candidates::sweep`] takes the routes that are still stale out of the choice; a walk removes them.

use super::commit::Marked;
use super::distinct::{Distinct, Known, RouteId, UNUSED_MIN, Wanted};
use super::feeds::Route;
use super::walk::{Causes, Walk};
use crate::datapath::EgressTable;
use fib::{Family, IpPrefix, Key, NextHopId, Prefix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// How many sources there may be.
const SOURCES: usize = 1 << u8::BITS;
/// How many prefixes are looked at for each distinct route when unused ones are looked for, at most.
const PREFIXES_PER_ROUTE: usize = 1 << 8;
/// How many prefixes a turn of a walk looks at, at most: some milliseconds.
const WALK_MAX: usize = 1 << 15;

/// A source of routes. Its number says nothing about which is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceId(u8);

impl SourceId {
    /// The addresses of ports.
    pub(crate) const OWN: Self = Self(0);
    /// The control socket.
    pub(crate) const CTL: Self = Self(1);
    /// The route files and their updates.
    pub(crate) const FILES: Self = Self(2);

    /// Feed number `feed`, counted from 0.
    pub(crate) const fn of_feed(feed: u8) -> Self {
        Self((Self::FILES.0 + 1).wrapping_add(feed))
    }

    /// Whether it is a feed, which has metrics, stale routes and a limit.
    const fn is_feed(self) -> bool {
        self.0 > Self::FILES.0
    }

    /// Whether a user owns its routes, and gets an error when the engine refuses one.
    pub(super) const fn is_user(self) -> bool {
        self.0 == Self::CTL.0 || self.0 == Self::FILES.0
    }

    /// Whether its routes are left out when the engine has no table for their family. Those of a user are refused.
    const fn may_be_left_out(self) -> bool {
        !self.is_user()
    }
}

/// What a source says of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) source: SourceId,
    pub(crate) prefix: IpPrefix,
    /// The metric; 0 of a source that is no feed.
    pub(crate) metric: u32,
    /// The route; `None` when the source has none any more.
    pub(crate) route: Option<RouteId>,
}

/// The route of a prefix that is to be in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Winner {
    pub(crate) source: SourceId,
    pub(crate) metric: u32,
    /// Its next hop; [`NextHopId::NONE`] when the prefix has none.
    pub(crate) id: NextHopId,
    /// The route is that of a feed and leads to no port.
    pub(crate) is_foreign: bool,
}

impl Winner {
    const NONE: Self = Self { source: SourceId::FILES, metric: 0, id: NextHopId::NONE, is_foreign: false };
}

/// Where the route in service of a prefix comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: SourceId,
    pub(crate) metric: u32,
    /// Whether its feed has not announced it again since it came back.
    pub(crate) is_stale: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceRoutes {
    pub(crate) routes: u64,
    /// Those that are stale.
    pub(crate) stale: u64,
    /// Announcements left out since the table was full.
    pub(crate) over_limit: u64,
}

impl SourceRoutes {
    /// Whether the routes that are not stale have reached the limit. Stale ones are about to go, and a source announces a route only once, so
    /// they take no room from its new routes.
    const fn is_full(self, routes_max: u64) -> bool {
        self.routes - self.stale >= routes_max
    }

    /// Whether there is no room for a further route. Stale routes have a limit as well, for a source that comes and goes.
    const fn has_no_room(self, routes_max: u64) -> bool {
        self.is_full(routes_max) || self.routes >= routes_max.saturating_mul(2)
    }

    /// Those of two VRFs.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            routes: self.routes + other.routes,
            stale: self.stale + other.stale,
            over_limit: self.over_limit + other.over_limit,
        }
    }
}

/// What becomes of the routes of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedOutcome {
    /// Routes whose paths have no port here.
    pub(crate) unresolved: u64,
    /// Of these, those that are installed as unreachable.
    pub(crate) unreachable: u64,
    /// Routes of a family that the engine has no table for.
    pub(crate) no_table: u64,
    /// Routes that the engine has refused.
    pub(crate) refused: u64,
}

/// A route that a source has of a prefix.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    route: RouteId,
    metric: u32,
    /// When it was announced last, in epochs of its source.
    epoch: u16,
    source: SourceId,
    /// Whether the prefix has more candidates, in [`FamilyCandidates::others`].
    has_others: bool,
}

/// What tells the candidates of a prefix apart, and the order in which they are stored: the source, and the metric.
type Rank = (SourceId, u32);

impl Candidate {
    /// The file's route, or [`RouteId::NOTHING`].
    const fn of_file(route: RouteId) -> Self {
        Self { route, metric: 0, epoch: 0, source: SourceId::FILES, has_others: false }
    }

    fn rank(&self) -> Rank {
        (self.source, self.metric)
    }

    fn is_route(&self) -> bool {
        self.route != RouteId::NOTHING
    }

    /// Whether no source but files has a route of the prefix.
    fn is_lone(&self) -> bool {
        self.source == SourceId::FILES && !self.has_others
    }
}

#[derive(Default)]
struct FamilyCandidates<K: Key> {
    first: FxHashMap<Prefix<K>, Candidate>,
    /// The further candidates of prefixes with several, by rank; never an empty list.
    others: FxHashMap<Prefix<K>, Vec<Candidate>>,
}

impl<K: Key> FamilyCandidates<K> {
    /// The candidates of a prefix, by rank.
    fn of(&self, prefix: Prefix<K>) -> impl Iterator<Item = &Candidate> {
        let first = self.first.get(&prefix);
        let has_others = first.is_some_and(|first| first.has_others);
        first.into_iter().chain(self.others.get(&prefix).filter(|_| has_others).into_iter().flatten())
    }

    /// Sets or removes the candidate of a rank, and returns the replaced one. `file` is the file's route of a prefix without an entry.
    fn set(
        &mut self,
        prefix: Prefix<K>,
        rank: Rank,
        new: Option<Candidate>,
        file: impl FnOnce() -> RouteId,
    ) -> Option<Candidate> {
        let first = match self.first.entry(prefix) {
            Entry::Vacant(entry) => {
                let new = new?;
                let file = Candidate::of_file(file());
                if !file.is_route() {
                    entry.insert(new);
                    return None;
                }
                entry.insert(file)
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if let (Some(new), false, true) = (new, first.has_others, first.rank() == rank) {
            return Some(std::mem::replace(first, new)).filter(Candidate::is_route);
        }
        let others = if first.has_others { self.others.remove(&prefix) } else { None };
        let mut all = others.unwrap_or_default();
        all.insert(0, *first);
        let replaced = match all.binary_search_by_key(&rank, Candidate::rank) {
            Ok(at) => all.splice(at..=at, new).next(),
            Err(at) => {
                all.splice(at..at, new);
                None
            }
        };
        all.retain(Candidate::is_route);
        *first = if all.is_empty() { Candidate::of_file(RouteId::NOTHING) } else { all.remove(0) };
        first.has_others = !all.is_empty();
        if first.has_others {
            self.others.insert(prefix, all);
        }
        replaced.filter(Candidate::is_route)
    }

    fn forget(&mut self, prefix: Prefix<K>) {
        if let Entry::Occupied(entry) = self.first.entry(prefix)
            && entry.get().is_lone()
        {
            entry.remove();
        }
    }

    fn all(&self) -> impl Iterator<Item = (IpPrefix, &Candidate)> {
        let others = self.others.iter().flat_map(|(prefix, all)| all.iter().map(move |of| (prefix, of)));
        self.first.iter().chain(others).map(|(prefix, of)| (K::wrap(*prefix), of))
    }

    /// The prefixes with an entry, or with `has_lone` false those with several candidates.
    fn prefixes(&self, has_lone: bool) -> Vec<Prefix<K>> {
        if has_lone { self.first.keys().copied().collect() } else { self.others.keys().copied().collect() }
    }

    fn forget_epochs(&mut self, source: SourceId) {
        let all = self.first.values_mut().chain(self.others.values_mut().flatten());
        all.filter(|of| of.source == source).for_each(|of| of.epoch = 0);
    }
}

#[derive(Clone, Copy, Default)]
struct SourceState {
    epoch: u16,
    /// Routes of epochs before this one count no longer.
    swept: u16,
    count: SourceRoutes,
}

struct Choice {
    /// The egress table, by which a next hop can forward or not; `None` before the ports are known.
    egress: Option<Arc<EgressTable>>,
    without_table: Vec<Family>,
    /// The place of each source in the order of preference, by [`SourceId`]; the lowest comes first.
    places: [u8; SOURCES],
}

impl Choice {
    /// The preferred one of a prefix's candidates that have a next hop.
    fn winner<'a>(
        &self,
        (routes, unreachable): (&Distinct, NextHopId),
        family: Family,
        candidates: impl Iterator<Item = &'a Candidate>,
    ) -> Winner {
        let is_left_out = self.without_table.contains(&family);
        let mut best: Option<(Preference, Winner)> = None;
        for candidate @ Candidate { route, metric, source, .. } in candidates {
            if is_left_out && source.may_be_left_out() {
                continue;
            }
            let Known { route, id, .. } = routes.get(*route);
            let winner = Winner { source: *source, metric: *metric, id: *id, is_foreign: false };
            let (winner, standing) = match **route {
                _ if !id.is_none() => {
                    (winner, if self.is_usable(*id) { Standing::Usable } else { Standing::Unusable })
                }
                Route::Paths(_) => {
                    (Winner { id: unreachable, is_foreign: true, ..winner }, Standing::Foreign)
                }
                _ => continue,
            };
            let preference = self.preference(candidate, standing);
            if best.is_none_or(|(before, _)| preference < before) {
                best = Some((preference, winner));
            }
        }
        best.map_or(Winner::NONE, |(_, winner)| winner)
    }

    fn is_usable(&self, id: NextHopId) -> bool {
        self.egress.as_ref().is_none_or(|egress| egress.is_usable(id))
    }

    /// The lowest wins.
    fn preference(&self, of: &Candidate, standing: Standing) -> Preference {
        (standing, self.places[usize::from(of.source.0)], of.metric)
    }
}

/// Whether a route can forward, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Usable,
    /// Its next hop cannot forward now.
    Unusable,
    /// It leads to no port.
    Foreign,
}

/// The standing of a route, the place of its source, and its metric.
type Preference = (Standing, u8, u32);

/// The place of each source: addresses, ctl, those of `order`, then the others by number.
fn places(order: &[SourceId]) -> [u8; SOURCES] {
    let fixed = [SourceId::OWN, SourceId::CTL];
    let others = (0..=u8::MAX).map(SourceId).filter(|of| !fixed.contains(of) && !order.contains(of));
    let ordered = order.iter().copied().filter(|of| !fixed.contains(of));
    let mut places = [0; SOURCES];
    for (place, SourceId(source)) in (0..=u8::MAX).zip(fixed.into_iter().chain(ordered).chain(others)) {
        places[usize::from(source)] = place;
    }
    places
}

/// The routes of all sources.
pub(crate) struct Candidates {
    v4: FamilyCandidates<u32>,
    v6: FamilyCandidates<u128>,
    /// By [`SourceId`].
    sources: Vec<SourceState>,
    pub(super) routes: Distinct,
    choice: Choice,
    /// Prefixes whose winner is to be chosen.
    pub(crate) marked: Marked,
    /// See [`Self::walk`].
    pub(crate) walk: Walk,
    /// The routes of users that were replaced since the last commit.
    undo: Vec<Said>,
    /// The most routes of a feed.
    pub(super) routes_max: u64,
    /// The next hop of prefixes whose routes lead to no port; with [`NextHopId::NONE`] they have no route.
    pub(super) unreachable: NextHopId,
}

impl Default for Candidates {
    fn default() -> Self {
        Self {
            v4: FamilyCandidates::default(),
            v6: FamilyCandidates::default(),
            sources: vec![SourceState::default(); SOURCES],
            routes: Distinct::new(),
            marked: Marked::default(),
            walk: Walk::default(),
            choice: Choice { egress: None, without_table: Vec::new(), places: places(&[]) },
            undo: Vec::new(),
            routes_max: u64::MAX,
            unreachable: NextHopId::NONE,
        }
    }
}

impl Candidates {
    /// Files and feeds are preferred in this order from now on; those that it lacks come after it. Returns how many prefixes have several
    /// candidates, and so may have another winner than before.
    pub(crate) fn set_order(&mut self, order: &[SourceId]) -> usize {
        self.choice.places = places(order);
        let contested = self.v4.others.len() + self.v6.others.len();
        self.walk.note(&Causes { is_reordered: contested > 0, ..Causes::default() });
        contested
    }

    /// The engine has no table for these families: of their prefixes the routes of ctl and files alone count. Marks the prefixes of a family
    /// that gets or loses its table. Returns the families that lose theirs and have some.
    pub(crate) fn set_without_table(&mut self, families: Vec<Family>) -> Vec<Family> {
        let before = std::mem::replace(&mut self.choice.without_table, families);
        let mut lost = Vec::new();
        for family in Family::ALL {
            let lacks_table = self.lacks_table(family);
            if lacks_table != before.contains(&family) {
                let prefixes = self.prefixes(family);
                lost.extend((lacks_table && !prefixes.is_empty()).then_some(family));
                self.marked.mark_all(prefixes);
            }
        }
        lost
    }

    /// Whether the engine has no table for a family.
    pub(crate) fn lacks_table(&self, family: Family) -> bool {
        self.choice.without_table.contains(&family)
    }

    /// A distinct route. `find` finds its next hop, unless the route is known.
    pub(crate) fn route(
        &mut self,
        route: &Arc<Route>,
        find: impl FnOnce(Wanted<'_>) -> NextHopId,
    ) -> RouteId {
        if self.routes.by_route.len() >= self.routes.unused_at {
            self.forget_unused();
        }
        self.routes.find_or_add(route, find)
    }

    /// The route of a next hop that is known.
    pub(crate) fn of_hop(&mut self, id: NextHopId) -> Option<RouteId> {
        (!id.is_none()).then(|| self.routes.of_hop(id))
    }

    /// As [`Self::set`] for a feed: marks the prefix if it may have another winner.
    pub(crate) fn say(&mut self, said: &Said, file: impl FnOnce() -> NextHopId) {
        if self.set(said, file) {
            self.marked.mark(said.prefix);
        }
    }

    /// Takes what a source says. `file` is the file's route, which is asked for when the prefix has no entry. Returns whether that is
    /// another route than before, so that the prefix may have another winner. [`Self::roll_back`] restores the earlier route of a user.
    pub(crate) fn set(&mut self, said: &Said, file: impl FnOnce() -> NextHopId) -> bool {
        let Said { source, prefix, .. } = *said;
        if source.is_user() {
            self.undo.push(Said { route: self.said(prefix, source), ..*said });
        }
        self.replace(said, file)
    }

    fn replace(&mut self, said: &Said, file: impl FnOnce() -> NextHopId) -> bool {
        let Said { source, prefix, metric, route } = *said;
        let SourceState { epoch, count, .. } = self.sources[usize::from(source.0)];
        let is_known = |of: &Candidate| of.epoch == epoch || !count.is_full(self.routes_max);
        let is_full = source.is_feed() && count.has_no_room(self.routes_max);
        if is_full && route.is_some() && !self.get(prefix, (source, metric)).is_some_and(is_known) {
            self.sources[usize::from(source.0)].count.over_limit += 1;
            return false;
        }
        let new = route.map(|route| Candidate { route, metric, epoch, source, has_others: false });
        let Self { v4, v6, routes, .. } = self;
        let file = || routes.of_hop(file());
        let replaced = match prefix {
            IpPrefix::V4(prefix) => v4.set(prefix, (source, metric), new, file),
            IpPrefix::V6(prefix) => v6.set(prefix, (source, metric), new, file),
        };
        let SourceState { swept, count, .. } = &mut self.sources[usize::from(source.0)];
        // Of files the RIB has most.
        if source != SourceId::FILES {
            count.routes = count.routes + u64::from(new.is_some()) - u64::from(replaced.is_some());
            count.stale -= u64::from(replaced.is_some_and(|replaced| replaced.epoch != epoch));
        }
        let was_swept = replaced.is_some_and(|replaced| replaced.epoch < *swept);
        was_swept || replaced.map(|replaced| replaced.route) != new.map(|new| new.route)
    }

    /// The changes since the last commit are in service.
    pub(crate) fn settle(&mut self) {
        self.undo.clear();
    }

    /// Takes back what files and ctl have said since the last commit.
    pub(crate) fn roll_back(&mut self) {
        while let Some(before) = self.undo.pop() {
            self.replace(&before, || NextHopId::NONE);
        }
    }

    /// Ends the entry of a prefix that files alone have a route of, or nobody.
    pub(crate) fn forget(&mut self, prefix: IpPrefix) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.forget(prefix),
            IpPrefix::V6(prefix) => self.v6.forget(prefix),
        }
    }

    /// The winner of a prefix; `None` without an entry: the RIB has the file's route then, if there is one.
    pub(crate) fn winner(&self, prefix: IpPrefix) -> Option<Winner> {
        let counts = |of: &&Candidate| !self.is_swept(of);
        self.has(prefix).then(|| {
            self.choice.winner(
                (&self.routes, self.unreachable),
                prefix.family(),
                self.of(prefix).filter(counts),
            )
        })
    }

    /// Whether a route counts no longer, since it was stale when its source was swept.
    fn is_swept(&self, of: &Candidate) -> bool {
        of.epoch < self.sources[usize::from(of.source.0)].swept
    }

    /// Whose the route of a prefix is that is in service with the next hop `id`. `None` when no source says so any more, and the engine
    /// has refused what they say now.
    pub(crate) fn origin(&self, prefix: IpPrefix, id: NextHopId) -> Option<Origin> {
        let Some(winner) = self.winner(prefix) else {
            return Some(Origin { source: SourceId::FILES, metric: 0, is_stale: false });
        };
        let of = match winner.id == id {
            true => self.get(prefix, (winner.source, winner.metric)),
            false => {
                let all = self.of(prefix).filter(|of| of.is_route());
                let having_it = all.filter(|of| self.routes.get(of.route).id == id);
                having_it.min_by_key(|of| self.choice.preference(of, Standing::Usable))
            }
        }?;
        let is_stale = of.source.is_feed() && of.epoch != self.sources[usize::from(of.source.0)].epoch;
        Some(Origin { source: of.source, metric: of.metric, is_stale })
    }

    /// What a source that is no feed says of a prefix.
    pub(crate) fn said(&self, prefix: IpPrefix, source: SourceId) -> Option<RouteId> {
        self.get(prefix, (source, 0)).map(|candidate| candidate.route)
    }

    /// Whether files or ctl have a route of a prefix that has one.
    pub(crate) fn has_user_route(&self, prefix: IpPrefix) -> bool {
        let said = |source| self.said(prefix, source).is_some();
        !self.has(prefix) || said(SourceId::FILES) || said(SourceId::CTL)
    }

    /// The next hop of the files' route of a prefix that has an entry, or [`NextHopId::NONE`].
    pub(crate) fn file_route(&self, prefix: IpPrefix) -> NextHopId {
        self.said(prefix, SourceId::FILES).map_or(NextHopId::NONE, |route| self.routes.get(route).id)
    }

    /// The route with which a prefix wins.
    pub(crate) fn route_of(
        &self,
        prefix: IpPrefix,
        Winner { source, metric, .. }: &Winner,
    ) -> Option<&Route> {
        self.get(prefix, (*source, *metric)).map(|candidate| &*self.routes.get(candidate.route).route)
    }

    pub(crate) fn has(&self, prefix: IpPrefix) -> bool {
        self.of(prefix).next().is_some()
    }

    /// The prefixes of a family that have an entry.
    pub(crate) fn prefixes(&self, family: Family) -> Vec<IpPrefix> {
        match family {
            Family::V4 => self.v4.first.keys().copied().map(IpPrefix::V4).collect(),
            Family::V6 => self.v6.first.keys().copied().map(IpPrefix::V6).collect(),
        }
    }

    /// How many routes a source other than files has.
    pub(crate) fn count(&self, source: SourceId) -> SourceRoutes {
        self.sources[usize::from(source.0)].count
    }

    /// All routes of a source are stale from now on, until they are announced again.
    pub(crate) fn begin_epoch(&mut self, source: SourceId) {
        let SourceState { epoch, swept, count } = &mut self.sources[usize::from(source.0)];
        if count.routes == count.stale {
            return; // so that the epochs last, however often a peer comes and goes
        }
        count.stale = count.routes;
        *epoch = epoch.checked_add(1).unwrap_or_else(|| {
            self.v4.forget_epochs(source);
            self.v6.forget_epochs(source);
            *swept = 0;
            1
        });
    }

    /// Takes the stale routes of a source out of the choice. [`Self::take_marked`] finds their prefixes and removes them.
    pub(crate) fn sweep(&mut self, source: SourceId) {
        let SourceState { epoch, swept, count } = &mut self.sources[usize::from(source.0)];
        if count.stale > 0 {
            *swept = *epoch;
            self.walk.note(&Causes { has_swept: true, ..Causes::default() });
        }
    }

    /// Takes prefixes whose winner is to be chosen, as many as one commit may hold: all that were marked one at a time since the last call,
    /// and a part of the others, which include those that the walk finds. Removes their swept routes.
    pub(crate) fn take_marked(&mut self) -> Vec<IpPrefix> {
        let found = self.walk(self.marked.room());
        self.marked.mark_all(found);
        let taken = self.marked.take();
        taken.iter().for_each(|prefix| self.drop_swept(*prefix));
        taken
    }

    fn drop_swept(&mut self, prefix: IpPrefix) {
        let all = self.of(prefix).filter(|of| self.is_swept(of));
        let swept: Vec<Rank> = all.map(Candidate::rank).collect();
        for (source, metric) in swept {
            self.replace(&Said { source, prefix, metric, route: None }, || NextHopId::NONE);
        }
    }

    /// Takes a new egress table. Next hops that can forward in one of both tables alone are revalued: see [`Self::walk`].
    pub(crate) fn set_egress(&mut self, egress: &Arc<EgressTable>) {
        if let Some(before) = self.choice.egress.replace(Arc::clone(egress)) {
            self.routes.revalue(|id| before.is_usable(id) != egress.is_usable(id));
        }
    }

    /// Looks at some prefixes, as long as [`Walk::is_pending`]. Returns prefixes that may have another winner, `found_max` at most: a candidate
    /// has another next hop or was swept, or there are several candidates and one has become usable or unusable, or sources have another order.
    pub(super) fn walk(&mut self, found_max: usize) -> Vec<IpPrefix> {
        let (moved, revalued) = self.routes.take_moved();
        self.walk.note(&Causes { moved, revalued, ..Causes::default() });
        if let Some(has_lone) = self.walk.begin() {
            (self.walk.v4, self.walk.v6) = (self.v4.prefixes(has_lone), self.v6.prefixes(has_lone));
        }
        let mut found = Vec::new();
        for _ in 0..WALK_MAX {
            if found.len() == found_max {
                break;
            }
            let Some(prefix) = self.walk.next() else { break };
            found.extend(self.is_concerned(prefix).then_some(prefix));
        }
        found
    }

    /// Whether a prefix may have another winner by the causes of the walk.
    fn is_concerned(&self, prefix: IpPrefix) -> bool {
        let Causes { moved, revalued, is_reordered, .. } = &self.walk.causes;
        let is_contested = self.of(prefix).nth(1).is_some();
        is_contested && *is_reordered
            || self.of(prefix).any(|of| {
                moved.contains(&of.route) || is_contested && revalued.contains(&of.route) || self.is_swept(of)
            })
    }

    /// Whether prefixes wait for another call of [`Self::take_marked`].
    pub(super) fn has_pending(&self) -> bool {
        self.walk.is_pending() || !self.marked.is_empty()
    }

    /// The next hops of all routes.
    pub(crate) fn ids(&mut self) -> impl Iterator<Item = NextHopId> {
        self.forget_unused();
        self.routes.known.iter().map(|known| known.id).chain([self.unreachable])
    }

    /// What becomes of the routes of `source`, but for those that the engine has refused.
    pub(crate) fn outcome(&self, source: SourceId) -> FeedOutcome {
        let mut outcome = FeedOutcome::default();
        for (prefix, of) in self.v4.all().chain(self.v6.all()).filter(|(_, of)| of.source == source) {
            if self.choice.without_table.contains(&prefix.family()) {
                outcome.no_table += 1;
            } else if self.routes.get(of.route).id.is_none() {
                outcome.unresolved += 1;
                let winner = self.winner(prefix).unwrap_or(Winner::NONE);
                let is_installed = winner.is_foreign && !winner.id.is_none();
                outcome.unreachable += u64::from(is_installed && (winner.source, winner.metric) == of.rank());
            }
        }
        outcome
    }

    fn of(&self, prefix: IpPrefix) -> impl Iterator<Item = &Candidate> {
        let (v4, v6) = match prefix {
            IpPrefix::V4(prefix) => (Some(self.v4.of(prefix)), None),
            IpPrefix::V6(prefix) => (None, Some(self.v6.of(prefix))),
        };
        v4.into_iter().flatten().chain(v6.into_iter().flatten())
    }

    fn get(&self, prefix: IpPrefix, rank: Rank) -> Option<&Candidate> {
        self.of(prefix).find(|of| of.rank() == rank && of.is_route())
    }

    fn forget_unused(&mut self) {
        let all = self.v4.all().chain(self.v6.all()).map(|(_, of)| of.route);
        let used: FxHashSet<_> = all.chain(self.undo.iter().filter_map(|undo| undo.route)).collect();
        self.routes.retain(&used);
        let prefixes = self.v4.first.len() + self.v6.first.len();
        self.routes.unused_at = UNUSED_MIN.max(2 * used.len()).max(prefixes / PREFIXES_PER_ROUTE);
    }
}

#[cfg(test)]
#[path = "candidates_test.rs"]
mod tests;
