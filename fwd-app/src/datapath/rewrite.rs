//! Rewrite: MACs, TTL or hop limit, IPv4 checksum; every other byte stays as it came.

use super::batch::Batch;
use super::{Code, Packets};

/// Where the IP header of an untagged frame starts.
const IP_AT: u16 = 14;

/// Rewrites the headers of every packet that leaves.
pub(crate) fn rewrite<P: Packets>(batch: &mut Batch<P>) {
    let Batch { packets, v4, v6, .. } = batch;
    for (entry, egress) in v4.entries[..v4.len].iter().zip(&v4.egress[..v4.len]) {
        if egress.port >= Code::FIRST {
            continue;
        }
        let packet = usize::from(entry.packet);
        if entry.ip_at == IP_AT
            && let Some(start) = packets.start_mut::<34>(packet)
        {
            start[..12].copy_from_slice(&egress.macs);
            let [.., ttl, protocol, high, low, _, _, _, _, _, _, _, _] = *start;
            let ttl_and_sum = forwarded_v4([ttl, protocol, high, low]);
            start[22..26].copy_from_slice(&ttl_and_sum);
        } else {
            tagged(packets.head_mut(packet), &egress.macs, usize::from(entry.ip_at), false);
        }
    }
    for (entry, egress) in v6.entries[..v6.len].iter().zip(&v6.egress[..v6.len]) {
        if egress.port >= Code::FIRST {
            continue;
        }
        let packet = usize::from(entry.packet);
        if entry.ip_at == IP_AT
            && let Some(start) = packets.start_mut::<22>(packet)
        {
            start[..12].copy_from_slice(&egress.macs);
            // Parse let no hop limit below 2 through.
            start[21] = start[21].wrapping_sub(1);
        } else {
            tagged(packets.head_mut(packet), &egress.macs, usize::from(entry.ip_at), true);
        }
    }
}

/// TTL, protocol and checksum of an IPv4 header, bytes 8 to 11, after one hop.
///
/// RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`, with `m` the word of TTL and protocol: the TTL less one makes
/// `~m + m' = 0xfeff` whatever `m` is.
#[inline(always)]
fn forwarded_v4([ttl, protocol, high, low]: [u8; 4]) -> [u8; 4] {
    let sum = u32::from(!u16::from_be_bytes([high, low])) + 0xfeff;
    #[expect(clippy::cast_possible_truncation, reason = "folded: 0x1_feff at most, so one carry at most")]
    let [high, low] = (!((sum + (sum >> 16)) as u16)).to_be_bytes();
    // Parse let no TTL below 2 through.
    [ttl.wrapping_sub(1), protocol, high, low]
}

/// The same for a frame with tags, or one whose first segment is short.
#[cold]
#[inline(never)]
fn tagged(head: &mut [u8], macs: &[u8; 12], ip_at: usize, v6: bool) {
    if let Some(start) = head.first_chunk_mut::<12>() {
        *start = *macs;
    }
    let Some(ip) = head.get_mut(ip_at..) else { return };
    if v6 {
        if let Some(hop_limit) = ip.get_mut(7) {
            *hop_limit = hop_limit.wrapping_sub(1);
        }
    } else if let Some(&mut [ttl, protocol, high, low]) = ip.get_mut(8..12)
        && let Some(bytes) = ip.get_mut(8..12)
    {
        bytes.copy_from_slice(&forwarded_v4([ttl, protocol, high, low]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::EgressTable;
    use super::super::check;
    use super::super::egress::tests::ports;
    use super::super::parse::parse;
    use super::super::test_frames::{V4, V6};
    use super::super::verdict::verdict;
    use super::*;
    use fib::{NextHopId, NextHopTable};

    /// What leaves when the frame's next hop is id 6 of 4 ports.
    fn forwarded(frame: &[u8]) -> Vec<u8> {
        let table = EgressTable::new(&NextHopTable::new(), &ports(4)).unwrap();
        let mut batch = Batch::new(vec![frame.to_vec()], 1);
        parse(&mut batch);
        assert_eq!(batch.v4.len + batch.v6.len, 1);
        batch.v4.hops[0] = NextHopId::from_answer(6);
        batch.v6.hops[0] = NextHopId::from_answer(6);
        verdict(&mut batch, &table);
        rewrite(&mut batch);
        assert_eq!(batch.ports[0], 1);
        batch.packets.remove(0)
    }

    #[test]
    fn only_what_must_change_changes() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            let at = 14 + 4 * tags.len();
            let frame = V4 { payload_bytes: 60, ..V4::default() }.tagged(tags);
            let out = forwarded(&frame);
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
            assert_eq!(forwarded(&frame), wanted);
        }
    }

    #[test]
    fn short_frames_are_rewritten_too() {
        let frame = V4 { payload_bytes: 0, ..V4::default() }.frame();
        assert_eq!(frame.len(), 34);
        assert_eq!(forwarded(&frame)[22], 63);
    }

    #[test]
    fn the_checksum_is_that_of_the_new_header_for_every_old_one() {
        // RFC 1624 4: adding instead of equation 3 goes wrong where the sum is 0. All checksums, each with a TTL and
        // protocol that carry and one that does not.
        for old in 0..=u16::MAX {
            for ttl in [2, 64, 255] {
                let [high, low] = old.to_be_bytes();
                let [less, protocol, high, low] = forwarded_v4([ttl, 17, high, low]);
                assert_eq!((less, protocol), (ttl - 1, 17));
                // The rest of the header sums to whatever made `old` right; the new sum over all must be all ones.
                let before = u32::from(ttl) << 8 | 17;
                let rest = {
                    let sum = before + u32::from(old);
                    0xffff - ((sum & 0xffff) + (sum >> 16))
                };
                let sum = rest + (u32::from(less) << 8 | 17) + u32::from(u16::from_be_bytes([high, low]));
                let sum = (sum & 0xffff) + (sum >> 16);
                assert_eq!(sum & 0xffff, 0xffff, "old {old:x} ttl {ttl}");
            }
        }
    }
}
