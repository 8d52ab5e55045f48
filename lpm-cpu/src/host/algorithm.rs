//! The tables and kernels of `host`, for the engine shell.

use super::params::HostParams;
use super::v4::{self, Table4, Writer4};
use super::v6::kernel::RowLists;
use super::v6::table::Shared6;
use super::v6::{self, EveryForm, Forms, Table6};
use fib::{CheckedIsa, Details, NextHopId};
use lpm_core::engine::Algorithm;
use std::marker::PhantomData;

/// The engine's name on the command line.
pub const NAME: &str = "host";

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
