//! Table 4: the prefixes that DPCPE makes of IPv6 tables, by the number of levels.
//!
//! The properties that the table shows are checked: prefix capture only removes prefixes, fewer levels never make fewer prefixes, and
//! 64 is always a level. One expansion of each table is carried out, and its answers are compared with the oracle's.

use super::sets;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::paper::claims::{Claim, Rule};
use crate::paper::data::DataSet;
use crate::paper::figure::{Figure, Panel};
use crate::paper::{Bench, CHECKED};
use fib::oracle::Oracle6;
use fib::traffic::Traffic;
use fib::{Family, NextHopId};
use lpm_phi::cpe::CpeError;
use lpm_phi::cpe::dpcpe::{Dpcpe, Levels, one_by_one};
use lpm_phi::cpe::expand;
use lpm_phi::cpe::histogram::LengthHistogram;
use lpm_phi::cpe::model::{ExpandedLayout, HostModel};
use lpm_phi::variants::ENTRY_BYTES;
use serde_json::json;

/// A row of the paper's table: levels, estimated and actual prefixes in thousands; `None` is "not possible" in the paper.
struct PaperRow {
    lengths: Vec<u8>,
    estimated: f64,
    actual: Option<f64>,
}

/// The paper's table: the name of each of its tables, and the rows, 8 levels to 3.
fn table_of_the_paper() -> Vec<(&'static str, Vec<PaperRow>)> {
    let mut tables: Vec<(_, Vec<_>)> = Vec::new();
    for line in include_str!("table4.txt").lines().filter(|line| !line.starts_with('#')) {
        let Some((lengths, prefixes)) = line.split_once(" : ") else {
            tables.push((line, Vec::new()));
            continue;
        };
        let lengths = lengths.split(' ').filter_map(|len| len.parse().ok()).collect();
        let mut prefixes = prefixes.split(' ').map(|number| number.parse().ok());
        let (estimated, actual) = (prefixes.next().flatten().unwrap_or(f64::NAN), prefixes.next().flatten());
        if let Some((_, rows)) = tables.last_mut() {
            rows.push(PaperRow { lengths, estimated, actual });
        }
    }
    tables
}

/// The most levels of the paper's table.
const LEVELS_MAX: usize = 8;
/// The fewest levels of the paper's table, which the paper refused.
#[cfg(test)]
const PAPER_LEVELS_MIN: usize = 3;
/// The fewest here: more fits in memory today, and the table should show what is refused.
const LEVELS_MIN: usize = 1;
/// The most levels of a full run: beyond them, nearly every route has its own length.
const LEVELS_MORE: usize = 12;
/// The largest expansion that is carried out, in prefixes.
const EXPANDED_MAX: u64 = 2_000_000;

/// The expansion of a table to one number of levels.
struct Made {
    best: Levels,
    /// The paper's choice, one level at a time.
    by_steps: Levels,
    /// Prefixes, with prefix capture.
    actual: u64,
    /// Why it is refused.
    refused: Option<CpeError>,
}

/// Table 4: levels against expanded prefixes.
pub(super) fn table_4(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Results of performing CPE in real IPv6 prefix datasets", "levels");
    let mut panel = Panel::log("prefixes after expansion");
    let Some(main) = bench.main_set(Family::V6) else { return Ok(figure.without(Family::V6)) };
    let most = if bench.args.quick { LEVELS_MAX } else { LEVELS_MORE };
    let layout =
        ExpandedLayout { fpr: 0.3, entry_bytes: ENTRY_BYTES, table_bytes_max: bench.args.table_memory() };
    let mut all = Vec::new();
    for set in sets(bench, Family::V6) {
        bench.tell(&set.name);
        let histogram = LengthHistogram::of(1, 64, set.tables.v6.iter().map(|(prefix, _)| *prefix));
        let made = (LEVELS_MIN..=most)
            .map(|levels| make(set, &histogram, levels, layout.entries_max()))
            .collect::<Result<Vec<_>, CpeError>>()
            .map_err(|why| Fault::Measurement(format!("{}: {why}", set.name)))?;
        check_table(&mut figure, &made);
        check_answers(bench, &mut figure, set, &made)?;
        for one in &made {
            let x = one.best.lengths.len() as f64;
            panel.add(&format!("{}, estimated", set.name), x, one.best.estimate as f64);
            if one.refused.is_none() {
                panel.add(&format!("{}, actual", set.name), x, one.actual as f64);
            }
            rows(&mut figure, set, one);
        }
        // The engines' own choice: the shortest modelled lookup among the levels that fit.
        let chosen = HostModel::detect().choose(&histogram, &layout).ok().map(|levels| levels.lengths);
        figure.rows.push(json!({ "data": set.name, "chosen_by_model": chosen }));
        all.push((set.name.as_str(), made));
    }
    for (name, rows) in table_of_the_paper() {
        let same = all.iter().find(|(set, _)| set.ends_with(name));
        let Some((ours, made)) = same.or_else(|| all.iter().find(|(set, _)| *set == main.name)) else {
            continue;
        };
        cells(&mut figure, (name, &rows), (ours, made));
    }
    figure.panels = vec![panel];
    figure.note = format!(
        "The levels are the best there are; by_steps has the paper's choice, one length at a time. Levels are refused whose filters \
         and tables do not fit {} MiB, {} prefixes. Most of the paper's estimates for three of its tables lie below what was really \
         made, although prefix capture can only take away; ours never do. Its tables are not to be had: those named after them are \
         generated, as large as they were.",
        layout.table_bytes_max >> 20,
        layout.entries_max()
    );
    Ok(figure)
}

