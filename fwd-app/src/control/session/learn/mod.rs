//! The sources of a session's routes beside its files: feeds, and the control socket.
//!
//! Every change of a prefix puts the preferred route into the RIB ([`Session::resolve`]). When the engine refuses a delta, the RIB is
//! rolled back, but what feeds have announced stays announced: their changes are tried again ([`retry`]). Routes of feeds, and those
//! that follow from addresses, are left out when the engine has no table for their family, while those of files are refused.

mod retry;

use super::origins::Origin;
use super::{Session, UpdateError};
use crate::control::feeds::learned::{FeedStatus, ForeignRoutes, Learned};
use crate::control::feeds::preference::RibChange;
use crate::control::feeds::{LinkAddress, Route};
use crate::datapath::EgressPort;
use crate::notice;
use crate::router::interface::InterfaceAddress;
use fib::feed::Hop;
use fib::{Family, IpPrefix, NextHop, NextHopId};
pub(super) use retry::Retry;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Change sets that are taken for one commit, at most: some ten thousand routes.
const SETS_PER_COMMIT: usize = 64;
/// The table of next hops is not searched for unused ones below this size.
const HOPS_MIN: usize = 1 << 10;
/// How long after a commit a lookup from before it may still be on its way to its packets. A batch that an engine does not answer is
/// given up after twice `--stall-us`, which is two minutes at most.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

/// What becomes of the routes of a feed that are the best of their prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedOutcome {
    /// Those whose paths have no port here.
    pub(crate) unresolved: u64,
    /// Of these, those that are installed as unreachable.
    pub(crate) unreachable: u64,
    /// Those of a family that the engine has no table for.
    pub(crate) no_table: u64,
    /// Those that the engine has refused.
    pub(crate) refused: u64,
}

