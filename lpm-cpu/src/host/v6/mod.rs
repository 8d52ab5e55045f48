//! IPv6 on a plain CPU: direct tables down to /32, then rows of 16 entries, a cache line each, four bits a level to /128.
//!
//! ```text
//! top[a(0,15)] -- answer
//!              `- chunk[a(16,31)] -- answer
//!                                 `- row[a(32,35)] -- answer
//!                                                  `- row[a(36,39)] .. row[a(124,127)] -- answer
//! ```
//! Every entry is an answer or a link (`table`), so no length is special and all 128 bits count. A node exists where routes end in it
//! or below it; everywhere else the entry above is the answer. Uniform random addresses mostly find it in the top. Only keys without an
//! answer in the direct tables take part in the levels of rows, packed into vectors without gaps (`kernel`).
//!
//! What a lookup costs is cache misses, so entries have 16 bits where that is enough, and 32 for tables with more next hops, or more rows
//! a level, than 16 tell apart ([`Form`]): a full table of 2024 (160,147 routes) is 8 MB of direct tables, and 2.3 MB of rows, or 1.4
//! without the routes that change no answer. Leaving those out made the lookups of keys drawn from that table's routes 1.5 times as fast
//! on a Sapphire Rapids core with 2 MB of L2, and the updates of a real stream no slower.
//!
//! # Updates while lookups run
//! Routes are pushed to leaves: an entry has the answer of the longest route that covers its addresses, whichever node that route ends
//! in, and the writer keeps the length of that route beside it. So a key's answer is in exactly one entry at a time. The other way,
//! entries that say "none here" below a route, would save a short route's repainting of the nodes below it, but a lookup
//! would put its answer together from several entries, of different generations: after "a /32 changes" and "a /48 in it is withdrawn", a
//! lookup that read the /32 before both and the /48 after both would answer what was right in no generation. Grace periods between such
//! deltas would cost more than repainting, which is a few entries for most routes. A default route may own 4 million, so it alone is not
//! pushed: its entries have code 0, and the folder above says why lookups are right then.
//!
//! With pushing, each store leaves every running lookup an old or a new answer:
//!
//! - *Repaint.* A delta is applied longest prefix first, and the RIB, which is in the final state, tells what takes over from a withdrawn
//!   route. So an entry goes from its old answer to its new one in one store: a longer route that stays or comes has painted it already
//!   when a shorter one is drawn, and the heir of a withdrawn route has its new next hop. A store covers several entries, each of
//!   which other keys read.
//! - *Split.* A node is filled with what the entry holds, then one store links it. Lookups find the same answer on both sides.
//! - *Merge.* At the end of a delta, a node in which nothing ends any more has one answer in all entries; one store puts it in the place
//!   of the link. Lookups that read the link before find that answer in the node, which was right in the generation that the delta
//!   makes, until they end.
//! - *Reuse.* A node that was unlinked is not written again until a grace period has passed, so no lookup is in it when it is filled anew.
//!   Nodes are given back far more often than new ones are short, so a grace period is owed only when those that wait are as many as
//!   those left.
//!
//! | module | what lives there |
//! |---|---|
//! | `kernel` | the lookup kernels, one file an instruction set |
//! | `shape` | where nodes lie, and how many there is room for |
//! | `table` | what lookups read |
//! | `writer` | the writer's side |

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

use crate::host::params::HostParams;
use crate::host::split_routes;
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

/// How entries hold next hops. The first form that fits is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 16 bits, the ids themselves.
    Ids16,
    /// 16 bits, indices of an array of ids.
    Codes16,
    /// 32 bits, the ids themselves.
    Ids32,
}

/// The codes of 16 bits at least and at most. The fewer they are, the more nodes may a level have.
const CODES16: RangeInclusive<u32> = 1 << 13..=1 << 15;

impl Form {
    /// The codes of a table of `routes` in this form, if they suffice.
    fn codes(self, routes: &[(Prefix6, NextHopId)], budget: Budget) -> Option<u32> {
        let ids = routes.iter().map(|(_, next_hop)| next_hop.get());
        let used = match self {
            Self::Ids16 => ids.max().unwrap_or(0),
            Self::Codes16 => ids.collect::<FxHashSet<_>>().len() as u32,
            Self::Ids32 => return Some(1 << 24),
        };
        // With room to grow: else the next few new next hops build the table anew.
        let spare = if budget.has_reserve() { used / 4 } else { 0 };
        let codes = (1 + used + spare).max(*CODES16.start());
        CODES16.contains(&codes).then_some(codes)
    }

    /// How large a table of `routes` is in this form, with so many codes.
    fn size(
        self,
        codes: u32,
        routes: &[(Prefix6, NextHopId)],
        budget: Budget,
    ) -> Result<HostSize6, EngineError> {
        let shape = match self {
            Self::Ids16 | Self::Codes16 => {
                NodeShape::of(routes, 16, NodeTable::<16>::nodes_max(codes), budget)
            }
            Self::Ids32 => NodeShape::of(routes, 32, NodeTable::<32>::nodes_max(codes), budget),
        };
        Ok(HostSize6 { form: self, shape: shape?, codes })
    }
}

/// The forms that a table may take; tests leave some out.
pub(crate) trait Forms: 'static {
    /// The forms tried, the last of which holds every next hop.
    const FORMS: &'static [Form];
}

/// All of them.
pub(crate) enum EveryForm {}

impl Forms for EveryForm {
    const FORMS: &'static [Form] = &[Form::Ids16, Form::Codes16, Form::Ids32];
}

/// How large a table is made.
pub(crate) struct HostSize6 {
    form: Form,
    shape: NodeShape,
    codes: u32,
}

/// The writer of a table of either width.
enum AnyWriter {
    Narrow(NodeWriter<16>),
    Wide(NodeWriter<32>),
}

/// Evaluates an expression with the writer of whichever width.
macro_rules! with_writer {
    ($table:expr, $writer:ident => $value:expr) => {
        match $table {
            AnyWriter::Narrow($writer) => $value,
            AnyWriter::Wide($writer) => $value,
        }
    };
}

/// The IPv6 table.
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
