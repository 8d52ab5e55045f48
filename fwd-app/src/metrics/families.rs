//! Names, help, labels and values of the metrics.
//!
//! Names follow the JSON keys with the unit appended: `packets.rx` is `fwd_rx_packets_total`. `docs/monitoring.md` lists all metrics.

use super::exposition::{Labels, MetricFamily, MetricKind, MetricValue};
use super::snapshot::{BuildFacts, FeedTotals, LatencyState, PortState, QueueTotals, Snapshot, VrfState};
use crate::datapath::Counters;
use crate::forwarder::audit::AuditCounts;
use crate::forwarder::rates::{LcoreRates, PortRates, VrfRates};
use dpdk_ffi::PortStats;
use std::time::SystemTime;

const COUNTER: MetricKind = MetricKind::Counter;
const GAUGE: MetricKind = MetricKind::Gauge;

/// A metric over the rows of a list: kind, name, help and value; a row without value has no sample.
type Column<T, V> = (MetricKind, &'static str, &'static str, fn(&T) -> V);

/// One family per column, with a sample for each row that has a value.
fn columns<T, V: Into<MetricValue>>(
    rows: &[T],
    labels: impl Fn(&T) -> Labels,
    columns: impl IntoIterator<Item = Column<T, Option<V>>>,
) -> Vec<MetricFamily> {
    let family = |(kind, name, help, value): Column<T, Option<V>>| {
        let samples = rows.iter().filter_map(|row| Some((labels(row), value(row)?)));
        MetricFamily::new(kind, name, help).with_all(samples)
    };
    columns.into_iter().map(family).collect()
}

fn label(name: &'static str, value: &(impl ToString + ?Sized)) -> (&'static str, String) {
    (name, value.to_string())
}

pub(crate) fn of_program(build: &BuildFacts) -> Vec<MetricFamily> {
    let BuildFacts { version, commit, dpdk } = build;
    let labels = vec![label("version", version), label("commit", commit), label("dpdk", dpdk)];
    let help = "The program: its version, its commit, and DPDK's version";
    vec![MetricFamily::new(MetricKind::Info, "fwd_build", help).with(labels, true)]
}

pub(crate) fn ages(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let age = MetricFamily::new(GAUGE, "fwd_snapshot_age_seconds", "Time since the counters were read");
    let age = age.with(Vec::new(), snapshot.age().as_secs_f64());
    let asked = snapshot.latency.iter().map(|latency| (Vec::new(), latency.at.elapsed().as_secs_f64()));
    let help = "Time since latencies were read from the lcores";
    vec![age, MetricFamily::new(GAUGE, "fwd_latency_age_seconds", help).with_all(asked)]
}

pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let mut all = of_forwarder(snapshot);
    all.extend(packets(&snapshot.rates.counters));
    all.extend(latency(snapshot.latency.as_deref()));
    all.extend(ports(&snapshot.rates.ports));
    all.extend(columns(&snapshot.ports, port_labels, PORT_STATES));
    all.extend(columns(&snapshot.queues, queue_labels, QUEUES));
    all.extend(lcores(&snapshot.rates.lcores, snapshot.tsc_hz));
    all.extend(columns(&snapshot.rates.vrfs, |vrf| vec![label("vrf", &vrf.name)], VRF_TRAFFIC));
    all.extend(vrfs(&snapshot.vrfs));
    all.extend(audit(snapshot.audit));
    all.extend(columns(&snapshot.feeds, feed_labels, FEEDS));
    // Per feed, not per VRF.
    let of_first = snapshot.vrfs.first().map(|vrf| vrf.name.as_str());
    let once: Vec<_> =
        snapshot.feeds.iter().filter(|feed| Some(feed.vrf.as_str()) == of_first).cloned().collect();
    all.extend(columns(
        &once,
        |feed| vec![label("feed", &feed.feed), label("name", &feed.name)],
        FEED_SOURCES,
    ));
    all
}

