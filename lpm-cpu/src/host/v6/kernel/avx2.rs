//! The IPv6 lookup of `host` with AVX2: the algorithm of `avx512f` with eight lanes and vector masks. Keys are listed one at a time.

#![expect(clippy::cast_possible_truncation, reason = "masks of eight lanes; address bits are cut out")]

use super::level;
use super::lists::{PIECE, RowLists, rows_of};
use crate::host::v6::ROW_BITS;
use crate::host::v6::table::NodeTable;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;

const VECTORS: usize = 4;

/// The lanes of the first `left` keys, all ones.
#[target_feature(enable = "avx2")]
#[inline]
fn lanes(left: usize) -> __m256i {
    let left = i32::try_from(left.min(8)).unwrap_or(8);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(hi, out);
        let len = direct(table, lists, hi, out);
        if len == 0 {
            continue;
        }
        let is_left = rows(table, lists, 0, len);
        lists.answer(out);
        if is_left {
            lists.finish(table, (hi, lo), out, |lists, window, len| {
                rows(table, lists, window, len);
            });
        }
    }
}

/// Loads the entries at `at` in the lanes of `mask`; other lanes keep `other`.
///
/// # Safety
/// In the lanes of `mask`, `at` must be the index from `base` of an entry of a table; a table has two entries of padding at its end.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn gather<const BITS: u32>(base: *const u8, at: __m256i, mask: __m256i, other: __m256i) -> __m256i {
    if BITS == 16 {
        // SAFETY: by the caller's contract. Four bytes are loaded at an entry of two, and the two behind it, at most padding, are
        // cleared. The entry itself is aligned, so it is read whole.
        let pair = unsafe { _mm256_mask_i32gather_epi32::<2>(other, base.cast(), at, mask) };
        _mm256_and_si256(pair, _mm256_set1_epi32(0xffff))
    } else {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_mask_i32gather_epi32::<4>(other, base.cast(), at, mask) }
    }
}

/// The lanes of `mask` whose entry is a link, all ones. No entry has its sign bit set.
#[target_feature(enable = "avx2")]
#[inline]
fn links<const BITS: u32>(table: &NodeTable<BITS>, mask: __m256i, entry: __m256i) -> __m256i {
    let last_code = _mm256_set1_epi32(table.codes.cast_signed() - 1);
    _mm256_and_si256(mask, _mm256_cmpgt_epi32(entry, last_code))
}

#[target_feature(enable = "avx2")]
#[inline]
fn high_words(words: [__m256i; 2]) -> __m256i {
    let [first, second] = words.map(|words| _mm256_castsi256_ps(words));
    let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(first, second));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(odd)
}

/// Looks up the top and the chunks: stores the answers found, lists the keys without one, and returns their number.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct<const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    hi: &[u64],
    out: &mut [NextHopId],
) -> usize {
    let codes = _mm256_set1_epi32(table.codes.cast_signed());
    let direct_bits = table.shape.direct_bits();
    let chunk_bits = _mm_cvtsi32_si128(direct_bits.cast_signed() - 16);
    let skipped_bits = _mm_cvtsi32_si128(32 - (direct_bits.cast_signed() - 16));
    let (top, chunks) = (level(table, 0), level(table, 1));
    lists.listed = [0; PIECE / 16];
    let mut len = 0;
    for (vector, (hi, out)) in hi.chunks(8).zip(out.chunks_mut(8)).enumerate() {
        let live = lanes(hi.len());
        let mut key = [0; 8];
        key[..hi.len()].copy_from_slice(hi);
        // SAFETY: eight keys of 64 bits are two vectors.
        let words = unsafe {
            high_words([
                _mm256_loadu_si256(key.as_ptr().cast()),
                _mm256_loadu_si256(key.as_ptr().add(4).cast()),
            ])
        };
        let node = _mm256_srli_epi32::<16>(words);
        // SAFETY: the top has an entry for each value of 16 bits.
        let mut entry = unsafe { gather::<BITS>(top, node, live, _mm256_setzero_si256()) };
        let mut split = links(table, live, entry);
        if _mm256_movemask_epi8(split) != 0 {
            let first = _mm256_sll_epi32(_mm256_sub_epi32(entry, codes), chunk_bits);
            let within = _mm256_srl_epi32(_mm256_slli_epi32::<16>(words), skipped_bits);
            // SAFETY: a link of the top leads to a chunk.
            entry = unsafe { gather::<BITS>(chunks, _mm256_or_si256(first, within), split, entry) };
            split = links(table, split, entry);
        }
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word.
        unsafe { _mm256_maskstore_epi32(out.as_mut_ptr().cast(), live, entry) };
        let mut left = _mm256_movemask_ps(_mm256_castsi256_ps(split)) as u16;
        lists.listed[vector / 2] |= left << (vector % 2 * 8);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            lists.entry[len] = out[lane].get();
            lists.bits[len] = (hi[lane] << direct_bits >> 32) as u32;
            len += 1;
            left &= left - 1;
        }
    }
    len
}

/// Takes the first `len` listed keys, which have links, through the eight levels of a window. Returns whether any still has a link.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn rows<const BITS: u32>(table: &NodeTable<BITS>, lists: &mut RowLists, window: usize, len: usize) -> bool {
    let zero = _mm256_setzero_si256();
    let first = 2 + 8 * window;
    let mut is_left = false;
    for start in (0..len.min(PIECE)).step_by(VECTORS * 8) {
        let (mut entry, mut bits, mut split) = ([zero; VECTORS], [zero; VECTORS], [zero; VECTORS]);
        for at in 0..VECTORS {
            split[at] = lanes(len.saturating_sub(start + at * 8));
            // SAFETY: `start` is a multiple of `VECTORS * 8` below `PIECE`, so the vectors lie within the lists.
            unsafe {
                entry[at] = _mm256_loadu_si256(lists.entry.as_ptr().add(start + at * 8).cast());
                bits[at] = _mm256_loadu_si256(lists.bits.as_ptr().add(start + at * 8).cast());
            }
        }
        for at_level in first..(first + 8).min(table.shape.levels()) {
            let rows = rows_of(table, at_level);
            let mut any = zero;
            for at in 0..VECTORS {
                let slot = _mm256_srli_epi32::<{ 32 - ROW_BITS.cast_signed() }>(bits[at]);
                let place = _mm256_or_si256(_mm256_slli_epi32::<{ ROW_BITS.cast_signed() }>(entry[at]), slot);
                // SAFETY: a link leads to a row of the next level.
                entry[at] = unsafe { gather::<BITS>(rows, place, split[at], entry[at]) };
                bits[at] = _mm256_slli_epi32::<{ ROW_BITS.cast_signed() }>(bits[at]);
                split[at] = links(table, split[at], entry[at]);
                any = _mm256_or_si256(any, split[at]);
            }
            if _mm256_movemask_epi8(any) == 0 {
                break;
            }
        }
        for at in 0..VECTORS {
            is_left |= _mm256_movemask_epi8(split[at]) != 0;
            // SAFETY: the same places as the loads before.
            unsafe { _mm256_storeu_si256(lists.entry.as_mut_ptr().add(start + at * 8).cast(), entry[at]) };
        }
    }
    is_left
}
