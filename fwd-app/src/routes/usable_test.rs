//! Routes whose next hop cannot forward, and those that replace them.

use super::refused_test::numbered;
use super::*;
use crate::ports::PortTable;
use fib::faulty::{Call, How};

impl SourcesRig {
    /// Sets the link of a port, and does all work that follows.
    pub(super) fn link_of(&mut self, port: usize, is_up: bool) {
        PortTable::change(&self.ports, |table| table.ports[port].is_up = is_up);
        self.vrf.commit().unwrap();
        while self.learn() {}
    }
}

fn via(last: u8, port: Option<u16>) -> NextHop {
    NextHop::Gateway { gateway: gateway(last), port: port.map_or(PortRef::ById, PortRef::Index) }
}

#[test]
fn a_route_over_a_link_that_is_down_leaves_its_place_to_another() {
    let connected = NextHop::Connected { port: PortRef::Index(1) };
    let group = fib::Group::next_hop([(via(4, Some(1)), 1), (via(5, Some(1)), 1)]).unwrap();
    for hop in [connected.clone(), via(1, Some(1)), NextHop::Port { port: 1 }, group] {
        let mut rig = SourcesRig::new();
        rig.says(KERNEL, vec![announce(7, 10)]);
        // From an address, a file and the control socket.
        for source in 0..3 {
            match source {
                0 if hop != connected => continue,
                0 => rig.vrf.set_own_routes(vec![(prefix(), hop.clone())]).unwrap(),
                1 => rig.file(Action::Announce(Hop::Hop(hop.clone()))),
                _ => drop(rig.vrf.add_route(prefix(), &Hop::Hop(hop.clone())).unwrap()),
            }
            rig.vrf.commit().unwrap();
            while rig.learn() {}
            let preferred = rig.hop();
            assert_ne!(preferred, "via 192.0.2.7 dev 0");
            rig.link_of(1, false);
            assert_eq!(rig.hop(), "via 192.0.2.7 dev 0", "{hop} of source {source}");
            rig.link_of(0, false);
            assert_eq!(rig.hop(), preferred, "the preferred one of those that cannot forward");
            rig.link_of(0, true);
            assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
            rig.link_of(1, true);
            assert_eq!(rig.hop(), preferred);
            match source {
                0 => rig.vrf.set_own_routes(Vec::new()).unwrap(),
                1 => rig.file(Action::Withdraw),
                _ => rig.vrf.remove_route(prefix()).unwrap(),
            }
        }
    }
}

#[test]
fn a_route_that_is_new_and_cannot_forward_displaces_none() {
    let mut rig = SourcesRig::with_feeds_before_files(2);
    rig.link_of(1, false);
    rig.says(KERNEL, vec![announce(7, 10)]);
    let before = rig.vrf.tally.deltas;
    rig.says(FPM, vec![announce(8, 11)]);
    rig.vrf.add_route(prefix(), &Hop::Hop(via(9, Some(1)))).unwrap();
    rig.vrf.commit().unwrap();
    assert_eq!((rig.hop().as_str(), rig.vrf.tally.deltas), ("via 192.0.2.7 dev 0", before));
    let id = rig.vrf.hops().find(&via(9, Some(1))).unwrap();
    let unusable = |rig: &SourcesRig| rig.vrf.egress.table().unwrap().load().unusable(id);
    assert_eq!(unusable(&rig).unwrap().to_string(), "its link is down");
    rig.link_of(1, true);
    assert_eq!((rig.hop().as_str(), unusable(&rig)), ("via 192.0.2.9 dev 1", None));
}

#[test]
fn a_gateway_that_no_port_reaches_leaves_its_place_until_one_does() {
    let mut rig = SourcesRig::new();
    rig.says(KERNEL, vec![announce(7, 10)]);
    rig.file(Action::Announce(Hop::Hop(via(200, None))));
    while rig.learn() {}
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    let link = NextHop::Connected { port: PortRef::Index(1) };
    rig.vrf.set_own_routes(vec![("192.0.2.128/25".parse().unwrap(), link)]).unwrap();
    rig.vrf.commit().unwrap();
    while rig.learn() {}
    assert_eq!(rig.hop(), "via 192.0.2.200");
    rig.link_of(1, false);
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    let mac = MacAddr([2; 6]);
    rig.vrf.egress.add_neighbour(Neighbour { address: gateway(200), port: PortRef::Index(0), mac }).unwrap();
    while rig.learn() {}
    assert_eq!(rig.hop(), "via 192.0.2.200", "a neighbour needs no route");
}

