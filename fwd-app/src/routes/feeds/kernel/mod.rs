//! The kernel's routes, neighbours, links and addresses, by rtnetlink, without I/O and clock.
//!
//! A pass dumps each table in turn, on the socket of the notifications, so all messages arrive in order. A mirror of the kernel's state
//! marks each object with its last pass. Only differences are announced; an object missing from a pass is gone. Passes follow the start, an
//! overrun (`ENOBUFS`), an interrupted or refused pass, and a pass that its notifications do not explain. Other reasons are changes of routes
//! without a notification: after a link is removed, goes up or goes down, and after an address is removed, the kernel removes IPv4 routes and
//! next-hop objects, or revives paths. A deletion or replacement of a route that does not fit the mirror shows such a change. Each overrun or
//! interrupted pass doubles the interval between passes.
//!
//! Of routes with equal metrics, the first is announced ([`mirror`]). A deletion of an IPv6 route may concern only one of its paths. A
//! next-hop object takes its routes with it, mostly without a notification. Anyone on a link can send router advertisements and redirects,
//! so routes of these protocols are ignored, and addresses count only if permanent. The kernel makes IPv6 prefix routes from advertisements
//! as well as addresses; such a route counts only if a permanent address has the prefix. The route precedes its address, so a new address
//! starts a pass.

mod mirror;
mod pass;
pub(crate) mod socket;
mod tracked;

use super::netlink::{AddressMessage, Envelope, Message, RouteMessage, RouteSays, messages};
use super::nexthops::{NextHops, RouteKey, Told};
use super::{FeedCounts, FeedEvent, FeedId, Link, Route, RoutingTables};
use fib::{IpPrefix, MacAddr, Prefix6};
use mirror::{Change, Mirror};
use netlink_packet_core::{NLM_F_EXCL, NLM_F_REPLACE};
use pass::{Pass, PassStep};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tracked::Tracked;

/// Least time between the starts of two passes, so that a flapping link does not cause continuous dumps.
pub(crate) const PASS_INTERVAL: Duration = Duration::from_secs(1);
/// Limit of the interval while notifications overrun the socket, so that dumps do not add to them.
const PASS_INTERVAL_MAX: Duration = Duration::from_secs(32);
/// How long after a pass another one counts the differences between mirror and kernel; there should be none.
pub(crate) const RECONCILE_INTERVAL: Duration = Duration::from_secs(300);
const TABLE_LOCAL: u32 = 255;
/// Who made a route (`RTPROT_*`): a redirect, the kernel itself, a router advertisement.
const REDIRECTED: u8 = 1;
const BY_KERNEL: u8 = 2;
const ADVERTISED: u8 = 9;
/// Flags a dump as inconsistent because of concurrent changes.
const NLM_F_DUMP_INTR: u16 = 0x10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelOptions {
    pub(crate) feed: FeedId,
    pub(crate) tables: RoutingTables,
    /// Whether to include the kernel's own local, broadcast and multicast routes; the table `local` belongs to VRF 0.
    pub(crate) is_local_wanted: bool,
    /// Routes of these protocols (`RTPROT_*`) are left out, since another feed announces them, such as zebra's.
    pub(crate) protocols_left_out: Vec<u8>,
    /// The most routes of a VRF; further ones are left out and counted.
    pub(crate) routes_max: usize,
}

impl KernelOptions {
    fn has_routes(&self) -> bool {
        self.is_local_wanted || !self.tables.is_empty()
    }
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            feed: FeedId(0),
            tables: RoutingTables::default(),
            is_local_wanted: false,
            protocols_left_out: Vec::new(),
            routes_max: 1 << 22,
        }
    }
}

pub(crate) struct Kernel {
    options: KernelOptions,
    pass: Pass,
    links: Tracked<u32, Link>,
    /// Permanent addresses, each with the other end of its link.
    addresses: Tracked<super::LinkAddress, IpAddr>,
    neighbours: Tracked<(IpAddr, u32), MacAddr>,
    objects: NextHops,
    numbers: Tracked<u32, ()>,
    routes: Mirror,
    counts: FeedCounts,
}

