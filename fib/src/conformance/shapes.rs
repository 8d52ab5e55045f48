//! Arrangements of prefixes: each alone, nested, side by side, at the ends of the address space, beyond /64.

use super::draw::TestKey;
use super::options::{MakeEngine, Options};
use super::rig::TestRig;
use crate::{NextHopId, Prefix, Route, Routes};
use std::collections::BTreeSet;

/// Empty table, default route only, every single length, a nested chain, siblings, host routes, the ends of the address space, deep blocks.
pub fn shapes(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "shapes", options);
    empty(&mut rig);
    both(&mut rig, default_only::<u32>, default_only::<u128>);
    both(&mut rig, single_lengths::<u32>, single_lengths::<u128>);
    both(&mut rig, nested_chain::<u32>, nested_chain::<u128>);
    both(&mut rig, siblings::<u32>, siblings::<u128>);
    both(&mut rig, ends::<u32>, ends::<u128>);
    both(&mut rig, host_routes::<u32>, host_routes::<u128>);
    both(&mut rig, |rig| deep::<u32>(rig, 16), |rig| deep::<u128>(rig, 64));
    deep::<u128>(&mut rig, 48);
    rig.withdraw_all();
    rig.check_random(100);
}

/// Runs a case for each family. The IPv4 routes stay in the table while the IPv6 case runs.
fn both(rig: &mut TestRig, v4: impl Fn(&mut TestRig), v6: impl Fn(&mut TestRig)) {
    v4(rig);
    v6(rig);
    rig.withdraw_all();
    rig.check_random(20);
}

fn empty(rig: &mut TestRig) {
    rig.case(format_args!("empty table"));
    rig.check_random(300);
    rig.check::<u32>(&[]);
    rig.check::<u128>(&[]);
    rig.case(format_args!("empty delta on an empty table"));
    rig.apply(&Routes::new());
    rig.check_random(300);
}

fn default_only<K: TestKey>(rig: &mut TestRig) {
    rig.case(format_args!("default route only, {}", K::FAMILY));
    let first = rig.id();
    rig.set(Prefix::<K>::DEFAULT, first);
    rig.check_random(300);
    rig.case(format_args!("default route changed, {}", K::FAMILY));
    let other = rig.id_at(1);
    rig.set(Prefix::<K>::DEFAULT, other);
    rig.check_random(300);
    rig.check_stats();
}

/// One route at a time, of every length, at a random address and at both ends of the address space.
fn single_lengths<K: TestKey>(rig: &mut TestRig) {
    let ends = [K::ZERO, K::mask(K::BITS)];
    let mut last: Option<Prefix<K>> = None;
    for len in 0..=K::BITS {
        for key in [K::random(&mut rig.rng), ends[0], ends[1]] {
            let prefix = Prefix::truncating(key, len);
            rig.case(format_args!("{prefix} alone"));
            let next_hop = rig.id();
            let gone = last.filter(|last| *last != prefix).map(Route::withdrawal);
            rig.change([(prefix, next_hop).into()].into_iter().chain(gone).collect());
            rig.check_prefixes(&[prefix]);
            // Every bit of the prefix counts: a key that differs in one bit lies outside.
            let keys: Vec<_> = (0..K::BITS).map(|bit| prefix.address().flipped(bit)).collect();
            rig.check(&keys);
            last = Some(prefix);
        }
    }
    rig.check_stats();
}

/// Routes of every length at one address, then withdrawn from the longest, from the shortest, and in random order.
fn nested_chain<K: TestKey>(rig: &mut TestRig) {
    for order in ["from the longest", "from the shortest", "in random order"] {
        let address = K::random(&mut rig.rng);
        let chain: Vec<_> = (0..=K::BITS).map(|len| Prefix::truncating(address, len)).collect();
        // A key that first differs from the address at bit b is matched by /b: one key for each link of the chain.
        let mut keys: Vec<_> = (0..K::BITS).map(|bit| address.flipped(bit)).collect();
        keys.push(address);
        rig.case(format_args!("chain of all lengths at {}", address.to_ip()));
        rig.change(chain.iter().enumerate().map(|(at, prefix)| (*prefix, rig.id_at(at)).into()).collect());
        rig.check(&keys);
        rig.check_prefixes(&chain);
        let mut left = chain;
        while !left.is_empty() {
            let at = match order {
                "from the longest" => left.len() - 1,
                "from the shortest" => 0,
                _ => rig.rng.below(left.len()),
            };
            let prefix = left.remove(at);
            rig.case(format_args!("chain at {}, withdrawn {order}, now /{}", address.to_ip(), prefix.len()));
            rig.set(prefix, NextHopId::NONE);
            rig.check(&keys);
        }
    }
}

