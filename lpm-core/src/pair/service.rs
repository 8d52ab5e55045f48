//! Which engines of a pair are in service, and the outcome of their batches. The caller keeps the keys of a batch
//! until [`Service::outcome`] answers it: if its engine goes out of service, the other one must look them up.

use super::{BOTH, FIRST, SECOND, Wait, Why};
use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, OnceLock};
use fib::EngineError;
use std::fmt;
use std::task::Poll;
use std::time::Duration;

/// Called once for an engine that went out of service, on the thread that noticed. That may be an lcore, so a listener must not wait.
pub type Listener = Box<dyn Fn(&'static str, &Why) + Send + Sync>;

/// The state of a batch that an engine was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome<T> {
    /// The answers.
    Answered(T),
    /// The engine is working on it.
    InFlight,
    /// The engine is out of service: the other one must look it up.
    Lost,
}

/// State shared by the writer and the readers of two engines.
pub struct Service {
    names: [&'static str; 2],
    /// One bit per engine, never 0.
    mask: AtomicU8,
    why: [OnceLock<Why>; 2],
    listener: OnceLock<Listener>,
    again: AtomicU64,
}

impl Service {
    /// Both engines in service, named as on the command line.
    #[must_use]
    pub fn new(names: [&'static str; 2]) -> Arc<Self> {
        Arc::new(Self {
            names,
            mask: AtomicU8::new(BOTH),
            why: [const { OnceLock::new() }; 2],
            listener: OnceLock::new(),
            again: AtomicU64::new(0),
        })
    }

    /// Registers `listener`, unless there is one already.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// The engines' names, first and second.
    #[must_use]
    pub fn names(&self) -> [&'static str; 2] {
        self.names
    }

    /// One bit per engine, the lowest for the first.
    #[inline]
    #[must_use]
    pub fn mask(&self) -> u8 {
        self.mask.load(Ordering::Acquire)
    }

    /// Whether `engine` is in service.
    #[inline]
    #[must_use]
    pub fn has(&self, engine: usize) -> bool {
        self.mask() >> engine & 1 == 1
    }

    /// Why each engine is out of service; `None` if it is in service. At most one is out.
    #[must_use]
    pub fn why(&self) -> [Option<&Why>; 2] {
        [self.why[FIRST].get(), self.why[SECOND].get()]
    }

    /// Takes `engine` out of service for good, and keeps the first reason. The last engine stays in service.
    ///
    /// # Errors
    /// `why`, as the engine's own error, if it is the last one.
    #[cold]
    pub fn fail(&self, engine: usize, why: Why) -> Result<(), EngineError> {
        let without = BOTH & !(1 << engine);
        match self.mask.compare_exchange(BOTH, without, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let why = self.why[engine].get_or_init(|| why);
                if let Some(listener) = self.listener.get() {
                    listener(self.names[engine], why);
                }
                Ok(())
            }
            Err(now) if now >> engine & 1 == 0 => Ok(()),
            Err(_) => Err(why.into_error(self.names[engine])),
        }
    }

    /// Collects a batch from `engine`. An engine that fails, or keeps the caller waiting for `limit`, goes out of service, and answers of
    /// an engine out of service may be from an old table.
    ///
    /// # Errors
    /// As [`Self::fail`].
    #[inline]
    pub fn outcome<T>(
        &self,
        engine: usize,
        wait: &mut Wait,
        limit: Duration,
        collect: impl FnOnce() -> Poll<Result<T, Why>>,
    ) -> Result<BatchOutcome<T>, EngineError> {
        if !self.has(engine) {
            return Ok(BatchOutcome::Lost);
        }
        let why = match collect() {
            Poll::Ready(Ok(answers)) => return Ok(BatchOutcome::Answered(answers)),
            Poll::Ready(Err(why)) => why,
            Poll::Pending => match wait.check("collect", limit) {
                Ok(()) => return Ok(BatchOutcome::InFlight),
                Err(why) => why,
            },
        };
        *wait = Wait::default();
        self.fail(engine, why)?;
        Ok(BatchOutcome::Lost)
    }

    /// Counts keys that are looked up again because their engine went out of service.
    #[cold]
    pub fn count_again(&self, keys: usize) {
        self.again.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// Keys that were looked up again.
    #[must_use]
    pub fn looked_up_again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("names", &self.names)
            .field("why", &self.why())
            .finish_non_exhaustive()
    }
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const WHY: Why = Why::Stalled { during: "collect", limit_us: 7 };
    const PATIENT: Duration = Duration::from_secs(600);

    #[test]
    fn one_engine_can_go_and_the_last_one_stays() {
        let service = Service::new(["a", "b"]);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&calls);
        service.listen(Box::new(move |name, why| record.lock().unwrap().push((name, why.clone()))));
        assert!(service.has(FIRST) && service.has(SECOND));
        assert_eq!(service.fail(SECOND, WHY), Ok(()));
        assert_eq!(service.fail(SECOND, Why::Died { during: "submit" }), Ok(()), "out already");
        assert_eq!(service.why(), [None, Some(&WHY)]);
        let last = EngineError::Device { engine: "a", reason: WHY.to_string(), lost: false };
        assert_eq!(service.fail(FIRST, WHY), Err(last));
        assert!(service.has(FIRST) && !service.has(SECOND));
        assert_eq!(*calls.lock().unwrap(), [("b", WHY)], "called once");
    }

    #[test]
    fn a_batch_is_lost_with_its_engine_and_an_engine_with_its_batch() {
        let service = Service::new(["a", "b"]);
        let mut wait = Wait::default();
        let mut ask = |engine, limit, said| service.outcome(engine, &mut wait, limit, || said);
        assert_eq!(ask(FIRST, PATIENT, Poll::Ready(Ok(7))), Ok(BatchOutcome::Answered(7)));
        assert_eq!(ask(FIRST, PATIENT, Poll::Pending), Ok(BatchOutcome::InFlight));
        assert_eq!(ask(FIRST, Duration::ZERO, Poll::Pending), Ok(BatchOutcome::Lost));
        assert_eq!(service.why(), [Some(&Why::Stalled { during: "collect", limit_us: 0 }), None]);
        assert_eq!(
            ask(FIRST, PATIENT, Poll::Ready(Ok(7))),
            Ok(BatchOutcome::Lost),
            "late answers are not taken"
        );
        assert!(ask(SECOND, PATIENT, Poll::Ready(Err(WHY))).is_err() && service.has(SECOND), "the last one");
    }
}
