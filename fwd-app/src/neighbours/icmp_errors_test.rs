//! ICMP errors: which packets get one, by the tables of the RFCs, and the contents.

use super::frame::Envelope;
use super::icmp_errors::{Cause, ErrorMessage, NoError};
use super::test_packets::{OURS, THEIRS, TO_US, assert_well_formed, echo_v4, echo_v6, edited_v4, v4, v6};
use crate::ports::InterfaceId;
use crate::ports::PortTable;
use crate::ports::address::group_mac;
use crate::ports::address_owner::tests::interfaces;
use fib::MacAddr;
use smoltcp::wire::IpProtocol::{self, Icmp, Icmpv6, Udp};

const FROM_4: &str = "192.0.2.9";
const TO_4: &str = "10.0.0.1";
const FROM_6: &str = "2001:db8::9";
const TO_6: &str = "2a00::1";
const UDP: [u8; 8] = [0x12, 0x34, 0, 53, 0, 8, 0, 0];
const TOO_BIG: Cause = Cause::TooBig { mtu_bytes: 1400 };

fn error(frame: &[u8], cause: Cause) -> Result<Vec<u8>, NoError> {
    let ports = interfaces();
    let error = ErrorMessage::about(&ports, InterfaceId(0), frame, frame.len(), cause)?.frame();
    assert_well_formed(&error);
    Ok(error)
}

fn udp_v4(from: &str, to: &str) -> Vec<u8> {
    v4(TO_US, from, to, Udp, &UDP)
}

fn udp_v6(from: &str, to: &str) -> Vec<u8> {
    v6(TO_US, from, to, Udp, &UDP)
}

fn icmp_v4(kind: u8) -> Vec<u8> {
    v4(TO_US, FROM_4, TO_4, Icmp, &[kind, 0, 0, 0, 0, 0, 0, 0])
}

fn icmp_v6(kind: u8) -> Vec<u8> {
    v6(TO_US, FROM_6, TO_6, Icmpv6, &[kind, 0, 0, 0, 0, 0, 0, 0])
}

fn fragment_v4(flags_and_offset: u16) -> Vec<u8> {
    edited_v4(udp_v4(FROM_4, TO_4), |frame| frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes()))
}

fn fragment_v6(offset: u16) -> Vec<u8> {
    let [high, low] = (offset << 3 | 1).to_be_bytes();
    v6(TO_US, FROM_6, TO_6, IpProtocol::Ipv6Frag, &[&[17, 0, high, low, 0, 0, 0, 1], &UDP[..]].concat())
}

fn at_layer_2(destination: MacAddr, source: MacAddr) -> [Vec<u8>; 2] {
    let envelope = Envelope { destination, source, ..TO_US };
    [v4(envelope, FROM_4, TO_4, Udp, &UDP), v6(envelope, FROM_6, TO_6, Udp, &UDP)]
}

