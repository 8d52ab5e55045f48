//! Parse: checks headers and collects destinations by family.
//!
//! Nearly all frames are untagged IPv4 without options or untagged IPv6, of at least 54 bytes: one kernel call per burst checks them. All
//! others go one by one through [`check::check`], which alone decides the drop reason: the kernel must never pass a packet that it refuses.

use super::batch::{Batch, NO_ENTRY, Tagged};
use super::check::{self, Destination};
use super::packet_state::PacketState;
use super::punt::{PuntCause, PuntVerdict};
use super::{DropReason, PuntMarker};
use dpdk_ffi::simd::{Kind, LaneV4, LaneV6, Parsed};

#[inline]
pub(crate) fn parse(batch: &mut Batch) {
    let Batch { packets, keys4, keys6, v4, v6, kinds, slots, .. } = batch;
    let first = batch.parsed;
    let mut parsed = Parsed {
        v4: LaneV4 { keys: keys4, places: &mut v4.packets, len: v4.len },
        v6: LaneV6 { his: &mut keys6.0, los: &mut keys6.1, places: &mut v6.packets, len: v6.len },
        kinds,
        lengths: slots,
    };
    let tally = packets.parse(first, &mut parsed);
    let (len4, len6) = (parsed.v4.len, parsed.v6.len);
    (v4.len, v6.len) = (len4, len6);
    batch.bytes += tally.bytes;
    batch.parsed = packets.len();
    if tally.passed < batch.parsed - first {
        batch.is_plain = false;
        slow(batch, first);
    }
}

#[cold]
#[inline(never)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves of an address; places below 65,536; IP headers at 14 to 22"
)]
fn slow(batch: &mut Batch, first: usize) {
    let tsc = batch.stamps().last().map_or(0, |stamp| stamp.tsc);
    let Batch { packets, keys4, keys6, v4, v6, kinds, slots, tagged, indices, drops, punting, .. } = batch;
    let is_other = |kind: &Kind| *kind == Kind::Other;
    let mut at = first;
    while let Some(i) = next_place(&kinds[..packets.len()], at, is_other) {
        at = i + 1;
        let checked = match punting {
            None => check::check(packets.data(i), packets.pkt_len(i)).map_err(Err),
            Some(punting) => punted(punting, (packets.data(i), packets.pkt_len(i)), tsc),
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(taken) => {
                (indices[i], slots[i]) = (NO_ENTRY, PacketState::from(taken).word());
                taken.err().into_iter().for_each(|reason| drops.add(reason, 1));
                continue;
            }
        };
        let (lane, kind) = match checked.destination {
            Destination::V4(key) => {
                keys4[v4.len] = key;
                (&mut *v4, Kind::V4)
            }
            Destination::V6(key) => {
                (keys6.0[v6.len], keys6.1[v6.len]) = ((key >> 64) as u64, key as u64);
                (&mut *v6, Kind::V6)
            }
        };
        lane.packets[lane.len] = i as u16;
        lane.len += 1;
        slots[i] = PacketState::Packet { ip_bytes: checked.ip_bytes }.word();
        if usize::from(checked.ip_at) == check::ETHERNET_BYTES {
            kinds[i] = kind;
        } else {
            tagged.push(Tagged { place: i as u16, ip_at: checked.ip_at as u8, is_v6: kind == Kind::V6 });
        }
    }
}

/// Checks a packet of a port with addresses: returns its [`check::check`], or the punt or drop reason if it is not forwarded.
fn punted(
    punting: &mut PuntMarker,
    (head, frame_bytes): (&[u8], u32),
    tsc: u64,
) -> Result<check::Checked, Result<PuntCause, DropReason>> {
    match punting.classify(head) {
        PuntVerdict::ForUs => Err(punting.punt_local(head, tsc)),
        PuntVerdict::Others => Err(Err(DropReason::NotForUs)),
        PuntVerdict::Forward => {
            check::check(head, frame_bytes).map_err(|reason| punting.punt_dropped(reason, tsc))
        }
    }
}

