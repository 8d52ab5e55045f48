//! Egress port, MACs and MTU of each next-hop id, in one 16-byte entry an id.
//!
//! The control side makes the table from the [`NextHopTable`] and the ports; the verdict pass reads it. Entries of ids that a feed
//! has named lie in a dense array. The entry of a bare id beyond the array is computed, so that id 2^24 - 1 does not cost 256 MB.
//! When updates bring new next hops, a new table replaces the old one *before* the engine learns their ids, so that every id in an
//! answer is in the table.
//!
//! A group has no entry of its own but a code and the number of its [`Ways`]; each of its paths has an id and an entry. What becomes of
//! gateways and groups is resolved when the table is made (`build`), so that a gateway that fails is a change of this table and of
//! nothing else.

mod build;
pub(crate) mod learned;
pub(crate) mod ways;

pub(crate) use build::{Inputs, last_dense};

use super::DropReason;
use super::hop_counts::HopCounts;
/// What to do with the packets of one next hop. Its port may be a [`Code`]. The MTU is 65,535 in an entry that drops.
pub(crate) use dpdk_ffi::simd::Entry as Egress;
use fib::{Group, MacAddr, NextHop, NextHopId, PortRef, Rib};
use lpm_core::drops::Witness;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use ways::Ways;

/// The dense array has at least the ids up to this one: 1 MB of entries.
const DENSE_ANYWAY: u32 = 1 << 16;
/// The dense array and the counts by next hop are not extended for bare ids above this one (16 MB of entries); they are computed.
const DENSE_BARE_MAX: u32 = 1 << 20;

/// The values that replace a port number when a packet is not sent.
pub(crate) struct Code;

impl Code {
    /// Port numbers are below this, codes at or above it.
    pub(crate) const FIRST: u16 = Egress::CODES;

    /// The packet is longer than the MTU of its port: the first code, which no entry has.
    pub(crate) const TOO_LONG: u16 = Egress::TOO_LONG;

    /// The code of the first drop reason.
    const REASONS: u16 = Self::TOO_LONG + 1;

    /// The destination is on a directly connected link: its neighbour entry decides.
    pub(crate) const CONNECTED: u16 = 0xff80;

    /// The destination is an address of this router.
    pub(crate) const LOCAL: u16 = 0xff81;

    /// The next hop is a group: the first bytes of the entry are the number of its ways.
    pub(crate) const GROUP: u16 = 0xff82;

    /// The packet leaves as fragments, by the port of its entry.
    pub(crate) const FRAGMENT: u16 = 0xff83;

    /// Dropped and already counted.
    pub(crate) const DROPPED: u16 = u16::MAX;

    /// The code of a drop reason.
    pub(crate) const fn of(reason: DropReason) -> u16 {
        Self::REASONS + reason as u16
    }

    /// The reason of a code made by [`Self::of`].
    pub(crate) fn reason(code: u16) -> Option<DropReason> {
        DropReason::ALL.get(usize::from(code.checked_sub(Self::REASONS)?)).copied()
    }
}

/// A port as the egress table sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EgressPort {
    /// Its name and the name of its device, for routes that refer to ports by name.
    pub(crate) name: String,
    pub(crate) device: String,
    /// Source MAC of the frames it sends.
    pub(crate) mac: MacAddr,
    /// The longest IP packet that it sends, bytes.
    pub(crate) mtu_bytes: u16,
    /// Destination MAC of every frame it sends, in place of the next hop's (`--eth-dest`).
    pub(crate) destination: Option<MacAddr>,
    /// Whether its link is up. Without, next hops behind it are not in service: their packets are dropped as `no_neighbour`.
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

/// A port as options and routes refer to it.
pub(crate) trait Named {
    /// Its name.
    fn name(&self) -> &str;
    /// The name of its device, by which it is found as well.
    fn device(&self) -> &str;
    /// Whether `wanted` is its name or the name of its device.
    fn is_called(&self, wanted: &str) -> bool {
        [self.name(), self.device()].iter().any(|name| fib::is_port_name(name, wanted))
    }
    /// Its number and name, for messages.
    fn title(&self, index: impl fmt::Display) -> String {
        format!("port {index} ({})", self.name())
    }
}

