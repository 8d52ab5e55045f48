//! What SAIL_L's kernels do, in plain Rust, a load at a time: for tests without a device.

use crate::direct::{CHUNK_UNITS, Unit};
use crate::sail::BCN_WORDS;
use fib::NextHopId;

/// A lookup under way: [`Lookup::step`] is one load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    key: u32,
    /// First word of N32.
    n32: usize,
    level: u32,
    at: usize,
}

impl Lookup {
    /// A lookup of `key` that has read nothing yet, in a table whose N32 begins at word `n32` (the header's first).
    #[must_use]
    pub(crate) const fn new(key: u32, n32: usize) -> Self {
        Self { key, n32, level: 16, at: (key >> 16) as usize }
    }

    /// Reads the next word; the answer, if that was the last.
    pub(crate) fn step(&mut self, words: &[u32]) -> Option<NextHopId> {
        self.take(words[self.at])
    }

    /// Takes in the next word. N32 leads nowhere, whatever its words say.
    fn take(&mut self, word: u32) -> Option<NextHopId> {
        let unit = Unit(word);
        let Some(chunk) = unit.to_chunk().filter(|_| self.level < 32) else {
            return Some(NextHopId::from_answer(unit.value()));
        };
        self.level += 8;
        let first = if self.level == 24 { BCN_WORDS } else { self.n32 };
        self.at = first + chunk as usize * CHUNK_UNITS + (self.key >> (32 - self.level) & 0xff) as usize;
        None
    }

    /// All of it, with the loads done by `load`.
    ///
    /// # Errors
    /// What `load` answers.
    pub(crate) fn run_by<E>(
        key: u32,
        n32: usize,
        mut load: impl FnMut(usize) -> Result<u32, E>,
    ) -> Result<NextHopId, E> {
        let mut lookup = Self::new(key, n32);
        loop {
            if let Some(answer) = lookup.take(load(lookup.at)?) {
                return Ok(answer);
            }
        }
    }
}
