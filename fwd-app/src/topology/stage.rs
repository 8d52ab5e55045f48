//! A stage: a small state machine with a `poll()`, which runs on one lcore.

use crate::datapath::port_queues::PortQueues;
use crate::datapath::{Counters, Latency};

/// A busy stage that sends looks for packets of the router once in so many turns, an idle one at each.
pub(crate) const ORIGINATED_ONE_IN: u32 = 16;

/// A stage looks for newer tables once in so many turns, idle or not, and for tables that it has no packets for too: the control thread
/// frees a table that was replaced when no stage has it any more. That is every few milliseconds, and costs a few loads.
pub(crate) const REFRESH_ONE_IN: u32 = 4096;

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageProgress {
    /// Packets moved.
    Worked,
    /// There was nothing to do.
    Idle,
    /// The stage is drained: it will never have work again.
    Done,
}

/// A part of the forwarder that runs on one lcore.
pub(crate) trait Stage: Send {
    /// Does a bounded amount of work, never waits.
    fn poll(&mut self) -> StageProgress;

    /// Returns the counters so far, and the latencies, in whose place it goes on with `fresh`. Neither allocates nor frees.
    fn look(&mut self, fresh: Option<Latency>) -> StageOutcome;

    /// Gives its queues of a port to `queues`, or takes them from there if it has none. Neither allocates nor frees.
    fn exchange(&mut self, _queues: &mut PortQueues) {}

    /// Returns the counters, after the stage is done or has panicked, and releases its queues.
    fn finish(self: Box<Self>) -> StageOutcome;
}

/// The final state of a stage.
#[derive(Debug, Default)]
pub(crate) struct StageOutcome {
    /// Its counters.
    pub(crate) counters: Counters,
    /// Its latencies, if it sends.
    pub(crate) latency: Option<Latency>,
    /// Packets that it still held; 0 if it was done.
    pub(crate) held: u64,
}
