//! Route feeds: what FRR and the kernel say about routes, links, addresses and neighbours, as plain events.
//!
//! ```text
//! zebra  -- FPM over TCP --> fpm    --+
//!                                     +--> ChangeSet --> bounded channel --> Forwarder::learn
//! kernel -- rtnetlink -----> kernel --+
//! ```
//!
//! A feed is a state machine without I/O and clock, which gets bytes and times and appends [`FeedEvent`]s, and a thin thread around
//! it. The thread sends the events of one read as one [`ChangeSet`], which is applied as a whole. A full channel blocks the thread, so
//! a peer on TCP is held back, and nothing is lost.
//!
//! A route is that of a VRF, by the kernel's table that it is of ([`RoutingTables`]); what is said of links and neighbours is for all VRFs.
//!
//! | module | what lives there |
//! |---|---|
//! | [`netlink`] | decodes rtnetlink messages |
//! | [`nexthops`] | next-hop objects and groups, and the routes that name them |
//! | [`fpm`] | the protocol by which zebra announces routes, and its listener |
//! | [`kernel`] | the kernel's tables, by dumps and notifications |
//! | [`thread`] | the thread of a feed, and its way to the consumer |
//! | [`interfaces`] | from the kernel's interfaces to ports, from routes to next hops |
//! | [`running`] | the feeds of a forwarder, and the state of each |
//!
//! Events name interfaces by the kernel's index (`ifindex`).

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

/// The kernel's number of the main routing table.
pub(crate) const TABLE_MAIN: u32 = 254;

/// A feed, numbered in the order of preference: the feed with the lowest number is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FeedId(pub(crate) u8);

/// One way that a route's packets may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Path {
    /// The next hop's address, which may be an IPv6 address for an IPv4 route (RFC 8950); `None` when the destinations are on the
    /// link itself.
    pub(crate) gateway: Option<IpAddr>,
    /// The interface's index; 0 if the feed does not name it.
    pub(crate) ifindex: u32,
    /// The path's share of the traffic, relative to the other paths; at least 1.
    pub(crate) weight: u16,
}

/// What becomes of a route's packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    /// They are forwarded by one of these paths; there is at least one.
    Paths(Box<[Path]>),
    /// They are for this host or its links: a local, broadcast, anycast or multicast route.
    Local,
    /// They are dropped without a message.
    Blackhole,
    /// They are dropped, and the sender is told that the destination is unreachable.
    Unreachable,
    /// They are dropped, and the sender is told that this is by policy.
    Prohibit,
    /// What becomes of them is what [`FeedEvent::Object`] says of this object, now and later.
    Object(ObjectId),
    /// They have this next hop; no feed says so.
    Hop(NextHopId),
}

/// A next-hop object of a feed. No other number of the source gets its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    /// The feed.
    pub(crate) feed: FeedId,
    /// How often the feed had forgotten its objects before.
    pub(crate) epoch: u32,
    /// The object's number.
    pub(crate) number: u32,
}

/// An interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The interface's index.
    pub(crate) ifindex: u32,
    /// Its name.
    pub(crate) name: String,
    /// Whether it is administratively up.
    pub(crate) is_up: bool,
    /// Whether it is operational: up, with a carrier.
    pub(crate) is_running: bool,
    /// Whether it leads nowhere, so that its addresses are those of the host: a loopback or dummy interface.
    pub(crate) is_local: bool,
}

/// The Ethernet address of an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkNeighbour {
    /// The neighbour's address.
    pub(crate) address: IpAddr,
    /// The index of the interface that leads to it.
    pub(crate) ifindex: u32,
    /// Its Ethernet address.
    pub(crate) mac: MacAddr,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkAddress {
    /// The index of its interface.
    pub(crate) ifindex: u32,
    /// The address.
    pub(crate) address: IpAddr,
    /// The length of the prefix on the link.
    pub(crate) len: u8,
}

/// What a feed says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FeedEvent {
    /// The source is there and has said something valid.
    Connected,
    /// The source is gone. Its routes stay, as [`Self::Stale`] says next.
    Disconnected,
    /// A dump has ended: all that was there when it began has been announced.
    Complete,
    /// All routes that the feed has announced so far are stale. They stay in use.
    Stale,
    /// The routes that are still stale, those not announced again, are withdrawn.
    Sweep,
    /// The route of a prefix, in place of an earlier one of the same metric.
    Announce {
        /// The number of the VRF whose route it is.
        vrf: usize,
        /// The prefix.
        prefix: IpPrefix,
        /// Among the routes of one feed the lowest metric is the best.
        metric: u32,
        /// The route.
        route: Arc<Route>,
    },
    /// What becomes of the packets of the routes that name an object; `None` when no further route will name it. Those that do keep what
    /// was said last.
    Object {
        /// The object.
        object: ObjectId,
        /// What becomes of them: no object in turn.
        route: Option<Arc<Route>>,
    },
    /// The route of this prefix and metric is gone.
    Withdraw {
        /// The number of the VRF whose route it was.
        vrf: usize,
        /// The prefix.
        prefix: IpPrefix,
        /// The metric.
        metric: u32,
    },
    /// A link that is new or has changed.
    Link(Link),
    /// The link with this index is gone.
    LinkGone(u32),
    /// A neighbour that is new or has changed.
    Neighbour(LinkNeighbour),
    /// The neighbour with this address on the link with this index is gone.
    NeighbourGone(IpAddr, u32),
    /// A new address of this host.
    Address(LinkAddress),
    /// This host no longer has the address.
    AddressGone(LinkAddress),
}

/// The VRFs, by number, that the kernel's routing tables are those of. Routes of other tables are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoutingTables(FxHashMap<u32, usize>);

impl Default for RoutingTables {
    /// The main table is that of VRF 0.
    fn default() -> Self {
        Self(FxHashMap::from_iter([(TABLE_MAIN, 0)]))
    }
}

impl RoutingTables {
    /// No table is that of a VRF.
    pub(crate) fn none() -> Self {
        Self(FxHashMap::default())
    }

    /// Makes `table` that of VRF `vrf`. Returns the VRF that had it before.
    pub(crate) fn set(&mut self, table: u32, vrf: usize) -> Option<usize> {
        self.0.insert(table, vrf)
    }

    /// Whether no table is that of a VRF.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The VRF of a table.
    fn vrf(&self, table: u32) -> Option<usize> {
        self.0.get(&table).copied()
    }
}

/// The events of one read of a feed, to be applied as a whole: a route that is replaced may be withdrawn and announced in one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeSet {
    /// The feed.
    pub(crate) feed: FeedId,
    /// What it says, in order.
    pub(crate) events: Vec<FeedEvent>,
}

/// What a feed has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedCounts {
    /// Connections of peers, or passes over the kernel's tables.
    pub(crate) sessions: u64,
    /// Connections of peers that may not announce routes.
    pub(crate) refused: u64,
    /// Netlink messages that were decoded.
    pub(crate) messages: u64,
    /// Messages about something else: other tables, families and types.
    pub(crate) ignored: u64,
    /// Routes that cannot be represented (an encapsulation, a source prefix, a TOS). With an encapsulation they are announced as
    /// unreachable, others are left out.
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
