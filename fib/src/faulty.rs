//! A test engine that fails, delays or stalls on demand: the oracle, or another engine, behind fault switches.
//!
//! ```
//! use fib::faulty::{Call, Faults, FaultyEngine, How};
//! use fib::{EngineWriter, Rib};
//! use std::sync::Arc;
//!
//! let faults = Arc::new(Faults::default());
//! let mut engine = FaultyEngine::new(&faults);
//! faults.fail_from(Call::Apply, 1, How::Full);
//! let mut rib = Rib::new();
//! assert!(rib.commit(|delta, rib| engine.apply(delta, rib)).is_ok());
//! assert!(rib.commit(|delta, rib| engine.apply(delta, rib)).is_err());
//! ```

use crate::oracle::OracleEngine;
use crate::{
    Capacity, EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, FibDelta,
    FibId, Fibs, Generation, IpPrefix, Key, KeyMemory, Keys, NextHopId, Rib, SlotId,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`EngineReader::submit`].
    Submit,
    /// [`EngineReader::collect`] and [`EngineReader::discard`].
    Collect,
    /// [`EngineWriter::apply`].
    Apply,
    /// [`EngineWriter::reader`].
    Reader,
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Collect, Self::Apply, Self::Reader];
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With [`EngineError::Device`].
    Device,
    /// With [`EngineError::Full`].
    Full,
}

/// Fault switches, and counts of the calls.
#[derive(Debug)]
pub struct Faults {
    calls: [AtomicU64; 4],
    fail_from: [AtomicU64; 4],
    full: AtomicBool,
    /// How many polls of a slot return pending; `u64::MAX`: the answers never arrive.
    pub pending_polls: AtomicU64,
    /// Lookups return one answer too few.
    pub short: AtomicBool,
    /// Lookups panic.
    pub die: AtomicBool,
    /// Lookups block.
    pub hang: AtomicBool,
    /// `apply` panics.
    pub die_in_apply: AtomicBool,
    /// `apply` blocks.
    pub hang_in_apply: AtomicBool,
    /// The calls of `apply` before this one do not block.
    pub hang_from: AtomicU64,
    /// A delta that adds or changes the route of one of these prefixes is refused.
    pub refused: Mutex<Vec<IpPrefix>>,
    /// The reader, numbered from 0 in the order made, whose submits panic, block or fail; `u64::MAX`: all readers.
    pub reader: AtomicU64,
    /// Calls of [`EngineReader::adopt`].
    pub adopted: AtomicU64,
    /// Batches submitted to a slot whose answers were not collected before.
    pub early_submits: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            calls: [const { AtomicU64::new(0) }; 4],
            fail_from: [const { AtomicU64::new(u64::MAX) }; 4],
            full: AtomicBool::new(false),
            pending_polls: AtomicU64::new(0),
            short: AtomicBool::new(false),
            die: AtomicBool::new(false),
            hang: AtomicBool::new(false),
            die_in_apply: AtomicBool::new(false),
            hang_in_apply: AtomicBool::new(false),
            hang_from: AtomicU64::new(0),
            refused: Mutex::default(),
            reader: AtomicU64::new(u64::MAX),
            adopted: AtomicU64::new(0),
            early_submits: AtomicU64::new(0),
        }
    }
}

impl Faults {
    /// Makes every such call fail, beginning with call number `at` (0 is the first since the switches were made).
    pub fn fail_from(&self, call: Call, at: u64, how: How) {
        self.full.store(how == How::Full, SeqCst);
        self.fail_from[call as usize].store(at, SeqCst);
    }

    /// How often `call` was called.
    pub fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize].load(SeqCst)
    }

    fn enter(&self, call: Call) -> Result<(), EngineError> {
        let number = self.calls[call as usize].fetch_add(1, SeqCst);
        if number < self.fail_from[call as usize].load(SeqCst) {
            Ok(())
        } else if self.full.load(SeqCst) {
            Err(EngineError::Full { what: "routes", used: number, limit: 0 })
        } else {
            Err(EngineError::Device { engine: "fake", reason: format!("{call:?} {number}"), lost: true })
        }
    }

    fn check(&self, delta: &FibDelta) -> Result<(), EngineError> {
        fn sets<K: Key>(changes: &[crate::Change<K>]) -> impl Iterator<Item = IpPrefix> {
            changes.iter().filter(|change| !change.new.is_none()).map(|change| K::wrap(change.prefix))
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let used = sets(&delta.v4).chain(sets(&delta.v6)).filter(|prefix| refused.contains(prefix)).count();
        if used == 0 {
            Ok(())
        } else {
            Err(EngineError::Full { what: "routes", used: used as u64, limit: 0 })
        }
    }
}

