//! Parse with AVX2: the algorithm of `avx512`, eight packets at a time. Without a compress, mixed groups are appended one at a time.

use super::super::rules::surely_unicast_v6;
use super::super::{IP_AT, IPV4_BYTES, IPV6_BYTES, LaneV4, LaneV6, Parsed, START_BYTES, Tally, scalar};
use std::arch::x86_64::*;
use std::ops::Range;

const EIGHT: usize = 8;
type HeaderColumns = [__m256i; 6];
/// The byte at which the columns start, so that a header without options ends within 32 bytes.
const COLUMNS_AT: usize = 10;

/// # Safety
/// As for [`scalar::parse`]; the CPU must have the instructions; the lanes must have room for the packets, and the other arrays for index
/// `range.end`, each with [`PAD`](super::super::PAD) more entries.
#[target_feature(enable = "avx2,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub(in super::super) unsafe fn parse(
    heads: &[*mut u8],
    lengths: &[u64],
    range: Range<usize>,
    out: &mut Parsed<'_>,
) -> Tally {
    let whole = range.start + (range.len() / EIGHT) * EIGHT;
    let mut bytes = _mm256_setzero_si256();
    let mut passed = 0;
    for at in (range.start..whole).step_by(EIGHT) {
        let Parsed { v4, v6, kinds, lengths: ip_lengths } = &mut *out;
        // SAFETY: `lengths` has eight entries from `at` on.
        let (low, high) = unsafe {
            let lengths = lengths.as_ptr().add(at);
            (_mm256_loadu_si256(lengths.cast()), _mm256_loadu_si256(lengths.add(4).cast()))
        };
        let frame_bytes = every_second::<0b10_00_10_00>(low, high);
        let head_bytes = _mm256_and_si256(every_second::<0b11_01_11_01>(low, high), all(0xffff));
        let low_halves = _mm256_set1_epi64x(0xffff_ffff);
        bytes = _mm256_add_epi64(bytes, _mm256_and_si256(low, low_halves));
        bytes = _mm256_add_epi64(bytes, _mm256_and_si256(high, low_halves));
        let there = _mm256_sub_epi32(frame_bytes, all(IP_AT));
        // SAFETY: `heads` has eight entries from `at` on, each valid for START_BYTES bytes.
        let (heads, columns) = unsafe {
            let heads = &*heads.as_ptr().add(at).cast::<[*mut u8; EIGHT]>();
            (heads, columns(heads))
        };
        // The ethertype in the high half, the first byte of the IP header in the low half.
        let first_byte = _mm256_and_si256(columns[1], all(0xff));
        let kind = _mm256_blend_epi16::<0b1010_1010>(first_byte, columns[0]);
        let is_whole = _mm256_cmpgt_epi32(head_bytes, all(START_BYTES as u32 - 1));
        let is_v4 = _mm256_and_si256(is_whole, _mm256_cmpeq_epi32(kind, all(0x0008_0045)));
        let version = _mm256_and_si256(kind, all(0xffff_00f0));
        let is_v6 = _mm256_and_si256(is_whole, _mm256_cmpeq_epi32(version, all(0xdd86_0060)));
        let (mut good4, mut good6, mut total) = (0, 0, _mm256_setzero_si256());
        if mask(is_v4) != 0 {
            let good;
            (good, total) = check_v4(is_v4, &columns, there);
            good4 = mask(good);
            // SAFETY: the lane has room for these packets and eight more entries.
            unsafe { append_v4(v4, good4, swap_bytes(columns[5]), at) };
        }
        if mask(is_v6) != 0 {
            let (good, total6) = check_v6(is_v6, &columns, there);
            // SAFETY: all pointers are valid for START_BYTES bytes, and the lane has room for these packets.
            good6 = unsafe { append_v6(v6, mask(good), heads, at) };
            total = _mm256_blendv_epi8(total, total6, is_v6);
        }
        // SAFETY: the arrays have eight entries from `at` on; 0, 1 and 2 are the values of a `Kind`.
        unsafe {
            _mm256_storeu_si256(ip_lengths.as_mut_ptr().add(at).cast(), total);
            kinds.as_mut_ptr().add(at).cast::<u64>().write_unaligned(bytes_of(good4) | bytes_of(good6) << 1);
        }
        passed += (good4 | good6).count_ones() as usize;
    }
    let mut sums = [0_u64; 4];
    // SAFETY: `sums` has 32 bytes.
    unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast(), bytes) };
    // SAFETY: by the caller's contract.
    let rest = unsafe { scalar::parse(heads, lengths, whole..range.end, out) };
    Tally { bytes: sums.iter().sum::<u64>() + rest.bytes, passed: passed + rest.passed }
}

