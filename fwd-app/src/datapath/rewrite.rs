//! Rewrite: changes MACs, TTL or hop limit, and the IPv4 checksum; every other byte stays as received.

use super::batch::{Batch, Lane, Way};
use super::{Code, Egress, Packets};

/// The bytes of a plain frame that are read and written: MACs, and the header up to the IPv4 checksum.
const START_BYTES: usize = 26;
/// How many packets ahead a header is prefetched: it may have been evicted from the L1 cache since parse.
pub(super) const PREFETCH_AHEAD: usize = 12;

/// Rewrites the headers of every packet that is sent.
pub(crate) fn rewrite<P: Packets>(batch: &mut Batch<P>) {
    if batch.odd {
        return one_by_one(batch);
    }
    let Batch { packets, v4, v6, egress, .. } = batch;
    plain(packets, v4, egress, forwarded_v4);
    plain(packets, v6, egress, forwarded_v6);
}

/// Rewrites a lane of plain frames that are all sent. `forwarded` maps frame bytes 18 to 25 to their new value.
#[inline(always)]
fn plain<P: Packets>(packets: &mut P, lane: &Lane, egress: &[Egress], forwarded: impl Fn(u64) -> u64) {
    for packet in &lane.packets[..lane.len] {
        let packet = usize::from(*packet);
        packets.prefetch(packet + PREFETCH_AHEAD);
        if let (Some(egress), Some(start)) = (egress.get(packet), packets.start_mut::<START_BYTES>(packet)) {
            write(start, &egress.macs, &forwarded);
        }
    }
}

/// Writes the MACs, and frame bytes 18 to 25 as mapped by `forwarded`.
#[inline(always)]
pub(super) fn write(start: &mut [u8; START_BYTES], macs: &[u8; 12], forwarded: impl Fn(u64) -> u64) {
    start[..12].copy_from_slice(macs);
    // `copy_from_slice`, not a slice pattern: it compiles to one load.
    let mut word = [0; 8];
    word.copy_from_slice(&start[18..]);
    start[18..].copy_from_slice(&forwarded(u64::from_le_bytes(word)).to_le_bytes());
}

/// Rewrites a batch that has odd frames or dropped packets.
fn one_by_one<P: Packets>(batch: &mut Batch<P>) {
    let Batch { packets, ways, egress, ports, .. } = batch;
    let mut known = ways.iter().zip(egress.iter()).zip(ports.iter());
    packets.for_each_mut(|head| {
        let Some(((way, egress), port)) = known.next() else { return };
        if *port >= Code::FIRST {
            return;
        }
        let start = head.first_chunk_mut::<START_BYTES>();
        match (*way, start) {
            (Way::PLAIN_V4, Some(start)) => write(start, &egress.macs, forwarded_v4),
            (Way::PLAIN_V6, Some(start)) => write(start, &egress.macs, forwarded_v6),
            _ => {
                let (ip_at, v6) = way.parts();
                odd(head, &egress.macs, ip_at, v6);
            }
        }
    });
}

/// Bytes 4 to 11 of an IPv4 header after one hop: TTL (byte 8), protocol, checksum (10 and 11), in network byte order.
///
/// RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`, where `m` is the word of TTL and protocol: decrementing the TTL makes
/// `~m + m' = 0xfeff` whatever `m` is. One's complement sums are the same in either byte order (RFC 1071 2 B), so the bytes are not
/// swapped and the constant is 0xfffe.
#[inline(always)]
pub(super) fn forwarded_v4(word: u64) -> u64 {
    let sum = (!word >> 48) + 0xfffe;
    let sum = (sum + (sum >> 16)) & 0xffff;
    // Parse drops a TTL below 2, so the subtraction borrows from no other byte.
    (word.wrapping_sub(1 << 32) & 0xffff_ffff_ffff) | (sum ^ 0xffff) << 48
}

/// Bytes 4 to 11 of an IPv6 header after one hop: the hop limit (byte 7) is decremented. Parse drops a hop limit below 2.
#[inline(always)]
pub(super) fn forwarded_v6(word: u64) -> u64 {
    word.wrapping_sub(1 << 24)
}

/// Rewrites a frame with tags, or one whose first segment is short.
#[cold]
#[inline(never)]
fn odd(head: &mut [u8], macs: &[u8; 12], ip_at: usize, v6: bool) {
    if let Some(start) = head.first_chunk_mut::<12>() {
        *start = *macs;
    }
    let Some(ip) = head.get_mut(ip_at..) else { return };
    if v6 {
        if let Some(hop_limit) = ip.get_mut(7) {
            *hop_limit = hop_limit.wrapping_sub(1);
        }
    } else if let Some(bytes) = ip.get_mut(4..12).and_then(|bytes| bytes.first_chunk_mut::<8>()) {
        *bytes = forwarded_v4(u64::from_le_bytes(*bytes)).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::super::EgressTable;
    use super::super::check;
    use super::super::egress::tests::ports;
    use super::super::parse::Parse;
    use super::super::test_frames::{V4, V6};
    use super::super::verdict::verdict;
    use super::*;
    use fib::{NextHopId, NextHopTable};

    /// The frame as it leaves when its next hop is id 6 and there are 4 ports.
    fn forwarded(frame: &[u8]) -> Vec<u8> {
        let table = EgressTable::new(&NextHopTable::new(), &ports(4)).unwrap();
        let mut batch = Batch::new(vec![frame.to_vec()], 1);
        Parse::new(fib::Isa::detect()).run(&mut batch);
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
        // RFC 1624 4: adding instead of equation 3 fails where the sum is 0. All checksums are tried, with TTLs that make the sum
        // carry and TTLs that do not.
        for old in 0..=u16::MAX {
            for ttl in [2, 64, 255] {
                let [high, low] = old.to_be_bytes();
                let word = u64::from_le_bytes([1, 2, 3, 4, ttl, 17, high, low]);
                let [b4, b5, b6, b7, less, protocol, high, low] = forwarded_v4(word).to_le_bytes();
                assert_eq!([b4, b5, b6, b7, less, protocol], [1, 2, 3, 4, ttl - 1, 17]);
                // The rest of the header sums to whatever makes `old` correct; the new sum over all words must be all ones.
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
