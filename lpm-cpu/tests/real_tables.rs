//! The engines on real tables under a real stream of updates, in the folder that `FWD_DATA` names; without it the test says SKIPPED (the
//! conformance suite's `replay` is its generated likeness).

use fib::testing::{data, follow};
use fib::{EngineOptions, Isa};
use lpm_cpu::{host, sail_b, sail_l, sail_m, sail_u};

/// The paper's layout has no room for many more next hops; updates a delta.
const FEW: (u32, usize) = (200, 100);

#[test]
fn full_tables_under_real_updates() {
    let files = data(["v4-201405.txt.xz", "v4-202401.txt.xz", "updates.20190101.0000.mrt.gz"]);
    let Some([of_2014, of_2024, stream]) = files else { return };
    let options = EngineOptions::default();
    let wider = EngineOptions::of(&[("code-bits", "16")]);
    // 15 bits are enough for its chunk ids still: 25,420 in 2024.
    let paper = EngineOptions::of(&[("layout", "paper")]);
    for table in [of_2014, of_2024] {
        for engine in [
            host::make(&options),
            host::make(&wider),
            sail_b::make(&options),
            sail_u::make(&options),
            sail_l::make(&options),
            sail_m::make(&options),
            sail_l::make(&paper),
        ] {
            follow(engine.unwrap().as_mut(), std::slice::from_ref(&table), &stream, FEW);
        }
    }
}

#[test]
fn full_ipv6_tables_under_real_updates() {
    let Some([table, stream]) = data(["v6-202401.txt.xz", "updates.20190101.0000.mrt.gz"]) else { return };
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
        follow(host::make(&options).unwrap().as_mut(), std::slice::from_ref(&table), &stream, FEW);
    }
}
