//! The sources of a VRF's routes: feeds, addresses of ports, the control socket and files.
//!
//! Each announcement goes to the candidates. A feed marks the prefix; users and addresses have its winner put into the RIB at once
//! ([`super::commit`]). A route that only files have is not among the candidates: the RIB alone holds it.

use super::candidates::{FeedOutcome, Said, SourceId, SourceRoutes, Winner};
use super::distinct::Wanted;
use super::feeds::ObjectId;
use super::feeds::Route;
use super::feeds::interfaces::Interfaces;
use super::feeds::running::Feeds;
use super::vrf::{Foreign, UpdateError};
use super::{Vrf, route_in};
use crate::notice;
use fib::feed::Hop;
use fib::{Family, IpPrefix, NextHop, NextHopError, NextHopId, NextHopTable};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The table of next hops is not searched for unused ones below this size.
const HOPS_MIN: usize = 1 << 10;
/// How long after a commit a lookup from before it may still be on its way to its packets. A batch that an engine does not answer is
/// given up after twice `--stall-us`, which is two minutes at most.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

/// When to look for next hops that no route uses, and how long ago that was.
#[derive(Debug)]
pub(super) struct Unused {
    /// The size of the table at which they are looked for, and the least such size.
    at: usize,
    min: usize,
    /// When they were marked.
    marked: Option<Instant>,
    /// How long they stay after that.
    stay: Duration,
    /// Whether none are looked for now: routes that were replaced may come back.
    pub(super) is_held: bool,
}

impl Unused {
    /// For a table of this size.
    pub(super) fn new(hops: usize) -> Self {
        let at = HOPS_MIN.max(2 * hops);
        Self { at, min: HOPS_MIN, marked: None, stay: IN_FLIGHT_MAX, is_held: false }
    }
}

