//! The engine `mamt`: GAMT's trie searched by the CPU's cores, which the GAMT paper measures itself against ("Many-core Accelerated
//! Multi-bit Trie", section 5.1). It needs no GPU.
//!
//! ```text
//! delta -> GamtTable (its trie, codes, bubbles) -> Step::Writes -> stores to `Words` <- lookups
//! many changes, or a level without room -> a new GamtTable -> Image -> new `Words`, put in service whole
//! ```
//! The table is [`crate::gamt`]'s own, and so is the order of its steps: nodes that no unit leads to yet are stored before the units that
//! lead to them. What the GPU engine's device memory is there, `table::Words` is here. The engine shell does the rest
//! ([`lpm_core::engine`]): nodes that were unlinked are used again after its grace periods.
//!
//! | module | what lives there |
//! |---|---|
//! | `params` | parameters |
//! | `table` | a family's table: the trie, and its words that lookups read |
//! | `kernel` | the lookup kernels, one file an instruction set |
//! | `threads` | a batch dealt out to several threads |

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

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = MamtParams::from_options(options)?;
    let threads = params.threads;
    let engine = CpuEngine::<Mamt>::new(params)?;
    Ok(if threads == 1 { Box::new(engine) } else { Box::new(threads::Threaded::new(engine, threads)) })
}

/// The engine, for the engine shell.
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
