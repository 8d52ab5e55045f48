//! `--audit`: no false alarm while routes change, and a wrong word on a device is found.

use crate::forwarder::{Steered, endless_mix};
use crate::support::{changes, mix_command, number, replay_mix, report};
use lpm_gpu::cu::testing::library;
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

fn counts(summary: &Value) -> [u64; 3] {
    ["checked", "skipped", "wrong"].map(|name| number(summary, &format!("/audit/{name}")))
}

#[test]
fn no_answer_seems_wrong_while_routes_change() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, changes(3)).unwrap();
    let file = file.to_str().unwrap();
    for (engine, topology, per_commit) in [
        ("host", "run-to-completion", "1"),
        ("host", "pipeline", "64"),
        ("bloom", "pipeline", "1"),
        ("mamt", "run-to-completion", "64"),
        ("coop", "pipeline", "64"),
    ] {
        let packets = ["--loops", "200", "--rate", "400kpps", "--engine", engine, "--topology", topology];
        let updates = ["--updates", file, "--update-rate", "20000", "--update-loops", "1000000"];
        let audit = ["--audit", "16", "--update-batch", per_commit];
        let Some(summary) = replay_mix(&[&packets[..], &updates, &audit].concat()) else { return };
        let [checked, skipped, wrong] = counts(&summary);
        // The mix has 2,000 packets, most of which are looked up.
        assert!((12_500..28_000).contains(&(checked + skipped)), "{engine}: {checked} {skipped}");
        assert!(checked > 0 && wrong == 0, "{engine} {topology}: {checked} {skipped} {wrong}");
        assert!(number(&summary, "/engine/generations_applied") > 50, "{engine}");
    }
}

#[test]
fn no_answer_of_a_device_seems_wrong_while_routes_change() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, changes(3)).unwrap();
    for engine in ["gamt", "gale", "sail-gpu"] {
        let mut command = mix_command();
        command.env("LD_PRELOAD", library().unwrap());
        command.envs([("MOCKCUDA_DELAY_US", "100"), ("MOCKCUDA_SEED", "7")]);
        command.args(["--engine", engine, "--batch", "64", "--loops", "20", "--rate", "40kpps"]);
        command.args(["--stall-us", "60000000", "--audit", "16", "--verify"]);
        command.args(["--update-rate", "60", "--update-loops", "1000000", "--updates"]);
        command.arg(&file);
        let Some((summary, said)) = report(command, 0) else { return };
        let [checked, skipped, wrong] = counts(&summary);
        assert!(checked > 0 && skipped > 0 && wrong == 0, "{engine}: {checked} {skipped} {wrong}: {said}");
    }
}

/// In the middle of a replay, next hop 7 replaces 16777215 in the leaves of the device.
#[test]
fn a_wrong_word_on_a_device_is_found_and_the_device_is_left() {
    let plant = "600:4294967040:1792";
    for topology in ["pipeline", "run-to-completion"] {
        let command = |more: &[&str]| {
            let mut command = mix_command();
            command.env("LD_PRELOAD", library().unwrap()).env("MOCKCUDA_PLANT", plant);
            command.args(["--engine", "gamt", "--batch", "64", "--loops", "40", "--stall-us", "60000000"]);
            command.args(["--audit", "4", "--topology", topology, "--engine-arg", "mode=copy"]).args(more);
            command
        };
        let Some((summary, said)) = report(command(&[]), 1) else { return };
        let [checked, _, wrong] = counts(&summary);
        assert!(wrong > 0 && wrong < checked, "{topology}: {checked} {wrong}: {said}");
        let error = "error: engine gamt answered ";
        assert!(said.contains(error) && said.contains("right is next hop 16777215"), "{said}");
        assert!(said.contains(&format!("{wrong} of {checked} answers")), "{said}");
        // Of different errors ten a second are shown, and a line for the rest.
        let took = Duration::from_secs_f64(summary["rate"]["duration_s"].as_f64().unwrap());
        assert!(said.matches(error).count() as u64 <= 12 * (took.as_secs() + 2), "{said}");

        let (summary, said) = report(command(&["--fallback", "host"]), 1).unwrap();
        assert_eq!(summary["engine"]["name"], "host", "{topology}: {said}");
        let reason = summary["engine"]["fallback"]["reason"].as_str().unwrap();
        assert!(reason.contains("was next hop 7 instead of 16777215"), "{reason}");
        assert!(said.contains("engine gamt is out of service, host answers from now on"), "{said}");
        assert!(counts(&summary)[2] > 0 && !said.contains("engine host answered"), "{said}");
    }
}

#[test]
fn ctl_turns_the_audit_on_and_off() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(forwarder) = Steered::run_with(scratch.path(), "audit", &endless_mix(), &[]) else { return };
    forwarder.ask_until("show stats", |stats| number(stats, "/packets/rx") > 10_000);
    assert_eq!(counts(&forwarder.ask("show stats")), [0; 3], "off with a CPU engine");
    forwarder.ask("set audit 64");
    forwarder.ask_until("show stats", |stats| number(stats, "/audit/checked") > 100);
    assert!(forwarder.ask_text("show stats").contains("\naudit    "));
    forwarder.ask("set audit 0");
    let last = Cell::new([0; 3]);
    forwarder.ask_until("show stats", |stats| last.replace(counts(stats)) == counts(stats));
    let (summary, _) = forwarder.end();
    assert_eq!(counts(&summary)[2], 0);
}
