//! The passes with AVX-512 F, BW, DQ and VL: 16 packets at a time, 32 in [`scatter`].
//!
//! Parse transposes frame bytes 10 to 33 of 16 packets to six columns: column `w` has bytes `10 + 4 w` to `13 + 4 w`, as a little-endian
//! number. A rule is a comparison of columns that clears bits of a mask. Both families are checked if both occur, and the packets that
//! pass are compressed into their lane.

use super::{
    Entry, IP_AT, IPV4_BYTES, IPV6_BYTES, Indexed, Kind, LaneV4, LaneV6, PORTS_BY_VECTOR, Parsed,
    START_BYTES, Tally,
};
use crate::burst::{Burst, DROP};
use crate::mbuf::Raw;
use crate::vector::LANES;
use std::arch::x86_64::*;
use std::ops::Range;

type HeaderColumns = [__m512i; 6];
/// The byte at which the columns start, so that a header without options ends within 32 bytes.
const COLUMNS_AT: usize = 10;

/// # Safety
/// As for `scalar::parse`; the CPU must have the instructions; the lanes must have room for the packets, and the other arrays for index
/// `range.end`, each with [`PAD`](super::PAD) more entries.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "indices of packets are below 65,536")]
pub(super) unsafe fn parse(
    heads: &[*mut u8],
    lengths: &[u64],
    range: Range<usize>,
    out: &mut Parsed<'_>,
) -> Tally {
    let Parsed { v4, v6, kinds, lengths: ip_lengths } = out;
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let evens = _mm512_slli_epi32::<1>(iota);
    let odds = _mm512_add_epi32(evens, all(1));
    let mut bytes = _mm512_setzero_si512();
    let mut passed = 0;
    for at in range.clone().step_by(LANES) {
        let valid = first(range.end - at);
        // SAFETY: `lengths` has entries for 16 packets from each packet on.
        let (low, high) = unsafe {
            let lengths = lengths.as_ptr().add(at).cast::<i64>();
            (
                _mm512_maskz_loadu_epi64(octet::<0>(valid), lengths),
                _mm512_maskz_loadu_epi64(octet::<1>(valid), lengths.add(8)),
            )
        };
        let frame_bytes = _mm512_permutex2var_epi32(low, evens, high);
        let head_bytes = _mm512_and_si512(_mm512_permutex2var_epi32(low, odds, high), all(0xffff));
        let low_halves = _mm512_set1_epi64(0xffff_ffff);
        bytes = _mm512_add_epi64(bytes, _mm512_and_si512(low, low_halves));
        bytes = _mm512_add_epi64(bytes, _mm512_and_si512(high, low_halves));
        let there = _mm512_sub_epi32(frame_bytes, all(IP_AT));
        // SAFETY: `heads` has 16 entries from each packet on, each valid for START_BYTES bytes.
        let (heads, columns) = unsafe {
            let heads = &*heads.as_ptr().add(at).cast::<[*mut u8; LANES]>();
            (heads, columns(heads))
        };
        // The ethertype in the high half, the first byte of the IP header in the low half.
        let first_byte = _mm512_and_si512(columns[1], all(0xff));
        let kind = _mm512_mask_blend_epi16(0x5555_5555, columns[0], first_byte);
        let whole = _mm512_cmpge_epu32_mask(head_bytes, all(START_BYTES as u32));
        let is_v4 = _mm512_mask_cmpeq_epi32_mask(whole, kind, all(0x0008_0045));
        let version = _mm512_and_si512(kind, all(0xffff_00f0));
        let is_v6 = _mm512_mask_cmpeq_epi32_mask(whole, version, all(0xdd86_0060));
        let places = _mm512_add_epi32(iota, all(at as u32));
        let (mut good4, mut good6, mut total) = (0, 0, _mm512_setzero_si512());
        if is_v4 != 0 {
            (good4, total) = check_v4(is_v4, &columns, there);
            // SAFETY: the lane has room for these packets and 16 more entries.
            unsafe { append_v4(v4, good4, swap_bytes(columns[5]), places) };
        }
        if is_v6 != 0 {
            // SAFETY: all pointers are valid for START_BYTES bytes.
            let (his, los) = unsafe { destinations_v6(heads) };
            let total6;
            (good6, total6) = check_v6(is_v6, &columns, his, there);
            total = _mm512_mask_mov_epi32(total, good6, total6);
            // SAFETY: the lane has room for these packets and 16 more entries.
            unsafe { append_v6(v6, good6, his, los, places) };
        }
        let each = _mm_mask_set1_epi8(_mm_maskz_set1_epi8(good4, 1), good6, 2);
        // SAFETY: the arrays have entries for 16 packets from each packet on; 0, 1 and 2 are the values of a `Kind`.
        unsafe {
            _mm512_storeu_si512(ip_lengths.as_mut_ptr().add(at).cast(), total);
            _mm_storeu_si128(kinds.as_mut_ptr().add(at).cast(), each);
        }
        passed += (good4 | good6).count_ones();
    }
    Tally { bytes: _mm512_reduce_add_epi64(bytes).cast_unsigned(), passed: passed as usize }
}

