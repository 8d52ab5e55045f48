//! How a replay is laid out: lcores, queues, EAL arguments, sizes of rings and pools. Pure, but for two looks at the system.

use crate::cli::args::{ReplayArgs, TopologyKind};
use crate::cli::exit::CliError;
use crate::cli::values::{QueueLcore, QueueMap};
use std::fmt::Write as _;

/// The most rings that a `net_ring` port has each way.
pub(crate) const QUEUES_MAX: u16 = 16;
/// Packets inside the forwarder at most, where batches need no more: what fits the cache keeps the pace.
const WINDOW_MIN: u64 = 4096;
/// And where they need more: 64 K mbufs are 160 MB.
const WINDOW_MAX: u64 = 1 << 16;
/// Slots of a TX ring when the sink is slow on purpose.
const SLOW_RING: u32 = 256;
/// Mbufs that an lcore may keep in its cache; DPDK lets it hold half as many again.
pub(crate) const CACHE_MBUFS: u32 = 256;

/// Who runs on which lcore, and the EAL arguments for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lcores {
    /// Which lcore serves which queue.
    pub(crate) config: Vec<QueueLcore>,
    /// The lcores of the forwarder, main not among them unless it works too.
    pub(crate) workers: Vec<u16>,
    /// The lcore of feeder, sink and housekeeping.
    pub(crate) main: u16,
    /// Whether lcores share CPUs.
    pub(crate) shared: bool,
}

impl Lcores {
    /// Lays out the lcores for `args` on a host with `cpus`.
    ///
    /// # Errors
    /// [`CliError::Usage`] for a config that cannot be, [`CliError::NoDevice`] for a port that does not exist.
    pub(crate) fn new(args: &ReplayArgs, cpus: usize) -> Result<Self, CliError> {
        let ports = args.harness.ports;
        if let Some(map) = &args.forward.config {
            return Self::of_config(args, map, cpus);
        }
        let spare = u16::try_from(cpus.saturating_sub(1)).unwrap_or(u16::MAX);
        let pipeline = args.forward.topology() == TopologyKind::Pipeline;
        let inputs_min = if args.harness.spread { ports } else { 1 };
        let useful = if pipeline { 3 } else { inputs_min };
        let count = args.harness.lcores.unwrap_or(useful.min(spare));
        if count == 0 {
            // One CPU: everything is polled in turn by one lcore, a step each.
            let config = deal(ports, args.harness.spread, 1, &[0]);
            return Ok(Self { config, workers: vec![0], main: 0, shared: false });
        }
        let workers: Vec<u16> = (1..=count).collect();
        let receiving = if pipeline { &workers[..1] } else { &workers[..] };
        let queues = u16::try_from(receiving.len()).unwrap_or(u16::MAX).max(1);
        if queues > QUEUES_MAX {
            return Err(CliError::Usage(format!(
                "--lcores {count}: at most {QUEUES_MAX} lcores can receive and send in a replay"
            )));
        }
        let config = deal(ports, args.harness.spread, queues, receiving);
        Ok(Self { config, shared: workers.len() + 1 > cpus, workers, main: 0 })
    }

