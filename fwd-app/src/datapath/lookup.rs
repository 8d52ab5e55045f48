//! Lookup: resolves the destinations of a batch to next hops through an engine's reader.
//!
//! [`Lookup`] serves synchronous engines: one call per family of a batch. [`InFlight`] serves asynchronous ones: it keeps several batches
//! in the engine's slots and returns them in order of arrival. When an engine fails or times out, the packets of that batch are dropped
//! (`engine_stall`). While every slot belongs to an abandoned batch, new batches are dropped at once, so that an engine that never answers
//! blocks neither rx nor the shutdown.

use super::DropReason;
use super::audit::AuditSampler;
use super::batch::Batch;
use fib::{EngineError, EngineReader, Family, Keys, SlotId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// The first lookup error of an engine. Lcores record it, the main lcore reports it.
#[derive(Debug, Default)]
pub(crate) struct EngineFault {
    first: OnceLock<EngineError>,
    is_reported: AtomicBool,
}

impl EngineFault {
    #[cold]
    fn note(&self, error: EngineError) {
        let _ = self.first.set(error);
    }

    pub(crate) fn first(&self) -> Option<&EngineError> {
        self.first.get()
    }

    pub(crate) fn take_unreported(&self) -> Option<&EngineError> {
        self.first().filter(|_| !self.is_reported.swap(true, Ordering::AcqRel))
    }
}

pub(crate) struct Lookup {
    reader: Box<dyn EngineReader>,
    fault: Arc<EngineFault>,
    sampler: AuditSampler,
}

impl Lookup {
    /// The slots of `reader` hold at least as many keys as a batch has packets.
    pub(crate) fn new(reader: Box<dyn EngineReader>, fault: Arc<EngineFault>, sampler: AuditSampler) -> Self {
        Self { reader, fault, sampler }
    }

    pub(crate) fn replace(&mut self, reader: Box<dyn EngineReader>) -> Box<dyn EngineReader> {
        std::mem::replace(&mut self.reader, reader)
    }

    pub(crate) fn refresh(&mut self) {
        self.reader.refresh();
        self.sampler.refresh();
    }

    /// Fills the next hops of both lanes. A lane whose lookup fails is dropped.
    #[inline]
    pub(crate) fn run(&mut self, batch: &mut Batch) {
        let changes = self.sampler.changes();
        let Batch { keys4, keys6, v4, v6, .. } = batch;
        let call4 = (Keys::V4(&keys4[..v4.len]), &mut v4.hops[..v4.len]);
        let call6 = (Keys::V6 { hi: &keys6.0[..v6.len], lo: &keys6.1[..v6.len] }, &mut v6.hops[..v6.len]);
        let results = match (v4.len, v6.len) {
            (0, 0) => return,
            (_, 0) => [self.reader.lookup(call4.0, call4.1), Ok(())],
            (0, _) => [Ok(()), self.reader.lookup(call6.0, call6.1)],
            _ => self.reader.lookup_both([call4, call6]),
        };
        let failed = results.map(|result| is_lost(result, &self.fault));
        drop_lanes(batch, failed);
        self.sampler.count(batch, changes);
    }
}

#[inline]
fn is_lost(result: Result<(), EngineError>, fault: &EngineFault) -> bool {
    result.map_err(|error| fault.note(error)).is_err()
}

/// A batch in flight with its pair of slots, or the slots of an abandoned batch.
struct Pending {
    batch: Option<Box<Batch>>,
    /// `None` when no pair was free; then no answer is outstanding.
    slots: Option<[SlotId; 2]>,
    /// The slots with an outstanding answer, IPv4 first.
    owed: [bool; 2],
    since_tsc: u64,
    /// Of the sampler, before the batch was submitted.
    changes: u64,
}

/// Batches in an engine's slots, oldest first.
pub(crate) struct InFlight {
    reader: Box<dyn EngineReader>,
    free: Vec<[SlotId; 2]>,
    pending: VecDeque<Pending>,
    /// Slots of abandoned batches, until the engine answers.
    lost: Vec<Pending>,
    stall_cycles: u64,
    fault: Arc<EngineFault>,
    sampler: AuditSampler,
    /// Number of slot pairs: each pair is in `free`, `pending` or `lost`.
    pairs: usize,
}

impl InFlight {
    /// Each batch takes two slots of `reader`, one per family. A batch is abandoned after `stall_cycles`.
    pub(crate) fn new(
        reader: Box<dyn EngineReader>,
        stall_cycles: u64,
        fault: Arc<EngineFault>,
        sampler: AuditSampler,
    ) -> Self {
        let free: Vec<_> = pairs_of(reader.as_ref()).collect();
        let pairs = free.len();
        Self {
            reader,
            free,
            pending: VecDeque::with_capacity(pairs),
            lost: Vec::with_capacity(pairs),
            stall_cycles,
            fault,
            sampler,
            pairs,
        }
    }

    /// Returns the previous reader with the slots of abandoned batches. No batch may be in flight.
    pub(crate) fn replace(&mut self, reader: Box<dyn EngineReader>) -> Box<dyn EngineReader> {
        // Reuses the memory: lcores neither allocate nor free.
        self.free.clear();
        self.free.extend(pairs_of(reader.as_ref()));
        self.pairs = self.free.len();
        self.lost.clear();
        std::mem::replace(&mut self.reader, reader)
    }

    pub(crate) fn refresh(&mut self) {
        self.reader.refresh();
        self.sampler.refresh();
    }

    /// A pair of slots is free, or every pair belongs to an abandoned batch: then the new batch is dropped, since no slot is bound to
    /// become free. Otherwise wait: the oldest pending batch frees its slots or is abandoned within `stall_cycles`.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.free.is_empty() || self.lost.len() == self.pairs
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.lost.is_empty()
    }

    /// Accepts a batch. Without a free pair of slots its packets are dropped.
    pub(crate) fn submit(&mut self, batch: Box<Batch>, now_tsc: u64) {
        let (slots, changes) = (self.free.pop(), self.sampler.changes());
        // The batch is in `pending` before the engine is called, so that its packets are counted if the engine panics.
        let owed = [false; 2];
        self.pending.push_back(Pending { batch: Some(batch), slots, owed, since_tsc: now_tsc, changes });
        let Some(Pending { batch: Some(batch), owed, .. }) = self.pending.back_mut() else { return };
        let Some([v4, v6]) = slots else { return drop_lanes(batch, [true; 2]) };
        if batch.v4.len > 0 {
            owed[0] = !is_lost(self.reader.submit(v4, batch.keys_v4()), &self.fault);
            drop_lanes(batch, [!owed[0], false]);
        }
        if batch.v6.len > 0 {
            owed[1] = !is_lost(self.reader.submit(v6, batch.keys_v6()), &self.fault);
            drop_lanes(batch, [false, !owed[1]]);
        }
    }

    /// Returns the oldest batch once the engine has answered it or it has stalled. Also recovers slots of abandoned batches.
    pub(crate) fn take_done(&mut self, now_tsc: u64) -> Option<Box<Batch>> {
        self.recover();
        let front = self.pending.front_mut()?;
        collect(self.reader.as_mut(), front, &self.fault);
        let stalled = now_tsc.saturating_sub(front.since_tsc) > self.stall_cycles;
        if front.owed != [false; 2] && !stalled {
            return None;
        }
        let mut front = self.pending.pop_front()?;
        let mut batch = front.batch.take()?;
        if front.owed == [false; 2] {
            self.free.extend(front.slots);
            self.sampler.count(&batch, front.changes);
        } else {
            drop_lanes(&mut batch, front.owed);
            self.lost.push(front);
        }
        Some(batch)
    }

    fn recover(&mut self) {
        let mut i = 0;
        while i < self.lost.len() {
            collect(self.reader.as_mut(), &mut self.lost[i], &self.fault);
            if self.lost[i].owed == [false; 2] {
                self.free.extend(self.lost.swap_remove(i).slots);
            } else {
                i += 1;
            }
        }
    }

    pub(crate) fn packets_held(&self) -> u64 {
        let batches = self.pending.iter().filter_map(|pending| pending.batch.as_ref());
        batches.map(|batch| batch.packets.len() as u64).sum()
    }
}

