//! The number of levels, by modelled lookup time.
//!
//! Fewer levels mean fewer filters to test, but more prefixes, so larger filters and tables in slower memory. The paper finds the best
//! number by experiment and names caches and the false-positive rate as the main influences (section 6.6). The model, for keys that match
//! each route equally often:
//!
//! - levels are searched from the longest to the level that has the answer;
//! - a level without the answer costs a hash, `1 + 1/2 + 1/4 + ..` filter loads (half of a full filter's bits are set), and a table search
//!   (two loads) times the false-positive rate; the level with the answer costs a hash, all k filter loads and a table search;
//! - the time of a load is an average over caches and memory, weighted by the share of all filters, or of all tables, in each. Only the
//!   ranking of the choices matters.

use super::CpeError;
use super::dpcpe::{Dpcpe, LevelSearch, Levels};
use super::histogram::LengthHistogram;
use crate::bloom::equations::FilterSize;
use lpm_core::caches::Caches;

/// The times of loads and hashes on a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostModel {
    /// Caches, smallest first: bytes, and nanoseconds of a load.
    pub caches: [(u64, f64); 3],
    /// Nanoseconds of a load that misses the caches.
    pub memory_ns: f64,
    /// Nanoseconds to hash a key.
    pub hash_ns: f64,
}

impl Default for HostModel {
    /// A server core of 2024: 32 KB, 1 MB, 16 MB (its share), with times of independent loads from tables of 32 KB, 1 MB, 8 MB and 64 MB.
    fn default() -> Self {
        Self { caches: [(32 << 10, 0.22), (1 << 20, 0.36), (16 << 20, 0.8)], memory_ns: 3.4, hash_ns: 1.5 }
    }
}

/// How an expanded table is laid out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpandedLayout {
    /// The target false-positive rate of each filter.
    pub fpr: f64,
    /// Hash-table bytes per entry.
    pub entry_bytes: u64,
    /// The limit of the bytes of filters and tables.
    pub table_bytes_max: u64,
}

impl ExpandedLayout {
    fn bytes(&self, entries: u64) -> (u64, u64) {
        (
            FilterSize::by_equations(entries, self.fpr).bits.div_ceil(8),
            entries.saturating_mul(self.entry_bytes),
        )
    }

