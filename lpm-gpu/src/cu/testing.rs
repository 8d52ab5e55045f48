//! Chooses the driver of a test: `mockcuda`, or with `LPM_GPU=real` the host's. Cargo puts `libmockcuda.so` next to the test
//! binary. It is opened by its path before anything looks up `libcuda.so`; by its SONAME, that name then resolves to the mock.

use super::{Device, environment, probe};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The driver of a test. The mock's switches and counters are global: a test that uses them holds [`exclusive`].
#[derive(Clone, Copy, Debug)]
pub enum TestDriver {
    /// `mockcuda`.
    Mock(Mock),
    /// The host's driver, with a device.
    Real,
}

impl TestDriver {
    /// The mock's controls, if the driver is the mock.
    #[must_use]
    pub const fn mock(self) -> Option<Mock> {
        match self {
            Self::Mock(mock) => Some(mock),
            Self::Real => None,
        }
    }
}

/// Loads the driver for this test; `None` without one, after printing `SKIPPED` and the reason.
///
/// # Panics
/// If `FWD_REQUIRE` names `gpu` and there is no driver.
#[must_use]
pub fn driver() -> Option<TestDriver> {
    static DRIVER: OnceLock<Result<TestDriver, String>> = OnceLock::new();
    match DRIVER.get_or_init(load) {
        Ok(driver) => Some(*driver),
        Err(reason) => {
            fib::testing::skip("gpu", reason);
            None
        }
    }
}

/// The device to test on; `None` without a driver.
///
/// # Panics
/// As [`driver`], and if the driver's device cannot be opened.
#[must_use]
#[expect(clippy::panic, reason = "a test")]
pub fn device() -> Option<Device> {
    driver()?;
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => panic!("the driver is present, but its device cannot be opened: {error}"),
    }
}

/// Excludes other tests of this process, and resets the mock's switches when dropped.
#[must_use]
pub fn exclusive() -> Exclusive {
    static ONE: Mutex<()> = Mutex::new(());
    Exclusive { _one: ONE.lock().unwrap_or_else(PoisonError::into_inner) }
}

/// The mock for this test alone; `None`, after printing `SKIPPED`, with a real driver.
#[must_use]
pub fn exclusive_mock() -> Option<(Exclusive, Mock)> {
    let one = exclusive();
    let mock = driver()?.mock();
    if mock.is_none() {
        eprintln!("SKIPPED: only the mock injects faults and stalls, and counts allocations");
    }
    Some((one, mock?))
}

/// The guard of [`exclusive`].
#[derive(Debug)]
pub struct Exclusive {
    _one: MutexGuard<'static, ()>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Must not panic: the test may be panicking.
        if let Some(TestDriver::Mock(mock)) = driver()
            && !mock.find(c"mockcuda_fail_at").is_null()
        {
            mock.never_fail();
            mock.set_delay_us(0);
            mock.set_stalled(0);
            mock.set_no_pools(0);
            mock.watch_loads(0, 0);
            mock.set_devices(1);
            mock.set_threads_block_max(u32::MAX);
            environment::set(MOCK_CONNECTIONS);
            if std::thread::panicking() {
                mock.reset_device(0); // this test's state must not fail the next one
            }
        }
    }
}

fn load() -> Result<TestDriver, String> {
    if std::env::var("LPM_GPU").is_ok_and(|which| which == "real") {
        return probe().map(|_| TestDriver::Real).map_err(|error| error.to_string());
    }
    let path = library().ok_or("libmockcuda.so is not next to the test, and LPM_GPU is not 'real'")?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a string that ends in zero; the library's initialisers only read the environment. It is never closed.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        return Err(format!("{} cannot be loaded", path.display()));
    }
    environment::set(MOCK_CONNECTIONS);
    Ok(TestDriver::Mock(Mock { loaded: () }))
}

const MOCK_CONNECTIONS: usize = usize::MAX;

/// The mock's path: next to the test binary (`target/*/deps`), or in `deps` next to any other.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let names = ["libmockcuda.so", "deps/libmockcuda.so"];
    names.iter().map(|name| folder.join(name)).find(|path| path.exists())
}

/// The controls of `mockcuda`.
#[derive(Clone, Copy, Debug)]
pub struct Mock {
    /// Only `load` creates one, after it has loaded the library with `RTLD_GLOBAL`.
    loaded: (),
}

macro_rules! controls {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $symbol:literal;)*) => {
        impl Mock {
            $(
                $(#[$doc])+
                pub fn $name(self $(, $argument: $type)*) $(-> $result)? {
                    let function = self.symbol($symbol);
                    // SAFETY: mockcuda defines the function with this signature (its `control` module), and is never unloaded.
                    unsafe {
                        let function = std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) $(-> $result)?>(function);
                        function($($argument),*)
                    }
                }
            )*
        }
    };
}

