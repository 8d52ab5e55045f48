//! The changes that the RIB passes to an engine, and undoing them.

use super::*;
use crate::{EngineWriter as _, Generation, Prefix4};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn id(value: u32) -> NextHopId {
    NextHopId::from_answer(value)
}

fn route(text: &str) -> Prefix4 {
    match text.parse() {
        Ok(IpPrefix::V4(prefix)) => prefix,
        other => panic!("{text}: {other:?}"),
    }
}

fn follow<K: Key>(table: &mut BTreeMap<Prefix<K>, NextHopId>, changes: &[Change<K>]) {
    assert!(changes.is_sorted_by(|a, b| a.prefix < b.prefix), "{changes:?}");
    for change in changes {
        let old = if change.new.is_none() {
            table.remove(&change.prefix)
        } else {
            table.insert(change.prefix, change.new)
        };
        assert_eq!(old.unwrap_or(NextHopId::NONE), change.old, "{}", change.prefix);
        assert_ne!(change.old, change.new, "{}", change.prefix);
    }
}

#[test]
fn the_memory_of_uncommitted_changes_counts() {
    const ROUTES: usize = 20_000;
    let mut rib = Rib::new();
    for address in (0..).take(ROUTES) {
        rib.set(IpPrefix::V4(Prefix4::truncating(0x0a00_0000 + (address << 8), 24)), id(1));
    }
    let uses = |rib: &Rib| rib.v4.uses.capacity() * size_of::<(NextHopId, u32)>();
    let lists = |rib: &Rib| usize::try_from(rib.v4.bytes() - rib.v4.trie.bytes()).unwrap() - uses(rib);
    let least = ROUTES * size_of::<Dirty>();
    assert!((least..=2 * least).contains(&lists(&rib)), "{}", lists(&rib));
    let commit = |rib: &mut Rib| rib.commit(|_, _| Ok::<_, ()>(())).unwrap();
    commit(&mut rib);
    assert_eq!(lists(&rib), 0, "the lists of a whole table are let go");
    for address in (0..).take(ROUTES / 10) {
        rib.set(IpPrefix::V4(Prefix4::truncating(0x0a00_0000 + (address << 8), 24)), id(2));
    }
    commit(&mut rib);
    let least = ROUTES / 10 * (size_of::<Dirty>() + size_of::<Change<u32>>());
    assert!((least..=2 * least).contains(&lists(&rib)), "{}", lists(&rib));
}

#[test]
fn a_route_like_the_one_above_is_left_out_and_comes_back() {
    let (mut rib, mut used) = (Rib::new(), BTreeMap::new());
    let [wide, middle, narrow] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"].map(route);
    let mut set = |prefix, next_hop| {
        rib.v4.set(prefix, id(next_hop));
        follow(&mut used, &rib.take_delta().v4);
        used.keys().copied().collect::<Vec<_>>()
    };
    set(narrow, 1);
    assert_eq!(set(wide, 1), [wide], "the narrow route says no more than the wide one");
    assert_eq!(set(middle, 2), [wide, middle, narrow]);
    assert_eq!(set(wide, 2), [wide, narrow]);
    set(middle, 0);
    assert_eq!(set(wide, 0), [narrow]);
    assert_eq!(rib.len(), 1);
}

#[test]
fn a_change_of_the_default_route_is_one_change() {
    let mut rib = Rib::new();
    for at in 0..1000 {
        rib.v4.set(Prefix4::truncating(at << 16, 16), id(1 + at % 2));
        rib.v6.set(Prefix::truncating(u128::from(at) << 96, 32), id(1 + at % 2));
    }
    rib.take_delta();
    for next_hop in [1, 2, 3, 0] {
        rib.v4.set(Prefix::DEFAULT, id(next_hop));
        rib.v6.set(Prefix::DEFAULT, id(next_hop));
        let delta = rib.take_delta();
        assert_eq!((delta.v4.len(), delta.v6.len()), (1, 1), "to {next_hop}");
    }
}

#[test]
fn a_plain_rib_leaves_no_route_out() {
    let mut rib = Rib::plain();
    for prefix in ["10.0.0.0/8", "10.1.0.0/16"].map(route) {
        rib.v4.set(prefix, id(1));
    }
    assert_eq!((rib.take_delta().len(), rib.v4.used_len()), (2, 2));
}

