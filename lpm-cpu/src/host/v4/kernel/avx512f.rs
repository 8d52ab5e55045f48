//! The AVX-512F kernel for Knights Landing: F and CD alone, no BW, DQ or VL instruction.

use super::vector::{self, Listed};
use crate::host::v4::table::Table4;
use crate::kernel::fetch::Fetch;
use fib::NextHopId;
use lpm_core::lanes::Avx512f;
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<F: Fetch<Avx512f>, const BITS: u32, const INDEXED: bool>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    vector::lookup::<_, F, BITS, INDEXED>(Avx512f::new(), |words| ones(words), table, keys, out);
}

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

impl Listed for Avx512f {
    #[inline(always)]
    fn list(self, chosen: __mmask16, first: usize, to: &mut [u32]) -> usize {
        if chosen == 0 {
            return 0;
        }
        let first = i32::try_from(first).unwrap_or(0);
        let to = &mut to[..16];
        // SAFETY: the CPU has the instructions, as `self` proves, and the slice has sixteen words.
        unsafe {
            let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let places = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
            _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_maskz_compress_epi32(chosen, places));
        }
        chosen.count_ones() as usize
    }
}
