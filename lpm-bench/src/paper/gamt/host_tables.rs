//! Figures that need no device: the data, the platform, off-line updates (figure 13), accesses on the device (figure 14, the device's
//! kernels in plain Rust), memory (figure 19).

use crate::fault::Fault;
use crate::measure::cpu_s;
use crate::paper::Bench;
use crate::paper::data::{DataSet, Hops};
use crate::paper::figure::{Figure, Panel};
use crate::updates::Deltas;
use fib::host::Host;
use fib::{Change, EngineError, Family, Key, NextHopId, Rib, RibTable};
use lpm_bench::stats::{Spread, median};
use lpm_gpu::gale::model::{Accesses, GaleModel};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::{Due, HostTable, Image, Step};
use lpm_gpu::sail::{SailOptions, SailTable};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Levels of the paper's IPv4 trie.
const LEVELS: u8 = 6;
/// Updates of a delta off line: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;
/// Passes over the stream, forward and backward; their median is reported.
const PASSES: usize = 5;

/// The tables that are compared.
const KINDS: [TableKind; 4] = [TableKind::GamtS, TableKind::GamtT, TableKind::Gale, TableKind::Sail];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableKind {
    GamtS,
    GamtT,
    Gale,
    Sail,
}

impl TableKind {
    const fn name(self) -> &'static str {
        match self {
            Self::GamtS => "GAMT_S",
            Self::GamtT => "GAMT_T",
            Self::Gale => "GALE",
            Self::Sail => "SAIL_L",
        }
    }

    /// The table with the routes of `set`, in the state just after an upload.
    fn subject(self, set: &DataSet) -> Result<LoadedTable, Fault> {
        let gamt = |next_hops| GamtOptions { next_hops, levels: Some(LEVELS), ..GamtOptions::default() };
        // The paper's GALE never uploads a rebuilt table: every update is an operation on the device.
        let gale = GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() };
        let table: Result<Box<dyn HostTable<u32>>, EngineError> = match self {
            Self::GamtS => GamtTable::<u32>::new(gamt(NextHops::Apart)).map(boxed),
            Self::GamtT => GamtTable::<u32>::new(gamt(NextHops::Together)).map(boxed),
            Self::Gale => GaleTable::new(gale).map(boxed),
            Self::Sail => SailTable::new(SailOptions::default()).map(boxed),
        };
        let mut table = table.map_err(|source| self.fault(source))?;
        let rib = rib_of(set, Family::V4);
        load(&mut *table, &rib.v4).map_err(|source| self.fault(source))?;
        table.take_steps(0, &rib.v4);
        table.reclaim(0);
        Ok(LoadedTable { kind: self, table, rib })
    }

    fn fault(self, source: EngineError) -> Fault {
        Fault::Engine { engine: self.name().to_owned(), source }
    }
}

/// A table and the routes in it.
struct LoadedTable {
    kind: TableKind,
    table: Box<dyn HostTable<u32>>,
    rib: Rib,
}

impl LoadedTable {
    /// Keeps the routes up, as the RIB of a router does, for a table that reads them.
    fn tell(&mut self, changes: &[Change<u32>]) {
        if self.table.reads_routes() {
            for change in changes {
                self.rib.v4.set(change.prefix, change.new);
            }
            self.rib.take_delta();
        }
    }

    /// Makes `changes`, which were told.
    fn apply(&mut self, changes: &[Change<u32>]) -> Result<Due, Fault> {
        let due = self.table.apply(changes, &self.rib.v4, usize::MAX);
        due.map_err(|source| self.kind.fault(source))
    }

    /// The steps of update `update`, which is over with that.
    fn take_steps(&mut self, update: u64) -> Vec<Step> {
        let steps = self.table.take_steps(update, &self.rib.v4);
        self.table.reclaim(update);
        steps
    }

    fn image(&self) -> Image<'_> {
        self.table.image(&self.rib.v4)
    }
}

/// The routes of `set`, none left out.
pub(super) fn rib_of(set: &DataSet, family: Family) -> Rib {
    let mut rib = Rib::plain();
    rib.tell(&set.tables.told_of(family));
    rib.take_delta();
    rib
}

/// Has the empty `table` take `routes`, to be had as an image.
pub(super) fn load<K: Key>(table: &mut dyn HostTable<K>, routes: &RibTable<K>) -> Result<(), EngineError> {
    let added = |(prefix, new)| Change { prefix, old: NextHopId::NONE, new };
    match table.apply(&routes.used().map(added).collect::<Vec<_>>(), routes, usize::MAX)? {
        Due::Image => Ok(()),
        Due::Steps => table.rebuild(usize::MAX),
    }
}