#[test]
fn nothing_is_left_of_routes_withdrawn() {
    let mut rib = Rib::new();
    let prefixes: Vec<_> =
        (0..1000_u32).map(|n| Prefix4::truncating(n.wrapping_mul(0x9e37_79b9), 8 + (n % 25) as u8)).collect();
    for (n, prefix) in prefixes.iter().enumerate() {
        rib.v4.set(*prefix, id([1, 2, 3][n % 3]));
        rib.take_delta();
    }
    for prefix in &prefixes {
        rib.v4.set(*prefix, NextHopId::NONE);
        rib.take_delta();
    }
    assert!(rib.is_empty() && rib.full_delta().is_empty());
    assert_eq!(rib.v4.trie.size(), (1, 0), "pages are given back");
}

#[test]
fn a_refusal_undoes_the_changes() {
    let mut rib = Rib::new();
    let [wide, narrow] = ["10.0.0.0/8", "10.1.0.0/16"].map(route);
    rib.v4.set(wide, id(1));
    rib.v4.set(narrow, id(1));
    rib.take_delta();
    let (before, size) = (rib.full_delta(), rib.v4.trie.size());
    rib.v4.set(wide, id(2));
    rib.v4.set(narrow, NextHopId::NONE);
    rib.v4.set(route("10.2.0.0/16"), id(3));
    let refused: Result<(), usize> = rib.commit(|delta, rib| {
        assert_eq!((rib.v4.len(), rib.v4.used_len(), rib.v4.used().count()), (2, 2, 2));
        assert_eq!(rib.v4.used_above(route("10.2.0.0/16")), Some((8, id(2))));
        Err(delta.len())
    });
    assert_eq!(refused, Err(2), "the /8 and the new /16; the one withdrawn was not used");
    assert_eq!((rib.full_delta().v4, rib.v4.trie.size()), (before.v4, size));
    assert_eq!([rib.v4.get(wide), rib.v4.get(narrow)], [id(1), id(1)]);
    assert_eq!((rib.len(), rib.v4.used_len()), (2, 1));
    assert!(rib.take_delta().is_empty());
}

#[test]
fn a_rib_says_what_the_tables_of_both_families_say() {
    let mut rib = Rib::new();
    assert!(rib.is_empty());
    let mut announced = Routes::new();
    for (prefix, next_hop) in [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("2001:db8::/32", 3)] {
        announced.push(prefix.parse().unwrap(), id(next_hop));
    }
    rib.announce(&announced);
    assert_eq!((rib.len(), rib.is_empty(), rib.v4.len(), rib.v6.len()), (3, false, 2, 1));
    assert_eq!(rib.bytes(), rib.v4.bytes() + rib.v6.bytes());
    for (address, route) in [
        ("10.1.2.3", Some(("10.1.0.0/16", 2))),
        ("10.2.0.0", Some(("10.0.0.0/8", 1))),
        ("11.0.0.0", None),
        ("2001:db8::1", Some(("2001:db8::/32", 3))),
        ("::", None),
    ] {
        let route = route.map(|(prefix, next_hop)| (prefix.parse().unwrap(), id(next_hop)));
        assert_eq!(rib.longest(address.parse().unwrap()), route, "{address}");
    }
}

proptest! {
    #[test]
    fn routes_from_a_prefix_on_are_those_of_a_sorted_list(
        routes in prop::collection::vec((any::<u128>(), 0..=128_u8, any::<bool>()), 0..60),
        start in (any::<u128>(), 0..=128_u8),
    ) {
        fn check<K: Key + Default>(routes: &[(Prefix<K>, bool)], start: Prefix<K>) {
            let mut table = RibTable::<K>::default();
            for (prefix, _) in routes {
                table.set(*prefix, id(1));
            }
            for (prefix, _) in routes.iter().filter(|(_, goes)| *goes) {
                table.set(*prefix, NextHopId::NONE);
            }
            let all = table.sorted();
            let starts = all.iter().map(|(prefix, _)| *prefix).chain(routes.iter().map(|(prefix, _)| *prefix));
            for start in starts.chain([start, Prefix::DEFAULT]) {
                let wanted: Vec<_> = all.iter().copied().filter(|(prefix, _)| *prefix >= start).collect();
                assert_eq!(table.starting_at(start).collect::<Vec<_>>(), wanted, "{start}");
            }
        }
        let near = |bits: u128| bits & 0xf0f0_3003_0101_0000_0f0f_0000_0000_0001;
        let v4 = |bits: u128, len| Prefix4::truncating((near(bits) >> 96) as u32, len % 33);
        let v4s: Vec<_> = routes.iter().map(|(bits, len, goes)| (v4(*bits, *len), *goes)).collect();
        check(&v4s, v4(start.0, start.1));
        let v6 = |bits: u128, len| Prefix::<u128>::truncating(near(bits), len);
        let v6s: Vec<_> = routes.iter().map(|(bits, len, goes)| (v6(*bits, *len), *goes)).collect();
        check(&v6s, v6(start.0, start.1));
    }
}

