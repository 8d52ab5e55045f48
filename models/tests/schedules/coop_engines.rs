//! Engines for the model of `coop`: an answer shows the generation it is from, and an engine fails on demand.

use crate::check::{InjectedFault, is};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, thread};
use fib::{
    EngineError, EngineInfo, EngineReader, EngineStats, EngineWriter, FibDelta, Generation, Isa, Keys,
    NextHopId, Rib, SlotId,
};
use std::task::Poll;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Never,
    /// Reader: an error from `submit` or `lookup`.
    Refuses,
    /// Reader with slots: an error from `collect`.
    Fails,
    /// Reader with slots: too few answers.
    Short,
    /// Reader: a panic in the thread that looks up.
    Panics,
    /// Reader: no answer until the model is over.
    Hangs,
    /// Writer: an error of the device.
    Apply,
}

pub(crate) struct EngineState {
    name: &'static str,
    trouble: Trouble,
    /// Calls that succeed before the trouble begins.
    calls_left: AtomicU64,
    table: AtomicU64,
    /// The model is over: no engine hangs any longer.
    pub(crate) is_over: AtomicBool,
}

impl EngineState {
    pub(crate) fn new(name: &'static str, trouble: Trouble, calls: u64) -> Arc<Self> {
        Arc::new(Self {
            name,
            trouble,
            calls_left: AtomicU64::new(calls),
            table: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    fn error(&self) -> EngineError {
        EngineError::Device { engine: self.name, reason: "on purpose".to_owned(), lost: false }
    }

    /// Whether `trouble` begins with this call, or has begun.
    fn is_due(&self, trouble: Trouble) -> bool {
        if self.trouble != trouble {
            return false;
        }
        let left = self.calls_left.load(Ordering::SeqCst);
        self.calls_left.store(left.saturating_sub(1), Ordering::SeqCst);
        left == 0
    }
}

/// The next hop of `key`, below 2^16, in a table of generation `generation`.
pub(crate) fn answer(key: u32, generation: u64) -> NextHopId {
    NextHopId::new(key * 16 + u32::try_from(generation).unwrap() + 1).unwrap()
}

pub(crate) struct Engine(pub(crate) Arc<EngineState>);

impl EngineWriter for Engine {
    fn info(&self) -> EngineInfo {
        EngineInfo::new(self.0.name, Isa::Scalar)
    }

    fn apply(&mut self, _: &FibDelta, _: &Rib) -> Result<Generation, EngineError> {
        if self.0.is_due(Trouble::Apply) {
            return Err(self.0.error());
        }
        let state = Arc::clone(&self.0);
        let next = state.table.load(Ordering::SeqCst) + 1;
        if is(InjectedFault::LateTable) {
            thread::spawn(move || state.table.store(next, Ordering::SeqCst));
        } else {
            state.table.store(next, Ordering::SeqCst);
        }
        Ok(Generation::default())
    }

    fn generation(&self) -> Generation {
        Generation::default()
    }

    fn stats(&self) -> EngineStats {
        EngineStats::default()
    }

    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError> {
        let slots = vec![(Vec::new(), true); usize::from(slots)];
        Ok(Box::new(FailingReader { state: Arc::clone(&self.0), slots, batch_max }))
    }
}

struct FailingReader {
    state: Arc<EngineState>,
    /// Answers, and whether the device was polled since they were submitted.
    slots: Vec<(Vec<NextHopId>, bool)>,
    batch_max: usize,
}

impl FailingReader {
    fn answers(&self, keys: Keys<'_>) -> Vec<NextHopId> {
        let Keys::V4(keys) = keys else { panic!("keys of IPv6") };
        let table = self.state.table.load(Ordering::SeqCst);
        keys.iter().map(|key| answer(*key, table)).collect()
    }
}

impl EngineReader for FailingReader {
    fn slots(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap()
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        if self.state.is_due(Trouble::Refuses) {
            return Err(self.state.error());
        }
        self.slots[usize::from(slot.0)] = (self.answers(keys), false);
        Ok(())
    }

    fn collect(&mut self, slot: SlotId, _: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        let (fails, short) = (self.state.is_due(Trouble::Fails), self.state.is_due(Trouble::Short));
        let hangs = self.state.is_due(Trouble::Hangs);
        let (answers, asked) = &mut self.slots[usize::from(slot.0)];
        if hangs || !std::mem::replace(asked, true) {
            return Poll::Pending;
        }
        if fails {
            return Poll::Ready(Err(self.state.error()));
        }
        let len = if short { answers.len() - 1 } else { answers.len() };
        Poll::Ready(Ok(&answers[..len]))
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        if self.state.is_due(Trouble::Refuses) {
            return Err(self.state.error());
        }
        if self.state.is_due(Trouble::Panics) {
            std::panic::resume_unwind(Box::new("on purpose")); // no message, and no schedule to replay
        }
        if self.state.is_due(Trouble::Hangs) {
            while !self.state.is_over.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        out.copy_from_slice(&self.answers(keys));
        Ok(())
    }
}
