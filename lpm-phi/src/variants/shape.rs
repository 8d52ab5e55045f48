//! Plans the tables of `bloom-naive` and `bloom-baseline`: levels, filters by the target rate, buckets, entries.
//!
//! Filters and tables are sized for their level's entries (asymmetric filters, section 3.2), with room for an eighth more.

use super::divisor::Divisor;
use super::hash::LevelKey;
use super::params::{BucketCount, FilterSizing, LevelChoice, Variant, VariantParams};
use super::table::{ENTRY_BYTES, ENTRY_WORDS, Filter, VariantLevel, VariantShape};
use crate::bloom::equations::FilterSize;
use crate::cpe::CpeError;
use crate::cpe::dpcpe::Dpcpe;
use crate::cpe::expand::expanded_entries;
use crate::cpe::histogram::LengthHistogram;
use crate::cpe::model::{ExpandedLayout, HostModel};
use fib::{EngineError, Key, NextHopId, Prefix, Prefix6};
use lpm_core::engine::Budget;
use std::ops::RangeInclusive;

/// Every level has room for at least this many entries.
const ROOM_MIN: u64 = FilterSize::ENTRIES_MIN;
/// A gather's index is a signed 32-bit number of words.
const WORDS_MAX: u64 = (1 << 31) - 1;
/// Bits of the baseline's direct lookup array (section 3.2).
const DIRECT_BITS: u8 = 20;

pub(crate) trait TableKey: Key {
    /// The key of a level: the address, or its first 64 bits.
    type Word: LevelKey;
    fn word(self) -> Self::Word;
    /// The prefix if it is longer than /64.
    fn as_deep(prefix: Prefix<Self>) -> Option<Prefix6>;
    fn baseline(
        routes: &[(Prefix<Self>, NextHopId)],
        params: &VariantParams,
    ) -> Result<(u8, Vec<u8>), EngineError>;
}

impl TableKey for u32 {
    type Word = Self;

    fn word(self) -> Self {
        self
    }

    fn as_deep(_: Prefix<Self>) -> Option<Prefix6> {
        None
    }

    fn baseline(_: &[(Prefix<Self>, NextHopId)], _: &VariantParams) -> Result<(u8, Vec<u8>), EngineError> {
        Ok((DIRECT_BITS, vec![24, 32]))
    }
}

impl TableKey for u128 {
    type Word = u64;

    fn word(self) -> u64 {
        (self >> 64) as u64
    }

    fn as_deep(prefix: Prefix<Self>) -> Option<Prefix6> {
        (prefix.len() > 64).then_some(prefix)
    }

    fn baseline(
        routes: &[(Prefix<Self>, NextHopId)],
        params: &VariantParams,
    ) -> Result<(u8, Vec<u8>), EngineError> {
        let histogram = LengthHistogram::of_prefixes(1, 64, routes.iter().map(|(prefix, _)| *prefix));
        let levels = match params.levels {
            LevelChoice::Fixed(levels) => Dpcpe::solve(params.dpcpe, &histogram).levels(levels),
            LevelChoice::Auto => {
                let (fpr, table_bytes_max) = (params.fpr, params.common.table_bytes_max);
                let layout = ExpandedLayout { fpr, entry_bytes: ENTRY_BYTES, table_bytes_max };
                HostModel::detect().choose(params.dpcpe, &histogram, &layout)
            }
        };
        Ok((0, levels.map_err(full)?.lengths))
    }
}

const fn full(error: CpeError) -> EngineError {
    match error {
        CpeError::Levels { asked, most } => {
            EngineError::Full { what: "levels of expansion", used: asked as u64, limit: most as u64 }
        }
        CpeError::TooLarge { prefixes, limit, .. } => {
            EngineError::Full { what: "expanded prefixes", used: prefixes, limit }
        }
    }
}

#[derive(Debug)]
pub(crate) struct VariantPlan {
    pub(super) shape: VariantShape,
    /// The lengths of the direct entries, then of each level, then of routes past /64.
    pub(super) groups: Vec<RangeInclusive<u8>>,
    /// Entries of each level, then the routes past /64, with room to grow.
    pub(super) rooms: Vec<u64>,
}

