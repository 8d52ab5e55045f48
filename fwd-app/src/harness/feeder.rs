//! The feeder: copies frames of the trace into fresh mbufs and puts them in the RX rings of the forwarder's ports.
//!
//! At full speed it keeps at most a window of packets inside the forwarder, no more than a TX ring holds, so that full
//! speed alone never costs a packet. Under a rate it sends what is due and is held up by nothing but an empty mempool; in a trial of a
//! search nothing holds it up, see [`Pacer`].

use super::source::{NextFrame, Source};
use super::trials::pacer::{Paced, Pacer};
use crate::forwarder::updates::Applied;
use dpdk_ffi::{Burst, DpdkError, Eal, Mempool, RingProducer};
use std::sync::Arc;

/// Packets fed at once, at most: large enough to be cheap, small enough that the sink gets its turn.
const BURST: usize = 256;

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

/// Times that a packet was due and had not been read from the file yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadWaits {
    /// How many times.
    pub(crate) count: u64,
    /// How long together, cycles.
    pub(crate) cycles: u64,
    /// How long the longest of them was, cycles.
    pub(crate) cycles_max: u64,
}

/// See the module.
pub(crate) struct Feeder {
    /// Those that mbufs are from, as the source says: one, or two for a trace that is read meanwhile.
    pools: Vec<Mempool>,
    rings: Vec<RingProducer>,
    /// Packets on their way to each ring.
    bursts: Vec<Burst>,
    /// When they are due.
    pacer: Pacer,
    /// Whether nothing more is to be fed in this trial.
    is_over: bool,
    /// Packets inside the forwarder at most.
    window: u64,
    /// Packets that are in a ring or beyond.
    fed: u64,
    /// Whether the next packet waits for others to come back.
    is_held_up: bool,
    /// Since when there is room for a packet that has not been read.
    behind_tsc: Option<u64>,
    read_waits: ReadWaits,
    /// How far the updates are.
    applied: Arc<Applied>,
}

impl Feeder {
    /// Over `rings`, with mbufs of `pools`, of which `window` are inside the forwarder at most, when `pacer` says.
    pub(crate) fn new(
        eal: &Eal,
        pools: Vec<Mempool>,
        rings: Vec<RingProducer>,
        (pacer, window): (Pacer, u64),
        applied: Arc<Applied>,
    ) -> Self {
        let bursts = rings.iter().map(|_| Burst::with_capacity(eal, BURST)).collect();
        let (is_over, behind_tsc, read_waits) = (true, None, ReadWaits::default());
        Self {
            pools,
            rings,
            bursts,
            pacer,
            is_over,
            window,
            fed: 0,
            is_held_up: false,
            behind_tsc,
            read_waits,
            applied,
        }
    }

    /// Begins a trial.
    pub(crate) fn begin(&mut self, paced: Paced) {
        self.pacer.begin(paced, dpdk_ffi::tsc());
        self.is_over = false;
    }

    /// Feeds what may be fed now of `source`, with `gone` packets sent or dropped so far. Answers how many packets went in.
    /// `stage_cycles`: how long the forwarder's stages took since the last call, where they share the lcore.
    ///
    /// # Errors
    /// [`DpdkError`] when a frame fits no chain of mbufs; an empty pool is no error unless nothing is on its way back.
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
                // `inside` may be 0 while fragments are on their way that no stage has counted yet.
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
        self.is_held_up = !self.is_over && (is_full || copied == free);
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
            // A ring that is full: its packets are still here, and its next one must wait behind them.
            return Err(DpdkError::Exhausted { pool: "burst".into(), wanted: 1, available: 0, size: BURST });
        }
        pool.alloc_burst(burst, 1)?;
        if let Err(error) = burst.append_data(at, bytes, pool) {
            burst.truncate_free(at);
            return Err(error);
        }
        burst.set_tag(at, Tag { sequence, updates: self.applied.done() }.pack());
        Ok(())
    }

    /// There is room for a packet at `now`, and none has been read.
    fn note_behind(&mut self, source: &Source, now: u64) {
        if source.is_behind() {
            self.behind_tsc.get_or_insert(now);
        }
    }

    /// The packet that there was room for has been read at `now`; it was due at `due_tsc`.
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

    /// Feeds nothing more in this trial.
    pub(crate) fn stop(&mut self) {
        self.is_over = true;
    }

    /// Whether every packet of the trial has been fed.
    pub(crate) fn is_done(&self, source: &Source) -> bool {
        (self.is_over || source.is_over()) && self.fed == source.sequence()
    }

    /// Which of the trial's packets were not fed, and why.
    pub(crate) fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Whether the next packet cannot be fed before others have come back.
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Packets fed.
    pub(crate) fn fed(&self) -> u64 {
        self.fed
    }

    /// When packet `sequence`, which is inside the forwarder, was meant to be sent, cycles; `None` at full speed.
    pub(crate) fn intended_tsc(&self, sequence: u64) -> Option<u64> {
        self.pacer.intended_tsc(sequence)
    }

    /// The pools that mbufs are from.
    pub(crate) fn pools(&self) -> &[Mempool] {
        &self.pools
    }

    /// Times that it waited for the file.
    pub(crate) fn read_waits(&self) -> ReadWaits {
        self.read_waits
    }

    /// Updates that may be in service now.
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