/// RFC 1812 4.3.2.7: "An ICMP error message MUST NOT be sent as the result of receiving: ..".
#[test]
fn when_ipv4_packets_get_no_error() {
    let [to_group, _] = at_layer_2(MacAddr([1, 0, 0x5e, 0, 0, 5]), THEIRS);
    let [to_all, _] = at_layer_2(MacAddr::BROADCAST, THEIRS);
    let [from_group, _] = at_layer_2(OURS, MacAddr([1, 0, 0x5e, 0, 0, 5]));
    let cut = |bytes: usize| icmp_v4(8)[..bytes].to_vec();
    let table: Vec<(&str, Vec<u8>, Option<NoError>)> = vec![
        // "An ICMP error message"
        ("destination unreachable", icmp_v4(3), Some(NoError::IsError)),
        ("source quench", icmp_v4(4), Some(NoError::IsError)),
        ("redirect", icmp_v4(5), Some(NoError::IsError)),
        ("time exceeded", icmp_v4(11), Some(NoError::IsError)),
        ("parameter problem", icmp_v4(12), Some(NoError::IsError)),
        ("an unknown type", icmp_v4(99), Some(NoError::IsError)),
        ("a type that is not here", v4(TO_US, FROM_4, TO_4, Icmp, &[]), Some(NoError::IsError)),
        ("echo request", icmp_v4(8), None),
        ("echo reply", icmp_v4(0), None),
        ("timestamp", icmp_v4(13), None),
        // "A packet which fails the IP header validation tests described in Section [5.2.2]"
        ("half a header", cut(30), Some(NoError::Malformed)),
        ("no header", cut(14), Some(NoError::Malformed)),
        (
            "a wrong checksum",
            {
                let mut frame = icmp_v4(8);
                frame[24] ^= 1;
                frame
            },
            Some(NoError::Malformed),
        ),
        ("version 5", edited_v4(icmp_v4(8), |frame| frame[14] = 0x55), Some(NoError::Malformed)),
        (
            "a total length beyond the frame",
            edited_v4(icmp_v4(8), |frame| frame[17] = 200),
            Some(NoError::Malformed),
        ),
        // "A packet destined to an IP broadcast or IP multicast address"
        ("limited broadcast", udp_v4(FROM_4, "255.255.255.255"), Some(NoError::Destination)),
        ("directed broadcast", udp_v4(FROM_4, "192.0.2.255"), Some(NoError::Destination)),
        ("directed broadcast of another link", udp_v4(FROM_4, "203.0.113.255"), Some(NoError::Destination)),
        ("multicast", udp_v4(FROM_4, "239.1.2.3"), Some(NoError::Destination)),
        ("an unknown broadcast", udp_v4(FROM_4, "203.0.114.255"), None),
        // "A packet sent as a Link Layer broadcast or multicast"
        ("link-layer multicast", to_group, Some(NoError::LinkDestination)),
        ("link-layer broadcast", to_all, Some(NoError::LinkDestination)),
        ("from a link-layer multicast", from_group, Some(NoError::LinkDestination)),
        // "A packet whose source address has a network number of zero or is an invalid source address (as defined in Section [5.3.7])"
        ("source 0.0.0.0", udp_v4("0.0.0.0", TO_4), Some(NoError::Source)),
        ("source 0.1.2.3", udp_v4("0.1.2.3", TO_4), Some(NoError::Source)),
        ("source loopback", udp_v4("127.0.0.1", TO_4), Some(NoError::Source)),
        ("source limited broadcast", udp_v4("255.255.255.255", TO_4), Some(NoError::Source)),
        ("source directed broadcast", udp_v4("192.0.2.255", TO_4), Some(NoError::Source)),
        ("source multicast", udp_v4("224.0.0.9", TO_4), Some(NoError::Source)),
        ("source class E", udp_v4("240.0.0.1", TO_4), Some(NoError::Source)),
        ("source ourselves", udp_v4("192.0.2.1", TO_4), Some(NoError::Source)),
        ("source far away", udp_v4("8.8.8.8", TO_4), None),
        // "Any fragment of a datagram other then the first fragment"
        ("a later fragment", fragment_v4(0x2001), Some(NoError::LaterFragment)),
        ("the last fragment", fragment_v4(0x0100), Some(NoError::LaterFragment)),
        ("the first fragment", fragment_v4(0x2000), None),
    ];
    for (what, frame, wanted) in table {
        for cause in [Cause::TimeExceeded, Cause::NoRoute, Cause::AddressUnreachable, Cause::Prohibited] {
            assert_eq!(error(&frame, cause).err(), wanted, "{what}: {cause:?}");
        }
    }
}

