//! Drives the router's protocol part through arbitrary steps, for fuzz targets and for the properties below.
//!
//! [`drive`] checks after each step: frames are well formed, all packets and neighbours are accounted for, the table stays within its
//! limits, and no ICMP error reports an ICMP error. Callers edit frames of [`template`] and restore lengths and checksums with [`correct`].

#![expect(clippy::unwrap_used, clippy::panic, reason = "a property fails by panicking")]

use crate::neighbours::action::Action;
use crate::neighbours::config::NeighbourConfig;
use crate::neighbours::entries::{Key, NeighbourState};
use crate::neighbours::frame::Tags;
use crate::neighbours::icmp_errors::Cause;
use crate::neighbours::limiter::LimitRate;
use crate::neighbours::receive::Disposition;
use crate::neighbours::{ErrorAnswer, Router, RouterConfig};
use crate::ports::address::InterfaceAddress;
use crate::ports::{InterfaceId, PortRecord, PortTable};
use fib::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const WAITING_MAX: usize = 3;
const WAITING_ALL_MAX: usize = 7;
const ENTRIES_MAX: usize = 9;
const INCOMPLETE_MAX: usize = 3;
const OURS: [[u8; 6]; 2] = [[2, 0xf0, 0, 0, 0, 0], [2, 0xf0, 0, 0, 0, 1]];
/// The other station on the link of port 0.
pub const STATION: u8 = 9;

const fn mac_of(station: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, station]
}

/// An input of the router.
#[derive(Clone, Debug)]
pub enum RouterStep {
    /// A frame arrives at port 0 or 1.
    Receive(u16, Vec<u8>),
    /// A received frame cannot be forwarded.
    Undelivered {
        /// The arrival port, 0 or 1.
        port: u16,
        /// The whole frame.
        frame: Vec<u8>,
        /// Bytes of the first segment.
        head_bytes: usize,
        /// Number of the cause.
        cause: u8,
    },
    /// Milliseconds pass.
    Wait(u64),
    /// A packet is to be sent to a neighbour on port 0; the steps below concern port 0, too.
    Resolve(IpAddr),
    /// A neighbour becomes a gateway.
    Pin(IpAddr),
    /// A neighbour stops being a gateway.
    Unpin(IpAddr),
    /// The link goes down or up.
    Link(bool),
    /// Clear the learned entry of an address, or every learned entry.
    Clear(Option<IpAddr>),
}

struct RouterRig {
    router: Router<u32>,
    now: Duration,
    packets: u32,
    macs: BTreeMap<Key, MacAddr>,
    waiting: BTreeSet<u32>,
}

/// Drives a router through steps, then lets all waits expire.
///
/// # Panics
/// When the router breaks an invariant.
pub fn drive(steps: impl IntoIterator<Item = RouterStep>) {
    let mut rig = RouterRig::new();
    for step in steps {
        let incomplete = rig.incomplete() + usize::from(matches!(step, RouterStep::Unpin(_)));
        let out = rig.run_step(step);
        rig.act(out);
        rig.check(incomplete.max(INCOMPLETE_MAX));
    }
    for _ in 0..20 {
        let out = rig.run_step(RouterStep::Wait(5000));
        rig.act(out);
    }
    rig.check(0);
    assert!(rig.waiting.is_empty(), "packets wait for ever: {:?}", rig.waiting);
}

