//! `lpm-bench paper poster`: GR, which the GAMT paper calls GALE, with its first stage alone: an entry for each /24, and no longer prefixes.

use super::bench::{
    Bench, DataSet, DeviceNeed, Family, Fault, Fed, Figure, Known, NextHopId, Paper, PaperArgs, Result, Rib,
    RouteSet, Spread, json, least,
};
use super::data;
use super::gamt::load;
use fib::{IpPrefix, Prefix4, Routes};
use lpm_gpu::direct::Unit;
use lpm_gpu::direct::unit::{DELETE, INSERT, operation};
use lpm_gpu::gale::model::{Accesses, GaleModel};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::host::HostTable as _;
use lpm_gpu::mamt;
use lpm_gpu::model::{LoadedTable, transactions};
use std::time::Instant;

pub(super) const PAPER: Paper = Paper {
    title: "GR, which the GAMT paper calls GALE (a poster)",
    claims: include_str!("../claims/poster.txt"),
    figures: include_str!("figures.toml"),
    generated: &[("generated-2013", "v4=450752")],
    has_updates: false,
    further_sets,
    known: &[
        Known { id: "layout", device: DeviceNeed::Unused, make: layout },
        Known { id: "drawings", device: DeviceNeed::Unused, make: drawings },
        Known { id: "table1", device: DeviceNeed::Used, make: table_1 },
    ],
};

/// The replacement of FUNET's table. The poster does not give its size; others write about 41,000 routes.
const FUNET: &str = "as large as FUNET";
const TRACE: usize = 99_840;
/// Runs that are averaged, and the routes that a run withdraws, announces again and changes.
const RUNS: (usize, usize) = (100, 50);
/// Lanes of a warp, and bytes of a memory transaction: of today's GPUs, and of the poster's time.
const LANES: usize = 32;
const BYTES: [usize; 2] = [32, 128];
/// Entries of a side of the texture, and bits of a coordinate.
const SIDE: (u32, u32) = (4096, 12);

fn further_sets(args: &PaperArgs) -> Result<Vec<DataSet>> {
    let is_told = !args.table.fib.is_empty() || args.table.generate.is_some();
    let funet = (!is_told).then(|| data::generated(args, FUNET, "v4=41000", args.table.seed + 1));
    funet.into_iter().collect()
}

/// The routes of at most 24 bits, of a table of FUNET's size, and of a route collector's (RIS).
fn tables(bench: &Bench) -> Vec<(&'static str, RouteSet)> {
    let funet = bench.sets.iter().find(|set| set.name == FUNET).map(|set| ("FUNET", set));
    let ris = bench.main_set(Family::V4).map(|set| ("RIS", set));
    let cut = |(name, set): (_, &DataSet)| {
        let mut rib = Rib::plain();
        for (prefix, id) in set.tables.v4.iter().filter(|(prefix, _)| prefix.len() <= 24) {
            rib.v4.set(*prefix, *id);
        }
        (name, RouteSet::of_rib(rib, format!("{}, to /24", set.tables.source)))
    };
    funet.into_iter().chain(ris).map(cut).collect()
}

fn gr(tables: &RouteSet) -> Result<GaleTable> {
    let refused = Fault::refused_by("gale");
    let mut table = GaleTable::new(GaleOptions::default()).map_err(&refused)?;
    load(&mut table, &tables.rib.v4).map_err(&refused)?;
    Ok(table)
}

