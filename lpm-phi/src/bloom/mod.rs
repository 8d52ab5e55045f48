//! The engine `bloom`: Bloomfwd for IPv4 (section 3.2) and IPv6 (section 4.2), with updates in place.
//!
//! [`fib::Rib`] leaves out routes that change no answer: the paper compares itself with an engine that compacts (section 2.2) and leaves
//! this step to implementations. A delta is applied in place if it fits the memory; otherwise a larger table is built and published with
//! one store ([`lpm_core::engine`]).

pub(crate) mod deep;
pub mod equations;
mod filter;
pub mod hash;
pub mod params;
mod sorted_tree;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "halves of addresses are cut out on purpose")]
mod stores_test;
pub(crate) mod update;
pub(crate) mod v4;
pub(crate) mod v6;

use crate::kernel;
use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::engine::{Algorithm, CpuEngine};
use lpm_core::hops::HOPS_MAX;
use params::BloomParams;
use v4::{Table4, Writer4};
use v6::{Table6, Writer6};

/// The engine's name on the command line.
pub const NAME: &str = "bloom";

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(CpuEngine::<Bloom>::new(BloomParams::from_options(options)?)?))
}

struct Bloom;

impl Algorithm for Bloom {
    type Params = BloomParams;
    type V4 = Writer4;
    type V6 = Writer6;
    type Scratch = Box<kernel::BloomLists>;

    const NEXT_HOPS_MAX: u64 = HOPS_MAX as u64;
    const WANTS_FEWER_ROUTES: bool = true;

    fn name(_: &BloomParams) -> &'static str {
        NAME
    }

    fn scratch() -> Box<kernel::BloomLists> {
        kernel::BloomLists::new()
    }

    #[inline]
    fn lookup_v4(
        params: &BloomParams,
        table: &Table4,
        lists: &mut Box<kernel::BloomLists>,
        keys: &[u32],
        out: &mut [NextHopId],
    ) {
        kernel::lookup_v4(params.common.isa, table, lists, keys, out);
    }

    #[inline]
    fn lookup_v6(
        params: &BloomParams,
        table: &Table6,
        lists: &mut Box<kernel::BloomLists>,
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        kernel::lookup_v6(params.common.isa, table, lists, kernel::Piece6::new(keys, out));
    }

    #[inline]
    fn lookup_both(
        params: &BloomParams,
        table4: &Table4,
        table6: &Table6,
        lists: &mut Box<kernel::BloomLists>,
        v4: (&[u32], &mut [NextHopId]),
        (keys6, out6): ((&[u64], &[u64]), &mut [NextHopId]),
    ) {
        let batch = kernel::Piece6::new(keys6, out6);
        kernel::lookup_both(params.common.isa, (table4, table6), lists, v4, batch);
    }
}
