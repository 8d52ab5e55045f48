//! Frames received by a router: answers, frames for the kernel, learned neighbours, ignored frames.

use super::action::Action;
use super::entries::{Key, NeighbourState};
use super::frame::{Envelope, Layer2, Tags};
use super::icmp_errors::{Cause, NoError};
use super::ip::V6;
use super::limiter::{LimitRate, LimiterConfig};
use super::receive::Disposition::{self, Answered, ForKernel, Ignored, Neighbour};
use super::receive::KernelToo;
use super::test_packets::{OURS, THEIRS, TO_US, assert_well_formed, echo_v4, echo_v6, edited_v4, v4, v6};
use super::{ErrorAnswer, Router, RouterConfig, arp, ndp};
use crate::datapath::DropReason;
use crate::ports::InterfaceId;
use crate::ports::address::{ALL_NODES, group_mac, solicited_node};
use crate::ports::record::tests::{interface, port, station};
use fib::MacAddr;
use smoltcp::wire::IpProtocol::{self, Icmp, Icmpv6, Igmp, Tcp, Udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const ON: InterfaceId = InterfaceId(0);
const NOW: Duration = Duration::from_secs(1000);

/// The router with the interfaces of [`crate::ports::address_owner::tests::interfaces`].
fn router() -> Router<u32> {
    let mut router = Router::new(&RouterConfig::default());
    let mut out = Vec::new();
    router.set_ports(NOW, Arc::new(crate::ports::address_owner::tests::interfaces()), &mut out);
    for action in out {
        let Action::Send { frame, .. } = action else { panic!("{action:?}") };
        assert_well_formed(&frame);
    }
    router
}

fn receive(router: &mut Router<u32>, frame: &[u8]) -> (Disposition, Vec<Action<u32>>) {
    let mut out = Vec::new();
    let disposition = router.receive(NOW, ON, frame, &mut out);
    if let Answered(frame) = &disposition {
        assert_well_formed(frame);
    }
    (disposition, out)
}

fn alone(frame: &[u8]) -> Disposition {
    let (disposition, out) = receive(&mut router(), frame);
    assert_eq!(out, []);
    disposition
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn arp_message(is_request: bool, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let destination = if is_request { MacAddr::BROADCAST } else { OURS };
    Envelope { destination, ..TO_US }.frame(super::frame::ARP, 46, |bytes| {
        bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, if is_request { 1 } else { 2 }]);
        bytes[8..14].copy_from_slice(&THEIRS.0);
        bytes[14..18].copy_from_slice(&sender);
        bytes[24..28].copy_from_slice(&target);
    })
}

fn other_station() -> super::PortRecord {
    station(THEIRS, &["192.0.2.9/24", "2001:db8::9/64"])
}

const NINE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const ONE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const NINE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);

#[test]
fn a_request_for_our_address_is_answered_and_the_sender_is_known() {
    let mut router = router();
    let (disposition, out) = receive(&mut router, &arp_message(true, [192, 0, 2, 9], [192, 0, 2, 1]));
    let Answered(frame) = disposition else { panic!("{disposition:?}") };
    let reply = arp::ArpMessage::parse(&Layer2::parse(&frame).unwrap()).unwrap();
    assert_eq!((reply.is_request, reply.sender_mac, reply.target), (false, OURS, NINE));
    assert_eq!(frame[..6], THEIRS.0);
    let address = NINE.into();
    assert_eq!(out, [Action::Resolved { key: Key::untagged(ON, address), mac: THEIRS }]);
    router.resolve(NOW, Key::untagged(ON, address), 5, Tags::NONE, &mut Vec::new());
    assert_eq!(router.neighbour(Key::untagged(ON, address)).unwrap().state, NeighbourState::Delay);
}