    fn of_config(args: &ReplayArgs, map: &QueueMap, cpus: usize) -> Result<Self, CliError> {
        let ports = args.harness.ports;
        for tuple in &map.0 {
            if tuple.port >= ports {
                return Err(CliError::NoDevice(format!(
                    "--config names port {}, but there are {ports} (0 to {}); see --ports",
                    tuple.port,
                    ports - 1
                )));
            }
            if tuple.lcore >= 127 || tuple.queue >= QUEUES_MAX {
                return Err(CliError::Usage(format!(
                    "--config names lcore {} and queue {}; a replay has lcores 0 to 126 and queues 0 to {}",
                    tuple.lcore,
                    tuple.queue,
                    QUEUES_MAX - 1
                )));
            }
        }
        if !args.harness.spread && !map.0.iter().any(|tuple| tuple.port == 0) {
            let message =
                "the trace is received on port 0, which --config gives to no lcore; or use --spread";
            return Err(CliError::Usage(message.into()));
        }
        let mut workers: Vec<u16> = map.0.iter().map(|tuple| tuple.lcore).collect();
        workers.sort_unstable();
        workers.dedup();
        let receiving = workers.len();
        if args.forward.topology() == TopologyKind::Pipeline {
            // Engine and senders need lcores of their own, as many as --lcores says or there are CPUs for.
            let wanted =
                usize::from(args.harness.lcores.unwrap_or(0)).max(cpus.saturating_sub(1).min(receiving + 2));
            let next = (0..127).filter(|lcore| !map.0.iter().any(|tuple| tuple.lcore == *lcore));
            workers.extend(next.skip(1).take(wanted.saturating_sub(receiving)));
        }
        if workers.len() > usize::from(QUEUES_MAX) {
            return Err(CliError::Usage(format!("a replay has at most {QUEUES_MAX} lcores that send")));
        }
        let main = (0..=127).find(|lcore| !workers.contains(lcore)).unwrap_or(127);
        Ok(Self { config: map.0.clone(), shared: workers.len() + 1 > cpus, workers, main })
    }

    /// All lcores, main included, sorted.
    pub(crate) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.workers.iter().chain([&self.main]).map(|lcore| u32::from(*lcore)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The value of EAL's `--lcores` on these CPUs: an lcore a CPU when there are enough, else all on all.
    pub(crate) fn eal_argument(&self, cpus: &[u16]) -> String {
        let list = |numbers: &mut dyn Iterator<Item = u32>| {
            numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
        };
        let all = self.all();
        if all.len() > cpus.len() {
            let cpus = list(&mut cpus.iter().map(|cpu| u32::from(*cpu)));
            return format!("({})@({cpus})", list(&mut all.into_iter()));
        }
        // Main first, so that it does not move when there are more workers.
        let others = all.iter().copied().filter(|lcore| *lcore != u32::from(self.main));
        let mut argument = String::new();
        for (lcore, cpu) in std::iter::once(u32::from(self.main)).chain(others).zip(cpus) {
            let _ = write!(argument, "{}{lcore}@{cpu}", if argument.is_empty() { "" } else { "," });
        }
        argument
    }
}

/// Inputs for lcores that receive: queues of port 0, or of all ports when the trace is spread.
fn deal(ports: u16, spread: bool, lcores: u16, ids: &[u16]) -> Vec<QueueLcore> {
    let width = if spread { ports } else { 1 };
    // Every port has a queue, every lcore has work, and each port has as many queues as the next.
    let queues = lcores.div_ceil(width).max(1);
    let tuple =
        |i: u16| QueueLcore { port: i % width, queue: i / width, lcore: ids[usize::from(i % lcores)] };
    (0..width * queues).map(tuple).collect()
}

/// Sizes that follow from the batch and the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Packets inside the forwarder at most.
    pub(crate) window: u64,
    /// Slots of an RX ring.
    pub(crate) rx_ring: u32,
    /// Slots of a TX ring.
    pub(crate) tx_ring: u32,
    /// Mbufs of the pool.
    pub(crate) mbufs: u32,
    /// Bytes of packet an mbuf holds.
    pub(crate) data_room_bytes: u16,
    /// Rings in all.
    pub(crate) rings: u64,
}

