//! The stride array: Algorithm 3, and the number of levels. The level over bits k..l of the key has a node of 2^(l-k) units
//! for each inner node of the uni-bit trie at depth k, which [`Census`] counts. Algorithm 3 minimizes the array width (units
//! of the widest level) first, then the memory transactions, the sum over the levels of ⌈units/T⌉ with T units each. The
//! paper's recurrence keeps, for s levels and l bits, only the fewest transactions among the narrowest arrays, although a
//! wider beginning within the final width may need fewer. So the recurrence runs twice here: for the width, then for the
//! transactions among all arrays of that width.
//!
//! The strides cover all bits, so that a route of any length is an ordinary update. A depth without inner nodes counts as
//! one node, which keeps unused strides short.

use super::code::{LEVEL_UNITS_MAX, STRIDE_MAX};
use std::ops::RangeInclusive;

/// Bytes of a table that stay in the L2 cache while batches stream through it: about half of an H200's 50 MB.
pub const L2_BYTES: u64 = 25 << 20;

/// Cost of a gather from device memory, in gathers from the L2 cache.
const MISS_COST: f64 = 4.0;

const DEPTHS: usize = 65;

/// Node and route counts of a table's uni-bit trie by depth: the input of Algorithm 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    bits: u8,
    nodes: [u64; DEPTHS],
    routes: [u64; DEPTHS],
}

impl Census {
    /// Counts inner nodes by depth. `prefixes`, sorted, are (left-aligned key, length); `bits` is the greatest length.
    #[must_use]
    pub fn new(bits: u8, prefixes: impl IntoIterator<Item = (u64, u8)>) -> Self {
        // A route adds the depths from `first` to below its length: it shares as many nodes with its predecessor as bits, and
        // nodes shared with earlier routes are on the predecessor's path, too.
        let mut starts = [0_i64; DEPTHS + 1];
        let mut routes = [0; DEPTHS];
        let (mut before, mut reached) = (0_u64, -1_i64);
        for (key, len) in prefixes {
            let shared = i64::from((key ^ before).leading_zeros());
            let first = 1 + reached.min(shared);
            let end = i64::from(len);
            if first < end {
                starts[index(first)] += 1;
                starts[index(end)] -= 1;
            }
            reached = (first - 1).max(end - 1);
            before = key;
            routes[usize::from(len)] += 1;
        }
        let mut nodes = [0; DEPTHS];
        let mut open = 0;
        for (node, start) in nodes.iter_mut().zip(starts) {
            open += start;
            *node = open.unsigned_abs();
        }
        Self { bits, nodes, routes }
    }

    /// Inner nodes at `depth` (the paper's NodesInLevel): prefixes of that length with a longer route below.
    #[must_use]
    pub fn nodes(&self, depth: u8) -> u64 {
        self.nodes[usize::from(depth)]
    }

    /// Length of a key.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Units of a level from depth `from` to depth `to`.
    #[must_use]
    pub fn units(&self, from: u8, to: u8) -> u64 {
        let stride = u32::from(to - from);
        self.nodes(from)
            .max(1)
            .checked_shl(stride)
            .filter(|units| units >> stride == self.nodes(from).max(1))
            .unwrap_or(u64::MAX)
    }

    /// Average steps of a lookup when all routes are equally likely.
    #[must_use]
    pub fn steps(&self, strides: &[u8]) -> f64 {
        let (mut sum, mut routes, mut depth) = (0_u64, 0_u64, 0);
        for (level, stride) in (1..).zip(strides) {
            let end = depth + usize::from(*stride);
            let first = if depth == 0 { 0 } else { depth + 1 };
            let ends_here: u64 = self.routes[first..=end].iter().sum();
            (sum, routes, depth) = (sum + level * ends_here, routes + ends_here, end);
        }
        if routes == 0 { 1.0 } else { ratio(sum, routes) }
    }
}

/// Depths are -1..=64 by construction.
fn index(depth: i64) -> usize {
    usize::try_from(depth).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "counts of units and routes are far below 2^52")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

/// A stride array with the quantities that Algorithm 3 minimizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StridePlan {
    /// Stride of each level, bits.
    pub strides: Vec<u8>,
    /// Units of the widest level.
    pub width: u64,
    /// Memory transactions to read all levels once.
    pub transactions: u64,
    /// Units of all levels.
    pub units: u64,
}

