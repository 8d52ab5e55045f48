//! DPDK ports: opens, configures and starts them, waits for their links, reads their statistics, and closes them in order.
//!
//! A port that no tuple of `--config` names only sends. It gets no RX queue, so that its device buffers no received packets; if the
//! driver requires an RX queue, it gets one that nobody polls, with a warning. A port without the multi-segment offload sends no
//! packet longer than an mbuf, so its MTU is reduced to that, and so is that of a port whose driver works on a kernel interface with a
//! smaller one.

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

/// Bytes of an Ethernet header, which an MTU does not include.
const ETHERNET_BYTES: u32 = 14;
/// Bytes of the checksum of a frame, for which some drivers want room.
const CHECKSUM_BYTES: u32 = 4;
/// The MTU of a port that is given none (`RTE_ETHER_MTU`).
const MTU_BYTES: u16 = 1500;
/// Bytes of the two VLAN tags that a frame may have, which `--max-pkt-len` does not include.
const TAGS_BYTES: u32 = 8;
/// What an mbuf takes beside its packet: headroom, its header and that of the pool's object.
const MBUF_BYTES: u64 = 320;
/// What the router's pool, the drivers' queues and the rings take at most, MB.
const OTHERS_MB: u64 = 64;
/// The least and the most packet bytes of an mbuf. Longer frames are chains.
const ROOM_BYTES: (u32, u32) = (2048, 16_384);
/// Mbufs in the mempool cache of an lcore.
const CACHE_MBUFS: u32 = 256;
/// Mbufs of a pool when there is enough memory. It also serves drivers that load a whole capture into the pool.
const MBUFS_ROOMY: u32 = (1 << 17) - 1;
/// How long to wait for links to come up, as in l3fwd.
pub(crate) const LINK_WAIT: Duration = Duration::from_secs(9);

/// The destination MAC of every frame that a port sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EthDest {
    /// The port.
    pub(crate) port: PortRef,
    /// The MAC.
    pub(crate) mac: MacAddr,
}

/// Options for the set-up of ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortSpec {
    /// Receive frames for every MAC.
    pub(crate) promiscuous: bool,
    /// The longest frame, bytes including its Ethernet header; `None` leaves the port's MTU unchanged.
    pub(crate) max_pkt_len: Option<u32>,
    /// MTUs of ports, bytes.
    pub(crate) mtus: Vec<(PortRef, u16)>,
    /// Descriptors of an RX queue.
    pub(crate) rx_queue_size: u16,
    /// Descriptors of a TX queue.
    pub(crate) tx_queue_size: u16,
    /// Mbufs of a pool; `None` is as many as needed, and more if there is enough memory.
    pub(crate) mbufs: Option<u32>,
    /// Destination MACs in place of those of the next hops.
    pub(crate) eth_dest: Vec<EthDest>,
    /// Addresses of ports, which are interfaces of a router then.
    pub(crate) addresses: Vec<PortAddress>,
    /// TAPs of ports, which are interfaces too.
    pub(crate) taps: TapSpec,
}

