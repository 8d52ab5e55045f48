//! One family's path of a batch to the device and back, by mode. A lane owns the memory of a slot's batches, allocated with
//! the reader; keys in registered memory are read where they lie. The slot keeps track of the batch in flight.

use super::gpu::{DeviceKey, LaunchPlan};
use super::params::Mode;
use super::residence::Row;
use super::tables::DeviceTable;
use crate::cu::{
    Arg, Device, DeviceBuffer, DeviceWords, Event, GpuError, HostSide, InPlace, Pinned, RegisteredMemory,
    Stream,
};

pub(super) enum BatchLane<K: DeviceKey> {
    /// [`Mode::Copy`].
    Copy { keys: Pinned<K>, raw: Pinned<u32>, device_keys: DeviceBuffer<K>, device_raw: DeviceWords },
    /// [`Mode::Mapped`]. Keys are write-combined: the device reads them across the bus once, in order.
    Mapped { keys: Pinned<K>, raw: Pinned<u32> },
    /// [`Mode::Persistent`].
    Persistent(Box<Row<K>>),
}

impl<K: DeviceKey> BatchLane<K> {
    /// A lane for batches of `batch_max` keys. `row`: the slot's row of the persistent kernel, in that mode.
    pub(super) fn new(
        device: &Device,
        plan: &LaunchPlan,
        row: Option<Row<K>>,
        batch_max: usize,
    ) -> Result<Self, GpuError> {
        let pinned_keys = || Pinned::new(device, batch_max, HostSide::Writes);
        let pinned_raw = || Pinned::new(device, batch_max, HostSide::Reads);
        Ok(match (plan.mode, row) {
            (Mode::Mapped, _) => Self::Mapped { keys: pinned_keys()?, raw: pinned_raw()? },
            (Mode::Persistent, Some(row)) => Self::Persistent(Box::new(row)),
            (Mode::Copy | Mode::Persistent, _) => Self::Copy {
                keys: pinned_keys()?,
                raw: pinned_raw()?,
                device_keys: DeviceBuffer::new(device, batch_max)?,
                device_raw: DeviceBuffer::new(device, batch_max)?,
            },
        })
    }

    /// Finds `from` in `registered` memory, or else copies it to the lane's memory. The previous batch must be over.
    #[inline]
    pub(super) fn place<'a>(
        &mut self,
        from: &'a [K],
        registered: &'a [RegisteredMemory],
    ) -> Result<Option<InPlace<'a, K>>, GpuError> {
        if let Some(in_place) = registered.iter().find_map(|memory| memory.find(from)) {
            return Ok(Some(in_place));
        }
        match self {
            Self::Copy { keys, .. } | Self::Mapped { keys, .. } => {
                keys.slice_mut()?[..from.len()].copy_from_slice(from);
            }
            Self::Persistent(row) => row.write(from)?,
        }
        Ok(None)
    }

    /// Looks up `count` keys, at least one, `in_place` or as copied. `on`: stream and completion event, except for a persistent kernel.
    #[inline]
    pub(super) fn launch(
        &mut self,
        on: Option<(&mut Stream, &mut Event)>,
        table: &DeviceTable,
        plan: &LaunchPlan,
        (in_place, count): (Option<InPlace<'_, K>>, u32),
    ) -> Result<(), GpuError> {
        let shape = plan.shape(count, K::A_THREAD_LOG2);
        let whole = 0..count as usize;
        let Some((stream, event)) = on else {
            return match self {
                Self::Persistent(row) => row.ring(table, in_place.as_ref(), count),
                _ => Err(GpuError::Foreign("a batch without a stream")),
            };
        };
        match self {
            Self::Copy { keys, raw, device_keys, device_raw } => {
                match in_place {
                    Some(from) => stream.upload_in_place(device_keys, 0, &from)?,
                    None => stream.upload(device_keys, 0, keys, whole.clone())?,
                }
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
            Self::Mapped { keys, raw } => stream.launch(
                &table.kernel,
                shape,
                &mut [
                    Arg::buffer(&table.words),
                    Arg::buffer(&table.header),
                    in_place.as_ref().map_or_else(|| Arg::pinned(keys), Arg::in_place),
                    Arg::pinned(raw),
                    Arg::u32(count),
                ],
            )?,
            Self::Persistent(row) => return row.ring(table, in_place.as_ref(), count),
        }
        stream.record(event)
    }

    #[inline]
    pub(super) fn is_over(&mut self, event: Option<&Event>) -> Result<bool, GpuError> {
        match (self, event) {
            (Self::Persistent(row), _) => row.is_over(),
            (_, Some(event)) => event.has_come(),
            (_, None) => Err(GpuError::Foreign("a batch without an event")),
        }
    }

    /// Lends the raw answers to the first `count` keys, to be resolved in place. The batch must be over.
    #[inline]
    pub(super) fn raw_mut(&mut self, count: usize) -> Result<&mut [u32], GpuError> {
        Ok(match self {
            Self::Copy { raw, .. } | Self::Mapped { raw, .. } => &mut raw.slice_mut()?[..count],
            Self::Persistent(row) => row.read(count)?,
        })
    }

    #[inline]
    pub(super) fn answers(&self, count: usize) -> Result<&[u32], GpuError> {
        Ok(match self {
            Self::Copy { raw, .. } | Self::Mapped { raw, .. } => &raw.slice()?[..count],
            Self::Persistent(row) => row.answers(count),
        })
    }
}
