//! Deferred frees. A drop *buries* a resource: it is recorded with the streams that may still use it. Each later allocation,
//! drop or close frees the buried resources that are no longer in use. So a drop never waits, and a hanging device costs a
//! leak, not a thread.
//!
//! - `cuMemFree` and `cuMemFreeHost` wait for the whole device (CUDA programming guide, stream-ordered memory allocator),
//!   with a persistent kernel for ever. `cuMemAllocAsync` and `cuMemFreeAsync` wait for one stream alone. So device memory
//!   comes from the device's memory pool.
//! - Page-locked memory has no such call. It is freed when no persistent kernel runs and all streams are idle, checked under
//!   the lock that a persistent kernel's launch takes, too. Until then it is reused for requests of the same size.
//! - Callers' memory that is registered with the driver ([`RegisteredMemory`](super::RegisteredMemory)) is unregistered by the same rule:
//!   without users, when no persistent kernel runs and all streams are idle. Until then the book keeps it mapped, and a new user takes it
//!   over. On a device that was given up it stays mapped for good.
//! - Loading or unloading a module waits for the whole device: modules are loaded when the device is opened, and go with its
//!   context. So does creating streams beyond the driver's stock: all are created before the first persistent kernel.
//! - A device without memory pools (some virtual ones) frees device memory like page-locked memory, without persistent kernels.
//!
//! All uses of buried memory were enqueued before its drop, so they are done when the streams reach their number at that time.
//! A persistent kernel is never done: it holds its arguments, and its owner must keep memory that it reaches indirectly.
//! Rejected: a cache of freed tables, since growing tables fit no earlier one; stopping persistent kernels at each table swap,
//! since that interrupts every reader.

