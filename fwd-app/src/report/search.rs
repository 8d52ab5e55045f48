//! The result of a rate search: per goal, and all trials.

use super::columns::grouped;
use super::rate::WIRE_BYTES;
use serde::Serialize;
use std::fmt;

const MEASURED: &str = "a software path over rings in memory, not RFC 2544 on a wire";
const FCS_BYTES: f64 = 4.0;
const METHOD: &str = "MLRsearch (draft-ietf-bmwg-mlrsearch)";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct SearchReport {
    pub(crate) method: &'static str,
    pub(crate) measured: &'static str,
    pub(crate) is_complete: bool,
    pub(crate) repeats: usize,
    /// Fraction of a load's trials allowed to exceed the loss.
    pub(crate) exceed_ratio: f64,
    pub(crate) initial_trial_s: f64,
    pub(crate) final_trial_s: f64,
    pub(crate) duration_sum_s: f64,
    /// Final distance of the bounds as a fraction of the upper one.
    pub(crate) width: f64,
    pub(crate) min_pps: f64,
    pub(crate) max_pps: f64,
    /// Mean frame size without checksum, bytes.
    pub(crate) frame_bytes_mean: f64,
    pub(crate) full_speed_pps: Option<f64>,
    /// Most packets inside the forwarder before packets are missed.
    pub(crate) queue_packets: u64,
    /// Sum of all trials, seconds.
    pub(crate) duration_s: f64,
    /// Time the harness was descheduled, seconds.
    pub(crate) paused_s: f64,
    /// Strictest first.
    pub(crate) goals: Vec<GoalReport>,
    pub(crate) trials: Vec<TrialReport>,
}

/// Result for a goal. Rates are `None` if even the lowest load lost more.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GoalReport {
    /// The allowed loss as a fraction.
    pub(crate) loss: f64,
    /// Median of the conditional throughputs.
    pub(crate) rate_pps: Option<f64>,
    /// The same in layer-1 Gbit/s for packets of the trace's mean size.
    pub(crate) rate_gbps_l1: Option<f64>,
    pub(crate) rate_min_pps: Option<f64>,
    pub(crate) rate_max_pps: Option<f64>,
    /// Highest load within the goal, from the search with the median.
    pub(crate) lower_pps: Option<f64>,
    pub(crate) upper_pps: Option<f64>,
    /// Distance of the bounds as a fraction of the upper one.
    pub(crate) width: Option<f64>,
    pub(crate) conditional_throughput_pps: Vec<Option<f64>>,
    pub(crate) bound: &'static str,
}

pub(crate) const BOUND_FORWARDER: &str = "forwarder";
/// The harness could not offer more.
pub(crate) const BOUND_FEEDER: &str = "feeder";
pub(crate) const BOUND_MAX: &str = "highest load";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrialReport {
    /// Number of the search, from 1.
    pub(crate) repeat: usize,
    pub(crate) offered_pps: f64,
    pub(crate) duration_s: f64,
    pub(crate) fed: u64,
    /// Packets missed, or dropped as `tx_full` or `engine_stall`.
    pub(crate) lost: u64,
    pub(crate) missed: u64,
    /// Packets the harness was too slow to offer.
    pub(crate) unsent: u64,
    /// Time the harness was descheduled, which prolonged the trial, seconds.
    pub(crate) paused_s: f64,
    /// Fraction of packets lost or unsent.
    pub(crate) loss_ratio: f64,
    pub(crate) latency_ns: TrialLatency,
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct TrialLatency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p99_9: u64,
    pub(crate) max: u64,
}

impl SearchReport {
    pub(crate) const WORDS: (&str, &str) = (METHOD, MEASURED);
}

/// Layer-1 Gbit/s of packets of this size.
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
pub(crate) fn gbps_l1(pps: f64, frame_bytes: f64) -> f64 {
    pps * (frame_bytes + WIRE_BYTES as f64) * 8.0 / 1e9
}

const PAUSED_PART: f64 = 0.02;

impl fmt::Display for SearchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repeats, duration_s, paused_s, method, measured, queue_packets, .. } = self;
        let searches = if *repeats == 1 { String::new() } else { format!("{repeats} searches, ") };
        let trials = grouped(self.trials.len());
        writeln!(f, "search   {method}: {searches}{trials} trials in {duration_s:.1} s")?;
        writeln!(f, "         {measured}; packets above {} inside are lost", grouped(queue_packets))?;
        self.goals.iter().try_for_each(|goal| goal.fmt(f))?;
        if !self.is_complete {
            writeln!(f, "  ENDED  before the search was done: these are the bounds so far")?;
        }
        if *paused_s > duration_s * PAUSED_PART {
            writeln!(
                f,
                "  PAUSED {paused_s:.1} s, while the harness shared its CPU: the results are less certain"
            )?;
        }
        self.recipes(f)
    }
}

impl SearchReport {
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
            _ => writeln!(f, "; bound by the highest load to try"),
        }
    }
}
