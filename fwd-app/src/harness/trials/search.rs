//! Searches for the highest load that loses at most a goal's fraction of the packets, by the rules of MLRsearch
//! (draft-ietf-bmwg-mlrsearch). Several goals share their trials, short trials come first, and a load is classified by a sum of trials of
//! which some may be bad, so that noise of the host is not mistaken for the forwarder's limit. The search is pure and equivalent to the
//! authors' package `MLRsearch` on PyPI; `scripts/mlrsearch.py` compares both.

use super::loads::{Bounds, LoadSteps, middle};
use super::target::{LoadTrial, LoadTrials, LossTarget};

/// Number of coarser targets before the goal: each has intervals twice as wide and a shorter sum of trials.
const PRECEDING_TARGETS: u32 = 2;
/// While a bound is missing, each step is wider than the last by this factor.
const EXPANSION: u32 = 2;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SearchRules {
    /// One goal each: the allowed loss as a fraction, 0 to less than 1.
    pub(crate) loss_ratios: Vec<f64>,
    /// The fraction of a load's trial time that may exceed the loss, 0 to less than 1.
    pub(crate) exceed_ratio: f64,
    pub(crate) initial_trial_s: f64,
    pub(crate) final_trial_s: f64,
    /// Seconds of trials that classify a load finally.
    pub(crate) duration_sum_s: f64,
    /// Final distance of the bounds as a fraction of the upper one.
    pub(crate) width: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WantedTrial {
    pub(crate) pps: f64,
    pub(crate) duration_s: f64,
    load: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GoalFound {
    pub(crate) loss_ratio: f64,
    /// Highest load within the goal, packets a second; `None` if not even the lowest is.
    pub(crate) lower_pps: Option<f64>,
    /// Lowest load beyond the goal; `None` if even the highest is within it.
    pub(crate) upper_pps: Option<f64>,
    /// Conditional throughput at the lower bound: the result.
    pub(crate) throughput_pps: Option<f64>,
}

/// Which new bound makes the next step wider: the tried load became this bound instead of the missing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widen {
    Never,
    IfLower,
    IfUpper,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    load: u32,
    step: u32,
    widen: Widen,
}

#[derive(Clone, Debug)]
struct GoalSearch {
    /// From the coarsest to the goal itself.
    targets: Vec<LossTarget>,
    at: usize,
    /// Bounds from the previous target or from the first trials.
    start: Bounds,
    /// The next step towards a missing bound.
    step: u32,
    widen: Widen,
}

#[derive(Clone, Debug)]
struct Found {
    loads: LoadSteps,
    trials: LoadTrials,
    /// Step of the last trial: while a bound is missing, no goal makes a smaller one.
    step: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// First trial, at the highest load.
    Highest,
    /// Second, at the rate that arrived in the first.
    Arrived(u32),
    /// Third, one step below or above the second.
    Beside { second: u32, third: u32 },
    /// Goals propose candidates.
    Goals,
}

#[derive(Clone, Debug)]
pub(crate) struct LossSearch {
    found: Found,
    goals: Vec<GoalSearch>,
    phase: Phase,
    wanted: Option<WantedTrial>,
    /// The goal that proposed the current trial, and its candidate.
    chosen: Option<(usize, Candidate)>,
}

impl LossSearch {
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

    /// The next trial; `None` when every goal is reached, or missed even at the lowest load.
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

    /// Selects the lowest load among all candidates, since lower bounds are reliable; then the longest trial.
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
        // If all excess load is lost, this much arrives with the loss the goal allows.
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

/// Targets of a goal: the sums of durations grow geometrically from a first trial to the whole sum, while the widths halve.
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
    fn begin(&mut self, at: usize, start: Bounds) {
        let width = self.targets[at].width;
        let between = start.lower.zip(start.upper).map_or(0, |(lower, upper)| upper.saturating_sub(lower));
        (self.at, self.start, self.step, self.widen) =
            (at, start, width.max(between) * EXPANSION, Widen::Never);
    }

    /// The next load and the seconds to run it; `None` when the goal is reached or unreachable.
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

    /// In order: the middle of the initial bounds, these bounds, a step beyond the only known bound, and the middle of both bounds.
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

    /// A load between two bounds. One may be far off, because it is another goal's; then a step from the other one, as for a missing bound,
    /// comes closer to the target than the middle.
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

    /// Widens the next step if this goal's trial at `load` yielded the bound opposite to the missing one.
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
