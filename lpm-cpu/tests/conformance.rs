//! The engines against the conformance suite, on IPv4: every layout and instruction set that there are kernels for.

use fib::{EngineError, EngineOptions, EngineWriter, Isa, conformance};
use lpm_cpu::{sail_b, sail_l, sail_u};

fn sail_l(isa: Isa, layout: &str, table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    let parameters = vec![("layout".to_owned(), layout.to_owned())];
    sail_l::make(&EngineOptions { isa: Some(isa), parameters, table_bytes_max, ..EngineOptions::default() })
}

fib::conformance_tests!(b, ipv4_only, || sail_b::make(&EngineOptions::default()));
fib::conformance_tests!(u, ipv4_only, || sail_u::make(&EngineOptions::default()));
fib::conformance_tests!(l_scalar, ipv4_only, || sail_l(Isa::Scalar, "wide", 4 << 30));
fib::conformance_tests!(l_avx2, ipv4_only, || sail_l(Isa::Avx2, "wide", 4 << 30));
fib::conformance_tests!(l_avx512f, ipv4_only, || sail_l(Isa::Avx512f, "wide", 4 << 30));
fib::conformance_tests!(l_paper_scalar, ipv4_only, || sail_l(Isa::Scalar, "paper", 4 << 30));
fib::conformance_tests!(l_paper_avx2, ipv4_only, || sail_l(Isa::Avx2, "paper", 4 << 30));
fib::conformance_tests!(l_paper_avx512f, ipv4_only, || sail_l(Isa::Avx512f, "paper", 4 << 30));

#[test]
fn memory_limits() {
    let options = conformance::Options::from_env().ipv4_only();
    let bounded = |table_bytes_max| EngineOptions { table_bytes_max, ..EngineOptions::default() };
    conformance::limited(&|bytes| sail_b::make(&bounded(bytes)), options);
    conformance::limited(&|bytes| sail_u::make(&bounded(bytes)), options);
    for layout in ["wide", "paper"] {
        conformance::limited(&|bytes| sail_l(Isa::Scalar, layout, bytes), options);
    }
}
