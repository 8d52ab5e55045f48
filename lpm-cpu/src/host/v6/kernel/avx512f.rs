//! The IPv6 lookup of `host` with AVX-512 F and CD alone.

#![expect(clippy::cast_possible_truncation, reason = "masks are cut in halves")]

use super::level;
use super::lists::{PIECE, RowLists, rows_of};
use crate::host::v6::ROW_BITS;
use crate::host::v6::table::NodeTable;
use crate::kernel::avx512f::lanes;
use crate::kernel::entries::load_entry;
use crate::kernel::singles::words16;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::Ordering::Acquire;

/// The maximum number of keys in a group: their entries and next address bits stay in registers.
const GROUP: usize = 128;
const LISTED: usize = 4;

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<const GATHER: bool, const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), out) in hi.chunks(GROUP).zip(lo.chunks(GROUP)).zip(out.chunks_mut(GROUP)) {
        prefetch::piece(hi, out);
        // One function for each number of vectors, so that its loops are unrolled.
        let is_left = match hi.len().div_ceil(16) {
            1 => group::<GATHER, BITS, 1>(table, lists, hi, out),
            2 => group::<GATHER, BITS, 2>(table, lists, hi, out),
            3 => group::<GATHER, BITS, 3>(table, lists, hi, out),
            4 => group::<GATHER, BITS, 4>(table, lists, hi, out),
            5 => group::<GATHER, BITS, 5>(table, lists, hi, out),
            6 => group::<GATHER, BITS, 6>(table, lists, hi, out),
            7 => group::<GATHER, BITS, 7>(table, lists, hi, out),
            _ => group::<GATHER, BITS, 8>(table, lists, hi, out),
        };
        if is_left {
            lists.finish(table, (hi, lo), out, |lists, window, len| {
                rows::<GATHER, BITS>(table, lists, window, len);
            });
        }
    }
}

/// Loads the entries at `at` in the lanes of `mask`; other lanes keep `other`.
///
/// # Safety
/// In the lanes of `mask`, `at` must be the index from `base` of an entry of a table; a table has two entries of padding at its end.
/// `anyone` must be the index of any such entry, which single loads read in the other lanes.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather<const GATHER: bool, const BITS: u32>(
    base: *const u8,
    at: __m512i,
    mask: __mmask16,
    other: __m512i,
    anyone: u32,
) -> __m512i {
    if !GATHER {
        let at = _mm512_mask_mov_epi32(_mm512_set1_epi32(anyone.cast_signed()), mask, at);
        // SAFETY: by the caller's contract.
        let words = words16(at, |at| unsafe { load_entry::<BITS>(base, at, Acquire) });
        return _mm512_mask_mov_epi32(other, mask, words);
    }
    if BITS == 16 {
        // SAFETY: by the caller's contract. Four bytes are loaded at an entry of two, and the two behind it, at most padding, are
        // cleared. The entry itself is aligned, so it is read whole.
        let pair = unsafe { _mm512_mask_i32gather_epi32::<2>(other, mask, at, base.cast()) };
        _mm512_and_si512(pair, _mm512_set1_epi32(0xffff))
    } else {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_mask_i32gather_epi32::<4>(other, mask, at, base.cast()) }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn high_words(words: [__m512i; 2]) -> __m512i {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    _mm512_permutex2var_epi32(words[0], odd, words[1])
}

/// Loads sixteen keys from `at` on, with a mask of the lanes that have a key; lanes without one load 0.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(hi: &[u64], at: usize) -> ([__m512i; 2], __mmask16) {
    let live = lanes(hi.len().saturating_sub(at));
    // SAFETY: lanes without a key are not read: the low 8 bits of `live` are the first vector's, the high 8 the second's.
    let keys = unsafe {
        [
            _mm512_maskz_loadu_epi64(live as u8, hi.as_ptr().wrapping_add(at).cast()),
            _mm512_maskz_loadu_epi64((live >> 8) as u8, hi.as_ptr().wrapping_add(at + 8).cast()),
        ]
    };
    (keys, live)
}

