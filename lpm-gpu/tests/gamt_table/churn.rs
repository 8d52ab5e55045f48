//! Random deltas, with a check after every single write.

use crate::device::Rig;
use crate::random::Random;
use fib::{Key, NextHopId, Prefix, Route};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::HostTable;

/// A delta: new routes, new next hops and withdraws, from a pool of prefixes.
fn delta<K: Key>(random: &mut Random, pool: &[Prefix<K>], len: usize) -> Vec<Route<K>> {
    let mut changes: Vec<Route<K>> = Vec::new();
    for _ in 0..len {
        let prefix = pool[random.below(pool.len())];
        if changes.iter().any(|change| change.prefix == prefix) {
            continue;
        }
        let next_hop = if random.below(5) < 2 { NextHopId::NONE } else { random.next_hop() };
        changes.push(Route { prefix, next_hop });
    }
    changes
}

fn options(layout: Layout, next_hops: NextHops, levels: u8) -> GamtOptions {
    GamtOptions { layout, next_hops, levels: Some(levels), headroom_percent: 0, ..GamtOptions::default() }
}

fn churn<K: Key>(options: &GamtOptions, seed: u64, updates: usize) -> Rig<K> {
    let mut rig = Rig::new(GamtTable::new(options.clone()).unwrap(), options.layout, seed, 64);
    let mut random = Random::new(seed ^ 77);
    let pool: Vec<Prefix<K>> = (0..300).map(|_| random.prefix()).collect();
    for _ in 0..updates {
        let len = [1, 1, 2, 5, 20][random.below(5)];
        let changes = delta(&mut random, &pool, len);
        rig.update(&changes).unwrap();
        rig.check(&changes, 20);
    }
    let all: Vec<Route<K>> =
        pool.iter().map(|prefix| Route { prefix: *prefix, next_hop: NextHopId::NONE }).collect();
    rig.check(&all, 2000);
    for part in all.chunks(7) {
        rig.update(part).unwrap();
    }
    assert_eq!(rig.table.routes(), 0);
    rig.check(&all, 500);
    rig
}

#[test]
fn every_answer_belongs_to_a_generation_v4() {
    for (layout, levels) in [(Layout::Flat, 4), (Layout::Flat, 6), (Layout::Paper, 8), (Layout::Paper, 20)] {
        for next_hops in [NextHops::Together, NextHops::Apart] {
            let rig = churn::<u32>(&options(layout, next_hops, levels), u64::from(levels), 250);
            assert!(rig.collected > 500 && rig.writes > 500, "{} {}", rig.collected, rig.writes);
        }
    }
}

#[test]
fn every_answer_belongs_to_a_generation_v6() {
    for (layout, levels) in [(Layout::Flat, 8), (Layout::Paper, 12), (Layout::Flat, 30)] {
        for next_hops in [NextHops::Together, NextHops::Apart] {
            let rig = churn::<u128>(&options(layout, next_hops, levels), u64::from(levels), 250);
            assert!(rig.collected > 500 && rig.writes > 500, "{} {}", rig.collected, rig.writes);
        }
    }
}

#[test]
fn nodes_are_used_again_only_when_no_lookup_can_see_them() {
    let options = options(Layout::Flat, NextHops::Together, 6);
    let mut rig = Rig::new(GamtTable::<u32>::new(options).unwrap(), Layout::Flat, 5, 64);
    rig.watch_unlinked();
    let mut random = Random::new(9);
    let id = NextHopId::new(1).unwrap();
    // Host routes in ever new places: each needs its own nodes, and leaves them empty.
    let mut alive = std::collections::VecDeque::new();
    for _ in 0..1500 {
        let prefix = Prefix::truncating(u32::try_from(random.next() >> 32).unwrap(), 32);
        alive.push_back(prefix);
        let mut changes = vec![Route { prefix, next_hop: id }];
        if alive.len() > 20 {
            changes.extend(alive.pop_front().map(|prefix| Route { prefix, next_hop: NextHopId::NONE }));
        }
        rig.update(&changes).unwrap();
        rig.check(&changes, 3);
    }
    let figures = rig.table.figures();
    assert!(figures.collapsed_nodes > 200, "{figures:?}");
    assert!(figures.rebuilds < 30, "{figures:?}");
}

#[test]
fn a_lookup_in_flight_never_finds_the_next_hop_of_a_generation_that_was_not() {
    // GAMT_S: a longer route takes over a key, then the shorter route's next hop changes.
    let options = options(Layout::Flat, NextHops::Apart, 4);
    let mut rig = Rig::new(GamtTable::<u32>::new(options).unwrap(), Layout::Flat, 3, 200);
    let id = |value| NextHopId::new(value).unwrap();
    let wide = Prefix::truncating(0x0a00_0000, 8);
    for round in 0..60_u32 {
        let narrow = Prefix::truncating(0x0a00_0000 + (round % 7) * 0x1_0000, 16);
        rig.update(&[Route { prefix: wide, next_hop: id(1 + round % 3) }]).unwrap();
        rig.update(&[Route { prefix: narrow, next_hop: id(10) }]).unwrap();
        rig.update(&[Route { prefix: wide, next_hop: id(20 + round % 3) }]).unwrap();
        let both =
            [Route { prefix: narrow, next_hop: NextHopId::NONE }, Route { prefix: wide, next_hop: id(30) }];
        rig.update(&both).unwrap();
        let both = [Route { prefix: wide, next_hop: id(40) }, Route { prefix: narrow, next_hop: id(11) }];
        rig.update(&both).unwrap();
    }
    assert!(rig.collected > 500, "{}", rig.collected);
}
