//! Options of forwarding, as plain values.

use crate::datapath::tx::FRAGMENTS_MAX;
use crate::engines::EngineSpec;
use crate::routes::Vrf;
use crate::topology::{QueueSpec, Settings, TopologyKind};
use fib::Isa;

pub(crate) const BATCH_MAX: u32 = 65_536;
/// Default batch of a GPU engine, keys. A driver call costs a few microseconds for any size, so a burst is too small; at 10 Mpps a
/// thousand packets arrive within a round trip.
const GPU_BATCH: u32 = 1024;

/// Options of forwarding. `None` selects the default.
#[derive(Clone, Debug)]
pub(crate) struct ForwardSpec {
    pub(crate) config: Option<QueueSpec>,
    pub(crate) topology: Option<TopologyKind>,
    /// Most packets received from a queue by one poll.
    pub(crate) rx_burst: u16,
    /// Most keys submitted to the engine at once.
    pub(crate) batch: Option<u32>,
    /// Longest wait for a batch to fill, microseconds.
    pub(crate) flush_us: u32,
}

impl ForwardSpec {
    /// Run-to-completion by default, with batches in flight for a GPU engine.
    pub(crate) fn topology(&self, engine: &EngineSpec) -> TopologyKind {
        match self.topology {
            Some(TopologyKind::Pipeline) => TopologyKind::Pipeline,
            _ if engine.drives_gpu() => TopologyKind::InFlight,
            _ => TopologyKind::RunToCompletion,
        }
    }

    pub(crate) fn settings(&self, vrf: &Vrf) -> Settings {
        let burst = u32::from(self.rx_burst);
        let suits = || match vrf.engine.batch_measured() {
            _ if !vrf.engine.spec.drives_gpu() => burst,
            Some(measured) => measured.clamp(1, BATCH_MAX),
            None => GPU_BATCH.max(burst),
        };
        Settings {
            topology: self.topology(&vrf.engine.spec),
            rx_burst: self.rx_burst,
            batch: usize::try_from(self.batch.unwrap_or_else(suits)).unwrap_or(usize::MAX),
            flush_us: self.flush_us,
            isa: vrf.engine.spec.options.isa.unwrap_or_else(Isa::detect),
            multiple: 1,
            fragments_max: Some(FRAGMENTS_MAX),
        }
    }
}
