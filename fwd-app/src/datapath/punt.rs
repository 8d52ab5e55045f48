//! Punts: packets that the datapath hands to the router instead of forwarding or dropping them.
//!
//! A batch from a port with addresses carries a [`PuntMarker`], which marks its punts. A punt leaves by one extra egress port, whose index
//! is the number of ports. Its [`PuntTag`] is stored in the mbuf, so nothing is allocated, and its bytes stay as received. Each
//! [`PuntClass`] has a ring, and each RX queue a quota of every ring per period: a flood on one port cannot block neighbour resolution on
//! the others. Each cause of ICMP errors has a quota too.

use super::check::{IPV4, IPV4_BYTES, IPV6, IPV6_BYTES, layer2};
use super::drop_reason::{DropReason, LostPunts, PuntClass};
use arc_swap::{ArcSwap, Cache};
use fib::MacAddr;
use lpm_core::drops::Witness;
use std::sync::Arc;

const ARP: u16 = 0x0806;
/// The first 104 bits of solicited-node groups (RFC 4291 2.7.1).
const SOLICITED_NODE: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000 >> 24;
/// Quota of a batch per period for each cause of ICMP errors, at most.
const ERRORS_MAX: u32 = 32;
/// Lowest quota of a batch per period, for a class or a cause of ICMP errors, with any number of batches.
const ANY_MIN: u32 = 8;
/// ICMPv6 types of router and neighbour solicitations and advertisements and of redirects (RFC 4861 4).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PuntCause {
    /// ARP or neighbour discovery.
    Resolution,
    ForUs,
    TtlExpired,
    NoRoute,
    Unreachable,
    Prohibited,
    NoNeighbour,
    MtuExceeded,
}

impl PuntCause {
    /// In order of the discriminants.
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

