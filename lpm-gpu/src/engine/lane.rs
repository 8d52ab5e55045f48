//! One family's way to the device and back for one slot, by mode.
//!
//! A lane owns the memory of its batch: allocated when the reader is made, never after. `write` puts keys into it, `launch`
//! enqueues, `is_over` asks the device, `answers` lends what came back. What is in flight is the slot's to know.

use super::gpu::Plan;
use super::params::Mode;
use super::tables::DeviceTable;
use crate::cu::{
    Arg, BatchGraph, Device, DeviceBuffer, DeviceWords, Event, GpuError, HostSide, Kernel, Pinned, Plain,
    Priority, Resident, Shape, Shared, Stream,
};
use std::time::Duration;

/// A key as the device has it: `u32` for IPv4, for IPv6 the first 64 bits.
pub(super) trait DeviceKey: Plain + crate::cu::Element {
    /// A thread takes `2^this` keys at a time, 16 bytes.
    const A_THREAD_LOG2: u32;
}

impl DeviceKey for u32 {
    const A_THREAD_LOG2: u32 = 2;
}

impl DeviceKey for u64 {
    const A_THREAD_LOG2: u32 = 1;
}

/// The memory of a batch, as its mode needs it.
pub(super) enum Lane<K: DeviceKey> {
    /// [`Mode::Copy`].
    Copy { keys: Pinned<K>, raw: Pinned<u32>, device_keys: DeviceBuffer<K>, device_raw: DeviceWords },
    /// [`Mode::Graph`].
    Graph(Box<BatchGraph<K>>),
    /// [`Mode::Mapped`]: keys write-combined, since the device reads them across the bus once, in order.
    Mapped { keys: Pinned<K>, raw: Pinned<u32> },
    /// [`Mode::Persistent`].
    Persistent(Box<Persistent<K>>),
}

impl<K: DeviceKey> Lane<K> {
    /// A lane for batches of `batch_max` keys. `persistent` is the kernel that stays, where the mode wants one.
    pub(super) fn new(
        device: &Device,
        plan: &Plan,
        persistent: Option<&Kernel>,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let pinned_keys = || Pinned::new(device, batch_max, HostSide::Writes);
        let pinned_raw = || Pinned::new(device, batch_max, HostSide::Reads);
        Ok(match (plan.mode, persistent) {
            (Mode::Graph, _) => Self::Graph(Box::new(BatchGraph::new(device, batch_max)?)),
            (Mode::Mapped, _) => Self::Mapped { keys: pinned_keys()?, raw: pinned_raw()? },
            (Mode::Persistent, Some(kernel)) => {
                Self::Persistent(Box::new(Persistent::new(device, plan, kernel, batch_max)?))
            }
            (Mode::Copy | Mode::Persistent, _) => Self::Copy {
                keys: pinned_keys()?,
                raw: pinned_raw()?,
                device_keys: DeviceBuffer::new(device, batch_max)?,
                device_raw: DeviceBuffer::new(device, batch_max)?,
            },
        })
    }

    /// Copies `keys` to where the device gets them from. The batch before must be over.
    #[inline]
    pub(super) fn write(&mut self, from: &[K]) -> Result<(), GpuError> {
        let to = match self {
            Self::Copy { keys, .. } | Self::Mapped { keys, .. } => keys.slice_mut()?,
            Self::Graph(graph) => graph.keys_mut()?,
            Self::Persistent(persistent) => return persistent.keys.write(0, from),
        };
        to[..from.len()].copy_from_slice(from);
        Ok(())
    }

    /// Looks up the first `count` keys that were written, at least one, in `table`.
    #[inline]
    pub(super) fn launch(
        &mut self,
        stream: &mut Stream,
        event: &mut Event,
        table: &DeviceTable,
        plan: &Plan,
        count: u32,
    ) -> Result<(), GpuError> {
        let shape = plan.shape(count, K::A_THREAD_LOG2);
        let whole = 0..count as usize;
        match self {
            Self::Copy { keys, raw, device_keys, device_raw } => {
                stream.upload(device_keys, 0, keys, whole.clone())?;
                stream.launch(
                    &table.kernel,
                    shape,
                    &mut [
                        Arg::buffer(&table.words),
                        Arg::buffer(&table.header),
                        Arg::buffer(device_keys),
                        Arg::buffer(device_raw),
                        Arg::u32(count),
                    ],
                )?;
                stream.download(raw, whole, device_raw, 0)?;
            }
            Self::Graph(graph) => {
                graph.submit(stream, &table.kernel, shape, (&table.words, &table.header), count)?;
            }
            Self::Mapped { keys, raw } => stream.launch(
                &table.kernel,
                shape,
                &mut [
                    Arg::buffer(&table.words),
                    Arg::buffer(&table.header),
                    Arg::pinned(keys),
                    Arg::pinned(raw),
                    Arg::u32(count),
                ],
            )?,
            Self::Persistent(persistent) => return persistent.ring(table, count),
        }
        stream.record(event)
    }

    /// Whether the batch is over.
    #[inline]
    pub(super) fn is_over(&mut self, event: &Event) -> Result<bool, GpuError> {
        match self {
            Self::Persistent(persistent) => persistent.is_over(),
            _ => event.has_come(),
        }
    }

