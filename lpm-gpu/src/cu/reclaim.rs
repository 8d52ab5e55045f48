//! When memory goes back to the driver.
//!
//! What is dropped is *buried*: noted with the streams that may still use it. Whoever allocates, drops or closes something
//! later looks which of it is over and gives that to the driver. So no drop waits for the device, and one that hangs
//! costs a leak and not a thread.
//!
//! Three facts decide how it goes back:
//!
//! - `cuMemFree`, `cuMemFreeHost` and `cuModuleUnload` wait for the whole device (CUDA programming guide, stream-ordered
//!   memory allocator: "cudaMalloc and cudaFree cause the GPU to synchronize across all executing CUDA streams"), so with a
//!   kernel that stays they wait for ever. `cuMemAllocAsync` and `cuMemFreeAsync` take effect in the order of one stream and wait
//!   for no other. Device memory therefore comes from the device's memory pool, and goes back to it while kernels stay.
//! - Page-locked memory and modules have no such call. They go back when no kernel stays and every stream is idle, which
//!   is decided, and done, under the lock that the launch of a kernel that stays takes as well. Until then page-locked memory is
//!   lent again to whoever asks for as many bytes: readers that are made anew take what those before them left.
//! - A device without memory pools (some virtual ones) treats device memory as page-locked memory is treated. Kernels that stay are
//!   not for such a device: see [`Facts::memory_pools`](super::Facts::memory_pools).
//!
//! Why not otherwise. To keep the freed tables ourselves and fit new ones in would need no pool, but tables that grow fit
//! in none that was there before: what is kept then is bounded by the sum of all sizes there were, not by the largest. To stop the
//! kernels that stay at each swap would make every update that swaps a gap in the traffic of every reader.
//!
//! A stream's work is known to be over by the number that it had when the memory was buried: uses of the memory were
//! enqueued before its owner could drop it. A kernel that stays never is over, so it holds what it was launched with (its
//! arguments), and nothing else: addresses that it reads out of memory are its owner's to keep.

use super::device::Handle;
use super::driver::{Driver, NOT_READY, SUCCESS};
use super::stream::Progress;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// Something of the driver's that nobody owns any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Of the device: where, and bytes.
    Device(sys::CUdeviceptr, usize),
    /// Page-locked memory of the host.
    Host(HostMemory),
    /// A module: any kernel may be one of its.
    Module(Handle<sys::CUmodule>),
}

/// Page-locked memory of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HostMemory {
    /// Where the host has it.
    pub(super) host: Handle<*mut c_void>,
    /// Where the device has it.
    pub(super) mapped: sys::CUdeviceptr,
    pub(super) bytes: usize,
    /// The flags it was allocated with.
    pub(super) flags: u32,
}

impl Memory {
    /// Whether a kernel with these arguments may use it.
    fn is_among(&self, arguments: &[u64]) -> bool {
        let (start, bytes) = match *self {
            Self::Device(pointer, bytes) => (pointer, bytes),
            Self::Host(memory) => (memory.mapped, memory.bytes),
            Self::Module(_) => return true,
        };
        arguments.iter().any(|at| (start..=start + bytes as u64).contains(at))
    }
}

/// A stream of the device.
struct Line {
    raw: Handle<sys::CUstream>,
    progress: Arc<Progress>,
    /// The arguments of the kernel that stays on it, from before its launch until it has ended.
    resident: Option<Vec<u64>>,
    /// Its owner is gone: it is destroyed once it is idle.
    orphan: bool,
}

impl Line {
    /// Whether all that was enqueued is over.
    fn is_idle(&self, driver: &Driver) -> Result<bool, Failed> {
        if self.resident.is_some() {
            return Ok(false); // its launch may be about to come
        }
        if self.progress.is_over(self.progress.issued()) {
            return Ok(true);
        }
        // SAFETY: the stream is destroyed only when its line is taken out.
        match unsafe { (driver.cuStreamQuery)(self.raw.0) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(("cuStreamQuery", code)),
        }
    }
}

/// Memory that waits.
struct Grave {
    memory: Memory,
    /// The streams that may use it, each with the number of what was enqueued last when it was buried.
    uses: Vec<(Arc<Progress>, u64)>,
}

