//! One GPU: its context, its properties, and its memory (`reclaim` decides when memory is freed).

use super::driver::{Driver, NOT_READY, OUT_OF_MEMORY, SUCCESS, call};
use super::error::GpuError;
use super::kernel::Module;
use super::probe;
use super::reclaim::{Book, Failed, HostMemory, LoadedModule, Memory, OpenStream, STREAMS_MAX};
use super::room::Admitted;
use super::stream::{StreamProgress, poll};
use cudarc::driver::sys;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The oldest device the PTX is for: compute capability 7.5 (Turing).
const CAPABILITY_MIN: (u32, u32) = (7, 5);

/// Properties of a device. Those that only inform are `None` where the driver does not tell them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its number among the devices that the driver shows to this process.
    pub index: u32,
    /// Its name, as the driver reports it.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// What the driver supports.
    pub driver: super::DriverVersion,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Engines that copy while kernels run.
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
    /// The part of the cache that can be reserved for persisting accesses, bytes; 0 where that is not supported.
    pub l2_persisting_bytes_max: Option<u64>,
    /// Whether device memory can be allocated and freed while persistent kernels run ([`Resident`](super::Resident)),
    /// that is, whether the driver has stream-ordered memory pools.
    pub memory_pools: bool,
}

/// A GPU with its context. Clones share it; the context is released with the last clone and the last object made from
/// it.
#[derive(Clone)]
pub struct Device(Arc<Context>);

struct Context {
    driver: &'static Driver,
    index: sys::CUdevice,
    raw: Handle<sys::CUcontext>,
    /// Never reused in this process, unlike the address of a context.
    id: u64,
    /// The driver's error code that ended the context; 0 while it is usable.
    lost: AtomicU32,
    /// The device's streams, and the resources that wait to be freed.
    book: Arc<Mutex<Book>>,
    facts: Facts,
}

/// A driver handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle<T>(pub(super) T);

// SAFETY: handles of the driver API are tokens, and any thread with the context bound may use them. Addresses of
// page-locked memory are used only by their owners, which hold `Plain` elements (`Send` and `Sync`) and lend them under
// the rules of `&` and `&mut`.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// The longest time for an allocation; a system call may grow the device's pool.
const ALLOCATION_LIMIT: Duration = Duration::from_secs(30);

/// How long the last owner of a device waits for work that still runs on it.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// The pause between two polls for completion.
const PAUSE: Duration = Duration::from_micros(50);

/// The value of [`Context::lost`] for a device that did not respond; no driver call returned it.
const STALLED: u32 = u32::MAX;

thread_local! {
    /// The id of the context that is bound to this thread; 0 for none.
    static BOUND: Cell<u64> = const { Cell::new(0) };
}

