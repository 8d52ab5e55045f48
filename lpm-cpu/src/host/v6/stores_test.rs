//! Every store of IPv6 updates in every interleaving with lookups ([`fib::stores`]), with the loads of the scalar kernel.

use super::conformance_test::{CodedForms, WideForms, engine};
use super::kernel::scalar::one_or_default;
use super::table::Shared6;
use super::{EveryForm, Forms};
use crate::stores_test::run_blocks;
use fib::stores::{Checker, Sequences, count_of, run};
use fib::{EngineOptions, EngineWriter as _, Prefix6};

fn sequences<F: Forms>() {
    let options = EngineOptions { huge_pages: false, ..EngineOptions::default() };
    let mut engine = engine::<F>(&options).unwrap();
    let checker = Checker::of_tables(
        engine.places().1,
        |place| place.load_full(),
        |table, key, steps| match table {
            Shared6::Narrow(table) => one_or_default(table, key, steps),
            Shared6::Wide(table) => one_or_default(table, key, steps),
        },
    );
    let _listening = checker.listen();
    let count = count_of(250, 20_000);
    // Widely spaced nests take many more steps a lookup.
    let plans = [
        (0..=40, count / 10),
        (8..=40, count),
        (20..=34, count),
        (30..=52, count),
        (60..=72, count),
        (120..=128, count),
        (8..=64, count / 4),
    ];
    for (lengths, count) in plans {
        let plan = Sequences { seed: 11, count, lengths, next_hops: 5 };
        run(&plan, &checker, |delta, rib| {
            engine.apply(delta, rib).unwrap();
        });
    }
    for (at, len) in [(0, 0), (0x2001_0db8 << 96, 32), (0x2001_0db8 << 96 | 7 << 64, 64)] {
        run_blocks(12, count, (Prefix6::truncating(at, len), true), &checker, |delta, rib| {
            engine.apply(delta, rib).unwrap();
        });
    }
    println!("{checker:?}");
}

#[test]
fn sequences_of_ids() {
    sequences::<EveryForm>();
}

#[test]
fn sequences_of_codes() {
    sequences::<CodedForms>();
}

#[test]
fn sequences_of_wide_entries() {
    sequences::<WideForms>();
}
