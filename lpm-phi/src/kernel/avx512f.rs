//! The AVX-512F kernels, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.
//!
//! Bound, IPv4: one gather into the direct array a key; for keys with something below, one gather into a filter (none
//! where G1 is dense) and one table line. Bound, IPv6: two gathers into the direct part; a filter gather and a line for
//! each level that is asked. Lines are prefetched when their number is known and probed when the piece's filters are done.

use crate::bloom::hash::{FMIX32, FMIX64, H2_MULTIPLIER, Hash32};
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::bloom::v6::{self, CHUNK, DEEP_BIT, MASK_SHIFT, Table6};
use crate::kernel::scalar;
use fib::NextHopId;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering;

/// Keys of a piece: its work lists stay in L1.
const PIECE: usize = 256;
/// A work list is written in whole vectors.
const LIST: usize = PIECE + 16;

/// The keys of a piece that go on to the next stage.
#[repr(align(64))]
struct List4 {
    /// Position within the piece; in the upper bits the direct entry's flags.
    pos: [u32; LIST],
    key: [u32; LIST],
    len: usize,
}

impl List4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Probes of a piece: position, hash and line of each key that passed a filter.
#[repr(align(64))]
struct Probes4 {
    pos: [u32; LIST],
    hash: [u32; LIST],
    line: [u32; LIST],
    key: [u32; LIST],
    len: usize,
}

/// Answers IPv4 `keys` into `out`, equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup_v4(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    match table.hash {
        Hash32::H2 => lookup_v4_by::<false>(table, keys, out),
        Hash32::Murmur => lookup_v4_by::<true>(table, keys, out),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v4_by<const MURMUR: bool>(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    let [g1, g2] = &table.levels;
    let mut in_g1 = List4::new();
    let mut in_g2 = List4::new();
    let mut probes = Probes4 { pos: [0; LIST], hash: [0; LIST], line: [0; LIST], key: [0; LIST], len: 0 };
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        direct_v4(table, keys, out, &mut in_g1, &mut in_g2);
        if in_g2.len > 0 {
            filter_v4::<MURMUR, 0>(g2, &in_g2, &mut probes, Some(&mut in_g1));
            probe_v4::<true>(table, g2, &probes, out, &mut in_g1);
            in_g2.len = 0;
        }
        if in_g1.len > 0 {
            filter_v4::<MURMUR, 8>(g1, &in_g1, &mut probes, None);
            probe_v4::<false>(table, g1, &probes, out, &mut in_g1);
            in_g1.len = 0;
        }
    }
}

/// The lanes of a vector that hold the first `n` of a rest.
#[inline]
const fn lanes(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1 << n) - 1 }
}

/// Stage 1 for IPv4: the direct array answers every key; keys with something below are listed.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct_v4(table: &Table4, keys: &[u32], out: &mut [NextHopId], in_g1: &mut List4, in_g2: &mut List4) {
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let hop_mask = _mm512_set1_epi32(v4::HOP_MASK.cast_signed());
    let flag_g1 = _mm512_set1_epi32(G1_BELOW.cast_signed());
    let flag_g2 = _mm512_set1_epi32(G2_BELOW.cast_signed());
    let direct = table.direct.as_ptr().cast::<i32>();
    for at in (0..keys.len()).step_by(16) {
        let live = lanes(keys.len() - at);
        // SAFETY: `live` holds lanes within `keys`. The gather's indices are below 2^20, the length of the direct array.
        let (key, entry) = unsafe {
            let key = _mm512_maskz_loadu_epi32(live, keys.as_ptr().add(at).cast());
            let index = _mm512_srli_epi32::<{ 32 - DIRECT_BITS }>(key);
            (key, _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), live, index, direct))
        };
        // SAFETY: `live` holds lanes within `out`, which is as long as `keys`; a `NextHopId` is a `u32`.
        unsafe {
            _mm512_mask_storeu_epi32(out.as_mut_ptr().add(at).cast(), live, _mm512_and_si512(entry, hop_mask))
        };
        let below_g2 = _mm512_test_epi32_mask(entry, flag_g2);
        let below_g1 = _mm512_test_epi32_mask(entry, flag_g1) & !below_g2;
        let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
        let pos = _mm512_or_si512(pos, _mm512_andnot_si512(hop_mask, entry));
        if below_g1 != 0 {
            append_v4(in_g1, below_g1, pos, key);
        }
        if below_g2 != 0 {
            append_v4(in_g2, below_g2, pos, key);
        }
    }
}

