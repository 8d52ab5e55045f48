//! Tries that are built in the background while the table changes.

use crate::churn::rig;
use crate::random::next_hop;
use fib::random::Seeded;
use fib::{Key, NextHopId, Prefix, Route};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::{Due, HostTable as _};
use lpm_gpu::testing::HostRig;

fn options(next_hops: NextHops) -> GamtOptions {
    GamtOptions { next_hops, headroom_percent: 0, builds_early: true, ..GamtOptions::default() }
}

/// A prefix in a new place, where no other route has made nodes. In IPv6 one in six is longer than the 64 bits of the device.
fn prefix<K: Key>(random: &mut Seeded) -> Prefix<K> {
    let longest = if K::BITS == 128 && random.below(6) > 0 { 64 } else { K::BITS };
    // Near another one for half of them, so that routes nest.
    let high = random.u128() & if random.below(2) == 0 { u128::MAX } else { 0xf00f_0f00_00ff << 80 };
    Prefix::truncating(K::from_high_bits(high), random.between(10, longest))
}

/// Adds about `adds` and removes about `removes` routes.
fn delta<K: Key>(
    rig: &mut HostRig<K, GamtTable<K>>,
    random: &mut Seeded,
    [adds, removes]: [usize; 2],
) -> Vec<Route<K>> {
    let mut delta: Vec<Route<K>> =
        (0..adds).map(|_| Route { prefix: prefix(random), next_hop: next_hop(random) }).collect();
    let routes = K::part(&rig.rib).sorted();
    for _ in 0..removes {
        let Some((prefix, _)) = random.pick(&routes) else { break };
        let next_hop = if random.below(3) == 0 { next_hop(random) } else { NextHopId::NONE };
        delta.push(Route { prefix: *prefix, next_hop });
    }
    delta.sort_by_key(|route| route.prefix);
    delta.dedup_by_key(|route| route.prefix);
    delta
}

/// Applies random deltas of a table that grows and shrinks. Each finds the early trie ready or not, at random, after few or many slices.
fn churn<K: Key>(layout: Layout, next_hops: NextHops) {
    let mut rig = rig::<K>(GamtOptions { layout, ..options(next_hops) }, 21);
    let mut random = Seeded::new(5, u64::from(K::BITS));
    for turn in 0..700 {
        let routes_min = [1, 30, 300][random.below(3)];
        let ready = random.below(4) == 0;
        rig.table.set_early_pace(routes_min, Some(ready));
        let size = [1, 2, 6, 25][random.below(4)];
        let grows = turn / 100 % 2 == 0;
        let changes = delta(&mut rig, &mut random, if grows { [size, size / 3] } else { [size / 3, size] });
        if random.below(8) == 0 {
            rig.apply_and_take_back(&changes);
        }
        rig.apply(&changes).unwrap();
        rig.check(&changes, 10);
        if turn % 50 == 0 {
            rig.check_all();
        }
        if turn % 250 == 249 {
            rig.withdraw_all(); // at once: the early trie is of no use
        }
    }
    rig.check_all();
    let figures = rig.table.figures();
    println!("{layout:?} {next_hops:?} {}: {figures:?}", K::BITS);
    assert!(figures.early_builds >= 5, "{layout:?} {next_hops:?}: {figures:?}");
    assert!(rig.collected > 500, "{}", rig.collected);
}

#[test]
fn every_answer_belongs_to_a_generation_across_early_builds() {
    for next_hops in [NextHops::Together, NextHops::Apart] {
        churn::<u32>(Layout::Flat, next_hops);
        churn::<u128>(Layout::Paper, next_hops);
    }
}

/// `count` host routes in as many places, from number `first` on.
fn hosts(first: u32, count: u32) -> Vec<Route<u32>> {
    let host = |n: u32| Route {
        prefix: Prefix::truncating(n.wrapping_mul(0x9e37_79b9), 32),
        next_hop: NextHopId::new(1 + n % 7).unwrap(),
    };
    (first..first + count).map(host).collect()
}

