//! The last stage of the vector kernels: turns the words that the probes found in their lines into answers. Whether a probe finds its key
//! is unpredictable, so the only branch is on the rare link to an overflow line.

use super::lists::{List4, List6, PIECE, Probes4, Probes6, position_of};
use super::{Piece6, scalar};
use crate::bloom::v4::{Level4, Table4};
use crate::bloom::v6::{self, MASK_SHIFT, Table6};
use fib::NextHopId;
use fib::loads::Plain;
use std::hint::select_unpredictable;
use std::sync::atomic::Ordering;

/// The low half of a link, where a slot has its next-hop index, is 0, but the word is not.
#[inline]
const fn is_link(found: u32) -> bool {
    found.rotate_left(16).wrapping_sub(1) < 0xffff
}

/// IPv4: writes the answers of the probes that found their tag. With `NEXT`, appends the others to `next`.
#[inline]
pub(super) fn answer_v4<const NEXT: bool>(
    table: &Table4,
    level: &Level4,
    probes: &Probes4,
    out: &mut [NextHopId],
    next: &mut List4,
) {
    let (hop_ids, out) = (table.hop_ids.as_ptr(), out.as_mut_ptr());
    for at in 0..probes.len.min(PIECE) {
        let mut found = probes.found[at];
        if is_link(found) {
            found = overflow_v4(level, probes, at);
        }
        let pos = probes.pos[at];
        // SAFETY: an index has 16 bits, and there are 2^16 ids; a position is within the piece, and `out` has an answer for each key.
        unsafe {
            let next_hop = (*hop_ids.add((found & 0xffff) as usize)).load(Ordering::Relaxed);
            let answer = out.add(pos as usize);
            *answer = select_unpredictable(found != 0, NextHopId::from_answer(next_hop), *answer);
        }
        if NEXT {
            let len = next.len.min(PIECE);
            (next.pos[len], next.key[len]) = (pos, probes.key[at]);
            next.len = len + usize::from(found == 0);
        }
    }
}

#[cold]
#[inline(never)]
fn overflow_v4(level: &Level4, probes: &Probes4, at: usize) -> u32 {
    let Ok(index) = scalar::probe_v4(level, probes.line[at] as usize, probes.tag[at] >> 16, &mut Plain);
    index
}

/// IPv6: writes the answers of the probes that found their tag. Appends the others to `next` if they have a level left.
#[inline]
pub(super) fn answer_v6(table: &Table6, piece: &mut Piece6<'_>, probes: &Probes6, next: &mut List6) {
    let hop_ids = table.hop_ids.as_ptr();
    let (hi, out) = (piece.hi.as_ptr(), piece.out.as_mut_ptr());
    let mut len = next.len.min(PIECE);
    for at in 0..probes.len.min(PIECE) {
        let mut found = probes.found[at];
        if is_link(found) {
            found = overflow_v6(table, probes, at);
        }
        let item = probes.item[at];
        let pos = position_of(item);
        // SAFETY: an index has 16 bits, and there are 2^16 ids; a position is within the piece. `len` is below `PIECE`: the lists of a
        // round hold each key once.
        unsafe {
            let next_hop = (*hop_ids.add((found & 0xffff) as usize)).load(Ordering::Relaxed);
            let answer = out.add(pos);
            *answer = select_unpredictable(found != 0, NextHopId::from_answer(next_hop), *answer);
            *next.item.get_unchecked_mut(len) = item;
            *next.key.get_unchecked_mut(len) = v6::rest(*hi.add(pos));
        }
        len += usize::from((found == 0) & (item >> MASK_SHIFT != 0));
    }
    next.len = len;
}

/// The probes are for keys at all of their levels, each key's deepest first. Returns false, without answers, if a probe met a link.
#[inline]
pub(super) fn answer_all_v6(table: &Table6, piece: &mut Piece6<'_>, probes: &Probes6) -> bool {
    let len = probes.len.min(PIECE);
    if probes.found[..len].iter().fold(false, |any, found| any | is_link(*found)) {
        return false;
    }
    let (hop_ids, out) = (table.hop_ids.as_ptr(), piece.out.as_mut_ptr());
    // Deeper levels later: their answers replace the others.
    for at in (0..len).rev() {
        let found = probes.found[at];
        // SAFETY: an index has 16 bits, and there are 2^16 ids; a position is within the piece.
        unsafe {
            let next_hop = (*hop_ids.add((found & 0xffff) as usize)).load(Ordering::Relaxed);
            let answer = out.add(position_of(probes.item[at]));
            *answer = select_unpredictable(found != 0, NextHopId::from_answer(next_hop), *answer);
        }
    }
    true
}

#[cold]
#[inline(never)]
fn overflow_v6(table: &Table6, probes: &Probes6, at: usize) -> u32 {
    let Ok(index) = scalar::probe_v6(table, probes.line[at] as usize, probes.tag[at] - 1, &mut Plain);
    index
}
