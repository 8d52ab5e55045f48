//! Table 4: the prefixes that DPCPE makes of IPv6 tables, by the number of levels: the paper's greedy choice, and the optimum.
//!
//! The properties that the table shows are checked: prefix capture only removes prefixes, fewer levels never make fewer prefixes,
//! 64 is always a level, the optimum is no worse than the greedy choice, whose levels hold those of fewer. One expansion of each table is
//! carried out, and its answers are compared with the oracle's.

use super::{sets, stand_in};
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::paper::claims::{Claim, Judged, Ours, Rule};
use crate::paper::data::DataSet;
use crate::paper::figure::{Figure, Panel, most};
use crate::paper::{Bench, CHECKED};
use fib::oracle::Oracle6;
use fib::traffic::Traffic;
use fib::{Family, NextHopId};
use lpm_bench::stats::median;
use lpm_phi::cpe::CpeError;
use lpm_phi::cpe::dpcpe::{Dpcpe, LevelSearch, Levels};
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
/// The paper's search first.
const SEARCHES: [(LevelSearch, &str); 2] =
    [(LevelSearch::Greedy, "greedy"), (LevelSearch::Optimum, "optimum")];

/// The expansion of a table to one number of levels.
struct Made {
    levels: Levels,
    /// Prefixes, with prefix capture.
    actual: u64,
    /// Why it is refused.
    refused: Option<CpeError>,
}

/// A table's expansions by each search, from few levels to many.
type Expansions = [Vec<Made>; 2];

/// Table 4: levels against expanded prefixes.
pub(super) fn table_4(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Results of performing CPE in real IPv6 prefix datasets", "levels");
    let mut panel = Panel::log("prefixes after expansion");
    let Some(main) = bench.main_set(Family::V6) else { return Ok(figure.without(Family::V6)) };
    let layout =
        ExpandedLayout { fpr: 0.3, entry_bytes: ENTRY_BYTES, table_bytes_max: bench.args.table_memory() };
    let mut all = Vec::new();
    for set in sets(bench, Family::V6) {
        bench.tell(&set.name);
        let fault = |why: CpeError| Fault::Measurement(format!("{}: {why}", set.name));
        let histogram = LengthHistogram::of(1, 64, set.tables.v6.iter().map(|(prefix, _)| *prefix));
        let mut made: Expansions = Default::default();
        for ((search, name), made) in SEARCHES.into_iter().zip(&mut made) {
            let solved = Dpcpe::solve(search, &histogram);
            for number in LEVELS_MIN..=if bench.args.quick { LEVELS_MAX } else { LEVELS_MORE } {
                let one = Made::of(set, solved.levels(number).map_err(fault)?, layout.entries_max());
                let line = |what| format!("{}, {name}, {what}", set.name);
                panel.add(&line("estimated"), number as f64, one.levels.estimate as f64);
                if one.refused.is_none() {
                    panel.add(&line("actual"), number as f64, one.actual as f64);
                }
                figure.rows.push(json!({
                    "data": set.name, "routes": set.tables.v6.len(), "search": name, "levels": number,
                    "lengths": one.levels.lengths, "estimated": one.levels.estimate, "actual": one.actual,
                    "refused": one.refused.map(|why| why.to_string()),
                }));
                made.push(one);
            }
        }
        check_table(&mut figure, &made);
        check_answers(bench, &mut figure, set, &made)?;
        // The engines' own choice: the shortest modelled lookup among the levels that fit.
        let chosen = HostModel::detect().choose(LevelSearch::Optimum, &histogram, &layout);
        let chosen = chosen.ok().map(|levels| levels.lengths);
        figure.rows.push(json!({ "data": set.name, "chosen_by_model": chosen }));
        all.push((set.name.as_str(), made));
    }
    for (name, rows) in table_of_the_paper() {
        let set = stand_in(bench, Family::V6, name).unwrap_or(main);
        if let Some((ours, made)) = all.iter().find(|(other, _)| *other == set.name) {
            cells(&mut figure, (name, &rows), (ours, made));
        }
    }
    for ((_, search), at) in SEARCHES.into_iter().zip(0..) {
        let made = all.iter().flat_map(|(_, made)| &made[at]).filter(|one| one.actual < u64::MAX);
        let ratios: Vec<_> = made.map(|one| one.levels.estimate as f64 / one.actual as f64).collect();
        let of_main = all.iter().find(|(name, _)| *name == main.name).map(|(_, made)| &made[at]);
        let fewest = of_main.into_iter().flatten().find(|one| one.refused.is_none());
        let fewest = fewest.map(|one| one.levels.lengths.len() as f64);
        figure.ours_of("estimated over actual prefixes, most configurations", search, median(&ratios));
        figure.ours_of(
            "estimated over actual prefixes, a lower bound of what is made",
            search,
            most(&ratios),
        );
        figure.ours_of("the fewest levels that fit the memory", search, fewest);
    }
    figure.panels = vec![panel];
    figure.note = format!(
        "Levels are refused whose filters and tables do not fit {} MiB, {} prefixes. Most of the paper's estimates for three of its \
         tables lie below what was really made, although prefix capture can only take away; ours never do. Its tables are not to be \
         had: those named after them are generated, as large as they were.",
        layout.table_bytes_max >> 20,
        layout.entries_max()
    );
    Ok(figure)
}

