//! Devices that are reset, removed, and come back while packets flow.
//!
//! A port whose device reports either is out of use: no next hop leads there, lcores give up its queues between two batches
//! ([`crate::topology::Handle::release_port`]), and the device is reset or let go. When it is there again, it is configured as at the
//! start, lcores get its queues, and its link counts. Packets on their way to a port without queues are dropped as `tx_full`.
//!
//! What a running device may change here is its MTU ([`Devices::set_mtu`]).
//!
//! The control thread waits neither for lcores nor for drivers. It asks lcores for queues, and looks at each turn whether they have
//! answered. A separate thread resets, opens and configures a device, which takes some drivers seconds. It is one device at a time:
//! drivers share hardware, and lcores exchange the queues of one port. Drivers report on a thread of EAL's, which sets flags alone.

use super::dpdk::Ports;
use super::{PortRecord, PortTable};
use crate::datapath::egress::Named as _;
use crate::notice;
use crate::threads::{join_within, spawn};
use crate::topology::Handle;
use anyhow::Context as _;
use dpdk_ffi::{DpdkError, Mempool, Port, PortConfig, PortEvents};
use rustix::io::Errno;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a device is tried that is not there or not ready.
const RETRY: Duration = Duration::from_secs(1);
/// After which lcores or a driver that have not answered are worth a warning.
const LATE: Duration = Duration::from_secs(1);
/// How long the end of the forwarder waits for a driver that is at work.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How a port was set up.
#[derive(Clone)]
pub(crate) struct PortSetup {
    /// Its configuration.
    pub(crate) config: PortConfig,
    /// The pool of its RX queues.
    pub(crate) pool: Mempool,
}

/// Why a port is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    /// The device was reset.
    Reset,
    /// The device was removed.
    Removed,
}

/// The device of a port.
struct PortDevice {
    index: u16,
    port: Port,
    setup: PortSetup,
    /// Whether it has to be asked for the VLANs of VRFs.
    wants_vlans: bool,
    out: Option<Out>,
    /// Whether lcores have its queues.
    has_queues: bool,
    /// Whether the removed device is still to be let go.
    needs_removal: bool,
    /// When it is worked on next, if it is out of use.
    due: Instant,
    /// Why it could not be brought back the last time, so that there is one warning.
    why: String,
}

/// What is being done for a device.
struct Work {
    /// Its place among the devices.
    at: usize,
    step: Step,
    since: Instant,
    /// Whether a warning has said that it takes long.
    is_late: bool,
}

/// A step of a device's way out of use and back.
enum Step {
    /// Lcores give up its queues.
    Releasing,
    /// The thread that brings it back; `None` after it was joined.
    Trying(Option<JoinHandle<Tried>>),
    /// Lcores take its queues.
    Giving(Started),
}

/// A device that was started again.
#[derive(Clone, Copy)]
struct Started {
    /// The MTU that it was started with, bytes; `None` is the driver's.
    mtu_bytes: Option<u16>,
    /// Whether its link was up then.
    is_up: bool,
}

/// `None` when the device was not there.
type Tried = anyhow::Result<Option<Started>>;

/// The devices of all ports.
#[derive(Default)]
pub(crate) struct Devices {
    devices: Vec<PortDevice>,
    /// For one device at a time.
    work: Option<Work>,
}

impl Devices {
    /// The devices of `ports`, which are those of `table`. Has them receive the groups and the VLANs that the router and VRFs need.
    pub(crate) fn new(ports: &Ports, table: &PortTable) -> Self {
        let device = |(record, (port, setup)): (&PortRecord, (&Port, &PortSetup))| {
            let driver = port.device_info().map(|info| info.driver).unwrap_or_default();
            let device = PortDevice {
                index: record.id.0,
                port: port.clone(),
                setup: setup.clone(),
                wants_vlans: receives_no_vlan_unasked(&driver),
                out: None,
                has_queues: true,
                needs_removal: false,
                due: Instant::now(),
                why: String::new(),
            };
            receive_groups(port, record);
            receive_vlans(port, record, device.wants_vlans);
            device
        };
        let devices = table.ports.iter().zip(ports.ports.iter().zip(&ports.setups)).map(device).collect();
        Self { devices, work: None }
    }