impl VariantPlan {
    /// `routes` must be sorted. [`EngineError::Full`] for more words than a gather can index, and for impossible levels.
    pub(super) fn for_routes<K: TableKey>(
        routes: &[(Prefix<K>, NextHopId)],
        params: &VariantParams,
        budget: Budget,
    ) -> Result<Self, EngineError> {
        let last = K::Word::BITS;
        let (direct_bits, lengths) = match params.variant {
            Variant::Naive => (0, (1..=last).collect()),
            Variant::Baseline => K::baseline(routes, params)?,
        };
        let mut groups = vec![0..=direct_bits];
        groups.extend(crate::cpe::expand::groups(direct_bits + 1, &lengths));
        let mut entries: Vec<u64> =
            groups[1..].iter().map(|lengths| expanded_entries(routes, lengths)).collect();
        if K::BITS > last {
            groups.push(last + 1..=K::BITS);
            entries.push(routes.iter().filter(|(prefix, _)| prefix.len() > last).count() as u64);
        }
        let rooms: Vec<u64> = entries.iter().map(|entries| room(*entries, budget)).collect();
        let shape = lay_out::<K>(direct_bits, &lengths, (&entries, &rooms), params)?;
        Ok(Self { shape, groups, rooms })
    }
}

fn room(entries: u64, budget: Budget) -> u64 {
    let reserve = if budget.has_reserve() { entries / 8 } else { 0 };
    entries.saturating_add(reserve).saturating_add(ROOM_MIN)
}

#[expect(clippy::cast_possible_truncation, reason = "words were bounded: fewer than 2^31")]
fn lay_out<K: TableKey>(
    direct_bits: u8,
    lengths: &[u8],
    (entries, rooms): (&[u64], &[u64]),
    params: &VariantParams,
) -> Result<VariantShape, EngineError> {
    let bits = |entries: u64| match params.filters {
        FilterSizing::Exact => FilterSize::for_rate(entries.max(ROOM_MIN), params.fpr),
        FilterSizing::Paper => FilterSize::by_equations(entries.max(ROOM_MIN), params.fpr),
    };
    let filters: Vec<FilterSize> = entries.iter().map(|entries| bits(*entries)).collect();
    let rooms = &rooms[..lengths.len()];
    let listed = rooms.iter().fold(1_u64, |sum, room| sum.saturating_add(*room));
    let bucket_count = |room: &u64| match params.buckets {
        BucketCount::Odd => room | 1,
        BucketCount::Even => 4 * ((room / 4) | 1),
    };
    let buckets = rooms.iter().fold(0, |sum: u64, room| sum.saturating_add(bucket_count(room)));
    let filter_words: u64 = filters.iter().map(|size| size.bits.div_ceil(32)).fold(0, u64::saturating_add);
    let words = listed
        .saturating_mul(ENTRY_WORDS as u64)
        .saturating_add(buckets)
        .saturating_add(filter_words)
        .saturating_add(1 << direct_bits);
    if words > WORDS_MAX || filters.iter().any(|size| size.bits > u64::from(u32::MAX)) {
        let (what, used) = ("bytes of one family's table", words.saturating_mul(4));
        return Err(EngineError::Full { what, used, limit: WORDS_MAX * 4 });
    }
    let mut at = 1 << direct_bits;
    let mut placed = Vec::with_capacity(filters.len());
    for size in &filters {
        let filter = Filter { start: at, bits: Divisor::new(size.bits as u32), hashes: size.hashes };
        at += filter.words();
        placed.push(filter);
    }
    let mut levels = Vec::with_capacity(lengths.len());
    for ((len, filter), room) in lengths.iter().zip(&placed).zip(rooms) {
        let bucket_count = Divisor::new(bucket_count(room) as u32);
        levels.push(VariantLevel { len: *len, filter: *filter, buckets: at, bucket_count });
        at += bucket_count.n as usize;
    }
    let wide = |name: super::hash::HashName| if K::Word::BITS == 64 { name.for_64_bits() } else { name };
    Ok(VariantShape {
        direct_bits,
        levels,
        deep: placed.get(lengths.len()).copied(),
        entries: at,
        words: at + listed as usize * ENTRY_WORDS,
        filter_hash: wide(params.filter_hash),
        table_hash: wide(params.table_hash),
    })
}

#[cfg(test)]
mod tests {
    use super::super::hash::HashName;
    use super::*;
    use fib::EngineOptions;
    use fib::generate::{TableSpec, table};
    use std::collections::BTreeSet;

    fn planned<K: TableKey>(
        routes: &[(Prefix<K>, NextHopId)],
        variant: Variant,
        parameters: &[(&str, &str)],
    ) -> VariantPlan {
        let params =
            VariantParams::from_options(variant, &EngineOptions::with_parameters(parameters)).unwrap();
        VariantPlan::for_routes(routes, &params, Budget::Ample).unwrap()
    }

    fn generated<K: Key>() -> Vec<(Prefix<K>, NextHopId)> {
        let mut routes =
            table(&TableSpec { family: K::FAMILY, routes: 20_000, seed: 3, next_hops: 9 }).unwrap();
        routes.sort_unstable();
        routes
    }

