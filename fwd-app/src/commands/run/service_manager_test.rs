//! A run as seen by a service manager's socket: readiness, status, and watchdog messages until an lcore hangs.

use super::panics::arguments;
use super::*;
use crate::forwarder::test_forwarder::{bundled, endless_updates, faulty_forwarder, forwarder};
use crate::topology::Handle;
use fib::faulty::Faults;
use rusty_fork::rusty_fork_test;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Watchdog time. The tests do not depend on it, since they wait for each message.
const WATCHDOG: Duration = Duration::from_millis(400);

struct HeardDatagrams {
    socket: UnixDatagram,
    folder: File,
}

impl HeardDatagrams {
    fn new(folder: &TempDir) -> Self {
        let folder = File::open(folder.path()).unwrap();
        let socket = UnixDatagram::bind(path_in(&folder)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { socket, folder }
    }

    fn manager(&self) -> ServiceManager {
        ServiceManager::new(path_in(&self.folder).as_ref(), Some(WATCHDOG)).unwrap()
    }

    fn until(&self, start: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let count = self.socket.recv(&mut bytes).unwrap();
            let text = std::str::from_utf8(&bytes[..count]).unwrap();
            if let Some(line) = text.lines().find(|line| line.starts_with(start)) {
                return line.to_owned();
            }
        }
    }

    fn has_more(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let messages = std::iter::from_fn(|| self.socket.recv(&mut [0; 4096]).ok()).count();
        self.socket.set_nonblocking(false).unwrap();
        messages > 0
    }
}

/// A short socket path in `folder`: socket paths are limited to 107 bytes, a temporary folder's may be longer.
fn path_in(folder: &File) -> String {
    format!("/proc/self/fd/{}/notify", folder.as_raw_fd())
}

#[test]
fn a_reload_is_told_when_it_begins_and_when_it_ends() {
    let scratch = tempfile::tempdir().unwrap();
    let heard = HeardDatagrams::new(&scratch);
    let signals = Signals::default();
    let handle = Handle::default();
    let supervised = Supervised::start(Some(heard.manager()), (&handle, None), &signals).unwrap();
    let Supervised { main, mut control, reporter } = supervised;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beating = scope.spawn(|| {
            let forwarder = forwarder();
            while !is_over.load(Ordering::Relaxed) {
                main.beat();
                control.report(&forwarder);
                std::thread::sleep(WATCHDOG / 100);
            }
            handle.stop_rx();
            drop(control);
        });
        heard.until("READY=1");
        let status = heard.until("STATUS=forwarding");
        signals.set_reloading(true);
        heard.until("RELOADING=1");
        signals.set_reloading(false);
        heard.until("READY=1");
        heard.until("WATCHDOG=1");
        is_over.store(true, Ordering::Relaxed);
        beating.join().unwrap();
        assert!(status.ends_with("engine oracle, 0 of 0 ports up"), "{status}");
    });
    reporter.unwrap().join().unwrap();
    heard.until("STOPPING=1");
}

/// Runs with a route that is added and removed in a loop. `listen` reads the messages, and may make the engine fail.
fn run_with_updates(listen: impl FnOnce(&HeardDatagrams, &Faults) + Send) -> Option<anyhow::Result<()>> {
    let eal = dpdk_ffi::testing::eal()?;
    let scratch = tempfile::tempdir().unwrap();
    let heard = HeardDatagrams::new(&scratch);
    eal.vdev_create("net_null0", "no-rx=1").unwrap();
    let (forwarder, faults) = faulty_forwarder();
    let args = arguments(&["--config", "(0,0,1)"]);
    let signals = Signals::default();
    let control =
        Control { manager: Some(heard.manager()), updates: Some(endless_updates()), ..Control::default() };
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                heard.until("WATCHDOG=1");
                listen(&heard, &faults);
            }));
            faults.hang_in_apply.store(false, Ordering::SeqCst);
            signals.stop();
            result
        });
        let (_, served) = forward(&args, eal, forwarder, &signals, control).unwrap();
        listener.join().unwrap().unwrap();
        heard.until("STOPPING=1");
        Some(served)
    })
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 60_000)]

    #[test]
    fn a_service_manager_hears_of_a_start_of_routes_and_of_an_lcore_that_hangs() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let scratch = tempfile::tempdir().unwrap();
        let heard = HeardDatagrams::new(&scratch);
        let rx = bundled("mix.pcap");
        // A file per TX queue.
        let [one, two] = ["one", "two"].map(|queue| scratch.path().join(queue));
        let sent = format!("tx_pcap={},tx_pcap={}", one.display(), two.display());
        let files = format!("rx_pcap={},infinite_rx=1,{sent}", rx.display());
        eal.vdev_create("net_pcap0", &files).unwrap();
        // An idle lcore serves the other port, lcore 3 none.
        eal.vdev_create("net_null1", "no-rx=1").unwrap();
        let (forwarder, faults) = faulty_forwarder();
        faults.reader.store(0, Ordering::SeqCst);
        let args = arguments(&["--config", "(0,0,1),(1,0,2)"]);
        let signals = Signals::default();
        let control = Control { manager: Some(heard.manager()), ..Control::default() };
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    heard.until("READY=1");
                    let status = heard.until("STATUS=");
                    assert!(status.contains("forwarding; "), "{status}");
                    assert!(status.ends_with("engine fake, 2 of 2 ports up"), "{status}");
                    heard.until("WATCHDOG=1");
                    heard.until("WATCHDOG=1");
                    faults.hang.store(true, Ordering::SeqCst);
                    assert_eq!(heard.until("STATUS=stuck"), "STATUS=stuck: lcore 1");
                    std::thread::sleep(WATCHDOG);
                    assert!(!heard.has_more(), "an lcore hangs, and the watchdog is fed");
                    faults.hang.store(false, Ordering::SeqCst);
                    heard.until("WATCHDOG=1");
                    heard.until("STATUS=forwarding");
                }));
                faults.hang.store(false, Ordering::SeqCst);
                signals.stop();
                result
            });
            let (summary, served) = forward(&args, eal, forwarder, &signals, control).unwrap();
            listener.join().unwrap().unwrap();
            assert!(served.is_ok() && summary.packets.is_conserved());
            heard.until("STOPPING=1");
        });
    }

    #[test]
    fn a_service_manager_hears_of_a_panic_of_the_control_thread() {
        let served = run_with_updates(|heard, faults| {
            faults.die_in_apply.store(true, Ordering::SeqCst);
            let status = heard.until("STATUS=the control");
            assert!(status.contains("the control thread has panicked"), "{status}");
            heard.has_more();
            std::thread::sleep(WATCHDOG);
            assert!(!heard.has_more(), "it has panicked, and the watchdog is fed, or an orderly stop reported");
        });
        if let Some(served) = served {
            let why = served.unwrap_err().to_string();
            assert!(why.starts_with("the control thread panicked: an invariant"), "{why}");
        }
    }

    #[test]
    fn a_service_manager_hears_in_which_step_the_control_thread_is_stuck() {
        let served = run_with_updates(|heard, faults| {
            faults.hang_in_apply.store(true, Ordering::SeqCst);
            assert_eq!(heard.until("STATUS=stuck"), "STATUS=stuck: the control thread (updates)");
            faults.hang_in_apply.store(false, Ordering::SeqCst);
            heard.until("WATCHDOG=1");
        });
        assert!(served.is_none_or(|served| served.is_ok()));
    }
}