    pub(crate) const fn from_reason(reason: DropReason) -> Option<Self> {
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

    pub(crate) const fn class(self) -> PuntClass {
        match self {
            Self::Resolution => PuntClass::Resolution,
            Self::ForUs => PuntClass::Local,
            _ => PuntClass::Errors,
        }
    }

    /// The drop reason when the packet cannot be punted.
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

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Resolution | Self::ForUs => "for_us",
            _ => self.reason().name(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PuntTag {
    pub(crate) cause: PuntCause,
    pub(crate) port: u16,
    /// Number of the RX queue, counted over all ports.
    pub(crate) input: u16,
    /// 24 bits: the next hop of `NoNeighbour`, the MTU of `MtuExceeded`.
    pub(crate) value: u32,
}

impl PuntTag {
    pub(crate) fn tag(self) -> u64 {
        let value = u64::from(self.value) & 0xff_ffff;
        u64::from(self.input) << 48 | value << 24 | u64::from(self.port) << 8 | self.cause as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fields of a tag")]
    pub(crate) fn from_tag(tag: u64) -> Self {
        let cause = PuntCause::ALL.get(usize::from(tag as u8)).copied().unwrap_or(PuntCause::ForUs);
        Self {
            cause,
            port: (tag >> 8) as u16,
            input: (tag >> 48) as u16,
            value: (tag >> 24) as u32 & 0xff_ffff,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PuntAddresses {
    pub(crate) port: u16,
    pub(crate) mac: MacAddr,
    /// IPv4 addresses of all interfaces, and the broadcast addresses of this link.
    pub(crate) v4: Vec<u32>,
    /// IPv6 addresses of all interfaces, except link-local addresses of other links.
    pub(crate) v6: Vec<u128>,
    /// Solicited-node groups of this link's addresses.
    pub(crate) groups: Vec<u128>,
    /// Records in tests which thread drops it.
    pub(crate) witness: Witness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntVerdict {
    ForUs,
    Others,
    /// Forwarded if it passes all checks.
    Forward,
}

impl PuntAddresses {
    pub(crate) fn bytes(&self) -> u64 {
        let lists = size_of_val(&*self.v4) + size_of_val(&*self.v6) + size_of_val(&*self.groups);
        (size_of::<Self>() + lists) as u64
    }

    pub(crate) fn classify(&self, head: &[u8]) -> PuntVerdict {
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
            // A packet sent to all stations of a link is not forwarded (RFC 1812 5.3.4). The check drops other groups.
            (true, false) if is_to_many && !is_group => PuntVerdict::Others,
            (true, false) => PuntVerdict::Forward,
        }
    }

    /// A frame of a VLAN of another VRF is never for this router; it is forwarded only if sent to the port's MAC (RFC 1812 5.3.4).
    fn classify_elsewhere(&self, head: &[u8]) -> PuntVerdict {
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

    /// Returns whether the destination is local, and whether it is a group.
    fn v4(&self, packet: &[u8]) -> (bool, bool) {
        let Some([.., a, b, c, d]) = packet.first_chunk::<IPV4_BYTES>() else { return (false, true) };
        let destination = u32::from_be_bytes([*a, *b, *c, *d]);
        // RFC 5771 4: 224.0.0.0/24 stays on the link.
        let is_ours = destination >> 8 == 0x00e0_0000 || self.v4.contains(&destination);
        (is_ours, *a >> 4 == 0xe)
    }

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

/// Binary logarithm of a period in cycles: about a millisecond.
const PERIOD_SHIFT: u32 = 21;

/// Rate limit of an lcore's work off the fast path, per period of TSC cycles, without a division or a clock read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    each: u32,
    left: u32,
    period: u64,
}

impl Limit {
    pub(crate) const fn new(each: u32) -> Self {
        Self { each, left: each, period: 0 }
    }

    /// Charges `cost` at the time `tsc`; returns false when the quota is used up. The last charge may exceed the quota.
    pub(crate) fn takes(&mut self, tsc: u64, cost: u32) -> bool {
        let period = tsc >> PERIOD_SHIFT;
        if period != self.period {
            (self.period, self.left) = (period, self.each);
        }
        let has_left = self.left > 0;
        if has_left {
            self.left = self.left.saturating_sub(cost);
        }
        has_left
    }
}

#[derive(Debug)]
pub(crate) struct PuntMarker {
    /// Local addresses, replaced by the control side.
    addresses: Cache<Arc<ArcSwap<PuntAddresses>>, Arc<PuntAddresses>>,
    pub(crate) port: u16,
    /// Whether the VLAN of the batch is in another VRF than the port: its packets are not punted.
    pub(crate) is_elsewhere: bool,
    limits: [Limit; PuntCause::ALL.len()],
    lost: LostPunts,
}

impl PuntMarker {
    /// Creates a marker for batches from the port of `addresses`, one of `ports` ports. Per period such a batch may fill `slots` slots of a
    /// ring; the causes of ICMP errors share theirs.
    pub(crate) fn new(addresses: Arc<ArcSwap<PuntAddresses>>, ports: u16, slots: u32) -> Self {
        let causes = PuntCause::ALL.iter().filter(|cause| cause.class() == PuntClass::Errors);
        let of_a_cause = slots / u32::try_from(causes.count()).unwrap_or(u32::MAX);
        let limit = |cause: PuntCause| match cause.class() {
            PuntClass::Resolution | PuntClass::Local => slots.max(ANY_MIN),
            PuntClass::Errors => of_a_cause.clamp(ANY_MIN, ERRORS_MAX),
        };
        Self {
            addresses: Cache::new(addresses),
            port: ports,
            is_elsewhere: false,
            limits: PuntCause::ALL.map(|cause| Limit::new(limit(cause))),
            lost: LostPunts::default(),
        }
    }

    pub(crate) fn take_lost(&mut self) -> LostPunts {
        std::mem::take(&mut self.lost)
    }

    pub(crate) fn addresses(&mut self) -> &PuntAddresses {
        self.addresses.load()
    }

    /// Releases outdated addresses; [`Self::addresses`] does so too.
    pub(crate) fn refresh(&mut self) {
        self.addresses.load();
    }

    pub(crate) fn classify(&mut self, head: &[u8]) -> PuntVerdict {
        match self.is_elsewhere {
            false => self.addresses().classify(head),
            true => self.addresses().classify_elsewhere(head),
        }
    }

    pub(crate) fn punt_local(&mut self, head: &[u8], tsc: u64) -> Result<PuntCause, DropReason> {
        let cause = PuntCause::for_us(head);
        if self.takes(cause, tsc) { Ok(cause) } else { Err(cause.reason()) }
    }

    pub(crate) fn punt_dropped(&mut self, reason: DropReason, tsc: u64) -> Result<PuntCause, DropReason> {
        PuntCause::from_reason(reason).filter(|cause| self.takes(*cause, tsc)).ok_or(reason)
    }

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

    fn local_addresses() -> PuntAddresses {
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
    fn a_period_has_a_limit() {
        let mut limit = Limit::new(32);
        let taken = |limit: &mut Limit, tsc, cost| (0..100).filter(|_| limit.takes(tsc, cost)).count();
        assert_eq!((taken(&mut limit, 5, 1), taken(&mut limit, 6, 1)), (32, 0));
        assert_eq!(taken(&mut limit, 1 << PERIOD_SHIFT, 5), 7);
        assert_eq!(taken(&mut limit, 2 << PERIOD_SHIFT, 1000), 1, "so that large ones have their turn too");
        assert_eq!(taken(&mut Limit::new(0), 5, 1), 0);
    }

    #[test]
    fn addresses_groups_and_broadcasts_are_ours() {
        let ours = local_addresses();
        for destination in [[198, 51, 100, 1], [198, 51, 100, 255], [224, 0, 0, 5]] {
            assert_eq!(ours.classify(&to(MAC.0, v4(destination))), PuntVerdict::ForUs, "{destination:?}");
            assert_eq!(ours.classify(&to([0xff; 6], v4(destination))), PuntVerdict::ForUs);
            assert_eq!(ours.classify(&to([2; 6], v4(destination))), PuntVerdict::Others);
        }
        for destination in ["2001:db8::1", "ff02::1", "ff02::1:ff00:1"] {
            assert_eq!(ours.classify(&to(MAC.0, v6(destination))), PuntVerdict::ForUs, "{destination}");
        }
        let mut arp = to([0xff; 6], v4([1, 2, 3, 4]));
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        assert_eq!(ours.classify(&arp), PuntVerdict::ForUs);
        // LLDP, and IS-IS, whose frames have a length instead of an ethertype.
        for (group, ethertype) in
            [([1, 0x80, 0xc2, 0, 0, 0xe], 0x88cc_u16), ([1, 0x80, 0xc2, 0, 0, 0x15], 60)]
        {
            let mut frame = to(group, arp.clone());
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            assert_eq!(ours.classify(&frame), PuntVerdict::ForUs);
            assert_eq!(ours.classify(&to([0xff; 6], frame)), PuntVerdict::Forward, "the check drops it");
        }
    }

    #[test]
    fn what_is_not_ours_is_forwarded_if_it_was_sent_to_us_alone() {
        let ours = local_addresses();
        for frame in [v4([198, 51, 100, 2]), v6("2001:db8::2")] {
            assert_eq!(ours.classify(&to(MAC.0, frame.clone())), PuntVerdict::Forward);
            assert_eq!(ours.classify(&to([0xff; 6], frame.clone())), PuntVerdict::Others);
            assert_eq!(ours.classify(&to([2; 6], frame)), PuntVerdict::Others);
        }
        // The check drops these as multicast.
        for frame in [v4([239, 1, 1, 1]), v6("ff0e::1"), v6("ff02::1:ff00:2")] {
            assert_eq!(ours.classify(&to([0x33; 6], frame)), PuntVerdict::Forward);
        }
        for bytes in 0..ETHERNET_BYTES {
            assert_eq!(ours.classify(&v4([198, 51, 100, 1])[..bytes]), PuntVerdict::Forward);
        }
    }

    #[test]
    fn elsewhere_nothing_is_ours_and_only_what_was_sent_to_the_port_is_forwarded() {
        let mut punting = PuntMarker::new(Arc::new(ArcSwap::from_pointee(local_addresses())), 2, 1024);
        punting.is_elsewhere = true;
        let mut arp = to([0xff; 6], v4([1, 2, 3, 4]));
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        for frame in [v4([198, 51, 100, 1]), v4([198, 51, 100, 2]), v6("2001:db8::1"), v6("2001:db8::2")] {
            assert_eq!(punting.classify(&to(MAC.0, frame.clone())), PuntVerdict::Forward);
            for mac in [[0xff; 6], [0x33; 6], [2; 6]] {
                assert_eq!(punting.classify(&to(mac, frame.clone())), PuntVerdict::Others);
            }
        }
        for frame in [v4([224, 0, 0, 5]), v6("ff02::1"), arp] {
            assert_eq!(punting.classify(&to([0x33; 6], frame)), PuntVerdict::Forward);
        }
        assert!(!PuntCause::ALL.into_iter().any(|cause| punting.takes(cause, 0)));
    }

    #[test]
    fn tags_tell_what_they_were_made_of() {
        for (at, cause) in PuntCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            let tag = PuntTag { cause, port: 0xabcd, input: 0x1234, value: 0xff_fffe };
            assert_eq!(PuntTag::from_tag(tag.tag()), tag);
        }
    }

    #[test]
    fn no_class_and_no_cause_takes_the_part_of_another() {
        let taken = |punting: &mut PuntMarker, cause| (0..2000).filter(|_| punting.takes(cause, 5)).count();
        for (parts, own, of_a_cause) in [(1, 1024, 32), (4, 256, 32), (16, 64, 10), (1000, 8, 8)] {
            let mut punting = PuntMarker::new(Arc::default(), 2, 1024 / parts);
            for cause in PuntCause::ALL {
                let wanted = if cause.class() == PuntClass::Errors { of_a_cause } else { own };
                assert_eq!(taken(&mut punting, cause), wanted, "{cause:?} of {parts} parts");
            }
            let lost = punting.take_lost();
            assert_eq!(lost.get(PuntClass::Resolution), 2000 - own as u64);
            assert_eq!(lost.get(PuntClass::Errors), 6 * (2000 - of_a_cause as u64));
            assert_eq!(punting.take_lost(), LostPunts::default());
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

        /// Needs its own process: drops are recorded for the whole process.
        #[test]
        fn no_lcore_frees_what_was_for_the_router() {
            let now = |port| PuntAddresses { port, witness: Witness::new("ours"), ..local_addresses() };
            let place = Arc::new(ArcSwap::from_pointee(now(0)));
            let (mut punting, stop) = (PuntMarker::new(Arc::clone(&place), 2, 1024), Arc::new(AtomicBool::new(false)));
            let lcore = std::thread::spawn({
                let stop = Arc::clone(&stop);
                move || {
                    while !stop.load(Ordering::Relaxed) {
                        punting.refresh();
                        assert_eq!(punting.addresses().mac, MAC);
                    }
                }
            });
            let (mut retired, bytes) = (Retired::default(), local_addresses().bytes());
            drops::take_recorded();
            for port in 1..2000 {
                retired.replace(&place, Arc::new(now(port)), bytes);
            }
            while retired.bytes() > 0 {
                std::thread::yield_now();
                retired.free();
            }
            let mut drops = drops::take_recorded();
            stop.store(true, Ordering::Relaxed);
            lcore.join().unwrap();
            drops.retain(|(what, _)| *what == "ours");
            assert_eq!(drops.len(), 1999);
            let here = std::thread::current().id();
            assert!(drops.iter().all(|(_, thread)| *thread == here), "the lcore freed some");
        }
    }
}
