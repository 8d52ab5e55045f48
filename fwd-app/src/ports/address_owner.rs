//! Ownership of destination addresses, and selection of source addresses.

use super::{InterfaceId, PortRecord, PortTable};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressOwner {
    /// The router: a unicast address, or a subnet-router anycast address of its links.
    Ours,
    Broadcast,
    /// A group of the interface or of link-local protocols.
    Group,
    OtherGroup,
    Other,
}

impl PortTable {
    fn in_same_vrf(&self, on: InterfaceId) -> impl Iterator<Item = &PortRecord> {
        let vrf = self.interface(on).map(|interface| interface.vrfs.own);
        self.interfaces().filter(move |interface| Some(interface.vrfs.own) == vrf)
    }

    /// Whether a packet received on `on` has reached its destination. Link-local addresses match only on their own link, others on all
    /// links of the VRF (the weak model of RFC 1122 3.3.4.2).
    pub(crate) fn is_local(&self, on: InterfaceId, address: IpAddr) -> bool {
        let is_of_link = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        self.in_same_vrf(on).any(|interface| (!is_of_link || interface.id == on) && interface.has(address))
    }

    /// The owner of `address` for a packet received on `interface`. Other links' directed broadcasts do not count, since the router does
    /// not forward them (RFC 2644).
    pub(crate) fn classify(&self, interface: &PortRecord, address: IpAddr) -> AddressOwner {
        let is_broadcast = matches!(address, IpAddr::V4(address) if interface.is_broadcast(address));
        let is_anycast =
            matches!(address, IpAddr::V6(address) if self.is_anycast_in_vrf(interface.id, address));
        match address {
            _ if is_anycast || self.is_local(interface.id, address) => AddressOwner::Ours,
            _ if is_broadcast => AddressOwner::Broadcast,
            _ if interface.is_group(address) => AddressOwner::Group,
            _ if address.is_multicast() => AddressOwner::OtherGroup,
            _ => AddressOwner::Other,
        }
    }

    pub(crate) fn is_address_in_vrf(&self, on: InterfaceId, address: IpAddr) -> bool {
        self.in_same_vrf(on).any(|interface| interface.has(address))
    }

    pub(crate) fn is_broadcast_in_vrf(&self, on: InterfaceId, address: Ipv4Addr) -> bool {
        self.in_same_vrf(on).any(|interface| interface.is_broadcast(address))
    }

    /// Whether it is a subnet-router anycast address in the VRF of `on` (RFC 4291 2.6.1), which identifies no single router.
    pub(crate) fn is_anycast_in_vrf(&self, on: InterfaceId, address: Ipv6Addr) -> bool {
        self.in_same_vrf(on).any(|interface| interface.anycast().any(|of_link| of_link == address))
    }

    /// The source address of a message to `to` sent by interface `by`; `None` if no address fits.
    pub(crate) fn source(&self, by: InterfaceId, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(to) => self.source_v4(by, to).map(IpAddr::V4),
            IpAddr::V6(to) => self.source_v6(by, to).map(IpAddr::V6),
        }
    }

    /// RFC 1812 4.3.2.4: an address of the outgoing interface, preferably with `to` in its prefix. An interface without addresses uses the
    /// first address in its VRF, which stands for the router id.
    pub(crate) fn source_v4(&self, by: InterfaceId, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let interface = self.interface(by)?;
        let near = interface.addresses().iter().find(|at| at.contains(to.into())).map(|at| at.address());
        match near {
            Some(IpAddr::V4(address)) => Some(address),
            _ => interface
                .v4()
                .next()
                .or_else(|| self.in_same_vrf(by).find_map(|interface| interface.v4().next())),
        }
    }

    /// RFC 6724 5: rules 1 (same address), 2 (scope), 5 (outgoing interface) and 8 (longest prefix). An address of smaller scope than `to`
    /// is never chosen, so link-local addresses send only on the link.
    pub(crate) fn source_v6(&self, by: InterfaceId, to: Ipv6Addr) -> Option<Ipv6Addr> {
        let wide = scope(to);
        let best = |addresses: &mut dyn Iterator<Item = Ipv6Addr>| {
            let fitting = addresses.filter(|address| scope(*address) >= wide);
            let common = |address: Ipv6Addr| (address.to_bits() ^ to.to_bits()).leading_zeros();
            // `min` keeps the first of equal keys, `max` would return the last.
            fitting
                .min_by_key(|address| (Reverse(*address == to), scope(*address), Reverse(common(*address))))
        };
        let own = best(&mut self.interface(by)?.v6());
        // An interface without a fitting address borrows one of global scope from its VRF.
        own.or_else(|| best(&mut self.in_same_vrf(by).flat_map(PortRecord::v6).filter(|a| scope(*a) > LINK)))
    }
}

/// Scope of link-local addresses and groups.
const LINK: u16 = 2;
/// Scope of all other unicast addresses.
const GLOBAL: u16 = 0xe;