fn of_forwarder(snapshot: &Snapshot) -> Vec<MetricFamily> {
    let empty_pools = snapshot.rates.empty_pools;
    let started = snapshot.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let gauge = |name, help| MetricFamily::new(GAUGE, name, help);
    let neighbours = ["static", "learned"].into_iter().zip(snapshot.neighbours);
    let neighbours = neighbours.map(|(origin, count)| (vec![label("origin", origin)], count));
    vec![
        gauge("fwd_start_time_seconds", "Start time of the forwarder, since 1970").with(Vec::new(), started),
        gauge("fwd_paused", "Whether receiving is stopped (`ctl stop`)").with(Vec::new(), snapshot.is_paused),
        gauge("fwd_neighbours", "Neighbours, static and learned").with_all(neighbours),
        MetricFamily::new(COUNTER, "fwd_mempool_empty", "Times that a mempool of the ports was found empty")
            .with(Vec::new(), empty_pools),
    ]
}

fn packets(counters: &Counters) -> Vec<MetricFamily> {
    let counter = |name, help, value: u64| MetricFamily::new(COUNTER, name, help).with(Vec::new(), value);
    let drops = counters.drops.iter().map(|(reason, count)| (vec![label("reason", &reason)], count));
    let lost = counters.lost.iter().map(|(class, count)| (vec![label("class", &class.name())], count));
    let lost_help = "Packets for the router above the share of their RX queue in the ring of their class, or for which it was full; they are among the drops";
    vec![
        counter("fwd_rx_packets", "Packets received", counters.rx_packets),
        counter("fwd_tx_packets", "Packets sent", counters.tx_packets),
        counter("fwd_rx_bytes", "Bytes received, layer 2 without the checksum", counters.rx_bytes),
        counter("fwd_tx_bytes", "Bytes sent, layer 2 without the checksum", counters.tx_bytes),
        counter(
            "fwd_originated_packets",
            "Packets made by the router, including fragments",
            counters.originated,
        ),
        counter(
            "fwd_punted_packets",
            "Packets for the router, and packets that left as fragments",
            counters.punted,
        ),
        counter("fwd_fragmented_packets", "Packets that left as fragments", counters.fragmented),
        counter("fwd_icmp_limited", "ICMP messages suppressed by their rate limit", counters.icmp_limited),
        MetricFamily::new(COUNTER, "fwd_drops", "Packets dropped, by reason").with_all(drops),
        MetricFamily::new(COUNTER, "fwd_punts_lost", lost_help).with_all(lost),
    ]
}

fn latency(latency: Option<&LatencyState>) -> Option<MetricFamily> {
    let LatencyState { all_ns, buckets, .. } = latency?;
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    let sum = all_ns.mean * all_ns.count as f64 / 1e9;
    let family =
        MetricFamily::new(MetricKind::Histogram, "fwd_latency_seconds", "Time from rx to tx of packets");
    Some(family.with_buckets(buckets, all_ns.count, sum))
}

fn ports(ports: &[PortRates]) -> Vec<MetricFamily> {
    type Count = (&'static str, &'static str, fn(&PortStats) -> u64);
    const COUNTS: [Count; 8] = [
        ("fwd_port_rx_packets", "Packets received, as the driver counts", |stats| stats.ipackets),
        ("fwd_port_tx_packets", "Packets sent, as the driver counts", |stats| stats.opackets),
        ("fwd_port_rx_bytes", "Bytes received, as the driver counts", |stats| stats.ibytes),
        ("fwd_port_tx_bytes", "Bytes sent, as the driver counts", |stats| stats.obytes),
        ("fwd_port_rx_missed", "Packets lost because the RX queue was full", |stats| stats.imissed),
        ("fwd_port_rx_errors", "Packets received with an error", |stats| stats.ierrors),
        ("fwd_port_tx_errors", "Packets that could not be sent", |stats| stats.oerrors),
        ("fwd_port_rx_nombuf", "Times that there was no mbuf for a packet", |stats| stats.rx_nombuf),
    ];
    let family = |(name, help, count): Count| {
        // A port with unreadable counters has no samples, rather than zeros.
        let samples = ports.iter().filter_map(|port| {
            Some((vec![label("port", &port.port), label("name", &port.name)], count(port.total.as_ref()?)))
        });
        MetricFamily::new(COUNTER, name, help).with_all(samples)
    };
    COUNTS.into_iter().map(family).collect()
}

fn port_labels(port: &PortState) -> Labels {
    vec![label("port", &port.port), label("name", &port.name)]
}

