//! Prefetches: loads into the cache that no instruction waits for.
//!
//! A CPU finds independent loads by itself, but only as far ahead as its reorder buffer and its schedulers reach. A load occupies both until
//! its word has come, and so does what needs that word; a prefetch leaves them at once, and never faults.

use fib::NextHopId;

/// Prefetches the cache line of an item, which need not be there; on CPUs other than x86-64 and AArch64 this does nothing.
#[inline(always)]
pub fn line<T>(item: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has this instruction, and a prefetch reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(item.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: likewise.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{item}]", item = in(reg) item, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = item;
}

/// Prefetches the keys of a piece, and the places of its answers, for writing.
///
/// A kernel that gathers would wait for one line of keys after the other: the micro-operations of a gather, up to a hundred on CPUs that have
/// it as microcode, fill the reorder buffer. With keys from memory, this doubled the rates of such kernels on an AMD EPYC of family 26.
/// Kernels without gathers are slower with it, as the CPU's own prefetching does better.
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
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(out.as_ptr().cast()) };
    }
}