/// The slots of a family are neighbours: a device engine assigns its streams to slots in turn, so one family alone uses all streams.
fn pairs_of(reader: &dyn EngineReader) -> impl Iterator<Item = [SlotId; 2]> + use<> {
    let pairs = reader.slots() / 2;
    (0..pairs).map(move |pair| [SlotId(pair), SlotId(pairs + pair)])
}

fn collect(reader: &mut dyn EngineReader, pending: &mut Pending, fault: &EngineFault) {
    let Some(slots) = pending.slots else { return };
    for (family, slot) in slots.into_iter().enumerate() {
        if !pending.owed[family] {
            continue;
        }
        let Some(batch) = pending.batch.as_mut() else {
            // The packets of an abandoned batch are gone, and its keys are overwritten.
            if let Poll::Ready(discarded) = reader.discard(slot) {
                pending.owed[family] = false;
                discarded.unwrap_or_else(|error| fault.note(error));
            }
            continue;
        };
        let keys = if family == 0 { batch.keys_v4() } else { batch.keys_v6() };
        let Poll::Ready(answers) = reader.collect(slot, keys) else { continue };
        pending.owed[family] = false;
        if let Err(error) = &answers {
            fault.note(error.clone());
        }
        let lane = if family == 0 { &mut batch.v4 } else { &mut batch.v6 };
        match answers {
            Ok(answers) if answers.len() == lane.len => lane.hops[..lane.len].copy_from_slice(answers),
            _ => drop_lanes(batch, [family == 0, family == 1]),
        }
    }
}

