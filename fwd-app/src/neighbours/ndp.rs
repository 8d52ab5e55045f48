//! Neighbour solicitations and advertisements (RFC 4861).
//!
//! Duplicate address detection (RFC 4862 5.4) is simplified. Configured addresses are in use from the start, never tentative. When an
//! interface comes up, each address is solicited once from `::` and advertised once. A claim by another node is reported and answered, and
//! the address is kept.

use super::frame::{Envelope, Layer2, Tags};
use super::ip::{V6, header_v6, icmp_v6, sum_v6};
use crate::ports::PortRecord;
use crate::ports::address::{ALL_NODES, group_mac, is_host_v6, is_solicited_node, solicited_node};
use fib::MacAddr;
use smoltcp::wire::{
    EthernetAddress, Icmpv6Message, Icmpv6Packet, NdiscNeighborFlags, NdiscOption, NdiscOptionType, NdiscRepr,
};
use std::net::Ipv6Addr;

/// A forwarded message has a lower hop limit.
const HOP_LIMIT: u8 = 255;
/// Without options.
const MESSAGE_BYTES: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NdpMessage {
    Solicitation {
        target: Ipv6Addr,
        /// The sender's MAC, if given.
        mac: Option<MacAddr>,
    },
    Advertisement {
        target: Ipv6Addr,
        /// The MAC of `target`, if given.
        mac: Option<MacAddr>,
        is_solicited: bool,
        overrides: bool,
    },
}

pub(crate) fn is_neighbour_message(icmp: &[u8]) -> bool {
    let kind = icmp.first().map(|kind| Icmpv6Message::from(*kind));
    matches!(kind, Some(Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert))
}

impl NdpMessage {
    /// Reads a message without extension headers; `None` if it fails RFC 4861 7.1, or if its MAC is not a station's.
    pub(crate) fn parse(packet: &V6<'_>) -> Option<Self> {
        let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
        let (kind, target) = (message.msg_type(), message.payload().len());
        // RFC 4861 7.1: all options have a length above zero, within a message of at least 24 bytes.
        let has_target = target <= packet.payload().len().checked_sub(MESSAGE_BYTES)?;
        let is_intact = sum_v6(packet.source, packet.destination, packet.payload()) == !0;
        if packet.hop_limit != HOP_LIMIT || message.msg_code() != 0 || !has_target || !is_intact {
            return None;
        }
        let target = message.target_addr();
        if !is_host_v6(target) {
            return None;
        }
        match kind {
            Icmpv6Message::NeighborSolicit => {
                let mac = option(message.payload(), NdiscOptionType::SourceLinkLayerAddr)?;
                let is_detection = packet.source.is_unspecified();
                let may_be = if is_detection {
                    is_solicited_node(packet.destination) && mac.is_none()
                } else {
                    is_host_v6(packet.source)
                };
                may_be.then_some(Self::Solicitation { target, mac })
            }
            Icmpv6Message::NeighborAdvert => {
                let mac = option(message.payload(), NdiscOptionType::TargetLinkLayerAddr)?;
                let flags = message.neighbor_flags();
                let is_solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
                let overrides = flags.contains(NdiscNeighborFlags::OVERRIDE);
                let may_be =
                    is_host_v6(packet.source) && !(packet.destination.is_multicast() && is_solicited);
                may_be.then_some(Self::Advertisement { target, mac, is_solicited, overrides })
            }
            _ => None,
        }
    }
}

