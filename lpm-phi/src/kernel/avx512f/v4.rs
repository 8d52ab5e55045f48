//! IPv4: the direct array, then G2, then G1.

use super::hash::{filter_mask_x16, hash_x16, scale_x16};
use super::{lanes, prefetch};
use crate::bloom::hash::Hash32;
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::kernel::lists::{AHEAD, LIST, List4, Lists, Lists4, PIECE, Probes4};
use crate::kernel::scalar;
use fib::NextHopId;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering;

/// Answers IPv4 `keys` into `out`, equally long.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(in crate::kernel) fn lookup_v4(table: &Table4, lists: &mut Lists, keys: &[u32], out: &mut [NextHopId]) {
    match table.hash {
        Hash32::H2 => lookup_v4_by::<false>(table, lists, keys, out),
        Hash32::Murmur => lookup_v4_by::<true>(table, lists, keys, out),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v4_by<const MURMUR: bool>(table: &Table4, lists: &mut Lists, keys: &[u32], out: &mut [NextHopId]) {
    let [g1, g2] = &table.levels;
    let Lists4 { in_g1, in_g2, g1: probes_g1, g2: probes_g2 } = &mut lists.v4;
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        probes_g1.len = 0;
        direct_v4(table, keys, out, in_g1, in_g2, probes_g1);
        if in_g2.len > 0 {
            probes_g2.len = 0;
            filter_v4::<MURMUR, 0>(g2, in_g2, probes_g2, Some(in_g1));
            probe_v4::<true>(table, g2, probes_g2, out, in_g1);
            in_g2.len = 0;
        }
        hash_v4::<MURMUR>(g1, probes_g1);
        if in_g1.len > 0 {
            filter_v4::<MURMUR, 8>(g1, in_g1, probes_g1, None);
            in_g1.len = 0;
        }
        probe_v4::<false>(table, g1, probes_g1, out, in_g1);
    }
}

/// Stage 1 for IPv4: the direct array answers every key; keys with something below are listed, those of a block that is
/// dense in G1 as probes at once. Nothing branches on G1's flags: a wrong guess would throw away the loads in flight behind it.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct_v4(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
    in_g1: &mut List4,
    in_g2: &mut List4,
    probes: &mut Probes4,
) {
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let hop_mask = _mm512_set1_epi32(v4::HOP_MASK.cast_signed());
    let flag_g1 = _mm512_set1_epi32(G1_BELOW.cast_signed());
    let flag_g2 = _mm512_set1_epi32(G2_BELOW.cast_signed());
    let flag_dense = _mm512_set1_epi32(G1_DENSE.cast_signed());
    let direct = table.direct.as_ptr().cast::<i32>();
    let ask = |keys: &[u32]| {
        for key in keys {
            prefetch(direct.cast(), (*key >> (32 - DIRECT_BITS)) as usize * 4);
        }
    };
    ask(&keys[..keys.len().min(AHEAD)]);
    for at in (0..keys.len()).step_by(16) {
        ask(keys.get(at + AHEAD..(at + AHEAD + 16).min(keys.len())).unwrap_or_default());
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
        let dense = _mm512_mask_test_epi32_mask(below_g1, entry, flag_dense);
        probes.len = append_v4(&mut probes.pos, &mut probes.key, probes.len, dense, pos, key);
        in_g1.append(below_g1 & !dense, pos, key);
        if below_g2 != 0 {
            in_g2.append(below_g2, pos, key);
        }
    }
}

impl List4 {
    /// Adds the lanes of `mask`.
    #[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    fn append(&mut self, mask: __mmask16, pos: __m512i, key: __m512i) {
        self.len = append_v4(&mut self.pos, &mut self.key, self.len, mask, pos, key);
    }
}

/// Adds the lanes of `mask` to two arrays that hold `len` words, and returns how many they hold then.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn append_v4(
    positions: &mut [u32; LIST],
    keys: &mut [u32; LIST],
    len: usize,
    mask: __mmask16,
    pos: __m512i,
    key: __m512i,
) -> usize {
    let len = len.min(PIECE);
    // SAFETY: `len` is at most `PIECE`, and both arrays have 16 words and more beyond that.
    unsafe {
        _mm512_storeu_si512(positions.as_mut_ptr().add(len).cast(), _mm512_maskz_compress_epi32(mask, pos));
        _mm512_storeu_si512(keys.as_mut_ptr().add(len).cast(), _mm512_maskz_compress_epi32(mask, key));
    }
    len + mask.count_ones() as usize
}

/// Stage 2 for IPv4, keys of dense blocks: hash and line of each probe. There is no filter word to wait for.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn hash_v4<const MURMUR: bool>(g1: &Level4, probes: &mut Probes4) {
    let primary = _mm512_set1_epi32(g1.primary.cast_signed());
    for at in (0..probes.len.min(PIECE)).step_by(16) {
        // SAFETY: `at` is below `PIECE`, so 16 words from it lie within the arrays.
        unsafe {
            let key = _mm512_loadu_si512(probes.key.as_ptr().add(at).cast());
            let hash = hash_x16::<MURMUR>(_mm512_srli_epi32::<8>(key));
            let line = scale_x16(hash, primary);
            _mm512_storeu_si512(probes.hash.as_mut_ptr().add(at).cast(), hash);
            _mm512_storeu_si512(probes.line.as_mut_ptr().add(at).cast(), line);
        }
    }
}

/// Stage 2 for IPv4: keys that pass the filter become probes; with a `next` list, keys that do not pass go on there. `SHIFT`
/// host bits are no part of the level's keys.
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
    let filter = level.filter.as_ptr().cast::<i32>();
    let mut len = probes.len.min(PIECE);
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
        let bits = filter_mask_x16(hash, level.filter_hashes);
        let index = scale_x16(hash, words);
        // SAFETY: `scale` yields indices below `filter_words`, the length of the filter.
        let word = unsafe { _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), live, index, filter) };
        let pass = _mm512_mask_cmpeq_epi32_mask(live, _mm512_and_si512(word, bits), bits);
        if let Some(next) = next.as_deref_mut()
            && pass != live
        {
            next.append(live & !pass, pos, key);
        }
        let line = scale_x16(hash, primary);
        // SAFETY: `len` grows by what a turn adds; all lists of a piece together hold its keys once, at most `PIECE`, and the
        // arrays have 16 words and more beyond that.
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
        len += pass.count_ones() as usize;
    }
    probes.len = len;
}

/// Stage 3 for IPv4: finds each probe's hash in its line, asked for ahead. With `NEXT`, probes that find nothing go on to `next`.
/// Whether a probe finds its hash is a matter of chance, so nothing branches on it but the rare way to an overflow line.
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
    let line_bytes = lines.cast::<i8>();
    for line in &probes.line[..AHEAD] {
        prefetch(line_bytes, *line as usize * 64);
    }
    for at in 0..probes.len.min(PIECE) {
        prefetch(line_bytes, probes.line[at + AHEAD] as usize * 64);
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
            let answer = out.as_mut_ptr().add(pos as usize);
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