/// Drops the lanes marked in `which`, IPv4 first, as `engine_stall`.
fn drop_lanes(batch: &mut Batch, which: [bool; 2]) {
    for (family, dropped) in [Family::V4, Family::V6].into_iter().zip(which) {
        if dropped {
            batch.drop_lane(family, DropReason::EngineStall);
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::super::batch::NO_ENTRY;
    use super::super::parse::parse;
    use super::super::test_frames::{self, V4, V6};
    use super::*;
    use fib::faulty::{Call, Faults, FaultyEngine, How};
    use fib::{EngineWriter, NextHopId, Rib};
    use std::sync::atomic::Ordering::SeqCst;

    /// A reader with `slots` slots: IPv4 has next hop 4, IPv6 next hop 6.
    fn reader(slots: u16, faults: &Arc<Faults>) -> Box<dyn EngineReader> {
        let (mut engine, mut rib) = (FaultyEngine::new(faults), Rib::new());
        rib.set("0.0.0.0/0".parse().unwrap(), NextHopId::from_answer(4));
        rib.set("::/0".parse().unwrap(), NextHopId::from_answer(6));
        rib.commit_to(&mut engine).unwrap();
        engine.reader(slots, 16).unwrap()
    }

    fn batch(v4: usize, v6: usize) -> Option<Box<Batch>> {
        let mut frames = vec![V4::default().frame(); v4];
        frames.extend(vec![V6::default().frame(); v6]);
        let mut batch = Box::new(test_frames::batch(&frames)?);
        parse(&mut batch);
        Some(batch)
    }

    #[test]
    fn batches_leave_in_order_when_both_families_are_answered() {
        if batch(0, 0).is_none() {
            return;
        }
        let faults = Arc::new(Faults::default());
        faults.pending_polls.store(2, SeqCst);
        let mut flight = InFlight::new(reader(4, &faults), 1000, Arc::default(), AuditSampler::default());
        flight.submit(batch(1, 2).unwrap(), 0);
        flight.submit(batch(3, 0).unwrap(), 0);
        assert!(!flight.is_ready());
        assert!(flight.take_done(1).is_none() && flight.take_done(2).is_none());
        let first = flight.take_done(3).unwrap();
        assert_eq!((first.v4.len, first.v6.len, first.drops.total()), (1, 2, 0));
        assert_eq!([first.v4.hops[0], first.v6.hops[0], first.v6.hops[1]].map(NextHopId::get), [4, 6, 6]);
        assert!(flight.is_ready() && !flight.is_empty());
        faults.pending_polls.store(0, SeqCst);
        assert_eq!(flight.take_done(4).unwrap().v4.len, 3);
        assert_eq!(faults.early_submits.load(SeqCst), 0);
        assert!(flight.take_done(5).is_none() && flight.is_empty() && !flight.is_busy());
    }

    #[test]
    fn a_stalled_batch_is_dropped_and_its_slots_come_back() {
        if batch(0, 0).is_none() {
            return;
        }
        let faults = Arc::new(Faults::default());
        faults.pending_polls.store(u64::MAX, SeqCst);
        let mut flight = InFlight::new(reader(2, &faults), 1000, Arc::default(), AuditSampler::default());
        flight.submit(batch(1, 2).unwrap(), 0);
        assert!(flight.take_done(1000).is_none());
        let given_up = flight.take_done(1001).unwrap();
        assert_eq!(given_up.drops.get(DropReason::EngineStall), 3);
        assert_eq!((given_up.v4.len, given_up.v6.len), (0, 0));
        assert!(given_up.indices[..3].iter().all(|index| *index == NO_ENTRY));
        // No batch is in flight, but slots are still to be recovered: a batch submitted meanwhile is dropped at once.
        assert!(flight.is_empty() && flight.is_busy() && flight.take_done(1002).is_none());
        assert!(flight.is_ready());
        flight.submit(batch(2, 1).unwrap(), 1002);
        assert_eq!(flight.take_done(1002).unwrap().drops.get(DropReason::EngineStall), 3);
        faults.pending_polls.store(0, SeqCst);
        assert!(flight.take_done(1003).is_none());
        assert!(flight.is_ready() && !flight.is_busy());
        flight.submit(batch(1, 0).unwrap(), 2000);
        assert_eq!(flight.take_done(2001).unwrap().drops.total(), 0);
        assert_eq!(faults.early_submits.load(SeqCst), 0);
    }

    #[test]
    fn an_engine_that_refuses_costs_the_batch_only() {
        if batch(0, 0).is_none() {
            return;
        }
        let faults = Arc::new(Faults::default());
        faults.fail_from(Call::Submit, 0, How::Full);
        let mut flight = InFlight::new(reader(2, &faults), 1000, Arc::default(), AuditSampler::default());
        flight.submit(batch(2, 1).unwrap(), 0);
        assert_eq!(flight.take_done(1).unwrap().drops.get(DropReason::EngineStall), 3);
        assert!(flight.is_ready());
        let fault = Arc::new(EngineFault::default());
        let mut lookup = Lookup::new(reader(2, &faults), Arc::clone(&fault), AuditSampler::default());
        let mut one = batch(2, 1).unwrap();
        lookup.run(&mut one);
        assert_eq!(one.drops.get(DropReason::EngineStall), 3);
        assert_eq!(fault.first(), Some(&EngineError::Full { what: "routes", used: 2, limit: 0 }));
    }

    #[test]
    fn without_a_free_slot_the_packets_are_dropped_in_turn() {
        if batch(0, 0).is_none() {
            return;
        }
        let mut flight =
            InFlight::new(reader(2, &Arc::default()), 1000, Arc::default(), AuditSampler::default());
        flight.submit(batch(1, 0).unwrap(), 0);
        flight.submit(batch(2, 0).unwrap(), 0);
        assert_eq!(flight.take_done(1).unwrap().drops.total(), 0);
        assert_eq!(flight.take_done(1).unwrap().drops.get(DropReason::EngineStall), 2);
        assert!(flight.is_ready());
        flight.submit(batch(1, 0).unwrap(), 0);
        assert_eq!(flight.take_done(1).unwrap().drops.total(), 0);
    }
}
