//! One GPU: its context, properties and memory (`reclaim` decides when memory is freed).

use super::driver::{Driver, NOT_READY, OUT_OF_MEMORY, RawHandle, SUCCESS, call};
use super::error::GpuError;
use super::loader::{self, LoadedModule};
use super::node::node_of;
use super::probe;
use super::progress::StreamProgress;
use super::reclaim::{Book, DriverMemory, Failed, HostMemory, OpenStream, STREAMS_MAX};
use super::room::Admitted;
use cudarc::driver::sys;
use fib::KeyMemory;
use fib::host::Host;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The oldest device that the PTX supports: compute capability 7.5 (Turing).
const CAPABILITY_MIN: (u32, u32) = (7, 5);

/// Properties of a device. Optional ones are for information, and `None` if the driver does not report them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The driver's number of the device in this process.
    pub index: u32,
    /// Name reported by the driver.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// API version of the driver.
    pub driver: super::DriverVersion,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Copy engines, which work while kernels run.
    pub copy_engines: Option<u32>,
    /// Core clock, kHz.
    pub clock_khz: Option<u32>,
    /// Memory clock, kHz.
    pub memory_clock_khz: Option<u32>,
    /// Width of the memory bus, bits.
    pub memory_bus_bits: Option<u32>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Second-level cache, bytes.
    pub l2_bytes: Option<u64>,
    /// Part of the L2 cache that persisting accesses can reserve, bytes; 0 if unsupported.
    pub l2_persisting_bytes_max: Option<u64>,
    /// Whether device memory can be allocated and freed while persistent kernels run ([`Resident`](super::Resident)).
    pub memory_pools: bool,
    /// Address on the PCI bus, as the kernel writes it: `0000:8a:00.0`.
    pub pci_address: Option<String>,
    /// NUMA node of the host that the device is attached to. `None` if the kernel does not say.
    pub numa_node: Option<u32>,
    /// Whether memory can be registered for reading only ([`RegisteredMemory`](super::RegisteredMemory)).
    pub registers_read_only: Option<bool>,
}

/// A GPU with its context. Clones share it; the last clone or object made from it releases the context.
#[derive(Clone)]
pub struct Device(Arc<Context>);

struct Context {
    driver: &'static Driver,
    index: sys::CUdevice,
    raw: RawHandle<sys::CUcontext>,
    /// Unique in this process, unlike the address of a context.
    id: u64,
    /// The driver's error code that ended the context; 0 while usable.
    lost: AtomicU32,
    book: Arc<Mutex<Book>>,
    facts: Facts,
}

/// Limit of an allocation; a system call may grow the device's pool.
const ALLOCATION_LIMIT: Duration = Duration::from_secs(30);

/// How long the last owner waits for work that still runs.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_micros(50);

/// [`Context::lost`] of a device that did not respond; no driver call returns it.
const STALLED: u32 = u32::MAX;

thread_local! {
    static BOUND: Cell<u64> = const { Cell::new(0) };
}

/// Calls a driver function with the device's context bound to this thread; makes no call after the context has ended.
macro_rules! on {
    ($device:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let device: &$crate::cu::Device = $device;
        match device.bind(stringify!($name)) {
            Ok(driver) => {
                let code = (driver.$name)($($argument),*);
                device.check(stringify!($name), code)
            }
            Err(error) => Err(error),
        }
    }};
}
pub(super) use on;

impl Device {
    /// Opens device `index`, below the count of [`probe`](super::probe), and retains its primary context.
    ///
    /// # Errors
    /// Errors of [`probe`](super::probe); [`GpuError::NoDevice`] for an index out of range; [`GpuError::DeviceTooOld`] before
    /// compute capability 7.5; [`GpuError::Call`].
    pub fn open(index: u32) -> Result<Self, GpuError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (driver, found) = probe::init()?;
        let ordinal = match c_int::try_from(index) {
            Ok(ordinal) if index < found.devices => ordinal,
            _ => return Err(GpuError::NoDevice { wanted: index, count: found.devices }),
        };
        let mut device = 0;
        // SAFETY: the driver is initialised; an out pointer for the handle, and an ordinal within the count.
        unsafe { call!(driver, cuDeviceGet(&raw mut device, ordinal)) }?;
        let facts = facts(driver, device, (index, found.driver))?;
        if facts.capability < CAPABILITY_MIN {
            return Err(GpuError::DeviceTooOld { have: facts.capability, want: CAPABILITY_MIN });
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: `device` is a device; the drop of the context releases it once.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        let device = Self(Arc::new(Context {
            driver,
            index: device,
            raw: RawHandle(raw),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            lost: AtomicU32::new(0),
            book: book_of(device),
            facts,
        }));
        // Another owner has loaded them, perhaps before a persistent kernel was launched.
        let mut book = device.book();
        if book.modules.is_empty() {
            let driver = device.bind("cuModuleLoadDataEx")?;
            book.modules = loader::load_all(driver).inspect_err(|error| device.note(error))?;
        }
        drop(book);
        Ok(device)
    }

