//! Work in order: streams, the events on them, and how far they have come.

use super::device::{Device, Handle, on};
use super::driver::NOT_READY;
use super::error::GpuError;
use super::kernel::{Arg, Kernel, Shape, with_parameters};
use super::memory::{DeviceBuffer, DeviceWords, Plain};
use super::pinned::Pinned;
use cudarc::driver::sys;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Which work goes first where the device has a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Lookups.
    Usual,
    /// Updates: short, and waited for.
    First,
}

/// What is enqueued here runs in order, and beside what other streams run. Enqueueing takes `&mut`: it is one thread's at a time.
pub struct Stream {
    device: Device,
    raw: Handle<sys::CUstream>,
    progress: Arc<Progress>,
}

/// How far a stream is known to have come.
#[derive(Default)]
pub(super) struct Progress {
    /// The number of what was enqueued last, counted before the call is made. Written by the stream's owner alone.
    issued: AtomicU64,
    /// Everything up to this number is over, and the host sees what it wrote.
    done: AtomicU64,
}

impl Progress {
    /// The number of what was enqueued last, or is about to be.
    #[inline]
    pub(super) fn issued(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Whether everything up to `number` is known to be over.
    #[inline]
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Everything up to `number` is over.
    #[inline]
    fn come_to(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }
}

/// A place in a stream.
pub struct Event {
    device: Device,
    raw: Handle<sys::CUevent>,
    progress: Arc<Progress>,
    /// What was enqueued on the stream when it was recorded.
    number: u64,
}

impl Stream {
    /// A stream that does not wait for the device's default stream.
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn new(device: &Device, priority: Priority) -> Result<Self, GpuError> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: takes two places for numbers.
        unsafe { on!(device, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        let priority = if priority == Priority::First { greatest } else { least };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: takes a place for the handle, a flag of that call, and a priority out of the range.
        unsafe { on!(device, cuStreamCreateWithPriority(&raw mut raw, flags, priority)) }?;
        let progress = Arc::default();
        device.stream_opened(Handle(raw), &progress);
        Ok(Self { device: device.clone(), raw: Handle(raw), progress })
    }

    /// An event of this stream, which has come until it is [recorded](Self::record). `timed` events can be
    /// [subtracted](Event::elapsed_us_since), and cost a little more.
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn event(&self, timed: bool) -> Result<Event, GpuError> {
        let flags = if timed { 0 } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32 };
        let mut raw = std::ptr::null_mut();
        // SAFETY: takes a place for the handle, and a flag of that call.
        unsafe { on!(&self.device, cuEventCreate(&raw mut raw, flags)) }?;
        Ok(Event {
            device: self.device.clone(),
            raw: Handle(raw),
            progress: Arc::clone(&self.progress),
            number: 0,
        })
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Marks where the stream is now: `event` comes when everything that was enqueued is over.
    ///
    /// # Errors
    /// [`GpuError::Foreign`] when the event is another stream's; [`GpuError::Call`].
    #[inline]
    pub fn record(&mut self, event: &mut Event) -> Result<(), GpuError> {
        if !Arc::ptr_eq(&self.progress, &event.progress) {
            return Err(GpuError::Foreign("an event"));
        }
        // SAFETY: both handles live as long as their owners, and are of the same context.
        unsafe { on!(&self.device, cuEventRecord(event.raw.0, self.raw.0)) }?;
        event.number = self.progress.issued();
        Ok(())
    }

    /// Copies `from[range]` to `to`, from element `at` on.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`]; [`GpuError::Busy`] when another stream uses `from`.
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
        let number = self.next();
        let source = from.host_for(&range, &self.progress, number)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: both ranges are within their allocations (checked); the target is freed only when this is over; the
        // source's use is noted, so the host does not write it until this is over.
        unsafe {
            on!(&self.device, cuMemcpyHtoDAsync_v2(target, source.cast(), count * size_of::<T>(), self.raw.0))
        }
    }

    /// Copies `from`, from element `at` on, to `to[range]`.
    ///
    /// # Errors
    /// As [`Self::upload`].
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
        let number = self.next();
        let target = to.host_for(&range, &self.progress, number)?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: as in `upload`; every pattern of bits that arrives is a `T`; the host neither reads nor writes the target
        // until this is over.
        unsafe {
            on!(&self.device, cuMemcpyDtoHAsync_v2(target.cast(), source, count * size_of::<T>(), self.raw.0))
        }
    }

