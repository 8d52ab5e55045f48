//! Page-locked memory that host and device use at the same time.

use super::device::Device;
use super::error::GpuError;
use super::memory::within;
use super::pinned::allocate;
use super::reclaim::{DriverMemory, HostMemory};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::marker::PhantomData;

/// Page-locked host memory, mapped for the device, through which a [`Resident`](super::Resident) kernel and the host
/// communicate. Elements are accessed atomically, with the stated memory order. Zero when new; clones share it.
#[derive(Clone)]
pub struct Shared<T: Element>(Arc<SharedArray<T>>);

struct SharedArray<T: Element> {
    device: Device,
    memory: HostMemory,
    len: usize,
    elements: PhantomData<T::Atomic>,
}

/// A number with an atomic of its size: `u32` and `u64`.
pub trait Element: super::Plain + sealed::SealedElement {
    /// The atomic.
    type Atomic: Send + Sync + 'static;
    /// Atomic load.
    fn load(from: &Self::Atomic, order: Ordering) -> Self;
    /// Atomic store.
    fn store(to: &Self::Atomic, value: Self, order: Ordering);
}

mod sealed {
    /// Sealed to numbers whose atomic has the same size and alignment.
    pub trait SealedElement {}
    impl SealedElement for u32 {}
    impl SealedElement for u64 {}
}

macro_rules! element {
    ($number:ty, $atomic:ty) => {
        impl Element for $number {
            type Atomic = $atomic;
            #[inline]
            fn load(from: &$atomic, order: Ordering) -> Self {
                from.load(order)
            }
            #[inline]
            fn store(to: &$atomic, value: Self, order: Ordering) {
                to.store(value, order);
            }
        }
    };
}
element!(u32, AtomicU32);
element!(u64, AtomicU64);

impl<T: Element> Shared<T> {
    /// An array of `len` elements.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Call`].
    pub fn new(device: &Device, len: usize) -> Result<Self, GpuError> {
        let memory = allocate::<T>(device, len, 0)?;
        Ok(Self(Arc::new(SharedArray { device: device.clone(), memory, len, elements: PhantomData })))
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Device address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.memory.mapped
    }

    /// The elements as atomics. On x86 and ARM the device's system-scope accesses of whole elements are atomic to the host (CUDA C++
    /// Programming Guide, "system-scope atomics" and "mapped memory").
    #[must_use]
    #[inline]
    pub fn atomics(&self) -> &[T::Atomic] {
        // SAFETY: `len` zeroed elements; `Element` is sealed to numbers whose atomic has their size, and pages are aligned for
        // it; only atomics of these elements are ever returned; they live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.memory.host.0.cast_const().cast(), self.0.len) }
    }

    /// Loads element `at` (acquire): the device's earlier writes are visible after it.
    ///
    /// # Panics
    /// If `at` is out of range.
    #[must_use]
    #[inline]
    pub fn load(&self, at: usize) -> T {
        T::load(&self.atomics()[at], Ordering::Acquire)
    }

    /// Stores element `at` (release): a device that sees it sees all earlier writes.
    ///
    /// # Panics
    /// If `at` is out of range.
    #[inline]
    pub fn store(&self, at: usize, value: T) {
        T::store(&self.atomics()[at], value, Ordering::Release);
    }

    /// Stores `values` from element `at` on (relaxed).
    ///
    /// # Errors
    /// [`GpuError::Range`].
    #[inline]
    pub fn write(&self, at: usize, values: &[T]) -> Result<(), GpuError> {
        within(&(at..at + values.len()), self.len())?;
        for (to, &value) in self.atomics()[at..].iter().zip(values) {
            T::store(to, value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Loads `values` from element `at` on (relaxed).
    ///
    /// # Errors
    /// [`GpuError::Range`].
    #[inline]
    pub fn read(&self, at: usize, values: &mut [T]) -> Result<(), GpuError> {
        within(&(at..at + values.len()), self.len())?;
        for (from, value) in self.atomics()[at..].iter().zip(values) {
            *value = T::load(from, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

impl<T: Element> Drop for SharedArray<T> {
    fn drop(&mut self) {
        self.device.free(DriverMemory::Host(self.memory));
    }
}

impl<T: Element> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} x {} bytes)", self.0.len, size_of::<T>())
    }
}
