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
use crate::kernel::entries::{load_entry, place_of};
use fib::NextHopId;
use fib::loads::{Loads, Plain};
use lpm_core::prefetch;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

/// Keys of a piece.
const PIECE: usize = 24;
/// Answers that are looked through at once for keys in blocks.
const SETTLED: usize = 64;

/// Answers `keys` into `out`, equally long.
#[inline(always)]
pub(super) fn lookup(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    match table.form.width {
        Width::Bits8 => pieces::<8>(table, keys, out),
        Width::Bits16 => pieces::<16>(table, keys, out),
        Width::Bits32 => pieces::<32>(table, keys, out),
    }
    settle(table, keys, out);
}

/// [`lookup`] on a CPU that counts bits by an instruction, as every x86-64 since 2009 does.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
pub(super) fn lookup_popcnt(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    lookup(table, keys, out);
}

/// The codes of `keys`, of so many bits; the escape code for those in blocks.
#[inline(always)]
fn pieces<const BITS: u32>(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    // Loops over whole pieces are unrolled.
    let ((whole, rest), (whole_out, rest_out)) = (keys.as_chunks::<PIECE>(), out.as_chunks_mut::<PIECE>());
    let mut ahead = whole.iter();
    let mut prefetch_next = || match ahead.next() {
        Some(keys) => prefetch_records(table, keys),
        None => prefetch_records(table, rest),
    };
    prefetch_next();
    for (keys, out) in whole.iter().zip(whole_out) {
        piece::<BITS>(table, keys, out, &mut prefetch_next);
    }
    piece::<BITS>(table, rest, rest_out, || ());
}

/// Prefetches the records of `keys`.
#[inline(always)]
fn prefetch_records(table: &Table4, keys: &[u32]) {
    for key in keys {
        prefetch::line(table.records.as_ptr().wrapping_add(record_of(*key) as usize));
    }
}

/// [`pieces`] for one, whose records are prefetched; those of the next are meanwhile.
#[inline(always)]
fn piece<const BITS: u32>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
    mut prefetch_next: impl FnMut(),
) {
    let cells = table.cells.as_ptr().cast::<u8>();
    // Which code each key has, of all codes in cells.
    let mut places = [0; PIECE];
    for (key, place) in keys.iter().zip(&mut places) {
        // SAFETY: there is a record for each /17.
        let record = unsafe { table.records.get_unchecked(record_of(*key) as usize) };
        let cell = Record::at(record.load(Relaxed)).cell(key >> 10 & (RECORD_CELLS - 1));
        *place = cell * CELL_CODES + (key >> 8) % CELL_CODES;
        prefetch::line(place_of::<BITS>(cells, *place));
    }
    prefetch_next();
    // What the records lead to was stored before them.
    fence(Acquire);
    for (place, answer) in places.iter().zip(out) {
        // SAFETY: the cells of records in service. Their words are of as many bits as codes have, or more.
        *answer = NextHopId::from_answer(unsafe { load_entry::<BITS>(cells, *place, Relaxed) });
    }
}

/// Looks up the keys that have the escape code, and gives each key its next hop where codes are not next hops.
#[inline(always)]
fn settle(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    let escape = NextHopId::from_answer(table.form.width.escape());
    let mut aside = [0_u8; SETTLED];
    for (keys, out) in keys.chunks(SETTLED).zip(out.chunks_mut(SETTLED)) {
        if out.iter().fold(false, |any, answer| any | (*answer == escape)) {
            let mut len = 0;
            for (place, answer) in (0..).zip(&*out) {
                aside[len] = place;
                len += usize::from(*answer == escape);
            }
            for place in &aside[..len] {
                let place = usize::from(*place);
                let Ok(code) = code_of(table, keys[place], &mut Plain);
                out[place] = NextHopId::from_answer(code);
            }
        }
        if table.form.is_indexed {
            // The id of a code was stored before the code.
            fence(Acquire);
            for answer in out {
                *answer = NextHopId::from_answer(table.ids[answer.get() as usize].load(Relaxed));
            }
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
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) fn one<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let code = code_of(table, key, loads)?;
    if table.form.is_indexed { loads.word(&table.ids[code as usize]) } else { Ok(code) }
}

/// The code of a key.
fn code_of<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let code = code_at(table, record_of(key), key >> 8, loads)?;
    if code != table.form.width.escape() {
        return Ok(code);
    }
    let chunk = loads.word(&table.chunks[(key >> 16) as usize])?;
    let block = loads.word(&table.blocks[entries_of(chunk).start + (key >> 8 & 0xff) as usize])?;
    code_at(table, record_in(block, key >> 7 & 1), key, loads)
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
