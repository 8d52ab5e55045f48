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

/// Which routes, and which engine looks them up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Routes and engine")]
pub(crate) struct TableArgs {
    /// File of routes: `PREFIX ID`, `PREFIX via GATEWAY dev PORT`, `ip -j route`, l3fwd `R` lines or MRT; plain, gzip,
    /// bzip2, xz or zstd. May be given several times
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

/// Which engine, and what it may use.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    /// Engine that looks addresses up; `auto` is `host`, the fastest for both families with each instruction set
    #[arg(long = "engine", value_name = "NAME", default_value = "auto")]
    pub(crate) name: String,

    /// Instruction set of lookups and header checks: scalar, avx2 or avx512f [default: the best of this CPU]
    #[arg(long, value_name = "NAME")]
    pub(crate) isa: Option<Isa>,

    /// Memory for tables at most; a table that needs more is refused
    #[arg(long, value_name = "BYTES[K|M|G]", default_value = "4G", value_parser = values::bytes)]
    pub(crate) table_memory: u64,

    /// NUMA node for tables, such as one of fast memory alone [default: where the thread that loads them runs]
    #[arg(long, value_name = "N")]
    pub(crate) table_node: Option<u32>,

    /// A parameter of the engine; may be given several times
    #[arg(long = "engine-arg", value_name = "NAME=VALUE", value_parser = values::engine_arg)]
    pub(crate) parameters: Vec<(String, String)>,

    /// Share of each batch that goes to the first engine of --engine coop, 0 to 1 [default: measured, and kept measured]
    #[arg(long, value_name = "FRACTION")]
    pub(crate) split: Option<f64>,

    /// Second engine, on the CPU, kept up to date with the same routes: when the first has no device, fails or stalls, it takes
    /// over, and what was in flight is looked up again
    #[arg(long, value_name = "NAME")]
    pub(crate) fallback: Option<String>,

    /// Longest time a device engine may keep a batch, microseconds: then --fallback takes over, or the batch is dropped as
    /// engine_stall
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=STALL_US_MAX))]
    pub(crate) stall_us: u64,

    /// Latency that the batches of a GPU engine stay under, microseconds: batch size and streams are measured out at start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) latency_target_us: Option<u64>,

    /// Refuse a table of more routes than this
    #[arg(long, value_name = "N", value_parser = values::count::<u64>(0..=u64::MAX))]
    pub(crate) routes_max: Option<u64>,
}

/// The forwarder itself: queues, sizes, reports. `run` and `replay` share it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Forwarder")]
pub(crate) struct ForwardArgs {
    /// File with options, TOML; those of the command line and of the environment (FWD_APP_RX_BURST for --rx-burst) replace what it
    /// says of them. `none` is no file. [default of run: /etc/fwd-app/fwd-app.toml, if there is one; of replay: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,

    /// Which lcore serves which queue, as l3fwd writes it, ports by index or name; a port that is in none of them sends only.
    /// (PORT,auto) of `run`: a queue for each lcore of the port's NUMA node that nothing else uses [default: queue 0 of every port,
    /// dealt over the lcores]
    #[arg(long, value_name = "(PORT,QUEUE,LCORE),..", value_parser = values::queue_spec)]
    pub(crate) config: Option<QueueSpec>,

    /// Which stages share an lcore [default: pipeline for GPU engines, else run-to-completion]
    #[arg(long, value_name = "T", value_enum)]
    pub(crate) topology: Option<TopologyKind>,

    /// Packets taken from a queue at once, at most; `run` rounds up to a multiple of 8, since drivers of NICs round down
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = values::count::<u16>(1..=4096))]
    pub(crate) rx_burst: u16,

    /// Keys handed to the engine at once, at most, which `run` rounds up as --rx-burst [default: the size of a burst; of GPU engines 1024, or what
    /// --latency-target-us comes to]
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=BATCH_MAX.into()))]
    pub(crate) batch: Option<u32>,

    /// Longest wait for a batch to fill, microseconds; 0 sends what is there
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) flush_us: u32,

    /// Seed of the hash that chooses the path of a flow among several; routers in a row need different ones [default of run: a random
    /// number; of replay: 0]
    #[arg(long, value_name = "N")]
    pub(crate) ecmp_seed: Option<u64>,

    /// Messages on stderr: those of this level and the more important ones. EAL's own --log-level decides which DPDK has
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,

    /// Print rates, drops and the losses of NICs every S seconds
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) stats_period: Option<Duration>,

    /// Write the summary as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Socket that `fwd-app ctl` talks to [default of run: /run/fwd-app/PREFIX.sock, after EAL's --file-prefix; of replay: none]
    #[arg(long, value_name = "PATH")]
    pub(crate) ctl: Option<PathBuf>,

    /// A group whose members may use the socket beside root and the user of this process, by name or number
    #[arg(long, value_name = "GROUP", value_parser = values::group)]
    pub(crate) ctl_group: Option<u32>,

    /// A group whose members may ask by the socket for what changes nothing: `show`, `route get` and `route list`
    #[arg(long, value_name = "GROUP", value_parser = values::group)]
    pub(crate) ctl_read_group: Option<u32>,

    /// Write the first N dropped packets [default: 10000] to a pcapng file, the reason of each as its comment, as `fwd-app ctl capture
    /// drops` does later
    #[arg(long, value_name = "FILE[,N]", value_parser = values::capture_drops)]
    pub(crate) capture_drops: Option<(String, NonZeroU64)>,

    /// Write the latency histogram in HdrHistogram's percentile text form
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,

    /// Write latencies as a picture, SVG: by percentile; of packets sent at a rate by size of frame, too
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

