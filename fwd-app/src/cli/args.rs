//! The options of `run` and `replay`, and the option groups that every command with a table shares.
//!
//! Option names are a stable interface. The doc comment of an option is its `--help` text, so that `--help` and the code agree.

use super::search::SearchArgs;
use super::sources::{SourceOption, SourceOrder};
use super::traffic::TrafficArgs;
use super::values;
use super::vrfs::{VrfArgs, named_file, named_table};
use crate::engines::{EngineSpec, STALL_US_MAX};
use crate::forwarder::ForwardSpec;
use crate::forwarder::spec::BATCH_MAX;
use crate::forwarder::updates::UpdateSpec;
use crate::harness::interfaces::PortOf;
use crate::harness::make::FrameChanges;
use crate::harness::stream::StreamWhen;
use crate::harness::trace::TraceSpec;
use crate::harness::{HarnessSpec, OfferedRate};
use crate::notice::LogLevel;
use crate::ports::address::PortAddress;
use crate::ports::dpdk::{EthDest, PortSpec};
use crate::ports::taps::{TapSpec, netns};
use crate::routes::feeds::running::{FeedSource, FeedSpec, ForeignRoutes};
use crate::routes::spec::TableSpec;
use crate::routes::spec::{NamedFile, NamedTable};
use crate::topology::{QueueSpec, TopologyKind};
use clap::{ArgGroup, Args};
use fib::{EngineOptions, Isa, PortRef};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The routes, and the engine that looks them up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Routes and engine")]
pub(crate) struct TableArgs {
    /// File of routes, plain or compressed; may be given several times
    ///
    /// Formats: lines `PREFIX ID` or `PREFIX via GATEWAY dev PORT`, JSON of `ip -j route`, `R` lines of l3fwd, MRT. Compression: gzip,
    /// bzip2, xz, zstd.
    #[arg(long = "fib", value_name = "FILE", required = true)]
    pub(crate) fib: Vec<PathBuf>,

    /// The engine and its limits.
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

impl TableArgs {
    pub(crate) fn spec(&self) -> TableSpec {
        let engine = self.engine.clone();
        let routes_max = engine.routes_max;
        let engine = EngineSpec {
            name: engine.name,
            options: EngineOptions {
                isa: engine.isa,
                table_bytes_max: engine.table_memory,
                numa_node: engine.table_node,
                parameters: engine.parameters,
                ..EngineOptions::default()
            },
            split: engine.split,
            fallback: engine.fallback,
            stall_us: engine.stall_us,
            latency_target_us: engine.latency_target_us,
        };
        TableSpec { files: self.fib.clone(), routes_max, engine }
    }
}

/// The engine and its limits.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// Engine that looks up addresses; `auto` is `host`, the fastest engine for both families
    #[arg(long = "engine", value_name = "NAME", default_value = "auto")]
    pub(crate) name: String,

    /// Instruction set for lookups and header checks: scalar, avx2 or avx512f [default: the CPU's best]
    #[arg(long, value_name = "NAME")]
    pub(crate) isa: Option<Isa>,

    /// Memory limit for tables; a table that needs more is refused
    #[arg(long, value_name = "BYTES[K|M|G]", default_value = "4G", value_parser = values::bytes)]
    pub(crate) table_memory: u64,

    /// NUMA node for tables [default: the node of the thread that loads them]
    #[arg(long, value_name = "N")]
    pub(crate) table_node: Option<u32>,

    /// Parameter of the engine; may be given several times
    #[arg(long = "engine-arg", value_name = "NAME=VALUE", value_parser = values::engine_arg)]
    pub(crate) parameters: Vec<(String, String)>,

    /// Share of each batch for the first engine of --engine coop, 0 to 1 [default: measured continuously]
    #[arg(long, value_name = "FRACTION")]
    pub(crate) split: Option<f64>,

    /// CPU engine that takes over when the first engine has no device, fails or stalls
    ///
    /// It holds the same routes at all times. Batches in flight are looked up again.
    #[arg(long, value_name = "NAME")]
    pub(crate) fallback: Option<String>,

