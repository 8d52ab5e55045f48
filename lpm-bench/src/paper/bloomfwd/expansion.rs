//! Table 4: the prefixes that DPCPE makes of IPv6 tables, by the number of levels: the paper's greedy choice, and the optimum.
//!
//! The properties that the table shows are checked: prefix capture only removes prefixes, fewer levels never make fewer prefixes,
//! 64 is always a level, the optimum is no worse than the greedy choice, whose levels hold those of fewer. Figures 7 and 8 build tables of
//! these levels and check their answers.

use super::{rows_of, stand_in};
use crate::paper::claims::Rule;
use crate::paper::{Bench, Claim, DataSet, Family, Fault, Figure, json, median, most};
use lpm_phi::cpe::CpeError;
use lpm_phi::cpe::dpcpe::{Dpcpe, LevelSearch, Levels};
use lpm_phi::cpe::expand;
use lpm_phi::cpe::histogram::LengthHistogram;
use lpm_phi::cpe::model::{ExpandedLayout, HostModel};
use lpm_phi::variants::ENTRY_BYTES;

/// The paper's table: levels, estimated and actual prefixes in thousands, of which there are none where it was not possible.
const TABLE_4: &str = include_str!("table4.txt");
/// The most levels of the paper's table.
const LEVELS_MAX: usize = 8;
/// The fewest here: more fits in memory today, and the table should show what is refused.
const LEVELS_MIN: usize = 1;
/// The most levels of a full run: beyond them, nearly every route has its own length.
const LEVELS_MORE: usize = 12;
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
pub(super) fn table_4(bench: &Bench, figure: &mut Figure) -> Result<(), Fault> {
    let Some(main) = bench.main_set(Family::V6) else { return figure.without(Family::V6) };
    let layout =
        ExpandedLayout { fpr: 0.3, entry_bytes: ENTRY_BYTES, table_bytes_max: bench.args.table_memory() };
    let mut all = Vec::new();
    for set in bench.sets(Family::V6) {
        bench.tell(&set.name);
        all.push((set.name.as_str(), expansions(bench, figure, set, &layout)?));
    }
    let of = |set: &DataSet| all.iter().find(|(name, _)| *name == set.name);
    for (name, row) in rows_of(TABLE_4) {
        if let Some((ours, made)) = of(stand_in(bench, Family::V6, name).unwrap_or(main)) {
            cells(figure, (name, &row), (ours, made));
        }
    }
    for ((_, search), at) in SEARCHES.into_iter().zip(0..) {
        let made = all.iter().flat_map(|(_, made)| &made[at]).filter(|one| one.actual < u64::MAX);
        let ratios: Vec<_> = made.map(|one| one.levels.estimate as f64 / one.actual as f64).collect();
        let of_main = of(main).into_iter().flat_map(|(_, made)| &made[at]);
        let fewest = of_main.filter(|one| one.refused.is_none()).map(|one| one.levels.lengths.len()).next();
        figure.ours_of("estimated over actual prefixes, most configurations", search, median(&ratios));
        let bound = "estimated over actual prefixes, a lower bound of what is made";
        figure.ours_of(bound, search, most(&ratios));
        figure.ours_of("the fewest levels that fit the memory", search, fewest.map(|levels| levels as f64));
    }
    figure.fill("memory", &(layout.table_bytes_max >> 20));
    figure.fill("entries", &layout.entries_max());
    Ok(())
}

/// The expansions of a data set, in rows and graphs: prefixes, and prefixes by estimate.
fn expansions(
    bench: &Bench,
    figure: &mut Figure,
    set: &DataSet,
    layout: &ExpandedLayout,
) -> Result<Expansions, Fault> {
    let fault = |why: CpeError| Fault::Measurement(format!("{}: {why}", set.name));
    let histogram = LengthHistogram::of(1, 64, set.tables.v6.iter().map(|(prefix, _)| *prefix));
    let mut expansions = Expansions::default();
    for ((search, name), made) in SEARCHES.into_iter().zip(&mut expansions) {
        let solved = Dpcpe::solve(search, &histogram);
        let line = format!("{}, {name}", set.name);
        for number in LEVELS_MIN..=if bench.args.quick { LEVELS_MAX } else { LEVELS_MORE } {
            let one = Made::of(set, solved.levels(number).map_err(fault)?, layout.entries_max());
            if one.refused.is_none() {
                figure.add(0, &line, number as f64, one.actual as f64);
            }
            figure.add(1, &line, number as f64, one.levels.estimate as f64);
            figure.rows.push(json!({
                "data": set.name, "routes": set.tables.v6.len(), "search": name, "levels": number,
                "lengths": one.levels.lengths, "estimated": one.levels.estimate, "actual": one.actual,
                "refused": one.refused.map(|why| why.to_string()),
            }));
            made.push(one);
        }
    }
    check_table(figure, &expansions);
    // The engines' own choice: the shortest modelled lookup among the levels that fit.
    let chosen = HostModel::detect().choose(LevelSearch::Optimum, &histogram, layout);
    let chosen = chosen.ok().map(|levels| levels.lengths);
    figure.rows.push(json!({ "data": set.name, "chosen_by_model": chosen }));
    Ok(expansions)
}

