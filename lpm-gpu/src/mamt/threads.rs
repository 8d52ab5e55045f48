//! Splits a batch among several threads, as the paper does with OpenMP. Each reader has its own threads, each with a reader of
//! the same tables. A large batch is lent to them in place ([`lpm_core::lend`]): every thread, including the caller, claims keys
//! grain by grain, first from its own part, then from the others'. A small batch is looked up by the caller alone.

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

/// Least keys a thread to share a batch: two threads gain nothing below twice that.
const KEYS_A_THREAD_MIN: usize = 2048;

pub(super) struct Threaded {
    engine: CpuEngine<Mamt>,
    threads: usize,
    /// CPUs for the readers' threads: the affinity at creation. A reader's caller may be pinned to one CPU, as lcores are.
    cpus: Option<CpuSet>,
}

impl Threaded {
    /// `engine`, whose readers look up with `threads` threads, including the caller.
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

struct Team {
    mine: Box<dyn EngineReader>,
    group: HelperGroup,
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
            // The batch is too small; or a thread has died, and its keys have no answers.
            let looked_up = mine.lookup(keys, out);
            debug_assert!(looked_up.is_ok(), "as many answers as keys");
        }
    }

    /// The threads refresh their own readers.
    fn refresh(&mut self) {
        self.mine.refresh();
    }
}
