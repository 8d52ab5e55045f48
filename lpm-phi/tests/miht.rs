//! The engine `miht` against the conformance suite: the paper's (k, m), and others.

use fib::{EngineError, EngineOptions, EngineWriter, conformance};
use lpm_phi::miht::MihtEngine;

/// `[k4, m4, k6, m6]`.
fn miht(order: [u16; 4], table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    let named = ["k4", "m4", "k6", "m6"].into_iter().zip(order);
    let parameters = named.map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    Ok(Box::new(MihtEngine::new(&EngineOptions { parameters, table_bytes_max, ..EngineOptions::default() })?))
}

fn of_order(order: [u16; 4]) -> Result<Box<dyn EngineWriter>, EngineError> {
    miht(order, EngineOptions::default().table_bytes_max)
}

fib::conformance_tests!(paper, || Ok(Box::new(MihtEngine::new(&EngineOptions::default())?)));
// Index keys of 64 bits, and nodes that split and join all the time.
fib::conformance_tests!(wide_keys, || of_order([20, 3, 48, 5]));
// Index keys of 128 bits: every route but host routes is short.
fib::conformance_tests!(host_keys, || of_order([32, 40, 128, 4]));

/// The edges of `k` and `m`, over the groups that stress tree and tries.
#[test]
fn orders() {
    let options = conformance::Options::from_env();
    for order in [[1, 3, 1, 256], [8, 256, 64, 8], [24, 17, 65, 33]] {
        let make = || of_order(order);
        conformance::shapes(&make, options);
        conformance::random_tables(&make, options);
        conformance::churn(&make, options);
    }
}

#[test]
fn memory_limits() {
    for order in [[16, 16, 32, 32], [20, 3, 48, 5]] {
        conformance::limited(&|bytes| miht(order, bytes), conformance::Options::from_env());
    }
}
