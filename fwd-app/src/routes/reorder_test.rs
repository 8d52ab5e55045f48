//! A new order of sources, amid their updates, against a forwarder that started with this order.

use super::refused_test::numbered;
use super::*;
use crate::ports::PortTable;
use fib::faulty::{Call, How};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SOURCES: [SourceId; 3] = [SourceId::FILES, SourceId::of_feed(FPM.0), SourceId::of_feed(KERNEL.0)];
/// The prefixes; from 8 on IPv6.
const PREFIXES: u32 = 12;

/// The route numbers of sources, by source and prefix.
type Said = BTreeMap<(usize, u32), u8>;

#[derive(Clone, Debug)]
enum OrderStep {
    Say { source: usize, at: u32, route: Option<u8> },
    Order(Vec<SourceId>),
    Slice,
}

fn steps() -> impl Strategy<Value = Vec<OrderStep>> {
    let step = prop_oneof![
        10 => (0..3_usize, 0..PREFIXES, prop::option::weighted(0.6, 1..20_u8))
            .prop_map(|(source, at, route)| OrderStep::Say { source, at, route }),
        1 => Just(SOURCES.to_vec()).prop_shuffle().prop_map(OrderStep::Order),
        4 => Just(OrderStep::Slice),
    ];
    prop::collection::vec(step, 1..200)
}

fn nth_prefix(number: u32) -> IpPrefix {
    let text = if number < 8 { format!("40.0.{number}.0/24") } else { format!("4000:{number}::/48") };
    text.parse().unwrap()
}

impl SourcesRig {
    fn with_order(order: &[SourceId]) -> Self {
        let mut rig = Self::new();
        rig.feeds.set_order(order.to_vec());
        rig.feeds.apply_rules(&mut rig.vrf).unwrap();
        rig
    }

    fn say(&mut self, source: usize, prefix: IpPrefix, route: Option<u8>) {
        let hop = |last| NextHop::Gateway { gateway: gateway(last), port: PortRef::Index(0) };
        let feed = match source {
            0 => {
                let action = route.map_or(Action::Withdraw, |last| Action::Announce(Hop::Hop(hop(last))));
                self.vrf.update(&Update { time_s: 0.0, prefix, action, peer: None }).unwrap();
                self.vrf.commit().unwrap();
                return;
            }
            1 => FPM,
            _ => KERNEL,
        };
        let paths = |last| Box::new([Path { gateway: Some(gateway(last)), ifindex: 10, weight: 1 }]);
        let event = match route {
            Some(last) => {
                let route = Arc::new(Route::Paths(paths(last)));
                FeedEvent::Announce { vrf: 0, prefix, metric: 0, route }
            }
            None => FeedEvent::Withdraw { vrf: 0, prefix, metric: 0 },
        };
        self.sender.send(ChangeSet { feed, events: vec![event] }).unwrap();
        assert!(self.learn());
    }

    fn hops_in_service(&self) -> Vec<Option<String>> {
        let mut reader = self.vrf.engine().reader(1, 1).unwrap();
        let hop = |number| {
            let mut answer = [NextHopId::NONE];
            match nth_prefix(number) {
                IpPrefix::V4(prefix) => reader.lookup(Keys::V4(&[prefix.address() + 1]), &mut answer),
                IpPrefix::V6(prefix) => {
                    let key = prefix.address() + 1;
                    #[expect(clippy::cast_possible_truncation, reason = "the halves of an address")]
                    let (hi, lo) = ((key >> 64) as u64, key as u64);
                    reader.lookup(Keys::V6 { hi: &[hi], lo: &[lo] }, &mut answer)
                }
            }
            .unwrap();
            (!answer[0].is_none()).then(|| self.vrf.hops().get(answer[0]).unwrap().to_string())
        };
        (0..PREFIXES).map(hop).collect()
    }

    fn change_order(&mut self, order: &[SourceId]) -> usize {
        self.feeds.set_order(order.to_vec());
        self.vrf.candidates.set_order(order)
    }
}

