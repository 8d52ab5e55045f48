//! The hash functions that the paper compares (section 4.3.2): a key is an address with the bits past the level's length cleared, a hash
//! has 32 bits, and the remainder by the size of a filter or table is the index. Filter bits come from double hashing, `g_i = h1 + i * h2`
//! (section 4.1), with h1 the key's hash and h2 the hash of h1.
//!
//! `rand` is the costly hash of the baseline (section 6.3): the C library's `rand_r`; each further hash is one more call. Its first seed
//! is the address in network byte order, as in a socket address: the generator uses the low 27 bits of a seed, which in host order lack a
//! prefix's first bits. Murmur and H2 meet the target false-positive rate on real tables; Knuth and `rand` exceed it.

use crate::bloom::hash::murmur32_of;
use lpm_core::lanes::{HashWords, Scalar};
use std::fmt;
use std::str::FromStr;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashName {
    /// MurmurHash3 (x86, 32 bits, seed 0) specialised to keys of 4 and of 8 bytes.
    Murmur,
    /// Knuth's multiplicative method.
    Knuth,
    /// H2, Algorithm 3; for 32-bit keys only, so IPv6 uses Murmur instead, as in the paper (section 6.2).
    H2,
    /// `rand_r` of the C library with the key as its seed; not vectorised.
    Rand,
}

impl HashName {
    /// Every hash function.
    pub const ALL: [Self; 4] = [Self::Murmur, Self::Knuth, Self::H2, Self::Rand];

    /// The function for keys of 64 bits.
    #[must_use]
    pub const fn for_64_bits(self) -> Self {
        match self {
            Self::H2 => Self::Murmur,
            other => other,
        }
    }

    /// Whether a vector form exists.
    #[must_use]
    pub const fn is_vectorised(self) -> bool {
        !matches!(self, Self::Rand)
    }
}

impl FromStr for HashName {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|hash| hash.to_string() == name).ok_or(())
    }
}

impl fmt::Display for HashName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Murmur => "murmur",
            Self::Knuth => "knuth",
            Self::H2 => "h2",
            Self::Rand => "rand",
        })
    }
}

/// The block multipliers of MurmurHash3 for 32 bits.
const MURMUR_BLOCK: [u32; 2] = [0xcc9e_2d51, 0x1b87_3593];
/// The constant that MurmurHash3 adds for each block, after multiplying by 5.
const MURMUR_ADD: u32 = 0xe654_6b64;
/// Knuth's multiplier for 32 bits: the prime next to 2^32 over the golden ratio.
pub(crate) const KNUTH_32: u32 = 2_654_435_761;
/// Knuth's multiplier for 64 bits: 2^64 over the golden ratio; odd.
pub(crate) const KNUTH_64: u64 = 0x9e37_79b9_7f4a_7c15;

pub use crate::bloom::hash::h2;

#[inline(always)]
fn murmur_block<W: HashWords>(words: W, state: W::Vector, block: W::Vector) -> W::Vector {
    let block = words.rotate_left(words.mul(block, words.splat(MURMUR_BLOCK[0])), 15);
    let block = words.mul(block, words.splat(MURMUR_BLOCK[1]));
    let state = words.rotate_left(words.xor(state, block), 13);
    let five_fold = words.add(words.shift_left(state, 2), state);
    words.add(five_fold, words.splat(MURMUR_ADD))
}

#[inline(always)]
pub(crate) fn murmur3_32_of<W: HashWords>(words: W, x: W::Vector) -> W::Vector {
    let state = murmur_block(words, words.splat(0), x);
    murmur32_of(words, words.xor(state, words.splat(4)))
}

#[inline(always)]
pub(crate) fn murmur3_64_of<W: HashWords>(words: W, low: W::Vector, high: W::Vector) -> W::Vector {
    let state = murmur_block(words, murmur_block(words, words.splat(0), low), high);
    murmur32_of(words, words.xor(state, words.splat(8)))
}

/// `MurmurHash3_x86_32` of the four bytes of `x`, seed 0.
#[inline]
#[must_use]
pub fn murmur3_32(x: u32) -> u32 {
    murmur3_32_of(Scalar, x)
}

/// `MurmurHash3_x86_32` of the eight bytes of `x`, low word first, seed 0.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the words of a key")]
pub fn murmur3_64(x: u64) -> u32 {
    murmur3_64_of(Scalar, x as u32, (x >> 32) as u32)
}

/// Knuth's multiplicative method modulo 2^32.
#[must_use]
pub const fn knuth_32(x: u32) -> u32 {
    x.wrapping_mul(KNUTH_32)
}

/// The high word of Knuth's multiplicative method modulo 2^64: the low word is 0 for every key of 32 bits or fewer.
#[must_use]
pub const fn knuth_64(x: u64) -> u32 {
    (x.wrapping_mul(KNUTH_64) >> 32) as u32
}

/// One call of the C library's `rand_r`: three steps of its generator give 31 bits.
#[must_use]
pub const fn rand_r(seed: u32) -> u32 {
    const fn step(seed: u32) -> u32 {
        seed.wrapping_mul(1_103_515_245).wrapping_add(12_345)
    }
    let (a, b, c) = (step(seed), step(step(seed)), step(step(step(seed))));
    ((a >> 16 & 0x7ff) << 10 ^ (b >> 16 & 0x3ff)) << 10 ^ (c >> 16 & 0x3ff)
}

