//! The router's thread: hands punts of the datapath to the [`Router`], and carries out its actions.
//!
//! Answers and released packets go to a TX stage. Learned MACs go to the control thread, which builds egress entries from them.
//! Created, received and dropped packets are counted, so that every packet is still counted once.
//!
//! Frames for our addresses without an answer here go to the kernel by the [`Taps`]; frames from the kernel are sent unchanged. The kernel
//! resolves its own neighbours, and gets copies of the answers.

pub(crate) mod asked;
mod follow;
mod kernel;
mod learned;
mod receive;
mod send;

use crate::datapath::drop_reason::PuntClass;
use crate::datapath::punt::PuntTag;
use crate::datapath::tx::ORIGINATED_MAX;
use crate::datapath::watch::Watch;
use crate::datapath::{Counters, DropReason, EgressTable, Published};
use crate::neighbours::config::NeighbourConfig;
use crate::neighbours::entries::{Key, Resolved};
use crate::neighbours::limiter::Bucket;
use crate::neighbours::{Action, Router, RouterConfig};
use crate::ports::InterfaceId;
use crate::ports::table::SharedPorts;
use crate::ports::taps::Taps;
use crate::threads::{Heartbeat, join_within, spawn};
use crate::topology::StageOutcome;
use crate::topology::punts::{self, PuntRings, RING_SLOTS, WAITING};
use arc_swap::ArcSwap;
use asked::ToRouter;
use crossbeam_channel::{Receiver, Sender, bounded};
use dpdk_ffi::{Burst, DpdkError, Eal, Mbuf, Mempool, MempoolConfig, Ring, RingConsumer, RingProducer};
use kernel::ToKernel;
use learned::Learned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BURST: usize = 32;
const NAP: Duration = Duration::from_micros(100);
const GATEWAY_PERIOD: Duration = Duration::from_secs(1);
const EVENTS: usize = 4096;
/// How long the end of the process waits for the thread. The service manager kills a process that takes 30 s to stop.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Ethernet with two VLAN tags.
const HEADER_BYTES: usize = 22;
/// Below this level of the pool the TX stage has drivers free sent mbufs.
const SHORT: usize = RING_SLOTS as usize / 2;

/// Size of the router's own pool. Drivers keep sent mbufs until they need the descriptors, on a quiet port forever: up to
/// `kept_max`. The rest may be in flight.
fn own_packets(kept_max: usize) -> u32 {
    let on_the_way = RING_SLOTS as usize + BURST + ORIGINATED_MAX;
    let mbufs = u32::try_from(kept_max + on_the_way).unwrap_or(u32::MAX);
    // 2^q - 1 is the optimum size of a mempool.
    mbufs.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(u32::MAX, |mbufs| mbufs - 1)
}

/// Shared with the control thread and the stages.
pub(crate) struct RouterShared<'a> {
    pub(crate) punts: &'a PuntRings,
    pub(crate) ports: SharedPorts,
    /// By VRF.
    pub(crate) egress: Vec<Arc<ArcSwap<EgressTable>>>,
    /// Records the drops of the thread.
    pub(crate) watch: Arc<Watch>,
}

pub(crate) struct RouterThread {
    thread: Option<JoinHandle<StageOutcome>>,
    is_stopping: Arc<AtomicBool>,
    heartbeat: Arc<Heartbeat>,
}

impl RouterThread {
    /// Starts the thread, which serves the requests in `asked`. Returns the receiver of learned MACs too.
    ///
    /// # Errors
    /// No memory for packets, or no thread.
    pub(crate) fn start(
        eal: &Eal,
        asked: Receiver<ToRouter>,
        neighbour_age: Duration,
        taps: Taps,
        shared: RouterShared<'_>,
    ) -> anyhow::Result<(Self, Receiver<Resolved>)> {
        let (sender, events) = bounded(EVENTS);
        let mut router = RouterLoop::new(eal, asked, neighbour_age, taps, shared, sender)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (theirs, heartbeat) = (Arc::clone(&is_stopping), Arc::clone(&router.heartbeat));
        let run = move || {
            while !theirs.load(Ordering::Acquire) {
                if !router.run_once() {
                    router.taps.wait(NAP);
                }
            }
            Arc::clone(&router.heartbeat).step("the last packets", || router.finish())
        };
        let thread = spawn("router", run)?;
        Ok((Self { thread: Some(thread), is_stopping, heartbeat }, events))
    }

    pub(crate) fn heartbeat(&self) -> &Arc<Heartbeat> {
        &self.heartbeat
    }

    /// Whether the thread has ended, which without a stop means a panic.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread, after all stages. Returns its counters.
    ///
    /// # Errors
    /// The thread panicked, or has not ended after [`END_LIMIT`]; its packets are not counted then.
    pub(crate) fn stop(mut self) -> anyhow::Result<StageOutcome> {
        self.end_within(END_LIMIT)
    }

    fn end_within(&mut self, limit: Duration) -> anyhow::Result<StageOutcome> {
        self.is_stopping.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(StageOutcome::default()) };
        let ended = join_within(thread, limit).map_err(|_| {
            let (s, step) = (limit.as_secs(), self.heartbeat.step_name());
            anyhow::anyhow!("the router's thread has not ended after {s} s, in the step '{step}'")
        })?;
        ended.map_err(|panic| {
            let message = dpdk_ffi::panic_message(panic.as_ref());
            anyhow::anyhow!("the router's thread panicked: {message}")
        })
    }
}

impl Drop for RouterThread {
    /// Ends the thread when a later step of the start fails.
    fn drop(&mut self) {
        drop(self.end_within(END_LIMIT));
    }
}

