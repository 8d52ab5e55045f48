//! The engine `bloom` in the conformance suite, for every instruction set and hash. Updates are the same code for all instruction sets.

use fib::{EngineError, EngineOptions, EngineWriter, Isa, conformance};
use lpm_phi::bloom;

fn bloom(isa: Isa, parameters: &[(&str, &str)]) -> Result<Box<dyn EngineWriter>, EngineError> {
    with_memory(isa, parameters, EngineOptions::default().table_bytes_max)
}

fn with_memory(
    isa: Isa,
    parameters: &[(&str, &str)],
    table_bytes_max: u64,
) -> Result<Box<dyn EngineWriter>, EngineError> {
    let options =
        EngineOptions { isa: Some(isa), table_bytes_max, ..EngineOptions::with_parameters(parameters) };
    bloom::make(&options)
}

fib::conformance_tests!(scalar, || bloom(Isa::Scalar, &[]));
fib::conformance_tests!(avx2, lookups_alone, || bloom(Isa::Avx2, &[]));
fib::conformance_tests!(avx512f, lookups_alone, || bloom(Isa::Avx512f, &[]));

/// The groups of the suite that stress filters and tables; an eighth of the churn, except for `scalar` or `FWD_CONFORMANCE=full`.
fn parameters(isa: Isa) {
    let options = conformance::Options::from_env();
    for parameters in [
        [("hash", "murmur"), ("fpr", "0.01"), ("dense", "17")],
        [("hash", "h2"), ("fpr", "0.9"), ("dense", "3")],
    ] {
        let make = || bloom(isa, &parameters);
        if !conformance::skipped(&make) {
            conformance::random_tables(&make, options);
            conformance::churn(&make, options.lookups_alone());
        }
    }
}

#[test]
fn parameters_scalar() {
    parameters(Isa::Scalar);
}

#[test]
fn parameters_avx2() {
    parameters(Isa::Avx2);
}

#[test]
fn parameters_avx512f() {
    parameters(Isa::Avx512f);
}

#[test]
fn memory_limits() {
    for isa in Isa::ALL {
        if !conformance::skipped(&|| bloom(isa, &[])) {
            conformance::limited(&|bytes| with_memory(isa, &[], bytes), conformance::Options::from_env());
        }
    }
}
