//! Which stage runs where. A stage is a small state machine with a `poll()`; an lcore polls a list of them round robin.
//!
//! | module | what lives there |
//! |---|---|
//! | [`queue_map`] | which lcore serves which RX queue |
//! | [`plan`] | from `--config` and the lcores there are to a list of jobs an lcore: pure, tested without DPDK |
//! | [`run_to_completion`] | one stage that takes its queues' packets from rx to tx |
//! | [`pipeline`] | rx, engine and tx stages, with batches travelling between them |
//! | [`lcores`] | builds the stages of a plan |
//! | [`running`] | runs lists of stages on lcores, ends all when one panics, collects what they counted |
//!
//! [`Settings`] are the sizes that all topologies share, [`Totals`] the sum of what the stages counted.

pub(crate) mod lcores;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod queue_map;
pub(crate) mod run_to_completion;
pub(crate) mod running;

pub(crate) use queue_map::{QueueLcore, QueueMap};

use crate::datapath::rx::RxLimits;
use crate::datapath::{Counters, Latency};
use fib::Isa;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which stage runs on which lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyKind {
    /// Every lcore takes its queues' packets all the way from RX to TX.
    RunToCompletion,
    /// RX, engine and TX each on lcores of their own.
    Pipeline,
}

impl TopologyKind {
    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Pipeline => "pipeline",
        }
    }
}

/// How packets are forwarded, everything decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Which stages share an lcore.
    pub(crate) topology: TopologyKind,
    /// Packets taken from a queue at once, at most.
    pub(crate) rx_burst: u16,
    /// Keys handed to the engine at once, at most.
    pub(crate) batch: usize,
    /// Longest wait for a batch to fill, microseconds.
    pub(crate) flush_us: u32,
    /// The instruction set of the header checks.
    pub(crate) isa: Isa,
}

impl Settings {
    /// The limits of an RX stage on a clock of `tsc_hz`.
    pub(crate) fn limits(self, tsc_hz: u64) -> RxLimits {
        let flush_cycles = tsc_hz / 1_000_000 * u64::from(self.flush_us);
        RxLimits { burst: self.rx_burst, batch: self.batch, flush_cycles }
    }
}

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

/// What all stages counted together.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The counters.
    pub(crate) counters: Counters,
    /// The latencies, rx to tx.
    pub(crate) latency: Latency,
    /// Packets still inside.
    pub(crate) held: u64,
}

impl Totals {
    /// The sum of `outcomes`, on a clock of `tsc_hz`.
    pub(crate) fn new(outcomes: &[Outcome], tsc_hz: u64) -> Self {
        let mut totals = Self { counters: Counters::default(), latency: Latency::new(tsc_hz), held: 0 };
        for outcome in outcomes {
            totals.counters.merge(&outcome.counters);
            totals.held += outcome.held;
            if let Some(latency) = &outcome.latency {
                totals.latency.merge(latency);
            }
        }
        totals
    }
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
