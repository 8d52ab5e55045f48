//! Parse: checks headers and collects destinations, family by family.
//!
//! Nearly all frames are plain: untagged IPv4 without options, or untagged IPv6, of at least 54 bytes. While they arrive 16 of one
//! family in a row, their header words are loaded as columns and checked in place. A burst of both families is copied field by
//! field to records instead, which costs a few loads and stores and one branch on the family for each packet, and all records are
//! checked together. Either way the checks are branch-free loops over the rules of [`super::check`], which the compiler vectorizes;
//! `pulp` runs them with the instructions of an [`Isa`], without unsafe code here.
//!
//! Packets that are not plain, or that fail, go one by one through [`check::check`], which alone gives the drop reason. So the
//! loops must never pass a packet that [`check::check`] refuses, but need not pass every good one.

use super::batch::{Batch, Way};
use super::check::{self, Destination};
use super::{Code, Packets};
use dpdk_ffi::Columns;
use fib::Isa;
use pulp::{Arch, NullaryFnOnce};
use std::ops::Range;

/// Packets whose header words are loaded at once.
const LANES: usize = 16;
/// The bytes that a plain frame has in its first segment: an Ethernet header and an IPv6 header.
const START_BYTES: usize = 54;
/// Where the IP header of an untagged frame starts.
const IP_AT: u32 = 14;

/// The parse pass, with the instruction set it runs on.
#[derive(Clone, Debug)]
pub(crate) struct Parse {
    arch: Arch,
    columns: Box<Columns>,
}

impl Parse {
    /// Parses with the instructions of `isa`, which this CPU supports.
    pub(crate) fn new(isa: Isa) -> Self {
        let v3 = || pulp::x86::V3::try_new().map_or(Arch::Scalar, Arch::V3);
        let arch = match isa {
            Isa::Scalar => Arch::Scalar,
            Isa::Avx2 => v3(),
            // Knights Landing has AVX-512F, but not the rest of x86-64-v4.
            Isa::Avx512f => pulp::x86::V4::try_new().map_or_else(v3, Arch::V4),
        };
        Self { arch, columns: Box::default() }
    }

    /// Parses the packets that have not been parsed yet.
    pub(crate) fn run<P: Packets>(&mut self, batch: &mut Batch<P>) {
        batch.packets.note();
        let (first, first4, first6) = (batch.parsed, batch.v4.len, batch.v6.len);
        let count = batch.packets.count().min(batch.packets_max());
        let (mut all_good, mut at) = (true, first);
        while at + LANES <= count {
            match self.arch.dispatch(Take { batch, columns: &mut self.columns, at }) {
                Some(good) => all_good &= good,
                // A burst whose packets are of several kinds probably stays so: stop trying columns.
                None => break,
            }
            at += LANES;
        }
        if at < count {
            all_good &= self.mixed(batch, at..count);
        }
        batch.parsed = count;
        if !all_good {
            batch.odd = true;
            compact(batch, first4, first6);
            slow(batch, first);
        }
    }

    /// Parses packets of any kind.
    fn mixed<P: Packets>(&mut self, batch: &mut Batch<P>, range: Range<usize>) -> bool {
        let (first4, first6) = (batch.v4.len, batch.v6.len);
        let mut all_good = collect(batch, range);
        if batch.v4.len > first4 {
            all_good &= self.arch.dispatch(Check::<_, false> { batch, first: first4 });
        }
        if batch.v6.len > first6 {
            all_good &= self.arch.dispatch(Check::<_, true> { batch, first: first6 });
        }
        all_good
    }
}

/// [`take`] for `pulp`: a closure is not inlined into the function with the vector features, so it would not be vectorized; a
/// method with `inline(always)` is.
struct Take<'a, P> {
    batch: &'a mut Batch<P>,
    columns: &'a mut Columns,
    at: usize,
}

