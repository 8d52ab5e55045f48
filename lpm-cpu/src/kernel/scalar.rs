//! The scalar kernels: the algorithms in plain form, one key at a time. They are written over [`Loads`], so that tests can stop a lookup
//! between any two loads. The vector kernels load a key's words in the same order.

use crate::bit_maps::{self, BitMaps, Levels};
use crate::chunks::entries_of;
use crate::sail_l::layout::{ENTRIES16, Paper, Wide};
use crate::sail_m::table::OverlayTable;
use fib::loads::{Loads, Plain};
use fib::{FibId, Fibs, NextHopId};

/// The compiler vectorizes it with the caller's target features.
#[inline(always)]
pub(super) fn or_default(default: NextHopId, out: &mut [NextHopId]) {
    for answer in out {
        *answer = if answer.is_none() { default } else { *answer };
    }
}

#[inline]
pub(crate) fn bit_maps<S: Levels>(table: &BitMaps<S>, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        let Ok(next_hop) = bit_maps_one(table, *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

/// SAIL_B (Algorithm 1, as published) or SAIL_U (section 4.1): the deepest level whose bit is set has the next hop.
pub(crate) fn bit_maps_one<S: Levels, L: Loads>(
    table: &BitMaps<S>,
    key: u32,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    for (level, offset) in S::LEVELS.iter().zip(&S::OFFSETS).rev() {
        let at = offset + bit_maps::node(*level, key);
        // Level 0 has one entry, which needs no bit.
        if *level > 0 && table.bits.load(at, loads)? == 0 {
            continue;
        }
        let entry = table.hops.load(at, loads)?;
        if entry & bit_maps::CHUNK == 0 {
            return Ok(entry);
        }
        return table.n32.load(entry_in(entry & bit_maps::ID, key & 0xff), loads);
    }
    Ok(0)
}

fn entry_in(chunk: u32, at: u32) -> usize {
    entries_of(chunk).start + at as usize
}

pub(super) fn wide(table: &Wide, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        let Ok(next_hop) = wide_one(table, *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

/// SAIL_L (Algorithm 2) over BCN, BN24 and N32 of the wide layout.
pub(crate) fn wide_one<L: Loads>(table: &Wide, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let entry = table.bcn.load((key >> 16) as usize, loads)?;
    if entry & Wide::CHUNK == 0 {
        return Ok(entry);
    }
    let entry = table.bn24.load(entry_in(entry & Wide::ID, key >> 8 & 0xff), loads)?;
    if entry & Wide::CHUNK == 0 {
        return Ok(entry);
    }
    table.n32.load(entry_in(entry & Wide::ID, key & 0xff), loads)
}

pub(super) fn paper(table: &Paper, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        let Ok(next_hop) = paper_one(table, *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

/// SAIL_L (Algorithm 2) over BCN, BN24, C24 and N32 of the paper's layout.
pub(crate) fn paper_one<L: Loads>(table: &Paper, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let code = paper_code(table, key, loads)?;
    loads.word(&table.ids[code as usize])
}

pub(crate) fn paper_code<L: Loads>(table: &Paper, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let entry = table.bcn.load((key >> 16) as usize, loads)?;
    if entry & Paper::B16 != 0 {
        return Ok(entry & !Paper::B16);
    }
    let at = entry_in(entry, key >> 8 & 0xff);
    let code = table.bn24.load(at, loads)?;
    if code != 0 {
        return Ok(code);
    }
    let chunk = table.c24.load(at, loads)?;
    table.n32.load(entry_in(chunk, key & 0xff), loads)
}

pub(super) fn many(table: &OverlayTable, fibs: Fibs<'_>, keys: &[u32], out: &mut [NextHopId]) {
    for (at, (key, answer)) in keys.iter().zip(out).enumerate() {
        let Ok(next_hop) = many_one(table, fibs.fib(at), *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
    }
}

/// SAIL_M (section 4.3): finds the vector by SAIL_L's lookup over BC16, B24 and C24, and returns its next hop for `fib`.
pub(crate) fn many_one<L: Loads>(
    table: &OverlayTable,
    fib: FibId,
    key: u32,
    loads: &mut L,
) -> Result<u32, L::Stop> {
    let vector = vector(table, key, loads)?;
    table.hops.load(table.place(vector, fib), loads)
}

fn vector<L: Loads>(table: &OverlayTable, key: u32, loads: &mut L) -> Result<usize, L::Stop> {
    let node = (key >> 16) as usize;
    let chunk = table.bc16.load(node, loads)?;
    if chunk == 0 {
        return Ok(node);
    }
    let node = entry_in(chunk, key >> 8 & 0xff);
    if table.b24.load(node, loads)? == 1 {
        return Ok(ENTRIES16 + node);
    }
    let chunk = table.c24.load(node, loads)?;
    Ok(table.vectors32() + entry_in(chunk, key & 0xff))
}
