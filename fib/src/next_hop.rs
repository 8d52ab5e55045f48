//! Next hops: the answer of a lookup, and what the forwarder does with it.
//!
//! Engines store [`NextHopId`]s only. [`NextHopTable`] resolves an id to its gateway, port and destination MAC. A *bare* id, which a route
//! file gives as a number, needs no entry: it leaves by port `(id - 1) mod ports` with the MAC `02:00:00` followed by the id's 24 bits.

use crate::group::{Group, PATHS_MAX};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A next-hop id: 0 is "no route", 1..=2^24-1 are valid (GAMT's limit, a 24-bit `inf` field).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct NextHopId(u32);

impl NextHopId {
    /// No route.
    pub const NONE: Self = Self(0);
    /// The largest valid id, 2^24 - 1.
    pub const MAX: Self = Self((1 << 24) - 1);

    /// The id `value`.
    ///
    /// # Errors
    /// [`NextHopError::Id`] when `value` is 0 or above [`Self::MAX`].
    pub const fn new(value: u32) -> Result<Self, NextHopError> {
        if value == 0 || value > Self::MAX.0 {
            return Err(NextHopError::Id { value: value as u64 });
        }
        Ok(Self(value))
    }

    /// The id in the low 24 bits of an engine's answer; 0 is [`Self::NONE`].
    #[must_use]
    pub const fn from_answer(answer: u32) -> Self {
        Self(answer & Self::MAX.0)
    }

    /// The number; 0 for no route.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether there is no route.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl From<NextHopId> for u32 {
    #[inline]
    fn from(id: NextHopId) -> Self {
        id.0
    }
}

impl fmt::Display for NextHopId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it is a unicast address, and not zero.
    #[must_use]
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self != Self([0; 6])
    }

    /// The MAC of a bare id: `02:00:00` and the id's 24 bits.
    #[must_use]
    pub const fn of_bare_id(id: NextHopId) -> Self {
        let [_, a, b, c] = id.0.to_be_bytes();
        Self([2, 0, 0, a, b, c])
    }

    /// Whether this is a group MAC that is not forwarded: of IEEE 802.1Q 8.6.3, as for LLDP and LACP, or of IS-IS (ISO/IEC 10589 8.4.8).
    #[must_use]
    pub const fn is_link_group(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0xf | 0x14 | 0x15] | [0x09, 0, 0x2b, 0, 0, 0x05])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = NextHopError;

    fn from_str(text: &str) -> Result<Self, NextHopError> {
        let wrong = || NextHopError::Mac { text: text.chars().take(32).collect() };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

/// Why a next hop was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// The id is 0 or above 2^24 - 1.
    #[error("next-hop id {value} is not in 1..=16777215")]
    Id {
        /// The id as given.
        value: u64,
    },
    /// The text is not a MAC address.
    #[error("'{text}' is not a MAC address such as 02:00:00:00:00:01")]
    Mac {
        /// The text as given.
        text: String,
    },
    /// The bare id is already used for another next hop.
    #[error("next-hop id {id} is in use for {used_by}")]
    InUse {
        /// The id.
        id: NextHopId,
        /// The other next hop.
        used_by: String,
    },
    /// All 2^24 - 1 ids are in use.
    #[error("all {limit} next-hop ids are in use")]
    Exhausted {
        /// The number of valid ids.
        limit: u32,
    },
    /// A group has no path or too many.
    #[error("a route has 1 to {PATHS_MAX} paths, not {paths}")]
    Paths {
        /// The number of paths.
        paths: usize,
    },
}

/// The port of a next hop, as given in the route feed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortRef {
    /// By index.
    Index(u16),
    /// By name (a device name or a PCI address).
    Name(String),
    /// Not given: a bare id uses port `(id - 1) mod ports`, a gateway the port of its neighbour entry.
    ById,
}

impl PortRef {
    /// Parses a port of a route file: a number is an index, anything else a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Index)
    }
}

/// Whether `wanted` is the name of the port `name`; the domain of a PCI address, `0000:`, may be left out.
#[must_use]
pub fn is_port_name(name: &str, wanted: &str) -> bool {
    name == wanted || name.strip_prefix("0000:") == Some(wanted)
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => index.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::ById => f.write_str("by id"),
        }
    }
}

