//! Loads of the lookup kernels, counted without a device. Figure 6: memory transactions of a warp by step; the paper explains GAMT's
//! speed by fewer transactions than GALE's, in spite of more steps (section 4.1). Also GALE's two stages, and the poster's single one.

use super::host_tables::{TableKind, load};
use crate::paper::bench::{
    Bench, DataSet, Family, Fault, Figure, HopSource, KeySet, Result, Spread, Start, Stream, Traffic, json,
    over,
};
use lpm_gpu::gale::model::{GaleModel, search_by};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::host::HostTable;
use lpm_gpu::model::{LoadedTable, transactions};
use std::convert::Infallible;

const LANES: usize = 32;
/// Bytes of a transaction: in the paper's example, and on the paper's GPU.
const BYTES: [usize; 2] = [32, 128];
/// Limit of the keys of a stream: 8,192 warps.
const KEYS: usize = 256 << 10;

struct WarpLoads {
    /// Mean transactions of a warp, by size, then by step.
    by_step: [Vec<f64>; 2],
    accesses: f64,
    /// Memory touched by all warps, in pieces of the larger size, MiB.
    touched_mb: f64,
}

impl WarpLoads {
    /// Each 32 neighbours of `keys` form a warp, as in Algorithm 1.
    fn count(table: &LoadedTable, keys: &[u32]) -> Self {
        let (mut by_step, mut accesses) = ([Vec::new(), Vec::new()], 0);
        let mut touched = vec![false; table.words.len().div_ceil(BYTES[1] / 4)];
        let warps = keys.chunks_exact(LANES);
        let count = warps.len().max(1) as f64;
        for warp in warps {
            let steps = table.loads_by_step(warp.iter().map(|key| u64::from(*key) << 32));
            for (step, words) in steps.iter().enumerate() {
                accesses += words.len();
                words.iter().for_each(|at| touched[at / (BYTES[1] / 4)] = true);
                for (sums, bytes) in by_step.iter_mut().zip(BYTES) {
                    sums.resize(sums.len().max(step + 1), 0.0);
                    sums[step] += transactions(words, bytes) as f64;
                }
            }
        }
        by_step.iter_mut().flatten().for_each(|sum| *sum /= count);
        let pieces = touched.iter().filter(|is_touched| **is_touched).count();
        Self {
            by_step,
            accesses: accesses as f64 / (count * LANES as f64),
            touched_mb: (pieces * BYTES[1]) as f64 / f64::from(1 << 20),
        }
    }
}

/// The streams of a data set. The last one has sorted keys of table traffic, where neighbours share the most.
fn streams(bench: &Bench, set: &DataSet) -> Result<[Stream; 4]> {
    let count = KEYS.min(bench.args.keys());
    let draw = |traffic| bench.draw(&set.tables, Family::V4, &traffic, count);
    let table = draw(Traffic::Table)?;
    let sorted = table.all().map(|keys| {
        let mut sorted = keys.v4().to_vec();
        sorted.sort_unstable();
        KeySet::from_keys("sorted table".into(), sorted.into())
    });
    let sorted = bench.stream_of(sorted.collect());
    Ok([draw(Traffic::Random)?, table, draw(bench.trace())?, sorted])
}

struct StreamLoads {
    table: &'static str,
    traffic: String,
    seeds: Vec<WarpLoads>,
}

impl StreamLoads {
    fn spread(&self, of: impl Fn(&WarpLoads) -> f64) -> Spread {
        self.seeds.iter().map(of).collect()
    }

    fn all(&self, size: usize) -> f64 {
        self.spread(|one| one.by_step[size].iter().sum()).median
    }

    fn most(&self, size: usize) -> f64 {
        self.seeds.iter().flat_map(|one| &one.by_step[size]).copied().fold(0.0, f64::max)
    }
}

pub(super) fn figure_6(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let mut said = Vec::new();
    for (at, set) in bench.sets(Family::V4).enumerate() {
        let streams = streams(bench, set)?;
        let mut all = Vec::new();
        for kind in [TableKind::GamtT, TableKind::Gale, TableKind::Sail] {
            let name = if kind == TableKind::GamtT { "GAMT" } else { kind.name() };
            bench.show_progress(format!("counts the transactions of {name}, {}", set.name));
            let table = kind.subject(set.start(Family::V4, HopSource::Origin, Start::Table))?;
            let table = LoadedTable::new(&*table.table, &table.rib.v4);
            for stream in &streams {
                let seeds = stream.all().map(|keys| WarpLoads::count(&table, keys.v4())).collect();
                let loads = StreamLoads { table: name, traffic: stream.traffic().to_owned(), seeds };
                let line = format!("{name}, {}", loads.traffic);
                for size in (0..BYTES.len()).filter(|_| at == 0) {
                    let steps = loads.seeds.iter().map(|one| one.by_step[size].len()).max().unwrap_or(0);
                    for step in 0..steps {
                        let of_step = |one: &WarpLoads| one.by_step[size].get(step).copied().unwrap_or(0.0);
                        figure.add(size, &line, step as f64 + 1.0, loads.spread(of_step));
                    }
                }
                let (accesses, touched) =
                    (loads.spread(|one| one.accesses), loads.spread(|one| one.touched_mb));
                figure.rows.push(json!({
                    "data": set.name, "table": name, "traffic": loads.traffic, "accesses_a_lookup": accesses,
                    "transactions_32": loads.all(0), "transactions_128": loads.all(1), "touched_mb": touched,
                    "table_mb": table.words.len() as f64 * 4.0 / f64::from(1 << 20),
                }));
                let what = format!("{}, {} traffic", set.name, loads.traffic);
                if loads.traffic == "random" {
                    let words = format!("{name}, memory that {} keys touch", stream.len());
                    figure.record_unclaimed(&words, &what, "MB", touched.median);
                }
                if name == "GALE" {
                    figure.record_of("GALE, accesses of a lookup", &what, accesses.median);
                }
                all.push(loads);
            }
        }
        said.push(compare(figure, &set.name, &all));
    }
    figure.fill("said", &said.join(" "));
    Ok(())
}

