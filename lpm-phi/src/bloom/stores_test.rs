//! Every store of the engine's updates in every interleaving with lookups ([`fib::stores`]), with the loads of the scalar kernel.

use super::Bloom;
use super::params::BloomParams;
use crate::kernel::scalar::{lookup_v4_one, lookup_v6_one};
use fib::stores::{Checker, Sequences, Steps, count, count_of, run};
use fib::{EngineOptions, EngineWriter as _, Key};
use lpm_core::engine::CpuEngine;
use std::ops::RangeInclusive;

/// A full run repeats `full` sequences twenty times, each with a new engine, since a checker keeps every table it has seen.
fn sequences<K: Key + 'static>(
    checker: impl Fn(&CpuEngine<Bloom>) -> Checker<K>,
    full: usize,
    lengths: &[RangeInclusive<u8>],
) {
    for seed in (7..).take(count(1)) {
        let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
        let mut engine = CpuEngine::new(BloomParams::from_options(&options).unwrap()).unwrap();
        let checker = checker(&engine);
        let _listening = checker.listen();
        for lengths in lengths {
            let plan =
                Sequences { seed, count: count_of(full / 3, full), lengths: lengths.clone(), next_hops: 5 };
            run(&plan, &checker, |delta, rib| {
                engine.apply(delta, rib).unwrap();
            });
        }
        println!("{checker:?}");
    }
}

#[test]
fn ipv4_sequences() {
    let checker = |engine: &CpuEngine<Bloom>| {
        let lookup = |table: &_, key, steps: &mut Steps<'_>| lookup_v4_one(table, key, steps);
        Checker::of_tables(engine.places().0, |place| place.load_full(), lookup)
    };
    sequences(checker, 1500, &[14..=32, 19..=32, 21..=26]);
}

#[test]
fn ipv6_sequences() {
    let checker = |engine: &CpuEngine<Bloom>| {
        let lookup = |table: &_, key: u128, steps: &mut Steps<'_>| {
            lookup_v6_one(table, (key >> 64) as u64, key as u64, steps)
        };
        Checker::of_tables(engine.places().1, |place| place.load_full(), lookup)
    };
    sequences(checker, 1000, &[12..=128, 29..=64, 60..=128, 65..=128]);
}
