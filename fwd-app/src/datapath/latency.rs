//! Time that packets spend in the forwarder: histograms in nanoseconds, recorded a burst at a time.

use hdrhistogram::Histogram;

/// The longest latency resolved, 60 s; longer ones count as 60 s.
const LIMIT_NS: u64 = 60_000_000_000;
/// Three significant digits: percentiles are exact to 0.1 %.
const DIGITS: u8 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Latency {
    histogram: Histogram<u64>,
    /// Nanoseconds per cycle, times 2^32.
    ns_per_cycle: u64,
}

impl Latency {
    pub(crate) fn new(tsc_hz: u64) -> Self {
        // `new_with_bounds` fails only for other bounds.
        let histogram = Histogram::new_with_bounds(1, LIMIT_NS, DIGITS)
            .unwrap_or_else(|_| unreachable!("1..=60 s at three digits is a valid histogram"));
        let ns_per_cycle = (1_000_000_000_u128 << 32).checked_div(u128::from(tsc_hz)).unwrap_or(1 << 32);
        Self { histogram, ns_per_cycle: u64::try_from(ns_per_cycle).unwrap_or(u64::MAX) }
    }

    #[inline]
    pub(crate) fn record(&mut self, cycles: u64, packets: u64) {
        self.histogram.saturating_record_n(self.ns(cycles).max(1), packets);
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "2^64 cycles are centuries")]
    pub(crate) fn ns(&self, cycles: u64) -> u64 {
        ((u128::from(cycles) * u128::from(self.ns_per_cycle)) >> 32) as u64
    }

    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // `add` refuses only a histogram with wider limits; all are made by `new`.
        let added = self.histogram.add(&other.histogram);
        assert!(added.is_ok(), "two latency histograms have the same limits");
    }
}

/// Upper limits of the frame size classes, bytes with the checksum: the sizes of RFC 2544 (9.1) for Ethernet. Longer frames have a last
/// class.
pub(crate) const FRAME_BYTES_MAX: [u32; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
/// An Ethernet frame's checksum, which is not in the mbuf.
const CHECKSUM_BYTES: u32 = 4;
const CLASSES: usize = FRAME_BYTES_MAX.len() + 1;

/// A histogram per frame size class. Recording costs as much as with a single histogram.
#[derive(Clone, Debug)]
pub(crate) struct LatencyBySize {
    classes: [Latency; CLASSES],
}

impl LatencyBySize {
    pub(crate) fn new(tsc_hz: u64) -> Self {
        Self { classes: std::array::from_fn(|_| Latency::new(tsc_hz)) }
    }

    /// Counts a packet of `frame_bytes`, without the checksum, with a latency of `cycles`.
    #[inline]
    pub(crate) fn record(&mut self, cycles: u64, frame_bytes: u32) {
        let bytes = frame_bytes.saturating_add(CHECKSUM_BYTES);
        let class = FRAME_BYTES_MAX.iter().filter(|max| bytes > **max).count();
        self.classes[class].record(cycles, 1);
    }

    /// In the order of [`FRAME_BYTES_MAX`], longer frames last.
    pub(crate) const fn classes(&self) -> &[Latency; CLASSES] {
        &self.classes
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.classes.iter_mut().zip(&other.classes).for_each(|(class, other)| class.merge(other));
    }

    pub(crate) fn total(&self) -> Latency {
        let mut total = self.classes[0].clone();
        self.classes[1..].iter().for_each(|class| total.merge(class));
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_counts_in_the_class_of_its_frame() {
        for (frame_bytes, class) in
            [(0, 0), (60, 0), (61, 1), (124, 1), (1514, 6), (1515, 7), (9000, 7), (u32::MAX, 7)]
        {
            let mut latency = LatencyBySize::new(1_000_000_000);
            latency.record(100, frame_bytes);
            let counts = latency.classes().each_ref().map(|class| class.histogram().len());
            assert_eq!(
                (counts[class], latency.total().histogram().len()),
                (1, 1),
                "{frame_bytes}: {counts:?}"
            );
        }
    }

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
