//! The reader of engines that look up on the caller's CPU: the answers are in the slot when `submit` returns.

use crate::{EngineError, EngineReader, Family, Fibs, Keys, NextHopId, SlotId};
use std::task::Poll;

/// The lookup of an engine.
pub trait Answer: Send {
    /// Writes the next hop of each of `keys` to `out`. All slices have the same length, also the halves of IPv6 keys.
    fn answer(&mut self, keys: Keys<'_>, out: &mut [NextHopId]);

    /// Two calls of [`Self::answer`].
    fn answer_both(&mut self, calls: [(Keys<'_>, &mut [NextHopId]); 2]) {
        for (keys, out) in calls {
            self.answer(keys, out);
        }
    }

    /// As [`Self::answer`], with a FIB for each key.
    ///
    /// # Errors
    /// As `Fibs::check`.
    fn answer_in(
        &mut self,
        fibs: Fibs<'_>,
        keys: Keys<'_>,
        out: &mut [NextHopId],
    ) -> Result<(), EngineError> {
        fibs.check(keys.len(), 1)?;
        self.answer(keys, out);
        Ok(())
    }

    /// As [`EngineReader::refresh`].
    fn refresh(&mut self) {}
}

/// A reader that looks up within `submit`.
pub struct SlotReader<A> {
    tables: A,
    slots: Vec<ReaderSlot>,
    batch_max: usize,
}

#[derive(Clone)]
struct ReaderSlot {
    answers: Vec<NextHopId>,
    /// Of the keys submitted.
    family: Family,
    len: usize,
}

impl<A: Answer> SlotReader<A> {
    /// A reader of `tables` with `slots` slots of `batch_max` keys.
    #[must_use]
    pub fn new(tables: A, slots: u16, batch_max: usize) -> Self {
        let slot = ReaderSlot { answers: vec![NextHopId::NONE; batch_max], family: Family::V4, len: 0 };
        Self { tables, slots: vec![slot; usize::from(slots)], batch_max }
    }
}

impl<A: Answer> EngineReader for SlotReader<A> {
    #[expect(clippy::cast_possible_truncation, reason = "made from a u16")]
    fn slots(&self) -> u16 {
        self.slots.len() as u16
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        let slot = &mut self.slots[usize::from(slot.0)];
        (slot.family, slot.len) = (keys.family(), keys.len());
        self.tables.answer(keys, &mut slot.answers[..keys.len()]);
        Ok(())
    }

    fn submit_in(&mut self, slot: SlotId, fibs: Fibs<'_>, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        let slot = &mut self.slots[usize::from(slot.0)];
        (slot.family, slot.len) = (keys.family(), keys.len());
        self.tables.answer_in(fibs, keys, &mut slot.answers[..keys.len()])
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        let slot = &self.slots[usize::from(slot.0)];
        Poll::Ready(keys.check_again(slot.family, slot.len).map(|()| &slot.answers[..slot.len]))
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        self.tables.answer(keys, out);
        Ok(())
    }

    fn lookup_both(&mut self, calls: [(Keys<'_>, &mut [NextHopId]); 2]) -> [Result<(), EngineError>; 2] {
        if calls.iter().all(|(keys, out)| keys.check_answers(out).is_ok()) {
            self.tables.answer_both(calls);
            return [Ok(()), Ok(())];
        }
        calls.map(|(keys, out)| self.lookup(keys, out))
    }

    fn lookup_in(
        &mut self,
        fibs: Fibs<'_>,
        keys: Keys<'_>,
        out: &mut [NextHopId],
    ) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        self.tables.answer_in(fibs, keys, out)
    }

    fn refresh(&mut self) {
        self.tables.refresh();
    }
}
