//! Tables of a bit map and an array of next hops a level: what `sail-b` and `sail-u` share.
//!
//! ```text
//! bit map B of a level    a bit a node: whether a route was pushed to it (SAIL_B: whether there is a route)
//! entry of N of a level   31: chunk (level 24 alone) | 0..24 next-hop id, or chunk id
//! entry of N32            0..24 next-hop id
//! ```
//! Routes longer than 24 are pushed to level 32. A /24 that has such routes gets a chunk of N32, with the next hop of each of its 256
//! addresses, whatever the length of the route it comes from: the node of level 24 is pushed down with what it inherits (pivot
//! pushing, as published). The paper keeps chunk ids in an array C24 of their own. Here one word is next hop or chunk id, so that one
//! store switches a node from one to the other.
//!
//! | module | what lives there |
//! |---|---|
//! | `writer` | the writer's side of a table, and its updates |
//! | `grace` | which grace periods an update owes to running lookups |

mod grace;
#[cfg(test)]
mod properties_test;
mod writer;

use crate::chunks::CHUNK_ENTRIES;
use crate::kernel;
use crate::packed::Packed;
use crate::params::SailParams;
use fib::{EngineError, NextHopId};
use lpm_core::engine::Algorithm;
use lpm_core::memory::Placement;
use lpm_core::no_table::NoTable;
use std::marker::PhantomData;
use writer::BitMapWriter;

/// Entry of N24: the low bits are a chunk id.
pub(crate) const CHUNK: u32 = 1 << 31;
/// The next-hop id or chunk id of an entry.
pub(crate) const ID: u32 = (1 << 24) - 1;
/// The level below which there are chunks.
pub(crate) const PIVOT: u8 = 24;
/// Chunks that a signed 32-bit index reaches.
const CHUNKS_MAX: u32 = (1 << 23) - 1;

/// The levels that a table has bit maps for.
pub(crate) trait Levels: Send + Sync + 'static {
    /// The engine's name.
    const NAME: &'static str;
    /// The levels, ascending; the last is [`PIVOT`].
    const LEVELS: &'static [u8];
    /// Where each level's nodes begin, in the bits and in the next hops; then where the last one's end.
    const OFFSETS: [usize; 26] = offsets(Self::LEVELS);
    /// Nodes of all levels.
    const NODES: usize = Self::OFFSETS[Self::LEVELS.len()];
}

/// Each level begins at a word of bits of its own.
const fn offsets(levels: &[u8]) -> [usize; 26] {
    let mut offsets = [0; 26];
    let mut at = 0;
    while at < levels.len() {
        let nodes = 1_usize << levels[at];
        offsets[at + 1] = offsets[at] + if nodes < 64 { 64 } else { nodes };
        at += 1;
    }
    offsets
}

/// The number of the node of `level` above `address`.
#[inline(always)]
pub(crate) fn node(level: u8, address: u32) -> usize {
    address.checked_shr(32 - u32::from(level)).unwrap_or(0) as usize
}

/// The bits of all bit maps, which is what the paper keeps on chip.
pub(crate) fn onchip_bits(levels: &[u8]) -> u64 {
    levels.iter().map(|level| 1 << level).sum()
}

/// What lookups read.
#[derive(Debug)]
pub(crate) struct BitMaps<S> {
    /// B of all levels.
    pub(crate) bits: Packed<1>,
    /// N of all levels.
    pub(crate) hops: Packed<32>,
    /// N32.
    pub(crate) n32: Packed<32>,
    levels: PhantomData<S>,
}

impl<S: Levels> BitMaps<S> {
    /// Without routes, with room for so many chunks.
    fn zeroed(chunks: u32, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self {
            bits: Packed::zeroed(S::NODES, placement)?,
            hops: Packed::zeroed(S::NODES, placement)?,
            n32: Packed::zeroed(chunks as usize * CHUNK_ENTRIES, placement)?,
            levels: PhantomData,
        })
    }

    /// The bytes of a table with room for so many chunks, before rounding to pages.
    fn bytes_for(chunks: u32) -> u64 {
        let nodes = S::NODES as u64;
        let n32 = Packed::<32>::bytes_for(u64::from(chunks) * CHUNK_ENTRIES as u64);
        Packed::<1>::bytes_for(nodes) + Packed::<32>::bytes_for(nodes) + n32
    }

    fn bytes(&self) -> u64 {
        self.bits.bytes() + self.hops.bytes() + self.n32.bytes()
    }
}

/// An engine over bit maps of the levels `S`, for the engine shell.
pub(crate) struct BitMapEngine<S>(PhantomData<S>);

impl<S: Levels> Algorithm for BitMapEngine<S> {
    type Params = SailParams;
    type V4 = BitMapWriter<S>;
    type V6 = NoTable<SailParams>;
    type Scratch = ();

    fn name(_: &SailParams) -> &'static str {
        S::NAME
    }

    fn scratch() {}

    #[inline]
    fn lookup_v4(_: &SailParams, table: &BitMaps<S>, (): &mut (), keys: &[u32], out: &mut [NextHopId]) {
        kernel::scalar::bit_maps(table, keys, out);
    }

    fn lookup_v6(_: &SailParams, (): &(), (): &mut (), _: (&[u64], &[u64]), out: &mut [NextHopId]) {
        out.fill(NextHopId::NONE);
    }
}
