//! Consequences of interface addresses: packets to punt ([`PuntAddresses`]), and routes that no feed may displace. An address is routed
//! to the router, its prefix to the link.

use super::address::{InterfaceAddress, solicited_node};
use super::{PortRecord, PortTable};
use crate::datapath::EgressTable;
use crate::datapath::punt::PuntAddresses;
use fib::{IpPrefix, Key as _, NextHop, PortRef, Prefix};
use lpm_core::drops::Witness;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn within(table: &PortTable, vrf: usize) -> impl Iterator<Item = &PortRecord> + Clone {
    table.ports.iter().filter(move |port| port.is_interface() && port.vrfs.own == vrf)
}

/// The addresses to punt on a port: those in its VRF; `None` unless the port is an interface.
pub(crate) fn punt_addresses(table: &PortTable, port: &PortRecord) -> Option<PuntAddresses> {
    let beside = within(table, port.vrfs.own);
    let v4 = beside.clone().flat_map(PortRecord::v4).chain(broadcasts(port)).chain([Ipv4Addr::BROADCAST]);
    let of_port = |port: &'_ PortRecord| port.v6().chain(port.anycast()).collect::<Vec<_>>();
    let others = beside.flat_map(of_port).filter(|address| !address.is_unicast_link_local());
    port.is_interface().then(|| PuntAddresses {
        port: port.id.0,
        mac: port.mac,
        v4: v4.map(Ipv4Addr::to_bits).collect(),
        v6: others.chain(of_port(port)).map(Ipv6Addr::to_bits).collect(),
        groups: of_port(port).into_iter().map(|address| solicited_node(address).to_bits()).collect(),
        witness: Witness::new("addresses of the router"),
    })
}

/// The number of gateways of VRF `vrf` without a neighbour or an interface to find it.
pub(crate) fn without_neighbour(vrf: usize, egress: &EgressTable, table: &PortTable) -> usize {
    let is_found = |address: IpAddr, port: Option<u16>| match port {
        Some(port) => table.interfaces().any(|interface| interface.id.0 == port),
        None => within(table, vrf).any(|interface| interface.is_on_link(address)),
    };
    let missing = egress.missing().filter(|(address, port)| !is_found(*address, *port));
    missing.map(|(address, _)| address).collect::<BTreeSet<_>>().len()
}

/// Routes of VRF `vrf` derived from addresses. A link's broadcasts go to the router, which does not forward them (RFC 2644).
pub(crate) fn routes(table: &PortTable, vrf: usize) -> Vec<(IpPrefix, NextHop)> {
    let mut routes = Vec::new();
    let is_link_local = |address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    for interface in within(table, vrf) {
        let port = PortRef::Index(interface.id.0);
        for at in interface.addresses().iter().filter(|at| !is_link_local(at.address())) {
            let hop = NextHop::Connected { port: port.clone() };
            routes.push((prefix(at.address(), at.prefix_len()), hop));
        }
    }
    // After the links, so that a host address that is a whole prefix stays local.
    for interface in within(table, vrf) {
        let addresses = interface.addresses().iter().map(|at| at.address());
        let all =
            addresses.filter(|address| !is_link_local(*address)).chain(broadcasts(interface).map(IpAddr::V4));
        routes.extend(all.map(|address| (prefix(address, u8::MAX), NextHop::Local)));
    }
    routes
}

fn broadcasts(interface: &PortRecord) -> impl Iterator<Item = Ipv4Addr> {
    interface.addresses().iter().filter_map(InterfaceAddress::broadcast)
}

fn prefix(address: IpAddr, len: u8) -> IpPrefix {
    match address {
        IpAddr::V4(address) => u32::wrap(Prefix::truncating(address.to_bits(), len)),
        IpAddr::V6(address) => u128::wrap(Prefix::truncating(address.to_bits(), len)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::configured;
    use super::*;
    use fib::NextHopTable;

    #[test]
    fn addresses_become_routes_and_what_is_ours() {
        let addresses = [("0", "198.18.1.1", 24), ("p2", "198.18.2.1", 32), ("p2", "2001:db8::1", 64)];
        let table = configured(3, &addresses, &[]).unwrap();
        let shown: Vec<_> = routes(&table, 0).iter().map(|(p, hop)| format!("{p} {hop}")).collect();
        let wanted = [
            "198.18.1.0/24 dev 0",
            "198.18.2.1/32 dev 2",
            "2001:db8::/64 dev 2",
            "198.18.1.1/32 local",
            "198.18.1.255/32 local",
            "198.18.2.1/32 local",
            "2001:db8::1/128 local",
        ];
        assert_eq!(shown, wanted);
        let [first, none, last] = [0, 1, 2].map(|port| punt_addresses(&table, &table.ports[port]));
        let (first, last) = (first.unwrap(), last.unwrap());
        assert!(none.is_none() && routes(&table, 1).is_empty());
        assert_eq!(first.v4, [0xc612_0101, 0xc612_0201, 0xc612_01ff, u32::MAX]);
        // The link's address and anycast address, and both link-local addresses of a port.
        assert_eq!((last.v4.len(), last.port, first.v6.len(), last.v6.len()), (3, 2, 4, 6));
    }

    #[test]
    fn gateways_that_no_interface_finds_are_counted() {
        let table = configured(2, &[("0", "198.18.1.1", 24)], &[]).unwrap();
        let mut hops = NextHopTable::new();
        let known = [("198.18.1.9", PortRef::Index(0)), ("198.18.1.8", PortRef::ById)];
        let unknown = [("192.0.2.9", PortRef::Index(1)), ("192.0.2.8", PortRef::ById)];
        for (gateway, port) in [known, unknown].concat() {
            hops.intern(NextHop::Gateway { gateway: gateway.parse().unwrap(), port }).unwrap();
        }
        let egress = EgressTable::new(&hops, &table.egress()).unwrap();
        let without = |vrf| without_neighbour(vrf, &egress, &table);
        assert_eq!((without(0), without(1)), (2, 3), "the link is that of VRF 0");
    }

    #[test]
    fn a_port_with_a_tap_is_an_interface_without_addresses_of_its_own() {
        let table = configured(3, &[], &[("1", "tap1")]).unwrap();
        assert!(routes(&table, 0).is_empty() && punt_addresses(&table, &table.ports[1]).is_some());
    }
}
