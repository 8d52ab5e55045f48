//! The engines `bloom`, `bloom-naive`, `bloom-baseline` and `miht`, and `coop` over two of them, on real tables under a real stream of
//! updates, from the folder that `FWD_DATA` names. Without the folder the test prints SKIPPED; the conformance suite's `replay` does
//! the same with generated data.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::oracle::OraclePair;
use fib::testing::data;
use fib::{
    EngineOptions, EngineReader, EngineWriter, FibDelta, KeyBuffer, Keys, NextHopId, NextHopTable, Rib, feed,
};
use lpm_phi::bloom;
use lpm_phi::coop::params::CoopParams;
use lpm_phi::coop::{CoopEngine, Drive, First, Half};
use lpm_phi::miht;
use lpm_phi::variants;
use lpm_phi::variants::params::Variant;

/// Checks that the engine answers as the oracle does at both ends of each `step`-th prefix of `delta`.
fn check(reader: &mut dyn EngineReader, oracle: &OraclePair, delta: &FibDelta, step: usize) {
    let v4: Vec<u32> = delta
        .v4
        .iter()
        .step_by(step)
        .flat_map(|change| [change.prefix.address(), change.prefix.last_address()])
        .collect();
    let v6: Vec<u128> = delta
        .v6
        .iter()
        .step_by(step)
        .flat_map(|change| [change.prefix.address(), change.prefix.last_address()])
        .collect();
    let mut answers = vec![NextHopId::NONE; v4.len()];
    reader.lookup(Keys::V4(&v4), &mut answers).unwrap();
    for (key, answer) in v4.iter().zip(&answers) {
        assert_eq!(*answer, oracle.v4.lookup(*key), "{key:#x}");
    }
    let batch: KeyBuffer = v6.iter().copied().collect();
    let mut answers = vec![NextHopId::NONE; v6.len()];
    reader.lookup(batch.keys(), &mut answers).unwrap();
    for (key, answer) in v6.iter().zip(&answers) {
        assert_eq!(*answer, oracle.v6.lookup(*key), "{key:#x}");
    }
}

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

fn run(engine: &mut dyn EngineWriter, [v4, v6, stream]: &[std::path::PathBuf; 3]) {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    feed::load(&[v4, v6], &mut rib, &mut hops, feed::LoadOptions::default()).unwrap();
    let mut oracle = OraclePair::default();
    let mut reader = engine.reader(1, 256).unwrap();
    let mut commit = |rib: &mut Rib, oracle: &mut OraclePair, step| {
        let delta = rib.commit(|delta, rib| engine.apply(delta, rib).map(|_| delta.clone())).unwrap();
        oracle.apply(&delta);
        check(reader.as_mut(), oracle, &delta, step);
    };
    commit(&mut rib, &mut oracle, 11);
    let mut told = 0;
    for update in feed::updates(stream, None).unwrap() {
        let update = update.unwrap();
        let next_hop = update.next_hop(&mut hops).unwrap();
        rib.set(update.prefix, next_hop);
        told += 1;
        if told % 1000 == 0 {
            commit(&mut rib, &mut oracle, 3);
        }
    }
    commit(&mut rib, &mut oracle, 1);
    // Compared with an oracle of the RIB, not with the one that followed the deltas.
    check(reader.as_mut(), &OraclePair::of(&rib), &rib.full_delta(), 13);
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