/// Looks up a group of keys in `N` vectors, down to the first eight levels of rows. Lists the keys without an answer, and returns whether
/// there are some.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn group<const GATHER: bool, const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    hi: &[u64],
    out: &mut [NextHopId],
) -> bool {
    let (mut entries, bits, len) = direct::<GATHER, BITS, N>(table, hi);
    let mut is_left = false;
    // Single loads in lanes that have their answer are wasted, so without gathers keys are always listed.
    if GATHER && len > hi.len() / 2 {
        is_left = descend::<GATHER, BITS, N>(table, 0, &mut entries, bits);
        if is_left {
            list(table, lists, &entries, &bits);
        }
    } else if len > 0 {
        // Few keys are packed first.
        list(table, lists, &entries, &bits);
        is_left = rows::<GATHER, BITS>(table, lists, 0, len);
        answer(lists, &mut entries);
    }
    for (at, entry) in entries.iter().enumerate() {
        let live = lanes(hi.len().saturating_sub(at * 16));
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word.
        unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().wrapping_add(at * 16).cast(), live, *entry) };
    }
    is_left
}

/// Looks up the top and the chunks: returns the entries found, the next 32 bits of each key, and the number of keys that still have a
/// link. Lanes without a key have code 0.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct<const GATHER: bool, const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    hi: &[u64],
) -> ([__m512i; N], [__m512i; N], usize) {
    let zero = _mm512_setzero_si512();
    let codes = _mm512_set1_epi32(table.codes.cast_signed());
    let direct_bits = table.shape.direct_bits();
    let chunk_bits = _mm_cvtsi32_si128(direct_bits.cast_signed() - 16);
    let skipped_bits = _mm_cvtsi32_si128(32 - (direct_bits.cast_signed() - 16));
    let key_bits = _mm_cvtsi32_si128(direct_bits.cast_signed());
    let (top, chunks) = (level(table, 0), level(table, 1));
    let (mut entries, mut bits) = ([zero; N], [zero; N]);
    for (at, entry) in entries.iter_mut().enumerate() {
        let (keys, live) = load(hi, at * 16);
        let place = _mm512_srli_epi32::<16>(high_words(keys));
        // SAFETY: the top has an entry for each value of 16 bits.
        *entry = unsafe { gather::<GATHER, BITS>(top, place, live, zero, 0) };
    }
    let mut len = 0;
    for (at, (entry, bits)) in entries.iter_mut().zip(&mut bits).enumerate() {
        let (keys, _) = load(hi, at * 16);
        let split = links(table, *entry);
        // In a scan of the address space few keys have a chunk; most keys within routes have one.
        if split != 0 {
            let first = _mm512_sll_epi32(_mm512_sub_epi32(*entry, codes), chunk_bits);
            let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(high_words(keys)), skipped_bits);
            let place = _mm512_or_si512(first, within);
            // SAFETY: a link of the top leads to a chunk.
            *entry = unsafe { gather::<GATHER, BITS>(chunks, place, split, *entry, 0) };
            *bits = high_words(keys.map(|keys| _mm512_sll_epi64(keys, key_bits)));
            len += links(table, *entry).count_ones() as usize;
        }
    }
    (entries, bits, len)
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn list<const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    entries: &[__m512i; N],
    bits: &[__m512i; N],
) {
    lists.listed = [0; PIECE / 16];
    let mut len = 0;
    for ((entry, bits), listed) in entries.iter().zip(bits).zip(&mut lists.listed) {
        let split = links(table, *entry);
        *listed = split;
        // SAFETY: at most the keys of a piece are listed, and a list has room for 16 more.
        unsafe {
            let entry = _mm512_maskz_compress_epi32(split, *entry);
            _mm512_storeu_si512(lists.entry.as_mut_ptr().add(len).cast(), entry);
            let bits = _mm512_maskz_compress_epi32(split, *bits);
            _mm512_storeu_si512(lists.bits.as_mut_ptr().add(len).cast(), bits);
        }
        len += split.count_ones() as usize;
    }
}

