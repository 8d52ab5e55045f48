//! Datagrams in, events out: passes, interrupted passes, objects missing from a pass, and paths of IPv6 routes.

use super::*;
use crate::routes::feeds::heard::HeardRoutes;
use crate::routes::feeds::netlink::tests::{next_hop_bytes, raw};
use crate::routes::feeds::test_peers::{encode, gone_bytes, route_bytes};
use crate::routes::feeds::{LinkAddress, LinkNeighbour, Path};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAttribute, RouteNextHop, RouteNextHopFlags, RouteType};
use proptest::prelude::*;

pub(super) struct KernelRig {
    pub(super) kernel: Kernel,
    pub(super) now: Instant,
    pub(super) out: Vec<FeedEvent>,
    pub(super) table: HeardRoutes,
    is_up: bool,
    /// Notifications that precede the next dump of IPv4 routes.
    pub(super) overtaking: Vec<Vec<u8>>,
}

pub(super) fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

pub(super) fn route(text: &str, metric: u32) -> Vec<u8> {
    let attributes = vec![RouteAttribute::Oif(2), RouteAttribute::Priority(metric)];
    route_bytes(prefix(text), RouteType::Unicast, attributes)
}

fn link(is_up: bool) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = 2;
    message.header.flags = if is_up { LinkFlags::Up | LinkFlags::Running } else { LinkFlags::empty() };
    message.attributes = vec![LinkAttribute::IfName("eth2".into())];
    encode(RouteNetlinkMessage::NewLink(message))
}

impl KernelRig {
    pub(super) fn new(options: KernelOptions) -> Self {
        let now = Instant::now();
        let table = HeardRoutes::default();
        Self {
            kernel: Kernel::new(options, now),
            now,
            out: Vec::new(),
            table,
            is_up: true,
            overtaking: Vec::new(),
        }
    }

    pub(super) fn hear(&mut self, datagram: &[u8]) {
        self.kernel.received(datagram, self.now, &mut self.out);
    }

    pub(super) fn events(&mut self) -> Vec<FeedEvent> {
        let events = std::mem::take(&mut self.out);
        self.table.apply(&events);
        events
    }

    pub(super) fn has(&mut self, text: &str) -> bool {
        self.events();
        self.table.best(prefix(text)).is_some()
    }

    pub(super) fn is_due(&self) -> bool {
        self.kernel.deadline().is_some_and(|at| at <= self.now + PASS_INTERVAL)
    }

    /// Answers every request of a pass, with these messages in the dump of IPv4 routes.
    pub(super) fn pass(&mut self, routes: &[Vec<u8>], flags: u16) -> usize {
        let link = link(self.is_up);
        self.pass_with(flags, |kind, family| match (kind, family) {
            (26, 2) => routes.concat(),
            (18, _) => link.clone(),
            _ => Vec::new(),
        })
    }

    /// Answers every request of a pass by `answer`, given the request's type and family.
    pub(super) fn pass_with(&mut self, flags: u16, answer: impl Fn(u16, u8) -> Vec<u8>) -> usize {
        let mut requests = 0;
        while let Some(request) = self.kernel.request(self.now, &mut self.out) {
            requests += 1;
            assert_eq!(self.kernel.request(self.now, &mut self.out), None, "one at a time");
            let kind = u16::from_ne_bytes([request[4], request[5]]);
            if (kind, request[HEADER_BYTES]) == (26, 2) {
                std::mem::take(&mut self.overtaking).iter().for_each(|notification| self.hear(notification));
            }
            let mut bytes = [answer(kind, request[HEADER_BYTES]), raw(3, &[0; 4], &[])].concat();
            let mut at = 0;
            while at < bytes.len() {
                let len = u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
                bytes[at + 6..at + 8].copy_from_slice(&flags.to_ne_bytes());
                bytes[at + 8..at + 12].copy_from_slice(&request[8..12]);
                at += len.next_multiple_of(4);
            }
            self.hear(&bytes);
        }
        requests
    }
}

use crate::routes::feeds::netlink::HEADER_BYTES;

const PERMANENT: u8 = 0x80;

