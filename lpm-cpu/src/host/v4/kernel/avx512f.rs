//! The AVX-512F kernel for Knights Landing: F and CD alone, no BW, DQ or VL instruction.

use super::{PIECE, scalar};
use crate::host::v4::table::Table4;
use crate::kernel::avx512f::lanes;
use crate::kernel::singles::{wide_words8, words16};
use fib::NextHopId;
use lpm_core::prefetch;
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU32, Ordering};

avx512_kernel!("avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2", ones);

/// Counts the set bits of each word by sums of 2, 4, 8 and 32 bits.
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

/// Loads sixteen keys from `at` on, with a mask of the lanes that have a key; lanes without one load 0.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn load(keys: &[u32], at: usize) -> (__m512i, __mmask16) {
    let live = lanes(keys.len() - at);
    // SAFETY: lanes without a key are not read.
    (unsafe { _mm512_maskz_loadu_epi32(live, keys.as_ptr().wrapping_add(at).cast()) }, live)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn store(out: &mut [NextHopId], at: usize, live: __mmask16, answers: __m512i) {
    // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word with an id of 24 bits.
    unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().wrapping_add(at).cast(), live, answers) };
}

#[repr(align(64))]
pub(super) struct PieceWords(pub(super) [u32; PIECE]);

impl PieceWords {
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn get(&self, at: usize) -> __m512i {
        let words = &self.0[at..at + 16];
        // SAFETY: the slice has sixteen words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn set(&mut self, at: usize, words: __m512i) {
        let to = &mut self.0[at..at + 16];
        // SAFETY: the slice has sixteen words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
    }
}

/// Loads the words at sixteen indices.
///
/// # Safety
/// The indices must be within `words`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather<const GATHER: bool>(words: &[AtomicU32], at: __m512i) -> __m512i {
    if GATHER {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_i32gather_epi32::<4>(at, words.as_ptr().cast()) }
    } else {
        // SAFETY: by the caller's contract.
        words16(at, |at| unsafe { words.get_unchecked(at as usize) }.load(Ordering::Acquire))
    }
}

/// The maps of sixteen records, and the cells before their runs. Each record is one load of 64 bits.
///
/// # Safety
/// The table must have these records.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn gather_records<const GATHER: bool>(
    table: &Table4,
    records: __m512i,
) -> (__m512i, __m512i) {
    let words = table.records.as_ptr().cast();
    let eight = |records: __m256i| {
        if GATHER {
            // SAFETY: by the caller's contract.
            unsafe { _mm512_i32gather_epi64::<8>(records, words) }
        } else {
            wide_words8(records, |at| {
                // SAFETY: by the caller's contract.
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
/// The table must have these cells, and `BITS` must be the width of its codes.
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
    // SAFETY: by the caller's contract.
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
/// If codes are indices, the table must have an id for each.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) unsafe fn gather_ids<const GATHER: bool, const INDEXED: bool>(
    table: &Table4,
    codes: __m512i,
) -> __m512i {
    if !INDEXED {
        return codes;
    }
    // SAFETY: by the caller's contract.
    unsafe { gather::<GATHER>(&table.ids, codes) }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn escape<const BITS: u32>() -> __m512i {
    _mm512_set1_epi32((u32::MAX >> (32 - BITS)).cast_signed())
}

/// The indices of the `chosen` lanes, packed from the first lane on; lane 0 has index `at`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn places(at: usize, chosen: __mmask16) -> __m512i {
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let at = i32::try_from(at).unwrap_or(0);
    _mm512_maskz_compress_epi32(chosen, _mm512_add_epi32(lane, _mm512_set1_epi32(at)))
}
