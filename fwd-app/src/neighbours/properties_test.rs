//! Properties for any input: whatever arrives, what leaves is well formed; packets and neighbours are accounted for.

use super::action::Action;
use super::config::NeighbourConfig;
use super::entries::{Key, State};
use super::frame::{Envelope, IPV4, Layer2, Tags};
use super::icmp_errors::Cause;
use super::limiter::{LimiterConfig, Rate};
use super::receive::Disposition;
use super::test_packets::{THEIRS, TO_US, assert_well_formed, echo_v4, echo_v6, v4, v6};
use super::{ErrorAnswer, PortRecord, Router, RouterConfig, arp, ndp};
use crate::ports::InterfaceId;
use fib::MacAddr;
use proptest::collection::vec;
use proptest::prelude::*;
use smoltcp::wire::{Icmpv6Packet, IpProtocol, Ipv4Packet, Ipv6Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const ON: InterfaceId = InterfaceId(0);
const CAUSES: [Cause; 10] = [
    Cause::TimeExceeded,
    Cause::NoRoute,
    Cause::Unreachable,
    Cause::AddressUnreachable,
    Cause::Prohibited,
    Cause::TooBig { mtu_bytes: 1280 },
    Cause::ProtocolUnreachable,
    Cause::PortUnreachable,
    Cause::BadField { at: 9 },
    Cause::UnknownOption { at: 42 },
];

/// Another station on the link of interface 0.
fn station(last: u8) -> PortRecord {
    let texts = [format!("192.0.2.{last}/24"), format!("2001:db8::{last:x}/64")];
    crate::ports::record::tests::station(MacAddr([2, 0, 0, 0, 0, last]), &texts.each_ref().map(|text| &**text))
}

fn v4_of(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, last)
}

/// Frames of every kind that a router reads.
fn templates() -> Vec<Vec<u8>> {
    let (other, tags) = (station(9), Tags::NONE);
    let [ours, theirs] = ["2001:db8::1", "2001:db8::9"].map(|text| text.parse().unwrap());
    let asked = Envelope { destination: MacAddr::BROADCAST, source: THEIRS, tags };
    vec![
        arp::request(&other, v4_of(9), v4_of(1), None, tags),
        arp::announcement(&other, v4_of(9), tags),
        arp::announcement(&other, v4_of(1), tags),
        ndp::solicitation(&other, theirs, ours, None, tags),
        ndp::detection(&other, ours, tags),
        ndp::announcement(&other, theirs, tags),
        ndp::announcement(&other, ours, tags),
        echo_v4("8.8.8.8", "192.0.2.1", &[7; 20]),
        echo_v6("2a00::1", "2001:db8::1", &[7; 20]),
        v4(TO_US, "192.0.2.9", "10.0.0.1", IpProtocol::Udp, &[7; 600]),
        v6(TO_US, "2001:db8::9", "2a00::1", IpProtocol::Udp, &[7; 1300]),
        v6(
            TO_US,
            "2001:db8::9",
            "2a00::1",
            IpProtocol::HopByHop,
            &[44, 0, 1, 4, 0, 0, 0, 0, 58, 0, 0, 1, 0, 0, 0, 9],
        ),
        asked.frame(0x8100, 60, |bytes| bytes.copy_from_slice(&[0x20; 60])),
    ]
}

/// Corrects the checksums of an untagged frame, so that edits are seen by what comes after them.
fn corrected(mut frame: Vec<u8>) -> Vec<u8> {
    match frame.get(12..15) {
        Some([8, 0, 0x45]) if frame.len() >= 34 => {
            Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum()
        }
        Some([0x86, 0xdd, _]) if frame.len() >= 58 && frame[20] == 58 => {
            let header = Ipv6Packet::new_unchecked(&frame[14..]);
            let (from, to) = (header.src_addr(), header.dst_addr());
            let end = frame.len().min(14 + header.total_len()).max(58);
            Icmpv6Packet::new_unchecked(&mut frame[54..end]).fill_checksum(&from, &to);
        }
        _ => {}
    }
    frame
}

prop_compose! {
    fn any_frame()(
        template in prop::sample::select(templates()),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        is_corrected in prop::bool::weighted(0.8),
    ) -> Vec<u8> {
        let mut frame = template;
        for (at, value) in edits {
            // Most edits in the headers.
            let at = at.index(frame.len().min(90));
            frame[at] = value;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len()));
        }
        if is_corrected { corrected(frame) } else { frame }
    }
}

