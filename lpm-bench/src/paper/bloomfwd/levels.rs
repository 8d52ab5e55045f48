//! Figures 7 and 8: IPv6 by the number of levels that DPCPE expands to.

use super::contest;
use super::subject::{Subject, build, leaders};
use super::{MLPS, PAPER_V6, figure_of, isas, sets};
use crate::fault::Fault;
use crate::paper::data::DataSet;
use crate::paper::figure::{Figure, Panel, most, over, with};
use crate::paper::{Bench, Stream};
use fib::traffic::Traffic;
use fib::{Family, Isa};
use serde_json::json;

/// The paper's numbers of levels; `None` is no expansion: a filter and table for each length.
const LEVELS: [Option<u32>; 7] = [None, Some(8), Some(7), Some(6), Some(5), Some(4), Some(3)];
/// The numbers of a quick run, without 3 levels, which are refused or take long to build.
const LEVELS_QUICK: [Option<u32>; 5] = [None, Some(8), Some(6), Some(5), Some(4)];

/// The numbers of levels, by their positions on the axis.
fn places(bench: &Bench<'_>) -> &'static [Option<u32>] {
    if bench.args.quick { &LEVELS_QUICK } else { &LEVELS }
}

/// The position of `levels` on the axis.
fn place(bench: &Bench<'_>, levels: Option<u32>) -> Option<f64> {
    Some(places(bench).iter().position(|one| *one == levels)? as f64)
}

/// The number of levels with the highest rate of a line.
fn best_levels(bench: &Bench<'_>, panel: &Panel, name: &str) -> Option<f64> {
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
    bench: &Bench<'_>,
    (figure, panels): (&mut Figure, &mut [Panel]),
    (set, streams): (&DataSet, &[Stream]),
    always: &[Subject],
    of: impl Fn(Option<u32>) -> Vec<Subject>,
) -> Result<(), Fault> {
    let mut built = build(bench, figure, &set.tables, Family::V6, always)?;
    let kept = built.len();
    for (x, levels) in places(bench).iter().enumerate() {
        built.extend(build(bench, figure, &set.tables, Family::V6, &of(*levels))?);
        for (panel, keys) in panels.iter_mut().zip(streams) {
            let data = (&set.tables, keys);
            let rates = contest::run(bench, figure, &mut built, data, bench.threads_max())?;
            for (one, rate) in built.iter().zip(&rates) {
                panel.add(&one.subject.name, x as f64, rate.mlps);
                let detail = |name| one.details.get(name);
                let more = json!({
                    "data": set.name, "traffic": keys.traffic(), "cpe": levels,
                    "v6_levels": detail("v6_levels"), "v6_entries": detail("v6_entries"),
                });
                figure.rows.push(with(one.row(rate.fields()), more));
            }
        }
        built.truncate(kept);
    }
    Ok(())
}

/// The names of the positions on the axis.
fn names(bench: &Bench<'_>) -> Vec<String> {
    let name = |levels: &Option<u32>| levels.map_or("no CPE".into(), |levels| format!("CPE{levels}"));
    places(bench).iter().map(name).collect()
}

/// Figure 7: AS65000-V6, with and without DPCPE.
pub(super) fn figure_7(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Performance of Bloomfwd-v6 and MIHT-v6";
    figure_of(bench, Family::V6, title, "levels of expansion", |figure, set| {
        figure.x_names = names(bench);
        let isas = isas(figure);
        let streams = [Traffic::Random, bench.trace()].map(|traffic| bench.stream(set, Family::V6, &traffic));
        let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
        let graph = |keys: &Stream| Panel::log(&format!("{MLPS}, {}", keys.traffic()));
        let mut panels: Vec<_> = streams.iter().map(graph).collect();
        let mut always = Subject::blooms(bench, &isas);
        always.extend(Subject::mihts());
        by_levels(bench, (figure, &mut panels), (set, &streams), &always, |levels| {
            let named = |isa: &Isa| bloomfwd(*isa, levels).named(Subject::bloomfwd(*isa).name);
            let optimum = with_optimum(isas[0], levels);
            let optimum = optimum.map(|one| one.named(format!("Bloomfwd, {}, optimum levels", isas[0])));
            isas.iter().map(named).chain(optimum).collect()
        })?;
        ours_7(bench, figure, &panels, &leaders(bench, &isas));
        figure.note = format!(
            "{}: {} routes, where the paper's table has 31,645. Random addresses lie in 2000::/3. Bloomfwd has the paper's greedy levels, \
             one line the optimum; bloom has levels of its own; MIHT has none. What is not drawn was refused (rows).",
            set.name,
            set.tables.v6.len()
        );
        Ok(panels)
    })
}

/// Hands in the numbers of section 6.6.
fn ours_7(bench: &Bench<'_>, figure: &mut Figure, panels: &[Panel], leaders: &[String; 2]) {
    let (Some(random), Some(trace)) = (panels.first(), panels.last()) else { return };
    let [bloomfwd, _] = leaders;
    let at = |panel: &Panel, name: &str, levels| panel.at(name, place(bench, levels)?);
    let (five, none) = [Some(5), None].map(|levels| at(random, bloomfwd, levels)).into();
    figure.ours("Bloomfwd-v6, 5 levels over no CPE", over(five, none));
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
pub(super) fn figure_8(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Performance of Bloomfwd-v6 for real IPv6 datasets";
    figure_of(bench, Family::V6, title, "levels of expansion", |figure, _| {
        figure.x_names = names(bench);
        let isa = isas(figure)[0];
        let mut panel = Panel::new(MLPS);
        // Tables as large as the paper's other three if they were generated, else all tables.
        let is_other = |set: &&DataSet| PAPER_V6[1..].iter().any(|(name, _)| set.name.ends_with(name));
        let mut chosen: Vec<_> = sets(bench, Family::V6).filter(is_other).collect();
        if chosen.is_empty() {
            chosen = sets(bench, Family::V6).collect();
        }
        for set in chosen {
            let keys = bench.stream(set, Family::V6, &Traffic::Random)?;
            let panels = std::slice::from_mut(&mut panel);
            by_levels(bench, (figure, panels), (set, &[keys]), &[], |levels| {
                // Whether the optimum is quicker is measured on figure 7's table, and in a full run on these.
                let optimum = with_optimum(isa, levels).filter(|_| !bench.args.quick);
                let optimum = optimum.map(|one| one.named(format!("{}, optimum levels", set.name)));
                std::iter::once(bloomfwd(isa, levels).named(&set.name)).chain(optimum).collect()
            })?;
            figure.ours_of("the most lookups are with", &set.name, best_levels(bench, &panel, &set.name));
        }
        figure.note = "What the paper finds is that the pattern does not depend on the table. Its tables are not to be had: those named \
                       after them are generated, as large as they were."
            .into();
        Ok(vec![panel])
    })
}
