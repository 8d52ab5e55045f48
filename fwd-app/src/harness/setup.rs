//! Layout of a replay: lcores, queues, EAL arguments, ring and pool sizes. Pure functions; properties of the host are parameters.

use super::interfaces::PortOf;
use super::{HarnessSpec, OfferedRate};
use crate::error::ConfigError;
use crate::topology::pipeline::BATCHES_PER_INPUT;
use crate::topology::plan::{LcorePlan, LcoreResources, PlanError};
use crate::topology::{QueueLcore, QueueMap, TopologyKind};
use dpdk_ffi::MempoolConfig;
use dpdk_ffi::ready::HEADER_BYTES;
use std::fmt::Write as _;

pub(crate) const QUEUES_MAX: u16 = 16;
/// Smallest window of packets inside the forwarder: it fits the cache.
const WINDOW_MIN: u64 = 4096;
/// The same in lossy trials: the descriptors of an RX queue of `run`.
const QUEUE_MIN: u64 = 1024;
/// Largest window, for large batches: 64 K mbufs take 160 MB.
const WINDOW_MAX: u64 = 1 << 16;
/// Most memory for prepared packets: a million of 1,518 bytes fit.
const READY_BYTES_MAX: u64 = 1 << 31;
/// Most packet bytes of one mbuf.
const ROOM_MAX: usize = 16_384;
/// Memory of an mbuf without its data room: 128 bytes, its headroom of 128, and its pool header of 64; DPDK pads them for memory channels.
const MBUF_BYTES: u64 = 448;
/// Slots of a TX ring with a slow sink.
const SLOW_RING: u32 = 256;
/// Slots of a TX ring with a modelled link: the descriptors of a TX queue of `run`.
const LINK_RING: u32 = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lcores {
    pub(crate) config: QueueMap,
    /// The forwarder's lcores; includes main only if it forwards too.
    pub(crate) workers: Vec<u16>,
    /// Runs feeder, sink and housekeeping.
    pub(crate) main: u16,
    pub(crate) shared: bool,
}

impl Lcores {
    /// # Errors
    /// [`ConfigError::Invalid`] for an impossible config, [`ConfigError::NoDevice`] for a missing port.
    pub(crate) fn new(
        spec: &HarnessSpec,
        topology: TopologyKind,
        config: Option<&QueueMap>,
        cpus: usize,
    ) -> Result<Self, ConfigError> {
        let receives = receives(spec)?;
        if let Some(map) = config {
            return Self::of_config(spec, &receives, topology, map, cpus);
        }
        let spare = u16::try_from(cpus.saturating_sub(1)).unwrap_or(u16::MAX);
        let pipeline = topology == TopologyKind::Pipeline;
        let inputs_min = u16::try_from(receives.len()).unwrap_or(u16::MAX);
        let useful = if pipeline { 3 } else { inputs_min };
        let count = spec.lcores.unwrap_or(useful.min(spare));
        if count == 0 {
            // One CPU: one lcore polls everything in turn.
            let config = deal(&receives, 1, &[0])?;
            return Ok(Self { config, workers: vec![0], main: 0, shared: false });
        }
        let workers: Vec<u16> = (1..=count).collect();
        let receiving = if pipeline { &workers[..1] } else { &workers[..] };
        let queues = u16::try_from(receiving.len()).unwrap_or(u16::MAX).max(1);
        if queues > QUEUES_MAX {
            return Err(ConfigError::Invalid(format!(
                "--lcores {count}: at most {QUEUES_MAX} lcores can receive and send in a replay"
            )));
        }
        let config = deal(&receives, queues, receiving)?;
        Ok(Self { config, shared: workers.len() + 1 > cpus, workers, main: 0 })
    }

