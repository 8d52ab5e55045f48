//! The engine `sail-u`: SAIL_U, the update oriented algorithm, with bit maps at levels 6, 12, 18 and 24 (section 4.1, its beginning as
//! published).
//! Routes are pushed to the next of these levels by prefix expansion, so a lookup makes at most four accesses on chip, and the bit maps
//! have 2.03 MiB. A route is pushed to at most 64 nodes whose bits are one aligned word: an update is at most one store of 64 bits on
//! chip.

use crate::bit_maps::{BitMapEngine, Levels};
use crate::params::SailParams;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::engine::CpuEngine;

/// The engine's name on the command line.
pub const NAME: &str = "sail-u";

#[derive(Debug)]
pub(crate) enum EverySixthLevel {}

impl Levels for EverySixthLevel {
    const NAME: &'static str = NAME;
    const LEVELS: &'static [u8] = &[6, 12, 18, 24];
}

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] for any parameter, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let params = SailParams::plain(
        options,
        "IPv6 routes (sail-u has no IPv6 table)",
        "the engine sail-u has no parameters",
    )?;
    Ok(Box::new(CpuEngine::<BitMapEngine<EverySixthLevel>>::new(params)?))
}
