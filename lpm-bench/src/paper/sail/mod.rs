//! `lpm-bench paper sail`: what the part of the SAIL paper states, counted in the engines' own tables, and their lookup rates here.
//!
//! The part begins at the end of section 4.1 and ends within 5.1. It lacks the abstract, sections 1 to 3, most of 4.1, the
//! implementations on CPU, GPU and many-core (5.2 to 5.4), and all of section 6: every rate that the paper measured.

use super::data::{DataSet, Hops, Start};
use super::figure::{Figure, Panel, most, with};
use super::gamt::measure;
use super::{Bench, DeviceNeed, Known, Paper};
use crate::fault::Fault;
use crate::table::Fed;
use crate::tables::RouteSet;
use fib::traffic::Traffic;
use fib::{Details, EngineError, Family, NextHopId, Rib};
use lpm_bench::stats::Spread;
use lpm_cpu::accesses::{Counter, Sail, counter};
use lpm_cpu::{sail_b, sail_l, sail_m, sail_u};
use serde_json::json;

/// In the order in which they are made.
pub(super) const PAPER: Paper = Paper {
    title: "Guarantee IP Lookup Performance with FIB Explosion (SAIL, a part: from the end of 4.1 to 5.1)",
    claims: include_str!("../claims/sail.txt"),
    generated: &[("generated-2014", "v4=511000"), ("generated-2024", "v4=950000")],
    has_updates: true,
    beside: |_| Ok(Vec::new()),
    known: &[
        Known { id: "onchip", device: DeviceNeed::Unused, make: on_chip },
        Known { id: "fibs", device: DeviceNeed::Unused, make: by_fibs },
        Known { id: "accesses", device: DeviceNeed::Unused, make: by_traffic },
        Known { id: "levels", device: DeviceNeed::Unused, make: by_level },
        Known { id: "updates", device: DeviceNeed::Unused, make: updates },
        Known { id: "rates", device: DeviceNeed::Used, make: rates },
    ],
};

/// The algorithms and their engines.
const ALL: [(Sail, &str, &str); 4] = [
    (Sail::B, "SAIL_B", sail_b::NAME),
    (Sail::U, "SAIL_U", sail_u::NAME),
    (Sail::L, "SAIL_L", sail_l::NAME),
    (Sail::M, "SAIL_M", sail_m::NAME),
];
/// Next hops that the paper's layout of SAIL_L has room for.
const NEXT_HOPS_MAX: u32 = 254;
/// Keys of a call on a CPU, as in a forwarder's batch.
const CALL: usize = 256;
/// Keys of a batch on a device, and batches in flight.
const DEVICE_BATCH: (usize, u16) = (16 << 20, 4);
/// Parts of a stream of updates, which are counted apart.
const PARTS: usize = 8;

/// The data sets with IPv4 routes, with their positions on an axis.
fn sets<'a>(bench: &'a Bench<'_>) -> impl Iterator<Item = (f64, &'a DataSet)> {
    let with_v4 = bench.sets.iter().filter(|set| set.tables.routes(Family::V4) > 0);
    (0_u32..).zip(with_v4).map(|(x, set)| (x.into(), set))
}

