//! One half of a reader: three ways to ask an engine, behind one face.

use super::group::HelperGroup;
use super::why::{Why, complete};
use fib::{EngineError, EngineReader, Keys, NextHopId, SlotId};
use std::task::Poll;

/// How the reader of a half is driven.
pub enum ReaderLane {
    /// On the caller's thread: answers are there when the call returns.
    Inline(Box<dyn EngineReader>),
    /// Through its slots: a device works on them meanwhile.
    Slots(Box<dyn EngineReader>),
    /// On helper threads.
    Threads(HelperGroup),
    /// Could not be made; never asked.
    Absent,
}

impl ReaderLane {
    /// Through the slots of `reader`, of which there must be `slots` of `batch_max` keys.
    ///
    /// # Errors
    /// [`Why::Failed`].
    pub fn slots(reader: Box<dyn EngineReader>, slots: u16, batch_max: usize) -> Result<Self, Why> {
        if reader.slots() < slots || reader.batch_max() < batch_max {
            let error = EngineError::Batch { keys: batch_max, limit: reader.batch_max() };
            return Err(Why::Failed { during: "reader", error });
        }
        Ok(Self::Slots(reader))
    }

    /// Whether answers come later.
    #[inline]
    pub(super) const fn is_asynchronous(&self) -> bool {
        !matches!(self, Self::Inline(_))
    }

    /// Hands `keys` over; `Ok(true)` when the answers are in `out` already.
    ///
    /// # Errors
    /// Why the engine has not taken them.
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

    /// Whether the keys of what is in flight can be had back with [`Self::kept`].
    #[inline]
    pub(super) const fn keeps_keys(&self) -> bool {
        matches!(self, Self::Threads(_))
    }

    /// Gives the keys that `slot` was handed last to `take`, part by part; nothing where they are not kept.
    #[cold]
    pub(super) fn kept(&self, slot: usize, take: impl FnMut(Keys<'_>)) {
        if let Self::Threads(group) = self {
            group.kept(slot, take);
        }
    }

    /// The answers of `slot` into `out`, as many as keys.
    ///
    /// # Errors
    /// Why there are none.
    #[inline]
    pub fn collect(&mut self, slot: usize, out: &mut [NextHopId]) -> Poll<Result<(), Why>> {
        match self {
            Self::Threads(group) => group.collect(slot, out),
            _ => self.collect_slot(slot, out.len()).map_ok(|answers| out.copy_from_slice(answers)),
        }
    }

    /// What the engine has in `slot`, where it lies.
    #[inline]
    pub(super) fn collect_slot(&mut self, slot: usize, keys: usize) -> Poll<Result<&[NextHopId], Why>> {
        match self {
            Self::Slots(reader) => reader.collect(slot_id(slot)).map(|answers| complete(answers, keys)),
            _ => Poll::Ready(Err(Why::Died { during: "collect" })),
        }
    }

    /// As [`EngineReader::refresh`]. Helper threads do so by themselves.
    pub(super) fn refresh(&mut self) {
        if let Self::Inline(reader) | Self::Slots(reader) = self {
            reader.refresh();
        }
    }
}

/// Slots are counted from a `u16`.
#[inline]
pub(super) fn slot_id(slot: usize) -> SlotId {
    SlotId(u16::try_from(slot).unwrap_or(u16::MAX))
}