fn router(config: &RouterConfig) -> Router<u32> {
    let mut router = Router::new(config);
    let ports = crate::ports::whose::tests::interfaces();
    router.set_ports(Duration::ZERO, std::sync::Arc::new(ports), &mut Vec::new());
    router
}

/// What callers know of neighbours and packets, from the actions alone.
#[derive(Default)]
struct Caller {
    macs: BTreeMap<Key, MacAddr>,
    waiting: BTreeSet<u32>,
}

impl Caller {
    fn act(&mut self, actions: Vec<Action<u32>>) {
        for action in actions {
            match action {
                Action::Send { frame, .. } => assert_well_formed(&frame),
                Action::Resolved { key, mac } => assert_eq!(self.macs.insert(key, mac), None),
                Action::Changed { key, old, new } => {
                    assert_ne!(old, new);
                    assert_eq!(self.macs.insert(key, new), Some(old));
                }
                Action::Lost { key, mac } => assert_eq!(self.macs.remove(&key), Some(mac)),
                Action::Release { key, mac, packets } => {
                    assert_eq!(self.macs.get(&key), Some(&mac));
                    assert!(packets.iter().all(|packet| self.waiting.remove(packet)) && packets.is_sorted());
                }
                Action::Dropped { packets, .. } => {
                    assert!(packets.iter().all(|packet| self.waiting.remove(packet)) && packets.is_sorted());
                }
                Action::Conflict { .. } => {}
            }
        }
    }

