//! The conformance suite for `mamt`: every instruction set with a kernel, few and many levels, several threads. Needs no driver.

use fib::conformance::{self, Options};
use fib::generate::{TableSpec, table};
use fib::oracle::OraclePair;
use fib::random::SplitMix64;
use fib::{EngineError, EngineOptions, EngineWriter, Family, Isa, Keys, NextHopId, Rib};
use lpm_gpu::mamt;

fn made(isa: Isa, parameters: &[(&str, &str)]) -> Result<Box<dyn EngineWriter>, EngineError> {
    mamt::make(&EngineOptions { isa: Some(isa), ..EngineOptions::with_parameters(parameters) })
}

fib::conformance_tests!(scalar, || made(Isa::Scalar, &[]));
fib::conformance_tests!(avx512f, lookups_alone, || made(Isa::Avx512f, &[]));

/// Updates are the same for all instruction sets; lookups differ.
#[test]
fn few_levels_and_many() {
    let options = Options::from_env();
    for (levels, levels6) in [("4", "8"), ("6", "20"), ("20", "30")] {
        for isa in [Isa::Scalar, Isa::Avx512f] {
            let make = || made(isa, &[("levels", levels), ("levels6", levels6), ("headroom", "0")]);
            if !conformance::skipped(&make) {
                let options = if isa == Isa::Scalar { options } else { options.lookups_alone() };
                conformance::shapes(&make, options);
                conformance::boundaries(&make, options);
                conformance::withdraw(&make, options);
            }
        }
    }
}

#[test]
fn without_head_room() {
    let make = || made(Isa::detect(), &[("headroom", "0")]);
    conformance::churn(&make, Options::from_env());
    conformance::concurrent(&make, Options::from_env());
}

#[test]
fn several_threads() {
    let make = || made(Isa::detect(), &[("threads", "3")]);
    conformance::shapes(&make, Options::from_env());
    conformance::batches(&make, Options::from_env());
    conformance::concurrent(&make, Options::from_env());
}

#[test]
fn a_large_batch_is_shared_by_threads_while_routes_change() {
    let mut rib = Rib::plain();
    let spec = |family, routes| TableSpec { family, routes, seed: 3, next_hops: 50 };
    for (prefix, next_hop) in table::<u32>(&spec(Family::V4, 20_000)).unwrap() {
        rib.v4.set(prefix, next_hop);
    }
    for (prefix, next_hop) in table::<u128>(&spec(Family::V6, 5000)).unwrap() {
        rib.v6.set(prefix, next_hop);
    }
    let mut engine = made(Isa::detect(), &[("threads", "4")]).unwrap();
    rib.commit_to(engine.as_mut()).unwrap();
    let mut reader = engine.reader(1, 64).unwrap();
    let mut random = SplitMix64(9);
    let hi: Vec<u64> = (0..40_000).map(|_| random.u64() >> 3 | 1 << 61).collect();
    let v4: Vec<u32> = hi.iter().map(|key| u32::try_from(key >> 32).unwrap()).collect();
    let lo = vec![7; hi.len()];
    let mut out = vec![NextHopId::NONE; hi.len()];
    for round in 0..20_u32 {
        let routes = rib.v4.sorted();
        let (prefix, _) = routes[routes.len() / 20 * round as usize];
        rib.v4.set(prefix, NextHopId::from_answer(100 + round));
        rib.commit_to(engine.as_mut()).unwrap();
        let mut oracle = OraclePair::default();
        oracle.apply(&rib.full_delta());
        reader.lookup(Keys::V4(&v4), &mut out).unwrap();
        assert!(v4.iter().zip(&out).all(|(key, answer)| oracle.v4.lookup(*key) == *answer), "{round}");
        reader.lookup(Keys::V6 { hi: &hi, lo: &lo }, &mut out).unwrap();
        let right = |(hi, lo): (&u64, &u64)| oracle.v6.lookup(u128::from(*hi) << 64 | u128::from(*lo));
        assert!(hi.iter().zip(&lo).zip(&out).all(|(key, answer)| right(key) == *answer), "{round}");
    }
}

#[test]
fn memory_limits() {
    let make = |table_bytes_max| mamt::make(&EngineOptions { table_bytes_max, ..EngineOptions::default() });
    conformance::limited(&make, Options::from_env());
}

#[test]
fn what_is_no_parameter_is_refused_by_name() {
    for (name, value) in [
        ("levels", "3"),
        ("levels", "21"),
        ("levels6", "7"),
        ("levels6", "31"),
        ("headroom", "-1"),
        ("threads", "0"),
        ("threads", "257"),
    ] {
        let Err(error) = made(Isa::Scalar, &[(name, value)]) else { panic!("{name}={value}") };
        assert!(matches!(&error, EngineError::Parameter { parameter, .. } if *parameter == name), "{error}");
    }
    let Err(error) = made(Isa::Scalar, &[("mode", "copy")]) else { panic!("made") };
    assert!(error.to_string().contains("levels, levels6, headroom and threads"), "{error}");
}