#[test]
fn requests_of_which_nothing_is_learned() {
    let ours = [192, 0, 2, 1];
    for (what, sender, target, is_answered) in [
        ("a probe of our address", [0; 4], ours, true),
        ("from another network", [10, 0, 0, 9], ours, true),
        ("for another host", [192, 0, 2, 9], [192, 0, 2, 77], false),
        ("for an address of another interface", [192, 0, 2, 9], [203, 0, 113, 1], false),
        ("from a broadcast address", [255; 4], ours, false),
    ] {
        let disposition = alone(&arp_message(true, sender, target));
        assert_eq!(matches!(disposition, Answered(_)), is_answered, "{what}");
        assert!(is_answered || disposition == Ignored(DropReason::ArpIgnored), "{what}");
    }
    let reply = arp_message(false, [192, 0, 2, 9], [192, 0, 2, 1]);
    let if_asked = |address: &str| KernelToo::IfAsked(Key::untagged(ON, ip(address)));
    assert_eq!(alone(&reply), Neighbour { is_of_use: true, kernel_too: if_asked("192.0.2.9") });
    let mut to_all = reply.clone();
    to_all[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(alone(&to_all), alone(&reply), "hosts without a configured address broadcast it");
    let mut alone_to_us = arp_message(true, [192, 0, 2, 9], [192, 0, 2, 9]);
    alone_to_us[..6].copy_from_slice(&OURS.0);
    assert_eq!(alone(&alone_to_us), Neighbour { is_of_use: false, kernel_too: if_asked("192.0.2.9") });
    let announcement = arp_message(true, [192, 0, 2, 9], [192, 0, 2, 9]);
    assert_eq!(
        alone(&announcement),
        Neighbour { is_of_use: false, kernel_too: KernelToo::Always },
        "perhaps the kernel knows it"
    );
    let reply_to_others = arp_message(false, [192, 0, 2, 9], [192, 0, 2, 77]);
    assert_eq!(alone(&reply_to_others), Ignored(DropReason::ArpIgnored));
}

#[test]
fn two_routers_resolve_each_other() {
    let tagged = Layer2::parse(&[&[2_u8; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat()).unwrap().tags;
    for (address, tags) in
        [(ip("192.0.2.9"), Tags::NONE), (ip("2001:db8::9"), Tags::NONE), (ip("192.0.2.9"), tagged)]
    {
        let (mut one, mut other) = (router(), Router::<u32>::new(&RouterConfig::default()));
        other.set_port(NOW, other_station(), &mut Vec::new());
        let (mut out, mut theirs) = (Vec::new(), Vec::new());
        let key = Key::new(ON, address, &tags);
        one.resolve(NOW, key, 1, tags, &mut out);
        let [Action::Send { frame, .. }] = &out[..] else { panic!("{out:?}") };
        assert_well_formed(frame);
        let answer = other.receive(NOW, InterfaceId(7), frame, &mut theirs);
        assert!(matches!(theirs[..], [Action::Resolved { mac: OURS, .. }]), "{theirs:?}");
        let Answered(frame) = answer else { panic!("{answer:?}") };
        let (disposition, out) = receive(&mut one, &frame);
        assert_eq!(disposition, Neighbour { is_of_use: true, kernel_too: KernelToo::IfAsked(key) });
        let resolved = Action::Resolved { key, mac: THEIRS };
        assert_eq!(out, [resolved, Action::Release { key, mac: THEIRS, packets: vec![1] }]);
        assert_eq!(one.neighbour(key).unwrap().state, NeighbourState::Reachable);
        let mut out = Vec::new();
        while out.is_empty() {
            let due = one.next_due().unwrap();
            one.tick(due, &mut out);
        }
        let [Action::Send { frame, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(
            (frame[..6].to_vec(), frame[12..14] == [0x81, 0]),
            (THEIRS.0.to_vec(), tags != Tags::NONE)
        );
        assert!(matches!(other.receive(NOW, InterfaceId(7), frame, &mut theirs), Answered(_)));
    }
}

#[test]
fn a_solicitation_for_our_address_is_answered() {
    let other = other_station();
    let mut router = router();
    let (disposition, out) =
        receive(&mut router, &ndp::solicitation(&other, NINE_6, ONE_6, None, Tags::NONE));
    let Answered(frame) = disposition else { panic!("{disposition:?}") };
    let packet = V6::parse(&frame[14..], frame.len() - 14).unwrap();
    let wanted = ndp::NdpMessage::Advertisement {
        target: ONE_6,
        mac: Some(OURS),
        is_solicited: true,
        overrides: true,
    };
    assert_eq!((ndp::NdpMessage::parse(&packet), packet.destination), (Some(wanted), NINE_6));
    assert_eq!(out, [Action::Resolved { key: Key::untagged(ON, NINE_6.into()), mac: THEIRS }]);
    // A node off the link is answered, but does not become a neighbour.
    let far = "2a00::1".parse().unwrap();
    assert!(matches!(alone(&ndp::solicitation(&other, far, ONE_6, None, Tags::NONE)), Answered(_)));
    // Duplicate address detection is answered too.
    assert!(matches!(alone(&ndp::detection(&other, ONE_6, Tags::NONE)), Answered(_)));
    // Solicitations for other targets, first to another group, then to one of our groups.
    let for_others =
        ndp::solicitation(&other, NINE_6, "2001:db8::77:7777".parse().unwrap(), None, Tags::NONE);
    assert_eq!(alone(&for_others), Ignored(DropReason::NotForUs));
    let same_group = ndp::solicitation(&other, NINE_6, "2001:db8:7::1".parse().unwrap(), None, Tags::NONE);
    assert_eq!(alone(&same_group), Ignored(DropReason::ArpIgnored));
    let announced = alone(&ndp::announcement(&other, NINE_6, Tags::NONE));
    assert_eq!(
        announced,
        Neighbour { is_of_use: false, kernel_too: KernelToo::Always },
        "perhaps the kernel knows it"
    );
}

/// RFC 4291 2.6.1, RFC 4861 7.2.7, RFC 4443 4.2.
#[test]
fn the_anycast_address_of_the_routers_is_answered_from_one_of_ours() {
    let (other, mut router) = (other_station(), router());
    let all: Ipv6Addr = "2001:db8::".parse().unwrap();
    let Answered(frame) = receive(&mut router, &ndp::solicitation(&other, NINE_6, all, None, Tags::NONE)).0
    else {
        panic!("no answer")
    };
    let packet = V6::parse(&frame[14..], frame.len() - 14).unwrap();
    let wanted =
        ndp::NdpMessage::Advertisement { target: all, mac: Some(OURS), is_solicited: true, overrides: false };
    assert_eq!((ndp::NdpMessage::parse(&packet), packet.destination), (Some(wanted), NINE_6));
    assert!(packet.source.is_unicast_link_local(), "{}", packet.source);
    assert_eq!(alone(&ndp::detection(&other, all, Tags::NONE)), Ignored(DropReason::ArpIgnored));
    for (to, from) in
        [("2001:db8::", "2001:db8::1"), ("2001:db8:1::", "2001:db8::1"), ("fe80::", "fe80::f0:ff:fe00:0")]
    {
        let asking = if to == "fe80::" { "fe80::9" } else { "2001:db8::9" };
        let Answered(frame) = alone(&echo_v6(asking, to, &[7])) else { panic!("{to}") };
        let reply = V6::parse(&frame[14..], frame.len() - 14).unwrap();
        assert_eq!(
            (reply.source.to_string(), reply.destination.to_string()),
            (from.to_owned(), asking.to_owned())
        );
    }
}

#[test]
fn our_addresses_are_defended_at_intervals() {
    let thief = station(THEIRS, &[]);
    let [one, one_6] = [ip("192.0.2.1"), IpAddr::V6(ONE_6)];
    for (address, claim) in [
        (one, arp_message(true, [192, 0, 2, 1], [192, 0, 2, 1])),
        (one, arp_message(true, [192, 0, 2, 1], [192, 0, 2, 77])),
        (one, arp_message(false, [192, 0, 2, 1], [192, 0, 2, 1])),
        (one_6, ndp::announcement(&thief, ONE_6, Tags::NONE)),
        (one_6, ndp::solicitation(&thief, ONE_6, ONE_6, Some(OURS), Tags::NONE)),
    ] {
        let mut router = router();
        for (seconds, is_defended) in [(0, true), (1, false), (9, false), (10, true), (19, false), (20, true)]
        {
            let mut out = Vec::new();
            let disposition = router.receive(NOW + Duration::from_secs(seconds), ON, &claim, &mut out);
            if is_defended {
                assert_eq!(out, [Action::Conflict { key: Key::untagged(ON, address), mac: THEIRS }]);
                let Answered(frame) = disposition else { panic!("{disposition:?}") };
                assert_well_formed(&frame);
                assert_eq!((frame[0] & 1, &frame[6..12]), (1, &OURS.0[..]));
            } else {
                assert_eq!((disposition, out), (Ignored(DropReason::ArpIgnored), vec![]));
            }
        }
        assert_eq!(router.neighbours().count(), 0);
    }
}

#[test]
fn echo_requests_for_our_addresses_are_answered() {
    for (to, bytes) in [("192.0.2.1", 0), ("192.0.2.1", 56), ("203.0.113.1", 57), ("192.0.2.1", 1472)] {
        let request = echo_v4("8.8.8.8", to, &vec![7; bytes]);
        let Answered(reply) = alone(&request) else { panic!("{to}") };
        assert_eq!((&reply[..6], &reply[6..12]), (&THEIRS.0[..], &OURS.0[..]));
        assert_eq!((&reply[26..30], &reply[30..34]), (&request[30..34], &request[26..30]));
        assert_eq!((reply[34], reply[35], &reply[38..]), (0, 0, &request[38..]));
    }
    for (to, bytes) in [("2001:db8::1", 0), ("2001:db8:1::1", 57), ("fe80::f0:ff:fe00:0", 1452)] {
        let request = echo_v6("2a00::1", to, &vec![7; bytes]);
        let Answered(reply) = alone(&request) else { panic!("{to}") };
        assert_eq!((&reply[22..38], &reply[38..54]), (&request[38..54], &request[22..38]));
        assert_eq!((reply[54], reply[55], &reply[58..]), (129, 0, &request[58..]));
    }
    let marked = edited_v4(echo_v4("8.8.8.8", "192.0.2.1", &[]), |frame| {
        frame[15] = 0xbb;
        frame[18..20].copy_from_slice(&[0xab, 0xcd]);
    });
    let tagged = [&marked[..12], &[0x81, 0, 0x20, 7], &marked[12..]].concat();
    let Answered(reply) = alone(&tagged) else { panic!() };
    assert_eq!(
        (&reply[12..16], reply[19], &reply[22..24]),
        (&[0x81, 0, 0x20, 7][..], 0xb8, &[0xab, 0xcd][..])
    );
}

#[test]
fn echo_requests_that_are_not_answered_here() {
    let request = echo_v4("8.8.8.8", "192.0.2.1", &[1, 2, 3]);
    let at_layer_2 = |destination| {
        let mut frame = request.clone();
        frame[..6].copy_from_slice(&MacAddr(destination).0);
        frame
    };
    let with_options = {
        let mut frame = [&request[..34], &[1, 1, 1, 0], &request[34..]].concat();
        frame[17] += 4;
        edited_v4(frame, |frame| frame[14] = 0x46)
    };
    let wrong_sum_v4 = {
        let mut frame = request.clone();
        frame[43] ^= 1;
        frame
    };
    let wrong_sum_v6 = {
        let mut frame = echo_v6("2a00::1", "2001:db8::1", &[1, 2, 3]);
        frame[63] ^= 1;
        frame
    };
    let behind_options = [&[58, 0, 1, 4, 0, 0, 0, 0], &echo_v6("2a00::1", "2001:db8::1", &[])[54..]].concat();
    for (what, frame, wanted) in [
        ("the first fragment", edited_v4(request.clone(), |frame| frame[20] = 0x20), ForKernel),
        ("a later fragment", edited_v4(request.clone(), |frame| frame[21] = 1), ForKernel),
        ("options", with_options, ForKernel),
        ("longer than the MTU", echo_v4("8.8.8.8", "192.0.2.1", &[7; 1473]), ForKernel),
        ("longer than the MTU", echo_v6("2a00::1", "2001:db8::1", &[7; 1453]), ForKernel),
        ("broadcast", echo_v4("8.8.8.8", "192.0.2.255", &[]), ForKernel),
        ("all hosts", echo_v4("8.8.8.8", "224.0.0.1", &[]), ForKernel),
        ("all nodes", echo_v6("2a00::1", "ff02::1", &[]), ForKernel),
        ("link-layer broadcast", at_layer_2(MacAddr::BROADCAST.0), ForKernel),
        ("another host", echo_v4("8.8.8.8", "192.0.2.77", &[]), Ignored(DropReason::NotForUs)),
        ("another link", echo_v6("2a00::1", "fe80::f0:ff:fe00:1", &[]), Ignored(DropReason::NotForUs)),
        ("a wrong checksum", wrong_sum_v4, Ignored(DropReason::BadChecksum)),
        ("a wrong checksum", wrong_sum_v6, Ignored(DropReason::BadChecksum)),
        ("a reply", v4(TO_US, "8.8.8.8", "192.0.2.1", Icmp, &[0; 8]), ForKernel),
        ("a reply", v6(TO_US, "2a00::1", "2001:db8::1", Icmpv6, &[129, 0, 0, 0, 0, 0, 0, 0]), ForKernel),
        (
            "behind options",
            v6(TO_US, "2a00::1", "2001:db8::1", IpProtocol::Ipv6Opts, &behind_options),
            ForKernel,
        ),
    ] {
        assert_eq!(alone(&frame), wanted, "{what}");
    }
}

fn to(destination: [u8; 6]) -> Envelope {
    Envelope { destination: MacAddr(destination), ..TO_US }
}

fn other(ethertype: u16) -> Vec<u8> {
    TO_US.frame(ethertype, 46, |_| {})
}

#[test]
fn what_is_for_the_kernel() {
    let to_group = |last| to([0x33, 0x33, 0, 0, 0, last]);
    let icmp = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
    let (all, all_routers, ospf) = (to([0xff; 6]), to([1, 0, 0x5e, 0, 0, 5]), IpProtocol::Unknown(89));
    for (what, frame) in [
        ("BGP", v4(TO_US, "8.8.8.8", "192.0.2.1", Tcp, &[0; 20])),
        ("BGP", v6(TO_US, "2a00::1", "2001:db8:1::1", Tcp, &[0; 20])),
        ("OSPF", v4(all_routers, "192.0.2.9", "224.0.0.5", ospf, &[0; 24])),
        ("OSPFv3", v6(to_group(5), "fe80::9", "ff02::5", ospf, &[0; 24])),
        ("IGMP", v4(all_routers, "192.0.2.9", "224.0.0.22", Igmp, &[0; 8])),
        ("MLDv2 from ::", v6(to_group(0x16), "::", "ff02::16", Icmpv6, &icmp(143))),
        ("a router solicitation", v6(to_group(2), "fe80::9", "ff02::2", Icmpv6, &icmp(133))),
        ("DHCP", v4(all, "0.0.0.0", "255.255.255.255", Udp, &[0; 8])),
        ("LLDP", to([1, 0x80, 0xc2, 0, 0, 0xe]).frame(0x88cc, 46, |_| {})),
        ("another ethertype", other(0x8847)),
    ] {
        assert_eq!(alone(&frame), ForKernel, "{what}");
    }
}

#[test]
fn what_is_ignored() {
    use DropReason::{ArpIgnored, BadChecksum, Malformed, Martian, Multicast, NotForUs, NotIp};
    let udp_v4 = |envelope, source, destination| v4(envelope, source, destination, Udp, &[0; 8]);
    let udp_v6 = |source, destination| v6(TO_US, source, destination, Udp, &[0; 8]);
    let from = |source: [u8; 6]| Envelope { source: MacAddr(source), ..TO_US };
    let (far, ours) = ("8.8.8.8", "192.0.2.1");
    let mut wrong_sum = echo_v4(far, ours, &[]);
    wrong_sum[24] ^= 1;
    let three_tags = [&OURS.0[..], &THEIRS.0, &[0x81, 0, 0, 1].repeat(3), &[8, 0]].concat();
    for (what, frame, reason) in [
        ("a wrong solicitation", v6(TO_US, "fe80::9", "2001:db8::1", Icmpv6, &[135; 24]), ArpIgnored),
        ("another group", udp_v4(TO_US, "192.0.2.9", "239.1.1.1"), Multicast),
        ("another group", udp_v6("fe80::9", "ff05::2"), Multicast),
        ("another group's MAC", udp_v4(to([1, 0, 0x5e, 1, 1, 1]), "192.0.2.9", "239.1.1.1"), NotForUs),
        ("another host", udp_v4(TO_US, "192.0.2.9", "10.0.0.1"), NotForUs),
        ("another station", udp_v4(to([2, 1, 1, 1, 1, 1]), far, ours), NotForUs),
        ("from 0.0.0.0 to us", udp_v4(TO_US, "0.0.0.0", ours), Martian),
        ("from ourselves", udp_v4(TO_US, "203.0.113.1", ours), Martian),
        ("from a broadcast address", udp_v4(TO_US, "192.0.2.255", ours), Martian),
        ("from a group", udp_v6("ff02::1", "2001:db8::1"), Martian),
        ("from :: to us", udp_v6("::", "2001:db8::1"), Martian),
        ("from our MAC", udp_v4(from(OURS.0), far, ours), Martian),
        ("from a group's MAC", udp_v4(from([1; 6]), far, ours), Martian),
        ("three tags", three_tags, NotIp),
        ("too short", OURS.0.to_vec(), Malformed),
        ("no IPv4", other(super::frame::IPV4), Malformed),
        ("no IPv6", other(super::frame::IPV6), Malformed),
        ("no ARP", other(super::frame::ARP), ArpIgnored),
        ("a wrong checksum", wrong_sum, BadChecksum),
    ] {
        assert_eq!(alone(&frame), Ignored(reason), "{what}");
    }
    let elsewhere = router().receive(NOW, InterfaceId(9), &echo_v4(far, ours, &[]), &mut Vec::new());
    assert_eq!(elsewhere, Ignored(NotForUs));
}

#[test]
fn icmp_has_a_rate() {
    let few = LimitRate { per_second: 1, burst: 3 };
    let limits = LimiterConfig { by_source: few, ..LimiterConfig::ERRORS };
    let config = RouterConfig { errors: limits, echoes: limits, ..RouterConfig::default() };
    let mut router = Router::<u32>::new(&config);
    router.set_port(NOW, interface(0, &["192.0.2.1/24", "2001:db8::1/64"]), &mut Vec::new());
    for request in [echo_v4("8.8.8.8", "192.0.2.1", &[]), echo_v6("2a00::1", "2001:db8::1", &[])] {
        let dispositions: Vec<_> = (0..5).map(|_| receive(&mut router, &request).0).collect();
        assert_eq!(dispositions.iter().filter(|disposition| matches!(disposition, Answered(_))).count(), 3);
        assert_eq!(dispositions[3..], [Disposition::Limited, Disposition::Limited]);
    }
    let about = v4(TO_US, "8.8.8.8", "10.0.0.1", Udp, &[0; 8]);
    let mut error = |about: &[u8]| router.icmp_error(NOW, ON, (about, about.len()), Cause::TimeExceeded);
    for _ in 0..3 {
        let ErrorAnswer::Send(frame) = error(&about) else { panic!() };
        assert_well_formed(&frame);
    }
    assert_eq!(error(&about), ErrorAnswer::Limited);
    assert_eq!(error(&about[..20]), ErrorAnswer::Not(NoError::Malformed));
}

#[test]
fn other_errors_use_up_no_path_mtu() {
    let mut router = router();
    let about = edited_v4(v4(TO_US, "8.8.8.8", "10.0.0.1", Udp, &[0; 8]), |frame| frame[20] |= 0x40);
    let mut answers = |cause, count| {
        let answers = (0..count).map(|_| router.icmp_error(NOW, ON, (&about, about.len()), cause));
        answers.filter(|answer| matches!(answer, ErrorAnswer::Send(_))).count()
    };
    let too_big = Cause::TooBig { mtu_bytes: 1400 };
    assert_eq!(answers(Cause::TimeExceeded, 1000), 20);
    assert_eq!(answers(too_big, 50), 50, "they have a limit of their own");
    assert_eq!(answers(too_big, 1000), 50);
}

/// Regression: the only request was untagged, and got no answer outside the VLAN.
#[test]
fn a_gateway_in_a_vlan_is_found_by_the_packets_of_the_vlan() {
    let tags = Layer2::parse(&[&[2_u8; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat()).unwrap().tags;
    let (mut router, mut out) = (router(), Vec::new());
    let plain = Key::untagged(ON, ip("192.0.2.9"));
    let tagged = Key::new(ON, plain.address, &tags);
    assert!(router.pin(NOW, plain, Tags::NONE, &mut out));
    out.clear();
    router.resolve(NOW, tagged, 1, tags, &mut out);
    let [Action::Send { frame, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(frame[12..16], [0x81, 0, 0, 7]);
    let mut other = Router::<u32>::new(&RouterConfig::default());
    other.set_port(NOW, other_station(), &mut Vec::new());
    let Answered(answer) = other.receive(NOW, InterfaceId(7), frame, &mut Vec::new()) else {
        panic!("{frame:?}")
    };
    let (_, out) = receive(&mut router, &answer);
    assert_eq!(out[1], Action::Release { key: tagged, mac: THEIRS, packets: vec![1] });
    assert_eq!(router.neighbour(plain).unwrap().mac, None);
}

#[test]
fn neighbours_are_forgotten_by_address_and_kept_while_answers_are_lost() {
    let (mut router, mut out) = (router(), Vec::new());
    receive(&mut router, &arp_message(true, [192, 0, 2, 9], [192, 0, 2, 1]));
    let cleared = |router: &mut Router<u32>, address| router.clear_neighbours(NOW, address, &mut Vec::new());
    assert_eq!(
        (cleared(&mut router, Some(ip("192.0.2.10"))), cleared(&mut router, Some(ip("192.0.2.9")))),
        (0, 1)
    );
    let key = Key::untagged(ON, ip("192.0.2.9"));
    assert!(router.pin(NOW, key, Tags::NONE, &mut out));
    receive(&mut router, &arp_message(false, [192, 0, 2, 9], [192, 0, 2, 1]));
    for second in 1..100 {
        let now = NOW + Duration::from_secs(second);
        router.answers_lost(now, ON);
        router.tick(now, &mut out);
    }
    assert!(router.neighbour(key).unwrap().mac.is_some());
}

#[test]
fn an_echo_reply_keeps_the_service_and_not_the_congestion_bits() {
    let mut request = echo_v6("2a00::1", "2001:db8::1", &[]);
    (request[14], request[15]) = (request[14] & 0xf0 | 0xb, request[15] & 0xf | 0xb0);
    let Answered(reply) = alone(&request) else { panic!("no answer") };
    assert_eq!(reply[14..18], [0x6b, 0x80, 0, 0]);
}

#[test]
fn an_interface_is_announced_and_forgotten() {
    let (mut router, mut out) = (Router::<u32>::new(&RouterConfig::default()), Vec::new());
    router.set_port(NOW, interface(0, &["192.0.2.1/24", "2001:db8::1/64"]), &mut out);
    let frames = out.drain(..).map(|action| match action {
        Action::Send { interface: ON, frame } => frame,
        other => panic!("{other:?}"),
    });
    let frames: Vec<_> = frames.collect();
    // One ARP announcement; per IPv6 address a duplicate address detection and an advertisement.
    let groups =
        [ONE_6, "fe80::f0:ff:fe00:0".parse().unwrap()].map(|address| group_mac(solicited_node(address)));
    let all = group_mac(ALL_NODES);
    let to: Vec<_> = frames.iter().map(|frame| Layer2::parse(frame).unwrap().destination).collect();
    assert_eq!(to, [MacAddr::BROADCAST, groups[0], all, groups[1], all]);
    router.set_ports(NOW, Arc::clone(router.ports()), &mut out);
    assert_eq!(out, [], "nothing is new");
    // When a neighbour's address becomes ours, its entry is removed.
    receive(&mut router, &arp_message(true, [192, 0, 2, 9], [192, 0, 2, 1]));
    assert!(router.pin(NOW, Key::untagged(ON, ip("192.0.2.11")), Tags::NONE, &mut out));
    router.set_port(NOW, interface(0, &["192.0.2.9/24"]), &mut out);
    let lost = |address| Action::Lost { key: Key::untagged(ON, address), mac: THEIRS };
    assert!(out.contains(&lost(ip("192.0.2.9"))));
    assert!(router.neighbour(Key::untagged(ON, ip("192.0.2.11"))).is_some(), "the others stay");
    router.unpin(Key::untagged(ON, ip("192.0.2.11")));
    for (is_up, frames) in [(false, 0), (true, 3)] {
        let mut link = router.ports().ports[0].clone();
        link.is_up = is_up;
        out.clear();
        router.set_port(NOW, link, &mut out);
        assert_eq!((router.neighbours().count(), out.len()), (0, frames), "it is announced with its link");
    }
    receive(&mut router, &arp_message(true, [192, 0, 2, 10], [192, 0, 2, 9]));
    out.clear();
    router.set_port(NOW, port(0), &mut out);
    assert_eq!(out, [lost(ip("192.0.2.10"))]);
    assert_eq!((router.neighbours().count(), router.ports().interfaces().count()), (0, 0));
}
