//! Whole tables: random ones, nested ones, and ones shaped like the Internet's.

use super::draw::TestKey;
use super::options::{MakeEngine, Options};
use super::rig::TestRig;
use crate::generate::{DEFAULT_ROUTES_V4, DEFAULT_ROUTES_V6, TableSpec, table};
use crate::{NextHopId, Prefix};
use std::collections::BTreeSet;

/// Prefixes per check, so that a failure message stays close to its cause.
const PREFIXES_A_CHECK: usize = 1000;

/// Routes of every length, nested and scattered. Looks up the first and last key of every prefix, and their neighbours.
pub fn boundaries(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "boundaries", options);
    boundaries_of::<u32>(&mut rig);
    boundaries_of::<u128>(&mut rig);
    rig.check_stats();
    rig.withdraw_all();
    rig.check_random(200);
}

fn boundaries_of<K: TestKey>(rig: &mut TestRig) {
    let universe = rig.universe::<K>(16);
    let mut prefixes: BTreeSet<_> = (0..2000).map(|_| universe.prefix(&mut rig.rng)).collect();
    for len in 0..=K::BITS {
        prefixes.extend((0..8).map(|_| Prefix::truncating(K::random(&mut rig.rng), len)));
    }
    let prefixes: Vec<_> = prefixes.into_iter().collect();
    rig.case(format_args!("{} prefixes of {} at once", prefixes.len(), K::FAMILY));
    rig.announce(&prefixes);
    check_all(rig, &prefixes);
}

/// Tables of 100 to 20,000 routes per family, uniform and nested, each built in one delta and withdrawn in one.
pub fn random_tables(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "random_tables", options);
    let sizes = [(100, 2), (1000, 8), (5000, 200), (20_000, 4000)];
    for (routes, bases) in sizes.into_iter().take(if options.is_short() { 3 } else { 4 }) {
        let v4 = random_table::<u32>(&mut rig, routes, bases);
        let v6 = random_table::<u128>(&mut rig, routes, bases);
        rig.check_stats();
        rig.case(format_args!("{routes} random routes a family, next hops changed"));
        change_some(&mut rig, &v4);
        change_some(&mut rig, &v6);
        rig.case(format_args!("{routes} random routes a family, withdrawn"));
        rig.withdraw_all();
        rig.check_prefixes(&v4[..v4.len().min(200)]);
        rig.check_prefixes(&v6[..v6.len().min(200)]);
    }
}

fn random_table<K: TestKey>(rig: &mut TestRig, routes: usize, bases: usize) -> Vec<Prefix<K>> {
    let universe = rig.universe::<K>(bases);
    let mut prefixes = BTreeSet::new();
    while prefixes.len() < routes {
        let uniform = Prefix::truncating(K::random(&mut rig.rng), rig.rng.between(0, K::BITS));
        let nested = universe.prefix(&mut rig.rng);
        prefixes.insert(if rig.rng.percent(50) { uniform } else { nested });
    }
    let prefixes: Vec<_> = prefixes.into_iter().collect();
    rig.case(format_args!("{routes} random routes of {}", K::FAMILY));
    rig.announce(&prefixes);
    check_all(rig, &prefixes);
    rig.check_random(500);
    prefixes
}

fn change_some<K: TestKey>(rig: &mut TestRig, prefixes: &[Prefix<K>]) {
    let some: Vec<_> = prefixes.iter().step_by(10).copied().collect();
    rig.announce(&some);
    check_all(rig, &some);
}

fn check_all<K: TestKey>(rig: &mut TestRig, prefixes: &[Prefix<K>]) {
    for part in prefixes.chunks(PREFIXES_A_CHECK) {
        rig.check_prefixes(part);
    }
}

/// Tables of 20,000 IPv4 and 10,000 IPv6 routes or of full size, looked up at edges and at random; a tenth is re-announced, a tenth withdrawn.
pub fn internet_tables(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "internet_tables", options);
    let sizes = if options.full { (DEFAULT_ROUTES_V4, DEFAULT_ROUTES_V6) } else { (20_000, 10_000) };
    let v4 = internet_table::<u32>(&mut rig, sizes.0, options.seed);
    let v6 = internet_table::<u128>(&mut rig, sizes.1, options.seed);
    rig.check_stats();
    rig.case(format_args!("Internet-like tables, a tenth re-announced"));
    change_some(&mut rig, &v4);
    change_some(&mut rig, &v6);
    rig.case(format_args!("Internet-like tables, a tenth withdrawn"));
    withdraw_some(&mut rig, &v4);
    withdraw_some(&mut rig, &v6);
    rig.check_stats();
    rig.withdraw_all();
    rig.check_random(500);
}

fn internet_table<K: TestKey>(rig: &mut TestRig, routes: usize, seed: u64) -> Vec<Prefix<K>> {
    let next_hops = u32::try_from(rig.ids.len()).unwrap_or(u32::MAX);
    let spec = TableSpec { family: K::FAMILY, routes, seed, next_hops };
    let generated = match table::<K>(&spec) {
        Ok(table) => table,
        Err(error) => super::rig::fail(format_args!("{}: {error}", rig.name())),
    };
    rig.case(format_args!("Internet-like table of {} {} routes", generated.len(), K::FAMILY));
    // Replaces the generator's next hops, numbered from 1, by ids that the engine can hold.
    let next_hop = |id: NextHopId| rig.id_at(usize::try_from(id.get()).unwrap_or(0));
    rig.change(generated.iter().map(|(prefix, id)| (*prefix, next_hop(*id)).into()).collect());
    let prefixes: Vec<_> = generated.into_iter().map(|(prefix, _)| prefix).collect();
    check_all(rig, &prefixes);
    let keys: Vec<_> = (0..5000)
        .map(|_| {
            let prefix = prefixes[rig.rng.below(prefixes.len())];
            rig.rng.inside(prefix)
        })
        .collect();
    rig.check(&keys);
    rig.check_random(2000);
    prefixes
}

fn withdraw_some<K: TestKey>(rig: &mut TestRig, prefixes: &[Prefix<K>]) {
    let some: Vec<_> = prefixes.iter().skip(5).step_by(10).copied().collect();
    rig.withdraw(&some);
    check_all(rig, &some);
}