fn has_route(said: &Said) -> Vec<bool> {
    (0..PREFIXES).map(|number| (0..3).any(|source| said.contains_key(&(source, number)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After any updates during changes of the order, the routes in service equal the routes of a forwarder that started with the last order,
    /// and a prefix with a route is never without one.
    #[test]
    fn the_winners_are_those_of_a_forwarder_started_with_the_order(
        first in Just(SOURCES.to_vec()).prop_shuffle(),
        steps in steps(),
        slice in 1..4_usize,
    ) {
        let mut rig = SourcesRig::with_order(&first);
        rig.vrf.candidates.marked.per_commit = slice;
        let (mut said, mut order) = (Said::new(), first);
        for step in steps {
            match step {
                OrderStep::Say { source, at: number, route } => {
                    // The feeds need a route to withdraw.
                    let before = match route {
                        Some(route) => said.insert((source, number), route),
                        None => said.remove(&(source, number)),
                    };
                    if before != route {
                        rig.say(source, nth_prefix(number), route);
                    }
                }
                OrderStep::Order(wanted) => {
                    order = wanted;
                    rig.change_order(&order);
                }
                OrderStep::Slice => drop(rig.learn()),
            }
            let in_service: Vec<_> = rig.hops_in_service().iter().map(Option::is_some).collect();
            prop_assert_eq!(in_service, has_route(&said));
        }
        while rig.learn() {}
        let mut fresh = SourcesRig::with_order(&order);
        for ((source, number), route) in said {
            fresh.say(source, nth_prefix(number), Some(route));
        }
        prop_assert_eq!(rig.hops_in_service(), fresh.hops_in_service());
        prop_assert_eq!(rig.vrf.rib().len(), fresh.vrf.rib().len());
    }
}

#[test]
fn prefixes_of_several_sources_are_counted_and_chosen_anew() {
    let mut rig = SourcesRig::with_order(&SOURCES);
    rig.say(0, nth_prefix(1), Some(1));
    rig.say(1, nth_prefix(1), Some(2));
    rig.say(1, nth_prefix(2), Some(2));
    rig.say(2, nth_prefix(2), Some(2));
    rig.say(0, nth_prefix(3), Some(3));
    let deltas = rig.vrf.tally.deltas;
    assert_eq!(rig.change_order(&[SOURCES[2], SOURCES[1], SOURCES[0]]), 2);
    assert!(rig.vrf.candidates.walk.is_pending() && rig.learn() && !rig.vrf.candidates.walk.is_pending());
    // The second prefix has a new winner with the same next hop.
    assert_eq!(rig.vrf.tally.deltas, deltas + 1);
    assert_eq!(rig.hops_in_service()[1].as_deref(), Some("via 192.0.2.2 dev 0"));
}

#[test]
fn an_entry_that_ends_before_it_is_chosen_leaves_the_route_of_the_files() {
    let mut rig = SourcesRig::with_order(&[SOURCES[1], SOURCES[2], SOURCES[0]]);
    rig.say(0, nth_prefix(1), Some(1));
    rig.say(1, nth_prefix(1), Some(2));
    assert_eq!(rig.hops_in_service()[1].as_deref(), Some("via 192.0.2.2 dev 0"));
    rig.change_order(&SOURCES);
    rig.say(1, nth_prefix(1), None);
    assert_eq!(rig.hops_in_service()[1].as_deref(), Some("via 192.0.2.1 dev 0"));
    assert!(!rig.vrf.candidates.has(nth_prefix(1)), "the RIB alone has it");
}

#[test]
fn an_engine_that_refuses_the_new_order_keeps_the_routes_until_it_takes_it() {
    let (mut rig, faults) = SourcesRig::with_faults();
    for number in 1..20 {
        let FeedEvent::Announce { prefix, .. } = numbered(number).1 else { panic!("not an announcement") };
        rig.says(FPM, vec![numbered(number).1]);
        rig.say(0, prefix, Some(9));
    }
    while rig.learn() {}
    assert_eq!(rig.in_service(1..20), 0, "the files are preferred");
    let routes = rig.vrf.rib().v4.sorted();
    rig.change_order(&[SOURCES[1], SOURCES[2], SOURCES[0]]);
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.tries_again();
    assert_eq!((rig.vrf.rib().v4.sorted(), rig.vrf.refused.len()), (routes, 19));
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.tries_again();
    assert_eq!((rig.in_service(1..20), rig.vrf.refused.len()), (19, 0));
    // When its entry ends, the file's route remains.
    rig.says(FPM, vec![FeedEvent::Stale, FeedEvent::Sweep]);
    assert_eq!(rig.in_service(1..20), 0);
}

#[test]
fn another_order_waits_for_no_other_event() {
    let mut rig = SourcesRig::with_order(&SOURCES);
    rig.vrf.candidates.marked.per_commit = 1;
    for number in 1..6 {
        rig.say(0, nth_prefix(number), Some(1));
        rig.say(1, nth_prefix(number), Some(2));
    }
    while rig.learn() {}
    assert_eq!(rig.change_order(&[SOURCES[1], SOURCES[0], SOURCES[2]]), 5);
    let mut turns = 0;
    while rig.vrf.candidates.walk.is_reordering() {
        turns += 1;
        assert!(turns < 10, "links that come and go delay it");
        PortTable::change(&rig.ports, |table| table.ports[0].is_up = turns % 2 == 0);
        rig.vrf.commit().unwrap();
        rig.learn();
    }
    assert!(rig.vrf.candidates.has_pending());
    PortTable::change(&rig.ports, |table| table.ports[0].is_up = true);
    rig.vrf.commit().unwrap();
    while rig.learn() {}
    let hops = rig.hops_in_service();
    assert!((1..6).all(|number| hops[number].as_deref() == Some("via 192.0.2.2 dev 0")), "{hops:?}");
}