impl ForwardArgs {
    pub(crate) fn spec(&self) -> ForwardSpec {
        let Self { topology, rx_burst, batch, flush_us, .. } = *self;
        ForwardSpec { config: self.config.clone(), topology, rx_burst, batch, flush_us }
    }
}

/// Routes that change while packets flow; `run` and `replay` share it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Updates", group = ArgGroup::new("streams").multiple(true).args(["updates", "vrf_updates"]))]
pub(crate) struct UpdateArgs {
    /// Apply this update stream while packets flow
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,

    /// Update stream of a VRF. Streams are merged by their times, or take turns when there is a rate
    #[arg(long, value_name = "NAME=FILE", requires = "vrf", value_parser = named_file)]
    pub(crate) vrf_updates: Vec<NamedFile>,

    /// Updates a second [default: the stream's own times]
    #[arg(long, value_name = "N", requires = "streams", value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) update_rate: Option<u64>,

    /// Times the update stream is applied; it ends with the packets at the latest
    #[arg(long, value_name = "N", default_value_t = 1, requires = "streams", value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) update_loops: u64,

    /// Updates that reach the engine as one delta, at most
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

    /// Serve metrics over HTTP: /metrics for Prometheus, and a page for people. With a port alone, to this host alone; port 0 is a free
    /// one. Nobody is asked for a password
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = values::metrics_address, help_heading = "Forwarder")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Stop after S seconds [default: run until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = values::seconds, help_heading = "Forwarder")]
    pub(crate) duration: Option<Duration>,

    /// Longest sleep of an lcore that finds no packets, microseconds, for hosts that run other programs, too; 0 polls all the time.
    /// A sleep must be shorter than the RX queue takes to fill (--rx-queue-size)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000),
        help_heading = "Forwarder")]
    pub(crate) idle_us: u32,

    /// A program that makes neighbours choose other paths, as by withdrawing routes. `ctl stop --drain` runs it with the word drain
    /// and goes on forwarding until no packets come; the next `ctl start` runs it with the word resume
    #[arg(long, value_name = "PROGRAM", help_heading = "Forwarder")]
    pub(crate) drain_hook: Option<PathBuf>,

    /// Arguments for DPDK's EAL, verbatim; the program's name is put before them
    #[arg(last = true, value_name = "EAL ARGUMENTS", help_heading = "DPDK")]
    pub(crate) eal: Vec<OsString>,
}

/// Routes that `run` learns while packets flow.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Feeds")]
pub(crate) struct FeedArgs {
    /// Take routes from FRR's zebra, which connects to this address (`zebra -M dplane_fpm_nl`, `fpm address 127.0.0.1 port 2620`).
    /// Of several routes of a prefix that of ctl is used, else that of the option which comes first on the command line: --fib (with
    /// --updates), --fpm or --kernel-routes; see --prefer. One of these is enough
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) fpm: Option<SocketAddr>,

    /// The order in which sources of routes are preferred, the first most [default: the order of their options]
    #[arg(long, value_name = "SOURCE,..", value_delimiter = ',', value_enum)]
    pub(crate) prefer: Vec<SourceOption>,

    /// How long routes that zebra has not announced again stay after it has come back, seconds
    #[arg(long, value_name = "S", default_value = "180", value_parser = values::seconds)]
    pub(crate) fpm_hold: Duration,

    /// A user whose processes may announce routes over --fpm, by name or number; may be given several times. Root and the user of this
    /// process may; zebra of FRR's packages runs as frr
    #[arg(long, value_name = "USER", requires = "fpm", value_parser = values::user)]
    pub(crate) fpm_user: Vec<u32>,

    /// Take the routes of the kernel's main table; with --fpm, those of zebra and its protocols are left out
    #[arg(long)]
    pub(crate) kernel_routes: bool,

    /// The kernel interface whose routes and neighbours are those of a port; may be given once an interface [default: the `iface=` of
    /// the port's --vdev, or the interface of the port's name]
    #[arg(long, value_name = "PORT=IFNAME", value_parser = values::kernel_interface)]
    pub(crate) kernel_interface: Vec<(PortRef, String)>,

    /// What becomes of routes of --fpm and --kernel-routes over interfaces that stand for no port, such as a VPN's or that of the
    /// management network: their packets are dropped, and the sender is told; or they take a shorter route. Where files have a route
    /// of the same prefix, that one is used. `ctl show feeds` counts them
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub(crate) foreign_routes: ForeignRoutes,

    /// The number of the kernel's routing table whose routes --fpm and --kernel-routes give a VRF, that of its VRF device say; may be
    /// given once a VRF. The main table, 254, is that of the VRF default
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

