//! Streams, their events, and their progress.

use super::device::{Device, on, poll};
use super::driver::{NOT_READY, RawHandle};
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape, with_parameters};
use super::memory::{DeviceBuffer, DeviceWords, Plain};
use super::pinned::Pinned;
use super::progress::StreamProgress;
use super::registered::InPlace;
use cudarc::driver::sys;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Scheduling priority of a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Lookups.
    Usual,
    /// Updates: short, and waited for.
    First,
}

/// Its work runs in order, concurrently with other streams. It belongs to one thread at a time: enqueueing takes `&mut`.
pub struct Stream {
    device: Device,
    raw: RawHandle<sys::CUstream>,
    progress: Arc<StreamProgress>,
}

/// A position in a stream.
pub struct Event {
    device: Device,
    raw: RawHandle<sys::CUevent>,
    progress: Arc<StreamProgress>,
    /// Number of the stream's last work at the recording.
    number: u64,
}

impl Stream {
    /// A stream that does not synchronise with the default stream.
    ///
    /// # Errors
    /// [`GpuError::NoStream`] with persistent kernels; [`GpuError::Call`].
    pub fn new(device: &Device, priority: Priority) -> Result<Self, GpuError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: two out pointers for numbers.
        unsafe { on!(device, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        let first = priority == Priority::First;
        let priority = if first { greatest } else { least };
        let (raw, progress) = device.open_stream(priority, first)?;
        Ok(Self { device: device.clone(), raw, progress })
    }

    /// An event that counts as completed until [recorded](Self::record); `timed` ones can be [subtracted](Event::elapsed_us_since).
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn event(&self, timed: bool) -> Result<Event, GpuError> {
        let flags = if timed { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let mut raw = std::ptr::null_mut();
        // SAFETY: an out pointer for the handle, and a flag of that call.
        unsafe { on!(&self.device, cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Event {
            device: self.device.clone(),
            raw: RawHandle(raw),
            progress: Arc::clone(&self.progress),
            number: 0,
        })
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Records `event` at the stream's current position: it completes when all work enqueued so far is done.
    ///
    /// # Errors
    /// [`GpuError::Foreign`] for another stream's event; [`GpuError::Call`].
    #[inline]
    pub fn record(&mut self, event: &mut Event) -> Result<(), GpuError> {
        if !Arc::ptr_eq(&self.progress, &event.progress) {
            return Err(GpuError::Foreign("an event"));
        }
        // SAFETY: both handles live as long as their owners, and belong to the same context.
        unsafe { on!(&self.device, cuEventRecord(event.raw.0, self.raw.0)) }?;
        event.number = self.progress.issued();
        Ok(())
    }

    /// Copies `from[range]` to `to`, from element `at` on.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`]; [`GpuError::Busy`] if another stream uses `from`.
    #[inline]
    pub fn upload<T: Plain>(
        &mut self,
        to: &DeviceBuffer<T>,
        at: usize,
        from: &mut Pinned<T>,
        range: Range<usize>,
    ) -> Result<(), GpuError> {
        self.own(to.device(), "device memory")?;
        self.own(from.device(), "page-locked memory")?;
        let count = range.len();
        let target = to.range(&(at..at.saturating_add(count)))?;
        let number = self.progress.issue();
        let source = from.host_for(&range, &self.progress, number)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: both ranges are within their allocations (checked). The target is freed only when the copy is done, and the
        // recorded use keeps the host from writing the source until then.
        unsafe {
            on!(&self.device, cuMemcpyHtoDAsync_v2(target, source.cast(), count * size_of::<T>(), self.raw.0))
        }
    }

    /// Copies `from`, where it lies, to `to` from element `at` on.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`].
    #[inline]
    pub fn upload_in_place<T: Plain>(
        &mut self,
        to: &DeviceBuffer<T>,
        at: usize,
        from: &InPlace<'_, T>,
    ) -> Result<(), GpuError> {
        self.own(to.device(), "device memory")?;
        self.own(from.device(), "registered memory")?;
        let source = from.elements();
        let target = to.range(&(at..at.saturating_add(source.len())))?;
        self.progress.issue();
        if source.is_empty() {
            return Ok(());
        }
        let bytes = size_of_val(source);
        // SAFETY: both ranges are valid (checked); the target is freed, and the source unregistered and unmapped, only when the copy is done
        // (`reclaim`). If the host overwrites the source before, the copy has arbitrary elements, and every bit pattern is a `T`.
        unsafe { on!(&self.device, cuMemcpyHtoDAsync_v2(target, source.as_ptr().cast(), bytes, self.raw.0)) }
    }

    /// Copies `from`, from element `at` on, to `to[range]`.
    ///
    /// # Errors
    /// Errors of [`Self::upload`].
    #[inline]
    pub fn download<T: Plain>(
        &mut self,
        to: &mut Pinned<T>,
        range: Range<usize>,
        from: &DeviceBuffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        self.own(from.device(), "device memory")?;
        self.own(to.device(), "page-locked memory")?;
        let count = range.len();
        let source = from.range(&(at..at.saturating_add(count)))?;
        let number = self.progress.issue();
        let target = to.host_for(&range, &self.progress, number)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: as in `upload`; every bit pattern is a `T`; the host does not access the target until the copy is done.
        unsafe {
            on!(&self.device, cuMemcpyDtoHAsync_v2(target.cast(), source, count * size_of::<T>(), self.raw.0))
        }
    }

    /// Copies `from`, any memory, to `to` from element `at` on, and waits, even for a persistent kernel: for measurements, tests.
    ///
    /// # Errors
    /// Errors of [`Self::upload`] and [`Self::finish`].
    pub fn upload_now<T: Plain>(
        &mut self,
        to: &DeviceBuffer<T>,
        at: usize,
        from: &[T],
    ) -> Result<(), GpuError> {
        self.own(to.device(), "device memory")?;
        let target = to.range(&(at..at.saturating_add(from.len())))?;
        if from.is_empty() {
            return Ok(());
        }
        self.progress.issue();
        let bytes = size_of_val(from);
        // SAFETY: both ranges are valid. From pageable memory the call returns after reading `from` (CUDA driver API, "API
        // synchronization behavior"); the copy to the device may go on, hence `finish`.
        unsafe { on!(&self.device, cuMemcpyHtoDAsync_v2(target, from.as_ptr().cast(), bytes, self.raw.0)) }?;
        self.finish(COPY_LIMIT)
    }

    /// Copies `from` from element `at` on to `to`, memory of any kind, and waits.
    ///
    /// # Errors
    /// Errors of [`Self::upload`] and [`Self::finish`].
    #[cfg(feature = "testing")]
    pub fn download_now<T: Plain>(
        &mut self,
        to: &mut [T],
        from: &DeviceBuffer<T>,
        at: usize,
    ) -> Result<(), GpuError> {
        self.own(from.device(), "device memory")?;
        let source = from.range(&(at..at.saturating_add(to.len())))?;
        if to.is_empty() {
            return Ok(());
        }
        self.finish(COPY_LIMIT)?; // a limit for earlier work, for which the copy would wait without one
        let bytes = size_of_val(to);
        // SAFETY: both ranges are valid. To pageable memory the call returns when the copy is done, so the borrow of
        // `to` is long enough; the stream is idle, so no hanging work delays the copy.
        unsafe {
            on!(&self.device, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), source, bytes, self.raw.0))
        }?;
        self.finish(COPY_LIMIT)
    }

    /// Sets words `range` to `value`, perhaps after a wait for a persistent kernel: for measurements and tests.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`].
    pub fn fill(&mut self, words: &DeviceWords, range: Range<usize>, value: u32) -> Result<(), GpuError> {
        self.own(words.device(), "device memory")?;
        let target = words.range(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        self.progress.issue();
        // SAFETY: the range is within the allocation (checked), which is freed only when the fill is done.
        unsafe { on!(&self.device, cuMemsetD32Async(target, value, range.len(), self.raw.0)) }
    }

    /// Launches `kernel` with `args`. Does not allocate.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] for other arguments than the kernel's, [`GpuError::Threads`] for too many threads; [`GpuError::Busy`] if
    /// another stream uses a page-locked argument; [`GpuError::Foreign`], [`GpuError::Call`].
    #[inline]
    pub fn launch(&mut self, kernel: &Kernel, shape: Shape, args: &mut [Arg<'_>]) -> Result<(), GpuError> {
        self.own(kernel.device(), "a kernel")?;
        kernel.accepts(args)?;
        kernel.accepts_threads(shape.threads)?;
        let number = self.progress.issue();
        for arg in args.iter_mut() {
            arg.note(&self.device, &self.progress, number)?;
        }
        let (device, stream) = (&self.device, self.raw.0);
        let Shape { blocks, rows, threads } = shape;
        with_parameters(args, |parameters| {
            // SAFETY: the function belongs to a loaded module (held by `kernel`); the parameters match it in number and size
            // (checked), and are read before the call returns; their memory is freed only when the launch is done, and
            // page-locked memory is recorded as in use.
            unsafe {
                on!(
                    device,
                    cuLaunchKernel(
                        kernel.function(),
                        blocks,
                        rows,
                        1,
                        threads,
                        1,
                        1,
                        0,
                        stream,
                        parameters,
                        std::ptr::null_mut()
                    )
                )
            }
        })
    }

    /// Whether all enqueued work is done.
    ///
    /// # Errors
    /// [`GpuError::Call`], also for errors of the enqueued work.
    #[inline]
    pub fn is_finished(&mut self) -> Result<bool, GpuError> {
        let driver = self.device.bind("cuStreamQuery")?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { (driver.cuStreamQuery)(self.raw.0) } {
            NOT_READY => Ok(false),
            code => {
                self.device.check("cuStreamQuery", code)?;
                self.progress.set_done(self.progress.issued());
                Ok(true)
            }
        }
    }

    /// Waits until all enqueued work is done, at most `limit`; then the device is given up, because work cannot be cancelled.
    ///
    /// # Errors
    /// Errors of [`Self::is_finished`]; [`GpuError::Stalled`].
    pub fn finish(&mut self, limit: Duration) -> Result<(), GpuError> {
        let device = self.device.clone();
        poll(&device, "a stream", limit, || self.is_finished())
    }

    pub(super) fn progress(&self) -> &Arc<StreamProgress> {
        &self.progress
    }

    #[inline]
    pub(super) fn own(&self, device: &Device, what: &'static str) -> Result<(), GpuError> {
        if self.device.is(device) { Ok(()) } else { Err(GpuError::Foreign(what)) }
    }
}

/// Limit of a table's copy: 16 GB at 2 GB/s from pageable memory, with a margin.
const COPY_LIMIT: Duration = Duration::from_secs(30);

impl Event {
    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the event has completed: all work before it is done, and the host may use its memory. True if never recorded.
    ///
    /// # Errors
    /// [`GpuError::Call`], also for errors of the work before it.
    #[inline]
    pub fn has_come(&self) -> Result<bool, GpuError> {
        let driver = self.device.bind("cuEventQuery")?;
        // SAFETY: the event lives as long as `self`.
        match unsafe { (driver.cuEventQuery)(self.raw.0) } {
            NOT_READY => Ok(false),
            code => {
                self.device.check("cuEventQuery", code)?;
                self.progress.set_done(self.number);
                Ok(true)
            }
        }
    }

    /// Waits for the event, at most `limit`; then the device is given up.
    ///
    /// # Errors
    /// Errors of [`Self::has_come`]; [`GpuError::Stalled`].
    pub fn wait(&self, limit: Duration) -> Result<(), GpuError> {
        poll(&self.device, "a batch", limit, || self.has_come())
    }

    /// Microseconds from `start` to this event by the device's clock; both are timed, recorded and completed.
    ///
    /// # Errors
    /// [`GpuError::Foreign`]; [`GpuError::Call`], also if one has not completed.
    pub fn elapsed_us_since(&self, start: &Self) -> Result<f64, GpuError> {
        if !self.device.is(&start.device) {
            return Err(GpuError::Foreign("an event"));
        }
        let mut ms = 0.0_f32;
        // SAFETY: an out pointer for a number, and two events of this context.
        unsafe { on!(&self.device, cuEventElapsedTime(&raw mut ms, start.raw.0, self.raw.0)) }?;
        Ok(f64::from(ms) * 1e3)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.device.stream_closed(&self.progress);
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.device.is_lost() {
            // SAFETY: created by `Stream::event`, destroyed once; the driver keeps what pending work needs.
            let _swallowed = unsafe { on!(&self.device, cuEventDestroy_v2(self.raw.0)) };
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({} enqueued, {} over)", self.progress.issued(), self.progress.done())
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event(after {})", self.number)
    }
}
