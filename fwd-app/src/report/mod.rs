//! Output for users and programs: the summary at the end of `run` and `replay`, periodic lines, messages.
//!
//! One structure, [`Summary`], feeds the text and the JSON. The JSON keys are a contract: keys may be added but not removed.

pub(crate) mod columns;
pub(crate) mod compare;
pub(crate) mod console;
pub(crate) mod curve;
mod engine;
pub(crate) mod histogram;
mod latency;
pub(crate) mod output;
pub(crate) mod periodic;
mod picture;
pub(crate) mod progress;
pub(crate) mod ran;
mod rate;
mod repeats;
pub(crate) mod search;
pub(crate) mod text;
pub(crate) mod trace;
pub(crate) mod vrfs;

pub(crate) use engine::EngineReport;
#[cfg(test)]
pub(crate) use engine::FallbackReport;
pub(crate) use latency::{LatencyNs, SizeLatency};
pub(crate) use rate::PacketRate;
pub(crate) use trace::{FeederReport, TraceReport};

use crate::datapath::latency::LatencyBySize;
use crate::datapath::{Counters, StageName};
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
use crate::forwarder::audit::AuditCounts;
use crate::ports::dpdk::Ended;
use crate::ports::dpdk::PortCounts;
use crate::topology::handle::LcoreCounts;
use crate::topology::plan::LcorePlan;
use crate::topology::{Settings, Totals};
use anyhow::{Context as _, bail};
use compare::Comparison;
use curve::CurvePoint;
use dpdk_ffi::PortStats;
use fib::host::Host;
use hdrhistogram::Histogram;
use ran::Ran;
use search::SearchReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use vrfs::VrfReports;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) command: &'static str,
    pub(crate) version: &'static str,
    /// Absent while the forwarder runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ran: Option<Ran>,
    pub(crate) packets: Packets,
    pub(crate) rate: PacketRate,
    pub(crate) latency_ns: LatencyNs,
    /// By frame size, for paced traffic.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) latency_by_size: Vec<SizeLatency>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<CurvePoint>,
    pub(crate) stages: Vec<StageReport>,
    pub(crate) engine: EngineReport,
    /// VRFs by number; empty for a single VRF.
    #[serde(skip_serializing_if = "VrfReports::is_empty")]
    pub(crate) vrfs: VrfReports,
    pub(crate) setup: Setup,
    pub(crate) verify: Verify,
    pub(crate) audit: AuditCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<SearchReport>,
    pub(crate) truncated: bool,
    pub(crate) ports: Vec<PortReport>,
    /// Lcores that did not respond.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) silent_lcores: Vec<SilentLcore>,
    /// The first panic of an lcore. The other lcores were stopped; its packets are held or lost.
    pub(crate) panic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compared: Option<Comparison>,
    #[serde(skip)]
    pub(crate) histogram: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SummaryFiles<'a> {
    pub(crate) json: Option<&'a Path>,
    pub(crate) hgrm: Option<&'a Path>,
    pub(crate) svg: Option<&'a Path>,
}

/// A running lcore that did not respond; its counters are the last ones it published.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SilentLcore {
    pub(crate) lcore: u32,
    pub(crate) age_s: f64,
}

impl SilentLcore {
    /// `None` if the lcore responded.
    pub(crate) fn new(seen: &LcoreCounts) -> Option<Self> {
        seen.age.map(|age| Self { lcore: seen.lcore, age_s: age.as_secs_f64() })
    }
}