/// The packets of `candidates` that meet the rules for IPv4, and the lengths of the IP packets.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn check_v4(candidates: __mmask16, columns: &HeaderColumns, there: __m512i) -> (__mmask16, __m512i) {
    let [_, a, b, c, source, destination] = *columns;
    let low = |word| _mm512_and_si512(word, all(0xffff));
    let high = |word| _mm512_srli_epi32::<16>(word);
    let add = |a, b| _mm512_add_epi32(a, b);
    // Frame bytes 17 and 16 become the two low bytes.
    let total = shuffle_bytes(a, [3, 2, 0x80, 0x80]);
    let mut good = _mm512_mask_cmpge_epu32_mask(candidates, total, all(IPV4_BYTES));
    good = _mm512_mask_cmple_epu32_mask(good, total, there);
    let sum = add(add(add(a, b), add(c, source)), destination);
    let sum_high = add(add(add(high(a), high(b)), add(high(c), high(source))), high(destination));
    // `sum` less the high halves is the sum of the low halves, modulo 2^32; both sums together are at most 0x9_fff6.
    let sum = add(_mm512_sub_epi32(sum, _mm512_slli_epi32::<16>(sum_high)), sum_high);
    // One fold leaves at most 0x1_0008: a second fold would never make it all ones.
    let sum = add(low(sum), high(sum));
    good = _mm512_mask_cmpeq_epi32_mask(good, sum, all(0xffff));
    good = _mm512_mask_cmpgt_epu32_mask(good, _mm512_and_si512(c, all(0xff)), all(1));
    for address in [source, destination] {
        let first = _mm512_and_si512(address, all(0xff));
        good = _mm512_mask_cmplt_epu32_mask(good, _mm512_sub_epi32(first, all(1)), all(223));
        good = _mm512_mask_cmpneq_epi32_mask(good, first, all(127));
        good = _mm512_mask_cmpneq_epi32_mask(good, low(address), all(0xfea9));
    }
    (good, total)
}

/// As `check_v4`; `his` are the first halves of the destinations, host order.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn check_v6(
    candidates: __mmask16,
    columns: &HeaderColumns,
    his: [__m512i; 2],
    there: __m512i,
) -> (__mmask16, __m512i) {
    let [_, _, b, source, source_rest, _] = *columns;
    // Frame bytes 19 and 18 become the two low bytes.
    let total = _mm512_add_epi32(shuffle_bytes(b, [1, 0, 0x80, 0x80]), all(IPV6_BYTES));
    let mut good = _mm512_mask_cmple_epu32_mask(candidates, total, there);
    good = _mm512_mask_cmpgt_epu32_mask(good, _mm512_srli_epi32::<24>(b), all(1));
    // The first half of the source is not 0 and is below fe00::.
    let any = _mm512_or_si512(source, source_rest);
    good = _mm512_mask_test_epi32_mask(good, any, any);
    good = _mm512_mask_cmplt_epu32_mask(good, _mm512_and_si512(source, all(0xff)), all(0xfe));
    let (one, limit) = (_mm512_set1_epi64(1), _mm512_set1_epi64(0xfe00_0000_0000_0000_u64.cast_signed() - 1));
    let [low, high] = his.map(|his| _mm512_cmplt_epu64_mask(_mm512_sub_epi64(his, one), limit));
    (good & (u16::from(low) | u16::from(high) << 8), total)
}

