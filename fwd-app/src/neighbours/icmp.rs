//! Echo replies for the router's own addresses (RFC 792, RFC 1812 4.3.3.6, RFC 4443 4.2).
//!
//! Answers whole, plain echo requests that fit the MTU, by the receiving port to the MAC that sent the request. Fragments, packets with
//! options or extension headers, and requests to groups go to the kernel.

use super::frame::{IPV4, IPV6, Layer2};
use super::ip::{ICMP, ICMPV6, IPV4_BYTES, IPV6_BYTES, TTL, V4, V6, sum_v6};
use crate::datapath::DropReason;
use crate::ports::PortRecord;
use smoltcp::wire::{
    Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Ipv4Packet, Ipv6Packet, checksum,
};
use std::net::Ipv6Addr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    Reply(Vec<u8>),
    Other,
    Ignored(DropReason),
}

/// The reply for one of our addresses. It keeps the request's identification, precedence (RFC 1812 4.3.2.5) and "don't fragment" bit.
pub(crate) fn reply_v4(interface: &PortRecord, layer2: &Layer2<'_>, packet: &V4<'_>) -> Echo {
    let is_plain = packet.protocol == ICMP && packet.header_bytes == IPV4_BYTES && !packet.is_fragment;
    let Ok(message) = Icmpv4Packet::new_checked(packet.payload()) else { return Echo::Other };
    let is_request = message.msg_type() == Icmpv4Message::EchoRequest && message.msg_code() == 0;
    if !is_plain || !is_request || !may_answer(interface, layer2, packet.packet) {
        return Echo::Other;
    }
    if checksum::data(packet.payload()) != !0 {
        return Echo::Ignored(DropReason::BadChecksum);
    }
    let frame = layer2.back(interface.mac).frame(IPV4, packet.packet.len(), |bytes| {
        bytes.copy_from_slice(packet.packet);
        let mut header = Ipv4Packet::new_unchecked(&mut *bytes);
        header.set_src_addr(packet.destination);
        header.set_dst_addr(packet.source);
        header.set_hop_limit(TTL);
        header.set_ecn(0);
        header.fill_checksum();
        let mut message = Icmpv4Packet::new_unchecked(&mut bytes[IPV4_BYTES..]);
        message.set_msg_type(Icmpv4Message::EchoReply);
        message.fill_checksum();
    });
    Echo::Reply(frame)
}

/// The reply from `source` to an IPv6 packet. It keeps the request's traffic class without the congestion bits.
pub(crate) fn reply_v6(
    interface: &PortRecord,
    layer2: &Layer2<'_>,
    packet: &V6<'_>,
    source: Ipv6Addr,
) -> Echo {
    let is_plain = packet.next_header == ICMPV6;
    let Ok(message) = Icmpv6Packet::new_checked(packet.payload()) else { return Echo::Other };
    let is_request = message.msg_type() == Icmpv6Message::EchoRequest && message.msg_code() == 0;
    if !is_plain || !is_request || !may_answer(interface, layer2, packet.packet) {
        return Echo::Other;
    }
    if sum_v6(packet.source, packet.destination, packet.payload()) != !0 {
        return Echo::Ignored(DropReason::BadChecksum);
    }
    let frame = layer2.back(interface.mac).frame(IPV6, packet.packet.len(), |bytes| {
        bytes.copy_from_slice(packet.packet);
        let mut header = Ipv6Packet::new_unchecked(&mut *bytes);
        header.set_src_addr(source);
        header.set_dst_addr(packet.source);
        header.set_hop_limit(TTL);
        header.set_traffic_class(header.traffic_class() & !3);
        header.set_flow_label(0);
        let mut message = Icmpv6Packet::new_unchecked(&mut bytes[IPV6_BYTES..]);
        message.set_msg_type(Icmpv6Message::EchoReply);
        message.fill_checksum(&source, &packet.source);
    });
    Echo::Reply(frame)
}

/// Whether the request is unicast on the link and the reply fits the MTU.
fn may_answer(interface: &PortRecord, layer2: &Layer2<'_>, packet: &[u8]) -> bool {
    let is_between_two = layer2.source.is_station() && layer2.destination == interface.mac;
    is_between_two && packet.len() <= usize::from(interface.mtu_bytes)
}
