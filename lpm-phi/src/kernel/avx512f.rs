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

/// The work lists of a reader: some 27 KiB, made once, for clearing them would cost more than a small batch.
#[derive(Debug)]
pub(crate) struct Lists {
    v4: Lists4,
    v6: Lists6,
}

impl Lists {
    /// Empty lists.
    pub(crate) fn new() -> Box<Self> {
        let v4 = Lists4 { in_g1: List4::new(), in_g2: List4::new(), probes: Probes4::new() };
        let v6 = Lists6 { lists: [List6::new(), List6::new()], probes: Probes6::new() };
        Box::new(Self { v4, v6 })
    }
}

#[derive(Debug)]
struct Lists4 {
    in_g1: List4,
    in_g2: List4,
    probes: Probes4,
}

#[derive(Debug)]
struct Lists6 {
    lists: [List6; 2],
    probes: Probes6,
}

/// The keys of a piece that go on to the next stage.
#[derive(Debug)]
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
#[derive(Debug)]
#[repr(align(64))]
struct Probes4 {
    pos: [u32; LIST],
    hash: [u32; LIST],
    line: [u32; LIST],
    key: [u32; LIST],
    len: usize,
}

impl Probes4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], hash: [0; LIST], line: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Answers IPv4 `keys` into `out`, equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup_v4(table: &Table4, lists: &mut Lists, keys: &[u32], out: &mut [NextHopId]) {
    match table.hash {
        Hash32::H2 => lookup_v4_by::<false>(table, lists, keys, out),
        Hash32::Murmur => lookup_v4_by::<true>(table, lists, keys, out),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v4_by<const MURMUR: bool>(table: &Table4, lists: &mut Lists, keys: &[u32], out: &mut [NextHopId]) {
    let [g1, g2] = &table.levels;
    let Lists4 { in_g1, in_g2, probes } = &mut lists.v4;
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        direct_v4(table, keys, out, in_g1, in_g2);
        if in_g2.len > 0 {
            filter_v4::<MURMUR, 0>(g2, in_g2, probes, Some(in_g1));
            probe_v4::<true>(table, g2, probes, out, in_g1);
            in_g2.len = 0;
        }
        if in_g1.len > 0 {
            filter_v4::<MURMUR, 8>(g1, in_g1, probes, None);
            probe_v4::<false>(table, g1, probes, out, in_g1);
            in_g1.len = 0;
        }
    }
}

/// The lanes of a vector that hold the first `n` of a rest.
#[inline]
const fn lanes(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1 << n) - 1 }
}

/// Asks for the cache line at `start + bytes`. A vector gather on its own keeps too few loads in flight: its micro-operations
/// fill the reorder buffer. A prefetch is one, and never faults.
#[target_feature(enable = "avx512f")]
#[inline]
fn prefetch(start: *const i8, bytes: usize) {
    _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(bytes));
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

/// Stage 3 for IPv4: finds each probe's hash in its line. With `NEXT`, probes that find nothing go on to `next`. Whether a
/// probe finds its hash is a matter of chance, so nothing branches on it but the rare way to an overflow line.
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
    let lines = level.lines.as_ptr();
    for at in 0..probes.len.min(PIECE) {
        let (pos, hash) = (probes.pos[at], probes.hash[at]);
        let tag = _mm512_set1_epi32((hash << 16).cast_signed());
        // SAFETY: `scale` yields a line below `primary`, so its 16 words lie within the array, aligned to 64 bytes. A slot
        // is one aligned 32-bit word, which the load takes whole, and is used only as this load saw it.
        let (slots, link) = unsafe {
            let line = lines.add(probes.line[at] as usize * v4::LINE_WORDS);
            (_mm512_load_si512(line.cast()), (*line.add(v4::LINE_SLOTS)).load(Ordering::Acquire))
        };
        let used = _mm512_mask_test_epi32_mask(0x7fff, slots, slots);
        let hit = _mm512_mask_cmpeq_epi32_mask(used, _mm512_and_si512(slots, tag_mask), tag);
        let first = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(hit, slots));
        let mut index = _mm_cvtsi128_si32(first).cast_unsigned() & 0xffff;
        if (hit == 0) & (link != 0) {
            index = scalar::probe_v4(level, link as usize, hash);
        }
        // SAFETY: an index is below 2^16, the length of `hop_ids`; a position is below the length of `out`, since it was
        // made from it by `direct_v4`.
        unsafe {
            let next_hop =
                NextHopId::from_answer((*table.hop_ids.as_ptr().add(index as usize)).load(Ordering::Relaxed));
            let answer = out.as_mut_ptr().add((pos & v4::HOP_MASK) as usize);
            *answer = if index != 0 { next_hop } else { *answer };
        }
        if NEXT {
            let len = next.len.min(PIECE);
            next.pos[len] = pos;
            next.key[len] = probes.key[at];
            next.len = len + usize::from(index == 0);
        }
    }
}