/// How `run` sets its ports up.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Ports")]
pub(crate) struct PortArgs {
    /// The ports to use, by name, PCI address or index, in this order: it gives them their indices [default: all, in DPDK's order].
    /// Ports that belong to another driver, as the members of a failsafe port do, are never used
    #[arg(long, value_name = "NAME|PCI|INDEX,..", value_delimiter = ',', value_parser = values::port)]
    pub(crate) ports: Vec<PortRef>,

    /// The name of a port in messages, answers and metrics; options and routes take it as they take its index and its device. May be given once a
    /// port [default: the name of its device]
    #[arg(long, value_name = "PORT=NAME", value_parser = values::port_name)]
    pub(crate) port_name: Vec<(PortRef, String)>,

    /// Receive frames for every MAC
    #[arg(short = 'P', long)]
    pub(crate) promiscuous: bool,

    /// Longest frame, bytes with its Ethernet header [default: the port's MTU as it is]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes_in::<u32>(64..=65_535))]
    pub(crate) max_pkt_len: Option<u32>,

    /// Longest IP packet that a port sends; may be given once a port [default: the port's MTU, or that of the kernel interface which
    /// its --vdev names as `iface=` if that is less]
    #[arg(long, value_name = "PORT=BYTES", value_parser = values::port_mtu)]
    pub(crate) mtu: Vec<(PortRef, u16)>,

    /// Descriptors of an RX queue
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = values::count::<u16>(16..=u16::MAX.into()))]
    pub(crate) rx_queue_size: u16,

    /// Descriptors of a TX queue
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = values::count::<u16>(16..=u16::MAX.into()))]
    pub(crate) tx_queue_size: u16,

    /// Mbufs of a pool, one pool a NUMA node; fewer than rings, batches and caches hold at once are refused [default: what those
    /// need, more where there are hugepages]
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) mbufs: Option<u32>,

    /// Destination MAC of all that leaves by a port; may be given once a port [default: the next hop's]
    #[arg(long, value_name = "PORT,MAC", value_parser = values::eth_dest)]
    pub(crate) eth_dest: Vec<EthDest>,

    /// An address of a port, by index or name, with the length of its link's prefix; several are allowed. Ports with addresses answer
    /// ARP, neighbour discovery and ping, find their neighbours themselves, and tell senders what is not forwarded
    #[arg(long, value_name = "PORT=ADDRESS/LENGTH", value_parser = values::port_address)]
    pub(crate) address: Vec<PortAddress>,

    /// Make a TAP of this name for a port, with its MAC, MTU and addresses; may be given once a port. What is for this router and not
    /// answered by it goes to the kernel there, and what the kernel sends there leaves by the port. Addresses that others give the TAP
    /// are addresses of the port, unless they have a lifetime. --fpm and --kernel-routes take the TAP for the port
    #[arg(long, value_name = "PORT=NAME", value_parser = values::tap)]
    pub(crate) tap: Vec<(PortRef, String)>,

    /// Network namespace for the TAPs, by name (`ip netns`) or path; --fpm listens there and --kernel-routes looks there, too
    /// [default: that of this process]
    #[arg(long, value_name = "NAME", requires = "tap")]
    pub(crate) tap_netns: Option<String>,

    /// TAPs stay when the forwarder ends, with their addresses and the routes over them, and its next start takes them over: those of
    /// its own user to which no process is attached, if it has this option or not. Without this option they go with the forwarder;
    /// `ip link del NAME` deletes them, too
    #[arg(long, requires = "tap")]
    pub(crate) tap_persist: bool,

    /// Mean time in seconds that the answer of a neighbour on a port with an --address counts. One that is not heard of for three
    /// times as long is asked again, and forgotten when it does not answer
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
    /// Capture to replay: pcap or pcapng, plain or packed by gzip, bzip2, xz or zstd; of Ethernet, raw IP, loopback or Linux cooked
    /// interfaces. None with --generate
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

