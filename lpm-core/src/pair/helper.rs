//! A helper thread and its jobs.
//!
//! Each thread owns a reader and takes jobs from a bounded channel. A job is a box with room for keys and answers that travels to the
//! thread and back; nothing is allocated per batch. The two sides share a queue of pointers in each direction, which they only try and so
//! never lock. Between jobs the thread works on lent keys ([`Worker`]). An idle thread spins, then yields, then sleeps; a sleep that misses
//! [`Helper::wake`] ends by timeout.
//!
//! A thread without a chosen CPU must not inherit the affinity of the thread that makes the reader, since a forwarder's lcores are pinned
//! by then. It runs where the thread that made the engine might run, except on that CPU.

use super::{Wait, Why};
use crate::lend::Worker;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::thread::{self, JoinHandle, Thread};
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, hint, looks};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use fib::{EngineError, EngineReader, KeyBuffer, Keys, NextHopId};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::Duration;

/// Polls for a job before a thread yields between polls; longer than the pause between batches under load.
const SPINS: u32 = looks(1 << 9);
/// Polls with a yield in between before a thread sleeps.
const YIELDS: u32 = looks(1 << 8);
const SLEEP: Duration = Duration::from_millis(20);
const END_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct HelperJob {
    slot: usize,
    keys: KeyBuffer,
    pub(super) answers: Vec<NextHopId>,
    pub(super) result: Result<(), EngineError>,
}

impl HelperJob {
    fn new(slot: usize, piece_max: usize) -> Self {
        let keys = KeyBuffer::with_capacity(piece_max);
        Self { slot, keys, answers: vec![NextHopId::NONE; piece_max], result: Ok(()) }
    }

    fn run(&mut self, reader: &mut dyn EngineReader) {
        self.result = reader.lookup(self.keys.keys(), &mut self.answers[..self.keys.len()]);
    }
}

pub(super) type Trouble = Arc<Mutex<Option<EngineError>>>;

struct HelperThread {
    reader: Box<dyn EngineReader>,
    todo: Receiver<Box<HelperJob>>,
    back: Sender<Box<HelperJob>>,
    asleep: Arc<AtomicBool>,
    worker: Option<Worker>,
    trouble: Trouble,
}

pub(super) struct Helper {
    todo: Option<Sender<Box<HelperJob>>>,
    done: Receiver<Box<HelperJob>>,
    /// By slot: the job, while it is here.
    pub(super) home: Vec<Option<Box<HelperJob>>>,
    pub(super) asleep: Arc<AtomicBool>,
    pub(super) trouble: Trouble,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
    pub(super) stall: Duration,
}

impl Helper {
    pub(super) fn spawn(
        reader: Box<dyn EngineReader>,
        worker: Option<Worker>,
        (slots, piece_max): (usize, usize),
        cpu: Option<usize>,
        allowed: Option<CpuSet>,
        stall: Duration,
    ) -> Result<Self, EngineError> {
        let (todo, jobs) = bounded(slots);
        let (back, done) = bounded(slots);
        let (ready, begun) = bounded(1);
        let (asleep, trouble) = (Arc::new(AtomicBool::new(false)), Trouble::default());
        let helper_thread = HelperThread {
            reader,
            todo: jobs,
            back,
            asleep: Arc::clone(&asleep),
            worker,
            trouble: Arc::clone(&trouble),
        };
        let makers = sched_getaffinity(None).ok();
        let handle = thread::Builder::new()
            .name("helper".into())
            .spawn(move || {
                let placed = place(cpu, makers, allowed);
                let _ = ready.send(placed);
                if placed {
                    helper_thread.serve();
                }
            })
            .map_err(|error| EngineError::Memory { bytes: 0, reason: format!("a helper thread: {error}") })?;
        let helper = Self {
            todo: Some(todo),
            done,
            home: (0..slots).map(|slot| Some(Box::new(HelperJob::new(slot, piece_max)))).collect(),
            asleep,
            trouble,
            thread: handle.thread().clone(),
            handle: Some(handle),
            stall,
        };
        match begun.recv_timeout(END_LIMIT) {
            Ok(true) => Ok(helper),
            Ok(false) => Err(EngineError::Parameter {
                parameter: "cpus",
                value: cpu.map_or_else(String::new, |cpu| cpu.to_string()),
                wanted: "wanted CPUs of this host that this process may run on",
            }),
            Err(_) => {
                let reason = format!("a helper thread did not start within {END_LIMIT:?}");
                Err(EngineError::Memory { bytes: 0, reason })
            }
        }
    }

