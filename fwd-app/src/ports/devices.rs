//! Devices that are reset, removed, and come back while packets flow.
//!
//! A port whose device reports either is out of use: no next hop leads there, lcores give up its queues between two batches
//! ([`crate::topology::Handle::release_port`]), and the device is reset or let go. When it is there again, it is configured as at the
//! start, lcores get its queues, and its link counts. Packets on their way to a port without queues are dropped as `tx_full`.
//!
//! What a running device may change here is its MTU ([`Devices::set_mtu`]).
//!
//! All of this happens on the control thread. Drivers report on a thread of EAL's, which sets flags alone.

use super::dpdk::Ports;
use super::{PortRecord, PortTable};
use crate::notice;
use crate::topology::Handle;
use anyhow::Context as _;
use dpdk_ffi::{DpdkError, Mempool, Port, PortConfig, PortEvents};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How often a device is tried that is not there or not ready.
const RETRY: Duration = Duration::from_secs(1);

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
    /// When it is tried next.
    due: Instant,
    /// Why it could not be brought back the last time, so that there is one warning.
    why: String,
}

/// The devices of all ports.
#[derive(Default)]
pub(crate) struct Devices(Vec<PortDevice>);

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
                due: Instant::now(),
                why: String::new(),
            };
            device.receive_groups(record);
            device.receive_vlans(record);
            device
        };
        Self(table.ports.iter().zip(ports.ports.iter().zip(&ports.setups)).map(device).collect())
    }

    /// Whether the port with this index is out of use.
    pub(crate) fn is_out(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|device| device.out.is_some())
    }

    /// Sets the MTU, bytes, of the port with this index. A device that is out of use gets it when it is back.
    ///
    /// # Errors
    /// When its driver refuses it while the port runs.
    pub(crate) fn set_mtu(&mut self, index: u16, mtu_bytes: u16) -> anyhow::Result<()> {
        let Some(device) = self.0.iter_mut().find(|device| device.index == index) else { return Ok(()) };
        let set = if device.out.is_none() { device.port.set_mtu(mtu_bytes) } else { Ok(()) };
        match set {
            Ok(()) => {}
            // The driver leaves the length of frames to who sends them.
            Err(DpdkError::PortCall { errno, .. }) if errno == Errno::NOTSUP.raw_os_error() => {}
            Err(error) => {
                let name = device.name();
                return Err(error).context(format!(
                    "{name} cannot get an MTU of {mtu_bytes} bytes while it runs, which needs a restart"
                ));
            }
        }
        device.setup.config.mtu = Some(mtu_bytes);
        Ok(())
    }

    /// Takes ports out of use whose devices are reset or removed, and brings those back that are there again. `set_link` is given the index
    /// of a port, and whether its link is up now.
    pub(crate) fn turn(&mut self, table: &PortTable, handle: &Handle, set_link: &mut impl FnMut(u16, bool)) {
        for device in &mut self.0 {
            if device.out != Some(Out::Removed) {
                match device.port.take_events() {
                    PortEvents { is_removed: true, .. } => device.take_out(Out::Removed, handle, set_link),
                    PortEvents { is_reset: true, .. } => device.take_out(Out::Reset, handle, set_link),
                    PortEvents { .. } => {}
                }
            }
            if device.out.is_some()
                && Instant::now() >= device.due
                && let Some(record) = table.ports.get(usize::from(device.index))
            {
                device.try_back(record, handle, set_link);
            }
        }
    }
}

impl PortDevice {
    fn name(&self) -> String {
        format!("port {} ({})", self.index, self.port.label())
    }

    /// Takes the port out of use.
    fn take_out(&mut self, out: Out, handle: &Handle, set_link: &mut impl FnMut(u16, bool)) {
        let what = if out == Out::Removed { "removed" } else { "reset" };
        notice::warn(format_args!(
            "{}: its device is {what}; it is out of use until it is back",
            self.name()
        ));
        set_link(self.index, false);
        handle.release_port(self.index);
        (self.out, self.due, self.why) = (Some(out), Instant::now(), String::new());
        if out == Out::Removed
            && let Err(error) = self.port.remove()
        {
            notice::warn(format_args!("{}: {error}", self.name()));
        }
    }

    /// Brings the port back if its device is there and ready.
    fn try_back(&mut self, record: &PortRecord, handle: &Handle, set_link: &mut impl FnMut(u16, bool)) {
        self.due = Instant::now() + RETRY;
        match self.bring_back(record, handle) {
            Ok(false) => {}
            Ok(true) => {
                self.out = None;
                notice::post(format_args!("{}: in use again", self.name()));
                let is_up = self.port.link().is_ok_and(|link| link.up);
                set_link(self.index, is_up);
            }
            Err(error) => {
                let why = format!("{error:#}");
                if self.why != why {
                    notice::warn(format_args!("{}: cannot be brought back yet: {why}", self.name()));
                    self.why = why;
                }
            }
        }
    }

    /// Returns whether the device was there.
    fn bring_back(&self, record: &PortRecord, handle: &Handle) -> anyhow::Result<bool> {
        match self.out {
            Some(Out::Reset) => self.port.reset()?,
            _ if !self.port.reopen()? => return Ok(false),
            _ => {}
        }
        self.port.stop()?;
        self.port.configure(&self.setup.config, std::slice::from_ref(&self.setup.pool))?;
        if self.port.mac_addr()? != record.mac.0 {
            let message = || format!("the device has another MAC than before, {}", record.mac);
            self.port.set_mac_addr(record.mac.0).with_context(message)?;
        }
        self.receive_groups(record);
        self.port.start()?;
        self.receive_vlans(record);
        handle.give_port(self.index, &self.port)?;
        Ok(true)
    }

    /// Has an interface of the router receive all groups, since neighbour discovery is sent to groups. Virtual devices pass all frames on and
    /// cannot choose.
    fn receive_groups(&self, record: &PortRecord) {
        if record.is_interface() {
            drop(self.port.receive_all_groups());
        }
    }

    fn receive_vlans(&self, record: &PortRecord) {
        let vlans = record.vrfs.vlans.keys().copied();
        if self.wants_vlans
            && !record.vrfs.vlans.is_empty()
            && let Err(error) = self.port.receive_vlans(vlans)
        {
            notice::warn(format_args!("{}: it may not receive the VLANs of its VRFs: {error}", self.name()));
        }
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
