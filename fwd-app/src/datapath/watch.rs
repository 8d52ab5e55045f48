//! Copies of packets for people who look on: the next N that are dropped, for a capture, or the next N of any fate, for a trace.
//!
//! While nobody looks on, a batch costs one load. Else lcores copy packets into buffers of a free list, as long as there are any, so
//! that nothing is allocated and nobody waits: what finds no buffer is counted as missed.

use super::punt::PuntCause;
use super::slot::Slot;
use super::{Batch, Code, DropReason, Egress};
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::Burst;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buffers of the free list: 1 MB.
const BUFFERS: usize = 512;
/// Bytes that are kept of a packet.
const KEPT_BYTES: usize = 2048;

/// Why a packet was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For a capture of dropped packets.
    Capture,
    /// For a trace.
    Trace,
}

/// A packet that was looked at.
#[derive(Debug)]
pub(crate) struct WatchedPacket {
    /// What for.
    pub(crate) purpose: Purpose,
    /// Its first bytes, as received.
    pub(crate) frame: Vec<u8>,
    /// Its whole length, bytes.
    pub(crate) frame_bytes: u32,
    /// Number of the RX queue it came from, counted over all ports; `usize::MAX` when that is not known any more.
    pub(crate) input: usize,
    /// Number of its VRF; 0 when that is not known any more.
    pub(crate) vrf: usize,
    /// When its burst was received.
    pub(crate) tsc: u64,
    /// The next hop that the engine answered; `None` when it was dropped before.
    pub(crate) next_hop: Option<u32>,
    /// What becomes of it.
    pub(crate) fate: Fate,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It leaves.
    Sent {
        /// The port.
        port: u16,
        /// Its new MACs.
        macs: [u8; 12],
        /// The MTU, if it leaves as fragments.
        fragments_max: Option<u16>,
    },
    /// It is handed to the router as it is.
    Punted(PuntCause),
    /// It is dropped.
    Dropped(DropReason),
}

impl Fate {
    /// That of the packet at `place` of a batch that has its verdict.
    fn of(batch: &Batch, place: usize) -> Self {
        match batch.slot(place) {
            Slot::Dropped(reason) => Self::Dropped(reason),
            Slot::PuntCause(punt) => Self::Punted(punt),
            Slot::Packet { .. } => {
                let Egress { port, macs, mtu_bytes } = batch.egress[place];
                let fragments_max = (batch.ports[place] == Code::FRAGMENT).then_some(mtu_bytes);
                Self::Sent { port, macs, fragments_max }
            }
        }
    }
}

/// What is looked at, and the way of the copies.
#[derive(Debug)]
pub(crate) struct Watch {
    /// How many more packets are wanted: dropped ones, and any.
    drops: AtomicU64,
    traces: AtomicU64,
    missed: AtomicU64,
    free: (Sender<Box<WatchedPacket>>, Receiver<Box<WatchedPacket>>),
    seen: (Sender<Box<WatchedPacket>>, Receiver<Box<WatchedPacket>>),
}

impl Default for Watch {
    fn default() -> Self {
        let [drops, traces, missed] = [(); 3].map(|()| AtomicU64::new(0));
        Self { drops, traces, missed, free: bounded(BUFFERS), seen: bounded(BUFFERS) }
    }
}

impl Watch {
    fn wanted(&self, purpose: Purpose) -> &AtomicU64 {
        match purpose {
            Purpose::Capture => &self.drops,
            Purpose::Trace => &self.traces,
        }
    }

    /// Wants `packets` more; 0 wants none any more.
    pub(crate) fn want(&self, purpose: Purpose, packets: u64) {
        if packets > 0 && self.free.1.is_empty() && self.seen.1.is_empty() {
            for _ in 0..BUFFERS {
                // Cannot be full: the channel has room for this many.
                drop(self.free.0.try_send(Box::new(WatchedPacket::empty())));
            }
        }
        self.wanted(purpose).store(packets, Ordering::Release);
    }

    /// How many more are wanted.
    pub(crate) fn left(&self, purpose: Purpose) -> u64 {
        self.wanted(purpose).load(Ordering::Acquire)
    }

    /// Packets that found no buffer.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// The oldest copy.
    pub(crate) fn next(&self) -> Option<Box<WatchedPacket>> {
        self.seen.1.try_recv().ok()
    }

    /// Returns a copy to the free list.
    pub(crate) fn give_back(&self, seen: Box<WatchedPacket>) {
        // Cannot be full: the channel has room for all.
        drop(self.free.0.try_send(seen));
    }

    /// Whether packets are looked at.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.drops.load(Ordering::Relaxed) | self.traces.load(Ordering::Relaxed) != 0
    }

    /// Looks at the packets of a batch, which have their verdict and have not been rewritten.
    #[cold]
    pub(crate) fn look(&self, batch: &Batch) {
        let tsc = batch.stamps().first().map_or(0, |stamp| stamp.tsc);
        for place in 0..batch.packets.len() {
            let fate = Fate::of(batch, place);
            let purposes = [(Purpose::Capture, matches!(fate, Fate::Dropped(_))), (Purpose::Trace, true)];
            for (purpose, _) in purposes.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                self.copy(purpose, batch.packets.data(place), batch.packets.pkt_len(place), |seen| {
                    (seen.input, seen.vrf) = (batch.input, batch.vrf);
                    (seen.tsc, seen.next_hop, seen.fate) = (tsc, batch.next_hop(place), fate);
                });
            }
        }
    }

    /// Looks at packets that a queue has no room for, as they would have left.
    #[cold]
    pub(crate) fn refused(&self, packets: &Burst, reason: DropReason) {
        for packet in packets.iter() {
            self.dropped((packet.data(), packet.pkt_len()), usize::MAX, reason);
        }
    }

    /// Looks at one packet that is dropped after its verdict: its first bytes, and its length. `input` is the number of its RX queue.
    #[cold]
    pub(crate) fn dropped(&self, (frame, frame_bytes): (&[u8], u32), input: usize, reason: DropReason) {
        self.copy(Purpose::Capture, frame, frame_bytes, |seen| {
            (seen.input, seen.vrf, seen.tsc) = (input, 0, dpdk_ffi::tsc());
            (seen.next_hop, seen.fate) = (None, Fate::Dropped(reason));
        });
    }

    /// Copies a packet if one more is wanted.
    fn copy(&self, purpose: Purpose, frame: &[u8], frame_bytes: u32, fill: impl FnOnce(&mut WatchedPacket)) {
        if self.left(purpose) == 0 {
            return;
        }
        let Ok(mut seen) = self.free.1.try_recv() else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let one_less = |left: u64| left.checked_sub(1);
        if self.wanted(purpose).fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_err() {
            // Another lcore copied the last one.
            return self.give_back(seen);
        }
        seen.frame.clear();
        seen.frame.extend_from_slice(&frame[..frame.len().min(KEPT_BYTES)]);
        (seen.purpose, seen.frame_bytes) = (purpose, frame_bytes);
        fill(&mut seen);
        // Cannot be full: the channel has room for all.
        drop(self.seen.0.try_send(seen));
    }
}

impl WatchedPacket {
    fn empty() -> Self {
        let fate = Fate::Dropped(DropReason::NotIp);
        let frame = Vec::with_capacity(KEPT_BYTES);
        Self {
            purpose: Purpose::Trace,
            frame,
            frame_bytes: 0,
            input: 0,
            vrf: 0,
            tsc: 0,
            next_hop: None,
            fate,
        }
    }
}
