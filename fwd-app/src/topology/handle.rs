//! Handle on running stages for other threads: reads their counters, stops them, and replaces their engine.

use super::{StageControl, StageOutcome, Stages};
use crate::datapath::Latency;
use crate::datapath::audit::AuditRing;
use crate::datapath::counters::{Counters, Published, QueueCount, VrfCount};
use crate::datapath::lookup::EngineFault;
use crate::datapath::port_queues::{PortQueues, Queues};
use crate::datapath::swap::{ReaderSwap, Swap, VrfReader};
use crate::datapath::watch::Watch;
use crate::threads::Heartbeat;
use dpdk_ffi::{DpdkError, Port, QueueId};
use fib::{EngineError, EngineReader, EngineWriter, KeyMemory};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the control thread polls for answers of lcores.
const TICK: Duration = Duration::from_micros(50);
/// Time limit for lcores to report their counters. A busy lcore takes a batch, one that yields its CPU a few time slices.
const SNAPSHOT_LIMIT: Duration = Duration::from_millis(500);
/// Time limit for lcores to change to another engine, and again to change back. Routes are not updated meanwhile. A pipeline first collects
/// all batches in flight.
const MOVE_LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from {}", lcores(.0))]
pub(crate) struct NoAnswer(pub(crate) Vec<u32>);

