//! Punts: packets that the datapath hands to the router instead of forwarding or dropping them.
//!
//! Each port with addresses has [`PuntAddresses`], which say what on it is for this router. A batch from such a port has a
//! [`PuntMarker`], which marks the punts. A punt goes to one more egress port, whose index is the number of ports. What it is lies in the tag of
//! its mbuf, so that nothing is allocated. Its bytes stay as received.
//!
//! Each [`PuntClass`] has a ring, and each RX queue a part of every ring in a period: whatever comes by one port, what resolves
//! neighbours on the others gets through. Of those that only cause an ICMP error, every cause has a part of its own.
//!
//! Nothing here is reached for a packet that the kernels pass and that a next hop sends.

use super::DropReason;
use super::check::{IPV4, IPV4_BYTES, IPV6, IPV6_BYTES, layer2};
use super::limit::Limit;
use super::punt_class::{Lost, PuntClass};
use arc_swap::{ArcSwap, Cache};
use fib::MacAddr;
use lpm_core::drops::Witness;
use std::sync::Arc;

/// Ethertype of ARP.
const ARP: u16 = 0x0806;
/// The first 104 bits of solicited-node groups (RFC 4291 2.7.1).
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000 >> 24;
/// Punts of one cause of ICMP errors that a batch hands over in a period, at most.
const ERRORS_MAX: u32 = 32;
/// Punts of a class, or of a cause of ICMP errors, that a batch may hand over in a period however many batches there are.
const ANY_MIN: u32 = 8;
/// Types of ICMPv6 messages: router and neighbour solicitations and advertisements, redirects (RFC 4861 4).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Why a packet is a punt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PuntCause {
    /// It is ARP or neighbour discovery.
    Resolution,
    /// It is for this router.
    ForUs,
    /// Its TTL or hop limit has run out.
    TtlExpired,
    /// No route covers its destination.
    NoRoute,
    /// Its route says that the destination is unreachable.
    Unreachable,
    /// Its route says that the destination is prohibited.
    Prohibited,
    /// The MAC of its next hop is unknown.
    NoNeighbour,
    /// It is longer than the MTU of the port it should leave by.
    MtuExceeded,
}

impl PuntCause {
    /// All of them, in order of their discriminants.
    pub(crate) const ALL: [Self; 8] = [
        Self::Resolution,
        Self::ForUs,
        Self::TtlExpired,
        Self::NoRoute,
        Self::Unreachable,
        Self::Prohibited,
        Self::NoNeighbour,
        Self::MtuExceeded,
    ];

    /// The punt in place of a drop, if the reason is one that the router deals with.
    pub(crate) const fn of(reason: DropReason) -> Option<Self> {
        match reason {
            DropReason::TtlExpired => Some(Self::TtlExpired),
            DropReason::NoRoute => Some(Self::NoRoute),
            DropReason::Unreachable => Some(Self::Unreachable),
            DropReason::Prohibited => Some(Self::Prohibited),
            DropReason::NoNeighbour => Some(Self::NoNeighbour),
            DropReason::MtuExceeded => Some(Self::MtuExceeded),
            _ => None,
        }
    }

    /// What a packet for this router is, by its first bytes.
    pub(crate) fn for_us(head: &[u8]) -> Self {
        let is_resolution = match layer2(head) {
            Ok((ARP, _)) => true,
            Ok((IPV6, at)) => {
                let (next_header, kind) = (head.get(at + 6), head.get(at + IPV6_BYTES));
                next_header == Some(&58) && kind.is_some_and(|kind| DISCOVERY.contains(kind))
            }
            _ => false,
        };
        if is_resolution { Self::Resolution } else { Self::ForUs }
    }

    /// Its class.
    pub(crate) const fn class(self) -> PuntClass {
        match self {
            Self::Resolution => PuntClass::Resolution,
            Self::ForUs => PuntClass::Local,
            _ => PuntClass::Errors,
        }
    }

    /// The reason under which it is dropped when it cannot be handed over.
    pub(crate) const fn reason(self) -> DropReason {
        match self {
            Self::Resolution | Self::ForUs => DropReason::PuntFull,
            Self::TtlExpired => DropReason::TtlExpired,
            Self::NoRoute => DropReason::NoRoute,
            Self::Unreachable => DropReason::Unreachable,
            Self::Prohibited => DropReason::Prohibited,
            Self::NoNeighbour => DropReason::NoNeighbour,
            Self::MtuExceeded => DropReason::MtuExceeded,
        }
    }

