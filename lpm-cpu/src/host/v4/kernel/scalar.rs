//! The kernel without vectors, and a plain lookup of one key.
//!
//! The batch kernel has no branch that depends on a key's result, so the CPU keeps the loads of many keys in flight: first the records of
//! a piece of keys, then the codes in their cells. Both are prefetched, records a piece ahead: instructions that wait for a load would
//! fill the schedulers after about ten keys. Keys in blocks, few in real tables, are listed and take the same steps together. `one` is
//! written over `Loads`, so that tests can stop a lookup between any two loads; all kernels load a key's words in its order.

#[cfg(test)]
use crate::chunks::entries_of;
use crate::host::v4::codes::Width;
use crate::host::v4::table::{CELL_CODES, RECORD_CELLS, Record, Table4, record_in, record_of};
use crate::kernel::entries::{load_entry, place_of};
use fib::NextHopId;
use fib::loads::{Loads, Plain};
use lpm_core::prefetch;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

const PIECE: usize = 24;
/// Answers scanned at a time for keys in blocks, and keys that descend into blocks together.
const ASIDE: usize = 64;

#[inline(always)]
pub(super) fn lookup(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    match table.form.width {
        Width::Bits8 => pieces::<8>(table, keys, out),
        Width::Bits16 => pieces::<16>(table, keys, out),
        Width::Bits32 => pieces::<32>(table, keys, out),
    }
}

/// [`lookup`] with POPCNT, which every x86-64 since 2009 has.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
pub(super) fn lookup_popcnt(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    lookup(table, keys, out);
}

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
    settle::<BITS>(table, keys, out);
}

#[inline(always)]
fn prefetch_records(table: &Table4, keys: &[u32]) {
    for key in keys {
        prefetch::line(table.records.as_ptr().wrapping_add(record_of(*key) as usize));
    }
}

/// The codes of a piece of keys whose records are prefetched; prefetches the records of the next piece meanwhile.
#[inline(always)]
fn piece<const BITS: u32>(
    table: &Table4,
    keys: &[u32],
    out: &mut [NextHopId],
    mut prefetch_next: impl FnMut(),
) {
    let cells = table.cells.as_ptr().cast::<u8>();
    // The index of each key's code among all codes in cells.
    let mut places = [0; PIECE];
    for (key, place) in keys.iter().zip(&mut places) {
        // SAFETY: `records` has an entry for each /17.
        let record = unsafe { table.records.get_unchecked(record_of(*key) as usize) };
        let cell = Record::from_word(record.load(Relaxed)).cell(key >> 10 & (RECORD_CELLS - 1));
        *place = cell * CELL_CODES + (key >> 8) % CELL_CODES;
        prefetch::line(place_of::<BITS>(cells, *place));
    }
    prefetch_next();
    // A cell is stored before the record that leads to it.
    fence(Acquire);
    for (place, answer) in places.iter().zip(out) {
        // SAFETY: the cells come from published records; their words have at least `BITS` bits.
        *answer = NextHopId::from_answer(unsafe { load_entry::<BITS>(cells, *place, Relaxed) });
    }
}

/// Replaces codes that are indices by ids, and looks up keys with the escape code in their blocks.
#[inline(always)]
fn settle<const BITS: u32>(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    let escape = NextHopId::from_answer(u32::MAX >> (32 - BITS));
    let mut aside = [0; ASIDE];
    for (keys, out) in keys.chunks(ASIDE).zip(out.chunks_mut(ASIDE)) {
        let mut len = 0;
        if out.iter().fold(false, |any, answer| any | (*answer == escape)) {
            for (place, (key, answer)) in (0..).zip(keys.iter().zip(&mut *out)) {
                let mut is_aside = *answer == escape;
                if BITS == 32 && is_aside {
                    // An answer has 24 bits: this may also be the next hop 2^24 - 1.
                    let Ok(code) = code_at(table, record_of(*key), key >> 8, &mut Plain);
                    *answer = NextHopId::from_answer(code);
                    is_aside = code == u32::MAX;
                }
                aside[len] = place;
                len += usize::from(is_aside);
            }
        }
        if table.form.is_indexed {
            // The id of a code is stored before the code. The escape code has an id too.
            fence(Acquire);
            for answer in &mut *out {
                *answer = NextHopId::from_answer(table.ids[answer.get() as usize].load(Relaxed));
            }
        }
        if len > 0 {
            blocks::<BITS>(table, keys, out, &aside[..len]);
        }
    }
}

