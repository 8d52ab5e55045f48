//! SIGTERM and SIGINT: receiving stops, packets in the forwarder drain, the summary is printed; a second signal ends the process at once.

use crate::support::{json, mix_command, number, ran, stderr, wait};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) fn send(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn endless(json: &Path, extra: &[&str]) -> Child {
    mix_command().args(["--loops", "1000000000", "--json"]).arg(json).args(extra).spawn().unwrap()
}

pub(crate) fn wait_until_it_runs(child: &Child) {
    let end = Instant::now() + Duration::from_secs(60);
    let tasks = format!("/proc/{}/task", child.id());
    let name =
        |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("comm"));
    let runs = || {
        let tasks = std::fs::read_dir(&tasks).into_iter().flatten();
        // DPDK 22.11 calls them lcore-worker-N, newer ones dpdk-workerN.
        tasks.filter_map(|task| name(task).ok()).any(|name| name.contains("worker"))
    };
    while !runs() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(700));
}

#[test]
fn a_signal_drains_and_prints_the_summary() {
    for (signal, topology) in [("-TERM", "run-to-completion"), ("-INT", "pipeline")] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("summary.json");
        let child = endless(&path, &["--verify", "--topology", topology, "--lcores", "3"]);
        wait_until_it_runs(&child);
        send(&child, "-USR1");
        std::thread::sleep(Duration::from_millis(300));
        send(&child, signal);
        let Some(output) = ran(wait(child, Duration::from_secs(60))) else { return };
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("0 held"));
        assert!(stderr(&output).contains("Mpps"), "SIGUSR1 prints a line: {}", stderr(&output));
        let summary = json(&path);
        assert!(number(&summary, "/packets/tx") > 0);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    // A sink that never receives keeps the drain waiting.
    let mut child = endless(&json, &["--tx-slow", "4000000000"]);
    wait_until_it_runs(&child);
    send(&child, "-TERM");
    std::thread::sleep(Duration::from_millis(500));
    if child.try_wait().unwrap().is_none() {
        send(&child, "-TERM");
    }
    let Some(output) = ran(wait(child, Duration::from_secs(60))) else { return };
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(output.stdout.is_empty() && !json.exists(), "no summary after a second signal");
}
