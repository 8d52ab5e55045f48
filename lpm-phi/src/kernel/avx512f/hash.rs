//! Hashes of sixteen keys at once, and the indices and filter masks computed from them.

use crate::bloom::hash::{FMIX32, FMIX64, H2_HALVES, H2_MULTIPLIER};
use std::arch::x86_64::*;

/// The high half of the 64-bit product of each lane: maps a hash onto `0..n`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn scale_x16(hash: __m512i, n: __m512i) -> __m512i {
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hash, n));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), n);
    _mm512_mask_blend_epi32(0xaaaa, even, odd)
}

/// [`scale_x16`] with an `n` for each lane.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn scale_each_x16(hash: __m512i, n: __m512i) -> __m512i {
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hash, n));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(hash), _mm512_srli_epi64::<32>(n));
    _mm512_mask_blend_epi32(0xaaaa, even, odd)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn hash_x16<const MURMUR: bool>(x: __m512i) -> __m512i {
    let [first, second] = if MURMUR { FMIX32 } else { [H2_MULTIPLIER; 2] };
    let x = _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x);
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(first.cast_signed()));
    let shifted = if MURMUR { _mm512_srli_epi32::<13>(x) } else { _mm512_srli_epi32::<16>(x) };
    let x = _mm512_mullo_epi32(_mm512_xor_si512(shifted, x), _mm512_set1_epi32(second.cast_signed()));
    _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x)
}

/// The bits of a filter word that each hash sets: `k` bits at `h1 + i * h2` modulo 32.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn filter_mask_x16(hash: __m512i, k: u32) -> __m512i {
    let one = _mm512_set1_epi32(1);
    let low = _mm512_set1_epi32(31);
    let step = _mm512_or_si512(_mm512_srli_epi32::<5>(hash), one);
    let mut at = hash;
    let mut bits = _mm512_setzero_si512();
    for _ in 0..k {
        bits = _mm512_or_si512(bits, _mm512_sllv_epi32(one, _mm512_and_si512(at, low)));
        at = _mm512_add_epi32(at, step);
    }
    bits
}

/// H2 or Murmur of sixteen words of 64 bits, as [`crate::bloom::hash::Hash32::hash_64`] computes them.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn hash_64_x16<const MURMUR: bool>(keys: [__m512i; 2]) -> __m512i {
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    if MURMUR {
        return _mm512_permutex2var_epi32(murmur64_x8(keys[0]), odd, murmur64_x8(keys[1]));
    }
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let [upper, lower] = H2_HALVES.map(|multiplier| _mm512_set1_epi32(multiplier.cast_signed()));
    let [first, second] = keys.map(|keys| {
        let product = _mm512_mul_epu32(_mm512_srli_epi64::<32>(keys), upper);
        _mm512_xor_si512(product, _mm512_mul_epu32(keys, lower))
    });
    let x = _mm512_xor_si512(
        _mm512_permutex2var_epi32(first, odd, second),
        _mm512_permutex2var_epi32(first, even, second),
    );
    let x = _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x);
    let x = _mm512_mullo_epi32(x, _mm512_set1_epi32(H2_MULTIPLIER.cast_signed()));
    _mm512_xor_si512(_mm512_srli_epi32::<16>(x), x)
}

/// The low 64 bits of the product of each lane, from three 32-bit products (VPMULLQ needs AVX-512DQ).
#[target_feature(enable = "avx512f")]
#[inline]
fn mullo_x8(x: __m512i, y: u64) -> __m512i {
    let low = _mm512_set1_epi64(y.cast_signed());
    let high = _mm512_set1_epi64((y >> 32).cast_signed());
    let cross =
        _mm512_add_epi64(_mm512_mul_epu32(_mm512_srli_epi64::<32>(x), low), _mm512_mul_epu32(x, high));
    _mm512_add_epi64(_mm512_mul_epu32(x, low), _mm512_slli_epi64::<32>(cross))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn murmur64_x8(x: __m512i) -> __m512i {
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[0]);
    let x = mullo_x8(_mm512_xor_si512(_mm512_srli_epi64::<33>(x), x), FMIX64[1]);
    _mm512_xor_si512(_mm512_srli_epi64::<33>(x), x)
}
