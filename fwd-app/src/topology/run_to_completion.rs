//! Run-to-completion: one stage takes the packets of its queues from rx to tx, a burst at a time, as l3fwd does.

use super::stage::{ORIGINATED_ONE_IN, REFRESH_ONE_IN};
use super::{Stage, StageControl, StageOutcome, StageProgress};
use crate::datapath::counters::{Stopwatch, TIMED_ONE_IN, VrfCount};
use crate::datapath::lookup::Lookup;
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
use std::sync::Arc;

/// A busy lcore publishes its counters every 16 batches, an idle one at each turn.
const PUBLISHED_ONE_IN: u64 = 16;

pub(crate) struct WorkerInput {
    pub(crate) rx: Rx,
    /// Empty between two bursts unless a batch is larger than a burst.
    pub(crate) batch: Batch,
    pub(crate) vlans: Option<Box<VlanBatches>>,
}

pub(crate) struct VlanBatches {
    pub(crate) sort: VlanSort,
    /// One per VRF, empty between two bursts.
    pub(crate) others: Vec<Batch>,
}

impl WorkerInput {
    fn held(&self) -> usize {
        let others = self.vlans.iter().flat_map(|vlans| &vlans.others);
        others.chain([&self.batch]).map(|batch| batch.packets.len()).sum()
    }
}

pub(crate) struct WorkerStage {
    inputs: Vec<WorkerInput>,
    path: InputPath,
    control: Arc<StageControl>,
    swap: Arc<ReaderSwap>,
    turn: u32,
}

pub(crate) struct InputPath {
    pub(crate) vrfs: Vec<VrfTables>,
    pub(crate) tx: Tx,
    pub(crate) counters: Counters,
    pub(crate) published: Arc<Published>,
    pub(crate) watch: Arc<Watch>,
    /// Lane of the counts by next hop.
    pub(crate) lane: usize,
}

pub(crate) struct VrfTables {
    pub(crate) lookup: Lookup,
    pub(crate) egress: Cache<Arc<ArcSwap<EgressTable>>, Arc<EgressTable>>,
    /// Packet count; `None` for a single VRF, which has all packets.
    pub(crate) count: Option<Arc<VrfCount>>,
}

impl WorkerStage {
    pub(crate) fn new(
        inputs: Vec<WorkerInput>,
        path: InputPath,
        control: Arc<StageControl>,
        swap: Arc<ReaderSwap>,
    ) -> Self {
        Self { inputs, path, control, swap, turn: 0 }
    }

    #[cold]
    fn refresh(&mut self) {
        for VrfTables { lookup, egress, .. } in &mut self.path.vrfs {
            lookup.refresh();
            egress.load();
        }
        let batches = self.inputs.iter_mut().map(|input| &mut input.batch);
        batches.filter_map(|batch| batch.punting.as_mut()).for_each(PuntMarker::refresh);
    }

    fn held(&self) -> u64 {
        let waiting: usize = self.inputs.iter().map(WorkerInput::held).sum();
        (waiting + self.path.tx.held()) as u64
    }
}

impl Stage for WorkerStage {
    fn poll(&mut self) -> StageProgress {
        let (stopping, pausing) = (self.control.is_stopping(), self.control.is_paused());
        let mut worked = false;
        if self.swap.is_offered() {
            let vrfs = &mut self.path.vrfs;
            self.swap.exchange(|VrfReader { vrf, reader }| VrfReader {
                vrf,
                reader: vrfs[vrf].lookup.replace(reader),
            });
        }
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(REFRESH_ONE_IN) {
            self.refresh();
        }
        // All inputs of a turn are timed, so that no input is left out.
        let is_timed = self.turn.is_multiple_of(TIMED_ONE_IN);
        for WorkerInput { rx, batch, vlans } in &mut self.inputs {
            let mut watch = Stopwatch::start(is_timed);
            let came = if stopping || pausing { 0 } else { rx.poll(batch, &mut self.path.counters) };
            if came > 0 {
                watch.lap(&mut self.path.counters, StageName::Rx, came);
                if vlans.is_none() {
                    parse(batch);
                    watch.lap(&mut self.path.counters, StageName::Parse, came);
                }
            }
            if rx.is_due(batch, came) || (stopping && !batch.packets.is_empty()) {
                match vlans {
                    None => self.path.forward(batch, &mut watch),
                    Some(vlans) => self.path.forward_by_vlan(batch, vlans, &mut watch),
                }
                worked = true;
            }
            worked |= came > 0;
        }
        if !worked || self.turn.is_multiple_of(ORIGINATED_ONE_IN) {
            worked |= self.path.tx.originate(&mut self.path.counters);
        }
        if !worked {
            self.path.tx.rest();
            self.path.published.publish(&self.path.counters);
        }
        match (worked, stopping) {
            (true, _) => StageProgress::Worked,
            (false, false) => StageProgress::Idle,
            (false, true) => StageProgress::Done,
        }
    }

    fn snapshot(&mut self, fresh: Option<Latency>) -> StageOutcome {
        let latency = self.path.tx.take_latency(fresh);
        StageOutcome { counters: self.path.counters, latency, held: self.held() }
    }

    fn exchange(&mut self, queues: &mut PortQueues) {
        self.inputs.iter_mut().for_each(|input| input.rx.exchange(queues));
        self.path.tx.exchange(queues);
    }

    fn finish(self: Box<Self>) -> StageOutcome {
        let held = self.held();
        StageOutcome { counters: self.path.counters, latency: Some(self.path.tx.into_latency()), held }
    }
}

impl InputPath {
    /// Forwards an unparsed batch, sorted into batches by VRF. All are empty afterwards.
    #[inline(never)]
    fn forward_by_vlan(&mut self, batch: &mut Batch, vlans: &mut VlanBatches, watch: &mut Stopwatch) {
        let VlanBatches { sort, others } = vlans;
        if sort.sort(batch) {
            for (index, other) in others.iter_mut().enumerate() {
                sort.take_batch(index, other);
            }
        }
        for batch in others.iter_mut().chain([batch]).filter(|batch| !batch.packets.is_empty()) {
            parse(batch);
            watch.lap(&mut self.counters, StageName::Parse, batch.packets.len());
            self.forward(batch, watch);
        }
    }

    /// Takes a batch through the remaining steps; it is empty afterwards.
    #[inline(always)]
    fn forward(&mut self, batch: &mut Batch, watch: &mut Stopwatch) {
        let (counters, count) = (&mut self.counters, batch.packets.len());
        let fragmented = counters.fragmented;
        let VrfTables { lookup, egress, count: of_vrf } = &mut self.vrfs[batch.vrf];
        if let Some(of_vrf) = of_vrf {
            of_vrf.add(count as u64, batch.bytes);
        }
        lookup.run(batch);
        watch.lap(counters, StageName::Lookup, count);
        // Loaded after the lookup: a new table is published before the engine learns new ids, so this one has every id in the answers.
        let table = egress.load();
        verdict(batch, table);
        if let Some(counts) = table.counts() {
            counts.count(self.lane, batch);
        }
        watch.lap(counters, StageName::Verdict, count);
        if self.watch.is_on() {
            self.watch.copy_matching(batch);
        }
        rewrite(batch);
        watch.lap(counters, StageName::Rewrite, count);
        self.tx.send(batch, counters);
        watch.lap(counters, StageName::Tx, count);
        // Rarely, for readers need no better resolution; fragments at once: a reader that counts frames must not take them for packets.
        if counters.batches.is_multiple_of(PUBLISHED_ONE_IN) || counters.fragmented != fragmented {
            self.published.publish(counters);
        }
    }
}