impl Vrf {
    /// The order of sources, the most routes of each feed, and whether those without a port are installed as unreachable or left out.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn set_feeds(&mut self, feeds: &Feeds) -> Result<(), NextHopError> {
        self.prefer(feeds.order());
        self.candidates.set_routes_max(feeds.routes_max());
        if feeds.installs_unreachable() {
            let id = self.hops.intern(NextHop::Unreachable)?;
            self.candidates.set_unreachable(id);
        }
        Ok(())
    }

    /// Files and feeds are preferred in this order from now on. Returns the number of prefixes that it may change.
    pub(crate) fn prefer(&mut self, order: &[SourceId]) -> usize {
        self.candidates.set_order(order)
    }

    /// Takes a route that a feed announces, over `interfaces`; in service after the next [`Self::drain`].
    pub(crate) fn announce(
        &mut self,
        source: SourceId,
        (prefix, metric): (IpPrefix, u32),
        route: &Arc<Route>,
        interfaces: &Interfaces,
    ) {
        let Self { hops, candidates, .. } = self;
        let route = Some(candidates.route(route, |wanted| next_hop(&wanted, interfaces, hops)));
        if candidates.lacks_table(prefix.family()) {
            self.notice_family(prefix.family());
        }
        self.mark_if_new(&Said { source, prefix, metric, route });
    }

    /// Takes what a next-hop object amounts to, or that no further route will name it. Its routes follow with the next egress table, and
    /// those that get or lose their next hop after the next [`Self::drain`].
    pub(crate) fn set_object(
        &mut self,
        object: ObjectId,
        route: Option<&Arc<Route>>,
        interfaces: &Interfaces,
    ) {
        let Self { hops, candidates, .. } = self;
        if candidates.set_object(object, route, |wanted| next_hop(&wanted, interfaces, hops)) {
            self.neighbours_have_changed();
        }
    }

    /// A feed has withdrawn its route of a prefix and a metric; out of service after the next [`Self::drain`].
    pub(crate) fn withdraw(&mut self, source: SourceId, (prefix, metric): (IpPrefix, u32)) {
        self.mark_if_new(&Said { source, prefix, metric, route: None });
    }

    /// The routes of a feed that are stale are out of service after some [`Self::drain`]s.
    pub(crate) fn sweep(&mut self, source: SourceId) {
        self.candidates.sweep(source);
    }

    fn mark_if_new(&mut self, said: &Said) {
        if self.take(said) {
            self.changes.mark(said.prefix);
        }
    }

    /// The ports or the neighbours have changed as the kernel sees them. At once: groups need nothing else when a path fails, and the
    /// routes to look at may be many.
    ///
    /// If `has_moved`, interfaces lead to other ports than before, and routes may have other next hops after the next [`Self::drain`].
    pub(crate) fn follow_kernel(&mut self, has_moved: bool) {
        self.changes.has_moved |= has_moved;
        self.neighbours_have_changed();
        self.refresh_stale_egress();
    }

    /// Brings updates of files into service that wait, before another source says something: if that is refused, files are not.
    pub(crate) fn commit_updates(&mut self) {
        if self.has_updates()
            && let Err(error) = self.commit()
        {
            notice::warn(format_args!("{error:#}"));
        }
    }

    /// Takes what a source says of a prefix, which stays said when the engine refuses it. Returns whether that is another route than before.
    fn take(&mut self, said: &Said) -> bool {
        let Self { candidates, rib, .. } = self;
        candidates.set(said, || route_in(rib, said.prefix))
    }

    /// Takes a route of an address, or the removal of a feed's route by a user; in service after the next commit.
    fn take_now(&mut self, said: &Said) {
        if self.take(said) {
            self.choose(said.prefix, false);
        }
    }

    /// Takes what files or ctl say of a prefix, until the next commit is refused.
    pub(super) fn take_for_user(&mut self, said: &Said) {
        let Self { candidates, rib, .. } = self;
        candidates.set_for_user(said, || route_in(rib, said.prefix));
        self.choose(said.prefix, true);
    }

    /// Has a warning given of the first route without a port, and of the first default route.
    pub(super) fn notice(&mut self, prefix: IpPrefix, winner: &Winner) {
        let has_noticed = self.changes.has_noticed_foreign[usize::from(prefix.len() == 0)];
        // Nothing is forwarded to some prefixes, which every host has.
        if !winner.is_foreign || winner.id.is_none() || has_noticed || is_never_forwarded(prefix) {
            return;
        }
        if let Some(Route::Paths(paths)) = self.candidates.route_of(prefix, winner) {
            let ifindex = paths.first().map_or(0, |path| path.ifindex);
            self.changes.foreign.push(Foreign { prefix, source: winner.source, ifindex });
            self.changes.has_noticed_foreign[usize::from(prefix.len() == 0)] = true;
        }
    }

    /// The routes without a port of which a warning is due.
    pub(crate) fn take_foreign(&mut self) -> Vec<Foreign> {
        std::mem::take(&mut self.changes.foreign)
    }

    /// What becomes of the routes of a feed.
    pub(crate) fn feed_outcome(&self, source: SourceId) -> FeedOutcome {
        let winners = self.changes.refused().filter_map(|prefix| self.candidates.winner(prefix));
        let refused = winners.filter(|winner| winner.source == source && !winner.id.is_none()).count();
        FeedOutcome { refused: refused as u64, ..self.candidates.outcome(source) }
    }

    /// How many prefixes have a winner that the engine has refused.
    pub(crate) fn refused(&self) -> usize {
        self.changes.refused().len()
    }

    /// How many routes the control socket has added.
    pub(crate) fn ctl_routes(&self) -> u64 {
        self.count(SourceId::CTL).routes
    }

    /// How many routes a source other than files has.
    pub(crate) fn count(&self, source: SourceId) -> SourceRoutes {
        self.candidates.count(source)
    }

    /// Adds a route over the control socket, or replaces it; in service after the next [`Self::commit`]. Returns the id of its next hop.
    ///
    /// # Errors
    /// As [`Self::update`], and [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn add_route(&mut self, prefix: IpPrefix, hop: &Hop) -> Result<NextHopId, UpdateError> {
        self.check_not_own(prefix)?;
        if let Hop::Hop(hop) = hop {
            self.check(hop)?;
        }
        self.commit_updates();
        let id = hop.intern(&mut self.hops)?;
        self.refresh_stale_egress();
        let route = self.candidates.of_hop(id);
        self.take_for_user(&Said { source: SourceId::CTL, prefix, metric: 0, route });
        self.changes.updates += 1;
        Ok(id)
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
                self.take_now(&Said { source, prefix, metric, route: None });
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

    /// Sets the routes that follow from the addresses of ports, which no feed displaces. They are in service after the next
    /// [`Self::commit`], in place of those set before. Of routes with one prefix the last counts.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn set_own_routes(&mut self, routes: Vec<(IpPrefix, NextHop)>) -> Result<(), NextHopError> {
        self.commit_updates();
        let interned = routes.into_iter().map(|(prefix, hop)| Ok((prefix, self.hops.intern(hop)?)));
        let routes = interned.collect::<Result<FxHashMap<_, _>, NextHopError>>()?;
        self.refresh_stale_egress();
        for prefix in
            std::mem::take(&mut self.changes.own).into_iter().filter(|prefix| !routes.contains_key(prefix))
        {
            self.take_now(&Said { source: SourceId::OWN, prefix, metric: 0, route: None });
        }
        for (prefix, id) in routes {
            let route = self.candidates.of_hop(id);
            self.take_now(&Said { source: SourceId::OWN, prefix, metric: 0, route });
            self.changes.own.push(prefix);
        }
        Ok(())
    }

    /// Takes note of the families that the engine has tables for. Of other families, routes of feeds and addresses are left out. Marks the
    /// prefixes of a family that gets or loses its table.
    pub(super) fn set_families(&mut self) {
        let info = self.engine().info();
        let lacks = |family: &Family| !info.has_family(*family);
        let lacking: Vec<_> = Family::ALL.into_iter().filter(lacks).collect();
        let had_table = Family::ALL.map(|family| !self.candidates.lacks_table(family));
        self.candidates.set_without_table(lacking);
        self.changes.has_noticed_family = false;
        for (family, had_table) in Family::ALL.into_iter().zip(had_table) {
            if had_table != info.has_family(family) {
                let prefixes = self.candidates.prefixes(family);
                if had_table && !prefixes.is_empty() {
                    self.notice_family(family);
                }
                self.changes.mark_all(prefixes);
            }
        }
    }

    /// Says once that routes of a family are left out.
    fn notice_family(&mut self, family: Family) {
        if !std::mem::replace(&mut self.changes.has_noticed_family, true) {
            let name = self.engine().info().name;
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
        self.count_prefixes(family, has_user)
    }

    /// How many routes of a family are in service, without the loopback, link-local and multicast routes of every host.
    pub(super) fn routes_to_forward(&self, family: Family) -> usize {
        self.count_prefixes(family, |prefix| !is_never_forwarded(*prefix))
    }

    fn count_prefixes(&self, family: Family, is_wanted: impl Fn(&IpPrefix) -> bool) -> usize {
        match family {
            Family::V4 => self.rib.v4.prefixes().map(IpPrefix::V4).filter(is_wanted).count(),
            Family::V6 => self.rib.v6.prefixes().map(IpPrefix::V6).filter(is_wanted).count(),
        }
    }

    /// Drops next hops that no route uses, when the table has grown to twice those in use. Call it after a commit, be it refused: the
    /// engine's routes are those of the RIB then. See [`IN_FLIGHT_MAX`].
    pub(super) fn drop_unused_hops(&mut self) {
        let Unused { at, min, marked, stay, is_held } = &mut self.changes.unused;
        match marked {
            _ if *is_held => {}
            Some(since) if since.elapsed() >= *stay => {
                *marked = None;
                if self.hops.drop_unused() > 0 {
                    if let Some(counts) = self.next_hop_counts() {
                        counts.forget(|id| self.hops.get(id).is_some());
                    }
                    self.neighbours_have_changed();
                }
            }
            None if self.hops.len() >= *at => {
                let v4 = self.rib.v4.iter().map(|(_, id)| id);
                let mut used: FxHashSet<_> = v4.chain(self.rib.v6.iter().map(|(_, id)| id)).collect();
                used.extend(self.candidates.ids());
                let kept = self.hops.mark_unused(|id| used.contains(&id));
                *at = (2 * kept).max(*min);
                *marked = Some(Instant::now());
            }
            _ => {}
        }
    }
}

/// The next hop of a route over these interfaces, if one of its paths leads to a port. That of an object gets the object's id.
pub(super) fn next_hop(
    Wanted { route, object }: &Wanted<'_>,
    interfaces: &Interfaces,
    hops: &mut NextHopTable,
) -> NextHopId {
    let Some(hop) = interfaces.next_hop(route, hops) else { return NextHopId::NONE };
    let id = match object {
        None => hops.intern(hop),
        Some(NextHopId::NONE) => hops.add_object(hop),
        Some(id) => hops.replace(*id, hop).map(|()| *id),
    };
    // Ids are used up only by millions of next hops in use; the route is then as one without a port.
    id.unwrap_or_default()
}

/// Whether the addresses are those of a host or of a link, of which every host has some.
fn is_never_forwarded(prefix: IpPrefix) -> bool {
    match prefix {
        IpPrefix::V4(prefix) => Ipv4Addr::from_bits(prefix.address()).is_loopback(),
        IpPrefix::V6(prefix) => {
            let address = Ipv6Addr::from_bits(prefix.address());
            address.is_loopback() || address.is_unicast_link_local() || address.is_multicast()
        }
    }
}

#[cfg(test)]
#[path = "sources_test.rs"]
mod tests;
