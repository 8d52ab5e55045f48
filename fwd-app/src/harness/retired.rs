//! Tables replaced while lcores forward must be freed by the control thread, never by an lcore.

use super::HarnessSpec;
use super::test_replay::{TestReplay, replay_in_process};
use super::trace::Trace;
use crate::forwarder::Forwarder;
use crate::forwarder::Signals;
use crate::forwarder::test_forwarder::{bundled, forwarder_of};
use crate::routes::Vrf;
use crate::topology::{TopologyKind, Totals};
use TopologyKind::{Pipeline, RunToCompletion};
use crossbeam_channel::bounded;
use fib::feed::{Action, Hop, Update};
use fib::{IpPrefix, NextHopId, Prefix4, Prefix6};
use lpm_core::drops;
use rusty_fork::rusty_fork_test;
use std::io::Write as _;
use std::sync::Arc;
use std::thread::{ThreadId, current};

const ROUNDS: u32 = 4;
/// New routes a round: enough to force a rebuild in engines that rebuild, few enough to fit the others.
const ROUTES: u32 = 10_240;

/// Each dropped object with the dropping thread, and the control thread.
type Drops = (Vec<(&'static str, ThreadId)>, ThreadId);

fn set(vrf: &mut Vrf, prefix: IpPrefix, id: u32) {
    let action = Action::Announce(Hop::Id(NextHopId::new(id).unwrap()));
    vrf.update(&Update { time_s: 0.0, prefix, action, peer: None }).unwrap();
}

fn replace(forwarder: &mut Forwarder, round: u32, hosts: &[u128]) {
    for route in round * ROUTES..(round + 1) * ROUTES {
        set(forwarder.vrf_mut(0), IpPrefix::V4(Prefix4::truncating(route << 14, 26)), 2 + round);
    }
    forwarder.set_link(1, round % 2 == 1);
    forwarder.commit().unwrap();
    for host in hosts {
        set(forwarder.vrf_mut(0), IpPrefix::V6(Prefix6::truncating(*host, 128)), 2 + round);
        forwarder.commit().unwrap();
    }
}

fn hosts(trace: &Trace) -> Vec<u128> {
    let frames = (0..trace.len()).map(|at| trace.frame(at));
    let v6 = frames.filter(|frame| frame.len() >= 54 && frame[12..14] == [0x86, 0xdd]);
    let mut hosts: Vec<_> = v6.map(|frame| u128::from_be_bytes(frame[38..54].try_into().unwrap())).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.truncate(16);
    hosts
}

fn drops_under_traffic(engine: &str, has_v6: bool, topology: TopologyKind, lcores: u16) -> Option<Drops> {
    let spec = HarnessSpec {
        loops: 1_000_000_000,
        lcores: Some(lcores),
        spread: topology == RunToCompletion,
        ..HarnessSpec::usual()
    };
    let mut routes = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    writeln!(routes, "0.0.0.0/0 1").unwrap();
    let forwarder = forwarder_of(engine, routes.path().to_owned());
    let trace = Arc::new(Trace::load(&bundled("mix.pcap")).unwrap());
    let hosts = if has_v6 { hosts(&trace) } else { Vec::new() };
    assert_eq!(hosts.is_empty(), !has_v6);
    let signals = Signals::default();
    let (stop, (done, dropped)) = (signals.clone(), bounded(1));
    let mut round = 0;
    let control = move |forwarder: &mut Forwarder| {
        if round == 0 {
            drops::take_recorded();
        }
        if round < ROUNDS {
            replace(forwarder, round, &hosts);
            round += 1;
        } else if forwarder.main().engine().stats().retired_bytes + forwarder.main().egress.retired_bytes()
            == 0
        {
            let _ = done.try_send((drops::take_recorded(), current().id()));
            stop.stop();
        }
        true
    };
    let replay = TestReplay { trace: &trace, spec: &spec, topology, cpus: 4, is_seen: true };
    let outcome = replay_in_process(replay, forwarder, &signals, |service| service.with_requests(control))?;
    assert!(outcome.ended.finished.panicked.is_none(), "{:?}", outcome.update_error);
    let packets = Totals::new(&outcome.ended.finished.outcomes, 1_000_000_000);
    assert!(packets.counters.tx_packets > 0, "nothing was forwarded meanwhile");
    Some(dropped.try_recv().unwrap())
}

fn check(engine: &str, topology: TopologyKind, lcores: u16, wanted: &[&str]) {
    let has_v6 = wanted.len() > 2;
    let Some((drops, control)) = drops_under_traffic(engine, has_v6, topology, lcores) else { return };
    let count = |what: &str| drops.iter().filter(|(dropped, _)| *dropped == what).count();
    let elsewhere: Vec<_> = drops.iter().filter(|(_, thread)| *thread != control).collect();
    assert!(elsewhere.is_empty(), "{} of {} drops on lcores: {elsewhere:?}", elsewhere.len(), drops.len());
    assert!(wanted.iter().all(|what| count(what) > 0), "{drops:?}");
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 120_000)]

    #[test]
    fn no_lcore_frees_a_table_of_the_engine_shell() {
        check("host", RunToCompletion, 2, &["egress table", "table memory"]);
    }

    #[test]
    fn no_lcore_frees_a_table_of_sail_m() {
        check("sail-m", Pipeline, 3, &["egress table", "table memory"]);
    }

    #[test]
    fn no_lcore_frees_deep_routes_of_bloom() {
        check("bloom", RunToCompletion, 2, &["egress table", "table memory", "shard of deep routes"]);
    }

    #[test]
    fn no_lcore_frees_deep_routes_of_mamt() {
        check("mamt", Pipeline, 3, &["egress table", "table memory", "groups of deep routes"]);
    }
}
