//! DPCPE's levels for IPv6. Table 4: expanded prefixes for the paper's greedy choice and for the optimum. Figures 7 and 8: lookup rates.
//!
//! Properties are checked: prefix capture only removes prefixes, fewer levels never make fewer prefixes, 64 is always a level, the optimum is
//! no worse than the greedy choice, and greedy levels include the levels for fewer.

use super::contest::{ContestSubject, FilledEngine, build, leaders, show};
use super::{MLPS, PAPER_V6, isas, rows_of, stand_in};
use crate::paper::bench::{
    Bench, Claim, DataSet, Family, Fault, Figure, Isa, Panel, Result, Stream, Traffic, json, median, most,
    over,
};
use crate::paper::claims::Rule;
use lpm_phi::cpe::CpeError;
use lpm_phi::cpe::dpcpe::{Dpcpe, LevelSearch, Levels};
use lpm_phi::cpe::expand;
use lpm_phi::cpe::histogram::LengthHistogram;
use lpm_phi::cpe::model::{ExpandedLayout, HostModel};
use lpm_phi::variants::ENTRY_BYTES;

/// The paper's table: levels, estimated and actual prefixes in thousands, absent where expansion was impossible.
const TABLE_4: &str = include_str!("table4.txt");
const LEVELS_MAX: usize = 8;
/// The fewest levels here: more fits in memory today, and the table should show refusals.
const LEVELS_MIN: usize = 1;
/// The most levels of a full run: beyond them, nearly every route has a level of its length.
const LEVELS_MORE: usize = 12;
/// The paper's search first.
const SEARCHES: [(LevelSearch, &str); 2] =
    [(LevelSearch::Greedy, "greedy"), (LevelSearch::Optimum, "optimum")];

struct ExpandedLevels {
    levels: Levels,
    actual: u64,
    refused: Option<CpeError>,
}

type Expansions = [Vec<ExpandedLevels>; 2];

pub(super) fn table_4(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(main) = bench.main_set(Family::V6) else { return figure.without(Family::V6) };
    let layout =
        ExpandedLayout { fpr: 0.3, entry_bytes: ENTRY_BYTES, table_bytes_max: bench.args.table_memory() };
    let mut all = Vec::new();
    for set in bench.sets(Family::V6) {
        bench.show_progress(&set.name);
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
        figure.record_of("estimated over actual prefixes, most configurations", search, median(&ratios));
        let bound = "estimated over actual prefixes, a lower bound of what is made";
        figure.record_of(bound, search, most(&ratios));
        figure.record_of("the fewest levels that fit the memory", search, fewest.map(|levels| levels as f64));
    }
    figure.fill("memory", &(layout.table_bytes_max >> 20));
    figure.fill("entries", &layout.entries_max());
    Ok(())
}