    /// The largest number of expanded prefixes that fits.
    #[must_use]
    pub fn entries_max(&self) -> u64 {
        // Filters grow linearly with the entries, so the bytes of a million entries give the bytes of one.
        let (filters, tables) = self.bytes(1 << 20);
        u64::try_from((u128::from(self.table_bytes_max) << 20) / u128::from(filters + tables))
            .unwrap_or(u64::MAX)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a model of nanoseconds")]
impl HostModel {
    /// The default's times with this host's cache sizes.
    #[must_use]
    pub fn detect() -> Self {
        let Caches { l1_bytes, l2_bytes, l3_bytes } = Caches::detect();
        let mut model = Self::default();
        for ((size, _), bytes) in model.caches.iter_mut().zip([l1_bytes, l2_bytes, l3_bytes]) {
            *size = bytes;
        }
        model
    }

    /// Nanoseconds of a load from anywhere within `bytes`.
    #[must_use]
    pub fn load_ns(&self, bytes: u64) -> f64 {
        let bytes = bytes.max(1) as f64;
        let (mut ns, mut held) = (0.0, 0.0);
        for (size, price) in self.caches {
            let share = (size as f64 / bytes).min(1.0);
            ns += (share - held) * price;
            held = share;
        }
        ns + (1.0 - held) * self.memory_ns
    }

    /// Nanoseconds of an average lookup with `levels`.
    #[must_use]
    pub fn lookup_ns(&self, histogram: &LengthHistogram, levels: &Levels, layout: &ExpandedLayout) -> f64 {
        let (filters, tables) = layout.bytes(levels.estimate);
        let (filter_ns, table_ns) = (self.load_ns(filters), 2.0 * self.load_ns(tables));
        let hashes = FilterSize::by_equations(1 << 20, layout.fpr).hashes;
        let misses: f64 = (0..hashes).map(|i| 0.5_f64.powi(i.cast_signed())).sum();
        let miss_ns = self.hash_ns + misses * filter_ns + layout.fpr * table_ns;
        let hit_ns = self.hash_ns + f64::from(hashes) * filter_ns + table_ns;
        let (mut ns, mut routes) = (0.0, 0_u64);
        let groups = super::expand::groups(histogram.first(), &levels.lengths);
        for (asked_before, lengths) in groups.into_iter().rev().enumerate() {
            let here = lengths.fold(0_u64, |sum, len| sum.saturating_add(histogram.count(len)));
            ns += here as f64 * (asked_before as f64 * miss_ns + hit_ns);
            routes = routes.saturating_add(here);
        }
        // Without routes, a lookup tests every filter.
        if routes == 0 { levels.lengths.len() as f64 * miss_ns } else { ns / routes as f64 }
    }

    /// The levels with the shortest modelled lookup time among all numbers that fit, each chosen by `search`; on a tie, fewer levels.
    ///
    /// # Errors
    /// [`CpeError::TooLarge`] if even one level for each length does not fit.
    pub fn choose(
        &self,
        search: LevelSearch,
        histogram: &LengthHistogram,
        layout: &ExpandedLayout,
    ) -> Result<Levels, CpeError> {
        let solved = Dpcpe::solve(search, histogram);
        let limit = layout.entries_max();
        let mut best: Option<(f64, Levels)> = None;
        for number in 1..=histogram.lengths() {
            let levels = solved.levels(number)?;
            if levels.estimate > limit {
                continue;
            }
            let ns = self.lookup_ns(histogram, &levels, layout);
            if best.as_ref().is_none_or(|(best_ns, _)| ns < *best_ns) {
                best = Some((ns, levels));
            }
        }
        match best {
            Some((_, levels)) => Ok(levels),
            None => solved.levels(histogram.lengths())?.within(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shape of AS65000-V6: most routes are /48 and /32, few are past /48.
    fn histogram() -> LengthHistogram {
        let mut histogram = LengthHistogram::new(1, 64);
        for (len, routes) in [
            (24, 20),
            (28, 100),
            (29, 1500),
            (32, 9000),
            (36, 1200),
            (40, 1500),
            (44, 1800),
            (48, 15_000),
            (64, 30),
        ] {
            histogram.add(len, routes);
        }
        histogram
    }

    const LAYOUT: ExpandedLayout = ExpandedLayout { fpr: 0.3, entry_bytes: 20, table_bytes_max: 4 << 30 };

    #[test]
    fn loads_cost_what_the_caches_leave() {
        let model = HostModel::default();
        assert!((model.load_ns(1000) - 0.22).abs() < 1e-9);
        let ns: Vec<f64> = (10..40).map(|bits| model.load_ns(1 << bits)).collect();
        assert!(ns.is_sorted() && *ns.last().unwrap() < model.memory_ns);
    }

    #[test]
    fn the_choice_is_the_quickest_that_fits() {
        let (histogram, model) = (histogram(), HostModel::default());
        let chosen = model.choose(LevelSearch::Optimum, &histogram, &LAYOUT).unwrap();
        let ns = model.lookup_ns(&histogram, &chosen, &LAYOUT);
        let solved = Dpcpe::solve(LevelSearch::Optimum, &histogram);
        for number in 1..=64 {
            let other = solved.levels(number).unwrap();
            if other.estimate <= LAYOUT.entries_max() {
                assert!(ns <= model.lookup_ns(&histogram, &other, &LAYOUT), "{number} levels are quicker");
            }
        }
        assert!((3..=10).contains(&chosen.lengths.len()), "{chosen:?}");
        assert!(chosen.lengths.contains(&64));
    }

    #[test]
    fn little_memory_takes_more_levels_and_too_little_is_refused() {
        let (histogram, model) = (histogram(), HostModel::default());
        let free = model.choose(LevelSearch::Optimum, &histogram, &LAYOUT).unwrap();
        let tight = ExpandedLayout { table_bytes_max: 22 * histogram.total(), ..LAYOUT };
        let chosen = model.choose(LevelSearch::Optimum, &histogram, &tight).unwrap();
        assert!(chosen.estimate <= tight.entries_max());
        assert!(chosen.lengths.len() > free.lengths.len(), "{chosen:?}, without a limit {free:?}");
        let none = ExpandedLayout { table_bytes_max: 1000, ..LAYOUT };
        let refused = model.choose(LevelSearch::Optimum, &histogram, &none);
        assert!(matches!(refused, Err(CpeError::TooLarge { levels: 64, .. })), "{refused:?}");
    }

    #[test]
    fn slow_memory_asks_for_more_levels_than_fast() {
        let histogram = histogram();
        let fast = HostModel { memory_ns: 0.8, ..HostModel::default() };
        let slow = HostModel {
            caches: [(1 << 10, 0.2), (16 << 10, 1.0), (256 << 10, 4.0)],
            memory_ns: 80.0,
            hash_ns: 1.0,
        };
        let levels =
            |model: HostModel| model.choose(LevelSearch::Optimum, &histogram, &LAYOUT).unwrap().lengths.len();
        assert!(levels(slow) >= levels(fast));
    }
}