/// When to look for next hops that no route uses, and how long ago that was.
#[derive(Debug)]
pub(super) struct Unused {
    /// The size of the table at which they are looked for.
    at: usize,
    /// When they were marked.
    marked: Option<Instant>,
    /// How long they stay after that.
    pub(super) stay: Duration,
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
        self.learned = Some(Box::new(feeds));
    }

    /// Takes what feeds have announced, some change sets, and commits it. Returns whether there was anything.
    pub(crate) fn learn(&mut self) -> bool {
        let Some(learned) = &mut self.learned else { return false };
        let mut changes = Vec::new();
        let sets = (0..SETS_PER_COMMIT).take_while(|_| learned.take(&mut changes)).count();
        let has_new_neighbours = learned.take_new_neighbours();
        let has_moved = learned.take_moved();
        if sets == 0 && !has_moved && !self.retry.is_due() {
            return false;
        }
        if (has_new_neighbours || has_moved)
            && let (Some(learned), Some(egress)) = (&self.learned, &mut self.egress)
        {
            self.hops.replace_kernel_neighbours(learned.interfaces().neighbours());
            egress.is_stale = true;
            // At once: groups need nothing else when a path fails, and the routes below may be many.
            if let Err(error) = self.refresh_egress() {
                notice::warn(format_args!("{error}"));
            }
        }
        if sets > 0 || has_moved {
            // Of each prefix once: what the feeds say is what they say after all changes.
            let mut seen = FxHashSet::default();
            for change in changes.iter().filter(|change| seen.insert(change.prefix)) {
                self.take_change(change);
            }
            if has_moved {
                self.resolve_again();
            }
            self.updates_pending += changes.len() as u64;
            if let Err(error) = self.commit()
                && self.retry.len() == 0
            {
                notice::warn(format_args!("{error:#}"));
            }
        }
        if let Some(group) = self.retry.next_group() {
            group.into_iter().for_each(|prefix| self.try_again(prefix));
            // Its refusal is a notice at the end of the round.
            drop(self.commit());
        }
        true
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
        learned.status().into_iter().zip(self.feed_outcomes()).collect()
    }

    /// What becomes of the routes of each feed.
    fn feed_outcomes(&self) -> Vec<FeedOutcome> {
        let Some(learned) = &self.learned else { return Vec::new() };
        let lacks = |family: &Family| !self.engine.has_family(*family);
        let lacking: Vec<_> = Family::ALL.into_iter().filter(lacks).collect();
        let unreachable = self.hops.find(&NextHop::Unreachable);
        let mut outcomes = vec![FeedOutcome::default(); learned.preference().feeds()];
        for (prefix, feed, route) in learned.preference().all_best() {
            let Some(outcome) = outcomes.get_mut(usize::from(feed.0)) else { continue };
            if lacking.contains(&prefix.family()) {
                outcome.no_table += 1;
                continue;
            }
            outcome.refused += u64::from(self.retry.wanted(prefix).is_some());
            if learned.interfaces().next_hop(route, &self.hops).is_none() {
                outcome.unresolved += 1;
                outcome.unreachable += u64::from(Some(self.route(prefix)) == unreachable);
            }
        }
        outcomes
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
        let id = hop.intern(&mut self.hops)?;
        if !self.has_others(prefix) {
            self.origins.set(Origin::Files, prefix, self.file_route(prefix));
        }
        self.origins.set(Origin::Ctl, prefix, id);
        self.refresh(prefix);
        self.updates_pending += 1;
        Ok(())
    }

    /// Removes the control socket's route of a prefix, or if it has none the one that is in use.
    ///
    /// # Errors
    /// [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn remove_route(&mut self, prefix: IpPrefix) -> Result<(), UpdateError> {
        self.check_not_own(prefix)?;
        self.updates_pending += 1;
        if !self.origins.ctl(prefix).is_none() {
            self.origins.set(Origin::Ctl, prefix, NextHopId::NONE);
            self.refresh(prefix);
            if !self.has_others(prefix) {
                self.origins.set(Origin::Files, prefix, NextHopId::NONE);
            }
        } else if !self.has_others(prefix) || self.uses_file(prefix) {
            self.set_file_route(prefix, NextHopId::NONE);
        } else if let Some(change) = self.learned.as_mut().and_then(|learned| learned.withdraw_best(prefix)) {
            self.take_change(&change);
        }
        Ok(())
    }

    /// Sets a route that follows from the address of a port.
    pub(super) fn set_own_route(&mut self, prefix: IpPrefix, id: NextHopId) {
        if !self.has_others(prefix) {
            self.origins.replace(Origin::Files, prefix, self.file_route(prefix));
        }
        self.origins.replace(Origin::Own, prefix, id);
        self.tell(prefix);
    }

    /// Removes a route that followed from the address of a port.
    pub(super) fn remove_own_route(&mut self, prefix: IpPrefix) {
        self.origins.replace(Origin::Own, prefix, NextHopId::NONE);
        self.tell(prefix);
        if !self.has_others(prefix) {
            self.origins.replace(Origin::Files, prefix, NextHopId::NONE);
        }
    }

    fn check_not_own(&self, prefix: IpPrefix) -> Result<(), UpdateError> {
        if self.origins.has_own(prefix) { Err(UpdateError::Own { prefix }) } else { Ok(()) }
    }

    /// Sets the files' route of a prefix; [`NextHopId::NONE`] removes it. Returns whether it was another one before.
    pub(super) fn set_file_route(&mut self, prefix: IpPrefix, id: NextHopId) -> bool {
        if !self.has_others(prefix) {
            self.retry.replace(prefix);
            return self.set_route(prefix, id) != id;
        }
        let before = self.origins.set(Origin::Files, prefix, id);
        self.refresh(prefix);
        before != id
    }

    /// How many routes the control socket has added.
    pub(crate) fn ctl_routes(&self) -> usize {
        self.origins.ctl_len()
    }

    /// Routes of feeds may have other next hops than before.
    pub(super) fn ports_or_neighbours_have_changed(&mut self) {
        if let Some(learned) = &mut self.learned {
            learned.moved();
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
                used.extend(self.origins.ids());
                used.extend(self.retry.ids());
                let kept = self.hops.mark_unused(|id| used.contains(&id));
                *at = HOPS_MIN.max(2 * kept);
                *marked = Some(Instant::now());
            }
            _ => {}
        }
    }

    /// Whether a source other than the files has a route of this prefix.
    fn has_others(&self, prefix: IpPrefix) -> bool {
        let has_learned = |learned: &Learned| learned.preference().best(prefix).is_some();
        !self.origins.first(prefix).is_none() || self.learned.as_deref().is_some_and(has_learned)
    }

    /// The names of the sources of routes, the most preferred first.
    pub(crate) fn source_order(&self) -> Vec<&'static str> {
        let order = self.learned.as_deref().map_or(&["files"][..], Learned::order);
        [&["ctl"], order].concat()
    }

    /// Whether the best route of a prefix that feeds have announced is preferred to that of files.
    fn comes_before_files(&self, prefix: IpPrefix) -> bool {
        self.learned.as_deref().is_some_and(|learned| learned.comes_before_files(prefix))
    }

    /// Whether a prefix that another source has, too, but neither a port's address nor the control socket, has the files' route in the RIB.
    fn uses_file(&mut self, prefix: IpPrefix) -> bool {
        let is_behind = self.comes_before_files(prefix) && !self.learned_route(prefix).is_none();
        !is_behind && !self.origins.file(prefix).is_none()
    }

    /// The files' route of a prefix that no other source has (yet).
    fn file_route(&self, prefix: IpPrefix) -> NextHopId {
        // A route that should have been withdrawn is no file's.
        self.retry.wanted(prefix).unwrap_or_else(|| self.route(prefix))
    }

    /// Applies a change of the feeds' best route to the RIB. What the feeds say stays said when the engine refuses it, and so does what is
    /// noted of the files here.
    fn take_change(&mut self, change: &RibChange) {
        let prefix = change.prefix;
        if change.is_new && self.origins.first(prefix).is_none() {
            self.origins.replace(Origin::Files, prefix, self.file_route(prefix));
        }
        self.tell(prefix);
        if !self.has_others(prefix) {
            self.origins.replace(Origin::Files, prefix, NextHopId::NONE);
        }
    }

    /// Puts the preferred route of a prefix into the RIB, which stays the preferred one when the engine refuses it. If one was refused
    /// before, it has its turn later.
    fn tell(&mut self, prefix: IpPrefix) {
        let id = self.resolve(prefix);
        if id == self.route(prefix) {
            self.retry.is_settled(prefix);
        } else if self.retry.wanted(prefix).is_some() {
            self.retry.change(prefix, id);
        } else {
            self.set_route(prefix, id);
            self.retry.tell(prefix, id);
        }
    }

    /// Puts the route of a prefix into the RIB whose change was refused.
    fn try_again(&mut self, prefix: IpPrefix) {
        let id = match self.retry.wanted(prefix) {
            Some(id) if !self.has_others(prefix) => id,
            _ => self.resolve(prefix),
        };
        self.set_route(prefix, id);
        self.retry.tell(prefix, id);
    }

    /// Puts the preferred route of a prefix into the RIB, unless it is one that the engine has refused.
    fn refresh(&mut self, prefix: IpPrefix) {
        let id = self.resolve(prefix);
        if self.retry.wanted(prefix) != Some(id) {
            self.retry.replace(prefix);
            self.set_route(prefix, id);
        }
    }

    /// The preferred route of a prefix that has other sources than files. While a feed's route has no port, the files' one is used; if
    /// there is none, the prefix is unreachable, or left out ([`ForeignRoutes`]).
    fn resolve(&mut self, prefix: IpPrefix) -> NextHopId {
        let has_table = self.engine.has_family(prefix.family());
        let learned_first = self.comes_before_files(prefix);
        let mut id = if has_table { self.origins.first(prefix) } else { self.origins.ctl(prefix) };
        if id.is_none() && learned_first {
            id = self.learned_route(prefix);
        }
        if id.is_none() {
            id = self.origins.file(prefix);
        }
        if id.is_none() && !learned_first {
            id = self.learned_route(prefix);
        }
        if id.is_none() && has_table {
            id = self.foreign_route(prefix);
        }
        if id.is_none() && !has_table {
            self.notice_family(prefix.family());
        }
        id
    }

    /// The next hop of the feeds' best route of a prefix.
    fn learned_route(&mut self, prefix: IpPrefix) -> NextHopId {
        let best = self.learned.as_ref().and_then(|learned| learned.preference().best(prefix));
        match best {
            Some((_, route)) if self.engine.has_family(prefix.family()) => {
                let route = Arc::clone(route);
                self.next_hop(&route)
            }
            _ => NextHopId::NONE,
        }
    }

    /// What is installed for the feeds' best route of a prefix when none of its paths has a port.
    fn foreign_route(&mut self, prefix: IpPrefix) -> NextHopId {
        let Some(learned) = &mut self.learned else { return NextHopId::NONE };
        if learned.foreign() == ForeignRoutes::Ignore || !learned.has_paths(prefix) {
            return NextHopId::NONE;
        }
        learned.notice_foreign(prefix);
        self.hops.intern(NextHop::Unreachable).unwrap_or_default()
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

    /// The engine has a table for another family than before, or none any more.
    pub(super) fn tables_have_changed(&mut self) {
        self.has_noticed_family = false;
        let own: Vec<_> = self.origins.own().collect();
        own.into_iter().for_each(|prefix| self.tell(prefix));
        self.ports_or_neighbours_have_changed();
        if let Err(error) = self.commit() {
            notice::warn(format_args!("{error:#}; the routes of ports' addresses are not all in service"));
        }
    }

    /// How many routes of a family files and the control socket have.
    pub(super) fn told_routes(&self, family: Family) -> usize {
        let is_told = |prefix: &IpPrefix| {
            let has_others = self.has_others(*prefix);
            let of_file = if has_others { self.origins.file(*prefix) } else { self.file_route(*prefix) };
            !of_file.is_none() || !self.origins.ctl(*prefix).is_none()
        };
        match family {
            Family::V4 => self.rib.v4.prefixes().map(IpPrefix::V4).filter(is_told).count(),
            Family::V6 => self.rib.v6.prefixes().map(IpPrefix::V6).filter(is_told).count(),
        }
    }

    /// The next hop of a feed's route.
    fn next_hop(&mut self, route: &Route) -> NextHopId {
        let Some(learned) = &self.learned else { return NextHopId::NONE };
        let hop = learned.interfaces().next_hop(route, &self.hops);
        // Ids are used up only by millions of next hops in use; the route is then as one without a port.
        hop.and_then(|hop| self.hops.intern(hop).ok()).unwrap_or_default()
    }

    /// Finds the next hops of all routes of feeds anew.
    fn resolve_again(&mut self) {
        let Some(learned) = &self.learned else { return };
        let prefixes: Vec<IpPrefix> = learned.preference().all_best().map(|(prefix, ..)| prefix).collect();
        prefixes.into_iter().for_each(|prefix| self.tell(prefix));
    }
}

#[cfg(test)]
mod tests;