/// RFC 6724 3.1; a group contains its scope.
fn scope(address: Ipv6Addr) -> u16 {
    match address.segments()[0] {
        group @ 0xff00.. => group & 0xf,
        0xfe80..=0xfebf => LINK,
        _ => GLOBAL,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::record::tests::{interface, port};
    use super::*;

    /// Port 0 with both families, port 1 with further addresses, port 2 with only a link-local one.
    pub(crate) fn interfaces() -> PortTable {
        PortTable::new(vec![
            interface(0, &["192.0.2.1/24", "198.51.100.1/24", "2001:db8::1/64"]),
            interface(1, &["203.0.113.1/24", "2001:db8:1::1/64", "2001:db8:2::1/64", "fd00::1/64"]),
            interface(2, &[]),
        ])
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_an_owner() {
        let all = interfaces();
        for (text, owner) in [
            ("192.0.2.1", AddressOwner::Ours),
            ("203.0.113.1", AddressOwner::Ours),
            ("192.0.2.255", AddressOwner::Broadcast),
            ("255.255.255.255", AddressOwner::Broadcast),
            ("203.0.113.255", AddressOwner::Other),
            ("192.0.2.2", AddressOwner::Other),
            ("224.0.0.5", AddressOwner::Group),
            ("232.1.1.1", AddressOwner::OtherGroup),
            ("2001:db8:1::1", AddressOwner::Ours),
            ("2001:db8::", AddressOwner::Ours),
            ("2001:db8:1::", AddressOwner::Ours),
            ("2001:db8:7::", AddressOwner::Other),
            ("fe80::f0:ff:fe00:0", AddressOwner::Ours),
            ("fe80::f0:ff:fe00:1", AddressOwner::Other),
            ("ff02::2", AddressOwner::Group),
            ("ff02::1:ff77:7777", AddressOwner::OtherGroup),
            ("ff0e::1", AddressOwner::OtherGroup),
        ] {
            let port = all.interface(InterfaceId(0)).unwrap();
            assert_eq!(all.classify(port, ip(text)), owner, "{text}");
        }
        assert!(all.is_broadcast_in_vrf(InterfaceId(0), "203.0.113.255".parse().unwrap()));
        let anycast = |text: &str| all.is_anycast_in_vrf(InterfaceId(0), text.parse().unwrap());
        assert!(
            anycast("2001:db8:2::")
                && anycast("fe80::")
                && !anycast("2001:db8:2::1")
                && !anycast("2001:db8:7::")
        );
    }

    #[test]
    fn addresses_of_another_vrf_mean_nothing() {
        let mut all = interfaces();
        let more = [(3, &["192.0.2.7/25", "2001:db8::7/64"][..], 1), (4, &[], 1), (5, &[], 2)];
        all.ports.extend(more.map(|(id, addresses, own)| {
            let mut port = interface(id, addresses);
            port.vrfs.own = own;
            port
        }));
        let [zero, three, four, five] = [0, 3, 4, 5].map(InterfaceId);
        let owner = |on, text| all.classify(all.interface(on).unwrap(), ip(text));
        assert_eq!(
            (owner(zero, "192.0.2.7"), owner(three, "192.0.2.7")),
            (AddressOwner::Other, AddressOwner::Ours)
        );
        assert_eq!(
            (owner(zero, "192.0.2.1"), owner(four, "192.0.2.1")),
            (AddressOwner::Ours, AddressOwner::Other)
        );
        assert!(
            all.is_address_in_vrf(four, ip("2001:db8::7")) && !all.is_address_in_vrf(five, ip("2001:db8::7"))
        );
        let broadcast = |on, text: &str| all.is_broadcast_in_vrf(on, text.parse().unwrap());
        assert!(broadcast(four, "192.0.2.127") && !broadcast(zero, "192.0.2.127"));
        assert!(broadcast(zero, "192.0.2.255") && !broadcast(four, "192.0.2.255"));
        let anycast = |on| all.is_anycast_in_vrf(on, "2001:db8::".parse().unwrap());
        assert!(anycast(zero) && anycast(four) && !anycast(five));
        for (by, to, source) in [
            (four, "10.0.0.1", Some("192.0.2.7")),
            (four, "2a00::1", Some("2001:db8::7")),
            (five, "10.0.0.1", None),
            (five, "2a00::1", None),
        ] {
            assert_eq!(all.source(by, ip(to)), source.map(ip), "{by:?} {to}");
        }
    }

    #[test]
    fn sources() {
        let all = interfaces();
        for (by, to, source) in [
            (0, "192.0.2.7", "192.0.2.1"),
            (0, "198.51.100.7", "198.51.100.1"),
            (0, "10.0.0.1", "192.0.2.1"),
            (1, "192.0.2.7", "203.0.113.1"),
            (2, "10.0.0.1", "192.0.2.1"),
            (0, "2001:db8::7", "2001:db8::1"),
            (0, "2001:db8:1::7", "2001:db8::1"),
            (1, "2001:db8:2::7", "2001:db8:2::1"),
            (1, "2001:db8:1::7", "2001:db8:1::1"),
            (1, "fd00::9", "fd00::1"),
            (1, "2a00::1", "2001:db8:1::1"),
            (1, "fe80::9", "fe80::f0:ff:fe00:1"),
            (1, "ff02::1", "fe80::f0:ff:fe00:1"),
            (1, "2001:db8:2::1", "2001:db8:2::1"),
            (2, "2001:db8:2::7", "2001:db8:2::1"),
            (2, "fe80::9", "fe80::f0:ff:fe00:2"),
        ] {
            assert_eq!(all.source(InterfaceId(by), ip(to)), Some(ip(source)), "by {by} to {to}");
        }
    }

    #[test]
    fn a_link_local_address_sends_to_the_link_alone() {
        let mut alone = PortTable::new(vec![port(0), port(1), interface(2, &[])]);
        assert_eq!(alone.source(InterfaceId(2), ip("2001:db8::1")), None);
        assert_eq!(alone.source(InterfaceId(2), ip("192.0.2.1")), None);
        assert!(alone.source(InterfaceId(2), ip("fe80::1")).is_some());
        alone.ports[2] = port(2);
        assert_eq!(alone.source(InterfaceId(2), ip("fe80::1")), None);
    }
}
