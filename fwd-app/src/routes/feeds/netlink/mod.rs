//! Decodes rtnetlink messages, as the kernel and zebra send them.
//!
//! Framing, attributes and fixed headers are those of the netlink crates. Attributes are picked one by one instead of decoding a
//! whole message: an attribute that is not needed here must neither cost the message nor be a way in for garbage, and routes come by
//! the million. `netlink-packet-route` has no next-hop objects, so their header is decoded here.
//!
//! Invariant: any bytes give messages or a [`NetlinkError`], and never a panic.

mod bodies;

use super::{Link, LinkAddress, LinkNeighbour, Path, Route};
use bodies::{Wrong, decode};
use fib::{IpPrefix, PrefixError};
use netlink_packet_core::{NLMSG_ALIGNTO, NetlinkBuffer};
use std::net::IpAddr;

/// Why a message was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetlinkError {
    /// The length of a message is impossible, so that nothing behind it can be found.
    #[error("a netlink message of {len} bytes where {room} bytes are left")]
    Framing {
        /// The length that the header gives; 0 when there is no room for a header.
        len: usize,
        /// The bytes left.
        room: usize,
    },
    /// A message does not decode.
    #[error("netlink message of type {kind}: {what} is wrong or missing")]
    Content {
        /// The message's type.
        kind: u16,
        /// The field.
        what: &'static str,
    },
    /// A route's prefix does not exist.
    #[error("netlink route: {0}")]
    Prefix(#[from] PrefixError),
}

/// A message and the fields of its header that matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// `NLM_F_*`.
    pub(crate) flags: u16,
    /// The number of the request that it answers.
    pub(crate) sequence: u32,
    /// The message.
    pub(crate) message: Message,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A route.
    Route(RouteMessage),
    /// A next-hop object that is new or has changed.
    NextHop {
        /// Its number.
        id: u32,
        /// What it is.
        object: NextHopObject,
    },
    /// A next-hop object is gone.
    NextHopGone(u32),
    /// A link that is new or has changed.
    Link(Link),
    /// A link is gone.
    LinkGone(u32),
    /// A neighbour with a usable Ethernet address.
    Neighbour(LinkNeighbour),
    /// A neighbour without one.
    NeighbourGone(IpAddr, u32),
    /// An address of this host.
    Address(AddressMessage),
    /// This host no longer has the address.
    AddressGone(LinkAddress),
    /// The end of a dump.
    Done,
    /// A request failed with this errno; 0 acknowledges it.
    Error(i32),
    /// The route cannot be represented: it depends on more than the destination.
    Unsupported,
    /// A message of another family or type.
    Ignored,
}

/// A route, as a message names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteMessage {
    /// The prefix.
    pub(crate) prefix: IpPrefix,
    /// The routing table.
    pub(crate) table: u32,
    /// The metric; the lowest is the best.
    pub(crate) metric: u32,
    /// Who made the route (`RTPROT_*`).
    pub(crate) protocol: u8,
    /// A digest of further attributes that distinguish routes of one key with the same next hops: the protocol, and for IPv4 also the type, scope,
    /// flags, preferred source, metrics such as the MTU, and realms.
    pub(crate) digest: u32,
    /// Whether the route is gone, or the paths of it that are named.
    pub(crate) is_gone: bool,
    /// The route, or the route that is gone.
    pub(crate) says: RouteSays,
}

/// An address, as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressMessage {
    /// The address.
    pub(crate) address: LinkAddress,
    /// The other end of a point-to-point link, else the address itself.
    pub(crate) peer: IpAddr,
    /// Whether it has no lifetime and no router has advertised it.
    pub(crate) is_permanent: bool,
}

/// What a message says about a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteSays {
    /// It is this route.
    Is(Route),
    /// It leads to the next-hop object with this number. Paths in the same message are the object's.
    Object(u32),
    /// It is there but none of its paths is alive.
    Dead,
    /// It has an encapsulation.
    Encapsulated,
    /// A route that is gone, without its next hop.
    Unnamed,
}

/// A next-hop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextHopObject {
    /// One path.
    Path(Path),
    /// Packets are dropped.
    Blackhole,
    /// Other objects, with their weights.
    Group(Vec<(u32, u16)>),
    /// It has an encapsulation, or is for bridges.
    Unsupported,
}

/// The length of a message's header.
pub(super) const HEADER_BYTES: usize = 16;

/// The messages in `bytes`, one after another. The iterator ends after a [`NetlinkError::Framing`].
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<Envelope, NetlinkError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let room = rest.len();
        let Ok(buffer) = NetlinkBuffer::new_checked(rest) else {
            let len = rest.first_chunk().map_or(0, |len| u32::from_ne_bytes(*len) as usize);
            rest = &[];
            return Some(Err(NetlinkError::Framing { len, room }));
        };
        let len = buffer.length() as usize;
        let (kind, flags, sequence) = (buffer.message_type(), buffer.flags(), buffer.sequence_number());
        let body = &rest[HEADER_BYTES..len];
        rest = &rest[len.next_multiple_of(usize::from(NLMSG_ALIGNTO)).min(room)..];
        let message = decode(kind, body).map_err(|wrong| match wrong {
            Wrong::Field(what) => NetlinkError::Content { kind, what },
            Wrong::Prefix(error) => error.into(),
        });
        Some(message.map(|message| Envelope { flags, sequence, message }))
    })
}

#[cfg(test)]
pub(crate) mod tests;