/// Packet counts: `rx + originated == tx + punted + sum(drops) + held`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Packets {
    pub(crate) rx: u64,
    pub(crate) tx: u64,
    /// Packets made by this router, fragments included.
    pub(crate) originated: u64,
    pub(crate) punted: u64,
    /// The punted packets that left as fragments.
    pub(crate) fragmented: u64,
    /// ICMP replies and errors suppressed by the rate limit. The packets that caused them are counted elsewhere.
    pub(crate) icmp_limited: u64,
    /// Packets for this router by class, dropped above the share of their RX queue or when the ring was full. They are included in `drops`.
    pub(crate) punts_lost: BTreeMap<&'static str, u64>,
    pub(crate) held: u64,
    pub(crate) drops: BTreeMap<&'static str, u64>,
    /// Without preamble and checksum.
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    /// Packets that overtook another of the same input queue and egress port; `None` if the output was not observed.
    pub(crate) reordered: Option<u64>,
}

impl Packets {
    pub(crate) fn new(counters: &Counters, held: u64) -> Self {
        let Counters { rx_packets, tx_packets, rx_bytes, tx_bytes, originated, punted, .. } = *counters;
        let Counters { fragmented, icmp_limited, lost, drops, .. } = counters;
        Self {
            rx: rx_packets,
            tx: tx_packets,
            originated,
            punted,
            fragmented: *fragmented,
            icmp_limited: *icmp_limited,
            punts_lost: lost.iter().map(|(class, count)| (class.name(), count)).collect(),
            held,
            drops: drops.iter().map(|(reason, count)| (reason.name(), count)).collect(),
            rx_bytes,
            tx_bytes,
            reordered: None,
        }
    }

