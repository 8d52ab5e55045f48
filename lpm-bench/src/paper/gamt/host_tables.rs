//! Updates of the tables on the host: off line (figure 13), and accesses on the device (figure 14, with the device's kernels in plain Rust).

use crate::paper::bench::{
    Bench, DataSet, EngineError, Family, Fault, Figure, HopSource, NextHopId, Result, Rib, Spread, Start,
    Value, json, median, with,
};
use crate::updates::Deltas;
use fib::{Change, Key, RibTable};
use lpm_gpu::gale::model::{Accesses, GaleModel};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::gamt::{GamtOptions, GamtTable, NextHops};
use lpm_gpu::host::{Due, HostTable, Image, UpdateStep};
use lpm_gpu::sail::{SailOptions, SailTable};
use std::time::{Duration, Instant};

pub(super) const LEVELS: u8 = 6;
/// Updates of a delta off line: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;
/// Passes over the stream, forward and backward; their median is reported.
const PASSES: usize = 5;

pub(super) const KINDS: [TableKind; 4] =
    [TableKind::GamtS, TableKind::GamtT, TableKind::Gale, TableKind::Sail];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableKind {
    GamtS,
    GamtT,
    Gale,
    Sail,
}

impl TableKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::GamtS => "GAMT_S",
            Self::GamtT => "GAMT_T",
            Self::Gale => "GALE",
            Self::Sail => "SAIL_L",
        }
    }

    /// The table with the routes of `rib`, in the state just after an upload.
    pub(super) fn subject(self, rib: Rib) -> Result<UpdatedTable> {
        let gamt = |next_hops| GamtOptions { next_hops, levels: Some(LEVELS), ..GamtOptions::default() };
        // The paper's GALE never uploads a rebuilt table: every update is an operation on the device.
        let gale = GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() };
        let table = match self {
            Self::GamtS => loaded(GamtTable::new(gamt(NextHops::Apart)), &rib.v4),
            Self::GamtT => loaded(GamtTable::new(gamt(NextHops::Together)), &rib.v4),
            Self::Gale => loaded(GaleTable::new(gale), &rib.v4),
            Self::Sail => loaded(SailTable::new(SailOptions::default()), &rib.v4),
        };
        let mut table = table.map_err(Fault::refused_by(self.name()))?;
        table.take_steps(0, &rib.v4);
        table.reclaim(0);
        Ok(UpdatedTable { kind: self, table, rib })
    }
}

pub(super) struct UpdatedTable {
    kind: TableKind,
    pub(super) table: Box<dyn HostTable<u32>>,
    pub(super) rib: Rib,
}

impl UpdatedTable {
    /// Updates the routes, as a router's RIB does, for a table that reads them.
    fn update_routes(&mut self, changes: &[Change<u32>]) {
        if self.table.reads_routes() {
            for change in changes {
                self.rib.v4.set(change.prefix, change.new);
            }
            self.rib.take_delta();
        }
    }

    fn apply(&mut self, changes: &[Change<u32>]) -> Result<Due> {
        self.table.apply(changes, &self.rib.v4).map_err(Fault::refused_by(self.kind.name()))
    }

    fn take_steps(&mut self, update: u64) -> Vec<UpdateStep> {
        let steps = self.table.take_steps(update, &self.rib.v4);
        self.table.reclaim(update);
        steps
    }

    pub(super) fn image(&self) -> Image<'_> {
        self.table.image(&self.rib.v4)
    }
}

pub(in crate::paper) fn load<K: Key>(
    table: &mut dyn HostTable<K>,
    routes: &RibTable<K>,
) -> Result<(), EngineError> {
    let added = |(prefix, new)| Change { prefix, old: NextHopId::NONE, new };
    match table.apply(&routes.used().map(added).collect::<Vec<_>>(), routes)? {
        Due::Image => Ok(()),
        Due::Steps => table.rebuild(),
    }
}

fn loaded<T: HostTable<u32> + 'static>(
    table: Result<T, EngineError>,
    routes: &RibTable<u32>,
) -> Result<Box<dyn HostTable<u32>>, EngineError> {
    let mut table = table?;
    load(&mut table, routes)?;
    Ok(Box::new(table))
}