const PORT_STATES: [Column<PortState, Option<bool>>; 1] =
    [(GAUGE, "fwd_port_up", "Whether the link is up", |port| Some(port.is_up))];

fn queue_labels(queue: &QueueTotals) -> Labels {
    let QueueTotals { port, name, direction, queue, lcore, .. } = queue;
    vec![
        label("port", port),
        label("name", name),
        label("direction", direction),
        label("queue", queue),
        label("lcore", lcore),
    ]
}

const QUEUES: [Column<QueueTotals, Option<u64>>; 2] = [
    (COUNTER, "fwd_queue_packets", "Packets received or sent by a queue", |queue| Some(queue.packets)),
    (COUNTER, "fwd_queue_refused", "Packets for which a TX queue had no room", |queue| {
        (queue.direction == "tx").then_some(queue.refused)
    }),
];

fn lcores(lcores: &[LcoreRates], tsc_hz: u64) -> Vec<MetricFamily> {
    const COUNTS: [Column<LcoreRates, Option<u64>>; 4] = [
        (COUNTER, "fwd_lcore_rx_packets", "Packets that an lcore received", |lcore| {
            Some(lcore.counters.rx_packets)
        }),
        (COUNTER, "fwd_lcore_tx_packets", "Packets that an lcore sent", |lcore| {
            Some(lcore.counters.tx_packets)
        }),
        (COUNTER, "fwd_lcore_dropped_packets", "Packets that an lcore dropped", |lcore| {
            Some(lcore.counters.drops.total())
        }),
        (COUNTER, "fwd_lcore_batches", "Batches that an lcore completed", |lcore| {
            Some(lcore.counters.batches)
        }),
    ];
    let labels = |lcore: &LcoreRates| vec![label("lcore", &lcore.lcore)];
    #[expect(clippy::cast_precision_loss, reason = "cycles below 2^53, or weeks")]
    let seconds = |lcore: &LcoreRates| lcore.counters.busy_cycles as f64 / tsc_hz.max(1) as f64;
    let busy = lcores.iter().map(|lcore| (labels(lcore), seconds(lcore)));
    let mut all = columns(lcores, labels, COUNTS);
    let help = "Time that an lcore worked on packets";
    all.push(MetricFamily::new(COUNTER, "fwd_lcore_busy_seconds", help).with_all(busy));
    all
}

const VRF_TRAFFIC: [Column<VrfRates, Option<u64>>; 2] = [
    (COUNTER, "fwd_vrf_rx_packets", "Packets received in a VRF", |vrf| Some(vrf.packets)),
    (COUNTER, "fwd_vrf_rx_bytes", "Bytes received in a VRF, layer 2 without the checksum", |vrf| {
        Some(vrf.bytes)
    }),
];

fn vrfs(vrfs: &[VrfState]) -> Vec<MetricFamily> {
    const COUNTS: [Column<VrfState, Option<u64>>; 7] = [
        (GAUGE, "fwd_vrf_refused_routes", "Prefixes whose route the engine has refused", |vrf| {
            Some(vrf.refused as u64)
        }),
        (GAUGE, "fwd_vrf_next_hops", "Next hops", |vrf| Some(vrf.next_hops as u64)),
        (COUNTER, "fwd_vrf_updates", "Route updates in service", |vrf| Some(vrf.engine.updates_applied)),
        (GAUGE, "fwd_engine_generation", "Generation of the table in service", |vrf| {
            Some(vrf.engine.generation)
        }),
        (
            GAUGE,
            "fwd_engine_table_bytes",
            "Memory that lookups read; VRFs that share an engine each report all of its memory",
            |vrf| Some(vrf.engine.table_bytes),
        ),
        (GAUGE, "fwd_engine_retired_bytes", "Memory of replaced tables that lcores may still read", |vrf| {
            Some(vrf.engine.retired_bytes + vrf.engine.retired_egress_bytes)
        }),
        (GAUGE, "fwd_engine_fallback_in_service", "Whether the engine of --fallback is in use", |vrf| {
            vrf.engine.fallback.as_ref().map(|fallback| fallback.in_service.into())
        }),
    ];
    let labels = |vrf: &VrfState| vec![label("vrf", &vrf.name)];
    let families = |vrf: &VrfState| [("ipv4", vrf.routes_v4), ("ipv6", vrf.routes_v6)];
    let routes = vrfs.iter().flat_map(|vrf| {
        let labelled = |(family, routes)| ([labels(vrf), vec![label("family", family)]].concat(), routes);
        families(vrf).map(labelled)
    });
    let engines = vrfs.iter().map(|vrf| {
        let facts = vec![label("name", &vrf.engine.name), label("isa", &vrf.engine.isa)];
        ([labels(vrf), facts].concat(), true)
    });
    let faults = vrfs.iter().take(1).map(|vrf| (Vec::new(), vrf.engine.error.is_some()));
    let mut all = columns(vrfs, labels, COUNTS);
    all.extend([
        MetricFamily::new(GAUGE, "fwd_vrf_routes", "Routes, before compilation").with_all(routes),
        MetricFamily::new(MetricKind::Info, "fwd_engine", "The engine in service").with_all(engines),
        MetricFamily::new(GAUGE, "fwd_engine_fault", "Whether a lookup has failed since the start")
            .with_all(faults),
    ]);
    all
}

