//! The feeder: copies frames of the trace into fresh mbufs and puts them in the RX rings of the forwarder's ports.
//!
//! At most a window of packets is inside the forwarder. It fits a TX ring, so full speed alone never loses a packet. A full window or an
//! empty mempool delays packets; in a trial of a search the packets due meanwhile are missed instead, see [`Pacer`].

use super::deal::NextFrame;
use super::source::Source;
use super::stream::ReadWaits;
use super::trials::pacer::{Paced, Pacer};
use crate::forwarder::updates::Applied;
use dpdk_ffi::{Burst, DpdkError, Eal, Mempool, RingProducer};
use std::sync::Arc;

/// Most packets fed in one poll: large enough to amortise the enqueue, small enough not to starve the sink.
const BURST: usize = 256;

/// Mbufs allocated at a time.
const SPARES: usize = 32;

/// The per-packet tag: the sequence number, and the number of updates in service when the packet was fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) sequence: u64,
    /// Modulo 2^24; [`Self::updates_done`] restores the full number.
    pub(crate) updates: u64,
}

/// 2^40 packets are three hours at 100 Mpps.
const SEQUENCE_BITS: u32 = 40;
const UPDATES_MASK: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;

impl Tag {
    pub(crate) fn pack(self) -> u64 {
        (self.updates & UPDATES_MASK) << SEQUENCE_BITS | self.sequence & ((1 << SEQUENCE_BITS) - 1)
    }

    pub(crate) fn unpack(tag: u64) -> Self {
        Self { sequence: tag & ((1 << SEQUENCE_BITS) - 1), updates: tag >> SEQUENCE_BITS }
    }

    /// Restores the full number, given that `begun` updates have begun by now. Exact while fewer than 2^24 begin during the packet's stay:
    /// 16 s at a million a second.
    pub(crate) fn updates_done(self, begun: u64) -> u64 {
        begun.saturating_sub(begun.wrapping_sub(self.updates) & UPDATES_MASK)
    }
}

pub(crate) struct Feeder {
    /// One pool, or two for a trace that is streamed from its file.
    pools: Vec<Mempool>,
    rings: Vec<RingProducer>,
    /// Packets not yet enqueued, by ring.
    bursts: Vec<Burst>,
    /// Empty mbufs of the pool in use; none between two polls.
    spares: Burst,
    pacer: Pacer,
    /// Feeds nothing more in this trial.
    is_over: bool,
    window: u64,
    fed: u64,
    is_held_up: bool,
    /// More packets were due and had room than one poll feeds.
    is_at_limit: bool,
    /// Time stamp since which there is room for a packet that has not been read.
    behind_tsc: Option<u64>,
    read_waits: ReadWaits,
    applied: Arc<Applied>,
}

impl Feeder {
    pub(crate) fn new(
        eal: &Eal,
        pools: Vec<Mempool>,
        rings: Vec<RingProducer>,
        pacer: Pacer,
        window: u64,
        applied: Arc<Applied>,
    ) -> Self {
        let bursts = rings.iter().map(|_| Burst::with_capacity(eal, BURST)).collect();
        let (is_over, behind_tsc, read_waits) = (true, None, ReadWaits::default());
        Self {
            pools,
            rings,
            bursts,
            spares: Burst::with_capacity(eal, SPARES),
            pacer,
            is_over,
            window,
            fed: 0,
            is_held_up: false,
            is_at_limit: false,
            behind_tsc,
            read_waits,
            applied,
        }
    }

    pub(crate) fn begin(&mut self, paced: Paced) {
        self.pacer.begin(paced, dpdk_ffi::tsc());
        self.is_over = false;
    }

