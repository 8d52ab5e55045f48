//! The memory layouts of SAIL_L's arrays, and the next-hop codes in them.
//!
//! | | `paper` | `wide` |
//! |---|---|---|
//! | BCN | 16 bits: B16, then 15 bits of N16 or C16 | 32 bits: chunk flag, then 24 bits of N16 or C16 |
//! | BN24 | 8 bits, 0: look in C24 | 32 bits: chunk flag, then 24 bits of N24 or C24 |
//! | C24 | 16 bits (the paper names no width) | none |
//! | N32 | 8 bits | 32 bits |
//! | next hops | 254, behind codes of 8 bits | every id |
//! | chunks of level 24 | 32,767 | 65,536, one a /16 |
//! | chunks of level 32 | 65,535 | 8,388,607, limited by a signed 32-bit index |
//!
//! In the paper's layout 0 in BN24 means "look in C24", so "no route" has a code. With it the paper's invariant holds: B16 = 0 exactly
//! where N16 = 0 and where C16 is not 0. In the wide layout the flag marks a chunk, so that a table without routes is all zero.

use crate::chunks::CHUNK_ENTRIES;
use crate::codes::HopCodes;
use crate::packed::Packed;
use fib::{EngineError, NextHopId};
use lpm_core::memory::{Array, Placement};
use std::ops::Range;
use std::sync::atomic::AtomicU32;

pub(crate) const ENTRIES16: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SailLevel {
    /// BCN.
    L16,
    /// BN24.
    L24,
    /// N32.
    L32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SailRoom {
    pub(crate) chunks24: u32,
    pub(crate) chunks32: u32,
}

impl SailRoom {
    pub(crate) const fn entries24(self) -> usize {
        self.chunks24 as usize * CHUNK_ENTRIES
    }

    const fn entries32(self) -> usize {
        self.chunks32 as usize * CHUNK_ENTRIES
    }
}

/// The part of the table that lookups read, in one of the layouts. Entries are raw values.
pub(crate) trait SailLayout: Sized + Send + Sync + 'static {
    const NEXT_HOPS_MAX: u64;
    const ROOM_MAX: SailRoom;

    fn zeroed(room: SailRoom, placement: Placement) -> Result<Self, EngineError>;
    fn bytes_for(room: SailRoom) -> u64;
    fn bytes(&self) -> u64;
    /// The next-hop ids by code; empty if codes are ids.
    fn ids(&self) -> &[AtomicU32];
    /// The codes of an empty table: only "no route" may have one.
    fn codes(&self) -> HopCodes;

    /// The entry of `level` that holds the code of a next hop.
    fn entry(level: SailLevel, code: u32) -> u32;
    fn code(entry: u32) -> u32;
    fn get(&self, level: SailLevel, at: usize) -> u32;
    fn edit(&self, level: SailLevel, range: Range<usize>, entry: impl FnMut(usize, u32) -> u32) -> u64;
    fn chunk(&self, level: SailLevel, at: usize) -> u32;
    /// Links an entry to a chunk. Returns the number of stores.
    fn link(&self, level: SailLevel, at: usize, chunk: u32) -> u64;
}

#[derive(Debug)]
pub(crate) struct Wide {
    pub(crate) bcn: Packed<32>,
    pub(crate) bn24: Packed<32>,
    pub(crate) n32: Packed<32>,
}

impl Wide {
    /// Flag: the low bits are a chunk's id.
    pub(crate) const CHUNK: u32 = 1 << 31;
    pub(crate) const ID: u32 = (1 << 24) - 1;

    const fn array(&self, level: SailLevel) -> &Packed<32> {
        match level {
            SailLevel::L16 => &self.bcn,
            SailLevel::L24 => &self.bn24,
            SailLevel::L32 => &self.n32,
        }
    }
}

impl SailLayout for Wide {
    const NEXT_HOPS_MAX: u64 = NextHopId::MAX.get() as u64;
    const ROOM_MAX: SailRoom = SailRoom { chunks24: 1 << 16, chunks32: (1 << 23) - 1 };

