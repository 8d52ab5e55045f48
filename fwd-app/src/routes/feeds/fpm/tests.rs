//! Frames in, events out: order, restarts, garbage, and any split of the stream.

use super::*;
use crate::routes::feeds::heard::HeardRoutes;
use crate::routes::feeds::live::say;
use crate::routes::feeds::netlink::tests::next_hop_bytes;
use crate::routes::feeds::test_peers::{fpm_frame as frame, gone_bytes, route_bytes};
use crate::routes::feeds::{ObjectId, Path, Route};
use fib::Prefix4;
use netlink_packet_route::route::{RouteAttribute, RouteType};
use proptest::prelude::*;
use std::sync::Arc;

fn prefix(number: u32) -> IpPrefix {
    IpPrefix::V4(Prefix4::truncating(0x0a00_0000 + (number << 8), 24))
}

pub(crate) fn route_frame(number: u32) -> Vec<u8> {
    frame(&direct(number, 1))
}

fn direct(number: u32, ifindex: u32) -> Vec<u8> {
    route_bytes(prefix(number), RouteType::Unicast, vec![RouteAttribute::Oif(ifindex)])
}

fn by_object(number: u32, id: u32) -> Vec<u8> {
    route_bytes(prefix(number), RouteType::Unicast, vec![RouteAttribute::NhId(id)])
}

fn object(id: u32, ifindex: u32) -> Vec<u8> {
    next_hop_bytes(id, 2, &[(5, &ifindex.to_ne_bytes())])
}

fn is(number: u32, ifindex: u32) -> FeedEvent {
    let FeedEvent::Announce { route, .. } = announce(0, ifindex) else { unreachable!() };
    FeedEvent::Object { object: ObjectId { feed: FeedId(0), epoch: 0, number }, route: Some(route) }
}

fn names(at: u32, number: u32) -> FeedEvent {
    let route = Arc::new(Route::Object(ObjectId { feed: FeedId(0), epoch: 0, number }));
    FeedEvent::Announce { vrf: 0, prefix: prefix(at), metric: METRIC, route }
}

fn announce(number: u32, ifindex: u32) -> FeedEvent {
    let paths = Box::new([Path { gateway: None, ifindex, weight: 1 }]);
    FeedEvent::Announce {
        vrf: 0,
        prefix: prefix(number),
        metric: METRIC,
        route: Arc::new(Route::Paths(paths)),
    }
}

fn withdraw(number: u32) -> FeedEvent {
    FeedEvent::Withdraw { vrf: 0, prefix: prefix(number), metric: METRIC }
}

struct Peer {
    fpm: Fpm,
    now: Instant,
    out: Vec<FeedEvent>,
}

const FIRST: ConnectionId = ConnectionId(1);
const SECOND: ConnectionId = ConnectionId(2);

impl Peer {
    fn new() -> Self {
        let mut fpm = Fpm::new(FpmOptions::default());
        assert_eq!(fpm.opened(FIRST), None);
        Self { fpm, now: Instant::now(), out: Vec::new() }
    }

    fn send(&mut self, id: ConnectionId, bytes: &[u8]) -> Result<Option<ConnectionId>, FpmError> {
        self.fpm.received(id, bytes, self.now, &mut self.out)
    }

    fn events(&mut self) -> Vec<FeedEvent> {
        std::mem::take(&mut self.out)
    }
}

#[test]
fn the_last_word_on_a_prefix_within_a_frame_counts() {
    let mut peer = Peer::new();
    let update = [gone_bytes(prefix(1)), direct(1, 5), gone_bytes(prefix(2))].concat();
    assert_eq!(peer.send(FIRST, &frame(&update)), Ok(None));
    assert_eq!(peer.events(), [FeedEvent::Connected, announce(1, 5), withdraw(2)]);
    // A route to an unknown object leaves no gap either.
    let update = [gone_bytes(prefix(1)), by_object(1, 7)].concat();
    peer.send(FIRST, &frame(&update)).unwrap();
    assert_eq!(peer.events(), []);
    peer.send(FIRST, &frame(&object(7, 9))).unwrap();
    assert_eq!(peer.events(), [is(7, 9), names(1, 7)]);
    peer.send(FIRST, &frame(&object(7, 8))).unwrap();
    assert_eq!(peer.events(), [is(7, 8)]);
    peer.send(FIRST, &frame(&gone_bytes(prefix(1)))).unwrap();
    peer.send(FIRST, &frame(&object(7, 9))).unwrap();
    assert_eq!(peer.events(), [withdraw(1), is(7, 9)]);
}

