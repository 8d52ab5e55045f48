//! The AVX2 kernel, for CPUs without AVX-512.

#![expect(clippy::cast_possible_truncation, reason = "places in a piece are below 128")]

use super::vector::{self, Listed};
use crate::host::v4::table::Table4;
use crate::kernel::fetch::Fetch;
use fib::NextHopId;
use lpm_core::lanes::Avx2;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<F: Fetch<Avx2>, const BITS: u32, const INDEXED: bool>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    vector::lookup::<_, F, BITS, INDEXED>(Avx2::new(), |words| ones(words), table, keys, out);
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

impl Listed for Avx2 {
    #[inline(always)]
    fn list(self, chosen: __m256i, first: usize, to: &mut [u32]) -> usize {
        // SAFETY: the CPU has the instructions, as `self` proves.
        let mut chosen = unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(chosen)) };
        let mut len = 0;
        while chosen != 0 {
            to[len] = first as u32 + chosen.trailing_zeros();
            len += 1;
            chosen &= chosen - 1;
        }
        len
    }
}
