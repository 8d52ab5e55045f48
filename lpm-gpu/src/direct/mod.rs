//! Parts shared by GALE and SAIL_L, which index arrays directly by bits of the key. Both expand a route over all units that
//! it covers, and note in each unit the length of its route. So an update does not search: it rewrites a unit if the length
//! in it permits. [`mod@unit`] is a word of a table, `chunks` the allocation of blocks of 256 units.

mod chunks;
pub mod unit;

use crate::host::Answers;
pub(crate) use chunks::{ChunkState, Chunks};
use fib::{EngineError, Key, Prefix4, RibTable};
pub use unit::{Draw, Unit};

/// The unit of the longest route that is shorter than `prefix` and covers it; zero without one.
pub(crate) fn parent(routes: &RibTable<u32>, prefix: Prefix4) -> Unit {
    routes.used_above(prefix).map_or(Unit(0), |(len, next_hop)| Unit::route(next_hop, len))
}

/// Units of a chunk, which is indexed by eight bits.
pub const CHUNK_UNITS: usize = 256;

/// [`CHUNK_UNITS`] for word numbers.
pub const CHUNK_STEP: u32 = 256;

/// Words of a table of `bytes_max` bytes, at most the reach of a 32-bit index.
pub(crate) fn words_max(bytes_max: u64) -> u64 {
    (bytes_max / 4).min(1 << 32)
}

pub(crate) const fn check_words(words: u64, words_max: u64) -> Result<(), EngineError> {
    if words > words_max {
        return Err(EngineError::Full { what: "table bytes", used: 4 * words, limit: 4 * words_max });
    }
    Ok(())
}

/// Answers of tables whose units hold next-hop ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainAnswers;

impl<K: Key> Answers<K> for PlainAnswers {
    fn resolve(&self, _low: &[u64], _answers: &mut [u32]) {}
}
