//! The conformance suite for `gamt`, `gale` and `sail-gpu`, over the mock driver or, with `LPM_GPU=real`, on a GPU. Five
//! engines run every group. GALE with one stage, other shapes of tries, and other modes run the groups that they may break;
//! `FWD_CONFORMANCE=full` runs every group on every combination.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{InPlaceEngine, engine, engine_within, is_full};
use fib::conformance::{self, MakeEngine, Options};
use fib::{EngineError, EngineWriter};

fib::conformance_tests!(gamt, || engine("gamt", &[]));
fib::conformance_tests!(gamt_paper_apart, || {
    engine("gamt", &[("layout", "paper"), ("next-hops", "apart"), ("levels", "6"), ("levels6", "20")])
});
fib::conformance_tests!(gale, slow_updates, || engine("gale", &[]));
fib::conformance_tests!(sail_gpu, || engine("sail-gpu", &[]));
fib::conformance_tests!(sail_gpu_paper, || engine("sail-gpu", &[("layout", "paper")]));

fn run(name: &str, parameters: &[(&str, &str)], groups: &[fn(MakeEngine<'_>, Options)]) {
    let make = || engine(name, parameters);
    if conformance::skipped(&make) {
        return;
    }
    let options = Options::from_env();
    let options = match name {
        "gale" if parameters.contains(&GALE_ALONE) => options.slow_updates_to_24(),
        "gale" => options.slow_updates(),
        _ => options,
    };
    if is_full() {
        conformance::run(&make, options);
        return;
    }
    for group in groups {
        group(&make, options);
    }
}

const GALE_ALONE: (&str, &str) = ("stages", "1");

#[test]
fn gale_one_stage() {
    let groups: [fn(MakeEngine<'_>, Options); 5] = [
        conformance::boundaries,
        conformance::batches,
        conformance::withdraw,
        conformance::announces,
        conformance::refusals,
    ];
    run("gale", &[GALE_ALONE, ("update-threads", "256")], &groups);
}

/// Layout, next hops, levels of IPv4 and IPv6.
macro_rules! shapes {
    ($($test:ident: $layout:literal, $next_hops:literal, $levels:literal, $levels6:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let (levels, levels6) = (("levels", $levels), ("levels6", $levels6));
                let parameters = [("layout", $layout), ("next-hops", $next_hops), levels, levels6];
                run("gamt", &parameters, &[conformance::shapes, conformance::boundaries, conformance::withdraw]);
            }
        )*
    };
}

shapes! {
    gamt_of_4_and_8_levels: "flat", "apart", "4", "8";
    gamt_of_5_and_12_levels: "paper", "together", "5", "12";
    gamt_of_7_and_16_levels: "flat", "together", "7", "16";
    gamt_of_10_and_20_levels: "paper", "apart", "10", "20";
    gamt_of_15_and_25_levels: "flat", "apart", "15", "25";
    gamt_of_20_and_30_levels: "paper", "together", "20", "30";
}

/// Modes, each on every engine. Lookups during updates run on one engine, because all engines get a batch's table alike, and with
/// persistent kernels on GALE, too, for its update kernels. One warp draws: the mock would run the 31 idle ones as well.
macro_rules! modes {
    ($($test:ident: $mode:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let engines = lpm_gpu::ENGINES.iter().filter(|engine| engine.is_device);
                let forms = engines.map(|engine| (engine.name, None));
                for (name, form) in forms.chain([("gale", Some(GALE_ALONE)), ("sail-gpu", Some(("layout", "paper")))]) {
                    let groups: [fn(MakeEngine<'_>, Options); 2] = [conformance::batches, conformance::concurrent];
                    let beside = name == "gamt" || $mode == "persistent" && (name, form) == ("gale", None);
                    let parameters = [("mode", $mode), ("streams", "3")];
                    let warp = (name == "gale").then_some(("update-threads", "32"));
                    let parameters: Vec<_> = parameters.into_iter().chain(form).chain(warp).collect();
                    run(name, &parameters, &groups[..if beside { 2 } else { 1 }]);
                }
            }
        )*
    };
}

modes! {
    mapped_memory: "mapped";
    persistent_kernels: "persistent";
    measured: "auto";
}

/// Keys that the device reads where they lie, in each mode.
#[test]
fn keys_in_place() {
    for mode in ["copy", "mapped", "persistent"] {
        let make = || -> Result<Box<dyn EngineWriter>, EngineError> {
            Ok(Box::new(InPlaceEngine(engine("gamt", &[("mode", mode), ("streams", "3")])?)))
        };
        if conformance::skipped(&make) {
            return;
        }
        for group in [conformance::batches, conformance::concurrent, conformance::refusals] {
            group(&make, Options::from_env());
        }
    }
}

#[test]
fn frozen_tables() {
    run("gamt", &[("frozen", "1")], &[conformance::withdraw, conformance::concurrent]);
}

/// Little head room, so that tables are often rebuilt.
#[test]
fn without_head_room() {
    run("gamt", &[("headroom", "0")], &[conformance::withdraw, conformance::churn, conformance::concurrent]);
}

#[test]
fn tables_above_their_limit_are_refused() {
    for (name, parameters) in [
        ("gamt", &[][..]),
        ("gamt", &[("layout", "paper"), ("next-hops", "apart")][..]),
        ("gale", &[][..]),
        ("sail-gpu", &[][..]),
        ("sail-gpu", &[("layout", "paper")][..]),
    ] {
        let make = |table_bytes_max| engine_within(name, parameters, table_bytes_max);
        if conformance::skipped(&|| make(u64::MAX)) {
            return;
        }
        conformance::limited(&make, Options::default());
    }
}
