//! Copies of packets for captures and traces: the next N dropped packets, or the next N packets of any fate.
//!
//! While both are off, a batch costs two relaxed loads. Otherwise lcores copy matching packets into buffers of a free list: nothing is
//! allocated and no lcore waits. A packet that finds the list empty counts as missed. Filters are published without locks: each request has
//! a number, its round, in the same word as the count of packets still wanted. An lcore reads the word, then the filter, and decrements the
//! count only if the round is unchanged: a change of the filter changes the round too.

use super::check::{self, Destination};
use super::packet_state::PacketState;
use super::punt::PuntCause;
use super::{Batch, DropReason, Egress, Exit};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::PacketRef;
use fib::{IpPrefix, Key as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buffers of the free list: 1 MB.
const BUFFERS: usize = 512;
const KEPT_BYTES: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Capture,
    Trace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketFilter {
    pub(crate) port: Option<u16>,
    pub(crate) vrf: Option<u16>,
    pub(crate) to: Option<IpPrefix>,
    pub(crate) reason: Option<DropReason>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketOrigin {
    /// Number of the RX queue, counted over all ports.
    pub(crate) input: Option<usize>,
    pub(crate) vrf: Option<usize>,
}

impl PacketOrigin {
    /// For packets that this router created or whose origin is lost.
    pub(crate) const UNKNOWN: Self = Self { input: None, vrf: None };

    pub(crate) const fn new(input: usize, vrf: usize) -> Self {
        Self { input: Some(input), vrf: Some(vrf) }
    }
}

#[derive(Debug)]
pub(crate) struct WatchedPacket {
    pub(crate) purpose: Purpose,
    /// The round of `purpose` that it was copied for.
    round: u64,
    pub(crate) frame: Vec<u8>,
    /// The whole length; `frame` may be cut.
    pub(crate) frame_bytes: u32,
    pub(crate) origin: PacketOrigin,
    /// Whether it already had its new headers.
    pub(crate) is_leaving: bool,
    pub(crate) tsc: u64,
    /// The engine's answer; `None` when it was dropped before the lookup.
    pub(crate) next_hop: Option<u32>,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent {
        port: u16,
        macs: [u8; 12],
        /// The MTU, if it leaves as fragments.
        fragments_max: Option<u16>,
    },
    Punted(PuntCause),
    Dropped(DropReason),
}

impl Fate {
    fn from_batch(batch: &Batch, place: usize) -> Self {
        match batch.slot(place) {
            PacketState::Dropped(reason) => Self::Dropped(reason),
            PacketState::PuntCause(punt) => Self::Punted(punt),
            PacketState::Packet { .. } => {
                let Egress { port, macs, mtu_bytes } = batch.egress[place];
                let fragments_max = (batch.ports[place] == Exit::Fragment.word()).then_some(mtu_bytes);
                Self::Sent { port, macs, fragments_max }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    captures: Wish,
    traces: Wish,
    missed: AtomicU64,
    /// Port of each RX queue, by queue number. Set when the stages are built.
    ports: OnceLock<Box<[u16]>>,
    free: (Sender<Box<WatchedPacket>>, Receiver<Box<WatchedPacket>>),
    seen: (Sender<Box<WatchedPacket>>, Receiver<Box<WatchedPacket>>),
}

#[derive(Debug, Default)]
struct Wish {
    /// The round, and in the lower [`COUNT_BITS`] the number of packets still wanted.
    left: AtomicU64,
    words: [AtomicU64; 3],
}

const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// A filter as lcores read it. One word has port, VRF, reason, address family and prefix length, each with a value for "any"; two words
/// have the prefix, aligned to its first bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FilterWords([u64; 3]);

impl FilterWords {
    const ANY: u16 = u16::MAX;
    const ANY_REASON: u8 = u8::MAX;

    fn new(filter: PacketFilter) -> Self {
        let PacketFilter { port, vrf, to, reason } = filter;
        let (family, len, address) = match to {
            None => (0, 0, 0),
            Some(IpPrefix::V4(prefix)) => (4, prefix.len(), prefix.address().to_high_bits()),
            Some(IpPrefix::V6(prefix)) => (6, prefix.len(), prefix.address().to_high_bits()),
        };
        let reason = reason.map_or(Self::ANY_REASON, |reason| reason as u8);
        let [p0, p1] = port.unwrap_or(Self::ANY).to_le_bytes();
        let [v0, v1] = vrf.unwrap_or(Self::ANY).to_le_bytes();
        let first = u64::from_le_bytes([p0, p1, v0, v1, reason, family, len, 0]);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        Self([first, (address >> 64) as u64, address as u64])
    }

    fn takes_origin(self, port: Option<u16>, vrf: Option<usize>) -> bool {
        let [p0, p1, v0, v1, ..] = self.0[0].to_le_bytes();
        let takes =
            |wanted: u16, value: Option<usize>| wanted == Self::ANY || value == Some(usize::from(wanted));
        takes(u16::from_le_bytes([p0, p1]), port.map(usize::from)) && takes(u16::from_le_bytes([v0, v1]), vrf)
    }

    fn wants_reason(self) -> bool {
        self.reason() != Self::ANY_REASON
    }

    fn reason(self) -> u8 {
        self.0[0].to_le_bytes()[4]
    }

    fn takes_reason(self, dropped: Option<DropReason>) -> bool {
        !self.wants_reason() || dropped.is_some_and(|reason| reason as u8 == self.reason())
    }

    fn takes_destination(self, head: &[u8]) -> bool {
        let [first, hi, lo] = self.0;
        let [.., family, len, _] = first.to_le_bytes();
        if family == 0 {
            return true;
        }
        let (is, address) = match check::destination(head) {
            Some(Destination::V4(address)) => (4, address.to_high_bits()),
            Some(Destination::V6(address)) => (6, address),
            None => return false,
        };
        let prefix = u128::from(hi) << 64 | u128::from(lo);
        is == family && (address ^ prefix) & u128::mask(len) == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct WantedPackets {
    purpose: Purpose,
    round: u64,
    filter: FilterWords,
}

impl Wish {
    /// Requests `packets` packets in a new round. Called by the control thread only.
    fn want(&self, packets: u64, filter: PacketFilter) {
        let round = (self.left.load(Ordering::Relaxed) >> COUNT_BITS).wrapping_add(1) << COUNT_BITS;
        // From here on no claim of the previous round succeeds, although lcores may still hold its filter.
        self.left.store(round, Ordering::Release);
        for (word, value) in self.words.iter().zip(FilterWords::new(filter).0) {
            word.store(value, Ordering::Release);
        }
        self.left.store(round | packets.min(COUNT), Ordering::Release);
    }

    /// The active request. If the filter changes while it is read, [`Self::claim`] fails: a reader that sees a filter word of the next
    /// round also sees, by release and acquire, the new round in `left`.
    fn read(&self, purpose: Purpose) -> Option<WantedPackets> {
        let left = self.left.load(Ordering::Acquire);
        let words = || [0, 1, 2].map(|at| self.words[at].load(Ordering::Acquire));
        (left & COUNT > 0).then(|| WantedPackets {
            purpose,
            round: left >> COUNT_BITS,
            filter: FilterWords(words()),
        })
    }

    /// Decrements the count of `round`; returns false when it is zero or the round has ended.
    fn claim(&self, round: u64) -> bool {
        let one_less = |left: u64| (left >> COUNT_BITS == round && left & COUNT > 0).then(|| left - 1);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            captures: Wish::default(),
            traces: Wish::default(),
            missed: AtomicU64::new(0),
            ports: OnceLock::new(),
            free: bounded(BUFFERS),
            seen: bounded(BUFFERS),
        }
    }
}

impl Watch {
    fn wish(&self, purpose: Purpose) -> &Wish {
        match purpose {
            Purpose::Capture => &self.captures,
            Purpose::Trace => &self.traces,
        }
    }

    /// Sets the port of each RX queue, by queue number. Until then filters by port match nothing.
    pub(crate) fn set_ports(&self, ports: impl Iterator<Item = u16>) {
        // Stages are built once.
        let _ = self.ports.set(ports.collect());
    }

    /// Requests `packets` packets that match `filter`; 0 ends the request. Called by the control thread only.
    pub(crate) fn want(&self, purpose: Purpose, packets: u64, filter: PacketFilter) {
        if packets > 0 && self.free.1.is_empty() && self.seen.1.is_empty() {
            for _ in 0..BUFFERS {
                // Cannot be full: the channel has room for this many.
                drop(self.free.0.try_send(Box::new(WatchedPacket::empty())));
            }
        }
        self.wish(purpose).want(packets, filter);
    }

    pub(crate) fn stop(&self, purpose: Purpose) {
        self.want(purpose, 0, PacketFilter::default());
    }

    pub(crate) fn left(&self, purpose: Purpose) -> u64 {
        self.wish(purpose).left.load(Ordering::Acquire) & COUNT
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// The oldest copy of a current round. Called by the control thread only.
    pub(crate) fn next(&self) -> Option<Box<WatchedPacket>> {
        loop {
            let seen = self.seen.1.try_recv().ok()?;
            if self.wish(seen.purpose).left.load(Ordering::Relaxed) >> COUNT_BITS == seen.round {
                return Some(seen);
            }
            self.give_back(seen);
        }
    }

    pub(crate) fn give_back(&self, seen: Box<WatchedPacket>) {
        // Cannot be full: the channel has room for all.
        drop(self.free.0.try_send(seen));
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        (self.captures.left.load(Ordering::Relaxed) | self.traces.left.load(Ordering::Relaxed)) & COUNT != 0
    }

    fn wanted_from(&self, origin: PacketOrigin) -> impl Iterator<Item = WantedPackets> {
        let port = move || self.ports.get().and_then(|ports| ports.get(origin.input?).copied());
        let wanted = [Purpose::Capture, Purpose::Trace]
            .into_iter()
            .filter_map(|purpose| self.wish(purpose).read(purpose));
        wanted.filter(move |wanted| wanted.filter.takes_origin(port(), origin.vrf))
    }

    /// Copies matching packets of a batch that has its verdict and is not rewritten yet.
    #[cold]
    pub(crate) fn copy_matching(&self, batch: &Batch) {
        let tsc = batch.stamps().first().map_or(0, |stamp| stamp.tsc);
        let origin = PacketOrigin::new(batch.input, batch.vrf);
        for wanted in self.wanted_from(origin) {
            for place in 0..batch.packets.len() {
                let dropped = match batch.slot(place) {
                    PacketState::Dropped(reason) => Some(reason),
                    _ if wanted.purpose == Purpose::Capture => continue,
                    _ => None,
                };
                let frame = batch.packets.data(place);
                if wanted.filter.takes_reason(dropped) && wanted.filter.takes_destination(frame) {
                    self.copy(wanted, frame, batch.packets.pkt_len(place), |seen| {
                        (seen.origin, seen.is_leaving, seen.tsc) = (origin, false, tsc);
                        (seen.next_hop, seen.fate) = (batch.next_hop(place), Fate::from_batch(batch, place));
                    });
                }
            }
        }
    }

    #[cold]
    pub(crate) fn refused<'a>(
        &self,
        packets: impl Iterator<Item = PacketRef<'a>>,
        origin: PacketOrigin,
        reason: DropReason,
    ) {
        for packet in packets {
            self.lost((packet.data(), packet.pkt_len()), origin, true, reason);
        }
    }

    #[cold]
    pub(crate) fn dropped(&self, frame: (&[u8], u32), origin: PacketOrigin, reason: DropReason) {
        self.lost(frame, origin, false, reason);
    }

    /// Copies a packet that is dropped after its verdict. A trace without a reason has copied it at the verdict.
    fn lost(
        &self,
        (frame, frame_bytes): (&[u8], u32),
        origin: PacketOrigin,
        is_leaving: bool,
        reason: DropReason,
    ) {
        for wanted in self.wanted_from(origin) {
            let is_new = wanted.purpose == Purpose::Capture || wanted.filter.wants_reason();
            if is_new && wanted.filter.takes_reason(Some(reason)) && wanted.filter.takes_destination(frame) {
                self.copy(wanted, frame, frame_bytes, |seen| {
                    (seen.origin, seen.is_leaving, seen.tsc) = (origin, is_leaving, dpdk_ffi::tsc());
                    (seen.next_hop, seen.fate) = (None, Fate::Dropped(reason));
                });
            }
        }
    }

    fn copy(
        &self,
        wanted: WantedPackets,
        frame: &[u8],
        frame_bytes: u32,
        fill: impl FnOnce(&mut WatchedPacket),
    ) {
        if self.left(wanted.purpose) == 0 {
            return;
        }
        let Ok(mut seen) = self.free.1.try_recv() else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if !self.wish(wanted.purpose).claim(wanted.round) {
            // Another lcore copied the last packet, or the round has ended.
            return self.give_back(seen);
        }
        seen.frame.clear();
        seen.frame.extend_from_slice(&frame[..frame.len().min(KEPT_BYTES)]);
        (seen.purpose, seen.round, seen.frame_bytes) = (wanted.purpose, wanted.round, frame_bytes);
        fill(&mut seen);
        // Cannot be full: the channel has room for all.
        drop(self.seen.0.try_send(seen));
    }
}

impl WatchedPacket {
    fn empty() -> Self {
        Self {
            purpose: Purpose::Trace,
            round: 0,
            frame: Vec::with_capacity(KEPT_BYTES),
            frame_bytes: 0,
            origin: PacketOrigin::UNKNOWN,
            is_leaving: false,
            tsc: 0,
            next_hop: None,
            fate: Fate::Dropped(DropReason::NotIp),
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
#[path = "watch_test.rs"]
mod tests;