#[test]
fn a_route_that_leads_back_to_its_gateway_does_not_come_and_go() {
    let mut rig = SourcesRig::new();
    rig.says(KERNEL, vec![announce(7, 10)]);
    let within = NextHop::Gateway { gateway: "198.18.0.9".parse().unwrap(), port: PortRef::ById };
    rig.file(Action::Announce(Hop::Hop(within)));
    let turns = std::iter::repeat_with(|| rig.learn()).take_while(|worked| *worked).take(100).count();
    assert!(turns < 10, "{turns}");
}

#[test]
fn only_prefixes_with_several_candidates_are_chosen_anew_when_a_link_fails() {
    let mut rig = SourcesRig::new();
    rig.says(KERNEL, (0..1000).map(|number| numbered(number).1).collect());
    rig.says(FPM, vec![numbered(5).1]);
    let deltas = rig.vrf.tally.deltas;
    PortTable::change(&rig.ports, |table| table.ports[0].is_up = false);
    rig.vrf.commit().unwrap();
    assert_eq!(rig.vrf.candidates.walk(usize::MAX), [numbered(5).0]);
    assert_eq!(rig.vrf.tally.deltas, deltas);
}

#[test]
fn a_link_that_comes_and_goes_while_its_prefixes_are_chosen_loses_none() {
    let mut rig = SourcesRig::new();
    rig.vrf.candidates.marked.per_commit = 2;
    let route = |last, ifindex| {
        let path = Path { gateway: Some(gateway(last)), ifindex, weight: 1 };
        Arc::new(Route::Paths(Box::new([path])))
    };
    let all = |rig: &mut SourcesRig, feed, last, ifindex| {
        let events = (0..10).map(|number| {
            let (prefix, _) = numbered(number);
            FeedEvent::Announce { vrf: 0, prefix, metric: 0, route: route(last, ifindex) }
        });
        rig.says(feed, events.collect());
    };
    all(&mut rig, FPM, 8, 11);
    all(&mut rig, KERNEL, 7, 10);
    while rig.learn() {}
    assert_eq!(rig.in_service(0..10), 0, "the first feed is preferred");
    let flip = |rig: &SourcesRig, port: usize, is_up| {
        PortTable::change(&rig.ports, |table| table.ports[port].is_up = is_up);
    };
    for turns in 0..8 {
        flip(&rig, 1, false);
        rig.vrf.commit().unwrap();
        for turn in 0..turns {
            rig.learn();
            assert_eq!(rig.in_service(0..10), (2 * (turn + 1)).min(10), "a part in each turn");
        }
        flip(&rig, 1, true);
        rig.vrf.commit().unwrap();
        rig.learn();
        flip(&rig, 1, false);
        rig.vrf.commit().unwrap();
        while rig.learn() {}
        assert_eq!(rig.in_service(0..10), 10);
        flip(&rig, 1, true);
        rig.vrf.commit().unwrap();
        while rig.learn() {}
        assert_eq!(rig.in_service(0..10), 0);
    }
}

#[test]
fn a_withdrawal_waits_for_no_refused_route() {
    let (mut rig, faults) = SourcesRig::with_faults();
    let before = rig.hop();
    rig.says(KERNEL, vec![announce(7, 10)]);
    // A second route of the prefix is refused, and then withdrawn.
    *faults.refused.lock().unwrap() = vec![prefix()];
    rig.says(FPM, vec![announce(8, 11)]);
    assert_eq!((rig.hop().as_str(), rig.vrf.refused.len()), ("via 192.0.2.7 dev 0", 1));
    faults.refused.lock().unwrap().clear();
    let calls = faults.calls(Call::Apply);
    rig.says(KERNEL, vec![withdraw()]);
    assert_eq!((rig.hop().as_str(), rig.vrf.refused.len()), ("via 192.0.2.7 dev 0", 1), "what is left waits");
    rig.says(FPM, vec![withdraw()]);
    assert_eq!((rig.hop(), rig.vrf.refused.len(), faults.calls(Call::Apply)), (before, 0, calls + 1));
    // The withdrawal itself may be refused.
    rig.says(KERNEL, vec![announce(7, 10)]);
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.says(KERNEL, vec![withdraw()]);
    assert_eq!((rig.hop().as_str(), rig.vrf.refused.len()), ("via 192.0.2.7 dev 0", 1));
}
