//! Builds snapshots on the control thread, one after each sample of the counters.
//!
//! It never blocks. Latencies are held by the lcores: every few seconds each lcore is asked, one a turn; a few turns later its answer is
//! collected. An lcore that has not answered by then keeps its latencies for the next round.

use super::SharedSnapshot;
use super::snapshot::{FeedTotals, LatencyState, PortState, QueueTotals, Snapshot, VrfState};
use crate::datapath::Latency;
use crate::forwarder::Forwarder;
use crate::forwarder::rates::Rates;
use crate::report::vrfs::VrfReports;
use crate::report::{EngineReport, LatencyNs};
use crate::routes::Vrf;
use crate::routes::feeds::running::FeedStatus;
use crate::topology::Handle;
use crate::topology::handle::{Direction, QueueUse};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const LATENCY_PERIOD: Duration = Duration::from_secs(5);
/// Bucket limits of latencies: seconds as text, and nanoseconds.
const BUCKETS: [(&str, u64); 19] = [
    ("1e-06", 1_000),
    ("2e-06", 2_000),
    ("5e-06", 5_000),
    ("1e-05", 10_000),
    ("2e-05", 20_000),
    ("5e-05", 50_000),
    ("0.0001", 100_000),
    ("0.0002", 200_000),
    ("0.0005", 500_000),
    ("0.001", 1_000_000),
    ("0.002", 2_000_000),
    ("0.005", 5_000_000),
    ("0.01", 10_000_000),
    ("0.02", 20_000_000),
    ("0.05", 50_000_000),
    ("0.1", 100_000_000),
    ("0.2", 200_000_000),
    ("0.5", 500_000_000),
    ("1.0", 1_000_000_000),
];

struct LatencyCollector {
    tsc_hz: u64,
    turn: usize,
    due: Instant,
    before: Option<Histogram<u64>>,
    newest: Option<Arc<LatencyState>>,
}

impl LatencyCollector {
    fn new(tsc_hz: u64) -> Self {
        Self { tsc_hz, turn: 0, due: Instant::now(), before: None, newest: None }
    }

    fn collect_next(&mut self, running: &Handle) {
        let lcores = running.lcore_count();
        if lcores == 0 || Instant::now() < self.due {
            return;
        }
        if self.turn < lcores {
            running.ask_latency(self.turn, self.tsc_hz);
        } else {
            running.take_latency(self.turn - lcores);
        }
        self.turn += 1;
        if self.turn == 2 * lcores {
            (self.turn, self.due) = (0, Instant::now() + LATENCY_PERIOD);
            let all = running.past().unwrap_or_else(|| Latency::new(self.tsc_hz));
            self.finish(all.histogram().clone());
        }
    }

    fn finish(&mut self, all: Histogram<u64>) {
        let mut newest = all.clone();
        if let Some(before) = &self.before {
            // Fails only for histograms with different limits.
            let _ = newest.subtract(before);
        }
        self.newest = Some(Arc::new(LatencyState {
            at: Instant::now(),
            all_ns: LatencyNs::new(&all, "rx to tx"),
            newest_ns: LatencyNs::new(&newest, "rx to tx"),
            buckets: buckets(&all),
        }));
        self.before = Some(all);
    }
}

fn buckets(histogram: &Histogram<u64>) -> Vec<(&'static str, u64)> {
    let mut recorded = histogram.iter_recorded().peekable();
    let mut count = 0;
    let up_to = |(text, limit): (&'static str, u64)| {
        while let Some(value) = recorded.next_if(|value| value.value_iterated_to() <= limit) {
            count += value.count_at_value();
        }
        (text, count)
    };
    BUCKETS.into_iter().map(up_to).collect()
}

pub(crate) struct Publisher {
    shared: SharedSnapshot,
    started: SystemTime,
    tsc_hz: u64,
    latencies: LatencyCollector,
    last: Option<Arc<Rates>>,
}

impl Publisher {
    pub(crate) fn new(shared: SharedSnapshot, tsc_hz: u64) -> Self {
        let latencies = LatencyCollector::new(tsc_hz);
        Self { shared, started: SystemTime::now(), tsc_hz, latencies, last: None }
    }