/// The keys of a piece that have levels left to ask.
#[derive(Debug)]
#[repr(align(64))]
struct List6 {
    /// Position within the piece, and from bit 32 the mask of levels to ask.
    pos: [u64; LIST],
    /// The first 64 bits of the address.
    key: [u64; LIST],
    len: usize,
}

impl List6 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Probes of a piece: the list entry, the level's key and the line of each key that passed a filter.
#[derive(Debug)]
#[repr(align(64))]
struct Probes6 {
    pos: [u64; LIST],
    key: [u64; LIST],
    address: [u64; LIST],
    line: [u64; LIST],
    len: usize,
}

impl Probes6 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], address: [0; LIST], line: [0; LIST], len: 0 }
    }
}

/// A piece's keys and answers.
struct Piece6<'a> {
    hi: &'a [u64],
    lo: &'a [u64],
    out: &'a mut [NextHopId],
}

/// Answers IPv6 keys, given as two halves, into `out`, all equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup_v6(table: &Table6, lists: &mut Lists, hi: &[u64], lo: &[u64], out: &mut [NextHopId]) {
    let Lists6 { lists: [now, next], probes } = &mut lists.v6;
    let (mut now, mut next) = (now, next);
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let mut piece = Piece6 { hi, lo, out };
        direct_v6(table, &mut piece, now);
        while now.len > 0 {
            next.len = 0;
            filter_v6(table, &mut piece, now, probes, next);
            probe_v6(table, probes, piece.out, next);
            std::mem::swap(&mut now, &mut next);
        }
    }
}

