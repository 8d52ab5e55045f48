//! What is shown to people and programs: the summary at the end of `run` and `replay`, lines while packets flow, messages.
//!
//! One structure, [`Summary`], feeds the text and the JSON.
//!
//! Key names are a contract: `packets.rx`, `packets.tx`, `packets.drops.<reason>`, `rate.mpps`, `rate.gbps`, `latency_ns.*`,
//! `engine.{name,isa,table_bytes}`, `verify.{checked,mismatches}`. More keys may come, these stay.
//!
//! | module | what lives there |
//! |---|---|
//! | [`search`] | the rate that was searched, its trials, and the curve by load |
//! | [`text`] | the summary as text, and how the forwarder is set up |
//! | [`made`] | packets that a replay made or changed |
//! | [`stream`] | how a trace was read that was not in memory |
//! | [`vrfs`] | the VRFs: routes, engines, memory |
//! | [`ran`] | what ran: arguments, seeds, host, the work |
//! | [`engine`] | the engine, its memory and its fallback |
//! | [`latency`] | latency percentiles, of all packets and by frame size |
//! | [`curve`] | latency by load |
//! | [`histogram`] | latencies as bars, and in HdrHistogram's text form |
//! | [`picture`] | latencies as SVG |
//! | [`compare`] | two summaries beside each other |
//! | [`periodic`] | rates and drops while packets flow |
//! | [`progress`] | the bar of a long load |
//! | [`console`] | stderr and stdout: nobody waits for them while packets flow |
//! | [`repeats`] | warnings that repeat |
//! | [`output`] | results to stdout, or to files that appear whole |

pub(crate) mod columns;
pub(crate) mod compare;
pub(crate) mod console;
pub(crate) mod curve;
mod engine;
pub(crate) mod histogram;
mod latency;
pub(crate) mod made;
pub(crate) mod output;
pub(crate) mod periodic;
mod picture;
pub(crate) mod progress;
pub(crate) mod ran;
mod repeats;
pub(crate) mod search;
pub(crate) mod stream;
pub(crate) mod text;
pub(crate) mod vrfs;

pub(crate) use engine::EngineReport;
#[cfg(test)]
pub(crate) use engine::FallbackReport;
pub(crate) use latency::{LatencyNs, SizeLatency};

use crate::datapath::latency::LatencyBySize;
use crate::datapath::{Counters, StageName};
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
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
use made::MadeReport;
use ran::Ran;
use search::SearchReport;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use stream::StreamReport;
use vrfs::VrfReports;

/// Bytes of a frame on the wire that are not in memory: preamble 7, start 1, checksum 4, gap 12.
pub(crate) const WIRE_BYTES: u64 = 24;

/// The summary.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    /// `run` or `replay`.
    pub(crate) command: &'static str,
    /// This program's version.
    pub(crate) version: &'static str,
    /// What ran; not of a forwarder that is still running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ran: Option<Ran>,
    /// What came, left and was dropped.
    pub(crate) packets: Packets,
    /// How fast.
    pub(crate) rate: PacketRate,
    /// How long packets stayed.
    pub(crate) latency_ns: LatencyNs,
    /// The same by size of frame, where packets were sent at a rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) latency_by_size: Vec<SizeLatency>,
    /// Latency by load, where several were tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<CurvePoint>,
    /// Cycles by pass.
    pub(crate) stages: Vec<StageReport>,
    /// Who looked up.
    pub(crate) engine: EngineReport,
    /// The VRFs by number; none are listed where there is one alone.
    #[serde(skip_serializing_if = "VrfReports::is_empty")]
    pub(crate) vrfs: VrfReports,
    /// How the forwarder was set up.
    pub(crate) setup: Setup,
    /// Results against the oracle; nothing was checked without `--verify`.
    pub(crate) verify: Verify,
    /// The trace, of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<TraceReport>,
    /// The rate that was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<SearchReport>,
    /// Whether the capture was cut short.
    pub(crate) truncated: bool,
    /// What the drivers counted, by port.
    pub(crate) ports: Vec<PortReport>,
    /// Lcores that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) silent_lcores: Vec<SilentLcore>,
    /// The first panic of an lcore: the others were stopped, and packets that it had are held or lost.
    pub(crate) panic: Option<String>,
    /// What an older summary says beside this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compared: Option<Comparison>,
    /// The histogram behind `latency_ns`.
    #[serde(skip)]
    pub(crate) histogram: Histogram<u64>,
}

/// The files that a summary is written to, each if it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SummaryFiles<'a> {
    /// The summary as JSON.
    pub(crate) json: Option<&'a Path>,
    /// The latency histogram, in HdrHistogram's percentile text form.
    pub(crate) hgrm: Option<&'a Path>,
    /// Latencies as pictures.
    pub(crate) svg: Option<&'a Path>,
}

/// An lcore that did not answer while it runs: its counters here are those that it published last.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SilentLcore {
    /// The lcore.
    pub(crate) lcore: u32,
    /// Seconds since it published them.
    pub(crate) age_s: f64,
}

