//! The AVX2 kernels of SAIL_L and SAIL_M, for CPUs without AVX-512: as `avx512f`, with eight lanes and masks that are vectors.

use super::{PIECE, words};
use crate::packed::Packed;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::{BLOCKS16, Table};
use fib::{Fibs, NextHopId};
use std::arch::x86_64::*;

/// Vectors of a piece.
const VECTORS: usize = PIECE / 8;

/// The lanes that `left` keys fill, all ones.
#[target_feature(enable = "avx2")]
#[inline]
fn lanes(left: usize) -> __m256i {
    let left = i32::try_from(left.min(8)).unwrap_or(8);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// The keys of a piece, and the lanes of each vector that have one.
#[target_feature(enable = "avx2")]
#[inline]
fn load(keys: &[u32]) -> ([__m256i; VECTORS], [__m256i; VECTORS]) {
    let (mut loaded, mut live) = ([_mm256_setzero_si256(); VECTORS], [_mm256_setzero_si256(); VECTORS]);
    for at in 0..VECTORS {
        live[at] = lanes(keys.len().saturating_sub(at * 8));
        // SAFETY: lanes without a key are not read.
        loaded[at] = unsafe { _mm256_maskload_epi32(keys.as_ptr().wrapping_add(at * 8).cast(), live[at]) };
    }
    (loaded, live)
}

/// Writes the answers to a piece.
#[target_feature(enable = "avx2")]
#[inline]
fn store(answers: [__m256i; VECTORS], live: [__m256i; VECTORS], out: &mut [NextHopId]) {
    for at in 0..VECTORS {
        let to = out.as_mut_ptr().wrapping_add(at * 8).cast();
        // SAFETY: lanes without a key are not written; there are as many answers as keys, each a word with an id of 24 bits.
        unsafe { _mm256_maskstore_epi32(to, live[at], answers[at]) };
    }
}

/// Where the entries `key >> SHIFT & 0xff` of chunks begin: `(id - 1) * 2^8` and on.
#[target_feature(enable = "avx2")]
#[inline]
fn entries<const SHIFT: i32>(chunks: __m256i, keys: __m256i) -> __m256i {
    let first = _mm256_slli_epi32::<8>(_mm256_sub_epi32(chunks, _mm256_set1_epi32(1)));
    _mm256_or_si256(first, _mm256_and_si256(_mm256_srli_epi32::<SHIFT>(keys), _mm256_set1_epi32(0xff)))
}

/// The lanes of `mask` where `word` is zero, all ones.
#[target_feature(enable = "avx2")]
#[inline]
fn zeros(mask: __m256i, word: __m256i) -> __m256i {
    _mm256_and_si256(mask, _mm256_cmpeq_epi32(word, _mm256_setzero_si256()))
}

/// Whether a lane of `mask` is set.
#[target_feature(enable = "avx2")]
#[inline]
fn any(mask: __m256i) -> bool {
    _mm256_movemask_epi8(mask) != 0
}

/// The entries at `at` in the lanes of `mask`; those of `other` in the others. `LOG` is the number of index bits that tell the entries
/// of a 32-bit word apart.
///
/// # Safety
/// In the lanes of `mask`, `at` is below the length of the array.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn gather<const BITS: u32, const LOG: i32>(
    array: &Packed<BITS>,
    at: __m256i,
    mask: __m256i,
    other: __m256i,
) -> __m256i {
    const { assert!(BITS << LOG == 32, "entries of a 32-bit word") };
    let words = array.words().as_ptr().cast();
    // SAFETY: as the caller says. A half of a 64-bit word is loaded whole, and an entry lies within one half.
    let word = unsafe { _mm256_mask_i32gather_epi32::<4>(other, words, _mm256_srli_epi32::<LOG>(at), mask) };
    if LOG == 0 {
        return word;
    }
    let within = _mm256_and_si256(at, _mm256_set1_epi32((1 << LOG) - 1));
    let shift = _mm256_mullo_epi32(within, _mm256_set1_epi32(BITS.cast_signed()));
    let entry = _mm256_and_si256(_mm256_srlv_epi32(word, shift), _mm256_set1_epi32((1 << (BITS % 32)) - 1));
    _mm256_blendv_epi8(other, entry, mask)
}

/// The wide layout.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn wide(table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    let id = _mm256_set1_epi32(Wide::ID.cast_signed());
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let (keys, live) = load(keys);
        let mut entry = [_mm256_setzero_si256(); VECTORS];
        let mut split = [_mm256_setzero_si256(); VECTORS];
        for at in 0..VECTORS {
            let node = _mm256_srli_epi32::<16>(keys[at]);
            // SAFETY: BCN has an entry for each 16 bits.
            entry[at] = unsafe { gather::<32, 0>(&table.bcn, node, live[at], entry[at]) };
            // The flag is the sign.
            split[at] = _mm256_srai_epi32::<31>(entry[at]);
        }
        for at in 0..VECTORS {
            let node = entries::<8>(_mm256_and_si256(entry[at], id), keys[at]);
            // SAFETY: an entry with the flag leads to a chunk of BN24.
            entry[at] = unsafe { gather::<32, 0>(&table.bn24, node, split[at], entry[at]) };
            split[at] = _mm256_and_si256(split[at], _mm256_srai_epi32::<31>(entry[at]));
        }
        for at in 0..VECTORS {
            if any(split[at]) {
                let node = entries::<0>(_mm256_and_si256(entry[at], id), keys[at]);
                // SAFETY: an entry with the flag leads to a chunk of N32.
                entry[at] = unsafe { gather::<32, 0>(&table.n32, node, split[at], entry[at]) };
            }
        }
        store(entry, live, out);
    }
}

