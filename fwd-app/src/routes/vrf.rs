//! A VRF: its RIB and next hops, its engine, and its egress table.
//!
//! [`Vrf::open`] loads the files and brings their tables into service, or fails as a whole. After that, changes take two steps: what
//! sources say ([`super::sources`]) changes the RIB and the next hops, and [`Vrf::commit`] brings all changes into service. Commits go on
//! while the topology runs, and the VRF may move to another engine ([`super::engine_swap`]).
//!
//! The engine is made before the first file is opened, so that a wrong engine name fails at once.

use super::candidates::{Candidates, SourceId};
use super::commit::Changes;
use super::engine_swap::Building;
use super::files::{LoadProgress, load_rib};
use super::spec::TableSpec;
use crate::datapath::egress::{Inputs, check_ports, last_dense};
use crate::datapath::hop_counts::HopCounts;
use crate::datapath::{EgressError, EgressTable};
use crate::engines::{EngineSpec, Made};
use crate::notice;
use crate::ports::PortTable;
use crate::ports::own::without_neighbour;
use crate::ports::table::SharedPorts;
use crate::topology::lcores::VrfParts;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use fib::feed::{Action, Hop, Update};
use fib::{EngineError, EngineWriter, IpPrefix, Neighbour, NextHop, NextHopError, NextHopTable, Rib};
use lpm_core::pair::Service;
use lpm_core::retire::Retired;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts and times of a VRF so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VrfTally {
    /// Time to read the route files, seconds.
    pub(crate) load_s: f64,
    /// Time to build the engine's table, seconds.
    pub(crate) build_s: f64,
    /// Updates in service, without the initial tables.
    pub(crate) updates: u64,
    /// Deltas in which the engine got these updates.
    pub(crate) deltas: u64,
}

/// The egress side of a VRF.
pub(super) struct Egress {
    /// All ports.
    ports: SharedPorts,
    /// `None` before the ports are known.
    in_service: Option<InService>,
}

/// The egress table in service.
struct InService {
    /// The table that lcores read; a new one replaces it as a whole.
    table: Arc<ArcSwap<EgressTable>>,
    /// Tables that lcores had before.
    retired: Retired<EgressTable>,
    /// The ports that it was made from.
    ports: Arc<PortTable>,
    /// How many next hops there were when packets without a cell of their own were last looked into.
    hops_seen: usize,
    /// Whether a neighbour has changed since the table was made.
    is_stale: bool,
    /// When it was last compared with the gateways that have routes.
    compared: Instant,
}

/// How often gateways that have got or lost their last route cost a new egress table, at most: the router asks for these.
const GATEWAYS_PERIOD: Duration = Duration::from_secs(1);

/// Makes an egress table.
fn build(
    (hops, rib): (&NextHopTable, &Rib),
    (table, number): (&PortTable, usize),
    before: Option<&EgressTable>,
) -> Result<EgressTable, EgressError> {
    EgressTable::build(&Inputs {
        hops,
        learned: &table.learned,
        ports: &table.egress(),
        rib,
        stopped: &table.stopped(),
        foreign: &table.foreign(number),
        ecmp_seed: table.ecmp_seed,
        before,
    })
}

/// A route that is unreachable since it leads to no port, of which a warning is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    /// Its prefix.
    pub(crate) prefix: IpPrefix,
    /// Who announced it.
    pub(crate) source: SourceId,
    /// The interface of its first path.
    pub(crate) ifindex: u32,
}

/// The engine of a VRF.
pub(super) struct Engine {
    pub(super) spec: EngineSpec,
    pub(super) writer: Box<dyn EngineWriter>,
    /// The engine before, if stages that stop may still look up in it.
    pub(super) retired: Option<Box<dyn EngineWriter>>,
    /// The engine to come.
    pub(super) building: Option<Building>,
    /// Which of the two engines answers; `None` without a fallback.
    pub(super) failover: Option<Arc<Service>>,
    /// Whether the engine's memory is that of other VRFs too.
    pub(super) is_shared: bool,
}

/// What a VRF was opened with.
pub(super) struct Opened {
    /// Its number.
    pub(super) number: usize,
    /// Its name.
    name: String,
    /// Its route files, in order.
    files: Vec<PathBuf>,
    /// Tables with more routes are refused.
    pub(super) routes_max: Option<u64>,
}