/// A route of `protocol` on interface 2, by fe80::1 if it has a gateway.
fn of_protocol(text: &str, protocol: u8, has_gateway: bool) -> Vec<u8> {
    let gateway = IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]);
    let mut attributes = vec![RouteAttribute::Oif(2), RouteAttribute::Priority(1024)];
    attributes.extend(has_gateway.then(|| RouteAttribute::Gateway(gateway.into())));
    let mut bytes = route_bytes(prefix(text), RouteType::Unicast, attributes);
    bytes[HEADER_BYTES + 5] = protocol;
    bytes
}

/// An IPv6 address ending in 7 of interface 2.
fn address_of(text: &str, flags: u8) -> Vec<u8> {
    let IpPrefix::V6(prefix) = prefix(text) else { panic!("{text}") };
    let address = (prefix.address() | 7).to_be_bytes();
    raw(20, &[10, prefix.len(), flags, 0, 2, 0, 0, 0], &[(1, &address)])
}

#[test]
fn a_router_advertisement_and_a_redirect_are_neither_addresses_nor_routes() {
    let mut watch = KernelRig::new(KernelOptions { is_local_wanted: true, ..KernelOptions::default() });
    watch.pass(&[], 2);
    watch.events();
    for datagram in [
        of_protocol("2001:db8:bad::/64", BY_KERNEL, false),
        address_of("2001:db8:bad::/64", 0),
        of_protocol("::/0", ADVERTISED, true),
        of_protocol("2001:db8:bad:1::/64", ADVERTISED, false),
        of_protocol("198.51.100.7/32", REDIRECTED, false),
        of_protocol("2001:db8:bad:2::7/128", REDIRECTED, true),
    ] {
        watch.hear(&datagram);
    }
    assert_eq!((watch.events(), watch.kernel.counts().ignored, watch.is_due()), (vec![], 6, false));
    // The same routes from an operator; an advertisement does not affect their default route.
    watch.hear(&of_protocol("::/0", 4, true));
    let mut gone = of_protocol("::/0", ADVERTISED, true);
    gone[4..6].copy_from_slice(&25_u16.to_ne_bytes());
    watch.hear(&gone);
    watch.hear(&of_protocol("198.51.100.7/32", BY_KERNEL, false));
    assert!(watch.has("::/0") && watch.has("198.51.100.7/32"));
}

#[test]
fn a_prefix_of_a_permanent_address_is_on_the_link() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    let (net, address) = ("2001:db8:1::/64", address_of("2001:db8:1::/64", PERMANENT));
    // In the kernel's order; the pass after it has both.
    watch.hear(&of_protocol(net, BY_KERNEL, false));
    watch.hear(&address);
    assert!(!watch.has(net) && watch.is_due());
    watch.now += PASS_INTERVAL;
    watch.pass(&[of_protocol(net, BY_KERNEL, false)], 2);
    assert!(watch.has(net));
    watch.hear(&address);
    let seven = LinkAddress { ifindex: 2, address: "2001:db8:1::7".parse().unwrap(), len: 64 };
    watch.hear(&address_of(net, 0));
    assert_eq!(watch.events().last(), Some(&FeedEvent::AddressGone(seven)), "it has a lifetime now");
}

#[test]
fn a_pass_dumps_every_table_and_withdraws_what_it_did_not_contain() {
    let mut watch = KernelRig::new(KernelOptions::default());
    assert_eq!(watch.pass(&[route("10.0.0.0/8", 0), route("11.0.0.0/8", 0)], 2), 6);
    let events = watch.events();
    assert_eq!(events[0], FeedEvent::Connected);
    assert!(matches!(&events[1], FeedEvent::Link(link) if link.name == "eth2"));
    assert_eq!(events.last(), Some(&FeedEvent::Complete));
    assert_eq!((watch.is_due(), watch.pass(&[], 2)), (false, 0));

    watch.hear(&route("12.0.0.0/8", 0));
    watch.kernel.overrun(watch.now);
    watch.kernel.overrun(watch.now);
    assert_eq!(watch.kernel.deadline(), Some(watch.now + PASS_INTERVAL));
    assert_eq!(watch.kernel.request(watch.now, &mut watch.out), None);
    watch.now += PASS_INTERVAL;
    assert_eq!(watch.pass(&[route("10.0.0.0/8", 0)], 2), 6);
    let withdrawn = |text| FeedEvent::Withdraw { vrf: 0, prefix: prefix(text), metric: 0 };
    let events = watch.events();
    assert!(["11.0.0.0/8", "12.0.0.0/8"].iter().all(|text| events.contains(&withdrawn(text))));
    assert!(
        !events.iter().any(
            |event| matches!(event, FeedEvent::Announce { prefix: of, .. } if *of == prefix("10.0.0.0/8"))
        )
    );
    assert_eq!(["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8"].map(|text| watch.has(text)), [true, false, false]);
    let FeedCounts { overruns, repaired, .. } = watch.kernel.counts();
    assert_eq!((overruns, repaired), (2, 0), "what was lost in an overrun was expected");
}

