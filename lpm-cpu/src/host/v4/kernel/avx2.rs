//! The AVX2 kernel, for CPUs without AVX-512: the algorithm of `avx512` with eight lanes and vector masks. Keys in blocks, few in real
//! tables, continue in the scalar kernel.

#![expect(clippy::cast_possible_truncation, reason = "places in a piece are below 128")]

use super::PIECE;
use super::scalar;
use crate::host::v4::table::Table4;
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;

/// Loads eight keys from `at` on. The second vector is all ones in lanes that have a key; lanes without one load 0.
#[target_feature(enable = "avx2")]
#[inline]
fn load(keys: &[u32], at: usize) -> (__m256i, __m256i) {
    let left = i32::try_from((keys.len() - at).min(8)).unwrap_or(8);
    let live = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: lanes without a key are not read.
    (unsafe { _mm256_maskload_epi32(keys.as_ptr().wrapping_add(at).cast(), live) }, live)
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(out: &mut [NextHopId], at: usize, live: __m256i, answers: __m256i) {
    // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word with an id of 24 bits.
    unsafe { _mm256_maskstore_epi32(out.as_mut_ptr().wrapping_add(at).cast(), live, answers) };
}

/// Counts the set bits of each word by a table of half bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn ones(words: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let low = _mm256_set1_epi8(0xf);
    let high = _mm256_and_si256(_mm256_srli_epi32::<4>(words), low);
    let bytes = _mm256_add_epi8(
        _mm256_shuffle_epi8(table, _mm256_and_si256(words, low)),
        _mm256_shuffle_epi8(table, high),
    );
    let pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
}

/// The cells of keys. Each record is one load of 64 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn cells(table: &Table4, keys: __m256i) -> __m256i {
    let (words, records) = (table.records.as_ptr().cast(), _mm256_srli_epi32::<15>(keys));
    // SAFETY: `records` has an entry for each /17, and a key shifted by 15 is below 2^17.
    let low = unsafe { _mm256_i32gather_epi64::<8>(words, _mm256_castsi256_si128(records)) };
    // SAFETY: the same bound holds for the upper four lanes.
    let high = unsafe { _mm256_i32gather_epi64::<8>(words, _mm256_extracti128_si256::<1>(records)) };
    let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
    // Pairs of words from each load; a permutation of the pairs restores their order.
    let maps = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(low, high));
    let before = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(low, high));
    let [maps, before] = [maps, before].map(|pairs| _mm256_permute4x64_epi64::<0xd8>(pairs));
    let behind = _mm256_andnot_si256(_mm256_srli_epi32::<10>(keys), _mm256_set1_epi32(31));
    _mm256_add_epi32(before, ones(_mm256_sllv_epi32(maps, behind)))
}

/// The codes of keys in their cells.
///
/// # Safety
/// Every cell must be a cell of the table, and `BITS` the width of its codes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn codes<const BITS: u32>(table: &Table4, cells: __m256i, keys: __m256i) -> __m256i {
    let four = _mm256_and_si256(_mm256_srli_epi32::<8>(keys), _mm256_set1_epi32(3));
    let words = match BITS {
        8 => cells,
        16 => _mm256_or_si256(_mm256_slli_epi32::<1>(cells), _mm256_srli_epi32::<1>(four)),
        _ => _mm256_or_si256(_mm256_slli_epi32::<2>(cells), four),
    };
    // SAFETY: by the caller's contract.
    let words = unsafe { _mm256_i32gather_epi32::<4>(table.cells.as_ptr().cast(), words) };
    let shift = match BITS {
        8 => _mm256_slli_epi32::<3>(four),
        16 => _mm256_slli_epi32::<4>(_mm256_and_si256(four, _mm256_set1_epi32(1))),
        _ => return words,
    };
    _mm256_and_si256(_mm256_srlv_epi32(words, shift), escape::<BITS>())
}

#[target_feature(enable = "avx2")]
#[inline]
fn escape<const BITS: u32>() -> __m256i {
    _mm256_set1_epi32((u32::MAX >> (32 - BITS)).cast_signed())
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<const BITS: u32, const INDEXED: bool>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let mut scratch = [_mm256_setzero_si256(); PIECE / 8];
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        for (at, found) in (0..keys.len()).step_by(8).zip(&mut scratch) {
            *found = cells(table, load(keys, at).0);
        }
        // Indices of the keys in blocks.
        let (mut aside, mut len) = ([0; PIECE], 0);
        for (at, cells) in (0..keys.len()).step_by(8).zip(&scratch) {
            let (key, live) = load(keys, at);
            // SAFETY: the cells come from published records.
            let code = unsafe { codes::<BITS>(table, *cells, key) };
            let answer = if INDEXED {
                // SAFETY: `ids` has an entry for each code.
                unsafe { _mm256_i32gather_epi32::<4>(table.ids.as_ptr().cast(), code) }
            } else {
                code
            };
            store(out, at, live, answer);
            let escaped = _mm256_and_si256(live, _mm256_cmpeq_epi32(code, escape::<BITS>()));
            let mut escaped = _mm256_movemask_ps(_mm256_castsi256_ps(escaped));
            while escaped != 0 {
                aside[len] = at as u32 + escaped.trailing_zeros();
                len += 1;
                escaped &= escaped - 1;
            }
        }
        if len > 0 {
            scalar::blocks::<BITS>(table, keys, out, &aside[..len]);
        }
    }
}
