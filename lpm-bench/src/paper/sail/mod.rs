//! `lpm-bench paper sail`: the SAIL paper's statements, counted in the engines' tables, and lookup rates on this host.

use super::bench::{
    Bench, DataSet, DeviceNeed, Family, Fault, Fed, Figure, HopSource, Known, NextHopId, Paper, Result, Rib,
    RouteSet, Spread, Start, json, most, with,
};
use super::gamt::measure;
use lpm_cpu::accesses::{Sail, counter};
use lpm_cpu::{sail_b, sail_l, sail_m, sail_u};

pub(super) const PAPER: Paper = Paper {
    title: "Guarantee IP Lookup Performance with FIB Explosion (SAIL, a part: from the end of 4.1 to 5.1)",
    claims: include_str!("../claims/sail.txt"),
    figures: include_str!("figures.toml"),
    generated: &[("generated-2014", "v4=511000"), ("generated-2024", "v4=950000")],
    has_updates: true,
    further_sets: |_| Ok(Vec::new()),
    known: &[
        Known { id: "onchip", device: DeviceNeed::Unused, make: on_chip },
        Known { id: "accesses", device: DeviceNeed::Unused, make: accesses },
        Known { id: "updates", device: DeviceNeed::Unused, make: updates },
        Known { id: "rates", device: DeviceNeed::Used, make: rates },
    ],
};

/// The name of its line, the engine's name, and its parameter.
type SailEngine = (&'static str, &'static str, Option<(&'static str, &'static str)>);
const ALL: [(Sail, SailEngine); 4] = [
    (Sail::B, ("SAIL_B", sail_b::NAME, None)),
    (Sail::U, ("SAIL_U", sail_u::NAME, None)),
    (Sail::L, ("SAIL_L", sail_l::NAME, Some(("layout", "paper")))),
    (Sail::M, ("SAIL_M", sail_m::NAME, None)),
];
const WIDE: SailEngine = ("SAIL_L, wide", sail_l::NAME, None);
const ON_GPU: SailEngine = ("SAIL_L, GPU", "sail-gpu", None);
/// SAIL_M with more FIBs: each further one lacks one route in 16, and changes the next hops of half of the rest.
const FIBS: [SailEngine; 2] = [
    ("SAIL_M, 3 FIBs", sail_m::NAME, Some(("fibs", "3"))),
    ("SAIL_M, 8 FIBs", sail_m::NAME, Some(("fibs", "8"))),
];
const NEXT_HOPS_MAX: u32 = 254;
/// Keys of a call on a CPU, as in a forwarder's batch; keys of a batch on a device, and batches in flight.
const SHAPES: [(usize, u16); 2] = [(256, 1), (16 << 20, 4)];
const PARTS: usize = 8;

/// The data sets with IPv4 routes of at most [`NEXT_HOPS_MAX`] next hops, with their positions on an axis.
fn sets(bench: &Bench) -> impl Iterator<Item = (u32, &DataSet, RouteSet)> {
    let few = |set: &DataSet| {
        let mut rib = Rib::plain();
        for (prefix, id) in &set.tables.v4 {
            rib.v4.set(*prefix, NextHopId::from_answer((id.get() - 1) % NEXT_HOPS_MAX + 1));
        }
        RouteSet::of_rib(rib, set.tables.source.clone())
    };
    (0..).zip(bench.sets(Family::V4)).map(move |(x, set)| (x, set, few(set)))
}

fn filled(
    bench: &Bench,
    figure: &mut Figure,
    tables: &RouteSet,
    (name, engine, parameter): SailEngine,
) -> Result<Fed> {
    bench.show_progress(format!("builds {name}"));
    let parameters: Vec<_> = parameter.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    let fed = Fed::filled(bench.engine(engine, None, &parameters)?, &tables.routes_of(Family::V4))?;
    figure.check(&bench.sample_of(tables, Family::V4)?, &mut *fed.looker(SHAPES[0].0)?)?;
    Ok(fed)
}

fn details<const N: usize>(fed: &Fed, names: [&str; N]) -> [f64; N] {
    let details = fed.writer.stats().details;
    names.map(|name| details.get(name).unwrap_or(f64::NAN))
}

