//! The session: RIB and next hops, the engine, the egress table, and the topology that forwards with them.
//!
//! [`Session::open`] loads the files and brings their tables into service, or fails as a whole. After that, changes take two steps:
//! [`Session::update`] changes only the RIB and the next hops, [`Session::commit`] brings all changes into service. The topology
//! starts once the ports are known ([`Session::set_ports`]); commits go on while it runs, and the session may move to another engine
//! ([`Session::build_engine`]). A forwarder has a session for each VRF ([`super::vrfs`]), which starts the topology over all of them.
//!
//! The engine is made before the first file is opened, so that a wrong engine name fails at once.

mod building;
pub(crate) mod candidates;
mod commit;
mod sources;

use super::feeds::learned::Learned;
use super::interfaces::{Resolved, without_neighbour};
use super::ports::PortCounts;
use super::spec::TableSpec;
use crate::datapath::egress::Inputs;
use crate::datapath::{EgressError, EgressPort, EgressTable};
use crate::engines::{EngineSpec, Made};
use crate::error::ConfigError;
use crate::notice;
use crate::router::Interface;
use crate::topology::Handle;
use crate::topology::Settings;
use crate::topology::lcores::VrfParts;
use crate::topology::plan::Plan;
use crate::topology::punts::Punts;
use crate::topology::running::{Finished, Idle};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use building::Building;
use candidates::Candidates;
use commit::Changes;
use dpdk_ffi::{Eal, Port};
use fib::feed::{self, Action, Hop, LoadOptions, Loaded, Update};
use fib::{
    EngineError, EngineWriter, IpPrefix, Key, Neighbour, NextHop, NextHopError, NextHopId, NextHopTable, Rib,
    RibTable,
};
use lpm_core::failover::Service;
use lpm_core::retire::Retired;
use rustc_hash::FxHashMap;
use sources::Unused;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Progress of reading route files.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress<'a> {
    /// Bytes read so far and the total; a total of 0 means unknown.
    Reading { bytes: u64, bytes_total: u64 },
    /// Reading has ended, with these files; the list is empty after an error.
    Read(&'a [Loaded]),
}

/// Reads route files into a new RIB and reports the progress.
///
/// # Errors
/// `FeedError`, with file and line.
pub(crate) fn load_rib(
    paths: &[PathBuf],
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let mut reading = |bytes, bytes_total| on_progress(Progress::Reading { bytes, bytes_total });
    let options = LoadOptions { format: None, on_progress: Some(&mut reading) };
    let files = feed::load(paths, &mut rib, &mut hops, options);
    on_progress(Progress::Read(files.as_deref().unwrap_or_default()));
    Ok((rib, hops, files?))
}

/// Where a session's topology runs.
pub(crate) struct Site<'a> {
    /// DPDK.
    pub(crate) eal: &'a Eal,
    /// The ports, started, by index.
    pub(crate) ports: &'a [Port],
    /// What runs on which lcore.
    pub(crate) plan: &'a Plan,
    /// Sizes of bursts and batches.
    pub(crate) settings: Settings,
    /// What an idle lcore does.
    pub(crate) idle: Idle,
    /// The way to the router; `None` when no port has an address.
    pub(crate) punts: Option<&'a Punts>,
}

/// The results of a topology that has ended.
pub(crate) struct Ended {
    /// The counters of each stage, and the first panic.
    pub(crate) finished: Finished,
    /// How long packets flowed, seconds.
    pub(crate) duration_s: f64,
    /// The drivers' statistics.
    pub(crate) ports: Vec<PortCounts>,
}

/// Counts and times of a session so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Time to read the route files, seconds.
    pub(crate) load_s: f64,
    /// Time to build the engine's table, seconds.
    pub(crate) build_s: f64,
    /// Updates in service, without the initial tables.
    pub(crate) updates: u64,
    /// Deltas in which the engine got these updates.
    pub(crate) deltas: u64,
}

/// The egress side of a session.
struct Egress {
    ports: Vec<EgressPort>,
    /// The table that lcores read; a new one replaces it as a whole.
    table: Arc<ArcSwap<EgressTable>>,
    /// Tables that lcores had before.
    retired: Retired<EgressTable>,
    /// Ports of other VRFs.
    foreign: Vec<u16>,
    /// Whether a neighbour or a link has changed since the table was made.
    is_stale: bool,
}

