//! Searches the highest load at which no more than a goal's part of the packets is lost, by the rules of MLRsearch
//! (draft-ietf-bmwg-mlrsearch, "Multiple Loss Ratio Search"): several goals at once, whose trials serve each other; short trials first; a
//! load is classified by a sum of trials of which some may be bad, so that a host's own noise is not taken for the forwarder's limit.
//!
//! Pure: [`LossSearch::next`] says what to offer and for how long, [`LossSearch::record`] takes what was lost. It is the same search as that
//! of the authors' package `MLRsearch` on PyPI, with which `scripts/mlrsearch.py` compares it.

use super::loads::{Bounds, LoadSteps, middle};
use super::target::{LoadTrial, LoadTrials, LossTarget};

/// Coarser targets before that of a goal: each has intervals twice as wide and a shorter sum of trials.
const PRECEDING_TARGETS: u32 = 2;
/// While a bound is looked for, each step is this many times as wide as the last.
const EXPANSION: u32 = 2;

/// What is searched, and how thoroughly.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchRules {
    /// A goal each: the part of the packets that may be lost, 0 to less than 1.
    pub(crate) loss_ratios: Vec<f64>,
    /// The part of a load's trials, by time, that may lose more all the same, 0 to less than 1.
    pub(crate) exceed_ratio: f64,
    /// Length of the first trials, seconds.
    pub(crate) initial_trial_s: f64,
    /// Length of the last trials, seconds.
    pub(crate) final_trial_s: f64,
    /// Seconds of trials that classify a load in the end.
    pub(crate) duration_sum_s: f64,
    /// How near both bounds are to be in the end, a part of the upper one.
    pub(crate) width: f64,
}

/// A trial that is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WantedTrial {
    /// The load, packets a second.
    pub(crate) pps: f64,
    /// For how long, seconds.
    pub(crate) duration_s: f64,
    /// The number of the load.
    load: u32,
}

/// What was found for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GoalFound {
    /// The goal.
    pub(crate) loss_ratio: f64,
    /// The highest load that reaches the goal, packets a second; `None` where even the lowest did not.
    pub(crate) lower_pps: Option<f64>,
    /// The lowest load that does not; `None` where even the highest did.
    pub(crate) upper_pps: Option<f64>,
    /// What arrives of the lower bound, by its trials: the result.
    pub(crate) throughput_pps: Option<f64>,
}

/// When the next step of a goal is to be wider: when the load that was tried became such a bound, and not the one that is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widen {
    Never,
    IfLower,
    IfUpper,
}

/// What a goal would try next.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    load: u32,
    /// The step that led there.
    step: u32,
    widen: Widen,
}

/// The search for one goal, at one of its targets.
#[derive(Clone, Debug)]
struct GoalSearch {
    /// The coarsest first.
    targets: Vec<LossTarget>,
    at: usize,
    /// The bounds that the target before found, or the first trials.
    start: Bounds,
    /// The next step of a search for a missing bound.
    step: u32,
    /// Of the candidate last named.
    widen: Widen,
}

/// What all goals share.
#[derive(Clone, Debug)]
struct Found {
    loads: LoadSteps,
    trials: LoadTrials,
    /// The step of the last trial: no goal makes a smaller one while a bound is missing.
    step: u32,
}

/// How far the search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first trial, at the highest load.
    Highest,
    /// The second, at the rate that arrived of the first.
    Arrived(u32),
    /// The third, a step below or above the second.
    Beside { second: u32, third: u32 },
    /// The goals name candidates.
    Goals,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct LossSearch {
    found: Found,
    goals: Vec<GoalSearch>,
    phase: Phase,
    /// The trial that is wanted until its result is there.
    wanted: Option<WantedTrial>,
    /// The goal whose candidate that is, and the candidate.
    chosen: Option<(usize, Candidate)>,
}

impl LossSearch {
    /// By `rules`, between `min_pps` and `max_pps`.
    pub(crate) fn new(rules: &SearchRules, min_pps: f64, max_pps: f64) -> Self {
        let loads = LoadSteps::new(min_pps, max_pps, rules.width);
        let goal = |loss_ratio: &f64| {
            let targets = targets(rules, *loss_ratio);
            GoalSearch { targets, at: 0, start: Bounds::default(), step: 1, widen: Widen::Never }
        };
        let goals = rules.loss_ratios.iter().map(goal).collect();
        let found = Found { loads, trials: LoadTrials::new(), step: 0 };
        Self { found, goals, phase: Phase::Highest, wanted: None, chosen: None }
    }

