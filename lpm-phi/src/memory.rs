//! Table memory: zeroed arrays of atomics in huge pages, on a chosen NUMA node.
//!
//! A lookup table of tens of megabytes costs a TLB miss a load in 4 KB pages. An [`Array`] takes 2 MB pages when the
//! host has some reserved, else asks for transparent ones; it never requires them. First touch is the caller's.

use fib::EngineError;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

const HUGE_BYTES: usize = 2 << 20;
/// Below half a huge page a table stays in ordinary pages: it would waste more than it gains.
const HUGE_MIN_BYTES: usize = HUGE_BYTES / 2;

/// A type whose all-zero bytes are a value, and which may be read and written through a shared reference.
pub trait Word: sealed::Sealed + Sync + Send + 'static {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AtomicU32 {}
    impl Sealed for super::AtomicU64 {}
}
impl Word for AtomicU32 {}
impl Word for AtomicU64 {}

/// Where table memory should lie.
#[derive(Clone, Copy, Debug, Default)]
pub struct Placement {
    /// Whether huge pages may be taken.
    pub huge_pages: bool,
    /// The NUMA node; first touch decides when `None`.
    pub numa_node: Option<u32>,
}

/// A fixed array of atomic words, zeroed, aligned to a cache line at least.
pub struct Array<T: Word> {
    start: NonNull<T>,
    len: usize,
    mapped_bytes: usize,
    owns: PhantomData<T>,
}

// SAFETY: an `Array` owns its mapping, and `Word` types are `Send`.
unsafe impl<T: Word> Send for Array<T> {}
// SAFETY: only shared references to `Sync` words are handed out.
unsafe impl<T: Word> Sync for Array<T> {}

impl<T: Word> Array<T> {
    /// An array of `len` zero words.
    ///
    /// # Errors
    /// [`EngineError::Memory`] when the system has no such memory.
    pub fn zeroed(len: usize, placement: Placement) -> Result<Self, EngineError> {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        let refuse = |reason: String| EngineError::Memory { bytes: bytes as u64, reason };
        let huge = placement.huge_pages && bytes >= HUGE_MIN_BYTES;
        let unit = if huge { HUGE_BYTES } else { 4096 };
        let mapped_bytes =
            bytes.checked_next_multiple_of(unit).ok_or_else(|| refuse("too large".to_owned()))?;
        let explicit = if huge { map(mapped_bytes, libc::MAP_HUGETLB).ok() } else { None };
        let start = match explicit {
            Some(start) => start,
            None => {
                let start = map(mapped_bytes, 0).map_err(|e| refuse(e.to_string()))?;
                if huge {
                    advise_huge(start, mapped_bytes);
                }
                start
            }
        };
        let array = Self { start: start.cast(), len, mapped_bytes, owns: PhantomData };
        if let Some(node) = placement.numa_node {
            bind(start, mapped_bytes, node).map_err(|e| refuse(format!("NUMA node {node}: {e}")))?;
        }
        Ok(array)
    }

    /// Bytes of memory mapped for the array.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.mapped_bytes as u64
    }
}

/// Maps zeroed private memory. A huge-page mapping is populated at once: with too few pages reserved it fails here
/// instead of killing the process at first touch.
fn map(bytes: usize, flags: libc::c_int) -> std::io::Result<NonNull<libc::c_void>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(start).ok_or_else(|| std::io::Error::other("mapping at address 0"))
}

fn advise_huge(start: NonNull<libc::c_void>, bytes: usize) {
    // SAFETY: the range was just mapped by us; the advice changes no contents, and its failure is harmless.
    unsafe { libc::madvise(start.as_ptr(), bytes, libc::MADV_HUGEPAGE) };
}

fn bind(start: NonNull<libc::c_void>, bytes: usize, node: u32) -> std::io::Result<()> {
    const MPOL_BIND: libc::c_int = 2; // linux/mempolicy.h
    let mut mask = [0_u64; 16];
    let Some(word) = mask.get_mut(node as usize / 64) else {
        return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
    };
    *word = 1 << (node % 64);
    let bits = mask.len() * 64 + 1;
    // SAFETY: the range was just mapped by us and the mask outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_mbind, start.as_ptr(), bytes, MPOL_BIND, mask.as_ptr(), bits, 0_usize)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

impl<T: Word> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `len` words, zero bytes are a value of a `Word`, and it lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Word> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this size, and nobody can hold a reference into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

impl<T: Word> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("len", &self.len).field("mapped_bytes", &self.mapped_bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn arrays_are_zero_aligned_and_writable() {
        for huge_pages in [false, true] {
            let array =
                Array::<AtomicU32>::zeroed(1 << 20, Placement { huge_pages, numa_node: None }).unwrap();
            assert_eq!(array.as_ptr().align_offset(64), 0);
            assert!(array.iter().all(|word| word.load(Relaxed) == 0));
            array[(1 << 20) - 1].store(7, Relaxed);
            assert_eq!(array[(1 << 20) - 1].load(Relaxed), 7);
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let refused = Array::<AtomicU64>::zeroed(usize::MAX / 16, Placement::default());
        assert!(matches!(refused, Err(EngineError::Memory { .. })));
        let node = Placement { huge_pages: false, numa_node: Some(1023) };
        assert!(matches!(Array::<AtomicU32>::zeroed(16, node), Err(EngineError::Memory { .. })));
    }
}
