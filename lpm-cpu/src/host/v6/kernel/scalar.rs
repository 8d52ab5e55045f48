//! The kernel without vectors, and the lookup of one key as it reads.
//!
//! The batch kernel takes the keys of a piece through one level after the other, so that a CPU has the loads of many keys in flight. Those
//! that have a link still are listed, without a branch that depends on what a key finds.
//!
//! [`one`] is written over [`Loads`], so that tests can stop a lookup between any two loads. All kernels load what a key needs in the
//! same order.

use super::RowLists;
use crate::host::v6::table::NodeTable;
use fib::NextHopId;
#[cfg(test)]
use fib::loads::Loads;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::fence;

/// Keys of a piece. Whole bytes as places, 256, were slower where most keys have their answer at once.
const PIECE: usize = 128;

/// Answers keys, given as their first and last 64 bits, into `out`, all equally long: codes, where the table has an array of ids.
pub(super) fn lookup<const BITS: u32>(
    table: &NodeTable<BITS>,
    _: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    // What each key's last load found, and the places of the keys that have found a link.
    let (mut entries, mut left) = ([0; PIECE], [0_u8; PIECE]);
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let mut len = 0;
        for (place, (key, entry)) in (0..).zip(hi.iter().zip(&mut entries)) {
            *entry = table.entries.get(table.shape.place(0, 0, u128::from(*key) << 64));
            left[len] = place;
            len += usize::from(*entry >= table.codes);
        }
        for level in 1..table.shape.levels() {
            if len == 0 {
                break;
            }
            // What links lead to was stored before them.
            fence(Acquire);
            len = descend(table, level, (hi, lo), &mut entries, &mut left[..len]);
        }
        for (answer, entry) in out.iter_mut().zip(&entries) {
            *answer = NextHopId::from_answer(*entry);
        }
    }
}

/// Takes the keys at the places `left`, which have links to nodes of this level, to the entries there. Moves the places of those that have
/// links again to the front of `left`, and returns their number.
#[inline(always)]
fn descend<const BITS: u32>(
    table: &NodeTable<BITS>,
    level: usize,
    (hi, lo): (&[u64], &[u64]),
    entries: &mut [u32; PIECE],
    left: &mut [u8],
) -> usize {
    let shape = &table.shape;
    let (start, stride, base) = (shape.start(level), shape.stride(level), shape.base(level));
    // A level's bits lie in one half of the address.
    let half = if base < u64::BITS { hi } else { lo };
    let (shift, mask) = (u64::BITS - base % u64::BITS - stride, (1 << stride) - 1);
    let mut len = 0;
    for at in 0..left.len() {
        let place = left[at];
        let entry = &mut entries[usize::from(place)];
        let slot = half[usize::from(place)] >> shift & mask;
        *entry = table.entries.get(start + (((*entry - table.codes) as usize) << stride) + slot as usize);
        left[len] = place;
        len += usize::from(*entry >= table.codes);
    }
    len
}

/// The next hop of a key as the engine answers it: the default route is loaded first.
#[cfg(test)]
pub(crate) fn one_or_default<const BITS: u32, L: Loads>(
    table: &NodeTable<BITS>,
    key: u128,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let default = loads.word(&table.default)?;
    one(table, key, loads).map(|answer| if answer == 0 { default } else { answer })
}

/// From the top down, each link leads to a node of the next level, until an entry is a code: the next hop of a key, 0 where it has no route
/// but the default.
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