#[cfg(feature = "testing")]
#[test]
fn an_engine_gets_the_routes_that_it_wants_and_one_that_refuses_changes_nothing() {
    use crate::faulty::{Call, Faults, FaultyEngine, How};
    let nested = |rib: &mut Rib| {
        for prefix in ["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "2001:db8:1::/48"] {
            rib.set(prefix.parse().unwrap(), id(1));
        }
    };
    let used = |rib: &Rib| (rib.v4.used_len(), rib.v6.used_len());
    let has = |engine: &FaultyEngine| (engine.stats().routes_v4, engine.stats().routes_v6);
    let faults = std::sync::Arc::new(Faults::default());
    let [mut one, mut other] = [FaultyEngine::new(&faults), FaultyEngine::new(&faults)];
    let mut rib = Rib::new();
    nested(&mut rib);
    rib.take_delta();
    assert_eq!(used(&rib), (1, 1), "an engine that wants fewer had them");
    faults.fail_from(Call::Apply, 0, How::Full);
    assert!(rib.move_to(&mut one).is_err());
    assert_eq!(used(&rib), (1, 1), "it has them still");
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    assert_eq!((rib.move_to(&mut one), has(&one), used(&rib)), (Ok(Generation(1)), (2, 2), (2, 2)));
    assert_eq!((rib.load(&mut other), has(&other)), (Ok(Generation(1)), (2, 2)));
    rib.set("11.0.0.0/8".parse().unwrap(), id(1));
    assert_eq!((rib.commit_to(&mut one), has(&one)), (Ok(Generation(2)), (3, 2)));
    let mut of_one = Rib::for_engine(&one);
    nested(&mut of_one);
    of_one.take_delta();
    assert_eq!(used(&of_one), (2, 2));
}

/// Changes and the action after each: `(address bits, length, next hop, action)`.
type Script = Vec<(u32, u8, u32, u8)>;

fn check_announced<K: Key>(
    table: &RibTable<K>,
    announced: &BTreeMap<Prefix<K>, NextHopId>,
    prefixes: impl Iterator<Item = Prefix<K>>,
) {
    assert!(table.sorted().into_iter().eq(announced.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))));
    assert_eq!(table.is_empty(), announced.is_empty());
    assert!(table.withdrawn().into_iter().eq(announced.keys().copied().map(Route::withdrawal)));
    let ids: BTreeSet<_> = announced.values().copied().collect();
    assert!((0..16).map(id).all(|id| table.has_route_to(id) == ids.contains(&id)), "{ids:?}");
    for prefix in prefixes {
        assert_eq!(table.get(prefix), announced.get(&prefix).copied().unwrap_or_default());
        for key in [prefix.address(), prefix.last_address()] {
            let mut covering = (0..=K::BITS).rev().map(|len| Prefix::truncating(key, len));
            let longest = covering.find_map(|prefix| Some((prefix, *announced.get(&prefix)?)));
            assert_eq!(table.longest(key), longest);
        }
    }
}

/// Checks the queries of `table` for used routes, which are `used`, above and within each of `prefixes`.
fn check_used<K: Key>(
    table: &RibTable<K>,
    used: &BTreeMap<Prefix<K>, NextHopId>,
    prefixes: impl Iterator<Item = Prefix<K>>,
) {
    for prefix in prefixes {
        let mut shorter = (0..prefix.len()).rev();
        let above =
            shorter.find_map(|len| Some((len, *used.get(&Prefix::truncating(prefix.address(), len))?)));
        assert_eq!(table.used_above(prefix), above, "{prefix}");
        let behind = above.filter(|(len, _)| *len > 0).map_or(NextHopId::NONE, |(_, next_hop)| next_hop);
        assert_eq!(table.used_behind(prefix), behind, "{prefix}");
        let within = used.range(prefix..).take_while(|(route, _)| prefix.covers(**route));
        let within = within.map(|(route, next_hop)| (*route, *next_hop));
        assert!(table.used_within(prefix).eq(within), "{prefix}");
    }
}

