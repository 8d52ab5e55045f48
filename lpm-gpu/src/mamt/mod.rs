//! The engine `mamt`: GAMT's trie searched by CPU cores, the GAMT paper's CPU baseline ("Many-core Accelerated Multi-bit
//! Trie", section 5.1). It needs no GPU.
//!
//! ```text
//! delta -> GamtTable (trie, codes, bubbles) -> UpdateStep::Writes -> stores to `Words` <- lookups
//! many changes, or a full level -> new GamtTable -> Image -> new `Words`, published whole
//! ```
//! The table and the order of its steps are [`crate::gamt`]'s; the engine shell ([`lpm_core::engine`]) provides the grace
//! periods after which unlinked nodes are reused.

#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "gathers take raw pointers"))]
mod kernel;
mod params;
#[cfg(test)]
mod stores_test;
mod table;
mod threads;

use fib::{EngineError, EngineOptions, EngineWriter, NextHopId};
use lpm_core::engine::{Algorithm, CpuEngine};
use params::MamtParams;
use table::{MamtTable, Words};

/// The engine's name on the command line.
pub const NAME: &str = "mamt";

/// Creates an empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for unsupported options; errors of [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = MamtParams::from_options(options)?;
    let threads = params.threads;
    let engine = CpuEngine::<Mamt>::new(params)?;
    Ok(if threads == 1 { Box::new(engine) } else { Box::new(threads::Threaded::new(engine, threads)) })
}

enum Mamt {}

impl Algorithm for Mamt {
    type Params = MamtParams;
    type V4 = MamtTable<u32>;
    type V6 = MamtTable<u128>;
    type Scratch = ();

    fn name(_: &MamtParams) -> &'static str {
        NAME
    }

    fn scratch() {}

    #[inline]
    fn lookup_v4(params: &MamtParams, table: &Words, (): &mut (), keys: &[u32], out: &mut [NextHopId]) {
        kernel::lookup_v4(params.common.isa, table, keys, out);
    }

    #[inline]
    fn lookup_v6(
        params: &MamtParams,
        table: &Words,
        (): &mut (),
        keys: (&[u64], &[u64]),
        out: &mut [NextHopId],
    ) {
        kernel::lookup_v6(params.common.isa, table, keys, out);
    }
}