/// The paper's layout.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn paper(table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    let b16 = _mm256_set1_epi32(Paper::B16.cast_signed());
    let zero = _mm256_setzero_si256();
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let (keys, live) = load(keys);
        let mut code = [zero; VECTORS];
        let mut split = [zero; VECTORS];
        for at in 0..VECTORS {
            let node = _mm256_srli_epi32::<16>(keys[at]);
            // SAFETY: BCN has an entry for each 16 bits.
            code[at] = unsafe { gather::<16, 1>(&table.bcn, node, live[at], zero) };
            split[at] = zeros(live[at], _mm256_and_si256(code[at], b16));
            code[at] = _mm256_andnot_si256(b16, code[at]);
        }
        for at in 0..VECTORS {
            let node = entries::<8>(code[at], keys[at]);
            // SAFETY: an entry without B16 leads to a chunk of BN24.
            code[at] = unsafe { gather::<8, 2>(&table.bn24, node, split[at], code[at]) };
            let deep = zeros(split[at], code[at]);
            if any(deep) {
                // SAFETY: C24 has an entry for each of BN24.
                let chunk = unsafe { gather::<16, 1>(&table.c24, node, deep, zero) };
                let node = entries::<0>(chunk, keys[at]);
                // SAFETY: an entry of BN24 that is 0 leads to a chunk of N32 through C24.
                code[at] = unsafe { gather::<8, 2>(&table.n32, node, deep, code[at]) };
            }
        }
        for at in 0..VECTORS {
            let ids = table.ids.as_ptr().cast();
            // SAFETY: a code has 8 bits, and there are 2^8 ids.
            code[at] = unsafe { _mm256_mask_i32gather_epi32::<4>(zero, ids, code[at], live[at]) };
        }
        store(code, live, out);
    }
}

/// SAIL_M. Each key has a FIB that is there.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn many(table: &Table, fibs: Fibs<'_>, keys: &[u32], out: &mut [NextHopId]) {
    let zero = _mm256_setzero_si256();
    let fibs_all = _mm256_set1_epi32(table.fibs.cast_signed());
    // The first vectors of levels 24 and 32.
    let [vectors24, vectors32] =
        [BLOCKS16, table.block32].map(|block| _mm256_set1_epi32((block << 8).cast_signed()));
    for (piece, (keys, out)) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)).enumerate() {
        let fibs = match fibs.part(piece * PIECE..piece * PIECE + keys.len()) {
            Fibs::One(fib) => [_mm256_set1_epi32(fib.0.cast_signed()); VECTORS],
            Fibs::Each(fibs) => load(words(fibs)).0,
        };
        let (keys, live) = load(keys);
        let mut chunk = [zero; VECTORS];
        let mut vector = [zero; VECTORS];
        for at in 0..VECTORS {
            vector[at] = _mm256_srli_epi32::<16>(keys[at]);
            // SAFETY: BC16 has an entry for each 16 bits.
            chunk[at] = unsafe { gather::<32, 0>(&table.bc16, vector[at], live[at], zero) };
        }
        for at in 0..VECTORS {
            let split = _mm256_andnot_si256(zeros(live[at], chunk[at]), live[at]);
            let node = entries::<8>(chunk[at], keys[at]);
            // SAFETY: an entry of BC16 that is not 0 leads to a chunk of B24.
            let leaf = unsafe { gather::<1, 5>(&table.b24, node, split, zero) };
            vector[at] = _mm256_blendv_epi8(vector[at], _mm256_add_epi32(node, vectors24), split);
            let deep = zeros(split, leaf);
            if any(deep) {
                // SAFETY: C24 has an entry for each of B24.
                let chunk = unsafe { gather::<32, 0>(&table.c24, node, deep, zero) };
                let node = entries::<0>(chunk, keys[at]);
                vector[at] = _mm256_blendv_epi8(vector[at], _mm256_add_epi32(node, vectors32), deep);
            }
        }
        for at in 0..VECTORS {
            let block = _mm256_srli_epi32::<8>(vector[at]);
            let row = _mm256_add_epi32(_mm256_mullo_epi32(block, fibs_all), fibs[at]);
            let within = _mm256_and_si256(vector[at], _mm256_set1_epi32(0xff));
            let place = _mm256_or_si256(_mm256_slli_epi32::<8>(row), within);
            // SAFETY: a block has a row for each FIB, and 0 in B24 leads to a block of level 32 through C24.
            vector[at] = unsafe { gather::<32, 0>(&table.hops, place, live[at], zero) };
        }
        store(vector, live, out);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn or_default(default: NextHopId, out: &mut [NextHopId]) {
    super::scalar::or_default(default, out);
}
