//! Median, quantiles and spread of measurements.

use serde::Serialize;

/// The spread of the rounds of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median round.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of `rounds`, which are not empty.
    #[must_use]
    pub fn of_rounds(rounds: &[f64]) -> Self {
        Self { median: median(rounds), min: quantile(rounds, 0.0), max: quantile(rounds, 1.0) }
    }

    /// The same in another unit: `to` converts each value, and may reverse the order.
    #[must_use]
    pub fn map(self, to: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (to(self.min), to(self.max));
        Self { median: to(self.median), min: one.min(other), max: one.max(other) }
    }
}

impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<T: IntoIterator<Item = f64>>(rounds: T) -> Self {
        Self::of_rounds(&Vec::from_iter(rounds))
    }
}

/// The median of `values`, which are not empty.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The quantile `share` of `values`, interpolated between neighbours; NaN without values.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (sorted[floor(at)], sorted[floor(at.ceil())]);
    low + (high - low) * at.fract()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index, 0 or more")]
fn floor(at: f64) -> usize {
    at as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_small_sets() {
        assert_eq!((median(&[3.0]), median(&[4.0, 1.0]), median(&[9.0, 1.0, 2.0])), (3.0, 2.5, 2.0));
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(
            (quantile(&values, 0.25), quantile(&values, 0.0), quantile(&values, 1.0)),
            (2.0, 1.0, 5.0)
        );
        assert!(median(&[]).is_nan());
        let spread = Spread::of_rounds(&[4.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 4.0 });
        assert_eq!(spread.map(|y| 8.0 / y), Spread { median: 4.0, min: 2.0, max: 8.0 });
    }
}
