//! The AVX-512F kernels of SAIL_L and SAIL_M, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.
//!
//! A lookup gathers one to three words. Four vectors of 16 keys are under way at a time: with a full table on a Sapphire Rapids core, one
//! vector was as quick and 8 or 16 were 10 to 15 % slower, and to prefetch what the gathers of BN24 will read cost another 5 to 15 %.

use super::{PIECE, words};
use crate::packed::Packed;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::{BLOCKS16, Table};
use fib::{Fibs, NextHopId};
use std::arch::x86_64::*;

/// Vectors of a piece.
const VECTORS: usize = PIECE / 16;

/// The lanes that `left` keys fill.
const fn lanes(left: usize) -> __mmask16 {
    if left >= 16 { u16::MAX } else { (1 << left) - 1 }
}

/// The keys of a piece, and the lanes of each vector that have one.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(keys: &[u32]) -> ([__m512i; VECTORS], [__mmask16; VECTORS]) {
    let live = std::array::from_fn(|at| lanes(keys.len().saturating_sub(at * 16)));
    let mut loaded = [_mm512_setzero_si512(); VECTORS];
    for (at, key) in loaded.iter_mut().enumerate() {
        // SAFETY: lanes without a key are not read.
        *key = unsafe { _mm512_maskz_loadu_epi32(live[at], keys.as_ptr().wrapping_add(at * 16).cast()) };
    }
    (loaded, live)
}

/// Writes the answers to a piece.
#[target_feature(enable = "avx512f")]
#[inline]
fn store(answers: [__m512i; VECTORS], live: [__mmask16; VECTORS], out: &mut [NextHopId]) {
    for at in 0..VECTORS {
        let to = out.as_mut_ptr().wrapping_add(at * 16).cast();
        // SAFETY: lanes without a key are not written; there are as many answers as keys, each a word with an id of 24 bits.
        unsafe { _mm512_mask_storeu_epi32(to, live[at], answers[at]) };
    }
}

/// Where the entries `key >> SHIFT & 0xff` of chunks begin: `(id - 1) * 2^8` and on.
#[target_feature(enable = "avx512f")]
#[inline]
fn entries<const SHIFT: u32>(chunks: __m512i, keys: __m512i) -> __m512i {
    let first = _mm512_slli_epi32::<8>(_mm512_sub_epi32(chunks, _mm512_set1_epi32(1)));
    _mm512_or_si512(first, _mm512_and_si512(_mm512_srli_epi32::<SHIFT>(keys), _mm512_set1_epi32(0xff)))
}

/// The entries at `at` in the lanes of `mask`; those of `other` in the others. `LOG` is the number of index bits that tell the entries
/// of a 32-bit word apart.
///
/// # Safety
/// In the lanes of `mask`, `at` is below the length of the array.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather<const BITS: u32, const LOG: u32>(
    array: &Packed<BITS>,
    at: __m512i,
    mask: __mmask16,
    other: __m512i,
) -> __m512i {
    const { assert!(BITS << LOG == 32, "entries of a 32-bit word") };
    let words = array.words().as_ptr().cast();
    // SAFETY: as the caller says. A half of a 64-bit word is loaded whole, and an entry lies within one half.
    let word = unsafe { _mm512_mask_i32gather_epi32::<4>(other, mask, _mm512_srli_epi32::<LOG>(at), words) };
    if LOG == 0 {
        return word;
    }
    let within = _mm512_and_si512(at, _mm512_set1_epi32((1 << LOG) - 1));
    let shift = _mm512_mullo_epi32(within, _mm512_set1_epi32(BITS.cast_signed()));
    let entry = _mm512_and_si512(_mm512_srlv_epi32(word, shift), _mm512_set1_epi32((1 << (BITS % 32)) - 1));
    _mm512_mask_mov_epi32(other, mask, entry)
}

/// The wide layout.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn wide(table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    let (flag, id) =
        (_mm512_set1_epi32(Wide::CHUNK.cast_signed()), _mm512_set1_epi32(Wide::ID.cast_signed()));
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let (keys, live) = load(keys);
        let mut entry = [_mm512_setzero_si512(); VECTORS];
        let mut split = [0; VECTORS];
        for at in 0..VECTORS {
            let node = _mm512_srli_epi32::<16>(keys[at]);
            // SAFETY: BCN has an entry for each 16 bits.
            entry[at] = unsafe { gather::<32, 0>(&table.bcn, node, live[at], entry[at]) };
            split[at] = _mm512_test_epi32_mask(entry[at], flag);
        }
        for at in 0..VECTORS {
            let node = entries::<8>(_mm512_and_si512(entry[at], id), keys[at]);
            // SAFETY: an entry with the flag leads to a chunk of BN24.
            entry[at] = unsafe { gather::<32, 0>(&table.bn24, node, split[at], entry[at]) };
            split[at] &= _mm512_test_epi32_mask(entry[at], flag);
        }
        for at in 0..VECTORS {
            if split[at] != 0 {
                let node = entries::<0>(_mm512_and_si512(entry[at], id), keys[at]);
                // SAFETY: an entry with the flag leads to a chunk of N32.
                entry[at] = unsafe { gather::<32, 0>(&table.n32, node, split[at], entry[at]) };
            }
        }
        store(entry, live, out);
    }
}