/// A data set with a choice of next hops and start: a position on the axis of figures 13 and 14.
pub(super) struct Case<'a> {
    pub(super) set: &'a DataSet,
    pub(super) hops: HopSource,
    pub(super) start: Start,
    pub(super) name: String,
}

impl Case<'_> {
    fn all(bench: &Bench) -> Vec<Case<'_>> {
        let mut all = Vec::new();
        for set in bench.sets(Family::V4) {
            for (start, from) in Start::ALL {
                for (hops, by) in HopSource::ALL {
                    all.push(Case { set, hops, start, name: format!("{}, {from}, {by}", set.name) });
                }
            }
        }
        all
    }

    pub(super) fn routes(&self) -> Rib {
        self.set.start(Family::V4, self.hops, self.start)
    }

    /// The updates, in deltas of `size` or of one second.
    pub(super) fn deltas(&self, size: Option<usize>) -> Deltas {
        self.set.deltas(Family::V4, size, self.hops, self.start)
    }

    pub(super) fn fields(&self, deltas: &Deltas) -> Value {
        let updates = self.set.updates_of(Family::V4).count();
        json!({
            "data": self.set.name, "case": self.name, "updates": updates, "changes": deltas.changes(),
            "unchanged_percent": 100.0 * (1.0 - deltas.changes() as f64 / updates.max(1) as f64),
            "new_changed_withdrawn": deltas.kinds(), "deltas": deltas.forward.len(),
        })
    }
}

pub(super) fn figure_13(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let cases = Case::all(bench);
    figure.name_places(cases.iter().map(|case| &case.name));
    for (x, case) in (0_u32..).zip(&cases) {
        bench.name_traffic(format!("updates of {}, {UPDATES_A_DELTA} a delta", case.set.updates_source));
        let deltas = case.deltas(Some(UPDATES_A_DELTA));
        for kind in KINDS {
            let (speeds, rebuilds) =
                off_line(kind, case, &deltas, if bench.args.quick { 1 } else { PASSES })?;
            for (panel, speed) in speeds.into_iter().enumerate() {
                figure.add(panel, kind.name(), x, speed);
            }
            let [mups, mups_with_steps, mups_with_routes] = speeds;
            let own = json!({
                "table": kind.name(), "mups": mups, "mups_with_steps": mups_with_steps,
                "mups_with_routes": mups_with_routes, "rebuilds": rebuilds,
            });
            figure.rows.push(with(case.fields(&deltas), own));
        }
    }
    figure.record("GAMT_S, at most", figure.panels[0].most(TableKind::GamtS.name()));
    Ok(())
}

/// Applies the deltas forward and backward, `passes` times, and takes the steps for the device after each delta. Returns millions of
/// updates a second, of the table alone, with the steps, and with the routes, and the number of rebuilds.
fn off_line(kind: TableKind, case: &Case<'_>, deltas: &Deltas, passes: usize) -> Result<([Spread; 3], u64)> {
    let mut subject = kind.subject(case.routes())?;
    let (mut update, mut rebuilds, mut mups) = (0, 0, [const { Vec::new() }; 3]);
    let ways = deltas.updates_v4();
    for way in (0..passes).flat_map(|_| &ways) {
        let [mut routes, mut off_line, mut steps] = [Duration::ZERO; 3];
        for delta in way {
            let begun = Instant::now();
            subject.update_routes(delta);
            let start = Instant::now();
            let due = subject.apply(delta)?;
            let applied = Instant::now();
            update += 1;
            rebuilds += u64::from(due == Due::Image);
            subject.take_steps(update);
            routes += start - begun;
            off_line += applied - start;
            steps += applied.elapsed();
        }
        let changes = way.iter().map(Vec::len).sum::<usize>() as f64;
        for (mups, time) in mups.iter_mut().zip([off_line, off_line + steps, routes + off_line]) {
            mups.push(changes / time.as_secs_f64().max(1e-9) / 1e6);
        }
    }
    Ok((mups.map(Spread::from_iter), rebuilds))
}

