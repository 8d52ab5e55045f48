//! The threads beside the lcores, and their CPUs.
//!
//! The threads of the control socket and of the feeds start before EAL, which pins the main thread, and before it is known which CPUs
//! lcores have. So each thread that [`spawn`] has started is moved to the CPUs that no lcore has once they are known ([`keep_to`]), and one
//! that starts later moves there by itself. Threads that these start in turn have the CPUs that theirs had then.
//!
//! A [`Heartbeat`] shows other threads whether the loop of a thread, or of an lcore, still runs, and in which step it is.

use crate::notice;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A step of a loop that takes longer is worth a warning.
const STEP_LATE: Duration = Duration::from_secs(1);

/// The threads that [`spawn`] has started and that have not ended, and their CPUs.
struct OtherThreads {
    threads: Vec<Pid>,
    /// `None` before [`keep_to`]: any CPU.
    cpus: Option<CpuSet>,
}

static BESIDE: Mutex<OtherThreads> = Mutex::new(OtherThreads { threads: Vec::new(), cpus: None });

/// Does `change` to [`BESIDE`]. A thread that panicked there has left it whole.
fn beside<R>(change: impl FnOnce(&mut OtherThreads) -> R) -> R {
    change(&mut BESIDE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A thread in [`OtherThreads::threads`].
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
pub(crate) fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _listed = Listed::this();
        work()
    })
}

/// Waits for a thread, at most for `limit`.
///
/// # Errors
/// The thread, if it has not ended by then.
pub(crate) fn join_within<R>(
    thread: JoinHandle<R>,
    limit: Duration,
) -> Result<std::thread::Result<R>, JoinHandle<R>> {
    let end = Instant::now() + limit;
    while !thread.is_finished() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    if thread.is_finished() { Ok(thread.join()) } else { Err(thread) }
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

/// Counts turns of a thread's loop, and names the step of the turn.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    turns: AtomicU64,
    /// Empty for a loop of one step.
    step: Mutex<&'static str>,
}

impl Heartbeat {
    /// Counts a turn. Only the thread whose loop it is calls this, so a load and a store are enough.
    #[inline]
    pub(crate) fn beat(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The turns so far.
    pub(crate) fn count(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Does `work`, which is the step `name` of the turn. A step that takes long is a warning.
    pub(crate) fn step<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        *self.name() = name;
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        if took >= STEP_LATE {
            let (thread, ms) = (std::thread::current(), took.as_millis());
            let thread = thread.name().unwrap_or_default();
            notice::warn(format_args!("the {thread} thread was held up for {ms} ms by {name}"));
        }
        result
    }

    /// The step that began last; empty for a loop of one step.
    pub(crate) fn step_name(&self) -> &'static str {
        *self.name()
    }

    fn name(&self) -> MutexGuard<'_, &'static str> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;
    use rustix::thread::sched_getaffinity;
    use rusty_fork::rusty_fork_test;

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
