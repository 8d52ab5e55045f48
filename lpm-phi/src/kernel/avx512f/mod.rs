//! The AVX-512F kernels, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.
//!
//! What a lookup loads. IPv4: one word of the direct array a key; for keys with something below, one table line, and before that one
//! gathered word of a filter where their block is not dense in G1. IPv6: two words of the direct part; for each level that
//! is asked, one gathered word of a filter, and a line where it passes. The direct part answers 34 % of the keys drawn from a full
//! IPv4 table of 2024, and 41 % of those from the IPv6 table of that time; `lpm-bench lookup` says it for any table.
//!
//! How near the bound, by `lpm-bench lookup --engines bloom` on one Zen 4 core (3.7 GHz, 1 MiB of L2) with these tables, cycles a
//! lookup for random, table and zipf traffic:
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | `--keys 4096`, over and over: what they need is in L1 and L2 | 7, 11, 10 | 4, 21, 18 |
//! | 4 M keys | 9, 13, 12 | 6, 23, 21 |
//!
//! IPv4 is bound by what L3 delivers, one line for a random key and 1.7 for a key of a full table; and a call waits once for its
//! first entry and once for its first line, which `--call` shows the weight of. IPv6 is bound by instructions: three levels and
//! more have their turn in most calls, each with hash, filter and lines.
//!
//! Three things make the difference to kernels that gather and probe in one loop: direct entries come by plain loads, of which
//! more are in flight than of gathers; nothing branches on what is found; and what follows from a found slot is done in a
//! second loop, so that probes waiting for their lines do not fill the processor's window.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lane masks, positions and halves of words are cut on purpose"
)]

mod hash;
mod v4;
mod v6;
pub(super) mod variants;

use fib::NextHopId;
use std::arch::x86_64::*;

pub(super) use v4::lookup_v4;
pub(super) use v6::lookup_v6;

/// The lanes of a vector that hold the first `n` of a rest.
#[inline]
const fn lanes(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1 << n) - 1 }
}

/// Asks for the cache line at `start + bytes`. A vector gather on its own keeps too few loads in flight: its micro-operations
/// fill the reorder buffer. A prefetch is one, and never faults.
#[target_feature(enable = "avx512f")]
#[inline]
fn prefetch(start: *const i8, bytes: usize) {
    _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(bytes));
}

/// Asks for the keys of a piece, all at once: where they are not in a cache, their lines would be waited for one after the other.
/// And for the lines that its answers go to, to be written.
#[inline]
fn ask_batch<K>(keys: &[K], out: &[NextHopId]) {
    for line in keys.chunks(64 / size_of::<K>()) {
        // SAFETY: every x86-64 has this, and a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    for line in out.chunks(16) {
        // SAFETY: likewise.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
}
