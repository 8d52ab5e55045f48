//! Grace periods: the last update before which no lookup in flight was submitted, without a lock on the reader's side.
//!
//! Each slot has a *pin* on its own cache line: zero while nothing is in flight, else one more than the last update that had
//! ended on the device when its batch was submitted. Words unlinked by update `u` may be written again when every pin is zero
//! or above `u`: each batch in flight was then submitted after the end of `u`. A slot that is never collected holds back
//! reuse, not the writer.
//!
//! A reader pins, fences, then reads the current table and launches. The writer ends an update on the device, stores its
//! number, fences, then reads the pins. Either the writer sees the pin, or the reader launches after the end of the update.

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Arc, Mutex, PoisonError};
use crossbeam_utils::CachePadded;

type PinWord = CachePadded<AtomicU64>;

#[derive(Debug, Default)]
pub(crate) struct GracePeriods {
    /// The last update that ended on the device.
    finished: CachePadded<AtomicU64>,
    /// Pins of each reader; locked by the control thread only.
    readers: Mutex<Vec<Arc<[PinWord]>>>,
}

#[derive(Debug)]
pub(crate) struct Pins {
    grace: Arc<GracePeriods>,
    slots: Arc<[PinWord]>,
}

impl GracePeriods {
    pub(crate) fn register(self: &Arc<Self>, slots: u16) -> Pins {
        let pins: Arc<[PinWord]> = (0..slots).map(|_| PinWord::default()).collect();
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| Arc::strong_count(reader) > 1); // readers that are gone
        readers.push(Arc::clone(&pins));
        Pins { grace: Arc::clone(self), slots: pins }
    }

    /// Update `update` ended on the device. Returns [`Self::over`].
    pub(crate) fn finish(&self, update: u64) -> u64 {
        self.finished.store(update, Ordering::Release);
        self.over()
    }

    /// The last update that is over: no batch in flight was submitted before its end.
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
    /// Pins `slot` before a batch is submitted and before the current table is read. An existing pin moves on: its batch must
    /// be over on the device, or its answers never read.
    #[inline]
    pub(crate) fn pin(&self, slot: usize) {
        let finished = self.grace.finished.load(Ordering::Acquire);
        // Release: a writer that sees this pin but not the removal of the previous one must know that the earlier batch is over.
        self.slots[slot].store(finished + 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

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
        let grace = Arc::new(GracePeriods::default());
        let pins = grace.register(2);
        assert_eq!(grace.finish(1), 1);
        pins.pin(0); // submitted after the end of 1
        assert_eq!(grace.finish(2), 1);
        pins.pin(1);
        assert_eq!(grace.finish(3), 1);
        pins.unpin(0);
        assert_eq!(grace.over(), 2);
        pins.pin(1); // the next batch
        assert_eq!(grace.over(), 3);
        pins.unpin(1);
        assert_eq!(grace.finish(4), 4);
    }

    #[test]
    fn readers_that_are_gone_hold_nothing_back() {
        let grace = Arc::new(GracePeriods::default());
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
