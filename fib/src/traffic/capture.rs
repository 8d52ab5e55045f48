//! The destination addresses of a capture.

use super::{TrafficError, halves};
use crate::Family;
use pcap_parser::nom::error::ErrorKind;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fs::File;
use std::path::Path;

/// What the reader's buffer starts with: above any frame of a network.
const BUFFER_BYTES: usize = 1 << 18;
/// A block that says it is longer than this is damage, not a frame.
const BUFFER_BYTES_MAX: usize = 1 << 26;
/// The type of the block that a section of a pcapng file begins with, in either byte order.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Raw IP, as some BSDs number it in their captures.
const RAW_BSD: [i32; 2] = [12, 14];
/// IEEE 802.1Q, 802.1ad, and the number that QinQ had before.
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The destination addresses of a capture's IPv4 and IPv6 packets, each family in the order of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// IPv4 addresses, host order.
    pub v4: Vec<u32>,
    /// First 64 bits of IPv6 addresses.
    pub v6_hi: Vec<u64>,
    /// Last 64 bits of IPv6 addresses.
    pub v6_lo: Vec<u64>,
    /// Frames read.
    pub frames: u64,
    /// Frames without a destination address: not IP, cut before the address, or of a link type other than Ethernet and raw
    /// IP.
    pub others: u64,
    /// Whether the capture ends within a frame; what came before it was read.
    pub truncated: bool,
}

impl Destinations {
    fn frame(&mut self, link: Linktype, frame: &[u8]) {
        self.frames += 1;
        let packet = match link {
            Linktype::ETHERNET => ethernet(frame),
            Linktype::RAW => by_version(frame),
            Linktype::IPV4 => Some((Family::V4, frame)),
            Linktype::IPV6 => Some((Family::V6, frame)),
            Linktype(number) if RAW_BSD.contains(&number) => by_version(frame),
            _ => None,
        };
        match packet {
            Some((Family::V4, packet))
                if by_version(packet).is_some_and(|(found, _)| found == Family::V4) =>
            {
                if let Some(address) = packet.get(16..20).and_then(|bytes| bytes.try_into().ok()) {
                    self.v4.push(u32::from_be_bytes(address));
                    return;
                }
            }
            Some((Family::V6, packet))
                if by_version(packet).is_some_and(|(found, _)| found == Family::V6) =>
            {
                if let Some(address) = packet.get(24..40).and_then(|bytes| bytes.try_into().ok()) {
                    let (hi, lo) = halves(u128::from_be_bytes(address));
                    self.v6_hi.push(hi);
                    self.v6_lo.push(lo);
                    return;
                }
            }
            _ => {}
        }
        self.others += 1;
    }
}

/// The packet within an Ethernet frame with at most two VLAN tags.
fn ethernet(frame: &[u8]) -> Option<(Family, &[u8])> {
    let mut at = 12;
    let ether_type = |at: usize| frame.get(at..at + 2).map(|t| u16::from_be_bytes([t[0], t[1]]));
    for _ in 0..2 {
        if VLAN_TYPES.contains(&ether_type(at)?) {
            at += 4;
        }
    }
    match ether_type(at)? {
        0x0800 => Some((Family::V4, &frame[at + 2..])),
        0x86dd => Some((Family::V6, &frame[at + 2..])),
        _ => None,
    }
}

fn by_version(packet: &[u8]) -> Option<(Family, &[u8])> {
    match packet.first()? >> 4 {
        4 => Some((Family::V4, packet)),
        6 => Some((Family::V6, packet)),
        _ => None,
    }
}

/// Reads the destination addresses of the capture `path`: pcap or pcapng, Ethernet (with at most two VLAN tags) or raw IP.
///
/// # Errors
/// [`TrafficError::Io`] when the file cannot be read, [`TrafficError::Format`] when it is no capture or is damaged. A capture
/// that is only cut short is no error: [`Destinations::truncated`] says so.
pub fn capture_destinations(path: &Path) -> Result<Destinations, TrafficError> {
    let io = |source| TrafficError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    let format = |offset: usize, error: PcapError<&[u8]>| TrafficError::Format {
        path: path.to_owned(),
        offset: offset as u64,
        reason: reason(&error),
    };
    let mut reader = create_reader(BUFFER_BYTES, file).map_err(|error| format(0, error))?;
    let mut found = Destinations::default();
    let mut links = Vec::new();
    let (mut buffer_bytes, mut is_big_endian) = (BUFFER_BYTES, None);
    loop {
        match next_block(reader.as_mut(), &mut is_big_endian) {
            Ok((bytes, block)) => {
                take(&block, &mut links, &mut found);
                reader.consume(bytes);
            }
            Err(PcapError::Eof) => return Ok(found),
            Err(PcapError::UnexpectedEof) => {
                found.truncated = true;
                return Ok(found);
            }
            Err(PcapError::Incomplete(_) | PcapError::BufferTooSmall) => {
                let consumed = reader.consumed();
                if !more(reader.as_mut(), &mut buffer_bytes).map_err(|error| format(consumed, error))? {
                    // What is left, if anything, is less than its block says.
                    found.truncated = !reader.data().is_empty();
                    return Ok(found);
                }
            }
            Err(error) => {
                let error = error.to_owned_vec();
                return Err(format(reader.consumed(), error));
            }
        }
    }
}

