//! Both readers of an lcore, and the keys in flight.
//!
//! Invariant: a slot that the primary has keeps its keys in its [`Flight`], so that they can be looked up again. Nothing is
//! allocated after the reader is made.

use fib::engine::lookup_in_slot;
use fib::{EngineError, EngineReader, KeyBuffer, Keys, NextHopId, SlotId};
use lpm_core::failover::{FIRST, Outcome, Service, Wait, Why, complete};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A slot.
struct Flight {
    /// Whether the primary has it; else the fallback.
    on_primary: bool,
    keys: KeyBuffer,
    /// How long the primary has kept the caller waiting.
    wait: Wait,
}

/// See the module.
pub(super) struct FallbackReader {
    /// `None` only while it is being dropped.
    primary: Option<Box<dyn EngineReader>>,
    fallback: Box<dyn EngineReader>,
    flights: Vec<Flight>,
    batch_max: usize,
    service: Arc<Service>,
    stall: Duration,
}

impl FallbackReader {
    /// Over both readers; `stall` is how long the primary may keep a batch.
    pub(super) fn new(
        primary: Box<dyn EngineReader>,
        fallback: Box<dyn EngineReader>,
        service: Arc<Service>,
        stall: Duration,
    ) -> Self {
        let batch_max = primary.batch_max().min(fallback.batch_max());
        let slots = primary.slots().min(fallback.slots());
        let flight = |_| Flight {
            on_primary: false,
            keys: KeyBuffer::with_capacity(batch_max),
            wait: Wait::default(),
        };
        let flights = (0..slots).map(flight).collect();
        Self { primary: Some(primary), fallback, flights, batch_max, service, stall }
    }
}

/// The flight of `slot`.
#[inline]
fn flight(flights: &mut [Flight], slot: SlotId) -> Result<&mut Flight, EngineError> {
    let limit = flights.len();
    // No slot of that number: it holds no key.
    flights.get_mut(usize::from(slot.0)).ok_or(EngineError::Batch { keys: usize::from(slot.0), limit })
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
        let flight = flight(&mut self.flights, slot)?;
        if self.service.has(FIRST)
            && let Some(primary) = &mut self.primary
        {
            match primary.submit(slot, keys) {
                Ok(()) => {
                    (flight.on_primary, flight.wait) = (true, Wait::default());
                    flight.keys.copy_from(keys);
                    return Ok(());
                }
                Err(error) => self.service.fail(FIRST, Why::Failed { during: "submit", error })?,
            }
        }
        flight.on_primary = false;
        self.fallback.submit(slot, keys)
    }

    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
        let flight = match flight(&mut self.flights, slot) {
            Ok(flight) => flight,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if flight.on_primary
            && let Some(primary) = &mut self.primary
        {
            let keys = flight.keys.len();
            let outcome = self.service.outcome(FIRST, &mut flight.wait, self.stall, || {
                primary.collect(slot).map(|answers| complete(answers, keys))
            });
            match outcome {
                Ok(Outcome::Answered(answers)) => return Poll::Ready(Ok(answers)),
                Ok(Outcome::InFlight) => return Poll::Pending,
                Ok(Outcome::Lost) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.service.count_again(keys);
            flight.on_primary = false;
            if let Err(error) = self.fallback.submit(slot, flight.keys.keys()) {
                return Poll::Ready(Err(error));
            }
        }
        self.fallback.collect(slot)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        if self.service.has(FIRST) {
            lookup_in_slot(self, keys, out)
        } else {
            self.fallback.lookup(keys, out)
        }
    }

    fn refresh(&mut self) {
        self.primary.iter_mut().for_each(|primary| primary.refresh());
        self.fallback.refresh();
    }
}

impl Drop for FallbackReader {
    fn drop(&mut self) {
        if !self.service.has(FIRST) {
            // Freeing the slots of a broken device may never come back; the end of the process frees them.
            std::mem::forget(self.primary.take());
        }
    }
}
