//! The reading side: a ring of slots over a few streams, so that copies in, kernels and copies out overlap (section 4.4).
//!
//! Slot `s` runs on stream `s mod streams`. Within a stream work is in order; between streams the device overlaps what it can. A
//! batch is collected from its slot, so answers come back in the order that the caller collects, whatever the device did
//! first. Nothing here allocates, takes a lock, or waits for the writer; what waits for the device is `submit` to a slot that is
//! still in flight (its memory is in use) and [`EngineReader::lookup`].
//!
//! Both wait for as long as [`fib::EngineOptions::stall_us`] says, and no longer. A batch that takes longer is abandoned: its
//! caller gets an error, its slot is out of use and its pin stays until the device has finished with it after all, which is looked
//! for whenever somebody wants a slot. So a device that stands still for a while costs the batches of that while, and one that
//! does not come back within [`super::gpu::STALL_MAX`] is given up.

use super::EngineShared;
use super::gpu::LaunchPlan;
use super::grace::Pins;
use super::params::Mode;
use super::slot::{Residences, Slot, SlotState};
use crate::cu::{Device, GpuError, Priority, Stream};
use crate::host::Answers;
use fib::{EngineError, EngineReader, Family, Keys, NextHopId, SlotId};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long a reader that ends waits for what it has in flight.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Fewest keys of a part when [`EngineReader::lookup`] deals a batch out to slots: below, a launch costs more than the overlap
/// brings.
const PART_MIN: usize = 16 << 10;

/// The reading side of a GPU engine.
pub(super) struct GpuReader {
    // In the order in which they have to go: slots end persistent kernels, streams what they ran on.
    slots: Vec<Slot>,
    /// None where kernels that stay have all batches: each stream takes a share of the connections to the device.
    streams: Vec<Stream>,
    /// The stream of each slot.
    stream_of: Vec<u8>,
    /// The slots that a lookup goes round; room for all of them.
    rota: Vec<usize>,
    answers_v4: Arc<dyn Answers<u32>>,
    answers_v6: Arc<dyn Answers<u128>>,
    batch_max: usize,
    pins: Pins,
    plan: LaunchPlan,
    shared: Arc<EngineShared>,
}

