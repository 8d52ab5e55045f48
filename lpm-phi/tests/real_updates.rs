//! The engines `bloom`, `bloom-naive`, `bloom-baseline` and `miht`, and `coop` over two of them, on real tables under a real stream of
//! updates, from the folder that `FWD_DATA` names. Without the folder the test prints SKIPPED; the conformance suite's `replay` does
//! the same with generated data.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::testing::{data, follow};
use fib::{EngineOptions, EngineWriter, NextHopId, Rib};
use lpm_phi::bloom;
use lpm_phi::coop::params::CoopParams;
use lpm_phi::coop::{CoopEngine, Drive, First, Half};
use lpm_phi::miht;
use lpm_phi::variants;
use lpm_phi::variants::params::Variant;
use std::path::PathBuf;

/// Withdraws all routes in deltas of 20,000, and checks that all filter counters are zero afterwards.
fn withdraw_all(engine: &mut dyn EngineWriter, mut rib: Rib) {
    for part in rib.v4.withdrawn().chunks(20_000) {
        part.iter().for_each(|route| {
            rib.v4.set(route.prefix, route.next_hop);
        });
        rib.commit_to(engine).unwrap();
    }
    for part in rib.v6.withdrawn().chunks(20_000) {
        part.iter().for_each(|route| {
            rib.v6.set(route.prefix, route.next_hop);
        });
        rib.commit_to(engine).unwrap();
    }
    let stats = engine.stats();
    assert_eq!((stats.routes_v4, stats.routes_v6), (0, 0));
    for (name, value) in stats.details.iter().filter(|(name, _)| name.ends_with("filter_occupied")) {
        assert!(value.abs() < 0.5, "{}: {name} = {value}", engine.info().name);
    }
}

fn run(engine: &mut dyn EngineWriter, [v4, v6, stream]: &[PathBuf; 3]) {
    let rib = follow(engine, &[v4.clone(), v6.clone()], stream, (NextHopId::MAX.get(), 1000));
    withdraw_all(engine, rib);
}

#[test]
fn full_tables_under_their_real_updates() {
    let Some(files) = data(["v4-202401.txt.xz", "v6-202401.txt.xz", "updates.20190101.0000.mrt.gz"]) else {
        return;
    };
    let options = EngineOptions::default();
    run(&mut *variants::make(Variant::Naive, &options).unwrap(), &files);
    run(&mut *variants::make(Variant::Baseline, &options).unwrap(), &files);
    run(&mut *bloom::make(&options).unwrap(), &files);
    run(&mut *miht::make(&options).unwrap(), &files);
    let half = |engine: Box<dyn EngineWriter>| Half { engine, drive: Drive::Cpu };
    let parameters = [("split", "0.5"), ("stall-us", "30000000")];
    let params = CoopParams::from_options(&EngineOptions::of(&parameters)).unwrap();
    let miht = First::Engine(half(miht::make(&options).unwrap()));
    run(&mut CoopEngine::new(miht, half(bloom::make(&options).unwrap()), params), &files);
}
