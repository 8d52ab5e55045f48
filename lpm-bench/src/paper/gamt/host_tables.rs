//! Figures that need no device: the data, the platform, off-line updates (figure 13), accesses on the device (figure 14, the device's
//! kernels in plain Rust), memory (figure 19).

use crate::fault::Fault;
use crate::paper::Bench;
use crate::paper::data::{DataSet, Hops, Start};
use crate::paper::figure::{Figure, Panel, with};
use crate::updates::Deltas;
use fib::host::Host;
use fib::{Change, EngineError, Family, Key, NextHopId, Rib, RibTable};
use lpm_bench::stats::{Spread, median};
use lpm_gpu::gale::model::{Accesses, GaleModel};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::{Due, HostTable, Image, Step};
use lpm_gpu::sail::{SailOptions, SailTable};
use serde_json::{Value, json};
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

    /// The table with the routes of `rib`, in the state just after an upload.
    fn subject(self, rib: Rib) -> Result<LoadedTable, Fault> {
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
            let counts = UpdateCounts::of(set, family);
            figure.rows.push(json!({
                "name": set.name, "family": family.to_string(), "prefix": lens.len(),
                "length": lens.iter().max(), "stamp": counts.seconds, "total": counts.total,
                "max": counts.most, "avg": counts.mean(),
            }));
        }
    }
    for (family, words) in [(Family::V4, "rrc12, IPv4:"), (Family::V6, "rrc12, IPv6:")] {
        let Some(set) = bench.main_set(family) else { continue };
        let counts = UpdateCounts::of(set, family);
        let mut ours = |what: &str, value: f64| figure.ours(&format!("{words} {what}"), value);
        ours("prefixes", set.tables.routes(family) as f64);
        ours("longest prefix", set.tables.lens(family).iter().max().map_or(0.0, |len| f64::from(*len)));
        ours("seconds with updates", counts.seconds as f64);
        ours("updates of a day", counts.total as f64);
        ours("updates in a second, at most", counts.most as f64);
        ours("updates in a second, mean", counts.mean());
    }
    figure.note =
        "The paper's tables are of January 2013, its updates of one day; ours, and how long they are, are named in data."
            .into();
    Ok(figure)
}

/// The updates of one family in a stream.
struct UpdateCounts {
    /// Seconds with at least one.
    seconds: u64,
    total: u64,
    /// In one second.
    most: u64,
}

impl UpdateCounts {
    fn of(set: &DataSet, family: Family) -> Self {
        let mut stamps: BTreeMap<i64, u64> = BTreeMap::new();
        for told in set.told_of(family) {
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let second = told.time_s.floor() as i64;
            *stamps.entry(second).or_default() += 1;
        }
        let most = stamps.values().copied().max().unwrap_or(0);
        Self { seconds: stamps.len() as u64, total: stamps.values().sum(), most }
    }

    /// A second that has any.
    fn mean(&self) -> f64 {
        self.total as f64 / self.seconds.max(1) as f64
    }
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

/// What updates are applied to and how their next hops are told: a position on the axis of figures 13 and 14.
struct Case<'a> {
    set: &'a DataSet,
    hops: Hops,
    start: Start,
    name: String,
}

impl Case<'_> {
    /// Each data set with IPv4 routes, by each kind of next hop, from each start.
    fn all<'a>(bench: &'a Bench<'_>) -> Vec<Case<'a>> {
        let mut all = Vec::new();
        for set in bench.sets.iter().filter(|set| !set.tables.v4.is_empty()) {
            for (start, from) in Start::ALL {
                for (hops, by) in Hops::ALL {
                    all.push(Case { set, hops, start, name: format!("{}, {from}, {by}", set.name) });
                }
            }
        }
        all
    }

    /// The routes before the first update.
    fn routes(&self) -> Rib {
        self.set.start(Family::V4, self.hops, self.start)
    }

    /// The updates, in deltas of `size` or of one second.
    fn deltas(&self, size: Option<usize>) -> Deltas {
        self.set.deltas(Family::V4, size, self.hops, self.start)
    }

    /// The fields of a row: updates of the stream, those that change something, and the share of the others.
    fn fields(&self, deltas: &Deltas) -> Value {
        let told = self.set.told_of(Family::V4).count();
        json!({
            "data": self.set.name, "case": self.name, "updates": told, "changes": deltas.changes(),
            "unchanged_percent": 100.0 * (1.0 - deltas.changes() as f64 / told.max(1) as f64),
            "new_changed_withdrawn": deltas.kinds(), "deltas": deltas.forward.len(),
        })
    }
}