impl PortSpec {
    /// Whether any port is an interface of a router.
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

/// The driver's statistics of a port.
#[derive(Clone, Debug)]
pub(crate) struct PortCounts {
    /// The port's name.
    pub(crate) name: String,
    /// Whether an lcore receives from it; otherwise it only sends.
    pub(crate) receives: bool,
    /// The statistics; `None` when they cannot be read.
    pub(crate) stats: Option<PortStats>,
}

impl PortCounts {
    /// The statistics of `ports` now; `receives` says which ports an lcore receives from. There are none while a driver is at work.
    pub(crate) fn of(ports: &[Port], receives: &[bool]) -> Vec<Self> {
        let counts = |(port, receives): (&Port, &bool)| Self {
            name: port.label().to_owned(),
            receives: *receives,
            stats: port.try_stats().and_then(Result::ok),
        };
        ports.iter().zip(receives).map(counts).collect()
    }
}

/// Drivers that never report a change of a link. Those that work on a kernel interface have its link.
const WITHOUT_LINK: [&str; 5] = ["net_af_packet", "net_af_xdp", "net_null", "net_pcap", "net_ring"];

/// The attribute of a kernel interface with the state of its link (RFC 2863).
const OPERSTATE: &str = "operstate";

/// The link of a port that may change.
pub(crate) struct Link {
    /// The port's index.
    pub(crate) index: usize,
    /// The port.
    pub(crate) port: Port,
    /// The kernel interface whose link it is, in place of the driver's.
    interface: Option<String>,
}

impl Link {
    /// Whether it is up now; `None` when that cannot be read, or not without waiting for another thread's control call.
    pub(crate) fn is_up(&self) -> Option<bool> {
        match &self.interface {
            // Gone is down.
            Some(interface) => Some(
                of_kernel(interface, OPERSTATE)
                    .is_some_and(|state| matches!(state.as_str(), "up" | "unknown")),
            ),
            None => self.port.try_link()?.ok().map(|link| link.up),
        }
    }
}

/// The ports, configured and started, with their pools.
pub(crate) struct Ports {
    /// By index.
    pub(crate) ports: Vec<Port>,
    /// What the driver granted each port.
    pub(crate) granted: Vec<Granted>,
    /// How each was set up.
    pub(crate) setups: Vec<PortSetup>,
}

impl Ports {
    /// The pools of packets, each once, with the most mbufs that lie in caches of lcores.
    pub(crate) fn pools(&self, plan: &LcorePlan) -> Vec<(Mempool, usize)> {
        let by_name = self.setups.iter().map(|setup| (setup.pool.name(), &setup.pool));
        let by_name: BTreeMap<_, _> = by_name.collect();
        by_name.into_values().map(|pool| (pool.clone(), cached_max(plan))).collect()
    }

    /// Opens the ports that `chosen` names, in this order, or all; never those that belong to another driver. They are called by the names in
    /// `labels`.
    ///
    /// # Errors
    /// When DPDK fails to open one, `chosen` names one that does not exist, or one twice, or two ports would have one name.
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

    /// The most TX queues that every one of `ports` can have.
    ///
    /// # Errors
    /// When a driver does not report its limits.
    pub(crate) fn tx_queues_max(ports: &[Port]) -> Result<u16, DpdkError> {
        let of = |port: &Port| port.device_info().map(|info| info.max_tx_queues);
        ports.iter().map(of).try_fold(u16::MAX, |least, queues| Ok(least.min(queues?)))
    }

    /// Configures and starts all `ports` for `plan`, with batches of at most `batch` packets. Returns their records too.
    ///
    /// # Errors
    /// When a port cannot be set up, or an option names one that does not exist; [`ConfigError::Invalid`] for more RX queues than a
    /// device has, and for too few `--mbufs`.
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
                    "{title} is not in --config, and its driver wants an RX queue: what comes in by it is lost"
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

    /// The descriptors of a TX queue of each port.
    pub(crate) fn tx_descriptors(&self) -> impl Iterator<Item = u16> {
        self.granted.iter().map(|granted| granted.tx_descriptors)
    }

    /// The links of the ports of `records` that may change. Of other devices what another process does can make the link seem down.
    pub(crate) fn links(&self, records: &[PortRecord]) -> Vec<Link> {
        let ports = self.ports.iter().zip(records).enumerate();
        let links = ports.filter_map(|(index, (port, record))| {
            let has_none = WITHOUT_LINK.contains(&port.device_info().ok()?.driver.as_str());
            let interface = record.driver_interface.clone();
            let interface = interface.filter(|name| has_none && of_kernel(name, OPERSTATE).is_some());
            (!has_none || interface.is_some()).then(|| Link { index, port: port.clone(), interface })
        });
        links.collect()
    }

    /// Waits until the link of port `index` is up, until `end`, or until `is_over`. Returns the state of the link.
    ///
    /// # Errors
    /// When the driver cannot report it.
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

