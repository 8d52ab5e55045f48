//! Lookup kernels: one file an instruction set, all with the signature of the scalar one, one `match` a batch.
//!
//! `sail-b` and `sail-u` have the scalar kernel only: their bit maps are asked one after the other until one says yes, and where they do
//! so differs from lane to lane.
//!
//! `host6` has the IPv6 lookups of `host`. The vector kernels of `sail-l` take [`PIECE`] keys at a time through one level after the other, so that the loads of a level are
//! independent: BCN for all keys, then BN24 for those with a chunk, then N32 for the few whose /24 has one. They do not branch on what a
//! key finds, only on whether any of a vector's keys has a chunk of level 32.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
pub(crate) mod host6;
#[cfg(target_arch = "x86_64")]
mod lists;
pub(crate) mod scalar;

use crate::sail_l::layout::{Paper, Wide};
use fib::{Isa, NextHopId};

/// Keys that a vector kernel takes through one level before the next.
#[cfg(target_arch = "x86_64")]
const PIECE: usize = 64;

/// SAIL_L in the wide layout: answers `keys` into `out`, equally long.
#[inline]
pub(crate) fn wide(isa: Isa, table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an engine's `Isa` was checked against this CPU when the engine was made.
        Isa::Avx512f => unsafe { avx512f::wide(table, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx2 => unsafe { avx2::wide(table, keys, out) },
        _ => scalar::wide(table, keys, out),
    }
}

/// SAIL_L in the paper's layout: as [`wide`].
#[inline]
pub(crate) fn paper(isa: Isa, table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an engine's `Isa` was checked against this CPU when the engine was made.
        Isa::Avx512f => unsafe { avx512f::paper(table, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx2 => unsafe { avx2::paper(table, keys, out) },
        _ => scalar::paper(table, keys, out),
    }
}
