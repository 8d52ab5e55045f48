//! A batch dealt out to several threads, as the paper does with OpenMP.
//!
//! Each reader has threads of its own, each with a reader of the same tables. A large batch is lent to them where it lies
//! ([`lpm_core::lend`]): every thread, the caller's included, claims a grain of keys at a time, from its own part first and then from the
//! others', until none is left. A batch that is not worth waking threads for is looked up by the caller alone. Threads without work
//! sleep.

use super::Mamt;
use fib::reader::{Answer, SlotReader};
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Keys, NextHopId,
    Rib,
};
use lpm_core::engine::CpuEngine;
use lpm_core::lend::{LOAN_MAX, Rules};
use lpm_core::pair::group::HelperGroup;
use rustix::thread::{CpuSet, sched_getaffinity};
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
        let reader = || self.engine.reader(1, 1);
        let readers = (1..self.threads).map(|_| Ok((reader()?, None))).collect::<Result<_, EngineError>>()?;
        let rules = Rules { helps: true, patience: Duration::MAX };
        let group = HelperGroup::new(readers, (0, 0), self.cpus, Duration::MAX, Some(rules))?;
        let team = Team { mine: reader()?, group, threads: self.threads };
        Ok(Box::new(SlotReader::new(team, slots, batch_max)))
    }
}

/// A reader and its threads.
struct Team {
    mine: Box<dyn EngineReader>,
    group: HelperGroup,
    /// The caller's included.
    threads: usize,
}

impl Answer for Team {
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) {
        let Self { mine, group, threads } = self;
        let len = out.len();
        let is_shared = len >= *threads * KEYS_A_THREAD_MIN && len <= LOAN_MAX;
        let is_answered = is_shared && {
            let cut = len / *threads * (*threads - 1);
            group.lend(keys, out, cut, mine.as_mut()).is_ok()
        };
        if !is_answered {
            // Too small a batch; or a thread has died, and its keys have no answers.
            let looked_up = mine.lookup(keys, out);
            debug_assert!(looked_up.is_ok(), "as many answers as keys");
        }
    }

    /// Threads do so by themselves.
    fn refresh(&mut self) {
        self.mine.refresh();
    }
}
