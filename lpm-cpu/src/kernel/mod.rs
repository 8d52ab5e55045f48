//! Lookup kernels: one file an instruction set, all with the signature of the scalar one, one `match` a batch. `sail` has the vector
//! kernels, written once over the operations of `simd`.
//!
//! `sail-b` and `sail-u` have the scalar kernel only: their bit maps are asked one after the other until one says yes, and where they do
//! so differs from lane to lane.
//!
//! The vector kernels of `sail-l` take [`PIECE`] keys at a time through one level after the other, so that the loads of a level are
//! independent: BCN for all keys, then BN24 for those with a chunk, then N32 for the few whose /24 has one. They do not branch on what a
//! key finds, only on whether any of a vector's keys has a chunk of level 32. Those of `sail-m` do the same with BC16, B24 and C24, and then
//! gather the next hops of all keys.

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod simd;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512f;
pub(crate) mod entries;
#[cfg(target_arch = "x86_64")]
mod sail;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod singles;

use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
#[cfg(target_arch = "x86_64")]
use fib::FibId;
use fib::{CheckedIsa, EngineError, Fibs, NextHopId};

/// Keys that a vector kernel takes through one level before the next.
#[cfg(target_arch = "x86_64")]
const PIECE: usize = 64;

/// Calls `$function` of the caller's module for an instruction set: `avx512f`, `avx2` or `scalar`.
macro_rules! by_isa {
    ($isa:expr, $function:ident($($argument:expr),+)) => {
        match $isa.get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
            fib::Isa::Avx512f => unsafe { avx512f::$function($($argument),+) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: likewise.
            fib::Isa::Avx2 => unsafe { avx2::$function($($argument),+) },
            _ => scalar::$function($($argument),+),
        }
    };
}

/// SAIL_L in the wide layout: answers `keys` into `out`, equally long.
#[inline]
pub(crate) fn wide(isa: CheckedIsa, table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    by_isa!(isa, wide(table, keys, out));
}

/// SAIL_L in the paper's layout: as [`wide`].
#[inline]
pub(crate) fn paper(isa: CheckedIsa, table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    by_isa!(isa, paper(table, keys, out));
}

/// SAIL_M: answers `keys`, each in its FIB, into `out`, equally long.
///
/// # Errors
/// Those of [`Fibs::check`].
#[inline]
pub(crate) fn many(
    isa: CheckedIsa,
    table: &OverlayTable,
    fibs: Fibs<'_>,
    keys: &[u32],
    out: &mut [NextHopId],
) -> Result<(), EngineError> {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    // What the gathers rely on: each key has an id, of a FIB that is there.
    fibs.check(keys.len(), table.fibs)?;
    by_isa!(isa, many(table, fibs, keys, out));
    Ok(())
}

/// Puts the next hop of the default route in the place of every "no route" of `out`, for tables whose entries do not have it.
#[inline]
pub(crate) fn or_default(isa: CheckedIsa, default: NextHopId, out: &mut [NextHopId]) {
    if !default.is_none() {
        by_isa!(isa, or_default(default, out));
    }
}

/// FIB ids as words, for vector kernels.
#[cfg(target_arch = "x86_64")]
const fn words(fibs: &[FibId]) -> &[u32] {
    // SAFETY: a `FibId` is a transparent wrapper of a `u32`; the lifetime is that of `fibs`.
    unsafe { std::slice::from_raw_parts(fibs.as_ptr().cast(), fibs.len()) }
}
