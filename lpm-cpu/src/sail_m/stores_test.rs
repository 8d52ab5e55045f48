//! Every store of SAIL_M's updates in every interleaving with lookups, of all FIBs ([`fib::stores`]).

use super::engine::SailM;
use super::from_options;
use super::table::OverlayTable;
use crate::kernel::scalar::many_one;
use crate::stores_test::run_blocks;
use fib::oracle::Oracle4;
use fib::random::Seeded;
use fib::stores::{Checker, Sequences, Steps, Stopped, count, run};
use fib::{EngineOptions, EngineWriter as _, FibDelta, FibId, Key as _, NextHopId, Prefix, Prefix4, Rib};
use std::cell::RefCell;

const FIBS: u32 = 3;

fn engine() -> SailM {
    let fibs = FIBS.to_string();
    let options = EngineOptions { huge_pages: false, ..EngineOptions::with_parameters(&[("fibs", &fibs)]) };
    from_options(&options).unwrap()
}

/// A key of the checker: the id of the FIB, then the address.
fn one(table: &OverlayTable, key: u128, steps: &mut Steps<'_>) -> Result<u32, Stopped> {
    many_one(table, FibId(u32::from_high_bits(key)), u32::from_high_bits(key << 32), steps)
}

#[test]
fn sequences_over_all_fibs() {
    const BLOCKS: [u32; 4] = [0x0a01_0200, 0x0a01_0300, 0x0a01_8300, 0x0a02_0300];
    const LENGTHS: [u8; 8] = [8, 14, 16, 19, 24, 25, 27, 32];
    let mut engine = engine();
    let checker: Checker<u128> = Checker::of_tables(engine.place(), |place| place.load_full(), one);
    let _listening = checker.listen();
    let addresses = BLOCKS.map(|block| [block | 1, block | 0x81]).concat();
    let keys: Vec<_> = (0..FIBS)
        .flat_map(|fib| {
            addresses.iter().map(move |address| u128::from(fib) << 96 | u128::from(*address) << 64)
        })
        .collect();
    let mut rng = Seeded::new(21, 0);
    for _ in 0..count(1500) {
        let mut ribs: Vec<_> = (0..FIBS).map(|_| Rib::plain()).collect();
        let mut oracles: Vec<_> = ribs.iter().map(|_| Oracle4::new()).collect();
        let right = |oracles: &[Oracle4]| -> Vec<_> {
            let of = |oracle: &Oracle4| addresses.iter().map(|address| oracle.lookup(*address)).collect();
            oracles.iter().flat_map(|oracle| -> Vec<_> { of(oracle) }).collect()
        };
        checker.watch(&keys, &right(&oracles));
        // The last deltas withdraw everything, FIB by FIB.
        for at in 0..12 + FIBS {
            let fib = if at < 12 { rng.u32() % FIBS } else { at - 12 };
            let (rib, oracle) = (&mut ribs[fib as usize], &mut oracles[fib as usize]);
            let mut routes = if at < 12 { Vec::new() } else { rib.v4.withdrawn() };
            for _ in 0..if at < 12 { 1 + rng.below(3) } else { 0 } {
                let prefix = Prefix4::truncating(BLOCKS[rng.below(4)] | 1, LENGTHS[rng.below(8)]);
                let is_there = !rib.v4.get(prefix).is_none();
                let id = if is_there && rng.percent(70) { 0 } else { 1 + rng.u32() % 5 };
                routes.push(fib::Route { prefix, next_hop: NextHopId::from_answer(id) });
            }
            for route in &routes {
                rib.v4.set(route.prefix, route.next_hop);
                oracle.set(route.prefix, route.next_hop);
            }
            checker.begin(&right(&oracles));
            let applied = rib.commit(|delta, rib| engine.apply_to(FibId(fib), delta, rib));
            applied.unwrap();
            checker.end();
        }
    }
    println!("{checker:?}");
    assert_eq!(engine.stats().details.get("sail_chunks24"), Some(0.0), "nothing is split without routes");
}

#[test]
fn nests_while_another_fib_changes() {
    for (watched, changing) in [(0, 1), (2, 0)].map(|(one, other)| (FibId(one), FibId(other))) {
        let engine = RefCell::new(engine());
        let checker: Checker<u32> = Checker::of_tables(
            engine.borrow().place(),
            |place| place.load_full(),
            move |table, key, steps| many_one(table, watched, key, steps),
        );
        let _listening = checker.listen();
        let other = RefCell::new((Rib::plain(), Seeded::new(22, 0)));
        let apply = |delta: &FibDelta, rib: &Rib| {
            let (other, rng) = &mut *other.borrow_mut();
            let engine = &mut *engine.borrow_mut();
            for change in &delta.v4 {
                let id = if rng.percent(50) { 1 + rng.u32() % 9 } else { 0 };
                let len = change.prefix.len().max(rng.between(8, 32));
                other
                    .v4
                    .set(Prefix::truncating(change.prefix.last_address(), len), NextHopId::from_answer(id));
            }
            let is_first = rng.percent(50);
            if is_first {
                other.commit(|delta, rib| engine.apply_to(changing, delta, rib)).unwrap();
            }
            engine.apply_to(watched, delta, rib).unwrap();
            if !is_first {
                other.commit(|delta, rib| engine.apply_to(changing, delta, rib)).unwrap();
            }
        };
        for lengths in [12..=32, 15..=26, 23..=32] {
            run(&Sequences { seed: 11, count: count(500), lengths, next_hops: 5 }, &checker, apply);
        }
        run_blocks(12, count(500), (Prefix::DEFAULT, false), &checker, apply);
        println!("{checker:?}");
    }
}
