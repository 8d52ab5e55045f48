//! The router's thread: gives the punts of the datapath to the router, and does what the router says.
//!
//! It owns the [`Router`]. Answers, and packets whose neighbour is known at last, go to a sending stage; what is learned of neighbours
//! goes to the control thread, which makes egress entries of it. It counts what it makes, takes and drops, so that every packet is still
//! counted once.
//!
//! What is for the router and not answered by it goes to the kernel by the [`Taps`], and what the kernel sends there leaves as it is. Such
//! frames need no neighbour here: the kernel asks for its own, and gets copies of the answers.
//!
//! | module | what lives there |
//! |---|---|
//! | [`receive`] | what becomes of each punt |
//! | [`send`] | what leaves: frames, packets that waited, events |
//! | [`follow`] | the ports, and the gateways of the egress tables |
//! | [`learned`] | MACs for the control thread, at a limited rate |
//! | [`kernel`] | questions of the kernel, and the rate of frames to it |
//! | [`asked`] | requests of other threads |

pub(crate) mod asked;
mod follow;
mod kernel;
mod learned;
mod receive;
mod send;

use crate::datapath::punt::PuntTag;
use crate::datapath::punt_class::PuntClass;
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
use crate::threads::{Heartbeat, spawn};
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

/// Punts that are dealt with before other work has its turn.
const BURST: usize = 32;
/// How often the rings are looked at when nothing comes.
const NAP: Duration = Duration::from_micros(100);
/// How often gateways are asked for that could not be before.
const GATEWAY_PERIOD: Duration = Duration::from_secs(1);
/// Events that wait for the control thread.
const EVENTS: usize = 4096;
/// The header of a frame, with two VLAN tags.
const HEADER_BYTES: usize = 22;
/// With fewer packets of its own left, the router has drivers free those that have left. More are there when drivers keep all they can.
const SHORT: usize = RING_SLOTS as usize / 2;

/// Mbufs of the router's own pool when drivers keep as many as `kept_max` of them. Drivers keep what they have sent until they need its
/// descriptor again, so on quiet ports for good; and as many may be on their way.
fn own_packets(kept_max: usize) -> u32 {
    let on_the_way = RING_SLOTS as usize + BURST + ORIGINATED_MAX;
    let mbufs = u32::try_from(kept_max + on_the_way).unwrap_or(u32::MAX);
    // A mempool of 2^q - 1 objects uses its memory best.
    mbufs.checked_add(1).and_then(u32::checked_next_power_of_two).map_or(u32::MAX, |mbufs| mbufs - 1)
}

/// What the router sees of the forwarder: the ports, the egress table of each VRF, and where it shows what it drops.
type Seen = (SharedPorts, Vec<Arc<ArcSwap<EgressTable>>>, Arc<Watch>);

/// The running router's thread.
pub(crate) struct RouterThread {
    /// `None` once it has been joined.
    thread: Option<JoinHandle<StageOutcome>>,
    is_stopping: Arc<AtomicBool>,
    heartbeat: Arc<Heartbeat>,
}

impl RouterThread {
    /// Starts the router, which does what comes from `asked`. Returns what it learns of neighbours too.
    ///
    /// # Errors
    /// When there is no memory for packets, or the system refuses a thread.
    pub(crate) fn start(
        eal: &Eal,
        asked: Receiver<ToRouter>,
        neighbour_age: Duration,
        taps: Taps,
        (punts, seen): (&PuntRings, Seen),
    ) -> anyhow::Result<(Self, Receiver<Resolved>)> {
        let (sender, events) = bounded(EVENTS);
        let ends = (punts, seen, sender);
        let mut router = RouterLoop::new(eal, asked, neighbour_age, taps, ends)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let heartbeat = Arc::<Heartbeat>::default();
        let (theirs, beating) = (Arc::clone(&is_stopping), Arc::clone(&heartbeat));
        let run = move || {
            while !theirs.load(Ordering::Acquire) {
                beating.beat();
                if !router.turn() {
                    router.taps.wait(NAP);
                }
            }
            router.finish()
        };
        let thread = spawn("router", run)?;
        Ok((Self { thread: Some(thread), is_stopping, heartbeat }, events))
    }