    fn zeroed(room: SailRoom, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self {
            bcn: Packed::zeroed(ENTRIES16, placement)?,
            bn24: Packed::zeroed(room.entries24(), placement)?,
            n32: Packed::zeroed(room.entries32(), placement)?,
        })
    }

    fn bytes_for(room: SailRoom) -> u64 {
        let entries = [ENTRIES16, room.entries24(), room.entries32()];
        entries.into_iter().map(|entries| Packed::<32>::bytes_for(entries as u64)).sum()
    }

    fn bytes(&self) -> u64 {
        self.bcn.bytes() + self.bn24.bytes() + self.n32.bytes()
    }

    fn ids(&self) -> &[AtomicU32] {
        &[]
    }

    fn codes(&self) -> HopCodes {
        HopCodes::Ids(NextHopId::MAX.get())
    }

    fn entry(_: SailLevel, code: u32) -> u32 {
        code
    }

    fn code(entry: u32) -> u32 {
        entry
    }

    fn get(&self, level: SailLevel, at: usize) -> u32 {
        self.array(level).get(at)
    }

    fn edit(&self, level: SailLevel, range: Range<usize>, entry: impl FnMut(usize, u32) -> u32) -> u64 {
        self.array(level).edit(range, entry)
    }

    fn chunk(&self, level: SailLevel, at: usize) -> u32 {
        self.array(level).get(at) & Self::ID
    }

    fn link(&self, level: SailLevel, at: usize, chunk: u32) -> u64 {
        self.array(level).set(at, Self::CHUNK | chunk)
    }
}

#[derive(Debug)]
pub(crate) struct Paper {
    pub(crate) bcn: Packed<16>,
    pub(crate) bn24: Packed<8>,
    pub(crate) c24: Packed<16>,
    pub(crate) n32: Packed<8>,
    pub(crate) ids: Array<AtomicU32>,
}

const CODES: u32 = 1 << 8;

impl Paper {
    /// B16 in an entry of BCN: the other bits are N16.
    pub(crate) const B16: u32 = 1 << 15;
}

impl SailLayout for Paper {
    // Code 0 means "look in C24", and "no route" takes another.
    const NEXT_HOPS_MAX: u64 = CODES as u64 - 2;
    const ROOM_MAX: SailRoom = SailRoom { chunks24: (1 << 15) - 1, chunks32: (1 << 16) - 1 };

    fn zeroed(room: SailRoom, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self {
            bcn: Packed::zeroed(ENTRIES16, placement)?,
            bn24: Packed::zeroed(room.entries24(), placement)?,
            c24: Packed::zeroed(room.entries24(), placement)?,
            n32: Packed::zeroed(room.entries32(), placement)?,
            ids: Array::zeroed(CODES as usize, placement)?,
        })
    }

    fn bytes_for(room: SailRoom) -> u64 {
        let [n16, n24, n32] = [ENTRIES16, room.entries24(), room.entries32()].map(|entries| entries as u64);
        let n24 = Packed::<8>::bytes_for(n24) + Packed::<16>::bytes_for(n24);
        Packed::<16>::bytes_for(n16) + n24 + Packed::<8>::bytes_for(n32) + CODES as u64 * 4
    }

    fn bytes(&self) -> u64 {
        self.bcn.bytes() + self.bn24.bytes() + self.c24.bytes() + self.n32.bytes() + self.ids.bytes()
    }

    fn ids(&self) -> &[AtomicU32] {
        &self.ids
    }

    fn codes(&self) -> HopCodes {
        let what = "next hops of sail-l layout=paper, and one for no route";
        let mut codes = HopCodes::indexed(CODES - 1, what);
        codes.acquire(&self.ids, NextHopId::NONE);
        codes
    }

    fn entry(level: SailLevel, code: u32) -> u32 {
        if level == SailLevel::L16 { Self::B16 | code } else { code }
    }

    fn code(entry: u32) -> u32 {
        entry & !Self::B16
    }

    fn get(&self, level: SailLevel, at: usize) -> u32 {
        match level {
            SailLevel::L16 => self.bcn.get(at),
            SailLevel::L24 => self.bn24.get(at),
            SailLevel::L32 => self.n32.get(at),
        }
    }

    fn edit(&self, level: SailLevel, range: Range<usize>, entry: impl FnMut(usize, u32) -> u32) -> u64 {
        match level {
            SailLevel::L16 => self.bcn.edit(range, entry),
            SailLevel::L24 => self.bn24.edit(range, entry),
            SailLevel::L32 => self.n32.edit(range, entry),
        }
    }

    fn chunk(&self, level: SailLevel, at: usize) -> u32 {
        match level {
            SailLevel::L16 => self.bcn.get(at),
            SailLevel::L24 | SailLevel::L32 => self.c24.get(at),
        }
    }

    /// C24 is stored before the 0 in BN24. A lookup that read an earlier 0 finds the new chunk there, whose entries are valid already.
    fn link(&self, level: SailLevel, at: usize, chunk: u32) -> u64 {
        match level {
            SailLevel::L16 => self.bcn.set(at, chunk),
            SailLevel::L24 | SailLevel::L32 => self.c24.set(at, chunk) + self.bn24.set(at, 0),
        }
    }
}
