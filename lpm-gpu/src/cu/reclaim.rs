//! Deferred freeing: when resources go back to the driver.
//!
//! What is dropped is *buried*: recorded with the streams that may still use it. Each later allocation, drop or close
//! checks which of the buried resources are no longer in use and frees them. So no drop waits for the device, and a
//! device that hangs costs a leak instead of a thread.
//!
//! Four facts decide how a resource is freed:
//!
//! - `cuMemFree` and `cuMemFreeHost` wait for the whole device (CUDA programming guide,
//!   stream-ordered memory allocator: "cudaMalloc and cudaFree cause the GPU to synchronize across all executing CUDA
//!   streams"), so while a persistent kernel runs they wait forever. `cuMemAllocAsync` and `cuMemFreeAsync` take effect
//!   in the order of one stream and wait for no other. Device memory therefore comes from the device's memory pool, and
//!   returns to it while persistent kernels run.
//! - Page-locked memory has no such call. It is freed when no persistent kernel runs and every stream is idle. That is
//!   checked and done under the lock that the launch of a persistent kernel takes too. Until then, it is reused for
//!   requests of the same size: new readers take the memory that earlier readers left.
//! - Modules are loaded when the device is opened and go with its context: to load one, or to unload it, waits for the
//!   whole device, too. So does a stream for which the driver has to make more: as many as there may be are made before the
//!   first persistent kernel.
//! - A device without memory pools (some virtual ones) frees device memory as page-locked memory is freed. Such a
//!   device does not support persistent kernels: see [`Facts::memory_pools`](super::Facts::memory_pools).
//!
//! Alternatives that were rejected. Caching freed tables ourselves for new ones would need no pool, but growing tables
//! fit into no earlier one: the cache would be bounded by the sum of all sizes so far, not by the largest. Stopping the
//! persistent kernels at each table swap would interrupt every reader's traffic at each such update.
//!
//! Work that may use buried memory is known to be done by its number: all uses were enqueued before the owner could
//! drop the memory, so they have at most the stream's number at that time. A persistent kernel is never done, so it
//! holds the memory it was launched with (its arguments), and nothing else: its owner must keep the addresses that it
//! reads from memory.

use super::device::Handle;
use super::driver::{Driver, NOT_READY, SUCCESS};
use super::room::Admitted;
use super::stream::StreamProgress;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// A driver resource that nobody owns any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Device memory: address and bytes.
    Device(sys::CUdeviceptr, usize),
    /// Page-locked memory of the host.
    Host(HostMemory),
}

/// Page-locked memory of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HostMemory {
    /// Its host address.
    pub(super) host: Handle<*mut c_void>,
    /// Its device address.
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
        };
        arguments.iter().any(|at| (start..=start + bytes as u64).contains(at))
    }
}

/// A stream of the device.
struct BookedStream {
    raw: Handle<sys::CUstream>,
    progress: Arc<StreamProgress>,
    /// The arguments of the persistent kernel on it, from before its launch until it has ended.
    resident: Option<Vec<u64>>,
    /// Its owner was dropped: it is destroyed once it is idle.
    orphan: bool,
    /// It must not wait for persistent kernels.
    first: bool,
}

impl BookedStream {
    /// Whether all enqueued work is done.
    fn is_idle(&self, driver: &Driver) -> Result<bool, Failed> {
        if self.resident.is_some() {
            return Ok(false); // its launch may be imminent
        }
        if self.progress.is_over(self.progress.issued()) {
            return Ok(true);
        }
        // SAFETY: the stream is destroyed only when its line is removed.
        match unsafe { (driver.cuStreamQuery)(self.raw.0) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(("cuStreamQuery", code)),
        }
    }
}

/// Buried memory.
struct Grave {
    memory: Memory,
    /// The streams that may use it, each with the number of its last work when the memory was buried.
    uses: Vec<(Arc<StreamProgress>, u64)>,
}

