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
pub(crate) fn lookup_v6(
    isa: CheckedIsa,
    table: &Table6,
    lists: &mut BloomLists,
    hi: &[u64],
    lo: &[u64],
    out: &mut [NextHopId],
) {
    assert!(hi.len() == out.len() && lo.len() == out.len(), "keys and answers must have the same length");
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx512f => unsafe { avx512f::lookup_v6(table, lists, hi, lo, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx2 => unsafe { avx2::lookup_v6(table, lists, hi, lo, out) },
        _ => scalar::lookup_v6(table, lists, hi, lo, out),
    }
}

#[inline]
pub(crate) fn lookup_both(
    isa: CheckedIsa,
    (table4, table6): (&Table4, &Table6),
    lists: &mut BloomLists,
    (keys, out4): (&[u32], &mut [NextHopId]),
    ((hi, lo), out6): ((&[u64], &[u64]), &mut [NextHopId]),
) {
    #[cfg(target_arch = "x86_64")]
    if isa.get() == fib::Isa::Avx512f && keys.len() <= lists::PIECE && hi.len() <= lists::PIECE {
        assert!(keys.len() == out4.len() && hi.len() == out6.len() && lo.len() == hi.len());
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        return unsafe {
            avx512f::lookup_both((table4, table6), lists, (keys, out4), lists::Piece6 { hi, lo, out: out6 })
        };
    }
    lookup_v4(isa, table4, lists, keys, out4);
    lookup_v6(isa, table6, lists, hi, lo, out6);
}
