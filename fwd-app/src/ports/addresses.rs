//! Interfaces: ports with addresses of this router (`--address`), or with a TAP (`--tap`).
//!
//! From the addresses follow what on a port is for the router ([`Ours`]), and the routes that no feed may displace: each address leads
//! here, and its prefix to the link.

use crate::datapath::exception::Ours;
use crate::datapath::{EgressPort, EgressTable};
use crate::error::ConfigError;
use crate::router::entries::Key;
use crate::router::interface::{InterfaceAddress, solicited_node};
use crate::router::{Interface, InterfaceId};
use dpdk_ffi::Port;
use fib::{IpPrefix, Key as _, MacAddr, NextHop, PortRef, Prefix};
use lpm_core::drops::Witness;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAddress {
    /// The port.
    pub(crate) port: PortRef,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The length of the prefix of its link.
    pub(crate) prefix_len: u8,
}

/// The MAC of a neighbour, as the router has found it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The neighbour.
    pub(crate) key: Key,
    /// Its MAC; `None` when it does not answer any more.
    pub(crate) mac: Option<MacAddr>,
}

/// The interfaces that have `addresses`, and those of the ports `taps`, by index.
///
/// # Errors
/// [`ConfigError`] for a port that does not exist or an address that no host can have.
pub(crate) fn interfaces(
    addresses: &[PortAddress],
    taps: impl Iterator<Item = u16>,
    ports: &[EgressPort],
) -> Result<Vec<Interface>, ConfigError> {
    let mut by_port: Vec<Option<Vec<InterfaceAddress>>> = vec![None; ports.len()];
    for tap in taps {
        if let Some(there) = by_port.get_mut(usize::from(tap)) {
            *there = Some(Vec::new());
        }
    }
    for PortAddress { port, address, prefix_len } in addresses {
        let found = EgressPort::find(port, ports, || format!("--address {port}={address}/{prefix_len}"));
        let found = found.map_err(|error| ConfigError::NoDevice(error.to_string()))?;
        let address = InterfaceAddress::new(*address, *prefix_len)
            .map_err(|error| ConfigError::Invalid(format!("--address {port}: {error}")))?;
        if let Some(there) = found.and_then(|index| by_port.get_mut(usize::from(index))) {
            there.get_or_insert_default().push(address);
        }
    }
    let with_some = (0..).zip(ports).zip(by_port).filter_map(|(at, addresses)| Some((at, addresses?)));
    let made = with_some.map(|((id, port), addresses)| {
        let interface = Interface::new(InterfaceId(id), port.mac, port.mtu_bytes, &addresses);
        interface.map_err(|error| ConfigError::Invalid(format!("port {}: {error}", port.name)))
    });
    made.collect()
}

/// Has the ports of `interfaces` receive all groups, since neighbour discovery is sent to groups. Virtual devices pass all frames on and
/// cannot choose.
pub(crate) fn receive_groups(interfaces: &[Interface], ports: &[Port]) {
    for port in interfaces.iter().filter_map(|interface| ports.get(usize::from(interface.id().0))) {
        drop(port.receive_all_groups());
    }
}

/// What is for the router on each of `ports` ports.
pub(crate) fn ours(interfaces: &[Interface], ports: usize) -> Vec<Option<Arc<Ours>>> {
    let mut by_port = vec![None; ports];
    for interface in interfaces {
        let v4 = interfaces.iter().flat_map(Interface::v4).chain(broadcasts(interface));
        let v4 = v4.chain([Ipv4Addr::BROADCAST]).map(Ipv4Addr::to_bits).collect();
        let others = interfaces.iter().flat_map(Interface::v6).filter(|a| !a.is_unicast_link_local());
        let v6 = others.chain(interface.v6()).map(|address| address.to_bits()).collect();
        let groups = interface.v6().map(|address| solicited_node(address).to_bits()).collect();
        let id = interface.id().0;
        if let Some(ours) = by_port.get_mut(usize::from(id)) {
            let (mac, witness) = (interface.mac(), Witness::of("addresses of the router"));
            *ours = Some(Arc::new(Ours { port: id, mac, v4, v6, groups, witness }));
        }
    }
    by_port
}

