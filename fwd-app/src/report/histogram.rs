//! Histograms as text: bars for the terminal, and HdrHistogram's percentile format.

use super::columns::grouped;
use fib::units::time_text;
use hdrhistogram::Histogram;
use std::fmt::Write as _;

const BAR: usize = 50;
/// Most buckets by default, so that the summary fits a terminal of 25 lines. Buckets widen to stay below this.
pub(crate) const ROWS: usize = 8;

/// A bar for `count` scaled to the largest count; nonzero counts have at least one character.
pub(crate) fn bar(count: u64, largest: u64) -> String {
    let characters = (u128::from(count) * BAR as u128).div_ceil(u128::from(largest.max(1)));
    "#".repeat(usize::try_from(characters).unwrap_or(BAR))
}

/// Bars over at most `rows_max` logarithmic buckets of equal width; empty for an empty histogram.
pub(crate) fn bars(histogram: &Histogram<u64>, rows_max: usize) -> String {
    let mut out = String::new();
    let rows = rows(histogram, rows_max);
    let most = rows.iter().map(|(_, _, count)| *count).max().unwrap_or(0);
    let mut below = 0;
    for (from, to, count) in rows {
        below += count;
        let bar = bar(count, most);
        #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
        let share = below as f64 * 100.0 / histogram.len() as f64;
        let _ = writeln!(
            out,
            "  {:>9} - {:<9} |{bar:<BAR$}| {:>14} {share:>7.3} %",
            time_text(from),
            time_text(to),
            grouped(count)
        );
    }
    out
}

fn rows(histogram: &Histogram<u64>, rows_max: usize) -> Vec<(u64, u64, u64)> {
    if histogram.is_empty() || rows_max == 0 {
        return Vec::new();
    }
    let (low, high) = (histogram.min().max(1), histogram.max().max(1));
    let mut base = 1.25_f64;
    loop {
        let rows = rows_by(histogram, low, high, base);
        if rows.len() <= rows_max {
            return rows;
        }
        base *= 1.25;
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nanoseconds below 2^53"
)]
fn rows_by(histogram: &Histogram<u64>, low: u64, high: u64, base: f64) -> Vec<(u64, u64, u64)> {
    let mut rows = Vec::new();
    let mut from = low;
    while from <= high {
        let to = ((from as f64 * base) as u64).max(from + 1);
        rows.push((from, to, 0));
        from = to;
        if rows.len() > ROWS {
            break;
        }
    }
    // Neighbouring limits may share a slot of the histogram: count each slot in one row.
    for value in histogram.iter_recorded() {
        let at = value.value_iterated_to().max(low);
        let row = rows.partition_point(|(_, to, _)| *to <= at).min(rows.len() - 1);
        rows[row].2 += value.count_at_value();
    }
    rows
}

/// The percentile distribution in HdrHistogram's text format, in nanoseconds.
pub(crate) fn hgrm(histogram: &Histogram<u64>) -> String {
    let mut out = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut total = 0;
    for step in histogram.iter_quantiles(5) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let _ = write!(out, "{:>12} {quantile:>2.12} {total:>10}", step.value_iterated_to());
        let _ =
            if quantile < 1.0 { writeln!(out, " {:>14.2}", 1.0 / (1.0 - quantile)) } else { writeln!(out) };
    }
    let _ = writeln!(
        out,
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]",
        histogram.mean(),
        histogram.stdev()
    );
    let _ = writeln!(out, "#[Max     = {:>12.3}, Total count    = {:>12}]", histogram.max(), histogram.len());
    let _ = writeln!(out, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", histogram.buckets(), 2048);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        for (value, count) in values {
            histogram.record_n(*value, *count).unwrap();
        }
        histogram
    }

    #[test]
    fn every_value_is_in_one_bar() {
        for values in
            [&[(1, 1)][..], &[(100, 5), (110, 7), (5_000, 1)], &[(1, 3), (59_000_000_000, 2)], &[(777, 9)]]
        {
            let histogram = histogram(values);
            let rows = rows(&histogram, ROWS);
            assert!(rows.len() <= ROWS && !rows.is_empty());
            assert_eq!(rows.iter().map(|(_, _, count)| count).sum::<u64>(), histogram.len());
            assert!(rows[0].2 > 0 && rows.windows(2).all(|pair| pair[0].1 == pair[1].0));
            assert_eq!(bars(&histogram, ROWS).lines().count(), rows.len());
            assert_eq!(bars(&histogram, 1).lines().count(), 1);
        }
        assert_eq!(bars(&histogram(&[]), ROWS), "");
    }

    #[test]
    fn the_text_form_ends_at_all_values() {
        let text = hgrm(&histogram(&[(100, 90), (1000, 10)]));
        let last = text.lines().rfind(|line| !line.starts_with('#')).unwrap();
        let fields: Vec<_> = last.split_whitespace().collect();
        assert_eq!(fields[1..], ["1.000000000000", "100"]);
        assert!(text.contains("Total count    =          100"));
    }
}
