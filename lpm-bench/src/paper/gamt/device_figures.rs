//! Figures that need a device: lookup speed by batch, data, levels, configuration, update rate; latency by streams. What figures 11
//! and 15 have of memory, and of MAMT, the paper's comparison on the CPU, is made on any host.

use super::kernels::Launcher;
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::measure::cpu_s;
use crate::paper::data::{Hops, Start};
use crate::paper::drive::{DrivenRounds, Load, beside, drive};
use crate::paper::figure::{Figure, Panel, Point, least, most, over, with};
use crate::paper::{Bench, CHECKED, Stream, data::DataSet};
use crate::table::Fed;
use crate::updates::Player;
use crate::wanted::ENGINES;
use fib::traffic::Traffic;
use fib::{EngineError, EngineReader, Family, Isa};
use lpm_bench::stats::{Spread, median};
use lpm_gpu::gamt::strides::{Census, StridePlan};
use serde_json::{Value, json};
use std::ops::RangeInclusive;

/// Batch of the paper's lookup figures: "a big batch size (16M)".
const BATCH: usize = 16 << 20;
/// Batches in flight in figures that do not vary them.
const IN_FLIGHT: u16 = 4;
/// The fewest keys of a batch per thread.
const BATCH_A_THREAD_MIN: usize = 64 << 10;
/// The most keys of all batches in flight together: page-locked memory takes long to allocate.
const KEYS_IN_FLIGHT_MAX: usize = 64 << 20;
/// Updates of a delta beside lookups: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;
/// Units of a memory transaction: 128 bytes, as in the paper.
const TRANSACTION_UNITS: u64 = 32;

/// An engine of the figures, and the family that it looks up.
#[derive(Clone, Copy, Debug)]
struct FigureEngine {
    engine: &'static str,
    family: Family,
    name: &'static str,
    /// Of an engine on the CPU; `None` is an engine on a device.
    isa: Option<Isa>,
    /// Its form, of an engine that has several.
    form: Option<(&'static str, &'static str)>,
}

const fn on_device(engine: &'static str, family: Family, name: &'static str) -> FigureEngine {
    FigureEngine { engine, family, name, isa: None, form: None }
}

const GAMT: FigureEngine = on_device("gamt", Family::V4, "GAMT, IPv4");
const GAMT6: FigureEngine = on_device("gamt", Family::V6, "GAMT, IPv6");
const GAMT_PAPER: FigureEngine =
    FigureEngine { name: "GAMT, IPv4, paper's layout", form: Some(("layout", "paper")), ..GAMT };
const GALE: FigureEngine = on_device("gale", Family::V4, "GALE");
/// The poster's: one load a lookup, with the routes up to /24.
const GALE_PAPER: FigureEngine =
    FigureEngine { name: "GALE, one stage, up to /24", form: Some(("stages", "1")), ..GALE };
const SAIL: FigureEngine = on_device("sail-gpu", Family::V4, "SAIL_L");
const SAIL_PAPER: FigureEngine =
    FigureEngine { name: "SAIL_L, paper's layout", form: Some(("layout", "paper")), ..SAIL };
/// On the CPU, where a batch is divided among the bench's threads.
const SAIL_CPU: FigureEngine =
    FigureEngine { engine: "sail-l", name: "SAIL_L, CPU", isa: Some(Isa::Scalar), ..SAIL };
/// MAMT as in the paper: scalar code, a batch divided among a thread for each CPU (section 5.1.2).
const MAMT: FigureEngine = FigureEngine { engine: "mamt", name: "MAMT", isa: Some(Isa::Scalar), ..SAIL };
const MAMT6: FigureEngine = FigureEngine { family: Family::V6, name: "MAMT, IPv6", ..MAMT };
/// The same on vectors.
const MAMT_VECTORS: FigureEngine = FigureEngine { name: "MAMT, avx512f", isa: Some(Isa::Avx512f), ..MAMT };
const MAMT6_VECTORS: FigureEngine =
    FigureEngine { family: Family::V6, name: "MAMT, IPv6, avx512f", ..MAMT_VECTORS };

