//! What the tables that are indexed directly by the key, GALE and SAIL_L, have in common: the unit, and the
//! chunks of 256 units.
//!
//! Both expand a route over all units that it covers, and keep in each unit the length of the route that it came from. So
//! an update needs no search: a unit is rewritten when the length in it says that it may be.
//!
//! ```text
//! change -> RIB (its parent) -> units of the table, in chunks -> writes for the device
//! ```
//!
//! | file | what lives there |
//! |---|---|
//! | [`mod@unit`] | the word of a table: next hop or chunk, and the length of the route it came from |
//! | `chunks` | which chunks are in use, and when one may be used again |

mod chunks;
pub mod unit;

use crate::host::Answers;
pub(crate) use chunks::{Chunk, Chunks};
use fib::{EngineError, Key, Prefix4, RibTable};
pub use unit::{Draw, Unit};

/// What the longest route shorter than `prefix` and over it writes; zero without one.
pub(crate) fn parent(routes: &RibTable<u32>, prefix: Prefix4) -> Unit {
    routes.used_above(prefix).map_or(Unit(0), |(len, next_hop)| Unit::route(next_hop, len))
}

/// Units of a chunk: one for each value of the eight bits that it is indexed by.
pub const CHUNK_UNITS: usize = 256;

/// As [`CHUNK_UNITS`], as a step of word numbers.
pub const CHUNK_STEP: u32 = 256;

/// Words of a table of `bytes_max` bytes, whose words a 32-bit index reaches.
pub(crate) fn words_max(bytes_max: u64) -> u64 {
    (bytes_max / 4).min(1 << 32)
}

/// Whether a table of `words` words fits where `words_max` do.
pub(crate) const fn check_words(words: u64, words_max: u64) -> Result<(), EngineError> {
    if words > words_max {
        return Err(EngineError::Full { what: "table bytes", used: 4 * words, limit: 4 * words_max });
    }
    Ok(())
}

/// The device answers with next-hop ids: nothing is left to look up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainAnswers;

impl<K: Key> Answers<K> for PlainAnswers {
    fn resolve(&self, _low: &[u64], _answers: &mut [u32]) {}
}