    /// The next trial; `None` when every goal is reached, or even the lowest load does not reach it.
    pub(crate) fn next(&mut self) -> Option<WantedTrial> {
        if self.wanted.is_some() {
            return self.wanted;
        }
        let first = self.goals.first()?.targets[0];
        let (load, duration_s) = match self.phase {
            Phase::Highest => (self.found.loads.steps, first.trial_s),
            Phase::Arrived(load) | Phase::Beside { third: load, .. } => (load, first.trial_s),
            Phase::Goals => self.choose()?,
        };
        self.wanted = Some(WantedTrial { pps: self.found.loads.pps(load), duration_s, load });
        self.wanted
    }

    /// The candidate of all goals that is tried next: the lowest load, since bounds from below are certain; then the longest trial.
    fn choose(&mut self) -> Option<(u32, f64)> {
        let mut best: Option<(usize, Candidate, f64)> = None;
        for (index, goal) in self.goals.iter_mut().enumerate() {
            let Some((candidate, trial_s)) = goal.candidate(&self.found) else { continue };
            let is_better = best.is_none_or(|(_, other, other_s)| {
                let order = candidate.load.cmp(&other.load).then(other_s.total_cmp(&trial_s));
                order.then(other.step.cmp(&candidate.step)).is_lt()
            });
            if is_better {
                best = Some((index, candidate, trial_s));
            }
        }
        let (index, candidate, trial_s) = best?;
        self.chosen = Some((index, candidate));
        Some((candidate.load, trial_s))
    }

    /// Takes the result of the trial that [`Self::next`] wanted.
    pub(crate) fn record(&mut self, wanted: WantedTrial, loss_ratio: f64) {
        let WantedTrial { load, duration_s, pps } = wanted;
        self.wanted = None;
        self.found.trials.entry(load).or_default().push(LoadTrial { duration_s, loss_ratio });
        if self.phase == Phase::Goals {
            if let Some((index, candidate)) = self.chosen.take() {
                self.found.step = candidate.step;
                self.goals[index].learn(candidate.load, &mut self.found);
            }
            return;
        }
        let Some(first) = self.goals.first().map(|goal| goal.targets[0]) else { return };
        let (loads, strictest) = (self.found.loads, self.strictest());
        // What arrived would be lost by no more than the goal allows, if all that is offered above it is lost.
        let arrived = loads.at_most(pps * (1.0 - loss_ratio) / (1.0 - strictest));
        let next = match self.phase {
            Phase::Highest if arrived >= load => None,
            Phase::Highest => loads
                .worth_while(arrived, first.width, Bounds { lower: None, upper: Some(load) })
                .map(Phase::Arrived),
            Phase::Arrived(second) => {
                let third = if loss_ratio > strictest {
                    loads.worth_while(arrived, first.width, Bounds { lower: None, upper: Some(second) })
                } else {
                    let above = Bounds { lower: Some(second), upper: None };
                    loads.worth_while(second + first.width, first.width, above)
                };
                third.map(|third| Phase::Beside { second, third })
            }
            Phase::Beside { .. } | Phase::Goals => None,
        };
        if let Some(phase) = next {
            self.phase = phase;
            return;
        }
        let (one, other) = match self.phase {
            Phase::Beside { second, third } => (second.min(third), second.max(third)),
            _ => (load, load),
        };
        self.phase = Phase::Goals;
        self.found.step = other - one;
        for goal in &mut self.goals {
            goal.begin(0, Bounds { lower: Some(one), upper: Some(other) });
        }
    }

    fn strictest(&self) -> f64 {
        self.goals.iter().map(|goal| goal.targets[0].loss_ratio).fold(1.0, f64::min)
    }

    /// What was found so far, a goal each; the result when no more trials are wanted.
    pub(crate) fn results(&self) -> Vec<GoalFound> {
        let Found { loads, trials, .. } = &self.found;
        let result = |goal: &GoalSearch| {
            let target = goal.targets[goal.targets.len() - 1];
            let Bounds { lower, upper } = target.bounds(trials);
            let throughput = |load: u32| loads.pps(load) * (1.0 - target.conditional_loss(&trials[&load]));
            GoalFound {
                loss_ratio: target.loss_ratio,
                lower_pps: lower.map(|load| loads.pps(load)),
                upper_pps: upper.map(|load| loads.pps(load)),
                throughput_pps: lower.map(throughput),
            }
        };
        self.goals.iter().map(result).collect()
    }
}

/// The targets of a goal: their sums of durations grow by equal factors from one first trial to the whole sum, their widths halve.
fn targets(rules: &SearchRules, loss_ratio: f64) -> Vec<LossTarget> {
    let SearchRules { exceed_ratio, initial_trial_s, final_trial_s, duration_sum_s, .. } = *rules;
    let factor = (initial_trial_s / duration_sum_s).powf(1.0 / f64::from(PRECEDING_TARGETS));
    let target = |before: u32| {
        let sum_s = match before {
            PRECEDING_TARGETS => initial_trial_s,
            before => duration_sum_s * factor.powf(f64::from(before)),
        };
        LossTarget {
            loss_ratio,
            exceed_ratio,
            width: 1 << before,
            trial_s: final_trial_s.min(sum_s),
            duration_sum_s: sum_s,
        }
    };
    (0..=PRECEDING_TARGETS).rev().map(target).collect()
}