fn table_1(bench: &Bench, figure: &mut Figure) -> Result<()> {
    const OPERATIONS: [&str; 4] = ["lookups", "insertions", "modifications", "deletions"];
    figure.name_places(OPERATIONS);
    let mut of_gr = Vec::new();
    let mut systems = vec![("trie", mamt::NAME, vec![])];
    match &bench.device {
        Ok(_) => systems.push(("GR", "gale", vec![("stages", "1".to_owned())])),
        Err(reason) => figure.skipped = Some(format!("GR's lines need a GPU: {reason}")),
    }
    for (name, tables) in tables(bench) {
        let stream = bench.draw(&tables, Family::V4, &bench.trace(), TRACE.min(bench.args.keys()))?;
        for (system, engine, parameters) in &systems {
            let mut fed =
                Fed::filled(bench.engine(engine, None, parameters)?, &tables.routes_of(Family::V4))?;
            let mut looker = fed.looker(stream.len())?;
            figure.check(&bench.sample(stream.of_round(0), &tables), &mut *looker)?;
            let mut rates = [const { Vec::new() }; 4];
            for run in 0..RUNS.0 {
                let start = Instant::now();
                looker.sweep(stream.of_round(run), 0..stream.len(), stream.len())?;
                rates[0].push(stream.len() as f64 / start.elapsed().as_secs_f64());
                let route = |at| tables.v4[(run * RUNS.1 + at) * 7919 % tables.v4.len()];
                let routes: Vec<_> = (0..RUNS.1).map(route).collect();
                let mut update = |to: fn(NextHopId) -> NextHopId| rate(&mut fed, &routes, to);
                rates[3].push(update(|_| NextHopId::NONE)?);
                rates[1].push(update(|id| id)?);
                rates[2].push(update(|id| NextHopId::from_answer(id.get() % 255 + 1))?);
                update(|id| id)?;
            }
            let line = format!("{system}({name})");
            for (x, (operation, rates)) in (0_u32..).zip(OPERATIONS.iter().zip(&rates)) {
                figure.add(0, &line, x, Spread::of_rounds(rates));
                let mean = rates.iter().sum::<f64>() / RUNS.0 as f64;
                let (mean, unit) = if x == 0 { (mean / 1e3, "a millisecond") } else { (mean, "a second") };
                let what = format!("{line}, {operation}");
                if *system == "GR" {
                    figure.record(&what, mean);
                    of_gr.extend((x == 0).then_some(mean));
                } else {
                    figure.record_unclaimed(&what, engine, unit, mean);
                }
                figure
                    .rows
                    .push(json!({ "system": line, "operation": operation, "mean": mean, "unit": unit }));
            }
        }
    }
    figure.record("GR, lookups, either table, over", least(&of_gr));
    Ok(())
}

/// Updates a second when each of `routes` changes its next hop by `to`, one route a delta.
fn rate(fed: &mut Fed, routes: &[(Prefix4, NextHopId)], to: fn(NextHopId) -> NextHopId) -> Result<f64> {
    let mut deltas = vec![Routes::new(); routes.len()];
    for (delta, (prefix, id)) in deltas.iter_mut().zip(routes) {
        delta.push(IpPrefix::V4(*prefix), to(*id));
    }
    let start = Instant::now();
    deltas.iter().try_for_each(|delta| fed.apply(delta).map(|_| ()))?;
    Ok(deltas.len() as f64 / start.elapsed().as_secs_f64())
}

/// Maps an entry's number to its place in the texture, `[x, y]`.
type Order = fn(u32) -> [u32; 2];
const ORDERS: [(&str, Order); 2] = [("square hash", square_hash), ("linear", linear)];

/// The poster's square hash (section 2): x has every second bit of a number of 24 bits from the first on, y the others.
fn square_hash(number: u32) -> [u32; 2] {
    [1, 0].map(|from| (0..SIDE.1).map(|bit| (number >> (2 * bit + from) & 1) << bit).sum())
}

const fn linear(number: u32) -> [u32; 2] {
    [number % SIDE.0, number / SIDE.0]
}

fn word([x, y]: [u32; 2]) -> usize {
    (y * SIDE.0 + x) as usize
}

fn entries(prefix: Prefix4, order: Order) -> impl Iterator<Item = [u32; 2]> {
    (prefix.address() >> 8..=prefix.last_address() >> 8).map(order)
}

