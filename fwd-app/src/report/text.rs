//! Text output: the setup before the first packet, and the summary after the last.

use super::columns::{Columns, grouped, grouped_or_dash, megabytes};
use super::curve;
use super::histogram::{ROWS, bars};
use super::latency::{sizes_lines, sizes_text};
use super::vrfs::VrfReports;
use super::{EngineReport, LatencyNs, Packets, PortReport, Setup, SilentLcore, Summary};
use crate::forwarder::Forwarder;
use crate::forwarder::audit::AuditCounts;
use crate::ports::PortRecord;
use crate::topology::Settings;
use crate::topology::plan::{Job, LcorePlan};
use dpdk_ffi::{Granted, LinkState};
use fib::units::time_text;
use std::fmt::Write as _;

pub(crate) fn banner(forwarder: &Forwarder, settings: Settings, plan: &LcorePlan) -> Vec<String> {
    let vrf = forwarder.main();
    let (engine, tally) = (vrf.engine(), vrf.tally);
    let stats = engine.stats();
    let mut lines = vec![
        format!(
            "engine   {} ({}), {} IPv4 and {} IPv6 routes in {:.1} MB, read in {:.2} s, built in {:.2} s",
            engine.info().name,
            engine.info().isa_name,
            grouped(stats.routes_v4),
            grouped(stats.routes_v6),
            megabytes(stats.table_bytes),
            tally.load_s,
            tally.build_s
        ),
        format!(
            "setup    {}, {}, rx burst {}, batch {}, flush {} us, {}",
            settings.topology.name(),
            plan.map,
            settings.rx_burst,
            settings.batch,
            settings.flush_us,
            dpdk_ffi::version()
        ),
    ];
    if let Some(reason) = vrf.engine.spec.auto_reason() {
        lines.insert(1, format!("         chosen by --engine auto: {reason}"));
    }
    lines.extend(VrfReports::of_several(forwarder).lines());
    for (lcore, jobs) in &plan.lcores {
        let job = |job: &Job| match job {
            Job::Worker { inputs, tx } => format!("rx to tx of {} queues, TX queue {tx}", inputs.len()),
            Job::Rx { input, .. } => {
                format!("rx of port {} queue {}", plan.inputs[*input].port, plan.inputs[*input].queue)
            }
            Job::Engine { .. } => "engine".to_owned(),
            Job::Tx { tx } => format!("tx by queue {tx}"),
        };
        lines.push(format!("lcore {lcore:<3}{}", jobs.iter().map(job).collect::<Vec<_>>().join(", ")));
    }
    lines
}

