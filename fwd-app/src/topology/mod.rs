//! Which stage runs where. A stage is a small state machine with a `poll()`; an lcore polls a list of them round robin.
//!
//! | module | what lives there |
//! |---|---|
//! | [`plan`] | from `--config` and the lcores there are to a list of jobs an lcore: pure, tested without DPDK |
//! | [`run_to_completion`] | one stage that takes its queues' packets from rx to tx |
//! | [`pipeline`] | rx, engine and tx stages, with batches travelling between them |
//! | [`lcores`] | builds the stages of a plan |
//! | [`running`] | runs lists of stages on lcores, ends all when one panics, collects what they counted |

pub(crate) mod lcores;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod run_to_completion;
pub(crate) mod running;
#[cfg(test)]
pub(crate) mod test_lcores;

use crate::datapath::{Counters, Latency};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a poll did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Packets moved.
    Worked,
    /// There was nothing to do.
    Idle,
    /// There will never be anything to do again: the stage is drained.
    Done,
}

/// A part of the forwarder that runs on one lcore.
pub(crate) trait Stage: Send {
    /// Does a little work, never waits.
    fn poll(&mut self) -> Progress;

    /// What it counted, when it is done or has panicked; its queues are given back.
    fn finish(self: Box<Self>) -> Outcome;
}

/// What a stage leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Everything it counted.
    pub(crate) counters: Counters,
    /// What it recorded, if it sends.
    pub(crate) latency: Option<Latency>,
    /// Packets that it still held; 0 when it was done.
    pub(crate) held: u64,
}

/// The one thing that stages are told: by the control side, or by an lcore whose stage panicked.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop_rx: AtomicBool,
}

impl Control {
    /// Nothing more is received from now on; what has been is drained.
    pub(crate) fn stop_rx(&self) {
        self.stop_rx.store(true, Ordering::Release);
    }

    /// Whether nothing more is to be received.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_rx.load(Ordering::Relaxed)
    }
}
