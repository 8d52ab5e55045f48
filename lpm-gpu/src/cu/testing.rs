//! Chooses the driver of a test: `mockcuda`, or the real one.
//!
//! `libmockcuda.so` lies beside the test binary, where cargo puts the libraries that tests depend on. It is opened by
//! its path before anything looks up `libcuda.so`; because of its SONAME, that name then resolves to the mock in this
//! process. `LPM_GPU=real` uses the real driver instead.

use super::{Device, connections, probe};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The driver of a test. The mock's switches and counters are global to the process: a test that uses them holds
/// [`exclusive`].
#[derive(Clone, Copy, Debug)]
pub enum TestDriver {
    /// `mockcuda`.
    Mock(Mock),
    /// The driver of this host, with a device.
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

/// Loads the driver for this test. `None` when there is none, after printing `SKIPPED` and the reason.
///
/// # Panics
/// When the environment variable `FWD_REQUIRE` names `gpu` and there is no driver.
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

/// The device to test on; `None` as [`driver`].
///
/// # Panics
/// As [`driver`], and when there is a driver but its device cannot be opened.
#[must_use]
#[expect(clippy::panic, reason = "a test")]
pub fn device() -> Option<Device> {
    driver()?;
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => panic!("the driver is there and its device is not: {error}"),
    }
}

/// Locks out other tests of this process, and resets the mock's switches when dropped.
#[must_use]
pub fn exclusive() -> Exclusive {
    static ONE: Mutex<()> = Mutex::new(());
    Exclusive { _one: ONE.lock().unwrap_or_else(PoisonError::into_inner) }
}

/// The mock for this test alone; `None`, said aloud, when the driver is a real one.
#[must_use]
pub fn exclusive_mock() -> Option<(Exclusive, Mock)> {
    let one = exclusive();
    let mock = driver()?.mock();
    if mock.is_none() {
        eprintln!("SKIPPED: only the mock fails and stalls when told to, and counts what is allocated");
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
        // Must not panic, because the test may be panicking already.
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
            connections::set(MOCK_CONNECTIONS);
            if std::thread::panicking() {
                mock.reset_device(0); // state left by this test must not fail the next one
            }
        }
    }
}

fn load() -> Result<TestDriver, String> {
    if std::env::var("LPM_GPU").is_ok_and(|which| which == "real") {
        return probe().map(|_| TestDriver::Real).map_err(|error| error.to_string());
    }
    let path = library().ok_or("libmockcuda.so is not beside the test, and LPM_GPU is not 'real'")?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a string that ends in zero; the library's initialisers only read the environment. It is never closed.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        return Err(format!("{} cannot be loaded", path.display()));
    }
    connections::set(MOCK_CONNECTIONS);
    Ok(TestDriver::Mock(Mock { loaded: () }))
}

/// Streams of the mock share no connection.
const MOCK_CONNECTIONS: usize = usize::MAX;

/// The path of the mock: beside the test binary (`target/*/deps`), or in `deps` beside any other.
#[must_use]
pub fn library() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let names = ["libmockcuda.so", "deps/libmockcuda.so"];
    names.iter().map(|name| folder.join(name)).find(|path| path.exists())
}

/// The controls of `mockcuda`.
#[derive(Clone, Copy, Debug)]
pub struct Mock {
    /// Only `load` makes one, after it has loaded the library into the global scope (`RTLD_GLOBAL`).
    loaded: (),
}

