//! The sources of a session's routes beside its files: feeds, and the control socket.
//!
//! Every change of a prefix ends in [`Session::refresh`], which puts the preferred route into the RIB. When the engine refuses a
//! delta, the RIB is rolled back, but what feeds have announced stays announced: their changes are tried again.

use super::origins::Origin;
use super::{Session, UpdateError};
use crate::control::feeds::learned::{FeedStatus, Learned};
use crate::control::feeds::preference::RibChange;
use crate::control::feeds::{LinkAddress, Route};
use crate::datapath::EgressPort;
use crate::notice;
use crate::router::interface::InterfaceAddress;
use fib::feed::Hop;
use fib::{IpPrefix, NextHopId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Change sets that are taken for one commit, at most: some ten thousand routes.
const SETS_PER_COMMIT: usize = 64;
/// How long until changes that the engine has refused are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// The table of next hops is not searched for unused ones below this size.
const HOPS_MIN: usize = 1 << 10;
/// How long after a commit a lookup from before it may still be on its way to its packets. A batch that an engine does not answer is
/// given up after twice `--stall-us`, which is two minutes at most.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

/// Changes of feeds that the engine has refused.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// The route that the RIB should have.
    wanted: FxHashMap<IpPrefix, NextHopId>,
    due: Option<Instant>,
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
        let is_due = self.retry.due.is_some_and(|due| due <= Instant::now());
        if sets == 0 && !has_moved && !is_due {
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
        let mut wanted = Vec::with_capacity(changes.len());
        if is_due {
            self.retry.due = None;
            for (prefix, id) in std::mem::take(&mut self.retry.wanted) {
                if self.has_others(prefix) {
                    wanted.push((prefix, self.refresh(prefix)));
                } else {
                    self.set_route(prefix, id);
                    wanted.push((prefix, id));
                }
            }
        }
        for change in &changes {
            wanted.push((change.prefix, self.take_change(change)));
        }
        if has_moved {
            self.resolve_again(&mut wanted);
        }
        self.updates_pending += changes.len() as u64;
        match self.commit() {
            // What has been refused before stays to be tried, but for prefixes that have another route by now.
            Ok(_) => {
                for (prefix, _) in &wanted {
                    self.retry.wanted.remove(prefix);
                }
            }
            Err(error) => {
                self.retry.wanted.extend(wanted);
                self.retry.due = Some(Instant::now() + RETRY);
                let seconds = RETRY.as_secs();
                notice::warn(format_args!(
                    "{error:#}; the {} changes of feeds are tried again in {seconds} s",
                    self.retry.wanted.len()
                ));
            }
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

    /// The state of each feed, and how many of its routes have no next hop here.
    pub(crate) fn feed_status(&self) -> Vec<(FeedStatus, u64)> {
        let Some(learned) = &self.learned else { return Vec::new() };
        let mut status: Vec<_> = learned.status().into_iter().map(|status| (status, 0)).collect();
        for (_, feed, route) in learned.preference().all_best() {
            let hop = learned.interfaces().next_hop(route, &self.hops);
            if let Some((_, unresolved)) = status.get_mut(usize::from(feed.0)).filter(|_| hop.is_none()) {
                *unresolved += 1;
            }
        }
        status
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
        self.refresh(prefix);
    }

    /// Removes a route that followed from the address of a port.
    pub(super) fn remove_own_route(&mut self, prefix: IpPrefix) {
        self.origins.replace(Origin::Own, prefix, NextHopId::NONE);
        self.refresh(prefix);
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
            self.retry.wanted.remove(&prefix);
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

    /// Drops next hops that no route uses, when the table has grown to twice those in use. Call it after a commit: the engine's routes
    /// are those of the RIB then. See [`IN_FLIGHT_MAX`].
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
                used.extend(self.retry.wanted.values());
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
        self.retry.wanted.get(&prefix).copied().unwrap_or_else(|| self.route(prefix))
    }

    /// Applies a change of the feeds' best route to the RIB. Returns the route that it has then. What the feeds say stays said when the
    /// engine refuses it, and so does what is noted of the files here.
    fn take_change(&mut self, change: &RibChange) -> NextHopId {
        let prefix = change.prefix;
        if change.is_new && self.origins.first(prefix).is_none() {
            self.origins.replace(Origin::Files, prefix, self.file_route(prefix));
        }
        let id = self.refresh(prefix);
        if !self.has_others(prefix) {
            self.origins.replace(Origin::Files, prefix, NextHopId::NONE);
        }
        id
    }

    /// Puts the preferred route of a prefix into the RIB, and returns it. While a feed's route has no port, the files' one is used.
    fn refresh(&mut self, prefix: IpPrefix) -> NextHopId {
        let learned_first = self.comes_before_files(prefix);
        let mut id = self.origins.first(prefix);
        if id.is_none() && learned_first {
            id = self.learned_route(prefix);
        }
        if id.is_none() {
            id = self.origins.file(prefix);
        }
        if id.is_none() && !learned_first {
            id = self.learned_route(prefix);
        }
        self.set_route(prefix, id);
        id
    }

    /// The next hop of the feeds' best route of a prefix.
    fn learned_route(&mut self, prefix: IpPrefix) -> NextHopId {
        let best = self.learned.as_ref().and_then(|learned| learned.preference().best(prefix));
        best.map(|(_, route)| Arc::clone(route)).map_or(NextHopId::NONE, |route| self.next_hop(&route))
    }

    /// The next hop of a feed's route.
    fn next_hop(&mut self, route: &Route) -> NextHopId {
        let Some(learned) = &self.learned else { return NextHopId::NONE };
        let hop = learned.interfaces().next_hop(route, &self.hops);
        // Ids are used up only by millions of next hops in use; the route is then as one without a port.
        hop.and_then(|hop| self.hops.intern(hop).ok()).unwrap_or_default()
    }

    /// Finds the next hops of all routes of feeds anew.
    fn resolve_again(&mut self, wanted: &mut Vec<(IpPrefix, NextHopId)>) {
        let Some(learned) = &self.learned else { return };
        let prefixes: Vec<IpPrefix> = learned.preference().all_best().map(|(prefix, ..)| prefix).collect();
        for prefix in prefixes {
            wanted.push((prefix, self.refresh(prefix)));
        }
    }
}

#[cfg(test)]
mod tests;
