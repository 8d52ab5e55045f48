//! Ports of `run`: found, configured, started, their links awaited; and closed in order.

use crate::cli::args::{PortArgs, RunArgs};
use crate::cli::exit::CliError;
use crate::control::Signals;
use crate::datapath::EgressPort;
use crate::topology::pipeline::BATCHES_PER_INPUT;
use crate::topology::plan::Plan;
use anyhow::Context as _;
use dpdk_ffi::{DpdkError, Eal, Granted, Mempool, MempoolConfig, Port, PortConfig, SocketId};
use fib::MacAddr;
use std::time::Duration;

/// Bytes of an Ethernet header; an MTU does not count them.
const ETHERNET_BYTES: u32 = 14;
/// Mbufs that an lcore keeps for itself.
const CACHE_MBUFS: u32 = 256;
/// Mbufs of a pool when there is memory: also for drivers that load a whole capture into it.
const MBUFS_ROOMY: u32 = (1 << 17) - 1;
/// How long links may take to come up; as l3fwd waits.
const LINK_WAIT: Duration = Duration::from_secs(9);

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

    /// Configures and starts all `ports` for `plan`.
    ///
    /// # Errors
    /// When a port cannot be set up, or `--eth-dest` names one that does not exist.
    pub(crate) fn set_up(eal: &Eal, ports: Vec<Port>, plan: &Plan, args: &RunArgs) -> anyhow::Result<Self> {
        for destination in &args.ports.eth_dest {
            if usize::from(destination.port) >= ports.len() {
                let (named, there) = (destination.port, ports.len());
                let message = format!("--eth-dest names port {named}, but there are {there}");
                return Err(CliError::NoDevice(message).into());
            }
        }
        let mut pools: Vec<(SocketId, Mempool)> = Vec::new();
        let (mut granted, mut egress) = (Vec::new(), Vec::new());
        for (index, port) in (0..).zip(&ports) {
            let socket = port.socket();
            let pool = match pools.iter().find(|(at, _)| *at == socket) {
                Some((_, pool)) => pool.clone(),
                None => {
                    let pool = pool(eal, socket, &ports, plan, args)?;
                    pools.push((socket, pool.clone()));
                    pool
                }
            };
            let queues = plan.inputs.iter().filter(|input| input.port == index).count().max(1);
            let config = config(&args.ports, u16::try_from(queues).unwrap_or(u16::MAX), plan.senders);
            let name = port.name();
            let got =
                port.configure(&config, &[pool]).with_context(|| format!("cannot set up port {name}"))?;
            port.start().with_context(|| format!("cannot start port {name}"))?;
            let mac = port.mac_addr().with_context(|| format!("port {name} has no MAC address"))?;
            let destination = args.ports.eth_dest.iter().find(|dest| dest.port == index).map(|dest| dest.mac);
            let (name, mac, mtu_bytes) = (name.to_owned(), MacAddr(mac), got.mtu);
            egress.push(EgressPort { name, mac, mtu_bytes, destination });
            granted.push(got);
        }
        Ok(Self { ports, granted, egress })
    }

    /// Waits until every link is up, says how each is, and warns of those that are not.
    ///
    /// # Errors
    /// When a driver cannot tell.
    pub(crate) fn await_links(&self, signals: &Signals) -> anyhow::Result<()> {
        let end = std::time::Instant::now() + LINK_WAIT;
        for (index, (port, granted)) in self.ports.iter().zip(&self.granted).enumerate() {
            let link = loop {
                let link = port.wait_link(Duration::ZERO)?;
                if link.up || std::time::Instant::now() >= end || signals.is_stopping() {
                    break link;
                }
                std::thread::sleep(Duration::from_millis(100));
            };
            let speed =
                link.speed_mbps.map_or_else(|| "speed unknown".to_owned(), |mbps| format!("{mbps} Mbit/s"));
            let duplex = if link.full_duplex { "full duplex" } else { "half duplex" };
            let up = if link.up { format!("up, {speed}, {duplex}") } else { "DOWN".to_owned() };
            let egress = &self.egress[index];
            eprintln!(
                "port {index}   {} {}: link {up}; MTU {}, {} RX and {} TX queues of {} and {} descriptors",
                egress.name,
                egress.mac,
                granted.mtu,
                granted.rx_queues,
                granted.tx_queues,
                granted.rx_descriptors,
                granted.tx_descriptors
            );
            let rx = names(granted.rx_offloads.iter_names().map(|(name, _)| name));
            let tx = names(granted.tx_offloads.iter_names().map(|(name, _)| name));
            let rss = names(granted.rss.iter_names().map(|(name, _)| name));
            let promiscuous = if granted.promiscuous { "promiscuous" } else { "not promiscuous" };
            eprintln!(
                "         offloads granted: RX {rx}, TX {tx}; RSS {rss}; {promiscuous}; checksums in software"
            );
            if granted.rx_queues > 1 && granted.rss.is_empty() {
                eprintln!("fwd-app: warning: port {} has no RSS: only its queue 0 will receive", egress.name);
            }
        }
        Ok(())
    }

    /// Warns where an lcore serves a port of another NUMA node.
    pub(crate) fn warn_of_sockets(&self, eal: &Eal, config: &[(u16, u32)]) {
        for (port, lcore) in config {
            let Some(port) = self.ports.get(usize::from(*port)) else { continue };
            let (of_port, of_lcore) = (port.socket(), eal.lcore_socket(dpdk_ffi::LcoreId(*lcore)));
            if let Ok(of_lcore) = of_lcore
                && of_port != SocketId::ANY
                && of_lcore != of_port
            {
                eprintln!(
                    "fwd-app: warning: port {} is on NUMA node {of_port}, its lcore {lcore} on {of_lcore}",
                    port.name()
                );
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

/// What was granted, for a person.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn config(args: &PortArgs, rx_queues: u16, tx_queues: u16) -> PortConfig {
    let mtu = args.max_pkt_len.map(|bytes| bytes.saturating_sub(ETHERNET_BYTES));
    PortConfig {
        rx_queues,
        tx_queues,
        rx_descriptors: args.rx_queue_size,
        tx_descriptors: args.tx_queue_size,
        mtu: mtu.map(|mtu| u16::try_from(mtu).unwrap_or(u16::MAX)),
        promiscuous: args.promiscuous,
        ..PortConfig::default()
    }
}

/// A pool for all ports of a NUMA node.
fn pool(eal: &Eal, socket: SocketId, ports: &[Port], plan: &Plan, args: &RunArgs) -> anyhow::Result<Mempool> {
    let queues = plan.inputs.len() + ports.len();
    let needed = mbufs_needed(args, queues, ports.len() * usize::from(plan.senders), plan);
    let room = args.ports.max_pkt_len.unwrap_or(0).next_multiple_of(64).clamp(2048, 16_384);
    let make = |mbufs: u32| {
        let (cache_mbufs, data_room_bytes) = (CACHE_MBUFS, u16::try_from(room).unwrap_or(2048));
        let config = MempoolConfig { mbufs, cache_mbufs, data_room_bytes, socket };
        Mempool::new(eal, &format!("packets{}", socket.0), &config)
    };
    let made = match args.ports.mbufs {
        Some(mbufs) => make(mbufs),
        None if needed < MBUFS_ROOMY && eal.has_hugepages() => make(MBUFS_ROOMY).or_else(|_| make(needed)),
        None => make(needed),
    };
    made.with_context(|| {
        let mbufs = args.ports.mbufs.unwrap_or(needed);
        format!("no memory for {mbufs} mbufs of {room} bytes; see EAL's -m, or --mbufs, --rx-queue-size, --tx-queue-size")
    })
}

/// Mbufs that queues, batches and caches can hold at once.
fn mbufs_needed(args: &RunArgs, rx_queues: usize, tx_queues: usize, plan: &Plan) -> u32 {
    let rx = rx_queues * usize::from(args.ports.rx_queue_size);
    let tx = tx_queues * usize::from(args.ports.tx_queue_size);
    let batches = plan.inputs.len() * BATCHES_PER_INPUT * args.forward.batch_max();
    let caches = (plan.lcores.len() + 1) * CACHE_MBUFS as usize * 3 / 2;
    // 2^q - 1 wastes no memory.
    let needed = (rx + tx + batches + caches + 1).next_power_of_two() - 1;
    u32::try_from(needed.max(8191)).unwrap_or(u32::MAX)
}
