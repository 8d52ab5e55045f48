//! The engine `host`: next-hop codes of every width, tables full of routes longer than /24, parameters.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::oracle::Oracle;
use fib::{
    EngineError, EngineOptions, EngineReader, EngineWriter, Isa, Keys, NextHopId, Prefix4, Rib, conformance,
};
use lpm_cpu::host;

const KERNELS: [(Isa, &str, &str); 7] = [
    (Isa::Scalar, "auto", "no"),
    (Isa::Scalar, "arithmetic", "no"),
    (Isa::Avx2, "auto", "yes"),
    (Isa::Avx512f, "arithmetic", "yes"),
    (Isa::Avx512f, "auto", "yes"),
    (Isa::Avx512f, "arithmetic", "no"),
    (Isa::Avx512f, "auto", "no"),
];

fn kernel<'a>(
    isa: Isa,
    popcount: &'a str,
    gather: &'a str,
    code_bits: &'a str,
) -> impl Fn() -> Result<Box<dyn EngineWriter>, EngineError> + use<'a> {
    let parts = [("popcount", popcount), ("gather", gather), ("code-bits", code_bits)];
    move || host::make(&parameters(isa, &parts))
}

struct HostRig {
    engine: Box<dyn EngineWriter>,
    reader: Box<dyn EngineReader>,
    rib: Rib,
    oracle: Oracle<u32>,
}

impl HostRig {
    fn new(engine: Box<dyn EngineWriter>) -> Self {
        let reader = engine.reader(1, 256).unwrap();
        Self { engine, reader, rib: Rib::plain(), oracle: Oracle::new() }
    }

    /// Sets next hops in one delta, 0 for a withdraw.
    fn set(&mut self, routes: impl IntoIterator<Item = (Prefix4, u32)>) {
        for (prefix, next_hop) in routes {
            let next_hop = NextHopId::from_answer(next_hop);
            self.rib.v4.set(prefix, next_hop);
            self.oracle.set(prefix, next_hop);
        }
        self.rib.commit_to(self.engine.as_mut()).unwrap();
    }

    fn check(&mut self, keys: &[u32]) {
        let mut answers = vec![NextHopId::NONE; keys.len()];
        self.reader.lookup(Keys::V4(keys), &mut answers).unwrap();
        for (key, answer) in keys.iter().zip(answers) {
            assert_eq!(answer, self.oracle.lookup(*key), "{key:#x}");
        }
    }

    fn figures<const N: usize>(&self, names: [&str; N]) -> [f64; N] {
        let details = self.engine.stats().details;
        names.map(|name| details.get(name).unwrap())
    }

    fn form(&self) -> [f64; 2] {
        self.figures(["v4_code_bits", "v4_codes_indexed"])
    }
}

fn parameters(isa: Isa, parameters: &[(&str, &str)]) -> EngineOptions {
    EngineOptions { isa: Some(isa), ..EngineOptions::with_parameters(parameters) }
}

fn block(at: u32) -> Prefix4 {
    Prefix4::truncating(at << 8, 24)
}

#[test]
fn codes_widen_as_next_hops_come_and_narrow_again() {
    for (isa, popcount, gather) in KERNELS {
        let make = kernel(isa, popcount, gather, "8");
        if conformance::skipped(&make) {
            continue;
        }
        let mut rig = HostRig::new(make().unwrap());
        let keys: Vec<_> = (0..70_100_u32).map(|at| at << 8 | at & 0xff).collect();
        rig.set((0..254).map(|at| (block(at), at + 1)));
        assert_eq!(rig.form(), [8.0, 0.0], "254 ids fit 8 bits");
        rig.set([(block(254), 255)]);
        assert_eq!(rig.form(), [16.0, 0.0], "255 next hops");
        rig.check(&keys[..300]);
        rig.set((0..255).map(|at| (block(at), 0)));
        rig.set((0..20_000).map(|at| (block(at), at % 254 + 70_000)));
        assert_eq!(rig.form(), [8.0, 1.0], "254 next hops fit 8 bits, but not their ids");
        rig.check(&keys);
        rig.set([(block(254), 254)]);
        assert_eq!(rig.form(), [16.0, 1.0], "255 next hops of such ids");
        rig.check(&keys);
        rig.set((0..65_534).map(|at| (block(at), at + 1)));
        assert_eq!(rig.form(), [16.0, 0.0]);
        rig.set((0..1000).map(|at| (block(at), at + 100_000)));
        assert_eq!(rig.form(), [16.0, 1.0], "ids above 16 bits");
        rig.check(&keys);
        rig.set((65_534..70_000).map(|at| (block(at), at + 1)));
        assert_eq!(rig.form(), [32.0, 0.0], "70,000 next hops");
        rig.check(&keys);
        rig.set((0..100).map(|at| (block(at), (1 << 24) - 1 - at)));
        rig.check(&keys);
        rig.set((100..70_000).map(|at| (block(at), 0)));
        assert_eq!(rig.form(), [8.0, 1.0], "100 next hops of large ids");
        rig.check(&keys);
        rig.set((0..20_000).map(|at| (block(at), at % 200 + 1)));
        assert_eq!(rig.form(), [8.0, 0.0]);
        rig.check(&keys);
    }
}