impl<P: Packets> NullaryFnOnce for Take<'_, P> {
    type Output = Option<bool>;

    #[inline(always)]
    fn call(self) -> Option<bool> {
        take(self.batch, self.columns, self.at)
    }
}

/// Parses the 16 packets from `at` on and returns whether all are good; `None` unless they are plain frames of one family.
#[inline(always)]
fn take<P: Packets>(batch: &mut Batch<P>, columns: &mut Columns, at: usize) -> Option<bool> {
    #[expect(clippy::cast_possible_truncation, reason = "54 fits a u16")]
    const BYTES: u16 = START_BYTES as u16;
    // From the last bytes of the source MAC to the last byte of an IPv4 header without options.
    if !batch.packets.columns(at, 10, BYTES, columns) {
        return None;
    }
    let every = |wanted: fn(u32, u32) -> bool| {
        let [first, second, ..] = &columns.words;
        first.iter().zip(second).fold(true, |all, (first, second)| all & wanted(*first, *second))
    };
    // Ethertype and the byte after it; the constants are in network byte order.
    if every(|first, second| (first >> 16 == 0x0008) & (second & 0xff == 0x45)) {
        return take_v4(batch, columns, at);
    }
    if every(|first, second| (first >> 16 == 0xdd86) & (second & 0xf0 == 0x60)) {
        let lengths = columns.words[2];
        // The addresses.
        if batch.packets.columns(at, 22, BYTES, columns) {
            return take_v6(batch, columns, &lengths, at);
        }
    }
    None
}

/// Checks 16 IPv4 packets, given as columns of frame bytes 10 to 41, and adds them to the lane.
#[inline(always)]
fn take_v4<P>(batch: &mut Batch<P>, columns: &Columns, at: usize) -> Option<bool> {
    let Batch { keys4, v4, ways, ip_bytes_max, bytes, .. } = batch;
    let keys = keys4.get_mut(v4.len..)?.first_chunk_mut::<LANES>()?;
    let lengths = v4.ip_bytes.get_mut(v4.len..)?.first_chunk_mut::<LANES>()?;
    let places = v4.packets.get_mut(v4.len..)?.first_chunk_mut::<LANES>()?;
    *ways.get_mut(at..)?.first_chunk_mut::<LANES>()? = [Way::PLAIN_V4; LANES];
    let Columns { words: [_, a, b, c, source, destination, ..], frame_bytes } = columns;
    let (mut good, mut longest, mut sum) = (true, 0, 0);
    for lane in 0..LANES {
        let words = [a[lane], b[lane], c[lane], source[lane], destination[lane]];
        let (is_good, total) = good_v4(words, frame_bytes[lane].wrapping_sub(IP_AT));
        good &= is_good;
        longest = longest.max(total);
        sum += frame_bytes[lane];
        keys[lane] = destination[lane].swap_bytes();
        lengths[lane] = if is_good { total } else { BAD };
        places[lane] = place(at + lane);
    }
    *ip_bytes_max = longest.max(*ip_bytes_max);
    *bytes += u64::from(sum);
    v4.len += LANES;
    Some(good)
}

