//! Builds an egress table: resolves each next hop with the current ports, neighbours and routes.
//!
//! Next hops that depend only on a port and a neighbour come first, then groups and *recursive* gateways, which have neither a port nor a
//! neighbour entry: their packets follow the longest route that covers the gateway. If that route is a link, the gateway is a neighbour
//! there; else the packets take the path of its next hop. A gateway in a loop or behind more than [`REACH_MAX`] next hops drops its packets
//! as `no_neighbour`, as does a group without a live path. A path is alive if its port is up and its MAC is known, or as a link when it is
//! up. A group keeps the [`Ways`] of the previous table while the same paths are alive.

use super::learned::{Learned, LearnedKey};
use super::ways::{Alive, Ways, WaysMaker, identity};
use super::{DENSE_ANYWAY, DENSE_BARE_MAX};
use super::{DropReason, Egress, EgressError, EgressPort, EgressTable, Exit, LiveGroup, find_port};
use crate::datapath::flow;
use fib::{Group, MacAddr, NextHop, NextHopId, NextHopTable, PortRef, Rib};
use lpm_core::drops::Witness;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Most next hops between a recursive gateway and its port.
const REACH_MAX: usize = 256;

pub(crate) fn last_dense(hops: &NextHopTable) -> u32 {
    let is_dense = |(id, hop): &(NextHopId, &NextHop)| **hop != NextHop::Bare || id.get() <= DENSE_BARE_MAX;
    hops.iter().filter(is_dense).map(|(id, _)| id.get()).max().unwrap_or(0)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) hops: &'a NextHopTable,
    pub(crate) learned: &'a Learned,
    /// A port's index is its place in the list.
    pub(crate) ports: &'a [EgressPort],
    pub(crate) rib: &'a Rib,
    /// Ports that groups avoid although their link is up.
    pub(crate) stopped: &'a [u16],
    /// Ports of other VRFs, where a gateway without a port is no neighbour.
    pub(crate) foreign: &'a [u16],
    pub(crate) ecmp_seed: u64,
    pub(crate) before: Option<&'a EgressTable>,
}

#[cfg(any(test, feature = "testing"))]
impl<'a> Inputs<'a> {
    pub(crate) fn new(
        hops: &'a NextHopTable,
        ports: &'a [EgressPort],
        rib: &'a Rib,
        learned: &'a Learned,
    ) -> Self {
        Self { hops, learned, ports, rib, stopped: &[], foreign: &[], ecmp_seed: 0, before: None }
    }
}

impl EgressTable {
    /// # Errors
    /// [`EgressError`] when a next hop or a neighbour refers to a port that does not exist, or when there are no ports.
    pub(crate) fn build(inputs: &Inputs<'_>) -> Result<Self, EgressError> {
        let Inputs { hops, learned, ports, .. } = *inputs;
        let count = u64::try_from(ports.len()).unwrap_or(0);
        let per_port = u64::MAX.checked_div(count).ok_or(EgressError::NoPorts)?;
        let mut table = Self {
            dense: Box::default(),
            ports: ports.to_vec(),
            modulus_inverse: per_port.wrapping_add(1),
            neighbours: FxHashMap::default(),
            by_vlan: FxHashMap::default(),
            only_tagged: FxHashSet::default(),
            links: FxHashMap::default(),
            gateways: FxHashMap::default(),
            unrouted: Default::default(),
            ways: Vec::new(),
            groups: FxHashMap::default(),
            recursive: Vec::new(),
            loops: Vec::new(),
            hash_key: flow::key(inputs.ecmp_seed),
            named: 0,
            hops_last: last_dense(hops),
            counts: None,
            _witness: Witness::new("egress table"),
        };
        for neighbour in hops.neighbours() {
            let user = || format!("neighbour {}", neighbour.address);
            let id = NextHopId::NONE;
            let port = table.resolve(&neighbour.port, id, user)?;
            table.neighbours.insert((neighbour.address, port), table.entry(port, neighbour.mac));
        }
        for (LearnedKey { address, port, by }, mac) in learned.iter() {
            if hops.neighbour(address).is_none() && usize::from(port) < ports.len() {
                let entry = table.entry(port, mac);
                match by.vlans() {
                    Some(vlans) => drop(table.by_vlan.insert((address, port, vlans), entry)),
                    None => drop(table.neighbours.entry((address, port)).or_insert(entry)),
                }
            }
        }
        let tagged = table.by_vlan.keys().map(|(address, port, _)| (*address, *port));
        table.only_tagged = tagged.filter(|at| !table.neighbours.contains_key(at)).collect();
        let counts = inputs.before.and_then(EgressTable::counts);
        table.counts = counts.map(|counts| counts.with_room(table.hops_last));
        table.dense = (0..=table.hops_last.max(DENSE_ANYWAY))
            .map(|id| table.bare(NextHopId::from_answer(id)))
            .collect();
        let mut later = Vec::new();
        for (id, hop) in hops.iter().filter(|(_, hop)| **hop != NextHop::Bare) {
            table.named += 1;
            match table.simple(id, hop, inputs)? {
                Some(entry) => table.dense[id.get() as usize] = entry,
                None => later.push(id),
            }
        }
        if !later.is_empty() {
            Resolver::new(inputs, &mut table, later).run();
        }
        table.unrouted = (table.without_route(inputs.rib), inputs.rib.turnover());
        Ok(table)
    }