/// Whether `hop` refers to one of `ports`, or to none.
///
/// # Errors
/// [`EgressError::NoPort`] when it refers to one that does not exist.
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

/// The index of `port` in `ports`; `None` when it follows from the next-hop id. `user` is who refers to it.
///
/// # Errors
/// [`EgressError::NoPort`] when it does not exist.
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

/// Why an egress table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressError {
    /// A route or a neighbour refers to a port that does not exist.
    #[error("{user} names port {port}, which does not exist; there are: {known}")]
    NoPort {
        /// The next hop or neighbour that refers to it.
        user: String,
        /// The port as it was written.
        port: String,
        /// The ports that exist.
        known: String,
    },
    /// There is no port at all.
    #[error("there is no port")]
    NoPorts,
}

/// Egress entries by next-hop id.
#[derive(Clone, Debug)]
pub(crate) struct EgressTable {
    dense: Box<[Egress]>,
    ports: Vec<EgressPort>,
    /// `2^64 / ports`, rounded up: `(id - 1) mod ports` takes two multiplications (Lemire, Kaser, Kurz 2019).
    modulus_inverse: u64,
    /// Neighbour entries, for destinations on directly connected links.
    neighbours: FxHashMap<(IpAddr, u16), Egress>,
    /// Neighbours that were learned in a VLAN, by the ids of its tags, too.
    by_vlan: FxHashMap<(IpAddr, u16, [u16; 2]), Egress>,
    /// Neighbours with a MAC in VLANs alone.
    only_tagged: FxHashSet<(IpAddr, u16)>,
    /// The port of each [`NextHop::Connected`], by id.
    links: FxHashMap<NextHopId, u16>,
    /// The neighbour that a next hop needs whose MAC no feed has given, with its port where that is known. Of a group it is that of one
    /// path.
    gateways: FxHashMap<NextHopId, (IpAddr, Option<u16>)>,
    /// The next hops of `gateways` that no route has, neither directly nor as a path of a group, and [`Rib::turnover`] at that time.
    unrouted: (FxHashSet<NextHopId>, u64),
    /// The ways of groups, by the number in their entry.
    ways: Vec<Arc<Ways>>,
    /// The groups, by id.
    groups: FxHashMap<NextHopId, LiveGroup>,
    /// The gateways that a route leads to, each with the next hop of that route.
    recursive: Vec<(IpAddr, NextHopId)>,
    /// The gateways whose route leads back to them.
    loops: Vec<IpAddr>,
    /// The key of the hash that chooses paths.
    hash_key: u64,
    /// Number of next hops that are not bare.
    named: usize,
    /// The largest id that the dense array was made for.
    hops_last: u32,
    /// Where packets are counted by next hop, if they are.
    counts: Option<Arc<HopCounts>>,
    _witness: Witness,
}

/// A group, and what has become of it.
#[derive(Clone, Debug)]
pub(crate) struct LiveGroup {
    group: Group,
    /// The ids of its paths.
    paths: Box<[NextHopId]>,
    /// A bit for each path that is alive.
    alive: u64,
    /// `None` when no path is.
    ways: Option<Arc<Ways>>,
}

/// Why packets of a next hop cannot leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// The link of its port is down; of a group, all links.
    #[error("its link is down")]
    LinkDown,
    /// Neither a route nor a neighbour entry leads to its gateway.
    #[error("no port reaches gateway {0}")]
    NoWay(IpAddr),
}

/// A path of a group, as it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PathState {
    /// Its id.
    pub(crate) id: NextHopId,
    /// Its weight.
    pub(crate) weight: u16,
    /// The part of the flows that it gets; `None` when it is not alive.
    pub(crate) share: Option<f64>,
}