/// # Safety
/// At each head [`START_BYTES`] bytes must be readable.
#[target_feature(enable = "avx512f")]
unsafe fn columns(heads: &[*mut u8; LANES]) -> HeaderColumns {
    // Packets k and k + 4 in the halves of a row.
    let row = |k: usize| {
        // SAFETY: 32 bytes from COLUMNS_AT on (the caller's contract); loads without alignment.
        let (low, high) = unsafe {
            (
                _mm256_loadu_si256(heads[k].add(COLUMNS_AT).cast()),
                _mm256_loadu_si256(heads[k + 4].add(COLUMNS_AT).cast()),
            )
        };
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    };
    // Each 128-bit lane has the same word of four packets: words 0 to 3 in even lanes, 4 to 7 in odd ones.
    let four = |k: usize| {
        let (a, b, c, d) = (row(k), row(k + 1), row(k + 2), row(k + 3));
        let (ab, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ]
    };
    let (low, high) = (four(0), four(8));
    let even = |w: usize| _mm512_shuffle_i32x4::<0b10_00_10_00>(low[w], high[w]);
    let odd = |w: usize| _mm512_shuffle_i32x4::<0b11_01_11_01>(low[w], high[w]);
    [even(0), even(1), even(2), even(3), odd(0), odd(1)]
}

/// The destinations of 16 IPv6 packets, host order: the first halves of packets 0 to 7 and 8 to 15, and the last halves.
///
/// # Safety
/// At each head [`START_BYTES`] bytes must be readable.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
unsafe fn destinations_v6(heads: &[*mut u8; LANES]) -> ([__m512i; 2], [__m512i; 2]) {
    let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    let four = |k: usize| {
        // SAFETY: frame bytes 38 to 53 (the caller's contract); loads without alignment.
        let address = |k: usize| unsafe { _mm_loadu_si128(heads[k].add(38).cast()) };
        let two = |k: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(address(k)), address(k + 1));
        let four = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(two(k)), two(k + 2));
        _mm512_shuffle_epi8(four, swap)
    };
    let (a, b, c, d) = (four(0), four(4), four(8), four(12));
    let first = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let last = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    let pick = |which| [_mm512_permutex2var_epi64(a, which, b), _mm512_permutex2var_epi64(c, which, d)];
    (pick(first), pick(last))
}

/// # Safety
/// The lane must have room for the packets of `good` and 16 more entries.
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
unsafe fn append_v4(lane: &mut LaneV4<'_>, good: __mmask16, keys: __m512i, places: __m512i) {
    let places = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(good, places));
    // SAFETY: 16 entries from the lane's end on (the caller's contract).
    unsafe {
        let keys = _mm512_maskz_compress_epi32(good, keys);
        _mm512_storeu_si512(lane.keys.as_mut_ptr().add(lane.len).cast(), keys);
        _mm256_storeu_si256(lane.places.as_mut_ptr().add(lane.len).cast(), places);
    }
    lane.len += good.count_ones() as usize;
}

/// `his` and `los` have packets 0 to 7 and 8 to 15.
///
/// # Safety
/// The lane must have room for the packets of `good` and 16 more entries.
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
unsafe fn append_v6(
    lane: &mut LaneV6<'_>,
    good: __mmask16,
    his: [__m512i; 2],
    los: [__m512i; 2],
    places: __m512i,
) {
    let places = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(good, places));
    let (low, high) = (octet::<0>(good), octet::<1>(good));
    let second = lane.len + low.count_ones() as usize;
    // SAFETY: 16 entries from the lane's end on (the caller's contract); the second store begins at most 8 entries later.
    unsafe {
        for (out, [first_keys, second_keys]) in [(lane.his.as_mut_ptr(), his), (lane.los.as_mut_ptr(), los)] {
            _mm512_storeu_si512(out.add(lane.len).cast(), _mm512_maskz_compress_epi64(low, first_keys));
            _mm512_storeu_si512(out.add(second).cast(), _mm512_maskz_compress_epi64(high, second_keys));
        }
        _mm256_storeu_si256(lane.places.as_mut_ptr().add(lane.len).cast(), places);
    }
    lane.len += good.count_ones() as usize;
}