#[test]
fn routes_of_other_tables_are_left_out() {
    let mut peer = Peer::new();
    let attributes = vec![RouteAttribute::Oif(1), RouteAttribute::Table(10)];
    peer.send(FIRST, &frame(&route_bytes(prefix(1), RouteType::Unicast, attributes))).unwrap();
    assert_eq!(peer.events(), [FeedEvent::Connected]);
    assert_eq!((peer.fpm.counts().messages, peer.fpm.counts().ignored), (1, 1));
}

#[test]
fn each_vrf_has_the_routes_of_its_table() {
    let mut peer = Peer::new();
    peer.fpm.options.tables.set(10, 1);
    peer.fpm.options.tables.set(1000, 2);
    let in_table = |table, attribute| {
        let attributes = vec![attribute, RouteAttribute::Table(table)];
        route_bytes(prefix(1), RouteType::Unicast, attributes)
    };
    let of = |vrf: usize, event| match event {
        FeedEvent::Announce { prefix, metric, route, .. } => {
            FeedEvent::Announce { vrf, prefix, metric, route }
        }
        FeedEvent::Withdraw { prefix, metric, .. } => FeedEvent::Withdraw { vrf, prefix, metric },
        other => other,
    };
    // The last message about a prefix counts separately for each table.
    let updates = [
        in_table(1000, RouteAttribute::Oif(6)),
        direct(1, 5),
        in_table(10, RouteAttribute::Oif(7)),
        in_table(11, RouteAttribute::Oif(8)),
        gone_bytes(prefix(1)),
    ];
    peer.send(FIRST, &frame(&updates.concat())).unwrap();
    let wanted = [FeedEvent::Connected, of(2, announce(1, 6)), of(1, announce(1, 7)), withdraw(1)];
    assert_eq!(peer.events(), wanted);
    assert_eq!(peer.fpm.counts().ignored, 1);
    // Tables share objects, but not the routes that name them.
    let objects = [10, 1000].map(|table| in_table(table, RouteAttribute::NhId(3)));
    peer.send(FIRST, &frame(&[object(3, 9), objects.concat()].concat())).unwrap();
    assert_eq!(peer.events(), [is(3, 9), of(1, names(1, 3)), of(2, names(1, 3))]);
    peer.send(FIRST, &frame(&in_table(1000, RouteAttribute::Oif(6)))).unwrap();
    assert_eq!(peer.events(), [of(2, announce(1, 6))]);
    peer.send(FIRST, &frame(&object(3, 4))).unwrap();
    assert_eq!(peer.events(), [is(3, 4)]);
}

#[test]
fn a_restart_sweeps_what_was_not_announced_again_after_the_hold_time() {
    let mut peer = Peer::new();
    let mut table = HeardRoutes::default();
    let mut held = |peer: &mut Peer| {
        table.apply(&peer.events());
        [1, 2, 3].map(|number| table.best(prefix(number)).is_some())
    };
    peer.send(FIRST, &[frame(&object(7, 9)), frame(&by_object(1, 7)), route_frame(2)].concat()).unwrap();
    assert_eq!(held(&mut peer), [true, true, false]);
    peer.now += peer.fpm.options.hold;
    peer.fpm.tick(peer.now, &mut peer.out);
    assert_eq!(held(&mut peer), [true, true, false], "nothing was stale");
    peer.fpm.closed(FIRST, &mut peer.out);
    assert_eq!(peer.out, [FeedEvent::Disconnected, FeedEvent::Stale]);
    assert_eq!((held(&mut peer), peer.fpm.deadline()), ([true, true, false], None));
    peer.now += Duration::from_secs(3600);

    assert_eq!(peer.fpm.opened(SECOND), None);
    assert_eq!(peer.fpm.deadline(), None, "a peer that says nothing sweeps nothing");
    peer.send(SECOND, &[frame(&by_object(1, 7)), route_frame(3)].concat()).unwrap();
    assert_eq!(held(&mut peer), [true, true, true]);
    let due = peer.fpm.deadline().unwrap();
    assert_eq!(due, peer.now + peer.fpm.options.hold);
    peer.fpm.tick(due - Duration::from_millis(1), &mut peer.out);
    assert_eq!(held(&mut peer), [true, true, true]);
    peer.send(SECOND, &frame(&object(7, 4))).unwrap();
    peer.fpm.tick(due, &mut peer.out);
    assert_eq!(held(&mut peer), [true, false, true], "route 2 was not announced again");
    peer.fpm.tick(due + peer.fpm.options.hold, &mut peer.out);
    assert_eq!(peer.events(), []);
}

