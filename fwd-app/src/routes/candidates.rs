//! The candidate routes of each prefix, and the choice of the winner.
//!
//! Order of sources: port addresses, the control socket, then files and feeds by [`Candidates::set_order`]; within a feed the lowest metric
//! is preferred. The winner is the first route whose next hop can forward (RFC 1812 5.3.12.3), else the first with a next hop. A change marks
//! prefixes ([`Marked`]); [`super::vrf`] chooses their winners. When a link or gateway fails or recovers, a [`Walk`] finds the prefixes.
//!
//! A route that only files have is in the RIB and not here. The first route of another source copies the file's route here;
//! [`Candidates::forget`] ends the entry once the withdrawal of all other sources is committed. A feed's routes carry the epoch of their
//! announcement: [`Candidates::begin_epoch`] makes all stale without visiting them, unless the epoch overflows.

use super::distinct::{Distinct, Known, RouteId, UNUSED_MIN, Wanted};
use super::feeds::Route;
use super::marked::{Causes, Marked, Walk};
use crate::datapath::EgressTable;
use fib::{Family, IpPrefix, Key, NextHopId, Prefix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::Arc;

const SOURCES: usize = 1 << u8::BITS;
/// Most prefixes examined for each distinct route in a search for unused ones.
const PREFIXES_PER_ROUTE: usize = 1 << 8;
/// Most prefixes that a turn of a walk examines: some milliseconds.
const WALK_MAX: usize = 1 << 15;

/// A source of routes. Its number does not imply preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceId(u8);

impl SourceId {
    pub(crate) const OWN: Self = Self(0);
    pub(crate) const CTL: Self = Self(1);
    pub(crate) const FILES: Self = Self(2);

    pub(crate) const fn of_feed(feed: u8) -> Self {
        Self((Self::FILES.0 + 1).wrapping_add(feed))
    }

    const fn is_feed(self) -> bool {
        self.0 > Self::FILES.0
    }

    /// Whether a user owns its routes, and gets an error when the engine refuses one.
    pub(super) const fn is_user(self) -> bool {
        self.0 == Self::CTL.0 || self.0 == Self::FILES.0
    }

    /// Whether its routes are left out when the engine has no table for their family; user routes are refused.
    const fn may_be_left_out(self) -> bool {
        !self.is_user()
    }
}

/// A source's route of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    pub(crate) source: SourceId,
    pub(crate) prefix: IpPrefix,
    /// 0 if the source is no feed.
    pub(crate) metric: u32,
    /// `None` withdraws the route.
    pub(crate) route: Option<RouteId>,
}

/// The route that a prefix should have in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Winner {
    pub(crate) source: SourceId,
    pub(crate) metric: u32,
    /// [`NextHopId::NONE`] for no route.
    pub(crate) id: NextHopId,
    /// A feed's route without a path to a port.
    pub(crate) is_foreign: bool,
}

impl Winner {
    const NONE: Self = Self { source: SourceId::FILES, metric: 0, id: NextHopId::NONE, is_foreign: false };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: SourceId,
    pub(crate) metric: u32,
    /// Whether its feed has not announced it again since it reconnected.
    pub(crate) is_stale: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourceRoutes {
    pub(crate) routes: u64,
    pub(crate) stale: u64,
    /// Announcements left out at the limit.
    pub(crate) over_limit: u64,
}

impl SourceRoutes {
    /// Whether fresh routes have reached the limit. Stale ones do not count: they are about to go, and a source announces a new route once.
    const fn is_full(self, routes_max: u64) -> bool {
        self.routes - self.stale >= routes_max
    }

    /// Whether there is no room for another route. Twice the limit bounds stale routes, for a source that reconnects again and again.
    const fn has_no_room(self, routes_max: u64) -> bool {
        self.is_full(routes_max) || self.routes >= routes_max.saturating_mul(2)
    }

    /// The sum of two VRFs.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            routes: self.routes + other.routes,
            stale: self.stale + other.stale,
            over_limit: self.over_limit + other.over_limit,
        }
    }
}

/// Numbers of a feed's routes that do not forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedOutcome {
    /// Routes without a path to a port.
    pub(crate) unresolved: u64,
    /// The unresolved routes that are installed as unreachable.
    pub(crate) unreachable: u64,
    pub(crate) no_table: u64,
    pub(crate) refused: u64,
}

/// The outcomes of all feeds, counted in slices. A prefix that is new since the start is missed.
pub(crate) struct OutcomeCounts {
    rest: Walk,
    /// By [`SourceId`].
    by_source: Vec<FeedOutcome>,
}