    /// The entry of a next hop that depends on no other; `None` for a group and a recursive gateway.
    fn simple(
        &mut self,
        id: NextHopId,
        hop: &NextHop,
        inputs: &Inputs<'_>,
    ) -> Result<Option<Egress>, EgressError> {
        let Inputs { hops, learned, foreign, .. } = *inputs;
        let user = || format!("next hop {hop}");
        Ok(Some(match hop {
            NextHop::Bare => self.bare(id),
            NextHop::Moved(number) => self.bare(*number),
            NextHop::Blackhole => Self::drop(DropReason::Blackhole),
            NextHop::Unreachable => Self::drop(DropReason::Unreachable),
            NextHop::Prohibit => Self::drop(DropReason::Prohibited),
            NextHop::Local => Self::without_port(Exit::Local),
            NextHop::Connected { port } => {
                let port = self.resolve(port, id, user)?;
                self.links.insert(id, port);
                Self::without_port(Exit::Connected)
            }
            NextHop::Port { port } => {
                let port = self.resolve(&PortRef::Index(*port), id, user)?;
                self.entry(port, MacAddr::of_bare_id(NextHopId::from_answer(u32::from(port) + 1)))
            }
            NextHop::Gateway { gateway, port } => {
                // A port that does not exist is an error even if the neighbour is known.
                let port = find_port(port, &self.ports, user)?;
                let known = match hops.neighbour(*gateway) {
                    Some(neighbour) => {
                        let theirs = || self.resolve(&neighbour.port, id, user);
                        Some((port.map_or_else(theirs, Ok)?, neighbour.mac))
                    }
                    None => {
                        self.gateways.insert(id, (*gateway, port));
                        learned.find(*gateway, |at| port.map_or(!foreign.contains(&at), |port| port == at))
                    }
                };
                let known = known.filter(|(port, _)| usize::from(*port) < self.ports.len());
                match (known, port) {
                    (Some((port, mac)), _) => self.entry(port, mac),
                    (None, Some(_)) => Self::drop(DropReason::NoNeighbour),
                    (None, None) => return Ok(None),
                }
            }
            NextHop::Group(_) => return Ok(None),
        }))
    }

    fn resolve(
        &self,
        port: &PortRef,
        id: NextHopId,
        user: impl FnOnce() -> String,
    ) -> Result<u16, EgressError> {
        let found = find_port(port, &self.ports, user)?;
        Ok(found.unwrap_or_else(|| self.port_of_bare(id)))
    }
}

