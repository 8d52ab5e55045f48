//! The kernel without vectors, and a plain lookup of one key.
//!
//! The batch kernel takes the keys of a piece through one level before the next, so the CPU keeps the loads of many keys in flight; the
//! entries of a level are prefetched for all keys before the first is loaded. Keys with a link are listed, without a branch that depends
//! on a key's result. `one` is written over `Loads`, so that tests can stop a lookup between any two loads; all kernels load a key's words
//! in its order.

use super::{RowLists, level};
use crate::host::v6::table::NodeTable;
use crate::kernel::entries::{load_entry, place_of};
use fib::NextHopId;
#[cfg(test)]
use fib::loads::Loads;
use lpm_core::prefetch;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

const PIECE: usize = 64;

pub(super) fn lookup<const BITS: u32>(
    table: &NodeTable<BITS>,
    _: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    // Each key's last entry, and the indices of the keys that found a link.
    let (mut entries, mut left) = ([0; PIECE], [0_u8; PIECE]);
    let top = level(table, 0);
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let mut len = 0;
        for (place, (key, entry)) in (0..).zip(hi.iter().zip(&mut entries)) {
            // SAFETY: the top has an entry for each value of 16 bits.
            *entry = unsafe { load_entry::<BITS>(top, (key >> 48) as u32, Relaxed) };
            left[len] = place;
            len += usize::from(*entry >= table.codes);
        }
        for at_level in 1..table.shape.levels() {
            if len == 0 {
                break;
            }
            // A node is stored before the link to it.
            fence(Acquire);
            len = descend(table, at_level, (hi, lo), &mut entries, &mut left[..len]);
        }
        for (answer, entry) in out.iter_mut().zip(&entries) {
            *answer = NextHopId::from_answer(*entry);
        }
    }
}

/// Moves the indices of keys that found a link again to the front of `left`, and returns their number.
#[inline(always)]
fn descend<const BITS: u32>(
    table: &NodeTable<BITS>,
    at_level: usize,
    (hi, lo): (&[u64], &[u64]),
    entries: &mut [u32; PIECE],
    left: &mut [u8],
) -> usize {
    let (shape, first) = (&table.shape, level(table, at_level));
    let (stride, base) = (shape.stride(at_level), shape.base(at_level));
    // A level's bits lie in one half of the address.
    let half = if base < u64::BITS { hi } else { lo };
    let (shift, mask) = (u64::BITS - base % u64::BITS - stride, (1 << stride) - 1);
    for place in &*left {
        let entry = &mut entries[usize::from(*place)];
        let slot = (half[usize::from(*place)] >> shift) as u32 & mask;
        // Holds the entry's index until the entry is loaded.
        *entry = ((*entry - table.codes) << stride) + slot;
        prefetch::line(place_of::<BITS>(first, *entry));
    }
    let mut len = 0;
    for at in 0..left.len() {
        let place = left[at];
        let entry = &mut entries[usize::from(place)];
        // SAFETY: a link leads to a node of this level.
        *entry = unsafe { load_entry::<BITS>(first, *entry, Relaxed) };
        left[len] = place;
        len += usize::from(*entry >= table.codes);
    }
    len
}

/// The next hop of a key; loads the default route first, as the engine does.
#[cfg(test)]
pub(crate) fn one_or_default<const BITS: u32, L: Loads>(
    table: &NodeTable<BITS>,
    key: u128,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let default = loads.word(&table.default)?;
    one(table, key, loads).map(|answer| if answer == 0 { default } else { answer })
}

/// The next hop of a key, 0 if it has no route but the default: follows links from the top down until an entry is a code.
#[cfg(test)]
fn one<const BITS: u32, L: Loads>(table: &NodeTable<BITS>, key: u128, loads: &mut L) -> Result<u32, L::Stop> {
    let mut level = 0;
    let mut entry = table.entries.load(table.shape.place(level, 0, key), loads)?;
    while let Some(node) = table.node(entry) {
        level += 1;
        entry = table.entries.load(table.shape.place(level, node, key), loads)?;
    }
    table.ids.as_ref().map_or(Ok(entry), |ids| loads.word(&ids[entry as usize]))
}