/// Checks 16 IPv6 packets, given as columns of their addresses and of frame bytes 18 to 21 (`lengths`), and adds them to the lane.
#[inline(always)]
fn take_v6<P>(batch: &mut Batch<P>, columns: &Columns, lengths: &[u32; LANES], at: usize) -> Option<bool> {
    let Batch { keys6, v6, ways, ip_bytes_max, bytes, .. } = batch;
    let his = keys6.0.get_mut(v6.len..)?.first_chunk_mut::<LANES>()?;
    let los = keys6.1.get_mut(v6.len..)?.first_chunk_mut::<LANES>()?;
    let ip_bytes = v6.ip_bytes.get_mut(v6.len..)?.first_chunk_mut::<LANES>()?;
    let places = v6.packets.get_mut(v6.len..)?.first_chunk_mut::<LANES>()?;
    *ways.get_mut(at..)?.first_chunk_mut::<LANES>()? = [Way::PLAIN_V6; LANES];
    let Columns { words: [from, from_low, _, _, a, b, c, d], frame_bytes } = columns;
    let (mut good, mut longest, mut sum) = (true, 0, 0);
    // Half of an address, from two words in the byte order of the frame.
    let half = |first: u32, second: u32| u64::from(first.swap_bytes()) << 32 | u64::from(second.swap_bytes());
    for lane in 0..LANES {
        (his[lane], los[lane]) = (half(a[lane], b[lane]), half(c[lane], d[lane]));
        let there = frame_bytes[lane].wrapping_sub(IP_AT);
        let (is_good, total) = good_v6(lengths[lane], half(from[lane], from_low[lane]), his[lane], there);
        good &= is_good;
        longest = longest.max(total);
        sum += frame_bytes[lane];
        ip_bytes[lane] = if is_good { total } else { BAD };
        places[lane] = place(at + lane);
    }
    *ip_bytes_max = longest.max(*ip_bytes_max);
    *bytes += u64::from(sum);
    v6.len += LANES;
    Some(good)
}

/// Appends the fields of the plain frames of `range` to the records. Returns whether all frames are plain.
#[inline]
fn collect<P: Packets>(batch: &mut Batch<P>, range: Range<usize>) -> bool {
    let max = batch.packets_max();
    let Batch { packets, fields, v4, v6, ways, .. } = batch;
    // All slices get the same length, so that one comparison bounds all indices. One record a packet instead of a column a field:
    // the pointers to that many columns do not fit into the registers.
    let (fields4, fields6, ways) = (&mut fields.v4[..max], &mut fields.v6[..max], &mut ways[..max]);
    let packets6 = &mut v6.packets[..max];
    // Locals: through `&mut` they would be stored and reloaded at each packet.
    let (mut len4, mut len6, mut odd, mut odd_bytes) = (v4.len, v6.len, 0, 0);
    packets.for_each(range, |i, frame_bytes, head| {
        if i >= max || len4 >= max || len6 >= max {
            return;
        }
        // The bytes of plain frames are summed when they are checked.
        let mut pass_by = || {
            ways[i] = Way::default();
            odd_bytes += u64::from(frame_bytes);
            odd += 1;
        };
        let Some(start) = head.first_chunk::<START_BYTES>() else {
            return pass_by();
        };
        let there = u64::from(frame_bytes.wrapping_sub(IP_AT)) << 32;
        // Ethertype and the byte after it in one comparison; the constants are in network byte order.
        let kind = le32(start, 12);
        if kind & 0x00ff_ffff == 0x0045_0008 {
            let destination = u64::from(le32(start, 30));
            fields4[len4] = [le64(start, 14), le64(start, 22), destination | there, i as u64];
            ways[i] = Way::PLAIN_V4;
            len4 += 1;
        } else if kind & 0x00f0_ffff == 0x0060_dd86 {
            let word = u64::from(le32(start, 18));
            fields6[len6] = [word | there, le64(start, 22), le64(start, 38), le64(start, 46)];
            packets6[len6] = place(i);
            ways[i] = Way::PLAIN_V6;
            len6 += 1;
        } else {
            pass_by();
        }
    });
    (v4.len, v6.len) = (len4, len6);
    batch.bytes += odd_bytes;
    odd == 0
}

/// The place of packet `i` in a batch.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a batch holds at most 65,536 packets")]
fn place(i: usize) -> u16 {
    i as u16
}

/// [`check_v4`] or [`check_v6`] for `pulp`, see [`Take`].
struct Check<'a, P, const IS_V6: bool> {
    batch: &'a mut Batch<P>,
    first: usize,
}

impl<P, const IS_V6: bool> NullaryFnOnce for Check<'_, P, IS_V6> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        if IS_V6 { check_v6(self.batch, self.first) } else { check_v4(self.batch, self.first) }
    }
}

