//! Addresses of ports; ranges of host and group addresses.

use fib::{MacAddr, PortRef};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RFC 4291 2.7.1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Prefix of solicited-node groups, 104 bits.
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
/// The low bits of an address that its solicited-node group contains.
const SOLICITED_NODE_BITS: u128 = 0xff_ffff;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterfaceError {
    #[error("prefix length {prefix_len} of {address} is above {limit}")]
    PrefixLen {
        /// The address.
        address: IpAddr,
        prefix_len: u8,
        limit: u8,
    },
    #[error("{address} is no address of a host")]
    NoHost {
        /// The address.
        address: IpAddr,
    },
    /// The network's address or the directed broadcast address.
    #[error("{address}/{prefix_len} is the first or the last address of its prefix, which no host has")]
    WholeLink {
        /// The address.
        address: Ipv4Addr,
        prefix_len: u8,
    },
    #[error("{mac} is no MAC of a station")]
    NoStation {
        /// The MAC.
        mac: MacAddr,
    },
}

/// Whether a host may have the address: not 0/8, 127/8, 224/4 or 240/4 (RFC 1122 3.2.1.3).
pub(crate) fn is_host_v4(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

/// Whether a host may have the address: not `::`, `::1`, an IPv4-mapped or a multicast one (RFC 4291 2.5).
pub(crate) fn is_host_v6(address: Ipv6Addr) -> bool {
    let is_one = !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    is_one && address.to_ipv4_mapped().is_none()
}

pub(crate) fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_host_v4(address),
        IpAddr::V6(address) => is_host_v6(address),
    }
}

/// The solicited-node group of an address (RFC 4291 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(SOLICITED_NODE | address.to_bits() & SOLICITED_NODE_BITS)
}

pub(crate) fn is_solicited_node(group: Ipv6Addr) -> bool {
    group.to_bits() & !SOLICITED_NODE_BITS == SOLICITED_NODE
}

pub(crate) fn group_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

/// A configured address (`--address`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAddress {
    pub(crate) port: PortRef,
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
}

/// An address with the prefix of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InterfaceAddress {
    address: IpAddr,
    prefix_len: u8,
}

impl InterfaceAddress {
    /// # Errors
    /// [`InterfaceError`] when the length is too large or the address is not a host's.
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

    pub(super) const fn link_local(address: IpAddr) -> Self {
        Self { address, prefix_len: 64 }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

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

    /// The subnet-router anycast address (RFC 4291 2.6.1); links of two hosts and IPv4 links have none.
    pub(crate) fn routers(&self) -> Option<Ipv6Addr> {
        match self.address {
            IpAddr::V6(address) if self.prefix_len < 127 => {
                let host = u128::MAX.checked_shr(u32::from(self.prefix_len)).unwrap_or(0);
                Some(Ipv6Addr::from_bits(address.to_bits() & !host))
            }
            _ => None,
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
