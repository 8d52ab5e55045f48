//! Lookup kernels, one module an instruction set. All have the scalar kernel's signature; a `match` selects one for each batch.
//!
//! The vector kernels of `bloom` work in stages over a piece of the batch, so that the loads of one stage are independent:
//!
//! 1. *direct*: index the direct part with every key; the entry's next hop is the answer unless longer prefixes lie below it;
//! 2. *filter*: for keys with longer prefixes below, deepest group first, test one filter word, except for keys of a dense block;
//! 3. *probe*: for keys that pass, find the key's tag in its table line, which was prefetched;
//! 4. *answer*: write the next hop found; keys not found move to the next shallower group or keep their direct answer.

#[cfg(target_arch = "x86_64")]
mod answer;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512f;
#[cfg(target_arch = "x86_64")]
mod lists;
pub(crate) mod scalar;
pub(crate) mod variants;

#[cfg(target_arch = "x86_64")]
pub(crate) use lists::BloomLists;

#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug)]
pub(crate) struct BloomLists;

#[cfg(not(target_arch = "x86_64"))]
impl BloomLists {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self)
    }
}

use crate::bloom::v4::Table4;
use crate::bloom::v6::Table6;
use fib::{CheckedIsa, NextHopId};

/// IPv6 keys, by halves, and their answers: a batch, or a piece of one.
pub(crate) struct Piece6<'a> {
    hi: &'a [u64],
    lo: &'a [u64],
    out: &'a mut [NextHopId],
}

impl<'a> Piece6<'a> {
    #[inline]
    pub(crate) fn new((hi, lo): (&'a [u64], &'a [u64]), out: &'a mut [NextHopId]) -> Self {
        assert!(hi.len() == out.len() && lo.len() == out.len(), "keys and answers must have the same length");
        Self { hi, lo, out }
    }

    /// Pieces of `keys` keys; the last may have fewer.
    #[inline(always)]
    fn pieces(self, keys: usize) -> impl Iterator<Item = Self> {
        let pieces = self.hi.chunks(keys).zip(self.lo.chunks(keys)).zip(self.out.chunks_mut(keys));
        pieces.map(|((hi, lo), out)| Self { hi, lo, out })
    }
}

#[inline]
pub(crate) fn lookup_v4(
    isa: CheckedIsa,
    table: &Table4,
    lists: &mut BloomLists,
    keys: &[u32],
    out: &mut [NextHopId],
) {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx512f => unsafe { avx512f::lookup_v4(table, lists, keys, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx2 => unsafe { avx2::lookup_v4(table, lists, keys, out) },
        _ => scalar::lookup_v4(table, lists, keys, out),
    }
}

#[inline]
pub(crate) fn lookup_v6(isa: CheckedIsa, table: &Table6, lists: &mut BloomLists, batch: Piece6<'_>) {
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx512f => unsafe { avx512f::lookup_v6(table, lists, batch) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx2 => unsafe { avx2::lookup_v6(table, lists, batch) },
        _ => scalar::lookup_v6(table, lists, batch),
    }
}

#[inline]
pub(crate) fn lookup_both(
    isa: CheckedIsa,
    (table4, table6): (&Table4, &Table6),
    lists: &mut BloomLists,
    (keys, out4): (&[u32], &mut [NextHopId]),
    batch: Piece6<'_>,
) {
    #[cfg(target_arch = "x86_64")]
    if isa.get() == fib::Isa::Avx512f && keys.len() <= lists::PIECE && batch.hi.len() <= lists::PIECE {
        assert!(keys.len() == out4.len());
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        return unsafe { avx512f::lookup_both((table4, table6), lists, (keys, out4), batch) };
    }
    lookup_v4(isa, table4, lists, keys, out4);
    lookup_v6(isa, table6, lists, batch);
}
