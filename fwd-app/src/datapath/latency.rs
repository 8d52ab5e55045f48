//! How long packets stayed in the forwarder: a histogram in nanoseconds, recorded a burst at a time.
//!
//! Recording a burst of any size is one step of 10 to 20 ns, so at a burst of 128 it costs about a tenth of a nanosecond a packet.

use hdrhistogram::Histogram;

/// The longest latency that the histogram resolves, 60 s; longer ones are counted as 60 s.
const LIMIT_NS: u64 = 60_000_000_000;
/// Three significant digits: no percentile is off by more than 0.1 %.
const DIGITS: u8 = 3;

/// A latency histogram, and the clock's rate.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    histogram: Histogram<u64>,
    /// Nanoseconds a cycle, times 2^32.
    ns_per_cycle: u64,
}

impl Latency {
    /// An empty histogram for a time stamp counter of `tsc_hz` (not 0).
    pub(crate) fn new(tsc_hz: u64) -> Self {
        // `new_with_bounds` accepts these constants. It can only fail for other bounds.
        let histogram = Histogram::new_with_bounds(1, LIMIT_NS, DIGITS)
            .unwrap_or_else(|_| unreachable!("1..=60 s at three digits is a valid histogram"));
        let ns_per_cycle = (1_000_000_000_u128 << 32).checked_div(u128::from(tsc_hz)).unwrap_or(1 << 32);
        Self { histogram, ns_per_cycle: u64::try_from(ns_per_cycle).unwrap_or(u64::MAX) }
    }

    /// Counts `packets` that took `cycles`.
    #[inline]
    pub(crate) fn record(&mut self, cycles: u64, packets: u64) {
        self.histogram.saturating_record_n(self.ns(cycles).max(1), packets);
    }

    /// Cycles in nanoseconds.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "2^64 cycles are centuries")]
    pub(crate) fn ns(&self, cycles: u64) -> u64 {
        ((u128::from(cycles) * u128::from(self.ns_per_cycle)) >> 32) as u64
    }

    /// The histogram, nanoseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Adds the counts of `other`, which has the same limits.
    pub(crate) fn merge(&mut self, other: &Self) {
        // `add` refuses only a histogram with wider limits, and all are made by `new`.
        let added = self.histogram.add(&other.histogram);
        assert!(added.is_ok(), "two latency histograms have the same limits");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_nanoseconds() {
        for (hz, cycles, ns) in [(1_000_000_000, 5, 5), (2_600_000_000, 2_600, 1_000), (3, 3, 1_000_000_000)]
        {
            let told = Latency::new(hz).ns(cycles);
            assert!(told.abs_diff(ns) <= 1, "{told} for {ns}");
        }
    }

    #[test]
    fn a_burst_counts_all_its_packets_and_long_ones_are_kept() {
        let mut latency = Latency::new(1_000_000_000);
        latency.record(100, 128);
        latency.record(u64::MAX >> 8, 1);
        let mut sum = Latency::new(1_000_000_000);
        sum.merge(&latency);
        sum.merge(&latency);
        assert_eq!(sum.histogram().len(), 258);
        assert_eq!(sum.histogram().value_at_quantile(0.5), 100);
        assert!(sum.histogram().max() >= LIMIT_NS);
    }
}
