//! The router's protocol part: any frames, times and packets. Each frame that it sends is read by a plain parser of its own.
//!
//! An input is a list of steps. A frame is a template or raw bytes, with edits, and with or without a correction of its checksums.

use crate::bytes::Bytes;
use fib::MacAddr;
use fwd_app::testing::router::{ENTRIES_MAX, Outcome, TestRouter, WAITING_MAX};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The most steps of an input.
const STEPS_MAX: usize = 200;
/// The most bytes of a frame.
const FRAME_BYTES_MAX: usize = 2000;
/// The MAC of port 0, that of port 1, and the other station's.
const MACS: [[u8; 6]; 3] = [[2, 0xf0, 0, 0, 0, 0], [2, 0xf0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]];

/// A frame's checksums are corrected after its edits.
pub const RIGHT: u8 = 0x80;
/// The templates of frames, by their numbers in an input; 0 is raw bytes.
pub const TEMPLATES: u8 = 12;
/// Steps beyond frames, by their numbers in an input.
const WAIT: u8 = 0x40;
const RESOLVE: u8 = 0x41;
const PIN: u8 = 0x42;
const UNPIN: u8 = 0x43;

fn router() -> TestRouter {
    let v6 = |net: u16, host: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, host));
    let zero = [(IpAddr::from([192, 0, 2, 1]), 24), (v6(0, 1), 64)];
    let one = [(IpAddr::from([203, 0, 113, 1]), 30), (v6(1, 1), 64)];
    TestRouter::new(&[(MacAddr(MACS[0]), &zero), (MacAddr(MACS[1]), &one)]).unwrap()
}

/// ARP, neighbour discovery and the neighbour table: frames are well formed, no packet is lost or sent twice, memory is bounded, and
/// callers know what the table has.
pub fn arp_ndp(data: &[u8]) {
    let (mut router, mut input) = (router(), Bytes(data));
    let (mut now, mut packet, mut waiting) = (Duration::from_secs(1), 0, BTreeSet::new());
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let kind = input.u8();
        let outcome = match kind {
            WAIT => {
                now += Duration::from_millis(u64::from(input.u8()) * 100);
                router.tick(now)
            }
            RESOLVE => {
                packet += 1;
                waiting.insert(packet);
                router.resolve(now, 0, host(input.u8()), packet)
            }
            PIN | UNPIN => router.pin(now, 0, host(input.u8()), kind == PIN),
            kind => router.receive(now, u16::from(kind >> 5 & 1), &frame(kind, &mut input)),
        };
        settle(&outcome, &mut waiting);
        check(&router, waiting.len());
    }
    // All that waits is given up, at last.
    for _ in 0..20 {
        now += Duration::from_secs(5);
        settle(&router.tick(now), &mut waiting);
    }
    check(&router, 0);
    assert_eq!(waiting.len(), 0, "packets wait for ever");
}

/// ICMP errors and echo replies: they are well formed and short, and no error is about an error.
pub fn icmp(data: &[u8]) {
    let (mut router, mut input) = (router(), Bytes(data));
    for second in (0..).take(STEPS_MAX) {
        if input.is_empty() {
            break;
        }
        let (cause, head_bytes, kind) = (input.u8(), 14 + 8 * usize::from(input.u8()), input.u8());
        let (now, port) = (Duration::from_secs(second * 100), u16::from(kind >> 5 & 1));
        let frame = frame(kind, &mut input);
        settle(&router.receive(now, port, &frame), &mut BTreeSet::new());
        let head = &frame[..frame.len().min(head_bytes)];
        let Some(error) = router.error(now, port, (head, frame.len()), cause) else { continue };
        let ip = well_formed(&error);
        assert!(ip.len() <= if ip[0] >> 4 == 4 { 576 } else { 1280 }, "{} bytes", ip.len());
        assert_eq!((&error[..6], &error[6..12]), (&frame[6..12], &MACS[usize::from(port)][..]));
        let quoted = if ip[0] >> 4 == 4 { &ip[28..] } else { &ip[48..] };
        assert!(
            frame.windows(quoted.len().max(1)).any(|part| part == quoted),
            "not what was received: {quoted:?}"
        );
        for cause in 0..9 {
            let again = router.error(now + Duration::from_secs(9), port, (&error, error.len()), cause);
            assert_eq!(again, None, "an error about an error");
        }
    }
}