pub(super) fn figure_14(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let (mut reductions, mut of_writes, mut further) = (Vec::new(), Vec::new(), Vec::new());
    let cases = Case::all(bench);
    figure.name_places(cases.iter().map(|case| &case.name));
    for (x, case) in (0_u32..).zip(&cases) {
        bench.name_traffic(format!("updates of {}, a second a delta", case.set.updates_source));
        let deltas = case.deltas(None);
        let [forward, _] = deltas.updates_v4();
        let updates = case.set.updates_of(Family::V4).count().max(1) as f64;
        let changes = deltas.changes().max(1) as f64;
        let mut of = |kind: TableKind| -> Result<[f64; 2]> {
            let OnLine { accesses, rebuilds, image_words } = on_line(kind, case, &forward)?;
            let (loads, writes) = (accesses.loads as f64, accesses.writes as f64);
            for (panel, count) in [updates, changes].into_iter().enumerate() {
                figure.add(panel, &format!("{} writes", kind.name()), x, writes / count);
                if loads > 0.0 {
                    figure.add(panel, &format!("{} loads", kind.name()), x, loads / count);
                }
            }
            let own = json!({
                "table": kind.name(), "loads_an_update": loads / updates, "writes_an_update": writes / updates,
                "loads_a_change": loads / changes, "writes_a_change": writes / changes,
                "rebuilds": rebuilds, "image_words": image_words,
            });
            figure.rows.push(with(case.fields(&deltas), own));
            Ok([loads, writes])
        };
        let [[_, s], [_, t], [gale_loads, gale_writes], _] =
            [of(KINDS[0])?, of(KINDS[1])?, of(KINDS[2])?, of(KINDS[3])?];
        // The paper's case: the updates of a router's own peers.
        if (case.hops, case.start) == (HopSource::Peer, Start::OwnState) {
            reductions.push(100.0 * (1.0 - t / (gale_loads + gale_writes)));
            of_writes.push(100.0 * (1.0 - t / gale_writes));
            further.push(100.0 * (1.0 - s / t));
        }
    }
    figure.record("GAMT_T against GALE", median(&reductions));
    figure.record("GAMT_T against GALE's writes alone", median(&of_writes));
    figure.record("GAMT_S against GAMT_T", median(&further));
    Ok(())
}

#[derive(Default)]
struct OnLine {
    accesses: Accesses,
    rebuilds: u64,
    image_words: u64,
}

