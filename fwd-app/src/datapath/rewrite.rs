//! Rewrite: changes MACs, TTL or hop limit, and the IPv4 checksum; all other bytes of a packet stay as received.

use super::batch::{Batch, Tagged};
use dpdk_ffi::simd::rules::checksum_after_hop;

/// Rewrites the headers of every packet, including dropped ones, whose bytes are not used any more.
#[inline]
pub(crate) fn rewrite(batch: &mut Batch) {
    let Batch { packets, kinds, egress, tagged, .. } = batch;
    packets.rewrite(kinds, egress);
    for Tagged { place, ip_at, is_v6 } in tagged {
        hop(&mut packets.data_mut(usize::from(*place))[usize::from(*ip_at)..], *is_v6);
    }
}

/// Decrements the TTL or hop limit of an IP packet. Parse has checked that it is at least 2 and that the header is complete.
pub(crate) fn hop(packet: &mut [u8], is_v6: bool) {
    match packet {
        [_, _, _, _, _, _, _, hop_limit, ..] if is_v6 => *hop_limit -= 1,
        [_, _, _, _, _, _, _, _, ttl, _, high, low, ..] if !is_v6 => {
            *ttl -= 1;
            [*high, *low] = checksum_after_hop([*high, *low]);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::EgressTable;
    use super::super::check;
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
    use super::super::test_frames::{self, V4, V6};
    use super::super::verdict::verdict;
    use super::*;
    use fib::{NextHopId, NextHopTable};

    fn forwarded(frame: &[u8]) -> Option<Vec<u8>> {
        let table = EgressTable::new(&NextHopTable::new(), &ports(4)).unwrap();
        let mut batch = test_frames::batch(&[frame.to_vec()])?;
        parse(&mut batch);
        assert_eq!(batch.v4.len + batch.v6.len, 1);
        batch.v4.hops[0] = NextHopId::from_answer(6);
        batch.v6.hops[0] = NextHopId::from_answer(6);
        verdict(&mut batch, &table);
        rewrite(&mut batch);
        assert_eq!(batch.ports[0], 1);
        Some(batch.packets.data(0).to_vec())
    }

    #[test]
    fn only_what_must_change_changes() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let at = 14 + 4 * tags.len();
            let frame = V4 { payload_bytes: 60, ..V4::default() }.tagged(tags);
            let Some(out) = forwarded(&frame) else { return };
            let mut wanted = frame.clone();
            wanted[..12].copy_from_slice(&[2, 0, 0, 0, 0, 6, 2, 0xf0, 0, 0, 0, 1]);
            wanted[at + 8] -= 1;
            wanted[at + 10..at + 12].copy_from_slice(&out[at + 10..at + 12]);
            assert_eq!(out, wanted);
            let length = u32::try_from(out.len()).unwrap();
            assert!(check::check(&out, length).is_ok(), "the checksum is right again");

            let frame = V6 { payload_bytes: 60, ..V6::default() }.tagged(tags);
            let mut wanted = frame.clone();
            wanted[..12].copy_from_slice(&[2, 0, 0, 0, 0, 6, 2, 0xf0, 0, 0, 0, 1]);
            wanted[at + 7] -= 1;
            assert_eq!(forwarded(&frame), Some(wanted));
        }
    }

    #[test]
    fn short_frames_are_rewritten_too() {
        let frame = V4 { payload_bytes: 0, ..V4::default() }.frame();
        assert_eq!(frame.len(), 34);
        assert!(forwarded(&frame).is_none_or(|out| out[22] == 63));
    }
}