/// RFC 4443 2.4: "(e) An ICMPv6 error message MUST NOT be originated as a result of receiving the following: ..".
#[test]
fn when_ipv6_packets_get_no_error() {
    let group = "ff0e::1";
    let [_, to_group] = at_layer_2(group_mac(group.parse().unwrap()), THEIRS);
    let [_, to_all] = at_layer_2(MacAddr::BROADCAST, THEIRS);
    let [_, from_group] = at_layer_2(OURS, MacAddr([0x33, 0x33, 0, 0, 0, 1]));
    let hidden =
        |kind| v6(TO_US, FROM_6, TO_6, IpProtocol::Ipv6Opts, &[58, 0, 1, 4, 0, 0, 0, 0, kind, 0, 0, 0]);
    // Behind 24 bytes of an authentication header.
    let authentic = |kind| {
        let payload = [&[58, 4][..], &[0; 22], &[kind, 0, 0, 0]].concat();
        v6(TO_US, FROM_6, TO_6, IpProtocol::IpSecAh, &payload)
    };
    let (expired, is_error) = (Cause::TimeExceeded, Some(NoError::IsError));
    let table: Vec<(&str, Vec<u8>, Cause, Option<NoError>)> = vec![
        // "(e.1) An ICMPv6 error message."
        ("unreachable", icmp_v6(1), expired, is_error),
        ("packet too big", icmp_v6(2), TOO_BIG, is_error),
        ("time exceeded", icmp_v6(3), expired, is_error),
        ("parameter problem", icmp_v6(4), expired, is_error),
        ("an unknown error", icmp_v6(127), expired, is_error),
        ("an error behind options", hidden(1), expired, is_error),
        ("a request behind options", hidden(128), expired, None),
        ("an authentic error", authentic(1), expired, is_error),
        ("an authentic request", authentic(128), expired, None),
        ("a type that is not here", v6(TO_US, FROM_6, TO_6, Icmpv6, &[]), expired, is_error),
        ("echo request", icmp_v6(128), expired, None),
        ("an unknown message", icmp_v6(255), expired, None),
        // "(e.2) An ICMPv6 redirect message"
        ("redirect", icmp_v6(137), expired, is_error),
        // "(e.3) A packet destined to an IPv6 multicast address", with an exception.
        ("multicast", udp_v6(FROM_6, group), expired, Some(NoError::Destination)),
        ("multicast, no route", udp_v6(FROM_6, group), Cause::NoRoute, Some(NoError::Destination)),
        ("multicast, too big", udp_v6(FROM_6, group), TOO_BIG, None),
        // "(e.4) A packet sent as a link-layer multicast", "(e.5) A packet sent as a link-layer broadcast", with the same exception.
        ("link-layer multicast", to_group.clone(), expired, Some(NoError::LinkDestination)),
        ("link-layer multicast, too big", to_group, TOO_BIG, None),
        ("link-layer broadcast", to_all.clone(), expired, Some(NoError::LinkDestination)),
        ("link-layer broadcast, too big", to_all, TOO_BIG, None),
        ("from a link-layer multicast", from_group, TOO_BIG, Some(NoError::LinkDestination)),
        // "(e.6) A packet whose source address does not uniquely identify a single node"
        ("source ::", udp_v6("::", TO_6), expired, Some(NoError::Source)),
        ("source multicast", udp_v6("ff02::1", TO_6), TOO_BIG, Some(NoError::Source)),
        ("source loopback", udp_v6("::1", TO_6), expired, Some(NoError::Source)),
        ("source anycast", udp_v6("2001:db8:1::", TO_6), expired, Some(NoError::Source)),
        ("source ourselves", udp_v6("2001:db8::1", TO_6), expired, Some(NoError::Source)),
        ("source link-local", udp_v6("fe80::9", TO_6), expired, None),
        // Not in the RFC: a later fragment may belong to an ICMPv6 error.
        ("a later fragment", fragment_v6(1), expired, Some(NoError::LaterFragment)),
        ("the first fragment", fragment_v6(0), expired, None),
        ("half a header", udp_v6(FROM_6, TO_6)[..50].to_vec(), expired, Some(NoError::Malformed)),
        (
            "longer than the frame",
            {
                let mut frame = udp_v6(FROM_6, TO_6);
                frame[19] = 9;
                frame
            },
            expired,
            Some(NoError::Malformed),
        ),
        ("destination ::1", udp_v6(FROM_6, "::1"), expired, Some(NoError::Destination)),
    ];
    for (what, frame, cause, wanted) in table {
        assert_eq!(error(&frame, cause).err(), wanted, "{what}");
    }
}

#[test]
fn types_codes_and_second_words() {
    let (v4, v6) = (udp_v4(FROM_4, TO_4), udp_v6(FROM_6, TO_6));
    for (cause, in_v4, in_v6) in [
        (Cause::TimeExceeded, (11, 0, 0), (3, 0, 0)),
        (Cause::NoRoute, (3, 0, 0), (1, 0, 0)),
        (Cause::Unreachable, (3, 1, 0), (1, 0, 0)),
        (Cause::AddressUnreachable, (3, 1, 0), (1, 3, 0)),
        (Cause::Prohibited, (3, 13, 0), (1, 1, 0)),
        (TOO_BIG, (3, 4, 1400), (2, 0, 1400)),
    ] {
        let word = |message: &[u8]| {
            (message[0], message[1], u32::from_be_bytes([message[4], message[5], message[6], message[7]]))
        };
        assert_eq!(word(&error(&v4, cause).unwrap()[34..]), in_v4, "{cause:?}");
        assert_eq!(word(&error(&v6, cause).unwrap()[54..]), in_v6, "{cause:?}");
    }
    let may_fragment = edited_v4(v4, |frame| frame[20] &= !0x40);
    assert_eq!(error(&may_fragment, TOO_BIG), Err(NoError::NoSuchError));
}

