//! The AVX-512F kernels, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.
//!
//! What a lookup loads. IPv4: one gathered word of the direct array a key; for keys with something below, one gathered word of
//! a filter (none where G1 is dense) and one table line. IPv6: two gathered words of the direct part; for each level that is
//! asked, one of a filter, and a line where it passes. The direct part answers 34 % of the keys drawn from a full IPv4 table of
//! 2024, and 41 % of those from the IPv6 table of that time; `lpm-bench lookup` says it for any table.
//!
//! How near the bound, by `lpm-bench lookup` on one Zen 4 core (3.7 GHz, 1 MiB of L2) with these tables, cycles a lookup for random,
//! table and zipf traffic:
//!
//! | | IPv4 | IPv6 |
//! |---|---|---|
//! | `--keys 4096`, over and over: what they need is in L1 and L2 | 10, 14, 12 | 4, 21, 19 |
//! | 4 M keys | 11, 18, 16 | 7, 27, 24 |
//!
//! The difference is waiting for L3: entries and lines are asked for [`AHEAD`] keys ahead, and IPv4 branches on nothing that it
//! loads, yet each stage of a piece begins with loads that nothing hides. Shorter pieces lose more by that than they gain.
//!
//! [`AHEAD`]: super::lists::AHEAD

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
