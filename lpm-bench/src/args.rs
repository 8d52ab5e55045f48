//! The command line. Option names are stable; the text of `--help` is each option's documentation.

use clap::{Args, Parser, Subcommand};
use fib::traffic::Traffic;
use fib::{Family, units};
use serde::{Serialize, Serializer};
use std::path::PathBuf;

/// Measures engines and their peers on the same keys in one run, and checks each against the oracle.
#[derive(Debug, Parser)]
#[command(name = "lpm-bench", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

const EXAMPLES: &str = "\
Examples:
  lpm-bench lookup --generate v4=950000,v6=200000 --engines bloom --cpu 1
  lpm-bench update --fib v4.txt.xz --updates updates.mrt.gz --engines bloom,rte_fib
  lpm-bench paper gamt --out figures --quick
  lpm-bench report --quick

Exit codes: 0 success, 1 failure or wrong answers, 2 bad usage or configuration, 3 the device of a named engine is absent";

/// The default engines: without `rte_lpm`, which takes minutes to load a full table.
const DEFAULT_ENGINES: &str =
    if cfg!(feature = "dpdk") { "oracle,bloom,rte_fib,rte_fib6" } else { "oracle,bloom" };

const LOOKUP_EXAMPLES: &str = "\
Examples:
  lpm-bench lookup --generate v4=950000,v6=200000 --engines bloom --cpu 1
  lpm-bench lookup --fib v4.txt.xz --fib v6.txt.xz --engines bloom,rte_fib,rte_fib6 --json lookup.json
  lpm-bench lookup --fib routes.txt --engines bloom:scalar,bloom:avx512f,oracle --traffic table,capture:trace.pcap
  lpm-bench lookup --fib v4.txt.xz --engines bloom:avx512f,miht,coop --threads 1,2 --table-node 0
  lpm-bench lookup --fib v4.txt.xz --engines oracle,sail-m --engine-arg fibs=16

Engines: oracle, host, sail-b, sail-u, sail-l, sail-m, linear, bloom, bloom-baseline, bloom-naive, miht, coop, mamt, on a GPU gamt, gale, sail-gpu, and
with DPDK built in (--features dpdk) rte_fib, rte_fib6, rte_lpm, rte_lpm6.
  NAME        every variant this host has: each instruction set, and rte_fib with 4-byte and 2-byte entries
  NAME:ISA    one instruction set: scalar, avx2, avx512f     rte_fib-2b, rte_fib-4b    one entry size
rte_lpm takes minutes to load a full table.
sail-m with --engine-arg fibs=N holds the table in FIB 0 and seeded variations of it in the others; each key is looked up in a FIB drawn
at random, and checked against that FIB's oracle. Engines with one FIB look up in FIB 0.

Exit codes: 0 success, 1 failure or wrong answers, 2 bad usage or configuration, 3 the device of a named engine is absent";

const PAPER_EXAMPLES: &str = "\
Examples:
  lpm-bench paper gamt --out figures
  lpm-bench paper gamt --out figures --quick --generate v4=450752,v6=11841
  lpm-bench paper gamt --out figures --fib v4.txt.xz --fib v6.txt.xz --updates updates.mrt.gz --figures fig13,fig14
  lpm-bench paper bloomfwd --out figures --quick
  lpm-bench paper bloomfwd --out figures --fib v4.txt.xz --fib v6.txt.xz --figures table4,fig02,fig07 --threads 4
  lpm-bench paper bloomfwd --out figures --figures fig04 --trace trace.pcap
  lpm-bench paper sail --out figures --quick
  lpm-bench paper poster --out figures --figures layout,drawings
  lpm-bench paper engines --out figures --quick

Each figure becomes NAME.json and NAME.svg, with the paper's numbers next to ours. An unknown name in --figures prints all names.
Data sets: each file of --fib, and the table of --generate; by default the known files in the folder of the environment variable
FWD_DATA; without it, two generated tables. By default, bloomfwd adds generated tables of the paper's sizes. Without a GPU or
AVX-512F, figures or parts of figures that need it are skipped with a message.

Exit codes: 0 success, 1 failure or wrong answers, 2 bad usage or configuration";

const REPORT_EXAMPLES: &str = "\
Examples:
  lpm-bench report --quick
  lpm-bench report --out report --fib v4.txt.xz --fib v6.txt.xz --updates updates.mrt.gz --trace trace.pcap
  lpm-bench report --out report --resume
  lpm-bench report --out report --against older/report.json