impl EgressTable {
    /// The table for `hops` over `ports`, with a route for each hop and without those for gateways; a port's index is its place in the list.
    ///
    /// # Errors
    /// As [`Self::build`].
    #[cfg(test)]
    pub(crate) fn new(hops: &fib::NextHopTable, ports: &[EgressPort]) -> Result<Self, EgressError> {
        let mut rib = Rib::new();
        for (id, _) in hops.iter() {
            rib.v6.set(fib::Prefix::truncating(id.get().into(), 128), id);
        }
        Self::build(&Inputs {
            hops,
            learned: &learned::Learned::default(),
            ports,
            rib: &rib,
            stopped: &[],
            foreign: &[],
            ecmp_seed: 0,
            before: None,
        })
    }

    /// The entries by id; those of bare ids beyond are computed.
    #[inline(always)]
    pub(crate) fn dense(&self) -> &[Egress] {
        &self.dense
    }

    /// The entry of an id.
    #[inline]
    pub(crate) fn get(&self, id: NextHopId) -> Egress {
        self.dense.get(id.get() as usize).copied().unwrap_or_else(|| self.bare(id))
    }

    /// Whether there are groups.
    #[inline(always)]
    pub(crate) fn has_groups(&self) -> bool {
        !self.ways.is_empty()
    }

    /// The key for [`super::flow::hash`].
    pub(crate) fn hash_key(&self) -> u64 {
        self.hash_key
    }

    /// The path of the flows with this hash, by the entry of a group: its id and entry, which is none of a group.
    #[inline(always)]
    pub(crate) fn path(&self, mut entry: Egress, mut hash: u64) -> (NextHopId, Egress) {
        loop {
            let [a, b, c, d, ..] = entry.macs;
            let id = self.ways[u32::from_le_bytes([a, b, c, d]) as usize].path(hash);
            entry = self.get(id);
            if entry.port != Code::GROUP {
                return (id, entry);
            }
            // A gateway whose own route has several paths; a loop is not in the table.
            hash = ways::deeper(hash);
        }
    }

    /// As [`Self::path`], by any next hop: one that is no group is its own path.
    pub(crate) fn path_of(&self, id: NextHopId, hash: u64) -> (NextHopId, Egress) {
        let entry = self.get(id);
        if entry.port == Code::GROUP { self.path(entry, hash) } else { (id, entry) }
    }

    /// The entry of `destination` on the directly connected link of next hop `id`, for packets in no VLAN.
    pub(crate) fn connected(&self, id: NextHopId, destination: IpAddr) -> Egress {
        self.connected_in([0; 2], id, destination)
    }

    /// As [`Self::connected`], for packets in these VLANs.
    pub(crate) fn connected_in(&self, vlans: [u16; 2], id: NextHopId, destination: IpAddr) -> Egress {
        let known = self.links.get(&id).and_then(|port| {
            let in_vlan = self.by_vlan.get(&(destination, *port, vlans));
            in_vlan.or_else(|| self.neighbours.get(&(destination, *port)))
        });
        known.copied().unwrap_or(Self::drop(DropReason::NoNeighbour))
    }

    /// Whether a neighbour was learned in a VLAN: then [`Self::in_vlans`] has entries.
    #[inline(always)]
    pub(crate) fn has_vlans(&self) -> bool {
        !self.by_vlan.is_empty()
    }

    /// The entry of next hop `id`, which is no group, for packets in these VLANs, if it is not [`Self::get`]'s. A host has one MAC in each
    /// VLAN, and who claims its address in one changes no other.
    pub(crate) fn in_vlans(&self, vlans: [u16; 2], id: NextHopId) -> Option<Egress> {
        let port = self.get(id).port;
        let (address, _) = self.gateways.get(&id).filter(|_| port < Code::FIRST && vlans != [0; 2])?;
        let is_elsewhere = || self.only_tagged.contains(&(*address, port));
        let of_vlan = self.by_vlan.get(&(*address, port, vlans)).copied();
        of_vlan.or_else(|| is_elsewhere().then_some(Self::drop(DropReason::NoNeighbour)))
    }

