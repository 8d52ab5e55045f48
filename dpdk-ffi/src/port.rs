//! Ports: found by name or number, configured, started, stopped. Queues are taken from a started port only, and a port with queues taken
//! refuses to stop, so a queue handle can poll without a check.

use std::ffi::CString;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::c_text::copy_text;
use crate::device::{DeviceName, control, control_soon, existing, hotplug_remove, name_of};
use crate::eal::Eal;
use crate::error::DpdkError;
use crate::ids::{PortId, QueueId, SocketId};
use crate::mempool::Mempool;
use crate::port_config::{Granted, PortConfig, RssTypes, RxOffloads, TxOffloads, rss_subset};
use crate::queue::{RxQueue, TxQueue};
use crate::shared_port::{PortStatus, QueueDirection, SharedPort, held};
use crate::sys;

/// The default MTU of a port (`RTE_ETHER_MTU`).
const MTU: u16 = 1500;
/// NICs that count one VLAN tag, and drop a frame with two and a packet of the MTU. VFs are left out: a PF may refuse a longer frame.
const DRIVERS_OF_ONE_TAG: [&str; 3] = ["net_e1000_em", "net_e1000_igb", "net_igc"];
const TAG_BYTES: u16 = 4;

/// The number of bytes added to a device's MTU of `mtu`, so that IP packets of `mtu` bytes also fit with two VLAN tags.
fn tag_room(driver: &str, max_mtu: u16, mtu: u16) -> u16 {
    if DRIVERS_OF_ONE_TAG.contains(&driver) { TAG_BYTES.min(max_mtu.saturating_sub(mtu)) } else { 0 }
}

/// A port. Any thread may make control calls; they are serialized. Dropping the last handle stops it; [`Port::close`] releases the device.
#[derive(Clone)]
pub struct Port {
    pub(crate) inner: Arc<SharedPort>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port({} {})", self.id(), self.name())
    }
}

impl Port {
    /// The port with this number, or [`DpdkError::UnknownPort`] with the names of the existing ports.
    pub fn open(eal: &Eal, id: PortId) -> Result<Port, DpdkError> {
        let _control = control();
        Self::open_locked(eal, id)
    }

    /// The port with this name, e.g. `net_pcap0` or a PCI address, or [`DpdkError::UnknownPort`] with the names of the existing ports.
    pub fn by_name(eal: &Eal, name: &str) -> Result<Port, DpdkError> {
        let _control = control();
        let ports = existing();
        match ports.iter().find(|&&port| name_of(port) == name) {
            Some(&id) => Self::open_locked(eal, id),
            None => Err(unknown(name)),
        }
    }

    fn open_locked(eal: &Eal, id: PortId) -> Result<Port, DpdkError> {
        if !existing().contains(&id) {
            return Err(unknown(&id.to_string()));
        }
        let mut held = held();
        if let Some(inner) = held.get(&id) {
            let inner = inner.upgrade();
            return inner.map(|inner| Port { inner }).ok_or(DpdkError::PortState {
                port: id,
                is: "being released by another thread",
                must: "free",
            });
        }
        let (name, device, state) = (name_of(id), DeviceName::of_port(id), Mutex::default());
        let id_now = AtomicU16::new(id.0);
        let inner = Arc::new(SharedPort {
            id: id_now,
            name,
            label: OnceLock::new(),
            device,
            state,
            _token: eal.token(),
        });
        held.insert(id, Arc::downgrade(&inner));
        Ok(Port { inner })
    }

    pub(crate) fn open_for_rings(
        eal: &Eal,
        id: PortId,
        device: CString,
        rings: impl Send + 'static,
    ) -> Result<Port, DpdkError> {
        let port = Self::open_locked(eal, id)?;
        port.inner.state().rings = Some((device, Box::new(rings)));
        Ok(port)
    }

