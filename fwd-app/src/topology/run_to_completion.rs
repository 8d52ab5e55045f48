//! Run-to-completion: one stage takes the packets of its queues from rx to tx, a burst at a time, as l3fwd does.

use super::{Control, Outcome, Progress, Stage};
use crate::datapath::counters::{Stopwatch, TIMED_ONE_IN};
use crate::datapath::lookup::Lookup;
use crate::datapath::parse::parse;
use crate::datapath::rewrite::rewrite;
use crate::datapath::rx::Rx;
use crate::datapath::tx::Tx;
use crate::datapath::verdict::verdict;
use crate::datapath::{Batch, Counters, EgressTable, Published, StageName};
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
}

/// The stage that does everything for its inputs.
pub(crate) struct Worker {
    inputs: Vec<Input>,
    path: Path,
    control: Arc<Control>,
    turn: u32,
}

/// All steps after rx and parse.
struct Path {
    lookup: Lookup,
    egress: Cache<Arc<ArcSwap<EgressTable>>, Arc<EgressTable>>,
    tx: Tx,
    counters: Counters,
    published: Arc<Published>,
}

impl Worker {
    /// A worker for `inputs`.
    pub(crate) fn new(
        inputs: Vec<Input>,
        lookup: Lookup,
        egress: Arc<ArcSwap<EgressTable>>,
        tx: Tx,
        control: Arc<Control>,
        published: Arc<Published>,
    ) -> Self {
        let (egress, counters) = (Cache::new(egress), Counters::default());
        Self { inputs, path: Path { lookup, egress, tx, counters, published }, control, turn: 0 }
    }
}

impl Stage for Worker {
    fn poll(&mut self) -> Progress {
        let stopping = self.control.is_stopping();
        let mut worked = false;
        for Input { rx, batch } in &mut self.inputs {
            self.turn = self.turn.wrapping_add(1);
            let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
            let came = if stopping { 0 } else { rx.poll(batch, &mut self.path.counters) };
            if came > 0 {
                watch.lap(&mut self.path.counters, StageName::Rx, came);
                parse(batch);
                watch.lap(&mut self.path.counters, StageName::Parse, came);
            }
            if rx.is_due(batch, came) || (stopping && !batch.packets.is_empty()) {
                self.path.forward(batch, &mut watch);
                worked = true;
            }
            worked |= came > 0;
        }
        if !worked {
            self.path.tx.rest();
            self.path.published.publish(&self.path.counters);
        }
        match (worked, stopping) {
            (true, _) => Progress::Worked,
            (false, false) => Progress::Idle,
            (false, true) => Progress::Done,
        }
    }

    fn finish(self: Box<Self>) -> Outcome {
        let waiting: usize = self.inputs.iter().map(|input| input.batch.packets.len()).sum();
        let held = (waiting + self.path.tx.held()) as u64;
        Outcome { counters: self.path.counters, latency: Some(self.path.tx.into_latency()), held }
    }
}

impl Path {
    /// Takes a batch through the remaining steps; afterwards it is empty.
    #[inline]
    fn forward(&mut self, batch: &mut Batch, watch: &mut Stopwatch) {
        let (counters, count) = (&mut self.counters, batch.packets.len());
        self.lookup.run(batch);
        watch.lap(counters, StageName::Lookup, count);
        // Loaded after the lookup. A new egress table is stored before the engine learns the new ids, so this one has every id in
        // the answers.
        verdict(batch, self.egress.load());
        watch.lap(counters, StageName::Verdict, count);
        rewrite(batch);
        watch.lap(counters, StageName::Rewrite, count);
        self.tx.send(batch, counters);
        watch.lap(counters, StageName::Tx, count);
        // Publishing is rare because the readers of the counters need no better resolution.
        if counters.batches.is_multiple_of(PUBLISHED_ONE_IN) {
            self.published.publish(counters);
        }
    }
}