    /// The name in traces: that of the drop reason, if there is one.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Resolution | Self::ForUs => "for_us",
            _ => self.reason().name(),
        }
    }
}

/// What the tag of a punt's mbuf says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PuntTag {
    /// Why it is one.
    pub(crate) cause: PuntCause,
    /// The port it came by.
    pub(crate) port: u16,
    /// The number of the RX queue it came from, counted over all ports.
    pub(crate) input: u16,
    /// Without a neighbour: its next hop. Above the MTU: that MTU. 24 bits.
    pub(crate) value: u32,
}

impl PuntTag {
    /// As a tag.
    pub(crate) fn tag(self) -> u64 {
        let value = u64::from(self.value) & 0xff_ffff;
        u64::from(self.input) << 48 | value << 24 | u64::from(self.port) << 8 | self.cause as u64
    }

    /// Of a tag made by [`Self::tag`].
    #[expect(clippy::cast_possible_truncation, reason = "the fields of a tag")]
    pub(crate) fn of(tag: u64) -> Self {
        let cause = PuntCause::ALL.get(usize::from(tag as u8)).copied().unwrap_or(PuntCause::ForUs);
        Self {
            cause,
            port: (tag >> 8) as u16,
            input: (tag >> 48) as u16,
            value: (tag >> 24) as u32 & 0xff_ffff,
        }
    }
}

/// What is for this router on one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PuntAddresses {
    /// The port's index.
    pub(crate) port: u16,
    /// Its MAC.
    pub(crate) mac: MacAddr,
    /// IPv4 addresses of all interfaces, and the broadcast addresses of this link.
    pub(crate) v4: Vec<u32>,
    /// IPv6 addresses of all interfaces, but link-local ones of this link alone.
    pub(crate) v6: Vec<u128>,
    /// Solicited-node groups of this link's addresses.
    pub(crate) groups: Vec<u128>,
    /// Tells tests who drops it.
    pub(crate) witness: Witness,
}

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntVerdict {
    /// This router's.
    ForUs,
    /// Another station's.
    Others,
    /// To be forwarded, if it passes all checks.
    Forward,
}

impl PuntAddresses {
    /// Its memory, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let lists = size_of_val(&*self.v4) + size_of_val(&*self.v6) + size_of_val(&*self.groups);
        (size_of::<Self>() + lists) as u64
    }

    /// Whose a frame is that begins with `head`.
    pub(crate) fn whose(&self, head: &[u8]) -> PuntVerdict {
        let (Ok((ethertype, at)), Some(mac)) = (layer2(head), head.first_chunk::<6>()) else {
            return PuntVerdict::Forward;
        };
        let (is_to_us, is_to_many) = (*mac == self.mac.0, mac[0] & 1 == 1);
        let packet = &head[at..];
        let (is_ours, is_group) = match ethertype {
            ARP => (true, false),
            IPV4 => self.v4(packet),
            IPV6 => self.v6(packet),
            // LLDP, LACP, IS-IS.
            _ => (MacAddr(*mac).is_link_group(), true),
        };
        match (is_to_us || is_to_many, is_ours) {
            (true, true) => PuntVerdict::ForUs,
            (false, _) => PuntVerdict::Others,
            // What is sent to all stations of a link is forwarded by none (RFC 1812 5.3.4). Other groups are dropped as such.
            (true, false) if is_to_many && !is_group => PuntVerdict::Others,
            (true, false) => PuntVerdict::Forward,
        }
    }

    /// Whose a frame is that came in a VLAN of another VRF than the port's: there nothing is this router's, but a packet is forwarded only
    /// if it was sent to the port alone (RFC 1812 5.3.4). The check drops what is no IP packet to a single host.
    fn whose_elsewhere(&self, head: &[u8]) -> PuntVerdict {
        let (Ok((ethertype, at)), Some(mac)) = (layer2(head), head.first_chunk::<6>()) else {
            return PuntVerdict::Forward;
        };
        let is_group = match ethertype {
            IPV4 => self.v4(&head[at..]).1,
            IPV6 => self.v6(&head[at..]).1,
            _ => true,
        };
        let is_to_us = *mac == self.mac.0 || mac[0] & 1 == 1 && is_group;
        if is_to_us { PuntVerdict::Forward } else { PuntVerdict::Others }
    }

    /// Whether the destination is ours, and whether it is a group.
    fn v4(&self, packet: &[u8]) -> (bool, bool) {
        let Some([.., a, b, c, d]) = packet.first_chunk::<IPV4_BYTES>() else { return (false, true) };
        let destination = u32::from_be_bytes([*a, *b, *c, *d]);
        // RFC 5771 4: 224.0.0.0/24 stays on the link.
        let is_ours = destination >> 8 == 0x00e0_0000 || self.v4.contains(&destination);
        (is_ours, *a >> 4 == 0xe)
    }

    /// Whether the destination is ours, and whether it is a group.
    fn v6(&self, packet: &[u8]) -> (bool, bool) {
        let address = packet.get(IPV6_BYTES - 16..).and_then(|rest| rest.first_chunk());
        let Some(address) = address else { return (false, true) };
        let destination = u128::from_be_bytes(*address);
        let is_ours = match destination >> 112 {
            _ if destination >> 24 == SOLICITED_NODE => self.groups.contains(&destination),
            0xff01 | 0xff02 => true,
            _ => self.v6.contains(&destination),
        };
        (is_ours, destination >> 120 == 0xff)
    }
}

