//! Lookup kernels: one file an instruction set, all with the signature of the scalar one, one `match` a batch.
//!
//! `sail-b` and `sail-u` have the scalar kernel only: their bit maps are asked one after the other until one says yes, and where they do
//! so differs from lane to lane.
//!
//! The vector kernels of `sail-l` take [`PIECE`] keys at a time through one level after the other, so that the loads of a level are
//! independent: BCN for all keys, then BN24 for those with a chunk, then N32 for the few whose /24 has one. They do not branch on what a
//! key finds, only on whether any of a vector's keys has a chunk of level 32. Those of `sail-m` do the same with BC16, B24 and C24, and then
//! gather the next hops of all keys.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
pub(crate) mod scalar;

use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::Table;
#[cfg(target_arch = "x86_64")]
use fib::FibId;
use fib::{EngineError, Fibs, Isa, NextHopId};

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

/// SAIL_M: answers `keys`, each in its FIB, into `out`, equally long.
///
/// # Errors
/// Those of [`Fibs::check`].
#[inline]
pub(crate) fn many(
    isa: Isa,
    table: &Table,
    fibs: Fibs<'_>,
    keys: &[u32],
    out: &mut [NextHopId],
) -> Result<(), EngineError> {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    // What the gathers rely on: each key has an id, of a FIB that is there.
    fibs.check(keys.len(), table.fibs)?;
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an engine's `Isa` was checked against this CPU when the engine was made.
        Isa::Avx512f => unsafe { avx512f::many(table, fibs, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx2 => unsafe { avx2::many(table, fibs, keys, out) },
        _ => scalar::many(table, fibs, keys, out),
    }
    Ok(())
}

/// Puts the next hop of the default route in the place of every "no route" of `out`, for tables whose entries do not have it.
#[inline]
pub(crate) fn or_default(isa: Isa, default: NextHopId, out: &mut [NextHopId]) {
    if default.is_none() {
        return;
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an engine's `Isa` was checked against this CPU when the engine was made.
        Isa::Avx512f => unsafe { avx512f::or_default(default, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Isa::Avx2 => unsafe { avx2::or_default(default, out) },
        _ => scalar::or_default(default, out),
    }
}

/// FIB ids as words, for vector kernels.
#[cfg(target_arch = "x86_64")]
const fn words(fibs: &[FibId]) -> &[u32] {
    // SAFETY: a `FibId` is a transparent wrapper of a `u32`; the lifetime is that of `fibs`.
    unsafe { std::slice::from_raw_parts(fibs.as_ptr().cast(), fibs.len()) }
}
