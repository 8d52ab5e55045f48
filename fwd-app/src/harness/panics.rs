//! A panic in a stage during a replay: the other stages stop and drain, and the outcome reports the panic.

use super::HarnessSpec;
use super::test_replay::{TestReplay, replay_in_process};
use super::trace::Trace;
use crate::forwarder::Signals;
use crate::forwarder::test_forwarder::{LAST_WORDS, bundled, dying_forwarder};
use crate::topology::{TopologyKind, Totals};
use TopologyKind::{Pipeline, RunToCompletion};
use rusty_fork::rusty_fork_test;
use std::sync::Arc;

/// Replays with an engine that panics on every lookup. `is_seen` selects the feeder over prepared packets.
fn replay_and_die(lcores: &[u32], cpus: usize, topology: TopologyKind, spec: HarnessSpec, is_seen: bool) {
    let spec = HarnessSpec { loops: 1_000_000_000, ..spec };
    let trace = Arc::new(Trace::load(&bundled("mix.pcap")).unwrap());
    let replay = TestReplay { trace: &trace, spec: &spec, topology, cpus, is_seen };
    let outcome = replay_in_process(replay, dying_forwarder(None), &Signals::default(), |service| service);
    let Some(outcome) = outcome else { return };
    let panic = outcome.ended.finished.panicked.as_ref().unwrap().to_string();
    assert!(lcores.iter().any(|lcore| panic == format!("lcore {lcore} panicked: {LAST_WORDS}")), "{panic}");
    let packets = Totals::new(&outcome.ended.finished.outcomes, 1_000_000_000);
    let rx = packets.counters.rx_packets;
    assert_eq!(rx, packets.counters.tx_packets + packets.counters.drops.total() + packets.held);
    assert!(packets.held > 0 && outcome.fed >= rx, "{packets:?}");
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 30_000)]

    #[test]
    fn a_panic_on_a_worker_ends_the_replay_with_an_outcome() {
        let spec = HarnessSpec { lcores: Some(2), spread: true, ..HarnessSpec::usual() };
        replay_and_die(&[1, 2], 4, RunToCompletion, spec, true);
    }

    #[test]
    fn a_panic_on_the_main_lcore_ends_the_replay_with_an_outcome() {
        replay_and_die(&[0], 1, RunToCompletion, HarnessSpec::usual(), true);
    }

    #[test]
    fn a_panic_in_a_pipeline_ends_the_replay_with_an_outcome() {
        replay_and_die(&[2], 4, Pipeline, HarnessSpec { lcores: Some(3), ..HarnessSpec::usual() }, true);
    }

    #[test]
    fn a_panic_ends_a_replay_of_ready_packets_with_an_outcome() {
        replay_and_die(&[0], 1, RunToCompletion, HarnessSpec::usual(), false);
    }

    #[test]
    fn a_panic_in_a_pipeline_of_ready_packets_ends_it_with_an_outcome() {
        replay_and_die(&[2], 4, Pipeline, HarnessSpec { lcores: Some(3), ..HarnessSpec::usual() }, false);
    }
}
