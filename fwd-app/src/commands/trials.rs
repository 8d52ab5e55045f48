//! The trials of a replay for the summary.

use crate::harness::HarnessSpec;
use crate::harness::schedule::TrialPace;
use crate::harness::trials::conductor::{Conducted, SearchTrial};
use crate::harness::trials::search::GoalFound;
use crate::harness::trials::{SearchSpec, TrialResult};
use crate::report::curve::CurvePoint;
use crate::report::search::{
    BOUND_FEEDER, BOUND_FORWARDER, BOUND_MAX, GoalReport, SearchReport, TrialLatency, TrialReport, gbps_l1,
};
use crate::report::{FeederReport, LatencyNs, PacketRate, Summary};
use anyhow::bail;

/// The interval of latencies under a rate.
const MEASURED: &str = "intended send time to arrival";

/// Replaces rate and latency of the whole replay by the measured ones. The forwarder holds at most `queue_packets`.
pub(super) fn add(
    summary: &mut Summary,
    conducted: &Conducted,
    spec: &HarnessSpec,
    queue_packets: u64,
    tsc_hz: u64,
) {
    if let Some(measured) = &conducted.measured {
        if conducted.warmup_s.is_some() || conducted.reference_pps.is_some() {
            summary.rate = PacketRate::new(&measured.counters, measured.duration_s, tsc_hz);
        }
        if let Some(latency) = &measured.latency {
            summary.show_latency(latency, MEASURED);
        }
    }
    let Some(search) = &spec.search else { return };
    let report = report(conducted, search, queue_packets);
    if let Some(sum) = report.goals.first().and_then(|goal| conducted.at_load(goal.lower_pps?)) {
        summary.rate = PacketRate::new(&sum.counters, sum.feeding_s, tsc_hz);
        summary.show_latency(&sum.latency, MEASURED);
    }
    summary.search = Some(report);
    summary.curve = conducted.curve.iter().map(|(percent, result)| point(*percent, result)).collect();
}

/// The feeder's part in the reported trials; `None` without a feeder.
pub(super) fn feeder(
    conducted: &Conducted,
    search: Option<&SearchReport>,
    tsc_hz: u64,
) -> Option<FeederReport> {
    let time = conducted.feeder?;
    // A search also offers more than the feeder can send, and less.
    let is_bound = search
        .map_or_else(|| time.is_bound(), |search| search.goals.iter().any(|goal| goal.bound == BOUND_FEEDER));
    Some(FeederReport { is_bound, alone_pps: time.alone_pps(tsc_hz), limit_ratio: time.limit_ratio() })
}

/// Checks that the search succeeded.
///
/// # Errors
/// It failed without having been ended early.
pub(super) fn judge(conducted: &Conducted) -> anyhow::Result<()> {
    if let Some(failure) = &conducted.failure {
        bail!("{failure}");
    }
    let is_missing = |found: &&GoalFound| found.throughput_pps.is_none();
    let missing = conducted.searches.iter().flatten().find(is_missing).filter(|_| !conducted.is_cut);
    let Some(GoalFound { loss_ratio, .. }) = missing else { return Ok(()) };
    let (min_pps, _) = conducted.limits_pps.unwrap_or_default();
    bail!(
        "no rate has a loss of {} % or less: even the lowest, {min_pps:.0} pps, loses more",
        loss_ratio * 100.0
    )
}

fn report(conducted: &Conducted, spec: &SearchSpec, queue_packets: u64) -> SearchReport {
    let (min_pps, max_pps) = conducted.limits_pps.unwrap_or_default();
    let (method, measured) = SearchReport::WORDS;
    let goals = 0..spec.rules.loss_ratios.len();
    SearchReport {
        method,
        measured,
        is_complete: !conducted.is_cut && conducted.failure.is_none(),
        repeats: conducted.searches.len(),
        exceed_ratio: spec.rules.exceed_ratio,
        initial_trial_s: spec.rules.initial_trial_s,
        final_trial_s: spec.rules.final_trial_s,
        duration_sum_s: spec.rules.duration_sum_s,
        width: spec.rules.width,
        min_pps,
        max_pps,
        frame_bytes_mean: conducted.frame_bytes,
        full_speed_pps: conducted.full_speed_pps,
        queue_packets,
        duration_s: conducted.trials.iter().map(|trial| trial.result.duration_s).sum(),
        paused_s: conducted.trials.iter().map(|trial| trial.result.paused_s).sum(),
        goals: goals.map(|goal| goal_report(conducted, spec.rules.loss_ratios[goal], goal)).collect(),
        trials: conducted.trials.iter().map(trial_report).collect(),
    }
}

fn goal_report(conducted: &Conducted, loss: f64, goal: usize) -> GoalReport {
    let rates = conducted.rates_of(goal);
    let rate_pps = rates.get(rates.len() / 2).copied();
    let all = || conducted.searches.iter().filter_map(|found| found.get(goal));
    let median = all().find(|found| found.throughput_pps == rate_pps);
    let (lower_pps, upper_pps) = median.map_or((None, None), |found| (found.lower_pps, found.upper_pps));
    GoalReport {
        loss,
        rate_pps,
        rate_gbps_l1: rate_pps.map(|pps| gbps_l1(pps, conducted.frame_bytes)),
        rate_min_pps: rates.first().copied(),
        rate_max_pps: rates.last().copied(),
        lower_pps,
        upper_pps,
        width: lower_pps.zip(upper_pps).map(|(lower, upper)| (upper - lower) / upper),
        conditional_throughput_pps: all().map(|found| found.throughput_pps).collect(),
        bound: upper_pps.map_or(BOUND_MAX, |upper| bound(&conducted.trials, upper, loss)),
    }
}

fn bound(trials: &[SearchTrial], upper_pps: f64, loss: f64) -> &'static str {
    let mut bad = trials
        .iter()
        .filter(|trial| offered_pps(&trial.result) == upper_pps && trial.result.loss_ratio(true) > loss);
    // Every bad trial would pass if packets that the harness failed to send did not count as lost.
    if bad.all(|trial| trial.result.loss_ratio(false) <= loss) { BOUND_FEEDER } else { BOUND_FORWARDER }
}

fn offered_pps(result: &TrialResult) -> f64 {
    match result.trial.pace {
        TrialPace::Even { pps, .. } => pps,
        TrialPace::Max | TrialPace::Traced => result.fed_pps(),
    }
}

fn trial_report(trial: &SearchTrial) -> TrialReport {
    let SearchTrial { repeat, result, latency_ns } = trial;
    let [p50, p90, p99, p99_9, max] = *latency_ns;
    TrialReport {
        repeat: repeat + 1,
        offered_pps: offered_pps(result),
        duration_s: result.trial.seconds.unwrap_or(result.duration_s),
        fed: result.fed,
        lost: result.lost(),
        missed: result.missed,
        unsent: result.unsent,
        paused_s: result.paused_s,
        loss_ratio: result.loss_ratio(true),
        latency_ns: TrialLatency { p50, p90, p99, p99_9, max },
    }
}

fn point(percent: u32, result: &TrialResult) -> CurvePoint {
    let loss_ratio = result.loss_ratio(true);
    let latency_ns = result.latency.as_ref().map_or_else(
        || LatencyNs { measured: MEASURED, ..LatencyNs::default() },
        |latency| LatencyNs::new(latency.total().histogram(), MEASURED),
    );
    CurvePoint {
        percent,
        offered_pps: offered_pps(result),
        pps: offered_pps(result) * (1.0 - loss_ratio),
        loss_ratio,
        latency_ns,
    }
}