enum Dependent {
    Group(Group, Box<[NextHopId]>),
    Recursive(IpAddr, NextHopId),
}

impl Dependent {
    fn on(&self) -> &[NextHopId] {
        match self {
            Self::Group(_, paths) => paths,
            Self::Recursive(_, via) => std::slice::from_ref(via),
        }
    }
}

struct Resolver<'a> {
    inputs: &'a Inputs<'a>,
    table: &'a mut EgressTable,
    dependent: FxHashMap<NextHopId, Dependent>,
    /// Sorted by id, so that the indices of ways are reproducible.
    order: Vec<NextHopId>,
    done: FxHashSet<NextHopId>,
    maker: WaysMaker,
}

impl<'a> Resolver<'a> {
    fn new(inputs: &'a Inputs<'a>, table: &'a mut EgressTable, mut order: Vec<NextHopId>) -> Self {
        order.sort_unstable();
        let dependent = order.iter().filter_map(|id| Some((*id, Self::dependent(inputs, *id)?))).collect();
        let (done, maker) = (FxHashSet::default(), WaysMaker::default());
        Self { inputs, table, dependent, order, done, maker }
    }

    fn dependent(inputs: &Inputs<'_>, id: NextHopId) -> Option<Dependent> {
        match inputs.hops.get(id)? {
            NextHop::Group(group) => {
                let paths = group.paths().iter().filter_map(|path| inputs.hops.find(&path.hop));
                Some(Dependent::Group(group.clone(), paths.collect()))
            }
            NextHop::Gateway { gateway, .. } => {
                let via = inputs.rib.longest(*gateway).map_or(NextHopId::NONE, |(_, id)| id);
                Some(Dependent::Recursive(*gateway, via))
            }
            _ => None,
        }
    }

    fn run(mut self) {
        for id in self.order.clone() {
            self.resolve(id);
        }
    }

    fn resolve(&mut self, id: NextHopId) {
        let Some(dependent) = self.dependent.get(&id) else { return };
        if !self.done.insert(id) {
            return;
        }
        let entry = match dependent {
            Dependent::Group(group, paths) => {
                let (group, paths) = (group.clone(), paths.clone());
                paths.iter().for_each(|path| self.resolve(*path));
                self.group(id, group, paths)
            }
            Dependent::Recursive(gateway, via) => {
                let (gateway, via) = (*gateway, *via);
                self.table.recursive.push((gateway, via));
                self.recursive(id, gateway, via)
            }
        };
        self.table.dense[id.get() as usize] = entry;
    }

    fn recursive(&mut self, id: NextHopId, gateway: IpAddr, via: NextHopId) -> Egress {
        if self.loops(id) {
            self.table.loops.push(gateway);
            return EgressTable::drop(DropReason::NoNeighbour);
        }
        self.resolve(via);
        let link = self.table.links.get(&via).copied().or_else(|| self.link_of_group(via));
        if let Some(port) = link {
            self.table.gateways.insert(id, (gateway, Some(port)));
            let known = self.table.neighbours.get(&(gateway, port));
            return known.copied().unwrap_or(EgressTable::drop(DropReason::NoNeighbour));
        }
        if let Some(wanted) = self.table.gateways.get(&via) {
            let wanted = *wanted;
            self.table.gateways.insert(id, wanted);
        } else if !via.is_none() {
            self.table.gateways.remove(&id);
        }
        let entry = self.table.get(via);
        match Exit::from_word(entry.port) {
            Exit::Drop(DropReason::NoRoute) | Exit::Local => EgressTable::drop(DropReason::NoNeighbour),
            _ => entry,
        }
    }

    fn link_of_group(&self, id: NextHopId) -> Option<u16> {
        let Some(Dependent::Group(_, paths)) = self.dependent.get(&id) else { return None };
        let mut links = paths.iter().filter_map(|path| self.table.links.get(path)).copied();
        let first = links.clone().next();
        links.find(|port| self.is_usable(*port)).or(first)
    }