pub(crate) fn port(
    (record, granted): (&PortRecord, &Granted),
    link: &LinkState,
    plan: &LcorePlan,
) -> [String; 2] {
    let index = record.id.0;
    let speed = link.speed_mbps.map_or_else(|| "speed unknown".to_owned(), |mbps| format!("{mbps} Mbit/s"));
    let duplex = if link.full_duplex { "full duplex" } else { "half duplex" };
    let up = if link.up { format!("up, {speed}, {duplex}") } else { "DOWN".to_owned() };
    let receives = plan.inputs.iter().any(|input| input.port == index);
    let sizes = format!(
        "port {index}   {} {}: {}link {up}; MTU {}{}, {} RX and {} TX queues of {} and {} descriptors",
        record.name,
        record.mac,
        if receives { "" } else { "sends only; " },
        record.mtu_bytes,
        if record.mtu_bytes < granted.mtu { " (no packets of several segments)" } else { "" },
        granted.rx_queues,
        granted.tx_queues,
        granted.rx_descriptors,
        granted.tx_descriptors
    );
    let rx = names(granted.rx_offloads.iter_names().map(|(name, _)| name));
    let tx = names(granted.tx_offloads.iter_names().map(|(name, _)| name));
    let rss = names(granted.rss.iter_names().map(|(name, _)| name));
    let promiscuous = if granted.promiscuous { "promiscuous" } else { "not promiscuous" };
    let offloads = format!(
        "         offloads granted: RX {rx}, TX {tx}; RSS {rss}; {promiscuous}; checksums in software"
    );
    [sizes, offloads]
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

/// Renders the summary. Writing to a string cannot fail, so the results of `writeln!` are ignored.
pub(crate) fn render(summary: &Summary) -> String {
    let mut out = String::new();
    let Summary { packets, rate, latency_ns, engine, setup, verify, audit, .. } = summary;
    packets_text(&mut out, packets);
    if let Some(panic) = &summary.panic {
        let _ = writeln!(out, "  FAULT  {panic}");
    }
    for SilentLcore { lcore, age_s } in &summary.silent_lcores {
        let _ = writeln!(out, "  lcore {lcore} does not answer: its counters are {age_s:.1} s old");
    }
    let _ = writeln!(
        out,
        "rate     {:.3} Mpps, {:.3} Gbit/s (L2), {:.3} Gbit/s (L1) over {:.3} s; {:.2} Mpps a busy lcore",
        rate.mpps, rate.gbps, rate.gbps_l1, rate.duration_s, rate.mpps_busy
    );
    if let Some(trace) = &summary.trace {
        let _ = writeln!(
            out,
            "source   {}{}, {} packets from {}{}{}",
            trace.file,
            trace.made,
            grouped(trace.fed),
            trace.packets_from,
            trace.stream.as_ref().map(ToString::to_string).unwrap_or_default(),
            if trace.feeder.is_some() { "" } else { ", without a feeder" }
        );
        if let Some(feeder) = &trace.feeder {
            let _ = writeln!(out, "feeder   {feeder}");
        }
    }
    if let Some(search) = &summary.search {
        out.push_str(&search.to_string());
    }
    out.push_str(&latency(latency_ns));
    if summary.curve.is_empty() {
        let sizes = &summary.latency_by_size;
        out.push_str(&bars(&summary.histogram, ROWS.saturating_sub(sizes_lines(sizes))));
        out.push_str(&sizes_text(sizes));
    } else {
        out.push_str(&curve::text(&summary.curve));
    }
    if !summary.stages.is_empty() {
        let _ = write!(out, "cycles   a packet:");
        for stage in &summary.stages {
            let _ = write!(out, " {} {:.1}", stage.name, stage.cycles_per_packet);
        }
        let total: f64 = summary.stages.iter().map(|stage| stage.ns_per_packet).sum();
        let burst = summary.stages.last().map_or(0.0, |stage| stage.packets_per_burst);
        let _ = writeln!(out, " ({total:.1} ns together, {burst:.1} packets a burst)");
    }
    out.push_str(&self::engine(engine));
    out.push_str(&self::setup(setup));
    ports_text(&mut out, &summary.ports);
    summary.vrfs.lines().iter().for_each(|line| {
        let _ = writeln!(out, "{line}");
    });
    if summary.command == "replay" && verify.checked + verify.mismatches > 0 {
        let _ = writeln!(
            out,
            "verify   {} checked, {} mismatches",
            grouped(verify.checked),
            grouped(verify.mismatches)
        );
    }
    out.push_str(&self::audit(audit));
    if let Some(compared) = &summary.compared {
        let _ = write!(out, "{compared}");
    }
    out
}

fn audit(counts: &AuditCounts) -> String {
    let AuditCounts { checked, skipped, wrong } = counts;
    if *counts == AuditCounts::default() {
        return String::new();
    }
    let [checked, wrong, skipped] = [checked, wrong, skipped].map(grouped);
    format!("audit    {checked} answers checked, {wrong} wrong; {skipped} skipped\n")
}

pub(crate) fn engine(engine: &EngineReport) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "engine   {} ({}), {} IPv4 and {} IPv6 routes in {:.1} MB{}, generation {} ({} applied here, {} updates)",
        engine.name,
        engine.isa,
        grouped(engine.routes_v4),
        grouped(engine.routes_v6),
        megabytes(engine.table_bytes),
        match engine.pages.words() {
            words if words.is_empty() => words,
            words => format!(" ({words})"),
        },
        grouped(engine.generation),
        grouped(engine.generations_applied),
        grouped(engine.updates_applied)
    );
    let retired = engine.retired_bytes + engine.retired_egress_bytes;
    if retired > 0 {
        let _ = writeln!(out, "  retired {:.1} MB of tables that lcores may still read", megabytes(retired));
    }
    if let Some(error) = &engine.error {
        let _ = writeln!(out, "  FAULT  {error}");
    }
    if let Some(fallback) = &engine.fallback {
        let _ = match &fallback.reason {
            Some(reason) => writeln!(
                out,
                "fallback {} answers for {} ({} packets looked up again): {reason}",
                fallback.fallback,
                fallback.engine,
                grouped(fallback.looked_up_again)
            ),
            None => writeln!(out, "fallback {} was ready and not needed", fallback.fallback),
        };
    }
    out
}