    pub(super) fn dismiss(&mut self) {
        self.todo = None;
        self.thread.unpark();
    }

    pub(super) fn await_end(&mut self, deadline: Instant) {
        let Some(handle) = self.handle.take() else { return };
        while !handle.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(50));
        }
        if handle.is_finished() {
            let _ended = handle.join(); // a panic was reported as `Why::Died`
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.stall.min(END_LIMIT)
    }

    /// Takes back finished jobs. Returns whether the thread is alive.
    #[inline]
    pub(super) fn drain(&mut self) -> bool {
        loop {
            match self.done.try_recv() {
                Ok(job) => {
                    let slot = job.slot;
                    self.home[slot] = Some(job);
                }
                Err(error) => return error == TryRecvError::Empty,
            }
        }
    }

    #[inline]
    pub(super) fn is_home(&self, slot: usize) -> bool {
        self.home[slot].is_some()
    }

    #[cold]
    pub(super) fn await_home(&mut self, slot: usize) -> Result<(), Why> {
        let mut wait = Wait::default();
        loop {
            let lives = self.drain();
            if self.is_home(slot) {
                return Ok(());
            }
            if !lives {
                return Err(Why::Died { during: "submit" });
            }
            wait.check("submit", self.stall)?;
            thread::yield_now();
        }
    }

    /// Sends `keys` to the thread with the job of `slot`, which must be here.
    #[inline]
    pub(super) fn send(&mut self, slot: usize, keys: Keys<'_>) -> Result<(), Why> {
        let died = Why::Died { during: "submit" };
        let (Some(mut job), Some(todo)) = (self.home[slot].take(), &self.todo) else { return Err(died) };
        job.keys.copy_from(keys);
        // The queue has room for all jobs.
        todo.try_send(job).map_err(|_| died)?;
        // Pairs with the fence of `sleep`: either the thread sees the job, or this thread sees that it sleeps.
        fence(Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// Wakes the thread if it sleeps. Between the store of its work and this call the caller needs a fence.
    #[inline]
    pub(super) fn wake(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.thread.unpark();
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.dismiss();
        let deadline = self.deadline();
        self.await_end(deadline);
    }
}

/// Without `cpu`, a thread whose maker is pinned (`makers`) moves to the other CPUs of `allowed`. Returns whether the system allowed it.
pub(super) fn place(cpu: Option<usize>, makers: Option<CpuSet>, allowed: Option<CpuSet>) -> bool {
    let mut wanted = CpuSet::new();
    match (cpu, makers, allowed) {
        (Some(cpu), ..) if cpu < CpuSet::MAX_CPU => wanted.set(cpu),
        (Some(_), ..) => return false,
        (None, Some(makers), Some(allowed)) if makers.count() == 1 => {
            let others = |cpu: &usize| allowed.is_set(*cpu) && !makers.is_set(*cpu);
            (0..CpuSet::MAX_CPU).filter(others).for_each(|cpu| wanted.set(cpu));
        }
        _ => return true,
    }
    // On a host with a single CPU the threads share it.
    sched_setaffinity(None, &wanted).is_ok() || cpu.is_none()
}

impl HelperThread {
    fn serve(mut self) {
        let mut polls = 0;
        loop {
            if self.work() {
                polls = 0;
            }
            match self.todo.try_recv() {
                Ok(mut job) => {
                    polls = 0;
                    job.run(self.reader.as_mut());
                    // The queue has room for all jobs. If it is closed, no further jobs come.
                    let _ = self.back.try_send(job);
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    polls += 1;
                    if polls < SPINS {
                        hint::spin_loop();
                    } else if polls < SPINS + YIELDS {
                        thread::yield_now();
                    } else {
                        self.sleep();
                    }
                }
            }
        }
    }

    #[inline]
    fn work(&mut self) -> bool {
        let Self { reader, worker, trouble, .. } = self;
        worker.as_mut().is_some_and(|worker| {
            worker.work(|keys, out| {
                let answered = reader.lookup(keys, out);
                answered.map_err(|error| *lock(trouble) = Some(error)).is_ok()
            })
        })
    }

    #[cold]
    fn sleep(&mut self) {
        self.reader.refresh();
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.todo.is_empty() && !self.worker.as_ref().is_some_and(Worker::is_wanted) {
            thread::park_timeout(SLEEP);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cold]
pub(super) fn lock(trouble: &Trouble) -> MutexGuard<'_, Option<EngineError>> {
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}
