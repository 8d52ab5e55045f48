//! Work lists of the vector kernels of `host`'s IPv6 lookups.

#![expect(
    clippy::cast_possible_truncation,
    reason = "places in a piece are below 256; address bits are cut out"
)]

use crate::host::v6::table::NodeTable;
use fib::NextHopId;

/// Keys of a piece: the lists fit L1.
pub(super) const PIECE: usize = 256;
/// Capacity of a list, which is written in whole vectors.
const LIST: usize = PIECE + 16;
const WINDOW_BITS: u32 = 32;

/// The keys of a piece that descend into rows: a reader's scratch memory.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct RowLists {
    /// The entry that the key's last load found.
    pub(super) entry: [u32; LIST],
    pub(super) bits: [u32; LIST],
    /// The key's index in the piece, set only for keys left after eight levels of rows.
    at: [u16; LIST],
    /// The first keys listed: a bit for each key of the piece.
    pub(super) listed: [u16; PIECE / 16],
}

impl Default for RowLists {
    fn default() -> Self {
        Self { entry: [0; LIST], bits: [0; LIST], at: [0; LIST], listed: [0; PIECE / 16] }
    }
}

impl RowLists {
    /// The listed keys' indices in the piece, in the order of the list.
    fn places(listed: [u16; PIECE / 16]) -> impl Iterator<Item = usize> {
        listed.into_iter().enumerate().flat_map(|(vector, mut mask)| {
            std::iter::from_fn(move || {
                let lane = mask.trailing_zeros() as usize;
                mask &= mask.checked_sub(1)?;
                Some(vector * 16 + lane)
            })
        })
    }

    pub(super) fn answer(&self, out: &mut [NextHopId]) {
        for (place, entry) in Self::places(self.listed).zip(&self.entry) {
            out[place] = NextHopId::from_answer(*entry);
        }
    }

    /// Takes keys without an answer through the remaining rows. `rows` takes the first listed keys, by number, through a window's levels.
    #[cold]
    pub(super) fn finish<const BITS: u32>(
        &mut self,
        table: &NodeTable<BITS>,
        (hi, lo): (&[u64], &[u64]),
        out: &mut [NextHopId],
        mut rows: impl FnMut(&mut Self, usize, usize),
    ) {
        let mut len = 0;
        for (from, place) in Self::places(self.listed).enumerate() {
            if table.node(self.entry[from]).is_some() {
                self.entry[len] = self.entry[from];
                self.at[len] = place as u16;
                len += 1;
            }
        }
        for window in 1.. {
            if len == 0 {
                return;
            }
            for (bits, at) in self.bits.iter_mut().zip(&self.at[..len]) {
                let key = u128::from(hi[usize::from(*at)]) << 64 | u128::from(lo[usize::from(*at)]);
                *bits = (key << (table.shape.direct_bits() + WINDOW_BITS * window)
                    >> (u128::BITS - WINDOW_BITS)) as u32;
            }
            rows(self, window as usize, len);
            let mut left = 0;
            for from in 0..len {
                let (entry, at) = (self.entry[from], self.at[from]);
                if table.node(entry).is_some() {
                    (self.entry[left], self.at[left]) = (entry, at);
                    left += 1;
                } else {
                    out[usize::from(at)] = NextHopId::from_answer(entry);
                }
            }
            len = left;
        }
    }
}
