//! `lpm-bench paper sail`.

use super::Paper;

/// In the order in which they are made.
pub(super) const PAPER: Paper = Paper {
    title: "Guarantee IP Lookup Performance with FIB Explosion (SAIL, a part: from the end of 4.1 to 5.1)",
    claims: include_str!("../claims/sail.txt"),
    generated: &[("generated-2014", "v4=511000"), ("generated-2024", "v4=950000")],
    has_updates: false,
    beside: |_| Ok(Vec::new()),
    known: &[],
};
