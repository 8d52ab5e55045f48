//! Figures 11 and 15: lookup speed and memory by the number of levels. Memory, and MAMT's speed on the CPU, need no device.

use super::device_figures::{BATCH, IN_FLIGHT};
use super::kernels::{Launcher, THREADS};
use super::subjects::{
    FigureEngine, GAMT, GAMT6, MAMT, MAMT_VECTORS, MAMT6, MAMT6_VECTORS, Measured, in_flight, measure, show,
    subjects,
};
use crate::clock::cpu_s;
use crate::paper::bench::{Bench, DataSet, Family, Fault, Figure, HopSource, Result, Start, Traffic, json};
use lpm_gpu::gamt::GamtOptions;
use lpm_gpu::gamt::strides::{Census, StridePlan};
use std::ops::RangeInclusive;

/// Units of a memory transaction: 128 bytes, as in the paper.
const TRANSACTION_UNITS: u64 = 32;
const PAPER_BYTES: &str = "levels x array width, as the paper counts";

/// Bytes per prefix of a trie with `levels` levels: by the paper's formula, and as the sum of the levels' units.
fn memory(census: &Census, levels: u8, routes: usize) -> [f64; 2] {
    let plan = StridePlan::of_levels(census, levels, TRANSACTION_UNITS);
    [u64::from(levels) * plan.width, plan.units].map(|units| 4.0 * units as f64 / routes.max(1) as f64)
}

fn census(set: &DataSet, family: Family) -> Census {
    let (v4, v6) = (&set.tables.v4, &set.tables.v6);
    match family {
        Family::V4 => {
            Census::new(32, v4.iter().map(|(prefix, _)| (u64::from(prefix.address()) << 32, prefix.len())))
        }
        Family::V6 => {
            let high = |prefix: &fib::Prefix6| ((prefix.address() >> 64) as u64, prefix.len().min(64));
            Census::new(64, v6.iter().map(|(prefix, _)| high(prefix)))
        }
    }
}

