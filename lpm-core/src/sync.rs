//! The atomics, locks, threads and clock of all protocols between threads. Files with such a protocol import them only from `crate::sync`,
//! so that the crate `models` can compile the same files with the types of a model checker.

pub use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
pub use std::{hint, thread};

/// Atomics and fences.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

    /// The fence after a [`Ordering::SeqCst`] exchange on targets where the exchange is not a full barrier. On x86-64 it is one.
    #[inline]
    pub fn fence_after_exchange() {
        if !cfg!(target_arch = "x86_64") {
            fence(Ordering::SeqCst);
        }
    }
}

/// Reference counts that a protocol depends on.
pub mod counted {
    pub use arc_swap::ArcSwap;
    pub use std::sync::Arc;
}

/// The clock.
pub mod time {
    pub use std::time::Instant;
}

/// The polls between two yields of a waiting thread: the awaited thread may need this CPU.
pub const LOOKS_A_YIELD: u32 = 256;

/// The number of polls of a waiting thread: `usual` here, fewer in a model.
pub const fn looks(usual: u32) -> u32 {
    usual
}

/// A cell that is accessed within closures, so that a model checker sees the extent of each access.
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `read` with a pointer to the value, for reading.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `write` with a pointer to the value, for writing.
    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
