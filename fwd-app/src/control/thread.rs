//! The threads beside the lcores, and the control thread among them, on which a session works while the main lcore forwards.
//!
//! The threads of the control socket and of the feeds start before EAL, which pins the main thread, and before it is known which CPUs
//! lcores have. So each thread that [`spawn`] has started is moved to the CPUs that no lcore has once they are known ([`keep_to`]), and one
//! that starts later moves there by itself. Threads that these start in turn have the CPUs that theirs had then.
//!
//! An engine's `apply` may wait for running lookups, and the main lcore may be the one that looks up. So a session whose routes
//! change while packets flow works on a thread of its own. Nobody waits for that thread before the end of the run.

use anyhow::Context as _;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// The threads that [`spawn`] has started and that have not ended, and their CPUs.
struct Beside {
    threads: Vec<Pid>,
    /// `None` before [`keep_to`]: any CPU.
    cpus: Option<CpuSet>,
}

static BESIDE: Mutex<Beside> = Mutex::new(Beside { threads: Vec::new(), cpus: None });

/// Does `change` to [`BESIDE`]. A thread that panicked there has left it whole.
fn beside<R>(change: impl FnOnce(&mut Beside) -> R) -> R {
    change(&mut BESIDE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A thread in [`Beside::threads`].
struct Listed(Pid);

impl Listed {
    /// This one, which moves to the CPUs for such threads.
    fn this() -> Self {
        let thread = gettid();
        beside(|beside| {
            beside.threads.push(thread);
            // Without effect if the system refuses.
            let _ = beside.cpus.map(|cpus| sched_setaffinity(None, &cpus));
        });
        Self(thread)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        beside(|beside| beside.threads.retain(|thread| *thread != self.0));
    }
}

/// Starts the thread `name` beside the lcores.
///
/// # Errors
/// When the system refuses a thread.
pub(super) fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _listed = Listed::this();
        work()
    })
}

/// Lets all threads beside the lcores run on `cpus` alone, those that run and those that start later. Without effect if the system
/// refuses.
pub(crate) fn keep_to(cpus: &[u16]) {
    let mut set = CpuSet::new();
    let known = cpus.iter().map(|cpu| usize::from(*cpu)).filter(|cpu| *cpu < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(cpu));
    beside(|beside| {
        for thread in &beside.threads {
            let _ = sched_setaffinity(Some(*thread), &set);
        }
        beside.cpus = Some(set);
    });
}

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
    /// Moves `tables` to the control thread, which does `work`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(
        mut tables: T,
        work: impl FnOnce(&mut T, &Told) -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let told = Arc::new(Told::default());
        let theirs = Arc::clone(&told);
        let run = move || {
            // The tables survive a panic, since the report needs them.
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut tables, &theirs)));
            let result = result.unwrap_or_else(|panic| {
                theirs.panicked.store(true, Ordering::Release);
                let message = dpdk_ffi::panic_message(panic.as_ref());
                Err(anyhow::anyhow!("the control thread panicked: {message}"))
            });
            (tables, result)
        };
        Ok(Self { thread: spawn("control", run).context("cannot start the control thread")?, told })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Session;
    use crate::control::test_session::session;
    use crossbeam_channel::bounded;
    use rustix::thread::sched_getaffinity;
    use rusty_fork::rusty_fork_test;

    #[test]
    fn work_ends_when_it_is_told_to_and_gives_the_session_back() {
        let work = |session: &mut Session, told: &Told| {
            while !told.is_stopping() {
                std::thread::yield_now();
            }
            session.commit().map(drop)
        };
        let (session, result) = ControlThread::start(session(), work).unwrap().stop().unwrap();
        assert!(result.is_ok() && !session.rib().is_empty());
    }

    #[test]
    fn a_panic_leaves_the_session_and_says_so() {
        let thread =
            ControlThread::start(session(), |_, _| panic!("an invariant, broken on purpose")).unwrap();
        while !thread.has_panicked() {
            std::thread::yield_now();
        }
        let (session, result) = thread.stop().unwrap();
        assert!(result.unwrap_err().to_string().ends_with("panicked: an invariant, broken on purpose"));
        assert!(!session.rib().is_empty());
    }

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 30_000)]

        // In a process of its own: it is about all threads of a process.
        #[test]
        fn threads_from_before_and_from_after_run_on_the_cpus_for_them() {
            let allowed = fib::host::Host::here().cpus_allowed();
            let last = *allowed.last().unwrap();
            let cpus = |thread| {
                let set = sched_getaffinity(Some(thread)).unwrap();
                (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>()
            };
            let start = || {
                let (stop, stopped) = bounded::<()>(0);
                let (sender, thread) = bounded(1);
                let work = move || {
                    sender.send(gettid()).unwrap();
                    let _ = stopped.recv();
                };
                let handle = spawn("beside", work).unwrap();
                (stop, handle, thread.recv().unwrap())
            };
            let before = start();
            assert_eq!(cpus(before.2).len(), allowed.len());
            keep_to(&[last]);
            let after = start();
            for (stop, handle, thread) in [before, after] {
                assert_eq!(cpus(thread), [usize::from(last)]);
                drop(stop);
                handle.join().unwrap();
            }
            assert_eq!(cpus(gettid()).len(), allowed.len(), "this one is none of them");
            assert!(beside(|beside| beside.threads.is_empty()));
        }
    }
}
