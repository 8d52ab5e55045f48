//! Links are read from the device, with and without its interrupts.

use std::process::Command;

use dpdk_ffi::Port;
use dpdk_ffi::testing::{self, NoInterrupts};

/// `net_tap` claims a link-change interrupt, as most NICs do. Here it does not arrive, as on NICs without MSI-X.
#[test]
fn a_link_is_noticed_without_an_interrupt() {
    let Some(eal) = testing::eal() else { return };
    let interface = format!("fwd{}", std::process::id());
    if let Err(why) = eal.vdev_create("net_tap0", &format!("iface={interface}")) {
        eprintln!("SKIPPED: no net_tap here: {why}");
        return;
    }
    let port = Port::by_name(eal, "net_tap0").unwrap();
    let _pool = testing::start(eal, &port);
    let set = |state: &str| {
        let ip = Command::new("ip").args(["link", "set", "dev", &interface, state]).status();
        assert!(ip.unwrap().success());
    };
    set("up");
    let silence = NoInterrupts::new(eal).unwrap();
    assert!(port.link().unwrap().up);
    set("down");
    assert!(!port.link().unwrap().up, "the interface is down");
    set("up");
    assert!(port.link().unwrap().up, "the interface is up again");
    drop(silence);
    port.close().unwrap();
}
