//! Packets with correct checksums for the router's tests, and a check of every frame that it sends.

use super::frame::{ARP, Envelope, IPV4, IPV6, Layer2, Tags};
use fib::MacAddr;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpPacket, ArpRepr, Icmpv4Packet, Icmpv6Packet, IpProtocol, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr,
};

/// The MAC of interface 0 in [`crate::ports::address_owner::tests::interfaces`].
pub(crate) const OURS: MacAddr = MacAddr([2, 0xf0, 0, 0, 0, 0]);
pub(crate) const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
pub(crate) const TO_US: Envelope = Envelope { destination: OURS, source: THEIRS, tags: Tags::NONE };

pub(crate) fn v4(envelope: Envelope, from: &str, to: &str, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let (src_addr, dst_addr) = (from.parse().unwrap(), to.parse().unwrap());
    let header =
        Ipv4Repr { src_addr, dst_addr, next_header: protocol, payload_len: payload.len(), hop_limit: 9 };
    envelope.frame(IPV4, 20 + payload.len(), |bytes| {
        header.emit(&mut Ipv4Packet::new_unchecked(&mut *bytes), &ChecksumCapabilities::default());
        bytes[20..].copy_from_slice(payload);
    })
}

pub(crate) fn v6(envelope: Envelope, from: &str, to: &str, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let (src_addr, dst_addr) = (from.parse().unwrap(), to.parse().unwrap());
    let header =
        Ipv6Repr { src_addr, dst_addr, next_header: protocol, payload_len: payload.len(), hop_limit: 9 };
    envelope.frame(IPV6, 40 + payload.len(), |bytes| {
        header.emit(&mut Ipv6Packet::new_unchecked(&mut *bytes));
        bytes[40..].copy_from_slice(payload);
    })
}

pub(crate) fn edited_v4(mut frame: Vec<u8>, edit: impl FnOnce(&mut [u8])) -> Vec<u8> {
    edit(&mut frame);
    Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    frame
}

pub(crate) fn echo_v4(from: &str, to: &str, data: &[u8]) -> Vec<u8> {
    let mut message = [&[8, 0, 0, 0, 0x12, 0x34, 0, 7], data].concat();
    Icmpv4Packet::new_unchecked(&mut message[..]).fill_checksum();
    v4(TO_US, from, to, IpProtocol::Icmp, &message)
}

pub(crate) fn echo_v6(from: &str, to: &str, data: &[u8]) -> Vec<u8> {
    let mut message = [&[128, 0, 0, 0, 0x12, 0x34, 0, 7], data].concat();
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&from.parse().unwrap(), &to.parse().unwrap());
    v6(TO_US, from, to, IpProtocol::Icmpv6, &message)
}

/// Asserts that a frame has no trailing bytes and that every checksum is correct.
pub(crate) fn assert_well_formed(frame: &[u8]) {
    let layer2 = Layer2::parse(frame).unwrap();
    assert!(layer2.source.is_station(), "{frame:02x?}");
    match layer2.ethertype {
        ARP => {
            let message = ArpRepr::parse(&ArpPacket::new_checked(layer2.payload).unwrap()).unwrap();
            assert_eq!(message.buffer_len(), layer2.payload.len());
        }
        IPV4 => {
            let packet = Ipv4Packet::new_checked(layer2.payload).unwrap();
            assert!(packet.version() == 4 && packet.verify_checksum() && packet.hop_limit() == 64);
            assert_eq!(usize::from(packet.total_len()), layer2.payload.len());
            let message = Icmpv4Packet::new_checked(packet.payload()).unwrap();
            assert!(packet.next_header() == IpProtocol::Icmp && message.verify_checksum());
        }
        IPV6 => {
            let packet = Ipv6Packet::new_checked(layer2.payload).unwrap();
            assert!(packet.version() == 6 && packet.next_header() == IpProtocol::Icmpv6);
            assert_eq!(packet.total_len(), layer2.payload.len());
            let message = Icmpv6Packet::new_checked(packet.payload()).unwrap();
            assert!(message.verify_checksum(&packet.src_addr(), &packet.dst_addr()));
            assert_eq!(packet.hop_limit() == 255, message.msg_type().is_ndisc());
        }
        other => panic!("ethertype {other:x}"),
    }
}
