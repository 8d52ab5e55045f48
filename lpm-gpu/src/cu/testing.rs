//! Which driver a test runs on: `mockcuda`, or the real one.
//!
//! `libmockcuda.so` lies beside the test binary, where cargo puts the libraries that tests depend on. It is opened by its path,
//! before anything asks for `libcuda.so`; its SONAME then makes it what that name means in this process. `LPM_GPU=real` takes
//! the real driver instead.

use super::{Device, probe};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The driver a test runs on. The mock's switches and counters are the process's: a test that uses them holds
/// [`exclusive`].
#[derive(Clone, Copy, Debug)]
pub enum TestDriver {
    /// `mockcuda`.
    Mock(Mock),
    /// The driver of this host, with a device.
    Real,
}

impl TestDriver {
    /// The mock's controls, when it is the mock.
    #[must_use]
    pub const fn mock(self) -> Option<Mock> {
        match self {
            Self::Mock(mock) => Some(mock),
            Self::Real => None,
        }
    }
}

/// The driver for this test, loaded. `None` when there is none, after printing `SKIPPED` and why.
///
/// # Panics
/// When the environment variable `FWD_REQUIRE` names `gpu` and there is no driver.
#[must_use]
pub fn driver() -> Option<TestDriver> {
    static DRIVER: OnceLock<Result<TestDriver, String>> = OnceLock::new();
    match DRIVER.get_or_init(load) {
        Ok(driver) => Some(*driver),
        Err(reason) => {
            skip(reason);
            None
        }
    }
}

/// The device to test on; `None` as [`driver`].
///
/// # Panics
/// As [`driver`], and when there is a driver and its device cannot be opened.
#[must_use]
#[expect(clippy::panic, reason = "a test")]
pub fn device() -> Option<Device> {
    driver()?;
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) => panic!("the driver is there and its device is not: {error}"),
    }
}

/// Keeps other tests of this process away from the driver, and puts the mock's switches back when dropped.
#[must_use]
pub fn exclusive() -> Exclusive {
    static ONE: Mutex<()> = Mutex::new(());
    Exclusive { _one: ONE.lock().unwrap_or_else(PoisonError::into_inner) }
}

/// See [`exclusive`].
#[derive(Debug)]
pub struct Exclusive {
    _one: MutexGuard<'static, ()>,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // No panic here: the test may be panicking already.
        if let Some(TestDriver::Mock(mock)) = driver()
            && !mock.find(c"mockcuda_fail_at").is_null()
        {
            mock.never_fail();
            mock.set_delay_us(0);
            mock.set_stalled(0);
            mock.set_no_pools(0);
            if std::thread::panicking() {
                mock.reset_device(0); // what this test has left is not the next one's fault
            }
        }
    }
}

/// Prints `SKIPPED`.
fn skip(reason: &str) {
    let required = std::env::var("FWD_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim().eq_ignore_ascii_case("gpu")),
        "FWD_REQUIRE names gpu: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
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
    Ok(TestDriver::Mock(Mock { loaded: () }))
}

/// Where the mock is: beside the test binary (`target/*/deps`), or in `deps` beside any other.
fn library() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let names = ["libmockcuda.so", "deps/libmockcuda.so"];
    names.iter().map(|name| folder.join(name)).find(|path| path.exists())
}

/// The controls of `mockcuda`.
#[derive(Clone, Copy, Debug)]
pub struct Mock {
    /// Only `load` makes one, once the library is there for all to find (`RTLD_GLOBAL`).
    loaded: (),
}

/// Defines controls: name, parameters, result, and the function that does it.
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
    /// Driver calls so far; asking for an error's name is none.
    calls() -> u64 = c"mockcuda_calls";
    /// The call that is number `index`, counted from 0 as [`Self::calls`] does, answers `code`, once. A code that ends the context
    /// keeps it ended until the context is released.
    fail_at(index: u64, code: u32) = c"mockcuda_fail_at";
    /// Call `index`, from 0 and from now on, of the function `name` answers `code`, once; null for none.
    fail_call_raw(name: *const c_char, index: u64, code: u32) = c"mockcuda_fail_call";
    /// The name of driver call `index`; null when there was none.
    call_name_raw(index: u64) -> *const c_char = c"mockcuda_call_name";
    /// Operations of streams so far: kernels, copies, fills, records.
    operations() -> u64 = c"mockcuda_operations";
    /// The operation that is number `index`, counted as [`Self::operations`] does, is not done, and ends the context with `code`:
    /// found out by the calls after it.
    fail_operation(index: u64, code: u32) = c"mockcuda_fail_operation";
    /// While not 0, no stream gets on.
    set_stalled(stalled: u32) = c"mockcuda_set_stalled";
    /// The driver's own: destroys the context of device `index` however often it is retained.
    reset_device(index: i32) -> u32 = c"cuDevicePrimaryCtxReset_v2";
    /// Puts counters to 0 and switches to what they are without environment; memory stays.
    reset() = c"mockcuda_reset";
    /// Up to so many microseconds are waited before an operation of a stream begins, by chance.
    set_delay_us(max: u32) = c"mockcuda_set_delay_us";
    /// The seed of what happens by chance.
    set_seed(seed: u64) = c"mockcuda_set_seed";
    /// While not 0, the device has no memory pools.
    set_no_pools(on: u32) = c"mockcuda_set_no_pools";
    /// The device's memory, bytes.
    set_memory_bytes(bytes: u64) = c"mockcuda_set_memory_bytes";
    /// Device memory that is allocated, bytes.
    memory_used() -> u64 = c"mockcuda_memory_used";
    /// Page-locked host memory that is allocated, bytes.
    host_used() -> u64 = c"mockcuda_host_used";
    /// 32-bit words that kernels have written to device memory.
    words_written() -> u64 = c"mockcuda_words_written";
    /// 32-bit words that kernels have read from device memory.
    words_read() -> u64 = c"mockcuda_words_read";
    /// Bytes that were copied to the device.
    bytes_to_device() -> u64 = c"mockcuda_bytes_to_device";
    /// Kernels must not read `words` words from device address `address` on, until they are written or unmarked.
    mark_freed(address: u64, words: u64) = c"mockcuda_mark_freed";
    /// They may.
    unmark_freed(address: u64, words: u64) = c"mockcuda_unmark_freed";
    /// Reads of words marked as freed, and writes of words that must not be written.
    violations() -> u64 = c"mockcuda_violations";
}

impl Mock {
    /// Call `index` of the function `name`, from 0 and from now on, answers `code`, once. Unlike the number of a call among all
    /// calls, this is the same call in every run, however often a stream is asked in between.
    pub fn fail_call(self, name: &str, index: u64, code: u32) {
        let name = CString::new(name).unwrap_or_default();
        self.fail_call_raw(name.as_ptr(), index, code);
    }

    /// The driver calls that `run` makes: each function with how often it is called, in the order in which they first are.
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

    /// Takes [`Self::fail_at`], [`Self::fail_call`] and [`Self::fail_operation`] back.
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
