//! Events of a device: it is reset, it is removed, it comes back. Drivers and the kernel report them on EAL's interrupt thread, which sets
//! flags that the program polls. A port must have no queue taken when it is reset or removed, as for a stop.

use crate::device::{ADD, DeviceName, control, hotplug_remove, name_of, unowned};
use crate::error::DpdkError;
use crate::port::Port;
use crate::port_config::Granted;
use crate::sys;

/// Reported events of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortEvents {
    /// The device was reset, e.g. a VF with its PF; it works again after [`Port::reset`].
    pub is_reset: bool,
    /// The device is gone, or the kernel waits for its release: call [`Port::remove`].
    pub is_removed: bool,
}

/// The state of a port.
#[derive(Debug, Clone)]
pub struct PortView {
    /// See [`Port::is_open`].
    pub is_open: bool,
    /// Started and not closed.
    pub is_started: bool,
    /// The granted configuration.
    pub granted: Option<Granted>,
}

impl Port {
    /// Returns the state of the port, or `None` while another thread resets it, opens it or configures it.
    #[must_use]
    pub fn try_view(&self) -> Option<PortView> {
        let state = self.inner.try_state()?;
        let (is_open, granted) = (!state.closed, state.granted.clone());
        Some(PortView { is_open, is_started: state.started && is_open, granted })
    }

    /// Returns and clears the events reported since the last call.
    #[must_use]
    pub fn take_events(&self) -> PortEvents {
        // SAFETY: takes a number, which the call checks.
        let events = unsafe { sys::dffi_take_events(self.id().0) };
        let has = |event| events & event != 0;
        PortEvents { is_reset: has(sys::DFFI_PORT_RESET), is_removed: has(sys::DFFI_PORT_REMOVED) }
    }

    /// Returns whether the port has its device, i.e. was not closed by [`Port::close`] or [`Port::remove`].
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

    /// Resets the device, which must then be configured again. A port whose driver has no reset only stops.
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
        if answer == -libc::ENOTSUP {
            return self.stop_locked(&mut state);
        }
        DpdkError::check_port(self.id(), "rte_eth_dev_reset", answer)?;
        (state.started, state.granted) = (false, None);
        Ok(())
    }

    /// Closes the port and removes its device from its bus, so that the kernel gets it back. The handles stay, for [`Port::reopen`].
    ///
    /// # Errors
    /// [`DpdkError::QueuesInUse`] while queue handles are held; [`DpdkError::NamedCall`] if the bus refuses. Errors of stopping and
    /// closing a lost device are ignored.
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
        let Some(DeviceName { bus, name, .. }) = self.inner.device.as_ref().filter(|_| !is_removed) else {
            return closed;
        };
        hotplug_remove(bus, name)
    }

    /// Opens the port again after [`Port::remove`]; it must be configured then. Returns whether its device is back: a PCI device once it
    /// is bound to a driver for DPDK, any other once it was created.
    ///
    /// # Errors
    /// [`DpdkError::NamedCall`] if the driver refuses the device.
    pub fn reopen(&self) -> Result<bool, DpdkError> {
        let control = control();
        let mut state = self.inner.state();
        if !state.closed {
            return Ok(true);
        }
        let found = || unowned().into_iter().find(|&id| name_of(id) == self.name());
        let mut id = found();
        if let (None, Some(device)) = (id, &self.inner.device)
            && device.has_dpdk_driver()
        {
            device.add_to_bus()?;
            let missing = || DpdkError::named(ADD, self.name(), libc::ENODEV);
            id = Some(found().ok_or_else(missing)?);
        }
        if let Some(id) = id {
            self.inner.enter(id, &mut state);
            // Events of the device that had this number before.
            let _ = self.take_events();
        }
        drop(control);
        Ok(id.is_some())
    }

    /// Sets the MAC address of the device; [`DpdkError::PortCall`] with errno 95 (`ENOTSUP`) if it is fixed.
    pub fn set_mac_addr(&self, mac: [u8; 6]) -> Result<(), DpdkError> {
        let _control = self.controlled()?;
        let mut raw = sys::rte_ether_addr { addr_bytes: mac };
        // SAFETY: the address lives through the call.
        let answer = unsafe { sys::rte_eth_dev_default_mac_addr_set(self.id().0, &raw mut raw) };
        DpdkError::check_port(self.id(), "rte_eth_dev_default_mac_addr_set", answer).map(drop)
    }

    /// Receives frames of these VLANs; [`DpdkError::PortCall`] with errno 95 (`ENOTSUP`) if the device does not filter VLANs.
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
