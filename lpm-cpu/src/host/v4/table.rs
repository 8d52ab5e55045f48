//! The part of the IPv4 table that lookups read.

use super::codes::{Form, Width};
use crate::chunks::{CHUNK_ENTRIES, entries_of};
use fib::{EngineError, NextHopId};
use lpm_core::memory::{Array, Placement};
use lpm_core::publish::Publish as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(super) const RECORD_LEN: u8 = 17;
/// Records of /17s; the records of blocks follow them.
pub(super) const RECORDS: u32 = 1 << RECORD_LEN;
pub(super) const CELL_CODES: u32 = 4;
pub(super) const RECORD_CELLS: u32 = u32::BITS;
pub(super) const RECORD_CODES: u32 = RECORD_CELLS * CELL_CODES;
pub(super) const NODES: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRoom {
    pub(super) form: Form,
    pub(super) cells: u32,
    /// Chunks of 256 links to blocks, one a /16 with routes longer than /24.
    pub(super) chunks: u32,
    /// Blocks of two records, one a /24 with longer routes.
    pub(super) blocks: u32,
}

#[derive(Debug)]
pub(crate) struct Table4 {
    pub(super) form: Form,
    pub(super) records: Array<AtomicU64>,
    pub(super) cells: Array<AtomicU32>,
    /// The chunk of each /16 that has routes longer than /24.
    pub(super) chunks: Array<AtomicU32>,
    /// In chunks, the block of each /24 that has longer routes.
    pub(super) blocks: Array<AtomicU32>,
    /// Next-hop ids by code, if codes are indices.
    pub(super) ids: Array<AtomicU32>,
    /// The next hop of code 0; a lookup loads it first. Boxed: inline, the compiler would reload all fields after each store of an answer.
    pub(super) default: Box<AtomicU32>,
}

/// A record: a map of 32 bits, and the index of the cell before its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(u64);

impl Record {
    pub(super) const fn new(map: u32, first: u32) -> Self {
        Self((first.wrapping_sub(1) as u64) << 32 | map as u64)
    }

    /// The record in a word. In a word that never held a record, 0, all bits lead to cell 0.
    #[inline(always)]
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(super) const fn map(self) -> u32 {
        self.0 as u32
    }

    /// The first cell of its run.
    pub(super) const fn first(self) -> u32 {
        ((self.0 >> 32) as u32).wrapping_add(1)
    }

    #[inline(always)]
    pub(super) const fn cell(self, at: u32) -> u32 {
        ((self.0 >> 32) as u32).wrapping_add((self.map() << (31 - at)).count_ones())
    }
}

#[inline(always)]
pub(super) const fn record_of(key: u32) -> u32 {
    key >> (32 - RECORD_LEN)
}

#[inline(always)]
pub(super) const fn record_in(block: u32, half: u32) -> u32 {
    RECORDS + (block - 1) * 2 + half
}

impl Width {
    pub(super) const fn words(self) -> u32 {
        CELL_CODES * self.bits() / 32
    }

    /// Cells that records share: cell `c` holds code `c` four times. With codes of 32 bits only "no route" has a shared cell.
    pub(super) const fn shared_cells(self) -> u32 {
        match self {
            Self::Bits32 => 1,
            _ => self.escape() + 1,
        }
    }
}

impl HostRoom {
    const fn records(self) -> usize {
        RECORDS as usize + self.blocks as usize * 2
    }

    const fn words(self) -> usize {
        self.cells as usize * self.form.width.words() as usize
    }

    pub(super) const fn bytes(self) -> u64 {
        let links = NODES + self.chunks as usize * CHUNK_ENTRIES;
        (self.records() * 8 + (self.words() + links + self.form.ids()) * 4) as u64
    }
}

