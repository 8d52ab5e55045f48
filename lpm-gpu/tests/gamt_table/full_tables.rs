//! Full-size tables and a real update stream.

use crate::device::{Words, high, no_routes, resolve};
use crate::random::Random;
use fib::feed;
use fib::oracle::Oracle;
use fib::testing::data;
use fib::{IpPrefix, Key, NextHopTable, Rib, Route, Routes};
use lpm_gpu::gamt::strides::{Census, Plan};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops, code};
use lpm_gpu::host::{Due, HostTable, Step};

fn load(name: &str) -> Option<Rib> {
    Some(fib::testing::load(&data([name])?))
}

/// Has `table` take what `routes` change.
fn tell<K: Key>(rib: &mut Rib, table: &mut GamtTable<K>, routes: &[Route<K>]) -> Due {
    for route in routes {
        rib.set(K::wrap(route.prefix), route.next_hop);
    }
    let delta = rib.take_delta();
    table.apply(K::changes(&delta), K::table(rib), usize::MAX).unwrap()
}

fn oracle<K: Key>(routes: &[Route<K>]) -> Oracle<K> {
    routes.iter().map(|change| (change.prefix, change.next_hop)).collect()
}

fn check<K: Key>(table: &GamtTable<K>, oracle: &Oracle<K>, layout: Layout, routes: &[Route<K>]) {
    let words = Words::load(&table.image(&no_routes()), layout);
    let answers = table.answers();
    let mut random = Random::new(11);
    for round in 0..40_000 {
        let prefix = routes[random.below(routes.len())].prefix;
        let key = match round % 4 {
            0 => prefix.address(),
            1 => prefix.last_address(),
            2 => K::from_high_bits(prefix.last_address().to_high_bits().wrapping_add(1)),
            _ => K::from_high_bits(u128::from(random.next()) << 64 | u128::from(random.next())),
        };
        assert_eq!(resolve(&*answers, key, words.search(high(key))), oracle.lookup(key), "{key:?}");
    }
}

fn build_and_check<K: Key>(routes: &[Route<K>], levels: &[Option<u8>]) {
    let oracle = oracle(routes);
    for (at, levels) in levels.iter().enumerate() {
        let layout = [Layout::Flat, Layout::Paper][at % 2];
        let next_hops = [NextHops::Together, NextHops::Apart][at / 2 % 2];
        let options = GamtOptions { layout, next_hops, levels: *levels, ..GamtOptions::default() };
        let mut table = GamtTable::<K>::new(options).unwrap();
        assert_eq!(tell(&mut Rib::plain(), &mut table, routes), Due::Image);
        assert!(table.take_steps(1, &no_routes()).is_empty());
        assert_eq!(table.routes(), routes.len() as u64);
        check(&table, &oracle, layout, routes);
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
    let mut table = GamtTable::<u32>::new(GamtOptions { levels: Some(6), ..GamtOptions::default() }).unwrap();
    tell(&mut Rib::plain(), &mut table, &routes);
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
    let mut oracle = oracle(routes);
    let options = GamtOptions { next_hops, ..GamtOptions::default() };
    let mut table = GamtTable::<K>::new(options).unwrap();
    let mut rib = Rib::plain();
    tell(&mut rib, &mut table, routes);
    table.take_steps(1, &no_routes());
    let mut words = Words::load(&table.image(&no_routes()), Layout::Flat);
    let answers = table.answers();
    for (number, changes) in (2..).zip(updates.chunks(500)) {
        let due = tell(&mut rib, &mut table, changes);
        for step in table.take_steps(number, &no_routes()) {
            let Step::Writes(writes) = step else { panic!("GAMT has writes only") };
            for write in writes {
                words.words[write.at as usize] = write.value;
            }
        }
        if due == Due::Image {
            words = Words::load(&table.image(&no_routes()), Layout::Flat);
        }
        table.reclaim(number);
        for change in changes {
            oracle.set(change.prefix, change.next_hop);
        }
        for change in changes {
            for key in [change.prefix.address(), change.prefix.last_address()] {
                assert_eq!(resolve(&*answers, key, words.search(high(key))), oracle.lookup(key), "{key:?}");
            }
        }
    }
    assert_eq!(table.routes(), oracle.len() as u64);
    // The words after all steps equal the image.
    assert_eq!(words.words, Words::load(&table.image(&no_routes()), Layout::Flat).words);
    let gone = K::table(&rib).withdrawn();
    assert_eq!(tell(&mut rib, &mut table, &gone), Due::Image);
    assert_eq!(table.routes(), 0);
    let words = Words::load(&table.image(&no_routes()), Layout::Flat);
    assert!(words.words.iter().all(|unit| *unit == 0 || !code::is_leaf(*unit)), "no route, no answer");
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
