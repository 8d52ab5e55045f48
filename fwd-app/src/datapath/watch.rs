//! Copies of packets for people who look on: the next N that are dropped, for a capture, or the next N of any fate, for a trace.
//!
//! While nobody looks on, a batch costs one load. Else lcores copy packets into buffers of a free list, as long as there are any, so
//! that nothing is allocated and nobody waits: what finds no buffer is counted as missed.

use super::{Batch, DropReason};
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
pub(crate) struct Seen {
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
    /// The port that it leaves by, with its new MACs, or why it was dropped.
    pub(crate) fate: Result<(u16, [u8; 12]), DropReason>,
}

/// What is looked at, and the way of the copies.
#[derive(Debug)]
pub(crate) struct Watch {
    /// How many more packets are wanted: dropped ones, and any.
    drops: AtomicU64,
    traces: AtomicU64,
    missed: AtomicU64,
    free: (Sender<Box<Seen>>, Receiver<Box<Seen>>),
    seen: (Sender<Box<Seen>>, Receiver<Box<Seen>>),
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
                drop(self.free.0.try_send(Box::new(Seen::empty())));
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
    pub(crate) fn next(&self) -> Option<Box<Seen>> {
        self.seen.1.try_recv().ok()
    }

    /// Returns a copy to the free list.
    pub(crate) fn give_back(&self, seen: Box<Seen>) {
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
            let reason = batch.drop_reason(place);
            let purposes = [(Purpose::Capture, reason.is_some()), (Purpose::Trace, true)];
            for (purpose, _) in purposes.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                self.copy(purpose, batch.packets.data(place), batch.packets.pkt_len(place), |seen| {
                    (seen.input, seen.vrf) = (batch.input, batch.vrf);
                    (seen.tsc, seen.next_hop) = (tsc, batch.next_hop(place));
                    seen.fate =
                        reason.map_or_else(|| Ok((batch.ports[place], batch.egress[place].macs)), Err);
                });
            }
        }
    }

    /// Looks at packets that a TX queue has no room for, as they would have left.
    #[cold]
    pub(crate) fn refused(&self, packets: &Burst, reason: DropReason) {
        let tsc = dpdk_ffi::tsc();
        for packet in packets.iter() {
            self.copy(Purpose::Capture, packet.data(), packet.pkt_len(), |seen| {
                (seen.input, seen.vrf, seen.tsc) = (usize::MAX, 0, tsc);
                (seen.next_hop, seen.fate) = (None, Err(reason));
            });
        }
    }

    /// Copies a packet if one more is wanted.
    fn copy(&self, purpose: Purpose, frame: &[u8], frame_bytes: u32, fill: impl FnOnce(&mut Seen)) {
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

impl Seen {
    fn empty() -> Self {
        let fate = Err(DropReason::NotIp);
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