/// Stage 1 for IPv6: top and chunk entries answer every key; keys with levels below are listed.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct_v6(table: &Table6, piece: &mut Piece6<'_>, list: &mut List6) {
    let hop_mask = _mm512_set1_epi32(v6::HOP_MASK.cast_signed());
    let chunk_flag = _mm512_set1_epi32(CHUNK.cast_signed());
    let below_mask = _mm512_set1_epi32((0xff_u32 << MASK_SHIFT).cast_signed());
    let low_bits = u32::from(table.direct_bits) - 16;
    let low_count = _mm_cvtsi32_si128(low_bits.cast_signed());
    let rest_count = _mm_cvtsi32_si128(32 - low_bits.cast_signed());
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let top = table.top.as_ptr().cast::<i32>();
    let chunks = table.chunks.as_ptr().cast::<i32>();
    list.len = 0;
    for at in (0..piece.hi.len().min(PIECE)).step_by(16) {
        let live = lanes(piece.hi.len() - at);
        // SAFETY: `live` holds lanes within `hi`: its low 8 bits for the first vector, the high 8 for the second, whose
        // address may lie behind the end but is then not read.
        let key = unsafe {
            let first = _mm512_maskz_loadu_epi64(live as u8, piece.hi.as_ptr().add(at).cast());
            let second =
                _mm512_maskz_loadu_epi64((live >> 8) as u8, piece.hi.as_ptr().wrapping_add(at + 8).cast());
            high_words(first, second)
        };
        let top_index = _mm512_srli_epi32::<16>(key);
        // SAFETY: 16-bit indices into 2^16 entries.
        let mut entry =
            unsafe { _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), live, top_index, top) };
        let chunked = _mm512_test_epi32_mask(entry, chunk_flag);
        if chunked != 0 {
            let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(key), rest_count);
            let first = _mm512_sll_epi32(_mm512_and_si512(entry, hop_mask), low_count);
            let index = _mm512_or_si512(first, within);
            // SAFETY: a top entry names a chunk that exists, and `within` is below the entries of a chunk. All chunks have
            // at most 64 MiB, so that no index reaches 2^31.
            entry = unsafe { _mm512_mask_i32gather_epi32::<4>(entry, chunked, index, chunks) };
        }
        // SAFETY: `live` holds lanes within `out`, which is as long as `hi`; a `NextHopId` is a `u32`.
        unsafe {
            let answers = piece.out.as_mut_ptr().add(at).cast();
            _mm512_mask_storeu_epi32(answers, live, _mm512_and_si512(entry, hop_mask));
        }
        let below = _mm512_mask_test_epi32_mask(chunked, entry, below_mask);
        if below != 0 {
            let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
            append_v6(list, below, pos, _mm512_srli_epi32::<MASK_SHIFT>(entry), &piece.hi[at..]);
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

/// Adds the lanes of `below` to a list: positions, with the mask of levels in the upper half, and keys.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_v6(list: &mut List6, below: __mmask16, pos: __m512i, mask: __m512i, hi: &[u64]) {
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    for (half, part) in [(0, low), (1, high)] {
        let lanes = (below >> (half * 8)) as u8;
        let item = _mm512_permutex2var_epi32(pos, part, mask);
        let len = list.len.min(PIECE);
        // SAFETY: `lanes` are keys of the piece, so they lie within `hi`. `len` is at most `PIECE`, and both arrays have 16
        // words beyond that.
        unsafe {
            let key = _mm512_maskz_loadu_epi64(lanes, hi.as_ptr().wrapping_add(half * 8).cast());
            _mm512_storeu_si512(
                list.pos.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(lanes, item),
            );
            _mm512_storeu_si512(
                list.key.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(lanes, key),
            );
        }
        list.len = len + lanes.count_ones() as usize;
    }
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

/// The bits of a filter word that eight hashes set, as [`filter_mask_x16`] in 64-bit lanes.
#[target_feature(enable = "avx512f")]
#[inline]
fn filter_mask_x8(hash: __m512i, k: u32) -> __m512i {
    let one = _mm512_set1_epi64(1);
    let low = _mm512_set1_epi64(31);
    let step = _mm512_or_si512(_mm512_srli_epi64::<5>(hash), one);
    let mut at = hash;
    let mut bits = _mm512_setzero_si512();
    for _ in 0..k {
        bits = _mm512_or_si512(bits, _mm512_sllv_epi64(one, _mm512_and_si512(at, low)));
        at = _mm512_add_epi64(at, step);
    }
    bits
}

/// Stage 2 for IPv6: each key asks the filter of its own deepest level. Keys that pass become probes with their lines
/// prefetched; keys that do not go on to `next` with that level struck off, if any is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v6(table: &Table6, piece: &mut Piece6<'_>, list: &List6, probes: &mut Probes6, next: &mut List6) {
    let levels = &table.levels;
    // SAFETY: each of the level table's arrays is eight 64-bit words.
    let [key_mask, filter_start, filter_words, line_start, lines] = unsafe {
        [&levels.key_mask, &levels.filter_start, &levels.filter_words, &levels.line_start, &levels.lines]
            .map(|array| _mm512_loadu_si512(array.as_ptr().cast()))
    };
    let one = _mm512_set1_epi64(1);
    let position = _mm512_set1_epi64(0xffff_ffff);
    let deep_level = _mm512_set1_epi64(DEEP_BIT.ilog2().into());
    let filter = table.filter.as_ptr().cast::<i32>();
    let line_bytes = table.lines.as_ptr().cast::<i8>();
    probes.len = 0;
    for at in (0..list.len.min(PIECE)).step_by(8) {
        let live = lanes(list.len - at) as u8;
        // SAFETY: `at` is below `PIECE`, so 8 words from it lie within the arrays.
        let (item, address) = unsafe {
            (
                _mm512_loadu_si512(list.pos.as_ptr().add(at).cast()),
                _mm512_loadu_si512(list.key.as_ptr().add(at).cast()),
            )
        };
        // The deepest level left is the highest bit of the mask, at 32 + level.
        let level = _mm512_sub_epi64(_mm512_set1_epi64(31), _mm512_lzcnt_epi64(item));
        let key = _mm512_and_si512(address, _mm512_permutexvar_epi64(level, key_mask));
        let hash = murmur64_x8(key);
        let high = _mm512_srli_epi64::<32>(hash);
        let scaled = |n, start| {
            let product = _mm512_mul_epu32(high, _mm512_permutexvar_epi64(level, n));
            _mm512_add_epi64(_mm512_permutexvar_epi64(level, start), _mm512_srli_epi64::<32>(product))
        };
        let word_index = scaled(filter_words, filter_start);
        // SAFETY: a scaled hash is below the level's filter words, and the level's filter lies within the array.
        let word = unsafe {
            _mm512_mask_i64gather_epi32::<4>(_mm256_setzero_si256(), live, word_index, filter.cast())
        };
        let bits = filter_mask_x8(high, levels.filter_hashes);
        let mut pass =
            _mm512_mask_cmpeq_epi64_mask(live, _mm512_and_si512(_mm512_cvtepu32_epi64(word), bits), bits);
        // Strike the level off: it is asked now, and not again.
        let struck = _mm512_sllv_epi64(one, _mm512_add_epi64(level, _mm512_set1_epi64(32)));
        let item = _mm512_andnot_si512(struck, item);
        let left = _mm512_cmpgt_epu64_mask(item, position);
        let mut more = live & !pass & left;
        let deep = _mm512_mask_cmpeq_epi64_mask(pass, level, deep_level);
        if deep != 0 {
            more |= finish_deep(table, piece, deep, &list.pos[at..at + 8]) & left;
            pass &= !deep;
        }
        let line = scaled(lines, line_start);
        let (len, next_len) = (probes.len.min(PIECE), next.len.min(PIECE));
        // SAFETY: both lengths are at most `PIECE`, and the arrays have 16 words beyond that.
        unsafe {
            _mm512_storeu_si512(
                next.pos.as_mut_ptr().add(next_len).cast(),
                _mm512_maskz_compress_epi64(more, item),
            );
            _mm512_storeu_si512(
                next.key.as_mut_ptr().add(next_len).cast(),
                _mm512_maskz_compress_epi64(more, address),
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
                probes.address.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(pass, address),
            );
            _mm512_storeu_si512(
                probes.line.as_mut_ptr().add(len).cast(),
                _mm512_maskz_compress_epi64(pass, line),
            );
        }
        next.len = next_len + more.count_ones() as usize;
        let end = len + pass.count_ones() as usize;
        for line in &probes.line[len..end] {
            prefetch(line_bytes, *line as usize * 64);
        }
        probes.len = end;
    }
}