/// A key of a level: the first bits of an address, left-aligned in a word.
pub(crate) trait LevelKey: Copy + Eq {
    const BITS: u8;
    /// The first `len` bits, with the others cleared; `len` is at least 1.
    fn first_bits(self, len: u8) -> Self;
    fn hash(self, name: HashName) -> u32;
    /// Its words, low first, as an entry stores them.
    fn words(self) -> [u32; 2];
}

impl LevelKey for u32 {
    const BITS: u8 = 32;

    #[inline]
    fn first_bits(self, len: u8) -> Self {
        self & Self::MAX << (32 - len)
    }

    #[inline]
    fn hash(self, name: HashName) -> u32 {
        match name {
            HashName::Murmur => murmur3_32(self),
            HashName::Knuth => knuth_32(self),
            HashName::H2 => h2(self),
            HashName::Rand => rand_r(self.swap_bytes()),
        }
    }

    #[inline]
    fn words(self) -> [u32; 2] {
        [self, 0]
    }
}

impl LevelKey for u64 {
    const BITS: u8 = 64;

    #[inline]
    fn first_bits(self, len: u8) -> Self {
        self & Self::MAX << (64 - len)
    }

    #[inline]
    fn hash(self, name: HashName) -> u32 {
        match name {
            HashName::Murmur | HashName::H2 => murmur3_64(self),
            HashName::Knuth => knuth_64(self),
            HashName::Rand => {
                let [low, high] = self.words();
                rand_r(rand_r(high.swap_bytes()) ^ low.swap_bytes())
            }
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the words of a key")]
    fn words(self) -> [u32; 2] {
        [self as u32, (self >> 32) as u32]
    }
}

/// The hashes g_0, g_1, .. of a key whose hash is `first`, one for each of its `hashes` filter bits.
#[inline]
pub(crate) fn filter_hashes(name: HashName, first: u32, hashes: u32) -> impl Iterator<Item = u32> {
    let (mut at, mut step) = (first, 0);
    (0..hashes).map(move |i| {
        if i > 0 {
            at = match name {
                HashName::Rand => rand_r(at),
                _ => {
                    if i == 1 {
                        step = first.hash(name);
                    }
                    at.wrapping_add(step)
                }
            };
        }
        at
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn murmur3_is_the_reference_one() {
        // From the package mmh3 6, `mmh3.hash(little-endian bytes, 0)`.
        let of_4 = [(0, 0x2362_f9de), (1, 0xfbf1_402a), (u32::MAX, 0x7629_3b50), (0x8765_4321, 0xf55b_516b)];
        assert!(of_4.iter().all(|(x, hash)| murmur3_32(*x) == *hash));
        let of_8 = [
            (0, 0x6385_2afc),
            (1, 0x5307_5d44),
            (u64::MAX, 0x6275_64e8),
            (0x2001_0db8_u64 << 32, 0x2e28_ae3e),
        ];
        assert!(of_8.iter().all(|(x, hash)| murmur3_64(*x) == *hash));
    }

    #[test]
    fn rand_is_the_c_librarys() {
        // glibc 2.36, `rand_r(&seed)`.
        let known = [
            (0, 1_012_484),
            (1, 476_707_713),
            (0x0a00_0000, 537_358_596),
            (u32::MAX, 1_670_702_726),
            (12_345, 1_036_784_229),
        ];
        assert!(known.iter().all(|(seed, value)| rand_r(*seed) == *value));
    }

    #[test]
    fn h2_on_known_values() {
        let known = [
            (0, 0),
            (1, 0x3125_1ba7),
            (0x0a00_0000, 0xc5d5_f93d),
            (u32::MAX, 0x2028_884f),
            (12_345, 0x6829_6f19),
        ];
        assert!(known.iter().all(|(x, hash)| h2(*x) == *hash));
    }

    #[test]
    fn knuth_preserves_divisibility() {
        // The paper's explanation of its collisions (section 6.2): the low 8 bits of a /24 are zero, which its hash preserves.
        assert!((0..1000_u32).all(|x| knuth_32(x << 8).is_multiple_of(256)));
        assert_eq!((knuth_32(1), knuth_64(1)), (KNUTH_32, 0x9e37_79b9));
        assert!((1..1000_u64).any(|x| !knuth_64(x << 32).is_multiple_of(2)));
    }

    #[test]
    fn rand_tells_short_prefixes_apart() {
        let of_v4: BTreeSet<u32> = (0..1 << 16).map(|x: u32| (x << 16).hash(HashName::Rand)).collect();
        let of_v6: BTreeSet<u32> = (0..1 << 16).map(|x: u64| (x << 48).hash(HashName::Rand)).collect();
        // Two hashes of 31 bits are equal with a probability of 2^-31.
        assert!(of_v4.len() > 65_000 && of_v6.len() > 65_000, "{} and {} of 65536", of_v4.len(), of_v6.len());
    }

    #[test]
    fn filter_hashes_are_a_linear_combination() {
        for name in [HashName::Murmur, HashName::Knuth, HashName::H2] {
            let h1 = 0x0a01_0200_u32.hash(name);
            let h2 = h1.hash(name);
            let found: Vec<u32> = filter_hashes(name, h1, 4).collect();
            let wanted: Vec<u32> = (0..4).map(|i: u32| h1.wrapping_add(i.wrapping_mul(h2))).collect();
            assert_eq!(found, wanted);
        }
        let found: Vec<u32> = filter_hashes(HashName::Rand, 7, 3).collect();
        assert_eq!(found, [7, rand_r(7), rand_r(rand_r(7))]);
    }

    #[test]
    fn names_are_read_back() {
        assert!(HashName::ALL.iter().all(|name| name.to_string().parse() == Ok(*name)));
        assert_eq!("md5".parse::<HashName>(), Err(()));
    }
}
