//! Egress port, MACs and MTU of each next-hop id, in 16-byte entries, built by the control side.
//!
//! Ids named by a feed have entries in a dense array. The entry of a bare id beyond the array is computed, so that id 2^24 - 1 does not
//! cost 256 MB. A new table is published *before* the engine learns new ids, so that every id in an answer is in the table. The entry of a
//! group has a code and the number of its [`Ways`]; each path has an id and an entry, so a failed gateway changes this table only.

mod build;
pub(crate) mod learned;
pub(crate) mod ways;

pub(crate) use build::{Inputs, last_dense};

use super::hop_counts::HopCounts;
use super::{DropReason, Egress, Exit};
use fib::{Group, MacAddr, NextHop, NextHopId, PortRef, Rib};
use lpm_core::drops::Witness;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use ways::Ways;

/// Smallest last id of the dense array: 1 MB of entries.
const DENSE_ANYWAY: u32 = 1 << 16;
/// The dense array and the counts by next hop do not grow for bare ids above this one (16 MB of entries).
const DENSE_BARE_MAX: u32 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressPort {
    /// Routes refer to a port by its name or the name of its device.
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) mac: MacAddr,
    /// Longest IP packet that it sends, bytes.
    pub(crate) mtu_bytes: u16,
    /// Destination MAC of every sent frame, overriding the next hop's (`--eth-dest`).
    pub(crate) destination: Option<MacAddr>,
    /// Whether the link is up. If not, packets to next hops of this port are dropped as `no_neighbour`.
    pub(crate) is_up: bool,
}

impl Named for EgressPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> &str {
        &self.device
    }
}

pub(crate) trait Named {
    fn name(&self) -> &str;
    fn device(&self) -> &str;
    fn is_called(&self, wanted: &str) -> bool {
        [self.name(), self.device()].iter().any(|name| fib::is_port_name(name, wanted))
    }
    fn title(&self, index: impl fmt::Display) -> String {
        format!("port {index} ({})", self.name())
    }
}

/// # Errors
/// [`EgressError::NoPort`] when the port does not exist.
pub(crate) fn check_ports(hop: &NextHop, ports: &[impl Named]) -> Result<(), EgressError> {
    let port = match hop {
        NextHop::Gateway { port, .. } | NextHop::Connected { port } => port.clone(),
        NextHop::Port { port } => PortRef::Index(*port),
        NextHop::Group(group) => {
            return group.paths().iter().try_for_each(|path| check_ports(&path.hop, ports));
        }
        _ => PortRef::ById,
    };
    find_port(&port, ports, || format!("next hop {hop}")).map(drop)
}

