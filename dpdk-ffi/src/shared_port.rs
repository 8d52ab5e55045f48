//! The state of an open port, which all its handles and queue handles share, so that a queue is taken only once, whichever handle is used.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use crate::device::{DeviceName, control, hotplug_remove};
use crate::eal::Token;
use crate::error::DpdkError;
use crate::ids::{PortId, QueueId};
use crate::port_config::{Granted, TxOffloads};
use crate::sys;

/// Lock order: control, state, HELD. An entry lives until its [`SharedPort`] is closed or fully dropped, so a dead `Weak` means that
/// another thread is dropping it right now.
static HELD: Mutex<BTreeMap<PortId, Weak<SharedPort>>> = Mutex::new(BTreeMap::new());

pub(crate) fn held() -> MutexGuard<'static, BTreeMap<PortId, Weak<SharedPort>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueDirection {
    Rx,
    Tx,
}

pub(crate) struct SharedPort {
    /// A device that was removed and comes back may get another number, but only while the port is closed and no queue is taken.
    pub(crate) id: AtomicU16,
    pub(crate) name: String,
    /// The user's name for the port; if unset, the device's name is used.
    pub(crate) label: OnceLock<String>,
    pub(crate) device: Option<DeviceName>,
    pub(crate) state: Mutex<PortStatus>,
    pub(crate) _token: Token,
}

#[derive(Default)]
pub(crate) struct PortStatus {
    pub(crate) granted: Option<Granted>,
    /// The difference of the device's MTU and the port's.
    pub(crate) tag_room: u16,
    pub(crate) started: bool,
    pub(crate) rx_taken: Vec<bool>,
    pub(crate) tx_taken: Vec<bool>,
    pub(crate) closed: bool,
    /// The rings of a `net_ring` port, and the device name for removing it; the rings must outlive the device.
    pub(crate) rings: Option<(CString, Box<dyn Send>)>,
    /// The callbacks of its queues, which must be removed before the device.
    pub(crate) attached: Vec<Box<dyn Send>>,
}

impl PortStatus {
    pub(crate) fn taken(&mut self, direction: QueueDirection) -> &mut Vec<bool> {
        match direction {
            QueueDirection::Rx => &mut self.rx_taken,
            QueueDirection::Tx => &mut self.tx_taken,
        }
    }

    pub(crate) fn no_queues_taken(&self, port: PortId) -> Result<(), DpdkError> {
        let count = |taken: &[bool]| taken.iter().filter(|&&taken| taken).count();
        match (count(&self.rx_taken), count(&self.tx_taken)) {
            (0, 0) => Ok(()),
            (rx, tx) => Err(DpdkError::QueuesInUse { port, rx, tx }),
        }
    }

    pub(crate) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    pub(crate) fn not_closed(&self, port: PortId) -> Result<(), DpdkError> {
        if self.closed { Err(DpdkError::PortState { port, is: "closed", must: "open" }) } else { Ok(()) }
    }
}

impl SharedPort {
    pub(crate) fn id(&self) -> PortId {
        PortId(self.id.load(Ordering::Relaxed))
    }

    /// Registers a closed port again under the current number of its device. The caller holds the control lock.
    pub(crate) fn enter(self: &Arc<Self>, id: PortId, state: &mut PortStatus) {
        self.id.store(id.0, Ordering::Relaxed);
        *state = PortStatus::default();
        held().insert(id, Arc::downgrade(self));
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, PortStatus> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::state`]; `None` while another thread holds it, as it does while it resets the device.
    pub(crate) fn try_state(&self) -> Option<MutexGuard<'_, PortStatus>> {
        match self.state.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn takes_chains(&self) -> bool {
        let granted = |granted: &Granted| granted.tx_offloads.contains(TxOffloads::MULTI_SEGS);
        self.state().granted.as_ref().is_some_and(granted)
    }

    pub(crate) fn release_queue(&self, direction: QueueDirection, queue: QueueId) {
        if let Some(taken) = self.state().taken(direction).get_mut(usize::from(queue.0)) {
            *taken = false;
        }
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        let _control = control();
        let id = self.id();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.started && !state.closed {
            // SAFETY: no queue handle is left (each holds this SharedPort), so nothing polls the port.
            unsafe { sys::rte_eth_dev_stop(id.0) };
        }
        state.attached.clear();
        if !state.closed {
            if let Some((device, rings)) = state.rings.take()
                && hotplug_remove(c"vdev", &device).is_err()
            {
                // The device still exists and would use freed memory if the rings were dropped.
                std::mem::forget(rings);
            }
            held().remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_taken_are_counted_by_direction() {
        let mut state =
            PortStatus { rx_taken: vec![false; 3], tx_taken: vec![false; 2], ..PortStatus::default() };
        let port = PortId(4);
        assert_eq!(state.no_queues_taken(port), Ok(()));
        state.taken(QueueDirection::Rx)[2] = true;
        state.taken(QueueDirection::Rx)[0] = true;
        state.taken(QueueDirection::Tx)[1] = true;
        assert_eq!(state.no_queues_taken(port), Err(DpdkError::QueuesInUse { port, rx: 2, tx: 1 }));
        state.closed = true;
        assert_eq!(state.not_closed(port), Err(DpdkError::PortState { port, is: "closed", must: "open" }));
    }
}
