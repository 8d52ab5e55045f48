//! The neighbour table over time: resolution, ageing, probes, loss and return, changed MACs, limits.

use super::action::{Action, Unsent};
use super::config::NeighbourConfig;
use super::entries::{Key, NeighbourState};
use super::frame::{Layer2, Tags};
use super::ip::V6;
use super::limiter::LimitRate;
use super::table::{HeardMac, Neighbours, Overrides};
use super::{arp, ndp};
use crate::ports::InterfaceId;
use crate::ports::PortTable;
use crate::ports::address_owner::tests::interfaces;
use fib::MacAddr;
use std::net::IpAddr;
use std::time::Duration;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 10]);
const REPLY: HeardMac = HeardMac {
    mac: Some(MAC),
    tags: Tags::NONE,
    is_solicited: true,
    overrides: Overrides::UnlessRecent,
    may_create: false,
};
const REQUEST: HeardMac = HeardMac { is_solicited: false, may_create: true, ..REPLY };
/// An unsolicited advertisement sent to all.
const GRATUITOUS: HeardMac = HeardMac { is_solicited: false, overrides: Overrides::Always, ..REPLY };

struct NeighbourRig {
    neighbours: Neighbours<u32>,
    ports: PortTable,
    now: Duration,
}

impl NeighbourRig {
    fn new(config: NeighbourConfig) -> Self {
        Self { neighbours: Neighbours::new(config), ports: interfaces(), now: Duration::from_secs(1000) }
    }

    fn resolve(&mut self, key: Key, packet: u32) -> Vec<Action<u32>> {
        let mut out = Vec::new();
        self.neighbours.resolve(self.now, &self.ports, key, (packet, Tags::NONE), &mut out);
        out
    }

    fn heard(&mut self, key: Key, heard: &HeardMac) -> Vec<Action<u32>> {
        let mut out = Vec::new();
        self.neighbours.heard(self.now, key, heard, &mut out);
        out
    }

    fn pin(&mut self, key: Key) -> Vec<Action<u32>> {
        let mut out = Vec::new();
        assert!(self.neighbours.pin(self.now, &self.ports, (key, Tags::NONE), &mut out));
        out
    }

    /// Advances to the next due time, which must be `seconds` from now.
    fn after(&mut self, seconds: u64) -> Vec<Action<u32>> {
        assert_eq!(self.neighbours.next_due(), Some(self.now + Duration::from_secs(seconds)));
        self.next()
    }

    /// Advances to the next due time; checks that nothing happens before it.
    fn next(&mut self) -> Vec<Action<u32>> {
        let due = self.neighbours.next_due().unwrap();
        let mut out = Vec::new();
        self.neighbours.tick(due - Duration::from_nanos(1), &self.ports, &mut out);
        assert_eq!(out, [], "too early");
        self.now = due;
        self.neighbours.tick(due, &self.ports, &mut out);
        out
    }

    fn state(&self, key: Key) -> Option<NeighbourState> {
        self.neighbours.get(key).map(|entry| entry.state)
    }

    fn reachable(&mut self, key: Key) {
        assert_eq!(asked(&self.resolve(key, 0)), Some((key.address, None)));
        assert_eq!(self.heard(key, &REPLY).len(), 2);
        assert_eq!(self.state(key), Some(NeighbourState::Reachable));
    }
}

fn key(address: &str) -> Key {
    Key::untagged(InterfaceId(0), address.parse().unwrap())
}

const V4: &str = "192.0.2.9";
const V6_: &str = "2001:db8::9";

fn asked(actions: &[Action<u32>]) -> Option<(IpAddr, Option<MacAddr>)> {
    let [Action::Send { interface: InterfaceId(0), frame }] = actions else { return None };
    let layer2 = Layer2::parse(frame).unwrap();
    let address = if let Some(message) = arp::ArpMessage::parse(&layer2) {
        assert!(message.is_request && message.sender == "192.0.2.1".parse::<std::net::Ipv4Addr>().unwrap());
        message.target.into()
    } else {
        let packet = V6::parse(layer2.payload, layer2.payload.len()).unwrap();
        let ndp::NdpMessage::Solicitation { target, mac } = ndp::NdpMessage::parse(&packet)? else {
            return None;
        };
        assert_eq!(mac, Some(layer2.source));
        target.into()
    };
    Some((address, Some(layer2.destination).filter(|mac| mac.0[0] & 1 == 0)))
}

