//! The destination addresses of a capture.

use crate::Family;
use crate::capture::{self, CaptureError};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::Path;

/// IEEE 802.1Q, 802.1ad, and the former number of QinQ.
const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The destination addresses of a capture's IPv4 and IPv6 packets, each family in the order of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// IPv4 addresses, host order.
    pub v4: Vec<u32>,
    /// IPv6 addresses, host order.
    pub v6: Vec<u128>,
    /// Frames read.
    pub frames: u64,
    /// Frames without a destination address: not IP, cut before the address, or of an unsupported link type.
    pub others: u64,
    /// Whether the capture ends within a frame; the frames before were read.
    pub truncated: bool,
}

impl Destinations {
    fn frame(&mut self, frame: Option<&[u8]>) {
        self.frames += 1;
        match frame.and_then(ethernet).and_then(destination) {
            Some(IpAddr::V4(address)) => self.v4.push(address.to_bits()),
            Some(IpAddr::V6(address)) => self.v6.push(address.to_bits()),
            None => self.others += 1,
        }
    }
}

/// The destination of a packet of `family`; `None` if its version differs, or if it is cut before the address.
fn destination((family, packet): (Family, &[u8])) -> Option<IpAddr> {
    Some(match (family, packet.first()? >> 4) {
        (Family::V4, 4) => IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?),
        (Family::V6, 6) => IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?),
        _ => return None,
    })
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

/// The destination addresses of the capture `path`, of every supported link type, with at most two VLAN tags.
///
/// # Errors
/// [`CaptureError`]. A capture that is only cut short sets [`Destinations::truncated`] instead.
pub fn capture_destinations(path: &Path) -> Result<Destinations, CaptureError> {
    let mut found = Destinations::default();
    let mut made = Vec::new();
    found.truncated = capture::read(path, |packet| -> Result<_, CaptureError> {
        found.frame(packet.ethernet(&mut made).ok());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{Traffic, TrafficError};
    use super::*;
    use proptest::prelude::*;

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

    fn read(bytes: &[u8]) -> Result<Destinations, CaptureError> {
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
        assert_eq!(found.v6, [0x2001_0db8 << 96 | 2]);
        assert_eq!((found.frames, found.others, found.truncated), (9, 6, false));
    }

    #[test]
    fn raw_ip_of_every_number() {
        for link in [101, 12, 14] {
            let found = read(&pcap(link, &[ip4(1), ip6(2), vec![0x10; 40]])).unwrap();
            assert_eq!((found.v4.len(), found.v6.len(), found.others), (1, 1, 1), "link type {link}");
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
        assert!(matches!(error, CaptureError::Format { offset: 0, .. }), "{error}");
        assert!(read(b"").unwrap_err().to_string().contains("empty"));
        assert!(matches!(read(b"\xd4\xc3\xb2\xa1\x02"), Err(CaptureError::Format { .. })));
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(capture_destinations(folder.path()), Err(CaptureError::Source(_))));
        assert!(matches!(capture_destinations(&folder.path().join("none")), Err(CaptureError::Source(_))));
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
        let keys = traffic.keys::<u32>(&[], 5, 0).unwrap();
        assert_eq!(keys, [0xc000_0201, 0xc000_0202, 0xc000_0203, 0xc000_0201, 0xc000_0202]);
        let none = traffic.keys::<u128>(&[], 5, 0).unwrap_err();
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
                    prop_assert_eq!(found.frames, found.others + (found.v4.len() + found.v6.len()) as u64);
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
        assert!(pcap.frames == 2000 && !pcap.v4.is_empty() && !pcap.v6.is_empty());
        assert_eq!(read("mix-be.pcap"), read("mix-be.pcapng"));
        assert_eq!(read("mix-be.pcap").v4, pcap.v4[..read("mix-be.pcap").v4.len()]);
    }
}
