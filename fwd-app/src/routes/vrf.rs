//! A VRF: its parts, and the routes that feeds, port addresses, the control socket and files announce.
//!
//! [`Vrf::open`] loads the files and commits their tables, or fails as a whole. A later route of a feed becomes a candidate and marks its
//! prefix, like an event of a link or a gateway; [`Vrf::drain`] puts the winners of marked prefixes into the RIB and commits. A route of a
//! user or an address goes into the RIB at once. Routes that only files have are in the RIB alone. [`Vrf::commit`] brings all changes into
//! service, or the engine refuses them ([`super::refused`]). Commits continue while another engine is built ([`super::engine_swap`]).

use super::candidates::{Candidates, OutcomeCounts, Said, SourceId, Winner};
use super::egress::VrfEgress;
use super::engine_swap::VrfEngine;
use super::feeds::interfaces::Interfaces;
use super::feeds::{ObjectId, Route};
use super::refused::Refused;
use super::spec::{LoadProgress, TableSpec, load_rib};
use crate::datapath::EgressError;
use crate::datapath::audit::AuditState;
use crate::engines::Made;
use crate::notice;
use crate::ports::table::SharedPorts;
use crate::topology::lcores::VrfParts;
use anyhow::Context as _;
use fib::feed::{Action, Hop, Update};
use fib::{
    EngineError, EngineWriter, Family, Generation, IpPrefix, NextHop, NextHopError, NextHopId, NextHopTable,
    Prefix, Rib,
};
use rustc_hash::FxHashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VrfTally {
    pub(crate) load_s: f64,
    pub(crate) build_s: f64,
    /// Updates in service, without the initial tables.
    pub(crate) updates: u64,
    pub(crate) deltas: u64,
}

/// A route to report, installed as unreachable because it leads to no port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    pub(crate) prefix: IpPrefix,
    pub(crate) source: SourceId,
    /// The interface of its first path.
    pub(crate) ifindex: u32,
}

#[derive(Debug, Default)]
pub(super) struct RouteNotices {
    /// Routes without a port to report, and whether one was reported: another route, a default route.
    foreign: Vec<Foreign>,
    has_noticed_foreign: [bool; 2],
    has_noticed_family: bool,
}

pub(crate) struct Vrf {
    pub(crate) name: String,
    /// In order; a reload may change them.
    pub(crate) files: Vec<PathBuf>,
    pub(super) routes_max: Option<u64>,
    /// The routes in service, with the changes of the next commit.
    pub(super) rib: Rib,
    pub(crate) egress: VrfEgress,
    pub(crate) engine: VrfEngine,
    /// The routes of all sources, except of prefixes that only files have.
    pub(crate) candidates: Candidates,
    pub(super) audit: Arc<AuditState>,
    /// `None` follows the engine.
    pub(super) audit_wanted: Option<u32>,
    /// Prefixes with candidates that were set in the RIB since the last commit.
    pub(super) uncommitted: Vec<IpPrefix>,
    /// Routes of files and the control socket by [`Family`], with the changes of the next commit; and at the last commit.
    pub(super) user_routes: [u64; 2],
    user_routes_committed: [u64; 2],
    /// Changes since the last commit that count as updates.
    pub(crate) updates: u64,
    pub(crate) refused: Refused,
    /// The prefixes that follow from the addresses of ports.
    pub(super) own: Vec<IpPrefix>,
    pub(super) notices: RouteNotices,
    pub(crate) tally: VrfTally,
}

