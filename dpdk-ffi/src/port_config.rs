//! A port's requested configuration, and the granted one.

use crate::ids::SocketId;
use crate::sys;

bitflags::bitflags! {
    /// Work on reception that hardware can take over.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RxOffloads: u64 {
        /// The outer VLAN tag is removed from the frame.
        const VLAN_STRIP = sys::DFFI_RX_VLAN_STRIP;
        /// The IPv4 header checksum is checked.
        const IPV4_CKSUM = sys::DFFI_RX_IPV4_CKSUM;
        /// UDP checksums are checked.
        const UDP_CKSUM = sys::DFFI_RX_UDP_CKSUM;
        /// TCP checksums are checked.
        const TCP_CKSUM = sys::DFFI_RX_TCP_CKSUM;
        /// A frame longer than the data room arrives as a chain.
        const SCATTER = sys::DFFI_RX_SCATTER;
        /// The RSS hash arrives with the packet.
        const RSS_HASH = sys::DFFI_RX_RSS_HASH;
    }
}

bitflags::bitflags! {
    /// Work on transmission that hardware can take over, without `MBUF_FAST_FREE`: a queue's packets may come from several pools.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct TxOffloads: u64 {
        /// The IPv4 header checksum is filled in.
        const IPV4_CKSUM = sys::DFFI_TX_IPV4_CKSUM;
        /// UDP checksums are filled in.
        const UDP_CKSUM = sys::DFFI_TX_UDP_CKSUM;
        /// TCP checksums are filled in.
        const TCP_CKSUM = sys::DFFI_TX_TCP_CKSUM;
        /// Chains are sent as one frame.
        const MULTI_SEGS = sys::DFFI_TX_MULTI_SEGS;
    }
}

bitflags::bitflags! {
    /// The header fields that receive-side scaling hashes to choose a queue.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RssTypes: u64 {
        /// IPv4 addresses, fragments included.
        const IPV4 = sys::DFFI_RSS_IPV4;
        /// IPv6 addresses, fragments and extension headers included.
        const IPV6 = sys::DFFI_RSS_IPV6;
        /// UDP ports.
        const UDP = sys::DFFI_RSS_UDP;
        /// TCP ports.
        const TCP = sys::DFFI_RSS_TCP;
        /// SCTP ports.
        const SCTP = sys::DFFI_RSS_SCTP;
    }
}

/// A requested configuration. Offloads and RSS are optional: unsupported ones are left out, as [`Granted`] shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// RX queues.
    pub rx_queues: u16,
    /// TX queues.
    pub tx_queues: u16,
    /// Descriptors per RX queue; the driver rounds them to a number it supports.
    pub rx_descriptors: u16,
    /// Descriptors per TX queue; the driver rounds them to a number it supports.
    pub tx_descriptors: u16,
    /// The largest layer-3 packet in bytes; `None` for 1,500, or the device's limit if lower. Its frame may have two VLAN tags.
    pub mtu: Option<u16>,
    /// Offloads requested on reception.
    pub rx_offloads: RxOffloads,
    /// Offloads requested on transmission.
    pub tx_offloads: TxOffloads,
    /// RSS types requested for several RX queues; ignored with one.
    pub rss: RssTypes,
    /// Receive every frame, with any destination MAC address.
    pub promiscuous: bool,
    /// The NUMA node of the queues' memory; [`SocketId::ANY`] for the port's node.
    pub socket: SocketId,
}

impl Default for PortConfig {
    /// One queue each way, 1,024 descriptors, the default MTU, chains both ways, RSS over addresses and ports, promiscuous.
    fn default() -> Self {
        PortConfig {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            rx_offloads: RxOffloads::SCATTER,
            tx_offloads: TxOffloads::MULTI_SEGS,
            rss: RssTypes::all(),
            promiscuous: true,
            socket: SocketId::ANY,
        }
    }
}

/// The configuration that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// RX queues.
    pub rx_queues: u16,
    /// TX queues.
    pub tx_queues: u16,
    /// Descriptors per RX queue.
    pub rx_descriptors: u16,
    /// Descriptors per TX queue.
    pub tx_descriptors: u16,
    /// The largest layer-3 packet in bytes.
    pub mtu: u16,
    /// Requested and supported RX offloads.
    pub rx_offloads: RxOffloads,
    /// Requested and supported TX offloads.
    pub tx_offloads: TxOffloads,
    /// Requested and supported RSS types; empty with one queue.
    pub rss: RssTypes,
    /// Whether the port is promiscuous.
    pub promiscuous: bool,
}

/// The types of `wanted` that the device supports at least in part, as [`Granted`] reports them; the device gets the exact bits.
pub(crate) fn rss_subset(wanted: RssTypes, capability: u64) -> RssTypes {
    wanted.iter().filter(|types| types.bits() & capability != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_there_and_its_own() {
        fn distinct<F: bitflags::Flags<Bits = u64>>() {
            let flags: Vec<u64> = F::FLAGS.iter().map(|flag| flag.value().bits()).collect();
            assert!(flags.iter().all(|&bits| bits != 0), "{flags:x?}");
            let union = flags.iter().fold(0, |union, bits| union | bits);
            assert_eq!(
                union.count_ones(),
                flags.iter().map(|bits| bits.count_ones()).sum::<u32>(),
                "{flags:x?}"
            );
        }
        distinct::<RxOffloads>();
        distinct::<TxOffloads>();
        distinct::<RssTypes>();
    }

    #[test]
    fn the_flags_are_dpdks() {
        // rte_ethdev.h: RTE_ETH_RX_OFFLOAD_VLAN_STRIP is bit 0, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM bit 1, RTE_ETH_RSS_IPV4 bit 2.
        assert_eq!((RxOffloads::VLAN_STRIP.bits(), TxOffloads::IPV4_CKSUM.bits()), (1, 2));
        assert_eq!(RssTypes::IPV4.bits() & 1 << 2, 1 << 2);
    }

    #[test]
    fn rss_types_are_granted_when_any_part_is_there() {
        let ipv4_only = RssTypes::IPV4.bits() & RssTypes::IPV4.bits().wrapping_neg(); // the lowest bit of IPV4
        assert_eq!(rss_subset(RssTypes::all(), ipv4_only), RssTypes::IPV4);
        assert_eq!(rss_subset(RssTypes::UDP | RssTypes::TCP, RssTypes::TCP.bits()), RssTypes::TCP);
        assert_eq!(rss_subset(RssTypes::all(), 0), RssTypes::empty());
    }
}
