//! Page-locked memory that host and device use in turn.

use super::device::{Device, memory_error, on};
use super::driver::RawHandle;
use super::error::GpuError;
use super::memory::{Plain, within};
use super::node::PreferredNode;
use super::progress::{StreamProgress, Uses};
use super::reclaim::{DriverMemory, HostMemory};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// The host's use of page-locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSide {
    /// Writes in order and never reads: write-combined memory, outside the host's caches and very slow to read.
    Writes,
    /// Reads and writes in any order: cached memory.
    Reads,
}

/// Page-locked host memory that device and host use in turn, zero when new. The host gets [`GpuError::Busy`] until a use is known
/// to be done: an [`Event`](super::Event) recorded after it has completed, or its stream has [finished](super::Stream::finish).
pub struct Pinned<T: Plain> {
    device: Device,
    memory: HostMemory,
    host: RawHandle<*mut T>,
    len: usize,
    uses: Uses,
}

impl<T: Plain> Pinned<T> {
    /// An array of `len` elements.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Call`].
    pub fn new(device: &Device, len: usize, side: HostSide) -> Result<Self, GpuError> {
        let combined = if side == HostSide::Writes { sys::CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
        let memory = allocate::<T>(device, len, combined)?;
        let host = RawHandle(memory.host.0.cast());
        Ok(Self { device: device.clone(), memory, host, len, uses: Uses::default() })
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the host may use it.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.uses.is_over()
    }

    /// The elements, for reading.
    ///
    /// # Errors
    /// [`GpuError::Busy`] while the device may use them.
    #[inline]
    pub fn slice(&self) -> Result<&[T], GpuError> {
        self.idle()?;
        // SAFETY: `len` elements, zeroed when allocated, for which every bit pattern is a value; the device uses them only
        // through calls that take `&mut self`, and these are done.
        Ok(unsafe { std::slice::from_raw_parts(self.host.0, self.len) })
    }

    /// The elements, for writing.
    ///
    /// # Errors
    /// [`GpuError::Busy`] while the device may use them.
    #[inline]
    pub fn slice_mut(&mut self) -> Result<&mut [T], GpuError> {
        self.idle()?;
        // SAFETY: as in `slice`; `&mut self` excludes every other borrow.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host.0, self.len) })
    }

    #[inline]
    fn idle(&self) -> Result<(), GpuError> {
        if self.uses.is_over() { Ok(()) } else { self.busy() }
    }

    #[cold]
    fn busy(&self) -> Result<(), GpuError> {
        self.device.bind("cuEventQuery")?; // fails on a lost device
        Err(GpuError::Busy)
    }

    pub(super) const fn device(&self) -> &Device {
        &self.device
    }

    /// Host address of elements `range`, if within the array, for work `number` of `stream`.
    #[inline]
    pub(super) fn host_for(
        &mut self,
        range: &Range<usize>,
        stream: &Arc<StreamProgress>,
        number: u64,
    ) -> Result<*mut T, GpuError> {
        within(range, self.len)?;
        self.uses.note(stream, number)?;
        Ok(self.host.0.wrapping_add(range.start))
    }

    #[inline]
    pub(super) fn mapped(&mut self) -> (&Device, sys::CUdeviceptr, &mut Uses) {
        (&self.device, self.memory.mapped, &mut self.uses)
    }
}

/// Allocates `len` zeroed elements of page-locked memory, usable from every context and mapped for the device, on its node.
pub(super) fn allocate<T: Plain>(device: &Device, len: usize, flags: u32) -> Result<HostMemory, GpuError> {
    let bytes = len.max(1).saturating_mul(size_of::<T>());
    let flags = flags | sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let _node = PreferredNode::new(device.facts().numa_node);
    let memory = match device.reuse_host_memory(bytes, flags) {
        Some(memory) => memory,
        None => allocate_new(device, bytes, flags)?,
    };
    // SAFETY: `bytes` bytes that were just allocated, unshared, and page-aligned.
    unsafe { std::ptr::write_bytes(memory.host.0.cast::<u8>(), 0, bytes) };
    Ok(memory)
}

fn allocate_new(device: &Device, bytes: usize, flags: u32) -> Result<HostMemory, GpuError> {
    let mut host = std::ptr::null_mut();
    // SAFETY: an out pointer, a size that is not 0, and flags of that call.
    unsafe { on!(device, cuMemHostAlloc(&raw mut host, bytes, flags)) }
        .map_err(|error| memory_error(error, "page-locked host", bytes))?;
    let memory = |mapped| HostMemory { host: RawHandle(host), mapped, bytes, flags };
    device_address(device, host).map(memory).inspect_err(|_| device.free(DriverMemory::Host(memory(0))))
}

fn device_address(device: &Device, host: *mut c_void) -> Result<sys::CUdeviceptr, GpuError> {
    let mut pointer = 0;
    // SAFETY: an out pointer, an allocation of `cuMemHostAlloc`, and 0.
    unsafe { on!(device, cuMemHostGetDevicePointer_v2(&raw mut pointer, host, 0)) }?;
    Ok(pointer)
}

impl<T: Plain> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.device.free(DriverMemory::Host(self.memory));
    }
}

impl<T: Plain> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} x {} bytes, idle: {})", self.len, size_of::<T>(), self.is_idle())
    }
}
