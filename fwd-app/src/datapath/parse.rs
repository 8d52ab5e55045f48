//! Parse: checks headers and collects destinations, family by family.
//!
//! The fast path takes what nearly all packets are, untagged IPv4 without options and untagged IPv6, at least 54 bytes long,
//! with a handful of loads, one sum and comparisons joined without branches. Whatever it does not take, odd or wrong,
//! goes through [`super::check`], which alone decides what such a packet is; so the fast path must only never take a
//! packet that the slow one refuses, and need not take every good one.

use super::batch::{Batch, Entry};
use super::check::{self, Destination};
use super::{Code, Packets};

/// What the fast path loads: an Ethernet header and an IPv6 header.
const START_BYTES: usize = 54;
/// Where the IP header of an untagged frame starts.
const IP_AT: u16 = 14;

/// Parses the packets that have not been parsed yet.
pub(crate) fn parse<P: Packets>(batch: &mut Batch<P>) {
    let (first, count) = (batch.parsed, batch.packets.count().min(batch.packets_max()));
    let Batch { packets, keys4, keys6, v4, v6, .. } = batch;
    for i in first..count {
        packets.prefetch(i);
    }
    // Lengths in locals: through `&mut` they would be stored and loaded again at each packet.
    let (mut len4, mut len6) = (v4.len, v6.len);
    let mut bytes = 0;
    for i in first..count {
        let Entry { packet, .. } = entry(i, IP_AT, 0);
        let frame_bytes = packets.frame_bytes(i);
        bytes += u64::from(frame_bytes);
        if let Some(start) = packets.start::<START_BYTES>(i) {
            let there = frame_bytes.wrapping_sub(u32::from(IP_AT));
            // Ethertype and the byte behind it in one comparison; the numbers are in the order of the wire.
            let kind = le32(start, 12);
            if kind & 0x00ff_ffff == 0x0045_0008 {
                if let Some(ip_bytes) = fast_v4(start, there) {
                    keys4[len4] = be32(start, 30);
                    v4.entries[len4] = Entry { ip_bytes, packet, ip_at: IP_AT };
                    len4 += 1;
                    continue;
                }
            } else if kind & 0x00f0_ffff == 0x0060_dd86
                && let Some(ip_bytes) = fast_v6(start, there)
            {
                keys6.0[len6] = be64(start, 38);
                keys6.1[len6] = be64(start, 46);
                v6.entries[len6] = Entry { ip_bytes, packet, ip_at: IP_AT };
                len6 += 1;
                continue;
            }
        }
        (v4.len, v6.len) = (len4, len6);
        slow(i, packets, Columns { keys4, keys6, v4, v6, ports: &mut batch.ports, drops: &mut batch.drops });
        (len4, len6) = (v4.len, v6.len);
    }
    (v4.len, v6.len) = (len4, len6);
    batch.bytes += bytes;
    batch.parsed = count;
}

/// The columns of a batch that the slow path fills.
struct Columns<'a> {
    keys4: &'a mut [u32],
    keys6: &'a mut (Box<[u64]>, Box<[u64]>),
    v4: &'a mut super::batch::Lane,
    v6: &'a mut super::batch::Lane,
    ports: &'a mut [u16],
    drops: &'a mut super::Drops,
}

