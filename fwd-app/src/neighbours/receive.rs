//! Frames that the datapath does not forward: answers ARP, neighbour discovery and echo requests; others for us go to the kernel.

use super::arp;
use super::entries::Key;
use super::frame::{ARP, IPV4, IPV6, Layer2};
use super::icmp::{self, Echo};
use super::ip::{ICMPV6, V4, V6};
use super::table::{HeardMac, Overrides};
use super::{Action, Router, ndp};
use crate::datapath::DropReason;
use crate::ports::address::{is_host_v4, is_host_v6};
use crate::ports::address_owner::AddressOwner;
use crate::ports::{InterfaceId, PortRecord, PortTable};
use fib::MacAddr;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Send this answer out of the receiving port.
    Answered(Vec<u8>),
    ForKernel,
    /// A message about a neighbour; its effects are among the actions.
    Neighbour {
        /// Otherwise it counts as [`DropReason::ArpIgnored`], unless the kernel takes it.
        is_of_use: bool,
        kernel_too: KernelToo,
    },
    Limited,
    Ignored(DropReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelToo {
    Never,
    /// A unicast message: only if the kernel has requested this neighbour.
    IfAsked(Key),
    Always,
}

impl<T> Router<T> {
    pub(crate) fn receive(
        &mut self,
        now: Duration,
        on: InterfaceId,
        frame: &[u8],
        out: &mut Vec<Action<T>>,
    ) -> Disposition {
        self.sorted(now, on, frame, out).unwrap_or_else(Disposition::Ignored)
    }

    fn sorted(
        &mut self,
        now: Duration,
        on: InterfaceId,
        frame: &[u8],
        out: &mut Vec<Action<T>>,
    ) -> Result<Disposition, DropReason> {
        let interface = self.ports.interface(on).ok_or(DropReason::NotForUs)?;
        let layer2 = Layer2::parse(frame)?;
        if !interface.is_ours_l2(layer2.destination) {
            return Err(DropReason::NotForUs);
        }
        if !layer2.source.is_station() || layer2.source == interface.mac {
            return Err(DropReason::Martian);
        }
        match layer2.ethertype {
            ARP => {
                let message = arp::ArpMessage::parse(&layer2).ok_or(DropReason::ArpIgnored)?;
                self.arp(now, on, (&layer2, &message), out)
            }
            IPV4 => {
                let packet = V4::parse(layer2.payload, layer2.payload.len())?;
                let is_host = is_host_v4(packet.source) && !self.ports.is_broadcast_in_vrf(on, packet.source);
                let ends = (packet.source.into(), packet.destination.into());
                self.ip(now, on, ends, is_host, |_, interface| icmp::reply_v4(interface, &layer2, &packet))
            }
            IPV6 => {
                let packet = V6::parse(layer2.payload, layer2.payload.len())?;
                if packet.next_header == ICMPV6 && ndp::is_neighbour_message(packet.payload()) {
                    return self.ndp(now, on, (&layer2, &packet), out);
                }
                let ends = (packet.source.into(), packet.destination.into());
                let is_host = is_host_v6(packet.source);
                self.ip(now, on, ends, is_host, |ports, interface| {
                    // An anycast address must not be a source (RFC 4443 4.2).
                    let is_anycast = ports.is_anycast_in_vrf(on, packet.destination);
                    let source = if is_anycast {
                        ports.source_v6(on, packet.source)
                    } else {
                        Some(packet.destination)
                    };
                    source.map_or(Echo::Other, |source| icmp::reply_v6(interface, &layer2, &packet, source))
                })
            }
            // Link protocols such as LLDP and LACP.
            _ => Ok(Disposition::ForKernel),
        }
    }

    /// RFC 826, "Packet Reception": updates known entries, adds hosts that ask for us, answers requests for our addresses.
    fn arp(
        &mut self,
        now: Duration,
        on: InterfaceId,
        (layer2, message): (&Layer2<'_>, &arp::ArpMessage),
        out: &mut Vec<Action<T>>,
    ) -> Result<Disposition, DropReason> {
        let Self { ports, neighbours, .. } = self;
        let interface = ports.interface(on).ok_or(DropReason::NotForUs)?;
        let key = Key::new(on, message.sender.into(), &layer2.tags);
        if message.sender_mac == interface.mac {
            return Err(DropReason::ArpIgnored);
        }
        if interface.has(key.address) {
            return self.defend(now, (layer2, key), message.sender_mac, out);
        }
        let is_to_us = interface.has(message.target.into());
        // RFC 3927 2.5, RFC 5227 2.6: link-local hosts broadcast replies.
        let is_for_us = [interface.mac, MacAddr::BROADCAST].contains(&layer2.destination);
        let is_reply_to_us = !message.is_request && is_to_us && is_for_us;
        let heard = HeardMac {
            mac: Some(message.sender_mac),
            tags: layer2.tags,
            is_solicited: is_reply_to_us,
            overrides: if message.is_gratuitous() { Overrides::Always } else { Overrides::UnlessRecent },
            may_create: message.is_request && is_to_us && interface.is_on_link(key.address),
        };
        // The sender of a probe is 0.0.0.0.
        let is_of_use = !message.sender.is_unspecified() && neighbours.heard(now, key, &heard, out);
        if message.is_request && is_to_us {
            return Ok(Disposition::Answered(arp::reply(interface, layer2, message)));
        }
        let is_to_all = layer2.destination != interface.mac;
        let kernel_too = match message.is_gratuitous() {
            true if is_to_all => KernelToo::Always,
            is_gratuitous if is_gratuitous || is_reply_to_us => KernelToo::IfAsked(key),
            _ => KernelToo::Never,
        };
        about_neighbour(is_of_use || is_reply_to_us, kernel_too)
    }

    /// Handles an IP packet. `is_host` says whether the source is a single host's; `reply` answers an echo request.
    fn ip(
        &mut self,
        now: Duration,
        on: InterfaceId,
        (source, destination): (IpAddr, IpAddr),
        is_host: bool,
        reply: impl FnOnce(&PortTable, &PortRecord) -> Echo,
    ) -> Result<Disposition, DropReason> {
        let Self { ports, echoes, .. } = self;
        let interface = ports.interface(on).ok_or(DropReason::NotForUs)?;
        let is_to_one = is_to_one(ports.classify(interface, destination))?;
        // A host without an address sends from 0.0.0.0 (RFC 1122 3.2.1.3 a), or from `::` while its address is tentative (RFC 3590 4).
        let is_new_host = source.is_unspecified() && !is_to_one;
        if !(is_host || is_new_host) || ports.is_address_in_vrf(on, source) {
            return Err(DropReason::Martian);
        }
        if !is_to_one {
            return Ok(Disposition::ForKernel);
        }
        match reply(ports, interface) {
            Echo::Reply(_) if !echoes.allows(now, source) => Ok(Disposition::Limited),
            Echo::Reply(frame) => Ok(Disposition::Answered(frame)),
            Echo::Other => Ok(Disposition::ForKernel),
            Echo::Ignored(reason) => Err(reason),
        }
    }

    fn ndp(
        &mut self,
        now: Duration,
        on: InterfaceId,
        (layer2, packet): (&Layer2<'_>, &V6<'_>),
        out: &mut Vec<Action<T>>,
    ) -> Result<Disposition, DropReason> {
        let Self { ports, neighbours, .. } = self;
        let interface = ports.interface(on).ok_or(DropReason::NotForUs)?;
        is_to_one(ports.classify(interface, packet.destination.into()))?;
        // An anycast address has no duplicate address detection (RFC 4862 5.4), which comes from `::`.
        let is_anycast = |target: Ipv6Addr| {
            !packet.source.is_unspecified() && interface.anycast().any(|of_link| of_link == target)
        };
        match ndp::NdpMessage::parse(packet).ok_or(DropReason::ArpIgnored)? {
            ndp::NdpMessage::Solicitation { target, .. }
                if !interface.has(target.into()) && !is_anycast(target) =>
            {
                Err(DropReason::ArpIgnored)
            }
            ndp::NdpMessage::Solicitation { target, mac } => {
                let key = Key::new(on, packet.source.into(), &layer2.tags);
                if interface.has(key.address) {
                    return self.defend(now, (layer2, key), mac.unwrap_or(layer2.source), out);
                }
                let may_create = interface.is_on_link(key.address);
                let (tags, overrides) = (layer2.tags, Overrides::Always);
                let heard = HeardMac { mac, tags, is_solicited: false, overrides, may_create };
                // A node without an address sends from `::` and gives no MAC.
                if mac.is_some() {
                    neighbours.heard(now, key, &heard, out);
                }
                Ok(Disposition::Answered(ndp::advertisement(interface, layer2, packet, target)))
            }
            ndp::NdpMessage::Advertisement { target, mac, is_solicited, overrides } => {
                let key = Key::new(on, target.into(), &layer2.tags);
                if interface.has(key.address) {
                    let mac = mac.unwrap_or(layer2.source);
                    let is_own = mac == interface.mac;
                    return if is_own {
                        Err(DropReason::ArpIgnored)
                    } else {
                        self.defend(now, (layer2, key), mac, out)
                    };
                }
                let overrides = if overrides { Overrides::Always } else { Overrides::Never };
                let heard = HeardMac { mac, tags: layer2.tags, is_solicited, overrides, may_create: false };
                let is_of_use = neighbours.heard(now, key, &heard, out);
                let is_to_us = layer2.destination == interface.mac;
                let kernel_too = match is_to_us {
                    true => KernelToo::IfAsked(key),
                    false if packet.destination.is_multicast() => KernelToo::Always,
                    false => KernelToo::Never,
                };
                about_neighbour(is_of_use || is_to_us, kernel_too)
            }
        }
    }

    /// Answers another station that uses our address with an announcement, within the rate of defences.
    fn defend(
        &mut self,
        now: Duration,
        (layer2, key): (&Layer2<'_>, Key),
        mac: fib::MacAddr,
        out: &mut Vec<Action<T>>,
    ) -> Result<Disposition, DropReason> {
        if !self.defends(now, key, mac, out) {
            return Err(DropReason::ArpIgnored);
        }
        let interface: &PortRecord = self.ports.interface(key.interface).ok_or(DropReason::NotForUs)?;
        Ok(Disposition::Answered(match key.address {
            IpAddr::V4(address) => arp::announcement(interface, address, layer2.tags),
            IpAddr::V6(address) => ndp::announcement(interface, address, layer2.tags),
        }))
    }
}

/// Whether the destination is our unicast address, rather than a broadcast address or a group of ours.
fn is_to_one(whose: AddressOwner) -> Result<bool, DropReason> {
    match whose {
        AddressOwner::Other => Err(DropReason::NotForUs),
        AddressOwner::OtherGroup => Err(DropReason::Multicast),
        AddressOwner::Ours => Ok(true),
        AddressOwner::Broadcast | AddressOwner::Group => Ok(false),
    }
}

fn about_neighbour(is_of_use: bool, kernel_too: KernelToo) -> Result<Disposition, DropReason> {
    let is_any = is_of_use || kernel_too != KernelToo::Never;
    if is_any { Ok(Disposition::Neighbour { is_of_use, kernel_too }) } else { Err(DropReason::ArpIgnored) }
}
