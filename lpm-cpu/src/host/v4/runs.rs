//! Allocator of runs of adjacent cells: in use, free, or retired until a grace period has passed.

use super::table::RECORD_CELLS;

/// A run has 1 to [`RECORD_CELLS`] cells and comes from the free runs of its length, else from a longer one, else from untouched cells.
/// Free runs are never joined. A writer can rely only on untouched cells; when they run short, the table is rebuilt.
#[derive(Debug)]
pub(super) struct Runs {
    capacity: u32,
    top: u32,
    /// First cells of the free runs, by length.
    free: [Vec<u32>; RECORD_CELLS as usize + 1],
    /// A bit for each length that has a free run.
    free_lens: u64,
    free_cells: u32,
    /// First cell and length of the runs freed since the last grace period began.
    limbo: Vec<(u32, u32)>,
    limbo_cells: u32,
}

impl Runs {
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

    pub(super) const fn untouched(&self) -> u32 {
        self.capacity - self.top
    }

    pub(super) const fn free_cells(&self) -> u32 {
        self.free_cells
    }

    pub(super) const fn limbo_cells(&self) -> u32 {
        self.limbo_cells
    }

    /// Takes a run that no lookup can reach. Panics if the cells run out: callers check [`Self::untouched`] first.
    pub(super) fn allocate(&mut self, len: u32) -> u32 {
        let longer = self.free_lens >> len;
        if longer == 0 {
            assert!(len <= self.untouched(), "callers check that enough cells are untouched");
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

    /// Frees a run that new lookups cannot reach.
    pub(super) fn free(&mut self, first: u32, len: u32) {
        self.limbo.push((first, len));
        self.limbo_cells += len;
    }

    pub(super) fn end_grace(&mut self) {
        let mut limbo = std::mem::take(&mut self.limbo);
        for (first, len) in limbo.drain(..) {
            self.add_free(first, len);
        }
        self.limbo = limbo;
        self.limbo_cells = 0;
    }

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
        assert_eq!((runs.allocate(32), runs.allocate(3), runs.untouched()), (10, 42, 55));
        runs.free(10, 32);
        assert_eq!((runs.limbo_cells(), runs.allocate(32)), (32, 45), "not before a grace period");
        runs.end_grace();
        assert_eq!((runs.limbo_cells(), runs.free_cells()), (0, 32));
        assert_eq!((runs.allocate(30), runs.free_cells()), (10, 2), "cut off a longer run");
        assert_eq!((runs.allocate(1), runs.allocate(1), runs.free_cells()), (40, 41, 0));
        assert_eq!((runs.allocate(23), runs.untouched()), (77, 0));
    }
}