    /// Whether the path of a recursive gateway leads back to it, or is too long.
    fn loops(&self, start: NextHopId) -> bool {
        let (mut seen, mut next) = (FxHashSet::default(), vec![start]);
        while let Some(id) = next.pop() {
            for on in self.dependent.get(&id).map_or(&[][..], Dependent::on) {
                if *on == start || seen.len() > REACH_MAX {
                    return true;
                }
                if seen.insert(*on) {
                    next.push(*on);
                }
            }
        }
        seen.len() > REACH_MAX
    }

    fn is_usable(&self, port: u16) -> bool {
        self.table.is_up(port) && !self.inputs.stopped.contains(&port)
    }

    fn is_alive(&self, path: NextHopId) -> bool {
        match Exit::from_word(self.table.get(path).port) {
            Exit::Connected => self.table.links.get(&path).is_some_and(|port| self.is_usable(*port)),
            Exit::Group => true,
            Exit::Port(port) => self.is_usable(port),
            _ => false,
        }
    }

    fn group(&mut self, id: NextHopId, group: Group, paths: Box<[NextHopId]>) -> Egress {
        let alive = paths.iter().zip(0..).map(|(path, place)| u64::from(self.is_alive(*path)) << place);
        let alive = alive.fold(0, |all, bit| all | bit);
        let ways = (alive != 0).then(|| self.ways(id, &group, &paths, alive));
        let entry = match &ways {
            Some(ways) => {
                let [a, b, c, d] = u32::try_from(self.table.ways.len()).unwrap_or(0).to_le_bytes();
                self.table.ways.push(Arc::clone(ways));
                let mut entry = EgressTable::without_port(Exit::Group);
                entry.macs[..4].copy_from_slice(&[a, b, c, d]);
                entry
            }
            None => {
                let mut wanted = paths.iter().filter_map(|path| self.table.gateways.get(path)).copied();
                let without_way = wanted.clone().find(|(_, port)| port.is_none());
                let has_link = |(_, port): &(_, Option<u16>)| port.is_some_and(|port| self.is_usable(port));
                // A group whose links are all down needs no neighbour.
                if let Some(wanted) = wanted.find(has_link).or(without_way) {
                    self.table.gateways.insert(id, wanted);
                }
                EgressTable::drop(DropReason::NoNeighbour)
            }
        };
        self.table.groups.insert(id, LiveGroup { group, paths, alive, ways });
        entry
    }

    fn ways(&mut self, id: NextHopId, group: &Group, paths: &[NextHopId], alive: u64) -> Arc<Ways> {
        let known = self.inputs.before.and_then(|table| table.groups.get(&id));
        let known =
            known.filter(|known| known.alive == alive && known.group == *group && *known.paths == *paths);
        if let Some(ways) = known.and_then(|known| known.ways.as_ref()) {
            return Arc::clone(ways);
        }
        let alive: Vec<_> = paths
            .iter()
            .zip(group.paths())
            .enumerate()
            .filter(|(place, _)| alive >> place & 1 == 1)
            .map(|(_, (id, path))| {
                let port = match &path.hop {
                    NextHop::Gateway { port, .. } | NextHop::Connected { port } => {
                        // Known to exist.
                        find_port(port, self.inputs.ports, String::new).ok().flatten()
                    }
                    _ => None,
                };
                Alive { id: *id, identity: identity(path.hop.gateway(), port), weight: path.weight }
            })
            .collect();
        Arc::new(self.maker.ways(&alive))
    }
}

#[cfg(test)]
impl EgressTable {
    /// # Errors
    /// As [`Self::build`].
    pub(crate) fn new(hops: &NextHopTable, ports: &[EgressPort]) -> Result<Self, EgressError> {
        let mut rib = Rib::new();
        for (id, _) in hops.iter() {
            rib.v6.set(fib::Prefix::truncating(id.get().into(), 128), id);
        }
        Self::build(&Inputs::new(hops, ports, &rib, &Learned::default()))
    }
}

#[cfg(test)]
mod tests;
