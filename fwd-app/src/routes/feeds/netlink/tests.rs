//! Messages encoded by `netlink-packet-route`, decoded here; next-hop objects and garbage by hand.

use super::*;
use crate::routes::feeds::test_peers::{encode, route_bytes, route_message};
use fib::MacAddr;
use fib::{Prefix4, Prefix6};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage as AddressOfLink,
};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteLwEnCapType, RouteNextHop, RouteNextHopFlags, RouteType, RouteVia,
};
use proptest::prelude::*;

/// A message with a body made by hand.
pub(crate) fn raw(kind: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = header.to_vec();
    for (kind, value) in attributes {
        body.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let len = u32::try_from(HEADER_BYTES + body.len()).unwrap();
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
}

pub(crate) fn next_hop_bytes(id: u32, family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let id = id.to_ne_bytes();
    let attributes: Vec<_> = std::iter::once((1, &id[..])).chain(attributes.iter().copied()).collect();
    raw(RTM_NEWNEXTHOP, &[family, 0, 0, 0, 0, 0, 0, 0], &attributes)
}

fn decoded(bytes: &[u8]) -> Vec<Message> {
    messages(bytes).map(|message| message.unwrap().message).collect()
}

fn says(bytes: &[u8]) -> RouteSays {
    match decoded(bytes).remove(0) {
        Message::Route(route) => route.says,
        other => panic!("{other:?}"),
    }
}

fn prefixes() -> impl Strategy<Value = IpPrefix> {
    prop_oneof![
        (any::<u32>(), 0..=32_u8).prop_map(|(address, len)| IpPrefix::V4(Prefix4::truncating(address, len))),
        (any::<u128>(), 0..=128_u8)
            .prop_map(|(address, len)| IpPrefix::V6(Prefix6::truncating(address, len))),
    ]
}

fn paths(prefix: IpPrefix) -> impl Strategy<Value = Vec<Path>> {
    let is_v4 = matches!(prefix, IpPrefix::V4(_));
    let gateway = prop_oneof![
        Just(None),
        any::<[u8; 4]>().prop_map(move |bytes| is_v4.then(|| bytes.into())),
        any::<[u8; 16]>().prop_map(|bytes| Some(bytes.into())),
    ];
    let path = (gateway, 1..=u32::MAX, 1..=256_u16);
    let path = path.prop_map(|(gateway, ifindex, weight)| Path { gateway, ifindex, weight });
    prop::collection::vec(path, 1..6)
}

/// The attribute of a gateway, which is `RTA_VIA` when its family differs from the route's.
fn gateway(prefix: IpPrefix, gateway: IpAddr) -> RouteAttribute {
    match (prefix, gateway) {
        (IpPrefix::V4(_), IpAddr::V6(_)) => RouteAttribute::Via(RouteVia::from(gateway)),
        _ => RouteAttribute::Gateway(gateway.into()),
    }
}

fn with_paths(prefix: IpPrefix, paths: &[Path]) -> Vec<RouteAttribute> {
    if let [path] = paths
        && path.weight == 1
    {
        let via = path.gateway.map(|address| gateway(prefix, address));
        return via.into_iter().chain([RouteAttribute::Oif(path.ifindex)]).collect();
    }
    let entries = paths.iter().map(|path| {
        let mut entry = RouteNextHop::default();
        entry.hops = u8::try_from(path.weight - 1).unwrap();
        entry.interface_index = path.ifindex;
        entry.attributes = path.gateway.map(|address| gateway(prefix, address)).into_iter().collect();
        entry
    });
    vec![RouteAttribute::MultiPath(entries.collect())]
}

proptest! {
    #[test]
    fn a_route_that_is_encoded_is_decoded(
        (prefix, paths) in prefixes().prop_flat_map(|prefix| (Just(prefix), paths(prefix))),
        table in any::<u32>(),
        metric in any::<u32>(),
    ) {
        let mut attributes = with_paths(prefix, &paths);
        attributes.extend([RouteAttribute::Priority(metric), RouteAttribute::Table(table)]);
        let bytes = route_bytes(prefix, RouteType::Unicast, attributes.clone());
        let says = RouteSays::Is(Route::Paths(paths.clone().into()));
        let said = decoded(&bytes);
        let [Message::Route(RouteMessage { digest, .. })] = said[..] else { panic!("{said:?}") };
        let route = RouteMessage { prefix, table, metric, protocol: 0, digest, is_gone: false, says };
        prop_assert_eq!(said, [Message::Route(route.clone())]);
        let gone = encode(RouteNetlinkMessage::DelRoute(route_message(prefix, RouteType::Unicast, attributes)));
        let route = RouteMessage { is_gone: true, ..route };
        prop_assert_eq!(decoded(&gone), [Message::Route(route)]);
    }

    #[test]
    fn any_bytes_are_messages_or_errors(mut bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..120_u16) {
        let all = messages(&bytes).count();
        prop_assert!(all <= bytes.len() / HEADER_BYTES + 1);
        // The same with a correct header.
        if bytes.len() >= HEADER_BYTES {
            let len = u32::try_from(bytes.len()).unwrap();
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            prop_assert_eq!(messages(&bytes).count(), 1);
        }
    }

    #[test]
    fn a_message_with_wrong_bytes_is_a_message_or_an_error(
        (prefix, paths) in prefixes().prop_flat_map(|prefix| (Just(prefix), paths(prefix))),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = route_bytes(prefix, RouteType::Unicast, with_paths(prefix, &paths));
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = messages(&bytes).count();
        bytes.truncate(keep.index(bytes.len() + 1));
        let _ = messages(&bytes).count();
    }
}

#[test]
fn types_of_routes() {
    let prefix: IpPrefix = "10.0.0.0/8".parse().unwrap();
    let of = |kind| says(&route_bytes(prefix, kind, vec![RouteAttribute::Oif(1)]));
    assert_eq!(of(RouteType::BlackHole), RouteSays::Is(Route::Blackhole));
    assert_eq!(of(RouteType::Unreachable), RouteSays::Is(Route::Unreachable));
    assert_eq!(of(RouteType::Prohibit), RouteSays::Is(Route::Prohibit));
    assert_eq!(of(RouteType::Throw), RouteSays::Is(Route::Unreachable));
    assert_eq!(of(RouteType::Local), RouteSays::Is(Route::Local));
    let with = |attributes| says(&route_bytes(prefix, RouteType::Unicast, attributes));
    assert_eq!(with(vec![RouteAttribute::NhId(7)]), RouteSays::Object(7));
    // With net.ipv4.nexthop_compat_mode the message also has the paths of the object.
    assert_eq!(with(vec![RouteAttribute::Oif(1), RouteAttribute::NhId(7)]), RouteSays::Object(7));
    let encapsulated = vec![RouteAttribute::Oif(1), RouteAttribute::EncapType(RouteLwEnCapType::Mpls)];
    assert_eq!(with(encapsulated), RouteSays::Encapsulated);
    let mut dead = RouteNextHop::default();
    dead.flags = RouteNextHopFlags::Dead;
    assert_eq!(with(vec![RouteAttribute::MultiPath(vec![dead])]), RouteSays::Dead);
    let nowhere = route_bytes(prefix, RouteType::Unicast, Vec::new());
    let wanted = NetlinkError::Content { kind: RTM_NEWROUTE, what: "the next hop" };
    assert_eq!(messages(&nowhere).collect::<Vec<_>>(), [Err(wanted)]);
    let mut special = route_message(prefix, RouteType::Unicast, vec![RouteAttribute::Oif(1)]);
    special.header.tos = 8;
    assert_eq!(decoded(&encode(RouteNetlinkMessage::NewRoute(special))), [Message::Unsupported]);
}

#[test]
fn next_hop_objects() {
    let object = |bytes: &[u8]| match decoded(bytes).remove(0) {
        Message::NextHop { id: 9, object } => object,
        other => panic!("{other:?}"),
    };
    let path = object(&next_hop_bytes(9, 2, &[(5, &3_u32.to_ne_bytes()), (6, &[192, 0, 2, 1])]));
    let gateway = Some([192, 0, 2, 1].into());
    assert_eq!(path, NextHopObject::Path(Path { gateway, ifindex: 3, weight: 1 }));
    assert_eq!(object(&next_hop_bytes(9, 0, &[(4, &[])])), NextHopObject::Blackhole);
    let members = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 254, 1, 0, 0]].concat();
    assert_eq!(object(&next_hop_bytes(9, 0, &[(2, &members)])), NextHopObject::Group(vec![(1, 1), (2, 511)]));
    let encapsulated = next_hop_bytes(9, 2, &[(5, &3_u32.to_ne_bytes()), (7, &[1, 0])]);
    assert_eq!(object(&encapsulated), NextHopObject::Unsupported);
    assert_eq!(
        decoded(&raw(RTM_DELNEXTHOP, &[0; 8], &[(1, &9_u32.to_ne_bytes())])),
        [Message::NextHopGone(9)]
    );
    for wrong in [
        next_hop_bytes(9, 0, &[(2, &members[..9])]),
        next_hop_bytes(9, 0, &[]),
        raw(RTM_NEWNEXTHOP, &[0; 7], &[]),
    ] {
        assert!(matches!(
            messages(&wrong).next(),
            Some(Err(NetlinkError::Content { kind: RTM_NEWNEXTHOP, .. }))
        ));
    }
}