/// Figure 13: off-line update speed.
pub(super) fn figure_13(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("Off-line update speed", "routing data");
    let mut panel = Panel::new("million updates a second");
    let mut with_steps = Panel::new("million updates a second, steps for the device included");
    let mut with_routes =
        Panel::new("million updates a second, the RIB's part included for tables that read it");
    for (x, case) in (0_u32..).zip(Case::all(bench)) {
        figure.x_names.push(case.name.clone());
        bench.name_traffic(format!("updates of {}, {UPDATES_A_DELTA} a delta", case.set.updates_source));
        let x = f64::from(x);
        let deltas = case.deltas(Some(UPDATES_A_DELTA));
        for kind in KINDS {
            let offline = off_line(kind, &case, &deltas, if bench.args.quick { 1 } else { PASSES })?;
            panel.add(kind.name(), x, offline.mups);
            with_steps.add(kind.name(), x, offline.mups_with_steps);
            with_routes.add(kind.name(), x, offline.mups_with_routes);
            let own = json!({
                "table": kind.name(), "mups": offline.mups, "mups_with_steps": offline.mups_with_steps,
                "mups_with_routes": offline.mups_with_routes, "rebuilds": offline.rebuilds,
            });
            figure.rows.push(with(case.fields(&deltas), own));
        }
    }
    figure.ours("GAMT_S, at most", panel.most(TableKind::GamtS.name()));
    figure.panels = vec![panel, with_steps, with_routes];
    figure.note = "Seconds of the wall, one thread; updates that change nothing are not counted. GAMT keeps its routes in its trie, and notes which units the device \
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
fn off_line(kind: TableKind, case: &Case<'_>, deltas: &Deltas, passes: usize) -> Result<OffLine, Fault> {
    let mut subject = kind.subject(case.routes())?;
    let (mut update, mut rebuilds) = (0, 0);
    let (mut rates, mut with_steps, mut with_routes) = (Vec::new(), Vec::new(), Vec::new());
    let ways = deltas.updates_v4();
    for _ in 0..passes {
        for way in &ways {
            let [mut routes, mut off_line, mut steps] = [Duration::ZERO; 3];
            let mut changes = 0;
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
            let mups = |part: Duration| changes as f64 / part.as_secs_f64().max(1e-9) / 1e6;
            rates.push(mups(off_line));
            with_steps.push(mups(off_line + steps));
            with_routes.push(mups(routes + off_line));
        }
    }
    let [mups, mups_with_steps, mups_with_routes] =
        [rates, with_steps, with_routes].map(|of| Spread::of(&of));
    Ok(OffLine { mups, mups_with_steps, mups_with_routes, rebuilds })
}

/// Figure 14: on-line update overhead.
pub(super) fn figure_14(bench: &Bench<'_>) -> Result<Figure, Fault> {
    let mut figure = Figure::new("On-line update overhead", "routing data");
    let [mut panel, mut a_change] = ["an update", "a change, updates that change nothing left out"]
        .map(|of| Panel::new(&format!("memory accesses on the device, {of}")));
    let (mut reductions, mut of_writes, mut further) = (Vec::new(), Vec::new(), Vec::new());
    for (x, case) in (0_u32..).zip(Case::all(bench)) {
        figure.x_names.push(case.name.clone());
        bench.name_traffic(format!("updates of {}, a second a delta", case.set.updates_source));
        let x = f64::from(x);
        let deltas = case.deltas(None);
        let [forward, _] = deltas.updates_v4();
        let told = case.set.told_of(Family::V4).count().max(1) as f64;
        let changes = deltas.changes().max(1) as f64;
        let mut of = |kind: TableKind| -> Result<(f64, f64), Fault> {
            let OnLine { accesses, rebuilds, image_words } = on_line(kind, &case, &forward)?;
            let (loads, writes) = (accesses.loads as f64, accesses.writes as f64);
            for (panel, count) in [(&mut panel, told), (&mut a_change, changes)] {
                panel.add(&format!("{} writes", kind.name()), x, writes / count);
                if loads > 0.0 {
                    panel.add(&format!("{} loads", kind.name()), x, loads / count);
                }
            }
            let own = json!({
                "table": kind.name(), "loads_an_update": loads / told, "writes_an_update": writes / told,
                "loads_a_change": loads / changes, "writes_a_change": writes / changes,
                "rebuilds": rebuilds, "image_words": image_words,
            });
            figure.rows.push(with(case.fields(&deltas), own));
            Ok((loads, writes))
        };
        let [s, t, gale, _] = [of(KINDS[0])?, of(KINDS[1])?, of(KINDS[2])?, of(KINDS[3])?];
        // The paper's: the updates of a router's own peers.
        if (case.hops, case.start) == (Hops::Peer, Start::OwnState) {
            reductions.push(100.0 * (1.0 - t.1 / (gale.0 + gale.1)));
            of_writes.push(100.0 * (1.0 - t.1 / gale.1));
            further.push(100.0 * (1.0 - s.1 / t.1));
        }
    }
    figure.ours("GAMT_T against GALE", median(&reductions));
    figure.ours("GAMT_T against GALE's writes alone", median(&of_writes));
    figure.ours("GAMT_S against GAMT_T", median(&further));
    figure.panels = vec![panel, a_change];
    figure.note = "Updates of one second are one delta, so what several of them write to one unit is one bubble; GALE's accesses \
                   are those of its kernel run in plain Rust. The paper counts every update of its traces, so does the first graph. \
                   Own state is what the stream itself leads to; the numbers for the paper's are of it and of next hops by peer."
        .into();
    Ok(figure)
}

struct OnLine {
    accesses: Accesses,
    rebuilds: u64,
    image_words: u64,
}

fn on_line(kind: TableKind, case: &Case<'_>, deltas: &[Vec<Change<u32>>]) -> Result<OnLine, Fault> {
    let mut subject = kind.subject(case.routes())?;
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
    let mb = |words: f64| words * 4.0 / f64::from(1 << 20);
    let gale_mb =
        mb(TableKind::Gale.subject(set.start(Family::V4, Hops::Peer, Start::Table))?.image().words as f64);
    for (start, from) in Start::ALL {
        let case = Case { set, hops: Hops::Peer, start, name: from.into() };
        let deltas = case.deltas(None);
        for (layout, name) in [(Layout::Paper, "paper's layout"), (Layout::Flat, "flat layout")] {
            let name = format!("GAMT, {LEVELS} levels, {name}, from {from}");
            let grown = grow(&mut panel, &name, layout, &case, &deltas)?;
            let one_mb = mb(grown.width * f64::from(LEVELS));
            if (layout, start) == (Layout::Paper, Start::Table) {
                figure.ours("GAMT, 6 levels", grown.bytes_a_prefix);
                figure.ours("GAMT, 6 levels, head room and backup", 2.0 * mb(grown.words));
                figure.ours("the same of GALE's", 200.0 * mb(grown.words) / gale_mb);
                // 22 bytes a prefix are one trie, which is 85 % less than GALE; the paper's 70.3 % are two with head room.
                let less = |mb: f64| 100.0 * (1.0 - mb / gale_mb);
                figure.ours_of(
                    "GAMT, 6 levels, less than GALE by",
                    "two with head room",
                    less(2.0 * mb(grown.words)),
                );
                figure.ours_of("GAMT, 6 levels, less than GALE by", "one without", less(one_mb));
            }
            if layout == Layout::Paper {
                figure.ours_of("array width grown over the updates, less than", from, grown.percent);
            }
            let own = json!({
                "table": name, "routes": grown.routes, "width_units": grown.width, "grown_percent": grown.percent,
                "rebuilds": grown.rebuilds, "mb": one_mb, "mb_with_head_room_twice": 2.0 * mb(grown.words),
                "bytes_a_prefix_paper": grown.bytes_a_prefix, "bytes_a_prefix_flat": grown.bytes_a_prefix_flat,
            });
            figure.rows.push(with(case.fields(&deltas), own));
        }
        panel.add("GALE", 0.0, gale_mb);
        panel.add("GALE", deltas.changes() as f64, gale_mb);
    }
    bench.name_traffic(format!("updates of {}, a second a delta", set.updates_source));
    figure.ours("GALE", gale_mb);
    figure.panels = vec![panel];
    figure.note = "Width and bytes a prefix are as the paper counts them: without head room and without the row that no code leads \
                   to. The graph has both tables with head room. The paper's updates are a week's."
        .into();
    Ok(figure)
}

/// A trie before its updates, and how it grew.
struct Grown {
    routes: usize,
    /// Units of the widest level, in use.
    width: f64,
    /// 32-bit words of one table on the device, head room included.
    words: f64,
    bytes_a_prefix: f64,
    bytes_a_prefix_flat: f64,
    /// How much wider the widest level was at the end.
    percent: f64,
    rebuilds: u64,
}

/// Applies `deltas` to a GAMT trie, whose memory becomes the line `name`.
fn grow(
    panel: &mut Panel,
    name: &str,
    layout: Layout,
    case: &Case<'_>,
    deltas: &Deltas,
) -> Result<Grown, Fault> {
    let (rib, [forward, _]) = (case.routes(), deltas.updates_v4());
    let options = GamtOptions { layout, levels: Some(LEVELS), ..GamtOptions::default() };
    let fault = |source| TableKind::GamtT.fault(source);
    let mut table = GamtTable::<u32>::new(options).map_err(fault)?;
    load(&mut table, &rib.v4).map_err(fault)?;
    table.take_steps(0, &rib.v4);
    let width = |table: &GamtTable<u32>| f64::from(table.units_used().into_iter().max().unwrap_or(0));
    let mut grown = Grown {
        routes: rib.v4.len(),
        width: width(&table),
        words: table.shape().words as f64,
        bytes_a_prefix: table.paper_bytes_per_prefix(),
        bytes_a_prefix_flat: table.flat_bytes_per_prefix(),
        percent: 0.0,
        rebuilds: 0,
    };
    let mut done = 0_u32;
    let every = forward.len().div_ceil(50).max(1);
    for (at, delta) in forward.iter().enumerate() {
        if at % every == 0 {
            panel.add(name, f64::from(done), 2.0 * table.shape().words as f64 * 4.0 / f64::from(1 << 20));
        }
        let due = table.apply(delta, &rib.v4, usize::MAX).map_err(fault)?;
        grown.rebuilds += u64::from(due == Due::Image);
        table.take_steps(at as u64 + 1, &rib.v4);
        table.reclaim(at as u64 + 1);
        done += u32::try_from(delta.len()).unwrap_or(0);
    }
    grown.percent = 100.0 * (width(&table) / grown.width.max(1.0) - 1.0);
    Ok(grown)
}
