//! DPDK ports: found, configured, started, their links awaited, counted, and closed in order.
//!
//! A port that no tuple of `--config` names sends only. It gets no RX queue, so that its device keeps nothing for us; where a driver
//! wants one all the same, the port gets one that nobody polls, with a warning. A port that takes no chains sends no packet that is
//! longer than an mbuf: its MTU is less then.

use crate::datapath::EgressPort;
use crate::error::ConfigError;
use crate::notice::warn;
use crate::topology::QueueLcore;
use crate::topology::pipeline::BATCHES_PER_INPUT;
use crate::topology::plan::Plan;
use anyhow::Context as _;
use dpdk_ffi::{
    DpdkError, Eal, Granted, LcoreId, LinkState, Mempool, MempoolConfig, Port, PortConfig, PortStats,
    SocketId, TxOffloads,
};
use fib::MacAddr;
use std::time::{Duration, Instant};

/// Bytes of an Ethernet header; an MTU does not count them.
const ETHERNET_BYTES: u32 = 14;
/// Bytes of the two VLAN tags that a frame may have; `--max-pkt-len` does not count them.
const TAGS_BYTES: u32 = 8;
/// Bytes of packet that an mbuf holds at least and at most. Longer frames are chains.
const ROOM_BYTES: (u32, u32) = (2048, 16_384);
/// Mbufs that an lcore keeps for itself.
const CACHE_MBUFS: u32 = 256;
/// Mbufs of a pool when there is memory: also for drivers that load a whole capture into it.
const MBUFS_ROOMY: u32 = (1 << 17) - 1;
/// How long links may take to come up; as l3fwd waits.
pub(crate) const LINK_WAIT: Duration = Duration::from_secs(9);

/// The destination MAC of everything that leaves by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EthDest {
    /// The port's index.
    pub(crate) port: u16,
    /// The MAC.
    pub(crate) mac: MacAddr,
}

/// How ports are set up.
#[derive(Clone, Debug)]
pub(crate) struct PortSpec {
    /// Receive frames for every MAC.
    pub(crate) promiscuous: bool,
    /// Longest frame, bytes with its Ethernet header; the port's MTU as it is when `None`.
    pub(crate) max_pkt_len: Option<u32>,
    /// Descriptors of an RX queue.
    pub(crate) rx_queue_size: u16,
    /// Descriptors of a TX queue.
    pub(crate) tx_queue_size: u16,
    /// Mbufs of a pool; what is needed, and more where there is memory, when `None`.
    pub(crate) mbufs: Option<u32>,
    /// In place of the next hops' destination MACs.
    pub(crate) eth_dest: Vec<EthDest>,
}

/// What the driver of a port has counted.
#[derive(Clone, Debug)]
pub(crate) struct PortCounts {
    /// The port's name.
    pub(crate) name: String,
    /// Whether an lcore receives from it; else it sends only.
    pub(crate) receives: bool,
    /// The counters; zeros where the driver counts nothing.
    pub(crate) stats: PortStats,
}

impl PortCounts {
    /// Of `ports` now, which forward by `plan`.
    pub(crate) fn of(ports: &[Port], plan: &Plan) -> Vec<Self> {
        let counts = |(index, port): (u16, &Port)| Self {
            name: port.name().to_owned(),
            receives: plan.rx_queues(index) > 0,
            stats: port.stats().unwrap_or_default(),
        };
        (0..).zip(ports).map(counts).collect()
    }
}

/// The ports, configured and started, with their pools.
pub(crate) struct Ports {
    /// By index.
    pub(crate) ports: Vec<Port>,
    /// What each was granted.
    pub(crate) granted: Vec<Granted>,
    /// What leaves by each.
    pub(crate) egress: Vec<EgressPort>,
}

impl Ports {
    /// Opens every port there is.
    ///
    /// # Errors
    /// When DPDK refuses.
    pub(crate) fn open(eal: &Eal) -> Result<Vec<Port>, DpdkError> {
        eal.ports().into_iter().map(|id| Port::open(eal, id)).collect()
    }

