//! `gpu-concurrent` end to end: over `mockcuda` (or the real driver with `LPM_GPU=real`), in every mode.

#![expect(clippy::unwrap_used, reason = "a test")]

use lpm_gpu::cu::testing::{self, TestDriver};
use serde_json::Value;
use std::process::{Command, Output};

/// The connections to the device; by default the program sets the maximum, 32.
const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

fn run(arguments: &[&str], switches: &[(&str, &str)]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-concurrent"));
    command.env_remove(CONNECTIONS);
    command.args(["--routes", "300", "--batch", "96", "--slots", "4", "--seconds", "0"]).args(arguments);
    if let TestDriver::Mock(_) = testing::driver()? {
        command.env("LD_PRELOAD", testing::library().unwrap()).envs(switches.iter().copied());
    }
    Some(command.output().unwrap())
}

#[test]
fn every_mode_by_one_reader_and_by_four_answers_right() {
    let Some(output) = run(&["--readers", "1,4", "--json", "-"], &[("MOCKCUDA_DELAY_US", "100")]) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "3 modes, 2 numbers of readers");
    for row in rows {
        assert!(row["wrong"] == 0 && row["error"].is_null() && row["skipped"].is_null(), "{row}");
        for (figure, least) in [("keys_checked", 1000.0), ("deltas", 48.0), ("swaps", 4.0)] {
            assert!(row[figure].as_f64().unwrap() >= least, "{figure} of {row}");
        }
        let submit = |name: &str| row["submit_ns"][name].as_u64().unwrap();
        assert!(
            submit("p50") > 0 && submit("p99") <= submit("p99_9") && submit("p99_9") <= submit("max"),
            "{row}"
        );
    }
}

#[test]
fn readers_beyond_the_connections_are_not_run_and_it_is_said() {
    if testing::driver().and_then(TestDriver::mock).is_none() {
        eprintln!("SKIPPED: what fits a real device is not known here");
        return;
    }
    for (switches, connections, readers, wanted) in
        [(&[][..], "32", "16", 34), (&[(CONNECTIONS, "8")], "8", "4", 10)]
    {
        let arguments = ["--modes", "persistent", "--readers", readers, "--json", "-"];
        let Some(output) = run(&arguments, switches) else { return };
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["connections"], connections);
        let why = report["rows"][0]["skipped"].as_str().unwrap();
        let said = format!(
            "persistent kernels need {wanted} connections to the device, {connections} are available"
        );
        assert!(why.contains(&said), "{why}");
        assert!(output.status.success());
    }
}

#[test]
fn a_device_that_fails_is_exit_code_1_and_said() {
    if testing::driver().and_then(TestDriver::mock).is_none() {
        eprintln!("SKIPPED: only the mock can be told to fail");
        return;
    }
    let fault = [("MOCKCUDA_FAIL_OPERATION", "300:719"), ("MOCKCUDA_QUIET", "1")];
    let Some(output) = run(&["--modes", "copy", "--readers", "2,4"], &fault) else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("FAILED") && said.contains("719") && said.contains("skipped: 2 readers have failed"),
        "{said}"
    );
}

#[test]
fn options_that_mean_nothing_are_exit_code_2() {
    for arguments in [&["--readers", "0"][..], &["--modes", "warp"], &["--engines", "bloom"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-concurrent")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
