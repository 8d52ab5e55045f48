//! The thread that reads a streamed trace ahead of the clock: it fills chunks with frames and precomputes input, VRF and verdict of each.

use super::deal::{Dealer, TracePart};
use super::expected::VrfReferences;
use super::interfaces::InterfacePorts;
use super::schedule::OfferedRate;
use super::trace::{Captured, TraceError, TraceFacts, TraceSpec};
use crate::threads;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of frames in a chunk; a longer frame has a chunk to itself.
const CHUNK_BYTES: usize = 4 << 20;
/// Most frames in a chunk, which bounds the memory for their metadata.
const CHUNK_FRAMES: usize = 1 << 15;

pub(crate) struct StreamSpec {
    pub(crate) trace: TraceSpec,
    pub(crate) loops: u64,
    pub(crate) rate: OfferedRate,
    pub(crate) dealer: Dealer,
    /// References that judge frames; `None` without `--verify`.
    pub(crate) tables: Option<Arc<VrfReferences>>,
}

pub(super) type Read = Result<TraceChunk, TraceError>;

#[derive(Default)]
pub(super) struct TraceChunk {
    pub(super) part: TracePart,
    /// Due time of each frame, nanoseconds from the start; empty at full speed.
    pub(super) due_ns: Vec<f64>,
    /// Sequence number of the first packet over all passes.
    pub(super) first: u64,
}

impl TraceChunk {
    pub(super) fn len(&self) -> usize {
        self.part.trace.len()
    }

    pub(super) fn clear(&mut self) {
        Arc::make_mut(&mut self.part.trace).clear(CHUNK_BYTES);
        self.due_ns.clear();
    }

    fn is_full_with(&self, bytes: usize) -> bool {
        let trace = &self.part.trace;
        trace.len() >= CHUNK_FRAMES || trace.len() > 0 && trace.bytes() + bytes > CHUNK_BYTES
    }
}

/// Computes due times frame by frame. A rate in bits a second uses the bits of each frame: the mean is not known in advance.
struct DueClock {
    rate: OfferedRate,
    bytes: u64,
    /// Start of the current pass over the file, nanoseconds.
    turn_ns: f64,
    first_ns: Option<u64>,
    last_ns: u64,
    frames: u64,
}

#[expect(clippy::cast_precision_loss, reason = "times of days in nanoseconds and counts below 2^53")]
impl DueClock {
    fn new(rate: OfferedRate) -> Self {
        Self { rate, bytes: 0, turn_ns: 0.0, first_ns: None, last_ns: 0, frames: 0 }
    }

    /// Due time of the next frame, nanoseconds from the start; `None` where the rate alone determines it.
    fn due_ns(&mut self, captured: &Captured<'_>) -> Option<f64> {
        let first_ns = *self.first_ns.get_or_insert(captured.time_ns);
        let due = match self.rate {
            OfferedRate::Bps(bps) => Some(self.bytes as f64 * 8e9 / bps),
            OfferedRate::Times(factor) => {
                Some(self.turn_ns + captured.time_ns.saturating_sub(first_ns) as f64 / factor)
            }
            _ => None,
        };
        self.bytes += captured.bytes.len() as u64;
        self.last_ns = captured.time_ns;
        self.frames += 1;
        due
    }

    /// Starts the next pass: its first packet follows the last one by the mean gap.
    fn start_pass(&mut self) {
        if let (OfferedRate::Times(factor), Some(first_ns)) = (self.rate, self.first_ns) {
            let length = self.last_ns.saturating_sub(first_ns) as f64 / factor;
            self.turn_ns += length + length / self.frames.saturating_sub(1).max(1) as f64;
        }
        (self.first_ns, self.frames) = (None, 0);
    }
}

/// Starts the thread: it fills chunks from `empty` and sends them to `full` until the trace ends or the receiver is dropped.
pub(super) fn start(
    spec: StreamSpec,
    full: Sender<Read>,
    empty: Receiver<TraceChunk>,
    facts: Arc<Mutex<TraceFacts>>,
) -> anyhow::Result<()> {
    let mut reader = ReadAhead {
        clock: DueClock::new(spec.rate),
        spec,
        full,
        empty,
        facts,
        seen: TraceFacts::default(),
        chunk: None,
        before: 0,
    };
    let work = move || {
        // Without this a panic in the parser would look like the end of the trace.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reader.run())) {
            let (path, message) = (reader.spec.trace.path.clone(), dpdk_ffi::panic_message(panic.as_ref()));
            let _ = reader.full.send(Err(TraceError::Panicked { path, message }));
        }
    };
    threads::spawn("trace", work).context("cannot start the thread that reads the trace")?;
    Ok(())
}