fn audit(AuditCounts { checked, skipped, wrong }: AuditCounts) -> [MetricFamily; 3] {
    let counter = |name, help, value| MetricFamily::new(COUNTER, name, help).with(Vec::new(), value);
    [
        counter("fwd_audit_checked", "Answers of engines compared with the routes (`--audit`)", checked),
        counter(
            "fwd_audit_skipped",
            "Answers not compared because routes were changing or the control thread was late",
            skipped,
        ),
        counter("fwd_audit_wrong", "Compared answers that were wrong", wrong),
    ]
}

fn feed_labels(feed: &FeedTotals) -> Labels {
    vec![label("feed", &feed.feed), label("name", &feed.name), label("vrf", &feed.vrf)]
}

const FEEDS: [Column<FeedTotals, Option<u64>>; 3] = [
    (GAUGE, "fwd_feed_routes", "Routes of a feed", |feed| Some(feed.routes)),
    (GAUGE, "fwd_feed_stale_routes", "Routes of a feed that are stale", |feed| Some(feed.stale)),
    (COUNTER, "fwd_feed_over_limit_routes", "Routes left out because of a limit", |feed| {
        Some(feed.over_limit)
    }),
];

const FEED_SOURCES: [Column<FeedTotals, Option<u64>>; 8] = [
    (GAUGE, "fwd_feed_up", "Whether the source of a feed is connected", |feed| Some(feed.is_up.into())),
    (COUNTER, "fwd_feed_sessions", "Connections of peers, or reads of the kernel's tables", |feed| {
        Some(feed.sessions)
    }),
    (COUNTER, "fwd_feed_peers_refused", "Connections of peers that may not announce routes", |feed| {
        Some(feed.peers_refused)
    }),
    (COUNTER, "fwd_feed_messages", "Messages that were decoded", |feed| Some(feed.messages)),
    (COUNTER, "fwd_feed_unsupported_routes", "Routes that cannot be represented", |feed| {
        Some(feed.unsupported)
    }),
    (COUNTER, "fwd_feed_errors", "Messages that could not be decoded", |feed| Some(feed.errors)),
    (
        COUNTER,
        "fwd_feed_overruns",
        "Times that the kernel dropped messages because its buffers were full",
        |feed| Some(feed.overruns),
    ),
    (
        COUNTER,
        "fwd_feed_repaired",
        "Routes and next-hop objects corrected by the periodic comparison with the kernel",
        |feed| Some(feed.repaired),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::exposition::TextFormat;
    use crate::metrics::test_snapshot::snapshot;
    use std::collections::BTreeSet;
    use std::time::Instant;

    fn all() -> Vec<MetricFamily> {
        let (build, snapshot) = (BuildFacts::here(), snapshot(Instant::now()));
        [of_program(&build), ages(&snapshot), of_snapshot(&snapshot)].concat()
    }

    fn text(format: TextFormat) -> String {
        let mut text = String::new();
        all().iter().for_each(|family| family.write(format, &mut text));
        text + format.end()
    }

    #[test]
    fn the_documentation_lists_all_metrics_and_no_others() {
        let document = include_str!("../../../docs/monitoring.md");
        let listed: BTreeSet<_> = document.lines().filter(|line| line.starts_with("| `fwd_")).collect();
        let rows: Vec<_> = all().iter().map(MetricFamily::row).collect();
        let wanted: BTreeSet<_> = rows.iter().map(String::as_str).collect();
        assert_eq!(wanted.len(), all().len(), "no name is there twice");
        assert!(listed == wanted, "docs/monitoring.md wants this table:\n{}", rows.join("\n"));
    }

    #[test]
    fn each_family_is_whole_once_and_named_by_the_rules() {
        for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
            let (text, mut seen, mut family) = (text(format), BTreeSet::new(), ("", ""));
            for line in text.lines().filter(|line| *line != "# EOF") {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    family = rest.split_once(' ').unwrap();
                    assert!(seen.insert(family.0), "{line} again");
                    let is_counter = family.1 == "counter";
                    assert_eq!(
                        family.0.ends_with("_total"),
                        is_counter && format == TextFormat::Prometheus,
                        "{line}"
                    );
                } else if !line.starts_with('#') {
                    let (name, kind) = family;
                    let own = line.split(['{', ' ']).next().unwrap();
                    let wanted: &[&str] = match (kind, format) {
                        ("counter", TextFormat::OpenMetrics) => &["_total"],
                        ("info", _) => &["_info"],
                        ("histogram", _) => &["_bucket", "_sum", "_count"],
                        _ => &[""],
                    };
                    assert!(wanted.iter().any(|suffix| own == format!("{name}{suffix}")), "{line} in {name}");
                }
            }
            assert!(seen.len() > 40 && text.ends_with(format.end()));
            assert_eq!(text.matches("# EOF").count(), format.end().lines().count());
        }
    }

    #[test]
    fn values_are_those_of_the_snapshot() {
        let text = text(TextFormat::Prometheus);
        for line in [
            "fwd_rx_packets_total 1000",
            "fwd_drops_total{reason=\"no_route\"} 7",
            "fwd_drops_total{reason=\"martian\"} 0",
            "fwd_punts_lost_total{class=\"errors\"} 2",
            "fwd_port_rx_missed_total{port=\"0\",name=\"net_null0\"} 5",
            "fwd_port_up{port=\"1\",name=\"a\\\"b\"} 0",
            "fwd_queue_packets_total{port=\"0\",name=\"net_null0\",direction=\"rx\",queue=\"1\",lcore=\"3\"} 600",
            "fwd_queue_refused_total{port=\"0\",name=\"net_null0\",direction=\"tx\",queue=\"0\",lcore=\"3\"} 4",
            "fwd_lcore_busy_seconds_total{lcore=\"3\"} 1.5",
            "fwd_vrf_rx_packets_total{vrf=\"default\"} 900",
            "fwd_vrf_routes{vrf=\"default\",family=\"ipv6\"} 11",
            "fwd_engine_info{vrf=\"default\",name=\"host\",isa=\"avx2\"} 1",
            "fwd_engine_table_bytes{vrf=\"default\"} 4096",
            "fwd_feed_up{feed=\"fpm\",name=\"127.0.0.1:2620\"} 1",
            "fwd_feed_stale_routes{feed=\"fpm\",name=\"127.0.0.1:2620\",vrf=\"default\"} 3",
            "fwd_feed_over_limit_routes_total{feed=\"fpm\",name=\"127.0.0.1:2620\",vrf=\"default\"} 0",
            "fwd_feed_over_limit_routes_total{feed=\"fpm\",name=\"127.0.0.1:2620\",vrf=\"red\"} 5",
            "fwd_latency_seconds_bucket{le=\"1e-06\"} 10",
            "fwd_latency_seconds_count 12",
            "fwd_neighbours{origin=\"learned\"} 9",
            "fwd_audit_checked_total 30",
            "fwd_audit_skipped_total 2",
            "fwd_audit_wrong_total 1",
        ] {
            assert!(text.lines().any(|told| told == line), "no line {line} in:\n{text}");
        }
        // The second port's counters cannot be read; only TX queues refuse packets.
        assert!(!text.contains("fwd_port_rx_packets_total{port=\"1\""));
        assert!(!text.contains("fwd_queue_refused_total{port=\"0\",name=\"net_null0\",direction=\"rx\""));
    }
}
