//! Properties of fragments of arbitrary packets: valid, within the MTU, and together equal to the packet.

use super::*;
use crate::datapath::check::check;
use crate::datapath::test_frames::V4;
use proptest::prelude::*;

/// A packet: options as (type, value) with correct lengths, then the bytes that end them; offset and "more fragments"; payload.
#[derive(Clone, Debug)]
struct PacketRecipe {
    options: Vec<(u8, Vec<u8>)>,
    end: Vec<u8>,
    tags: usize,
    offset: u16,
    has_more: bool,
    payload_bytes: usize,
    mtu_bytes: u16,
}

impl PacketRecipe {
    fn options(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (kind, value) in &self.options {
            match kind {
                1 => bytes.push(1),
                _ => {
                    bytes.extend([*kind, u8::try_from(value.len() + 2).unwrap()]);
                    bytes.extend(value);
                }
            }
        }
        bytes.truncate(40);
        bytes.extend(&self.end);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.truncate(40);
        bytes
    }

    fn frame(&self) -> Vec<u8> {
        let options = self.options();
        let first = 0x45 + u8::try_from(options.len() / 4).unwrap();
        let mut frame = V4 { first, options, payload_bytes: self.payload_bytes, ..V4::default() }
            .tagged(&[0x88a8, 0x8100][..self.tags]);
        let ip_at = 14 + 4 * self.tags;
        let word = self.offset | if self.has_more { MORE } else { 0 };
        frame[ip_at + 6..ip_at + 8].copy_from_slice(&word.to_be_bytes());
        let header = &mut frame[ip_at..];
        header[10..12].fill(0);
        let end = usize::from(header[0] & 15) * 4;
        let sum = checksum(&header[..end]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0xee; 3]);
        frame
    }
}

fn recipe() -> impl Strategy<Value = PacketRecipe> {
    let kinds = prop::sample::select(vec![1_u8, 7, 0x44, 0x82, 0x83, 0x94, 0xff, 0x80]);
    let options = prop::collection::vec((kinds, prop::collection::vec(any::<u8>(), 0..9)), 0..6);
    let end = prop_oneof![Just(vec![]), prop::collection::vec(any::<u8>(), 0..7)];
    let bytes = prop_oneof![0..100_usize, 400..600_usize, 1_450..1_560_usize, 0..20_000_usize];
    let mtus = prop_oneof![Just(68_u16), 68..100_u16, 570..590_u16, 1_400..1_501_u16, 68..9_000_u16];
    let offset = prop_oneof![Just(0_u16), 0..300_u16, 0..0x2000_u16];
    (options, end, 0..3_usize, offset, any::<bool>(), bytes, mtus).prop_map(
        |(options, end, tags, offset, has_more, payload_bytes, mtu_bytes)| PacketRecipe {
            options,
            end,
            tags,
            offset,
            has_more,
            payload_bytes,
            mtu_bytes,
        },
    )
}

