//! Counters of the lcores: drops, latencies, queues, the summary.

use crate::console::Answer;
use crate::console::desk::Steering;
use crate::datapath::{Counters, Drops};
use crate::ports::dpdk::Ended;
use crate::ports::dpdk::PortCounts;
use crate::report::columns::{Columns, grouped};
use crate::report::{LatencyNs, SilentLcore, StageReport, Summary};
use crate::topology::handle::{Direction, LcoreCounts};
use crate::topology::running::Finished;
use crate::topology::{StageOutcome, Totals};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

impl Steering<'_> {
    pub(in crate::console) fn drops(&self) -> Answer {
        let since = self.counted().since(&self.desk.cleared.drops);
        Answer::new(DropsShown(since.iter().map(|(reason, count)| (reason.name(), count)).collect()))
    }

    fn counted(&self) -> Drops {
        self.forwarder.running().counters().drops
    }

    pub(in crate::console) fn clear_drops(&mut self) {
        self.desk.cleared.drops = self.counted();
    }

    fn histogram(&self) -> Option<Histogram<u64>> {
        self.forwarder.running().snapshot(self.desk.site.tsc_hz);
        self.forwarder.running().past().map(|latency| latency.histogram().clone())
    }

    pub(in crate::console) fn latency(&self) -> Answer {
        let mut histogram = self.histogram().unwrap_or_else(empty);
        if let Some(cleared) = &self.desk.cleared.latency {
            // Fails only for a histogram with other limits.
            let _ = histogram.subtract(cleared);
        }
        Answer::new(LatencyShown(LatencyNs::new(&histogram, "rx to tx")))
    }

    pub(in crate::console) fn clear_latency(&mut self) {
        self.desk.cleared.latency = self.histogram();
    }

    pub(in crate::console) fn queues(&self) -> Answer {
        let table = self.forwarder.ports();
        let names = &table.ports;
        let queue = |used: &crate::topology::handle::QueueUse| {
            let (packets, refused) = used.count.read();
            QueueShown {
                port: used.port,
                name: names.get(usize::from(used.port)).map(|port| port.name.clone()).unwrap_or_default(),
                direction: if used.direction == Direction::Rx { "rx" } else { "tx" },
                queue: used.queue,
                lcore: used.lcore,
                packets,
                refused,
            }
        };
        Answer::new(QueuesShown(self.forwarder.running().queues().iter().map(queue).collect()))
    }

    pub(in crate::console) fn lcores(&self) -> Answer {
        let tsc_hz = self.desk.site.tsc_hz;
        let elapsed_s = self.desk.start.elapsed().as_secs_f64();
        let seen = self.forwarder.running().snapshot(tsc_hz).into_iter();
        Answer::new(LcoresShown(seen.map(|seen| LcoreShown::new(&seen, elapsed_s, tsc_hz)).collect()))
    }

    /// The summary so far. Packets neither sent nor dropped count as held, since counters are not read at one instant.
    pub(in crate::console) fn stats(&self) -> Summary {
        let tsc_hz = self.desk.site.tsc_hz;
        let running = self.forwarder.running();
        let seen = running.snapshot(tsc_hz);
        let silent = seen.iter().filter_map(SilentLcore::new).collect();
        let mut outcomes: Vec<StageOutcome> = seen.into_iter().flat_map(|seen| seen.outcomes).collect();
        outcomes.push(StageOutcome { counters: running.router(), latency: running.past(), held: 0 });
        let counters = Totals::new(&outcomes, tsc_hz).counters;
        let ended = Ended {
            finished: Finished { outcomes, panicked: None },
            duration_s: self.desk.start.elapsed().as_secs_f64(),
            ports: PortCounts::read_all(&self.desk.site.ports, &self.desk.site.receives),
        };
        let mut summary = Summary::new("run", self.forwarder, &ended, self.desk.site.setup.clone(), tsc_hz);
        let Counters { tx_packets, punted, originated, drops, .. } = counters;
        summary.silent_lcores = silent;
        summary.packets.held = counters.inside();
        // A TX stage may have been read after the RX stage.
        let gone = tx_packets + punted + drops.total();
        summary.packets.rx = counters.rx_packets.max(gone.saturating_sub(originated));
        summary
    }
}

