//! The work lists of the vector kernels, which one stage passes to the next for one piece of a batch.

use crate::bloom::v6::MASK_SHIFT;

/// Keys of a piece: its work lists fit L1.
pub(super) const PIECE: usize = 256;
/// Prefetch distance, in probes. A list is at least this much longer than a piece: prefetching for stale entries past its end is harmless.
pub(super) const AHEAD: usize = 32;
/// Lines prefetched after each sixteen keys listed, so that the first ones are in cache when probing begins.
pub(super) const ASK: usize = 4;
/// Capacity of a work list. Stages write it in whole vectors of up to 16 words.
pub(super) const LIST: usize = PIECE + AHEAD;

/// The work lists of a reader: about 30 KiB, allocated once and never cleared, since clearing would cost more than a small batch.
#[derive(Debug)]
pub(crate) struct BloomLists {
    pub(super) v4: Lists4,
    pub(super) v6: Lists6,
}

impl BloomLists {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self { v4: Lists4::new(), v6: Lists6::new() })
    }
}

#[derive(Debug)]
pub(super) struct Lists4 {
    pub(super) entries: DirectEntries,
    pub(super) in_g1: List4,
    pub(super) in_g2: List4,
    pub(super) g1: Probes4,
    pub(super) g2: Probes4,
}

impl Lists4 {
    const fn new() -> Self {
        Self {
            entries: DirectEntries([0; LIST]),
            in_g1: List4::new(),
            in_g2: List4::new(),
            g1: Probes4::new(),
            g2: Probes4::new(),
        }
    }
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct DirectEntries(pub(super) [u32; LIST]);

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct List4 {
    pub(super) pos: [u32; LIST],
    pub(super) key: [u32; LIST],
    pub(super) len: usize,
}

impl List4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Probes of a piece: position, key, tag and line of each key that passed a filter or skips it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Probes4 {
    pub(super) pos: [u32; LIST],
    /// The word of the key's slot if its next-hop index is 1, the smallest.
    pub(super) tag: [u32; LIST],
    pub(super) line: [u32; LIST],
    pub(super) key: [u32; LIST],
    /// The word found in the line: the key's slot, else the line's link.
    pub(super) found: [u32; LIST],
    pub(super) len: usize,
}

impl Probes4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], tag: [0; LIST], line: [0; LIST], key: [0; LIST], found: [0; LIST], len: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Lists6 {
    pub(super) chunks: Chunks6,
    pub(super) lists: [List6; 2],
    pub(super) probes: Probes6,
}

impl Lists6 {
    const fn new() -> Self {
        let chunks = Chunks6 { entries: [0; LIST], index: [0; LIST], lanes: [0; PIECE / 16] };
        Self { chunks, lists: [List6::new(), List6::new()], probes: Probes6::new() }
    }
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chunks6 {
    /// Loaded entries: with AVX-512F the chunk entry of each key, with AVX2 the top entries of the current sixteen keys.
    pub(super) entries: [u32; LIST],
    /// Indices of chunk entries: with AVX-512F one for each key, 0 without a chunk; with AVX2 only for keys with a chunk.
    pub(super) index: [u32; LIST],
    pub(super) lanes: [u16; PIECE / 16],
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct List6 {
    /// Position within the piece; from bit [`CHUNK_SHIFT`] the chunk's number; from bit [`MASK_SHIFT`] the mask of levels left.
    pub(super) item: [u32; LIST],
    /// The address's bits 16..64, as [`crate::bloom::v6::rest`] returns them.
    pub(super) key: [u64; LIST],
    pub(super) len: usize,
}

impl List6 {
    const fn new() -> Self {
        Self { item: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// The first bit of the chunk's number in a list entry: the bits below it hold the position within the piece.
pub(super) const CHUNK_SHIFT: u32 = PIECE.ilog2();
const _: () =
    assert!(PIECE.is_power_of_two() && CHUNK_SHIFT + 16 <= MASK_SHIFT, "a chunk's number has 16 bits");

#[inline]
pub(super) const fn position_of(item: u32) -> usize {
    item as usize % PIECE
}

#[inline]
pub(super) const fn chunk_of(item: u32) -> u32 {
    item << (32 - MASK_SHIFT) >> (32 - MASK_SHIFT + CHUNK_SHIFT)
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Probes6 {
    pub(super) item: [u32; LIST],
    pub(super) line: [u32; LIST],
    /// The word of the key's slot if its next-hop index is 1, the smallest.
    pub(super) tag: [u64; LIST],
    /// The lower half of the word found in the line: the key's slot, else the line's link.
    pub(super) found: [u32; LIST],
    pub(super) len: usize,
}

impl Probes6 {
    const fn new() -> Self {
        Self { item: [0; LIST], line: [0; LIST], tag: [0; LIST], found: [0; LIST], len: 0 }
    }
}
