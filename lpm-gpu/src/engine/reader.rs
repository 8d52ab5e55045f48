//! The reader: a ring of slots over a few streams, so that copies in, kernels and copies out overlap (GAMT, section 4.4). Slot
//! `s` uses stream `s mod streams`; answers are collected by slot, in the caller's order. Nothing here allocates, locks, or waits
//! for the writer. Only `submit` to a slot in flight and [`EngineReader::lookup`] wait for the device, at most
//! [`fib::EngineOptions::stall_us`]. A slower batch is abandoned: the caller gets an error, and slot and pin stay in use until
//! the device has finished the batch, which is checked whenever a slot is needed. After [`super::gpu::STALL_MAX`] the device is
//! given up.

use super::EngineShared;
use super::gpu::LaunchPlan;
use super::grace::Pins;
use super::params::Mode;
use super::slot::{GpuSlot, Residences, SlotState};
use crate::cu::{Device, GpuError, Priority, RegisteredMemory, Stream};
use crate::host::Answers;
use fib::{EngineError, EngineReader, Family, KeyMemory, Keys, NextHopId, SlotId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Least keys of a part when [`EngineReader::lookup`] splits a batch: smaller ones lose more in launches than they overlap.
const PART_MIN: usize = 16 << 10;

pub(super) struct GpuReader {
    // Drop order: slots end persistent kernels, then the streams go.
    slots: Vec<GpuSlot>,
    /// None with persistent kernels: each stream uses up a connection to the device.
    streams: Vec<Stream>,
    /// The callers' memory in which keys are read in place.
    registered: Vec<RegisteredMemory>,
    stream_of: Vec<u8>,
    /// Slots of the current lookup, in turn; has capacity for all.
    lookup_slots: Vec<usize>,
    answers_v4: Arc<dyn Answers<u32>>,
    answers_v6: Arc<dyn Answers<u128>>,
    batch_max: usize,
    pins: Pins,
    plan: LaunchPlan,
    shared: Arc<EngineShared>,
}

impl GpuReader {
    pub(super) fn new(
        shared: &Arc<EngineShared>,
        plan: LaunchPlan,
        answers: (Arc<dyn Answers<u32>>, Arc<dyn Answers<u128>>),
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let slot_count = slots.max(1);
        // Batches are counted in 32 bits; larger grids and copies are impossible anyway.
        let batch_max = batch_max.clamp(1, 1 << 30);
        let device: &Device = &shared.gpu.device;
        let streams = if plan.mode == Mode::Persistent { 0 } else { plan.streams.min(slot_count) };
        let streams =
            (0..streams).map(|_| Stream::new(device, Priority::Usual)).collect::<Result<Vec<_>, _>>()?;
        let stream_of: Vec<u8> = (0..streams.len().max(1))
            .cycle()
            .take(slot_count.into())
            .map(|stream| u8::try_from(stream).unwrap_or(0))
            .collect();
        let residences = Residences::new(&plan, &shared.persistent, slot_count, batch_max)?;
        let make = |(row, stream): (usize, &u8)| {
            let stream = streams.get(usize::from(*stream));
            GpuSlot::new(device, stream, &plan, (&residences, row), batch_max)
        };
        let slots = stream_of.iter().enumerate().map(make).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            slots,
            streams,
            registered: Vec::new(),
            stream_of,
            lookup_slots: Vec::with_capacity(slot_count.into()),
            answers_v4: answers.0,
            answers_v6: answers.1,
            batch_max,
            pins: shared.grace.register(slot_count),
            plan,
            shared: Arc::clone(shared),
        })
    }

    #[inline]
    fn launch(&mut self, at: usize, keys: Keys<'_>) -> Result<(), GpuError> {
        self.slots[at].settle(self.plan.stall)?;
        let launched = self.enqueue(at, keys);
        if launched.is_err() || keys.is_empty() {
            self.release(at);
        }
        launched
    }

    /// [`Self::launch`] on a free slot.
    #[inline]
    fn enqueue(&mut self, at: usize, keys: Keys<'_>) -> Result<(), GpuError> {
        let slot = &mut self.slots[at];
        if keys.is_empty() {
            slot.set_empty();
            return Ok(());
        }
        self.pins.pin(at); // before the table is read
        let table = match keys.family() {
            Family::V4 => self.shared.v4.load_full(),
            Family::V6 => self.shared.v6.load_full(),
        };
        let stream = self.streams.get_mut(usize::from(self.stream_of[at]));
        slot.launch(keys, &self.registered, stream, &self.plan, table)
    }

    /// Unpins slot `at` after a failed or empty launch. If a part of the batch is still running, usually a copy, the pin stays.
    #[cold]
    fn release(&mut self, at: usize) {
        let _late = self.slots[at].settle(self.plan.stall);
        if !self.slots[at].is_busy() {
            self.pins.unpin(at);
        }
    }

    /// Resolves the answers of slot `at` to `keys`, which it [accepts](GpuSlot::check); false while its batch runs.
    #[inline]
    fn poll(&mut self, at: usize, keys: Keys<'_>) -> Result<bool, GpuError> {
        let slot = &mut self.slots[at];
        match slot.state {
            SlotState::Free | SlotState::Ready(_) => Ok(true),
            SlotState::Flying(_) => {
                if !slot.is_over()? {
                    return Ok(false);
                }
                slot.resolve(keys, &*self.answers_v4, &*self.answers_v6)?;
                self.pins.unpin(at);
                Ok(true)
            }
            SlotState::Abandoned(_) => self.poll_abandoned(at),
        }
    }

    /// Frees slot `at` of an abandoned batch; false while the batch runs.
    #[cold]
    fn poll_abandoned(&mut self, at: usize) -> Result<bool, GpuError> {
        match self.slots[at].settle(Duration::ZERO) {
            Ok(()) => {
                self.pins.unpin(at);
                Ok(true)
            }
            Err(GpuError::Late { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn collect_into(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), GpuError> {
        while !self.poll(at, keys)? {
            self.slots[at].wait(self.plan.stall)?;
        }
        out.copy_from_slice(self.slots[at].answers());
        self.slots[at].state = SlotState::Free;
        Ok(())
    }

    /// Lists the slots that a lookup may use: empty ones, and slot 0.
    fn find_free(&mut self) -> Result<(), GpuError> {
        self.lookup_slots.clear();
        for at in 0..self.slots.len() {
            let usable = match self.slots[at].state {
                SlotState::Free => true,
                SlotState::Abandoned(_) => self.poll_abandoned(at)?,
                SlotState::Ready(_) | SlotState::Flying(_) => at == 0,
            };
            if usable {
                self.lookup_slots.push(at);
            }
        }
        if self.lookup_slots.is_empty() {
            let limit_us = u64::try_from(self.plan.stall.as_micros()).unwrap_or(u64::MAX);
            return Err(GpuError::Late { what: "every batch of this reader", limit_us });
        }
        Ok(())
    }

    /// Looks up `keys` in parts of `part`, in turn through the slots of [`Self::find_free`].
    fn look_up_in_parts(
        &mut self,
        keys: Keys<'_>,
        part: usize,
        out: &mut [NextHopId],
    ) -> Result<(), GpuError> {
        self.find_free()?;
        let (count, all) = (out.len(), self.lookup_slots.len());
        let (mut submitted, mut taken, mut flying) = (0, 0, 0);
        let (mut head, mut tail) = (0, 0);
        while taken < count {
            while submitted < count && flying < all {
                let end = count.min(submitted + part);
                self.launch(self.lookup_slots[head], keys.part(submitted..end))?;
                head = if head + 1 == all { 0 } else { head + 1 };
                (submitted, flying) = (end, flying + 1);
            }
            let end = count.min(taken + part);
            self.collect_into(self.lookup_slots[tail], keys.part(taken..end), &mut out[taken..end])?;
            tail = if tail + 1 == all { 0 } else { tail + 1 };
            (taken, flying) = (end, flying - 1);
        }
        Ok(())
    }

    #[cold]
    fn abandon(&mut self) {
        for &at in &self.lookup_slots {
            if self.slots[at].settle(Duration::ZERO).is_ok() {
                self.slots[at].state = SlotState::Free; // also drops uncollected answers
                self.pins.unpin(at);
            }
        }
    }

    #[inline]
    fn part(&self, keys: Keys<'_>) -> usize {
        let batch = match keys.family() {
            Family::V4 => self.plan.batch_v4,
            Family::V6 => self.plan.batch_v6,
        };
        // Two parts a stream, so that a copy starts when the previous ends. Powers of two, or nearly: a shift replaces a division.
        let share = keys.len() >> (1 + self.streams.len().max(1).ilog2());
        share.max(PART_MIN).min(batch).min(self.batch_max)
    }
}

impl EngineReader for GpuReader {
    #[expect(clippy::cast_possible_truncation, reason = "made from a u16")]
    fn slots(&self) -> u16 {
        self.slots.len() as u16
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn adopt(&mut self, memory: &Arc<dyn KeyMemory>) -> Result<(), EngineError> {
        if self.registered.iter().any(|registered| registered.is(memory.as_ref())) {
            return Ok(());
        }
        match RegisteredMemory::new(&self.shared.gpu.device, memory) {
            Ok(Some(registered)) => self.registered.push(registered),
            Ok(None) => _ = self.shared.refused.fetch_add(1, Ordering::Relaxed),
            Err(error) => return Err(self.shared.gpu.fault(error)),
        }
        Ok(())
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        self.launch(slot.0.into(), keys).map_err(|error| self.shared.gpu.fault(error))
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        let at = usize::from(slot.0);
        if let Err(other) = self.slots[at].check(keys) {
            return Poll::Ready(Err(other));
        }
        match self.poll(at, keys) {
            Ok(false) => Poll::Pending,
            Ok(true) => {
                let slot = &self.slots[at];
                Poll::Ready(slot.check(keys).map(|()| slot.answers())) // an abandoned batch has no answers
            }
            Err(error) => Poll::Ready(Err(self.shared.gpu.fault(error))),
        }
    }

    fn discard(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        let at = usize::from(slot.0);
        match self.slots[at].discard() {
            Ok(false) => Poll::Pending,
            Ok(true) => {
                self.pins.unpin(at);
                Poll::Ready(Ok(()))
            }
            Err(error) => Poll::Ready(Err(self.shared.gpu.fault(error))),
        }
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        let part = self.part(keys);
        self.look_up_in_parts(keys, part, out).map_err(|error| {
            self.abandon();
            self.shared.gpu.fault(error)
        })
    }
}

impl Drop for GpuReader {
    /// Waits for batches in flight: the pins end with the reader, and the writer may then reuse what the batches read.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Err(GpuError::Late { .. }) = slot.settle(DRAIN_LIMIT) {
                let _lost = self.shared.gpu.device.give_up("a batch of a dropped reader", DRAIN_LIMIT);
            }
        }
        for stream in &mut self.streams {
            let _lost = stream.finish(DRAIN_LIMIT);
        }
    }
}