fn boxed<T: HostTable<u32> + 'static>(table: T) -> Box<dyn HostTable<u32>> {
    Box::new(table)
}

/// Table 1: the data sets.
pub(super) fn table_1(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Routing data", "");
    for set in &bench.sets {
        for family in [Family::V4, Family::V6] {
            let lens = set.tables.lens(family);
            if lens.is_empty() {
                continue;
            }
            let mut stamps: BTreeMap<i64, u64> = BTreeMap::new();
            for told in &set.told {
                if told.prefix.family() == family {
                    #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
                    let second = told.time_s.floor() as i64;
                    *stamps.entry(second).or_default() += 1;
                }
            }
            let total: u64 = stamps.values().sum();
            figure.rows.push(json!({
                "name": set.name, "family": family.to_string(), "prefix": lens.len(),
                "length": lens.iter().max(), "stamp": stamps.len(), "total": total,
                "max": stamps.values().max(), "avg": total as f64 / stamps.len().max(1) as f64,
            }));
        }
    }
    let routes = |family| bench.main_set(family).map(|set| set.tables.routes(family) as f64);
    figure.ours("rrc12, IPv4: prefixes", routes(Family::V4));
    figure.ours("rrc12, IPv6: prefixes", routes(Family::V6));
    figure.note =
        "The paper's tables are of January 2013, its updates of one day; ours are named in data.".into();
    Ok(figure)
}

/// Table 2: the platform.
pub(super) fn table_2(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Experiment platform specification", "");
    let kib = Host::here().field("proc/meminfo", "MemTotal");
    figure.rows.push(json!({
        "platform": "this host", "cpu": bench.host.cpu_model, "cpus": bench.host.cpus, "ram": kib,
        "gpu": bench.device.as_ref().ok(), "no_gpu": bench.device.as_ref().err(),
    }));
    figure.rows.push(json!({
        "platform": "the paper's server", "cpu": "Intel Xeon E5-2630 (2.30 GHz, 6 cores)", "cpus": 12,
        "ram": "2 RDIMM 8 GB (1333 MHz)", "gpu": "NVIDIA Tesla C2075 (1.15 GHz, 5376 MB, 14 x 32 cores)",
    }));
    Ok(figure)
}

/// Each data set with IPv4 routes twice: next hops by origin, and by peer.
fn both_hops<'a>(bench: &'a Bench<'_>) -> impl Iterator<Item = (&'a DataSet, (Hops, &'static str))> {
    let sets = bench.sets.iter().filter(|set| !set.tables.v4.is_empty());
    sets.flat_map(|set| Hops::ALL.map(|hops| (set, hops)))
}

/// Figure 13: off-line update speed.
pub(super) fn figure_13(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Off-line update speed", "routing data");
    let mut panel = Panel::new("million updates a second");
    let mut with_steps = Panel::new("million updates a second, steps for the device included");
    let mut with_routes =
        Panel::new("million updates a second, the RIB's part included for tables that read it");
    for (x, (set, (hops, by))) in (0_u32..).zip(both_hops(bench)) {
        figure.x_names.push(format!("{} {by}", set.name));
        let x = f64::from(x);
        let deltas = set.deltas(Family::V4, Some(UPDATES_A_DELTA), hops);
        for kind in KINDS {
            let offline = off_line(kind, set, &deltas, if bench.args.quick { 1 } else { PASSES })?;
            panel.add(kind.name(), x, offline.mups);
            with_steps.add(kind.name(), x, offline.mups_with_steps);
            with_routes.add(kind.name(), x, offline.mups_with_routes);
            figure.rows.push(json!({
                "data": set.name, "next_hops": by, "table": kind.name(), "updates": deltas.changes(),
                "mups": offline.mups, "mups_with_steps": offline.mups_with_steps,
                "mups_with_routes": offline.mups_with_routes, "rebuilds": offline.rebuilds,
            }));
        }
    }
    figure.ours("GAMT_S, at most", panel.most(TableKind::GamtS.name()));
    figure.panels = vec![panel, with_steps, with_routes];
    figure.note = "CPU seconds of one thread, 64 updates a delta. GAMT keeps its routes in its trie, and notes which units the device \
                   needs. GALE and SAIL_L read them in the router's RIB, which the last panel counts as theirs: GALE then only lists what \
                   changed, SAIL_L draws the route on its arrays."
        .into();
    Ok(figure)
}

struct OffLine {
    mups: Spread,
    mups_with_steps: Spread,
    mups_with_routes: Spread,
    rebuilds: u64,
}