impl Vrf {
    /// Opens VRF `name` with the routes of `spec` in the given engine, over the ports that all VRFs share.
    ///
    /// # Errors
    /// [`EngineError`] for a table that the engine cannot hold, `FeedError` for a file.
    pub(crate) fn open(
        spec: TableSpec,
        (number, name): (usize, &str),
        Made { engine, service, is_shared }: Made,
        ports: SharedPorts,
        on_progress: &mut dyn FnMut(LoadProgress<'_>),
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let (mut rib, hops, _) = load_rib(&spec.files, on_progress)?;
        rib.leave_out(engine.info().wants_fewer_routes);
        let load_s = start.elapsed().as_secs_f64();
        let routes = rib.len() as u64;
        check_routes(routes, spec.routes_max)?;
        let user_routes = [rib.v4.len() as u64, rib.v6.len() as u64];
        let mut vrf = Self {
            name: name.to_owned(),
            files: spec.files,
            routes_max: spec.routes_max,
            rib,
            egress: VrfEgress::new(number, hops, ports),
            engine: VrfEngine {
                spec: spec.engine,
                writer: engine,
                retired: None,
                building: None,
                failover: service,
                is_shared,
            },
            candidates: Candidates::default(),
            audit: Arc::default(),
            audit_wanted: None,
            uncommitted: Vec::new(),
            user_routes,
            user_routes_committed: user_routes,
            updates: 0,
            refused: Refused::default(),
            own: Vec::new(),
            notices: RouteNotices::default(),
            tally: VrfTally { load_s, ..VrfTally::default() },
        };
        let start = Instant::now();
        vrf.rib.commit_to(vrf.engine.writer.as_mut()).with_context(|| {
            format!("engine {} cannot hold this table of {routes} routes", vrf.engine.writer.info().name)
        })?;
        vrf.tally.build_s = start.elapsed().as_secs_f64();
        vrf.set_families();
        vrf.follow_audit();
        Ok(vrf)
    }

    /// Applies an update of the files' routes; in service after the next [`Self::commit`], unless another source is preferred.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free, [`EgressError`] for a next hop at a missing port. Nothing has changed then.
    pub(crate) fn update(&mut self, update: &Update) -> Result<(), UpdateError> {
        if let Action::Announce(Hop::Hop(hop)) = &update.action {
            self.egress.check(hop)?;
        }
        let id = update.next_hop(&mut self.egress.hops)?;
        self.set_file_route(update.prefix, id);
        self.updates += 1;
        Ok(())
    }

    /// Sets the ports and builds the egress table.
    ///
    /// # Errors
    /// [`EgressError`] when a next hop or a neighbour refers to a port that does not exist.
    pub(crate) fn set_ports(&mut self) -> Result<(), EgressError> {
        self.egress.set_ports(&self.rib, &mut self.candidates)
    }

    pub(crate) fn count_next_hops(&mut self, lanes: Option<usize>) {
        self.egress.count_next_hops(lanes, &mut self.candidates);
    }

    /// Frees replaced tables that no lcore reads any more; to be called periodically.
    pub(crate) fn free_retired(&mut self) {
        self.engine.writer.free_retired();
        self.egress.free_retired(&self.rib);
    }

    /// The tables that stages look packets up in.
    ///
    /// # Errors
    /// When the ports have not been set.
    pub(crate) fn parts(&self) -> anyhow::Result<VrfParts<'_>> {
        Ok(VrfParts {
            engine: self.engine(),
            egress: self.egress.table().context("a topology needs ports before it starts")?,
            // A fallback always answers, so no batch is abandoned.
            stall_us: if self.engine.failover.is_some() { u64::MAX } else { self.engine.spec.stall_us },
            audit: Arc::clone(&self.audit),
        })
    }

    pub(crate) fn rib(&self) -> &Rib {
        &self.rib
    }

    pub(crate) fn hops(&self) -> &NextHopTable {
        &self.egress.hops
    }

    /// The engine; with a fallback, the pair of engines.
    pub(crate) fn engine(&self) -> &dyn EngineWriter {
        self.engine.writer.as_ref()
    }

    /// Records a route that a feed announces; in service after the next [`Self::drain`].
    pub(crate) fn announce(
        &mut self,
        source: SourceId,
        (prefix, metric): (IpPrefix, u32),
        route: &Arc<Route>,
        interfaces: &Interfaces,
    ) {
        let Self { rib, egress, candidates, .. } = self;
        let route = Some(candidates.route(route, |wanted| egress.next_hop(&wanted, interfaces)));
        candidates.set_and_mark(&Said { source, prefix, metric, route }, || rib.get(prefix));
        if candidates.lacks_table(prefix.family()) {
            self.notice_family(prefix.family());
        }
    }

    /// Records the resolved route of a next-hop object; `None` when no further route will name it. Its routes follow with the next egress
    /// table; those that gain or lose their next hop, after the next [`Self::drain`].
    pub(crate) fn set_object(
        &mut self,
        object: ObjectId,
        route: Option<&Arc<Route>>,
        interfaces: &Interfaces,
    ) {
        let Self { egress, candidates, .. } = self;
        if candidates.routes.set_object(object, route, |wanted| egress.next_hop(&wanted, interfaces)) {
            egress.neighbours_have_changed();
        }
    }

