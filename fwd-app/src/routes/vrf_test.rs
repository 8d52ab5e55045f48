//! Commits, refused deltas, ports and neighbours of a VRF.

use super::*;
use crate::datapath::egress::learned::{LearnedKey, Learner};
use crate::datapath::{Batch, Exit, test_frames};
use crate::ports::PortTable;
use crate::ports::table::tests::ports;
use crate::routes::test_vrf::vrf_over;
use arc_swap::ArcSwap;
use fib::MacAddr;
use fib::{Keys, Neighbour, NextHop, NextHopId, PortRef, feed};
use std::net::IpAddr;
use std::sync::Arc;

const ADDRESS: u32 = 0xc612_0001;
const PREFIX: &str = "198.18.0.0/24";

fn with_ports() -> Vrf {
    let mut vrf = vrf_over(SharedPorts::new(ArcSwap::from_pointee(ports(2))));
    vrf.set_ports().unwrap();
    vrf
}

fn set_link(vrf: &Vrf, port: usize, is_up: bool) {
    PortTable::change(&vrf.egress.ports, |table| table.ports[port].is_up = is_up);
}

fn announce(hop: NextHop) -> Update {
    let action = Action::Announce(Hop::Hop(hop));
    Update { time_s: 0.0, prefix: PREFIX.parse().unwrap(), action, peer: None }
}

fn lookup(vrf: &Vrf) -> NextHopId {
    let mut answer = [NextHopId::NONE];
    vrf.engine().reader(1, 1).unwrap().lookup(Keys::V4(&[ADDRESS]), &mut answer).unwrap();
    answer[0]
}

#[test]
fn updates_are_in_service_after_the_commit_and_next_hops_are_known_by_then() {
    let mut vrf = with_ports();
    let (loaded, before) = (vrf.engine().generation(), lookup(&vrf));
    assert_eq!(vrf.commit().unwrap(), loaded, "nothing has changed");
    vrf.update(&announce(NextHop::Blackhole)).unwrap();
    assert_eq!((lookup(&vrf), vrf.tally.updates), (before, 0));
    assert_eq!(vrf.commit().unwrap(), loaded.next());
    let id = lookup(&vrf);
    let found = vrf.egress.table().unwrap().load().get(id);
    assert_eq!(Exit::from_word(found.port).drop_reason(), Some(crate::datapath::DropReason::Blackhole));
    vrf.update(&Update { action: Action::Withdraw, ..announce(NextHop::Blackhole) }).unwrap();
    assert_eq!(vrf.commit().unwrap(), loaded.next().next());
    assert_eq!((lookup(&vrf), vrf.tally.updates, vrf.tally.deltas), (before, 2, 2));
}

fn batch(ids: &[u32]) -> Option<Batch> {
    let mut batch = test_frames::batch(&vec![test_frames::V4::default().frame(); ids.len()])?;
    batch.indices[..ids.len()].copy_from_slice(ids);
    Some(batch)
}

#[test]
fn packets_are_counted_by_next_hop_while_that_is_on_and_new_next_hops_get_cells() {
    let mut vrf = with_ports();
    assert!(vrf.egress.counts().is_none(), "off unless asked for");
    vrf.count_next_hops(Some(1));
    let count = |vrf: &Vrf, ids: &[u32]| {
        let counts = vrf.egress.counts().unwrap();
        batch(ids).is_some_and(|batch| {
            counts.count(0, &batch);
            true
        })
    };
    let packets =
        |vrf: &Vrf, id: u32| vrf.egress.counts().unwrap().count_of(NextHopId::from_answer(id)).packets;
    // Bare ids need no new egress table, so this one has no counter at first.
    let bare = 400_000;
    vrf.update(&Update {
        action: Action::Announce(Hop::Id(NextHopId::new(bare).unwrap())),
        ..announce(NextHop::Local)
    })
    .unwrap();
    vrf.commit().unwrap();
    if !count(&vrf, &[1, bare, bare]) {
        return;
    }
    assert_eq!((packets(&vrf, 1), packets(&vrf, bare)), (1, 0));
    assert_eq!(vrf.egress.counts().unwrap().others().packets, 2);
    vrf.free_retired();
    vrf.egress.refresh_if_stale(&vrf.rib, &mut vrf.candidates);
    count(&vrf, &[1, bare]);
    assert_eq!((packets(&vrf, 1), packets(&vrf, bare)), (2, 1));
    assert_eq!(vrf.egress.counts().unwrap().others().packets, 2);
    let table = vrf.egress.table().unwrap().load_full();
    vrf.free_retired();
    vrf.egress.refresh_if_stale(&vrf.rib, &mut vrf.candidates);
    assert!(Arc::ptr_eq(&table, &vrf.egress.table().unwrap().load_full()), "nothing is left to do");
    set_link(&vrf, 1, false);
    vrf.commit().unwrap();
    assert_eq!(packets(&vrf, 1), 2);
    vrf.count_next_hops(None);
    assert!(vrf.egress.counts().is_none());
    vrf.count_next_hops(Some(1));
    assert_eq!(packets(&vrf, 1), 0, "it starts at 0");
}

