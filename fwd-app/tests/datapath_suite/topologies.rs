//! Both topologies, every batch size, more lcores than CPUs: results, conservation and order hold.

use crate::support::{bundled, drops, number, replay_mix, replay_with_code};

fn holds(extra: &[&str]) {
    let mut arguments = vec!["--verify", "--loops", "5"];
    arguments.extend(extra);
    let Some(summary) = replay_mix(&arguments) else { return };
    assert_eq!(number(&summary, "/packets/rx"), 10_000, "{extra:?}");
    assert_eq!(number(&summary, "/verify/checked"), 10_000);
    assert_eq!(drops(&summary), [("no_route".to_owned(), 625)], "{extra:?}");
    assert_eq!(number(&summary, "/latency_ns/count"), 9375);
    assert_eq!(
        number(&summary, "/setup/batch"),
        extra.iter().position(|w| *w == "--batch").map_or(256, |i| extra[i + 1].parse().unwrap())
    );
}

#[test]
fn run_to_completion_with_every_batch_size() {
    for batch in ["1", "32", "256", "4096"] {
        holds(&["--batch", batch]);
        holds(&["--batch", batch, "--lcores", "8"]);
    }
}

#[test]
fn pipeline_with_every_batch_size() {
    for batch in ["1", "32", "256", "4096"] {
        holds(&["--topology", "pipeline", "--batch", batch]);
        holds(&["--topology", "pipeline", "--batch", batch, "--lcores", "8"]);
    }
}

#[test]
fn spread_over_ports_and_any_config() {
    holds(&["--spread", "--lcores", "3"]);
    holds(&["--spread", "--topology", "pipeline", "--lcores", "4"]);
    holds(&["--spread", "--config", "(0,0,1),(0,1,2),(1,0,1),(2,0,2)"]);
    holds(&["--config", "(0,1,0),(0,0,7)"]);
    holds(&["--config", "(0,0,1),(0,1,1),(0,2,2)", "--topology", "pipeline", "--lcores", "5"]);
    holds(&["--rx-burst", "7", "--batch", "100", "--flush-us", "0"]);
}

#[test]
fn one_port_and_many() {
    for ports in ["1", "2", "32"] {
        let extra = ["--ports", ports, "--verify"];
        let Some(summary) = replay_mix(&extra) else { return };
        assert_eq!(number(&summary, "/packets/tx"), 1875);
    }
}

#[test]
fn a_slow_tx_side_loses_by_tx_full_and_nothing_else() {
    for topology in ["run-to-completion", "pipeline"] {
        let extra =
            ["--topology", topology, "--tx-slow", "200", "--loops", "20", "--verify", "--lcores", "3"];
        let Some(summary) = replay_mix(&extra) else { return };
        let names: Vec<_> = drops(&summary).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["no_route", "tx_full"], "{topology}");
        assert_eq!(number(&summary, "/packets/drops/no_route"), 2500);
        assert_eq!(number(&summary, "/verify/checked"), 40_000);
    }
}

#[test]
fn nothing_sent_is_a_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    std::fs::write(&routes, "192.0.2.0/32 1\n").unwrap();
    let Some(summary) = replay_with_code(&bundled("mix.pcap"), &routes, &[], 1) else { return };
    assert_eq!(drops(&summary), [("no_route".to_owned(), 2000)]);
}

#[test]
fn too_few_mbufs_hold_packets_up_and_lose_none() {
    for (topology, lcores, mbufs) in [("run-to-completion", "1", "1024"), ("pipeline", "3", "1792")] {
        // A batch that exceeds the mbufs is flushed when it is due.
        holds(&["--topology", topology, "--lcores", lcores, "--mbufs", mbufs, "--batch", "4096"]);
    }
}
