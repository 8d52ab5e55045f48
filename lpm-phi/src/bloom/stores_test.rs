//! Every store of the engine's updates under every interleaving with lookups: see [`fib::stores`].
//!
//! The loads are those of the scalar kernel on the tables in service; the vector kernels do them in the same order.

use super::Bloom;
use super::params::Params;
use crate::kernel::scalar::{lookup_v4_one, lookup_v6_one};
use fib::loads::{Loads as _, Place};
use fib::stores::{Checker, Sequences, run};
use fib::{EngineOptions, EngineWriter as _, NextHopId, conformance};
use lpm_core::engine::CpuEngine;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

fn engine() -> CpuEngine<Bloom> {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
    CpuEngine::new(Params::from_options(&options).unwrap()).unwrap()
}

/// Lookups where readers find their table at `$place`: the table in service is their first load, and they keep it.
macro_rules! checker {
    ($place:expr, $one:expr) => {{
        let place = $place;
        let tables = RefCell::new(HashMap::new());
        Checker::new(move |key, steps| {
            let table = steps.load(Place::of(&*place), || {
                let table = place.load_full();
                let address = Arc::as_ptr(&table).addr() as u64;
                tables.borrow_mut().insert(address, table);
                address
            })?;
            let table = Arc::clone(&tables.borrow()[&table]);
            $one(&table, key, steps).map(NextHopId::from_answer)
        })
    }};
}

fn checker_v4(engine: &CpuEngine<Bloom>) -> Checker<u32> {
    checker!(engine.places().0, |table: &_, key, steps: &mut _| lookup_v4_one(table, key, steps))
}

fn checker_v6(engine: &CpuEngine<Bloom>) -> Checker<u128> {
    checker!(engine.places().1, |table: &_, key: u128, steps: &mut _| {
        lookup_v6_one(table, (key >> 64) as u64, key as u64, steps)
    })
}

/// How often all sequences are run: each time with another seed, by an engine of its own, for a checker keeps every table it has seen.
fn rounds() -> u64 {
    if conformance::Options::from_env().full { 20 } else { 1 }
}

/// Runs `$count` sequences for each of `$lengths`, with the checker that `$checker` makes.
macro_rules! sequences {
    ($checker:ident, $count:literal, $lengths:expr) => {
        for seed in 7..7 + rounds() {
            let mut engine = engine();
            let checker = $checker(&engine);
            let _listening = checker.listen();
            for lengths in $lengths {
                let plan = Sequences { seed, count: $count, lengths, next_hops: 5 };
                run(&plan, &checker, |delta, rib| {
                    engine.apply(delta, rib).unwrap();
                });
            }
            println!("{checker:?}");
        }
    };
}

#[test]
fn ipv4_sequences() {
    sequences!(checker_v4, 1500, [14..=32, 19..=32, 21..=26]);
}

#[test]
fn ipv6_sequences() {
    sequences!(checker_v6, 1000, [12..=128, 29..=64, 60..=128, 65..=128]);
}
