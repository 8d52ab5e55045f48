//! Captures: the packets of a pcap or pcapng file, microseconds or nanoseconds, either byte order, plain or compressed.
//!
//! A file cut short, or still being written, gives its complete packets. Damage is an error after the packets before it, with its offset.

mod link;

pub use link::UnknownLink;

use crate::feed::{self, FeedError, FeedErrorKind, FeedSource};
use pcap_parser::nom::error::ErrorKind;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::io::{self, BufRead as _, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The initial size of the reader's buffer, which grows for longer blocks.
const BUFFER_BYTES: usize = 1 << 18;
/// The largest buffer, and the longest block.
const BUFFER_BYTES_MAX: usize = 1 << 26;
/// The type of the first block of a section of a pcapng file, in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be read, or its compressed data is damaged.
    #[error(transparent)]
    Source(#[from] FeedError),
    /// The file is no capture, or is damaged.
    #[error("{path}: after {packets} packets, at byte {offset}: {reason}", path = path.display())]
    Format {
        /// The capture.
        path: PathBuf,
        /// The number of packets before the damage.
        packets: usize,
        /// The offset where the reader stopped.
        offset: u64,
        /// The kind of damage.
        reason: String,
    },
}

/// One packet of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its number, from 1 on.
    pub number: usize,
    /// Its link type (1: Ethernet); -1 on an interface that the capture does not describe.
    pub link: i32,
    /// The number of its interface, within its section of a pcapng file; 0 in a pcap file.
    pub interface: usize,
    /// The name of this interface (`if_name`), if it is in the capture.
    pub interface_name: Option<&'a str>,
    /// Capture time, nanoseconds since 1970; without one: 0, or the time offset of its interface.
    pub time_ns: u64,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub wire_bytes: usize,
}

/// An interface of the capture: name, link type, ticks per second, offset in seconds.
struct Interface {
    name: Option<String>,
    link: Linktype,
    ticks_per_second: u64,
    offset_s: i64,
}

static UNDESCRIBED: Interface = Interface::unnamed(Linktype(-1), 1_000_000);

impl Interface {
    const fn unnamed(link: Linktype, ticks_per_second: u64) -> Self {
        Self { name: None, link, ticks_per_second, offset_s: 0 }
    }

    fn time_ns(&self, ticks: u64) -> u64 {
        let per_second = u128::from(self.ticks_per_second.max(1));
        let ns = u128::from(ticks) * 1_000_000_000 / per_second;
        let ns = i128::try_from(ns).unwrap_or(i128::MAX) + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(ns).unwrap_or(0)
    }
}

#[derive(Debug)]
enum End {
    /// The file is cut short, or is still being written.
    CutShort,
    Failed(FeedError),
}

/// The bytes of a capture, as far as they can be read. `end` says why that is not the end of the file.
struct Bytes {
    source: FeedSource,
    end: Option<End>,
}

impl Read for Bytes {
    /// Fills `buffer` as far as possible: the parser takes a short read for the end of the file.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() && self.end.is_none() {
            match self.source.fill_buf() {
                Ok([]) => break,
                Ok(bytes) => {
                    let count = bytes.len().min(buffer.len() - done);
                    buffer[done..done + count].copy_from_slice(&bytes[..count]);
                    self.source.consume(count);
                    done += count;
                }
                Err(error) => {
                    let error = self.source.error(error);
                    let is_cut =
                        matches!(error.kind, FeedErrorKind::CutShort { .. } | FeedErrorKind::Changed { .. });
                    self.end = Some(if is_cut { End::CutShort } else { End::Failed(error) });
                }
            }
        }
        Ok(done)
    }
}