/// Applies the deltas forward and backward, `passes` times, and takes the steps for the device after each delta.
///
/// The thread's CPU time of a pass is divided between these and the upkeep of the routes in proportion to wall time, which costs less
/// to read.
fn off_line(kind: TableKind, set: &DataSet, deltas: &Deltas, passes: usize) -> Result<OffLine, Fault> {
    let mut subject = kind.subject(set)?;
    let (mut update, mut rebuilds) = (0, 0);
    let (mut rates, mut with_steps, mut with_routes) = (Vec::new(), Vec::new(), Vec::new());
    let ways = deltas.updates_v4();
    for _ in 0..passes {
        for way in &ways {
            let [mut routes, mut off_line, mut steps] = [Duration::ZERO; 3];
            let mut changes = 0;
            let start_s = cpu_s();
            for delta in way {
                let begun = Instant::now();
                subject.tell(delta);
                let start = Instant::now();
                let due = subject.apply(delta)?;
                let applied = Instant::now();
                update += 1;
                rebuilds += u64::from(due == Due::Image);
                subject.take_steps(update);
                routes += start - begun;
                off_line += applied - start;
                steps += applied.elapsed();
                changes += delta.len();
            }
            let took_s = cpu_s() - start_s;
            if changes > 0 && took_s > 0.0 {
                let all_s = (routes + off_line + steps).as_secs_f64();
                let mups = |part: Duration| changes as f64 / (took_s * part.as_secs_f64() / all_s) / 1e6;
                rates.push(mups(off_line));
                with_steps.push(mups(off_line + steps));
                with_routes.push(mups(routes + off_line));
            }
        }
    }
    let [mups, mups_with_steps, mups_with_routes] =
        [rates, with_steps, with_routes].map(|of| Spread::of(&of));
    Ok(OffLine { mups, mups_with_steps, mups_with_routes, rebuilds })
}

/// Figure 14: on-line update overhead.
pub(super) fn figure_14(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("On-line update overhead", "routing data");
    let mut panel = Panel::new("memory accesses on the device an update");
    let (mut reductions, mut of_writes, mut further) = (Vec::new(), Vec::new(), Vec::new());
    for (x, (set, (hops, by))) in (0_u32..).zip(both_hops(bench)) {
        figure.x_names.push(format!("{} {by}", set.name));
        let x = f64::from(x);
        let deltas = set.deltas(Family::V4, None, hops);
        let updates = deltas.changes().max(1) as f64;
        let [forward, _] = deltas.updates_v4();
        let mut of = |kind: TableKind| -> Result<(f64, f64), Fault> {
            let online = on_line(kind, set, &forward)?;
            let (loads, writes) =
                (online.accesses.loads as f64 / updates, online.accesses.writes as f64 / updates);
            panel.add(&format!("{} writes", kind.name()), x, writes);
            if loads > 0.0 {
                panel.add(&format!("{} loads", kind.name()), x, loads);
            }
            figure.rows.push(json!({
                "data": set.name, "next_hops": by, "table": kind.name(), "updates": deltas.changes(),
                "new_changed_withdrawn": deltas.kinds(), "deltas": deltas.forward.len(),
                "loads_an_update": loads, "writes_an_update": writes, "rebuilds": online.rebuilds,
                "image_words": online.image_words,
            }));
            Ok((loads, writes))
        };
        let [s, t, gale, _] = [of(KINDS[0])?, of(KINDS[1])?, of(KINDS[2])?, of(KINDS[3])?];
        if hops == Hops::Peer {
            reductions.push(100.0 * (1.0 - t.1 / (gale.0 + gale.1)));
            of_writes.push(100.0 * (1.0 - t.1 / gale.1));
            further.push(100.0 * (1.0 - s.1 / t.1));
        }
    }
    figure.ours("GAMT_T against GALE", median(&reductions));
    figure.ours("GAMT_T against GALE's writes alone", median(&of_writes));
    figure.ours("GAMT_S against GAMT_T", median(&further));
    figure.panels = vec![panel];
    figure.note = "Updates of one second are one delta, so what several of them write to one unit is one bubble; GALE's accesses \
                   are those of its kernel run in plain Rust. Of next hops by peer most updates only change the next hop, as in \
                   the paper's traces; by origin most bring a route or take it away."
        .into();
    Ok(figure)
}

struct OnLine {
    accesses: Accesses,
    rebuilds: u64,
    image_words: u64,
}