Writes index.html, which needs no other file, report.json with its JSON Schema, and a folder with the figures of each paper. Tables are
chosen as by `lpm-bench paper`.

Exit codes: 0 success, 1 failure or wrong answers, 2 bad usage or configuration";

const UPDATE_EXAMPLES: &str = "\
Examples:
  lpm-bench update --fib v4.txt.xz --updates updates.mrt.gz --engines bloom,rte_fib
  lpm-bench update --generate v4=950000 --generate-updates 200000 --engines bloom --rates 1k,100k,max --json update.json
  lpm-bench update --fib v4.txt.xz --updates updates.txt.xz --engines host,rte_fib-4b --work feed,default,third --rates max

`default` and `third` need no --updates, and run at full speed. Their rows count each changed route as an update; `median us` is the
time of a delta.
sail-m with --engine-arg fibs=N takes each update in every FIB, N updates in all; the lookups are in FIB 0.

Exit codes: 0 success, 1 failure or wrong answers, 2 bad usage or configuration, 3 the device of a named engine is absent";

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Lookups a second of every engine and peer, interleaved in one run
    #[command(after_help = LOOKUP_EXAMPLES)]
    Lookup(LookupArgs),
    /// Updates a second, and their cost for concurrent lookups
    #[command(after_help = UPDATE_EXAMPLES)]
    Update(UpdateArgs),
    /// The figures and tables of a paper, on this host
    #[command(after_help = PAPER_EXAMPLES)]
    Paper(PaperArgs),
    /// All papers on one page: each of their numbers, ours, and a verdict
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Routes")]
pub(crate) struct TableArgs {
    /// File of routes, in any format of fwd-app; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) fib: Vec<PathBuf>,

    /// Generate routes like today's Internet, v4=ROUTES,v6=ROUTES; may be combined with --fib
    #[arg(long, value_name = "SPEC", value_parser = generate)]
    pub(crate) generate: Option<Generate>,

    /// Number of next hops of a generated table
    #[arg(long, value_name = "N", default_value_t = fib::generate::DEFAULT_NEXT_HOPS)]
    pub(crate) next_hops: u32,

    /// Seed of routes, traffic, updates and samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// How engines on a device are driven; their figures are by wall time, all threads together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args, Serialize)]
#[command(next_help_heading = "Engines on a device")]
pub(crate) struct DeviceArgs {
    /// Keys in a batch; at most 128K for coop without a GPU
    #[arg(long, value_name = "N[K|M]", default_value = "256K", value_parser = positive)]
    pub(crate) device_batch: usize,

    /// Batches in flight for each thread; coop without a GPU has one
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) device_slots: u16,

