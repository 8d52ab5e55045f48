//! Figures 7 and 8: IPv6 by the number of levels that DPCPE expands to.

use super::contest::{self, LookupRate};
use super::subject::{FilledEngine, Subject, build};
use super::{PAPER_V6, isas, sets};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::data::DataSet;
use crate::paper::figure::{Figure, Panel, over, with};
use fib::traffic::Traffic;
use fib::{Family, Isa};
use serde_json::{Value, json};

/// The paper's numbers of levels; `None` is no expansion: a filter and table for each length.
const LEVELS: [Option<u32>; 7] = [None, Some(8), Some(7), Some(6), Some(5), Some(4), Some(3)];
/// The numbers of a quick run, without 3 levels, which are refused or take long to build.
const LEVELS_QUICK: [Option<u32>; 5] = [None, Some(8), Some(6), Some(5), Some(4)];

/// The name of a position on the axis.
fn name(levels: Option<u32>) -> String {
    levels.map_or("no CPE".into(), |levels| format!("CPE{levels}"))
}

/// Bloomfwd-v6 with this number of levels.
fn bloomfwd(isa: Isa, levels: Option<u32>) -> Subject {
    let name = Subject::bloomfwd(isa).name;
    match levels {
        None => Subject::naive(isa).named(name),
        Some(levels) => Subject::bloomfwd(isa).with("levels", &levels),
    }
}

fn places(bench: &Bench<'_>) -> Vec<Option<u32>> {
    if bench.args.quick { LEVELS_QUICK.to_vec() } else { LEVELS.to_vec() }
}

/// The position of `levels` on the axis.
fn place(bench: &Bench<'_>, levels: Option<u32>) -> Option<f64> {
    let at = places(bench).iter().position(|one| *one == levels)?;
    u32::try_from(at).ok().map(f64::from)
}

fn add(
    figure: &mut Figure,
    panel: &mut Panel,
    x: f64,
    (one, rate): (&FilledEngine, &LookupRate),
    more: Value,
) {
    panel.add(&one.subject.name, x, rate.mlps);
    let own = ["v6_levels", "v6_entries"].map(|name| one.details.get(name));
    let row = with(one.row(rate.fields()), more);
    figure.rows.push(with(row, json!({"v6_levels": own[0], "v6_entries": own[1]})));
}

/// Figure 7: AS65000-V6, with and without DPCPE.
pub(super) fn figure_7(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Performance of Bloomfwd-v6 and MIHT-v6", "levels of expansion");
    let Some(set) = bench.main_set(Family::V6) else { return Ok(figure.without(Family::V6)) };
    let isas = isas(&mut figure);
    let streams = [Traffic::Random, bench.trace()]
        .iter()
        .map(|traffic| bench.stream(set, Family::V6, traffic))
        .collect::<Result<Vec<_>, _>>()?;
    let mut panels: Vec<_> = streams
        .iter()
        .map(|keys| Panel::log(&format!("million lookups a second, {}", keys.traffic())))
        .collect();
    let mut always = Subject::blooms(bench, &isas);
    always.extend(Subject::mihts());
    let mut built = build(bench, &mut figure, &set.tables, Family::V6, &always)?;
    let kept = built.len();
    for (x, levels) in (0_u32..).zip(places(bench)) {
        figure.x_names.push(name(levels));
        let subjects: Vec<_> = isas.iter().map(|isa| bloomfwd(*isa, levels)).collect();
        built.extend(build(bench, &mut figure, &set.tables, Family::V6, &subjects)?);
        for (panel, keys) in panels.iter_mut().zip(&streams) {
            let rates =
                contest::run(bench, &mut figure, &mut built, (&set.tables, keys), bench.threads_max())?;
            for measured in built.iter().zip(&rates) {
                let more = json!({"data": set.name, "traffic": keys.traffic(), "cpe": name(levels)});
                add(&mut figure, panel, f64::from(x), measured, more);
            }
        }
        built.truncate(kept);
    }
    ours_7(bench, &mut figure, &panels, isas.first().copied().unwrap_or(Isa::Scalar));
    figure.panels = panels;
    figure.note = format!(
        "{}: {} routes, where the paper's table has 31,645. Random addresses lie in 2000::/3. bloom has levels of its own; MIHT has \
         none. What is not drawn was refused (rows).",
        set.name,
        set.tables.v6.len()
    );
    Ok(figure)
}

