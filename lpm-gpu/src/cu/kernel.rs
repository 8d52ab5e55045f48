//! Modules, their kernels, and launch parameters.

use super::device::{Device, on};
use super::driver::RawHandle;
use super::error::GpuError;
use super::loader::{KernelFacts, LoadedKernel, find_kernel};
use super::memory::{DeviceBuffer, Plain};
use super::pinned::Pinned;
use super::progress::{StreamProgress, Uses};
use super::ptx::ARGUMENTS_MAX;
use super::registered::InPlace;
use super::shared::{Element, Shared};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// A module of kernels, loaded when its device was opened.
#[derive(Clone)]
pub struct Module {
    device: Device,
    raw: RawHandle<sys::CUmodule>,
    name: &'static str,
}

impl Module {
    /// The embedded module `name`: `gamt`, `gale`, `sail` or `ceilings`.
    ///
    /// # Errors
    /// [`GpuError::Ptx`] for an unknown name.
    pub fn new(device: &Device, name: &str) -> Result<Self, GpuError> {
        let found = device.module(name).map(|(name, raw)| Self { device: device.clone(), raw, name });
        found.ok_or_else(|| GpuError::Ptx { module: name.to_owned(), reason: "no such module".to_owned() })
    }

    /// Kernel `entry` of this module.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] for an unknown kernel; [`GpuError::Call`].
    pub fn kernel(&self, entry: &str) -> Result<Kernel, GpuError> {
        let driver = self.device.bind("cuModuleGetFunction")?;
        let loaded =
            find_kernel(driver, (self.name, self.raw), entry).inspect_err(|error| self.device.note(error))?;
        Ok(Kernel(Arc::new(Function { module: self.clone(), entry: entry.to_owned(), loaded })))
    }
}

/// A kernel. Clones are cheap.
#[derive(Clone)]
pub struct Kernel(Arc<Function>);

struct Function {
    module: Module,
    entry: String,
    loaded: LoadedKernel,
}

impl Kernel {
    /// Resources reported by the driver's compiler.
    #[must_use]
    pub fn facts(&self) -> KernelFacts {
        self.0.loaded.facts
    }

    /// Entry name.
    #[must_use]
    pub fn entry(&self) -> &str {
        &self.0.entry
    }

    /// Most blocks of `threads` on one multiprocessor (occupancy).
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn blocks_multiprocessor_max(&self, threads: u32) -> Result<u32, GpuError> {
        let mut blocks = 0;
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: an out pointer for a number, a function of a loaded module, and two numbers.
        unsafe {
            on!(
                self.device(),
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, self.0.loaded.raw.0, threads, 0)
            )
        }?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.module.device
    }

    pub(super) fn function(&self) -> sys::CUfunction {
        self.0.loaded.raw.0
    }

    /// Checks that a block may have `threads` threads: registers limit them on some devices.
    ///
    /// # Errors
    /// [`GpuError::Threads`].
    #[inline]
    pub fn accepts_threads(&self, threads: u32) -> Result<(), GpuError> {
        let KernelFacts { threads_block_max: max, registers, .. } = self.0.loaded.facts;
        if threads <= max {
            return Ok(());
        }
        Err(GpuError::Threads { entry: self.0.entry.clone(), wanted: threads, max, registers })
    }

    #[inline]
    pub(super) fn accepts(&self, args: &[Arg<'_>]) -> Result<(), GpuError> {
        let takes = &self.0.loaded.parameters;
        if args.len() == takes.len() && args.iter().zip(takes).all(|(arg, &bytes)| arg.bytes() == bytes) {
            return Ok(());
        }
        Err(GpuError::Kernel {
            module: self.0.module.name.to_owned(),
            entry: self.0.entry.clone(),
            reason: "launched with arguments that it does not take",
        })
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("entry", &self.0.entry).field("facts", &self.0.loaded.facts).finish()
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({})", self.name)
    }
}

/// The grid of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks a row.
    pub blocks: u32,
    /// Rows of blocks: one a slot for persistent kernels, else 1.
    pub rows: u32,
    /// Threads a block: a multiple of 32, up to [`KernelFacts::threads_block_max`].
    pub threads: u32,
}

impl Shape {
    /// One row of `blocks` blocks of `threads`.
    #[must_use]
    pub const fn new(blocks: u32, threads: u32) -> Self {
        Self { blocks, rows: 1, threads }
    }

    /// The same shape with `rows` rows.
    #[must_use]
    pub const fn with_rows(self, rows: u32) -> Self {
        Self { rows, ..self }
    }
}

