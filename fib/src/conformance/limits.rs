//! Capacity limits: large next-hop ids, many ids, and table memory. An engine stores a delta correctly or refuses it as a whole.

use super::draw::{TestKey, Universe};
use super::options::{MakeEngine, Options};
use super::rig::{TestRig, delta_of, fail};
use crate::{EngineError, EngineWriter, NextHopId, Prefix, Route, Routes};
use std::collections::BTreeMap;

const EDGE_IDS: [u32; 8] = [1, 255, 256, (1 << 15) - 1, (1 << 16) - 1, 1 << 16, (1 << 20) + 1, (1 << 24) - 1];
const IDS_AT_ONCE: u32 = 20_000;
/// Distinct ids in the largest table: more than 16 bits can number, and more than the benchmarks use.
const DISTINCT_IDS: u32 = 70_000;

/// Id 1, ids around 2^8, 2^15, 2^16, 2^20 and the largest, at several lengths; 70,000 distinct ids; ids that come and go. A delta beyond the
/// engine's capacity must be refused with [`EngineError::Full`], and the old table stays.
pub fn next_hops(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "next_hops", options);
    edge_ids::<u32>(&mut rig);
    edge_ids::<u128>(&mut rig);
    rig.withdraw_all();
    come_and_go(&mut rig, options.some(IDS_AT_ONCE));
    rig.withdraw_all();
    let distinct = options.some(DISTINCT_IDS);
    many_ids::<u32>(&mut rig, distinct);
    rig.withdraw_all();
    many_ids::<u128>(&mut rig, distinct);
    rig.check_stats();
    rig.withdraw_all();
    inherited_ids::<u32>(&mut rig, 24);
    rig.withdraw_all();
    inherited_ids::<u128>(&mut rig, 48);
}

fn edge_ids<K: TestKey>(rig: &mut TestRig) {
    let largest = rig.writer.info().capacity.next_hop_id_max;
    for id in EDGE_IDS.into_iter().filter_map(|id| NextHopId::new(id).ok()) {
        for len in [0, 8, 17, 20, 24, 28, K::BITS - 1, K::BITS] {
            rig.case(format_args!("id {id} on a {} /{len}", K::FAMILY));
            let prefix = Prefix::truncating(K::random(&mut rig.rng), len);
            let mut delta = delta_of(vec![Route { prefix, next_hop: id }]);
            if id.get() > largest {
                expect_full(rig, &mut delta);
            } else {
                rig.apply(&delta);
                rig.check_prefixes(&[prefix]);
            }
        }
    }
}

fn come_and_go(rig: &mut TestRig, most: u32) {
    let capacity = rig.writer.info().capacity;
    // While a delta is applied, an engine may hold the old and the new id of each route, so use half of its capacity.
    let room = u32::try_from(capacity.next_hops_max / 2).unwrap_or(u32::MAX);
    let at_once = room.min(capacity.next_hop_id_max / 2).min(most);
    let address = u32::random(&mut rig.rng) & 0xf000_0000;
    let prefix = |at: u32| Prefix::truncating(address | at << 8, 24);
    for round in 0..4 {
        rig.case(format_args!("{at_once} ids at once, round {round}"));
        let first = 1 + round % 2 * at_once; // the ids alternate between two ranges
        let routes: Vec<_> = (0..at_once).collect();
        for part in routes.chunks(5000) {
            let mut changes = Vec::new();
            for at in part {
                if let Ok(next_hop) = NextHopId::new(first + at) {
                    changes.push(Route { prefix: prefix(*at), next_hop });
                }
            }
            rig.change(changes);
        }
        let sample: Vec<_> = (0..at_once).step_by(97).map(prefix).collect();
        rig.check_prefixes(&sample);
    }
}

