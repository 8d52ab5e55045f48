//! Warm-up, ramps, rates in percent and searches. No test asserts the speed of a machine: a link of a known rate is the bottleneck, and a
//! busy machine finds less than the link's rate, never more.

use crate::signals::{send, wait_until_it_runs};
use crate::support::{
    bundled, json, mix_command, number, ran, replay, replay_mix, replay_with_code, report, stderr, wait,
};
use serde_json::Value;
use std::time::Duration;

fn measured(summary: &Value) -> (f64, f64) {
    let seconds = summary["rate"]["duration_s"].as_f64().unwrap();
    (seconds, (summary["rate"]["mpps"].as_f64().unwrap() * 1e6 * seconds).round())
}

#[test]
fn what_is_sent_before_the_measurement_is_in_no_rate_and_no_latency() {
    // Ready mbufs; copies at full speed; copies at a rate.
    for extra in [&[][..], &["--verify"], &["--verify", "--rate", "20kpps"]] {
        let arguments = [&["--duration", "0.4", "--warmup", "0.3"], extra].concat();
        let Some(summary) = replay_mix(&arguments) else { return };
        let (seconds, packets) = measured(&summary);
        let (fed, tx) = (number(&summary, "/packets/rx"), number(&summary, "/packets/tx"));
        assert!(seconds >= 0.4 && summary["trace"]["warmup_s"].as_f64() >= Some(0.3), "{summary}");
        #[expect(clippy::cast_precision_loss, reason = "few packets")]
        let (all, timed) = (fed as f64, number(&summary, "/latency_ns/count"));
        assert!(packets > 0.0 && packets < all, "{packets} of {all} packets");
        assert!(timed > 0 && timed < tx, "{timed} of {tx} packets");
        assert_eq!(number(&summary, "/verify/checked"), if extra.is_empty() { 0 } else { fed });
        if extra.len() > 1 {
            assert!(all <= 20e3 * 0.75 + 1.0 + 20e3 * (seconds - 0.4), "{all} packets in {seconds} s");
        }
    }
}

#[test]
fn a_rate_rises() {
    // A ramp of 2,500 packets, then 5,000 at the full rate; a ramp of 5,000.
    for (extra, packets_max) in [
        (["--rate", "10kpps", "--duration", "1", "--ramp", "0.5"], 7501),
        (["--rate", "2kpps..8kpps", "--duration", "1", "--flush-us", "1"], 5001),
    ] {
        let Some(summary) = replay_mix(&extra) else { return };
        let fed = number(&summary, "/packets/rx");
        assert!((packets_max / 2..=packets_max).contains(&fed), "{extra:?}: {fed} packets");
        assert_eq!(summary["latency_ns"]["measured"], "intended send time to arrival");
    }
}

/// A search over a link of 50 kpps, which 15 of 16 packets reach.
const LINK: [&str; 12] = [
    "--ports",
    "1",
    "--tx-rate",
    "50kpps",
    "--search-max",
    "200kpps",
    "--search-trial",
    "0.1",
    "--search-sum",
    "0.2",
    "--search-width",
    "4%",
];
/// The highest rate that a trial of 0.1 s can find: the TX queue accepts 1,024 packets beyond the link's rate.
const LINK_PPS_MAX: f64 = (50e3 + 1024.0 / 0.1) * 16.0 / 15.0;