#[test]
fn links_neighbours_and_addresses() {
    let mac = MacAddr([2, 0, 0, 0, 0, 9]);
    let mut link = LinkMessage::default();
    link.header.index = 4;
    link.header.flags = LinkFlags::Up | LinkFlags::Running;
    link.attributes = vec![
        LinkAttribute::IfName("eth4".into()),
        LinkAttribute::Mtu(1400),
        LinkAttribute::Address(mac.0.into()),
    ];
    let is = Link { ifindex: 4, name: "eth4".into(), is_up: true, is_running: true, is_local: false };
    assert_eq!(decoded(&encode(RouteNetlinkMessage::NewLink(link.clone()))), [Message::Link(is.clone())]);
    let mut dummy = link.clone();
    dummy.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Dummy)]));
    let mut loopback = link.clone();
    loopback.header.flags |= LinkFlags::Loopback;
    for local in [dummy, loopback] {
        let is = Link { is_local: true, ..is.clone() };
        assert_eq!(decoded(&encode(RouteNetlinkMessage::NewLink(local))), [Message::Link(is)]);
    }
    assert_eq!(decoded(&encode(RouteNetlinkMessage::DelLink(link))), [Message::LinkGone(4)]);

    let address = IpAddr::from([192, 0, 2, 7]);
    let neighbour = |state| {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 4;
        message.header.state = state;
        let destination = NeighbourAddress::Inet([192, 0, 2, 7].into());
        message.attributes = vec![
            NeighbourAttribute::Destination(destination),
            NeighbourAttribute::LinkLayerAddress(mac.0.into()),
        ];
        message
    };
    let stale = neighbour(NeighbourState::Stale);
    let is = Message::Neighbour(LinkNeighbour { address, ifindex: 4, mac });
    assert_eq!(decoded(&encode(RouteNetlinkMessage::NewNeighbour(stale.clone()))), [is]);
    let gone = [Message::NeighbourGone(address, 4)];
    assert_eq!(decoded(&encode(RouteNetlinkMessage::DelNeighbour(stale))), gone);
    let failed = encode(RouteNetlinkMessage::NewNeighbour(neighbour(NeighbourState::Failed)));
    assert_eq!(decoded(&failed), gone);

    let mut of_link = AddressOfLink::default();
    of_link.header.family = AddressFamily::Inet;
    of_link.header.prefix_len = 24;
    of_link.header.index = 4;
    of_link.header.flags = AddressHeaderFlags::Permanent;
    of_link.attributes =
        vec![AddressAttribute::Address([192, 0, 2, 9].into()), AddressAttribute::Local(address)];
    let is = LinkAddress { ifindex: 4, address, len: 24 };
    let said = AddressMessage { address: is, peer: [192, 0, 2, 9].into(), is_permanent: true };
    assert_eq!(decoded(&encode(RouteNetlinkMessage::NewAddress(of_link.clone()))), [Message::Address(said)]);
    assert_eq!(decoded(&encode(RouteNetlinkMessage::DelAddress(of_link))), [Message::AddressGone(is)]);
}

