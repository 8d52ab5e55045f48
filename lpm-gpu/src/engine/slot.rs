//! A slot of a reader: a batch on its way, from the caller's keys to the caller's next hops.

use super::gpu::Plan;
use super::lane::Lane;
use super::residence::{Residence, Row};
use super::tables::DeviceTable;
use crate::cu::{Device, Event, GpuError, Kernel, Stream};
use crate::host::{Answers, KeySlice};
use fib::{Family, NextHopId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a batch that is in the way may take: then the device is held to be stalled.
const LIMIT: Duration = Duration::from_secs(10);

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No batch, or one whose answers were taken.
    Free,
    /// A batch that the device has.
    Flying(Family),
    /// Answers that are resolved, and perhaps not taken yet.
    Ready,
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
        device: &Device,
        plan: &Plan,
        kernels: &PersistentKernels,
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let (v4, v6) = (kernels.v4.as_ref(), kernels.v6.as_ref());
        Ok(Self {
            v4: v4
                .map(|kernel| Residence::new(device, plan, kernel, slots, batch_max))
                .transpose()?
                .map(Arc::new),
            v6: v6
                .map(|kernel| Residence::new(device, plan, kernel, slots, batch_max))
                .transpose()?
                .map(Arc::new),
        })
    }
}

/// A slot.
pub(super) struct Slot {
    lane_v4: Lane<u32>,
    lane_v6: Lane<u64>,
    event: Event,
    /// Copies of the keys for [`Answers`] that read them; page-locked keys are write-combined.
    keys_v4: Vec<u32>,
    hi: Vec<u64>,
    lo: Vec<u64>,
    next_hops: Vec<NextHopId>,
    len: usize,
    pub(super) state: State,
    /// The table of the batch in flight: while we hold it, it is not written anew.
    table: Option<Arc<DeviceTable>>,
}

impl Slot {
    /// Slot `row` of a reader, of `batch_max` keys, whose batches run on `stream`. `copies` says for each family whether answers read keys.
    pub(super) fn new(
        device: &Device,
        stream: &Stream,
        plan: &Plan,
        (residences, row): (&Residences, usize),
        batch_max: usize,
        copies: (bool, bool),
    ) -> Result<Self, GpuError> {
        let (v4, v6) = (if copies.0 { batch_max } else { 0 }, if copies.1 { batch_max } else { 0 });
        let row_v4 = residences.v4.as_ref().map(|residence| Row::new(residence, row, batch_max));
        let row_v6 = residences.v6.as_ref().map(|residence| Row::new(residence, row, batch_max));
        Ok(Self {
            lane_v4: Lane::new(device, plan, row_v4, batch_max)?,
            lane_v6: Lane::new(device, plan, row_v6, batch_max)?,
            event: stream.event(false)?,
            keys_v4: vec![0; v4],
            hi: vec![0; v6],
            lo: vec![0; v6],
            next_hops: vec![NextHopId::NONE; batch_max],
            len: 0,
            state: State::Free,
            table: None,
        })
    }

    /// Waits until the batch in flight, if any, is over; its answers are lost.
    #[inline]
    pub(super) fn settle(&mut self) -> Result<(), GpuError> {
        if let State::Flying(_) = self.state {
            self.wait()?;
            self.state = State::Free;
        }
        Ok(())
    }

    #[cold]
    fn wait(&mut self) -> Result<(), GpuError> {
        let start = Instant::now();
        let mut polls = 0_u32;
        while !self.is_over()? {
            polls += 1;
            if polls.is_multiple_of(64) {
                if start.elapsed() > LIMIT {
                    return Err(self.event.device().give_up("a batch", LIMIT));
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Takes a batch of IPv4 keys, at most as many as the slot was made for; call [`Self::launch`] next.
    #[inline]
    pub(super) fn write_v4(&mut self, keys: &[u32]) -> Result<(), GpuError> {
        self.lane_v4.write(keys)?;
        self.len = keys.len();
        if !self.keys_v4.is_empty() {
            self.keys_v4[..keys.len()].copy_from_slice(keys);
        }
        Ok(())
    }

    /// As [`Self::write_v4`], for IPv6; both halves are equally long.
    #[inline]
    pub(super) fn write_v6(&mut self, hi: &[u64], lo: &[u64]) -> Result<(), GpuError> {
        self.lane_v6.write(hi)?;
        self.len = hi.len();
        if !self.hi.is_empty() {
            self.hi[..hi.len()].copy_from_slice(hi);
            self.lo[..lo.len()].copy_from_slice(lo);
        }
        Ok(())
    }

    /// An empty batch, which is over at once.
    #[inline]
    pub(super) fn set_empty(&mut self) {
        self.len = 0;
        self.state = State::Ready;
    }

    /// Enqueues what was written, at least one key, for lookup in `table`.
    #[inline]
    pub(super) fn launch(
        &mut self,
        family: Family,
        stream: &mut Stream,
        plan: &Plan,
        table: Arc<DeviceTable>,
    ) -> Result<(), GpuError> {
        let count = u32::try_from(self.len).unwrap_or(u32::MAX);
        let table = self.table.insert(table);
        let launched = match family {
            Family::V4 => self.lane_v4.launch(stream, &mut self.event, table, plan, count),
            Family::V6 => self.lane_v6.launch(stream, &mut self.event, table, plan, count),
        };
        match launched {
            Ok(()) => {
                self.state = State::Flying(family);
                Ok(())
            }
            Err(error) => {
                // Part of it may have been enqueued: wait for that, so that the slot can be used again.
                self.state = State::Free;
                stream.finish(LIMIT)?;
                self.table = None;
                Err(error)
            }
        }
    }

    /// Whether the batch in flight is over; a slot without one says yes.
    #[inline]
    pub(super) fn is_over(&mut self) -> Result<bool, GpuError> {
        match self.state {
            State::Flying(Family::V4) => self.lane_v4.is_over(&self.event),
            State::Flying(Family::V6) => self.lane_v6.is_over(&self.event),
            State::Free | State::Ready => Ok(true),
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
        let len = self.len;
        let out = &mut self.next_hops[..len];
        match family {
            Family::V4 => {
                let keys = KeySlice::Whole(self.keys_v4.get(..len).unwrap_or_default());
                v4.resolve(keys, self.lane_v4.answers(len)?, out);
            }
            Family::V6 => {
                let (hi, lo) =
                    (self.hi.get(..len).unwrap_or_default(), self.lo.get(..len).unwrap_or_default());
                v6.resolve(KeySlice::Halves(hi, lo), self.lane_v6.answers(len)?, out);
            }
        }
        self.state = State::Ready;
        self.table = None;
        Ok(())
    }

    /// The answers; none without a batch.
    #[inline]
    pub(super) fn answers(&self) -> &[NextHopId] {
        match self.state {
            State::Ready => &self.next_hops[..self.len],
            State::Free | State::Flying(_) => &[],
        }
    }
}
