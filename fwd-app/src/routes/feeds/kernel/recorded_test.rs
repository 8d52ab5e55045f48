//! Recorded messages of the kernel, its rules for several routes of one key, and dumps that are older than a notification.

use super::tests::{KernelRig, prefix, route, shown, with_flags};
use super::*;
use crate::routes::feeds::netlink::HEADER_BYTES;
use crate::routes::feeds::netlink::tests::raw;
use crate::routes::feeds::test_peers::route_bytes;
use netlink_packet_route::route::{RouteAttribute, RouteMetric, RouteType};
use proptest::prelude::*;

/// Datagrams of the kernel, with and without `net.ipv4.nexthop_compat_mode`; `README.md` describes the recording.
const RECORDINGS: [&[u8]; 2] =
    [include_bytes!("rtnetlink-compat.bin"), include_bytes!("rtnetlink-plain.bin")];
/// The type of a record that ends a step, with the step's name.
const STEP: u16 = u16::MAX;

/// The next hops after some steps, of the prefix with this number: 172.16.0.0/16, 172.20.0.0/16 and 2001:db8:a::/48.
const NEXT_HOPS: [(&str, usize, &str); 18] = [
    ("a group", 0, "192.0.0.2 192.0.1.2"),
    ("a member is replaced", 0, "192.0.0.2 192.0.1.9"),
    ("a member is deleted", 0, "192.0.1.9"),
    ("the group is empty", 0, "none"),
    ("the number of the group comes back", 0, "none"),
    ("append", 1, "192.0.0.2"),
    ("prepend", 1, "192.0.1.3"),
    ("the first goes", 1, "192.0.0.2"),
    ("the first is replaced", 1, "192.0.0.4"),
    ("append with an object", 1, "192.0.0.4"),
    ("the object of the last is replaced", 1, "192.0.0.4"),
    ("the first goes again", 1, "192.0.1.2"),
    ("that with the object is left", 1, "192.0.1.8"),
    ("its object goes", 1, "none"),
    ("an IPv6 path is appended", 2, "2001:db8::2 2001:db8:1::2 2001:db8:1::3"),
    ("an IPv6 path goes", 2, "2001:db8:1::2 2001:db8:1::3"),
    ("the IPv6 paths are replaced", 2, "2001:db8::9"),
    ("the IPv6 route with a gateway goes", 2, "link"),
];

fn records(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut all = Vec::new();
    while let Some((&[a, b, c, d], rest)) = bytes.split_first_chunk() {
        let (record, rest) = rest.split_at(u16::from_le_bytes([c, d]).into());
        all.push((u16::from_le_bytes([a, b]), record));
        bytes = rest;
    }
    all
}

#[test]
fn the_mirror_is_what_the_kernel_has_after_every_step() {
    for recording in RECORDINGS {
        let mut watch = KernelRig::new(KernelOptions::default());
        let mut tables = std::collections::BTreeMap::new();
        let mut steps = Vec::new();
        for (kind, bytes) in records(recording) {
            let answer = |kind, family: u8| {
                let table = tables.get(&(kind | u16::from(family) << 8));
                table.map_or_else(Vec::new, |bytes: &&[u8]| bytes.to_vec())
            };
            match kind {
                0 => watch.hear(bytes),
                STEP => {
                    if watch.is_due() {
                        watch.now += PASS_INTERVAL;
                        watch.pass_with(2, answer);
                    }
                    let mut fresh = KernelRig::new(KernelOptions::default());
                    fresh.pass_with(2, answer);
                    fresh.events();
                    watch.events();
                    let step = std::str::from_utf8(bytes).unwrap();
                    assert_eq!(watch.table.all(), fresh.table.all(), "{step}");
                    watch.now += RECONCILE_INTERVAL;
                    watch.pass_with(2, answer);
                    let events = watch.events();
                    assert_eq!(
                        (events, watch.kernel.counts().repaired),
                        (vec![FeedEvent::Complete], 0),
                        "{step}"
                    );
                    let of = |text| shown(watch.table.best(prefix(text)));
                    steps.push((step, [of("172.16.0.0/16"), of("172.20.0.0/16"), of("2001:db8:a::/48")]));
                    if step == "one subnet on two interfaces" {
                        let Some(Route::Paths(paths)) = watch.table.best(prefix("198.18.5.0/24")) else {
                            panic!()
                        };
                        assert_eq!(paths[0].ifindex, 3, "e0");
                    }
                }
                _ => {
                    tables.insert(kind, bytes);
                }
            }
        }
        let of = |step: &str, at: usize| {
            let found = steps.iter().find(|(name, _)| *name == step);
            found.unwrap_or_else(|| panic!("{step}")).1[at].clone()
        };
        for (step, at, wanted) in NEXT_HOPS {
            assert_eq!(of(step, at), wanted, "{step}");
        }
        assert!(watch.kernel.counts().unsupported > 0, "the route with a TOS is counted");
        assert_eq!(shown(watch.table.best(prefix("172.21.0.0/16"))), "none", "its link is down");
    }
}