use super::driver::{Driver, NOT_READY, RawHandle, SUCCESS};
use super::loader::LoadedModule;
use super::progress::StreamProgress;
use super::room::Admitted;
use cudarc::driver::sys;
use fib::KeyMemory;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverMemory {
    /// Device memory: address and bytes.
    Device(sys::CUdeviceptr, usize),
    Host(HostMemory),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct HostMemory {
    pub(super) host: RawHandle<*mut c_void>,
    pub(super) mapped: sys::CUdeviceptr,
    pub(super) bytes: usize,
    pub(super) flags: u32,
}

impl DriverMemory {
    fn is_among(&self, arguments: &[u64]) -> bool {
        let (start, bytes) = match *self {
            Self::Device(pointer, bytes) => (pointer, bytes),
            Self::Host(memory) => (memory.mapped, memory.bytes),
        };
        arguments.iter().any(|at| (start..=start + bytes as u64).contains(at))
    }
}

struct BookedStream {
    raw: RawHandle<sys::CUstream>,
    progress: Arc<StreamProgress>,
    /// Arguments of its persistent kernel, from before the launch until the end.
    resident: Option<Vec<u64>>,
    orphan: bool,
    /// Must not wait for persistent kernels.
    first: bool,
}

impl BookedStream {
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

struct Grave {
    memory: DriverMemory,
    /// Streams that may use it, each with its last work number at the burial.
    uses: Vec<(Arc<StreamProgress>, u64)>,
}

struct Registration {
    memory: Arc<dyn KeyMemory>,
    /// Device address, once the driver has said it.
    mapped: Option<sys::CUdeviceptr>,
    users: usize,
}

pub(super) type Failed = (&'static str, u32);

/// A device's streams and buried resources, shared by its contexts in this process, which are one context to the driver.
#[derive(Default)]
pub(super) struct Book {
    lines: Vec<BookedStream>,
    pub(super) admitted: Admitted,
    graves: Vec<Grave>,
    registered: Vec<Registration>,
    pub(super) modules: Vec<LoadedModule>,
    pool: Option<RawHandle<sys::CUstream>>,
    /// Whether the driver can give [`STREAMS_MAX`] streams without waiting.
    has_streams: bool,
    /// A stream of a device that was given up is gone, but its work may never end: calls that wait for the device are made no more.
    pub(super) may_hang: bool,
}

pub(super) type OpenStream = (RawHandle<sys::CUstream>, Arc<StreamProgress>);

/// Most streams while persistent kernels run: beyond its stock, which keeps destroyed ones, the driver waits for kernels.
pub(super) const STREAMS_MAX: usize = 256;

/// Creates a stream. The context must be bound; the driver clamps the priority.
fn create_stream(driver: &Driver, priority: i32) -> Result<sys::CUstream, Failed> {
    let mut raw = std::ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: an out pointer for the handle, a flag of that call, and a priority.
    match unsafe { (driver.cuStreamCreateWithPriority)(&raw mut raw, flags, priority) } {
        SUCCESS => Ok(raw),
        code => Err(("cuStreamCreateWithPriority", code)),
    }
}

impl Book {
    pub(super) fn pool(&mut self, driver: &Driver) -> Result<sys::CUstream, Failed> {
        if let Some(stream) = self.pool {
            return Ok(stream.0);
        }
        let raw = create_stream(driver, 0)?;
        self.pool = Some(RawHandle(raw));
        Ok(raw)
    }

    /// Fills the driver's stock to [`STREAMS_MAX`] streams, before the first persistent kernel. The context must be bound.
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

    /// A `first` stream must not wait for persistent kernels. `None` beyond [`STREAMS_MAX`] with them. The context must be bound.
    pub(super) fn open(
        &mut self,
        driver: &Driver,
        priority: i32,
        first: bool,
    ) -> Result<Option<OpenStream>, Failed> {
        if self.admitted.residents() > 0 && self.lines.len() >= STREAMS_MAX {
            return Ok(None);
        }
        let (raw, progress) = (RawHandle(create_stream(driver, priority)?), Arc::default());
        let line =
            BookedStream { raw, progress: Arc::clone(&progress), resident: None, orphan: false, first };
        self.lines.push(line);
        Ok(Some((raw, progress)))
    }

    pub(super) fn firsts(&self) -> usize {
        self.lines.iter().filter(|line| line.first).count()
    }

    /// The owner dropped the stream: destroys it once idle if `destroy`, never on a lost device.
    pub(super) fn closed(&mut self, progress: &Arc<StreamProgress>, destroy: bool) {
        if destroy {
            self.line(progress, |line| line.orphan = true);
        } else {
            self.lines.retain(|line| !Arc::ptr_eq(&line.progress, progress));
        }
    }

    pub(super) fn resident_began(&mut self, progress: &Arc<StreamProgress>, arguments: Vec<u64>) {
        self.line(progress, |line| line.resident = Some(arguments));
    }

    pub(super) fn resident_ended(&mut self, progress: &Arc<StreamProgress>) {
        self.line(progress, |line| line.resident = None);
    }

    fn line(&mut self, progress: &Arc<StreamProgress>, change: impl FnOnce(&mut BookedStream)) {
        if let Some(line) = self.lines.iter_mut().find(|line| Arc::ptr_eq(&line.progress, progress)) {
            change(line);
        }
    }

    pub(super) fn bury(&mut self, memory: DriverMemory) {
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

    pub(super) fn reuse_host_memory(&mut self, bytes: usize, flags: u32) -> Option<HostMemory> {
        let at = self.graves.iter().position(|grave| {
            let fits = |memory: HostMemory| memory.bytes == bytes && memory.flags == flags;
            grave.uses.is_empty() && matches!(grave.memory, DriverMemory::Host(memory) if fits(memory))
        })?;
        match self.graves.swap_remove(at).memory {
            DriverMemory::Host(memory) => Some(memory),
            DriverMemory::Device(..) => None, // `position` found only host memory
        }
    }

    /// Frees resources no longer in use; with `pools`, device memory returns to the pool. The context must be bound. Waits only
    /// if all streams were idle at the check, and then for work enqueued since.
    pub(super) fn sweep(&mut self, driver: &Driver, pools: bool) -> Result<(), Failed> {
        if self.is_settled() {
            return Ok(());
        }
        let idle = self.lines.iter().map(|line| line.is_idle(driver)).collect::<Result<Vec<_>, _>>()?;
        for grave in &mut self.graves {
            grave.uses.retain(|(progress, number)| {
                let line = self.lines.iter().position(|line| Arc::ptr_eq(&line.progress, progress));
                // A removed line was idle.
                !progress.is_over(*number) && line.is_some_and(|line| !idle[line])
            });
        }
        let mut at = 0;
        while at < self.lines.len() {
            if self.lines[at].orphan && self.lines[at].is_idle(driver)? {
                let line = self.lines.swap_remove(at);
                // SAFETY: created by `Stream::new`, dropped by its owner, and idle; destroyed once.
                let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(line.raw.0) };
            } else {
                at += 1;
            }
        }
        let quiet = !self.may_hang && idle.iter().all(|idle| *idle);
        let mut at = 0;
        while at < self.graves.len() {
            let Grave { memory, ref uses } = self.graves[at];
            let pooled = pools && matches!(memory, DriverMemory::Device(..));
            if uses.is_empty() && (pooled || quiet) {
                self.graves.swap_remove(at);
                // Tries twice, in case of a stray error; after that only the end of the context frees it.
                self.release(driver, memory, pools).or_else(|_| self.release(driver, memory, pools))?;
            } else {
                at += 1;
            }
        }
        if quiet {
            for unused in self.registered.extract_if(.., |registration| registration.users == 0) {
                let host = std::ptr::with_exposed_provenance_mut(unused.memory.addresses().start);
                // SAFETY: registered by `register`, and no work that may read it is left; `unused` keeps it mapped. A second call, in case
                // of a stray error, unregisters it or is refused.
                let unregister = || unsafe { (driver.cuMemHostUnregister)(host) };
                let code = if unregister() == SUCCESS { SUCCESS } else { unregister() };
                if code != SUCCESS {
                    std::mem::forget(unused); // still registered, so it stays mapped
                    return Err(("cuMemHostUnregister", code));
                }
            }
        }
        Ok(())
    }

    /// One more user of `memory`, registered if it has none. Returns the device address. The context must be bound.
    pub(super) fn register(
        &mut self,
        driver: &Driver,
        memory: &Arc<dyn KeyMemory>,
        flags: u32,
    ) -> Result<sys::CUdeviceptr, Failed> {
        let host = memory.addresses();
        let start = std::ptr::with_exposed_provenance_mut::<c_void>(host.start);
        // The book keeps memory mapped, so no other memory has the same addresses.
        let known = self.registered.iter().position(|known| known.memory.addresses() == host);
        if known.is_none() {
            // SAFETY: the driver refuses a range that is not mapped; the book keeps it mapped until it is unregistered. The device only
            // reads it.
            match unsafe { (driver.cuMemHostRegister_v2)(start, host.len(), flags) } {
                SUCCESS => {}
                code => return Err(("cuMemHostRegister_v2", code)),
            }
            // Without an address no work can read it, and without users a sweep unregisters it.
            self.registered.push(Registration { memory: Arc::clone(memory), mapped: None, users: 0 });
        }
        let at = known.unwrap_or(self.registered.len() - 1);
        let known = &mut self.registered[at];
        let mapped = match known.mapped {
            Some(mapped) => mapped,
            None => {
                let mut mapped = 0;
                // SAFETY: an out pointer, registered memory, and 0.
                match unsafe { (driver.cuMemHostGetDevicePointer_v2)(&raw mut mapped, start, 0) } {
                    SUCCESS => *known.mapped.insert(mapped),
                    code => return Err(("cuMemHostGetDevicePointer_v2", code)),
                }
            }
        };
        known.users += 1;
        Ok(mapped)
    }

    /// One user less of the memory at `host`.
    pub(super) fn unregister(&mut self, host: &Range<usize>) {
        let known = self.registered.iter_mut().find(|known| known.memory.addresses() == *host);
        known.into_iter().for_each(|known| known.users -= 1);
    }

    /// The device was given up, and may still read registered memory: it stays mapped for good.
    pub(super) fn keep_registered(&self) {
        self.registered.iter().for_each(|known| std::mem::forget(Arc::clone(&known.memory)));
    }

    fn release(&mut self, driver: &Driver, memory: DriverMemory, pools: bool) -> Result<(), Failed> {
        let (call, code) = match memory {
            DriverMemory::Device(pointer, _) if pools => {
                let stream = self.pool(driver)?;
                // SAFETY: allocated by `cuMemAllocAsync` of this pool, freed once, no longer in use (see `sweep`).
                ("cuMemFreeAsync", unsafe { (driver.cuMemFreeAsync)(pointer, stream) })
            }
            // SAFETY: allocated by `cuMemAlloc`, freed once, no longer in use.
            DriverMemory::Device(pointer, _) => ("cuMemFree_v2", unsafe { (driver.cuMemFree_v2)(pointer) }),
            // SAFETY: allocated by `cuMemHostAlloc`, freed once, no longer in use.
            DriverMemory::Host(memory) => ("cuMemFreeHost", unsafe { (driver.cuMemFreeHost)(memory.host.0) }),
        };
        if code == SUCCESS { Ok(()) } else { Err((call, code)) }
    }

    pub(super) fn is_settled(&self) -> bool {
        let is_used = |registration: &Registration| registration.users > 0;
        self.graves.is_empty()
            && self.lines.iter().all(|line| !line.orphan)
            && self.registered.iter().all(is_used)
    }

    pub(super) fn close(&mut self, driver: &Driver) {
        self.modules.clear();
        self.has_streams = false;
        if let Some(stream) = self.pool.take() {
            // SAFETY: created by `pool`, destroyed once.
            let _swallowed = unsafe { (driver.cuStreamDestroy_v2)(stream.0) };
        }
    }
}
