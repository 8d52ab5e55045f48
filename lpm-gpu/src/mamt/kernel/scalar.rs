//! The scalar kernel: Algorithm 1 as printed, one key at a time. Not tuned.

use crate::gamt::Layout;
use crate::gamt::code::search_by;
use crate::mamt::table::Words;
use std::convert::Infallible;
use std::sync::atomic::Ordering;

/// Writes the raw answers of left-aligned `keys` to `raw` of the same length.
pub(super) fn search<W: Copy + Into<u64>>(table: &Words, keys: &[W], raw: &mut [u32]) {
    let shift = 64 - u32::try_from(8 * size_of::<W>()).unwrap_or(64);
    for (key, raw) in keys.iter().zip(raw) {
        let load = |at: usize| Ok(table.words[at].load(Ordering::Acquire));
        let Ok(found) = search_by::<Infallible>(&table.header, Layout::Flat, (*key).into() << shift, load);
        *raw = found;
    }
}
