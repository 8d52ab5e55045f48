//! The engine `sail-l`: SAIL_L, the lookup oriented algorithm, with routes pushed to the levels 16, 24 and 32 (section 4.2).
//!
//! ```text
//! BCN[a(0,15)] -- next hop
//!              `- chunk C16: BN24[(C16 - 1) * 2^8 + a(16,23)] -- next hop
//!                                                             `- chunk C24: N32[(C24 - 1) * 2^8 + a(24,31)] -- next hop
//! ```
//! Algorithm 2 has separate arrays B, C and N for each level; the paper's text combines them for a CPU, and so do we. Its print of the
//! index of level 24 is garbled; the text has the index above. Two layouts (`--engine-arg layout=paper|wide`, see `layout`): the paper's,
//! as wide as the FIBs of its time needed, and a wide one for every next hop and every table.

#[cfg(test)]
pub(crate) mod figures_test;
pub(crate) mod layout;
pub(crate) mod writer;

use crate::kernel;
use crate::params::SailParams;
use fib::{CheckedIsa, EngineError, EngineOptions, EngineWriter, NextHopId};
use layout::{Paper, SailLayout, Wide};
use lpm_core::engine::{Algorithm, CpuEngine};
use lpm_core::no_table::NoTable;
use lpm_core::params::{Common, Parameter};
use std::marker::PhantomData;
use writer::SailWriter;

/// The engine's name on the command line.
pub const NAME: &str = "sail-l";

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let mut is_wide = true;
    for parameter in Parameter::all(options) {
        is_wide = match (parameter.name, parameter.value) {
            ("layout", "wide") => true,
            ("layout", "paper") => false,
            ("layout", _) => return Err(parameter.refuse("layout", "wanted paper or wide")),
            _ => return Err(parameter.refuse_name("the parameter of engine sail-l is layout")),
        };
    }
    let common = Common::with_best_isa(options)?;
    let params = SailParams { common, no_ipv6: "IPv6 routes (sail-l has no IPv6 table)" };
    Ok(if is_wide {
        Box::new(CpuEngine::<SailL<Wide>>::new(params)?)
    } else {
        Box::new(CpuEngine::<SailL<Paper>>::new(params)?)
    })
}

pub(crate) trait SailLookup: SailLayout {
    fn lookup(&self, isa: CheckedIsa, keys: &[u32], out: &mut [NextHopId]);
}

impl SailLookup for Wide {
    #[inline]
    fn lookup(&self, isa: CheckedIsa, keys: &[u32], out: &mut [NextHopId]) {
        kernel::wide(isa, self, keys, out);
    }
}

impl SailLookup for Paper {
    #[inline]
    fn lookup(&self, isa: CheckedIsa, keys: &[u32], out: &mut [NextHopId]) {
        kernel::paper(isa, self, keys, out);
    }
}

pub(crate) struct SailL<L>(PhantomData<L>);

impl<L: SailLookup> Algorithm for SailL<L> {
    type Params = SailParams;
    type V4 = SailWriter<L>;
    type V6 = NoTable<SailParams>;
    type Scratch = ();

    const NEXT_HOPS_MAX: u64 = L::NEXT_HOPS_MAX;

    fn name(_: &SailParams) -> &'static str {
        NAME
    }

    fn scratch() {}

    #[inline]
    fn lookup_v4(params: &SailParams, table: &L, (): &mut (), keys: &[u32], out: &mut [NextHopId]) {
        table.lookup(params.common.isa, keys, out);
    }

    fn lookup_v6(_: &SailParams, (): &(), (): &mut (), _: (&[u64], &[u64]), out: &mut [NextHopId]) {
        out.fill(NextHopId::NONE);
    }
}
