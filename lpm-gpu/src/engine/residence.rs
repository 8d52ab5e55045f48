//! Persistent kernels: one for each reader and family, which serves all slots of the reader (protocol:
//! `kernels/common.cuh`). Not one a slot: streams share few connections to the device, and work enqueued on a persistent
//! kernel's connection, even the update stream's, waits until the kernel ends.

use super::doorbell::{BatchNumber, Doorbells, Request};
use super::gpu::{DeviceKey, LaunchPlan};
use super::tables::DeviceTable;
use crate::cu::{Arg, GpuError, InPlace, Kernel, Priority, Resident, ResidentRoom, Shape, Shared, Stream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Most blocks of a slot: 1,024 threads, which serve 4 Ki IPv4 keys in one round.
const PARTS: u32 = 4;

/// Share of the device for one reader and family, as a shift. [`ResidentRoom`] limits the sum over all readers.
const SHARE_LOG2: u32 = 2;

/// Polls between checks of the kernel's stream: a poll is a load, a check a driver call.
const POLLS_A_CHECK: u32 = 1 << 14;

pub(super) struct Residence<K: DeviceKey> {
    kernel: Kernel,
    shape: Shape,
    parts: u32,
    doorbells: Doorbells,
    keys: Shared<K>,
    raw: Shared<u32>,
    /// Keys from one slot's start to the next.
    pitch: usize,
    // Drop order: the kernel ends before its room is released.
    state: Mutex<ResidentState>,
    _room: ResidentRoom,
}

/// The kernel is launched with the first batch: an unused family takes no room on the device.
enum ResidentState {
    /// Not launched. The stream is `None` after a failed launch.
    Waiting(Option<Stream>),
    Running(Resident),
}

impl<K: DeviceKey> Residence<K> {
    /// Reserves memory and room for `slots` slots of `batch_max` keys. `families`: kernels that the reader needs from here on.
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

    #[cold]
    fn start(&self) -> Result<(), GpuError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ResidentState::Waiting(stream) = &mut *state else { return Ok(()) };
        let stream = match stream.take() {
            Some(stream) => stream,
            None => Stream::new(self.keys.device(), Priority::Usual)?,
        };
        let stop = {
            // Keeps the kernel's memory alive as long as the kernel.
            let held = (self.doorbells.clone(), self.keys.clone(), self.raw.clone());
            Box::new(move || held.0.stop())
        };
        let (control, done) = self.doorbells.shared();
        let mut args = [Arg::shared(control), Arg::shared(done), Arg::u32(self.parts)];
        *state = ResidentState::Running(Resident::launch(stream, &self.kernel, self.shape, &mut args, stop)?);
        Ok(())
    }

    #[cold]
    fn check_running(&self) -> Result<(), GpuError> {
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

pub(super) struct Row<K: DeviceKey> {
    residence: Arc<Residence<K>>,
    row: usize,
    started: bool,
    batch: BatchNumber,
    copied: Vec<u32>,
    polls: u32,
}

impl<K: DeviceKey> Row<K> {
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

    #[inline]
    pub(super) fn write(&mut self, keys: &[K]) -> Result<(), GpuError> {
        self.residence.keys.write(self.row * self.residence.pitch, keys)
    }

    #[inline]
    pub(super) fn ring(
        &mut self,
        table: &DeviceTable,
        in_place: Option<&InPlace<'_, K>>,
        count: u32,
    ) -> Result<(), GpuError> {
        let residence = &*self.residence;
        if !self.started {
            residence.start()?;
            self.started = true;
        }
        if residence.keys.device().is_lost() {
            residence.check_running()?; // no later driver call would report the loss
        }
        let at = (self.row * residence.pitch) as u64;
        let copied = residence.keys.address() + at * size_of::<K>() as u64;
        let keys = in_place.map_or(copied, InPlace::address);
        let raw = residence.raw.address() + at * size_of::<u32>() as u64;
        let table = [table.words.address(), table.header.address()];
        residence.doorbells.ring(self.row, &mut self.batch, Request { table, batch: [keys, raw], count })
    }

    #[inline]
    pub(super) fn is_over(&mut self) -> Result<bool, GpuError> {
        if self.residence.doorbells.is_over(self.row, self.batch) {
            self.polls = 0;
            return Ok(true);
        }
        self.polls += 1;
        if self.polls == POLLS_A_CHECK {
            self.polls = 0;
            self.residence.check_running()?;
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

    #[inline]
    pub(super) fn answers(&self, count: usize) -> &[u32] {
        &self.copied[..count]
    }
}