#[test]
fn a_stranger_does_not_disturb_the_connection_in_use_and_a_new_peer_replaces_it() {
    let mut peer = Peer::new();
    peer.send(FIRST, &route_frame(1)).unwrap();
    peer.events();
    assert_eq!(peer.fpm.opened(SECOND), None);
    assert_eq!(peer.fpm.opened(ConnectionId(3)), Some(SECOND));
    let error = peer.send(ConnectionId(3), b"GET / HTTP/1.1").unwrap_err();
    assert_eq!(error, FpmError::Header { version: b'G', kind: b'E' });
    peer.send(FIRST, &route_frame(2)).unwrap();
    assert_eq!(peer.events(), [announce(2, 1)]);
    assert_eq!(peer.fpm.opened(ConnectionId(4)), None);
    assert_eq!(peer.send(ConnectionId(4), &route_frame(3)), Ok(Some(FIRST)));
    assert_eq!(
        peer.events(),
        [FeedEvent::Disconnected, FeedEvent::Stale, FeedEvent::Connected, announce(3, 1)]
    );
    assert_eq!(peer.send(FIRST, &route_frame(4)), Ok(None));
    peer.fpm.closed(FIRST, &mut peer.out);
    assert_eq!(peer.events(), [], "a connection that is closed has nothing to say");
}

#[test]
fn garbage_costs_the_connection_and_earlier_frames_count() {
    let cut = frame(&direct(1, 1)[..20]);
    for (bytes, wanted) in [
        (vec![1, 2, 0, 60], FpmError::Header { version: 1, kind: 2 }),
        (vec![1, 1, 0, 19], FpmError::Length { len: 19 }),
        (frame(&[0xff; 16]), FpmError::Frame(NetlinkError::Framing { len: 0xffff_ffff, room: 16 })),
        (cut, FpmError::Frame(NetlinkError::Framing { len: 36, room: 20 })),
    ] {
        let mut peer = Peer::new();
        let result = peer.send(FIRST, &[route_frame(1), bytes].concat());
        match (&result, &wanted) {
            (Err(FpmError::Frame(_)), FpmError::Frame(_)) => {}
            _ => assert_eq!(result, Err(wanted)),
        }
        assert_eq!(
            peer.events(),
            [FeedEvent::Connected, announce(1, 1), FeedEvent::Disconnected, FeedEvent::Stale]
        );
        assert_eq!((peer.fpm.counts().errors, peer.fpm.counts().messages), (1, 1));
    }
    // A message that does not decode within a valid frame costs only itself.
    let mut peer = Peer::new();
    let nowhere = route_bytes(prefix(1), RouteType::Unicast, Vec::new());
    peer.send(FIRST, &frame(&[nowhere, direct(2, 1)].concat())).unwrap();
    assert_eq!(peer.events(), [FeedEvent::Connected, announce(2, 1)]);
    assert_eq!(peer.fpm.counts().errors, 1);
}

/// Messages of a stream: mostly valid, about few prefixes and objects.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => (0..6_u32, 1..4_u32).prop_map(|(number, ifindex)| direct(number, ifindex)),
        4 => (0..6_u32, 1..4_u32).prop_map(|(number, id)| by_object(number, id)),
        4 => (0..6_u32).prop_map(|number| gone_bytes(prefix(number))),
        4 => (1..4_u32, 1..4_u32).prop_map(|(id, ifindex)| object(id, ifindex)),
        1 => prop::collection::vec(any::<u8>(), 1..40),
    ]
}

