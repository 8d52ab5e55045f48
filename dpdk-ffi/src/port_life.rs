//! What a device does by itself: it is reset, it is removed, it comes back.
//!
//! Drivers and the kernel report it on EAL's interrupt thread, which sets a flag; the program takes the flags when it likes. A port that is
//! reset or removed must have no queue taken, as one that is stopped.

use std::ffi::{CStr, CString};
use std::ptr;

use crate::eal::{ADD, ENODEV, control, device_add, hotplug_remove};
use crate::error::DpdkError;
use crate::ids::PortId;
use crate::port::{Port, name_of, unowned};
use crate::sys;

/// `ENOTSUP` on Linux.
const ENOTSUP: i32 = 95;
/// Kernel drivers that leave a PCI device to DPDK.
const USER_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// What has been reported of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortEvents {
    /// The device was reset, as a VF is with its PF: it works again after [`Port::reset`].
    pub is_reset: bool,
    /// The device is gone, or the kernel waits for it to be let go: [`Port::remove`].
    pub is_removed: bool,
}

/// A device on its bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceName {
    bus: CString,
    name: CString,
    arguments: CString,
}

impl DeviceName {
    /// The device of a port; `None` when the driver does not say. The caller holds the control lock.
    pub(crate) fn of(port: PortId) -> Option<Self> {
        let mut raw = sys::dffi_device { bus: ptr::null(), name: ptr::null(), arguments: ptr::null() };
        // SAFETY: `raw` is writable for the call.
        if unsafe { sys::dffi_device_of(port.0, &raw mut raw) } != 0 {
            return None;
        }
        // SAFETY: the call has set the strings of a device that EAL has, which the control lock keeps until they are copied.
        let [bus, name, arguments] =
            [raw.bus, raw.name, raw.arguments].map(|text| unsafe { CStr::from_ptr(text) }.to_owned());
        Some(Self { bus, name, arguments })
    }

    /// Adds the device to its bus, with the arguments that it had. The caller holds the control lock.
    pub(crate) fn add(&self) -> Result<(), DpdkError> {
        device_add(&self.bus, &self.name, &self.arguments)
    }

    /// Its folder in sysfs, if it is a PCI device. `-a` may leave out the domain of its address.
    fn pci_folder(&self) -> Option<String> {
        let name = self.name.to_str().ok().filter(|_| self.bus.as_c_str() == c"pci")?;
        let domain = if name.matches(':').count() == 1 { "0000:" } else { "" };
        Some(format!("/sys/bus/pci/devices/{domain}{name}"))
    }

    /// Whether it is a PCI device that the kernel leaves to DPDK.
    fn is_left_to_us(&self) -> bool {
        let driver = self.pci_folder().map(|folder| std::fs::read_link(format!("{folder}/driver")));
        let driver = driver.and_then(|path| path.ok()?.file_name()?.to_str().map(str::to_owned));
        driver.is_some_and(|driver| USER_DRIVERS.contains(&driver.as_str()))
    }
}

impl Port {
    /// Takes what has been reported of the port since the last call.
    #[must_use]
    pub fn take_events(&self) -> PortEvents {
        // SAFETY: takes a number, which the call checks.
        let events = unsafe { sys::dffi_take_events(self.id().0) };
        let has = |event| events & event != 0;
        PortEvents { is_reset: has(sys::DFFI_PORT_RESET), is_removed: has(sys::DFFI_PORT_REMOVED) }
    }