    /// Number of threads that submit batches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) device_threads: u16,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Engines")]
pub(crate) struct EngineArgs {
    /// Engines and peers, see below; `all` is all of these, `best` uses the best instruction set of each
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = DEFAULT_ENGINES)]
    pub(crate) engines: Vec<String>,

    /// Keys of one call, like the batch of a forwarder
    #[arg(long, value_name = "N", default_value = "256", value_parser = positive)]
    pub(crate) call: usize,

    /// Keys of each stream
    #[arg(long, value_name = "N[K|M]", default_value = "4M", value_parser = positive)]
    pub(crate) keys: usize,

    /// Measure one family only: v4 or v6 [default: every family with routes]
    #[arg(long, value_name = "FAMILY", value_parser = family)]
    pub(crate) family: Option<Family>,

    /// Check the first N answers of each stream, and N random ones
    #[arg(long, value_name = "N[K|M]", default_value = "64K", value_parser = positive)]
    pub(crate) check: usize,

    /// CPU of the lookups [default: not pinned]
    #[arg(long, value_name = "CPU", value_parser = cpu)]
    pub(crate) cpu: Option<usize>,

    /// Memory limit of an engine's table
    #[arg(long, value_name = "BYTES[K|M|G]", default_value = "4G", value_parser = positive)]
    pub(crate) table_memory: usize,

    /// NUMA node for tables of our CPU engines [default: the node of the building thread]
    #[arg(long, value_name = "N")]
    pub(crate) table_node: Option<u32>,

    /// Parameter of our engines; may be given several times
    #[arg(long = "engine-arg", value_name = "NAME=VALUE", value_parser = engine_arg)]
    pub(crate) parameters: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// EAL arguments for the peers, as one text [default: depends on the free huge pages]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) eal: Option<String>,

    /// Write the rows as JSON, with host, build and seed
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LookupArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Traffic: random (or uniform), table, zipf, capture:FILE
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "random,table,zipf", value_parser = traffic)]
    pub(crate) traffic: Vec<Traffic>,

    /// Number of pinned threads that share a table [default: one thread, on --cpu if given, by its CPU time]
    ///
    /// The rate is the sum of all threads, by wall time. Several numbers are measured in turn. coop and devices use --device-threads
    /// instead.
    #[arg(long, value_name = "N,M", value_delimiter = ',', value_parser = threads)]
    pub(crate) threads: Vec<usize>,

    /// CPUs for --threads, assigned in turn [default: the CPUs of this process, from --cpu on]
    ///
    /// coop's caller runs on the first CPU, its helper threads on the others.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = cpu, requires = "threads")]
    pub(crate) cpus: Vec<usize>,

    /// Number of rounds; each round runs every engine once on every traffic
    #[arg(long, value_name = "N", default_value = "11", value_parser = positive)]
    pub(crate) rounds: usize,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    pub(crate) table: TableArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// File of updates
    ///
    /// MRT BGP4MP, `SECONDS a|w PREFIX PEER ORIGIN`, `SECONDS a|w PREFIX NEXT-HOP`, or `a PREFIX ID` and `w PREFIX`.
    #[arg(long, value_name = "FILE", conflicts_with = "generate_updates")]
    pub(crate) updates: Option<PathBuf>,

    /// Generate N updates that fit the routes
    #[arg(long, value_name = "N[K|M]", value_parser = positive)]
    pub(crate) generate_updates: Option<usize>,

    /// Updates to measure: feed, default or third
    ///
    /// `feed` is the given updates; `default` is one change of the default route in each delta; `third` is a new next hop for every third
    /// route in one delta.
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "feed")]
    pub(crate) work: Vec<UpdateWork>,

    /// Updates of the feed in each delta
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    pub(crate) delta: usize,

    /// Updates a second during lookups; `max` has no limit
    #[arg(long, value_name = "A,B", value_delimiter = ',', default_value = "1k,100k,max", value_parser = rate)]
    pub(crate) rates: Vec<UpdateRate>,

    /// Traffic of the lookups
    #[arg(long, value_name = "NAME", default_value = "table", value_parser = traffic)]
    pub(crate) traffic: Traffic,

    /// Duration of each measurement in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// CPU of the updates [default: not pinned]
    #[arg(long, value_name = "CPU", value_parser = cpu)]
    pub(crate) writer_cpu: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UpdateWork {
    /// The updates of a feed or a generator.
    Feed,
    /// The default route changes its next hop, is withdrawn and restored.
    Default,
    /// Every third route changes its next hop, all in one delta.
    Third,
}

