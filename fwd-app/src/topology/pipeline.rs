//! Pipeline: rx stages fill batches, an engine stage looks up, tx stages rewrite and send.
//!
//! ```text
//! free list -> RxStage -> (channel) -> EngineStage -> (channel) -> TxStage -> free list
//! ```
//! Batches are allocated at start and circulate. Each input queue has a free list, so that a slow queue takes no batches from others. Each
//! channel has room for all batches, so a send never finds it full. An rx stage without a free batch does not poll (back-pressure). A tx
//! stage never waits: packets for a full TX queue are held back within a limit, then dropped (`tx_full`). A stage that panics ends the run;
//! batches left in the channels count as held. Batches of one input and VRF stay in order: they pass the same engine stage and the same tx
//! stage.

use super::stage::{ORIGINATED_ONE_IN, REFRESH_ONE_IN};
use super::{Stage, StageControl, StageOutcome, StageProgress};
use crate::datapath::counters::{BusyClock, Stopwatch, TIMED_ONE_IN, VrfCount};
use crate::datapath::lookup::InFlight;
use crate::datapath::parse::parse;
use crate::datapath::port_queues::PortQueues;
use crate::datapath::rewrite::rewrite;
use crate::datapath::rx::Rx;
use crate::datapath::swap::{ReaderSwap, VrfReader};
use crate::datapath::tx::Tx;
use crate::datapath::verdict::verdict;
use crate::datapath::vlans::VlanSort;
use crate::datapath::watch::Watch;
use crate::datapath::{Batch, Counters, EgressTable, Latency, Published, PuntMarker, StageName};
use arc_swap::{ArcSwap, Cache};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use std::sync::Arc;

/// Batches per input queue, plus one for each further VRF of its port's VLANs. Enough for rx, engine and tx to hold one each, and for one
/// to wait in each channel.
pub(crate) const BATCHES_PER_INPUT: usize = 8;

const PUBLISHED_ONE_IN: u32 = 16;

pub(crate) type Travelling = Box<Batch>;

pub(crate) struct RxStage {
    pub(crate) rx: Rx,
    /// Index among all inputs.
    pub(crate) input: usize,
    pub(crate) free: Receiver<Travelling>,
    pub(crate) to_engine: Sender<Travelling>,
    pub(crate) control: Arc<StageControl>,
    pub(crate) published: Arc<Published>,
    pub(crate) counters: Counters,
    pub(crate) clock: BusyClock,
    pub(crate) filling: Option<Travelling>,
    pub(crate) vlans: Option<Box<VlanStock>>,
    pub(crate) turn: u32,
}

/// A batch is filled only when an empty batch for each other VRF is in stock, so that sending never waits for one.
pub(crate) struct VlanStock {
    sort: VlanSort,
    own: usize,
    spare: Vec<Travelling>,
}

impl VlanStock {
    pub(crate) fn new(sort: VlanSort, own: usize) -> Self {
        Self { sort, own, spare: Vec::new() }
    }

    /// A batch to fill; `None` when `free` has too few.
    fn next(&mut self, free: &Receiver<Travelling>) -> Option<Travelling> {
        while self.spare.len() <= self.sort.others() {
            self.spare.push(free.try_recv().ok()?);
        }
        let mut batch = self.spare.pop()?;
        batch.vrf = self.own;
        set_elsewhere(&mut batch, false);
        Some(batch)
    }

    fn send(&mut self, mut batch: Travelling, mut send: impl FnMut(Travelling)) {
        if self.sort.sort(&mut batch) {
            for index in 0..self.sort.others() {
                let Some(mut other) = self.spare.pop() else {
                    unreachable!("there is an empty batch for each VRF since the last call of `next`");
                };
                if self.sort.take_batch(index, &mut other) {
                    set_elsewhere(&mut other, true);
                    send(other);
                } else {
                    self.spare.push(other);
                }
            }
        }
        if batch.packets.is_empty() {
            self.spare.push(batch);
        } else {
            send(batch);
        }
    }
}

