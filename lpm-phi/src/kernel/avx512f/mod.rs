//! The AVX-512F kernels for Knights Landing: F and CD alone, no BW, DQ or VL instruction.
//!
//! IPv4 loads one word of the direct array for each key; for keys with longer prefixes below, one table line, preceded by one gathered
//! filter word unless their block is dense in G1. IPv6 loads two words of the direct part; for each level searched, one gathered filter
//! word, and one line if the key passes. IPv4 is bound by L3 bandwidth, IPv6 by instructions. Direct entries are plain loads, of which
//! more can be in flight than of gathers; nothing branches on the result; and found slots are processed in a second loop, so that probes
//! waiting for their lines do not fill the out-of-order window.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lane masks, positions and halves of words are truncated on purpose"
)]

mod hash;
mod v4;
mod v6;
pub(super) mod variants;

use super::Piece6;
use super::lists::{BloomLists, LIST};
use crate::bloom::hash::Hash32;
use crate::bloom::v4::Table4;
use crate::bloom::v6::Table6;
use fib::NextHopId;
use std::arch::x86_64::*;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;

/// The stages of two pieces alternate, so that one family's lines arrive while the other's keys are processed: faster than two calls.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup_both(
    tables: (&Table4, &Table6),
    lists: &mut BloomLists,
    v4: (&[u32], &mut [NextHopId]),
    v6: Piece6<'_>,
) {
    match tables.0.hash {
        Hash32::H2 => lookup_both_by::<false>(tables, lists, v4, v6),
        Hash32::Murmur => lookup_both_by::<true>(tables, lists, v4, v6),
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn lookup_both_by<const MURMUR: bool>(
    (table4, table6): (&Table4, &Table6),
    lists: &mut BloomLists,
    (keys, out): (&[u32], &mut [NextHopId]),
    mut piece: Piece6<'_>,
) {
    v6::start_v6(table6, &mut lists.v6, &mut piece);
    v6::ask_chunks_v6(table6, &lists.v6, piece.hi.len());
    v4::start_v4::<MURMUR>(table4, &mut lists.v4, keys, out);
    let is_all = v6::list_v6::<MURMUR>(table6, &mut lists.v6, &mut piece);
    v4::finish_v4::<MURMUR>(table4, &mut lists.v4, out);
    v6::finish_v6::<MURMUR>(table6, &mut lists.v6, &mut piece, is_all);
}

/// Writes the lanes of `mask` of `words` to `list[len..]`, without gaps.
///
/// # Safety
/// `len` must be at most [`PIECE`](super::lists::PIECE): a list has at least 16 words beyond that.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn append_words(list: &mut [u32; LIST], len: usize, mask: __mmask16, words: __m512i) {
    // SAFETY: by the caller's contract.
    let to = unsafe { list.as_mut_ptr().add(len) };
    // SAFETY: by the caller's contract.
    unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, words)) };
}