/// The first place from `at` on with a wanted entry. Skips sixteen entries at a time, since few are wanted.
#[inline]
pub(super) fn next_place<T>(entries: &[T], mut at: usize, is_wanted: impl Fn(&T) -> bool) -> Option<usize> {
    while let Some(sixteen) = entries[at..].first_chunk::<16>() {
        // Branch-free, so that it compiles to a few vector instructions.
        if sixteen.iter().fold(false, |any, entry| any | is_wanted(entry)) {
            break;
        }
        at += sixteen.len();
    }
    entries[at..].iter().position(is_wanted).map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::super::batch::KeyLane;
    use super::super::test_frames::{self, V4, V6};
    use super::super::{DropReason, Drops};
    use super::*;
    use proptest::prelude::*;

    fn parsed(frames: &[Vec<u8>]) -> Option<Batch> {
        let mut batch = test_frames::batch(frames)?;
        parse(&mut batch);
        Some(batch)
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
        let Some(batch) = parsed(&[v6.clone(), v4.clone(), tagged, expired, v4, v6]) else { return };
        assert_eq!(
            (&batch.v4.packets[..batch.v4.len], &batch.v6.packets[..batch.v6.len]),
            (&[1, 4, 2][..], &[0, 5][..])
        );
        assert_eq!(batch.kinds[..4], [Kind::V6, Kind::V4, Kind::Other, Kind::Other]);
        assert_eq!(batch.tagged, [Tagged { place: 2, ip_at: 18, is_v6: false }]);
        assert_eq!(batch.keys4[..3], [0xc633_6407; 3]);
        assert_eq!((batch.keys6.0[1], batch.keys6.1[1]), (0x2001_0db8_0000_0000, 2));
        let mut drops = Drops::default();
        drops.add(DropReason::TtlExpired, 1);
        assert_eq!(batch.drops, drops);
        assert_eq!(batch.indices[3], NO_ENTRY);
    }

    #[test]
    fn rows_of_one_family_and_mixed_ones_keep_their_order() {
        let v4 = |last| V4 { destination: [203, 0, 113, last], payload_bytes: 40, ..V4::default() }.frame();
        let v6 = V6 { payload_bytes: 20, ..V6::default() }.frame();
        let frames: Vec<_> = (0..40u8).map(|i| if i == 20 { v6.clone() } else { v4(i) }).collect();
        let Some(batch) = parsed(&frames) else { return };
        let wanted: Vec<u16> = (0..40).filter(|i| *i != 20).collect();
        assert_eq!((&batch.v4.packets[..batch.v4.len], batch.v6.packets[0]), (&wanted[..], 20));
        for (key, place) in batch.keys4.iter().zip(&wanted) {
            assert_eq!(*key, 0xcb00_7100 | u32::from(*place));
        }
        let batch = parsed(&[vec![v6.clone(); 32], frames].concat()).unwrap();
        assert_eq!((batch.v6.len, batch.v6.packets[32], batch.v4.len), (33, 52, 39));
        assert_eq!((batch.keys6.0[16], batch.keys6.1[16]), (batch.keys6.0[32], batch.keys6.1[32]));
        assert_eq!(batch.drops.total(), 0);
    }

    #[test]
    fn a_batch_is_parsed_in_parts() {
        let frame = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let Some(mut batch) = parsed(&vec![frame.clone(); 3]) else { return };
        test_frames::add(&mut batch, &[frame]);
        parse(&mut batch);
        assert_eq!((batch.v4.len, batch.parsed, batch.v4.packets[3]), (4, 4, 3));
    }

    /// The result of parse for one frame, as a result of the slow path. The frame is parsed alone and as the fifth of 16 of its family.
    /// Without EAL the slow path itself is called.
    fn verdict(frame: &[u8], good: &[u8]) -> Result<check::Checked, DropReason> {
        if dpdk_ffi::testing::eal().is_none() {
            return check::check(frame, u32::try_from(frame.len()).unwrap());
        }
        let alone = verdict_at(&[frame.to_vec()], 0);
        let mut row = vec![good.to_vec(); 16];
        row[4] = frame.to_vec();
        assert_eq!(verdict_at(&row, 4), alone, "parsed alone and in a row");
        alone
    }

    fn verdict_at(frames: &[Vec<u8>], place: usize) -> Result<check::Checked, DropReason> {
        let others = frames.len() - 1;
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let batch = parsed(frames).unwrap();
        assert_eq!(batch.bytes, bytes as u64);
        let tagged = batch.tagged.iter().find(|tagged| usize::from(tagged.place) == place);
        let ip_at = tagged.map_or(14, |tagged| u16::from(tagged.ip_at));
        let checked = |destination| {
            let PacketState::Packet { ip_bytes } = batch.slot(place) else {
                panic!("a packet of a lane has a length")
            };
            check::Checked { destination, ip_at, ip_bytes }
        };
        let find = |lane: &KeyLane| lane.packets[..lane.len].iter().position(|at| usize::from(*at) == place);
        match (find(&batch.v4), find(&batch.v6)) {
            (Some(k), None) => Ok(checked(Destination::V4(batch.keys4[k]))),
            (None, Some(k)) => {
                let key = u128::from(batch.keys6.0[k]) << 64 | u128::from(batch.keys6.1[k]);
                Ok(checked(Destination::V6(key)))
            }
            _ => {
                assert_eq!((batch.drops.total(), batch.v4.len + batch.v6.len), (1, others));
                Err(batch.drops.iter().find(|(_, count)| *count == 1).unwrap().0)
            }
        }
    }

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
            prop_assert_eq!(verdict(&frame, &V4 { payload_bytes: 20, ..V4::default() }.frame()), wanted);
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
            prop_assert_eq!(verdict(&frame, &V6 { payload_bytes: 0, ..V6::default() }.frame()), wanted);
        }

        #[test]
        fn any_bytes_are_data(frame in prop::collection::vec(any::<u8>(), 0..120)) {
            let wanted = check::check(&frame, u32::try_from(frame.len()).unwrap());
            prop_assert_eq!(verdict(&frame, &V4 { payload_bytes: 20, ..V4::default() }.frame()), wanted);
        }
    }
}