/// Records GAMT's transactions over GALE's, and random over table traffic, for the data set `set`. Returns the comparison in words.
fn compare(figure: &mut Figure, set: &str, all: &[StreamLoads]) -> String {
    let find = |table: &str, traffic: &str| {
        all.iter().find(|one| (one.table, one.traffic.as_str()) == (table, traffic))
    };
    let (mut numbers, mut fewer) = (Vec::new(), 0);
    for (size, bytes) in BYTES.into_iter().enumerate().rev() {
        let gamt = all.iter().filter(|one| one.table == "GAMT");
        for (gamt, gale) in gamt.filter_map(|gamt| Some((gamt, find("GALE", &gamt.traffic)?))) {
            let what = format!("{set}, {} traffic, {bytes} bytes", gamt.traffic);
            let (ours, theirs) = (gamt.all(size), gale.all(size));
            figure.record_of("GAMT over GALE, transactions of a warp, all steps", &what, ours / theirs);
            let step = gamt.most(size) / gale.most(size);
            figure.record_of("GAMT over GALE, transactions of a warp in a step, at most", &what, step);
            if size == BYTES.len() - 1 {
                numbers.push(format!("{} {ours:.1} against {theirs:.1}", gamt.traffic));
                fewer += usize::from(ours < theirs);
            }
        }
        for name in ["GAMT", "GALE"] {
            let of = |traffic: &str| find(name, traffic).map(|one| one.all(size));
            let what = format!("{name}, transactions of table traffic over those of random traffic");
            figure.record_of(&what, &format!("{set}, {bytes} bytes"), over(of("table"), of("random")));
        }
    }
    format!(
        "{set}: transactions of {} bytes a warp in all steps, GAMT against GALE: {}; GAMT has fewer on {fewer} of {} streams.",
        BYTES[BYTES.len() - 1],
        numbers.join(", "),
        numbers.len()
    )
}

/// Updates of a delta: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;

/// GALE with the routes of a data set. Arrays are by stage.
struct Stages {
    device: GaleModel,
    bytes: [f64; 2],
    /// Words loaded by the device for an effective update of the set.
    loads_an_update: [f64; 2],
}

fn measured(set: &DataSet, stages: u8) -> Result<Stages> {
    let options = GaleOptions { stages, rebuild_turns: u64::MAX, ..GaleOptions::default() };
    let refused = Fault::refused_by("gale");
    let mut table = GaleTable::new(options).map_err(&refused)?;
    let mut rib = set.start(Family::V4, HopSource::Peer, Start::Table);
    load(&mut table, &rib.v4).map_err(&refused)?;
    let (device, bytes) = (GaleModel::new(&table.image(&rib.v4)), details(&table, "bytes"));
    table.take_steps(0, &rib.v4);
    let deltas = set.deltas(Family::V4, Some(UPDATES_A_DELTA), HopSource::Peer, Start::Table);
    for (update, delta) in (1..).zip(&deltas.forward) {
        rib.announce(delta);
        let changes = rib.take_delta().v4;
        table.apply(&changes, &rib.v4).map_err(&refused)?;
        table.take_steps(update, &rib.v4);
        table.reclaim(update);
    }
    let changes = (deltas.changes() as f64).max(1.0);
    Ok(Stages { device, bytes, loads_an_update: details(&table, "loads").map(|loads| loads / changes) })
}

fn details(table: &GaleTable, what: &str) -> [f64; 2] {
    let details = table.details();
    [1, 2].map(|stage| details.get(&format!("gale_stage{stage}_{what}")).unwrap_or(0.0))
}

fn loads_a_key(device: &GaleModel, keys: &[u32]) -> f64 {
    let mut loads = 0_u64;
    for key in keys {
        let Ok(_) = search_by::<Infallible>(*key, |at| {
            loads += 1;
            Ok(device.words[at])
        });
    }
    loads as f64 / (keys.len() as f64).max(1.0)
}