fn layout(bench: &Bench, figure: &mut Figure) -> Result<()> {
    figure.name_places(bench.traffics());
    let mut steps_most = 0;
    for (name, tables) in tables(bench) {
        let table = LoadedTable::new(&gr(&tables)?, &tables.rib.v4);
        for (x, stream) in (0_u32..).zip(bench.streams(&tables, bench.args.keys().min(256 << 10))) {
            let stream = stream?;
            let mut means = ORDERS.map(|_| BYTES.map(|_| Vec::new()));
            for keys in stream.all() {
                let mut sums = [[0; 2]; 2];
                for warp in keys.v4().chunks_exact(LANES) {
                    let steps = table.loads_by_step(warp.iter().map(|key| u64::from(*key) << 32));
                    steps_most = steps_most.max(steps.len());
                    for ((_, order), sums) in ORDERS.iter().zip(&mut sums) {
                        let numbers = steps[0].iter().filter_map(|at| u32::try_from(*at).ok());
                        let words: Vec<_> = numbers.map(|number| word(order(number))).collect();
                        for (sum, bytes) in sums.iter_mut().zip(BYTES) {
                            *sum += transactions(&words, bytes);
                        }
                    }
                }
                for (means, sum) in means.iter_mut().flatten().zip(sums.iter().flatten()) {
                    means.push((sum * LANES) as f64 / stream.len() as f64);
                }
            }
            for ((order, _), means) in ORDERS.iter().zip(&means) {
                for (panel, means) in means.iter().enumerate() {
                    figure.add(panel, &format!("{order}, {name}"), x, Spread::of_rounds(means));
                }
            }
        }
    }
    figure.record("GR, accesses of a lookup", steps_most as f64);
    Ok(())
}

/// Width and height of the rectangles of `cells`: runs of a row, merged with equal runs of neighbouring rows.
fn rectangles(cells: impl Iterator<Item = [u32; 2]>) -> Vec<[u32; 2]> {
    let mut cells: Vec<_> = cells.map(|[x, y]| (y, x)).collect();
    cells.sort_unstable();
    // First column and row, width, height.
    let mut all: Vec<[u32; 4]> = Vec::new();
    for run in cells.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
        let ((y, x), width) = (run[0], run.iter().map(|_| 1).sum());
        let is_above = |above: &&mut [u32; 4]| above[0] == x && above[1] + above[3] == y && above[2] == width;
        match all.iter_mut().rev().find(is_above) {
            Some(above) => above[3] += 1,
            None => all.push([x, y, width, 1]),
        }
    }
    all.into_iter().map(|[_, _, width, height]| [width, height]).collect()
}

/// The poster's deletion (section 2): a first pass clears the stencil of the route's entries, a second one draws the parent there.
fn delete_in_two_passes(words: &mut [u32], prefix: Prefix4, parent: Unit) -> Accesses {
    let area = &mut words[(prefix.address() >> 8) as usize..=(prefix.last_address() >> 8) as usize];
    let stencil: Vec<_> = area.iter().map(|word| Unit(*word).depth() == u32::from(prefix.len())).collect();
    let mut accesses = Accesses { loads: 2 * area.len() as u64, writes: 0 };
    for (word, _) in area.iter_mut().zip(stencil).filter(|(_, is_cleared)| *is_cleared) {
        *word = parent.0;
        accesses.writes += 2;
    }
    accesses
}

/// Deletes a route in one pass and in two, and draws it again each time. Returns the accesses of the insertion and of both deletions.
fn draw(model: &mut GaleModel, (prefix, id): (Prefix4, NextHopId), parent: Unit) -> [Accesses; 3] {
    let run = |model: &mut GaleModel, kind, unit| {
        model.accesses = Accesses::default();
        model.run(&[operation(kind, prefix, unit)]);
        model.accesses
    };
    let unit = Unit::route(id, prefix.len());
    let one_pass = run(model, DELETE, parent);
    run(model, INSERT, unit);
    let two_passes = delete_in_two_passes(&mut model.words, prefix, parent);
    [run(model, INSERT, unit), one_pass, two_passes]
}

