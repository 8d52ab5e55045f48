//! Page-locked memory that host and device use in turn.

use super::device::{Device, Handle, memory_error, on};
use super::error::GpuError;
use super::memory::{Plain, within};
use super::reclaim::{HostMemory, Memory};
use super::stream::Progress;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// What the host does with page-locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSide {
    /// Writes in order and never reads: write-combined, which spares the host's caches. Reading such memory is about a hundred
    /// times slower than reading any other.
    Writes,
    /// Reads, and writes as it likes: cached as usual.
    Reads,
}

/// Page-locked memory of the host. The device may use it, by copies or directly ("mapped"), and the host may: each in its turn.
/// While an enqueued use is not known to be over, the host gets [`GpuError::Busy`]; an [`Event`](super::Event) that was recorded
/// after it and has come, or a [finished](super::Stream::finish) stream, ends it. Zero when new.
pub struct Pinned<T: Plain> {
    device: Device,
    memory: HostMemory,
    host: Handle<*mut T>,
    len: usize,
    side: HostSide,
    uses: Uses,
}

/// The last use of memory on a stream.
#[derive(Default)]
pub(super) struct Uses {
    stream: Option<Arc<Progress>>,
    number: u64,
}

impl Uses {
    /// Notes that what was enqueued as `number` of `stream` uses the memory. Uses on other streams must be over.
    #[inline]
    pub(super) fn note(&mut self, stream: &Arc<Progress>, number: u64) -> Result<(), GpuError> {
        match &self.stream {
            Some(last) if Arc::ptr_eq(last, stream) => {}
            _ if self.is_over() => self.stream = Some(Arc::clone(stream)),
            _ => return Err(GpuError::Busy),
        }
        self.number = number;
        Ok(())
    }

    /// Whether the last use is known to be over.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.stream.as_ref().is_none_or(|stream| stream.is_over(self.number))
    }
}

impl<T: Plain> Pinned<T> {
    /// `len` elements.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Call`].
    pub fn new(device: &Device, len: usize, side: HostSide) -> Result<Self, GpuError> {
        let combined = if side == HostSide::Writes { sys::CU_MEMHOSTALLOC_WRITECOMBINED } else { 0 };
        let memory = allocate::<T>(device, len, combined)?;
        let host = Handle(memory.host.0.cast());
        Ok(Self { device: device.clone(), memory, host, len, side, uses: Uses::default() })
    }

    /// Elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the host does with it.
    #[must_use]
    pub const fn side(&self) -> HostSide {
        self.side
    }

    /// Whether the host may have it.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.uses.is_over()
    }

    /// The elements, to read.
    ///
    /// # Errors
    /// [`GpuError::Busy`] while the device may use them.
    #[inline]
    pub fn slice(&self) -> Result<&[T], GpuError> {
        self.idle()?;
        // SAFETY: `len` elements, zeroed when allocated, every pattern of bits a value; the device uses them only by calls that
        // take `&mut self`, and all of those are over.
        Ok(unsafe { std::slice::from_raw_parts(self.host.0, self.len) })
    }

    /// The elements, to write.
    ///
    /// # Errors
    /// [`GpuError::Busy`] while the device may use them.
    #[inline]
    pub fn slice_mut(&mut self) -> Result<&mut [T], GpuError> {
        self.idle()?;
        // SAFETY: as in `slice`; `&mut self` keeps every other borrow out.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host.0, self.len) })
    }

    #[inline]
    fn idle(&self) -> Result<(), GpuError> {
        if self.uses.is_over() { Ok(()) } else { self.busy() }
    }

    #[cold]
    fn busy(&self) -> Result<(), GpuError> {
        self.device.bind("cuEventQuery")?; // a lost device says so
        Err(GpuError::Busy)
    }

    /// The device.
    pub(super) const fn device(&self) -> &Device {
        &self.device
    }

    /// The host's address of elements `range`, when they are all within, for use `number` of `stream`.
    #[inline]
    pub(super) fn host_for(
        &mut self,
        range: &Range<usize>,
        stream: &Arc<Progress>,
        number: u64,
    ) -> Result<*mut T, GpuError> {
        within(range, self.len)?;
        self.uses.note(stream, number)?;
        Ok(self.host.0.wrapping_add(range.start))
    }

    /// Where the host has it.
    pub(super) const fn host_address(&self) -> *mut T {
        self.host.0
    }

    /// The device, the memory's address on it, and the uses to note.
    #[inline]
    pub(super) fn mapped(&mut self) -> (&Device, sys::CUdeviceptr, &mut Uses) {
        (&self.device, self.memory.mapped, &mut self.uses)
    }
}

/// Allocates `len` zeroed elements of page-locked memory, reachable from every context and mapped into the device's addresses.
pub(super) fn allocate<T: Plain>(device: &Device, len: usize, flags: u32) -> Result<HostMemory, GpuError> {
    let bytes = len.max(1).saturating_mul(size_of::<T>());
    let flags = flags | sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let memory = match device.lend_again(bytes, flags) {
        Some(memory) => memory,
        None => allocate_new(device, bytes, flags)?,
    };
    // SAFETY: `bytes` bytes, allocated and nobody else's; whole pages, so aligned for every `Plain`.
    unsafe { std::ptr::write_bytes(memory.host.0.cast::<u8>(), 0, bytes) };
    Ok(memory)
}

fn allocate_new(device: &Device, bytes: usize, flags: u32) -> Result<HostMemory, GpuError> {
    let mut host = std::ptr::null_mut();
    // SAFETY: takes a place for the pointer, a size that is not 0, and flags of that call.
    unsafe { on!(device, cuMemHostAlloc(&raw mut host, bytes, flags)) }
        .map_err(|error| memory_error(error, "page-locked host", bytes))?;
    let memory = |mapped| HostMemory { host: Handle(host), mapped, bytes, flags };
    device_address(device, host).map(memory).inspect_err(|_| device.free(Memory::Host(memory(0))))
}

/// The device's address of page-locked memory.
fn device_address(device: &Device, host: *mut c_void) -> Result<sys::CUdeviceptr, GpuError> {
    let mut pointer = 0;
    // SAFETY: takes a place for the pointer, an allocation of `cuMemHostAlloc`, and 0.
    unsafe { on!(device, cuMemHostGetDevicePointer_v2(&raw mut pointer, host, 0)) }?;
    Ok(pointer)
}

impl<T: Plain> Drop for Pinned<T> {
    fn drop(&mut self) {
        self.device.free(Memory::Host(self.memory));
    }
}

impl<T: Plain> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} x {} bytes, idle: {})", self.len, size_of::<T>(), self.is_idle())
    }
}
