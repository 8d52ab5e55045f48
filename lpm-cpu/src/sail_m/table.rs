//! The part of SAIL_M's table that lookups read: the structure for all FIBs, and the next hops of each.
//!
//! | array | entries | section 4.3 |
//! |---|---|---|
//! | BC16 | 32 bits: C16, or 0 where B16 is set | on chip, 17 bits an entry |
//! | B24 | 1 bit | on chip |
//! | C24 | 32 bits | off chip |
//! | N16, N24, N32 | a vector of 32-bit next-hop ids, one for each FIB | off chip |
//!
//! "C16 = 0 exactly where B16 = 1" (section 4.2) makes BC16 one word: chunk ids start from 1.
//!
//! The vectors of N16, N24 and N32 lie in one array, level after level, and are numbered in that order. They are stored by *planes*: a
//! block of 256 adjacent vectors has a row of 256 next hops for each FIB. So a change of one FIB writes adjacent entries, several to a
//! 64-bit word, and a kernel gathers the next hops of keys of any level and FIB at once.
//!
//! ```text
//! block  | 0 .. 255 | 256 ..              | block32 ..          |   row of FIB f in block b: b * fibs + f
//! level  | 16       | 24: 256 + C16 - 1   | 32: block32 + C24 - 1 |   vector v: block v / 256, place v % 256 in its rows
//! ```

use crate::chunks::{CHUNK_ENTRIES, entries_of};
use crate::packed::Packed;
use crate::sail_l::layout::{ENTRIES16, SailRoom};
use fib::{EngineError, FibId};
use lpm_core::memory::Placement;
use std::ops::Range;

pub(crate) const BLOCKS16: u32 = 1 << 8;
const _: () = assert!(BLOCKS16 as usize * CHUNK_ENTRIES == ENTRIES16);
/// The maximum number of rows: gathers reach 2^31 next hops by a signed 32-bit index.
pub(crate) const ROWS_MAX: u32 = 1 << 23;

#[derive(Debug)]
pub(crate) struct OverlayTable {
    pub(crate) fibs: u32,
    pub(crate) block32: u32,
    /// The chunk of level 24 below each node of level 16; 0 for none.
    pub(crate) bc16: Packed<32>,
    /// Whether each node of level 24 is a leaf.
    pub(crate) b24: Packed<1>,
    /// The chunk of level 32 below each node of level 24 that is not a leaf.
    pub(crate) c24: Packed<32>,
    pub(crate) hops: Packed<32>,
}

impl OverlayTable {
    pub(crate) fn zeroed(fibs: u32, room: SailRoom, placement: Placement) -> Result<Self, EngineError> {
        let block32 = BLOCKS16 + room.chunks24;
        let rows = (block32 + room.chunks32) as usize * fibs as usize;
        Ok(Self {
            fibs,
            block32,
            bc16: Packed::zeroed(ENTRIES16, placement)?,
            b24: Packed::zeroed(room.entries24(), placement)?,
            c24: Packed::zeroed(room.entries24(), placement)?,
            hops: Packed::zeroed(rows * CHUNK_ENTRIES, placement)?,
        })
    }

    pub(crate) fn bytes_for(fibs: u32, room: SailRoom) -> u64 {
        let nodes24 = room.entries24() as u64;
        let blocks = u64::from(BLOCKS16) + u64::from(room.chunks24) + u64::from(room.chunks32);
        let vectors = blocks * CHUNK_ENTRIES as u64;
        Packed::<32>::bytes_for(ENTRIES16 as u64)
            + Packed::<1>::bytes_for(nodes24)
            + Packed::<32>::bytes_for(nodes24)
            + Packed::<32>::bytes_for(vectors * u64::from(fibs))
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bc16.bytes() + self.b24.bytes() + self.c24.bytes() + self.hops.bytes()
    }

    /// The next hops of all FIBs in the block that begins at `vector`.
    pub(crate) const fn block(&self, vector: usize) -> Range<usize> {
        let fibs = self.fibs as usize;
        vector * fibs..(vector + CHUNK_ENTRIES) * fibs
    }

    #[inline(always)]
    pub(crate) const fn place(&self, vector: usize, fib: FibId) -> usize {
        let row = vector / CHUNK_ENTRIES * self.fibs as usize + fib.0 as usize;
        row * CHUNK_ENTRIES + vector % CHUNK_ENTRIES
    }

    #[inline(always)]
    pub(crate) const fn vectors32(&self) -> usize {
        self.block32 as usize * CHUNK_ENTRIES
    }

    pub(crate) const fn chunk24(chunk: u32) -> Range<usize> {
        let entries = entries_of(chunk);
        ENTRIES16 + entries.start..ENTRIES16 + entries.end
    }

    pub(crate) const fn chunk32(&self, chunk: u32) -> Range<usize> {
        let entries = entries_of(chunk);
        self.vectors32() + entries.start..self.vectors32() + entries.end
    }

    /// The vectors of the chunk below a vector's node, if it is split.
    pub(crate) fn below(&self, vector: usize) -> Option<Range<usize>> {
        if vector < ENTRIES16 {
            let chunk = self.bc16.get(vector);
            return (chunk > 0).then(|| Self::chunk24(chunk));
        }
        let node = vector - ENTRIES16;
        let is_split = vector < self.vectors32() && self.b24.get(node) == 0;
        is_split.then(|| self.chunk32(self.c24.get(node)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_next_hop_has_a_place_of_its_own() {
        let room = SailRoom { chunks24: 3, chunks32: 2 };
        let table = OverlayTable::zeroed(5, room, Placement::default()).unwrap();
        let vectors = table.chunk32(2).end;
        let mut seen = vec![false; vectors * 5];
        for vector in 0..vectors {
            for fib in 0..5 {
                assert!(!std::mem::replace(&mut seen[table.place(vector, FibId(fib))], true));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
        assert_eq!(
            (OverlayTable::chunk24(1).start, table.chunk32(1).start),
            (1 << 16, OverlayTable::chunk24(3).end)
        );
        assert_eq!(table.place(table.chunk32(2).start, FibId(0)), table.block(table.chunk32(2).start).start);
        assert_eq!(table.place(7, FibId(4)) + 1, table.place(8, FibId(4)), "neighbours of a FIB");
        assert!(table.bytes() >= OverlayTable::bytes_for(5, room));
    }
}
