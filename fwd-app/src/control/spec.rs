//! What a session is told at its start, as plain values.

use super::Session;
use crate::engines::EngineSpec;
use crate::topology::{QueueMap, Settings, TopologyKind};
use fib::Isa;
use std::path::PathBuf;

/// Which routes, and which engine looks them up.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    /// Files of routes, in their order.
    pub(crate) files: Vec<PathBuf>,
    /// More routes than this are refused.
    pub(crate) routes_max: Option<u64>,
    /// The engine.
    pub(crate) engine: EngineSpec,
}

/// Keys of a batch at most.
pub(crate) const BATCH_MAX: u32 = 65_536;
/// Keys of a GPU engine's batch unless told: a call to the driver costs a few microseconds whatever it carries, so a burst is too
/// little; a thousand packets of 10 Mpps come within the time that a round trip takes anyway.
const GPU_BATCH: u32 = 1024;

/// How packets are to be forwarded. What is not told follows from the engine.
#[derive(Clone, Debug)]
pub(crate) struct ForwardSpec {
    /// Which lcore serves which queue.
    pub(crate) config: Option<QueueMap>,
    /// Which stages share an lcore.
    pub(crate) topology: Option<TopologyKind>,
    /// Packets taken from a queue at once, at most.
    pub(crate) rx_burst: u16,
    /// Keys handed to the engine at once, at most.
    pub(crate) batch: Option<u32>,
    /// Longest wait for a batch to fill, microseconds.
    pub(crate) flush_us: u32,
}

impl ForwardSpec {
    /// The topology: a GPU engine gets a pipeline unless told otherwise.
    pub(crate) fn topology(&self, engine: &EngineSpec) -> TopologyKind {
        let suits =
            || if engine.drives_gpu() { TopologyKind::Pipeline } else { TopologyKind::RunToCompletion };
        self.topology.unwrap_or_else(suits)
    }

    /// Everything, for the engine of `session`.
    pub(crate) fn settings(&self, session: &Session) -> Settings {
        let burst = u32::from(self.rx_burst);
        let suits = || match session.batch_measured() {
            _ if !session.spec().drives_gpu() => burst,
            Some(measured) => measured.clamp(1, BATCH_MAX),
            None => GPU_BATCH.max(burst),
        };
        Settings {
            topology: self.topology(session.spec()),
            rx_burst: self.rx_burst,
            batch: usize::try_from(self.batch.unwrap_or_else(suits)).unwrap_or(usize::MAX),
            flush_us: self.flush_us,
            isa: session.spec().options.isa.unwrap_or_else(Isa::detect),
        }
    }
}
