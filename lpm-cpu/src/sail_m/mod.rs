//! The engine `sail-m`: SAIL_M, many FIBs in one overlay trie with vectors of next hops (section 4.3).
//!
//! ```text
//! BC16[a(0,15)] -- leaf: N16[a(0,15)][fib]
//!               `- C16: B24[(C16 - 1) * 2^8 + a(16,23)] -- leaf: N24[same][fib]
//!                                                       `- C24[same]: N32[(C24 - 1) * 2^8 + a(24,31)][fib]
//! ```
//! The tries of all FIBs are overlaid and pushed to the leaves of their union, so that each leaf has a next hop for each FIB. The
//! structure above the vectors is the same for all FIBs: at most 2.13 MiB and two accesses on chip. Off chip a lookup makes one access up
//! to length 24, and two beyond. A key is looked up in its FIB ([`fib::Fibs`]), by default FIB 0. `--engine-arg fibs=N` sets the number of
//! FIBs. The paper leaves open how the vectors lie in memory and how a change is written; updates follow section 4.2.

mod engine;
#[cfg(test)]
mod paper_test;
#[cfg(test)]
mod stores_test;
pub(crate) mod table;
mod writer;

use crate::params::SailParams;
use engine::SailM;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::params::{Common, Parameter};
use std::ops::RangeInclusive;

/// The engine's name on the command line.
pub const NAME: &str = "sail-m";

/// The valid numbers of FIBs.
pub const FIBS: RangeInclusive<u32> = 1..=256;

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, [`EngineError::Full`] if the empty table exceeds
/// `table_bytes_max`, [`EngineError::Memory`] if memory is short.
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(from_options(options)?))
}

pub(crate) fn from_options(options: &EngineOptions) -> Result<SailM, EngineError> {
    let mut fibs = 1;
    for parameter in Parameter::all(options) {
        match parameter.name {
            "fibs" => fibs = parameter.within("fibs", &FIBS, "wanted 1 to 256 FIBs")?,
            _ => return Err(parameter.refuse_name("the parameter of engine sail-m is fibs")),
        }
    }
    let common = Common::with_best_isa(options)?;
    SailM::new(SailParams { common, no_ipv6: "IPv6 routes (sail-m has no IPv6 table)" }, fibs)
}
