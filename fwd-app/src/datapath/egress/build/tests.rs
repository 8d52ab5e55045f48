//! Resolution of gateways and groups as neighbours, links and routes change.

use super::super::Unusable;
use super::super::learned::Learner;
use super::super::tests::ports;
use super::*;
use fib::feed::{Hop, parse_route};
use fib::{IpPrefix, Neighbour};

struct EgressRig {
    rib: Rib,
    hops: NextHopTable,
    learned: Learned,
    ports: Vec<EgressPort>,
}

impl EgressRig {
    /// With ports p0 to p3.
    fn new(routes: &[&str]) -> Self {
        let mut rig =
            Self { rib: Rib::new(), hops: NextHopTable::new(), learned: Learned::default(), ports: ports(4) };
        for route in routes {
            rig.route(route);
        }
        rig
    }

    fn route(&mut self, text: &str) -> NextHopId {
        let (prefix, hop) = parse_route(text).unwrap();
        let id = match hop {
            Hop::Id(id) => self.hops.bare(id.get()).unwrap(),
            Hop::Hop(hop) => self.hops.intern(hop).unwrap(),
        };
        self.rib.set(prefix, id);
        id
    }

    fn neighbour(&mut self, address: &str, port: u16) {
        let (address, port) = (address.parse().unwrap(), PortRef::Index(port));
        self.hops.set_neighbour(Neighbour { address, port, mac: MacAddr([2; 6]) });
    }

    fn learn(&mut self, at: &str, port: u16, mac: Option<u8>) {
        let at = LearnedKey { address: address(at), port, by: Learner::Router([0; 2]) };
        self.learned.set(at, mac.map(|byte| MacAddr([byte; 6])));
    }

    fn build(&self, before: Option<&EgressTable>, stopped: &[u16]) -> EgressTable {
        let Self { rib, hops, learned, ports } = self;
        let inputs = Inputs { stopped, ecmp_seed: 1, before, ..Inputs::new(hops, ports, rib, learned) };
        EgressTable::build(&inputs).unwrap()
    }