/// Hands in the numbers of section 6.6.
fn ours_7(bench: &Bench<'_>, figure: &mut Figure, panels: &[Panel], isa: Isa) {
    let bloomfwd = Subject::bloomfwd(isa).name;
    let (Some(random), Some(trace)) = (panels.first(), panels.last()) else { return };
    let at = |name: &str, levels: Option<u32>| random.at(name, place(bench, levels)?);
    let (five, none, most) = (at(&bloomfwd, Some(5)), at(&bloomfwd, None), random.most(&bloomfwd));
    figure.ours("Bloomfwd-v6, 5 levels over no CPE", over(five, none));
    figure.ours("Bloomfwd-v6, most over no CPE", over(most, none));
    for name in [bloomfwd.as_str(), &Subject::best_bloom(bench).name] {
        let times = over(at(name, Some(5)), at("MIHT", Some(5)));
        figure.ours_of("over MIHT-v6, 5 levels", name, times);
    }
    figure.ours("Bloomfwd-v6, at most (Phi 7250)", most);
    let miht = place(bench, Some(5)).and_then(|x| trace.at("MIHT", x));
    figure.ours("MIHT-v6, real addresses (Phi 7120P)", miht);
    for processor in ["Phi 7120P", "Phi 7250"] {
        figure.ours(&format!("Bloomfwd-v6, real addresses ({processor})"), trace.most(&bloomfwd));
    }
}

/// Figure 8: the same for other tables.
pub(super) fn figure_8(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Performance of Bloomfwd-v6 for real IPv6 datasets";
    let mut figure = Figure::new(title, "levels of expansion");
    let mut panel = Panel::new("million lookups a second");
    let best = isas(&mut figure).first().copied().unwrap_or(Isa::Scalar);
    // Tables as large as the paper's other three if they were generated, else all tables.
    let is_other = |set: &&DataSet| PAPER_V6[1..].iter().any(|(name, _)| set.name.ends_with(name));
    let mut chosen: Vec<_> = sets(bench, Family::V6).filter(is_other).collect();
    if chosen.is_empty() {
        chosen = sets(bench, Family::V6).collect();
    }
    if chosen.is_empty() {
        return Ok(figure.without(Family::V6));
    }
    figure.x_names = places(bench).into_iter().map(name).collect();
    for set in chosen {
        let keys = bench.stream(set, Family::V6, &Traffic::Random)?;
        let subjects: Vec<_> = places(bench)
            .into_iter()
            .map(|levels| bloomfwd(best, levels).named(format!("{}, {}", set.name, name(levels))))
            .collect();
        let mut built = build(bench, &mut figure, &set.tables, Family::V6, &subjects)?;
        let shape = (&set.tables, &keys);
        let rates = contest::run(bench, &mut figure, &mut built, shape, bench.threads_max())?;
        let mut line = Panel::default();
        for measured in built.iter().zip(&rates) {
            // A refused subject leaves its position empty.
            let Some(at) = subjects.iter().position(|one| one.name == measured.0.subject.name) else {
                continue;
            };
            let x = u32::try_from(at).map_or(0.0, f64::from);
            let cpe = name(places(bench).get(at).copied().flatten());
            let more = json!({"data": set.name, "traffic": keys.traffic(), "cpe": cpe});
            add(&mut figure, &mut line, x, measured, more);
            panel.add(&set.name, x, measured.1.mlps);
        }
        let best = panel.best_x(&set.name).and_then(|x| levels_at(bench, x));
        figure.ours_of("the most lookups are with", &set.name, best);
    }
    figure.panels = vec![panel];
    figure.note = "What the paper finds is that the pattern does not depend on the table. Its tables are not to be had: those named \
                   after them are generated, as large as they were."
        .into();
    Ok(figure)
}

/// The levels at a position of the axis.
fn levels_at(bench: &Bench<'_>, x: f64) -> Option<f64> {
    places(bench).into_iter().find(|levels| place(bench, *levels) == Some(x)).flatten().map(f64::from)
}
