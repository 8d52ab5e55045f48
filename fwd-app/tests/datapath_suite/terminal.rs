//! A closed or blocked stderr does not disturb a run: packets flow, a signal ends it, and the JSON is written.

use crate::run::{eal, run};
use crate::signals::send;
use crate::support::{json, mix_command, number, skip, wait};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than a drain takes even on a busy host; without a limit a failing test would hang.
const LIMIT: Duration = Duration::from_secs(15);

/// `run` over two null ports, which deliver packets as fast as they are polled, with a line of statistics every 20 ms.
fn chatty(json: &Path, options: &[&str], prefix: &str) -> Command {
    let eal = eal("(0-1)@(0-0)", prefix);
    let options = [&["--stats-period", "0.02"], options].concat();
    run(json, &options, &eal, &["net_null0", "net_null1"].map(str::to_owned))
}

fn read_until(reader: &mut impl Read, wanted: &str) -> bool {
    let mut said = String::new();
    for line in BufReader::with_capacity(64, reader).lines() {
        said.push_str(&line.unwrap());
        if said.contains(wanted) {
            return true;
        }
        said.push('\n');
    }
    assert!(skip(&said), "it ended: {said}");
    false
}

fn end(child: Child, path: &Path) {
    send(&child, "-TERM");
    let output = wait(child, LIMIT);
    assert_eq!(output.status.code(), Some(0));
    let summary = json(path);
    assert!(number(&summary, "/packets/rx") > 0);
}

/// The messages of `run` when stderr is a file, which is the journal's stream if `is_journal`.
fn said(options: &[&str], prefix: &str, is_journal: bool) -> Option<String> {
    let scratch = tempfile::tempdir().unwrap();
    let (json, path) = (scratch.path().join("summary.json"), scratch.path().join("stderr"));
    let file = std::fs::File::create(&path).unwrap();
    let found = file.metadata().unwrap();
    let mut command = chatty(&json, &[&["--duration", "0.3"], options].concat(), prefix);
    let inode = if is_journal { found.ino() } else { found.ino() + 1 };
    command.env("JOURNAL_STREAM", format!("{}:{inode}", found.dev())).stdout(Stdio::null()).stderr(file);
    let status = command.status().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    if status.success() {
        return Some(text);
    }
    assert!(skip(&text), "it ended: {text}");
    None
}

#[test]
fn in_the_journal_every_line_has_its_priority_those_of_dpdk_too() {
    let Some(text) = said(&[], "journal", true) else { return };
    for line in ["<6>EAL: ", "<6>engine ", "<6>forwarding;", "Mpps"] {
        assert!(text.lines().any(|said| said.contains(line)), "no {line} in {text}");
    }
    let has_priority = |line: &str| ["<3>", "<4>", "<6>"].iter().any(|priority| line.starts_with(priority));
    assert!(text.lines().all(has_priority), "{text}");
    let Some(text) = said(&[], "no-journal", false) else { return };
    assert!(text.lines().any(|line| line.starts_with("EAL: ")) && !text.contains('<'), "{text}");
}

#[test]
fn a_level_leaves_out_what_is_less_important_but_not_what_was_asked_for() {
    let Some(text) = said(&["--log-level", "warn"], "quiet", false) else { return };
    assert!(text.contains("Mpps"), "{text}");
    for line in ["engine ", "forwarding;", "EAL: Detected"] {
        assert!(!text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_closed_stderr_leaves_the_signals_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    let mut child = chatty(&json, &[], "closed").spawn().unwrap();
    // Both streams are closed, as with `2>&1 | head -20`.
    let (mut stderr, stdout) = (child.stderr.take().unwrap(), child.stdout.take());
    if !read_until(&mut stderr, "Mpps") {
        return drop(child.wait());
    }
    drop((stderr, stdout));
    std::thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    end(child, &json);
}

#[test]
fn a_full_pipe_that_nobody_reads_holds_up_no_lcore_and_no_signal() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // The main lcore forwards too, and both streams go to the same pipe.
    let mut command = chatty(&json, &["--config", "(0,0,0),(1,0,1)"], "blocked");
    let both = [writer.try_clone().unwrap(), writer.try_clone().unwrap()];
    let [stdout, stderr] = both.map(Stdio::from);
    let mut child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
    drop(command);
    // This test fills the pipe; the thread ends when the reader is dropped at the end of the test.
    if !read_until(&mut reader, "forwarding;") {
        return drop(child.wait());
    }
    let filling = std::thread::spawn(move || drop(writer.write_all(&vec![b'\n'; 1 << 20])));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!filling.is_finished() && child.try_wait().unwrap().is_none());
    end(child, &json);
}

#[test]
fn a_reader_of_the_report_that_goes_is_no_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("summary.json");
    let mut child = mix_command().arg("--json").arg(&path).spawn().unwrap();
    drop(child.stdout.take());
    let output = wait(child, LIMIT);
    let said = String::from_utf8_lossy(&output.stderr);
    if !skip(&said) {
        assert_eq!((output.status.code(), said.contains("panicked")), (Some(0), false), "{said}");
        json(&path);
    }
}
