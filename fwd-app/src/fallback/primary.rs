//! The primary's writer.
//!
//! A device that hangs may keep a driver call from ever returning. A writer that may hang therefore has a thread of its own: the control
//! thread asks it and waits with a limit; when it gives up, the engine is left to its thread, and neither is waited for again.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use fib::{EngineError, EngineInfo, EngineWriter, FibDelta, Generation, Rib};
use lpm_core::failover::{FIRST, Service, Wait, Why};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How often a wait looks whether lookups have given the primary up.
const LOOK: Duration = Duration::from_millis(5);
/// How long a healthy engine may take to free its memory at the end.
const END_LIMIT: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut dyn EngineWriter, &mut Rib) + Send>;

/// See the module.
pub(super) struct Primary {
    writer: Writer,
    pub(super) info: EngineInfo,
}

enum Writer {
    /// Called on the control thread.
    Here(RefCell<Box<dyn EngineWriter>>),
    /// On a thread of its own.
    Remote(Remote),
}

impl Primary {
    /// Takes the engine over.
    pub(super) fn new(engine: Box<dyn EngineWriter>, service: &Arc<Service>) -> Self {
        let info = engine.info();
        let writer = if info.may_hang {
            Writer::Remote(Remote::new(engine, Arc::clone(service)))
        } else {
            Writer::Here(RefCell::new(engine))
        };
        Self { writer, info }
    }

    /// Asks the engine. One that may hang is waited for for `limit` at most, or until lookups have given it up.
    ///
    /// # Errors
    /// [`Why`] there is no answer.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        limit: Duration,
        question: impl FnOnce(&mut dyn EngineWriter) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Why> {
        match &self.writer {
            Writer::Here(engine) => here(during, engine, question),
            Writer::Remote(remote) => remote.ask(during, limit, |engine, _| question(engine)),
        }
    }

    /// Has the engine free what it has retired, some time.
    pub(super) fn free_retired(&self) {
        match &self.writer {
            Writer::Here(engine) => engine.borrow_mut().free_retired(),
            Writer::Remote(remote) => remote.tell(|engine| engine.free_retired()),
        }
    }

    /// As [`Self::ask`]: has the engine apply `delta`.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn apply(&self, limit: Duration, delta: &FibDelta, rib: &Rib) -> Result<Generation, Why> {
        match &self.writer {
            Writer::Here(engine) => here("apply", engine, |engine| engine.apply(delta, rib)),
            Writer::Remote(remote) => {
                let delta = delta.clone();
                remote.ask("apply", limit, move |engine, rib| {
                    for change in &delta.v4 {
                        rib.v4.set(change.prefix, change.new);
                    }
                    for change in &delta.v6 {
                        rib.v6.set(change.prefix, change.new);
                    }
                    rib.commit_to(engine)
                })
            }
        }
    }
}

/// Asks an engine that never hangs; one that panics is not asked again.
fn here<T>(
    during: &'static str,
    engine: &RefCell<Box<dyn EngineWriter>>,
    question: impl FnOnce(&mut dyn EngineWriter) -> Result<T, EngineError>,
) -> Result<T, Why> {
    catch_unwind(AssertUnwindSafe(|| question(engine.borrow_mut().as_mut())))
        .map_err(|_| Why::Died { during })?
        .map_err(|error| Why::Failed { during, error })
}

/// A thread with an engine.
struct Remote {
    /// `None` once the end has come.
    jobs: Option<Sender<Job>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    service: Arc<Service>,
}

impl Remote {
    fn new(engine: Box<dyn EngineWriter>, service: Arc<Service>) -> Self {
        let (jobs, todo) = unbounded::<Job>();
        let (end, ended) = bounded::<()>(0);
        let theirs = Arc::clone(&service);
        // Should the system refuse a thread, every question fails, and the fallback serves.
        let _ = std::thread::Builder::new()
            .name("primary".into())
            .spawn(move || serve(engine, &todo, &theirs, end));
        Self { jobs: Some(jobs), ended, service }
    }

    /// Has the thread do something that nobody waits for, unless it has something to do.
    fn tell(&self, what: impl FnOnce(&mut dyn EngineWriter) + Send + 'static) {
        if let Some(jobs) = self.jobs.as_ref().filter(|jobs| jobs.is_empty()) {
            let job: Job = Box::new(move |engine, _| what(engine));
            drop(jobs.send(job));
        }
    }

    /// See [`Primary::ask`].
    fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        limit: Duration,
        question: impl FnOnce(&mut dyn EngineWriter, &mut Rib) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Why> {
        let (reply, answer) = bounded(1);
        let job: Job = Box::new(move |engine, rib| drop(reply.send(question(engine, rib))));
        if self.jobs.as_ref().is_none_or(|jobs| jobs.send(job).is_err()) {
            return Err(Why::Died { during });
        }
        let mut wait = Wait::default();
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return answer.map_err(|error| Why::Failed { during, error }),
                Err(RecvTimeoutError::Disconnected) => return Err(Why::Died { during }),
                Err(RecvTimeoutError::Timeout) => {}
            }
            wait.check(during, limit)?;
            if !self.service.has(FIRST) {
                return Err(Why::stalled(during, limit));
            }
        }
    }
}

/// Serves jobs until the sender is gone. The RIB here holds the engine's own routes: the control thread's goes on changing while this one
/// hangs.
fn serve(mut engine: Box<dyn EngineWriter>, todo: &Receiver<Job>, service: &Service, end: Sender<()>) {
    let mut rib = Rib::plain();
    for job in todo {
        job(engine.as_mut(), &mut rib);
    }
    if !service.has(FIRST) {
        // Freeing memory of a broken device may never come back; the end of the process frees it.
        std::mem::forget(engine);
    }
    drop(end);
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.jobs = None;
        if self.service.has(FIRST) {
            // Nothing is ever sent: this waits for the thread to end.
            let _ = self.ended.recv_timeout(END_LIMIT);
        }
    }
}