fn host(byte: u8) -> IpAddr {
    let last = byte & 0x1f;
    if byte & 0x20 == 0 {
        Ipv4Addr::new(192, 0, 2, last).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()
    }
}

/// Strikes off the packets that an outcome has, and reads the frames in it.
fn settle(outcome: &Outcome, waiting: &mut BTreeSet<u32>) {
    for packet in outcome.released.iter().chain(&outcome.dropped) {
        assert!(waiting.remove(packet), "packet {packet} left twice");
    }
    for (_, frame) in &outcome.sent {
        well_formed(frame);
    }
}

fn check(router: &TestRouter, packets: usize) {
    let (entries, waiting) = router.held();
    assert!(entries <= 2 * ENTRIES_MAX && waiting <= entries * WAITING_MAX);
    assert_eq!(waiting, packets, "packets that are neither here nor anywhere else");
    assert!(router.is_told(), "{router:?}");
}

/// A frame of an input.
fn frame(kind: u8, input: &mut Bytes<'_>) -> Vec<u8> {
    let mut frame = match kind & 0x1f {
        template @ 1..=TEMPLATES => {
            let mut frame = template_of(template);
            let more = usize::from(input.u8());
            // The last bit of the length byte asks for a long payload.
            frame.resize(frame.len() + more / 2 * if more & 1 == 0 { 1 } else { 12 }, 7);
            for _ in 0..input.below(6) {
                let (at, value) = (input.below(100), input.u8());
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame
        }
        _ => {
            let bytes = usize::from(input.u8()) << 8 | usize::from(input.u8());
            input.take(bytes % FRAME_BYTES_MAX).to_vec()
        }
    };
    if kind & RIGHT != 0 {
        correct(&mut frame);
    }
    frame
}

/// A frame from the other station to port 0.
fn template_of(number: u8) -> Vec<u8> {
    let (ours, theirs) = (MACS[0], MACS[2]);
    let v6 = |host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1).octets();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let arp = |operation: u8, sender: u8, target: u8| {
        let to = if operation == 1 { [0xff; 6] } else { ours };
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        [&to[..], &theirs, &[8, 6], &head, &theirs, &[192, 0, 2, sender], &[0; 6], &[192, 0, 2, target]]
            .concat()
    };
    let ipv4 = |protocol: u8, payload: &[u8]| {
        let head = [0x45, 0, 0, 0, 0xab, 0xcd, 0x40, 0, 9, protocol, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1];
        [&ours[..], &theirs, &[8, 0], &head, payload].concat()
    };
    let ipv6 = |to: [u8; 16], hops: u8, next: u8, payload: &[u8]| {
        let mac = if to[0] == 0xff { [0x33, 0x33, to[12], to[13], to[14], to[15]] } else { ours };
        [&mac[..], &theirs, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, next, hops], &v6(9), &to, payload].concat()
    };
    let option = |kind: u8| [&[kind, 1][..], &theirs].concat();
    match number {
        1 => arp(1, 9, 1),
        2 => arp(2, 9, 1),
        3 => arp(1, 9, 9),
        4 => arp(1, 1, 1),
        5 => ipv6(group, 255, 58, &[&[135, 0, 0, 0, 0, 0, 0, 0], &v6(1)[..], &option(1)].concat()),
        6 => ipv6(v6(1), 255, 58, &[&[136, 0, 0, 0, 0x60, 0, 0, 0], &v6(9)[..], &option(2)].concat()),
        7 => ipv6(all_nodes, 255, 58, &[&[136, 0, 0, 0, 0x20, 0, 0, 0], &v6(1)[..], &option(2)].concat()),
        8 => ipv4(1, &[8, 0, 0, 0, 1, 2, 3, 4]),
        9 => ipv6(v6(1), 64, 58, &[128, 0, 0, 0, 1, 2, 3, 4]),
        10 => ipv4(17, &[1, 2, 3, 4, 0, 8, 0, 0]),
        11 => ipv6(Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 1).octets(), 1, 17, &[1, 2, 3, 4, 0, 8, 0, 0]),
        _ => ipv6(
            v6(9),
            1,
            0,
            &[44, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 1, 0, 0, 0, 7, 58, 0, 0x80, 0, 0, 0, 0, 0, 128],
        ),
    }
}