/// Adds the lanes of `mask` to a list.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_v4(list: &mut List4, mask: __mmask16, pos: __m512i, key: __m512i) {
    let len = list.len.min(PIECE);
    // SAFETY: `len` is at most `PIECE`, and both arrays have 16 words beyond that.
    unsafe {
        _mm512_storeu_si512(list.pos.as_mut_ptr().add(len).cast(), _mm512_maskz_compress_epi32(mask, pos));
        _mm512_storeu_si512(list.key.as_mut_ptr().add(len).cast(), _mm512_maskz_compress_epi32(mask, key));
    }
    list.len = len + mask.count_ones() as usize;
}

/// The high half of the 64-bit product of each lane: maps a hash onto `0..n`.
#[target_feature(enable = "avx512f")]
#[inline]
fn scale_x16(hash: __m512i, n: __m512i) -> __m512i {
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hash, n));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), n);
    _mm512_mask_blend_epi32(0xaaaa, even, odd)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn hash_x16<const MURMUR: bool>(x: __m512i) -> __m512i {
    let [first, second] = if MURMUR { FMIX32 } else { [H2_MULTIPLIER; 2] };
    let x = _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x);
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(first.cast_signed()));
    let shifted = if MURMUR { _mm512_srli_epi32::<13>(x) } else { _mm512_srli_epi32::<16>(x) };
    let x = _mm512_mullo_epi32(_mm512_xor_si512(shifted, x), _mm512_set1_epi32(second.cast_signed()));
    _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x)
}

/// The bits of a filter word that each hash sets: `k` bits at `h1 + i * h2` modulo 32.
#[target_feature(enable = "avx512f")]
#[inline]
fn filter_mask_x16(hash: __m512i, k: u32) -> __m512i {
    let one = _mm512_set1_epi32(1);
    let low = _mm512_set1_epi32(31);
    let step = _mm512_or_si512(_mm512_srli_epi32::<5>(hash), one);
    let mut at = hash;
    let mut bits = _mm512_setzero_si512();
    for _ in 0..k {
        bits = _mm512_or_si512(bits, _mm512_sllv_epi32(one, _mm512_and_si512(at, low)));
        at = _mm512_add_epi32(at, step);
    }
    bits
}