    /// Whether the port with this index is out of use.
    pub(crate) fn is_out(&self, index: usize) -> bool {
        self.devices.get(index).is_some_and(|device| device.out.is_some())
    }

    /// Sets the MTU, bytes, of the port with this index. A device that is out of use gets it when it is back.
    ///
    /// # Errors
    /// When its driver refuses it while the port runs, and while another device is brought back.
    pub(crate) fn set_mtu(&mut self, index: u16, mtu_bytes: u16) -> anyhow::Result<()> {
        let Some(device) = self.devices.iter_mut().find(|device| device.index == index) else {
            return Ok(());
        };
        let set = if device.out.is_none() { device.port.set_mtu(mtu_bytes) } else { Ok(()) };
        match set {
            Ok(()) => {}
            // The driver leaves the length of frames to who sends them.
            Err(DpdkError::PortCall { errno, .. }) if errno == Errno::NOTSUP.raw_os_error() => {}
            Err(error) => {
                let when = match error {
                    DpdkError::Busy => "now",
                    _ => "while it runs, which needs a restart",
                };
                let name = device.name();
                return Err(error).context(format!("{name} cannot get an MTU of {mtu_bytes} bytes {when}"));
            }
        }
        device.setup.config.mtu = Some(mtu_bytes);
        Ok(())
    }

    /// Takes ports out of use whose devices are reset or removed, and brings those back that are there again. `set_link` is given the index
    /// of a port, and whether its link is up now. Waits for nothing.
    pub(crate) fn turn(&mut self, table: &PortTable, handle: &Handle, set_link: &mut impl FnMut(u16, bool)) {
        let at_work = self.work.as_ref().map(|work| work.at);
        for (_, device) in self.devices.iter_mut().enumerate().filter(|(at, _)| Some(*at) != at_work) {
            device.take_events(set_link);
        }
        match &mut self.work {
            Some(work) => {
                if work.turn(&mut self.devices[work.at], handle, set_link) {
                    self.work = None;
                }
            }
            None => self.begin(table, handle),
        }
    }

    /// Begins to work for the device that has been due longest.
    fn begin(&mut self, table: &PortTable, handle: &Handle) {
        let now = Instant::now();
        let due = |(_, device): &(usize, &mut PortDevice)| device.out.is_some() && now >= device.due;
        let first = self.devices.iter_mut().enumerate().filter(due).min_by_key(|(_, device)| device.due);
        let Some((at, device)) = first else { return };
        let step = if device.has_queues {
            handle.release_port(device.index);
            Step::Releasing
        } else {
            let Some(record) = table.ports.get(usize::from(device.index)) else { return };
            match device.start_trial(record) {
                Ok(trial) => Step::Trying(Some(trial)),
                Err(error) => return device.cannot(&error.into()),
            }
        };
        self.work = Some(Work { at, step, since: now, is_late: false });
    }

    /// The end, when lcores have ended: releases the queues that lie between them and this thread, and waits for a driver that is at work.
    pub(crate) fn end(&mut self, handle: &Handle) {
        // Receiving has stopped, so no lcore is late.
        let _ = handle.take_queues();
        let Some(Work { at, step: Step::Trying(Some(trial)), .. }) = self.work.take() else { return };
        if join_within(trial, END_LIMIT).is_err() {
            notice::warn(format_args!("{}: its driver is still at work", self.devices[at].name()));
        }
    }
}

impl Work {
    /// Goes on. Returns whether it is done.
    fn turn(
        &mut self,
        device: &mut PortDevice,
        handle: &Handle,
        set_link: &mut impl FnMut(u16, bool),
    ) -> bool {
        let what = match &mut self.step {
            Step::Trying(Some(trial)) if !trial.is_finished() => "its driver is at work".to_owned(),
            Step::Trying(trial) => {
                let tried = trial.take().map_or(Ok(None), join);
                let Some(started) = device.give_queues(tried, handle) else { return true };
                (self.step, self.since, self.is_late) = (Step::Giving(started), Instant::now(), false);
                return false;
            }
            Step::Releasing => match handle.take_queues() {
                Ok(()) => {
                    device.has_queues = false;
                    return true;
                }
                Err(late) => format!("{late} to give up its queues; it is out of use until then"),
            },
            Step::Giving(started) => match handle.take_queues() {
                Ok(()) => {
                    device.is_back(*started, set_link);
                    return true;
                }
                Err(late) => format!("{late} to take its queues; it is out of use until then"),
            },
        };
        let ms = self.since.elapsed().as_millis();
        if self.since.elapsed() >= LATE && !std::mem::replace(&mut self.is_late, true) {
            notice::warn(format_args!("{}: {what} ({ms} ms so far)", device.name()));
        }
        false
    }
}