/// Corrects lengths and checksums of an untagged frame with a plain header.
fn correct(frame: &mut [u8]) {
    let Some((ethernet, ip)) = frame.split_at_mut_checked(14) else { return };
    let bytes = u16::try_from(ip.len()).unwrap();
    match (&ethernet[12..], ip.first()) {
        ([8, 0], Some(0x45)) if bytes >= 28 => {
            ip[2..4].copy_from_slice(&bytes.to_be_bytes());
            write_sum(&mut ip[..20], 10, 0);
            if ip[9] == 1 {
                write_sum(&mut ip[20..], 2, 0);
            }
        }
        ([0x86, 0xdd], Some(_)) if bytes >= 48 => {
            ip[4..6].copy_from_slice(&(bytes - 40).to_be_bytes());
            let pseudo = sum(&ip[8..40]) + u32::from(bytes - 40) + 58;
            if ip[6] == 58 {
                write_sum(&mut ip[40..], 2, pseudo);
            }
        }
        _ => {}
    }
}

fn write_sum(bytes: &mut [u8], at: usize, more: u32) {
    bytes[at..at + 2].fill(0);
    let sum = !folded(sum(bytes) + more);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 1071.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

/// Reads a frame of the router: a station's source MAC, at most two tags, then ARP, ICMP or ICMPv6 with right lengths and sums. Returns
/// what follows the Ethernet header.
fn well_formed(frame: &[u8]) -> &[u8] {
    assert!(MACS[..2].iter().any(|mac| frame[6..12] == *mac), "{frame:02x?}");
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81 | 0x91, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    assert!(at <= 20, "three tags");
    let ip = &frame[at + 2..];
    match frame[at..at + 2] {
        [8, 6] => {
            assert_eq!((ip.len(), &ip[..7]), (28, &[0, 1, 8, 0, 6, 4, 0][..]));
            assert!(matches!(ip[7], 1 | 2) && ip[8..14] == frame[6..12]);
        }
        [8, 0] => {
            assert_eq!((ip[0], usize::from(u16::from_be_bytes([ip[2], ip[3]]))), (0x45, ip.len()));
            assert_eq!((folded(sum(&ip[..20])), folded(sum(&ip[20..]))), (0xffff, 0xffff), "{ip:02x?}");
            assert_eq!((ip[8], ip[9]), (64, 1));
            assert!(matches!(ip[20], 0 | 3 | 11 | 12), "type {}", ip[20]);
        }
        [0x86, 0xdd] => {
            let bytes = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            assert_eq!((ip[0] >> 4, bytes, ip[6]), (6, ip.len() - 40, 58));
            let pseudo = sum(&ip[8..40]) + u32::try_from(bytes).unwrap() + 58;
            assert_eq!(folded(sum(&ip[40..]) + pseudo), 0xffff, "{ip:02x?}");
            let hops = if matches!(ip[40], 135 | 136) { 255 } else { 64 };
            assert!(ip[7] == hops && matches!(ip[40], 1..=4 | 129 | 135 | 136), "type {}", ip[40]);
        }
        ref other => panic!("ethertype {other:02x?}"),
    }
    ip
}