fn resolved(key: Key, mac: MacAddr) -> Action<u32> {
    Action::Resolved { key, mac }
}

fn release(key: Key, mac: MacAddr, packets: &[u32]) -> Action<u32> {
    Action::Release { key, mac, packets: packets.to_vec() }
}

fn dropped(key: Key, why: Unsent, packets: &[u32]) -> Action<u32> {
    Action::Dropped { key, why, packets: packets.to_vec() }
}

fn lost(key: Key, mac: MacAddr) -> Action<u32> {
    Action::Lost { key, mac }
}

fn changed(key: Key, old: MacAddr, new: MacAddr) -> Action<u32> {
    Action::Changed { key, old, new }
}

#[test]
fn an_address_that_does_not_answer_is_asked_for_three_times() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        assert_eq!(asked(&table.resolve(key, 1)), Some((key.address, None)));
        assert_eq!(table.resolve(key, 2), []);
        assert_eq!(asked(&table.after(1)), Some((key.address, None)));
        assert_eq!(asked(&table.after(1)), Some((key.address, None)));
        assert_eq!(table.after(1), [dropped(key, Unsent::Unreachable, &[1, 2])]);
        // Hold-down: packets cause no request for a while.
        assert_eq!(table.resolve(key, 3), [dropped(key, Unsent::Unreachable, &[3])]);
        assert_eq!((table.after(3), table.state(key)), (vec![], None));
        assert_eq!(table.neighbours.next_due(), None);
        assert_eq!(asked(&table.resolve(key, 4)), Some((key.address, None)));
    }
}

#[test]
fn an_answer_releases_the_packets_in_order() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        for packet in 0..5 {
            table.resolve(key, packet);
        }
        assert_eq!(table.heard(key, &REPLY), [resolved(key, MAC), release(key, MAC, &[0, 1, 2, 3, 4])]);
        assert_eq!(table.resolve(key, 5), [release(key, MAC, &[5])]);
    }
}

#[test]
fn a_request_from_the_neighbour_answers_too() {
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V4));
    table.resolve(key, 1);
    assert_eq!(table.heard(key, &REQUEST), [resolved(key, MAC), release(key, MAC, &[1])]);
    // A request does not prove reachability, and the entry is in use: it is probed.
    assert_eq!(table.state(key), Some(NeighbourState::Delay));
    assert_eq!(asked(&table.after(5)), Some((key.address, Some(MAC))));
}

#[test]
fn later_packets_take_the_place_of_the_oldest() {
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V4));
    for packet in 0..32 {
        assert!(table.resolve(key, packet).len() <= 1);
    }
    assert_eq!(table.resolve(key, 32), [dropped(key, Unsent::QueueFull, &[0])]);
    assert_eq!(table.heard(key, &REPLY)[1], release(key, MAC, &(1..33).collect::<Vec<_>>()));
    let mut table = NeighbourRig::new(NeighbourConfig { waiting_max: 0, ..NeighbourConfig::default() });
    assert_eq!(table.resolve(key, 7)[1], dropped(key, Unsent::QueueFull, &[7]));
}

#[test]
fn packets_that_wait_for_all_neighbours_have_a_limit() {
    let config = NeighbourConfig { waiting_max: 4, waiting_all_max: 10, ..NeighbourConfig::default() };
    let mut table = NeighbourRig::new(config);
    let host = |last: u32| key(&format!("192.0.2.{}", 100 + last));
    let all: Vec<_> = (0..20).flat_map(|packet| table.resolve(host(packet / 4), packet)).collect();
    let full: Vec<_> = all.iter().filter(|action| matches!(action, Action::Dropped { .. })).collect();
    // A full queue replaces its own oldest packets; an empty one gets no room.
    let wanted: Vec<_> = [(2, 8), (2, 9), (3, 12), (3, 13), (3, 14), (3, 15)].into();
    let wanted = wanted.into_iter().chain((16..20).map(|packet| (4, packet)));
    let wanted: Vec<_> = wanted.map(|(of, packet)| dropped(host(of), Unsent::AllFull, &[packet])).collect();
    assert_eq!(full, wanted.iter().collect::<Vec<_>>());
    assert_eq!(table.heard(host(0), &REPLY)[1], release(host(0), MAC, &[0, 1, 2, 3]));
    assert_eq!(table.resolve(host(3), 20), [], "there is room again");
}

