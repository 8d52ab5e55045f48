//! The capture that is replayed: its frames in one block of memory, with their times.

use super::make::FrameChanges;
use super::pcap_file::PcapFile;
use fib::capture::{self, CaptureError, UnknownLink};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// It cannot be read, or is damaged.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// No Ethernet frame can be made of a packet.
    #[error("{path}: packet {packet}: {source}")]
    Link { path: PathBuf, packet: usize, source: UnknownLink },
    /// It has no packet.
    #[error("{path}: there is no packet in it")]
    Empty { path: PathBuf },
    /// It ends before its first packet does.
    #[error("{path}: the file is cut short within its first packet")]
    CutShort { path: PathBuf },
}

/// One frame of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    start: usize,
    bytes: usize,
    time_ns: u64,
}

/// A capture in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    /// Frames of which the capture has less than was on the wire.
    pub(crate) snapped: usize,
    /// Whether the file ends within a packet; what came before it is here.
    pub(crate) truncated: bool,
}

impl Trace {
    /// Reads the first `limit` packets, or all, of a pcap or pcapng file, compressed or not, as Ethernet frames. A file that is cut short
    /// gives what is whole, if that is at least one packet.
    ///
    /// # Errors
    /// [`TraceError`].
    pub(crate) fn load(path: &Path, limit: Option<usize>) -> Result<Self, TraceError> {
        let (mut trace, mut made) = (Self::default(), Vec::new());
        trace.truncated = capture::read(path, |packet| {
            let fault = |source| TraceError::Link { path: path.to_owned(), packet: packet.number, source };
            trace.push(packet.ethernet(&mut made).map_err(fault)?, packet.time_ns);
            trace.snapped += usize::from(packet.wire_bytes > packet.bytes.len());
            let is_full = limit.is_some_and(|limit| trace.len() >= limit);
            Ok::<_, TraceError>(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        match (trace.frames.is_empty(), trace.truncated) {
            (true, true) => Err(TraceError::CutShort { path: path.to_owned() }),
            (true, false) => Err(TraceError::Empty { path: path.to_owned() }),
            (false, _) => Ok(trace),
        }
    }

    /// Adds a frame.
    pub(crate) fn push(&mut self, bytes: &[u8], time_ns: u64) {
        // A clock that steps back would make a packet due before the one ahead of it.
        let time_ns = time_ns.max(self.frames.last().map_or(0, |frame| frame.time_ns));
        self.frames.push(Frame { start: self.bytes.len(), bytes: bytes.len(), time_ns });
        self.bytes.extend_from_slice(bytes);
    }

    /// With these changes to its frames, in order.
    pub(crate) fn changed(self, changes: &mut FrameChanges) -> Self {
        if changes.is_none() {
            return self;
        }
        let mut changed = Self { snapped: self.snapped, truncated: self.truncated, ..Self::default() };
        let mut frame = Vec::new();
        for i in 0..self.len() {
            frame.clear();
            frame.extend_from_slice(self.frame(i));
            changes.apply(&mut frame);
            changed.push(&frame, self.time_ns(i));
        }
        changed
    }

    /// Writes it as pcap to `path`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut file = PcapFile::create(path)?;
        (0..self.len()).try_for_each(|i| file.write(self.time_ns(i), self.frame(i)))?;
        file.finish()
    }

    /// How many frames.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The bytes of frame `i`.
    pub(crate) fn frame(&self, i: usize) -> &[u8] {
        let Frame { start, bytes, .. } = self.frames[i];
        &self.bytes[start..start + bytes]
    }

    /// When frame `i` was captured, nanoseconds since 1970.
    pub(crate) fn time_ns(&self, i: usize) -> u64 {
        self.frames[i].time_ns
    }

    /// Bytes of the longest frame.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian microsecond pcap with these frames, a millisecond apart.
    fn pcap(link: u32, frames: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, link] {
            file.extend(word.to_le_bytes());
        }
        for (i, frame) in (0_u32..).zip(frames) {
            let bytes = u32::try_from(frame.len()).unwrap();
            for word in [5, i * 1000, bytes, bytes] {
                file.extend(word.to_le_bytes());
            }
            file.extend(*frame);
        }
        file
    }

    fn load(bytes: &[u8]) -> Result<Trace, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Trace::load(file.path(), None)
    }

    #[test]
    fn frames_and_times() {
        let trace = load(&pcap(1, &[&[1; 60], &[], &[3; 9000]])).unwrap();
        assert_eq!((trace.len(), trace.frame_bytes_max(), trace.truncated), (3, 9000, false));
        assert_eq!((trace.frame(0), trace.frame(1).len(), trace.frame(2)[8999]), (&[1; 60][..], 0, 3));
        assert_eq!(trace.time_ns(2), 5_002_000_000);
    }

    #[test]
    fn every_length_of_a_capture_is_read_or_refused() {
        let whole = pcap(1, &[&[1; 60], &[2; 60]]);
        for bytes in 0..whole.len() {
            let result = load(&whole[..bytes]);
            match bytes {
                0..24 => assert!(
                    matches!(result, Err(TraceError::Capture(CaptureError::Format { packets: 0, .. }))),
                    "{bytes}"
                ),
                24 => assert!(matches!(result, Err(TraceError::Empty { .. }))),
                25..100 => assert!(matches!(result, Err(TraceError::CutShort { .. })), "{bytes}"),
                _ => {
                    let trace = result.unwrap();
                    assert_eq!((trace.len(), trace.truncated), (1, bytes != 100), "{bytes}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_ethernet_header_gets_one_or_is_refused_by_name() {
        let trace = load(&pcap(101, &[&[0x45; 20]])).unwrap();
        assert_eq!((trace.len(), &trace.frame(0)[12..]), (1, &[&[8, 0][..], &[0x45; 20]].concat()[..]));
        let error = load(&pcap(105, &[&[0x45; 20]])).unwrap_err();
        assert!(error.to_string().contains("packet 1: link type 105 (IEEE 802.11)"), "{error}");
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let mut whole = pcap(1, &[&[1; 60], &[2; 60], &[3; 60]]);
        // What comes behind is not looked at.
        whole.truncate(whole.len() - 10);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), whole).unwrap();
        for (limit, frames, truncated) in
            [(Some(1), 1, false), (Some(2), 2, false), (Some(3), 2, true), (None, 2, true)]
        {
            let trace = Trace::load(file.path(), limit).unwrap();
            assert_eq!((trace.len(), trace.truncated), (frames, truncated), "{limit:?}");
        }
    }
}
