//! The hash functions of Bloomfwd, section 4.3.2: H2 (Algorithm 3) and MurmurHash3's finalisers for 32 and 64 bits; and H2 for 64 bits,
//! which the paper does not have. The 32-bit functions are bijections. The IPv4 hash tables rely on this: a part of the hash identifies a
//! key within its line. The IPv6 tables store whole keys. One hash serves filter and table (section 4.1); filter bits come from double
//! hashing, `g_i = h1 + i * h2`, over parts of it.

use lpm_core::lanes::{HashWords, Scalar};
use std::fmt;
use std::str::FromStr;

/// A hash function whose results have 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash32 {
    /// H2, the paper's choice for IPv4 (section 6.2); for IPv6 [`h2_64`].
    #[default]
    H2,
    /// MurmurHash3's `fmix32`, and the upper half of its `fmix64`.
    Murmur,
}

impl FromStr for Hash32 {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        match name {
            "h2" => Ok(Self::H2),
            "murmur" => Ok(Self::Murmur),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Hash32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::H2 => "h2",
            Self::Murmur => "murmur",
        })
    }
}

pub(crate) const H2_MULTIPLIER: u32 = 0x045d_9f3b;
/// For the upper and the lower half: close to 2^32 over the golden ratio, and 2^32 times the fractional part of the square root of 3.
pub(crate) const H2_HALVES: [u32; 2] = [0x9e37_79b1, 0xbb67_ae85];
pub(crate) const FMIX32: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];
pub(crate) const FMIX64: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

#[inline(always)]
fn fold_mul<W: HashWords>(words: W, x: W::Vector, shift: i32, factor: u32) -> W::Vector {
    words.mul(fold(words, x, shift), words.splat(factor))
}

#[inline(always)]
fn fold<W: HashWords>(words: W, x: W::Vector, shift: i32) -> W::Vector {
    words.xor(words.shift_right(x, shift), x)
}

#[inline(always)]
pub(crate) fn h2_of<W: HashWords>(words: W, x: W::Vector) -> W::Vector {
    let x = fold_mul(words, x, 16, H2_MULTIPLIER);
    h2_half_of(words, x)
}

#[inline(always)]
pub(crate) fn h2_half_of<W: HashWords>(words: W, x: W::Vector) -> W::Vector {
    fold(words, fold_mul(words, x, 16, H2_MULTIPLIER), 16)
}

#[inline(always)]
pub(crate) fn murmur32_of<W: HashWords>(words: W, x: W::Vector) -> W::Vector {
    let x = fold_mul(words, x, 16, FMIX32[0]);
    fold(words, fold_mul(words, x, 13, FMIX32[1]), 16)
}

/// H2, Algorithm 3 of the paper.
#[inline]
#[must_use]
pub fn h2(x: u32) -> u32 {
    h2_of(Scalar, x)
}

/// H2 for 64 bits: multiplies each half by its own constant, folds the products to 32 bits, then does the second half of H2.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the product is folded")]
pub fn h2_64(x: u64) -> u32 {
    let product = ((x >> 32) * u64::from(H2_HALVES[0])) ^ ((x & 0xffff_ffff) * u64::from(H2_HALVES[1]));
    h2_half_of(Scalar, (product >> 32) as u32 ^ product as u32)
}

/// MurmurHash3 specialised to one 32-bit word: its finaliser `fmix32`.
#[inline]
#[must_use]
pub fn murmur32(x: u32) -> u32 {
    murmur32_of(Scalar, x)
}

/// MurmurHash3 specialised to one 64-bit word: its finaliser `fmix64`.
#[must_use]
pub const fn murmur64(x: u64) -> u64 {
    let x = ((x >> 33) ^ x).wrapping_mul(FMIX64[0]);
    let x = ((x >> 33) ^ x).wrapping_mul(FMIX64[1]);
    (x >> 33) ^ x
}

impl Hash32 {
    /// The hash of `x`.
    #[inline]
    #[must_use]
    pub fn hash(self, x: u32) -> u32 {
        match self {
            Self::H2 => h2(x),
            Self::Murmur => murmur32(x),
        }
    }

    /// The hash of a word of 64 bits.
    #[inline]
    #[must_use]
    pub fn hash_64(self, x: u64) -> u32 {
        match self {
            Self::H2 => h2_64(x),
            Self::Murmur => (murmur64(x) >> 32) as u32,
        }
    }
}

/// Maps a hash onto `0..n` by its high bits, without a division: the high half of `hash * n`.
#[inline]
#[must_use]
pub(crate) fn scale(hash: u32, n: u32) -> u32 {
    Scalar.mul_high_by(hash, n)
}

/// The bits of a filter word that a key sets: `k` bits at `h1 + i * h2` modulo 32, from the low bits of its hash.
#[inline]
#[must_use]
pub(crate) fn filter_mask(hash: u32, k: u32) -> u32 {
    filter_mask_of(Scalar, hash, k)
}

#[inline(always)]
pub(crate) fn filter_mask_of<W: HashWords>(words: W, hash: W::Vector, k: u32) -> W::Vector {
    let (one, low) = (words.splat(1), words.splat(31));
    let step = words.or(words.shift_right(hash, 5), one);
    let (mut bits, mut at) = (words.splat(0), hash);
    for _ in 0..k {
        bits = words.or(bits, words.shift_left_each(one, words.and(at, low)));
        at = words.add(at, step);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // H2 by hand: 1 -> 0x045d9f3b -> ...; fmix values from the reference implementation's definition of 0 -> 0.
        assert_eq!((h2(0), murmur32(0), murmur64(0)), (0, 0, 0));
        assert_eq!(h2(1), {
            let a = 0x045d_9f3b_u32;
            let b = ((a >> 16) ^ a).wrapping_mul(0x045d_9f3b);
            (b >> 16) ^ b
        });
        assert_eq!(murmur32(1), 0x514e_28b7);
        assert_eq!(murmur64(1), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn bijections_do_not_collide() {
        for hash in [h2, murmur32] {
            let mut seen: Vec<u32> = (0..200_000).map(|x| hash(x << 8)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 200_000);
        }
    }

    #[test]
    fn masks_have_k_bits_where_the_step_allows() {
        for x in 0..10_000 {
            let hash = h2(x);
            for k in 1..=8 {
                assert_eq!(filter_mask(hash, k).count_ones(), k, "an odd step visits distinct bits");
            }
        }
        assert_eq!((scale(0, 10), scale(u32::MAX, 10), scale(1 << 31, 10)), (0, 9, 5));
    }
}
