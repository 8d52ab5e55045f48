//! `run` when a device is removed and comes back, and when one is reset, while packets flow.

use super::panics::arguments;
use super::*;
use crate::forwarder::test_forwarder::{bundled, forwarder};
use dpdk_ffi::testing::report;
use dpdk_ffi::{PortEvents, PortStats};
use rusty_fork::rusty_fork_test;

/// The port that is removed, and which only sends.
const NAME: &str = "net_null1";
/// Another MAC than the device has.
const OTHER_MAC: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Waits for `what`; a test that waits in vain is killed.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

/// Waits until the port sends, from now on.
fn until_it_sends(port: &Port) {
    let sent = || port.stats().map_or(0, |PortStats { opackets, .. }| opackets);
    let before = sent();
    until(|| sent() > before + 1000);
}

/// Removes the device of the port and gives it back, then resets it.
fn trouble(eal: &Eal, port: &Port) {
    until(|| port.is_started());
    let mac = port.mac_addr().unwrap();
    until_it_sends(port);
    report(port, PortEvents { is_removed: true, is_reset: false });
    until(|| eal.ports().len() == 1);
    assert!(!port.is_open());
    eal.vdev_create(NAME, "").unwrap();
    until(|| port.is_started());
    until_it_sends(port);
    // The device is configured anew, as the MAC shows.
    port.set_mac_addr(OTHER_MAC).unwrap();
    report(port, PortEvents { is_removed: false, is_reset: true });
    until(|| port.mac_addr().is_ok_and(|now| now == mac) && port.is_started());
    until_it_sends(port);
}

/// Runs over a port that receives without end and one that has trouble.
fn run_through_trouble(options: &[&str]) {
    let Some(eal) = dpdk_ffi::testing::eal() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let (rx, tx) = (bundled("mix.pcap"), scratch.path().join("out.pcap"));
    let arguments_of_pcap = format!("rx_pcap={},infinite_rx=1,tx_pcap={}", rx.display(), tx.display());
    eal.vdev_create("net_pcap0", &arguments_of_pcap).unwrap();
    eal.vdev_create(NAME, "no-rx=1").unwrap();
    let port = Port::by_name(eal, NAME).unwrap();
    let (args, signals) = (arguments(options), Signals::default());
    let (summary, _) = std::thread::scope(|scope| {
        let troublemaker = scope.spawn(|| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trouble(eal, &port)));
            signals.stop();
            result
        });
        let ended = forward(&args, eal, forwarder(), &signals, Control::default()).unwrap();
        troublemaker.join().unwrap().unwrap();
        ended
    });
    let packets = &summary.packets;
    assert!(packets.is_conserved() && packets.held == 0, "{packets:?}");
    summary.judge().unwrap();
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 60_000)]

    #[test]
    fn a_device_that_is_removed_or_reset_is_used_again() {
        run_through_trouble(&["--config", "(0,0,1),(1,0,1)"]);
    }

    #[test]
    fn a_device_that_is_removed_or_reset_is_used_again_in_a_pipeline() {
        run_through_trouble(&["--config", "(0,0,1)", "--topology", "pipeline"]);
    }
}
