//! What SAIL_L's kernels do, in plain Rust, a load at a time.

use super::BCN_WORDS;
use crate::direct::{CHUNK_UNITS, Unit};
use crate::host::HEADER_WORDS;

/// The raw answer to `key` in a table with this header, with the loads done by `load`.
///
/// # Errors
/// What `load` answers.
pub fn search_by<E>(
    header: &[u32; HEADER_WORDS],
    key: u32,
    mut load: impl FnMut(usize) -> Result<u32, E>,
) -> Result<u32, E> {
    let mut unit = Unit(load((key >> 16) as usize)?);
    // The header's first word says where N32 begins; its words lead nowhere.
    for (first, byte) in [(BCN_WORDS, key >> 8 & 0xff), (header[0] as usize, key & 0xff)] {
        let Some(chunk) = unit.to_chunk() else { break };
        unit = Unit(load(first + chunk as usize * CHUNK_UNITS + byte as usize)?);
    }
    Ok(unit.value())
}
