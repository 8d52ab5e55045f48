//! A port's state: the device, its link, its counters.

use std::ptr;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use crate::c_text::{copy_text, text_of};
use crate::device::{control, try_control};
use crate::error::DpdkError;
use crate::port::Port;
use crate::port_config::{RxOffloads, TxOffloads};
use crate::sys;

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkState {
    /// Whether the link is up.
    pub up: bool,
    /// The speed; `None` if unknown.
    pub speed_mbps: Option<u32>,
    /// Whether the link is full duplex.
    pub full_duplex: bool,
}

/// A port's counters since its start or the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortStats {
    /// Packets received.
    pub ipackets: u64,
    /// Packets sent.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes sent.
    pub obytes: u64,
    /// Packets dropped by the device because its queue was full.
    pub imissed: u64,
    /// Packets received with an error.
    pub ierrors: u64,
    /// Packets that could not be sent.
    pub oerrors: u64,
    /// The number of times that the mempool had no mbuf for a packet.
    pub rx_nombuf: u64,
}

/// The identity and the capabilities of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver, e.g. `net_pcap`.
    pub driver: String,
    /// The device on its bus, e.g. `0000:03:00.0` or `net_pcap0`.
    pub device: String,
    /// The maximum number of RX queues.
    pub max_rx_queues: u16,
    /// The maximum number of TX queues.
    pub max_tx_queues: u16,
    /// The minimum number of descriptors per RX queue.
    pub min_rx_descriptors: u16,
    /// The minimum number of descriptors per TX queue.
    pub min_tx_descriptors: u16,
    /// Supported RX offloads, among those that this crate names.
    pub rx_offloads: RxOffloads,
    /// Supported TX offloads, among those that this crate names.
    pub tx_offloads: TxOffloads,
}

/// A control call whose only argument is the port's number. It does not wait for other control calls, unless the caller passes the lock.
macro_rules! call {
    ($port:ident.$call:ident) => {
        call!($port.$call, $port.controlled_soon()?)
    };
    ($port:ident.$call:ident, $control:expr) => {{
        let _control = $control;
        // SAFETY: takes a number; DPDK checks it.
        let answer = unsafe { sys::$call($port.id().0) };
        DpdkError::check_port($port.id(), stringify!($call), answer).map(drop)
    }};
}

/// A port's state. Each call that returns a result may fail with [`DpdkError::PortCall`], and with [`DpdkError::PortState`] if the port was
/// closed. While another thread makes a control call, of this port or another, `try_` calls fail with [`DpdkError::Busy`] at once; `set_`
/// and `reset_` calls and `Port::xstats` do so after a short wait; other calls wait for its end.
impl Port {
    /// The identity and the capabilities of the device.
    pub fn device_info(&self) -> Result<DeviceInfo, DpdkError> {
        self.device_info_under(control())
    }

    /// [`Self::device_info`] without waiting.
    pub fn try_device_info(&self) -> Result<DeviceInfo, DpdkError> {
        self.device_info_under(try_control().ok_or(DpdkError::Busy)?)
    }

    fn device_info_under(&self, control: MutexGuard<'static, ()>) -> Result<DeviceInfo, DpdkError> {
        let _control = self.open_under(control)?;
        let info = self.raw_info()?;
        // SAFETY: the port exists, so the names of its driver and device exist, and the control lock keeps them until they are copied.
        // rte_dev_name does not check for NULL, so that is done here.
        let (driver, device) = unsafe {
            let device = if info.device.is_null() { ptr::null() } else { sys::rte_dev_name(info.device) };
            (copy_text(info.driver_name), copy_text(device))
        };
        Ok(DeviceInfo {
            driver,
            device,
            max_rx_queues: info.max_rx_queues,
            max_tx_queues: info.max_tx_queues,
            min_rx_descriptors: info.rx_desc_lim.nb_min,
            min_tx_descriptors: info.tx_desc_lim.nb_min,
            rx_offloads: RxOffloads::from_bits_truncate(info.rx_offload_capa),
            tx_offloads: TxOffloads::from_bits_truncate(info.tx_offload_capa),
        })
    }

    /// The current state of the link. The driver reads it, which takes up to milliseconds if it queries a PHY or firmware.
    pub fn link(&self) -> Result<LinkState, DpdkError> {
        self.link_under(control())
    }

    /// [`Self::link`] without waiting.
    pub fn try_link(&self) -> Result<LinkState, DpdkError> {
        self.link_under(try_control().ok_or(DpdkError::Busy)?)
    }

    fn link_under(&self, control: MutexGuard<'static, ()>) -> Result<LinkState, DpdkError> {
        let _control = self.open_under(control)?;
        let mut link = sys::dffi_link::default();
        // SAFETY: `link` is writable for the call.
        let answer = unsafe { sys::dffi_link_get(self.id().0, &raw mut link) };
        DpdkError::check_port(self.id(), "rte_eth_link_get_nowait", answer)?;
        Ok(LinkState {
            up: link.up != 0,
            speed_mbps: Some(link.speed_mbps).filter(|&speed| speed != u32::MAX && speed != 0),
            full_duplex: link.full_duplex != 0,
        })
    }

    /// The number of link changes that drivers have reported for any port. Few report them: no interrupt is requested.
    #[must_use]
    pub fn link_events(&self) -> u64 {
        // SAFETY: reads a number.
        unsafe { sys::dffi_link_events() }
    }

    /// Waits for the link to come up, at most `limit`; returns its last state.
    pub fn wait_link(&self, limit: Duration) -> Result<LinkState, DpdkError> {
        let end = Instant::now() + limit;
        loop {
            let link = self.link()?;
            if link.up || Instant::now() >= end {
                return Ok(link);
            }
            // Negotiation takes seconds; ten polls a second are fast enough and no load.
            std::thread::sleep(Duration::from_millis(100).min(limit));
        }
    }

