//! The engine in the report: table, applied updates, fallback.

use crate::routes::Vrf;
use crate::topology::Handle;
use lpm_core::memory::{self, Mapped};
use lpm_core::pair::{FIRST, Service};
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct EngineReport {
    pub(crate) name: &'static str,
    /// Why `--engine auto` selected it; `None` if the user named an engine.
    pub(crate) auto: Option<&'static str>,
    /// Instruction set of lookups; `ptx` on a GPU, `ptx+avx512f` for `coop` over a GPU and the CPU.
    pub(crate) isa: String,
    /// Memory read by lookups, bytes.
    pub(crate) table_bytes: u64,
    /// Replaced engine tables not freed yet because an lcore may still read them, bytes.
    pub(crate) retired_bytes: u64,
    /// Replaced egress tables not freed yet, bytes.
    pub(crate) retired_egress_bytes: u64,
    /// Page sizes of all tables and their copies.
    pub(crate) pages: PagesReport,
    pub(crate) routes_v4: u64,
    pub(crate) routes_v6: u64,
    pub(crate) generation: u64,
    pub(crate) generations_applied: u64,
    pub(crate) updates_applied: u64,
    /// Why the update stream stopped early; earlier updates stay in service.
    pub(crate) update_error: Option<String>,
    pub(crate) load_s: f64,
    pub(crate) build_s: f64,
    /// The first lookup error; affected packets are dropped as `engine_stall`.
    pub(crate) error: Option<String>,
    pub(crate) fallback: Option<FallbackReport>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PagesReport {
    /// Reserved pages of 2 MB.
    pub(crate) huge_bytes: u64,
    /// Regions for which transparent huge pages were requested.
    pub(crate) transparent_bytes: u64,
    pub(crate) small_bytes: u64,
}

impl PagesReport {
    fn new() -> Self {
        let Mapped { huge_bytes, transparent_bytes, small_bytes } = memory::mapped();
        Self { huge_bytes, transparent_bytes, small_bytes }
    }

    pub(crate) fn words(self) -> String {
        let kinds = [
            (self.huge_bytes, "2 MB pages"),
            (self.transparent_bytes, "transparent huge pages"),
            (self.small_bytes, "4 KB pages"),
        ];
        let there: Vec<_> = kinds.into_iter().filter(|(bytes, _)| *bytes > 0).map(|(_, name)| name).collect();
        there.join(" and ")
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct FallbackReport {
    pub(crate) engine: &'static str,
    pub(crate) fallback: &'static str,
    pub(crate) in_service: bool,
    pub(crate) reason: Option<String>,
    /// Packets in flight at the failover, which were looked up again.
    pub(crate) looked_up_again: u64,
}

impl FallbackReport {
    fn new(service: &Service) -> Self {
        let [engine, fallback] = service.names();
        let why = service.why()[FIRST];
        Self {
            engine,
            fallback,
            in_service: why.is_some(),
            reason: why.map(ToString::to_string),
            looked_up_again: service.looked_up_again(),
        }
    }
}

impl EngineReport {
    /// The current engine of `vrf`, as used by the lcores of `running`.
    pub(crate) fn new(vrf: &Vrf, running: &Handle) -> Self {
        let (engine, tally) = (vrf.engine(), vrf.tally);
        let stats = engine.stats();
        Self {
            name: engine.info().name,
            auto: vrf.engine.spec.auto_reason(),
            isa: engine.info().isa_name,
            table_bytes: stats.table_bytes,
            retired_bytes: stats.retired_bytes,
            retired_egress_bytes: vrf.egress.retired_bytes(),
            pages: PagesReport::new(),
            routes_v4: stats.routes_v4,
            routes_v6: stats.routes_v6,
            generation: engine.generation().0,
            generations_applied: tally.deltas,
            updates_applied: tally.updates,
            update_error: None,
            load_s: tally.load_s,
            build_s: tally.build_s,
            error: running.fault().first().map(ToString::to_string),
            fallback: vrf.engine.failover.as_deref().map(FallbackReport::new),
        }
    }
}