#[test]
fn a_pass_that_is_torn_or_refused_withdraws_nothing_and_is_repeated() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[route("10.0.0.0/8", 0)], 2);
    for is_torn in [true, false] {
        watch.kernel.overrun(watch.now);
        watch.now = watch.kernel.deadline().unwrap();
        let began = watch.now;
        if is_torn {
            watch.pass(&[], 2 | NLM_F_DUMP_INTR);
        } else {
            while watch.kernel.request(watch.now, &mut watch.out).is_some() {
                watch.kernel.refused(watch.now, &mut watch.out);
            }
        }
        assert!(watch.has("10.0.0.0/8"));
        watch.now = watch.kernel.deadline().unwrap();
        assert!(watch.now < began + RECONCILE_INTERVAL);
        watch.pass(&[route("10.0.0.0/8", 0)], 2);
        assert!(watch.has("10.0.0.0/8"));
    }
    assert!(!watch.is_due());
}

#[test]
fn passes_that_are_torn_are_further_apart() {
    let mut watch = KernelRig::new(KernelOptions::default());
    for seconds in [1, 2, 4, 8, 16, 32, 32] {
        watch.pass(&[], 2 | NLM_F_DUMP_INTR);
        assert_eq!(watch.kernel.deadline(), Some(watch.now + Duration::from_secs(seconds)));
        watch.now += Duration::from_secs(seconds);
    }
    watch.pass(&[route("10.0.0.0/8", 0)], 2);
    assert!(watch.has("10.0.0.0/8") && !watch.is_due());
}

#[test]
fn passes_after_overruns_are_further_apart() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    for seconds in [1, 2, 4, 8, 16, 32, 32] {
        watch.kernel.overrun(watch.now);
        assert_eq!(watch.kernel.deadline(), Some(watch.now + Duration::from_secs(seconds)));
        watch.now += Duration::from_secs(seconds);
        assert_eq!(watch.pass(&[], 2), 6);
    }
    watch.now += 2 * Duration::from_secs(32);
    watch.kernel.overrun(watch.now);
    assert_eq!(watch.pass(&[], 2), 6, "at once after a pause without one");
    watch.kernel.overrun(watch.now);
    assert_eq!(watch.kernel.deadline(), Some(watch.now + 2 * PASS_INTERVAL));
}

#[test]
fn passes_that_overruns_interrupt_are_further_apart() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    for seconds in [2, 4, 8, 16, 32, 32] {
        watch.kernel.overrun(watch.now);
        watch.now = watch.kernel.deadline().unwrap();
        let began = watch.now;
        assert!(watch.kernel.request(began, &mut watch.out).is_some());
        watch.kernel.overrun(watch.now);
        watch.kernel.overrun(watch.now);
        while watch.kernel.deadline().is_none() {
            watch.kernel.refused(watch.now, &mut watch.out);
            watch.kernel.request(watch.now, &mut watch.out);
        }
        assert_eq!(watch.kernel.deadline(), Some(began + Duration::from_secs(seconds)));
    }
    watch.now = watch.kernel.deadline().unwrap();
    watch.pass(&[], 2);
    assert!(!watch.is_due());
}