    /// Publishes a snapshot if the counters have been sampled since the last one.
    pub(crate) fn publish_if_sampled(&mut self, forwarder: &Forwarder) {
        self.latencies.collect_next(forwarder.running());
        let rates = forwarder.rates().load();
        let is_new = self.last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &rates));
        if is_new && rates.made.is_some() {
            let rates = Arc::clone(&rates);
            self.last = Some(Arc::clone(&rates));
            self.shared.store(Some(Arc::new(self.snapshot(forwarder, rates))));
        }
    }

    fn snapshot(&self, forwarder: &Forwarder, rates: Arc<Rates>) -> Snapshot {
        let table = forwarder.ports();
        let state = |(port, record): (u16, &crate::ports::PortRecord)| PortState {
            port,
            name: record.name.clone(),
            is_up: record.is_up,
        };
        let ports: Vec<_> = (0..).zip(&table.ports).map(state).collect();
        let queue = |used: &QueueUse| {
            let (packets, refused) = used.count.read();
            let name = ports.get(usize::from(used.port)).map(|port| port.name.clone());
            QueueTotals {
                port: used.port,
                name: name.unwrap_or_default(),
                direction: if used.direction == Direction::Rx { "rx" } else { "tx" },
                queue: used.queue,
                lcore: used.lcore,
                packets,
                refused,
            }
        };
        let vrf = |vrf: &Vrf| VrfState {
            name: vrf.name.clone(),
            engine: EngineReport::new(vrf, forwarder.running()),
            routes_v4: vrf.rib().v4.len(),
            routes_v6: vrf.rib().v6.len(),
            refused: vrf.refused.len(),
            next_hops: vrf.hops().len(),
        };
        let statics = forwarder.vrfs().iter().map(|vrf| vrf.hops().neighbours().count()).sum();
        Snapshot {
            started: self.started,
            tsc_hz: self.tsc_hz,
            is_paused: forwarder.running().is_paused(),
            queues: forwarder.running().queues().iter().map(queue).collect(),
            vrfs: forwarder.vrfs().iter().map(vrf).collect(),
            vrf_reports: VrfReports::new(forwarder),
            feeds: feeds(forwarder),
            neighbours: [statics, table.learned.len()],
            audit: forwarder.audit_counts(),
            latency: self.latencies.newest.clone(),
            ports,
            rates,
        }
    }
}

fn feeds(forwarder: &Forwarder) -> Vec<FeedTotals> {
    let vrfs = forwarder.vrfs().iter().enumerate();
    let of_vrf = |(number, vrf): (usize, &Vrf)| {
        let name = vrf.name.clone();
        let status = forwarder.feed_states(number).into_iter();
        // A feed does not count the routes and next-hop objects it leaves out by VRF; the row of the first VRF has them.
        let is_first = number == 0;
        status.map(move |status| feed(status, name.clone(), is_first)).collect::<Vec<_>>()
    };
    vrfs.flat_map(of_vrf).collect()
}

fn feed(status: FeedStatus, vrf: String, is_first: bool) -> FeedTotals {
    let FeedStatus { kind, name, state, routes, counts, .. } = status;
    FeedTotals {
        feed: kind.name(),
        name,
        vrf,
        state,
        is_up: state == "complete" || state.starts_with("connected"),
        routes: routes.routes,
        stale: routes.stale,
        sessions: counts.sessions,
        peers_refused: counts.refused,
        messages: counts.messages,
        unsupported: counts.unsupported,
        errors: counts.errors,
        over_limit: routes.over_limit + if is_first { counts.over_limit } else { 0 },
        overruns: counts.overruns,
        repaired: counts.repaired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::test_forwarder::forwarder;

    #[test]
    fn buckets_count_all_that_is_not_longer() {
        let mut latency = Latency::new(1_000_000_000);
        latency.record(900, 3);
        latency.record(1_000, 2);
        latency.record(1_500_000, 5);
        latency.record(2_000_000_000, 1);
        let buckets = buckets(latency.histogram());
        let at = |text: &str| buckets.iter().find(|(limit, _)| *limit == text).unwrap().1;
        assert_eq!((at("1e-06"), at("2e-06"), at("0.001"), at("0.002"), at("1.0")), (5, 5, 5, 10, 10));
        assert!(BUCKETS.iter().all(|(text, ns)| {
            let seconds: f64 = text.parse().unwrap();
            (seconds * 1e9 - f64::from(u32::try_from(*ns).unwrap())).abs() < 1e-3
        }));
    }

    #[test]
    fn the_newest_latencies_are_those_since_the_time_before() {
        let mut collector = LatencyCollector::new(1_000_000_000);
        let mut latency = Latency::new(1_000_000_000);
        latency.record(1_000, 10);
        collector.finish(latency.histogram().clone());
        let first = collector.newest.clone().unwrap();
        assert_eq!((first.all_ns.count, first.newest_ns.count, first.newest_ns.p50), (10, 10, 1_000));
        latency.record(50_000, 4);
        collector.finish(latency.histogram().clone());
        let second = collector.newest.clone().unwrap();
        assert_eq!((second.all_ns.count, second.newest_ns.count), (14, 4));
        assert!((49_900..50_100).contains(&second.newest_ns.p50), "{second:?}");
    }

    #[test]
    fn a_sample_of_the_counters_becomes_one_snapshot() {
        let (forwarder, shared) = (forwarder(), SharedSnapshot::default());
        let mut publisher = Publisher::new(Arc::clone(&shared), 1_000_000_000);
        publisher.publish_if_sampled(&forwarder);
        assert!(shared.load().is_none(), "there are no counters yet");
        forwarder.rates().store(Arc::new(Rates { made: Some(Instant::now()), ..Rates::default() }));
        publisher.publish_if_sampled(&forwarder);
        let first = shared.load_full().unwrap();
        assert!(first.vrfs[0].routes_v4 > 0 && first.vrfs[0].engine.name == "oracle");
        publisher.publish_if_sampled(&forwarder);
        assert!(Arc::ptr_eq(&first, &shared.load_full().unwrap()), "the counters are the same");
        forwarder.rates().store(Arc::new(Rates { made: Some(Instant::now()), ..Rates::default() }));
        publisher.publish_if_sampled(&forwarder);
        assert!(!Arc::ptr_eq(&first, &shared.load_full().unwrap()));
    }
}
