//! The primary's writer on a thread of its own.
//!
//! A device that hangs may keep a driver call from ever returning. The control thread therefore asks and waits with a limit; when
//! it gives up, the engine is left to its thread, and neither is waited for again.

use super::{Switch, Why};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use fib::{Capacity, EngineWriter, Isa};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a wait looks whether lookups have given the primary up.
const LOOK: Duration = Duration::from_millis(5);
/// How long a healthy engine may take to free its memory at the end.
const END_LIMIT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut dyn EngineWriter) + Send>;

/// See the module.
pub(super) struct Remote {
    /// `None` once the end has come.
    jobs: Option<Sender<Job>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    isa: Isa,
    isa_name: String,
    capacity: Capacity,
    switch: Arc<Switch>,
}

impl Remote {
    /// Takes the engine over.
    pub(super) fn new(engine: Box<dyn EngineWriter>, switch: Arc<Switch>) -> Self {
        let (jobs, todo) = unbounded::<Job>();
        let (end, ended) = bounded::<()>(0);
        let (isa, isa_name, capacity) = (engine.isa(), engine.isa_name(), engine.capacity());
        let theirs = Arc::clone(&switch);
        // Should the system refuse a thread, every question fails, and the fallback serves.
        let _ = std::thread::Builder::new()
            .name("primary".into())
            .spawn(move || serve(engine, &todo, &theirs, end));
        Self { jobs: Some(jobs), ended, isa, isa_name, capacity, switch }
    }

    /// The instruction set of its lookups.
    pub(super) fn isa(&self) -> Isa {
        self.isa
    }

    /// What a report calls the code of its lookups.
    pub(super) fn isa_name(&self) -> &str {
        &self.isa_name
    }

    /// What it can hold.
    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Asks the engine, and waits for the answer for `limit` at most, or until lookups have given it up.
    ///
    /// # Errors
    /// [`Why`] there is none.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        limit: Duration,
        question: impl FnOnce(&mut dyn EngineWriter) -> T + Send + 'static,
    ) -> Result<T, Why> {
        let (reply, answer) = bounded(1);
        let job: Job = Box::new(move |engine| drop(reply.send(question(engine))));
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            return Err(Why::Died { during });
        }
        let deadline = Instant::now() + limit;
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(Why::Died { during }),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.switch.is_moved() || Instant::now() >= deadline {
                let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
                return Err(Why::Stalled { during, limit_us });
            }
        }
    }
}

/// Answers until nobody asks any more.
fn serve(mut engine: Box<dyn EngineWriter>, todo: &Receiver<Job>, switch: &Switch, end: Sender<()>) {
    for job in todo {
        job(engine.as_mut());
    }
    if switch.is_moved() {
        // Freeing memory of a broken device may never come back; the end of the process frees it.
        std::mem::forget(engine);
    }
    drop(end);
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.jobs = None;
        if !self.switch.is_moved() {
            // Nothing is ever sent: this waits for the thread to end.
            let _ = self.ended.recv_timeout(END_LIMIT);
        }
    }
}
