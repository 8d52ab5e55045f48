//! Figures 5 and 6: lookup rate by IPv4 table: one table with fewer and fewer routes, and different tables.

use super::contest;
use super::subject::{Subject, build};
use super::{isas, sets};
use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::figure::{Figure, Panel};
use crate::tables::RouteSet;
use fib::traffic::Traffic;
use fib::{Family, IpPrefix, Isa, Rib};
use lpm_bench::stats::median;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde_json::json;

/// The part of the table that is kept: 1 over each of these.
const PARTS: [u32; 5] = [1, 2, 4, 8, 16];

/// Figure 5: fewer prefixes.
pub(super) fn figure_5(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let title = "Performance of Bloomfwd as the number of prefixes in the forwarding table decreases";
    let mut figure = Figure::new(title, "prefixes");
    let mut panel = Panel::log("million lookups a second");
    let Some(set) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let isas = isas(&mut figure);
    let best = isas.first().copied().unwrap_or(Isa::Scalar);
    let subjects = Subject::both(bench, &isas);
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    for (x, part) in (0_u32..).zip(bench.some(&PARTS)) {
        bench.tell(format!("removes prefixes, 1/{part} stays"));
        let fewer = (part > 1).then(|| thinned(&set.tables, part, bench.args.table.seed));
        let tables = fewer.as_ref().unwrap_or(&set.tables);
        figure.x_names.push(if part == 1 { "all".into() } else { format!("1/{part}") });
        let mut built = build(bench, &mut figure, tables, Family::V4, &subjects)?;
        let (place, more) = ((&mut figure, &mut panel), json!({"prefixes": tables.v4.len()}));
        contest::show(bench, place, f64::from(x), &mut built, (tables, &keys), &more)?;
    }
    let last = f64::from(u32::try_from(figure.x_names.len()).unwrap_or(1)) - 1.0;
    for name in [Subject::bloomfwd(best).name, Subject::best_bloom(bench).name] {
        let (all, few) = (panel.at(&name, 0.0), panel.at(&name, last));
        figure.ours_of("all prefixes", &name, all);
        figure.ours_of("1/16 of them", &name, few);
        let times = few.zip(all).map(|(few, all)| few / all);
        figure.ours_of("1/16 of them over all", &name, times);
    }
    figure.panels = vec![panel];
    figure.note = "The direct array of 2^20 stays as large as it is; filters and hash tables shrink.".into();
    Ok(figure)
}

/// The table with about one IPv4 route in `part`, drawn at random.
fn thinned(tables: &RouteSet, part: u32, seed: u64) -> RouteSet {
    let mut rng = ChaCha12Rng::seed_from_u64(seed ^ u64::from(part));
    let mut rib = Rib::new();
    for (prefix, id) in &tables.v4 {
        if rng.random_range(0..part) == 0 {
            rib.set(IpPrefix::V4(*prefix), *id);
        }
    }
    RouteSet::of_rib(rib, format!("1/{part} of {}", tables.source))
}

/// Figure 6: different tables, and two processors.
pub(super) fn figure_6(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Performance of Bloomfwd and MIHT for IPv4 prefix datasets", "routing data");
    let mut panel = Panel::log("million lookups a second");
    let isas = isas(&mut figure);
    let best = isas.first().copied().unwrap_or(Isa::Scalar);
    let mut subjects = Subject::both(bench, &isas);
    subjects.extend(Subject::mihts());
    let Some(main) = bench.main_set(Family::V4) else { return Ok(figure.without(Family::V4)) };
    let keys = bench.stream(main, Family::V4, &Traffic::Random)?;
    for (x, set) in (0_u32..).zip(sets(bench, Family::V4)) {
        figure.x_names.push(set.name.clone());
        let mut built = build(bench, &mut figure, &set.tables, Family::V4, &subjects)?;
        let shape = (&set.tables, &keys);
        let more = json!({"data": set.name, "prefixes": set.tables.v4.len()});
        contest::show(bench, (&mut figure, &mut panel), f64::from(x), &mut built, shape, &more)?;
    }
    let names = [Subject::bloomfwd(best).name, Subject::best_bloom(bench).name];
    let ratio = |one: &str, other: &str| {
        let ratios = panel.ratios(one, other);
        (!ratios.is_empty()).then(|| median(&ratios))
    };
    for name in &names {
        figure.ours_of("over MIHT", name, ratio(name, "MIHT"));
        figure.ours_of("at most", name, panel.most(name));
    }
    let second =
        (best != Isa::Scalar).then(|| ratio(&names[0], &Subject::bloomfwd(Isa::Scalar).name)).flatten();
    figure.own("vectors over scalar code", &names[0], "times", second);
    figure.panels = vec![panel];
    figure.note = "The paper's tables of five exchanges are not to be had; in a full run generated ones as large as three of them join \
                   those that are loaded. Of its two processors, vectors and scalar code of one stand in the place here."
        .into();
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_table_is_a_part_of_the_whole() {
        let lines: Vec<_> =
            (0..4000_u32).map(|at| format!("20.{}.{}.0/24 {}", at >> 8, at & 255, 1 + at % 9)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let tables = RouteSet::of_routes(&lines);
        let fewer = thinned(&tables, 16, 1);
        assert!((190..=310).contains(&fewer.v4.len()), "{}", fewer.v4.len());
        assert!(fewer.v4.iter().all(|route| tables.v4.binary_search(route).is_ok()));
        assert_eq!(fewer.v4, thinned(&tables, 16, 1).v4, "the same seed, the same routes");
    }
}
