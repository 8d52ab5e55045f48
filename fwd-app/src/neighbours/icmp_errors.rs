//! ICMP errors about packets that the router cannot forward (RFC 792, RFC 1191, RFC 1812 4.3, RFC 4443).
//!
//! An error leaves by the receiving port, to the source MAC and with the VLAN tags of the packet, so the source needs no lookup. With
//! asymmetric routes it takes the packet's path back for one hop.

use super::frame::{IPV4, IPV6, Layer2};
use super::ip::{self, ICMP, ICMPV6, IPV4_BYTES, IPV6_BYTES, TTL, Upper, V4, V6};
use crate::ports::PortTable;
use crate::ports::address::{is_host_v4, is_host_v6};
use crate::ports::{InterfaceId, PortRecord};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP header included: RFC 1812 4.3.2.3.
const V4_BYTES_MAX: usize = 576;
/// IP header included: RFC 4443 2.4 (c).
const V6_BYTES_MAX: usize = 1280;
const HEADER_BYTES: usize = 8;

/// Causes of ICMP errors. The drop reasons `ttl_expired`, `no_route`, `unreachable`, `prohibited` and `mtu_exceeded` map to the variants of
/// similar names; `no_neighbour` maps to [`Self::AddressUnreachable`] after a failed resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    TimeExceeded,
    NoRoute,
    Unreachable,
    /// The next hop does not answer.
    AddressUnreachable,
    Prohibited,
    /// Longer than the egress port's MTU.
    TooBig {
        mtu_bytes: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NoError {
    Malformed,
    /// An ICMP error or redirect, or possibly one.
    IsError,
    LaterFragment,
    /// Not a single host.
    Destination,
    /// The destination or source MAC is not a station's.
    LinkDestination,
    /// Not a single host, or one of our addresses.
    Source,
    /// This case has no error: the packet may be fragmented, or the error exists only in the other IP version.
    NoSuchError,
    NoAddress,
}

/// Source and destination of the error.
#[derive(Clone, Copy, Debug)]
enum Ends {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorMessage<'a> {
    interface: &'a PortRecord,
    layer2: Layer2<'a>,
    ends: Ends,
    kind: u8,
    code: u8,
    word: u32,
    /// The original packet, possibly truncated.
    packet: &'a [u8],
}

impl<'a> ErrorMessage<'a> {
    /// The error for a frame of `frame_bytes` bytes received on `on`; `head` holds its first bytes as received.
    ///
    /// # Errors
    /// [`NoError`] when the packet must not or cannot be answered.
    pub(crate) fn about(
        ports: &'a PortTable,
        on: InterfaceId,
        head: &'a [u8],
        frame_bytes: usize,
        cause: Cause,
    ) -> Result<Self, NoError> {
        let interface = ports.interface(on).ok_or(NoError::NoAddress)?;
        let layer2 = Layer2::parse(head).map_err(|_| NoError::Malformed)?;
        let there = frame_bytes.saturating_sub(head.len() - layer2.payload.len());
        match layer2.ethertype {
            IPV4 => {
                let packet = V4::parse(layer2.payload, there).map_err(|_| NoError::Malformed)?;
                let (kind, code, word) = v4((ports, on), &layer2, &packet, cause)?;
                let from = ports.source_v4(on, packet.source).ok_or(NoError::NoAddress)?;
                let ends = Ends::V4(from, packet.source);
                Ok(Self { interface, layer2, ends, kind, code, word, packet: packet.packet })
            }
            IPV6 => {
                let packet = V6::parse(layer2.payload, there).map_err(|_| NoError::Malformed)?;
                let (kind, code, word) = v6((ports, on), &layer2, &packet, cause)?;
                let from = ports.source_v6(on, packet.source).ok_or(NoError::NoAddress)?;
                let ends = Ends::V6(from, packet.source);
                Ok(Self { interface, layer2, ends, kind, code, word, packet: packet.packet })
            }
            _ => Err(NoError::Malformed),
        }
    }

    /// The destination: the packet's source.
    pub(crate) fn to(&self) -> IpAddr {
        match self.ends {
            Ends::V4(_, to) => to.into(),
            Ends::V6(_, to) => to.into(),
        }
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let envelope = self.layer2.back(self.interface.mac);
        let quoted_max = match self.ends {
            Ends::V4(..) => V4_BYTES_MAX - IPV4_BYTES - HEADER_BYTES,
            Ends::V6(..) => V6_BYTES_MAX - IPV6_BYTES - HEADER_BYTES,
        };
        let quoted = &self.packet[..self.packet.len().min(quoted_max)];
        let bytes = HEADER_BYTES + quoted.len();
        let message = |message: &mut [u8]| {
            message[..2].copy_from_slice(&[self.kind, self.code]);
            message[4..HEADER_BYTES].copy_from_slice(&self.word.to_be_bytes());
            message[HEADER_BYTES..].copy_from_slice(quoted);
        };
        match self.ends {
            Ends::V4(from, to) => ip::icmp_v4(&envelope, (from, to), bytes, message),
            Ends::V6(from, to) => ip::icmp_v6(&envelope, ip::header_v6(from, to, bytes, TTL), message),
        }
    }
}

/// Applies RFC 1812 4.3.2.7; returns type, code and second word. Parsing has applied the tests of 5.2.2.
fn v4(
    (ports, on): (&PortTable, InterfaceId),
    layer2: &Layer2<'_>,
    packet: &V4<'_>,
    cause: Cause,
) -> Result<(u8, u8, u32), NoError> {
    let is_one = |address| is_host_v4(address) && !ports.is_broadcast_in_vrf(on, address);
    if !layer2.destination.is_station() || !layer2.source.is_station() {
        return Err(NoError::LinkDestination);
    }
    if packet.is_later_fragment {
        return Err(NoError::LaterFragment);
    }
    if !is_one(packet.destination) {
        return Err(NoError::Destination);
    }
    if !is_one(packet.source) || ports.is_address_in_vrf(on, packet.source.into()) {
        return Err(NoError::Source);
    }
    if packet.protocol == ICMP && !packet.payload().first().is_some_and(|kind| is_query_v4(*kind)) {
        return Err(NoError::IsError);
    }
    Ok(match cause {
        Cause::TimeExceeded => (11, 0, 0),
        Cause::NoRoute => (3, 0, 0),
        Cause::Unreachable | Cause::AddressUnreachable => (3, 1, 0),
        Cause::Prohibited => (3, 13, 0),
        // RFC 1812 5.2.6: a router that fragments does not send it.
        Cause::TooBig { mtu_bytes } if !packet.may_fragment => (3, 4, mtu_bytes.into()),
        Cause::TooBig { .. } => return Err(NoError::NoSuchError),
    })
}

/// Applies RFC 4443 2.4 (e); returns type, code and second word. Later fragments get no answer: they may belong to an ICMPv6 error.
fn v6(
    (ports, on): (&PortTable, InterfaceId),
    layer2: &Layer2<'_>,
    packet: &V6<'_>,
    cause: Cause,
) -> Result<(u8, u8, u32), NoError> {
    let upper = packet.upper();
    let may_be_multicast = matches!(cause, Cause::TooBig { .. });
    if !layer2.source.is_station() || !(layer2.destination.is_station() || may_be_multicast) {
        return Err(NoError::LinkDestination);
    }
    if upper.is_later_fragment {
        return Err(NoError::LaterFragment);
    }
    if !(is_host_v6(packet.destination) || packet.destination.is_multicast() && may_be_multicast) {
        return Err(NoError::Destination);
    }
    let is_one = is_host_v6(packet.source) && !ports.is_anycast_in_vrf(on, packet.source);
    if !is_one || ports.is_address_in_vrf(on, packet.source.into()) {
        return Err(NoError::Source);
    }
    if may_be_error_v6(packet, &upper) {
        return Err(NoError::IsError);
    }
    Ok(match cause {
        Cause::TimeExceeded => (3, 0, 0),
        // As in Linux for a route that is `unreachable`.
        Cause::NoRoute | Cause::Unreachable => (1, 0, 0),
        Cause::AddressUnreachable => (1, 3, 0),
        Cause::Prohibited => (1, 1, 0),
        Cause::TooBig { mtu_bytes } => (2, 0, mtu_bytes.into()),
    })
}

/// Whether an ICMP type is known to be no error (RFC 792, RFC 950, RFC 1256, RFC 8335).
fn is_query_v4(kind: u8) -> bool {
    matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43)
}

/// Whether it is an ICMPv6 error (type below 128) or redirect (137), or is cut before its type.
fn may_be_error_v6(packet: &V6<'_>, upper: &Upper) -> bool {
    upper.protocol == ICMPV6 && packet.packet.get(upper.at).is_none_or(|kind| *kind < 128 || *kind == 137)
}