#[cold]
#[inline(never)]
#[expect(clippy::cast_possible_truncation, reason = "the halves of an address")]
fn slow<P: Packets>(i: usize, packets: &P, columns: Columns<'_>) {
    let Columns { keys4, keys6, v4, v6, ports, drops } = columns;
    match check::check(packets.head(i), packets.frame_bytes(i)) {
        Ok(checked) => {
            let entry = entry(i, checked.ip_at, checked.ip_bytes);
            match checked.destination {
                Destination::V4(key) => {
                    keys4[v4.len] = key;
                    v4.entries[v4.len] = entry;
                    v4.len += 1;
                }
                Destination::V6(key) => {
                    keys6.0[v6.len] = (key >> 64) as u64;
                    keys6.1[v6.len] = key as u64;
                    v6.entries[v6.len] = entry;
                    v6.len += 1;
                }
            }
        }
        Err(reason) => {
            ports[i] = Code::DROPPED;
            drops.add(reason, 1);
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a batch holds at most 65,536 packets")]
fn entry(i: usize, ip_at: u16, ip_bytes: u32) -> Entry {
    Entry { ip_bytes, packet: i as u16, ip_at }
}

/// The IP length of a packet whose first IP byte is 0x45, if it may be forwarded. `there`: bytes from the IP header.
#[inline(always)]
fn fast_v4(start: &[u8; START_BYTES], there: u32) -> Option<u32> {
    let total = u32::from(u16::from_be_bytes([start[16], start[17]]));
    // RFC 1071: the sum may be taken in any byte order and over wider words, then folded. Two folds leave at most
    // 0x2_fffd, a third 0x1_0001, so the sum is 0xffff modulo 0xffff exactly when the third says so.
    let words = [le32(start, 14), le32(start, 18), le32(start, 22), le32(start, 26), le32(start, 30)];
    let sum: u64 = words.into_iter().map(u64::from).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let good = (sum == 0xffff)
        & (total >= 20)
        & (total <= there)
        & (start[22] > 1)
        & unicast_v4(be32(start, 26))
        & unicast_v4(be32(start, 30));
    good.then_some(total)
}

/// Neither multicast nor an address of [`check::martian_v4`]: 1/8 to 223/8 but 127/8 and 169.254/16.
#[inline(always)]
fn unicast_v4(address: u32) -> bool {
    (address.wrapping_sub(0x0100_0000) < 0xdf00_0000) & (address >> 24 != 127) & (address >> 16 != 0xa9fe)
}

/// The IP length of a packet whose version is 6, if it may be forwarded. Addresses whose first 64 bits are zero (with
/// `::`, `::1` and the mapped ones) and all from fe00:: on (with link-local and multicast) are left to the slow path.
#[inline(always)]
fn fast_v6(start: &[u8; START_BYTES], there: u32) -> Option<u32> {
    let ip_bytes = 40 + u32::from(u16::from_be_bytes([start[18], start[19]]));
    let plain = |hi: u64| hi.wrapping_sub(1) < 0xfe00_0000_0000_0000 - 1;
    let good = (ip_bytes <= there) & (start[21] > 1) & plain(be64(start, 22)) & plain(be64(start, 38));
    good.then_some(ip_bytes)
}

// Constant places in an array of known length: plain loads, no check left in the machine code.
#[inline(always)]
fn le32(start: &[u8; START_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]])
}

#[inline(always)]
fn be32(start: &[u8; START_BYTES], at: usize) -> u32 {
    le32(start, at).swap_bytes()
}

#[inline(always)]
fn be64(start: &[u8; START_BYTES], at: usize) -> u64 {
    u64::from(be32(start, at)) << 32 | u64::from(be32(start, at + 4))
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::{V4, V6};
    use super::super::{DropReason, Drops};
    use super::*;
    use proptest::prelude::*;

    fn parsed(frames: Vec<Vec<u8>>) -> Batch<Vec<Vec<u8>>> {
        let count = frames.len();
        let mut batch = Batch::new(frames, count);
        parse(&mut batch);
        batch
    }

    #[test]
    fn families_go_to_their_lanes_in_order() {
        let padded = |mut frame: Vec<u8>| {
            frame.resize(frame.len().max(60), 0);
            frame
        };
        let (v4, v6) = (padded(V4::default().frame()), padded(V6::default().frame()));
        let tagged = V4::default().tagged(&[0x8100]);
        let expired = padded(V4 { ttl: 1, ..V4::default() }.frame());
        let batch = parsed(vec![v6.clone(), v4.clone(), tagged, expired, v4, v6]);
        let places = |lane: &super::super::batch::Lane| -> Vec<_> {
            lane.entries[..lane.len].iter().map(|e| (e.packet, e.ip_at)).collect()
        };
        assert_eq!(places(&batch.v4), [(1, 14), (2, 18), (4, 14)]);
        assert_eq!(places(&batch.v6), [(0, 14), (5, 14)]);
        assert_eq!(batch.keys4[..3], [0xc633_6407; 3]);
        assert_eq!((batch.keys6.0[1], batch.keys6.1[1]), (0x2001_0db8_0000_0000, 2));
        let mut drops = Drops::default();
        drops.add(DropReason::TtlExpired, 1);
        assert_eq!(batch.drops, drops);
        assert_eq!(batch.ports[3], Code::DROPPED);
    }

    #[test]
    fn a_batch_is_parsed_in_parts() {
        let frame = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let mut batch = Batch::new(vec![frame.clone(); 3], 8);
        parse(&mut batch);
        batch.packets.push(frame);
        parse(&mut batch);
        assert_eq!((batch.v4.len, batch.parsed, batch.v4.entries[3].packet), (4, 4, 3));
    }

    /// What parse says of one frame, as the slow path would say it.
    fn verdict(frame: &[u8]) -> Result<check::Checked, DropReason> {
        let batch = parsed(vec![frame.to_vec()]);
        let checked = |entry: Entry, destination| check::Checked {
            destination,
            ip_at: entry.ip_at,
            ip_bytes: entry.ip_bytes,
        };
        match (batch.v4.len, batch.v6.len) {
            (1, 0) => Ok(checked(batch.v4.entries[0], Destination::V4(batch.keys4[0]))),
            (0, 1) => {
                let key = u128::from(batch.keys6.0[0]) << 64 | u128::from(batch.keys6.1[0]);
                Ok(checked(batch.v6.entries[0], Destination::V6(key)))
            }
            _ => {
                assert_eq!(batch.drops.total(), 1);
                Err(batch.drops.iter().find(|(_, count)| *count == 1).unwrap().0)
            }
        }
    }

    /// Addresses near the limits of what is forbidden, and any.
    fn address_v4() -> impl Strategy<Value = [u8; 4]> {
        let first = prop_oneof![
            Just(0u8),
            Just(1),
            Just(126),
            Just(127),
            Just(128),
            Just(169),
            Just(223),
            Just(224),
            Just(239),
            Just(240),
            Just(255),
            any::<u8>()
        ];
        let second = prop_oneof![Just(253u8), Just(254), Just(255), any::<u8>()];
        (first, second, any::<[u8; 2]>()).prop_map(|(a, b, [c, d])| [a, b, c, d])
    }

    fn address_v6() -> impl Strategy<Value = [u8; 16]> {
        let first = prop_oneof![
            Just([0u8, 0]),
            Just([0xfe, 0x80]),
            Just([0xfe, 0xbf]),
            Just([0xfe, 0xc0]),
            Just([0xfd, 0xff]),
            Just([0xff, 2]),
            Just([0x20, 1]),
            any::<[u8; 2]>()
        ];
        let rest = prop_oneof![
            Just([0u8; 14]),
            Just([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]),
            Just([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            any::<[u8; 14]>()
        ];
        (first, rest).prop_map(|(first, rest)| {
            let mut address = [0; 16];
            address[..2].copy_from_slice(&first);
            address[2..].copy_from_slice(&rest);
            address
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn fast_and_slow_path_agree_v4(
            source in address_v4(), destination in address_v4(), ttl in 0u8..4,
            total in prop_oneof![3 => Just(None), 1 => (0u16..80).prop_map(Some)],
            payload_bytes in 20usize..60, flip in prop::option::weighted(0.3, (12usize..34, any::<u8>())),
        ) {
            let mut frame = V4 { source, destination, ttl, total, payload_bytes, ..V4::default() }.frame();
            if let Some((at, bits)) = flip {
                frame[at] ^= bits;
            }
            let wanted = check::check(&frame, u32::try_from(frame.len()).unwrap());
            prop_assert_eq!(verdict(&frame), wanted);
        }

        #[test]
        fn fast_and_slow_path_agree_v6(
            source in address_v6(), destination in address_v6(), hop_limit in 0u8..4,
            payload in prop_oneof![3 => Just(None), 1 => (0u16..80).prop_map(Some)],
            payload_bytes in 0usize..60, flip in prop::option::weighted(0.3, (12usize..54, any::<u8>())),
        ) {
            let mut frame = V6 { source, destination, hop_limit, payload, payload_bytes, ..V6::default() }.frame();
            if let Some((at, bits)) = flip {
                frame[at] ^= bits;
            }
            let wanted = check::check(&frame, u32::try_from(frame.len()).unwrap());
            prop_assert_eq!(verdict(&frame), wanted);
        }

        #[test]
        fn any_bytes_are_data(frame in prop::collection::vec(any::<u8>(), 0..120)) {
            let wanted = check::check(&frame, u32::try_from(frame.len()).unwrap());
            prop_assert_eq!(verdict(&frame), wanted);
        }
    }
}
