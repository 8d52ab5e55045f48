//! Intended send times of packets.
//!
//! Latency counts from the intended time, not from the actual one: otherwise a forwarder that delays the harness would shorten its own
//! latencies (coordinated omission).

use super::trace::Trace;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateUnit {
    Pps,
    Bps,
    Percent,
}

/// The value of `--rate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OfferedRate {
    Max,
    Pps(f64),
    /// Bits of frames a second, as packets of the trace's mean size, evenly spaced.
    Bps(f64),
    /// Percent of the loss-free rate, evenly spaced.
    Percent(f64),
    /// Linear from one rate to another.
    Between(f64, f64, RateUnit),
    /// A multiple of the capture's own speed; 1.0 is `original`.
    Times(f64),
}

impl fmt::Display for OfferedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Pps(pps) => write!(f, "{pps}pps"),
            Self::Bps(bps) => write!(f, "{bps}bps"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Between(from, to, RateUnit::Pps) => write!(f, "{from}pps..{to}pps"),
            Self::Between(from, to, RateUnit::Bps) => write!(f, "{from}bps..{to}bps"),
            Self::Between(from, to, RateUnit::Percent) => write!(f, "{from}%..{to}%"),
            Self::Times(1.0) => f.write_str("original"),
            Self::Times(factor) => write!(f, "x{factor}"),
        }
    }
}

impl OfferedRate {
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::Percent(_) | Self::Between(_, _, RateUnit::Percent))
    }
}

/// The resolved pace of a trial: all relative rates have become absolute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TrialPace {
    Max,
    /// Linear from one rate to another, then constant.
    Even {
        from_pps: f64,
        pps: f64,
        /// Duration of the change, seconds.
        rise_s: f64,
    },
    /// Given by the source: by capture times, or by the bits of streamed frames.
    Traced,
}

impl TrialPace {
    pub(crate) fn even(pps: f64) -> Self {
        Self::Even { from_pps: pps, pps, rise_s: 0.0 }
    }

    pub(crate) fn after(self, seconds: f64) -> Self {
        match self {
            Self::Even { from_pps, pps, rise_s } if seconds < rise_s => {
                let from_pps = from_pps + (pps - from_pps) * seconds / rise_s;
                Self::Even { from_pps, pps, rise_s: rise_s - seconds }
            }
            Self::Even { pps, .. } => Self::even(pps),
            other => other,
        }
    }

    /// Packets due in the first `seconds`; `None` where the trace or the forwarder determines it.
    pub(crate) fn packets(self, seconds: f64) -> Option<u64> {
        let Self::Even { from_pps, pps, rise_s } = self else { return None };
        let rising = Rise { from: from_pps, to: pps, time: rise_s };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is not negative"
        )]
        Some(rising.count(seconds).round() as u64)
    }
}

/// A rate that changes linearly and then stays constant. All fields share one unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rise {
    from: f64,
    to: f64,
    time: f64,
}

impl Rise {
    fn count(&self, time: f64) -> f64 {
        let rising = time.min(self.time);
        let risen = if self.time > 0.0 { (self.to - self.from) * rising / self.time } else { 0.0 };
        (self.from + risen / 2.0) * rising + self.to * (time - rising)
    }

    /// Due time of packet `number`: the inverse of `count`.
    fn due(&self, number: f64) -> f64 {
        let rising = (self.from + self.to) / 2.0 * self.time;
        if number >= rising {
            return self.time + (number - rising) / self.to;
        }
        // Solves from * t + (to - from) / (2 * time) * t * t == number in a form without cancellation.
        let slope = 2.0 * (self.to - self.from) / self.time;
        2.0 * number / (self.from + (self.from * self.from + slope * number).sqrt()).max(f64::MIN_POSITIVE)
    }
}

/// The intended send times of a trial, in cycles from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schedule {
    /// At once, as fast as the forwarder takes packets.
    Max,
    /// By rate, in packets a cycle.
    Even(Rise),
    /// By the source, per packet.
    Traced,
}

impl Schedule {
    #[expect(clippy::cast_precision_loss, reason = "a clock's rate is below 2^53")]
    pub(crate) fn new(pace: TrialPace, tsc_hz: u64) -> Self {
        let hz = tsc_hz as f64;
        match pace {
            TrialPace::Max => Self::Max,
            TrialPace::Even { from_pps, pps, rise_s } => {
                Self::Even(Rise { from: from_pps / hz, to: pps / hz, time: rise_s * hz })
            }
            TrialPace::Traced => Self::Traced,
        }
    }

