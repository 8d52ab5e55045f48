//! A slot of a reader: a batch on its way, from the caller's keys to the caller's next hops.

use super::gpu::{LaunchPlan, STALL_MAX};
use super::lane::BatchLane;
use super::residence::{Residence, Row};
use super::tables::DeviceTable;
use crate::cu::{Device, Event, GpuError, Kernel, Stream, as_next_hops};
use crate::host::Answers;
use fib::{Family, NextHopId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a part of a batch may take whose rest could not be enqueued, where nothing says when it is over.
const LIMIT: Duration = Duration::from_secs(10);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// No batch, or one whose answers were taken.
    Free,
    /// A batch that the device has.
    Flying(Family),
    /// A batch whose answers nobody wants any more: it took too long, or a part of it could not be enqueued. The device may
    /// be at work on it, so the slot is of no use until it is over.
    Abandoned(Family),
    /// Answers that are resolved, and perhaps not taken yet.
    Ready(Family),
}

/// The kernels that stay on the device, where the mode wants them.
#[derive(Clone, Debug, Default)]
pub(super) struct PersistentKernels {
    pub(super) v4: Option<Kernel>,
    pub(super) v6: Option<Kernel>,
}

/// The same, serving a reader's slots.
#[derive(Default)]
pub(super) struct Residences {
    v4: Option<Arc<Residence<u32>>>,
    v6: Option<Arc<Residence<u64>>>,
}

impl Residences {
    /// For `slots` slots of `batch_max` keys.
    pub(super) fn new(
        plan: &LaunchPlan,
        kernels: &PersistentKernels,
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let (v4, v6) = (kernels.v4.as_ref(), kernels.v6.as_ref());
        let families = u32::from(v6.is_some());
        Ok(Self {
            v4: v4
                .map(|kernel| Residence::new(plan, kernel, 1 + families, slots, batch_max))
                .transpose()?
                .map(Arc::new),
            v6: v6.map(|kernel| Residence::new(plan, kernel, 1, slots, batch_max)).transpose()?.map(Arc::new),
        })
    }
}

/// A slot.
pub(super) struct Slot {
    device: Device,
    lane_v4: BatchLane<u32>,
    lane_v6: BatchLane<u64>,
    /// Completes with the batch; none where kernels that stay have all batches.
    event: Option<Event>,
    /// The last 64 bits of IPv6 keys, if [`Answers`] read them.
    low: Vec<u64>,
    len: usize,
    pub(super) state: SlotState,
    /// When the batch in flight was first waited for.
    since: Option<Instant>,
    /// The table of the batch in flight: while we hold it, it is not written anew.
    table: Option<Arc<DeviceTable>>,
}

impl Slot {
    /// Slot `row` of a reader, of `batch_max` keys, whose batches run on `stream`, or on kernels that stay. `reads_low_bits`: whether
    /// answers do.
    pub(super) fn new(
        device: &Device,
        stream: Option<&Stream>,
        plan: &LaunchPlan,
        (residences, row): (&Residences, usize),
        batch_max: usize,
        reads_low_bits: bool,
    ) -> Result<Self, GpuError> {
        let row_v4 = residences.v4.as_ref().map(|residence| Row::new(residence, row, batch_max));
        let row_v6 = residences.v6.as_ref().map(|residence| Row::new(residence, row, batch_max));
        Ok(Self {
            device: device.clone(),
            lane_v4: BatchLane::new(device, plan, row_v4, batch_max)?,
            lane_v6: BatchLane::new(device, plan, row_v6, batch_max)?,
            event: stream.map(|stream| stream.event(false)).transpose()?,
            low: vec![0; if reads_low_bits { batch_max } else { 0 }],
            len: 0,
            state: SlotState::Free,
            since: None,
            table: None,
        })
    }

    /// Whether the device may be at work for it.
    #[inline]
    pub(super) const fn is_busy(&self) -> bool {
        matches!(self.state, SlotState::Flying(_) | SlotState::Abandoned(_))
    }

    /// Makes the slot free: waits until the batch in flight, if any, is over; its answers are lost. Fails as [`Self::wait`].
    #[inline]
    pub(super) fn settle(&mut self, limit: Duration) -> Result<(), GpuError> {
        if self.is_busy() {
            self.wait(limit)?;
            (self.state, self.table) = (SlotState::Free, None);
        }
        Ok(())
    }

