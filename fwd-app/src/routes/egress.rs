//! The egress side of a VRF: next hops, neighbours, and the egress table built from them, which lcores read.
//!
//! Each change replaces the table as a whole; the new table informs the candidates which next hops can forward.

use super::candidates::Candidates;
use super::distinct::Wanted;
use super::feeds::interfaces::Interfaces;
use crate::datapath::egress::{Inputs, check_ports, last_dense};
use crate::datapath::hop_counts::HopCounts;
use crate::datapath::{EgressError, EgressTable};
use crate::notice;
use crate::ports::PortTable;
use crate::ports::own::without_neighbour;
use crate::ports::table::SharedPorts;
use arc_swap::ArcSwap;
use fib::{Neighbour, NextHop, NextHopId, NextHopTable, Rib};
use lpm_core::retire::Retired;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a change of the set of gateways with routes may cost a new egress table; the router resolves the gateways of this table.
const GATEWAYS_PERIOD: Duration = Duration::from_secs(1);
/// Below this size the table is not searched for unused next hops.
pub(super) const HOPS_MIN: usize = 1 << 10;
/// How long after a commit an earlier lookup may be in flight: a batch is abandoned after twice `--stall-us`, at most two minutes.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub(super) struct Unused {
    /// The table size that starts a search, and its lower bound.
    pub(super) at: usize,
    pub(super) min: usize,
    marked: Option<Instant>,
    /// How long marked next hops stay.
    pub(super) stay: Duration,
    /// Suspends the search: replaced routes may return.
    pub(super) is_held: bool,
}

struct InService {
    table: Arc<ArcSwap<EgressTable>>,
    /// Tables that lcores may still read.
    retired: Retired<EgressTable>,
    ports: Arc<PortTable>,
    /// The number of next hops when packets without a separate counter were last checked.
    hops_seen: usize,
    /// Whether the next commit replaces the table.
    is_stale: bool,
    /// When it was last compared with the gateways that have routes.
    compared: Instant,
}

impl InService {
    fn replace(&mut self, made: EgressTable, candidates: &mut Candidates) {
        let (made, bytes) = (Arc::new(made), self.table.load().bytes());
        candidates.set_egress(&made);
        self.retired.replace(&self.table, made, bytes);
    }
}

pub(crate) struct VrfEgress {
    pub(super) number: usize,
    pub(super) hops: NextHopTable,
    /// Neighbours added by users; route files do not replace them.
    added: BTreeMap<IpAddr, Neighbour>,
    pub(super) ports: SharedPorts,
    /// `None` before the ports are known.
    in_service: Option<InService>,
    /// Whether routes of feeds may resolve to different next hops.
    pub(super) has_moved: bool,
    pub(super) unused: Unused,
}

impl VrfEgress {
    pub(super) fn new(number: usize, hops: NextHopTable, ports: SharedPorts) -> Self {
        let at = HOPS_MIN.max(2 * hops.len());
        let unused = Unused { at, min: HOPS_MIN, marked: None, stay: IN_FLIGHT_MAX, is_held: false };
        Self { number, hops, added: BTreeMap::new(), ports, in_service: None, has_moved: false, unused }
    }

    /// # Errors
    /// [`EgressError`] for a next hop at a missing port; none before the ports are known.
    pub(super) fn check(&self, hop: &NextHop) -> Result<(), EgressError> {
        self.in_service.as_ref().map_or(Ok(()), |egress| check_ports(hop, &egress.ports.ports))
    }

    /// # Errors
    /// As [`Self::check`].
    pub(super) fn check_neighbour(&self, of: &Neighbour) -> Result<(), EgressError> {
        self.check(&NextHop::Gateway { gateway: of.address, port: of.port.clone() })
    }

    fn build(
        &self,
        rib: &Rib,
        ports: &PortTable,
        before: Option<&EgressTable>,
    ) -> Result<EgressTable, EgressError> {
        EgressTable::build(&Inputs {
            hops: &self.hops,
            learned: &ports.learned,
            ports: &ports.egress(),
            rib,
            stopped: &ports.stopped(),
            foreign: &ports.foreign(self.number),
            ecmp_seed: ports.ecmp_seed,
            before,
        })
    }

