//! Grace periods: the writer waits until every batch that could have seen the old state has ended.
//!
//! A reader's counter is odd while a batch runs. Readers never wait: entering is one exchange per batch, and an idle reader costs nothing.

use crate::sync::atomic::{AtomicU64, Ordering, fence, fence_after_exchange};
use crate::sync::{Arc, LOOKS_A_YIELD, Mutex, PoisonError, hint, thread};
use crossbeam_utils::CachePadded;

/// The registered readers of one writer.
#[derive(Debug, Default)]
pub struct Epochs {
    readers: Mutex<Vec<Arc<Counter>>>,
}

type Counter = CachePadded<AtomicU64>;

/// A reader's counter.
#[derive(Debug)]
pub struct ReaderEpoch {
    counter: Arc<Counter>,
}

impl Epochs {
    /// Registers a new reader.
    pub fn register(&self) -> ReaderEpoch {
        let counter = Arc::new(Counter::default());
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| Arc::strong_count(reader) > 1); // removes dropped readers
        readers.push(Arc::clone(&counter));
        ReaderEpoch { counter }
    }

    /// Waits until every batch in progress has ended. Batches that begin later see all stores that the writer made before the call.
    pub fn synchronize(&self) {
        // Pairs with the exchange of `enter`: either the batch sees the stores, or this call sees the batch.
        fence(Ordering::SeqCst);
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        for reader in readers.iter() {
            let seen = reader.load(Ordering::Acquire);
            let mut spins = 0_u32;
            while seen % 2 == 1 && reader.load(Ordering::Acquire) == seen {
                spins += 1;
                // A reader may share this CPU: let it finish its batch.
                if spins.is_multiple_of(LOOKS_A_YIELD) { thread::yield_now() } else { hint::spin_loop() }
            }
        }
    }
}

impl ReaderEpoch {
    /// Marks a batch as running until the guard is dropped.
    #[inline]
    pub fn enter(&mut self) -> Batch<'_> {
        let inside = self.counter.load(Ordering::Relaxed) + 1;
        // On x86 an exchange is a full barrier, as a store and a fence would be.
        self.counter.swap(inside, Ordering::SeqCst);
        fence_after_exchange();
        Batch { counter: &self.counter, inside }
    }
}

/// A running batch.
pub struct Batch<'a> {
    counter: &'a Counter,
    inside: u64,
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counter.store(self.inside + 1, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_grace_period_outlasts_running_batches_and_ignores_idle_readers() {
        let epochs = Arc::new(Epochs::default());
        let _idle = epochs.register();
        let mut reader = epochs.register();
        epochs.synchronize(); // no reader is inside
        let over = Arc::new(AtomicBool::new(false));
        let batch = reader.enter();
        let waiting = std::thread::spawn({
            let (epochs, over) = (Arc::clone(&epochs), Arc::clone(&over));
            move || {
                epochs.synchronize();
                over.load(Ordering::SeqCst)
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        over.store(true, Ordering::SeqCst);
        drop(batch);
        assert!(waiting.join().unwrap(), "the grace period ended while a batch ran");
    }

    #[test]
    fn readers_that_are_gone_are_forgotten() {
        let epochs = Epochs::default();
        for _ in 0..100 {
            drop(epochs.register());
        }
        assert!(epochs.readers.lock().unwrap().len() <= 2);
    }
}
