//! Rebuilds: what they cost the control thread, phase by phase.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{engine, random_rib};
use fib::conformance::skipped;
use fib::random::Seeded;
use fib::{EngineWriter, Rib, Routes};
use lpm_gpu::testing::real_routes;
use std::time::Instant;

/// Full tables, or 20,000 random routes of each family.
fn routes() -> Routes {
    real_routes()
        .map_or_else(|| Routes::from(&random_rib(20_000, &mut Seeded::new(3, 0))), |(routes, _)| routes)
}

fn figure(engine: &dyn EngineWriter, name: &str) -> f64 {
    engine.stats().details.get(name).unwrap_or_else(|| panic!("no figure {name}"))
}

#[test]
fn the_phases_of_a_rebuild_are_timed() {
    for name in ["gamt", "gale", "sail-gpu"] {
        if skipped(&|| engine(name, &[])) {
            return;
        }
        let mut engine = engine(name, &[]).unwrap();
        let mut rib = Rib::new();
        rib.announce(&routes());
        let start = Instant::now();
        rib.commit(|delta, rib| engine.apply(delta, rib)).unwrap();
        let apply_us = start.elapsed().as_secs_f64() * 1e6;
        let mut sum_us = 0.0;
        for family in ["v4", "v6"] {
            for phase in ["host", "allocate", "upload", "finish"] {
                let us = figure(engine.as_ref(), &format!("{family}_rebuild_{phase}_us"));
                println!("{name} {family} {phase}: {us} us");
                assert_eq!(us, figure(engine.as_ref(), &format!("{family}_rebuild_{phase}_us_max")));
                sum_us += us;
            }
            for phase in ["collect", "plan", "build"] {
                let name_of = format!("gamt_rebuild_{phase}_us_{family}");
                if let Some(us) = engine.stats().details.get(&name_of) {
                    println!("{name} {family} {phase}: {us} us of host");
                    assert!(us <= figure(engine.as_ref(), &format!("{family}_rebuild_host_us")));
                }
            }
        }
        println!("{name}: apply {apply_us:.0} us");
        assert!(
            figure(engine.as_ref(), "v6_rebuild_upload_us") > 0.0,
            "{name}: two tables went to the device"
        );
        assert!(sum_us <= apply_us, "{name}: phases of {sum_us} us in {apply_us} us");
    }
}
