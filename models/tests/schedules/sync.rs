//! `crate::sync` of the production crates, over shuttle.

pub(crate) use shuttle::hint;
pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use std::sync::OnceLock;

pub(crate) const LOOKS_A_YIELD: u32 = 2;

/// Polls of a waiting thread: few, so that it sleeps soon.
pub(crate) const fn looks(_: u32) -> u32 {
    2
}

pub(crate) mod atomic {
    use crate::check::{InjectedFault, is};
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

    /// An atomic whose exchange can be split in two, see [`InjectedFault::ExchangeInTwoSteps`].
    #[derive(Debug)]
    pub(crate) struct AtomicU8(shuttle::sync::atomic::AtomicU8);

    impl AtomicU8 {
        pub(crate) fn new(value: u8) -> Self {
            Self(shuttle::sync::atomic::AtomicU8::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u8 {
            self.0.load(order)
        }

        pub(crate) fn compare_exchange(
            &self,
            current: u8,
            new: u8,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u8, u8> {
            if is(InjectedFault::ExchangeInTwoSteps) {
                let now = self.0.load(failure);
                if now != current {
                    return Err(now);
                }
                self.0.store(new, success);
                return Ok(now);
            }
            self.0.compare_exchange(current, new, success, failure)
        }
    }
}

pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

pub(crate) mod time {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        // All threads of a model run on one thread.
        static NOW_US: Cell<u64> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            NOW_US.set(NOW_US.get() + 20);
            Self(Duration::from_micros(NOW_US.get()))
        }
        pub(crate) fn as_micros(self) -> u64 {
            u64::try_from(self.0.as_micros()).unwrap()
        }
        pub(crate) fn elapsed(&self) -> Duration {
            Self::now().0 - self.0
        }
    }

    impl std::ops::Add<Duration> for Instant {
        type Output = Self;
        fn add(self, more: Duration) -> Self {
            Self(self.0.saturating_add(more))
        }
    }
}

pub(crate) mod thread {
    use super::atomic::{AtomicBool, Ordering};
    use super::time::Instant;
    use crate::check::{InjectedFault, is};
    use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
    pub(crate) use shuttle::thread::{spawn, yield_now};
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    /// A sleep is a yield and a read of the clock.
    pub(crate) fn sleep(_: Duration) {
        Instant::now();
        yield_now();
    }

    shuttle::thread_local! {
        static THIS: RefCell<Option<Thread>> = RefCell::new(None);
    }

    /// Waits until another thread calls `unpark`, without a timeout: a thread must be woken for its work.
    pub(crate) fn park_timeout(_: Duration) {
        let this = THIS.with(|this| this.borrow().clone()).expect("a thread made here");
        let mut woken = this.lock();
        while !*woken {
            woken = this.0.1.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
    }

    /// A flag that says whether to wake, since shuttle's threads may wake spuriously.
    #[derive(Clone, Default)]
    pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar)>);

    impl Thread {
        /// All threads run on one thread, so while one unwinds, every lock that is released becomes poisoned.
        fn lock(&self) -> MutexGuard<'_, bool> {
            self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
        pub(crate) fn unpark(&self) {
            if !is(InjectedFault::NobodyWakes) {
                *self.lock() = true;
                self.0.1.notify_one();
            }
        }
    }

    /// A thread that may panic; a panic in shuttle's own threads ends the model.
    pub(crate) struct JoinHandle<T> {
        handle: shuttle::thread::JoinHandle<std::thread::Result<T>>,
        thread: Thread,
        is_over: Arc<AtomicBool>,
    }

    impl<T> JoinHandle<T> {
        pub(crate) fn thread(&self) -> &Thread {
            &self.thread
        }
        pub(crate) fn is_finished(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }
        pub(crate) fn join(self) -> std::thread::Result<T> {
            self.handle.join()?
        }
    }

    #[derive(Default)]
    pub(crate) struct Builder(shuttle::thread::Builder);

    impl Builder {
        pub(crate) fn new() -> Self {
            Self::default()
        }
        pub(crate) fn name(self, name: String) -> Self {
            Self(self.0.name(name))
        }
        pub(crate) fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> std::io::Result<JoinHandle<T>> {
            let is_over = Arc::new(AtomicBool::new(false));
            let (ends, thread) = (Arc::clone(&is_over), Thread::default());
            let this = thread.clone();
            let handle = self.0.spawn(move || {
                THIS.with(|place| *place.borrow_mut() = Some(this));
                let result = catch_unwind(AssertUnwindSafe(work));
                ends.store(true, Ordering::SeqCst);
                result
            })?;
            Ok(JoinHandle { handle, thread, is_over })
        }
    }
}
