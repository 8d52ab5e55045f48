//! Lookup: the destinations of a batch become next hops, through an engine's reader.
//!
//! [`Lookup`] is for engines that answer at once: each family of a batch is one call. [`InFlight`] keeps several batches in
//! an engine's slots, for engines that answer later; batches leave it in the order they came. An engine that fails, or
//! gives no answer in time, costs the packets of that batch (`engine_stall`), never the forwarder; what it said first is
//! kept in an [`EngineFault`]. The slots of a batch that was given up are used again once the engine has answered it after all.
//! While every slot waits for such an answer, batches are taken and dropped at once, so that an engine that never comes back stops
//! neither rx nor the end.

use super::batch::Batch;
use super::{DropReason, Packets};
use fib::{EngineError, EngineReader, Family, Keys, SlotId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

/// The first error of an engine that was to look up packets. Lcores note it, the main lcore reports it.
#[derive(Debug, Default)]
pub(crate) struct EngineFault {
    first: OnceLock<EngineError>,
    is_reported: AtomicBool,
}

impl EngineFault {
    /// Notes `error`, unless there was one before.
    #[cold]
    fn note(&self, error: EngineError) {
        let _ = self.first.set(error);
    }

    /// The first error, if there was any.
    pub(crate) fn first(&self) -> Option<&EngineError> {
        self.first.get()
    }

    /// The first error, to the first who asks: it is reported once.
    pub(crate) fn news(&self) -> Option<&EngineError> {
        self.first().filter(|_| !self.is_reported.swap(true, Ordering::AcqRel))
    }
}

/// Lookups that are done when the call returns.
pub(crate) struct Lookup {
    reader: Box<dyn EngineReader>,
    fault: Arc<EngineFault>,
}

impl Lookup {
    /// Over `reader`, whose slots hold at least as many keys as the batches.
    pub(crate) fn new(reader: Box<dyn EngineReader>, fault: Arc<EngineFault>) -> Self {
        Self { reader, fault }
    }

    /// Fills the next hops of both lanes; a lane whose lookup fails is dropped.
    #[inline]
    pub(crate) fn run<P>(&mut self, batch: &mut Batch<P>) {
        let Batch { keys4, keys6, v4, v6, .. } = batch;
        let mut failed = [false; 2];
        if v4.len > 0 {
            let keys = Keys::V4(&keys4[..v4.len]);
            failed[0] = is_lost(self.reader.lookup(keys, &mut v4.hops[..v4.len]), &self.fault);
        }
        if v6.len > 0 {
            let keys = Keys::V6 { hi: &keys6.0[..v6.len], lo: &keys6.1[..v6.len] };
            failed[1] = is_lost(self.reader.lookup(keys, &mut v6.hops[..v6.len]), &self.fault);
        }
        drop_lanes(batch, failed);
    }
}

/// Whether `result` is an error; it is noted then.
#[inline]
fn is_lost(result: Result<(), EngineError>, fault: &EngineFault) -> bool {
    result.map_err(|error| fault.note(error)).is_err()
}

/// A pair of slots with a batch, or with one that was given up.
struct Pending<P> {
    batch: Option<Box<Batch<P>>>,
    /// `None` when there was no free pair, and so no answer is owed.
    slots: Option<[SlotId; 2]>,
    /// Which of the slots still owe an answer.
    owed: [bool; 2],
    since_tsc: u64,
}

/// Batches in an engine's slots, oldest first.
pub(crate) struct InFlight<P> {
    reader: Box<dyn EngineReader>,
    free: Vec<[SlotId; 2]>,
    pending: VecDeque<Pending<P>>,
    /// Slots whose batch was given up; they come back when the engine answers after all.
    lost: Vec<Pending<P>>,
    stall_cycles: u64,
    fault: Arc<EngineFault>,
    /// Pairs of slots in all: each is in `free`, `pending` or `lost`.
    pairs: usize,
}

impl<P> InFlight<P> {
    /// Over `reader`; each batch takes two slots, one a family. `stall_cycles`: when a batch is given up.
    pub(crate) fn new(reader: Box<dyn EngineReader>, stall_cycles: u64, fault: Arc<EngineFault>) -> Self {
        let pairs = usize::from(reader.slots() / 2);
        let slots = (0..reader.slots()).map(SlotId).collect::<Vec<_>>();
        let free = slots.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        Self {
            reader,
            free,
            pending: VecDeque::with_capacity(pairs),
            lost: Vec::with_capacity(pairs),
            stall_cycles,
            fault,
            pairs,
        }
    }

    /// Whether a batch is to be brought. Not while another may still be answered and make room, which it does or is given up
    /// within `stall_cycles`; without such another a batch is dropped, for nothing says when there will be room.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.free.is_empty() || self.lost.len() == self.pairs
    }

    /// Whether it holds no batch.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether [`Self::take`] has anything to do: a batch inside, or slots to win back.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.pending.is_empty() || !self.lost.is_empty()
    }

    /// Takes a batch; without a free pair of slots its packets are dropped when it leaves (see [`Self::is_ready`]).
    pub(crate) fn submit(&mut self, batch: Box<Batch<P>>, now_tsc: u64) {
        let slots = self.free.pop();
        // Inside before the engine is called: should that panic, the batch is still there to be counted.
        self.pending.push_back(Pending { batch: Some(batch), slots, owed: [false; 2], since_tsc: now_tsc });
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

    /// The oldest batch, when the engine has answered or has taken too long; slots that were waiting for an answer are won back.
    pub(crate) fn take(&mut self, now_tsc: u64) -> Option<Box<Batch<P>>> {
        self.recover();
        let front = self.pending.front_mut()?;
        collect(self.reader.as_mut(), front, &self.fault);
        let stalled = now_tsc.wrapping_sub(front.since_tsc) > self.stall_cycles;
        if front.owed != [false; 2] && !stalled {
            return None;
        }
        let mut front = self.pending.pop_front()?;
        let mut batch = front.batch.take()?;
        if front.owed == [false; 2] {
            self.free.extend(front.slots);
        } else {
            drop_lanes(&mut batch, front.owed);
            self.lost.push(front);
        }
        Some(batch)
    }

    /// Slots of batches that were given up, if the engine has answered them by now.
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
}