#[test]
fn a_neighbour_ages_is_probed_and_confirmed() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        table.reachable(key);
        let age = table.neighbours.next_due().unwrap() - table.now;
        assert!((15..=45).contains(&age.as_secs()), "{age:?}");
        assert_eq!((table.next(), table.state(key)), (vec![], Some(NeighbourState::Stale)));
        assert_eq!(table.resolve(key, 1), [release(key, MAC, &[1])], "a stale MAC is used");
        assert_eq!(table.state(key), Some(NeighbourState::Delay));
        assert_eq!(asked(&table.after(5)), Some((key.address, Some(MAC))));
        assert_eq!(table.heard(key, &REPLY), []);
        assert_eq!(table.state(key), Some(NeighbourState::Reachable));
    }
}

#[test]
fn a_neighbour_that_is_gone_is_lost() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        table.reachable(key);
        assert_eq!(table.next(), []);
        for seconds in [60, 1, 1] {
            assert_eq!(asked(&table.after(seconds)), Some((key.address, Some(MAC))));
        }
        assert_eq!(table.resolve(key, 1), [release(key, MAC, &[1])], "a probed MAC is used");
        assert_eq!((table.after(1), table.state(key)), (vec![lost(key, MAC)], None));
        table.reachable(key);
    }
}

#[test]
fn a_neighbour_whose_answer_may_have_been_dropped_is_asked_again() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        table.reachable(key);
        assert_eq!(table.next(), []);
        for seconds in [60, 1, 1] {
            table.neighbours.answers_lost(table.now, key.interface);
            assert_eq!(asked(&table.after(seconds)), Some((key.address, Some(MAC))));
        }
        for _ in 0..3 {
            table.neighbours.answers_lost(table.now, key.interface);
            assert_eq!(asked(&table.after(1)), Some((key.address, Some(MAC))));
        }
        // Lost answers on another interface, or before the last request, do not count.
        table.neighbours.answers_lost(table.now, InterfaceId(7));
        assert_eq!(table.after(1), [lost(key, MAC)]);
    }
}

#[test]
fn a_stale_neighbour_in_use_is_probed() {
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V4));
    table.heard(key, &REQUEST);
    assert_eq!(table.state(key), Some(NeighbourState::Stale));
    assert_eq!(table.resolve(key, 1), [release(key, MAC, &[1])]);
    assert_eq!(asked(&table.after(5)), Some((key.address, Some(MAC))));
}

#[test]
fn a_gateway_is_asked_for_until_it_returns() {
    for key in [V4, V6_].map(key) {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        assert_eq!(asked(&table.pin(key)), Some((key.address, None)));
        assert_eq!(table.pin(key), []);
        assert_eq!(table.heard(key, &REPLY), [resolved(key, MAC)]);
        assert_eq!(asked(&table.next()), Some((key.address, Some(MAC))));
        assert_eq!(table.heard(key, &REPLY), []);
        for seconds in [None, Some(1), Some(1)] {
            let actions = if let Some(seconds) = seconds { table.after(seconds) } else { table.next() };
            assert_eq!(asked(&actions), Some((key.address, Some(MAC))));
        }
        let actions = table.after(1);
        assert_eq!((&actions[0], asked(&actions[1..])), (&lost(key, MAC), Some((key.address, None))));
        for _ in 0..3 {
            assert_eq!(asked(&table.after(1)), Some((key.address, None)));
            assert_eq!(asked(&table.after(1)), Some((key.address, None)));
            assert_eq!((table.after(1), table.state(key)), (vec![], Some(NeighbourState::Failed)));
            assert_eq!(asked(&table.after(3)), Some((key.address, None)));
        }
        assert_eq!(table.heard(key, &HeardMac { mac: Some(OTHER_MAC), ..REPLY }), [resolved(key, OTHER_MAC)]);
        table.neighbours.unpin(key);
        assert_eq!((table.next(), table.state(key)), (vec![], Some(NeighbourState::Stale)));
    }
}