#[test]
fn a_search_finds_what_a_link_takes() {
    let extra =
        [&LINK[..], &["--search", "loss=0,5%", "--search-repeats", "2", "--curve", "--verify"]].concat();
    let Some(summary) = replay_mix(&extra) else { return };
    let search = &summary["search"];
    assert_eq!((&search["is_complete"], number(search, "/repeats")), (&Value::from(true), 2));
    let goals = search["goals"].as_array().unwrap();
    let is_bound = goals.iter().any(|goal| goal["bound"] == "feeder");
    assert_eq!(summary["trace"]["feeder"]["is_bound"], is_bound, "{}", summary["trace"]);
    let losses: Vec<_> = goals.iter().map(|goal| goal["loss"].as_f64().unwrap()).collect();
    assert_eq!(losses, [0.0, 0.05]);
    for (goal, loss) in goals.iter().zip(losses) {
        let [rate, lower, upper] = ["rate_pps", "lower_pps", "upper_pps"]
            .map(|key| goal[key].as_f64().unwrap_or_else(|| panic!("{goal}")));
        assert!(rate > 1000.0 && rate <= LINK_PPS_MAX / (1.0 - loss), "{goal}");
        assert!(lower < upper && (upper - lower) / upper <= 0.0401, "{goal}");
        assert_eq!(goal["conditional_throughput_pps"].as_array().unwrap().len(), 2);
    }
    let trials = search["trials"].as_array().unwrap();
    assert!(trials.len() > 5 && trials.iter().any(|trial| number(trial, "/lost") > 0), "{search}");
    for trial in trials {
        let [fed, missed, unsent, lost] =
            ["fed", "missed", "unsent", "lost"].map(|key| number(trial, &format!("/{key}")));
        let wanted = trial["offered_pps"].as_f64().unwrap() * trial["duration_s"].as_f64().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "few packets")]
        let (all, bad) = ((fed + missed + unsent) as f64, (lost + unsent) as f64);
        assert!((all - wanted).abs() <= 1.0 && lost >= missed, "{trial}");
        assert!((trial["loss_ratio"].as_f64().unwrap() - bad / all).abs() < 1e-9, "{trial}");
    }
    let curve = summary["curve"].as_array().unwrap();
    assert_eq!(curve.iter().map(|point| number(point, "/percent")).sum::<u64>(), 550);
    for point in curve {
        let of = goals[0]["rate_pps"].as_f64().unwrap() * point["percent"].as_f64().unwrap() / 100.0;
        assert!((point["offered_pps"].as_f64().unwrap() / of - 1.0).abs() < 1e-9, "{point}");
        assert!(number(point, "/latency_ns/p50") <= number(point, "/latency_ns/p99_9"), "{point}");
    }
    // Rate and latency of the summary belong to the rate found.
    assert!(summary["rate"]["mpps"].as_f64().unwrap() * 1e6 <= LINK_PPS_MAX, "{}", summary["rate"]);
    assert_eq!(number(&summary, "/verify/checked"), number(&summary, "/packets/rx"));
}

#[test]
fn a_percentage_is_of_what_a_link_takes() {
    let extra =
        ["--ports", "1", "--tx-rate", "50kpps", "--rate", "50%", "--duration", "0.3", "--warmup", "0.1"];
    let Some(summary) = replay_mix(&extra) else { return };
    let lossless = summary["trace"]["lossless_pps"].as_f64().unwrap();
    let (seconds, packets) = measured(&summary);
    assert!((1000.0..=LINK_PPS_MAX).contains(&lossless), "{lossless}");
    assert!(seconds >= 0.3 && packets <= lossless / 2.0 * seconds + 1.0, "{packets} packets in {seconds} s");
}

#[test]
fn a_search_that_finds_no_rate_fails_and_says_so() {
    let mut command = mix_command();
    command.args(["--ports", "1", "--tx-rate", "5kpps", "--search", "0", "--search-min", "20kpps"]);
    command.args(["--search-max", "50kpps", "--search-trial", "0.2", "--search-sum", "0.2"]);
    let Some((summary, said)) = report(command, 1) else { return };
    assert!(said.contains("no rate has a loss of 0 % or less: even the lowest, 20000 pps"), "{said}");
    assert!(summary["search"]["goals"][0]["rate_pps"].is_null(), "{}", summary["search"]);
    let all_lost =
        ["--search", "0", "--search-trial", "0.05", "--search-sum", "0.05", "--search-min", "100pps"];
    let all_lost = [&all_lost[..], &["--search-max", "800pps"]].concat();
    let routes = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(routes.path(), "2001:db8:dead:beef::/64 1\n").unwrap();
    let Some(summary) = replay_with_code(&bundled("mix.pcap"), routes.path(), &all_lost, 1) else { return };
    assert!(number(&summary, "/packets/drops/no_route") > 0 && number(&summary, "/packets/tx") == 0);
}

#[test]
fn a_signal_ends_a_search_with_what_was_found() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("summary.json");
    let mut command = mix_command();
    command.args(LINK).args(["--search", "0", "--search-repeats", "1000", "--json"]).arg(&path);
    let child = command.spawn().unwrap();
    wait_until_it_runs(&child);
    std::thread::sleep(Duration::from_secs(1));
    send(&child, "-INT");
    let Some(output) = ran(wait(child, Duration::from_secs(60))) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let summary = json(&path);
    assert_eq!(summary["search"]["is_complete"], false);
    assert!(String::from_utf8_lossy(&output.stdout).contains("ENDED  before the search was done"));
}

#[test]
fn a_link_loses_what_it_does_not_take() {
    let extra = ["--ports", "1", "--tx-rate", "1Mbps", "--loops", "5"];
    let Some(summary) = replay(&bundled("mix.pcap"), &bundled("routes.txt"), &extra) else { return };
    // 10,000 packets of 222 bytes would take the link 18 s.
    let full = number(&summary, "/packets/drops/tx_full");
    assert!(full > 5000 && number(&summary, "/packets/tx") >= 1024, "{}", summary["packets"]);
}
