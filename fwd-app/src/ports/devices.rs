//! Resets, removals and returns of devices while packets flow.
//!
//! A port whose device is reset or removed goes out of use: no next hop uses it, and lcores release its queues between two batches
//! ([`crate::topology::Handle::release_port`]). Once available again, it is configured as at the start, and lcores get its queues. Packets
//! queued for a port without queues are dropped as `tx_full`. The control thread polls lcores; another thread resets, opens and configures
//! a device, which takes some drivers seconds. Only one device is handled at a time, since drivers share hardware and lcores exchange the
//! queues of one port. Drivers report events on an EAL thread, which only sets flags.

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

const RETRY: Duration = Duration::from_secs(1);
/// Delay of lcores or a driver that causes a warning.
const LATE: Duration = Duration::from_secs(1);
/// Timeout of a busy driver at the end of the forwarder.
const END_LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct PortSetup {
    pub(crate) config: PortConfig,
    pub(crate) pool: Mempool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Reset,
    Removed,
}

struct PortDevice {
    index: u16,
    port: Port,
    setup: PortSetup,
    /// Whether it receives a VLAN only on request.
    wants_vlans: bool,
    out: Option<Out>,
    has_queues: bool,
    /// Whether the removed device has yet to be detached.
    needs_removal: bool,
    /// Time of the next attempt while out of use.
    due: Instant,
    /// The last reported failure, to avoid repeated warnings.
    why: String,
}

struct Work {
    /// Its index in the list of devices.
    at: usize,
    step: Step,
    since: Instant,
    is_late: bool,
}

enum Step {
    Releasing,
    /// The thread that brings it back; `None` once joined.
    Trying(Option<JoinHandle<Tried>>),
    Giving(Started),
}

#[derive(Clone, Copy)]
struct Started {
    /// MTU of the restart, bytes; `None` is the driver's default.
    mtu_bytes: Option<u16>,
    is_up: bool,
}

/// `None` when the device was unavailable.
type Tried = anyhow::Result<Option<Started>>;

#[derive(Default)]
pub(crate) struct Devices {
    devices: Vec<PortDevice>,
    work: Option<Work>,
}

impl Devices {
    /// The devices of `ports`, described by `table`. Makes them receive the groups and VLANs that the router and VRFs need.
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

    pub(crate) fn is_out(&self, index: usize) -> bool {
        self.devices.get(index).is_some_and(|device| device.out.is_some())
    }