    /// The raw answers to the first `count` keys. The batch must be over.
    #[inline]
    pub(super) fn answers(&mut self, count: usize) -> Result<&[u32], GpuError> {
        Ok(match self {
            Self::Copy { raw, .. } | Self::Mapped { raw, .. } => &raw.slice()?[..count],
            Self::Graph(graph) => &graph.raw()?[..count],
            Self::Persistent(persistent) => persistent.read(count)?,
        })
    }
}

/// Words of 64 bits in a slot of the persistent kernels' control block (`Slot` in `gamt.cu`), and what lies where.
const CONTROL_WORDS: usize = 8;
const DOORBELL: usize = 0;
const TABLE: usize = 2;
const BATCH: usize = 4;

/// The doorbell that ends the kernel (`STOP` in `gamt.cu`).
const STOP: u32 = u32::MAX;

/// Blocks that serve a slot unless told otherwise: 1,024 threads, a batch of 4 Ki IPv4 keys in one round. All slots of all
/// readers and both families must be resident at once.
const PARTS: u32 = 4;

/// Polls between two questions whether the kernel still runs: a poll is a load, the question a call.
const POLLS_A_QUESTION: u32 = 1 << 14;

/// A kernel that stays on the device and serves one slot.
pub(super) struct Persistent<K: DeviceKey> {
    control: Shared<u64>,
    done: Shared<u32>,
    keys: Shared<K>,
    raw: Shared<u32>,
    /// What was read of `raw`.
    copied: Vec<u32>,
    parts: u32,
    /// The number of the last batch.
    batch: u32,
    kernel: Kernel,
    threads: u32,
    polls: u32,
    state: Residence,
}

/// Whether the kernel is there yet.
enum Residence {
    /// Not launched: with the first batch it is, so that a slot that is never used takes no room on the device.
    Waiting(Option<Stream>),
    Running(Resident),
}

impl<K: DeviceKey> Persistent<K> {
    fn new(device: &Device, plan: &Plan, kernel: &Kernel, batch_max: usize) -> Result<Self, GpuError> {
        let parts = plan.blocks.min(PARTS);
        Ok(Self {
            control: Shared::new(device, CONTROL_WORDS)?,
            done: Shared::new(device, parts as usize)?,
            keys: Shared::new(device, batch_max)?,
            raw: Shared::new(device, batch_max)?,
            copied: vec![0; batch_max],
            parts,
            batch: 0,
            kernel: kernel.clone(),
            threads: plan.threads,
            polls: 0,
            state: Residence::Waiting(Some(Stream::new(device, Priority::Usual)?)),
        })
    }

    /// Tells the kernel of `count` keys.
    #[inline]
    fn ring(&mut self, table: &DeviceTable, count: u32) -> Result<(), GpuError> {
        if let Residence::Waiting(stream) = &mut self.state {
            // The launch before has failed and taken its stream with it.
            let stream = match stream.take() {
                Some(stream) => stream,
                None => Stream::new(self.control.device(), Priority::Usual)?,
            };
            self.start(stream)?;
        }
        if self.control.device().is_lost() {
            self.question()?; // no call is made from here on that would tell
        }
        self.batch = if self.batch + 1 == STOP { 1 } else { self.batch + 1 };
        self.control.write(TABLE, &[table.words.address(), table.header.address()])?;
        self.control.write(BATCH, &[self.keys.address(), self.raw.address()])?;
        self.control.store(DOORBELL, u64::from(count) << 32 | u64::from(self.batch));
        Ok(())
    }

    #[cold]
    fn start(&mut self, stream: Stream) -> Result<(), GpuError> {
        let stop = {
            // What the kernel works on lives as long as the kernel.
            let held = (self.control.clone(), self.done.clone(), self.keys.clone(), self.raw.clone());
            Box::new(move || held.0.store(DOORBELL, u64::from(STOP)))
        };
        let mut args = [Arg::shared(&self.control), Arg::shared(&self.done), Arg::u32(self.parts)];
        let shape = Shape::new(self.parts, self.threads);
        self.state = Residence::Running(Resident::launch(stream, &self.kernel, shape, &mut args, stop)?);
        Ok(())
    }

    #[inline]
    fn is_over(&mut self) -> Result<bool, GpuError> {
        if (0..self.parts as usize).all(|part| self.done.load(part) == self.batch) {
            self.polls = 0;
            return Ok(true);
        }
        self.polls += 1;
        if self.polls == POLLS_A_QUESTION {
            self.polls = 0;
            self.question()?;
        }
        Ok(false)
    }

    /// Asks whether the kernel still runs.
    #[cold]
    fn question(&mut self) -> Result<(), GpuError> {
        let running = match &mut self.state {
            Residence::Running(resident) => resident.is_running()?,
            Residence::Waiting(_) => false,
        };
        if running {
            return Ok(());
        }
        Err(self.control.device().give_up("a batch whose persistent kernel has ended", Duration::ZERO))
    }

    #[inline]
    fn read(&mut self, count: usize) -> Result<&[u32], GpuError> {
        self.raw.read(0, &mut self.copied[..count])?;
        Ok(&self.copied[..count])
    }
}
