//! Figures 2 to 6: the lookup rate of the IPv4 algorithms by threads, by keys, and by table.

use super::contest::{ContestSubject, FilledEngine, build, leaders, run_counts, show};
use super::isas;
use super::keys::Space;
use crate::paper::bench::{
    Bench, DataSet, Family, Figure, Result, Rib, RouteSet, Stream, Traffic, json, least, median, most, over,
};
use fib::IpPrefix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::borrow::Borrow;

const RATIOS: [u32; 6] = [0, 20, 40, 60, 80, 100];
/// One route in each of these numbers is kept.
const PARTS: [u32; 5] = [1, 2, 4, 8, 16];

pub(super) fn figure_2(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let isas = isas(figure);
    let mut subjects = ContestSubject::both_and_mihts(bench, &isas);
    subjects.extend([ContestSubject::baseline(), ContestSubject::naive(isas[0])]);
    let mut built = build(bench, figure, &set.tables, Family::V4, &subjects)?;
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let threads = bench.threads();
    let measured = run_counts(bench, figure, &mut built, (&set.tables, &keys), &threads)?;
    for (one, measured) in built.iter().zip(&measured) {
        for rate in measured {
            let (name, x) = (&one.name, rate.threads as f64);
            figure.add(0, name, x, rate.mlps);
            let alone = figure.panels[0].value_at(name, 1.0).unwrap_or(rate.mlps.median);
            figure.add(1, name, x, rate.mlps.map(|mlps| mlps / alone));
            figure.rows.push(one.row(rate));
        }
    }
    let [rates, speedups] = &figure.panels.clone()[..] else { return Ok(()) };
    let most = threads.last().copied().unwrap_or(1) as f64;
    let [bloomfwd, bloom] = leaders(bench, &isas);
    for name in ["MIHT", "Baseline"] {
        figure.record(&format!("{name}, one thread"), rates.value_at(name, 1.0));
    }
    for (name, line) in [("Baseline", "Baseline"), ("MIHT", "MIHT"), ("Bloomfwd", &bloomfwd)] {
        figure.record(&format!("{name}, most threads over one"), speedups.value_at(line, most));
    }
    for name in [bloomfwd, bloom] {
        let ratio = |other: &&str| over(rates.value_at(&name, most), rates.value_at(other, most));
        let ratios: Vec<_> = ["Baseline", "MIHT"].iter().filter_map(ratio).collect();
        figure.record_of("Bloomfwd over Baseline and MIHT, most threads, at least", &name, least(&ratios));
    }
    Ok(())
}

fn by_keys(
    bench: &Bench,
    figure: &mut Figure,
    set: &DataSet,
    subjects: &[ContestSubject],
    streams: impl Iterator<Item = (f64, Result<Stream>)>,
) -> Result<()> {
    let mut built = build(bench, figure, &set.tables, Family::V4, subjects)?;
    for (x, keys) in streams {
        let keys = keys?;
        let more = |_: &FilledEngine| json!({"traffic": keys.traffic()});
        show(bench, figure, (0, x), &mut built, (&set.tables, &keys), more)?;
    }
    Ok(())
}

pub(super) fn figure_3(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let subjects = ContestSubject::both(bench, &isas(figure));
    let space = Space::around(&set.tables.v4);
    let ratios = if bench.args.quick { &[0, 40, 80, 100][..] } else { &RATIOS };
    let streams = ratios.iter().filter_map(|percent| {
        bench.show_progress(format!("draws keys, {percent} % matching"));
        let keys = bench.seeds().map(|seed| space.keys(*percent, bench.args.keys(), seed));
        let keys = keys.into_iter().collect::<Option<Vec<_>>>()?;
        Some((f64::from(*percent), Ok(bench.stream_of(keys))))
    });
    by_keys(bench, figure, set, &subjects, streams)?;
    for line in &figure.panels[0].clone().series {
        let rates: Vec<_> = line.points.iter().map(|point| point.y.median).collect();
        figure.record_unclaimed("most over least", &line.name, "times", over(most(&rates), least(&rates)));
    }
    Ok(())
}

