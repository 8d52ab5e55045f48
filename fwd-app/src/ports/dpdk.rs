//! DPDK ports: opens, configures, starts and closes them; links and statistics.
//!
//! A port in no tuple of `--config` only sends. It gets no RX queue, or one that is never polled if its driver requires it. An MTU is limited
//! by the mbuf size without the multi-segment offload, and the default MTU also by the kernel interface that the driver uses.

use super::PortRecord;
use super::address::PortAddress;
use super::devices::PortSetup;
use super::record::MtuRange;
use super::taps::TapSpec;
use crate::datapath::egress::Named;
use crate::error::ConfigError;
use crate::notice::warn;
use crate::topology::QueueLcore;
use crate::topology::pipeline::BATCHES_PER_INPUT;
use crate::topology::plan::LcorePlan;
use crate::topology::punts::held_max;
use crate::topology::running::Finished;
use anyhow::Context as _;
use dpdk_ffi::{
    DpdkError, Eal, Granted, LcoreId, LinkState, Mempool, MempoolConfig, Port, PortConfig, PortStats,
    RxOffloads, SocketId, TxOffloads,
};
use fib::{MacAddr, PortRef};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ETHERNET_BYTES: u32 = 14;
/// The frame check sequence, for which some drivers need room.
const CHECKSUM_BYTES: u32 = 4;
/// The default MTU (`RTE_ETHER_MTU`).
const MTU_BYTES: u16 = 1500;
/// Two VLAN tags, not part of `--max-pkt-len`.
const TAGS_BYTES: u32 = 8;
/// Overhead of an mbuf: headroom, its header and the mempool's.
const MBUF_BYTES: u64 = 320;
/// Upper bound of the router's pool, drivers' queues and rings, MB.
const OTHERS_MB: u64 = 64;
/// Least and greatest data room of an mbuf. Longer frames are chains.
const ROOM_BYTES: (u32, u32) = (2048, 16_384);
/// Pool size with ample memory. It also suffices for drivers that load a whole capture into the pool.
const MBUFS_ROOMY: u32 = (1 << 17) - 1;
/// How long to wait for links, as in l3fwd.
pub(crate) const LINK_WAIT: Duration = Duration::from_secs(9);

/// A fixed destination MAC for all frames of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthDest {
    pub(crate) port: PortRef,
    pub(crate) mac: MacAddr,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PortSpec {
    pub(crate) promiscuous: bool,
    /// The longest frame with its Ethernet header, bytes; `None` keeps the port's MTU.
    pub(crate) max_pkt_len: Option<u32>,
    /// MTUs of ports, bytes.
    pub(crate) mtus: Vec<(PortRef, u16)>,
    pub(crate) rx_queue_size: u16,
    pub(crate) tx_queue_size: u16,
    /// Mbufs per pool; `None` for the required number, and more with ample memory.
    pub(crate) mbufs: Option<u32>,
    pub(crate) eth_dest: Vec<EthDest>,
    pub(crate) addresses: Vec<PortAddress>,
    pub(crate) taps: TapSpec,
}

impl PortSpec {
    fn has_interfaces(&self) -> bool {
        !self.addresses.is_empty() || !self.taps.taps.is_empty()
    }
}

impl Named for Port {
    fn name(&self) -> &str {
        self.label()
    }

