//! What a replay made: packets, or changes to those of a trace.

use serde::Serialize;
use std::fmt;

/// What was made, or changed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MadeReport {
    /// The packets, if there was no trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generated: Option<GeneratedReport>,
    /// Sizes, where they were said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<SizesReport>,
    /// Destinations, where they were mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remapped: Option<RemappedReport>,
}

/// Packets that were made.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GeneratedReport {
    /// Of which kind, as `--generate` takes it.
    pub(crate) kind: String,
    /// What they were drawn from.
    pub(crate) seed: u64,
    /// How many.
    pub(crate) packets: usize,
    /// Percent of them, or of their flows, that were IPv6.
    pub(crate) v6_share: u8,
}

/// Sizes of frames.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SizesReport {
    /// The mix, as `--sizes` takes it.
    pub(crate) mix: String,
    /// What their order was drawn from.
    pub(crate) seed: u64,
    /// Packets that were longer than their size, since their headers were.
    pub(crate) longer: u64,
}

/// Destinations that became addresses of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RemappedReport {
    /// What they were drawn from.
    pub(crate) seed: u64,
    /// Packets that got another destination.
    pub(crate) packets: u64,
}

impl fmt::Display for MadeReport {
    /// What follows the source of the packets; nothing where nothing was made.
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
