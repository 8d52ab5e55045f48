//! The data of a figure: series of points, rows for tables, and the paper's numbers beside ours.

use crate::check::Sample;
use crate::fault::Fault;
use crate::host::{Build, HostFacts};
use crate::table::Looker;
use fib::Family;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The most numbers of the paper that are all printed. Of a longer list, only those that differ from ours are.
const LIST_MAX: usize = 40;

/// A figure or a table of the paper, made here.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figure {
    /// Its title in the paper.
    pub(crate) title: String,
    /// The label of the x axis.
    pub(crate) x: String,
    /// Whether the x axis is logarithmic, to the base of two.
    pub(crate) x_log: bool,
    /// Names of the positions on the x axis if they are not numbers; position 0 has the first name.
    pub(crate) x_names: Vec<String>,
    /// Graphs over the same x axis.
    pub(crate) panels: Vec<Panel>,
    /// The measurements, row by row.
    pub(crate) rows: Vec<Value>,
    /// The paper's numbers, and ours if they are comparable.
    pub(crate) beside: Vec<Beside>,
    /// An explanation of the numbers.
    pub(crate) note: String,
    /// Why the figure, or a part that needs other hardware, was not made.
    pub(crate) skipped: Option<String>,
    /// Answers compared with the oracle's.
    pub(crate) checked: u64,
    /// Answers that were wrong.
    pub(crate) wrong: u64,
}

/// One graph.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Panel {
    /// The label of the y axis, with its unit.
    pub(crate) y: String,
    /// Whether the y axis is logarithmic, to the base of ten.
    pub(crate) y_log: bool,
    /// Its lines.
    pub(crate) series: Vec<PanelLine>,
}

/// One line of a graph.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PanelLine {
    /// Its name.
    pub(crate) name: String,
    /// x and y.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A number of the paper, and ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    /// What was counted or measured.
    pub(crate) what: String,
    /// The unit.
    pub(crate) unit: &'static str,
    /// The paper's number. Two are a range; none means that the paper shows the result but states no number.
    pub(crate) paper: Vec<f64>,
    /// The paper's section.
    pub(crate) section: &'static str,
    /// Our number.
    pub(crate) ours: Option<f64>,
}

/// The file of a figure.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    /// The figure.
    #[serde(flatten)]
    pub(crate) figure: &'a Figure,
    /// The paper.
    pub(crate) paper: &'static str,
    /// Whether fewer points were measured, for a shorter time each.
    pub(crate) quick: bool,
    /// Seconds it took.
    pub(crate) took_s: f64,
    /// The device, if there is one.
    pub(crate) device: Option<&'a str>,
    /// The host, on which the numbers depend.
    pub(crate) host: &'a HostFacts,
    /// What the binary was built from.
    pub(crate) build: Build,
    /// The command line.
    pub(crate) arguments: Vec<String>,
    /// The seed.
    pub(crate) seed: u64,
    /// The data sets.
    pub(crate) data: Vec<Value>,
}