/// Looks for prefixes past /64 of the lanes of `deep`, whose positions are in `items`. Returns the lanes without an answer.
#[cold]
fn finish_deep(table: &Table6, piece: &mut Piece6<'_>, deep: u8, items: &[u64]) -> u8 {
    let mut missed = 0;
    for (lane, item) in items.iter().enumerate().filter(|(lane, _)| deep >> lane & 1 == 1) {
        let pos = *item as u32 as usize;
        let next_hop = table.deep.lookup(piece.hi[pos], piece.lo[pos]);
        if next_hop.is_none() {
            missed |= 1 << lane;
        } else {
            piece.out[pos] = next_hop;
        }
    }
    missed
}

/// Stage 3 for IPv6: finds each probe's key in its line; keys that are not there go on to `next` if a level is left.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v6(table: &Table6, probes: &Probes6, out: &mut [NextHopId], next: &mut List6) {
    let lines = table.lines.as_ptr();
    for at in 0..probes.len.min(PIECE) {
        let (item, key) = (probes.pos[at], probes.key[at]);
        // SAFETY: `filter_v6` made a line within its level, so its 8 words lie within the array, aligned to 64 bytes. Each
        // key is one aligned 64-bit word, taken whole.
        let (slots, words) = unsafe {
            let line = lines.add(probes.line[at] as usize * v6::LINE_WORDS);
            (_mm512_load_si512(line.cast()), std::slice::from_raw_parts(line, v6::LINE_WORDS))
        };
        let hit = _mm512_mask_cmpeq_epi64_mask(0x3f, slots, _mm512_set1_epi64(key.cast_signed()));
        let mut index = if hit != 0 { v6::index_at(words, hit.trailing_zeros() as usize) } else { 0 };
        if index == 0 {
            let link = v6::link_of(words);
            if link != 0 {
                index = scalar::probe_v6(table, link as usize, key);
            }
        }
        if index != 0 {
            let next_hop = table.hop_ids[usize::from(index)].load(Ordering::Relaxed);
            out[item as u32 as usize] = NextHopId::from_answer(next_hop);
        } else if item >> 32 != 0 {
            let len = next.len.min(PIECE);
            next.pos[len] = item;
            next.key[len] = probes.address[at];
            next.len = len + 1;
        }
    }
}
