//! The frames to feed, in order: a trace in memory, repeated, or a trace streamed from its file.

use super::deal::{FedFrame, NextFrame, PACKETS_MAX, TracePart};
use super::schedule::{OfferedRate, TraceTimes};
use super::stream::{ReadWaits, Streamed, TraceStream};
use super::trace::TraceFacts;
use dpdk_ffi::Mempool;

pub(crate) enum Source {
    Memory(TraceInMemory),
    Stream(TraceStream),
}

pub(crate) struct TraceInMemory {
    pub(super) part: TracePart,
    times: Option<TraceTimes>,
    /// The next packet: sequence number, frame and pass.
    sequence: u64,
    frame: usize,
    turn: u64,
    total: u64,
}

impl TraceInMemory {
    fn next(&self) -> Option<NextFrame<'_>> {
        let Self { part, times, sequence, frame, turn, total } = self;
        let next = || NextFrame {
            sequence: *sequence,
            due: times.as_ref().map_or(0, |times| times.due(*frame, *turn)),
            ring: usize::from(part.ring_of[*frame]),
            pool: 0,
            bytes: part.trace.frame(*frame),
        };
        (sequence < total).then(next)
    }

    fn advance(&mut self) {
        let wraps = self.frame + 1 == self.part.trace.len();
        self.sequence += 1;
        self.frame = if wraps { 0 } else { self.frame + 1 };
        self.turn += u64::from(wraps);
    }

    fn find(&mut self, sequence: u64) -> FedFrame<'_> {
        let frames = self.part.trace.len() as u64;
        // Most packets are of this pass or the previous one. A division for each packet would slow the sink.
        let first = self.sequence - self.frame as u64;
        let frame = match (sequence.checked_sub(first), (sequence + frames).checked_sub(first)) {
            (Some(frame), _) | (_, Some(frame)) if frame < frames => frame,
            _ => sequence % frames,
        };
        FedFrame { part: &mut self.part, frame: usize::try_from(frame).unwrap_or(0) }
    }
}

impl Source {
    pub(crate) fn memory(part: TracePart, loops: u64) -> Self {
        let total = (part.trace.len() as u64).saturating_mul(loops).min(PACKETS_MAX);
        Self::Memory(TraceInMemory { part, times: None, sequence: 0, frame: 0, turn: 0, total })
    }

    /// Sets due times where `rate` leaves them to the trace, on a clock of `tsc_hz`.
    pub(super) fn pace(&mut self, rate: OfferedRate, tsc_hz: u64) {
        match self {
            Self::Memory(memory) => {
                memory.times = match rate {
                    OfferedRate::Times(factor) => Some(TraceTimes::new(&memory.part.trace, factor, tsc_hz)),
                    _ => None,
                };
            }
            Self::Stream(stream) => stream.set_clock(tsc_hz),
        }
    }

    pub(super) fn in_memory(&self) -> Option<&TracePart> {
        match self {
            Self::Memory(memory) => Some(&memory.part),
            Self::Stream(_) => None,
        }
    }

    /// Mean bytes of a frame; for a streamed trace, of its current chunk.
    pub(super) fn frame_bytes_mean(&self) -> f64 {
        match self {
            Self::Memory(memory) => memory.part.trace.frame_bytes_mean(),
            Self::Stream(stream) => stream.frame_bytes_mean(),
        }
    }

    /// The next frame; `None` at the end, and while it has not been read yet.
    pub(super) fn next(&mut self) -> Option<NextFrame<'_>> {
        match self {
            Self::Memory(memory) => memory.next(),
            Self::Stream(stream) => stream.next(),
        }
    }

    pub(super) fn advance(&mut self) {
        match self {
            Self::Memory(memory) => memory.advance(),
            Self::Stream(stream) => stream.advance(),
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.sequence,
            Self::Stream(stream) => stream.sequence,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.sequence >= memory.total,
            Self::Stream(stream) => stream.is_over,
        }
    }

    pub(super) fn stop(&mut self) {
        match self {
            Self::Memory(memory) => memory.total = memory.sequence,
            Self::Stream(stream) => stream.is_over = true,
        }
    }

    /// Whether the next frame waits for the file, not for packets to leave.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_behind())
    }

    /// Whether packets must leave before the next frame can be read.
    pub(super) fn is_held_up(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_held_up())
    }

    /// Looks up packet `sequence`; `None` when its chunk has been recycled.
    pub(super) fn find(&mut self, sequence: u64) -> Option<FedFrame<'_>> {
        match self {
            Self::Memory(memory) => Some(memory.find(sequence)),
            Self::Stream(stream) => stream.find(sequence),
        }
    }

    /// Frees chunks whose packets have all left, to read further. `each` gets them before; each of their frames was fed once.
    pub(super) fn recycle(&mut self, pools: &[Mempool], each: impl FnMut(&TracePart)) {
        if let Self::Stream(stream) = self {
            stream.recycle(|pool| pools[pool].is_whole(), each);
        }
    }

    /// Passes to `each` the parts that [`Self::recycle`] has not, and how often each frame was fed, once all `fed` packets have left.
    pub(super) fn close(&mut self, fed: u64, mut each: impl FnMut(&TracePart, &dyn Fn(usize) -> u64)) {
        match self {
            Self::Memory(memory) => {
                let frames = memory.part.trace.len() as u64;
                each(&memory.part, &|frame| fed / frames + u64::from((frame as u64) < fed % frames));
            }
            Self::Stream(stream) => stream.close(fed, each),
        }
    }

    pub(super) fn streamed(&mut self, waits: ReadWaits) -> Option<Streamed> {
        match self {
            Self::Memory(_) => None,
            Self::Stream(stream) => Some(stream.ended(waits)),
        }
    }

    pub(crate) fn facts(&self) -> TraceFacts {
        match self {
            Self::Memory(memory) => memory.part.trace.facts,
            Self::Stream(stream) => stream.facts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::{Captured, Trace};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_packet_is_found_in_any_pass() {
        let mut trace = Trace::default();
        for time_ns in 0..3 {
            trace.push(&Captured { bytes: &[0; 60], time_ns, port: 0 });
        }
        let part = TracePart { trace: Arc::new(trace), ring_of: vec![0; 3], ..TracePart::default() };
        let mut source = Source::memory(part, 9);
        for sequence in 0..27 {
            assert_eq!(source.next().map(|next| next.sequence), Some(sequence));
            source.advance();
            for fed in 0..=sequence {
                assert_eq!(
                    source.find(fed).map(|found| found.frame as u64),
                    Some(fed % 3),
                    "{fed} of {sequence}"
                );
            }
        }
    }
}
