//! The engine `host`: our fastest longest-prefix match on plain CPUs. It follows no paper.
//!
//! An IPv4 lookup is two dependent loads without a branch, from about 2 MB for a full table. An IPv6 lookup is two loads if they answer;
//! the remaining keys descend rows of 16 entries. `v4` and `v6` describe their tables.
//!
//! # The default route
//! The default route owns millions of entries, and links to its gateway flap. So entries do not hold its next hop: code 0 means "no route
//! but the default". A batch loads the table's default word before any entry, looks up, and replaces every 0 by that word. A change of
//! the default route is one store.
//!
//! An answer thus combines two loads, the default word and then an entry, which must belong to one generation. The writer keeps this
//! order:
//!
//! 1. Entries that change from code 0 to a route are stored before the word. Otherwise a lookup could load the new word and the old code
//!    0.
//! 2. Entries that change from a route to code 0 are stored after the word and a grace period, in this delta or a later one. Otherwise a
//!    lookup could have loaded the old word and then find the new code 0.
//!
//! So if a lookup finds code 0, the address had no other route in the generation of its default word.

mod gathers;
pub(crate) mod params;
pub(crate) mod v4;
pub(crate) mod v6;

use fib::{Change, CheckedIsa, Details, EngineError, EngineOptions, EngineWriter, Key, NextHopId, Prefix};
use lpm_core::engine::{Algorithm, CpuEngine};
use params::HostParams;
use std::marker::PhantomData;
use v4::{Table4, Writer4};
use v6::kernel::RowLists;
use v6::table::Shared6;
use v6::{EveryForm, Forms, Table6};

/// The engine's name on the command line.
pub const NAME: &str = "host";

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(CpuEngine::<HostEngine>::new(HostParams::from_options(options)?)?))
}

/// The engine for the engine shell. Its IPv6 entries have one of the forms `F`.
pub(crate) struct HostEngine<F = EveryForm>(PhantomData<F>);

impl<F: Forms> Algorithm for HostEngine<F> {
    type Params = HostParams;
    type V4 = Writer4;
    type V6 = Table6<F>;
    type Scratch = Box<RowLists>;

    const WANTS_FEWER_ROUTES: bool = true;

    fn name(_: &HostParams) -> &'static str {
        NAME
    }

    fn details(params: &HostParams) -> Details {
        if params.common.isa == CheckedIsa::SCALAR {
            Details::default()
        } else {
            params.kernel.gathers.details()
        }
    }

    fn scratch() -> Box<RowLists> {
        Box::default()
    }

    #[inline]
    fn lookup_v4(
        params: &HostParams,
        table: &Table4,
        _: &mut Box<RowLists>,
        keys: &[u32],
        out: &mut [NextHopId],
    ) {
        v4::kernel::lookup(params.kernel, table, keys, out);
    }

    #[inline]
    fn lookup_v6(
        params: &HostParams,
        table: &Shared6,
        lists: &mut Box<RowLists>,
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        v6::kernel::lookup(params.kernel, table, lists, keys, out);
    }
}

fn split_routes<K: Key>(routes: &[(Prefix<K>, NextHopId)]) -> (NextHopId, &[(Prefix<K>, NextHopId)]) {
    match routes {
        [(prefix, next_hop), others @ ..] if prefix.len() == 0 => (*next_hop, others),
        _ => (NextHopId::NONE, routes),
    }
}

/// Splits the change of the default route from the other changes of a sorted list.
fn split_changes<K: Key>(changes: &[Change<K>]) -> (Option<Change<K>>, &[Change<K>]) {
    match changes {
        [change, others @ ..] if change.prefix.len() == 0 => (Some(*change), others),
        _ => (None, changes),
    }
}
