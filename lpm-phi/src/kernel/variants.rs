//! The lookups of `bloom-naive` and `bloom-baseline`: Algorithm 2 of the paper, level by level from the longest.
//!
//! The scalar form tests each filter bit before the next is computed. The vector form hashes sixteen keys at once, the only step that the
//! paper vectorizes (section 4.3.2), and walks the lists of buckets key by key.

use super::Piece6;
use crate::variants::hash::LevelKey;
use crate::variants::table::{VariantLevel, VariantTable, VariantWords, next_hop};
use fib::{CheckedIsa, NextHopId};

#[inline]
pub(crate) fn lookup_v4(isa: CheckedIsa, table: &VariantTable, keys: &[u32], out: &mut [NextHopId]) {
    assert_eq!(keys.len(), out.len(), "keys and answers must have the same length");
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx512f => unsafe { super::avx512f::variants::lookup_v4(table, keys, out) },
        _ => {
            let words = table.live();
            for (key, answer) in keys.iter().zip(out) {
                *answer = NextHopId::from_answer(lookup(table, words, *key));
            }
        }
    }
}

#[inline]
pub(crate) fn lookup_v6(isa: CheckedIsa, table: &VariantTable, batch: Piece6<'_>) {
    match isa.get() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this CPU has the instruction set of a `CheckedIsa`.
        fib::Isa::Avx512f => unsafe { super::avx512f::variants::lookup_v6(table, batch) },
        _ => {
            let words = table.live();
            for ((hi, lo), answer) in batch.hi.iter().zip(batch.lo).zip(batch.out) {
                *answer = NextHopId::from_answer(
                    lookup_deep(table, words, *hi, *lo).unwrap_or_else(|| lookup(table, words, *hi)),
                );
            }
        }
    }
}

/// The next hop of the longest matching route past /64.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::equations::FilterSize;
    use crate::cpe::expand::expand;
    use crate::variants::hash::HashName;
    use crate::variants::params::{Variant, VariantParams};
    use crate::variants::table::READS;
    use crate::variants::writer::VariantWriter;
    use fib::generate::{TableSpec, table};
    use fib::random::SplitMix64;
    use fib::{EngineOptions, Family, Prefix4};
    use lpm_core::engine::{Budget, FibTable};
    use std::collections::BTreeSet;

    /// Sections 3.2, 4.2 and 6.4: a table is searched exactly if its filter, rebuilt from all entries, has all bits of the key.
    #[test]
    fn a_lookup_asks_two_filters_and_reads_the_direct_array_once() {
        let spec = TableSpec { family: Family::V4, routes: 40_000, seed: 5, next_hops: 9 };
        let mut routes = table::<u32>(&spec).unwrap();
        routes.sort_unstable();
        let entries: BTreeSet<Prefix4> =
            expand(&routes, 21, &[24, 32], 1 << 30).unwrap().into_iter().map(|(prefix, _)| prefix).collect();
        for (filters, fpr) in
            [("paper", "0.1"), ("paper", "0.3"), ("paper", "0.9"), ("exact", "0.1"), ("exact", "0.9")]
        {
            let parameters = [("hash", "h2"), ("filters", filters), ("fpr", fpr)];
            let options = EngineOptions { huge_pages: false, ..EngineOptions::with_parameters(&parameters) };
            let params = VariantParams::from_options(Variant::Baseline, &options).unwrap();
            let plan = VariantWriter::size(&routes, &params, Budget::Ample).unwrap();
            let writer = VariantWriter::build(plan, routes.clone(), &params).unwrap();
            let table = writer.shared();
            let levels = &table.shape.levels;
            assert_eq!(levels.len(), 2);
            let places = |at: usize, address: u32| {
                let key = address.first_bits(levels[at].len);
                levels[at].filter.places(HashName::H2, key.hash(HashName::H2))
            };
            let bits = [0, 1].map(|at: usize| {
                let keys = entries.iter().filter(|prefix| prefix.len() == levels[at].len);
                keys.flat_map(|prefix| places(at, prefix.address())).collect::<BTreeSet<_>>()
            });
            // G1: keys absent from its table, and how many of them passed the filter.
            let (mut absent, mut passed) = (0_u32, 0_u32);
            let mut numbers = SplitMix64(3);
            for _ in 0..200_000 {
                // Within 64.0.0.0/2, so that enough keys match.
                let key = u32::try_from(numbers.u64() >> 34).unwrap() | 1 << 30;
                READS.take();
                lookup(table, table.live(), key);
                let reads = READS.take();
                let direct = reads.iter().filter(|at| **at < levels[0].filter.start).count();
                let asked = |at: usize| {
                    let filter = &levels[at].filter;
                    reads
                        .iter()
                        .filter(|read| (filter.start..filter.start + filter.words()).contains(read))
                        .count()
                };
                let searched =
                    |at: usize| reads.iter().filter(|read| levels[at].bucket_words().contains(read)).count();
                assert!(direct <= 1 && asked(1) >= 1, "{reads:?}");
                for at in (0..2).filter(|at| asked(*at) > 0) {
                    assert!(asked(at) <= levels[at].filter.hashes as usize, "a filter is asked once");
                    let passes = places(at, key).all(|bit| bits[at].contains(&bit));
                    assert_eq!(searched(at), usize::from(passes), "as by the bits of all entries");
                }
                if asked(0) > 0 && !entries.contains(&Prefix4::truncating(key, 24)) {
                    absent += 1;
                    passed += u32::try_from(searched(0)).unwrap();
                }
                let filters = asked(0) + asked(1);
                if searched(0) + searched(1) == 0 {
                    assert_eq!(
                        reads.len() - filters,
                        1,
                        "no match and no false positive: the direct array is left"
                    );
                }
            }
            let filter = &levels[0].filter;
            let size = FilterSize { bits: filter.bits.n.into(), hashes: filter.hashes };
            let wanted = size.rate(entries.iter().filter(|prefix| prefix.len() == 24).count() as u64);
            let rate = f64::from(passed) / f64::from(absent);
            assert!((rate - wanted).abs() < 0.01, "{filters} {fpr}: {rate}, by the equations {wanted}");
        }
    }
}