    /// Longest time that a GPU engine may take for a batch, microseconds
    ///
    /// After that --fallback takes over; without it the batch is dropped as engine_stall.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=STALL_US_MAX))]
    pub(crate) stall_us: u64,

    /// Latency limit for the batches of a GPU engine, microseconds
    ///
    /// The batch size and the number of streams are calibrated at start to stay below it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) latency_target_us: Option<u64>,

    /// Refuse a table with more routes than this
    #[arg(long, value_name = "N", value_parser = values::count::<u64>(0..=u64::MAX))]
    pub(crate) routes_max: Option<u64>,
}

/// Queues, sizes and reports of the forwarder. `run` and `replay` share them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Forwarder")]
pub(crate) struct ForwardArgs {
    /// TOML file with options; `none` reads no file [default of run: /etc/fwd-app/fwd-app.toml]
    ///
    /// The default file may be absent. The command line and the environment (FWD_APP_RX_BURST for --rx-burst) override the file. By
    /// default `replay` reads no file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,

    /// Lcore of each RX queue, in the form of l3fwd; ports by index or name
    ///
    /// A port that is not named only sends. With `run`, (PORT,auto) gives the port a queue for each free lcore of its NUMA node. By
    /// default each port has queue 0, and the ports are distributed over the lcores.
    #[arg(long, value_name = "(PORT,QUEUE,LCORE),..", value_parser = values::queue_spec)]
    pub(crate) config: Option<QueueSpec>,

    /// Stages that share an lcore [default: run-to-completion]
    ///
    /// With a GPU engine, an lcore that runs to completion keeps several batches in flight.
    #[arg(long, value_name = "T", value_enum)]
    pub(crate) topology: Option<TopologyKind>,

    /// Largest number of packets taken from a queue at once
    ///
    /// `run` rounds up to a multiple of 8, since drivers of NICs round down.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = values::count::<u16>(1..=4096))]
    pub(crate) rx_burst: u16,

    /// Largest number of keys passed to the engine at once [default: the burst size; of GPU engines 1024]
    ///
    /// With --latency-target-us the default is the calibrated size. `run` rounds up as for --rx-burst.
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=BATCH_MAX.into()))]
    pub(crate) batch: Option<u32>,

    /// Longest wait for a batch to fill, microseconds; 0 never waits
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) flush_us: u32,

    /// Compare one looked-up address in N with the routes; 0 compares none [default: 65536 for GPU engines, else 0]
    ///
    /// A wrong answer is an error on stderr and in the metrics, and with --fallback the engine is left. `ctl set audit` changes N.
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(0..=u32::MAX.into()))]
    pub(crate) audit: Option<u32>,

    /// Seed of the hash that chooses the path of a flow [default of run: a random number; of replay: 0]
    ///
    /// Routers in a row need different seeds.
    #[arg(long, value_name = "N")]
    pub(crate) ecmp_seed: Option<u64>,

    /// Least important level of messages on stderr
    ///
    /// EAL's --log-level selects the messages of DPDK.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,

    /// Print rates, drops and losses of NICs every S seconds
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) stats_period: Option<Duration>,

    /// Write the summary as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Control socket for `fwd-app ctl` [default of run: /run/fwd-app/PREFIX.sock; of replay: none]
    ///
    /// PREFIX is EAL's --file-prefix.
    #[arg(long, value_name = "PATH")]
    pub(crate) ctl: Option<PathBuf>,

    /// Group that may use the control socket, by name or number
    ///
    /// Root and the user of this process always may.
    #[arg(long, value_name = "GROUP", value_parser = values::group)]
    pub(crate) ctl_group: Option<u32>,

    /// Group that may only read over the control socket, by name or number
    ///
    /// Its members may use `show`, `route get` and `route list`.
    #[arg(long, value_name = "GROUP", value_parser = values::group)]
    pub(crate) ctl_read_group: Option<u32>,

    /// Write the first N dropped packets to a pcapng file, with drop reasons as comments [default N: 10000]
    ///
    /// `fwd-app ctl capture drops` does the same at any time.
    #[arg(long, value_name = "FILE[,N]", value_parser = values::capture_drops)]
    pub(crate) capture_drops: Option<(String, NonZeroU64)>,

    /// Write the latency histogram as percentile text of HdrHistogram
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,

    /// Write a picture of the latencies by percentile, SVG
    ///
    /// For packets sent at a rate, it also shows the latencies by frame size.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

