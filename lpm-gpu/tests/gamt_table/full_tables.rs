//! Full-size tables and a real update stream.

use crate::churn::rig;
use fib::testing::{data, load};
use fib::{Key, Route, Routes};
use lpm_gpu::gamt::strides::{Census, StridePlan};
use lpm_gpu::gamt::{GamtOptions, Layout, NextHops, code};
use lpm_gpu::host::{Due, HostTable as _};
use lpm_gpu::testing::real_routes;

fn build_and_check<K: Key>(routes: &[Route<K>], levels: &[Option<u8>]) {
    for (at, levels) in levels.iter().enumerate() {
        let layout = [Layout::Flat, Layout::Paper][at % 2];
        let next_hops = [NextHops::Together, NextHops::Apart][at / 2 % 2];
        let options = GamtOptions { layout, next_hops, levels: *levels, ..GamtOptions::default() };
        let mut rig = rig::<K>(options, 11);
        assert_eq!(rig.apply_to_host(routes), Due::Image);
        assert!(rig.steps().is_empty());
        assert_eq!(rig.table.routes(), routes.len() as u64);
        rig.load();
        rig.check(routes, 40_000);
    }
}

#[test]
fn full_tables_answer_as_the_oracle_does() {
    let Some((routes, _)) = real_routes() else { return };
    build_and_check(&routes.v4, &[None, Some(4), Some(6), Some(8), Some(12), Some(20)]);
    build_and_check(&routes.v6, &[None, Some(8), Some(12), Some(16), Some(20), Some(30)]);
}

#[test]
fn six_levels_take_about_what_the_paper_says() {
    let Some(file) = data(["v4-201405.txt.xz"]) else { return };
    let routes = Routes::from(&load(&file)).v4;
    let prefixes =
        routes.iter().map(|change| (u64::from(change.prefix.address()) << 32, change.prefix.len()));
    let plan = StridePlan::of_levels(&Census::new(32, prefixes), 6, 32);
    let mut rig = rig::<u32>(GamtOptions { levels: Some(6), ..GamtOptions::default() }, 1);
    rig.apply_to_host(&routes);
    let table = rig.table;
    println!(
        "v4-201405, 6 levels {:?}: {:.1} bytes a prefix in rows (the paper, on a table of 2013: 22), {:.1} flat",
        plan.strides,
        table.paper_bytes_per_prefix(),
        table.flat_bytes_per_prefix()
    );
    assert_eq!(table.shape().strides, plan.strides);
    assert!((15.0..30.0).contains(&table.paper_bytes_per_prefix()));
    assert!(table.flat_bytes_per_prefix() < table.paper_bytes_per_prefix());
}

fn replay<K: Key>(routes: &[Route<K>], updates: &[Route<K>], next_hops: NextHops) {
    let mut rig = rig::<K>(GamtOptions { next_hops, ..GamtOptions::default() }, 1);
    rig.in_flight_max = 0;
    rig.detours = false;
    rig.follow(routes, updates, 500);
    // The words after all steps equal the image.
    let words = rig.device.last().unwrap().words.clone();
    rig.load();
    assert_eq!(words, rig.device.last().unwrap().words);
    assert_eq!(rig.apply_to_host(&K::part(&rig.rib).withdrawn()), Due::Image);
    assert_eq!(rig.table.routes(), 0);
    rig.load();
    let words = &rig.device.last().unwrap().words;
    assert!(words.iter().all(|unit| *unit == 0 || !code::is_leaf(*unit)), "no route, no answer");
}

#[test]
fn a_real_update_stream_is_followed() {
    let Some((routes, updates)) = real_routes() else { return };
    for next_hops in [NextHops::Together, NextHops::Apart] {
        replay(&routes.v4, &updates.v4, next_hops);
        replay(&routes.v6, &updates.v6, next_hops);
    }
}