/// The result of a trial.
fn join(trial: JoinHandle<Tried>) -> Tried {
    trial.join().unwrap_or_else(|panic| {
        Err(anyhow::anyhow!("bringing it back has panicked: {}", dpdk_ffi::panic_message(panic.as_ref())))
    })
}

impl PortDevice {
    fn name(&self) -> String {
        self.port.title(self.index)
    }

    /// Takes the port out of use if its device is reset or removed.
    fn take_events(&mut self, set_link: &mut impl FnMut(u16, bool)) {
        if self.out == Some(Out::Removed) {
            return;
        }
        let (out, what) = match self.port.take_events() {
            PortEvents { is_removed: true, .. } => (Out::Removed, "removed"),
            PortEvents { is_reset: true, .. } => (Out::Reset, "reset"),
            PortEvents { .. } => return,
        };
        notice::warn(format_args!(
            "{}: its device is {what}; it is out of use until it is back",
            self.name()
        ));
        set_link(self.index, false);
        (self.out, self.due, self.why) = (Some(out), Instant::now(), String::new());
        self.needs_removal = out == Out::Removed;
    }

    /// Starts a thread that brings the device back if it is present and ready.
    fn start_trial(&mut self, record: &PortRecord) -> std::io::Result<JoinHandle<Tried>> {
        let trial = Trial {
            port: self.port.clone(),
            setup: self.setup.clone(),
            record: record.clone(),
            is_reset: self.out == Some(Out::Reset),
            needs_removal: self.needs_removal,
            wants_vlans: self.wants_vlans,
        };
        let name = self.name();
        let trial = spawn("device", move || trial.run(&name))?;
        self.needs_removal = false;
        Ok(trial)
    }

    /// Offers lcores the queues of a device that was started; `None` if it has to be tried again.
    fn give_queues(&mut self, tried: Tried, handle: &Handle) -> Option<Started> {
        self.due = Instant::now() + RETRY;
        let started = match tried {
            Ok(tried) => tried?,
            Err(error) => {
                self.cannot(&error);
                return None;
            }
        };
        if started.mtu_bytes != self.setup.config.mtu {
            // It was changed meanwhile.
            self.due = Instant::now();
            return None;
        }
        if let Err(error) = handle.give_port(self.index, &self.port) {
            self.cannot(&error.into());
            return None;
        }
        self.has_queues = true;
        Some(started)
    }

    /// The port is in use again.
    fn is_back(&mut self, Started { mtu_bytes, is_up }: Started, set_link: &mut impl FnMut(u16, bool)) {
        self.out = None;
        // An MTU that was set while lcores took the queues.
        if let Some(wanted) = self.setup.config.mtu.filter(|wanted| Some(*wanted) != mtu_bytes)
            && let Err(error) = self.port.set_mtu(wanted)
        {
            notice::warn(format_args!("{}: cannot get an MTU of {wanted} bytes: {error}", self.name()));
        }
        notice::post(format_args!("{}: in use again", self.name()));
        set_link(self.index, is_up);
    }

    /// Says why it cannot be brought back, unless that was said before.
    fn cannot(&mut self, error: &anyhow::Error) {
        self.due = Instant::now() + RETRY;
        let why = format!("{error:#}");
        if self.why != why {
            notice::warn(format_args!("{}: cannot be brought back yet: {why}", self.name()));
            self.why = why;
        }
    }
}