    /// Counts the turns of its loop.
    pub(crate) fn heartbeat(&self) -> &Arc<Heartbeat> {
        &self.heartbeat
    }

    /// Whether the thread has ended, which is a panic while nobody has stopped it.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread, after all stages have ended. Returns its counters.
    ///
    /// # Errors
    /// When it has panicked: its packets are not counted then.
    pub(crate) fn stop(mut self) -> anyhow::Result<StageOutcome> {
        self.join()
    }

    fn join(&mut self) -> anyhow::Result<StageOutcome> {
        self.is_stopping.store(true, Ordering::Release);
        let joined = self.thread.take().map_or(Ok(StageOutcome::default()), JoinHandle::join);
        joined.map_err(|panic| {
            let message = dpdk_ffi::panic_message(panic.as_ref());
            anyhow::anyhow!("the cause thread panicked: {message}")
        })
    }
}

impl Drop for RouterThread {
    /// A start that fails later leaves no thread behind.
    fn drop(&mut self) {
        drop(self.join());
    }
}

/// A packet that waits for a neighbour.
#[derive(Debug)]
struct Waiting {
    packet: Mbuf,
    tag: PuntTag,
}

/// The router between its rings.
struct RouterLoop {
    router: Router<Waiting>,
    actions: Vec<Action<Waiting>>,
    /// Punts by class.
    from: [RingConsumer; PuntClass::ALL.len()],
    to: RingProducer,
    originated: Ring,
    came: Burst,
    going: Burst,
    pool: Mempool,
    /// By port: set when an answer of a neighbour may have been dropped.
    have_lost_answers: Arc<[AtomicBool]>,
    /// Set when the pool runs low.
    is_short: Arc<AtomicBool>,
    taps: Taps,
    /// A frame of the kernel's.
    frame: Vec<u8>,
    /// What other threads tell and ask.
    asked: Receiver<ToRouter>,
    ports: SharedPorts,
    /// By VRF.
    egress: Vec<Arc<ArcSwap<EgressTable>>>,
    /// The egress tables whose gateways were looked at last, and when.
    followed: (Vec<Arc<EgressTable>>, Instant),
    pinned: BTreeSet<Key>,
    events: Sender<Resolved>,
    /// MACs for `events`.
    learned: Learned,
    /// Limits messages about gateways with a new MAC.
    moves: Bucket,
    to_kernel: ToKernel,
    counters: Counters,
    published: Arc<Published>,
    /// Where dropped packets are looked at.
    watch: Arc<Watch>,
    start: Instant,
}

impl RouterLoop {
    fn new(
        eal: &Eal,
        asked: Receiver<ToRouter>,
        neighbour_age: Duration,
        taps: Taps,
        (punts, (ports, egress, watch), events): (&PuntRings, Seen, Sender<Resolved>),
    ) -> Result<Self, DpdkError> {
        let (waiting_max, incomplete_max) = WAITING;
        let waiting_all_max = punts::waiting_max(ports.load().interfaces().count());
        let limits = NeighbourConfig { waiting_max, waiting_all_max, ..NeighbourConfig::default() };
        let neighbours = NeighbourConfig { incomplete_max, ..limits };
        let neighbours = neighbours.with_reachable(neighbour_age);
        let router = Router::new(&RouterConfig { neighbours, ..RouterConfig::default() });
        // An MTU may be raised later.
        let longest = ports.load().interfaces().map(|interface| usize::from(interface.mtu_range.max)).max();
        let frame = vec![0; longest.unwrap_or(0) + HEADER_BYTES + 1];
        // Both this thread and the stage that sends free packets of it.
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
            start: Instant::now(),
        };
        new.take_ports();
        Ok(new)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does some of what there is to do; returns whether there was anything.
    fn turn(&mut self) -> bool {
        let mut worked = self.receive();
        worked |= self.take_from_kernel();
        self.answer();
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
        worked |= !self.actions.is_empty();
        self.act();
        self.flush();
        self.tell();
        self.published.publish(&self.counters);
        worked
    }

    /// Ends: deals with what has come, and drops what nobody sends any more.
    fn finish(mut self) -> StageOutcome {
        while self.receive() {}
        self.router.set_ports(self.now(), Arc::default(), &mut self.actions);
        self.act();
        self.flush();
        // The stage that sends has ended, so its end of the ring is free.
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