    fn device(&self) -> &str {
        Self::name(self)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PortCounts {
    pub(crate) name: String,
    pub(crate) receives: bool,
    /// `None` when they cannot be read.
    pub(crate) stats: Option<PortStats>,
}

impl PortCounts {
    /// Statistics of `ports`; `receives` marks the ports that an lcore receives from. Busy drivers give none.
    pub(crate) fn read_all(ports: &[Port], receives: &[bool]) -> Vec<Self> {
        let counts = |(port, receives): (&Port, &bool)| Self {
            name: port.label().to_owned(),
            receives: *receives,
            stats: port.try_stats().ok(),
        };
        ports.iter().zip(receives).map(counts).collect()
    }
}

/// Drivers that report no link changes. Those on a kernel interface use its link state.
const WITHOUT_LINK: [&str; 5] = ["net_af_packet", "net_af_xdp", "net_null", "net_pcap", "net_ring"];

/// Sysfs attribute of a kernel interface with its operational state (RFC 2863).
const OPERSTATE: &str = "operstate";

pub(crate) struct PortLink {
    pub(crate) index: usize,
    pub(crate) port: Port,
    /// The kernel interface that provides the link state instead of the driver.
    interface: Option<String>,
}

impl PortLink {
    /// `None` when it cannot be read, or only by waiting for another thread's control call.
    pub(crate) fn is_up(&self) -> Option<bool> {
        match &self.interface {
            // A vanished interface is down.
            Some(interface) => Some(
                of_kernel(interface, OPERSTATE)
                    .is_some_and(|state| matches!(state.as_str(), "up" | "unknown")),
            ),
            None => self.port.try_link().ok().map(|link| link.up),
        }
    }
}

pub(crate) struct Ports {
    pub(crate) ports: Vec<Port>,
    pub(crate) granted: Vec<Granted>,
    pub(crate) setups: Vec<PortSetup>,
}

impl Ports {
    /// The packet pools, each with the maximum of mbufs in lcore caches.
    pub(crate) fn pools(&self, plan: &LcorePlan) -> Vec<(Mempool, usize)> {
        let by_name = self.setups.iter().map(|setup| (setup.pool.name(), &setup.pool));
        let by_name: BTreeMap<_, _> = by_name.collect();
        by_name.into_values().map(|pool| (pool.clone(), cached_max(plan))).collect()
    }

    /// Opens the ports in `chosen`, in this order, or all, except ports of other drivers; names them by `labels`.
    ///
    /// # Errors
    /// DPDK fails to open one, `chosen` names a missing port or one twice, or two ports would have the same name.
    pub(crate) fn open(
        eal: &Eal,
        chosen: &[PortRef],
        labels: &[(PortRef, String)],
    ) -> anyhow::Result<Vec<Port>> {
        let ports = Self::open_chosen(eal, chosen)?;
        for (of, label) in labels {
            let all = || (0..).zip(&ports);
            let Some((index, port)) = all().find(|(index, port)| is(port, *index, of)) else {
                let known: Vec<_> = all().map(|(index, port)| format!("{index} ({})", port.name())).collect();
                let message = format!(
                    "--port-name {of}={label}: there is no port {of}; there are: {}",
                    known.join(", ")
                );
                return Err(ConfigError::NoDevice(message).into());
            };
            let name = PortRef::Name(label.clone());
            if let Some((at, other)) = all().find(|(at, other)| *at != index && is(other, *at, &name)) {
                let message = format!("--port-name {of}={label}: {} has this name", other.title(at));
                return Err(ConfigError::Invalid(message).into());
            }
            if !port.set_label(label) {
                let message = format!("--port-name {of}={label}: {} has a name already", port.title(index));
                return Err(ConfigError::Invalid(message).into());
            }
        }
        Ok(ports)
    }

    fn open_chosen(eal: &Eal, chosen: &[PortRef]) -> anyhow::Result<Vec<Port>> {
        let there = eal.ports().into_iter().map(|id| Port::open(eal, id)).collect::<Result<Vec<_>, _>>()?;
        if chosen.is_empty() {
            return Ok(there);
        }
        let names = there
            .iter()
            .map(|port| Ok([port.name().to_owned(), port.device_info().map(|info| info.device)?]));
        let names = names.collect::<Result<Vec<_>, DpdkError>>()?;
        Ok(choose(chosen, &names)?.into_iter().map(|index| there[index].clone()).collect())
    }

    /// The largest number of TX queues that all `ports` support.
    ///
    /// # Errors
    /// A driver does not report its limits.
    pub(crate) fn tx_queues_max(ports: &[Port]) -> Result<u16, DpdkError> {
        let of = |port: &Port| port.device_info().map(|info| info.max_tx_queues);
        ports.iter().map(of).try_fold(u16::MAX, |least, queues| Ok(least.min(queues?)))
    }

    /// Configures and starts `ports` for `plan`, with batches of up to `batch` packets. Returns their records too.
    ///
    /// # Errors
    /// A port cannot be set up or is missing; [`ConfigError::Invalid`] for more RX queues than a device has, or too few `--mbufs`.
    pub(crate) fn set_up(
        eal: &Eal,
        ports: Vec<Port>,
        plan: &LcorePlan,
        spec: &PortSpec,
        batch: usize,
        eal_arguments: &[String],
    ) -> anyhow::Result<(Self, Vec<PortRecord>)> {
        let destinations = spec.eth_dest.iter().map(|to| ("--eth-dest", to.port.clone()));
        let mtus = spec.mtus.iter().map(|(port, _)| ("--mtu", port.clone()));
        for (option, named) in destinations.chain(mtus) {
            if !(0..).zip(&ports).any(|(index, port)| is(port, index, &named)) {
                let there = ports.len();
                let message = format!("{option} names port {named}, but there are {there}");
                return Err(ConfigError::NoDevice(message).into());
            }
        }
        let need = Need::new(spec, &ports, plan, batch)?;
        let mut pools: Vec<(SocketId, Mempool)> = Vec::new();
        let (mut granted, mut records, mut setups) = (Vec::new(), Vec::new(), Vec::new());
        for (index, port) in (0..).zip(&ports) {
            let socket = port.socket();
            let pool = match pools.iter().find(|(at, _)| *at == socket) {
                Some((_, pool)) => pool.clone(),
                None => {
                    let pool = pool(eal, socket, &need, spec)?;
                    pools.push((socket, pool.clone()));
                    pool
                }
            };
            let title = port.title(index);
            let queues = plan.rx_queues(index);
            let mtu = spec.mtus.iter().rfind(|(named, _)| is(port, index, named)).map(|(_, mtu)| *mtu);
            let config = config(spec, mtu, queues, plan.senders);
            let got = start(port, &config, &pool).with_context(|| format!("cannot start {title}"))?;
            setups.push(PortSetup { config: PortConfig { rx_queues: got.rx_queues, ..config }, pool });
            if queues == 0 && got.rx_queues > 0 {
                warn(format_args!(
                    "{title} is not in --config, but its driver needs an RX queue: received packets are lost"
                ));
            }
            let mac = port.mac_addr().with_context(|| format!("{title} has no MAC address"))?;
            let interface = interface_of(port.name(), eal_arguments);
            let kernel = interface.and_then(|name| of_kernel(name, "mtu"));
            let kernel = kernel.and_then(|mtu| mtu.parse().ok()).unwrap_or(u16::MAX);
            let mtu_bytes = mtu_of(&got, room(spec)).min(if mtu.is_none() { kernel } else { u16::MAX });
            let mut record = PortRecord::new(index, port.label().to_owned(), MacAddr(mac), mtu_bytes);
            record.device = port.name().to_owned();
            record.mtu_range = mtu_range(spec, mtu_bytes, kernel);
            record.destination =
                spec.eth_dest.iter().find(|dest| is(port, index, &dest.port)).map(|dest| dest.mac);
            record.driver_interface = interface.map(str::to_owned);
            records.push(record);
            granted.push(got);
        }
        Ok((Self { ports, granted, setups }, records))
    }

    pub(crate) fn tx_descriptors(&self) -> impl Iterator<Item = u16> {
        self.granted.iter().map(|granted| granted.tx_descriptors)
    }

    /// Links of `records` that may change. Leaves out devices whose link other processes can make appear down.
    pub(crate) fn links(&self, records: &[PortRecord]) -> Vec<PortLink> {
        let ports = self.ports.iter().zip(records).enumerate();
        let links = ports.filter_map(|(index, (port, record))| {
            let has_none = WITHOUT_LINK.contains(&port.device_info().ok()?.driver.as_str());
            let interface = record.driver_interface.clone();
            let interface = interface.filter(|name| has_none && of_kernel(name, OPERSTATE).is_some());
            (!has_none || interface.is_some()).then(|| PortLink { index, port: port.clone(), interface })
        });
        links.collect()
    }

    /// Waits until the link of port `index` is up, until `end`, or until `is_over`. Returns the link state.
    ///
    /// # Errors
    /// The driver cannot report it.
    pub(crate) fn await_link(
        &self,
        index: usize,
        end: Instant,
        is_over: impl Fn() -> bool,
    ) -> Result<LinkState, DpdkError> {
        loop {
            let link = self.ports[index].wait_link(Duration::ZERO)?;
            if link.up || Instant::now() >= end || is_over() {
                return Ok(link);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn warn_of_sockets(&self, eal: &Eal, plan: &LcorePlan) {
        for QueueLcore { port, lcore, .. } in plan.map.tuples() {
            let (index, Some(port)) = (*port, self.ports.get(usize::from(*port))) else { continue };
            let (of_port, of_lcore) = (port.socket(), eal.lcore_socket(LcoreId(u32::from(*lcore))));
            if let Ok(of_lcore) = of_lcore
                && of_port != SocketId::ANY
                && of_lcore != of_port
            {
                warn(format_args!(
                    "{} is on NUMA node {of_port}, its lcore {lcore} on {of_lcore}",
                    port.title(index)
                ));
            }
        }
    }

    /// Stops and closes the ports in order; a removed device is only closed.
    ///
    /// # Errors
    /// The first failure; the remaining ports are closed too.
    pub(crate) fn close(self) -> Result<(), DpdkError> {
        let mut result = Ok(());
        for port in self.ports.iter().filter(|port| port.is_open()) {
            let closed = port.close();
            if result.is_ok() {
                result = closed;
            }
        }
        result
    }
}

/// Resolves `chosen` to indices, by index, name or device; `names` holds name and device of each port. A device stands for all its ports.
fn choose(chosen: &[PortRef], names: &[[String; 2]]) -> Result<Vec<usize>, ConfigError> {
    let mut all: Vec<usize> = Vec::new();
    for port in chosen {
        let found: Vec<_> = match port {
            PortRef::ById => Vec::new(),
            PortRef::Index(index) => {
                (usize::from(*index) < names.len()).then_some(usize::from(*index)).into_iter().collect()
            }
            PortRef::Name(name) => {
                let is_it = |known: &String| fib::is_port_name(known, name);
                (0..names.len()).filter(|index| names[*index].iter().any(is_it)).collect()
            }
        };
        if found.is_empty() {
            let known = names.iter().enumerate().map(|(index, [name, _])| format!("{index} ({name})"));
            let known =
                if names.is_empty() { "none".to_owned() } else { known.collect::<Vec<_>>().join(", ") };
            return Err(ConfigError::NoDevice(format!(
                "--ports {port}: there is no such port; there are: {known}"
            )));
        }
        if let Some(twice) = found.iter().find(|index| all.contains(index)) {
            let message = format!("--ports {port}: port {twice} ({}) is named twice", names[*twice][0]);
            return Err(ConfigError::Invalid(message));
        }
        all.extend(found);
    }
    Ok(all)
}

/// Configures and starts `port`, with one RX queue if the driver insists.
fn start(port: &Port, config: &PortConfig, pool: &Mempool) -> Result<Granted, DpdkError> {
    let start = |config: &PortConfig| {
        let granted = port.configure(config, std::slice::from_ref(pool))?;
        port.start().map(|()| granted)
    };
    match start(config) {
        Err(_) if config.rx_queues == 0 => start(&PortConfig { rx_queues: 1, ..config.clone() }),
        result => result,
    }
}

/// The longest IP packet that a port sends: without the multi-segment offload it must fit an mbuf of `room` bytes.
fn mtu_of(granted: &Granted, room: u16) -> u16 {
    if granted.tx_offloads.contains(TxOffloads::MULTI_SEGS) {
        return granted.mtu;
    }
    let headers = u16::try_from(ETHERNET_BYTES + TAGS_BYTES).unwrap_or(u16::MAX);
    granted.mtu.min(room.saturating_sub(headers))
}

fn mtu_range(spec: &PortSpec, mtu_bytes: u16, kernel: u16) -> MtuRange {
    let max = u16::try_from(u32::from(room(spec)).saturating_sub(frame_bytes(0))).unwrap_or(0).max(mtu_bytes);
    let default = config(spec, None, 0, 0).mtu.unwrap_or(MTU_BYTES);
    MtuRange { default: default.min(kernel).min(max), max }
}

fn is(port: &Port, index: u16, named: &PortRef) -> bool {
    match named {
        PortRef::ById => false,
        PortRef::Index(named) => *named == index,
        PortRef::Name(name) => port.is_called(name),
    }
}

/// Reads an attribute of a kernel interface, which drivers on it do not report.
fn of_kernel(interface: &str, attribute: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{attribute}")).ok()?;
    Some(text.trim().to_owned())
}

fn config(spec: &PortSpec, mtu: Option<u16>, rx_queues: u16, tx_queues: u16) -> PortConfig {
    let longest = spec.max_pkt_len.map(|bytes| bytes.saturating_sub(ETHERNET_BYTES));
    let mtu = mtu.or(longest.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)));
    // NIC drivers use their fast RX and TX functions only without chains.
    let is_chained = frame_bytes(mtu.unwrap_or(MTU_BYTES).into()) > room(spec).into();
    PortConfig {
        rx_queues,
        tx_queues,
        rx_descriptors: spec.rx_queue_size,
        tx_descriptors: spec.tx_queue_size,
        mtu,
        rx_offloads: if is_chained { RxOffloads::SCATTER } else { RxOffloads::empty() },
        tx_offloads: if is_chained { TxOffloads::MULTI_SEGS } else { TxOffloads::empty() },
        promiscuous: spec.promiscuous,
        ..PortConfig::default()
    }
}

fn frame_bytes(mtu_bytes: u32) -> u32 {
    mtu_bytes + ETHERNET_BYTES + TAGS_BYTES + CHECKSUM_BYTES
}

/// Data room of an mbuf: the longest frame with tags, within the limits.
fn room(spec: &PortSpec) -> u16 {
    let (least, most) = ROOM_BYTES;
    let frame_bytes = spec.max_pkt_len.map_or(0, |bytes| frame_bytes(bytes.saturating_sub(ETHERNET_BYTES)));
    u16::try_from(frame_bytes.next_multiple_of(64).clamp(least, most)).unwrap_or(u16::MAX)
}

/// Mbufs required of a pool. RX rings and batches count for the ports of the pool's NUMA node; TX rings, what a port holds back behind
/// them, and lcore caches count for every pool, since any mbuf may end up there.
struct Need {
    /// For each port: NUMA node, RX descriptors, packets in batches.
    ports: Vec<(SocketId, usize, usize)>,
    tx: usize,
    caches: usize,
    /// Maximum in punt rings and the router.
    punts: usize,
}

impl Need {
    /// # Errors
    /// [`ConfigError::Invalid`] for more RX queues than a port's device has.
    fn new(spec: &PortSpec, ports: &[Port], plan: &LcorePlan, batch: usize) -> anyhow::Result<Self> {
        let (batches, held) =
            if plan.is_pipeline() { (batch * BATCHES_PER_INPUT, batch) } else { (batch, 0) };
        let caches = cached_max(plan);
        let punts = held_max(spec.addresses.len() + spec.taps.taps.len());
        let mut need = Self { ports: Vec::with_capacity(ports.len()), tx: 0, caches, punts };
        for (index, port) in (0..).zip(ports) {
            let (queues, info) = (plan.rx_queues(index), port.device_info()?);
            if queues > info.max_rx_queues {
                let (name, limit) = (port.label(), info.max_rx_queues);
                let message = format!(
                    "--config gives port {index} ({name}) {queues} RX queues, but the device has {limit}"
                );
                return Err(ConfigError::Invalid(message).into());
            }
            let rx_queue = usize::from(spec.rx_queue_size.max(info.min_rx_descriptors));
            let tx_queue = usize::from(spec.tx_queue_size.max(info.min_tx_descriptors));
            // A port that only sends may still need an RX ring for its driver.
            need.ports.push((
                port.socket(),
                usize::from(queues.max(1)) * rx_queue,
                usize::from(queues) * batches,
            ));
            need.tx += usize::from(plan.senders) * (tx_queue + held);
        }
        Ok(need)
    }

    /// Mbufs of a node's pool such that no RX ring starves when everything else is full.
    fn mbufs(&self, socket: SocketId) -> usize {
        let here = self.ports.iter().filter(|(at, ..)| *at == socket);
        here.map(|(_, rx, batches)| rx + batches).sum::<usize>() + self.tx + self.caches + self.punts
    }
}

/// Maximum of a pool's mbufs in caches; the main lcore has one too.
fn cached_max(plan: &LcorePlan) -> usize {
    MempoolConfig::cached_max(plan.lcores.len() + 1)
}

fn pool(eal: &Eal, socket: SocketId, need: &Need, spec: &PortSpec) -> anyhow::Result<Mempool> {
    let least = u32::try_from(need.mbufs(socket)).unwrap_or(u32::MAX);
    // 2^q - 1 is the optimum size of a mempool.
    let needed =
        least.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(u32::MAX, |n| n - 1).max(8191);
    let room = room(spec);
    let make = |mbufs: u32| {
        // The router's thread, which may be preempted, frees packets of this pool.
        let is_preemptible = spec.has_interfaces();
        let cache_mbufs = MempoolConfig::CACHE_MBUFS;
        let config = MempoolConfig { mbufs, cache_mbufs, data_room_bytes: room, socket, is_preemptible };
        Mempool::new(eal, &format!("packets{}", socket.0), &config)
    };
    let made = match spec.mbufs {
        Some(mbufs) if mbufs < least => {
            let message = format!(
                "--mbufs {mbufs} is too few: RX and TX rings, batches and caches can hold {least} together; give at least \
                 {least}, or a smaller --rx-queue-size, --tx-queue-size or --batch"
            );
            return Err(ConfigError::Invalid(message).into());
        }
        Some(mbufs) => make(mbufs),
        None if needed < MBUFS_ROOMY && eal.has_hugepages() => make(MBUFS_ROOMY).or_else(|_| make(needed)),
        None => make(needed),
    };
    made.with_context(|| {
        let why = no_memory(eal, spec.mbufs.unwrap_or(needed), room);
        format!("{why}; or give smaller --mbufs, --rx-queue-size or --tx-queue-size")
    })
}

pub(crate) fn no_memory(eal: &Eal, mbufs: u32, room: u16) -> String {
    let mb = |bytes: u64| bytes.div_ceil(1 << 20);
    // A mempool object does not cross pages if it fits in one.
    let page: u64 = if eal.has_hugepages() { 2 << 20 } else { 4 << 10 };
    let object = u64::from(room) + MBUF_BYTES;
    let object = page.checked_div(page / object).unwrap_or(object.next_multiple_of(page));
    let (has, wanted) = (mb(eal.memory_bytes()), mb(u64::from(mbufs) * object));
    let what = format!("no memory for {mbufs} mbufs of {room} bytes, about {wanted} MB");
    if eal.has_hugepages() {
        return format!("{what}: EAL has {has} MB; reserve as much more in huge pages");
    }
    format!(
        "{what}: with --no-huge, EAL has the {has} MB of its -m, and -m {} is enough",
        has + wanted + OTHERS_MB
    )
}

/// The kernel interface of a device, from the EAL arguments: `--vdev DEVICE,iface=NAME`.
fn interface_of<'a>(device: &str, eal: &'a [String]) -> Option<&'a str> {
    eal.iter().find_map(|word| {
        let (name, parameters) = word.strip_prefix("--vdev=").unwrap_or(word).split_once(',')?;
        let mut parameters = parameters.split(',').filter(|_| name == device);
        parameters.find_map(|parameter| parameter.strip_prefix("iface="))
    })
}

pub(crate) struct Ended {
    pub(crate) finished: Finished,
    pub(crate) duration_s: f64,
    pub(crate) ports: Vec<PortCounts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_of_a_driver() {
        let eal = ["--vdev", "net_af_packet0,blocksz=4096,iface=v0", "--vdev=net_af_packet1,iface=v1"];
        let eal = eal.map(str::to_owned);
        assert_eq!(interface_of("net_af_packet0", &eal), Some("v0"));
        assert_eq!(interface_of("net_af_packet1", &eal), Some("v1"));
        assert_eq!(interface_of("net_af_packet", &eal), None);
        assert_eq!(of_kernel("no-such-if", "mtu"), None);
    }