    pub(super) fn module(&self, name: &str) -> Option<LoadedModule> {
        self.book().modules.iter().find(|module| module.0 == name).copied()
    }

    /// The device's properties.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Whether the context has ended. Then drop all objects of this device and open it again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed) != 0
    }

    /// Free device memory, bytes.
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn free_bytes(&self) -> Result<u64, GpuError> {
        self.memory_info().map(|(free, _)| free)
    }

    /// Device memory in use by all processes, bytes.
    ///
    /// # Errors
    /// [`GpuError::Call`].
    pub fn used_bytes(&self) -> Result<u64, GpuError> {
        self.memory_info().map(|(free, total)| total.saturating_sub(free))
    }

    fn memory_info(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two out pointers for sizes.
        unsafe { on!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    #[inline]
    pub(super) fn bind(&self, call: &'static str) -> Result<&'static Driver, GpuError> {
        let context = &*self.0;
        if context.lost.load(Ordering::Relaxed) != 0 {
            return Err(self.lost_error(call));
        }
        if BOUND.get() != context.id {
            // SAFETY: the context is retained as long as `self` lives.
            unsafe { call!(context.driver, cuCtxSetCurrent(context.raw.0)) }
                .inspect_err(|error| self.note(error))?;
            BOUND.set(context.id);
        }
        Ok(context.driver)
    }

    #[inline]
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), GpuError> {
        self.0.driver.check(call, code).inspect_err(|error| self.note(error))
    }

    #[cold]
    fn lost_error(&self, call: &'static str) -> GpuError {
        match self.0.lost.load(Ordering::Relaxed) {
            STALLED => GpuError::Stalled { what: "earlier work", limit_ms: 0 },
            code => match self.0.driver.error(call, code) {
                GpuError::Call { call, code, name, .. } => GpuError::Call { call, code, name, lost: true },
                other => other,
            },
        }
    }

    #[cold]
    pub(super) fn note(&self, error: &GpuError) {
        if let GpuError::Call { code, lost: true, .. } = *error {
            let _first = self.0.lost.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives up the device because `what` exceeded `limit`: it is [lost](Self::is_lost), no driver call is made, and dropped
    /// objects leak, because the driver would wait for work that never ends. Returns [`GpuError::Stalled`].
    #[cold]
    pub fn give_up(&self, what: &'static str, limit: Duration) -> GpuError {
        self.0.lost.store(STALLED, Ordering::Relaxed);
        GpuError::Stalled { what, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep(&self, book: &mut Book) {
        let Ok(driver) = self.bind("cuStreamQuery") else { return };
        if let Err(failed) = book.sweep(driver, self.0.facts.memory_pools) {
            let _noted = self.failed(failed); // recorded; the next call returns it
        }
    }

    #[cold]
    fn failed(&self, (call, code): Failed) -> GpuError {
        let error = self.0.driver.error(call, code);
        self.note(&error);
        error
    }

    pub(super) fn open_stream(&self, priority: i32, first: bool) -> Result<OpenStream, GpuError> {
        let driver = self.bind("cuStreamCreateWithPriority")?;
        let mut book = self.book();
        self.sweep(&mut book);
        let opened = book.open(driver, priority, first).map_err(|failed| self.failed(failed))?;
        opened.ok_or(GpuError::NoStream { limit: STREAMS_MAX })
    }

    pub(super) fn prepare_streams(&self) -> Result<(), GpuError> {
        let driver = self.bind("cuStreamCreateWithPriority")?;
        self.book().prepare_streams(driver).map_err(|failed| self.failed(failed))
    }

    /// Calls `change` with the admitted persistent kernels, and the number of streams that must not wait for them.
    pub(super) fn with_admitted<R>(&self, change: impl FnOnce(&mut Admitted, usize) -> R) -> R {
        let mut book = self.book();
        let firsts = book.firsts();
        change(&mut book.admitted, firsts)
    }

    pub(super) fn stream_closed(&self, progress: &Arc<StreamProgress>) {
        let mut book = self.book();
        book.closed(progress, !self.is_lost());
        book.may_hang |= self.0.lost.load(Ordering::Relaxed) == STALLED;
        self.sweep(&mut book);
    }

    /// Registers a persistent kernel before its launch, under the lock that decides on calls that wait for the whole device.
    pub(super) fn resident_began(&self, progress: &Arc<StreamProgress>, arguments: Vec<u64>) {
        self.book().resident_began(progress, arguments);
    }

    pub(super) fn resident_ended(&self, progress: &Arc<StreamProgress>) {
        let mut book = self.book();
        book.resident_ended(progress);
        self.sweep(&mut book);
    }

    /// Frees `memory` once no enqueued work can use it. Errors mean that the context has ended, and its memory with it.
    pub(super) fn free(&self, memory: DriverMemory) {
        if self.is_lost() {
            return;
        }
        let mut book = self.book();
        book.bury(memory);
        self.sweep(&mut book);
    }

    /// Allocates device memory; `bytes` is not 0.
    pub(super) fn allocate(&self, bytes: usize) -> Result<sys::CUdeviceptr, GpuError> {
        let refused = match self.try_allocate(bytes) {
            Err(GpuError::Call { code: OUT_OF_MEMORY, .. }) => {
                self.settle().and_then(|()| self.try_allocate(bytes))
            }
            other => return other,
        };
        refused.map_err(|error| memory_error(error, "device", bytes))
    }

    fn try_allocate(&self, bytes: usize) -> Result<sys::CUdeviceptr, GpuError> {
        let mut pointer = 0;
        if !self.0.facts.memory_pools {
            // SAFETY: an out pointer for the address, and a size that is not 0.
            return unsafe { on!(self, cuMemAlloc_v2(&raw mut pointer, bytes)) }.map(|()| pointer);
        }
        let driver = self.bind("cuMemAllocAsync")?;
        let stream = {
            let mut book = self.book();
            self.sweep(&mut book);
            let stream = book.pool(driver).map_err(|failed| self.failed(failed))?;
            // SAFETY: an out pointer for the address, a size that is not 0, and a stream of this context.
            unsafe { on!(self, cuMemAllocAsync(&raw mut pointer, bytes, stream)) }?;
            stream
        };
        // Only the pool's stream may use the memory until it has reached the allocation.
        let there = || -> Result<bool, GpuError> {
            let driver = self.bind("cuStreamQuery")?;
            // SAFETY: the pool's stream lives as long as the device is open.
            match unsafe { (driver.cuStreamQuery)(stream) } {
                NOT_READY => Ok(false),
                code => self.check("cuStreamQuery", code).map(|()| true),
            }
        };
        poll(self, "an allocation", ALLOCATION_LIMIT, there)
            .inspect_err(|_| self.free(DriverMemory::Device(pointer, bytes)))?;
        Ok(pointer)
    }

    /// Waits briefly for the work of dropped objects, so that their memory can be allocated.
    fn settle(&self) -> Result<(), GpuError> {
        const PATIENCE: Duration = Duration::from_millis(200);
        let start = Instant::now();
        loop {
            let mut book = self.book();
            self.sweep(&mut book);
            if book.is_settled() || start.elapsed() > PATIENCE {
                return Ok(());
            }
            drop(book);
            self.bind("cuStreamQuery")?;
            std::thread::sleep(PAUSE);
        }
    }

    pub(super) fn reuse_host_memory(&self, bytes: usize, flags: u32) -> Option<HostMemory> {
        let mut book = self.book();
        self.sweep(&mut book);
        book.reuse_host_memory(bytes, flags)
    }

    /// Registers `memory` for this device to read; returns its device address.
    pub(super) fn register(&self, memory: &Arc<dyn KeyMemory>) -> Result<sys::CUdeviceptr, GpuError> {
        let driver = self.bind("cuMemHostRegister_v2")?;
        let is_read_only = self.facts().registers_read_only == Some(true);
        let read_only = if is_read_only { sys::CU_MEMHOSTREGISTER_READ_ONLY } else { 0 };
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | read_only;
        let mut book = self.book();
        self.sweep(&mut book);
        book.register(driver, memory, flags).map_err(|failed| self.failed(failed))
    }

    pub(super) fn unregister(&self, host: &Range<usize>) {
        let mut book = self.book();
        book.unregister(host);
        self.sweep(&mut book);
    }
}

/// The book of device `index`, shared by its owners: to the driver their contexts are one, with the same persistent kernels.
fn book_of(index: sys::CUdevice) -> Arc<Mutex<Book>> {
    static BOOKS: Mutex<Vec<(sys::CUdevice, Weak<Mutex<Book>>)>> = Mutex::new(Vec::new());
    let mut books = BOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    books.retain(|(_, book)| book.strong_count() > 0);
    if let Some(book) = books.iter().find(|(of, _)| *of == index).and_then(|(_, book)| book.upgrade()) {
        return book;
    }
    let book = Arc::new(Mutex::new(Book::default()));
    books.push((index, Arc::downgrade(&book)));
    book
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.0.facts.name).field("lost", &self.is_lost()).finish()
    }
}

impl Context {
    /// Frees buried resources once their work is done; the device's other owners free the rest. `false` if that takes too long.
    fn finish(&self) -> bool {
        // SAFETY: the context is retained as long as `self` lives.
        if unsafe { (self.driver.cuCtxSetCurrent)(self.raw.0) } != SUCCESS {
            return true; // the context has ended, and its memory with it
        }
        BOUND.set(self.id);
        let start = Instant::now();
        loop {
            let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            let swept = book.sweep(self.driver, self.facts.memory_pools);
            if Arc::strong_count(&self.book) > 1 {
                return true;
            }
            if swept.is_err() || book.is_settled() {
                book.close(self.driver);
                return true;
            }
            drop(book);
            if start.elapsed() > CLOSE_LIMIT {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let lost = *self.lost.get_mut();
        if lost == STALLED || (lost == 0 && !self.finish()) {
            self.book.lock().unwrap_or_else(PoisonError::into_inner).keep_registered();
            return; // the driver would wait for work that never ends
        }
        // SAFETY: retained once by `open`; all objects of the context hold the `Device`, so they are gone.
        let _swallowed = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.index)) };
    }
}

/// Polls `over`, at most `limit`; then `device` is given up. Pauses grow to about 10 us: a poll takes the submitters' lock.
pub(super) fn poll(
    device: &Device,
    what: &'static str,
    limit: Duration,
    mut over: impl FnMut() -> Result<bool, GpuError>,
) -> Result<(), GpuError> {
    const PAUSES_MAX: u32 = 512;
    let mut start = None;
    let mut pauses = 1;
    while !over()? {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
        if pauses < PAUSES_MAX {
            pauses *= 2;
            continue;
        }
        if start.get_or_insert_with(Instant::now).elapsed() > limit {
            return Err(device.give_up(what, limit));
        }
        std::thread::yield_now(); // the driver's threads may need this CPU
    }
    Ok(())
}

pub(super) fn memory_error(error: GpuError, what: &'static str, bytes: usize) -> GpuError {
    match error {
        GpuError::Call { code: OUT_OF_MEMORY, .. } => GpuError::OutOfMemory { what, bytes: bytes as u64 },
        other => other,
    }
}

fn facts(
    driver: &Driver,
    device: sys::CUdevice,
    (index, version): (u32, super::DriverVersion),
) -> Result<Facts, GpuError> {
    use sys::CUdevice_attribute as A;
    let mut name: [c_char; 128] = [0; 128];
    // SAFETY: a buffer of 128 characters, and a shorter length; writes a string that ends in zero.
    let named = unsafe { call!(driver, cuDeviceGetName(name.as_mut_ptr(), 127, device)) };
    // SAFETY: zeroed before, and at most 127 characters written, so a zero ends it.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory_bytes = 0;
    // SAFETY: an out pointer for a size.
    let memory = unsafe { call!(driver, cuDeviceTotalMem_v2(&raw mut memory_bytes, device)) };
    let needed = |attribute| -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: an out pointer for a number, and an attribute of the enum.
        unsafe { call!(driver, cuDeviceGetAttribute(&raw mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let optional = |attribute| needed(attribute).ok();
    let address = optional(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
        .zip(optional(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID))
        .zip(optional(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID))
        .map(|((domain, bus), device)| format!("{domain:04x}:{bus:02x}:{device:02x}.0")); // GPUs are function 0
    Ok(Facts {
        index,
        name: if named.is_ok() { name } else { format!("unnamed device {index}") },
        capability: (
            needed(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            needed(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver: version,
        multiprocessors: needed(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        copy_engines: optional(A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
        clock_khz: optional(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock_khz: optional(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: optional(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        memory_bytes: memory.is_ok().then_some(memory_bytes as u64),
        l2_bytes: optional(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map(u64::from),
        l2_persisting_bytes_max: optional(A::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE).map(u64::from),
        memory_pools: needed(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
        numa_node: address.as_deref().and_then(|address| node_of(&Host::here(), address)),
        pci_address: address,
        registers_read_only: optional(A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)
            .map(|yes| yes != 0),
    })
}
