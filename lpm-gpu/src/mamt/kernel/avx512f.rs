//! The AVX-512 kernel, with F and CD alone, as on Knights Landing: no BW, DQ or VL instruction. All keys of a piece go
//! through a level before the next: its gathers are independent, and have one stride and first word, as units skip no level.

use super::PIECE;
use crate::gamt::code::{DEEP, stride_at};
use crate::mamt::table::Words;
use lpm_core::prefetch;
use std::arch::x86_64::*;

const VECTORS: usize = PIECE / 16;

const fn lanes(left: usize) -> __mmask16 {
    if left >= 16 { u16::MAX } else { (1 << left) - 1 }
}

/// The word that a key is searched by: all 32 bits of IPv4, the first 64 of IPv6.
pub(super) trait SearchWord: Copy {
    /// 32 bits from bit `taken` on, counted from the top, of each of 16 keys at `keys` in the lanes of `live`.
    ///
    /// # Safety
    /// `keys` has a key for each lane of `live`, and the CPU has AVX-512F.
    unsafe fn bits_from(keys: *const Self, live: __mmask16, taken: __m128i) -> __m512i;
}

impl SearchWord for u32 {
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn bits_from(keys: *const Self, live: __mmask16, taken: __m128i) -> __m512i {
        // SAFETY: the mask keeps lanes without a key from being read.
        _mm512_sll_epi32(unsafe { _mm512_maskz_loadu_epi32(live, keys.cast()) }, taken)
    }
}

impl SearchWord for u64 {
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn bits_from(keys: *const Self, live: __mmask16, taken: __m128i) -> __m512i {
        let [low, high] = [live & 0xff, live >> 8].map(|half| u8::try_from(half).unwrap_or(0));
        // SAFETY: the masks keep lanes without a key from being read.
        let words = unsafe {
            [
                _mm512_maskz_loadu_epi64(low, keys.cast()),
                _mm512_maskz_loadu_epi64(high, keys.wrapping_add(8).cast()),
            ]
        };
        // The high halves.
        let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
        _mm512_permutex2var_epi32(_mm512_sll_epi64(words[0], taken), odd, _mm512_sll_epi64(words[1], taken))
    }
}

/// Writes the raw answers of `keys`, at most a piece, to `raw` of the same length.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn search<W: SearchWord>(table: &Words, keys: &[W], raw: &mut [u32]) {
    assert!(keys.len() == raw.len() && keys.len() <= PIECE, "a piece, with as many answers as keys");
    prefetch::piece(keys, &[]);
    let (header, words) = (&table.header, table.words.as_ptr());
    let jump = _mm512_set1_epi32((DEEP - 1).cast_signed());
    let live: [__mmask16; VECTORS] = std::array::from_fn(|at| lanes(keys.len().saturating_sub(at * 16)));
    let vectors = keys.len().div_ceil(16);
    let mut unit = [_mm512_setzero_si512(); VECTORS];
    let mut inner = live;
    let mut taken = 0;
    for level in 1..=header[0] as usize {
        let (stride, base) = (header[stride_at(level)], header[stride_at(level) + 1] as usize);
        let skipped = _mm_cvtsi32_si128(taken);
        let unused = _mm_cvtsi32_si128(32 - stride.cast_signed());
        let row = words.wrapping_add(base).cast();
        let mut any = 0;
        for at in 0..vectors {
            if inner[at] == 0 {
                continue;
            }
            // SAFETY: `live` has only lanes with keys, and this function enables the CPU features that the trait needs.
            let bits = unsafe { W::bits_from(keys.as_ptr().wrapping_add(at * 16), live[at], skipped) };
            let node = _mm512_srli_epi32::<8>(unit[at]);
            let place = _mm512_add_epi32(node, _mm512_srl_epi32(bits, unused));
            // SAFETY: the first level has a unit for each value of its stride. Below it, a unit that is not a leaf points to a node of
            // this level, and all units of a node are in `words`. Aligned words are read whole, before or after a store to them.
            unit[at] = unsafe { _mm512_mask_i32gather_epi32::<4>(unit[at], inner[at], place, row) };
            inner[at] = _mm512_mask_test_epi32_mask(inner[at], unit[at], jump);
            any |= inner[at];
        }
        if any == 0 {
            break;
        }
        taken += stride.cast_signed();
    }
    let deep = _mm512_set1_epi32(DEEP.cast_signed());
    for at in 0..vectors {
        // The deep mark moves from bit 7 to bit 31.
        let mark = _mm512_slli_epi32::<24>(_mm512_and_si512(unit[at], deep));
        let answer = _mm512_or_si512(_mm512_srli_epi32::<8>(unit[at]), mark);
        // SAFETY: the mask keeps lanes without a key from being written, and `raw` is as long as `keys`.
        unsafe { _mm512_mask_storeu_epi32(raw.as_mut_ptr().wrapping_add(at * 16).cast(), live[at], answer) };
    }
}