impl StridePlan {
    /// Computes width, transactions and units of a stride array.
    #[must_use]
    pub fn rate(census: &Census, strides: Vec<u8>, transaction_units: u64) -> Self {
        let (mut width, mut transactions, mut units, mut depth) = (0, 0_u64, 0_u64, 0);
        for stride in &strides {
            let level = census.units(depth, depth + stride);
            width = level.max(width);
            transactions = transactions.saturating_add(level.div_ceil(transaction_units));
            units = units.saturating_add(level);
            depth += stride;
        }
        Self { strides, width, transactions, units }
    }

    /// Algorithm 3 for `levels` levels: the smallest array width, then the fewest transactions of `transaction_units` units.
    /// `levels` is 1..=bits. Strides above [`STRIDE_MAX`] are excluded, unless the whole key is that short.
    #[must_use]
    pub fn of_levels(census: &Census, levels: u8, transaction_units: u64) -> Self {
        let width = Recurrence::new(census, levels, |size| size, u64::max).best(levels);
        let within = |size: u64| if size > width { u64::MAX } else { size.div_ceil(transaction_units) };
        let strides = Recurrence::new(census, levels, within, u64::saturating_add).backtrack(levels);
        Self::rate(census, strides, transaction_units)
    }

    /// The plan with the lowest expected cost of a lookup among `levels`; `bytes` gives a plan's memory, `None` beyond the limit.
    ///
    /// Fewer levels mean fewer steps, more levels a smaller table, and a step costs several times more when it misses the L2
    /// cache. So the cost is the expected number of steps, all routes being equally likely, with L2 misses by the share of the
    /// table beyond [`L2_BYTES`]. The paper finds six levels best on its GPU (figure 11), twenty for IPv6 (figure 15).
    #[must_use]
    pub fn choose(
        census: &Census,
        levels: RangeInclusive<u8>,
        transaction_units: u64,
        bytes: impl Fn(&Self) -> Option<u64>,
    ) -> Self {
        let rating = |plan: &Self| {
            let Some(bytes) = bytes(plan).filter(|_| plan.width <= LEVEL_UNITS_MAX) else {
                // The caller refuses a plan that does not fit: prefer the smallest.
                return 1e9 + ratio(plan.units, 1);
            };
            cost(census.steps(&plan.strides), bytes)
        };
        let first = Self::of_levels(census, *levels.start(), transaction_units);
        let mut best = (rating(&first), first);
        for levels in *levels.start() + 1..=*levels.end() {
            let plan = Self::of_levels(census, levels, transaction_units);
            let rating = rating(&plan);
            if rating < best.0 {
                best = (rating, plan);
            }
        }
        best.1
    }
}

/// Expected cost of `steps` steps in a table of `bytes`, in gathers from the L2 cache.
fn cost(steps: f64, bytes: u64) -> f64 {
    let missed = if bytes > L2_BYTES { 1.0 - ratio(L2_BYTES, bytes) } else { 0.0 };
    steps * (1.0 + missed * (MISS_COST - 1.0))
}

/// The recurrence of Algorithm 3 for one goal: the best cover of the first l bits by s levels.
struct Recurrence {
    /// By levels, then bits: the value, and the first bit of the last level.
    table: Vec<[(u64, u8); DEPTHS]>,
    bits: u8,
}

impl Recurrence {
    /// `rate` is the cost of a level with that many units, `u64::MAX` to exclude it; `join` adds it to the previous levels.
    fn new(census: &Census, levels: u8, rate: impl Fn(u64) -> u64, join: impl Fn(u64, u64) -> u64) -> Self {
        let bits = census.bits;
        let mut table = vec![[(u64::MAX, 0); DEPTHS]; usize::from(levels) + 1];
        table[0][0].0 = 0;
        for s in 1..=usize::from(levels) {
            for l in 1..=bits {
                let mut best = (u64::MAX, 0);
                // Ties go to the shortest last level: earlier levels read more bits.
                for k in 0..l {
                    let before = table[s - 1][usize::from(k)].0;
                    let level = rate(census.units(k, l));
                    if before == u64::MAX || level == u64::MAX || (l - k > STRIDE_MAX && bits > STRIDE_MAX) {
                        continue;
                    }
                    let value = join(before, level);
                    if value <= best.0 {
                        best = (value, k);
                    }
                }
                table[s][usize::from(l)] = best;
            }
        }
        Self { table, bits }
    }

