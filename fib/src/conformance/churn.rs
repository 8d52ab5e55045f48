//! Changing tables: withdraws, re-announcements, thousands of random deltas, a replayed update stream.

use super::draw::{TestKey, Universe};
use super::options::{MakeEngine, Options};
use super::rig::{TestRig, delta_of, fail};
use crate::generate::{TableSpec, Updates, table};
use crate::{Key, NextHopId, Prefix, Route, Routes};
use std::collections::BTreeSet;

/// Withdraws and re-announcements: withdraws of absent routes (in an empty table; above, below and next to present routes), a route
/// announced again or repeatedly withdrawn and announced, and tables filled and emptied: withdraw all == empty.
pub fn withdraw(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "withdraw", options);
    absent::<u32>(&mut rig, options);
    absent::<u128>(&mut rig, options);
    repeated::<u32>(&mut rig, options);
    repeated::<u128>(&mut rig, options);
    rig.withdraw_all();
    for round in options.cases(&[0, 1, 2, 3, 4]) {
        rig.case(format_args!("filled and emptied, round {round}"));
        let mut filled = fill(&mut rig, 1000);
        rig.apply(&filled);
        rig.check_delta(&mut filled);
        rig.check_stats();
        if round % 2 == 0 {
            rig.withdraw_all();
        } else {
            withdraw_in_parts(&mut rig, 64);
        }
        rig.case(format_args!("emptied, round {round}"));
        rig.check_delta(&mut filled);
        rig.check_random(200);
        rig.check_stats();
    }
}

fn fill(rig: &mut TestRig, routes: usize) -> Routes {
    let (u4, u6) = (rig.universe::<u32>(20), rig.universe::<u128>(20));
    Routes { v4: rig.drawn(&u4, routes), v6: rig.drawn(&u6, routes) }
}

fn withdraw_in_parts(rig: &mut TestRig, part: usize) {
    while !rig.rib.is_empty() {
        let mut delta = Routes { v4: some_withdrawn(rig, part), v6: some_withdrawn(rig, part) };
        rig.apply(&delta);
        rig.check_delta(&mut delta);
    }
}

fn some_withdrawn<K: TestKey>(rig: &mut TestRig, part: usize) -> Vec<Route<K>> {
    let mut left: Vec<_> = K::part(&rig.rib).prefixes().collect();
    let count = part.min(left.len());
    (0..count).map(|_| Route::withdrawal(left.swap_remove(rig.rng.below(left.len())))).collect()
}

fn absent<K: TestKey>(rig: &mut TestRig, options: Options) {
    let address = K::random(&mut rig.rng);
    let chain: Vec<_> = (0..=K::BITS).map(|len| Prefix::truncating(address, len)).collect();
    rig.case(format_args!("withdraws in an empty {} table", K::FAMILY));
    rig.withdraw(&chain);
    rig.check_prefixes(&chain);
    rig.check_stats();
    for len in options.cases(&[0, 12, 20, 24, K::BITS - 4, K::BITS]) {
        let present = Prefix::truncating(address, *len);
        rig.case(format_args!("only {present} is present, everything else on its chain is withdrawn"));
        let next_hop = rig.id();
        rig.set(present, next_hop);
        rig.withdraw(chain.iter().filter(|prefix| **prefix != present));
        rig.check_prefixes(&chain);
        for prefix in chain.iter().filter(|prefix| **prefix != present) {
            rig.set(*prefix, NextHopId::NONE);
        }
        rig.check_prefixes(&chain);
        rig.check_stats();
        rig.set(present, NextHopId::NONE);
        rig.set(present, NextHopId::NONE);
        rig.check_prefixes(&chain);
        rig.check_stats();
    }
}

/// Announces one route repeatedly, with other routes above and below it.
fn repeated<K: TestKey>(rig: &mut TestRig, options: Options) {
    let address = K::random(&mut rig.rng);
    for len in options.cases(&[0, 8, 19, 20, 21, 24, 25, 31, 32, K::BITS / 2, K::BITS / 2 + 1, K::BITS]) {
        let prefix = Prefix::truncating(address, *len);
        for turn in 0..12 {
            rig.case(format_args!("{prefix} announced and withdrawn, turn {turn}"));
            let next_hop = if turn % 4 == 3 { NextHopId::NONE } else { rig.id_at(turn / 2) };
            rig.set(prefix, next_hop);
            rig.check_prefixes(&[prefix]);
        }
        let last = rig.id();
        rig.set(prefix, last); // stays in the table, so that the following lengths are nested below it
        rig.check_stats();
    }
}

/// Sizes of the deltas of `churn`: mostly small, as in a feed, with an occasional large one.
const DELTA_SIZES: [usize; 12] = [1, 1, 1, 1, 2, 2, 3, 5, 10, 30, 100, 1000];

