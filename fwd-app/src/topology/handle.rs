//! A handle on running stages for other threads: reads their counters, stops them, and gives them another engine.

use super::lcores::Readers;
use super::{StageControl, StageOutcome, Stages};
use crate::datapath::Latency;
use crate::datapath::counters::{Counters, Published, QueueCount, VrfCount};
use crate::datapath::lookup::EngineFault;
use crate::datapath::port_queues::{PortQueues, Queues};
use crate::datapath::swap::{Swap, VrfReader};
use crate::datapath::watch::Watch;
use crate::threads::Heartbeat;
use dpdk_ffi::{DpdkError, Port, QueueId};
use fib::{EngineError, EngineWriter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the control thread looks whether lcores have answered.
const TICK: Duration = Duration::from_micros(50);
/// How long lcores may take to show their counters. A busy one takes a batch, one that yields its CPU a few time slices.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// How long lcores may take to change to another engine, and as long again to change back. Routes stand still meanwhile. A pipeline collects
/// all batches in flight before.
const MOVE_LIMIT: Duration = Duration::from_secs(2);

/// Lcores that have not answered in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from {}", lcores(.0))]
pub(crate) struct NoAnswer(pub(crate) Vec<u32>);

/// `lcore 1` or `lcores 1, 2`.
fn lcores(numbers: &[u32]) -> String {
    let list: Vec<_> = numbers.iter().map(u32::to_string).collect();
    format!("lcore{} {}", if numbers.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// What an lcore is asked to fill: the outcomes so far of its stages. Both lists have room for all.
#[derive(Debug)]
pub(crate) struct Look {
    fresh: Vec<Latency>,
    outcomes: Vec<StageOutcome>,
}

impl Look {
    /// Adds the outcomes so far of `ended` and of `stages`, in place of whose latencies there are empty ones afterwards.
    pub(crate) fn fill(mut self, ended: &mut [StageOutcome], stages: &mut Stages) -> Self {
        for outcome in ended {
            let latency = std::mem::replace(&mut outcome.latency, self.fresh.pop());
            self.outcomes.push(StageOutcome { counters: outcome.counters, latency, held: outcome.held });
        }
        for stage in stages {
            self.outcomes.push(stage.look(self.fresh.pop()));
        }
        self
    }
}

/// What an lcore has counted.
pub(crate) struct LcoreCounts {
    /// The lcore.
    pub(crate) lcore: u32,
    /// The outcomes so far of its stages.
    pub(crate) outcomes: Vec<StageOutcome>,
    /// `None` for what it has counted until now. If it did not answer, the age of the counters that it published last, which are without
    /// cycles by pass.
    pub(crate) age: Option<Duration>,
}

/// Where an lcore is asked for its counters, and for its queues of a port.
#[derive(Default)]
pub(crate) struct LcoreLook {
    /// The lcore.
    pub(crate) lcore: u32,
    /// Stages that it started with.
    pub(crate) stages: usize,
    /// The published counters of these stages.
    pub(crate) published: Vec<Arc<Published>>,
    /// Where it is asked.
    pub(crate) swap: Swap<Look>,
    /// Where it gives up and gets queues.
    pub(crate) queues: Swap<PortQueues>,
    /// Counts once in so many turns of its loop, idle or not.
    pub(crate) heartbeat: Heartbeat,
}

impl LcoreLook {
    /// The counters that it published last.
    fn last(&self, tsc_hz: u64) -> LcoreCounts {
        let cycles = self.published.iter().map(|published| dpdk_ffi::tsc().saturating_sub(published.at()));
        #[expect(clippy::cast_precision_loss, reason = "less than 2^53, or weeks")]
        let age = cycles.min().map(|cycles| Duration::from_secs_f64(cycles as f64 / tsc_hz.max(1) as f64));
        let outcome = |published: &Arc<Published>| StageOutcome {
            counters: published.read(),
            ..StageOutcome::default()
        };
        LcoreCounts { lcore: self.lcore, outcomes: self.published.iter().map(outcome).collect(), age }
    }
}

/// The direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the wire.
    Rx,
    /// To the wire.
    Tx,
}

/// A queue, the lcore that uses it, and its counts.
#[derive(Clone, Debug)]
pub(crate) struct QueueUse {
    /// The port's index.
    pub(crate) port: u16,
    /// The queue of the port.
    pub(crate) queue: u16,
    /// From or to the wire.
    pub(crate) direction: Direction,
    /// The lcore.
    pub(crate) lcore: u32,
    /// Its counts.
    pub(crate) count: Arc<QueueCount>,
}

/// What other threads share with the stages.
#[derive(Clone, Default)]
pub(crate) struct Handle {
    pub(super) control: Arc<StageControl>,
    pub(super) published: Arc<[Arc<Published>]>,
    /// The published counters of the router, which are among those of `published` too.
    pub(super) router: Option<Arc<Published>>,
    pub(super) queues: Arc<[QueueUse]>,
    /// By stage that looks up, then by VRF; none where there is one VRF alone.
    pub(super) vrf_counts: Arc<[Vec<Arc<VrfCount>>]>,
    pub(super) readers: Arc<[Readers]>,
    pub(super) lcores: Arc<[Arc<LcoreLook>]>,
    /// The latencies that were taken from the stages.
    pub(super) past: Arc<Mutex<Option<Latency>>>,
    pub(super) fault: Arc<EngineFault>,
    pub(super) watch: Arc<Watch>,
}

impl Handle {
    /// Stops receiving; packets already received are drained.
    pub(crate) fn stop_rx(&self) {
        self.control.stop_rx();
    }

    /// Whether receiving is to stop, after [`Self::stop_rx`] or a panic.
    pub(crate) fn is_stopping(&self) -> bool {
        self.control.is_stopping()
    }

    /// Pauses receiving, or goes on with it.
    pub(crate) fn pause(&self, pauses: bool) {
        self.control.pause(pauses);
    }

    /// Whether receiving is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.control.is_paused()
    }

    /// Each lcore with stages, and its heartbeats so far. They go on while it is idle or paused, until its stages have ended.
    pub(crate) fn heartbeats(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lcores.iter().map(|look| (look.lcore, look.heartbeat.count()))
    }

    /// The sum of the published counters of all stages.
    pub(crate) fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for published in &*self.published {
            all.merge(&published.read());
        }
        all
    }

    /// The published counters of each lcore that runs stages.
    pub(crate) fn counters_by_lcore(&self) -> impl Iterator<Item = (u32, Counters)> {
        self.lcores.iter().map(|look| {
            let mut all = Counters::default();
            look.published.iter().for_each(|published| all.merge(&published.read()));
            (look.lcore, all)
        })
    }

    /// The packets and bytes that were received in each of so many VRFs; `all` is what [`Self::counters`] returned.
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

    /// The counters of the router; zeros when no port has an address.
    pub(crate) fn router(&self) -> Counters {
        self.router.as_ref().map_or(Counters::default(), |published| published.read())
    }

    /// The queues in use.
    pub(crate) fn queues(&self) -> &[QueueUse] {
        &self.queues
    }

    /// The counters of every lcore now, with its cycles by pass; its latencies are in [`Self::past`] then. Of an lcore that has ended or
    /// does not answer in time they are those that it published last.
    pub(crate) fn look(&self, tsc_hz: u64) -> Vec<LcoreCounts> {
        self.ask_latencies(tsc_hz);
        self.wait_while(LOOK_LIMIT, || self.lcores.iter().any(|look| look.swap.is_offered()));
        let mut seen = Vec::with_capacity(self.lcores.len());
        for look in &*self.lcores {
            seen.push(match self.take(look) {
                Some(outcomes) => LcoreCounts { lcore: look.lcore, outcomes, age: None },
                None => look.last(tsc_hz),
            });
        }
        seen
    }

    /// How many lcores run stages.
    pub(crate) fn lcore_count(&self) -> usize {
        self.lcores.len()
    }

    /// Asks the lcore `index`, by their order here, for its counters and latencies, and does not wait for them.
    pub(crate) fn ask_latency(&self, index: usize, tsc_hz: u64) {
        let Some(look) = self.lcores.get(index) else { return };
        // What it gave before must not be lost with a new offer.
        self.take(look);
        // Clones write to all of their memory, so that recording meets no page for the first time.
        let empty = Latency::new(tsc_hz);
        let fresh = (0..look.stages).map(|_| empty.clone()).collect();
        look.swap.offer(Look { fresh, outcomes: Vec::with_capacity(look.stages) });
    }

    /// As [`Self::ask_latency`] of all lcores.
    pub(crate) fn ask_latencies(&self, tsc_hz: u64) {
        (0..self.lcores.len()).for_each(|index| self.ask_latency(index, tsc_hz));
    }

    /// Forgets the latencies that all lcores have given since [`Self::ask_latencies`]. Returns false, and does nothing, while one has not.
    pub(crate) fn forget_latencies(&self) -> bool {
        if self.lcores.iter().any(|look| look.swap.is_offered()) {
            return false;
        }
        self.take_latencies();
        *self.past.lock().unwrap_or_else(PoisonError::into_inner) = None;
        true
    }

    /// Takes what the lcore `index` has given since [`Self::ask_latency`], if it has: its latencies are in [`Self::past`] then.
    pub(crate) fn take_latency(&self, index: usize) {
        if let Some(look) = self.lcores.get(index) {
            self.take(look);
        }
    }

    /// Takes what all lcores have given.
    pub(super) fn take_latencies(&self) {
        (0..self.lcores.len()).for_each(|index| self.take_latency(index));
    }

    /// The outcomes that an lcore has given, without their latencies, which are in [`Self::past`] then; `None` if it has not answered.
    fn take(&self, look: &LcoreLook) -> Option<Vec<StageOutcome>> {
        // Held from before they are taken, so that nobody reads the past between.
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let Look { mut outcomes, .. } = look.swap.take_back().filter(|look| !look.outcomes.is_empty())?;
        for latency in outcomes.iter_mut().filter_map(|outcome| outcome.latency.take()) {
            match &mut *past {
                Some(past) => past.merge(&latency),
                None => *past = Some(latency),
            }
        }
        Some(outcomes)
    }

    /// The latencies that were taken from the stages.
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

    /// Gives every stage that looks up a reader of `engine` for the packets of VRF `vrf`, between two batches, and waits until all have taken it or receiving is to
    /// stop. After that no stage submits a batch to the engine before, except for the last ones of a topology that stops.
    ///
    /// # Errors
    /// [`EngineError`] when `engine` cannot make a reader; no stage has got one then. [`NoAnswer`] when an lcore does not take its reader in
    /// time: all stages go on with the readers that they had. A stage that does not take that back in time either does so before its
    /// next batch.
    pub(crate) fn move_to(&self, vrf: usize, engine: &dyn EngineWriter) -> anyhow::Result<()> {
        self.all_have_readers()?;
        let reader = |stage: &Readers| engine.reader(stage.slots, stage.batch_max);
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

    /// Whether every stage has the reader that it was offered last, or receiving is to stop.
    fn all_have_readers(&self) -> Result<(), NoAnswer> {
        let late = self.readers.iter().filter(|stage| stage.swap.is_offered());
        self.answered(late.map(|stage| stage.lcore).collect())
    }

    /// [`NoAnswer`] unless `late` is empty or receiving is to stop.
    fn answered(&self, late: Vec<u32>) -> Result<(), NoAnswer> {
        if late.is_empty() || self.is_stopping() { Ok(()) } else { Err(NoAnswer(late)) }
    }

    /// Asks the stages to give up their queues of the port `index`, between two batches. Nothing polls the port when [`Self::take_queues`] says
    /// that all have, unless receiving is to stop. Nothing else may be asked of queues before.
    pub(crate) fn release_port(&self, index: u16) {
        for look in &*self.lcores {
            let room = |direction| self.queues_of(index, look.lcore, direction).count();
            let [rx, tx] = [room(Direction::Rx), room(Direction::Tx)];
            if rx + tx > 0 {
                let (rx, tx) = (Queues(Vec::with_capacity(rx)), Queues(Vec::with_capacity(tx)));
                look.queues.offer(PortQueues { port: index, rx, tx });
            }
        }
    }

    /// Offers the queues of `port`, which is started again, to the stages that gave up theirs of the port `index`. [`Self::take_queues`] says when
    /// all have them.
    ///
    /// # Errors
    /// When the port lacks one of them; no stage has got one then.
    pub(crate) fn give_port(&self, index: u16, port: &Port) -> Result<(), DpdkError> {
        let queues = |look: &Arc<LcoreLook>| {
            let numbers = |direction| self.queues_of(index, look.lcore, direction);
            let rx =
                numbers(Direction::Rx).map(|queue| port.take_rx_queue(queue)).collect::<Result<_, _>>()?;
            let tx =
                numbers(Direction::Tx).map(|queue| port.take_tx_queue(queue)).collect::<Result<_, _>>()?;
            Ok(PortQueues { port: index, rx: Queues(rx), tx: Queues(tx) })
        };
        let all = self.lcores.iter().map(queues).collect::<Result<Vec<_>, DpdkError>>()?;
        for (look, queues) in self.lcores.iter().zip(all) {
            look.queues.offer(queues);
        }
        Ok(())
    }

    /// The numbers of the queues of a port that an lcore uses.
    fn queues_of(&self, port: u16, lcore: u32, direction: Direction) -> impl Iterator<Item = QueueId> {
        let is_one =
            move |used: &&QueueUse| (used.port, used.lcore, used.direction) == (port, lcore, direction);
        self.queues.iter().filter(is_one).map(|used| QueueId(used.queue))
    }

    /// Releases the queues that stages gave up, once every lcore has answered or receiving is to stop. Does not wait.
    ///
    /// # Errors
    /// [`NoAnswer`], with the lcores that have not answered yet.
    pub(crate) fn take_queues(&self) -> Result<(), NoAnswer> {
        let late = self.lcores.iter().filter(|look| look.queues.is_offered());
        self.answered(late.map(|look| look.lcore).collect())?;
        self.lcores.iter().for_each(|look| drop(look.queues.take_back()));
        Ok(())
    }

    /// Stages that give verdicts, each of which counts on a lane of its own.
    pub(crate) fn lanes(&self) -> usize {
        self.readers.len()
    }

    /// Where packets can be looked at.
    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Where the first error of the engine's lookups is recorded.
    pub(crate) fn fault(&self) -> &Arc<EngineFault> {
        &self.fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::faulty::{Call, Faults, FaultyEngine};

    #[test]
    fn of_an_lcore_that_does_not_answer_the_published_counters_are_seen_with_their_age() {
        let published = Arc::new(Published::default());
        published.publish(&Counters { rx_packets: 9, tx_packets: 7, ..Counters::default() });
        let look = LcoreLook { lcore: 3, stages: 1, published: vec![published], ..LcoreLook::default() };
        let handle = Handle { lcores: Arc::new([Arc::new(look)]), ..Handle::default() };
        let seen = handle.look(1_000_000_000);
        let [LcoreCounts { lcore: 3, outcomes, age: Some(age) }] = &seen[..] else {
            panic!("{} lcores", seen.len());
        };
        assert_eq!((outcomes[0].counters.rx_packets, outcomes[0].counters.tx_packets), (9, 7));
        assert!((LOOK_LIMIT..LOOK_LIMIT * 100).contains(age), "{age:?}");
    }

    /// An lcore that has sent so many packets answers what it is asked.
    fn answers(look: &LcoreLook, packets: u64) {
        look.swap.exchange(|mut look| {
            let mut latency = Latency::new(1_000_000_000);
            latency.record(100, packets);
            look.outcomes.push(StageOutcome { latency: Some(latency), ..StageOutcome::default() });
            look
        });
    }

    #[test]
    fn latencies_are_taken_once_whoever_asks() {
        let look = Arc::new(LcoreLook { lcore: 3, stages: 1, ..LcoreLook::default() });
        let handle = Handle { lcores: Arc::new([Arc::clone(&look)]), ..Handle::default() };
        let count = || handle.past().map_or(0, |past| past.histogram().len());
        handle.ask_latency(0, 1_000_000_000);
        handle.take_latency(0);
        assert!(count() == 0 && !look.swap.is_offered(), "it has not answered, and needs not any more");
        handle.ask_latency(0, 1_000_000_000);
        answers(&look, 5);
        handle.take_latency(0);
        handle.take_latency(0);
        assert_eq!(count(), 5);
        // Somebody else asks before they are taken, or the lcore has ended.
        handle.ask_latency(0, 1_000_000_000);
        answers(&look, 7);
        handle.ask_latency(0, 1_000_000_000);
        assert_eq!(count(), 12);
        answers(&look, 1);
        handle.take_latencies();
        assert_eq!(count(), 13);
    }

    /// A stage on this lcore that looks up.
    fn reads(lcore: u32) -> Readers {
        Readers { lcore, swap: Arc::default(), slots: 1, batch_max: 1 }
    }

    /// The reader that a stage has at first, with 7 slots.
    fn own() -> VrfReader {
        VrfReader { vrf: 0, reader: FaultyEngine::new(&Arc::default()).reader(7, 1).unwrap() }
    }

    #[test]
    fn an_lcore_that_takes_no_reader_keeps_all_at_the_engine_before() {
        let handle = Handle { readers: Arc::new([reads(3), reads(5)]), ..Handle::default() };
        let (done, is_done) = crossbeam_channel::bounded(1);
        let mover = handle.clone();
        // Not joined: without a limit it waits for ever.
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
        // The next move finds both in order.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stage in &*handle.readers {
                    while !stage.swap.is_offered() {
                        std::thread::sleep(TICK);
                    }
                    stage.swap.exchange(|_| own());
                }
            });
            handle.move_to(0, &FaultyEngine::new(&Arc::default())).unwrap();
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
        let [one, two] = [3, 5].map(|lcore| Arc::new(LcoreLook { lcore, ..LcoreLook::default() }));
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