/// GAMT and GALE as in their papers, whose numbers come first, and as they are here.
const FORMS: [(&str, FigureEngine, FigureEngine); 2] =
    [("", GAMT_PAPER, GALE_PAPER), ("as here", GAMT, GALE)];

/// A parameter of an engine.
type Parameter = (&'static str, String);

impl FigureEngine {
    /// The parameter for the number of levels.
    const fn levels_parameter(self) -> &'static str {
        match self.family {
            Family::V4 => "levels",
            Family::V6 => "levels6",
        }
    }

    /// Its form, and the levels that the paper found best: six for IPv4, twenty for IPv6.
    fn parameters(self) -> Vec<Parameter> {
        let levels = match (self.engine, self.family) {
            ("gamt" | "mamt", Family::V4) => Some(("levels", "6")),
            ("gamt" | "mamt", Family::V6) => Some(("levels6", "20")),
            _ => None,
        };
        self.form.into_iter().chain(levels).map(|(name, value)| (name, value.to_owned())).collect()
    }

    /// The part of `set` that it takes, unless it takes all.
    fn part_of(self, set: &DataSet) -> Option<DataSet> {
        (self.name == GALE_PAPER.name).then(|| set.up_to_24())
    }

    /// What counts as the next hop of its updates.
    fn hops(self) -> Hops {
        // Origins and peers together are more than the paper's entries of 8 bits name.
        if self.name == SAIL_PAPER.name { Hops::Origin } else { Hops::Peer }
    }
}

/// Those of `all` that this host can run. Without a device, `figure` says what is missing.
fn subjects(bench: &Bench<'_>, figure: &mut Figure, all: &[FigureEngine]) -> Vec<FigureEngine> {
    if let Err(reason) = &bench.device {
        figure.skipped = Some(format!("all lines but those of engines on the CPU take a GPU: {reason}"));
    }
    let is_here = |one: &FigureEngine| one.isa.map_or(bench.device.is_ok(), Isa::is_available);
    all.iter().copied().filter(is_here).collect()
}

/// An engine with the routes of one family of a data set, checked.
fn ready(
    bench: &Bench<'_>,
    figure: &mut Figure,
    set: &DataSet,
    subject: FigureEngine,
    parameters: &[Parameter],
) -> Result<Fed, Fault> {
    let mut parameters = parameters.to_vec();
    if subject.engine == MAMT.engine {
        parameters.push(("threads", bench.host.cpus.to_string()));
    }
    let part = subject.part_of(set);
    let tables = &part.as_ref().unwrap_or(set).tables;
    let engine = bench.engine(subject.engine, subject.isa, &parameters)?;
    let fed = Fed::filled(engine, &tables.told_of(subject.family))?;
    figure.check(&bench.sample_of(tables, subject.family)?, &mut *fed.looker(CHECKED)?)?;
    Ok(fed)
}

