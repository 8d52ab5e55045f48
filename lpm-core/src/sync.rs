//! What threads share: the atomics, locks, threads and clock that the protocols of this crate are written with.
//!
//! Here they are those of `std`. The files that hold a protocol (`epoch`, `copies`, `failover`, `lend`, `coop`) take them from `crate::sync`
//! only, so that the crate `models` can compile the very same files over the types of a model checker.

pub use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
pub use std::{hint, thread};

/// Atomics and fences.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};

    /// The fence that has to follow an exchange of [`Ordering::SeqCst`] where that is not one itself: on x86-64 it is, being a
    /// locked instruction.
    #[inline]
    pub fn fence_after_exchange() {
        if !cfg!(target_arch = "x86_64") {
            fence(Ordering::SeqCst);
        }
    }
}

/// The clock.
pub mod time {
    pub use std::time::Instant;
}

/// Looks at what another thread changes, between two yields: it may need this CPU.
pub const LOOKS_A_YIELD: u32 = 256;

/// Looks of a thread that waits, of which a model takes few.
pub const fn looks(usual: u32) -> u32 {
    usual
}

/// A cell whose accesses have a beginning and an end, which is what a model checker watches.
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// A cell that holds `value`.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// `read` gets the place, to read it.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// `write` gets the place, to write it.
    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
