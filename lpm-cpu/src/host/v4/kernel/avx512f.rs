//! The AVX-512F kernel, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.

use super::{PIECE, scalar};
use crate::host::v4::table::Table4;
use crate::kernel::avx512f::lanes;
use crate::kernel::singles::{wide_words8, words16};
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU32, Ordering};

avx512_kernel!("avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2", ones);

/// The bits set in each word: sums of 2, 4, 8, and then all bits of it.
#[target_feature(enable = "avx512f")]
#[inline]
fn ones(words: __m512i) -> __m512i {
    let [by2, by4, by8] = [0x5555_5555, 0x3333_3333, 0x0f0f_0f0f].map(|mask| _mm512_set1_epi32(mask));
    let sums = _mm512_sub_epi32(words, _mm512_and_si512(_mm512_srli_epi32::<1>(words), by2));
    let sums =
        _mm512_add_epi32(_mm512_and_si512(sums, by4), _mm512_and_si512(_mm512_srli_epi32::<2>(sums), by4));
    let sums = _mm512_and_si512(_mm512_add_epi32(sums, _mm512_srli_epi32::<4>(sums)), by8);
    let sums = _mm512_add_epi32(sums, _mm512_srli_epi32::<8>(sums));
    let sums = _mm512_add_epi32(sums, _mm512_srli_epi32::<16>(sums));
    _mm512_and_si512(sums, _mm512_set1_epi32(63))
}

/// Sixteen keys from `at` on, and the lanes that have one; the others have 0.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load(keys: &[u32], at: usize) -> (__m512i, __mmask16) {
    let live = lanes(keys.len() - at);
    // SAFETY: lanes without a key are not read.
    (unsafe { _mm512_maskz_loadu_epi32(live, keys.as_ptr().wrapping_add(at).cast()) }, live)
}

/// Writes the answers of `live` lanes from `at` on.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store(out: &mut [NextHopId], at: usize, live: __mmask16, answers: __m512i) {
    // SAFETY: lanes without a key are not written; there are as many answers as keys, each a word with an id of 24 bits.
    unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().wrapping_add(at).cast(), live, answers) };
}

/// A word for each key of a piece.
#[repr(align(64))]
pub(super) struct PieceWords(pub(super) [u32; PIECE]);

impl PieceWords {
    /// The sixteen words from `at` on.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn get(&self, at: usize) -> __m512i {
        let words = &self.0[at..at + 16];
        // SAFETY: so many words are there.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    /// Writes sixteen words from `at` on.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn set(&mut self, at: usize, words: __m512i) {
        let to = &mut self.0[at..at + 16];
        // SAFETY: so many words are there.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
    }
}

/// The words at sixteen places.
///
/// # Safety
/// There are such places.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather<const GATHER: bool>(words: &[AtomicU32], at: __m512i) -> __m512i {
    if GATHER {
        // SAFETY: as the caller says.
        unsafe { _mm512_i32gather_epi32::<4>(at, words.as_ptr().cast()) }
    } else {
        // SAFETY: likewise.
        words16(at, |at| unsafe { words.get_unchecked(at as usize) }.load(Ordering::Acquire))
    }
}

/// The maps of sixteen records, and the cells before the first of their runs. Each record is one load of 64 bits.
///
/// # Safety
/// The table has these records.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn gather_records<const GATHER: bool>(
    table: &Table4,
    records: __m512i,
) -> (__m512i, __m512i) {
    let words = table.records.as_ptr().cast();
    let eight = |records: __m256i| {
        if GATHER {
            // SAFETY: as the caller says.
            unsafe { _mm512_i32gather_epi64::<8>(records, words) }
        } else {
            wide_words8(records, |at| {
                // SAFETY: likewise.
                unsafe { table.records.get_unchecked(at as usize) }.load(Ordering::Acquire)
            })
        }
    };
    let low = eight(_mm512_castsi512_si256(records));
    let high = eight(_mm512_extracti64x4_epi64::<1>(records));
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    (_mm512_permutex2var_epi32(low, even, high), _mm512_permutex2var_epi32(low, odd, high))
}

/// The codes of keys in their cells.
///
/// # Safety
/// The table has these cells, and `BITS` is the width of its codes.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn gather_codes<const GATHER: bool, const BITS: u32>(
    table: &Table4,
    cells: __m512i,
    keys: __m512i,
) -> __m512i {
    let four = _mm512_and_si512(_mm512_srli_epi32::<8>(keys), _mm512_set1_epi32(3));
    let words = match BITS {
        8 => cells,
        16 => _mm512_or_si512(_mm512_slli_epi32::<1>(cells), _mm512_srli_epi32::<1>(four)),
        _ => _mm512_or_si512(_mm512_slli_epi32::<2>(cells), four),
    };
    // SAFETY: as the caller says.
    let words = unsafe { gather::<GATHER>(&table.cells, words) };
    let shift = match BITS {
        8 => _mm512_slli_epi32::<3>(four),
        16 => _mm512_slli_epi32::<4>(_mm512_and_si512(four, _mm512_set1_epi32(1))),
        _ => return words,
    };
    _mm512_and_si512(_mm512_srlv_epi32(words, shift), escape::<BITS>())
}

/// The ids of codes.
///
/// # Safety
/// Where codes are indices, the table has an id for each.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn gather_ids<const GATHER: bool, const INDEXED: bool>(
    table: &Table4,
    codes: __m512i,
) -> __m512i {
    if !INDEXED {
        return codes;
    }
    // SAFETY: as the caller says.
    unsafe { gather::<GATHER>(&table.ids, codes) }
}

/// The escape code.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn escape<const BITS: u32>() -> __m512i {
    _mm512_set1_epi32((u32::MAX >> (32 - BITS)).cast_signed())
}

/// The places of `chosen` lanes, from the first lane on; the first lane has place `at`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn places(at: usize, chosen: __mmask16) -> __m512i {
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let at = i32::try_from(at).unwrap_or(0);
    _mm512_maskz_compress_epi32(chosen, _mm512_add_epi32(lane, _mm512_set1_epi32(at)))
}