    #[test]
    fn chains_are_asked_for_only_where_a_frame_does_not_fit_an_mbuf() {
        let asked = |max_pkt_len, mtu| {
            let config = config(&PortSpec { max_pkt_len, ..PortSpec::default() }, mtu, 1, 1);
            (config.rx_offloads, config.tx_offloads)
        };
        let (none, both) =
            ((RxOffloads::empty(), TxOffloads::empty()), (RxOffloads::SCATTER, TxOffloads::MULTI_SEGS));
        assert_eq!(asked(None, None), none);
        assert_eq!(asked(Some(1518), None), none);
        // An mbuf has 2,048 bytes, and a frame 26 in addition to its IP packet.
        assert_eq!(asked(None, Some(2022)), none);
        assert_eq!(asked(None, Some(2023)), both);
        assert_eq!(asked(Some(9018), None), none, "mbufs are as long as the longest frame");
        assert_eq!(asked(Some(9018), Some(1400)), none);
        assert_eq!(asked(Some(16_370), None), none);
        assert_eq!(asked(Some(16_384), None), both, "but not longer than 16 KiB");
    }

    #[test]
    fn an_mtu_may_become_what_an_mbuf_holds_or_what_it_was() {
        let range = |max_pkt_len, mtu_bytes, kernel| {
            let MtuRange { default, max } =
                mtu_range(&PortSpec { max_pkt_len, ..PortSpec::default() }, mtu_bytes, kernel);
            (default, max)
        };
        assert_eq!(range(None, 1500, u16::MAX), (1500, 2022));
        assert_eq!(range(None, 9000, u16::MAX), (1500, 9000), "it has chains");
        assert_eq!(range(None, 1400, 1400), (1400, 2022));
        // The data room follows the longest frame, in steps of 64 bytes.
        assert_eq!(range(Some(9018), 1500, u16::MAX), (9004, 9062));
        assert_eq!(range(Some(1018), 1004, u16::MAX), (1004, 2022));
    }