/// An argument of a kernel.
pub struct Arg<'a>(ArgValue<'a>);

enum ArgValue<'a> {
    U32(u32),
    Memory(&'a Device, sys::CUdeviceptr),
    Pinned(&'a Device, sys::CUdeviceptr, &'a mut Uses),
}

impl<'a> Arg<'a> {
    /// A 32-bit number.
    #[must_use]
    #[inline]
    pub const fn u32(value: u32) -> Self {
        Self(ArgValue::U32(value))
    }

    /// An array on the device.
    #[must_use]
    #[inline]
    pub const fn buffer<T: Plain>(buffer: &'a DeviceBuffer<T>) -> Self {
        Self(ArgValue::Memory(buffer.device(), buffer.address()))
    }

    /// An array on the device from element `at` on.
    ///
    /// # Errors
    /// [`GpuError::Range`] for `at` beyond the end.
    pub fn buffer_from<T: Plain>(buffer: &'a DeviceBuffer<T>, at: usize) -> Result<Self, GpuError> {
        Ok(Self(ArgValue::Memory(buffer.device(), buffer.range(&(at..buffer.len().max(at)))?)))
    }

    /// Page-locked memory, which the kernel accesses across the bus. In use until the launch is done.
    #[must_use]
    #[inline]
    pub fn pinned<T: Plain>(memory: &'a mut Pinned<T>) -> Self {
        let (device, pointer, uses) = memory.mapped();
        Self(ArgValue::Pinned(device, pointer, uses))
    }

    /// Elements in registered memory, which the kernel reads across the bus.
    #[must_use]
    #[inline]
    pub const fn in_place<T: Plain>(elements: &InPlace<'a, T>) -> Self {
        Self(ArgValue::Memory(elements.device(), elements.address()))
    }

    /// Memory that the host may use at the same time.
    #[must_use]
    #[inline]
    pub fn shared<T: Element>(memory: &'a Shared<T>) -> Self {
        Self(ArgValue::Memory(memory.device(), memory.address()))
    }

    pub(super) const fn memory(&self) -> Option<u64> {
        match self.0 {
            ArgValue::U32(_) => None,
            ArgValue::Memory(_, pointer) | ArgValue::Pinned(_, pointer, _) => Some(pointer),
        }
    }

    #[inline]
    const fn bytes(&self) -> u8 {
        match self.0 {
            ArgValue::U32(_) => 4,
            ArgValue::Memory(..) | ArgValue::Pinned(..) => 8,
        }
    }

    #[inline]
    const fn bits(&self) -> u64 {
        match self.0 {
            ArgValue::U32(value) => value as u64,
            ArgValue::Memory(_, pointer) | ArgValue::Pinned(_, pointer, _) => pointer,
        }
    }

    #[inline]
    pub(super) fn note(
        &mut self,
        device: &Device,
        progress: &Arc<StreamProgress>,
        number: u64,
    ) -> Result<(), GpuError> {
        match &mut self.0 {
            ArgValue::U32(_) => Ok(()),
            ArgValue::Memory(of, _) if device.is(of) => Ok(()),
            ArgValue::Pinned(of, _, uses) if device.is(of) => uses.note(progress, number),
            _ => Err(GpuError::Foreign("an argument")),
        }
    }
}

/// Calls `launch` with `args` (at most [`ARGUMENTS_MAX`]) in the driver's format: pointers to values of at least their
/// parameters' sizes, valid until `launch` returns.
#[inline]
pub(super) fn with_parameters<R>(args: &[Arg<'_>], launch: impl FnOnce(*mut *mut c_void) -> R) -> R {
    let mut values = [0_u64; ARGUMENTS_MAX];
    let mut pointers = [std::ptr::null_mut::<c_void>(); ARGUMENTS_MAX];
    for ((value, pointer), arg) in values.iter_mut().zip(&mut pointers).zip(args) {
        // Little-endian, as every host of the driver: a u32 is the first half.
        *value = arg.bits();
        *pointer = std::ptr::from_mut(value).cast();
    }
    launch(pointers.as_mut_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_laid_out_as_the_driver_reads_them() {
        let args = [Arg::u32(0x0102_0304), Arg::u32(5)];
        with_parameters(&args, |parameters| {
            // SAFETY: two arguments, so two pointers, to values of 4 bytes.
            let read =
                unsafe { (**parameters.cast::<*const u32>(), **parameters.add(1).cast::<*const u32>()) };
            assert_eq!(read, (0x0102_0304, 5));
        });
    }
}