fn drawings(bench: &Bench, figure: &mut Figure) -> Result<()> {
    const LINES: [&str; 4] = [
        "of a route",
        "written to insert it",
        "touched to delete it, one pass",
        "touched to delete it, two passes",
    ];
    let Some((_, tables)) = tables(bench).pop() else { return figure.without(Family::V4) };
    let mut model = GaleModel::new(&gr(&tables)?.image(&tables.rib.v4));
    let (mut passes, mut oblong) = ([0, 0], 0);
    for len in 0..=24_u8 {
        let of_len: Vec<_> = tables.v4.iter().filter(|(prefix, _)| prefix.len() == len).collect();
        let Some((first, _)) = of_len.first() else { continue };
        let step = of_len.len().div_ceil(if bench.args.quick { 8 } else { 64 }).max(1);
        let mut lines = LINES.map(|_| Vec::new());
        let mut shapes = ORDERS.map(|_| [const { Vec::new() }; 2]);
        for (prefix, id) in of_len.iter().copied().step_by(step) {
            let parent = tables.rib.v4.used_above(*prefix).map_or(Unit(0), |(len, id)| Unit::route(id, len));
            let [insertion, one_pass, two_passes] = draw(&mut model, (*prefix, *id), parent);
            let all = |of: Accesses| of.loads + of.writes;
            let values = [insertion.loads, insertion.writes, all(one_pass), all(two_passes)];
            lines.iter_mut().zip(values).for_each(|(line, value)| line.push(value as f64));
            passes = [two_passes, one_pass].map(|of| of.loads / insertion.loads);
            for ((_, order), [drawn, loaded]) in ORDERS.iter().zip(&mut shapes) {
                let words: Vec<_> = entries(*prefix, *order).map(word).collect();
                drawn.push(rectangles(entries(*prefix, *order)).len() as f64);
                loaded.push(transactions(&words, BYTES[1]) as f64);
            }
        }
        let is_square = rectangles(entries(*first, square_hash)).iter().all(|[wide, high]| wide == high);
        oblong += if is_square { 0 } else { of_len.len() };
        for (name, line) in LINES.iter().zip(&lines) {
            figure.add(0, name, len, Spread::of_rounds(line));
        }
        for ((name, _), [drawn, loaded]) in ORDERS.iter().zip(&shapes) {
            figure.add(1, name, len, Spread::of_rounds(drawn));
            figure.add(2, name, len, Spread::of_rounds(loaded));
        }
    }
    for (name, _) in ORDERS {
        figure.record_of("GR, squares drawn for an insertion", name, figure.panels[1].most(name));
    }
    for (name, passes) in ["the poster's", "the engine's"].into_iter().zip(passes) {
        figure.record_of("GR, passes of a deletion", name, passes as f64);
    }
    let oblong = 100.0 * oblong as f64 / tables.v4.len() as f64;
    figure.record_unclaimed("routes whose entries are no square", "square hash", "percent", oblong);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::bench::Traffic;
    use crate::paper::testing::bench;
    use lpm_gpu::gale::DIRECT_UNITS;
    use lpm_gpu::gale::model::search_by;
    use std::collections::HashSet;

    #[test]
    fn the_texture_is_the_poster_s() {
        let side = SIDE.0 as usize;
        assert_eq!((DIRECT_UNITS, side * side, SIDE), (16_777_216, DIRECT_UNITS, (4096, 12)));
        for (_, order) in ORDERS {
            let mut bits: Vec<_> = (0..24).map(|bit| word(order(1 << bit))).collect();
            bits.sort_unstable();
            assert!(bits.into_iter().eq((0..24).map(|bit| 1 << bit)));
            assert_eq!(order((1 << 24) - 1), [SIDE.0 - 1; 2]);
        }
        // b0 is the first bit: it is the first of x, and b1 the first of y.
        assert_eq!([1 << 23, 1 << 22, 2, 1].map(square_hash), [[1 << 11, 0], [0, 1 << 11], [1, 0], [0, 1]]);
        // A.B.C is entry A x 65536 + B x 256 + C.
        let entry = |key: u32| search_by(key, Err::<u32, _>);
        assert_eq!([1 << 24, 1 << 16, 1 << 8, 0xff].map(entry), [65_536, 256, 1, 0].map(Err));
    }

    #[test]
    fn a_route_is_one_rectangle_in_both_orders_and_a_square_where_its_length_is_even() {
        for len in 9..=24_u8 {
            let [hashed, linear] =
                ORDERS.map(|(_, order)| rectangles(entries(Prefix4::truncating(0xdead_beef, len), order)));
            let count = 1_u32 << (24 - len);
            assert_eq!(linear, [[count.min(4096), count.div_ceil(4096)]], "/{len}");
            let [wide, high] = hashed[0];
            assert_eq!((hashed.len(), wide * high, wide == high), (1, count, len % 2 == 0), "/{len}");
        }
        assert_eq!(rectangles([[0, 0], [1, 0], [3, 0], [0, 1], [1, 1]].into_iter()), [[2, 2], [1, 1]]);
        // A /16: 16 rows of 64 bytes, or 1,024 bytes of a row.
        let words =
            |order| entries(Prefix4::truncating(0xdead_beef, 16), order).map(word).collect::<Vec<_>>();
        assert_eq!(ORDERS.map(|(_, order)| transactions(&words(order), 128)), [16, 8]);
    }

    #[test]
    fn two_passes_delete_as_one_does_and_touch_twice_as_much() {
        let tables =
            RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "10.1.2.0/24 3", "10.1.4.0/22 4"]);
        let mut model = GaleModel::new(&gr(&tables).unwrap().image(&tables.rib.v4));
        let (before, parent) = (model.words.clone(), Unit::route(NextHopId::from_answer(1), 8));
        let drawn = draw(&mut model, tables.v4[1], parent);
        assert!(model.words == before, "drawn again as it was");
        // The /24 and the /22 keep their five entries.
        assert_eq!(drawn.map(|of| [of.loads, of.writes]), [[256, 251], [256, 251], [512, 502]]);
        delete_in_two_passes(&mut model.words, tables.v4[1].0, parent);
        let mut once = GaleModel { words: before, accesses: Accesses::default() };
        once.run(&[operation(DELETE, tables.v4[1].0, parent)]);
        assert!(model.words == once.words, "one pass and two delete the same");
    }

    #[test]
    fn figures_are_counted() {
        let bench = bench("--quick --keys 2048 --generate v4=3000", &PAPER);
        let (_, tables) = tables(&bench).remove(0);
        assert_eq!(tables.lens(Family::V4).into_iter().max(), Some(24));
        let figure = PAPER.make("layout", &bench).unwrap();
        let keys = bench.draw(&tables, Family::V4, &Traffic::Random, 2048).unwrap();
        for ((name, order), (panel, bytes)) in ORDERS.into_iter().zip(figure.panels.iter().zip(BYTES)) {
            let pieces = |warp: &[u32]| {
                warp.iter().map(|key| word(order(key >> 8)) * 4 / bytes).collect::<HashSet<_>>().len()
            };
            let mean = |keys: &[u32]| keys.chunks(LANES).map(pieces).sum::<usize>() as f64 / 64.0;
            let means: Vec<_> = keys.all().map(|keys| mean(keys.v4())).collect();
            assert_eq!(panel.value_at(&format!("{name}, RIS"), 0.0), Some(Spread::of_rounds(&means).median));
        }
        assert_eq!(figure.ours_at("GR, accesses of a lookup", ""), Some(1.0));
        let figure = PAPER.make("drawings", &bench).unwrap();
        let passes =
            ["the poster's", "the engine's"].map(|of| figure.ours_at("GR, passes of a deletion", of));
        assert_eq!(passes, [Some(2.0), Some(1.0)]);
        assert_eq!(figure.ours_at("GR, squares drawn for an insertion", "square hash"), Some(1.0));
        let [whole, written] = [0, 1].map(|line: usize| &figure.panels[0].series[line].points);
        assert!(
            whole.windows(2).all(|two| two[0].y.median > two[1].y.median),
            "longer prefixes have fewer entries"
        );
        assert!(
            whole
                .iter()
                .zip(written)
                .all(|(whole, written)| written.y.max <= whole.y.max && written.y.max > 0.0)
        );
        let figure = PAPER.make("table1", &bench).unwrap();
        assert_eq!((figure.wrong, figure.panels[0].series.len(), figure.rows.len()), (0, 1, 4));
        assert!(figure.skipped.is_some() && figure.ours_at("GR, lookups, either table, over", "").is_none());
    }
}
