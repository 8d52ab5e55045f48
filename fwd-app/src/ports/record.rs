//! The record of a port, and the MACs and addresses on which it receives for the router.
//!
//! A port with an `--address` or a TAP (`--tap`) is an interface. It always has the IPv6 link-local address derived from its MAC (RFC
//! 4291 appendix A). Addresses are in use from the start, without a tentative state ([`crate::neighbours::ndp`]).

use super::address::{InterfaceAddress, InterfaceError, group_mac, is_solicited_node, solicited_node};
use crate::datapath::EgressPort;
use crate::datapath::egress::Named;
use crate::datapath::vlans::PortVrfs;
use fib::{MacAddr, PortRef};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The index of a port and its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InterfaceId(pub(crate) u16);

const LINK_LOCAL: u128 = 0xfe80 << 112;

/// MTUs that a running port can have, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuRange {
    pub(crate) default: u16,
    /// The data room of an mbuf, or the MTU at the start. A larger MTU needs other queues and mempools.
    pub(crate) max: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortRecord {
    pub(crate) id: InterfaceId,
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) mac: MacAddr,
    /// The longest IP packet to send, bytes.
    pub(crate) mtu_bytes: u16,
    pub(crate) mtu_range: MtuRange,
    /// Fixed destination MAC (`--eth-dest`).
    pub(crate) destination: Option<MacAddr>,
    pub(crate) is_up: bool,
    /// Administratively down for the kernel: groups avoid it although its link is up.
    pub(crate) is_stopped: bool,
    pub(crate) vrfs: PortVrfs,
    /// The kernel interface that its driver uses (`iface=`).
    pub(crate) driver_interface: Option<String>,
    /// Other kernel interfaces whose routes lead to it (`--kernel-interface`).
    pub(crate) kernel_interfaces: Vec<String>,
    pub(crate) tap: Option<String>,
    /// In order of preference; empty unless it is an interface.
    addresses: Vec<InterfaceAddress>,
    /// Number of configured `addresses`, which come first; the TAP's follow.
    configured: usize,
}

impl Named for PortRecord {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> &str {
        &self.device
    }
}

impl PortRecord {
    /// A port of VRF 0 with its link up, not an interface.
    pub(crate) fn new(index: u16, name: String, mac: MacAddr, mtu_bytes: u16) -> Self {
        Self {
            id: InterfaceId(index),
            device: name.clone(),
            name,
            mac,
            mtu_bytes,
            mtu_range: MtuRange { default: mtu_bytes, max: mtu_bytes },
            destination: None,
            is_up: true,
            is_stopped: false,
            vrfs: PortVrfs::default(),
            driver_interface: None,
            kernel_interfaces: Vec::new(),
            tap: None,
            addresses: Vec::new(),
            configured: 0,
        }
    }

    /// Makes the port an interface with these addresses and the link-local one, earlier ones preferred within a family.
    ///
    /// # Errors
    /// [`InterfaceError::NoStation`] when the port's MAC is not a station's.
    pub(crate) fn configure(&mut self, addresses: Vec<InterfaceAddress>) -> Result<(), InterfaceError> {
        if !self.mac.is_station() {
            return Err(InterfaceError::NoStation { mac: self.mac });
        }
        self.addresses = addresses;
        let address = IpAddr::V6(self.link_local());
        if !self.has(address) {
            self.addresses.push(InterfaceAddress::link_local(address));
        }
        self.configured = self.addresses.len();
        Ok(())
    }

    /// Replaces the configured addresses of an interface; keeps its TAP's addresses.
    ///
    /// # Errors
    /// As [`Self::configure`].
    pub(crate) fn reconfigure(&mut self, addresses: Vec<InterfaceAddress>) -> Result<(), InterfaceError> {
        let learned = self.addresses.split_off(self.configured);
        self.configure(addresses)?;
        self.learn(learned);
        Ok(())
    }

    /// Replaces the additional addresses of its TAP. A configured address keeps its prefix.
    pub(crate) fn learn(&mut self, addresses: impl IntoIterator<Item = InterfaceAddress>) {
        self.addresses.truncate(self.configured);
        for at in addresses {
            if !self.has(at.address()) {
                self.addresses.push(at);
            }
        }
    }