fn make(set: &DataSet, histogram: &LengthHistogram, levels: usize, limit: u64) -> Result<Made, CpeError> {
    let best = Dpcpe::solve(histogram).levels(levels)?;
    let actual = expand::actual(&set.tables.v6, 1, &best.lengths).into_iter().fold(0, u64::saturating_add);
    let refused = (actual > limit).then(|| best.clone().within(limit).err()).flatten();
    Ok(Made { by_steps: one_by_one(histogram, levels)?, best, actual, refused })
}

fn rows(figure: &mut Figure, set: &DataSet, made: &Made) {
    figure.rows.push(json!({
        "data": set.name, "routes": set.tables.v6.len(), "levels": made.best.lengths.len(),
        "lengths": made.best.lengths, "estimated": made.best.estimate, "actual": made.actual,
        "by_steps_lengths": made.by_steps.lengths, "by_steps_estimated": made.by_steps.estimate,
        "refused": made.refused.map(|why| why.to_string()),
    }));
}

/// Adds the paper's rows of one of its tables, beside ours.
fn cells(figure: &mut Figure, (name, rows): (&str, &[PaperRow]), (ours, made): (&str, &[Made])) {
    for PaperRow { lengths, estimated: estimate, actual } in rows {
        let levels = lengths.len();
        let here = made.iter().find(|made| made.best.lengths.len() == levels);
        let thousands = |prefixes: u64| (prefixes as f64 / 1e3).round();
        let of = |what| format!("{name} ({ours} here), CPE{levels}, {what}");
        let estimated = here.map(|made| thousands(made.best.estimate));
        // Its tables are not to be had, so its numbers say nothing of ours.
        let cell = |what, number| {
            Claim::of_table("table 4", of(what), vec![number], "thousand prefixes", Rule::Data)
        };
        figure.cell(cell("estimated", *estimate), estimated);
        let made = here.filter(|made| made.refused.is_none()).map(|made| thousands(made.actual));
        match actual {
            Some(actual) => figure.cell(cell("actual", *actual), made),
            None => figure.own(&of("actual, not possible there"), "", "thousand prefixes", made),
        }
    }
}

/// Checks the properties of table 4, from few levels to many.
fn check_table(figure: &mut Figure, made: &[Made]) {
    let mut check = |holds: bool| {
        figure.checked += 1;
        figure.wrong += u64::from(!holds);
    };
    for one in made {
        check(one.best.lengths.contains(&64));
        check(one.actual <= one.best.estimate);
        check(one.best.estimate <= one.by_steps.estimate);
    }
    for pair in made.windows(2) {
        check(pair[1].best.estimate <= pair[0].best.estimate && pair[1].actual <= pair[0].actual);
    }
}

/// Carries the smallest expansion out, and checks that it has as many prefixes as counted and answers as before.
fn check_answers(bench: &Bench<'_>, figure: &mut Figure, set: &DataSet, made: &[Made]) -> Result<(), Fault> {
    let Some(made) = made.last().filter(|made| made.actual <= EXPANDED_MAX) else { return Ok(()) };
    let expanded = expand::expand(&set.tables.v6, 1, &made.best.lengths, made.actual)
        .map_err(|why| Fault::Measurement(format!("{}: {why}", set.name)))?;
    let within = expanded.iter().filter(|(prefix, _)| (1..=64).contains(&prefix.len())).count() as u64;
    figure.checked += 1;
    figure.wrong += u64::from(within != made.actual);
    let oracle: Oracle6 = expanded.into_iter().collect();
    let keys = KeySet::make(&Traffic::Table, Family::V6, &set.tables, CHECKED, bench.args.table.seed, false)?;
    for at in 0..keys.len() {
        let answers: [NextHopId; 2] =
            [oracle.lookup(keys.high_bits(at)), set.tables.oracle.v6.lookup(keys.high_bits(at))];
        figure.checked += 1;
        figure.wrong += u64::from(answers[0] != answers[1]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_table_has_its_own_property() {
        let tables = table_of_the_paper();
        assert_eq!(tables.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(), [6; 4]);
        for (name, rows) in tables {
            for (levels, PaperRow { lengths, .. }) in (PAPER_LEVELS_MIN..=LEVELS_MAX).rev().zip(&rows) {
                assert_eq!((lengths.len(), lengths.last()), (levels, Some(&64)), "{name}");
                assert!(lengths.is_sorted_by(|a, b| a < b), "{name}: {lengths:?}");
            }
            for pair in rows.windows(2) {
                let [more, fewer] = [&pair[0], &pair[1]].map(|row| row.estimated);
                assert!(more <= fewer, "{name}: fewer levels never make fewer prefixes");
            }
            assert!(rows[..5].iter().all(|row| row.actual.is_some()) && rows[5].actual.is_none(), "{name}");
        }
    }

    #[test]
    fn a_violated_property_is_counted() {
        let levels = |estimate| Levels { lengths: vec![48, 64], estimate };
        let made =
            |estimate, actual| Made { best: levels(estimate), by_steps: levels(90), actual, refused: None };
        let count = |made: &[Made]| {
            let mut figure = Figure::default();
            check_table(&mut figure, made);
            (figure.checked, figure.wrong)
        };
        assert_eq!(count(&[made(80, 70), made(60, 60)]), (7, 0));
        assert_eq!(count(&[made(80, 81)]), (3, 1), "capture adds prefixes");
        assert_eq!(count(&[made(80, 70), made(60, 71)]), (7, 2), "more levels make more");
        assert_eq!(count(&[made(91, 70)]), (3, 1), "one at a time is better than the best");
    }
}
