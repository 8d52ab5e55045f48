//! The IPv6 lookup of `host` with AVX-512 F and CD alone.

use super::level;
use super::lists::{PIECE, RowLists};
use super::rows;
use crate::host::v6::table::NodeTable;
use crate::kernel::fetch::Fetch;
use fib::NextHopId;
use lpm_core::lanes::{Avx512f, Lanes};
use lpm_core::prefetch;
use std::arch::x86_64::*;

/// The maximum number of keys in a group: their entries and next address bits stay in registers.
const GROUP: usize = 128;

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
pub(super) fn lookup<F: Fetch<Avx512f>, const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), out) in hi.chunks(GROUP).zip(lo.chunks(GROUP)).zip(out.chunks_mut(GROUP)) {
        prefetch::piece(hi, out);
        // One function for each number of vectors, so that its loops are unrolled.
        let is_left = match hi.len().div_ceil(16) {
            1 => group::<F, BITS, 1>(table, lists, hi, out),
            2 => group::<F, BITS, 2>(table, lists, hi, out),
            3 => group::<F, BITS, 3>(table, lists, hi, out),
            4 => group::<F, BITS, 4>(table, lists, hi, out),
            5 => group::<F, BITS, 5>(table, lists, hi, out),
            6 => group::<F, BITS, 6>(table, lists, hi, out),
            7 => group::<F, BITS, 7>(table, lists, hi, out),
            _ => group::<F, BITS, 8>(table, lists, hi, out),
        };
        if is_left {
            lists.finish(table, (hi, lo), out, |lists, window, len| {
                rows::<F, BITS>(table, lists, window, len);
            });
        }
    }
}

/// Loads sixteen keys from `at` on, with a mask of the lanes that have a key; lanes without one load 0.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(hi: &[u64], at: usize) -> ([__m512i; 2], __mmask16) {
    let lanes = Avx512f::new();
    let live = lanes.first(hi.len().saturating_sub(at));
    // SAFETY: lanes without a key are not read.
    (unsafe { lanes.load_wide(hi.as_ptr().wrapping_add(at), live) }, live)
}

/// `N` vectors, down to the first eight levels of rows. Lists the keys without an answer, and returns whether there are some.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
fn group<F: Fetch<Avx512f>, const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    hi: &[u64],
    out: &mut [NextHopId],
) -> bool {
    let lanes = Avx512f::new();
    let (mut entries, bits, len) = direct::<F, BITS, N>(table, hi);
    let mut is_left = false;
    // Single loads in lanes that have their answer are wasted, so without gathers keys are always listed.
    if F::IS_GATHER && len > hi.len() / 2 {
        is_left = rows::descend::<_, F, BITS, N>(lanes, table, 0, &mut entries, bits);
        if is_left {
            list(table, lists, &entries, &bits);
        }
    } else if len > 0 {
        // Few keys are packed first.
        list(table, lists, &entries, &bits);
        is_left = rows::<F, BITS>(table, lists, 0, len);
        answer(lists, &mut entries);
    }
    for (at, entry) in entries.iter().enumerate() {
        let live = lanes.first(hi.len().saturating_sub(at * 16));
        // SAFETY: lanes without a key are not written; `out` is as long as the keys, and each answer is a word.
        unsafe { lanes.store(out.as_mut_ptr().wrapping_add(at * 16).cast(), live, *entry) };
    }
    is_left
}

/// Returns the entries found, the next 32 bits of each key, and the number of keys with a link. Lanes without a key have code 0.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn direct<F: Fetch<Avx512f>, const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    hi: &[u64],
) -> ([__m512i; N], [__m512i; N], usize) {
    let lanes = Avx512f::new();
    let zero = _mm512_setzero_si512();
    let codes = _mm512_set1_epi32(table.codes.cast_signed());
    let direct_bits = table.shape.direct_bits();
    let chunk_bits = _mm_cvtsi32_si128(direct_bits.cast_signed() - 16);
    let skipped_bits = _mm_cvtsi32_si128(32 - (direct_bits.cast_signed() - 16));
    let key_bits = _mm_cvtsi32_si128(direct_bits.cast_signed());
    let (top, chunks) = (level(table, 0), level(table, 1));
    let (mut entries, mut bits) = ([zero; N], [zero; N]);
    for (at, entry) in entries.iter_mut().enumerate() {
        let (keys, live) = load(hi, at * 16);
        let place = _mm512_srli_epi32::<16>(lanes.odd(keys[0], keys[1]));
        // SAFETY: the top has an entry for each value of 16 bits.
        *entry = unsafe { F::entries::<BITS>(lanes, top, place, live, zero, 0) };
    }
    let mut len = 0;
    for (at, (entry, bits)) in entries.iter_mut().zip(&mut bits).enumerate() {
        let (keys, _) = load(hi, at * 16);
        let split = lanes.at_least(*entry, table.codes);
        // In a scan of the address space few keys have a chunk; most keys within routes have one.
        if split != 0 {
            let first = _mm512_sll_epi32(_mm512_sub_epi32(*entry, codes), chunk_bits);
            let within = _mm512_srl_epi32(_mm512_slli_epi32::<16>(lanes.odd(keys[0], keys[1])), skipped_bits);
            let place = _mm512_or_si512(first, within);
            // SAFETY: a link of the top leads to a chunk.
            *entry = unsafe { F::entries::<BITS>(lanes, chunks, place, split, *entry, 0) };
            *bits = lanes.odd(_mm512_sll_epi64(keys[0], key_bits), _mm512_sll_epi64(keys[1], key_bits));
            len += lanes.at_least(*entry, table.codes).count_ones() as usize;
        }
    }
    (entries, bits, len)
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn list<const BITS: u32, const N: usize>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    entries: &[__m512i; N],
    bits: &[__m512i; N],
) {
    let lanes = Avx512f::new();
    lists.listed = [0; PIECE / 16];
    let mut len = 0;
    for ((entry, bits), listed) in entries.iter().zip(bits).zip(&mut lists.listed) {
        let split = lanes.at_least(*entry, table.codes);
        *listed = split;
        // SAFETY: at most the keys of a piece are listed, and a list has room for 16 more.
        unsafe {
            let entry = _mm512_maskz_compress_epi32(split, *entry);
            _mm512_storeu_si512(lists.entry.as_mut_ptr().add(len).cast(), entry);
            let bits = _mm512_maskz_compress_epi32(split, *bits);
            _mm512_storeu_si512(lists.bits.as_mut_ptr().add(len).cast(), bits);
        }
        len += split.count_ones() as usize;
    }
}

#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn rows<F: Fetch<Avx512f>, const BITS: u32>(
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    window: usize,
    len: usize,
) -> bool {
    rows::rows::<_, F, BITS>(Avx512f::new(), table, lists, window, len)
}

/// Replaces the links of listed keys by the entries they led to.
#[target_feature(enable = "avx512f,avx512cd,popcnt,lzcnt,bmi1,bmi2")]
#[inline]
fn answer<const N: usize>(lists: &RowLists, entries: &mut [__m512i; N]) {
    let mut from = 0_usize;
    for (entry, listed) in entries.iter_mut().zip(lists.listed) {
        // SAFETY: at most the keys of a piece are listed, and a list has room for 16 more.
        let found = unsafe { _mm512_loadu_si512(lists.entry.as_ptr().add(from.min(PIECE)).cast()) };
        *entry = _mm512_mask_expand_epi32(*entry, listed, found);
        from += listed.count_ones() as usize;
    }
}