    /// Keeps the result of `make`, a callback of a queue, until nothing polls the port, which must be configured and not started.
    pub(crate) fn attach<A: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<A, DpdkError>,
    ) -> Result<(), DpdkError> {
        let _control = self.controlled()?;
        let mut state = self.inner.state();
        let (port, must) = (self.id(), "configured and stopped");
        if state.started || state.granted.is_none() {
            let is = if state.started { "started" } else { "not configured" };
            return Err(DpdkError::PortState { port, is, must });
        }
        state.attached.push(Box::new(make()?));
        Ok(())
    }

    /// The port's number.
    #[must_use]
    pub fn id(&self) -> PortId {
        self.inner.id()
    }

    /// The name of the port's device.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The name that [`Self::set_label`] gave it, else [`Self::name`].
    #[must_use]
    pub fn label(&self) -> &str {
        self.inner.label.get().unwrap_or(&self.inner.name)
    }

    /// Labels the port `label`. A port is labelled once: returns whether it had no label before.
    pub fn set_label(&self, label: &str) -> bool {
        self.inner.label.set(label.to_owned()).is_ok()
    }

    /// The NUMA node of the device, [`SocketId::ANY`] for a virtual one.
    #[must_use]
    pub fn socket(&self) -> SocketId {
        // SAFETY: takes a number; DPDK checks it.
        SocketId(unsafe { sys::rte_eth_dev_socket_id(self.id().0) })
    }

    /// The configuration granted to the port, `None` before [`Port::configure`].
    #[must_use]
    pub fn granted(&self) -> Option<Granted> {
        self.inner.state().granted.clone()
    }

    pub(crate) fn controlled(&self) -> Result<MutexGuard<'static, ()>, DpdkError> {
        self.open_under(control())
    }

    pub(crate) fn controlled_soon(&self) -> Result<MutexGuard<'static, ()>, DpdkError> {
        self.open_under(control_soon().ok_or(DpdkError::Busy)?)
    }

    pub(crate) fn open_under<C>(&self, control: C) -> Result<C, DpdkError> {
        self.inner.state().not_closed(self.id())?;
        Ok(control)
    }

    pub(crate) fn raw_info(&self) -> Result<sys::rte_eth_dev_info, DpdkError> {
        let mut info = sys::rte_eth_dev_info::default();
        // SAFETY: `info` is writable for the call.
        let answer = unsafe { sys::rte_eth_dev_info_get(self.id().0, &raw mut info) };
        DpdkError::check_port(self.id(), "rte_eth_dev_info_get", answer)?;
        Ok(info)
    }

    pub(crate) fn tag_room(&self, info: &sys::rte_eth_dev_info, mtu: u16) -> u16 {
        // SAFETY: the port exists, so the name of its driver exists, and the control lock keeps it until it is copied.
        let driver = unsafe { copy_text(info.driver_name) };
        tag_room(&driver, info.max_mtu, mtu)
    }

    pub(crate) fn mtu_without(&self, tag_room: u16) -> Result<u16, DpdkError> {
        let mut mtu = 0;
        // SAFETY: `mtu` is writable for the call.
        let answer = unsafe { sys::rte_eth_dev_get_mtu(self.id().0, &raw mut mtu) };
        DpdkError::check_port(self.id(), "rte_eth_dev_get_mtu", answer)?;
        Ok(mtu - tag_room.min(mtu))
    }

    /// Configures a stopped port and sets up its queues; RX queue `q` gets mbufs from `pools[q % pools.len()]`. Returns the granted part.
    ///
    /// # Errors
    /// [`DpdkError::PortState`] if the port is started or closed; [`DpdkError::TooMuch`] for more queues than the device has or RX queues
    /// without a pool; [`DpdkError::Configure`] or [`DpdkError::PortCall`] if the device refuses.
    pub fn configure(&self, config: &PortConfig, pools: &[Mempool]) -> Result<Granted, DpdkError> {
        let id = self.id();
        let _control = control();
        let mut state = self.inner.state();
        state.not_closed(id)?;
        if state.started {
            return Err(DpdkError::PortState { port: id, is: "started", must: "stopped" });
        }
        let info = self.raw_info()?;
        let (rx_queues, tx_queues) = (usize::from(config.rx_queues), usize::from(config.tx_queues));
        DpdkError::within("rx queues of the port", rx_queues, info.max_rx_queues.into())?;
        DpdkError::within("tx queues of the port", tx_queues, info.max_tx_queues.into())?;
        DpdkError::within(
            "rx queues without a mempool",
            rx_queues,
            if pools.is_empty() { 0 } else { rx_queues },
        )?;
        state.granted = None;
        state.attached.clear();
        let rx_offloads = config.rx_offloads & RxOffloads::from_bits_truncate(info.rx_offload_capa);
        let tx_offloads = config.tx_offloads & TxOffloads::from_bits_truncate(info.tx_offload_capa);
        // Ethdev's default for a port without a requested MTU.
        let mtu = config.mtu.unwrap_or(if info.max_mtu == 0 { MTU } else { MTU.min(info.max_mtu) });
        state.tag_room = self.tag_room(&info, mtu);
        let wanted_rss = if config.rx_queues > 1 { config.rss } else { RssTypes::empty() };
        let raw = sys::dffi_port_config {
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
            mtu: u32::from(mtu) + u32::from(state.tag_room),
            rx_offloads: rx_offloads.bits(),
            tx_offloads: tx_offloads.bits(),
            rss: wanted_rss.bits() & info.flow_type_rss_offloads,
        };
        // SAFETY: `raw` lives through the call; the port is stopped, and the control lock keeps others out.
        let answer = unsafe { sys::dffi_port_configure(id.0, &raw const raw) };
        if answer != 0 {
            let rss = rss_subset(wanted_rss, info.flow_type_rss_offloads);
            let mtu = config.mtu.map_or_else(|| "its MTU".to_owned(), |mtu| format!("MTU {mtu}"));
            let PortConfig { rx_queues, tx_queues, .. } = config;
            let asked = format!(
                "{rx_queues} RX and {tx_queues} TX queues, {mtu}, {rx_offloads:?}, {tx_offloads:?}, {rss:?}"
            );
            return Err(DpdkError::Configure { port: id, asked, errno: answer.abs() });
        }
        let (rx_descriptors, tx_descriptors) = self.set_up_queues(config, rx_offloads, tx_offloads, pools)?;
        let granted = Granted {
            rx_queues: config.rx_queues,
            tx_queues: config.tx_queues,
            rx_descriptors,
            tx_descriptors,
            mtu: self.mtu_without(state.tag_room)?,
            rx_offloads,
            tx_offloads,
            rss: rss_subset(wanted_rss, info.flow_type_rss_offloads),
            promiscuous: self.try_promiscuous(config.promiscuous),
        };
        (state.rx_taken, state.tx_taken) = (vec![false; rx_queues], vec![false; tx_queues]);
        state.granted = Some(granted.clone());
        Ok(granted)
    }

    fn set_up_queues(
        &self,
        config: &PortConfig,
        rx_offloads: RxOffloads,
        tx_offloads: TxOffloads,
        pools: &[Mempool],
    ) -> Result<(u16, u16), DpdkError> {
        let id = self.id();
        let (mut rx, mut tx) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: both numbers are writable for the call.
        let answer = unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id.0, &raw mut rx, &raw mut tx) };
        DpdkError::check_port(id, "rte_eth_dev_adjust_nb_rx_tx_desc", answer)?;
        let socket =
            if config.socket == SocketId::ANY { self.socket() } else { config.socket }.0.cast_unsigned();
        for (queue, pool) in (0..config.rx_queues).zip(pools.iter().cycle()) {
            // SAFETY: the pool lives until EAL ends, after every port is closed; the port is configured and stopped.
            let answer =
                unsafe { sys::dffi_rx_queue_setup(id.0, queue, rx, socket, rx_offloads.bits(), pool.raw()) };
            DpdkError::check_port(id, "rte_eth_rx_queue_setup", answer)?;
        }
        for queue in 0..config.tx_queues {
            // SAFETY: the port is configured and stopped.
            let answer = unsafe { sys::dffi_tx_queue_setup(id.0, queue, tx, socket, tx_offloads.bits()) };
            DpdkError::check_port(id, "rte_eth_tx_queue_setup", answer)?;
        }
        Ok((rx, tx))
    }

    /// Requests promiscuous mode, which many virtual devices cannot change; returns the mode in effect.
    fn try_promiscuous(&self, on: bool) -> bool {
        let id = self.id().0;
        // SAFETY: the calls take a number, which DPDK checks.
        unsafe {
            if on {
                sys::rte_eth_promiscuous_enable(id)
            } else {
                sys::rte_eth_promiscuous_disable(id)
            };
            sys::rte_eth_promiscuous_get(id) == 1
        }
    }

    /// Starts a configured port, whose queues can then be taken. No-op if started.
    ///
    /// # Errors
    /// [`DpdkError::PortState`] if it is not configured; [`DpdkError::PortCall`].
    pub fn start(&self) -> Result<(), DpdkError> {
        let _control = control();
        let mut state = self.inner.state();
        state.not_closed(self.id())?;
        if state.started {
            return Ok(());
        }
        if state.granted.is_none() {
            return Err(DpdkError::PortState { port: self.id(), is: "not configured", must: "configured" });
        }
        // SAFETY: the port is configured and all its queues are set up.
        let answer = unsafe { sys::rte_eth_dev_start(self.id().0) };
        DpdkError::check_port(self.id(), "rte_eth_dev_start", answer)?;
        state.started = true;
        Ok(())
    }

    /// Stops the port, which can then be started or configured again. No-op if stopped.
    ///
    /// # Errors
    /// [`DpdkError::QueuesInUse`] while queue handles are held; [`DpdkError::PortCall`].
    pub fn stop(&self) -> Result<(), DpdkError> {
        let _control = control();
        let mut state = self.inner.state();
        self.stop_locked(&mut state)
    }

    /// Stops the port. The caller holds the control lock.
    pub(crate) fn stop_locked(&self, state: &mut PortStatus) -> Result<(), DpdkError> {
        state.no_queues_taken(self.id())?;
        if !state.started || state.closed {
            return Ok(());
        }
        // SAFETY: no queue handle exists and none can be taken while we hold the state, so nothing polls the port.
        let answer = unsafe { sys::rte_eth_dev_stop(self.id().0) };
        DpdkError::check_port(self.id(), "rte_eth_dev_stop", answer)?;
        state.started = false;
        Ok(())
    }

    /// Stops the port and releases the device and its number (the name of a virtual device only after [`Port::remove`]). Calls on other
    /// handles of the port then return [`DpdkError::PortState`], and the rings of a ring port are released.
    ///
    /// # Errors
    /// [`DpdkError::QueuesInUse`] while queue handles are held; [`DpdkError::PortCall`], for a ring port [`DpdkError::NamedCall`].
    pub fn close(&self) -> Result<(), DpdkError> {
        let _control = control();
        let mut state = self.inner.state();
        state.not_closed(self.id())?;
        self.stop_locked(&mut state)?;
        self.close_locked(&mut state)
    }

    /// Marks the port as closed although its driver failed to close it. The caller holds the control lock.
    pub(crate) fn forget(&self, state: &mut PortStatus) {
        state.closed = true;
        held().remove(&self.id());
    }

    /// Releases the device of a stopped port. The caller holds the control lock.
    pub(crate) fn close_locked(&self, state: &mut PortStatus) -> Result<(), DpdkError> {
        state.attached.clear();
        match &state.rings {
            Some((device, _)) => hotplug_remove(c"vdev", device)?,
            None => {
                // SAFETY: the port is stopped and nothing polls it.
                let answer = unsafe { sys::rte_eth_dev_close(self.id().0) };
                DpdkError::check_port(self.id(), "rte_eth_dev_close", answer)?;
            }
        }
        // The rings had to outlive the device.
        state.rings = None;
        self.forget(state);
        Ok(())
    }

    fn take_queue(&self, direction: QueueDirection, queue: QueueId) -> Result<(), DpdkError> {
        let port = self.id();
        let mut state = self.inner.state();
        if !state.started {
            return Err(DpdkError::PortState { port, is: "stopped", must: "started" });
        }
        let direction_name = if direction == QueueDirection::Rx { "rx" } else { "tx" };
        let taken = state.taken(direction);
        let count = u16::try_from(taken.len()).unwrap_or(u16::MAX);
        match taken.get_mut(usize::from(queue.0)) {
            None => Err(DpdkError::UnknownQueue { port, direction: direction_name, queue, count }),
            Some(true) => Err(DpdkError::QueueTaken { port, direction: direction_name, queue }),
            Some(taken) => {
                *taken = true;
                Ok(())
            }
        }
    }

    /// Takes an RX queue of a started port; dropping the handle releases it.
    ///
    /// # Errors
    /// [`DpdkError::PortState`] if the port is not started, [`DpdkError::UnknownQueue`], [`DpdkError::QueueTaken`].
    pub fn take_rx_queue(&self, queue: QueueId) -> Result<RxQueue, DpdkError> {
        self.take_queue(QueueDirection::Rx, queue)?;
        Ok(RxQueue::new(Arc::clone(&self.inner), queue))
    }

    /// Takes a TX queue of a started port, as [`Port::take_rx_queue`].
    pub fn take_tx_queue(&self, queue: QueueId) -> Result<TxQueue, DpdkError> {
        self.take_queue(QueueDirection::Tx, queue)?;
        Ok(TxQueue::new(Arc::clone(&self.inner), queue))
    }
}

/// The error for an unknown port. The caller holds the control lock.
fn unknown(wanted: &str) -> DpdkError {
    DpdkError::UnknownPort { wanted: wanted.into(), known: existing().into_iter().map(name_of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_of_a_nic_that_counts_one_tag_has_room_for_two() {
        assert_eq!(tag_room("net_e1000_em", u16::MAX, 1500), 4);
        assert_eq!(tag_room("net_e1000_igb", 9000, 8998), 2, "what is left below the greatest");
        assert_eq!(tag_room("net_igc", 1500, 1500), 0);
        assert_eq!(tag_room("net_e1000_igb_vf", u16::MAX, 1500), 0, "its PF decides");
        assert_eq!(tag_room("net_i40e", u16::MAX, 1500), 0, "it counts two");
    }
}
