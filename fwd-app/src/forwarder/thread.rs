//! The control thread, which changes a forwarder's routes and ports while the main lcore forwards.
//!
//! An engine's `apply` may wait for running lookups, and the main lcore may be running them. Route changes therefore run on a separate
//! thread, which no other thread waits for before the end of the run.

use crate::threads::{join_within, spawn};
use anyhow::Context as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the end of the process waits for the control thread. A step of it takes seconds at most: the commit of a full table. The service
/// manager kills a process that takes 30 s to stop (`fwd-app.service`).
const END_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct StopFlag {
    is_set: AtomicBool,
    panicked: AtomicBool,
}

impl StopFlag {
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

pub(crate) struct ControlThread<T> {
    thread: JoinHandle<(T, anyhow::Result<()>)>,
    stop: Arc<StopFlag>,
}

impl<T: Send + 'static> ControlThread<T> {
    /// Moves `tables` to the control thread, which runs `work`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        mut tables: T,
        work: impl FnOnce(&mut T, &StopFlag) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let stop = Arc::new(StopFlag::default());
        let theirs = Arc::clone(&stop);
        let run = move || {
            // Keep the tables after a panic: the report needs them.
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut tables, &theirs)));
            let result = result.unwrap_or_else(|panic| {
                theirs.panicked.store(true, Ordering::Release);
                let message = dpdk_ffi::panic_message(panic.as_ref());
                Err(anyhow::anyhow!("the control thread panicked: {message}"))
            });
            (tables, result)
        };
        Ok(Self { thread: spawn("control", run).context("cannot start the control thread")?, stop })
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.stop.panicked.load(Ordering::Acquire)
    }

    /// Asks the work to end, waits for it, and returns the tables and the result of the work.
    ///
    /// # Errors
    /// When the thread panicked outside the work, or has not ended after [`END_LIMIT`]. The tables are lost then.
    pub(crate) fn stop(self) -> anyhow::Result<(T, anyhow::Result<()>)> {
        self.stop_within(END_LIMIT)
    }

    fn stop_within(self, limit: Duration) -> anyhow::Result<(T, anyhow::Result<()>)> {
        self.stop.is_set.store(true, Ordering::Release);
        let ended = join_within(self.thread, limit)
            .map_err(|_| anyhow::anyhow!("the control thread has not ended after {} s", limit.as_secs()))?;
        ended.map_err(|_| anyhow::anyhow!("the control thread has panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::Forwarder;
    use crate::forwarder::test_forwarder::forwarder;

    #[test]
    fn work_ends_when_it_is_asked_to_and_gives_the_forwarder_back() {
        let work = |forwarder: &mut Forwarder, stop: &StopFlag| {
            while !stop.is_stopping() {
                std::thread::yield_now();
            }
            forwarder.commit()
        };
        let (forwarder, result) = ControlThread::start(forwarder(), work).unwrap().stop().unwrap();
        assert!(result.is_ok() && !forwarder.main().rib().is_empty());
    }

    #[test]
    fn work_that_does_not_end_is_an_error() {
        let (_blocked, wait) = crossbeam_channel::bounded::<()>(0);
        let thread = ControlThread::start((), move |(), _| {
            let _ = wait.recv();
            Ok(())
        });
        let why = thread.unwrap().stop_within(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(why.contains("has not ended"), "{why}");
    }

    #[test]
    fn a_panic_leaves_the_forwarder_and_says_so() {
        let thread =
            ControlThread::start(forwarder(), |_, _| panic!("an invariant, broken on purpose")).unwrap();
        while !thread.has_panicked() {
            std::thread::yield_now();
        }
        let (forwarder, result) = thread.stop().unwrap();
        assert!(result.unwrap_err().to_string().ends_with("panicked: an invariant, broken on purpose"));
        assert!(!forwarder.main().rib().is_empty());
    }
}
