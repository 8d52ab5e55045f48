//! A wrong word in the table of an engine is found by `--audit`.

use super::HarnessSpec;
use super::test_replay::{TestReplay, replay_in_process};
use super::trace::Trace;
use crate::forwarder::Signals;
use crate::forwarder::audit::AuditCounts;
use crate::forwarder::test_forwarder::{bundled, forwarder_of};
use crate::topology::TopologyKind;
use TopologyKind::{Pipeline, RunToCompletion};
use fib::NextHopId;
use rusty_fork::rusty_fork_test;
use std::sync::Arc;

/// Audits a replay over the engine `host`, whose table has a wrong next hop for the addresses of a route in the trace, if `is_planted`.
fn audit(topology: TopologyKind, is_planted: bool) -> Option<AuditCounts> {
    let spec = HarnessSpec { loops: 50, lcores: Some(2), ..HarnessSpec::usual() };
    let mut forwarder = forwarder_of("host", bundled("routes.txt"));
    if is_planted {
        forwarder.vrf_mut(0).plant("192.168.196.0/22".parse().unwrap(), NextHopId::new(1).unwrap());
    }
    forwarder.set_audit(Some(16));
    let trace = Arc::new(Trace::load(&bundled("mix.pcap")).unwrap());
    let replay = TestReplay { trace: &trace, spec: &spec, topology, cpus: 4, is_seen: true };
    let outcome = replay_in_process(replay, forwarder, &Signals::default(), |service| service)?;
    Some(outcome.forwarder.audit_counts())
}

fn check(topology: TopologyKind) {
    let Some(AuditCounts { checked, wrong, .. }) = audit(topology, true) else { return };
    // 10 of 2,000 packets are for that route.
    assert!(wrong > 0 && wrong < checked / 20, "{wrong} of {checked}");
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 60_000)]

    #[test]
    fn a_wrong_word_is_found_where_one_lcore_does_all() {
        check(RunToCompletion);
    }

    #[test]
    fn a_wrong_word_is_found_in_a_pipeline() {
        check(Pipeline);
    }

    #[test]
    fn a_right_table_has_no_wrong_answer() {
        let Some(AuditCounts { checked, wrong, .. }) = audit(RunToCompletion, false) else { return };
        assert!(wrong == 0 && checked > 1000, "{wrong} of {checked}");
    }
}
