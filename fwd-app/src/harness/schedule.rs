//! When each packet is meant to be sent.
//!
//! Latency under a rate counts from here and not from when the harness got round to it: a forwarder that holds the harness
//! up must not thereby shorten its own latencies (coordinated omission).

use super::trace::Trace;
use std::fmt;

/// The unit of a rate on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateUnit {
    /// Packets a second.
    Pps,
    /// Bits of frames a second.
    Bps,
    /// Parts of a hundred of the rate that the forwarder takes without loss.
    Percent,
}

/// How fast a replayed trace is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OfferedRate {
    /// As fast as the forwarder takes it.
    Max,
    /// So many packets a second, evenly spaced.
    Pps(f64),
    /// So many bits of frames a second, as packets of the trace's mean size, evenly spaced.
    Bps(f64),
    /// So much of the rate that the forwarder takes without loss, evenly spaced.
    Percent(f64),
    /// From one rate, evenly rising or falling, to another.
    Between(f64, f64, RateUnit),
    /// At this multiple of the speed that the capture's own timestamps say; 1.0 is `original`.
    Times(f64),
}

impl fmt::Display for OfferedRate {
    /// As `--rate` takes it.
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
    /// Whether the rate that the forwarder takes without loss must be known first.
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::Percent(_) | Self::Between(_, _, RateUnit::Percent))
    }
}

/// How fast packets are offered, with all that was unknown on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As fast as the forwarder takes them.
    Max,
    /// Packets a second: from one rate to another within a time, which is then kept.
    Even {
        /// At the start.
        from_pps: f64,
        /// After the rise.
        pps: f64,
        /// How long the rate rises, or falls, seconds.
        rise_s: f64,
    },
    /// As the source says: by the capture's times, or by the bits of frames that are read meanwhile.
    Traced,
}

impl Pace {
    /// So many packets a second, evenly spaced.
    pub(crate) fn even(pps: f64) -> Self {
        Self::Even { from_pps: pps, pps, rise_s: 0.0 }
    }

    /// What remains of it after so many seconds.
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

    /// Packets of the first so many seconds; `None` where the trace or the forwarder decides that.
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

/// A rate that changes evenly from one value to another and stays there; all of it in one unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rise {
    from: f64,
    to: f64,
    time: f64,
}

impl Rise {
    /// How many packets are due in the first `time`.
    fn count(&self, time: f64) -> f64 {
        let rising = time.min(self.time);
        let risen = if self.time > 0.0 { (self.to - self.from) * rising / self.time } else { 0.0 };
        (self.from + risen / 2.0) * rising + self.to * (time - rising)
    }

    /// When packet `number` is due: the inverse.
    fn due(&self, number: f64) -> f64 {
        let rising = (self.from + self.to) / 2.0 * self.time;
        if number >= rising {
            return self.time + (number - rising) / self.to;
        }
        // from * t + (to - from) / (2 * time) * t * t == number, without the difference of nearly equal numbers.
        let slope = 2.0 * (self.to - self.from) / self.time;
        2.0 * number / (self.from + (self.from * self.from + slope * number).sqrt()).max(f64::MIN_POSITIVE)
    }
}

/// The intended send times of packets, in cycles from the start of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schedule {
    /// At once, as fast as they are taken.
    Max,
    /// By a rate, packets a cycle.
    Even(Rise),
    /// As the source says of each.
    Traced,
}

impl Schedule {
    /// The schedule of `pace`, on a clock of `tsc_hz`.
    #[expect(clippy::cast_precision_loss, reason = "a clock's rate is below 2^53")]
    pub(crate) fn new(pace: Pace, tsc_hz: u64) -> Self {
        let hz = tsc_hz as f64;
        match pace {
            Pace::Max => Self::Max,
            Pace::Even { from_pps, pps, rise_s } => {
                Self::Even(Rise { from: from_pps / hz, to: pps / hz, time: rise_s * hz })
            }
            Pace::Traced => Self::Traced,
        }
    }

    /// When packet `number` of the trial is meant to be sent, of which the source says `traced`; 0 at full speed.
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

    /// How many packets of the trial are due within `cycles`; `None` where the source or the forwarder decides that.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53 packets and cycles, and not negative"
    )]
    pub(crate) fn due_by(&self, cycles: u64) -> Option<u64> {
        match self {
            // The first is due at 0.
            Self::Even(rise) => Some(rise.count(cycles as f64) as u64 + 1),
            Self::Max | Self::Traced => None,
        }
    }

    /// Whether packets have times at all.
    pub(crate) fn is_paced(&self) -> bool {
        !matches!(self, Self::Max)
    }
}

/// When the frames of a trace in memory are due, by the capture's own times.
#[derive(Clone, Debug)]
pub(crate) struct TraceTimes {
    /// Offset of each frame from the first, cycles.
    offsets: Vec<u64>,
    /// From the first frame of a loop to the first of the next.
    loop_cycles: u64,
}

impl TraceTimes {
    /// Of `trace`, at `factor` times its speed, on a clock of `tsc_hz`.
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
        // The next loop follows the last packet by the mean gap.
        let gap = last / (trace.len() as u64 - 1).max(1);
        Self { offsets, loop_cycles: last + gap }
    }

    /// When frame `frame` of loop `turn` is due, cycles from the first one.
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
        let pace = Pace::Even { from_pps: 100.0, pps: 300.0, rise_s: 4.0 };
        assert_eq!(pace.after(1.0), Pace::Even { from_pps: 150.0, pps: 300.0, rise_s: 3.0 });
        assert_eq!(pace.after(4.0), Pace::even(300.0));
        assert_eq!(Pace::Max.after(1.0), Pace::Max);
        assert_eq!(
            [0.0, 1.0, 4.0, 5.0].map(|s| pace.packets(s)),
            [Some(0), Some(125), Some(800), Some(1100)]
        );
        assert_eq!(Pace::Traced.packets(1.0), None);
    }

    #[test]
    fn packets_are_due_when_they_are_counted() {
        let schedule = Schedule::new(Pace::even(1e6), 1_000_000_000);
        assert_eq!([0, 1, 1000].map(|number| schedule.due(number, 0)), [0, 1000, 1_000_000]);
        assert_eq!(
            [0, 999, 1001, 10_001].map(|cycles| schedule.due_by(cycles)),
            [Some(1), Some(1), Some(2), Some(11)]
        );
        assert_eq!((Schedule::Max.due_by(5), Schedule::Max.is_paced()), (None, false));
    }
}
