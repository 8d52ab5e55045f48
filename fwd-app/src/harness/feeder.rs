//! The feeder: copies frames of the trace into fresh mbufs and puts them in the RX rings of the forwarder's ports.
//!
//! At full speed it keeps at most a window of packets inside the forwarder, no more than a TX ring holds, so that full
//! speed alone never costs a packet. Under a rate it sends what is due and is held up by nothing but an empty mempool.

use super::schedule::Schedule;
use super::trace::Trace;
use crate::datapath::check::{self, Destination};
use crate::forwarder::updates::Applied;
use dpdk_ffi::{Burst, DpdkError, Eal, Mempool, RingProducer};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Packets fed at once, at most: large enough to be cheap, small enough that the sink gets its turn.
const BURST: usize = 256;

/// What is fed.
pub(crate) struct Load {
    /// The frames.
    pub(crate) trace: Arc<Trace>,
    /// When.
    pub(crate) schedule: Schedule,
    /// Which ring each frame goes to.
    pub(crate) ring_of: Vec<u16>,
    /// How often.
    pub(crate) loops: u64,
}

/// What a packet carries with it: its number over all loops, and how many updates were in service when it was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Number over all loops, below 2^40.
    pub(crate) sequence: u64,
    /// Updates, modulo 2^24: see [`Self::updates_done`].
    pub(crate) updates: u64,
}

/// Bits of a tag that are the sequence number: at 100 Mpps three hours.
const SEQUENCE_BITS: u32 = 40;
/// What remains of a tag for the number of updates.
const UPDATES_MASK: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;

impl Tag {
    /// As the number that an mbuf carries.
    pub(crate) fn pack(self) -> u64 {
        (self.updates & UPDATES_MASK) << SEQUENCE_BITS | self.sequence & ((1 << SEQUENCE_BITS) - 1)
    }

    /// From the number that an mbuf carries.
    pub(crate) fn unpack(tag: u64) -> Self {
        Self { sequence: tag & ((1 << SEQUENCE_BITS) - 1), updates: tag >> SEQUENCE_BITS }
    }

    /// How many updates were in service when the packet was fed, when `begun` have begun by now. Right as long as a packet
    /// stays inside for fewer than 2^24 updates: at a million a second, 16 s.
    pub(crate) fn updates_done(self, begun: u64) -> u64 {
        begun.saturating_sub(begun.wrapping_sub(self.updates) & UPDATES_MASK)
    }
}

/// See the module.
pub(crate) struct Feeder {
    trace: Arc<Trace>,
    schedule: Schedule,
    pool: Mempool,
    rings: Vec<RingProducer>,
    /// Which ring each frame goes to.
    ring_of: Vec<u16>,
    /// Packets on their way to each ring.
    bursts: Vec<Burst>,
    next: Position,
    /// Packets to be fed in all.
    total: u64,
    /// Packets inside the forwarder at most.
    window: u64,
    /// Packets that are in a ring or beyond.
    fed: u64,
    /// When the first packet was due.
    start_tsc: Option<u64>,
    /// How far the updates are.
    applied: Arc<Applied>,
}

/// The next packet: its number, and the same as frame and loop.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    sequence: u64,
    frame: usize,
    turn: u64,
}

impl Feeder {
    /// Over `rings`, with mbufs of `pool`, of which `window` are inside the forwarder at most.
    pub(crate) fn new(
        eal: &Eal,
        load: Load,
        pool: Mempool,
        rings: Vec<RingProducer>,
        window: u64,
        applied: Arc<Applied>,
    ) -> Self {
        let bursts = rings.iter().map(|_| Burst::with_capacity(eal, BURST)).collect();
        let total = (load.trace.len() as u64).saturating_mul(load.loops).min(1 << SEQUENCE_BITS);
        let Load { trace, schedule, ring_of, .. } = load;
        let (next, fed, start_tsc) = (Position::default(), 0, None);
        Self { trace, schedule, pool, rings, ring_of, bursts, next, total, window, fed, start_tsc, applied }
    }