    /// Warns if an lcore serves a port on another NUMA node.
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

    /// Stops and closes the ports, in order; a device that was removed is closed.
    ///
    /// # Errors
    /// The first failure; the other ports are closed all the same.
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

/// The indices of the ports that `chosen` refers to, by index, name or device; `names` are the name and the device of each. A device with
/// several ports stands for all of them.
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

/// Configures and starts `port`, with one RX queue if `config` has none but the driver requires one.
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

/// The longest IP packet that a port sends: without the multi-segment offload, as much as one mbuf of `room` bytes holds.
fn mtu_of(granted: &Granted, room: u16) -> u16 {
    if granted.tx_offloads.contains(TxOffloads::MULTI_SEGS) {
        return granted.mtu;
    }
    let headers = u16::try_from(ETHERNET_BYTES + TAGS_BYTES).unwrap_or(u16::MAX);
    granted.mtu.min(room.saturating_sub(headers))
}

/// What the MTU of a port may become that has `mtu_bytes` at the start, and whose kernel interface has `kernel`.
fn mtu_range(spec: &PortSpec, mtu_bytes: u16, kernel: u16) -> MtuRange {
    let max = u16::try_from(u32::from(room(spec)).saturating_sub(frame_bytes(0))).unwrap_or(0).max(mtu_bytes);
    let default = config(spec, None, 0, 0).mtu.unwrap_or(MTU_BYTES);
    MtuRange { default: default.min(kernel).min(max), max }
}

/// Whether `named` means this port.
fn is(port: &Port, index: u16, named: &PortRef) -> bool {
    match named {
        PortRef::ById => false,
        PortRef::Index(named) => *named == index,
        PortRef::Name(name) => port.is_called(name),
    }
}

/// An attribute of a kernel interface, which drivers that work on one do not report.
fn of_kernel(interface: &str, attribute: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/{attribute}")).ok()?;
    Some(text.trim().to_owned())
}

fn config(spec: &PortSpec, mtu: Option<u16>, rx_queues: u16, tx_queues: u16) -> PortConfig {
    let longest = spec.max_pkt_len.map(|bytes| bytes.saturating_sub(ETHERNET_BYTES));
    let mtu = mtu.or(longest.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)));
    // Drivers of NICs have their fast receive and transmit functions only where no chains are asked for.
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

/// Bytes of the longest frame with an IP packet of `mtu_bytes`.
fn frame_bytes(mtu_bytes: u32) -> u32 {
    mtu_bytes + ETHERNET_BYTES + TAGS_BYTES + CHECKSUM_BYTES
}

/// Packet bytes of an mbuf: the longest frame with its tags, within the limits.
fn room(spec: &PortSpec) -> u16 {
    let (least, most) = ROOM_BYTES;
    let frame_bytes = spec.max_pkt_len.map_or(0, |bytes| frame_bytes(bytes.saturating_sub(ETHERNET_BYTES)));
    u16::try_from(frame_bytes.next_multiple_of(64).clamp(least, most)).unwrap_or(u16::MAX)
}

/// The mbufs that a pool must hold. RX rings and batches are counted for the ports of the pool's NUMA node; TX rings and lcore
/// caches are counted in full for every pool, since any mbuf may end up in them.
struct Need {
    /// For each port: its NUMA node, descriptors of its RX rings, packets in its batches.
    ports: Vec<(SocketId, usize, usize)>,
    /// Descriptors of all TX rings.
    tx: usize,
    /// The most that the caches of all lcores hold.
    caches: usize,
    /// The most that are handed over as punts.
    punts: usize,
}

impl Need {
    /// The mbufs for the queues of `plan`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for more RX queues than a port's device has.
    fn new(spec: &PortSpec, ports: &[Port], plan: &LcorePlan, batch: usize) -> anyhow::Result<Self> {
        let batch = batch * if plan.is_pipeline() { BATCHES_PER_INPUT } else { 1 };
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
            // At least one RX ring, since the driver of a port that only sends may require one.
            need.ports.push((
                port.socket(),
                usize::from(queues.max(1)) * rx_queue,
                usize::from(queues) * batch,
            ));
            need.tx += usize::from(plan.senders) * tx_queue;
        }
        Ok(need)
    }