impl Egress {
    /// Makes the table anew if something has changed: next hops, neighbours, links, or the routes of gateways. `stopped` are ports that
    /// groups avoid.
    fn refresh(
        &mut self,
        hops: &NextHopTable,
        rib: &Rib,
        stopped: &[u16],
        ecmp_seed: u64,
    ) -> Result<(), EgressError> {
        let before = self.table.load();
        // The egress table computes bare ids, so they need no new table.
        if !self.is_stale && hops.named() == before.named() && !before.has_moved(rib) {
            return Ok(());
        }
        let Self { ports, foreign, .. } = &*self;
        let inputs = Inputs { hops, ports, rib, stopped, foreign, ecmp_seed, before: Some(&before) };
        let table = EgressTable::build(&inputs)?;
        for gateway in table.loops().iter().filter(|gateway| !before.loops().contains(gateway)) {
            notice::warn(format_args!(
                "the route to gateway {gateway} leads back to it: packets for it are dropped as no_neighbour"
            ));
        }
        let bytes = before.bytes();
        drop(before);
        self.retired.replace(&self.table, Arc::new(table), bytes);
        self.is_stale = false;
        Ok(())
    }
}

/// The tables, the engine, and a handle on the topology that uses them.
pub(crate) struct Session {
    /// The number of its VRF.
    vrf: usize,
    spec: EngineSpec,
    files: Vec<PathBuf>,
    /// Tables with more routes are refused.
    routes_max: Option<u64>,
    rib: Rib,
    hops: NextHopTable,
    engine: Box<dyn EngineWriter>,
    /// The engine before, if stages that stop may still look up in it.
    retired: Option<Box<dyn EngineWriter>>,
    /// The engine to come.
    building: Option<Building>,
    /// Which of the two engines answers; `None` without a fallback.
    failover: Option<Arc<Service>>,
    /// Whether the engine's memory is that of other sessions too.
    has_shared_engine: bool,
    /// `None` before [`Self::set_ports`].
    egress: Option<Egress>,
    /// The seed of the hash that chooses the path of a flow.
    ecmp_seed: u64,
    /// The running topology; before it starts, a handle without stages.
    running: Handle,
    /// What sources say of prefixes that others than files have.
    candidates: Candidates,
    /// What has changed since the last commit, and what the engine has refused.
    changes: Changes,
    /// The prefixes that follow from the addresses of ports.
    own: Vec<IpPrefix>,
    /// Prefixes that may have another winner than the one in the RIB.
    again: Vec<IpPrefix>,
    /// The feeds, with links and neighbours.
    learned: Option<Box<Learned>>,
    /// Whether it was said that routes of a family are left out.
    has_noticed_family: bool,
    /// Next hops that no route uses.
    unused: Unused,
    tally: Tally,
}

