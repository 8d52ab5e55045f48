//! Threads other than lcores, and their CPU affinity.
//!
//! The threads of the control socket and of the feeds start before EAL pins the main thread, and before the CPUs of lcores are known. Then
//! [`keep_to`] moves every thread started by [`spawn`] to the CPUs without an lcore; threads started later move themselves.

use crate::notice;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

const STEP_LATE: Duration = Duration::from_secs(1);
/// How long [`await_end`] waits.
const END_LIMIT: Duration = Duration::from_secs(1);

struct OtherThreads {
    threads: Vec<Pid>,
    /// `None` before [`keep_to`]: any CPU.
    cpus: Option<CpuSet>,
}

static OTHER_THREADS: Mutex<OtherThreads> = Mutex::new(OtherThreads { threads: Vec::new(), cpus: None });

/// Locks [`OTHER_THREADS`]. A panic while it was locked leaves it consistent.
fn with_other_threads<R>(change: impl FnOnce(&mut OtherThreads) -> R) -> R {
    change(&mut OTHER_THREADS.lock().unwrap_or_else(PoisonError::into_inner))
}

struct ListedThread(Pid);

impl ListedThread {
    fn this() -> Self {
        let thread = gettid();
        with_other_threads(|others| {
            others.threads.push(thread);
            // Best effort: the system may refuse.
            let _ = others.cpus.map(|cpus| sched_setaffinity(None, &cpus));
        });
        Self(thread)
    }
}

impl Drop for ListedThread {
    fn drop(&mut self) {
        with_other_threads(|others| others.threads.retain(|thread| *thread != self.0));
    }
}

/// Starts the thread `name` with the affinity for threads other than lcores.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn spawn<R: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        let _listed = ListedThread::this();
        work()
    })
}

/// # Errors
/// The thread, if it is still running.
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

/// Waits for a thread that was asked to end. One that hangs is left to the end of the process, with a warning.
pub(crate) fn await_end(thread: JoinHandle<()>) {
    if let Err(thread) = join_within(thread, END_LIMIT) {
        let (name, s) = (thread.thread().name().unwrap_or_default(), END_LIMIT.as_secs());
        notice::warn(format_args!(
            "the thread '{name}' has not ended after {s} s; the program ends without it"
        ));
    }
}

/// Restricts the threads of [`spawn`], present and future, to `cpus`. Best effort: the system may refuse.
pub(crate) fn keep_to(cpus: &[u16]) {
    let mut set = CpuSet::new();
    let known = cpus.iter().map(|cpu| usize::from(*cpu)).filter(|cpu| *cpu < CpuSet::MAX_CPU);
    known.for_each(|cpu| set.set(cpu));
    with_other_threads(|others| {
        for thread in &others.threads {
            let _ = sched_setaffinity(Some(*thread), &set);
        }
        others.cpus = Some(set);
    });
}

/// Counts the iterations of a loop and names the current step, for other threads.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    turns: AtomicU64,
    /// Empty for a loop of one step.
    step: Mutex<&'static str>,
}

impl Heartbeat {
    /// Counts an iteration. Only the thread of the loop calls this, so a load and a store suffice.
    #[inline]
    pub(crate) fn beat(&self) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Runs `work` as the step `name`, and warns if it takes long.
    pub(crate) fn step<R>(&self, name: &'static str, work: impl FnOnce() -> R) -> R {
        *self.name() = name;
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        if took >= STEP_LATE {
            let (thread, ms) = (std::thread::current(), took.as_millis());
            let thread = thread.name().unwrap_or_default();
            notice::warn(format_args!("the {thread} thread was delayed for {ms} ms by {name}"));
        }
        result
    }

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

        // In a separate process: it changes all threads of a process.
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
            assert!(with_other_threads(|others| others.threads.is_empty()));
        }
    }
}