/// [`scalar::merge`](super::scalar::merge) with AVX-512: the next values of each lane are expanded to the places of its kind.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
pub(super) fn merge<T: Copy + Into<u32>>(kinds: &[Kind], lanes: [&[T]; 2], words: &mut [u32]) {
    let mut ends = [0; 2];
    let groups = kinds.chunks(LANES).zip(words.as_chunks_mut::<LANES>().0);
    for (kinds, words) in groups {
        // SAFETY: the mask covers only existing kinds.
        let kinds = unsafe { _mm_maskz_loadu_epi8(first(kinds.len()), kinds.as_ptr().cast()) };
        let mut merged = _mm512_setzero_si512();
        for ((lane, end), kind) in lanes.iter().zip(&mut ends).zip([Kind::V4, Kind::V6]) {
            let matching = _mm_cmpeq_epi8_mask(kinds, _mm_set1_epi8(kind as i8));
            let Some(next) = lane[*end..].first_chunk::<LANES>() else { return };
            let next = next.map(T::into);
            // SAFETY: `next` has 16 words.
            let next = unsafe { _mm512_loadu_si512(next.as_ptr().cast()) };
            merged = _mm512_mask_expand_epi32(merged, matching, next);
            *end += matching.count_ones() as usize;
        }
        // SAFETY: `words` has 16 words.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), merged) };
    }
}

/// # Safety
/// The CPU must have the instructions, each array [`PAD`](super::PAD) more entries than `count`, and the table at least one entry.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn verdict(
    count: usize,
    table: &[Entry],
    inputs: Indexed<'_>,
    entries: &mut [Entry],
    ports: &mut [u16],
) -> bool {
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^24")]
    let table_len = all(table.len() as u32);
    // The last word of each of 8 entries: MTU and port.
    let last_words = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 0, 0, 0, 0, 0, 0, 0, 0);
    let codes = _mm256_set1_epi16(Entry::CODES.cast_signed());
    let mut any = 0;
    for at in (0..count).step_by(LANES) {
        // SAFETY: the arrays have entries for 16 packets from each packet on; an entry is 16 bytes, a vector four entries; unknown
        // indices are replaced by 0, so all offsets are within the table.
        unsafe {
            let indices = _mm512_loadu_si512(inputs.indices.as_ptr().add(at).cast());
            let known = _mm512_cmplt_epu32_mask(indices, table_len);
            let mut offsets = [0_u32; LANES];
            _mm512_storeu_si512(offsets.as_mut_ptr().cast(), _mm512_maskz_slli_epi32(known, indices, 4));
            let entry = |k: usize| _mm_load_si128(table.as_ptr().byte_add(offsets[k] as usize).cast());
            let two = |k: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(entry(k)), entry(k + 1));
            let mut four = |k: usize| {
                let four = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(two(k)), two(k + 2));
                _mm512_storeu_si512(entries.as_mut_ptr().add(at + k).cast(), four);
                four
            };
            let (a, b, c, d) = (four(0), four(4), four(8), four(12));
            let low = _mm512_permutex2var_epi32(a, last_words, b);
            let high = _mm512_permutex2var_epi32(c, last_words, d);
            let words = _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high));
            let ip_lengths = _mm512_loadu_si512(inputs.lengths.as_ptr().add(at).cast());
            let is_long = _mm512_cmpgt_epu32_mask(ip_lengths, _mm512_srli_epi32::<16>(words));
            let words = _mm512_mask_or_epi32(words, !known, words, all(DROP.into()));
            let port = _mm512_cvtepi32_epi16(words);
            // `TOO_LONG` is the lowest code; an entry's code is above it and stays.
            let port = _mm256_mask_max_epu16(port, is_long, port, codes);
            any |= first(count - at) & _mm256_cmpge_epu16_mask(port, codes);
            _mm256_storeu_si256(ports.as_mut_ptr().add(at).cast(), port);
        }
    }
    any != 0
}