/// As [`ready`], with the subject's own parameters. A table that its form cannot hold is a row of the figure, and no line.
fn ready_unless_refused(
    bench: &Bench<'_>,
    figure: &mut Figure,
    set: &DataSet,
    subject: FigureEngine,
) -> Result<Option<Fed>, Fault> {
    match ready(bench, figure, set, subject, &subject.parameters()) {
        Err(Fault::Engine { source: source @ EngineError::Full { .. }, .. }) if subject.form.is_some() => {
            figure.rows.push(json!({"data": set.name, "line": subject.name, "refused": source.to_string()}));
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Batches in flight: as many as wanted, or fewer if their keys exceed [`KEYS_IN_FLIGHT_MAX`], but at least 2.
fn in_flight(batch: usize, wanted: u16) -> u16 {
    let fit = u16::try_from(KEYS_IN_FLIGHT_MAX / batch.max(1)).unwrap_or(u16::MAX);
    wanted.min(fit).max(2)
}

/// Readers, each on a thread, with `slots` batches of `batch` keys in flight. A large batch is divided among threads: one core
/// cannot copy keys as fast as the bus transfers them.
struct Way {
    readers: Vec<Box<dyn EngineReader>>,
    batch: usize,
    slots: u16,
}

impl Way {
    /// With as many threads as a batch is worth, or with `threads`.
    fn new(
        bench: &Bench<'_>,
        fed: &Fed,
        (batch, slots): (usize, u16),
        threads: Option<usize>,
    ) -> Result<Self, Fault> {
        let threads = threads.unwrap_or_else(|| (batch / BATCH_A_THREAD_MIN).clamp(1, bench.args.threads()));
        let mut batch = (batch / threads).max(1);
        let readers = (0..threads).map(|_| fed.reader(slots, batch)).collect::<Result<Vec<_>, _>>()?;
        batch = readers.iter().map(|reader| reader.batch_max()).fold(batch, usize::min);
        Ok(Self { readers, batch, slots })
    }

    fn load<'a>(&self, bench: &Bench<'_>, keys: &'a KeySet) -> Load<'a> {
        let rounds = f64::from(u32::try_from(bench.args.rounds()).unwrap_or(1));
        Load { keys, batch: self.batch, slots: self.slots, seconds: 2.0 * bench.args.seconds() / rounds }
    }
}

/// Looks `keys` up in batches of this many keys, so many in flight; with one thread for figures about streams.
pub(in crate::paper) fn measure(
    bench: &Bench<'_>,
    fed: &Fed,
    keys: &Stream,
    (batch, slots): (usize, u16),
    threads: Option<usize>,
) -> Result<DrivenRounds, Fault> {
    // Of an engine on the CPU a batch is over when its call returns, and MAMT has threads of its own.
    let (slots, threads) = match fed.engine.as_str() {
        engine if ENGINES.is_device(engine) => (slots, threads),
        "mamt" => (1, Some(1)),
        _ => (1, None),
    };
    let mut way = Way::new(bench, fed, (batch.min(bench.args.keys()), slots), threads)?;
    let round = |round| {
        let load = way.load(bench, keys.of_round(round));
        drive(&mut way.readers, load).map_err(|source| fed.refused(source))
    };
    Ok(DrivenRounds::of(&(0..bench.args.rounds()).map(round).collect::<Result<Vec<_>, _>>()?))
}

/// The fields of a row that every measurement has.
fn row(set: &DataSet, subject: FigureEngine, batch: usize, driven: &DrivenRounds) -> Value {
    let own = json!({
        "data": set.name, "engine": subject.engine, "line": subject.name, "family": subject.family.to_string(), "batch": batch,
        "isa": subject.isa.map(|isa| isa.to_string()),
    });
    with(own, json!(driven))
}

/// The lines of figures 9 and 10.
const ALL: [FigureEngine; 10] =
    [GAMT, GAMT_PAPER, GALE, GALE_PAPER, SAIL, SAIL_PAPER, SAIL_CPU, MAMT, MAMT_VECTORS, GAMT6];

/// Figure 9: lookup speed by batch size, on random traffic.
pub(super) fn figure_9(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup speed vs. batch size", "keys a batch");
    figure.x_log = true;
    let mut panel = Panel::new("million lookups a second");
    let sizes: Vec<usize> =
        (0..=25).map(|log2| 1 << log2).filter(|size| *size <= bench.args.keys()).collect();
    for subject in subjects(bench, &mut figure, &ALL) {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let Some(fed) = ready_unless_refused(bench, &mut figure, set, subject)? else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        for size in bench.some(&sizes) {
            let slots = in_flight(size, 8);
            let driven = measure(bench, &fed, &keys, (size, slots), None)?;
            panel.add(subject.name, size as f64, driven.mlps);
            figure.rows.push(with(row(set, subject, size, &driven), json!({"slots": slots})));
        }
    }
    for subject in [GAMT, GALE, MAMT, GAMT6] {
        figure.ours(&format!("{}, at most", subject.name), panel.most(subject.name));
    }
    figure.ours_of("MAMT, at most", "avx512f", panel.most(MAMT_VECTORS.name));
    figure.ours("GAMT, IPv4, exceeded", panel.most(GAMT.name));
    figure.ours("GAMT, IPv6, exceeded", panel.most(GAMT6.name));
    let largest = |one: FigureEngine, other: FigureEngine| panel.ratios(one.name, other.name).last().copied();
    for (of, gamt, gale) in FORMS {
        figure.ours_of("GAMT over GALE, random traffic, large batches", of, largest(gamt, gale));
    }
    figure.ours("GAMT over MAMT, random traffic, large batches", largest(GAMT, MAMT));
    let points = panel.line(GAMT.name).map_or(&[][..], |line| &line.points);
    let is_slower = |point: &Point| panel.at(MAMT.name, point.x).is_some_and(|mamt| mamt > point.y.median);
    let slower = points.iter().rposition(is_slower);
    let crossing = slower.and_then(|last| points.get(last + 1)).map(|point| point.x);
    figure.ours("batch size below which MAMT is the fastest, IPv4", crossing);
    let gale = panel.line(GALE.name).and_then(|line| rises_slowly(&line.points));
    figure.ours("batch size from which GALE's speed rises slowly", gale);
    figure.panels.push(panel);
    figure.note = "End to end: a batch is copied to the device and its answers back.".into();
    Ok(figure)
}

/// The batch from which on a larger one is not worth it: twice the keys never gain the root of two in speed.
fn rises_slowly(points: &[Point]) -> Option<f64> {
    let rises = |pair: &[Point]| (pair[1].y.median / pair[0].y.median).powi(2) >= pair[1].x / pair[0].x;
    let last = points.windows(2).rposition(rises).map_or(0, |last| last + 1);
    points.get(last).map(|point| point.x)
}

/// Figure 10: lookup speed by routing data, on random and on table traffic.
pub(super) fn figure_10(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup speed vs. routing data with two types of traffic", "routing data");
    let mut panel = Panel::new("million lookups a second");
    for (at, set) in (0_u32..).zip(&bench.sets) {
        figure.x_names.push(set.name.clone());
        for subject in subjects(bench, &mut figure, &ALL) {
            if set.tables.routes(subject.family) == 0 {
                continue;
            }
            let Some(fed) = ready_unless_refused(bench, &mut figure, set, subject)? else { continue };
            for traffic in [Traffic::Random, Traffic::Table, bench.trace()] {
                let keys = bench.stream(set, subject.family, &traffic)?;
                let shape = (BATCH, in_flight(BATCH, IN_FLIGHT));
                let driven = measure(bench, &fed, &keys, shape, None)?;
                panel.add(&format!("{}, {traffic}", subject.name), f64::from(at), driven.mlps);
                let more = json!({"traffic": traffic.to_string()});
                figure.rows.push(with(row(set, subject, BATCH, &driven), more));
            }
        }
    }
    let name = |subject: FigureEngine, traffic: &Traffic| format!("{}, {traffic}", subject.name);
    let both = [Traffic::Random, Traffic::Table];
    for (of, gamt, gale) in FORMS {
        let over = both.each_ref().map(|traffic| panel.ratios(&name(gamt, traffic), &name(gale, traffic)));
        for (traffic, ratios) in both.iter().zip(&over) {
            figure.ours_of(&format!("GAMT over GALE, {traffic} traffic, at most"), of, most(ratios));
        }
        figure.ours_of("GAMT over GALE, each table and traffic, always better", of, least(&over.concat()));
        for (words, subject) in [
            ("GAMT, lost from table to random traffic", gamt),
            ("GALE, lost from table to random traffic (almost)", gale),
        ] {
            let kept = panel.ratios(&name(subject, &both[0]), &name(subject, &both[1]));
            figure.ours_of(words, of, (!kept.is_empty()).then(|| 100.0 * (1.0 - median(&kept))));
        }
    }
    figure.panels.push(panel);
    Ok(figure)
}

/// The line of a trie's memory as the paper counts it.
const PAPER_BYTES: &str = "levels x array width, as the paper counts";

/// Bytes per prefix of a trie with `levels` levels: as the paper counts them, and as the sum of the levels' units.
fn memory(census: &Census, levels: u8, routes: usize) -> (f64, f64) {
    let plan = StridePlan::of_levels(census, levels, TRANSACTION_UNITS);
    let routes = routes.max(1) as f64;
    (4.0 * f64::from(levels) * plan.width as f64 / routes, 4.0 * plan.units as f64 / routes)
}

fn census(set: &DataSet, family: Family) -> Census {
    match family {
        Family::V4 => Census::new(
            32,
            set.tables.v4.iter().map(|(prefix, _)| (u64::from(prefix.address()) << 32, prefix.len())),
        ),
        Family::V6 => Census::new(
            64,
            set.tables.v6.iter().map(|(prefix, _)| ((prefix.address() >> 64) as u64, prefix.len().min(64))),
        ),
    }
}

/// Figures 11 and 15: lookup speed and memory by the number of levels.
fn by_levels(
    bench: &Bench<'_>,
    subject: FigureEngine,
    levels: RangeInclusive<u8>,
    on_cpu: [FigureEngine; 2],
) -> Result<Figure, Fault> {
    let parameter = subject.levels_parameter();
    let mut figure = Figure::new("Lookup speed and memory efficiency vs. tree level", "levels");
    let (mut speed, mut bytes) = (Panel::new("million lookups a second"), Panel::new("bytes a prefix"));
    let mut alone = Panel::new("million lookups a second, kernel alone");
    let Some(set) = bench.main_set(subject.family) else {
        return Ok(figure.without(subject.family));
    };
    let routes = set.tables.routes(subject.family);
    let start_s = cpu_s();
    let census = census(set, subject.family);
    let counted_s = cpu_s();
    let chosen = StridePlan::choose(&census, levels.clone(), TRANSACTION_UNITS, |plan| Some(plan.units * 4));
    figure.rows.push(json!({
        "data": set.name, "nodes_in_level_ms": 1e3 * (counted_s - start_s),
        "algorithm_3_ms": 1e3 * (cpu_s() - counted_s), "chosen": chosen.strides,
    }));
    let all: Vec<u8> = levels.collect();
    for levels in &all {
        let (paper, flat) = memory(&census, *levels, routes);
        bytes.add(PAPER_BYTES, f64::from(*levels), paper);
        bytes.add("levels behind each other", f64::from(*levels), flat);
        figure.rows.push(json!({
            "data": set.name, "levels": levels, "bytes_a_prefix_paper": paper, "bytes_a_prefix_flat": flat,
        }));
    }
    let keys = bench.stream(set, subject.family, &Traffic::Random)?;
    let shape = (BATCH, in_flight(BATCH, IN_FLIGHT));
    for subject in subjects(bench, &mut figure, &on_cpu) {
        for levels in bench.some(&all) {
            let fed = ready(bench, &mut figure, set, subject, &[(parameter, levels.to_string())])?;
            let driven = measure(bench, &fed, &keys, shape, None)?;
            speed.add(subject.name, f64::from(levels), driven.mlps);
            figure.rows.push(with(row(set, subject, BATCH, &driven), json!({"levels": levels})));
        }
    }
    if bench.device.is_ok() {
        let mut launcher = Launcher::open(bench.args.device())?;
        for levels in bench.some(&all) {
            let timed = launcher.gamt(set, subject.family, levels, keys.of_round(0))?;
            alone.add("GAMT", f64::from(levels), timed.glps.map(|glps| 1e3 * glps));
            figure.rows.push(json!({"data": set.name, "levels": levels, "layout": "flat", "kernel": timed}));
            for (layout, name) in [("flat", "GAMT"), ("paper", "GAMT, paper's layout")] {
                if layout == "paper" && bench.args.quick {
                    continue;
                }
                let parameters = [(parameter, levels.to_string()), ("layout", layout.to_owned())];
                let fed = ready(bench, &mut figure, set, subject, &parameters)?;
                let driven = measure(bench, &fed, &keys, shape, None)?;
                speed.add(name, f64::from(levels), driven.mlps);
                let more = json!({"levels": levels, "layout": layout});
                figure.rows.push(with(row(set, subject, BATCH, &driven), more));
            }
        }
    }
    figure.panels = vec![speed, bytes, alone];
    Ok(figure)
}

/// Figure 11: the number of levels, IPv4.
pub(super) fn figure_11(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = by_levels(bench, GAMT, 4..=20, [MAMT, MAMT_VECTORS])?;
    let [speed, memory, alone] = figure.panels.as_slice() else { return Ok(figure) };
    let (bytes, smallest) = (memory.at(PAPER_BYTES, 6.0), memory.least_x(PAPER_BYTES));
    let (best, alone) = (speed.best_x("GAMT"), alone.best_x("GAMT"));
    let on_cpu = [MAMT, MAMT_VECTORS].map(|subject| speed.best_x(subject.name));
    figure.ours("6 levels", bytes);
    figure.ours("IPv4, the smallest trie has, about", smallest);
    figure.ours("the fastest trie has", best);
    figure.ours_of("the fastest trie has", "the kernel alone", alone);
    figure.ours("the fastest trie on the CPU has", on_cpu[0]);
    figure.ours_of("the fastest trie on the CPU has", "avx512f", on_cpu[1]);
    Ok(figure)
}

/// Figure 15: the number of levels, IPv6.
pub(super) fn figure_15(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = by_levels(bench, GAMT6, 8..=30, [MAMT6, MAMT6_VECTORS])?;
    figure.title = "Lookup speed for IPv6".into();
    let [speed, memory, _] = figure.panels.as_slice() else { return Ok(figure) };
    let (twenty, best, smallest) =
        (speed.at("GAMT", 20.0), speed.best_x("GAMT"), memory.least_x(PAPER_BYTES));
    figure.ours("IPv6, the smallest trie has, about", smallest);
    figure.ours("the fastest trie has", best);
    figure.ours("20 levels", twenty);
    Ok(figure)
}

/// The percentage of `speeds` that lie in the paper's interval from `from` Mlps on, which is 100 wide, on a scale where the fastest
/// configuration has the paper's 522.
fn share(speeds: &[f64], fastest: Option<f64>, from: f64) -> Option<f64> {
    let scale = 522.0 / fastest?;
    let inside = speeds.iter().filter(|speed| (from..from + 100.0).contains(&(*speed * scale))).count();
    Some(100.0 * inside as f64 / speeds.len().max(1) as f64)
}

/// Figure 12: lookup speed by blocks, threads and streams.
pub(super) fn figure_12(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup speed with different CUDA configurations", "threads a block");
    figure.x_log = true;
    let mut panel = Panel::new("million lookups a second");
    let Some(set) = bench.main_set(Family::V4) else {
        return Ok(figure.without(Family::V4));
    };
    let keys = bench.stream(set, Family::V4, &Traffic::Random)?;
    let (mut by_streams, mut light) = ([Vec::new(), Vec::new()], Vec::new());
    for (streams, speeds) in (1_u16..).zip(&mut by_streams) {
        for blocks in bench.some(&[16, 32, 48, 64]) {
            for threads in bench.some(&[128, 256, 512, 1024]) {
                let mut parameters = GAMT.parameters();
                parameters.extend([("streams", streams.to_string()), ("blocks", blocks.to_string())]);
                parameters.push(("threads", threads.to_string()));
                let fed = ready(bench, &mut figure, set, GAMT, &parameters)?;
                // As many slots as streams: a batch queued behind another would overlap with it.
                let driven = measure(bench, &fed, &keys, (BATCH, streams), Some(1))?;
                panel.add(&format!("{streams} streams, {blocks} blocks"), f64::from(threads), driven.mlps);
                speeds.push(driven.mlps.median);
                if blocks < 32 && threads < 256 {
                    light.push(driven.mlps.median);
                }
                let more = json!({"streams": streams, "blocks": blocks, "threads": threads});
                figure.rows.push(with(row(set, GAMT, BATCH, &driven), more));
            }
        }
    }
    let [one, two] = by_streams.each_ref().map(|speeds| most(speeds));
    figure.ours("two streams, at most", two);
    figure.ours("two streams over one, at most", over(two, one));
    for (streams, speeds, from) in [
        ("one stream", &by_streams[0], 300),
        ("two streams", &by_streams[1], 400),
        ("two streams", &by_streams[1], 500),
    ] {
        let words = format!("{streams}, share of configurations at {from} to {} Mlps", from + 100);
        figure.ours_of(&words, "with the fastest at 522", share(speeds, two, f64::from(from)));
    }
    for (streams, speeds) in ["one stream", "two streams"].iter().zip(&by_streams) {
        figure.ours_of(&format!("{streams}, where most configurations lie"), "median", median(speeds));
    }
    let light = over(most(&light), two).map(|share| 100.0 * share);
    figure
        .ours("under 32 blocks of under 256 threads, of the fastest configuration's speed, less than", light);
    figure.panels.push(panel);
    Ok(figure)
}

/// Lookups beside updates, for figures 16 and 17: a line for each subject, a point for each rate.
fn under_updates(
    bench: &Bench<'_>,
    figure: &mut Figure,
    subjects: &[FigureEngine],
    rates: &[f64],
) -> Result<Panel, Fault> {
    let mut panel = Panel::new("million lookups a second");
    for subject in subjects {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let Some(mut fed) = ready_unless_refused(bench, figure, set, *subject)? else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        let part = subject.part_of(set);
        let told = part.as_ref().unwrap_or(set);
        let deltas = told.deltas(subject.family, Some(UPDATES_A_DELTA), subject.hops(), Start::Table);
        let mut round = Player::new(&deltas);
        let batch = BATCH.min(bench.args.keys());
        let mut way = Way::new(bench, &fed, (batch, in_flight(batch, IN_FLIGHT)), None)?;
        for rate in rates {
            let (mut lookups, mut updates_per_s) = (Vec::new(), Vec::new());
            for number in 0..bench.args.rounds() {
                let load = way.load(bench, keys.of_round(number));
                let beside = beside(&mut fed, &mut way.readers, load, (&mut round, *rate))?;
                lookups.push(beside.lookups);
                updates_per_s.push(beside.updates_per_s);
            }
            let lookups = DrivenRounds::of(&lookups);
            panel.add(subject.name, *rate, lookups.mlps);
            let more = json!({"rate": rate, "updates_per_s": Spread::of(&updates_per_s)});
            figure.rows.push(with(row(set, *subject, batch, &lookups), more));
        }
    }
    Ok(panel)
}

/// The lookup speed lost at `rate`, in percent of that without updates.
fn lost(panel: &Panel, subject: FigureEngine, rate: f64) -> Option<f64> {
    Some(100.0 * (1.0 - panel.at(subject.name, rate)? / panel.at(subject.name, 0.0)?))
}

/// Figure 16: lookup speed under frequent updates.
pub(super) fn figure_16(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup speed under frequent updates", "updates a second");
    let all_lines = [GAMT, GAMT_PAPER, GALE, GALE_PAPER, SAIL, SAIL_PAPER, GAMT6];
    let all = [0.0, 1e4, 2e4, 3e4, 4e4, 5e4, 6e4, 7e4, 1e5];
    let rates = if bench.args.quick { vec![0.0, 1e4, 7e4, 1e5] } else { all.to_vec() };
    let panel = under_updates(bench, &mut figure, &all_lines, &rates)?;
    for (of, gamt, gale) in FORMS {
        figure.ours_of("GAMT, IPv4, lost at 70,000 a second", of, lost(&panel, gamt, 7e4));
        figure.ours_of("GALE, lost at 70,000 a second, more than", of, lost(&panel, gale, 7e4));
    }
    figure.ours("GAMT, IPv6, lost at 70,000 a second", lost(&panel, GAMT6, 7e4));
    figure.ours("GAMT, IPv4, at 70,000 a second", panel.at(GAMT.name, 7e4));
    for subject in [GAMT, GAMT6] {
        let words = format!("{}, at 70,000 a second, batch of 16 Mi", subject.name);
        figure.ours(&words, panel.at(subject.name, 7e4));
    }
    figure.panels.push(panel);
    figure.note = "Where a rate is not reached, updates_per_s of the row tells. Updates are by peer; those of SAIL_L in the paper's \
                   layout are by origin, which its next hops of 8 bits can name."
        .into();
    Ok(figure)
}

/// Figure 17: lookup speed on other devices. One run has one device, which is measured without and with updates.
pub(super) fn figure_17(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Lookup speed on other GPUs", "updates a second");
    let panel = under_updates(bench, &mut figure, &[GAMT, GAMT_PAPER, GALE, GALE_PAPER], &[0.0, 7e4])?;
    figure.panels.push(panel);
    figure.note = "The device is the one named in this file; files of several hosts are the figure.".into();
    Ok(figure)
}

/// Figure 18: lookup speed and latency by streams, 256 K requests divided among them.
pub(super) fn figure_18(bench: &Bench<'_>) -> Result<Figure, Fault> {
    const REQUESTS: usize = 256 << 10;
    let mut figure = Figure::new("Lookup speed with controlled latency", "streams");
    let (mut speed, mut latency) =
        (Panel::new("million lookups a second"), Panel::new("mean latency, microseconds"));
    let all = [1_u16, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24];
    let papers = [GAMT_PAPER, GALE_PAPER].into_iter().filter(|_| !bench.args.quick);
    for subject in [GAMT, GALE, GAMT6].into_iter().chain(papers) {
        let Some(set) = bench.main_set(subject.family) else { continue };
        let keys = bench.stream(set, subject.family, &Traffic::Random)?;
        for streams in bench.some(&all) {
            let mut parameters = subject.parameters();
            // The paper's blocks and threads; the stream's number divides the requests.
            let shape =
                [("streams", streams.to_string()), ("blocks", "64".into()), ("threads", "1024".into())];
            parameters.extend(shape);
            let fed = ready(bench, &mut figure, set, subject, &parameters)?;
            let batch = (REQUESTS / usize::from(streams)).min(bench.args.keys());
            let driven = measure(bench, &fed, &keys, (batch, streams), Some(1))?;
            speed.add(subject.name, f64::from(streams), driven.mlps);
            latency.add(subject.name, f64::from(streams), driven.mean_us);
            figure.rows.push(with(row(set, subject, batch, &driven), json!({"streams": streams})));
        }
    }
    for subject in [GAMT, GALE, GAMT6] {
        // The fastest number of streams whose mean latency stays below the paper's limit.
        let points = latency.line(subject.name).into_iter().flat_map(|line| &line.points);
        let below = points.filter(|point| point.y.median < 100.0);
        let fast = below.filter_map(|point| Some((point, speed.at(subject.name, point.x)?)));
        let best = fast.max_by(|a, b| a.1.total_cmp(&b.1));
        let name = subject.name;
        figure.ours(&format!("{name}, below 100 microseconds"), best.map(|(_, mlps)| mlps));
        let streams = format!("{name}, streams that keep the latency below 100 microseconds");
        figure.ours(&streams, best.map(|(point, _)| point.x));
        let (number, comma) = match name {
            "GALE" => (18.0, ""),
            "GAMT, IPv4" => (12.0, ", below"),
            _ => (16.0, ""),
        };
        let words = format!("{name}, mean latency with {number} streams{comma}");
        figure.ours(&words, latency.at(name, number));
    }
    figure.panels = vec![speed, latency];
    figure.note = "Latency is from submit to answers in this process.".into();
    Ok(figure)
}

#[cfg(test)]
mod tests {
    use super::super::PAPER;
    use super::super::host_tables::load;
    use super::*;
    use crate::paper::data::tests::args;
    use fib::{Key, RibTable};
    use lpm_gpu::gamt::{GamtOptions, GamtTable};

    /// The bytes of a trie that was built with these levels: as the paper counts them, and of its units.
    fn built<K: Key>(levels: u8, routes: &RibTable<K>) -> [f64; 2] {
        let mut table =
            GamtTable::<K>::new(GamtOptions { levels: Some(levels), ..GamtOptions::default() }).unwrap();
        load(&mut table, routes).unwrap();
        [table.paper_bytes_per_prefix(), table.flat_bytes_per_prefix()]
    }

    #[test]
    fn bytes_by_levels_are_those_of_the_tries_and_the_width_never_grows_with_levels() {
        let args = args("--quick --generate v4=3000,v6=800 --keys 1K --threads 1 --point-seconds 0.001");
        let bench = Bench::new(&args, &PAPER, Err("none".into()), 1).unwrap();
        let set = &bench.sets[0];
        for (figure, levels, family) in [
            (figure_11(&bench).unwrap(), 4..=20_u8, Family::V4),
            (figure_15(&bench).unwrap(), 8..=30, Family::V6),
        ] {
            let memory = &figure.panels[1];
            let at = |name: &str, levels: u8| memory.at(name, levels.into()).unwrap();
            let rib = set.start(family, Hops::Origin, Start::Table);
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
