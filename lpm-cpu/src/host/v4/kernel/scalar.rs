//! The scalar kernel: the lookup as it reads, one key at a time. Never tuned.
//!
//! It is written over [`Loads`], so that tests can stop a lookup between any two loads. The vector kernels load what a key needs in the
//! same order.

use crate::chunks::entries_of;
use crate::host::v4::table::{CELL_CODES, RECORD_CELLS, Record, Table4, record_in, record_of};
use fib::NextHopId;
use fib::loads::{Loads, Plain};

pub(super) fn lookup(table: &Table4, keys: &[u32], out: &mut [NextHopId]) {
    for (key, answer) in keys.iter().zip(out) {
        let Ok(next_hop) = one(table, *key, &mut Plain);
        *answer = NextHopId::from_answer(next_hop);
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
    let cell = Record::of(record).map_or(0, |record| record.cell(at / CELL_CODES % RECORD_CELLS));
    // Where in the cell, in words of 32 bits.
    let at = at % CELL_CODES;
    let word = cell * table.form.width.words() + at * bits / 32;
    let word = loads.word(&table.cells[word as usize])?;
    Ok(word >> (at * bits % 32) & table.form.width.escape())
}
