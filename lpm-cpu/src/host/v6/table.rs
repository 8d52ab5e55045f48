//! What lookups of IPv6 read.
//!
//! An entry is a code, which says the answer, or a link to a node of the next level:
//!
//! | | 16 bits | 32 bits |
//! |---|---|---|
//! | codes | 0..N | 0..2^24 |
//! | links | the node's number + N | the node's number + 2^24 |
//!
//! N is 2^13, or as many as the next hops need, 2^15 at most: what is left of 2^16 numbers the nodes of a level. Code 0 is "no route but
//! the default", so a table without routes is all zero. Codes of 16 bits are the next-hop ids themselves if those fit, which ids given out
//! from 1 on do in practice, else indices of an array of ids; codes of 32 bits are the ids.

use super::shape::NodeShape;
use crate::packed::Packed;
use fib::{EngineError, NextHopId};
use lpm_core::memory::{Array, Placement};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries behind the last one: a vector kernel loads four bytes wherever an entry begins.
const PADDING: usize = 2;

/// A table with entries of `BITS` bits, 16 or 32.
#[derive(Debug)]
pub(crate) struct NodeTable<const BITS: u32> {
    pub(crate) entries: Packed<BITS>,
    pub(crate) shape: NodeShape,
    /// Entries below are codes, the others links.
    pub(crate) codes: u32,
    /// Next-hop ids by code, where a code is not the id.
    pub(crate) ids: Option<Array<AtomicU32>>,
    /// The next hop of the default route, which answers code 0. A lookup loads it first. In a box: were it in here, the compiler would have to
    /// load every other field again after each store of an answer, for a fifth of the speed.
    pub(super) default: Box<AtomicU32>,
}

impl<const BITS: u32> NodeTable<BITS> {
    /// Nodes of a level at most, beside so many codes. Those of 32 bits are as many as a signed 32-bit index of a row's entry reaches.
    pub(super) const fn nodes_max(codes: u32) -> u32 {
        (if BITS == 16 { 1 << 16 } else { 1 << 27 }) - codes
    }

    /// A table without routes.
    pub(super) fn zeroed(
        shape: NodeShape,
        codes: u32,
        has_ids: bool,
        placement: Placement,
    ) -> Result<Self, EngineError> {
        let ids = if has_ids { Some(Array::zeroed(codes as usize, placement)?) } else { None };
        let entries = Packed::zeroed(shape.entries() + PADDING, placement)?;
        Ok(Self { entries, shape, codes, ids, default: Box::default() })
    }

    /// The bytes of a table with an array of so many ids, before rounding to pages.
    pub(super) fn bytes_for(shape: &NodeShape, ids: u32) -> u64 {
        Packed::<BITS>::bytes_for((shape.entries() + PADDING) as u64) + u64::from(ids) * 4
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.entries.bytes() + self.ids.as_ref().map_or(0, Array::bytes)
    }

    /// The node of the next level that an entry leads to; `None` for a code.
    #[inline(always)]
    pub(crate) const fn node(&self, entry: u32) -> Option<u32> {
        entry.checked_sub(self.codes)
    }

    /// The entry that leads to a node.
    pub(super) const fn link(&self, node: u32) -> u32 {
        node + self.codes
    }
}

/// The table in service: of the width that its next hops and nodes need.
#[derive(Debug)]
pub(crate) enum Shared6 {
    /// Entries of 16 bits.
    Narrow(Arc<NodeTable<16>>),
    /// Entries of 32 bits.
    Wide(Arc<NodeTable<32>>),
}

impl Shared6 {
    /// The next hop of the default route.
    #[inline(always)]
    pub(crate) fn default_route(&self) -> NextHopId {
        let word = match self {
            Self::Narrow(table) => &table.default,
            Self::Wide(table) => &table.default,
        };
        NextHopId::from_answer(word.load(Ordering::Acquire))
    }
}
