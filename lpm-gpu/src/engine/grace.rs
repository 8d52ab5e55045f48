//! Grace periods: which updates no lookup in flight was submitted before, learnt without a lock on the reader's side.
//!
//! Each slot has a *pin* on a cache line of its own: zero while nothing is in flight, else one more than the number of the
//! last update that was finished on the device when its batch was submitted. What update `u` unlinked may be written again
//! once every pin is zero or above `u`: each batch in flight was then submitted after `u` was finished. A slot whose answers
//! nobody collects holds back reuse, never the writer.
//!
//! Order of things. A reader pins, fences, then reads which table is in service and launches. The writer finishes an update on
//! the device, stores its number, fences, then reads the pins. Either the writer sees the pin, or the reader's launch comes
//! after the update was finished.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, PoisonError};
use crossbeam_utils::CachePadded;

type PinWord = CachePadded<AtomicU64>;

/// The updates of an engine, and the pins of its readers' slots.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    /// The last update that is finished on the device.
    finished: CachePadded<AtomicU64>,
    /// The pins, a list a reader; taken by the control thread only.
    readers: Mutex<Vec<Arc<[PinWord]>>>,
}

/// The pins of one reader's slots.
#[derive(Debug)]
pub(crate) struct Pins {
    grace: Arc<Grace>,
    slots: Arc<[PinWord]>,
}

impl Grace {
    /// Pins for a new reader of `slots` slots.
    pub(crate) fn register(self: &Arc<Self>, slots: u16) -> Pins {
        let pins: Arc<[PinWord]> = (0..slots).map(|_| PinWord::default()).collect();
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| Arc::strong_count(reader) > 1); // readers that are gone
        readers.push(Arc::clone(&pins));
        Pins { grace: Arc::clone(self), slots: pins }
    }

    /// Update `update` is finished on the device. Returns the last update that is over: no batch in flight was submitted
    /// before it was finished.
    pub(crate) fn finish(&self, update: u64) -> u64 {
        self.finished.store(update, Ordering::Release);
        self.over()
    }

    /// The last update that is over.
    pub(crate) fn over(&self) -> u64 {
        fence(Ordering::SeqCst);
        let finished = self.finished.load(Ordering::Acquire);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| Arc::strong_count(reader) > 1);
        let pins = readers.iter().flat_map(|reader| reader.iter());
        let pins = pins.map(|pin| pin.load(Ordering::Acquire)).filter(|pin| *pin != 0);
        pins.map(|pin| pin - 1).fold(finished, u64::min)
    }
}

impl Pins {
    /// A batch is about to be submitted to `slot`; call before the table in service is read. A pin that is there is moved
    /// on: the batch it stood for must be over on the device, or never to be read.
    #[inline]
    pub(crate) fn pin(&self, slot: usize) {
        let finished = self.grace.finished.load(Ordering::Acquire);
        // Release: a writer that sees this pin, and not that the one before was taken away, must know that batch to be over.
        self.slots[slot].store(finished + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The answers of `slot` have been collected.
    #[inline]
    pub(crate) fn unpin(&self, slot: usize) {
        self.slots[slot].store(0, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_batch_in_flight_holds_back_the_updates_after_it() {
        let grace = Arc::new(Grace::default());
        let pins = grace.register(2);
        assert_eq!(grace.finish(1), 1);
        pins.pin(0); // submitted when 1 was finished
        assert_eq!(grace.finish(2), 1);
        pins.pin(1);
        assert_eq!(grace.finish(3), 1);
        pins.unpin(0);
        assert_eq!(grace.over(), 2);
        pins.pin(1); // handed another batch
        assert_eq!(grace.over(), 3);
        pins.unpin(1);
        assert_eq!(grace.finish(4), 4);
    }

    #[test]
    fn readers_that_are_gone_hold_nothing_back() {
        let grace = Arc::new(Grace::default());
        let pins = grace.register(1);
        pins.pin(0);
        assert_eq!(grace.finish(7), 0);
        drop(pins);
        assert_eq!(grace.over(), 7);
        for _ in 0..100 {
            drop(grace.register(3));
        }
        assert!(grace.readers.lock().unwrap().len() <= 2);
    }
}