impl GpuReader {
    /// A reader of `slots` slots of `batch_max` keys, run as `plan` says.
    pub(super) fn new(
        shared: &Arc<EngineShared>,
        plan: LaunchPlan,
        answers: (Arc<dyn Answers<u32>>, Arc<dyn Answers<u128>>),
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let slot_count = slots.max(1);
        // A batch is counted in 32 bits on its way; grids and copies of that size are out of reach anyway.
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
        let reads_low_bits = answers.1.reads_low_bits();
        let residences = Residences::new(&plan, &shared.persistent, slot_count, batch_max)?;
        let make = |(row, stream): (usize, &u8)| {
            let stream = streams.get(usize::from(*stream));
            Slot::new(device, stream, &plan, (&residences, row), batch_max, reads_low_bits)
        };
        let slots = stream_of.iter().enumerate().map(make).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            slots,
            streams,
            stream_of,
            rota: Vec::with_capacity(slot_count.into()),
            answers_v4: answers.0,
            answers_v6: answers.1,
            batch_max,
            pins: shared.grace.register(slot_count),
            plan,
            shared: Arc::clone(shared),
        })
    }

    /// Hands `keys`, which fit, to slot `at`.
    #[inline]
    fn launch(&mut self, at: usize, keys: Keys<'_>) -> Result<(), GpuError> {
        self.slots[at].settle(self.plan.stall)?;
        let launched = self.enqueue(at, keys);
        if launched.is_err() || keys.is_empty() {
            self.release(at);
        }
        launched
    }

    /// As [`Self::launch`], to a slot that is free.
    #[inline]
    fn enqueue(&mut self, at: usize, keys: Keys<'_>) -> Result<(), GpuError> {
        let slot = &mut self.slots[at];
        if keys.is_empty() {
            slot.set_empty();
            return Ok(());
        }
        match keys {
            Keys::V4(keys) => slot.write_v4(keys)?,
            Keys::V6 { hi, lo } => slot.write_v6(hi, lo)?,
        }
        self.pins.pin(at); // before the table is read
        let table = match keys.family() {
            Family::V4 => self.shared.v4.load_full(),
            Family::V6 => self.shared.v6.load_full(),
        };
        let stream = self.streams.get_mut(usize::from(self.stream_of[at]));
        slot.launch(keys.family(), stream, &self.plan, table)
    }

    /// Takes the pin off slot `at`, which holds no batch that anybody wants. Of one that could not be launched a part may be
    /// under way: a copy, mostly, which is over in no time. While it is not, the pin stays.
    #[cold]
    fn release(&mut self, at: usize) {
        let _late = self.slots[at].settle(self.plan.stall);
        if !self.slots[at].is_busy() {
            self.pins.unpin(at);
        }
    }

    /// Takes in what slot `at` has, if it is over.
    #[inline]
    fn poll(&mut self, at: usize) -> Result<bool, GpuError> {
        let slot = &mut self.slots[at];
        match slot.state {
            SlotState::Free | SlotState::Ready(_) => return Ok(true),
            SlotState::Flying(family) => {
                if !slot.is_over()? {
                    return Ok(false);
                }
                slot.resolve(family, &*self.answers_v4, &*self.answers_v6)?;
            }
            SlotState::Abandoned(_) => match slot.settle(Duration::ZERO) {
                Ok(()) => {}
                Err(GpuError::Late { .. }) => return Ok(false),
                Err(error) => return Err(error),
            },
        }
        self.pins.unpin(at);
        Ok(true)
    }

    /// Waits for slot `at` and copies its answers to `out`.
    fn take(&mut self, at: usize, out: &mut [NextHopId]) -> Result<(), GpuError> {
        while !self.poll(at)? {
            self.slots[at].wait(self.plan.stall)?;
        }
        out.copy_from_slice(self.slots[at].answers());
        self.slots[at].state = SlotState::Free;
        Ok(())
    }

    /// Finds the slots that a lookup may use: those that hold nothing, and slot 0.
    fn find_free(&mut self) -> Result<(), GpuError> {
        self.rota.clear();
        for at in 0..self.slots.len() {
            let usable = match self.slots[at].state {
                SlotState::Free => true,
                SlotState::Abandoned(_) => self.poll(at)?,
                // A slot with a batch that nobody has collected yet keeps it.
                SlotState::Ready(_) | SlotState::Flying(_) => at == 0,
            };
            if usable {
                self.rota.push(at);
            }
        }
        if self.rota.is_empty() {
            let limit_us = u64::try_from(self.plan.stall.as_micros()).unwrap_or(u64::MAX);
            return Err(GpuError::Late { what: "every batch of this reader", limit_us });
        }
        Ok(())
    }

    /// Looks up `keys` in parts of `part`, through slot 0 and every slot that holds nothing, in turn.
    fn rotate(&mut self, keys: Keys<'_>, part: usize, out: &mut [NextHopId]) -> Result<(), GpuError> {
        self.find_free()?;
        let (count, all) = (out.len(), self.rota.len());
        let (mut submitted, mut taken, mut flying) = (0, 0, 0);
        let (mut head, mut tail) = (0, 0);
        while taken < count {
            while submitted < count && flying < all {
                let end = count.min(submitted + part);
                self.launch(self.rota[head], keys.part(submitted..end))?;
                head = if head + 1 == all { 0 } else { head + 1 };
                (submitted, flying) = (end, flying + 1);
            }
            let end = count.min(taken + part);
            self.take(self.rota[tail], &mut out[taken..end])?;
            tail = if tail + 1 == all { 0 } else { tail + 1 };
            (taken, flying) = (end, flying - 1);
        }
        Ok(())
    }

    /// Gives up what [`Self::rotate`] has in flight after a part of it has failed.
    #[cold]
    fn abandon(&mut self) {
        for &at in &self.rota {
            if self.slots[at].settle(Duration::ZERO).is_ok() {
                self.slots[at].state = SlotState::Free; // answers that nobody has taken, too
                self.pins.unpin(at);
            }
        }
    }

    /// Keys of a part when `count` are looked up at once.
    #[inline]
    fn part(&self, keys: Keys<'_>) -> usize {
        let batch = match keys.family() {
            Family::V4 => self.plan.batch_v4,
            Family::V6 => self.plan.batch_v6,
        };
        // Two parts a stream, so that a copy can begin when the one before ends. Both are powers of two or nearly so: no
        // division.
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

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        self.launch(slot.0.into(), keys).map_err(|error| self.shared.gpu.fault(error))
    }

    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
        let at = usize::from(slot.0);
        match self.poll(at) {
            Ok(false) => Poll::Pending,
            Ok(true) => Poll::Ready(Ok(self.slots[at].answers())),
            Err(error) => Poll::Ready(Err(self.shared.gpu.fault(error))),
        }
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        let part = self.part(keys);
        self.rotate(keys, part, out).map_err(|error| {
            self.abandon();
            self.shared.gpu.fault(error)
        })
    }
}

impl Drop for GpuReader {
    /// Waits for what is in flight: the pins go with the reader, and the writer may then reuse what it was reading.
    fn drop(&mut self) {
        for slot in &mut self.slots {
            if let Err(GpuError::Late { .. }) = slot.settle(DRAIN_LIMIT) {
                let _lost = self.shared.gpu.device.give_up("a batch of a reader that ends", DRAIN_LIMIT);
            }
        }
        for stream in &mut self.streams {
            let _lost = stream.finish(DRAIN_LIMIT);
        }
    }
}
