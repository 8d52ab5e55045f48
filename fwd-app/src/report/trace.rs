//! The packets of a replay in its report: their file, generated or changed packets, and statistics of a streamed trace.

use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TraceReport {
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) made: MadeReport,
    pub(crate) packets: usize,
    /// Packets captured shorter than they were on the wire.
    pub(crate) snapped: usize,
    /// Planned passes; with a duration, the passes made.
    pub(crate) loops: u64,
    pub(crate) rate: String,
    /// Unmeasured time at the start, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warmup_s: Option<f64>,
    /// The loss-free rate that a rate in percent refers to, packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lossless_pps: Option<f64>,
    /// `ready mbufs`; `copies` if the output was observed or packets were paced; `the file` for a streamed trace.
    pub(crate) packets_from: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<StreamReport>,
    pub(crate) fed: u64,
    /// `None` with ready mbufs, which need no feeder.
    pub(crate) feeder: Option<FeederReport>,
}

/// The feeder of a replay, which also takes the packets that leave.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FeederReport {
    /// The feeder bounds the rate; the forwarder may be faster.
    pub(crate) is_bound: bool,
    /// Packets a second of the feeder's working time; at least this if it had to wait.
    pub(crate) alone_pps: Option<f64>,
    /// Part of the time in which more packets were due and had room than the feeder could feed.
    pub(crate) limit_ratio: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MadeReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generated: Option<GeneratedReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<SizesReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remapped: Option<RemappedReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct GeneratedReport {
    pub(crate) kind: String,
    pub(crate) seed: u64,
    pub(crate) packets: usize,
    /// Percent of the packets, or of the flows, that were IPv6.
    pub(crate) v6_share: u8,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SizesReport {
    pub(crate) mix: String,
    pub(crate) seed: u64,
    pub(crate) longer: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemappedReport {
    pub(crate) seed: u64,
    pub(crate) packets: u64,
}

impl fmt::Display for MadeReport {
    /// Appended to the source of the packets; empty without generated packets or changes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(GeneratedReport { seed, .. }) = &self.generated {
            write!(f, ", seed {seed}")?;
        }
        if let Some(SizesReport { mix, .. }) = &self.sizes {
            write!(f, ", sizes {mix}")?;
        }
        if let Some(SizesReport { longer: longer @ 1.., .. }) = &self.sizes {
            write!(f, " ({longer} longer)")?;
        }
        match &self.remapped {
            Some(RemappedReport { packets, .. }) => write!(f, ", {packets} packets remapped"),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamReport {
    /// Times that a packet was due (at full speed: had room) and had not been read yet.
    pub(crate) waits: u64,
    /// Sum of the waits, seconds.
    pub(crate) waited_s: f64,
    /// Longest wait, seconds.
    pub(crate) waited_max_s: f64,
    /// Most chunks, of up to 4 MB each, with packets in the forwarder at one time.
    pub(crate) chunks_max: usize,
    pub(crate) error: Option<String>,
}

impl fmt::Display for FeederReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_bound, alone_pps, limit_ratio } = *self;
        let mpps = alone_pps.unwrap_or(0.0) / 1e6;
        write!(f, "{mpps:.3} Mpps alone, at its limit {:.0} % of the time", limit_ratio * 100.0)?;
        f.write_str(if is_bound { ": BOUND BY THE FEEDER, the forwarder may be faster" } else { "" })
    }
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waits, waited_s, waited_max_s, error, .. } = self;
        if error.is_some() {
            f.write_str("; reading it failed, which ended the replay early")?;
        }
        if *waits == 0 {
            return f.write_str("; it was always read in time");
        }
        write!(
            f,
            "; it was read late {waits} times, by {waited_s:.3} s together and {:.3} ms at most",
            waited_max_s * 1e3
        )
    }
}
