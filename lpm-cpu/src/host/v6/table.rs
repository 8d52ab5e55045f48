//! The part of the IPv6 table that lookups read.
//!
//! An entry is a code, which is an answer, or a link to a node of the next level: the node's number + N. With 32 bits N is 2^24. With 16
//! bits it is 2^13, or the number of codes that the next hops need, at most 2^15: the rest of 2^16 numbers the nodes of a level. Code 0 is
//! "no route but the default", so a table without routes is all zero. Codes of 16 bits are next-hop ids if these fit, as ids assigned from
//! 1 on usually do, otherwise indices of an array of ids; codes of 32 bits are ids.

use super::shape::NodeShape;
use crate::packed::Packed;
use fib::{EngineError, NextHopId};
use lpm_core::memory::{Array, Placement};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Entries of padding: a vector kernel loads four bytes at any entry.
const PADDING: usize = 2;

#[derive(Debug)]
pub(crate) struct NodeTable<const BITS: u32> {
    pub(crate) entries: Packed<BITS>,
    pub(crate) shape: NodeShape,
    /// Entries below this are codes, the others links.
    pub(crate) codes: u32,
    /// Next-hop ids by code, if codes are indices.
    pub(crate) ids: Option<Array<AtomicU32>>,
    /// The next hop of code 0; a lookup loads it first. Boxed: inline, the compiler would reload all fields after each store of an answer.
    pub(super) default: Box<AtomicU32>,
}

impl<const BITS: u32> NodeTable<BITS> {
    /// The maximum number of nodes of a level with `codes` codes. With 32 bits a signed index must reach every entry of a row.
    pub(super) const fn nodes_max(codes: u32) -> u32 {
        (if BITS == 16 { 1 << 16 } else { 1 << 27 }) - codes
    }

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

    pub(super) fn bytes_for(shape: &NodeShape, ids: u32) -> u64 {
        Packed::<BITS>::bytes_for((shape.entries() + PADDING) as u64) + u64::from(ids) * 4
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.bytes() + self.ids.as_ref().map_or(0, Array::bytes)
    }

    /// The node of the next level that an entry leads to; `None` for a code.
    #[inline(always)]
    pub(crate) const fn node(&self, entry: u32) -> Option<u32> {
        entry.checked_sub(self.codes)
    }

    pub(super) const fn link(&self, node: u32) -> u32 {
        node + self.codes
    }
}

#[derive(Debug)]
pub(crate) enum Shared6 {
    Narrow(Arc<NodeTable<16>>),
    Wide(Arc<NodeTable<32>>),
}

impl Shared6 {
    #[inline(always)]
    pub(crate) fn default_route(&self) -> NextHopId {
        let word = match self {
            Self::Narrow(table) => &table.default,
            Self::Wide(table) => &table.default,
        };
        NextHopId::from_answer(word.load(Ordering::Acquire))
    }
}