    /// Mbufs that the pool of a node needs so that no RX ring starves even if everything else is full.
    fn mbufs(&self, socket: SocketId) -> usize {
        let here = self.ports.iter().filter(|(at, ..)| *at == socket);
        here.map(|(_, rx, batches)| rx + batches).sum::<usize>() + self.tx + self.caches + self.punts
    }
}

/// The most mbufs of a pool that lie in caches of lcores: a cache may hold 1.5 times its nominal size, and the main lcore has one too.
fn cached_max(plan: &LcorePlan) -> usize {
    (plan.lcores.len() + 1) * CACHE_MBUFS as usize * 3 / 2
}

/// The pool for all ports of a NUMA node.
fn pool(eal: &Eal, socket: SocketId, need: &Need, spec: &PortSpec) -> anyhow::Result<Mempool> {
    let least = u32::try_from(need.mbufs(socket)).unwrap_or(u32::MAX);
    // A mempool of 2^q - 1 objects uses its memory best.
    let needed =
        least.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(u32::MAX, |n| n - 1).max(8191);
    let room = room(spec);
    let make = |mbufs: u32| {
        // The router's thread frees packets of this pool.
        let is_preemptible = spec.has_interfaces();
        let config =
            MempoolConfig { mbufs, cache_mbufs: CACHE_MBUFS, data_room_bytes: room, socket, is_preemptible };
        Mempool::new(eal, &format!("packets{}", socket.0), &config)
    };
    let made = match spec.mbufs {
        Some(mbufs) if mbufs < least => {
            let message = format!(
                "--mbufs {mbufs} is too few: RX and TX rings, batches and caches hold as many as {least} at once; give at least \
                 {least}, or smaller --rx-queue-size, --tx-queue-size or --batch"
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

/// Why a pool could not be made, and how much memory would do.
pub(crate) fn no_memory(eal: &Eal, mbufs: u32, room: u16) -> String {
    let mb = |bytes: u64| bytes.div_ceil(1 << 20);
    // No object of a pool crosses a page, if it fits one.
    let page: u64 = if eal.has_hugepages() { 2 << 20 } else { 4 << 10 };
    let object = u64::from(room) + MBUF_BYTES;
    let object = page.checked_div(page / object).unwrap_or(object.next_multiple_of(page));
    let (has, wanted) = (mb(eal.memory_bytes()), mb(u64::from(mbufs) * object));
    let what = format!("no memory for {mbufs} mbufs of {room} bytes, about {wanted} MB");
    if eal.has_hugepages() {
        return format!("{what}: EAL has {has} MB, reserve as much again in huge pages");
    }
    format!(
        "{what}: with --no-huge, EAL has the {has} MB of its -m, and -m {} is enough",
        has + wanted + OTHERS_MB
    )
}

/// The kernel interface that the EAL arguments give to the driver of a device: `--vdev DEVICE,iface=NAME`.
fn interface_of<'a>(device: &str, eal: &'a [String]) -> Option<&'a str> {
    eal.iter().find_map(|word| {
        let (name, parameters) = word.strip_prefix("--vdev=").unwrap_or(word).split_once(',')?;
        let mut parameters = parameters.split(',').filter(|_| name == device);
        parameters.find_map(|parameter| parameter.strip_prefix("iface="))
    })
}

/// The results of a topology that has ended.
pub(crate) struct Ended {
    /// The counters of each stage, and the first panic.
    pub(crate) finished: Finished,
    /// How long packets flowed, seconds.
    pub(crate) duration_s: f64,
    /// The drivers' statistics.
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
        // An mbuf has room for 2,048 bytes, and a frame has 26 beside its IP packet.
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
        // Mbufs are as long as the longest frame, in steps of 64 bytes.
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
