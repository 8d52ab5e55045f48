//! The engines `bloom-naive` and `bloom-baseline`: Bloomfwd as sections 3.1 and 3.2 of the paper have it, before the paper's own
//! optimisations and ours. They are what the engine `bloom` is compared with.
//!
//! | engine | IPv4 | IPv6 | hash |
//! |---|---|---|---|
//! | `bloom-naive` | a filter and a table for each length, 1 to 32 | the same, 1 to 64 | any pair, H2 at first |
//! | `bloom-baseline` | a direct array of 2^20, then /24 and /32 | the levels of DPCPE | any pair, `rand` at first |
//!
//! IPv6 routes past /64, which the paper does not have, are in a table of their own behind one more filter.
//!
//! | module | what lives there |
//! |---|---|
//! | [`params`] | parameters |
//! | [`hash`] | Murmur, Knuth, H2 and `rand`, any pair for filter and table |
//! | `counters` | the counters behind a filter |
//! | `divisor` | remainders by a constant |
//! | `table` | what lookups read |
//! | `shape` | how large it is made |
//! | `writer` | how it is kept, in two copies of which readers see one |

mod counters;
pub(crate) mod divisor;
mod engine;
pub mod hash;
pub mod params;
mod shape;
pub(crate) mod table;
mod writer;

pub use engine::VariantEngine;

use fib::{EngineError, EngineOptions, EngineWriter};
use params::Variant;

/// The name of the engine of section 3.1 on the command line.
pub const NAIVE: &str = "bloom-naive";
/// The name of the engine of section 3.2 on the command line.
pub const BASELINE: &str = "bloom-baseline";
/// Bytes that an expanded prefix takes in their hash tables: an entry and a bucket.
pub const ENTRY_BYTES: u64 = 4 + 4 * table::ENTRY_WORDS as u64;
/// Both names.
pub const NAMES: [&str; 2] = [BASELINE, NAIVE];

/// An empty engine of that name.
///
/// # Errors
/// [`EngineError::Unknown`] for a name that is not in [`NAMES`], else as [`VariantEngine::new`].
pub fn make(name: &str, options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    let variant = [Variant::Naive, Variant::Baseline].into_iter().find(|variant| variant.name() == name);
    let Some(variant) = variant else {
        return Err(EngineError::Unknown { name: name.to_owned(), known: NAMES.join(", ") });
    };
    Ok(Box::new(VariantEngine::new(variant, options)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_its_engine() {
        for name in NAMES {
            assert_eq!(make(name, &EngineOptions::default()).unwrap().name(), name);
        }
        assert!(matches!(make("bloom", &EngineOptions::default()), Err(EngineError::Unknown { .. })));
    }
}