    /// Applies changed ports or neighbours of the kernel to the egress table at once: groups need nothing else when a path fails. If
    /// `has_moved`, interfaces lead to different ports, and the next [`Self::drain`] resolves routes again.
    pub(crate) fn follow_kernel(&mut self, has_moved: bool) {
        self.egress.has_moved |= has_moved;
        self.egress.neighbours_have_changed();
        self.egress.refresh_if_stale(&self.rib, &mut self.candidates);
    }

    /// Commits pending updates of files before another source changes a route, so that the refusal of one does not undo the other.
    pub(crate) fn commit_updates(&mut self) {
        if self.updates > 0
            && let Err(error) = self.commit()
        {
            notice::warn(format_args!("{error:#}"));
        }
    }

    /// Records a route of a user or an address; in service after the next commit.
    pub(super) fn set_and_choose(&mut self, said: &Said) {
        let Self { candidates, rib, .. } = self;
        candidates.set(said, || rib.get(said.prefix));
        self.choose(said.prefix, said.source.is_user());
    }

    /// Commits all changes: first the egress table with the new next hops, then the routes to them, so that no lcore gets an id that its
    /// egress table lacks. Returns the generation that includes all changes.
    ///
    /// # Errors
    /// [`EgressError`](crate::datapath::EgressError) for a next hop at a missing port, and the engine's errors. Routes in service stay.
    pub(crate) fn commit(&mut self) -> anyhow::Result<Generation> {
        let egress = self.egress.refresh(&self.rib, &mut self.candidates);
        let updates = std::mem::take(&mut self.updates);
        let Self { rib, engine, tally, audit, .. } = self;
        let result = rib.commit(|delta, rib| {
            egress?;
            if !delta.is_empty() {
                audit.during(|| engine.writer.apply(delta, rib))?;
                tally.deltas += 1;
            }
            anyhow::Ok(())
        });
        if let Err(error) = result {
            self.take_back(&error);
            // Gateways may have been resolved by routes that are not in service.
            let egress = self.egress.refresh(&self.rib, &mut self.candidates);
            self.egress.drop_unused(&self.rib, &mut self.candidates);
            egress?;
            return Err(error);
        }
        self.candidates.settle();
        self.user_routes_committed = self.user_routes;
        for prefix in self.uncommitted.drain(..) {
            if !self.refused.prefixes.contains(&prefix) {
                self.candidates.forget(prefix);
            }
        }
        self.tally.updates += updates;
        self.egress.drop_unused(&self.rib, &mut self.candidates);
        let generation = self.engine.writer.generation();
        if updates > 0 {
            notice::debug(format_args!("VRF {}: {updates} updates, generation {}", self.name, generation.0));
        }
        Ok(generation)
    }

    /// Rolls back after a refused commit; the RIB is rolled back already.
    fn take_back(&mut self, error: &anyhow::Error) {
        self.candidates.roll_back();
        self.user_routes = self.user_routes_committed;
        let mut refused = Vec::new();
        for prefix in std::mem::take(&mut self.uncommitted) {
            let Some(Winner { id, .. }) = self.candidates.winner(prefix) else { continue };
            if id == self.rib.get(prefix) {
                self.refused.prefixes.remove(&prefix);
                self.candidates.forget(prefix);
            } else if self.refused.prefixes.insert(prefix) {
                refused.push((prefix, id));
            }
        }
        if refused.is_empty() {
            return;
        }
        self.refused.why = format!("{error:#}");
        // Withdrawals first: they make room.
        refused.sort_by_key(|(_, id)| !id.is_none());
        if refused.len() > 1 {
            let (first, second) = refused.split_at(refused.len() / 2);
            for half in [first, second] {
                self.refused.groups.push_back(half.iter().map(|(prefix, _)| *prefix).collect());
            }
        }
        if self.refused.due.is_none() {
            self.refused.begin_round(Instant::now());
        }
    }

    /// Puts the winner of a prefix into the RIB, for the next commit. A refused prefix waits for its retry, unless `at_once` or the winner
    /// has no next hop. Returns whether the RIB has changed.
    pub(super) fn choose(&mut self, prefix: IpPrefix, at_once: bool) -> bool {
        let Some(winner) = self.candidates.winner(prefix) else { return false };
        let is_other = winner.id != self.rib.get(prefix);
        if !is_other || at_once || winner.id.is_none() {
            self.refused.prefixes.remove(&prefix);
        } else if self.refused.prefixes.contains(&prefix) {
            return false;
        }
        if is_other {
            self.notice(prefix, &winner);
            self.set_route(prefix, winner.id);
        }
        // The commit may drop its entry.
        self.uncommitted.push(prefix);
        is_other
    }

