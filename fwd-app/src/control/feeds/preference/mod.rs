//! Several feeds, one table: which announcement of a prefix the RIB gets, and which routes of a feed are stale.
//!
//! The best announcement is that of the preferred feed, and within a feed the one with the lowest metric. When it is withdrawn, the next
//! one comes back. A prefix that is announced once, as nearly all are, costs one entry of a hash table; further announcements lie in a
//! second table. Equal routes share one allocation.
//!
//! A feed's routes carry the epoch of their last announcement. [`FeedEvent::Stale`] begins a new epoch, which costs nothing for a table
//! of any size; [`FeedEvent::Sweep`] withdraws the routes of older epochs, of this feed alone.
//!
//! Invariant: the changes given out so far, applied in order, are the best announcements.

use super::{ChangeSet, FeedEvent, FeedId, Route};
use fib::{IpPrefix, Key, Prefix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The least number of distinct routes at which unused ones are looked for.
const UNUSED_MIN: usize = 1 << 10;

/// A change for the RIB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RibChange {
    /// The prefix.
    pub(crate) prefix: IpPrefix,
    /// Its best route; `None` when it has none any more. Equal routes are the same allocation.
    pub(crate) route: Option<Arc<Route>>,
    /// Whether no feed had a route before.
    pub(crate) is_new: bool,
}

/// How many routes a feed has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedRoutes {
    /// All of them.
    pub(crate) routes: u64,
    /// Those that are stale.
    pub(crate) stale: u64,
    /// Announcements left out since the table was full.
    pub(crate) over_limit: u64,
}

/// An announcement of a prefix.
struct Candidate {
    route: Arc<Route>,
    metric: u32,
    /// When it was announced last, in epochs of its feed.
    epoch: u16,
    feed: FeedId,
    /// Whether the prefix has more announcements, in [`Table::others`].
    has_others: bool,
}

impl Candidate {
    /// The lowest rank is the best.
    fn rank(&self) -> Rank {
        (self.feed, self.metric)
    }
}

type Rank = (FeedId, u32);

/// The announcements of one family.
struct Table<K: Key> {
    best: FxHashMap<Prefix<K>, Candidate>,
    /// The further announcements of prefixes with several, best first; never an empty list.
    others: FxHashMap<Prefix<K>, Vec<Candidate>>,
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self { best: FxHashMap::default(), others: FxHashMap::default() }
    }
}

/// What became of an announcement or a withdrawal.
struct Outcome {
    /// The epoch of the announcement that was replaced or withdrawn.
    before: Option<u16>,
    /// The prefix's best route, if it has changed.
    change: Option<Option<Arc<Route>>>,
    /// Whether the prefix had no announcement before.
    is_new: bool,
}

