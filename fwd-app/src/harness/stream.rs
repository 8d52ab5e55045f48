//! A trace read during the replay, through a bounded number of chunks.
//!
//! ```text
//! read_ahead -> full chunks -> fed from the last of `chunks` -> all its packets have left -> empty chunks -> read_ahead
//! ```
//!
//! A chunk may be reused when no packet of it is inside the forwarder. Drops have no sequence numbers and a slow engine may hold back an
//! old packet, so mbufs decide: packets come from two pools in turn. While one is in use, the mbufs of the other return (fragments use
//! their packet's pool). Once all are back, no packet fed before the last swap is inside, and the pools swap again.

use super::deal::{FedFrame, NextFrame, PACKETS_MAX, TracePart};
use super::read_ahead::{self, Read, StreamSpec, TraceChunk};
use super::trace::{Trace, TraceError, TraceFacts, TraceSpec};
use crate::error::ConfigError;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use std::collections::VecDeque;
use std::fs::Metadata;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// With 4 MB each, the chunks hold more than the largest window of frames of usual size.
pub(super) const CHUNKS: usize = 16;

/// Traces with more bytes of frames are streamed.
const MEMORY_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamWhen {
    /// Beyond [`MEMORY_BYTES_MAX`].
    Auto,
    Always,
    Never,
}

impl StreamWhen {
    /// `None` means that the trace is to be streamed. Files that can be read only once, such as pipes, are streamed only by `Always`.
    pub(crate) fn load(self, spec: &TraceSpec) -> Result<Option<Trace>, TraceError> {
        let file_bytes = std::fs::metadata(&spec.path).ok().filter(Metadata::is_file).map(|file| file.len());
        match (self, file_bytes) {
            (Self::Always, _) => Ok(None),
            (Self::Never, _) | (Self::Auto, None) => Trace::load_within(spec, usize::MAX),
            // Packet headers are short, so the frames of such a file exceed the limit; a compressed file expands to even more.
            (Self::Auto, Some(bytes)) if spec.limit.is_none() && bytes / 2 > MEMORY_BYTES_MAX as u64 => {
                Ok(None)
            }
            (Self::Auto, Some(_)) => Trace::load_within(spec, MEMORY_BYTES_MAX),
        }
    }
}

/// Waits for the file: a packet was due and had not been read yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadWaits {
    pub(crate) count: u64,
    pub(crate) cycles: u64,
    pub(crate) cycles_max: u64,
}

#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) waits: ReadWaits,
    pub(crate) chunks_max: usize,
    pub(crate) error: Option<TraceError>,
}

pub(crate) struct TraceStream {
    /// Chunks whose packets may be inside, in order; frames are fed from the last one.
    chunks: VecDeque<TraceChunk>,
    frame: usize,
    pub(super) sequence: u64,
    pool: usize,
    /// Packets below this sequence number that are still inside use the other pool.
    changed_at: u64,
    /// Chunks may have become reusable since the last check.
    may_recycle: bool,
    full: Receiver<Read>,
    empty: Sender<TraceChunk>,
    facts: Arc<Mutex<TraceFacts>>,
    cycles_per_ns: f64,
    pub(super) is_over: bool,
    error: Option<TraceError>,
    used_max: usize,
}

