//! A test snapshot with a value for every metric.

use super::snapshot::{FeedTotals, LatencyState, PortState, QueueTotals, Snapshot, VrfState};
use crate::datapath::drop_reason::PuntClass;
use crate::datapath::{Counters, DropReason};
use crate::forwarder::audit::AuditCounts;
use crate::forwarder::rates::{LcoreRates, PortRates, Rates, VrfRates};
use crate::forwarder::test_forwarder::forwarder;
use crate::report::vrfs::VrfReports;
use crate::report::{EngineReport, FallbackReport, LatencyNs};
use dpdk_ffi::PortStats;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(crate) fn snapshot(made: Instant) -> Snapshot {
    let mut counters =
        Counters { rx_packets: 1000, tx_packets: 990, busy_cycles: 3_000, ..Counters::default() };
    counters.drops.add(DropReason::NoRoute, 7);
    counters.lost.add(PuntClass::Errors, 2);
    let name = |port: usize| ["net_null0", "a\"b"][port].to_owned();
    let total = PortStats { ipackets: 1000, imissed: 5, ..PortStats::default() };
    let port = |(port, total)| PortRates { port, name: name(port.into()), total, ..PortRates::default() };
    let vrf = VrfRates { name: "default".to_owned(), packets: 900, bytes: 90_000, ..VrfRates::default() };
    let rates = Rates {
        made: Some(made),
        ports: [(0, Some(total)), (1, None)].map(port).into(),
        lcores: vec![LcoreRates { lcore: 3, counters, ..LcoreRates::default() }],
        vrfs: vec![vrf],
        drops: DropReason::ALL.into_iter().map(|reason| (reason, [Some(0.0); 2])).collect(),
        counters,
        ..Rates::default()
    };
    let queue = |(direction, queue, packets, refused)| QueueTotals {
        port: 0,
        name: name(0),
        direction,
        queue,
        lcore: 3,
        packets,
        refused,
    };
    let forwarder = forwarder();
    let fallback = FallbackReport {
        engine: "gamt",
        fallback: "host",
        in_service: false,
        reason: None,
        looked_up_again: 0,
    };
    let engine = EngineReport {
        name: "host",
        isa: "avx2".to_owned(),
        table_bytes: 4096,
        fallback: Some(fallback),
        ..EngineReport::new(forwarder.main(), forwarder.running())
    };
    let latency = LatencyNs { count: 12, mean: 2_000.0, p50: 900, max: 5_000, ..LatencyNs::default() };
    let port = |port: u16| PortState { port, name: name(port.into()), is_up: port == 0 };
    Snapshot {
        started: SystemTime::now(),
        tsc_hz: 2_000,
        is_paused: false,
        rates: Arc::new(rates),
        ports: [0, 1].map(port).into(),
        queues: [("rx", 1, 600, 0), ("tx", 0, 590, 4)].map(queue).into(),
        vrfs: vec![VrfState {
            name: "default".to_owned(),
            engine,
            routes_v4: 10,
            routes_v6: 11,
            refused: 1,
            next_hops: 4,
        }],
        vrf_reports: VrfReports::new(&forwarder),
        feeds: vec![feed(), FeedTotals { vrf: "red".to_owned(), over_limit: 5, ..feed() }],
        neighbours: [8, 9],
        audit: AuditCounts { checked: 30, skipped: 2, wrong: 1 },
        latency: Some(Arc::new(LatencyState {
            at: made.checked_sub(Duration::from_secs(2)).unwrap_or(made),
            all_ns: latency.clone(),
            newest_ns: latency,
            buckets: vec![("1e-06", 10), ("1.0", 12)],
        })),
    }
}

fn feed() -> FeedTotals {
    FeedTotals {
        feed: "fpm",
        name: "127.0.0.1:2620".to_owned(),
        vrf: "default".to_owned(),
        state: "complete",
        is_up: true,
        routes: 100,
        stale: 3,
        sessions: 1,
        peers_refused: 0,
        messages: 120,
        unsupported: 0,
        errors: 0,
        over_limit: 0,
        overruns: 0,
        repaired: 0,
    }
}