#[test]
fn a_pass_with_too_many_notifications_is_repeated() {
    type Notify = fn(u32) -> Vec<u8>;
    let of_route: Notify = |number| {
        let prefix = IpPrefix::V4(fib::Prefix4::truncating(number << 8, 24));
        with_flags(route_bytes(prefix, RouteType::Unicast, vec![RouteAttribute::Oif(2)]), 0x400)
    };
    let of_neighbour: Notify = |number| {
        let header = [2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0]; // reachable
        raw(28, &header, &[(1, &number.to_be_bytes()), (2, &[2, 0, 0, 0, 0, 1])])
    };
    for (count, notify) in [(1000, of_route), (tracked::NOTIFIED_MAX + 1, of_neighbour)] {
        let mut watch = KernelRig::new(KernelOptions::default());
        watch.kernel.routes.edits_max = 1000;
        watch.overtaking = (0..).take(count).map(notify).collect();
        watch.pass(&[], 2);
        assert!(watch.is_due(), "its dump is not compared");
        assert_eq!(watch.events().iter().filter(|event| is_removal(event)).count(), 0);
        watch.now += PASS_INTERVAL_MAX;
        watch.pass(&[], 2);
        assert!(!watch.is_due());
        assert_eq!(watch.events().iter().filter(|event| is_removal(event)).count(), count);
    }
}

fn is_removal(event: &FeedEvent) -> bool {
    matches!(event, FeedEvent::Withdraw { .. } | FeedEvent::NeighbourGone(..))
}

#[test]
fn what_the_kernel_removes_silently_is_looked_for() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    let mut link_gone = link(true);
    link_gone[4..6].copy_from_slice(&17_u16.to_ne_bytes());
    let address_gone = raw(21, &[2, 24, 0, 0, 2, 0, 0, 0], &[(1, &[192, 0, 2, 1])]);
    for datagram in [&link(false), &link_gone, &address_gone] {
        assert!(!watch.is_due());
        watch.hear(&link(true));
        watch.hear(datagram);
        assert!(watch.is_due());
        watch.now += PASS_INTERVAL;
        watch.pass(&[], 2);
    }
    assert!(watch.events().contains(&FeedEvent::LinkGone(2)));
    let tables = RoutingTables::none();
    let mut watch = KernelRig::new(KernelOptions { tables, ..KernelOptions::default() });
    assert_eq!(watch.pass(&[], 2), 3, "links, addresses and neighbours");
    [link(false), link_gone, address_gone].iter().for_each(|datagram| watch.hear(datagram));
    assert!(!watch.is_due(), "there are no routes to look for");
}

pub(super) fn with_flags(mut message: Vec<u8>, flags: u16) -> Vec<u8> {
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message
}

fn object(id: u32, gateway: [u8; 4]) -> Vec<u8> {
    next_hop_bytes(id, 2, &[(5, &2_u32.to_ne_bytes()), (6, &gateway)])
}

fn by_object(text: &str, id: u32) -> Vec<u8> {
    route_bytes(prefix(text), RouteType::Unicast, vec![RouteAttribute::NhId(id)])
}

#[test]
fn an_object_takes_its_routes_along() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    let gone = raw(105, &[0; 8], &[(1, &7_u32.to_ne_bytes())]);
    for datagram in [&object(7, [192, 0, 2, 1]), &by_object("10.0.0.0/8", 7), &gone] {
        watch.hear(datagram);
    }
    assert!(!watch.has("10.0.0.0/8") && !watch.is_due());
    watch.hear(&object(7, [192, 0, 2, 2]));
    assert!(!watch.has("10.0.0.0/8"), "it is another object");
    // An object that went with its link is not reported; a new one with its number has no routes.
    watch.hear(&by_object("10.0.0.0/8", 7));
    assert!(watch.has("10.0.0.0/8"));
    watch.hear(&with_flags(object(7, [192, 0, 2, 3]), NLM_F_EXCL | 0x400));
    assert!(!watch.has("10.0.0.0/8"));
    // Nor is the route in the next pass, although one names the object.
    watch.hear(&by_object("10.0.0.0/8", 7));
    watch.events();
    watch.kernel.overrun(watch.now);
    watch.now += PASS_INTERVAL;
    watch.pass(&[by_object("10.0.0.0/8", 7)], 2);
    assert!(!watch.has("10.0.0.0/8"));
}