impl Sizes {
    /// For batches of `batch_max` at `inputs` queues, `lcores` lcores, frames of at most `frame_bytes_max`, and `rings` in all.
    ///
    /// # Errors
    /// [`CliError::Usage`] for fewer mbufs than a replay gets on with.
    pub(crate) fn new(
        args: &ReplayArgs,
        inputs: usize,
        lcores: usize,
        frame_bytes_max: usize,
        rings: u64,
    ) -> Result<Self, CliError> {
        let batch = args.forward.batch_max() as u64;
        let window = (batch * inputs as u64 * 2).next_power_of_two().clamp(WINDOW_MIN, WINDOW_MAX);
        let ring = u32::try_from(window * 2).unwrap_or(u32::MAX);
        let room = frame_bytes_max.next_multiple_of(64).clamp(2048, 16_384);
        // A longer frame is a chain: room for a window of those would be gigabytes, so fewer are inside then.
        let cached = u64::from(CACHE_MBUFS) * 3 / 2 * (lcores as u64 + 1);
        // What lies in the caches of other lcores cannot be had by the feeder: fewer, and it might wait for ever.
        let least = cached + u64::from(CACHE_MBUFS);
        let mbufs = args.harness.mbufs.map_or(window + cached + 1023, u64::from);
        if mbufs < least {
            return Err(CliError::Usage(format!(
                "--mbufs {mbufs}: a replay with {lcores} lcores needs {least}"
            )));
        }
        Ok(Self {
            window,
            rx_ring: ring,
            tx_ring: if args.harness.tx_slow > 1 { SLOW_RING } else { ring },
            mbufs: u32::try_from(mbufs).unwrap_or(u32::MAX),
            data_room_bytes: u16::try_from(room).unwrap_or(u16::MAX),
            rings,
        })
    }

    /// Memory for all of it, megabytes.
    pub(crate) fn memory_mb(self, huge_pages: bool) -> u32 {
        // An mbuf is 128 bytes, its headroom 128, its pool's header 64; DPDK spreads them over memory channels, and lets
        // none cross a page of 4 KB without huge pages.
        let mbuf = u64::from(self.data_room_bytes) + 448;
        let mbuf = if huge_pages { mbuf } else { mbuf.next_multiple_of(4096) };
        let rings = self.rings * (u64::from(self.rx_ring.max(self.tx_ring)) * 8 + 4096);
        let bytes = (u64::from(self.mbufs) * mbuf + rings) * 9 / 8 + (64 << 20);
        u32::try_from(bytes >> 20).unwrap_or(u32::MAX)
    }
}

/// The EAL arguments of a replay.
pub(crate) fn eal_arguments(lcores: &Lcores, cpus: &[u16], memory_mb: u32, huge_pages: bool) -> Vec<String> {
    let mut arguments: Vec<String> = vec![
        "--lcores".into(),
        lcores.eal_argument(cpus),
        "--main-lcore".into(),
        lcores.main.to_string(),
        "-m".into(),
        memory_mb.to_string(),
        "--no-pci".into(),
        format!("--file-prefix=fwd-replay-{}", std::process::id()),
        "--log-level=error".into(),
    ];
    if huge_pages {
        arguments.extend(["--in-memory".into(), "--iova-mode=va".into()]);
    } else {
        arguments.extend(["--no-huge".into(), "--no-shconf".into(), "--no-telemetry".into()]);
    }
    arguments
}

/// Whether `memory_mb` of 2 MB pages are free.
pub(crate) fn huge_pages_free(memory_mb: u32) -> bool {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    let free: u64 = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    free * 2 > u64::from(memory_mb)
}