/// How `replay` drives the forwarder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Harness")]
pub(crate) struct HarnessArgs {
    /// Ports of the forwarder
    #[arg(long, value_name = "P", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) ports: u16,

    /// Take the first N packets of the trace [default: all]
    #[arg(long, value_name = "N", value_parser = values::count::<usize>(1..=u64::MAX))]
    pub(crate) limit: Option<usize>,

    /// Times the trace is sent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::count::<u64>(1..=u64::MAX))]
    pub(crate) loops: u64,

    /// Send the trace over and over for so many seconds instead
    #[arg(long, value_name = "S", value_parser = values::seconds, conflicts_with = "loops")]
    pub(crate) duration: Option<Duration>,

    /// Send the trace for S seconds more before that. What is sent then is among the packets and verified, but in no rate and in no
    /// latency; cycles by pass are of all packets
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) warmup: Option<Duration>,

    /// Speed the trace is offered at; below max, latency counts from the intended send time. At max, without --verify and --out,
    /// packets lie ready in mbufs and are not copied. N% is of the rate that is forwarded without loss, which a search of a few seconds
    /// finds first. A rate A..B changes evenly from A to B within --ramp, or else within --duration
    #[arg(long, value_name = "max|N[k|M|G]pps|N[k|M|G]bps|N%|A..B|original|xF", default_value = "max", value_parser = values::rate)]
    pub(crate) rate: OfferedRate,

    /// Raise the rate evenly within the first S seconds, from 0 or the first rate of --rate A..B, and keep it then. With a --warmup as
    /// long, only what comes then is measured
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    pub(crate) ramp: Option<Duration>,

    /// Deal the trace by flow over all ports [default: all of it arrives on port 0]
    #[arg(long, conflicts_with = "port_of")]
    pub(crate) spread: bool,

    /// Packets that were captured on interface IFACE of a pcapng file, its name or its number from 0 on, arrive on port PORT; all others on
    /// port 0. May be given several times
    #[arg(long, value_name = "IFACE=PORT", conflicts_with = "generate", value_parser = values::port_of)]
    pub(crate) port_of: Vec<PortOf>,

    /// Whether the trace is read while it is replayed, in a bounded amount of memory; at full speed its packets are then copied
    #[arg(long, value_name = "WHEN", default_value = "auto", conflicts_with = "generate", value_enum)]
    pub(crate) stream: StreamWhen,

    /// Write what leaves by port N to DIR/portN.pcap
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Check every packet against the oracle
    #[arg(long)]
    pub(crate) verify: bool,

    /// Print the numbers of this run beside those that --json wrote in an earlier one. Refused unless routes, packets and the way they
    /// are offered are the same
    #[arg(long, value_name = "OLD.json")]
    pub(crate) compare: Option<PathBuf>,

    /// Lcores of the forwarder when there is no --config; more than CPUs is allowed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=127))]
    pub(crate) lcores: Option<u16>,

    /// Use no hugepages (they are used when there are any)
    #[arg(long)]
    pub(crate) no_huge: bool,

    /// Make the receiving side take packets on one poll in N only, to see what a slow link loses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) tx_slow: u32,

    /// Make the receiving side of each port take no more than a link of this rate, in packets or in bits of frames
    #[arg(long, value_name = "N[k|M|G]pps|N[k|M|G]bps", value_parser = values::load)]
    pub(crate) tx_rate: Option<OfferedRate>,

    /// Mbufs for packets [default: as many as may be inside]; with fewer, packets wait for mbufs to come back
    #[arg(long, value_name = "N", value_parser = values::count::<u32>(1..=u32::MAX.into()))]
    pub(crate) mbufs: Option<u32>,
}

impl HarnessArgs {
    /// The spec for the harness, including `updates` and `search`.
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

A gateway without a `neigh ADDR lladdr MAC dev PORT` line gets no packet, unless its port has an --address: they are dropped as no_neighbour. A bare
id's MAC is made of its number. What stands behind -- goes to DPDK as it is. Ctrl-C stops receiving, drains, and prints the
summary; a second one exits at once.";

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

A gateway without a neighbour gets no packet, as in run. A table from MRT names gateways alone; to measure with it, make
ids of them: fwd-app fib convert rib.mrt.bz2 --to text -o routes.txt";

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
