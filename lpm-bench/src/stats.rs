//! Median and quantiles of what was measured.

/// The value that half of `values` are below. `values` is not empty.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value that `share` of `values` are below, interpolated between neighbours; NaN without values.
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
    }
}
