//! A second engine that takes over when the first fails: `--fallback`.
//!
//! A [`Fallback`] is a [`Pair`] that acts as one engine. Both halves get every delta, the fallback first: only it can refuse one, before
//! either has changed. The primary answers until it is absent, refuses a delta, fails, or keeps a batch longer than a limit; after that
//! the fallback answers for good. The caller keeps the keys of a batch, so those in flight at the switch are looked up again on the fallback.
//!
//! A primary that did not take a delta is out of service, so the contract on generations holds across the switch.

use super::lane::ReaderLane;
use super::reader::{PairReader, Split};
use super::{FIRST, HalfWriter, Listener, Pair, SECOND, Service, Why};
use crate::sync::Arc;
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family, FibDelta, Generation, Rib,
};
use std::time::Duration;

/// The first half is the primary, if it could be made, the second one the fallback.
pub struct Fallback {
    pair: Pair,
    stall: Duration,
}

impl Fallback {
    /// Puts `fallback` behind `primary`, which is called `name`; both are empty. If a device kept `primary` from being made, the fallback
    /// is in service at once. A batch may take `stall`. `listener` is called when the fallback takes over.
    ///
    /// # Errors
    /// The error of `primary` if the user has to correct it: an unknown name, a wrong parameter.
    pub fn new(
        name: &'static str,
        primary: Result<Box<dyn EngineWriter>, EngineError>,
        fallback: Box<dyn EngineWriter>,
        stall: Duration,
        listener: Listener,
    ) -> Result<Self, EngineError> {
        let fallback = HalfWriter::new(fallback);
        let service = Service::new([name, fallback.info().name]);
        service.listen(listener);
        let primary = match primary {
            Ok(primary) => Some(HalfWriter::guarded(primary, &service)),
            Err(error) if is_device_trouble(&error) => {
                service.fail(FIRST, Why::Absent(error))?;
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self { pair: Pair::new(service, primary, fallback), stall })
    }

    /// The state of both engines; [`FIRST`] is the primary.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        self.pair.service()
    }

    fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        question: impl FnOnce(&dyn EngineWriter) -> Result<T, EngineError> + Send + 'static,
    ) -> Option<T> {
        let service = self.service();
        let primary = self.pair.first().filter(|_| service.has(FIRST))?;
        // The fallback never goes out of service, so the primary is not the last engine.
        primary.ask(during, question).map_err(|why| service.fail(FIRST, why)).ok()
    }
}

/// Whether a device kept the engine from being made: then the fallback serves.
fn is_device_trouble(error: &EngineError) -> bool {
    matches!(error, EngineError::NoDevice { .. } | EngineError::Device { .. } | EngineError::Memory { .. })
}

impl EngineWriter for Fallback {
    /// As [`Pair::info`]. A primary that may hang has its own thread.
    fn info(&self) -> EngineInfo {
        EngineInfo { may_hang: false, ..self.pair.info() }
    }

    /// A delta that the fallback refuses is refused; one that only the primary refuses puts the fallback in service.
    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.pair.apply([SECOND, FIRST], Some(SECOND), delta, rib)
    }

    fn free_retired(&mut self) {
        self.pair.free_retired();
    }

    fn generation(&self) -> Generation {
        self.pair.generation()
    }

    fn stats(&self) -> EngineStats {
        let stats = |engine: &dyn EngineWriter| Ok(engine.stats());
        self.ask("stats", stats).or_else(|| self.pair.second().ask("stats", stats).ok()).unwrap_or_default()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let fallback = self.pair.second();
        let made = fallback.ask("reader", move |engine| engine.reader(slots, batch_max));
        let fallback = made.map_err(|why| why.into_error(fallback.info().name))?;
        let slots = PairReader::<Whole>::flights(slots);
        let Some(primary) = self.ask("reader", move |primary| primary.reader(slots, batch_max)) else {
            return Ok(fallback);
        };
        let lanes = [ReaderLane::Slots(primary), ReaderLane::Inline(fallback)];
        Ok(Box::new(PairReader::new(lanes, Whole, self.service(), (slots, batch_max), self.stall)))
    }
}

struct Whole;

impl Split for Whole {
    const CUTS: bool = false;

    fn cut(&mut self, _: Family, len: usize) -> usize {
        len
    }
}