/// Stage 2 for IPv4: keys that pass the filter become probes, their lines are prefetched; with a `next` list, keys that do
/// not pass go on there. `SHIFT` host bits are no part of the level's keys. G1 is asked without its filter where it is
/// dense (`SHIFT` 8).
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v4<const MURMUR: bool, const SHIFT: u32>(
    level: &Level4,
    list: &List4,
    probes: &mut Probes4,
    mut next: Option<&mut List4>,
) {
    let words = _mm512_set1_epi32(level.filter_words.cast_signed());
    let primary = _mm512_set1_epi32(level.primary.cast_signed());
    let dense = _mm512_set1_epi32(if SHIFT == 8 { G1_DENSE.cast_signed() } else { 0 });
    let filter = level.filter.as_ptr().cast::<i32>();
    let lines = level.lines.as_ptr().cast::<i8>();
    let mut len = 0;
    for at in (0..list.len).step_by(16) {
        let live = lanes(list.len - at);
        // SAFETY: `list.len` is at most `PIECE`, so 16 words from `at` lie within the arrays.
        let (pos, key) = unsafe {
            (
                _mm512_loadu_si512(list.pos.as_ptr().add(at).cast()),
                _mm512_loadu_si512(list.key.as_ptr().add(at).cast()),
            )
        };
        let hash = hash_x16::<MURMUR>(_mm512_srli_epi32::<SHIFT>(key));
        let sure = _mm512_mask_test_epi32_mask(live, pos, dense);
        let ask = live & !sure;
        let mut pass = sure;
        if ask != 0 {
            let bits = filter_mask_x16(hash, level.filter_hashes);
            let index = scale_x16(hash, words);
            // SAFETY: `scale` yields indices below `filter_words`, the length of the filter.
            let word =
                unsafe { _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), ask, index, filter) };
            pass |= _mm512_mask_cmpeq_epi32_mask(ask, _mm512_and_si512(word, bits), bits);
        }
        if let Some(next) = next.as_deref_mut()
            && pass != live
        {
            append_v4(next, live & !pass, pos, key);
        }
        let line = scale_x16(hash, primary);
        // SAFETY: `len` grows by at most 16 a turn and stays at most `list.len`, so 16 words from it lie within the arrays.
        unsafe {
            _mm512_storeu_si512(
                probes.pos.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi32(pass, pos),
            );
            _mm512_storeu_si512(
                probes.hash.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi32(pass, hash),
            );
            _mm512_storeu_si512(
                probes.line.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi32(pass, line),
            );
            _mm512_storeu_si512(
                probes.key.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi32(pass, key),
            );
        }
        let end = len + pass.count_ones() as usize;
        for line in &probes.line[len..end] {
            _mm_prefetch::<_MM_HINT_T0>(lines.wrapping_add(*line as usize * 64));
        }
        len = end;
    }
    probes.len = len;
}

/// Stage 3 for IPv4: finds each probe's hash in its line. With `NEXT`, probes that find nothing go on to `next`.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v4<const NEXT: bool>(
    table: &Table4,
    level: &Level4,
    probes: &Probes4,
    out: &mut [NextHopId],
    next: &mut List4,
) {
    let tag_mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    for at in 0..probes.len {
        let tag = _mm512_set1_epi32((probes.hash[at] << 16).cast_signed());
        let mut line = probes.line[at] as usize;
        let mut next_hop = 0;
        loop {
            let words = &level.lines[line * v4::LINE_WORDS..(line + 1) * v4::LINE_WORDS];
            // SAFETY: `words` is one line, 64 bytes aligned to 64. Each slot is one aligned 32-bit word, which the load
            // takes whole; a slot is used only as this load saw it.
            let slots = unsafe { _mm512_load_si512(words.as_ptr().cast()) };
            let used = _mm512_mask_test_epi32_mask(0x7fff, slots, slots);
            let hit = _mm512_mask_cmpeq_epi32_mask(used, _mm512_and_si512(slots, tag_mask), tag);
            if hit != 0 {
                let first = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(hit, slots));
                let index = _mm_cvtsi128_si32(first).cast_unsigned() & 0xffff;
                next_hop = table.hop_ids[index as usize].load(Ordering::Relaxed);
                break;
            }
            match words[v4::LINE_SLOTS].load(Ordering::Acquire) {
                0 => break,
                link => line = link as usize,
            }
        }
        if next_hop != 0 {
            out[(probes.pos[at] & v4::HOP_MASK) as usize] = NextHopId::from_answer(next_hop);
        } else if NEXT {
            let len = next.len.min(PIECE);
            next.pos[len] = probes.pos[at];
            next.key[len] = probes.key[at];
            next.len = len + 1;
        }
    }
}

/// The keys of a piece that have levels left to ask.
#[repr(align(64))]
struct List6 {
    /// Position within the piece, and from bit 32 the mask of levels to ask.
    pos: [u64; LIST],
    len: usize,
}

/// Probes of a piece: the list entry, the key and the line of each key that passed a filter.
#[repr(align(64))]
struct Probes6 {
    pos: [u64; LIST],
    key: [u64; LIST],
    line: [u64; LIST],
    len: usize,
}

