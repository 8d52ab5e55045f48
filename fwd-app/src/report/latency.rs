//! Latency in the report: percentiles over all packets and by frame size.

use super::columns::{Columns, grouped};
use super::histogram::MarkAxis;
use crate::datapath::Latency;
use crate::datapath::latency::{FRAME_BYTES_MAX, LatencyBySize};
use fib::units::time_text;
use hdrhistogram::Histogram;
use serde::Serialize;

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

/// Latency of a class of frame sizes.
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
    /// The nonempty classes, shortest frames first.
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
