//! [`Publish`]: the stores of a writer to memory that lookups read. All of them go through it, so that tests can check a table after
//! each store. A value that is replaced whole goes through [`crate::retire::Retired`], since somebody has to free the one before.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A memory location that the writer stores to while lookups load it.
pub trait Publish {
    /// The type of the value.
    type Value;

    /// Stores `value` in one store, ordered after all earlier stores of the writer.
    fn publish(&self, value: Self::Value);
}

impl Publish for AtomicU32 {
    type Value = u32;

    #[inline(always)]
    fn publish(&self, value: u32) {
        self.store(value, Ordering::Release);
        report(self);
    }
}

impl Publish for AtomicU64 {
    type Value = u64;

    #[inline(always)]
    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
        report(self);
    }
}

#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(crate) fn report<T>(_place: &T) {}

#[cfg(any(test, feature = "testing"))]
pub(crate) fn report<T>(place: &T) {
    fib::stores::tell(fib::stores::Event::Stored(fib::loads::Place::of(place)));
}
