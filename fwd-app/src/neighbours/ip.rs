//! IP headers of received packets, possibly truncated, and headers of ICMP messages to send.

use super::frame::{Envelope, IPV4, IPV6};
use crate::datapath::DropReason;
use dpdk_ffi::simd::rules::{checksum_is_right, lengths_agree_v4, lengths_agree_v6};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, checksum};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Without options.
pub(crate) const IPV4_BYTES: usize = 20;
pub(crate) const IPV6_BYTES: usize = 40;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;
/// DSCP field of ICMP errors: CS6, the precedence "internetwork control" (RFC 1812 4.3.2.5, RFC 2474 4.2.2.2).
const CS6: u8 = 48;
/// TTL and hop limit of the router's own packets (RFC 1700).
pub(crate) const TTL: u8 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct V4<'a> {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) is_fragment: bool,
    pub(crate) is_later_fragment: bool,
    pub(crate) may_fragment: bool,
    /// Header and payload without padding, possibly truncated.
    pub(crate) packet: &'a [u8],
    pub(crate) header_bytes: usize,
}

impl<'a> V4<'a> {
    /// Reads a packet of `there` received bytes; `bytes` may hold only the first of them.
    ///
    /// # Errors
    /// The checks of RFC 1812 5.2.2: [`DropReason::Malformed`], [`DropReason::BadChecksum`].
    pub(crate) fn parse(bytes: &'a [u8], there: usize) -> Result<Self, DropReason> {
        if bytes.len() < IPV4_BYTES {
            return Err(DropReason::Malformed);
        }
        let view = Ipv4Packet::new_unchecked(bytes);
        let (header_bytes, total_bytes) = (view.header_len(), view.total_len());
        let there = u32::try_from(there).unwrap_or(u32::MAX);
        let header = bytes.get(..usize::from(header_bytes)).ok_or(DropReason::Malformed)?;
        let lengths_agree = lengths_agree_v4(header_bytes.into(), total_bytes.into(), there);
        if view.version() != 4 || header.len() < IPV4_BYTES || !lengths_agree {
            return Err(DropReason::Malformed);
        }
        let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        if !checksum_is_right(words.sum()) {
            return Err(DropReason::BadChecksum);
        }
        Ok(Self {
            source: view.src_addr(),
            destination: view.dst_addr(),
            protocol: view.next_header().into(),
            is_fragment: view.more_frags() || view.frag_offset() > 0,
            is_later_fragment: view.frag_offset() > 0,
            may_fragment: !view.dont_frag(),
            packet: &bytes[..bytes.len().min(total_bytes.into())],
            header_bytes: header_bytes.into(),
        })
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.packet[self.header_bytes..]
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct V6<'a> {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) hop_limit: u8,
    pub(crate) next_header: u8,
    pub(crate) packet: &'a [u8],
}

impl<'a> V6<'a> {
    /// Reads a packet of `there` received bytes; `bytes` may hold only the first of them.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] unless it is IPv6 and its length fits the received bytes (RFC 8200 3).
    pub(crate) fn parse(bytes: &'a [u8], there: usize) -> Result<Self, DropReason> {
        if bytes.len() < IPV6_BYTES {
            return Err(DropReason::Malformed);
        }
        let view = Ipv6Packet::new_unchecked(bytes);
        let total_bytes = view.total_len();
        let (total, there) = (u32::try_from(total_bytes), u32::try_from(there).unwrap_or(u32::MAX));
        if view.version() != 6 || !lengths_agree_v6(total.unwrap_or(u32::MAX), there) {
            return Err(DropReason::Malformed);
        }
        Ok(Self {
            source: view.src_addr(),
            destination: view.dst_addr(),
            hop_limit: view.hop_limit(),
            next_header: view.next_header().into(),
            packet: &bytes[..bytes.len().min(total_bytes)],
        })
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.packet[IPV6_BYTES..]
    }

    pub(crate) fn upper(&self) -> Upper {
        const HEADERS_MAX: usize = 8;
        let mut upper = Upper { protocol: self.next_header, at: IPV6_BYTES, is_later_fragment: false };
        for _ in 0..HEADERS_MAX {
            let Some([next, len]) = self.packet.get(upper.at..).and_then(<[u8]>::first_chunk) else { break };
            let bytes = match upper.protocol {
                // Hop-by-hop options, routing, destination options (RFC 8200 4).
                0 | 43 | 60 => (usize::from(*len) + 1) * 8,
                // A fragment header: 13 bits of offset.
                44 => {
                    let offset = self.packet.get(upper.at + 2..).and_then(<[u8]>::first_chunk);
                    upper.is_later_fragment |= offset.is_some_and(|at| u16::from_be_bytes(*at) >> 3 != 0);
                    8
                }
                // An authentication header (RFC 4302 2.2).
                51 => (usize::from(*len) + 2) * 4,
                _ => break,
            };
            upper = Upper { protocol: *next, at: upper.at + bytes, ..upper };
        }
        upper
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upper {
    pub(crate) protocol: u8,
    /// Offset in the packet, possibly past the available bytes.
    pub(crate) at: usize,
    pub(crate) is_later_fragment: bool,
}

/// An ICMP packet with DSCP CS6; `message` writes all but the checksum.
pub(crate) fn icmp_v4(
    envelope: &Envelope,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    message_bytes: usize,
    message: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Icmp,
        payload_len: message_bytes,
        hop_limit: TTL,
    };
    envelope.frame(IPV4, IPV4_BYTES + message_bytes, |bytes| {
        let mut packet = Ipv4Packet::new_unchecked(&mut *bytes);
        header.emit(&mut packet, &ChecksumCapabilities::ignored());
        packet.set_dscp(CS6);
        packet.fill_checksum();
        let body = &mut bytes[IPV4_BYTES..];
        message(body);
        let sum = !checksum::data(body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
    })
}

/// An ICMPv6 packet; `message` writes all but the checksum.
pub(crate) fn icmp_v6(envelope: &Envelope, header: Ipv6Repr, message: impl FnOnce(&mut [u8])) -> Vec<u8> {
    envelope.frame(IPV6, IPV6_BYTES + header.payload_len, |bytes| {
        let mut packet = Ipv6Packet::new_unchecked(&mut *bytes);
        header.emit(&mut packet);
        packet.set_traffic_class(CS6 << 2);
        let body = &mut bytes[IPV6_BYTES..];
        message(body);
        let sum = !sum_v6(header.src_addr, header.dst_addr, body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
    })
}

pub(crate) fn header_v6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message_bytes: usize,
    hop_limit: u8,
) -> Ipv6Repr {
    Ipv6Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Icmpv6,
        payload_len: message_bytes,
        hop_limit,
    }
}

/// The sum over pseudo-header and message (RFC 4443 2.3): all ones if the checksum is correct.
pub(crate) fn sum_v6(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let pseudo_header = checksum::pseudo_header_v6(&source, &destination, IpProtocol::Icmpv6, bytes);
    checksum::combine(&[pseudo_header, checksum::data(message)])
}
