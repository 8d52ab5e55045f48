//! GALE's table and operations against the oracle, on the model of its kernels.

use super::model::{Accesses, GaleModel};
use super::{DIRECT_UNITS, GaleOptions, GaleTable};
use crate::host::{HostTable, PrefixOp, UpdateStep};
use crate::testing::HostRig;
use crate::tests::direct::route;
use fib::{EngineError, Route};

type GaleRig = HostRig<u32, GaleTable>;

fn rig(options: GaleOptions, seed: u64) -> GaleRig {
    HostRig::new(Box::new(GaleTable::new(options).unwrap()), seed)
}

#[test]
fn the_direct_table_has_every_prefix_up_to_24_bits_and_takes_one_access() {
    assert_eq!((DIRECT_UNITS, DIRECT_UNITS * size_of::<u32>()), (16_777_216, 64 << 20));
    let mut rig = rig(GaleOptions::default(), 1);
    rig.apply(&[route(0x0a00_0100, 24, 1), route(0x0a00_0200, 25, 2)]).unwrap();
    rig.load();
    let table = rig.device.last().unwrap();
    let loads = |address: u32| table.loads_by_step([u64::from(address) << 32]).len();
    // A key within a /24 takes one access, also without a route; two if its /24 has a chunk.
    assert_eq!([0x0a00_01ff, 0x0b00_0000, 0x0a00_0201, 0x0a00_02ff].map(loads), [1, 1, 2, 2]);
}

fn nothing_is_left(rig: &GaleRig) {
    assert!(rig.device.last().unwrap().words[..DIRECT_UNITS].iter().all(|word| *word == 0));
}

#[test]
fn every_length_comes_and_goes() {
    let mut rig = rig(GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() }, 1);
    rig.every_length_comes_and_goes();
    nothing_is_left(&rig);
    assert_eq!(rig.rebuilds, 0);
}

#[test]
fn no_store_shows_a_lookup_anything_but_old_or_new() {
    let options = GaleOptions { rebuild_turns: u64::MAX, ..GaleOptions::default() };
    for seed in 0..4 {
        let mut rig = rig(options, seed);
        rig.churn(400, &(12..=32));
        assert_eq!(rig.rebuilds, 0);
        assert!(rig.stores > 100_000);
        rig.withdraw_all();
        assert_eq!(rig.table.chunks_in_use(), 0);
        nothing_is_left(&rig);
    }
}

#[test]
fn a_lookup_never_meets_a_chunk_used_again() {
    rig(GaleOptions::default(), 5).flicker_without_rebuilds();
}

#[test]
fn chunks_run_out_and_a_rebuild_makes_room() {
    let mut rig = rig(GaleOptions { headroom_percent: 0, ..GaleOptions::default() }, 7);
    for n in 0..1500u32 {
        rig.apply(&[route(0x0a00_0000 + n * 256, 28, 1 + n)]).unwrap();
    }
    assert!(rig.rebuilds >= 1, "1024 chunks are there at first");
    rig.check_all();
    rig.withdraw_all();
}

#[test]
fn a_table_that_does_not_fit_is_refused_and_the_old_one_stays() {
    let direct = 4 * DIRECT_UNITS as u64;
    let too_small = GaleTable::new(GaleOptions { table_bytes_max: direct - 1, ..GaleOptions::default() });
    assert!(matches!(too_small, Err(EngineError::Full { what: "table bytes", .. })));
    let options = GaleOptions { table_bytes_max: direct + 3 * 1024, ..GaleOptions::default() };
    let hosts: Vec<_> = (0..5).map(|n| route(0x0a00_0000 + n * 256, 32, 1 + n)).collect();
    rig(options, 3).only_so_many_fit(&hosts, 3);
}

fn ops(rig: &mut GaleRig) -> Vec<PrefixOp> {
    let ops = |step| if let UpdateStep::Ops(ops) = step { ops } else { panic!("GALE has no single writes") };
    rig.steps().into_iter().flat_map(ops).collect()
}

fn loads(rig: &GaleRig) -> [f64; 2] {
    let details = rig.table.details();
    ["gale_stage1_loads", "gale_stage2_loads"].map(|name| details.get(name).unwrap())
}

#[test]
fn what_is_taken_back_costs_the_device_nothing() {
    let mut gale = rig(GaleOptions::default(), 1);
    gale.apply_and_take_back(&[route(0x0a00_0000, 8, 5), route(0x0a00_0001, 32, 6)]);
    assert_eq!((gale.stores, gale.rebuilds), (0, 0));
    assert_eq!(loads(&gale), [0.0; 2]);
}