#[test]
fn the_headers_of_an_error() {
    let about = udp_v4(FROM_4, TO_4);
    let answer = error(&about, Cause::TimeExceeded).unwrap();
    #[rustfmt::skip]
    let wanted = [
        2, 0, 0, 0, 0, 9, 2, 0xf0, 0, 0, 0, 0, 8, 0,
        0x45, 0xc0, 0, 56, 0, 0, 0x40, 0, 64, 1, 0xb5, 0xfa, 192, 0, 2, 1, 192, 0, 2, 9,
        11, 0,
    ];
    assert_eq!(answer[..36], wanted);
    assert_eq!(answer[42..], about[14..]);
    let about = udp_v6(FROM_6, TO_6);
    let answer = error(&about, Cause::TimeExceeded).unwrap();
    assert_eq!((&answer[..12], &answer[14..22]), (&wanted[..12], &[0x6c, 0, 0, 0, 0, 56, 58, 64][..]));
    let addresses = |of: &[u8]| {
        ["2001:db8::1", FROM_6].map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets()).concat()
            == of
    };
    assert!(addresses(&answer[22..54]));
    assert_eq!(answer[62..], about[14..]);
    // A link-local source gets its answer from a link-local address.
    let answer = error(&udp_v6("fe80::9", TO_6), Cause::NoRoute).unwrap();
    assert_eq!(answer[22..24], [0xfe, 0x80]);
}

#[test]
fn as_much_of_the_packet_as_fits() {
    for (bytes, quoted_v4, quoted_v6) in
        [(0, 28, 48), (100, 128, 148), (520, 548, 568), (521, 548, 569), (1184, 548, 1232), (1460, 548, 1232)]
    {
        let payload = [&UDP[..], &vec![7; bytes]].concat();
        let padded = |frame: Vec<u8>| [frame, vec![0xee; 20]].concat();
        let about = padded(v4(TO_US, FROM_4, TO_4, Udp, &payload));
        let answer = error(&about, Cause::TimeExceeded).unwrap();
        assert_eq!((answer.len() - 42, &answer[42..]), (quoted_v4, &about[14..14 + quoted_v4]));
        let about = padded(v6(TO_US, FROM_6, TO_6, Udp, &payload));
        let answer = error(&about, Cause::TimeExceeded).unwrap();
        assert_eq!((answer.len() - 62, &answer[62..]), (quoted_v6, &about[14..14 + quoted_v6]));
    }
    let about = v4(TO_US, FROM_4, TO_4, Udp, &[7; 1000]);
    let ports = interfaces();
    let error = ErrorMessage::about(&ports, InterfaceId(0), &about[..128], about.len(), Cause::NoRoute);
    let answer = error.unwrap().frame();
    assert_well_formed(&answer);
    assert_eq!(answer[42..], about[14..128]);
}

#[test]
fn tags_of_the_packet_are_those_of_the_error() {
    for tags in [&[0x81, 0, 0x20, 7][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 7]] {
        for about in [echo_v4(FROM_4, TO_4, &[]), echo_v6(FROM_6, TO_6, &[])] {
            let untagged = error(&about, Cause::NoRoute).unwrap();
            let tagged = [&about[..12], tags, &about[12..]].concat();
            let wanted = [&untagged[..12], tags, &untagged[12..]].concat();
            assert_eq!(error(&tagged, Cause::NoRoute), Ok(wanted));
        }
    }
}

#[test]
fn no_address_and_no_interface() {
    let mut ports = PortTable::default();
    let about = udp_v4(FROM_4, TO_4);
    let error = |ports: &PortTable, about: &[u8]| {
        ErrorMessage::about(ports, InterfaceId(0), about, about.len(), Cause::NoRoute).err()
    };
    assert_eq!(error(&ports, &about), Some(NoError::NoAddress));
    ports.ports.push(crate::ports::record::tests::interface(0, &[]));
    assert_eq!(error(&ports, &about), Some(NoError::NoAddress));
    assert_eq!(error(&ports, &udp_v6(FROM_6, TO_6)), Some(NoError::NoAddress));
    assert_eq!(error(&ports, &udp_v6("fe80::9", TO_6)), None);
    let mut arp = about.clone();
    arp[13] = 6;
    assert_eq!(error(&ports, &arp), Some(NoError::Malformed));
}
