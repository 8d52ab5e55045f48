//! IPv4: the direct array, then G2, then G1.

use super::append_words;
use super::hash::hash_x16;
use crate::bloom::hash::{Hash32, filter_mask_of};
use crate::bloom::v4::{self, DIRECT_BITS, G1_BELOW, G1_DENSE, G2_BELOW, Level4, Table4};
use crate::kernel::answer::answer_v4;
use crate::kernel::lists::{AHEAD, ASK, BloomLists, DirectEntries, List4, Lists4, PIECE, Probes4};
use fib::NextHopId;
use lpm_core::lanes::{Avx512f, HashWords, Lanes, Words};
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering;

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(crate) fn lookup_v4(table: &Table4, lists: &mut BloomLists, keys: &[u32], out: &mut [NextHopId]) {
    match table.hash {
        Hash32::H2 => lookup_v4_by::<false>(table, lists, keys, out),
        Hash32::Murmur => lookup_v4_by::<true>(table, lists, keys, out),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_v4_by<const MURMUR: bool>(
    table: &Table4,
    lists: &mut BloomLists,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        start_v4::<MURMUR>(table, &mut lists.v4, keys, out);
        finish_v4::<MURMUR>(table, &mut lists.v4, out);
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub(super) fn start_v4<const MURMUR: bool>(
    table: &Table4,
    lists: &mut Lists4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let Lists4 { entries, in_g1, in_g2, g1: probes_g1, .. } = lists;
    (in_g1.len, in_g2.len, probes_g1.len) = (0, 0, 0);
    prefetch::piece(keys, out);
    load_v4(table, keys, entries);
    direct_v4::<MURMUR>(&table.levels[0], entries, keys, out, in_g1, in_g2, probes_g1);
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
pub(super) fn finish_v4<const MURMUR: bool>(table: &Table4, lists: &mut Lists4, out: &mut [NextHopId]) {
    let [g1, g2] = &table.levels;
    let Lists4 { in_g1, in_g2, g1: probes_g1, g2: probes_g2, .. } = lists;
    if in_g2.len > 0 {
        probes_g2.len = 0;
        filter_v4::<MURMUR, 0>(g2, in_g2, probes_g2, Some(in_g1));
        ask_v4(g2, probes_g2);
        probe_v4(g2, probes_g2);
        answer_v4::<true>(table, g2, probes_g2, out, in_g1);
    }
    if in_g1.len > 0 {
        filter_v4::<MURMUR, 8>(g1, in_g1, probes_g1, None);
    }
    probe_v4(g1, probes_g1);
    answer_v4::<false>(table, g1, probes_g1, out, in_g1);
}

/// Stage 1, first step. Independent plain loads keep more in flight than gathers would, even gathers of prefetched lines.
#[inline]
fn load_v4(table: &Table4, keys: &[u32], entries: &mut DirectEntries) {
    let direct = table.direct.as_ptr();
    for (key, entry) in keys.iter().zip(&mut entries.0) {
        // SAFETY: the index is below 2^20, the length of the direct array.
        *entry = unsafe { (*direct.add((*key >> (32 - DIRECT_BITS)) as usize)).load(Ordering::Acquire) };
    }
}

/// Stage 1, second step: keys with longer prefixes below are listed; keys of blocks that are dense in G1 become probes at once. The
/// entries are unpredictable, so nothing branches on them, except for G2 and blocks that are not dense: many tables have none.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct_v4<const MURMUR: bool>(
    g1: &Level4,
    entries: &DirectEntries,
    keys: &[u32],
    out: &mut [NextHopId],
    in_g1: &mut List4,
    in_g2: &mut List4,
    probes: &mut Probes4,
) {
    let lanes = Avx512f::new();
    let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let hop_mask = _mm512_set1_epi32(v4::HOP_MASK.cast_signed());
    let flag_g1 = _mm512_set1_epi32(G1_BELOW.cast_signed());
    let flag_g2 = _mm512_set1_epi32(G2_BELOW.cast_signed());
    let flag_dense = _mm512_set1_epi32(G1_DENSE.cast_signed());
    let lines = g1.lines.as_ptr();
    let mut asked = 0;
    for at in (0..keys.len().min(PIECE)).step_by(16) {
        let live = lanes.first(keys.len() - at);
        // SAFETY: `at` is below `PIECE`, so 16 entries from it lie within their array. `live` holds lanes within `keys` and within `out`,
        // which has the same length; a `NextHopId` is a `u32`.
        let (key, entry) = unsafe {
            let entry = _mm512_load_si512(entries.0.as_ptr().add(at).cast());
            let answers = _mm512_and_si512(entry, hop_mask);
            let (from, to) = (keys.as_ptr().add(at), out.as_mut_ptr().add(at));
            if live == 0xffff {
                _mm512_storeu_si512(to.cast(), answers);
                (_mm512_loadu_si512(from.cast()), entry)
            } else {
                _mm512_mask_storeu_epi32(to.cast(), live, answers);
                (_mm512_maskz_loadu_epi32(live, from.cast()), entry)
            }
        };
        let below_g2 = _mm512_mask_test_epi32_mask(live, entry, flag_g2);
        let below_g1 = _mm512_mask_test_epi32_mask(live, entry, flag_g1) & !below_g2;
        let pos = _mm512_add_epi32(iota, _mm512_set1_epi32(at as i32));
        let dense = _mm512_mask_test_epi32_mask(below_g1, entry, flag_dense);
        let hash = hash_x16::<MURMUR>(_mm512_srli_epi32::<8>(key));
        let line = lanes.mul_high_by(hash, g1.primary);
        let len = probes.len.min(PIECE);
        // SAFETY: `len` is at most `PIECE`.
        unsafe {
            append_words(&mut probes.pos, len, dense, pos);
            append_words(&mut probes.tag, len, dense, tag_x16(hash));
            append_words(&mut probes.line, len, dense, line);
        }
        probes.len = len + dense.count_ones() as usize;
        for line in &probes.line[asked..][..ASK] {
            prefetch::line(lines.wrapping_add(*line as usize * v4::LINE_WORDS));
        }
        asked = (asked + ASK).min(probes.len).min(PIECE);
        let sparse = below_g1 & !dense;
        if sparse != 0 {
            in_g1.append(sparse, pos, key);
        }
        if below_g2 != 0 {
            in_g2.append(below_g2, pos, key);
        }
    }
}

impl List4 {
    #[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
    #[inline]
    fn append(&mut self, mask: __mmask16, pos: __m512i, key: __m512i) {
        let len = self.len.min(PIECE);
        // SAFETY: `len` is at most `PIECE`.
        unsafe {
            append_words(&mut self.pos, len, mask, pos);
            append_words(&mut self.key, len, mask, key);
        }
        self.len = len + mask.count_ones() as usize;
    }
}

/// Stage 2: keys that pass become probes; others are appended to `next`, if given. The level's keys omit an address's last `SHIFT` bits.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn filter_v4<const MURMUR: bool, const SHIFT: u32>(
    level: &Level4,
    list: &List4,
    probes: &mut Probes4,
    mut next: Option<&mut List4>,
) {
    let lanes = Avx512f::new();
    let filter = level.filter.as_ptr().cast();
    let mut len = probes.len.min(PIECE);
    for at in (0..list.len).step_by(16) {
        let live = lanes.first(list.len - at);
        // SAFETY: `list.len` is at most `PIECE`, so 16 words from `at` lie within the arrays.
        let (pos, key) = unsafe {
            (
                _mm512_loadu_si512(list.pos.as_ptr().add(at).cast()),
                _mm512_loadu_si512(list.key.as_ptr().add(at).cast()),
            )
        };
        let hash = hash_x16::<MURMUR>(_mm512_srli_epi32::<SHIFT>(key));
        let bits = filter_mask_of(lanes, hash, level.filter_hashes);
        let index = lanes.mul_high_by(hash, level.filter_words);
        // SAFETY: `scale` yields indices below `filter_words`, the length of the filter.
        let word = unsafe { lanes.gather::<4>(filter, index, live, lanes.splat(0)) };
        let pass = _mm512_mask_cmpeq_epi32_mask(live, _mm512_and_si512(word, bits), bits);
        if let Some(next) = next.as_deref_mut()
            && pass != live
        {
            next.append(live & !pass, pos, key);
        }
        let line = lanes.mul_high_by(hash, level.primary);
        // SAFETY: all lists of a piece together hold each of its keys once, so `len` is at most `PIECE`.
        unsafe {
            append_words(&mut probes.pos, len, pass, pos);
            append_words(&mut probes.tag, len, pass, tag_x16(hash));
            append_words(&mut probes.line, len, pass, line);
            // A probe needs its key only if it may move to `next`.
            if next.is_some() {
                append_words(&mut probes.key, len, pass, key);
            }
        }
        len += pass.count_ones() as usize;
    }
    probes.len = len;
}

/// The word of each hash's slot if its next-hop index is 1.
#[target_feature(enable = "avx512f")]
#[inline]
fn tag_x16(hash: __m512i) -> __m512i {
    _mm512_or_si512(_mm512_slli_epi32::<16>(hash), _mm512_set1_epi32(1))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn ask_v4(level: &Level4, probes: &Probes4) {
    let lines = level.lines.as_ptr();
    for line in &probes.line[..AHEAD] {
        prefetch::line(lines.wrapping_add(*line as usize * v4::LINE_WORDS));
    }
}

/// Stage 3: finds each probe's tag in its line, which was prefetched [`AHEAD`] probes earlier. Hits are unpredictable, so nothing branches
/// on them. [`answer_v4`] is a second loop: a probe that waits for its line should keep few others out of the out-of-order window.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn probe_v4(level: &Level4, probes: &mut Probes4) {
    // Only slots of a tag exceed it by less than 65535: by their next-hop index less one. The link's lane always matches, so the link is
    // found if no slot is.
    let found_below = _mm512_mask_set1_epi32(_mm512_set1_epi32(0xfffe), 1 << v4::LINE_SLOTS, -1);
    let lines = level.lines.as_ptr();
    for at in 0..probes.len.min(PIECE) {
        prefetch::line(lines.wrapping_add(probes.line[at + AHEAD] as usize * v4::LINE_WORDS));
        let tag = _mm512_set1_epi32(probes.tag[at].cast_signed());
        // SAFETY: `scale` yields a line below `primary`, so its 16 words lie within the array, aligned to 64 bytes. A slot is one aligned
        // 32-bit word, which the load reads whole; only the value loaded here is used.
        let words = unsafe { _mm512_load_si512(lines.add(probes.line[at] as usize * v4::LINE_WORDS).cast()) };
        let hit = _mm512_cmple_epu32_mask(_mm512_sub_epi32(words, tag), found_below);
        let first = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(hit, words));
        probes.found[at] = _mm_cvtsi128_si32(first).cast_unsigned();
    }
}