fn on_line(kind: TableKind, case: &Case<'_>, deltas: &[Vec<Change<u32>>]) -> Result<OnLine> {
    let mut subject = kind.subject(case.routes())?;
    let mut model = (kind == TableKind::Gale).then(|| GaleModel::new(&subject.image()));
    let mut online = OnLine::default();
    for (update, delta) in (1..).zip(deltas) {
        subject.update_routes(delta);
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
                (UpdateStep::Writes(writes), _) => online.accesses.writes += writes.len() as u64,
                (UpdateStep::Ops(ops), Some(model)) => model.run(ops),
                (UpdateStep::Ops(_), None) => {}
            }
        }
    }
    if let Some(model) = model {
        online.accesses = model.accesses;
    }
    Ok(online)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::gamt::PAPER;
    use crate::paper::testing::{bench, bench_of};

    /// A /8, a /16 in it that is added and withdrawn, a new next hop of the /8, and a redundant update. Origins differ where the peers do.
    const UPDATES: &str = "1.0 a 10.1.0.0/16 192.0.2.1 64501\n2.0 a 10.0.0.0/8 192.0.2.2 64502\n\
                           2.5 a 10.0.0.0/8 192.0.2.2 64502\n3.0 w 10.1.0.0/16 192.0.2.1 64501\n\
                           4.0 a 10.0.0.0/8 192.0.2.2 64502\n";

    fn accesses() -> Figure {
        PAPER.make("fig14", &bench_of("10.0.0.0/8 1\n11.0.0.0/8 1\n", UPDATES, &PAPER)).unwrap()
    }

    fn row<'a>(figure: &'a Figure, case: &str, table: &str) -> &'a Value {
        let is_it = |row: &&Value| row["case"].as_str().unwrap().ends_with(case) && row["table"] == table;
        figure.rows.iter().find(is_it).unwrap_or_else(|| panic!("{case}, {table}"))
    }

    fn number(row: &Value, column: &str) -> f64 {
        row[column].as_f64().unwrap()
    }

    /// GALE's accesses by hand: it loads each /24 of a prefix, and writes those without a longer route.
    #[test]
    fn accesses_are_those_of_every_unit_and_are_divided_by_all_updates() {
        let figure = accesses();
        let (small, large) = (f64::from(1 << 8), f64::from(1 << 16));
        let gale = row(&figure, "the table, by peer", "GALE");
        let (loads, writes) = (small + large + small, small + (large - small) + small);
        assert_eq!((number(gale, "updates"), number(gale, "changes")), (5.0, 3.0));
        assert_eq!(number(gale, "unchanged_percent"), 40.0);
        for (column, wanted) in [
            ("loads_an_update", loads / 5.0),
            ("writes_an_update", writes / 5.0),
            ("loads_a_change", loads / 3.0),
            ("writes_a_change", writes / 3.0),
        ] {
            assert!((number(gale, column) - wanted).abs() < 1e-6, "{column}: {gale}");
        }
        // From the stream's own state the /8 starts with its last next hop, so only the /16 changes.
        let own = row(&figure, "own state, by peer", "GALE");
        assert_eq!((number(own, "changes"), number(own, "loads_a_change")), (2.0, small));
        let at = |case: &str, table: &str| number(row(&figure, case, table), "writes_an_update");
        for case in
            ["own state, by origin", "own state, by peer", "the table, by origin", "the table, by peer"]
        {
            assert!(
                at(case, "GAMT_S") <= at(case, "GAMT_T") && at(case, "GAMT_T") < at(case, "GALE"),
                "{case}"
            );
        }
        // With next hops apart, the /8's new next hop is not written on the device: only the /16 costs units.
        assert!(at("the table, by peer", "GAMT_S") < at("the table, by peer", "GAMT_T"));
        let x = figure.x_names.iter().position(|name| name.ends_with("the table, by peer")).unwrap() as f64;
        let [an_update, a_change] =
            [0, 1].map(|panel: usize| figure.panels[panel].value_at("GALE loads", x).unwrap());
        assert!((an_update - loads / 5.0).abs() < 1e-6 && (a_change - loads / 3.0).abs() < 1e-6);
        // The paper's reductions are for the stream's own peers on their own state.
        let case = "own state, by peer";
        let of = |table: &str, column: &str| number(row(&figure, case, table), column);
        let (s, t) = (of("GAMT_S", "writes_an_update"), of("GAMT_T", "writes_an_update"));
        let (loads, writes) = (of("GALE", "loads_an_update"), of("GALE", "writes_an_update"));
        for (words, wanted) in [
            ("GAMT_T against GALE", 1.0 - t / (loads + writes)),
            ("GAMT_T against GALE's writes alone", 1.0 - t / writes),
            ("GAMT_S against GAMT_T", 1.0 - s / t),
        ] {
            assert!((figure.ours_at(words, "").unwrap() - 100.0 * wanted).abs() < 1e-6, "{words}");
        }
    }

    #[test]
    fn off_line_speeds_are_changes_over_their_time() {
        let figure = PAPER.make("fig13", &bench("--quick --generate v4=300", &PAPER)).unwrap();
        let median = |row: &Value, column: &str| row[column]["median"].as_f64().unwrap();
        let mut fastest = 0.0_f64;
        for row in &figure.rows {
            let alone = median(row, "mups");
            assert!(
                alone > 0.0
                    && median(row, "mups_with_steps") <= alone
                    && median(row, "mups_with_routes") <= alone
            );
            if row["table"] == "GAMT_S" {
                fastest = fastest.max(alone);
            }
        }
        assert_eq!(figure.rows.len(), 4 * KINDS.len());
        assert_eq!(figure.ours_at("GAMT_S, at most", ""), Some(fastest));
        assert_eq!(figure.panels[0].most("GAMT_S"), Some(fastest));
    }
}
