//! The vector kernel, over the operations of any instruction set.

use super::{PIECE, scalar};
use crate::host::v4::table::Table4;
use crate::kernel::fetch::Fetch;
use fib::NextHopId;
use lpm_core::lanes::Lanes;
use lpm_core::prefetch;

pub(super) trait Listed: Lanes {
    /// Writes the indices of the lanes in `chosen`, counted from `first`, to the front of `to`, which holds a vector. Returns their number.
    fn list(self, chosen: Self::Mask, first: usize, to: &mut [u32]) -> usize;
}

#[repr(align(64))]
struct PieceWords([u32; PIECE]);

impl PieceWords {
    #[inline(always)]
    fn get<L: Lanes>(&self, lanes: L, at: usize) -> L::Vector {
        let words = &self.0[at..at + L::COUNT];
        // SAFETY: the slice has the words of a vector.
        unsafe { lanes.load_all(words.as_ptr()) }
    }

    #[inline(always)]
    fn set<L: Lanes>(&mut self, lanes: L, at: usize, words: L::Vector) {
        let to = &mut self.0[at..at + L::COUNT];
        // SAFETY: the slice has the words of a vector.
        unsafe { lanes.store_all(to.as_mut_ptr(), words) };
    }
}

/// Loads keys from `at` on, with a mask of the lanes that have a key; lanes without one load 0.
#[inline(always)]
fn load<L: Lanes>(lanes: L, keys: &[u32], at: usize) -> (L::Vector, L::Mask) {
    let live = lanes.first(keys.len() - at);
    // SAFETY: lanes without a key are not read.
    (unsafe { lanes.load(keys.as_ptr().wrapping_add(at), live) }, live)
}

/// The cells of keys; `ones` counts the set bits of each word.
#[inline(always)]
fn cells<L: Lanes, F: Fetch<L>>(
    lanes: L,
    ones: impl Fn(L::Vector) -> L::Vector,
    table: &Table4,
    keys: L::Vector,
) -> L::Vector {
    // SAFETY: `records` has an entry for each /17, and a key shifted by 15 is below 2^17.
    let (maps, before) = unsafe { F::wide_words(lanes, &table.records, lanes.shift_right(keys, 15)) };
    let behind = lanes.and_not(lanes.shift_right(keys, 10), lanes.splat(31));
    lanes.add(before, ones(lanes.shift_left_each(maps, behind)))
}

/// # Safety
/// The table must have these cells, and `BITS` must be the width of its codes.
#[inline(always)]
unsafe fn codes<L: Lanes, F: Fetch<L>, const BITS: u32>(
    lanes: L,
    table: &Table4,
    cells: L::Vector,
    keys: L::Vector,
) -> L::Vector {
    let four = lanes.and(lanes.shift_right(keys, 8), lanes.splat(3));
    let words = match BITS {
        8 => cells,
        16 => lanes.or(lanes.shift_left(cells, 1), lanes.shift_right(four, 1)),
        _ => lanes.or(lanes.shift_left(cells, 2), four),
    };
    // SAFETY: by the caller's contract.
    let words = unsafe { F::words(lanes, &table.cells, words) };
    let shift = match BITS {
        8 => lanes.shift_left(four, 3),
        16 => lanes.shift_left(lanes.and(four, lanes.splat(1)), 4),
        _ => return words,
    };
    lanes.and(lanes.shift_right_each(words, shift), lanes.splat(escape::<BITS>()))
}

const fn escape<const BITS: u32>() -> u32 {
    u32::MAX >> (32 - BITS)
}

#[inline(always)]
pub(super) fn lookup<L: Listed, F: Fetch<L>, const BITS: u32, const INDEXED: bool>(
    lanes: L,
    ones: impl Fn(L::Vector) -> L::Vector,
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    let mut scratch = PieceWords([0; PIECE]);
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(keys, out);
        for at in (0..keys.len()).step_by(L::COUNT) {
            scratch.set(lanes, at, cells::<L, F>(lanes, &ones, table, load(lanes, keys, at).0));
        }
        // Indices of the keys in blocks; they overwrite cells that were read already.
        let mut aside = 0;
        for at in (0..keys.len()).step_by(L::COUNT) {
            let (key, live) = load(lanes, keys, at);
            // SAFETY: the cells come from published records.
            let code = unsafe { codes::<L, F, BITS>(lanes, table, scratch.get(lanes, at), key) };
            let answer = if INDEXED {
                // SAFETY: the codes come from published cells, and `ids` has an entry for each code.
                unsafe { F::words(lanes, &table.ids, code) }
            } else {
                code
            };
            let to = out.as_mut_ptr().wrapping_add(at).cast();
            // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word with an id of 24 bits.
            unsafe { lanes.store(to, live, answer) };
            let escaped = lanes.equal(live, code, lanes.splat(escape::<BITS>()));
            aside += lanes.list(escaped, at, &mut scratch.0[aside..]);
        }
        if aside > 0 {
            scalar::blocks::<BITS>(table, keys, out, &scratch.0[..aside]);
        }
    }
}
