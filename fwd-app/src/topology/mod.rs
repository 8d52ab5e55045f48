//! Topologies: the mapping of stages to lcores. An lcore polls its stages round robin.
//!
//! | module | purpose |
//! |---|---|
//! | [`stage`] | [`Stage`]: unit of work that an lcore polls, and its outcome |
//! | [`queue_map`] | [`QueueMap`]: which lcore serves which RX queue |
//! | [`queue_spec`] | [`QueueSpec`]: `--config` before ports and lcores are known |
//! | [`plan`] | maps `--config` and the lcores of EAL to the jobs of each lcore; pure, tested without DPDK |
//! | [`run_to_completion`] | one stage that takes the packets of its queues from rx to tx |
//! | [`pipeline`] | rx, engine and tx stages, and the batches that travel between them |
//! | [`punts`] | the rings between the stages and the router |
//! | [`lcores`] | builds the stages of a plan |
//! | [`running`] | runs stages on lcores, stops them when one panics, collects their counters |
//! | [`handle`] | [`Handle`]: access of other threads to running stages |

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

pub(crate) type Stages = Vec<Box<dyn Stage>>;

use crate::datapath::rx::RxLimits;
use crate::datapath::{Counters, Latency};
use fib::Isa;
use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyKind {
    /// Every lcore takes the packets of its queues from RX to TX.
    RunToCompletion,
    /// The same with several batches in the engine, by a pipeline on each lcore. For engines on a device.
    InFlight,
    /// RX, engine and TX are separate stages, on separate lcores where possible.
    Pipeline,
}

impl TopologyKind {
    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion | Self::InFlight => "run-to-completion",
            Self::Pipeline => "pipeline",
        }
    }
}

/// The forwarding settings, with all defaults resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) topology: TopologyKind,
    pub(crate) rx_burst: u16,
    pub(crate) batch: usize,
    pub(crate) flush_us: u32,
    /// Instruction set of the header checks.
    pub(crate) isa: Isa,
    /// Bursts and batches are multiples of this power of two.
    pub(crate) multiple: u16,
    /// Most fragments per sending stage in about a millisecond; `None` is unlimited.
    pub(crate) fragments_max: Option<u32>,
}

/// Vector functions of drivers round a burst down to a multiple of 8 (ice, i40e, iavf with AVX2; ixgbe: 4) and receive nothing into less.
const DEVICE_MULTIPLE: u16 = 8;

impl Settings {
    pub(crate) fn of_devices(self) -> Self {
        let (rx_burst, batch) = (self.rx_burst, self.batch.next_multiple_of(DEVICE_MULTIPLE.into()));
        Self {
            rx_burst: rx_burst.next_multiple_of(DEVICE_MULTIPLE),
            batch,
            multiple: DEVICE_MULTIPLE,
            ..self
        }
    }

    pub(crate) fn limits(self, tsc_hz: u64) -> RxLimits {
        let flush_cycles = tsc_hz / 1_000_000 * u64::from(self.flush_us);
        let is_eager = self.topology == TopologyKind::InFlight;
        RxLimits { burst: self.rx_burst, batch: self.batch, flush_cycles, is_eager, multiple: self.multiple }
    }
}

#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    pub(crate) latency: Latency,
    pub(crate) held: u64,
}

impl Totals {
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

/// State of receiving, polled by the receiving stages. Set by the control side, or by an lcore whose stage has panicked.
#[derive(Debug, Default)]
pub(crate) struct StageControl(AtomicU8);

const PAUSED: u8 = 1;
const STOPPING: u8 = 2;

impl StageControl {
    /// Stops receiving; packets already received are drained.
    pub(crate) fn stop_rx(&self) {
        self.0.store(STOPPING, Ordering::Release);
    }

    /// Pauses or resumes receiving; no effect after [`Self::stop_rx`].
    pub(crate) fn pause(&self, pauses: bool) {
        let [from, to] = if pauses { [0, PAUSED] } else { [PAUSED, 0] };
        // Fails when the state is already set, or when receiving is to stop.
        let _ = self.0.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PAUSED
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STOPPING
    }
}