/// A VRF in service.
pub(crate) struct Vrf {
    pub(super) opened: Opened,
    pub(super) rib: Rib,
    /// The next hops, and the static neighbours in effect.
    pub(super) hops: NextHopTable,
    /// The neighbours that users have added, which other files do not replace.
    added_neighbours: BTreeMap<IpAddr, Neighbour>,
    pub(super) engine: Engine,
    pub(super) egress: Egress,
    /// What sources say of prefixes that others than files have.
    pub(super) candidates: Candidates,
    /// What has changed since the last commit, what the engine has refused, and what is to be looked at.
    pub(super) changes: Changes,
    pub(super) tally: VrfTally,
}

impl Vrf {
    /// VRF `name` with this number, the routes of `spec` in the engine that was made, and the ports that all VRFs have.
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
        let engine = Engine {
            spec: spec.engine.clone(),
            writer: engine,
            retired: None,
            building: None,
            failover: service,
            is_shared,
        };
        let TableSpec { files, routes_max, .. } = spec;
        let mut vrf = Self {
            opened: Opened { number, name: name.to_owned(), files, routes_max },
            rib,
            changes: Changes::new(hops.len()),
            hops,
            added_neighbours: BTreeMap::new(),
            engine,
            egress: Egress { ports, in_service: None },
            candidates: Candidates::default(),
            tally: VrfTally { load_s, ..VrfTally::default() },
        };
        let start = Instant::now();
        vrf.rib.commit_to(vrf.engine.writer.as_mut()).with_context(|| {
            format!("engine {} cannot hold this table of {routes} routes", vrf.engine.writer.info().name)
        })?;
        vrf.tally.build_s = start.elapsed().as_secs_f64();
        vrf.set_families();
        Ok(vrf)
    }

    /// Applies an update of the files' routes to the RIB and the next hops; it is in service after the next [`Self::commit`], unless
    /// another source's route of the prefix is preferred.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free, [`EgressError`] for a next hop that refers to a port which does not exist. Nothing has
    /// changed then.
    pub(crate) fn update(&mut self, update: &Update) -> Result<(), UpdateError> {
        if let Action::Announce(Hop::Hop(hop)) = &update.action {
            self.check(hop)?;
        }
        let id = update.next_hop(&mut self.hops)?;
        self.set_file_route(update.prefix, id);
        self.changes.updates += 1;
        Ok(())
    }

    /// Whether a next hop refers to a port that exists; all do before the ports are known.
    ///
    /// # Errors
    /// [`EgressError`] when it does not.
    pub(super) fn check(&self, hop: &NextHop) -> Result<(), EgressError> {
        self.egress.in_service.as_ref().map_or(Ok(()), |egress| check_ports(hop, &egress.ports.ports))
    }

    /// The ports are known: makes the egress table.
    ///
    /// # Errors
    /// [`EgressError`] when a next hop or a neighbour refers to a port that does not exist.
    pub(crate) fn set_ports(&mut self) -> Result<(), EgressError> {
        // From now on ids only lead to egress entries.
        self.hops.move_ids();
        let ports = self.egress.ports.load_full();
        let table = Arc::new(build((&self.hops, &self.rib), (&ports, self.opened.number), None)?);
        self.candidates.set_egress(&table);
        let table = Arc::new(ArcSwap::new(table));
        self.egress.in_service = Some(InService {
            table,
            retired: Retired::default(),
            ports,
            hops_seen: 0,
            is_stale: false,
            compared: Instant::now(),
        });
        Ok(())
    }

    /// Makes the egress table anew if something has changed: ports, links, next hops, neighbours, or the routes of gateways.
    pub(super) fn refresh_egress(&mut self) -> Result<(), EgressError> {
        let Self { opened, hops, rib, candidates, egress: Egress { ports, in_service }, .. } = self;
        let Some(InService { table, retired, ports: made_from, is_stale, .. }) = in_service else {
            return Ok(());
        };
        let (before, ports) = (table.load(), ports.load_full());
        // Learned neighbours have changed only if `is_stale`.
        let has_ports = Arc::ptr_eq(&ports, made_from) || ports.has_ports_of(made_from);
        // The egress table computes bare ids, so they need no new table.
        if has_ports && !*is_stale && hops.named() == before.named() && !before.has_moved(rib) {
            *made_from = ports;
            return Ok(());
        }
        let made = build((hops, rib), (&ports, opened.number), Some(&before))?;
        for gateway in made.loops().iter().filter(|gateway| !before.loops().contains(gateway)) {
            notice::warn(format_args!(
                "the route to gateway {gateway} leads back to it: packets for it are dropped as no_neighbour"
            ));
        }
        let (made, bytes) = (Arc::new(made), before.bytes());
        drop(before);
        candidates.set_egress(&made);
        retired.replace(table, made, bytes);
        (*made_from, *is_stale) = (ports, false);
        Ok(())
    }

    /// As [`Self::refresh_egress`] if neighbours have changed or there are new next hops, and says why it could not.
    pub(super) fn refresh_stale_egress(&mut self) {
        let is_stale =
            |egress: &InService| egress.is_stale || egress.table.load().named() != self.hops.named();
        if self.egress.in_service.as_ref().is_some_and(is_stale)
            && let Err(error) = self.refresh_egress()
        {
            notice::warn(format_args!("{error}"));
        }
    }

    /// Neighbours or next hops of objects have changed: the next commit makes the egress table anew.
    pub(super) fn neighbours_have_changed(&mut self) {
        if let Some(egress) = &mut self.egress.in_service {
            egress.is_stale = true;
        }
    }

    /// As [`Self::neighbours_have_changed`], if the egress table needs a MAC of one of these addresses or on one of these links.
    pub(crate) fn neighbours_were_learned(&mut self, addresses: &FxHashSet<IpAddr>, ports: &FxHashSet<u16>) {
        if let Some(egress) = &mut self.egress.in_service {
            egress.is_stale |= egress.table.load().needs(addresses, ports);
        }
    }

    /// The egress table, which is replaced as a whole; `None` before the ports are known.
    pub(crate) fn egress_table(&self) -> Option<Arc<ArcSwap<EgressTable>>> {
        self.egress.in_service.as_ref().map(|egress| Arc::clone(&egress.table))
    }

    /// Counts packets by next hop from now on, on so many lanes, or does not any more. What was counted before is forgotten.
    pub(crate) fn count_next_hops(&mut self, lanes: Option<usize>) {
        if let Some(InService { table, retired, hops_seen, .. }) = &mut self.egress.in_service {
            *hops_seen = 0;
            let made = Arc::new(table.load().counting(lanes));
            let bytes = made.bytes();
            self.candidates.set_egress(&made);
            retired.replace(table, made, bytes);
        }
    }

    /// What was counted by next hop; `None` while nothing is.
    pub(crate) fn next_hop_counts(&self) -> Option<Arc<HopCounts>> {
        self.egress.in_service.as_ref().and_then(|egress| egress.table.load().counts().cloned())
    }

    /// Frees tables that were replaced and that no lcore has any more, and makes the egress table anew if packets of next hops without
    /// a cell of their own were counted that could have one; call it now and then.
    pub(crate) fn free_retired(&mut self) {
        self.engine.writer.free_retired();
        let Some(egress) = &mut self.egress.in_service else { return };
        egress.retired.free();
        let table = egress.table.load();
        if egress.compared.elapsed() >= GATEWAYS_PERIOD {
            egress.compared = Instant::now();
            egress.is_stale |= table.has_other_gateways(&self.rib);
        }
        if let Some(counts) = table.counts()
            && egress.hops_seen != self.hops.len()
            && counts.others().packets > 0
        {
            egress.hops_seen = self.hops.len();
            egress.is_stale |= !counts.has_room(last_dense(&self.hops));
        }
    }

    /// Memory of egress tables that were replaced and that an lcore may still have, bytes.
    pub(crate) fn retired_egress_bytes(&self) -> u64 {
        self.egress.in_service.as_ref().map_or(0, |egress| egress.retired.bytes())
    }

    /// How many gateways have no neighbour, and no interface to find it.
    pub(crate) fn without_neighbour(&self) -> usize {
        let Egress { ports, in_service } = &self.egress;
        let without =
            |egress: &InService| without_neighbour(self.opened.number, &egress.table.load(), &ports.load());
        in_service.as_ref().map_or(0, without)
    }

    /// Adds a neighbour, or replaces the one at its address; in service after the next [`Self::commit`].
    ///
    /// # Errors
    /// [`EgressError`] for a port that does not exist.
    pub(crate) fn add_neighbour(&mut self, neighbour: Neighbour) -> Result<(), EgressError> {
        let Neighbour { address, port, .. } = &neighbour;
        self.check(&NextHop::Gateway { gateway: *address, port: port.clone() })?;
        self.hops.set_neighbour(neighbour.clone());
        self.added_neighbours.insert(neighbour.address, neighbour);
        self.static_neighbours_have_changed();
        Ok(())
    }

    /// Removes the neighbour at `address`; in effect after the next [`Self::commit`]. Returns whether there was one.
    pub(crate) fn remove_neighbour(&mut self, address: IpAddr) -> bool {
        let was_there = self.hops.remove_neighbour(address);
        self.added_neighbours.remove(&address);
        if was_there {
            self.static_neighbours_have_changed();
        }
        was_there
    }

    /// Replaces the neighbours of files, and keeps the neighbours that users have added. Returns the files' neighbours before.
    pub(super) fn replace_file_neighbours(&mut self, of_files: &NextHopTable) -> NextHopTable {
        let mut before = self.hops.replace_neighbours(of_files);
        for (address, neighbour) in &self.added_neighbours {
            before.remove_neighbour(*address);
            self.hops.set_neighbour(neighbour.clone());
        }
        self.static_neighbours_have_changed();
        before
    }

    /// Routes of feeds may have other next hops than before.
    pub(super) fn static_neighbours_have_changed(&mut self) {
        self.neighbours_have_changed();
        self.changes.has_moved = true;
    }

    /// What stages look packets up in.
    ///
    /// # Errors
    /// When the ports have not been set.
    pub(crate) fn parts(&self) -> anyhow::Result<VrfParts<'_>> {
        let egress = self.egress.in_service.as_ref().context("a topology needs ports before it starts")?;
        Ok(VrfParts {
            engine: self.engine(),
            egress: Arc::clone(&egress.table),
            // A fallback always answers, so batches are never abandoned then.
            stall_us: if self.engine.failover.is_some() { u64::MAX } else { self.engine.spec.stall_us },
        })
    }

    /// Whether there are updates to [`Self::commit`].
    pub(crate) fn has_updates(&self) -> bool {
        self.changes.updates > 0
    }

    /// Whether the engine's memory is that of other VRFs too.
    pub(crate) fn has_shared_engine(&self) -> bool {
        self.engine.is_shared
    }

    /// The batch size that the engine measured for a latency target, the smaller one of both families; `None` if it did not
    /// measure.
    pub(crate) fn batch_measured(&self) -> Option<u32> {
        let details = self.engine().stats().details;
        let keys = f64::min(details.get("batch")?, details.get("batch_v6")?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
        self.engine.spec.latency_target_us.map(|_| keys as u32)
    }

    /// The spec that the engine was made from.
    pub(crate) fn spec(&self) -> &EngineSpec {
        &self.engine.spec
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        &self.opened.name
    }

    /// The route files, in order.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.opened.files
    }

    /// Reads other route files from the next reload on.
    pub(crate) fn set_files(&mut self, files: Vec<PathBuf>) {
        self.opened.files = files;
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
        self.engine.writer.as_ref()
    }

    /// Which of the two engines answers; `None` without a fallback.
    pub(crate) fn failover(&self) -> Option<&Service> {
        self.engine.failover.as_deref()
    }

    /// Counts and times so far.
    pub(crate) fn tally(&self) -> VrfTally {
        self.tally
    }

    /// Replaces the engine by another one with the same routes.
    #[cfg(test)]
    pub(crate) fn replace_engine(&mut self, mut engine: Box<dyn EngineWriter>) {
        self.rib.load(engine.as_mut()).unwrap();
        self.engine.writer = engine;
        self.set_families();
    }
}

/// Refuses a table that has too many routes.
///
/// # Errors
/// [`EngineError::Full`] for more than `limit`.
pub(super) fn check_routes(routes: u64, limit: Option<u64>) -> Result<(), EngineError> {
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
#[path = "vrf_test.rs"]
mod tests;
