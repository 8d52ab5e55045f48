//! The host's side of the doorbells that persistent kernels wait at (`serve` in `kernels/common.cuh` is the other side).
//!
//! ```text
//! host:   table, keys of the slot -> doorbell (release)          device: doorbell -> fence -> table, keys
//! host:   done of each block (acquire) -> answers                device: answers -> fence -> done of the block
//! ```
//! A slot belongs to one thread of the host. Its words may change again only when all blocks that serve it are done.

use crate::cu::{GpuError, Shared};

/// Words of 64 bits that a slot has in the control block (`Slot`), and what lies where.
const CONTROL_WORDS: usize = 8;
const DOORBELL: usize = 0;
const TABLE: usize = 2;
const BATCH: usize = 4;

/// The doorbell that ends the kernel's blocks of a slot (`STOP`).
const STOP: u32 = u32::MAX;

/// What the device is to look up, as it lies in a slot: addresses on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The table's words, and its header.
    pub(super) table: [u64; 2],
    /// Keys, and where raw answers go.
    pub(super) batch: [u64; 2],
    /// Keys.
    pub(super) count: u32,
}

/// The number of a slot's batch: 1, 2, .., never [`STOP`]. Before the first one it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchNumber(u32);

impl BatchNumber {
    /// The number `number` batches after 0 was current; for tests of what happens where the numbers begin again.
    #[cfg(any(test, model))]
    pub(super) const fn at(number: u32) -> Self {
        Self(number)
    }

    /// The next one.
    #[inline]
    const fn next(self) -> Self {
        Self(if self.0 + 1 == STOP { 1 } else { self.0 + 1 })
    }
}

/// The doorbells of some slots, each served by the same number of blocks. Clones share them.
#[derive(Clone)]
pub(super) struct Doorbells {
    control: Shared<u64>,
    done: Shared<u32>,
    /// Blocks a slot.
    parts: usize,
}

impl Doorbells {
    /// Words of the control block of `slots` slots.
    pub(super) const fn control_words(slots: usize) -> usize {
        CONTROL_WORDS * slots
    }

    /// Over `control`, of [`Self::control_words`], and `done`, with `parts` words a slot. Both are zero.
    pub(super) const fn new(control: Shared<u64>, done: Shared<u32>, parts: usize) -> Self {
        Self { control, done, parts }
    }

    /// The control block, and what blocks are done with, for the kernel.
    pub(super) const fn shared(&self) -> (&Shared<u64>, &Shared<u32>) {
        (&self.control, &self.done)
    }

    /// Tells the device of a batch in `slot`, after `last`. The batch before it must be over.
    ///
    /// # Errors
    /// [`GpuError::Range`] when there is no such slot.
    #[inline]
    pub(super) fn ring(&self, slot: usize, last: &mut BatchNumber, request: Request) -> Result<(), GpuError> {
        let control = slot * CONTROL_WORDS;
        self.control.write(control + TABLE, &request.table)?;
        self.control.write(control + BATCH, &request.batch)?;
        *last = last.next();
        self.control.store(control + DOORBELL, u64::from(request.count) << 32 | u64::from(last.0));
        Ok(())
    }

    /// Whether all blocks that serve `slot` are done with batch `last`; then its answers are there to read.
    #[inline]
    pub(super) fn is_over(&self, slot: usize, last: BatchNumber) -> bool {
        let first = slot * self.parts;
        (first..first + self.parts).all(|part| self.done.load(part) == last.0)
    }

    /// Ends the blocks of all slots, when they are next at their doorbells. A batch that is in flight then may never be over.
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
        assert_eq!(BatchNumber::at(STOP - 2).next(), BatchNumber(STOP - 1));
        assert_eq!(BatchNumber::at(STOP - 1).next(), BatchNumber(1));
    }
}