fn many_ids<K: TestKey>(rig: &mut TestRig, distinct: u32) {
    let capacity = rig.writer.info().capacity;
    let step = distinct / 4;
    let universe = rig.universe::<K>(64);
    let mut used: BTreeMap<Prefix<K>, NextHopId> = BTreeMap::new();
    for first in (1..=distinct).step_by(step as usize) {
        rig.case(format_args!("{} distinct ids, {}", first + step - 1, K::FAMILY));
        let mut fresh = BTreeMap::new();
        for id in (first..first + step).filter_map(|id| NextHopId::new(id).ok()) {
            fresh.insert(unused(rig, &universe, &used, &fresh), id);
        }
        let mut changes: Vec<Route<K>> = fresh.iter().map(|(prefix, id)| (*prefix, *id).into()).collect();
        let gone: Vec<_> = used.keys().step_by(1009).copied().collect();
        changes.extend(gone.iter().copied().map(Route::withdrawal));
        let distinct = u64::from(first + step - 1);
        let mut delta = delta_of(changes);
        let fits = distinct <= capacity.next_hops_max && distinct <= u64::from(capacity.next_hop_id_max);
        if !takes(rig, &mut delta, |error| !fits && is_full(error)) {
            break;
        }
        used.retain(|prefix, _| !gone.contains(prefix));
        used.append(&mut fresh);
        let sample: Vec<_> = used.keys().step_by(37).copied().collect();
        rig.check_prefixes(&sample);
    }
    rig.check_stats();
}

/// Engines with room for more distinct ids than this skip the test that fills them.
const FILLED_MAX: u64 = 1 << 17;
/// Routes withdrawn in one delta: enough that an engine may rebuild its table.
const BULK: u32 = 20_000;

/// Routes of length `len` use every id, and a wider route, which four longer ones cover completely, has one more. When one of the four is
/// withdrawn, its addresses inherit that id: correct answers, or a refusal that changes nothing. Other withdraws must be accepted.
fn inherited_ids<K: TestKey>(rig: &mut TestRig, len: u8) {
    let Some(most) =
        u32::try_from(rig.writer.info().capacity.next_hops_max).ok().filter(|n| u64::from(*n) <= FILLED_MAX)
    else {
        return;
    };
    let prefix = |block: u128, at: u32| {
        Prefix::truncating(K::from_high_bits(block << 120 | u128::from(at) << (128 - len)), len)
    };
    let change = |prefix, id| Route { prefix, next_hop: NextHopId::new(id).unwrap_or(NextHopId::NONE) };
    rig.case(format_args!("a route of {} covered by four longer ones", K::FAMILY));
    let wide = Prefix::truncating(prefix(12, 0).address(), len - 2);
    rig.change((0..4).map(|at| change(prefix(12, at), at + 2)).chain([change(wide, 1)]).collect());
    rig.case(format_args!("{BULK} routes of {} with one id", K::FAMILY));
    rig.change((0..BULK).map(|at| change(prefix(11, at), 2)).collect());
    // The engine's stated number of ids, then one more, for the wide route, if the engine accepts it.
    for id in [6..=most, most + 1..=most + 1] {
        rig.case(format_args!("{} distinct ids of {}", id.end(), K::FAMILY));
        let mut delta = delta_of(id.map(|id| change(prefix(10, id), id)).collect());
        take_or_refuse(rig, &mut delta);
    }
    for at in 0..4 {
        rig.case(format_args!("the wide route's id is inherited, {at}"));
        let mut delta = delta_of(vec![change(prefix(12, at), 0)]);
        take_or_refuse(rig, &mut delta);
        rig.check_prefixes(&[wide]);
    }
    rig.case(format_args!("{} routes withdrawn while all ids are in use", BULK - 1));
    rig.change((1..BULK).map(|at| change(prefix(11, at), 0)).collect());
    rig.check_prefixes(&[prefix(11, 0), prefix(11, BULK - 1), prefix(10, most), wide]);
}

fn take_or_refuse(rig: &mut TestRig, delta: &mut Routes) {
    if takes(rig, delta, is_full) {
        rig.check_delta(delta);
    }
}

fn unused<K: TestKey>(
    rig: &mut TestRig,
    universe: &Universe<K>,
    used: &BTreeMap<Prefix<K>, NextHopId>,
    fresh: &BTreeMap<Prefix<K>, NextHopId>,
) -> Prefix<K> {
    loop {
        // Lengths from /19, as in real tables, so that no route covers a large part of the address space.
        let prefix = Prefix::truncating(universe.key(&mut rig.rng), rig.rng.between(19, K::BITS));
        let prefix = if rig.rng.percent(50) {
            Prefix::truncating(K::random(&mut rig.rng), prefix.len())
        } else {
            prefix
        };
        if !used.contains_key(&prefix) && !fresh.contains_key(&prefix) {
            return prefix;
        }
    }
}

/// Checks that the engine refuses `delta` with [`EngineError::Full`], and that nothing has changed.
pub(super) fn expect_full(rig: &mut TestRig, delta: &mut Routes) {
    assert!(!takes(rig, delta, is_full), "{}: must be EngineError::Full, was taken", rig.name());
}

