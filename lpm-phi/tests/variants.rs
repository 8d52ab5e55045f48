//! The engines `bloom-naive` and `bloom-baseline` in the conformance suite, for every instruction set and pair of hashes, and further
//! tests: levels that are refused, counters that return to zero.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::generate::{TableSpec, table};
use fib::{
    EngineError, EngineOptions, EngineWriter, Family, Isa, Keys, NextHopId, Prefix4, Prefix6, Rib,
    conformance,
};
use lpm_phi::bloom::equations::FilterSize;
use lpm_phi::variants;
use lpm_phi::variants::hash::{HashName, h2};
use lpm_phi::variants::params::Variant;

fn make(
    variant: Variant,
    isa: Isa,
    parameters: &[(&str, &str)],
    table_bytes_max: u64,
) -> Result<Box<dyn EngineWriter>, EngineError> {
    let options =
        EngineOptions { isa: Some(isa), table_bytes_max, ..EngineOptions::with_parameters(parameters) };
    variants::make(variant, &options)
}

fn boxed(
    variant: Variant,
    isa: Isa,
    parameters: &[(&str, &str)],
) -> Result<Box<dyn EngineWriter>, EngineError> {
    make(variant, isa, parameters, 4 << 30)
}

/// The instruction sets that the paper compares and these engines have kernels for.
const ISAS: [Isa; 2] = [Isa::Scalar, Isa::Avx512f];

fib::conformance_tests!(naive_scalar, || boxed(Variant::Naive, Isa::Scalar, &[]));
fib::conformance_tests!(naive_avx512f, lookups_alone, || boxed(Variant::Naive, Isa::Avx512f, &[]));
fib::conformance_tests!(baseline_scalar, || baseline(Isa::Scalar, &[]));
fib::conformance_tests!(baseline_avx512f, lookups_alone, || baseline(Isa::Avx512f, &[("hash", "h2")]));

/// The baseline engine, with 24 levels unless `FWD_CONFORMANCE=full`. With the few levels that it chooses, the scattered prefix lengths
/// of the suite expand to millions of entries, which would take most of the test's time; `baseline_of_chosen_levels` tests these.
fn baseline(isa: Isa, parameters: &[(&str, &str)]) -> Result<Box<dyn EngineWriter>, EngineError> {
    let mut parameters = parameters.to_vec();
    if !conformance::Options::from_env().full {
        parameters.push(("levels", "24"));
    }
    boxed(Variant::Baseline, isa, &parameters)
}

#[test]
fn baseline_of_chosen_levels() {
    let options = conformance::Options::from_env();
    let make = || boxed(Variant::Baseline, Isa::Scalar, &[]);
    conformance::internet_tables(&make, options);
    conformance::replay(&make, options);
    conformance::withdraw(&make, options);
    conformance::concurrent(&make, options);
}

/// The filter hash `filter` with every table hash, on every instruction set, with the groups of the suite that stress filters and tables;
/// with every group if `FWD_CONFORMANCE=full`. Updates are the same code for all instruction sets and pairs, so their stream is replayed
/// only by the scalar engine with `filter` for both hashes, or by all in full.
fn pairs_with(variant: Variant, filter: HashName) {
    let options = conformance::Options::from_env();
    for isa in ISAS {
        for hash in HashName::ALL {
            let (filter, hash) = (filter.to_string(), hash.to_string());
            let parameters = [("filter-hash", filter.as_str()), ("table-hash", hash.as_str())];
            let make = || match variant {
                Variant::Naive => boxed(variant, isa, &parameters),
                Variant::Baseline => baseline(isa, &parameters),
            };
            let is_scalar_only = filter == "rand" || hash == "rand";
            if isa != Isa::Scalar && isa.is_available() && is_scalar_only {
                assert!(matches!(make(), Err(EngineError::Parameter { .. })));
            } else if !conformance::skipped(&make) {
                conformance::boundaries(&make, options);
                if isa == Isa::Scalar && hash == filter || options.full {
                    conformance::replay(&make, options);
                }
                if options.full {
                    // The other groups, at their quick sizes: fifty engines at full ones would take hours.
                    conformance::run(&make, conformance::Options { full: false, ..options });
                }
            }
        }
    }
}

/// A test for each filter hash, so that they run in parallel.
macro_rules! every_pair_of_hashes {
    ($($module:ident: $variant:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn murmur() {
                pairs_with($variant, HashName::Murmur);
            }
            #[test]
            fn knuth() {
                pairs_with($variant, HashName::Knuth);
            }
            #[test]
            fn h2() {
                pairs_with($variant, HashName::H2);
            }
            #[test]
            fn rand() {
                pairs_with($variant, HashName::Rand);
            }
        }
    )*};
}

