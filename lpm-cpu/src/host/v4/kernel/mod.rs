//! Lookup kernels of the IPv4 table: one file an instruction set, all with the signature of the scalar one, one `match` a batch.
//!
//! All of them take a piece of keys through one step before the next, so that the loads of a step are independent:
//!
//! 1. *cells*: load the record of each key, and count the bits of its map: that gives the cell;
//! 2. *codes*: load the word of each cell; its code is the answer, or leads to it where codes are indices;
//! 3. *blocks*, for keys that found the escape code: the same with the records of their /24s' blocks. All kernels list these keys, and take
//!    them through the steps of [`scalar`], which prefetch. With two thirds of the keys in blocks (0.4 million /28 in a full table), this
//!    made the AVX-512 kernel, which had gathered, 1.6 times as fast on an EPYC of family 26, and the others, which had taken one key
//!    after the other, 2.3 to 3 times.
//!
//! With AVX-512, loads are gathers or single ones, put together in vectors; the arithmetic is the same. With AVX2, vectors of single loads
//! were no faster than the scalar kernel, which is therefore taken where gathers are slow (`gathers`).
//!
//! Million lookups a second on one core of a Sapphire Rapids server (2 MB of L2) with a full table of 2024, in calls of 256 keys, for
//! random, table and zipf traffic, and for 256 keys over and over, all in one process on a machine with other load:
//!
//! | kernel, code bits | random | table | zipf | 256 keys |
//! |---|---|---|---|---|
//! | VPOPCNTDQ, 8 | 971 | 934 | 1318 | 1881 |
//! | AVX-512F, 8 | 996 | 929 | 1158 | 1560 |
//! | AVX2, 8 | 708 | 734 | 818 | 1152 |
//! | VPOPCNTDQ, 8, indices | 766 | 743 | 933 | 1408 |
//! | VPOPCNTDQ, 16 | 1051 | 771 | 1185 | 1767 |
//! | AVX-512F, 16 | 906 | 671 | 1009 | 1498 |
//! | VPOPCNTDQ, 32 | 553 | 483 | 984 | 1686 |
//! | `sail-l`, AVX-512F | 513 | 317 | 772 | 1689 |
//!
//! Cycles a lookup on one core of an AMD EPYC of Zen 4 (family 25, model 17, 1 MB of L2), the same table, 16-bit codes, calls of 256 keys,
//! medians of five runs in turn; `rte_fib` is DPDK's with entries of 2 bytes:
//!
//! | kernel | random | table | zipf |
//! |---|---|---|---|
//! | VPOPCNTDQ | 9.0 | 7.5 | 7.3 |
//! | VPOPCNTDQ, single loads | 10.1 | 8.2 | 8.5 |
//! | AVX2 | 22.7 | 16.1 | 15.5 |
//! | scalar | 21.5 | 15.8 | 14.1 |
//! | `rte_fib`, scalar | 30.8 | 18.2 | 12.3 |
//!
//! There the scalar kernel had no prefetches yet, and 1.4, 1.2 and 0.9 of `rte_fib`'s rate; one that finishes a key before it begins the next
//! had 0.37, 0.43 and 0.25, in a run of its own. Million lookups a second on an AMD EPYC of Zen 5 (family 26, model 2, 1 MB of L2), with the
//! same table and calls:
//!
//! | kernel | random | table | zipf |
//! |---|---|---|---|
//! | VPOPCNTDQ | 837 | 858 | 906 |
//! | VPOPCNTDQ, keys and answers not prefetched | 498 | 333 | 670 |
//! | `rte_fib`, AVX-512 | 208 | 400 | 735 |
//!
//! | kernel | random | table | zipf |
//! |---|---|---|---|
//! | scalar | 499 | 539 | 581 |
//! | scalar, codes cut out of words of 32 bits, the greatest kept to find escapes | 336 | 480 | 437 |
//! | the same, nothing prefetched (in another run) | 371 | 357 | 371 |
//! | `rte_fib`, scalar | 121 | 252 | 447 |
//!
//! The keys come from memory here. In a forwarder they are in L1, and the vector kernels gain nothing by prefetching them. The scalar kernel is
//! bound by instructions, shifts most of all: each code by a load of its own saves four of ten, and to look for escapes in vectors of
//! answers two more instructions a key; 4.8 cycles of the time stamp counter became 3.6, in L1 or L2. Pieces of 16 to 32 keys are alike,
//! those of 64 slower by 5 %. BMI2's shifts gain nothing.
//!
//! For the vector kernels, pieces of 64 or 256 keys were up to a tenth slower. To load records one by one, for gathers of vectors, cost a third, and to gather the
//! records of the next piece among the codes of this one gained nothing.
//!
//! `avx512` is the kernel of both AVX-512 modules, which differ in how they count bits: `avx512f` has arithmetic, as Knights Landing
//! needs it; `avx512_vpopcntdq` has one instruction, of Ice Lake, Zen 4 and later CPUs.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[macro_use]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_vpopcntdq;
#[cfg(target_arch = "x86_64")]
mod avx512f;
pub(crate) mod scalar;

#[cfg(target_arch = "x86_64")]
use super::codes::Width;
use super::table::Table4;
use crate::host::params::HostKernel;
use crate::kernel::or_default;
use fib::NextHopId;

/// Keys that a vector kernel takes through one step before the next.
#[cfg(target_arch = "x86_64")]
const PIECE: usize = 128;

/// Calls a vector kernel for the form of a table's codes; one of AVX-512 with gathers or without them.
#[cfg(target_arch = "x86_64")]
macro_rules! by_form {
    ($module:ident $(, $gather:literal)?; $table:ident, $keys:ident, $out:ident) => {
        // SAFETY: a `CheckedIsa` is one that this CPU has, and so is VPOPCNTDQ where it is used.
        unsafe {
            match ($table.form.width, $table.form.is_indexed) {
                (Width::Bits8, false) => $module::lookup::<$($gather,)? 8, false>($table, $keys, $out),
                (Width::Bits8, true) => $module::lookup::<$($gather,)? 8, true>($table, $keys, $out),
                (Width::Bits16, false) => $module::lookup::<$($gather,)? 16, false>($table, $keys, $out),
                (Width::Bits16, true) => $module::lookup::<$($gather,)? 16, true>($table, $keys, $out),
                (Width::Bits32, _) => $module::lookup::<$($gather,)? 32, false>($table, $keys, $out),
            }
        }
    };
}

/// Answers `keys` into `out`, equally long.
#[inline]
pub(crate) fn lookup(kernel: HostKernel, table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    let default = table.default_route();
    match (kernel.isa.get(), kernel.gathers.v4) {
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, true) if kernel.has_vpopcntdq => {
            by_form!(avx512_vpopcntdq, true; table, keys, out)
        }
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, false) if kernel.has_vpopcntdq => {
            by_form!(avx512_vpopcntdq, false; table, keys, out)
        }
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, true) => by_form!(avx512f, true; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, false) => by_form!(avx512f, false; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx2, true) => by_form!(avx2; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has POPCNT.
        _ if kernel.has_popcnt => unsafe { scalar::lookup_popcnt(table, keys, out) },
        _ => scalar::lookup(table, keys, out),
    }
    or_default(kernel.isa, default, out);
}
