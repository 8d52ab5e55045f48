//! Loads at the indices in a vector: gathers, or single loads assembled into vectors for CPUs with slow gathers. Zen's gathers are
//! microcode, and Intel's from Skylake to Tiger Lake are slowed by the mitigation of gather data sampling (CVE-2022-40982). The indices of
//! single loads go through memory, by store forwarding. The loads must be volatile or atomic: else the compiler makes them a gather.

use super::entries::load_entry;
use lpm_core::lanes::{Avx512f, Lanes, Words as _};
use std::arch::x86_64::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) trait Fetch<L: Lanes> {
    /// Whether lanes outside a mask cost nothing.
    const IS_GATHER: bool;

    /// Loads the words at the indices `at`.
    ///
    /// # Safety
    /// The indices must be within `words`.
    unsafe fn words(lanes: L, words: &[AtomicU32], at: L::Vector) -> L::Vector;

    /// Loads the words of 64 bits at the indices `at`, each by one load; returns the low halves and the high halves.
    ///
    /// # Safety
    /// The indices must be within `words`.
    unsafe fn wide_words(lanes: L, words: &[AtomicU64], at: L::Vector) -> (L::Vector, L::Vector);

    /// Loads the entries at `at` in the lanes of `mask`; other lanes keep `other`.
    ///
    /// # Safety
    /// In the lanes of `mask`, `at` must be the index from `base` of an entry of a table; a table has two entries of padding at its end.
    /// `anyone` must be the index of any such entry, which single loads read in the other lanes.
    unsafe fn entries<const BITS: u32>(
        lanes: L,
        base: *const u8,
        at: L::Vector,
        mask: L::Mask,
        other: L::Vector,
        anyone: u32,
    ) -> L::Vector;
}

pub(crate) struct ByGather;

impl<L: Lanes> Fetch<L> for ByGather {
    const IS_GATHER: bool = true;

    #[inline(always)]
    unsafe fn words(lanes: L, words: &[AtomicU32], at: L::Vector) -> L::Vector {
        // SAFETY: by the caller's contract.
        unsafe { lanes.gather_all(words.as_ptr().cast(), at) }
    }

    #[inline(always)]
    unsafe fn wide_words(lanes: L, words: &[AtomicU64], at: L::Vector) -> (L::Vector, L::Vector) {
        // SAFETY: by the caller's contract.
        unsafe { lanes.gather_wide(words.as_ptr().cast(), at) }
    }

    #[inline(always)]
    unsafe fn entries<const BITS: u32>(
        lanes: L,
        base: *const u8,
        at: L::Vector,
        mask: L::Mask,
        other: L::Vector,
        _: u32,
    ) -> L::Vector {
        if BITS == 16 {
            // SAFETY: by the caller's contract. Four bytes are loaded at an entry of two, and the two behind it, at most padding, are
            // cleared. The entry itself is aligned, so it is read whole.
            let pair = unsafe { lanes.gather::<2>(base, at, mask, other) };
            lanes.and(pair, lanes.splat(0xffff))
        } else {
            // SAFETY: by the caller's contract.
            unsafe { lanes.gather::<4>(base, at, mask, other) }
        }
    }
}

/// Single loads. With AVX2, vectors of them are no faster than a kernel without vectors.
pub(crate) struct BySingleLoad;

impl Fetch<Avx512f> for BySingleLoad {
    const IS_GATHER: bool = false;

    #[inline(always)]
    unsafe fn words(_: Avx512f, words: &[AtomicU32], at: __m512i) -> __m512i {
        // SAFETY: by the caller's contract.
        unsafe { words16(at, |at| words.get_unchecked(at as usize).load(Ordering::Acquire)) }
    }

    #[inline(always)]
    unsafe fn wide_words(lanes: Avx512f, words: &[AtomicU64], at: __m512i) -> (__m512i, __m512i) {
        // SAFETY: by the caller's contract.
        let [low, high] = unsafe {
            let load = |at: u32| words.get_unchecked(at as usize).load(Ordering::Acquire);
            [
                wide_words8(_mm512_castsi512_si256(at), load),
                wide_words8(_mm512_extracti64x4_epi64::<1>(at), load),
            ]
        };
        (lanes.even(low, high), lanes.odd(low, high))
    }

    #[inline(always)]
    unsafe fn entries<const BITS: u32>(
        lanes: Avx512f,
        base: *const u8,
        at: __m512i,
        mask: __mmask16,
        other: __m512i,
        anyone: u32,
    ) -> __m512i {
        let at = lanes.select(mask, at, lanes.splat(anyone));
        // SAFETY: by the caller's contract.
        let words = unsafe { words16(at, |at| load_entry::<BITS>(base, at, Ordering::Acquire)) };
        lanes.select(mask, words, other)
    }
}

/// # Safety
/// The CPU must have AVX-512F, as for the functions below. They are inlined into a kernel with this target feature.
#[inline(always)]
unsafe fn four(places: &[u32], load: impl Fn(u32) -> u32) -> __m128i {
    let word = |at: usize| load(places[at]).cast_signed();
    // SAFETY: by the caller's contract.
    unsafe {
        let words = _mm_insert_epi32::<1>(_mm_cvtsi32_si128(word(0)), word(1));
        _mm_insert_epi32::<3>(_mm_insert_epi32::<2>(words, word(2)), word(3))
    }
}

/// # Safety
/// As for [`four`].
#[inline(always)]
unsafe fn words16(places: __m512i, load: impl Fn(u32) -> u32) -> __m512i {
    let mut at = [0; 16];
    // SAFETY: by the caller's contract, and `at` has sixteen words.
    unsafe {
        _mm512_storeu_si512(at.as_mut_ptr().cast(), places);
        let words = _mm512_castsi128_si512(four(&at[..4], &load));
        let words = _mm512_inserti32x4::<1>(words, four(&at[4..8], &load));
        let words = _mm512_inserti32x4::<2>(words, four(&at[8..12], &load));
        _mm512_inserti32x4::<3>(words, four(&at[12..], &load))
    }
}

/// # Safety
/// As for [`four`].
#[inline(always)]
unsafe fn two(places: &[u32], load: impl Fn(u32) -> u64) -> __m128i {
    let word = |at: usize| load(places[at]).cast_signed();
    // SAFETY: by the caller's contract.
    unsafe { _mm_insert_epi64::<1>(_mm_cvtsi64_si128(word(0)), word(1)) }
}

/// # Safety
/// As for [`four`].
#[inline(always)]
unsafe fn wide_words8(places: __m256i, load: impl Fn(u32) -> u64) -> __m512i {
    let mut at = [0; 8];
    // SAFETY: by the caller's contract, and `at` has eight words.
    unsafe {
        _mm256_storeu_si256(at.as_mut_ptr().cast(), places);
        let low = _mm256_castsi128_si256(two(&at[..2], &load));
        let low = _mm256_inserti128_si256::<1>(low, two(&at[2..4], &load));
        let high = _mm256_castsi128_si256(two(&at[4..6], &load));
        let high = _mm256_inserti128_si256::<1>(high, two(&at[6..], &load));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}
