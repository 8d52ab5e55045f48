//! Contents of reports: the work and its hashes, the host, latency by size, pictures; and comparisons of reports.

use crate::support::{
    check_schema, fwd_app, number, ran, replay, replay_command, replay_mix, report, stderr, v4_frame,
    write_pcap, write_pcap_of,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn hash<'a>(summary: &'a Value, name: &str) -> &'a str {
    summary["ran"]["work"][name].as_str().unwrap_or_else(|| panic!("no {name} in {summary}"))
}

fn sizes() -> Vec<Vec<u8>> {
    let frame = |(at, bytes): (u32, usize)| v4_frame(0x0a00_0001 + at, 0xcb00_7101, bytes, &[]);
    (0..300).zip([60, 590, 1514].into_iter().cycle()).map(frame).collect()
}

fn scratch() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (trace, routes) = (folder.path().join("trace.pcap"), folder.path().join("routes.txt"));
    write_pcap(&trace, &sizes());
    std::fs::write(&routes, "203.0.113.0/24 1\n10.0.0.0/8 2\n2001:db8::/32 3\n").unwrap();
    (folder, trace, routes)
}

fn compared(trace: &Path, routes: &Path, old: &Path, extra: &[&str]) -> Option<(i32, String, String)> {
    let mut command = replay_command(trace, routes);
    let output = ran(command.args(extra).arg("--compare").arg(old).output().unwrap())?;
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    Some((output.status.code().unwrap(), printed, stderr(&output)))
}

/// A replay that writes its report to `path`; returns false if DPDK does not start here.
fn write_report(path: &Path, trace: &Path, routes: &Path, extra: &[&str]) -> bool {
    let mut command = replay_command(trace, routes);
    let output = ran(command.args(extra).arg("--json").arg(path).output().unwrap());
    output.inspect(|output| assert!(output.status.success(), "{}", stderr(output))).is_some()
}