impl RouterRig {
    fn new() -> Self {
        let neighbours = NeighbourConfig {
            waiting_max: WAITING_MAX,
            waiting_all_max: WAITING_ALL_MAX,
            entries_max: ENTRIES_MAX,
            incomplete_max: INCOMPLETE_MAX,
            resolutions: LimitRate { per_second: 10, burst: 10 },
            ..NeighbourConfig::default()
        };
        let mut router = Router::new(&RouterConfig { neighbours, ..RouterConfig::default() });
        let v6 = |net: u16| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, 1));
        let addresses =
            [[([192, 0, 2, 1].into(), 24), (v6(0), 64)], [([203, 0, 113, 1].into(), 30), (v6(1), 64)]];
        let mut ports = PortTable::default();
        for ((id, mac), addresses) in (0..).zip(OURS).zip(addresses) {
            let mut port = PortRecord::new(id, format!("p{id}"), MacAddr(mac), 1500);
            let addresses = addresses.map(|(address, len)| InterfaceAddress::new(address, len).unwrap());
            port.configure(addresses.to_vec()).unwrap();
            ports.ports.push(port);
        }
        router.set_ports(Duration::ZERO, Arc::new(ports), &mut Vec::new());
        let (macs, waiting) = (BTreeMap::new(), BTreeSet::new());
        Self { router, now: Duration::from_secs(1), packets: 0, macs, waiting }
    }

    fn run_step(&mut self, step: RouterStep) -> Vec<Action<u32>> {
        const ON: InterfaceId = InterfaceId(0);
        let key = |address| Key::untagged(ON, address);
        let (router, now, mut out) = (&mut self.router, self.now, Vec::new());
        match step {
            RouterStep::Receive(port, frame) => {
                let disposition = router.receive(now, InterfaceId(port), &frame, &mut out);
                if let Disposition::Answered(answer) = disposition {
                    well_formed(&answer);
                }
            }
            RouterStep::Undelivered { port, frame, head_bytes, cause } => {
                self.check_error(port, &frame, head_bytes, cause);
            }
            RouterStep::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                router.tick(self.now, &mut out);
                assert!(router.next_due().is_none_or(|due| due > self.now));
            }
            RouterStep::Resolve(address) => {
                self.packets += 1;
                self.waiting.insert(self.packets);
                router.resolve(now, key(address), self.packets, Tags::NONE, &mut out);
            }
            RouterStep::Pin(address) => drop(router.pin(now, key(address), Tags::NONE, &mut out)),
            RouterStep::Unpin(address) => router.unpin(key(address)),
            RouterStep::Link(is_up) => {
                let mut ports = PortTable::clone(router.ports());
                ports.ports[0].is_up = is_up;
                router.set_ports(now, Arc::new(ports), &mut out);
            }
            RouterStep::Clear(address) => drop(router.clear_neighbours(now, address, &mut out)),
        }
        out
    }

    fn check_error(&mut self, port: u16, frame: &[u8], head_bytes: usize, cause: u8) {
        let (on, head) = (InterfaceId(port), &frame[..frame.len().min(head_bytes)]);
        let answer = self.router.icmp_error(self.now, on, (head, frame.len()), cause_of(cause));
        let ErrorAnswer::Send(error) = answer else { return };
        let ip = well_formed(&error);
        let (bytes_max, quoted) = if ip[0] >> 4 == 4 { (576, &ip[28..]) } else { (1280, &ip[48..]) };
        assert!(ip.len() <= bytes_max, "{} bytes", ip.len());
        assert_eq!((&error[..6], &error[6..12]), (&frame[6..12], &OURS[usize::from(port)][..]));
        let is_quote = frame.windows(quoted.len().max(1)).any(|part| part == quoted);
        assert!(is_quote, "not what was received: {quoted:?}");
        for cause in 0..CAUSES {
            let later = self.now + Duration::from_secs(9);
            let again = self.router.icmp_error(later, on, (&error, error.len()), cause_of(cause));
            assert!(matches!(again, ErrorAnswer::Not(_)), "an error about an error: {again:?}");
        }
    }

    fn act(&mut self, actions: Vec<Action<u32>>) {
        for action in actions {
            match action {
                Action::Send { frame, .. } => drop(well_formed(&frame)),
                Action::Resolved { key, mac } => assert_eq!(self.macs.insert(key, mac), None),
                Action::Changed { key, old, new } => {
                    assert_ne!(old, new);
                    assert_eq!(self.macs.insert(key, new), Some(old));
                }
                Action::Lost { key, mac } => assert_eq!(self.macs.remove(&key), Some(mac)),
                Action::Release { key, mac, packets } => {
                    assert_eq!(self.macs.get(&key), Some(&mac));
                    self.leave(&packets);
                }
                Action::Dropped { packets, .. } => self.leave(&packets),
                Action::Conflict { .. } => {}
            }
        }
    }

    fn leave(&mut self, packets: &[u32]) {
        assert!(packets.is_sorted(), "{packets:?}");
        for packet in packets {
            assert!(self.waiting.remove(packet), "packet {packet} left twice");
        }
    }

    fn incomplete(&self) -> usize {
        let entries = self.router.neighbours();
        entries
            .filter(|(_, entry)| matches!(entry.state, NeighbourState::Incomplete { .. }) && !entry.is_pinned)
            .count()
    }

    fn check(&self, incomplete_max: usize) {
        let (mut waiting, mut macs) = (BTreeSet::new(), BTreeMap::new());
        let mut learned = [0; 2];
        for (key, entry) in self.router.neighbours() {
            let has_none = matches!(entry.state, NeighbourState::Incomplete { .. } | NeighbourState::Failed);
            assert_eq!(entry.mac.is_none(), has_none, "{entry:?}");
            assert!(entry.waiting.is_empty() || matches!(entry.state, NeighbourState::Incomplete { .. }));
            assert!(entry.waiting.len() <= WAITING_MAX);
            assert!(entry.due.is_some());
            waiting.extend(entry.waiting.iter().copied());
            macs.extend(entry.mac.map(|mac| (key, mac)));
            learned[usize::from(key.interface.0)] += 1;
        }
        assert!(waiting.len() <= WAITING_ALL_MAX);
        assert_eq!((&macs, &waiting), (&self.macs, &self.waiting));
        assert!(learned.iter().all(|entries| *entries <= ENTRIES_MAX), "{learned:?} entries");
        assert!(self.incomplete() <= incomplete_max, "{} unanswered", self.incomplete());
    }
}