    /// Copies `from` to `to`, from element `at` on, out of memory of any kind; returns when that is over. The driver copies
    /// through a buffer of its own: for tables and tests, not for batches.
    ///
    /// # Errors
    /// As [`Self::upload`] and [`Self::finish`].
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
        self.next();
        let bytes = size_of_val(from);
        // SAFETY: both ranges are valid. From pageable memory the call returns when it has read `from` (CUDA driver API,
        // "API synchronization behavior"); the copy to the device may go on, hence `finish`.
        unsafe { on!(&self.device, cuMemcpyHtoDAsync_v2(target, from.as_ptr().cast(), bytes, self.raw.0)) }?;
        self.finish(COPY_LIMIT)
    }

    /// Copies `from`, from element `at` on, to `to`, memory of any kind; returns when that is over.
    ///
    /// # Errors
    /// As [`Self::upload`] and [`Self::finish`].
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
        self.finish(COPY_LIMIT)?; // what runs before: the copy itself waits for it without a limit
        let bytes = size_of_val(to);
        // SAFETY: both ranges are valid. To pageable memory the call returns when the copy is over (as above), so `to` is
        // borrowed for long enough; the stream is idle, so nothing that hangs keeps it from coming.
        unsafe {
            on!(&self.device, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), source, bytes, self.raw.0))
        }?;
        self.finish(COPY_LIMIT)
    }

    /// Copies `from[range]` to `to`, from element `at` on, within the device.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`].
    pub fn copy<T: Plain>(
        &mut self,
        to: &DeviceBuffer<T>,
        at: usize,
        from: &DeviceBuffer<T>,
        range: Range<usize>,
    ) -> Result<(), GpuError> {
        self.own(to.device(), "device memory")?;
        self.own(from.device(), "device memory")?;
        let count = range.len();
        let target = to.range(&(at..at.saturating_add(count)))?;
        let source = from.range(&range)?;
        if count == 0 {
            return Ok(());
        }
        self.next();
        // SAFETY: both ranges are within their allocations (checked), which are freed only when this is over.
        unsafe { on!(&self.device, cuMemcpyDtoDAsync_v2(target, source, count * size_of::<T>(), self.raw.0)) }
    }

    /// Sets words `range` of `words` to `value`.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn fill(&mut self, words: &DeviceWords, range: Range<usize>, value: u32) -> Result<(), GpuError> {
        self.own(words.device(), "device memory")?;
        let target = words.range(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        self.next();
        // SAFETY: the range is within the allocation (checked), which is freed only when this is over.
        unsafe { on!(&self.device, cuMemsetD32Async(target, value, range.len(), self.raw.0)) }
    }

    /// Launches `kernel` with `args`. Nothing is allocated.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the kernel takes other arguments; [`GpuError::Busy`] when another stream uses page-locked
    /// memory that is an argument; [`GpuError::Foreign`], [`GpuError::Call`].
    #[inline]
    pub fn launch(&mut self, kernel: &Kernel, shape: Shape, args: &mut [Arg<'_>]) -> Result<(), GpuError> {
        self.own(kernel.device(), "a kernel")?;
        kernel.accepts(args)?;
        let number = self.next();
        for arg in args.iter_mut() {
            arg.note(&self.device, &self.progress, number)?;
        }
        let (device, stream) = (&self.device, self.raw.0);
        let Shape { blocks, rows, threads, shared_bytes } = shape;
        with_parameters(args, |parameters| {
            // SAFETY: the function is of a loaded module (held by `kernel`); the parameters are as many and as large as it
            // takes (checked), and are read before the call returns; the memory they point to is freed only when
            // this is over, and page-locked memory is noted as in use.
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
                        shared_bytes,
                        stream,
                        parameters,
                        std::ptr::null_mut()
                    )
                )
            }
        })
    }

    /// Asks the device to keep elements `range` of `buffer` in its second-level cache while work of this stream runs: of
    /// [`Device::set_aside_l2`], and no more than [`Facts::l2_window_bytes_max`](super::Facts::l2_window_bytes_max), with as many
    /// accesses preferred as have room there. `false` where the device does not support that. A matter of speed alone.
    ///
    /// # Errors
    /// [`GpuError::Range`], [`GpuError::Foreign`], [`GpuError::Call`].
    pub fn keep_in_l2<T: Plain>(
        &mut self,
        buffer: &DeviceBuffer<T>,
        range: Range<usize>,
    ) -> Result<bool, GpuError> {
        self.own(buffer.device(), "device memory")?;
        let start = buffer.range(&range)?;
        let facts = self.device.facts();
        if facts.l2_persisting_bytes_max == 0 || facts.l2_window_bytes_max == 0 {
            return Ok(false);
        }
        let bytes = ((range.len() * size_of::<T>()) as u64).min(facts.l2_window_bytes_max);
        #[expect(clippy::cast_possible_truncation, reason = "a ratio: two digits would do")]
        let hit_ratio = (facts.l2_persisting_bytes_max as f64 / bytes.max(1) as f64).min(1.0) as f32;
        // SAFETY: a C union of plain data, for which zero is a value.
        let mut value: sys::CUstreamAttrValue = unsafe { std::mem::zeroed() };
        value.accessPolicyWindow = sys::CUaccessPolicyWindow_st {
            base_ptr: start as *mut _,
            num_bytes: usize::try_from(bytes).unwrap_or(0),
            hitRatio: hit_ratio,
            hitProp: sys::CUaccessProperty::CU_ACCESS_PROPERTY_PERSISTING,
            missProp: sys::CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
        };
        let id = sys::CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
        // SAFETY: the attribute's value is of the attribute's kind; the window is a hint and accesses nothing.
        unsafe { on!(&self.device, cuStreamSetAttribute(self.raw.0, id, &raw const value)) }?;
        Ok(true)
    }

    /// Whether everything that was enqueued is over.
    ///
    /// # Errors
    /// [`GpuError::Call`], also of what went wrong in what was enqueued.
    #[inline]
    pub fn is_finished(&mut self) -> Result<bool, GpuError> {
        let driver = self.device.bind("cuStreamQuery")?;
        // SAFETY: the stream lives as long as `self`.
        match unsafe { (driver.cuStreamQuery)(self.raw.0) } {
            NOT_READY => Ok(false),
            code => {
                self.device.check("cuStreamQuery", code)?;
                self.progress.come_to(self.progress.issued());
                Ok(true)
            }
        }
    }

    /// Waits until everything that was enqueued is over, for `limit` at most: then the device is given up as lost, since nothing
    /// on it can be taken back.
    ///
    /// # Errors
    /// As [`Self::is_finished`]; [`GpuError::Stalled`].
    pub fn finish(&mut self, limit: Duration) -> Result<(), GpuError> {
        let device = self.device.clone();
        poll(&device, "a stream", limit, || self.is_finished())
    }

    /// The raw handle.
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw.0
    }

    /// The next number, for something that is about to be enqueued. It counts even when that fails: the call may have got
    /// half-way.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let number = self.progress.issued.load(Ordering::Relaxed) + 1;
        self.progress.issued.store(number, Ordering::Release);
        number
    }

    /// How far it has come.
    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Whether what belongs to `device` may be used here.
    #[inline]
    pub(super) fn own(&self, device: &Device, what: &'static str) -> Result<(), GpuError> {
        if self.device.is(device) { Ok(()) } else { Err(GpuError::Foreign(what)) }
    }
}