#[test]
fn a_member_that_goes_costs_one_event_for_all_routes_of_its_group() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    let group = |members: &[u32]| {
        let members: Vec<u8> =
            members.iter().flat_map(|id| [&id.to_ne_bytes()[..], &[0; 4]].concat()).collect();
        next_hop_bytes(9, 0, &[(2, &members)])
    };
    for datagram in [object(7, [192, 0, 2, 7]), object(8, [192, 0, 2, 8]), group(&[7, 8])] {
        watch.hear(&datagram);
    }
    ["10.0.0.0/8", "11.0.0.0/8"].iter().for_each(|text| watch.hear(&by_object(text, 9)));
    watch.events();
    watch.hear(&raw(105, &[0; 8], &[(1, &7_u32.to_ne_bytes())]));
    watch.hear(&group(&[8]));
    let events = watch.events();
    assert!(events.iter().all(|event| matches!(event, FeedEvent::Object { .. })), "{events:?}");
    assert_eq!(shown(watch.table.best(prefix("11.0.0.0/8"))), "192.0.2.8");
}

#[test]
fn a_comparison_repairs_and_counts_what_differs() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[route("10.0.0.0/8", 0), route("11.0.0.0/8", 0), route("12.0.0.0/8", 0)], 2);
    watch.events();
    watch.now += RECONCILE_INTERVAL;
    let other = route_bytes(prefix("11.0.0.0/8"), RouteType::BlackHole, Vec::new());
    assert_eq!(watch.pass(&[route("10.0.0.0/8", 0), other.clone()], 2), 6);
    assert_eq!(watch.kernel.counts().repaired, 2);
    let changes = watch.events();
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert!(!watch.has("12.0.0.0/8") && watch.table.best(prefix("11.0.0.0/8")) == Some(&Route::Blackhole));
    watch.now += RECONCILE_INTERVAL;
    assert_eq!(watch.pass(&[route("10.0.0.0/8", 0), other], 2), 6);
    assert_eq!((watch.events(), watch.kernel.counts().repaired), (vec![FeedEvent::Complete], 2));
}

#[test]
fn what_a_limit_left_out_comes_when_there_is_room() {
    let options = KernelOptions { routes_max: 1, ..KernelOptions::default() };
    let mut watch = KernelRig::new(options);
    watch.pass(&[route("10.0.0.0/8", 0), route("11.0.0.0/8", 0)], 2);
    assert!(watch.has("10.0.0.0/8") && !watch.has("11.0.0.0/8"));
    assert_eq!(watch.kernel.counts().over_limit, 1);
    let mut gone = route("10.0.0.0/8", 0);
    gone[4..6].copy_from_slice(&25_u16.to_ne_bytes());
    watch.hear(&gone);
    watch.now += RECONCILE_INTERVAL;
    watch.pass(&[route("11.0.0.0/8", 0)], 2);
    assert!(watch.has("11.0.0.0/8"));
}

#[test]
fn a_route_that_is_left_out_may_replace_another() {
    let options = KernelOptions { protocols_left_out: vec![186], ..KernelOptions::default() };
    let mut watch = KernelRig::new(options);
    watch.pass(&[route("10.0.0.0/8", 0)], 2);
    let mut bgp = with_flags(route("10.0.0.0/8", 0), NLM_F_REPLACE);
    bgp[HEADER_BYTES + 5] = 186;
    watch.hear(&bgp);
    assert!(watch.is_due());
    watch.now += PASS_INTERVAL;
    watch.pass(&[bgp], 2);
    assert!(!watch.has("10.0.0.0/8"));
}

pub(super) fn shown(route: Option<&Route>) -> String {
    let of = |path: &Path| path.gateway.map_or_else(|| "link".to_owned(), |gateway| gateway.to_string());
    match route {
        Some(Route::Paths(paths)) => paths.iter().map(of).collect::<Vec<_>>().join(" "),
        Some(other) => format!("{other:?}"),
        None => "none".to_owned(),
    }
}

#[test]
fn a_path_that_comes_back_with_its_link_is_looked_for() {
    let mut watch = KernelRig::new(KernelOptions::default());
    let hop = |last: u8, flags| {
        let mut hop = RouteNextHop::default();
        (hop.interface_index, hop.flags) = (2, flags);
        hop.attributes.push(RouteAttribute::Gateway(IpAddr::from([192, 0, 2, last]).into()));
        hop
    };
    let of = |flags| {
        let hops = vec![hop(1, RouteNextHopFlags::empty()), hop(2, flags)];
        route_bytes(prefix("10.0.0.0/8"), RouteType::Unicast, vec![RouteAttribute::MultiPath(hops)])
    };
    let paths = |watch: &mut KernelRig| {
        watch.events();
        match watch.table.best(prefix("10.0.0.0/8")) {
            Some(Route::Paths(paths)) => paths.len(),
            _ => 0,
        }
    };
    watch.pass(&[of(RouteNextHopFlags::empty())], 2);
    assert_eq!(paths(&mut watch), 2);
    // The kernel removes and revives a path with its link, without a notification.
    for (is_up, flags, left) in [(false, RouteNextHopFlags::Dead, 1), (true, RouteNextHopFlags::empty(), 2)] {
        watch.is_up = is_up;
        watch.hear(&link(is_up));
        watch.now += PASS_INTERVAL;
        assert_eq!(watch.pass(&[of(flags)], 2), 6);
        assert_eq!(paths(&mut watch), left);
    }
}