const CAUSES: u8 = 6;

const fn cause_of(number: u8) -> Cause {
    match number % CAUSES {
        0 => Cause::TimeExceeded,
        1 => Cause::NoRoute,
        2 => Cause::AddressUnreachable,
        3 => Cause::Prohibited,
        4 => Cause::TooBig { mtu_bytes: 1400 },
        _ => Cause::Unreachable,
    }
}

/// A host on the link of port 0.
#[must_use]
pub fn host_of(last: u8, is_v4: bool) -> IpAddr {
    if is_v4 {
        [192, 0, 2, last].into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into()
    }
}

/// Templates of frames that request or announce a neighbour.
pub const NEIGHBOURS: [u8; 3] = [1, 3, 5];
/// Number of templates; their numbers start at 1.
pub const TEMPLATES: u8 = 16;

/// A frame to port 0 from a host on its link, with the MAC of `station`.
#[must_use]
pub fn template(number: u8, host: u8, station: u8) -> Vec<u8> {
    let (ours, theirs) = (OURS[0], mac_of(station));
    let v6 = |host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1).octets();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let beyond = Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 1).octets();
    let arp = |operation: u8, sender: u8, target: u8| {
        let to = if operation == 1 { [0xff; 6] } else { ours };
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        [&to[..], &theirs, &[8, 6], &head, &theirs, &[192, 0, 2, sender], &[0; 6], &[192, 0, 2, target]]
            .concat()
    };
    let ipv4 = |from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]| {
        let head = [0x45, 0, 0, 0, 0xab, 0xcd, 0x40, 0, 9, protocol, 0, 0];
        [&ours[..], &theirs, &[8, 0], &head, &from, &to, payload].concat()
    };
    let ipv6_from = |from: [u8; 16], to: [u8; 16], hops: u8, next: u8, payload: &[u8]| {
        let mac = if to[0] == 0xff { [0x33, 0x33, to[12], to[13], to[14], to[15]] } else { ours };
        [&mac[..], &theirs, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, next, hops], &from, &to, payload].concat()
    };
    let ipv6 = |to, hops, next, payload: &[u8]| ipv6_from(v6(host.into()), to, hops, next, payload);
    let option = |kind: u8| [&[kind, 1][..], &theirs].concat();
    match number {
        1 => arp(1, host, 1),
        2 => arp(2, host, 1),
        3 => arp(1, host, host),
        4 => arp(1, 1, 1),
        5 => ipv6(group, 255, 58, &[&[135, 0, 0, 0, 0, 0, 0, 0], &v6(1)[..], &option(1)].concat()),
        6 => {
            ipv6(v6(1), 255, 58, &[&[136, 0, 0, 0, 0x60, 0, 0, 0], &v6(host.into())[..], &option(2)].concat())
        }
        7 => ipv6(all_nodes, 255, 58, &[&[136, 0, 0, 0, 0x20, 0, 0, 0], &v6(1)[..], &option(2)].concat()),
        8 => ipv4([192, 0, 2, host], [192, 0, 2, 1], 1, &[8, 0, 0, 0, 1, 2, 3, 4]),
        9 => ipv6(v6(1), 64, 58, &[128, 0, 0, 0, 1, 2, 3, 4]),
        10 => ipv4([192, 0, 2, host], [192, 0, 2, 1], 17, &[1, 2, 3, 4, 0, 8, 0, 0]),
        11 => ipv6(beyond, 1, 17, &[1, 2, 3, 4, 0, 8, 0, 0]),
        12 => ipv6(
            v6(9),
            1,
            0,
            &[44, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 1, 0, 0, 0, 7, 58, 0, 0x80, 0, 0, 0, 0, 0, 128],
        ),
        // Duplicate address detection for our address.
        13 => ipv6_from([0; 16], group, 255, 58, &[&[135, 0, 0, 0, 0, 0, 0, 0], &v6(1)[..]].concat()),
        14 => ipv4([192, 0, 2, host], [10, 0, 0, 1], 17, &[1, 2, 3, 4, 0, 8, 0, 0]),
        15 => ipv4([8, 8, 8, 8], [192, 0, 2, 1], 1, &[8, 0, 0, 0, 1, 2, 3, 4]),
        _ => [&[0xff; 6][..], &theirs, &[0x81, 0], &[0x20; 60]].concat(),
    }
}