impl ForwardArgs {
    pub(crate) fn spec(&self) -> ForwardSpec {
        let Self { topology, rx_burst, batch, flush_us, .. } = *self;
        ForwardSpec { config: self.config.clone(), topology, rx_burst, batch, flush_us }
    }
}

/// Routes that change while packets flow. `run` and `replay` share them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Updates", group = ArgGroup::new("streams").multiple(true).args(["updates", "vrf_updates"]))]
pub(crate) struct UpdateArgs {
    /// File of route updates to apply while packets flow
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,

    /// File of route updates for a VRF
    ///
    /// Updates of several files are merged by their times; with --update-rate the files take turns.
    #[arg(long, value_name = "NAME=FILE", requires = "vrf", value_parser = named_file)]
    pub(crate) vrf_updates: Vec<NamedFile>,

    /// Updates a second [default: by the times in the file]
    #[arg(long, value_name = "N", requires = "streams", value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) update_rate: Option<u64>,

    /// Number of times the updates are applied; they end with the packets at the latest
    #[arg(long, value_name = "N", default_value_t = 1, requires = "streams", value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) update_loops: u64,

    /// Largest number of updates in one delta for the engine
    #[arg(long, value_name = "N", default_value_t = 1024, requires = "streams", value_parser = values::count::<u64>(1..=1_000_000))]
    pub(crate) update_batch: u64,
}

impl UpdateArgs {
    pub(crate) fn spec(&self) -> UpdateSpec {
        UpdateSpec { rate: self.update_rate, loops: self.update_loops, per_commit: self.update_batch }
    }
}

/// `fwd-app run`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("fib", |fib| fib.required(false)))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) order: SourceOrder,

    #[command(flatten)]
    pub(crate) tables: TableArgs,

    #[command(flatten)]
    pub(crate) forward: ForwardArgs,

    #[command(flatten)]
    pub(crate) ports: PortArgs,

    #[command(flatten)]
    pub(crate) vrfs: VrfArgs,

    #[command(flatten)]
    pub(crate) updates: UpdateArgs,

    #[command(flatten)]
    pub(crate) feeds: FeedArgs,

    /// Serve metrics over HTTP: /metrics for Prometheus, and a status page
    ///
    /// Without an ADDRESS, only this host can connect. Port 0 is any free port. There is no authentication.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = values::metrics_address, help_heading = "Forwarder")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Stop after S seconds [default: run until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = values::seconds, help_heading = "Forwarder")]
    pub(crate) duration: Option<Duration>,

    /// Longest sleep of an lcore without packets, microseconds; 0 polls all the time
    ///
    /// It suits hosts that also run other programs. A sleep must be shorter than an RX queue takes to fill (--rx-queue-size).
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000),
        help_heading = "Forwarder")]
    pub(crate) idle_us: u32,

    /// Program that moves traffic to other routers, for example by withdrawing routes
    ///
    /// `ctl stop --drain` runs it with the argument drain, and forwards until no more packets arrive. The next `ctl start` runs it with
    /// the argument resume.
    #[arg(long, value_name = "PROGRAM", help_heading = "Forwarder")]
    pub(crate) drain_hook: Option<PathBuf>,

    /// Arguments for DPDK's EAL, verbatim, without a program name
    #[arg(last = true, value_name = "EAL ARGUMENTS", help_heading = "DPDK")]
    pub(crate) eal: Vec<OsString>,
}

/// Routes that `run` learns while packets flow.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Feeds")]
pub(crate) struct FeedArgs {
    /// Listen at this address for the routes of FRR's zebra
    ///
    /// FRR needs `zebra -M dplane_fpm_nl` and `fpm address 127.0.0.1 port 2620`. If several sources have a route for a prefix, ctl wins,
    /// then the first of these options on the command line: --fib (with --updates), --fpm, --kernel-routes; see --prefer. At least one of
    /// them is needed.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) fpm: Option<SocketAddr>,

