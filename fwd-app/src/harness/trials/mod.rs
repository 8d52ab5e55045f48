//! Trials are the units of a replay. The forwarder runs throughout; counters are read between trials, when no packet is in flight.
//!
//! | module | contents |
//! |---|---|
//! | [`conductor`] | which trial comes next: a plain replay, a rate in percent, a search, a curve |
//! | [`pacer`] | the pace of one trial, and its missed packets |
//! | [`feeding`] | the feeder's time in a trial: whether the feeder bounds the rate |
//! | [`search`] | the search for a rate, by the rules of MLRsearch |
//! | [`target`] | classifies loads by their trials |
//! | [`loads`] | the loads a search may offer |

pub(crate) mod conductor;
#[cfg(test)]
mod conductor_test;
pub(crate) mod feeding;
pub(crate) mod loads;
pub(crate) mod pacer;
pub(crate) mod search;
#[cfg(test)]
mod search_test;
pub(crate) mod target;

use super::schedule::{OfferedRate, Schedule, TrialPace};
use crate::datapath::latency::LatencyBySize;
use crate::datapath::{Counters, DropReason, Drops};
use feeding::FeederTime;
use pacer::Paced;
use search::SearchRules;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchSpec {
    pub(crate) rules: SearchRules,
    pub(crate) min: OfferedRate,
    /// The highest load; `None` means slightly above full speed.
    pub(crate) max: Option<OfferedRate>,
    pub(crate) repeats: u32,
    pub(crate) curve: bool,
}

/// Grace time for the last packets of a trial when the harness is late: a fraction of the trial, and a minimum in seconds.
const LATE_PART: f64 = 0.01;
const LATE_S: f64 = 0.002;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    pub(crate) pace: TrialPace,
    /// Duration, seconds; `None` runs to the end of the source.
    pub(crate) seconds: Option<f64>,
    /// Packets that find no room are dropped; otherwise they wait.
    pub(crate) loses: bool,
    /// A warm-up: what the stages record is discarded.
    pub(crate) is_warmup: bool,
}

impl Trial {
    pub(super) fn lossy(pps: f64, seconds: f64) -> Self {
        Self { pace: TrialPace::even(pps), seconds: Some(seconds), loses: true, is_warmup: false }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cycles of days fit 53 bits, and none is negative"
    )]
    pub(super) fn paced(&self, tsc_hz: u64) -> Paced {
        let schedule = Schedule::new(self.pace, tsc_hz);
        let Some(seconds) = self.seconds else {
            return Paced { schedule, packets: u64::MAX, cycles_max: None, loses: self.loses };
        };
        let (packets, late_s) = match self.pace.packets(seconds) {
            Some(packets) if self.loses => (packets.max(1), (seconds * LATE_PART).max(LATE_S)),
            _ => (u64::MAX, 0.0),
        };
        let cycles_max = Some(((seconds + late_s) * tsc_hz as f64) as u64);
        Paced { schedule, packets, cycles_max, loses: self.loses }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TrialResult {
    pub(crate) trial: Trial,
    pub(crate) fed: u64,
    pub(crate) missed: u64,
    /// Packets the harness was too slow to offer.
    pub(crate) unsent: u64,
    /// Feeding time without pauses, seconds.
    pub(crate) feeding_s: f64,
    pub(crate) paused_s: f64,
    /// From the first packet until all are accounted for, seconds.
    pub(crate) duration_s: f64,
    pub(crate) counters: Counters,
    pub(crate) feeder: FeederTime,
    /// From the intended send time, under a rate; `None` when kept elsewhere.
    pub(crate) latency: Option<LatencyBySize>,
}

impl TrialResult {
    pub(super) fn at_full_speed(fed: u64, duration_s: f64, counters: Counters) -> Self {
        let trial = Trial { pace: TrialPace::Max, seconds: None, loses: false, is_warmup: false };
        let (feeding_s, latency) = (duration_s, None);
        let feeder = FeederTime::default();
        Self {
            trial,
            fed,
            missed: 0,
            unsent: 0,
            feeding_s,
            paused_s: 0.0,
            duration_s,
            counters,
            feeder,
            latency,
        }
    }

    /// Packets lost by overload: missed, or dropped as `tx_full` or `engine_stall`. Other drops are correct forwarding.
    pub(crate) fn lost(&self) -> u64 {
        let drops = &self.counters.drops;
        self.missed + drops.get(DropReason::TxFull) + drops.get(DropReason::EngineStall)
    }

    pub(crate) fn intended(&self) -> u64 {
        self.fed + self.missed + self.unsent
    }

    /// Lost fraction of the intended packets; `with_unsent` counts unsent packets as lost.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(crate) fn loss_ratio(&self, with_unsent: bool) -> f64 {
        let bad = self.lost() + if with_unsent { self.unsent } else { 0 };
        if self.intended() == 0 { 0.0 } else { bad as f64 / self.intended() as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "a count below 2^53")]
    pub(crate) fn fed_pps(&self) -> f64 {
        if self.feeding_s > 0.0 { self.fed as f64 / self.feeding_s } else { 0.0 }
    }
}

/// Differences of packets, bytes, drops and busy cycles.
pub(crate) fn between(before: &Counters, after: &Counters) -> Counters {
    let mut drops = Drops::default();
    for (reason, count) in after.drops.iter() {
        drops.add(reason, count - before.drops.get(reason).min(count));
    }
    Counters {
        rx_packets: after.rx_packets - before.rx_packets,
        rx_bytes: after.rx_bytes - before.rx_bytes,
        tx_packets: after.tx_packets - before.tx_packets,
        tx_bytes: after.tx_bytes - before.tx_bytes,
        busy_cycles: after.busy_cycles - before.busy_cycles,
        drops,
        ..Counters::default()
    }
}