/// The MAC in the option `wanted`: `Some(None)` without that option, `None` if the options are invalid.
fn option(mut options: &[u8], wanted: NdiscOptionType) -> Option<Option<MacAddr>> {
    let mut found = None;
    while let Some(&[kind, units]) = options.first_chunk() {
        let (option, rest) = options.split_at_checked(usize::from(units) * 8).filter(|_| units > 0)?;
        if NdiscOptionType::from(kind) == wanted {
            let mac = NdiscOption::new_checked(option).ok()?.link_layer_addr();
            let mac = MacAddr(mac.as_bytes().try_into().ok()?);
            found = Some(mac).filter(|mac| mac.is_station());
            found?;
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}

/// Solicits `target` by its solicited-node group, or as a probe to the MAC `known`.
pub(crate) fn solicitation(
    interface: &PortRecord,
    source: Ipv6Addr,
    target: Ipv6Addr,
    known: Option<MacAddr>,
    tags: Tags,
) -> Vec<u8> {
    let group = solicited_node(target);
    let (mac, destination) = known.map_or((group_mac(group), group), |mac| (mac, target));
    // RFC 4861 4.3: no option when the source is unspecified.
    let lladdr = (!source.is_unspecified()).then(|| EthernetAddress(interface.mac.0).into());
    let envelope = Envelope { destination: mac, source: interface.mac, tags };
    write(&envelope, (source, destination), NdiscRepr::NeighborSolicit { target_addr: target, lladdr })
}

/// Duplicate address detection (RFC 4862 5.4.2).
pub(crate) fn detection(interface: &PortRecord, address: Ipv6Addr, tags: Tags) -> Vec<u8> {
    solicitation(interface, Ipv6Addr::UNSPECIFIED, address, None, tags)
}

/// Answers a solicitation (RFC 4861 7.2.4), also for an anycast address, as other routers do (7.2.7). Without a source: to all nodes.
pub(crate) fn advertisement(
    interface: &PortRecord,
    asked: &Layer2<'_>,
    packet: &V6<'_>,
    target: Ipv6Addr,
) -> Vec<u8> {
    if packet.source.is_unspecified() {
        return announcement(interface, target, asked.tags);
    }
    let (source, overrides) = if interface.has(target.into()) {
        (target, NdiscNeighborFlags::OVERRIDE)
    } else {
        (interface.link_local(), NdiscNeighborFlags::empty())
    };
    let flags = NdiscNeighborFlags::SOLICITED | overrides;
    advertise(interface, &asked.back(interface.mac), (source, packet.source), target, flags)
}

/// Advertises our address to all nodes (RFC 4861 7.2.6).
pub(crate) fn announcement(interface: &PortRecord, address: Ipv6Addr, tags: Tags) -> Vec<u8> {
    let envelope = Envelope { destination: group_mac(ALL_NODES), source: interface.mac, tags };
    advertise(interface, &envelope, (address, ALL_NODES), address, NdiscNeighborFlags::OVERRIDE)
}

fn advertise(
    interface: &PortRecord,
    envelope: &Envelope,
    addresses: (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    flags: NdiscNeighborFlags,
) -> Vec<u8> {
    let message = NdiscRepr::NeighborAdvert {
        flags: flags | NdiscNeighborFlags::ROUTER,
        target_addr: target,
        lladdr: Some(EthernetAddress(interface.mac.0).into()),
    };
    write(envelope, addresses, message)
}

fn write(envelope: &Envelope, addresses: (Ipv6Addr, Ipv6Addr), message: NdiscRepr<'_>) -> Vec<u8> {
    let header = header_v6(addresses.0, addresses.1, message.buffer_len(), HOP_LIMIT);
    icmp_v6(envelope, header, |bytes| message.emit(&mut Icmpv6Packet::new_unchecked(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::record::tests::interface;

    const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

    fn parse(frame: &[u8]) -> Option<NdpMessage> {
        let mut frame = frame.to_vec();
        frame[56..58].fill(0);
        let packet = V6::parse(&frame[14..], frame.len() - 14).ok()?;
        let sum = !sum_v6(packet.source, packet.destination, packet.payload());
        frame[56..58].copy_from_slice(&sum.to_be_bytes());
        NdpMessage::parse(&V6::parse(&frame[14..], frame.len() - 14).ok()?)
    }

    #[test]
    fn an_option_without_a_length_ends_a_message() {
        let wanted = NdiscOptionType::TargetLinkLayerAddr;
        assert_eq!(option(&[253, 1, 0, 0, 0, 0, 0, 0], wanted), Some(None));
        assert_eq!(option(&[253, 0, 0, 0, 0, 0, 0, 0], wanted), None);
    }

    #[test]
    fn a_solicitation_and_its_answer() {
        let (asking, asked) = (interface(1, &["2001:db8::1/64"]), interface(2, &["2001:db8::12:3456/64"]));
        let frame = solicitation(&asking, OURS, OTHER, None, Tags::NONE);
        #[rustfmt::skip]
        let bytes = [
            0x33, 0x33, 0xff, 0x12, 0x34, 0x56, 2, 0xf0, 0, 0, 0, 1, 0x86, 0xdd,
            0x6c, 0, 0, 0, 0, 32, 58, 255,
            0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56,
            135, 0, 0, 0, 0, 0, 0, 0,
            0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
            1, 1, 2, 0xf0, 0, 0, 0, 1,
        ];
        let mut without_sum = frame.clone();
        without_sum[56..58].fill(0);
        assert_eq!(without_sum, bytes);
        let layer2 = Layer2::parse(&frame).unwrap();
        let packet = V6::parse(layer2.payload, layer2.payload.len()).unwrap();
        let message = NdpMessage::parse(&packet).unwrap();
        assert_eq!(message, NdpMessage::Solicitation { target: OTHER, mac: Some(asking.mac) });
        let answer = advertisement(&asked, &layer2, &packet, OTHER);
        let mac = Some(asked.mac);
        let wanted = NdpMessage::Advertisement { target: OTHER, mac, is_solicited: true, overrides: true };
        assert_eq!(parse(&answer), Some(wanted));
        assert_eq!((&answer[..6], answer[58]), (&asking.mac.0[..], 0xe0));
    }

    #[test]
    fn detection_is_answered_to_all_nodes() {
        let (asking, asked) = (interface(1, &[]), interface(2, &["2001:db8::12:3456/64"]));
        let frame = detection(&asking, OTHER, Tags::NONE);
        assert_eq!(parse(&frame), Some(NdpMessage::Solicitation { target: OTHER, mac: None }));
        let layer2 = Layer2::parse(&frame).unwrap();
        let packet = V6::parse(layer2.payload, layer2.payload.len()).unwrap();
        let answer = advertisement(&asked, &layer2, &packet, OTHER);
        assert_eq!((&answer[..6], &answer[38..54]), (&group_mac(ALL_NODES).0[..], &ALL_NODES.octets()[..]));
        let mac = Some(asked.mac);
        let wanted = NdpMessage::Advertisement { target: OTHER, mac, is_solicited: false, overrides: true };
        assert_eq!(parse(&answer), Some(wanted));
    }

    #[test]
    fn what_is_not_valid() {
        let asking = interface(1, &["2001:db8::1/64"]);
        let solicitation = solicitation(&asking, OURS, OTHER, None, Tags::NONE);
        let detection = detection(&asking, OTHER, Tags::NONE);
        let announcement = announcement(&asking, OURS, Tags::NONE);
        let edited = |frame: &[u8], at: usize, bytes: &[u8]| {
            let mut frame = frame.to_vec();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame
        };
        let group = ALL_NODES.octets();
        for (what, frame) in [
            ("hop limit", edited(&solicitation, 21, &[254])),
            ("code", edited(&solicitation, 55, &[1])),
            ("type", edited(&solicitation, 54, &[133])),
            ("multicast target", edited(&solicitation, 62, &group)),
            ("multicast source", edited(&solicitation, 22, &group)),
            ("option of length 0", edited(&solicitation, 79, &[0])),
            ("option beyond the end", edited(&solicitation, 79, &[2])),
            ("multicast MAC", edited(&solicitation, 80, &[1])),
            ("detection not to a solicited-node group", edited(&detection, 38, &group)),
            ("detection with a MAC", edited(&solicitation, 22, &[0; 16])),
            ("solicited and multicast", edited(&announcement, 58, &[0xe0])),
            ("advertisement from ::", edited(&announcement, 22, &[0; 16])),
            ("too short", edited(&detection[..77], 18, &[0, 23])),
        ] {
            assert_eq!(parse(&frame), None, "{what}");
        }
        assert!(parse(&edited(&announcement, 58, &[0])).is_some());
        let other_option = edited(&solicitation, 78, &[14]);
        assert_eq!(parse(&other_option), Some(NdpMessage::Solicitation { target: OTHER, mac: None }));
        let wrong_sum = edited(&solicitation, 56, &[solicitation[56] ^ 1]);
        assert_eq!(NdpMessage::parse(&V6::parse(&wrong_sum[14..], 72).unwrap()), None);
    }
}
