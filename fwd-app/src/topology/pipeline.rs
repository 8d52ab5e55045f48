//! Pipeline: rx stages fill batches, an engine stage looks up, tx stages rewrite and send.
//!
//! ```text
//! free list -> RxStage -> (channel) -> EngineStage -> (channel) -> TxStage -> free list
//! ```
//! Batches are allocated at start and go round: each input queue has its own free list, so one that is slow takes no batch
//! from another. Channels hold all batches there are, so a send never finds one full. Without a free batch an rx stage does
//! not poll and its packets wait in the queue: that is the back-pressure. At the far end a full TX queue costs packets
//! (`tx_full`), never time, so nothing else is ever lost because sending is slow.
//!
//! Order: all batches of one input take the same way, through the one engine stage to the same tx stage.

use super::{Control, Outcome, Progress, Stage};
use crate::datapath::counters::{Stopwatch, TIMED_ONE_IN};
use crate::datapath::lookup::InFlight;
use crate::datapath::parse::Parse;
use crate::datapath::rewrite::rewrite;
use crate::datapath::rx::Rx;
use crate::datapath::tx::Tx;
use crate::datapath::verdict::verdict;
use crate::datapath::{Batch, Counters, EgressTable, Published, StageName};
use arc_swap::{ArcSwap, Cache};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use dpdk_ffi::Burst;
use std::sync::Arc;

/// Batches of one input queue: enough that rx, engine and tx each hold one and each channel has one waiting.
pub(crate) const BATCHES_PER_INPUT: usize = 8;

/// What travels.
pub(crate) type Travelling = Box<Batch<Burst>>;

/// Receives from one queue.
pub(crate) struct RxStage {
    /// The queue.
    pub(crate) rx: Rx,
    /// Its place among all inputs.
    pub(crate) input: usize,
    /// Batches that have come back.
    pub(crate) free: Receiver<Travelling>,
    /// To the engine stage.
    pub(crate) to_engine: Sender<Travelling>,
    /// What stops it.
    pub(crate) control: Arc<Control>,
    /// Where its counters are shown.
    pub(crate) published: Arc<Published>,
    /// What it counts.
    pub(crate) counters: Counters,
    /// The header checks.
    pub(crate) parse: Parse,
    /// The batch being filled.
    pub(crate) filling: Option<Travelling>,
    /// Polls so far.
    pub(crate) turn: u32,
}

impl Stage for RxStage {
    fn poll(&mut self) -> Progress {
        let stopping = self.control.is_stopping();
        if self.filling.is_none() && !stopping {
            self.filling = self.free.try_recv().ok();
        }
        let Some(mut batch) = self.filling.take() else {
            return if stopping { Progress::Done } else { Progress::Idle };
        };
        self.turn = self.turn.wrapping_add(1);
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        let came = if stopping { 0 } else { self.rx.poll(&mut batch, &mut self.counters) };
        if came > 0 {
            watch.lap(&mut self.counters, StageName::Rx, came);
            self.parse.run(&mut batch);
            watch.lap(&mut self.counters, StageName::Parse, came);
            self.published.publish(&self.counters);
        }
        if self.rx.is_due(&batch, came) || (stopping && !batch.packets.is_empty()) {
            batch.input = self.input;
            // The channel holds every batch there is, so the only failure is an engine stage that has died; the batch comes
            // back then, and its packets are freed with it and show as lost in the sum at the end.
            drop(self.to_engine.try_send(batch));
            return Progress::Worked;
        }
        if !stopping {
            self.filling = Some(batch);
        }
        if came > 0 { Progress::Worked } else { Progress::Idle }
    }

    fn finish(self: Box<Self>) -> Outcome {
        let held = self.filling.as_ref().map_or(0, |batch| batch.packets.len()) as u64;
        Outcome { counters: self.counters, latency: None, held }
    }
}

/// Looks up for all inputs and decides.
pub(crate) struct EngineStage {
    /// From the rx stages.
    pub(crate) from_rx: Receiver<Travelling>,
    /// To the tx stages; an input's batches always go to the same one.
    pub(crate) to_tx: Vec<Sender<Travelling>>,
    /// Batches that the engine has.
    pub(crate) in_flight: InFlight<Burst>,
    /// What next hops mean.
    pub(crate) egress: Cache<Arc<ArcSwap<EgressTable>>, Arc<EgressTable>>,
    /// What it counts: cycles only.
    pub(crate) counters: Counters,
    /// Batches so far.
    pub(crate) turn: u32,
    /// Whether all rx stages are gone.
    pub(crate) closed: bool,
}

impl Stage for EngineStage {
    fn poll(&mut self) -> Progress {
        let mut worked = false;
        self.turn = self.turn.wrapping_add(1);
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        if self.in_flight.has_room() && !self.closed {
            match self.from_rx.try_recv() {
                Ok(batch) => {
                    self.in_flight.submit(batch, dpdk_ffi::tsc());
                    worked = true;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.closed = true,
            }
        }
        if self.in_flight.len() > 0
            && let Some(mut batch) = self.in_flight.take(dpdk_ffi::tsc())
        {
            let count = batch.packets.len();
            watch.lap(&mut self.counters, StageName::Lookup, count);
            // Read after the lookup: a table that came before the engine's news knows every id it can answer.
            verdict(&mut batch, self.egress.load());
            watch.lap(&mut self.counters, StageName::Verdict, count);
            let sender = batch.input % self.to_tx.len().max(1);
            if let Some(to_tx) = self.to_tx.get(sender) {
                // As in the rx stage: the channel holds every batch there is.
                drop(to_tx.try_send(batch));
            }
            worked = true;
        }
        match (worked, self.closed && self.in_flight.len() == 0) {
            (true, _) => Progress::Worked,
            (false, false) => Progress::Idle,
            (false, true) => Progress::Done,
        }
    }

    fn finish(self: Box<Self>) -> Outcome {
        Outcome { counters: self.counters, latency: None, held: self.in_flight.packets_held() }
    }
}

/// Rewrites and sends.
pub(crate) struct TxStage {
    /// From the engine stage.
    pub(crate) from_engine: Receiver<Travelling>,
    /// The free list of each input.
    pub(crate) homes: Vec<Sender<Travelling>>,
    /// The queues.
    pub(crate) tx: Tx,
    /// Where its counters are shown.
    pub(crate) published: Arc<Published>,
    /// What it counts.
    pub(crate) counters: Counters,
    /// Batches so far.
    pub(crate) turn: u32,
}

impl Stage for TxStage {
    fn poll(&mut self) -> Progress {
        let mut batch = match self.from_engine.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Empty) => {
                self.tx.rest();
                return Progress::Idle;
            }
            Err(TryRecvError::Disconnected) => return Progress::Done,
        };
        self.turn = self.turn.wrapping_add(1);
        let count = batch.packets.len();
        let mut watch = Stopwatch::start(self.turn.is_multiple_of(TIMED_ONE_IN));
        rewrite(&mut batch);
        watch.lap(&mut self.counters, StageName::Rewrite, count);
        self.tx.send(&mut batch, &mut self.counters);
        watch.lap(&mut self.counters, StageName::Tx, count);
        self.published.publish(&self.counters);
        if let Some(home) = self.homes.get(batch.input) {
            // Refused only when the rx stage is done: the empty batch ends here.
            drop(home.try_send(batch));
        }
        Progress::Worked
    }

    fn finish(self: Box<Self>) -> Outcome {
        let held = self.tx.held() as u64;
        Outcome { counters: self.counters, latency: Some(self.tx.into_latency()), held }
    }
}
