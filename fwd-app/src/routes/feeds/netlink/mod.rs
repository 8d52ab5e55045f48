//! Decodes rtnetlink messages of the kernel and of zebra. Any bytes give messages or a [`NetlinkError`], and never a panic.
//!
//! The netlink crates provide framing, attributes and fixed headers. Attributes are decoded one by one instead of whole messages: unused
//! attributes should neither cost time, since full tables have a million routes, nor reject a message. `netlink-packet-route` lacks
//! next-hop objects, so their header is decoded here.

use super::{Link, LinkAddress, LinkNeighbour, Path, Route};
use fib::{IpPrefix, MacAddr, PrefixError};
use netlink_packet_core::{NLMSG_ALIGNTO, NetlinkBuffer, NlasIterator};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressFlags, AddressHeader};
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use netlink_packet_route::neighbour::{NeighbourHeader, NeighbourState};
use netlink_packet_route::route::{RouteFlags, RouteHeader, RouteNextHopFlags, RouteType};
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::IpAddr;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NetlinkError {
    /// A message's length is impossible, so the rest cannot be parsed.
    #[error("a netlink message of {len} bytes where {room} bytes are left")]
    Framing {
        /// The length in the header; 0 when there is no room for a header.
        len: usize,
        room: usize,
    },
    #[error("netlink message of type {kind}: {what} is wrong or missing")]
    Content {
        /// The message's type.
        kind: u16,
        what: &'static str,
    },
    #[error("netlink route: {0}")]
    Prefix(#[from] PrefixError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// `NLM_F_*`.
    pub(crate) flags: u16,
    /// The number of the request that it answers.
    pub(crate) sequence: u32,
    pub(crate) message: Message,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Route(RouteMessage),
    NextHop {
        id: u32,
        object: NextHopObject,
    },
    NextHopGone(u32),
    Link(Link),
    LinkGone(u32),
    /// A neighbour with a usable Ethernet address.
    Neighbour(LinkNeighbour),
    /// A neighbour without a usable Ethernet address.
    NeighbourGone(IpAddr, u32),
    Address(AddressMessage),
    AddressGone(LinkAddress),
    /// The end of a dump.
    Done,
    /// A request failed with this errno; 0 acknowledges it.
    Error(i32),
    /// A route that cannot be represented: it depends on more than the destination.
    Unsupported,
    /// A message of another family or type.
    Ignored,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteMessage {
    pub(crate) prefix: IpPrefix,
    pub(crate) table: u32,
    pub(crate) metric: u32,
    /// Who made the route (`RTPROT_*`).
    pub(crate) protocol: u8,
    /// Digest of the further attributes that distinguish routes of one key with equal next hops: the protocol, and for IPv4 also the type,
    /// scope, flags, preferred source, metrics such as the MTU, and realms.
    pub(crate) digest: u32,
    /// Whether the route, or the named paths of it, were deleted.
    pub(crate) is_gone: bool,
    pub(crate) says: RouteSays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressMessage {
    pub(crate) address: LinkAddress,
    /// The other end of a point-to-point link, else the address itself.
    pub(crate) peer: IpAddr,
    /// Whether it has no lifetime and no router has advertised it.
    pub(crate) is_permanent: bool,
}

/// The next hops that a message gives for a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteSays {
    Is(Route),
    /// The next-hop object with this number. Paths in the same message are the object's.
    Object(u32),
    /// The route exists, but none of its paths is alive.
    Dead,
    Encapsulated,
    /// A deleted route, without its next hop.
    Unnamed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextHopObject {
    Path(Path),
    Blackhole,
    /// Other objects, with their weights.
    Group(Vec<(u32, u16)>),
    /// It has an encapsulation, or is for bridges.
    Unsupported,
}

pub(super) const HEADER_BYTES: usize = 16;

/// The messages in `bytes`. The iterator ends after a [`NetlinkError::Framing`].
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

const ROUTE_HEADER_BYTES: usize = 12;
const PATH_HEADER_BYTES: usize = 8;
const NEXT_HOP_HEADER_BYTES: usize = 8;
const LINK_HEADER_BYTES: usize = 16;
const NEIGHBOUR_HEADER_BYTES: usize = 12;
const ADDRESS_HEADER_BYTES: usize = 8;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// The realms of a route or a path (`RTA_FLOW`).
const REALMS: u16 = 11;
/// The path flags that the kernel compares to distinguish IPv4 routes: `RTNH_F_PERVASIVE` and `RTNH_F_ONLINK`. The others are state.
const FLAGS_COMPARED: u32 = 0x2 | 0x4;

enum Wrong {
    Field(&'static str),
    Prefix(PrefixError),
}

fn decode(kind: u16, body: &[u8]) -> Result<Message, Wrong> {
    match kind {
        RTM_NEWROUTE | RTM_DELROUTE => route(body, kind == RTM_NEWROUTE),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => next_hop(body, kind == RTM_NEWNEXTHOP),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbour(body, kind == RTM_NEWNEIGH),
        RTM_NEWLINK | RTM_DELLINK => link(body, kind == RTM_NEWLINK),
        RTM_NEWADDR | RTM_DELADDR => address(body, kind == RTM_NEWADDR),
        NLMSG_DONE | NLMSG_ERROR => {
            // A dump that fails halfway also ends with an error code.
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
    const PREFERRED_SOURCE: u16 = 7;
    const METRICS: u16 = 8;
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
    let mut compared = Compared::default();
    for attribute in attributes(body, ROUTE_HEADER_BYTES) {
        let (kind, value) = attribute?;
        match kind {
            DST => destination = family.address(value)?,
            TABLE => table = number(value)?,
            PRIORITY => metric = number(value)?,
            NH_ID => object = Some(number(value)?),
            OIF => (single.ifindex, any_path) = (number(value)?, true),
            GATEWAY => (single.gateway, any_path) = (Some(family.address(value)?), true),
            VIA => (single.gateway, any_path) = (via(value)?, true),
            ENCAP_TYPE => has_encap = true,
            PREFERRED_SOURCE => compared.preferred_source = value,
            METRICS => compared.metrics = value,
            REALMS => value.hash(&mut compared.paths),
            MULTIPATH => {
                let path_has_encap = multipath(value, family, is_new, (&mut paths, &mut compared.paths))?;
                (any_multipath, has_encap) = (true, path_has_encap || has_encap);
            }
            _ => {}
        }
    }
    // A deletion may name a dead path.
    let is_dead = is_new && header.flags.contains(RouteFlags::Dead);
    if any_path && !any_multipath && !is_dead {
        paths.push(single);
    }
    let says = match (header.kind, object) {
        // With net.ipv4.nexthop_compat_mode the message also has the object's paths. A blackhole object gives the type BlackHole.
        (RouteType::Unicast | RouteType::BlackHole, Some(object)) => RouteSays::Object(object),
        (RouteType::Unicast, _) if has_encap => RouteSays::Encapsulated,
        (RouteType::Unicast, _) if !paths.is_empty() => RouteSays::Is(Route::Paths(paths.into())),
        (RouteType::Unicast, _) if any_multipath || is_dead => RouteSays::Dead,
        (RouteType::Unicast, _) if is_new => return Err(Wrong::Field("the next hop")),
        (RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast, _) => {
            RouteSays::Is(Route::Local)
        }
        (RouteType::BlackHole, _) => RouteSays::Is(Route::Blackhole),
        // `throw` continues in another table; a VRF has only one, so the packet has no route.
        (RouteType::Unreachable | RouteType::Throw, _) => RouteSays::Is(Route::Unreachable),
        (RouteType::Prohibit, _) => RouteSays::Is(Route::Prohibit),
        _ if is_new => return Ok(Message::Unsupported),
        _ => RouteSays::Unnamed,
    };
    let prefix = IpPrefix::new(destination, header.destination_prefix_length).map_err(Wrong::Prefix)?;
    let (protocol, is_gone) = (header.protocol.into(), !is_new);
    let digest = compared.digest(&header, object.is_some());
    Ok(Message::Route(RouteMessage { prefix, table, metric, protocol, digest, is_gone, says }))
}

/// The attributes of a route that enter its digest.
#[derive(Default)]
struct Compared<'a> {
    preferred_source: &'a [u8],
    metrics: &'a [u8],
    paths: FxHasher,
}

impl Compared<'_> {
    fn digest(mut self, header: &RouteHeader, has_object: bool) -> u32 {
        let mut all = FxHasher::default();
        all.write_u8(header.protocol.into());
        if header.address_family == AddressFamily::Inet {
            (u8::from(header.scope), self.preferred_source, self.metrics).hash(&mut all);
            // The routes' messages repeat the type and paths of their object, which may change.
            if !has_object {
                (header.flags.bits() & FLAGS_COMPARED).hash(&mut self.paths);
                (u8::from(header.kind), self.paths.finish()).hash(&mut all);
            }
        }
        u32::try_from(all.finish() >> u32::BITS).unwrap_or_default()
    }
}

/// Appends the paths of a multipath attribute, with `only_live` without dead ones, and hashes the other attributes that the kernel
/// compares. Returns whether a path has an encapsulation.
fn multipath(
    mut value: &[u8],
    family: IpFamily,
    only_live: bool,
    (paths, compared): (&mut Vec<Path>, &mut FxHasher),
) -> Result<bool, Wrong> {
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
            let (kind, value) = attribute?;
            match kind {
                GATEWAY => path.gateway = Some(family.address(value)?),
                VIA => path.gateway = via(value)?,
                ENCAP_TYPE => has_encap = true,
                REALMS => value.hash(compared),
                _ => {}
            }
        }
        (u32::from(flags) & FLAGS_COMPARED).hash(compared);
        if !only_live || !RouteNextHopFlags::from_bits_retain(flags).contains(RouteNextHopFlags::Dead) {
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
    let family = ip_family(AddressFamily::from(family));
    let mut id = None;
    let mut path = Path { gateway: None, ifindex: 0, weight: 1 };
    let mut object = None;
    for attribute in attributes(body, NEXT_HOP_HEADER_BYTES) {
        let (kind, value) = attribute?;
        match kind {
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
        let (kind, value) = attribute?;
        match kind {
            DST => address = Some(family.address(value)?),
            LLADDR => mac = <[u8; 6]>::try_from(value).ok().map(MacAddr),
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
    const IFNAME: u16 = 3;
    const LINKINFO: u16 = 18;
    const INFO_KIND: u16 = 1;
    let header = LinkHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    if header.interface_family != AddressFamily::Unspec {
        return Ok(Message::Ignored); // a bridge's view of its port
    }
    if !is_new {
        return Ok(Message::LinkGone(header.index));
    }
    let text = |value: &[u8]| {
        let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let (mut name, mut is_local) = (String::new(), header.flags.contains(LinkFlags::Loopback));
    for attribute in attributes(body, LINK_HEADER_BYTES) {
        let (kind, value) = attribute?;
        match kind {
            IFNAME => name = text(value),
            LINKINFO => {
                for attribute in attributes(value, 0) {
                    let (kind, value) = attribute?;
                    is_local |= kind == INFO_KIND && text(value) == "dummy";
                }
            }
            _ => {}
        }
    }
    Ok(Message::Link(Link {
        ifindex: header.index,
        name,
        is_up: header.flags.contains(LinkFlags::Up),
        is_running: header.flags.contains(LinkFlags::Up | LinkFlags::Running),
        is_local,
    }))
}

fn address(body: &[u8], is_new: bool) -> Result<Message, Wrong> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    const FLAGS: u16 = 8;
    const PROTOCOL: u16 = 11;
    const ADVERTISED: u8 = 2; // IFAPROT_KERNEL_RA
    let header = AddressHeader::parse(body).map_err(|_| Wrong::Field("the header"))?;
    let Some(family) = ip_family(header.family) else { return Ok(Message::Ignored) };
    // On a point-to-point link, ADDRESS is the peer's and LOCAL is ours.
    let (mut peer, mut local) = (None, None);
    // The attribute has more bits than the header.
    let (mut flags, mut is_advertised) = (u32::from(header.flags.bits()), false);
    for attribute in attributes(body, ADDRESS_HEADER_BYTES) {
        let (kind, value) = attribute?;
        match kind {
            ADDRESS => peer = Some(family.address(value)?),
            LOCAL => local = Some(family.address(value)?),
            FLAGS => flags = number(value)?,
            PROTOCOL => is_advertised = value == [ADVERTISED],
            _ => {}
        }
    }
    let own = local.or(peer).ok_or(Wrong::Field("the address"))?;
    let address = LinkAddress { ifindex: header.index, address: own, len: header.prefix_len };
    if !is_new {
        return Ok(Message::AddressGone(address));
    }
    let is_permanent =
        AddressFlags::from_bits_retain(flags).contains(AddressFlags::Permanent) && !is_advertised;
    Ok(Message::Address(AddressMessage { address, peer: peer.unwrap_or(own), is_permanent }))
}

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

fn attributes(body: &[u8], header_bytes: usize) -> impl Iterator<Item = Result<(u16, &[u8]), Wrong>> {
    let rest = body.get(header_bytes..).unwrap_or_default();
    NlasIterator::new(rest).map(|attribute| {
        let attribute = attribute.map_err(|_| Wrong::Field("an attribute's length"))?;
        let (kind, value_bytes) = (attribute.kind(), attribute.value_length());
        // The iterator has checked the length.
        Ok((kind, &attribute.into_inner()[ATTRIBUTE_HEADER_BYTES..][..value_bytes]))
    })
}

#[cfg(test)]
pub(crate) mod tests;