    /// # Errors
    /// [`EgressError`] when a next hop or a neighbour refers to a port that does not exist.
    pub(super) fn set_ports(&mut self, rib: &Rib, candidates: &mut Candidates) -> Result<(), EgressError> {
        // From here on ids only index egress entries.
        self.hops.move_ids();
        let ports = self.ports.load_full();
        let table = Arc::new(self.build(rib, &ports, None)?);
        candidates.set_egress(&table);
        self.in_service = Some(InService {
            table: Arc::new(ArcSwap::new(table)),
            retired: Retired::default(),
            ports,
            hops_seen: 0,
            is_stale: false,
            compared: Instant::now(),
        });
        Ok(())
    }

    /// Replaces the table if ports, links, next hops, neighbours, or the routes of gateways have changed.
    pub(super) fn refresh(&mut self, rib: &Rib, candidates: &mut Candidates) -> Result<(), EgressError> {
        let Some(InService { table, ports: made_from, is_stale, .. }) = &self.in_service else {
            return Ok(());
        };
        let (before, ports) = (table.load_full(), self.ports.load_full());
        let has_ports = Arc::ptr_eq(&ports, made_from) || ports.has_ports_of(made_from);
        // Entries of bare ids are computed from the ids, so new ones need no new table.
        let is_current =
            has_ports && !*is_stale && self.hops.named() == before.named() && !before.has_moved(rib);
        let made = if is_current { None } else { Some(self.build(rib, &ports, Some(&before))?) };
        let Some(egress) = &mut self.in_service else { return Ok(()) };
        egress.ports = ports;
        if let Some(made) = made {
            for gateway in made.loops().iter().filter(|gateway| !before.loops().contains(gateway)) {
                notice::warn(format_args!(
                    "the route to gateway {gateway} leads back to it: packets for it are dropped as no_neighbour"
                ));
            }
            drop(before);
            egress.is_stale = false;
            egress.replace(made, candidates);
        }
        Ok(())
    }

    /// Calls [`Self::refresh`] if neighbours have changed or there are new next hops; logs an error.
    pub(super) fn refresh_if_stale(&mut self, rib: &Rib, candidates: &mut Candidates) {
        let is_stale = |of: &InService| of.is_stale || of.table.load().named() != self.hops.named();
        if self.in_service.as_ref().is_some_and(is_stale)
            && let Err(error) = self.refresh(rib, candidates)
        {
            notice::warn(format_args!("{error}"));
        }
    }

    /// Makes the next commit replace the table, after a change of neighbours or of next hops of objects.
    pub(super) fn neighbours_have_changed(&mut self) {
        if let Some(egress) = &mut self.in_service {
            egress.is_stale = true;
        }
    }

    /// Calls [`Self::neighbours_have_changed`] if the table needs a MAC of one of these addresses or on one of these links.
    pub(crate) fn neighbours_were_learned(&mut self, addresses: &FxHashSet<IpAddr>, ports: &FxHashSet<u16>) {
        if let Some(egress) = &mut self.in_service {
            egress.is_stale |= egress.table.load().needs(addresses, ports);
        }
    }

    pub(crate) fn table(&self) -> Option<Arc<ArcSwap<EgressTable>>> {
        self.in_service.as_ref().map(|egress| Arc::clone(&egress.table))
    }

    /// Starts counting packets by next hop, on this number of lanes, or stops it. Earlier counts are discarded.
    pub(super) fn count_next_hops(&mut self, lanes: Option<usize>, candidates: &mut Candidates) {
        if let Some(egress) = &mut self.in_service {
            egress.hops_seen = 0;
            let made = egress.table.load().counting(lanes);
            egress.replace(made, candidates);
        }
    }

    /// Packets by next hop; `None` while they are not counted.
    pub(crate) fn counts(&self) -> Option<Arc<HopCounts>> {
        self.in_service.as_ref().and_then(|egress| egress.table.load().counts().cloned())
    }

