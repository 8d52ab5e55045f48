//! The interface of a port: its MAC, its addresses, and which MACs and addresses make a frame ours.
//!
//! An interface always has the IPv6 link-local address that follows from its MAC (RFC 4291 appendix A), whether it is configured or
//! not. Its addresses are in use from the start: there is no tentative state (see [`super::ndp`]).

use super::frame::{BROADCAST, is_station};
use fib::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The index of a port, which is that of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InterfaceId(pub(crate) u16);

/// The group of all nodes on a link (RFC 4291 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The first 104 bits of solicited-node groups.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
/// The bits of an address that its solicited-node group has.
const SOLICITED_NODE_BITS: u128 = 0xff_ffff;
/// The address and the length of the prefix of link-local addresses.
const LINK_LOCAL: (u128, u8) = (0xfe80 << 112, 64);

/// Why an interface cannot be as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterfaceError {
    /// The prefix is longer than the address.
    #[error("prefix length {prefix_len} of {address} is above {limit}")]
    PrefixLen {
        /// The address.
        address: IpAddr,
        /// The length that was given.
        prefix_len: u8,
        /// The longest.
        limit: u8,
    },
    /// No single host can have the address.
    #[error("{address} is no address of a host")]
    NoHost {
        /// The address.
        address: IpAddr,
    },
    /// It is the network's own address, or that of all hosts on the link.
    #[error("{address}/{prefix_len} is the first or the last address of its prefix, which no host has")]
    WholeLink {
        /// The address.
        address: Ipv4Addr,
        /// The length of the prefix.
        prefix_len: u8,
    },
    /// The MAC is zero, broadcast or multicast.
    #[error("{mac} is no MAC of a station")]
    NoStation {
        /// The MAC.
        mac: MacAddr,
    },
}

/// Whether one host may have the address: not 0/8, 127/8, 224/4 or 240/4 (RFC 1122 3.2.1.3).
pub(crate) fn is_host_v4(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Whether one host may have the address: not `::`, `::1`, an IPv4-mapped or a multicast one (RFC 4291 2.5).
pub(crate) fn is_host_v6(address: Ipv6Addr) -> bool {
    let is_one = !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    is_one && address.to_ipv4_mapped().is_none()
}

/// Whether one host may have the address.
pub(crate) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_host_v4(address),
        IpAddr::V6(address) => is_host_v6(address),
    }
}

/// The group that a node with this address is in (RFC 4291 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(SOLICITED_NODE | address.to_bits() & SOLICITED_NODE_BITS)
}

/// Whether the group is the solicited-node group of any address.
pub(crate) fn is_solicited_node(group: Ipv6Addr) -> bool {
    group.to_bits() & !SOLICITED_NODE_BITS == SOLICITED_NODE
}

/// The MAC of an IPv6 group (RFC 2464 7).
pub(crate) fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// An address of an interface, with the prefix of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InterfaceAddress {
    address: IpAddr,
    prefix_len: u8,
}

impl InterfaceAddress {
    /// `address/prefix_len`.
    ///
    /// # Errors
    /// [`InterfaceError`] when the length is too large or the address is not that of a host.
    pub(crate) fn new(address: IpAddr, prefix_len: u8) -> Result<Self, InterfaceError> {
        let limit = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > limit {
            return Err(InterfaceError::PrefixLen { address, prefix_len, limit });
        }
        if !is_host(address) {
            return Err(InterfaceError::NoHost { address });
        }
        let at = Self { address, prefix_len };
        if let (IpAddr::V4(address), Some(last)) = (address, at.broadcast())
            && (address == last || address.to_bits() << prefix_len == 0)
        {
            return Err(InterfaceError::WholeLink { address, prefix_len });
        }
        Ok(at)
    }

    /// The address.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// The length of the prefix.
    pub(crate) fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Whether the prefix contains `other`.
    pub(crate) fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).leading_zeros() >= u32::from(self.prefix_len)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).leading_zeros() >= u32::from(self.prefix_len)
            }
            _ => false,
        }
    }

    /// The directed broadcast address; prefixes longer than /30 have none (RFC 3021).
    pub(crate) fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.prefix_len <= 30 => {
                let hosts = u32::MAX.checked_shr(u32::from(self.prefix_len)).unwrap_or(0);
                Some(Ipv4Addr::from_bits(address.to_bits() | hosts))
            }
            _ => None,
        }
    }
}

/// The interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    id: InterfaceId,
    mac: MacAddr,
    mtu_bytes: u16,
    addresses: Vec<InterfaceAddress>,
    vrf: usize,
}

impl Interface {
    /// An interface with these addresses and its link-local one. The first address of a family is preferred where several would do.
    ///
    /// # Errors
    /// [`InterfaceError::NoStation`] when no port can have that MAC.
    pub(crate) fn new(
        id: InterfaceId,
        mac: MacAddr,
        mtu_bytes: u16,
        addresses: &[InterfaceAddress],
    ) -> Result<Self, InterfaceError> {
        if !is_station(mac) {
            return Err(InterfaceError::NoStation { mac });
        }
        let mut interface = Self { id, mac, mtu_bytes, addresses: addresses.to_vec(), vrf: 0 };
        let address = IpAddr::V6(interface.link_local());
        if !interface.has(address) {
            interface.addresses.push(InterfaceAddress { address, prefix_len: LINK_LOCAL.1 });
        }
        Ok(interface)
    }