/// The index of `port` in `ports`; `None` when it follows from the next-hop id. `user` names the referrer in the error.
///
/// # Errors
/// [`EgressError::NoPort`] when the port does not exist.
pub(crate) fn find_port(
    port: &PortRef,
    ports: &[impl Named],
    user: impl FnOnce() -> String,
) -> Result<Option<u16>, EgressError> {
    let index = match port {
        PortRef::ById => return Ok(None),
        PortRef::Index(index) => Some(usize::from(*index)),
        PortRef::Name(name) => ports.iter().position(|port| port.is_called(name)),
    };
    let found = index.filter(|i| *i < ports.len()).and_then(|i| u16::try_from(i).ok());
    found.map(Some).ok_or_else(|| {
        let known = ports.iter().enumerate().map(|(i, port)| format!("{i} ({})", port.name()));
        let known = known.collect::<Vec<_>>().join(", ");
        EgressError::NoPort { user: user(), port: port.to_string(), known }
    })
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressError {
    #[error("{user} names port {port}, which does not exist; there are: {known}")]
    NoPort {
        user: String,
        /// The port as written.
        port: String,
        known: String,
    },
    #[error("there is no port")]
    NoPorts,
}

#[derive(Clone, Debug)]
pub(crate) struct EgressTable {
    dense: Box<[Egress]>,
    ports: Vec<EgressPort>,
    /// `2^64 / ports`, rounded up: `(id - 1) mod ports` takes two multiplications (Lemire, Kaser, Kurz 2019).
    modulus_inverse: u64,
    neighbours: FxHashMap<(IpAddr, u16), Egress>,
    /// Neighbours learned in a VLAN, by its tags' ids.
    by_vlan: FxHashMap<(IpAddr, u16, [u16; 2]), Egress>,
    /// Neighbours that have MACs in VLANs only.
    only_tagged: FxHashSet<(IpAddr, u16)>,
    /// The port of each [`NextHop::Connected`].
    links: FxHashMap<NextHopId, u16>,
    /// The neighbour of each next hop whose MAC no feed has given, with its port where known. A group has the neighbour of one path.
    gateways: FxHashMap<NextHopId, (IpAddr, Option<u16>)>,
    /// Keys of `gateways` that no route uses, directly or as a path of a group, and [`Rib::turnover`] at that time.
    unrouted: (FxHashSet<NextHopId>, u64),
    /// Paths of groups, by the index in their entry.
    ways: Vec<Arc<Ways>>,
    groups: FxHashMap<NextHopId, LiveGroup>,
    /// Gateways reached by a route, with the next hop of that route.
    recursive: Vec<(IpAddr, NextHopId)>,
    loops: Vec<IpAddr>,
    hash_key: u64,
    /// Number of next hops that are not bare ids.
    named: usize,
    /// The largest id for which the dense array was sized.
    hops_last: u32,
    counts: Option<Arc<HopCounts>>,
    _witness: Witness,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveGroup {
    group: Group,
    paths: Box<[NextHopId]>,
    /// Bit mask of live paths.
    alive: u64,
    ways: Option<Arc<Ways>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("its link is down")]
    LinkDown,
    /// Neither a route nor a neighbour entry leads to its gateway.
    #[error("no port reaches gateway {0}")]
    NoWay(IpAddr),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathState {
    pub(crate) id: NextHopId,
    pub(crate) weight: u16,
    /// Share of the flows; `None` when the path is down.
    pub(crate) share: Option<f64>,
}

impl EgressTable {
    #[inline(always)]
    pub(crate) fn dense(&self) -> &[Egress] {
        &self.dense
    }

    #[inline]
    pub(crate) fn get(&self, id: NextHopId) -> Egress {
        self.dense.get(id.get() as usize).copied().unwrap_or_else(|| self.bare(id))
    }

    #[inline(always)]
    pub(crate) fn has_groups(&self) -> bool {
        !self.ways.is_empty()
    }

    pub(crate) fn hash_key(&self) -> u64 {
        self.hash_key
    }

    /// Selects the path for a flow hash from the entry of a group. The entry returned is never a group's.
    #[inline(always)]
    pub(crate) fn path(&self, mut entry: Egress, mut hash: u64) -> (NextHopId, Egress) {
        loop {
            let [a, b, c, d, ..] = entry.macs;
            let id = self.ways[u32::from_le_bytes([a, b, c, d]) as usize].path(hash);
            entry = self.get(id);
            if entry.port != Exit::Group.word() {
                return (id, entry);
            }
            // The path is a gateway whose own route has several paths. The table has no loops.
            hash = ways::deeper(hash);
        }
    }

    /// Like [`Self::path`], for any next hop: a next hop that is no group is its own path.
    pub(crate) fn path_of(&self, id: NextHopId, hash: u64) -> (NextHopId, Egress) {
        let entry = self.get(id);
        if entry.port == Exit::Group.word() { self.path(entry, hash) } else { (id, entry) }
    }

    pub(crate) fn connected(&self, id: NextHopId, destination: IpAddr) -> Egress {
        self.connected_in([0; 2], id, destination)
    }

    pub(crate) fn connected_in(&self, vlans: [u16; 2], id: NextHopId, destination: IpAddr) -> Egress {
        let known = self.links.get(&id).and_then(|port| {
            let in_vlan = self.by_vlan.get(&(destination, *port, vlans));
            in_vlan.or_else(|| self.neighbours.get(&(destination, *port)))
        });
        known.copied().unwrap_or(Self::drop(DropReason::NoNeighbour))
    }

    #[inline(always)]
    pub(crate) fn has_vlans(&self) -> bool {
        !self.by_vlan.is_empty()
    }

    /// The entry of next hop `id`, which is no group, for packets in these VLANs, if it differs from [`Self::get`]. A host has a MAC for
    /// each VLAN, so that a claim to its address in one VLAN does not affect the others.
    pub(crate) fn in_vlans(&self, vlans: [u16; 2], id: NextHopId) -> Option<Egress> {
        let port = self.get(id).port;
        let (address, _) = self.gateways.get(&id).filter(|_| Exit::is_port(port) && vlans != [0; 2])?;
        let is_elsewhere = || self.only_tagged.contains(&(*address, port));
        let of_vlan = self.by_vlan.get(&(*address, port, vlans)).copied();
        of_vlan.or_else(|| is_elsewhere().then_some(Self::drop(DropReason::NoNeighbour)))
    }

    /// The neighbour to resolve for a packet to `destination` when next hop `id` has no MAC: its address, and its port if known.
    pub(crate) fn wanted(&self, id: NextHopId, destination: IpAddr) -> Option<(IpAddr, Option<u16>)> {
        let on_link = || self.links.get(&id).map(|port| (destination, Some(*port)));
        self.gateways.get(&id).copied().or_else(on_link)
    }

    /// The neighbours that routes need and whose MAC no feed has given, with their ports where known.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        self.routed().map(|(_, gateway)| gateway)
    }

    fn routed(&self) -> impl Iterator<Item = (NextHopId, (IpAddr, Option<u16>))> {
        let gateways = self.gateways.iter().map(|(id, gateway)| (*id, *gateway));
        gateways.filter(|(id, _)| !self.unrouted.0.contains(id))
    }

    fn without_route(&self, rib: &Rib) -> FxHashSet<NextHopId> {
        let groups = self.groups.iter().filter(|(id, _)| rib.has_route_to(**id));
        let paths: FxHashSet<_> = groups.flat_map(|(_, live)| &live.paths).collect();
        let gateways = self.gateways.keys();
        gateways.filter(|id| !rib.has_route_to(**id) && !paths.contains(id)).copied().collect()
    }

    /// Whether a new MAC of one of these addresses, or of any host on the links of these ports, can change this table.
    pub(crate) fn needs(&self, addresses: &FxHashSet<IpAddr>, ports: &FxHashSet<u16>) -> bool {
        let recursive = self.recursive.iter().map(|(gateway, _)| gateway);
        let mut gateways = self.gateways.values().map(|(gateway, _)| gateway).chain(recursive);
        gateways.any(|gateway| addresses.contains(gateway))
            || self.links.values().any(|port| ports.contains(port))
    }

    /// The subset of [`Self::gateways`] without a MAC, whose next hops drop their packets.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        let no_neighbour = Exit::Drop(DropReason::NoNeighbour).word();
        let missing = self.routed().filter(move |(id, _)| self.get(*id).port == no_neighbour);
        missing.map(|(_, gateway)| gateway)
    }

    /// Why packets of a next hop cannot leave. A next hop is usable with a path over a link that is up, even if its MAC is unknown, and if
    /// it drops on purpose. So is a gateway whose route leads back to it: without that route it would have a path again.
    pub(crate) fn unusable(&self, id: NextHopId) -> Option<Unusable> {
        let entry = self.get(id);
        let over = |port: u16| (!self.is_up(port)).then_some(Unusable::LinkDown);
        match Exit::from_word(entry.port) {
            Exit::Drop(DropReason::NoNeighbour) => match self.gateways.get(&id) {
                Some((_, Some(port))) => over(*port),
                Some((gateway, None)) if self.loops.contains(gateway) => None,
                Some((gateway, None)) => Some(Unusable::NoWay(*gateway)),
                None => Some(Unusable::LinkDown),
            },
            Exit::Connected => self.links.get(&id).and_then(|port| over(*port)),
            _ => None,
        }
    }

    pub(crate) fn is_usable(&self, id: NextHopId) -> bool {
        self.unusable(id).is_none()
    }

    pub(crate) fn paths(&self, id: NextHopId) -> Option<Vec<PathState>> {
        let LiveGroup { group, paths, alive, ways } = self.groups.get(&id)?;
        let state = |(place, (id, path)): (usize, (&NextHopId, &fib::GroupPath))| {
            let ways = ways.as_ref().filter(|_| alive >> place & 1 == 1);
            let share = ways.map(|ways| ways.share(*id) as f64 / ways::BUCKETS as f64);
            PathState { id: *id, weight: path.weight, share }
        };
        Some(paths.iter().zip(group.paths()).enumerate().map(state).collect())
    }

    /// The numbers of groups, of their paths, and of live paths.
    pub(crate) fn group_counts(&self) -> (usize, usize, usize) {
        let counts = self.groups.values().map(|live| (live.paths.len(), live.alive.count_ones() as usize));
        counts.fold((0, 0, 0), |sum, (paths, alive)| (sum.0 + 1, sum.1 + paths, sum.2 + alive))
    }

    /// Whether a gateway's route has another next hop in `rib` than in this table.
    pub(crate) fn has_moved(&self, rib: &Rib) -> bool {
        let next_hop = |gateway| rib.longest(gateway).map_or(NextHopId::NONE, |(_, id)| id);
        self.recursive.iter().any(|(gateway, via)| next_hop(*gateway) != *via)
    }

    /// Whether the set of gateways with a route differs between `rib` and this table.
    pub(crate) fn has_other_gateways(&self, rib: &Rib) -> bool {
        let (unrouted, turnover) = &self.unrouted;
        *turnover != rib.turnover() && self.without_route(rib) != *unrouted
    }

    pub(crate) fn loops(&self) -> &[IpAddr] {
        &self.loops
    }

    /// Memory of the entries and of the groups' buckets, bytes. The rest is negligible.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&*self.dense) + self.ways.len() * size_of::<Ways>()) as u64
    }

    pub(crate) fn is_up(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_up)
    }

    #[inline(always)]
    pub(crate) fn counts(&self) -> Option<&Arc<HopCounts>> {
        self.counts.as_ref()
    }

    pub(crate) fn counting(&self, lanes: Option<usize>) -> Self {
        let last = self.hops_last;
        Self { counts: lanes.map(|lanes| Arc::new(HopCounts::new(lanes, last))), ..self.clone() }
    }

    pub(crate) fn named(&self) -> usize {
        self.named
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than the number of ports, a u16")]
    fn port_of_bare(&self, id: NextHopId) -> u16 {
        let fraction = self.modulus_inverse.wrapping_mul(u64::from(id.get().wrapping_sub(1)));
        ((u128::from(fraction) * self.ports.len() as u128) >> 64) as u16
    }

    fn bare(&self, id: NextHopId) -> Egress {
        if id.is_none() {
            return Self::drop(DropReason::NoRoute);
        }
        self.entry(self.port_of_bare(id), MacAddr::of_bare_id(id))
    }

    fn drop(reason: DropReason) -> Egress {
        Self::without_port(Exit::Drop(reason))
    }

    fn without_port(exit: Exit) -> Egress {
        Egress { macs: [0; 12], port: exit.word(), mtu_bytes: u16::MAX }
    }

    fn entry(&self, port: u16, destination: MacAddr) -> Egress {
        let at = &self.ports[usize::from(port)];
        if !at.is_up {
            return Self::drop(DropReason::NoNeighbour);
        }
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&at.destination.unwrap_or(destination).0);
        macs[6..].copy_from_slice(&at.mac.0);
        Egress { macs, port, mtu_bytes: at.mtu_bytes }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use fib::{Neighbour, NextHopTable};

    pub(crate) fn ports(count: u8) -> Vec<EgressPort> {
        let port = |i| EgressPort {
            name: format!("p{i}"),
            device: format!("d{i}"),
            mac: MacAddr([2, 0xf0, 0, 0, 0, i]),
            mtu_bytes: 1500,
            destination: None,
            is_up: true,
        };
        (0..count).map(port).collect()
    }

    fn id(value: u32) -> NextHopId {
        NextHopId::new(value).unwrap()
    }

    #[test]
    fn bare_ids_dense_and_computed_agree_with_the_definition() {
        for count in [1_u8, 2, 3, 4, 5, 7, 31, 255] {
            let table = EgressTable::new(&NextHopTable::new(), &ports(count)).unwrap();
            for value in [1, 2, 3, 4, 5, 254, 255, 256, 65_536, 65_537, 1 << 20, (1 << 24) - 2, (1 << 24) - 1]
            {
                let entry = table.get(id(value));
                assert_eq!(u32::from(entry.port), (value - 1) % u32::from(count), "{value} over {count}");
                let [_, a, b, c] = value.to_be_bytes();
                let port = u8::try_from(entry.port).unwrap();
                assert_eq!(entry.macs, [2, 0, 0, a, b, c, 2, 0xf0, 0, 0, 0, port]);
                assert_eq!(entry.mtu_bytes, 1500);
            }
            assert_eq!(
                Exit::from_word(table.get(NextHopId::NONE).port).drop_reason(),
                Some(DropReason::NoRoute)
            );
        }
    }

    #[test]
    fn every_kind_of_next_hop() {
        let mut hops = NextHopTable::new();
        let gateway: IpAddr = "192.0.2.1".parse().unwrap();
        let far: IpAddr = "192.0.2.9".parse().unwrap();
        let mac = MacAddr([2, 9, 9, 9, 9, 9]);
        hops.set_neighbour(Neighbour { address: gateway, port: PortRef::Name("p1".into()), mac });
        let mut intern = |hop| hops.intern(hop).unwrap();
        let known = intern(NextHop::Gateway { gateway, port: PortRef::Index(2) });
        let unknown = intern(NextHop::Gateway { gateway: far, port: PortRef::Index(2) });
        let by_id = intern(NextHop::Gateway { gateway: far, port: PortRef::ById });
        let by_neighbour = intern(NextHop::Gateway { gateway, port: PortRef::ById });
        let alone = intern(NextHop::Port { port: 3 });
        let refusals = [
            (intern(NextHop::Blackhole), DropReason::Blackhole),
            (intern(NextHop::Unreachable), DropReason::Unreachable),
            (intern(NextHop::Prohibit), DropReason::Prohibited),
        ];
        let link = intern(NextHop::Connected { port: PortRef::Name("p1".into()) });
        let table = EgressTable::new(&hops, &ports(4)).unwrap();
        let reason = |id| Exit::from_word(table.get(id).port).drop_reason();
        assert_eq!((table.get(known).port, &table.get(known).macs[..6]), (2, &mac.0[..]));
        assert_eq!(reason(unknown), Some(DropReason::NoNeighbour));
        assert_eq!(reason(by_id), Some(DropReason::NoNeighbour));
        assert_eq!((table.get(by_neighbour).port, &table.get(by_neighbour).macs[..6]), (1, &mac.0[..]));
        assert_eq!((table.get(alone).port, &table.get(alone).macs[..6]), (3, &[2, 0, 0, 0, 0, 4][..]));
        for (id, why) in refusals {
            assert_eq!(reason(id), Some(why));
        }
        assert_eq!(Exit::from_word(table.get(link).port), Exit::Connected);
        assert_eq!(table.connected(link, gateway).port, 1);
        assert_eq!(
            Exit::from_word(table.connected(link, far).port).drop_reason(),
            Some(DropReason::NoNeighbour)
        );
    }

    #[test]
    fn eth_dest_replaces_the_destination() {
        let mut two = ports(2);
        two[1].destination = Some(MacAddr([6; 6]));
        let table = EgressTable::new(&NextHopTable::new(), &two).unwrap();
        assert_eq!(table.get(id(2)).macs[..6], [6; 6]);
        assert_eq!(table.get(id(1)).macs[..6], [2, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn next_hops_behind_a_port_without_a_link_drop() {
        let mut two = ports(2);
        two[1].is_up = false;
        let mut hops = NextHopTable::new();
        let gateway: IpAddr = "192.0.2.1".parse().unwrap();
        let mac = MacAddr([2, 9, 9, 9, 9, 9]);
        hops.set_neighbour(Neighbour { address: gateway, port: PortRef::Index(1), mac });
        let hop = hops.intern(NextHop::Gateway { gateway, port: PortRef::ById }).unwrap();
        let link = hops.intern(NextHop::Connected { port: PortRef::Index(1) }).unwrap();
        let table = EgressTable::new(&hops, &two).unwrap();
        for id in [id(4), id(2_000_000), hop] {
            assert_eq!(
                Exit::from_word(table.get(id).port).drop_reason(),
                Some(DropReason::NoNeighbour),
                "{id}"
            );
        }
        assert_eq!(
            Exit::from_word(table.connected(link, gateway).port).drop_reason(),
            Some(DropReason::NoNeighbour)
        );
        assert_eq!(table.get(id(3)).port, 0);
    }

    #[test]
    fn a_port_that_is_not_there_is_named_with_those_that_are() {
        for port in [PortRef::Index(2), PortRef::Name("eth9".into())] {
            let mut hops = NextHopTable::new();
            hops.intern(NextHop::Gateway { gateway: "192.0.2.1".parse().unwrap(), port: port.clone() })
                .unwrap();
            let error = EgressTable::new(&hops, &ports(2)).unwrap_err().to_string();
            assert!(error.contains(&port.to_string()) && error.contains("0 (p0), 1 (p1)"), "{error}");
        }
        assert_eq!(EgressTable::new(&NextHopTable::new(), &[]).unwrap_err(), EgressError::NoPorts);
    }
}