/// Passes the packets of the capture `path` (plain or compressed) to `each`, in order, until `each` breaks off or fails. Returns whether it
/// ends within a packet.
///
/// # Errors
/// [`CaptureError`], and the errors of `each`.
pub fn read<E: From<CaptureError>>(
    path: &Path,
    each: impl FnMut(Packet<'_>) -> Result<ControlFlow<()>, E>,
) -> Result<bool, E> {
    let source = feed::open(path).map_err(CaptureError::from)?;
    let mut bytes = Bytes { source, end: None };
    let cut = read_from(path, &mut bytes, each)?;
    match bytes.end {
        // To the parser, damage looks like the end of the file.
        Some(End::Failed(error)) => Err(CaptureError::from(error).into()),
        Some(End::CutShort) => Ok(true),
        None => Ok(cut),
    }
}

fn read_from<E: From<CaptureError>>(
    path: &Path,
    bytes: &mut Bytes,
    mut each: impl FnMut(Packet<'_>) -> Result<ControlFlow<()>, E>,
) -> Result<bool, E> {
    let format = |packets: usize, offset: usize, error: &PcapError<&[u8]>| CaptureError::Format {
        path: path.to_owned(),
        packets,
        offset: offset as u64,
        reason: reason(error, packets),
    };
    let mut reader = create_reader(BUFFER_BYTES, bytes).map_err(|error| format(0, 0, &error))?;
    let (mut interfaces, mut packets) = (Vec::new(), 0);
    let (mut buffer_bytes, mut is_big_endian) = (BUFFER_BYTES, None);
    loop {
        match next_block(reader.as_mut(), &mut is_big_endian) {
            Ok((bytes, block)) => {
                if let Some(packet) = packet(&block, &mut interfaces, packets + 1) {
                    if each(packet)?.is_break() {
                        return Ok(false);
                    }
                    packets += 1;
                }
                reader.consume(bytes);
            }
            Err(PcapError::Eof) => return Ok(false),
            Err(PcapError::UnexpectedEof) => return Ok(true),
            Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {
                let consumed = reader.consumed();
                let more = more(reader.as_mut(), &mut buffer_bytes);
                if !more.map_err(|error| format(packets, consumed, &error))? {
                    // Nothing more to read: bytes that are left are part of a block.
                    return Ok(!reader.data().is_empty());
                }
            }
            Err(error) => {
                let error = error.to_owned_vec();
                return Err(format(packets, reader.consumed(), &error).into());
            }
        }
    }
}

/// The next block, and its length. `is_big_endian` is kept between calls, `None` at first.
///
/// A pcapng block has at least 12 bytes. A smaller length is an error here: `pcap-parser` 0.17 subtracts 12 unchecked from the length of a
/// block of process information.
fn next_block<'a>(
    reader: &'a mut dyn PcapReaderIterator,
    is_big_endian: &mut Option<bool>,
) -> Result<(usize, PcapBlockOwned<'a>), PcapError<&'a [u8]>> {
    if let (Some(is_big_endian), Some([kind @ .., a, b, c, d])) =
        (*is_big_endian, reader.data().first_chunk::<8>())
    {
        let bytes = [*a, *b, *c, *d];
        let length = if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        // The first block of a section declares the byte order itself.
        if length < 12 && *kind != SECTION_HEADER {
            return Err(PcapError::NomError(&[], ErrorKind::Verify));
        }
    }
    let (length, block) = reader.next()?;
    if let PcapBlockOwned::NG(Block::SectionHeader(header)) = &block {
        *is_big_endian = Some(header.big_endian());
    }
    Ok((length, block))
}

/// Reads more of the file, into a larger buffer if at least half of this one is in use. Returns whether there was more.
fn more(
    reader: &mut dyn PcapReaderIterator,
    buffer_bytes: &mut usize,
) -> Result<bool, PcapError<&'static [u8]>> {
    let before = reader.data().len();
    if before >= BUFFER_BYTES_MAX {
        return Err(PcapError::BufferTooSmall);
    }
    if before >= *buffer_bytes / 2 && *buffer_bytes < BUFFER_BYTES_MAX {
        *buffer_bytes *= 2;
        reader.grow(*buffer_bytes);
    }
    reader.refill().map_err(|error| error.to_owned_vec())?;
    Ok(reader.data().len() > before || !reader.reader_exhausted())
}

fn reason(error: &PcapError<&[u8]>, packets: usize) -> String {
    match error {
        PcapError::Eof => "the file is empty".to_owned(),
        PcapError::HeaderNotRecognized | PcapError::Incomplete(_) if packets == 0 => {
            "this is no capture; pcap and pcapng are read".to_owned()
        }
        PcapError::BufferTooSmall => format!("a block of more than {BUFFER_BYTES_MAX} bytes"),
        PcapError::ReadError => "the file cannot be read".to_owned(),
        _ => "the next block is damaged".to_owned(),
    }
}

/// The packet in `block`, if it is one. `interfaces` collects the interfaces described so far.
fn packet<'a>(
    block: &'a PcapBlockOwned<'_>,
    interfaces: &'a mut Vec<Interface>,
    number: usize,
) -> Option<Packet<'a>> {
    let (interface, ticks, bytes, on_wire) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            // The upper bits have other meanings, such as the length of a frame checksum.
            let link = Linktype(header.network.0 & 0xffff);
            interfaces.push(Interface::unnamed(link, ticks_per_second));
            return None;
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear(); // numbers start again
            return None;
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
            let ticks_per_second = block.ts_resolution().unwrap_or(1_000_000);
            let (link, offset_s) = (block.linktype, block.ts_offset());
            let name = block.if_name().and_then(Result::ok).map(str::to_owned);
            interfaces.push(Interface { name, link, ticks_per_second, offset_s });
            return None;
        }
        PcapBlockOwned::Legacy(packet) => {
            let per_second = interfaces.first().map_or(1_000_000, |one| one.ticks_per_second);
            let ticks = u64::from(packet.ts_sec) * per_second + u64::from(packet.ts_usec);
            (0, ticks, packet.data, packet.origlen)
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            (packet.if_id as usize, ticks, packet.packet_data(), packet.origlen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => (0, 0, packet.packet_data(), packet.origlen),
        PcapBlockOwned::NG(_) => return None,
    };
    let described = interfaces.get(interface).unwrap_or(&UNDESCRIBED);
    Some(Packet {
        number,
        link: described.link.0,
        interface,
        interface_name: described.name.as_deref(),
        time_ns: described.time_ns(ticks),
        bytes,
        wire_bytes: on_wire as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn packets(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, bool), CaptureError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let mut packets = Vec::new();
        let cut = read(file.path(), |packet| -> Result<_, CaptureError> {
            packets.push(packet.bytes.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((packets, cut))
    }

    fn packed(bytes: &[u8]) -> [Vec<u8>; 3] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(bytes).unwrap();
        [gzip.finish().unwrap(), xz.finish().unwrap(), zstd::encode_all(bytes, 1).unwrap()]
    }

    #[test]
    fn a_packed_capture_is_the_capture_and_one_that_is_cut_its_beginning() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/");
        for name in ["mix.pcap", "mix.pcapng"] {
            let bytes = std::fs::read(format!("{folder}{name}")).unwrap();
            let (whole, cut) = packets(&bytes).unwrap();
            assert!(whole.len() == 2000 && !cut);
            for (file, has_checksum) in packed(&bytes).into_iter().zip([true, true, false]) {
                assert_eq!(packets(&file).unwrap(), (whole.clone(), false));
                for bytes in (1..8).map(|eighths| file.len() * eighths / 8) {
                    let Ok((some, cut)) = packets(&file[..bytes]) else { continue };
                    assert!(cut && some.len() < whole.len() && whole.starts_with(&some), "{name} {bytes}");
                }
                let mut damaged = file.clone();
                let at = file.len() / 2;
                damaged[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0x5a);
                // Without a checksum, damage may give wrong bytes that agree with the lengths in the capture.
                assert!(!has_checksum || packets(&damaged).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn a_block_has_a_limit() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/mix.pcapng");
        let capture = std::fs::read(path).unwrap();
        let header = usize::try_from(u32::from_le_bytes(capture[4..8].try_into().unwrap())).unwrap();
        let with = |length: usize| {
            // Of a type that is skipped.
            let ends = u32::try_from(length).unwrap().to_le_bytes();
            let block = [&0xbad_u32.to_le_bytes()[..], &ends, &vec![0; length - 12], &ends].concat();
            packets(&[&capture[..header], &block, &capture[header..]].concat())
        };
        let (whole, _) = packets(&capture).unwrap();
        for length in [BUFFER_BYTES_MAX / 2 + 4, BUFFER_BYTES_MAX] {
            assert_eq!(with(length).unwrap(), (whole.clone(), false), "{length}");
        }
        let refused = with(BUFFER_BYTES_MAX + 4).unwrap_err().to_string();
        assert!(refused.ends_with("a block of more than 67108864 bytes"), "{refused}");
    }

    #[test]
    fn a_link_type_is_half_a_word() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/");
        let mut bytes = std::fs::read(format!("{folder}mix.pcap")).unwrap();
        bytes[23] = 0xf4;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let cut = read(file.path(), |packet| -> Result<_, CaptureError> {
            assert_eq!(packet.link, 1);
            Ok(ControlFlow::Break(()))
        });
        assert!(!cut.unwrap());
    }

    #[test]
    fn interfaces_have_numbers_and_names() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/");
        for name in ["mix.pcapng", "mix.pcap"] {
            let cut = read(&Path::new(folder).join(name), |packet| -> Result<_, CaptureError> {
                let called = name.ends_with("ng").then_some("port0");
                assert_eq!((packet.interface, packet.interface_name), (0, called), "{name}");
                Ok(ControlFlow::Continue(()))
            });
            assert!(!cut.unwrap(), "{name}");
        }
    }

    #[test]
    fn reading_ends_where_it_is_told_to() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/mix.pcap");
        let mut seen = 0;
        let cut = read(Path::new(path), |packet| -> Result<_, CaptureError> {
            seen = packet.number;
            Ok(if packet.number == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!((cut.unwrap(), seen), (false, 7));
    }
}