    /// This interface with more addresses. Those that it has already keep their prefix.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = InterfaceAddress>) -> Self {
        let mut interface = self.clone();
        for at in more {
            if !interface.has(at.address) {
                interface.addresses.push(at);
            }
        }
        interface
    }

    /// This interface in the VRF with this number; a new one is in VRF 0.
    pub(crate) fn in_vrf(self, vrf: usize) -> Self {
        Self { vrf, ..self }
    }

    /// The number of its VRF. The addresses of other VRFs mean nothing here.
    pub(crate) fn vrf(&self) -> usize {
        self.vrf
    }

    /// The index of the port.
    pub(crate) fn id(&self) -> InterfaceId {
        self.id
    }

    /// The MAC of the port.
    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The longest IP packet that the port sends, bytes.
    pub(crate) fn mtu_bytes(&self) -> u16 {
        self.mtu_bytes
    }

    /// All addresses, in order of preference.
    pub(crate) fn addresses(&self) -> &[InterfaceAddress] {
        &self.addresses
    }

    /// The IPv4 addresses, in order of preference.
    pub(crate) fn v4(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.addresses.iter().filter_map(|at| match at.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// The IPv6 addresses, in order of preference.
    pub(crate) fn v6(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.addresses.iter().filter_map(|at| match at.address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(address),
        })
    }

    /// `fe80::/64` and the MAC as an interface identifier: `ff:fe` in the middle, the universal bit inverted.
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac.0;
        let identifier = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        Ipv6Addr::from_bits(LINK_LOCAL.0 | u128::from(identifier))
    }

    /// Whether it is an address of this interface.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|at| at.address == address)
    }

    /// Whether an address is on the link: in a prefix of the interface, or link-local.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        is_link_local || self.addresses.iter().any(|at| at.contains(address))
    }

    /// Whether it is the limited broadcast address or that of a prefix of the interface.
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.addresses.iter().any(|at| at.broadcast() == Some(address))
    }

    /// Whether the interface is in the group, or control protocols of the link use it: 224.0.0.0/24 with its all-hosts group (RFC 5771
    /// 4), and `ff01::/16` and `ff02::/16` but for the solicited-node groups of other nodes.
    pub(crate) fn is_group(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(group) => group.octets()[..3] == [224, 0, 0],
            IpAddr::V6(group) if is_solicited_node(group) => {
                self.v6().any(|address| solicited_node(address) == group)
            }
            IpAddr::V6(group) => matches!(group.segments()[0], 0xff01 | 0xff02),
        }
    }

    /// Whether frames to this MAC are for us: the port's own, broadcast, the groups of [`Self::is_group`], and those of the link's protocols
    /// ([`MacAddr::is_link_group`]). The MAC of an IPv6 group has no scope, so groups of any scope match.
    pub(crate) fn is_ours_l2(&self, mac: MacAddr) -> bool {
        match mac.0 {
            [0x33, 0x33, 0xff, ..] => self.v6().any(|address| group_mac(solicited_node(address)) == mac),
            [0x33, 0x33, ..] | [1, 0, 0x5e, 0, 0, _] => true,
            _ => mac == self.mac || mac == BROADCAST || mac.is_link_group(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `address/length`.
    pub(crate) fn at(text: &str) -> InterfaceAddress {
        let (address, prefix_len) = text.split_once('/').unwrap();
        InterfaceAddress::new(address.parse().unwrap(), prefix_len.parse().unwrap()).unwrap()
    }

    /// The interface of port `id` with MAC `02:f0:00:00:00:ID` and an MTU of 1500.
    pub(crate) fn interface(id: u8, addresses: &[&str]) -> Interface {
        let addresses: Vec<_> = addresses.iter().map(|text| at(text)).collect();
        Interface::new(InterfaceId(id.into()), MacAddr([2, 0xf0, 0, 0, 0, id]), 1500, &addresses).unwrap()
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
        // Those of a link of two, of one host, and of IPv6.
        for text in
            ["198.19.1.0/31", "198.19.1.255/31", "198.19.1.255/32", "198.19.1.255/16", "2001:db8::/64"]
        {
            at(text);
        }
        for mac in [[0; 6], [0xff; 6], [1, 0, 0, 0, 0, 1]] {
            let error = Interface::new(InterfaceId(0), MacAddr(mac), 1500, &[]).unwrap_err();
            assert!(matches!(error, InterfaceError::NoStation { .. }));
        }
    }

    #[test]
    fn the_link_local_address_follows_from_the_mac() {
        let mac = "00:1b:21:aa:bb:cc".parse().unwrap();
        let interface = Interface::new(InterfaceId(0), mac, 1500, &[]).unwrap();
        assert_eq!(interface.link_local(), "fe80::21b:21ff:feaa:bbcc".parse::<Ipv6Addr>().unwrap());
        assert!(interface.has(interface.link_local().into()));
        let configured = [InterfaceAddress::new(interface.link_local().into(), 64).unwrap()];
        assert_eq!(Interface::new(InterfaceId(0), mac, 1500, &configured).unwrap(), interface);
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
        assert_eq!(at("1.2.3.4/0").broadcast(), Some(Ipv4Addr::BROADCAST));
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