#[derive(Debug)]
struct Waiting {
    packet: Mbuf,
    tag: PuntTag,
}

struct RouterLoop {
    router: Router<Waiting>,
    actions: Vec<Action<Waiting>>,
    /// By `PuntClass`.
    from: [RingConsumer; PuntClass::ALL.len()],
    to: RingProducer,
    originated: Ring,
    came: Burst,
    going: Burst,
    pool: Mempool,
    /// By port: set when a neighbour's answer may have been dropped.
    have_lost_answers: Arc<[AtomicBool]>,
    /// Set when the pool runs low.
    is_short: Arc<AtomicBool>,
    taps: Taps,
    frame: Vec<u8>,
    asked: Receiver<ToRouter>,
    ports: SharedPorts,
    egress: Vec<Arc<ArcSwap<EgressTable>>>,
    /// Egress tables at the last update of the gateways, and its time.
    followed: (Vec<Arc<EgressTable>>, Instant),
    pinned: BTreeSet<Key>,
    events: Sender<Resolved>,
    learned: Learned,
    /// Limits log messages about changed MACs of gateways.
    moves: Bucket,
    to_kernel: ToKernel,
    counters: Counters,
    published: Arc<Published>,
    watch: Arc<Watch>,
    heartbeat: Arc<Heartbeat>,
    start: Instant,
}

impl RouterLoop {
    fn new(
        eal: &Eal,
        asked: Receiver<ToRouter>,
        neighbour_age: Duration,
        taps: Taps,
        shared: RouterShared<'_>,
        events: Sender<Resolved>,
    ) -> Result<Self, DpdkError> {
        let RouterShared { punts, ports, egress, watch } = shared;
        let (waiting_max, incomplete_max) = WAITING;
        let waiting_all_max = punts::waiting_max(ports.load().interfaces().count());
        let limits = NeighbourConfig { waiting_max, waiting_all_max, ..NeighbourConfig::default() };
        let neighbours = NeighbourConfig { incomplete_max, ..limits };
        let neighbours = neighbours.with_reachable(neighbour_age);
        let router = Router::new(&RouterConfig { neighbours, ..RouterConfig::default() });
        // The MTU may be raised later.
        let longest = ports.load().interfaces().map(|interface| usize::from(interface.mtu_range.max)).max();
        let frame = vec![0; longest.unwrap_or(0) + HEADER_BYTES + 1];
        // The TX stage frees packets of this pool too.
        let (mbufs, is_preemptible) = (own_packets(punts.kept_max), true);
        let mut config = MempoolConfig { mbufs, cache_mbufs: 0, is_preemptible, ..MempoolConfig::default() };
        if taps.ids().next().is_some() {
            config.data_room_bytes =
                config.data_room_bytes.max(u16::try_from(frame.len()).unwrap_or(u16::MAX));
        }
        let [resolution, local, errors] = &punts.rings;
        let mut new = Self {
            router,
            actions: Vec::new(),
            from: [resolution.consumer()?, local.consumer()?, errors.consumer()?],
            have_lost_answers: Arc::clone(&punts.have_lost_answers),
            to: punts.originated.producer()?,
            originated: punts.originated.clone(),
            came: Burst::with_capacity(eal, BURST),
            going: Burst::with_capacity(eal, BURST),
            pool: Mempool::new(eal, "originated", &config)?,
            taps,
            frame,
            asked,
            is_short: Arc::clone(&punts.is_short),
            ports,
            egress,
            followed: (Vec::new(), Instant::now()),
            pinned: BTreeSet::new(),
            events,
            learned: Learned::default(),
            moves: Bucket::default(),
            to_kernel: ToKernel::default(),
            counters: Counters::default(),
            published: Arc::clone(&punts.published),
            watch,
            heartbeat: Arc::default(),
            start: Instant::now(),
        };
        new.take_ports();
        Ok(new)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// One iteration of the loop; returns whether it did any work.
    fn run_once(&mut self) -> bool {
        let heartbeat = Arc::clone(&self.heartbeat);
        heartbeat.beat();
        let mut worked = heartbeat.step("packets of lcores", || self.receive());
        worked |= heartbeat.step("packets of the kernel", || self.take_from_kernel());
        heartbeat.step("requests", || self.answer());
        heartbeat.step("neighbours", || self.age_neighbours());
        worked |= !self.actions.is_empty();
        heartbeat.step("packets to send", || self.act());
        self.flush();
        self.tell();
        self.published.publish(&self.counters);
        worked
    }

    fn age_neighbours(&mut self) {
        let now = self.now();
        for (port, has_lost) in (0..).zip(&*self.have_lost_answers) {
            if has_lost.load(Ordering::Relaxed) {
                has_lost.store(false, Ordering::Relaxed);
                self.router.answers_lost(now, InterfaceId(port));
            }
        }
        if self.router.next_due().is_some_and(|due| due <= now) {
            self.router.tick(now, &mut self.actions);
        }
        self.follow();
    }

    /// Drains the rings after the stages have ended, and drops unsent packets.
    fn finish(mut self) -> StageOutcome {
        while self.receive() {}
        self.router.set_ports(self.now(), Arc::default(), &mut self.actions);
        self.act();
        self.flush();
        // The TX stage has ended, so its consumer is free.
        if let Ok(mut left) = self.originated.consumer() {
            loop {
                let count = left.dequeue_burst(&mut self.came);
                if count == 0 {
                    break;
                }
                self.counters.drops.add(DropReason::TxFull, count as u64);
                self.came.free_all();
            }
        }
        self.published.publish(&self.counters);
        StageOutcome { counters: self.counters, latency: None, held: 0 }
    }
}

#[cfg(test)]
mod tests;