fn on_line(kind: TableKind, set: &DataSet, deltas: &[Vec<Change<u32>>]) -> Result<OnLine, Fault> {
    let mut subject = kind.subject(set)?;
    let mut model = (kind == TableKind::Gale).then(|| GaleModel::new(&subject.image()));
    let mut online = OnLine { accesses: Accesses::default(), rebuilds: 0, image_words: 0 };
    for (update, delta) in (1..).zip(deltas) {
        subject.tell(delta);
        let due = subject.apply(delta)?;
        let steps = subject.take_steps(update);
        if due == Due::Image {
            online.rebuilds += 1;
            let image = subject.image();
            online.image_words += image.runs.iter().map(|(_, words)| words.len() as u64).sum::<u64>();
            if let Some(model) = &mut model {
                *model = GaleModel { accesses: model.accesses, ..GaleModel::new(&image) };
            }
            continue;
        }
        for step in &steps {
            match (step, &mut model) {
                (Step::Writes(writes), _) => online.accesses.writes += writes.len() as u64,
                (Step::Ops(ops), Some(model)) => model.run(ops),
                (Step::Ops(_), None) => {}
            }
        }
    }
    if let Some(model) = model {
        online.accesses = model.accesses;
    }
    Ok(online)
}

/// Figure 19: memory on the device, over the updates.
pub(super) fn figure_19(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Memory consumptions", "updates");
    let mut panel = Panel::new("MB on the device");
    let Some(set) = bench.main_set(Family::V4) else {
        return Ok(figure.without(Family::V4));
    };
    let deltas = set.deltas(Family::V4, None, Hops::Peer);
    let [forward, _] = deltas.updates_v4();
    let mb = |words: f64| words * 4.0 / f64::from(1 << 20);
    let gale_mb = mb(TableKind::Gale.subject(set)?.image().words as f64);
    let mut grown = Vec::new();
    let rib = rib_of(set, Family::V4);
    let (mut total_mb, mut bytes_a_prefix) = (0.0, 0.0);
    for (layout, name) in
        [(Layout::Paper, "GAMT, 6 levels, paper's layout"), (Layout::Flat, "GAMT, 6 levels, flat layout")]
    {
        let options = GamtOptions { layout, levels: Some(LEVELS), ..GamtOptions::default() };
        let fault = |source| TableKind::GamtT.fault(source);
        let mut table = GamtTable::<u32>::new(options).map_err(fault)?;
        load(&mut table, &rib.v4).map_err(fault)?;
        table.take_steps(0, &rib.v4);
        let width = |table: &GamtTable<u32>| f64::from(table.units_used().into_iter().max().unwrap_or(0));
        let before = width(&table);
        if layout == Layout::Paper {
            bytes_a_prefix = table.paper_bytes_per_prefix();
            total_mb = 2.0 * mb(table.shape().words as f64);
        }
        let (mut done, mut rebuilds) = (0, 0);
        let every = forward.len().div_ceil(50).max(1);
        for (at, delta) in forward.iter().enumerate() {
            if at % every == 0 {
                panel.add(
                    &format!("{name}, two tables with head room"),
                    f64::from(done),
                    2.0 * mb(table.shape().words as f64),
                );
            }
            let due = table.apply(delta, &rib.v4, usize::MAX).map_err(fault)?;
            rebuilds += u64::from(due == Due::Image);
            table.take_steps(at as u64 + 1, &rib.v4);
            table.reclaim(at as u64 + 1);
            done += u32::try_from(delta.len()).unwrap_or(0);
        }
        let growth = 100.0 * (width(&table) / before.max(1.0) - 1.0);
        grown.push(growth);
        figure.rows.push(json!({
            "table": name, "routes": set.tables.v4.len(), "width_units": before, "grown_percent": growth,
            "updates": done, "rebuilds": rebuilds, "mb_with_head_room_twice": 2.0 * mb(table.shape().words as f64),
            "bytes_a_prefix_paper": table.paper_bytes_per_prefix(), "bytes_a_prefix_flat": table.flat_bytes_per_prefix(),
        }));
    }
    panel.add("GALE", 0.0, gale_mb);
    panel.add("GALE", deltas.changes() as f64, gale_mb);
    figure.ours("GALE", gale_mb);
    figure.ours("GAMT, 6 levels", bytes_a_prefix);
    figure.ours("GAMT, 6 levels, head room and backup", total_mb);
    figure.ours("the same of GALE's", 100.0 * total_mb / gale_mb);
    figure.ours("array width grown over the updates, less than", grown.first().copied());
    figure.panels = vec![panel];
    figure.note = "The paper's rectangle is as wide as its widest level six times over; levels behind each other take what they \
                   need. Its updates are a week's, ours are those named in data."
        .into();
    Ok(figure)
}
