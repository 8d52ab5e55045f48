//! Determines the sequence of trials. Rates in percent refer to the loss-free rate, which a short search finds first. Full speed is not
//! that rate: it shows how fast the forwarder empties queues that are never empty.

use super::super::HarnessSpec;
use super::super::schedule::{OfferedRate, RateUnit, TrialPace};
use super::feeding::FeederTime;
use super::search::{GoalFound, LossSearch, SearchRules, WantedTrial};
use super::{SearchSpec, Trial, TrialResult};
use crate::datapath::Counters;
use crate::datapath::latency::LatencyBySize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// Duration of the full-speed trial that determines the highest load of a search.
const FULL_SPEED_S: f64 = 0.5;
/// Highest load relative to full speed.
const ABOVE_FULL_SPEED: f64 = 1.1;
/// Lowest load of the reference search, packets a second.
const REFERENCE_MIN_PPS: f64 = 1000.0;
/// Points of a curve, percent of the rate found.
pub(super) const CURVE: [u32; 10] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// A curve point lasts this many final trials, to have enough packets for its percentiles.
const CURVE_TRIALS: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialStep {
    Warmup,
    FullSpeed,
    Reference,
    Search,
    /// Latency at this percentage of the rate found.
    Point(u32),
    /// The reported trial of a plain replay.
    Measured,
}

#[derive(Clone, Debug)]
pub(crate) struct SearchTrial {
    pub(crate) repeat: usize,
    /// The result; its latencies are in `latency_ns`.
    pub(crate) result: TrialResult,
    /// Latencies at [`QUANTILES`], nanoseconds; zeros when no packet arrived.
    pub(crate) latency_ns: [u64; QUANTILES.len()],
}

/// Latency quantiles kept for each search trial.
pub(crate) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

#[derive(Clone, Debug, Default)]
pub(crate) struct Conducted {
    pub(crate) frame_bytes: f64,
    pub(crate) measured: Option<TrialResult>,
    pub(crate) warmup_s: Option<f64>,
    /// The loss-free rate, packets a second.
    pub(crate) reference_pps: Option<f64>,
    pub(crate) full_speed_pps: Option<f64>,
    /// Lowest and highest load, packets a second.
    pub(crate) limits_pps: Option<(f64, f64)>,
    pub(crate) searches: Vec<Vec<GoalFound>>,
    pub(crate) trials: Vec<SearchTrial>,
    pub(crate) curve: Vec<(u32, TrialResult)>,
    /// Over all reported trials; `None` without a feeder.
    pub(crate) feeder: Option<FeederTime>,
    pub(crate) is_cut: bool,
    pub(crate) failure: Option<String>,
    /// Final trials of each load, by the bits of its packets a second.
    by_load: BTreeMap<u64, LoadSum>,
}

#[derive(Clone, Debug)]
pub(crate) struct LoadSum {
    pub(crate) latency: LatencyBySize,
    pub(crate) counters: Counters,
    pub(crate) feeding_s: f64,
}

impl Conducted {
    pub(crate) fn at_load(&self, pps: f64) -> Option<&LoadSum> {
        self.by_load.get(&pps.to_bits())
    }

