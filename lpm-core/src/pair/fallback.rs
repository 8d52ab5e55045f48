//! A second engine that takes over when the first fails: `--fallback`.
//!
//! [`Fallback`] looks like one engine. It is a [`Pair`], both halves kept up to date with the same deltas: the primary answers until it is
//! absent, refuses a delta, fails, or keeps a batch longer than a limit; from then on, and for good, the fallback. The datapath stays
//! as it is: keys in flight are looked up again on the fallback, so that no packet is lost.
//!
//! ```text
//! apply:   fallback first, then primary      a delta is refused only by the fallback, with nothing changed in either
//! submit:  primary, keys kept a slot         after the switch: fallback
//! collect: primary                           failed, stalled or switched: the kept keys to the fallback
//! ```
//! The promise on generations holds across the switch. While a delta goes in, either generation is right; once `apply` has
//! returned, whichever engine answers has the delta, because a primary that did not take it is out of service by then. What was
//! in flight is answered from the fallback as it is at `collect`.

use super::lane::ReaderLane;
use super::reader::{PairReader, Split};
use super::{FIRST, HalfWriter, Listener, Pair, SECOND, Service, Why};
use crate::sync::Arc;
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, Family, FibDelta, Generation, Rib,
};
use std::time::Duration;

/// See the module. The first half is the primary, if it could be made, the second one the fallback.
pub struct Fallback {
    pair: Pair,
    stall: Duration,
}

impl Fallback {
    /// `primary` with `fallback` behind it, both empty. `name` is the primary's; when its device is what kept it from being made, the
    /// fallback is in service at once. `stall`: how long a batch may take. `listener` is told when the fallback takes over.
    ///
    /// # Errors
    /// The error of `primary` when it is the user's to mend: an unknown name, a wrong parameter.
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

    /// Which engine answers; the [`FIRST`] is the primary.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        self.pair.service()
    }

    /// Asks the primary for something, if it is in service. When it does not give it, the fallback is in service from then on.
    fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        question: impl FnOnce(&dyn EngineWriter) -> Result<T, EngineError> + Send + 'static,
    ) -> Option<T> {
        let service = self.service();
        let primary = self.pair.first().filter(|_| service.has(FIRST))?;
        // The fallback is never out of service, so the primary is not the last.
        primary.ask(during, question).map_err(|why| service.fail(FIRST, why)).ok()
    }
}

/// Whether an engine that cannot be made has a device to blame: that is what a fallback is for.
fn is_device_trouble(error: &EngineError) -> bool {
    matches!(error, EngineError::NoDevice { .. } | EngineError::Device { .. } | EngineError::Memory { .. })
}

impl EngineWriter for Fallback {
    /// As [`Pair::info`]. A primary that may hang does so on a thread of its own.
    fn info(&self) -> EngineInfo {
        EngineInfo { may_hang: false, ..self.pair.info() }
    }

    /// As any engine's. A delta that the fallback cannot hold is refused; one that only the primary cannot hold puts the fallback
    /// in service.
    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.pair.apply([SECOND, FIRST], Some(SECOND), delta, rib)
    }

    fn free_retired(&mut self) {
        self.pair.free_retired();
    }

    fn generation(&self) -> Generation {
        self.pair.generation()
    }

    /// Of the engine in service.
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

/// Every batch goes to the primary.
struct Whole;

impl Split for Whole {
    const CUTS: bool = false;

    fn cut(&mut self, _: Family, len: usize) -> usize {
        len
    }
}