#[test]
fn a_failed_neighbour_that_speaks_up_is_back() {
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V4));
    table.resolve(key, 1);
    (0..3).for_each(|_| drop(table.after(1)));
    assert_eq!(table.state(key), Some(NeighbourState::Failed));
    assert_eq!(table.heard(key, &GRATUITOUS), [resolved(key, MAC)]);
    assert_eq!(table.resolve(key, 2), [release(key, MAC, &[2])]);
}

#[test]
fn a_changed_mac() {
    let other = |heard: &HeardMac| HeardMac { mac: Some(OTHER_MAC), ..*heard };
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V4));
    table.reachable(key);
    // Within the lock time the first reply wins.
    assert_eq!(table.heard(key, &other(&REPLY)), []);
    assert_eq!(table.state(key), Some(NeighbourState::Reachable));
    // A later reply is unsolicited.
    table.now += Duration::from_secs(1);
    assert_eq!(table.heard(key, &other(&REPLY)), [changed(key, MAC, OTHER_MAC)]);
    assert_eq!(table.state(key), Some(NeighbourState::Delay));
    // An announcement replaces the MAC at once, but does not prove reachability.
    assert_eq!(table.heard(key, &GRATUITOUS), [changed(key, OTHER_MAC, MAC)]);
    assert_eq!(
        (table.state(key), table.resolve(key, 1)),
        (Some(NeighbourState::Delay), vec![release(key, MAC, &[1])])
    );
    assert_eq!((table.heard(key, &GRATUITOUS), table.state(key)), (vec![], Some(NeighbourState::Delay)));
}

#[test]
fn an_advertisement_that_does_not_override_casts_doubt() {
    let doubt = HeardMac { mac: Some(OTHER_MAC), overrides: Overrides::Never, ..REPLY };
    let (mut table, key) = (NeighbourRig::new(NeighbourConfig::default()), key(V6_));
    table.reachable(key);
    assert_eq!((table.heard(key, &doubt), table.state(key)), (vec![], Some(NeighbourState::Stale)));
    assert!(!table.neighbours.heard(table.now, key, &doubt, &mut Vec::new()));
    // An advertisement without a MAC confirms the known MAC, but only after a request.
    let without = HeardMac { mac: None, overrides: Overrides::Never, ..REPLY };
    assert_eq!((table.heard(key, &without), table.state(key)), (vec![], Some(NeighbourState::Stale)));
    assert_eq!(asked(&table.next()), Some((key.address, Some(MAC))));
    assert_eq!((table.heard(key, &without), table.state(key)), (vec![], Some(NeighbourState::Reachable)));
    // It does not resolve an incomplete entry.
    let unknown = Key::untagged(key.interface, "2001:db8::77".parse().unwrap());
    table.resolve(unknown, 1);
    assert_eq!(table.heard(unknown, &without), []);
    assert_eq!(table.state(unknown), Some(NeighbourState::Incomplete { requests: 1 }));
}

#[test]
fn a_confirmation_lasts_a_time_of_its_own_and_a_repeated_request_is_of_no_use() {
    let seconds = Duration::from_secs;
    let config = |reachable| NeighbourConfig::default().with_reachable(seconds(reachable));
    let time_of = |last: u8| {
        let mut table = NeighbourRig::new(config(20));
        table.reachable(key(&format!("192.0.2.{last}")));
        table.neighbours.next_due().unwrap() - table.now
    };
    let times: std::collections::BTreeSet<_> = (2..60).map(time_of).collect();
    assert!(
        times.len() > 30 && times.iter().all(|time| (seconds(10)..=seconds(30)).contains(time)),
        "{times:?}"
    );
    assert_eq!((config(20).stale, config(20).delay, config(2).delay), (seconds(40), seconds(5), seconds(2)));
    let (mut table, key, mut out) = (NeighbourRig::new(config(20)), key(V4), Vec::new());
    table.reachable(key);
    let mut heard = |what: &HeardMac| table.neighbours.heard(table.now, key, what, &mut out);
    assert_eq!((heard(&REPLY), heard(&REQUEST)), (false, false));
}

