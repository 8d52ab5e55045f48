//! An engine that fails on demand: the oracle behind switches.

use fib::oracle::OracleEngine;
use fib::{
    Capacity, EngineError, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Isa,
    Keys, NextHopId, SlotId,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Submit,
    Collect,
    Apply,
    Reader,
}

impl Call {
    pub(super) const ALL: [Self; 4] = [Self::Submit, Self::Collect, Self::Apply, Self::Reader];
}

/// A number of polls after which no answer ever comes.
pub(super) const fn never() -> u64 {
    u64::MAX
}

/// The switches, and what was called.
#[derive(Debug)]
pub(super) struct Faults {
    calls: [AtomicU64; 4],
    /// By [`Call`]: the first call that fails; all after it fail too.
    fail_from: [AtomicU64; 4],
    /// Polls of a slot that find it pending.
    pub(super) pending_polls: AtomicU64,
    /// Whether `apply` keeps its caller waiting.
    pub(super) hang_apply: AtomicBool,
    die_in_apply: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            calls: [const { AtomicU64::new(0) }; 4],
            fail_from: [const { AtomicU64::new(u64::MAX) }; 4],
            pending_polls: AtomicU64::new(0),
            hang_apply: AtomicBool::new(false),
            die_in_apply: AtomicBool::new(false),
        }
    }
}

impl Faults {
    /// From the `at`-th such call on (0 is the first of all), every one fails.
    pub(super) fn fail_from(&self, call: Call, at: u64) {
        self.fail_from[call as usize].store(at, SeqCst);
    }

    pub(super) fn fail_apply(&self) {
        self.fail_from(Call::Apply, 0);
    }

    pub(super) fn die_in_apply(&self) {
        self.die_in_apply.store(true, SeqCst);
    }

    /// How often it was called.
    pub(super) fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(SeqCst)
    }

    fn enter(&self, call: Call) -> Result<(), EngineError> {
        let number = self.calls[call as usize].fetch_add(1, SeqCst);
        if number < self.fail_from[call as usize].load(SeqCst) {
            return Ok(());
        }
        Err(EngineError::NoDevice {
            engine: "fake",
            device: "GPU",
            reason: format!("{call:?} {number}: lost"),
        })
    }
}

/// The writer.
pub(super) struct Fake {
    oracle: OracleEngine,
    faults: Arc<Faults>,
}

impl Fake {
    pub(super) fn new(faults: &Arc<Faults>) -> Self {
        Self { oracle: OracleEngine::new(&EngineOptions::default()), faults: Arc::clone(faults) }
    }
}

impl EngineWriter for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn isa(&self) -> Isa {
        self.oracle.isa()
    }

    fn apply(&mut self, delta: &FibDelta) -> Result<Generation, EngineError> {
        while self.faults.hang_apply.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!self.faults.die_in_apply.load(SeqCst), "an invariant, broken on purpose");
        self.faults.enter(Call::Apply)?;
        self.oracle.apply(delta)
    }

    fn generation(&self) -> Generation {
        self.oracle.generation()
    }

    fn capacity(&self) -> Capacity {
        self.oracle.capacity()
    }

    fn stats(&self) -> EngineStats {
        self.oracle.stats()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        self.faults.enter(Call::Reader)?;
        let reader = self.oracle.reader(slots, batch_max)?;
        Ok(Box::new(FakeReader { reader, polls: vec![0; slots.into()], faults: Arc::clone(&self.faults) }))
    }
}

struct FakeReader {
    reader: Box<dyn EngineReader>,
    polls: Vec<u64>,
    faults: Arc<Faults>,
}

impl EngineReader for FakeReader {
    fn slots(&self) -> u16 {
        self.reader.slots()
    }

    fn batch_max(&self) -> usize {
        self.reader.batch_max()
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        self.faults.enter(Call::Submit)?;
        self.polls[usize::from(slot.0)] = 0;
        self.reader.submit(slot, keys)
    }

    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
        if let Err(error) = self.faults.enter(Call::Collect) {
            return Poll::Ready(Err(error));
        }
        let polls = &mut self.polls[usize::from(slot.0)];
        *polls += 1;
        if *polls <= self.faults.pending_polls.load(SeqCst) {
            return Poll::Pending;
        }
        self.reader.collect(slot)
    }
}
