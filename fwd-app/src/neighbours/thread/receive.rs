//! Handles punts: each packet is answered, queued for a neighbour, refused with an ICMP error, or passed to the kernel.

use super::{BURST, RouterLoop, Waiting};
use crate::datapath::drop_reason::PuntClass;
use crate::datapath::punt::{PuntCause, PuntTag};
use crate::datapath::watch::PacketOrigin;
use crate::datapath::{DropReason, check};
use crate::neighbours::ErrorAnswer;
use crate::neighbours::entries::Key;
use crate::neighbours::frame::{Layer2, Tags};
use crate::neighbours::icmp_errors::Cause;
use crate::neighbours::receive::{Disposition, KernelToo};
use crate::ports::InterfaceId;
use crate::ports::taps::Sent;
use crate::topology::punts::RING_SLOTS;
use dpdk_ffi::Mbuf;
use fib::NextHopId;
use std::net::IpAddr;

impl RouterLoop {
    /// Handles all punts of the resolution class, so that no answer is still in the ring when its neighbour is given up, and a burst of
    /// each other class. Returns whether it found any.
    pub(super) fn receive(&mut self) -> bool {
        let mut any = false;
        for class in PuntClass::ALL {
            let turns = if class == PuntClass::Resolution { RING_SLOTS as usize / BURST } else { 1 };
            any |= (0..turns).take_while(|_| self.receive_burst(class)).count() > 0;
        }
        any
    }

    fn receive_burst(&mut self, class: PuntClass) -> bool {
        if self.from[class as usize].dequeue_burst(&mut self.came) == 0 {
            return false;
        }
        let mut packets: Vec<Mbuf> = std::iter::from_fn(|| self.came.pop()).collect();
        // `pop` takes from the end.
        packets.reverse();
        for packet in packets {
            let tag = PuntTag::from_tag(packet.tag());
            match tag.cause {
                PuntCause::Resolution | PuntCause::ForUs => self.for_us(tag, &packet),
                PuntCause::NoNeighbour => self.resolve(Waiting { packet, tag }),
                PuntCause::TtlExpired => self.refuse(tag, &packet, Cause::TimeExceeded),
                PuntCause::NoRoute => self.refuse(tag, &packet, Cause::NoRoute),
                PuntCause::Unreachable => self.refuse(tag, &packet, Cause::Unreachable),
                PuntCause::Prohibited => self.refuse(tag, &packet, Cause::Prohibited),
                PuntCause::MtuExceeded => {
                    let mtu_bytes = u16::try_from(tag.value).unwrap_or(u16::MAX);
                    self.refuse(tag, &packet, Cause::TooBig { mtu_bytes });
                }
            }
            self.act();
        }
        true
    }

    fn for_us(&mut self, tag: PuntTag, packet: &Mbuf) {
        let (on, now) = (InterfaceId(tag.port), self.now());
        let mut whole = Vec::new();
        let frame = if packet.segments() == 1 {
            packet.data()
        } else {
            packet.copy_to(&mut whole);
            &whole
        };
        match self.router.receive(now, on, frame, &mut self.actions) {
            Disposition::Answered(answer) => {
                self.counters.punted += 1;
                self.send(tag.port, &answer);
            }
            Disposition::Neighbour { is_of_use, kernel_too } => {
                let sent = match kernel_too {
                    KernelToo::IfAsked(key) if self.to_kernel.takes_answer(now, key) => {
                        self.taps.send(on, frame)
                    }
                    KernelToo::Always => self.give_kernel(on, frame),
                    KernelToo::IfAsked(_) | KernelToo::Never => Sent::NoTap,
                };
                let is_taken = sent == Sent::Taken;
                if is_of_use || is_taken {
                    self.counters.punted += 1;
                } else {
                    self.drop_packet(tag, packet, DropReason::ArpIgnored);
                }
            }
            Disposition::Limited => {
                self.counters.punted += 1;
                self.counters.icmp_limited += 1;
            }
            Disposition::Ignored(reason) => self.drop_packet(tag, packet, reason),
            Disposition::ForKernel => match self.give_kernel(on, frame) {
                Sent::Taken => self.counters.punted += 1,
                Sent::Refused => self.drop_packet(tag, packet, DropReason::PuntFull),
                Sent::NoTap => self.drop_packet(tag, packet, DropReason::NotForUs),
            },
        }
    }

    /// Drops a packet, and sends its sender an ICMP error if allowed.
    pub(super) fn refuse(&mut self, tag: PuntTag, packet: &Mbuf, cause: Cause) {
        self.drop_packet(tag, packet, tag.cause.reason());
        self.tell_sender(tag, packet, cause);
    }

    pub(super) fn drop_packet(&mut self, tag: PuntTag, packet: &Mbuf, reason: DropReason) {
        self.counters.drops.add(reason, 1);
        if self.watch.is_on() {
            let vrf = self.ports.load().vrf_of(tag.port);
            let origin = PacketOrigin::new(tag.input.into(), vrf);
            self.watch.dropped((packet.data(), packet.pkt_len()), origin, reason);
        }
    }

    pub(super) fn tell_sender(&mut self, tag: PuntTag, packet: &Mbuf, cause: Cause) {
        let (now, on) = (self.now(), InterfaceId(tag.port));
        let frame = (packet.data(), packet.pkt_len() as usize);
        match self.router.icmp_error(now, on, frame, cause) {
            ErrorAnswer::Send(frame) => self.send(tag.port, &frame),
            ErrorAnswer::Limited => self.counters.icmp_limited += 1,
            ErrorAnswer::Not(_) => {}
        }
    }

    pub(super) fn resolve(&mut self, waiting: Waiting) {
        let (now, packet) = (self.now(), &waiting.packet);
        let found = destination(packet).and_then(|destination| {
            let vrf = self.ports.load().vrf_of(waiting.tag.port);
            let table = self.egress.get(vrf)?.load();
            let (address, port) = table.wanted(NextHopId::from_answer(waiting.tag.value), destination)?;
            self.key(vrf, address, port)
        });
        let tags = Layer2::parse(packet.data()).map_or(Tags::NONE, |layer2| layer2.tags);
        match found {
            Some(plain) => {
                let key = Key { vlans: tags.vlans(), ..plain };
                self.router.resolve(now, key, waiting, tags, &mut self.actions);
            }
            None => self.drop_packet(waiting.tag, &waiting.packet, DropReason::NoNeighbour),
        }
    }
}

fn destination(packet: &Mbuf) -> Option<IpAddr> {
    let checked = check::check(packet.data(), packet.pkt_len()).ok()?;
    Some(match checked.destination {
        check::Destination::V4(address) => IpAddr::V4(address.into()),
        check::Destination::V6(address) => IpAddr::V6(address.into()),
    })
}
