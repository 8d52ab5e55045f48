//! Ethernet headers with VLAN tags. An answer carries the tags of the frame it answers, since forwarding keeps packets in their VLAN.

use crate::datapath::DropReason;
use fib::MacAddr;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;
/// VLAN tags: IEEE 802.1Q, 802.1ad, and the ethertype used for QinQ before 802.1ad.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TAG_BYTES: usize = 4;
/// As in the datapath.
const TAGS_MAX: usize = 2;
const MACS_BYTES: usize = 12;

/// The VLAN ids of a frame, outermost first; 0 means none.
pub(crate) type Vlans = [u16; TAGS_MAX];

/// The VLAN tags of a frame, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    bytes: [u8; TAGS_MAX * TAG_BYTES],
    count: usize,
}

impl Tags {
    pub(crate) const NONE: Self = Self { bytes: [0; TAGS_MAX * TAG_BYTES], count: 0 };

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.count * TAG_BYTES]
    }

    /// The VLANs of frames with these tags. Ignores priorities, and tags with VLAN 0, which carry only a priority (IEEE 802.1Q 9.6).
    pub(crate) fn vlans(&self) -> Vlans {
        let ids = self.as_bytes().chunks_exact(TAG_BYTES);
        let ids = ids.map(|tag| u16::from_be_bytes([tag[2] & 0xf, tag[3]])).filter(|id| *id != 0);
        let mut vlans = [0; TAGS_MAX];
        vlans.iter_mut().zip(ids).for_each(|(vlan, id)| *vlan = id);
        vlans
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer2<'a> {
    pub(crate) destination: MacAddr,
    pub(crate) source: MacAddr,
    pub(crate) tags: Tags,
    pub(crate) ethertype: u16,
    /// After the header, padding included.
    pub(crate) payload: &'a [u8],
}

impl<'a> Layer2<'a> {
    /// # Errors
    /// [`DropReason::Malformed`] if it is too short, [`DropReason::NotIp`] if it has a third tag.
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        let (macs, mut rest) = frame.split_first_chunk::<MACS_BYTES>().ok_or(DropReason::Malformed)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *macs;
        let mut tags = Tags::NONE;
        loop {
            let (ethertype, payload) = rest.split_first_chunk().ok_or(DropReason::Malformed)?;
            let ethertype = u16::from_be_bytes(*ethertype);
            if !TAGS.contains(&ethertype) {
                let (destination, source) =
                    (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]));
                return Ok(Self { destination, source, tags, ethertype, payload });
            }
            let (tag, payload) = rest.split_at_checked(TAG_BYTES).ok_or(DropReason::Malformed)?;
            let room = tags.bytes.chunks_exact_mut(TAG_BYTES).nth(tags.count).ok_or(DropReason::NotIp)?;
            room.copy_from_slice(tag);
            tags.count += 1;
            rest = payload;
        }
    }

    pub(crate) fn back(&self, source: MacAddr) -> Envelope {
        Envelope { destination: self.source, source, tags: self.tags }
    }
}

/// The Ethernet header of a frame to send, without its ethertype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) destination: MacAddr,
    pub(crate) source: MacAddr,
    pub(crate) tags: Tags,
}

impl Envelope {
    /// A frame with `bytes` bytes of payload, zeroed and then written by `fill`. Padding is added on transmission.
    pub(crate) fn frame(&self, ethertype: u16, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let tags = self.tags.as_bytes();
        let header_bytes = MACS_BYTES + tags.len() + 2;
        let mut frame = Vec::with_capacity(header_bytes + bytes);
        frame.extend(self.destination.0);
        frame.extend(self.source.0);
        frame.extend(tags);
        frame.extend(ethertype.to_be_bytes());
        frame.resize(header_bytes + bytes, 0);
        fill(&mut frame[header_bytes..]);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope =
        Envelope { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), tags: Tags::NONE };

    fn tags(bytes: &[u8]) -> Tags {
        let mut tags = Tags { count: bytes.len() / 4, ..Tags::NONE };
        tags.bytes[..bytes.len()].copy_from_slice(bytes);
        tags
    }

    #[test]
    fn a_written_header_is_read_back() {
        for bytes in [&[][..], &[0x81, 0, 0x20, 7], &[0x88, 0xa8, 0, 1, 0x81, 0, 0xff, 0xfe]] {
            let envelope = Envelope { tags: tags(bytes), ..ENVELOPE };
            let frame = envelope.frame(IPV4, 3, |payload| payload.copy_from_slice(&[7, 8, 9]));
            let read = Layer2::parse(&frame).unwrap();
            assert_eq!((read.destination, read.source), (envelope.destination, envelope.source));
            assert_eq!((read.ethertype, read.payload, read.tags), (IPV4, &[7, 8, 9][..], envelope.tags));
            let back = read.back(MacAddr([6; 6]));
            assert_eq!(
                (back.destination, back.source, back.tags),
                (envelope.source, MacAddr([6; 6]), envelope.tags)
            );
            for cut in 0..frame.len() - 3 {
                assert_eq!(Layer2::parse(&frame[..cut]).unwrap_err(), DropReason::Malformed, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_third_tag_is_refused() {
        let mut frame = ENVELOPE.frame(0x8100, 12, |_| {});
        frame[16..18].copy_from_slice(&[0x81, 0]);
        assert_eq!(Layer2::parse(&frame).unwrap().ethertype, 0);
        frame[20..22].copy_from_slice(&[0x91, 0]);
        assert_eq!(Layer2::parse(&frame).unwrap_err(), DropReason::NotIp);
    }

    #[test]
    fn vlans_are_compared_and_priorities_are_not() {
        let seven = tags(&[0x81, 0, 0, 7]);
        assert!(seven.vlans() == tags(&[0x81, 0, 0xe0, 7]).vlans());
        assert!(Tags::NONE.vlans() == tags(&[0x81, 0, 0xe0, 0]).vlans());
        for other in [Tags::NONE, tags(&[0x81, 0, 0, 8]), tags(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 7])] {
            assert!(seven.vlans() != other.vlans(), "{other:?}");
        }
    }
}
