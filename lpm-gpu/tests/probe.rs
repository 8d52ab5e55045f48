//! Each way of lacking a GPU has its own error, and none panics. A process has one driver, so each case runs in its own
//! process: the test runs itself again with another environment.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use fib::EngineError;
use lpm_gpu::cu::{Device, probe, testing};
use std::path::PathBuf;
use std::process::Command;

/// What the child prints before the result.
const MARK: &str = "probe says: ";

/// The child: prints the results of [`probe`] and [`Device::open`] with the driver that `PROBE_DRIVER` names.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
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

/// Runs [`child`] with `environment`; returns its result line.
fn in_a_child(environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads", "1"]);
    command
        .env_remove("LPM_GPU")
        .env_remove("LD_PRELOAD")
        .env_remove("FWD_REQUIRE")
        .envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines()
        .find_map(|line| line.split_once(MARK))
        .unwrap_or_else(|| panic!("no answer in: {text}"))
        .1
        .to_owned()
}

/// As [`in_a_child`], on the mock; `None` when there is none.
fn on_the_mock(environment: &[(&str, &str)]) -> Option<String> {
    let mut all = vec![("PROBE_DRIVER", "mock")];
    all.extend_from_slice(environment);
    let answer = in_a_child(&all);
    if answer == "skipped" {
        eprintln!("SKIPPED: libmockcuda.so is not beside the test");
        return None;
    }
    Some(answer)
}

#[test]
fn without_a_driver_the_names_that_were_tried_are_told() {
    let answer = in_a_child(&[]);
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
    let answer = in_a_child(&[("LD_LIBRARY_PATH", folder.path().to_str().unwrap())]);
    assert_eq!(answer, "engine gamt needs GPU: the CUDA driver lacks cuInit; CUDA 12.0 or later is needed");
}

#[test]
fn a_driver_without_a_device() {
    if let Some(answer) = on_the_mock(&[("MOCKCUDA_NO_DEVICE", "1")]) {
        assert_eq!(answer, "engine gamt needs GPU: the driver sees no device");
    }
}

#[test]
fn a_driver_that_is_too_old() {
    if let Some(answer) = on_the_mock(&[("MOCKCUDA_DRIVER_VERSION", "11080")]) {
        assert_eq!(
            answer,
            "engine gamt needs GPU: the driver is for CUDA 11.8, CUDA 12.0 or later is needed"
        );
    }
}

#[test]
fn a_device_that_is_there() {
    if let Some(answer) = on_the_mock(&[("MOCKCUDA_DRIVER_VERSION", "12040")]) {
        assert!(answer.starts_with("CUDA 12.4 with 1 devices"), "{answer}");
    }
}

#[test]
fn a_driver_that_fails_from_the_start_is_no_panic() {
    for index in 0..12 {
        for code in [2, 3, 100, 201, 803, 999] {
            let fault = format!("{index}:{code}");
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "failing_child", "--ignored", "--nocapture", "--test-threads", "1"]);
            command.env_remove("LPM_GPU").env_remove("LD_PRELOAD").env_remove("FWD_REQUIRE");
            let output = command.env("MOCKCUDA_FAIL_AT", &fault).output().unwrap();
            assert!(output.status.success(), "{fault}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// The child of the test above: any result is accepted.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn failing_child() {
    if testing::driver().is_none() {
        return;
    }
    match Device::open(0) {
        Ok(device) => println!("{}", device.facts().name),
        Err(error) => println!("{error} {error:?}"),
    }
}