/// Compares all queries with the definition, for prefixes in a block of `wide` bits.
fn play<K: Key + Default>(script: &Script, wide: u8, is_plain: bool) {
    let mut table = RibTable::<K> { is_plain, ..RibTable::default() };
    let (mut announced, mut used) = (BTreeMap::new(), BTreeMap::new());
    let address = |bits: u32| K::from_high_bits(u128::from(bits) << 120 >> wide);
    // Enough routes elsewhere that a few changes are compiled one by one.
    let elsewhere = (0..64).map(|bits| Prefix::truncating(K::from_high_bits((128 + bits) << 120), 8));
    let default = script.len().is_multiple_of(2).then_some(Prefix::DEFAULT);
    for prefix in elsewhere.chain(default) {
        table.set(prefix, id(9));
        announced.insert(prefix, id(9));
    }
    let prefix = |(bits, len, ..): &(u32, u8, u32, u8)| Prefix::truncating(address(*bits), wide + len);
    let commit = |table: &mut RibTable<K>, used: &mut BTreeMap<_, _>, at: usize| {
        let changes = table.compile();
        follow(used, &changes);
        let asked = script[at.saturating_sub(2)..=at].iter().map(prefix);
        check_used(table, used, asked);
        table.settle(changes);
    };
    commit(&mut table, &mut used, 0);
    let mut committed = announced.clone();
    for (at, step @ (_, _, next_hop, then)) in script.iter().enumerate() {
        let prefix = prefix(step);
        let before = table.set(prefix, id(*next_hop));
        let old =
            if *next_hop == 0 { announced.remove(&prefix) } else { announced.insert(prefix, id(*next_hop)) };
        assert_eq!(before, old.unwrap_or(NextHopId::NONE));
        if at + 1 == script.len() || *then < 2 {
            commit(&mut table, &mut used, at);
            committed = announced.clone();
        } else if *then == 2 {
            let changes = table.compile();
            table.undo(changes);
            announced = committed.clone();
        }
    }
    let covering = |routes: &BTreeMap<Prefix<K>, NextHopId>, prefix: Prefix<K>| {
        (1..prefix.len())
            .rev()
            .find_map(|len| routes.get(&Prefix::truncating(prefix.address(), len)).copied())
    };
    assert_eq!((table.len(), table.used_len()), (announced.len(), used.len()));
    check_announced(&table, &announced, script.iter().map(prefix));
    check_used(&table, &used, script.iter().map(prefix));
    assert!(table.used().eq(used.iter().map(|(prefix, next_hop)| (*prefix, *next_hop))));
    for (prefix, next_hop) in &announced {
        let is_used = is_plain || covering(&announced, *prefix) != Some(*next_hop);
        assert_eq!(used.get(prefix), is_used.then_some(next_hop), "{prefix}");
    }
    table.reselect(!is_plain);
    used = table.used().collect();
    assert_eq!(table.used_len(), used.len());
    for (prefix, next_hop) in &announced {
        let is_used = !is_plain || covering(&announced, *prefix) != Some(*next_hop);
        assert_eq!(used.get(prefix), is_used.then_some(next_hop), "{prefix} once selected again");
    }
    for prefix in announced.into_keys() {
        table.set(prefix, NextHopId::NONE);
    }
    commit(&mut table, &mut used, 0);
    assert_eq!((used.len(), table.used_len(), table.trie.size()), (0, 0, (1, 0)));
    assert!(table.is_empty() && table.withdrawn().is_empty());
}

proptest! {
    // Few prefixes on both sides of where a page ends: nesting is the rule.
    #[test]
    fn used_routes_are_the_announced_ones_without_redundant_ones(
        script in prop::collection::vec((0u32..256, 0u8..=8, 0u32..4, 0u8..6), 1..200),
        is_plain: bool,
    ) {
        for wide in [0, 4, 12, 20, 24] {
            play::<u32>(&script, wide, is_plain);
        }
        for wide in [0, 8, 20, 32, 44, 116, 120] {
            play::<u128>(&script, wide, is_plain);
        }
    }
}
