//! Decides which trial comes next: one for a plain replay, after a warm-up if there is one; many for a search.
//!
//! A rate in percent is of the rate that a short search without loss finds first: full speed says how fast the forwarder empties queues
//! that are never empty, but not what it takes without losing a packet.

use super::super::HarnessSpec;
use super::super::schedule::{OfferedRate, Pace, RateUnit};
use super::search::{GoalFound, LossSearch, SearchRules, WantedTrial};
use super::{SearchSpec, Trial, TrialResult};
use crate::datapath::Counters;
use crate::datapath::latency::LatencyBySize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// How long full speed is measured, to know the highest load of a search.
const FULL_SPEED_S: f64 = 0.5;
/// So much above full speed is the highest load.
const ABOVE_FULL_SPEED: f64 = 1.1;
/// The lowest load of the search for the rate that a percentage is of, packets a second.
const REFERENCE_MIN_PPS: f64 = 1000.0;
/// The points of a curve, percent of the rate found.
pub(super) const CURVE: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// A point of a curve takes so many trials' time, that there are packets enough for its percentiles.
const CURVE_TRIALS: f64 = 2.0;

/// What is measured one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The packets before the measurement.
    Warmup,
    /// Full speed, for the limits of a search.
    FullSpeed,
    /// A short search, for a rate in percent.
    Reference,
    /// A search.
    Search,
    /// Latency at a part of the rate found, percent.
    Point(u32),
    /// What is reported of a plain replay.
    Measured,
}

/// A trial of a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchTrial {
    /// Which search, from 0.
    pub(crate) repeat: usize,
    /// What became of it, without its latencies.
    pub(crate) result: TrialResult,
    /// The quantiles [`QUANTILES`] of its latencies, nanoseconds; zeros when no packet arrived.
    pub(crate) latency_ns: [u64; QUANTILES.len()],
}

/// The quantiles that are kept of each trial of a search.
pub(crate) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conducted {
    /// Bytes of a frame of the trace, the mean.
    pub(crate) frame_bytes: f64,
    /// The measured part of a plain replay.
    pub(crate) measured: Option<TrialResult>,
    /// How long the warm-up took, seconds.
    pub(crate) warmup_s: Option<f64>,
    /// The rate that percentages are of, packets a second.
    pub(crate) reference_pps: Option<f64>,
    /// Full speed, packets a second.
    pub(crate) full_speed_pps: Option<f64>,
    /// The lowest and the highest load, packets a second.
    pub(crate) limits_pps: Option<(f64, f64)>,
    /// What each search found, a goal each.
    pub(crate) searches: Vec<Vec<GoalFound>>,
    /// All trials of searches.
    pub(crate) trials: Vec<SearchTrial>,
    /// Percent, and what became of that trial.
    pub(crate) curve: Vec<(u32, TrialResult)>,
    /// Whether it was ended before it was done.
    pub(crate) is_cut: bool,
    /// Why it could not go on.
    pub(crate) failure: Option<String>,
    /// The longest trials of each load, by the bits of its packets a second.
    by_load: BTreeMap<u64, LoadSum>,
}

/// The trials of a load together.
#[derive(Clone, Debug)]
pub(crate) struct LoadSum {
    /// Latencies from the intended send time.
    pub(crate) latency: LatencyBySize,
    /// What the forwarder counted.
    pub(crate) counters: Counters,
    /// How long they were fed, seconds.
    pub(crate) feeding_s: f64,
}

impl Conducted {
    /// What came of the longest trials at a load of so many packets a second.
    pub(crate) fn at_load(&self, pps: f64) -> Option<&LoadSum> {
        self.by_load.get(&pps.to_bits())
    }

