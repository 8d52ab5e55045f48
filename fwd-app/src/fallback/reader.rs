//! Both readers of an lcore, and the keys in flight.
//!
//! Invariant: a slot that is [`On::Primary`] has its keys in its [`Flight`], so that they can be looked up again. Nothing is
//! allocated after the reader is made.

use super::{Switch, Why};
use fib::engine::lookup_in_slot;
use fib::{EngineError, EngineReader, KeyBuffer, Keys, NextHopId, SlotId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Where the answers of a slot are to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Primary,
    Fallback,
}

/// A slot.
struct Flight {
    on: On,
    keys: KeyBuffer,
    /// When the primary was first found at work on it.
    since: Option<Instant>,
}

impl Flight {
    fn new(batch_max: usize) -> Self {
        Self { on: On::Fallback, keys: KeyBuffer::with_capacity(batch_max), since: None }
    }

    /// Notes that the primary has `keys`.
    fn keep(&mut self, keys: Keys<'_>) {
        (self.on, self.since) = (On::Primary, None);
        self.keys.copy_from(keys);
    }
}

/// See the module.
pub(super) struct FallbackReader {
    /// `None` only while it is being dropped.
    primary: Option<Box<dyn EngineReader>>,
    fallback: Box<dyn EngineReader>,
    flights: Vec<Flight>,
    batch_max: usize,
    switch: Arc<Switch>,
    stall: Duration,
}

impl FallbackReader {
    /// Over both readers; `stall` is how long the primary may keep a batch.
    pub(super) fn new(
        primary: Box<dyn EngineReader>,
        fallback: Box<dyn EngineReader>,
        switch: Arc<Switch>,
        stall: Duration,
    ) -> Self {
        let batch_max = primary.batch_max().min(fallback.batch_max());
        let slots = primary.slots().min(fallback.slots());
        let flights = (0..slots).map(|_| Flight::new(batch_max)).collect();
        Self { primary: Some(primary), fallback, flights, batch_max, switch, stall }
    }

    fn flight(&mut self, slot: SlotId) -> Result<&mut Flight, EngineError> {
        let slots = self.flights.len();
        // No slot of that number: it holds no key.
        self.flights
            .get_mut(usize::from(slot.0))
            .ok_or(EngineError::Batch { keys: usize::from(slot.0), limit: slots })
    }
}

impl EngineReader for FallbackReader {
    fn slots(&self) -> u16 {
        u16::try_from(self.flights.len()).unwrap_or(u16::MAX)
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        self.flight(slot)?;
        let flight = &mut self.flights[usize::from(slot.0)];
        if !self.switch.is_moved()
            && let Some(primary) = &mut self.primary
        {
            match primary.submit(slot, keys) {
                Ok(()) => {
                    flight.keep(keys);
                    return Ok(());
                }
                Err(error) => self.switch.move_over(Why::Failed { during: "submit", error }),
            }
        }
        flight.on = On::Fallback;
        self.fallback.submit(slot, keys)
    }

    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
        if let Err(error) = self.flight(slot) {
            return Poll::Ready(Err(error));
        }
        let flight = &mut self.flights[usize::from(slot.0)];
        if flight.on == On::Primary
            && let Some(primary) = &mut self.primary
        {
            let keys = flight.keys.len();
            match primary.collect(slot) {
                Poll::Ready(Ok(answers)) if answers.len() == keys => return Poll::Ready(Ok(answers)),
                Poll::Ready(Ok(answers)) => {
                    self.switch.move_over(Why::Short { keys, answers: answers.len() });
                }
                Poll::Ready(Err(error)) => self.switch.move_over(Why::Failed { during: "collect", error }),
                // Given up elsewhere: no reason to wait for the limit here.
                Poll::Pending if self.switch.is_moved() => {}
                Poll::Pending => {
                    if flight.since.get_or_insert_with(Instant::now).elapsed() < self.stall {
                        return Poll::Pending;
                    }
                    let limit_us = u64::try_from(self.stall.as_micros()).unwrap_or(u64::MAX);
                    self.switch.move_over(Why::Stalled { during: "collect", limit_us });
                }
            }
            self.switch.again.fetch_add(keys as u64, Ordering::Relaxed);
            flight.on = On::Fallback;
            if let Err(error) = self.fallback.submit(slot, flight.keys.keys()) {
                return Poll::Ready(Err(error));
            }
        }
        self.fallback.collect(slot)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        if self.switch.is_moved() {
            return self.fallback.lookup(keys, out);
        }
        lookup_in_slot(self, keys, out)
    }
}

impl Drop for FallbackReader {
    fn drop(&mut self) {
        if self.switch.is_moved() {
            // Freeing the slots of a broken device may never come back; the end of the process frees them.
            std::mem::forget(self.primary.take());
        }
    }
}