pub(super) fn figure_4(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let isas = isas(figure);
    let mut traffic = vec![Traffic::Random, Traffic::Zipf];
    traffic.extend(bench.args.trace.clone().map(Traffic::Capture));
    figure.name_places(&traffic);
    let streams = traffic.iter().map(|traffic| bench.stream(set, Family::V4, traffic));
    let streams = streams.enumerate().map(|(x, keys)| (x as f64, keys));
    by_keys(bench, figure, set, &ContestSubject::both_and_mihts(bench, &isas), streams)?;
    let (panel, real) = (figure.panels[0].clone(), traffic.len() as f64 - 1.0);
    for name in leaders(bench, &isas) {
        let random = panel.value_at(&name, 0.0);
        figure.record_of("real over random addresses", &name, over(panel.value_at(&name, real), random));
        figure.record_of("over MIHT, random addresses", &name, over(random, panel.value_at("MIHT", 0.0)));
    }
    Ok(())
}

/// The lookup rate of `subjects` over each of `tables`, on random addresses; `main` is their base.
fn by_table<T: Borrow<RouteSet>>(
    bench: &Bench,
    figure: &mut Figure,
    main: &DataSet,
    subjects: &[ContestSubject],
    tables: impl Iterator<Item = (String, T)>,
) -> Result<()> {
    let keys = bench.stream(main, Family::V4, &Traffic::Random)?;
    for (x, (name, tables)) in tables.enumerate() {
        let tables = tables.borrow();
        let mut built = build(bench, figure, tables, Family::V4, subjects)?;
        let more = |_: &FilledEngine| json!({"data": name, "prefixes": tables.v4.len()});
        show(bench, figure, (0, x as f64), &mut built, (tables, &keys), more)?;
        figure.x_names.push(name);
    }
    Ok(())
}

pub(super) fn figure_5(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let isas = isas(figure);
    let tables = bench.some(&PARTS).into_iter().map(|part| {
        let name = if part == 1 { "all".into() } else { format!("1/{part}") };
        (name, thinned(&set.tables, part, bench.args.table.seed))
    });
    by_table(bench, figure, set, &ContestSubject::both(bench, &isas), tables)?;
    let last = figure.x_names.len() as f64 - 1.0;
    for name in leaders(bench, &isas) {
        let [all, few] = [0.0, last].map(|x| figure.panels[0].value_at(&name, x));
        figure.record_of("all prefixes", &name, all);
        figure.record_of("1/16 of them", &name, few);
        figure.record_of("1/16 of them over all", &name, over(few, all));
    }
    Ok(())
}

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

pub(super) fn figure_6(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(main) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let isas = isas(figure);
    let tables = bench.sets(Family::V4).map(|set| (set.name.clone(), &set.tables));
    by_table(bench, figure, main, &ContestSubject::both_and_mihts(bench, &isas), tables)?;
    let panel = figure.panels[0].clone();
    let ratio = |one: &str, other: &str| {
        Some(panel.ratios(one, other)).filter(|ratios| !ratios.is_empty()).map(|ratios| median(&ratios))
    };
    let leaders = leaders(bench, &isas);
    for name in &leaders {
        figure.record_of("over MIHT", name, ratio(name, "MIHT"));
        figure.record_of("at most", name, panel.most(name));
        let gbit_s = panel.most(name).map(|mlps| mlps * 64.0 * 8.0 / 1e3);
        figure.record_of("Bloomfwd, at most, as packets of 64 bytes", name, gbit_s);
    }
    if let [vectors, scalar] = isas.as_slice() {
        let times = ratio(&ContestSubject::bloomfwd(*vectors).name, &ContestSubject::bloomfwd(*scalar).name);
        figure.record_unclaimed("vectors over scalar code", &leaders[0], "times", times);
    }
    Ok(())
}

impl Bench {
    /// The numbers of threads: 1 to [`Self::threads_max`]; above 8, only powers of two and the maximum.
    fn threads(&self) -> Vec<usize> {
        let most = self.threads_max();
        (1..=most).filter(|n| most <= 8 || n.is_power_of_two() || *n == most).collect()
    }

    /// The requested number of threads, else one per CPU.
    pub(super) fn threads_max(&self) -> usize {
        self.args.threads.map_or(self.host.cpus, usize::from).max(1)
    }
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