    /// Conditional throughputs of a goal over all searches, sorted.
    pub(crate) fn rates_of(&self, goal: usize) -> Vec<f64> {
        let rate = |found: &Vec<GoalFound>| found.get(goal)?.throughput_pps;
        let mut rates: Vec<_> = self.searches.iter().filter_map(rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

pub(crate) struct Conductor {
    steps: VecDeque<TrialStep>,
    rate: OfferedRate,
    ramp_s: Option<f64>,
    warmup_s: f64,
    duration_s: Option<f64>,
    search: Option<SearchSpec>,
    running: Option<(LossSearch, Option<WantedTrial>)>,
    is_stopping: bool,
    /// A streamed trace: the mean frame size covers its beginning only.
    is_streamed: bool,
    conducted: Conducted,
}

impl Conductor {
    /// `frame_bytes` is the mean bytes of a frame; for a streamed trace, of its beginning.
    pub(crate) fn new(spec: &HarnessSpec, frame_bytes: f64, is_streamed: bool) -> Self {
        let mut steps = VecDeque::new();
        let has_full_speed =
            spec.search.as_ref().map_or(spec.rate.is_relative(), |search| search.max.is_none());
        let curve = spec.search.as_ref().is_some_and(|search| search.curve);
        if spec.search.is_some() {
            steps.extend(spec.warmup.map(|_| TrialStep::Warmup));
            steps.extend(has_full_speed.then_some(TrialStep::FullSpeed));
            steps.extend([TrialStep::Search]);
            steps.extend(CURVE.into_iter().filter(|_| curve).map(TrialStep::Point));
        } else {
            if spec.rate.is_relative() {
                steps.extend([TrialStep::FullSpeed, TrialStep::Reference]);
            }
            steps.extend(spec.warmup.map(|_| TrialStep::Warmup));
            steps.push_back(TrialStep::Measured);
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
            conducted: Conducted { frame_bytes, feeder: Some(FeederTime::default()), ..Conducted::default() },
        }
    }

    pub(crate) fn next(&mut self) -> Option<Trial> {
        loop {
            let step = *self.steps.front().filter(|_| !self.is_stopping)?;
            let is_warmup = step == TrialStep::Warmup;
            let plain = |pace, seconds| Trial { pace, seconds, loses: false, is_warmup };
            let trial = match step {
                TrialStep::Warmup => Some(plain(self.pace(), Some(self.warmup_s))),
                TrialStep::Measured => Some(plain(self.pace().after(self.warmup_s), self.duration_s)),
                TrialStep::FullSpeed => Some(plain(TrialPace::Max, Some(FULL_SPEED_S))),
                TrialStep::Reference | TrialStep::Search => self.next_of_search(step),
                TrialStep::Point(percent) => self.point(percent),
            };
            if trial.is_some() {
                return trial;
            }
            self.steps.pop_front();
        }
    }

    fn pace(&self) -> TrialPace {
        let reference_pps = self.conducted.reference_pps.unwrap_or(0.0);
        let pps = |rate: f64, unit| match unit {
            RateUnit::Pps => rate,
            RateUnit::Bps => rate / (self.conducted.frame_bytes * 8.0),
            RateUnit::Percent => reference_pps * rate / 100.0,
        };
        let even = |rate, unit| match self.ramp_s {
            Some(rise_s) => TrialPace::Even { from_pps: 0.0, pps: pps(rate, unit), rise_s },
            None => TrialPace::even(pps(rate, unit)),
        };
        match self.rate {
            OfferedRate::Max => TrialPace::Max,
            OfferedRate::Times(_) => TrialPace::Traced,
            // The mean of a streamed trace is unknown; the bits of each frame are known.
            OfferedRate::Bps(_) if self.is_streamed && self.ramp_s.is_none() => TrialPace::Traced,
            OfferedRate::Pps(rate) => even(rate, RateUnit::Pps),
            OfferedRate::Bps(rate) => even(rate, RateUnit::Bps),
            OfferedRate::Percent(rate) => even(rate, RateUnit::Percent),
            OfferedRate::Between(from, to, unit) => {
                let whole_s = self.duration_s.map_or(0.0, |duration_s| self.warmup_s + duration_s);
                let rise_s = self.ramp_s.unwrap_or(whole_s);
                TrialPace::Even { from_pps: pps(from, unit), pps: pps(to, unit), rise_s }
            }
        }
    }

    fn load_pps(&self, rate: OfferedRate) -> f64 {
        match rate {
            OfferedRate::Pps(pps) => pps,
            OfferedRate::Bps(bps) => bps / (self.conducted.frame_bytes * 8.0),
            _ => 0.0,
        }
    }

    fn next_of_search(&mut self, step: TrialStep) -> Option<Trial> {
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
        if step == TrialStep::Reference {
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

    /// Starts a search. Without a highest load it is derived from the full-speed trial.
    fn begin_search(&mut self, step: TrialStep) -> Option<LossSearch> {
        let full_speed = self.conducted.full_speed_pps.unwrap_or(0.0) * ABOVE_FULL_SPEED;
        let (rules, min_pps, max_pps) = match (&self.search, step) {
            (Some(search), TrialStep::Search) => {
                let max_pps = search.max.map_or(full_speed, |max| self.load_pps(max));
                (search.rules.clone(), self.load_pps(search.min), max_pps)
            }
            _ => (reference_rules(), REFERENCE_MIN_PPS, full_speed),
        };
        if max_pps <= min_pps {
            self.fail(format!("a search needs a lowest load below the highest: the lowest is {min_pps} pps, the highest {max_pps:.0} pps"));
            return None;
        }
        self.conducted.limits_pps = Some((min_pps, max_pps));
        Some(LossSearch::new(&rules, min_pps, max_pps))
    }

    fn point(&self, percent: u32) -> Option<Trial> {
        let rates = self.conducted.rates_of(0);
        let rate = rates.get(rates.len() / 2)?;
        let seconds = self.search.as_ref()?.rules.final_trial_s * CURVE_TRIALS;
        Some(Trial::lossy(rate * f64::from(percent) / 100.0, seconds))
    }

    pub(crate) fn record(&mut self, result: TrialResult) {
        let Some(step) = self.steps.front().copied() else { return };
        if self.is_stopping && step != TrialStep::Measured {
            return;
        }
        if matches!(step, TrialStep::Measured | TrialStep::Search | TrialStep::Point(_)) {
            self.conducted.feeder.iter_mut().for_each(|feeder| feeder.merge(&result.feeder));
        }
        match step {
            TrialStep::Warmup => self.conducted.warmup_s = Some(result.duration_s),
            TrialStep::FullSpeed => self.conducted.full_speed_pps = Some(result.fed_pps()),
            TrialStep::Point(percent) => self.conducted.curve.push((percent, result)),
            TrialStep::Measured => self.conducted.measured = Some(result),
            TrialStep::Reference | TrialStep::Search => {
                let Some((search, waiting)) = &mut self.running else { return };
                let Some(wanted) = waiting.take() else { return };
                search.record(wanted, result.loss_ratio(true));
                if step == TrialStep::Search {
                    self.keep(result);
                }
                return;
            }
        }
        self.steps.pop_front();
    }

    /// Keeps a search trial; for final trials, whose loads are reported, with the whole latency histogram.
    fn keep(&mut self, mut result: TrialResult) {
        let Some(latency) = result.latency.take() else { return };
        let total = latency.total();
        let latency_ns = QUANTILES.map(|quantile| total.histogram().value_at_quantile(quantile));
        let final_s = self.search.as_ref().map(|search| search.rules.final_trial_s);
        if let TrialPace::Even { pps, .. } = result.trial.pace
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

    /// Starts no further trial. Results so far stay; a plain replay reports the packets sent.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
    }

    fn fail(&mut self, why: String) {
        self.conducted.failure = Some(why);
        self.steps.clear();
    }

    pub(crate) fn finish(mut self) -> Conducted {
        self.conducted.is_cut = !self.steps.is_empty();
        if let Some((search, _)) = self.running.filter(|_| self.search.is_some()) {
            self.conducted.searches.push(search.results());
        }
        self.conducted
    }
}

/// Rules of the reference search: short, with the precision a percentage needs.
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
