//! Memory on the device during the updates (figure 19).

use super::host_tables::{Case, LEVELS, TableKind, load};
use crate::paper::bench::{Bench, Family, Fault, Figure, HopSource, Result, Start, json, with};
use crate::updates::Deltas;
use lpm_gpu::gale::DIRECT_UNITS;
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout};
use lpm_gpu::host::{Due, HostTable};

pub(super) fn figure_19(bench: &Bench, figure: &mut Figure) -> Result<()> {
    let Some(set) = bench.main_set(Family::V4) else { return figure.without(Family::V4) };
    // The paper's GALE is the direct table alone, without prefixes longer than 24 bits.
    let gale_mb = mb(DIRECT_UNITS as f64);
    let gale = TableKind::Gale.subject(set.start(Family::V4, HopSource::Peer, Start::Table))?;
    figure.record_of("GALE", "the direct table", gale_mb);
    figure.record_of("GALE", "with what longer prefixes take", mb(gale.image().words as f64));
    for (start, from) in Start::ALL {
        let case = Case { set, hops: HopSource::Peer, start, name: from.into() };
        let deltas = case.deltas(None);
        for (layout, name) in [(Layout::Paper, "paper's layout"), (Layout::Flat, "flat layout")] {
            let name = format!("GAMT, {LEVELS} levels, {name}, from {from}");
            let grown = grow(figure, &name, layout, &case, &deltas)?;
            let (one_mb, twice_mb) = (mb(grown.width * f64::from(LEVELS)), 2.0 * mb(grown.words));
            if (layout, start) == (Layout::Paper, Start::Table) {
                // One trie has 22 bytes a prefix, 85 % less than GALE; the paper's 70.3 % are for two tries with head room.
                let less = |mb: f64| 100.0 * (1.0 - mb / gale_mb);
                figure.record("GAMT, 6 levels", grown.bytes_a_prefix);
                for (what, of, value) in [
                    ("GAMT, 6 levels, head room and backup", "a quarter of head room", twice_mb),
                    ("GAMT, 6 levels, head room and backup", "none", 2.0 * one_mb),
                    ("the same of GALE's", "", 100.0 * twice_mb / gale_mb),
                    ("GAMT, 6 levels, less than GALE by", "two with head room", less(twice_mb)),
                    ("GAMT, 6 levels, less than GALE by", "one without", less(one_mb)),
                ] {
                    figure.record_of(what, of, value);
                }
            }
            if layout == Layout::Paper {
                figure.record_of("array width grown over the updates, less than", from, grown.percent);
            }
            let own = json!({
                "table": name, "routes": grown.routes, "width_units": grown.width, "grown_percent": grown.percent,
                "rebuilds": grown.rebuilds, "mb": one_mb, "mb_with_head_room_twice": twice_mb,
                "bytes_a_prefix_paper": grown.bytes_a_prefix, "bytes_a_prefix_flat": grown.bytes_a_prefix_flat,
            });
            figure.rows.push(with(case.fields(&deltas), own));
        }
        figure.add(0, "GALE", 0.0, gale_mb);
        figure.add(0, "GALE", deltas.changes() as f64, gale_mb);
    }
    bench.name_traffic(format!("updates of {}, a second a delta", set.updates_source));
    Ok(())
}

fn mb(words: f64) -> f64 {
    words * 4.0 / f64::from(1 << 20)
}

/// Allocated units of a table. In the paper's layout no code leads to the first row, which the paper does not count.
fn units(table: &GamtTable<u32>) -> f64 {
    let shape = table.shape();
    let unused = if shape.layout == Layout::Paper { shape.width } else { 0 };
    shape.words as f64 - f64::from(unused)
}

struct Grown {
    routes: usize,
    width: f64,
    /// Units of one table on the device, head room included.
    words: f64,
    bytes_a_prefix: f64,
    bytes_a_prefix_flat: f64,
    percent: f64,
    rebuilds: u64,
}

