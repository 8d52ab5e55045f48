//! Figures 7 and 8: IPv6 by the number of levels that DPCPE expands to.

use super::contest;
use super::subject::{FilledEngine, Subject, build, leaders};
use super::{MLPS, PAPER_V6, isas};
use crate::paper::{Bench, DataSet, Family, Fault, Figure, Isa, Panel, Stream, Traffic, json, most, over};

/// The paper's numbers of levels; `None` is no expansion: a filter and table for each length.
const LEVELS: [Option<u32>; 7] = [None, Some(8), Some(7), Some(6), Some(5), Some(4), Some(3)];
/// The numbers of a quick run, without 3 levels, which are refused or take long to build.
const LEVELS_QUICK: [Option<u32>; 5] = [None, Some(8), Some(6), Some(5), Some(4)];

/// The numbers of levels, by their positions on the axis.
fn places(bench: &Bench) -> &'static [Option<u32>] {
    if bench.args.quick { &LEVELS_QUICK } else { &LEVELS }
}

/// The position of `levels` on the axis.
fn place(bench: &Bench, levels: Option<u32>) -> Option<f64> {
    Some(places(bench).iter().position(|one| *one == levels)? as f64)
}

/// The number of levels with the highest rate of a line.
fn best_levels(bench: &Bench, panel: &Panel, name: &str) -> Option<f64> {
    let x = panel.best_x(name)?;
    places(bench).iter().find(|levels| place(bench, **levels) == Some(x)).copied().flatten().map(f64::from)
}

/// Bloomfwd-v6 with this number of levels.
fn bloomfwd(isa: Isa, levels: Option<u32>) -> Subject {
    match levels {
        None => Subject::naive(isa),
        Some(levels) => Subject::bloomfwd(isa).with("levels", &levels),
    }
}

/// The same with the best levels there are in place of the paper's, if they are expanded to.
fn with_optimum(isa: Isa, levels: Option<u32>) -> Option<Subject> {
    levels.map(|_| bloomfwd(isa, levels).with("dpcpe", &"optimum"))
}

/// Measures `always`, and the subjects `of` each number of levels, on each stream: a graph each.
fn by_levels(
    bench: &Bench,
    figure: &mut Figure,
    (set, streams): (&DataSet, &[Stream]),
    always: &[Subject],
    of: impl Fn(Option<u32>) -> Vec<Subject>,
) -> Result<(), Fault> {
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
            contest::show(bench, figure, (panel, x as f64), &mut built, (&set.tables, keys), more)?;
        }
        built.truncate(kept);
    }
    Ok(())
}

/// Figure 7: AS65000-V6, with and without DPCPE.
pub(super) fn figure_7(bench: &Bench, figure: &mut Figure) -> Result<(), Fault> {
    let Some(set) = bench.main_set(Family::V6) else { return figure.without(Family::V6) };
    let isas = isas(figure);
    let streams = [Traffic::Random, bench.trace()].map(|traffic| bench.stream(set, Family::V6, &traffic));
    let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
    figure.panels = streams.iter().map(|keys| Panel::log(format!("{MLPS}, {}", keys.traffic()))).collect();
    let mut always = Subject::blooms(bench, &isas);
    always.extend(Subject::mihts());
    by_levels(bench, figure, (set, &streams), &always, |levels| {
        let named = |isa: &Isa| bloomfwd(*isa, levels).named(Subject::bloomfwd(*isa).name);
        let optimum = with_optimum(isas[0], levels);
        let optimum = optimum.map(|one| one.named(format!("Bloomfwd, {}, optimum levels", isas[0])));
        isas.iter().map(named).chain(optimum).collect()
    })?;
    ours_7(bench, figure, &leaders(bench, &isas));
    figure.fill("data", &set.name);
    figure.fill("routes", &set.tables.v6.len());
    Ok(())
}

/// Hands in the numbers of section 6.6.
fn ours_7(bench: &Bench, figure: &mut Figure, leaders: &[String; 2]) {
    let [random, trace] = &figure.panels.clone()[..] else { return };
    let [bloomfwd, _] = leaders;
    let at = |panel: &Panel, name: &str, levels| panel.at(name, place(bench, levels)?);
    let none = at(random, bloomfwd, None);
    figure.ours("Bloomfwd-v6, 5 levels over no CPE", over(at(random, bloomfwd, Some(5)), none));
    figure.ours("Bloomfwd-v6, most over no CPE", over(random.most(bloomfwd), none));
    for name in leaders {
        let times = over(at(random, name, Some(5)), at(random, "MIHT", Some(5)));
        figure.ours_of("over MIHT-v6, 5 levels", name, times);
        figure.ours_of("Bloomfwd-v6, most over MIHT-v6", name, most(&random.ratios(name, "MIHT")));
    }
    figure.ours("AS65000-V6: the most lookups are with", best_levels(bench, random, bloomfwd));
    let fastest = random.most(bloomfwd);
    figure.ours("Bloomfwd-v6, at most (Phi 7250)", fastest);
    let gbit_s = fastest.map(|mlps| mlps * 84.0 * 8.0 / 1e3);
    figure.ours("Bloomfwd-v6, at most, as packets of 84 bytes", gbit_s);
    figure.ours("MIHT-v6, real addresses (Phi 7120P)", at(trace, "MIHT", Some(5)));
    for processor in ["Phi 7120P", "Phi 7250"] {
        figure.ours(&format!("Bloomfwd-v6, real addresses ({processor})"), trace.most(bloomfwd));
    }
}

/// Figure 8: the same for other tables.
pub(super) fn figure_8(bench: &Bench, figure: &mut Figure) -> Result<(), Fault> {
    if bench.main_set(Family::V6).is_none() {
        return figure.without(Family::V6);
    }
    let isa = isas(figure)[0];
    // Tables as large as the paper's other three if they were generated, else all tables.
    let is_other = |set: &&DataSet| PAPER_V6[1..].iter().any(|(name, _)| set.name.ends_with(name));
    let mut chosen: Vec<_> = bench.sets(Family::V6).filter(is_other).collect();
    if chosen.is_empty() {
        chosen = bench.sets(Family::V6).collect();
    }
    for set in chosen {
        let keys = bench.stream(set, Family::V6, &Traffic::Random)?;
        by_levels(bench, figure, (set, &[keys]), &[], |levels| {
            // Whether the optimum is quicker is measured on figure 7's table, and in a full run on these.
            let optimum = with_optimum(isa, levels).filter(|_| !bench.args.quick);
            let optimum = optimum.map(|one| one.named(format!("{}, optimum levels", set.name)));
            std::iter::once(bloomfwd(isa, levels).named(&set.name)).chain(optimum).collect()
        })?;
        let best = best_levels(bench, &figure.panels[0], &set.name);
        figure.ours_of("the most lookups are with", &set.name, best);
    }
    Ok(())
}
