//! The table of IPv6: direct tables down to /32, then rows of 16 entries, a cache line each, four bits a level to /128.
//!
//! ```text
//! top[a(0,15)] -- answer
//!              `- chunk[a(16,31)] -- answer
//!                                 `- row[a(32,35)] -- answer
//!                                                  `- row[a(36,39)] .. row[a(124,127)] -- answer
//! ```
//! Every entry is an answer or a link (`table`). A node exists if routes end in it or below it; otherwise the entry above it is the
//! answer. Uniform random addresses mostly end in the top. Cache misses dominate a lookup, so entries have 16 bits if possible, and 32 in
//! tables with more next hops, or more rows a level, than 16 bits distinguish ([`Form`]). A full table of 2024 (160,147 routes) takes 8 MB
//! of direct tables and 1.4 MB of rows: routes that change no answer are left out.
//!
//! # Updates while lookups run
//! Routes are pushed to leaves: an entry has the answer of the longest route that covers its addresses, and the writer keeps that route's
//! length, its owner. So exactly one entry answers a key. Entries that say "no route here" would save repainting, but lookups would
//! combine entries of different generations: if a /32 changes and then a /48 in it is withdrawn, a lookup could read the /32 before both
//! and the /48 after both. Only the default route, which may own 4 million entries, is not pushed: its entries have code 0.
//!
//! After each store, every lookup in flight gets an old or a new answer:
//!
//! - *Repaint.* A delta is applied longest prefix first, and the heir of a withdrawn route comes from the RIB, which is in the final
//!   state. So one store moves an entry from its old answer to its new one.
//! - *Split.* A node is filled with its entry's value, then one store links it. Lookups find the same answer on both sides.
//! - *Merge.* At the end of a delta, a node in which no route ends has one answer in all entries; one store replaces the link by it.
//!   Lookups that read the link before find the same answer in the node.
//! - *Reuse.* An unlinked node is not written again until a grace period has passed, which is awaited when as many nodes wait as are
//!   available.

#![expect(
    clippy::cast_possible_truncation,
    reason = "levels are 29 at most; slots of nodes are cut out of addresses"
)]

#[cfg(test)]
mod conformance_test;
#[expect(
    unsafe_code,
    reason = "gathers take raw pointers, and so do loads of entries that are parts of words"
)]
pub(crate) mod kernel;
mod shape;
#[cfg(test)]
mod stores_test;
pub(crate) mod table;
mod writer;

use crate::host::default_route::split_routes;
use crate::host::params::HostParams;
use fib::{Change, Details, EngineError, NextHopId, Prefix6, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use rustc_hash::FxHashSet;
use shape::NodeShape;
#[cfg(target_arch = "x86_64")]
pub(crate) use shape::ROW_BITS;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;
use table::{NodeTable, Shared6};
use writer::NodeWriter;

/// How entries hold next hops. The first form that fits is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Ids16,
    /// 16 bits, indices of an array of ids.
    Codes16,
    Ids32,
}

/// Bounds of the number of 16-bit codes. Fewer codes leave room for more nodes a level.
const CODES16: RangeInclusive<u32> = 1 << 13..=1 << 15;

impl Form {
    fn codes(self, routes: &[(Prefix6, NextHopId)], budget: Budget) -> Option<u32> {
        let ids = routes.iter().map(|(_, next_hop)| next_hop.get());
        let used = match self {
            Self::Ids16 => ids.max().unwrap_or(0),
            Self::Codes16 => ids.collect::<FxHashSet<_>>().len() as u32,
            Self::Ids32 => return Some(1 << 24),
        };
        // Room to grow: without it the next few new next hops would rebuild the table.
        let spare = if budget.has_reserve() { used / 4 } else { 0 };
        let codes = (1 + used + spare).max(*CODES16.start());
        CODES16.contains(&codes).then_some(codes)
    }

    fn size(
        self,
        codes: u32,
        routes: &[(Prefix6, NextHopId)],
        budget: Budget,
    ) -> Result<HostSize6, EngineError> {
        let shape = match self {
            Self::Ids16 | Self::Codes16 => {
                NodeShape::for_routes(routes, 16, NodeTable::<16>::nodes_max(codes), budget)
            }
            Self::Ids32 => NodeShape::for_routes(routes, 32, NodeTable::<32>::nodes_max(codes), budget),
        };
        Ok(HostSize6 { form: self, shape: shape?, codes })
    }
}

