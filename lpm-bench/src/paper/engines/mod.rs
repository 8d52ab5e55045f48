//! `lpm-bench paper engines`.

use super::Paper;

/// In the order in which they are made.
pub(super) const PAPER: Paper = Paper {
    title: "Every engine and DPDK's own tables on the same keys",
    claims: "",
    generated: &[("generated-2024", "v4=950000,v6=200000")],
    has_updates: true,
    beside: |_| Ok(Vec::new()),
    known: &[],
};
