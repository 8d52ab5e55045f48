//! The engine `sail-b`: SAIL_B, the basic algorithm, with a bit map for each level from 0 to 24 (as published, section 3).
//!
//! Nothing is pushed up to level 24, so a route of such a length is one bit and one next hop; an update stores one bit on chip. The bit
//! maps have 2^25 - 1 bits, 4 MiB, whatever the table. A lookup asks them from level 24 down to level 1, 24 accesses at most, as
//! section 4.2 counts them: level 0 has one entry, which holds "no route" where there is no default route.

use crate::bit_maps::{BitMapEngine, Levels};
use crate::params::SailParams;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::engine::CpuEngine;

/// The engine's name on the command line.
pub const NAME: &str = "sail-b";

/// Every level up to 24.
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
/// [`EngineError::Parameter`] for parameters, of which it has none, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = SailParams::plain(
        options,
        "IPv6 routes: sail-b has a table of IPv4 alone",
        "the engine sail-b has no parameters",
    )?;
    Ok(Box::new(CpuEngine::<BitMapEngine<EveryLevel>>::new(params)?))
}
