//! The engine in the report: its table, what was applied to it, and its fallback.

use crate::routes::Vrf;
use crate::topology::Handle;
use lpm_core::memory::{self, Mapped};
use lpm_core::pair::{FIRST, Service};
use serde::Serialize;

/// The engine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EngineReport {
    /// Its name; of the one in service, with a fallback.
    pub(crate) name: &'static str,
    /// Why `--engine auto` stands for it; `None` when the user named an engine.
    pub(crate) auto: Option<&'static str>,
    /// The instruction set of its lookups; `ptx` on a GPU, `ptx+avx512f` for `coop` over a GPU and the CPU.
    pub(crate) isa: String,
    /// Memory that lookups read, bytes.
    pub(crate) table_bytes: u64,
    /// Memory of tables of the engine that were replaced and not freed yet, since an lcore may still read them, bytes.
    pub(crate) retired_bytes: u64,
    /// The same of egress tables.
    pub(crate) retired_egress_bytes: u64,
    /// What the memory of all tables and their copies lies in.
    pub(crate) pages: PagesReport,
    /// IPv4 routes.
    pub(crate) routes_v4: u64,
    /// IPv6 routes.
    pub(crate) routes_v6: u64,
    /// The generation in service at the end.
    pub(crate) generation: u64,
    /// Generations applied while packets flowed.
    pub(crate) generations_applied: u64,
    /// Updates in them.
    pub(crate) updates_applied: u64,
    /// Why the update stream ended before its time; what came before stays in service.
    pub(crate) update_error: Option<String>,
    /// Time to read the route files, seconds.
    pub(crate) load_s: f64,
    /// Time to build the table, seconds.
    pub(crate) build_s: f64,
    /// What went wrong first when packets were looked up; their packets are dropped as `engine_stall`.
    pub(crate) error: Option<String>,
    /// With `--fallback`, how that went.
    pub(crate) fallback: Option<FallbackReport>,
}

/// The pages that CPU tables of a megabyte and more lie in, bytes of each kind.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PagesReport {
    /// Reserved pages of 2 MB.
    pub(crate) huge_bytes: u64,
    /// Where the kernel was asked for transparent huge pages.
    pub(crate) transparent_bytes: u64,
    /// Pages of 4 KB.
    pub(crate) small_bytes: u64,
}

impl PagesReport {
    /// As it is now.
    fn new() -> Self {
        let Mapped { huge_bytes, transparent_bytes, small_bytes } = memory::mapped();
        Self { huge_bytes, transparent_bytes, small_bytes }
    }

    /// The kinds there are, for people.
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

/// The engine behind the engine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FallbackReport {
    /// The engine that was to answer.
    pub(crate) engine: &'static str,
    /// The one behind it.
    pub(crate) fallback: &'static str,
    /// Whether the one behind it is in service.
    pub(crate) in_service: bool,
    /// Why.
    pub(crate) reason: Option<String>,
    /// Packets that were in flight then and were looked up again.
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
    /// Of the engine of `vrf` as it is now, which the lcores of `running` use.
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
