//! Several sources, one RIB: which route is in service, and when unused next hops are dropped.

#[path = "listing_test.rs"]
mod listing_test;
#[path = "model_test.rs"]
mod model_test;
#[path = "refused_test.rs"]
mod refused_test;
#[path = "reorder_test.rs"]
mod reorder_test;
#[path = "usable_test.rs"]
mod usable_test;

use super::*;
use crate::datapath::{Exit, test_frames};
use crate::ports::table::SharedPorts;
use crate::ports::table::tests::ports;
use crate::routes::candidates::FeedOutcome;
use crate::routes::egress::HOPS_MIN;
use crate::routes::feeds::interfaces::Interfaces;
use crate::routes::feeds::running::Feeds;
use crate::routes::feeds::{ChangeSet, FeedEvent, FeedId, Link, LinkNeighbour, ObjectId, Path, Route};
use crate::routes::test_vrf::vrf_over;
use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, bounded};
use fib::feed::{Action, Update};
use fib::{Keys, MacAddr, Neighbour, NextHop, NextHopTable, PortRef, Rib};
use rustc_hash::FxHashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ADDRESS: u32 = 0xc612_0001;
const PREFIX: &str = "198.18.0.0/24";
const FPM: FeedId = FeedId(0);
const KERNEL: FeedId = FeedId(1);

struct SourcesRig {
    vrf: Vrf,
    feeds: Feeds,
    ports: SharedPorts,
    sender: Sender<ChangeSet>,
}

fn prefix() -> IpPrefix {
    PREFIX.parse().unwrap()
}

