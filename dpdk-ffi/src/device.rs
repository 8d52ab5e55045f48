//! Devices on their buses, the numbers of their ports, and the lock of control calls.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::c_text::text_of;
use crate::error::DpdkError;
use crate::ids::PortId;
use crate::sys;

/// Kernel drivers that give a PCI device to DPDK.
const USER_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/// Longer than most control calls take. A reset takes seconds.
const SOON: Duration = Duration::from_millis(10);

/// Serializes ethdev's control calls, which several threads must not make at once.
static CONTROL: Mutex<()> = Mutex::new(());

pub(crate) fn control() -> MutexGuard<'static, ()> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`control`] without waiting; `None` while another thread holds the lock, possibly for seconds in a driver.
pub(crate) fn try_control() -> Option<MutexGuard<'static, ()>> {
    match CONTROL.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// As [`control`], for threads that must not wait for a driver; `None` when another thread holds it for longer than [`SOON`].
pub(crate) fn control_soon() -> Option<MutexGuard<'static, ()>> {
    let end = Instant::now() + SOON;
    loop {
        let guard = try_control();
        if guard.is_some() || Instant::now() >= end {
            return guard;
        }
        std::thread::sleep(SOON / 10);
    }
}

pub(crate) fn existing() -> Vec<PortId> {
    let next = |id: u16| {
        // SAFETY: takes a number and returns the next port's, or one past the greatest.
        let found = unsafe { sys::rte_eth_find_next(id) };
        Some(found).filter(|&found| u32::from(found) < sys::DFFI_MAX_PORTS)
    };
    std::iter::successors(next(0), |&id| next(id + 1)).map(PortId).collect()
}

/// The existing ports without an owning driver, such as failsafe or bonding. The caller holds the control lock.
pub(crate) fn unowned() -> Vec<PortId> {
    let next = |id: u16| {
        // SAFETY: takes numbers and returns the next port's, or one past the greatest.
        let found = unsafe { sys::rte_eth_find_next_owned_by(id, sys::DFFI_NO_OWNER) };
        u16::try_from(found).ok().filter(|&found| u32::from(found) < sys::DFFI_MAX_PORTS)
    };
    std::iter::successors(next(0), |&id| next(id + 1)).map(PortId).collect()
}

pub(crate) fn name_of(port: PortId) -> String {
    let mut name = [c_char::default(); sys::DFFI_NAME_BYTES as usize];
    // SAFETY: the array has DPDK's maximum length of a name.
    unsafe { sys::dffi_port_name(port.0, name.as_mut_ptr()) };
    text_of(&name)
}

/// Returns whether a port called `name` exists. The caller holds the control lock.
pub(crate) fn exists(name: &str) -> bool {
    existing().into_iter().any(|port| name_of(port) == name)
}

/// Closes every port when EAL ends; a driver that owns ports closes them with its port. No handle is left, so all are stopped.
pub(crate) fn close_all() {
    let _control = control();
    for port in unowned() {
        // SAFETY: the port exists and nothing polls it, since every handle is dropped. A driver that fails to close has logged it to
        // EAL's log, and there is no caller to return it to.
        unsafe { sys::rte_eth_dev_close(port.0) };
    }
}

pub(crate) const ADD: &str = "rte_eal_hotplug_add";

/// Adds a device to its bus. If its driver refuses it, it has no port. The caller holds the control lock.
pub(crate) fn device_add(bus: &CStr, name: &CStr, args: &CStr) -> Result<(), DpdkError> {
    // SAFETY: three NUL-terminated strings that live through the call; EAL copies them.
    let answer = unsafe { sys::dffi_device_add(bus.as_ptr(), name.as_ptr(), args.as_ptr()) };
    DpdkError::check_named(&name.to_string_lossy(), ADD, answer)
}

/// Removes a device from its bus. The caller holds the control lock, and nothing polls the device's port any more.
pub(crate) fn hotplug_remove(bus: &CStr, name: &CStr) -> Result<(), DpdkError> {
    // SAFETY: two NUL-terminated strings that live through the call; nothing polls the device's port (the caller's contract).
    let answer = unsafe { sys::rte_eal_hotplug_remove(bus.as_ptr(), name.as_ptr()) };
    DpdkError::check_named(&name.to_string_lossy(), "rte_eal_hotplug_remove", answer)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceName {
    pub(crate) bus: CString,
    pub(crate) name: CString,
    arguments: CString,
}

impl DeviceName {
    /// The device of a port; `None` if the driver does not name it. The caller holds the control lock.
    pub(crate) fn of_port(port: PortId) -> Option<Self> {
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

    /// Adds the device to its bus with its previous arguments. The caller holds the control lock.
    pub(crate) fn add_to_bus(&self) -> Result<(), DpdkError> {
        device_add(&self.bus, &self.name, &self.arguments)
    }

    /// The device's folder in sysfs if it is a PCI device. `-a` may omit the domain of its address.
    fn pci_folder(&self) -> Option<String> {
        let name = self.name.to_str().ok().filter(|_| self.bus.as_c_str() == c"pci")?;
        let domain = if name.matches(':').count() == 1 { "0000:" } else { "" };
        Some(format!("/sys/bus/pci/devices/{domain}{name}"))
    }

    pub(crate) fn has_dpdk_driver(&self) -> bool {
        let driver = self.pci_folder().map(|folder| std::fs::read_link(format!("{folder}/driver")));
        let driver = driver.and_then(|path| path.ok()?.file_name()?.to_str().map(str::to_owned));
        driver.is_some_and(|driver| USER_DRIVERS.contains(&driver.as_str()))
    }
}