    fn table(&self) -> EgressTable {
        self.build(None, &[])
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn reason(table: &EgressTable, id: NextHopId) -> Option<DropReason> {
    Exit::from_word(table.get(id).port).drop_reason()
}

fn alive(table: &EgressTable, id: NextHopId) -> Vec<bool> {
    table.paths(id).unwrap().iter().map(|path| path.share.is_some()).collect()
}

#[test]
fn a_path_is_alive_while_it_has_a_link_and_a_mac() {
    let mut rig = EgressRig::new(&[]);
    let group = rig
        .route("10.0.0.0/8 nexthop via 192.0.2.1 dev 0 nexthop via 192.0.2.2 dev 1 nexthop dev 2 weight 2");
    rig.neighbour("192.0.2.1", 0);
    let table = rig.table();
    assert_eq!(alive(&table, group), [true, false, true]);
    assert_eq!((Exit::from_word(table.get(group).port), table.group_counts()), (Exit::Group, (1, 3, 2)));
    let shares: f64 = table.paths(group).unwrap().iter().filter_map(|path| path.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert_eq!(table.missing().collect::<Vec<_>>(), [(address("192.0.2.2"), Some(1))]);
    rig.learn("192.0.2.2", 1, Some(4));
    assert_eq!(alive(&rig.table(), group), [true, true, true]);
    assert_eq!(alive(&rig.build(None, &[0, 2]), group), [false, true, false]);
    rig.ports[0].is_up = false;
    assert_eq!(alive(&rig.table(), group), [false, true, true]);
    rig.ports[2].is_up = false;
    rig.learn("192.0.2.2", 1, None);
    let table = rig.table();
    assert_eq!(
        (alive(&table, group), reason(&table, group)),
        (vec![false; 3], Some(DropReason::NoNeighbour))
    );
    // A packet resolves the gateway on the link that is up; the table lists every gateway of the group without a MAC from a feed.
    assert_eq!(table.wanted(group, address("10.0.0.1")), Some((address("192.0.2.2"), Some(1))));
    assert!(table.gateways().all(|gateway| gateway == (address("192.0.2.2"), Some(1))));
}

#[test]
fn a_next_hop_without_a_route_is_no_gateway() {
    let mut rig = EgressRig::new(&[]);
    let single = rig.route("10.0.0.0/8 via 192.0.2.1 dev 0");
    let group = rig.route("11.0.0.0/8 nexthop via 192.0.2.2 dev 1 nexthop via 192.0.2.3 dev 2");
    rig.route("12.0.0.0/8 via 192.0.2.1 dev 0");
    let gateways = |table: &EgressTable| {
        let addresses = table.gateways().map(|(address, _)| address.to_string());
        addresses.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
    };
    let mut set = |prefix: &str, id| {
        rig.rib.set(prefix.parse().unwrap(), id);
        let before = gateways(&rig.table());
        (before, rig.table())
    };
    let (all, table) = set("10.0.0.0/8", NextHopId::NONE);
    assert_eq!(all, "192.0.2.1 192.0.2.2 192.0.2.3", "another route has it");
    let (_, without_group) = set("11.0.0.0/8", NextHopId::NONE);
    assert_eq!(gateways(&without_group), "192.0.2.1");
    let (none, _) = set("12.0.0.0/8", NextHopId::NONE);
    assert_eq!(none, "");
    let (_, back) = set("10.0.0.0/8", single);
    assert_eq!((gateways(&back), back.missing().count()), ("192.0.2.1".to_owned(), 1));
    assert!(table.has_other_gateways(&rig.rib) && !back.has_other_gateways(&rig.rib));
    rig.rib.set("10.0.0.0/9".parse().unwrap(), single);
    assert!(!back.has_other_gateways(&rig.rib));
    rig.rib.set("11.0.0.0/8".parse().unwrap(), group);
    assert!(back.has_other_gateways(&rig.rib));
    assert_eq!(without_group.wanted(group, address("11.0.0.1")), Some((address("192.0.2.2"), Some(1))));
}

#[test]
fn a_group_is_usable_while_one_of_its_paths_is() {
    let mut rig = EgressRig::new(&[]);
    let group = rig.route("10.0.0.0/8 nexthop via 203.0.113.1 nexthop via 192.0.2.2 dev 1");
    let unusable = |rig: &EgressRig, stopped: &[u16]| rig.build(None, stopped).unusable(group);
    assert_eq!(unusable(&rig, &[]), None, "the MAC of the second is not known yet");
    assert_eq!(unusable(&rig, &[1]), Some(Unusable::NoWay(address("203.0.113.1"))));
    rig.ports[1].is_up = false;
    assert!(unusable(&rig, &[]).is_some());
    let mut rig = EgressRig::new(&[]);
    let group = rig.route("10.0.0.0/8 nexthop via 192.0.2.1 dev 0 nexthop via 192.0.2.2 dev 1");
    for neighbours in 0..2 {
        assert_eq!(rig.build(None, &[0, 1]).unusable(group), Some(Unusable::LinkDown));
        assert_eq!(rig.build(None, &[0]).unusable(group), None);
        rig.neighbour(&format!("192.0.2.{}", neighbours + 1), neighbours);
    }
}

#[test]
fn groups_keep_their_ways_while_the_same_paths_are_alive() {
    let mut rig = EgressRig::new(&[]);
    let group = |n: u8| format!("10.{n}.0.0/16 nexthop via 192.0.2.{n} dev 0 nexthop via 192.0.2.2 dev 1");
    let (first, second) = (rig.route(&group(1)), rig.route(&group(3)));
    (1..4).for_each(|last| rig.neighbour(&format!("192.0.2.{last}"), 0));
    let before = rig.table();
    rig.hops.remove_neighbour(address("192.0.2.3"));
    let after = rig.build(Some(&before), &[]);
    let ways = |table: &EgressTable, id| table.groups[&id].ways.clone().unwrap();
    assert!(Arc::ptr_eq(&ways(&before, first), &ways(&after, first)));
    assert!(!Arc::ptr_eq(&ways(&before, second), &ways(&after, second)));
}

#[test]
fn a_gateway_without_a_port_follows_its_route() {
    let mut rig = EgressRig::new(&["172.16.0.0/16 dev 2", "172.17.0.0/16 7", "prohibit 172.18.0.0/16"]);
    rig.route("172.20.0.0/16 via 192.0.2.9 dev 3");
    rig.route("172.21.0.0/16 nexthop dev 1 nexthop dev 2");
    let on_link = rig.route("10.0.0.0/8 via 172.16.0.1");
    let by_id = rig.route("11.0.0.0/8 via 172.17.0.1");
    let prohibited = rig.route("12.0.0.0/8 via 172.18.0.1");
    let without = rig.route("13.0.0.0/8 via 203.0.113.1");
    let behind = rig.route("14.0.0.0/8 via 172.20.0.1");
    let further = rig.route("15.0.0.0/8 via 14.0.0.1");
    let on_links = rig.route("16.0.0.0/8 via 172.21.0.1");
    let to_us = rig.hops.intern(NextHop::Local).unwrap();
    rig.rib.set("172.22.0.1/32".parse().unwrap(), to_us);
    let ours = rig.route("17.0.0.0/8 via 172.22.0.1");
    let table = rig.table();
    let nobody = address("10.0.0.1");
    for (id, wanted) in [
        (on_link, Some((address("172.16.0.1"), Some(2)))),
        (without, Some((address("203.0.113.1"), None))),
        (behind, Some((address("192.0.2.9"), Some(3)))),
        (further, Some((address("192.0.2.9"), Some(3)))),
        (on_links, Some((address("172.21.0.1"), Some(1)))),
        (ours, None),
    ] {
        assert_eq!(
            (table.wanted(id, nobody), reason(&table, id)),
            (wanted, Some(DropReason::NoNeighbour)),
            "{id}"
        );
    }
    assert_eq!(table.get(by_id), table.get(NextHopId::new(7).unwrap()));
    assert_eq!(
        (reason(&table, prohibited), table.wanted(by_id, nobody)),
        (Some(DropReason::Prohibited), None)
    );
    assert!(table.loops().is_empty());
    rig.learn("172.16.0.1", 2, Some(4));
    rig.learn("192.0.2.9", 3, Some(5));
    let table = rig.table();
    assert_eq!((table.get(on_link).port, table.get(behind).port, table.get(further).macs[0]), (2, 3, 5));
    assert!(!table.has_moved(&rig.rib));
    rig.route("14.0.0.0/9 via 172.16.0.1");
    assert!(table.has_moved(&rig.rib));
    assert_eq!(rig.table().get(further).port, 2);
    rig.neighbour("203.0.113.1", 1);
    assert_eq!(rig.table().get(without).port, 1);
}

#[test]
fn gateways_that_lead_back_to_themselves_are_dropped() {
    let mut rig = EgressRig::new(&[]);
    let own = rig.route("10.0.0.0/8 via 10.0.0.1");
    let [there, back] = ["11.0.0.0/8 via 12.0.0.1", "12.0.0.0/8 via 11.0.0.1"].map(|route| rig.route(route));
    let to_loop = rig.route("13.0.0.0/8 via 11.0.0.9");
    // Each group has one path through the other group and one direct path.
    let first = rig.route("14.0.0.0/8 nexthop via 15.0.0.1 nexthop via 192.0.2.1 dev 0");
    let second = rig.route("15.0.0.0/8 nexthop via 14.0.0.1 nexthop via 192.0.2.2 dev 1");
    let both = rig.route("16.0.0.0/8 nexthop via 14.0.0.9 nexthop via 15.0.0.9");
    rig.neighbour("192.0.2.1", 0);
    rig.neighbour("192.0.2.2", 1);
    let table = rig.table();
    for id in [own, there, back, to_loop] {
        assert_eq!(reason(&table, id), Some(DropReason::NoNeighbour), "{id}");
    }
    let mut loops = table.loops().to_vec();
    loops.sort();
    let wanted = ["10.0.0.1", "11.0.0.1", "12.0.0.1", "14.0.0.1", "15.0.0.1"];
    assert_eq!(loops, wanted.map(address));
    assert_eq!((alive(&table, first), alive(&table, second)), (vec![false, true], vec![false, true]));
    let ends: std::collections::BTreeSet<_> =
        (0..64_u64).map(|flow| table.path(table.get(both), flow << 58).1.port).collect();
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_way_through_too_many_next_hops_is_none() {
    let mut rig = EgressRig::new(&["10.0.0.0/16 3"]);
    let ids: Vec<_> = (1..=300_u16)
        .map(|n| {
            let ([a, b], [c, d]) = (n.to_be_bytes(), (n - 1).to_be_bytes());
            rig.route(&format!("10.{}.{b}.0/24 via 10.{}.{d}.1", a + 1, if n == 1 { 0 } else { c + 1 }))
        })
        .collect();
    let table = rig.table();
    assert_eq!(table.get(ids[REACH_MAX - 1]).port, 2);
    assert_eq!(reason(&table, ids[REACH_MAX]), Some(DropReason::NoNeighbour));
    assert!(matches!(rig.rib.longest(address("10.1.1.1")), Some((IpPrefix::V4(_), id)) if id == ids[0]));
}