    /// Intended time of packet `number`; `traced` is the source's time for it. 0 at full speed.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53 packets and cycles, and not negative"
    )]
    pub(crate) fn due(&self, number: u64, traced: u64) -> u64 {
        match self {
            Self::Max => 0,
            Self::Even(rise) => rise.due(number as f64) as u64,
            Self::Traced => traced,
        }
    }

    /// Number of packets due within `cycles`; `None` where the source or the forwarder determines it.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53 packets and cycles, and not negative"
    )]
    pub(crate) fn due_by(&self, cycles: u64) -> Option<u64> {
        match self {
            // The first packet is due at 0.
            Self::Even(rise) => Some(rise.count(cycles as f64) as u64 + 1),
            Self::Max | Self::Traced => None,
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        !matches!(self, Self::Max)
    }
}

/// Due times of a trace in memory, by the capture's time stamps.
#[derive(Clone, Debug)]
pub(crate) struct TraceTimes {
    /// Offset of each frame from the first, cycles.
    offsets: Vec<u64>,
    /// From the first frame of a pass to the first of the next.
    loop_cycles: u64,
}

impl TraceTimes {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of days in cycles fit 53 bits, and none is negative"
    )]
    pub(crate) fn new(trace: &Trace, factor: f64, tsc_hz: u64) -> Self {
        let first = trace.time_ns(0);
        let cycles = |ns: u64| (ns as f64 * tsc_hz as f64 / 1e9 / factor) as u64;
        let offsets: Vec<u64> = (0..trace.len()).map(|i| cycles(trace.time_ns(i) - first)).collect();
        let last = offsets.last().copied().unwrap_or(0);
        // The next pass follows the last packet by the mean gap.
        let gap = last / (trace.len() as u64 - 1).max(1);
        Self { offsets, loop_cycles: last + gap }
    }

    /// Due time of frame `frame` in pass `turn`, cycles from the first frame.
    #[inline]
    pub(crate) fn due(&self, frame: usize, turn: u64) -> u64 {
        self.offsets[frame] + turn * self.loop_cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_rises_evenly_and_stays() {
        let rise = Rise { from: 0.0, to: 100.0, time: 10.0 };
        for (time, count) in [(0.0, 0.0), (1.0, 5.0), (5.0, 125.0), (10.0, 500.0), (12.0, 700.0)] {
            assert!((rise.count(time) - count).abs() < 1e-9, "{time}");
            assert!((rise.due(count) - time).abs() < 1e-9, "{count}");
        }
        let fall = Rise { from: 100.0, to: 10.0, time: 3.0 };
        let even = Rise { from: 7.0, to: 7.0, time: 0.0 };
        for rise in [rise, fall, even] {
            for number in 0..2000 {
                let number = f64::from(number);
                assert!((rise.count(rise.due(number)) - number).abs() < 1e-6, "{number} of {rise:?}");
            }
        }
    }

    #[test]
    fn what_remains_of_a_rise_goes_on_where_it_was() {
        let pace = TrialPace::Even { from_pps: 100.0, pps: 300.0, rise_s: 4.0 };
        assert_eq!(pace.after(1.0), TrialPace::Even { from_pps: 150.0, pps: 300.0, rise_s: 3.0 });
        assert_eq!(pace.after(4.0), TrialPace::even(300.0));
        assert_eq!(TrialPace::Max.after(1.0), TrialPace::Max);
        assert_eq!(
            [0.0, 1.0, 4.0, 5.0].map(|s| pace.packets(s)),
            [Some(0), Some(125), Some(800), Some(1100)]
        );
        assert_eq!(TrialPace::Traced.packets(1.0), None);
    }

    #[test]
    fn packets_are_due_when_they_are_counted() {
        let schedule = Schedule::new(TrialPace::even(1e6), 1_000_000_000);
        assert_eq!([0, 1, 1000].map(|number| schedule.due(number, 0)), [0, 1000, 1_000_000]);
        assert_eq!(
            [0, 999, 1001, 10_001].map(|cycles| schedule.due_by(cycles)),
            [Some(1), Some(1), Some(2), Some(11)]
        );
        assert_eq!((Schedule::Max.due_by(5), Schedule::Max.is_paced()), (None, false));
    }
}