    /// The conditional throughputs of goal `goal` of all searches, sorted.
    pub(crate) fn rates_of(&self, goal: usize) -> Vec<f64> {
        let rate = |found: &Vec<GoalFound>| found.get(goal)?.throughput_pps;
        let mut rates: Vec<_> = self.searches.iter().filter_map(rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

/// See the module.
pub(crate) struct Conductor {
    steps: VecDeque<Step>,
    rate: OfferedRate,
    ramp_s: Option<f64>,
    warmup_s: f64,
    duration_s: Option<f64>,
    search: Option<SearchSpec>,
    /// The search that is under way, and the trial it waits for.
    running: Option<(LossSearch, Option<WantedTrial>)>,
    is_stopping: bool,
    /// Whether the trace is read meanwhile, and the mean is that of its beginning.
    is_streamed: bool,
    conducted: Conducted,
}

impl Conductor {
    /// For what `spec` wants; frames have `frame_bytes` bytes on average, of a trace that is read meanwhile those at its beginning.
    pub(crate) fn new(spec: &HarnessSpec, frame_bytes: f64, is_streamed: bool) -> Self {
        let mut steps = VecDeque::new();
        let has_full_speed =
            spec.search.as_ref().map_or(spec.rate.is_relative(), |search| search.max.is_none());
        let curve = spec.search.as_ref().is_some_and(|search| search.curve);
        if spec.search.is_some() {
            steps.extend(spec.warmup.map(|_| Step::Warmup));
            steps.extend(has_full_speed.then_some(Step::FullSpeed));
            steps.extend([Step::Search]);
            steps.extend(CURVE.into_iter().filter(|_| curve).map(Step::Point));
        } else {
            if spec.rate.is_relative() {
                steps.extend([Step::FullSpeed, Step::Reference]);
            }
            steps.extend(spec.warmup.map(|_| Step::Warmup));
            steps.push_back(Step::Measured);
        }
        Self {
            steps,
            rate: spec.rate,
            ramp_s: spec.ramp.map(|ramp| ramp.as_secs_f64()),
            warmup_s: spec.warmup.map_or(0.0, |warmup| warmup.as_secs_f64()),
            duration_s: spec.duration.map(|duration| duration.as_secs_f64()),
            search: spec.search.clone(),
            running: None,
            is_stopping: false,
            is_streamed,
            conducted: Conducted { frame_bytes, ..Conducted::default() },
        }
    }

    /// The next trial; `None` when there is nothing more to do.
    pub(crate) fn next(&mut self) -> Option<Trial> {
        loop {
            let step = *self.steps.front().filter(|_| !self.is_stopping)?;
            let is_warmup = step == Step::Warmup;
            let plain = |pace, seconds| Trial { pace, seconds, loses: false, is_warmup };
            let trial = match step {
                Step::Warmup => Some(plain(self.pace(), Some(self.warmup_s))),
                Step::Measured => Some(plain(self.pace().after(self.warmup_s), self.duration_s)),
                Step::FullSpeed => Some(plain(Pace::Max, Some(FULL_SPEED_S))),
                Step::Reference | Step::Search => self.next_of_search(step),
                Step::Point(percent) => self.point(percent),
            };
            if trial.is_some() {
                return trial;
            }
            self.steps.pop_front();
        }
    }

    /// The pace of a plain replay, and of a warm-up.
    fn pace(&self) -> Pace {
        let reference_pps = self.conducted.reference_pps.unwrap_or(0.0);
        let pps = |rate: f64, unit| match unit {
            RateUnit::Pps => rate,
            RateUnit::Bps => rate / (self.conducted.frame_bytes * 8.0),
            RateUnit::Percent => reference_pps * rate / 100.0,
        };
        let even = |rate, unit| match self.ramp_s {
            Some(rise_s) => Pace::Even { from_pps: 0.0, pps: pps(rate, unit), rise_s },
            None => Pace::even(pps(rate, unit)),
        };
        match self.rate {
            OfferedRate::Max => Pace::Max,
            OfferedRate::Times(_) => Pace::Traced,
            // The bits of each frame are known then, and not their mean.
            OfferedRate::Bps(_) if self.is_streamed && self.ramp_s.is_none() => Pace::Traced,
            OfferedRate::Pps(rate) => even(rate, RateUnit::Pps),
            OfferedRate::Bps(rate) => even(rate, RateUnit::Bps),
            OfferedRate::Percent(rate) => even(rate, RateUnit::Percent),
            OfferedRate::Between(from, to, unit) => {
                let whole_s = self.duration_s.map_or(0.0, |duration_s| self.warmup_s + duration_s);
                let rise_s = self.ramp_s.unwrap_or(whole_s);
                Pace::Even { from_pps: pps(from, unit), pps: pps(to, unit), rise_s }
            }
        }
    }

    /// The load that an option gives.
    fn load_pps(&self, rate: OfferedRate) -> f64 {
        match rate {
            OfferedRate::Pps(pps) => pps,
            OfferedRate::Bps(bps) => bps / (self.conducted.frame_bytes * 8.0),
            _ => 0.0,
        }
    }

    /// The next trial of a search; `None` when it has ended.
    fn next_of_search(&mut self, step: Step) -> Option<Trial> {
        if self.running.is_none() {
            self.running = Some((self.begin_search(step)?, None));
        }
        let (search, waiting) = self.running.as_mut()?;
        *waiting = search.next();
        if let Some(wanted) = waiting {
            return Some(Trial::lossy(wanted.pps, wanted.duration_s));
        }
        let (search, _) = self.running.take()?;
        let found = search.results();
        if step == Step::Reference {
            self.conducted.reference_pps = found.first().and_then(|found| found.throughput_pps);
            if self.conducted.reference_pps.is_none() {
                let (min_pps, _) = self.conducted.limits_pps.unwrap_or_default();
                self.fail(format!(
                    "--rate {}: there is no rate without loss, even {min_pps} pps loses packets",
                    self.rate
                ));
            }
            return None;
        }
        self.conducted.searches.push(found);
        let repeats = self.search.as_ref().map_or(1, |search| search.repeats);
        if self.conducted.searches.len() < repeats as usize { self.next_of_search(step) } else { None }
    }

    /// A search between its limits, which are known after the first.
    fn begin_search(&mut self, step: Step) -> Option<LossSearch> {
        let full_speed = self.conducted.full_speed_pps.unwrap_or(0.0) * ABOVE_FULL_SPEED;
        let (rules, min_pps, max_pps) = match (&self.search, step) {
            (Some(search), Step::Search) => {
                let max_pps = search.max.map_or(full_speed, |max| self.load_pps(max));
                (search.rules.clone(), self.load_pps(search.min), max_pps)
            }
            _ => (reference_rules(), REFERENCE_MIN_PPS, full_speed),
        };
        if max_pps <= min_pps {
            self.fail(format!("a search needs loads from below to above: the lowest is {min_pps} pps, the highest {max_pps:.0} pps"));
            return None;
        }
        self.conducted.limits_pps = Some((min_pps, max_pps));
        Some(LossSearch::new(&rules, min_pps, max_pps))
    }

    /// A point of the curve: percent of the median rate of the first goal.
    fn point(&self, percent: u32) -> Option<Trial> {
        let rates = self.conducted.rates_of(0);
        let rate = rates.get(rates.len() / 2)?;
        let seconds = self.search.as_ref()?.rules.final_trial_s * CURVE_TRIALS;
        Some(Trial::lossy(rate * f64::from(percent) / 100.0, seconds))
    }

    /// Takes the result of the trial that [`Self::next`] gave.
    pub(crate) fn record(&mut self, result: TrialResult) {
        let Some(step) = self.steps.front().copied() else { return };
        if self.is_stopping && step != Step::Measured {
            return;
        }
        match step {
            Step::Warmup => self.conducted.warmup_s = Some(result.duration_s),
            Step::FullSpeed => self.conducted.full_speed_pps = Some(result.fed_pps()),
            Step::Point(percent) => self.conducted.curve.push((percent, result)),
            Step::Measured => self.conducted.measured = Some(result),
            Step::Reference | Step::Search => {
                let Some((search, waiting)) = &mut self.running else { return };
                let Some(wanted) = waiting.take() else { return };
                search.record(wanted, result.loss_ratio(true));
                if step == Step::Search {
                    self.keep(result);
                }
                return;
            }
        }
        self.steps.pop_front();
    }

    /// Keeps the result of a trial of a search; of the longest ones, whose loads are results, all latencies.
    fn keep(&mut self, mut result: TrialResult) {
        let Some(latency) = result.latency.take() else { return };
        let total = latency.total();
        let latency_ns = QUANTILES.map(|quantile| total.histogram().value_at_quantile(quantile));
        let final_s = self.search.as_ref().map(|search| search.rules.final_trial_s);
        if let Pace::Even { pps, .. } = result.trial.pace
            && result.trial.seconds >= final_s
        {
            let TrialResult { counters, feeding_s, .. } = result;
            match self.conducted.by_load.entry(pps.to_bits()) {
                Entry::Occupied(mut sum) => {
                    let sum = sum.get_mut();
                    sum.latency.merge(&latency);
                    sum.counters.merge(&counters);
                    sum.feeding_s += feeding_s;
                }
                Entry::Vacant(empty) => drop(empty.insert(LoadSum { latency, counters, feeding_s })),
            }
        }
        let repeat = self.conducted.searches.len();
        self.conducted.trials.push(SearchTrial { repeat, result, latency_ns });
    }

    /// Nothing more is begun. What was found so far is the result, and of a plain replay what was sent so far.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    fn fail(&mut self, why: String) {
        self.conducted.failure = Some(why);
        self.steps.clear();
    }

    /// What was found.
    pub(crate) fn finish(mut self) -> Conducted {
        self.conducted.is_cut = !self.steps.is_empty();
        if let Some((search, _)) = self.running.filter(|_| self.search.is_some()) {
            self.conducted.searches.push(search.results());
        }
        self.conducted
    }
}

/// The search for the rate that a percentage is of: short, and as near as a percentage needs.
pub(super) fn reference_rules() -> SearchRules {
    SearchRules {
        loss_ratios: vec![0.0],
        exceed_ratio: 0.5,
        initial_trial_s: 0.1,
        final_trial_s: 0.2,
        duration_sum_s: 0.6,
        width: 0.01,
    }
}