/// A number of an engine's details.
fn detail(details: &Details, name: &str) -> f64 {
    details.get(name).unwrap_or(f64::NAN)
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// The bits of a chunk id where there are so many chunks: ids start from 1.
fn id_bits(chunks: f64) -> f64 {
    (chunks + 1.0).log2().ceil()
}

/// An engine with the IPv4 routes of `tables`, checked.
fn filled(
    bench: &Bench<'_>,
    figure: &mut Figure,
    tables: &RouteSet,
    (engine, parameters): (&'static str, &[(&str, String)]),
) -> Result<Fed, Fault> {
    bench.tell(format!("builds {engine}"));
    let fed = Fed::filled(bench.engine(engine, None, parameters)?, &tables.told_of(Family::V4))?;
    figure.check(&bench.sample_of(tables, Family::V4)?, &mut *fed.looker(CALL)?)?;
    Ok(fed)
}

/// Memory on chip by table.
fn on_chip(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Memory on chip by table", "routing data");
    let mut panel = Panel::new("MiB on chip");
    let mut chunks = Vec::new();
    for (x, set) in sets(bench) {
        figure.x_names.push(set.name.clone());
        for (_, name, engine) in ALL {
            let stats = filled(bench, &mut figure, &set.tables, (engine, &[]))?.writer.stats();
            let onchip = mib(detail(&stats.details, "sail_onchip_bytes"));
            panel.add(name, x, onchip);
            let chunks24 = stats.details.get("sail_chunks24");
            figure.rows.push(json!({
                "data": set.name, "routes": set.tables.v4.len(), "algorithm": name, "onchip_mib": onchip,
                "chunks24": chunks24, "chunks32": stats.details.get("sail_chunks32"), "table_bytes": stats.table_bytes,
            }));
            chunks.extend(chunks24);
        }
    }
    for (_, name, _) in &ALL[..3] {
        figure.ours(&format!("{name}, memory on chip, fits"), panel.most(name));
    }
    figure.ours("SAIL_M, memory on chip of a table, at most (MiB)", panel.most("SAIL_M"));
    figure.ours("SAIL_L, bits of C16 that real tables need", most(&chunks).map(id_bits));
    figure.panels = vec![panel];
    figure.note = "The bit maps of SAIL_B and SAIL_U are as large for every table; SAIL_L and SAIL_M have 17 bits for each /16, and 256 \
                   for each that has longer routes, which the engines count. The mark is the memory of the paper's FPGA."
        .into();
    Ok(figure)
}

/// Memory of SAIL_M by the number of FIBs: the further ones are variations of the table.
fn by_fibs(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Memory of SAIL_M for multiple FIBs", "FIBs");
    let [mut onchip, mut all] = ["MiB on chip", "MiB of the whole table"].map(Panel::new);
    for (_, set) in sets(bench) {
        for fibs in bench.some(&[1_u32, 2, 4, 8]) {
            let parameters = [("fibs", fibs.to_string())];
            let stats = filled(bench, &mut figure, &set.tables, (sail_m::NAME, &parameters))?.writer.stats();
            let bytes = detail(&stats.details, "sail_onchip_bytes");
            onchip.add(&set.name, fibs.into(), mib(bytes));
            all.add(&set.name, fibs.into(), mib(stats.table_bytes as f64));
            figure.rows.push(json!({
                "data": set.name, "fibs": fibs, "routes": stats.routes_v4, "onchip_bytes": bytes,
                "table_bytes": stats.table_bytes,
            }));
        }
    }
    figure.panels = vec![onchip, all];
    figure.note = "Each further FIB lacks one route in 16, and has another next hop for half of the others. On chip is what all FIBs \
                   share; off chip each leaf has a next hop for each."
        .into();
    Ok(figure)
}

/// A lookup: the length of its match, 0 without one, and each algorithm's accesses on chip and off.
struct Looked {
    len: u8,
    accesses: [[usize; 2]; ALL.len()],
}

/// Tables of the algorithms in which accesses are counted, with routes of at most [`NEXT_HOPS_MAX`] next hops.
struct CountedTables {
    tables: RouteSet,
    counters: Vec<Counter>,
}

/// The routes of `tables` with ids of next hops up to [`NEXT_HOPS_MAX`].
fn few_next_hops(tables: &RouteSet) -> RouteSet {
    let mut rib = Rib::plain();
    for (prefix, id) in &tables.v4 {
        rib.v4.set(*prefix, NextHopId::from_answer((id.get() - 1) % NEXT_HOPS_MAX + 1));
    }
    RouteSet::of_rib(rib, tables.source.clone())
}

impl CountedTables {
    fn new(tables: &RouteSet) -> Result<Self, Fault> {
        let tables = few_next_hops(tables);
        let of = |(sail, _, engine): &(Sail, &str, &str)| {
            let refused = |source: EngineError| Fault::Engine { engine: (*engine).to_owned(), source };
            // A plain copy of the routes, none of which is committed.
            let mut rib = Rib::plain();
            rib.tell(&tables.told_of(Family::V4));
            counter(*sail, &mut rib).map_err(refused)
        };
        let counters = ALL.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { tables, counters })
    }

    /// Looks `keys` up, and checks every answer.
    fn look_up(&self, figure: &mut Figure, keys: &[u32]) -> Vec<Looked> {
        let one = |key: &u32| {
            let (len, id) = self.tables.oracle.v4.longest_match(*key).map_or((0, 0), |(len, id)| (len, id.get()));
            let mut accesses = [[0; 2]; ALL.len()];
            for (counter, accesses) in self.counters.iter().zip(&mut accesses) {
                let answer;
                (answer, *accesses) = counter(*key);
                figure.checked += 1;
                figure.wrong += u64::from(answer != id);
            }
            Looked { len, accesses }
        };
        keys.iter().map(one).collect()
    }
}

/// The lookups of each seed of each traffic that accesses are counted of.
fn looked_up(
    bench: &Bench<'_>,
    figure: &mut Figure,
    set: &DataSet,
) -> Result<Vec<(Traffic, Vec<Vec<Looked>>)>, Fault> {
    let counted = CountedTables::new(&set.tables)?;
    let count = bench.args.keys().min(if bench.args.quick { 1 << 16 } else { 1 << 19 });
    let mut all = Vec::new();
    for traffic in [Traffic::Random, Traffic::Table, bench.trace()] {
        let stream = bench.draw(&counted.tables, Family::V4, &traffic, count)?;
        let looked = stream.0.iter().map(|keys| counted.look_up(figure, keys.v4())).collect();
        all.push((traffic, looked));
    }
    Ok(all)
}

/// The accesses of an algorithm, on chip (0) or off (1), of some lookups.
fn accesses_of<'a>(
    looked: impl IntoIterator<Item = &'a Looked>,
    (algorithm, place): (usize, usize),
) -> Vec<f64> {
    looked.into_iter().map(|one| one.accesses[algorithm][place] as f64).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The graphs of accesses on chip and off chip.
fn places(of: &str) -> [Panel; 2] {
    ["on chip", "off chip"].map(|place| Panel::new(&format!("accesses {place}, {of}")))
}

/// Accesses by traffic.
fn by_traffic(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Accesses of a lookup by traffic", "traffic");
    let Some((_, set)) = sets(bench).next() else { return Ok(figure.without(Family::V4)) };
    let (mut panels, mut greatest) = (places("mean of a lookup"), [[0.0_f64; 2]; ALL.len()]);
    for (x, (traffic, seeds)) in (0_u32..).zip(looked_up(bench, &mut figure, set)?) {
        figure.x_names.push(traffic.to_string());
        for (algorithm, (_, name, _)) in ALL.iter().enumerate() {
            for (place, panel) in panels.iter_mut().enumerate() {
                let of_seeds: Vec<_> = seeds.iter().map(|one| accesses_of(one, (algorithm, place))).collect();
                let means: Vec<_> = of_seeds.iter().map(|one| mean(one)).collect();
                panel.add(name, x.into(), Spread::of(&means));
                let greatest = &mut greatest[algorithm][place];
                *greatest = of_seeds.concat().into_iter().fold(*greatest, f64::max);
            }
        }
    }
    for ((_, name, _), [onchip, offchip]) in ALL.iter().zip(greatest) {
        figure.ours(&format!("{name}, accesses on chip of a lookup, at most"), onchip);
        figure.ours(&format!("{name}, accesses off chip of a lookup, at most"), offchip);
    }
    figure.panels = panels.into();
    figure.note = "Every load of the kernels is counted, and every answer is checked. B16, C16 and the bit maps are on chip (figure 4); N16 \
                   and N24 are off chip, also where they share a word with them. Ids of next hops are folded to 254, which the paper's \
                   layout has room for."
        .into();
    Ok(figure)
}

/// Accesses by the length of the longest match.
fn by_level(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Accesses of a lookup by level", "length of the longest match, 0 without one");
    let Some((_, set)) = sets(bench).next() else { return Ok(figure.without(Family::V4)) };
    let mut panels = places("lookups of all traffics");
    let mut share = Panel::new("percent of lookups");
    let all = looked_up(bench, &mut figure, set)?;
    for len in 0..=32_u8 {
        let of_len = |looked: &[Looked]| looked.iter().filter(|one| one.len == len).count();
        for (traffic, seeds) in &all {
            let shares: Vec<_> =
                seeds.iter().map(|one| 100.0 * of_len(one) as f64 / one.len().max(1) as f64).collect();
            share.add(&traffic.to_string(), len.into(), Spread::of(&shares));
        }
        let looked = || all.iter().flat_map(|(_, seeds)| seeds.iter().flatten()).filter(|one| one.len == len);
        for (algorithm, (_, name, _)) in ALL.iter().enumerate() {
            for (place, panel) in panels.iter_mut().enumerate() {
                let values = accesses_of(looked(), (algorithm, place));
                if !values.is_empty() {
                    panel.add(name, len.into(), Spread::of(&values));
                }
            }
        }
    }
    figure.panels = panels.into_iter().chain([share]).collect();
    figure.note = "Median, least and most of the lookups that end at a length. Routes are pushed down, so a short match may be found deep."
        .into();
    Ok(figure)
}

/// Accesses of updates.
fn updates(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Accesses of an update", "routing data");
    let [onchip, offchip] = places("mean of an update");
    let mut panels = [onchip, offchip, Panel::new("accesses on chip of an update, at most")];
    for (x, set) in sets(bench) {
        figure.x_names.push(set.name.clone());
        bench.name_traffic(format!("updates of {}, one a delta", set.updates_source));
        let deltas = set.deltas(Family::V4, Some(1), Hops::Peer, Start::Table).forward;
        for (_, name, engine) in ALL {
            let mut fed = filled(bench, &mut figure, &set.tables, (engine, &[]))?;
            let (mut counts, mut greatest) = ([Vec::new(), Vec::new()], 0.0_f64);
            for part in deltas.chunks(deltas.len().div_ceil(PARTS).max(1)) {
                let before = Writes::of(&fed);
                for delta in part {
                    fed.apply(delta)?;
                }
                let after = Writes::of(&fed);
                greatest = greatest.max(after.onchip_max);
                let updates = after.updates - before.updates;
                // A table that was built anew begins to count anew.
                if updates > 0.0 {
                    counts[0].push((after.onchip - before.onchip) / updates);
                    counts[1].push((after.offchip - before.offchip) / updates);
                }
            }
            let points = counts.iter().map(|of| Spread::of(of)).chain([greatest.into()]);
            for (panel, point) in panels.iter_mut().zip(points) {
                panel.add(name, x, point);
            }
            let own = json!({ "data": set.name, "algorithm": name, "updates": deltas.len() });
            figure.rows.push(with(own, json!({ "onchip": counts[0], "offchip": counts[1], "onchip_most": greatest })));
        }
    }
    let greatest = panels[2].most("SAIL_U");
    figure.ours("SAIL_U, accesses on chip of an update, at most", greatest);
    figure.ours("SAIL_U, bits that an update modifies on chip, at most", greatest.map(|words| words * 64.0));
    figure.panels = panels.into();
    figure.note = "Stores of 64 bits or less, counted by the engines; next hops are the peers that sent the updates, and those that change \
                   nothing are left out. SAIL_L and SAIL_M write more on chip when a /16 gets its first route longer than 16 bits, or \
                   loses its last one."
        .into();
    Ok(figure)
}

/// What an engine has stored since its table was built.
struct Writes {
    updates: f64,
    onchip: f64,
    onchip_max: f64,
    offchip: f64,
}

impl Writes {
    fn of(fed: &Fed) -> Self {
        let details = fed.writer.stats().details;
        let of = |name: &str| detail(&details, name);
        Self {
            updates: of("sail_updates"),
            onchip: of("sail_onchip_writes"),
            onchip_max: of("sail_onchip_writes_max"),
            offchip: of("sail_offchip_writes"),
        }
    }
}

/// Lookup rates on this host.
fn rates(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup rates on this host", "traffic");
    let mut panel = Panel::log("million lookups a second");
    let Some((_, set)) = sets(bench).next() else { return Ok(figure.without(Family::V4)) };
    let tables = few_next_hops(&set.tables);
    let paper = [("layout", "paper".to_owned())];
    let mut all: Vec<(&str, &'static str, &[(&str, String)])> =
        ALL.iter().map(|(_, name, engine)| (*name, *engine, &[][..])).collect();
    all[2].0 = "SAIL_L, wide layout";
    all.insert(2, ("SAIL_L", sail_l::NAME, &paper));
    match &bench.device {
        Ok(_) => all.push((ON_GPU, "sail-gpu", &[])),
        Err(reason) => figure.skipped = Some(format!("the line of sail-gpu takes a GPU: {reason}")),
    }
    let traffics = [Traffic::Random, Traffic::Table, bench.trace()];
    figure.x_names = traffics.iter().map(ToString::to_string).collect();
    let streams = traffics.iter().map(|traffic| bench.draw(&tables, Family::V4, traffic, bench.args.keys()));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    for (name, engine, parameters) in all {
        let fed = filled(bench, &mut figure, &tables, (engine, parameters))?;
        let shape = if name == ON_GPU { DEVICE_BATCH } else { (CALL, 1) };
        for (x, keys) in (0_u32..).zip(&streams) {
            let driven = measure(bench, &fed, keys, shape, None)?;
            panel.add(name, x.into(), driven.mlps);
            let own = json!({ "data": set.name, "engine": engine, "name": name, "traffic": keys.traffic() });
            figure.rows.push(with(own, json!(driven)));
        }
    }
    figure.ours("SAIL_L on a GPU (Tesla C2075)", panel.most(ON_GPU));
    figure.panels = vec![panel];
    figure.note = "One thread on the CPU, calls of 256 keys. The part that we have of the paper lacks its measurements (5.2 to 6); 547 is what the \
                   Bloomfwd paper says of it. It lacks sections 1 to 3 and most of 4.1 as well: SAIL_B and the levels of SAIL_U are as \
                   published."
        .into();
    Ok(figure)
}

/// The line of `sail-gpu`.
const ON_GPU: &str = "SAIL_L, GPU";
