//! Generated packets and changes to captured ones in the report of a replay.

use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MadeReport {
    /// Generated packets, unless there was a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generated: Option<GeneratedReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<SizesReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remapped: Option<RemappedReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct GeneratedReport {
    /// As in `--generate`.
    pub(crate) kind: String,
    pub(crate) seed: u64,
    pub(crate) packets: usize,
    /// Percent of the packets, or of the flows, that were IPv6.
    pub(crate) v6_share: u8,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SizesReport {
    /// As in `--sizes`.
    pub(crate) mix: String,
    /// Seed of their order.
    pub(crate) seed: u64,
    pub(crate) longer: u64,
}

/// Destinations mapped to addresses of the table.
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
