//! The vector kernels of SAIL_L and SAIL_M, over the operations of any instruction set. A lookup gathers one to three words. All vectors
//! of a piece are in flight together. Prefetching the words for the gathers of BN24 made lookups slower.

use super::{PIECE, words};
use crate::packed::Packed;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::{BLOCKS16, OverlayTable};
use fib::{Fibs, NextHopId};
use lpm_core::lanes::Lanes;
use lpm_core::prefetch;

macro_rules! kernels {
    ($lanes:ident, $features:literal) => {
        const VECTORS: usize = PIECE / <$lanes as Lanes>::COUNT;

        #[target_feature(enable = $features)]
        pub(super) fn wide(table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
            sail::wide::<_, VECTORS>($lanes::new(), table, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn paper(table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
            sail::paper::<_, VECTORS>($lanes::new(), table, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn many(table: &OverlayTable, fibs: Fibs<'_>, keys: &[u32], out: &mut [NextHopId]) {
            sail::many::<_, VECTORS>($lanes::new(), table, fibs, keys, out);
        }

        #[target_feature(enable = $features)]
        pub(super) fn or_default(default: NextHopId, out: &mut [NextHopId]) {
            scalar::or_default(default, out);
        }
    };
}

/// Loads the keys of a piece, with a mask of each vector's lanes that have one; other lanes are 0.
#[inline(always)]
fn load<L: Lanes, const N: usize>(lanes: L, keys: &[u32]) -> ([L::Vector; N], [L::Mask; N]) {
    const { assert!(N * L::COUNT == PIECE, "the vectors of a piece") };
    let (mut loaded, mut live) = ([lanes.splat(0); N], [lanes.first(0); N]);
    for at in 0..N {
        live[at] = lanes.first(keys.len().saturating_sub(at * L::COUNT));
        // SAFETY: lanes without a key are not read.
        loaded[at] = unsafe { lanes.load(keys.as_ptr().wrapping_add(at * L::COUNT), live[at]) };
    }
    (loaded, live)
}

#[inline(always)]
fn store<L: Lanes, const N: usize>(
    lanes: L,
    answers: [L::Vector; N],
    live: [L::Mask; N],
    out: &mut [NextHopId],
) {
    for at in 0..N {
        let to = out.as_mut_ptr().wrapping_add(at * L::COUNT).cast();
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word with an id of 24 bits.
        unsafe { lanes.store(to, live[at], answers[at]) };
    }
}

/// The indices of the entries `key >> shift & 0xff` of chunks: `(chunk - 1) * 2^8` and the next 255.
#[inline(always)]
fn entries<L: Lanes>(lanes: L, chunks: L::Vector, keys: L::Vector, shift: i32) -> L::Vector {
    let first = lanes.shift_left(lanes.sub(chunks, lanes.splat(1)), 8);
    lanes.or(first, lanes.and(lanes.shift_right(keys, shift), lanes.splat(0xff)))
}

/// Loads the entries at `at` in the lanes of `mask`; other lanes keep `other`.
///
/// # Safety
/// In the lanes of `mask`, `at` must be below the length of the array.
#[inline(always)]
unsafe fn gather<L: Lanes, const BITS: u32>(
    lanes: L,
    array: &Packed<BITS>,
    at: L::Vector,
    mask: L::Mask,
    other: L::Vector,
) -> L::Vector {
    // The number of index bits that select an entry within a 32-bit word.
    let log = const { 5 - BITS.ilog2().cast_signed() };
    let words = array.words().as_ptr().cast();
    // SAFETY: by the caller's contract. A half of a 64-bit word is loaded whole, and an entry lies within one half.
    let word = unsafe { lanes.gather::<4>(words, lanes.shift_right(at, log), mask, other) };
    if BITS == 32 {
        return word;
    }
    let within = lanes.and(at, lanes.splat((1 << log) - 1));
    let shift = lanes.mul(within, lanes.splat(BITS));
    let entry = lanes.and(lanes.shift_right_each(word, shift), lanes.splat((1 << (BITS % 32)) - 1));
    lanes.select(mask, entry, other)
}

#[inline(always)]
pub(super) fn wide<L: Lanes, const N: usize>(lanes: L, table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    const { assert!(Wide::CHUNK == 1 << 31, "the flag is the sign") };
    let id = lanes.splat(Wide::ID);
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        let (keys, live) = load::<L, N>(lanes, keys);
        let mut entry = [lanes.splat(0); N];
        let mut split = live;
        for at in 0..N {
            let node = lanes.shift_right(keys[at], 16);
            // SAFETY: BCN has an entry for each value of 16 bits.
            entry[at] = unsafe { gather(lanes, &table.bcn, node, live[at], entry[at]) };
            split[at] = lanes.signs(entry[at]);
        }
        for at in 0..N {
            let node = entries(lanes, lanes.and(entry[at], id), keys[at], 8);
            // SAFETY: an entry with the flag leads to a chunk of BN24.
            entry[at] = unsafe { gather(lanes, &table.bn24, node, split[at], entry[at]) };
            split[at] = lanes.both(split[at], lanes.signs(entry[at]));
        }
        for at in 0..N {
            if lanes.any(split[at]) {
                let node = entries(lanes, lanes.and(entry[at], id), keys[at], 0);
                // SAFETY: an entry with the flag leads to a chunk of N32.
                entry[at] = unsafe { gather(lanes, &table.n32, node, split[at], entry[at]) };
            }
        }
        store(lanes, entry, live, out);
    }
}

#[inline(always)]
pub(super) fn paper<L: Lanes, const N: usize>(lanes: L, table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    let (b16, zero) = (lanes.splat(Paper::B16), lanes.splat(0));
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        let (keys, live) = load::<L, N>(lanes, keys);
        let mut code = [zero; N];
        let mut split = live;
        for at in 0..N {
            let node = lanes.shift_right(keys[at], 16);
            // SAFETY: BCN has an entry for each value of 16 bits.
            code[at] = unsafe { gather(lanes, &table.bcn, node, live[at], zero) };
            split[at] = lanes.zeros(live[at], lanes.and(code[at], b16));
            code[at] = lanes.and_not(b16, code[at]);
        }
        for at in 0..N {
            let node = entries(lanes, code[at], keys[at], 8);
            // SAFETY: an entry without B16 leads to a chunk of BN24.
            code[at] = unsafe { gather(lanes, &table.bn24, node, split[at], code[at]) };
            let deep = lanes.zeros(split[at], code[at]);
            if lanes.any(deep) {
                // SAFETY: C24 has an entry for each entry of BN24.
                let chunk = unsafe { gather(lanes, &table.c24, node, deep, zero) };
                let node = entries(lanes, chunk, keys[at], 0);
                // SAFETY: an entry of BN24 that is 0 leads to a chunk of N32 through C24.
                code[at] = unsafe { gather(lanes, &table.n32, node, deep, code[at]) };
            }
        }
        for at in 0..N {
            // SAFETY: a code has 8 bits, and there are 2^8 ids.
            code[at] = unsafe { lanes.gather::<4>(table.ids.as_ptr().cast(), code[at], live[at], zero) };
        }
        store(lanes, code, live, out);
    }
}

/// SAIL_M. Each key's FIB must exist.
#[inline(always)]
pub(super) fn many<L: Lanes, const N: usize>(
    lanes: L,
    table: &OverlayTable,
    fibs: Fibs<'_>,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let (zero, fibs_all) = (lanes.splat(0), lanes.splat(table.fibs));
    // The first vectors of levels 24 and 32.
    let (vectors24, vectors32) = (lanes.splat(BLOCKS16 << 8), lanes.splat(table.block32 << 8));
    for (piece, (keys, out)) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)).enumerate() {
        let fibs = match fibs.part(piece * PIECE..piece * PIECE + keys.len()) {
            Fibs::One(fib) => [lanes.splat(fib.0); N],
            Fibs::Each(fibs) => load::<L, N>(lanes, words(fibs)).0,
        };
        prefetch::piece(keys, out);
        let (keys, live) = load::<L, N>(lanes, keys);
        let mut chunk = [zero; N];
        let mut vector = [zero; N];
        for at in 0..N {
            vector[at] = lanes.shift_right(keys[at], 16);
            // SAFETY: BC16 has an entry for each value of 16 bits.
            chunk[at] = unsafe { gather(lanes, &table.bc16, vector[at], live[at], zero) };
        }
        for at in 0..N {
            let split = lanes.non_zeros(live[at], chunk[at]);
            let node = entries(lanes, chunk[at], keys[at], 8);
            // SAFETY: an entry of BC16 that is not 0 leads to a chunk of B24.
            let leaf = unsafe { gather(lanes, &table.b24, node, split, zero) };
            vector[at] = lanes.select(split, lanes.add(node, vectors24), vector[at]);
            let deep = lanes.zeros(split, leaf);
            if lanes.any(deep) {
                // SAFETY: C24 has an entry for each entry of B24.
                let chunk = unsafe { gather(lanes, &table.c24, node, deep, zero) };
                let node = entries(lanes, chunk, keys[at], 0);
                vector[at] = lanes.select(deep, lanes.add(node, vectors32), vector[at]);
            }
        }
        for at in 0..N {
            let block = lanes.shift_right(vector[at], 8);
            let row = lanes.add(lanes.mul(block, fibs_all), fibs[at]);
            let place = lanes.or(lanes.shift_left(row, 8), lanes.and(vector[at], lanes.splat(0xff)));
            // SAFETY: a block has a row for each FIB, and 0 in B24 leads to a block of level 32 through C24.
            vector[at] = unsafe { gather(lanes, &table.hops, place, live[at], zero) };
        }
        store(lanes, vector, live, out);
    }
}
