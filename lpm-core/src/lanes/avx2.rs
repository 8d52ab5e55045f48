//! AVX2: vectors of eight words; a mask is a vector with all bits set in its lanes.

use super::{Lanes, Words};
use std::arch::x86_64::*;

/// AVX2, which this CPU has.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The proof that this CPU has AVX2.
    ///
    /// # Safety
    /// The CPU must have AVX2, as in a caller with this target feature.
    #[target_feature(enable = "avx2")]
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(())
    }

    operations! {
        /// The words with even numbers of two vectors.
        pub even(first: __m256i, second: __m256i) -> __m256i = {
            let (first, second) = (_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
            _mm256_permute4x64_epi64::<0xd8>(_mm256_castps_si256(_mm256_shuffle_ps::<0x88>(first, second)))
        };
        /// The words with odd numbers of two vectors.
        pub odd(first: __m256i, second: __m256i) -> __m256i = {
            let (first, second) = (_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
            _mm256_permute4x64_epi64::<0xd8>(_mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(first, second)))
        };
    }
}

impl Words for Avx2 {
    type Vector = __m256i;

    operations! {
        splat(word: u32) -> __m256i = _mm256_set1_epi32(word.cast_signed());
        and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        sub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        mul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        shift_left(a: __m256i, bits: i32) -> __m256i = _mm256_sll_epi32(a, _mm_cvtsi32_si128(bits));
        shift_right(a: __m256i, bits: i32) -> __m256i = _mm256_srl_epi32(a, _mm_cvtsi32_si128(bits));
        shift_left_each(a: __m256i, b: __m256i) -> __m256i = _mm256_sllv_epi32(a, b);
        shift_right_each(a: __m256i, b: __m256i) -> __m256i = _mm256_srlv_epi32(a, b);
    }
}

impl Lanes for Avx2 {
    type Mask = __m256i;
    const COUNT: usize = 8;

    operations! {
        and_not(a: __m256i, b: __m256i) -> __m256i = _mm256_andnot_si256(a, b);
        select(mask: __m256i, a: __m256i, b: __m256i) -> __m256i = _mm256_blendv_epi8(b, a, mask);
        equal(mask: __m256i, a: __m256i, b: __m256i) -> __m256i =
            _mm256_and_si256(mask, _mm256_cmpeq_epi32(a, b));
        zeros(mask: __m256i, words: __m256i) -> __m256i =
            _mm256_and_si256(mask, _mm256_cmpeq_epi32(words, _mm256_setzero_si256()));
        non_zeros(mask: __m256i, words: __m256i) -> __m256i =
            _mm256_andnot_si256(_mm256_cmpeq_epi32(words, _mm256_setzero_si256()), mask);
        signs(words: __m256i) -> __m256i = _mm256_srai_epi32::<31>(words);
        at_least(words: __m256i, least: u32) -> __m256i =
            _mm256_cmpgt_epi32(words, _mm256_set1_epi32(least.cast_signed() - 1));
        both(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        either(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        any(mask: __m256i) -> bool = _mm256_movemask_epi8(mask) != 0;
    }

    #[inline(always)]
    fn first(self, count: usize) -> __m256i {
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
    unsafe fn load_all(self, from: *const u32) -> __m256i {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_all(self, to: *mut u32, words: __m256i) {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_storeu_si256(to.cast(), words) };
    }

    #[inline(always)]
    unsafe fn gather<const SCALE: i32>(
        self,
        from: *const u8,
        at: __m256i,
        mask: __m256i,
        other: __m256i,
    ) -> __m256i {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_mask_i32gather_epi32::<SCALE>(other, from.cast(), at, mask) }
    }

    #[inline(always)]
    unsafe fn gather_all(self, from: *const u32, at: __m256i) -> __m256i {
        // SAFETY: by the caller's contract.
        unsafe { _mm256_i32gather_epi32::<4>(from.cast(), at) }
    }

    #[inline(always)]
    unsafe fn gather_wide(self, from: *const u64, at: __m256i) -> (__m256i, __m256i) {
        // SAFETY: by the caller's contract.
        unsafe {
            let low = _mm256_i32gather_epi64::<8>(from.cast(), _mm256_castsi256_si128(at));
            let high = _mm256_i32gather_epi64::<8>(from.cast(), _mm256_extracti128_si256::<1>(at));
            (self.even(low, high), self.odd(low, high))
        }
    }
}
