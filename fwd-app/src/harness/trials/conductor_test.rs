//! The sequence of trials over a simulated forwarder.

use super::super::HarnessSpec;
use super::super::schedule::{OfferedRate, TrialPace};
use super::conductor::{CURVE, Conducted, Conductor, reference_rules};
use super::search::SearchRules;
use super::{SearchSpec, Trial, TrialResult};
use crate::datapath::Counters;
use crate::datapath::latency::LatencyBySize;
use std::time::Duration;

fn result(trial: Trial, capacity_pps: f64) -> TrialResult {
    let seconds = trial.seconds.unwrap_or(1.0);
    let pps = match trial.pace {
        TrialPace::Even { pps, .. } => pps,
        TrialPace::Max | TrialPace::Traced => capacity_pps,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is not negative"
    )]
    let [offered, fed] = [pps, pps.min(capacity_pps)].map(|pps| (pps * seconds) as u64);
    let mut result = TrialResult::at_full_speed(fed, seconds, Counters::default());
    result.missed = if trial.loses { offered - fed } else { 0 };
    result.latency = Some(LatencyBySize::new(1_000_000_000));
    result.trial = trial;
    result
}

fn conduct(spec: &HarnessSpec, trials_max: usize) -> (Vec<Trial>, Conducted) {
    let mut conductor = Conductor::new(spec, 125.0, false);
    let mut trials = Vec::new();
    while let Some(trial) = conductor.next() {
        trials.push(trial);
        if trials.len() == trials_max {
            conductor.stop();
        }
        conductor.record(result(trial, 1e6));
    }
    (trials, conductor.finish())
}

fn search(repeats: u32, curve: bool) -> SearchSpec {
    let rules = SearchRules { loss_ratios: vec![0.0, 0.01], ..reference_rules() };
    SearchSpec { rules, min: OfferedRate::Pps(1e3), max: None, repeats, curve }
}

#[test]
fn a_plain_replay_is_one_trial_after_its_warm_up() {
    let second = Some(Duration::from_secs(1));
    let (trials, found) = conduct(&HarnessSpec::usual(), 9);
    assert_eq!((trials.len(), trials[0].seconds, trials[0].pace), (1, None, TrialPace::Max));
    assert!(found.measured.is_some() && found.warmup_s.is_none() && !found.is_cut);
    let rate = OfferedRate::Bps(1e6);
    let spec = HarnessSpec {
        rate,
        duration: second,
        warmup: second,
        ramp: second.map(|s| s * 2),
        ..HarnessSpec::usual()
    };
    let (trials, found) = conduct(&spec, 9);
    let [warmup, measured] = trials[..] else { panic!("{trials:?}") };
    assert!(warmup.is_warmup && !measured.is_warmup && !measured.loses);
    // A million bits are a thousand packets; the ramp is halfway after the warm-up.
    assert_eq!(measured.pace, TrialPace::Even { from_pps: 500.0, pps: 1000.0, rise_s: 1.0 });
    assert_eq!((found.warmup_s, found.measured.unwrap().fed), (Some(1.0), 1000));
}

#[test]
fn a_percentage_is_of_the_rate_without_loss() {
    let second = Some(Duration::from_secs(1));
    let spec = HarnessSpec { rate: OfferedRate::Percent(50.0), duration: second, ..HarnessSpec::usual() };
    let (trials, found) = conduct(&spec, 1000);
    let reference = found.reference_pps.unwrap();
    assert!((0.98e6..=1e6).contains(&reference), "{reference}");
    assert_eq!(trials[0].pace, TrialPace::Max);
    assert_eq!(trials[trials.len() - 1].pace, TrialPace::even(reference * 50.0 / 100.0));
    assert!(found.searches.is_empty() && found.trials.is_empty(), "it is not the search that was asked for");
}

#[test]
fn searches_come_before_the_curve_and_a_stop_leaves_what_was_found() {
    let spec = HarnessSpec { search: Some(search(3, true)), ..HarnessSpec::usual() };
    let (trials, found) = conduct(&spec, 10_000);
    assert_eq!((found.searches.len(), found.rates_of(0).len(), found.is_cut), (3, 3, false));
    assert!(found.rates_of(0).iter().all(|pps| (0.985e6..=1e6).contains(pps)), "{:?}", found.searches);
    assert_eq!(found.curve.iter().map(|(percent, _)| *percent).collect::<Vec<_>>(), CURVE);
    let searched = trials.len() - 1 - CURVE.len();
    assert_eq!((found.trials.len(), found.trials[searched - 1].repeat), (searched, 2));
    let lower = found.searches[0][0].lower_pps.unwrap();
    assert!(found.at_load(lower).is_some_and(|sum| sum.feeding_s > 0.0));
    let (_, cut) = conduct(&spec, searched / 2);
    assert!(cut.is_cut && !cut.searches.is_empty() && cut.curve.is_empty());
    assert_eq!(
        cut.trials.len(),
        searched / 2 - 2,
        "full speed is no trial of the search, and the last one is not whole"
    );
}

#[test]
fn limits_that_leave_nothing_between_are_said() {
    let slow = SearchSpec { min: OfferedRate::Pps(5e6), ..search(1, false) };
    let (trials, found) = conduct(&HarnessSpec { search: Some(slow), ..HarnessSpec::usual() }, 1000);
    assert_eq!((trials.len(), found.searches.len()), (1, 0));
    assert!(found.failure.unwrap().contains("the lowest is 5000000 pps, the highest 1100000 pps"));
}