    pub(crate) fn is_interface(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The port as printed in routes: its user-given name, else its number.
    pub(crate) fn reference(&self) -> PortRef {
        if self.name == self.device { PortRef::Index(self.id.0) } else { PortRef::Name(self.name.clone()) }
    }

    pub(crate) fn egress(&self) -> EgressPort {
        let Self { name, device, mac, mtu_bytes, destination, is_up, .. } = self.clone();
        EgressPort { name, device, mac, mtu_bytes, destination, is_up }
    }

    pub(crate) fn addresses(&self) -> &[InterfaceAddress] {
        &self.addresses
    }

    /// The configured and link-local addresses: the first of [`Self::addresses`].
    pub(crate) fn configured(&self) -> &[InterfaceAddress] {
        &self.addresses[..self.configured]
    }

    pub(crate) fn v4(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.addresses.iter().filter_map(|at| match at.address() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    pub(crate) fn v6(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.addresses.iter().filter_map(|at| match at.address() {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address),
        })
    }

    /// Subnet-router anycast addresses of its links, without its own addresses.
    pub(crate) fn anycast(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.addresses
            .iter()
            .filter_map(InterfaceAddress::routers)
            .filter(|address| !self.has((*address).into()))
    }

    /// `fe80::/64` with the MAC as interface identifier: `ff:fe` in the middle, the universal bit inverted.
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac.0;
        let identifier = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        Ipv6Addr::from_bits(LINK_LOCAL | u128::from(identifier))
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|at| at.address() == address)
    }