/// The writer of the faulty engine.
pub struct FaultyEngine {
    inner: Box<dyn EngineWriter>,
    faults: Arc<Faults>,
    /// The stated limit of distinct next hops.
    next_hops_max: u64,
}

impl FaultyEngine {
    /// An empty engine behind `faults`.
    #[must_use]
    pub fn new(faults: &Arc<Faults>) -> Self {
        Self::over(Box::new(OracleEngine::new(&EngineOptions::default())), faults)
    }

    /// `engine`, which may hold several FIBs, behind `faults`.
    #[must_use]
    pub fn over(engine: Box<dyn EngineWriter>, faults: &Arc<Faults>) -> Self {
        let next_hops_max = engine.info().capacity.next_hops_max;
        Self { inner: engine, faults: Arc::clone(faults), next_hops_max }
    }

    /// An empty engine that states a smaller capacity than the oracle's.
    #[must_use]
    pub fn smaller(faults: &Arc<Faults>) -> Self {
        Self { next_hops_max: 1 << 20, ..Self::new(faults) }
    }
}

impl EngineWriter for FaultyEngine {
    fn info(&self) -> EngineInfo {
        let info = self.inner.info();
        let capacity = Capacity { next_hops_max: self.next_hops_max, ..info.capacity };
        EngineInfo { name: "fake", capacity, may_hang: true, ..info }
    }

    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        self.apply_to(FibId::MAIN, delta, rib)
    }

    fn apply_to(&mut self, fib: FibId, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        let hangs = |faults: &Faults| faults.calls(Call::Apply) >= faults.hang_from.load(SeqCst);
        while self.faults.hang_in_apply.load(SeqCst) && hangs(&self.faults) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!self.faults.die_in_apply.load(SeqCst), "an invariant, broken on purpose");
        self.faults.enter(Call::Apply)?;
        self.faults.check(delta)?;
        self.inner.apply_to(fib, delta, rib)
    }

    fn generation(&self) -> Generation {
        self.inner.generation()
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        self.faults.enter(Call::Reader)?;
        let reader = self.inner.reader(slots, batch_max)?;
        let number = self.faults.calls(Call::Reader) - 1;
        let (polls, faults) = (vec![None; slots.into()], Arc::clone(&self.faults));
        Ok(Box::new(FaultyReader { reader, number, polls, faults }))
    }
}

struct FaultyReader {
    reader: Box<dyn EngineReader>,
    number: u64,
    /// Polls of each slot since its last batch; `None` once that was collected.
    polls: Vec<Option<u64>>,
    faults: Arc<Faults>,
}

impl FaultyReader {
    /// Counts a call of `collect` or `discard`, and whether the device has answered by then.
    fn poll(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        if let Err(error) = self.faults.enter(Call::Collect) {
            return Poll::Ready(Err(error));
        }
        let pending = self.faults.pending_polls.load(SeqCst);
        let polls = &mut self.polls[usize::from(slot.0)];
        *polls = polls.map(|polls| polls.saturating_add(1));
        if polls.is_some_and(|polls| polls <= pending) {
            return Poll::Pending;
        }
        *polls = None;
        Poll::Ready(Ok(()))
    }
}

impl EngineReader for FaultyReader {
    fn slots(&self) -> u16 {
        self.reader.slots()
    }

    fn batch_max(&self) -> usize {
        self.reader.batch_max()
    }

    fn adopt(&mut self, memory: &Arc<dyn KeyMemory>) -> Result<(), EngineError> {
        self.faults.adopted.fetch_add(1, SeqCst);
        self.reader.adopt(memory)
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        self.submit_in(slot, Fibs::One(FibId::MAIN), keys)
    }

    fn submit_in(&mut self, slot: SlotId, fibs: Fibs<'_>, keys: Keys<'_>) -> Result<(), EngineError> {
        if ![u64::MAX, self.number].contains(&self.faults.reader.load(SeqCst)) {
            return self.reader.submit_in(slot, fibs, keys);
        }
        assert!(!self.faults.die.load(SeqCst), "an invariant, broken on purpose");
        while self.faults.hang.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.faults.enter(Call::Submit)?;
        let before = self.polls[usize::from(slot.0)].replace(0);
        self.faults.early_submits.fetch_add(before.is_some().into(), SeqCst);
        self.reader.submit_in(slot, fibs, keys)
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        if let Err(error) = std::task::ready!(self.poll(slot)) {
            return Poll::Ready(Err(error));
        }
        let short = self.faults.short.load(SeqCst);
        self.reader
            .collect(slot, keys)
            .map_ok(|answers| if short { &answers[..answers.len().saturating_sub(1)] } else { answers })
    }

    fn discard(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        if let Err(error) = std::task::ready!(self.poll(slot)) {
            return Poll::Ready(Err(error));
        }
        self.reader.discard(slot)
    }
}