#[test]
fn a_next_hop_on_a_port_that_is_not_there_is_refused_with_nothing_changed() {
    let mut vrf = with_ports();
    let (loaded, before) = (vrf.engine().generation(), lookup(&vrf));
    let gateway = "192.0.2.1".parse().unwrap();
    let port = PortRef::Name("p9".into());
    let error = vrf.update(&announce(NextHop::Gateway { gateway, port })).unwrap_err().to_string();
    assert!(error.contains("p9") && error.contains("0 (p0), 1 (p1)"), "{error}");
    vrf.commit().unwrap();
    assert_eq!((vrf.engine().generation(), lookup(&vrf)), (loaded, before));
    assert_eq!((vrf.tally.updates, vrf.tally.deltas), (0, 0));
}

/// 200,000 prefixes behind a group of two gateways: a failed gateway, by link or neighbour, changes only the egress table.
#[test]
fn prefixes_over_a_failed_gateway_move_without_a_delta() {
    let mut vrf = with_ports();
    let gateway = |last: u8| IpAddr::from([192, 0, 2, last]);
    let path = |last| (NextHop::Gateway { gateway: gateway(last), port: PortRef::Index(last.into()) }, 1);
    let group = fib::Group::next_hop([path(0), path(1)]).unwrap();
    for last in [0, 1] {
        let (address, mac) = (gateway(last), MacAddr([2, 0, 0, 0, 9, last]));
        vrf.egress.add_neighbour(Neighbour { address, port: PortRef::Index(last.into()), mac }).unwrap();
    }
    for network in 0..200_000_u32 {
        let prefix = IpPrefix::V4(fib::Prefix::truncating(0x2800_0000 + (network << 8), 24));
        let action = Action::Announce(Hop::Hop(group.clone()));
        vrf.update(&Update { time_s: 0.0, prefix, action, peer: None }).unwrap();
    }
    let generation = vrf.commit().unwrap();
    let deltas = vrf.tally.deltas;
    let id = vrf.hops().find(&group).unwrap();
    let ports = |vrf: &Vrf| -> Vec<u16> {
        let table = vrf.egress.table().unwrap().load_full();
        let flows = (0..64_u64).map(|flow| table.path(table.get(id), flow << 58).1.port);
        flows.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    };
    assert_eq!(ports(&vrf), [0, 1]);
    set_link(&vrf, 1, false);
    vrf.commit().unwrap();
    assert_eq!(ports(&vrf), [0]);
    set_link(&vrf, 1, true);
    assert!(vrf.egress.remove_neighbour(gateway(0)));
    vrf.commit().unwrap();
    assert_eq!(ports(&vrf), [1]);
    PortTable::change(&vrf.egress.ports, |table| {
        let at = LearnedKey { address: gateway(0), port: 0, by: Learner::Kernel };
        Arc::make_mut(&mut table.learned).set(at, Some(MacAddr([6; 6])));
    });
    vrf.egress.neighbours_have_changed();
    assert_eq!(vrf.commit().unwrap(), generation);
    assert_eq!((ports(&vrf), vrf.tally.deltas), (vec![0, 1], deltas));
}

#[test]
fn gateways_follow_their_routes_and_come_back_when_the_engine_refuses() {
    use fib::faulty::{Call, Faults, FaultyEngine, How};
    let mut vrf = with_ports();
    let faults = Arc::new(Faults::default());
    vrf.replace_engine(Box::new(FaultyEngine::new(&faults)));
    let announce = |vrf: &mut Vrf, text: &str| {
        let (prefix, hop) = feed::parse_route(text).unwrap();
        let action = Action::Announce(hop);
        vrf.update(&Update { time_s: 0.0, prefix, action, peer: None }).unwrap();
        vrf.commit()
    };
    announce(&mut vrf, "198.18.0.0/24 via 172.16.0.1").unwrap();
    announce(&mut vrf, "172.16.0.0/12 1").unwrap();
    let id = lookup(&vrf);
    let port = |vrf: &Vrf| vrf.egress.table().unwrap().load().get(id).port;
    assert_eq!(port(&vrf), 0);
    announce(&mut vrf, "172.16.0.0/16 2").unwrap();
    assert_eq!(port(&vrf), 1);
    faults.fail_from(Call::Apply, 0, How::Full);
    announce(&mut vrf, "172.16.0.0/24 1").unwrap_err();
    assert_eq!(port(&vrf), 1, "the route is not in service");
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    announce(&mut vrf, "172.16.0.0/24 1").unwrap();
    assert_eq!(port(&vrf), 0);
}