/// Calls a driver function with the device's context bound to this thread. An error that ends the context is recorded,
/// and no call is made after it.
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
    /// Opens device `index` of those counted by [`probe`](super::probe), and retains its primary context.
    ///
    /// # Errors
    /// As [`probe`](super::probe); [`GpuError::NoDevice`] when there are fewer; [`GpuError::DeviceTooOld`] before compute
    /// capability 7.5; [`GpuError::Call`].
    pub fn open(index: u32) -> Result<Self, GpuError> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let (driver, found) = probe::init()?;
        let ordinal = match c_int::try_from(index) {
            Ok(ordinal) if index < found.devices => ordinal,
            _ => return Err(GpuError::NoDevice { wanted: index, count: found.devices }),
        };
        let mut device = 0;
        // SAFETY: the driver is initialised; takes an out pointer for the handle and an ordinal within the count.
        unsafe { call!(driver, cuDeviceGet(&raw mut device, ordinal)) }?;
        let facts = facts(driver, device, (index, found.driver))?;
        if facts.capability < CAPABILITY_MIN {
            return Err(GpuError::DeviceTooOld { have: facts.capability, want: CAPABILITY_MIN });
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: `device` is a device; what is retained here is released once, when the context is dropped.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        let device = Self(Arc::new(Context {
            driver,
            index: device,
            raw: Handle(raw),
            id: IDS.fetch_add(1, Ordering::Relaxed),
            lost: AtomicU32::new(0),
            book: book_of(device),
            facts,
        }));
        // Who has the device open already has loaded them, perhaps before a persistent kernel was launched.
        let mut book = device.book();
        if book.modules.is_empty() {
            book.modules = Module::load_all(&device)?;
        }
        drop(book);
        Ok(device)
    }

    /// The module `name`.
    pub(super) fn module(&self, name: &str) -> Option<LoadedModule> {
        self.book().modules.iter().find(|module| module.0 == name).copied()
    }

    /// The device's properties.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Whether its context has ended. Nothing works any more until all objects of this device are dropped and it is
    /// opened again.
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

    /// Device memory, bytes: free, and in all.
    fn memory_info(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: takes two out pointers for sizes.
        unsafe { on!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok((free as u64, total as u64))
    }

    /// Whether both are the same context.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The raw context.
    pub(super) fn context(&self) -> sys::CUcontext {
        self.0.raw.0
    }

    /// Binds the context to this thread for a call of `call`.
    #[inline]
    pub(super) fn bind(&self, call: &'static str) -> Result<&'static Driver, GpuError> {
        let context = &*self.0;
        if context.lost.load(Ordering::Relaxed) != 0 {
            return Err(self.lost_error(call));
        }
        if BOUND.get() != context.id {
            // SAFETY: the context was retained and lives as long as `self`.
            unsafe { call!(context.driver, cuCtxSetCurrent(context.raw.0)) }
                .inspect_err(|error| self.note(error))?;
            BOUND.set(context.id);
        }
        Ok(context.driver)
    }

    /// The result of `call`, which returned `code`.
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), GpuError> {
        self.0.driver.check(call, code).inspect_err(|error| self.note(error))
    }

    /// The error of a call that is not made because the context has ended.
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

    /// Records an error that ended the context.
    #[cold]
    fn note(&self, error: &GpuError) {
        if let GpuError::Call { code, lost: true, .. } = *error {
            // The first error is the cause.
            let _first = self.0.lost.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives up the device because `what` did not finish within `limit`. From now on the device is
    /// [lost](Self::is_lost), no driver call is made, and dropped objects are leaked, because the driver would wait for
    /// work that never finishes. Callers with a wait loop of their own call this;
    /// [`Stream::finish`](super::Stream::finish) and [`Event::wait`](super::Event::wait) do it themselves. Returns
    /// [`GpuError::Stalled`].
    #[cold]
    pub fn give_up(&self, what: &'static str, limit: Duration) -> GpuError {
        self.0.lost.store(STALLED, Ordering::Relaxed);
        GpuError::Stalled { what, limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
    }

    /// The device's streams and the resources that wait to be freed.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees resources that nothing uses any more.
    fn sweep(&self, book: &mut Book) {
        let Ok(driver) = self.bind("cuStreamQuery") else { return };
        if let Err(failed) = book.sweep(driver, self.0.facts.memory_pools) {
            let _noted = self.failed(failed); // recorded for the next call; no caller here to return it to
        }
    }

    /// The error of a driver call that the book made.
    #[cold]
    fn failed(&self, (call, code): Failed) -> GpuError {
        let error = self.0.driver.error(call, code);
        self.note(&error);
        error
    }

    /// A new stream, which must not wait for persistent kernels if it is a `first` one.
    pub(super) fn open_stream(&self, priority: i32, first: bool) -> Result<OpenStream, GpuError> {
        let driver = self.bind("cuStreamCreateWithPriority")?;
        let mut book = self.book();
        self.sweep(&mut book);
        let opened = book.open(driver, priority, first).map_err(|failed| self.failed(failed))?;
        opened.ok_or(GpuError::NoStream { limit: STREAMS_MAX })
    }

    /// Has the driver make as many streams as there may be beside persistent kernels. Called before one is admitted.
    pub(super) fn prepare_streams(&self) -> Result<(), GpuError> {
        let driver = self.bind("cuStreamCreateWithPriority")?;
        self.book().prepare_streams(driver).map_err(|failed| self.failed(failed))
    }

    /// Calls `change` with the persistent kernels that are admitted, and the number of streams that must not wait for them.
    pub(super) fn with_admitted<R>(&self, change: impl FnOnce(&mut Admitted, usize) -> R) -> R {
        let mut book = self.book();
        let firsts = book.firsts();
        change(&mut book.admitted, firsts)
    }

    /// The stream's owner dropped it: it is destroyed when its work is done.
    pub(super) fn stream_closed(&self, progress: &Arc<StreamProgress>) {
        let mut book = self.book();
        book.closed(progress, !self.is_lost());
        self.sweep(&mut book);
    }

    /// Registers a persistent kernel with these arguments just before its launch; it stays until
    /// [`Self::resident_ended`]. Takes the lock that also guards the decision to make calls that wait for the whole
    /// device.
    pub(super) fn resident_began(&self, progress: &Arc<StreamProgress>, arguments: Vec<u64>) {
        self.book().resident_began(progress, arguments);
    }

    /// A persistent kernel has ended, and uses nothing any more.
    pub(super) fn resident_ended(&self, progress: &Arc<StreamProgress>) {
        let mut book = self.book();
        book.resident_ended(progress);
        self.sweep(&mut book);
    }

    /// Frees `memory` once no enqueued work can use it; returns at once. Errors are dropped: they mean that the context
    /// has ended, and its memory with it.
    pub(super) fn free(&self, memory: Memory) {
        if self.is_lost() {
            return;
        }
        let mut book = self.book();
        book.bury(memory);
        self.sweep(&mut book);
    }

    /// Allocates `bytes` bytes of device memory, not 0.
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
            // SAFETY: takes an out pointer for the pointer, and a size that is not 0.
            return unsafe { on!(self, cuMemAlloc_v2(&raw mut pointer, bytes)) }.map(|()| pointer);
        }
        let driver = self.bind("cuMemAllocAsync")?;
        let stream = {
            let mut book = self.book();
            self.sweep(&mut book);
            let stream = book.pool(driver).map_err(|failed| self.failed(failed))?;
            // SAFETY: takes an out pointer for the pointer, a size that is not 0, and a stream of this context.
            unsafe { on!(self, cuMemAllocAsync(&raw mut pointer, bytes, stream)) }?;
            stream
        };
        // Until the stream has reached the allocation, only that stream may use the memory.
        let there = || -> Result<bool, GpuError> {
            let driver = self.bind("cuStreamQuery")?;
            // SAFETY: the stream of the pool lives as long as the device is open.
            match unsafe { (driver.cuStreamQuery)(stream) } {
                NOT_READY => Ok(false),
                code => self.check("cuStreamQuery", code).map(|()| true),
            }
        };
        poll(self, "an allocation", ALLOCATION_LIMIT, there)
            .inspect_err(|_| self.free(Memory::Device(pointer, bytes)))?;
        Ok(pointer)
    }

    /// Waits briefly for the work of dropped objects to finish, so that their memory can be allocated.
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

    /// Page-locked memory of `bytes` bytes that was dropped and not freed yet, for reuse.
    pub(super) fn lend_again(&self, bytes: usize, flags: u32) -> Option<HostMemory> {
        let mut book = self.book();
        self.sweep(&mut book);
        book.lend_again(bytes, flags)
    }
}

/// The book of device `index`: the existing one if the device is open, else a new one. The contexts of one device are
/// the same context to the driver, and share its persistent kernels.
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
    /// Frees all waiting resources once the work that still runs is done; `false` when that takes too long. When the
    /// device is open elsewhere, the other owners free the rest.
    fn finish(&self) -> bool {
        // SAFETY: the context was retained and lives as long as `self`.
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
            return; // the driver would wait for work that never finishes
        }
        // SAFETY: retained once by `open`; every object of the context held the `Device`, so nothing uses it any more.
        let _swallowed = unsafe { call!(self.driver, cuDevicePrimaryCtxRelease_v2(self.index)) };
    }
}