/// A row with the fields `more` besides its own.
pub(crate) fn with(mut row: Value, more: Value) -> Value {
    if let (Value::Object(row), Value::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}

impl Figure {
    /// A figure without graphs.
    pub(crate) fn new(title: &str, x: &str) -> Self {
        Self { title: title.into(), x: x.into(), ..Self::default() }
    }

    /// A figure that cannot be made here.
    pub(crate) fn skipped(id: &str, reason: &str) -> Self {
        let reason = format!("takes a GPU: {reason}");
        Self { title: id.into(), skipped: Some(reason), ..Self::default() }
    }

    /// Adds a number of the paper, and ours.
    pub(crate) fn said(
        &mut self,
        what: impl Into<String>,
        paper: &[f64],
        unit: &'static str,
        section: &'static str,
        ours: Option<f64>,
    ) {
        self.beside.push(Beside { what: what.into(), unit, paper: paper.to_vec(), section, ours });
    }

    /// Compares a looker's answers with the oracle's, in calls as long as it takes, and counts them.
    ///
    /// # Errors
    /// What the looker says.
    pub(crate) fn check(&mut self, sample: &Sample, looker: &mut dyn Looker) -> Result<(), Fault> {
        let found = sample.check(looker, usize::MAX)?;
        self.checked += found.checked;
        self.wrong += found.wrong;
        self.rows.extend(found.first_wrong.map(|first| json!({ "first_wrong": first })));
        Ok(())
    }

    /// The figure, skipped because no data set has routes of `family`.
    pub(crate) fn without(mut self, family: Family) -> Self {
        self.skipped = Some(format!("no data set has {family} routes"));
        self
    }

    /// The x at which the line `name` of a panel is greatest.
    pub(crate) fn best_x(&self, panel: usize, name: &str) -> Option<f64> {
        self.panels.get(panel)?.best(name).map(|(x, _)| x)
    }

    /// Whether there is anything to draw.
    pub(crate) fn has_points(&self) -> bool {
        self.panels.iter().any(|panel| panel.series.iter().any(|line| !line.points.is_empty()))
    }

    /// The printed summary.
    pub(crate) fn text(&self, id: &str, took_s: f64) -> String {
        let mut text = format!("{id}: {} ({took_s:.1} s)\n", self.title);
        for panel in &self.panels {
            for line in panel.series.iter().filter(|line| !line.points.is_empty()) {
                let best = line.points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
                let _ = writeln!(
                    text,
                    "  {}, {}: {} points, at most {best:.2}",
                    line.name,
                    panel.y,
                    line.points.len()
                );
            }
        }
        // A long list is a table of the paper: numbers of ours that equal the paper's are not printed.
        let shown = |beside: &&Beside| self.beside.len() <= LIST_MAX || !beside.is_equal();
        for beside in self.beside.iter().filter(shown) {
            let _ = writeln!(text, "  {}", beside.text());
        }
        let equal = self.beside.iter().filter(|beside| beside.is_equal()).count();
        if self.beside.len() > LIST_MAX && equal > 0 {
            let _ = writeln!(text, "  {equal} of {} numbers are the paper's", self.beside.len());
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

impl Beside {
    /// Whether our number equals the paper's exactly.
    fn is_equal(&self) -> bool {
        matches!((self.paper.as_slice(), self.ours), ([paper], Some(ours)) if paper.total_cmp(&ours).is_eq())
    }

    /// The printed line.
    fn text(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let paper = match self.paper.as_slice() {
            [] => "the paper has no number".to_owned(),
            numbers => {
                let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
                format!("paper {}{unit}", numbers.join(" to "))
            }
        };
        let ours = self.ours.map_or("-".to_owned(), |ours| format!("{ours:.2}{unit}"));
        format!("{}: {paper}, here {ours}", self.what)
    }
}

impl Panel {
    /// A graph without lines.
    pub(crate) fn new(y: &str) -> Self {
        Self { y: y.into(), ..Self::default() }
    }

    /// The same with a logarithmic y axis.
    pub(crate) fn log(y: &str) -> Self {
        Self { y_log: true, ..Self::new(y) }
    }

    /// Adds a point to the line `name`.
    pub(crate) fn add(&mut self, name: &str, x: f64, y: f64) {
        match self.series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, y)),
            None => self.series.push(PanelLine { name: name.into(), points: vec![(x, y)] }),
        }
    }

    /// The y of the line `name` at `x`.
    pub(crate) fn at(&self, name: &str, x: f64) -> Option<f64> {
        let line = self.series.iter().find(|line| line.name == name)?;
        line.points.iter().find(|(at, _)| (*at - x).abs() < 1e-9).map(|(_, y)| *y)
    }

    /// The greatest y of the line `name`.
    pub(crate) fn most(&self, name: &str) -> Option<f64> {
        self.best(name).map(|(_, y)| y)
    }

    /// The point of the line `name` with the greatest y.
    pub(crate) fn best(&self, name: &str) -> Option<(f64, f64)> {
        let line = self.series.iter().find(|line| line.name == name)?;
        line.points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}