impl OutcomeCounts {
    pub(crate) fn outcome(&self, source: SourceId) -> FeedOutcome {
        self.by_source[usize::from(source.0)]
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    route: RouteId,
    metric: u32,
    /// The epoch of its source at the last announcement.
    epoch: u16,
    source: SourceId,
    /// Whether the prefix has more candidates, in [`FamilyCandidates::others`].
    has_others: bool,
}

/// Key of a prefix's candidates, in storage order: source and metric.
type Rank = (SourceId, u32);

impl Candidate {
    const fn of_file(route: RouteId) -> Self {
        Self { route, metric: 0, epoch: 0, source: SourceId::FILES, has_others: false }
    }

    fn rank(&self) -> Rank {
        (self.source, self.metric)
    }

    fn is_route(&self) -> bool {
        self.route != RouteId::NOTHING
    }

    /// Whether only files have a route of the prefix.
    fn is_lone(&self) -> bool {
        self.source == SourceId::FILES && !self.has_others
    }
}

#[derive(Default)]
struct FamilyCandidates<K: Key> {
    first: FxHashMap<Prefix<K>, Candidate>,
    /// Further candidates of a prefix, by rank; never an empty list.
    others: FxHashMap<Prefix<K>, Vec<Candidate>>,
}

impl<K: Key> FamilyCandidates<K> {
    fn candidates(&self, prefix: Prefix<K>) -> impl Iterator<Item = &Candidate> {
        let first = self.first.get(&prefix);
        let others = first.filter(|first| first.has_others).and_then(|_| self.others.get(&prefix));
        first.into_iter().chain(others.into_iter().flatten())
    }

    /// Sets or removes the candidate of a rank, and returns the previous one. `file` returns the file's route if the prefix has no entry.
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

    /// The prefixes with an entry; without `has_lone`, only those with several candidates.
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
    /// Routes of earlier epochs are excluded.
    swept: u16,
    count: SourceRoutes,
}

struct Choice {
    /// Knows which next hops can forward; `None` before the ports are known.
    egress: Option<Arc<EgressTable>>,
    without_table: Vec<Family>,
    /// The rank of each source in the order of preference, by [`SourceId`]; 0 is the most preferred.
    places: [u8; SOURCES],
}

impl Choice {
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

    fn preference(&self, of: &Candidate, standing: Standing) -> Preference {
        (standing, self.places[usize::from(of.source.0)], of.metric)
    }
}

/// Whether a route can forward; the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Usable,
    Unusable,
    Foreign,
}

/// The standing of a route, the place of its source, and its metric; the lowest wins.
type Preference = (Standing, u8, u32);

/// The place of each source: addresses, ctl, then `order`, then the others by number.
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

pub(crate) struct Candidates {
    v4: FamilyCandidates<u32>,
    v6: FamilyCandidates<u128>,
    /// By [`SourceId`].
    sources: Vec<SourceState>,
    pub(super) routes: Distinct,
    choice: Choice,
    pub(crate) marked: Marked,
    pub(crate) walk: Walk,
    /// The previous routes of users, for a rollback to the last commit.
    undo: Vec<Said>,
    pub(super) routes_max: u64,
    /// The next hop of prefixes whose routes lead to no port; [`NextHopId::NONE`] leaves them without a route.
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
    /// Sets the order of files and feeds; unlisted sources come last. Returns how many prefixes have several candidates.
    pub(crate) fn set_order(&mut self, order: &[SourceId]) -> usize {
        self.choice.places = places(order);
        let contested = self.v4.others.len() + self.v6.others.len();
        self.walk.note(&Causes { is_reordered: contested > 0, ..Causes::default() });
        contested
    }

    /// Sets the families without a table; a walk finds their prefixes. Returns the families that lose theirs and have prefixes.
    pub(crate) fn set_without_table(&mut self, families: Vec<Family>) -> Vec<Family> {
        let before = std::mem::replace(&mut self.choice.without_table, families);
        let has_prefixes = [!self.v4.first.is_empty(), !self.v6.first.is_empty()];
        let (mut has_other_table, mut lost) = ([false; 2], Vec::new());
        for ((family, has_prefixes), has_other) in
            Family::ALL.into_iter().zip(has_prefixes).zip(&mut has_other_table)
        {
            let lacks_table = self.lacks_table(family);
            *has_other = has_prefixes && lacks_table != before.contains(&family);
            lost.extend((*has_other && lacks_table).then_some(family));
        }
        self.walk.note(&Causes { has_other_table, ..Causes::default() });
        lost
    }

    pub(crate) fn lacks_table(&self, family: Family) -> bool {
        self.choice.without_table.contains(&family)
    }

    /// The id of a distinct route; `find` resolves the next hop of a new one.
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

    pub(crate) fn of_hop(&mut self, id: NextHopId) -> Option<RouteId> {
        (!id.is_none()).then(|| self.routes.of_hop(id))
    }