fn is_full(error: &EngineError) -> bool {
    matches!(error, EngineError::Full { .. })
}

/// Whether the engine accepts `delta`. It may refuse with errors that satisfy `may_be`; then nothing may have changed.
fn takes(rig: &mut TestRig, delta: &mut Routes, may_be: impl Fn(&EngineError) -> bool) -> bool {
    let before = rig.writer.generation();
    match rig.announce_all(delta) {
        Ok(_) => return true,
        Err(error) if may_be(&error) => {}
        Err(error) => fail(format_args!(
            "{}, room for {:?}: a delta was refused: {error}",
            rig.name(),
            rig.writer.info().capacity
        )),
    }
    assert_eq!(rig.writer.generation(), before, "{}: a refused delta makes no generation", rig.name());
    unchanged(rig, delta);
    false
}

fn unchanged(rig: &mut TestRig, delta: &mut Routes) {
    rig.case(format_args!("after a refused delta of {} changes", delta.len()));
    rig.check_delta(delta);
    rig.check_delta(delta); // once through lookup, once through slots
    rig.check_random(200);
    rig.check_stats();
    rig.apply(&Routes::new());
    rig.check_delta(delta);
}

const ROUTES_BEFORE: usize = 2000;
/// A delta of this many routes must not fit in addition to [`ROUTES_BEFORE`] when the limit leaves a quarter more memory.
const ROUTES_MAX: usize = 1 << 19;

/// An engine whose memory limit is a quarter above a small table must refuse a large delta as a whole, with [`EngineError::Full`] or
/// [`EngineError::Memory`], and accept smaller ones afterwards. `make` takes `EngineOptions::table_bytes_max`.
pub fn limited(make: &dyn Fn(u64) -> Result<Box<dyn EngineWriter>, EngineError>, options: Options) {
    let mut free = TestRig::new(&|| make(u64::MAX), "limited", options);
    let base = small_table(&mut free);
    free.apply(&base);
    let used_bytes = free.writer.stats().table_bytes;
    drop(free);
    let limit_bytes = used_bytes + used_bytes / 4;
    let mut rig = TestRig::new(&|| make(limit_bytes), "limited", options);
    let base = small_table(&mut rig);
    rig.case(format_args!("{} routes with room for a quarter more", base.len()));
    rig.apply(&base);
    let mut routes = 64;
    loop {
        rig.case(format_args!("{routes} routes in at most {limit_bytes} table bytes"));
        let mut delta = large_delta(&mut rig, routes);
        let bytes = rig.writer.stats().table_bytes;
        assert!(bytes <= limit_bytes, "{}: {bytes} table bytes in service", rig.name());
        if !takes(&mut rig, &mut delta, |error| is_full(error) || matches!(error, EngineError::Memory { .. }))
        {
            break;
        }
        rig.check_delta(&mut delta);
        routes *= 2;
        assert!(routes <= ROUTES_MAX, "{}: never refused", rig.name());
    }
    rig.case(format_args!("after a refusal, a small delta"));
    let mut small = large_delta(&mut rig, 8);
    rig.apply(&small);
    rig.check_delta(&mut small);
    rig.withdraw_all();
    rig.check_random(200);
}

fn small_table(rig: &mut TestRig) -> Routes {
    large_delta(rig, ROUTES_BEFORE)
}

fn large_delta(rig: &mut TestRig, routes: usize) -> Routes {
    fn present<K: TestKey>(rig: &TestRig, routes: usize) -> BTreeMap<Prefix<K>, NextHopId> {
        let some = K::part(&rig.rib).prefixes().enumerate().step_by(5).take(routes);
        some.map(|(at, prefix)| (prefix, if at % 2 == 0 { NextHopId::NONE } else { rig.id_at(at + 1) }))
            .collect()
    }
    let (mut v4, mut v6) = (present(rig, routes), present(rig, routes));
    for _ in 0..routes.div_ceil(2) {
        let next_hop = rig.id();
        v4.insert(Prefix::truncating(u32::random(&mut rig.rng), rig.rng.between(12, 32)), next_hop);
        v6.insert(Prefix::truncating(u128::random(&mut rig.rng), rig.rng.between(19, 128)), next_hop);
    }
    Routes { v4: v4.into_iter().map(Route::from).collect(), v6: v6.into_iter().map(Route::from).collect() }
}
