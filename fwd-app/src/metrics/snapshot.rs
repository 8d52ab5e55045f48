//! What is exported: the state of a forwarder at one moment, and its JSON.
//!
//! The keys of the JSON are those of `ctl --json`: `packets`, `latency_ns`, `engine` and `vrfs` as in the report, `rates` as in `show rates`,
//! `queues` as in `show queues`, `feeds` as in `show feeds`.

use crate::forwarder::rates::Rates;
use crate::report::vrfs::VrfReports;
use crate::report::{EngineReport, LatencyNs, Packets};
use serde::{Serialize, Serializer};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// This program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BuildFacts {
    /// Its version.
    pub(crate) version: &'static str,
    /// The commit that it was built from; empty where that is not known.
    pub(crate) commit: &'static str,
    /// DPDK's version.
    pub(crate) dpdk: String,
}

impl BuildFacts {
    /// Of this program.
    pub(crate) fn here() -> Self {
        let commit = option_env!("FWD_APP_COMMIT").unwrap_or_default();
        Self { version: env!("CARGO_PKG_VERSION"), commit, dpdk: dpdk_ffi::version() }
    }
}

/// A port, beside what its driver counts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PortState {
    /// Its index.
    pub(crate) port: u16,
    /// Its name.
    pub(crate) name: String,
    /// Whether its link is up.
    pub(crate) is_up: bool,
}

/// The counts of a queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueTotals {
    /// The port's index.
    pub(crate) port: u16,
    /// The port's name.
    pub(crate) name: String,
    /// `rx` or `tx`.
    pub(crate) direction: &'static str,
    /// The queue of the port.
    pub(crate) queue: u16,
    /// The lcore that uses it.
    pub(crate) lcore: u32,
    /// Packets received or sent.
    pub(crate) packets: u64,
    /// Packets for which a TX queue had no room.
    pub(crate) refused: u64,
}

/// A feed, and its routes in one VRF.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FeedTotals {
    /// Its kind.
    pub(crate) feed: &'static str,
    /// Its address.
    pub(crate) name: String,
    /// The VRF.
    pub(crate) vrf: String,
    /// Its state, in a word.
    pub(crate) state: &'static str,
    /// Whether its source is there.
    pub(crate) is_up: bool,
    /// Its routes.
    pub(crate) routes: u64,
    /// Those that are stale.
    pub(crate) stale: u64,
    /// Connections of peers, or passes over the kernel's tables.
    pub(crate) sessions: u64,
    /// Connections of peers that may not announce routes.
    pub(crate) peers_refused: u64,
    /// Messages that were decoded.
    pub(crate) messages: u64,
    /// Routes that cannot be represented.
    pub(crate) unsupported: u64,
    /// Messages that do not decode.
    pub(crate) errors: u64,
    /// Routes left out because of a limit.
    pub(crate) over_limit: u64,
    /// Times that the kernel dropped messages for want of buffers.
    pub(crate) overruns: u64,
    /// Routes and next-hop objects that differed from the kernel's in a periodic comparison.
    pub(crate) repaired: u64,
}

/// An engine, and what else there is once a VRF.
#[derive(Clone, Debug)]
pub(crate) struct VrfState {
    /// The VRF's name.
    pub(crate) name: String,
    /// Its engine.
    pub(crate) engine: EngineReport,
    /// IPv4 routes, before compilation.
    pub(crate) routes_v4: usize,
    /// IPv6 routes, before compilation.
    pub(crate) routes_v6: usize,
    /// Prefixes whose route the engine has refused.
    pub(crate) refused: usize,
    /// Next hops.
    pub(crate) next_hops: usize,
}

/// How long packets stay.
#[derive(Clone, Debug)]
pub(crate) struct LatencyState {
    /// When the lcores gave it.
    pub(crate) at: Instant,
    /// Since the start.
    pub(crate) all_ns: LatencyNs,
    /// Of the packets since it was read before.
    pub(crate) newest_ns: LatencyNs,
    /// How many packets stayed for at most so long: the limits of buckets as text, seconds, as OpenMetrics has numbers.
    pub(crate) buckets: Vec<(&'static str, u64)>,
}

/// A forwarder at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// When it started.
    pub(crate) started: SystemTime,
    /// The time stamp counter's rate.
    pub(crate) tsc_hz: u64,
    /// Whether receiving is paused.
    pub(crate) is_paused: bool,
    /// Counters and rates.
    pub(crate) rates: Arc<Rates>,
    /// The ports, by index.
    pub(crate) ports: Vec<PortState>,
    /// The queues.
    pub(crate) queues: Vec<QueueTotals>,
    /// What there is once a VRF, by number.
    pub(crate) vrfs: Vec<VrfState>,
    /// The same, as `ctl show vrfs` shows it.
    pub(crate) vrf_reports: VrfReports,
    /// The feeds, by VRF.
    pub(crate) feeds: Vec<FeedTotals>,
    /// Neighbours that are static, and those that were learned.
    pub(crate) neighbours: [usize; 2],
    /// How long packets stay; `None` before the lcores were asked for the first time.
    pub(crate) latency: Option<Arc<LatencyState>>,
}

impl Snapshot {
    /// How old its counters are.
    pub(crate) fn age(&self) -> Duration {
        self.rates.age().unwrap_or_default()
    }

    /// The packets, as the report has them. Those that have come and not gone count as held.
    pub(crate) fn packets(&self) -> Packets {
        Packets::new(&self.rates.counters, self.rates.counters.inside())
    }
}

/// The JSON of a snapshot.
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
        }
        .serialize(serializer)
    }
}