fn set_elsewhere(batch: &mut Batch, is_elsewhere: bool) {
    if let Some(punting) = &mut batch.punting {
        punting.is_elsewhere = is_elsewhere;
    }
}

impl Stage for RxStage {
    fn poll(&mut self) -> StageProgress {
        let (stopping, pausing) = (self.control.is_stopping(), self.control.is_paused());
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        let takes_another = self.filling.is_none() && !stopping;
        if takes_another {
            self.filling = match &mut self.vlans {
                None => self.free.try_recv().ok(),
                Some(vlans) => vlans.next(&self.free),
            };
        }
        let Some(mut batch) = self.filling.take() else {
            self.clock.rest();
            return if stopping { StageProgress::Done } else { StageProgress::Idle };
        };
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(REFRESH_ONE_IN) {
            batch.punting.iter_mut().for_each(PuntMarker::refresh);
        }
        // Idle polls keep the batch, so they are not hand-overs.
        if takes_another {
            watch.lap(&mut self.counters, StageName::HandOver, 0);
        }
        let came = if stopping || pausing { 0 } else { self.rx.poll(&mut batch, &mut self.counters) };
        let mut since_tsc = 0;
        if came > 0 {
            since_tsc = batch.stamps().last().map_or(0, |stamp| stamp.tsc);
            watch.lap(&mut self.counters, StageName::Rx, came);
            if self.vlans.is_none() {
                parse(&mut batch);
                watch.lap(&mut self.counters, StageName::Parse, came);
            }
            self.published.publish(&self.counters);
        }
        if self.rx.is_due(&batch, came) || (stopping && !batch.packets.is_empty()) {
            let Self { input, to_engine, counters, vlans, .. } = self;
            let is_parsed = vlans.is_none();
            let mut send = |mut batch: Travelling| {
                let count = batch.packets.len();
                if !is_parsed {
                    parse(&mut batch);
                    watch.lap(counters, StageName::Parse, count);
                }
                batch.input = *input;
                // Cannot fail: the channel has room for all batches, and a receiver exists until the end.
                drop(to_engine.try_send(batch));
                watch.lap(counters, StageName::HandOver, count);
            };
            match vlans {
                None => send(batch),
                Some(vlans) => vlans.send(batch, send),
            }
            self.clock.worked(since_tsc, &mut self.counters);
            return StageProgress::Worked;
        }
        if !stopping {
            self.filling = Some(batch);
        }
        if came > 0 {
            self.clock.worked(since_tsc, &mut self.counters);
            return StageProgress::Worked;
        }
        self.clock.rest();
        StageProgress::Idle
    }

    fn snapshot(&mut self, fresh: Option<Latency>) -> StageOutcome {
        let held = self.filling.as_ref().map_or(0, |batch| batch.packets.len()) as u64;
        StageOutcome { counters: self.counters, latency: fresh, held }
    }

    fn exchange(&mut self, queues: &mut PortQueues) {
        self.rx.exchange(queues);
    }
}

pub(crate) struct EngineStage {
    pub(crate) from_rx: Receiver<Travelling>,
    /// All batches of an input go to the same tx stage.
    pub(crate) to_tx: Vec<Sender<Travelling>>,
    pub(crate) vrfs: Vec<VrfInFlight>,
    pub(crate) swap: Arc<ReaderSwap>,
    pub(crate) watch: Arc<Watch>,
    /// Lane of the counts by next hop.
    pub(crate) lane: usize,
    pub(crate) published: Arc<Published>,
    /// Cycles only.
    pub(crate) counters: Counters,
    pub(crate) clock: BusyClock,
    pub(crate) turn: u32,
    /// Whether all rx stages have ended.
    pub(crate) closed: bool,
}

pub(crate) struct VrfInFlight {
    pub(crate) in_flight: InFlight,
    pub(crate) egress: Cache<Arc<ArcSwap<EgressTable>>, Arc<EgressTable>>,
    /// Packet count; `None` for a single VRF, which has all packets.
    pub(crate) count: Option<Arc<VrfCount>>,
}

