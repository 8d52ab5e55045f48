//! Runs of neighbouring cells: which are in use, which are free, and which wait for a grace period.

use super::table::RECORD_CELLS;

/// The allocator of an array of cells, in runs of 1 to [`RECORD_CELLS`].
///
/// A run is taken from the free ones of its length, else it is cut off a longer free one, else it comes from cells that were never used.
/// Free runs are not joined again. Cells that were never used are what a writer can count on ([`Self::untouched`]); when they run short,
/// the table is built anew, and starts without any free run.
#[derive(Debug)]
pub(super) struct Runs {
    /// Cells of the array.
    capacity: u32,
    /// The first cell that was never used.
    top: u32,
    /// First cells of the free runs, by length.
    free: [Vec<u32>; RECORD_CELLS as usize + 1],
    /// A bit for each length that has a free run.
    free_lens: u64,
    free_cells: u32,
    /// First cell and length of the runs given back since the last grace period began.
    limbo: Vec<(u32, u32)>,
    limbo_cells: u32,
}

impl Runs {
    /// The cells from `first` to `capacity`.
    pub(super) fn new(first: u32, capacity: u32) -> Self {
        Self {
            capacity,
            top: first,
            free: std::array::from_fn(|_| Vec::new()),
            free_lens: 0,
            free_cells: 0,
            limbo: Vec::new(),
            limbo_cells: 0,
        }
    }

    /// Cells that were never used.
    pub(super) const fn untouched(&self) -> u32 {
        self.capacity - self.top
    }

    /// Cells of free runs.
    pub(super) const fn free_cells(&self) -> u32 {
        self.free_cells
    }

    /// Cells that wait for a grace period.
    pub(super) const fn limbo_cells(&self) -> u32 {
        self.limbo_cells
    }

    /// The first cell of a run that no lookup can reach.
    ///
    /// # Panics
    /// When there is none: whoever takes runs has counted [`Self::untouched`] cells before.
    pub(super) fn take(&mut self, len: u32) -> u32 {
        let longer = self.free_lens >> len;
        if longer == 0 {
            assert!(len <= self.untouched(), "cells are counted before a delta is taken");
            self.top += len;
            return self.top - len;
        }
        let found = len + longer.trailing_zeros();
        let runs = &mut self.free[found as usize];
        let first = runs.pop().unwrap_or(0);
        if runs.is_empty() {
            self.free_lens &= !(1 << found);
        }
        self.free_cells -= found;
        if found > len {
            self.add_free(first + len, found - len);
        }
        first
    }

    fn add_free(&mut self, first: u32, len: u32) {
        self.free[len as usize].push(first);
        self.free_lens |= 1 << len;
        self.free_cells += len;
    }

    /// Gives a run back that no new lookup reaches.
    pub(super) fn give_back(&mut self, first: u32, len: u32) {
        self.limbo.push((first, len));
        self.limbo_cells += len;
    }

    /// A grace period is over: what was given back before it is free.
    pub(super) fn end_grace(&mut self) {
        let mut limbo = std::mem::take(&mut self.limbo);
        for (first, len) in limbo.drain(..) {
            self.add_free(first, len);
        }
        self.limbo = limbo;
        self.limbo_cells = 0;
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        (free * 4 + self.limbo.capacity() * 8) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_used_again_after_a_grace_period_only() {
        let mut runs = Runs::new(10, 100);
        assert_eq!((runs.take(32), runs.take(3), runs.untouched()), (10, 42, 55));
        runs.give_back(10, 32);
        assert_eq!((runs.limbo_cells(), runs.take(32)), (32, 45), "not before a grace period");
        runs.end_grace();
        assert_eq!((runs.limbo_cells(), runs.free_cells()), (0, 32));
        assert_eq!((runs.take(30), runs.free_cells()), (10, 2), "cut off a longer run");
        assert_eq!((runs.take(1), runs.take(1), runs.free_cells()), (40, 41, 0));
        assert_eq!((runs.take(23), runs.untouched()), (77, 0));
    }
}
