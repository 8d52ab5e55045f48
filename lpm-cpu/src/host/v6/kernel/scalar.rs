//! The scalar kernel: the lookup as it reads, one key at a time. Never tuned.
//!
//! It is written over [`Loads`], so that tests can stop a lookup between any two loads. The vector kernels load what a key needs in the
//! same order.

use super::RowLists;
use crate::host::v6::table::NodeTable;
use fib::NextHopId;
use fib::loads::{Loads, Plain};

/// Answers keys, given as their first and last 64 bits, into `out`, all equally long.
pub(super) fn lookup<const BITS: u32>(
    table: &NodeTable<BITS>,
    _: &mut RowLists,
    (hi, lo): (&[u64], &[u64]),
    out: &mut [NextHopId],
) {
    for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
        let key = u128::from(*hi) << 64 | u128::from(*lo);
        let Ok(next_hop) = one(table, key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
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
fn one<const BITS: u32, L: Loads>(table: &NodeTable<BITS>, key: u128, loads: &mut L) -> Result<u32, L::Stop> {
    let mut level = 0;
    let mut entry = table.entries.load(table.shape.place(level, 0, key), loads)?;
    while let Some(node) = table.node(entry) {
        level += 1;
        entry = table.entries.load(table.shape.place(level, node, key), loads)?;
    }
    table.ids.as_ref().map_or(Ok(entry), |ids| loads.word(&ids[entry as usize]))
}
