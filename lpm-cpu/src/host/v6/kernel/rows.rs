//! Step 2 of the vector kernels: rows, over the operations of any instruction set.

use super::level;
use super::lists::{PIECE, RowLists};
use crate::host::v6::ROW_BITS;
use crate::host::v6::table::NodeTable;
use crate::kernel::fetch::Fetch;
use lpm_core::lanes::Lanes;

const VECTORS: usize = 4;

/// Takes the first `len` listed keys, which have links, through the eight levels of a window. Returns whether any still has a link.
#[inline(always)]
pub(super) fn rows<L: Lanes, F: Fetch<L>, const BITS: u32>(
    lanes: L,
    table: &NodeTable<BITS>,
    lists: &mut RowLists,
    window: usize,
    len: usize,
) -> bool {
    let zero = lanes.splat(0);
    let mut is_left = false;
    for start in (0..len.min(PIECE)).step_by(VECTORS * L::COUNT) {
        let (mut entries, mut bits) = ([zero; VECTORS], [zero; VECTORS]);
        for (at, (entry, bits)) in (start..).step_by(L::COUNT).zip(entries.iter_mut().zip(&mut bits)) {
            let live = lanes.first(len.saturating_sub(at));
            // SAFETY: `start` is a multiple of `VECTORS * COUNT` below `PIECE`, so the vectors lie within the lists. Lanes without a key
            // have code 0.
            unsafe {
                *entry = lanes.load(lists.entry.as_ptr().add(at), live);
                *bits = lanes.load_all(lists.bits.as_ptr().add(at));
            }
        }
        is_left |= descend::<L, F, BITS, VECTORS>(lanes, table, window, &mut entries, bits);
        for (at, entry) in (start..).step_by(L::COUNT).zip(entries) {
            // SAFETY: the same places as the loads before.
            unsafe { lanes.store_all(lists.entry.as_mut_ptr().add(at), entry) };
        }
    }
    is_left
}

/// As `rows` for keys in registers, with the address bits `bits`: every key through a level before the next.
#[inline(always)]
pub(super) fn descend<L: Lanes, F: Fetch<L>, const BITS: u32, const N: usize>(
    lanes: L,
    table: &NodeTable<BITS>,
    window: usize,
    entries: &mut [L::Vector; N],
    mut bits: [L::Vector; N],
) -> bool {
    const SHIFT: i32 = ROW_BITS.cast_signed();
    let first = 2 + 8 * window;
    for at_level in first..(first + 8).min(table.shape.levels()) {
        let rows = rows_of(table, at_level);
        let mut left = lanes.first(0);
        for (entry, bits) in entries.iter_mut().zip(&mut bits) {
            let slot = lanes.shift_right(*bits, 32 - SHIFT);
            let place = lanes.or(lanes.shift_left(*entry, SHIFT), slot);
            let links = lanes.at_least(*entry, table.codes);
            // SAFETY: a link leads to a row of this level. Other entries stay.
            *entry =
                unsafe { F::entries::<BITS>(lanes, rows, place, links, *entry, table.codes << ROW_BITS) };
            *bits = lanes.shift_left(*bits, SHIFT);
            left = lanes.either(left, lanes.at_least(*entry, table.codes));
        }
        if !lanes.any(left) {
            return false;
        }
    }
    true
}

/// The address of the rows of a level, shifted back by the table's codes, so that a link can be used as a row number.
#[inline(always)]
fn rows_of<const BITS: u32>(table: &NodeTable<BITS>, at_level: usize) -> *const u8 {
    let codes = (table.codes as usize) << ROW_BITS;
    level(table, at_level).wrapping_sub(codes * (BITS as usize / 8))
}