every_pair_of_hashes! {
    naive_pairs: Variant::Naive;
    baseline_pairs: Variant::Baseline;
}

fn with_parameters(variant: Variant, parameters: &[(&str, &str)]) {
    let options = conformance::Options::from_env();
    for isa in ISAS {
        let make = || boxed(variant, isa, parameters);
        if !conformance::skipped(&make) {
            conformance::random_tables(&make, options);
            if isa == Isa::Scalar || options.full {
                conformance::churn(&make, options);
            }
        }
    }
}

#[test]
fn naive_of_few_false_positives() {
    with_parameters(Variant::Naive, &[("fpr", "0.01"), ("hash", "murmur")]);
}

#[test]
fn naive_of_many_false_positives() {
    with_parameters(Variant::Naive, &[("fpr", "0.9")]);
}

#[test]
fn baseline_of_few_false_positives() {
    // Many levels: with few, the scattered lengths of these tables expand to millions of entries, which takes most of the time.
    with_parameters(Variant::Baseline, &[("fpr", "0.01"), ("hash", "knuth"), ("levels", "24")]);
}

#[test]
fn baseline_of_a_level_a_length() {
    with_parameters(Variant::Baseline, &[("fpr", "0.9"), ("levels", "64"), ("hash", "h2")]);
}

#[test]
fn baseline_of_twelve_levels() {
    with_parameters(Variant::Baseline, &[("levels", "12"), ("hash", "murmur")]);
}

/// Filters, buckets and levels in the paper's form, again with many levels.
#[test]
fn baseline_in_the_paper_s_form() {
    let paper = [("filters", "paper"), ("buckets", "even"), ("dpcpe", "greedy")];
    with_parameters(Variant::Baseline, &[&paper[..], &[("levels", "24"), ("hash", "knuth")]].concat());
    with_parameters(Variant::Naive, &[&paper[..2], &[("fpr", "0.9")]].concat());
}

#[test]
fn memory_limits() {
    for variant in [Variant::Naive, Variant::Baseline] {
        conformance::limited(
            &|bytes| make(variant, Isa::Scalar, &[], bytes),
            conformance::Options::from_env(),
        );
    }
}

fn generated(routes: usize) -> Rib {
    let mut rib = Rib::new();
    let spec = |family, routes| TableSpec { family, routes, seed: 11, next_hops: 40 };
    for (prefix, next_hop) in table::<u32>(&spec(Family::V4, routes)).unwrap() {
        rib.v4.set(prefix, next_hop);
    }
    for (prefix, next_hop) in table::<u128>(&spec(Family::V6, routes / 4)).unwrap() {
        rib.v6.set(prefix, next_hop);
    }
    rib
}

fn detail(engine: &dyn EngineWriter, name: &str) -> f64 {
    engine.stats().details.get(name).unwrap()
}

/// Loads a table into `engine` and withdraws it in a hundred deltas: each of `figures` must be positive before and zero after.
fn withdraws_to_zero(mut engine: Box<dyn EngineWriter>, figures: &[&str]) {
    let mut rib = generated(20_000);
    rib.commit_to(&mut *engine).unwrap();
    let loaded: Vec<_> = figures.iter().map(|name| detail(&*engine, name)).collect();
    assert!(loaded.iter().all(|figure| *figure > 0.0), "{loaded:?}");
    let (v4, v6) = (rib.v4.sorted(), rib.v6.sorted());
    for part in 0..100 {
        v4.iter().skip(part).step_by(100).for_each(|(prefix, _)| {
            rib.v4.set(*prefix, NextHopId::NONE);
        });
        v6.iter().skip(part).step_by(100).for_each(|(prefix, _)| {
            rib.v6.set(*prefix, NextHopId::NONE);
        });
        rib.commit_to(&mut *engine).unwrap();
    }
    for name in figures {
        assert!(detail(&*engine, name).abs() < 0.5, "{}: {name}", engine.info().name);
    }
}

/// At 90 % the filters are so small that keys share counters.
#[test]
fn withdrawing_everything_leaves_every_counter_zero() {
    for variant in [Variant::Naive, Variant::Baseline] {
        for (hash, fpr) in [("h2", "0.3"), ("knuth", "0.9"), ("rand", "0.01"), ("murmur", "0.6")] {
            let engine = boxed(variant, Isa::Scalar, &[("hash", hash), ("fpr", fpr)]).unwrap();
            let figures = ["v4_filter_occupied", "v6_filter_occupied", "v4_entries", "v6_entries"];
            withdraws_to_zero(engine, &figures);
        }
    }
    let bloom = lpm_phi::bloom::make(&EngineOptions::default()).unwrap();
    withdraws_to_zero(bloom, &["g1_filter_occupied", "g2_filter_occupied", "v6_filter_occupied"]);
}

