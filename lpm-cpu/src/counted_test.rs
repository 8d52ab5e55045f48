//! Loads of a lookup, counted: of words that the paper keeps on chip, and of others.

use fib::loads::{Loads, Place};
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;

/// Counts loads.
#[derive(Default)]
pub(crate) struct CountedLoads {
    onchip: HashSet<Place>,
    /// On chip, off chip.
    pub(crate) loads: [usize; 2],
}

impl CountedLoads {
    /// With these words on chip.
    pub(crate) fn of<'a>(onchip: impl Iterator<Item = &'a AtomicU64>) -> Self {
        Self { onchip: onchip.map(Place::of).collect(), loads: [0; 2] }
    }
}

impl Loads for CountedLoads {
    type Stop = Infallible;

    fn load(&mut self, place: Place, read: impl FnOnce() -> u64) -> Result<u64, Infallible> {
        self.loads[usize::from(!self.onchip.contains(&place))] += 1;
        Ok(read())
    }
}