/// A next hop, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// A bare id: port and MAC are derived from the number.
    Bare,
    /// A bare id whose number another next hop has; it is stored under another id.
    Moved(NextHopId),
    /// A gateway behind a port. Its neighbour entry has the MAC, and the port if the feed gives none; without it nothing is sent.
    Gateway {
        /// The gateway's address.
        gateway: IpAddr,
        /// The port it is reached through.
        port: PortRef,
    },
    /// Destinations on the link of `port`. Each is its own gateway, so there is no single MAC.
    Connected {
        /// The port of the link.
        port: PortRef,
    },
    /// A port only (l3fwd rules): the destination MAC is the MAC of the bare id `port + 1`.
    Port {
        /// The port's index.
        port: u16,
    },
    /// Several paths; each flow takes one.
    Group(Group),
    /// Drops packets silently.
    Blackhole,
    /// Drops packets and reports to the sender that the destination is unreachable.
    Unreachable,
    /// Drops packets and reports to the sender that the destination is prohibited.
    Prohibit,
    /// An address of the forwarder itself. No feed has such routes.
    Local,
}

impl NextHop {
    /// The gateway address, for a gateway.
    #[must_use]
    pub fn gateway(&self) -> Option<IpAddr> {
        match self {
            Self::Gateway { gateway, .. } => Some(*gateway),
            _ => None,
        }
    }

    /// Renames every port. Paths that become equal are merged.
    #[must_use]
    pub fn with_ports(&self, rename: &impl Fn(&PortRef) -> PortRef) -> Self {
        match self {
            Self::Gateway { gateway, port } => Self::Gateway { gateway: *gateway, port: rename(port) },
            Self::Connected { port } => Self::Connected { port: rename(port) },
            Self::Group(group) => {
                let paths = group.paths().iter().map(|path| (path.hop.with_ports(rename), path.weight));
                // There are no more paths than before, and at least one.
                Group::next_hop(paths).unwrap_or_else(|_| self.clone())
            }
            other => other.clone(),
        }
    }

    /// The next hop that discards packets and has this [`Self::discard_word`].
    #[must_use]
    pub fn discarding(word: &str) -> Option<Self> {
        let all = [Self::Blackhole, Self::Unreachable, Self::Prohibit];
        all.into_iter().find(|hop| hop.discard_word() == Some(word))
    }

    /// The word of iproute2 for a next hop that discards packets, written before the prefix; `None` for all others.
    #[must_use]
    pub const fn discard_word(&self) -> Option<&'static str> {
        match self {
            Self::Blackhole => Some("blackhole"),
            Self::Unreachable => Some("unreachable"),
            Self::Prohibit => Some("prohibit"),
            _ => None,
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare => f.write_str("a bare id"),
            Self::Moved(number) => write!(f, "bare id {number}"),
            Self::Gateway { gateway, port: PortRef::ById } => write!(f, "via {gateway}"),
            Self::Gateway { gateway, port } => write!(f, "via {gateway} dev {port}"),
            Self::Connected { port } => write!(f, "dev {port}"),
            Self::Port { port } => write!(f, "port {port}"),
            Self::Group(group) => group.fmt(f),
            Self::Blackhole | Self::Unreachable | Self::Prohibit => {
                f.write_str(self.discard_word().unwrap_or_default())
            }
            Self::Local => f.write_str("local"),
        }
    }
}

/// A neighbour entry: the MAC of an address on the link of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The neighbour's address.
    pub address: IpAddr,
    /// The port whose link it is on.
    pub port: PortRef,
    /// Its MAC.
    pub mac: MacAddr,
}

/// Resolves next-hop ids to gateway, port and MAC.
///
/// [`Self::bare`] reserves a bare id, [`Self::intern`] assigns the lowest free id to any other next hop; equal next hops share one.
/// Unused ids are dropped in two steps, [`Self::mark_unused`] and [`Self::drop_unused`]. In between the owner waits for lookups in
/// flight, so an id keeps its meaning until the second step.
#[derive(Clone, Debug, Default)]
pub struct NextHopTable {
    by_id: FxHashMap<NextHopId, NextHop>,
    by_hop: FxHashMap<NextHop, NextHopId>,
    /// Ids of [`Self::add_object`], which are not in `by_hop`.
    objects: FxHashSet<NextHopId>,
    neighbours: BTreeMap<IpAddr, Neighbour>,
    next_free: u32,
    free: BTreeSet<NextHopId>,
    /// Ids that were unused at the last [`Self::mark_unused`] and not requested since.
    unused: FxHashSet<NextHopId>,
    moves_ids: bool,
}