    /// Whether the port has its device: not after [`Port::close`] and [`Port::remove`].
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.inner.state().closed
    }

    /// Whether the port is started.
    #[must_use]
    pub fn is_started(&self) -> bool {
        let state = self.inner.state();
        state.started && !state.closed
    }

    /// Resets the device, which then has to be configured again. A driver without a reset only stops.
    ///
    /// # Errors
    /// [`DpdkError::QueuesInUse`] while queue handles are held; [`DpdkError::PortCall`] while the device is not ready for it.
    pub fn reset(&self) -> Result<(), DpdkError> {
        let _control = control();
        let mut state = self.inner.state();
        state.not_closed(self.id())?;
        state.no_queues_taken(self.id())?;
        // SAFETY: no queue handle exists and none can be taken while we hold the state, so nothing polls the port.
        let answer = unsafe { sys::rte_eth_dev_reset(self.id().0) };
        if answer == -ENOTSUP {
            return self.stop_locked(&mut state);
        }
        DpdkError::check_port(self.id(), "rte_eth_dev_reset", answer)?;
        (state.started, state.granted) = (false, None);
        Ok(())
    }

    /// Closes the port and removes its device from its bus, so that the kernel gets it back. The handles stay, for [`Port::reopen`].
    ///
    /// # Errors
    /// [`DpdkError::QueuesInUse`] while queue handles are held; [`DpdkError::NamedCall`] when the bus refuses. What a device that
    /// is gone answers when it is stopped and closed is of no interest.
    pub fn remove(&self) -> Result<(), DpdkError> {
        let _control = control();
        let mut state = self.inner.state();
        state.not_closed(self.id())?;
        state.no_queues_taken(self.id())?;
        let _ = self.stop_locked(&mut state);
        // Closing a port of rings removes its device.
        let is_removed = state.has_rings();
        let closed = self.close_locked(&mut state);
        if closed.is_err() {
            self.forget(&mut state);
        }
        let Some(DeviceName { bus, name, .. }) = self.inner.device().filter(|_| !is_removed) else {
            return closed;
        };
        hotplug_remove(bus, name)
    }

    /// Opens the port again when its device has come back after [`Port::remove`]; it has to be configured then. Returns whether it has: a
    /// PCI device has when the kernel leaves it to DPDK, any other when somebody has created it.
    ///
    /// # Errors
    /// [`DpdkError::NamedCall`] when the driver does not take the device.
    pub fn reopen(&self) -> Result<bool, DpdkError> {
        let control = control();
        let mut state = self.inner.state();
        if !state.closed {
            return Ok(true);
        }
        let found = || unowned().into_iter().find(|&id| name_of(id) == self.name());
        let mut id = found();
        if let (None, Some(device)) = (id, self.inner.device())
            && device.is_left_to_us()
        {
            device.add()?;
            let missing = || DpdkError::named(ADD, self.name(), ENODEV);
            id = Some(found().ok_or_else(missing)?);
        }
        if let Some(id) = id {
            self.inner.enter(id, &mut state);
            // Of the device that had this number before.
            let _ = self.take_events();
        }
        drop(control);
        Ok(id.is_some())
    }

    /// Gives the device this MAC address.
    ///
    /// # Errors
    /// [`DpdkError::PortCall`], with errno 95 (`ENOTSUP`) where it cannot have another.
    pub fn set_mac_addr(&self, mac: [u8; 6]) -> Result<(), DpdkError> {
        let _control = self.controlled()?;
        let mut raw = sys::rte_ether_addr { addr_bytes: mac };
        // SAFETY: the address lives through the call.
        let answer = unsafe { sys::rte_eth_dev_default_mac_addr_set(self.id().0, &raw mut raw) };
        DpdkError::check_port(self.id(), "rte_eth_dev_default_mac_addr_set", answer).map(drop)
    }

    /// Receives frames of these VLANs, from a device that receives none that it was not asked for.
    ///
    /// # Errors
    /// [`DpdkError::PortCall`], with errno 95 (`ENOTSUP`) where the device does not filter.
    pub fn receive_vlans(&self, vlans: impl IntoIterator<Item = u16>) -> Result<(), DpdkError> {
        let _control = self.controlled()?;
        // SAFETY: takes a number; DPDK checks it.
        let offload = unsafe { sys::rte_eth_dev_get_vlan_offload(self.id().0) };
        let call = "rte_eth_dev_set_vlan_offload";
        let offload =
            DpdkError::check_port(self.id(), "rte_eth_dev_get_vlan_offload", offload)?.cast_signed();
        // SAFETY: takes numbers; DPDK checks them.
        let answer =
            unsafe { sys::rte_eth_dev_set_vlan_offload(self.id().0, offload | sys::DFFI_VLAN_FILTER) };
        DpdkError::check_port(self.id(), call, answer)?;
        for vlan in vlans {
            // SAFETY: takes numbers; DPDK checks them.
            let answer = unsafe { sys::rte_eth_dev_vlan_filter(self.id().0, vlan, 1) };
            DpdkError::check_port(self.id(), "rte_eth_dev_vlan_filter", answer)?;
        }
        Ok(())
    }
}
