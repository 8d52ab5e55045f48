//! The work lists of the vector kernels: what a piece of a batch hands from stage to stage.

use crate::bloom::v6::MASK_SHIFT;
use fib::NextHopId;

/// Keys of a piece: its work lists stay in L1.
pub(super) const PIECE: usize = 256;
/// Lines asked for ahead of the probe at hand. A list is at least this much longer than a piece; what stands behind its end is
/// stale, and a prefetch there is wasted, no more.
pub(super) const AHEAD: usize = 32;
/// Lines asked for each time that sixteen keys have been listed, so that the first ones are there when probes begin.
pub(super) const ASK: usize = 4;
/// A work list is written in whole vectors of 16 words at most.
pub(super) const LIST: usize = PIECE + AHEAD;

/// The work lists of a reader: some 30 KiB, made once, for clearing them would cost more than a small batch.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(super) v4: Lists4,
    pub(super) v6: Lists6,
}

impl Lists {
    /// Empty lists.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self { v4: Lists4::new(), v6: Lists6::new() })
    }
}

/// The work lists of IPv4.
#[derive(Debug)]
pub(super) struct Lists4 {
    /// The direct entries of a piece's keys.
    pub(super) entries: Entries,
    /// Keys to ask G1's filter for.
    pub(super) in_g1: List4,
    /// Keys to ask G2's filter for.
    pub(super) in_g2: List4,
    pub(super) g1: Probes4,
    pub(super) g2: Probes4,
}

impl Lists4 {
    const fn new() -> Self {
        Self {
            entries: Entries([0; LIST]),
            in_g1: List4::new(),
            in_g2: List4::new(),
            g1: Probes4::new(),
            g2: Probes4::new(),
        }
    }
}

/// Words that a stage has loaded, one a key of the piece.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entries(pub(super) [u32; LIST]);

/// The keys of a piece that go on to the next stage.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct List4 {
    /// Position within the piece.
    pub(super) pos: [u32; LIST],
    pub(super) key: [u32; LIST],
    pub(super) len: usize,
}

impl List4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// Probes of a piece: position, key, tag and line of each key that passed a filter, or that goes without one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Probes4 {
    pub(super) pos: [u32; LIST],
    /// What the key's slot holds with next-hop index 1, the least.
    pub(super) tag: [u32; LIST],
    pub(super) line: [u32; LIST],
    pub(super) key: [u32; LIST],
    /// What was found in the line: the key's slot, else the line's link.
    pub(super) found: [u32; LIST],
    pub(super) len: usize,
}

impl Probes4 {
    const fn new() -> Self {
        Self { pos: [0; LIST], tag: [0; LIST], line: [0; LIST], key: [0; LIST], found: [0; LIST], len: 0 }
    }
}

/// The work lists of IPv6.
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

/// A piece's keys and answers.
pub(super) struct Piece6<'a> {
    pub(super) hi: &'a [u64],
    pub(super) lo: &'a [u64],
    pub(super) out: &'a mut [NextHopId],
}

/// The direct part of a piece's keys.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chunks6 {
    /// Entries that were loaded and not yet looked at: with AVX-512F the chunk entry of each key, with AVX2 the top entries of the
    /// sixteen keys at hand.
    pub(super) entries: [u32; LIST],
    /// For each key, the index of its chunk entry; 0 where none follows.
    pub(super) index: [u32; LIST],
    /// For each 16 keys, those that a chunk follows for.
    pub(super) lanes: [u16; PIECE / 16],
}

/// The keys of a piece that have levels left to ask.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct List6 {
    /// Position within the piece, from bit [`CHUNK_SHIFT`] the number of the chunk, and from bit [`MASK_SHIFT`] the mask of levels
    /// to ask, as chunk entries have it.
    pub(super) item: [u32; LIST],
    /// The address's bits 16..64, as [`crate::bloom::v6::rest`] has them.
    pub(super) key: [u64; LIST],
    pub(super) len: usize,
}

impl List6 {
    const fn new() -> Self {
        Self { item: [0; LIST], key: [0; LIST], len: 0 }
    }
}

/// The first bit of the chunk's number in a list entry: positions within a piece take those before it.
pub(super) const CHUNK_SHIFT: u32 = PIECE.ilog2();
const _: () =
    assert!(PIECE.is_power_of_two() && CHUNK_SHIFT + 16 <= MASK_SHIFT, "a chunk's number has 16 bits");

/// Where the key of a list entry stands within the piece.
#[inline]
pub(super) const fn position_of(item: u32) -> usize {
    item as usize % PIECE
}

/// The chunk that the key of a list entry is below.
#[inline]
pub(super) const fn chunk_of(item: u32) -> u32 {
    item << (32 - MASK_SHIFT) >> (32 - MASK_SHIFT + CHUNK_SHIFT)
}

/// Probes of a piece: the list entry, the tag and the line of each key that passed a filter.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Probes6 {
    pub(super) item: [u32; LIST],
    pub(super) line: [u32; LIST],
    /// What the key's slot holds with next-hop index 1, the least.
    pub(super) tag: [u64; LIST],
    /// The lower half of what was found in the line: the key's slot, else the line's link.
    pub(super) found: [u32; LIST],
    pub(super) len: usize,
}

impl Probes6 {
    const fn new() -> Self {
        Self { item: [0; LIST], line: [0; LIST], tag: [0; LIST], found: [0; LIST], len: 0 }
    }
}