impl NextHopTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Renumbers bare ids that collide from now on, as [`NextHop::Moved`]; [`Self::announced_id`] returns the announced ones.
    pub const fn move_ids(&mut self) {
        self.moves_ids = true;
    }

    /// Reserves `value` as a bare id. Returns that id, or another one if it is taken and [`Self::move_ids`] was called.
    ///
    /// # Errors
    /// [`NextHopError::Id`] when it is out of range, [`NextHopError::InUse`] when it belongs to another next hop,
    /// [`NextHopError::Exhausted`] when no id is free.
    pub fn bare(&mut self, value: u32) -> Result<NextHopId, NextHopError> {
        let id = NextHopId::new(value)?;
        match self.by_id.entry(id).or_insert(NextHop::Bare) {
            NextHop::Bare => {
                self.unused.remove(&id);
                self.free.remove(&id);
                Ok(id)
            }
            _ if self.moves_ids => self.intern(NextHop::Moved(id)),
            other => Err(NextHopError::InUse { id, used_by: other.to_string() }),
        }
    }

    /// The announced id: the number of a bare id that was moved, else `id`.
    #[must_use]
    pub fn announced_id(&self, id: NextHopId) -> NextHopId {
        match self.by_id.get(&id) {
            Some(NextHop::Moved(number)) => *number,
            _ => id,
        }
    }

    /// The id of `hop`, newly assigned if it has none. For bare ids use [`Self::bare`] instead of [`NextHop::Bare`].
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`] when no id is free.
    pub fn intern(&mut self, hop: NextHop) -> Result<NextHopId, NextHopError> {
        if let Some(&id) = self.by_hop.get(&hop) {
            self.keep(id);
            return Ok(id);
        }
        let id = self.assign(hop.clone())?;
        self.by_hop.insert(hop, id);
        Ok(id)
    }

    /// Assigns a new, unshared id to `hop`. [`Self::intern`] never returns it; [`Self::replace`] may change its next hop.
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`] when no id is free.
    pub fn add_object(&mut self, hop: NextHop) -> Result<NextHopId, NextHopError> {
        let id = self.assign(hop)?;
        self.objects.insert(id);
        Ok(id)
    }

    /// Replaces the next hop of an id of [`Self::add_object`]. Packets in flight get the old or the new one.
    ///
    /// # Errors
    /// [`NextHopError::Exhausted`] when no id is free for a path of a group; the old next hop then stays.
    pub fn replace(&mut self, id: NextHopId, hop: NextHop) -> Result<(), NextHopError> {
        debug_assert!(self.objects.contains(&id), "{id} is shared by its next hop");
        self.intern_paths(&hop)?;
        self.by_id.insert(id, hop);
        Ok(())
    }

    fn intern_paths(&mut self, hop: &NextHop) -> Result<(), NextHopError> {
        if let NextHop::Group(group) = hop {
            for path in group.paths() {
                self.intern(path.hop.clone())?;
            }
        }
        Ok(())
    }

    fn assign(&mut self, hop: NextHop) -> Result<NextHopId, NextHopError> {
        self.intern_paths(&hop)?;
        let id = match self.free.pop_first() {
            Some(id) => id,
            None => self.next_id()?,
        };
        self.by_id.insert(id, hop);
        Ok(id)
    }

    /// The id of `hop`, if it has one. Not for bare ids.
    #[must_use]
    pub fn find(&self, hop: &NextHop) -> Option<NextHopId> {
        self.by_hop.get(hop).copied()
    }

    fn keep(&mut self, id: NextHopId) {
        if self.unused.is_empty() {
            return;
        }
        self.unused.remove(&id);
        if let Some(NextHop::Group(group)) = self.by_id.get(&id) {
            for path in group.paths() {
                if let Some(id) = self.by_hop.get(&path.hop) {
                    self.unused.remove(id);
                }
            }
        }
    }

    /// An id that was never assigned.
    fn next_id(&mut self) -> Result<NextHopId, NextHopError> {
        loop {
            self.next_free += 1;
            let id = NextHopId::new(self.next_free)
                .map_err(|_| NextHopError::Exhausted { limit: NextHopId::MAX.get() })?;
            if !self.by_id.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// Marks the ids that no route uses, directly or in a group; [`Self::bare`] and [`Self::intern`] unmark. Returns the unmarked ones' number.
    pub fn mark_unused(&mut self, is_used: impl Fn(NextHopId) -> bool) -> usize {
        self.unused = self.by_id.keys().copied().filter(|id| !is_used(*id)).collect();
        let is_group = |(id, hop): &(&NextHopId, &NextHop)| matches!(hop, NextHop::Group(_)) && is_used(**id);
        let groups: Vec<_> = self.by_id.iter().filter(is_group).map(|(id, _)| *id).collect();
        groups.into_iter().for_each(|id| self.keep(id));
        self.by_id.len() - self.unused.len()
    }

    /// Drops the ids that are still marked; they may get another meaning then. Returns their number.
    pub fn drop_unused(&mut self) -> usize {
        let unused = std::mem::take(&mut self.unused);
        for id in &unused {
            if let Some(hop) = self.by_id.remove(id)
                && !self.objects.remove(id)
            {
                self.by_hop.remove(&hop);
            }
            // Higher ids are free anyway.
            if id.get() <= self.next_free {
                self.free.insert(*id);
            }
        }
        unused.len()
    }

    /// The next hop of `id`; `None` if the id is not in use.
    #[must_use]
    pub fn get(&self, id: NextHopId) -> Option<&NextHop> {
        self.by_id.get(&id)
    }

    /// All ids in use, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (NextHopId, &NextHop)> {
        self.by_id.iter().map(|(id, hop)| (*id, hop))
    }

    /// The number of ids in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The number of ids in use that are not bare.
    #[must_use]
    pub fn named(&self) -> usize {
        self.by_hop.len() + self.objects.len()
    }

    /// Whether no id is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds a neighbour, replacing an earlier one with the same address.
    pub fn set_neighbour(&mut self, neighbour: Neighbour) {
        self.neighbours.insert(neighbour.address, neighbour);
    }

    /// Replaces all neighbours by the neighbours of `other`. Returns a table with the previous ones and without next hops.
    pub fn replace_neighbours(&mut self, other: &Self) -> Self {
        let before = std::mem::replace(&mut self.neighbours, other.neighbours.clone());
        Self { neighbours: before, ..Self::default() }
    }

    /// Removes the neighbour at `address`; returns whether there was one.
    pub fn remove_neighbour(&mut self, address: IpAddr) -> bool {
        self.neighbours.remove(&address).is_some()
    }

    /// The neighbour at `address`, if known.
    #[must_use]
    pub fn neighbour(&self, address: IpAddr) -> Option<&Neighbour> {
        self.neighbours.get(&address)
    }

    /// All neighbours, by address.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_have_limits() {
        assert!(NextHopId::new(0).is_err() && NextHopId::new(1 << 24).is_err());
        assert_eq!(NextHopId::new((1 << 24) - 1), Ok(NextHopId::MAX));
        assert_eq!(MacAddr::of_bare_id(NextHopId::MAX).to_string(), "02:00:00:ff:ff:ff");
    }

    #[test]
    fn interning_shares_ids_and_avoids_bare_ones() {
        let mut table = NextHopTable::new();
        table.bare(1).unwrap();
        let hop = NextHop::Gateway { gateway: "192.0.2.1".parse().unwrap(), port: PortRef::Index(0) };
        let id = table.intern(hop.clone()).unwrap();
        assert_eq!((id.get(), table.intern(hop).unwrap()), (2, id));
        assert!(matches!(table.bare(2), Err(NextHopError::InUse { .. })));
        table.move_ids();
        let moved = table.bare(2).unwrap();
        assert_eq!((moved.get(), table.announced_id(moved).get(), table.announced_id(id)), (3, 2, id));
        assert_eq!(table.bare(2), Ok(moved));
        assert_eq!(table.bare(1).unwrap().get(), 1);
    }

    #[test]
    fn unused_ids_are_dropped_after_two_steps_and_assigned_again() {
        let mut table = NextHopTable::new();
        let hop = |port| NextHop::Connected { port: PortRef::Index(port) };
        let ids: Vec<_> = (0..4).map(|port| table.intern(hop(port)).unwrap()).collect();
        table.bare(9).unwrap();
        table.mark_unused(|id| id == ids[3]);
        assert_eq!(table.intern(hop(1)), Ok(ids[1]), "asked for again");
        assert_eq!((table.len(), table.get(ids[0])), (5, Some(&hop(0))), "the meaning stays until then");
        assert_eq!((table.drop_unused(), table.len(), table.get(ids[0])), (3, 2, None));
        assert_eq!(table.intern(hop(7)), Ok(ids[0]));
        assert_eq!(table.bare(ids[2].get()), Ok(ids[2]), "a free id is a bare one's, too");
        assert_eq!(table.intern(hop(8)).unwrap().get(), 5);
    }

    proptest! {
        #[test]
        fn named_ids_are_those_that_a_walk_counts(
            moves_ids in any::<bool>(),
            steps in prop::collection::vec((0..6_u8, 1..12_u32), 0..60),
        ) {
            let mut table = NextHopTable::new();
            table.moves_ids = moves_ids;
            for (step, value) in steps {
                match step {
                    0 | 1 => drop(table.bare(value)),
                    2 | 3 => drop(table.intern(NextHop::Port { port: u16::try_from(value).unwrap() })),
                    4 => {
                        table.mark_unused(|id| id.get() % 3 == value % 3);
                    }
                    _ => drop(table.drop_unused()),
                }
                let walk = table.iter().filter(|(_, hop)| **hop != NextHop::Bare).count();
                prop_assert_eq!(table.named(), walk);
            }
        }
    }

    #[test]
    fn the_paths_of_a_group_stay_as_long_as_it_is_used() {
        let mut table = NextHopTable::new();
        let link = |port| NextHop::Connected { port: PortRef::Index(port) };
        let group = |ports: [u16; 2]| Group::next_hop(ports.map(|port| (link(port), 1))).unwrap();
        let first = table.intern(group([0, 1])).unwrap();
        assert_eq!((first.get(), table.len(), table.find(&link(1)).unwrap().get()), (3, 3, 2));
        let second = table.intern(group([1, 2])).unwrap();
        assert_eq!((table.mark_unused(|id| id == first), table.drop_unused(), table.len()), (3, 2, 3));
        assert!(table.find(&link(1)).is_some() && table.find(&link(2)).is_none());
        assert_eq!((table.mark_unused(|_| false), table.intern(group([0, 1]))), (0, Ok(first)));
        assert_eq!((table.drop_unused(), table.get(second)), (0, None), "asked for again, with its paths");
    }

    #[test]
    fn an_object_has_an_id_of_its_own_and_other_next_hops_in_turn() {
        let mut table = NextHopTable::new();
        let link = |port| NextHop::Connected { port: PortRef::Index(port) };
        let shared = table.intern(link(1)).unwrap();
        let object = table.add_object(link(1)).unwrap();
        assert_ne!(shared, object);
        assert_eq!(
            (table.intern(link(1)), table.find(&link(1)), table.named()),
            (Ok(shared), Some(shared), 2)
        );
        let group = Group::next_hop([(link(1), 1), (link(2), 1)]).unwrap();
        table.replace(object, group.clone()).unwrap();
        assert_eq!((table.get(object), table.find(&group)), (Some(&group), None));
        let second = table.find(&link(2)).unwrap();
        assert_eq!((table.mark_unused(|id| id == object), table.drop_unused()), (3, 0));
        assert_eq!(table.get(second), Some(&link(2)));
        table.replace(object, link(2)).unwrap();
        table.mark_unused(|_| false);
        assert_eq!((table.drop_unused(), table.named(), table.find(&link(2))), (3, 0, None));
    }

    #[test]
    fn mac_text() {
        let mac: MacAddr = "02:00:5e:10:00:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
        for text in ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:00", "2:0:5:1:0:f", "0g:00:00:00:00:00"] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