    /// TX queues that every one of `ports` can have.
    ///
    /// # Errors
    /// When a driver cannot tell.
    pub(crate) fn tx_queues_max(ports: &[Port]) -> Result<u16, DpdkError> {
        let of = |port: &Port| port.device_info().map(|info| info.max_tx_queues);
        ports.iter().map(of).try_fold(u16::MAX, |least, queues| Ok(least.min(queues?)))
    }

    /// Configures and starts all `ports` for `plan`, with batches of at most `batch` packets.
    ///
    /// # Errors
    /// When a port cannot be set up, or `--eth-dest` names one that does not exist; [`ConfigError::Invalid`] for more RX queues than a
    /// device has, and for too few `--mbufs`.
    pub(crate) fn set_up(
        eal: &Eal,
        ports: Vec<Port>,
        plan: &Plan,
        spec: &PortSpec,
        batch: usize,
    ) -> anyhow::Result<Self> {
        for destination in &spec.eth_dest {
            if usize::from(destination.port) >= ports.len() {
                let (named, there) = (destination.port, ports.len());
                let message = format!("--eth-dest names port {named}, but there are {there}");
                return Err(ConfigError::NoDevice(message).into());
            }
        }
        let need = Need::new(spec, &ports, plan, batch)?;
        let mut pools: Vec<(SocketId, Mempool)> = Vec::new();
        let (mut granted, mut egress) = (Vec::new(), Vec::new());
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
            let name = port.name();
            let queues = plan.rx_queues(index);
            let got = start(port, &config(spec, queues, plan.senders), &pool)
                .with_context(|| format!("cannot start port {name}"))?;
            if queues == 0 && got.rx_queues > 0 {
                warn(format_args!(
                    "port {index} ({name}) is not in --config, and its driver wants an RX queue: what comes in by it is lost"
                ));
            }
            let mac = port.mac_addr().with_context(|| format!("port {name} has no MAC address"))?;
            let destination = spec.eth_dest.iter().find(|dest| dest.port == index).map(|dest| dest.mac);
            let (name, mac, mtu_bytes) = (name.to_owned(), MacAddr(mac), mtu_of(&got, room(spec)));
            egress.push(EgressPort { name, mac, mtu_bytes, destination });
            granted.push(got);
        }
        Ok(Self { ports, granted, egress })
    }

    /// Waits until the link of port `index` is up, or until `end`, or `is_over`; answers how it is then.
    ///
    /// # Errors
    /// When the driver cannot tell.
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

    /// Warns where an lcore serves a port of another NUMA node.
    pub(crate) fn warn_of_sockets(&self, eal: &Eal, plan: &Plan) {
        for QueueLcore { port, lcore, .. } in plan.map.tuples() {
            let Some(port) = self.ports.get(usize::from(*port)) else { continue };
            let (of_port, of_lcore) = (port.socket(), eal.lcore_socket(LcoreId(u32::from(*lcore))));
            if let Ok(of_lcore) = of_lcore
                && of_port != SocketId::ANY
                && of_lcore != of_port
            {
                warn(format_args!(
                    "port {} is on NUMA node {of_port}, its lcore {lcore} on {of_lcore}",
                    port.name()
                ));
            }
        }
    }

    /// Stops and closes the ports, in order.
    ///
    /// # Errors
    /// The first refusal; the others are closed all the same.
    pub(crate) fn close(self) -> Result<(), DpdkError> {
        let mut result = Ok(());
        for port in &self.ports {
            let closed = port.close();
            if result.is_ok() {
                result = closed;
            }
        }
        result
    }
}

/// Configures and starts `port`, with one RX queue where its driver wants one and `config` has none.
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

/// The longest IP packet that a port sends. Where it takes no chains, what one mbuf of `room` bytes holds.
fn mtu_of(granted: &Granted, room: u16) -> u16 {
    if granted.tx_offloads.contains(TxOffloads::MULTI_SEGS) {
        return granted.mtu;
    }
    let headers = u16::try_from(ETHERNET_BYTES + TAGS_BYTES).unwrap_or(u16::MAX);
    granted.mtu.min(room.saturating_sub(headers))
}