/// The CPUs that this process may use.
pub(crate) fn cpus_allowed() -> Vec<u16> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let cpus = parse_cpus(list.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// `0-3,8` as numbers.
fn parse_cpus(list: &str) -> Vec<u16> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u16>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::ReplayArgs;
    use clap::{Args as _, FromArgMatches as _};

    fn args(extra: &[&str]) -> ReplayArgs {
        let command = ReplayArgs::augment_args(clap::Command::new("replay"));
        let words = ["replay", "t.pcap", "--fib", "r.txt"].iter().chain(extra);
        ReplayArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    fn tuples(lcores: &Lcores) -> Vec<(u16, u16, u16)> {
        lcores.config.iter().map(|t| (t.port, t.queue, t.lcore)).collect()
    }

    #[test]
    fn by_default_one_lcore_works_and_main_feeds() {
        let lcores = Lcores::new(&args(&[]), 2).unwrap();
        assert_eq!((tuples(&lcores), lcores.main, lcores.shared), (vec![(0, 0, 1)], 0, false));
        assert_eq!(lcores.eal_argument(&[4, 5]), "0@4,1@5");
        // One CPU: one lcore steps through everything.
        let alone = Lcores::new(&args(&[]), 1).unwrap();
        assert_eq!((tuples(&alone), alone.all()), (vec![(0, 0, 0)], vec![0]));
    }

    #[test]
    fn more_lcores_than_cpus_share_them() {
        let lcores = Lcores::new(&args(&["--lcores", "8"]), 2).unwrap();
        assert_eq!((lcores.config.len(), lcores.shared), (8, true));
        assert_eq!(lcores.eal_argument(&[0, 1]), "(0,1,2,3,4,5,6,7,8)@(0,1)");
        let spread = Lcores::new(&args(&["--lcores", "3", "--spread", "--ports", "2"]), 8).unwrap();
        assert_eq!(tuples(&spread), [(0, 0, 1), (1, 0, 2), (0, 1, 3), (1, 1, 1)]);
        let pipeline = Lcores::new(&args(&["--topology", "pipeline", "--lcores", "5"]), 8).unwrap();
        assert_eq!((tuples(&pipeline), pipeline.workers.len()), (vec![(0, 0, 1)], 5));
        assert!(matches!(Lcores::new(&args(&["--lcores", "17"]), 64), Err(CliError::Usage(_))));
    }

    #[test]
    fn a_config_is_taken_or_refused() {
        let lcores = Lcores::new(&args(&["--config", "(0,0,0),(0,1,5)"]), 2).unwrap();
        assert_eq!((lcores.main, lcores.all()), (1, vec![0, 1, 5]));
        let refused = |extra: &[&str]| Lcores::new(&args(extra), 2).unwrap_err();
        assert!(matches!(refused(&["--config", "(4,0,1)"]), CliError::NoDevice(_)));
        assert!(matches!(refused(&["--config", "(1,0,1)"]), CliError::Usage(_)));
        assert!(matches!(refused(&["--config", "(0,0,500)"]), CliError::Usage(_)));
        let pipeline = args(&["--config", "(0,0,3)", "--topology", "pipeline", "--lcores", "3"]);
        let lcores = Lcores::new(&pipeline, 2).unwrap();
        assert_eq!((lcores.workers.len(), lcores.workers.contains(&lcores.main)), (3, false));
    }

    #[test]
    fn a_window_always_fits_the_rings_unless_they_are_small_on_purpose() {
        for batch in ["1", "256", "4096", "65536"] {
            let sizes = Sizes::new(&args(&["--batch", batch]), 8, 8, 1514, 20).unwrap();
            assert!(u64::from(sizes.tx_ring) > sizes.window && u64::from(sizes.rx_ring) > sizes.window);
            assert!(u64::from(sizes.mbufs) > sizes.window);
        }
        assert_eq!(Sizes::new(&args(&["--tx-slow", "9"]), 1, 1, 60, 9).unwrap().tx_ring, SLOW_RING);
    }

    #[test]
    fn mbufs_are_as_many_as_told_or_the_number_is_refused() {
        let sizes = |mbufs| Sizes::new(&args(&["--mbufs", mbufs]), 1, 1, 1514, 8);
        assert_eq!(sizes("1024").unwrap().mbufs, 1024);
        assert!(matches!(sizes("1023"), Err(CliError::Usage(why)) if why.contains("needs 1024")));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-2,7"), [0, 1, 2, 7]);
        assert_eq!(parse_cpus(""), [] as [u16; 0]);
    }
}
