//! The numbers that the documents state, and their comparison with ours.
//!
//! Each document has a file here with a line a number:
//! ```text
//! FIGURE | SECTION | WHAT | NUMBER | UNIT | RULE
//! FIGURE | SECTION | WHAT | NUMBER to NUMBER | UNIT | RULE | PANEL at X
//! - | SECTION | WHAT | NUMBER | UNIT | RULE | test FILE NAME
//! - | SECTION | WHAT | NUMBER | UNIT | RULE | why it cannot be made here
//! ```
//! FIGURE is the id of the figure (`fig09`), and WHAT the words under which it records ours. `PANEL at X` is the position of the number's mark.
//! `test FILE NAME` is a test that fails if ours is another number. A line that begins with `#` is a comment.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Claim {
    /// The figure with this number; `None` if it cannot be made here.
    #[serde(skip)]
    pub(crate) figure: Option<&'static str>,
    pub(crate) section: &'static str,
    pub(crate) what: Cow<'static, str>,
    /// The number; two are a range.
    pub(crate) paper: Vec<f64>,
    pub(crate) unit: &'static str,
    pub(crate) rule: Rule,
    /// The graph and the position on its x axis of the number's mark.
    pub(crate) mark: Option<(usize, f64)>,
    /// The test that fails if our number differs: its file, from the top of the sources, and its name.
    pub(crate) test: Option<(&'static str, &'static str)>,
    pub(crate) reason: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// Determined by the algorithm and the data alone.
    #[default]
    Count,
    Ratio,
    Percent,
    Best,
    AtMost,
    AtLeast,
    Rate,
    Time,
    Data,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Reproduced,
    /// The direction agrees, the number does not.
    ShapeOnly,
    Contradicted,
    /// It needs something that this host lacks, or was not measured in this run.
    CannotBeMadeHere,
}

impl Rule {
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        include_str!("rules.txt").lines().filter_map(|line| line.split_once(" : "))
    }

    fn parse(word: &str) -> Option<Self> {
        serde_json::from_value(word.replace('-', "_").into()).ok()
    }

    fn judge(self, paper: &[f64], ours: f64) -> Verdict {
        use Verdict::{CannotBeMadeHere, Contradicted, Reproduced, ShapeOnly};
        let low = paper.iter().copied().fold(f64::INFINITY, f64::min);
        let high = paper.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let within = |factor: f64| low / factor <= ours && ours <= high * factor;
        let graded = |same: bool, shape: bool| match (same, shape) {
            (true, _) => Reproduced,
            (false, true) => ShapeOnly,
            (false, false) => Contradicted,
        };
        match self {
            Self::Count => graded(within(1.02), within(1.5)),
            Self::Ratio => graded(within(1.25), (ours > 1.0) == (low > 1.0)),
            Self::Percent => graded((low - 5.0..=high + 5.0).contains(&ours), within(2.0)),
            Self::Best => graded((low..=high).contains(&ours), within(2.0)),
            Self::AtMost => graded(ours <= high * 1.02, false),
            Self::AtLeast => graded(ours >= low / 1.02, false),
            Self::Rate if ours >= low => Reproduced,
            Self::Time if ours <= high => Reproduced,
            Self::Rate | Self::Time | Self::Data => CannotBeMadeHere,
        }
    }
}

impl Verdict {
    pub(crate) const ALL: [Self; 4] =
        [Self::Reproduced, Self::ShapeOnly, Self::Contradicted, Self::CannotBeMadeHere];

    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::ShapeOnly => "shape only",
            Self::Contradicted => "contradicted",
            Self::CannotBeMadeHere => "cannot be made here",
        }
    }
}

impl Claim {
    pub(crate) fn parse_all(text: &'static str) -> Result<Vec<Self>, &'static str> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(|line| Self::parse(line).ok_or(line)).collect()
    }

    pub(crate) fn of_table(
        section: &'static str,
        what: String,
        paper: f64,
        unit: &'static str,
        rule: Rule,
    ) -> Self {
        Self { section, what: what.into(), paper: vec![paper], unit, rule, ..Self::default() }
    }

