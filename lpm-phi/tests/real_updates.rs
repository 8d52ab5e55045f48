//! The engines `bloom`, `bloom-naive`, `bloom-baseline` and `miht`, and `coop` over two of them, on real tables under a real stream of
//! updates from the folder `FWD_DATA`; skipped without it. The conformance suite's `replay` generates a similar load.

use fib::testing::{commit_to_all, data, follow};
use fib::{EngineOptions, EngineWriter, NextHopId, Rib};
use lpm_phi::bloom;
use lpm_phi::coop::params::CoopParams;
use lpm_phi::coop::{CoopEngine, Drive, First, Half};
use lpm_phi::miht;
use lpm_phi::variants;
use lpm_phi::variants::params::Variant;

/// Withdraws all routes in deltas of 20,000, and checks that all filter counters are zero afterwards.
fn withdraw_all(engines: &mut [Box<dyn EngineWriter>], mut rib: Rib) {
    for part in rib.v4.withdrawn().chunks(20_000) {
        part.iter().for_each(|route| {
            rib.v4.set(route.prefix, route.next_hop);
        });
        commit_to_all(&mut rib, engines);
    }
    for part in rib.v6.withdrawn().chunks(20_000) {
        part.iter().for_each(|route| {
            rib.v6.set(route.prefix, route.next_hop);
        });
        commit_to_all(&mut rib, engines);
    }
    for engine in engines {
        let stats = engine.stats();
        assert_eq!((stats.routes_v4, stats.routes_v6), (0, 0));
        for (name, value) in stats.details.iter().filter(|(name, _)| name.ends_with("filter_occupied")) {
            assert!(value.abs() < 0.5, "{}: {name} = {value}", engine.info().name);
        }
    }
}

#[test]
fn full_tables_under_their_real_updates() {
    let Some([v4, v6, stream]) =
        data(["v4-202401.txt.xz", "v6-202401.txt.xz", "updates.20190101.0000.mrt.gz"])
    else {
        return;
    };
    let options = EngineOptions::default();
    let half = |engine: Box<dyn EngineWriter>| Half { engine, drive: Drive::Cpu };
    let parameters = [("split", "0.5"), ("stall-us", "30000000")];
    let params = CoopParams::from_options(&EngineOptions::with_parameters(&parameters)).unwrap();
    let miht = || miht::make(&options).unwrap();
    let bloom = || bloom::make(&options).unwrap();
    let coop: Box<dyn EngineWriter> =
        Box::new(CoopEngine::new(First::Engine(half(miht())), half(bloom()), params));
    let naive = variants::make(Variant::Naive, &options).unwrap();
    let baseline = variants::make(Variant::Baseline, &options).unwrap();
    for mut engines in [vec![naive, baseline, miht(), coop], vec![bloom()]] {
        let tables = [v4.clone(), v6.clone()];
        let rib = follow(&mut engines, &tables, &stream, (NextHopId::MAX.get(), 1000));
        withdraw_all(&mut engines, rib);
    }
}
