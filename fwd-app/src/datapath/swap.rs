//! Exchanges a value with a running lcore, between two batches.
//!
//! The control thread offers a value. The lcore looks for one at each turn, which is one load, and gives another one in return. So
//! the lcore neither allocates nor frees: what it gives back is dropped by the control thread.

use fib::EngineReader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The exchange of values with one lcore.
#[derive(Debug)]
pub(crate) struct Swap<T> {
    is_offered: AtomicBool,
    /// What is offered, then what was given in return.
    value: Mutex<Option<T>>,
}

/// Gives a stage that looks up the reader of another engine.
pub(crate) type ReaderSwap = Swap<VrfReader>;

/// A reader of the engine of a VRF.
pub(crate) struct VrfReader {
    /// The VRF's number.
    pub(crate) vrf: usize,
    /// The reader.
    pub(crate) reader: Box<dyn EngineReader>,
}

impl<T> Default for Swap<T> {
    fn default() -> Self {
        Self { is_offered: AtomicBool::new(false), value: Mutex::new(None) }
    }
}

impl<T> Swap<T> {
    fn value(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers `value` to the lcore.
    pub(crate) fn offer(&self, value: T) {
        *self.value() = Some(value);
        self.is_offered.store(true, Ordering::Release);
    }

    /// Whether there is an offer that the lcore has not taken.
    #[inline]
    pub(crate) fn is_offered(&self) -> bool {
        self.is_offered.load(Ordering::Acquire)
    }

    /// The lcore's side: exchanges what is offered for what `give` returns.
    #[cold]
    pub(crate) fn exchange(&self, give: impl FnOnce(T) -> T) {
        let mut value = self.value();
        if let Some(offered) = value.take() {
            *value = Some(give(offered));
        }
        self.is_offered.store(false, Ordering::Release);
    }

    /// What the lcore gave in return, or the offer itself if the lcore has not taken it.
    pub(crate) fn take_back(&self) -> Option<T> {
        let mut value = self.value();
        self.is_offered.store(false, Ordering::Release);
        value.take()
    }

    /// Withdraws the offer. If the lcore has taken it, returns what the lcore gave for it.
    pub(crate) fn withdraw(&self) -> Option<T> {
        let mut value = self.value();
        let is_open = self.is_offered.swap(false, Ordering::AcqRel);
        value.take().filter(|_| !is_open)
    }
}
