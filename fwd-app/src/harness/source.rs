//! The frames to feed, in order: a trace in memory, repeated, or a trace streamed from its file.
//!
//! The feeder takes frames from a `Source`; the sink looks up sent packets in it by sequence number.

use super::deal::Dealer;
use super::feeder::ReadWaits;
use super::schedule::{OfferedRate, TraceTimes};
use super::stream::{Streamed, TraceStream};
use super::trace::{Trace, TraceFacts};
use super::verify::{Expected, Verifier, VrfReferences};
use dpdk_ffi::Mempool;
use std::sync::Arc;

/// Most packets of a replay: sequence numbers must fit the tag of an mbuf.
pub(super) const PACKETS_MAX: u64 = 1 << 40;

/// Frames in memory with their precomputed metadata.
#[derive(Default)]
pub(crate) struct TracePart {
    pub(crate) trace: Arc<Trace>,
    /// Number of trace frames before this part.
    pub(super) first: usize,
    pub(super) ring_of: Vec<u16>,
    pub(super) vrf_of: Vec<usize>,
    /// Correct result of each frame; `None` without `--verify`.
    pub(super) expected: Option<Expected>,
}

impl TracePart {
    /// Distributes the frames of `trace` with `dealer`, and judges them by `tables` if given.
    pub(crate) fn new(trace: Arc<Trace>, dealer: &Dealer, tables: Option<&VrfReferences>) -> Self {
        let mut part = Self { trace, ..Self::default() };
        part.deal(dealer, tables);
        part
    }

    /// Computes input, VRF and expected result of each frame.
    pub(super) fn deal(&mut self, dealer: &Dealer, tables: Option<&VrfReferences>) {
        let Self { trace, ring_of, vrf_of, expected, .. } = self;
        dealer.deal(trace, ring_of, vrf_of);
        if let Some(tables) = tables {
            expected.get_or_insert_default().judge(tables, trace, vrf_of);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NextFrame<'a> {
    /// Sequence number over all passes.
    pub(super) sequence: u64,
    /// Due time by the trace, cycles from the first frame; 0 where the trace does not set it.
    pub(super) due: u64,
    pub(super) ring: usize,
    pub(super) pool: usize,
    pub(super) bytes: &'a [u8],
}

pub(super) struct FedFrame<'a> {
    pub(super) part: &'a mut TracePart,
    pub(super) frame: usize,
}

pub(crate) enum Source {
    Memory(TraceInMemory),
    Stream(TraceStream),
}

pub(crate) struct TraceInMemory {
    pub(super) part: TracePart,
    /// Due times, if the capture's time stamps set the pace.
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
        let frame = usize::try_from(sequence % self.part.trace.len() as u64).unwrap_or(0);
        FedFrame { part: &mut self.part, frame }
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

    /// Moves past the frame of [`Self::next`].
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

    /// Frees chunks whose packets have all left, to read further.
    pub(super) fn recycle(&mut self, pools: &[Mempool], verifier: Option<&mut Verifier>) {
        if let Self::Stream(stream) = self {
            stream.recycle(|pool| pools[pool].is_whole(), verifier);
        }
    }

    /// Closes the account of `verifier` after the first `fed` packets were fed and all have left.
    pub(super) fn close(&mut self, fed: u64, verifier: &mut Verifier) {
        match self {
            Self::Memory(memory) => {
                let frames = memory.part.trace.len() as u64;
                let times = |frame| fed / frames + u64::from((frame as u64) < fed % frames);
                verifier.close(&memory.part, times);
            }
            Self::Stream(stream) => stream.close(fed, verifier),
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
