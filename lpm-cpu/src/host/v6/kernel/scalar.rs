//! The scalar kernel: the lookup as it reads, one key at a time. Never tuned.
//!
//! It is written over [`Loads`], so that tests can stop a lookup between any two loads. The vector kernels load what a key needs in the
//! same order.

use crate::host::v6::table::Table;
use fib::NextHopId;
use fib::loads::{Loads, Plain};
use std::hint::select_unpredictable;

/// Answers keys, given as their first and last 64 bits, into `out`, all equally long.
pub(super) fn lookup<const BITS: u32>(
    table: &Table<BITS>,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    let Ok(default) = Plain.word(&table.default);
    for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
        let key = u128::from(*hi) << 64 | u128::from(*lo);
        let Ok(next_hop) = one_or(default, table, key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

/// A batch of one key.
#[cfg(test)]
pub(crate) fn one<const BITS: u32, L: Loads>(
    table: &Table<BITS>,
    key: u128,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let default = loads.word(&table.default)?;
    one_or(default, table, key, loads)
}

/// From the top down, each link leads to a node of the next level, until an entry is a code. `default` is the next hop of the default route,
/// which was loaded before.
fn one_or<const BITS: u32, L: Loads>(
    default: u32,
    table: &Table<BITS>,
    key: u128,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let mut level = 0;
    let mut entry = table.entries.load(table.shape.place(level, 0, key), loads)?;
    while let Some(node) = table.node(entry) {
        level += 1;
        entry = table.entries.load(table.shape.place(level, node, key), loads)?;
    }
    let answer = table.ids.as_ref().map_or(Ok(entry), |ids| loads.word(&ids[entry as usize]))?;
    // Code 0 is as frequent as others in random traffic, too much so for a branch.
    Ok(select_unpredictable(entry == 0, default, answer))
}