/// A module by its name.
pub(super) type LoadedModule = (&'static str, Handle<sys::CUmodule>);

/// The function of a failed call, and its return value.
pub(super) type Failed = (&'static str, u32);

/// A device's streams and its buried resources. All contexts of a device that this process opens share one book,
/// because they are the same context to the driver.
#[derive(Default)]
pub(super) struct Book {
    lines: Vec<BookedStream>,
    /// The persistent kernels of all readers, launched or not yet.
    pub(super) admitted: Admitted,
    graves: Vec<Grave>,
    /// Loaded when the device was opened; they go with its context.
    pub(super) modules: Vec<LoadedModule>,
    /// The stream of the pool's allocations and frees; created at first use.
    pool: Option<Handle<sys::CUstream>>,
    /// Whether the driver has [`STREAMS_MAX`] streams to give without waiting.
    has_streams: bool,
}

/// A stream and how far it has progressed.
pub(super) type OpenStream = (Handle<sys::CUstream>, Arc<StreamProgress>);

/// The most streams beside persistent kernels. The driver makes some 16 or 32 streams at once, and waits for running kernels to do so. A
/// stream that is destroyed stays with it for the next.
pub(super) const STREAMS_MAX: usize = 256;

/// Creates a stream. The context must be bound; the priority is clamped to the device's range.
fn create_stream(driver: &Driver, priority: i32) -> Result<sys::CUstream, Failed> {
    let mut raw = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: takes an out pointer for the handle, a flag of that call, and a priority.
    match unsafe { (driver.cuStreamCreateWithPriority)(&raw mut raw, flags, priority) } {
        SUCCESS => Ok(raw),
        code => Err(("cuStreamCreateWithPriority", code)),
    }
}

impl Book {
    /// The stream of the pool's allocations and frees. The context must be bound.
    pub(super) fn pool(&mut self, driver: &Driver) -> Result<sys::CUstream, Failed> {
        if let Some(stream) = self.pool {
            return Ok(stream.0);
        }
        let raw = create_stream(driver, 0)?;
        self.pool = Some(Handle(raw));
        Ok(raw)
    }

    /// Has the driver make [`STREAMS_MAX`] streams, before the first persistent kernel is admitted. The context must be bound.
    pub(super) fn prepare_streams(&mut self, driver: &Driver) -> Result<(), Failed> {
        if self.has_streams {
            return Ok(());
        }
        let mut made = Vec::with_capacity(STREAMS_MAX);
        let all = (0..STREAMS_MAX).try_for_each(|_| create_stream(driver, 0).map(|raw| made.push(raw)));
        for raw in made {
            // SAFETY: created above, and idle; destroyed once.
            let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(raw) };
        }
        self.has_streams = all.is_ok();
        all
    }

    /// Creates a stream and registers it, one that must not wait for persistent kernels if it is a `first` one. `None` beside
    /// persistent kernels when there are [`STREAMS_MAX`]. The context must be bound.
    pub(super) fn open(
        &mut self,
        driver: &Driver,
        priority: i32,
        first: bool,
    ) -> Result<Option<OpenStream>, Failed> {
        if self.admitted.residents() > 0 && self.lines.len() >= STREAMS_MAX {
            return Ok(None);
        }
        let (raw, progress) = (Handle(create_stream(driver, priority)?), Arc::default());
        let line =
            BookedStream { raw, progress: Arc::clone(&progress), resident: None, orphan: false, first };
        self.lines.push(line);
        Ok(Some((raw, progress)))
    }

    /// Streams that must not wait for persistent kernels.
    pub(super) fn firsts(&self) -> usize {
        self.lines.iter().filter(|line| line.first).count()
    }

    /// The stream's owner dropped it. With `destroy` it is destroyed once idle, otherwise (on a lost device) never.
    pub(super) fn closed(&mut self, progress: &Arc<StreamProgress>, destroy: bool) {
        if destroy {
            self.line(progress, |line| line.orphan = true);
        } else {
            self.lines.retain(|line| !Arc::ptr_eq(&line.progress, progress));
        }
    }

    /// Registers a persistent kernel with these arguments just before its launch on a stream.
    pub(super) fn resident_began(&mut self, progress: &Arc<StreamProgress>, arguments: Vec<u64>) {
        self.line(progress, |line| line.resident = Some(arguments));
    }

    /// The persistent kernel has ended.
    pub(super) fn resident_ended(&mut self, progress: &Arc<StreamProgress>) {
        self.line(progress, |line| line.resident = None);
    }

    fn line(&mut self, progress: &Arc<StreamProgress>, change: impl FnOnce(&mut BookedStream)) {
        if let Some(line) = self.lines.iter_mut().find(|line| Arc::ptr_eq(&line.progress, progress)) {
            change(line);
        }
    }

    /// Takes over `memory`, which nobody owns any more.
    pub(super) fn bury(&mut self, memory: Memory) {
        let may_use =
            |line: &&BookedStream| line.resident.as_ref().is_none_or(|arguments| memory.is_among(arguments));
        let uses = self
            .lines
            .iter()
            .filter(may_use)
            .map(|line| (Arc::clone(&line.progress), line.progress.issued()));
        let uses = uses.filter(|(progress, number)| !progress.is_over(*number)).collect();
        self.graves.push(Grave { memory, uses });
    }

    /// Buried page-locked memory of the same size that nothing uses any more.
    pub(super) fn lend_again(&mut self, bytes: usize, flags: u32) -> Option<HostMemory> {
        let at = self.graves.iter().position(|grave| {
            let fits = |memory: HostMemory| memory.bytes == bytes && memory.flags == flags;
            grave.uses.is_empty() && matches!(grave.memory, Memory::Host(memory) if fits(memory))
        })?;
        match self.graves.swap_remove(at).memory {
            Memory::Host(memory) => Some(memory),
            Memory::Device(..) => None, // `position` found only host memory
        }
    }

    /// Frees resources that nothing uses any more. With `pools` device memory goes back to the device's pool. The
    /// context must be bound. It waits for nothing, except, when every stream was idle at the check, for work enqueued
    /// since.
    pub(super) fn sweep(&mut self, driver: &Driver, pools: bool) -> Result<(), Failed> {
        if self.graves.is_empty() && self.lines.iter().all(|line| !line.orphan) {
            return Ok(());
        }
        let idle = self.lines.iter().map(|line| line.is_idle(driver)).collect::<Result<Vec<_>, _>>()?;
        for grave in &mut self.graves {
            grave.uses.retain(|(progress, number)| {
                let line = self.lines.iter().position(|line| Arc::ptr_eq(&line.progress, progress));
                // A line that was removed was idle then.
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
                // A second try, in case a stray error failed the first; after that only the context's end frees it.
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
        };
        if code == SUCCESS { Ok(()) } else { Err((call, code)) }
    }

    /// Whether nothing is buried and no orphaned stream is left.
    pub(super) fn is_settled(&self) -> bool {
        self.graves.is_empty() && self.lines.iter().all(|line| !line.orphan)
    }

    /// Destroys the pool's stream, and forgets what goes with the context, when the last context of the device ends.
    pub(super) fn close(&mut self, driver: &Driver) {
        self.modules.clear();
        self.has_streams = false;
        if let Some(stream) = self.pool.take() {
            // SAFETY: created by `pool`, destroyed once.
            let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(stream.0) };
        }
    }
}