impl Session {
    /// A session with the engine and the routes of `spec`, all of them in service.
    ///
    /// # Errors
    /// [`EngineError`] for an engine that cannot be made or a table it cannot hold, `FeedError` for a file.
    pub(crate) fn open(spec: &TableSpec, on_progress: &mut dyn FnMut(Progress<'_>)) -> anyhow::Result<Self> {
        spec.check()?;
        Self::open_with(spec, 0, spec.engine.make_with_fallback()?, on_progress)
    }

    /// The session of VRF number `vrf`, with the routes of `spec` in the engine that was made.
    ///
    /// # Errors
    /// [`EngineError`] for a table that the engine cannot hold, `FeedError` for a file.
    pub(super) fn open_with(
        spec: &TableSpec,
        vrf: usize,
        Made { engine, service, is_shared }: Made,
        on_progress: &mut dyn FnMut(Progress<'_>),
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let (mut rib, hops, _) = load_rib(&spec.files, on_progress)?;
        rib.leave_out(engine.wants_fewer_routes());
        let load_s = start.elapsed().as_secs_f64();
        let routes = rib.len() as u64;
        check_routes(routes, spec.routes_max)?;
        let mut session = Self {
            vrf,
            routes_max: spec.routes_max,
            spec: spec.engine.clone(),
            files: spec.files.clone(),
            rib,
            unused: Unused::new(hops.len()),
            hops,
            engine,
            retired: None,
            building: None,
            candidates: Candidates::default(),
            changes: Changes::default(),
            own: Vec::new(),
            again: Vec::new(),
            learned: None,
            has_noticed_family: false,
            failover: service,
            has_shared_engine: is_shared,
            egress: None,
            ecmp_seed: 0,
            running: Handle::default(),
            tally: Tally { load_s, ..Tally::default() },
        };
        let start = Instant::now();
        session.rib.commit_to(session.engine.as_mut()).with_context(|| {
            format!("engine {} cannot hold this table of {routes} routes", session.engine.name())
        })?;
        session.tally.build_s = start.elapsed().as_secs_f64();
        session.set_families();
        Ok(session)
    }

    /// Applies an update of the files' routes to the RIB and the next hops; it is in service after the next [`Self::commit`], unless
    /// another source's route of the prefix is preferred.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free, [`EgressError`] for a next hop that refers to a port which does not exist. Nothing has
    /// changed then.
    pub(crate) fn update(&mut self, update: &Update) -> Result<(), UpdateError> {
        if let (Action::Announce(Hop::Hop(hop)), Some(Egress { ports, .. })) = (&update.action, &self.egress)
        {
            EgressPort::check(hop, ports)?;
        }
        let id = update.next_hop(&mut self.hops)?;
        self.set_file_route(update.prefix, id);
        self.changes.updates += 1;
        Ok(())
    }

    /// Brings changes of neighbours, links and routes of gateways into service, as far as the egress table shows them, and the next hops
    /// that routes will lead to.
    fn refresh_egress(&mut self) -> Result<(), EgressError> {
        let Self { egress, hops, rib, learned, ecmp_seed, .. } = self;
        let Some(egress) = egress else { return Ok(()) };
        let stopped = learned.as_ref().map_or_else(Vec::new, |learned| learned.interfaces().stopped_ports());
        egress.refresh(hops, rib, &stopped, *ecmp_seed)
    }

    /// Sets the seed of the hash that chooses the path of a flow; call it before [`Self::set_ports`].
    pub(crate) fn set_ecmp_seed(&mut self, seed: u64) {
        self.ecmp_seed = seed;
    }

    /// The seed of the hash that chooses the path of a flow.
    pub(crate) fn ecmp_seed(&self) -> u64 {
        self.ecmp_seed
    }

    /// Sets the ports that next hops may refer to, in the order of their indices; call it before the
    /// topology starts.
    ///
    /// # Errors
    /// [`ConfigError::NoDevice`] when a next hop or a neighbour refers to a port that does not exist.
    pub(crate) fn set_ports(&mut self, ports: Vec<EgressPort>) -> Result<(), ConfigError> {
        // From now on ids only lead to egress entries.
        self.hops.move_ids();
        let Self { hops, rib, ecmp_seed, .. } = &*self;
        let inputs = Inputs {
            hops,
            ports: &ports,
            rib,
            stopped: &[],
            foreign: &[],
            ecmp_seed: *ecmp_seed,
            before: None,
        };
        let table = EgressTable::build(&inputs);
        let table = table.map_err(|error: EgressError| ConfigError::NoDevice(error.to_string()))?;
        let table = Arc::new(ArcSwap::from_pointee(table));
        let retired = Retired::default();
        self.egress = Some(Egress { ports, table, retired, foreign: Vec::new(), is_stale: false });
        Ok(())
    }

    /// Takes in what the router has learned of a neighbour; in service after the next [`Self::commit`].
    pub(crate) fn set_resolved(&mut self, Resolved { address, port, mac }: Resolved) {
        let has_changed = self.hops.set_resolved(address, port, mac);
        if let Some(egress) = &mut self.egress {
            egress.is_stale |= has_changed;
        }
    }

    /// The egress table, which is replaced as a whole; `None` before [`Self::set_ports`].
    pub(crate) fn egress_table(&self) -> Option<Arc<ArcSwap<EgressTable>>> {
        self.egress.as_ref().map(|egress| Arc::clone(&egress.table))
    }

    /// Frees tables that were replaced and that no lcore has any more; call it now and then.
    pub(super) fn free_retired(&mut self) {
        self.engine.free_retired();
        if let Some(egress) = &mut self.egress {
            egress.retired.free();
        }
    }

    /// Memory of egress tables that were replaced and that an lcore may still have, bytes.
    pub(crate) fn retired_egress_bytes(&self) -> u64 {
        self.egress.as_ref().map_or(0, |egress| egress.retired.bytes())
    }

    /// How many gateways have no neighbour, and none of `interfaces` to find it.
    pub(crate) fn without_neighbour(&self, interfaces: &[Interface]) -> usize {
        self.egress.as_ref().map_or(0, |egress| without_neighbour(self.vrf, &egress.table.load(), interfaces))
    }

    /// The ports, by index; empty before [`Self::set_ports`].
    pub(crate) fn egress_ports(&self) -> &[EgressPort] {
        self.egress.as_ref().map_or(&[], |egress| &egress.ports)
    }

    /// Sets the ports of other VRFs, where no gateway is looked for that has no port; call it after [`Self::set_ports`]. In service after
    /// the next [`Self::commit`].
    pub(crate) fn set_foreign_ports(&mut self, foreign: Vec<u16>) {
        if let Some(egress) = &mut self.egress {
            egress.is_stale |= egress.foreign != foreign;
            egress.foreign = foreign;
        }
    }

    /// Takes the next hops behind port `index` out of service when its link goes down, and back when it comes up; after the next
    /// [`Self::commit`].
    pub(crate) fn set_link(&mut self, index: usize, is_up: bool) {
        if let Some(Egress { ports, is_stale, .. }) = &mut self.egress
            && let Some(port) = ports.get_mut(index).filter(|port| port.is_up != is_up)
        {
            port.is_up = is_up;
            *is_stale = true;
        }
    }

    /// Adds a neighbour, or replaces the one at its address; in service after the next [`Self::commit`].
    ///
    /// # Errors
    /// [`EgressError`] for a port that does not exist.
    pub(crate) fn add_neighbour(&mut self, neighbour: Neighbour) -> Result<(), EgressError> {
        let Neighbour { address, port, .. } = &neighbour;
        if let Some(Egress { ports, is_stale, .. }) = &mut self.egress {
            EgressPort::check(&NextHop::Gateway { gateway: *address, port: port.clone() }, ports)?;
            *is_stale = true;
        }
        self.hops.set_neighbour(neighbour);
        self.ports_or_neighbours_have_changed();
        Ok(())
    }

    /// Removes the neighbour at `address`; in effect after the next [`Self::commit`]. Returns whether there was one.
    pub(crate) fn remove_neighbour(&mut self, address: IpAddr) -> bool {
        let was_there = self.hops.remove_neighbour(address);
        if let Some(egress) = &mut self.egress {
            egress.is_stale |= was_there;
        }
        self.ports_or_neighbours_have_changed();
        was_there
    }

    /// Replaces the files' routes and neighbours by those of other tables, and commits the difference. Returns how many routes changed.
    ///
    /// # Errors
    /// As [`Self::commit`], and [`EngineError::Full`] for more routes than `--routes-max`. Everything is as before then.
    pub(crate) fn replace_routes(&mut self, rib: &Rib, hops: &NextHopTable) -> anyhow::Result<u64> {
        check_routes(rib.len() as u64, self.routes_max)?;
        let ports = self.egress_ports();
        for (_, hop) in hops.iter() {
            EgressPort::check(hop, ports)?;
        }
        for Neighbour { address, port, .. } in hops.neighbours() {
            EgressPort::check(&NextHop::Gateway { gateway: *address, port: port.clone() }, ports)?;
        }
        let mut ids = FxHashMap::default();
        for (id, hop) in hops.iter() {
            let hop = if *hop == NextHop::Bare { Hop::Id(id) } else { Hop::Hop(hop.clone()) };
            ids.insert(id, hop.intern(&mut self.hops)?);
        }
        let changes = self.replace_files(|rib| &rib.v4, &rib.v4, &ids)
            + self.replace_files(|rib| &rib.v6, &rib.v6, &ids);
        let before = self.hops.replace_neighbours(hops);
        self.ports_or_neighbours_have_changed();
        if let Some(egress) = &mut self.egress {
            egress.is_stale = true;
        }
        self.changes.updates += changes;
        if let Err(error) = self.commit() {
            self.hops.replace_neighbours(&before);
            if let Some(egress) = &mut self.egress {
                egress.is_stale = true;
            }
            self.commit()?;
            return Err(error);
        }
        Ok(changes)
    }

    /// Makes the files' routes of a family those of `other`, whose next hops have the ids that `ids` says. Returns how many changed.
    fn replace_files<K: Key>(
        &mut self,
        family: impl Fn(&Rib) -> &RibTable<K>,
        other: &RibTable<K>,
        ids: &FxHashMap<NextHopId, NextHopId>,
    ) -> u64 {
        let prefixes = family(&self.rib).prefixes();
        let gone: Vec<_> = prefixes.filter(|prefix| other.get(*prefix).is_none()).collect();
        let gone = gone.into_iter().map(|prefix| (prefix, NextHopId::NONE));
        let there = other.iter().map(|(prefix, id)| (prefix, ids.get(&id).copied().unwrap_or(id)));
        gone.chain(there).map(|(prefix, id)| u64::from(self.set_file_route(K::wrap(prefix), id))).sum()
    }

    /// What stages look packets up in.
    ///
    /// # Errors
    /// When the ports have not been set.
    pub(super) fn parts(&self) -> anyhow::Result<VrfParts<'_>> {
        let egress = self.egress.as_ref().context("a topology needs ports before it starts")?;
        Ok(VrfParts {
            engine: self.engine.as_ref(),
            egress: Arc::clone(&egress.table),
            // A fallback always answers, so batches are never abandoned then.
            stall_us: if self.failover.is_some() { u64::MAX } else { self.spec.stall_us },
        })
    }

    /// The topology has started.
    pub(super) fn set_running(&mut self, running: Handle) {
        self.running = running;
    }

    /// Whether there are updates to [`Self::commit`].
    pub(super) fn has_updates(&self) -> bool {
        self.changes.updates > 0
    }

    /// Whether the engine's memory is that of other sessions too.
    pub(crate) fn has_shared_engine(&self) -> bool {
        self.has_shared_engine
    }

    /// The batch size that the engine measured for a latency target, the smaller one of both families; `None` if it did not
    /// measure.
    pub(crate) fn batch_measured(&self) -> Option<u32> {
        let details = self.engine.stats().details;
        let keys = f64::min(details.get("batch")?, details.get("batch_v6")?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
        self.spec.latency_target_us.map(|_| keys as u32)
    }

    /// The spec that the engine was made from.
    pub(crate) fn spec(&self) -> &EngineSpec {
        &self.spec
    }

    /// The route files, in order.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// All routes, before compilation.
    pub(crate) fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The next hops.
    pub(crate) fn hops(&self) -> &NextHopTable {
        &self.hops
    }

    /// The engine; with a fallback, the pair of engines.
    pub(crate) fn engine(&self) -> &dyn EngineWriter {
        self.engine.as_ref()
    }

    /// Which of the two engines answers; `None` without a fallback.
    pub(crate) fn failover(&self) -> Option<&Service> {
        self.failover.as_deref()
    }

    /// The running topology.
    pub(crate) fn running(&self) -> &Handle {
        &self.running
    }

    /// Counts and times so far.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Replaces the engine by another one with the same routes.
    #[cfg(test)]
    pub(crate) fn replace_engine(&mut self, mut engine: Box<dyn EngineWriter>) {
        self.rib.load(engine.as_mut()).unwrap();
        self.engine = engine;
        self.set_families();
    }
}

/// The route of a prefix in a RIB.
fn route_in(rib: &Rib, prefix: IpPrefix) -> NextHopId {
    match prefix {
        IpPrefix::V4(prefix) => rib.v4.get(prefix),
        IpPrefix::V6(prefix) => rib.v6.get(prefix),
    }
}

fn check_routes(routes: u64, limit: Option<u64>) -> Result<(), EngineError> {
    match limit.filter(|limit| routes > *limit) {
        Some(limit) => Err(EngineError::Full { what: "routes (--routes-max)", used: routes, limit }),
        None => Ok(()),
    }
}

/// Why an update was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateError {
    /// There is no id for the next hop.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// The next hop refers to a port that does not exist.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The route follows from the address of a port.
    #[error("the route of {prefix} follows from the --address of a port and stays")]
    Own { prefix: IpPrefix },
}

#[cfg(test)]
mod tests;