    /// The MAC address.
    pub fn mac_addr(&self) -> Result<[u8; 6], DpdkError> {
        let _control = self.controlled()?;
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: `mac` is writable for the call.
        let answer = unsafe { sys::rte_eth_macaddr_get(self.id().0, &raw mut mac) };
        DpdkError::check_port(self.id(), "rte_eth_macaddr_get", answer)?;
        Ok(mac.addr_bytes)
    }

    /// The MTU in bytes: the longest IP packet, whose frame may have two VLAN tags.
    pub fn mtu(&self) -> Result<u16, DpdkError> {
        let _control = self.controlled()?;
        let room = self.inner.state().tag_room;
        self.mtu_without(room)
    }

    /// Sets the MTU, in bytes, of a configured port. Many drivers can do so while the port runs.
    ///
    /// # Errors
    /// [`DpdkError::PortCall`], with errno 95 (`ENOTSUP`) if the driver cannot set it, 16 (`EBUSY`) if the port must be stopped, and 22
    /// (`EINVAL`) if the device or its queues do not support it; [`DpdkError::Busy`].
    pub fn set_mtu(&self, mtu: u16) -> Result<(), DpdkError> {
        let _control = self.controlled_soon()?;
        let room = self.tag_room(&self.raw_info()?, mtu);
        // SAFETY: takes numbers; DPDK checks them.
        let answer = unsafe { sys::rte_eth_dev_set_mtu(self.id().0, mtu + room) };
        DpdkError::check_port(self.id(), "rte_eth_dev_set_mtu", answer)?;
        self.inner.state().tag_room = room;
        Ok(())
    }

    /// Receives every frame (`true`) or only frames for this port's MAC address; errno 95 (`ENOTSUP`) if the device has no choice.
    pub fn set_promiscuous(&self, on: bool) -> Result<(), DpdkError> {
        if on { call!(self.rte_eth_promiscuous_enable) } else { call!(self.rte_eth_promiscuous_disable) }
    }

    /// Receives the frames of all multicast groups too; errno 95 (`ENOTSUP`) if the device has no choice.
    pub fn receive_all_groups(&self) -> Result<(), DpdkError> {
        call!(self.rte_eth_allmulticast_enable, self.controlled()?)
    }

    /// Returns whether it receives every frame.
    #[must_use]
    pub fn is_promiscuous(&self) -> bool {
        // SAFETY: takes a number; DPDK checks it.
        unsafe { sys::rte_eth_promiscuous_get(self.id().0) == 1 }
    }

    /// Switches the link on or off at this end; errno 95 (`ENOTSUP`) if the device cannot.
    pub fn set_link(&self, up: bool) -> Result<(), DpdkError> {
        if up { call!(self.rte_eth_dev_set_link_up) } else { call!(self.rte_eth_dev_set_link_down) }
    }

    /// Sets the counters of [`Self::stats`] to 0.
    pub fn reset_stats(&self) -> Result<(), DpdkError> {
        call!(self.rte_eth_stats_reset)
    }

    /// Sets the counters of [`Self::xstats`] to 0.
    pub fn reset_xstats(&self) -> Result<(), DpdkError> {
        call!(self.rte_eth_xstats_reset)
    }

    /// All counters of the device, by the driver's names.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        let _control = self.controlled_soon()?;
        let port = self.id().0;
        let (names_call, values_call) = ("rte_eth_xstats_get_names", "rte_eth_xstats_get");
        // SAFETY: with no array the call only returns how many there are.
        let count = unsafe { sys::rte_eth_xstats_get_names(port, ptr::null_mut(), 0) };
        let count = DpdkError::check_port(self.id(), names_call, count)?;
        let mut names = vec![sys::rte_eth_xstat_name { name: [0; _] }; count as usize];
        let mut values = vec![sys::rte_eth_xstat::default(); count as usize];
        // SAFETY: both arrays have `count` entries and are writable for the calls.
        let answers = unsafe {
            (
                sys::rte_eth_xstats_get_names(port, names.as_mut_ptr(), count),
                sys::rte_eth_xstats_get(port, values.as_mut_ptr(), count),
            )
        };
        DpdkError::check_port(self.id(), names_call, answers.0)?;
        let filled = DpdkError::check_port(self.id(), values_call, answers.1)?.min(count);
        let named = |stat: &sys::rte_eth_xstat| {
            let name = names.get(usize::try_from(stat.id).ok()?)?;
            Some((text_of(&name.name), stat.value))
        };
        Ok(values[..filled as usize].iter().filter_map(named).collect())
    }

    /// The counters.
    pub fn stats(&self) -> Result<PortStats, DpdkError> {
        self.stats_under(control())
    }

    /// [`Self::stats`] without waiting.
    pub fn try_stats(&self) -> Result<PortStats, DpdkError> {
        self.stats_under(try_control().ok_or(DpdkError::Busy)?)
    }

    fn stats_under(&self, control: MutexGuard<'static, ()>) -> Result<PortStats, DpdkError> {
        let _control = self.open_under(control)?;
        let mut raw = sys::rte_eth_stats::default();
        // SAFETY: `raw` is writable for the call.
        let answer = unsafe { sys::rte_eth_stats_get(self.id().0, &raw mut raw) };
        DpdkError::check_port(self.id(), "rte_eth_stats_get", answer)?;
        Ok(PortStats {
            ipackets: raw.ipackets,
            opackets: raw.opackets,
            ibytes: raw.ibytes,
            obytes: raw.obytes,
            imissed: raw.imissed,
            ierrors: raw.ierrors,
            oerrors: raw.oerrors,
            rx_nombuf: raw.rx_nombuf,
        })
    }
}