/// How a batch from a port with addresses marks its punts.
#[derive(Debug)]
pub(crate) struct PuntMarker {
    /// What is for this router, which may change.
    ours: Cache<Arc<ArcSwap<PuntAddresses>>, Arc<PuntAddresses>>,
    /// The egress port of punts: the number of ports.
    pub(crate) port: u16,
    /// Whether the batch is in a VLAN of another VRF than the port's: then its packets cause no punts.
    pub(crate) is_elsewhere: bool,
    /// What may be handed over, by punt.
    limits: [Limit; PuntCause::ALL.len()],
    /// What was not handed over since the last [`Self::take_lost`].
    lost: Lost,
}

impl PuntMarker {
    /// For batches from the port of `ours`, out of `ports` ports, when `parts` batches share rings of `slots` slots.
    pub(crate) fn new(ours: Arc<ArcSwap<PuntAddresses>>, ports: u16, (slots, parts): (u32, u32)) -> Self {
        let part = slots / parts.max(1);
        let causes = PuntCause::ALL.iter().filter(|cause| cause.class() == PuntClass::Errors);
        let of_a_cause = part / u32::try_from(causes.count()).unwrap_or(u32::MAX);
        let limit = |cause: PuntCause| match cause.class() {
            PuntClass::Resolution | PuntClass::Local => part.max(ANY_MIN),
            PuntClass::Errors => of_a_cause.clamp(ANY_MIN, ERRORS_MAX),
        };
        Self {
            ours: Cache::new(ours),
            port: ports,
            is_elsewhere: false,
            limits: PuntCause::ALL.map(|cause| Limit::new(limit(cause))),
            lost: Lost::default(),
        }
    }

    /// What was not handed over since the last call.
    pub(crate) fn take_lost(&mut self) -> Lost {
        std::mem::take(&mut self.lost)
    }

    /// What is for this router now: one load if it has not changed.
    pub(crate) fn ours(&mut self) -> &PuntAddresses {
        self.ours.load()
    }

    /// Lets go of what was for this router before; [`Self::ours`] does so too.
    pub(crate) fn refresh(&mut self) {
        self.ours.load();
    }

    /// Whose a frame is that begins with `head`.
    pub(crate) fn whose(&mut self, head: &[u8]) -> PuntVerdict {
        match self.is_elsewhere {
            false => self.ours().whose(head),
            true => self.ours().whose_elsewhere(head),
        }
    }

    /// What becomes of a packet for this router that begins with `head`, in a batch of the time `tsc`.
    pub(crate) fn take_ours(&mut self, head: &[u8], tsc: u64) -> Result<PuntCause, DropReason> {
        let cause = PuntCause::for_us(head);
        if self.takes(cause, tsc) { Ok(cause) } else { Err(cause.reason()) }
    }

    /// What becomes of a packet that would be dropped for this reason, in a batch of the time `tsc`.
    pub(crate) fn take_dropped(&mut self, reason: DropReason, tsc: u64) -> Result<PuntCause, DropReason> {
        PuntCause::of(reason).filter(|cause| self.takes(*cause, tsc)).ok_or(reason)
    }

