//! The kernel without vectors, and the lookup of one key as it reads.
//!
//! The batch kernel has no branch that depends on what a key finds, so that a CPU has the loads of many keys in flight: the records of a
//! piece of keys, then the codes in their cells. Both are prefetched, the records a piece earlier: what waits for a load otherwise
//! fills the schedulers after some ten keys. Only keys in blocks, few in real tables, are looked up one by one.
//!
//! [`one`] is written over [`Loads`], so that tests can stop a lookup between any two loads. All kernels load what a key needs in the
//! same order.

use crate::chunks::entries_of;
use crate::host::v4::codes::Width;
use crate::host::v4::table::{CELL_CODES, RECORD_CELLS, Record, Table4, record_in, record_of};
use fib::NextHopId;
use fib::loads::{Loads, Plain};
use lpm_core::prefetch;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// Keys of a piece.
const PIECE: usize = 24;

/// Answers `keys` into `out`, equally long.
#[inline(always)]
pub(super) fn lookup(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    match (table.form.width, table.form.is_indexed) {
        (Width::Bits8, false) => pieces::<8, false>(table, keys, out),
        (Width::Bits8, true) => pieces::<8, true>(table, keys, out),
        (Width::Bits16, false) => pieces::<16, false>(table, keys, out),
        (Width::Bits16, true) => pieces::<16, true>(table, keys, out),
        (Width::Bits32, _) => pieces::<32, false>(table, keys, out),
    }
}

/// [`lookup`] on a CPU that counts bits by an instruction, as every x86-64 since 2009 does.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
pub(super) fn lookup_popcnt(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    lookup(table, keys, out);
}

/// The kernel for codes of so many bits, which are indices or not.
#[inline(always)]
fn pieces<const BITS: u32, const INDEXED: bool>(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    let prefetch_records = |keys: &[u32]| {
        for key in keys {
            prefetch::line(table.records.as_ptr().wrapping_add(record_of(*key) as usize));
        }
    };
    let mut pieces = keys.chunks(PIECE);
    prefetch_records(pieces.next().unwrap_or_default());
    let mut cells = [0; PIECE];
    // The places of keys in blocks.
    let mut aside = [0_u16; PIECE];
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        for (key, cell) in keys.iter().zip(&mut cells) {
            // SAFETY: there is a record for each /17.
            let record = unsafe { table.records.get_unchecked(record_of(*key) as usize) };
            *cell = Record::at(record.load(Relaxed)).cell(key >> 10 & (RECORD_CELLS - 1));
            prefetch::line(table.cells.as_ptr().wrapping_add((*cell * (CELL_CODES * BITS / 32)) as usize));
        }
        prefetch_records(pieces.next().unwrap_or_default());
        // What the records lead to was stored before them.
        fence(Acquire);
        let (escape, mut most) = (u32::MAX >> (32 - BITS), 0);
        for ((key, cell), answer) in keys.iter().zip(&cells).zip(out.iter_mut()) {
            let bit = (key >> 8) % CELL_CODES * BITS;
            let word = cell * (CELL_CODES * BITS / 32) + bit / 32;
            // SAFETY: the cells of records in service.
            let word = unsafe { table.cells.get_unchecked(word as usize) }.load(Relaxed);
            let code = word >> (bit % 32) & escape;
            *answer = NextHopId::from_answer(code);
            most = most.max(code);
        }
        let mut len = 0;
        if most == escape {
            for (place, answer) in (0..).zip(&*out) {
                aside[len] = place;
                len += usize::from(*answer == NextHopId::from_answer(escape));
            }
        }
        if INDEXED {
            fence(Acquire);
            for answer in &mut *out {
                *answer = NextHopId::from_answer(table.ids[answer.get() as usize].load(Relaxed));
            }
        }
        for place in &aside[..len] {
            let place = usize::from(*place);
            let Ok(next_hop) = one(table, keys[place], &mut Plain);
            out[place] = NextHopId::from_answer(next_hop);
        }
    }
}
/// The next hop of a key as the engine answers it: the default route is loaded first.
#[cfg(test)]
pub(crate) fn one_or_default<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let default = loads.word(&table.default)?;
    one(table, key, loads).map(|answer| if answer == 0 { default } else { answer })
}

/// The next hop of a key, 0 where it has no route but the default.
pub(super) fn one<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let mut code = code_at(table, record_of(key), key >> 8, loads)?;
    if code == table.form.width.escape() {
        let chunk = loads.word(&table.chunks[(key >> 16) as usize])?;
        let block = loads.word(&table.blocks[entries_of(chunk).start + (key >> 8 & 0xff) as usize])?;
        code = code_at(table, record_in(block, key >> 7 & 1), key, loads)?;
    }
    if table.form.is_indexed { loads.word(&table.ids[code as usize]) } else { Ok(code) }
}

/// The code in record `record` of what `at` numbers: a /24, or an address in a block.
fn code_at<L: Loads>(table: &Table4, record: u32, at: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let bits = table.form.width.bits();
    let record = loads.wide_word(&table.records[record as usize])?;
    let cell = Record::at(record).cell(at / CELL_CODES % RECORD_CELLS);
    // Where in the cell, in words of 32 bits.
    let at = at % CELL_CODES;
    let word = cell * table.form.width.words() + at * bits / 32;
    let word = loads.word(&table.cells[word as usize])?;
    Ok(word >> (at * bits % 32) & table.form.width.escape())
}
