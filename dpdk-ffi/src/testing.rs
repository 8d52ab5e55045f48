//! One EAL per test process, without huge pages, PCI or root. DPDK allows one EAL a process, so all tests of a binary share it.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::burst::Burst;
use crate::device::control;
use crate::eal::Eal;
use crate::error::DpdkError;
use crate::ids::QueueId;
use crate::mbuf::Mbuf;
use crate::mempool::{Mempool, MempoolConfig};
use crate::port::Port;
use crate::port_config::PortConfig;
use crate::port_life::PortEvents;
use crate::ready::ReadyPackets;
use crate::sys;

const PREFIX: &str = "fwd-test-";

/// Removes the runtime folders of ended test processes, which EAL leaves behind.
fn sweep() {
    for entry in std::fs::read_dir("/var/run/dpdk").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if process.and_then(|process| process.parse::<u32>().ok()).is_some_and(ended) {
            // Another test process may sweep at the same time, or the folder belong to another user: both are fine.
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

fn ended(process: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{process}")).exists()
}

/// The process's EAL: 256 MB without huge pages, no PCI, four lcores. `None`, after printing `SKIPPED` with the reason, if EAL does not
/// start on this machine; a panic then if the environment's `FWD_REQUIRE` (a comma list) names `dpdk`.
#[must_use]
pub fn eal() -> Option<&'static Eal> {
    eal_with(&["--no-telemetry"])
}

/// [`eal`] with the telemetry socket and further EAL arguments. Only the first call in a process has an effect.
#[must_use]
pub fn eal_with(extra: &[&str]) -> Option<&'static Eal> {
    static EAL: OnceLock<Result<Eal, String>> = OnceLock::new();
    let eal = EAL.get_or_init(|| {
        sweep();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let lcores = format!("(0-3)@(0-{})", cpus - 1);
        let prefix = format!("{PREFIX}{}", std::process::id());
        let mut args = vec!["--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--log-level=error"];
        args.extend(["--lcores", &lcores, "--file-prefix", &prefix]);
        args.extend(extra);
        Eal::init(&args).map_err(|why| why.to_string())
    });
    match eal {
        Ok(eal) => Some(eal),
        Err(why) => {
            skip("dpdk", format_args!("EAL does not start here: {why}"));
            None
        }
    }
}

/// Prints that a test is skipped, and why. Panics if the environment's `FWD_REQUIRE` (a comma list) names `missing`.
pub fn skip(missing: &str, why: impl std::fmt::Display) {
    let required = std::env::var("FWD_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word.trim() == missing), "FWD_REQUIRE names {missing}: {why}");
    eprintln!("SKIPPED: {why}");
}

/// A pool of `mbufs` packets without caches, whose count of packets in use is always exact.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn pool(eal: &Eal, name: &str, mbufs: u32) -> Mempool {
    let config = MempoolConfig { mbufs, cache_mbufs: 0, ..MempoolConfig::default() };
    Mempool::new(eal, name, &config).unwrap()
}

/// Starts the port, or panics; returns its pool of 2,047 packets.
#[must_use]
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn start(eal: &Eal, port: &Port) -> Mempool {
    let pool = pool(eal, port.name(), 2047);
    port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
    port.start().unwrap();
    pool
}

/// Chains the segments of `tail` after `head`, even if `head` has room left, like a driver that splits headers from payload.
pub fn chain(head: &mut Mbuf, tail: Mbuf) {
    head.chain(tail);
}

/// Blocks control calls of other threads while the returned guard lives, like a busy driver.
pub fn busy_driver() -> impl Drop {
    control()
}

/// Reports `events` of a port, as DPDK's callbacks do.
pub fn report(port: &Port, events: PortEvents) {
    let event = |is_so, event: u8| if is_so { event } else { 0 };
    let events =
        event(events.is_reset, sys::DFFI_PORT_RESET) | event(events.is_removed, sys::DFFI_PORT_REMOVED);
    // SAFETY: takes numbers, which the call checks.
    unsafe { sys::dffi_report_event(port.id().0, events) };
}

/// Adds the device of a removed port again with its previous arguments, as [`Port::reopen`] does once it is bound to a driver for DPDK.
/// Fails if the bus refuses it, but not if its driver does.
#[expect(clippy::unwrap_used, reason = "a test fails loudly")]
pub fn add_device(port: &Port) -> Result<(), DpdkError> {
    let _control = control();
    port.inner.device.as_ref().unwrap().add_to_bus()
}

/// [`Port::receive_ready`] with a driver that rounds the room down to `multiple`, a power of two, as vector functions do.
pub fn receive_rounding_down<F: AsRef<[u8]>>(
    port: &Port,
    queue: QueueId,
    packets: Burst,
    frames: &[F],
    (count, multiple): (u64, u16),
) -> Result<ReadyPackets, DpdkError> {
    port.receive_ready_by(queue, packets, frames, (count, multiple))
}

/// Blocks EAL's interrupt thread until it is dropped: no interrupt of a device arrives.
#[derive(Debug)]
pub struct NoInterrupts {
    _until_dropped: Sender<()>,
}

impl NoInterrupts {
    /// Blocks the thread; [`DpdkError::Call`] if EAL refuses the alarm that occupies it.
    pub fn new(_eal: &Eal) -> Result<Self, DpdkError> {
        let ((held, is_held), (until_dropped, release)) = (channel::<()>(), channel::<()>());
        let gate = Box::into_raw(Box::new((held, release)));
        // SAFETY: the callback gets the box back, and is called once.
        let answer = unsafe { sys::rte_eal_alarm_set(1, Some(hold), gate.cast()) };
        if answer != 0 {
            // SAFETY: the box was not passed on.
            drop(unsafe { Box::from_raw(gate) });
            return Err(DpdkError::call("rte_eal_alarm_set", answer));
        }
        // Fails only if the thread is gone, and with it every interrupt.
        let _ = is_held.recv();
        Ok(Self { _until_dropped: until_dropped })
    }
}

/// # Safety
/// `gate` must be a box without another owner.
unsafe extern "C" fn hold(gate: *mut c_void) {
    // SAFETY: by the caller's contract.
    let gate = unsafe { Box::from_raw(gate.cast::<(Sender<()>, Receiver<()>)>()) };
    // Both fail if the test has ended.
    let _ = gate.0.send(());
    let _ = gate.1.recv();
}