/// Checks the IPv4 records from `first` on and converts them to columns of the lane. Returns whether all are good.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves of a word, and places below 65,536")]
fn check_v4<P>(batch: &mut Batch<P>, first: usize) -> bool {
    let Batch { keys4, fields, v4, ip_bytes_max, bytes: batch_bytes, .. } = batch;
    let range = first..v4.len;
    let places = v4.packets[range.clone()].iter_mut();
    let outs = keys4[range.clone()].iter_mut().zip(&mut v4.ip_bytes[range.clone()]).zip(places);
    let (mut good, mut longest, mut sum) = (true, *ip_bytes_max, 0);
    *batch_bytes += range.len() as u64 * u64::from(IP_AT);
    for ([a, b, c, i], ((key, bytes), place)) in fields.v4[range].iter().zip(outs) {
        sum += *c >> 32;
        let words = [*a as u32, (*a >> 32) as u32, *b as u32, (*b >> 32) as u32, *c as u32];
        let (is_good, total) = good_v4(words, (*c >> 32) as u32);
        good &= is_good;
        longest = longest.max(total);
        *key = (*c as u32).swap_bytes();
        *bytes = if is_good { total } else { BAD };
        *place = *i as u16;
    }
    *ip_bytes_max = longest;
    *batch_bytes += sum;
    good
}

/// Checks the IPv6 records from `first` on and converts them to columns of the lane. Returns whether all are good.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
fn check_v6<P>(batch: &mut Batch<P>, first: usize) -> bool {
    let Batch { keys6, fields, v6, ip_bytes_max, bytes: batch_bytes, .. } = batch;
    let range = first..v6.len;
    let keys = keys6.0[range.clone()].iter_mut().zip(&mut keys6.1[range.clone()]);
    let outs = keys.zip(&mut v6.ip_bytes[range.clone()]);
    let (mut good, mut longest, mut sum) = (true, *ip_bytes_max, 0);
    *batch_bytes += range.len() as u64 * u64::from(IP_AT);
    for ([word, source, to_hi, to_lo], ((hi, lo), bytes)) in fields.v6[range].iter().zip(outs) {
        sum += *word >> 32;
        (*hi, *lo) = (to_hi.swap_bytes(), to_lo.swap_bytes());
        let (is_good, ip_bytes) = good_v6(*word as u32, source.swap_bytes(), *hi, (*word >> 32) as u32);
        good &= is_good;
        longest = longest.max(ip_bytes);
        *bytes = if is_good { ip_bytes } else { BAD };
    }
    *ip_bytes_max = longest;
    *batch_bytes += sum;
    good
}

/// Marks a packet that failed, in place of its length: no IP packet is that long.
const BAD: u32 = u32::MAX;

/// Removes the packets that failed from the lanes.
#[cold]
#[inline(never)]
fn compact<P>(batch: &mut Batch<P>, first4: usize, first6: usize) {
    let Batch { keys4, keys6, v4, v6, ways, .. } = batch;
    let mut kept = first4;
    for k in first4..v4.len {
        if v4.ip_bytes[k] == BAD {
            ways[usize::from(v4.packets[k])] = Way::default();
            continue;
        }
        (keys4[kept], v4.ip_bytes[kept], v4.packets[kept]) = (keys4[k], v4.ip_bytes[k], v4.packets[k]);
        kept += 1;
    }
    v4.len = kept;
    kept = first6;
    for k in first6..v6.len {
        if v6.ip_bytes[k] == BAD {
            ways[usize::from(v6.packets[k])] = Way::default();
            continue;
        }
        (keys6.0[kept], keys6.1[kept]) = (keys6.0[k], keys6.1[k]);
        (v6.ip_bytes[kept], v6.packets[kept]) = (v6.ip_bytes[k], v6.packets[k]);
        kept += 1;
    }
    v6.len = kept;
}

