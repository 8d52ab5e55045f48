//! The IPv6 lookup of `host` with AVX2: keys are listed one at a time.

#![expect(clippy::cast_possible_truncation, reason = "masks of eight lanes; address bits are cut out")]

use super::level;
use super::lists::{PIECE, RowLists};
use super::rows;
use crate::host::v6::table::NodeTable;
use crate::kernel::fetch::{ByGather, Fetch};
use fib::NextHopId;
use lpm_core::lanes::{Avx2, Lanes, Words};
use lpm_core::prefetch;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        prefetch::piece(hi, out);
        let len = direct(table, lists, hi, out);
        if len == 0 {
            continue;
        }
        let is_left = rows(table, lists, 0, len);
        lists.answer(out);
        if is_left {
            lists.finish(table, (hi, lo), out, |lists, window, len| {
                rows(table, lists, window, len);
            });
        }
    }
}

/// Looks up the top and the chunks: stores the answers found, lists the keys without one, and returns their number.
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct<const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    hi: &[u64],
    out: &mut [NextHopId],
) -> usize {
    let lanes = Avx2::new();
    let codes = _mm256_set1_epi32(table.codes.cast_signed());
    let direct_bits = table.shape.direct_bits();
    let chunk_bits = _mm_cvtsi32_si128(direct_bits.cast_signed() - 16);
    let skipped_bits = _mm_cvtsi32_si128(32 - (direct_bits.cast_signed() - 16));
    let (top, chunks) = (level(table, 0), level(table, 1));
    lists.listed = [0; PIECE / 16];
    let mut len = 0;
    for (vector, (hi, out)) in hi.chunks(8).zip(out.chunks_mut(8)).enumerate() {
        let live = lanes.first(hi.len());
        let mut key = [0; 8];
        key[..hi.len()].copy_from_slice(hi);
        // SAFETY: eight keys of 64 bits are two vectors.
        let (first, second) = unsafe {
            (_mm256_loadu_si256(key.as_ptr().cast()), _mm256_loadu_si256(key.as_ptr().add(4).cast()))
        };
        let words = lanes.odd(first, second);
        let node = _mm256_srli_epi32::<16>(words);
        // SAFETY: the top has an entry for each value of 16 bits.
        let mut entry = unsafe { ByGather::entries::<BITS>(lanes, top, node, live, lanes.splat(0), 0) };
        let mut split = lanes.both(live, lanes.at_least(entry, table.codes));
        if lanes.any(split) {
            let first = _mm256_sll_epi32(_mm256_sub_epi32(entry, codes), chunk_bits);
            let within = _mm256_srl_epi32(_mm256_slli_epi32::<16>(words), skipped_bits);
            let place = _mm256_or_si256(first, within);
            // SAFETY: a link of the top leads to a chunk.
            entry = unsafe { ByGather::entries::<BITS>(lanes, chunks, place, split, entry, 0) };
            split = lanes.both(split, lanes.at_least(entry, table.codes));
        }
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word.
        unsafe { lanes.store(out.as_mut_ptr().cast(), live, entry) };
        let mut left = _mm256_movemask_ps(_mm256_castsi256_ps(split)) as u16;
        lists.listed[vector / 2] |= left << (vector % 2 * 8);
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            lists.entry[len] = out[lane].get();
            lists.bits[len] = (hi[lane] << direct_bits >> 32) as u32;
            len += 1;
            left &= left - 1;
        }
    }
    len
}

#[target_feature(enable = "avx2,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn rows<const BITS: u32>(table: &NodeTable<BITS>, lists: &mut RowLists, window: usize, len: usize) -> bool {
    rows::rows::<_, ByGather, BITS>(Avx2::new(), table, lists, window, len)
}
