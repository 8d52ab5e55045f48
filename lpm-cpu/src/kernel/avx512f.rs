//! The AVX-512F kernels for Knights Landing: F and CD alone, no BW, DQ or VL instruction.

use super::simd::Simd;
use super::{PIECE, sail, scalar};
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
use fib::{Fibs, NextHopId};
use std::arch::x86_64::*;

kernels!(Avx512f, "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2");

pub(crate) const fn lanes(left: usize) -> __mmask16 {
    if left >= 16 { u16::MAX } else { (1 << left) - 1 }
}

impl Simd for Avx512f {
    type Vector = __m512i;
    type Mask = __mmask16;
    const LANES: usize = 16;

    operations! {
        splat(word: u32) -> __m512i = _mm512_set1_epi32(word.cast_signed());
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        and_not(a: __m512i, b: __m512i) -> __m512i = _mm512_andnot_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        shift_left(a: __m512i, bits: i32) -> __m512i = _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right(a: __m512i, bits: i32) -> __m512i = _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right_each(a: __m512i, b: __m512i) -> __m512i = _mm512_srlv_epi32(a, b);
        select(mask: __mmask16, a: __m512i, b: __m512i) -> __m512i = _mm512_mask_mov_epi32(b, mask, a);
        zeros(mask: __mmask16, words: __m512i) -> __mmask16 = _mm512_mask_testn_epi32_mask(mask, words, words);
        non_zeros(mask: __mmask16, words: __m512i) -> __mmask16 = _mm512_mask_test_epi32_mask(mask, words, words);
        signs(words: __m512i) -> __mmask16 = _mm512_test_epi32_mask(words, _mm512_set1_epi32(i32::MIN));
    }

    #[inline(always)]
    fn lanes(self, count: usize) -> __mmask16 {
        lanes(count)
    }

    #[inline(always)]
    fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32, mask: __mmask16) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_maskz_loadu_epi32(mask, from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u32, mask: __mmask16, words: __m512i) {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_mask_storeu_epi32(to.cast(), mask, words) };
    }

    #[inline(always)]
    unsafe fn gather(self, from: *const u32, at: __m512i, mask: __mmask16, other: __m512i) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_mask_i32gather_epi32::<4>(other, mask, at, from.cast()) }
    }
}