    fn best(&self, levels: u8) -> u64 {
        self.table[usize::from(levels)][usize::from(self.bits)].0
    }

    fn backtrack(&self, levels: u8) -> Vec<u8> {
        let mut strides = vec![0; usize::from(levels)];
        let mut end = self.bits;
        for (s, stride) in strides.iter_mut().enumerate().rev() {
            let start = self.table[s + 1][usize::from(end)].1;
            *stride = end - start;
            end = start;
        }
        strides
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::build;
    use super::super::code::leaf;
    use super::super::options::Layout;
    use super::super::shape::TrieShape;
    use super::super::trie::TrieEntry;
    use super::*;
    use crate::model::{LoadedTable, LookupModel, transactions};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn census(bits: u8, prefixes: &[(u64, u8)]) -> Census {
        let sorted: BTreeSet<(u64, u8)> = prefixes
            .iter()
            .map(|(value, len)| (value.checked_shl(64 - u32::from(*len)).unwrap_or(0), *len))
            .collect();
        Census::new(bits, sorted)
    }

    fn arrays(bits: u8, levels: u8) -> Vec<Vec<u8>> {
        if levels == 1 {
            return vec![vec![bits]];
        }
        let mut all = Vec::new();
        for first in 1..=bits - (levels - 1) {
            for mut rest in arrays(bits - first, levels - 1) {
                rest.insert(0, first);
                all.push(rest);
            }
        }
        all
    }

    /// Algorithm 3 as printed: (width, transactions).
    fn as_printed(census: &Census, levels: usize, t: u64) -> (u64, u64) {
        let bits = usize::from(census.bits());
        let mut table = vec![vec![(u64::MAX, u64::MAX); bits + 1]; levels + 1];
        table[0][0] = (0, 0);
        for s in 1..=levels {
            for l in 1..=bits {
                for k in 0..l {
                    let (width, transactions) = table[s - 1][k];
                    if width == u64::MAX {
                        continue;
                    }
                    let size = census.units(u8::try_from(k).unwrap(), u8::try_from(l).unwrap());
                    let new = (width.max(size), transactions + size.div_ceil(t));
                    table[s][l] = table[s][l].min(new);
                }
            }
        }
        table[levels][bits]
    }

    /// Routes consistent with the text on figures 1 and 7: five bits, all long routes below 10*.
    const FIGURE_1: [(u64, u8); 7] =
        [(0b0, 1), (0b1, 1), (0b10001, 5), (0b10010, 5), (0b10101, 5), (0b10111, 5), (0b11, 2)];

    fn counted(census: &Census, strides: &[u8]) -> usize {
        let plan = StridePlan::rate(census, strides.to_vec(), 4);
        let shape = TrieShape::fit(census, &plan, Layout::Flat, 0, 1 << 20).unwrap();
        let entries: Vec<_> = (1..)
            .zip(FIGURE_1)
            .map(|(code, (value, len))| TrieEntry { key: value << (64 - len), len, code: leaf(code) })
            .collect();
        let trie = build(shape, &entries).unwrap();
        let shape = trie.shape();
        let mut words = vec![0; usize::try_from(shape.words).unwrap()];
        for (base, level) in shape.bases.iter().zip(&trie.levels) {
            let units = level.used() as usize;
            words[*base as usize..*base as usize + units].copy_from_slice(&level.units[..units]);
        }
        let table = LoadedTable { words, header: shape.header(), kernel: LookupModel::Gamt(Layout::Flat) };
        let steps = table.loads_by_step((0..32).map(|address| address << 59));
        assert_eq!(steps.len(), strides.len(), "every level is used");
        steps.iter().map(|words| transactions(words, 4 * size_of::<u32>())).sum()
    }

    #[test]
    fn figures_1_and_7_have_one_width_and_five_transactions_or_four() {
        let census = census(5, &FIGURE_1);
        assert_eq!([0, 1, 2, 3, 4].map(|depth| census.nodes(depth)), [1, 1, 1, 2, 4]);
        let figure_1 = StridePlan::rate(&census, vec![1, 3, 1], 4);
        assert_eq!((figure_1.width, figure_1.transactions), (8, 5));
        let figure_7 = StridePlan::of_levels(&census, 3, 4);
        assert_eq!((figure_7.width, figure_7.transactions), (8, 4));
        assert_eq!((counted(&census, &[1, 3, 1]), counted(&census, &figure_7.strides)), (5, 4));
        let brute = arrays(5, 3).into_iter().map(|array| StridePlan::rate(&census, array, 4));
        assert_eq!(brute.map(|plan| (plan.width, plan.transactions)).min(), Some((8, 4)));
    }

    #[test]
    fn every_bit_is_covered_and_an_empty_table_has_short_strides() {
        for (bits, levels) in [(32, 4..=20), (64, 8..=30)] {
            let census = Census::new(bits, []);
            for levels in levels {
                let plan = StridePlan::of_levels(&census, levels, 32);
                assert_eq!(
                    plan.strides.iter().map(|stride| u32::from(*stride)).sum::<u32>(),
                    u32::from(bits)
                );
                assert_eq!(plan.strides.len(), usize::from(levels));
                assert!(plan.strides.iter().all(|stride| (1..=8).contains(stride)), "{:?}", plan.strides);
            }
        }
    }

    #[test]
    fn steps_count_the_level_that_a_route_ends_in() {
        let census = census(32, &[(0, 0), (0x0a, 8), (0x0a01, 16), (0x0a_0101, 24), (0x0a01_0101, 32)]);
        let expected = (1.0 + 1.0 + 1.0 + 2.0 + 3.0) / 5.0;
        assert!((census.steps(&[16, 8, 8]) - expected).abs() < 1e-9);
    }

    #[test]
    fn a_step_more_is_worth_it_only_when_the_table_then_fits_the_cache() {
        assert!(cost(3.0, L2_BYTES) < cost(4.0, L2_BYTES / 2));
        assert!(cost(4.0, L2_BYTES) < cost(3.0, 3 * L2_BYTES));
        assert!(cost(3.0, 4 * L2_BYTES) < cost(4.0, 5 * L2_BYTES));
    }

    #[test]
    fn a_plan_that_fits_is_taken_before_a_faster_one_that_does_not() {
        // Long prefixes in few places: more levels need fewer units.
        let routes: BTreeSet<(u64, u8)> =
            (0..4000_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16 << 16, 48)).collect();
        let census = Census::new(64, routes);
        let free = StridePlan::choose(&census, 8..=30, 32, |plan| Some(plan.units * 4));
        let limit = free.units - 1;
        let tight =
            StridePlan::choose(&census, 8..=30, 32, |plan| Some(plan.units).filter(|units| *units <= limit));
        assert!(tight.units <= limit && tight.strides.len() > free.strides.len(), "{tight:?} {free:?}");
    }