impl Table4 {
    pub(super) fn zeroed(room: HostRoom, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self {
            form: room.form,
            records: Array::zeroed(room.records(), placement)?,
            cells: Array::zeroed(room.words(), placement)?,
            chunks: Array::zeroed(NODES, placement)?,
            blocks: Array::zeroed(room.chunks as usize * CHUNK_ENTRIES, placement)?,
            ids: Array::zeroed(room.form.ids(), placement)?,
            default: Box::default(),
        })
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.records.bytes()
            + self.cells.bytes()
            + self.chunks.bytes()
            + self.blocks.bytes()
            + self.ids.bytes()
    }

    /// Record `at`, for the writer; `None` if it was never set. Every map has its first bit set.
    pub(super) fn record(&self, at: u32) -> Option<Record> {
        Some(Record::from_word(self.records[at as usize].load(Ordering::Relaxed)))
            .filter(|record| record.word() != 0)
    }

    pub(super) fn set_record(&self, at: u32, record: Record) {
        self.records[at as usize].publish(record.word());
    }

    fn words<const WORDS: usize>(&self, at: u32) -> &[AtomicU32; WORDS] {
        &self.cells.as_chunks().0[at as usize]
    }

    /// Cell `at`, for the writer, with its first word in the low bits.
    #[inline]
    pub(super) fn cell(&self, at: u32) -> u128 {
        // A constant number of words makes this one or two loads.
        fn joined<const WORDS: usize>(words: &[AtomicU32; WORDS]) -> u128 {
            words.iter().rev().fold(0, |cell, word| cell << 32 | u128::from(word.load(Ordering::Relaxed)))
        }
        match self.form.width {
            Width::Bits8 => joined::<1>(self.words(at)),
            Width::Bits16 => joined::<2>(self.words(at)),
            Width::Bits32 => joined::<4>(self.words(at)),
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "word by word")]
    pub(super) fn set_cell(&self, at: u32, cell: u128) {
        fn set<const WORDS: usize>(words: &[AtomicU32; WORDS], cell: u128) {
            for (at, word) in words.iter().enumerate() {
                let new = (cell >> (32 * at)) as u32;
                if word.load(Ordering::Relaxed) != new {
                    word.publish(new);
                }
            }
        }
        match self.form.width {
            Width::Bits8 => set::<1>(self.words(at), cell),
            Width::Bits16 => set::<2>(self.words(at), cell),
            Width::Bits32 => set::<4>(self.words(at), cell),
        }
    }

    #[inline]
    pub(super) fn pack(&self, codes: &[u32; CELL_CODES as usize]) -> u128 {
        fn packed<const BITS: u32>(codes: &[u32; CELL_CODES as usize]) -> u128 {
            let code = |cell, code: &u32| cell << BITS | u128::from(code & (u32::MAX >> (32 - BITS)));
            codes.iter().rev().fold(0, code)
        }
        match self.form.width {
            Width::Bits8 => packed::<8>(codes),
            Width::Bits16 => packed::<16>(codes),
            Width::Bits32 => packed::<32>(codes),
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "code by code")]
    pub(super) fn unpack(&self, cell: u128) -> [u32; CELL_CODES as usize] {
        fn unpacked<const BITS: u32>(cell: u128) -> [u32; CELL_CODES as usize] {
            [0, 1, 2, 3].map(|at| (cell >> (BITS * at)) as u32 & (u32::MAX >> (32 - BITS)))
        }
        match self.form.width {
            Width::Bits8 => unpacked::<8>(cell),
            Width::Bits16 => unpacked::<16>(cell),
            Width::Bits32 => unpacked::<32>(cell),
        }
    }

    #[inline(always)]
    pub(crate) fn default_route(&self) -> NextHopId {
        NextHopId::from_answer(self.default.load(Ordering::Acquire))
    }

    pub(super) fn code(&self, at24: u32) -> u32 {
        self.code_in(at24 / RECORD_CODES, at24)
    }

    /// The code of `at` in record `record`, for the writer: `at` is a /24, or an address in a block.
    pub(super) fn code_in(&self, record: u32, at: u32) -> u32 {
        let record = self.record(record);
        let cell = record.map_or(0, |record| self.cell(record.cell(at / CELL_CODES % RECORD_CELLS)));
        self.unpack(cell)[(at % CELL_CODES) as usize]
    }

    /// The word with the link to the block of a /24 whose /16 has a chunk.
    pub(super) fn link(&self, at24: u32) -> &AtomicU32 {
        let chunk = self.chunks[at24 as usize / CHUNK_ENTRIES].load(Ordering::Relaxed);
        &self.blocks[entries_of(chunk).start + at24 as usize % CHUNK_ENTRIES]
    }
}