fn without(mut message: Vec<u8>) -> Vec<u8> {
    message[4..6].copy_from_slice(&25_u16.to_ne_bytes());
    message
}

#[test]
fn a_notification_wins_over_an_older_dump() {
    let mut watch = KernelRig::new(KernelOptions::default());
    let old = route("10.0.0.0/8", 0);
    let new = route_bytes(prefix("10.0.0.0/8"), RouteType::BlackHole, Vec::new());
    let is_new = |watch: &mut KernelRig| {
        watch.events();
        watch.table.best(prefix("10.0.0.0/8")) == Some(&Route::Blackhole)
    };
    // In the first pass, and in one that knows the route.
    for pause in [Duration::ZERO, RECONCILE_INTERVAL, RECONCILE_INTERVAL] {
        watch.now += pause;
        watch.overtaking = vec![without(old.clone())];
        assert_eq!(watch.pass(std::slice::from_ref(&old), 2), 6);
        assert!(!watch.has("10.0.0.0/8"));
        watch.hear(&with_flags(old.clone(), 0x600));
        assert!(watch.has("10.0.0.0/8"));
    }
    watch.now += RECONCILE_INTERVAL;
    watch.overtaking = vec![with_flags(new.clone(), 0x500)];
    watch.pass(std::slice::from_ref(&old), 2);
    assert!(is_new(&mut watch));
    // The replaced route is not listed after it.
    watch.hear(&without(new.clone()));
    assert!(!watch.has("10.0.0.0/8"));
    watch.now += RECONCILE_INTERVAL;
    let there_and_back = [with_flags(old.clone(), 0x600), with_flags(new.clone(), 0x500), without(new)];
    watch.overtaking = there_and_back.iter().cycle().take(3 * 100).cloned().collect();
    watch.pass(&[old], 2);
    assert!(!watch.has("10.0.0.0/8"));
    assert_eq!(watch.kernel.counts().repaired, 0);
}

#[test]
fn a_route_of_a_key_that_was_not_known_before_is_looked_for_again() {
    let mut watch = KernelRig::new(KernelOptions::default());
    let old = route("10.0.0.0/8", 0);
    let new = route_bytes(prefix("10.0.0.0/8"), RouteType::BlackHole, Vec::new());
    watch.overtaking = vec![with_flags(new.clone(), 0xc00)];
    watch.pass(std::slice::from_ref(&old), 2);
    watch.events();
    assert_ne!(watch.table.best(prefix("10.0.0.0/8")), Some(&Route::Blackhole), "it was appended");
    assert!(watch.is_due());
    watch.now += PASS_INTERVAL;
    watch.pass(&[old.clone(), new], 2);
    assert!(!watch.is_due());
    watch.hear(&without(old));
    watch.events();
    assert_eq!(watch.table.best(prefix("10.0.0.0/8")), Some(&Route::Blackhole));
}

#[test]
fn a_neighbour_that_goes_before_an_older_dump_stays_gone() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    let header = [2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]; // reachable
    let neighbour = raw(28, &header, &[(1, &[192, 0, 2, 1]), (2, &[2, 0, 0, 0, 0, 1])]);
    let mut gone = neighbour.clone();
    gone[4..6].copy_from_slice(&29_u16.to_ne_bytes());
    watch.hear(&neighbour);
    watch.events();
    watch.now += RECONCILE_INTERVAL;
    let request = watch.kernel.request(watch.now, &mut watch.out);
    assert!(request.is_some());
    watch.hear(&gone);
    let sequence = request.unwrap();
    let mut done = raw(3, &[0; 4], &[]);
    done[8..12].copy_from_slice(&sequence[8..12]);
    watch.hear(&done);
    watch.pass_with(2, |kind, _| if kind == 30 { neighbour.clone() } else { Vec::new() });
    let is_there = |event: &FeedEvent| matches!(event, FeedEvent::Neighbour(_));
    assert!(!watch.events().iter().any(is_there));
}

