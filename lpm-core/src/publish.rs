//! [`Publish`]: the writer's stores to memory that lookups read. All go through it, so that tests can check a table after each store.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A memory location that the writer stores to while lookups load it.
pub trait Publish {
    /// The type of the value.
    type Value;

    /// Stores `value` in one store, ordered after all earlier stores of the writer.
    fn publish(&self, value: Self::Value);
}

macro_rules! publish {
    ($atomic:ty, $value:ty) => {
        impl Publish for $atomic {
            type Value = $value;

            #[inline(always)]
            fn publish(&self, value: $value) {
                self.store(value, Ordering::Release);
                report(self);
            }
        }
    };
}
publish!(AtomicU32, u32);
publish!(AtomicU64, u64);

#[cfg(not(any(test, feature = "testing")))]
#[inline(always)]
pub(crate) fn report<T>(_place: &T) {}

#[cfg(any(test, feature = "testing"))]
pub(crate) fn report<T>(place: &T) {
    fib::stores::report(fib::stores::Event::Stored(fib::loads::Place::from_ref(place)));
}
