//! Arrays on the device.

use super::device::Device;
use super::error::GpuError;
use super::reclaim::DriverMemory;
use crate::host::{PrefixOp, Write};
use cudarc::driver::sys;
use fib::NextHopId;
use std::marker::PhantomData;
use std::ops::Range;

/// Types that can be copied to and from a device.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: a number.
unsafe impl Plain for u8 {}
// SAFETY: a number.
unsafe impl Plain for u16 {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: `repr(C)`, two u32.
unsafe impl Plain for Write {}
// SAFETY: `repr(C)`, four u32.
unsafe impl Plain for PrefixOp {}

/// An array on the device, initially arbitrary. Any number of streams may use it at once; kernels are responsible for races.
pub struct DeviceBuffer<T: Plain> {
    device: Device,
    pointer: sys::CUdeviceptr,
    len: usize,
    elements: PhantomData<T>,
}

/// A table's words.
pub type DeviceWords = DeviceBuffer<u32>;

impl<T: Plain> DeviceBuffer<T> {
    /// An array of `len` elements, which the driver aligns to 256 bytes.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Call`].
    pub fn new(device: &Device, len: usize) -> Result<Self, GpuError> {
        let bytes = len.max(1).saturating_mul(size_of::<T>());
        Ok(Self { device: device.clone(), pointer: device.allocate(bytes)?, len, elements: PhantomData })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Size, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Device address: to compare, or to pass to a kernel through memory.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.pointer
    }

    /// The device.
    #[must_use]
    pub const fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn range(&self, range: &Range<usize>) -> Result<sys::CUdeviceptr, GpuError> {
        within(range, self.len)?;
        Ok(self.pointer + (range.start * size_of::<T>()) as u64)
    }
}

/// Views words as ids of next hops, 24 bits.
#[must_use]
#[inline]
pub const fn as_next_hops(words: &[u32]) -> &[NextHopId] {
    // SAFETY: `NextHopId` is a transparent `u32`; its 24 bits are the callers' concern, not the compiler's.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

pub(super) fn within(range: &Range<usize>, len: usize) -> Result<(), GpuError> {
    if range.start <= range.end && range.end <= len {
        Ok(())
    } else {
        Err(GpuError::Range { at: range.start, count: range.end.saturating_sub(range.start), len })
    }
}

impl<T: Plain> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.device.free(DriverMemory::Device(self.pointer, self.len.max(1) * size_of::<T>()));
    }
}

impl<T: Plain> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer({} x {} bytes at {:#x})", self.len, size_of::<T>(), self.pointer)
    }
}