    /// Commits winners of marked prefixes, as many as one commit takes, and retries refused ones if due. Returns whether there was work.
    pub(crate) fn drain(&mut self, interfaces: Option<&Interfaces>) -> bool {
        let had_updates = self.updates > 0;
        self.commit_updates();
        let Self { rib, egress, candidates, .. } = self;
        if let Some(interfaces) = interfaces.filter(|_| std::mem::take(&mut egress.has_moved)) {
            candidates.routes.resolve_anew(|wanted| egress.next_hop(&wanted, interfaces));
            egress.neighbours_have_changed();
        }
        // New next hops need an entry before the candidates ask whether they can forward.
        egress.refresh_if_stale(rib, candidates);
        let marked = candidates.take_marked();
        for prefix in &marked {
            self.updates += u64::from(self.choose(*prefix, false));
        }
        let has_changes = !marked.is_empty() || self.updates > 0 || !self.uncommitted.is_empty();
        if has_changes
            && let Err(error) = self.commit()
            && self.refused.len() == 0
        {
            notice::warn(format_args!("{error:#}"));
        }
        let is_due = self.refused.is_due();
        self.try_again();
        had_updates || has_changes || is_due || self.candidates.has_pending()
    }

    pub(super) fn try_again(&mut self) {
        let Some(group) = self.refused.next_group() else { return };
        for prefix in group {
            self.refused.prefixes.remove(&prefix);
            self.choose(prefix, true);
        }
        // The end of the round reports a refusal.
        drop(self.commit());
    }

    /// Sets a route in the RIB; [`NextHopId::NONE`] removes it. Returns the previous one. Every change of the RIB passes here.
    pub(super) fn set_route(&mut self, prefix: IpPrefix, id: NextHopId) -> NextHopId {
        if let Some(building) = &mut self.engine.building {
            building.changed.insert(prefix);
        }
        self.rib.set(prefix, id)
    }

    pub(super) fn count_user_route(&mut self, prefix: IpPrefix, had: bool, has: bool) {
        let count = &mut self.user_routes[prefix.family() as usize];
        *count = *count + u64::from(has) - u64::from(had);
    }

    /// Schedules a warning for the first route without a port, and for the first default route without one.
    pub(super) fn notice(&mut self, prefix: IpPrefix, winner: &Winner) {
        let has_noticed = self.notices.has_noticed_foreign[usize::from(prefix.len() == 0)];
        let is_local = || never_forwarded().iter().any(|wide| wide.covers(prefix));
        if !winner.is_foreign || winner.id.is_none() || has_noticed || is_local() {
            return;
        }
        if let Some(Route::Paths(paths)) = self.candidates.route_of(prefix, winner) {
            let ifindex = paths.first().map_or(0, |path| path.ifindex);
            self.notices.foreign.push(Foreign { prefix, source: winner.source, ifindex });
            self.notices.has_noticed_foreign[usize::from(prefix.len() == 0)] = true;
        }
    }

    pub(crate) fn take_foreign(&mut self) -> Vec<Foreign> {
        std::mem::take(&mut self.notices.foreign)
    }

    pub(crate) fn begin_outcomes(&self) -> OutcomeCounts {
        self.candidates.begin_outcomes(self.refused.len() > 0)
    }

    /// Counts the next slice of routes of feeds that do not forward. Returns whether it was the last.
    pub(crate) fn count_outcomes(&self, counts: &mut OutcomeCounts) -> bool {
        self.candidates.count_outcomes(counts, |prefix| self.refused.prefixes.contains(&prefix))
    }

