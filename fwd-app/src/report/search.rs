//! The result of a search for a rate: what was found for each goal, and every trial.

use super::WIRE_BYTES;
use super::columns::grouped;
use serde::Serialize;
use std::fmt;

/// What the rates are, and what they are not.
const MEASURED: &str = "a software path over rings in memory, not RFC 2544 on a wire";
/// Bytes behind a frame, which captures do not have.
const FCS_BYTES: f64 = 4.0;
/// By which rules.
const METHOD: &str = "MLRsearch (draft-ietf-bmwg-mlrsearch)";

/// A search.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SearchReport {
    /// The rules.
    pub(crate) method: &'static str,
    /// What was measured.
    pub(crate) measured: &'static str,
    /// Whether it came to its end.
    pub(crate) is_complete: bool,
    /// How often everything was searched.
    pub(crate) repeats: usize,
    /// The part of a load's trials that might lose more than the goal.
    pub(crate) exceed_ratio: f64,
    /// Length of the first trials, seconds.
    pub(crate) initial_trial_s: f64,
    /// Length of the last trials, seconds.
    pub(crate) final_trial_s: f64,
    /// Seconds of trials that classified a load.
    pub(crate) duration_sum_s: f64,
    /// How near both bounds were to be, a part of the upper one.
    pub(crate) width: f64,
    /// The lowest load.
    pub(crate) min_pps: f64,
    /// The highest load.
    pub(crate) max_pps: f64,
    /// Bytes of a frame without FCS, on average.
    pub(crate) frame_bytes_mean: f64,
    /// Full speed, where that was measured.
    pub(crate) full_speed_pps: Option<f64>,
    /// Packets inside the forwarder, beyond which they are lost.
    pub(crate) queue_packets: u64,
    /// All trials together, seconds.
    pub(crate) duration_s: f64,
    /// How long the harness had no CPU in them, seconds.
    pub(crate) paused_s: f64,
    /// The goals, the strictest first.
    pub(crate) goals: Vec<GoalReport>,
    /// All trials in their order.
    pub(crate) trials: Vec<TrialReport>,
}

/// What was found for a goal. Rates are `None` where even the lowest load lost more.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GoalReport {
    /// The part of the packets that might be lost.
    pub(crate) loss: f64,
    /// The median of the conditional throughputs.
    pub(crate) rate_pps: Option<f64>,
    /// The same in gigabits a second as a wire would carry it, with packets of the trace's mean size.
    pub(crate) rate_gbps_l1: Option<f64>,
    /// The least of them.
    pub(crate) rate_min_pps: Option<f64>,
    /// The greatest of them.
    pub(crate) rate_max_pps: Option<f64>,
    /// The highest load that reached the goal, of the search with the median.
    pub(crate) lower_pps: Option<f64>,
    /// The lowest load that did not.
    pub(crate) upper_pps: Option<f64>,
    /// How near they are, a part of the upper one.
    pub(crate) width: Option<f64>,
    /// What arrived of the lower bound: the result of each search.
    pub(crate) conditional_throughput_pps: Vec<Option<f64>>,
    /// What kept the rate from being higher.
    pub(crate) bound: &'static str,
}

/// What kept a rate from being higher.
pub(crate) const BOUND_FORWARDER: &str = "forwarder";
/// The harness could not offer more.
pub(crate) const BOUND_FEEDER: &str = "feeder";
/// No higher load was to be tried.
pub(crate) const BOUND_MAX: &str = "highest load";

/// A trial of a search.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrialReport {
    /// Which search, from 1.
    pub(crate) repeat: usize,
    /// The load that was to be offered.
    pub(crate) offered_pps: f64,
    /// For how long, seconds.
    pub(crate) duration_s: f64,
    /// Packets that went in.
    pub(crate) fed: u64,
    /// Packets lost: those that found no room, and those dropped as `tx_full` or `engine_stall`.
    pub(crate) lost: u64,
    /// Of the lost ones, those that found no room.
    pub(crate) missed: u64,
    /// Packets that the harness was too slow for.
    pub(crate) unsent: u64,
    /// How long it paused and lasted longer, since the harness had no CPU, seconds.
    pub(crate) paused_s: f64,
    /// The part of the packets that were lost or unsent.
    pub(crate) loss_ratio: f64,
    /// Latency from the intended send time.
    pub(crate) latency_ns: TrialLatency,
}