/// A rig whose early trie is being built, and is not ready; and the number of its routes.
fn building(options: GamtOptions) -> (HostRig<u32, GamtTable<u32>>, u32) {
    let mut rig = rig::<u32>(options, 4);
    rig.detours = false;
    rig.table.set_early_pace(10, Some(false));
    let mut count = 0;
    while !rig.table.is_building_early() {
        rig.apply(&hosts(count, 1)).unwrap();
        count += 1;
        assert!(count < 500, "a level is half full before that");
    }
    assert_eq!(rig.table.figures().builds, 0);
    (rig, count)
}

#[test]
fn a_delta_finds_the_early_trie_ready_with_all_changes() {
    let (mut rig, count) = building(options(NextHops::Together));
    // Changed, withdrawn, and added while the trie is built.
    let mut changes = hosts(0, 20);
    changes.iter_mut().take(10).for_each(|route| route.next_hop = NextHopId::NONE);
    changes.iter_mut().skip(10).for_each(|route| route.next_hop = NextHopId::new(9).unwrap());
    rig.apply(&changes).unwrap();
    rig.apply(&hosts(count, 5)).unwrap();
    rig.table.set_early_pace(10, None);
    let start = std::time::Instant::now();
    while rig.table.figures().early_builds == 0 {
        assert!(start.elapsed().as_secs() < 60, "the trie is never ready");
        rig.apply(&[]).unwrap();
        std::thread::yield_now();
    }
    rig.check_all();
    let figures = rig.table.figures();
    assert_eq!((figures.builds, figures.early_builds, figures.rebuilds, rig.rebuilds), (1, 1, 1, 1));
    assert_eq!(rig.apply_to_host(&hosts(count + 5, 1)), Due::Steps, "there is room again");
}

#[test]
fn an_early_trie_waits_while_there_is_no_memory_for_its_image() {
    let (mut rig, count) = building(options(NextHops::Together));
    rig.table.set_early_pace(10, Some(true));
    rig.table.put_off_rebuilds(true);
    for n in 0..5 {
        rig.apply(&hosts(count + n, 1)).unwrap();
        assert_eq!(rig.table.figures().early_builds, 0);
    }
    rig.table.put_off_rebuilds(false);
    rig.apply(&[]).unwrap();
    assert_eq!(rig.table.figures().early_builds, 1);
    rig.check_all();
}

#[test]
fn a_delta_without_room_waits_for_the_early_trie() {
    let (mut rig, mut count) = building(options(NextHops::Apart));
    while rig.table.figures().rebuilds == 0 {
        rig.apply(&hosts(count, 3)).unwrap();
        count += 3;
        assert!(count < 1000, "there is not so much room");
    }
    let figures = rig.table.figures();
    assert_eq!((figures.builds, figures.early_builds, figures.early_waits), (1, 1, 1));
    rig.check_all();
}

#[test]
fn a_refused_delta_and_its_undoing_are_made_in_the_early_trie_too() {
    for taken_in in [false, true] {
        let (mut rig, count) =
            building(GamtOptions { table_bytes_max: 150_000, ..options(NextHops::Together) });
        rig.apply_and_take_back(&hosts(count, 30));
        rig.table.set_early_pace(10, Some(taken_in));
        let refused = rig.apply(&hosts(count, 900)).unwrap_err();
        assert!(matches!(refused, fib::EngineError::Full { .. }), "{refused}");
        rig.check_all();
        rig.table.set_early_pace(10, Some(true));
        rig.apply(&hosts(0, 1)).unwrap();
        rig.apply(&hosts(count, 3)).unwrap();
        rig.check_all();
        assert_eq!(rig.table.routes(), u64::from(count) + 3);
    }
}

#[test]
fn an_early_trie_that_no_longer_fits_is_not_taken() {
    let (mut rig, count) = building(options(NextHops::Together));
    let words = usize::try_from(rig.table.shape().words).unwrap();
    rig.table.limit(words - 1);
    rig.table.set_early_pace(10, Some(true));
    rig.apply(&hosts(count, 1)).unwrap();
    let figures = rig.table.figures();
    assert_eq!((figures.builds, figures.early_builds), (0, 0));
    rig.check_all();
}