/// Enough keys share one bit of a filter to saturate its counter. No route is lost while they are withdrawn in turn, and after the last
/// one the counter is zero.
#[test]
fn a_saturated_counter_never_loses_a_route() {
    const ROUTES: u32 = 600;
    // At 90 % a key has one bit. With few routes the filter is small, so keys that share a bit are found quickly.
    let size = FilterSize::for_rate(ROUTES.into(), 0.9);
    let bits = u32::try_from(size.bits).unwrap();
    assert_eq!(size.hashes, 1);
    let crowd = (0..1 << 24).map(|block| block << 8).filter(|address| h2(*address) % bits == 5);
    let crowd: Vec<u32> = crowd.take(ROUTES as usize).collect();
    for isa in ISAS.into_iter().filter(|isa| isa.is_available()) {
        let mut engine = make(Variant::Baseline, isa, &[("hash", "h2"), ("fpr", "0.9")], 4 << 30).unwrap();
        let next_hop = |at: usize| NextHopId::new(1 + u32::try_from(at % 7).unwrap()).unwrap();
        let mut rib = Rib::new();
        for (at, address) in crowd.iter().enumerate() {
            rib.v4.set(Prefix4::truncating(*address, 24), next_hop(at));
        }
        rib.commit_to(&mut *engine).unwrap();
        assert!((detail(&*engine, "v4_filter_occupied") - 1.0).abs() < 0.5, "all on one bit");
        assert!((detail(&*engine, "v4_filter_saturated") - 1.0).abs() < 0.5);
        let mut reader = engine.reader(1, 1024).unwrap();
        for (gone, address) in crowd.iter().enumerate() {
            let mut answers = vec![NextHopId::MAX; crowd.len()];
            reader.lookup(Keys::V4(&crowd), &mut answers).unwrap();
            for (at, answer) in answers.into_iter().enumerate() {
                let wanted = if at < gone { NextHopId::NONE } else { next_hop(at) };
                assert_eq!(answer, wanted, "{isa}: route {at} of those left, {gone} are gone");
            }
            rib.v4.set(Prefix4::truncating(*address, 24), NextHopId::NONE);
            rib.commit_to(&mut *engine).unwrap();
        }
        assert!(detail(&*engine, "v4_filter_occupied").abs() < 0.5, "{isa}");
        assert!(detail(&*engine, "v4_filter_saturated").abs() < 0.5, "{isa}");
    }
}

/// Levels too few for the memory limit are refused, as the paper refused three (table 4), and nothing changes.
#[test]
fn levels_that_do_not_fit_are_refused() {
    let mut rib = Rib { v6: generated(40_000).v6, ..Rib::new() };
    rib.take_delta();
    let fixed = |levels: &str, bytes| {
        make(Variant::Baseline, Isa::Scalar, &[("levels", levels), ("hash", "murmur")], bytes).unwrap()
    };
    let mut five = fixed("5", 1 << 30);
    rib.load(&mut *five).unwrap();
    assert_eq!(detail(&*five, "v6_levels"), 5.0);
    let mut two = fixed("2", 1 << 30);
    let refused = rib.load(&mut *two);
    assert!(matches!(refused, Err(EngineError::Full { limit, .. }) if limit == 1 << 30), "{refused:?}");
    assert_eq!((two.stats().routes_v6, two.generation().0), (0, 0));
    // Without the parameter the engine chooses as many levels as it needs.
    let mut chosen = make(Variant::Baseline, Isa::Scalar, &[], 64 << 20).unwrap();
    rib.load(&mut *chosen).unwrap();
    assert!((3.0..=64.0).contains(&detail(&*chosen, "v6_levels")));
}

#[test]
fn naive_has_a_level_a_length_and_baseline_few() {
    let mut naive = make(Variant::Naive, Isa::Scalar, &[], 4 << 30).unwrap();
    let mut baseline = make(Variant::Baseline, Isa::Scalar, &[], 4 << 30).unwrap();
    let next_hop = NextHopId::new(7).unwrap();
    let mut rib = Rib::new();
    rib.v4.set(Prefix4::truncating(0x0a00_0000, 22), next_hop);
    rib.v6.set(Prefix6::truncating(0x2001_0db8 << 96, 32), next_hop);
    rib.commit_to(&mut *naive).unwrap();
    rib.load(&mut *baseline).unwrap();
    assert_eq!((detail(&*naive, "v4_levels"), detail(&*naive, "v6_levels")), (32.0, 64.0));
    assert_eq!((detail(&*naive, "v4_entries"), detail(&*baseline, "v4_entries")), (1.0, 4.0));
    assert_eq!(detail(&*baseline, "v4_levels"), 2.0);
}
