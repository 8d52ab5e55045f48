//! Periodic lines on stderr: rates, drops and NIC losses since the last line, for `--stats-period` and SIGUSR1; the first engine error.

use super::columns::grouped;
use super::console;
use crate::datapath::Counters;
use crate::forwarder::rates::{NicLosses, Rates, SharedRates};
use crate::topology::Handle;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Periodic {
    period: Option<Duration>,
    start: Option<Instant>,
    last_time: Option<Instant>,
    last: Counters,
    /// NIC counters, which the control thread reads once a second, and their values at the last line.
    rates: SharedRates,
    last_rates: Arc<Rates>,
}

impl Periodic {
    pub(crate) fn new(period: Option<Duration>, rates: &SharedRates) -> Self {
        let (rates, last_rates) = (Arc::clone(rates), rates.load_full());
        Self { period, start: None, last_time: None, last: Counters::default(), rates, last_rates }
    }

    /// Prints a line if one is due or `wanted`, and an engine error once. The first call starts the clock.
    pub(crate) fn tick(&mut self, running: &Handle, wanted: bool) {
        if let Some(error) = running.fault().take_unreported() {
            console::warn(format_args!("{error}; its packets are dropped as engine_stall"));
        }
        let now = Instant::now();
        let start = *self.start.get_or_insert(now);
        let since = now - self.last_time.unwrap_or(start);
        if !wanted && self.period.is_none_or(|period| since < period) {
            return;
        }
        let (counters, rates) = (running.counters(), self.rates.load_full());
        let lost = rates.lost_since(&self.last_rates);
        console::asked(line(&counters, &self.last, lost, since, now - start));
        (self.last, self.last_time, self.last_rates) = (counters, Some(now), rates);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn line(now: &Counters, before: &Counters, lost: NicLosses, since: Duration, running: Duration) -> String {
    let per = |count: u64| count as f64 / since.as_secs_f64().max(1e-9);
    let packets = now.tx_packets.saturating_sub(before.tx_packets);
    let bytes = now.tx_bytes.saturating_sub(before.tx_bytes);
    let mut line = format!(
        "{:8.1} s  rx {:.3} Mpps  tx {:.3} Mpps  {:.3} Gbit/s (L2) {:.3} (L1)",
        running.as_secs_f64(),
        per(now.rx_packets.saturating_sub(before.rx_packets)) / 1e6,
        per(packets) / 1e6,
        per(bytes * 8) / 1e9,
        per((bytes + packets * super::rate::WIRE_BYTES) * 8) / 1e9
    );
    let NicLosses { missed, errors, nombuf } = lost;
    for (kind, count) in [("rx_missed", missed), ("rx_errors", errors), ("rx_nombuf", nombuf)] {
        if count > 0 {
            line.push_str(&format!("  {kind} {}", grouped(count)));
        }
    }
    for (reason, count) in now.drops.since(&before.drops).iter().filter(|(_, count)| *count > 0) {
        line.push_str(&format!("  {reason} {}", grouped(count)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::DropReason;

    #[test]
    fn a_line_says_what_happened_since_the_last() {
        let before = Counters { rx_packets: 1_000_000, ..Counters::default() };
        let mut now =
            Counters { rx_packets: 3_000_000, tx_packets: 1_500_000, tx_bytes: 90_000_000, ..before };
        now.drops.add(DropReason::NoRoute, 500_000);
        let lost = NicLosses { missed: 7, nombuf: 2, ..NicLosses::default() };
        let text = line(&now, &before, lost, Duration::from_secs(1), Duration::from_secs(2));
        assert!(text.contains("rx 2.000 Mpps  tx 1.500 Mpps  0.720 Gbit/s (L2) 1.008 (L1)"), "{text}");
        assert!(text.ends_with("  rx_missed 7  rx_nombuf 2  no_route 500,000"), "{text}");
    }
}
