//! The driver's part of `lpm-gpu/src/cu/shared.rs` without a driver: memory of this process, which model threads read as a device would.

#[path = "../../../lpm-gpu/src/cu/shared.rs"]
pub(crate) mod shared;

pub(crate) use device::Device;
pub(crate) use error::GpuError;
pub(crate) use memory::Plain;
pub(crate) use shared::Shared;

pub(crate) mod device {
    use super::reclaim::DriverMemory;

    #[derive(Clone, Debug)]
    pub struct Device;

    #[derive(Clone, Copy)]
    pub(crate) struct RawHandle<T>(pub(crate) T);

    impl Device {
        /// Memory is freed at the next execution, by [`super::memory::forget_all`].
        pub(crate) fn free(&self, _: DriverMemory) {}
    }
}

pub(crate) mod reclaim {
    use super::device::RawHandle;

    #[derive(Clone, Copy)]
    pub(crate) struct HostMemory {
        pub(crate) host: RawHandle<*mut std::ffi::c_void>,
        pub(crate) mapped: u64,
    }

    pub(crate) enum DriverMemory {
        Host(HostMemory),
    }
}

pub(crate) mod error {
    #[derive(Debug)]
    pub enum GpuError {
        Range,
    }
}

pub(crate) mod memory {
    use super::GpuError;
    use crate::sync::atomic::{AtomicU32, AtomicU64};
    use std::any::Any;
    use std::cell::RefCell;
    use std::ops::Range;

    thread_local! {
        static ALLOCATED: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
    }

    /// A number, and the allocation of its atomics: a checker's atomics are larger than the numbers.
    pub trait Plain: Copy + Send + Sync + 'static {
        fn allocate(len: usize) -> *mut Self;
    }

    macro_rules! plain {
        ($number:ty, $atomic:ty) => {
            impl Plain for $number {
                fn allocate(len: usize) -> *mut Self {
                    let mut memory: Box<[$atomic]> = (0..len).map(|_| <$atomic>::default()).collect();
                    let at = memory.as_mut_ptr();
                    ALLOCATED.with_borrow_mut(|all| all.push(Box::new(memory)));
                    at.cast()
                }
            }
        };
    }
    plain!(u32, AtomicU32);
    plain!(u64, AtomicU64);

    pub(crate) fn forget_all() {
        ALLOCATED.take();
    }

    pub(crate) fn within(range: &Range<usize>, len: usize) -> Result<(), GpuError> {
        if range.end <= len { Ok(()) } else { Err(GpuError::Range) }
    }
}

pub(crate) mod pinned {
    use super::device::RawHandle;
    use super::reclaim::HostMemory;
    use super::{Device, GpuError, Plain};

    #[expect(clippy::unnecessary_wraps, reason = "the driver may refuse")]
    pub(crate) fn allocate<T: Plain>(_: &Device, len: usize, _: u32) -> Result<HostMemory, GpuError> {
        Ok(HostMemory { host: RawHandle(T::allocate(len).cast()), mapped: 0 })
    }
}
