//! The size of a Bloom filter for a given false-positive rate (section 6.2, equations 1-3), and two corrections of it.
//!
//! With n keys, m bits and k hashes, the rate f is smallest for k = m/n ln 2 (equation 1), and then f = 2^-k (equation 2), so m = n
//! lg(1/f) / ln 2 (equation 3). k is an integer, rounded up in table 5. Rounding changes the rate: for a target of 90 %, the sizes of
//! table 5 give 99 %. [`FilterSize::for_rate`] keeps k and computes m for it from the formula behind equations 1-3, f = (1 - e^(-kn/m))^k.

use super::hash::filter_mask;

/// The size of a Bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterSize {
    /// Bits, `m`, rounded up.
    pub bits: u64,
    /// Hash functions, `k`, at least 1.
    pub hashes: u32,
}

const WORD_BITS: u32 = 32;
/// The most bits per key that a blocked filter uses: more would fill the word.
const BLOCKED_HASHES_MAX: u32 = 8;

/// The range of false-positive rates that a filter can be sized for.
pub const FPR_RANGE: std::ops::RangeInclusive<f64> = 0.01..=0.9;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
#[expect(clippy::cast_precision_loss, reason = "2^52 entries are out of reach")]
impl FilterSize {
    /// The minimum number of entries that a filter of `bloom-naive` or `bloom-baseline` is sized for.
    pub const ENTRIES_MIN: u64 = 256;

    /// Equations 1-3 without correction, as in table 5.
    #[must_use]
    pub fn by_equations(entries: u64, fpr: f64) -> Self {
        let hashes = (1.0 / fpr).log2();
        let bits = entries as f64 * hashes / std::f64::consts::LN_2;
        Self { bits: bits.ceil() as u64, hashes: (hashes.ceil() as u32).max(1) }
    }

    /// The filter whose actual rate is `fpr` once it holds `entries` keys: k from equation 1, and m computed for this k.
    #[must_use]
    pub fn for_rate(entries: u64, fpr: f64) -> Self {
        let hashes = Self::by_equations(entries, fpr).hashes;
        let k = f64::from(hashes);
        let bits = -k * entries as f64 / (1.0 - fpr.powf(1.0 / k)).ln();
        Self { bits: bits.ceil() as u64, hashes }
    }

    /// The rate of this filter with `entries` keys in it.
    #[must_use]
    pub fn rate(&self, entries: u64) -> f64 {
        let k = f64::from(self.hashes);
        (1.0 - (-k * entries as f64 / self.bits.max(1) as f64).exp()).powf(k)
    }

    /// The smallest filter of rate `fpr` that keeps all bits of a key in one 32-bit word. Words fill unequally, so it exceeds equation 3.
    #[must_use]
    pub fn blocked(entries: u64, fpr: f64) -> Self {
        let sized = (1..=BLOCKED_HASHES_MAX).map(|hashes| {
            let keys_a_word = Blocked::new(hashes).keys_a_word(fpr);
            let words = (entries as f64 / keys_a_word).ceil().max(1.0) as u64;
            Self { bits: words * u64::from(WORD_BITS), hashes }
        });
        sized.min_by_key(|size| size.bits).unwrap_or(Self { bits: u64::from(WORD_BITS), hashes: 1 })
    }
}

/// The exact rate of a filter of one-word blocks. A key's bits are an arithmetic progression modulo 32 with an odd step: 512 equally
/// likely masks. For a set S of bits let p(S) be the share of masks that miss all of S. If the number of keys in a word is
/// Poisson-distributed with mean λ, all of S is missed with probability e^(-λ(1-p(S))), and all bits Q of another key are hit, by
/// inclusion and exclusion, with probability Σ over S within Q of (-1)^|S| e^(-λ(1-p(S))). Multiplying by an odd number turns one
/// progression into another, so every Q gives the same sum.
struct Blocked {
    /// `(-1)^|S|` and `1 - p(S)` for each S.
    terms: Vec<(f64, f64)>,
}