    /// Sources of routes, most preferred first [default: the order of their options]
    #[arg(long, value_name = "SOURCE,..", value_delimiter = ',', value_enum)]
    pub(crate) prefer: Vec<SourceOption>,

    /// Time that stale routes stay after zebra has reconnected, seconds
    ///
    /// A route is stale from the loss of the connection until zebra announces it again.
    #[arg(long, value_name = "S", default_value = "180", value_parser = values::seconds)]
    pub(crate) fpm_hold: Duration,

    /// User whose processes may announce routes over --fpm, by name or number; may be given several times
    ///
    /// Root and the user of this process always may. The zebra of FRR's packages runs as frr.
    #[arg(long, value_name = "USER", requires = "fpm", value_parser = values::user)]
    pub(crate) fpm_user: Vec<u32>,

    /// Take the routes of the kernel's main table
    ///
    /// With --fpm, routes of zebra and its protocols are left out.
    #[arg(long)]
    pub(crate) kernel_routes: bool,

    /// Kernel interface that stands for a port; may be given once for each interface
    ///
    /// Routes and neighbours over the interface become routes and neighbours over the port. By default it is the `iface=` of the port's
    /// --vdev, or the interface with the name of the port.
    #[arg(long, value_name = "PORT=IFNAME", value_parser = values::kernel_interface)]
    pub(crate) kernel_interface: Vec<(PortRef, String)>,

    /// Treatment of routes of --fpm and --kernel-routes over interfaces without a port
    ///
    /// For example interfaces of a VPN or of the management network. If a file has a route for the same prefix, it is used instead. `ctl
    /// show feeds` counts these routes.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub(crate) foreign_routes: ForeignRoutes,

    /// Kernel routing table of a VRF, for --fpm and --kernel-routes; may be given once for each VRF
    ///
    /// It is usually the table of the VRF device. The default VRF has the main table, 254.
    #[arg(long, value_name = "NAME=TABLE", requires = "vrf", value_parser = named_table)]
    pub(crate) vrf_table: Vec<NamedTable>,
}

impl FeedArgs {
    /// The feeds of one VRF. `order` is the order of preference, `routes_max` limits each feed, `taps` also follows the links of TAPs.
    pub(crate) fn spec(&self, order: &SourceOrder, routes_max: Option<u64>, taps: bool) -> FeedSpec {
        let source = |option: &SourceOption| match option {
            SourceOption::Fib => Some(FeedSource::Files),
            SourceOption::Fpm => self.fpm.map(FeedSource::Fpm),
            SourceOption::KernelRoutes => Some(FeedSource::Kernel),
        };
        let sources = order.0.iter().filter_map(source).collect();
        let (fpm_hold, fpm_users, foreign) = (self.fpm_hold, self.fpm_user.clone(), self.foreign_routes);
        FeedSpec { sources, fpm_hold, fpm_users, foreign, taps, routes_max, ..FeedSpec::default() }
    }
}

/// Set-up of the ports of `run`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Ports")]
pub(crate) struct PortArgs {
    /// Ports to use, by name, PCI address or index; their order gives the indices [default: all ports]
    ///
    /// Without it, ports have the order of DPDK. Ports owned by another driver, such as members of a failsafe port, are never used.
    #[arg(long, value_name = "NAME|PCI|INDEX,..", value_delimiter = ',', value_parser = values::port)]
    pub(crate) ports: Vec<PortRef>,

    /// Name of a port in messages, answers and metrics [default: the name of its device]
    ///
    /// Options and routes accept it as they accept the index and the device. May be given once for each port.
    #[arg(long, value_name = "PORT=NAME", value_parser = values::port_name)]
    pub(crate) port_name: Vec<(PortRef, String)>,

    /// Receive frames for every MAC
    #[arg(short = 'P', long)]
    pub(crate) promiscuous: bool,

    /// Longest frame in bytes, with its Ethernet header [default: by the port's current MTU]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes_in::<u32>(64..=65_535))]
    pub(crate) max_pkt_len: Option<u32>,

