//! The IPv6 lookup of `host`, with AVX-512 F and CD alone.

#![expect(clippy::cast_possible_truncation, reason = "masks are cut in halves")]

use super::lists::{Lists, PIECE, level, rows_of};
use crate::host::v6::ROW_BITS;
use crate::host::v6::table::Table;
use fib::NextHopId;
use std::arch::x86_64::*;
use std::ops::Range;

/// Keys whose entries of the top are held in registers until the chunks are next.
const GROUP: usize = 128;
/// Vectors that go down the rows in registers.
const FEW: usize = 2;

/// The lanes that `left` keys fill.
const fn lanes(left: usize) -> __mmask16 {
    if left >= 16 { u16::MAX } else { (1 << left) - 1 }
}

/// Answers keys, given as their first and last 64 bits, into `out`, all equally long: codes, where the table has an array of ids.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<const BITS: u32>(
    table: &Table<BITS>,
    lists: &mut Lists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let len = direct(table, lists, hi, out);
        if len == 0 {
            continue;
        }
        let is_left = rows(table, lists, 0, len);
        answer(lists, out);
        if is_left {
            lists.finish(table, (hi, lo), out, |lists, window, len| {
                rows(table, lists, window, len);
            });
        }
    }
}

/// The entries at `at` in the lanes of `mask`; those of `other` in the others.
///
/// # Safety
/// In the lanes of `mask`, entry `at` from `base` on is one of a table, which has two more behind the last.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather<const BITS: u32>(base: *const u8, at: __m512i, mask: __mmask16, other: __m512i) -> __m512i {
    if BITS == 16 {
        // SAFETY: as the caller says. Four bytes are loaded where an entry of two begins, and those behind it are cleared. The entry
        // itself is aligned, so it is read whole.
        let pair = unsafe { _mm512_mask_i32gather_epi32::<2>(other, mask, at, base.cast()) };
        _mm512_and_si512(pair, _mm512_set1_epi32(0xffff))
    } else {
        // SAFETY: as the caller says.
        unsafe { _mm512_mask_i32gather_epi32::<4>(other, mask, at, base.cast()) }
    }
}

/// The high 32 bits of sixteen words of 64.
#[target_feature(enable = "avx512f")]
#[inline]
fn high_words(words: [__m512i; 2]) -> __m512i {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    _mm512_permutex2var_epi32(words[0], odd, words[1])
}

/// Up to sixteen keys, the lanes that have one, and 0 in the others.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(hi: &[u64]) -> ([__m512i; 2], __mmask16) {
    let live = lanes(hi.len());
    // SAFETY: lanes without a key are not read: the low 8 bits of `live` are the first vector's, the high 8 the second's.
    let keys = unsafe {
        [
            _mm512_maskz_loadu_epi64(live as u8, hi.as_ptr().cast()),
            _mm512_maskz_loadu_epi64((live >> 8) as u8, hi.as_ptr().wrapping_add(8).cast()),
        ]
    };
    (keys, live)
}

/// The top and the chunks: writes the answers found, and lists the keys that have none. Returns their number.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct<const BITS: u32>(
    table: &Table<BITS>,
    lists: &mut Lists,
    hi: &[u64],
    out: &mut [NextHopId],
) -> usize {
    let zero = _mm512_setzero_si512();
    let codes = _mm512_set1_epi32(table.codes.cast_signed());
    let direct_bits = table.shape.direct_bits();
    let chunk_bits = _mm_cvtsi32_si128(direct_bits.cast_signed() - 16);
    let skipped_bits = _mm_cvtsi32_si128(32 - (direct_bits.cast_signed() - 16));
    let key_bits = _mm_cvtsi32_si128(direct_bits.cast_signed());
    let (top, chunks) = (level(table, 0), level(table, 1));
    lists.listed = [0; PIECE / 16];
    let mut len = 0;
    let groups = hi.chunks(GROUP).zip(out.chunks_mut(GROUP)).zip(lists.listed.chunks_mut(GROUP / 16));
    for ((hi, out), listed) in groups {
        let mut found = [zero; GROUP / 16];
        for (hi, entry) in hi.chunks(16).zip(&mut found) {
            let (keys, live) = load(hi);
            let place = _mm512_srli_epi32::<16>(high_words(keys));
            // SAFETY: the top has an entry for each 16 bits.
            *entry = unsafe { gather::<BITS>(top, place, live, zero) };
        }
        for (((hi, out), entry), listed) in hi.chunks(16).zip(out.chunks_mut(16)).zip(&found).zip(listed) {
            let (keys, live) = load(hi);
            // Lanes without a key have code 0.
            let (mut entry, mut split) = (*entry, links(table, *entry));
            // Few keys of a scan of the address space have a chunk, most of those that routes are for.
            if split != 0 {
                let first = _mm512_sll_epi32(_mm512_sub_epi32(entry, codes), chunk_bits);
                let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(high_words(keys)), skipped_bits);
                // SAFETY: a link of the top leads to a chunk.
                entry = unsafe { gather::<BITS>(chunks, _mm512_or_si512(first, within), split, entry) };
                split = links(table, entry);
            }
            // SAFETY: lanes without a key are not written; there are as many answers as keys, each a word.
            unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), live, entry) };
            if split != 0 {
                *listed = split;
                let bits = high_words(keys.map(|keys| _mm512_sll_epi64(keys, key_bits)));
                let (entries, next) = (lists.entry.as_mut_ptr(), lists.bits.as_mut_ptr());
                // SAFETY: fewer than `PIECE` keys are listed, and a list has room for 16 more than `PIECE`.
                unsafe {
                    let entry = _mm512_maskz_compress_epi32(split, entry);
                    _mm512_storeu_si512(entries.add(len.min(PIECE)).cast(), entry);
                    let bits = _mm512_maskz_compress_epi32(split, bits);
                    _mm512_storeu_si512(next.add(len.min(PIECE)).cast(), bits);
                }
                len += split.count_ones() as usize;
            }
        }
    }
    len
}

