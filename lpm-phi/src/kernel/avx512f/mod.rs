//! The AVX-512F kernels, with F and CD alone: what Knights Landing has. No BW, DQ or VL instruction.
//!
//! Bound, IPv4: one gather into the direct array a key; for keys with something below, one gather into a filter (none
//! where G1 is dense) and one table line. Bound, IPv6: two gathers into the direct part; a filter gather and a line for
//! each level that is asked. Chunk entries and lines are asked for some keys ahead.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lane masks, positions and halves of words are cut on purpose"
)]

mod hash;
mod v4;
mod v6;
pub(super) mod variants;

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
