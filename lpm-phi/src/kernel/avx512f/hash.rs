//! Hashes of sixteen keys at once.

use crate::bloom::hash::{FMIX64, H2_HALVES, h2_half_of, h2_of, murmur32_of};
use lpm_core::lanes::{Avx512f, HashWords};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn hash_x16<const MURMUR: bool>(x: __m512i) -> __m512i {
    let lanes = Avx512f::new();
    if MURMUR { murmur32_of(lanes, x) } else { h2_of(lanes, x) }
}

/// H2 or Murmur of sixteen words of 64 bits, as [`crate::bloom::hash::Hash32::hash_64`] computes them.
#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn hash_64_x16<const MURMUR: bool>(keys: [__m512i; 2]) -> __m512i {
    let lanes = Avx512f::new();
    if MURMUR {
        return lanes.odd(murmur64_x8(keys[0]), murmur64_x8(keys[1]));
    }
    let [upper, lower] = H2_HALVES.map(|multiplier| _mm512_set1_epi32(multiplier.cast_signed()));
    let [first, second] = keys.map(|keys| {
        let product = _mm512_mul_epu32(_mm512_srli_epi64::<32>(keys), upper);
        _mm512_xor_si512(product, _mm512_mul_epu32(keys, lower))
    });
    h2_half_of(lanes, lanes.xor(lanes.odd(first, second), lanes.even(first, second)))
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
