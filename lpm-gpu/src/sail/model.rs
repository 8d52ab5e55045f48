//! SAIL_L's kernels in plain Rust, load by load.

use super::BCN_UNITS;
use crate::direct::{CHUNK_UNITS, Unit};
use crate::gamt::Layout;
use crate::host::HEADER_WORDS;

/// The raw answer to `key` in a table with this header; `load` does the loads.
///
/// # Errors
/// Errors of `load`.
pub fn search_by<E>(
    header: &[u32; HEADER_WORDS],
    layout: Layout,
    key: u32,
    mut load: impl FnMut(usize) -> Result<u32, E>,
) -> Result<u32, E> {
    if layout == Layout::Paper {
        return packed(header, key, load);
    }
    let mut unit = Unit(load((key >> 16) as usize)?);
    // The header's first word is the start of N32, whose words are never chunks.
    for (first, byte) in [(BCN_UNITS, key >> 8 & 0xff), (header[0] as usize, key & 0xff)] {
        let Some(chunk) = unit.to_chunk() else { break };
        unit = Unit(load(first + chunk as usize * CHUNK_UNITS + byte as usize)?);
    }
    Ok(unit.value())
}

/// In the paper's layout, whose answers are codes.
fn packed<E>(
    header: &[u32; HEADER_WORDS],
    key: u32,
    mut load: impl FnMut(usize) -> Result<u32, E>,
) -> Result<u32, E> {
    let [n32, c24] = [header[0] as usize, header[1] as usize];
    // Entry `at` of `bits` bits in the array that starts at word `first`.
    let mut entry = |first: usize, at: usize, bits: usize| {
        let word = load(first + at * bits / 32)?;
        Ok(word >> (at * bits % 32) & ((1 << bits) - 1))
    };
    let entry16 = entry(0, (key >> 16) as usize, 16)?;
    if entry16 & 1 << 15 != 0 || entry16 == 0 {
        return Ok(entry16 & 0xff);
    }
    let in_chunk = |chunk: u32, byte: u32| (chunk as usize - 1) * CHUNK_UNITS + (byte & 0xff) as usize;
    let at = in_chunk(entry16, key >> 8);
    let code = entry(BCN_UNITS / 2, at, 8)?;
    if code != 0 {
        return Ok(code);
    }
    match entry(c24, at, 16)? {
        0 => Ok(0),
        chunk => entry(n32, in_chunk(chunk, key), 8),
    }
}