/// Checks, one by one, every packet from place `first` on that is in no lane.
#[cold]
#[inline(never)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the halves of an address; places below 65,536; IP headers at 14 to 22"
)]
fn slow<P: Packets>(batch: &mut Batch<P>, first: usize) {
    let Batch { packets, keys4, keys6, v4, v6, ways, ports, drops, parsed, ip_bytes_max, .. } = batch;
    for i in first..*parsed {
        if ways[i] != Way::default() {
            continue;
        }
        let checked = match check::check(packets.head(i), packets.frame_bytes(i)) {
            Ok(checked) => checked,
            Err(reason) => {
                ports[i] = Code::DROPPED;
                drops.add(reason, 1);
                continue;
            }
        };
        *ip_bytes_max = checked.ip_bytes.max(*ip_bytes_max);
        let lane = match checked.destination {
            Destination::V4(key) => {
                keys4[v4.len] = key;
                &mut *v4
            }
            Destination::V6(key) => {
                (keys6.0[v6.len], keys6.1[v6.len]) = ((key >> 64) as u64, key as u64);
                &mut *v6
            }
        };
        lane.packets[lane.len] = i as u16;
        lane.ip_bytes[lane.len] = checked.ip_bytes;
        lane.len += 1;
        ways[i] = Way::odd(checked.ip_at as u8, matches!(checked.destination, Destination::V6(_)));
    }
}

/// Whether an IPv4 packet whose first byte is 0x45 may be forwarded, and its length. `words` is its header in the byte order of the
/// frame, `there` the frame's length from the header on.
#[inline(always)]
fn good_v4(words: [u32; 5], there: u32) -> (bool, u32) {
    let total = (words[0] >> 24) | (words[0] >> 8 & 0xff00);
    let sum = words.iter().fold(0, |sum, word| sum + (word & 0xffff) + (word >> 16));
    let good = check::checksum_is_right(sum)
        & check::lengths_agree_v4(20, total, there)
        & check::may_hop(words[2] & 0xff)
        & check::unicast_v4(words[3])
        & check::unicast_v4(words[4]);
    (good, total)
}

/// Whether an IPv6 packet may be forwarded, and its length. `word` is bytes 4 to 7 of its header in the byte order of the frame,
/// `source` and `destination` are the first halves of the addresses, `there` is the frame's length from the header on. Packets
/// whose addresses are not decided by their first halves fail here and are left to the slow path.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "a field of a word")]
fn good_v6(word: u32, source: u64, destination: u64, there: u32) -> (bool, u32) {
    let ip_bytes = 40 + u32::from((word as u16).swap_bytes());
    let good = check::lengths_agree_v6(ip_bytes, there)
        & check::may_hop(word >> 24)
        & check::surely_unicast_v6(source)
        & check::surely_unicast_v6(destination);
    (good, ip_bytes)
}

