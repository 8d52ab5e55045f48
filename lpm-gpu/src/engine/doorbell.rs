//! The host's side of the doorbells of persistent kernels (the device's side is `serve` in `kernels/common.cuh`).
//!
//! ```text
//! host:   table, keys of the slot -> doorbell (release)          device: doorbell -> fence -> table, keys
//! host:   done of each block (acquire) -> answers                device: answers -> fence -> done of the block
//! ```
//! A slot belongs to one host thread. Its words may change only when all its blocks are done with the previous batch.

use crate::cu::{GpuError, Shared};

/// 64-bit words of a slot in the control block (`Slot`), and their positions.
const CONTROL_WORDS: usize = 8;
const DOORBELL: usize = 0;
const TABLE: usize = 2;
const BATCH: usize = 4;

const STOP: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The table's words and header.
    pub(super) table: [u64; 2],
    /// Keys and raw answers.
    pub(super) batch: [u64; 2],
    pub(super) count: u32,
}

/// Number of a slot's batch: 0 before the first, then 1, 2, .., never [`STOP`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchNumber(u32);

impl BatchNumber {
    #[cfg(any(test, model))]
    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    const fn next(self) -> Self {
        Self(if self.0 + 1 == STOP { 1 } else { self.0 + 1 })
    }
}

/// Doorbells of slots that are served by equally many blocks. Clones share them.
#[derive(Clone)]
pub(super) struct Doorbells {
    control: Shared<u64>,
    done: Shared<u32>,
    parts: usize,
}

impl Doorbells {
    pub(super) const fn control_words(slots: usize) -> usize {
        CONTROL_WORDS * slots
    }

    /// `control` has [`Self::control_words`], `done` `parts` words a slot; both are zero.
    pub(super) const fn new(control: Shared<u64>, done: Shared<u32>, parts: usize) -> Self {
        Self { control, done, parts }
    }

    pub(super) const fn shared(&self) -> (&Shared<u64>, &Shared<u32>) {
        (&self.control, &self.done)
    }

    /// Submits a batch to `slot`, whose previous batch `last` must be over; [`GpuError::Range`] for an unknown slot.
    #[inline]
    pub(super) fn ring(&self, slot: usize, last: &mut BatchNumber, request: Request) -> Result<(), GpuError> {
        let control = slot * CONTROL_WORDS;
        self.control.write(control + TABLE, &request.table)?;
        self.control.write(control + BATCH, &request.batch)?;
        *last = last.next();
        self.control.store(control + DOORBELL, u64::from(request.count) << 32 | u64::from(last.0));
        Ok(())
    }

    /// Whether all blocks of `slot` are done with batch `last`: its answers can be read.
    #[inline]
    pub(super) fn is_over(&self, slot: usize, last: BatchNumber) -> bool {
        let first = slot * self.parts;
        (first..first + self.parts).all(|part| self.done.load(part) == last.0)
    }

    /// Ends the blocks of all slots at their next poll. A batch in flight may never be over.
    pub(super) fn stop(&self) {
        for doorbell in (DOORBELL..self.control.len()).step_by(CONTROL_WORDS) {
            self.control.store(doorbell, u64::from(STOP));
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn numbers_skip_what_stops_a_kernel_and_what_is_there_at_first() {
        assert_eq!(BatchNumber::default().next(), BatchNumber(1));
        assert_eq!(BatchNumber::numbered(STOP - 2).next(), BatchNumber(STOP - 1));
        assert_eq!(BatchNumber::numbered(STOP - 1).next(), BatchNumber(1));
    }
}
