//! Figures that need a device, except for the lines of CPU engines.

use super::subjects::{
    FORMS, FigureEngine, GALE, GALE_PAPER, GAMT, GAMT_PAPER, GAMT6, MAMT, MAMT_VECTORS, Measured,
    ReaderGroup, SAIL, SAIL_CPU, SAIL_PAPER, in_flight, measure, show, subjects,
};
use crate::paper::bench::{
    Bench, Family, Figure, Panel, Result, Spread, Start, Traffic, json, least, median, most, over,
};
use crate::paper::drive::{Driven, drive_with_updates};
use crate::paper::figure::Point;
use crate::updates::Player;

/// The batch of the paper's lookup figures: "a big batch size (16M)".
pub(super) const BATCH: usize = 16 << 20;
pub(super) const IN_FLIGHT: u16 = 4;
/// Updates of a concurrent delta: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;

const ALL: [FigureEngine; 10] =
    [GAMT, GAMT_PAPER, GALE, GALE_PAPER, SAIL, SAIL_PAPER, SAIL_CPU, MAMT, MAMT_VECTORS, GAMT6];

pub(super) fn figure_9(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let sizes = (0..=25).map(|log2| 1 << log2).filter(|size| *size <= bench.args.keys());
    let sizes = bench.some(&sizes.collect::<Vec<usize>>());
    for subject in subjects(bench, figure, &ALL) {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let Some(fed) = subject.filled(bench, figure, set)? else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        for size in sizes.iter().copied() {
            let slots = in_flight(size, 8);
            let driven = measure(bench, &fed, &keys, (size, slots), None)?;
            let more = json!({"slots": slots});
            show(figure, (subject.name, size as f64), Measured { set, subject, batch: size }, &driven, more);
        }
    }
    let panel = figure.panels[0].clone();
    for subject in [GAMT, GALE, MAMT, GAMT6] {
        figure.record(&format!("{}, at most", subject.name), panel.most(subject.name));
    }
    figure.record_of("MAMT, at most", "avx512f", panel.most(MAMT_VECTORS.name));
    figure.record("GAMT, IPv4, exceeded", panel.most(GAMT.name));
    figure.record("GAMT, IPv6, exceeded", panel.most(GAMT6.name));
    let largest = |one: FigureEngine, other: FigureEngine| panel.ratios(one.name, other.name).last().copied();
    for (of, gamt, gale) in FORMS {
        figure.record_of("GAMT over GALE, random traffic, large batches", of, largest(gamt, gale));
    }
    figure.record("GAMT over MAMT, random traffic, large batches", largest(GAMT, MAMT));
    let points = panel.points(GAMT.name);
    let is_slower =
        |point: &Point| panel.value_at(MAMT.name, point.x).is_some_and(|mamt| mamt > point.y.median);
    let crossing = points.iter().rposition(is_slower).and_then(|last| points.get(last + 1));
    figure.record("batch size below which MAMT is the fastest, IPv4", crossing.map(|point| point.x));
    let gale = rises_slowly(panel.points(GALE.name));
    figure.record("batch size from which GALE's speed rises slowly", gale);
    Ok(())
}

/// The batch size beyond which doubling it gains less than the root of two in speed.
fn rises_slowly(points: &[Point]) -> Option<f64> {
    let rises = |pair: &[Point]| (pair[1].y.median / pair[0].y.median).powi(2) >= pair[1].x / pair[0].x;
    let last = points.windows(2).rposition(rises).map_or(0, |last| last + 1);
    points.get(last).map(|point| point.x)
}

pub(super) fn figure_10(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let name = |subject: FigureEngine, traffic: &Traffic| format!("{}, {traffic}", subject.name);
    figure.name_places(bench.sets.iter().map(|set| &set.name));
    for (at, set) in (0_u32..).zip(&bench.sets) {
        let here = subjects(bench, figure, &ALL);
        for subject in here.into_iter().filter(|subject| set.tables.routes(subject.family) > 0) {
            let Some(fed) = subject.filled(bench, figure, set)? else { continue };
            for traffic in bench.traffics() {
                let keys = bench.stream(set, subject.family, &traffic)?;
                let driven = measure(bench, &fed, &keys, (BATCH, in_flight(BATCH, IN_FLIGHT)), None)?;
                let more = json!({"traffic": traffic.to_string()});
                show(
                    figure,
                    (&name(subject, &traffic), at.into()),
                    Measured { set, subject, batch: BATCH },
                    &driven,
                    more,
                );
            }
        }
    }
    let panel = figure.panels[0].clone();
    let both = [Traffic::Random, Traffic::Table];
    for (of, gamt, gale) in FORMS {
        let over = both.each_ref().map(|traffic| panel.ratios(&name(gamt, traffic), &name(gale, traffic)));
        for (traffic, ratios) in both.iter().zip(&over) {
            figure.record_of(&format!("GAMT over GALE, {traffic} traffic, at most"), of, most(ratios));
        }
        figure.record_of("GAMT over GALE, each table and traffic, always better", of, least(&over.concat()));
        for (words, subject) in [
            ("GAMT, lost from table to random traffic", gamt),
            ("GALE, lost from table to random traffic (almost)", gale),
        ] {
            let kept = panel.ratios(&name(subject, &both[0]), &name(subject, &both[1]));
            figure.record_of(words, of, (!kept.is_empty()).then(|| 100.0 * (1.0 - median(&kept))));
        }
    }
    Ok(())
}

