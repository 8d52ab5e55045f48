//! The lookups of `bloom-naive` and `bloom-baseline`: Algorithm 2 of the paper, level by level from the longest.
//!
//! This file has the scalar form: one key at a time, each filter bit tested before the next is computed. The vector form hashes
//! sixteen keys at once, which is all that the paper vectorises (section 4.3.2); it walks the lists of buckets key by key.

use crate::variants::hash::LevelKey;
use crate::variants::table::{HOP_MASK, VariantLevel, VariantTable, VariantWords};
use fib::{CheckedIsa, Isa, NextHopId};

/// Writes the next hop of each IPv4 key to `out`, which is as long.
#[inline]
pub(crate) fn lookup_v4(isa: CheckedIsa, table: &VariantTable, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
        Isa::Avx512f => unsafe { super::avx512f::variants::lookup_v4(table, keys, out) },
        _ => {
            let words = table.live();
            for (key, answer) in keys.iter().zip(out) {
                *answer = NextHopId::from_answer(lookup(table, words, *key));
            }
        }
    }
}

/// Writes the next hop of each IPv6 key, given as two halves, to `out`. All three are equally long.
#[inline]
pub(crate) fn lookup_v6(
    isa: CheckedIsa,
    table: &VariantTable,
    hi: &[u64],
    lo: &[u64],
    out: &mut [NextHopId],
) {
    assert!(hi.len() == out.len() && lo.len() == out.len(), "as many answers as keys");
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a `CheckedIsa` is an instruction set that this CPU has.
        Isa::Avx512f => unsafe { super::avx512f::variants::lookup_v6(table, hi, lo, out) },
        _ => {
            let words = table.live();
            for ((hi, lo), answer) in hi.iter().zip(lo).zip(out) {
                *answer = NextHopId::from_answer(
                    lookup_deep(table, words, *hi, *lo).unwrap_or_else(|| lookup(table, words, *hi)),
                );
            }
        }
    }
}

/// The next hop of the longest matching route past /64, if any.
fn lookup_deep(table: &VariantTable, words: &VariantWords, hi: u64, lo: u64) -> Option<u32> {
    let name = table.shape.filter_hash;
    let filter = table.shape.deep.as_ref()?;
    if words.deep.len() == 0 || !words.passes(filter, name, hi.hash(name)) {
        return None;
    }
    let next_hop = words.deep.lookup(hi, lo);
    (!next_hop.is_none()).then(|| next_hop.get())
}

/// The next hop from the levels, longest first, else from the direct entry.
fn lookup<W: LevelKey>(table: &VariantTable, words: &VariantWords, address: W) -> u32 {
    table
        .shape
        .levels
        .iter()
        .rev()
        .find_map(|level| lookup_level(table, words, level, address.first_bits(level.len)))
        .unwrap_or_else(|| words.get(direct(table.shape.direct_bits, address)))
}

/// The word index of an address's direct entry.
fn direct<W: LevelKey>(direct_bits: u8, address: W) -> usize {
    let [low, high] = address.words();
    let first = if W::BITS == 32 { low } else { high };
    first.checked_shr(32 - u32::from(direct_bits)).unwrap_or(0) as usize
}

fn lookup_level<W: LevelKey>(
    table: &VariantTable,
    words: &VariantWords,
    level: &VariantLevel,
    key: W,
) -> Option<u32> {
    let shape = &table.shape;
    let hash = key.hash(shape.filter_hash);
    if !words.passes(&level.filter, shape.filter_hash, hash) {
        return None;
    }
    let head = words.get(shape.bucket(level, key, hash));
    next_hop(table, words, head, key.words())
}

/// The next hop of the key with these words, searched for in the list that begins with the entry `head`.
#[inline]
pub(super) fn next_hop(table: &VariantTable, words: &VariantWords, head: u32, key: [u32; 2]) -> Option<u32> {
    let number = words.find(&table.shape, head, key);
    (number != 0).then(|| words.get(table.shape.entry(number) + 2) & HOP_MASK)
}
