//! The engine `host`: our fastest longest-prefix match for plain CPUs. So far it has a table of IPv6 alone.

pub(crate) mod v6;

use crate::kernel;
use crate::params::Params;
use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::engine::{Algorithm, CpuEngine};
use lpm_core::no_table::NoTable;
use lpm_core::params::{Common, Parameter};
use v6::Table6;
use v6::table::Shared6;

/// The engine's name on the command line.
pub const NAME: &str = "host";

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    if let Some(parameter) = Parameter::all(options).next() {
        return Err(parameter.refuse_name("the engine host has no parameters"));
    }
    let common = Common::with_best_isa(options)?;
    let params = Params { common, no_ipv6: "IPv4 routes: host has a table of IPv6 alone so far" };
    Ok(Box::new(CpuEngine::<Host>::new(params)?))
}

/// The engine, for the shell.
struct Host;

impl Algorithm for Host {
    type Params = Params;
    type V4 = NoTable<Params>;
    type V6 = Table6;
    type Scratch = Box<kernel::host6::Lists>;

    const WANTS_FEWER_ROUTES: bool = true;

    fn name(_: &Params) -> &'static str {
        NAME
    }

    fn scratch() -> Self::Scratch {
        Box::default()
    }

    fn lookup_v4(_: &Params, (): &(), _: &mut Self::Scratch, _: &[u32], out: &mut [NextHopId]) {
        out.fill(NextHopId::NONE);
    }

    #[inline]
    fn lookup_v6(
        params: &Params,
        table: &Shared6,
        lists: &mut Self::Scratch,
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        kernel::host6::lookup(params.common.isa, table, lists, keys, out);
    }
}
