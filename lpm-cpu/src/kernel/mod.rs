//! Lookup kernels: one file an instruction set, all with the signature of the scalar one, one `match` a batch. `sail` has the vector
//! kernels of `sail-l` and `sail-m`. They take [`PIECE`] keys through one level before the next, so that its loads are independent: in
//! `sail-l` BCN for all keys, then BN24 for keys with a chunk, then N32 for the few whose /24 has one. `sail-b` and `sail-u` have
//! only a scalar kernel: the number of bit maps that a lookup reads differs from lane to lane.

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod sail;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
pub(crate) mod entries;
#[cfg(target_arch = "x86_64")]
pub(crate) mod fetch;
pub(crate) mod scalar;

use crate::sail_l::layout::{Paper, Wide};
use crate::sail_m::table::OverlayTable;
#[cfg(target_arch = "x86_64")]
use fib::FibId;
use fib::{CheckedIsa, EngineError, Fibs, NextHopId};

#[cfg(target_arch = "x86_64")]
const PIECE: usize = 64;

macro_rules! by_isa {
    ($isa:expr, $function:ident($($argument:expr),+)) => {
        match $isa.get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
            fib::Isa::Avx512f => unsafe { avx512f::$function($($argument),+) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
            fib::Isa::Avx2 => unsafe { avx2::$function($($argument),+) },
            _ => scalar::$function($($argument),+),
        }
    };
}

#[inline]
pub(crate) fn wide(isa: CheckedIsa, table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    by_isa!(isa, wide(table, keys, out));
}

#[inline]
pub(crate) fn paper(isa: CheckedIsa, table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    by_isa!(isa, paper(table, keys, out));
}

/// Each key in its FIB. Fails as [`Fibs::check`].
#[inline]
pub(crate) fn many(
    isa: CheckedIsa,
    table: &OverlayTable,
    fibs: Fibs<'_>,
    keys: &[u32],
    out: &mut [NextHopId],
) -> Result<(), EngineError> {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    // The gathers rely on this: each key has the id of an existing FIB.
    fibs.check(keys.len(), table.fibs)?;
    by_isa!(isa, many(table, fibs, keys, out));
    Ok(())
}

/// Replaces every "no route" in `out` by the default route's next hop, for tables whose entries omit it.
#[inline]
pub(crate) fn or_default(isa: CheckedIsa, default: NextHopId, out: &mut [NextHopId]) {
    if !default.is_none() {
        by_isa!(isa, or_default(default, out));
    }
}

#[cfg(target_arch = "x86_64")]
const fn words(fibs: &[FibId]) -> &[u32] {
    // SAFETY: a `FibId` is a transparent wrapper of a `u32`, and the result borrows `fibs`.
    unsafe { std::slice::from_raw_parts(fibs.as_ptr().cast(), fibs.len()) }
}