impl Made {
    fn of(set: &DataSet, levels: Levels, limit: u64) -> Self {
        let actual =
            expand::actual(&set.tables.v6, 1, &levels.lengths).into_iter().fold(0, u64::saturating_add);
        let refused = (actual > limit).then(|| levels.clone().within(limit).err()).flatten();
        Self { levels, actual, refused }
    }
}

/// Adds the paper's rows of one of its tables, beside ours.
fn cells(figure: &mut Figure, (name, rows): (&str, &[PaperRow]), (ours, made): (&str, &Expansions)) {
    for PaperRow { lengths, estimated, actual } in rows {
        let of = |what| format!("{name} ({ours} here), CPE{} {lengths:?}, {what}", lengths.len());
        let both = |number: &dyn Fn(&Made) -> Option<f64>| {
            let both = SEARCHES.iter().zip(made).map(|((_, search), made)| {
                let here = made.iter().find(|made| made.levels.lengths.len() == lengths.len());
                Ours { of: (*search).to_owned(), value: here.and_then(number) }
            });
            both.collect::<Vec<_>>()
        };
        // Its tables are not to be had, so its numbers say nothing of ours.
        let mut cell = |what, number, unit, ours| {
            let claim = Claim::of_table("table 4", of(what), vec![number], unit, Rule::Data);
            figure.claims.push(Judged::new(claim, ours));
        };
        let thousands = |prefixes: u64| (prefixes as f64 / 1e3).round();
        let same = |one: &Made| lengths.iter().filter(|len| one.levels.lengths.contains(len)).count() as f64;
        cell("levels that are ours, too", lengths.len() as f64, "levels", both(&|one| Some(same(one))));
        cell("estimated", *estimated, "thousand prefixes", both(&|one| Some(thousands(one.levels.estimate))));
        let made = both(&|one| one.refused.is_none().then(|| thousands(one.actual)));
        match actual {
            Some(actual) => cell("actual", *actual, "thousand prefixes", made),
            None => made.into_iter().for_each(|Ours { of: search, value }| {
                figure.own(&of("actual, not possible there"), &search, "thousand prefixes", value);
            }),
        }
    }
}

/// Checks the properties of table 4, from few levels to many.
fn check_table(figure: &mut Figure, [greedy, optimum]: &Expansions) {
    let mut check = |holds: bool| {
        figure.checked += 1;
        figure.wrong += u64::from(!holds);
    };
    for one in greedy.iter().chain(optimum) {
        check(one.levels.lengths.contains(&64) && one.actual <= one.levels.estimate);
    }
    for (greedy, best) in greedy.iter().zip(optimum) {
        check(best.levels.estimate <= greedy.levels.estimate);
    }
    for pair in greedy.windows(2).chain(optimum.windows(2)) {
        check(pair[1].levels.estimate <= pair[0].levels.estimate && pair[1].actual <= pair[0].actual);
    }
    for pair in greedy.windows(2) {
        check(holds(&pair[1].levels.lengths, &pair[0].levels.lengths));
    }
}

