//! Decodes rtnetlink messages, as the kernel and zebra send them.
//!
//! Framing, attributes and fixed headers are those of the netlink crates. Attributes are picked one by one instead of decoding a
//! whole message: an attribute that is not needed here must neither cost the message nor be a way in for garbage, and routes come by
//! the million. `netlink-packet-route` has no next-hop objects, so their header is decoded here.
//!
//! Invariant: any bytes give messages or a [`NetlinkError`], and never a panic.

use super::{Link, LinkAddress, LinkNeighbour, Path, Route};
use fib::{IpPrefix, MacAddr, PrefixError};
use netlink_packet_core::{NLMSG_ALIGNTO, NetlinkBuffer, NlaBuffer, NlasIterator};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::AddressHeader;
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use netlink_packet_route::neighbour::{NeighbourHeader, NeighbourState};
use netlink_packet_route::route::{RouteFlags, RouteHeader, RouteNextHopFlags, RouteType};
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

/// What is wrong with the body of a message.
enum Wrong {
    Field(&'static str),
    Prefix(PrefixError),
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
    Address(LinkAddress),
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
    /// What is said about it.
    pub(crate) says: RouteSays,
}

/// What a message says about a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteSays {
    /// It is this route.
    Is(Route),
    /// It leads to the next-hop object with this number.
    Object(u32),
    /// It is there but none of its paths is alive.
    Dead,
    /// It has an encapsulation.
    Encapsulated,
    /// It is gone, or those of its paths that are named.
    Gone(Vec<Path>),
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

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// The length of a message's header.
pub(super) const HEADER_BYTES: usize = 16;
/// The lengths of the fixed headers behind it.
const ROUTE_HEADER_BYTES: usize = 12;
const PATH_HEADER_BYTES: usize = 8;
const NEXT_HOP_HEADER_BYTES: usize = 8;
const LINK_HEADER_BYTES: usize = 16;
const NEIGHBOUR_HEADER_BYTES: usize = 12;
const ADDRESS_HEADER_BYTES: usize = 8;

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

fn decode(kind: u16, body: &[u8]) -> Result<Message, Wrong> {
    match kind {
        RTM_NEWROUTE | RTM_DELROUTE => route(body, kind == RTM_NEWROUTE),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => next_hop(body, kind == RTM_NEWNEXTHOP),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour(body, kind == RTM_NEWNEIGH),
        RTM_NEWLINK | RTM_DELLINK => link(body, kind == RTM_NEWLINK),
        RTM_NEWADDR | RTM_DELADDR => address(body, kind == RTM_NEWADDR),
        NLMSG_DONE | NLMSG_ERROR => {
            // A dump that fails halfway ends with an error code, too.
            let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code).saturating_neg());
            Ok(if kind == NLMSG_DONE && code == 0 { Message::Done } else { Message::Error(code) })
        }
        _ => Ok(Message::Ignored),
    }
}

fn route(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const DST: u16 = 1;
    const OIF: u16 = 4;
    const GATEWAY: u16 = 5;
    const PRIORITY: u16 = 6;
    const MULTIPATH: u16 = 9;
    const TABLE: u16 = 15;
    const VIA: u16 = 18;
    const ENCAP_TYPE: u16 = 21;
    const NH_ID: u16 = 30;
    let header = RouteHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    let Some(family) = ip_family(header.address_family) else { return Ok(Message::Ignored) };
    if header.flags.contains(RouteFlags::Cloned) {
        return Ok(Message::Ignored); // a cached exception, such as a path MTU
    }
    if header.source_prefix_length != 0 || header.tos != 0 {
        return Ok(Message::Unsupported);
    }
    let mut destination = family.unspecified();
    let (mut table, mut metric, mut object, mut has_encap) = (u32::from(header.table), 0, None, false);
    let mut single = Path { gateway: None, ifindex: 0, weight: 1 };
    let mut paths = Vec::new();
    let (mut any_path, mut any_multipath) = (false, false);
    for attribute in attributes(body, ROUTE_HEADER_BYTES) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            DST => destination = family.address(value)?,
            TABLE => table = number(value)?,
            PRIORITY => metric = number(value)?,
            NH_ID => object = Some(number(value)?),
            OIF => (single.ifindex, any_path) = (number(value)?, true),
            GATEWAY => (single.gateway, any_path) = (Some(family.address(value)?), true),
            VIA => (single.gateway, any_path) = (via(value)?, true),
            ENCAP_TYPE => has_encap = true,
            MULTIPATH => {
                (any_multipath, has_encap) = (true, multipath(value, family, &mut paths)? || has_encap)
            }
            _ => {}
        }
    }
    let is_dead = header.flags.contains(RouteFlags::Dead);
    if any_path && !any_multipath && !is_dead {
        paths.push(single);
    }
    let says = if !is_new {
        RouteSays::Gone(paths)
    } else {
        match header.kind {
            RouteType::Unicast if has_encap => RouteSays::Encapsulated,
            RouteType::Unicast if !paths.is_empty() => RouteSays::Is(Route::Paths(paths.into())),
            RouteType::Unicast if any_multipath || is_dead => RouteSays::Dead,
            RouteType::Unicast => RouteSays::Object(object.ok_or(Wrong::Field("the next hop"))?),
            RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => {
                RouteSays::Is(Route::Local)
            }
            RouteType::BlackHole => RouteSays::Is(Route::Blackhole),
            // `throw` leads to another table. There is one table here, which then has no route.
            RouteType::Unreachable | RouteType::Throw => RouteSays::Is(Route::Unreachable),
            RouteType::Prohibit => RouteSays::Is(Route::Prohibit),
            _ => return Ok(Message::Unsupported),
        }
    };
    let prefix = IpPrefix::new(destination, header.destination_prefix_length).map_err(Wrong::Prefix)?;
    let protocol = header.protocol.into();
    Ok(Message::Route(RouteMessage { prefix, table, metric, protocol, says }))
}

