//! Helper threads that make an engine which finishes inside `submit` an asynchronous one: the "second AVX-512 group".
//!
//! Each thread owns a reader and takes jobs from a bounded channel; a job is a box with its answers, made when the reader is made,
//! that goes there and back. So nothing is allocated on the way, and what is shared is two queues of pointers a thread, which only
//! ever try (neither end takes a lock), and the keys of a job while it is away: should it never come back, they are still here.
//!
//! An idle thread spins, then yields, then sleeps; [`Group::submit`] wakes it, and a sleep that misses that ends by itself.
//!
//! A thread that is given no CPU runs where the thread that made the engine might, but not where the reader's maker is pinned to:
//! it would inherit that, and a forwarder's threads are pinned by the time they get readers.

use super::flight::copy;
use super::service::{FIRST, SECOND, Why};
use crate::lend::{self, Lender, Missing, Outcome, Rules, Worker};
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use fib::{EngineError, EngineReader, Keys, NextHopId};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Looks for a job before a thread yields between looks: some 20 us, longer than the pause between batches under load.
const SPINS: u32 = 1 << 9;
/// Looks with a yield between before a thread sleeps.
const YIELDS: u32 = 1 << 8;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(20);
/// How long a thread may take to end, or to begin.
const END_LIMIT: Duration = Duration::from_secs(30);
/// Keys that go together, so that no two threads write one line of answers.
const GRAIN: usize = 16;

/// The keys of a piece of a batch.
struct Load {
    v6: bool,
    v4: Vec<u32>,
    hi: Vec<u64>,
    lo: Vec<u64>,
    len: usize,
}

impl Load {
    fn new(piece_max: usize) -> Self {
        Self { v6: false, v4: vec![0; piece_max], hi: vec![0; piece_max], lo: vec![0; piece_max], len: 0 }
    }

    fn keys(&self) -> Keys<'_> {
        if self.v6 {
            Keys::V6 { hi: &self.hi[..self.len], lo: &self.lo[..self.len] }
        } else {
            Keys::V4(&self.v4[..self.len])
        }
    }

    /// Takes the keys `from..to` in.
    #[inline]
    fn fill(&mut self, keys: Keys<'_>, from: usize, to: usize) {
        self.len = to - from;
        match keys {
            Keys::V4(keys) => {
                self.v6 = false;
                copy(&keys[from..to], &mut self.v4[..to - from]);
            }
            Keys::V6 { hi, lo } => {
                self.v6 = true;
                copy(&hi[from..to], &mut self.hi[..to - from]);
                copy(&lo[from..to], &mut self.lo[..to - from]);
            }
        }
    }
}

/// A piece of a batch on its way.
struct Job {
    slot: usize,
    /// `None` while it is here.
    load: Option<Arc<Load>>,
    answers: Vec<NextHopId>,
    result: Result<(), EngineError>,
}

impl Job {
    fn new(slot: usize, piece_max: usize) -> Self {
        Self { slot, load: None, answers: vec![NextHopId::NONE; piece_max], result: Ok(()) }
    }

    fn run(&mut self, reader: &mut dyn EngineReader) {
        if let Some(load) = &self.load {
            self.result = reader.lookup(load.keys(), &mut self.answers[..load.len]);
        }
    }
}

/// Why a thread could not answer what it was lent.
type Trouble = Arc<Mutex<Option<EngineError>>>;

/// What a thread works with.
struct Hands {
    reader: Box<dyn EngineReader>,
    todo: Receiver<Box<Job>>,
    back: Sender<Box<Job>>,
    asleep: Arc<AtomicBool>,
    /// For what it is lent, if anything ever is.
    worker: Option<Worker>,
    trouble: Trouble,
}

/// One thread, as the reader sees it.
struct Helper {
    /// `None` only while it is being dropped.
    todo: Option<Sender<Box<Job>>>,
    done: Receiver<Box<Job>>,
    /// By slot: the job while it is here.
    home: Vec<Option<Box<Job>>>,
    /// By slot: the keys, of which the job has a share while it is away.
    loads: Vec<Arc<Load>>,
    asleep: Arc<AtomicBool>,
    trouble: Trouble,
    thread: Thread,
    /// `None` once it is over, or given up.
    handle: Option<JoinHandle<()>>,
    stall: Duration,
}

