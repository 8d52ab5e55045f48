//! Prefix expansion, and the exact number of prefixes it makes.
//!
//! *Prefix capture*: an expanded prefix that a longer route has made already is not made twice. The estimate of section 4.2 ignores this.

use super::CpeError;
use fib::{Key, NextHopId, Prefix};
use rustc_hash::FxHashMap;
use std::ops::RangeInclusive;

/// The range of lengths that is expanded to each of `levels`; the first range begins at `first`.
#[must_use]
pub fn groups(first: u8, levels: &[u8]) -> Vec<RangeInclusive<u8>> {
    let mut from = first;
    let mut groups = Vec::with_capacity(levels.len());
    for level in levels {
        groups.push(from..=*level);
        from = level.saturating_add(1);
    }
    groups
}

/// The number of prefixes that `routes`, which must be sorted, make at each of `levels`, with prefix capture; saturates.
#[must_use]
pub fn actual<K: Key>(routes: &[(Prefix<K>, NextHopId)], first: u8, levels: &[u8]) -> Vec<u64> {
    groups(first, levels).iter().map(|lengths| expanded_entries(routes, lengths)).collect()
}

/// The routes after expansion to `levels`, sorted. Routes shorter than `first` or longer than the last level stay unchanged.
///
/// # Errors
/// [`CpeError::TooLarge`] if the levels would hold more than `prefixes_max`; nothing is expanded then.
pub fn expand<K: Key>(
    routes: &[(Prefix<K>, NextHopId)],
    first: u8,
    levels: &[u8],
    prefixes_max: u64,
) -> Result<Vec<(Prefix<K>, NextHopId)>, CpeError> {
    let mut sorted = routes.to_vec();
    sorted.sort_unstable();
    let prefixes = actual(&sorted, first, levels).into_iter().fold(0, u64::saturating_add);
    if prefixes > prefixes_max {
        return Err(CpeError::TooLarge { levels: levels.len(), prefixes, limit: prefixes_max });
    }
    // Longest first: a shorter route does not replace the prefixes of a longer one.
    sorted.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
    let mut made: FxHashMap<Prefix<K>, NextHopId> = FxHashMap::default();
    for (prefix, next_hop) in sorted {
        let level = levels.iter().copied().find(|level| *level >= prefix.len());
        let level = level.filter(|_| prefix.len() >= first).unwrap_or(prefix.len());
        for entry in entries(prefix, level) {
            made.entry(entry).or_insert(next_hop);
        }
    }
    let mut made: Vec<_> = made.into_iter().collect();
    made.sort_unstable();
    Ok(made)
}

/// The prefixes of length `to` that `prefix` covers. `to` must not be shorter than `prefix`.
pub(crate) fn entries<K: Key>(prefix: Prefix<K>, to: u8) -> impl Iterator<Item = Prefix<K>> {
    let step = 1_u128.checked_shl(128 - u32::from(to)).unwrap_or(0);
    let count = 1_u128.checked_shl(u32::from(to - prefix.len())).unwrap_or(u128::MAX);
    let first = prefix.address().to_high_bits();
    (0..count).map(move |at| Prefix::truncating(K::from_high_bits(first.wrapping_add(at * step)), to))
}

/// Distinct entries at the group's longest length; prefix capture is counted. `routes` must be sorted by address, then length.
pub(crate) fn expanded_entries<K: Key>(
    routes: &[(Prefix<K>, NextHopId)],
    lengths: &RangeInclusive<u8>,
) -> u64 {
    let mut entries = 0_u64;
    let mut widest: Option<Prefix<K>> = None;
    for (prefix, _) in routes.iter().filter(|(prefix, _)| lengths.contains(&prefix.len())) {
        // Prefixes nest or are disjoint: one inside the last widest one adds nothing.
        if widest.is_none_or(|widest| !widest.covers(*prefix)) {
            entries = entries.saturating_add(expansion(*prefix, lengths));
            widest = Some(*prefix);
        }
    }
    entries
}