fn on_chip(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let mut id_bits = Vec::new();
    for (x, set, tables) in sets(bench) {
        figure.x_names.push(set.name.clone());
        for subject in ALL.map(|(_, subject)| subject).into_iter().chain(FIBS) {
            let fed = filled(bench, figure, &tables, subject)?;
            let [bytes, chunks24, chunks32] =
                details(&fed, ["sail_onchip_bytes", "sail_chunks24", "sail_chunks32"]);
            let [onchip_mib, mib] =
                [bytes, fed.writer.stats().table_bytes as f64].map(|one| one / f64::from(1 << 20));
            figure.add(0, subject.0, x, onchip_mib);
            figure.add(1, subject.0, x, mib);
            // Ids start from 1. The bit maps have no such chunks.
            id_bits.extend((!chunks24.is_nan()).then(|| (chunks24 + 1.0).log2().ceil()));
            figure.rows.push(json!({
                "data": set.name, "routes": tables.v4.len(), "algorithm": subject.0, "onchip_mib": onchip_mib,
                "table_mib": mib, "chunks24": chunks24, "chunks32": chunks32,
            }));
        }
    }
    for (_, (name, ..)) in &ALL[..3] {
        figure.record(&format!("{name}, memory on chip, fits"), figure.panels[0].most(name));
    }
    for (name, ..) in [ALL[3].1].into_iter().chain(FIBS) {
        let onchip = figure.panels[0].most(name);
        figure.record_of("SAIL_M, memory on chip of a table, at most (MiB)", name, onchip);
    }
    figure.record("SAIL_L, bits of C16 that real tables need", most(&id_bits));
    Ok(())
}

fn accesses(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some((_, _, tables)) = sets(bench).next() else { return figure.without(Family::V4) };
    let count = bench.args.keys().min(if bench.args.quick { 1 << 16 } else { 1 << 19 });
    let streams = bench.streams(&tables, count).collect::<Result<Vec<_>, _>>()?;
    for (sail, (name, ..)) in ALL {
        let mut rib = Rib::plain();
        rib.announce(&tables.routes_of(Family::V4));
        let counter = counter(sail, &mut rib).map_err(Fault::refused_by(name))?;
        let mut by_len = [const { [const { Vec::new() }; 33] }; 2];
        for (stream, keys) in streams.iter().flat_map(|stream| stream.all().map(move |keys| (stream, keys))) {
            let mut sums = [0; 2];
            for key in keys.v4() {
                let (len, right) = tables.oracle.v4.longest_match(*key).unwrap_or((0, NextHopId::NONE));
                let (answer, accesses) = counter(*key);
                figure.check_that(answer == right.get());
                for (place, accesses) in accesses.into_iter().enumerate() {
                    sums[place] += accesses;
                    by_len[place][usize::from(len)].push(accesses as f64);
                }
            }
            let [onchip, offchip] = sums.map(|sum| sum as f64 / stream.len() as f64);
            let traffic = stream.traffic();
            figure.rows.push(json!({ "algorithm": name, "traffic": traffic, "onchip_mean": onchip, "offchip_mean": offchip }));
        }
        for ((panel, place), by_len) in ["on chip", "off chip"].into_iter().enumerate().zip(&by_len) {
            for (len, counts) in (0_u32..).zip(by_len).filter(|(_, counts)| !counts.is_empty()) {
                figure.add(panel, name, len, Spread::of_rounds(counts));
            }
            figure.record(&format!("{name}, accesses {place} of a lookup, at most"), most(&by_len.concat()));
        }
    }
    Ok(())
}

fn updates(bench: &Bench, figure: &mut Figure) -> Result<()> {
    const COUNTED: [&str; 4] =
        ["sail_updates", "sail_onchip_writes", "sail_offchip_writes", "sail_onchip_writes_max"];
    for (x, set, tables) in sets(bench) {
        figure.x_names.push(set.name.clone());
        bench.name_traffic(format!("updates of {}, one a delta", set.updates_source));
        let deltas = set.deltas(Family::V4, Some(1), HopSource::Peer, Start::Table).forward;
        for subject in [ALL[0].1, ALL[1].1, WIDE, ALL[3].1] {
            let mut fed = filled(bench, figure, &tables, subject)?;
            let (mut onchip, mut offchip, mut greatest) = (Vec::new(), Vec::new(), 0.0_f64);
            for part in deltas.chunks(deltas.len().div_ceil(PARTS).max(1)) {
                let before = details(&fed, COUNTED);
                part.iter().try_for_each(|delta| fed.apply(delta).map(|_| ()))?;
                let after = details(&fed, COUNTED);
                greatest = greatest.max(after[3]);
                // A rebuilt table restarts its counters, so that part is left out.
                if after[0] > before[0] {
                    onchip.push((after[1] - before[1]) / (after[0] - before[0]));
                    offchip.push((after[2] - before[2]) / (after[0] - before[0]));
                }
            }
            let points = [Spread::of_rounds(&onchip), Spread::of_rounds(&offchip), greatest.into()];
            for (panel, point) in points.into_iter().enumerate() {
                figure.add(panel, subject.0, x, point);
            }
            figure.rows.push(json!({
                "data": set.name, "algorithm": subject.0, "updates": deltas.len(), "onchip_most": greatest,
                "onchip": onchip, "offchip": offchip,
            }));
        }
    }
    let greatest = figure.panels[2].most("SAIL_U");
    figure.record("SAIL_U, accesses on chip of an update, at most", greatest);
    figure
        .record("SAIL_U, bits that an update modifies on chip, at most", greatest.map(|words| words * 64.0));
    Ok(())
}