impl<K: Key> Table<K> {
    fn announce(&mut self, prefix: Prefix<K>, mut new: Candidate) -> Outcome {
        let best = match self.best.entry(prefix) {
            Entry::Vacant(entry) => {
                let change = Some(Some(Arc::clone(&new.route)));
                entry.insert(new);
                return Outcome { before: None, change, is_new: true };
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let was = Arc::clone(&best.route);
        let before = if new.rank() == best.rank() {
            best.route = new.route;
            Some(std::mem::replace(&mut best.epoch, new.epoch))
        } else {
            best.has_others = true;
            let others = self.others.entry(prefix).or_default();
            if new.rank() < best.rank() {
                // The others have higher ranks than the best, so it is not among them.
                new.has_others = true;
                others.insert(0, std::mem::replace(best, new));
                None
            } else {
                match others.binary_search_by_key(&new.rank(), Candidate::rank) {
                    Ok(at) => Some(std::mem::replace(&mut others[at], new).epoch),
                    Err(at) => {
                        others.insert(at, new);
                        None
                    }
                }
            }
        };
        Outcome { before, change: changed(&was, best), is_new: false }
    }

    /// `None` when there is no such announcement.
    fn withdraw(&mut self, prefix: Prefix<K>, rank: Rank) -> Option<Outcome> {
        let Entry::Occupied(mut best) = self.best.entry(prefix) else { return None };
        let is_best = best.get().rank() == rank;
        if !best.get().has_others {
            return is_best.then(|| Outcome {
                before: Some(best.remove().epoch),
                change: Some(None),
                is_new: false,
            });
        }
        let others = self.others.get_mut(&prefix)?;
        let at = if is_best { 0 } else { others.binary_search_by_key(&rank, Candidate::rank).ok()? };
        let other = others.remove(at);
        let has_others = !others.is_empty();
        if !has_others {
            self.others.remove(&prefix);
        }
        let best = best.get_mut();
        let gone = if is_best { std::mem::replace(best, other) } else { other };
        best.has_others = has_others;
        let change = if is_best { changed(&gone.route, best) } else { None };
        Some(Outcome { before: Some(gone.epoch), change, is_new: false })
    }

    fn has(&self, prefix: Prefix<K>, rank: Rank) -> bool {
        self.best.get(&prefix).is_some_and(|best| best.rank() == rank)
            || self.others.get(&prefix).is_some_and(|others| others.iter().any(|other| other.rank() == rank))
    }

    /// Every announcement of a feed.
    fn of_mut(&mut self, feed: FeedId) -> impl Iterator<Item = (Prefix<K>, &mut Candidate)> {
        let others = self.others.iter_mut();
        let others = others.flat_map(|(prefix, others)| others.iter_mut().map(|other| (*prefix, other)));
        let best = self.best.iter_mut().map(|(prefix, best)| (*prefix, best));
        best.chain(others).filter(move |(_, candidate)| candidate.feed == feed)
    }

    /// The prefixes and metrics of a feed's routes that are not of this epoch.
    fn stale(&mut self, feed: FeedId, epoch: u16) -> Vec<(Prefix<K>, u32)> {
        let stale = self.of_mut(feed).filter(|(_, candidate)| candidate.epoch != epoch);
        stale.map(|(prefix, candidate)| (prefix, candidate.metric)).collect()
    }
}

fn changed(was: &Arc<Route>, best: &Candidate) -> Option<Option<Arc<Route>>> {
    (!Arc::ptr_eq(was, &best.route)).then(|| Some(Arc::clone(&best.route)))
}

/// The state of a feed.
#[derive(Default)]
struct Feed {
    epoch: u16,
    count: FeedRoutes,
}

/// The announcements of all feeds.
pub(crate) struct Preference {
    v4: Table<u32>,
    v6: Table<u128>,
    feeds: Vec<Feed>,
    /// Each distinct route, once.
    routes: FxHashSet<Arc<Route>>,
    /// The number of distinct routes at which unused ones are looked for.
    unused_at: usize,
    routes_max: u64,
}

impl Preference {
    /// An empty table for `feeds` feeds, the most preferred first, each with at most `routes_max` routes.
    pub(crate) fn new(feeds: u8, routes_max: u64) -> Self {
        Self {
            v4: Table::default(),
            v6: Table::default(),
            feeds: (0..feeds).map(|_| Feed::default()).collect(),
            routes: FxHashSet::default(),
            unused_at: UNUSED_MIN,
            routes_max,
        }
    }

    /// Applies the events of a set that are about routes, and appends what changes for the RIB. A prefix may change several times; the
    /// last change counts.
    pub(crate) fn apply(&mut self, set: &ChangeSet, out: &mut Vec<RibChange>) {
        for event in &set.events {
            match event {
                FeedEvent::Announce { prefix, metric, route, .. } => {
                    self.announce(set.feed, *prefix, *metric, route, out);
                }
                FeedEvent::Withdraw { prefix, metric, .. } => self.withdraw(set.feed, *prefix, *metric, out),
                FeedEvent::Stale => self.begin_epoch(set.feed),
                FeedEvent::Sweep => self.sweep(set.feed, out),
                _ => {}
            }
        }
    }

    /// How many feeds there are.
    pub(crate) fn feeds(&self) -> usize {
        self.feeds.len()
    }

    /// How many routes a feed has.
    pub(crate) fn routes(&self, feed: FeedId) -> FeedRoutes {
        self.feeds.get(usize::from(feed.0)).map_or_else(FeedRoutes::default, |feed| feed.count)
    }

    /// The best route of a prefix, and its feed.
    pub(crate) fn best(&self, prefix: IpPrefix) -> Option<(FeedId, &Arc<Route>)> {
        let best = match prefix {
            IpPrefix::V4(prefix) => self.v4.best.get(&prefix),
            IpPrefix::V6(prefix) => self.v6.best.get(&prefix),
        };
        best.map(|best| (best.feed, &best.route))
    }

    fn announce(
        &mut self,
        feed: FeedId,
        prefix: IpPrefix,
        metric: u32,
        route: &Arc<Route>,
        out: &mut Vec<RibChange>,
    ) {
        let Some(state) = self.feeds.get_mut(usize::from(feed.0)) else { return };
        if state.count.routes >= self.routes_max {
            let is_known = match prefix {
                IpPrefix::V4(prefix) => self.v4.has(prefix, (feed, metric)),
                IpPrefix::V6(prefix) => self.v6.has(prefix, (feed, metric)),
            };
            if !is_known {
                state.count.over_limit += 1;
                return;
            }
        }
        let epoch = state.epoch;
        let route = self.intern(route);
        let new = Candidate { route, metric, epoch, feed, has_others: false };
        let Outcome { before, change, is_new } = match prefix {
            IpPrefix::V4(prefix) => self.v4.announce(prefix, new),
            IpPrefix::V6(prefix) => self.v6.announce(prefix, new),
        };
        let count = &mut self.feeds[usize::from(feed.0)].count;
        match before {
            Some(before) => count.stale -= u64::from(before != epoch),
            None => count.routes += 1,
        }
        out.extend(change.map(|route| RibChange { prefix, route, is_new }));
    }

    /// Withdraws the best route of a prefix, until its feed announces it again. Returns what changes for the RIB.
    pub(crate) fn withdraw_best(&mut self, prefix: IpPrefix) -> Option<RibChange> {
        let best = match prefix {
            IpPrefix::V4(prefix) => self.v4.best.get(&prefix).map(Candidate::rank),
            IpPrefix::V6(prefix) => self.v6.best.get(&prefix).map(Candidate::rank),
        };
        let (feed, metric) = best?;
        let mut out = Vec::with_capacity(1);
        self.withdraw(feed, prefix, metric, &mut out);
        // Nothing changes for the RIB when the next route is the same.
        out.pop()
    }

    /// The best route of every prefix, and its feed.
    pub(crate) fn all_best(&self) -> impl Iterator<Item = (IpPrefix, FeedId, &Arc<Route>)> {
        let v4 = self.v4.best.iter().map(|(prefix, best)| (IpPrefix::V4(*prefix), best));
        let v6 = self.v6.best.iter().map(|(prefix, best)| (IpPrefix::V6(*prefix), best));
        v4.chain(v6).map(|(prefix, best)| (prefix, best.feed, &best.route))
    }

    fn withdraw(&mut self, feed: FeedId, prefix: IpPrefix, metric: u32, out: &mut Vec<RibChange>) {
        let Some(state) = self.feeds.get_mut(usize::from(feed.0)) else { return };
        let outcome = match prefix {
            IpPrefix::V4(prefix) => self.v4.withdraw(prefix, (feed, metric)),
            IpPrefix::V6(prefix) => self.v6.withdraw(prefix, (feed, metric)),
        };
        let Some(Outcome { before, change, .. }) = outcome else { return };
        state.count.routes -= 1;
        state.count.stale -= u64::from(before != Some(state.epoch));
        out.extend(change.map(|route| RibChange { prefix, route, is_new: false }));
    }

    fn begin_epoch(&mut self, feed: FeedId) {
        let Some(state) = self.feeds.get_mut(usize::from(feed.0)) else { return };
        if state.count.routes == state.count.stale {
            return; // so that the epochs last, however often a peer comes and goes
        }
        state.count.stale = state.count.routes;
        state.epoch = state.epoch.checked_add(1).unwrap_or_else(|| {
            self.v4.of_mut(feed).for_each(|(_, candidate)| candidate.epoch = 0);
            self.v6.of_mut(feed).for_each(|(_, candidate)| candidate.epoch = 0);
            1
        });
    }

    fn sweep(&mut self, feed: FeedId, out: &mut Vec<RibChange>) {
        let Some(state) = self.feeds.get(usize::from(feed.0)) else { return };
        if state.count.stale == 0 {
            return;
        }
        let epoch = state.epoch;
        for (prefix, metric) in self.v4.stale(feed, epoch) {
            self.withdraw(feed, IpPrefix::V4(prefix), metric, out);
        }
        for (prefix, metric) in self.v6.stale(feed, epoch) {
            self.withdraw(feed, IpPrefix::V6(prefix), metric, out);
        }
    }

    /// The one allocation of a route.
    fn intern(&mut self, route: &Arc<Route>) -> Arc<Route> {
        if let Some(known) = self.routes.get(route) {
            return Arc::clone(known);
        }
        if self.routes.len() >= self.unused_at {
            self.routes.retain(|route| Arc::strong_count(route) > 1);
            self.unused_at = UNUSED_MIN.max(2 * self.routes.len());
        }
        self.routes.insert(Arc::clone(route));
        Arc::clone(route)
    }
}

#[cfg(test)]
mod tests;