impl UpdateWork {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Feed => "feed",
            Self::Default => "default",
            Self::Third => "third",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Series {
    /// SAIL: bytes on chip and accesses of `SAIL_B`, `SAIL_U`, `SAIL_L` and `SAIL_M`.
    Sail,
    /// Bloomfwd: figures 1 to 10, tables 4 and 5.
    Bloomfwd,
    /// GAMT: figures 6 and 8 to 19, tables 1 and 2.
    Gamt,
    /// The poster of GR, which the GAMT paper calls GALE: table 1.
    Poster,
    /// All engines and DPDK's tables on the same keys, without a paper.
    Engines,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PaperArgs {
    /// The paper
    pub(crate) series: Series,

    /// Folder for the figures, one JSON and one SVG for each; created if missing
    #[arg(long, value_name = "FOLDER", default_value = "figures")]
    pub(crate) out: PathBuf,

    #[command(flatten)]
    pub(crate) table: TableArgs,

    /// File of updates, for all data sets of gamt [default: generated for each]
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,

    /// Figures to make, for example fig09 or table1 [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) figures: Vec<String>,

    /// Measure fewer points, each for a shorter time
    #[arg(long)]
    pub(crate) quick: bool,

    /// Capture whose destinations are used as real addresses [default: zipf traffic]
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Keys of each stream, and largest batch [default: 16M, quick 4M; for gamt 32M, quick 16M]
    #[arg(long, value_name = "N[K|M]", value_parser = positive)]
    pub(crate) keys: Option<usize>,

    /// Number of threads, for a large batch of gamt, or the maximum for bloomfwd
    ///
    /// Default for gamt: one less than the CPUs, at most 8. Default for bloomfwd: the number of CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Memory limit for tables of bloomfwd [default: 2G, quick 512M]
    ///
    /// It refuses expansions to few levels.
    #[arg(long, value_name = "BYTES[K|M|G]", value_parser = positive)]
    table_memory: Option<usize>,

    /// Duration of each measurement in seconds [default: 0.3, quick 0.1]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) point_seconds: Option<f64>,

    /// Parameter of the engines of gamt, or of bloom; may be given several times
    ///
    /// A figure of gamt may set the parameter to other values.
    #[arg(long = "engine-arg", value_name = "NAME=VALUE", value_parser = engine_arg)]
    pub(crate) parameters: Vec<(String, String)>,

    /// Write no SVG
    #[arg(long)]
    pub(crate) no_pictures: bool,

    /// Keep existing figures of the same build, seeds and --quick
    #[arg(long)]
    pub(crate) resume: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folder for the page, its JSON and the figures; created if missing
    #[arg(long, value_name = "FOLDER", default_value = "report")]
    pub(crate) out: PathBuf,

    #[command(flatten)]
    table: TableArgs,

    /// File of updates for all data sets [default: the files in FWD_DATA, else generated]
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,

    /// Measure fewer points, each for a shorter time
    #[arg(long)]
    pub(crate) quick: bool,

    /// Capture whose destinations are used as real addresses [default: zipf traffic]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Keys of each stream [default: as `lpm-bench paper`]
    #[arg(long, value_name = "N[K|M]", value_parser = positive)]
    keys: Option<usize>,

    /// Number of threads [default: as `lpm-bench paper`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Duration of each measurement in seconds [default: 0.3, quick 0.1]
    #[arg(long, value_name = "S", value_parser = seconds)]
    point_seconds: Option<f64>,

    /// Continue an interrupted report: keep existing figures of the same build, seeds and --quick
    #[arg(long)]
    resume: bool,

    /// Older report.json whose numbers are shown next to the new ones
    #[arg(long, value_name = "FILE")]
    pub(crate) against: Option<PathBuf>,
}

impl ReportArgs {
    pub(crate) fn paper(&self, series: Series, out: PathBuf) -> PaperArgs {
        PaperArgs {
            series,
            out,
            table: self.table.clone(),
            updates: self.updates.clone(),
            figures: Vec::new(),
            quick: self.quick,
            trace: self.trace.clone(),
            keys: self.keys,
            threads: self.threads,
            table_memory: None,
            point_seconds: self.point_seconds,
            parameters: Vec::new(),
            no_pictures: false,
            resume: self.resume,
        }
    }
}

impl PaperArgs {
    pub(crate) fn keys(&self) -> usize {
        let (quick, full) = match self.series {
            Series::Gamt => (16 << 20, 32 << 20),
            Series::Bloomfwd | Series::Sail | Series::Poster | Series::Engines => (4 << 20, 16 << 20),
        };
        self.keys.unwrap_or(if self.quick { quick } else { full })
    }

    pub(crate) fn device(&self) -> u32 {
        let device = self.parameters.iter().rev().find(|(name, _)| name == "device");
        device.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn threads(&self) -> usize {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.map_or((cpus - 1).clamp(1, 8), |threads| usize::from(threads).min(64))
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.point_seconds.unwrap_or(if self.quick { 0.1 } else { 0.3 })
    }

    /// Rounds of a measurement, half of them with the keys of each seed.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 4 } else { 6 }
    }

    pub(crate) fn table_memory(&self) -> u64 {
        let bytes = self.table_memory.map(|bytes| bytes as u64);
        bytes.unwrap_or(if self.quick { 512 << 20 } else { 2 << 30 })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generate {
    v4: Option<usize>,
    v6: Option<usize>,
}

impl TableArgs {
    pub(crate) fn words(&self) -> Vec<String> {
        let files = self.fib.iter().flat_map(|file| ["--fib".to_owned(), file.display().to_string()]);
        let families = self.generate.iter().flat_map(|spec| spec.families());
        let generated: Vec<_> = families
            .map(|(family, routes)| match family {
                Family::V4 => format!("v4={routes}"),
                Family::V6 => format!("v6={routes}"),
            })
            .collect();
        let generate = (!generated.is_empty()).then(|| ["--generate".to_owned(), generated.join(",")]);
        let numbers = [("--next-hops", u64::from(self.next_hops)), ("--seed", self.seed)];
        let numbers = numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]);
        files.chain(generate.into_iter().flatten()).chain(numbers).collect()
    }
}

impl Generate {
    pub(crate) fn families(self) -> impl Iterator<Item = (Family, usize)> {
        [(Family::V4, self.v4), (Family::V6, self.v6)]
            .into_iter()
            .filter_map(|(family, routes)| routes.map(|routes| (family, routes)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UpdateRate {
    Max,
    PerSecond(f64),
}

impl Serialize for UpdateRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Max => serializer.serialize_str("max"),
            Self::PerSecond(rate) => serializer.serialize_f64(*rate),
        }
    }
}

impl std::fmt::Display for UpdateRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::PerSecond(rate) => write!(f, "{rate}"),
        }
    }
}