impl TraceStream {
    /// Waits for the first chunk, or until `is_over`. Must be called before EAL pins the main thread: the reader inherits its CPU affinity.
    ///
    /// # Errors
    /// [`TraceError`] when the file fails before its first packet; [`ConfigError::Invalid`] for several passes over something that is not
    /// a regular file; an error when the thread cannot be started.
    pub(crate) fn open(mut spec: StreamSpec, is_over: impl Fn() -> bool) -> anyhow::Result<Self> {
        if std::fs::metadata(&spec.trace.path).is_ok_and(|file| !file.is_file()) {
            if !matches!(spec.loops, 1 | u64::MAX) {
                let message =
                    format!("--loops {}: {} can be read only once", spec.loops, spec.trace.path.display());
                return Err(ConfigError::Invalid(message).into());
            }
            spec.loops = 1;
        }
        let ((full_sender, full), (empty, empties)) = (bounded(CHUNKS + 1), bounded(CHUNKS));
        for _ in 0..CHUNKS {
            let mut chunk = TraceChunk::default();
            chunk.clear();
            let _ = empty.send(chunk);
        }
        let facts = Arc::default();
        let mut stream = Self {
            chunks: VecDeque::with_capacity(CHUNKS),
            frame: 0,
            sequence: 0,
            pool: 0,
            changed_at: 0,
            may_recycle: false,
            full,
            empty,
            facts: Arc::clone(&facts),
            cycles_per_ns: 0.0,
            is_over: false,
            error: None,
            used_max: 0,
        };
        read_ahead::start(spec, full_sender, empties, facts)?;
        while !is_over() {
            match stream.full.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(chunk)) => {
                    stream.put(chunk);
                    break;
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(stream)
    }

    #[expect(clippy::cast_precision_loss, reason = "a clock's rate is below 2^53")]
    pub(super) fn set_clock(&mut self, tsc_hz: u64) {
        self.cycles_per_ns = tsc_hz as f64 / 1e9;
    }

    fn put(&mut self, mut chunk: TraceChunk) {
        chunk.first = self.sequence;
        self.chunks.push_back(chunk);
        self.frame = 0;
        self.may_recycle = true;
        self.used_max = self.used_max.max(self.chunks.len());
    }

    pub(super) fn next(&mut self) -> Option<NextFrame<'_>> {
        if self.is_over {
            return None;
        }
        if self.chunks.back().is_none_or(|chunk| self.frame == chunk.len()) && !self.next_chunk() {
            return None;
        }
        let (chunk, frame) = (self.chunks.back()?, self.frame);
        Some(NextFrame {
            sequence: self.sequence,
            due: due(chunk, frame, self.cycles_per_ns),
            ring: usize::from(chunk.part.ring_of[frame]),
            pool: self.pool,
            bytes: chunk.part.trace.frame(frame),
        })
    }

    fn next_chunk(&mut self) -> bool {
        match self.full.try_recv() {
            Ok(Ok(chunk)) => {
                self.put(chunk);
                return true;
            }
            Ok(Err(error)) => (self.error, self.is_over) = (Some(error), true),
            Err(TryRecvError::Disconnected) => self.is_over = true,
            Err(TryRecvError::Empty) => self.may_recycle = true,
        }
        false
    }

    pub(super) fn advance(&mut self) {
        self.frame += 1;
        self.sequence += 1;
        self.is_over |= self.sequence >= PACKETS_MAX;
    }

    /// Whether the reader has a free chunk, so that the next frame waits for the file.
    pub(super) fn is_behind(&self) -> bool {
        !self.is_over && self.chunks.len() < CHUNKS
    }

    pub(super) fn is_held_up(&self) -> bool {
        let is_fed = self.chunks.back().is_some_and(|chunk| self.frame == chunk.len());
        !self.is_over && self.chunks.len() == CHUNKS && is_fed
    }