impl Kernel {
    pub(crate) fn new(options: KernelOptions, now: Instant) -> Self {
        // The mirror enforces the limit.
        let (objects, routes) = (NextHops::new(options.feed, usize::MAX), Mirror::new(options.routes_max));
        Self {
            pass: Pass::new(options.has_routes(), now),
            options,
            links: Tracked::default(),
            addresses: Tracked::default(),
            neighbours: Tracked::default(),
            objects,
            numbers: Tracked::default(),
            routes,
            counts: FeedCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> FeedCounts {
        FeedCounts { over_limit: self.counts.over_limit + self.routes.over_limit, ..self.counts }
    }

    /// The next request to send, if one is due. Call it after [`Self::received`] and at [`Self::deadline`].
    pub(crate) fn request(&mut self, now: Instant, out: &mut Vec<FeedEvent>) -> Option<Vec<u8>> {
        if self.pass.begin(now) {
            self.counts.sessions += 1;
            self.links.begin();
            self.addresses.begin();
            self.neighbours.begin();
            self.numbers.begin();
            self.routes.begin();
            if self.counts.sessions == 1 {
                out.push(FeedEvent::Connected);
            }
        }
        self.pass.request()
    }

    /// When [`Self::request`] is due, apart from after [`Self::received`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pass.deadline()
    }

    /// Whether the dump of links has ended once.
    pub(crate) fn has_links(&self) -> bool {
        self.pass.has_links()
    }

    /// Schedules a pass after the kernel dropped notifications.
    pub(crate) fn overrun(&mut self, now: Instant) {
        self.counts.overruns += 1;
        self.pass.overrun(now);
    }

    pub(crate) fn received(&mut self, datagram: &[u8], now: Instant, out: &mut Vec<FeedEvent>) {
        for message in messages(datagram) {
            let Ok(Envelope { flags, sequence, message }) = message else {
                self.counts.errors += 1;
                continue;
            };
            self.counts.messages += 1;
            let is_answer = self.pass.is_answer(sequence);
            if is_answer && flags & NLM_F_DUMP_INTR != 0 {
                self.pass.is_torn();
            }
            match message {
                Message::Done if is_answer => self.step_ended(now, out),
                Message::Error(code) if is_answer && code != 0 => self.refused(now, out),
                Message::Done | Message::Error(_) => {}
                Message::Address(address) => self.address(address, is_answer, now, out),
                Message::Route(route) => self.route(route, is_answer, flags, now),
                Message::NextHop { id, .. } if self.numbers.is_outdated(id, is_answer) => {}
                Message::NextHop { id, object } => {
                    // The kernel reused the number: the known object went with its link, without a notification.
                    let is_new = !is_answer && flags & (NLM_F_EXCL | NLM_F_REPLACE) == NLM_F_EXCL;
                    if is_new && self.objects.has(id) {
                        self.object_gone(id, out);
                    }
                    match self.objects.set(id, object, out) {
                        Ok(()) => self.numbers.set(id, (), is_answer),
                        Err(_) => {
                            self.counts.over_limit += 1;
                            false
                        }
                    };
                }
                Message::NextHopGone(id) => self.object_gone(id, out),
                other => self.message(other, is_answer, now, out),
            }
            self.announce(out);
        }
    }

    fn announce(&mut self, out: &mut Vec<FeedEvent>) {
        for Change { key, first } in self.routes.changes.drain(..) {
            self.objects.put(key, first, &mut self.counts, out);
        }
    }

    /// Removes a next-hop object; the kernel has removed the routes that name it.
    fn object_gone(&mut self, id: u32, out: &mut Vec<FeedEvent>) {
        self.routes.object_gone(id, self.objects.routes_of(id));
        self.announce(out);
        self.objects.remove(id, out);
        self.numbers.remove(&id, false);
    }

    /// Ends the running dump, which was refused or whose request could not be sent.
    pub(crate) fn refused(&mut self, now: Instant, out: &mut Vec<FeedEvent>) {
        self.counts.errors += 1;
        self.pass.is_refused(self.numbers.entries().next().is_some());
        self.step_ended(now, out);
    }

    /// Schedules a pass: the kernel may have changed routes without a notification.
    fn routes_have_changed(&mut self, now: Instant) {
        if self.options.has_routes() {
            self.pass.is_needed(now);
        }
    }

    fn is_overrun(&self) -> bool {
        let Self { links, addresses, neighbours, numbers, routes, .. } = self;
        let others =
            [links.is_overrun(), addresses.is_overrun(), neighbours.is_overrun(), numbers.is_overrun()];
        routes.is_overrun() || others.contains(&true)
    }

    fn step_ended(&mut self, now: Instant, out: &mut Vec<FeedEvent>) {
        self.routes.end_run();
        self.announce(out);
        let is_reconciling = self.pass.is_reconciling();
        if self.is_overrun() {
            self.pass.is_torn();
        }
        match self.pass.advance(now) {
            PassStep::More => {}
            PassStep::Torn => {
                self.routes.end();
                self.numbers.end();
                self.links.end();
                self.addresses.end();
                self.neighbours.end();
                out.push(FeedEvent::Complete);
            }
            PassStep::Complete => {
                let routes = self.routes.sweep();
                self.announce(out);
                let gone = self.numbers.sweep().collect::<Vec<_>>();
                gone.iter().for_each(|id| self.object_gone(*id, out));
                out.extend(self.links.sweep().map(FeedEvent::LinkGone));
                out.extend(self.addresses.sweep().map(FeedEvent::AddressGone));
                let neighbours = self.neighbours.sweep();
                out.extend(neighbours.map(|(address, ifindex)| FeedEvent::NeighbourGone(address, ifindex)));
                out.push(FeedEvent::Complete);
                if self.routes.is_doubtful() {
                    self.routes_have_changed(now);
                }
                if is_reconciling {
                    self.counts.repaired += routes + gone.len() as u64;
                }
            }
        }
    }

    /// Processes links, neighbours and removed addresses. `is_answer`: the message is part of a dump, and routes follow.
    fn message(&mut self, message: Message, is_answer: bool, now: Instant, out: &mut Vec<FeedEvent>) {
        match message {
            Message::Link(link) => {
                // The kernel silently removes next-hop objects and routes of a link without a carrier.
                let before = self.links.get(&link.ifindex);
                let has_changed = before
                    .is_some_and(|before| (before.is_up, before.is_running) != (link.is_up, link.is_running));
                if !is_answer && has_changed {
                    self.routes_have_changed(now);
                }
                if self.links.set(link.ifindex, link.clone(), is_answer) {
                    out.push(FeedEvent::Link(link));
                }
            }
            Message::LinkGone(ifindex) => {
                if self.links.remove(&ifindex, is_answer) {
                    out.push(FeedEvent::LinkGone(ifindex));
                }
                self.routes_have_changed(now);
            }
            Message::Neighbour(neighbour) => {
                if self.neighbours.set((neighbour.address, neighbour.ifindex), neighbour.mac, is_answer) {
                    out.push(FeedEvent::Neighbour(neighbour));
                }
            }
            Message::NeighbourGone(address, ifindex) => {
                if self.neighbours.remove(&(address, ifindex), is_answer) {
                    out.push(FeedEvent::NeighbourGone(address, ifindex));
                }
            }
            Message::AddressGone(address) => {
                if self.addresses.remove(&address, is_answer) {
                    out.push(FeedEvent::AddressGone(address));
                }
                self.routes_have_changed(now);
            }
            Message::Unsupported => self.counts.unsupported += 1,
            _ => self.counts.ignored += 1,
        }
    }

    fn address(&mut self, message: AddressMessage, is_answer: bool, now: Instant, out: &mut Vec<FeedEvent>) {
        let AddressMessage { address, peer, is_permanent } = message;
        if !is_permanent {
            // An address may lose its permanence. Each advertisement repeats the other ones, which must not start a pass.
            if self.addresses.remove(&address, is_answer) {
                out.push(FeedEvent::AddressGone(address));
                self.routes_have_changed(now);
            }
            self.counts.ignored += 1;
        } else if self.addresses.set(address, peer, is_answer) {
            out.push(FeedEvent::Address(address));
            if peer.is_ipv6() && !is_answer {
                self.routes_have_changed(now);
            }
        }
    }

    /// Whether a route may stem from a message of another host on a link.
    fn is_of_the_wire(&self, route: &RouteMessage) -> bool {
        let is_prefix = |prefix: Prefix6, address: IpAddr, len| match address {
            IpAddr::V6(address) => Prefix6::truncating(address.into(), len) == prefix,
            IpAddr::V4(_) => false,
        };
        let on_link = |prefix: Prefix6, ifindex| {
            self.addresses.entries().any(|(own, peer)| {
                own.ifindex == ifindex
                    && (is_prefix(prefix, own.address, own.len) || is_prefix(prefix, *peer, 128))
            })
        };
        match (route.protocol, route.prefix, &route.says) {
            (REDIRECTED | ADVERTISED, ..) => true,
            // A deleted route may go with its address.
            (BY_KERNEL, IpPrefix::V6(prefix), RouteSays::Is(Route::Paths(paths))) if !route.is_gone => {
                paths.iter().any(|path| !on_link(prefix, path.ifindex))
            }
            _ => false,
        }
    }

    fn vrf(&self, route: &RouteMessage) -> Option<usize> {
        let KernelOptions { tables, is_local_wanted, protocols_left_out, .. } = &self.options;
        let local = (*is_local_wanted && route.table == TABLE_LOCAL).then_some(0);
        let is_kept = !protocols_left_out.contains(&route.protocol) && !self.is_of_the_wire(route);
        let is_local = route.says == RouteSays::Is(Route::Local) || is_link_local(route.prefix);
        tables.vrf(route.table).or(local).filter(|_| is_kept && (*is_local_wanted || !is_local))
    }

    fn route(&mut self, route: RouteMessage, is_answer: bool, flags: u16, now: Instant) {
        let RouteMessage { prefix, metric, digest, is_gone, .. } = route;
        let Some(vrf) = self.vrf(&route) else {
            self.counts.ignored += 1;
            // A route that is left out may have replaced one in the mirror.
            let is_replacing = !is_answer && !is_gone && flags & NLM_F_REPLACE != 0;
            let vrf = self.options.tables.vrf(route.table).filter(|_| is_replacing);
            if vrf.is_some_and(|vrf| self.routes.has(RouteKey { vrf, prefix, metric })) {
                self.routes_have_changed(now);
            }
            return;
        };
        let key = RouteKey { vrf, prefix, metric };
        let mut says = route.says;
        if let (IpPrefix::V6(_), RouteSays::Is(Route::Paths(paths))) = (prefix, &mut says) {
            paths.sort_unstable(); // their order changes from one message to the next
        }
        match Told::from_message(says, &mut self.counts) {
            // Its object was deleted during the dump.
            Some(Told::Object(id)) if is_answer && !self.objects.has(id) => self.counts.ignored += 1,
            Some(told) if is_answer => self.routes.dumped(key, told, digest),
            Some(told) if !is_gone => self.routes.announced(key, told, digest, flags),
            None if is_answer => {}
            told => {
                if !self.routes.gone(key, told, digest) {
                    self.routes_have_changed(now);
                }
            }
        }
    }
}

/// Whether the destinations are link-local or multicast IPv6 addresses.
fn is_link_local(prefix: IpPrefix) -> bool {
    let IpPrefix::V6(prefix) = prefix else { return false };
    let within = |address: u128, len: u8| Prefix6::truncating(address << 112, len).covers(prefix);
    within(0xfe80, 10) || within(0xff00, 8)
}

#[cfg(test)]
#[path = "recorded_test.rs"]
mod recorded;
#[cfg(test)]
mod tests;
