//! Lookup kernels of the IPv4 table: one file an instruction set, all with the signature of the scalar one, one `match` a batch.
//!
//! Each kernel takes a piece of keys through one step before the next, so the loads of a step are independent:
//!
//! 1. *cells*: load the record of each key and count the bits of its map, which gives the cell;
//! 2. *codes*: load the word of each cell; its code is the answer, or the index of the answer's id;
//! 3. *blocks*: keys that found the escape code are listed and take the same steps with the records of their /24s' blocks ([`scalar`]).
//!
//! With AVX-512, loads are gathers or single loads assembled into vectors (`gathers`). With AVX2, vectors of single loads are no faster
//! than the scalar kernel, which runs where gathers are slow. A piece of 128 keys is best for the vector kernels, 16 to 32 for the scalar
//! one, which is bound by instructions. Keys and answers are prefetched for callers that have them in memory. `avx512f` counts bits by
//! arithmetic, as Knights Landing needs; `avx512_vpopcntdq` by the instruction of Ice Lake, Zen 4 and later CPUs.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512_vpopcntdq;
#[cfg(target_arch = "x86_64")]
mod avx512f;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
mod vector;

#[cfg(target_arch = "x86_64")]
use super::codes::Width;
use super::table::Table4;
use crate::host::params::HostKernel;
#[cfg(target_arch = "x86_64")]
use crate::kernel::fetch::{ByGather, BySingleLoad};
use crate::kernel::or_default;
use fib::NextHopId;

#[cfg(target_arch = "x86_64")]
const PIECE: usize = 128;

#[cfg(target_arch = "x86_64")]
macro_rules! by_form {
    ($module:ident, $loads:ty; $table:ident, $keys:ident, $out:ident) => {
        // SAFETY: the CPU has the instruction set of a `CheckedIsa`, and VPOPCNTDQ is used only if detected.
        unsafe {
            match ($table.form.width, $table.form.is_indexed) {
                (Width::Bits8, false) => $module::lookup::<$loads, 8, false>($table, $keys, $out),
                (Width::Bits8, true) => $module::lookup::<$loads, 8, true>($table, $keys, $out),
                (Width::Bits16, false) => $module::lookup::<$loads, 16, false>($table, $keys, $out),
                (Width::Bits16, true) => $module::lookup::<$loads, 16, true>($table, $keys, $out),
                (Width::Bits32, _) => $module::lookup::<$loads, 32, false>($table, $keys, $out),
            }
        }
    };
}

#[inline]
pub(crate) fn lookup(kernel: HostKernel, table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    let default = table.default_route();
    match (kernel.isa.get(), kernel.gathers.v4) {
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, true) if kernel.has_vpopcntdq => {
            by_form!(avx512_vpopcntdq, ByGather; table, keys, out)
        }
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, false) if kernel.has_vpopcntdq => {
            by_form!(avx512_vpopcntdq, BySingleLoad; table, keys, out)
        }
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, true) => by_form!(avx512f, ByGather; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx512f, false) => by_form!(avx512f, BySingleLoad; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        (fib::Isa::Avx2, true) => by_form!(avx2, ByGather; table, keys, out),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has POPCNT.
        _ if kernel.has_popcnt => unsafe { scalar::lookup_popcnt(table, keys, out) },
        _ => scalar::lookup(table, keys, out),
    }
    or_default(kernel.isa, default, out);
}