    /// Sets the MTU of a port, bytes. A device out of use gets it when it returns.
    ///
    /// # Errors
    /// The driver refuses it while the port runs, or another device is being brought back.
    pub(crate) fn set_mtu(&mut self, index: u16, mtu_bytes: u16) -> anyhow::Result<()> {
        let is_trying = matches!(&self.work, Some(Work { step: Step::Trying(_), .. }));
        let Some(device) = self.devices.iter_mut().find(|device| device.index == index) else {
            return Ok(());
        };
        let set = match device.out {
            Some(_) => Ok(()),
            // Between the calls of that thread a device would accept it, and refuse to go back during one.
            None if is_trying => Err(DpdkError::Busy),
            None => device.port.set_mtu(mtu_bytes),
        };
        match set {
            Ok(()) => {}
            // The driver leaves the frame length to the sender.
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

    /// Takes ports of reset or removed devices out of use, and brings them back, without blocking. `set_link` gets a port's index and link.
    pub(crate) fn advance(
        &mut self,
        table: &PortTable,
        handle: &Handle,
        set_link: &mut impl FnMut(u16, bool),
    ) {
        let at_work = self.work.as_ref().map(|work| work.at);
        for (_, device) in self.devices.iter_mut().enumerate().filter(|(at, _)| Some(*at) != at_work) {
            device.take_events(set_link);
        }
        match &mut self.work {
            Some(work) => {
                if work.advance(&mut self.devices[work.at], handle, set_link) {
                    self.work = None;
                }
            }
            None => self.begin(table, handle),
        }
    }

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

    /// At the end, after the lcores: takes the queues in transit, and waits for a busy driver.
    pub(crate) fn end(&mut self, handle: &Handle) {
        // Receiving has stopped, so every lcore has answered.
        let _ = handle.take_queues();
        let Some(Work { at, step: Step::Trying(Some(trial)), .. }) = self.work.take() else { return };
        if join_within(trial, END_LIMIT).is_err() {
            notice::warn(format_args!(
                "{}: the driver is still bringing the device back",
                self.devices[at].name()
            ));
        }
    }
}

impl Work {
    /// Advances the work; returns whether it is done.
    fn advance(
        &mut self,
        device: &mut PortDevice,
        handle: &Handle,
        set_link: &mut impl FnMut(u16, bool),
    ) -> bool {
        let what = match &mut self.step {
            Step::Trying(Some(trial)) if !trial.is_finished() => {
                "the driver is bringing the device back".to_owned()
            }
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
                Err(late) => {
                    format!("{late}, which must release the queues; the port is out of use until then")
                }
            },
            Step::Giving(started) => match handle.take_queues() {
                Ok(()) => {
                    device.is_back(*started, set_link);
                    return true;
                }
                Err(late) => format!("{late}, which must take the queues; the port is out of use until then"),
            },
        };
        let ms = self.since.elapsed().as_millis();
        if self.since.elapsed() >= LATE && !std::mem::replace(&mut self.is_late, true) {
            notice::warn(format_args!("{}: {what} ({ms} ms so far)", device.name()));
        }
        false
    }
}

fn join(trial: JoinHandle<Tried>) -> Tried {
    trial.join().unwrap_or_else(|panic| {
        Err(anyhow::anyhow!(
            "bringing the device back has panicked: {}",
            dpdk_ffi::panic_message(panic.as_ref())
        ))
    })
}

impl PortDevice {
    fn name(&self) -> String {
        self.port.title(self.index)
    }

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
            "{}: its device is {what}; the port is out of use until the device is back",
            self.name()
        ));
        set_link(self.index, false);
        (self.out, self.due, self.why) = (Some(out), Instant::now(), String::new());
        self.needs_removal = out == Out::Removed;
    }

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

    /// Offers the queues of a restarted device to the lcores; `None` if it must be retried.
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
            // The MTU has changed since the start of the trial.
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

    fn is_back(&mut self, Started { mtu_bytes, is_up }: Started, set_link: &mut impl FnMut(u16, bool)) {
        self.out = None;
        // The MTU may have changed while lcores took the queues.
        if let Some(wanted) = self.setup.config.mtu.filter(|wanted| Some(*wanted) != mtu_bytes)
            && let Err(error) = self.port.set_mtu(wanted)
        {
            notice::warn(format_args!("{}: cannot get an MTU of {wanted} bytes: {error}", self.name()));
        }
        notice::post(format_args!("{}: in use again", self.name()));
        set_link(self.index, is_up);
    }

    /// Logs a failure unless it repeats the last one.
    fn cannot(&mut self, error: &anyhow::Error) {
        self.due = Instant::now() + RETRY;
        let why = format!("{error:#}");
        if self.why != why {
            notice::warn(format_args!("{}: the device cannot be brought back yet: {why}", self.name()));
            self.why = why;
        }
    }
}