/// The packets of `candidates` that meet the rules for IPv4, and the lengths of the IP packets.
#[target_feature(enable = "avx2")]
fn check_v4(candidates: __m256i, columns: &HeaderColumns, there: __m256i) -> (__m256i, __m256i) {
    let [_, a, b, c, source, destination] = *columns;
    let low = |word| _mm256_and_si256(word, all(0xffff));
    let high = |word| _mm256_srli_epi32::<16>(word);
    let add = |a, b| _mm256_add_epi32(a, b);
    let and = |a, b| _mm256_and_si256(a, b);
    // Frame bytes 17 and 16 become the two low bytes.
    let total = shuffle_bytes(a, [3, 2, 0x80, 0x80]);
    let mut good = and(candidates, _mm256_cmpgt_epi32(total, all(IPV4_BYTES - 1)));
    good = and(good, is_at_most(total, there));
    let sum_low = add(add(add(low(a), low(b)), add(low(c), low(source))), low(destination));
    let sum_high = add(add(add(high(a), high(b)), add(high(c), high(source))), high(destination));
    let sum = add(sum_low, sum_high);
    // One fold is enough: it leaves at most 0x1_0007, and a sum above 0xffff would fold to 8 or less, never to all ones.
    let sum = add(low(sum), high(sum));
    good = and(good, _mm256_cmpeq_epi32(sum, all(0xffff)));
    good = and(good, _mm256_cmpgt_epi32(and(c, all(0xff)), all(1)));
    for address in [source, destination] {
        let first = and(address, all(0xff));
        good = and(good, _mm256_cmpgt_epi32(first, all(0)));
        good = and(good, _mm256_cmpgt_epi32(all(224), first));
        good = _mm256_andnot_si256(_mm256_cmpeq_epi32(first, all(127)), good);
        good = _mm256_andnot_si256(_mm256_cmpeq_epi32(low(address), all(0xfea9)), good);
    }
    (good, total)
}

/// The packets of `candidates` that meet the rules for IPv6 without the check of the destination, and the lengths of the IP packets.
#[target_feature(enable = "avx2")]
fn check_v6(candidates: __m256i, columns: &HeaderColumns, there: __m256i) -> (__m256i, __m256i) {
    let [_, _, b, source, source_rest, _] = *columns;
    let and = |a, b| _mm256_and_si256(a, b);
    // Frame bytes 19 and 18 become the two low bytes.
    let total = _mm256_add_epi32(shuffle_bytes(b, [1, 0, 0x80, 0x80]), all(IPV6_BYTES));
    let mut good = and(candidates, is_at_most(total, there));
    good = and(good, _mm256_cmpgt_epi32(_mm256_srli_epi32::<24>(b), all(1)));
    // The first half of the source is not 0 and is below fe00::.
    let none = _mm256_cmpeq_epi32(_mm256_or_si256(source, source_rest), all(0));
    good = _mm256_andnot_si256(none, good);
    good = and(good, _mm256_cmpgt_epi32(all(0xfe), and(source, all(0xff))));
    (good, total)
}