/// Regression: it made the entry reachable for half a minute.
#[test]
fn an_answer_that_nobody_asked_for_is_probed_after_five_seconds() {
    let spoofed = |overrides| HeardMac { mac: Some(OTHER_MAC), overrides, ..REPLY };
    for (key, overrides) in [(key(V4), Overrides::UnlessRecent), (key(V6_), Overrides::Always)] {
        let mut table = NeighbourRig::new(NeighbourConfig::default());
        table.pin(key);
        table.heard(key, &REPLY);
        table.now += Duration::from_secs(2);
        // The same MAC again does not postpone the probe.
        let due = table.neighbours.next_due();
        assert_eq!((table.heard(key, &REPLY), table.neighbours.next_due()), (vec![], due));
        assert_eq!(table.heard(key, &spoofed(overrides)), [changed(key, MAC, OTHER_MAC)]);
        assert_eq!(asked(&table.after(5)), Some((key.address, Some(OTHER_MAC))));
        assert_eq!(asked(&table.after(1)), Some((key.address, Some(OTHER_MAC))));
        assert_eq!(asked(&table.after(1)), Some((key.address, Some(OTHER_MAC))));
        let actions = table.after(1);
        assert_eq!((&actions[0], asked(&actions[1..])), (&lost(key, OTHER_MAC), Some((key.address, None))));
        assert_eq!(table.heard(key, &REPLY), [resolved(key, MAC)]);
        assert_eq!(table.state(key), Some(NeighbourState::Reachable));
    }
}

#[test]
fn cleared_neighbours_are_resolved_again() {
    let mut table = NeighbourRig::new(NeighbourConfig::default());
    let (waiting, gateway) = (key("192.0.2.10"), key("192.0.2.11"));
    table.reachable(key(V4));
    table.resolve(waiting, 1);
    table.pin(gateway);
    table.heard(gateway, &REPLY);
    let clear = |table: &mut NeighbourRig, address| {
        let mut out = Vec::new();
        (table.neighbours.clear(table.now, &table.ports, address, &mut out), out)
    };
    let none = key("192.0.2.77").address;
    assert_eq!(clear(&mut table, Some(none)), (0, vec![]));
    assert_eq!(clear(&mut table, Some(key(V4).address)), (1, vec![lost(key(V4), MAC)]));
    table.reachable(key(V4));
    let (count, actions) = clear(&mut table, None);
    let gone = [lost(key(V4), MAC), dropped(waiting, Unsent::Removed, &[1]), lost(gateway, MAC)];
    assert_eq!((count, &actions[..3], asked(&actions[3..])), (3, &gone[..], Some((gateway.address, None))));
    assert_eq!(table.state(gateway), Some(NeighbourState::Incomplete { requests: 1 }));
    assert_eq!(table.neighbours.iter().count(), 1);
    let failed = key("192.0.2.12");
    table.resolve(failed, 2);
    while table.state(failed) != Some(NeighbourState::Failed) {
        table.next();
    }
    assert_eq!(table.resolve(failed, 3), [dropped(failed, Unsent::Unreachable, &[3])]);
    clear(&mut table, Some(failed.address));
    assert!(asked(&table.resolve(failed, 4)).is_some());
}

#[test]
fn what_cannot_be_a_neighbour() {
    let mut table = NeighbourRig::new(NeighbourConfig::default());
    let texts = [
        "192.0.2.1",
        "203.0.113.1",
        "192.0.2.255",
        "224.0.0.1",
        "127.0.0.1",
        "0.0.0.0",
        "ff02::1",
        "::1",
        "2001:db8::1",
    ];
    for text in texts {
        assert_eq!(table.resolve(key(text), 1), [dropped(key(text), Unsent::Unresolvable, &[1])], "{text}");
    }
    let nowhere = Key::untagged(InterfaceId(9), key(V4).address);
    assert_eq!(table.resolve(nowhere, 1), [dropped(nowhere, Unsent::Unresolvable, &[1])]);
    let mut out = Vec::new();
    assert!(!table.neighbours.pin(table.now, &table.ports, (nowhere, Tags::NONE), &mut out));
}

