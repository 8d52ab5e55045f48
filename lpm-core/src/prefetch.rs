//! Prefetches: loads into the cache that no instruction waits for.
//!
//! A CPU overlaps independent loads only as far as its reorder buffer and schedulers reach. A load and its dependants hold entries there
//! until the data arrives; a prefetch releases them at once, and never faults.

use fib::NextHopId;

/// Prefetches the cache line of an item, which need not exist. Does nothing on CPUs other than x86-64 and AArch64.
#[inline(always)]
pub fn line<T>(item: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has this instruction, and a prefetch reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(item.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every AArch64 CPU has this instruction, and a prefetch reads nothing.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{item}]", item = in(reg) item, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = item;
}

/// Prefetches the keys of a piece, and the memory of its answers for writing. For kernels that gather: the micro-operations of a gather
/// fill the reorder buffer, so that cache lines of keys would arrive one at a time. Kernels without gathers are slower with it.
#[inline]
pub fn piece<K>(keys: &[K], out: &[NextHopId]) {
    for keys in keys.chunks(64 / size_of::<K>()) {
        line(keys.as_ptr());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = out;
    #[cfg(target_arch = "x86_64")]
    for out in out.chunks(16) {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: as in `line`.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(out.as_ptr().cast()) };
    }
}
