//! Statistics of a streamed trace in the report.

use serde::Serialize;
use std::fmt;

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

impl fmt::Display for StreamReport {
    /// Appended to the line on the trace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waits, waited_s, waited_max_s, error, .. } = self;
        if error.is_some() {
            f.write_str("; the replay ended before it was read completely")?;
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