/// `parameter` sets the number of levels. The first graph is lookup speed, then memory, and the speed of the kernel alone.
fn by_levels(
    bench: &Bench,
    figure: &mut Figure,
    (subject, parameter): (FigureEngine, &'static str),
    levels: RangeInclusive<u8>,
    on_cpu: &[FigureEngine],
) -> Result<()> {
    let family = subject.family;
    let Some(set) = bench.main_set(family) else { return figure.without(family) };
    let start_s = cpu_s();
    let census = census(set, family);
    let counted_s = cpu_s();
    let chosen = StridePlan::choose(&census, levels.clone(), TRANSACTION_UNITS, |plan| Some(plan.units * 4));
    figure.rows.push(json!({
        "data": set.name, "nodes_in_level_ms": 1e3 * (counted_s - start_s),
        "algorithm_3_ms": 1e3 * (cpu_s() - counted_s), "chosen": chosen.strides,
    }));
    let all: Vec<u8> = levels.collect();
    for levels in &all {
        let [paper, flat] = memory(&census, *levels, set.tables.routes(family));
        figure.add(1, PAPER_BYTES, *levels, paper);
        figure.add(1, "levels behind each other", *levels, flat);
        figure.rows.push(json!({
            "data": set.name, "levels": levels, "bytes_a_prefix_paper": paper, "bytes_a_prefix_flat": flat,
        }));
    }
    let keys = bench.stream(set, family, &Traffic::Random)?;
    let speed = |figure: &mut Figure, subject: FigureEngine, line: &str, levels: u8, layout: Option<&str>| {
        let mut parameters = vec![(parameter, levels.to_string())];
        parameters.extend(layout.map(|layout| ("layout", layout.to_owned())));
        let fed = subject.with_parameters(bench, figure, set, parameters)?;
        let driven = measure(bench, &fed, &keys, (BATCH, in_flight(BATCH, IN_FLIGHT)), None)?;
        let mut more = json!({"levels": levels});
        if let Some(layout) = layout {
            more["layout"] = layout.into();
        }
        show(figure, (line, levels.into()), Measured { set, subject, batch: BATCH }, &driven, more);
        Ok::<_, Fault>(())
    };
    for subject in subjects(bench, figure, on_cpu) {
        bench
            .some(&all)
            .into_iter()
            .try_for_each(|levels| speed(figure, subject, subject.name, levels, None))?;
    }
    if bench.device.is_err() {
        return Ok(());
    }
    let mut launcher = Launcher::open(bench.args.device())?;
    let routes = set.start(family, HopSource::Origin, Start::Table);
    for levels in bench.some(&all) {
        let options = GamtOptions { levels: Some(levels), ..GamtOptions::default() };
        let on = launcher.gamt(options, &routes, family)?;
        let timed = launcher.time(&on, true, keys.of_round(0), THREADS)?;
        figure.add(2, "GAMT", levels, timed.glps.map(|glps| 1e3 * glps));
        figure.rows.push(json!({"data": set.name, "levels": levels, "layout": "flat", "kernel": timed}));
        speed(figure, subject, "GAMT", levels, Some("flat"))?;
        if !bench.args.quick {
            speed(figure, subject, "GAMT, paper's layout", levels, Some("paper"))?;
        }
    }
    Ok(())
}

pub(super) fn figure_11(bench: &Bench, figure: &mut Figure) -> Result<()> {
    by_levels(bench, figure, (GAMT, "levels"), 4..=20, &[MAMT, MAMT_VECTORS])?;
    let [speed, memory, alone] = &figure.panels.clone()[..] else { return Ok(()) };
    figure.record("6 levels", memory.value_at(PAPER_BYTES, 6.0));
    figure.record("IPv4, the smallest trie has, about", memory.least_x(PAPER_BYTES));
    figure.record("the fastest trie has", speed.best_x("GAMT"));
    figure.record_of("the fastest trie has", "the kernel alone", alone.best_x("GAMT"));
    figure.record("the fastest trie on the CPU has", speed.best_x(MAMT.name));
    figure.record_of("the fastest trie on the CPU has", "avx512f", speed.best_x(MAMT_VECTORS.name));
    Ok(())
}

pub(super) fn figure_15(bench: &Bench, figure: &mut Figure) -> Result<()> {
    by_levels(bench, figure, (GAMT6, "levels6"), 8..=30, &[MAMT6, MAMT6_VECTORS])?;
    let [speed, memory, _] = &figure.panels.clone()[..] else { return Ok(()) };
    figure.record("IPv6, the smallest trie has, about", memory.least_x(PAPER_BYTES));
    figure.record("the fastest trie has", speed.best_x("GAMT"));
    figure.record("20 levels", speed.value_at("GAMT", 20.0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use super::super::host_tables::load;
    use super::*;
    use crate::paper::testing::bench;
    use fib::{Key, RibTable};
    use lpm_gpu::gamt::GamtTable;

    fn built<K: Key>(levels: u8, routes: &RibTable<K>) -> [f64; 2] {
        let mut table =
            GamtTable::<K>::new(GamtOptions { levels: Some(levels), ..GamtOptions::default() }).unwrap();
        load(&mut table, routes).unwrap();
        [table.paper_bytes_per_prefix(), table.flat_bytes_per_prefix()]
    }

    #[test]
    fn bytes_by_levels_are_those_of_the_tries_and_the_width_never_grows_with_levels() {
        let line = "--quick --generate v4=3000,v6=800 --keys 1K --threads 1 --point-seconds 0.001";
        let bench = bench(line, &PAPER);
        let set = &bench.sets[0];
        for (figure, levels, family) in [
            (PAPER.make("fig11", &bench).unwrap(), 4..=20_u8, Family::V4),
            (PAPER.make("fig15", &bench).unwrap(), 8..=30, Family::V6),
        ] {
            let memory = &figure.panels[1];
            let at = |name: &str, levels: u8| memory.value_at(name, levels).unwrap();
            let rib = set.start(family, HopSource::Origin, Start::Table);
            let mut width_before = f64::INFINITY;
            for levels in levels.clone() {
                let found = [PAPER_BYTES, "levels behind each other"].map(|name| at(name, levels));
                let wanted =
                    if family == Family::V4 { built(levels, &rib.v4) } else { built(levels, &rib.v6) };
                // A generated IPv6 table has no route longer than 64 bits, so both count the same prefixes.
                assert!(
                    (found[0] - wanted[0]).abs() < 1e-6 && (found[1] - wanted[1]).abs() < 1e-6,
                    "{levels}: {found:?} {wanted:?}"
                );
                let width = found[0] / f64::from(levels);
                assert!(width <= width_before + 1e-9, "{levels} levels are wider than one less");
                width_before = width;
            }
            let least =
                levels.min_by(|a, b| at(PAPER_BYTES, *a).total_cmp(&at(PAPER_BYTES, *b))).map(f64::from);
            assert_eq!(
                figure.ours_at(
                    &format!(
                        "{}, the smallest trie has, about",
                        if family == Family::V4 { "IPv4" } else { "IPv6" }
                    ),
                    ""
                ),
                least
            );
        }
    }
}
