//! The vector kernels of SAIL_L and SAIL_M, over the operations of any instruction set.
//!
//! A lookup gathers one to three words. All vectors of a piece are in flight together. Prefetching the words for the gathers of BN24 made
//! lookups slower.

use super::simd::Simd;
use super::{PIECE, words};
use crate::packed::Packed;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::{BLOCKS16, OverlayTable};
use fib::{Fibs, NextHopId};
use lpm_core::prefetch;

/// Loads the keys of a piece, with a mask of each vector's lanes that have one; other lanes are 0.
#[inline(always)]
fn load<S: Simd, const N: usize>(simd: S, keys: &[u32]) -> ([S::Vector; N], [S::Mask; N]) {
    const { assert!(N * S::LANES == PIECE, "the vectors of a piece") };
    let (mut loaded, mut live) = ([simd.splat(0); N], [simd.lanes(0); N]);
    for at in 0..N {
        live[at] = simd.lanes(keys.len().saturating_sub(at * S::LANES));
        // SAFETY: lanes without a key are not read.
        loaded[at] = unsafe { simd.load(keys.as_ptr().wrapping_add(at * S::LANES), live[at]) };
    }
    (loaded, live)
}

#[inline(always)]
fn store<S: Simd, const N: usize>(
    simd: S,
    answers: [S::Vector; N],
    live: [S::Mask; N],
    out: &mut [NextHopId],
) {
    for at in 0..N {
        let to = out.as_mut_ptr().wrapping_add(at * S::LANES).cast();
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word with an id of 24 bits.
        unsafe { simd.store(to, live[at], answers[at]) };
    }
}

/// The indices of the entries `key >> shift & 0xff` of chunks: `(chunk - 1) * 2^8` and the next 255.
#[inline(always)]
fn entries<S: Simd>(simd: S, chunks: S::Vector, keys: S::Vector, shift: i32) -> S::Vector {
    let first = simd.shift_left(simd.sub(chunks, simd.splat(1)), 8);
    simd.or(first, simd.and(simd.shift_right(keys, shift), simd.splat(0xff)))
}

/// Loads the entries at `at` in the lanes of `mask`; other lanes keep `other`.
///
/// # Safety
/// In the lanes of `mask`, `at` must be below the length of the array.
#[inline(always)]
unsafe fn gather<S: Simd, const BITS: u32>(
    simd: S,
    array: &Packed<BITS>,
    at: S::Vector,
    mask: S::Mask,
    other: S::Vector,
) -> S::Vector {
    // The number of index bits that select an entry within a 32-bit word.
    let log = const { 5 - BITS.ilog2().cast_signed() };
    let words = array.words().as_ptr().cast();
    // SAFETY: by the caller's contract. A half of a 64-bit word is loaded whole, and an entry lies within one half.
    let word = unsafe { simd.gather(words, simd.shift_right(at, log), mask, other) };
    if BITS == 32 {
        return word;
    }
    let within = simd.and(at, simd.splat((1 << log) - 1));
    let shift = simd.mul(within, simd.splat(BITS));
    let entry = simd.and(simd.shift_right_each(word, shift), simd.splat((1 << (BITS % 32)) - 1));
    simd.select(mask, entry, other)
}

#[inline(always)]
pub(super) fn wide<S: Simd, const N: usize>(simd: S, table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    const { assert!(Wide::CHUNK == 1 << 31, "the flag is the sign") };
    let id = simd.splat(Wide::ID);
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        let (keys, live) = load::<S, N>(simd, keys);
        let mut entry = [simd.splat(0); N];
        let mut split = live;
        for at in 0..N {
            let node = simd.shift_right(keys[at], 16);
            // SAFETY: BCN has an entry for each value of 16 bits.
            entry[at] = unsafe { gather(simd, &table.bcn, node, live[at], entry[at]) };
            split[at] = simd.signs(entry[at]);
        }
        for at in 0..N {
            let node = entries(simd, simd.and(entry[at], id), keys[at], 8);
            // SAFETY: an entry with the flag leads to a chunk of BN24.
            entry[at] = unsafe { gather(simd, &table.bn24, node, split[at], entry[at]) };
            split[at] = simd.both(split[at], simd.signs(entry[at]));
        }
        for at in 0..N {
            if simd.any(split[at]) {
                let node = entries(simd, simd.and(entry[at], id), keys[at], 0);
                // SAFETY: an entry with the flag leads to a chunk of N32.
                entry[at] = unsafe { gather(simd, &table.n32, node, split[at], entry[at]) };
            }
        }
        store(simd, entry, live, out);
    }
}