fn config(spec: &PortSpec, rx_queues: u16, tx_queues: u16) -> PortConfig {
    let mtu = spec.max_pkt_len.map(|bytes| bytes.saturating_sub(ETHERNET_BYTES));
    PortConfig {
        rx_queues,
        tx_queues,
        rx_descriptors: spec.rx_queue_size,
        tx_descriptors: spec.tx_queue_size,
        mtu: mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
        promiscuous: spec.promiscuous,
        ..PortConfig::default()
    }
}

/// Bytes of packet that an mbuf holds: the longest frame with its tags, if that is not too long.
fn room(spec: &PortSpec) -> u16 {
    let (least, most) = ROOM_BYTES;
    let frame_bytes = spec.max_pkt_len.map_or(0, |bytes| bytes.saturating_add(TAGS_BYTES));
    u16::try_from(frame_bytes.next_multiple_of(64).clamp(least, most)).unwrap_or(u16::MAX)
}

/// What a pool must hold: by NUMA node, the RX rings of its ports, their batches; and what every pool may end up in, TX rings and
/// the caches of lcores.
struct Need {
    /// By port: its node, descriptors of its RX rings, packets of its batches.
    ports: Vec<(SocketId, usize, usize)>,
    /// Descriptors of all TX rings.
    tx: usize,
    /// What the lcores' caches hold at most.
    caches: usize,
}

impl Need {
    /// For the queues of `plan`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for more RX queues than a port's device has.
    fn new(spec: &PortSpec, ports: &[Port], plan: &Plan, batch: usize) -> anyhow::Result<Self> {
        let batch = batch * if plan.is_pipeline() { BATCHES_PER_INPUT } else { 1 };
        // A cache may hold half as many again as it is made for; the main lcore has one too.
        let caches = (plan.lcores.len() + 1) * CACHE_MBUFS as usize * 3 / 2;
        let mut need = Self { ports: Vec::with_capacity(ports.len()), tx: 0, caches };
        for (index, port) in (0..).zip(ports) {
            let (queues, info) = (plan.rx_queues(index), port.device_info()?);
            if queues > info.max_rx_queues {
                let (name, limit) = (port.name(), info.max_rx_queues);
                let message = format!(
                    "--config gives port {index} ({name}) {queues} RX queues, but the device has {limit}"
                );
                return Err(ConfigError::Invalid(message).into());
            }
            let rx_queue = usize::from(spec.rx_queue_size.max(info.min_rx_descriptors));
            let tx_queue = usize::from(spec.tx_queue_size.max(info.min_tx_descriptors));
            // The driver of a port that sends only may want a queue.
            need.ports.push((
                port.socket(),
                usize::from(queues.max(1)) * rx_queue,
                usize::from(queues) * batch,
            ));
            need.tx += usize::from(plan.senders) * tx_queue;
        }
        Ok(need)
    }

    /// Mbufs that the pool of a node needs, so that no ring starves whatever the others hold.
    fn mbufs(&self, socket: SocketId) -> usize {
        let here = self.ports.iter().filter(|(at, ..)| *at == socket);
        here.map(|(_, rx, batches)| rx + batches).sum::<usize>() + self.tx + self.caches
    }
}

/// A pool for all ports of a NUMA node.
fn pool(eal: &Eal, socket: SocketId, need: &Need, spec: &PortSpec) -> anyhow::Result<Mempool> {
    let least = u32::try_from(need.mbufs(socket)).unwrap_or(u32::MAX);
    // 2^q - 1 wastes no memory.
    let needed =
        least.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(u32::MAX, |n| n - 1).max(8191);
    let room = room(spec);
    let make = |mbufs: u32| {
        let config = MempoolConfig { mbufs, cache_mbufs: CACHE_MBUFS, data_room_bytes: room, socket };
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
        let mbufs = spec.mbufs.unwrap_or(needed);
        format!("no memory for {mbufs} mbufs of {room} bytes; see EAL's -m, or --mbufs, --rx-queue-size, --tx-queue-size")
    })
}