    /// Whether a packet is handed over, in a batch of the time `tsc`. One that is not is counted as lost.
    fn takes(&mut self, cause: PuntCause, tsc: u64) -> bool {
        if self.is_elsewhere {
            return false;
        }
        let is_taken = self.limits[cause as usize].takes(tsc, 1);
        self.lost.add(cause.class(), u64::from(!is_taken));
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::ETHERNET_BYTES;
    use super::super::test_frames::{V4, V6};
    use super::*;
    use lpm_core::drops;
    use lpm_core::retire::Retired;
    use rusty_fork::rusty_fork_test;
    use std::sync::atomic::{AtomicBool, Ordering};

    const MAC: MacAddr = MacAddr([2, 0xf0, 0, 0, 0, 1]);

    fn ours() -> PuntAddresses {
        let group = SOLICITED_NODE << 24 | 1;
        let v6 = 0x2001_0db8_u128 << 96 | 1;
        let v4 = vec![0xc633_6401, 0xc633_64ff];
        PuntAddresses { port: 1, mac: MAC, v4, v6: vec![v6], groups: vec![group], ..PuntAddresses::default() }
    }

    fn to(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
        frame[..6].copy_from_slice(&mac);
        frame
    }

    fn v4(destination: [u8; 4]) -> Vec<u8> {
        V4 { destination, ..V4::default() }.frame()
    }

    fn v6(destination: &str) -> Vec<u8> {
        let destination = destination.parse::<std::net::Ipv6Addr>().unwrap().octets();
        V6 { destination, ..V6::default() }.frame()
    }

    #[test]
    fn addresses_groups_and_broadcasts_are_ours() {
        let ours = ours();
        for destination in [[198, 51, 100, 1], [198, 51, 100, 255], [224, 0, 0, 5]] {
            assert_eq!(ours.whose(&to(MAC.0, v4(destination))), PuntVerdict::ForUs, "{destination:?}");
            assert_eq!(ours.whose(&to([0xff; 6], v4(destination))), PuntVerdict::ForUs);
            assert_eq!(ours.whose(&to([2; 6], v4(destination))), PuntVerdict::Others);
        }
        for destination in ["2001:db8::1", "ff02::1", "ff02::1:ff00:1"] {
            assert_eq!(ours.whose(&to(MAC.0, v6(destination))), PuntVerdict::ForUs, "{destination}");
        }
        let mut arp = to([0xff; 6], v4([1, 2, 3, 4]));
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        assert_eq!(ours.whose(&arp), PuntVerdict::ForUs);
        // LLDP, and IS-IS, whose frames have a length there.
        for (group, ethertype) in
            [([1, 0x80, 0xc2, 0, 0, 0xe], 0x88cc_u16), ([1, 0x80, 0xc2, 0, 0, 0x15], 60)]
        {
            let mut frame = to(group, arp.clone());
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            assert_eq!(ours.whose(&frame), PuntVerdict::ForUs);
            assert_eq!(ours.whose(&to([0xff; 6], frame)), PuntVerdict::Forward, "the check drops it");
        }
    }

    #[test]
    fn what_is_not_ours_is_forwarded_if_it_was_sent_to_us_alone() {
        let ours = ours();
        for frame in [v4([198, 51, 100, 2]), v6("2001:db8::2")] {
            assert_eq!(ours.whose(&to(MAC.0, frame.clone())), PuntVerdict::Forward);
            assert_eq!(ours.whose(&to([0xff; 6], frame.clone())), PuntVerdict::Others);
            assert_eq!(ours.whose(&to([2; 6], frame)), PuntVerdict::Others);
        }
        // The check drops these as multicast.
        for frame in [v4([239, 1, 1, 1]), v6("ff0e::1"), v6("ff02::1:ff00:2")] {
            assert_eq!(ours.whose(&to([0x33; 6], frame)), PuntVerdict::Forward);
        }
        for bytes in 0..ETHERNET_BYTES {
            assert_eq!(ours.whose(&v4([198, 51, 100, 1])[..bytes]), PuntVerdict::Forward);
        }
    }

    #[test]
    fn elsewhere_nothing_is_ours_and_only_what_was_sent_to_the_port_is_forwarded() {
        let mut punting = PuntMarker::new(Arc::new(ArcSwap::from_pointee(ours())), 2, (1024, 1));
        punting.is_elsewhere = true;
        let mut arp = to([0xff; 6], v4([1, 2, 3, 4]));
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        for frame in [v4([198, 51, 100, 1]), v4([198, 51, 100, 2]), v6("2001:db8::1"), v6("2001:db8::2")] {
            assert_eq!(punting.whose(&to(MAC.0, frame.clone())), PuntVerdict::Forward);
            for mac in [[0xff; 6], [0x33; 6], [2; 6]] {
                assert_eq!(punting.whose(&to(mac, frame.clone())), PuntVerdict::Others);
            }
        }
        // The check drops these as what they are.
        for frame in [v4([224, 0, 0, 5]), v6("ff02::1"), arp] {
            assert_eq!(punting.whose(&to([0x33; 6], frame)), PuntVerdict::Forward);
        }
        assert!(!PuntCause::ALL.into_iter().any(|cause| punting.takes(cause, 0)));
    }

    #[test]
    fn tags_tell_what_they_were_made_of() {
        for (at, cause) in PuntCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            let tag = PuntTag { cause, port: 0xabcd, input: 0x1234, value: 0xff_fffe };
            assert_eq!(PuntTag::of(tag.tag()), tag);
        }
    }