    /// Longest IP packet that a port sends; may be given once for each port [default: the port's MTU]
    ///
    /// If the `iface=` of the port's --vdev is a kernel interface with a smaller MTU, the default is that MTU.
    #[arg(long, value_name = "PORT=BYTES", value_parser = values::port_mtu)]
    pub(crate) mtu: Vec<(PortRef, u16)>,

    /// Descriptors of an RX queue
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = values::count::<u16>(16..=u16::MAX.into()))]
    pub(crate) rx_queue_size: u16,

    /// Descriptors of a TX queue
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = values::count::<u16>(16..=u16::MAX.into()))]
    pub(crate) tx_queue_size: u16,

    /// Mbufs of a pool; each NUMA node has one pool [default: as many as needed, more with huge pages]
    ///
    /// Fewer than rings, batches and caches can hold together are refused.
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) mbufs: Option<u32>,

    /// Destination MAC of all frames sent by a port; may be given once for each port [default: the next hop's MAC]
    #[arg(long, value_name = "PORT,MAC", value_parser = values::eth_dest)]
    pub(crate) eth_dest: Vec<EthDest>,

    /// Address of a port, with the prefix length of its link; may be given several times
    ///
    /// PORT is an index or a name. A port with an address answers ARP, neighbour discovery and ping, resolves its neighbours, and sends
    /// ICMP errors for packets that cannot be forwarded.
    #[arg(long, value_name = "PORT=ADDRESS/LENGTH", value_parser = values::port_address)]
    pub(crate) address: Vec<PortAddress>,

    /// Make a TAP with this name for a port, with its MAC, MTU and addresses; may be given once for each port
    ///
    /// The kernel receives from the TAP the packets for this router that the forwarder does not answer; packets that the kernel sends to
    /// the TAP leave by the port. Addresses that other programs add to the TAP become addresses of the port, unless they have a lifetime.
    /// --fpm and --kernel-routes take the TAP for the port.
    #[arg(long, value_name = "PORT=NAME", value_parser = values::tap)]
    pub(crate) tap: Vec<(PortRef, String)>,

    /// Network namespace of the TAPs, by name (`ip netns`) or path [default: the namespace of this process]
    ///
    /// --fpm then listens in this namespace, and --kernel-routes reads its routes.
    #[arg(long, value_name = "NAME", requires = "tap")]
    pub(crate) tap_netns: Option<String>,

    /// Keep TAPs, with their addresses and routes, when the forwarder ends
    ///
    /// The next start takes over TAPs of the same user that no process has open, with or without this option. Without it, TAPs are deleted
    /// at the end. `ip link del NAME` deletes a TAP, too.
    #[arg(long, requires = "tap")]
    pub(crate) tap_persist: bool,

    /// Mean time that a neighbour on a port with an --address stays valid, seconds
    ///
    /// A neighbour that is silent for three times as long is asked again, and deleted if it does not answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub(crate) neigh_age: u16,
}

impl PortArgs {
    pub(crate) fn spec(&self) -> PortSpec {
        let Self { promiscuous, max_pkt_len, rx_queue_size, tx_queue_size, mbufs, .. } = *self;
        let Self { mtu, eth_dest, address, .. } = self.clone();
        let (mtus, addresses, taps) = (mtu, address, self.taps());
        PortSpec {
            promiscuous,
            max_pkt_len,
            mtus,
            rx_queue_size,
            tx_queue_size,
            mbufs,
            eth_dest,
            addresses,
            taps,
        }
    }

    pub(crate) fn taps(&self) -> TapSpec {
        let netns = self.tap_netns.as_deref().map(netns::path_of);
        TapSpec { taps: self.tap.clone(), netns, persist: self.tap_persist }
    }
}

/// `fwd-app replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Capture to replay, pcap or pcapng, plain or compressed (gzip, bzip2, xz or zstd)
    ///
    /// Interfaces may be Ethernet, raw IP, loopback or Linux cooked. Not with --generate.
    #[arg(value_name = "TRACE.pcap", required_unless_present = "generate")]
    pub(crate) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tables: TableArgs,

    #[command(flatten)]
    pub(crate) forward: ForwardArgs,

    #[command(flatten)]
    pub(crate) harness: HarnessArgs,

    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,

    #[command(flatten)]
    pub(crate) search: SearchArgs,

    #[command(flatten)]
    pub(crate) vrfs: VrfArgs,

    #[command(flatten)]
    pub(crate) updates: UpdateArgs,
}