/// Converts out-of-memory to its own error, with the bytes of `what` memory requested; returns other errors unchanged.
pub(super) fn memory_error(error: GpuError, what: &'static str, bytes: usize) -> GpuError {
    match error {
        GpuError::Call { code: OUT_OF_MEMORY, .. } => GpuError::OutOfMemory { what, bytes: bytes as u64 },
        other => other,
    }
}

/// Reads the properties of `device`. Only what kernels cannot be launched without may fail.
fn facts(
    driver: &Driver,
    device: sys::CUdevice,
    (index, version): (u32, super::DriverVersion),
) -> Result<Facts, GpuError> {
    use sys::CUdevice_attribute as A;
    let mut name: [c_char; 128] = [0; 128];
    // SAFETY: takes a buffer of 128 characters and its length; writes a string that ends in zero.
    let named = unsafe { call!(driver, cuDeviceGetName(name.as_mut_ptr(), 127, device)) };
    // SAFETY: zeroed before, at most 127 characters written: there is a zero within.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory_bytes = 0;
    // SAFETY: takes an out pointer for a size.
    let memory = unsafe { call!(driver, cuDeviceTotalMem_v2(&raw mut memory_bytes, device)) };
    let needed = |attribute| -> Result<u32, GpuError> {
        let mut value = 0;
        // SAFETY: takes an out pointer for a number; `attribute` is one of the enum's.
        unsafe { call!(driver, cuDeviceGetAttribute(&raw mut value, attribute, device)) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let told = |attribute| needed(attribute).ok();
    Ok(Facts {
        index,
        name: if named.is_ok() { name } else { format!("device {index}, which has no name") },
        capability: (
            needed(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            needed(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver: version,
        multiprocessors: needed(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        copy_engines: told(A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT),
        clock_khz: told(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock_khz: told(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: told(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        memory_bytes: memory.is_ok().then_some(memory_bytes as u64),
        l2_bytes: told(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map(u64::from),
        l2_persisting_bytes_max: told(A::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE).map(u64::from),
        // Known to every driver that we support.
        memory_pools: needed(A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0,
    })
}