impl Made {
    fn of(set: &DataSet, levels: Levels, limit: u64) -> Self {
        let actual =
            expand::actual(&set.tables.v6, 1, &levels.lengths).into_iter().fold(0, u64::saturating_add);
        let refused = (actual > limit).then(|| levels.clone().within(limit).err()).flatten();
        Self { levels, actual, refused }
    }
}

/// Adds a row of the paper's table, beside ours.
fn cells(figure: &mut Figure, (name, row): (&str, &[Vec<u64>]), (ours, made): (&str, &Expansions)) {
    let [lengths, estimated, actual] = row else { return };
    let of = |what| format!("{name} ({ours} here), CPE{} {lengths:?}, {what}", lengths.len());
    let both = |number: &dyn Fn(&Made) -> Option<f64>| {
        let mut both = SEARCHES.map(|(_, search)| (search, None));
        for ((_, value), made) in both.iter_mut().zip(made) {
            *value = made.iter().find(|made| made.levels.lengths.len() == lengths.len()).and_then(number);
        }
        both
    };
    // Its tables are not to be had, so its numbers say nothing of ours.
    let mut cell = |what, paper: u64, unit, ours: [(&str, Option<f64>); 2]| {
        figure.cell(Claim::of_table("table 4", of(what), paper as f64, unit, Rule::Data), ours);
    };
    let thousands = |prefixes: u64| (prefixes as f64 / 1e3).round();
    let is_ours = |one: &Made, len: &u64| one.levels.lengths.iter().any(|own| u64::from(*own) == *len);
    let same = |one: &Made| lengths.iter().filter(|len| is_ours(one, len)).count() as f64;
    cell("levels that are ours, too", lengths.len() as u64, "levels", both(&|one| Some(same(one))));
    let here = both(&|one| Some(thousands(one.levels.estimate)));
    cell("estimated", estimated[0], "thousand prefixes", here);
    let made = both(&|one| one.refused.is_none().then(|| thousands(one.actual)));
    match actual.as_slice() {
        [actual] => cell("actual", *actual, "thousand prefixes", made),
        _ => made.into_iter().for_each(|(search, value)| {
            figure.own(&of("actual, not possible there"), search, "thousand prefixes", value);
        }),
    }
}

/// Checks the properties of table 4, from few levels to many.
fn check_table(figure: &mut Figure, [greedy, optimum]: &Expansions) {
    for one in greedy.iter().chain(optimum) {
        figure.check_that(one.levels.lengths.contains(&64) && one.actual <= one.levels.estimate);
    }
    for (greedy, best) in greedy.iter().zip(optimum) {
        figure.check_that(best.levels.estimate <= greedy.levels.estimate);
    }
    for pair in greedy.windows(2).chain(optimum.windows(2)) {
        figure.check_that(
            pair[1].levels.estimate <= pair[0].levels.estimate && pair[1].actual <= pair[0].actual,
        );
    }
    for pair in greedy.windows(2) {
        figure.check_that(holds(&pair[1].levels.lengths, &pair[0].levels.lengths));
    }
}

/// Whether `more` has all levels of `fewer`.
fn holds<T: PartialEq>(more: &[T], fewer: &[T]) -> bool {
    fewer.iter().all(|len| more.contains(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewer levels never make fewer prefixes, and every level set holds the next smaller one: the paper's choice is greedy.
    #[test]
    fn the_paper_s_level_sets_are_nested() {
        let all: Vec<_> = rows_of(TABLE_4).collect();
        assert_eq!(all.len(), 4 * 6);
        for rows in all.chunks(6) {
            for ((name, row), levels) in rows.iter().zip((3..=8).rev()) {
                let [lengths, estimated, actual] = row.as_slice() else { panic!("{name}: {row:?}") };
                assert_eq!((lengths.len(), lengths.last(), *name), (levels, Some(&64), rows[0].0));
                assert!(lengths.is_sorted_by(|a, b| a < b), "{name}: {lengths:?}");
                assert_eq!((estimated.len(), actual.len()), (1, usize::from(levels > 3)), "{name}");
            }
            for pair in rows.windows(2) {
                let ((name, more), (_, fewer)) = (&pair[0], &pair[1]);
                assert!(more[1] <= fewer[1], "{name}");
                assert!(holds(&more[0], &fewer[0]), "{name}: {fewer:?}");
            }
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