#[test]
fn an_image_stands_for_the_steps_before_it_and_stays_until_the_next_change() {
    let mut gale = rig(GaleOptions::default(), 1);
    gale.apply_to_host(&[route(0x0a01_0200, 24, 1), route(0x0a01_0203, 32, 2)]);
    let first = gale.table.image(&gale.rib.v4).runs[0].1.as_ptr();
    assert!(ops(&mut gale).is_empty(), "the image has them");
    let image = gale.table.image(&gale.rib.v4);
    assert_eq!(image.runs[0].1.as_ptr(), first, "painted once");
    gale.load();
    assert_eq!(gale.lookup(0x0a01_0203).get(), 2);
    gale.apply(&[route(0x0a01_0203, 32, 0)]).unwrap();
    assert_eq!(gale.lookup(0x0a01_0203).get(), 1);
    gale.load();
    assert_eq!(gale.lookup(0x0a01_0203).get(), 1);
}

#[test]
fn accesses_are_counted_as_the_device_makes_them() {
    let mut gale = rig(GaleOptions::default(), 1);
    let mut model = GaleModel::new(&gale.table.image(&gale.rib.v4));
    let mut run = |route: Route<u32>| {
        gale.apply_to_host(&[route]);
        let ops = ops(&mut gale);
        let before = model.accesses;
        model.run(&ops);
        let [stage1, stage2] = loads(&gale);
        assert_eq!(model.accesses.loads as f64, stage1 + stage2, "the host counts what the device reads");
        Accesses { loads: model.accesses.loads - before.loads, writes: model.accesses.writes - before.writes }
    };
    assert_eq!(run(route(0x0a01_0200, 24, 1)), Accesses { loads: 1, writes: 1 });
    assert_eq!(run(route(0x0a01_0000, 16, 2)), Accesses { loads: 256, writes: 255 });
    // The /25: one load and 257 stores for its chunk; then the /24's unit and 128 of the chunk's to draw it.
    assert_eq!(run(route(0x0a01_0200, 25, 3)), Accesses { loads: 130, writes: 385 });
    assert_eq!(run(route(0x0a01_0000, 16, 4)), Accesses { loads: 512, writes: 255 });
    assert_eq!(run(route(0x0a01_0200, 25, 0)), Accesses { loads: 130, writes: 129 });
    // 1 + 256, and for the /25: the extension's and the slot's, 256 of the /16, the slot's again.
    assert_eq!(loads(&gale), [(1 + 256 + 2 + 256 + 1) as f64, (128 + 256 + 128 + 1) as f64]);
}

fn loads_of(rig: &GaleRig, key: u32) -> u32 {
    let (mut loads, table) = (0, rig.device.last().unwrap());
    let Ok(_) = super::model::search_by::<std::convert::Infallible>(key, |at| {
        loads += 1;
        Ok(table.words[at])
    });
    loads
}

#[test]
fn one_stage_is_one_load_a_lookup_and_ends_at_24_bits() {
    let one = GaleOptions { stages: 1, rebuild_turns: u64::MAX, ..GaleOptions::default() };
    let mut gale = rig(one, 9);
    gale.churn(200, &(10..=24));
    let long = gale.apply(&[route(0x0a01_0200, 24, 3), route(0x0a01_0280, 25, 4)]).unwrap_err().to_string();
    assert!(long.contains("10.1.2.128/25") && long.contains("stages=1"), "{long}");
    gale.check_all();
    let details = gale.table.details();
    let bytes = ["gale_stage1_bytes", "gale_stage2_bytes"].map(|name| details.get(name).unwrap());
    assert_eq!(bytes, [f64::from(64 << 20), 0.0], "the paper's 64 MB (section 5.4.5)");
    let [_, stage2] = loads(&gale);
    assert_eq!((stage2, loads_of(&gale, 0x0a01_0280)), (0.0, 1));
    gale.withdraw_all();
    nothing_is_left(&gale);
}

#[test]
fn a_lookup_ends_in_the_second_stage_where_a_24_has_longer_prefixes() {
    let mut gale = rig(GaleOptions::default(), 1);
    gale.apply(&[route(0x0a01_0200, 24, 1), route(0x0a01_0300, 25, 2)]).unwrap();
    for (key, right) in [(0x0a01_0201, 1), (0x0a01_0301, 2), (0x0a01_03ff, 2), (0x0b00_0000, 1)] {
        assert_eq!(loads_of(&gale, key), right, "{key:#x}");
    }
}

#[test]
fn fewer_threads_draw_fewer_units_in_a_turn() {
    let rebuilds = |update_threads| {
        let options = GaleOptions { update_threads, rebuild_turns: 300, ..GaleOptions::default() };
        let mut gale = rig(options, 1);
        gale.apply(&[route(0x0a00_0000, 8, 1)]).unwrap();
        gale.rebuilds
    };
    // 65,536 units: 17 turns of 1,024 threads, 513 of 32.
    assert_eq!((rebuilds(1024), rebuilds(32)), (0, 1));
}

#[test]
fn real_tables_and_the_real_stream() {
    rig(GaleOptions::default(), 11).real_table_and_stream();
}
