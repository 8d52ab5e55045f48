//! The AVX2 kernels, for CPUs without AVX-512: vectors of eight words, and vector masks.

use super::simd::Simd;
use super::{PIECE, sail, scalar};
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
use fib::{Fibs, NextHopId};
use std::arch::x86_64::*;

kernels!(Avx2, "avx2,popcnt,lzcnt,bmi1,bmi2");

impl Simd for Avx2 {
    type Vector = __m256i;
    type Mask = __m256i;
    const LANES: usize = 8;

    operations! {
        splat(word: u32) -> __m256i = _mm256_set1_epi32(word.cast_signed());
        and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        and_not(a: __m256i, b: __m256i) -> __m256i = _mm256_andnot_si256(a, b);
        or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        sub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        shift_left(a: __m256i, bits: i32) -> __m256i = _mm256_sll_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right(a: __m256i, bits: i32) -> __m256i = _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right_each(a: __m256i, b: __m256i) -> __m256i = _mm256_srlv_epi32(a, b);
        select(mask: __m256i, a: __m256i, b: __m256i) -> __m256i = _mm256_blendv_epi8(b, a, mask);
        zeros(mask: __m256i, words: __m256i) -> __m256i =
            _mm256_and_si256(mask, _mm256_cmpeq_epi32(words, _mm256_setzero_si256()));
        non_zeros(mask: __m256i, words: __m256i) -> __m256i =
            _mm256_andnot_si256(_mm256_cmpeq_epi32(words, _mm256_setzero_si256()), mask);
        signs(words: __m256i) -> __m256i = _mm256_srai_epi32::<31>(words);
        both(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        any(mask: __m256i) -> bool = _mm256_movemask_epi8(mask) != 0;
    }

    #[inline(always)]
    fn lanes(self, count: usize) -> __m256i {
        let count = i32::try_from(count.min(8)).unwrap_or(8);
        // SAFETY: the CPU has the instructions, as `self` proves.
        unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32, mask: __m256i) -> __m256i {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_maskload_epi32(from.cast(), mask) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32, mask: __m256i, words: __m256i) {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_maskstore_epi32(to.cast(), mask, words) };
    }

    #[inline(always)]
    unsafe fn gather(self, from: *const u32, at: __m256i, mask: __m256i, other: __m256i) -> __m256i {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_mask_i32gather_epi32::<4>(other, from.cast(), at, mask) }
    }
}