/// The expansions of a data set, in rows and graphs: actual and estimated prefixes.
fn expansions(
    bench: &Bench,
    figure: &mut Figure,
    set: &DataSet,
    layout: &ExpandedLayout,
) -> Result<Expansions> {
    let fault = |why: CpeError| Fault::Measurement(format!("{}: {why}", set.name));
    let histogram = LengthHistogram::of_prefixes(1, 64, set.tables.v6.iter().map(|(prefix, _)| *prefix));
    let mut expansions = Expansions::default();
    for ((search, name), made) in SEARCHES.into_iter().zip(&mut expansions) {
        let solved = Dpcpe::solve(search, &histogram);
        let line = format!("{}, {name}", set.name);
        for number in LEVELS_MIN..=if bench.args.quick { LEVELS_MAX } else { LEVELS_MORE } {
            let one =
                ExpandedLevels::expand(set, solved.levels(number).map_err(fault)?, layout.entries_max());
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

impl ExpandedLevels {
    fn expand(set: &DataSet, levels: Levels, limit: u64) -> Self {
        let actual =
            expand::actual(&set.tables.v6, 1, &levels.lengths).into_iter().fold(0, u64::saturating_add);
        let refused = (actual > limit).then(|| levels.clone().within(limit).err()).flatten();
        Self { levels, actual, refused }
    }
}

fn cells(figure: &mut Figure, (name, row): (&str, &[Vec<u64>]), (ours, made): (&str, &Expansions)) {
    let [lengths, estimated, actual] = row else { return };
    let of = |what| format!("{name} ({ours} here), CPE{} {lengths:?}, {what}", lengths.len());
    let both = |number: &dyn Fn(&ExpandedLevels) -> Option<f64>| {
        let mut both = SEARCHES.map(|(_, search)| (search, None));
        for ((_, value), made) in both.iter_mut().zip(made) {
            *value = made.iter().find(|made| made.levels.lengths.len() == lengths.len()).and_then(number);
        }
        both
    };
    // The paper's tables are not available, so its numbers do not apply to ours.
    let mut cell = |what, paper: u64, unit, ours: [(&str, Option<f64>); 2]| {
        figure.cell(Claim::of_table("table 4", of(what), paper as f64, unit, Rule::Data), ours);
    };
    let thousands = |prefixes: u64| (prefixes as f64 / 1e3).round();
    let is_ours =
        |one: &ExpandedLevels, len: &u64| one.levels.lengths.iter().any(|own| u64::from(*own) == *len);
    let same = |one: &ExpandedLevels| lengths.iter().filter(|len| is_ours(one, len)).count() as f64;
    cell("levels that are ours, too", lengths.len() as u64, "levels", both(&|one| Some(same(one))));
    let here = both(&|one| Some(thousands(one.levels.estimate)));
    cell("estimated", estimated[0], "thousand prefixes", here);
    let made = both(&|one| one.refused.is_none().then(|| thousands(one.actual)));
    match actual.as_slice() {
        [actual] => cell("actual", *actual, "thousand prefixes", made),
        _ => made.into_iter().for_each(|(search, value)| {
            figure.record_unclaimed(&of("actual, not possible there"), search, "thousand prefixes", value);
        }),
    }
}

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

fn holds<T: PartialEq>(more: &[T], fewer: &[T]) -> bool {
    fewer.iter().all(|len| more.contains(len))
}

/// The paper's numbers of levels; `None` is no expansion: a filter and table for each length.
const LEVELS: [Option<u32>; 7] = [None, Some(8), Some(7), Some(6), Some(5), Some(4), Some(3)];
/// A quick run omits 3 levels, which are refused or take long to build.
const LEVELS_QUICK: [Option<u32>; 5] = [None, Some(8), Some(6), Some(5), Some(4)];

fn places(bench: &Bench) -> &'static [Option<u32>] {
    if bench.args.quick { &LEVELS_QUICK } else { &LEVELS }
}

fn place(bench: &Bench, levels: Option<u32>) -> Option<f64> {
    Some(places(bench).iter().position(|one| *one == levels)? as f64)
}

fn best_levels(bench: &Bench, panel: &Panel, name: &str) -> Option<f64> {
    let x = panel.best_x(name)?;
    places(bench).iter().find(|levels| place(bench, **levels) == Some(x)).copied().flatten().map(f64::from)
}

fn bloomfwd(isa: Isa, levels: Option<u32>) -> ContestSubject {
    match levels {
        None => ContestSubject::naive(isa),
        Some(levels) => ContestSubject::bloomfwd(isa).with("levels", &levels),
    }
}

fn with_optimum(isa: Isa, levels: Option<u32>) -> Option<ContestSubject> {
    levels.map(|_| bloomfwd(isa, levels).with("dpcpe", &"optimum"))
}

/// Measures `always`, and the subjects `of` each number of levels, on each stream: a graph each.
fn by_levels(
    bench: &Bench,
    figure: &mut Figure,
    (set, streams): (&DataSet, &[Stream]),
    always: &[ContestSubject],
    of: impl Fn(Option<u32>) -> Vec<ContestSubject>,
) -> Result<()> {
    let name = |levels: &Option<u32>| levels.map_or("no CPE".into(), |levels| format!("CPE{levels}"));
    figure.name_places(places(bench).iter().map(name));
    let mut built = build(bench, figure, &set.tables, Family::V6, always)?;
    let kept = built.len();
    for (x, levels) in places(bench).iter().enumerate() {
        built.extend(build(bench, figure, &set.tables, Family::V6, &of(*levels))?);
        for (panel, keys) in streams.iter().enumerate() {
            let more = |one: &FilledEngine| {
                json!({
                    "data": set.name, "traffic": keys.traffic(), "cpe": levels,
                    "v6_levels": one.details.get("v6_levels"), "v6_entries": one.details.get("v6_entries"),
                })
            };
            show(bench, figure, (panel, x as f64), &mut built, (&set.tables, keys), more)?;
        }
        built.truncate(kept);
    }
    Ok(())
}

pub(super) fn figure_7(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V6) else { return figure.without(Family::V6) };
    let isas = isas(figure);
    let streams = [Traffic::Random, bench.trace()].map(|traffic| bench.stream(set, Family::V6, &traffic));
    let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
    figure.panels = streams.iter().map(|keys| Panel::log(format!("{MLPS}, {}", keys.traffic()))).collect();
    let mut always = ContestSubject::blooms(bench, &isas);
    always.extend(ContestSubject::mihts());
    by_levels(bench, figure, (set, &streams), &always, |levels| {
        let named = |isa: &Isa| bloomfwd(*isa, levels).named(ContestSubject::bloomfwd(*isa).name);
        let optimum = with_optimum(isas[0], levels);
        let optimum = optimum.map(|one| one.named(format!("Bloomfwd, {}, optimum levels", isas[0])));
        isas.iter().map(named).chain(optimum).collect()
    })?;
    ours_7(bench, figure, &leaders(bench, &isas));
    figure.fill("data", &set.name);
    figure.fill("routes", &set.tables.v6.len());
    Ok(())
}

fn ours_7(bench: &Bench, figure: &mut Figure, leaders: &[String; 2]) {
    let [random, trace] = &figure.panels.clone()[..] else { return };
    let [bloomfwd, _] = leaders;
    let at = |panel: &Panel, name: &str, levels| panel.value_at(name, place(bench, levels)?);
    let none = at(random, bloomfwd, None);
    figure.record("Bloomfwd-v6, 5 levels over no CPE", over(at(random, bloomfwd, Some(5)), none));
    figure.record("Bloomfwd-v6, most over no CPE", over(random.most(bloomfwd), none));
    for name in leaders {
        let times = over(at(random, name, Some(5)), at(random, "MIHT", Some(5)));
        figure.record_of("over MIHT-v6, 5 levels", name, times);
        figure.record_of("Bloomfwd-v6, most over MIHT-v6", name, most(&random.ratios(name, "MIHT")));
    }
    figure.record("AS65000-V6: the most lookups are with", best_levels(bench, random, bloomfwd));
    let fastest = random.most(bloomfwd);
    figure.record("Bloomfwd-v6, at most (Phi 7250)", fastest);
    let gbit_s = fastest.map(|mlps| mlps * 84.0 * 8.0 / 1e3);
    figure.record("Bloomfwd-v6, at most, as packets of 84 bytes", gbit_s);
    figure.record("MIHT-v6, real addresses (Phi 7120P)", at(trace, "MIHT", Some(5)));
    for processor in ["Phi 7120P", "Phi 7250"] {
        figure.record(&format!("Bloomfwd-v6, real addresses ({processor})"), trace.most(bloomfwd));
    }
}

pub(super) fn figure_8(bench: &Bench, figure: &mut Figure) -> Result<()> {
    if bench.main_set(Family::V6).is_none() {
        return figure.without(Family::V6);
    }
    let isa = isas(figure)[0];
    // Generated tables of the sizes of the paper's other three, else all tables.
    let is_other = |set: &&DataSet| PAPER_V6[1..].iter().any(|(name, _)| set.name.ends_with(name));
    let mut chosen: Vec<_> = bench.sets(Family::V6).filter(is_other).collect();
    if chosen.is_empty() {
        chosen = bench.sets(Family::V6).collect();
    }
    for set in chosen {
        let keys = bench.stream(set, Family::V6, &Traffic::Random)?;
        by_levels(bench, figure, (set, &[keys]), &[], |levels| {
            // The optimum is measured on figure 7's table, and in a full run on these.
            let optimum = with_optimum(isa, levels).filter(|_| !bench.args.quick);
            let optimum = optimum.map(|one| one.named(format!("{}, optimum levels", set.name)));
            std::iter::once(bloomfwd(isa, levels).named(&set.name)).chain(optimum).collect()
        })?;
        let best = best_levels(bench, &figure.panels[0], &set.name);
        figure.record_of("the most lookups are with", &set.name, best);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let made = |lengths: &[u8], estimate, actual| ExpandedLevels {
            levels: Levels { lengths: lengths.to_vec(), estimate },
            actual,
            refused: None,
        };
        let count = |greedy: Vec<ExpandedLevels>, optimum: Vec<ExpandedLevels>| {
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