/// How many gateways of VRF `vrf` have no neighbour, and none of `interfaces` to find it.
pub(crate) fn without_neighbour(vrf: usize, table: &EgressTable, interfaces: &[Interface]) -> usize {
    let is_found = |address: IpAddr, port: Option<u16>| match port {
        Some(port) => interfaces.iter().any(|interface| interface.id().0 == port),
        None => interfaces.iter().any(|interface| interface.vrf() == vrf && interface.is_on_link(address)),
    };
    let missing = table.missing().filter(|(address, port)| !is_found(*address, *port));
    missing.map(|(address, _)| address).collect::<BTreeSet<_>>().len()
}

/// The routes that follow from the addresses. Broadcasts of a link are for the router, which does not forward them (RFC 2644).
pub(crate) fn routes(interfaces: &[Interface]) -> Vec<(IpPrefix, NextHop)> {
    let mut routes = Vec::new();
    let is_link_local = |address| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    for interface in interfaces {
        let port = PortRef::Index(interface.id().0);
        for at in interface.addresses().iter().filter(|at| !is_link_local(at.address())) {
            let hop = NextHop::Connected { port: port.clone() };
            routes.push((prefix(at.address(), at.prefix_len()), hop));
        }
    }
    // After the links, so that an address which is a prefix of its own leads here.
    for interface in interfaces {
        let addresses = interface.addresses().iter().map(|at| at.address());
        let all =
            addresses.filter(|address| !is_link_local(*address)).chain(broadcasts(interface).map(IpAddr::V4));
        routes.extend(all.map(|address| (prefix(address, u8::MAX), NextHop::Local)));
    }
    routes
}

fn broadcasts(interface: &Interface) -> impl Iterator<Item = Ipv4Addr> {
    interface.addresses().iter().filter_map(InterfaceAddress::broadcast)
}

/// The prefix of this length, or of a host if that is longer.
fn prefix(address: IpAddr, len: u8) -> IpPrefix {
    match address {
        IpAddr::V4(address) => u32::wrap(Prefix::truncating(address.to_bits(), len)),
        IpAddr::V6(address) => u128::wrap(Prefix::truncating(address.to_bits(), len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::egress::tests::ports;

    fn address(port: &str, address: &str, prefix_len: u8) -> PortAddress {
        PortAddress { port: PortRef::parse(port), address: address.parse().unwrap(), prefix_len }
    }

    #[test]
    fn addresses_become_routes_and_what_is_ours() {
        let addresses = [
            address("0", "198.18.1.1", 24),
            address("p2", "198.18.2.1", 32),
            address("p2", "2001:db8::1", 64),
        ];
        let interfaces = interfaces(&addresses, std::iter::empty(), &ports(3)).unwrap();
        let shown: Vec<_> = routes(&interfaces).iter().map(|(p, hop)| format!("{p} {hop}")).collect();
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
        let ours = ours(&interfaces, 3);
        assert!(ours[1].is_none());
        let [first, last] = [0, 2].map(|port| ours[port].clone().unwrap());
        assert_eq!(first.v4, [0xc612_0101, 0xc612_0201, 0xc612_01ff, u32::MAX]);
        assert_eq!((last.v4.len(), last.port, first.v6.len(), last.v6.len()), (3, 2, 2, 3));
    }

    #[test]
    fn a_port_with_a_tap_is_an_interface_without_addresses_of_its_own() {
        let interfaces = interfaces(&[], [1].into_iter(), &ports(3)).unwrap();
        assert_eq!((interfaces.len(), interfaces[0].id()), (1, InterfaceId(1)));
        assert!(routes(&interfaces).is_empty() && ours(&interfaces, 3)[1].is_some());
    }

    #[test]
    fn ports_that_are_not_there_and_wrong_addresses_are_refused() {
        let error = |port, text, len| {
            interfaces(&[address(port, text, len)], std::iter::empty(), &ports(3)).unwrap_err()
        };
        assert!(matches!(error("p9", "198.18.1.1", 24), ConfigError::NoDevice(_)));
        assert!(matches!(error("0", "224.0.0.1", 24), ConfigError::Invalid(_)));
        assert!(matches!(error("0", "198.18.1.1", 33), ConfigError::Invalid(_)));
    }
}
