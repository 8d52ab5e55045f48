//! A figure: its texts from `figures.toml` in each paper's folder, series of points, rows for tables, and our numbers for the paper's claims.

use super::claims::{Claim, Judged, Ours};
use crate::check::Sample;
use crate::fault::Result;
use crate::host::{Build, HostFacts};
use crate::table::Looker;
use fib::Family;
use lpm_bench::stats::Spread;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Up to this number of claims all are printed; of a longer list, only claims whose number is not exactly the paper's.
const LIST_MAX: usize = 40;

/// A figure or a table of the paper, made here. `figures.toml` has the fields that do not depend on measurements.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) x_log: bool,
    /// Whether a logarithmic x axis has base ten; else base two.
    pub(crate) x_tens: bool,
    /// Names of the positions on the x axis if they are not numbers, from position 0 on.
    pub(crate) x_names: Vec<String>,
    #[serde(skip_deserializing)]
    pub(crate) traffic: Vec<String>,
    pub(crate) panels: Vec<Panel>,
    #[serde(skip_deserializing)]
    pub(crate) rows: Vec<Value>,
    #[serde(skip_deserializing)]
    pub(crate) claims: Vec<Judged>,
    /// Our numbers, until they are matched to claims; then those without a claim.
    #[serde(skip_deserializing)]
    pub(crate) own: Vec<Own>,
    pub(crate) note: String,
    /// Why the figure, or a part that needs other hardware, was not made.
    #[serde(skip_deserializing)]
    pub(crate) skipped: Option<String>,
    #[serde(skip_deserializing)]
    pub(crate) checked: u64,
    #[serde(skip_deserializing)]
    pub(crate) wrong: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Panel {
    pub(crate) y: String,
    pub(crate) y_log: bool,
    #[serde(skip_deserializing)]
    pub(crate) series: Vec<PanelLine>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PanelLine {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// A point; in JSON `[x, median, min, max]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: Spread,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.x, self.y.median, self.y.min, self.y.max].serialize(serializer)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Own {
    #[serde(flatten)]
    ours: Ours,
    what: String,
    unit: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    #[serde(flatten)]
    pub(crate) figure: &'a Figure,
    pub(crate) paper: &'static str,
    pub(crate) quick: bool,
    pub(crate) took_s: f64,
    pub(crate) device: Option<&'a str>,
    pub(crate) host: &'a HostFacts,
    pub(crate) build: Build,
    pub(crate) arguments: Vec<String>,
    pub(crate) seeds: [u64; 2],
    pub(crate) data: Vec<Value>,
}

pub(crate) fn with(mut row: Value, more: Value) -> Value {
    if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}

impl Figure {
    pub(crate) fn skipped(id: &str, reason: &str) -> Self {
        let reason = format!("needs a GPU: {reason}");
        Self { title: id.into(), skipped: Some(reason), ..Self::default() }
    }

    pub(crate) fn without(&mut self, family: Family) -> Result<()> {
        self.skipped = Some(format!("no data set has {family} routes"));
        self.panels.clear();
        self.note.clear();
        Ok(())
    }

    pub(crate) fn fill(&mut self, word: &str, value: &impl ToString) {
        self.note = self.note.replace(&format!("{{{word}}}"), &value.to_string());
    }

    pub(crate) fn name_places(&mut self, names: impl IntoIterator<Item = impl ToString>) {
        self.x_names = names.into_iter().map(|name| name.to_string()).collect();
    }

    pub(crate) fn add(&mut self, panel: usize, line: &str, x: impl Into<f64>, y: impl Into<Spread>) {
        self.panels[panel].add(line, x, y);
    }

    /// Records our number for the claim with the words `what`, which has the unit.
    pub(crate) fn record(&mut self, what: &str, value: impl Into<Option<f64>>) {
        self.record_of(what, "", value);
    }

    /// As [`Self::record`], of one of several forms: the paper's own form comes first.
    pub(crate) fn record_of(&mut self, what: &str, of: &str, value: impl Into<Option<f64>>) {
        self.record_unclaimed(what, of, "", value);
    }

    /// Records a number with a unit, for no claim.
    pub(crate) fn record_unclaimed(
        &mut self,
        what: &str,
        of: &str,
        unit: &'static str,
        value: impl Into<Option<f64>>,
    ) {
        let ours = Ours { of: of.into(), value: value.into() };
        self.own.push(Own { ours, what: what.into(), unit });
    }

    #[cfg(test)]
    pub(crate) fn ours_at(&self, what: &str, of: &str) -> Option<f64> {
        self.own.iter().find(|own| own.what == what && own.ours.of == of)?.ours.value
    }

    pub(crate) fn cell<'a>(&mut self, cell: Claim, ours: impl IntoIterator<Item = (&'a str, Option<f64>)>) {
        let ours = ours.into_iter().map(|(of, value)| Ours { of: of.into(), value }).collect();
        self.claims.push(Judged::new(cell, ours));
    }

    pub(crate) fn judge(&mut self, claims: impl IntoIterator<Item = Claim>) {
        for claim in claims {
            let ours = self.own.extract_if(.., |one| one.what == claim.what).map(|one| one.ours).collect();
            self.claims.push(Judged::new(claim, ours));
        }
    }

    /// Compares a looker's answers with the oracle's, in calls of its grain, and counts them.
    pub(crate) fn check(&mut self, sample: &Sample, looker: &mut dyn Looker) -> Result<()> {
        let found = sample.check(looker, usize::MAX)?;
        self.checked += found.checked;
        self.wrong += found.wrong;
        self.rows.extend(found.first_wrong.map(|first| json!({ "first_wrong": first })));
        Ok(())
    }

    pub(crate) fn check_that(&mut self, holds: bool) {
        self.checked += 1;
        self.wrong += u64::from(!holds);
    }

    pub(crate) fn has_points(&self) -> bool {
        self.panels.iter().any(Panel::has_points)
    }

    pub(crate) fn text(&self, id: &str, took_s: f64) -> String {
        let mut text = format!("{id}: {} ({took_s:.1} s)\n", self.title);
        for panel in &self.panels {
            for PanelLine { name, points } in panel.series.iter().filter(|line| !line.points.is_empty()) {
                let best = panel.most(name).unwrap_or(f64::NAN);
                let _ = writeln!(text, "  {name}, {}: {} points, at most {best:.2}", panel.y, points.len());
            }
        }
        let is_exact = |one: &&Judged| one.ratio.is_some_and(|ratio| ratio.total_cmp(&1.0).is_eq());
        for claim in self.claims.iter().filter(|one| self.claims.len() <= LIST_MAX || !is_exact(one)) {
            let _ = writeln!(text, "  {}", claim.text());
        }
        let exact = self.claims.iter().filter(is_exact).count();
        if self.claims.len() > LIST_MAX && exact > 0 {
            let _ = writeln!(text, "  {exact} of {} numbers equal the paper's", self.claims.len());
        }
        for Own { ours: Ours { of, value }, what, unit } in &self.own {
            let of = if of.is_empty() { String::new() } else { format!("{of}: ") };
            let value = value.map_or("-".to_owned(), |value| format!("{value:.2} {unit}"));
            let _ = writeln!(text, "  {of}{what}: {}; the paper has no number", value.trim_end());
        }
        for traffic in &self.traffic {
            let _ = writeln!(text, "  traffic: {traffic}");
        }
        if self.wrong > 0 {
            let _ = writeln!(text, "  WRONG: {} of {} answers", self.wrong, self.checked);
        }
        if !self.note.is_empty() {
            let _ = writeln!(text, "  {}", self.note);
        }
        text
    }
}