#[test]
fn addresses_with_a_lifetime_and_those_of_advertisements_are_not_permanent() {
    let address = [0x20, 0x01, 0x0d, 0xb8, 0x0b, 0xad, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let is_permanent = |flags: u8, more: &[(u16, &[u8])]| {
        let attributes: Vec<_> = [(1, &address[..])].into_iter().chain(more.iter().copied()).collect();
        match decoded(&raw(20, &[10, 64, flags, 0, 4, 0, 0, 0], &attributes)).remove(0) {
            Message::Address(message) => message.is_permanent,
            other => panic!("{other:?}"),
        }
    };
    let permanent = AddressHeaderFlags::Permanent.bits();
    let flags = (AddressFlags::Permanent | AddressFlags::Noprefixroute).bits().to_ne_bytes();
    let managed = AddressFlags::Managetempaddr.bits().to_ne_bytes();
    assert!(is_permanent(permanent, &[]) && is_permanent(0, &[(8, &flags)]));
    // A lifetime, a temporary address, one that a router has advertised.
    assert!(!is_permanent(0, &[]) && !is_permanent(AddressHeaderFlags::Secondary.bits(), &[]));
    assert!(!is_permanent(permanent, &[(8, &managed)]) && !is_permanent(permanent, &[(11, &[2])]));
    assert!(is_permanent(permanent, &[(11, &[3])]), "the link-local address that the kernel makes");
}

#[test]
fn the_end_of_a_dump_and_errors() {
    assert_eq!(decoded(&raw(NLMSG_DONE, &0_i32.to_ne_bytes(), &[])), [Message::Done]);
    assert_eq!(decoded(&raw(NLMSG_DONE, &(-16_i32).to_ne_bytes(), &[])), [Message::Error(16)]);
    assert_eq!(decoded(&raw(NLMSG_ERROR, &(-95_i32).to_ne_bytes(), &[])), [Message::Error(95)]);
    let cut = raw(NLMSG_DONE, &[0; 4], &[]);
    let wanted = NetlinkError::Framing { len: 20, room: 19 };
    assert_eq!(messages(&cut[..19]).collect::<Vec<_>>(), [Err(wanted)]);
    assert_eq!(decoded(&raw(200, &[], &[])), [Message::Ignored]);
}
