//! The engines `bloom-naive` and `bloom-baseline`: Bloomfwd as in sections 3.1 and 3.2 of the paper, before the paper's optimisations and
//! ours, for comparison with the engine `bloom`.
//!
//! | engine | IPv4 | IPv6 | hash |
//! |---|---|---|---|
//! | `bloom-naive` | a filter and a table for each length, 1 to 32 | the same, 1 to 64 | any pair, by default H2 |
//! | `bloom-baseline` | a direct array of 2^20, then /24 and /32 | the levels of DPCPE | any pair, by default `rand` |
//!
//! IPv6 routes past /64, which the paper does not have, are in a separate table behind one more filter.

mod counters;
pub(crate) mod divisor;
pub mod hash;
pub mod params;
mod shape;
pub(crate) mod table;
pub(crate) mod writer;

use crate::kernel::Piece6;
use crate::kernel::variants::{lookup_v4, lookup_v6};
use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::engine::{Algorithm, CpuEngine};
pub use params::{BASELINE, NAIVE};
use params::{Variant, VariantParams};
pub use table::ENTRY_BYTES;
use table::VariantTable;
use writer::VariantWriter;

/// An empty engine of the form `variant`.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(variant: Variant, options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(CpuEngine::<Variants>::new(VariantParams::from_options(variant, options)?)?))
}

struct Variants;

impl Algorithm for Variants {
    type Params = VariantParams;
    type V4 = VariantWriter<u32>;
    type V6 = VariantWriter<u128>;
    type Scratch = ();

    fn name(params: &VariantParams) -> &'static str {
        params.variant.name()
    }

    fn scratch() {}

    #[inline]
    fn lookup_v4(
        params: &VariantParams,
        table: &VariantTable,
        (): &mut (),
        keys: &[u32],
        out: &mut [NextHopId],
    ) {
        lookup_v4(params.common.isa, table, keys, out);
    }

    #[inline]
    fn lookup_v6(
        params: &VariantParams,
        table: &VariantTable,
        (): &mut (),
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        lookup_v6(params.common.isa, table, Piece6::new(keys, out));
    }
}
