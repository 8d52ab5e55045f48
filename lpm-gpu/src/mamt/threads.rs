//! A batch dealt out to several threads, as the paper does with OpenMP.
//!
//! Each reader has threads of its own, each with a reader of the same tables. A large batch is lent to them where it lies
//! ([`lpm_core::lend`]): every thread, the caller's included, claims a grain of keys at a time, from its own part first and then from the
//! others', until none is left. A batch that is not worth waking threads for is looked up by the caller alone. Threads without work
//! are parked.

use super::Mamt;
use fib::reader::{Answer, SlotReader};
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Keys, NextHopId,
    Rib,
};
use lpm_core::engine::CpuEngine;
use lpm_core::lend::{LOAN_MAX, Lender, Rules, Worker, board};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Keys a thread, fewer than which are not worth waking threads for. With two threads, batches of 2048 keys took a tenth longer than on
/// one, of 4096 as long, of 16,384 two thirds.
const KEYS_A_THREAD_MIN: usize = 2048;

/// An engine whose readers have threads.
pub(super) struct Threaded {
    engine: CpuEngine<Mamt>,
    threads: usize,
    /// The CPUs for the threads of readers: where this was made. A reader's maker may be pinned to one, as lcores are.
    cpus: Option<CpuSet>,
}

impl Threaded {
    /// `engine`, each reader of which looks up with `threads` threads, its caller's included.
    pub(super) fn new(engine: CpuEngine<Mamt>, threads: usize) -> Self {
        Self { engine, threads, cpus: sched_getaffinity(None).ok() }
    }
}

impl EngineWriter for Threaded {
    fn info(&self) -> EngineInfo {
        self.engine.info()
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.engine.apply(delta, rib)
    }

    fn free_retired(&mut self) {
        self.engine.free_retired();
    }

    fn generation(&self) -> Generation {
        self.engine.generation()
    }

    fn stats(&self) -> EngineStats {
        self.engine.stats()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let (lender, workers) = board(self.threads - 1, Rules { helps: true, patience: Duration::MAX });
        let mut team =
            Team { mine: self.engine.reader(1, 1)?, lender, helpers: Vec::new(), over: Arc::default() };
        for worker in workers {
            team.hire(self.engine.reader(1, 1)?, worker, self.cpus)?;
        }
        Ok(Box::new(SlotReader::new(team, slots, batch_max)))
    }
}

/// A reader and its threads.
struct Team {
    mine: Box<dyn EngineReader>,
    lender: Lender,
    helpers: Vec<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Team {
    /// Starts a thread that works on what is lent to `worker`.
    fn hire(
        &mut self,
        mut reader: Box<dyn EngineReader>,
        mut worker: Worker,
        cpus: Option<CpuSet>,
    ) -> Result<(), EngineError> {
        let over = Arc::clone(&self.over);
        let serve = move || {
            // Where that is refused the thread runs where its maker does.
            let _ = cpus.map(|cpus| sched_setaffinity(None, &cpus));
            while !over.load(Ordering::Acquire) {
                if !worker.work(|keys, out| reader.lookup(keys, out).is_ok()) {
                    reader.refresh();
                    thread::park(); // returns at once if something was lent since
                }
            }
        };
        let helper = thread::Builder::new().name("mamt".to_owned()).spawn(serve);
        let helper = helper.map_err(|error| EngineError::Memory {
            bytes: 0,
            reason: format!("a thread of mamt: {error}"),
        })?;
        self.helpers.push(helper);
        Ok(())
    }
}

fn wake(helpers: &[JoinHandle<()>]) {
    helpers.iter().for_each(|helper| helper.thread().unpark());
}

impl Answer for Team {
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let Self { mine, lender, helpers, .. } = self;
        let (len, threads) = (out.len(), helpers.len() + 1);
        let is_shared = len >= threads * KEYS_A_THREAD_MIN && len <= LOAN_MAX;
        let is_answered = is_shared && {
            let run = |keys: Keys<'_>, out: &mut [NextHopId]| mine.lookup(keys, out).is_ok();
            let cut = len / threads * helpers.len();
            lender.lend(keys, out, cut, || wake(helpers), run).missing.is_none()
        };
        if !is_answered {
            // Too small a batch; or a thread has died, and its keys have no answers.
            let looked_up = mine.lookup(keys, out);
            debug_assert!(looked_up.is_ok(), "as many answers as keys");
        }
    }

    /// Threads do so when they are woken and there is nothing to do.
    fn refresh(&mut self) {
        self.mine.refresh();
        wake(&self.helpers);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        wake(&self.helpers);
        for helper in self.helpers.drain(..) {
            let _ended = helper.join();
        }
    }
}