/// Appends the live paths of a multipath attribute. Returns whether one has an encapsulation.
fn multipath(mut value: &[u8], family: IpFamily, paths: &mut Vec<Path>) -> Result<bool, Wrong> {
    const GATEWAY: u16 = 5;
    const VIA: u16 = 18;
    const ENCAP_TYPE: u16 = 21;
    let mut has_encap = false;
    while let Some((header, _)) = value.split_first_chunk::<PATH_HEADER_BYTES>() {
        let [len @ .., flags, hops, _, _, _, _] = *header;
        let len = usize::from(u16::from_ne_bytes(len));
        let entry = value.get(..len).filter(|_| len >= PATH_HEADER_BYTES);
        let entry = entry.ok_or(Wrong::Field("a path's length"))?;
        let ifindex = number(&entry[4..PATH_HEADER_BYTES])?;
        let mut path = Path { gateway: None, ifindex, weight: u16::from(hops) + 1 };
        for attribute in attributes(entry, PATH_HEADER_BYTES) {
            let attribute = attribute?;
            match attribute.kind() {
                GATEWAY => path.gateway = Some(family.address(attribute.value())?),
                VIA => path.gateway = via(attribute.value())?,
                ENCAP_TYPE => has_encap = true,
                _ => {}
            }
        }
        if !RouteNextHopFlags::from_bits_retain(flags).contains(RouteNextHopFlags::Dead) {
            paths.push(path);
        }
        value = value.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    if value.is_empty() { Ok(has_encap) } else { Err(Wrong::Field("a path's header")) }
}

fn next_hop(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const ID: u16 = 1;
    const GROUP: u16 = 2;
    const BLACKHOLE: u16 = 4;
    const OIF: u16 = 5;
    const GATEWAY: u16 = 6;
    const ENCAP_TYPE: u16 = 7;
    const FDB: u16 = 11;
    let (&family, _) =
        body.get(..NEXT_HOP_HEADER_BYTES).and_then(<[u8]>::split_first).ok_or(Wrong::Field("the header"))?;
    // A group or a blackhole has no family.
    let family = ip_family(AddressFamily::from(family));
    let mut id = None;
    let mut path = Path { gateway: None, ifindex: 0, weight: 1 };
    let mut object = None;
    for attribute in attributes(body, NEXT_HOP_HEADER_BYTES) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            ID => id = Some(number(value)?),
            GROUP => object = Some(NextHopObject::Group(group(value)?)),
            BLACKHOLE => object = Some(NextHopObject::Blackhole),
            OIF => path.ifindex = number(value)?,
            GATEWAY => path.gateway = Some(family.ok_or(Wrong::Field("the family"))?.address(value)?),
            ENCAP_TYPE | FDB => object = Some(NextHopObject::Unsupported),
            _ => {}
        }
    }
    let id = id.ok_or(Wrong::Field("the next hop's number"))?;
    if !is_new {
        return Ok(Message::NextHopGone(id));
    }
    let is_path = path.ifindex != 0 || path.gateway.is_some();
    let object = object.or(is_path.then_some(NextHopObject::Path(path)));
    Ok(Message::NextHop { id, object: object.ok_or(Wrong::Field("the next hop"))? })
}

/// The members of a group: 8 bytes each, a number, the weight less one, and the weight's high byte (since Linux 6.12).
fn group(value: &[u8]) -> Result<Vec<(u32, u16)>, Wrong> {
    let (members, rest) = value.as_chunks::<8>();
    if members.is_empty() || !rest.is_empty() {
        return Err(Wrong::Field("the group"));
    }
    let member = |&[a, b, c, d, low, high, _, _]: &[u8; 8]| {
        (u32::from_ne_bytes([a, b, c, d]), u16::from_le_bytes([low, high]).saturating_add(1))
    };
    Ok(members.iter().map(member).collect())
}