/// # Safety
/// At each head [`START_BYTES`] bytes must be readable.
#[target_feature(enable = "avx2")]
unsafe fn columns(heads: &[*mut u8; EIGHT]) -> HeaderColumns {
    // SAFETY: 32 bytes from COLUMNS_AT on (the caller's contract); loads without alignment.
    let row = |k: usize| unsafe { _mm256_loadu_si256(heads[k].add(COLUMNS_AT).cast()) };
    // Each 128-bit lane has the same word of four packets: words 0 to 3 in the first lane, 4 to 7 in the second.
    let four = |k: usize| {
        let (a, b, c, d) = (row(k), row(k + 1), row(k + 2), row(k + 3));
        let (ab, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    };
    let (low, high) = (four(0), four(4));
    let first = |w: usize| _mm256_permute2x128_si256::<0x20>(low[w], high[w]);
    let second = |w: usize| _mm256_permute2x128_si256::<0x31>(low[w], high[w]);
    [first(0), first(1), first(2), first(3), second(0), second(1)]
}

/// The first of the eight packets has index `at` in the burst.
///
/// # Safety
/// The lane must have room for eight packets.
#[target_feature(enable = "avx2,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "indices of packets are below 65,536")]
unsafe fn append_v4(lane: &mut LaneV4<'_>, good: u32, keys: __m256i, at: usize) {
    if good == 0xff {
        let places = _mm_add_epi16(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7), _mm_set1_epi16(at as i16));
        // SAFETY: eight entries from the lane's end on (the caller's contract).
        unsafe {
            _mm256_storeu_si256(lane.keys.as_mut_ptr().add(lane.len).cast(), keys);
            _mm_storeu_si128(lane.places.as_mut_ptr().add(lane.len).cast(), places);
        }
        lane.len += EIGHT;
        return;
    }
    let mut eight = [0_u32; EIGHT];
    // SAFETY: `eight` has 32 bytes.
    unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast(), keys) };
    for k in ones(good) {
        // SAFETY: fewer than eight entries from the lane's end on (the caller's contract).
        unsafe {
            *lane.keys.get_unchecked_mut(lane.len) = eight[k];
            *lane.places.get_unchecked_mut(lane.len) = (at + k) as u16;
        }
        lane.len += 1;
    }
}

/// Returns the mask of the packets whose destination may be forwarded to; the first of the eight has index `at` in the burst.
///
/// # Safety
/// At each head [`START_BYTES`] bytes must be readable, and the lane must have room for eight packets.
#[target_feature(enable = "avx2,popcnt")]
#[expect(clippy::cast_possible_truncation, reason = "indices of packets are below 65,536")]
unsafe fn append_v6(lane: &mut LaneV6<'_>, good: u32, heads: &[*mut u8; EIGHT], at: usize) -> u32 {
    let mut passed = 0;
    for k in ones(good) {
        // SAFETY: frame bytes 38 to 53 (the caller's contract).
        let halves = unsafe { heads[k].add(38).cast::<[u64; 2]>().read_unaligned() };
        let [hi, lo] = halves.map(u64::from_be);
        // Always written, but counted only if it passes: no branch. SAFETY: fewer than eight entries from the lane's end on (the caller's
        // contract).
        unsafe {
            *lane.his.get_unchecked_mut(lane.len) = hi;
            *lane.los.get_unchecked_mut(lane.len) = lo;
            *lane.places.get_unchecked_mut(lane.len) = (at + k) as u16;
        }
        let passes = surely_unicast_v6(hi);
        lane.len += usize::from(passes);
        passed |= u32::from(passes) << k;
    }
    passed
}

#[inline(always)]
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        (bits != 0).then(|| bits &= bits - 1).map(|()| at)
    })
}

#[inline(always)]
fn bytes_of(bits: u32) -> u64 {
    // Each byte gets a copy of the bits and keeps one bit; then any bit becomes the lowest.
    let own = (u64::from(bits) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    ((own + 0x7f7f_7f7f_7f7f_7f7f) >> 7 | own >> 7) & 0x0101_0101_0101_0101
}

#[target_feature(enable = "avx2")]
#[inline]
fn all(value: u32) -> __m256i {
    _mm256_set1_epi32(value.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn mask(lanes: __m256i) -> u32 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)).cast_unsigned()
}

#[target_feature(enable = "avx2")]
#[inline]
fn is_at_most(a: __m256i, b: __m256i) -> __m256i {
    _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn every_second<const WHICH: i32>(low: __m256i, high: __m256i) -> __m256i {
    let mixed = _mm256_shuffle_ps::<WHICH>(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(mixed))
}

/// The bytes of each 32-bit word in this order; 0x80 gives a zero.
#[target_feature(enable = "avx2")]
#[inline]
fn shuffle_bytes(words: __m256i, order: [u8; 4]) -> __m256i {
    let base =
        _mm256_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c, 0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c);
    _mm256_shuffle_epi8(words, _mm256_or_si256(base, all(u32::from_le_bytes(order))))
}

#[target_feature(enable = "avx2")]
#[inline]
fn swap_bytes(words: __m256i) -> __m256i {
    shuffle_bytes(words, [3, 2, 1, 0])
}
