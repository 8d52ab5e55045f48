//! The tables of `sail-b` and `sail-u`: a bit map B and an array of next hops N for each level.
//!
//! ```text
//! bit map B of a level    a bit a node: set if a route was pushed to it (SAIL_B: if it has a route)
//! entry of N of a level   31: chunk (level 24 alone) | 0..24 next-hop id, or chunk id
//! entry of N32            0..24 next-hop id
//! ```
//! Routes longer than 24 bits are pushed to level 32. A /24 with such routes gets a chunk of N32 with the next hops of its 256 addresses:
//! the node of level 24 is pushed down with the next hop it inherits (pivot pushing, as published). The paper keeps chunk ids in a
//! separate array C24. Here one word holds a next hop or a chunk id, so one store switches a node.

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

pub(crate) const CHUNK: u32 = 1 << 31;
pub(crate) const ID: u32 = (1 << 24) - 1;
/// The deepest level with a bit map; level 32 has chunks.
pub(crate) const PIVOT: u8 = 24;
/// The largest number of chunks that a signed 32-bit index reaches.
const CHUNKS_MAX: u32 = (1 << 23) - 1;

pub(crate) trait Levels: Send + Sync + 'static {
    const NAME: &'static str;
    /// The levels, ascending; the last is [`PIVOT`].
    const LEVELS: &'static [u8];
    /// The first node of each level in `bits` and `hops`, then the end of the last level.
    const OFFSETS: [usize; 26] = offsets(Self::LEVELS);
    const NODES: usize = Self::OFFSETS[Self::LEVELS.len()];
}

/// Each level begins at a word boundary.
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

#[inline(always)]
pub(crate) fn node(level: u8, address: u32) -> usize {
    address.checked_shr(32 - u32::from(level)).unwrap_or(0) as usize
}

pub(crate) fn onchip_bits(levels: &[u8]) -> u64 {
    levels.iter().map(|level| 1 << level).sum()
}

#[derive(Debug)]
pub(crate) struct BitMaps<S> {
    pub(crate) bits: Packed<1>,
    /// N of all levels; bit 31 ([`CHUNK`]) marks a chunk id.
    pub(crate) hops: Packed<32>,
    pub(crate) n32: Packed<32>,
    levels: PhantomData<S>,
}

impl<S: Levels> BitMaps<S> {
    fn zeroed(chunks: u32, placement: Placement) -> Result<Self, EngineError> {
        Ok(Self {
            bits: Packed::zeroed(S::NODES, placement)?,
            hops: Packed::zeroed(S::NODES, placement)?,
            n32: Packed::zeroed(chunks as usize * CHUNK_ENTRIES, placement)?,
            levels: PhantomData,
        })
    }

    fn bytes_for(chunks: u32) -> u64 {
        let nodes = S::NODES as u64;
        let n32 = Packed::<32>::bytes_for(u64::from(chunks) * CHUNK_ENTRIES as u64);
        Packed::<1>::bytes_for(nodes) + Packed::<32>::bytes_for(nodes) + n32
    }

    fn bytes(&self) -> u64 {
        self.bits.bytes() + self.hops.bytes() + self.n32.bytes()
    }
}

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