impl<P: Packets> InFlight<P> {
    /// Packets inside.
    pub(crate) fn packets_held(&self) -> u64 {
        let batches = self.pending.iter().filter_map(|pending| pending.batch.as_ref());
        batches.map(|batch| batch.packets.count() as u64).sum()
    }
}

/// Takes the answers that are there.
fn collect<P>(reader: &mut dyn EngineReader, pending: &mut Pending<P>, fault: &EngineFault) {
    let Some(slots) = pending.slots else { return };
    for (family, slot) in slots.into_iter().enumerate() {
        if !pending.owed[family] {
            continue;
        }
        let Poll::Ready(answers) = reader.collect(slot) else { continue };
        pending.owed[family] = false;
        if let Err(error) = &answers {
            fault.note(error.clone());
        }
        let Some(batch) = pending.batch.as_mut() else { continue };
        let lane = if family == 0 { &mut batch.v4 } else { &mut batch.v6 };
        match answers {
            Ok(answers) if answers.len() == lane.len => lane.hops[..lane.len].copy_from_slice(answers),
            _ => drop_lanes(batch, [family == 0, family == 1]),
        }
    }
}

/// Drops the lanes marked in `which`, IPv4 first, as `engine_stall`.
fn drop_lanes<P>(batch: &mut Batch<P>, which: [bool; 2]) {
    for (family, dropped) in [Family::V4, Family::V6].into_iter().zip(which) {
        if dropped {
            batch.drop_lane(family, DropReason::EngineStall);
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::super::Code;
    use super::super::parse::Parse;
    use super::super::test_frames::{V4, V6};
    use super::*;
    use fib::NextHopId;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// An engine whose answers come after `delay` polls of their slot; `u32::MAX` is never. It answers the number of keys.
    struct Slow {
        delay: Arc<AtomicU32>,
        /// The answers, polls so far, and whether they have been taken.
        slots: Vec<(Vec<NextHopId>, u32, bool)>,
        refuse: bool,
    }

    impl Slow {
        fn boxed(slots: u16, delay: &Arc<AtomicU32>, refuse: bool) -> Box<dyn EngineReader> {
            let slots = vec![(Vec::new(), 0, true); usize::from(slots)];
            Box::new(Self { delay: Arc::clone(delay), slots, refuse })
        }
    }

    impl EngineReader for Slow {
        fn slots(&self) -> u16 {
            u16::try_from(self.slots.len()).unwrap()
        }

        fn batch_max(&self) -> usize {
            16
        }

        fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
            if self.refuse {
                return Err(EngineError::Batch { keys: keys.len(), limit: 0 });
            }
            let id = NextHopId::from_answer(u32::try_from(keys.len()).unwrap());
            assert!(self.slots[usize::from(slot.0)].2, "a slot that owes an answer gets no other keys");
            self.slots[usize::from(slot.0)] = (vec![id; keys.len()], 0, false);
            Ok(())
        }

        fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
            let slot = &mut self.slots[usize::from(slot.0)];
            slot.1 += 1;
            if slot.1 <= self.delay.load(SeqCst) {
                return Poll::Pending;
            }
            slot.2 = true;
            Poll::Ready(Ok(&slot.0))
        }
    }

    fn batch(v4: usize, v6: usize) -> Box<Batch<Vec<Vec<u8>>>> {
        let mut frames = vec![V4::default().frame(); v4];
        frames.extend(vec![V6::default().frame(); v6]);
        let mut batch = Box::new(Batch::new(frames, 16));
        Parse::new(fib::Isa::detect()).run(&mut batch);
        batch
    }

    #[test]
    fn batches_leave_in_order_when_both_families_are_answered() {
        let delay = Arc::new(AtomicU32::new(2));
        let mut flight = InFlight::new(Slow::boxed(4, &delay, false), 1000, Arc::default());
        flight.submit(batch(1, 2), 0);
        flight.submit(batch(3, 0), 0);
        assert!(!flight.is_ready());
        assert!(flight.take(1).is_none() && flight.take(2).is_none());
        let first = flight.take(3).unwrap();
        assert_eq!((first.v4.hops[0].get(), first.v6.hops[1].get(), first.drops.total()), (1, 2, 0));
        assert!(flight.is_ready() && !flight.is_empty());
        delay.store(0, SeqCst);
        assert_eq!(flight.take(4).unwrap().v4.hops[2].get(), 3);
        assert!(flight.take(5).is_none() && flight.is_empty() && !flight.is_busy());
    }

    #[test]
    fn a_stalled_batch_is_dropped_and_its_slots_come_back() {
        let delay = Arc::new(AtomicU32::new(u32::MAX));
        let mut flight = InFlight::new(Slow::boxed(2, &delay, false), 1000, Arc::default());
        flight.submit(batch(1, 2), 0);
        assert!(flight.take(1000).is_none());
        let given_up = flight.take(1001).unwrap();
        assert_eq!(given_up.drops.get(DropReason::EngineStall), 3);
        assert_eq!(
            (given_up.v4.len, given_up.v6.len, given_up.ports[..3].to_vec()),
            (0, 0, vec![Code::DROPPED; 3])
        );
        // Nothing is inside, but slots are to be won back: a batch that comes meanwhile is dropped at once.
        assert!(flight.is_empty() && flight.is_busy() && flight.take(1002).is_none());
        assert!(flight.is_ready());
        flight.submit(batch(2, 1), 1002);
        assert_eq!(flight.take(1002).unwrap().drops.get(DropReason::EngineStall), 3);
        delay.store(0, SeqCst);
        assert!(flight.take(1003).is_none());
        assert!(flight.is_ready() && !flight.is_busy());
        flight.submit(batch(1, 0), 2000);
        assert_eq!(flight.take(2001).unwrap().drops.total(), 0);
    }

    #[test]
    fn an_engine_that_refuses_costs_the_batch_only() {
        let delay = Arc::new(AtomicU32::new(0));
        let mut flight = InFlight::new(Slow::boxed(2, &delay, true), 1000, Arc::default());
        flight.submit(batch(2, 1), 0);
        assert_eq!(flight.take(1).unwrap().drops.get(DropReason::EngineStall), 3);
        assert!(flight.is_ready());
        let fault = Arc::new(EngineFault::default());
        let mut lookup = Lookup::new(Slow::boxed(2, &delay, true), Arc::clone(&fault));
        let mut one = batch(2, 1);
        lookup.run(&mut one);
        assert_eq!(one.drops.get(DropReason::EngineStall), 3);
        assert_eq!(fault.first(), Some(&EngineError::Batch { keys: 2, limit: 0 }));
    }

    #[test]
    fn without_a_free_slot_the_packets_are_dropped_in_turn() {
        let delay = Arc::new(AtomicU32::new(0));
        let mut flight = InFlight::new(Slow::boxed(2, &delay, false), 1000, Arc::default());
        flight.submit(batch(1, 0), 0);
        flight.submit(batch(2, 0), 0);
        assert_eq!(flight.take(1).unwrap().drops.total(), 0);
        assert_eq!(flight.take(1).unwrap().drops.get(DropReason::EngineStall), 2);
        assert!(flight.is_ready());
        flight.submit(batch(1, 0), 0);
        assert_eq!(flight.take(1).unwrap().drops.total(), 0);
    }
}
