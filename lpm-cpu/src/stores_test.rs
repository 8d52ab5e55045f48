//! Every store of the engines' updates in every interleaving with lookups ([`fib::stores`]), with the loads of the scalar kernels.

use crate::bit_maps::BitMapEngine;
use crate::host::HostEngine;
use crate::host::params::{Gathers, HostParams};
use crate::host::v4::kernel::scalar::one_or_default as host_one;
use crate::kernel::scalar::{bit_maps_one, paper_one, wide_one};
use crate::params::SailParams;
use crate::sail_b::EveryLevel;
use crate::sail_l::SailL;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_u::EverySixthLevel;
use fib::oracle::Oracle;
use fib::stores::{Checker, Sequences, Steps, Stopped, count, run};
use fib::{EngineOptions, EngineWriter as _, FibDelta, Key, NextHopId, Prefix, Rib};
use lpm_core::engine::{Algorithm, CpuEngine, FibTable};
use std::convert::Infallible;
use std::ops::RangeInclusive;

fn sail<A: Algorithm<Params = SailParams>>() -> CpuEngine<A> {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
    CpuEngine::new(SailParams::plain(&options, "IPv6", "none").unwrap()).unwrap()
}

fn host(code_bits: &str) -> CpuEngine<HostEngine> {
    let options =
        EngineOptions { huge_pages: false, ..EngineOptions::with_parameters(&[("code-bits", code_bits)]) };
    CpuEngine::new(HostParams::from_options(&options, |_| Gathers::BOTH).unwrap()).unwrap()
}

/// Small deltas over four /24s in two /16s, and in both halves of one, mapped into the block `within`: chunks move between the nodes,
/// unlike in the nests of [`run`]. With `has_whole`, some deltas have a route of the block.
pub(crate) fn run_blocks<K: Key>(
    seed: u64,
    count: usize,
    (within, has_whole): (Prefix<K>, bool),
    checker: &Checker<K>,
    mut apply: impl FnMut(&FibDelta, &Rib),
) {
    const BLOCKS: [u32; 4] = [0x0a01_0200, 0x0a01_0300, 0x0a01_8300, 0x0a02_0300];
    let key =
        |low: u32| K::from_high_bits(within.address().to_high_bits() | u128::from(low) << 96 >> within.len());
    let keys = BLOCKS.map(|block| [key(block | 1), key(block | 0x81)]).concat();
    let mut state = seed;
    let mut below = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).unwrap() % limit
    };
    for _ in 0..count {
        let (mut rib, mut oracle) = (Rib::plain(), Oracle::new());
        let right = |oracle: &Oracle<K>| keys.iter().map(|key| oracle.lookup(*key)).collect::<Vec<_>>();
        checker.watch(&keys, &right(&oracle));
        for at in 0..9 {
            // The last delta withdraws everything.
            let routes = if at == 8 { K::part(&rib).withdrawn() } else { Vec::new() };
            for route in &routes {
                rib.set(K::wrap(route.prefix), route.next_hop);
                oracle.set(route.prefix, route.next_hop);
            }
            for _ in 0..if at == 8 { 0 } else { 1 + below(3) } {
                let is_whole = has_whole && below(4) == 0;
                let len = if is_whole { 0 } else { [8, 14, 16, 19, 24, 25, 27, 32][below(8) as usize] };
                let prefix = Prefix::truncating(key(BLOCKS[below(4) as usize] | 1), within.len() + len);
                let is_there = !K::part(&rib).get(prefix).is_none();
                let next_hop = if is_there && below(10) < 7 { 0 } else { 1 + below(5) };
                rib.set(K::wrap(prefix), NextHopId::from_answer(next_hop));
                oracle.set(prefix, NextHopId::from_answer(next_hop));
            }
            checker.begin(&right(&oracle));
            let _: Result<(), Infallible> = rib.commit(|delta, rib| {
                apply(delta, rib);
                Ok(())
            });
            checker.end();
        }
    }
}