/// Takes the first `len` listed keys, which have links, through the eight levels of a window. Returns whether any still has a link.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn rows<const GATHER: bool, const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    window: usize,
    len: usize,
) -> bool {
    let zero = _mm512_setzero_si512();
    let mut is_left = false;
    for start in (0..len.min(PIECE)).step_by(LISTED * 16) {
        let (mut entries, mut bits) = ([zero; LISTED], [zero; LISTED]);
        for (at, (entry, bits)) in (start..).step_by(16).zip(entries.iter_mut().zip(&mut bits)) {
            // SAFETY: `start` is a multiple of `LISTED * 16` below `PIECE`, so the vectors lie within the lists. Lanes without a key have
            // code 0.
            unsafe {
                let live = lanes(len.saturating_sub(at));
                *entry = _mm512_maskz_loadu_epi32(live, lists.entry.as_ptr().add(at).cast());
                *bits = _mm512_loadu_si512(lists.bits.as_ptr().add(at).cast());
            }
        }
        is_left |= descend::<GATHER, BITS, LISTED>(table, window, &mut entries, bits);
        for (at, entry) in (start..).step_by(16).zip(entries) {
            // SAFETY: the same places as the loads before.
            unsafe { _mm512_storeu_si512(lists.entry.as_mut_ptr().add(at).cast(), entry) };
        }
    }
    is_left
}

/// Takes the keys in registers through the eight levels of a window with the address bits `bits`: every key through a level before the
/// next, so that its loads are independent. Returns whether any still has a link.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn descend<const GATHER: bool, const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    window: usize,
    entries: &mut [__m512i; N],
    mut bits: [__m512i; N],
) -> bool {
    let first = 2 + 8 * window;
    for at_level in first..(first + 8).min(table.shape.levels()) {
        let rows = rows_of(table, at_level);
        let mut left = 0;
        for (entry, bits) in entries.iter_mut().zip(&mut bits) {
            // SAFETY: `rows` belongs to this level, to which the links lead.
            *entry = unsafe { step::<GATHER, BITS>(table, rows, *entry, *bits) };
            *bits = _mm512_slli_epi32::<ROW_BITS>(*bits);
            left |= links(table, *entry);
        }
        if left == 0 {
            return false;
        }
    }
    true
}

/// Takes sixteen keys through a level of rows and returns their new entries. Entries that are not links stay.
///
/// # Safety
/// `rows` must belong to the level that the links lead to.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn step<const GATHER: bool, const BITS: u32>(
    table: &NodeTable<BITS>,
    rows: *const u8,
    entry: __m512i,
    bits: __m512i,
) -> __m512i {
    let slot = _mm512_srli_epi32::<{ 32 - ROW_BITS }>(bits);
    let place = _mm512_or_si512(_mm512_slli_epi32::<ROW_BITS>(entry), slot);
    // SAFETY: a link leads to a row of the next level.
    unsafe { gather::<GATHER, BITS>(rows, place, links(table, entry), entry, table.codes << ROW_BITS) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn links<const BITS: u32>(table: &NodeTable<BITS>, entry: __m512i) -> __mmask16 {
    _mm512_cmpge_epu32_mask(entry, _mm512_set1_epi32(table.codes.cast_signed()))
}

/// Replaces the links of listed keys by the entries they led to.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn answer<const N: usize>(lists: &RowLists, entries: &mut [__m512i; N]) {
    let mut from = 0_usize;
    for (entry, listed) in entries.iter_mut().zip(lists.listed) {
        // SAFETY: at most the keys of a piece are listed, and a list has room for 16 more.
        let found = unsafe { _mm512_loadu_si512(lists.entry.as_ptr().add(from.min(PIECE)).cast()) };
        *entry = _mm512_mask_expand_epi32(*entry, listed, found);
        from += listed.count_ones() as usize;
    }
}
