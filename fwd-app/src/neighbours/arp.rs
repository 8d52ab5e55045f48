//! ARP messages (RFC 826), also for address conflicts (RFC 5227).

use super::frame::{ARP, Envelope, Layer2, Tags};
use crate::ports::PortRecord;
use crate::ports::address::is_host_v4;
use fib::MacAddr;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};
use std::net::Ipv4Addr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArpMessage {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: MacAddr,
    /// The sender's address; 0.0.0.0 in a probe (RFC 5227 2.1.1).
    pub(crate) sender: Ipv4Addr,
    /// The requested address; in a reply, the requester's.
    pub(crate) target: Ipv4Addr,
}

impl ArpMessage {
    /// Reads an ARP message for Ethernet and IPv4. Returns `None` if it is too short, neither request nor reply, from a MAC
    /// that no station has, or for an address that no host has.
    pub(crate) fn parse(frame: &Layer2<'_>) -> Option<Self> {
        let packet = ArpPacket::new_checked(frame.payload).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr: sender,
            target_protocol_addr: target,
            ..
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let is_request = match operation {
            ArpOperation::Request => true,
            ArpOperation::Reply => false,
            ArpOperation::Unknown(_) => return None,
        };
        let sender_mac = MacAddr(source_hardware_addr.0);
        let is_probe = is_request && sender.is_unspecified();
        let is_valid = sender_mac.is_station() && (is_host_v4(sender) || is_probe) && is_host_v4(target);
        is_valid.then_some(Self { is_request, sender_mac, sender, target })
    }

    pub(crate) fn is_gratuitous(&self) -> bool {
        self.sender == self.target
    }
}

/// Requests `target`: by broadcast, or as a probe to the MAC `known`.
pub(crate) fn request(
    interface: &PortRecord,
    source: Ipv4Addr,
    target: Ipv4Addr,
    known: Option<MacAddr>,
    tags: Tags,
) -> Vec<u8> {
    let envelope = Envelope { destination: known.unwrap_or(MacAddr::BROADCAST), source: interface.mac, tags };
    write(envelope, ArpOperation::Request, source, (known.unwrap_or_default(), target))
}

/// A broadcast announcement of our address (RFC 5227 2.3): a request whose sender is its target.
pub(crate) fn announcement(interface: &PortRecord, address: Ipv4Addr, tags: Tags) -> Vec<u8> {
    request(interface, address, address, None, tags)
}

pub(crate) fn reply(interface: &PortRecord, asked: &Layer2<'_>, request: &ArpMessage) -> Vec<u8> {
    let envelope = Envelope { destination: request.sender_mac, ..asked.back(interface.mac) };
    write(envelope, ArpOperation::Reply, request.target, (request.sender_mac, request.sender))
}

fn write(
    envelope: Envelope,
    operation: ArpOperation,
    sender: Ipv4Addr,
    target: (MacAddr, Ipv4Addr),
) -> Vec<u8> {
    let message = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(envelope.source.0),
        source_protocol_addr: sender,
        target_hardware_addr: EthernetAddress(target.0.0),
        target_protocol_addr: target.1,
    };
    envelope.frame(ARP, message.buffer_len(), |bytes| message.emit(&mut ArpPacket::new_unchecked(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::record::tests::interface;

    const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

    fn parse(frame: &[u8]) -> Option<ArpMessage> {
        ArpMessage::parse(&Layer2::parse(frame).unwrap())
    }

    #[test]
    fn a_request_and_its_reply() {
        let (asking, asked) = (interface(1, &["192.0.2.1/24"]), interface(2, &["192.0.2.9/24"]));
        let frame = request(&asking, OURS, OTHER, None, Tags::NONE);
        #[rustfmt::skip]
        let bytes = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0xf0, 0, 0, 0, 1, 8, 6,
            0, 1, 8, 0, 6, 4, 0, 1, 2, 0xf0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9,
        ];
        assert_eq!(frame, bytes);
        let layer2 = Layer2::parse(&frame).unwrap();
        let message = ArpMessage::parse(&layer2).unwrap();
        assert_eq!(
            message,
            ArpMessage { is_request: true, sender_mac: asking.mac, sender: OURS, target: OTHER }
        );
        let answer = reply(&asked, &layer2, &message);
        let read = parse(&answer).unwrap();
        assert_eq!(
            read,
            ArpMessage { is_request: false, sender_mac: asked.mac, sender: OTHER, target: OURS }
        );
        assert_eq!((&answer[..6], &answer[6..12]), (&asking.mac.0[..], &asked.mac.0[..]));
        let probe = request(&asking, OURS, OTHER, Some(asked.mac), Tags::NONE);
        assert_eq!((&probe[..6], &probe[32..38]), (&asked.mac.0[..], &asked.mac.0[..]));
        assert!(parse(&announcement(&asking, OURS, Tags::NONE)).unwrap().is_gratuitous());
    }

    #[test]
    fn what_is_not_valid() {
        let good = request(&interface(1, &[]), OURS, OTHER, None, Tags::NONE);
        for cut in 14..good.len() {
            assert_eq!(parse(&good[..cut]), None, "cut at {cut}");
        }
        assert!(parse(&[&good[..], &[0; 18]].concat()).is_some(), "padded");
        for (what, at, bytes) in [
            ("hardware type", 14, &[0, 6][..]),
            ("protocol type", 16, &[0x86, 0xdd]),
            ("hardware length", 18, &[8]),
            ("protocol length", 19, &[16]),
            ("operation", 20, &[0, 3]),
            ("operation 0", 20, &[0, 0]),
            ("broadcast sender MAC", 22, &[0xff; 6]),
            ("multicast sender MAC", 22, &[1]),
            ("zero sender MAC", 22, &[0; 6]),
            ("multicast sender", 28, &[224, 0, 0, 1]),
            ("broadcast sender", 28, &[255; 4]),
            ("loopback sender", 28, &[127, 0, 0, 1]),
            ("multicast target", 38, &[224, 0, 0, 1]),
            ("target 0.0.0.0", 38, &[0; 4]),
        ] {
            let mut frame = good.clone();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(parse(&frame), None, "{what}");
        }
        let mut probe = good.clone();
        probe[28..32].fill(0);
        assert!(parse(&probe).is_some());
        probe[21] = 2;
        assert_eq!(parse(&probe), None, "a reply from 0.0.0.0");
    }
}