/// Answers IPv6 keys, given as two halves, into `out`, all equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup_v6(table: &Table6, hi: &[u64], lo: &[u64], out: &mut [NextHopId]) {
    let mut lists = [List6 { pos: [0; LIST], len: 0 }, List6 { pos: [0; LIST], len: 0 }];
    let mut probes = Probes6 { pos: [0; LIST], key: [0; LIST], line: [0; LIST], len: 0 };
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        direct_v6(table, hi, lo, out, &mut lists[0]);
        while lists[0].len > 0 {
            let [now, next] = &mut lists;
            next.len = 0;
            filter_v6(table, hi, now, &mut probes, next);
            probe_v6(table, &probes, out, next);
            lists.swap(0, 1);
        }
    }
}

/// Stage 1 for IPv6: top and chunk entries answer every key; keys with levels below are listed.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct_v6(table: &Table6, hi: &[u64], lo: &[u64], out: &mut [NextHopId], list: &mut List6) {
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let chunk_flag = _mm512_set1_epi32(CHUNK.cast_signed());
    let deep_flag = _mm512_set1_epi32((DEEP_BIT << MASK_SHIFT).cast_signed());
    let low_bits = u32::from(table.direct_bits) - 16;
    let low_count = _mm_cvtsi32_si128(low_bits.cast_signed());
    let rest_count = _mm_cvtsi32_si128(32 - low_bits.cast_signed());
    let top = table.top.as_ptr().cast::<i32>();
    let chunks = table.chunks.as_ptr().cast::<i32>();
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    list.len = 0;
    for at in (0..hi.len()).step_by(16) {
        let live = lanes(hi.len() - at);
        // SAFETY: `live` holds lanes within `hi`: its low 8 bits for the first vector, the high 8 for the second, whose
        // address may lie behind the end but is then not read.
        let key = unsafe {
            let first = _mm512_maskz_loadu_epi64(live as u8, hi.as_ptr().add(at).cast());
            let second = _mm512_maskz_loadu_epi64((live >> 8) as u8, hi.as_ptr().wrapping_add(at + 8).cast());
            high_words(first, second)
        };
        let top_index = _mm512_srli_epi32::<16>(key);
        // SAFETY: 16-bit indices into 2^16 entries.
        let head = unsafe { _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), live, top_index, top) };
        let mut entry = head;
        let chunked = _mm512_test_epi32_mask(head, chunk_flag);
        if chunked != 0 {
            let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(key), rest_count);
            let start = _mm512_sll_epi32(_mm512_and_si512(head, hop_mask), low_count);
            let index = _mm512_or_si512(start, within);
            // SAFETY: a top entry names a chunk that exists, and `within` is below the entries of a chunk. All chunks have
            // at most 64 MiB, so that no index reaches 2^31.
            entry = unsafe { _mm512_mask_i32gather_epi32::<4>(head, chunked, index, chunks) };
        }
        // SAFETY: `live` holds lanes within `out`, which is as long as `hi`; a `NextHopId` is a `u32`.
        unsafe {
            _mm512_mask_storeu_epi32(out.as_mut_ptr().add(at).cast(), live, _mm512_and_si512(entry, hop_mask))
        };
        let below =
            _mm512_mask_test_epi32_mask(chunked, entry, _mm512_set1_epi32(0xff00_0000_u32.cast_signed()));
        if below == 0 {
            continue;
        }
        let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
        let mask = _mm512_srli_epi32::<MASK_SHIFT>(entry);
        let start = list.len.min(PIECE);
        append_v6(list, below, pos, mask);
        if _mm512_mask_test_epi32_mask(below, entry, deep_flag) != 0 {
            finish_deep(table, hi, lo, out, list, start);
        }
    }
}

/// The high 32 bits of sixteen 64-bit words.
#[target_feature(enable = "avx512f")]
#[inline]
fn high_words(first: __m512i, second: __m512i) -> __m512i {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    _mm512_permutex2var_epi32(first, odd, second)
}

