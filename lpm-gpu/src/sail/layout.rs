//! Positions of the arrays in the device's words.
//!
//! | | flat | paper |
//! |---|---|---|
//! | BCN | a word: chunk bit, 24 bits of N16 or C16 | 16 bits: B16, then 15 bits of N16 or C16 |
//! | BN24 | a word: chunk bit, 24 bits of N24 or C24 | 8 bits, 0: look in C24 |
//! | C24 | none | 16 bits (the paper names no width), 0: no route |
//! | N32 | a word | 8 bits |
//! | next hops | every id | 255, behind codes of 8 bits |
//! | chunks of BN24 | 65,536, one a /16 | 32,767 |
//! | chunks of N32 | 2^24 | 65,535 |
//!
//! In the paper's layout chunk numbers start at 1, so 0 leads nowhere: it means "no route", and takes no code. Lookups load whole
//! words and extract the entry: updates store words, and PTX orders accesses to the same memory only if they have the same size.

use super::BCN_UNITS;
use super::arrays::{SailArrays, WordPlace};
use super::codes::HopCodes;
use crate::direct::{CHUNK_UNITS, Unit};
use crate::gamt::Layout;
use fib::EngineError;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkRoom {
    pub(super) bn24: u64,
    pub(super) n32: u64,
}

impl ChunkRoom {
    pub(super) fn words(self, layout: Layout) -> u64 {
        let [bcn, chunk24, chunk32] = words(layout).map(|words| words as u64);
        bcn + self.bn24 * chunk24 + self.n32 * chunk32
    }

