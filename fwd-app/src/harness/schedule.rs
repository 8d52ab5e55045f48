//! When each packet is meant to be sent.
//!
//! Latency under a rate counts from here and not from when the harness got round to it: a forwarder that holds the harness
//! up must not thereby shorten its own latencies (coordinated omission).

use super::trace::Trace;
use std::fmt;

/// How fast a replayed trace is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum OfferedRate {
    /// As fast as the forwarder takes it.
    Max,
    /// So many packets a second, evenly spaced.
    Pps(f64),
    /// So many bits of frames a second, as packets of the trace's mean size, evenly spaced.
    Bps(f64),
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
            Self::Times(1.0) => f.write_str("original"),
            Self::Times(factor) => write!(f, "x{factor}"),
        }
    }
}

/// The intended send times of all packets, in cycles from the start. Packets are numbered over all loops.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// At once, as fast as they are taken.
    Max,
    /// Evenly.
    Even {
        /// Cycles between two packets.
        gap: f64,
    },
    /// As the capture's times say.
    Timed {
        /// Offset of each frame from the first, cycles.
        offsets: Vec<u64>,
        /// From the first frame of a loop to the first of the next.
        loop_cycles: u64,
    },
}

impl Schedule {
    /// The schedule of `trace` at `rate`, on a clock of `tsc_hz`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times of days in cycles fit 53 bits, and none is negative"
    )]
    pub(crate) fn new(trace: &Trace, rate: OfferedRate, tsc_hz: u64) -> Self {
        let hz = tsc_hz as f64;
        match rate {
            OfferedRate::Max => Self::Max,
            OfferedRate::Pps(pps) => Self::Even { gap: hz / pps },
            OfferedRate::Bps(bps) => {
                let bytes: usize = (0..trace.len()).map(|i| trace.frame(i).len()).sum();
                Self::Even { gap: hz * (bytes * 8) as f64 / trace.len().max(1) as f64 / bps }
            }
            OfferedRate::Times(factor) => {
                let first = trace.time_ns(0);
                let cycles = |ns: u64| (ns as f64 * hz / 1e9 / factor) as u64;
                let offsets: Vec<u64> = (0..trace.len()).map(|i| cycles(trace.time_ns(i) - first)).collect();
                let last = offsets.last().copied().unwrap_or(0);
                // The next loop follows the last packet by the mean gap.
                let gap = last / (trace.len() as u64 - 1).max(1);
                Self::Timed { offsets, loop_cycles: last + gap }
            }
        }
    }

    /// When packet `sequence`, frame `frame` of loop `turn`, is meant to be sent; 0 at full speed.
    #[inline]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^53 packets and cycles, and not negative"
    )]
    pub(crate) fn due(&self, sequence: u64, frame: usize, turn: u64) -> u64 {
        match self {
            Self::Max => 0,
            Self::Even { gap } => (sequence as f64 * gap) as u64,
            Self::Timed { offsets, loop_cycles } => offsets[frame] + turn * loop_cycles,
        }
    }
}