/// A call that failed, and its answer.
pub(super) type Failed = (&'static str, u32);

/// The streams of a device and what waits for them: one for all contexts of a device that this process opens, since they are the
/// same to the driver.
#[derive(Default)]
pub(super) struct Book {
    lines: Vec<Line>,
    graves: Vec<Grave>,
    /// Orders allocations and frees of the device's pool; made with the first.
    pool: Option<Handle<sys::CUstream>>,
}

impl Book {
    /// The stream of the pool's allocations and frees. The context must be bound.
    pub(super) fn pool(&mut self, driver: &Driver) -> Result<sys::CUstream, Failed> {
        if let Some(stream) = self.pool {
            return Ok(stream.0);
        }
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: takes a place for the handle, a flag of that call, and a priority, which is clamped to the device's range.
        let code = unsafe { (driver.cuStreamCreateWithPriority)(&raw mut raw, flags, 0) };
        if code != SUCCESS {
            return Err(("cuStreamCreateWithPriority", code));
        }
        self.pool = Some(Handle(raw));
        Ok(raw)
    }

    /// A stream was made.
    pub(super) fn opened(&mut self, raw: Handle<sys::CUstream>, progress: &Arc<Progress>) {
        self.lines.push(Line { raw, progress: Arc::clone(progress), resident: None, orphan: false });
    }

    /// Its owner is gone. With `destroy` it is destroyed when it is idle, else (a device that is lost) never.
    pub(super) fn closed(&mut self, progress: &Arc<Progress>, destroy: bool) {
        if destroy {
            self.line(progress, |line| line.orphan = true);
        } else {
            self.lines.retain(|line| !Arc::ptr_eq(&line.progress, progress));
        }
    }

    /// A kernel with these arguments is about to be launched on a stream, to stay.
    pub(super) fn resident_began(&mut self, progress: &Arc<Progress>, arguments: Vec<u64>) {
        self.line(progress, |line| line.resident = Some(arguments));
    }

    /// It has ended.
    pub(super) fn resident_ended(&mut self, progress: &Arc<Progress>) {
        self.line(progress, |line| line.resident = None);
    }

    fn line(&mut self, progress: &Arc<Progress>, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.lines.iter_mut().find(|line| Arc::ptr_eq(&line.progress, progress)) {
            change(line);
        }
    }

    /// Nobody owns `memory` any more.
    pub(super) fn bury(&mut self, memory: Memory) {
        let may_use =
            |line: &&Line| line.resident.as_ref().is_none_or(|arguments| memory.is_among(arguments));
        let uses = self
            .lines
            .iter()
            .filter(may_use)
            .map(|line| (Arc::clone(&line.progress), line.progress.issued()));
        let uses = uses.filter(|(progress, number)| !progress.is_over(*number)).collect();
        self.graves.push(Grave { memory, uses });
    }

    /// Page-locked memory that waits, and that nothing uses any more, for whoever wants as much.
    pub(super) fn lend_again(&mut self, bytes: usize, flags: u32) -> Option<HostMemory> {
        let at = self.graves.iter().position(|grave| {
            let fits = |memory: HostMemory| memory.bytes == bytes && memory.flags == flags;
            grave.uses.is_empty() && matches!(grave.memory, Memory::Host(memory) if fits(memory))
        })?;
        match self.graves.swap_remove(at).memory {
            Memory::Host(memory) => Some(memory),
            Memory::Device(..) | Memory::Module(_) => None, // `position` found none such
        }
    }

    /// Gives to the driver what nothing uses any more. With `pools` device memory goes back to the device's pool. The context must be
    /// bound. Waits for nothing but, where every stream was idle a moment ago, for what is enqueued just now.
    pub(super) fn sweep(&mut self, driver: &Driver, pools: bool) -> Result<(), Failed> {
        if self.graves.is_empty() && self.lines.iter().all(|line| !line.orphan) {
            return Ok(());
        }
        let idle = self.lines.iter().map(|line| line.is_idle(driver)).collect::<Result<Vec<_>, _>>()?;
        for grave in &mut self.graves {
            grave.uses.retain(|(progress, number)| {
                let line = self.lines.iter().position(|line| Arc::ptr_eq(&line.progress, progress));
                // A line that is not there any more was idle when it went.
                !progress.is_over(*number) && line.is_some_and(|line| !idle[line])
            });
        }
        let mut at = 0;
        while at < self.lines.len() {
            if self.lines[at].orphan && self.lines[at].is_idle(driver)? {
                let line = self.lines.swap_remove(at);
                // SAFETY: created by `Stream::new`, whose owner is gone, and idle; destroyed once.
                let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(line.raw.0) };
            } else {
                at += 1;
            }
        }
        let quiet = idle.iter().all(|idle| *idle);
        let mut at = 0;
        while at < self.graves.len() {
            let Grave { memory, ref uses } = self.graves[at];
            let pooled = pools && matches!(memory, Memory::Device(..));
            if uses.is_empty() && (pooled || quiet) {
                self.graves.swap_remove(at);
                // A second try takes what a stray error cost the first; after that it is the context's end that frees it.
                self.release(driver, memory, pools).or_else(|_| self.release(driver, memory, pools))?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn release(&mut self, driver: &Driver, memory: Memory, pools: bool) -> Result<(), Failed> {
        let (call, code) = match memory {
            Memory::Device(pointer, _) if pools => {
                let stream = self.pool(driver)?;
                // SAFETY: allocated by `cuMemAllocAsync` of this pool, freed once, no longer in use (see `sweep`).
                ("cuMemFreeAsync", unsafe { (driver.cuMemFreeAsync)(pointer, stream) })
            }
            // SAFETY: allocated by `cuMemAlloc`, freed once, no longer in use.
            Memory::Device(pointer, _) => ("cuMemFree_v2", unsafe { (driver.cuMemFree_v2)(pointer) }),
            // SAFETY: allocated by `cuMemHostAlloc`, freed once, no longer in use.
            Memory::Host(memory) => ("cuMemFreeHost", unsafe { (driver.cuMemFreeHost)(memory.host.0) }),
            // SAFETY: loaded once, unloaded once; every `Kernel` held the module, and what they launched is over.
            Memory::Module(module) => ("cuModuleUnload", unsafe { (driver.cuModuleUnload)(module.0) }),
        };
        if code == SUCCESS { Ok(()) } else { Err((call, code)) }
    }

    /// Whether nothing waits and no stream without an owner is left.
    pub(super) fn is_settled(&self) -> bool {
        self.graves.is_empty() && self.lines.iter().all(|line| !line.orphan)
    }

    /// The last context of the device ends: the pool's stream goes.
    pub(super) fn close(&mut self, driver: &Driver) {
        if let Some(stream) = self.pool.take() {
            // SAFETY: created by `pool`, destroyed once.
            let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(stream.0) };
        }
    }
}