pub(crate) fn expansion<K: Key>(prefix: Prefix<K>, lengths: &RangeInclusive<u8>) -> u64 {
    1_u64.checked_shl(u32::from(lengths.end() - prefix.len())).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::dpcpe::{Dpcpe, LevelSearch};
    use super::super::histogram::LengthHistogram;
    use super::*;
    use fib::generate::{TableSpec, table};
    use fib::oracle::Oracle;
    use fib::{Prefix4, Prefix6};

    fn generated<K: Key>(routes: usize) -> Vec<(Prefix<K>, NextHopId)> {
        table(&TableSpec { family: K::FAMILY, routes, seed: 7, next_hops: 50 }).unwrap()
    }

    fn expands_right<K: Key>(routes: &[(Prefix<K>, NextHopId)], first: u8, levels: &[u8]) {
        let last = *levels.last().unwrap();
        let counted: u64 = actual(routes, first, levels).iter().sum();
        let made = expand(routes, first, levels, counted).unwrap();
        let within: Vec<_> = made.iter().filter(|(p, _)| (first..=last).contains(&p.len())).collect();
        assert_eq!(within.len() as u64, counted);
        assert!(within.iter().all(|(prefix, _)| levels.contains(&prefix.len())));
        let refused = expand(routes, first, levels, counted - 1);
        assert_eq!(
            refused,
            Err(CpeError::TooLarge { levels: levels.len(), prefixes: counted, limit: counted - 1 })
        );
        let histogram = LengthHistogram::of_prefixes(first, last, routes.iter().map(|(prefix, _)| *prefix));
        assert!(u128::from(counted) <= histogram.estimate(levels), "capture only removes prefixes");
        let (before, after): (Oracle<K>, Oracle<K>) =
            (routes.iter().copied().collect(), made.iter().copied().collect());
        for (prefix, _) in routes.iter().step_by(3) {
            for key in [prefix.address(), prefix.last_address()] {
                assert_eq!(before.lookup(key), after.lookup(key));
            }
        }
    }

    #[test]
    fn expanded_tables_answer_as_before() {
        expands_right(&generated::<u32>(5000), 21, &[24, 32]);
        expands_right(&generated::<u32>(500), 1, &[10, 16, 20, 22, 24, 32]);
        let v6 = generated::<u128>(3000);
        let histogram = LengthHistogram::of_prefixes(1, 64, v6.iter().map(|(prefix, _)| *prefix));
        for levels in [6, 8, 64] {
            expands_right(
                &v6,
                1,
                &Dpcpe::solve(LevelSearch::Optimum, &histogram).levels(levels).unwrap().lengths,
            );
        }
    }

    #[test]
    fn captured_prefixes_are_made_once_and_keep_their_next_hop() {
        let id = |n| NextHopId::new(n).unwrap();
        let routes = [
            (Prefix4::truncating(0x0a00_0000, 22), id(1)),
            (Prefix4::truncating(0x0a00_0100, 24), id(2)),
            (Prefix4::truncating(0x0a00_0200, 23), id(3)),
        ];
        assert_eq!(actual(&routes, 21, &[24, 32]), [4, 0]);
        let histogram = LengthHistogram::of_prefixes(21, 32, routes.map(|(prefix, _)| prefix));
        assert_eq!(histogram.estimate(&[24, 32]), 4 + 2 + 1);
        let made = expand(&routes, 21, &[24, 32], 4).unwrap();
        assert_eq!(made.iter().map(|(_, id)| id.get()).collect::<Vec<_>>(), [1, 2, 3, 3]);
    }

    #[test]
    fn expansion_counts_captured_prefixes_once() {
        let group = 21..=24;
        let prefixes = [(0, 22), (0, 24), (0x100, 24), (0x400, 24), (0x800, 21), (0x8000_0000, 8)];
        let id = NextHopId::new(1).unwrap();
        let table = prefixes.map(|(address, len)| (Prefix4::truncating(address, len), id));
        assert_eq!(expanded_entries(&table, &group), 4 + 1 + 8);
    }

    #[test]
    fn actual_numbers_fall_with_the_levels_too() {
        let mut tables = vec![("generated", generated::<u128>(30_000))];
        tables.extend(real_v6().map(|real| ("real", real)));
        for (name, routes) in tables {
            let histogram = LengthHistogram::of_prefixes(1, 64, routes.iter().map(|(prefix, _)| *prefix));
            let solved = Dpcpe::solve(LevelSearch::Optimum, &histogram);
            let mut fewer = u64::MAX;
            for levels in 1..=12 {
                let choice = solved.levels(levels).unwrap();
                assert!(choice.lengths.contains(&64));
                let made = actual(&routes, 1, &choice.lengths).into_iter().fold(0, u64::saturating_add);
                assert!(made <= choice.estimate && made <= fewer, "{name}: {levels} levels make {made}");
                fewer = made;
            }
        }
    }

    fn real_v6() -> Option<Vec<(Prefix6, NextHopId)>> {
        let files = fib::testing::data(["v6-202401.txt.xz"])?;
        Some(fib::testing::load(&files).v6.sorted())
    }
}
