//! Each way of lacking a GPU has its own error. A process has one driver, so each case runs in a child process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use fib::EngineError;
use lpm_gpu::cu::{Device, prepare_environment, probe, testing};
use std::path::PathBuf;
use std::process::Command;

const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

const MARK: &str = "probe says: ";

/// Child: prints the results of [`probe`] and [`Device::open`] with the driver in `PROBE_DRIVER`.
#[test]
#[ignore = "run by the other tests, in a child process"]
fn child() {
    if std::env::var("PROBE_DRIVER").is_ok_and(|driver| driver == "mock") && testing::driver().is_none() {
        println!("{MARK}skipped");
        return;
    }
    let found = probe().and_then(|found| Device::open(0).map(|device| (found, device)));
    match found {
        Ok((found, device)) => {
            println!("{MARK}{} with {} devices, {}", found.driver, found.devices, device.facts().name)
        }
        Err(error) => {
            assert!(error.is_absent(), "{error:?}");
            let engine = error.into_engine("gamt");
            assert!(
                matches!(engine, EngineError::NoDevice { engine: "gamt", device: "GPU", .. }),
                "{engine:?}"
            );
            println!("{MARK}{engine}");
        }
    }
}

fn in_a_child(name: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"]);
    for variable in ["LPM_GPU", "LD_PRELOAD", "FWD_REQUIRE", CONNECTIONS] {
        command.env_remove(variable);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{environment:?}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn probed(environment: &[(&str, &str)]) -> String {
    result_line("child", environment)
}

fn result_line(name: &str, environment: &[(&str, &str)]) -> String {
    let text = in_a_child(name, environment);
    let line = text.lines().find_map(|line| line.split_once(MARK));
    line.unwrap_or_else(|| panic!("no answer in: {text}")).1.to_owned()
}

#[test]
fn without_a_driver_the_names_that_were_tried_are_told() {
    let answer = probed(&[]);
    if answer.starts_with("CUDA ") {
        eprintln!("SKIPPED: there is a driver on this host");
        return;
    }
    if answer.contains("no CUDA driver") {
        let wanted = "engine gamt needs GPU: no CUDA driver: none of libcuda.so, libcuda.so.1 can be loaded";
        assert_eq!(answer, wanted);
    }
}

#[test]
fn a_library_that_is_no_driver_lacks_a_function() {
    // Any library works as a stand-in: the C library under the driver's name.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.split_whitespace().find(|word| word.contains("/libc.so") || word.contains("/libc-"));
    let Some(library) = library else {
        eprintln!("SKIPPED: this test is linked statically");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PathBuf::from(library), folder.path().join("libcuda.so")).unwrap();
    let answer = probed(&[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())]);
    assert_eq!(answer, "engine gamt needs GPU: the CUDA driver lacks cuInit; CUDA 12.0 or later is needed");
}

#[test]
fn what_a_driver_lacks_is_told() {
    for (switch, value, expected) in [
        ("MOCKCUDA_NO_DEVICE", "1", "engine gamt needs GPU: the driver sees no device"),
        (
            "MOCKCUDA_DRIVER_VERSION",
            "11080",
            "engine gamt needs GPU: the driver is for CUDA 11.8, CUDA 12.0 or later is needed",
        ),
        // The call at index 1 is cuInit.
        (
            "MOCKCUDA_FAIL_AT",
            "1:46",
            "engine gamt needs GPU: the device is in use by a process with exclusive access, or was lost (cuInit: 46)",
        ),
        (
            "MOCKCUDA_FAIL_AT",
            "1:802",
            "engine gamt needs GPU: the system is not ready: the driver or NVIDIA's fabric manager has not started (cuInit: 802)",
        ),
        (
            "MOCKCUDA_FAIL_AT",
            "1:803",
            "engine gamt needs GPU: the driver's library and its kernel module are of different versions (cuInit: 803)",
        ),
        (
            "MOCKCUDA_FAIL_AT",
            "1:804",
            "engine gamt needs GPU: the device does not support the driver's library of forward compatibility (cuInit: 804)",
        ),
        ("MOCKCUDA_DRIVER_VERSION", "12040", "CUDA 12.4 with 1 devices, mockcuda interpreter"),
    ] {
        let answer = probed(&[("PROBE_DRIVER", "mock"), (switch, value)]);
        if answer == "skipped" {
            eprintln!("SKIPPED: libmockcuda.so is not next to the test");
            return;
        }
        assert_eq!(answer, expected);
    }
}

#[test]
fn a_driver_that_fails_from_the_start_is_no_panic() {
    for index in 0..12 {
        for code in [2, 3, 100, 201, 803, 999] {
            in_a_child("failing_child", &[("MOCKCUDA_FAIL_AT", &format!("{index}:{code}"))]);
        }
    }
}

#[test]
#[ignore = "run by another test, in a child process"]
fn failing_child() {
    if testing::driver().is_none() {
        return;
    }
    match Device::open(0) {
        Ok(device) => println!("{}", device.facts().name),
        Err(error) => println!("{error} {error:?}"),
    }
}

#[test]
#[ignore = "run by another test, in a child process"]
fn connections_child() {
    prepare_environment();
    println!("{MARK}{}", std::env::var(CONNECTIONS).unwrap_or_else(|_| "unset".to_owned()));
}

#[test]
fn the_environment_is_not_changed_beside_other_threads_or_against_the_user() {
    // A test runs in a second thread.
    assert_eq!(result_line("connections_child", &[(CONNECTIONS, "5")]), "5", "what the user says counts");
    assert_eq!(result_line("connections_child", &[]), "unset");
}
