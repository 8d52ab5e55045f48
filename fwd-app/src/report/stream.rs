//! How a trace was read that was not in memory.

use serde::Serialize;
use std::fmt;

/// How a trace was read while it was replayed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StreamReport {
    /// Times that a packet was due, or at full speed wanted, and had not been read yet.
    pub(crate) waits: u64,
    /// How long together, seconds.
    pub(crate) waited_s: f64,
    /// How long the longest of them was, seconds.
    pub(crate) waited_max_s: f64,
    /// Parts of the trace, of 4 MB each at most, of which packets were in the forwarder at one time, at most.
    pub(crate) chunks_max: usize,
    /// Why reading ended before its time, if it did.
    pub(crate) error: Option<String>,
}

impl fmt::Display for StreamReport {
    /// For the line on the trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waits, waited_s, waited_max_s, error, .. } = self;
        if error.is_some() {
            f.write_str("; reading it ended before its time")?;
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
