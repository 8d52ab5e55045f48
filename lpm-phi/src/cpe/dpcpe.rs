//! DPCPE (section 4.2): chooses the levels to expand to, so that expansion makes as few prefixes as possible.
//!
//! The paper begins with the longest length alone and adds one length at a time, always the cheapest ([`LevelSearch::Greedy`]). The best
//! choice of n levels need not contain the best choice of n - 1: [`LevelSearch::Optimum`] finds it with a dynamic programme over (levels,
//! longest length). With `cost(a, b)`, the prefixes that routes of the lengths `a+1..=b` make when expanded to b:
//!
//! ```text
//! best(1, b) = cost(first-1, b)        best(n, b) = min over a < b of best(n-1, a) + cost(a, b)
//! ```

use super::CpeError;
use super::histogram::LengthHistogram;

/// Lengths to expand to, and the estimated number of prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Ascending; the last is the histogram's longest.
    pub lengths: Vec<u8>,
    /// Prefixes after expansion, ignoring prefix capture; saturates.
    pub estimate: u64,
}

impl Levels {
    fn from_lengths(histogram: &LengthHistogram, lengths: Vec<u8>) -> Self {
        let estimate = u64::try_from(histogram.estimate(&lengths)).unwrap_or(u64::MAX);
        Self { lengths, estimate }
    }

    /// Returns these levels if their estimate is at most `prefixes_max`.
    ///
    /// # Errors
    /// [`CpeError::TooLarge`] for an estimate above `prefixes_max`, as the paper refused 3 levels (table 4).
    pub fn within(self, prefixes_max: u64) -> Result<Self, CpeError> {
        if self.estimate > prefixes_max {
            let (levels, prefixes) = (self.lengths.len(), self.estimate);
            return Err(CpeError::TooLarge { levels, prefixes, limit: prefixes_max });
        }
        Ok(self)
    }
}

/// How levels are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelSearch {
    /// The fewest prefixes of all choices.
    Optimum,
    /// The paper's search: beginning with the longest length, each step adds the length that leaves the fewest prefixes.
    Greedy,
}

/// The choice of each number of levels.
#[derive(Clone, Debug)]
pub struct Dpcpe {
    /// For 1 level, 2 levels, .. up to one level a length.
    choices: Vec<Levels>,
}

impl Dpcpe {
    /// Chooses for `histogram`. The number of steps is at most the number of lengths cubed: a quarter million for IPv6.
    #[must_use]
    pub fn solve(search: LevelSearch, histogram: &LengthHistogram) -> Self {
        let choices = match search {
            LevelSearch::Optimum => optimum(histogram),
            LevelSearch::Greedy => greedy(histogram),
        };
        Self {
            choices: choices.into_iter().map(|lengths| Levels::from_lengths(histogram, lengths)).collect(),
        }
    }

    /// The choice of `levels` levels.
    ///
    /// # Errors
    /// [`CpeError::Levels`] for 0 levels, or for more levels than lengths.
    pub fn levels(&self, levels: usize) -> Result<Levels, CpeError> {
        let choice = levels.checked_sub(1).and_then(|at| self.choices.get(at));
        choice.cloned().ok_or(CpeError::Levels { asked: levels, most: self.choices.len() })
    }
}

fn optimum(histogram: &LengthHistogram) -> Vec<Vec<u8>> {
    let lengths = histogram.lengths();
    let costs = costs(histogram);
    let mut best: Vec<u128> = costs.iter().map(|row| row[0]).collect();
    // `last_but_one[n][b]`: in the best choice of n+1 levels that ends at length index b, the index of the level before the last.
    let mut last_but_one = vec![vec![0; lengths]];
    for levels in 1..lengths {
        let mut next = vec![u128::MAX; lengths];
        let mut from = vec![0; lengths];
        // With `levels` levels before it, the last is at index `levels` or more.
        for to in levels..lengths {
            for before in levels - 1..to {
                let cost = best[before].saturating_add(costs[to][before + 1]);
                if cost < next[to] {
                    (next[to], from[to]) = (cost, before);
                }
            }
        }
        last_but_one.push(from);
        best = next;
    }
    (1..=lengths)
        .map(|levels| {
            let (mut at, mut chosen) = (lengths - 1, Vec::with_capacity(levels));
            for from in last_but_one[..levels].iter().rev() {
                #[expect(clippy::cast_possible_truncation, reason = "an index of at most 256 lengths")]
                chosen.push(histogram.first() + at as u8);
                at = from[at];
            }
            chosen.reverse();
            chosen
        })
        .collect()
}

/// `costs[b][a]`: prefixes that routes with length indices `a..=b` make when expanded to length index b.
fn costs(histogram: &LengthHistogram) -> Vec<Vec<u128>> {
    let last = histogram.last();
    (histogram.first()..=last)
        .map(|to| (histogram.first()..=to).map(|from| histogram.expanded(from, to)).collect())
        .collect()
}