/// Takes the first `len` listed keys, which have links, through the eight levels of a window. Returns whether one has a link still.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn rows<const BITS: u32>(table: &Table<BITS>, lists: &mut Lists, window: usize, len: usize) -> bool {
    let first = 2 + 8 * window;
    let levels = first..(first + 8).min(table.shape.levels());
    if len <= FEW * 16 { few(table, lists, levels, len) } else { many(table, lists, levels, len) }
}

/// Takes sixteen keys through a level of rows: their new entries. Those without a link stay as they are.
///
/// # Safety
/// `rows` is of the level that the links lead to.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn step<const BITS: u32>(
    table: &Table<BITS>,
    rows: *const u8,
    entry: __m512i,
    bits: __m512i,
) -> __m512i {
    let slot = _mm512_srli_epi32::<{ 32 - ROW_BITS }>(bits);
    let place = _mm512_or_si512(_mm512_slli_epi32::<ROW_BITS>(entry), slot);
    // SAFETY: a link leads to a row of the next level.
    unsafe { gather::<BITS>(rows, place, links(table, entry), entry) }
}

/// The lanes whose entry is a link.
#[target_feature(enable = "avx512f")]
#[inline]
fn links<const BITS: u32>(table: &Table<BITS>, entry: __m512i) -> __mmask16 {
    _mm512_cmpge_epu32_mask(entry, _mm512_set1_epi32(table.codes.cast_signed()))
}

/// As [`rows`], all keys side by side in registers.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn few<const BITS: u32>(table: &Table<BITS>, lists: &mut Lists, levels: Range<usize>, len: usize) -> bool {
    let (mut entry, mut bits) = ([_mm512_setzero_si512(); FEW], [_mm512_setzero_si512(); FEW]);
    for at in 0..FEW {
        // SAFETY: the lists have more than these vectors. Lanes without a key have code 0.
        unsafe {
            let live = lanes(len.saturating_sub(at * 16));
            entry[at] = _mm512_maskz_loadu_epi32(live, lists.entry.as_ptr().add(at * 16).cast());
            bits[at] = _mm512_loadu_si512(lists.bits.as_ptr().add(at * 16).cast());
        }
    }
    let mut left = 0;
    for at_level in levels {
        let rows = rows_of(table, at_level);
        left = 0;
        for (entry, bits) in entry.iter_mut().zip(&mut bits) {
            // SAFETY: the rows of this level.
            *entry = unsafe { step(table, rows, *entry, *bits) };
            *bits = _mm512_slli_epi32::<ROW_BITS>(*bits);
            left |= links(table, *entry);
        }
        if left == 0 {
            break;
        }
    }
    for (at, entry) in entry.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(lists.entry.as_mut_ptr().add(at * 16).cast(), entry) };
    }
    left != 0
}

/// As [`rows`], level by level: the loads of a level are independent.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn many<const BITS: u32>(table: &Table<BITS>, lists: &mut Lists, levels: Range<usize>, len: usize) -> bool {
    let len = len.min(PIECE);
    let (entries, next) = (lists.entry.as_mut_ptr(), lists.bits.as_mut_ptr());
    // SAFETY: a list has room for 16 more than `PIECE`. The lanes behind the last key have code 0.
    unsafe { _mm512_storeu_si512(entries.add(len).cast(), _mm512_setzero_si512()) };
    let mut left = 0;
    for at_level in levels {
        let rows = rows_of(table, at_level);
        left = 0;
        for at in (0..len).step_by(16) {
            // SAFETY: vectors that begin below `PIECE` lie within the lists. The rows are those of this level.
            unsafe {
                let entry = _mm512_loadu_si512(entries.add(at).cast());
                let bits = _mm512_loadu_si512(next.add(at).cast());
                let entry = step(table, rows, entry, bits);
                _mm512_storeu_si512(entries.add(at).cast(), entry);
                _mm512_storeu_si512(next.add(at).cast(), _mm512_slli_epi32::<ROW_BITS>(bits));
                left |= links(table, entry);
            }
        }
        if left == 0 {
            break;
        }
    }
    left != 0
}

/// As [`Lists::answer`].
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn answer(lists: &Lists, out: &mut [NextHopId]) {
    let mut from = 0_usize;
    for (out, listed) in out.chunks_mut(16).zip(lists.listed) {
        // SAFETY: no more keys are listed than are in a piece, and a list has room for 16 more. Bits are set of keys alone, of which
        // there are as many as answers.
        unsafe {
            let found = _mm512_loadu_si512(lists.entry.as_ptr().add(from.min(PIECE)).cast());
            let found = _mm512_maskz_expand_epi32(listed, found);
            _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), listed, found);
        }
        from += listed.count_ones() as usize;
    }
}