    /// Frees replaced tables that no lcore reads any more. Marks the table as stale if its gateways have changed or a counter is missing.
    pub(super) fn free_retired(&mut self, rib: &Rib) {
        let Some(egress) = &mut self.in_service else { return };
        egress.retired.free();
        let table = egress.table.load();
        if egress.compared.elapsed() >= GATEWAYS_PERIOD {
            egress.compared = Instant::now();
            egress.is_stale |= table.has_other_gateways(rib);
        }
        if let Some(counts) = table.counts()
            && egress.hops_seen != self.hops.len()
            && counts.others().packets > 0
        {
            egress.hops_seen = self.hops.len();
            egress.is_stale |= !counts.has_room(last_dense(&self.hops));
        }
    }

    /// Memory of replaced tables that an lcore may still read, bytes.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.in_service.as_ref().map_or(0, |egress| egress.retired.bytes())
    }

    /// The number of gateways without a neighbour and without an interface to resolve it.
    pub(crate) fn without_neighbour(&self) -> usize {
        let without =
            |egress: &InService| without_neighbour(self.number, &egress.table.load(), &self.ports.load());
        self.in_service.as_ref().map_or(0, without)
    }

    /// Adds or replaces the neighbour at an address; in service after the next commit.
    ///
    /// # Errors
    /// [`EgressError`] for a port that does not exist.
    pub(crate) fn add_neighbour(&mut self, neighbour: Neighbour) -> Result<(), EgressError> {
        self.check_neighbour(&neighbour)?;
        self.hops.set_neighbour(neighbour.clone());
        self.added.insert(neighbour.address, neighbour);
        self.static_neighbours_have_changed();
        Ok(())
    }

    /// Removes the neighbour at `address`; in effect after the next commit. Returns whether there was one.
    pub(crate) fn remove_neighbour(&mut self, address: IpAddr) -> bool {
        let was_there = self.hops.remove_neighbour(address);
        self.added.remove(&address);
        if was_there {
            self.static_neighbours_have_changed();
        }
        was_there
    }

    /// Replaces the neighbours of files, and keeps those added by users. Returns the files' previous neighbours.
    pub(super) fn replace_file_neighbours(&mut self, of_files: &NextHopTable) -> NextHopTable {
        let mut before = self.hops.replace_neighbours(of_files);
        for (address, neighbour) in &self.added {
            before.remove_neighbour(*address);
            self.hops.set_neighbour(neighbour.clone());
        }
        self.static_neighbours_have_changed();
        before
    }

    fn static_neighbours_have_changed(&mut self) {
        self.neighbours_have_changed();
        self.has_moved = true;
    }

    /// The next hop of a route, if one of its paths leads to a port. The route of an object keeps the object's id.
    pub(super) fn next_hop(
        &mut self,
        Wanted { route, object }: &Wanted<'_>,
        interfaces: &Interfaces,
    ) -> NextHopId {
        let Some(hop) = interfaces.next_hop(route, &self.hops) else { return NextHopId::NONE };
        let id = match object {
            None => self.hops.intern(hop),
            Some(NextHopId::NONE) => self.hops.add_object(hop),
            Some(id) => self.hops.replace(*id, hop).map(|()| *id),
        };
        // Ids run out only with millions of next hops in use; the route then has no next hop.
        id.unwrap_or_default()
    }

    /// Drops unused next hops when the table has grown to twice those in use, no earlier than [`IN_FLIGHT_MAX`] after marking them. Call it
    /// after each commit, also a refused one: engine and RIB then have the same routes.
    pub(super) fn drop_unused(&mut self, rib: &Rib, candidates: &mut Candidates) {
        let Unused { at, min, marked, stay, is_held } = &mut self.unused;
        match marked {
            _ if *is_held => {}
            Some(since) if since.elapsed() >= *stay => {
                *marked = None;
                if self.hops.drop_unused() > 0 {
                    if let Some(counts) = self.counts() {
                        counts.forget(|id| self.hops.get(id).is_some());
                    }
                    self.neighbours_have_changed();
                }
            }
            None if self.hops.len() >= *at => {
                let v4 = rib.v4.iter().map(|(_, id)| id);
                let mut used: FxHashSet<_> = v4.chain(rib.v6.iter().map(|(_, id)| id)).collect();
                used.extend(candidates.ids());
                let kept = self.hops.mark_unused(|id| used.contains(&id));
                *at = (2 * kept).max(*min);
                *marked = Some(Instant::now());
            }
            _ => {}
        }
    }
}
