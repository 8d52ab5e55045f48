//! The exported state of a forwarder at one time, and its JSON.
//!
//! The keys equal those in `ctl --json`: of the report, `show rates`, `show queues` and `show feeds`.

use crate::forwarder::audit::AuditCounts;
use crate::forwarder::rates::Rates;
use crate::report::vrfs::VrfReports;
use crate::report::{EngineReport, LatencyNs, Packets};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BuildFacts {
    pub(crate) version: &'static str,
    /// Commit of the build; empty if unknown.
    pub(crate) commit: &'static str,
    pub(crate) dpdk: String,
}

impl BuildFacts {
    pub(crate) fn here() -> Self {
        let commit = option_env!("FWD_APP_COMMIT").unwrap_or_default();
        Self { version: env!("CARGO_PKG_VERSION"), commit, dpdk: dpdk_ffi::version() }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PortState {
    pub(crate) port: u16,
    pub(crate) name: String,
    pub(crate) is_up: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueTotals {
    pub(crate) port: u16,
    pub(crate) name: String,
    pub(crate) direction: &'static str,
    pub(crate) queue: u16,
    /// The lcore that polls or fills it.
    pub(crate) lcore: u32,
    pub(crate) packets: u64,
    /// Packets for which a TX queue had no room.
    pub(crate) refused: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct FeedTotals {
    pub(crate) feed: &'static str,
    pub(crate) name: String,
    pub(crate) vrf: String,
    pub(crate) state: &'static str,
    /// Whether its source is connected, or its tables are complete.
    pub(crate) is_up: bool,
    pub(crate) routes: u64,
    pub(crate) stale: u64,
    /// Connections of peers, or passes over the kernel's tables.
    pub(crate) sessions: u64,
    /// Connections of peers that may not announce routes.
    pub(crate) peers_refused: u64,
    pub(crate) messages: u64,
    /// Routes that cannot be represented.
    pub(crate) unsupported: u64,
    pub(crate) errors: u64,
    pub(crate) over_limit: u64,
    /// Times that the kernel dropped messages for lack of buffers.
    pub(crate) overruns: u64,
    /// Routes and next-hop objects that differed from the kernel's in a periodic comparison.
    pub(crate) repaired: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct VrfState {
    pub(crate) name: String,
    pub(crate) engine: EngineReport,
    pub(crate) routes_v4: usize,
    pub(crate) routes_v6: usize,
    pub(crate) refused: usize,
    pub(crate) next_hops: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct LatencyState {
    pub(crate) at: Instant,
    pub(crate) all_ns: LatencyNs,
    /// Since the previous collection.
    pub(crate) newest_ns: LatencyNs,
    /// Cumulative packets by bucket limit, in seconds as OpenMetrics text.
    pub(crate) buckets: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) started: SystemTime,
    pub(crate) tsc_hz: u64,
    pub(crate) is_paused: bool,
    pub(crate) rates: Arc<Rates>,
    /// By index.
    pub(crate) ports: Vec<PortState>,
    pub(crate) queues: Vec<QueueTotals>,
    /// By VRF number.
    pub(crate) vrfs: Vec<VrfState>,
    /// As in `ctl show vrfs`.
    pub(crate) vrf_reports: VrfReports,
    /// By VRF.
    pub(crate) feeds: Vec<FeedTotals>,
    pub(crate) neighbours: [usize; 2],
    pub(crate) audit: AuditCounts,
    /// `None` before the first collection.
    pub(crate) latency: Option<Arc<LatencyState>>,
}

impl Snapshot {
    pub(crate) fn age(&self) -> Duration {
        self.rates.age().unwrap_or_default()
    }

    /// Packet counts for the report; packets received and not yet gone count as held.
    pub(crate) fn packets(&self) -> Packets {
        Packets::new(&self.rates.counters, self.rates.counters.inside())
    }
}

#[derive(Serialize)]
struct SnapshotJson<'a> {
    #[serde(flatten)]
    build: BuildFacts,
    age_s: f64,
    uptime_s: f64,
    is_paused: bool,
    packets: Packets,
    rates: &'a Rates,
    ports: &'a [PortState],
    queues: &'a [QueueTotals],
    latency_ns: Option<&'a LatencyNs>,
    latency_newest_ns: Option<&'a LatencyNs>,
    latency_age_s: Option<f64>,
    engine: Option<&'a EngineReport>,
    vrfs: &'a VrfReports,
    feeds: &'a [FeedTotals],
    neighbours: usize,
    audit: AuditCounts,
}

impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let latency = self.latency.as_deref();
        SnapshotJson {
            build: BuildFacts::here(),
            age_s: self.age().as_secs_f64(),
            uptime_s: self.started.elapsed().unwrap_or_default().as_secs_f64(),
            is_paused: self.is_paused,
            packets: self.packets(),
            rates: &self.rates,
            ports: &self.ports,
            queues: &self.queues,
            latency_ns: latency.map(|latency| &latency.all_ns),
            latency_newest_ns: latency.map(|latency| &latency.newest_ns),
            latency_age_s: latency.map(|latency| latency.at.elapsed().as_secs_f64()),
            engine: self.vrfs.first().map(|vrf| &vrf.engine),
            vrfs: &self.vrf_reports,
            feeds: &self.feeds,
            neighbours: self.neighbours.iter().sum(),
            audit: self.audit,
        }
        .serialize(serializer)
    }
}
