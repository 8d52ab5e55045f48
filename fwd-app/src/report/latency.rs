//! Latency in the report: percentiles over all packets and by frame size.

use super::columns::{Columns, grouped};
use crate::datapath::Latency;
use crate::datapath::latency::{FRAME_BYTES_MAX, LatencyBySize};
use fib::units::time_text;
use hdrhistogram::Histogram;
use serde::Serialize;

const AXIS: usize = 40;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LatencyNs {
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) p99_99: u64,
    pub(crate) max: u64,
    pub(crate) mean: f64,
    pub(crate) count: u64,
    /// `rx to tx`, or `intended send time to arrival`.
    pub(crate) measured: &'static str,
}

impl LatencyNs {
    pub(crate) fn new(histogram: &Histogram<u64>, measured: &'static str) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        if histogram.is_empty() {
            return Self { measured, ..Self::default() };
        }
        Self {
            min: histogram.min(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: histogram.max(),
            mean: histogram.mean(),
            count: histogram.len(),
            measured,
        }
    }
}

/// A logarithmic time axis shared by rows with marks for p50, p99 and p99.9.
pub(crate) struct MarkAxis {
    low: u64,
    high: u64,
}

impl MarkAxis {
    pub(crate) const HEADING: &str = "p50 o, p99 +, p99.9 x, log scale";

    pub(crate) fn new<'a>(latencies: impl Iterator<Item = &'a LatencyNs>) -> Self {
        let there = latencies.filter(|latency| latency.count > 0);
        let ends = there.map(|latency| (latency.p50.max(1), latency.p99_9));
        let ends = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (low, high) = ends.unwrap_or((1, 1));
        Self { low, high }
    }

    pub(crate) fn row(&self, latency: &LatencyNs) -> String {
        let mut row = [' '; AXIS];
        if latency.count > 0 {
            // Where marks coincide, the lower percentile wins.
            for (mark, ns) in [('x', latency.p99_9), ('+', latency.p99), ('o', latency.p50)] {
                row[self.place(ns)] = mark;
            }
        }
        let row: String = row.iter().collect();
        format!("|{}", row.trim_end())
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "nanoseconds below 2^53; a place on the axis is 0 or more"
    )]
    fn place(&self, ns: u64) -> usize {
        let (low, end) = (self.low as f64, AXIS - 1);
        let width = (self.high as f64 / low).ln();
        let share = if width > 0.0 { (ns.max(self.low) as f64 / low).ln() / width } else { 0.0 };
        ((share * end as f64).round() as usize).min(end)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SizeLatency {
    /// Largest frame of the class, bytes with checksum; `None` for frames beyond all other classes.
    pub(crate) bytes_max: Option<u32>,
    pub(crate) packets: u64,
    pub(crate) latency_ns: LatencyNs,
    #[serde(skip)]
    pub(crate) histogram: Histogram<u64>,
}

impl SizeLatency {
    pub(crate) fn all(latency: &LatencyBySize, measured: &'static str) -> Vec<Self> {
        let sizes = FRAME_BYTES_MAX.into_iter().map(Some).chain([None]);
        let there = sizes.zip(latency.classes()).filter(|(_, latency)| !latency.histogram().is_empty());
        let one = |(bytes_max, latency): (Option<u32>, &Latency)| Self {
            bytes_max,
            packets: latency.histogram().len(),
            latency_ns: LatencyNs::new(latency.histogram(), measured),
            histogram: latency.histogram().clone(),
        };
        there.map(one).collect()
    }

    pub(crate) fn name(&self) -> String {
        let largest = FRAME_BYTES_MAX.last().copied().unwrap_or(0);
        self.bytes_max.map_or_else(|| format!("above {largest} B"), |bytes| format!("to {bytes} B"))
    }
}

pub(crate) fn sizes_lines(sizes: &[SizeLatency]) -> usize {
    if sizes.len() > 1 { sizes.len() + 1 } else { 0 }
}

/// A row per class; empty for a single class, which the totals cover.
pub(crate) fn sizes_text(sizes: &[SizeLatency]) -> String {
    if sizes_lines(sizes) == 0 {
        return String::new();
    }
    let axis = MarkAxis::new(sizes.iter().map(|size| &size.latency_ns));
    let mut rows = Columns::new(["frames", "packets", "p50", "p99", "p99.9", MarkAxis::HEADING]);
    for size in sizes {
        let LatencyNs { p50, p99, p99_9, .. } = size.latency_ns;
        let [p50, p99, p99_9] = [p50, p99, p99_9].map(time_text);
        rows.row([size.name(), grouped(size.packets), p50, p99, p99_9, axis.row(&size.latency_ns)]);
    }
    rows.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_an_empty_histogram() {
        let mut latency = Latency::new(1_000_000_000);
        assert_eq!(LatencyNs::new(latency.histogram(), "rx to tx").count, 0);
        latency.record(100, 990);
        latency.record(1000, 10);
        let told = LatencyNs::new(latency.histogram(), "rx to tx");
        assert_eq!((told.min, told.p50, told.p99, told.max, told.count), (100, 100, 100, 1000, 1000));
        assert_eq!(told.p99_9, 1000);
    }

    #[test]
    fn marks_are_in_the_order_of_percentiles_and_stay_on_the_axis() {
        let of =
            |p50: u64| LatencyNs { p50, p99: p50 * 4, p99_9: p50 * 10, count: 9, ..LatencyNs::default() };
        let both = [of(1000), of(2000)];
        let axis = MarkAxis::new(both.iter());
        let [first, last] = both.each_ref().map(|latency| axis.row(latency));
        let at = |row: &str, mark| row.find(mark).unwrap();
        assert!(at(&first, 'o') == 1 && at(&first, '+') < at(&first, 'x'), "{first}");
        assert_eq!((at(&last, 'x'), last.len()), (AXIS, AXIS + 1));
        assert!(axis.row(&of(1)).len() < AXIS && axis.row(&of(1 << 40)).len() == AXIS + 1);
        assert_eq!(MarkAxis::new([].iter()).row(&LatencyNs::default()), "|");
        assert_eq!(MarkAxis::new([of(0)].iter()).row(&of(0)), "|o");
    }

    #[test]
    fn each_size_of_frame_has_its_own_percentiles() {
        let mut latency = LatencyBySize::new(1_000_000_000);
        for _ in 0..10 {
            latency.record(100, 60);
            latency.record(900, 1514);
        }
        let sizes = SizeLatency::all(&latency, "x");
        let told: Vec<_> =
            sizes.iter().map(|size| (size.bytes_max, size.packets, size.latency_ns.p50)).collect();
        assert_eq!(told, [(Some(64), 10, 100), (Some(1518), 10, 900)]);
        let text = sizes_text(&sizes);
        assert_eq!(text.lines().count(), sizes_lines(&sizes));
        assert!(text.contains("to 64 B") && text.contains("to 1518 B"), "{text}");
        latency.record(5, 9000);
        assert_eq!(SizeLatency::all(&latency, "x")[2].name(), "above 1518 B");
        assert_eq!(
            (sizes_text(&sizes[..1]), SizeLatency::all(&LatencyBySize::new(1), "x").len()),
            (String::new(), 0)
        );
    }
}
