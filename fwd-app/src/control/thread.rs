//! The control thread, on which a session works while the main lcore forwards.
//!
//! An engine's `apply` may wait for running lookups, and the main lcore may be the one that looks up. So a session whose routes
//! change while packets flow works on a thread of its own. Nobody waits for that thread before the end of the run.

use anyhow::Context as _;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

/// Flags shared by the control thread and its owner.
#[derive(Debug, Default)]
pub(crate) struct Told {
    stop: AtomicBool,
    panicked: AtomicBool,
}

impl Told {
    /// Whether the work is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Tables on the control thread: the sessions of a forwarder.
pub(crate) struct ControlThread<T> {
    thread: JoinHandle<(T, anyhow::Result<()>)>,
    told: Arc<Told>,
}

impl<T: Send + 'static> ControlThread<T> {
    /// Moves `tables` to the control thread, which does `work` on the CPUs `cpus`, or on those of this thread if there are none.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        mut tables: T,
        cpus: Vec<u16>,
        work: impl FnOnce(&mut T, &Told) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let told = Arc::new(Told::default());
        let theirs = Arc::clone(&told);
        let run = move || {
            pin(&cpus);
            // The tables survive a panic, since the report needs them.
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut tables, &theirs)));
            let result = result.unwrap_or_else(|panic| {
                theirs.panicked.store(true, Ordering::Release);
                let message = dpdk_ffi::panic_message(panic.as_ref());
                Err(anyhow::anyhow!("the control thread panicked: {message}"))
            });
            (tables, result)
        };
        let thread = Builder::new().name("control".into()).spawn(run);
        Ok(Self { thread: thread.context("cannot start the control thread")?, told })
    }

    /// Whether the work has panicked.
    pub(crate) fn has_panicked(&self) -> bool {
        self.told.panicked.load(Ordering::Acquire)
    }

    /// Asks the work to end, waits for it, and returns the tables and the result of the work.
    ///
    /// # Errors
    /// When the thread panicked outside the work, and the tables are lost.
    pub(crate) fn stop(self) -> anyhow::Result<(T, anyhow::Result<()>)> {
        self.told.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| anyhow::anyhow!("the control thread has panicked"))
    }
}

/// Lets this thread run on `cpus` alone. Without effect if there are none, or if the system refuses.
pub(super) fn pin(cpus: &[u16]) {
    if !cpus.is_empty() {
        let mut set = CpuSet::new();
        cpus.iter()
            .filter(|cpu| usize::from(**cpu) < CpuSet::MAX_CPU)
            .for_each(|cpu| set.set(usize::from(*cpu)));
        let _ = sched_setaffinity(None, &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Session;
    use crate::control::test_session::session;

    #[test]
    fn work_ends_when_it_is_told_to_and_gives_the_session_back() {
        let work = |session: &mut Session, told: &Told| {
            while !told.is_stopping() {
                std::thread::yield_now();
            }
            session.commit().map(drop)
        };
        let (session, result) = ControlThread::start(session(), vec![0], work).unwrap().stop().unwrap();
        assert!(result.is_ok() && !session.rib().is_empty());
    }

    #[test]
    fn a_panic_leaves_the_session_and_says_so() {
        let thread =
            ControlThread::start(session(), vec![], |_, _| panic!("an invariant, broken on purpose"))
                .unwrap();
        while !thread.has_panicked() {
            std::thread::yield_now();
        }
        let (session, result) = thread.stop().unwrap();
        assert!(result.unwrap_err().to_string().ends_with("panicked: an invariant, broken on purpose"));
        assert!(!session.rib().is_empty());
    }
}
