//! Route feeds: routes, links, addresses and neighbours from FRR and the kernel, as plain events.
//!
//! ```text
//! zebra  -- FPM over TCP --> fpm    --+
//!                                     +--> ChangeSet --> bounded channel --> Forwarder::learn
//! kernel -- rtnetlink -----> kernel --+
//! ```
//!
//! A feed is a state machine without I/O and clock, which turns bytes and times into [`FeedEvent`]s, inside a thin thread. The thread sends
//! the events of one read as one [`ChangeSet`]. A full channel blocks the thread, and TCP then holds the peer back. The kernel table selects
//! a route's VRF ([`RoutingTables`]); events name interfaces by the kernel's index (`ifindex`).

pub(crate) mod fpm;
#[cfg(test)]
#[path = "test_heard.rs"]
mod heard;
pub(crate) mod interfaces;
pub(crate) mod kernel;
#[cfg(test)]
#[path = "live_test.rs"]
pub(crate) mod live;
pub(crate) mod netlink;
pub(crate) mod nexthops;
pub(crate) mod running;
#[cfg(test)]
pub(crate) mod test_peers;
pub(crate) mod thread;

use fib::{IpPrefix, MacAddr, NextHopId};
use rustc_hash::FxHashMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) const TABLE_MAIN: u32 = 254;

/// A feed, numbered in order of preference; 0 is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FeedId(pub(crate) u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Path {
    /// The next hop's address, which may be IPv6 for an IPv4 route (RFC 8950); `None` when the destinations are on the link itself.
    pub(crate) gateway: Option<IpAddr>,
    /// The interface's index; 0 if the feed does not name it.
    pub(crate) ifindex: u32,
    /// Share of the traffic relative to the other paths; at least 1.
    pub(crate) weight: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// Forward by one of these paths; at least one.
    Paths(Box<[Path]>),
    /// Punt: a local, broadcast, anycast or multicast route.
    Local,
    /// Drop silently.
    Blackhole,
    /// Drop and answer that the destination is unreachable.
    Unreachable,
    /// Drop and answer that policy prohibits it.
    Prohibit,
    /// As the latest [`FeedEvent::Object`] says of this object.
    Object(ObjectId),
    /// Use this next hop; no feed produces it.
    Hop(NextHopId),
}

/// A next-hop object of a feed. Ids are never reused for another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) feed: FeedId,
    /// How often the feed had discarded its objects before.
    pub(crate) epoch: u32,
    pub(crate) number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    /// Whether it is administratively up.
    pub(crate) is_up: bool,
    /// Whether it is operational: up, with a carrier.
    pub(crate) is_running: bool,
    /// Whether it is a loopback or dummy interface, whose addresses belong to the host.
    pub(crate) is_local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkNeighbour {
    pub(crate) address: IpAddr,
    pub(crate) ifindex: u32,
    pub(crate) mac: MacAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkAddress {
    pub(crate) ifindex: u32,
    pub(crate) address: IpAddr,
    pub(crate) len: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FeedEvent {
    /// The source has connected and sent something valid.
    Connected,
    /// The source has gone. Its routes stay; [`Self::Stale`] follows.
    Disconnected,
    /// End of a pass over all tables; an interrupted one may lack routes, and another follows.
    Complete,
    /// All routes announced so far are stale. They stay in use.
    Stale,
    /// Withdraws the routes that are still stale.
    Sweep,
    /// Announces the route of a prefix; replaces an earlier one of the same metric.
    Announce {
        vrf: usize,
        prefix: IpPrefix,
        metric: u32,
        route: Arc<Route>,
    },
    /// Resolves the routes that name an object; `None` when no further route will name it. Existing routes then keep the last resolution.
    Object {
        object: ObjectId,
        /// Never another object.
        route: Option<Arc<Route>>,
    },
    Withdraw {
        vrf: usize,
        prefix: IpPrefix,
        metric: u32,
    },
    /// A new or changed link.
    Link(Link),
    LinkGone(u32),
    Neighbour(LinkNeighbour),
    /// By address, and index of the link.
    NeighbourGone(IpAddr, u32),
    Address(LinkAddress),
    AddressGone(LinkAddress),
}

/// Maps the kernel's routing tables to VRFs, by number. Routes of other tables are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutingTables(FxHashMap<u32, usize>);

impl Default for RoutingTables {
    fn default() -> Self {
        Self(FxHashMap::from_iter([(TABLE_MAIN, 0)]))
    }
}

impl RoutingTables {
    pub(crate) fn none() -> Self {
        Self(FxHashMap::default())
    }

    /// Assigns `table` to a VRF. Returns the previous VRF of the table.
    pub(crate) fn set(&mut self, table: u32, vrf: usize) -> Option<usize> {
        self.0.insert(table, vrf)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn vrf(&self, table: u32) -> Option<usize> {
        self.0.get(&table).copied()
    }
}

/// The events of one read of a feed, applied as a whole: one set may withdraw and announce a route to replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeSet {
    pub(crate) feed: FeedId,
    pub(crate) events: Vec<FeedEvent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedCounts {
    /// Connections of peers, or passes over the kernel's tables.
    pub(crate) sessions: u64,
    /// Connections of peers that may not announce routes.
    pub(crate) refused: u64,
    pub(crate) messages: u64,
    /// Messages of other tables, families and types.
    pub(crate) ignored: u64,
    /// Routes that cannot be represented: with an encapsulation, which become unreachable; with a source prefix or TOS, left out.
    pub(crate) unsupported: u64,
    /// Messages that do not decode, and connections closed because of their framing.
    pub(crate) errors: u64,
    /// Routes and next hops left out because of a limit.
    pub(crate) over_limit: u64,
    /// Times that the kernel dropped messages for want of buffers.
    pub(crate) overruns: u64,
    /// Routes and next-hop objects that differed from the kernel's in a periodic comparison.
    pub(crate) repaired: u64,
}