fn cut(frame: &[u8], ip_at: usize, mtu_bytes: u16) -> Option<Vec<Vec<u8>>> {
    let mut cut = Cut::new(frame, ip_at, mtu_bytes)?;
    let count = cut.fragments();
    let mut pieces = Vec::new();
    while let Some((headers, payload)) = cut.next() {
        let payload = &frame[payload.start as usize..payload.end as usize];
        pieces.push([headers, payload].concat());
    }
    assert_eq!(pieces.len(), count as usize, "the number is known before");
    Some(pieces)
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn fragments_together_are_the_packet(recipe in recipe()) {
        let (frame, ip_at) = (recipe.frame(), 14 + 4 * recipe.tags);
        let packet = &frame[ip_at..frame.len() - 3];
        let header_bytes = usize::from(packet[0] & 15) * 4;
        let reach = usize::from(recipe.offset) * 8 + packet.len() - header_bytes;
        if packet.len() <= usize::from(recipe.mtu_bytes) {
            return Ok(());
        }
        let pieces = cut(&frame, ip_at, recipe.mtu_bytes);
        prop_assert_eq!(pieces.is_some(), reach <= 65_535);
        let Some(pieces) = pieces else { return Ok(()) };
        let (mut payload, mut at) = (Vec::new(), usize::from(recipe.offset));
        let last = pieces.len() - 1;
        prop_assert!(last > 0);
        let mut later = None;
        for (number, piece) in pieces.iter().enumerate() {
            let ip = &piece[ip_at..];
            prop_assert!(ip.len() <= usize::from(recipe.mtu_bytes));
            prop_assert_eq!(&piece[..ip_at], &frame[..ip_at]);
            let header = &ip[..usize::from(ip[0] & 15) * 4];
            prop_assert_eq!(usize::from(be16(&ip[2..])), ip.len());
            prop_assert!(dpdk_ffi::simd::rules::checksum_is_right(header.chunks(2).map(|word| u32::from(be16(word))).sum()));
            prop_assert_eq!((ip[1], &ip[4..6], &ip[8..10], &ip[12..20]), (packet[1], &packet[4..6], &packet[8..10], &packet[12..20]));
            let word = be16(&ip[6..]);
            prop_assert_eq!(usize::from(word & OFFSET), at);
            prop_assert_eq!(word & MORE != 0, number < last || recipe.has_more);
            let part = &ip[header.len()..];
            prop_assert!(!part.is_empty() && (number == last || part.len() % 8 == 0));
            at += part.len() / 8;
            payload.extend_from_slice(part);
            if number == 0 {
                prop_assert_eq!(&header[20..], &packet[20..header_bytes]);
            } else {
                prop_assert_eq!(*later.get_or_insert(&header[20..]), &header[20..]);
            }
            // No shorter than necessary: another block would exceed the MTU.
            prop_assert!(number == last || ip.len() + 8 > usize::from(recipe.mtu_bytes));
        }
        prop_assert_eq!(&payload[..], &packet[header_bytes..]);
        if recipe.end.is_empty() {
            let whole = recipe.options();
            let mut wanted = Vec::new();
            let mut at = 0;
            while at < whole.len() && whole[at] != 0 {
                let bytes = if whole[at] == 1 { 1 } else { usize::from(*whole.get(at + 1).unwrap_or(&0)).max(2) };
                if at + bytes > whole.len() {
                    break;
                }
                if whole[at] >= 0x80 {
                    wanted.extend_from_slice(&whole[at..at + bytes]);
                }
                at += bytes;
            }
            wanted.resize(wanted.len().next_multiple_of(4), 0);
            prop_assert_eq!(later.unwrap_or_default(), &wanted[..]);
        }
    }

    #[test]
    fn a_fragment_is_fragmented_again(recipe in recipe(), smaller in 68..600_u16) {
        let (frame, ip_at) = (recipe.frame(), 14 + 4 * recipe.tags);
        if frame.len() - 3 - ip_at <= usize::from(recipe.mtu_bytes) {
            return Ok(());
        }
        let Some(pieces) = cut(&frame, ip_at, recipe.mtu_bytes) else { return Ok(()) };
        let (mut payload, mut next) = (Vec::new(), usize::from(recipe.offset));
        for (number, piece) in pieces.iter().enumerate() {
            let is_short = piece.len() - ip_at <= usize::from(smaller);
            let again = if is_short { vec![piece.clone()] } else { cut(piece, ip_at, smaller).unwrap() };
            for (at, ip) in again.iter().map(|piece| &piece[ip_at..]).enumerate() {
                let part = &ip[usize::from(ip[0] & 15) * 4..];
                let word = be16(&ip[6..]);
                prop_assert_eq!(usize::from(word & OFFSET), next);
                let is_end = number + 1 == pieces.len() && at + 1 == again.len();
                prop_assert_eq!(word & MORE != 0, !is_end || recipe.has_more);
                next += part.len() / 8;
                payload.extend_from_slice(part);
            }
        }
        let packet = &frame[ip_at..frame.len() - 3];
        prop_assert_eq!(&payload[..], &packet[usize::from(packet[0] & 15) * 4..]);
    }

    #[test]
    fn any_bytes_are_data(frame in prop::collection::vec(any::<u8>(), 0..200), ip_at in 14..30_usize, mtu_bytes: u16) {
        let frame_bytes = u32::try_from(frame.len()).unwrap();
        let is_checked = check(&frame, frame_bytes).is_ok_and(|checked| usize::from(checked.ip_at) == ip_at);
        // A packet that passed its checks has all its bytes.
        if let Some(mut cut) = Cut::new(&frame, ip_at, mtu_bytes) && is_checked {
            while let Some((_, payload)) = cut.next() {
                prop_assert!(payload.end <= frame_bytes);
            }
        }
    }
}

#[test]
fn what_must_not_be_fragmented_is_not() {
    let frame = V4 { payload_bytes: 1500, ..V4::default() }.frame();
    assert!(Cut::new(&frame, 14, 1500).is_none(), "don't fragment");
    let v6 = crate::datapath::test_frames::V6 { payload_bytes: 1500, ..Default::default() }.frame();
    assert!(Cut::new(&v6, 14, 1500).is_none());
    let mut may = frame;
    may[20] = 0;
    assert!(Cut::new(&may, 14, 1500).is_some() && Cut::new(&may, 14, 28).is_some());
    assert!(Cut::new(&may, 14, 27).is_none(), "no block fits");
}
