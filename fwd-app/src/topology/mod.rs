//! Topologies: which stage runs on which lcore. An lcore polls its stages round robin.
//!
//! | module | what lives there |
//! |---|---|
//! | [`stage`] | [`Stage`]: what an lcore polls, and what is left of it at the end |
//! | [`queue_map`] | [`QueueMap`]: which lcore serves which RX queue |
//! | [`queue_spec`] | [`QueueSpec`]: `--config` before ports and lcores are known |
//! | [`plan`] | maps `--config` and the lcores of EAL to the jobs of each lcore; pure, tested without DPDK |
//! | [`run_to_completion`] | one stage that takes the packets of its queues from rx to tx |
//! | [`pipeline`] | rx, engine and tx stages, and the batches that travel between them |
//! | [`punts`] | the rings between the stages and the router |
//! | [`lcores`] | builds the stages of a plan |
//! | [`running`] | runs stages on lcores, stops all of them when one panics, collects their counters |
//! | [`handle`] | [`Handle`]: what other threads do with running stages |
//!
//! [`Settings`] are the sizes that all topologies share, [`Totals`] the sum of the counters of all stages.

pub(crate) mod handle;
pub(crate) mod lcores;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod punts;
pub(crate) mod queue_map;
pub(crate) mod queue_spec;
#[cfg(test)]
mod rounding_test;
pub(crate) mod run_to_completion;
pub(crate) mod running;
mod stage;

pub(crate) use handle::Handle;
pub(crate) use queue_map::{QueueLcore, QueueMap};
pub(crate) use queue_spec::QueueSpec;
pub(crate) use stage::{Stage, StageOutcome, StageProgress};

/// The stages of one lcore.
pub(crate) type Stages = Vec<Box<dyn Stage>>;

use crate::datapath::rx::RxLimits;
use crate::datapath::{Counters, Latency};
use fib::Isa;
use std::sync::atomic::{AtomicU8, Ordering};

/// The ways of distributing stages over lcores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyKind {
    /// Every lcore takes the packets of its queues all the way from RX to TX.
    RunToCompletion,
    /// RX, engine and TX stages each have lcores of their own.
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

/// The forwarding settings, with all defaults resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Which stages share an lcore.
    pub(crate) topology: TopologyKind,
    /// Most packets received from a queue by one poll.
    pub(crate) rx_burst: u16,
    /// Most keys submitted to the engine at once.
    pub(crate) batch: usize,
    /// Longest wait for a batch to fill, microseconds.
    pub(crate) flush_us: u32,
    /// The instruction set of the header checks.
    pub(crate) isa: Isa,
    /// What bursts and batches are multiples of, a power of two.
    pub(crate) multiple: u16,
    /// Most fragments that a sending stage makes in about a millisecond; `None` makes all.
    pub(crate) fragments_max: Option<u32>,
}

/// Vector functions of drivers round a burst down to a multiple of 8 (ice, i40e and iavf with AVX2, ixgbe to one of 4), so they receive
/// nothing into less room.
const DEVICE_MULTIPLE: u16 = 8;

impl Settings {
    /// As drivers of devices want them: bursts and batches are the next multiples of 8.
    pub(crate) fn of_devices(self) -> Self {
        let (rx_burst, batch) = (self.rx_burst, self.batch.next_multiple_of(DEVICE_MULTIPLE.into()));
        Self {
            rx_burst: rx_burst.next_multiple_of(DEVICE_MULTIPLE),
            batch,
            multiple: DEVICE_MULTIPLE,
            ..self
        }
    }

    /// The limits of an RX stage; the time stamp counter runs at `tsc_hz`.
    pub(crate) fn limits(self, tsc_hz: u64) -> RxLimits {
        let flush_cycles = tsc_hz / 1_000_000 * u64::from(self.flush_us);
        RxLimits { burst: self.rx_burst, batch: self.batch, flush_cycles, multiple: self.multiple }
    }
}

/// The counters of all stages together.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The counters.
    pub(crate) counters: Counters,
    /// The latencies, rx to tx.
    pub(crate) latency: Latency,
    /// Packets still in the forwarder.
    pub(crate) held: u64,
}

impl Totals {
    /// The sum of `outcomes`; the time stamp counter runs at `tsc_hz`.
    pub(crate) fn new(outcomes: &[StageOutcome], tsc_hz: u64) -> Self {
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

/// What receiving stages do, which they look at each turn. The control side decides, or an lcore whose stage has panicked.
#[derive(Debug, Default)]
pub(crate) struct StageControl(AtomicU8);

const PAUSED: u8 = 1;
const STOPPING: u8 = 2;

impl StageControl {
    /// Stops receiving; packets already received are drained.
    pub(crate) fn stop_rx(&self) {
        self.0.store(STOPPING, Ordering::Release);
    }

    /// Pauses receiving, or goes on with it, unless it is to stop.
    pub(crate) fn pause(&self, pauses: bool) {
        let [from, to] = if pauses { [0, PAUSED] } else { [PAUSED, 0] };
        // Fails when it is so already, or is to stop.
        let _ = self.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    /// Whether receiving pauses.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PAUSED
    }

    /// Whether receiving is to stop.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STOPPING
    }
}
