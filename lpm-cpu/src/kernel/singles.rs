//! Single loads assembled into vectors, for CPUs with slow gathers: Zen's are microcode, and Intel's from Skylake to Tiger Lake are
//! slowed by the mitigation of gather data sampling (CVE-2022-40982).
//!
//! The indices go through memory, from where each load takes its index by store forwarding. `load` must be volatile or atomic: otherwise
//! the compiler turns the loads into a gather.

use std::arch::x86_64::*;

#[target_feature(enable = "sse4.1")]
#[inline]
fn four(places: &[u32], load: impl Fn(u32) -> u32) -> __m128i {
    let word = |at: usize| load(places[at]).cast_signed();
    let words = _mm_insert_epi32::<1>(_mm_cvtsi32_si128(word(0)), word(1));
    _mm_insert_epi32::<3>(_mm_insert_epi32::<2>(words, word(2)), word(3))
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn words16(places: __m512i, load: impl Fn(u32) -> u32) -> __m512i {
    let mut at = [0; 16];
    // SAFETY: `at` has sixteen words.
    unsafe { _mm512_storeu_si512(at.as_mut_ptr().cast(), places) };
    let words = _mm512_castsi128_si512(four(&at[..4], &load));
    let words = _mm512_inserti32x4::<1>(words, four(&at[4..8], &load));
    let words = _mm512_inserti32x4::<2>(words, four(&at[8..12], &load));
    _mm512_inserti32x4::<3>(words, four(&at[12..], &load))
}

#[target_feature(enable = "sse4.1")]
#[inline]
fn two(places: &[u32], load: impl Fn(u32) -> u64) -> __m128i {
    let word = |at: usize| load(places[at]).cast_signed();
    _mm_insert_epi64::<1>(_mm_cvtsi64_si128(word(0)), word(1))
}

#[target_feature(enable = "avx2")]
#[inline]
fn wide_words4(places: __m128i, load: impl Fn(u32) -> u64) -> __m256i {
    let mut at = [0; 4];
    // SAFETY: `at` has four words.
    unsafe { _mm_storeu_si128(at.as_mut_ptr().cast(), places) };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(two(&at[..2], &load)), two(&at[2..], &load))
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn wide_words8(places: __m256i, load: impl Fn(u32) -> u64) -> __m512i {
    let (low, high) = (_mm256_castsi256_si128(places), _mm256_extracti128_si256::<1>(places));
    let low = _mm512_castsi256_si512(wide_words4(low, &load));
    _mm512_inserti64x4::<1>(low, wide_words4(high, &load))
}