#[test]
fn a_report_says_what_ran() {
    let Some(summary) = replay_mix(&["--rate", "100kpps", "--batch", "64", "--ecmp-seed", "7"]) else {
        return;
    };
    let ran = &summary["ran"];
    let arguments: Vec<_> = ran["arguments"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(arguments.windows(2).any(|pair| pair == ["--rate", "100kpps"]), "{arguments:?}");
    assert_eq!((&ran["options"]["forwarder.batch"], &ran["seeds"]["ecmp"]), (&json!(64), &json!(7)));
    assert!(
        ran["options"].get("forwarder.rx-burst").is_none(),
        "a default is not listed: {}",
        ran["options"]
    );
    assert_eq!((&ran["work"]["rate"], &ran["work"]["packets_from"]), (&json!("100000pps"), &json!("copies")));
    let started = ran["started"].as_str().unwrap();
    let today = Command::new("date").args(["-u", "+%Y-"]).output().unwrap().stdout;
    assert!(started.starts_with(String::from_utf8(today).unwrap().trim()), "{started}");
    assert!(number(&summary, "/ran/host/cpus") > 0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(ran["host"]["kernel"], kernel.trim());
}

#[test]
fn the_same_routes_and_packets_have_the_same_hashes_in_other_files() {
    let (folder, trace, routes) = scratch();
    let Some(base) = replay(&trace, &routes, &[]) else { return };
    let raw = folder.path().join("raw.pcap");
    write_pcap_of(&raw, 101, &sizes().iter().map(|frame| frame[14..].to_vec()).collect::<Vec<_>>());
    let same = folder.path().join("same.txt");
    std::fs::write(
        &same,
        "# in another order\n2001:db8::/32 3\n10.0.0.0/8 9\n203.0.113.0/24 1\n10.0.0.0/8 2\n",
    )
    .unwrap();
    let again = replay(&raw, &same, &["--engine", "oracle"]).unwrap();
    for name in ["table_hash", "trace_hash"] {
        assert_eq!(hash(&base, name), hash(&again, name), "{name}");
    }
    let limited = replay(&trace, &routes, &["--limit", "299"]).unwrap();
    assert_ne!(hash(&base, "trace_hash"), hash(&limited, "trace_hash"));
    std::fs::write(&same, "203.0.113.0/24 1\n10.0.0.0/8 9\n2001:db8::/32 3\n").unwrap();
    let other = replay(&trace, &same, &[]).unwrap();
    assert_ne!(hash(&base, "table_hash"), hash(&other, "table_hash"));
    // With updates, the initial routes are hashed.
    let updates = folder.path().join("updates.txt");
    std::fs::write(&updates, "a 203.0.113.0/25 5\n").unwrap();
    let updated = replay(&trace, &routes, &["--updates", updates.to_str().unwrap()]).unwrap();
    assert_eq!(hash(&base, "table_hash"), hash(&updated, "table_hash"));
    assert_eq!(number(&updated, "/ran/work/updates"), 1);
}

#[test]
fn packets_sent_at_a_rate_are_timed_by_their_size() {
    let (_folder, trace, routes) = scratch();
    let Some(summary) = replay(&trace, &routes, &["--rate", "100kpps", "--loops", "10"]) else { return };
    let sizes = summary["latency_by_size"].as_array().unwrap();
    let counts: Vec<_> = sizes.iter().map(|size| (&size["bytes_max"], number(size, "/packets"))).collect();
    assert_eq!(counts, [(&json!(64), 1000), (&json!(1024), 1000), (&json!(1518), 1000)]);
    let total: u64 = sizes.iter().map(|size| number(size, "/latency_ns/count")).sum();
    assert_eq!((total, number(&summary, "/latency_ns/count")), (3000, 3000));
    // Packets at full speed have no intended send time, so they have no individual latency.
    let fast = replay(&trace, &routes, &[]).unwrap();
    assert!(fast.get("latency_by_size").is_none());
}

#[test]
fn latencies_are_drawn_and_the_text_still_fits_a_terminal() {
    let (folder, trace, routes) = scratch();
    let picture = folder.path().join("latency.svg");
    let mut command = replay_command(&trace, &routes);
    let output =
        command.args(["--rate", "100kpps", "--verify", "--loops", "10", "--svg"]).arg(&picture).output();
    let Some(output) = ran(output.unwrap()) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() < 25 && text.contains("to 1024 B"), "{text}");
    let picture = std::fs::read_to_string(&picture).unwrap();
    for part in
        ["<svg", "prefers-color-scheme: dark", "99.9 %", "to 64 B", "p99.9", "by size", "currentColor"]
    {
        assert!(picture.contains(part), "no {part}");
    }
    assert!(!picture.contains("<script") && !picture.contains("href"), "it needs nothing else");
}

#[test]
fn a_replay_is_compared_with_an_earlier_one() {
    let (folder, trace, routes) = scratch();
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.json"));
    let rate = ["--rate", "100kpps", "--loops", "30"];
    if !write_report(&old, &trace, &routes, &rate) {
        return;
    }
    let mut command = replay_command(&trace, &routes);
    command.args(rate).args(["--batch", "32", "--compare"]).arg(&old);
    let (summary, _) = report(command, 0).unwrap();
    let numbers = summary["compared"]["numbers"].as_array().unwrap();
    for name in ["Mpps", "cycles lookup", "p99", "p99, frames to 1518 B"] {
        let number =
            numbers.iter().find(|number| number["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(number["ratio"].as_f64().unwrap() > 0.0, "{number}");
    }
    let batch = json!({ "what": "setup.batch", "old": 256, "new": 32 });
    assert!(
        summary["compared"]["differences"].as_array().unwrap().contains(&batch),
        "{}",
        summary["compared"]
    );
    let (code, text, said) = compared(&trace, &routes, &old, &rate).unwrap();
    assert!(code == 0 && text.contains("new/old") && text.contains("is from one run"), "{text}{said}");
    // With two files nothing is run.
    assert!(write_report(&new, &trace, &routes, &[&rate[..], &["--engine", "oracle"]].concat()));
    let path = folder.path().join("compared.json");
    let output = fwd_app(&["compare"]).arg(&old).arg(&new).arg("--json").arg(&path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("engine.name: \"host\", now \"oracle\""), "{text}");
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((&written["kind"], &written["schema"]), (&json!("comparison"), &json!(1)));
}

#[test]
fn a_comparison_with_other_work_is_refused_before_packets_flow() {
    let (folder, trace, routes) = scratch();
    let old = folder.path().join("old.json");
    if !write_report(&old, &trace, &routes, &[]) {
        return;
    }
    let other = folder.path().join("other.txt");
    std::fs::write(&other, "203.0.113.0/24 2\n").unwrap();
    for (routes, extra, parts) in [
        (&other, &[][..], &["table_hash was"][..]),
        (&routes, &["--limit", "10"], &["trace_hash was"]),
        (&routes, &["--rate", "1Mpps"], &["rate was \"max\", now \"1000000pps\"", "packets_from"]),
        (&routes, &["--spread", "--ports", "2"], &["spread was false, now true", "ports was 4, now 2"]),
        (&routes, &["--verify"], &["packets_from was \"ready mbufs\", now \"copies\""]),
    ] {
        let (code, text, said) = compared(&trace, routes, &old, extra).unwrap();
        assert_eq!((code, text.as_str()), (2, ""), "{said}");
        assert!(said.contains("old.json is not comparable"), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
    }
    for (file, part) in [("none.json", "cannot read"), ("other.txt", "wanted a report of run or replay")] {
        let (code, _, said) = compared(&trace, &routes, &folder.path().join(file), &[]).unwrap();
        assert!(code == 1 && said.contains(part) && said.contains(file), "{code}: {said}");
    }
    let output = fwd_app(&["compare"]).arg(&old).arg(folder.path().join("none.json")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn damaged_reports_do_not_pass_the_schema() {
    // Enough bursts that some are timed by stage, even on an lcore with few turns.
    let Some(summary) = replay_mix(&["--rate", "100kpps", "--loops", "20"]) else { return };
    assert_eq!(check_schema(&summary), Ok(()));
    for (pointer, value) in [
        ("/schema", json!(2)),
        ("/kind", json!("snapshot")),
        ("/packets/rx", json!(-1)),
        ("/packets/drops/no_route", json!("0")),
        ("/rate/mpps", json!(null)),
        ("/latency_ns/p99", json!(1.5)),
        ("/latency_by_size/0/bytes_max", json!(65)),
        ("/ran/work/table_hash", json!("x")),
        ("/ran/work", json!({ "command": "replay", "table_hash": null })),
        ("/ran/started", json!("yesterday")),
        ("/ran/host", json!({})),
        ("/engine/fallback", json!({})),
        ("/ports/0", json!({ "name": "p" })),
        ("/verify", json!({ "checked": 1 })),
        ("/stages/0/name", json!(1)),
    ] {
        let mut damaged = summary.clone();
        *damaged.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert!(check_schema(&damaged).is_err(), "{pointer}");
    }
    for key in summary.as_object().unwrap().keys().filter(|key| *key != "trace" && *key != "latency_by_size")
    {
        let mut damaged = summary.clone();
        damaged.as_object_mut().unwrap().remove(key);
        assert!(check_schema(&damaged).is_err(), "without {key}");
    }
    let mut damaged = summary;
    damaged.as_object_mut().unwrap().insert("latency".into(), json!(1));
    assert!(check_schema(&damaged).is_err(), "a key that nobody knows");
}
