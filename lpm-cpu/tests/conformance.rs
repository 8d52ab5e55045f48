//! The engines in the conformance suite, on IPv4: every layout and instruction set with a kernel.

use fib::{EngineError, EngineOptions, EngineWriter, Isa, conformance};
use lpm_cpu::{host, linear, sail_b, sail_l, sail_m, sail_u};

fn sail_l(isa: Isa, layout: &str, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    let parameters = vec![("layout".to_owned(), layout.to_owned())];
    sail_l::make(&EngineOptions { isa: Some(isa), parameters, table_bytes_max, ..EngineOptions::default() })
}

fn host(isa: Isa, parameters: &[(&str, &str)]) -> Result<Box<dyn EngineWriter>, EngineError> {
    host::make(&EngineOptions { isa: Some(isa), ..EngineOptions::with_parameters(parameters) })
}

const ARITHMETIC: [(&str, &str); 1] = [("popcount", "arithmetic")];
const GATHER: [(&str, &str); 1] = [("gather", "yes")];
const SINGLES: [(&str, &str); 1] = [("gather", "no")];

fib::conformance_tests!(b, ipv4_only, || sail_b::make(&EngineOptions::default()));
fib::conformance_tests!(u, ipv4_only, || sail_u::make(&EngineOptions::default()));
fib::conformance_tests!(l_scalar, ipv4_only, || sail_l(Isa::Scalar, "wide", 4 << 30));
fib::conformance_tests!(l_avx2, ipv4_lookups_alone, || sail_l(Isa::Avx2, "wide", 4 << 30));
fib::conformance_tests!(l_avx512f, ipv4_lookups_alone, || sail_l(Isa::Avx512f, "wide", 4 << 30));
fib::conformance_tests!(l_paper_scalar, ipv4_only, || sail_l(Isa::Scalar, "paper", 4 << 30));
fib::conformance_tests!(l_paper_avx2, ipv4_lookups_alone, || sail_l(Isa::Avx2, "paper", 4 << 30));
fib::conformance_tests!(l_paper_avx512f, ipv4_lookups_alone, || sail_l(Isa::Avx512f, "paper", 4 << 30));
fib::conformance_tests!(host_scalar, ipv4_only, || host(Isa::Scalar, &[]));
fib::conformance_tests!(host_scalar_arithmetic, ipv4_lookups_alone, || host(Isa::Scalar, &ARITHMETIC));
fib::conformance_tests!(host_avx2, ipv4_lookups_alone, || host(Isa::Avx2, &GATHER));
fib::conformance_tests!(host_avx512f, ipv4_lookups_alone, || host(Isa::Avx512f, &[ARITHMETIC[0], GATHER[0]]));
fib::conformance_tests!(host_avx512f_singles, ipv4_lookups_alone, || host(
    Isa::Avx512f,
    &[ARITHMETIC[0], SINGLES[0]]
));
fib::conformance_tests!(host_vpopcntdq, ipv4_lookups_alone, || host(Isa::Avx512f, &GATHER));
fib::conformance_tests!(host_vpopcntdq_singles, ipv4_lookups_alone, || host(Isa::Avx512f, &SINGLES));

/// A lookup scans all routes, so the groups with tens of thousands of routes run only with `FWD_CONFORMANCE=full`.
#[test]
fn linear_scan() {
    let make = || linear::make(&EngineOptions::with_parameters(&[("routes", "1000000")]));
    let options = conformance::Options::from_env();
    if options.full {
        conformance::run(&make, options);
        return;
    }
    conformance::shapes(&make, options);
    conformance::boundaries(&make, options);
    conformance::batches(&make, options);
    conformance::withdraw(&make, options);
    conformance::churn(&make, options);
    conformance::replay(&make, options);
    conformance::concurrent(&make, options);
    conformance::refusals(&make, options);
}

#[test]
fn memory_limits() {
    let options = conformance::Options::from_env().ipv4_only();
    let bounded = |table_bytes_max| EngineOptions { table_bytes_max, ..EngineOptions::default() };
    conformance::limited(&|bytes| sail_b::make(&bounded(bytes)), options);
    conformance::limited(&|bytes| sail_u::make(&bounded(bytes)), options);
    conformance::limited(&|bytes| sail_m::make(&bounded(bytes)), options);
    conformance::limited(&|bytes| host::make(&bounded(bytes)), options);
    conformance::limited(&|bytes| linear::make(&bounded(bytes)), options);
    for layout in ["wide", "paper"] {
        conformance::limited(&|bytes| sail_l(Isa::Scalar, layout, bytes), options);
    }
}
