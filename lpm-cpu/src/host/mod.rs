//! The engine `host`: our fastest longest-prefix match on plain CPUs.
//!
//! It follows no paper. IPv4 takes two dependent loads a key, without a branch, from about 2 MB for a full table; `v4` has the design.
//! IPv6 routes are refused so far ([`lpm_core::no_table`]).
//!
//! | module | what lives there |
//! |---|---|
//! | `params` | parameters of the engine |
//! | `v4` | the table of IPv4: layout, writer, lookup kernels |

pub(crate) mod params;
pub(crate) mod v4;

use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::engine::{Algorithm, CpuEngine, FibTable};
use lpm_core::no_table::NoTable;
use params::Params;
use v4::{Table4, Writer4, kernel};

/// The engine's name on the command line.
pub const NAME: &str = "host";

/// The table of IPv6.
type Writer6 = NoTable<Params>;

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(CpuEngine::<Host>::new(Params::from_options(options)?)?))
}

/// The engine, for the engine shell.
pub(crate) enum Host {}

impl Algorithm for Host {
    type Params = Params;
    type V4 = Writer4;
    type V6 = Writer6;
    type Scratch = ();

    fn name(_: &Params) -> &'static str {
        NAME
    }

    fn scratch() {}

    #[inline]
    fn lookup_v4(params: &Params, table: &Table4, (): &mut (), keys: &[u32], out: &mut [NextHopId]) {
        kernel::lookup(params.kernel, table, keys, out);
    }

    fn lookup_v6(
        _: &Params,
        (): &<Writer6 as FibTable<u128>>::Shared,
        (): &mut (),
        _: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        out.fill(NextHopId::NONE);
    }
}