/// How long a copy of a table may take: 16 GB at the 2 GB/s of pageable memory, with room.
const COPY_LIMIT: Duration = Duration::from_secs(30);

/// Asks `over` until it says yes, for `limit` at most; then `device` is given up. It asks ever less often, down to once in about
/// 10 us: each question takes a lock that whoever submits needs as well.
pub(super) fn poll(
    device: &Device,
    what: &'static str,
    limit: Duration,
    mut over: impl FnMut() -> Result<bool, GpuError>,
) -> Result<(), GpuError> {
    const PAUSES_MAX: u32 = 512;
    let mut start = None;
    let mut pauses = 1;
    while !over()? {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
        if pauses < PAUSES_MAX {
            pauses *= 2;
            continue;
        }
        if start.get_or_insert_with(Instant::now).elapsed() > limit {
            return Err(device.give_up(what, limit));
        }
        std::thread::yield_now(); // few CPUs: whoever drives the device may want this one
    }
    Ok(())
}

impl Event {
    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it has come: everything before it is over, and the host may use what that used. An event that was never recorded
    /// has.
    ///
    /// # Errors
    /// [`GpuError::Call`], also of what went wrong before it.
    #[inline]
    pub fn has_come(&self) -> Result<bool, GpuError> {
        let driver = self.device.bind("cuEventQuery")?;
        // SAFETY: the event lives as long as `self`.
        match unsafe { (driver.cuEventQuery)(self.raw.0) } {
            NOT_READY => Ok(false),
            code => {
                self.device.check("cuEventQuery", code)?;
                self.progress.come_to(self.number);
                Ok(true)
            }
        }
    }

    /// Waits until it has come, for `limit` at most: then the device is given up as lost.
    ///
    /// # Errors
    /// As [`Self::has_come`]; [`GpuError::Stalled`].
    pub fn wait(&self, limit: Duration) -> Result<(), GpuError> {
        poll(&self.device, "a batch", limit, || self.has_come())
    }

    /// Microseconds from `start` to this one, as the device counts; both timed, recorded, and come.
    ///
    /// # Errors
    /// [`GpuError::Foreign`], [`GpuError::Call`] (also when one has not come).
    pub fn elapsed_us_since(&self, start: &Self) -> Result<f64, GpuError> {
        if !self.device.is(&start.device) {
            return Err(GpuError::Foreign("an event"));
        }
        let mut ms = 0.0_f32;
        // SAFETY: takes a place for a number and two events of this context.
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
            // SAFETY: created by `Stream::event`, destroyed once; the driver keeps what pending work needs of it.
            let _swallowed = unsafe { on!(&self.device, cuEventDestroy_v2(self.raw.0)) };
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Stream({} enqueued, {} over)",
            self.progress.issued(),
            self.progress.done.load(Ordering::Relaxed)
        )
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event(after {})", self.number)
    }
}