#[test]
fn metrics_tables_and_link_local_routes() {
    let mut watch =
        KernelRig::new(KernelOptions { protocols_left_out: vec![186], ..KernelOptions::default() });
    for datagram in [route("10.0.0.0/8", 100), route("10.0.0.0/8", 600)] {
        watch.hear(&datagram);
    }
    let mut gone = route("10.0.0.0/8", 100);
    gone[4..6].copy_from_slice(&25_u16.to_ne_bytes());
    watch.hear(&gone);
    assert!(watch.has("10.0.0.0/8"), "the route with the other metric is there");
    let mut bgp = route("13.0.0.0/8", 0);
    bgp[HEADER_BYTES + 5] = 186;
    watch.hear(&bgp);
    let local = |table| vec![RouteAttribute::Oif(2), RouteAttribute::Table(table)];
    let link_local = route("fe80::/64", 256);
    let own = route_bytes(prefix("192.0.2.1/32"), RouteType::Local, local(255));
    let other = route_bytes(prefix("14.0.0.0/8"), RouteType::Unicast, local(10));
    for datagram in [&link_local, &own, &other, &route("ff00::/8", 256)] {
        watch.hear(datagram);
    }
    assert_eq!((watch.kernel.counts().ignored, watch.table.all().len()), (5, 1));
    let mut all = KernelRig::new(KernelOptions { is_local_wanted: true, ..KernelOptions::default() });
    for datagram in [&link_local, &own, &other] {
        all.hear(datagram);
    }
    assert!(all.has("fe80::/64") && all.has("192.0.2.1/32") && !all.has("14.0.0.0/8"));
}

#[test]
fn each_vrf_has_the_routes_of_its_table() {
    let mut tables = RoutingTables::default();
    tables.set(10, 1);
    tables.set(1000, 2);
    let mut watch = KernelRig::new(KernelOptions { tables, ..KernelOptions::default() });
    let path = |index| {
        let mut path = RouteNextHop::default();
        path.interface_index = index;
        path
    };
    let in_table = |text: &str, table| {
        let both = RouteAttribute::MultiPath(vec![path(2), path(3)]);
        route_bytes(prefix(text), RouteType::Unicast, vec![both, RouteAttribute::Table(table)])
    };
    let gone = |text: &str, table, ifindex| {
        let attributes = vec![RouteAttribute::Oif(ifindex), RouteAttribute::Table(table)];
        let mut bytes = route_bytes(prefix(text), RouteType::Unicast, attributes);
        bytes[4..6].copy_from_slice(&25_u16.to_ne_bytes());
        bytes
    };
    let local = vec![RouteAttribute::Oif(2), RouteAttribute::Table(10)];
    let local = route_bytes(prefix("192.0.2.1/32"), RouteType::Local, local);
    for datagram in [
        in_table("10.0.0.0/8", 254),
        in_table("10.0.0.0/8", 10),
        in_table("2001:db8::/32", 10),
        in_table("2001:db8::/32", 1000),
        in_table("10.0.0.0/8", 11),
        local,
        gone("10.0.0.0/8", 254, 2),
        gone("2001:db8::/32", 1000, 3),
    ] {
        watch.hear(&datagram);
    }
    let said: Vec<_> = watch
        .out
        .iter()
        .map(|event| match event {
            FeedEvent::Announce { vrf, prefix, route, .. } => {
                let Route::Paths(paths) = &**route else { panic!("{route:?}") };
                (*vrf, prefix.to_string(), paths.len())
            }
            FeedEvent::Withdraw { vrf, prefix, .. } => (*vrf, prefix.to_string(), 0),
            other => panic!("{other:?}"),
        })
        .collect();
    // A path of the IPv6 route in one table is deleted; the routes of the others stay.
    let wanted = [
        (0, "10.0.0.0/8", 2),
        (1, "10.0.0.0/8", 2),
        (1, "2001:db8::/32", 2),
        (2, "2001:db8::/32", 2),
        (0, "10.0.0.0/8", 0),
        (2, "2001:db8::/32", 1),
    ];
    assert_eq!(said, wanted.map(|(vrf, prefix, paths)| (vrf, prefix.to_owned(), paths)));
    assert_eq!(watch.kernel.counts().ignored, 2);
}

