//! The lookup kernels, one file an instruction set, chosen once a batch. They compute raw answers, as the GPU's kernels do.

#[cfg(target_arch = "x86_64")]
mod avx512f;
mod scalar;

use super::table::Words;
use crate::cu::as_next_hops;
use crate::host::Answers;
use fib::{CheckedIsa, NextHopId};

/// Keys that go through one level before the next; smaller pieces were slower in both families.
const PIECE: usize = 256;

#[inline]
pub(super) fn lookup_v4(isa: CheckedIsa, table: &Words, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    for (keys, out) in keys.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let mut raw = [0; PIECE];
        let raw = &mut raw[..keys.len()];
        match isa.get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
            fib::Isa::Avx512f => unsafe { avx512f::search(table, keys, raw) },
            _ => scalar::search(table, keys, raw),
        }
        Answers::<u32>::resolve(&*table.answers, &[], raw);
        out.copy_from_slice(as_next_hops(raw));
    }
}

#[inline]
pub(super) fn lookup_v6(isa: CheckedIsa, table: &Words, (hi, lo): (&[u64], &[u64]), out: &mut [NextHopId]) {
    assert!(hi.len() == out.len() && lo.len() == out.len(), "as many answers as keys");
    for ((hi, lo), out) in hi.chunks(PIECE).zip(lo.chunks(PIECE)).zip(out.chunks_mut(PIECE)) {
        let mut raw = [0; PIECE];
        let raw = &mut raw[..hi.len()];
        match isa.get() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
            fib::Isa::Avx512f => unsafe { avx512f::search(table, hi, raw) },
            _ => scalar::search(table, hi, raw),
        }
        Answers::<u128>::resolve(&*table.answers, lo, raw);
        out.copy_from_slice(as_next_hops(raw));
    }
}