impl Panel {
    pub(crate) fn new(y: impl Into<String>) -> Self {
        Self { y: y.into(), ..Self::default() }
    }

    pub(crate) fn log(y: impl Into<String>) -> Self {
        Self { y_log: true, ..Self::new(y) }
    }

    pub(crate) fn has_points(&self) -> bool {
        self.series.iter().any(|line| !line.points.is_empty())
    }

    pub(crate) fn add(&mut self, name: &str, x: impl Into<f64>, y: impl Into<Spread>) {
        let point = Point { x: x.into(), y: y.into() };
        match self.series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => self.series.push(PanelLine { name: name.into(), points: vec![point] }),
        }
    }

    pub(crate) fn points(&self, name: &str) -> &[Point] {
        self.series.iter().find(|line| line.name == name).map_or(&[], |line| &line.points)
    }

    pub(crate) fn value_at(&self, name: &str, x: impl Into<f64>) -> Option<f64> {
        let x = x.into();
        self.points(name).iter().find(|point| (point.x - x).abs() < 1e-9).map(|point| point.y.median)
    }

    fn best(&self, name: &str) -> Option<&Point> {
        self.points(name).iter().max_by(|a, b| a.y.median.total_cmp(&b.y.median))
    }

    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        self.best(name).map(|point| point.y.median)
    }

    pub(crate) fn best_x(&self, name: &str) -> Option<f64> {
        self.best(name).map(|point| point.x)
    }

    pub(crate) fn least_x(&self, name: &str) -> Option<f64> {
        self.points(name).iter().min_by(|a, b| a.y.median.total_cmp(&b.y.median)).map(|point| point.x)
    }

    /// The line `one` over the line `other`, where both have a point.
    pub(crate) fn ratios(&self, one: &str, other: &str) -> Vec<f64> {
        let ratio = |point: &Point| Some(point.y.median / self.value_at(other, point.x)?);
        self.points(one).iter().filter_map(ratio).collect()
    }
}

pub(crate) fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

pub(crate) fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

pub(crate) fn over(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}