/// Runs `quick` sequences for each range of lengths. With `has_default`, blocks of addresses have a default route.
fn sequences<A: Algorithm>(
    mut engine: CpuEngine<A>,
    one: impl Fn(&<A::V4 as FibTable<u32>>::Shared, u32, &mut Steps<'_>) -> Result<u32, Stopped> + 'static,
    quick: usize,
    lengths: &[RangeInclusive<u8>],
    (next_hops, has_default): (u32, bool),
) {
    let checker = Checker::of_tables(engine.places().0, |place| place.load_full(), one);
    let _listening = checker.listen();
    let count = count(quick);
    let mut apply = |delta: &FibDelta, rib: &Rib| {
        engine.apply(delta, rib).unwrap();
    };
    for lengths in lengths {
        let plan = Sequences { seed: 11, count, lengths: lengths.clone(), next_hops };
        run(&plan, &checker, &mut apply);
    }
    run_blocks(12, count, (Prefix::DEFAULT, has_default), &checker, apply);
    println!("{checker:?}");
}

#[test]
fn sail_b_sequences() {
    let engine = sail::<BitMapEngine<EveryLevel>>();
    let lengths = [0..=32, 14..=26, 20..=28, 23..=32];
    sequences(engine, |maps, key, steps| bit_maps_one(maps, key, steps), 1000, &lengths, (5, false));
}

#[test]
fn sail_u_sequences() {
    let engine = sail::<BitMapEngine<EverySixthLevel>>();
    let lengths = [8..=32, 12..=26, 17..=25, 23..=32];
    sequences(engine, |maps, key, steps| bit_maps_one(maps, key, steps), 1500, &lengths, (5, false));
}

/// Lengths with chunks of both levels.
const SAIL_L_LENGTHS: &[RangeInclusive<u8>] = &[12..=32, 15..=26, 23..=32];

#[test]
fn sail_l_wide_sequences() {
    let engine = sail::<SailL<Wide>>();
    sequences(engine, |table, key, steps| wide_one(table, key, steps), 1500, SAIL_L_LENGTHS, (5, false));
}

#[test]
fn sail_l_paper_sequences() {
    let engine = sail::<SailL<Paper>>();
    sequences(engine, |table, key, steps| paper_one(table, key, steps), 1500, SAIL_L_LENGTHS, (5, false));
}

/// Lengths with a default route; within cells of four /24s, records of 128, and blocks.
const HOST_LENGTHS: &[RangeInclusive<u8>] = &[0..=32, 14..=19, 15..=26, 20..=25, 23..=32];

fn host_sequences(code_bits: &str, quick: usize, lengths: &[RangeInclusive<u8>], next_hops: u32) {
    let one = |table: &_, key, steps: &mut Steps<'_>| host_one(table, key, steps);
    sequences(host(code_bits), one, quick, lengths, (next_hops, true));
}

#[test]
fn host_sequences_8_bits() {
    host_sequences("8", 800, HOST_LENGTHS, 5);
}

#[test]
fn host_sequences_16_bits() {
    host_sequences("16", 500, HOST_LENGTHS, 5);
}

#[test]
fn host_sequences_32_bits() {
    host_sequences("32", 300, &HOST_LENGTHS[1..], 5);
}

/// Ids above 65,534 with few routes: codes are indices.
#[test]
fn host_sequences_indexed() {
    host_sequences("8", 500, HOST_LENGTHS, 1 << 24);
}

#[test]
fn host_stores_a_default_route_once() {
    let (mut engine, mut rib) = (host("8"), Rib::new());
    for at in 0..20_000_u32 {
        let (bits, next_hop) = (at.wrapping_mul(0x9e37_79b9), NextHopId::from_answer(1 + at % 5));
        rib.v4.set(Prefix::truncating(bits, 12 + (at % 17) as u8), next_hop);
        rib.v6.set(Prefix::truncating(u128::from(bits) << 92, 20 + (at % 40) as u8), next_hop);
    }
    rib.commit_to(&mut engine).unwrap();
    let counter = Checker::<u32>::new(|_, _| Ok(NextHopId::NONE));
    let _listening = counter.listen();
    // Added, changed to a next hop that others use and to a new one, withdrawn, and added again.
    for next_hop in [1, 2, 999, 0, 3].map(NextHopId::from_answer) {
        let before = counter.tried().0;
        rib.v4.set(Prefix::DEFAULT, next_hop);
        rib.v6.set(Prefix::DEFAULT, next_hop);
        rib.commit_to(&mut engine).unwrap();
        assert_eq!(counter.tried().0 - before, 2, "stores of both families, to next hop {next_hop}");
        let mut answers = [NextHopId::MAX; 2];
        let mut reader = engine.reader(1, 2).unwrap();
        let (v4, v6) = answers.split_at_mut(1);
        reader.lookup(fib::Keys::V4(&[0xf000_0001]), v4).unwrap();
        reader.lookup(fib::Keys::V6 { hi: &[0x2001 << 48], lo: &[0] }, v6).unwrap();
        assert_eq!(answers, [next_hop; 2]);
    }
}
