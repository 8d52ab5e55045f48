//! What the trials of a load say of it: a lower bound, an upper bound, or nothing yet, as MLRsearch classifies loads.
//!
//! A trial is bad when it lost more than the goal allows. Of the time of all trials that are long enough, at most the exceed ratio may be
//! bad. A load is classified as soon as trials that are still to come, up to the sum of durations that is wanted, cannot change that.
//! Short trials, of an earlier and coarser target, count against a load when there are more bad ones than good ones excuse.

use super::loads::Bounds;
use std::collections::BTreeMap;

/// A trial of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadTrial {
    /// How long packets were to be sent, seconds.
    pub(crate) duration_s: f64,
    /// What part of the packets that were to be sent did not arrive.
    pub(crate) loss_ratio: f64,
}

/// The trials of each load, by its number.
pub(super) type LoadTrials = BTreeMap<u32, Vec<LoadTrial>>;

/// What is to be reached: of a goal the last one is the goal itself, those before are coarser and quicker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossTarget {
    /// A trial that lost more is bad.
    pub(super) loss_ratio: f64,
    /// What part of the time may be bad trials.
    pub(super) exceed_ratio: f64,
    /// How near both bounds are to be, steps.
    pub(super) width: u32,
    /// How long a trial is, seconds.
    pub(super) trial_s: f64,
    /// Seconds of trials that are enough to classify a load.
    pub(super) duration_sum_s: f64,
}

/// Seconds of trials, by what they are.
#[derive(Clone, Copy, Debug, Default)]
struct TrialSeconds {
    good: f64,
    bad: f64,
    good_short: f64,
    bad_short: f64,
}

impl LossTarget {
    fn seconds(&self, trials: &[LoadTrial]) -> TrialSeconds {
        let mut seconds = TrialSeconds::default();
        for trial in trials {
            let is_bad = trial.loss_ratio > self.loss_ratio;
            let sum = match (trial.duration_s >= self.trial_s, is_bad) {
                (true, false) => &mut seconds.good,
                (true, true) => &mut seconds.bad,
                (false, false) => &mut seconds.good_short,
                (false, true) => &mut seconds.bad_short,
            };
            *sum += trial.duration_s;
        }
        seconds
    }

    /// Whether a load with these trials is a lower bound, `Some(true)`, or an upper one, `Some(false)`; `None` while that is open.
    pub(super) fn is_lower(&self, trials: &[LoadTrial]) -> Option<bool> {
        let TrialSeconds { good, bad, good_short, bad_short } = self.seconds(trials);
        let excused = good_short * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let bad = bad + (bad_short - excused).max(0.0);
        let whole = (good + bad).max(self.duration_sum_s);
        let allowed = whole * self.exceed_ratio;
        // If all that is still to come were good, and if all of it were bad.
        let (at_best, at_worst) = (bad <= allowed, whole - good <= allowed);
        (at_best == at_worst).then_some(at_best)
    }

    /// The highest lower bound below the lowest upper bound, and that one. A load above, however good, says nothing then.
    pub(super) fn bounds(&self, trials: &LoadTrials) -> Bounds {
        let mut bounds = Bounds::default();
        for (load, trials) in trials {
            match self.is_lower(trials) {
                Some(true) => bounds.lower = Some(*load),
                Some(false) => {
                    bounds.upper = Some(*load);
                    break;
                }
                None => {}
            }
        }
        bounds
    }

    /// The loss ratio that conditional throughput is computed from: with trials in the order of their losses, that at which the part which
    /// may be bad begins. What is missing of the sum of durations counts as lost altogether.
    pub(super) fn conditional_loss(&self, trials: &[LoadTrial]) -> f64 {
        let mut long: Vec<_> = trials.iter().filter(|trial| trial.duration_s >= self.trial_s).collect();
        long.sort_by(|one, other| one.loss_ratio.total_cmp(&other.loss_ratio));
        let seconds: f64 = long.iter().map(|trial| trial.duration_s).sum();
        let mut remaining = seconds.max(self.duration_sum_s) * (1.0 - self.exceed_ratio);
        let mut loss_ratio = None;
        for trial in long {
            // Trials of the same loss are one entry, which is counted to its end.
            if loss_ratio.is_none_or(|loss| loss == trial.loss_ratio) || remaining > 0.0 {
                loss_ratio = Some(trial.loss_ratio);
                remaining -= trial.duration_s;
            } else {
                return loss_ratio.unwrap_or(1.0);
            }
        }
        if remaining > 1e-9 { 1.0 } else { loss_ratio.unwrap_or(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: LossTarget =
        LossTarget { loss_ratio: 0.001, exceed_ratio: 0.5, width: 1, trial_s: 1.0, duration_sum_s: 5.0 };

    fn trials(of: &[(f64, f64)]) -> Vec<LoadTrial> {
        of.iter().map(|&(duration_s, loss_ratio)| LoadTrial { duration_s, loss_ratio }).collect()
    }

    #[test]
    fn a_load_is_classified_when_what_is_to_come_cannot_change_it() {
        let (good, bad) = ((1.0, 0.001), (1.0, 0.002));
        for (of, wanted) in [
            (&[][..], None),
            (&[good, good], None),
            (&[good, good, good], Some(true)),
            (&[bad, bad], None),
            (&[bad, good, bad, bad], Some(false)),
            (&[good, bad, good, bad], None),
            (&[good, bad, good, bad, good], Some(true)),
            // Short trials: two bad ones against one good one; and excused ones.
            (&[(0.5, 1.0), (0.5, 1.0)], None),
            (&[(0.9, 1.0), (0.9, 1.0), (0.9, 1.0)], Some(false)),
            (&[(0.9, 1.0), (0.9, 1.0), (0.9, 1.0), (0.9, 0.0)], None),
        ] {
            assert_eq!(TARGET.is_lower(&trials(of)), wanted, "{of:?}");
        }
        // RFC 2544: one long trial without a loss.
        let strict =
            LossTarget { loss_ratio: 0.0, exceed_ratio: 0.0, trial_s: 60.0, duration_sum_s: 60.0, ..TARGET };
        assert_eq!(strict.is_lower(&trials(&[(60.0, 0.0)])), Some(true));
        assert_eq!(strict.is_lower(&trials(&[(60.0, 1e-9)])), Some(false));
        assert_eq!(strict.is_lower(&trials(&[(59.0, 0.0)])), None);
    }

    #[test]
    fn a_load_above_an_upper_bound_says_nothing() {
        let all = |loss| trials(&[(1.0, loss); 5]);
        let found =
            LoadTrials::from([(1, all(0.0)), (2, all(0.0)), (3, all(0.5)), (4, all(0.0)), (5, all(0.9))]);
        assert_eq!(TARGET.bounds(&found), Bounds { lower: Some(2), upper: Some(3) });
        assert_eq!(TARGET.bounds(&LoadTrials::new()), Bounds::default());
    }

    #[test]
    fn conditional_loss_is_that_of_the_worst_trial_that_must_be_good() {
        for (of, wanted) in [
            (&[(1.0, 0.0), (1.0, 0.0005), (1.0, 0.0001)][..], 0.0005),
            (&[(1.0, 0.0), (1.0, 0.3), (1.0, 0.0), (1.0, 0.2), (1.0, 0.0001)], 0.0001),
            (&[(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (0.1, 0.9)], 0.0),
            (&[(1.0, 0.0)], 1.0),
            (&[], 1.0),
        ] {
            assert!((TARGET.conditional_loss(&trials(of)) - wanted).abs() < 1e-12, "{of:?}");
        }
    }
}
