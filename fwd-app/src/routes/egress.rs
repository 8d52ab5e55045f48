//! The egress side of a VRF: its next hops and neighbours, and the egress table that is made from them.
//!
//! Lcores read the table. A new one replaces it as a whole when ports, links, next hops, neighbours or the routes of gateways have changed,
//! and says to the candidates which next hops can forward.

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

/// How often gateways that have got or lost their last route cost a new egress table, at most: the router asks for these.
const GATEWAYS_PERIOD: Duration = Duration::from_secs(1);
/// The table of next hops is not searched for unused ones below this size.
pub(super) const HOPS_MIN: usize = 1 << 10;
/// How long after a commit a lookup from before it may still be on its way to its packets. A batch that an engine does not answer is
/// given up after twice `--stall-us`, which is two minutes at most.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(180);

/// When to look for next hops that no route uses, and how long ago that was.
#[derive(Debug)]
pub(super) struct Unused {
    /// The size of the table at which they are looked for, and the least such size.
    pub(super) at: usize,
    pub(super) min: usize,
    /// When they were marked.
    marked: Option<Instant>,
    /// How long they stay after that.
    pub(super) stay: Duration,
    /// Whether none are looked for now: routes that were replaced may come back.
    pub(super) is_held: bool,
}

/// The egress table in service.
struct InService {
    /// The table that lcores read; a new one replaces it as a whole.
    table: Arc<ArcSwap<EgressTable>>,
    /// Tables that lcores had before.
    retired: Retired<EgressTable>,
    /// The ports that it was made from.
    ports: Arc<PortTable>,
    /// The number of next hops when packets without an own cell were last examined.
    hops_seen: usize,
    /// Whether a neighbour has changed since the table was made.
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

/// The egress side of a VRF.
pub(crate) struct VrfEgress {
    /// The number of the VRF.
    pub(super) number: usize,
    /// The next hops, and the static neighbours in effect.
    pub(super) hops: NextHopTable,
    /// The neighbours that users have added, which other files do not replace.
    added: BTreeMap<IpAddr, Neighbour>,
    /// All ports.
    pub(super) ports: SharedPorts,
    /// `None` before the ports are known.
    in_service: Option<InService>,
    /// Whether routes of feeds may have other next hops than before.
    pub(super) has_moved: bool,
    pub(super) unused: Unused,
}

impl VrfEgress {
    /// Without a table.
    pub(super) fn new(number: usize, hops: NextHopTable, ports: SharedPorts) -> Self {
        let at = HOPS_MIN.max(2 * hops.len());
        let unused = Unused { at, min: HOPS_MIN, marked: None, stay: IN_FLIGHT_MAX, is_held: false };
        Self { number, hops, added: BTreeMap::new(), ports, in_service: None, has_moved: false, unused }
    }

    /// Whether a next hop refers to a port that exists; all do before the ports are known.
    ///
    /// # Errors
    /// [`EgressError`] when it does not.
    pub(super) fn check(&self, hop: &NextHop) -> Result<(), EgressError> {
        self.in_service.as_ref().map_or(Ok(()), |egress| check_ports(hop, &egress.ports.ports))
    }

    /// As [`Self::check`], of the port of a neighbour.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check_neighbour(&self, of: &Neighbour) -> Result<(), EgressError> {
        self.check(&NextHop::Gateway { gateway: of.address, port: of.port.clone() })
    }

    /// Makes an egress table.
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

    /// The ports are known: makes the first table.
    ///
    /// # Errors
    /// [`EgressError`] when a next hop or a neighbour refers to a port that does not exist.
    pub(super) fn set_ports(&mut self, rib: &Rib, candidates: &mut Candidates) -> Result<(), EgressError> {
        // From now on ids only lead to egress entries.
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

    /// Replaces the table if something has changed: ports, links, next hops, neighbours, or the routes of gateways.
    pub(super) fn refresh(&mut self, rib: &Rib, candidates: &mut Candidates) -> Result<(), EgressError> {
        let Some(InService { table, ports: made_from, is_stale, .. }) = &self.in_service else {
            return Ok(());
        };
        let (before, ports) = (table.load_full(), self.ports.load_full());
        // Learned neighbours have changed only if `is_stale`.
        let has_ports = Arc::ptr_eq(&ports, made_from) || ports.has_ports_of(made_from);
        // The egress table computes bare ids, so they need no new table.
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

    /// As [`Self::refresh`] if neighbours have changed or there are new next hops, and says why it could not.
    pub(super) fn refresh_if_stale(&mut self, rib: &Rib, candidates: &mut Candidates) {
        let is_stale = |of: &InService| of.is_stale || of.table.load().named() != self.hops.named();
        if self.in_service.as_ref().is_some_and(is_stale)
            && let Err(error) = self.refresh(rib, candidates)
        {
            notice::warn(format_args!("{error}"));
        }
    }

    /// Neighbours or next hops of objects have changed: the next commit replaces the table.
    pub(super) fn neighbours_have_changed(&mut self) {
        if let Some(egress) = &mut self.in_service {
            egress.is_stale = true;
        }
    }

    /// As [`Self::neighbours_have_changed`], if the table needs a MAC of one of these addresses or on one of these links.
    pub(crate) fn neighbours_were_learned(&mut self, addresses: &FxHashSet<IpAddr>, ports: &FxHashSet<u16>) {
        if let Some(egress) = &mut self.in_service {
            egress.is_stale |= egress.table.load().needs(addresses, ports);
        }
    }

    /// The table, which is replaced as a whole; `None` before the ports are known.
    pub(crate) fn table(&self) -> Option<Arc<ArcSwap<EgressTable>>> {
        self.in_service.as_ref().map(|egress| Arc::clone(&egress.table))
    }

    /// Counts packets by next hop from now on, on this number of lanes, or no longer. Earlier counts are forgotten.
    pub(super) fn count_next_hops(&mut self, lanes: Option<usize>, candidates: &mut Candidates) {
        if let Some(egress) = &mut self.in_service {
            egress.hops_seen = 0;
            let made = egress.table.load().counting(lanes);
            egress.replace(made, candidates);
        }
    }

    /// What was counted by next hop; `None` while nothing is.
    pub(crate) fn counts(&self) -> Option<Arc<HopCounts>> {
        self.in_service.as_ref().and_then(|egress| egress.table.load().counts().cloned())
    }

    /// Frees replaced tables that no lcore has any more, and marks the table as stale if packets of next hops without an own cell were
    /// counted that could have one.
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

    /// Memory of tables that were replaced and that an lcore may still have, bytes.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.in_service.as_ref().map_or(0, |egress| egress.retired.bytes())
    }

    /// The number of gateways without a neighbour and without an interface to find it.
    pub(crate) fn without_neighbour(&self) -> usize {
        let without =
            |egress: &InService| without_neighbour(self.number, &egress.table.load(), &self.ports.load());
        self.in_service.as_ref().map_or(0, without)
    }

    /// Adds a neighbour, or replaces the one at its address; in service after the next commit.
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

    /// Replaces the neighbours of files, and keeps the neighbours that users have added. Returns the files' neighbours before.
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

    /// The next hop of a route over these interfaces, if one of its paths leads to a port. That of an object gets the object's id.
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
        // Ids are used up only by millions of next hops in use; the route is then as one without a port.
        id.unwrap_or_default()
    }

    /// Drops next hops that no route uses, when the table has grown to twice those in use. Call it after a commit, even a refused one: then
    /// engine and RIB have the same routes. See [`IN_FLIGHT_MAX`].
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
