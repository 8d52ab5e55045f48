//! The stores of writers to what lookups read: all go through [`Publish`], so that tests can look at a table after each of them.

use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A place that the writer stores to while lookups load from it.
pub(crate) trait Publish {
    /// What is stored.
    type Value;

    /// Stores `value`: one store, which comes after all that the writer stored before.
    fn publish(&self, value: Self::Value);
}

impl Publish for AtomicU32 {
    type Value = u32;

    #[inline]
    fn publish(&self, value: u32) {
        self.store(value, Ordering::Release);
        report(self);
    }
}

impl Publish for AtomicU64 {
    type Value = u64;

    #[inline]
    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
        report(self);
    }
}

impl<T> Publish for ArcSwap<T> {
    type Value = Arc<T>;

    #[inline]
    fn publish(&self, value: Arc<T>) {
        self.store(value);
        report(self);
    }
}

#[cfg(not(test))]
#[inline(always)]
fn report<T>(_place: &T) {}

#[cfg(test)]
use observed::report;

/// What a test learns of a writer's stores.
#[cfg(test)]
pub(crate) mod observed {
    use fib::loads::Place;
    use std::cell::RefCell;

    /// What a writer did.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Event {
        /// A store.
        Stored(Place),
        /// A grace period has ended.
        Grace,
    }

    type Observer = Box<dyn FnMut(Event)>;

    thread_local! {
        /// Called with every event of writers on this thread.
        static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// From now on hands what writers on this thread do to `observer`.
    pub(crate) fn observe(observer: impl FnMut(Event) + 'static) {
        OBSERVER.set(Some(Box::new(observer)));
    }

    pub(super) fn report<T>(place: &T) {
        tell(Event::Stored(Place::of(place)));
    }

    /// Hands an event to the observer of this thread.
    pub(crate) fn tell(event: Event) {
        OBSERVER.with_borrow_mut(|observer| observer.iter_mut().for_each(|observer| observer(event)));
    }
}