/// Gives each prefix the next hop with that number, in one delta; 0 withdraws it.
fn step<K: TestKey>(rig: &mut TestRig, changes: &[(Prefix<K>, usize)]) {
    let next_hop = |at: usize| if at == 0 { NextHopId::NONE } else { rig.id_at(at) };
    rig.change(changes.iter().map(|(prefix, at)| (*prefix, next_hop(*at)).into()).collect());
}

/// For every length, both halves of a prefix, with and without the whole prefix; one half withdrawn, the other changed.
fn siblings<K: TestKey>(rig: &mut TestRig) {
    for len in 1..=K::BITS {
        let key = K::random(&mut rig.rng);
        let (one, two) = (Prefix::truncating(key, len), Prefix::truncating(key.flipped(len - 1), len));
        let whole = Prefix::truncating(key, len - 1);
        let all = [one, two, whole];
        let steps: [&[(Prefix<K>, usize)]; 5] = [
            &[(one, 1), (two, 2)],
            &[(whole, 3)],
            &[(one, 0)],
            &[(one, 2), (two, 0)], // the next hop that its sibling had
            &[(whole, 0), (two, 2)],
        ];
        for (at, changes) in steps.into_iter().enumerate() {
            rig.case(format_args!("siblings {one} and {two}, step {at}"));
            step(rig, changes);
            rig.check_prefixes(&all);
        }
    }
}

fn ends<K: TestKey>(rig: &mut TestRig) {
    let ones = K::mask(K::BITS);
    let prefixes = [
        Prefix::truncating(K::ZERO, K::BITS),
        Prefix::truncating(ones, K::BITS),
        Prefix::truncating(K::ZERO, 1),
        Prefix::truncating(ones, 1),
        Prefix::DEFAULT,
    ];
    for (at, prefix) in prefixes.into_iter().enumerate() {
        rig.case(format_args!("the ends of the address space, {prefix} added"));
        let next_hop = rig.id_at(at);
        rig.set(prefix, next_hop);
        rig.check_prefixes(&prefixes);
        rig.check_random(20);
    }
}

fn host_routes<K: TestKey>(rig: &mut TestRig) {
    rig.case(format_args!("host routes, {}", K::FAMILY));
    let mut prefixes = BTreeSet::new();
    for _ in 0..4 {
        let mut key = Prefix::truncating(K::random(&mut rig.rng), K::BITS - 8).address();
        for _ in 0..20 {
            key = key.down();
        }
        for _ in 0..300 {
            prefixes.insert(Prefix::truncating(key, K::BITS));
            key = key.up();
        }
    }
    prefixes.extend((0..500).map(|_| Prefix::truncating(K::random(&mut rig.rng), K::BITS)));
    let prefixes: Vec<_> = prefixes.into_iter().collect();
    rig.announce(&prefixes);
    rig.check_prefixes(&prefixes);
    rig.case(format_args!("host routes, {}, every other withdrawn", K::FAMILY));
    rig.withdraw(prefixes.iter().step_by(2));
    rig.check_prefixes(&prefixes);
    rig.check_stats();
}

/// First without a route for the prefix itself, then with one, then with a shorter one only, then with a default route only.
fn deep<K: TestKey>(rig: &mut TestRig, len: u8) {
    let top = Prefix::truncating(K::random(&mut rig.rng), len);
    let mut routes = BTreeSet::new();
    while routes.len() < 2000 {
        let noise = rig.rng.u128().checked_shr(u32::from(len)).unwrap_or(0);
        let noise = if rig.rng.percent(50) { noise >> 12 } else { noise };
        let key = K::from_high_bits(top.address().to_high_bits() | noise);
        routes.insert(Prefix::truncating(key, rig.rng.between(len + 1, K::BITS)));
    }
    let routes: Vec<_> = routes.into_iter().collect();
    rig.case(format_args!("{} routes beneath {top}, which is no route", routes.len()));
    rig.announce(&routes);
    rig.check_prefixes(&routes);
    let parent = Prefix::truncating(top.address(), len - 3);
    let steps = [
        ("which is a route now", vec![(top, 1)]),
        ("which is withdrawn while a shorter one comes", vec![(top, 0), (parent, 2)]),
        ("under a default route", vec![(parent, 0), (Prefix::DEFAULT, 3)]),
    ];
    for (what, changes) in steps {
        rig.case(format_args!("{} routes beneath {top}, {what}", routes.len()));
        step(rig, &changes);
        rig.check_prefixes(&[top, parent]);
        let sample: Vec<_> = routes.iter().step_by(7).copied().collect();
        rig.check_prefixes(&sample);
    }
    rig.case(format_args!("two thirds of the routes beneath {top} withdrawn"));
    let gone = routes.iter().enumerate().filter(|(at, _)| at % 3 != 0);
    rig.withdraw(gone.map(|(_, prefix)| prefix));
    rig.check_prefixes(&routes);
    rig.check_stats();
}
