//! `gpu-ceilings` end to end: over `mockcuda` (or the real driver with `LPM_GPU=real`) it measures every part; without a driver it prints a
//! message and exits with 3.

#![expect(clippy::unwrap_used, reason = "a test")]

use lpm_gpu::cu::testing::{self, TestDriver};
use serde_json::Value;
use std::process::{Command, Output};

/// Runs it on the driver of these tests; `None` without a driver.
fn run(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-ceilings"));
    command.args(arguments).env_remove("MOCKCUDA_NO_DEVICE");
    if let TestDriver::Mock(_) = testing::driver()? {
        command.env("LD_PRELOAD", testing::library().unwrap());
    }
    Some(command.output().unwrap())
}

fn success(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn rows<'a>(report: &'a Value, part: &str, figure: &str) -> &'a [Value] {
    let rows = report[part].as_array().unwrap();
    for row in rows {
        assert!(row[figure].as_f64().is_some_and(|figure| figure > 0.0), "{part}: {row}");
    }
    rows
}

#[test]
fn every_part_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ceilings.json");
    let Some(output) = run(&["--quick", "--json", path.to_str().unwrap()]) else { return };
    let table = success(&output);
    for title in ["Kernels", "Copies", "Random loads", "One load after the other", "There and back"] {
        assert!(table.contains(title), "no '{title}' in:\n{table}");
    }
    let report: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(rows(&report, "copy", "gb_s").len(), 3 * 2, "3 directions x 2 counts of streams");
    assert_eq!(rows(&report, "gather", "giga_loads_s").len(), 3 * 3 * 2, "3 footprints x 3 widths x 2 kinds");
    assert_eq!(rows(&report, "chase", "load_ns").len(), 3, "3 footprints");
    let latency = rows(&report, "latency", "median_us");
    assert_eq!(latency.len(), 3 * 2, "3 modes x 2 batches");
    for mode in ["copy", "mapped", "persistent"] {
        assert_eq!(latency.iter().filter(|row| row["mode"] == mode).count(), 2, "{mode}");
    }
    for row in latency {
        let of = |name: &str| row[name].as_f64().unwrap();
        assert!(of("min_us") <= of("median_us") && of("median_us") <= of("p99_us"), "{row}");
    }
    assert!(report["kernels"].as_array().unwrap().iter().all(|row| row["local_bytes"] == 0), "local memory");
}

#[test]
fn only_what_was_asked_for_is_measured() {
    let arguments = [
        "--quick",
        "--only",
        "copy,latency",
        "--streams",
        "3",
        "--copy-bytes",
        "1K",
        "--modes",
        "mapped",
        "--batches",
        "5,33",
        "--json",
        "-",
    ];
    let Some(output) = run(&arguments) else { return };
    let report: Value = serde_json::from_str(&success(&output)).unwrap();
    assert_eq!(rows(&report, "copy", "gb_s").len(), 3);
    assert_eq!(report["copy"][0]["bytes"], 1024);
    assert_eq!(rows(&report, "latency", "median_us").len(), 2);
    assert_eq!(report["latency"][1]["batch"], 33);
    assert!(report["gather"].as_array().unwrap().is_empty());
}

#[test]
fn a_device_that_is_not_there_is_exit_code_3() {
    let Some(output) = run(&["--quick", "--device", "99"]) else { return };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("there is no device 99") && words.lines().count() == 1, "{words}");
}

#[test]
fn without_a_driver_it_is_exit_code_3() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-ceilings"))
        .arg("--quick")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    if output.status.success() {
        eprintln!("SKIPPED: there is a driver on this host");
        return;
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn options_that_mean_nothing_are_exit_code_2() {
    for arguments in
        [&["--footprints", "96K"][..], &["--batches", "32M"], &["--streams", "0"], &["--only", "all"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-ceilings")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