fn neighbour(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const DST: u16 = 1;
    const LLADDR: u16 = 2;
    let header = NeighbourHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    let Some(family) = ip_family(header.family) else { return Ok(Message::Ignored) };
    let (mut address, mut mac) = (None, None);
    for attribute in attributes(body, NEIGHBOUR_HEADER_BYTES) {
        let attribute = attribute?;
        match attribute.kind() {
            DST => address = Some(family.address(attribute.value())?),
            LLADDR => mac = <[u8; 6]>::try_from(attribute.value()).ok().map(MacAddr),
            _ => {}
        }
    }
    let address = address.ok_or(Wrong::Field("the neighbour's address"))?;
    let is_usable = matches!(
        header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let ifindex = header.ifindex;
    Ok(match mac {
        Some(mac) if is_new && is_usable => Message::Neighbour(LinkNeighbour { address, ifindex, mac }),
        _ => Message::NeighbourGone(address, ifindex),
    })
}

fn link(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const ADDRESS: u16 = 1;
    const IFNAME: u16 = 3;
    const MTU: u16 = 4;
    let header = LinkHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    if header.interface_family != AddressFamily::Unspec {
        return Ok(Message::Ignored); // a bridge's view of its port
    }
    if !is_new {
        return Ok(Message::LinkGone(header.index));
    }
    let (mut name, mut mac, mut mtu_bytes) = (String::new(), None, 0);
    for attribute in attributes(body, LINK_HEADER_BYTES) {
        let attribute = attribute?;
        let value = attribute.value();
        match attribute.kind() {
            IFNAME => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                name = String::from_utf8_lossy(text).into_owned();
            }
            ADDRESS => mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
            MTU => mtu_bytes = number(value)?,
            _ => {}
        }
    }
    Ok(Message::Link(Link {
        ifindex: header.index,
        name,
        is_up: header.flags.contains(LinkFlags::Up),
        is_running: header.flags.contains(LinkFlags::Up | LinkFlags::Running),
        mac,
        mtu_bytes,
    }))
}

fn address(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let header = AddressHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    let Some(family) = ip_family(header.family) else { return Ok(Message::Ignored) };
    // On a point-to-point link, ADDRESS is the peer's and LOCAL is ours.
    let (mut peer, mut local) = (None, None);
    for attribute in attributes(body, ADDRESS_HEADER_BYTES) {
        let attribute = attribute?;
        match attribute.kind() {
            ADDRESS => peer = Some(family.address(attribute.value())?),
            LOCAL => local = Some(family.address(attribute.value())?),
            _ => {}
        }
    }
    let address = local.or(peer).ok_or(Wrong::Field("the address"))?;
    let address = LinkAddress { ifindex: header.index, address, len: header.prefix_len };
    Ok(if is_new { Message::Address(address) } else { Message::AddressGone(address) })
}

/// The two address families that are routed.
#[derive(Clone, Copy)]
enum IpFamily {
    V4,
    V6,
}

fn ip_family(family: AddressFamily) -> Option<IpFamily> {
    match family {
        AddressFamily::Inet => Some(IpFamily::V4),
        AddressFamily::Inet6 => Some(IpFamily::V6),
        _ => None,
    }
}

impl IpFamily {
    fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::from([0; 4]),
            Self::V6 => IpAddr::from([0; 16]),
        }
    }

    fn address(self, value: &[u8]) -> Result<IpAddr, Wrong> {
        let address = match self {
            Self::V4 => <[u8; 4]>::try_from(value).map(IpAddr::from),
            Self::V6 => <[u8; 16]>::try_from(value).map(IpAddr::from),
        };
        address.map_err(|_| Wrong::Field("an address"))
    }
}

/// A gateway whose family may differ from the route's: 16 bits of family, then the address.
fn via(value: &[u8]) -> Result<Option<IpAddr>, Wrong> {
    let (family, address) = value.split_first_chunk().ok_or(Wrong::Field("a gateway"))?;
    let family = u8::try_from(u16::from_ne_bytes(*family)).map_err(|_| Wrong::Field("a gateway's family"))?;
    let family = ip_family(AddressFamily::from(family)).ok_or(Wrong::Field("a gateway's family"))?;
    family.address(address).map(Some)
}

fn number(value: &[u8]) -> Result<u32, Wrong> {
    value.try_into().map(u32::from_ne_bytes).map_err(|_| Wrong::Field("a number"))
}

/// The attributes behind a fixed header of `header_bytes`.
fn attributes(body: &[u8], header_bytes: usize) -> impl Iterator<Item = Result<NlaBuffer<&[u8]>, Wrong>> {
    let rest = body.get(header_bytes..).unwrap_or_default();
    NlasIterator::new(rest).map(|attribute| attribute.map_err(|_| Wrong::Field("an attribute's length")))
}

#[cfg(test)]
pub(crate) mod tests;