    /// Compares with the table.
    fn check(&self, router: &Router<u32>, config: &NeighbourConfig) {
        let mut waiting = BTreeSet::new();
        let mut macs = BTreeMap::new();
        for (key, entry) in router.neighbours() {
            let has_none = matches!(entry.state, State::Incomplete { .. } | State::Failed);
            assert_eq!(entry.mac.is_none(), has_none, "{entry:?}");
            assert!(entry.waiting.is_empty() || matches!(entry.state, State::Incomplete { .. }));
            assert!(entry.waiting.len() <= config.waiting_max);
            assert_eq!(entry.due.is_none(), entry.state == State::Static);
            waiting.extend(entry.waiting.iter().copied());
            macs.extend(entry.mac.map(|mac| (key, mac)));
        }
        assert_eq!((&macs, &waiting), (&self.macs, &self.waiting));
        // Static and pinned entries are as many as are configured.
        let incomplete = router
            .neighbours()
            .filter(|(_, entry)| matches!(entry.state, State::Incomplete { .. }) && !entry.is_pinned);
        assert!(incomplete.count() <= config.incomplete_max + 3);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Frame(Vec<u8>),
    Wait(u64),
    Resolve(u8, bool),
    Used(u8),
    Pin(u8),
    Unpin(u8),
    Static(u8),
    Remove(u8),
    LinkDown,
    Clear(u8),
    Answer(u8, u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let host = || 5..13_u8;
    prop_oneof![
        3 => any_frame().prop_map(Step::Frame),
        4 => (0..6000_u64).prop_map(Step::Wait),
        1 => (0..100_000_u64).prop_map(Step::Wait),
        6 => (host(), any::<bool>()).prop_map(|(host, is_v4)| Step::Resolve(host, is_v4)),
        1 => host().prop_map(Step::Used),
        1 => host().prop_map(Step::Pin),
        1 => host().prop_map(Step::Unpin),
        1 => host().prop_map(Step::Static),
        1 => host().prop_map(Step::Remove),
        1 => Just(Step::LinkDown),
        1 => (4..13_u8).prop_map(Step::Clear),
        6 => (host(), 0..3_u8).prop_map(|(host, kind)| Step::Answer(host, kind)),
    ]
}

/// A message from a host of the link, with one of two MACs.
fn answer(host: u8, kind: u8) -> Vec<u8> {
    let station = station(host | kind << 6);
    match kind {
        0 => arp::request(&station, v4_of(host), v4_of(1), None, Tags::NONE),
        1 => arp::announcement(&station, v4_of(host), Tags::NONE),
        _ => {
            let address = format!("2001:db8::{host:x}").parse().unwrap();
            ndp::solicitation(&station, address, "2001:db8::1".parse().unwrap(), None, Tags::NONE)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn packets_and_neighbours_are_accounted_for(steps in vec(any_step(), 1..120)) {
        let neighbours = NeighbourConfig {
            waiting_max: 3,
            entries_max: 9,
            incomplete_max: 3,
            resolutions: Rate { per_second: 10, burst: 10 },
            ..NeighbourConfig::default()
        };
        let config = RouterConfig { neighbours, ..RouterConfig::default() };
        let (mut router, mut caller) = (router(&config), Caller::default());
        let (mut now, mut packet) = (Duration::from_secs(1), 0);
        for step in steps {
            let mut out = Vec::new();
            let v4_key = |host| Key::untagged(ON, IpAddr::V4(v4_of(host)));
            match step {
                Step::Frame(frame) => drop(router.receive(now, ON, &frame, &mut out)),
                Step::Answer(host, kind) => drop(router.receive(now, ON, &answer(host, kind), &mut out)),
                Step::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    router.tick(now, &mut out);
                    prop_assert!(router.next_due().is_none_or(|due| due > now));
                }
                Step::Resolve(host, is_v4) => {
                    packet += 1;
                    caller.waiting.insert(packet);
                    let address = if is_v4 { v4_key(host).address } else { format!("2001:db8::{host:x}").parse().unwrap() };
                    router.resolve(now, Key::untagged(ON, address), packet, Tags::NONE, &mut out);
                }
                Step::Used(host) => router.used(now, v4_key(host)),
                Step::Pin(host) => drop(router.pin(now, v4_key(host), Tags::NONE, &mut out)),
                Step::Unpin(host) => router.unpin(v4_key(host)),
                Step::Static(host) => router.set_static(now, v4_key(host), THEIRS, &mut out),
                Step::Remove(host) => router.remove_neighbour(v4_key(host), &mut out),
                Step::LinkDown => router.link_down(now, ON, &mut out),
                // One address, or all.
                Step::Clear(host) => {
                    let address = (host > 4).then(|| v4_key(host).address);
                    router.clear_neighbours(now, address, &mut out);
                }
            }
            caller.act(out);
            caller.check(&router, &neighbours);
        }
        // Without traffic all that was asked for is answered or given up.
        let mut out = Vec::new();
        for _ in 0..20 {
            now += Duration::from_secs(5);
            router.tick(now, &mut out);
        }
        caller.act(out);
        caller.check(&router, &neighbours);
        prop_assert!(caller.waiting.is_empty());
    }

    #[test]
    fn any_frame_gets_an_answer_that_is_well_formed(frames in vec(any_frame(), 1..20)) {
        let mut router = router(&RouterConfig::default());
        let mut caller = Caller::default();
        for frame in frames {
            let mut out = Vec::new();
            if let Disposition::Answered(answer) = router.receive(Duration::ZERO, ON, &frame, &mut out) {
                assert_well_formed(&answer);
            }
            caller.act(out);
        }
    }

    #[test]
    fn any_bytes_are_data(frame in vec(any::<u8>(), 0..200)) {
        let mut router = router(&RouterConfig::default());
        let mut out = Vec::new();
        router.receive(Duration::ZERO, ON, &frame, &mut out);
        prop_assert!(out.is_empty());
        router.icmp_error(Duration::ZERO, ON, (&frame, frame.len()), Cause::NoRoute);
    }

    #[test]
    fn errors_are_short_well_formed_and_never_answered(
        frame in any_frame(),
        here in any::<prop::sample::Index>(),
        cause in prop::sample::select(CAUSES.to_vec()),
    ) {
        let limits = LimiterConfig { by_source: Rate { per_second: 1, burst: 1 }, ..LimiterConfig::ERRORS };
        let mut router = router(&RouterConfig { errors: limits, ..RouterConfig::default() });
        let head = &frame[..frame.len().min(60 + here.index(1500))];
        if let ErrorAnswer::Send(error) = router.icmp_error(Duration::ZERO, ON, (head, frame.len()), cause) {
            assert_well_formed(&error);
            let limit = if Layer2::parse(&error).unwrap().ethertype == IPV4 { 576 } else { 1280 };
            prop_assert!(error.len() <= 22 + limit);
            prop_assert_eq!(&error[..6], &frame[6..12]);
            for cause in CAUSES {
                let again = router.icmp_error(Duration::from_secs(9), ON, (&error, error.len()), cause);
                prop_assert!(matches!(again, ErrorAnswer::Not(_)), "{:?}", again);
            }
        }
    }
}