    fn parse(line: &'static str) -> Option<Self> {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [figure, section, what, numbers, unit, rule, more @ ..] = fields.as_slice() else { return None };
        let figure = (*figure != "-").then_some(*figure);
        let paper: Vec<f64> =
            numbers.split(" to ").map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let rule = Rule::parse(rule)?;
        let mut claim =
            Self { figure, section, what: Cow::Borrowed(what), paper, unit, rule, ..Self::default() };
        match (figure, more) {
            (Some(_), []) => {}
            (Some(_), [mark]) => {
                let (panel, x) = mark.split_once(" at ")?;
                claim.mark = Some((panel.parse().ok()?, x.parse().ok()?));
            }
            (None, [by]) => match by.strip_prefix("test ") {
                Some(test) => claim.test = Some(test.split_once(' ')?),
                None => claim.reason = Some(*by),
            },
            _ => return None,
        }
        Some(claim)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ours {
    /// The form or the engine; empty if the figure has one form alone.
    pub(crate) of: String,
    pub(crate) value: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Judged {
    #[serde(flatten)]
    pub(crate) claim: Claim,
    /// Our numbers, the document's own form first.
    pub(crate) ours: Vec<Ours>,
    /// Our first number over the document's (over the nearer end of a range).
    pub(crate) ratio: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl Judged {
    pub(crate) fn new(claim: Claim, ours: Vec<Ours>) -> Self {
        let value = ours.iter().find_map(|one| one.value).filter(|value| value.is_finite());
        let near = |value: f64| {
            let nearest =
                claim.paper.iter().copied().min_by(|a, b| (a - value).abs().total_cmp(&(b - value).abs()));
            nearest.filter(|paper| paper.abs() > 0.0).map(|paper| value / paper)
        };
        let verdict = match value {
            Some(value) => claim.rule.judge(&claim.paper, value),
            None if claim.test.is_some() => Verdict::Reproduced,
            None => Verdict::CannotBeMadeHere,
        };
        Self { ratio: value.and_then(near), verdict, ours, claim }
    }

    pub(crate) fn text(&self) -> String {
        let Claim { what, unit, section, paper, .. } = &self.claim;
        let numbers: Vec<_> = paper.iter().map(ToString::to_string).collect();
        let ours = self.ours.iter().map(|Ours { of, value, .. }| {
            let value = value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            if of.is_empty() { value } else { format!("{of} {value}") }
        });
        let ours: Vec<_> = ours.collect();
        let ours = if ours.is_empty() { "-".to_owned() } else { ours.join(", ") };
        let paper = format!("{} {unit}", numbers.join(" to "));
        format!("{what}: {} ({section}), here {ours}: {}", paper.trim_end(), self.verdict.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_refused() {
        let text = "# a comment\nfig09 | 5.2.1 | GAMT, at most | 1100 | Mlps | rate | 0 at 16\n\
                    fig14 | 5.3 | fewer | 94.7 to 96.6 | percent | percent\n- | 5.4.3 | GTS 450 | 235 | Mlps | rate | no such GPU\n\
                    - | 2.1 | levels | 3 | | count | test a/b.rs figure_1\n";
        let claims = Claim::parse_all(text).unwrap();
        assert_eq!((claims[0].figure, claims[0].mark), (Some("fig09"), Some((0, 16.0))));
        assert_eq!((claims[1].paper.as_slice(), claims[1].unit), ([94.7, 96.6].as_slice(), "percent"));
        assert_eq!((claims[2].figure, claims[2].reason), (None, Some("no such GPU")));
        assert_eq!((claims[3].test, claims[3].reason), (Some(("a/b.rs", "figure_1")), None));
        assert_eq!(Judged::new(claims[3].clone(), Vec::new()).verdict, Verdict::Reproduced);
        for line in [
            "fig09 | 5 | x | 1 | s",
            "- | 2.1 | levels | 3 | | count | test figure_1",
            "fig09 | 5 | x | one | s | rate",
            "fig09 | 5 | x | 1 | s | guess",
            "- | 5 | x | 1 | s | rate",
        ] {
            assert_eq!(Claim::parse_all(line).unwrap_err(), line);
        }
        assert!(Rule::all().count() == 9 && Rule::all().all(|(word, _)| Rule::parse(word).is_some()));
    }

    #[test]
    fn each_rule_has_its_verdicts() {
        use Verdict::{
            CannotBeMadeHere as Not, Contradicted as Against, Reproduced as Same, ShapeOnly as Shape,
        };
        for (rule, paper, ours, verdict) in [
            (Rule::Count, vec![22.0], 22.4, Same),
            (Rule::Count, vec![22.0], 30.0, Shape),
            (Rule::Count, vec![22.0], 40.0, Against),
            (Rule::Ratio, vec![4.0], 3.3, Same),
            (Rule::Ratio, vec![4.0], 1.1, Shape),
            (Rule::Ratio, vec![4.0], 0.9, Against),
            (Rule::Ratio, vec![0.8], 0.3, Shape),
            (Rule::Percent, vec![94.7, 96.6], 90.0, Same),
            (Rule::Percent, vec![94.7, 96.6], 60.0, Shape),
            (Rule::Percent, vec![94.7, 96.6], -3.0, Against),
            (Rule::Best, vec![6.0], 6.0, Same),
            (Rule::Best, vec![6.0], 4.0, Shape),
            (Rule::Best, vec![6.0], 20.0, Against),
            (Rule::AtMost, vec![8.0], 8.1, Same),
            (Rule::AtMost, vec![8.0], 9.0, Against),
            (Rule::AtLeast, vec![80.0], 95.0, Same),
            (Rule::AtLeast, vec![80.0], 70.0, Against),
            (Rule::Rate, vec![50.0], 60.0, Same),
            (Rule::Rate, vec![50.0], 40.0, Not),
            (Rule::Time, vec![28.0], 3.0, Same),
            (Rule::Time, vec![28.0], 30.0, Not),
            (Rule::Data, vec![450_752.0], 450_752.0, Not),
        ] {
            assert_eq!(rule.judge(&paper, ours), verdict, "{rule:?} {paper:?} {ours}");
        }
    }
}
