//! Random deltas, with a check after every single write.

use crate::random::{next_hop, prefix};
use fib::random::Seeded;
use fib::{Key, NextHopId, Prefix, Route};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::HostTable as _;
use lpm_gpu::testing::HostRig;

fn delta<K: Key>(random: &mut Seeded, pool: &[Prefix<K>], len: usize) -> Vec<Route<K>> {
    let mut changes: Vec<Route<K>> = Vec::new();
    for _ in 0..len {
        let prefix = pool[random.below(pool.len())];
        if changes.iter().any(|change| change.prefix == prefix) {
            continue;
        }
        let next_hop = if random.below(5) < 2 { NextHopId::NONE } else { next_hop(random) };
        changes.push(Route { prefix, next_hop });
    }
    changes
}

fn options(layout: Layout, next_hops: NextHops, levels: u8) -> GamtOptions {
    GamtOptions { layout, next_hops, levels: Some(levels), headroom_percent: 0, ..GamtOptions::default() }
}

pub(crate) fn rig<K: Key>(options: GamtOptions, seed: u64) -> HostRig<K, GamtTable<K>> {
    HostRig::new(Box::new(GamtTable::new(options).unwrap()), seed)
}

fn churn<K: Key>(layout: Layout, levels: u8) {
    for next_hops in [NextHops::Together, NextHops::Apart] {
        let mut rig = rig::<K>(options(layout, next_hops, levels), levels.into());
        let mut random = Seeded::new(levels.into(), 77);
        let pool: Vec<Prefix<K>> = (0..300).map(|_| prefix(&mut random)).collect();
        for _ in 0..250 {
            let len = [1, 1, 2, 5, 20][random.below(5)];
            let changes = delta(&mut random, &pool, len);
            rig.apply(&changes).unwrap();
            rig.check(&changes, 20);
        }
        let all: Vec<Route<K>> =
            pool.iter().map(|prefix| Route { prefix: *prefix, next_hop: NextHopId::NONE }).collect();
        rig.check(&all, 2000);
        for part in all.chunks(7) {
            rig.apply(part).unwrap();
        }
        assert_eq!(rig.table.routes(), 0);
        rig.check(&all, 500);
        assert!(rig.collected > 500 && rig.stores > 500, "{} {}", rig.collected, rig.stores);
    }
}

#[test]
fn every_answer_belongs_to_a_generation() {
    for (layout, levels) in [(Layout::Flat, 4), (Layout::Flat, 6), (Layout::Paper, 8), (Layout::Paper, 20)] {
        churn::<u32>(layout, levels);
    }
    for (layout, levels) in [(Layout::Flat, 8), (Layout::Paper, 12), (Layout::Flat, 30)] {
        churn::<u128>(layout, levels);
    }
}

#[test]
fn nodes_are_used_again_only_when_no_lookup_can_see_them() {
    let mut rig = rig::<u32>(options(Layout::Flat, NextHops::Together, 6), 5);
    rig.watch_unlinked();
    let mut random = Seeded::new(9, 0);
    let id = NextHopId::new(1).unwrap();
    // Host routes in ever new places: each needs its own nodes, and leaves them empty.
    let mut alive = std::collections::VecDeque::new();
    for _ in 0..1500 {
        let prefix = Prefix::truncating(random.u32(), 32);
        alive.push_back(prefix);
        let mut changes = vec![Route { prefix, next_hop: id }];
        if alive.len() > 20 {
            changes.extend(alive.pop_front().map(|prefix| Route { prefix, next_hop: NextHopId::NONE }));
        }
        rig.apply(&changes).unwrap();
        rig.check(&changes, 3);
    }
    let figures = rig.table.figures();
    assert!(figures.collapsed_nodes > 200, "{figures:?}");
    assert!(figures.rebuilds < 30, "{figures:?}");
}

#[test]
fn a_lookup_in_flight_never_finds_the_next_hop_of_a_generation_that_was_not() {
    // GAMT_S: a longer route takes over a key, then the shorter route's next hop changes.
    let mut rig = rig::<u32>(options(Layout::Flat, NextHops::Apart, 4), 3);
    rig.in_flight_max = 200;
    let id = |value| NextHopId::new(value).unwrap();
    let wide = Prefix::truncating(0x0a00_0000, 8);
    for round in 0..60_u32 {
        let narrow = Prefix::truncating(0x0a00_0000 + (round % 7) * 0x1_0000, 16);
        rig.apply(&[Route { prefix: wide, next_hop: id(1 + round % 3) }]).unwrap();
        rig.apply(&[Route { prefix: narrow, next_hop: id(10) }]).unwrap();
        rig.apply(&[Route { prefix: wide, next_hop: id(20 + round % 3) }]).unwrap();
        let both =
            [Route { prefix: narrow, next_hop: NextHopId::NONE }, Route { prefix: wide, next_hop: id(30) }];
        rig.apply(&both).unwrap();
        let both = [Route { prefix: wide, next_hop: id(40) }, Route { prefix: narrow, next_hop: id(11) }];
        rig.apply(&both).unwrap();
    }
    assert!(rig.collected > 500, "{}", rig.collected);
}