    fn of_config(
        spec: &HarnessSpec,
        receives: &[u16],
        topology: TopologyKind,
        map: &QueueMap,
        cpus: usize,
    ) -> Result<Self, ConfigError> {
        let (ports, tuples) = (spec.ports, map.tuples());
        for tuple in tuples {
            if tuple.port >= ports {
                return Err(ConfigError::NoDevice(format!(
                    "--config names port {}, but there are {ports} (0 to {}); see --ports",
                    tuple.port,
                    ports - 1
                )));
            }
            if tuple.lcore >= 127 || tuple.queue >= QUEUES_MAX {
                return Err(ConfigError::Invalid(format!(
                    "--config names lcore {} and queue {}; a replay has lcores 0 to 126 and queues 0 to {}",
                    tuple.lcore,
                    tuple.queue,
                    QUEUES_MAX - 1
                )));
            }
        }
        let is_served = |port: &&u16| tuples.iter().any(|tuple| tuple.port == **port);
        if let Some(port) = receives.iter().find(|port| !spec.spread && !is_served(port)) {
            return Err(ConfigError::Invalid(format!(
                "packets of the trace are received on port {port}, which --config gives to no lcore; see --port-of and --spread"
            )));
        }
        let mut workers = map.lcores();
        workers.sort_unstable();
        let receiving = workers.len();
        if topology == TopologyKind::Pipeline {
            // Engine and senders need separate lcores: as many as --lcores asks for or there are CPUs for.
            let wanted = usize::from(spec.lcores.unwrap_or(0)).max(cpus.saturating_sub(1).min(receiving + 2));
            let next = (0..127).filter(|lcore| !tuples.iter().any(|tuple| tuple.lcore == *lcore));
            workers.extend(next.skip(1).take(wanted.saturating_sub(receiving)));
        }
        if workers.len() > usize::from(QUEUES_MAX) {
            return Err(ConfigError::Invalid(format!("a replay has at most {QUEUES_MAX} lcores that send")));
        }
        let main = (0..=127).find(|lcore| !workers.contains(lcore)).unwrap_or(127);
        Ok(Self { config: map.clone(), shared: workers.len() + 1 > cpus, workers, main })
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> =
            self.workers.iter().chain([&self.main]).map(|lcore| u32::from(*lcore)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(crate) fn plan(&self, topology: TopologyKind, ports: u16) -> Result<LcorePlan, ConfigError> {
        let (ports, main) = (usize::from(ports), u32::from(self.main));
        let host = LcoreResources { ports, tx_queues_max: QUEUES_MAX, lcores: &self.all(), main };
        Ok(LcorePlan::new(topology, Some(&self.config), host)?)
    }

    /// The value of EAL's `--lcores`: one CPU per lcore if there are enough, otherwise all lcores float over all CPUs.
    pub(crate) fn eal_argument(&self, cpus: &[u16]) -> String {
        let list = |numbers: &mut dyn Iterator<Item = u32>| {
            numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
        };
        let all = self.all();
        if all.len() > cpus.len() {
            let cpus = list(&mut cpus.iter().map(|cpu| u32::from(*cpu)));
            return format!("({})@({cpus})", list(&mut all.into_iter()));
        }
        // Main first, so that its CPU does not depend on the number of workers.
        let others = all.iter().copied().filter(|lcore| *lcore != u32::from(self.main));
        let mut argument = String::new();
        for (lcore, cpu) in std::iter::once(u32::from(self.main)).chain(others).zip(cpus) {
            let _ = write!(argument, "{}{lcore}@{cpu}", if argument.is_empty() { "" } else { "," });
        }
        argument
    }
}

/// # Errors
/// [`ConfigError::NoDevice`] when `--port-of` names a missing port.
fn receives(spec: &HarnessSpec) -> Result<Vec<u16>, ConfigError> {
    if let Some(PortOf { interface, port }) = spec.port_of.iter().find(|of| of.port >= spec.ports) {
        return Err(ConfigError::NoDevice(format!(
            "--port-of {interface}={port}: there are {} ports (0 to {}); see --ports",
            spec.ports,
            spec.ports - 1
        )));
    }
    if spec.spread {
        return Ok((0..spec.ports).collect());
    }
    let mut receives: Vec<_> = spec.port_of.iter().map(|of| of.port).chain([0]).collect();
    receives.sort_unstable();
    receives.dedup();
    Ok(receives)
}

fn deal(receives: &[u16], lcores: u16, ids: &[u16]) -> Result<QueueMap, ConfigError> {
    let width = u16::try_from(receives.len()).unwrap_or(u16::MAX);
    // Every port has a queue, every lcore has an input, and all ports have equally many queues.
    let queues = lcores.div_ceil(width).max(1);
    let tuple = |i: u16| QueueLcore {
        port: receives[usize::from(i % width)],
        queue: i / width,
        lcore: ids[usize::from(i % lcores)],
    };
    QueueMap::new((0..width * queues).map(tuple).collect()).map_err(|error| PlanError::from(error).into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) window: u64,
    pub(crate) rx_ring: u32,
    pub(crate) tx_ring: u32,
    pub(crate) mbufs: u32,
    pub(crate) pools: u32,
    pub(crate) data_room_bytes: u16,
    pub(crate) rings: u64,
    /// Times that the trace is prepared; `None` with a feeder.
    pub(crate) ready_turns: Option<u64>,
    /// Prepared frames are short: an input has `shared` mbufs for all its frames.
    are_short: bool,
    shared: u64,
}

impl Sizes {
    /// `frames` holds the number of frames and the bytes of the longest; `None` for a streamed trace. `is_seen`: the output is inspected.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for `--mbufs` below the minimum.
    pub(crate) fn new(
        spec: &HarnessSpec,
        layout: &Lcores,
        batch: usize,
        frames: Option<(usize, usize)>,
        is_seen: bool,
    ) -> Result<Self, ConfigError> {
        let (inputs, lcores, batch) = (layout.config.tuples().len(), layout.workers.len(), batch as u64);
        let rings = u64::from(spec.ports) * (lcores as u64 + 1) + inputs as u64;
        let window_min = if spec.has_lossy_trials() { QUEUE_MIN } else { WINDOW_MIN };
        let window = (batch * inputs as u64 * 2).next_power_of_two().clamp(window_min, WINDOW_MAX);
        let ring = u32::try_from(window * 2).unwrap_or(u32::MAX);
        let (frame_count, frame_bytes_max) = frames.unwrap_or((1, 0));
        // Longer frames are chained: mbufs for a whole window of them would take gigabytes, so fewer are inside.
        let cached = MempoolConfig::cached_max(lcores + 1) as u64;
        // Mbufs in the caches of other lcores are out of the feeder's reach: with fewer it could wait forever.
        let least = cached + u64::from(MempoolConfig::CACHE_MBUFS);
        let mbufs = spec.mbufs.map_or(window + cached + 1023, u64::from);
        if mbufs < least {
            return Err(ConfigError::Invalid(format!(
                "--mbufs {mbufs}: a replay with {lcores} lcores needs {least}"
            )));
        }
        // At least a window of packets, so that no packet waits for its own return.
        let turns = window.div_ceil(frame_count as u64).min(spec.loops);
        let ready = turns.saturating_mul(frame_count as u64);
        let is_at_ease = spec.rate == OfferedRate::Max
            && spec.search.is_none()
            && !spec.has_slow_sink()
            && spec.mbufs.is_none()
            && frames.is_some()
            && !is_seen;
        let room = frame_bytes_max.next_multiple_of(64).clamp(64, ROOM_MAX);
        let are_short = frame_bytes_max <= HEADER_BYTES;
        let frame_bytes = if are_short { HEADER_BYTES as u64 } else { room as u64 + MBUF_BYTES };
        let fits = frame_bytes_max <= ROOM_MAX && ready.saturating_mul(frame_bytes) <= READY_BYTES_MAX;
        // A pipeline holds this many batches of an input, and its rings as many packets.
        let shared = window.max(batch * BATCHES_PER_INPUT as u64 * 2);
        let ready_turns = (is_at_ease && fits).then_some(turns);
        let (mbufs, room) = match ready_turns {
            Some(_) if are_short => (ready.min(shared * inputs as u64), room),
            Some(_) => (ready, room),
            None => (mbufs, room.max(2048)),
        };
        Ok(Self {
            ready_turns,
            are_short,
            shared,
            window,
            rx_ring: ring,
            tx_ring: match spec {
                _ if spec.tx_rate.is_some() => LINK_RING,
                _ if spec.tx_slow > 1 => SLOW_RING,
                _ => ring,
            },
            mbufs: u32::try_from(mbufs).unwrap_or(u32::MAX),
            pools: if frames.is_some() { 1 } else { 2 },
            data_room_bytes: u16::try_from(room).unwrap_or(u16::MAX),
            rings,
        })
    }

    /// Mbufs for `frames` prepared frames of an input.
    pub(super) fn ready_mbufs(self, frames: usize) -> usize {
        let shared = usize::try_from(self.shared).unwrap_or(usize::MAX);
        if self.are_short { frames.min(shared) } else { frames }
    }

    pub(crate) fn memory_mb(self, huge_pages: bool) -> u32 {
        // Without huge pages DPDK lets no mbuf cross a 4 KB page.
        let mbuf = u64::from(self.data_room_bytes) + MBUF_BYTES;
        let mbuf = if huge_pages { mbuf } else { mbuf.next_multiple_of(4096) / (4096 / mbuf).max(1) };
        let rings = self.rings * (u64::from(self.rx_ring.max(self.tx_ring)) * 8 + 4096);
        let bytes = (u64::from(self.mbufs) * u64::from(self.pools) * mbuf + rings) * 9 / 8 + (64 << 20);
        u32::try_from(bytes >> 20).unwrap_or(u32::MAX)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use TopologyKind::{Pipeline, RunToCompletion};

    fn tuples(lcores: &Lcores) -> Vec<(u16, u16, u16)> {
        lcores.config.tuples().iter().map(|t| (t.port, t.queue, t.lcore)).collect()
    }

    #[test]
    fn by_default_one_lcore_works_and_main_feeds() {
        let new = |cpus| Lcores::new(&HarnessSpec::usual(), RunToCompletion, None, cpus).unwrap();
        let lcores = new(2);
        assert_eq!((tuples(&lcores), lcores.main, lcores.shared), (vec![(0, 0, 1)], 0, false));
        assert_eq!(lcores.eal_argument(&[4, 5]), "0@4,1@5");
        let alone = new(1);
        assert_eq!((tuples(&alone), alone.all()), (vec![(0, 0, 0)], vec![0]));
    }

    #[test]
    fn more_lcores_than_cpus_share_them() {
        let of = |lcores| HarnessSpec { lcores: Some(lcores), ..HarnessSpec::usual() };
        let lcores = Lcores::new(&of(8), RunToCompletion, None, 2).unwrap();
        assert_eq!((tuples(&lcores).len(), lcores.shared), (8, true));
        assert_eq!(lcores.eal_argument(&[0, 1]), "(0,1,2,3,4,5,6,7,8)@(0,1)");
        let spread = HarnessSpec { spread: true, ports: 2, ..of(3) };
        let spread = Lcores::new(&spread, RunToCompletion, None, 8).unwrap();
        assert_eq!(tuples(&spread), [(0, 0, 1), (1, 0, 2), (0, 1, 3), (1, 1, 1)]);
        let pipeline = Lcores::new(&of(5), Pipeline, None, 8).unwrap();
        assert_eq!((tuples(&pipeline), pipeline.workers.len()), (vec![(0, 0, 1)], 5));
        let refused = Lcores::new(&of(17), RunToCompletion, None, 64);
        assert!(matches!(refused, Err(ConfigError::Invalid(_))));
    }

    #[test]
    fn a_config_is_taken_or_refused() {
        let spec = HarnessSpec { lcores: Some(3), ..HarnessSpec::usual() };
        let layout = |topology, tuples: &[(u16, u16, u16)]| {
            let tuples = tuples.iter().map(|&(port, queue, lcore)| QueueLcore { port, queue, lcore });
            Lcores::new(&spec, topology, Some(&QueueMap::new(tuples.collect()).unwrap()), 2)
        };
        let lcores = layout(RunToCompletion, &[(0, 0, 0), (0, 1, 5)]).unwrap();
        assert_eq!((lcores.main, lcores.all()), (1, vec![0, 1, 5]));
        let refused = |tuple| layout(RunToCompletion, &[tuple]).unwrap_err();
        assert!(matches!(refused((4, 0, 1)), ConfigError::NoDevice(_)));
        assert!(matches!(refused((1, 0, 1)), ConfigError::Invalid(_)));
        assert!(matches!(refused((0, 0, 500)), ConfigError::Invalid(_)));
        let lcores = layout(Pipeline, &[(0, 0, 3)]).unwrap();
        assert_eq!((lcores.workers.len(), lcores.workers.contains(&lcores.main)), (3, false));
    }

    fn sizes(spec: HarnessSpec, lcores: u16, batch: usize, frame_bytes: usize) -> Result<Sizes, ConfigError> {
        let spec = HarnessSpec { lcores: Some(lcores), ..spec };
        let layout = Lcores::new(&spec, RunToCompletion, None, 64).unwrap();
        Sizes::new(&spec, &layout, batch, Some((1000, frame_bytes)), true)
    }

    #[test]
    fn a_window_always_fits_the_rings_unless_they_are_small_on_purpose() {
        for batch in [1, 256, 4096, 65536] {
            let sizes = sizes(HarnessSpec::usual(), 8, batch, 1514).unwrap();
            assert!(u64::from(sizes.tx_ring) > sizes.window && u64::from(sizes.rx_ring) > sizes.window);
            assert!(u64::from(sizes.mbufs) > sizes.window);
        }
        let slow = HarnessSpec { tx_slow: 9, ..HarnessSpec::usual() };
        assert_eq!(sizes(slow, 1, 128, 60).unwrap().tx_ring, SLOW_RING);
    }

    #[test]
    fn packets_lie_ready_where_nobody_sees_them_leave() {
        let turns = |spec: HarnessSpec, frames, frame_bytes, is_seen| {
            let layout = Lcores::new(&spec, RunToCompletion, None, 2).unwrap();
            Sizes::new(&spec, &layout, 128, Some((frames, frame_bytes)), is_seen).unwrap().ready_turns
        };
        let usual = || HarnessSpec { loops: 100, ..HarnessSpec::usual() };
        assert_eq!(turns(usual(), 1000, 1514, false), Some(5), "a window's worth");
        assert_eq!(turns(usual(), 400_000, 1514, false), Some(1));
        assert_eq!(turns(usual(), 1_048_576, 1518, false), Some(1));
        assert_eq!(turns(usual(), 10, 1514, false), Some(100), "never more than there are loops");
        for (spec, frames, frame_bytes, is_seen) in [
            (usual(), 1000, 1514, true),
            (usual(), 1_100_000, 1514, false),
            (usual(), 40_000_000, 60, false),
            (usual(), 1000, 20_000, false),
            (HarnessSpec { tx_slow: 2, ..usual() }, 1000, 1514, false),
            (HarnessSpec { mbufs: Some(4096), ..usual() }, 1000, 1514, false),
            (HarnessSpec { rate: OfferedRate::Pps(10e3), ..usual() }, 1000, 1514, false),
        ] {
            assert_eq!(turns(spec, frames, frame_bytes, is_seen), None);
        }
    }

    #[test]
    fn a_window_of_mbufs_serves_a_long_trace_of_short_packets() {
        let sizes = |frames, frame_bytes| {
            let spec = HarnessSpec { loops: 100, ..HarnessSpec::usual() };
            let layout = Lcores::new(&spec, RunToCompletion, None, 2).unwrap();
            Sizes::new(&spec, &layout, 128, Some((frames, frame_bytes)), false).unwrap()
        };
        for (frames, frame_bytes, mbufs) in
            [(1_000_000, 64, 4096), (1_000_000, 65, 1_000_000), (1000, 60, 4096), (30, 60, 3000)]
        {
            let sizes = sizes(frames, frame_bytes);
            let ready = frames * usize::try_from(sizes.ready_turns.unwrap()).unwrap();
            assert_eq!((sizes.mbufs as usize, sizes.ready_mbufs(ready)), (mbufs, mbufs), "{frames}");
        }
        let (short, long) = (sizes(1_000_000, 60), sizes(1_000_000, 1514));
        assert!(short.memory_mb(false) < 100, "{}", short.memory_mb(false));
        assert!(long.memory_mb(true) < 2400, "{}", long.memory_mb(true));
    }

    #[test]
    fn mbufs_are_as_many_as_told_or_the_number_is_refused() {
        let sizes = |mbufs| sizes(HarnessSpec { mbufs: Some(mbufs), ..HarnessSpec::usual() }, 1, 128, 1514);
        assert_eq!(sizes(1024).unwrap().mbufs, 1024);
        assert!(matches!(sizes(1023), Err(ConfigError::Invalid(why)) if why.contains("needs 1024")));
    }
}