/// Latency of a trial, nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TrialLatency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

impl SearchReport {
    /// The constant keys.
    pub(crate) const WORDS: (&str, &str) = (METHOD, MEASURED);
}

/// Gigabits a second on a wire of packets of so many bytes.
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
pub(crate) fn gbps_l1(pps: f64, frame_bytes: f64) -> f64 {
    pps * (frame_bytes + WIRE_BYTES as f64) * 8.0 / 1e9
}

/// Trials that pause for more than this part of their time are worth a word.
const PAUSED_PART: f64 = 0.02;

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repeats, duration_s, paused_s, method, measured, queue_packets, .. } = self;
        let searches = if *repeats == 1 { String::new() } else { format!("{repeats} searches, ") };
        let trials = grouped(self.trials.len());
        writeln!(f, "search   {method}: {searches}{trials} trials in {duration_s:.1} s")?;
        writeln!(f, "         {measured}; what finds {} packets inside is lost", grouped(queue_packets))?;
        self.goals.iter().try_for_each(|goal| goal.fmt(f))?;
        if !self.is_complete {
            writeln!(f, "  ENDED  before the search was done: these are the bounds so far")?;
        }
        if *paused_s > duration_s * PAUSED_PART {
            writeln!(
                f,
                "  PAUSED {paused_s:.1} s, while the harness had no CPU of its own: the results are less certain"
            )?;
        }
        self.recipes(f)
    }
}

impl SearchReport {
    /// How frames of this size are sent to the forwarder over a wire.
    fn recipes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame_bytes = self.frame_bytes_mean.max(60.0);
        writeln!(f, "  wire   fwd-app run between two ports of TRex or testpmd, as docs/measuring.md says:")?;
        write!(f, "         ./ndr --stl --port 0 1 -v --profile stl/bench.py ")?;
        // TRex counts the FCS, testpmd does not.
        writeln!(f, "--prof-tun size={:.0} --opt-bin-search", frame_bytes + FCS_BYTES)?;
        write!(
            f,
            "         dpdk-testpmd -l 3,4 -a PCI -a PCI -- --forward-mode=flowgen --flowgen-flows=10000 "
        )?;
        writeln!(f, "--txpkts={frame_bytes:.0} --eth-peer=0,MAC --eth-peer=1,MAC --stats-period 1")
    }
}

/// Packets a second as people read them.
fn pps_text(pps: Option<f64>) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate above 0, saturates")]
    pps.map_or_else(|| "none".to_owned(), |pps| grouped(pps.round() as u64))
}

impl fmt::Display for GoalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, rate_pps, rate_gbps_l1, upper_pps, lower_pps, rate_min_pps, rate_max_pps, .. } =
            *self;
        let [rate, lower, upper, min, max] =
            [rate_pps, lower_pps, upper_pps, rate_min_pps, rate_max_pps].map(pps_text);
        write!(f, "  found  {rate} pps, {:.3} Gbit/s (L1) ", rate_gbps_l1.unwrap_or(0.0))?;
        write!(f, "with a loss of {} % at most, between {lower} and {upper} pps", loss * 100.0)?;
        if self.conditional_throughput_pps.len() > 1 {
            write!(f, "; of all searches {min} to {max} pps")?;
        }
        match self.bound {
            BOUND_FORWARDER => writeln!(f),
            BOUND_FEEDER => writeln!(f, "; BOUND BY THE FEEDER, which cannot offer more"),
            _ => writeln!(f, "; bound by the highest load that was to be tried"),
        }
    }
}