    proptest! {
        #[test]
        fn algorithm_3_finds_what_brute_force_finds(
            bits in 2_u8..=9,
            routes in proptest::collection::vec((any::<u64>(), 0_u8..=9), 0..40),
            levels in 1_u8..=9,
            transaction_units in prop_oneof![Just(1_u64), Just(2), Just(4), Just(8), Just(32)],
        ) {
            let levels = levels.min(bits);
            let routes: Vec<(u64, u8)> = routes.into_iter()
                .map(|(value, len)| { let len = len.min(bits); (value & ((1 << len) - 1), len) })
                .collect();
            let census = census(bits, &routes);
            for depth in 0..bits {
                let inner: BTreeSet<u64> = routes.iter().filter(|(_, len)| *len > depth)
                    .map(|(value, len)| value >> (len - depth)).collect();
                prop_assert_eq!(census.nodes(depth), inner.len() as u64, "depth {}", depth);
            }
            let plan = StridePlan::of_levels(&census, levels, transaction_units);
            let brute = arrays(bits, levels).into_iter()
                .map(|array| StridePlan::rate(&census, array, transaction_units))
                .map(|plan| (plan.width, plan.transactions)).min();
            prop_assert_eq!(Some((plan.width, plan.transactions)), brute);
            let printed = as_printed(&census, usize::from(levels), transaction_units);
            prop_assert_eq!(plan.width, printed.0);
            prop_assert!(plan.transactions <= printed.1);
        }
    }
}
