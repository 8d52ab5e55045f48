//! The engines on real tables under a real stream of updates, from the folder `FWD_DATA`.

use fib::conformance::Options;
use fib::testing::{data, follow};
use fib::{EngineOptions, Isa};
use lpm_cpu::{host, sail_b, sail_l, sail_m, sail_u};

/// Next hops, limited by the paper's layout; updates a delta.
const FEW: (u32, usize) = (200, 100);

/// The table of 2014, which fits the paper's layout easily, needs `FWD_CONFORMANCE=full`.
#[test]
fn full_tables_under_real_updates() {
    let files = data(["v4-202401.txt.xz", "v4-201405.txt.xz", "updates.20190101.0000.mrt.gz"]);
    let Some([of_2024, of_2014, stream]) = files else { return };
    let options = EngineOptions::default();
    let wider = EngineOptions::with_parameters(&[("code-bits", "16")]);
    // The 25,420 chunk ids of 2024 still fit 15 bits.
    let paper = EngineOptions::with_parameters(&[("layout", "paper")]);
    let tables = [of_2024, of_2014].into_iter().take(if Options::from_env().full { 2 } else { 1 });
    for table in tables {
        let hosts = [host::make(&options), host::make(&wider)];
        let sails = [
            sail_b::make(&options),
            sail_u::make(&options),
            sail_l::make(&options),
            sail_m::make(&options),
            sail_l::make(&paper),
        ];
        for engines in [&mut hosts.map(Result::unwrap)[..], &mut sails.map(Result::unwrap)] {
            follow(engines, std::slice::from_ref(&table), &stream, FEW);
        }
    }
}

#[test]
fn full_ipv6_tables_under_real_updates() {
    let Some([table, stream]) = data(["v6-202401.txt.xz", "updates.20190101.0000.mrt.gz"]) else { return };
    let available = Isa::ALL.into_iter().filter(|isa| isa.is_available());
    let options = available.map(|isa| EngineOptions { isa: Some(isa), ..EngineOptions::default() });
    let mut engines: Vec<_> = options.map(|options| host::make(&options).unwrap()).collect();
    follow(&mut engines, std::slice::from_ref(&table), &stream, FEW);
}