#[test]
fn neighbours_stay_in_their_vlan() {
    let tagged = [&[2_u8; 12][..], &[0x81, 0, 0x20, 7, 8, 6]].concat();
    let tags = Layer2::parse(&tagged).unwrap().tags;
    let (mut table, plain, mut out) = (NeighbourRig::new(NeighbourConfig::default()), key(V4), Vec::new());
    let key = Key::new(plain.interface, plain.address, &tags);
    table.neighbours.resolve(table.now, &table.ports, key, (1, tags), &mut out);
    let Action::Send { frame, .. } = &out[0] else { panic!("{out:?}") };
    assert_eq!(frame[12..16], [0x81, 0, 0x20, 7]);
    assert_eq!(table.heard(plain, &REPLY), [], "from another VLAN");
    assert_eq!(table.heard(key, &HeardMac { tags, ..REPLY }).len(), 2);
    assert_eq!(table.heard(plain, &HeardMac { mac: Some(OTHER_MAC), ..GRATUITOUS }), []);
}

#[test]
fn a_scan_costs_neither_memory_nor_the_known_neighbours() {
    let config = NeighbourConfig { incomplete_max: 100, ..NeighbourConfig::default() };
    let mut table = NeighbourRig::new(config);
    table.reachable(key(V4));
    let (mut requests, mut packets) = (0, 0);
    for host in 0..200_000_u32 {
        table.now += Duration::from_micros(50);
        let address = IpAddr::V4((0x0a00_0000 + host).into());
        for action in table.resolve(Key::untagged(InterfaceId(0), address), host) {
            match action {
                Action::Send { .. } => requests += 1,
                Action::Dropped { why: Unsent::TableFull | Unsent::Limited, packets: some, .. } => {
                    packets += some.len()
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(table.neighbours.iter().count() <= 101 || host % 1000 != 0);
    }
    // 10 s at 1000/s, plus a burst of 500, minus the requests still unanswered.
    assert!((9_000..=10_500).contains(&requests), "{requests}");
    assert_eq!(packets, 200_000 - 100);
    assert_eq!(table.neighbours.iter().count(), 101);
    assert_eq!(table.resolve(key(V4), 1), [release(key(V4), MAC, &[1])]);
    while table.neighbours.next_due().is_some_and(|due| due < table.now + Duration::from_secs(7)) {
        table.next();
    }
    assert_eq!(table.neighbours.iter().count(), 1);
}

#[test]
fn gateways_that_do_not_answer_keep_no_host_out() {
    let config = NeighbourConfig { incomplete_max: 4, ..NeighbourConfig::default() };
    let mut table = NeighbourRig::new(config);
    let gateway = |last: u8| Key::untagged(InterfaceId(0), IpAddr::from([10, 0, 0, last]));
    for last in 1..=100 {
        assert!(matches!(table.pin(gateway(last))[..], [Action::Send { .. }]));
    }
    assert!(matches!(table.resolve(key(V4), 1)[..], [Action::Send { .. }]), "it is asked for");
    assert_eq!(table.heard(key(V4), &REPLY).len(), 2, "resolved, and its packet released");
    // The limit leaves out pinned entries: pinning a host frees its place, unpinning takes it again.
    for last in 101..=104 {
        table.resolve(gateway(last), 1);
    }
    table.pin(gateway(101));
    assert!(matches!(table.resolve(gateway(105), 1)[..], [Action::Send { .. }]), "there is room for one");
    table.neighbours.unpin(gateway(101));
    assert!(matches!(
        table.resolve(gateway(106), 1)[..],
        [Action::Dropped { why: Unsent::TableFull, .. }, ..]
    ));
}

#[test]
fn a_full_table_forgets_what_is_of_least_use() {
    let config = NeighbourConfig { entries_max: 10, ..NeighbourConfig::default() };
    let mut table = NeighbourRig::new(config);
    let host = |last: u8| Key::untagged(InterfaceId(0), IpAddr::from([192, 0, 2, last]));
    table.reachable(host(9));
    table.pin(host(10));
    for last in 100..120 {
        table.now += Duration::from_millis(1);
        table.heard(host(last), &REQUEST);
        assert!(table.neighbours.iter().count() <= 10);
    }
    assert!(table.state(host(9)).is_some() && table.state(host(10)).is_some());
    assert_eq!((table.state(host(111)), table.state(host(112))), (None, Some(NeighbourState::Stale)));
    let actions = table.resolve(host(50), 1);
    assert_eq!((&actions[0], asked(&actions[1..])), (&lost(host(112), MAC), Some((host(50).address, None))));
    for last in 113..120 {
        table.resolve(host(last), 9);
    }
    assert_eq!(table.resolve(host(51), 2).len(), 2, "an unanswered one goes");
    assert_eq!((table.heard(host(53), &REQUEST), table.state(host(51)).is_some()), (vec![], true));
    table.heard(host(51), &REPLY);
    assert_eq!(table.heard(host(53), &REQUEST), [], "the others are in use");
    // It evicts the entry with the oldest confirmation, and none once all are confirmed.
    let actions = table.resolve(host(52), 3);
    assert_eq!((&actions[0], asked(&actions[1..])), (&lost(host(113), MAC), Some((host(52).address, None))));
    table.heard(host(52), &REPLY);
    for last in 114..120 {
        let actions = table.resolve(host(last - 60), 3);
        assert_eq!(actions[0], lost(host(last), MAC));
        table.heard(host(last - 60), &REPLY);
    }
    assert_eq!(table.resolve(host(60), 3), [dropped(host(60), Unsent::TableFull, &[3])]);
}

#[test]
fn times_of_zero_do_not_stop_the_clock() {
    let zero = Duration::ZERO;
    let config = NeighbourConfig {
        retransmit: zero,
        reachable: zero,
        delay: zero,
        stale: zero,
        hold_down: zero,
        lock: Duration::MAX,
        ..NeighbourConfig::default()
    };
    let mut table = NeighbourRig::new(config);
    table.pin(key(V4));
    for _ in 0..100 {
        table.next();
    }
    assert_eq!(table.heard(key(V4), &REPLY), [resolved(key(V4), MAC)]);
    for _ in 0..100 {
        table.next();
    }
    let mut table = NeighbourRig::new(NeighbourConfig { reachable: Duration::MAX / 2, ..config });
    table.reachable(key(V4));
}

#[test]
fn new_resolutions_have_a_rate() {
    let resolutions = LimitRate { per_second: 10, burst: 2 };
    let mut table = NeighbourRig::new(NeighbourConfig { resolutions, ..NeighbourConfig::default() });
    let host = |last: u8| Key::untagged(InterfaceId(0), IpAddr::from([192, 0, 2, last]));
    assert!(asked(&table.resolve(host(10), 1)).is_some() && asked(&table.resolve(host(11), 2)).is_some());
    assert_eq!(table.resolve(host(12), 3), [dropped(host(12), Unsent::Limited, &[3])]);
    // The rate is per interface, and gateways are exempt.
    assert_eq!(table.resolve(Key::untagged(InterfaceId(1), host(12).address), 4).len(), 1);
    assert!(asked(&table.pin(host(12))).is_some());
}

#[test]
fn a_link_that_went_down_and_up() {
    let mut table = NeighbourRig::new(NeighbourConfig::default());
    let [waiting, gateway, unpinned] = ["192.0.2.10", "192.0.2.11", "192.0.2.12"].map(key);
    table.reachable(key(V4));
    table.resolve(waiting, 1);
    for gateway in [gateway, unpinned] {
        table.pin(gateway);
        table.heard(gateway, &REPLY);
    }
    let mut out = Vec::new();
    table.neighbours.link_down(table.now, InterfaceId(0), &mut out);
    let all_lost = [
        lost(key(V4), MAC),
        dropped(waiting, Unsent::Removed, &[1]),
        lost(gateway, MAC),
        lost(unpinned, MAC),
    ];
    assert_eq!(out, all_lost);
    assert_eq!(table.neighbours.iter().count(), 2);
    table.neighbours.unpin(unpinned);
    assert_eq!(table.resolve(gateway, 2), [dropped(gateway, Unsent::Unreachable, &[2])]);
    assert_eq!(table.resolve(waiting, 3).len(), 1);
    // Requests are useless while the link is down. Once it is up, each neighbour is asked at once.
    out.clear();
    table.neighbours.link_up(table.now, &table.ports, InterfaceId(0), &mut out);
    assert_eq!(out.len(), 2);
    assert_eq!(asked(&out[..1]), Some((waiting.address, None)));
    assert_eq!(asked(&out[1..]), Some((gateway.address, None)));
    assert_eq!(asked(&table.resolve(unpinned, 4)), Some((unpinned.address, None)));
    table.neighbours.remove_all(InterfaceId(0), &mut out);
    assert_eq!((table.neighbours.iter().count(), table.neighbours.next_due()), (0, None));
}