    pub(crate) fn is_conserved(&self) -> bool {
        let gone = self.tx + self.punted + self.drops.values().sum::<u64>();
        self.rx + self.originated == gone + self.held
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageReport {
    pub(crate) name: &'static str,
    /// TSC cycles per packet over the timed bursts.
    pub(crate) cycles_per_packet: f64,
    pub(crate) ns_per_packet: f64,
    pub(crate) packets: u64,
    pub(crate) packets_per_burst: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setup {
    pub(crate) topology: &'static str,
    pub(crate) config: String,
    pub(crate) lcores: usize,
    pub(crate) rx_burst: u16,
    pub(crate) batch: usize,
    pub(crate) flush_us: u32,
    /// TAPs in the syntax of `--tap`, by port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taps: Vec<String>,
    pub(crate) huge_pages: bool,
    pub(crate) dpdk: String,
    pub(crate) cpu: String,
}

impl Setup {
    pub(crate) fn new(settings: Settings, plan: &LcorePlan, lcores: usize, huge_pages: bool) -> Self {
        Self {
            topology: settings.topology.name(),
            config: plan.map.to_string(),
            lcores,
            rx_burst: settings.rx_burst,
            batch: settings.batch,
            flush_us: settings.flush_us,
            taps: Vec::new(),
            huge_pages,
            dpdk: dpdk_ffi::version(),
            cpu: Host::here().cpu_name().unwrap_or_else(|| "unknown".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Verify {
    pub(crate) checked: u64,
    pub(crate) mismatches: u64,
}

/// Driver counters of a port; `None` if they cannot be read.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PortReport {
    pub(crate) port: usize,
    pub(crate) name: String,
    pub(crate) receives: bool,
    pub(crate) rx: Option<u64>,
    pub(crate) tx: Option<u64>,
    pub(crate) rx_bytes: Option<u64>,
    pub(crate) tx_bytes: Option<u64>,
    pub(crate) rx_missed: Option<u64>,
    pub(crate) rx_errors: Option<u64>,
    pub(crate) tx_errors: Option<u64>,
    /// Mempool exhaustions on receive.
    pub(crate) rx_nombuf: Option<u64>,
}

impl PortReport {
    pub(crate) fn new(port: usize, counts: &PortCounts) -> Self {
        let PortCounts { name, receives, stats } = counts;
        let count = |of: fn(&PortStats) -> u64| stats.as_ref().map(of);
        Self {
            port,
            name: name.clone(),
            receives: *receives,
            rx: count(|stats| stats.ipackets),
            tx: count(|stats| stats.opackets),
            rx_bytes: count(|stats| stats.ibytes),
            tx_bytes: count(|stats| stats.obytes),
            rx_missed: count(|stats| stats.imissed),
            rx_errors: count(|stats| stats.ierrors),
            tx_errors: count(|stats| stats.oerrors),
            rx_nombuf: count(|stats| stats.rx_nombuf),
        }
    }
}

impl Totals {
    pub(crate) fn packets(&self) -> Packets {
        Packets::new(&self.counters, self.held)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(crate) fn stages(&self, tsc_hz: u64) -> Vec<StageReport> {
        let stages = StageName::ALL.into_iter().zip(self.counters.stages);
        let timed = stages.filter(|(_, stage)| stage.packets > 0);
        timed
            .map(|(name, stage)| {
                let cycles = stage.cycles as f64 / stage.packets as f64;
                StageReport {
                    name: name.name(),
                    cycles_per_packet: cycles,
                    ns_per_packet: cycles * 1e9 / tsc_hz as f64,
                    packets: stage.packets,
                    packets_per_burst: stage.packets as f64 / stage.bursts.max(1) as f64,
                }
            })
            .collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::render(self))
    }
}

impl Summary {
    /// The summary of a finished topology, on a clock of `tsc_hz`, without the parts specific to a replay.
    pub(crate) fn new(
        command: &'static str,
        forwarder: &Forwarder,
        ended: &Ended,
        setup: Setup,
        tsc_hz: u64,
    ) -> Self {
        let totals = Totals::new(&ended.finished.outcomes, tsc_hz);
        let histogram = totals.latency.histogram();
        Self {
            command,
            version: env!("CARGO_PKG_VERSION"),
            ran: None,
            packets: totals.packets(),
            rate: PacketRate::new(&totals.counters, ended.duration_s, tsc_hz),
            latency_ns: LatencyNs::new(histogram, "rx to tx"),
            latency_by_size: Vec::new(),
            curve: Vec::new(),
            stages: totals.stages(tsc_hz),
            engine: EngineReport::new(forwarder.main(), forwarder.running()),
            vrfs: VrfReports::of_several(forwarder),
            setup,
            verify: Verify::default(),
            audit: forwarder.audit_counts(),
            trace: None,
            search: None,
            truncated: false,
            ports: (0..).zip(&ended.ports).map(|(port, counts)| PortReport::new(port, counts)).collect(),
            silent_lcores: Vec::new(),
            panic: ended.finished.panicked.as_ref().map(ToString::to_string),
            compared: None,
            histogram: histogram.clone(),
        }
    }

    pub(crate) fn show_latency(&mut self, latency: &LatencyBySize, measured: &'static str) {
        self.histogram = latency.total().histogram().clone();
        self.latency_ns = LatencyNs::new(&self.histogram, measured);
        self.latency_by_size = SizeLatency::all(latency, measured);
    }

    fn binding_feeder(&self) -> Option<FeederReport> {
        self.trace.as_ref()?.feeder.filter(|feeder| feeder.is_bound)
    }

    /// Checks that the run succeeded.
    ///
    /// # Errors
    /// When a stage panicked, a packet was lost or reordered, the engine failed or answered wrong, a replay had a mismatch, or a replay sent
    /// no packet.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        if let Some(panic) = &self.panic {
            bail!("{panic}");
        }
        let packets = &self.packets;
        if !packets.is_conserved() || packets.held > 0 {
            let drops: u64 = packets.drops.values().sum();
            bail!(
                "packets are unaccounted for: {} rx and {} originated, but {} tx, {} punted, {drops} dropped and {} held",
                packets.rx,
                packets.originated,
                packets.tx,
                packets.punted,
                packets.held
            );
        }
        if let Some(count @ 1..) = packets.reordered {
            bail!("{count} packets were reordered within their queue and port");
        }
        if self.verify.mismatches > 0 {
            bail!("{} of {} results differ from the oracle's", self.verify.mismatches, self.verify.checked);
        }
        if self.audit.wrong > 0 {
            bail!(
                "{} of {} answers of the engine that were audited are wrong",
                self.audit.wrong,
                self.audit.checked
            );
        }
        if let Some(error) = &self.engine.error {
            bail!("{error}");
        }
        if self.trace.is_some() && packets.tx == 0 {
            bail!("nothing was sent: all of {} packets were dropped; the drop reasons say why", packets.rx);
        }
        Ok(())
    }

    /// Writes the requested files, then prints the text to stdout. After a signal a blocked stdout is abandoned soon.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn publish(&self, files: SummaryFiles<'_>, signals: &Signals) -> anyhow::Result<()> {
        let written = self.write_files(files);
        console::print(text::render(self), || signals.is_stopping());
        written
    }

    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::to_value(output::JsonDocument::new("report", self))
            .context("cannot write the summary as JSON")
    }

    fn write_files(&self, SummaryFiles { json, hgrm, svg }: SummaryFiles<'_>) -> anyhow::Result<()> {
        if json.is_some() {
            let text = serde_json::to_string_pretty(&output::JsonDocument::new("report", self))
                .context("cannot write the summary as JSON")?;
            output::write_to(json, |out| Ok(writeln!(out, "{text}")?))?;
        }
        if svg.is_some() {
            let picture = picture::latencies(self).context("the picture")?;
            output::write_to(svg, |out| Ok(out.write_all(picture.as_bytes())?))?;
        }
        if hgrm.is_some() {
            let mut text = histogram::hgrm(&self.histogram);
            if let Some(feeder) = self.binding_feeder() {
                text += &format!("#[Feeder  = {feeder}]\n");
            }
            output::write_to(hgrm, |out| Ok(out.write_all(text.as_bytes())?))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{DropReason, Latency};
    use crate::topology::StageOutcome;

    #[test]
    fn totals_keep_every_packet() {
        let mut counters = Counters { rx_packets: 10, tx_packets: 6, tx_bytes: 600, ..Counters::default() };
        counters.drops.add(DropReason::NoRoute, 3);
        counters.busy_cycles = 1000;
        counters.time(StageName::Parse, 5, 50);
        let mut latency = Latency::new(1_000_000_000);
        latency.record(100, 6);
        let outcomes = [StageOutcome { counters, latency: Some(latency), held: 1 }, StageOutcome::default()];
        let totals = Totals::new(&outcomes, 1_000_000_000);
        let packets = totals.packets();
        assert!(packets.is_conserved());
        assert_eq!((packets.drops["no_route"], packets.drops.len()), (3, DropReason::COUNT));
        let rate = PacketRate::new(&totals.counters, 1e-6, 1_000_000_000);
        assert!((rate.mpps - 10.0).abs() < 1e-9 && (rate.gbps - 4.8).abs() < 1e-9);
        assert!((rate.gbps_l1 - 5.952).abs() < 1e-9 && (rate.mpps_busy - 10.0).abs() < 1e-9);
        let stages = totals.stages(1_000_000_000);
        assert_eq!((stages.len(), stages[0].name), (1, "parse"));
        assert!((stages[0].ns_per_packet - 10.0).abs() < 1e-9);
        assert!(!Packets { rx: 11, ..packets }.is_conserved());
    }

    #[test]
    fn counters_that_cannot_be_read_are_not_zero() {
        let mut counts = PortCounts { name: "p0".to_owned(), receives: true, stats: None };
        let json = serde_json::to_value(PortReport::new(0, &counts)).unwrap();
        assert_eq!((&json["receives"], &json["rx"]), (&true.into(), &serde_json::Value::Null));
        assert!(json["rx_nombuf"].is_null() && json.as_object().unwrap().contains_key("rx_nombuf"));
        counts.stats = Some(PortStats { imissed: 3, ..PortStats::default() });
        let report = PortReport::new(0, &counts);
        assert_eq!((report.rx, report.rx_missed), (Some(0), Some(3)));
    }
}