impl SilentLcore {
    /// What `seen` is, if it is from an lcore that did not answer.
    pub(crate) fn new(seen: &LcoreCounts) -> Option<Self> {
        seen.age.map(|age| Self { lcore: seen.lcore, age_s: age.as_secs_f64() })
    }
}

/// What came, left and was dropped: `rx + originated == tx + punted + sum(drops) + held`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Packets {
    /// Packets received.
    pub(crate) rx: u64,
    /// Packets sent.
    pub(crate) tx: u64,
    /// Packets that this router made, fragments among them.
    pub(crate) originated: u64,
    /// Packets that were for this router, and those that left as fragments.
    pub(crate) punted: u64,
    /// Of the punted ones, those that left as fragments.
    pub(crate) fragmented: u64,
    /// Answers and errors of ICMP that were not made since their rate is limited. What they would have answered is counted elsewhere.
    pub(crate) icmp_limited: u64,
    /// Packets for the router, by class, that it did not get since it had more than enough of them. They are among the drops.
    pub(crate) punts_lost: BTreeMap<&'static str, u64>,
    /// Packets still inside at the end.
    pub(crate) held: u64,
    /// Packets dropped, by reason.
    pub(crate) drops: BTreeMap<&'static str, u64>,
    /// Bytes received, without preamble and checksum.
    pub(crate) rx_bytes: u64,
    /// Bytes sent, without preamble and checksum.
    pub(crate) tx_bytes: u64,
    /// Packets that overtook one of their own input queue and egress port; `None` where nobody saw them leave.
    pub(crate) reordered: Option<u64>,
}

impl Packets {
    /// Of these counters, with `held` packets inside.
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

    /// Whether every packet is accounted for.
    pub(crate) fn is_conserved(&self) -> bool {
        let gone = self.tx + self.punted + self.drops.values().sum::<u64>();
        self.rx + self.originated == gone + self.held
    }
}

/// How fast packets were sent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PacketRate {
    /// Packets received and dealt with, millions a second.
    pub(crate) mpps: f64,
    /// Sent, gigabits a second, frames without their checksum (layer 2).
    pub(crate) gbps: f64,
    /// Sent, gigabits a second as a wire would carry it (layer 1: checksum, preamble and gap included).
    pub(crate) gbps_l1: f64,
    /// Packets a second of an lcore's time spent on packets, millions.
    pub(crate) mpps_busy: f64,
    /// The time measured, seconds.
    pub(crate) duration_s: f64,
}

impl PacketRate {
    /// Of what was counted over `duration_s`, and by the lcores' own time on a clock of `tsc_hz`.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(crate) fn new(counters: &Counters, duration_s: f64, tsc_hz: u64) -> Self {
        let per = |count: u64, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let Counters { rx_packets, tx_packets, tx_bytes, busy_cycles, .. } = *counters;
        Self {
            mpps: per(rx_packets, duration_s) / 1e6,
            gbps: per(tx_bytes * 8, duration_s) / 1e9,
            gbps_l1: per((tx_bytes + tx_packets * WIRE_BYTES) * 8, duration_s) / 1e9,
            mpps_busy: per(rx_packets, busy_cycles as f64 / tsc_hz as f64) / 1e6,
            duration_s,
        }
    }
}

/// One pass.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageReport {
    /// Its name.
    pub(crate) name: &'static str,
    /// Cycles of the time stamp counter a packet, over the bursts that were timed.
    pub(crate) cycles_per_packet: f64,
    /// The same in nanoseconds.
    pub(crate) ns_per_packet: f64,
    /// Packets of the bursts that were timed.
    pub(crate) packets: u64,
    /// Packets a burst, on average.
    pub(crate) packets_per_burst: f64,
}

/// How the forwarder was set up.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setup {
    /// The topology.
    pub(crate) topology: &'static str,
    /// Which lcore serves which queue.
    pub(crate) config: String,
    /// Lcores that run stages.
    pub(crate) lcores: usize,
    /// Packets a poll at most.
    pub(crate) rx_burst: u16,
    /// Keys a batch at most.
    pub(crate) batch: usize,
    /// Longest wait for a batch to fill, microseconds.
    pub(crate) flush_us: u32,
    /// The TAPs, as `--tap` gives them, by index of port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taps: Vec<String>,
    /// Whether DPDK's memory is in huge pages.
    pub(crate) huge_pages: bool,
    /// DPDK's version.
    pub(crate) dpdk: String,
    /// The CPU, as it calls itself.
    pub(crate) cpu: String,
}

impl Setup {
    /// Of `settings`, planned by `plan` over `lcores` lcores.
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

/// Results against the oracle.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Verify {
    /// Packets whose result was checked.
    pub(crate) checked: u64,
    /// Packets whose result was wrong.
    pub(crate) mismatches: u64,
}

