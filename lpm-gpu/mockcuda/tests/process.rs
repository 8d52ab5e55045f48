//! The library in a process: its SONAME, and the switches in its environment.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{MockSession, check};
use mockcuda::api::{device, memory};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

fn library() -> std::path::PathBuf {
    std::env::current_exe().unwrap().with_file_name("libmockcuda.so")
}

#[test]
fn opened_by_its_path_it_is_libcuda() {
    let path = CString::new(library().as_os_str().as_bytes()).unwrap();
    // SAFETY: strings that end in zero; the library's initialisers only read the environment. A symbol is looked up, not called.
    unsafe {
        assert!(
            libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD).is_null(),
            "not before"
        );
        let opened = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        assert!(!opened.is_null(), "{} cannot be opened", library().display());
        let found = libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW);
        assert_eq!(found, opened);
        for name in [c"cuInit", c"cuLaunchKernel", c"mockcuda_calls", c"cuGetErrorName"] {
            assert!(!libc::dlsym(found, name.as_ptr()).is_null(), "{name:?}");
        }
        assert!(libc::dlsym(found, c"cuMemcpy".as_ptr()).is_null(), "functions outside the mock are missing");
    }
}

#[test]
fn what_is_served_is_what_the_engines_call() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let names = |text: &str, before: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(before));
        let names = lines.filter(|line| line.starts_with("cu")).filter_map(|line| line.split_once('('));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let called = read("../src/cu/driver.rs");
    let mut called = names(called.split_once("\nfunctions! {").unwrap().1, "");
    // Tests call it by name to reset the device after a failed test.
    called.insert("cuDevicePrimaryCtxReset_v2".to_owned());
    let files = ["device", "memory", "module", "streams"];
    let served: BTreeSet<String> =
        files.into_iter().flat_map(|file| names(&read(&format!("src/api/{file}.rs")), "fn ")).collect();
    assert_eq!(served, called);
}

fn child(test: &str, name: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("MOCK_CHILD", "1")
        .env(name, value)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text
}

/// Child process: prints the settings in force with a switch set.
#[test]
fn child_reports() {
    if std::env::var_os("MOCK_CHILD").is_none() {
        return;
    }
    let (mut version, mut address) = (0, 0);
    // SAFETY: out pointers to locals.
    let (init, alloc) = unsafe {
        check(device::cuDriverGetVersion(&raw mut version)).unwrap();
        let init = device::cuInit(0);
        let mut context = 0;
        device::cuDevicePrimaryCtxRetain(&raw mut context, 0);
        device::cuCtxSetCurrent(context);
        (init, memory::cuMemAlloc_v2(&raw mut address, 1 << 20))
    };
    let logged = (0..mockcuda::control::mockcuda_calls())
        .filter(|call| !mockcuda::control::mockcuda_call_name(*call).is_null())
        .count();
    println!("init {init} version {version} alloc {alloc} logged {logged}");
}

#[test]
fn switches_are_read_from_the_environment() {
    for (name, value, expected) in [
        ("MOCKCUDA_SEED", "7", "init 0 version 12040 alloc 0"),
        ("MOCKCUDA_DEVICES", "0", "init 100 version 12040 alloc 3"),
        ("MOCKCUDA_NO_DEVICE", "1", "init 100 version 12040 alloc 3"),
        ("MOCKCUDA_DRIVER_VERSION", "11040", "init 0 version 11040 alloc 0"),
        ("MOCKCUDA_MEMORY_BYTES", "1000000", "init 0 version 12040 alloc 2"),
        ("MOCKCUDA_FAIL_AT", "1", "init 999 version 12040 alloc 3"),
        ("MOCKCUDA_FAIL_AT", "4:700", "init 0 version 12040 alloc 700"),
        ("MOCKCUDA_FAIL_AT", "1:46:9", "init 46 version 12040 alloc 46"),
        ("MOCKCUDA_FAIL_CALL", "cuMemAlloc_v2:0:2", "init 0 version 12040 alloc 2"),
        ("MOCKCUDA_LOG", "5", "alloc 0 logged 5"),
        ("MOCKCUDA_LOG", "2", "alloc 0 logged 2"),
        ("MOCKCUDA_LOG", "0", "alloc 0 logged 0"),
        ("MOCKCUDA_REPORT", "1", "mockcuda: 5 calls, 0 operations"),
    ] {
        let text = child("child_reports", name, value);
        assert!(text.contains(expected), "{name}={value}: {text}");
    }
}

/// Child process: two words, before and after the next operation of a stream.
#[test]
fn child_plants() {
    if std::env::var_os("MOCK_CHILD").is_none() {
        return;
    }
    let driver = MockSession::open();
    let address = driver.device(&[5_u32, 6, 6]);
    let first = driver.download::<u32>(address, 3).unwrap();
    println!("words {first:?} then {:?}", driver.download::<u32>(address, 3).unwrap());
}

#[test]
fn a_word_in_device_memory_can_be_replaced() {
    let text = child("child_plants", "MOCKCUDA_PLANT", "2:6:9");
    assert!(text.contains("words [5, 6, 6] then [5, 9, 9]"), "{text}");
}

/// Child process: a wait for a stalled stream ends at the configured limit.
#[test]
fn child_waits() {
    if std::env::var_os("MOCK_CHILD").is_none() {
        return;
    }
    let driver = MockSession::open();
    let address = driver.device(&[1_u32]);
    mockcuda::control::mockcuda_set_stalled(1);
    println!("waited {:?}", driver.download::<u32>(address, 1));
}

#[test]
fn a_wait_has_an_end() {
    let text = child("child_waits", "MOCKCUDA_WAIT_MS", "50");
    assert!(text.contains("waited Err(702)") && text.contains("The driver would wait on"), "{text}");
}