fn rates(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some((_, set, tables)) = sets(bench).next() else { return figure.without(Family::V4) };
    let mut subjects: Vec<_> = ALL.iter().map(|(_, subject)| *subject).chain([WIDE]).collect();
    match &bench.device {
        Ok(_) => subjects.push(ON_GPU),
        Err(reason) => figure.skipped = Some(format!("the line of sail-gpu needs a GPU: {reason}")),
    }
    let streams = bench.streams(&tables, bench.args.keys()).collect::<Result<Vec<_>, _>>()?;
    figure.name_places(bench.traffics());
    for subject in subjects {
        let fed = filled(bench, figure, &tables, subject)?;
        for (x, keys) in (0_u32..).zip(&streams) {
            let driven = measure(bench, &fed, keys, SHAPES[usize::from(subject == ON_GPU)], None)?;
            figure.add(0, subject.0, x, driven.mlps);
            let own = json!({ "data": set.name, "name": subject.0, "traffic": keys.traffic() });
            figure.rows.push(with(own, json!(driven)));
        }
    }
    figure.record("SAIL_L on a GPU (Tesla C2075)", figure.panels[0].most(ON_GPU.0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::testing::{bench, bench_of};

    #[test]
    fn memory_accesses_and_rates_are_those_of_the_routes() {
        let bench = bench("--quick --keys 2048 --point-seconds 0.01 --generate v4=3000", &PAPER);
        let figure = PAPER.make("onchip", &bench).unwrap();
        let long = bench.sets[0].tables.v4.iter().filter(|(prefix, _)| prefix.len() > 16);
        let mut nodes: Vec<_> = long.map(|(prefix, _)| prefix.address() >> 16).collect();
        nodes.dedup();
        let bytes = |bits: usize| Some(bits.div_ceil(8) as f64 / f64::from(1 << 20));
        let of_l = bytes((17 << 16) + 256 * nodes.len());
        let of_u = bytes((1 << 6) + (1 << 12) + (1 << 18) + (1 << 24));
        for (name, right) in
            [("SAIL_B", bytes((1 << 25) - 1)), ("SAIL_U", of_u), ("SAIL_L", of_l), ("SAIL_M", of_l)]
        {
            assert_eq!(figure.panels[0].value_at(name, 0.0), right, "{name}");
        }
        assert_eq!(figure.panels[0].value_at("SAIL_M, 8 FIBs", 0.0), of_l, "all FIBs share it");
        let bits = figure.ours_at("SAIL_L, bits of C16 that real tables need", "");
        assert_eq!(bits, Some((nodes.len() as f64 + 1.0).log2().ceil()));

        let figure = PAPER.make("accesses", &bench).unwrap();
        assert_eq!((figure.wrong, figure.checked), (0, 3 * 2 * 2048 * 4));
        let most = |what: &str| figure.ours_at(&format!("{what} chip of a lookup, at most"), "");
        assert_eq!(
            ["SAIL_B, accesses on", "SAIL_U, accesses on", "SAIL_M, accesses on"].map(most),
            [24.0, 4.0, 2.0].map(Some)
        );
        assert!(most("SAIL_M, accesses off").is_some_and(|most| most <= 2.0));
        for name in ["SAIL_B", "SAIL_U"] {
            let points = figure.panels[0].points(name).iter();
            let most: Vec<_> = points.filter(|point| point.x <= 24.0).map(|point| point.y.max).collect();
            assert!(
                most.windows(2).all(|two| two[0] >= two[1]),
                "{name}: longer matches are found no later: {most:?}"
            );
        }

        let figure = PAPER.make("rates", &bench).unwrap();
        assert_eq!((figure.wrong, figure.panels[0].series.len(), figure.rows.len()), (0, 5, 15));
        assert!(figure.skipped.is_some() && figure.ours_at("SAIL_L on a GPU (Tesla C2075)", "").is_none());
    }

    #[test]
    fn updates_are_counted_by_the_engines() {
        // A /19, which SAIL_U pushes to 32 entries; a /24, a change of its next hop, which is off chip, and its withdrawal.
        let lines = "1 a 10.1.0.0/19 192.0.2.1\n2 a 11.1.2.0/24 192.0.2.1\n3 a 11.1.2.0/24 192.0.2.2\n4 w 11.1.2.0/24 0.0.0.0\n";
        let figure = PAPER.make("updates", &bench_of("10.0.0.0/8 1\n", lines, &PAPER)).unwrap();
        let row = |at: usize| ["onchip", "offchip"].map(|name| figure.rows[at][name].to_string());
        assert_eq!(row(0), ["[1.0,1.0,0.0,1.0]", "[1.0,1.0,1.0,0.0]"], "SAIL_B");
        assert_eq!(row(1), ["[1.0,1.0,0.0,1.0]", "[16.0,1.0,1.0,0.0]"], "SAIL_U");
        assert_eq!(figure.ours_at("SAIL_U, accesses on chip of an update, at most", ""), Some(1.0));
        assert!(figure.panels[2].most(WIDE.0).is_some_and(|most| most > 1.0), "a chunk of B24");
    }
}
