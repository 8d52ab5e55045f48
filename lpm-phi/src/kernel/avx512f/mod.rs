//! The AVX-512F kernels. They use AVX-512 F and CD only, which Knights Landing has, and no BW, DQ or VL instruction.
//!
//! Loads of a lookup. IPv4: one word of the direct array for each key; for keys with longer prefixes below, one table line, preceded
//! by one gathered filter word unless their block is dense in G1. IPv6: two words of the direct part; for each level searched, one
//! gathered filter word, and one line if the key passes. The direct part answers 34 % of the keys drawn from a full IPv4 table of
//! 2024, and 41 % of those from the IPv6 table of that time; `lpm-bench lookup` reports this share for any table.
//!
//! Cycles a lookup for random, table and zipf traffic, by `lpm-bench lookup --engines bloom` on one Zen 4 core (3.7 GHz, 1 MiB of
//! L2) with these tables:
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | `--keys 4096`, repeated: all their loads hit L1 or L2 | 7, 11, 10 | 4, 21, 18 |
//! | 4 M keys | 9, 13, 12 | 6, 23, 21 |
//!
//! IPv4 is bound by L3 bandwidth: one line for a random key and 1.7 for a key of a full table. In addition a call waits once for its
//! first entry and once for its first line; vary `--call` to see how much that costs. IPv6 is bound by instructions: most calls
//! go through three levels or more, each with hash, filter and lines.
//!
//! Three things make these kernels faster than kernels that gather and probe in one loop: direct entries are read with plain loads,
//! of which more can be in flight than of gathers; nothing branches on what is found; and found slots are processed in a
//! second loop, so that probes waiting for their lines do not fill the processor's out-of-order window.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lane masks, positions and halves of words are truncated on purpose"
)]

mod hash;
mod v4;
mod v6;
pub(super) mod variants;

use super::lists::{BloomLists, LIST, Piece6};
use crate::bloom::hash::Hash32;
use crate::bloom::v4::Table4;
use crate::bloom::v6::Table6;
use fib::NextHopId;
use std::arch::x86_64::*;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;

/// Answers a piece of IPv4 keys and one of IPv6 keys. Their stages alternate, so that one family's lines come while the other's keys are
/// worked on: in bursts of 128 of both, such lookups took 18.3 cycles a packet where one call after the other took 19.5.
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

/// The mask of the first `n` lanes of a vector, or of all sixteen.
#[inline]
const fn lanes(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1 << n) - 1 }
}

/// Writes the lanes of `mask` of `words` to `list[len..]`, without gaps.
///
/// # Safety
/// `len` is at most [`PIECE`](super::lists::PIECE): a list has 16 words and more beyond that.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn append_words(list: &mut [u32; LIST], len: usize, mask: __mmask16, words: __m512i) {
    // SAFETY: as the caller says.
    let to = unsafe { list.as_mut_ptr().add(len) };
    // SAFETY: likewise.
    unsafe { _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi32(mask, words)) };
}