/// The way `replay` drives the forwarder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Harness")]
pub(crate) struct HarnessArgs {
    /// Number of ports of the forwarder
    #[arg(long, value_name = "P", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) ports: u16,

    /// Take the first N packets of the trace [default: all]
    #[arg(long, value_name = "N", value_parser = values::count::<usize>(1..=u64::MAX))]
    pub(crate) limit: Option<usize>,

    /// Number of times the trace is sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) loops: u64,

    /// Send the trace repeatedly for S seconds instead of --loops
    #[arg(long, value_name = "S", value_parser = values::seconds, conflicts_with = "loops")]
    pub(crate) duration: Option<Duration>,

    /// Send the trace for S seconds before the measurement begins
    ///
    /// These packets are counted and verified, but rates and latencies leave them out. Cycles by pass include them.
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) warmup: Option<Duration>,

    /// Rate at which packets are offered
    ///
    /// Below max, latency counts from the intended send time. At max, without --verify and --out, packets lie ready in mbufs and are not
    /// copied. N% is a share of the lossless rate, which a search of a few seconds finds first. A rate A..B changes evenly from A to B
    /// within --ramp, or else within --duration.
    #[arg(long, value_name = "max|N[k|M|G]pps|N[k|M|G]bps|N%|A..B|original|xF", default_value = "max", value_parser = values::rate)]
    pub(crate) rate: OfferedRate,

    /// Raise the rate evenly within the first S seconds, from 0 or from A of --rate A..B, then keep it
    ///
    /// With a --warmup of the same length, only the constant rate is measured.
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) ramp: Option<Duration>,

    /// Distribute the flows of the trace over all ports [default: all packets arrive on port 0]
    #[arg(long, conflicts_with = "port_of")]
    pub(crate) spread: bool,

    /// Packets captured on this interface arrive on this port; may be given several times
    ///
    /// For pcapng files; IFACE is the name of an interface or its number, from 0. All other packets arrive on port 0.
    #[arg(long, value_name = "IFACE=PORT", conflicts_with = "generate", value_parser = values::port_of)]
    pub(crate) port_of: Vec<PortOf>,

    /// Whether the trace is read during the replay, in a bounded amount of memory
    ///
    /// At full speed, the packets of a streamed trace are copied.
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with = "generate", value_enum)]
    pub(crate) stream: StreamWhen,

    /// Write the packets that leave by port N to DIR/portN.pcap
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Check every packet against the oracle
    #[arg(long)]
    pub(crate) verify: bool,

    /// Print the results next to the results of an earlier run, written with --json
    ///
    /// Refused unless routes, packets and the way they are offered are the same.
    #[arg(long, value_name = "OLD.json")]
    pub(crate) compare: Option<PathBuf>,

    /// Lcores of the forwarder without --config; there may be more lcores than CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=127))]
    pub(crate) lcores: Option<u16>,

    /// Use no huge pages [default: use them if enough are free]
    #[arg(long)]
    pub(crate) no_huge: bool,

    /// Receivers take packets on one poll in N only, like a slow link
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) tx_slow: u32,

    /// Rate limit of the receiver of each port, in packets or in bits of frames
    #[arg(long, value_name = "N[k|M|G]pps|N[k|M|G]bps", value_parser = values::load)]
    pub(crate) tx_rate: Option<OfferedRate>,

    /// Mbufs for packets; packets wait while all are in use [default: enough for all packets inside]
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) mbufs: Option<u32>,
}

impl HarnessArgs {
    pub(crate) fn spec(&self, updates: UpdateSpec, search: &SearchArgs) -> HarnessSpec {
        let Self {
            ports, loops, duration, rate, spread, lcores, tx_slow, tx_rate, mbufs, warmup, ramp, ..
        } = *self;
        let loops = if duration.is_some() { u64::MAX } else { loops };
        let (port_of, out, search) = (self.port_of.clone(), self.out.clone(), search.spec());
        HarnessSpec {
            ports,
            loops,
            duration,
            warmup,
            ramp,
            search,
            rate,
            spread,
            port_of,
            out,
            lcores,
            tx_slow,
            tx_rate,
            updates,
            mbufs,
        }
    }