    #[test]
    fn ports_are_chosen_by_name_device_or_index_in_the_order_given() {
        let names = [
            ["0000:03:00.0"; 2],
            ["net_tap0"; 2],
            ["0000:04:00.0_p0", "0000:04:00.0"],
            ["0000:04:00.0_p1", "0000:04:00.0"],
        ];
        let names = names.map(|names| names.map(str::to_owned));
        let chosen = |text: &str| {
            let ports: Vec<_> = text.split(',').map(PortRef::parse).collect();
            choose(&ports, &names).map_err(|error| error.to_string())
        };
        assert_eq!(chosen("net_tap0,03:00.0"), Ok(vec![1, 0]));
        assert_eq!(chosen("3,0000:03:00.0,1"), Ok(vec![3, 0, 1]));
        assert_eq!(chosen("0000:04:00.0"), Ok(vec![2, 3]), "both ports of the device");
        assert_eq!(chosen("0000:04:00.0_p1"), Ok(vec![3]));
        let known = "there are: 0 (0000:03:00.0), 1 (net_tap0), 2 (0000:04:00.0_p0), 3 (0000:04:00.0_p1)";
        assert_eq!(chosen("0,05:00.0"), Err(format!("--ports 05:00.0: there is no such port; {known}")));
        assert_eq!(chosen("4"), Err(format!("--ports 4: there is no such port; {known}")));
        assert_eq!(
            chosen("0,03:00.0"),
            Err("--ports 03:00.0: port 0 (0000:03:00.0) is named twice".to_owned())
        );
        assert!(choose(&[PortRef::Index(0)], &[]).unwrap_err().to_string().ends_with("there are: none"));
    }
}