fn lcores(numbers: &[u32]) -> String {
    let list: Vec<_> = numbers.iter().map(u32::to_string).collect();
    format!("lcore{} {}", if numbers.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// A request for the outcomes so far of an lcore's stages. Both lists have capacity for all.
#[derive(Debug)]
pub(crate) struct LcoreSnapshot {
    fresh: Vec<Latency>,
    outcomes: Vec<StageOutcome>,
}

impl LcoreSnapshot {
    /// Adds the outcomes so far of `ended` and of `stages`, and replaces their latencies by empty ones.
    pub(crate) fn fill(mut self, ended: &mut [StageOutcome], stages: &mut Stages) -> Self {
        for outcome in ended {
            let latency = std::mem::replace(&mut outcome.latency, self.fresh.pop());
            self.outcomes.push(StageOutcome { counters: outcome.counters, latency, held: outcome.held });
        }
        for stage in stages {
            self.outcomes.push(stage.snapshot(self.fresh.pop()));
        }
        self
    }
}

pub(crate) struct LcoreCounts {
    pub(crate) lcore: u32,
    pub(crate) outcomes: Vec<StageOutcome>,
    /// `None` if the counts are current. If the lcore did not answer, the age of its published counters, which lack cycles by pass.
    pub(crate) age: Option<Duration>,
}

/// Exchanges of counters and queues with one lcore.
#[derive(Default)]
pub(crate) struct LcoreHandle {
    pub(crate) number: u32,
    pub(crate) stages: usize,
    pub(crate) published: Vec<Arc<Published>>,
    pub(crate) snapshot: Swap<LcoreSnapshot>,
    pub(crate) queues: Swap<PortQueues>,
    /// Beats at regular turns of the loop, idle or not.
    pub(crate) heartbeat: Heartbeat,
}

impl LcoreHandle {
    fn last(&self, tsc_hz: u64) -> LcoreCounts {
        let cycles =
            self.published.iter().map(|published| dpdk_ffi::tsc().saturating_sub(published.published_tsc()));
        #[expect(clippy::cast_precision_loss, reason = "less than 2^53, or weeks")]
        let age = cycles.min().map(|cycles| Duration::from_secs_f64(cycles as f64 / tsc_hz.max(1) as f64));
        let outcome = |published: &Arc<Published>| StageOutcome {
            counters: published.read(),
            ..StageOutcome::default()
        };
        LcoreCounts { lcore: self.number, outcomes: self.published.iter().map(outcome).collect(), age }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Rx,
    Tx,
}

#[derive(Clone, Debug)]
pub(crate) struct QueueUse {
    pub(crate) port: u16,
    pub(crate) queue: u16,
    pub(crate) direction: Direction,
    pub(crate) lcore: u32,
    pub(crate) count: Arc<QueueCount>,
}

/// A lookup stage: parameters of its readers, and the exchange for a reader of another engine.
pub(crate) struct Readers {
    pub(super) lcore: u32,
    pub(super) swap: Arc<ReaderSwap>,
    pub(super) slots: u16,
    /// The largest batch, keys.
    pub(super) batch_max: usize,
    /// The keys of all batches that the stage looks up. Held here, too, so that no lcore unmaps it.
    pub(super) keys: Vec<Arc<dyn KeyMemory>>,
    pub(super) audit: Arc<AuditRing>,
}

impl Readers {
    /// A reader of `engine` for this stage.
    pub(super) fn make(&self, engine: &dyn EngineWriter) -> Result<Box<dyn EngineReader>, EngineError> {
        let mut reader = engine.reader(self.slots, self.batch_max)?;
        self.keys.iter().try_for_each(|memory| reader.adopt(memory))?;
        Ok(reader)
    }
}

#[derive(Clone, Default)]
pub(crate) struct Handle {
    pub(super) control: Arc<StageControl>,
    pub(super) published: Arc<[Arc<Published>]>,
    /// The router's counters, which `published` includes.
    pub(super) router: Option<Arc<Published>>,
    pub(super) queues: Arc<[QueueUse]>,
    /// By lookup stage, then by VRF; empty with a single VRF.
    pub(super) vrf_counts: Arc<[Vec<Arc<VrfCount>>]>,
    pub(super) readers: Arc<[Readers]>,
    pub(super) lcores: Arc<[Arc<LcoreHandle>]>,
    pub(super) past: Arc<Mutex<Option<Latency>>>,
    pub(super) fault: Arc<EngineFault>,
    pub(super) watch: Arc<Watch>,
}

impl Handle {
    pub(crate) fn stop_rx(&self) {
        self.control.stop_rx();
    }

    /// True after [`Self::stop_rx`] or a panic.
    pub(crate) fn is_stopping(&self) -> bool {
        self.control.is_stopping()
    }

    pub(crate) fn pause(&self, pauses: bool) {
        self.control.pause(pauses);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.control.is_paused()
    }

    /// Each lcore with stages, and its heartbeats so far. They continue while it is idle or paused, until its stages have ended.
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lcores.iter().map(|lcore| (lcore.number, lcore.heartbeat.count()))
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for published in &*self.published {
            all.merge(&published.read());
        }
        all
    }

    pub(crate) fn counters_by_lcore(&self) -> impl Iterator<Item = (u32, Counters)> {
        self.lcores.iter().map(|lcore| {
            let mut all = Counters::default();
            lcore.published.iter().for_each(|published| all.merge(&published.read()));
            (lcore.number, all)
        })
    }

    pub(crate) fn received_by_vrf(&self, vrfs: usize, all: &Counters) -> Vec<[u64; 2]> {
        if vrfs == 1 {
            return vec![[all.rx_packets, all.rx_bytes]];
        }
        let mut sums = vec![[0; 2]; vrfs];
        for counts in &*self.vrf_counts {
            for (sum, count) in sums.iter_mut().zip(counts) {
                let [packets, bytes] = count.read();
                *sum = [sum[0] + packets, sum[1] + bytes];
            }
        }
        sums
    }

    pub(crate) fn router(&self) -> Counters {
        self.router.as_ref().map_or(Counters::default(), |published| published.read())
    }

    pub(crate) fn queues(&self) -> &[QueueUse] {
        &self.queues
    }

    /// The current counters of every lcore, with cycles by pass; moves its latencies to [`Self::past`]. For an lcore that has ended or does
    /// not answer in time, the published counters.
    pub(crate) fn snapshot(&self, tsc_hz: u64) -> Vec<LcoreCounts> {
        self.ask_latencies(tsc_hz);
        self.wait_while(SNAPSHOT_LIMIT, || self.lcores.iter().any(|lcore| lcore.snapshot.is_offered()));
        let mut seen = Vec::with_capacity(self.lcores.len());
        for lcore in &*self.lcores {
            seen.push(match self.collect(lcore) {
                Some(outcomes) => LcoreCounts { lcore: lcore.number, outcomes, age: None },
                None => lcore.last(tsc_hz),
            });
        }
        seen
    }

    pub(crate) fn lcore_count(&self) -> usize {
        self.lcores.len()
    }

    /// Requests counters and latencies from lcore number `index`, without waiting.
    pub(crate) fn ask_latency(&self, index: usize, tsc_hz: u64) {
        let Some(lcore) = self.lcores.get(index) else { return };
        // An earlier answer must not be lost with a new offer.
        self.collect(lcore);
        // Clones write all of their memory, so that recording causes no page faults.
        let empty = Latency::new(tsc_hz);
        let fresh = (0..lcore.stages).map(|_| empty.clone()).collect();
        lcore.snapshot.offer(LcoreSnapshot { fresh, outcomes: Vec::with_capacity(lcore.stages) });
    }

    pub(crate) fn ask_latencies(&self, tsc_hz: u64) {
        (0..self.lcores.len()).for_each(|index| self.ask_latency(index, tsc_hz));
    }

    /// Discards the latencies reported since [`Self::ask_latencies`]. While an answer is outstanding, returns false and does nothing.
    pub(crate) fn forget_latencies(&self) -> bool {
        if self.lcores.iter().any(|lcore| lcore.snapshot.is_offered()) {
            return false;
        }
        self.take_latencies();
        *self.past.lock().unwrap_or_else(PoisonError::into_inner) = None;
        true
    }

    /// Collects the answer to [`Self::ask_latency`] and moves its latencies to [`Self::past`].
    pub(crate) fn take_latency(&self, index: usize) {
        if let Some(lcore) = self.lcores.get(index) {
            self.collect(lcore);
        }
    }

    pub(super) fn take_latencies(&self) {
        (0..self.lcores.len()).for_each(|index| self.take_latency(index));
    }

    fn collect(&self, lcore: &LcoreHandle) -> Option<Vec<StageOutcome>> {
        // Locked before the answer is collected, so that no reader sees `past` between the two.
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let LcoreSnapshot { mut outcomes, .. } =
            lcore.snapshot.take_back().filter(|answer| !answer.outcomes.is_empty())?;
        for latency in outcomes.iter_mut().filter_map(|outcome| outcome.latency.take()) {
            match &mut *past {
                Some(past) => past.merge(&latency),
                None => *past = Some(latency),
            }
        }
        Some(outcomes)
    }

    pub(crate) fn past(&self) -> Option<Latency> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits while `is_open`, until `limit` has passed or receiving is to stop.
    fn wait_while(&self, limit: Duration, is_open: impl Fn() -> bool) {
        let end = Instant::now() + limit;
        while is_open() && !self.is_stopping() && Instant::now() < end {
            std::thread::sleep(TICK);
        }
    }

    /// Waits until every lookup stage has a reader of `engine` for VRF `vrf`, or receiving is to stop. After that no stage submits a batch
    /// to the previous engine, except the last ones of a topology that stops.
    ///
    /// # Errors
    /// [`EngineError`] when `engine` cannot make a reader; no stage has got one then. [`NoAnswer`] when an lcore does not accept its reader
    /// in time: all stages return to their previous readers. A stage that does not accept that in time either does so before its next
    /// batch.
    pub(crate) fn move_to(&self, vrf: usize, engine: &dyn EngineWriter) -> anyhow::Result<()> {
        self.all_have_readers()?;
        let reader = |stage: &Readers| stage.make(engine);
        let readers = self.readers.iter().map(reader).collect::<Result<Vec<_>, EngineError>>()?;
        for (stage, reader) in self.readers.iter().zip(readers) {
            stage.swap.offer(VrfReader { vrf, reader });
        }
        self.await_readers();
        let moved = self.all_have_readers();
        if moved.is_err() {
            for stage in &*self.readers {
                stage.swap.withdraw().into_iter().for_each(|before| stage.swap.offer(before));
            }
            self.await_readers();
        }
        let answered = |stage: &&Readers| self.is_stopping() || !stage.swap.is_offered();
        self.readers.iter().filter(answered).for_each(|stage| drop(stage.swap.take_back()));
        Ok(moved?)
    }

    fn await_readers(&self) {
        self.wait_while(MOVE_LIMIT, || self.readers.iter().any(|stage| stage.swap.is_offered()));
    }

    /// Whether every stage has accepted its last offer, or receiving is to stop.
    fn all_have_readers(&self) -> Result<(), NoAnswer> {
        let late = self.readers.iter().filter(|stage| stage.swap.is_offered());
        self.answered(late.map(|stage| stage.lcore).collect())
    }

    /// [`NoAnswer`] unless `late` is empty or receiving is to stop.
    fn answered(&self, late: Vec<u32>) -> Result<(), NoAnswer> {
        if late.is_empty() || self.is_stopping() { Ok(()) } else { Err(NoAnswer(late)) }
    }

    /// Asks the stages to release their queues of port `index`. No stage polls the port once [`Self::take_queues`] succeeds, unless
    /// receiving is to stop. No other request about queues may be open.
    pub(crate) fn release_port(&self, index: u16) {
        for lcore in &*self.lcores {
            let room = |direction| self.queues_of(index, lcore.number, direction).count();
            let [rx, tx] = [room(Direction::Rx), room(Direction::Tx)];
            if rx + tx > 0 {
                let (rx, tx) = (Queues(Vec::with_capacity(rx)), Queues(Vec::with_capacity(tx)));
                lcore.queues.offer(PortQueues { port: index, rx, tx });
            }
        }
    }

    /// Offers the queues of the restarted `port` to the stages that released them. [`Self::take_queues`] succeeds once all have them.
    ///
    /// # Errors
    /// When the port lacks a queue; no stage has got one then.
    pub(crate) fn give_port(&self, index: u16, port: &Port) -> Result<(), DpdkError> {
        let queues = |lcore: &Arc<LcoreHandle>| {
            let numbers = |direction| self.queues_of(index, lcore.number, direction);
            let rx =
                numbers(Direction::Rx).map(|queue| port.take_rx_queue(queue)).collect::<Result<_, _>>()?;
            let tx =
                numbers(Direction::Tx).map(|queue| port.take_tx_queue(queue)).collect::<Result<_, _>>()?;
            Ok(PortQueues { port: index, rx: Queues(rx), tx: Queues(tx) })
        };
        let all = self.lcores.iter().map(queues).collect::<Result<Vec<_>, DpdkError>>()?;
        for (lcore, queues) in self.lcores.iter().zip(all) {
            lcore.queues.offer(queues);
        }
        Ok(())
    }

    fn queues_of(&self, port: u16, lcore: u32, direction: Direction) -> impl Iterator<Item = QueueId> {
        let is_one =
            move |used: &&QueueUse| (used.port, used.lcore, used.direction) == (port, lcore, direction);
        self.queues.iter().filter(is_one).map(|used| QueueId(used.queue))
    }

    /// Drops the released queues once every lcore has answered or receiving is to stop. Does not wait.
    ///
    /// # Errors
    /// [`NoAnswer`], with the lcores that have not answered yet.
    pub(crate) fn take_queues(&self) -> Result<(), NoAnswer> {
        let late = self.lcores.iter().filter(|lcore| lcore.queues.is_offered());
        self.answered(late.map(|lcore| lcore.number).collect())?;
        self.lcores.iter().for_each(|lcore| drop(lcore.queues.take_back()));
        Ok(())
    }

    /// Number of stages that give verdicts, each with a lane for counts.
    pub(crate) fn lanes(&self) -> usize {
        self.readers.len()
    }

    /// The samples of each stage that looks up.
    pub(crate) fn audits(&self) -> impl Iterator<Item = &AuditRing> {
        self.readers.iter().map(|stage| stage.audit.as_ref())
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    pub(crate) fn fault(&self) -> &Arc<EngineFault> {
        &self.fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::faulty::{Call, Faults, FaultyEngine};
    use lpm_core::memory::{KeyArena, Placement};
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn of_an_lcore_that_does_not_answer_the_published_counters_are_seen_with_their_age() {
        let published = Arc::new(Published::default());
        published.publish(&Counters { rx_packets: 9, tx_packets: 7, ..Counters::default() });
        let lcore =
            LcoreHandle { number: 3, stages: 1, published: vec![published], ..LcoreHandle::default() };
        let handle = Handle { lcores: Arc::new([Arc::new(lcore)]), ..Handle::default() };
        let seen = handle.snapshot(1_000_000_000);
        let [LcoreCounts { lcore: 3, outcomes, age: Some(age) }] = &seen[..] else {
            panic!("{} lcores", seen.len());
        };
        assert_eq!((outcomes[0].counters.rx_packets, outcomes[0].counters.tx_packets), (9, 7));
        assert!((SNAPSHOT_LIMIT..SNAPSHOT_LIMIT * 100).contains(age), "{age:?}");
    }

    fn answers(lcore: &LcoreHandle, packets: u64) {
        lcore.snapshot.exchange(|mut snapshot| {
            let mut latency = Latency::new(1_000_000_000);
            latency.record(100, packets);
            snapshot.outcomes.push(StageOutcome { latency: Some(latency), ..StageOutcome::default() });
            snapshot
        });
    }

    #[test]
    fn latencies_are_taken_once_whoever_asks() {
        let lcore = Arc::new(LcoreHandle { number: 3, stages: 1, ..LcoreHandle::default() });
        let handle = Handle { lcores: Arc::new([Arc::clone(&lcore)]), ..Handle::default() };
        let count = || handle.past().map_or(0, |past| past.histogram().len());
        handle.ask_latency(0, 1_000_000_000);
        handle.take_latency(0);
        assert!(count() == 0 && !lcore.snapshot.is_offered(), "it has not answered, and needs not any more");
        handle.ask_latency(0, 1_000_000_000);
        answers(&lcore, 5);
        handle.take_latency(0);
        handle.take_latency(0);
        assert_eq!(count(), 5);
        // A second request comes before the first is collected, or the lcore has ended.
        handle.ask_latency(0, 1_000_000_000);
        answers(&lcore, 7);
        handle.ask_latency(0, 1_000_000_000);
        assert_eq!(count(), 12);
        answers(&lcore, 1);
        handle.take_latencies();
        assert_eq!(count(), 13);
    }

    fn reads(lcore: u32) -> Readers {
        Readers {
            lcore,
            swap: Arc::default(),
            slots: 1,
            batch_max: 1,
            keys: vec![KeyArena::new(1, Placement::default()).unwrap().memory()],
            audit: Arc::default(),
        }
    }

    fn own() -> VrfReader {
        VrfReader { vrf: 0, reader: FaultyEngine::new(&Arc::default()).reader(7, 1).unwrap() }
    }

    #[test]
    fn an_lcore_that_takes_no_reader_keeps_all_at_the_engine_before() {
        let handle = Handle { readers: Arc::new([reads(3), reads(5)]), ..Handle::default() };
        let (done, is_done) = crossbeam_channel::bounded(1);
        let mover = handle.clone();
        // Not joined: without a limit it would wait forever.
        std::thread::spawn(move || {
            let faults = Arc::new(Faults::default());
            done.send(mover.move_to(0, &FaultyEngine::new(&faults))).unwrap();
        });
        let (mut mine, end) = (own(), Instant::now() + MOVE_LIMIT * 5);
        let mut taken = 0;
        let moved = loop {
            if handle.readers[0].swap.is_offered() {
                handle.readers[0].swap.exchange(|offered| std::mem::replace(&mut mine, offered));
                taken += 1;
            }
            if let Ok(moved) = is_done.try_recv() {
                break moved;
            }
            assert!(Instant::now() < end, "it waits for lcore 5");
            std::thread::sleep(TICK);
        };
        assert_eq!(moved.unwrap_err().to_string(), "no answer from lcore 5");
        assert_eq!((mine.reader.slots(), taken), (7, 2), "it has its own again");
        assert!(handle.readers.iter().all(|stage| !stage.swap.is_offered()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stage in &*handle.readers {
                    while !stage.swap.is_offered() {
                        std::thread::sleep(TICK);
                    }
                    stage.swap.exchange(|_| own());
                }
            });
            let faults = Arc::new(Faults::default());
            handle.move_to(0, &FaultyEngine::new(&faults)).unwrap();
            assert_eq!(faults.adopted.load(SeqCst), 2, "each reader reads the stage's keys in place");
        });
    }

    #[test]
    fn an_lcore_that_has_not_gone_back_is_asked_nothing_more() {
        let handle = Handle { readers: Arc::new([reads(3)]), ..Handle::default() };
        handle.readers[0].swap.offer(own());
        let faults = Arc::new(Faults::default());
        let moved = handle.move_to(0, &FaultyEngine::new(&faults));
        assert_eq!(moved.unwrap_err().to_string(), "no answer from lcore 3");
        assert_eq!(faults.calls(Call::Reader), 0);
        assert!(handle.readers[0].swap.is_offered(), "the offer stays");
        handle.stop_rx();
        assert!(handle.move_to(0, &FaultyEngine::new(&faults)).is_ok(), "the last batches are drained");
    }

    #[test]
    fn queues_are_taken_when_every_lcore_has_looked() {
        let [one, two] = [3, 5].map(|number| Arc::new(LcoreHandle { number, ..LcoreHandle::default() }));
        let handle = Handle { lcores: Arc::new([Arc::clone(&one), Arc::clone(&two)]), ..Handle::default() };
        let queues = || PortQueues { port: 0, rx: Queues(Vec::new()), tx: Queues(Vec::new()) };
        one.queues.offer(queues());
        two.queues.offer(queues());
        assert_eq!(handle.take_queues().unwrap_err().to_string(), "no answer from lcores 3, 5");
        one.queues.exchange(|queues| queues);
        assert_eq!(handle.take_queues(), Err(NoAnswer(vec![5])));
        assert!(two.queues.is_offered(), "the offer stays");
        two.queues.exchange(|queues| queues);
        assert_eq!(handle.take_queues(), Ok(()));
        assert!(one.queues.take_back().is_none(), "they were released");
    }
}
