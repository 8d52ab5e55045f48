//! Rates, latency from the intended send time, report files. No test asserts a machine's speed, only that no packet is sent early.

use crate::support::{bundled, json, mix_command, number, ran, replay_command, replay_mix, stderr};
use serde_json::Value;
use std::process::Command;

#[test]
fn a_rate_is_kept_and_every_packet_is_timed() {
    // 2,000 packets: the last is due after 1,999 gaps.
    for (rate, seconds_min) in [("10kpps", 0.1999), ("original", 0.015), ("x0.1", 0.15)] {
        let extra = ["--rate", rate, "--topology", "run-to-completion"];
        let Some(summary) = replay_mix(&extra) else { return };
        let seconds = summary["rate"]["duration_s"].as_f64().unwrap();
        assert!(seconds >= seconds_min, "{rate}: {seconds} s");
        assert_eq!(summary["latency_ns"]["measured"], "intended send time to arrival");
        assert_eq!(number(&summary, "/latency_ns/count"), number(&summary, "/packets/tx"));
        let [min, p50, p99_99, max] =
            ["min", "p50", "p99_99", "max"].map(|name| number(&summary, &format!("/latency_ns/{name}")));
        assert!(0 < min && min <= p50 && p50 <= p99_99 && p99_99 <= max);
    }
}

/// `trace.feeder` of a replay. All its reports agree on whether the feeder bounds the rate.
fn feeder_of(mut command: Command, extra: &[&str]) -> Option<Value> {
    let scratch = tempfile::tempdir().unwrap();
    let [report, hgrm, svg] = ["json", "hgrm", "svg"].map(|kind| scratch.path().join(kind));
    command.args(extra).arg("--json").arg(&report).arg("--hgrm").arg(&hgrm).arg("--svg").arg(&svg);
    let output = ran(command.output().unwrap())?;
    let feeder = json(&report)["trace"]["feeder"].clone();
    let files = [hgrm, svg].map(|path| std::fs::read_to_string(path).unwrap());
    let texts = [String::from_utf8(output.stdout).unwrap()].into_iter().chain(files);
    for text in texts {
        assert_eq!(text.contains("BOUND BY THE FEEDER"), feeder["is_bound"] == true, "{feeder}: {text}");
    }
    Some(feeder)
}

#[test]
fn a_forwarder_slower_than_the_feeder_is_not_bound_by_it() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    let lines = (0..9000).map(|i| format!("10.{}.{}.0/24 1\n", i / 256, i % 256));
    std::fs::write(&routes, lines.collect::<String>() + "0.0.0.0/0 2\n").unwrap();
    let slow = || replay_command(&bundled("mix.pcap"), &routes);
    for (command, extra) in [
        (slow(), &["--engine", "linear", "--mbufs", "4096", "--loops", "20"][..]),
        (mix_command(), &["--rate", "20kpps"]),
        (mix_command(), &["--verify", "--rate", "5kpps..20kpps", "--duration", "0.3"]),
    ] {
        let Some(feeder) = feeder_of(command, extra) else { return };
        assert_eq!(feeder["is_bound"], false, "{extra:?}: {feeder}");
        assert!(feeder["alone_pps"].as_f64() > Some(0.0), "{extra:?}: {feeder}");
    }
    assert_eq!(feeder_of(mix_command(), &["--loops", "50"]), Some(Value::Null), "ready mbufs need none");
}

#[test]
fn a_trivial_forwarder_is_bound_by_the_feeder() {
    let scratch = tempfile::tempdir().unwrap();
    let routes = scratch.path().join("routes.txt");
    std::fs::write(&routes, "0.0.0.0/0 1\n").unwrap();
    // The feeder copies and verifies 9,000 bytes a packet, and has mbufs for the time in which the lcores may lose their CPU to others.
    let large = ["--verify", "--sizes", "9000", "--mbufs", "30000"];
    let is_bound = (0..5).any(|_| {
        let extra = [&large[..], &["--duration", "0.3", "--lcores", "2", "--spread"]].concat();
        let feeder = feeder_of(replay_command(&bundled("mix.pcap"), &routes), &extra);
        feeder.is_none_or(|feeder| feeder["is_bound"] == true)
    });
    assert!(is_bound);
}

#[test]
fn the_contract_of_the_json() {
    let extra = ["--verify", "--engine", "bloom", "--isa", "scalar", "--loops", "200"];
    let Some(summary) = replay_mix(&extra) else { return };
    for key in ["rx", "tx", "drops/tx_full", "drops/engine_stall", "drops/no_neighbour"] {
        number(&summary, &format!("/packets/{key}"));
    }
    for key in ["min", "p50", "p90", "p99", "p99_9", "p99_99", "max", "count"] {
        assert!(number(&summary, &format!("/latency_ns/{key}")) > 0, "{key}");
    }
    for key in ["/rate/mpps", "/rate/gbps", "/latency_ns/mean"] {
        assert!(summary.pointer(key).unwrap().as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(
        (summary["engine"]["name"].as_str(), summary["engine"]["isa"].as_str()),
        (Some("bloom"), Some("scalar"))
    );
    assert!(number(&summary, "/engine/table_bytes") > 0);
    assert_eq!(number(&summary, "/verify/checked"), 400_000);
    let stages: Vec<_> =
        summary["stages"].as_array().unwrap().iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(stages, ["rx", "parse", "lookup", "verdict", "rewrite", "tx"]);
}

#[test]
fn the_text_and_the_histogram_file() {
    let scratch = tempfile::tempdir().unwrap();
    let hgrm = scratch.path().join("latency.hgrm");
    let mut command = mix_command();
    let output = command.args(["--stats-period", "0.01", "--loops", "100", "--hgrm"]).arg(&hgrm).output();
    let Some(output) = ran(output.unwrap()) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.lines().count() < 25, "{text}");
    for part in [
        "200,000 rx = 187,500 tx + 12,500 dropped + 0 held",
        "no_route",
        "(L2)",
        "(L1)",
        "p99.99",
        "|#",
        "setup",
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(stderr(&output).contains("Mpps"), "a line each period");
    let hgrm = std::fs::read_to_string(&hgrm).unwrap();
    assert!(hgrm.contains("1.000000000000     187500"), "{hgrm}");
}

#[test]
fn a_duration_ends_what_would_go_on() {
    for extra in [&[][..], &["--verify"], &["--rate", "20kpps"]] {
        let arguments = [&["--duration", "0.4"], extra].concat();
        let Some(summary) = replay_mix(&arguments) else { return };
        let (fed, loops) = (number(&summary, "/trace/fed"), number(&summary, "/trace/loops"));
        assert!(summary["rate"]["duration_s"].as_f64() >= Some(0.4), "{extra:?}: {}", summary["rate"]);
        assert!(fed > 200 && loops == fed.div_ceil(2000), "{extra:?}: {loops} loops, {fed} packets");
        let checked = number(&summary, "/verify/checked");
        assert_eq!(checked, if extra == ["--verify"] { fed } else { 0 }, "{extra:?}");
        assert_eq!(number(&summary, "/packets/rx"), fed, "{extra:?}");
    }
}
