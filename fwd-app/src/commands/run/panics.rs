//! `run` when a stage panics: the other stages stop and drain, and the report contains the panic.

use super::*;
use crate::forwarder::test_forwarder::{LAST_WORDS, bundled, dying_forwarder};
use clap::{Args as _, FromArgMatches as _};
use rusty_fork::rusty_fork_test;

pub(super) fn arguments(words: &[&str]) -> RunArgs {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let fib = ["run", "--engine", "oracle", "--fib", "routes.txt"];
    RunArgs::from_arg_matches(&command.try_get_matches_from(fib.iter().chain(words)).unwrap()).unwrap()
}

/// Runs while lookups of reader `reader` panic, or of all readers. The report must attribute the panic to `lcore`.
fn run_and_die(lcore: u32, options: &[&str], reader: Option<u64>) {
    let Some(eal) = dpdk_ffi::testing::eal() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let nothing = scratch.path().join("nothing.pcap");
    std::fs::write(&nothing, &std::fs::read(bundled("mix.pcap")).unwrap()[..24]).unwrap();
    for (name, rx) in [("net_pcap0", bundled("mix.pcap")), ("net_pcap1", nothing)] {
        // A file per TX queue.
        let [one, two] = ["one", "two"].map(|queue| scratch.path().join(format!("{name}-{queue}")));
        let files = [rx.display(), one.display(), two.display()];
        let arguments = format!("rx_pcap={},tx_pcap={},tx_pcap={}", files[0], files[1], files[2]);
        eal.vdev_create(name, &arguments).unwrap();
    }
    let args = arguments(options);
    let (summary, _) =
        forward(&args, eal, dying_forwarder(reader), &Signals::default(), Control::default()).unwrap();
    let packets = &summary.packets;
    assert!(packets.is_conserved() && packets.held > 0 && packets.rx >= packets.held, "{packets:?}");
    let wanted = format!("lcore {lcore} panicked: {LAST_WORDS}");
    assert_eq!(summary.panic.as_ref(), Some(&wanted));
    assert_eq!(summary.judge().unwrap_err().to_string(), wanted);
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["panic"], wanted);
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 30_000)]

    // The other worker has a working reader and would never end.
    #[test]
    fn a_panic_on_a_worker_ends_the_run_with_a_report() {
        run_and_die(1, &["--config", "(0,0,1),(1,0,2)"], Some(0));
    }

    #[test]
    fn a_panic_on_the_main_lcore_ends_the_run_with_a_report() {
        run_and_die(0, &["--config", "(0,0,0),(1,0,2)"], Some(0));
    }

    #[test]
    fn a_panic_in_a_pipeline_ends_the_run_with_a_report() {
        run_and_die(2, &["--config", "(0,0,1),(1,0,1)", "--topology", "pipeline"], None);
    }
}
