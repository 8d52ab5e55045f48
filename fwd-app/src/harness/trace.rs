//! The capture that is replayed: its frames in one block of memory, with their times.

use fib::traffic::next_block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What the reader's buffer starts with: above any frame of a network.
const BUFFER_BYTES: usize = 1 << 18;
/// A block that says it is longer than this is damage, not a frame.
const BUFFER_BYTES_MAX: usize = 1 << 26;

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    /// It is no capture, or is damaged where it should go on.
    #[error("{path}: after {packets} packets: {reason}")]
    Format { path: PathBuf, packets: usize, reason: String },
    /// Its frames have no Ethernet header.
    #[error("{path}: packet {packet} has link type {link}; only Ethernet (1) can be replayed")]
    LinkType { path: PathBuf, packet: usize, link: i32 },
    /// It ends before its first packet does.
    #[error("{path}: there is no packet in it")]
    Empty { path: PathBuf },
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
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        let mut loading = Loading { path, trace: Self::default(), interfaces: Vec::new() };
        let mut reader = create_reader(BUFFER_BYTES, file).map_err(|error| loading.format(&error))?;
        let (mut buffer_bytes, mut is_big_endian) = (BUFFER_BYTES, None);
        loop {
            match next_block(reader.as_mut(), &mut is_big_endian) {
                Ok((bytes, block)) => {
                    loading.take(&block)?;
                    reader.consume(bytes);
                }
                Err(PcapError::Eof) => break,
                Err(PcapError::UnexpectedEof) => {
                    loading.trace.truncated = true;
                    break;
                }
                Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {
                    let more = more(reader.as_mut(), &mut buffer_bytes);
                    if !more.map_err(|error| loading.format(&error))? {
                        // Nothing more to read: what is left, if anything, is part of a block.
                        loading.trace.truncated = !reader.data().is_empty();
                        break;
                    }
                }
                Err(error) => return Err(loading.format(&error)),
            }
        }
        let Loading { trace, .. } = loading;
        if trace.frames.is_empty() {
            return Err(if trace.truncated {
                let reason = "the file is cut short within its first packet".to_owned();
                TraceError::Format { path: path.to_owned(), packets: 0, reason }
            } else {
                TraceError::Empty { path: path.to_owned() }
            });
        }
        Ok(trace)
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

/// What an interface of the capture is: link type, ticks a second, offset in seconds.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    ticks_per_second: u64,
    offset_s: i64,
}

impl Interface {
    fn time_ns(self, ticks: u64) -> u64 {
        let per_second = u128::from(self.ticks_per_second.max(1));
        let ns = u128::from(ticks) * 1_000_000_000 / per_second;
        let ns = i128::try_from(ns).unwrap_or(i128::MAX) + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(ns).unwrap_or(0)
    }
}

struct Loading<'a> {
    path: &'a Path,
    trace: Trace,
    interfaces: Vec<Interface>,
}

impl Loading<'_> {
    fn format(&self, error: &PcapError<&[u8]>) -> TraceError {
        let reason = match error {
            PcapError::Eof => "the file is empty".to_owned(),
            PcapError::HeaderNotRecognized | PcapError::Incomplete(_) if self.trace.frames.is_empty() => {
                "this is no capture; pcap and pcapng are read".to_owned()
            }
            PcapError::BufferTooSmall => format!("a block of more than {BUFFER_BYTES_MAX} bytes"),
            PcapError::ReadError => "the file cannot be read".to_owned(),
            _ => "the next block is damaged".to_owned(),
        };
        TraceError::Format { path: self.path.to_owned(), packets: self.trace.len(), reason }
    }

    fn take(&mut self, block: &PcapBlockOwned<'_>) -> Result<(), TraceError> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let ticks_per_second =
                    if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
                self.interfaces.push(Interface { link: header.network, ticks_per_second, offset_s: 0 });
                Ok(())
            }
            PcapBlockOwned::Legacy(packet) => {
                let per_second = self.interfaces.first().map_or(1_000_000, |i| i.ticks_per_second);
                let ticks = u64::from(packet.ts_sec) * per_second + u64::from(packet.ts_usec);
                self.push(0, ticks, packet.data, packet.origlen)
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear(); // they are numbered anew
                Ok(())
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                let ticks_per_second = block.ts_resolution().unwrap_or(1_000_000);
                let interface =
                    Interface { link: block.linktype, ticks_per_second, offset_s: block.ts_offset() };
                self.interfaces.push(interface);
                Ok(())
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                self.push(packet.if_id as usize, ticks, packet.packet_data(), packet.origlen)
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                // It has no time; it follows at once.
                self.push(0, 0, packet.packet_data(), packet.origlen)
            }
            PcapBlockOwned::NG(_) => Ok(()),
        }
    }

    fn push(&mut self, interface: usize, ticks: u64, data: &[u8], on_wire: u32) -> Result<(), TraceError> {
        let packet = self.trace.frames.len() + 1;
        let unknown = Interface { link: Linktype(-1), ticks_per_second: 1_000_000, offset_s: 0 };
        let interface = self.interfaces.get(interface).copied().unwrap_or(unknown);
        if interface.link != Linktype::ETHERNET {
            return Err(TraceError::LinkType { path: self.path.to_owned(), packet, link: interface.link.0 });
        }
        // A clock that steps back would make a packet due before the one ahead of it.
        let before = self.trace.frames.last().map_or(0, |frame| frame.time_ns);
        let time_ns = interface.time_ns(ticks).max(before);
        let (start, bytes) = (self.trace.bytes.len(), data.len());
        self.trace.bytes.extend_from_slice(data);
        self.trace.frames.push(Frame { start, bytes, time_ns });
        self.trace.snapped += usize::from((on_wire as usize) > bytes);
        Ok(())
    }
}

/// Reads more of the file, with a larger buffer when this one is full; whether there was any.
fn more(
    reader: &mut dyn PcapReaderIterator,
    buffer_bytes: &mut usize,
) -> Result<bool, PcapError<&'static [u8]>> {
    let before = reader.data().len();
    if before >= *buffer_bytes / 2 {
        if *buffer_bytes >= BUFFER_BYTES_MAX {
            return Err(PcapError::BufferTooSmall);
        }
        *buffer_bytes *= 2;
        reader.grow(*buffer_bytes);
    }
    reader.refill().map_err(|error| error.to_owned_vec())?;
    Ok(reader.data().len() > before || !reader.reader_exhausted())
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
                0..24 => assert!(matches!(result, Err(TraceError::Format { packets: 0, .. })), "{bytes}"),
                24 => assert!(matches!(result, Err(TraceError::Empty { .. }))),
                25..100 => assert!(matches!(result, Err(TraceError::Format { packets: 0, .. })), "{bytes}"),
                _ => {
                    let trace = result.unwrap();
                    assert_eq!((trace.len(), trace.truncated), (1, bytes != 100), "{bytes}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_capture_is_refused() {
        assert!(matches!(load(b"10.0.0.0/8 1\n10.1.0.0/16 2\n"), Err(TraceError::Format { .. })));
        let error = load(&pcap(101, &[&[0x45; 20]])).unwrap_err();
        assert!(matches!(error, TraceError::LinkType { packet: 1, link: 101, .. }), "{error}");
        assert!(matches!(Trace::load(Path::new("/")), Err(TraceError::Io { .. })));
        assert!(matches!(Trace::load(Path::new("/nonexistent.pcap")), Err(TraceError::Io { .. })));
    }
}