/// 900 random deltas (full: twenty times as many) of 1 to 1000 changes in both families, on overlapping prefixes. After each the engine must
/// agree with the oracle around the changes and on fixed keys. Finally all routes are withdrawn.
pub fn churn(make: MakeEngine<'_>, options: Options) {
    // With few prefixes nearly every change overlaps another. With many prefixes tables grow and thin out.
    for (bases, deltas) in [(1, 250), (3, 250), (40, 250), (1000, 150)] {
        let rig = TestRig::new(make, "churn", options);
        // With 3 bases the RIB is plain: an engine must not rely on redundant routes being left out.
        let mut rig = if bases == 3 { rig.plain() } else { rig };
        let (u4, u6) = (rig.universe::<u32>(bases), rig.universe::<u128>(bases));
        let keys4: Vec<_> = (0..100).map(|_| u4.key(&mut rig.rng)).collect();
        let keys6: Vec<_> = (0..100).map(|_| u6.key(&mut rig.rng)).collect();
        for at in 0..options.rounds(deltas) {
            rig.case(format_args!("{bases} bases, delta {at}"));
            let size = DELTA_SIZES[rig.rng.below(DELTA_SIZES.len())];
            let mut delta = match at % 3 {
                0 => random_delta(&mut rig, &u4, size),
                1 => random_delta(&mut rig, &u6, size),
                _ => Routes {
                    v4: random_delta(&mut rig, &u4, size.div_ceil(2)).v4,
                    v6: random_delta(&mut rig, &u6, size.div_ceil(2)).v6,
                },
            };
            rig.apply(&delta);
            rig.check_delta(&mut delta);
            rig.check_both(&keys4, &keys6);
        }
        rig.check_stats();
        withdraw_in_parts(&mut rig, 500);
        rig.check_random(100);
        rig.check_stats();
    }
}

/// Half announce a drawn prefix, four in ten withdraw a present one, the others a drawn one, which is mostly absent.
fn random_delta<K: TestKey>(rig: &mut TestRig, universe: &Universe<K>, size: usize) -> Routes {
    let present: Vec<_> = K::part(&rig.rib).prefixes().collect();
    let mut seen = BTreeSet::new();
    let mut changes = Vec::with_capacity(size);
    for _ in 0..size {
        let drawn = universe.prefix(&mut rig.rng);
        let existing = present.get(rig.rng.below(present.len())).copied();
        let (prefix, next_hop) = match (rig.rng.below(10), existing) {
            (0..5, _) => (drawn, rig.id()),
            (5..9, Some(existing)) => (existing, NextHopId::NONE),
            _ => (drawn, NextHopId::NONE),
        };
        if seen.insert(prefix) {
            changes.push(Route { prefix, next_hop });
        }
    }
    delta_of(changes)
}

/// A generated update stream, in deltas of several sizes; finally compared with an engine built from the final routes in one delta.
pub fn replay(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "replay", options);
    let (v4, v6) = (generated::<u32>(&mut rig, 4000, options), generated::<u128>(&mut rig, 2000, options));
    let mut updates = Updates::new(&v4, &v6, options.seed);
    rig.case(format_args!("replay, table"));
    let table = Routes {
        v4: v4.into_iter().map(Route::from).collect(),
        v6: v6.into_iter().map(Route::from).collect(),
    };
    rig.apply(&table);
    rig.check_random(500);
    let mut count = 0;
    for step in 0..options.rounds(100) {
        let size = [1, 7, 50, 400][step % 4];
        let mut delta = Routes::new();
        for (prefix, next_hop) in updates.by_ref().take(size) {
            let next_hop = if next_hop.is_none() {
                next_hop
            } else {
                rig.id_at(usize::try_from(next_hop.get()).unwrap_or(0))
            };
            delta.push(prefix, next_hop);
        }
        count += size;
        rig.case(format_args!("replay, {count} updates applied"));
        rig.apply(&delta);
        rig.check_delta(&mut delta);
    }
    rig.check_stats();
    let mut built = TestRig::new(make, "replay", options);
    built.case(format_args!("built at once from what {count} updates left"));
    built.apply(&Routes::from(&rig.rib));
    built.check_stats();
    same(&mut rig, &mut built);
}

fn generated<K: Key>(rig: &mut TestRig, routes: usize, options: Options) -> Vec<(Prefix<K>, NextHopId)> {
    let next_hops = u32::try_from(rig.ids.len()).unwrap_or(u32::MAX);
    let spec = TableSpec { family: K::FAMILY, routes, seed: options.seed, next_hops };
    match table::<K>(&spec) {
        Ok(table) => table
            .into_iter()
            .map(|(prefix, id)| (prefix, rig.id_at(usize::try_from(id.get()).unwrap_or(0))))
            .collect(),
        Err(error) => fail(format_args!("{}: {error}", rig.name())),
    }
}

fn same(one: &mut TestRig, other: &mut TestRig) {
    let v4: Vec<_> = one.rib.v4.prefixes().collect();
    let v6: Vec<_> = one.rib.v6.prefixes().collect();
    for rig in [one, other] {
        rig.case(format_args!("the final table, {} + {} routes", v4.len(), v6.len()));
        rig.check_prefixes(&v4);
        rig.check_prefixes(&v6);
        rig.check_random(500);
        rig.withdraw_all();
    }
}