/// Bytes, accesses of a lookup by traffic, and accesses of an update, by stage.
pub(super) fn stages(bench: &Bench, figure: &mut Figure) -> Result<()> {
    figure.name_places(bench.traffics());
    for set in bench.sets(Family::V4) {
        let short = set.up_to_24();
        for (stages, set) in [(2, set), (1, &short)] {
            let Stages { device, bytes, loads_an_update } = measured(set, stages)?;
            for (x, stream) in (0_u32..).zip(bench.streams(&set.tables, bench.args.keys())) {
                let stream = stream?;
                let loads: Spread = stream.all().map(|keys| loads_a_key(&device, keys.v4())).collect();
                figure.add(0, &format!("{}, stages={stages}", set.name), x, loads);
                figure.rows.push(json!({
                    "data": set.name, "stages": stages, "traffic": stream.traffic(), "loads_a_lookup": loads,
                    "lookups_that_end_in_stage_2_percent": 100.0 * (loads.median - 1.0), "bytes": bytes,
                    "loads_an_update": loads_an_update,
                }));
                if stages == 1 {
                    let of = format!("{}, {}", set.name, stream.traffic());
                    figure.record_unclaimed("GALE, accesses of a lookup", &of, "accesses", loads.max);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::bench::{NextHopId, Rib};
    use crate::paper::gamt::PAPER;
    use crate::paper::testing::bench;
    use fib::Prefix4;
    use std::collections::BTreeSet;

    #[test]
    fn transactions_are_the_pieces_that_brute_force_finds() {
        let bench = bench("--generate v4=3000 --keys 640", &PAPER);
        let figure = PAPER.make("fig06", &bench).unwrap();
        let set = &bench.sets[0];
        let [random, ..] = streams(&bench, set).unwrap();
        for (kind, name) in
            [(TableKind::GamtT, "GAMT"), (TableKind::Gale, "GALE"), (TableKind::Sail, "SAIL_L")]
        {
            let table = kind.subject(set.start(Family::V4, HopSource::Origin, Start::Table)).unwrap();
            let table = LoadedTable::new(&*table.table, &table.rib.v4);
            let mut totals = [0.0; 2];
            for (size, bytes) in BYTES.into_iter().enumerate() {
                let of = |keys: &KeySet| {
                    let mut pieces = BTreeSet::new();
                    let mut loads = 0;
                    for (at, key) in keys.v4().iter().enumerate() {
                        let mut step = 0;
                        let done = table.kernel.search_by(&table.header, u64::from(*key) << 32, |word| {
                            pieces.insert((at / LANES, step, 4 * word / bytes));
                            (step, loads) = (step + 1, loads + 1);
                            Ok::<_, ()>(table.words[word])
                        });
                        assert!(done.is_ok());
                    }
                    (pieces.len() as f64 / 20.0, f64::from(loads) / 640.0)
                };
                let both: Vec<_> = random.all().map(of).collect();
                totals[size] = f64::midpoint(both[0].0, both[1].0);
                let row = figure
                    .rows
                    .iter()
                    .find(|row| row["table"] == name && row["traffic"] == "random")
                    .unwrap();
                let found = row[format!("transactions_{bytes}")].as_f64().unwrap();
                assert!((found - totals[size]).abs() < 1e-6, "{name}, {bytes}: {found} {totals:?}");
                let accesses = row["accesses_a_lookup"]["median"].as_f64().unwrap();
                assert!((accesses - f64::midpoint(both[0].1, both[1].1)).abs() < 1e-6);
                let points = figure.panels[size].points(&format!("{name}, random"));
                let sum: f64 = points.iter().map(|point| point.y.median).sum();
                assert!((sum - found).abs() < 1e-6, "{sum} {found}");
            }
            // A larger transaction includes smaller ones, and a step has at most one transaction a lane.
            assert!(totals[1] <= totals[0]);
            let points = figure.panels.iter().flat_map(|panel| &panel.series).flat_map(|line| &line.points);
            assert!(points.into_iter().all(|point| point.y.max <= LANES as f64));
        }
        let over = |row: &str| {
            figure.rows.iter().find(|one| one["table"] == row && one["traffic"] == "random").unwrap()["transactions_128"].as_f64().unwrap()
        };
        let ours = figure.ours_at(
            "GAMT over GALE, transactions of a warp, all steps",
            "generated, random traffic, 128 bytes",
        );
        assert!((ours.unwrap() - over("GAMT") / over("GALE")).abs() < 1e-9);
    }

    #[test]
    fn a_lookup_that_ends_in_the_second_stage_is_two_loads() {
        let mut rib = Rib::plain();
        for (address, len) in [(0x0a00_0000, 8), (0x0a01_0280, 25)] {
            rib.v4.set(Prefix4::truncating(address, len), NextHopId::from_answer(1));
        }
        rib.take_delta();
        let mut table = GaleTable::new(GaleOptions::default()).unwrap();
        load(&mut table, &rib.v4).unwrap();
        let device = GaleModel::new(&table.image(&rib.v4));
        assert_eq!(loads_a_key(&device, &[0x0a01_0201, 0x0a01_0281, 0x0a01_0301, 0x0b00_0000]), 1.5);
    }
}