/// All keys of `aside`, which found the escape code, take one step before the next, whose loads are prefetched.
#[inline]
pub(super) fn blocks<const BITS: u32>(table: &Table4, keys: &[u32], out: &mut [NextHopId], aside: &[u32]) {
    let cells = table.cells.as_ptr().cast::<u8>();
    for aside in aside.chunks(ASIDE) {
        // The index of each key's next load.
        let mut places = [0_u32; ASIDE];
        let listed = || aside.iter().map(|place| keys[*place as usize]);
        // The target of a word is stored before the word, beginning with the codes that the keys have found.
        fence(Acquire);
        for (key, place) in listed().zip(&mut places) {
            let chunk = table.chunks[(key >> 16) as usize].load(Relaxed);
            *place = (chunk - 1) << 8 | key >> 8 & 0xff;
            prefetch::line(table.blocks.as_ptr().wrapping_add(*place as usize));
        }
        fence(Acquire);
        for (key, place) in listed().zip(&mut places) {
            *place = record_in(table.blocks[*place as usize].load(Relaxed), key >> 7 & 1);
            prefetch::line(table.records.as_ptr().wrapping_add(*place as usize));
        }
        fence(Acquire);
        for (key, place) in listed().zip(&mut places) {
            let record = Record::from_word(table.records[*place as usize].load(Relaxed));
            *place = record.cell(key >> 2 & (RECORD_CELLS - 1)) * CELL_CODES + key % CELL_CODES;
            prefetch::line(place_of::<BITS>(cells, *place));
        }
        fence(Acquire);
        for (at, place) in aside.iter().zip(&places) {
            // SAFETY: the cells come from published records, as in `piece`.
            let code = unsafe { load_entry::<BITS>(cells, *place, Acquire) };
            let next_hop = if table.form.is_indexed { table.ids[code as usize].load(Relaxed) } else { code };
            out[*at as usize] = NextHopId::from_answer(next_hop);
        }
    }
}

/// The next hop of a key; loads the default route first, as the engine does.
#[cfg(test)]
pub(crate) fn one_or_default<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let default = loads.word(&table.default)?;
    one(table, key, loads).map(|answer| if answer == 0 { default } else { answer })
}

/// The next hop of a key; 0 if it has no route but the default.
#[cfg(test)]
fn one<L: Loads>(table: &Table4, key: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let mut code = code_at(table, record_of(key), key >> 8, loads)?;
    if code == table.form.width.escape() {
        let chunk = loads.word(&table.chunks[(key >> 16) as usize])?;
        let block = loads.word(&table.blocks[entries_of(chunk).start + (key >> 8 & 0xff) as usize])?;
        code = code_at(table, record_in(block, key >> 7 & 1), key, loads)?;
    }
    if table.form.is_indexed { loads.word(&table.ids[code as usize]) } else { Ok(code) }
}

/// The code of `at` in record `record`: `at` is a /24, or an address in a block.
fn code_at<L: Loads>(table: &Table4, record: u32, at: u32, loads: &mut L) -> Result<u32, L::Stop> {
    let bits = table.form.width.bits();
    let record = loads.wide_word(&table.records[record as usize])?;
    let cell = Record::from_word(record).cell(at / CELL_CODES % RECORD_CELLS);
    // The code's index within the cell, then its word of 32 bits.
    let at = at % CELL_CODES;
    let word = cell * table.form.width.words() + at * bits / 32;
    let word = loads.word(&table.cells[word as usize])?;
    Ok(word >> (at * bits % 32) & table.form.width.escape())
}