    /// Asymmetric filters: each is sized for its level's entries, so sizes differ while the rate is the same.
    #[test]
    fn each_level_has_a_filter_for_what_it_holds() {
        for variant in [Variant::Naive, Variant::Baseline] {
            for fpr in ["0.01", "0.3", "0.9"] {
                for filters in ["exact", "paper"] {
                    check(&generated::<u32>(), variant, fpr, filters);
                    check(&generated::<u128>(), variant, fpr, filters);
                }
            }
        }
    }

    fn check<K: TableKey>(routes: &[(Prefix<K>, NextHopId)], variant: Variant, fpr: &str, filters: &str) {
        let VariantPlan { shape, groups, .. } =
            planned(routes, variant, &[("fpr", fpr), ("filters", filters)]);
        let fpr = fpr.parse().unwrap();
        assert_eq!(shape.levels.last().map(|level| u32::from(level.len)), Some(K::Word::BITS.into()));
        let mut sizes = Vec::new();
        for (level, lengths) in shape.levels.iter().zip(&groups[1..]) {
            let entries = expanded_entries(routes, lengths).max(ROOM_MIN);
            let size = match filters {
                "exact" => FilterSize::for_rate(entries, fpr),
                _ => FilterSize::by_equations(entries, fpr),
            };
            assert_eq!((u64::from(level.filter.bits.n), level.filter.hashes), (size.bits, size.hashes));
            assert!(filters == "paper" || (size.rate(entries) / fpr - 1.0).abs() < 0.1, "{lengths:?}");
            sizes.push(size.bits);
        }
        sizes.sort_unstable();
        assert!(sizes.first() < sizes.last(), "{sizes:?}");
    }

    #[test]
    fn ipv4_has_a_direct_array_of_20_bits_and_two_groups() {
        let VariantPlan { shape, groups, .. } = planned(&generated::<u32>(), Variant::Baseline, &[]);
        assert_eq!((shape.direct_bits, groups), (20, vec![0..=20, 21..=24, 25..=32]));
        assert_eq!(shape.levels.iter().map(|level| level.len).collect::<Vec<_>>(), [24, 32]);
        assert_eq!(shape.levels[0].filter.start, 1_048_576, "direct entries come first");
    }

    #[test]
    fn as65000_has_the_filters_of_table_5() {
        let hop = NextHopId::new(1).unwrap();
        let g1 = (0..971_555_u32).map(|at| (Prefix::truncating(at << 8, 24), hop));
        let g2 = (0..113_397_u32).map(|at| (Prefix::truncating(0xf000_0000 | at, 32), hop));
        let routes: Vec<_> = g1.chain(g2).collect();
        let m = [
            [9_312_412, 4_656_206, 2_434_631, 1_032_974, 213_057],
            [1_086_917, 543_459, 284_163, 120_566, 24_868],
        ];
        for (at, (fpr, k)) in
            [("0.01", 7), ("0.1", 4), ("0.3", 2), ("0.6", 1), ("0.9", 1)].into_iter().enumerate()
        {
            let shape = planned(&routes, Variant::Baseline, &[("fpr", fpr), ("filters", "paper")]).shape;
            let made = [0, 1].map(|group: usize| shape.levels[group].filter);
            assert_eq!(
                made.map(|filter| (filter.bits.n, filter.hashes)),
                [(m[0][at], k), (m[1][at], k)],
                "{fpr}"
            );
        }
    }

    /// The share of G2's buckets that Knuth's hash reaches for keys divisible by `step`, in percent.
    fn reached(buckets: &str, step: u32) -> f64 {
        let VariantPlan { shape, .. } =
            planned::<u32>(&[], Variant::Baseline, &[("hash", "knuth"), ("buckets", buckets)]);
        let level = &shape.levels[1];
        let keys = (0..400_000).map(|at: u32| at * step);
        let reached: BTreeSet<_> =
            keys.map(|key| shape.bucket(level, key, key.hash(HashName::Knuth))).collect();
        assert!(reached.iter().all(|at| level.bucket_words().contains(at)));
        100.0 * reached.len() as f64 / f64::from(level.bucket_count.n)
    }

    #[test]
    fn knuth_leaves_half_of_an_even_number_of_buckets_unused() {
        assert_eq!(reached("even", 1), 100.0);
        assert_eq!(reached("even", 2), 50.0);
        assert_eq!(reached("odd", 2), 100.0);
    }

    #[test]
    fn knuth_leaves_three_quarters_of_an_even_number_of_buckets_unused() {
        assert_eq!(reached("even", 4), 25.0);
        assert_eq!(reached("odd", 4), 100.0);
    }
}