/// Adds the lanes of `below` to a list: positions, with the mask of levels in the upper half.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_v6(list: &mut List6, below: __mmask16, pos: __m512i, mask: __m512i) {
    let pos = _mm512_maskz_compress_epi32(below, pos);
    let mask = _mm512_maskz_compress_epi32(below, mask);
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    let len = list.len.min(PIECE);
    // SAFETY: `len` is at most `PIECE`, and the array has 16 words beyond that.
    unsafe {
        let end = list.pos.as_mut_ptr().add(len);
        _mm512_storeu_si512(end.cast(), _mm512_permutex2var_epi32(pos, low, mask));
        _mm512_storeu_si512(end.add(8).cast(), _mm512_permutex2var_epi32(pos, high, mask));
    }
    list.len = len + below.count_ones() as usize;
}

/// Looks for prefixes past /64 of the list's entries from `start` on; entries that have an answer leave the list.
#[cold]
fn finish_deep(
    table: &Table6,
    hi: &[u64],
    lo: &[u64],
    out: &mut [NextHopId],
    list: &mut List6,
    start: usize,
) {
    let mut kept = start;
    for at in start..list.len {
        let mut item = list.pos[at];
        let pos = item as u32 as usize;
        if (item >> 32) as u32 & DEEP_BIT != 0 {
            let next_hop = table.deep.lookup(hi[pos], lo[pos]);
            if !next_hop.is_none() {
                out[pos] = next_hop;
                continue;
            }
            item &= !(u64::from(DEEP_BIT) << 32);
        }
        if item >> 32 != 0 {
            list.pos[kept] = item;
            kept += 1;
        }
    }
    list.len = kept;
}

/// The low 64 bits of the product of each lane, from three 32-bit products (VPMULLQ is DQ).
#[target_feature(enable = "avx512f")]
#[inline]
fn mullo_x8(x: __m512i, y: u64) -> __m512i {
    let low = _mm512_set1_epi64(y.cast_signed());
    let high = _mm512_set1_epi64((y >> 32).cast_signed());
    let cross =
        _mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64::<32>(x), low), _mm512_mul_epu32(x, high));
    _mm512_add_epi64(_mm512_mul_epu32(x, low), _mm512_slli_epi64::<32>(cross))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn murmur64_x8(x: __m512i) -> __m512i {
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[0]);
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[1]);
    _mm512_xor_si512(_mm512_srli_epi64::<33>(x), x)
}