/// The trace of a replay.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TraceReport {
    /// The file; `generated`, where the packets were made.
    pub(crate) file: String,
    /// What was made, or changed.
    #[serde(flatten)]
    pub(crate) made: MadeReport,
    /// Packets in it.
    pub(crate) packets: usize,
    /// Packets of which it has less than was on the wire.
    pub(crate) snapped: usize,
    /// Times it was to be sent; where a duration was given, how often that was.
    pub(crate) loops: u64,
    /// The rate it was offered at.
    pub(crate) rate: String,
    /// What is sent of it before the measurement: in no rate and no latency, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warmup_s: Option<f64>,
    /// The rate without loss that a rate in percent is of, packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lossless_pps: Option<f64>,
    /// `ready mbufs`, or `copies` where somebody had to see what left, or packets were to be paced; `the file` where it was read meanwhile.
    pub(crate) packets_from: &'static str,
    /// How it was read, if that was meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<StreamReport>,
    /// Packets that were fed.
    pub(crate) fed: u64,
}

/// What the driver of a port counted; `None` where its counters cannot be read.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PortReport {
    /// Its number.
    pub(crate) port: usize,
    /// Its name.
    pub(crate) name: String,
    /// Whether an lcore receives from it; else it sends only.
    pub(crate) receives: bool,
    /// Packets received.
    pub(crate) rx: Option<u64>,
    /// Packets sent.
    pub(crate) tx: Option<u64>,
    /// Bytes received.
    pub(crate) rx_bytes: Option<u64>,
    /// Bytes sent.
    pub(crate) tx_bytes: Option<u64>,
    /// Packets lost because the RX queue was full.
    pub(crate) rx_missed: Option<u64>,
    /// Packets received with an error.
    pub(crate) rx_errors: Option<u64>,
    /// Packets that could not be sent.
    pub(crate) tx_errors: Option<u64>,
    /// Times that the mempool had no mbuf for a packet.
    pub(crate) rx_nombuf: Option<u64>,
}

impl PortReport {
    /// Of port number `port`.
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
    /// As the summary shows them.
    pub(crate) fn packets(&self) -> Packets {
        Packets::new(&self.counters, self.held)
    }

    /// The passes that were timed.
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
    /// Of a topology that has ended, over the tables of `forwarder`, on a clock of `tsc_hz`. What only a replay knows is empty.
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

    /// Replaces the latencies by `latency`, of packets timed one by one.
    pub(crate) fn show_latency(&mut self, latency: &LatencyBySize, measured: &'static str) {
        self.histogram = latency.total().histogram().clone();
        self.latency_ns = LatencyNs::new(&self.histogram, measured);
        self.latency_by_size = SizeLatency::all(latency, measured);
    }

    /// Whether the forwarder did what it is for.
    ///
    /// # Errors
    /// When a stage panicked; when a packet was lost track of or overtaken; when the engine failed; when a result of a replay was
    /// wrong, or nothing was sent in it.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        if let Some(panic) = &self.panic {
            bail!("{panic}");
        }
        let packets = &self.packets;
        if !packets.is_conserved() || packets.held > 0 {
            let drops: u64 = packets.drops.values().sum();
            bail!(
                "packets were lost track of: {} rx and {} originated, but {} tx, {} punted, {drops} dropped and {} held",
                packets.rx,
                packets.originated,
                packets.tx,
                packets.punted,
                packets.held
            );
        }
        if let Some(count @ 1..) = packets.reordered {
            bail!("{count} packets overtook one of their own queue and port");
        }
        if self.verify.mismatches > 0 {
            bail!("{} of {} results differ from the oracle's", self.verify.mismatches, self.verify.checked);
        }
        if let Some(error) = &self.engine.error {
            bail!("{error}");
        }
        if self.trace.is_some() && packets.tx == 0 {
            bail!("nothing was sent: all of {} packets were dropped; the drop reasons say why", packets.rx);
        }
        Ok(())
    }

    /// Writes the files that were asked for, then prints the text on stdout, which is not waited for for long once a signal has come.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn publish(&self, files: SummaryFiles<'_>, signals: &Signals) -> anyhow::Result<()> {
        let written = self.write_files(files);
        console::print(text::render(self), || signals.is_stopping());
        written
    }

    /// As JSON.
    ///
    /// # Errors
    /// Where a value has no form in JSON.
    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::to_value(output::JsonDocument::new("report", self)).context("the summary as JSON")
    }

    fn write_files(&self, SummaryFiles { json, hgrm, svg }: SummaryFiles<'_>) -> anyhow::Result<()> {
        if json.is_some() {
            let text = serde_json::to_string_pretty(&output::JsonDocument::new("report", self))
                .context("the summary as JSON")?;
            output::write_to(json, |out| Ok(writeln!(out, "{text}")?))?;
        }
        if svg.is_some() {
            let picture = picture::latencies(self).context("the picture")?;
            output::write_to(svg, |out| Ok(out.write_all(picture.as_bytes())?))?;
        }
        if hgrm.is_some() {
            let text = histogram::hgrm(&self.histogram);
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