#[inline(always)]
pub(super) fn paper<S: Simd, const N: usize>(simd: S, table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    let (b16, zero) = (simd.splat(Paper::B16), simd.splat(0));
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        let (keys, live) = load::<S, N>(simd, keys);
        let mut code = [zero; N];
        let mut split = live;
        for at in 0..N {
            let node = simd.shift_right(keys[at], 16);
            // SAFETY: BCN has an entry for each value of 16 bits.
            code[at] = unsafe { gather(simd, &table.bcn, node, live[at], zero) };
            split[at] = simd.zeros(live[at], simd.and(code[at], b16));
            code[at] = simd.and_not(b16, code[at]);
        }
        for at in 0..N {
            let node = entries(simd, code[at], keys[at], 8);
            // SAFETY: an entry without B16 leads to a chunk of BN24.
            code[at] = unsafe { gather(simd, &table.bn24, node, split[at], code[at]) };
            let deep = simd.zeros(split[at], code[at]);
            if simd.any(deep) {
                // SAFETY: C24 has an entry for each entry of BN24.
                let chunk = unsafe { gather(simd, &table.c24, node, deep, zero) };
                let node = entries(simd, chunk, keys[at], 0);
                // SAFETY: an entry of BN24 that is 0 leads to a chunk of N32 through C24.
                code[at] = unsafe { gather(simd, &table.n32, node, deep, code[at]) };
            }
        }
        for at in 0..N {
            // SAFETY: a code has 8 bits, and there are 2^8 ids.
            code[at] = unsafe { simd.gather(table.ids.as_ptr().cast(), code[at], live[at], zero) };
        }
        store(simd, code, live, out);
    }
}

/// SAIL_M. Each key's FIB must exist.
#[inline(always)]
pub(super) fn many<S: Simd, const N: usize>(
    simd: S,
    table: &OverlayTable,
    fibs: Fibs<'_>,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let (zero, fibs_all) = (simd.splat(0), simd.splat(table.fibs));
    // The first vectors of levels 24 and 32.
    let (vectors24, vectors32) = (simd.splat(BLOCKS16 << 8), simd.splat(table.block32 << 8));
    for (piece, (keys, out)) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)).enumerate() {
        let fibs = match fibs.part(piece * PIECE..piece * PIECE + keys.len()) {
            Fibs::One(fib) => [simd.splat(fib.0); N],
            Fibs::Each(fibs) => load::<S, N>(simd, words(fibs)).0,
        };
        prefetch::piece(keys, out);
        let (keys, live) = load::<S, N>(simd, keys);
        let mut chunk = [zero; N];
        let mut vector = [zero; N];
        for at in 0..N {
            vector[at] = simd.shift_right(keys[at], 16);
            // SAFETY: BC16 has an entry for each value of 16 bits.
            chunk[at] = unsafe { gather(simd, &table.bc16, vector[at], live[at], zero) };
        }
        for at in 0..N {
            let split = simd.non_zeros(live[at], chunk[at]);
            let node = entries(simd, chunk[at], keys[at], 8);
            // SAFETY: an entry of BC16 that is not 0 leads to a chunk of B24.
            let leaf = unsafe { gather(simd, &table.b24, node, split, zero) };
            vector[at] = simd.select(split, simd.add(node, vectors24), vector[at]);
            let deep = simd.zeros(split, leaf);
            if simd.any(deep) {
                // SAFETY: C24 has an entry for each entry of B24.
                let chunk = unsafe { gather(simd, &table.c24, node, deep, zero) };
                let node = entries(simd, chunk, keys[at], 0);
                vector[at] = simd.select(deep, simd.add(node, vectors32), vector[at]);
            }
        }
        for at in 0..N {
            let block = simd.shift_right(vector[at], 8);
            let row = simd.add(simd.mul(block, fibs_all), fibs[at]);
            let place = simd.or(simd.shift_left(row, 8), simd.and(vector[at], simd.splat(0xff)));
            // SAFETY: a block has a row for each FIB, and 0 in B24 leads to a block of level 32 through C24.
            vector[at] = unsafe { gather(simd, &table.hops, place, live[at], zero) };
        }
        store(simd, vector, live, out);
    }
}