/// 16 ports a vector, as [`verdict`] has just stored them: a longer load would wait until two stores are in the cache.
///
/// # Safety
/// The CPU must have the instructions, `range` at most 64 ports, and the array [`PAD`](super::PAD) entries after it.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn with_code(ports: &[u16], range: Range<usize>, code: u16) -> [u64; 2] {
    let (code, first_code) =
        (_mm256_set1_epi16(code.cast_signed()), _mm256_set1_epi16(Entry::CODES.cast_signed()));
    let (mut these, mut all, mut shift) = (0, 0, 0);
    for at in range.clone().step_by(LANES) {
        // SAFETY: 16 entries from a packet on (the caller's contract); a load without alignment.
        let sixteen = unsafe { _mm256_loadu_si256(ports.as_ptr().add(at).cast()) };
        let there = first(range.end - at);
        these |= u64::from(_mm256_mask_cmpeq_epu16_mask(there, sixteen, code)) << shift;
        all |= u64::from(_mm256_mask_cmpge_epu16_mask(there, sixteen, first_code)) << shift;
        shift += 16;
    }
    [these, all & !these]
}

/// 32 packets at a time are compressed by port to the ends of the bursts; dropped packets and unknown targets follow singly.
///
/// # Safety
/// The CPU must have the instructions; there must be at most [`PORTS_BY_VECTOR`] targets, and each burst must have room for all packets.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,popcnt")]
pub(super) unsafe fn scatter(
    burst: &mut Burst,
    to: &[u16],
    outs: &mut [Burst],
    dropped: &mut Burst,
) -> usize {
    const STEP: usize = 2 * LANES;
    burst.give_all();
    let mut ends = [std::ptr::null_mut(); PORTS_BY_VECTOR];
    for (end, out) in ends.iter_mut().zip(&mut *outs) {
        *end = out.free_part();
    }
    let starts = ends;
    for at in (0..to.len()).step_by(STEP) {
        let mut rest = if to.len() - at < STEP { (1 << (to.len() - at)) - 1 } else { u32::MAX };
        // SAFETY: only the targets of packets are read; the array of packets has PAD more entries (invariant of the burst), and entries
        // from `at` on are not overwritten yet, since fewer packets stay than were read.
        let (ports, eights) = unsafe {
            let packets = burst.front().add(at);
            let eight = |k: usize| _mm512_loadu_si512(packets.add(8 * k).cast());
            let ports = _mm512_maskz_loadu_epi16(rest, to.as_ptr().add(at).cast());
            (ports, [eight(0), eight(1), eight(2), eight(3)])
        };
        for (port, end) in (0..).zip(&mut ends[..outs.len()]) {
            let matching = _mm512_mask_cmpeq_epu16_mask(rest, ports, _mm512_set1_epi16(port));
            rest &= !matching;
            if matching == 0 {
                continue;
            }
            for (matching, eight) in matching.to_le_bytes().into_iter().zip(eights) {
                // SAFETY: the burst has room for all packets, and PAD more entries (invariant of the burst).
                unsafe {
                    _mm512_storeu_si512(end.cast(), _mm512_maskz_compress_epi64(matching, eight));
                    *end = end.add(matching.count_ones() as usize);
                }
            }
        }
        while rest != 0 {
            let i = at + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            // SAFETY: an entry from `at` on, not overwritten yet.
            let packet = Raw(unsafe { *burst.front().add(i) });
            // Both have the room.
            let _ = if to[i] == DROP { dropped.put(packet) } else { burst.put(packet) };
        }
    }
    for ((start, end), out) in starts.into_iter().zip(ends).zip(outs) {
        // SAFETY: this many packets were written after the burst's packets, and `burst` no longer owns them.
        unsafe { out.grow(end.offset_from_unsigned(start)) };
    }
    burst.len()
}

#[target_feature(enable = "avx512f")]
#[inline]
fn all(value: u32) -> __m512i {
    _mm512_set1_epi32(value.cast_signed())
}

#[inline(always)]
fn first(count: usize) -> __mmask16 {
    if count < LANES { (1 << count) - 1 } else { u16::MAX }
}

#[inline(always)]
fn octet<const K: usize>(mask: __mmask16) -> __mmask8 {
    mask.to_le_bytes()[K]
}

/// The bytes of each 32-bit word in this order; 0x80 gives a zero.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
#[inline]
fn shuffle_bytes(words: __m512i, order: [u8; 4]) -> __m512i {
    let [a, b, c, d] = order;
    let base = _mm512_set4_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0);
    _mm512_shuffle_epi8(words, _mm512_or_si512(base, all(u32::from_le_bytes([a, b, c, d]))))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
#[inline]
fn swap_bytes(words: __m512i) -> __m512i {
    shuffle_bytes(words, [3, 2, 1, 0])
}
