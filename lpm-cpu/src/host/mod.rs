//! The engine `host`: our fastest longest-prefix match on plain CPUs. It follows no paper.
//!
//! An IPv4 lookup is two dependent loads without a branch, from about 2 MB for a full table. An IPv6 lookup is two loads if they answer;
//! the remaining keys descend rows of 16 entries. `v4` and `v6` describe their tables.
//!
//! # The default route
//! The default route owns millions of entries, and links to its gateway flap. So entries do not hold its next hop: code 0 means "no route
//! but the default". A batch loads the table's default word before any entry, looks up, and replaces every 0 by that word. A change of
//! the default route is one store.
//!
//! An answer combines two loads, the default word and then an entry, which must belong to one generation. The writer keeps this order:
//!
//! 1. Entries that change from code 0 to a route are stored before the word. Else a lookup could load the new word and the old code 0.
//! 2. Entries that change from a route to code 0 are stored after the word and a grace period, in this delta or a later one. Else a lookup
//!    could have loaded the old word and then find the new code 0.
//!
//! So if a lookup finds code 0, the address had no other route in the generation of its default word.

mod algorithm;
mod default_route;
mod gathers;
pub(crate) mod params;
pub(crate) mod v4;
pub(crate) mod v6;

pub(crate) use algorithm::HostEngine;
pub use algorithm::NAME;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_core::engine::CpuEngine;
use params::HostParams;

/// An empty engine.
///
/// # Errors
/// [`EngineError::Parameter`] or [`EngineError::Isa`] for options that cannot be met, else as [`CpuEngine::new`].
pub fn make(options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    Ok(Box::new(CpuEngine::<HostEngine>::new(HostParams::from_options(options, gathers::measured)?)?))
}
