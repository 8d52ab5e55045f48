//! What GALE's kernels do, in plain Rust, a store at a time: for tests without a device, and to count accesses.

use super::DIRECT_UNITS;
use crate::direct::unit::{DELETE, EXTEND, FOLD, INSERT, MODIFY};
use crate::direct::{CHUNK_UNITS, Draw, Unit};
use crate::host::{Image, PrefixOp};
use fib::NextHopId;
use std::convert::Infallible;

/// Loads and writes of words on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Words read.
    pub loads: u64,
    /// Words written.
    pub writes: u64,
}

/// A table as the device has it.
#[derive(Clone, Debug)]
pub struct Model {
    /// The words.
    pub words: Vec<u32>,
    /// What operations have read and written so far.
    pub accesses: Accesses,
}

/// A lookup under way: [`Lookup::step`] is one load.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    key: u32,
    at: usize,
}

impl Lookup {
    /// A lookup of `key` that has read nothing yet.
    #[must_use]
    pub const fn new(key: u32) -> Self {
        Self { key, at: (key >> 8) as usize }
    }

    /// Reads the next word; the answer, if that was the last.
    pub fn step(&mut self, words: &[u32]) -> Option<NextHopId> {
        self.take(words[self.at])
    }

    /// Takes in the next word.
    fn take(&mut self, word: u32) -> Option<NextHopId> {
        let unit = Unit(word);
        match unit.to_chunk() {
            Some(chunk) => {
                self.at = base(chunk) + (self.key & 0xff) as usize;
                None
            }
            None => Some(NextHopId::from_answer(unit.value())),
        }
    }

    /// All of it at once.
    #[must_use]
    pub fn run(key: u32, words: &[u32]) -> NextHopId {
        let Ok(answer) = Self::run_by::<Infallible>(key, |at| Ok(words[at]));
        answer
    }

    /// All of it, with the loads done by `load`.
    ///
    /// # Errors
    /// What `load` answers.
    pub fn run_by<E>(key: u32, mut load: impl FnMut(usize) -> Result<u32, E>) -> Result<NextHopId, E> {
        let mut lookup = Self::new(key);
        loop {
            if let Some(answer) = lookup.take(load(lookup.at)?) {
                return Ok(answer);
            }
        }
    }
}

/// First word of a chunk.
const fn base(chunk: u32) -> usize {
    DIRECT_UNITS + chunk as usize * CHUNK_UNITS
}

impl Model {
    /// The table of `image`.
    #[must_use]
    pub fn new(image: &Image<'_>) -> Self {
        let mut words = vec![0; image.words];
        for (first, run) in &image.runs {
            words[*first as usize..*first as usize + run.len()].copy_from_slice(run);
        }
        Self { words, accesses: Accesses::default() }
    }

    /// Runs operations as `gale_operations` does; `stored` is called after each store, with the words and which of them was
    /// stored to.
    pub fn run(&mut self, ops: &[PrefixOp], mut stored: impl FnMut(&[u32], usize)) {
        for op in ops {
            self.operation(*op, &mut stored);
        }
    }

    fn operation(&mut self, op: PrefixOp, stored: &mut impl FnMut(&[u32], usize)) {
        let slot = (op.address >> 8) as usize;
        let (kind, length, depth) = (op.how & 0xff, op.how >> 8 & 0xff, op.how >> 16 & 0xff);
        let unit = Unit(op.value << 8 | depth);
        let draw = match kind {
            EXTEND => {
                let under = self.load(slot);
                for at in base(op.value)..base(op.value) + CHUNK_UNITS {
                    self.store(at, under, stored);
                }
                return self.store(slot, Unit::chunk(op.value), stored);
            }
            FOLD => {
                let unit = self.load(base(op.value));
                return self.store(slot, unit, stored);
            }
            INSERT => Draw { depth_min: 0, depth_max: length, unit },
            MODIFY | DELETE => Draw { depth_min: length, depth_max: length, unit },
            _ => return,
        };
        if length <= 24 {
            self.draw(draw, slot, 1 << (24 - length), stored);
        } else if let Some(chunk) = self.load(slot).to_chunk() {
            self.draw(draw, base(chunk) + (op.address & 0xff) as usize, 1 << (32 - length), stored);
        }
    }

    fn draw(&mut self, draw: Draw, first: usize, count: usize, stored: &mut impl FnMut(&[u32], usize)) {
        for at in first..first + count {
            let old = self.load(at);
            match old.to_chunk() {
                Some(chunk) => self.draw(draw, base(chunk), CHUNK_UNITS, stored),
                None if draw.hits(old) => self.store(at, draw.unit, stored),
                None => {}
            }
        }
    }

    fn load(&mut self, at: usize) -> Unit {
        self.accesses.loads += 1;
        Unit(self.words[at])
    }

    fn store(&mut self, at: usize, unit: Unit, stored: &mut impl FnMut(&[u32], usize)) {
        self.accesses.writes += 1;
        self.words[at] = unit.0;
        stored(&self.words, at);
    }
}