/// The percentage of `speeds` in the paper's interval of 100 Mlps from `from` on, scaled so that the fastest configuration has the paper's 522.
fn share(speeds: &[f64], fastest: Option<f64>, from: f64) -> Option<f64> {
    let scale = 522.0 / fastest?;
    let inside = speeds.iter().filter(|speed| (from..from + 100.0).contains(&(*speed * scale))).count();
    Some(100.0 * inside as f64 / speeds.len().max(1) as f64)
}

pub(super) fn figure_12(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let (mut by_streams, mut light) = ([Vec::new(), Vec::new()], Vec::new());
    for (streams, speeds) in (1_u16..).zip(&mut by_streams) {
        for blocks in bench.some(&[16, 32, 48, 64]) {
            for threads in bench.some(&[128, 256, 512, 1024]) {
                let shape = [("streams", streams.into()), ("blocks", blocks), ("threads", threads)];
                let mut parameters = GAMT.parameters();
                parameters.extend(shape.map(|(name, value): (_, u32)| (name, value.to_string())));
                let fed = GAMT.with_parameters(bench, figure, set, parameters)?;
                // As many slots as streams, since a queued batch would overlap with its predecessor.
                let driven = measure(bench, &fed, &keys, (BATCH, streams), Some(1))?;
                speeds.push(driven.mlps.median);
                if blocks < 32 && threads < 256 {
                    light.push(driven.mlps.median);
                }
                let line = format!("{streams} streams, {blocks} blocks");
                let more = json!({"streams": streams, "blocks": blocks, "threads": threads});
                show(
                    figure,
                    (&line, threads.into()),
                    Measured { set, subject: GAMT, batch: BATCH },
                    &driven,
                    more,
                );
            }
        }
    }
    let [one, two] = by_streams.each_ref().map(|speeds| most(speeds));
    figure.record("two streams, at most", two);
    figure.record("two streams over one, at most", over(two, one));
    let named = [("one stream", &by_streams[0]), ("two streams", &by_streams[1])];
    for ((streams, speeds), from) in [(named[0], 300), (named[1], 400), (named[1], 500)] {
        let words = format!("{streams}, share of configurations at {from} to {} Mlps", from + 100);
        figure.record_of(&words, "with the fastest at 522", share(speeds, two, from.into()));
    }
    for (streams, speeds) in named {
        figure.record_of(&format!("{streams}, where most configurations lie"), "median", median(speeds));
    }
    let light = over(most(&light), two).map(|share| 100.0 * share);
    figure.record(
        "under 32 blocks of under 256 threads, of the fastest configuration's speed, less than",
        light,
    );
    Ok(())
}

/// Lookups during updates, for figures 16 and 17: a line for each subject, a point for each rate.
fn under_updates(bench: &Bench, figure: &mut Figure, subjects: &[FigureEngine], rates: &[f64]) -> Result<()> {
    for subject in subjects {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let Some(mut fed) = subject.filled(bench, figure, set)? else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        let part = subject.part_of(set);
        let subject_set = part.as_ref().unwrap_or(set);
        let deltas = subject_set.deltas(subject.family, Some(UPDATES_A_DELTA), subject.hops(), Start::Table);
        let mut player = Player::new(&deltas);
        let batch = BATCH.min(bench.args.keys());
        let mut group = ReaderGroup::new(bench, &fed, (batch, in_flight(batch, IN_FLIGHT)), None)?;
        'rates: for rate in rates {
            let (mut lookups, mut updates_per_s) = (Vec::new(), Vec::new());
            for round in 0..bench.args.rounds() {
                let load = group.load(bench, keys.of_round(round));
                let driven = drive_with_updates(&mut fed, &mut group.readers, load, (&mut player, *rate));
                let Some((driven, applied_per_s)) = subject.unless_refused(figure, set, driven)? else {
                    break 'rates;
                };
                lookups.push(driven);
                updates_per_s.push(applied_per_s);
            }
            let more = json!({"rate": rate, "updates_per_s": Spread::of_rounds(&updates_per_s)});
            let lookups = Driven::spread_of(&lookups);
            show(figure, (subject.name, *rate), Measured { set, subject: *subject, batch }, &lookups, more);
        }
    }
    Ok(())
}

/// The lookup speed lost at `rate`, in percent of the speed without updates.
fn lost(panel: &Panel, subject: FigureEngine, rate: f64) -> Option<f64> {
    Some(100.0 * (1.0 - panel.value_at(subject.name, rate)? / panel.value_at(subject.name, 0.0)?))
}

