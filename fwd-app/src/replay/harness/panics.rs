//! `replay` when a stage panics: the others stop and drain, and there is a report that says so.

use super::*;
use crate::topology::test_lcores::{LAST_WORDS, arguments, bundled, dying_tables};
use rusty_fork::rusty_fork_test;

/// A replay that would take hours, laid out for `cpus`, while every lookup panics; the panic must be reported of one of `lcores`.
fn replay_and_die(lcores: &[u32], cpus: usize, options: &[&str]) {
    let Some(eal) = dpdk_ffi::testing::eal() else { return };
    let trace = bundled("mix.pcap");
    let args: ReplayArgs =
        arguments(&[&[trace.to_str().unwrap(), "--loops", "1000000000"], options].concat());
    let tables = dying_tables(&args.tables, None);
    let trace = Arc::new(Trace::load(&args.trace).unwrap());
    let layout = Lcores::new(&args, cpus).unwrap();
    let sizes =
        Sizes::new(&args, layout.config.len(), layout.workers.len(), trace.frame_bytes_max(), 20).unwrap();
    let ports = super::super::egress_ports(args.harness.ports);
    let replay = Replay { args: &args, trace: &trace, lcores: &layout, sizes, ports: &ports, updates: None };
    let outcome = replay.run(eal, tables, None, &Signals::default()).unwrap();
    let panic = outcome.panicked.unwrap().to_string();
    assert!(lcores.iter().any(|lcore| panic == format!("lcore {lcore} panicked: {LAST_WORDS}")), "{panic}");
    let packets = Totals::new(&outcome.stages, 1_000_000_000).packets();
    assert!(packets.is_conserved() && packets.held > 0 && outcome.fed >= packets.rx, "{packets:?}");
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 30_000)]

    #[test]
    fn a_panic_on_a_worker_ends_the_replay_with_a_report() {
        replay_and_die(&[1, 2], 4, &["--lcores", "2", "--spread"]);
    }

    // One CPU: the main lcore feeds, forwards and takes.
    #[test]
    fn a_panic_on_the_main_lcore_ends_the_replay_with_a_report() {
        replay_and_die(&[0], 1, &[]);
    }

    #[test]
    fn a_panic_in_a_pipeline_ends_the_replay_with_a_report() {
        replay_and_die(&[2], 4, &["--lcores", "3", "--topology", "pipeline"]);
    }
}