    pub(super) fn find(&mut self, sequence: u64) -> Option<FedFrame<'_>> {
        let at = self.chunks.partition_point(|chunk| chunk.first <= sequence).checked_sub(1)?;
        let chunk = &mut self.chunks[at];
        let frame = usize::try_from(sequence - chunk.first).ok().filter(|frame| *frame < chunk.len())?;
        Some(FedFrame { part: &mut chunk.part, frame })
    }

    pub(super) fn frame_bytes_mean(&self) -> f64 {
        self.chunks.back().map_or(0.0, |chunk| chunk.part.trace.frame_bytes_mean())
    }

    /// Returns chunks without packets inside to the reader, after `each` had them. `is_whole` says whether all mbufs of a pool are free.
    pub(super) fn recycle(&mut self, is_whole: impl Fn(usize) -> bool, mut each: impl FnMut(&TracePart)) {
        if !std::mem::take(&mut self.may_recycle) || !is_whole(1 - self.pool) {
            return;
        }
        let gone = self.changed_at;
        while let Some(mut chunk) = self.chunks.pop_front_if(|chunk| chunk.first + chunk.len() as u64 <= gone)
        {
            each(&chunk.part);
            chunk.clear();
            let _ = self.empty.try_send(chunk);
        }
        (self.pool, self.changed_at) = (1 - self.pool, self.sequence);
    }

    /// Removes the remaining chunks, as [`Source::close`](super::source::Source::close).
    pub(super) fn close(&mut self, fed: u64, mut each: impl FnMut(&TracePart, &dyn Fn(usize) -> u64)) {
        for chunk in self.chunks.drain(..) {
            each(&chunk.part, &|frame| u64::from(chunk.first + (frame as u64) < fed));
        }
    }

    pub(super) fn facts(&self) -> TraceFacts {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ended(&mut self, waits: ReadWaits) -> Streamed {
        Streamed { waits, chunks_max: self.used_max, error: self.error.take() }
    }
}

/// Due time of a frame, cycles from the start; 0 at full speed.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of days in cycles fit 53 bits, and none is negative"
)]
fn due(chunk: &TraceChunk, frame: usize, cycles_per_ns: f64) -> u64 {
    chunk.due_ns.get(frame).map_or(0, |ns| (ns * cycles_per_ns) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::deal::Dealer;
    use super::super::schedule::OfferedRate;
    use super::*;
    use crate::forwarder::test_forwarder::bundled;
    use crate::topology::plan::Input;
    use std::thread::yield_now;

    /// The bundled capture, `loops` times: a chunk of 2,000 frames per pass.
    fn mix(loops: u64) -> TraceStream {
        let dealer = Dealer::new(&[Input { port: 0, queue: 0 }], false, &[]);
        let (trace, rate) = (TraceSpec::new(&bundled("mix.pcap")), OfferedRate::Max);
        TraceStream::open(StreamSpec { trace, loops, rate, dealer, tables: None }, || false).unwrap()
    }

    fn feed_all(stream: &mut TraceStream, is_whole: impl Fn(usize) -> bool) {
        while !stream.is_over && !stream.is_held_up() {
            feed(stream, &is_whole);
        }
    }

    fn feed(stream: &mut TraceStream, is_whole: impl Fn(usize) -> bool) {
        match stream.next() {
            Some(_) => stream.advance(),
            None => yield_now(),
        }
        stream.recycle(is_whole, |_| ());
    }

    #[test]
    fn chunks_are_bounded_and_are_used_anew_when_nothing_of_them_is_inside() {
        let mut stream = mix(50);
        // Mbufs of both pools are in use: the first packets may be inside.
        feed_all(&mut stream, |_| false);
        assert_eq!((stream.sequence, stream.is_over), (16 * 2000, false));
        let frame = |stream: &mut TraceStream, sequence| stream.find(sequence).map(|fed| fed.frame);
        let frames = [0, 2001, 31_999, 32_000].map(|at| frame(&mut stream, at));
        assert_eq!(frames, [Some(0), Some(1), Some(1999), None]);
        // The second pool has been idle and is used from here on; packets inside hold mbufs of the first.
        feed(&mut stream, |pool| pool == 1);
        assert_eq!((stream.pool, stream.is_held_up(), frame(&mut stream, 0)), (1, true, Some(0)));
        feed(&mut stream, |pool| pool == 1);
        assert_eq!((stream.pool, stream.is_held_up(), frame(&mut stream, 0)), (1, true, Some(0)));
        feed(&mut stream, |pool| pool == 0);
        assert_eq!((stream.pool, stream.is_held_up(), frame(&mut stream, 31_999)), (0, false, None));
        feed_all(&mut stream, |_| true);
        assert_eq!((stream.sequence, stream.is_over, stream.used_max), (50 * 2000, true, 16));
        assert_eq!(stream.facts().frames, 2000);
    }
}