    /// Adds or replaces a route of the control socket; in service after the next [`Self::commit`]. Returns the id of its next hop.
    ///
    /// # Errors
    /// The errors of [`Self::update`], and [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn add_route(&mut self, prefix: IpPrefix, hop: &Hop) -> Result<NextHopId, UpdateError> {
        self.check_not_own(prefix)?;
        if let Hop::Hop(hop) = hop {
            self.egress.check(hop)?;
        }
        self.commit_updates();
        let id = hop.intern(&mut self.egress.hops)?;
        self.egress.refresh_if_stale(&self.rib, &mut self.candidates);
        let route = self.candidates.of_hop(id);
        let had = self.candidates.route_from(prefix, SourceId::CTL).is_some();
        self.count_user_route(prefix, had, route.is_some());
        self.set_and_choose(&Said { source: SourceId::CTL, prefix, metric: 0, route });
        self.updates += 1;
        Ok(id)
    }

    /// Removes the control socket's route of a prefix, or if it has none, the route in service.
    ///
    /// # Errors
    /// [`UpdateError::Own`] for a prefix that follows from the address of a port.
    pub(crate) fn remove_route(&mut self, prefix: IpPrefix) -> Result<(), UpdateError> {
        self.check_not_own(prefix)?;
        self.commit_updates();
        self.updates += 1;
        let has_ctl = self.candidates.route_from(prefix, SourceId::CTL).is_some();
        self.count_user_route(prefix, has_ctl, false);
        let (source, metric) = match self.candidates.winner(prefix) {
            _ if has_ctl => (SourceId::CTL, 0),
            // It returns when the feed announces it again.
            Some(Winner { source, metric, .. }) if source != SourceId::FILES => (source, metric),
            _ => {
                self.set_file_route(prefix, NextHopId::NONE);
                return Ok(());
            }
        };
        self.set_and_choose(&Said { source, prefix, metric, route: None });
        Ok(())
    }

    fn check_not_own(&self, prefix: IpPrefix) -> Result<(), UpdateError> {
        match self.candidates.route_from(prefix, SourceId::OWN) {
            Some(_) => Err(UpdateError::Own { prefix }),
            None => Ok(()),
        }
    }

    /// Replaces the routes that follow from port addresses, for the next [`Self::commit`]. No feed displaces them; a prefix's last one counts.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn set_own_routes(&mut self, routes: Vec<(IpPrefix, NextHop)>) -> Result<(), NextHopError> {
        self.commit_updates();
        let interned = routes.into_iter().map(|(prefix, hop)| Ok((prefix, self.egress.hops.intern(hop)?)));
        let routes = interned.collect::<Result<FxHashMap<_, _>, NextHopError>>()?;
        self.egress.refresh_if_stale(&self.rib, &mut self.candidates);
        let gone = std::mem::take(&mut self.own).into_iter().filter(|prefix| !routes.contains_key(prefix));
        for (prefix, id) in gone
            .map(|prefix| (prefix, NextHopId::NONE))
            .chain(routes.iter().map(|(prefix, id)| (*prefix, *id)))
        {
            let route = self.candidates.of_hop(id);
            self.set_and_choose(&Said { source: SourceId::OWN, prefix, metric: 0, route });
        }
        self.own = routes.into_keys().collect();
        Ok(())
    }

    /// Records which families the engine has tables for. Routes of feeds and addresses of the other families are left out.
    pub(super) fn set_families(&mut self) {
        let info = self.engine().info();
        let lacking = Family::ALL.into_iter().filter(|family| !info.has_family(*family)).collect();
        self.notices.has_noticed_family = false;
        for family in self.candidates.set_without_table(lacking) {
            self.notice_family(family);
        }
    }

    fn notice_family(&mut self, family: Family) {
        if !std::mem::replace(&mut self.notices.has_noticed_family, true) {
            let name = self.engine().info().name;
            notice::warn(format_args!(
                "engine {name} has no table for {family}: the routes of feeds and addresses of this family are left out (ctl show feeds)"
            ));
        }
    }
}

/// # Errors
/// [`EngineError::Full`] for more than `limit`.
pub(super) fn check_routes(routes: u64, limit: Option<u64>) -> Result<(), EngineError> {
    match limit.filter(|limit| routes > *limit) {
        Some(limit) => Err(EngineError::Full { what: "routes (--routes-max)", used: routes, limit }),
        None => Ok(()),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateError {
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("the route of {prefix} belongs to the --address of a port, and cannot be changed")]
    Own { prefix: IpPrefix },
}

/// What is local to a host or a link. Every host has routes within these prefixes.
pub(super) fn never_forwarded() -> [IpPrefix; 4] {
    let v6 = |address, len| IpPrefix::V6(Prefix::truncating(address, len));
    let loopback = IpPrefix::V4(Prefix::truncating(127 << 24, 8));
    [loopback, v6(1, 128), v6(0xfe80 << 112, 10), v6(0xff << 120, 8)]
}

#[cfg(test)]
#[path = "sources_test.rs"]
mod sources_test;
#[cfg(test)]
#[path = "vrf_test.rs"]
mod tests;
