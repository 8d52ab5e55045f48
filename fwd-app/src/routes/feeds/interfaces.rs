//! Maps the kernel's interfaces to ports, and routes of feeds to next hops.
//!
//! A TAP leads to its port. Another interface leads to the port that `--kernel-interface` names for it, else to the port whose driver was
//! given it (`iface=veth0`), else to the port whose device has the same name.

use super::{FeedEvent, Link, LinkAddress, LinkNeighbour, Path, Route};
use crate::ports::PortRecord;
use fib::group::PATHS_MAX;
use fib::{Group, MacAddr, NextHop, NextHopTable, PortRef};
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Behind {
    port: u16,
    is_running: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InterfaceNews {
    /// An interface leads to a different port: its routes resolve differently.
    pub(super) has_moved: bool,
    /// Neighbours or link states have changed: routes keep their next hops.
    pub(super) has_neighbours: bool,
    /// The addresses to punt may have changed.
    pub(super) has_addresses: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces {
    names: FxHashMap<String, u16>,
    /// By interface index.
    links: FxHashMap<u32, Behind>,
    /// Names of interfaces without a port, by index.
    others: FxHashMap<u32, String>,
    /// By address and interface index, also without a port; the kernel bounds their number.
    neighbours: FxHashMap<(IpAddr, u32), MacAddr>,
    tap_names: FxHashSet<String>,
    taps: FxHashSet<u32>,
    /// Loopback and dummy interfaces, whose addresses belong to the host.
    locals: FxHashSet<u32>,
    addresses: FxHashSet<LinkAddress>,
    pub(super) news: InterfaceNews,
}

impl Interfaces {
    /// The interfaces that lead to `ports`. Addresses of TAPs belong to the ports; the kernel's neighbours on TAPs are ignored, since the
    /// router resolves them and learns of changes sooner.
    pub(crate) fn new(ports: &[PortRecord]) -> Self {
        let mut names = FxHashMap::default();
        // A later name replaces an earlier one.
        names.extend(ports.iter().map(|port| (port.device.clone(), port.id.0)));
        names.extend(ports.iter().filter_map(|port| Some((port.driver_interface.clone()?, port.id.0))));
        for port in ports {
            names.extend(port.kernel_interfaces.iter().map(|name| (name.clone(), port.id.0)));
        }
        names.extend(ports.iter().filter_map(|port| Some((port.tap.clone()?, port.id.0))));
        let tap_names = ports.iter().filter_map(|port| port.tap.clone()).collect();
        Self { names, tap_names, ..Self::default() }
    }

    pub(super) fn apply(&mut self, event: &FeedEvent) {
        match event {
            FeedEvent::Link(link) => self.set_link(link),
            FeedEvent::LinkGone(ifindex) => self.remove_link(*ifindex),
            FeedEvent::Neighbour(LinkNeighbour { address, ifindex, mac }) => {
                let is_new = self.neighbours.insert((*address, *ifindex), *mac) != Some(*mac);
                self.news.has_neighbours |= is_new && self.links.contains_key(ifindex);
            }
            FeedEvent::NeighbourGone(address, ifindex) => {
                let was_there = self.neighbours.remove(&(*address, *ifindex)).is_some();
                self.news.has_neighbours |= was_there && self.links.contains_key(ifindex);
            }
            FeedEvent::Address(at) => {
                self.news.has_addresses |= self.addresses.insert(*at) && self.is_for_router(at);
            }
            FeedEvent::AddressGone(at) => {
                self.news.has_addresses |= self.addresses.remove(at) && self.is_for_router(at);
            }
            _ => {}
        }
    }

    fn is_for_router(&self, at: &LinkAddress) -> bool {
        self.taps.contains(&at.ifindex) || self.locals.contains(&at.ifindex)
    }

    /// The addresses of TAPs with their ports' indices, sorted, then the host's addresses, which each TAP has without a link.
    pub(crate) fn tap_addresses(&self) -> Vec<(u16, LinkAddress)> {
        let port_of = |ifindex| Some(self.links.get(ifindex)?.port);
        let of_taps = self.addresses.iter().filter(|at| self.taps.contains(&at.ifindex));
        let mut found: Vec<_> = of_taps.filter_map(|at| Some((port_of(&at.ifindex)?, *at))).collect();
        let taps = found.len();
        let is_link_local =
            |address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        for at in self.addresses.iter().filter(|at| self.locals.contains(&at.ifindex)) {
            let len = if at.address.is_ipv4() { 32 } else { 128 };
            let ports = self.taps.iter().filter_map(port_of).filter(|_| !is_link_local(at.address));
            found.extend(ports.map(|port| (port, LinkAddress { len, ..*at })));
        }
        let (of_taps, of_host) = found.split_at_mut(taps);
        for part in [of_taps, of_host] {
            part.sort_unstable_by_key(|(port, at)| (*port, at.address, at.len));
        }
        found
    }

    pub(crate) fn tap_has(&self, port: u16, address: IpAddr) -> bool {
        let is_of_port = |ifindex| self.links.get(ifindex).is_some_and(|behind| behind.port == port);
        let mut of_taps = self.addresses.iter().filter(|at| self.taps.contains(&at.ifindex));
        of_taps.any(|at| at.address == address && is_of_port(&at.ifindex))
    }

    fn set_link(&mut self, link: &Link) {
        if let Some(port) = self.names.get(&link.name) {
            let behind = Behind { port: *port, is_running: link.is_running };
            if self.tap_names.contains(&link.name) {
                self.taps.insert(link.ifindex);
            }
            self.others.remove(&link.ifindex);
            match self.links.insert(link.ifindex, behind) {
                Some(before) if before == behind => {}
                Some(Behind { port, .. }) if port == behind.port => self.news.has_neighbours = true,
                _ => (self.news.has_moved, self.news.has_addresses) = (true, true),
            }
        } else {
            let was_local = self.locals.remove(&link.ifindex);
            self.remove_link(link.ifindex);
            self.others.insert(link.ifindex, link.name.clone());
            if link.is_local {
                self.locals.insert(link.ifindex);
            }
            self.news.has_addresses |= was_local != link.is_local;
        }
    }

    fn remove_link(&mut self, ifindex: u32) {
        self.taps.remove(&ifindex);
        self.others.remove(&ifindex);
        let had_port = self.links.remove(&ifindex).is_some();
        self.news.has_moved |= had_port;
        self.news.has_addresses |= self.locals.remove(&ifindex) || had_port;
    }

    /// The name of an interface without a port, or its index while the name is unknown.
    pub(super) fn name_of_other(&self, ifindex: u32) -> String {
        self.others.get(&ifindex).cloned().unwrap_or_else(|| format!("interface {ifindex}"))
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (IpAddr, u16, MacAddr)> {
        let neighbours = self.neighbours.iter().filter(|((_, ifindex), _)| !self.taps.contains(ifindex));
        neighbours
            .filter_map(|((address, ifindex), mac)| Some((*address, self.links.get(ifindex)?.port, *mac)))
    }

    /// The next hop of a route; `None` while no path has a port, and for a route to this host. Several paths become the group of those with
    /// a port, whether up or down, so that a link failure does not change the route. Paths beyond the limit of a group are ignored.
    pub(crate) fn next_hop(&self, route: &Route, hops: &NextHopTable) -> Option<NextHop> {
        let paths = match route {
            Route::Paths(paths) => paths,
            // An object never resolves to an object.
            Route::Local | Route::Object(_) => return None,
            Route::Blackhole => return Some(NextHop::Blackhole),
            Route::Unreachable => return Some(NextHop::Unreachable),
            Route::Prohibit => return Some(NextHop::Prohibit),
            Route::Hop(id) => return hops.get(*id).cloned(),
        };
        let paths = paths.iter().filter_map(|path| Some((self.path(path, hops)?, path.weight)));
        Group::next_hop(paths.take(PATHS_MAX)).ok()
    }

    /// The ports whose interfaces are all down for the kernel.
    pub(crate) fn stopped_ports(&self) -> Vec<u16> {
        let ports = |is_running| {
            let links = self.links.values().filter(move |link| link.is_running == is_running);
            links.map(|link| link.port).collect::<Vec<_>>()
        };
        let mut stopped = ports(false);
        let running = ports(true);
        stopped.retain(|port| !running.contains(port));
        stopped
    }

    fn path(&self, path: &Path, hops: &NextHopTable) -> Option<NextHop> {
        let port = self.links.get(&path.ifindex).map(|link| PortRef::Index(link.port));
        match (port, path.gateway) {
            (Some(port), Some(gateway)) => Some(NextHop::Gateway { gateway, port }),
            (Some(port), None) => Some(NextHop::Connected { port }),
            // The neighbour has the port.
            (None, Some(gateway)) => {
                hops.neighbour(gateway)?;
                Some(NextHop::Gateway { gateway, port: PortRef::ById })
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ifindex: u32, name: &str, is_running: bool) -> Link {
        Link { ifindex, name: name.into(), is_up: true, is_running, is_local: false }
    }

    fn taken_by(interfaces: &mut Interfaces, event: &FeedEvent) -> InterfaceNews {
        interfaces.apply(event);
        std::mem::take(&mut interfaces.news)
    }

    /// Sends an event twice; only the first may have consequences, which are returned.
    fn news_of_two(interfaces: &mut Interfaces, event: &FeedEvent) -> InterfaceNews {
        let first = taken_by(interfaces, event);
        assert_eq!(taken_by(interfaces, event), InterfaceNews::default());
        first
    }

    #[test]
    fn addresses_of_taps_are_for_the_router() {
        let ports = crate::ports::table::tests::configured(2, &[], &[("0", "tap0")]).unwrap();
        let mut interfaces = Interfaces::new(&ports.ports);
        taken_by(&mut interfaces, &FeedEvent::Link(link(5, "tap0", true)));
        taken_by(&mut interfaces, &FeedEvent::Link(link(6, "other", true)));
        taken_by(&mut interfaces, &FeedEvent::Link(link(7, "p1", true)));
        let names = [6, 99].map(|ifindex| interfaces.name_of_other(ifindex));
        assert_eq!(names, ["other", "interface 99"]);
        for (ifindex, is_ours) in [(5, true), (6, false), (7, false)] {
            let at = LinkAddress { ifindex, address: [192, 0, 2, 1].into(), len: 24 };
            let wanted = InterfaceNews { has_addresses: is_ours, ..InterfaceNews::default() };
            for event in [FeedEvent::Address(at), FeedEvent::AddressGone(at)] {
                assert_eq!(news_of_two(&mut interfaces, &event), wanted);
            }
            let neighbour = LinkNeighbour { address: at.address, ifindex, mac: MacAddr([2; 6]) };
            let wanted = InterfaceNews { has_neighbours: ifindex != 6, ..InterfaceNews::default() };
            for event in [FeedEvent::Neighbour(neighbour), FeedEvent::NeighbourGone(at.address, ifindex)] {
                assert_eq!(news_of_two(&mut interfaces, &event), wanted);
            }
        }
    }

    #[test]
    fn paths_become_next_hops_of_ports() {
        let ports = crate::ports::table::tests::ports(2);
        let ports = ports.with_kernel_interfaces(&[(PortRef::Index(1), "v1".to_owned())]).unwrap();
        let mut interfaces = Interfaces::new(&ports.ports);
        let mut hops = NextHopTable::new();
        let moved = InterfaceNews { has_moved: true, has_addresses: true, ..InterfaceNews::default() };
        let state = InterfaceNews { has_neighbours: true, ..InterfaceNews::default() };
        let set_link = |interfaces: &mut Interfaces, link| taken_by(interfaces, &FeedEvent::Link(link));
        let gateway: IpAddr = "2001:db8::1".parse().unwrap();
        let path = |ifindex| Path { gateway: Some(gateway), ifindex, weight: 1 };
        let route = |paths: &[Path]| Route::Paths(paths.into());
        let both = route(&[path(7), path(8)]);
        assert_eq!(interfaces.next_hop(&both, &hops), None);
        assert_eq!(set_link(&mut interfaces, link(6, "other", true)), InterfaceNews::default());
        assert_eq!(set_link(&mut interfaces, link(8, "v1", true)), moved);
        let via = |port| NextHop::Gateway { gateway, port };
        assert_eq!(interfaces.next_hop(&both, &hops), Some(via(PortRef::Index(1))));
        assert_eq!(set_link(&mut interfaces, link(7, "p0", true)), moved);
        assert_eq!(set_link(&mut interfaces, link(7, "p0", true)), InterfaceNews::default());
        let group = Group::next_hop([0, 1].map(|port| (via(PortRef::Index(port)), 1))).unwrap();
        assert_eq!(interfaces.next_hop(&both, &hops), Some(group.clone()));
        assert!(interfaces.stopped_ports().is_empty());
        assert_eq!(set_link(&mut interfaces, link(8, "v1", false)), state);
        assert_eq!(interfaces.next_hop(&both, &hops), Some(group), "what fails is up to the egress table");
        assert_eq!(interfaces.stopped_ports(), [1]);
        let many: Vec<_> =
            (0..70).map(|last| Path { gateway: Some([10, 0, 0, last].into()), ..path(7) }).collect();
        match interfaces.next_hop(&route(&many), &hops) {
            Some(NextHop::Group(group)) => assert_eq!(group.paths().len(), PATHS_MAX),
            other => panic!("{other:?}"),
        }
        let unknown = route(&[path(0)]);
        assert_eq!(interfaces.next_hop(&unknown, &hops), None);
        hops.set_neighbour(fib::Neighbour {
            address: gateway,
            port: PortRef::Index(1),
            mac: MacAddr([2; 6]),
        });
        assert_eq!(interfaces.next_hop(&unknown, &hops), Some(via(PortRef::ById)));
        let link = route(&[Path { gateway: None, ifindex: 8, weight: 1 }]);
        let connected = NextHop::Connected { port: PortRef::Index(1) };
        assert_eq!(interfaces.next_hop(&link, &hops), Some(connected));
        for (route, hop) in [
            (Route::Blackhole, NextHop::Blackhole),
            (Route::Unreachable, NextHop::Unreachable),
            (Route::Prohibit, NextHop::Prohibit),
        ] {
            assert_eq!(interfaces.next_hop(&route, &hops), Some(hop));
        }
        assert_eq!(interfaces.next_hop(&Route::Local, &hops), None);
        let neighbour = LinkNeighbour { address: gateway, ifindex: 8, mac: MacAddr([4; 6]) };
        assert_eq!(taken_by(&mut interfaces, &FeedEvent::Neighbour(neighbour)), state);
        assert_eq!(interfaces.neighbours().next().unwrap().1, 1);
        assert_eq!(taken_by(&mut interfaces, &FeedEvent::LinkGone(8)), moved);
        assert!(interfaces.neighbours().next().is_none());
    }
}