    /// Calls [`Self::set`] for a feed, and marks the prefix if it may have a new winner.
    pub(crate) fn set_and_mark(&mut self, said: &Said, file: impl FnOnce() -> NextHopId) {
        if self.set(said, file) {
            self.marked.mark(said.prefix);
        }
    }

    /// Sets or withdraws a route; `file` returns the file's route if the prefix has no entry. Returns whether there may be a new winner.
    pub(crate) fn set(&mut self, said: &Said, file: impl FnOnce() -> NextHopId) -> bool {
        let Said { source, prefix, .. } = *said;
        if source.is_user() {
            self.undo.push(Said { route: self.route_from(prefix, source), ..*said });
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
        // Most routes of files are in the RIB alone, so they are not counted.
        if source != SourceId::FILES {
            count.routes = count.routes + u64::from(new.is_some()) - u64::from(replaced.is_some());
            count.stale -= u64::from(replaced.is_some_and(|replaced| replaced.epoch != epoch));
        }
        let was_swept = replaced.is_some_and(|replaced| replaced.epoch < *swept);
        was_swept || replaced.map(|replaced| replaced.route) != new.map(|new| new.route)
    }

    /// Ends the rollback period: the changes are in service.
    pub(crate) fn settle(&mut self) {
        self.undo.clear();
    }

    /// Undoes the changes of files and ctl since the last commit.
    pub(crate) fn roll_back(&mut self) {
        while let Some(before) = self.undo.pop() {
            self.replace(&before, || NextHopId::NONE);
        }
    }

    /// Drops the entry of a prefix that only files or no source have a route of.
    pub(crate) fn forget(&mut self, prefix: IpPrefix) {
        match prefix {
            IpPrefix::V4(prefix) => self.v4.forget(prefix),
            IpPrefix::V6(prefix) => self.v6.forget(prefix),
        }
    }

    /// The winner of a prefix; `None` without an entry, when the RIB has the file's route, if one exists.
    pub(crate) fn winner(&self, prefix: IpPrefix) -> Option<Winner> {
        let mut all = self.candidates(prefix).peekable();
        all.peek()?;
        let counted = all.filter(|of| !self.is_swept(of));
        Some(self.choice.winner((&self.routes, self.unreachable), prefix.family(), counted))
    }

    fn is_swept(&self, of: &Candidate) -> bool {
        of.epoch < self.sources[usize::from(of.source.0)].swept
    }

    /// The source of the route in service with the next hop `id`. `None` when it is withdrawn, and the engine has refused its successor.
    pub(crate) fn origin(&self, prefix: IpPrefix, id: NextHopId) -> Option<Origin> {
        let Some(winner) = self.winner(prefix) else {
            return Some(Origin { source: SourceId::FILES, metric: 0, is_stale: false });
        };
        let of = match winner.id == id {
            true => self.get(prefix, (winner.source, winner.metric)),
            false => {
                let all = self.candidates(prefix).filter(|of| of.is_route());
                let having_it = all.filter(|of| self.routes.get(of.route).id == id);
                having_it.min_by_key(|of| self.choice.preference(of, Standing::Usable))
            }
        }?;
        let is_stale = of.source.is_feed() && of.epoch != self.sources[usize::from(of.source.0)].epoch;
        Some(Origin { source: of.source, metric: of.metric, is_stale })
    }

    /// The route of a source that is no feed.
    pub(crate) fn route_from(&self, prefix: IpPrefix, source: SourceId) -> Option<RouteId> {
        self.get(prefix, (source, 0)).map(|candidate| candidate.route)
    }

    /// The next hop of the files' route of a prefix with an entry, or [`NextHopId::NONE`].
    pub(crate) fn file_route(&self, prefix: IpPrefix) -> NextHopId {
        self.route_from(prefix, SourceId::FILES).map_or(NextHopId::NONE, |route| self.routes.get(route).id)
    }

    pub(crate) fn route_of(
        &self,
        prefix: IpPrefix,
        Winner { source, metric, .. }: &Winner,
    ) -> Option<&Route> {
        self.get(prefix, (*source, *metric)).map(|candidate| &*self.routes.get(candidate.route).route)
    }

    pub(crate) fn has(&self, prefix: IpPrefix) -> bool {
        self.candidates(prefix).next().is_some()
    }

    /// Numbers of routes of a source; not counted for files.
    pub(crate) fn count(&self, source: SourceId) -> SourceRoutes {
        self.sources[usize::from(source.0)].count
    }

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

    /// Excludes the stale routes of a source. [`Self::take_marked`] finds their prefixes and removes them.
    pub(crate) fn sweep(&mut self, source: SourceId) {
        let SourceState { epoch, swept, count } = &mut self.sources[usize::from(source.0)];
        if count.stale > 0 {
            *swept = *epoch;
            self.walk.note(&Causes { has_swept: true, ..Causes::default() });
        }
    }

    /// Takes the prefixes of one commit: all marked singly, and a part of the others, including the walk's. Removes their swept routes.
    pub(crate) fn take_marked(&mut self) -> Vec<IpPrefix> {
        let found = self.walk(self.marked.room());
        self.marked.mark_all(found);
        let taken = self.marked.take_batch();
        if self.sources.iter().any(|source| source.swept > 0 && source.count.stale > 0) {
            taken.iter().for_each(|prefix| self.drop_swept(*prefix));
        }
        taken
    }

    fn drop_swept(&mut self, prefix: IpPrefix) {
        let all = self.candidates(prefix).filter(|of| self.is_swept(of));
        let swept: Vec<Rank> = all.map(Candidate::rank).collect();
        for (source, metric) in swept {
            self.replace(&Said { source, prefix, metric, route: None }, || NextHopId::NONE);
        }
    }

    /// Sets the egress table. Next hops that can forward in only one of the old and the new table are revalued for the walk.
    pub(crate) fn set_egress(&mut self, egress: &Arc<EgressTable>) {
        if let Some(before) = self.choice.egress.replace(Arc::clone(egress)) {
            self.routes.revalue(|id| before.is_usable(id) != egress.is_usable(id));
        }
    }

    /// Examines a slice of prefixes while [`Walk::is_pending`]. Returns at most `found_max` prefixes that may have a new winner.
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

    fn is_concerned(&self, prefix: IpPrefix) -> bool {
        let Causes { moved, revalued, is_reordered, has_other_table, .. } = &self.walk.causes;
        let is_contested = self.candidates(prefix).nth(1).is_some();
        is_contested && *is_reordered
            || has_other_table[usize::from(matches!(prefix, IpPrefix::V6(_)))]
            || self.candidates(prefix).any(|of| {
                moved.contains(&of.route) || is_contested && revalued.contains(&of.route) || self.is_swept(of)
            })
    }

    pub(super) fn has_pending(&self) -> bool {
        self.walk.is_pending() || !self.marked.is_empty()
    }

    pub(crate) fn ids(&mut self) -> impl Iterator<Item = NextHopId> {
        self.forget_unused();
        self.routes.known.iter().map(|known| known.id).chain([self.unreachable])
    }

    /// Begins a count of the routes of feeds that do not forward. It visits no prefix if all routes have a next hop and a table.
    pub(crate) fn begin_outcomes(&self, has_refused: bool) -> OutcomeCounts {
        let mut rest = Walk::default();
        if has_refused || !self.choice.without_table.is_empty() || self.routes.has_unresolved() {
            (rest.v4, rest.v6) = (self.v4.prefixes(true), self.v6.prefixes(true));
        }
        OutcomeCounts { rest, by_source: vec![FeedOutcome::default(); SOURCES] }
    }

    /// Counts the routes of a slice of prefixes. Returns whether it was the last.
    pub(crate) fn count_outcomes(
        &self,
        OutcomeCounts { rest, by_source }: &mut OutcomeCounts,
        is_refused: impl Fn(IpPrefix) -> bool,
    ) -> bool {
        for _ in 0..WALK_MAX {
            let Some(prefix) = rest.next() else { return true };
            let winner = self.winner(prefix).unwrap_or(Winner::NONE);
            for of in self.candidates(prefix).filter(|of| of.source.is_feed()) {
                let outcome = &mut by_source[usize::from(of.source.0)];
                let is_chosen = (winner.source, winner.metric) == of.rank() && !winner.id.is_none();
                if self.lacks_table(prefix.family()) {
                    outcome.no_table += 1;
                } else if self.routes.get(of.route).id.is_none() {
                    outcome.unresolved += 1;
                    outcome.unreachable += u64::from(is_chosen && winner.is_foreign);
                }
                outcome.refused += u64::from(is_chosen && is_refused(prefix));
            }
        }
        false
    }

    fn candidates(&self, prefix: IpPrefix) -> impl Iterator<Item = &Candidate> {
        let (v4, v6) = match prefix {
            IpPrefix::V4(prefix) => (Some(self.v4.candidates(prefix)), None),
            IpPrefix::V6(prefix) => (None, Some(self.v6.candidates(prefix))),
        };
        v4.into_iter().flatten().chain(v6.into_iter().flatten())
    }

    fn get(&self, prefix: IpPrefix, rank: Rank) -> Option<&Candidate> {
        self.candidates(prefix).find(|of| of.rank() == rank && of.is_route())
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
