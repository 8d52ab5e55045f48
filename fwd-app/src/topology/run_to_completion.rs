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

/// A queue and the batch that collects its packets.
pub(crate) struct Input {
    /// The queue.
    pub(crate) rx: Rx,
    /// Its batch, empty between two bursts unless a batch is larger than a burst.
    pub(crate) batch: Batch,
    /// How its packets are sorted, when VLANs of its port are in other VRFs than the port.
    pub(crate) vlans: Option<Box<VlanBatches>>,
}

/// The batches of a queue's packets in other VRFs than that of its port.
pub(crate) struct VlanBatches {
    /// Which packets these are.
    pub(crate) sort: VlanSort,
    /// A batch for each of the VRFs, empty between two bursts.
    pub(crate) others: Vec<Batch>,
}

impl Input {
    /// Packets that it has.
    fn held(&self) -> usize {
        let others = self.vlans.iter().flat_map(|vlans| &vlans.others);
        others.chain([&self.batch]).map(|batch| batch.packets.len()).sum()
    }
}

/// The stage that does everything for its inputs.
pub(crate) struct Worker {
    inputs: Vec<Input>,
    path: InputPath,
    control: Arc<StageControl>,
    swap: Arc<ReaderSwap>,
    turn: u32,
}

/// All steps after rx and parse.
pub(crate) struct InputPath {
    /// The tables of each VRF.
    pub(crate) vrfs: Vec<VrfTables>,
    /// The TX queues.
    pub(crate) tx: Tx,
    /// The counters of the worker.
    pub(crate) counters: Counters,
    /// Their published copy.
    pub(crate) published: Arc<Published>,
    /// Where packets are looked at.
    pub(crate) watch: Arc<Watch>,
    /// Its lane of the counts by next hop.
    pub(crate) lane: usize,
}

/// Where the packets of a VRF are looked up.
pub(crate) struct VrfTables {
    /// The engine's reader.
    pub(crate) lookup: Lookup,
    /// The egress table.
    pub(crate) egress: Cache<Arc<ArcSwap<EgressTable>>, Arc<EgressTable>>,
    /// Its packets; `None` of the only VRF, whose packets are all.
    pub(crate) count: Option<Arc<VrfCount>>,
}

impl Worker {
    /// A worker for `inputs`, which is stopped by `control` and gets other engines' readers by `swap`.
    pub(crate) fn new(
        inputs: Vec<Input>,
        path: InputPath,
        control: Arc<StageControl>,
        swap: Arc<ReaderSwap>,
    ) -> Self {
        Self { inputs, path, control, swap, turn: 0 }
    }

    /// Lets go of tables that were replaced.
    #[cold]
    fn refresh(&mut self) {
        for VrfTables { lookup, egress, .. } in &mut self.path.vrfs {
            lookup.refresh();
            egress.load();
        }
        let batches = self.inputs.iter_mut().map(|input| &mut input.batch);
        batches.filter_map(|batch| batch.punting.as_mut()).for_each(PuntMarker::refresh);
    }

    /// Packets that it has.
    fn held(&self) -> u64 {
        let waiting: usize = self.inputs.iter().map(Input::held).sum();
        (waiting + self.path.tx.held()) as u64
    }
}

impl Stage for Worker {
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
        // All inputs of a turn, so that no input is left out.
        let is_timed = self.turn.is_multiple_of(TIMED_ONE_IN);
        for Input { rx, batch, vlans } in &mut self.inputs {
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

    fn look(&mut self, fresh: Option<Latency>) -> StageOutcome {
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
    /// Takes a batch that has not been parsed through all steps, its packets of other VRFs in batches of their own; afterwards all are empty.
    #[inline(never)]
    fn forward_by_vlan(&mut self, batch: &mut Batch, vlans: &mut VlanBatches, watch: &mut Stopwatch) {
        let VlanBatches { sort, others } = vlans;
        if sort.sort(batch) {
            for (index, other) in others.iter_mut().enumerate() {
                sort.take(index, other);
            }
        }
        for batch in others.iter_mut().chain([batch]).filter(|batch| !batch.packets.is_empty()) {
            parse(batch);
            watch.lap(&mut self.counters, StageName::Parse, batch.packets.len());
            self.forward(batch, watch);
        }
    }

    /// Takes a batch through the remaining steps; afterwards it is empty.
    #[inline(always)]
    fn forward(&mut self, batch: &mut Batch, watch: &mut Stopwatch) {
        let (counters, count) = (&mut self.counters, batch.packets.len());
        let fragmented = counters.fragmented;
        // All packets of a batch are in one VRF.
        let VrfTables { lookup, egress, count: of_vrf } = &mut self.vrfs[batch.vrf];
        if let Some(of_vrf) = of_vrf {
            of_vrf.add(count as u64, batch.bytes);
        }
        lookup.run(batch);
        watch.lap(counters, StageName::Lookup, count);
        // Loaded after the lookup. A new egress table is stored before the engine learns the new ids, so this one has every id in
        // the answers.
        let table = egress.load();
        verdict(batch, table);
        if let Some(counts) = table.counts() {
            counts.count(self.lane, batch);
        }
        watch.lap(counters, StageName::Verdict, count);
        if self.watch.is_on() {
            self.watch.look(batch);
        }
        rewrite(batch);
        watch.lap(counters, StageName::Rewrite, count);
        self.tx.send(batch, counters);
        watch.lap(counters, StageName::Tx, count);
        // Publishing is rare because the readers of the counters need no better resolution; but who counts the frames that leave must not
        // take fragments for packets.
        if counters.batches.is_multiple_of(PUBLISHED_ONE_IN) || counters.fragmented != fragmented {
            self.published.publish(counters);
        }
    }
}
