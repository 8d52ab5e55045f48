//! A slot of a reader: a batch in flight, from keys to next hops.

use super::gpu::{LaunchPlan, STALL_MAX};
use super::lane::BatchLane;
use super::params::Mode;
use super::residence::{Residence, Row};
use super::tables::DeviceTable;
use crate::cu::{Device, Event, GpuError, Kernel, RegisteredMemory, Stream, as_next_hops};
use crate::host::Answers;
use fib::{EngineError, Family, Keys, NextHopId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the part of a batch that was enqueued before a failed call, if no event could be recorded.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Free,
    Flying(Family),
    /// A late batch, or one enqueued in part: the device may still use the slot's memory. Its answers are never given out, since the caller
    /// may have overwritten keys that the device reads in place.
    Abandoned(Family),
    Ready(Family),
}

#[derive(Clone, Debug, Default)]
pub(super) struct PersistentKernels {
    pub(super) v4: Option<Kernel>,
    pub(super) v6: Option<Kernel>,
}

#[derive(Default)]
pub(super) struct Residences {
    v4: Option<Arc<Residence<u32>>>,
    v6: Option<Arc<Residence<u64>>>,
}

impl Residences {
    pub(super) fn new(
        plan: &LaunchPlan,
        kernels: &PersistentKernels,
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        if plan.mode != Mode::Persistent {
            return Ok(Self::default());
        }
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

pub(super) struct GpuSlot {
    device: Device,
    lane_v4: BatchLane<u32>,
    lane_v6: BatchLane<u64>,
    /// Completes with the batch; none with persistent kernels.
    event: Option<Event>,
    /// The number of keys.
    len: usize,
    pub(super) state: SlotState,
    since: Option<Instant>,
    /// The table of the batch in flight, held so that it is not rewritten.
    table: Option<Arc<DeviceTable>>,
}

impl GpuSlot {
    pub(super) fn new(
        device: &Device,
        stream: Option<&Stream>,
        plan: &LaunchPlan,
        (residences, row): (&Residences, usize),
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let row_v4 = residences.v4.as_ref().map(|residence| Row::new(residence, row, batch_max));
        let row_v6 = residences.v6.as_ref().map(|residence| Row::new(residence, row, batch_max));
        Ok(Self {
            device: device.clone(),
            lane_v4: BatchLane::new(device, plan, row_v4, batch_max)?,
            lane_v6: BatchLane::new(device, plan, row_v6, batch_max)?,
            event: stream.map(|stream| stream.event(false)).transpose()?,
            len: 0,
            state: SlotState::Free,
            since: None,
            table: None,
        })
    }

    #[inline]
    pub(super) const fn is_busy(&self) -> bool {
        matches!(self.state, SlotState::Flying(_) | SlotState::Abandoned(_))
    }

    /// Frees the slot: waits for a batch in flight, and drops its answers. Fails as [`Self::wait`].
    #[inline]
    pub(super) fn settle(&mut self, limit: Duration) -> Result<(), GpuError> {
        if self.is_busy() {
            self.wait(limit)?;
            (self.state, self.table) = (SlotState::Free, None);
        }
        Ok(())
    }

    /// Waits for the batch, `limit` in all; then abandons it ([`GpuError::Late`]), and after [`STALL_MAX`] gives up the device.
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
                std::thread::yield_now(); // the driver's threads may need this CPU
            }
            polls += 1;
            std::hint::spin_loop();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn set_empty(&mut self) {
        self.len = 0;
        self.state = SlotState::Ready(Family::V4);
    }

    /// Enqueues `keys`, at least one and at most `batch_max`, for lookup in `table`; not the last 64 bits of IPv6 keys, which only
    /// [`Self::resolve`] needs. Keys in `registered` memory are not copied.
    #[inline]
    pub(super) fn launch(
        &mut self,
        keys: Keys<'_>,
        registered: &[RegisteredMemory],
        mut stream: Option<&mut Stream>,
        plan: &LaunchPlan,
        table: Arc<DeviceTable>,
    ) -> Result<(), GpuError> {
        self.len = keys.len();
        let count = u32::try_from(self.len).unwrap_or(u32::MAX);
        self.since = None;
        let launched = match keys {
            Keys::V4(keys) => {
                let keys = self.lane_v4.place(keys, registered)?;
                let on = stream.as_deref_mut().zip(self.event.as_mut());
                self.lane_v4.launch(on, self.table.insert(table), plan, (keys, count))
            }
            Keys::V6 { hi, .. } => {
                let keys = self.lane_v6.place(hi, registered)?;
                let on = stream.as_deref_mut().zip(self.event.as_mut());
                self.lane_v6.launch(on, self.table.insert(table), plan, (keys, count))
            }
        };
        match launched {
            Ok(()) => {
                self.state = SlotState::Flying(keys.family());
                Ok(())
            }
            Err(error) => {
                self.withdraw(keys.family(), stream)?;
                Err(error)
            }
        }
    }

    /// After a failed launch: the part that was enqueued must end before the slot is used again.
    #[cold]
    fn withdraw(&mut self, family: Family, stream: Option<&mut Stream>) -> Result<(), GpuError> {
        // Persistent kernels get a batch whole or not at all.
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

    /// Whether the batch in flight is over; true without one.
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

    /// Checks that `keys` have the number and family of the slot's batch. Any keys will do for an abandoned batch, which is not answered.
    #[inline]
    pub(super) fn check(&self, keys: Keys<'_>) -> Result<(), EngineError> {
        match self.state {
            SlotState::Flying(family) | SlotState::Ready(family) => keys.check_again(family, self.len),
            SlotState::Free => keys.check_again(keys.family(), 0),
            SlotState::Abandoned(_) => Ok(()),
        }
    }

    /// Gives up a batch in flight. Returns whether the slot is free.
    #[cold]
    pub(super) fn discard(&mut self) -> Result<bool, GpuError> {
        if let SlotState::Flying(family) = self.state {
            self.state = SlotState::Abandoned(family);
        }
        if !self.is_over()? {
            return Ok(false);
        }
        (self.state, self.table) = (SlotState::Free, None);
        Ok(true)
    }

    /// Resolves the answers to `keys`, which the slot [accepts](Self::check). The batch must be over.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        keys: Keys<'_>,
        v4: &dyn Answers<u32>,
        v6: &dyn Answers<u128>,
    ) -> Result<(), GpuError> {
        match keys {
            Keys::V4(_) => v4.resolve(&[], self.lane_v4.raw_mut(self.len)?),
            Keys::V6 { lo, .. } => v6.resolve(lo, self.lane_v6.raw_mut(self.len)?),
        }
        self.state = SlotState::Ready(keys.family());
        self.table = None;
        Ok(())
    }

    #[inline]
    pub(super) fn answers(&self) -> &[NextHopId] {
        let answers = match self.state {
            SlotState::Ready(Family::V4) => self.lane_v4.answers(self.len),
            SlotState::Ready(Family::V6) => self.lane_v6.answers(self.len),
            SlotState::Free | SlotState::Flying(_) | SlotState::Abandoned(_) => return &[],
        };
        // Cannot fail: the batch is over, and its answers were lent before.
        as_next_hops(answers.unwrap_or_default())
    }
}
