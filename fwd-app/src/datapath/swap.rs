//! Exchanges a value with a running lcore, between two batches.
//!
//! The lcore polls for an offer with one load per turn and gives its old value in return, which the control thread drops: the lcore neither
//! allocates nor frees.

use fib::EngineReader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Swap<T> {
    is_offered: AtomicBool,
    /// The offer, then the value given in return.
    value: Mutex<Option<T>>,
}

pub(crate) type ReaderSwap = Swap<VrfReader>;

pub(crate) struct VrfReader {
    pub(crate) vrf: usize,
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

    pub(crate) fn offer(&self, value: T) {
        *self.value() = Some(value);
        self.is_offered.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_offered(&self) -> bool {
        self.is_offered.load(Ordering::Acquire)
    }

    /// Called by the lcore: exchanges the offered value for the result of `give`.
    #[cold]
    pub(crate) fn exchange(&self, give: impl FnOnce(T) -> T) {
        let mut value = self.value();
        if let Some(offered) = value.take() {
            *value = Some(give(offered));
        }
        self.is_offered.store(false, Ordering::Release);
    }

    /// The lcore's old value, or the offer itself if the lcore has not accepted it.
    pub(crate) fn take_back(&self) -> Option<T> {
        let mut value = self.value();
        self.is_offered.store(false, Ordering::Release);
        value.take()
    }

    /// Withdraws the offer. If the lcore has accepted it, returns the lcore's old value.
    pub(crate) fn withdraw(&self) -> Option<T> {
        let mut value = self.value();
        let is_open = self.is_offered.swap(false, Ordering::AcqRel);
        value.take().filter(|_| !is_open)
    }
}