controls! {
    /// Driver calls so far, without `cuGetErrorName`.
    calls() -> u64 = c"mockcuda_calls";
    /// Driver call `index`, from 0, returns `code` once. A code that ends the context persists until its release.
    fail_at(index: u64, code: u32) = c"mockcuda_fail_at";
    /// Call `index` (from 0, counted from now) of function `name` returns `code` once; null cancels.
    fail_call_raw(name: *const c_char, index: u64, code: u32) = c"mockcuda_fail_call";
    /// Name of driver call `index`, or null.
    call_name_raw(index: u64) -> *const c_char = c"mockcuda_call_name";
    /// Stream operations so far: kernels, copies, fills, records.
    operations() -> u64 = c"mockcuda_operations";
    /// Operation `index`, counted as in [`Self::operations`], is not executed, and ends the context with `code`.
    fail_operation(index: u64, code: u32) = c"mockcuda_fail_operation";
    /// Stalls all streams while not 0.
    set_stalled(stalled: u32) = c"mockcuda_set_stalled";
    /// The driver's function: destroys the context of device `index`, however often it is retained.
    reset_device(index: i32) -> u32 = c"cuDevicePrimaryCtxReset_v2";
    /// Sets random delays of up to `max` microseconds before stream operations.
    set_delay_us(max: u32) = c"mockcuda_set_delay_us";
    /// Sets the number of devices.
    set_devices(devices: u32) = c"mockcuda_set_devices";
    /// Limits the threads of a block, as registers would.
    set_threads_block_max(threads: u32) = c"mockcuda_set_threads_block_max";
    /// Copies between the device and pageable memory so far.
    pageable_copies() -> u64 = c"mockcuda_pageable_copies";
    /// Bytes of all copies to device memory so far.
    bytes_copied_in() -> u64 = c"mockcuda_bytes_copied_in";
    /// 32-bit words that kernels read from global memory so far.
    words_read() -> u64 = c"mockcuda_words_read";
    /// While not 0, the device has no memory pools.
    set_no_pools(on: u32) = c"mockcuda_set_no_pools";
    /// Allocated device memory, bytes.
    memory_used() -> u64 = c"mockcuda_memory_used";
    /// Allocated page-locked host memory, bytes.
    host_used() -> u64 = c"mockcuda_host_used";
    /// Registered host memory, bytes.
    registered() -> u64 = c"mockcuda_registered";
    /// Starts counting memory transactions of loads from `bytes` bytes at device address `address`; 0 bytes: none.
    watch_loads(address: u64, bytes: u64) = c"mockcuda_watch_loads";
    /// Transactions of `bytes` bytes, 32 or 128: for each load of a warp, the aligned blocks of watched memory that it accesses.
    transactions(bytes: u64) -> u64 = c"mockcuda_transactions";
    /// Marks `words` words from device address `address` on as freed, until they are written or unmarked.
    mark_freed(address: u64, words: u64) = c"mockcuda_mark_freed";
    /// Unmarks words.
    unmark_freed(address: u64, words: u64) = c"mockcuda_unmark_freed";
    /// Kernel reads of words marked as freed.
    violations() -> u64 = c"mockcuda_violations";
}

impl Mock {
    /// Limits the connections to the device, as a real driver does, until [`Exclusive`] is dropped.
    pub fn set_connections(self, connections: usize) {
        environment::set(connections);
    }

    /// Call `index` of function `name` (from 0, counted from now) returns `code` once, however often a stream is polled.
    pub fn fail_call(self, name: &str, index: u64, code: u32) {
        let name = CString::new(name).unwrap_or_default();
        self.fail_call_raw(name.as_ptr(), index, code);
    }

    /// Functions that `run` calls, in order of their first calls, with their numbers of calls.
    pub fn calls_of(self, run: impl FnOnce()) -> Vec<(String, u64)> {
        let first = self.calls();
        run();
        let mut counts: Vec<(String, u64)> = Vec::new();
        for name in (first..self.calls()).map(|index| self.call_name(index)) {
            match counts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => counts.push((name, 1)),
            }
        }
        counts
    }

    /// Cancels [`Self::fail_at`], [`Self::fail_call`] and [`Self::fail_operation`].
    pub fn never_fail(self) {
        self.fail_call_raw(std::ptr::null(), 0, 0);
        self.fail_at(u64::MAX, 0);
        self.fail_operation(u64::MAX, 0);
    }

    /// Name of driver call `index`, counted as in [`Self::calls`], or empty.
    #[must_use]
    pub fn call_name(self, index: u64) -> String {
        let name = self.call_name_raw(index);
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null, so a string that ends in zero and lives as long as the library.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    #[expect(clippy::panic, reason = "a test")]
    fn symbol(self, name: &'static CStr) -> *mut c_void {
        let symbol = self.find(name);
        if symbol.is_null() {
            panic!("libmockcuda.so lacks {}", name.to_string_lossy());
        }
        symbol
    }

    fn find(self, name: &'static CStr) -> *mut c_void {
        let Self { loaded: () } = self;
        // SAFETY: a string that ends in zero.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    }
}
