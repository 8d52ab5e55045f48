//! `crate::sync` of the production crates, over loom, with one ordering or fence weakened at a time.

pub(crate) use loom::sync::Mutex;
pub(crate) use loom::{hint, thread};
// The counts of an `Arc` order nothing that the protocols depend on, and loom's `Arc` cannot hold slices.
pub(crate) use std::sync::{Arc, PoisonError};

/// Smaller than in production: loom continues with another thread at a yield, so a second poll is of no use.
pub(crate) const LOOKS_A_YIELD: u32 = 2;

pub(crate) use loom::cell::UnsafeCell;

/// References whose counts loom follows, and the guarantees of `arc_swap`: each call takes effect at once, and a
/// reference that a reader got before a swap is in the count when the swap returns. Readers of the library do not lock.
pub(crate) mod counted {
    pub(crate) use loom::sync::Arc;

    #[derive(Debug)]
    pub(crate) struct ArcSwap<T>(loom::sync::Mutex<Arc<T>>);

    impl<T> ArcSwap<T> {
        pub(crate) fn new(value: Arc<T>) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn load_full(&self) -> Arc<T> {
            Arc::clone(&self.0.lock().unwrap())
        }
        pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
            std::mem::replace(&mut self.0.lock().unwrap(), value)
        }
    }
}

pub(crate) mod atomic {
    use crate::check::{What, is_weak};
    pub(crate) use loom::sync::atomic::Ordering;

    /// The ordering to use instead of `order`.
    #[track_caller]
    fn ordering(what: What, order: Ordering) -> Ordering {
        if order != Ordering::Relaxed && is_weak(what) { Ordering::Relaxed } else { order }
    }

    loom::lazy_static! {
        static ref FENCES: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
    }

    /// Creates [`FENCES`] at the beginning of an execution; creating it later would order threads.
    pub(crate) fn begin() {
        FENCES.load(Ordering::Relaxed);
    }

    /// A fence. Loom alone does not switch threads between a fence and the operation before it, and does not try two
    /// fences in both orders. The exchange, which orders nothing itself, makes it do both.
    #[track_caller]
    pub(crate) fn fence(order: Ordering) {
        if !is_weak(What::Fence) {
            FENCES.fetch_add(1, Ordering::Relaxed);
            loom::sync::atomic::fence(order);
        }
    }

    /// The fence of hosts other than x86-64. On x86-64 the exchange is a fence, which loom does not model.
    #[track_caller]
    pub(crate) fn fence_after_exchange() {
        fence(Ordering::SeqCst);
    }

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            #[derive(Debug, Default)]
            pub struct $name(loom::sync::atomic::$name);

            impl $name {
                pub(crate) fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }
                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.0.load(ordering(What::Load, order))
                }
                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, ordering(What::Store, order));
                }
                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.0.swap(value, ordering(What::Exchange, order))
                }
                #[track_caller]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.0.compare_exchange_weak(current, new, ordering(What::Exchange, success), failure)
                }
            }
        };
    }
    atomic!(AtomicBool, bool);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);
}

/// A clock that stands still; the other test target covers time.
pub(crate) mod time {
    use std::time::Duration;

    #[derive(Clone, Copy)]
    pub(crate) struct Instant;

    impl Instant {
        pub(crate) fn now() -> Self {
            Self
        }
        pub(crate) fn elapsed(&self) -> Duration {
            Duration::ZERO
        }
    }
}