// Constant offsets into an array of known length compile to plain loads without bounds checks.
#[inline(always)]
fn le32(start: &[u8; START_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&start[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[inline(always)]
fn le64(start: &[u8; START_BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&start[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::batch::Lane;
    use super::super::test_frames::{V4, V6};
    use super::super::{DropReason, Drops};
    use super::*;
    use proptest::prelude::*;

    fn parsed(frames: Vec<Vec<u8>>) -> Batch<Vec<Vec<u8>>> {
        let count = frames.len();
        let mut batch = Batch::new(frames, count);
        Parse::new(Isa::detect()).run(&mut batch);
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
        assert_eq!(
            (&batch.v4.packets[..batch.v4.len], &batch.v6.packets[..batch.v6.len]),
            (&[1, 4, 2][..], &[0, 5][..])
        );
        assert_eq!((batch.ways[1], batch.ways[0]), (Way::PLAIN_V4, Way::PLAIN_V6));
        assert_eq!((batch.ways[2].parts(), batch.ways[3]), ((18, false), Way::default()));
        assert_eq!(batch.keys4[..3], [0xc633_6407; 3]);
        assert_eq!((batch.keys6.0[1], batch.keys6.1[1]), (0x2001_0db8_0000_0000, 2));
        let mut drops = Drops::default();
        drops.add(DropReason::TtlExpired, 1);
        assert_eq!(batch.drops, drops);
        assert_eq!(batch.ports[3], Code::DROPPED);
    }

    #[test]
    fn rows_of_one_family_and_mixed_ones_keep_their_order() {
        let v4 = |last| V4 { destination: [203, 0, 113, last], payload_bytes: 40, ..V4::default() }.frame();
        let v6 = V6 { payload_bytes: 20, ..V6::default() }.frame();
        // A row of IPv4, then packets of both families; then the same after two rows of IPv6.
        let frames: Vec<_> = (0..40u8).map(|i| if i == 20 { v6.clone() } else { v4(i) }).collect();
        let batch = parsed(frames.clone());
        let wanted: Vec<u16> = (0..40).filter(|i| *i != 20).collect();
        assert_eq!((&batch.v4.packets[..batch.v4.len], batch.v6.packets[0]), (&wanted[..], 20));
        for (key, place) in batch.keys4.iter().zip(&wanted) {
            assert_eq!(*key, 0xcb00_7100 | u32::from(*place));
        }
        let batch = parsed([vec![v6.clone(); 32], frames].concat());
        assert_eq!((batch.v6.len, batch.v6.packets[32], batch.v4.len), (33, 52, 39));
        assert_eq!((batch.keys6.0[16], batch.keys6.1[16]), (batch.keys6.0[32], batch.keys6.1[32]));
        assert!(!batch.odd);
    }

    #[test]
    fn a_batch_is_parsed_in_parts() {
        let frame = V4 { payload_bytes: 40, ..V4::default() }.frame();
        let mut batch = Batch::new(vec![frame.clone(); 3], 8);
        Parse::new(Isa::detect()).run(&mut batch);
        batch.packets.push(frame);
        Parse::new(Isa::detect()).run(&mut batch);
        assert_eq!((batch.v4.len, batch.parsed, batch.v4.packets[3]), (4, 4, 3));
    }

    /// The result of parse for one frame, in the form of the slow path. The frame is parsed alone, and as the fifth of 16 of its
    /// family, which are loaded as columns when all are plain.
    fn verdict(frame: &[u8], good: &[u8]) -> Result<check::Checked, DropReason> {
        let alone = verdict_at(vec![frame.to_vec()], 0);
        let mut row = vec![good.to_vec(); LANES];
        row[4] = frame.to_vec();
        assert_eq!(verdict_at(row, 4), alone, "parsed alone and in a row");
        alone
    }

    /// The result of parse for the frame at `place`, when all others are good.
    fn verdict_at(frames: Vec<Vec<u8>>, place: usize) -> Result<check::Checked, DropReason> {
        let others = frames.len() - 1;
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let batch = parsed(frames);
        assert_eq!(batch.bytes, bytes as u64);
        let ip_at = match batch.ways[place] {
            Way::PLAIN_V4 | Way::PLAIN_V6 => 14,
            odd => u16::try_from(odd.parts().0).unwrap(),
        };
        let checked = |destination, ip_bytes| check::Checked { destination, ip_at, ip_bytes };
        let find = |lane: &Lane| lane.packets[..lane.len].iter().position(|at| usize::from(*at) == place);
        match (find(&batch.v4), find(&batch.v6)) {
            (Some(k), None) => Ok(checked(Destination::V4(batch.keys4[k]), batch.v4.ip_bytes[k])),
            (None, Some(k)) => {
                let key = u128::from(batch.keys6.0[k]) << 64 | u128::from(batch.keys6.1[k]);
                Ok(checked(Destination::V6(key), batch.v6.ip_bytes[k]))
            }
            _ => {
                assert_eq!((batch.drops.total(), batch.v4.len + batch.v6.len), (1, others));
                Err(batch.drops.iter().find(|(_, count)| *count == 1).unwrap().0)
            }
        }
    }

    /// Addresses near the limits of the forbidden ranges, and arbitrary ones.
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
