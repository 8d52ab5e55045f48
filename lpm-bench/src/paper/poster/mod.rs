//! `lpm-bench paper poster`.

use super::Paper;

/// In the order in which they are made.
pub(super) const PAPER: Paper = Paper {
    title: "GR, which the GAMT paper calls GALE (a poster)",
    claims: include_str!("../claims/poster.txt"),
    generated: &[("generated-2013", "v4=450752")],
    has_updates: false,
    beside: |_| Ok(Vec::new()),
    known: &[],
};
