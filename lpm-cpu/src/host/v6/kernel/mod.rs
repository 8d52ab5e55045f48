//! Lookup kernels of the IPv6 table: one file an instruction set, one `match` a batch.
//!
//! The vector kernels take some keys of a batch through three steps, each for all of these keys, so that its loads are independent:
//!
//! 1. *direct*: the top for every key, then a chunk for keys that have one. Keys with an answer are done.
//! 2. *rows*: the others descend eight levels of rows, four bits each. The step ends when no lane is left, mostly at /48.
//! 3. *answers* are written. The few remaining keys are listed with the next 32 bits of their addresses until all have an answer.
//!
//! AVX2 lists the keys of step 2 without gaps: the link found and the next 32 bits of the address. AVX-512 lists them only if they are at
//! most half of the keys, or loads are single loads (`gathers`); otherwise up to 128 keys stay in registers. Lists need fewer vectors, but
//! a mispredicted length keeps the loads of two levels from overlapping. The mask of a vector is computed from its entries where it is
//! used: the compiler packs an array of masks into one register, and each gather would then wait for the whole previous level.
//!
//! Measured and not taken: IPv4 keys between the levels of IPv6, rows of 256 entries below /32 and /40 (too large for the caches with a
//! full table), and gathers without a mask.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
#[cfg(target_arch = "x86_64")]
mod lists;
#[cfg(target_arch = "x86_64")]
mod rows;
pub(crate) mod scalar;

use crate::host::params::HostKernel;
use crate::host::v6::table::{NodeTable, Shared6};
#[cfg(target_arch = "x86_64")]
use crate::kernel::fetch::{ByGather, BySingleLoad};
use crate::kernel::or_default;
use fib::NextHopId;
use std::sync::atomic::{Ordering, fence};

#[cfg(target_arch = "x86_64")]
pub(crate) use lists::RowLists;

#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Default)]
pub(crate) struct RowLists;

#[inline(always)]
fn level<const BITS: u32>(table: &NodeTable<BITS>, level: usize) -> *const u8 {
    let bytes = table.shape.start(level) * (BITS as usize / 8);
    table.entries.words().as_ptr().cast::<u8>().wrapping_add(bytes)
}

#[inline]
pub(crate) fn lookup(
    kernel: HostKernel,
    table: &Shared6,
    lists: &mut RowLists,
    keys: (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    assert!(
        keys.0.len() == out.len() && keys.1.len() == out.len(),
        "keys and answers must have the same length"
    );
    let default = table.default_route();
    match table {
        Shared6::Narrow(table) => lookup_in(kernel, table, lists, keys, out),
        Shared6::Wide(table) => lookup_in(kernel, table, lists, keys, out),
    }
    or_default(kernel.isa, default, out);
}

#[inline]
fn lookup_in<const BITS: u32>(
    kernel: HostKernel,
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    keys: (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    match (kernel.isa.get(), kernel.gathers.v6) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        (fib::Isa::Avx512f, true) => unsafe { avx512f::lookup::<ByGather, BITS>(table, lists, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        (fib::Isa::Avx512f, false) => unsafe {
            avx512f::lookup::<BySingleLoad, BITS>(table, lists, keys, out)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        (fib::Isa::Avx2, true) => unsafe { avx2::lookup(table, lists, keys, out) },
        _ => scalar::lookup(table, lists, keys, out),
    }
    // If codes are indices, the kernels leave indices in `out`.
    if let Some(ids) = &table.ids {
        // The id of a code is stored before the code.
        fence(Ordering::Acquire);
        for answer in out {
            *answer = NextHopId::from_answer(ids[answer.get() as usize].load(Ordering::Relaxed));
        }
    }
}
