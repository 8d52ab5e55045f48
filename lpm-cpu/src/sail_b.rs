//! The engine `sail-b`: SAIL_B, the basic algorithm, with a bit map for each level from 0 to 24 (as published, section 3).
//!
//! Routes up to level 24 are not pushed, so each is one bit and one next hop, and an update stores one bit on chip. The bit maps have
//! 2^25 - 1 bits, 4 MiB, for any table. A lookup reads them from level 24 down to level 1, at most 24 accesses as section 4.2 counts
//! them: level 0 has one entry, which holds "no route" if there is no default route.

use crate::bit_maps::{BitMapEngine, Levels};
use crate::params::SailParams;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::engine::CpuEngine;

/// The engine's name on the command line.
pub const NAME: &str = "sail-b";

#[derive(Debug)]
pub(crate) enum EveryLevel {}

impl Levels for EveryLevel {
    const NAME: &'static str = NAME;
    const LEVELS: &'static [u8] =
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];
}

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] for any parameter, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = SailParams::plain(
        options,
        "IPv6 routes (sail-b has no IPv6 table)",
        "the engine sail-b has no parameters",
    )?;
    Ok(Box::new(CpuEngine::<BitMapEngine<EveryLevel>>::new(params)?))
}