fn empty() -> Histogram<u64> {
    crate::datapath::Latency::new(1).histogram().clone()
}

#[derive(Serialize)]
struct DropsShown(BTreeMap<&'static str, u64>);

impl fmt::Display for DropsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some: Vec<_> = self.0.iter().filter(|(_, count)| **count > 0).collect();
        if some.is_empty() {
            return writeln!(f, "no drops");
        }
        let mut columns = Columns::new([]);
        some.iter().for_each(|(reason, count)| columns.row([(**reason).to_owned(), grouped(count)]));
        columns.fmt(f)
    }
}

#[derive(Serialize)]
struct LatencyShown(LatencyNs);

impl fmt::Display for LatencyShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::report::text::latency(&self.0))
    }
}

#[derive(Serialize)]
struct QueueShown {
    port: u16,
    name: String,
    direction: &'static str,
    queue: u16,
    lcore: u32,
    packets: u64,
    refused: u64,
}

#[derive(Serialize)]
struct QueuesShown(Vec<QueueShown>);

impl fmt::Display for QueuesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = Columns::new(["port", "name", "direction", "queue", "lcore", "packets", "refused"]);
        for queue in &self.0 {
            let QueueShown { port, name, direction, queue, lcore, packets, refused } = queue;
            let numbers = [port.to_string(), queue.to_string(), lcore.to_string(), grouped(packets)];
            let [port, queue, lcore, packets] = numbers;
            columns.row([
                port,
                name.clone(),
                (*direction).to_owned(),
                queue,
                lcore,
                packets,
                grouped(refused),
            ]);
        }
        columns.fmt(f)
    }
}

#[derive(Serialize)]
struct LcoreShown {
    lcore: u32,
    /// Seconds since these counters were published; `None` if they are current.
    #[serde(skip_serializing_if = "Option::is_none")]
    age_s: Option<f64>,
    rx: u64,
    tx: u64,
    dropped: u64,
    batches: u64,
    /// Share of the time spent on packets since the start, 0 to 1.
    busy: f64,
    stages: Vec<StageReport>,
}

impl LcoreShown {
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    fn new(LcoreCounts { lcore, outcomes, age }: &LcoreCounts, elapsed_s: f64, tsc_hz: u64) -> Self {
        let totals = Totals::new(outcomes, tsc_hz);
        let Counters { rx_packets, tx_packets, batches, busy_cycles, drops, .. } = totals.counters;
        Self {
            lcore: *lcore,
            age_s: age.map(|age| age.as_secs_f64()),
            rx: rx_packets,
            tx: tx_packets,
            dropped: drops.total(),
            batches,
            busy: (busy_cycles as f64 / (elapsed_s * tsc_hz as f64).max(1.0)).min(1.0),
            stages: totals.stages(tsc_hz),
        }
    }
}

#[derive(Serialize)]
struct LcoresShown(Vec<LcoreShown>);

impl fmt::Display for LcoresShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns =
            Columns::new(["lcore", "rx", "tx", "dropped", "batches", "busy", "cycles a packet"]);
        for lcore in &self.0 {
            let cycles =
                lcore.stages.iter().map(|stage| format!("{} {:.1}", stage.name, stage.cycles_per_packet));
            let age = lcore.age_s.map_or_else(String::new, |age_s| format!(" ({age_s:.1} s ago)"));
            columns.row([
                format!("{}{age}", lcore.lcore),
                grouped(lcore.rx),
                grouped(lcore.tx),
                grouped(lcore.dropped),
                grouped(lcore.batches),
                format!("{:.1} %", lcore.busy * 100.0),
                cycles.collect::<Vec<_>>().join(" "),
            ]);
        }
        columns.fmt(f)
    }
}