    pub(crate) fn trace(&self, path: &Path, changes: FrameChanges) -> TraceSpec {
        TraceSpec { path: path.to_owned(), limit: self.limit, port_of: self.port_of.clone(), changes }
    }
}

pub(crate) const RUN_EXAMPLES: &str = "\
Examples:
  fwd-app run --fib routes.txt --config '(0,0,1),(1,0,2)' -- -l 1,2 -a 0000:03:00.0 -a 0000:03:00.1
  fwd-app run --fib v4.txt --fib v6.txt.xz --engine bloom --stats-period 1 -- -l 1 --vdev net_null0
  fwd-app run --fib routes.txt --address 0=192.0.2.1/24 --address 1=2001:db8::1/64 -- -l 1 -a 0000:03:00.0 -a 0000:03:00.1
  fwd-app run --fib routes.txt --duration 10 --json run.json --capture-drops drops.pcapng,100 -- --no-huge --no-pci --vdev net_null0
  fwd-app run --fib routes.txt --vrf red=2,3 --vrf-fib red=red.txt --engine sail-m -- -l 1 -a 0000:03:00.0 -a 0000:03:00.1 -a 0000:04:00.0 -a 0000:04:00.1
  fwd-app run --fib neighbours.txt --fpm 127.0.0.1:2620 --fpm-user frr --kernel-interface 0=eth1 -- -l 1 -a 0000:03:00.0
  fwd-app run --kernel-routes --fpm 127.0.0.1:2620 --fpm-user frr -- -l 1 --vdev net_af_packet0,iface=eth1

Packets for a gateway without a line `neigh ADDR lladdr MAC dev PORT` are dropped as no_neighbour, unless its port has an --address. The MAC
of a bare id is derived from its number. Arguments after -- are passed to DPDK. Ctrl-C stops receiving, drains, and prints the summary; a
second Ctrl-C exits at once.";

pub(crate) const REPLAY_EXAMPLES: &str = "\
Examples:
  fwd-app replay trace.pcap --fib routes.txt
  fwd-app replay trace.pcap --fib routes.txt --verify --loops 100 --topology pipeline --json result.json
  fwd-app replay trace.pcap --fib routes.txt --rate 100kpps --hgrm latency.hgrm --svg latency.svg
  fwd-app replay trace.pcap --fib routes.txt --duration 10 --batch 64 --compare result.json
  fwd-app replay trace.pcap --fib routes.txt --verify --loops 1000 --updates updates.txt --update-rate 5000 --update-loops 100
  fwd-app replay trace.pcap --fib routes.txt --out sent/ --ports 2
  fwd-app replay anonymised.pcap.gz --fib routes.txt --limit 1M --duration 30 --warmup 2 --remap --sizes original
  fwd-app replay --generate zipf --packets 1M --imix --fib routes.txt --duration 10
  fwd-app replay --generate flows=10k --sizes 64,128,1518 --fib routes.txt --verify --save-trace made.pcap
  fwd-app replay both-sides.pcapng --fib routes.txt --port-of eth0=0 --port-of eth1=1
  fwd-app replay trace.pcap --fib routes.txt --search loss=0,0.1% --curve --json rate.json
  fwd-app replay trace.pcap --fib routes.txt --rate 50% --duration 10

Packets for a gateway without a neighbour are dropped, as in run. A table in MRT has gateways without neighbours; convert them to
bare ids to measure with it: fwd-app fib convert rib.mrt.bz2 --to text -o routes.txt";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::AUTO;

    #[derive(clap::Parser)]
    struct TestLine {
        #[command(flatten)]
        _engine: EngineArgs,
    }

    #[test]
    fn the_help_names_the_engine_behind_auto() {
        let help = <TestLine as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(help.contains(&format!("`auto` is `{AUTO}`")), "{help}");
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
        assert!(readme.contains(&format!("`auto` is `{AUTO}`")), "README.md names another engine");
    }
}