#[test]
fn a_path_of_an_ipv6_route_goes_and_the_others_stay() {
    let mut watch = KernelRig::new(KernelOptions::default());
    let gateway = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
    let path = |last| {
        let mut path = RouteNextHop::default();
        path.interface_index = 2;
        path.attributes = vec![RouteAttribute::Gateway(gateway(last).into())];
        path
    };
    let at = prefix("2001:db8:1::/48");
    let both = vec![RouteAttribute::MultiPath(vec![path(1), path(2)])];
    watch.hear(&route_bytes(at, RouteType::Unicast, both));
    let one = |last: u16| vec![RouteAttribute::Gateway(gateway(last).into()), RouteAttribute::Oif(2)];
    let mut gone = route_bytes(at, RouteType::Unicast, one(1));
    gone[4..6].copy_from_slice(&25_u16.to_ne_bytes());
    watch.hear(&gone);
    watch.events();
    let left = Route::Paths(Box::new([Path { gateway: Some(gateway(2)), ifindex: 2, weight: 1 }]));
    assert_eq!(watch.table.best(at), Some(&left));
    // Deleting a path unknown to the mirror affects no other path; a dead one (RTNH_F_DEAD) goes alone.
    watch.hear(&gone);
    watch.hear(&route_bytes(at, RouteType::Unicast, vec![RouteAttribute::MultiPath(vec![path(1), path(2)])]));
    gone[HEADER_BYTES + 8] |= 1;
    watch.hear(&gone);
    watch.events();
    assert_eq!(watch.table.best(at), Some(&left));
    watch.hear(&gone_bytes(at));
    assert!(!watch.has("2001:db8:1::/48"));
}

#[test]
fn objects_neighbours_and_addresses() {
    let mut watch = KernelRig::new(KernelOptions::default());
    watch.pass(&[], 2);
    watch.events();
    let (address, ifindex, mac) = (IpAddr::from([192, 0, 2, 1]), 2, MacAddr([2, 0, 0, 0, 0, 1]));
    let header = [&[2, 0, 0, 0, 2, 0, 0, 0][..], &[2, 0, 0, 0]].concat(); // reachable
    let neighbour = raw(28, &header, &[(1, &[192, 0, 2, 1]), (2, &mac.0)]);
    let own = raw(20, &[2, 24, PERMANENT, 0, 2, 0, 0, 0], &[(1, &[192, 0, 2, 1])]);
    for datagram in [&neighbour, &neighbour, &own, &own, &by_object("10.0.0.0/8", 7)] {
        watch.hear(datagram);
    }
    watch.hear(&next_hop_bytes(7, 2, &[(5, &2_u32.to_ne_bytes())]));
    let own = LinkAddress { ifindex, address, len: 24 };
    let events = watch.events();
    let neighbour = LinkNeighbour { address, ifindex, mac };
    assert_eq!(events[..2], [FeedEvent::Neighbour(neighbour), FeedEvent::Address(own)]);
    assert!(matches!(events[2..], [FeedEvent::Object { .. }, FeedEvent::Announce { .. }]));
    watch.kernel.overrun(watch.now);
    watch.now += PASS_INTERVAL;
    watch.pass(&[], 2);
    let events = watch.events();
    assert!(events.contains(&FeedEvent::AddressGone(own)));
    assert!(events.contains(&FeedEvent::NeighbourGone(address, ifindex)));
}

proptest! {
    #[test]
    fn any_datagrams_are_events_or_errors(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
        let mut watch = KernelRig::new(KernelOptions::default());
        watch.kernel.request(watch.now, &mut watch.out);
        for datagram in datagrams {
            watch.hear(&datagram);
        }
    }
}