/// Stage 2 for IPv6: each key asks the filter of its own deepest level. Keys that pass become probes with their lines
/// prefetched; keys that do not go on to `next` with that level struck off, if any is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v6(table: &Table6, hi: &[u64], list: &List6, probes: &mut Probes6, next: &mut List6) {
    let levels = &table.levels;
    // SAFETY: each of the level table's arrays is eight 64-bit words.
    let [key_mask, filter_start, filter_words, line_start, lines] = unsafe {
        [&levels.key_mask, &levels.filter_start, &levels.filter_words, &levels.line_start, &levels.lines]
            .map(|array| _mm512_loadu_si512(array.as_ptr().cast()))
    };
    let one = _mm512_set1_epi64(1);
    let position = _mm512_set1_epi64(0xffff_ffff);
    let low = _mm512_set1_epi64(31);
    let filter = table.filter.as_ptr().cast::<i32>();
    let line_bytes = table.lines.as_ptr().cast::<i8>();
    probes.len = 0;
    for at in (0..list.len).step_by(8) {
        let live = lanes(list.len - at) as u8;
        // SAFETY: `list.len` is at most `PIECE`, so 8 words from `at` lie within the array. Positions lie within `hi`,
        // for which `live` is asked.
        let (item, key) = unsafe {
            let item = _mm512_loadu_si512(list.pos.as_ptr().add(at).cast());
            let index = _mm512_and_si512(item, position);
            (item, _mm512_mask_i64gather_epi64::<8>(_mm512_setzero_si512(), live, index, hi.as_ptr().cast()))
        };
        // The deepest level left is the highest bit of the mask, at 32 + level.
        let level = _mm512_sub_epi64(_mm512_set1_epi64(31), _mm512_lzcnt_epi64(item));
        let key = _mm512_and_si512(key, _mm512_permutexvar_epi64(level, key_mask));
        let hash = murmur64_x8(key);
        let high = _mm512_srli_epi64::<32>(hash);
        let scaled = |n, start| {
            let n = _mm512_permutexvar_epi64(level, n);
            _mm512_add_epi64(
                _mm512_permutexvar_epi64(level, start),
                _mm512_srli_epi64::<32>(_mm512_mul_epu32(high, n)),
            )
        };
        let word_index = scaled(filter_words, filter_start);
        // SAFETY: a scaled hash is below the level's filter words, and the level's filter lies within the array.
        let word = unsafe {
            _mm512_mask_i64gather_epi32::<4>(_mm256_setzero_si256(), live, word_index, filter.cast())
        };
        let word = _mm512_cvtepu32_epi64(word);
        let step = _mm512_or_si512(_mm512_srli_epi64::<5>(high), one);
        let mut bit = high;
        let mut bits = _mm512_setzero_si512();
        for _ in 0..levels.filter_hashes {
            bits = _mm512_or_si512(bits, _mm512_sllv_epi64(one, _mm512_and_si512(bit, low)));
            bit = _mm512_add_epi64(bit, step);
        }
        let pass = _mm512_mask_cmpeq_epi64_mask(live, _mm512_and_si512(word, bits), bits);
        // Strike the level off: it is asked now, and not again.
        let struck = _mm512_add_epi64(level, _mm512_set1_epi64(32));
        let item = _mm512_andnot_si512(_mm512_sllv_epi64(one, struck), item);
        let more = _mm512_mask_cmpgt_epu64_mask(live & !pass, item, position);
        let line = scaled(lines, line_start);
        let len = probes.len.min(PIECE);
        let next_len = next.len.min(PIECE);
        // SAFETY: both lengths are at most `PIECE`, and the arrays have 16 words beyond that.
        unsafe {
            _mm512_storeu_si512(
                next.pos.as_mut_ptr().add(next_len).cast(),
                _mm512_maskz_compress_epi64(more, item),
            );
            _mm512_storeu_si512(
                probes.pos.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(pass, item),
            );
            _mm512_storeu_si512(
                probes.key.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(pass, key),
            );
            _mm512_storeu_si512(
                probes.line.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(pass, line),
            );
        }
        next.len = next_len + more.count_ones() as usize;
        let end = len + pass.count_ones() as usize;
        for line in &probes.line[len..end] {
            _mm_prefetch::<_MM_HINT_T0>(line_bytes.wrapping_add(*line as usize * 64));
        }
        probes.len = end;
    }
}

/// Stage 3 for IPv6: finds each probe's key in its line; keys that are not there go on to `next` if a level is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v6(table: &Table6, probes: &Probes6, out: &mut [NextHopId], next: &mut List6) {
    for at in 0..probes.len {
        let key = probes.key[at];
        let line = probes.line[at] as usize;
        let words = &table.lines[line * v6::LINE_WORDS..(line + 1) * v6::LINE_WORDS];
        // SAFETY: `words` is one line, 64 bytes aligned to 64; each key is one aligned 64-bit word, taken whole.
        let slots = unsafe { _mm512_load_si512(words.as_ptr().cast()) };
        let hit = _mm512_mask_cmpeq_epi64_mask(0x3f, slots, _mm512_set1_epi64(key.cast_signed()));
        let mut index = if hit == 0 { 0 } else { v6::index_at(words, hit.trailing_zeros() as usize) };
        if index == 0 {
            let link = v6::link_of(words);
            if link != 0 {
                index = scalar::probe_v6(table, link as usize, key);
            }
        }
        let item = probes.pos[at];
        if index != 0 {
            let next_hop = table.hop_ids[usize::from(index)].load(Ordering::Relaxed);
            out[item as u32 as usize] = NextHopId::from_answer(next_hop);
        } else if item >> 32 != 0 {
            let len = next.len.min(PIECE);
            next.pos[len] = item;
            next.len = len + 1;
        }
    }
}