impl Stage for EngineStage {
    fn poll(&mut self) -> StageProgress {
        let (mut worked, mut since_tsc) = (false, 0);
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(REFRESH_ONE_IN) {
            self.refresh();
        }
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        let is_offered = self.swap.is_offered();
        if is_offered && self.is_empty() {
            let vrfs = &mut self.vrfs;
            self.swap.exchange(|VrfReader { vrf, reader }| VrfReader {
                vrf,
                reader: vrfs[vrf].in_flight.replace(reader),
            });
        // The VRF of the next batch is unknown until it is received, so all engines must be ready.
        } else if !is_offered && !self.closed && self.vrfs.iter().all(|vrf| vrf.in_flight.is_ready()) {
            match self.from_rx.try_recv() {
                Ok(batch) => {
                    watch.lap(&mut self.counters, StageName::HandOver, 0);
                    since_tsc = dpdk_ffi::tsc();
                    self.vrfs[batch.vrf].in_flight.submit(batch, since_tsc);
                    worked = true;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
        for VrfInFlight { in_flight, egress, count: of_vrf } in &mut self.vrfs {
            if !in_flight.is_busy() {
                continue;
            }
            let now_tsc = dpdk_ffi::tsc();
            let Some(mut batch) = in_flight.take_done(now_tsc) else { continue };
            if since_tsc == 0 {
                since_tsc = now_tsc;
            }
            let count = batch.packets.len();
            if let Some(of_vrf) = of_vrf {
                of_vrf.add(count as u64, batch.bytes);
            }
            watch.lap(&mut self.counters, StageName::Lookup, count);
            // Loaded after the lookup: a new table is published before the engine learns new ids, so this one has every id in the answers.
            let table = egress.load();
            verdict(&mut batch, table);
            if let Some(counts) = table.counts() {
                counts.count(self.lane, &batch);
            }
            watch.lap(&mut self.counters, StageName::Verdict, count);
            if self.watch.is_on() {
                self.watch.copy_matching(&batch);
            }
            let sender = batch.input % self.to_tx.len().max(1);
            if let Some(to_tx) = self.to_tx.get(sender) {
                // Cannot fail, as in the rx stage.
                drop(to_tx.try_send(batch));
            }
            watch.lap(&mut self.counters, StageName::HandOver, 0);
            worked = true;
        }
        if worked {
            self.clock.worked(since_tsc, &mut self.counters);
        }
        if worked && self.turn.is_multiple_of(PUBLISHED_ONE_IN) || !worked && self.clock.rest() {
            self.published.publish(&self.counters);
        }
        match (worked, self.closed && self.is_empty()) {
            (true, _) => StageProgress::Worked,
            (false, false) => StageProgress::Idle,
            (false, true) => StageProgress::Done,
        }
    }

    fn snapshot(&mut self, fresh: Option<Latency>) -> StageOutcome {
        let held = self.vrfs.iter().map(|vrf| vrf.in_flight.packets_held()).sum();
        StageOutcome { counters: self.counters, latency: fresh, held }
    }
}

impl EngineStage {
    #[cold]
    fn refresh(&mut self) {
        for VrfInFlight { in_flight, egress, .. } in &mut self.vrfs {
            in_flight.refresh();
            egress.load();
        }
    }

    fn is_empty(&self) -> bool {
        self.vrfs.iter().all(|vrf| vrf.in_flight.is_empty())
    }
}

pub(crate) struct TxStage {
    pub(crate) from_engine: Receiver<Travelling>,
    /// The free list of each input.
    pub(crate) homes: Vec<Sender<Travelling>>,
    pub(crate) tx: Tx,
    pub(crate) published: Arc<Published>,
    pub(crate) counters: Counters,
    pub(crate) turn: u32,
}

impl TxStage {
    /// Sends packets that were held back, then packets of the router.
    fn send_others(&mut self) -> bool {
        let had_held = self.send_held();
        let has_originated = self.tx.originate(&mut self.counters);
        if has_originated {
            self.published.publish(&self.counters);
        }
        had_held || has_originated
    }

    fn send_held(&mut self) -> bool {
        let had_held = self.tx.send_held(&mut self.counters);
        if had_held {
            self.published.publish(&self.counters);
        }
        had_held
    }
}

impl Stage for TxStage {
    fn poll(&mut self) -> StageProgress {
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        let mut batch = match self.from_engine.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Empty) if self.send_others() => return StageProgress::Worked,
            Err(TryRecvError::Empty) => {
                self.tx.rest();
                return StageProgress::Idle;
            }
            Err(TryRecvError::Disconnected) if self.send_held() => return StageProgress::Worked,
            Err(TryRecvError::Disconnected) => return StageProgress::Done,
        };
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(ORIGINATED_ONE_IN) {
            self.send_others();
        }
        let count = batch.packets.len();
        watch.lap(&mut self.counters, StageName::HandOver, 0);
        rewrite(&mut batch);
        watch.lap(&mut self.counters, StageName::Rewrite, count);
        self.tx.send(&mut batch, &mut self.counters);
        watch.lap(&mut self.counters, StageName::Tx, count);
        self.published.publish(&self.counters);
        if let Some(home) = self.homes.get(batch.input) {
            // Fails only if the rx stage has ended: then the empty batch is dropped.
            drop(home.try_send(batch));
        }
        watch.lap(&mut self.counters, StageName::HandOver, 0);
        StageProgress::Worked
    }

    fn snapshot(&mut self, fresh: Option<Latency>) -> StageOutcome {
        let held = self.tx.held() as u64;
        StageOutcome { counters: self.counters, latency: self.tx.take_latency(fresh), held }
    }

    fn exchange(&mut self, queues: &mut PortQueues) {
        self.tx.exchange(queues);
    }

    fn finish(self: Box<Self>) -> StageOutcome {
        let held = self.tx.held() as u64;
        StageOutcome { counters: self.counters, latency: Some(self.tx.into_latency()), held }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::datapath::DropReason;
    use crate::datapath::audit::AuditSampler;
    use crate::datapath::egress::tests::ports;
    use crate::datapath::test_frames::{self, V4, V6};
    use crossbeam_channel::bounded;
    use fib::faulty::{Faults, FaultyEngine};
    use fib::{EngineOptions, EngineWriter as _, IpPrefix, NextHopId, NextHopTable, Prefix4, Rib};
    use lpm_core::retire::Retired;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::{Duration, Instant};

    struct PipelineRig {
        stage: EngineStage,
        rx: Option<Sender<Travelling>>,
        tx: Receiver<Travelling>,
        faults: Arc<Faults>,
    }

    impl PipelineRig {
        fn new() -> Self {
            let faults = Arc::new(Faults::default());
            let reader = FaultyEngine::new(&faults).reader(4, 16).unwrap();
            let ((rx, from_rx), (to_tx, tx)) = (bounded(16), bounded(16));
            let egress = EgressTable::new(&NextHopTable::new(), &ports(1)).unwrap();
            let stage = EngineStage {
                from_rx,
                to_tx: vec![to_tx],
                vrfs: vec![VrfInFlight {
                    in_flight: InFlight::new(reader, 2_000_000, Arc::default(), AuditSampler::default()),
                    egress: Cache::new(Arc::new(ArcSwap::from_pointee(egress))),
                    count: None,
                }],
                swap: Arc::default(),
                watch: Arc::default(),
                lane: 0,
                published: Arc::default(),
                counters: Counters::default(),
                clock: BusyClock::default(),
                turn: 0,
                closed: false,
            };
            Self { stage, rx: Some(rx), tx, faults }
        }

        fn send(&self, sizes: std::ops::Range<usize>) {
            for size in sizes {
                let frame = |i| if i % 2 == 0 { V4::default().frame() } else { V6::default().frame() };
                let frames: Vec<_> = (0..size).map(frame).collect();
                let mut batch = Box::new(test_frames::batch(&frames).unwrap());
                parse(&mut batch);
                self.rx.as_ref().unwrap().try_send(batch).unwrap();
            }
        }

        fn poll_until(&mut self, done: impl Fn(&Self, StageProgress) -> bool) {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let progress = self.stage.poll();
                if done(self, progress) {
                    return;
                }
                assert!(Instant::now() < end, "the stage hangs");
            }
        }

        /// Checks that all packets received from the stage were dropped for `reason`. Returns the number of packets of each batch.
        fn came(&self, reason: DropReason) -> Vec<usize> {
            let count = |batch: Travelling| {
                assert_eq!(batch.drops.get(reason), batch.packets.len() as u64, "{:?}", batch.drops);
                assert_eq!(batch.drops.total(), batch.packets.len() as u64, "each packet is counted once");
                batch.packets.len()
            };
            self.tx.try_iter().map(count).collect()
        }
    }

    #[test]
    fn a_stage_without_packets_lets_go_of_tables_that_were_replaced() {
        if dpdk_ffi::testing::eal().is_none() {
            return;
        }
        let mut engine = lpm_phi::bloom::make(&EngineOptions::default()).unwrap();
        let mut rig = PipelineRig::new();
        drop(rig.stage.vrfs[0].in_flight.replace(engine.reader(4, 16).unwrap()));
        let mut rib = Rib::new();
        for route in 0..10_240 {
            rib.set(IpPrefix::V4(Prefix4::truncating(route << 8, 24)), NextHopId::new(1).unwrap());
        }
        rib.commit_to(engine.as_mut()).unwrap();
        let table = EgressTable::clone(&rig.stage.vrfs[0].egress.arc_swap().load());
        let (place, mut egress) = (Arc::new(ArcSwap::from_pointee(table.clone())), Retired::default());
        rig.stage.vrfs[0].egress = Cache::new(Arc::clone(&place));
        egress.replace(&place, Arc::new(table), 1);
        let mut left = || {
            engine.free_retired();
            egress.free();
            (engine.stats().retired_bytes > 0, egress.bytes() > 0)
        };
        assert_eq!(left(), (true, true), "the stage has both");
        (0..REFRESH_ONE_IN).for_each(|_| assert_eq!(rig.stage.poll(), StageProgress::Idle));
        assert_eq!(left(), (false, false));
    }

    #[test]
    fn a_device_that_stalls_stops_neither_rx_nor_the_end_and_its_slots_come_back() {
        if dpdk_ffi::testing::eal().is_none() {
            return;
        }
        let mut rig = PipelineRig::new();
        rig.faults.pending_polls.store(u64::MAX, SeqCst);
        // More batches than slots, and as many again once all slots belong to abandoned batches.
        for _ in 0..2 {
            rig.send(1..8);
            rig.poll_until(|rig, _| rig.tx.len() == 7);
            assert_eq!(rig.came(DropReason::EngineStall), [1, 2, 3, 4, 5, 6, 7]);
        }
        rig.faults.pending_polls.store(0, SeqCst);
        rig.poll_until(|rig, _| !rig.stage.vrfs[0].in_flight.is_busy());
        rig.send(1..8);
        rig.poll_until(|rig, _| rig.tx.len() == 7);
        assert_eq!(rig.came(DropReason::NoRoute), [1, 2, 3, 4, 5, 6, 7]);
        // The stage also ends while the device does not answer.
        rig.faults.pending_polls.store(u64::MAX, SeqCst);
        rig.send(1..8);
        rig.rx = None;
        rig.poll_until(|_, progress| progress == StageProgress::Done);
        assert_eq!(rig.came(DropReason::EngineStall), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Box::new(rig.stage).finish().held, 0);
    }
}