    /// The neighbour that a packet to `destination` needs when next hop `id` has no MAC: its address, and its port if that is known.
    pub(crate) fn wanted(&self, id: NextHopId, destination: IpAddr) -> Option<(IpAddr, Option<u16>)> {
        let on_link = || self.links.get(&id).map(|port| (destination, Some(*port)));
        self.gateways.get(&id).copied().or_else(on_link)
    }

    /// The neighbours whose MAC no feed has given and that next hops of routes need, with their ports where they are known.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        self.routed().map(|(_, gateway)| gateway)
    }

    fn routed(&self) -> impl Iterator<Item = (NextHopId, (IpAddr, Option<u16>))> {
        let gateways = self.gateways.iter().map(|(id, gateway)| (*id, *gateway));
        gateways.filter(|(id, _)| !self.unrouted.0.contains(id))
    }

    /// The next hops of `gateways` that no route in `rib` has.
    fn without_route(&self, rib: &Rib) -> FxHashSet<NextHopId> {
        let groups = self.groups.iter().filter(|(id, _)| rib.has_route_to(**id));
        let paths: FxHashSet<_> = groups.flat_map(|(_, live)| &live.paths).collect();
        let gateways = self.gateways.keys();
        gateways.filter(|id| !rib.has_route_to(**id) && !paths.contains(id)).copied().collect()
    }

    /// Whether the MAC of one of these addresses, or of any host on the links of these ports, may matter here.
    pub(crate) fn needs(&self, addresses: &FxHashSet<IpAddr>, ports: &FxHashSet<u16>) -> bool {
        let recursive = self.recursive.iter().map(|(gateway, _)| gateway);
        let mut gateways = self.gateways.values().map(|(gateway, _)| gateway).chain(recursive);
        gateways.any(|gateway| addresses.contains(gateway))
            || self.links.values().any(|port| ports.contains(port))
    }

    /// Those of [`Self::gateways`] without which a next hop drops its packets.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        let no_neighbour = Code::of(DropReason::NoNeighbour);
        let missing = self.routed().filter(move |(id, _)| self.get(*id).port == no_neighbour);
        missing.map(|(_, gateway)| gateway)
    }

    /// Why packets of a next hop cannot leave; `None` if they can. They can if there is a way to it over a link that is up, whether its MAC is
    /// known or not, and if it drops them on purpose. A gateway whose route leads back to it counts as usable: without its own route it
    /// would have a way again.
    pub(crate) fn unusable(&self, id: NextHopId) -> Option<Unusable> {
        let entry = self.get(id);
        let over = |port: u16| (!self.is_up(port)).then_some(Unusable::LinkDown);
        match Code::reason(entry.port) {
            Some(DropReason::NoNeighbour) => match self.gateways.get(&id) {
                Some((_, Some(port))) => over(*port),
                Some((gateway, None)) if self.loops.contains(gateway) => None,
                Some((gateway, None)) => Some(Unusable::NoWay(*gateway)),
                None => Some(Unusable::LinkDown),
            },
            None if entry.port == Code::CONNECTED => self.links.get(&id).and_then(|port| over(*port)),
            _ => None,
        }
    }

    /// Whether packets of a next hop can leave.
    pub(crate) fn is_usable(&self, id: NextHopId) -> bool {
        self.unusable(id).is_none()
    }

    /// The paths of a group; `None` for any other next hop.
    pub(crate) fn paths(&self, id: NextHopId) -> Option<Vec<PathState>> {
        let LiveGroup { group, paths, alive, ways } = self.groups.get(&id)?;
        let state = |(place, (id, path)): (usize, (&NextHopId, &fib::GroupPath))| {
            let ways = ways.as_ref().filter(|_| alive >> place & 1 == 1);
            let share = ways.map(|ways| ways.share(*id) as f64 / ways::BUCKETS as f64);
            PathState { id: *id, weight: path.weight, share }
        };
        Some(paths.iter().zip(group.paths()).enumerate().map(state).collect())
    }

    /// How many groups there are, how many paths they have, and how many of these are alive.
    pub(crate) fn group_counts(&self) -> (usize, usize, usize) {
        let counts = self.groups.values().map(|live| (live.paths.len(), live.alive.count_ones() as usize));
        counts.fold((0, 0, 0), |sum, (paths, alive)| (sum.0 + 1, sum.1 + paths, sum.2 + alive))
    }

    /// Whether a gateway's route leads to another next hop in `rib` than in this table.
    pub(crate) fn has_moved(&self, rib: &Rib) -> bool {
        let next_hop = |gateway| rib.longest(gateway).map_or(NextHopId::NONE, |(_, id)| id);
        self.recursive.iter().any(|(gateway, via)| next_hop(*gateway) != *via)
    }

    /// Whether other gateways have a route in `rib` than in this table.
    pub(crate) fn has_other_gateways(&self, rib: &Rib) -> bool {
        let (unrouted, turnover) = &self.unrouted;
        *turnover != rib.turnover() && self.without_route(rib) != *unrouted
    }

    /// The gateways whose route leads back to them, so that nothing is sent to them.
    pub(crate) fn loops(&self) -> &[IpAddr] {
        &self.loops
    }

    /// Memory of the entries by id and of the groups' buckets, which is nearly all of it, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val(&*self.dense) + self.ways.len() * size_of::<Ways>()) as u64
    }

    /// Whether the link of a port is up.
    pub(crate) fn is_up(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_up)
    }

    /// Where packets are counted by next hop, if they are.
    #[inline(always)]
    pub(crate) fn counts(&self) -> Option<&Arc<HopCounts>> {
        self.counts.as_ref()
    }

    /// The same table, which counts packets by next hop on so many lanes, or none of them.
    pub(crate) fn counting(&self, lanes: Option<usize>) -> Self {
        let last = self.hops_last;
        Self { counts: lanes.map(|lanes| Arc::new(HopCounts::new(lanes, last))), ..self.clone() }
    }

    /// Number of next hops in the table that are not bare ids.
    pub(crate) fn named(&self) -> usize {
        self.named
    }

    /// `(id - 1) mod ports`.
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
        Self::code(Code::of(reason))
    }

    fn code(code: u16) -> Egress {
        Egress { macs: [0; 12], port: code, mtu_bytes: u16::MAX }
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

    /// `count` ports named `p0`, `p1`, .. with MACs `02:f0:00:00:00:PP` and an MTU of 1500.
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
            assert_eq!(Code::reason(table.get(NextHopId::NONE).port), Some(DropReason::NoRoute));
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
        let reason = |id| Code::reason(table.get(id).port);
        assert_eq!((table.get(known).port, &table.get(known).macs[..6]), (2, &mac.0[..]));
        assert_eq!(reason(unknown), Some(DropReason::NoNeighbour));
        assert_eq!(reason(by_id), Some(DropReason::NoNeighbour));
        assert_eq!((table.get(by_neighbour).port, &table.get(by_neighbour).macs[..6]), (1, &mac.0[..]));
        assert_eq!((table.get(alone).port, &table.get(alone).macs[..6]), (3, &[2, 0, 0, 0, 0, 4][..]));
        for (id, why) in refusals {
            assert_eq!(reason(id), Some(why));
        }
        assert_eq!(table.get(link).port, Code::CONNECTED);
        assert_eq!(table.connected(link, gateway).port, 1);
        assert_eq!(Code::reason(table.connected(link, far).port), Some(DropReason::NoNeighbour));
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
            assert_eq!(Code::reason(table.get(id).port), Some(DropReason::NoNeighbour), "{id}");
        }
        assert_eq!(Code::reason(table.connected(link, gateway).port), Some(DropReason::NoNeighbour));
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