/// Whether `more` has all levels of `fewer`.
fn holds(more: &[u8], fewer: &[u8]) -> bool {
    fewer.iter().all(|len| more.contains(len))
}

/// Carries the smallest expansion of each search out, and checks that it has as many prefixes as counted and answers as before.
fn check_answers(
    bench: &Bench<'_>,
    figure: &mut Figure,
    set: &DataSet,
    made: &Expansions,
) -> Result<(), Fault> {
    for made in made.iter().filter_map(|made| made.last()).filter(|made| made.actual <= EXPANDED_MAX) {
        let expanded = expand::expand(&set.tables.v6, 1, &made.levels.lengths, made.actual)
            .map_err(|why| Fault::Measurement(format!("{}: {why}", set.name)))?;
        let within = expanded.iter().filter(|(prefix, _)| (1..=64).contains(&prefix.len())).count() as u64;
        figure.checked += 1;
        figure.wrong += u64::from(within != made.actual);
        let oracle: Oracle6 = expanded.into_iter().collect();
        let keys =
            KeySet::make(&Traffic::Table, Family::V6, &set.tables, CHECKED, bench.args.table.seed, false)?;
        for at in 0..keys.len() {
            let answers: [NextHopId; 2] =
                [oracle.lookup(keys.high_bits(at)), set.tables.oracle.v6.lookup(keys.high_bits(at))];
            figure.checked += 1;
            figure.wrong += u64::from(answers[0] != answers[1]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewer levels never make fewer prefixes, and every level set holds the next smaller one: the paper's choice is greedy.
    #[test]
    fn the_paper_s_level_sets_are_nested() {
        let tables = table_of_the_paper();
        assert_eq!(tables.iter().map(|(_, rows)| rows.len()).collect::<Vec<_>>(), [6; 4]);
        for (name, rows) in tables {
            for (levels, PaperRow { lengths, .. }) in (PAPER_LEVELS_MIN..=LEVELS_MAX).rev().zip(&rows) {
                assert_eq!((lengths.len(), lengths.last()), (levels, Some(&64)), "{name}");
                assert!(lengths.is_sorted_by(|a, b| a < b), "{name}: {lengths:?}");
            }
            for pair in rows.windows(2) {
                assert!(pair[0].estimated <= pair[1].estimated, "{name}");
                assert!(holds(&pair[0].lengths, &pair[1].lengths), "{name}: {:?}", pair[1].lengths);
            }
            assert!(rows[..5].iter().all(|row| row.actual.is_some()) && rows[5].actual.is_none(), "{name}");
        }
    }

    #[test]
    fn a_violated_property_is_counted() {
        let made = |lengths: &[u8], estimate, actual| Made {
            levels: Levels { lengths: lengths.to_vec(), estimate },
            actual,
            refused: None,
        };
        let count = |greedy: Vec<Made>, optimum: Vec<Made>| {
            let mut figure = Figure::default();
            check_table(&mut figure, &[greedy, optimum]);
            (figure.checked, figure.wrong)
        };
        let right = || vec![made(&[48, 64], 80, 70), made(&[40, 48, 64], 60, 60)];
        assert_eq!(count(right(), right()), (9, 0));
        assert_eq!(count(right(), vec![made(&[64], 70, 71)]).1, 1, "capture adds prefixes");
        assert_eq!(count(right(), vec![made(&[48], 70, 70)]).1, 1, "64 is no level");
        assert_eq!(count(right(), vec![made(&[64], 81, 70)]).1, 1, "greedy is better than the best");
        let more = vec![made(&[48, 64], 80, 70), made(&[40, 48, 64], 60, 71)];
        assert_eq!(count(more, right()).1, 2, "more levels make more, and more than estimated");
        let other = vec![made(&[48, 64], 80, 70), made(&[40, 44, 64], 60, 60)];
        assert_eq!(count(other, right()).1, 1, "the greedy levels are not nested");
    }
}