    /// Feeds what may be fed now, with `gone` packets sent or dropped so far. Answers how many packets went in.
    ///
    /// # Errors
    /// [`DpdkError`] when a frame fits no chain of mbufs; an empty pool is no error unless nothing is on its way back.
    pub(crate) fn poll(&mut self, gone: u64) -> Result<u64, DpdkError> {
        let now = dpdk_ffi::tsc();
        let start = *self.start_tsc.get_or_insert(now);
        let inside = self.next.sequence - gone.min(self.next.sequence);
        let room = self.window.saturating_sub(inside).min(BURST as u64);
        let mut copied = 0;
        while copied < room && self.next.sequence < self.total {
            let Position { sequence, frame, turn } = self.next;
            if self.schedule.is_paced() && start + self.schedule.due(sequence, frame, turn) > now {
                break;
            }
            let ring = usize::from(self.ring_of[frame]);
            match self.copy(ring, frame, sequence) {
                Ok(()) => {}
                Err(DpdkError::Exhausted { .. }) if copied > 0 || inside > 0 => break,
                Err(error) => return Err(error),
            }
            copied += 1;
            let wraps = frame + 1 == self.trace.len();
            self.next = Position {
                sequence: sequence + 1,
                frame: if wraps { 0 } else { frame + 1 },
                turn: turn + u64::from(wraps),
            };
        }
        let mut moved = 0;
        for (burst, ring) in self.bursts.iter_mut().zip(&mut self.rings) {
            if !burst.is_empty() {
                moved += ring.enqueue_burst(burst) as u64;
            }
        }
        self.fed += moved;
        Ok(moved)
    }

    fn copy(&mut self, ring: usize, frame: usize, sequence: u64) -> Result<(), DpdkError> {
        let burst = &mut self.bursts[ring];
        let at = burst.len();
        if burst.room() == 0 {
            // A ring that is full: its packets are still here, and its next one must wait behind them.
            return Err(DpdkError::Exhausted { pool: "burst".into(), wanted: 1, available: 0, size: BURST });
        }
        self.pool.alloc_burst(burst, 1)?;
        if let Err(error) = burst.append_data(at, self.trace.frame(frame), &self.pool) {
            burst.truncate_free(at);
            return Err(error);
        }
        burst.set_tag(at, Tag { sequence, updates: self.applied.done() }.pack());
        Ok(())
    }

    /// Feeds nothing more.
    pub(crate) fn stop(&mut self) {
        self.total = self.next.sequence;
    }

    /// Whether every packet that is to be fed has been.
    pub(crate) fn is_done(&self) -> bool {
        self.fed == self.total
    }

    /// Packets fed.
    pub(crate) fn fed(&self) -> u64 {
        self.fed
    }

    /// When packet `sequence` was meant to be sent, cycles; `None` at full speed.
    pub(crate) fn intended_tsc(&self, sequence: u64) -> Option<u64> {
        if !self.schedule.is_paced() {
            return None;
        }
        let frames = self.trace.len() as u64;
        let (turn, frame) = (sequence / frames, usize::try_from(sequence % frames).unwrap_or(0));
        Some(self.start_tsc? + self.schedule.due(sequence, frame, turn))
    }

    /// Updates that may be in service now.
    pub(crate) fn updates_begun(&self) -> u64 {
        self.applied.begun()
    }

    /// Which ring a frame goes to.
    pub(crate) fn ring_of(&self, frame: usize) -> usize {
        usize::from(self.ring_of[frame])
    }
}

/// Which of `rings` each frame of the trace goes to: by its addresses, so that a flow (fragments included) stays in one
/// ring; what is no IP packet goes to the first.
pub(crate) fn deal(trace: &Trace, rings: u16) -> Vec<u16> {
    let deal_one = |i| {
        let frame = trace.frame(i);
        let ip_at = match super::reference::checked(frame) {
            Ok(checked) => usize::from(checked.ip_at),
            Err(_) => check::ETHERNET_BYTES,
        };
        let addresses = match super::reference::checked(frame).map(|checked| checked.destination) {
            Ok(Destination::V4(_)) => frame.get(ip_at + 12..ip_at + 20),
            Ok(Destination::V6(_)) => frame.get(ip_at + 8..ip_at + 40),
            Err(_) => None,
        };
        let Some(addresses) = addresses else { return 0 };
        let mut hasher = FxHasher::default();
        addresses.hash(&mut hasher);
        // The upper bits are the good ones of this hash.
        u16::try_from((u128::from(hasher.finish()) * u128::from(rings)) >> 64).unwrap_or(0)
    };
    (0..trace.len()).map(deal_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_hold_both_numbers() {
        for tag in [(0, 0), ((1 << 40) - 1, 5), (7, (1 << 24) - 1)] {
            let tag = Tag { sequence: tag.0, updates: tag.1 };
            assert_eq!(Tag::unpack(tag.pack()), tag);
        }
    }

    #[test]
    fn the_number_of_updates_is_told_from_its_lower_bits() {
        for (updates, begun) in [
            (0, 0),
            (0, 5),
            ((1 << 24) - 1, (1 << 24) + 3),
            (77 << 24, 77 << 24),
            (1 << 30, (1 << 30) + (1 << 23)),
        ] {
            let tag = Tag::unpack(Tag { sequence: 1, updates }.pack());
            assert_eq!((tag.sequence, tag.updates_done(begun)), (1, updates));
        }
    }
}