    #[test]
    fn no_class_and_no_cause_takes_the_part_of_another() {
        let taken = |punting: &mut PuntMarker, cause| (0..2000).filter(|_| punting.takes(cause, 5)).count();
        for (parts, own, of_a_cause) in [(1, 1024, 32), (4, 256, 32), (16, 64, 10), (1000, 8, 8)] {
            let mut punting = PuntMarker::new(Arc::default(), 2, (1024, parts));
            for cause in PuntCause::ALL {
                let wanted = if cause.class() == PuntClass::Errors { of_a_cause } else { own };
                assert_eq!(taken(&mut punting, cause), wanted, "{cause:?} of {parts} parts");
            }
            let lost = punting.take_lost();
            assert_eq!(lost.of(PuntClass::Resolution), 2000 - own as u64);
            assert_eq!(lost.of(PuntClass::Errors), 6 * (2000 - of_a_cause as u64));
            assert_eq!(punting.take_lost(), Lost::default());
        }
    }

    #[test]
    fn arp_and_neighbour_discovery_resolve_and_the_rest_is_for_the_kernel() {
        let mut arp = v4([1, 2, 3, 4]);
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        let icmp = |kind| {
            let mut frame = v6("2001:db8::1");
            (frame[20], frame[54]) = (58, kind);
            frame
        };
        let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
        for frame in [arp, icmp(133), icmp(135), icmp(136), icmp(137)] {
            assert_eq!(PuntCause::for_us(&frame), PuntCause::Resolution);
            assert_eq!(PuntCause::for_us(&tagged(&frame)), PuntCause::Resolution);
        }
        for frame in [v4([198, 51, 100, 1]), v6("2001:db8::1"), icmp(128), icmp(132), icmp(138)] {
            assert_eq!(PuntCause::for_us(&frame), PuntCause::ForUs);
            assert_eq!(PuntCause::for_us(&frame[..ETHERNET_BYTES]), PuntCause::ForUs);
        }
    }

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 60_000)]

        /// In a process of its own, since all drops count.
        #[test]
        fn no_lcore_frees_what_was_for_the_router() {
            let now = |port| PuntAddresses { port, witness: Witness::of("ours"), ..ours() };
            let place = Arc::new(ArcSwap::from_pointee(now(0)));
            let (mut punting, stop) = (PuntMarker::new(Arc::clone(&place), 2, (1024, 1)), Arc::new(AtomicBool::new(false)));
            let lcore = std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || {
                    while !stop.load(Ordering::Relaxed) {
                        punting.refresh();
                        assert_eq!(punting.ours().mac, MAC);
                    }
                }
            });
            let (mut retired, bytes) = (Retired::default(), ours().bytes());
            drops::take();
            for port in 1..2000 {
                retired.replace(&place, Arc::new(now(port)), bytes);
            }
            while retired.bytes() > 0 {
                std::thread::yield_now();
                retired.free();
            }
            let mut drops = drops::take();
            stop.store(true, Ordering::Relaxed);
            lcore.join().unwrap();
            drops.retain(|(what, _)| *what == "ours");
            assert_eq!(drops.len(), 1999);
            let here = std::thread::current().id();
            assert!(drops.iter().all(|(_, thread)| *thread == here), "the lcore freed some");
        }
    }
}
