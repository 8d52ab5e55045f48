//! DPDK's log goes to the program, from EAL's first line on. One test, because a process has one EAL.

use dpdk_ffi::{DpdkLogLevel, Eal, listen_to_log};
use std::sync::Mutex;

static SAID: Mutex<Vec<(DpdkLogLevel, String)>> = Mutex::new(Vec::new());

#[test]
fn what_dpdk_logs_comes_line_by_line_with_its_level() {
    listen_to_log(|level, line| SAID.lock().unwrap().push((level, line.to_owned())), || ()).unwrap();
    listen_to_log(|_, line| panic!("a second listener has no effect: {line}"), || ()).unwrap();
    let prefix = format!("fwd-log-{}", std::process::id());
    let args =
        ["--no-huge", "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix", &prefix];
    let eal = match Eal::init(&args) {
        Ok(eal) => eal,
        Err(why) => return dpdk_ffi::testing::skip("dpdk", format_args!("EAL does not start here: {why}")),
    };
    let said = || std::mem::take(&mut *SAID.lock().unwrap());
    let first = said();
    let is_first = |(level, line): &(DpdkLogLevel, String)| {
        *level == DpdkLogLevel::Info && line.starts_with("EAL: Detected CPU lcores")
    };
    assert!(first.iter().any(is_first), "{first:?}");
    // On another thread, as for a driver's log.
    std::thread::scope(|scope| {
        scope.spawn(|| eal.vdev_create("net_nonsense0", "").unwrap_err());
    });
    let errors = said();
    let is_error = |(level, line): &(DpdkLogLevel, String)| {
        *level == DpdkLogLevel::Error && line.contains("net_nonsense0")
    };
    assert!(errors.iter().any(is_error), "{errors:?}");
    assert!(first.iter().chain(&errors).all(|(_, line)| !line.is_empty() && !line.contains('\n')));
    drop(eal);
}