fn grow(figure: &mut Figure, name: &str, layout: Layout, case: &Case<'_>, deltas: &Deltas) -> Result<Grown> {
    let (rib, [forward, _]) = (case.routes(), deltas.updates_v4());
    let options = GamtOptions { layout, levels: Some(LEVELS), ..GamtOptions::default() };
    let fault = Fault::refused_by(TableKind::GamtT.name());
    let mut table = GamtTable::<u32>::new(options).map_err(&fault)?;
    load(&mut table, &rib.v4).map_err(&fault)?;
    table.take_steps(0, &rib.v4);
    let width = |table: &GamtTable<u32>| f64::from(table.units_used().into_iter().max().unwrap_or(0));
    let mut grown = Grown {
        routes: rib.v4.len(),
        width: width(&table),
        words: units(&table),
        bytes_a_prefix: table.paper_bytes_per_prefix(),
        bytes_a_prefix_flat: table.flat_bytes_per_prefix(),
        percent: 0.0,
        rebuilds: 0,
    };
    let mut done = 0_u32;
    let every = forward.len().div_ceil(50).max(1);
    for (at, delta) in forward.iter().enumerate() {
        if at % every == 0 {
            figure.add(0, name, done, 2.0 * mb(units(&table)));
        }
        let due = table.apply(delta, &rib.v4).map_err(&fault)?;
        grown.rebuilds += u64::from(due == Due::Image);
        table.take_steps(at as u64 + 1, &rib.v4);
        table.reclaim(at as u64 + 1);
        done += u32::try_from(delta.len()).unwrap_or(0);
    }
    grown.percent = 100.0 * (width(&table) / grown.width.max(1.0) - 1.0);
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::gamt::PAPER;
    use crate::paper::testing::bench;
    use lpm_gpu::gamt::strides::{Census, StridePlan};

    fn near(ours: f64, wanted: f64) {
        assert!((ours - wanted).abs() < 1e-6 * wanted.abs().max(1.0), "{ours} {wanted}");
    }

    /// Every number of the figure from the routes alone: Algorithm 3's strides determine the width.
    #[test]
    fn bytes_and_shares_are_those_of_the_width() {
        let bench = bench("--generate v4=4000", &PAPER);
        let figure = PAPER.make("fig19", &bench).unwrap();
        let routes = &bench.sets[0].tables.v4;
        let census = Census::new(
            32,
            routes.iter().map(|(prefix, _)| (u64::from(prefix.address()) << 32, prefix.len())),
        );
        let width = StridePlan::of_levels(&census, LEVELS, 32).width as f64;
        let row = figure
            .rows
            .iter()
            .find(|row| row["table"].as_str().unwrap().ends_with("paper's layout, from the table"));
        let of = |column: &str| row.unwrap()[column].as_f64().unwrap();
        near(of("width_units"), width);
        near(of("bytes_a_prefix_paper"), 4.0 * 6.0 * width / routes.len() as f64);
        near(of("mb"), 6.0 * width * 4.0 / 1_048_576.0);
        // Head room: a quarter of the units in use, in whole nodes, and 4096 units at least; twice, since there are two tables.
        let room = of("mb_with_head_room_twice") / 2.0 * 1_048_576.0 / 4.0 / 6.0;
        assert!(
            room >= (width * 1.25).max(width + 4096.0) - 4096.0 && room <= width * 1.25 + 2.0 * 4096.0,
            "{room} {width}"
        );
        let ours = |what: &str, of: &str| figure.ours_at(what, of).unwrap();
        near(ours("GALE", "the direct table"), 64.0);
        assert!(ours("GALE", "with what longer prefixes take") > 64.0);
        near(ours("GAMT, 6 levels", ""), of("bytes_a_prefix_paper"));
        near(ours("GAMT, 6 levels, less than GALE by", "one without"), 100.0 * (1.0 - of("mb") / 64.0));
        let two = of("mb_with_head_room_twice");
        near(ours("GAMT, 6 levels, less than GALE by", "two with head room"), 100.0 * (1.0 - two / 64.0));
        near(ours("the same of GALE's", ""), 100.0 * two / 64.0);
        near(ours("GAMT, 6 levels, head room and backup", "a quarter of head room"), two);
        near(ours("GAMT, 6 levels, head room and backup", "none"), 2.0 * of("mb"));
        // The flat layout is never larger, and the widest level does not shrink, since nodes stay.
        assert!(of("bytes_a_prefix_flat") <= of("bytes_a_prefix_paper"));
        assert!(
            figure
                .rows
                .iter()
                .all(|row| row["grown_percent"].as_f64().unwrap() >= 0.0 || row["rebuilds"] != 0)
        );
    }
}