pub(super) fn figure_16(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let lines = [GAMT, GAMT_PAPER, GALE, GALE_PAPER, SAIL, SAIL_PAPER, GAMT6];
    let all = [0.0, 1e4, 2e4, 3e4, 4e4, 5e4, 6e4, 7e4, 1e5];
    let rates = if bench.args.quick { &[0.0, 1e4, 7e4, 1e5][..] } else { &all };
    under_updates(bench, figure, &lines, rates)?;
    let panel = figure.panels[0].clone();
    for (of, gamt, gale) in FORMS {
        figure.record_of("GAMT, IPv4, lost at 70,000 a second", of, lost(&panel, gamt, 7e4));
        figure.record_of("GALE, lost at 70,000 a second, more than", of, lost(&panel, gale, 7e4));
    }
    figure.record("GAMT, IPv6, lost at 70,000 a second", lost(&panel, GAMT6, 7e4));
    figure.record("GAMT, IPv4, at 70,000 a second", panel.value_at(GAMT.name, 7e4));
    for subject in [GAMT, GAMT6] {
        let words = format!("{}, at 70,000 a second, batch of 16 Mi", subject.name);
        figure.record(&words, panel.value_at(subject.name, 7e4));
    }
    Ok(())
}

/// Figure 17: lookup speed on other devices. A run has one device, measured without and with updates.
pub(super) fn figure_17(bench: &Bench, figure: &mut Figure) -> Result<()> {
    under_updates(bench, figure, &[GAMT, GAMT_PAPER, GALE, GALE_PAPER], &[0.0, 7e4])
}

pub(super) fn figure_18(bench: &Bench, figure: &mut Figure) -> Result<()> {
    const REQUESTS: usize = 256 << 10;
    let all = [1_u16, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];
    let papers = [GAMT_PAPER, GALE_PAPER].into_iter().filter(|_| !bench.args.quick);
    for subject in [GAMT, GALE, GAMT6].into_iter().chain(papers) {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        for streams in bench.some(&all) {
            let mut parameters = subject.parameters();
            // The paper's blocks and threads; the stream's number divides the requests.
            let shape = [("streams", streams), ("blocks", 64), ("threads", 1024)];
            parameters.extend(shape.map(|(name, value)| (name, value.to_string())));
            let fed = subject.with_parameters(bench, figure, set, parameters)?;
            let batch = (REQUESTS / usize::from(streams)).min(bench.args.keys());
            let driven = measure(bench, &fed, &keys, (batch, streams), Some(1))?;
            let (of, more) = (Measured { set, subject, batch }, json!({"streams": streams}));
            show(figure, (subject.name, streams.into()), of, &driven, more);
            figure.add(1, subject.name, streams, driven.mean_us);
        }
    }
    let [speed, latency] = &figure.panels.clone()[..] else { return Ok(()) };
    for (name, streams, below) in
        [(GAMT.name, 12.0, ", below"), (GALE.name, 18.0, ""), (GAMT6.name, 16.0, "")]
    {
        let quick = latency.points(name).iter().filter(|point| point.y.median < 100.0);
        let fast = quick.filter_map(|point| Some((point.x, speed.value_at(name, point.x)?)));
        let best = fast.max_by(|a, b| a.1.total_cmp(&b.1));
        figure.record(&format!("{name}, below 100 microseconds"), best.map(|(_, mlps)| mlps));
        let words = format!("{name}, streams that keep the latency below 100 microseconds");
        figure.record(&words, best.map(|(streams, _)| streams));
        let words = format!("{name}, mean latency with {streams} streams{below}");
        figure.record(&words, latency.value_at(name, streams));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_rises_slowly_once_it_gains_less_than_the_root_of_the_keys() {
        let points = |speeds: &[f64]| {
            let point = |(at, mlps): (u32, &f64)| Point { x: f64::from(1 << at), y: (*mlps).into() };
            (0..).zip(speeds).map(point).collect::<Vec<_>>()
        };
        assert_eq!(rises_slowly(&points(&[1.0, 2.0, 4.0, 5.0, 5.5, 5.4])), Some(4.0));
        assert_eq!(rises_slowly(&points(&[5.0, 5.0])), Some(1.0));
        assert_eq!(rises_slowly(&points(&[1.0, 1.1, 2.2])), Some(4.0), "a late jump counts");
        assert_eq!(rises_slowly(&[]), None);
    }

    #[test]
    fn shares_are_on_the_paper_s_scale() {
        // Twice as fast as the paper's: 800 are its 400.
        let speeds = [600.0, 799.0, 800.0, 1044.0];
        let shares = [300.0, 400.0, 500.0].map(|from| share(&speeds, Some(1044.0), from));
        assert_eq!(shares, [Some(50.0), Some(25.0), Some(25.0)]);
        assert_eq!(share(&speeds, None, 300.0), None);
    }
}