impl Blocked {
    fn new(hashes: u32) -> Self {
        // All starts and odd steps, each twice: a mask depends on bits 0..5 and 6..10 of a hash.
        let masks: Vec<u32> = (0..1024).map(|hash| filter_mask(hash, hashes)).collect();
        let query = filter_mask(0, hashes);
        let mut terms = Vec::with_capacity(1 << hashes);
        let mut set = query;
        loop {
            let missing = masks.iter().filter(|mask| **mask & set == 0).count();
            let sign = if set.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            #[expect(clippy::cast_precision_loss, reason = "at most 512")]
            terms.push((sign, 1.0 - missing as f64 / masks.len() as f64));
            if set == 0 {
                break;
            }
            set = (set - 1) & query;
        }
        Self { terms }
    }

    fn rate(&self, keys: f64) -> f64 {
        self.terms.iter().map(|(sign, hit)| sign * (-keys * hit).exp()).sum()
    }

    fn keys_a_word(&self, fpr: f64) -> f64 {
        let (mut low, mut high) = (0.0_f64, 1024.0_f64);
        // The rate grows with the keys, so bisection finds it; 60 steps exceed the precision of a double.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.rate(middle) < fpr { low = middle } else { high = middle }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AS65000's rows of table 5: n (table 3), and m at 1, 10, 30, 60 and 90 %. `lpm-bench` tests all rows.
    #[test]
    fn cells_of_table_5() {
        for (entries, bits) in [
            (971_555, [9_312_412, 4_656_206, 2_434_631, 1_032_974, 213_057]),
            (113_397, [1_086_917, 543_459, 284_163, 120_566, 24_868]),
        ] {
            for ((fpr, bits), hashes) in [0.01, 0.1, 0.3, 0.6, 0.9].into_iter().zip(bits).zip([7, 4, 2, 1, 1])
            {
                assert_eq!(
                    FilterSize::by_equations(entries, fpr),
                    FilterSize { bits, hashes },
                    "{entries}, {fpr}"
                );
            }
        }
    }

    #[test]
    fn equations_1_to_3_hold_between_themselves() {
        for k in 1..=6_u32 {
            let fpr = 0.5_f64.powi(k.cast_signed()); // equation 2
            let size = FilterSize::by_equations(1_000_000, fpr);
            assert_eq!(size.hashes, k);
            let by_equation_1 = size.bits as f64 / 1e6 * std::f64::consts::LN_2;
            assert!((by_equation_1 - f64::from(k)).abs() < 1e-5);
            assert!((size.rate(1_000_000) - fpr).abs() < 1e-5);
            assert_eq!(FilterSize::for_rate(1_000_000, fpr).bits.abs_diff(size.bits), 0);
        }
    }

    #[test]
    fn corrected_sizes_have_the_asked_rate() {
        for percent in 1..=90 {
            let fpr = f64::from(percent) / 100.0;
            let size = FilterSize::for_rate(971_555, fpr);
            assert_eq!(size.hashes, FilterSize::by_equations(971_555, fpr).hashes);
            assert!((size.rate(971_555) / fpr - 1.0).abs() < 1e-3, "{percent} %");
        }
        assert!(FilterSize::by_equations(971_555, 0.85).rate(971_555) > 0.85 * 1.1, "needs the correction");
    }

    #[test]
    fn blocked_filters_take_more_bits() {
        for percent in [1, 10, 30, 60, 90] {
            let fpr = f64::from(percent) / 100.0;
            let (blocked, free) = (FilterSize::blocked(1_000_000, fpr), FilterSize::for_rate(1_000_000, fpr));
            assert!(blocked.bits >= free.bits, "{percent} %: {blocked:?}, unblocked {free:?}");
            assert!(blocked.bits < free.bits * 8, "{percent} %: {blocked:?}, unblocked {free:?}");
        }
        assert_eq!(FilterSize::blocked(0, 0.3).bits, 32);
    }

    #[test]
    fn the_masks_are_all_there_are() {
        let blocked = Blocked::new(2);
        assert_eq!(blocked.terms.len(), 4);
        // The empty set is missed by all; one bit is hit by k of 32.
        assert!(blocked.terms.iter().any(|(sign, hit)| *sign > 0.0 && *hit == 0.0));
        assert_eq!(blocked.terms.iter().filter(|(sign, hit)| *sign < 0.0 && *hit == 2.0 / 32.0).count(), 2);
    }
}