/// The paper's layout.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn paper(table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    let b16 = _mm512_set1_epi32(Paper::B16.cast_signed());
    let zero = _mm512_setzero_si512();
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let (keys, live) = load(keys);
        let mut code = [zero; VECTORS];
        let mut split = [0; VECTORS];
        for at in 0..VECTORS {
            let node = _mm512_srli_epi32::<16>(keys[at]);
            // SAFETY: BCN has an entry for each 16 bits.
            code[at] = unsafe { gather::<16, 1>(&table.bcn, node, live[at], zero) };
            split[at] = _mm512_mask_testn_epi32_mask(live[at], code[at], b16);
            code[at] = _mm512_andnot_si512(b16, code[at]);
        }
        for at in 0..VECTORS {
            let node = entries::<8>(code[at], keys[at]);
            // SAFETY: an entry without B16 leads to a chunk of BN24.
            code[at] = unsafe { gather::<8, 2>(&table.bn24, node, split[at], code[at]) };
            let deep = _mm512_mask_testn_epi32_mask(split[at], code[at], code[at]);
            if deep != 0 {
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
            code[at] = unsafe { _mm512_mask_i32gather_epi32::<4>(zero, live[at], code[at], ids) };
        }
        store(code, live, out);
    }
}

/// SAIL_M. Each key has a FIB that is there.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn many(table: &Table, fibs: Fibs<'_>, keys: &[u32], out: &mut [NextHopId]) {
    let zero = _mm512_setzero_si512();
    let fibs_all = _mm512_set1_epi32(table.fibs.cast_signed());
    // The first vectors of levels 24 and 32.
    let [vectors24, vectors32] =
        [BLOCKS16, table.block32].map(|block| _mm512_set1_epi32((block << 8).cast_signed()));
    for (piece, (keys, out)) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)).enumerate() {
        let fibs = match fibs.part(piece * PIECE..piece * PIECE + keys.len()) {
            Fibs::One(fib) => [_mm512_set1_epi32(fib.0.cast_signed()); VECTORS],
            Fibs::Each(fibs) => load(words(fibs)).0,
        };
        let (keys, live) = load(keys);
        let mut chunk = [zero; VECTORS];
        let mut vector = [zero; VECTORS];
        for at in 0..VECTORS {
            vector[at] = _mm512_srli_epi32::<16>(keys[at]);
            // SAFETY: BC16 has an entry for each 16 bits.
            chunk[at] = unsafe { gather::<32, 0>(&table.bc16, vector[at], live[at], zero) };
        }
        for at in 0..VECTORS {
            let split = _mm512_test_epi32_mask(chunk[at], chunk[at]);
            let node = entries::<8>(chunk[at], keys[at]);
            // SAFETY: an entry of BC16 that is not 0 leads to a chunk of B24.
            let leaf = unsafe { gather::<1, 5>(&table.b24, node, split, zero) };
            vector[at] = _mm512_mask_add_epi32(vector[at], split, node, vectors24);
            let deep = _mm512_mask_testn_epi32_mask(split, leaf, leaf);
            if deep != 0 {
                // SAFETY: C24 has an entry for each of B24.
                let chunk = unsafe { gather::<32, 0>(&table.c24, node, deep, zero) };
                let node = entries::<0>(chunk, keys[at]);
                vector[at] = _mm512_mask_add_epi32(vector[at], deep, node, vectors32);
            }
        }
        for at in 0..VECTORS {
            let block = _mm512_srli_epi32::<8>(vector[at]);
            let row = _mm512_add_epi32(_mm512_mullo_epi32(block, fibs_all), fibs[at]);
            let within = _mm512_and_si512(vector[at], _mm512_set1_epi32(0xff));
            let place = _mm512_or_si512(_mm512_slli_epi32::<8>(row), within);
            // SAFETY: a block has a row for each FIB, and 0 in B24 leads to a block of level 32 through C24.
            vector[at] = unsafe { gather::<32, 0>(&table.hops, place, live[at], zero) };
        }
        store(vector, live, out);
    }
}

#[target_feature(enable = "avx512f")]
pub(super) fn or_default(default: NextHopId, out: &mut [NextHopId]) {
    super::scalar::or_default(default, out);
}