pub(crate) fn setup(setup: &Setup) -> String {
    let taps = if setup.taps.is_empty() { String::new() } else { format!(", taps {}", setup.taps.join(" ")) };
    format!(
        "setup    {}, {} lcores, {}, rx burst {}, batch {}, flush {} us{taps}\n",
        setup.topology, setup.lcores, setup.config, setup.rx_burst, setup.batch, setup.flush_us
    )
}

fn ports_text(out: &mut String, ports: &[PortReport]) {
    if ports.is_empty() {
        return;
    }
    let headings = ["port", "name", "rx", "tx", "missed", "errors", "no mbuf", ""];
    let mut columns = Columns::new(headings);
    for port in ports {
        let PortReport { port, name, receives, rx, tx, rx_missed, rx_errors, tx_errors, rx_nombuf, .. } =
            port;
        let errors = rx_errors.zip(*tx_errors).map(|(rx, tx)| rx + tx);
        let [rx, tx, missed, errors, no_mbuf] =
            [*rx, *tx, *rx_missed, errors, *rx_nombuf].map(grouped_or_dash);
        let note = if *receives { "" } else { "sends only: no lcore of --config receives from it" };
        columns.row([port.to_string(), name.clone(), rx, tx, missed, errors, no_mbuf, note.to_owned()]);
    }
    let _ = write!(out, "{columns}");
}

/// Drop reasons per line; usual runs have no more.
const DROPS_PER_LINE: usize = 4;

fn packets_text(out: &mut String, packets: &Packets) {
    let drops: u64 = packets.drops.values().sum();
    let kept = if packets.is_conserved() { "" } else { "  NOT CONSERVED: rx != tx + drops + held" };
    let _ = writeln!(
        out,
        "packets  {} rx = {} tx + {} dropped + {} held{kept}",
        grouped(packets.rx),
        grouped(packets.tx),
        grouped(drops),
        grouped(packets.held)
    );
    if packets.originated + packets.punted > 0 {
        let _ = writeln!(
            out,
            "  own    {} originated (on the side of rx), {} punted (on the side of tx)",
            grouped(packets.originated),
            grouped(packets.punted)
        );
    }
    if packets.fragmented > 0 {
        let _ = writeln!(
            out,
            "  frag   {} left as fragments (punted, and originated)",
            grouped(packets.fragmented)
        );
    }
    if packets.icmp_limited > 0 {
        let _ = writeln!(
            out,
            "  icmp   {} answers and errors suppressed by the rate limit (not packets)",
            grouped(packets.icmp_limited)
        );
    }
    if packets.punts_lost.values().any(|count| *count > 0) {
        let of_class = packets.punts_lost.iter().map(|(class, count)| format!("{} {class}", grouped(count)));
        let shown = of_class.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            out,
            "  lost   for the router, above the share of their queue or class: {shown} (among the drops)"
        );
    }
    let drops: Vec<_> = packets.drops.iter().filter(|(_, count)| **count > 0).collect();
    for some in drops.chunks(DROPS_PER_LINE) {
        let some: Vec<_> =
            some.iter().map(|(reason, count)| format!("{reason} {}", grouped(count))).collect();
        let _ = writeln!(out, "  drop   {}", some.join(", "));
    }
    if let Some(count @ 1..) = packets.reordered {
        let _ =
            writeln!(out, "  ORDER  {} packets were reordered within their queue and port", grouped(count));
    }
}

pub(crate) fn latency(latency: &LatencyNs) -> String {
    if latency.count == 0 {
        return "latency  no packet was sent\n".to_owned();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of nanoseconds")]
    let mean = time_text(latency.mean as u64);
    let LatencyNs { min, p50, p90, p99, p99_9, p99_99, max, count, measured, .. } = *latency;
    let [min, p50, p90, p99, p99_9, p99_99, max] = [min, p50, p90, p99, p99_9, p99_99, max].map(time_text);
    format!(
        "latency  min {min}, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9}, p99.99 {p99_99}, max {max}, mean {mean}, of {} packets \
         ({measured})\n",
        grouped(count)
    )
}