#[test]
fn codes_are_used_again() {
    let mut rig = HostRig::new(host::make(&EngineOptions::default()).unwrap());
    rig.set((0..200).map(|at| (block(at), at + 70_000)));
    for round in 0..1000 {
        rig.set([(block(round % 250), 80_000 + round)]);
        assert_eq!(rig.form(), [8.0, 1.0]);
    }
    rig.check(&(0..250).map(|at| at << 8).collect::<Vec<_>>());
}

/// Deltas of every size change routes of full /16s and of single /24s, so every lane of a kernel finds an escape now and then.
#[test]
fn tables_full_of_routes_longer_than_24() {
    for (isa, popcount, gather) in KERNELS {
        for code_bits in ["8", "16", "32"] {
            let make = kernel(isa, popcount, gather, code_bits);
            if conformance::skipped(&make) {
                continue;
            }
            let mut rig = HostRig::new(make().unwrap());
            // Three full /16s, and a /24 in each of 300 others.
            let blocks: Vec<u32> =
                (0x0a_0000..0x0a_0300).chain((0..300).map(|at| 0x0b_0000 + at * 257)).collect();
            let routes = |block: u32, round: u32| {
                let draw = (block ^ round << 20).wrapping_mul(0x9e37_79b9) >> 8;
                [(24, 0), (25, 7), (27, 9), (30, 11), (32, 13)].map(|(len, shift)| {
                    let host = if len == 24 { 0 } else { draw >> shift & 0xff };
                    let is_there = draw >> (shift + 2) & 3 > 0;
                    let next_hop = if is_there { 1 + (draw >> shift) % 200 } else { 0 };
                    (Prefix4::truncating(block << 8 | host, len), next_hop)
                })
            };
            let keys: Vec<_> = blocks
                .iter()
                .flat_map(|block| (0..256).step_by(5).map(move |low| block << 8 | low))
                .collect();
            for round in 0..4 {
                rig.set(blocks.iter().flat_map(|block| routes(*block, round)));
                rig.check(&keys);
                for part in blocks.chunks(97) {
                    rig.set(part.iter().flat_map(|block| routes(*block, round + 100)));
                }
                for block in blocks.iter().step_by(31) {
                    rig.set(routes(*block, round + 200));
                }
                rig.check(&keys);
            }
            assert!(rig.figures(["v4_blocks"])[0] > 900.0);
            let all: Vec<_> = rig.rib.v4.prefixes().map(|prefix| (prefix, 0)).collect();
            for part in all.chunks(500) {
                rig.set(part.iter().copied());
            }
            rig.check(&keys);
            assert_eq!(rig.figures(["v4_blocks"]), [0.0]);
        }
    }
}

#[test]
fn cells_are_used_again() {
    let mut rig = HostRig::new(host::make(&EngineOptions::default()).unwrap());
    rig.set((0..5000).map(|at| (block(at * 37), at % 50 + 1)));
    let route = |at: u32| Prefix4::truncating((at % 5000 * 37 + at % 7) << 8, 22 + (at % 3) as u8);
    let mut untouched = Vec::new();
    for at in 0..40_000_u32 {
        rig.set([(route(at), at % 90 + 1)]);
        if at >= 100 {
            rig.set([(route(at - 100), 0)]);
        }
        if at % 10_000 == 9999 {
            untouched.push(rig.figures(["v4_cells_untouched"])[0]);
        }
    }
    assert!(untouched[1] - untouched[3] < 5000.0, "20,000 updates: {untouched:?}");
}

/// Updates are the same code for all instruction sets; lookups differ. The widest codes run fewer groups unless `FWD_CONFORMANCE=full`.
fn host_with_codes(code_bits: &str) {
    let options = conformance::Options::from_env().ipv4_only();
    for (isa, popcount, gather) in KERNELS {
        let make = kernel(isa, popcount, gather, code_bits);
        if !conformance::skipped(&make) {
            conformance::shapes(&make, options);
            conformance::batches(&make, options);
        }
    }
    let make = || host::make(&EngineOptions::with_parameters(&[("code-bits", code_bits)]));
    let options = if code_bits == "32" { options.lookups_alone() } else { options };
    conformance::random_tables(&make, options);
    conformance::churn(&make, options);
    conformance::withdraw(&make, options);
    conformance::concurrent(&make, options);
    conformance::withdraws(&make, options);
}

#[test]
fn host_with_codes_of_16_bits() {
    host_with_codes("16");
}

#[test]
fn host_with_codes_of_32_bits() {
    host_with_codes("32");
}

#[test]
fn parameters_are_checked() {
    for (name, value) in [("code-bits", "12"), ("popcount", "x"), ("gather", "x"), ("layout", "wide")] {
        let refused = host::make(&EngineOptions::with_parameters(&[(name, value)]));
        assert!(matches!(refused, Err(EngineError::Parameter { .. })), "{name}={value}");
    }
    assert_eq!(host::make(&EngineOptions::default()).unwrap().info().name, "host");
    for (gather, wanted) in [("yes", vec![1.0]), ("no", vec![0.0]), ("auto", vec![0.0, 1.0])] {
        let make = || host::make(&parameters(Isa::Avx2, &[("gather", gather)]));
        if !conformance::skipped(&make) {
            let rig = HostRig::new(make().unwrap());
            for figure in rig.figures(["v4_gathers", "v6_gathers"]) {
                assert!(wanted.contains(&figure), "gather={gather}");
            }
        }
    }
}
