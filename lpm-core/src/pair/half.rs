//! The writer of one half. A driver call may never return when its device hangs, so a writer that may hang runs on its own thread. The
//! control thread waits for its calls with a limit; after that the engine is left to its thread, and neither is waited for again.

use super::{FIRST, Service, Wait, Why};
use crate::sync::{Arc, thread};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use fib::{EngineError, EngineInfo, EngineWriter, FibDelta, Generation, Rib};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Longer than a full table takes to build on any host. Lookups that stall end the wait earlier.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a wait checks whether lookups have taken the engine out of service.
const POLL: Duration = Duration::from_millis(5);
const END_LIMIT: Duration = Duration::from_secs(10);

type Question = Box<dyn FnOnce(&mut dyn EngineWriter, &mut Rib) + Send>;

/// The writer of one half, and how it is called.
pub struct HalfWriter {
    place: CallPlace,
    info: EngineInfo,
}

enum CallPlace {
    Here(Box<dyn EngineWriter>),
    /// As [`Self::Here`], but a panic is a failure of the engine.
    Guarded(Box<dyn EngineWriter>),
    Thread(EngineThread),
}

impl HalfWriter {
    /// Calls `engine` on the control thread.
    #[must_use]
    pub fn new(engine: Box<dyn EngineWriter>) -> Self {
        Self { info: engine.info(), place: CallPlace::Here(engine) }
    }

    /// `engine` as the [`FIRST`] half: it may panic, and gets its own thread if it may hang.
    #[must_use]
    pub fn guarded(engine: Box<dyn EngineWriter>, service: &Arc<Service>) -> Self {
        let info = engine.info();
        let place = if info.may_hang {
            CallPlace::Thread(EngineThread::new(engine, Arc::clone(service)))
        } else {
            CallPlace::Guarded(engine)
        };
        Self { place, info }
    }

    /// Properties of the engine.
    #[must_use]
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Calls the engine. A call on its own thread may take a minute, and ends early when lookups take the engine out of service.
    ///
    /// # Errors
    /// [`Why`] the call failed.
    pub fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        question: impl FnOnce(&dyn EngineWriter) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Why> {
        match &self.place {
            CallPlace::Here(engine) => {
                question(engine.as_ref()).map_err(|error| Why::Failed { during, error })
            }
            CallPlace::Guarded(engine) => guard(during, || question(engine.as_ref())),
            CallPlace::Thread(thread) => thread.ask(during, |engine, _| question(engine)),
        }
    }

    /// Frees the engine's retired tables, some time later if it has its own thread.
    pub fn free_retired(&mut self) {
        match &mut self.place {
            CallPlace::Here(engine) | CallPlace::Guarded(engine) => engine.free_retired(),
            CallPlace::Thread(thread) => thread.queue(|engine| engine.free_retired()),
        }
    }

    /// Applies `delta`, called as in [`Self::ask`].
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, Why> {
        let during = "apply";
        match &mut self.place {
            CallPlace::Here(engine) => {
                engine.apply(delta, rib).map_err(|error| Why::Failed { during, error })
            }
            CallPlace::Guarded(engine) => guard(during, || engine.apply(delta, rib)),
            CallPlace::Thread(thread) => {
                let delta = delta.clone();
                thread.ask(during, move |engine, rib| {
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

/// Calls an engine that never hangs. After a panic it must not be called again.
fn guard<T>(during: &'static str, call: impl FnOnce() -> Result<T, EngineError>) -> Result<T, Why> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| Why::Died { during })?
        .map_err(|error| Why::Failed { during, error })
}

struct EngineThread {
    /// `None` during the drop.
    questions: Option<Sender<Question>>,
    ended: Receiver<()>,
    service: Arc<Service>,
}

impl EngineThread {
    fn new(engine: Box<dyn EngineWriter>, service: Arc<Service>) -> Self {
        let (questions, todo) = unbounded::<Question>();
        let (end, ended) = bounded::<()>(0);
        let shared = Arc::clone(&service);
        // If the system refuses a thread, every call fails, and the other half serves.
        let _ =
            thread::Builder::new().name("primary".into()).spawn(move || serve(engine, &todo, &shared, end));
        Self { questions: Some(questions), ended, service }
    }

    /// Queues a call whose result is not needed, unless another call is queued.
    fn queue(&self, call: impl FnOnce(&mut dyn EngineWriter) + Send + 'static) {
        if let Some(questions) = self.questions.as_ref().filter(|questions| questions.is_empty()) {
            let question: Question = Box::new(move |engine, _| call(engine));
            drop(questions.send(question));
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        during: &'static str,
        question: impl FnOnce(&mut dyn EngineWriter, &mut Rib) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Why> {
        let (reply, answer) = bounded(1);
        let question: Question = Box::new(move |engine, rib| drop(reply.send(question(engine, rib))));
        if self.questions.as_ref().is_none_or(|questions| questions.send(question).is_err()) {
            return Err(Why::Died { during });
        }
        let mut wait = Wait::default();
        loop {
            match answer.recv_timeout(POLL) {
                Ok(answer) => return answer.map_err(|error| Why::Failed { during, error }),
                Err(RecvTimeoutError::Disconnected) => return Err(Why::Died { during }),
                Err(RecvTimeoutError::Timeout) => {}
            }
            wait.check(during, LIMIT)?;
            if !self.service.has(FIRST) {
                return Err(Why::stalled(during, LIMIT));
            }
        }
    }
}

/// The RIB here holds the engine's own routes: the control thread's RIB keeps changing while this engine hangs.
fn serve(mut engine: Box<dyn EngineWriter>, todo: &Receiver<Question>, service: &Service, end: Sender<()>) {
    let mut rib = Rib::plain();
    while let Ok(question) = todo.recv() {
        question(engine.as_mut(), &mut rib);
    }
    if !service.has(FIRST) {
        // Freeing memory of a broken device may never return; the end of the process frees it.
        std::mem::forget(engine);
    }
    drop(end);
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.questions = None;
        if self.service.has(FIRST) {
            // Nothing is ever sent: this waits until the thread drops the sender.
            let _ = self.ended.recv_timeout(END_LIMIT);
        }
    }
}
