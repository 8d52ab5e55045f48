//! GALE's kernels in plain Rust, access by access: for tests without a device, and to count accesses.

use super::DIRECT_UNITS;
use crate::direct::unit::{DELETE, EXTEND, FOLD, INSERT, MODIFY};
use crate::direct::{CHUNK_UNITS, Draw, Unit};
use crate::host::{Image, PrefixOp};

/// Counts of word accesses on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Words read.
    pub loads: u64,
    /// Words written.
    pub writes: u64,
}

/// A device's table in host memory.
#[derive(Clone, Debug)]
pub struct GaleModel {
    /// The words.
    pub words: Vec<u32>,
    /// Accesses of all operations so far.
    pub accesses: Accesses,
}

/// Memory that operations access.
pub trait OpMemory {
    /// Loads word `at`.
    fn load(&mut self, at: usize) -> u32;
    /// Stores word `at`.
    fn store(&mut self, at: usize, word: u32);
}

/// The raw answer to `key`; `load` does the loads.
///
/// # Errors
/// Errors of `load`.
pub fn search_by<E>(key: u32, mut load: impl FnMut(usize) -> Result<u32, E>) -> Result<u32, E> {
    let unit = Unit(load((key >> 8) as usize)?);
    match unit.to_chunk() {
        Some(chunk) => load(base(chunk) + (key & 0xff) as usize).map(|word| Unit(word).value()),
        None => Ok(unit.value()),
    }
}

const fn base(chunk: u32) -> usize {
    DIRECT_UNITS + chunk as usize * CHUNK_UNITS
}

impl GaleModel {
    /// Loads `image`.
    #[must_use]
    pub fn new(image: &Image<'_>) -> Self {
        Self { words: image.to_words(), accesses: Accesses::default() }
    }

    /// Runs operations, and counts their accesses.
    pub fn run(&mut self, ops: &[PrefixOp]) {
        run(ops, self);
    }
}

impl OpMemory for GaleModel {
    fn load(&mut self, at: usize) -> u32 {
        self.accesses.loads += 1;
        self.words[at]
    }

    fn store(&mut self, at: usize, word: u32) {
        self.accesses.writes += 1;
        self.words[at] = word;
    }
}

/// Runs operations on any memory, as kernel `gale_operations` does.
pub fn run(ops: &[PrefixOp], memory: &mut impl OpMemory) {
    for op in ops {
        operation(*op, memory);
    }
}

fn operation(op: PrefixOp, memory: &mut impl OpMemory) {
    let slot = (op.address >> 8) as usize;
    let (kind, length, depth) = (op.how & 0xff, op.how >> 8 & 0xff, op.how >> 16 & 0xff);
    let unit = Unit(op.value << 8 | depth);
    let draw_op = match kind {
        EXTEND => {
            let under = memory.load(slot);
            for at in base(op.value)..base(op.value) + CHUNK_UNITS {
                memory.store(at, under);
            }
            return memory.store(slot, Unit::chunk(op.value).0);
        }
        FOLD => {
            let unit = memory.load(base(op.value));
            return memory.store(slot, unit);
        }
        INSERT => Draw { depth_min: 0, depth_max: length, unit },
        MODIFY | DELETE => Draw { depth_min: length, depth_max: length, unit },
        _ => return,
    };
    if length <= 24 {
        draw(draw_op, slot, 1 << (24 - length), memory);
    } else if let Some(chunk) = Unit(memory.load(slot)).to_chunk() {
        draw(draw_op, base(chunk) + (op.address & 0xff) as usize, 1 << (32 - length), memory);
    }
}

fn draw(draw_op: Draw, first: usize, count: usize, memory: &mut impl OpMemory) {
    for at in first..first + count {
        let old = Unit(memory.load(at));
        match old.to_chunk() {
            Some(chunk) => draw(draw_op, base(chunk), CHUNK_UNITS, memory),
            None if draw_op.hits(old) => memory.store(at, draw_op.unit.0),
            None => {}
        }
    }
}