fn positive(text: &str) -> Result<usize, String> {
    let number = units::size(text).and_then(|size| usize::try_from(size).ok());
    number.ok_or_else(|| format!("'{text}' is not a number above 0 such as 256, 64K or 4M"))
}

/// A CPU's number; Linux's CPU sets end at 1023.
fn cpu(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|cpu| *cpu < 1024);
    number.ok_or_else(|| format!("'{text}' is not a CPU's number, 0 to 1023"))
}

/// A number of threads, limited to catch typing errors.
fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| format!("'{text}' is not a number of threads, 1 to 1024"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if number > 0.0 && number <= 3600.0 {
        Ok(number)
    } else {
        Err(format!("{text} is not between 0 and 3600 seconds"))
    }
}

fn rate(text: &str) -> Result<UpdateRate, String> {
    if text == "max" {
        return Ok(UpdateRate::Max);
    }
    let rate = units::rate(text).map(UpdateRate::PerSecond);
    rate.ok_or_else(|| format!("'{text}' is not a rate such as 1000, 10k, 1M or max"))
}

fn family(text: &str) -> Result<Family, String> {
    match text {
        "v4" | "ipv4" => Ok(Family::V4),
        "v6" | "ipv6" => Ok(Family::V6),
        _ => Err(format!("'{text}' is not v4 or v6")),
    }
}

fn traffic(text: &str) -> Result<Traffic, String> {
    Traffic::parse(text).map_err(|why| why.to_string())
}

fn engine_arg(text: &str) -> Result<(String, String), String> {
    units::named_value(text).ok_or_else(|| format!("'{text}' is not NAME=VALUE"))
}

pub(crate) fn generate(text: &str) -> Result<Generate, String> {
    let mut spec = Generate::default();
    for part in text.split(',') {
        let wrong = || format!("'{part}' is not v4=ROUTES or v6=ROUTES");
        let (family, routes) = part.split_once('=').ok_or_else(wrong)?;
        let routes: usize = routes.parse().map_err(|_| wrong())?;
        let slot = match family {
            "v4" => &mut spec.v4,
            "v6" => &mut spec.v6,
            _ => return Err(wrong()),
        };
        if slot.replace(routes).is_some() {
            return Err(format!("{family} is given twice"));
        }
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn documented_command_lines_parse() {
        let mut lines = fib::testing::docs::documented("lpm-bench");
        assert!(!lines.is_empty());
        for sub in Cli::command().get_subcommands() {
            let text = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            lines.extend(fib::testing::docs::command_lines(sub.get_name(), &text, "lpm-bench"));
        }
        lines.extend(fib::testing::docs::command_lines("lpm-bench", EXAMPLES, "lpm-bench"));
        for line in lines {
            let parsed = Cli::try_parse_from(&line.words);
            assert!(parsed.is_ok() || line.is_inline, "{}: {}", line.place, parsed.unwrap_err());
        }
    }

    #[test]
    fn the_command_line_is_sound_and_each_help_has_an_example() {
        let mut command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands_mut() {
            assert!(sub.render_help().to_string().contains("Examples:\n  lpm-bench "));
        }
    }

    #[test]
    fn values_are_read_and_refused() {
        assert_eq!(positive("4M"), Ok(4 << 20));
        assert!(positive("0").is_err() && rate("k").is_err());
        assert_eq!([rate("max"), rate("10k")], [Ok(UpdateRate::Max), Ok(UpdateRate::PerSecond(1e4))]);
        let spec = generate("v6=20,v4=10").unwrap();
        assert_eq!(spec.families().collect::<Vec<_>>(), [(Family::V4, 10), (Family::V6, 20)]);
        for text in ["", "v4", "v5=1", "v4=x", "v4=1,v4=2"] {
            assert!(generate(text).is_err(), "{text}");
        }
    }
}
