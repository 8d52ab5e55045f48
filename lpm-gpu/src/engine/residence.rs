//! Kernels that stay on the device: one a reader and family, which serves all slots of the reader (`kernels/common.cuh` has the
//! protocol).
//!
//! One for all slots rather than one a slot: streams share a few connections to the device, and whatever is enqueued on the
//! connection of a kernel that stays waits until it ends, the update stream too.

use super::doorbell::{BatchNumber, Doorbells, Request};
use super::gpu::LaunchPlan;
use super::lane::DeviceKey;
use super::tables::DeviceTable;
use crate::cu::{Arg, GpuError, Kernel, Priority, Resident, ResidentRoom, Shape, Shared, Stream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Blocks that serve a slot unless there is no room for them: 1,024 threads, a batch of 4 Ki IPv4 keys in one round.
const PARTS: u32 = 4;

/// The share of the device that the kernel of one reader and family may fill, as a shift. What all readers take together is
/// [`ResidentRoom`]'s to know.
const SHARE_LOG2: u32 = 2;

/// Polls between two questions whether the kernel still runs: a poll is a load, the question a call.
const POLLS_A_QUESTION: u32 = 1 << 14;

/// The kernel that serves the slots of a reader, one family, and the memory it shares with the host.
pub(super) struct Residence<K: DeviceKey> {
    kernel: Kernel,
    shape: Shape,
    /// Blocks a slot.
    parts: u32,
    doorbells: Doorbells,
    keys: Shared<K>,
    raw: Shared<u32>,
    /// Keys from one slot's first to the next one's.
    pitch: usize,
    // In this order: the kernel ends before its room is another's.
    state: Mutex<ResidentState>,
    _room: ResidentRoom,
}

/// Whether the kernel is there yet. It is launched with the first batch, so that a family that is never asked for takes no room
/// on the device.
enum ResidentState {
    /// Not launched; the stream for it, unless a launch that failed has taken it.
    Waiting(Option<Stream>),
    Running(Resident),
}

impl<K: DeviceKey> Residence<K> {
    /// Memory and room for `slots` slots of `batch_max` keys, and `kernel` to be launched. `families`: how many such kernels the
    /// reader still wants, with this one.
    pub(super) fn new(
        plan: &LaunchPlan,
        kernel: &Kernel,
        families: u32,
        slots: u16,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let device = kernel.device();
        let blocks_max = kernel.blocks_multiprocessor_max(plan.threads)? * device.facts().multiprocessors;
        let rows = u32::from(slots.max(1));
        let parts = ((blocks_max >> SHARE_LOG2) / rows).clamp(1, PARTS).min(plan.blocks);
        let room = ResidentRoom::for_rows(kernel, plan.threads, rows, parts, families)?;
        let parts = room.parts();
        let pitch = batch_max.next_multiple_of(4); // kernels load 16 bytes at a time
        let count = rows as usize;
        Ok(Self {
            kernel: kernel.clone(),
            shape: Shape::new(parts, plan.threads).with_rows(rows),
            parts,
            doorbells: Doorbells::new(
                Shared::new(device, Doorbells::control_words(count))?,
                Shared::new(device, parts as usize * count)?,
                parts as usize,
            ),
            keys: Shared::new(device, pitch * count)?,
            raw: Shared::new(device, pitch * count)?,
            pitch,
            state: Mutex::new(ResidentState::Waiting(Some(Stream::new(device, Priority::Usual)?))),
            _room: room,
        })
    }

    /// Launches the kernel unless it is there.
    #[cold]
    fn start(&self) -> Result<(), GpuError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ResidentState::Waiting(stream) = &mut *state else { return Ok(()) };
        let stream = match stream.take() {
            Some(stream) => stream,
            None => Stream::new(self.keys.device(), Priority::Usual)?,
        };
        let stop = {
            // What the kernel works on lives as long as the kernel.
            let held = (self.doorbells.clone(), self.keys.clone(), self.raw.clone());
            Box::new(move || held.0.stop())
        };
        let (control, done) = self.doorbells.shared();
        let mut args = [Arg::shared(control), Arg::shared(done), Arg::u32(self.parts)];
        *state = ResidentState::Running(Resident::launch(stream, &self.kernel, self.shape, &mut args, stop)?);
        Ok(())
    }

    /// Asks whether the kernel still runs.
    #[cold]
    fn question(&self) -> Result<(), GpuError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match &mut *state {
            ResidentState::Running(resident) => resident.is_running()?,
            ResidentState::Waiting(_) => false,
        };
        if running {
            return Ok(());
        }
        Err(self.keys.device().give_up("a batch whose persistent kernel has ended", Duration::ZERO))
    }
}

/// A slot that a kernel serves.
pub(super) struct Row<K: DeviceKey> {
    residence: Arc<Residence<K>>,
    row: usize,
    /// Whether the kernel was launched, as far as this slot knows.
    started: bool,
    /// The number of the last batch.
    batch: BatchNumber,
    /// What was read of the answers.
    copied: Vec<u32>,
    polls: u32,
}

impl<K: DeviceKey> Row<K> {
    /// Slot `row` of those that `residence` serves, for batches of `batch_max` keys.
    pub(super) fn new(residence: &Arc<Residence<K>>, row: usize, batch_max: usize) -> Self {
        Self {
            residence: Arc::clone(residence),
            row,
            started: false,
            batch: BatchNumber::default(),
            copied: vec![0; batch_max],
            polls: 0,
        }
    }

    /// Copies `keys` to where the kernel gets them from.
    #[inline]
    pub(super) fn write(&mut self, keys: &[K]) -> Result<(), GpuError> {
        self.residence.keys.write(self.row * self.residence.pitch, keys)
    }

    /// Tells the kernel of `count` keys.
    #[inline]
    pub(super) fn ring(&mut self, table: &DeviceTable, count: u32) -> Result<(), GpuError> {
        let residence = &*self.residence;
        if !self.started {
            residence.start()?;
            self.started = true;
        }
        if residence.keys.device().is_lost() {
            residence.question()?; // no call is made from here on that would tell
        }
        let at = (self.row * residence.pitch) as u64;
        let keys = residence.keys.address() + at * size_of::<K>() as u64;
        let raw = residence.raw.address() + at * size_of::<u32>() as u64;
        let table = [table.words.address(), table.header.address()];
        residence.doorbells.ring(self.row, &mut self.batch, Request { table, batch: [keys, raw], count })
    }

    /// Whether the batch is over.
    #[inline]
    pub(super) fn is_over(&mut self) -> Result<bool, GpuError> {
        if self.residence.doorbells.is_over(self.row, self.batch) {
            self.polls = 0;
            return Ok(true);
        }
        self.polls += 1;
        if self.polls == POLLS_A_QUESTION {
            self.polls = 0;
            self.residence.question()?;
        }
        Ok(false)
    }

    /// Copies the raw answers to the first `count` keys, to be resolved in place. The batch must be over.
    #[inline]
    pub(super) fn read(&mut self, count: usize) -> Result<&mut [u32], GpuError> {
        let copied = &mut self.copied[..count];
        self.residence.raw.read(self.row * self.residence.pitch, copied)?;
        Ok(copied)
    }

    /// The answers to the first `count` keys of the batch that was read last.
    #[inline]
    pub(super) fn answers(&self, count: usize) -> &[u32] {
        &self.copied[..count]
    }
}