/// The forms that a table may take; tests leave some out.
pub(crate) trait Forms: 'static {
    /// The forms in order of preference. The last one holds every next hop.
    const FORMS: &'static [Form];
}

pub(crate) enum EveryForm {}

impl Forms for EveryForm {
    const FORMS: &'static [Form] = &[Form::Ids16, Form::Codes16, Form::Ids32];
}

pub(crate) struct HostSize6 {
    form: Form,
    shape: NodeShape,
    codes: u32,
}

enum AnyWriter {
    Narrow(NodeWriter<16>),
    Wide(NodeWriter<32>),
}

macro_rules! with_writer {
    ($table:expr, $writer:ident => $value:expr) => {
        match $table {
            AnyWriter::Narrow($writer) => $value,
            AnyWriter::Wide($writer) => $value,
        }
    };
}

pub(crate) struct Table6<F = EveryForm> {
    writer: AnyWriter,
    shared: Arc<Shared6>,
    forms: PhantomData<fn() -> F>,
}

impl<F: Forms> FibTable<u128> for Table6<F> {
    type Params = HostParams;
    type Shared = Shared6;
    type Size = HostSize6;

    fn size(
        routes: &[(Prefix6, NextHopId)],
        _: &HostParams,
        budget: Budget,
    ) -> Result<HostSize6, EngineError> {
        let (_, routes) = split_routes(routes);
        let mut refusal = EngineError::Full { what: "next hops of the IPv6 table", used: 0, limit: 0 };
        for form in F::FORMS {
            match form.codes(routes, budget).map(|codes| form.size(codes, routes, budget)) {
                Some(Ok(size)) => return Ok(size),
                Some(Err(error)) => refusal = error,
                None => {}
            }
        }
        Err(refusal)
    }

    fn size_bytes(HostSize6 { form, shape, codes }: &HostSize6) -> u64 {
        match form {
            Form::Ids16 => NodeTable::<16>::bytes_for(shape, 0),
            Form::Codes16 => NodeTable::<16>::bytes_for(shape, *codes),
            Form::Ids32 => NodeTable::<32>::bytes_for(shape, 0),
        }
    }

    fn build(size: HostSize6, routes: Routes<u128>, params: &HostParams) -> Result<Self, EngineError> {
        let placement = params.common.placement;
        let (writer, shared) = if size.form == Form::Ids32 {
            let writer = NodeWriter::build(size, &routes, placement)?;
            let shared = Shared6::Wide(Arc::clone(writer.table()));
            (AnyWriter::Wide(writer), shared)
        } else {
            let writer = NodeWriter::build(size, &routes, placement)?;
            let shared = Shared6::Narrow(Arc::clone(writer.table()));
            (AnyWriter::Narrow(writer), shared)
        };
        Ok(Self { writer, shared: Arc::new(shared), forms: PhantomData })
    }

    fn shared(&self) -> &Arc<Shared6> {
        &self.shared
    }

    fn bytes(&self) -> u64 {
        with_writer!(&self.writer, writer => writer.table().bytes())
    }

    fn writer_bytes(&self) -> u64 {
        with_writer!(&self.writer, writer => writer.writer_bytes())
    }

    fn details(&self) -> Details {
        let v6_entry_bits = if matches!(self.writer, AnyWriter::Narrow(_)) { 16 } else { 32 };
        with_writer!(&self.writer, writer => {
                    let mut nodes = writer.nodes_used().skip(1);
                    Details::from([
        ("v6_entry_bits", v6_entry_bits.into()),
        ("v6_direct_bits", writer.table().shape.direct_bits().into()),
        ("v6_chunks", nodes.next().unwrap_or(0).into()),
        ("v6_rows", nodes.sum::<u64>().into()),
        ])
                })
    }

    fn admits(&self, changes: &[Change<u128>], _: &RibTable<u128>) -> bool {
        with_writer!(&self.writer, writer => writer.admits(changes))
    }

    fn owes_grace(&self) -> bool {
        with_writer!(&self.writer, writer => writer.owes_grace())
    }

    fn grace_over(&mut self) {
        with_writer!(&mut self.writer, writer => writer.grace_over());
    }

    fn update(&mut self, changes: &[Change<u128>], routes: &RibTable<u128>, synchronize: &dyn Fn()) {
        with_writer!(&mut self.writer, writer => writer.update(changes, routes, synchronize));
    }
}
