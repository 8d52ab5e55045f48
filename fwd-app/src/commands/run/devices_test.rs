//! `run` while a device is removed and returned, or reset, under traffic.

use super::panics::arguments;
use super::*;
use crate::console::client;
use crate::console::server::Limits;
use crate::console::server::wire::Ask;
use crate::forwarder::test_forwarder::{bundled, endless_updates, faulty_forwarder, forwarder};
use dpdk_ffi::testing::{busy_driver, report};
use dpdk_ffi::{PortEvents, PortStats};
use fib::faulty::{Call, Faults};
use rusty_fork::rusty_fork_test;
use std::sync::atomic::Ordering;

/// The port to remove; it only sends.
const NAME: &str = "net_null1";
/// Differs from the device's MAC.
const OTHER_MAC: [u8; 6] = [2, 9, 9, 9, 9, 9];

/// Spins until `what`; the test runner's timeout ends a failing test.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

fn until_it_sends(port: &Port) {
    let sent = || port.stats().map_or(0, |PortStats { opackets, .. }| opackets);
    let before = sent();
    until(|| sent() > before + 1000);
}

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
    // The device has been reconfigured: it has its first MAC again.
    port.set_mac_addr(OTHER_MAC).unwrap();
    report(port, PortEvents { is_removed: false, is_reset: true });
    until(|| port.mac_addr().is_ok_and(|now| now == mac) && port.is_started());
    until_it_sends(port);
}

/// Runs over a port with endless traffic and a port that `trouble` disturbs.
fn run_with(
    options: &[&str],
    forwarder: Forwarder,
    control: Control,
    trouble: impl FnOnce(&Eal, &Port) + Send,
) {
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
        let ended = forward(&args, eal, forwarder, &signals, control).unwrap();
        troublemaker.join().unwrap().unwrap();
        ended
    });
    let packets = &summary.packets;
    assert!(packets.is_conserved() && packets.held == 0, "{packets:?}");
    summary.judge().unwrap();
}

/// Runs with an endlessly changing route, whose updates `trouble` counts in the engine.
fn run_with_updates(trouble: impl FnOnce(&Eal, &Port, &Faults) + Send) {
    let (forwarder, faults) = faulty_forwarder();
    faults.reader.store(0, Ordering::SeqCst);
    let control = Control { updates: Some(endless_updates()), ..Control::default() };
    run_with(&["--config", "(0,0,1),(1,0,1)"], forwarder, control, |eal, port| {
        until(|| port.is_started());
        until_it_sends(port);
        trouble(eal, port, &faults);
        until_it_sends(port);
    });
}

fn until_routes_change(faults: &Faults) {
    let before = faults.calls(Call::Apply);
    until(|| faults.calls(Call::Apply) > before + 500);
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 60_000)]

    #[test]
    fn a_device_that_is_removed_or_reset_is_used_again() {
        run_with(&["--config", "(0,0,1),(1,0,1)"], forwarder(), Control::default(), trouble);
    }

    #[test]
    fn a_device_that_is_removed_or_reset_is_used_again_in_a_pipeline() {
        let options = ["--config", "(0,0,1)", "--topology", "pipeline"];
        run_with(&options, forwarder(), Control::default(), trouble);
    }

    #[test]
    fn routes_go_on_while_an_lcore_keeps_the_queues_of_a_removed_device() {
        run_with_updates(|eal, port, faults| {
            faults.hang.store(true, Ordering::SeqCst);
            report(port, PortEvents { is_removed: true, is_reset: false });
            until_routes_change(faults);
            assert!(port.is_open() && eal.ports().len() == 2, "lcore 1 may poll it");
            faults.hang.store(false, Ordering::SeqCst);
            until(|| eal.ports().len() == 1);
            eal.vdev_create(NAME, "").unwrap();
            until(|| port.is_started());
        });
    }

    #[test]
    fn clients_are_answered_while_a_driver_is_at_work() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("ctl");
        let socket = Some(Server::start(&path, Limits::default()).unwrap());
        let ask = |line: &str| {
            let ask = Ask { line: line.to_owned(), json: false };
            client::ask(&path, &ask, None, Duration::from_secs(5)).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        let control = Control { socket, ..Control::default() };
        run_with(&["--config", "(0,0,1),(1,0,1)"], forwarder(), control, |_, port| {
            until(|| port.is_started());
            until_it_sends(port);
            let busy = busy_driver();
            report(port, PortEvents { is_removed: false, is_reset: true });
            until(|| ask("show port info net_null1").text.is_some_and(|text| text.contains("down, speed")));
            for line in ["show port info all", "show port stats all", "show stats", "show rates"] {
                assert!(ask(line).ok, "{line}");
            }
            for line in ["show port xstats", "set link 0 up", "set promisc all on", "clear port stats"] {
                let error = ask(line).error.unwrap_or_else(|| panic!("{line} is done"));
                assert!(error.contains("a device is being reset or brought back; try again"), "{line}: {error}");
            }
            assert!(matches!(port.set_mtu(1400), Err(DpdkError::Busy)));
            drop(busy);
            until(|| ask("show port xstats").ok);
            until_it_sends(port);
        });
    }

    #[test]
    fn routes_go_on_while_a_driver_is_at_work() {
        run_with_updates(|_, port, faults| {
            port.set_mac_addr(OTHER_MAC).unwrap();
            let busy = busy_driver();
            report(port, PortEvents { is_removed: false, is_reset: true });
            until_routes_change(faults);
            drop(busy);
            until(|| port.mac_addr().is_ok_and(|mac| mac != OTHER_MAC) && port.is_started());
        });
    }
}