    pub(super) const fn check(self, layout: Layout) -> Result<(), EngineError> {
        let most = chunks_max(layout);
        if self.bn24 > most.bn24 {
            return Err(EngineError::Full { what: "chunks of BN24", used: self.bn24, limit: most.bn24 });
        }
        if self.n32 > most.n32 {
            return Err(EngineError::Full { what: "chunks of N32", used: self.n32, limit: most.n32 });
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct PaperParts {
    pub(super) codes: HopCodes,
    c24: Vec<u16>,
}

impl PaperParts {
    pub(super) fn new() -> Self {
        Self { codes: HopCodes::new(), c24: Vec::new() }
    }

    pub(super) fn c24(&self) -> &[u16] {
        &self.c24
    }

    /// Updates C24 after the entry of BN24 at `place` changed. Returns its index if C24 changed.
    pub(super) fn follow(&mut self, place: WordPlace, arrays: &SailArrays) -> Option<u32> {
        let WordPlace::Bn24(at) = place else { return None };
        self.c24.resize(arrays.bn24.len(), 0);
        let entry = &mut self.c24[at as usize];
        let new = entry_of_c24(Unit(arrays.bn24[at as usize]), *entry);
        (std::mem::replace(entry, new) != new).then_some(at)
    }

    pub(super) fn restart(&mut self, arrays: &SailArrays) {
        self.c24 = arrays.bn24.iter().map(|word| entry_of_c24(Unit(*word), 0)).collect();
    }
}

/// Entries a word of BCN, of BN24 and N32, and of C24.
const PACKED: [usize; 3] = [2, 4, 2];

pub(super) const fn chunks_max(layout: Layout) -> ChunkRoom {
    match layout {
        Layout::Flat => ChunkRoom { bn24: 1 << 16, n32: 1 << 24 },
        Layout::Paper => ChunkRoom { bn24: (1 << 15) - 1, n32: (1 << 16) - 1 },
    }
}

/// Words of BCN, of a chunk of BN24 with its C24, and of a chunk of N32.
pub(super) const fn words(layout: Layout) -> [usize; 3] {
    let [by16, by8, of_c24] = PACKED;
    match layout {
        Layout::Flat => [BCN_UNITS, CHUNK_UNITS, CHUNK_UNITS],
        Layout::Paper => [BCN_UNITS / by16, CHUNK_UNITS / by8 + CHUNK_UNITS / of_c24, CHUNK_UNITS / by8],
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WordMap {
    layout: Layout,
    pub(super) bn24: usize,
    pub(super) c24: usize,
    pub(super) n32: usize,
    pub(super) words: usize,
}

impl WordMap {
    pub(super) const fn new(layout: Layout, chunks24: usize, chunks32: usize) -> Self {
        let [bcn, chunk24, chunk32] = words(layout);
        let n32 = bcn + chunks24 * chunk24;
        let c24 = match layout {
            Layout::Flat => n32,
            Layout::Paper => bcn + chunks24 * CHUNK_UNITS / PACKED[1],
        };
        Self { layout, bn24: bcn, c24, n32, words: n32 + chunks32 * chunk32 }
    }

    pub(super) const fn word_of(&self, place: WordPlace) -> usize {
        let [by16, by8, _] = match self.layout {
            Layout::Flat => [1; 3],
            Layout::Paper => PACKED,
        };
        match place {
            WordPlace::Bcn(at) => at as usize / by16,
            WordPlace::Bn24(at) => self.bn24 + at as usize / by8,
            WordPlace::N32(at) => self.n32 + at as usize / by8,
        }
    }

    pub(super) const fn word_of_c24(&self, at: u32) -> usize {
        self.c24 + at as usize / PACKED[2]
    }

    /// The words of a chunk, those in C24 last.
    pub(super) fn chunk_words(&self, place: WordPlace) -> impl Iterator<Item = usize> + use<> {
        let run = |first: usize, by: usize| first..first + CHUNK_UNITS / by;
        let by = if self.layout == Layout::Paper { PACKED[1] } else { 1 };
        let of_c24 = match (self.layout, place) {
            (Layout::Paper, WordPlace::Bn24(at)) => run(self.word_of_c24(at), PACKED[2]),
            _ => 0..0,
        };
        run(self.word_of(place), by).chain(of_c24)
    }

    /// Whether lookups continue from an entry with this unit to another array, which must be written first.
    pub(super) const fn leads_on(&self, place: WordPlace, unit: Unit) -> bool {
        let is_none =
            unit.value() == 0 && matches!((self.layout, place), (Layout::Paper, WordPlace::Bn24(_)));
        unit.to_chunk().is_some() || is_none
    }

    /// A word of the device. `c24` has C24's entries for entries of BN24 with a next hop.
    pub(super) fn value(&self, at: usize, arrays: &SailArrays, c24: &[u16]) -> u32 {
        let (array, first) = match at {
            _ if at < self.bn24 => (&arrays.bcn, 0),
            _ if at < self.n32 => (&arrays.bn24, self.bn24),
            _ => (&arrays.n32, self.n32),
        };
        let unit = |at: usize| Unit(array.get(at).copied().unwrap_or(0));
        if self.layout == Layout::Flat {
            return unit(at - first).0;
        }
        if at < self.bn24 {
            return packed(2, |n| entry16(unit(2 * at + n)));
        }
        if (self.c24..self.n32).contains(&at) {
            let first = PACKED[2] * (at - self.c24);
            return packed(2, |n| {
                entry_of_c24(unit(first + n), c24.get(first + n).copied().unwrap_or(0)).into()
            });
        }
        packed(4, |n| entry8(unit(PACKED[1] * (at - first) + n)))
    }

    pub(super) fn pack(&self, arrays: &SailArrays, c24: &[u16]) -> Vec<u32> {
        let used: Range<usize> = 0..self.n32 + arrays.n32.len() / PACKED[1];
        used.map(|at| self.value(at, arrays, c24)).collect()
    }
}

/// Packs `count` entries in a word, the first in the low bits.
fn packed(count: usize, entry: impl Fn(usize) -> u32) -> u32 {
    (0..count).fold(0, |word, n| word | entry(n) << (n * 32 / count))
}

/// B16, set if the other bits are N16.
const B16: u32 = 1 << 15;

fn entry16(unit: Unit) -> u32 {
    match (unit.to_chunk(), unit.value()) {
        (Some(chunk), _) => chunk + 1,
        (None, 0) => 0,
        (None, code) => B16 | code,
    }
}

fn entry8(unit: Unit) -> u32 {
    if unit.to_chunk().is_some() { 0 } else { unit.value() }
}

/// The entry of C24 for an entry of BN24. With a next hop it stays `now`: a lookup may have read the earlier 0 in BN24.
fn entry_of_c24(unit: Unit, now: u16) -> u16 {
    match (unit.to_chunk(), unit.value()) {
        (Some(chunk), _) => u16::try_from(chunk + 1).unwrap_or(u16::MAX),
        (None, 0) => 0,
        (None, _) => now,
    }
}