    /// Waits until the batch in flight is over, for `limit` since it was first waited for. After that it is abandoned and the
    /// error is [`GpuError::Late`], and so it is at once from then on until the batch is over; a batch that takes
    /// [`STALL_MAX`] is the device's end.
    #[cold]
    pub(super) fn wait(&mut self, limit: Duration) -> Result<(), GpuError> {
        let mut polls = 0_u32;
        while !self.is_over()? {
            if polls.is_multiple_of(64) {
                let waited = self.since.get_or_insert_with(Instant::now).elapsed();
                if waited > STALL_MAX {
                    return Err(self.device.give_up("a batch", STALL_MAX));
                }
                if waited >= limit {
                    if let SlotState::Flying(family) = self.state {
                        self.state = SlotState::Abandoned(family);
                    }
                    let limit_us = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
                    return Err(GpuError::Late { what: "a batch", limit_us });
                }
                std::thread::yield_now(); // few CPUs: whoever drives the device may want this one
            }
            polls += 1;
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Takes a batch of IPv4 keys, at most as many as the slot was made for; call [`Self::launch`] next.
    #[inline]
    pub(super) fn write_v4(&mut self, keys: &[u32]) -> Result<(), GpuError> {
        self.lane_v4.write(keys)?;
        self.len = keys.len();
        Ok(())
    }

    /// As [`Self::write_v4`], for IPv6; both halves are equally long.
    #[inline]
    pub(super) fn write_v6(&mut self, hi: &[u64], lo: &[u64]) -> Result<(), GpuError> {
        self.lane_v6.write(hi)?;
        self.len = hi.len();
        if !self.low.is_empty() {
            self.low[..lo.len()].copy_from_slice(lo);
        }
        Ok(())
    }

    /// An empty batch, which is over at once.
    #[inline]
    pub(super) fn set_empty(&mut self) {
        self.len = 0;
        self.state = SlotState::Ready(Family::V4);
    }

    /// Enqueues what was written, at least one key, for lookup in `table`.
    #[inline]
    pub(super) fn launch(
        &mut self,
        family: Family,
        mut stream: Option<&mut Stream>,
        plan: &LaunchPlan,
        table: Arc<DeviceTable>,
    ) -> Result<(), GpuError> {
        let count = u32::try_from(self.len).unwrap_or(u32::MAX);
        let table = self.table.insert(table);
        self.since = None;
        let on = stream.as_deref_mut().zip(self.event.as_mut());
        let launched = match family {
            Family::V4 => self.lane_v4.launch(on, table, plan, count),
            Family::V6 => self.lane_v6.launch(on, table, plan, count),
        };
        match launched {
            Ok(()) => {
                self.state = SlotState::Flying(family);
                Ok(())
            }
            Err(error) => {
                self.withdraw(family, stream)?;
                Err(error)
            }
        }
    }

    /// After a launch that failed: what was enqueued of it, if anything, is to be over before the slot is used again.
    #[cold]
    fn withdraw(&mut self, family: Family, stream: Option<&mut Stream>) -> Result<(), GpuError> {
        // A kernel that stays gets a batch whole or not at all.
        if let Some((stream, event)) = stream.zip(self.event.as_mut()) {
            if stream.record(event).is_ok() {
                self.state = SlotState::Abandoned(family);
                return Ok(());
            }
            self.state = SlotState::Free;
            stream.finish(LIMIT)?;
        }
        self.state = SlotState::Free;
        self.table = None;
        Ok(())
    }

    /// Whether the batch in flight is over; a slot without one says yes.
    #[inline]
    pub(super) fn is_over(&mut self) -> Result<bool, GpuError> {
        match self.state {
            SlotState::Flying(Family::V4) | SlotState::Abandoned(Family::V4) => {
                self.lane_v4.is_over(self.event.as_ref())
            }
            SlotState::Flying(Family::V6) | SlotState::Abandoned(Family::V6) => {
                self.lane_v6.is_over(self.event.as_ref())
            }
            SlotState::Free | SlotState::Ready(_) => Ok(true),
        }
    }

    /// Turns the raw answers of the batch, which is over, into next hops.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        family: Family,
        v4: &dyn Answers<u32>,
        v6: &dyn Answers<u128>,
    ) -> Result<(), GpuError> {
        match family {
            Family::V4 => v4.resolve(&[], self.lane_v4.take_in(self.len)?),
            Family::V6 => {
                let low = self.low.get(..self.len).unwrap_or_default();
                v6.resolve(low, self.lane_v6.take_in(self.len)?);
            }
        }
        self.state = SlotState::Ready(family);
        self.table = None;
        Ok(())
    }

    /// The answers; none without a batch.
    #[inline]
    pub(super) fn answers(&self) -> &[NextHopId] {
        let answers = match self.state {
            SlotState::Ready(Family::V4) => self.lane_v4.answers(self.len),
            SlotState::Ready(Family::V6) => self.lane_v6.answers(self.len),
            SlotState::Free | SlotState::Flying(_) | SlotState::Abandoned(_) => return &[],
        };
        // Of a batch that is over: they were lent when it was taken in.
        as_next_hops(answers.unwrap_or_default())
    }
}
