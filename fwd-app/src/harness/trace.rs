//! The capture that is replayed: its frames in one block of memory, with their times.

use fib::capture::{self, CaptureError, Packet};
use std::path::{Path, PathBuf};

/// The link type of Ethernet.
const ETHERNET: i32 = 1;

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// It cannot be read, or is damaged.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Its frames have no Ethernet header.
    #[error("{path}: packet {packet} has link type {link}; only Ethernet (1) can be replayed")]
    LinkType { path: PathBuf, packet: usize, link: i32 },
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
    /// Reads a pcap or pcapng file, microseconds or nanoseconds, either byte order. A file that is cut short gives what is
    /// whole, if that is at least one packet.
    ///
    /// # Errors
    /// [`TraceError`].
    pub(crate) fn load(path: &Path) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        trace.truncated = capture::read(path, |packet| match packet.link {
            ETHERNET => {
                trace.push(packet);
                Ok(())
            }
            link => Err(TraceError::LinkType { path: path.to_owned(), packet: packet.number, link }),
        })?;
        match (trace.frames.is_empty(), trace.truncated) {
            (true, true) => Err(TraceError::CutShort { path: path.to_owned() }),
            (true, false) => Err(TraceError::Empty { path: path.to_owned() }),
            (false, _) => Ok(trace),
        }
    }

    fn push(&mut self, Packet { bytes, time_ns, wire_bytes, .. }: Packet<'_>) {
        // A clock that steps back would make a packet due before the one ahead of it.
        let time_ns = time_ns.max(self.frames.last().map_or(0, |frame| frame.time_ns));
        self.frames.push(Frame { start: self.bytes.len(), bytes: bytes.len(), time_ns });
        self.bytes.extend_from_slice(bytes);
        self.snapped += usize::from(wire_bytes > bytes.len());
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
        Trace::load(file.path())
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
    fn only_ethernet_is_replayed() {
        let error = load(&pcap(101, &[&[0x45; 20]])).unwrap_err();
        assert!(matches!(error, TraceError::LinkType { packet: 1, link: 101, .. }), "{error}");
    }
}
