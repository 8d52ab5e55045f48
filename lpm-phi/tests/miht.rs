//! The engine `miht` in the conformance suite, with the paper's (k, m) and with others.

use fib::{EngineError, EngineOptions, EngineWriter, NextHopId, Prefix, Rib, conformance};
use lpm_phi::miht;

/// `[k4, m4, k6, m6]`.
fn miht(order: [u16; 4], table_bytes_max: u64) -> Result<Box<dyn EngineWriter>, EngineError> {
    let named = ["k4", "m4", "k6", "m6"].into_iter().zip(order);
    let parameters = named.map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    miht::make(&EngineOptions { parameters, table_bytes_max, ..EngineOptions::default() })
}

fn of_order(order: [u16; 4]) -> Result<Box<dyn EngineWriter>, EngineError> {
    miht(order, EngineOptions::default().table_bytes_max)
}

fib::conformance_tests!(paper, || miht::make(&EngineOptions::default()));
fib::conformance_tests!(single, lookups_alone, || miht::make(&EngineOptions::with_parameters(&[(
    "descent", "single"
)])));
// Index keys of 64 bits, and small nodes that split and merge all the time.
fib::conformance_tests!(wide_keys, || of_order([20, 3, 48, 5]));
// Index keys of 128 bits: only host routes have one, all other routes are in the trie of short prefixes.
fib::conformance_tests!(host_keys, || of_order([32, 40, 128, 4]));

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

#[test]
fn long_churn_takes_no_more_memory() {
    const ROUTES: u64 = 3000;
    const STEP: u64 = 100;
    let mut engine = of_order([16, 16, 32, 32]).unwrap();
    let mut rib = Rib::new();
    let set = |rib: &mut Rib, number: u64, next_hop: NextHopId| {
        // Always new prefixes (the number is multiplied by an odd constant), long ones and short ones.
        let bits = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let len = u8::try_from(number % 24).unwrap();
        rib.v4.set(Prefix::truncating(u32::try_from(bits >> 32).unwrap(), 9 + len), next_hop);
        rib.v6.set(Prefix::truncating(bits << 61 | 1 << 125, 20 + len * 4), next_hop);
    };
    let (mut bytes, mut routes) = (Vec::new(), Vec::new());
    for round in 0..600 {
        for number in round * STEP..(round + 1) * STEP {
            set(&mut rib, number, NextHopId::MAX);
            if let Some(old) = number.checked_sub(ROUTES) {
                set(&mut rib, old, NextHopId::NONE);
            }
        }
        rib.commit_to(engine.as_mut()).unwrap();
        let stats = engine.stats();
        bytes.push(stats.table_bytes + stats.writer_bytes);
        routes.push(stats.routes_v4 + stats.routes_v6);
    }
    assert!(routes[100] > ROUTES && routes[100].abs_diff(routes[599]) < routes[100] / 20, "{routes:?}");
    assert!(bytes[599] <= bytes[100] + bytes[100] / 8, "{} bytes, then {}", bytes[100], bytes[599]);
}