/// One length at a time, until every length is a level. Of equally good lengths the shortest is added.
fn greedy(histogram: &LengthHistogram) -> Vec<Vec<u8>> {
    let next = |chosen: &Vec<u8>| {
        let candidates = (histogram.first()..histogram.last()).filter(|len| !chosen.contains(len));
        let with = |len| {
            let mut lengths = chosen.clone();
            lengths.insert(lengths.partition_point(|level| *level < len), len);
            lengths
        };
        candidates.map(with).min_by_key(|lengths| histogram.estimate(lengths))
    };
    std::iter::successors(Some(vec![histogram.last()]), next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEARCHES: [LevelSearch; 2] = [LevelSearch::Optimum, LevelSearch::Greedy];

    fn brute_force(histogram: &LengthHistogram, levels: usize) -> u128 {
        let others: Vec<u8> = (histogram.first()..histogram.last()).collect();
        let mut best = u128::MAX;
        for set in 0_u32..1 << others.len() {
            if set.count_ones() as usize == levels - 1 {
                let chosen = others.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let mut lengths: Vec<u8> = chosen.map(|(_, len)| *len).collect();
                lengths.push(histogram.last());
                best = best.min(histogram.estimate(&lengths));
            }
        }
        best
    }

    fn histogram(first: u8, counts: &[u64]) -> LengthHistogram {
        let last = first + u8::try_from(counts.len()).unwrap() - 1;
        let mut histogram = LengthHistogram::new(first, last);
        for (len, count) in (first..).zip(counts) {
            histogram.add(len, *count);
        }
        histogram
    }

    proptest! {
        #[test]
        fn the_programme_is_as_good_as_trying_all(
            first in 1_u8..50,
            counts in prop::collection::vec(prop_oneof![Just(0_u64), 0_u64..50, 0_u64..100_000], 1..=10),
        ) {
            let histogram = histogram(first, &counts);
            let [solved, greedy] = SEARCHES.map(|search| Dpcpe::solve(search, &histogram));
            for levels in 1..=counts.len() {
                let found = solved.levels(levels).unwrap();
                prop_assert_eq!(found.lengths.len(), levels);
                prop_assert!(found.lengths.is_sorted_by(|a, b| a < b));
                prop_assert_eq!(*found.lengths.last().unwrap(), histogram.last());
                prop_assert_eq!(u128::from(found.estimate), brute_force(&histogram, levels));
                let greedy = greedy.levels(levels).unwrap();
                prop_assert_eq!(greedy.lengths.len(), levels);
                prop_assert!(greedy.estimate >= found.estimate);
            }
        }

        #[test]
        fn fewer_levels_never_make_fewer_prefixes(counts in prop::collection::vec(0_u64..50_000, 64)) {
            let histogram = histogram(1, &counts);
            for search in SEARCHES {
                let solved = Dpcpe::solve(search, &histogram);
                let mut last = u64::MAX;
                for levels in 1..=12 {
                    let found = solved.levels(levels)?;
                    prop_assert!(found.lengths.contains(&64));
                    prop_assert!(found.estimate <= last, "{} levels make {}", levels, found.estimate);
                    last = found.estimate;
                }
                prop_assert_eq!(solved.levels(64).unwrap().estimate, histogram.total());
            }
        }

        #[test]
        fn each_greedy_choice_holds_the_one_before(counts in prop::collection::vec(0_u64..50_000, 64)) {
            let solved = Dpcpe::solve(LevelSearch::Greedy, &histogram(1, &counts));
            for levels in 1..64 {
                let [fewer, more] = [levels, levels + 1].map(|levels| solved.levels(levels).unwrap().lengths);
                prop_assert!(fewer.iter().all(|len| more.contains(len)), "{:?} in {:?}", fewer, more);
            }
        }
    }

    /// 64 is always a level; each of the other 63 lengths is chosen next if it is the length of all routes.
    #[test]
    fn each_of_the_63_candidates_can_be_the_next_level() {
        for search in SEARCHES {
            let next = (1..=64).map(|len| {
                let mut histogram = LengthHistogram::new(1, 64);
                histogram.add(len, 9);
                Dpcpe::solve(search, &histogram).levels(2).unwrap().lengths[0]
            });
            let candidates: std::collections::BTreeSet<u8> = next.collect();
            assert_eq!((candidates.len(), candidates.contains(&64)), (63, false));
        }
    }

    #[test]
    fn the_best_of_all_need_not_hold_the_best_of_fewer() {
        let histogram = histogram(1, &[9, 5, 5, 5, 2]);
        let [solved, greedy] = SEARCHES.map(|search| Dpcpe::solve(search, &histogram));
        let [two, three] = [2, 3].map(|levels| solved.levels(levels).unwrap());
        assert_eq!((two.lengths.as_slice(), two.estimate), (&[2, 5][..], 55));
        assert_eq!((three.lengths.as_slice(), three.estimate), (&[1, 3, 5][..], 36));
        let paper = greedy.levels(3).unwrap();
        assert!(paper.lengths.contains(&2) && paper.estimate > 36);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_numbers() {
        let mut histogram = LengthHistogram::new(1, 64);
        for (len, routes) in [(32, 10_000), (40, 1000), (44, 2000), (48, 20_000), (64, 10)] {
            histogram.add(len, routes);
        }
        let solved = Dpcpe::solve(LevelSearch::Optimum, &histogram);
        let five = solved.levels(5).unwrap();
        assert_eq!((five.lengths.as_slice(), five.estimate), (&[32, 40, 44, 48, 64][..], 33_010));
        assert!(five.within(33_010).is_ok());
        let three = solved.levels(3).unwrap();
        let prefixes = three.estimate;
        let refused = three.within(100_000);
        assert_eq!(refused, Err(CpeError::TooLarge { levels: 3, prefixes, limit: 100_000 }));
        assert_eq!(solved.levels(0), Err(CpeError::Levels { asked: 0, most: 64 }));
        assert_eq!(solved.levels(65), Err(CpeError::Levels { asked: 65, most: 64 }));
    }

    #[test]
    fn ipv4_after_a_direct_array_of_20_bits() {
        // The shape of AS65000: nearly all routes longer than /20 are /24s, few are longer.
        let histogram =
            histogram(21, &[30_000, 60_000, 60_000, 366_699, 500, 300, 200, 150, 150, 150, 75, 100]);
        let solved = Dpcpe::solve(LevelSearch::Optimum, &histogram);
        assert_eq!(solved.levels(2).unwrap().lengths, [24, 32], "the paper's G1 and G2");
    }
}
