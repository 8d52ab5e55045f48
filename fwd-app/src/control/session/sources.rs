//! What each source of a session's routes says, and how that gets into the RIB.
//!
//! Every change goes through [`Candidates::set`](super::candidates::Candidates::set), and the winner, if it is another one, into the RIB
//! ([`Session::put`]). The exception is a route that files alone have, which the RIB holds by itself.

use super::candidates::{Changed, FeedOutcome, Said, SourceId, Winner};
use super::{Session, UpdateError, route_in};
use crate::control::feeds::learned::{FeedStatus, ForeignRoutes, Learned};
use crate::control::feeds::{ChangeSet, FeedEvent, FeedId, LinkAddress, Route};
use crate::datapath::EgressPort;
use crate::notice;
use crate::router::interface::InterfaceAddress;
use fib::feed::Hop;
use fib::{Family, IpPrefix, NextHop, NextHopError, NextHopId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::time::{Duration, Instant};

/// Change sets that are taken for one commit, at most: some ten thousand routes.
const SETS_PER_COMMIT: usize = 64;
/// Prefixes that are swept or looked at again for one commit, at most.
const PREFIXES_PER_COMMIT: usize = 1 << 14;
/// The table of next hops is not searched for unused ones below this size.
const HOPS_MIN: usize = 1 << 10;
/// How long after a commit a lookup from before it may still be on its way to its packets. A batch that an engine does not answer is
/// given up after twice `--stall-us`, which is two minutes at most.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

/// When to look for next hops that no route uses, and how long ago that was.
#[derive(Debug)]
pub(super) struct Unused {
    /// The size of the table at which they are looked for.
    at: usize,
    /// When they were marked.
    marked: Option<Instant>,
    /// How long they stay after that.
    stay: Duration,
}

impl Unused {
    /// For a table of this size.
    pub(super) fn new(hops: usize) -> Self {
        Self { at: HOPS_MIN.max(2 * hops), marked: None, stay: IN_FLIGHT_MAX }
    }
}

impl Session {
    /// Takes routes, links and neighbours from these feeds from now on; call [`Self::learn`].
    pub(crate) fn set_feeds(&mut self, feeds: Learned) {
        self.candidates.set_routes_max(feeds.routes_max());
        let unreachable = match feeds.foreign() {
            ForeignRoutes::Ignore => NextHopId::NONE,
            ForeignRoutes::Unreachable => self.hops.intern(NextHop::Unreachable).unwrap_or_default(),
        };
        self.candidates.set_unreachable(unreachable);
        self.learned = Some(Box::new(feeds));
    }

    /// Does what is due, for one commit: takes what feeds have announced, some change sets, and what follows from changes of links and
    /// neighbours. Returns whether there was anything.
    pub(crate) fn learn(&mut self) -> bool {
        let mut sets = Vec::new();
        let (mut has_new_neighbours, mut has_moved) = (false, false);
        if let Some(learned) = &mut self.learned {
            sets.extend(std::iter::from_fn(|| learned.take()).take(SETS_PER_COMMIT));
            (has_new_neighbours, has_moved) = (learned.take_new_neighbours(), learned.take_moved());
        }
        let has_more = self.candidates.has_stale() || !self.again.is_empty();
        if sets.is_empty() && !has_moved && !has_more && !self.changes.is_due() {
            return false;
        }
        if has_new_neighbours || has_moved {
            self.neighbours_have_changed();
        }
        if !sets.is_empty() || has_moved || has_more {
            self.commit_updates();
            sets.iter().for_each(|set| self.take_set(set));
            if has_moved {
                self.resolve_anew();
            }
            self.sweep();
            self.look_again();
            if let Err(error) = self.commit()
                && self.changes.refused().len() == 0
            {
                notice::warn(format_args!("{error:#}"));
            }
        }
        self.try_again();
        true
    }

    /// The kernel's neighbours or the state of its links have changed. At once: groups need nothing else when a path fails, and the routes
    /// to look at may be many.
    fn neighbours_have_changed(&mut self) {
        if let (Some(learned), Some(egress)) = (&self.learned, &mut self.egress) {
            self.hops.replace_kernel_neighbours(learned.interfaces().neighbours());
            egress.is_stale = true;
            if let Err(error) = self.refresh_egress() {
                notice::warn(format_args!("{error}"));
            }
        }
    }

    /// Brings updates of files into service that wait, before another source says something: if that is refused, files are not.
    fn commit_updates(&mut self) {
        if self.has_updates()
            && let Err(error) = self.commit()
        {
            notice::warn(format_args!("{error:#}"));
        }
    }

    /// Takes what a set says of routes.
    fn take_set(&mut self, set: &ChangeSet) {
        let Some(source) = self.learned.as_ref().map(|learned| learned.source(set.feed)) else { return };
        for event in &set.events {
            match event {
                FeedEvent::Announce { prefix, metric, route, .. } => {
                    let Self { learned, hops, candidates, .. } = self;
                    let interfaces = learned.as_ref().map(|learned| learned.interfaces());
                    let route = candidates.route(route, |route| {
                        let hop = interfaces.and_then(|interfaces| interfaces.next_hop(route, hops));
                        // Ids are used up only by millions of next hops in use; the route is then as one without a port.
                        hop.and_then(|hop| hops.intern(hop).ok()).unwrap_or_default()
                    });
                    self.take(&Said { source, prefix: *prefix, metric: *metric, route: Some(route) });
                }
                FeedEvent::Withdraw { prefix, metric, .. } => {
                    self.take(&Said { source, prefix: *prefix, metric: *metric, route: None });
                }
                FeedEvent::Stale => self.candidates.begin_epoch(source),
                FeedEvent::Sweep => self.candidates.sweep(source),
                _ => {}
            }
        }
        let count = self.candidates.count(source);
        if let Some(learned) = &mut self.learned {
            learned.note(set, count);
        }
    }

    /// Takes what a feed or the address of a port says of a prefix. It stays said when the engine refuses it.
    fn take(&mut self, said: &Said) {
        if said.route.is_some() && self.candidates.lacks_table(said.prefix.family()) {
            self.notice_family(said.prefix.family());
        }
        let Self { candidates, rib, .. } = self;
        let changed = candidates.set(said, || route_in(rib, said.prefix));
        self.changes.updates += u64::from(changed.winner.is_some());
        self.follow(said.prefix, changed, false);
    }

    /// Takes what files or ctl say of a prefix, until the next commit is refused.
    fn take_for_user(&mut self, said: &Said) {
        let Self { candidates, rib, .. } = self;
        let changed = candidates.set_for_user(said, || route_in(rib, said.prefix));
        self.follow(said.prefix, changed, true);
    }

    fn follow(&mut self, prefix: IpPrefix, Changed { winner, is_lone }: Changed, at_once: bool) {
        match winner {
            Some(winner) => {
                self.notice(prefix, &winner);
                self.put(prefix, winner, is_lone, at_once);
            }
            // What a user said may be taken back.
            None if is_lone || at_once => self.may_end(prefix),
            None => {}
        }
    }

    /// Says once of what is left out or unreachable, and why.
    fn notice(&mut self, prefix: IpPrefix, winner: &Winner) {
        if winner.is_foreign
            && !winner.id.is_none()
            && let (Some(learned), Some(Route::Paths(paths))) =
                (&mut self.learned, self.candidates.route_of(prefix, winner))
        {
            learned.notice_foreign(prefix, winner.source, paths);
        }
    }

    /// Withdraws some of the routes that are stale since their feed said so.
    fn sweep(&mut self) {
        for _ in 0..PREFIXES_PER_COMMIT {
            let Some(said) = self.candidates.next_stale() else { break };
            self.take(&said);
        }
    }

    /// Finds the next hops of the routes of feeds anew.
    fn resolve_anew(&mut self) {
        let Self { learned, hops, candidates, again, .. } = self;
        let Some(learned) = learned else { return };
        let found = candidates.resolve_anew(|route| {
            let hop = learned.interfaces().next_hop(route, hops);
            hop.and_then(|hop| hops.intern(hop).ok()).unwrap_or_default()
        });
        again.extend(found);
    }

    /// Puts the winners of some of the prefixes into the RIB that may have another one than before.
    fn look_again(&mut self) {
        let some = self.again.split_off(self.again.len().saturating_sub(PREFIXES_PER_COMMIT));
        for prefix in some {
            if let Some(winner) = self.candidates.winner(prefix)
                && winner.id != self.route(prefix)
            {
                self.notice(prefix, &winner);
                self.put(prefix, winner, false, false);
            }
        }
    }

    /// The addresses of TAPs with the indices of their ports, if they may have changed since the last call.
    pub(crate) fn take_tap_addresses(&mut self) -> Option<Vec<(u16, InterfaceAddress)>> {
        let learned = self.learned.as_mut()?;
        let found = learned.take_new_addresses().then(|| learned.interfaces().tap_addresses())?;
        // Others than those of hosts are none that a port can have.
        let of_host =
            |(port, at): (u16, LinkAddress)| Some((port, InterfaceAddress::new(at.address, at.len).ok()?));
        Some(found.into_iter().filter_map(of_host).collect())
    }

    /// The state of each feed, and what becomes of its routes.
    pub(crate) fn feed_status(&self) -> Vec<(FeedStatus, FeedOutcome)> {
        let Some(learned) = &self.learned else { return Vec::new() };
        let status = learned.status(|source| self.candidates.count(source));
        (0..).zip(status).map(|(feed, status)| (status, self.feed_outcome(FeedId(feed)))).collect()
    }

    /// What becomes of the routes of a feed.
    fn feed_outcome(&self, feed: FeedId) -> FeedOutcome {
        let Some(learned) = &self.learned else { return FeedOutcome::default() };
        let source = learned.source(feed);
        let winners = self.changes.refused().filter_map(|prefix| self.candidates.winner(prefix));
        let refused = winners.filter(|winner| winner.source == source && !winner.id.is_none()).count();
        FeedOutcome { refused: refused as u64, ..self.candidates.outcome(source) }
    }

    /// The names of the sources of routes, the most preferred first.
    pub(crate) fn source_order(&self) -> Vec<&'static str> {
        let order = self.learned.as_deref().map_or(&["files"][..], Learned::order);
        [&["ctl"], order].concat()
    }

    /// Adds a route over the control socket, or replaces it; in service after the next [`Self::commit`].
    ///
    /// # Errors
    /// As [`Self::update`], and [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn add_route(&mut self, prefix: IpPrefix, hop: &Hop) -> Result<(), UpdateError> {
        self.check_not_own(prefix)?;
        if let Hop::Hop(hop) = hop
            && let Some(egress) = &self.egress
        {
            EgressPort::check(hop, &egress.ports)?;
        }
        self.commit_updates();
        let id = hop.intern(&mut self.hops)?;
        let route = self.candidates.of_hop(id);
        self.take_for_user(&Said { source: SourceId::CTL, prefix, metric: 0, route });
        self.changes.updates += 1;
        Ok(())
    }

    /// Removes the control socket's route of a prefix, or if it has none the one that is in use.
    ///
    /// # Errors
    /// [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn remove_route(&mut self, prefix: IpPrefix) -> Result<(), UpdateError> {
        self.check_not_own(prefix)?;
        self.commit_updates();
        self.changes.updates += 1;
        let has_ctl = self.candidates.said(prefix, SourceId::CTL).is_some();
        match self.candidates.winner(prefix) {
            _ if has_ctl => {
                self.take_for_user(&Said { source: SourceId::CTL, prefix, metric: 0, route: None });
            }
            // Until the feed announces it again.
            Some(Winner { source, metric, .. }) if source != SourceId::FILES => {
                self.take(&Said { source, prefix, metric, route: None });
            }
            _ => {
                self.set_file_route(prefix, NextHopId::NONE);
            }
        }
        Ok(())
    }

    fn check_not_own(&self, prefix: IpPrefix) -> Result<(), UpdateError> {
        match self.candidates.said(prefix, SourceId::OWN) {
            Some(_) => Err(UpdateError::Own { prefix }),
            None => Ok(()),
        }
    }

    /// Sets the routes that follow from the addresses of ports, which no feed displaces; call it after [`Self::set_ports`]. They are in
    /// service after the next [`Self::commit`], in place of those set before. Of routes with one prefix the last counts.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn set_own_routes(&mut self, routes: Vec<(IpPrefix, NextHop)>) -> Result<(), NextHopError> {
        self.commit_updates();
        let interned = routes.into_iter().map(|(prefix, hop)| Ok((prefix, self.hops.intern(hop)?)));
        let routes = interned.collect::<Result<FxHashMap<_, _>, NextHopError>>()?;
        for prefix in std::mem::take(&mut self.own).into_iter().filter(|prefix| !routes.contains_key(prefix))
        {
            self.take(&Said { source: SourceId::OWN, prefix, metric: 0, route: None });
        }
        for (prefix, id) in routes {
            let route = self.candidates.of_hop(id);
            self.take(&Said { source: SourceId::OWN, prefix, metric: 0, route });
            self.own.push(prefix);
        }
        Ok(())
    }

    /// Sets the files' route of a prefix; [`NextHopId::NONE`] removes it. Returns whether it was another one before.
    pub(super) fn set_file_route(&mut self, prefix: IpPrefix, id: NextHopId) -> bool {
        if !self.candidates.has(prefix) {
            return self.set_route(prefix, id) != id;
        }
        let route = self.candidates.of_hop(id);
        let before = self.candidates.said(prefix, SourceId::FILES);
        self.take_for_user(&Said { source: SourceId::FILES, prefix, metric: 0, route });
        before != route
    }

    /// How many routes the control socket has added.
    pub(crate) fn ctl_routes(&self) -> u64 {
        self.candidates.count(SourceId::CTL).routes
    }

    /// Routes of feeds may have other next hops than before.
    pub(super) fn ports_or_neighbours_have_changed(&mut self) {
        if let Some(learned) = &mut self.learned {
            learned.moved();
        }
    }

    /// The families that an engine has tables for: routes of feeds and addresses of others are left out. Call [`Self::learn`] for those of
    /// a family that it had none for before, or has none for any more.
    pub(super) fn set_families(&mut self) {
        let lacks = |family: &Family| !self.engine.has_family(*family);
        let lacking: Vec<_> = Family::ALL.into_iter().filter(lacks).collect();
        let had_table = Family::ALL.map(|family| !self.candidates.lacks_table(family));
        self.candidates.set_without_table(lacking);
        self.has_noticed_family = false;
        for (family, had_table) in Family::ALL.into_iter().zip(had_table) {
            if had_table != self.engine.has_family(family) {
                let prefixes = self.candidates.prefixes(family);
                if had_table && !prefixes.is_empty() {
                    self.notice_family(family);
                }
                self.again.extend(prefixes);
            }
        }
    }

    /// Says once that routes of a family are left out.
    fn notice_family(&mut self, family: Family) {
        if !std::mem::replace(&mut self.has_noticed_family, true) {
            let name = self.engine.name();
            notice::warn(format_args!(
                "engine {name} has no table for {family}: the routes of feeds and addresses of this family are left out (ctl show feeds)"
            ));
        }
    }

    /// How many routes of a family files and the control socket have.
    pub(super) fn routes_of_user(&self, family: Family) -> usize {
        let has_user = |prefix: &IpPrefix| {
            let said = |source| self.candidates.said(*prefix, source).is_some();
            !self.candidates.has(*prefix) || said(SourceId::FILES) || said(SourceId::CTL)
        };
        match family {
            Family::V4 => self.rib.v4.prefixes().map(IpPrefix::V4).filter(has_user).count(),
            Family::V6 => self.rib.v6.prefixes().map(IpPrefix::V6).filter(has_user).count(),
        }
    }

    /// Drops next hops that no route uses, when the table has grown to twice those in use. Call it after a commit, be it refused: the
    /// engine's routes are those of the RIB then. See [`IN_FLIGHT_MAX`].
    pub(super) fn drop_unused_hops(&mut self) {
        let Unused { at, marked, stay } = &mut self.unused;
        match marked {
            Some(since) if since.elapsed() >= *stay => {
                *marked = None;
                if self.hops.drop_unused() > 0
                    && let Some(egress) = &mut self.egress
                {
                    egress.is_stale = true;
                }
            }
            None if self.hops.len() >= *at => {
                let v4 = self.rib.v4.iter().map(|(_, id)| id);
                let mut used: FxHashSet<_> = v4.chain(self.rib.v6.iter().map(|(_, id)| id)).collect();
                used.extend(self.candidates.ids());
                let kept = self.hops.mark_unused(|id| used.contains(&id));
                *at = HOPS_MIN.max(2 * kept);
                *marked = Some(Instant::now());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
