//! A table's figures for `EngineStats::details`.

use crate::phase::PhaseTime;
use fib::Details;
use serde::Serialize;
use std::collections::BTreeMap;

/// Counters of a table's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GamtWork {
    /// Changes with an effect.
    pub updates: u64,
    /// Bubbles written to the device (figure 14); images have none.
    pub bubbles: u64,
    /// Next hops changed without a write to the device (GAMT_S).
    pub next_hop_updates: u64,
    /// Images after the first.
    pub rebuilds: u64,
    /// Tries built after the first: usually one for each image.
    pub builds: u64,
    /// Tries built in the background, which `builds` includes.
    pub early_builds: u64,
    /// Deltas without room that waited for such a trie.
    pub early_waits: u64,
    /// Empty nodes unlinked because their level ran short.
    pub collapsed_nodes: u64,
}

/// Reported as `gamt_NAME_FAMILY`.
#[derive(Serialize)]
pub(super) struct GamtFigures {
    pub(super) levels: usize,
    pub(super) array_width: u32,
    pub(super) units: u64,
    pub(super) units_used: u64,
    /// 1 while a thread builds the next trie, and until it is adopted.
    pub(super) building: u8,
    pub(super) bytes_per_prefix_paper: f64,
    pub(super) bytes_per_prefix_flat: f64,
    #[serde(flatten)]
    pub(super) work: GamtWork,
    /// `stride_N` for level N, from 1.
    #[serde(flatten)]
    pub(super) strides: BTreeMap<String, u8>,
}

/// Phases of a rebuild on the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GamtTimes {
    /// Lists the routes of the trie.
    pub(super) collect: PhaseTime,
    /// Chooses the strides.
    pub(super) plan: PhaseTime,
    /// Builds the trie, and frees the previous one.
    pub(super) build: PhaseTime,
    /// Replaces the trie by one that was built in the background, and frees it.
    pub(super) adopt: PhaseTime,
}

impl GamtTimes {
    pub(super) fn details(&self) -> Details {
        let Self { collect, plan, build, adopt } = self;
        let phases = [("collect", collect), ("plan", plan), ("build", build), ("adopt", adopt)];
        phases.map(|(name, time)| time.details(name)).into_iter().fold(Details::default(), Details::and)
    }
}
