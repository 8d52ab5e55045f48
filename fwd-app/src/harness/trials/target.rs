//! Classifies a load by its trials: lower bound, upper bound or undecided, following MLRsearch.
//!
//! A trial is bad if it lost more than the goal allows. At most the exceed ratio of the time of full-length trials may be bad. A load is
//! classified as soon as the missing trials cannot change the result. Short trials of an earlier, coarser target count as far as the bad
//! ones exceed the share that the good ones excuse.

use super::loads::Bounds;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadTrial {
    pub(crate) duration_s: f64,
    /// Fraction of the intended packets that did not arrive.
    pub(crate) loss_ratio: f64,
}

pub(super) type LoadTrials = BTreeMap<u32, Vec<LoadTrial>>;

/// A target of a goal: the last one is the goal itself, earlier ones are coarser and quicker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LossTarget {
    /// Trials with more loss are bad.
    pub(super) loss_ratio: f64,
    /// Fraction of the trial time that may be bad.
    pub(super) exceed_ratio: f64,
    /// Largest final distance of the bounds, steps.
    pub(super) width: u32,
    pub(super) trial_s: f64,
    /// Seconds of trials that classify a load.
    pub(super) duration_sum_s: f64,
}

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

    /// Whether the load is a lower bound (`Some(true)`) or an upper bound (`Some(false)`); `None` while undecided.
    pub(super) fn is_lower(&self, trials: &[LoadTrial]) -> Option<bool> {
        let TrialSeconds { good, bad, good_short, bad_short } = self.seconds(trials);
        let excused = good_short * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let bad = bad + (bad_short - excused).max(0.0);
        let whole = (good + bad).max(self.duration_sum_s);
        let allowed = whole * self.exceed_ratio;
        // With only good, and with only bad, trials to come.
        let (at_best, at_worst) = (bad <= allowed, whole - good <= allowed);
        (at_best == at_worst).then_some(at_best)
    }

    /// The lowest upper bound, and the highest lower bound below it. Loads above the upper bound are ignored.
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

    /// With trials sorted by loss, the loss where the fraction that may be bad begins. Missing trial time counts as total loss.
    pub(super) fn conditional_loss(&self, trials: &[LoadTrial]) -> f64 {
        let mut long: Vec<_> = trials.iter().filter(|trial| trial.duration_s >= self.trial_s).collect();
        long.sort_by(|one, other| one.loss_ratio.total_cmp(&other.loss_ratio));
        let seconds: f64 = long.iter().map(|trial| trial.duration_s).sum();
        let mut remaining = seconds.max(self.duration_sum_s) * (1.0 - self.exceed_ratio);
        let mut loss_ratio = None;
        for trial in long {
            // Trials with equal loss are one entry, counted as a whole.
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
            // Short trials: two bad ones against one good one; and bad ones that are excused.
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
