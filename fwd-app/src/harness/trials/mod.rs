//! Trials: what a replay consists of. The forwarder runs all the time; the harness feeds one trial after the other, and counters are read
//! between two, when every packet is accounted for.
//!
//! | module | what lives there |
//! |---|---|
//! | [`conductor`] | which trial comes next: a plain replay, a rate in percent, a search, a curve |
//! | [`pacer`] | the pace of one trial, and what it loses |
//! | [`search`] | the search for a rate, by the rules of MLRsearch |
//! | [`target`] | what the trials of a load say of it |
//! | [`loads`] | the loads that a search may offer |

pub(crate) mod conductor;
#[cfg(test)]
mod conductor_test;
pub(crate) mod loads;
pub(crate) mod pacer;
pub(crate) mod search;
#[cfg(test)]
mod search_test;
pub(crate) mod target;

use super::schedule::{OfferedRate, Pace, Schedule};
use crate::datapath::latency::LatencyBySize;
use crate::datapath::{Counters, DropReason, Drops};
use pacer::Paced;
use search::SearchRules;

/// A search, and what follows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchSpec {
    /// Goals and thoroughness.
    pub(crate) rules: SearchRules,
    /// The lowest load.
    pub(crate) min: OfferedRate,
    /// The highest load; a little above full speed when `None`.
    pub(crate) max: Option<OfferedRate>,
    /// How often all of it is searched.
    pub(crate) repeats: u32,
    /// Whether latency is measured at parts of the rate found.
    pub(crate) curve: bool,
}

/// How long after the time of a trial its last packets may be fed when the harness was late: a part of that time, and seconds at least.
const LATE_PART: f64 = 0.01;
const LATE_S: f64 = 0.002;

/// A stretch of traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    /// How fast packets are offered.
    pub(crate) pace: Pace,
    /// For how long, seconds; until the source has no more packets when `None`.
    pub(crate) seconds: Option<f64>,
    /// Whether packets that find no room are lost; else they wait for room.
    pub(crate) loses: bool,
    /// Whether it only prepares what follows: nothing that the stages record of it is reported.
    pub(crate) is_warmup: bool,
}

impl Trial {
    /// A trial that loses what finds no room, as a NIC does.
    pub(super) fn lossy(pps: f64, seconds: f64) -> Self {
        Self { pace: Pace::even(pps), seconds: Some(seconds), loses: true, is_warmup: false }
    }

    /// For the feeder, on a clock of `tsc_hz`.
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

/// What became of the packets of a trial.
#[derive(Clone, Debug)]
pub(crate) struct TrialResult {
    /// The trial.
    pub(crate) trial: Trial,
    /// Packets that went in.
    pub(crate) fed: u64,
    /// Packets for which the forwarder had no room.
    pub(crate) missed: u64,
    /// Packets that the harness itself was too slow for.
    pub(crate) unsent: u64,
    /// From the first packet until the last was fed, without pauses, seconds.
    pub(crate) feeding_s: f64,
    /// How long it paused, since the harness had no CPU, seconds.
    pub(crate) paused_s: f64,
    /// From the first packet until all were accounted for, seconds.
    pub(crate) duration_s: f64,
    /// What the forwarder counted meanwhile.
    pub(crate) counters: Counters,
    /// From the intended send time, under a rate; `None` where it is kept elsewhere.
    pub(crate) latency: Option<LatencyBySize>,
}

impl TrialResult {
    /// Of `fed` ready packets at full speed.
    pub(super) fn at_full_speed(fed: u64, duration_s: f64, counters: Counters) -> Self {
        let trial = Trial { pace: Pace::Max, seconds: None, loses: false, is_warmup: false };
        let (feeding_s, latency) = (duration_s, None);
        Self { trial, fed, missed: 0, unsent: 0, feeding_s, paused_s: 0.0, duration_s, counters, latency }
    }

    /// Packets that the forwarder did not keep up with: those it had no room for, and those it dropped since a TX queue was full or the engine
    /// did not answer. What it drops for a reason of its own, as for a route that is missing, is forwarded as it should be.
    pub(crate) fn lost(&self) -> u64 {
        let drops = &self.counters.drops;
        self.missed + drops.get(DropReason::TxFull) + drops.get(DropReason::EngineStall)
    }

    /// Packets that were to be sent.
    pub(crate) fn intended(&self) -> u64 {
        self.fed + self.missed + self.unsent
    }

    /// The part of the intended packets that were lost; those that were not even sent count as lost when `with_unsent`.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(crate) fn loss_ratio(&self, with_unsent: bool) -> f64 {
        let bad = self.lost() + if with_unsent { self.unsent } else { 0 };
        if self.intended() == 0 { 0.0 } else { bad as f64 / self.intended() as f64 }
    }

    /// Packets a second that went in.
    #[expect(clippy::cast_precision_loss, reason = "a count below 2^53")]
    pub(crate) fn fed_pps(&self) -> f64 {
        if self.feeding_s > 0.0 { self.fed as f64 / self.feeding_s } else { 0.0 }
    }
}

/// What was counted between two moments: packets, bytes, drops and busy cycles.
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
