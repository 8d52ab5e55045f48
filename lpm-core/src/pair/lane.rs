//! One half of a reader: three ways to call an engine behind one interface.

use super::group::HelperGroup;
use super::why::{Why, complete};
use fib::{EngineError, EngineReader, KeyMemory, Keys, NextHopId, SlotId};
use std::sync::Arc;
use std::task::Poll;

/// How the reader of a half is called.
pub enum ReaderLane {
    /// On the caller's thread, which has the answers when the call returns.
    Inline(Box<dyn EngineReader>),
    /// Through its slots, while a device works on them.
    Slots(Box<dyn EngineReader>),
    /// On helper threads.
    Threads(HelperGroup),
    /// Could not be made; never called.
    Absent,
}

impl ReaderLane {
    /// Uses the slots of `reader`, which must have `slots` slots of `batch_max` keys.
    ///
    /// # Errors
    /// [`Why::Failed`] if it has fewer or smaller ones.
    pub fn slots(reader: Box<dyn EngineReader>, slots: u16, batch_max: usize) -> Result<Self, Why> {
        if reader.slots() < slots || reader.batch_max() < batch_max {
            let error = EngineError::Batch { keys: batch_max, limit: reader.batch_max() };
            return Err(Why::Failed { during: "reader", error });
        }
        Ok(Self::Slots(reader))
    }

    #[inline]
    pub(super) const fn is_asynchronous(&self) -> bool {
        !matches!(self, Self::Inline(_))
    }

    /// As [`EngineReader::adopt`]. Helper threads copy the keys of their jobs.
    ///
    /// # Errors
    /// Why the engine failed.
    pub(super) fn adopt(&mut self, memory: &Arc<dyn KeyMemory>) -> Result<(), Why> {
        match self {
            Self::Inline(reader) | Self::Slots(reader) => {
                reader.adopt(memory).map_err(|error| Why::Failed { during: "adopt", error })
            }
            Self::Threads(_) | Self::Absent => Ok(()),
        }
    }

    /// Submits `keys`; `Ok(true)` when the answers are already in `out`.
    ///
    /// # Errors
    /// Why the engine did not take them.
    #[inline]
    pub fn submit(&mut self, slot: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<bool, Why> {
        let failed = |error| Why::Failed { during: "submit", error };
        match self {
            Self::Inline(reader) => reader.lookup(keys, out).map(|()| true).map_err(failed),
            Self::Slots(reader) => reader.submit(slot_id(slot), keys).map(|()| false).map_err(failed),
            Self::Threads(group) => group.submit(slot, keys).map(|()| false),
            Self::Absent => Err(Why::Died { during: "submit" }),
        }
    }

    /// Collects the answers of `slot` to `keys` into `out`, which is as long.
    ///
    /// # Errors
    /// Why there are no answers.
    #[inline]
    pub fn collect(&mut self, slot: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Poll<Result<(), Why>> {
        match self {
            Self::Threads(group) => group.collect(slot, out),
            _ => self.collect_slot(slot, keys).map_ok(|answers| out.copy_from_slice(answers)),
        }
    }

    #[inline]
    pub(super) fn collect_slot(&mut self, slot: usize, keys: Keys<'_>) -> Poll<Result<&[NextHopId], Why>> {
        match self {
            Self::Slots(reader) => {
                reader.collect(slot_id(slot), keys).map(|answers| complete(answers, keys.len()))
            }
            _ => Poll::Ready(Err(Why::Died { during: "collect" })),
        }
    }

    /// As [`EngineReader::discard`].
    ///
    /// # Errors
    /// Why the engine failed.
    #[cold]
    pub(super) fn discard(&mut self, slot: usize) -> Poll<Result<(), Why>> {
        match self {
            Self::Slots(reader) => {
                reader.discard(slot_id(slot)).map_err(|error| Why::Failed { during: "collect", error })
            }
            Self::Threads(group) => group.await_jobs(slot),
            Self::Inline(_) | Self::Absent => Poll::Ready(Ok(())),
        }
    }

    /// As [`EngineReader::refresh`]. Helper threads refresh before they sleep.
    pub(super) fn refresh(&mut self) {
        if let Self::Inline(reader) | Self::Slots(reader) = self {
            reader.refresh();
        }
    }
}

/// Slot counts are `u16`.
#[inline]
pub(super) fn slot_id(slot: usize) -> SlotId {
    SlotId(u16::try_from(slot).unwrap_or(u16::MAX))
}