/// The next block of a capture, and its length. `is_big_endian` is kept from call to call, `None` at first.
///
/// A pcapng block is 12 bytes at least. One that says less is an error here: `pcap-parser` 0.17 subtracts 12 unchecked from the length
/// of a block of process information.
///
/// # Errors
/// As [`PcapReaderIterator::next`].
pub fn next_block<'a>(
    reader: &'a mut dyn PcapReaderIterator,
    is_big_endian: &mut Option<bool>,
) -> Result<(usize, PcapBlockOwned<'a>), PcapError<&'a [u8]>> {
    if let (Some(is_big_endian), Some([kind @ .., a, b, c, d])) =
        (*is_big_endian, reader.data().first_chunk::<8>())
    {
        let bytes = [*a, *b, *c, *d];
        let length = if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        // A section's first block says itself which byte order it has.
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

/// Takes the destination out of one block; `links` are the link types of the capture's interfaces so far.
fn take(block: &PcapBlockOwned<'_>, links: &mut Vec<Linktype>, found: &mut Destinations) {
    let link_of = |links: &[Linktype], interface: u32| {
        let interface = usize::try_from(interface).unwrap_or(usize::MAX);
        links.get(interface).copied().unwrap_or(Linktype(-1))
    };
    match block {
        PcapBlockOwned::LegacyHeader(header) => links.push(header.network),
        PcapBlockOwned::Legacy(packet) => found.frame(link_of(links, 0), packet.data),
        PcapBlockOwned::NG(Block::SectionHeader(_)) => links.clear(), // interfaces are numbered anew
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => links.push(interface.linktype),
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            found.frame(link_of(links, packet.if_id), packet.packet_data());
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            found.frame(link_of(links, 0), packet.packet_data())
        }
        PcapBlockOwned::NG(_) => {}
    }
}

fn reason(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::Eof => String::from("the file is empty"),
        PcapError::HeaderNotRecognized | PcapError::Incomplete(_) => {
            String::from("no capture; pcap and pcapng are read")
        }
        PcapError::BufferTooSmall => format!("a block of more than {BUFFER_BYTES_MAX} bytes"),
        PcapError::ReadError => String::from("the file cannot be read"),
        _ => String::from("the block is damaged"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Traffic;
    use super::*;
    use proptest::prelude::*;

    /// A little-endian pcap of `link` with these frames.
    fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, link] {
            file.extend(word.to_le_bytes());
        }
        for frame in frames {
            let len = u32::try_from(frame.len()).unwrap();
            for word in [1, 2, len, len + 7] {
                file.extend(u32::to_le_bytes(word)); // cut by a snap length: 7 bytes longer on the wire
            }
            file.extend(frame);
        }
        file
    }

    fn read(bytes: &[u8]) -> Result<Destinations, TrafficError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        capture_destinations(file.path())
    }

    fn ip4(last: u8) -> Vec<u8> {
        let mut packet = vec![0x45; 20];
        packet[16..20].copy_from_slice(&[192, 0, 2, last]);
        packet
    }

    fn ip6(last: u8) -> Vec<u8> {
        let mut packet = vec![0x60; 40];
        packet[24..40].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        packet
    }

    fn framed(tags: &[u16], ether_type: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(packet);
        frame
    }

    #[test]
    fn ethernet_with_tags_and_what_is_not_ip() {
        let frames = [
            framed(&[], 0x0800, &ip4(1)),
            framed(&[0x8100], 0x86dd, &ip6(2)),
            framed(&[0x88a8, 0x8100], 0x0800, &ip4(3)),
            framed(&[0x88a8, 0x8100, 0x8100], 0x0800, &ip4(4)), // three tags
            framed(&[], 0x0806, &ip4(5)),
            framed(&[], 0x0800, &ip6(6)), // the version says otherwise
            framed(&[], 0x0800, &ip4(7)[..19]),
            vec![0; 13],
            Vec::new(),
        ];
        let found = read(&pcap(1, &frames)).unwrap();
        assert_eq!(found.v4, [0xc000_0201, 0xc000_0203]);
        assert_eq!((found.v6_hi, found.v6_lo), (vec![0x2001_0db8_0000_0000], vec![2]));
        assert_eq!((found.frames, found.others, found.truncated), (9, 6, false));
    }

    #[test]
    fn raw_ip_of_every_number() {
        for link in [101, 12, 14] {
            let found = read(&pcap(link, &[ip4(1), ip6(2), vec![0x10; 40]])).unwrap();
            assert_eq!((found.v4.len(), found.v6_lo.len(), found.others), (1, 1, 1), "link type {link}");
        }
        assert_eq!(read(&pcap(228, &[ip4(1), ip6(2)])).unwrap().others, 1);
        assert_eq!(read(&pcap(147, &[ip4(1)])).unwrap().others, 1);
    }

    #[test]
    fn cut_short_keeps_what_was_read() {
        let whole = pcap(101, &[ip4(1), ip4(2)]);
        for cut in whole.len() - 20..whole.len() {
            let found = read(&whole[..cut]).unwrap();
            assert_eq!((found.v4.len(), found.truncated), (1, true), "cut at {cut}");
        }
        assert!(!read(&whole).unwrap().truncated);
    }

    #[test]
    fn what_is_no_capture_is_refused_by_name() {
        let error = read(b"PREFIX ID, a text of more than twenty-four bytes").unwrap_err();
        assert!(matches!(error, TrafficError::Format { offset: 0, .. }), "{error}");
        assert!(read(b"").unwrap_err().to_string().contains("empty"));
        assert!(matches!(read(b"\xd4\xc3\xb2\xa1\x02"), Err(TrafficError::Format { .. })));
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(capture_destinations(folder.path()), Err(TrafficError::Io { .. })));
        assert!(matches!(capture_destinations(&folder.path().join("none")), Err(TrafficError::Io { .. })));
    }

    #[test]
    fn a_long_frame_grows_the_buffer_and_a_lie_is_found() {
        let mut long = ip4(9);
        long.resize(1 << 20, 0);
        assert_eq!(read(&pcap(101, &[long, ip4(1)])).unwrap().v4, [0xc000_0209, 0xc000_0201]);
        let mut lie = pcap(101, &[ip4(1)]);
        lie[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&lie).unwrap().truncated);
    }

    #[test]
    fn traffic_repeats_the_capture() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pcap(101, &[ip4(1), ip4(2), ip4(3)])).unwrap();
        let traffic = Traffic::Capture(file.path().to_owned());
        let keys = traffic.keys_v4(&[], 5, 0).unwrap();
        assert_eq!(keys, [0xc000_0201, 0xc000_0202, 0xc000_0203, 0xc000_0201, 0xc000_0202]);
        let none = traffic.keys_v6(&[], 5, 0).unwrap_err();
        assert!(matches!(none, TrafficError::NoPackets { frames: 3, family: Family::V6, .. }), "{none}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn bytes_of_any_kind_never_panic(noise in prop::collection::vec((any::<u16>(), any::<u8>()), 0..24), cut in any::<u16>()) {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcap/");
            for name in ["mix-be.pcapng", "mix-be.pcap"] {
                let mut bytes = std::fs::read(format!("{folder}{name}")).unwrap();
                bytes.truncate(4096);
                for (at, byte) in &noise {
                    let at = usize::from(*at) % bytes.len();
                    bytes[at] = *byte;
                }
                bytes.truncate(usize::from(cut) % 4096 + 1);
                if let Ok(found) = read(&bytes) {
                    prop_assert_eq!(found.frames, found.others + (found.v4.len() + found.v6_hi.len()) as u64);
                }
            }
        }
    }

    #[test]
    fn the_bundled_captures_agree_in_both_formats() {
        let read = |name: &str| {
            capture_destinations(Path::new(&format!("{}/../pcap/{name}", env!("CARGO_MANIFEST_DIR"))))
                .unwrap()
        };
        let (pcap, pcapng) = (read("mix.pcap"), read("mix.pcapng"));
        assert_eq!(pcap, pcapng);
        assert!(pcap.frames == 2000 && !pcap.v4.is_empty() && !pcap.v6_hi.is_empty());
        assert_eq!(read("mix-be.pcap"), read("mix-be.pcapng"));
        assert_eq!(read("mix-be.pcap").v4, pcap.v4[..read("mix-be.pcap").v4.len()]);
    }
}
