//! Host memory of callers that is registered with the driver: the device reads their keys where they lie.
//!
//! The driver accepts each range once. So all readers of a device share its registration, which the device's book keeps ([`Book`]) together
//! with the memory, until no reader uses it and no work is left that may read it.
//!
//! [`Book`]: super::reclaim

use super::device::Device;
use super::error::GpuError;
use super::memory::Plain;
use cudarc::driver::sys;
use fib::KeyMemory;
use std::ops::Range;
use std::sync::Arc;

/// One user of registered memory, which the device may read as long as it lives, and never writes.
pub struct RegisteredMemory {
    device: Device,
    host: Range<usize>,
    mapped: sys::CUdeviceptr,
}

/// Elements in registered memory. The host may overwrite them at any time: work in flight then reads arbitrary ones.
pub struct InPlace<'a, T: Plain> {
    memory: &'a RegisteredMemory,
    elements: &'a [T],
    mapped: sys::CUdeviceptr,
}

/// Alignment of elements in place: kernels load 16 bytes at a time, also at the end of a batch.
const ALIGNED: usize = 16;

impl RegisteredMemory {
    /// Registers `memory`, if it is not registered yet; `None` if the driver refuses.
    ///
    /// # Errors
    /// [`GpuError::Call`] if the device is lost.
    pub fn new(device: &Device, memory: &Arc<dyn KeyMemory>) -> Result<Option<Self>, GpuError> {
        match device.register(memory) {
            Ok(mapped) => Ok(Some(Self { device: device.clone(), host: memory.addresses(), mapped })),
            Err(error) if error.is_lost() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether it is all of `memory`.
    #[must_use]
    pub fn is(&self, memory: &dyn KeyMemory) -> bool {
        self.host == memory.addresses()
    }

    /// `elements` as the device reads them in place, if they lie in this memory and are aligned.
    #[must_use]
    #[inline]
    pub fn find<'a, T: Plain>(&'a self, elements: &'a [T]) -> Option<InPlace<'a, T>> {
        let at = elements.as_ptr().addr().checked_sub(self.host.start)?;
        let whole = size_of_val(elements).checked_next_multiple_of(ALIGNED)?;
        if at > self.host.len() || whole > self.host.len() - at {
            return None;
        }
        let mapped = self.mapped + at as u64;
        mapped.is_multiple_of(ALIGNED as u64).then_some(InPlace { memory: self, elements, mapped })
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        self.device.unregister(&self.host);
    }
}

impl std::fmt::Debug for RegisteredMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegisteredMemory({:#x?} at {:#x})", self.host, self.mapped)
    }
}

impl<'a, T: Plain> InPlace<'a, T> {
    /// Device address of the first element.
    #[must_use]
    #[inline]
    pub const fn address(&self) -> u64 {
        self.mapped
    }

    pub(super) const fn device(&self) -> &'a Device {
        &self.memory.device
    }

    pub(super) const fn elements(&self) -> &'a [T] {
        self.elements
    }
}
