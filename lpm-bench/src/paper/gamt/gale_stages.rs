//! GALE's two stages, counted apart, beside the poster's one. No device is needed: the words are counted that the kernels load.

use super::host_tables::load;
use crate::paper::{Bench, DataSet, Family, Fault, Figure, Hops, Spread, Start, json};
use lpm_gpu::gale::model::{GaleModel, search_by};
use lpm_gpu::gale::{GaleOptions, GaleTable};
use lpm_gpu::host::HostTable;
use std::convert::Infallible;

/// Updates of a delta: the mean number of updates in a second at the paper's rrc12 (table 1).
const UPDATES_A_DELTA: usize = 64;

/// GALE with the routes of a data set. Arrays are by stage.
struct Stages {
    /// Its words.
    device: GaleModel,
    bytes: [f64; 2],
    /// Words that the device loads for the updates of the set that change something, an update.
    loads_an_update: [f64; 2],
}

fn measured(set: &DataSet, stages: u8) -> Result<Stages, Fault> {
    let options = GaleOptions { stages, rebuild_turns: u64::MAX, ..GaleOptions::default() };
    let refused = Fault::refused_by("gale");
    let mut table = GaleTable::new(options).map_err(&refused)?;
    let mut rib = set.start(Family::V4, Hops::Peer, Start::Table);
    load(&mut table, &rib.v4).map_err(&refused)?;
    let (device, bytes) = (GaleModel::new(&table.image(&rib.v4)), details(&table, "bytes"));
    table.take_steps(0, &rib.v4);
    let deltas = set.deltas(Family::V4, Some(UPDATES_A_DELTA), Hops::Peer, Start::Table);
    for (update, delta) in (1..).zip(&deltas.forward) {
        rib.tell(delta);
        let changes = rib.take_delta().v4;
        table.apply(&changes, &rib.v4, usize::MAX).map_err(&refused)?;
        table.take_steps(update, &rib.v4);
        table.reclaim(update);
    }
    let changes = (deltas.changes() as f64).max(1.0);
    Ok(Stages { device, bytes, loads_an_update: details(&table, "loads").map(|loads| loads / changes) })
}

/// What `table` says of its two stages.
fn details(table: &GaleTable, what: &str) -> [f64; 2] {
    let details = table.details();
    [1, 2].map(|stage| details.get(&format!("gale_stage{stage}_{what}")).unwrap_or(0.0))
}

/// Words that lookups of `keys` load, a key.
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
pub(super) fn figure(bench: &Bench, figure: &mut Figure) -> Result<(), Fault> {
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
                    figure.own("GALE, accesses of a lookup", &of, "accesses", loads.max);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{NextHopId, Rib};
    use fib::Prefix4;

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
        // Both halves of the /24 with a /25, its neighbour, and no route.
        assert_eq!(loads_a_key(&device, &[0x0a01_0201, 0x0a01_0281, 0x0a01_0301, 0x0b00_0000]), 1.5);
    }
}