/// The task of the thread that brings a device back. No queue of the port is taken.
struct Trial {
    port: Port,
    setup: PortSetup,
    record: PortRecord,
    /// Whether the device was reset; else it was removed.
    is_reset: bool,
    /// Whether it is still to be let go.
    needs_removal: bool,
    wants_vlans: bool,
}

impl Trial {
    fn run(self, name: &str) -> Tried {
        let Self { port, setup, record, .. } = &self;
        if self.needs_removal
            && let Err(error) = port.remove()
        {
            notice::warn(format_args!("{name}: {error}"));
        }
        if self.is_reset {
            port.reset()?;
        } else if !port.reopen()? {
            return Ok(None);
        }
        port.stop()?;
        port.configure(&setup.config, std::slice::from_ref(&setup.pool))?;
        if port.mac_addr()? != record.mac.0 {
            let message = || format!("the device has another MAC than before, {}", record.mac);
            port.set_mac_addr(record.mac.0).with_context(message)?;
        }
        receive_groups(port, record);
        port.start()?;
        receive_vlans(port, record, self.wants_vlans);
        let is_up = port.link().is_ok_and(|link| link.up);
        Ok(Some(Started { mtu_bytes: setup.config.mtu, is_up }))
    }
}

/// Has an interface of the router receive all groups, since neighbour discovery is sent to groups. Virtual devices pass all frames on and
/// cannot choose.
fn receive_groups(port: &Port, record: &PortRecord) {
    if record.is_interface() {
        drop(port.receive_all_groups());
    }
}

/// Has a device receive the VLANs of VRFs that it has to be asked for.
fn receive_vlans(port: &Port, record: &PortRecord, wants_vlans: bool) {
    let vlans = record.vrfs.vlans.keys().copied();
    if wants_vlans
        && !record.vrfs.vlans.is_empty()
        && let Err(error) = port.receive_vlans(vlans)
    {
        let title = record.title(record.id.0);
        notice::warn(format_args!("{title}: it may not receive the VLANs of its VRFs: {error}"));
    }
}

/// Whether devices of this driver receive no VLAN that they were not asked for: functions of a device that others share, and virtio. On
/// any other device, asking for some VLANs would keep the others out.
fn receives_no_vlan_unasked(driver: &str) -> bool {
    driver.ends_with("_vf") || matches!(driver, "net_iavf" | "net_virtio")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk_ffi::MempoolConfig;

    #[test]
    fn an_mtu_that_is_set_while_lcores_take_queues_reaches_the_device() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
        eal.vdev_create("net_null0", "").unwrap();
        let port = Port::by_name(eal, "net_null0").unwrap();
        let config = PortConfig { mtu: Some(1500), ..PortConfig::default() };
        port.configure(&config, std::slice::from_ref(&pool)).unwrap();
        port.start().unwrap();
        let device = PortDevice {
            index: 0,
            port: port.clone(),
            setup: PortSetup { config, pool },
            wants_vlans: false,
            out: Some(Out::Reset),
            has_queues: true,
            needs_removal: false,
            due: Instant::now(),
            why: String::new(),
        };
        let started = Started { mtu_bytes: Some(1500), is_up: true };
        let work = Work { at: 0, step: Step::Giving(started), since: Instant::now(), is_late: false };
        let mut devices = Devices { devices: vec![device], work: Some(work) };
        devices.set_mtu(0, 1400).unwrap();
        assert_eq!(port.mtu().unwrap(), 1500, "it is out of use");
        let mut back = Vec::new();
        devices
            .turn(&PortTable::default(), &Handle::default(), &mut |index, is_up| back.push((index, is_up)));
        assert_eq!((back, port.mtu().unwrap()), (vec![(0, true)], 1400));
        port.close().unwrap();
    }

    #[test]
    fn vlans_are_asked_for_where_none_comes_unasked() {
        for driver in ["net_ixgbe_vf", "net_e1000_igb_vf", "net_iavf", "net_virtio"] {
            assert!(receives_no_vlan_unasked(driver), "{driver}");
        }
        for driver in ["net_ixgbe", "net_i40e", "net_ice", "net_e1000_em", "net_tap", ""] {
            assert!(!receives_no_vlan_unasked(driver), "{driver}");
        }
    }
}