struct ReadAhead {
    spec: StreamSpec,
    clock: DueClock,
    full: Sender<Read>,
    empty: Receiver<TraceChunk>,
    facts: Arc<Mutex<TraceFacts>>,
    seen: TraceFacts,
    chunk: Option<TraceChunk>,
    /// Frames of the file before that chunk.
    before: usize,
}

impl ReadAhead {
    fn run(&mut self) {
        let mut ports = InterfacePorts::new(&self.spec.trace.port_of);
        for turn in 0..self.spec.loops {
            let mut is_closed = false;
            let trace = self.spec.trace.clone();
            let read = trace.frames(&mut ports, |captured, facts| {
                if turn == 0 {
                    self.seen = *facts;
                }
                is_closed = self.append(&captured).is_none();
                if is_closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if is_closed || self.send().is_none() {
                return;
            }
            match read.and_then(|facts| trace.check_interfaces(&ports).map(|()| facts)) {
                Ok(facts) if turn == 0 => self.seen = facts,
                Ok(_) => {}
                Err(error) => {
                    let _ = self.full.send(Err(error));
                    return;
                }
            }
            self.publish_facts();
            self.clock.start_pass();
            self.before = 0;
        }
    }

    /// Appends a frame; `None` when the receiver is gone.
    fn append(&mut self, captured: &Captured<'_>) -> Option<()> {
        if self.chunk.as_ref().is_some_and(|chunk| chunk.is_full_with(captured.bytes.len())) {
            self.send()?;
        }
        let chunk = match &mut self.chunk {
            Some(chunk) => chunk,
            None => self.chunk.insert(self.empty.recv().ok()?),
        };
        Arc::make_mut(&mut chunk.part.trace).push(captured);
        chunk.due_ns.extend(self.clock.due_ns(captured));
        Some(())
    }

    /// Sends the chunk being filled; `None` when the receiver is gone.
    fn send(&mut self) -> Option<()> {
        let Some(mut chunk) = self.chunk.take() else { return Some(()) };
        chunk.part.first = self.before;
        chunk.part.deal(&self.spec.dealer, self.spec.tables.as_deref());
        self.before += chunk.len();
        self.publish_facts();
        self.full.send(Ok(chunk)).ok()
    }

    fn publish_facts(&self) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = self.seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::test_forwarder::bundled;
    use crate::harness::schedule::TraceTimes;
    use crate::harness::trace::Trace;

    #[test]
    fn frames_are_due_as_those_of_a_trace_in_memory() {
        let trace = Trace::load(&bundled("mix.pcap")).unwrap();
        for factor in [1.0, 0.5] {
            let times = TraceTimes::new(&trace, factor, 1_000_000_000);
            let mut clock = DueClock::new(OfferedRate::Times(factor));
            for turn in 0..3 {
                for frame in 0..trace.len() {
                    let (bytes, time_ns) = (trace.frame(frame), trace.time_ns(frame));
                    let due = clock.due_ns(&Captured { bytes, time_ns, port: 0 }).unwrap();
                    let wanted = times.due(frame, turn) as f64;
                    assert!(
                        (due - wanted).abs() < 4.0,
                        "x{factor}: {turn} {frame}: {due}, in memory {wanted}"
                    );
                }
                clock.start_pass();
            }
        }
    }

    #[test]
    fn bits_a_second_are_those_of_the_frames() {
        let mut clock = DueClock::new(OfferedRate::Bps(8000.0));
        let due = [60, 1514, 60].map(|bytes| {
            let bytes = &vec![0; bytes][..];
            clock.due_ns(&Captured { bytes, time_ns: 7, port: 0 }).unwrap()
        });
        assert_eq!(due, [0.0, 60e6, 1574e6]);
    }
}
