//! A stage: a small state machine with a `poll()`, which runs on one lcore.

use crate::datapath::port_queues::PortQueues;
use crate::datapath::{Counters, Latency};

/// Turns between two checks of a busy sending stage for packets of the router; an idle one checks at each turn.
pub(crate) const ORIGINATED_ONE_IN: u32 = 16;

/// Turns between two refreshes of all tables of a stage, idle or not: the control thread frees a replaced table only when no stage holds
/// it. That is every few milliseconds, at the cost of a few loads.
pub(crate) const REFRESH_ONE_IN: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageProgress {
    Worked,
    Idle,
    /// The stage is drained and will not have work again.
    Done,
}

pub(crate) trait Stage: Send {
    /// Does a bounded amount of work and never waits.
    fn poll(&mut self) -> StageProgress;

    /// Returns the counters so far, and the latencies, which `fresh` replaces. Neither allocates nor frees.
    fn snapshot(&mut self, fresh: Option<Latency>) -> StageOutcome;

    /// Exchanges the queues of a port: hands them over to `queues`, or takes them back. Neither allocates nor frees.
    fn exchange(&mut self, _queues: &mut PortQueues) {}

    /// Called after the stage is done or has panicked: returns the counters and releases the queues.
    fn finish(mut self: Box<Self>) -> StageOutcome {
        self.snapshot(None)
    }
}

#[derive(Debug, Default)]
pub(crate) struct StageOutcome {
    pub(crate) counters: Counters,
    /// Sending stages only.
    pub(crate) latency: Option<Latency>,
    /// Packets still held; 0 if it was done.
    pub(crate) held: u64,
}
