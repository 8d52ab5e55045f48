//! The number of routes of each length: `L = {l1, l2, ..}` of section 4.2.

use fib::{Key, Prefix};

/// Routes by length, for the lengths to expand: `first..=last`. The default route, the direct lookup array and IPv6 past /64 are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthHistogram {
    first: u8,
    counts: Vec<u64>,
}

impl LengthHistogram {
    /// An empty histogram of the lengths `first..=last`; `first` above `last` counts as `last`.
    #[must_use]
    pub fn new(first: u8, last: u8) -> Self {
        let first = first.min(last);
        Self { first, counts: vec![0; usize::from(last - first) + 1] }
    }

    /// Counts the `prefixes` with lengths within `first..=last`.
    #[must_use]
    pub fn of_prefixes<K: Key>(first: u8, last: u8, prefixes: impl IntoIterator<Item = Prefix<K>>) -> Self {
        let mut histogram = Self::new(first, last);
        for prefix in prefixes {
            histogram.add(prefix.len(), 1);
        }
        histogram
    }

    /// Adds `routes` routes of length `len`; lengths outside the histogram are ignored.
    pub fn add(&mut self, len: u8, routes: u64) {
        let at = len.checked_sub(self.first).map(usize::from);
        if let Some(count) = at.and_then(|at| self.counts.get_mut(at)) {
            *count = count.saturating_add(routes);
        }
    }

    /// The shortest length.
    #[must_use]
    pub const fn first(&self) -> u8 {
        self.first
    }

    /// The longest length, which every choice of levels contains.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 256 lengths")]
    pub const fn last(&self) -> u8 {
        self.first + (self.counts.len() - 1) as u8
    }

    /// The number of lengths, which is also the largest number of levels.
    #[must_use]
    pub const fn lengths(&self) -> usize {
        self.counts.len()
    }

    /// The number of routes of length `len`.
    #[must_use]
    pub fn count(&self, len: u8) -> u64 {
        len.checked_sub(self.first).and_then(|at| self.counts.get(usize::from(at))).copied().unwrap_or(0)
    }

    /// The number of routes of all lengths.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Prefixes that routes of `from..=to` make when expanded to `to`: the sum of `2^(to-i) * l_i` (section 4.2).
    /// Prefix capture is ignored, so this is an upper bound. It saturates.
    #[must_use]
    pub fn expanded(&self, from: u8, to: u8) -> u128 {
        let widened = |len: u8| match (u128::from(self.count(len)), u32::from(to - len)) {
            (0, _) => 0,
            (count, shift) if shift > count.leading_zeros() => u128::MAX,
            (count, shift) => count << shift,
        };
        (from..=to).map(widened).fold(0, u128::saturating_add)
    }

    /// The cost function `f` of section 4.2 for `levels`, which must ascend and end with the longest length.
    #[must_use]
    pub fn estimate(&self, levels: &[u8]) -> u128 {
        let mut from = self.first;
        let mut sum = 0_u128;
        for level in levels {
            sum = sum.saturating_add(self.expanded(from, *level));
            from = level.saturating_add(1);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Prefix6;

    #[test]
    fn lengths_outside_do_not_count() {
        let prefixes = [0, 1, 32, 48, 48, 64, 65, 128].map(|len| Prefix6::truncating(1 << 100, len));
        let histogram = LengthHistogram::of_prefixes(1, 64, prefixes);
        assert_eq!((histogram.first(), histogram.last(), histogram.total()), (1, 64, 5));
        assert_eq!([0, 1, 48, 65].map(|len| histogram.count(len)), [0, 1, 2, 0]);
    }

    #[test]
    fn expansions_beyond_128_bits_saturate() {
        let mut histogram = LengthHistogram::new(0, 128);
        assert_eq!(histogram.expanded(0, 128), 0, "no routes, however far they would be expanded");
        histogram.add(1, 1);
        assert_eq!(histogram.expanded(0, 128), 1 << 127);
        histogram.add(1, 1);
        assert_eq!(histogram.expanded(0, 128), u128::MAX, "2 << 127");
        histogram.add(0, 1);
        assert_eq!(histogram.expanded(0, 127), u128::MAX, "2 << 126 and 1 << 127 are 1 << 128");
    }

    #[test]
    fn estimates_are_the_papers_formula() {
        let mut histogram = LengthHistogram::new(1, 64);
        for (len, routes) in [(30, 3), (32, 5), (44, 7), (48, 11)] {
            histogram.add(len, routes);
        }
        assert_eq!(histogram.expanded(1, 32), 3 * 4 + 5);
        assert_eq!(histogram.estimate(&[32, 48, 64]), 12 + 5 + 7 * 16 + 11);
        assert_eq!(histogram.estimate(&[64]), (3 << 34) + (5 << 32) + (7 << 20) + (11 << 16));
    }
}
