//! Lookup kernels of the IPv6 table: one file an instruction set, one `match` a batch.
//!
//! The vector kernels take some keys of a batch through three steps, each for all of these keys, so that its loads are independent:
//!
//! 1. *direct*: the top for every key, then a chunk for those that have one. Keys with an answer are done.
//! 2. *rows*: the others go down eight levels of rows, four bits each, all of them through one level before the next. Lanes that have
//!    their answer load nothing any more, and the levels end when no lane is left: mostly after the fourth, at /48.
//! 3. *answers* are written.
//!
//! With AVX2 the keys of step 2 are listed without gaps: the link that was found, and the next 32 bits of the address. The AVX-512 kernel
//! lists them only if they are at most half of the keys, as those that a scan of the address space leaves; else links and bits of up to
//! 128 keys stay in registers, each in its lane. Lists have fewer vectors, but their number is known late, and a wrong guess of it keeps
//! the loads of two levels from overlapping: for table traffic in bursts of 128, registers took 0.95 of the cycles of a whole forwarder.
//!
//! A batch of 64 keys costs two thirds of one of 128, as when half of a burst is IPv4. To take IPv4 keys through their steps between the
//! levels of IPv6 made a forwarder's mixed bursts 4 % slower on an EPYC of family 26 and 2 % on Emerald Rapids; between the first two levels
//! alone it gained 1 to 3 %. Rows of 256 entries below /32 and /40, for two levels less, made lookups in bursts a seventh faster, but
//! take 15 MB for a full table: keys from all over its routes were 10 to 25 % slower, and forwarders with 4,096 packets no faster. Gathers
//! without a mask, so that none waits for the level before, made forwarders 11 % slower.
//!
//! The few keys that are left then are listed, with the next 32 bits of their addresses, until all have an answer.
//!
//! With AVX-512, loads are gathers or single ones, put together in vectors. Single ones in lanes that have their answer are for nothing, so
//! then keys are always listed. The scalar kernel lists the keys that are left after each level; it also stands in for AVX2 where gathers are
//! slow (`gathers`). Cycles a lookup on one core of an AMD EPYC of Zen 4 (family 25, model 17, 1 MB of L2), full table of 2024, calls of
//! 256 keys, medians of five runs in turn:
//!
//! | kernel | random | table | zipf |
//! |---|---|---|---|
//! | AVX-512F | 5.0 | 18.5 | 19.5 |
//! | AVX-512F, single loads | 5.5 | 27.9 | 26.9 |
//! | AVX2 | 8.7 | 43.4 | 39.7 |
//! | scalar | 7.0 | 42.0 | 42.1 |
//! | `rte_fib6` of DPDK, scalar | 20.1 | 78.1 | 58.1 |
//!
//! Since then the scalar kernel prefetches a level, and has each entry by a load of its own, without a shift or a mask. Million lookups a
//! second on an AMD EPYC of Zen 5 (family 26, model 2), same table and calls:
//!
//! | kernel | random | table | zipf |
//! |---|---|---|---|
//! | AVX-512F | 839 | 382 | 341 |
//! | AVX2 | 583 | 134 | 141 |
//! | scalar | 710 | 191 | 188 |
//! | scalar, entries cut out of words of 64 bits, without prefetches (in another run) | 623 | 126 | 121 |
//!
//! The AVX-512 kernel computes the mask of a vector from its entries where it is used. Masks kept in an array are packed into one vector
//! register by the compiler, and each gather then waits for all of the level before.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
#[cfg(target_arch = "x86_64")]
mod lists;
pub(crate) mod scalar;

use crate::host::params::HostKernel;
use crate::host::v6::table::{NodeTable, Shared6};
use crate::kernel::or_default;
use fib::NextHopId;
use std::sync::atomic::{Ordering, fence};

#[cfg(target_arch = "x86_64")]
pub(crate) use lists::RowLists;

/// The work lists of a reader: empty, since only the x86-64 kernels use any.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Default)]
pub(crate) struct RowLists;

/// The first entry of a level.
#[inline(always)]
fn level<const BITS: u32>(table: &NodeTable<BITS>, level: usize) -> *const u8 {
    let bytes = table.shape.start(level) * (BITS as usize / 8);
    table.entries.words().as_ptr().cast::<u8>().wrapping_add(bytes)
}

/// Answers keys, given as their first and last 64 bits, into `out`, all equally long.
#[inline]
pub(crate) fn lookup(
    kernel: HostKernel,
    table: &Shared6,
    lists: &mut RowLists,
    keys: (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    assert!(keys.0.len() == out.len() && keys.1.len() == out.len(), "as many answers as keys");
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
        // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
        (fib::Isa::Avx512f, true) => unsafe { avx512f::lookup::<true, BITS>(table, lists, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        (fib::Isa::Avx512f, false) => unsafe { avx512f::lookup::<false, BITS>(table, lists, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        (fib::Isa::Avx2, true) => unsafe { avx2::lookup(table, lists, keys, out) },
        _ => scalar::lookup(table, lists, keys, out),
    }
    // Kernels leave codes where these are not the ids.
    if let Some(ids) = &table.ids {
        // The id of a code was stored before the code.
        fence(Ordering::Acquire);
        for answer in out {
            *answer = NextHopId::from_answer(ids[answer.get() as usize].load(Ordering::Relaxed));
        }
    }
}