impl Helper {
    fn spawn(
        reader: Box<dyn EngineReader>,
        worker: Option<Worker>,
        (slots, piece_max): (usize, usize),
        cpu: Option<usize>,
        allowed: Option<CpuSet>,
        stall: Duration,
    ) -> Result<Self, EngineError> {
        let (todo, theirs) = bounded(slots);
        let (back, done) = bounded(slots);
        let (ready, begun) = bounded(1);
        let (asleep, trouble) = (Arc::new(AtomicBool::new(false)), Trouble::default());
        let hands = Hands {
            reader,
            todo: theirs,
            back,
            asleep: Arc::clone(&asleep),
            worker,
            trouble: Arc::clone(&trouble),
        };
        let makers = sched_getaffinity(None).ok();
        let handle = std::thread::Builder::new()
            .name("coop".into())
            .spawn(move || {
                let placed = place(cpu, makers, allowed);
                let _ = ready.send(placed);
                if placed {
                    hands.serve();
                }
            })
            .map_err(|error| EngineError::Memory { bytes: 0, reason: format!("a helper thread: {error}") })?;
        let helper = Self {
            todo: Some(todo),
            done,
            home: (0..slots).map(|slot| Some(Box::new(Job::new(slot, piece_max)))).collect(),
            loads: (0..slots).map(|_| Arc::new(Load::new(piece_max))).collect(),
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
                let reason = format!("a helper thread did not begin within {END_LIMIT:?}");
                Err(EngineError::Memory { bytes: 0, reason })
            }
        }
    }

    /// Tells the thread to end: nobody hands anything over any more.
    fn dismiss(&mut self) {
        self.todo = None;
        self.thread.unpark();
    }

    /// Waits for a thread that was dismissed, until `deadline` at most.
    fn await_end(&mut self, deadline: Instant) {
        let Some(handle) = self.handle.take() else { return };
        while !handle.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
        if handle.is_finished() {
            let _ended = handle.join(); // a panic has been met as `Why::Died`
        }
    }

    /// When to go on without a thread that does not end.
    fn deadline(&self) -> Instant {
        Instant::now() + self.stall.min(END_LIMIT)
    }

    /// Takes back what has come. Whether the thread is still there.
    #[inline]
    fn drain(&mut self) -> bool {
        loop {
            match self.done.try_recv() {
                Ok(mut job) => {
                    job.load = None;
                    let slot = job.slot;
                    self.home[slot] = Some(job);
                }
                Err(error) => return error == TryRecvError::Empty,
            }
        }
    }

    /// Hands the keys `from..to` to the thread with the job of `slot`, which is here.
    #[inline]
    fn send(&mut self, slot: usize, keys: Keys<'_>, from: usize, to: usize) -> Result<(), Why> {
        let died = Why::Died { during: "submit" };
        // Nobody shares the keys of a job that is here.
        let Some(load) = Arc::get_mut(&mut self.loads[slot]) else { return Err(died) };
        load.fill(keys, from, to);
        let (Some(mut job), Some(todo)) = (self.home[slot].take(), &self.todo) else { return Err(died) };
        job.load = Some(Arc::clone(&self.loads[slot]));
        // There is room: as many places as jobs.
        todo.try_send(job).map_err(|_| died)?;
        // Pairs with the fence of `serve`: either it sees the job, or we see that it sleeps.
        fence(Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// Wakes the thread if it sleeps. What is there for it to see was stored before a fence.
    #[inline]
    fn wake(&self) {
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

/// Puts this thread on `cpu`; whether the system did so. Without a CPU, a thread whose maker is pinned (`makers`) goes to one of
/// `allowed` that is another.
fn place(cpu: Option<usize>, makers: Option<CpuSet>, allowed: Option<CpuSet>) -> bool {
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
    // Where there is one CPU alone, threads share it.
    sched_setaffinity(None, &wanted).is_ok() || cpu.is_none()
}

impl Hands {
    /// Works until nobody hands anything over any more.
    fn serve(mut self) {
        let mut looks = 0;
        loop {
            if self.work() {
                looks = 0;
            }
            match self.todo.try_recv() {
                Ok(mut job) => {
                    looks = 0;
                    job.run(self.reader.as_mut());
                    // There is room: as many places as jobs. When nobody takes it, nobody hands over either.
                    let _ = self.back.try_send(job);
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    looks += 1;
                    if looks < SPINS {
                        std::hint::spin_loop();
                    } else if looks < SPINS + YIELDS {
                        std::thread::yield_now();
                    } else {
                        self.sleep();
                    }
                }
            }
        }
    }

    /// Works on what is lent. Whether there was anything.
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

    /// Sleeps until it is woken, unless there is something to do.
    #[cold]
    fn sleep(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.todo.is_empty() && !self.worker.as_ref().is_some_and(Worker::is_wanted) {
            std::thread::park_timeout(SLEEP);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cold]
fn lock(trouble: &Trouble) -> std::sync::MutexGuard<'_, Option<EngineError>> {
    trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
pub(super) struct Group {
    helpers: Vec<Helper>,
    /// By slot and helper: how many keys it has of the slot's batch.
    lens: Vec<Vec<usize>>,
    /// One thread's share of a batch, 65536ths, rounded up.
    share: usize,
    /// For lookups whose caller waits.
    lender: Option<Lender>,
}

impl Group {
    /// A thread for each of `readers` (one at least), on the CPU beside it, else on one of `allowed`; with `slots` slots of
    /// `batch_max` keys. With `rules` the threads also take what is lent to them.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for a CPU that cannot be had, [`EngineError::Memory`] when there is no thread.
    pub(super) fn new(
        readers: Vec<(Box<dyn EngineReader>, Option<usize>)>,
        (slots, batch_max): (usize, usize),
        allowed: Option<CpuSet>,
        stall: Duration,
        rules: Option<Rules>,
    ) -> Result<Self, EngineError> {
        let count = readers.len().max(1);
        let share = (1_usize << 16).div_ceil(count);
        // The last thread has what the others' parts leave, a key a thread more than they at most.
        let piece_max = batch_max.min(part(batch_max, share) + GRAIN + count);
        let (lender, workers) = rules.map(|rules| lend::board(count, rules)).unzip();
        let mut workers = workers.unwrap_or_default().into_iter();
        let helpers = readers
            .into_iter()
            .map(|(reader, cpu)| {
                Helper::spawn(reader, workers.next(), (slots, piece_max), cpu, allowed, stall)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { lens: vec![vec![0; helpers.len()]; slots], helpers, share, lender })
    }

    /// Whether [`Self::lend`] can be had.
    #[inline]
    pub(super) const fn lends(&self) -> bool {
        self.lender.is_some()
    }

    /// Looks `keys` up into `out` together with `mine`, this thread's reader: see [`Lender::lend`]. Returns how many keys the threads
    /// had.
    ///
    /// # Errors
    /// Whose fault it is that answers are missing, and why.
    #[inline]
    pub(super) fn lend(
        &mut self,
        keys: Keys<'_>,
        out: &mut [NextHopId],
        cut: usize,
        mine: &mut dyn EngineReader,
    ) -> Result<usize, (usize, Why)> {
        let Self { helpers, lender: Some(lender), .. } = self else {
            return Err((FIRST, Why::Died { during: "submit" }));
        };
        let wake = || {
            // Pairs with the fence of `sleep`: either a thread sees what it is lent, or we see that it sleeps.
            fence(Ordering::SeqCst);
            helpers.iter().for_each(Helper::wake);
        };
        let mut error = None;
        let answer = |keys: Keys<'_>, out: &mut [NextHopId]| {
            mine.lookup(keys, out).map_err(|why| error = Some(why)).is_ok()
        };
        let Outcome { keys, missing } = lender.lend(keys, out, cut, wake, answer);
        match missing {
            None => Ok(keys),
            Some(missing) => Err(self.whose(missing, error)),
        }
    }

    /// Which half is to blame for `missing`, and why; `error` is what this thread's reader said.
    #[cold]
    fn whose(&self, missing: Missing, error: Option<EngineError>) -> (usize, Why) {
        let stall = self.helpers.first().map_or(Duration::ZERO, |helper| helper.stall);
        let limit_us = u64::try_from(stall.as_micros()).unwrap_or(u64::MAX);
        match (missing, error) {
            (Missing::Owner, Some(error)) => (SECOND, Why::Failed { during: "submit", error }),
            (Missing::Stalled, _) => (FIRST, Why::Stalled { during: "collect", limit_us }),
            (Missing::Owner | Missing::Worker, _) => {
                let error = self.helpers.iter().find_map(|helper| lock(&helper.trouble).take());
                let died = Why::Died { during: "collect" };
                (FIRST, error.map_or(died, |error| Why::Failed { during: "collect", error }))
            }
        }
    }

    /// Hands `keys` to the threads, in equal parts. When `slot` is in flight it waits for that.
    #[inline]
    pub(super) fn submit(&mut self, slot: usize, keys: Keys<'_>) -> Result<(), Why> {
        let len = keys.len();
        let (part, last) = (part(len, self.share), self.helpers.len() - 1);
        let mut from = 0;
        for (at, helper) in self.helpers.iter_mut().enumerate() {
            if helper.home[slot].is_none() {
                await_home(helper, slot)?;
            }
            let to = if at == last { len } else { (from + part).min(len) };
            self.lens[slot][at] = to - from;
            if to > from {
                helper.send(slot, keys, from, to)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Gives the keys that `slot` was handed last to `take`, part by part.
    #[cold]
    pub(super) fn kept(&self, slot: usize, mut take: impl FnMut(Keys<'_>)) {
        for (helper, len) in self.helpers.iter().zip(&self.lens[slot]) {
            if *len > 0 {
                take(helper.loads[slot].keys());
            }
        }
    }

    /// The answers of `slot`, into `out`, as many as keys.
    #[inline]
    pub(super) fn collect(&mut self, slot: usize, out: &mut [NextHopId]) -> Poll<Result<(), Why>> {
        for helper in &mut self.helpers {
            if helper.home[slot].is_none() {
                let lives = helper.drain();
                if helper.home[slot].is_none() {
                    let died = Why::Died { during: "collect" };
                    return if lives { Poll::Pending } else { Poll::Ready(Err(died)) };
                }
            }
        }
        let mut from = 0;
        for (helper, len) in self.helpers.iter().zip(&self.lens[slot]) {
            let Some(job) = &helper.home[slot] else { return Poll::Pending };
            if *len == 0 {
                continue; // what lies there is of an older batch
            }
            if let Err(error) = &job.result {
                return Poll::Ready(Err(Why::Failed { during: "collect", error: error.clone() }));
            }
            copy(&job.answers[..*len], &mut out[from..from + len]);
            from += len;
        }
        Poll::Ready(Ok(()))
    }
}

/// One thread's part of `len` keys, in whole lines.
#[inline]
const fn part(len: usize, share: usize) -> usize {
    (((len * share) >> 16) + GRAIN - 1) & !(GRAIN - 1)
}

/// Waits until the job of `slot` is here.
#[cold]
fn await_home(helper: &mut Helper, slot: usize) -> Result<(), Why> {
    let start = Instant::now();
    loop {
        let lives = helper.drain();
        if helper.home[slot].is_some() {
            return Ok(());
        }
        if !lives {
            return Err(Why::Died { during: "submit" });
        }
        if start.elapsed() > helper.stall {
            let limit_us = u64::try_from(helper.stall.as_micros()).unwrap_or(u64::MAX);
            return Err(Why::Stalled { during: "submit", limit_us });
        }
        std::thread::yield_now();
    }
}

impl Drop for Group {
    /// Waits for the threads to end, unless one does not; for all together as long as for one.
    fn drop(&mut self) {
        self.helpers.iter_mut().for_each(Helper::dismiss);
        let Some(deadline) = self.helpers.first().map(Helper::deadline) else { return };
        self.helpers.iter_mut().for_each(|helper| helper.await_end(deadline));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::oracle::OracleEngine;
    use fib::{EngineOptions, EngineWriter, FibDelta, SlotId};
    use std::sync::Mutex;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn group(threads: usize, cpu: Option<usize>) -> Result<Group, EngineError> {
        let mut engine = OracleEngine::new(&EngineOptions::default());
        let mut delta = FibDelta::new();
        for block in 0..=255_u32 {
            delta.push(format!("{block}.0.0.0/8").parse().unwrap(), NextHopId::new(block + 1).unwrap());
        }
        engine.apply(&delta).unwrap();
        let readers = (0..threads).map(|_| (engine.reader(1, 512).unwrap(), cpu)).collect();
        Group::new(readers, (4, 512), None, PATIENCE, None)
    }

    fn collect(group: &mut Group, slot: usize, out: &mut [NextHopId]) {
        loop {
            if let Poll::Ready(answers) = group.collect(slot, out) {
                return answers.unwrap();
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn any_number_of_threads_keeps_the_order_and_every_length() {
        for threads in [1, 2, 3, 5] {
            let mut group = group(threads, None).unwrap();
            for len in [0, 1, 15, 16, 17, 31, 33, 100, 511, 512] {
                let keys: Vec<Vec<u32>> =
                    (0..4).map(|slot| (0..len).map(|at| ((at * 7 + slot) % 256) << 24).collect()).collect();
                for (slot, keys) in keys.iter().enumerate() {
                    group.submit(slot, Keys::V4(keys)).unwrap();
                }
                for slot in [2, 0, 3, 1] {
                    let mut out = vec![NextHopId::MAX; keys[slot].len()];
                    collect(&mut group, slot, &mut out);
                    for (key, answer) in keys[slot].iter().zip(out) {
                        assert_eq!(answer.get(), (key >> 24) + 1, "{threads} threads, {len} keys");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_handed_over_again_loses_its_first_batch() {
        let mut group = group(2, None).unwrap();
        for round in 0..200_u32 {
            group.submit(0, Keys::V4(&[round << 24; 300])).unwrap();
            group.submit(0, Keys::V4(&[1 << 24; 20])).unwrap();
            let mut kept = Vec::new();
            group.kept(0, |keys| match keys {
                Keys::V4(keys) => kept.extend_from_slice(keys),
                Keys::V6 { .. } => panic!("keys of IPv6"),
            });
            assert_eq!(kept, [1 << 24; 20], "the keys of what is in flight, whether it is back or not");
            let mut out = [NextHopId::NONE; 20];
            collect(&mut group, 0, &mut out);
            assert!(out.iter().all(|answer| answer.get() == 2), "{out:?}");
        }
    }

    /// A reader that answers 7, or cannot, or panics.
    struct Broken(Option<EngineError>, bool);

    impl EngineReader for Broken {
        fn slots(&self) -> u16 {
            1
        }
        fn batch_max(&self) -> usize {
            512
        }
        fn submit(&mut self, _: SlotId, _: Keys<'_>) -> Result<(), EngineError> {
            Ok(())
        }
        fn collect(&mut self, _: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
            Poll::Ready(Ok(&[]))
        }
        fn lookup(&mut self, _: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
            assert!(!self.1, "an invariant, broken on purpose");
            out.fill(NextHopId::new(7).unwrap());
            self.0.clone().map_or(Ok(()), Err)
        }
    }

    #[test]
    fn what_is_lent_and_not_answered_is_told_with_whose_fault_it_is() {
        let error = EngineError::Batch { keys: 1, limit: 2 };
        let failed = |during| Why::Failed { during, error: error.clone() };
        for helps in [true, false] {
            let lend = |theirs: Broken, mut mine: Broken| {
                let rules = Rules { helps, patience: PATIENCE };
                let readers: Vec<(Box<dyn EngineReader>, _)> = vec![(Box::new(theirs), None)];
                let mut group = Group::new(readers, (1, 512), None, PATIENCE, Some(rules)).unwrap();
                let mut out = [NextHopId::NONE; 4096];
                // Until the thread has come in time to get something.
                loop {
                    match group.lend(Keys::V4(&[9; 4096]), &mut out, 4000, &mut mine) {
                        Ok(0) => std::thread::yield_now(),
                        told => return (told, out.iter().all(|answer| answer.get() == 7)),
                    }
                }
            };
            let (told, all) = lend(Broken(None, false), Broken(None, false));
            assert!(all && told.is_ok_and(|keys| helps && keys <= 4096 || keys == 4000));
            let told = lend(Broken(Some(error.clone()), false), Broken(None, false)).0;
            assert_eq!(told, Err((FIRST, failed("collect"))));
            let told = lend(Broken(None, true), Broken(None, false)).0;
            assert_eq!(told, Err((FIRST, Why::Died { during: "collect" })));
            let told = lend(Broken(None, false), Broken(Some(error.clone()), false)).0;
            assert_eq!(told, Err((SECOND, failed("submit"))));
        }
    }

    #[test]
    fn threads_wake_from_sleep_for_what_is_lent() {
        let rules = Rules { helps: false, patience: PATIENCE };
        let readers: Vec<(Box<dyn EngineReader>, _)> = vec![(Box::new(Broken(None, false)), None)];
        let mut group = Group::new(readers, (1, 512), None, PATIENCE, Some(rules)).unwrap();
        for _ in 0..3 {
            while !group.helpers[0].asleep.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut out = [NextHopId::NONE; 64];
            let keys = group.lend(Keys::V4(&[9; 64]), &mut out, 32, &mut Broken(None, false));
            assert!(keys == Ok(32) && out.iter().all(|answer| answer.get() == 7));
        }
    }

    #[test]
    fn threads_wake_from_sleep() {
        let mut group = group(1, None).unwrap();
        for _ in 0..3 {
            while !group.helpers[0].asleep.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut out = [NextHopId::NONE; 3];
            group.submit(1, Keys::V4(&[0, 1 << 24, 2 << 24])).unwrap();
            collect(&mut group, 1, &mut out);
            assert_eq!(out.map(NextHopId::get), [1, 2, 3]);
        }
    }

    /// The CPUs that a thread may run on, once it has run.
    type Seen = Arc<Mutex<Option<CpuSet>>>;

    /// A reader that tells where it runs, and that it is gone.
    struct Scout {
        cpus: Seen,
        _gone: Sender<()>,
    }

    impl EngineReader for Scout {
        fn slots(&self) -> u16 {
            1
        }
        fn batch_max(&self) -> usize {
            512
        }
        fn submit(&mut self, _: SlotId, _: Keys<'_>) -> Result<(), EngineError> {
            *self.cpus.lock().unwrap() = Some(sched_getaffinity(None).unwrap());
            Ok(())
        }
        fn collect(&mut self, _: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
            Poll::Ready(Ok(&[NextHopId::NONE]))
        }
    }

    /// Where it will have been, its reader, and a channel that closes when that is gone.
    fn scout() -> (Seen, Box<dyn EngineReader>, Receiver<()>) {
        let (sender, gone) = bounded(1);
        let cpus = Arc::default();
        (Arc::clone(&cpus), Box::new(Scout { cpus, _gone: sender }), gone)
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let Err(error) = group(1, Some(4000)) else { panic!("pinned to CPU 4000") };
        assert!(matches!(error, EngineError::Parameter { parameter: "cpus", .. }), "{error}");
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        assert!(group(1, Some(cpu)).is_ok());
    }

    #[test]
    fn a_group_that_cannot_be_made_leaves_no_thread() {
        let (_, first, gone) = scout();
        let (_, second, _) = scout();
        let made = Group::new(vec![(first, None), (second, Some(4000))], (4, 512), None, PATIENCE, None);
        assert!(matches!(made, Err(EngineError::Parameter { .. })));
        assert_eq!(gone.try_recv(), Err(TryRecvError::Disconnected), "a thread lives on with its reader");
    }

    #[test]
    fn threads_keep_off_the_cpu_that_their_maker_is_pinned_to() {
        let allowed = sched_getaffinity(None).unwrap();
        if allowed.count() < 2 {
            return eprintln!("SKIPPED: this process has one CPU");
        }
        let mine = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let maker = std::thread::spawn(move || {
            assert!(place(Some(mine), None, None));
            let (cpus, reader, _gone) = scout();
            let mut group =
                Group::new(vec![(reader, None)], (1, 512), Some(allowed), PATIENCE, None).unwrap();
            group.submit(0, Keys::V4(&[7])).unwrap();
            collect(&mut group, 0, &mut [NextHopId::NONE]);
            cpus.lock().unwrap().unwrap()
        });
        let helpers = maker.join().unwrap();
        assert!(!helpers.is_set(mine) && helpers.count() + 1 == allowed.count(), "{helpers:?}");
    }
}