impl GoalSearch {
    /// Begins with the target `at`, between `start`.
    fn begin(&mut self, at: usize, start: Bounds) {
        let width = self.targets[at].width;
        let between = start.lower.zip(start.upper).map_or(0, |(lower, upper)| upper.saturating_sub(lower));
        (self.at, self.start, self.step, self.widen) =
            (at, start, width.max(between) * EXPANSION, Widen::Never);
    }

    /// The load to be tried next, and for how many seconds; `None` when the goal is reached or cannot be.
    fn candidate(&mut self, found: &Found) -> Option<(Candidate, f64)> {
        loop {
            let target = self.targets[self.at];
            let bounds = target.bounds(&found.trials);
            if let Some(candidate) = self.candidate_of(&target, bounds, found) {
                self.widen = candidate.widen;
                return Some((candidate, target.trial_s));
            }
            if self.at + 1 == self.targets.len() {
                return None;
            }
            self.begin(self.at + 1, bounds);
        }
    }

    /// In this order: the middle between the bounds that the search began with, these bounds themselves, a step beyond the only bound there
    /// is, and the middle between both bounds.
    fn candidate_of(&mut self, target: &LossTarget, bounds: Bounds, found: &Found) -> Option<Candidate> {
        let Bounds { lower, upper } = bounds;
        let is_worth = |load: &u32| {
            let is_inside =
                lower.is_none_or(|lower| lower < *load) && upper.is_none_or(|upper| *load < upper);
            is_inside && lower.zip(upper).is_none_or(|(lower, upper)| upper - lower > target.width)
        };
        let half = self.start.lower.zip(self.start.upper).and_then(|(lower, upper)| {
            let is_halved = (target.width + 1..=2 * target.width).contains(&upper.saturating_sub(lower));
            is_halved.then(|| middle(lower, upper, target.width))
        });
        let again = [half, self.start.lower, self.start.upper].into_iter().flatten().find(is_worth);
        if let Some(load) = again {
            self.step = target.width * EXPANSION;
            return Some(Candidate { load, step: target.width, widen: Widen::Never });
        }
        let (step, loads) = (self.step.max(found.step), found.loads);
        match (lower, upper) {
            (None, Some(upper)) => {
                let load = loads.worth_while(upper.saturating_sub(step), target.width, bounds)?;
                Some(Candidate { load, step, widen: Widen::IfUpper })
            }
            (Some(lower), None) => {
                let load = loads.worth_while(lower.saturating_add(step), target.width, bounds)?;
                Some(Candidate { load, step, widen: Widen::IfLower })
            }
            (Some(lower), Some(upper)) if upper - lower > target.width => {
                Some(self.between((lower, upper), target, step, loads))
            }
            _ => None,
        }
    }

    /// A load between two bounds of which one may be far off, as that of another goal is: then a step from the other one, as if the far one
    /// were missing, is nearer to what is looked for than the middle.
    fn between(
        &mut self,
        (lower, upper): (u32, u32),
        target: &LossTarget,
        step: u32,
        loads: LoadSteps,
    ) -> Candidate {
        let half = middle(lower, upper, target.width);
        let bounds = Bounds { lower: Some(lower), upper: Some(upper) };
        let stepped = |load| loads.worth_while(load, target.width, bounds);
        if let Some(start) = self.start.upper.filter(|start| half < *start)
            && let Some(load) = stepped(upper.saturating_sub(step))
            && (half + 1..start).contains(&load)
        {
            return Candidate { load, step, widen: Widen::IfUpper };
        }
        if let Some(start) = self.start.lower.filter(|start| half > *start)
            && let Some(load) = stepped(lower.saturating_add(step))
            && (start + 1..half).contains(&load)
        {
            return Candidate { load, step, widen: Widen::IfLower };
        }
        let step = (half - lower).min(upper - half);
        self.step = step.max(target.width) * EXPANSION;
        Candidate { load: half, step, widen: Widen::Never }
    }

    /// Makes the next step wider when the trial at `load`, which this goal chose, did not give the bound that was looked for.
    fn learn(&mut self, load: u32, found: &mut Found) {
        let Bounds { lower, upper } = self.targets[self.at].bounds(&found.trials);
        let became = match self.widen {
            Widen::Never => None,
            Widen::IfLower => lower,
            Widen::IfUpper => upper,
        };
        if became == Some(load) {
            self.step = self.step.saturating_mul(EXPANSION);
            found.step = self.step;
        }
    }
}
