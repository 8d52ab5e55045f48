//! Full-size tables and a real update stream.

use crate::churn::rig;
use fib::feed;
use fib::testing::data;
use fib::{IpPrefix, Key, NextHopTable, Rib, Route, Routes};
use lpm_gpu::gamt::strides::{Census, Plan};
use lpm_gpu::gamt::{GamtOptions, Layout, NextHops, code};
use lpm_gpu::host::{Due, HostTable as _};

fn load(name: &str) -> Option<Rib> {
    Some(fib::testing::load(&data([name])?))
}

fn build_and_check<K: Key>(routes: &[Route<K>], levels: &[Option<u8>]) {
    for (at, levels) in levels.iter().enumerate() {
        let layout = [Layout::Flat, Layout::Paper][at % 2];
        let next_hops = [NextHops::Together, NextHops::Apart][at / 2 % 2];
        let options = GamtOptions { layout, next_hops, levels: *levels, ..GamtOptions::default() };
        let mut rig = rig::<K>(options, 11);
        assert_eq!(rig.tell(routes), Due::Image);
        assert!(rig.steps().is_empty());
        assert_eq!(rig.table.routes(), routes.len() as u64);
        rig.load();
        rig.check(routes, 40_000);
    }
}

#[test]
fn full_tables_answer_as_the_oracle_does() {
    if let Some(rib) = load("v4-202401.txt.xz") {
        build_and_check(&Routes::of(&rib).v4, &[None, Some(4), Some(6), Some(8), Some(12), Some(20)]);
    }
    if let Some(rib) = load("v6-202401.txt.xz") {
        build_and_check(&Routes::of(&rib).v6, &[None, Some(8), Some(12), Some(16), Some(20), Some(30)]);
    }
}

#[test]
fn six_levels_take_about_what_the_paper_says() {
    let Some(rib) = load("v4-201405.txt.xz") else { return };
    let routes = Routes::of(&rib).v4;
    let prefixes =
        routes.iter().map(|change| (u64::from(change.prefix.address()) << 32, change.prefix.len()));
    let plan = Plan::of_levels(&Census::new(32, prefixes), 6, 32);
    let mut rig = rig::<u32>(GamtOptions { levels: Some(6), ..GamtOptions::default() }, 1);
    rig.tell(&routes);
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
    rig.apply(routes).unwrap();
    for changes in updates.chunks(500) {
        rig.apply(changes).unwrap();
        for change in changes {
            for key in [change.prefix.address(), change.prefix.last_address()] {
                assert_eq!(rig.lookup(key), rig.oracle.lookup(key), "{key:?}");
            }
        }
    }
    // The words after all steps equal the image.
    let words = rig.device.last().unwrap().words.clone();
    rig.load();
    assert_eq!(words, rig.device.last().unwrap().words);
    assert_eq!(rig.tell(&K::table(&rig.rib).withdrawn()), Due::Image);
    assert_eq!(rig.table.routes(), 0);
    rig.load();
    let words = &rig.device.last().unwrap().words;
    assert!(words.iter().all(|unit| *unit == 0 || !code::is_leaf(*unit)), "no route, no answer");
}

#[test]
fn a_real_update_stream_is_followed() {
    let Some([path]) = data(["updates-ris-20190101.txt.xz"]) else { return };
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    let mut hops = NextHopTable::default();
    for update in feed::updates(&path, None).unwrap() {
        let update = update.unwrap();
        let next_hop = update.next_hop(&mut hops).unwrap();
        match update.prefix {
            IpPrefix::V4(prefix) => v4.push(Route { prefix, next_hop }),
            IpPrefix::V6(prefix) => v6.push(Route { prefix, next_hop }),
        }
    }
    for next_hops in [NextHops::Together, NextHops::Apart] {
        if let Some(rib) = load("v4-202401.txt.xz") {
            replay(&Routes::of(&rib).v4, &v4, next_hops);
        }
        if let Some(rib) = load("v6-202401.txt.xz") {
            replay(&Routes::of(&rib).v6, &v6, next_hops);
        }
    }
}