fn gateway(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

fn announce(last: u8, ifindex: u32) -> FeedEvent {
    let path = Path { gateway: Some(gateway(last)), ifindex, weight: 1 };
    FeedEvent::Announce {
        vrf: 0,
        prefix: prefix(),
        metric: 0,
        route: Arc::new(Route::Paths(Box::new([path]))),
    }
}

fn withdraw() -> FeedEvent {
    FeedEvent::Withdraw { vrf: 0, prefix: prefix(), metric: 0 }
}

fn link(ifindex: u32, name: &str) -> FeedEvent {
    let name = name.to_owned();
    FeedEvent::Link(Link { ifindex, name, is_up: true, is_running: true, is_local: false })
}

impl SourcesRig {
    /// A VRF over the ports p0 and p1, which are the interfaces 10 and 11.
    fn new() -> Self {
        Self::with_feeds_before_files(0)
    }

    fn with_feeds_before_files(before_files: u8) -> Self {
        Self::over(|receiver, interfaces| Feeds::for_test(receiver, before_files, interfaces))
    }

    fn ignoring_foreign() -> Self {
        Self::over(|receiver, interfaces| Feeds::for_test(receiver, 0, interfaces).ignoring_foreign())
    }

    fn over(feeds: impl FnOnce(Receiver<ChangeSet>, Interfaces) -> Feeds) -> Self {
        let table = SharedPorts::new(ArcSwap::from_pointee(ports(2)));
        let mut vrf = vrf_over(Arc::clone(&table));
        vrf.set_ports().unwrap();
        let (sender, receiver) = bounded(1000);
        let feeds = feeds(receiver, Interfaces::new(&ports(2).ports));
        feeds.apply_rules(&mut vrf).unwrap();
        vrf.refused.round_max = Duration::from_secs(3600);
        let mut rig = Self { vrf, feeds, ports: table, sender };
        rig.says(KERNEL, vec![link(10, "p0"), link(11, "p1"), link(12, "other")]);
        rig
    }

    fn learn(&mut self) -> bool {
        let was_told = self.feeds.give(std::slice::from_mut(&mut self.vrf), &self.ports);
        self.vrf.drain(Some(self.feeds.interfaces())) || was_told
    }

    fn outcome(&self, feed: FeedId) -> FeedOutcome {
        let mut counts = self.vrf.begin_outcomes();
        while !self.vrf.count_outcomes(&mut counts) {}
        counts.outcome(SourceId::of_feed(feed.0))
    }

    fn says(&mut self, feed: FeedId, events: Vec<FeedEvent>) {
        self.sender.send(ChangeSet { feed, events }).unwrap();
        assert!(self.learn());
        assert!(!self.learn(), "all of it was taken");
    }

    fn hop(&self) -> String {
        let mut answer = [NextHopId::NONE];
        self.vrf.engine().reader(1, 1).unwrap().lookup(Keys::V4(&[ADDRESS]), &mut answer).unwrap();
        let id = answer[0];
        let told = self.vrf.hops().announced_id(id);
        self.vrf
            .hops()
            .get(id)
            .filter(|hop| **hop != NextHop::Bare)
            .map_or(told.to_string(), ToString::to_string)
    }

    fn file(&mut self, action: Action) {
        let update = Update { time_s: 0.0, prefix: prefix(), action, peer: None };
        self.vrf.update(&update).unwrap();
        self.vrf.commit().unwrap();
    }

    fn ctl(&mut self, id: u32) {
        self.vrf.add_route(prefix(), &Hop::Id(NextHopId::new(id).unwrap())).unwrap();
        self.vrf.commit().unwrap();
    }

    fn ctl_del(&mut self) {
        self.vrf.remove_route(prefix()).unwrap();
        self.vrf.commit().unwrap();
    }
}

fn id(value: u32) -> Action {
    Action::Announce(Hop::Id(NextHopId::new(value).unwrap()))
}

#[test]
fn what_files_change_is_committed_by_the_next_turn() {
    let mut rig = SourcesRig::new();
    let update = Update { time_s: 0.0, prefix: prefix(), action: id(77), peer: None };
    rig.vrf.update(&update).unwrap();
    assert!(rig.learn());
    assert_eq!(rig.hop(), "77");
}

#[test]
fn an_entry_ends_when_files_alone_have_a_route_again() {
    let mut rig = SourcesRig::new();
    rig.file(id(77));
    rig.says(FPM, vec![announce(7, 10)]);
    assert!(rig.vrf.candidates.has(prefix()));
    rig.says(FPM, vec![withdraw()]);
    assert!(!rig.vrf.candidates.has(prefix()));
}

#[test]
fn the_first_route_without_a_port_is_worth_a_warning() {
    let mut rig = SourcesRig::new();
    let wanted = (prefix(), SourceId::of_feed(FPM.0), 12);
    rig.says(FPM, vec![announce(7, 12)]);
    let found = rig.vrf.take_foreign();
    assert_eq!(found.iter().map(|of| (of.prefix, of.source, of.ifindex)).collect::<Vec<_>>(), [wanted]);
    rig.says(KERNEL, vec![announce(8, 12)]);
    assert!(rig.vrf.take_foreign().is_empty());
    // Every host has such routes, which are never forwarded to; the default route is reported separately.
    for (text, count) in
        [("127.0.0.0/8", 0), ("fe80::/64", 0), ("::1/128", 0), ("ff00::/8", 0), ("0.0.0.0/0", 1)]
    {
        let FeedEvent::Announce { vrf, metric, route, .. } = announce(7, 12) else {
            panic!("not an announcement")
        };
        rig.vrf.notices.has_noticed_foreign[0] = false;
        rig.says(FPM, vec![FeedEvent::Announce { vrf, metric, route, prefix: text.parse().unwrap() }]);
        assert_eq!(rig.vrf.take_foreign().len(), count, "{text}");
    }
}

#[test]
fn updates_are_changes_of_winners_and_those_of_addresses_are_none() {
    let mut rig = SourcesRig::new();
    let updates = |rig: &SourcesRig| rig.vrf.tally.updates;
    rig.says(FPM, vec![announce(7, 10)]);
    rig.says(KERNEL, vec![announce(8, 10)]);
    assert_eq!(updates(&rig), 1, "the kernel's does not win");
    rig.ctl(9);
    rig.ctl_del();
    assert_eq!(updates(&rig), 3);
    rig.vrf.set_own_routes(vec![(prefix(), NextHop::Connected { port: PortRef::Index(1) })]).unwrap();
    rig.vrf.commit().unwrap();
    assert_eq!((updates(&rig), rig.hop()), (3, "dev 1".to_owned()));
    let hop = Hop::Id(NextHopId::new(9).unwrap());
    assert!(matches!(rig.vrf.add_route(prefix(), &hop), Err(UpdateError::Own { .. })));
    assert!(matches!(rig.vrf.remove_route(prefix()), Err(UpdateError::Own { .. })));
}

#[test]
fn ctl_comes_before_files_and_files_before_feeds() {
    let mut rig = SourcesRig::new();
    let before = rig.hop();
    rig.says(KERNEL, vec![announce(7, 10)]);
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    rig.says(FPM, vec![announce(8, 11)]);
    assert_eq!(rig.hop(), "via 192.0.2.8 dev 1");
    rig.file(id(77));
    assert_eq!(rig.hop(), "77");
    rig.ctl(99);
    assert_eq!(rig.hop(), "99");
    rig.says(FPM, vec![withdraw()]);
    assert_eq!((rig.hop(), rig.vrf.candidates.count(SourceId::CTL).routes), ("99".to_owned(), 1));
    rig.ctl_del();
    assert_eq!(rig.hop(), "77");
    // Without a route of ctl, the route in service is removed.
    rig.ctl_del();
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    rig.ctl_del();
    assert_eq!(rig.hop(), before);
    rig.says(KERNEL, vec![announce(9, 10)]);
    assert_eq!(rig.hop(), "via 192.0.2.9 dev 0", "until it is announced again");
    rig.says(KERNEL, vec![withdraw()]);
    assert_eq!(rig.hop(), before);
    assert_eq!(
        (rig.vrf.candidates.has(prefix()), rig.vrf.candidates.count(SourceId::CTL).routes),
        (false, 0)
    );
}

#[test]
fn a_files_route_is_back_when_the_others_are_gone() {
    for feed in [FPM, KERNEL] {
        let mut rig = SourcesRig::new();
        rig.file(id(77));
        rig.says(feed, vec![announce(7, 10)]);
        assert_eq!(rig.hop(), "77");
        rig.says(feed, vec![FeedEvent::Stale, FeedEvent::Sweep]);
        assert_eq!(rig.hop(), "77");
        rig.ctl(99);
        rig.file(id(78));
        rig.ctl_del();
        assert_eq!(rig.hop(), "78");
        assert!(!rig.vrf.candidates.has(prefix()), "the RIB alone has it");
    }
}

#[test]
fn feeds_that_are_named_before_files_come_before_them() {
    let mut rig = SourcesRig::with_feeds_before_files(1);
    let before = rig.hop();
    rig.file(id(77));
    rig.says(KERNEL, vec![announce(7, 10)]);
    assert_eq!(rig.hop(), "77");
    rig.says(FPM, vec![announce(8, 11)]);
    assert_eq!(rig.hop(), "via 192.0.2.8 dev 1");
    rig.file(id(78));
    assert_eq!(rig.hop(), "via 192.0.2.8 dev 1");
    // A route without a port yields to the files.
    rig.says(FPM, vec![announce(8, 20)]);
    assert_eq!(rig.hop(), "78");
    rig.says(KERNEL, vec![link(20, "p1")]);
    assert_eq!(rig.hop(), "via 192.0.2.8 dev 1");
    rig.ctl(99);
    assert_eq!(rig.hop(), "99");
    // Each removal concerns the route in service: of ctl, FPM, the file, the kernel.
    for wanted in ["via 192.0.2.8 dev 1", "78", "via 192.0.2.7 dev 0", &before] {
        rig.ctl_del();
        assert_eq!(rig.hop(), wanted);
    }
    let mut rig = SourcesRig::with_feeds_before_files(2);
    rig.says(KERNEL, vec![announce(7, 10)]);
    rig.file(id(77));
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    rig.file(Action::Withdraw);
    rig.says(KERNEL, vec![withdraw()]);
    assert_eq!(rig.hop(), before);
    rig.file(id(77));
    assert_eq!(rig.hop(), "77");
}

#[test]
fn a_hangup_replaces_the_files_routes_alone() {
    let mut rig = SourcesRig::new();
    let routes = rig.vrf.rib().len();
    rig.says(FPM, vec![announce(7, 10)]);
    rig.vrf.add_route("203.0.113.128/25".parse().unwrap(), &Hop::Hop(NextHop::Blackhole)).unwrap();
    rig.vrf.commit().unwrap();
    assert_eq!(rig.vrf.rib().len(), routes + 2);
    assert_eq!(rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap(), routes as u64);
    assert_eq!((rig.vrf.rib().len(), rig.hop()), (2, "via 192.0.2.7 dev 0".to_owned()));
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    rib.set(prefix(), hops.bare(5).unwrap());
    assert_eq!(rig.vrf.replace_all(rib.clone(), hops.clone()).unwrap(), 1);
    assert_eq!((rig.vrf.rib().len(), rig.hop()), (2, "5".to_owned()));
    assert_eq!(rig.vrf.replace_all(rib, hops).unwrap(), 0);
    rig.says(FPM, vec![withdraw()]);
    assert_eq!(rig.hop(), "5");
}

#[test]
fn routes_wait_for_their_interface_and_gateways_for_their_neighbour() {
    let mut rig = SourcesRig::new();
    rig.says(FPM, vec![announce(7, 20)]);
    assert_eq!(rig.hop(), "unreachable");
    rig.says(KERNEL, vec![link(20, "p1")]);
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 1");
    rig.says(KERNEL, vec![FeedEvent::LinkGone(20)]);
    assert_eq!(rig.hop(), "unreachable");
    // The static neighbour's port serves a gateway behind an unknown interface.
    let mac = MacAddr([2, 9, 9, 9, 9, 9]);
    rig.vrf.egress.add_neighbour(Neighbour { address: gateway(7), port: PortRef::Index(0), mac }).unwrap();
    assert!(rig.learn());
    assert_eq!(rig.hop(), "via 192.0.2.7");
    rig.vrf.egress.remove_neighbour(gateway(7));
    assert!(rig.learn());
    assert_eq!(rig.hop(), "unreachable");

    rig.says(FPM, vec![announce(7, 10)]);
    let egress = |rig: &SourcesRig| {
        let id = rig.vrf.rib().v4.get(match prefix() {
            IpPrefix::V4(prefix) => prefix,
            IpPrefix::V6(_) => unreachable!(),
        });
        rig.vrf.egress.table().unwrap().load().get(id)
    };
    assert!(!Exit::is_port(egress(&rig).port), "no neighbour");
    let neighbour = LinkNeighbour { address: gateway(7), ifindex: 10, mac: MacAddr([4; 6]) };
    rig.says(KERNEL, vec![FeedEvent::Neighbour(neighbour)]);
    assert_eq!((egress(&rig).port, &egress(&rig).macs[..6]), (0, &[4; 6][..]));
    rig.vrf.egress.add_neighbour(Neighbour { address: gateway(7), port: PortRef::Index(0), mac }).unwrap();
    rig.vrf.commit().unwrap();
    assert_eq!(egress(&rig).macs[..6], mac.0, "the one that was told comes first");
    rig.vrf.egress.remove_neighbour(gateway(7));
    rig.vrf.commit().unwrap();
    assert_eq!(egress(&rig).macs[..6], [4; 6]);
    rig.says(KERNEL, vec![FeedEvent::NeighbourGone(gateway(7), 10)]);
    assert!(!Exit::is_port(egress(&rig).port));
}

#[test]
fn several_paths_are_a_group_that_avoids_links_without_a_delta() {
    let mut rig = SourcesRig::new();
    let path = |last, ifindex, weight| Path { gateway: Some(gateway(last)), ifindex, weight };
    let route = Arc::new(Route::Paths(Box::new([path(7, 10, 1), path(8, 11, 2), path(9, 20, 1)])));
    rig.says(KERNEL, vec![FeedEvent::Announce { vrf: 0, prefix: prefix(), metric: 0, route }]);
    assert_eq!(rig.hop(), "nexthop via 192.0.2.7 dev 0 weight 1 nexthop via 192.0.2.8 dev 1 weight 2");
    let neighbour = |last, ifindex| {
        FeedEvent::Neighbour(LinkNeighbour { address: gateway(last), ifindex, mac: MacAddr([last; 6]) })
    };
    rig.says(KERNEL, vec![neighbour(7, 10), neighbour(8, 11)]);
    let id = rig.vrf.rib().longest(ADDRESS.to_be_bytes().into()).unwrap().1;
    let alive = |rig: &SourcesRig| {
        let table = rig.vrf.egress.table().unwrap().load_full();
        table.paths(id).unwrap().iter().map(|path| path.share.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(alive(&rig), [true, true]);
    let before = (rig.vrf.engine().generation(), rig.vrf.tally.deltas);
    let down = |is_running| {
        let name = "p1".to_owned();
        vec![FeedEvent::Link(Link { ifindex: 11, name, is_up: true, is_running, is_local: false })]
    };
    rig.says(KERNEL, down(false));
    assert_eq!(alive(&rig), [true, false]);
    rig.says(KERNEL, down(true));
    rig.says(KERNEL, vec![FeedEvent::NeighbourGone(gateway(7), 10)]);
    assert_eq!(alive(&rig), [false, true]);
    assert_eq!((rig.vrf.engine().generation(), rig.vrf.tally.deltas), before);
    rig.says(KERNEL, vec![link(20, "p0")]);
    assert!(rig.hop().ends_with("nexthop via 192.0.2.9 dev 0 weight 1"), "{}", rig.hop());
}

/// Prefix-independent convergence: one change for any number of routes.
#[test]
fn a_group_that_is_replaced_is_one_change_of_egress() {
    const ROUTES: u32 = 10_000;
    let mut rig = SourcesRig::new();
    rig.says(KERNEL, vec![link(10, "p0"), link(11, "p1")]);
    let object = ObjectId { feed: FPM, epoch: 0, number: 7 };
    let group = |paths: &[(u8, u32)]| {
        let path = |&(last, ifindex)| Path { gateway: Some(gateway(last)), ifindex, weight: 1 };
        let route = Some(Arc::new(Route::Paths(paths.iter().map(path).collect())));
        vec![FeedEvent::Object { object, route }]
    };
    let at = |i: u32| IpPrefix::V4(fib::Prefix::truncating(0x0a00_0000 + (i << 8), 24));
    let named = Arc::new(Route::Object(object));
    let announced = |i| FeedEvent::Announce { vrf: 0, prefix: at(i), metric: 0, route: Arc::clone(&named) };
    rig.says(FPM, group(&[(1, 10), (2, 11)]));
    rig.says(FPM, (0..ROUTES).map(announced).collect());
    let hop = |rig: &SourcesRig| {
        let ids: FxHashSet<_> = (0..ROUTES).map(|i| rig.vrf.rib.get(at(i))).collect();
        let id = *ids.iter().next().unwrap();
        assert_eq!((ids.len(), rig.vrf.egress.table().unwrap().load().named()), (1, rig.vrf.hops().named()));
        (id, rig.vrf.hops().get(id).unwrap().to_string())
    };
    let (id, both) = hop(&rig);
    assert_eq!(both, "nexthop via 192.0.2.1 dev 0 weight 1 nexthop via 192.0.2.2 dev 1 weight 1");
    let (deltas, generation) = (rig.vrf.tally.deltas, rig.vrf.engine().generation());
    let before = rig.vrf.egress.table().unwrap().load_full();
    rig.says(FPM, group(&[(2, 11)]));
    assert_eq!(hop(&rig), (id, "via 192.0.2.2 dev 1".to_owned()));
    assert_eq!((rig.vrf.tally.deltas, rig.vrf.engine().generation()), (deltas, generation));
    assert!(!Arc::ptr_eq(&before, &rig.vrf.egress.table().unwrap().load_full()));
    // Without a port it has no next hop, until its link leads to one.
    rig.says(FPM, group(&[(3, 99)]));
    assert!(rig.vrf.rib.get(at(0)) != id && rig.vrf.rib.get(at(ROUTES - 1)) != id);
    rig.says(KERNEL, vec![link(99, "p1")]);
    assert_eq!(hop(&rig).1, "via 192.0.2.3 dev 1");
    // The object goes; its routes stay until their source withdraws them.
    rig.says(FPM, vec![FeedEvent::Object { object, route: None }]);
    assert_eq!(hop(&rig).1, "via 192.0.2.3 dev 1");
}

#[test]
fn a_link_that_goes_down_or_comes_up_resolves_no_route_again() {
    let mut rig = SourcesRig::new();
    rig.says(FPM, vec![announce(7, 10)]);
    assert!(rig.feeds.take_new_addresses());
    for is_running in [false, true] {
        let name = "p0".to_owned();
        let link = Link { ifindex: 10, name, is_up: true, is_running, is_local: false };
        rig.sender.send(ChangeSet { feed: KERNEL, events: vec![FeedEvent::Link(link)] }).unwrap();
        assert!(rig.feeds.give(std::slice::from_mut(&mut rig.vrf), &rig.ports));
        assert!(!rig.vrf.egress.has_moved && !rig.feeds.take_new_addresses());
        assert_eq!(rig.ports.load().stopped(), if is_running { vec![] } else { vec![0] });
    }
}

#[test]
fn next_hops_that_no_route_uses_are_dropped_and_their_ids_assigned_again() {
    let mut rig = SourcesRig::new();
    rig.vrf.egress.unused.stay = Duration::ZERO;
    let hops = |rig: &SourcesRig| rig.vrf.hops().len();
    let start = hops(&rig);
    let mut most = 0;
    rig.vrf.count_next_hops(Some(1));
    let is_bare = |(_, hop): &(NextHopId, &NextHop)| **hop == NextHop::Bare;
    let (kept, _) = rig.vrf.hops().iter().find(is_bare).unwrap();
    let dropped = rig.vrf.egress.hops.intern(NextHop::Port { port: 1 }).unwrap();
    rig.vrf.egress.neighbours_have_changed();
    rig.vrf.egress.refresh_if_stale(&rig.vrf.rib, &mut rig.vrf.candidates);
    let frames = vec![test_frames::V4::default().frame(); 2];
    if let Some(mut batch) = test_frames::batch(&frames) {
        batch.indices[..2].copy_from_slice(&[kept.get(), dropped.get()]);
        rig.vrf.egress.counts().unwrap().count(0, &batch);
    }
    let counted = |rig: &SourcesRig| {
        let counts = rig.vrf.egress.counts().unwrap();
        [kept, dropped].map(|id| counts.count_of(id).packets)
    };
    assert_eq!(counted(&rig), [1, 1]);
    for round in 0..20_000_u32 {
        let [.., high, low] = round.to_be_bytes();
        let gateway = Some(IpAddr::from([10, 0, high, low]));
        let route = Arc::new(Route::Paths(Box::new([Path { gateway, ifindex: 10, weight: 1 }])));
        rig.sender
            .send(ChangeSet {
                feed: FPM,
                events: vec![FeedEvent::Announce { vrf: 0, prefix: prefix(), metric: 0, route }],
            })
            .unwrap();
        if round % 100 == 0 || rig.sender.len() > 900 {
            while rig.learn() {}
            most = most.max(hops(&rig));
            let named = rig.vrf.hops().iter().filter(|(_, hop)| **hop != NextHop::Bare);
            let last = named.map(|(id, _)| id.get()).max().unwrap();
            assert!(last < 4096, "{last}");
        }
    }
    while rig.learn() {}
    assert_eq!(counted(&rig), [1, 0], "an id that gets another meaning starts at 0");
    assert!(most < 2 * HOPS_MIN + start && rig.hop().starts_with("via 10.0."), "{most}, {}", rig.hop());
}

#[test]
fn a_route_that_comes_and_goes_at_once_leaves_the_files_route() {
    let mut rig = SourcesRig::new();
    rig.file(id(77));
    for before_files in [0, 2] {
        if before_files > 0 {
            rig = SourcesRig::with_feeds_before_files(before_files);
            rig.file(id(77));
        }
        rig.says(FPM, vec![announce(7, 10), withdraw()]);
        assert_eq!(rig.hop(), "77");
        rig.says(FPM, vec![announce(7, 10), withdraw(), announce(8, 11)]);
        assert_eq!(rig.hop(), if before_files > 0 { "via 192.0.2.8 dev 1" } else { "77" });
        rig.says(FPM, vec![withdraw()]);
        assert_eq!(rig.hop(), "77");
    }
}

#[test]
fn a_route_over_an_interface_without_a_port_does_not_fall_through_to_a_shorter_one() {
    let mut rig = SourcesRig::new();
    let shorter = rig.hop();
    assert_ne!(shorter, "0", "there is a shorter route");
    let outcome = |rig: &SourcesRig| {
        let FeedOutcome { unresolved, unreachable, .. } = rig.outcome(KERNEL);
        (unresolved, unreachable)
    };
    for ifindex in [12, 20] {
        rig.says(KERNEL, vec![announce(7, ifindex)]);
        assert_eq!((rig.hop().as_str(), outcome(&rig)), ("unreachable", (1, 1)));
        rig.file(id(77));
        assert_eq!((rig.hop().as_str(), outcome(&rig)), ("77", (1, 0)), "the files' route of the prefix");
        rig.file(Action::Withdraw);
        assert_eq!(rig.hop(), "unreachable");
        rig.says(KERNEL, vec![link(ifindex, "p1")]);
        assert_eq!((rig.hop().as_str(), outcome(&rig)), ("via 192.0.2.7 dev 1", (0, 0)));
        rig.says(KERNEL, vec![link(ifindex, "other")]);
        assert_eq!(rig.hop(), "unreachable");
        rig.says(KERNEL, vec![withdraw()]);
        assert_eq!(rig.hop(), shorter);
    }
    // The only path with a port is used.
    let path = |last, ifindex| Path { gateway: Some(gateway(last)), ifindex, weight: 1 };
    let route = Arc::new(Route::Paths(Box::new([path(7, 12), path(8, 11)])));
    rig.says(KERNEL, vec![FeedEvent::Announce { vrf: 0, prefix: prefix(), metric: 0, route }]);
    assert_eq!((rig.hop().as_str(), outcome(&rig)), ("via 192.0.2.8 dev 1", (0, 0)));

    let mut rig = SourcesRig::ignoring_foreign();
    rig.says(KERNEL, vec![announce(7, 12)]);
    assert_eq!((rig.hop(), outcome(&rig)), (shorter, (1, 0)));
}

#[test]
fn routes_that_do_not_forward_are_counted_in_slices() {
    let mut rig = SourcesRig::new();
    rig.says(KERNEL, vec![announce(7, 10)]);
    assert!(rig.vrf.count_outcomes(&mut rig.vrf.begin_outcomes()), "all forward, and no prefix is visited");
    let path = Path { gateway: Some(gateway(8)), ifindex: 12, weight: 1 };
    let route = Arc::new(Route::Paths(Box::new([path])));
    let many = |number: u32| FeedEvent::Announce {
        vrf: 0,
        prefix: IpPrefix::V4(Prefix::truncating(0x0b00_0000 + (number << 8), 24)),
        metric: 0,
        route: Arc::clone(&route),
    };
    rig.says(FPM, (0..1 << 16).map(many).collect());
    let mut counts = rig.vrf.begin_outcomes();
    assert!(!rig.vrf.count_outcomes(&mut counts), "a slice is a part");
    while !rig.vrf.count_outcomes(&mut counts) {}
    let (unresolved, unreachable) = (1 << 16, 1 << 16);
    let wanted = FeedOutcome { unresolved, unreachable, ..FeedOutcome::default() };
    let of = |feed: FeedId| counts.outcome(SourceId::of_feed(feed.0));
    assert_eq!((of(FPM), of(KERNEL)), (wanted, FeedOutcome::default()));
}

#[test]
fn a_default_route_of_the_management_network_takes_no_ones_place() {
    let all: IpPrefix = "0.0.0.0/0".parse().unwrap();
    let default = |feed, last, ifindex| {
        let path = Path { gateway: Some(gateway(last)), ifindex, weight: 1 };
        let route = Arc::new(Route::Paths(Box::new([path])));
        (feed, vec![FeedEvent::Announce { vrf: 0, prefix: all, metric: 0, route }])
    };
    let found = |rig: &SourcesRig| {
        let (_, id) = rig.vrf.rib().longest([9, 9, 9, 9].into())?;
        rig.vrf.hops().get(id).map(ToString::to_string)
    };
    for before_files in [0, 2] {
        // The files' default route stays, for any order.
        let mut rig = SourcesRig::with_feeds_before_files(before_files);
        rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap();
        let hop = NextHop::Gateway { gateway: gateway(1), port: PortRef::Index(1) };
        let action = Action::Announce(Hop::Hop(hop));
        rig.vrf.update(&Update { time_s: 0.0, prefix: all, action, peer: None }).unwrap();
        rig.vrf.commit().unwrap();
        let (feed, events) = default(KERNEL, 254, 12);
        rig.says(feed, events);
        assert_eq!(found(&rig).as_deref(), Some("via 192.0.2.1 dev 1"));
    }
    // The default route of a preferred feed stays, too.
    let mut rig = SourcesRig::new();
    rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap();
    for ((feed, events), wanted) in [
        (default(KERNEL, 254, 12), "unreachable"),
        (default(FPM, 1, 11), "via 192.0.2.1 dev 1"),
        (default(KERNEL, 253, 12), "via 192.0.2.1 dev 1"),
    ] {
        rig.says(feed, events);
        assert_eq!(found(&rig).as_deref(), Some(wanted));
    }
}
