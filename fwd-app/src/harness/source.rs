//! What is fed, in order: the frames of a trace in memory, again and again, or those of a trace that is read meanwhile.
//!
//! The feeder takes frames here, and the sink finds here what a packet was that has left, by its sequence number.

use super::deal::Dealer;
use super::feeder::ReadWaits;
use super::schedule::{OfferedRate, TraceTimes};
use super::stream::{Streamed, TraceStream};
use super::trace::{Trace, TraceFacts};
use super::verify::{Expected, Verifier, VrfReferences};
use dpdk_ffi::Mempool;
use std::sync::Arc;

/// Packets of a replay, at most: their numbers fit what an mbuf carries.
pub(super) const PACKETS_MAX: u64 = 1 << 40;

/// Frames in memory, and what is known of each before it is fed.
#[derive(Default)]
pub(crate) struct TracePart {
    /// The frames.
    pub(crate) trace: Arc<Trace>,
    /// Frames of the trace before these.
    pub(super) first: usize,
    /// Which input each goes to.
    pub(super) ring_of: Vec<u16>,
    /// The number of the VRF that each is in.
    pub(super) vrf_of: Vec<usize>,
    /// With `--verify`: what must become of each.
    pub(super) expected: Option<Expected>,
}

impl TracePart {
    /// The frames of `trace`, dealt by `dealer`, and judged by `tables` if there are any.
    pub(crate) fn new(trace: Arc<Trace>, dealer: &Dealer, tables: Option<&VrfReferences>) -> Self {
        let mut part = Self { trace, ..Self::default() };
        part.deal(dealer, tables);
        part
    }

    /// Works out what is known of each frame.
    pub(super) fn deal(&mut self, dealer: &Dealer, tables: Option<&VrfReferences>) {
        let Self { trace, ring_of, vrf_of, expected, .. } = self;
        dealer.deal(trace, ring_of, vrf_of);
        if let Some(tables) = tables {
            expected.get_or_insert_default().judge(tables, trace, vrf_of);
        }
    }
}

/// The next frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextFrame<'a> {
    /// Its number over all loops.
    pub(super) sequence: u64,
    /// When it is due by the times of the trace, cycles from the first one; 0 where these do not matter.
    pub(super) due: u64,
    /// Which input it goes to.
    pub(super) ring: usize,
    /// Which of the feeder's pools its mbufs are from.
    pub(super) pool: usize,
    /// Its bytes.
    pub(super) bytes: &'a [u8],
}

/// A frame that was fed.
pub(super) struct FedFrame<'a> {
    /// Where it is.
    pub(super) part: &'a mut TracePart,
    /// Which of the part it is.
    pub(super) frame: usize,
}

/// See the module.
pub(crate) enum Source {
    /// A trace in memory.
    Memory(TraceInMemory),
    /// One that is read meanwhile.
    Stream(TraceStream),
}

/// A trace in memory, several times in a row.
pub(crate) struct TraceInMemory {
    pub(super) part: TracePart,
    /// When frames are due, if the capture's times say.
    times: Option<TraceTimes>,
    /// The next packet: its number, and the same as frame and loop.
    sequence: u64,
    frame: usize,
    turn: u64,
    /// Packets in all.
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
    /// The frames of `part`, `loops` times.
    pub(crate) fn memory(part: TracePart, loops: u64) -> Self {
        let total = (part.trace.len() as u64).saturating_mul(loops).min(PACKETS_MAX);
        Self::Memory(TraceInMemory { part, times: None, sequence: 0, frame: 0, turn: 0, total })
    }

    /// Says when packets are due where `rate` leaves that to the trace, on a clock of `tsc_hz`.
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

    /// The trace, if it is in memory.
    pub(super) fn in_memory(&self) -> Option<&TracePart> {
        match self {
            Self::Memory(memory) => Some(&memory.part),
            Self::Stream(_) => None,
        }
    }

    /// Bytes of a frame, the mean; of a trace that is read meanwhile, of what has been read.
    pub(super) fn frame_bytes_mean(&self) -> f64 {
        match self {
            Self::Memory(memory) => memory.part.trace.frame_bytes_mean(),
            Self::Stream(stream) => stream.frame_bytes_mean(),
        }
    }

    /// The next frame; `None` when it has not been read yet, or there is none.
    pub(super) fn next(&mut self) -> Option<NextFrame<'_>> {
        match self {
            Self::Memory(memory) => memory.next(),
            Self::Stream(stream) => stream.next(),
        }
    }

    /// Goes on to the frame after [`Self::next`]'s.
    pub(super) fn advance(&mut self) {
        match self {
            Self::Memory(memory) => memory.advance(),
            Self::Stream(stream) => stream.advance(),
        }
    }

    /// The number of the next frame.
    pub(super) fn sequence(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.sequence,
            Self::Stream(stream) => stream.sequence,
        }
    }

    /// Whether there is no next frame and will be none.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.sequence >= memory.total,
            Self::Stream(stream) => stream.is_over,
        }
    }

    /// Gives no frame any more.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Memory(memory) => memory.total = memory.sequence,
            Self::Stream(stream) => stream.is_over = true,
        }
    }

    /// Whether the next frame waits for the file to be read, and not for packets to leave.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_behind())
    }

    /// Whether the next frame cannot be read before packets have left.
    pub(super) fn is_held_up(&self) -> bool {
        matches!(self, Self::Stream(stream) if stream.is_held_up())
    }

    /// What packet `sequence` was; `None` when nothing fed with it was inside any more.
    pub(super) fn find(&mut self, sequence: u64) -> Option<FedFrame<'_>> {
        match self {
            Self::Memory(memory) => Some(memory.find(sequence)),
            Self::Stream(stream) => stream.find(sequence),
        }
    }

    /// Makes room for more to be read when packets have left.
    pub(super) fn recycle(&mut self, pools: &[Mempool], verifier: Option<&mut Verifier>) {
        if let Self::Stream(stream) = self {
            stream.recycle(|pool| pools[pool].is_whole(), verifier);
        }
    }

    /// Ends the account of `verifier`, after the first `fed` packets were fed, none of which is inside.
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

    /// How the file was read when it was not in memory, and the feeder waited so for it.
    pub(super) fn streamed(&mut self, waits: ReadWaits) -> Option<Streamed> {
        match self {
            Self::Memory(_) => None,
            Self::Stream(stream) => Some(stream.ended(waits)),
        }
    }

    /// What is known of the trace, or of as much as was read.
    pub(crate) fn facts(&self) -> TraceFacts {
        match self {
            Self::Memory(memory) => memory.part.trace.facts,
            Self::Stream(stream) => stream.facts(),
        }
    }
}
