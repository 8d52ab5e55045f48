//! AVX-512F: vectors of sixteen words; a mask has a bit for each. No BW, DQ or VL instruction.

use super::{HashWords, Lanes, Words};
use std::arch::x86_64::*;

/// AVX-512F, which this CPU has.
#[derive(Clone, Copy, Debug)]
pub struct Avx512f(());

impl Avx512f {
    /// The proof that this CPU has AVX-512F.
    ///
    /// # Safety
    /// The CPU must have AVX-512F, as in a caller with this target feature.
    #[target_feature(enable = "avx512f")]
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }

    operations! {
        /// The words with even numbers of two vectors.
        pub even(first: __m512i, second: __m512i) -> __m512i = {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            _mm512_permutex2var_epi32(first, even, second)
        };
        /// The words with odd numbers of two vectors.
        pub odd(first: __m512i, second: __m512i) -> __m512i = {
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_epi32(first, odd, second)
        };
        /// The high 32 bits of `a * b`.
        pub mul_high(a: __m512i, b: __m512i) -> __m512i = {
            let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, b));
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            _mm512_mask_blend_epi32(0xaaaa, even, odd)
        };
    }

    /// Loads sixteen words of 64 bits from `from` on in the lanes of `mask`; other lanes are 0.
    ///
    /// # Safety
    /// The words of these lanes must be readable.
    #[inline(always)]
    #[must_use]
    pub unsafe fn load_wide(self, from: *const u64, mask: __mmask16) -> [__m512i; 2] {
        let [low, high] = mask.to_le_bytes();
        // SAFETY: by the caller's contract. The address of the second vector may lie past the end, and is then not read.
        unsafe {
            [
                _mm512_maskz_loadu_epi64(low, from.cast()),
                _mm512_maskz_loadu_epi64(high, from.wrapping_add(8).cast()),
            ]
        }
    }
}

impl Words for Avx512f {
    type Vector = __m512i;

    operations! {
        splat(word: u32) -> __m512i = _mm512_set1_epi32(word.cast_signed());
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        shift_left(a: __m512i, bits: i32) -> __m512i = _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right(a: __m512i, bits: i32) -> __m512i = _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits));
        shift_left_each(a: __m512i, b: __m512i) -> __m512i = _mm512_sllv_epi32(a, b);
        shift_right_each(a: __m512i, b: __m512i) -> __m512i = _mm512_srlv_epi32(a, b);
    }
}

impl HashWords for Avx512f {
    operations! {
        xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        mul_high_by(a: __m512i, word: u32) -> __m512i = {
            let word = _mm512_set1_epi32(word.cast_signed());
            let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(a, word));
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), word);
            _mm512_mask_blend_epi32(0xaaaa, even, odd)
        };
        rotate_left(a: __m512i, bits: i32) -> __m512i = _mm512_rolv_epi32(a, _mm512_set1_epi32(bits));
    }
}

impl Lanes for Avx512f {
    type Mask = __mmask16;
    const COUNT: usize = 16;

    operations! {
        and_not(a: __m512i, b: __m512i) -> __m512i = _mm512_andnot_si512(a, b);
        select(mask: __mmask16, a: __m512i, b: __m512i) -> __m512i = _mm512_mask_mov_epi32(b, mask, a);
        equal(mask: __mmask16, a: __m512i, b: __m512i) -> __mmask16 = _mm512_mask_cmpeq_epi32_mask(mask, a, b);
        zeros(mask: __mmask16, words: __m512i) -> __mmask16 = _mm512_mask_testn_epi32_mask(mask, words, words);
        non_zeros(mask: __mmask16, words: __m512i) -> __mmask16 = _mm512_mask_test_epi32_mask(mask, words, words);
        signs(words: __m512i) -> __mmask16 = _mm512_test_epi32_mask(words, _mm512_set1_epi32(i32::MIN));
        at_least(words: __m512i, least: u32) -> __mmask16 =
            _mm512_cmpge_epu32_mask(words, _mm512_set1_epi32(least.cast_signed()));
    }

    #[inline(always)]
    fn first(self, count: usize) -> __mmask16 {
        if count >= 16 { u16::MAX } else { (1 << count) - 1 }
    }

    #[inline(always)]
    fn both(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn either(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
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
    unsafe fn load_all(self, from: *const u32) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_all(self, to: *mut u32, words: __m512i) {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_storeu_si512(to.cast(), words) };
    }

    #[inline(always)]
    unsafe fn gather<const SCALE: i32>(
        self,
        from: *const u8,
        at: __m512i,
        mask: __mmask16,
        other: __m512i,
    ) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_mask_i32gather_epi32::<SCALE>(other, mask, at, from.cast()) }
    }

    #[inline(always)]
    unsafe fn gather_all(self, from: *const u32, at: __m512i) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { _mm512_i32gather_epi32::<4>(at, from.cast()) }
    }

    #[inline(always)]
    unsafe fn gather_wide(self, from: *const u64, at: __m512i) -> (__m512i, __m512i) {
        // SAFETY: by the caller's contract.
        unsafe {
            let low = _mm512_i32gather_epi64::<8>(_mm512_castsi512_si256(at), from.cast());
            let high = _mm512_i32gather_epi64::<8>(_mm512_extracti64x4_epi64::<1>(at), from.cast());
            (self.even(low, high), self.odd(low, high))
        }
    }
}