/// Defines controls: name, parameters, result, and the library's function.
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
    /// Driver calls so far; calls of `cuGetErrorName` do not count.
    calls() -> u64 = c"mockcuda_calls";
    /// Driver call number `index`, counted from 0 as [`Self::calls`] does, returns `code`, once. A code that ends the
    /// context keeps it ended until the context is released.
    fail_at(index: u64, code: u32) = c"mockcuda_fail_at";
    /// Call `index` (from 0, counted from now on) of the function `name` returns `code`, once; null for none.
    fail_call_raw(name: *const c_char, index: u64, code: u32) = c"mockcuda_fail_call";
    /// The name of driver call `index`; null when there was none.
    call_name_raw(index: u64) -> *const c_char = c"mockcuda_call_name";
    /// Operations of streams so far: kernels, copies, fills, records.
    operations() -> u64 = c"mockcuda_operations";
    /// Operation number `index`, counted as [`Self::operations`] does, is not done, and ends the context with `code`,
    /// which later calls return.
    fail_operation(index: u64, code: u32) = c"mockcuda_fail_operation";
    /// While not 0, all streams stall.
    set_stalled(stalled: u32) = c"mockcuda_set_stalled";
    /// The driver's own function: destroys the context of device `index` however often it is retained.
    reset_device(index: i32) -> u32 = c"cuDevicePrimaryCtxReset_v2";
    /// Sets random delays of up to `max` microseconds before operations of a stream.
    set_delay_us(max: u32) = c"mockcuda_set_delay_us";
    /// The driver finds that many devices.
    set_devices(devices: u32) = c"mockcuda_set_devices";
    /// Blocks of a kernel have at most that many threads, as if registers allowed no more.
    set_threads_block_max(threads: u32) = c"mockcuda_set_threads_block_max";
    /// Copies between the device and pageable memory so far.
    pageable_copies() -> u64 = c"mockcuda_pageable_copies";
    /// Bytes of all copies to device memory so far.
    bytes_copied_in() -> u64 = c"mockcuda_bytes_copied_in";
    /// 32-bit words that kernels have read from global memory.
    words_read() -> u64 = c"mockcuda_words_read";
    /// While not 0, the device has no memory pools.
    set_no_pools(on: u32) = c"mockcuda_set_no_pools";
    /// Device memory that is allocated, bytes.
    memory_used() -> u64 = c"mockcuda_memory_used";
    /// Page-locked host memory that is allocated, bytes.
    host_used() -> u64 = c"mockcuda_host_used";
    /// Counts the memory transactions of loads from the `bytes` bytes at device address `address`, from 0 on; 0 bytes: none.
    watch_loads(address: u64, bytes: u64) = c"mockcuda_watch_loads";
    /// Transactions of `bytes` bytes, 32 or 128, of loads from the watched memory: for each load of a warp, the aligned pieces of memory
    /// that its lanes' addresses lie in.
    transactions(bytes: u64) -> u64 = c"mockcuda_transactions";
    /// Marks `words` words from device address `address` on as freed: kernels must not read them until they are written
    /// or unmarked.
    mark_freed(address: u64, words: u64) = c"mockcuda_mark_freed";
    /// Unmarks words.
    unmark_freed(address: u64, words: u64) = c"mockcuda_unmark_freed";
    /// Kernel reads of words marked as freed.
    violations() -> u64 = c"mockcuda_violations";
}

impl Mock {
    /// Makes readers share that many connections to the device, as those of a real driver do; until [`Exclusive`] is dropped.
    pub fn set_connections(self, connections: usize) {
        connections::set(connections);
    }

    /// Call `index` of the function `name` (from 0, counted from now on) returns `code`, once. Unlike a call's number
    /// among all calls, this is the same call in every run, however often a stream is polled in between.
    pub fn fail_call(self, name: &str, index: u64, code: u32) {
        let name = CString::new(name).unwrap_or_default();
        self.fail_call_raw(name.as_ptr(), index, code);
    }

    /// The driver calls of `run`: each function with its number of calls, in the order of the first calls.
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

    /// The name of driver call `index`, counted as [`Self::calls`] does; empty when there was none.
    #[must_use]
    pub fn call_name(self, index: u64) -> String {
        let name = self.call_name_raw(index);
        if name.is_null() {
            return String::new();
        }
        // SAFETY: not null, so a string that ends in zero and lives as long as the library.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The address of `name`.
    #[expect(clippy::panic, reason = "a test")]
    fn symbol(self, name: &'static CStr) -> *mut c_void {
        let symbol = self.find(name);
        if symbol.is_null() {
            panic!("libmockcuda.so lacks {}", name.to_string_lossy());
        }
        symbol
    }

    /// The address of `name`, null when there is none.
    fn find(self, name: &'static CStr) -> *mut c_void {
        let Self { loaded: () } = self;
        // SAFETY: a string that ends in zero.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    }
}
