//! Every store of the engines' updates under every interleaving with lookups: see [`fib::stores`].
//!
//! The loads are those of the scalar kernels on the tables in service; the vector kernels do them in the same order.

use crate::bit_maps::BitMapEngine;
use crate::kernel::scalar::{bit_maps_one, paper_one, wide_one};
use crate::params::Params;
use crate::sail_b::EveryLevel;
use crate::sail_l::SailL;
use crate::sail_l::layout::{Paper, Wide};
use crate::sail_u::EverySixthLevel;
use fib::loads::{Loads as _, Place};
use fib::stores::{Checker, Sequences, run};
use fib::{EngineOptions, EngineWriter as _, NextHopId, conformance};
use lpm_core::engine::{Algorithm, CpuEngine};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

fn engine<A: Algorithm<Params = Params>>() -> CpuEngine<A> {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
    CpuEngine::new(Params::plain(&options, "IPv6", "none").unwrap()).unwrap()
}

/// Runs `$count` sequences for each range of lengths on the engine `$algorithm`, whose lookups are `$one`.
macro_rules! sequences {
    ($algorithm:ty, $one:expr, $count:expr, $lengths:expr) => {{
        let mut engine = engine::<$algorithm>();
        let place = engine.places().0;
        let tables = RefCell::new(HashMap::new());
        // The table in service is a lookup's first load, and it keeps it.
        let checker = Checker::new(move |key, steps| {
            let table = steps.load(Place::of(&*place), || {
                let table = place.load_full();
                let address = Arc::as_ptr(&table).addr() as u64;
                tables.borrow_mut().insert(address, table);
                address
            })?;
            let table = Arc::clone(&tables.borrow()[&table]);
            $one(&table, key, steps).map(NextHopId::from_answer)
        });
        let _listening = checker.listen();
        let count = if conformance::Options::from_env().full { $count * 20 } else { $count };
        let all: &[RangeInclusive<u8>] = $lengths;
        for lengths in all {
            let plan = Sequences { seed: 11, count, lengths: lengths.clone(), next_hops: 5 };
            run(&plan, &checker, |delta, rib| {
                engine.apply(delta, rib).unwrap();
            });
        }
        println!("{checker:?}");
    }};
}

#[test]
fn sail_b_sequences() {
    sequences!(BitMapEngine<EveryLevel>, bit_maps_one, 1000, &[0..=32, 14..=26, 20..=28, 23..=32]);
}

#[test]
fn sail_u_sequences() {
    sequences!(BitMapEngine<EverySixthLevel>, bit_maps_one, 1500, &[8..=32, 12..=26, 17..=25, 23..=32]);
}

#[test]
fn sail_l_wide_sequences() {
    sequences!(SailL<Wide>, wide_one, 1500, &[12..=32, 15..=26, 23..=32]);
}

#[test]
fn sail_l_paper_sequences() {
    sequences!(SailL<Paper>, paper_one, 1500, &[12..=32, 15..=26, 23..=32]);
}