/// Corrects lengths and checksums of an untagged frame with a plain header.
pub fn correct(frame: &mut [u8]) {
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

/// A station's source MAC, at most two tags, then ARP, ICMP or ICMPv6 with correct lengths and checksums. Returns the Ethernet payload.
fn well_formed(frame: &[u8]) -> &[u8] {
    assert!(OURS.iter().any(|mac| frame[6..12] == *mac), "{frame:02x?}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    prop_compose! {
        fn any_frame()(
            number in 1..=TEMPLATES,
            payload_bytes in prop::option::weighted(0.2, 0..1500_usize),
            edits in vec((any::<Index>(), any::<u8>()), 0..6),
            cut in prop::option::weighted(0.2, any::<Index>()),
            is_corrected in prop::bool::weighted(0.8),
        ) -> Vec<u8> {
            let mut frame = template(number, STATION, STATION);
            frame.resize(frame.len() + payload_bytes.unwrap_or(0), 7);
            for (at, value) in edits {
                // Most edits hit the headers.
                let at = at.index(frame.len().min(90));
                frame[at] = value;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()));
            }
            if is_corrected {
                correct(&mut frame);
            }
            frame
        }
    }

    fn any_step() -> impl Strategy<Value = RouterStep> {
        let last = || 5..13_u8;
        let v4 = move || last().prop_map(|last| host_of(last, true));
        prop_oneof![
            3 => any_frame().prop_map(|frame| RouterStep::Receive(0, frame)),
            3 => (any_frame(), 60..1560_usize, 0..CAUSES).prop_map(|(frame, head_bytes, cause)| {
                RouterStep::Undelivered { port: 0, frame, head_bytes, cause }
            }),
            4 => (0..6000_u64).prop_map(RouterStep::Wait),
            1 => (0..100_000_u64).prop_map(RouterStep::Wait),
            6 => (last(), any::<bool>()).prop_map(|(last, is_v4)| RouterStep::Resolve(host_of(last, is_v4))),
            1 => v4().prop_map(RouterStep::Pin),
            1 => v4().prop_map(RouterStep::Unpin),
            2 => any::<bool>().prop_map(RouterStep::Link),
            1 => prop::option::of(v4()).prop_map(RouterStep::Clear),
            6 => (last(), 0..3_u8).prop_map(|(host, kind)| {
                let mut frame = template(NEIGHBOURS[usize::from(kind)], host, host | kind << 6);
                correct(&mut frame);
                RouterStep::Receive(0, frame)
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn packets_and_neighbours_are_accounted_for_and_what_is_sent_is_well_formed(steps in vec(any_step(), 1..120)) {
            drive(steps);
        }

        #[test]
        fn any_bytes_are_data(frame in vec(any::<u8>(), 0..200), cause in 0..CAUSES) {
            let mut rig = RouterRig::new();
            prop_assert!(rig.run_step(RouterStep::Receive(0, frame.clone())).is_empty());
            rig.check_error(0, &frame, frame.len(), cause);
        }
    }
}