    /// Whether an address is link-local or in a prefix of the interface.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        is_link_local || self.addresses.iter().any(|at| at.contains(address))
    }

    /// Whether it is the limited broadcast address or a directed one of the interface.
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.addresses.iter().any(|at| at.broadcast() == Some(address))
    }

    /// Whether the interface joins the group, or link-local protocols use it: 224.0.0.0/24 (RFC 5771 4), `ff01::/16` and `ff02::/16`,
    /// without the solicited-node groups of other nodes.
    pub(crate) fn is_group(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
            IpAddr::V6(group) if is_solicited_node(group) => {
                self.v6().chain(self.anycast()).any(|address| solicited_node(address) == group)
            }
            IpAddr::V6(group) => matches!(group.segments()[0], 0xff01 | 0xff02),
        }
    }

    /// Whether frames to this MAC are for the router. The MAC of an IPv6 group has no scope, so groups of any scope match.
    pub(crate) fn is_ours_l2(&self, mac: MacAddr) -> bool {
        match mac.0 {
            [0x33, 0x33, 0xff, ..] => {
                self.v6().chain(self.anycast()).any(|address| group_mac(solicited_node(address)) == mac)
            }
            [0x33, 0x33, ..] | [1, 0, 0x5e, 0, 0, _] => true,
            _ => mac == self.mac || mac == MacAddr::BROADCAST || mac.is_link_group(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn interface_address(text: &str) -> InterfaceAddress {
        let (address, prefix_len) = text.split_once('/').unwrap();
        InterfaceAddress::new(address.parse().unwrap(), prefix_len.parse().unwrap()).unwrap()
    }

    pub(crate) fn port(id: u8) -> PortRecord {
        PortRecord::new(id.into(), format!("p{id}"), MacAddr([2, 0xf0, 0, 0, 0, id]), 1500)
    }

    pub(crate) fn interface(id: u8, addresses: &[&str]) -> PortRecord {
        let mut port = port(id);
        port.configure(addresses.iter().map(|text| interface_address(text)).collect()).unwrap();
        port
    }

    /// The interface of another node, with this MAC.
    pub(crate) fn station(mac: MacAddr, addresses: &[&str]) -> PortRecord {
        let mut port = PortRecord { mac, ..port(7) };
        port.configure(addresses.iter().map(|text| interface_address(text)).collect()).unwrap();
        port
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn wrong_configurations_are_refused() {
        let wrong = |text: &str, len| InterfaceAddress::new(ip(text), len).unwrap_err();
        assert_eq!(wrong("192.0.2.1", 33).to_string(), "prefix length 33 of 192.0.2.1 is above 32");
        assert_eq!(wrong("2001:db8::1", 129).to_string(), "prefix length 129 of 2001:db8::1 is above 128");
        for text in
            ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1", "::ffff:1.2.3.4"]
        {
            assert!(matches!(wrong(text, 8), InterfaceError::NoHost { .. }), "{text}");
        }
        for (text, len) in [
            ("198.19.1.255", 24),
            ("198.19.1.0", 24),
            ("198.19.1.3", 30),
            ("128.0.0.0", 1),
            ("10.255.255.255", 8),
        ] {
            assert!(matches!(wrong(text, len), InterfaceError::WholeLink { .. }), "{text}/{len}");
        }
        // No broadcast address: links of two hosts, single hosts, IPv6.
        for text in
            ["198.19.1.0/31", "198.19.1.255/31", "198.19.1.255/32", "198.19.1.255/16", "2001:db8::/64"]
        {
            interface_address(text);
        }
        for mac in [[0; 6], [0xff; 6], [1, 0, 0, 0, 0, 1]] {
            let error = PortRecord { mac: MacAddr(mac), ..port(0) }.configure(Vec::new()).unwrap_err();
            assert!(matches!(error, InterfaceError::NoStation { .. }));
        }
    }

    #[test]
    fn the_link_local_address_follows_from_the_mac() {
        let mac = "00:1b:21:aa:bb:cc".parse().unwrap();
        let mut interface = PortRecord { mac, ..port(0) };
        interface.configure(Vec::new()).unwrap();
        assert_eq!(interface.link_local(), "fe80::21b:21ff:feaa:bbcc".parse::<Ipv6Addr>().unwrap());
        assert!(interface.has(interface.link_local().into()));
        let before = interface.clone();
        interface.configure(vec![InterfaceAddress::new(interface.link_local().into(), 64).unwrap()]).unwrap();
        assert_eq!(interface, before);
    }

    #[test]
    fn prefixes_of_the_link() {
        let interface =
            interface(1, &["192.0.2.1/24", "198.51.100.4/31", "203.0.113.9/32", "2001:db8:1::1/64"]);
        for text in ["192.0.2.77", "198.51.100.5", "203.0.113.9", "2001:db8:1::77", "fe80::77"] {
            assert!(interface.is_on_link(ip(text)), "{text}");
        }
        for text in ["192.0.3.1", "198.51.100.6", "203.0.113.8", "2001:db8:2::1", "::192.0.2.1"] {
            assert!(!interface.is_on_link(ip(text)), "{text}");
        }
        for (text, is_broadcast) in [
            ("192.0.2.255", true),
            ("255.255.255.255", true),
            ("192.0.2.0", false),
            ("198.51.100.5", false),
            ("203.0.113.9", false),
            ("203.0.113.255", false),
        ] {
            assert_eq!(interface.is_broadcast(text.parse().unwrap()), is_broadcast, "{text}");
        }
        assert_eq!(interface_address("1.2.3.4/0").broadcast(), Some(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn groups() {
        let interface = interface(1, &["192.0.2.1/24", "2001:db8::12:3456/64"]);
        for (text, is_group) in [
            ("224.0.0.1", true),
            ("224.0.0.5", true),
            ("224.0.1.1", false),
            ("239.255.255.250", false),
            ("192.0.2.1", false),
            ("ff02::1", true),
            ("ff02::2", true),
            ("ff02::5", true),
            ("ff02::1:2", true),
            ("ff02::1:ff12:3456", true),
            ("ff02::1:ff00:1", true), // of the link-local address
            ("ff02::1:ff12:3457", false),
            ("ff05::2", false),
        ] {
            assert_eq!(interface.is_group(ip(text)), is_group, "{text}");
        }
    }

    #[test]
    fn macs() {
        let interface = interface(1, &["2001:db8::12:3456/64"]);
        for (text, is_ours) in [
            ("02:f0:00:00:00:01", true),
            ("02:f0:00:00:00:02", false),
            ("ff:ff:ff:ff:ff:ff", true),
            ("01:00:5e:00:00:05", true),
            ("01:00:5e:00:01:05", false),
            ("01:80:c2:00:00:0e", true),
            ("01:80:c2:00:00:10", false),
            ("01:80:c2:00:00:14", true),
            ("09:00:2b:00:00:05", true),
            ("09:00:2b:00:00:06", false),
            ("33:33:00:00:00:02", true),
            ("33:33:ff:12:34:56", true),
            ("33:33:ff:12:34:57", false),
        ] {
            assert_eq!(interface.is_ours_l2(text.parse().unwrap()), is_ours, "{text}");
        }
    }
}