    /// Feeds the packets that are due and have room, and returns their number. `gone` counts packets sent or dropped so far; `stage_cycles`
    /// is the time since the last call spent in stages on this lcore.
    ///
    /// # Errors
    /// [`DpdkError`] when a frame fits no chain of mbufs, or the pool is empty and no packet will return to it.
    pub(crate) fn poll(
        &mut self,
        source: &mut Source,
        gone: u64,
        stage_cycles: u64,
    ) -> Result<u64, DpdkError> {
        let now = dpdk_ffi::tsc();
        if !self.is_over {
            self.pacer.wake(now, stage_cycles);
            self.is_over = self.pacer.is_over(now) || source.is_over();
        }
        let sequence = source.sequence();
        let inside = sequence - gone.min(sequence);
        let free = self.window.saturating_sub(inside);
        let (room, mut copied, mut is_full) = (free.min(BURST as u64), 0, false);
        while copied < room && !self.is_over {
            let Some(next) = source.next() else {
                self.note_behind(source, now);
                break;
            };
            let Some(due) = self.pacer.due(next.due) else { break };
            if self.behind_tsc.is_some() {
                self.note_read(due, now);
            }
            if due > now {
                break;
            }
            let (sequence, pool) = (next.sequence, next.pool);
            match self.copy(next) {
                Ok(()) => {}
                // `inside` may be 0 while fragments are in flight that no stage has counted yet.
                Err(DpdkError::Exhausted { .. })
                    if copied > 0 || inside > 0 || !self.pools[pool].is_whole() =>
                {
                    is_full = true;
                    break;
                }
                Err(error) => return Err(error),
            }
            self.pacer.feed(sequence, due);
            copied += 1;
            source.advance();
        }
        self.spares.free_all();
        self.is_held_up = !self.is_over && (is_full || copied == free);
        self.is_at_limit = !self.is_over && copied == BURST as u64 && copied < free;
        if self.is_held_up {
            self.pacer.find_full(now);
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

    fn copy(&mut self, next: NextFrame<'_>) -> Result<(), DpdkError> {
        let NextFrame { sequence, ring, pool, bytes, .. } = next;
        let (burst, pool) = (&mut self.bursts[ring], &self.pools[pool]);
        let at = burst.len();
        if burst.room() == 0 {
            // The ring is full and its burst still waits: the next packet must queue behind it.
            return Err(DpdkError::Exhausted { pool: "burst".into(), wanted: 1, available: 0, size: BURST });
        }
        if self.spares.is_empty() {
            pool.alloc_burst(&mut self.spares, SPARES).or_else(|_| pool.alloc_burst(&mut self.spares, 1))?;
            self.spares.prefetch_data();
        }
        burst.push_last_of(&mut self.spares);
        if let Err(error) = burst.append_data(at, bytes, pool) {
            burst.truncate_free(at);
            // The caller asks whether the pool is whole.
            self.spares.free_all();
            return Err(error);
        }
        burst.set_tag(at, Tag { sequence, updates: self.applied.done() }.pack());
        Ok(())
    }

    fn note_behind(&mut self, source: &Source, now: u64) {
        if source.is_behind() {
            self.behind_tsc.get_or_insert(now);
        }
    }

    fn note_read(&mut self, due_tsc: u64, now: u64) {
        let Some(since) = self.behind_tsc.take() else { return };
        let cycles = now.saturating_sub(since.max(due_tsc));
        if cycles > 0 {
            let ReadWaits { count, cycles: sum, cycles_max } = &mut self.read_waits;
            *count += 1;
            *sum += cycles;
            *cycles_max = cycles.max(*cycles_max);
        }
    }

    pub(crate) fn stop(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn is_done(&self, source: &Source) -> bool {
        (self.is_over || source.is_over()) && self.fed == source.sequence()
    }

    pub(crate) fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    pub(crate) fn is_at_limit(&self) -> bool {
        self.is_at_limit
    }

    pub(crate) fn fed(&self) -> u64 {
        self.fed
    }

    pub(crate) fn intended_tsc(&self, sequence: u64) -> Option<u64> {
        self.pacer.intended_tsc(sequence)
    }

    pub(crate) fn pools(&self) -> &[Mempool] {
        &self.pools
    }

    pub(crate) fn read_waits(&self) -> ReadWaits {
        self.read_waits
    }

    pub(crate) fn updates_begun(&self) -> u64 {
        self.applied.begun()
    }
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