#[test]
fn ipv4_routes_that_differ_in_attributes_alone_are_different_routes() {
    let via = |last: u8| RouteAttribute::Gateway(IpAddr::from([192, 0, 2, last]).into());
    let of = |last, more: Vec<RouteAttribute>| {
        let attributes = [vec![via(last), RouteAttribute::Oif(2)], more].concat();
        route_bytes(prefix("10.0.0.0/8"), RouteType::Unicast, attributes)
    };
    let with_byte = |at: usize, byte: u8| {
        let mut bytes = of(1, Vec::new());
        bytes[HEADER_BYTES + at] = byte;
        bytes
    };
    let source = RouteAttribute::PrefSource(IpAddr::from([192, 0, 2, 77]).into());
    let metrics = RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400)]);
    for second in [
        of(1, vec![source]),
        of(1, vec![metrics]),
        with_byte(5, 4),  // the protocol
        with_byte(6, 42), // the scope
        with_byte(8, 4),  // on the link
    ] {
        let mut watch = KernelRig::new(KernelOptions::default());
        let (first, last) = (of(1, Vec::new()), of(2, Vec::new()));
        watch.pass(std::slice::from_ref(&first), 2);
        watch.hear(&with_flags(last.clone(), 0xc00));
        watch.hear(&with_flags(second.clone(), 0x400));
        watch.hear(&without(second.clone()));
        let best = |watch: &mut KernelRig| {
            watch.events();
            shown(watch.table.best(prefix("10.0.0.0/8")))
        };
        assert_eq!(best(&mut watch), "192.0.2.1");
        watch.hear(&without(first.clone()));
        assert_eq!(best(&mut watch), "192.0.2.2");
        // A dump has them in the kernel's order.
        watch.now += RECONCILE_INTERVAL;
        watch.pass(&[first.clone(), second.clone(), last], 2);
        watch.hear(&without(first));
        assert_eq!(best(&mut watch), "192.0.2.1");
        watch.hear(&without(second));
        assert_eq!(best(&mut watch), "192.0.2.2");
        assert!(!watch.is_due());
    }
}

/// A route of the list in [`a_list_is_followed`]: its gateway's last byte, and its protocol.
type Listed = (u8, u8);

proptest! {
    /// The kernel's rules for IPv4 routes of one key, in a plain list; dumps of passes may be older than notifications.
    #[test]
    fn a_list_is_followed(steps in prop::collection::vec((0..8_u8, (1..5_u8, 3..5_u8)), 0..40)) {
        let mut watch = KernelRig::new(KernelOptions::default());
        watch.pass(&[], 2);
        let message = |(last, protocol): Listed| {
            let gateway = RouteAttribute::Gateway(IpAddr::from([192, 0, 2, last]).into());
            let attributes = vec![gateway, RouteAttribute::Oif(2)];
            let mut bytes = route_bytes(prefix("10.0.0.0/8"), RouteType::Unicast, attributes);
            bytes[HEADER_BYTES + 5] = protocol;
            bytes
        };
        let mut list: Vec<Listed> = Vec::new();
        // The list when the kernel made the dump of a running pass.
        let mut dumped: Option<Vec<Listed>> = None;
        // Such a dump does not show whether it is older than the return of a route, so another pass may be needed.
        let mut has_returned = false;
        for (what, route) in steps.into_iter().chain([(5, (1, 3))]) {
            let at = list.iter().position(|known| *known == route);
            let flags = match what {
                0 | 1 if at.is_some() => continue,
                0 => {
                    list.push(route);
                    if list.len() > 1 { 0xc00 } else { 0x600 }
                }
                1 => {
                    list.insert(0, route);
                    if list.len() > 1 { 0x400 } else { 0x600 }
                }
                2 if at.is_some() || list.is_empty() => continue,
                2 => {
                    list[0] = route;
                    0x100
                }
                3 | 4 => {
                    let Some(at) = at else { continue };
                    list.remove(at);
                    let mut gone = message(route);
                    gone[4..6].copy_from_slice(&25_u16.to_ne_bytes());
                    watch.overtaking.push(gone);
                    0
                }
                5 => {
                    // A pass whose dump nothing overtakes confirms the list.
                    has_returned &= dumped.is_some();
                    let dumped = dumped.take().unwrap_or_else(|| list.clone());
                    let dump: Vec<_> = dumped.iter().map(|route| message(*route)).collect();
                    watch.now += RECONCILE_INTERVAL;
                    watch.pass(&dump, 2);
                    0
                }
                _ => {
                    dumped = Some(list.clone());
                    continue;
                }
            };
            if flags != 0 {
                has_returned |= dumped.as_ref().is_some_and(|dumped| dumped.contains(&route));
                watch.overtaking.push(with_flags(message(route), flags));
            }
            if dumped.is_some() {
                continue;
            }
            std::mem::take(&mut watch.overtaking).iter().for_each(|notification| watch.hear(notification));
            watch.events();
            let wanted = list.first().map_or("none".to_owned(), |(last, _)| format!("192.0.2.{last}"));
            prop_assert_eq!(shown(watch.table.best(prefix("10.0.0.0/8"))), wanted);
        }
        prop_assert!(has_returned || !watch.is_due());
        prop_assert_eq!(watch.kernel.counts().repaired, 0);
    }
}