proptest! {
    #[test]
    fn any_split_of_the_stream_gives_the_same_events(
        frames in prop::collection::vec(prop::collection::vec(any_message(), 1..5), 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream: Vec<u8> = frames.iter().flat_map(|messages| frame(&messages.concat())).collect();
        let mut whole = Peer::new();
        let at_once = whole.send(FIRST, &stream);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut parts = Peer::new();
        let mut result = Ok(None);
        for pair in cuts.windows(2) {
            result = parts.send(FIRST, &stream[pair[0]..pair[1]]);
            if result.is_err() {
                break;
            }
        }
        prop_assert_eq!(at_once, result);
        prop_assert_eq!(whole.events(), parts.events());
        prop_assert_eq!(whole.fpm.counts(), parts.fpm.counts());
    }

    #[test]
    fn any_bytes_are_events_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400), is_framed in any::<bool>()) {
        let mut peer = Peer::new();
        let bytes = if is_framed { frame(&bytes) } else { bytes };
        let result = peer.send(FIRST, &bytes);
        prop_assert_eq!(peer.fpm.counts().errors > 0, result.is_err() || peer.fpm.counts().errors > 0);
        prop_assert!(peer.fpm.probation.iter().chain(&peer.fpm.current).all(|known| known.partial.len() < 1 << 16));
    }
}

#[test]
fn what_zebra_sent_is_the_table_that_it_showed() {
    let mut peer = Peer::new();
    peer.send(FIRST, include_bytes!("zebra-8.4.bin")).unwrap();
    let mut table = HeardRoutes::default();
    table.apply(&peer.events());
    let path = |gateway: &str, ifindex| Path { gateway: gateway.parse().ok(), ifindex, weight: 1 };
    let routes = [
        ("0.0.0.0/0", Route::Paths(Box::new([path("192.0.2.254", 3)]))),
        ("10.1.0.0/16", Route::Paths(Box::new([path("198.51.100.2", 5)]))),
        ("10.2.0.0/16", Route::Paths(Box::new([path("192.0.2.2", 3), path("198.51.100.2", 5)]))),
        ("10.4.0.0/16", Route::Unreachable),
        ("192.0.2.0/24", Route::Paths(Box::new([path("", 3)]))),
        ("198.51.100.0/24", Route::Paths(Box::new([path("", 5)]))),
        ("2001:db8::/64", Route::Paths(Box::new([path("", 3)]))),
        ("2001:db8:1::/48", Route::Paths(Box::new([path("2001:db8::2", 3)]))),
        ("2001:db8:2::/48", Route::Blackhole),
        ("fe80::/64", Route::Paths(Box::new([path("", 5)]))),
    ];
    assert_eq!(table.all().len(), routes.len());
    for (prefix, route) in routes {
        assert_eq!(table.best(prefix.parse().unwrap()), Some(&route), "{prefix}");
    }
    assert_eq!((peer.fpm.counts().errors, peer.fpm.counts().messages), (0, 44));
}

/// Prints frames per second. Run it alone, with `--release`.
#[test]
#[ignore = "a measurement"]
fn figures_of_a_replay() {
    const ROUTES: u32 = 1_000_000;
    let mut peer = Peer::new();
    let mut stream = frame(&object(7, 1));
    for number in 0..ROUTES {
        let at = IpPrefix::V4(Prefix4::truncating(number << 8, 24));
        stream.extend(frame(&route_bytes(at, RouteType::Unicast, vec![RouteAttribute::NhId(7)])));
    }
    for what in ["first replay", "second replay"] {
        let (start, mut events) = (Instant::now(), 0);
        for read in stream.chunks(1 << 16) {
            peer.send(FIRST, read).unwrap();
            events += peer.events().len();
        }
        let seconds = start.elapsed().as_secs_f64();
        say(format_args!("{what}: {events} events, {:.2} M frames/s", f64::from(ROUTES) / seconds / 1e6));
    }
    let start = Instant::now();
    peer.send(FIRST, &frame(&object(7, 2))).unwrap();
    say(format_args!("a group of {} routes: {:.3} s", peer.events().len(), start.elapsed().as_secs_f64()));
}