/// Task of the thread that brings a device back; no lcore uses a queue of the port.
struct Trial {
    port: Port,
    setup: PortSetup,
    record: PortRecord,
    /// Reset, else removed.
    is_reset: bool,
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

/// Makes a router's interface receive all groups, which neighbour discovery needs. Virtual devices pass all frames and cannot choose.
fn receive_groups(port: &Port, record: &PortRecord) {
    if record.is_interface() {
        drop(port.receive_all_groups());
    }
}

fn receive_vlans(port: &Port, record: &PortRecord, wants_vlans: bool) {
    let vlans = record.vrfs.vlans.keys().copied();
    if wants_vlans
        && !record.vrfs.vlans.is_empty()
        && let Err(error) = port.receive_vlans(vlans)
    {
        let title = record.title(record.id.0);
        notice::warn(format_args!("{title}: the port may not receive the VLANs of its VRFs: {error}"));
    }
}

/// Whether devices of this driver receive VLANs only on request (VFs, virtio). On others a request for some would filter out the rest.
fn receives_no_vlan_unasked(driver: &str) -> bool {
    driver.ends_with("_vf") || matches!(driver, "net_iavf" | "net_virtio")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk_ffi::MempoolConfig;

    /// A device at `index`; `test` makes its name unique in this process.
    fn device(eal: &dpdk_ffi::Eal, test: &str, index: u16) -> PortDevice {
        let name = format!("net_null_{test}{index}");
        let pool = Mempool::new(eal, &format!("{test}{index}"), &MempoolConfig::default()).unwrap();
        eal.vdev_create(&name, "").unwrap();
        let port = Port::by_name(eal, &name).unwrap();
        let config = PortConfig { mtu: Some(1500), ..PortConfig::default() };
        port.configure(&config, std::slice::from_ref(&pool)).unwrap();
        port.start().unwrap();
        PortDevice {
            index,
            port,
            setup: PortSetup { config, pool },
            wants_vlans: false,
            out: None,
            has_queues: true,
            needs_removal: false,
            due: Instant::now(),
            why: String::new(),
        }
    }

    fn work_on(at: usize, step: Step) -> Option<Work> {
        Some(Work { at, step, since: Instant::now(), is_late: false })
    }

    #[test]
    fn an_mtu_that_is_set_while_lcores_take_queues_reaches_the_device() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let device = PortDevice { out: Some(Out::Reset), ..device(eal, "late_mtu", 0) };
        let port = device.port.clone();
        let started = Started { mtu_bytes: Some(1500), is_up: true };
        let mut devices = Devices { devices: vec![device], work: work_on(0, Step::Giving(started)) };
        devices.set_mtu(0, 1400).unwrap();
        assert_eq!(port.mtu().unwrap(), 1500, "the port is out of use");
        let mut back = Vec::new();
        devices.advance(&PortTable::default(), &Handle::default(), &mut |index, is_up| {
            back.push((index, is_up))
        });
        assert_eq!((back, port.mtu().unwrap()), (vec![(0, true)], 1400));
        port.close().unwrap();
    }

    #[test]
    fn no_mtu_is_set_while_another_device_is_brought_back() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let device = |index| device(eal, "no_mtu", index);
        let (used, reset) = (device(0), PortDevice { out: Some(Out::Reset), ..device(1) });
        let ports = [used.port.clone(), reset.port.clone()];
        let (end, ended) = crossbeam_channel::bounded::<()>(0);
        let trial = spawn("device", move || {
            let _ = ended.recv();
            Ok(None)
        });
        let work = work_on(1, Step::Trying(Some(trial.unwrap())));
        let mut devices = Devices { devices: vec![used, reset], work };
        // Its thread is between two calls of the driver.
        let refused = devices.set_mtu(0, 1400).unwrap_err();
        assert!(refused.to_string().contains("cannot get an MTU of 1400 bytes now"), "{refused:#}");
        devices.set_mtu(1, 1400).unwrap();
        assert_eq!(ports.each_ref().map(|port| port.mtu().unwrap()), [1500, 1500]);
        drop(end);
        while devices.work.is_some() {
            devices.advance(&PortTable::default(), &Handle::default(), &mut |_, _| ());
        }
        devices.set_mtu(0, 1400).unwrap();
        assert_eq!(ports[0].mtu().unwrap(), 1400);
        ports.into_iter().for_each(|port| port.close().unwrap());
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
