//! The driver functions in use, looked up before the first call; results are plain numbers, and the compiler checks each
//! signature against cudarc's. `cudarc::driver::sys` looks up a function at its first call, and panics if it is missing. It
//! also returns a Rust `enum` of one version's codes, so a later driver's code would be undefined behaviour.

use super::environment;
use super::error::{GpuError, ends_context};
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(super) const SUCCESS: u32 = 0;
pub(super) const OUT_OF_MEMORY: u32 = 2;
pub(super) const NOT_READY: u32 = 600;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RawHandle<T>(pub(super) T);

// SAFETY: driver handles are tokens that any thread with the context bound may use. Addresses of page-locked memory are
// used only by their owners, which hold `Plain` elements (`Send` and `Sync`) and lend them under the rules of `&` and `&mut`.
unsafe impl<T> Send for RawHandle<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for RawHandle<T> {}

macro_rules! functions {
    ($($name:ident($($type:ty),* $(,)?);)*) => {
        $(const _: unsafe fn($($type),*) -> sys::CUresult = sys::$name;)*

        #[expect(non_snake_case, reason = "the driver's names")]
        pub(super) struct Driver {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> u32,)*
            cuGetErrorName: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
        }

        impl Driver {
            fn look_up() -> Result<Self, GpuError> {
                Ok(Self {
                    $($name: {
                        // SAFETY: `is_present` found the library, so `culib` does not panic. The type is that in cudarc's
                        // declaration (checked above) except for the result, a C enum that a u32 holds. cudarc keeps the
                        // library in a static and never unloads it, so the pointer outlives the symbol.
                        unsafe {
                            *sys::culib()
                                .get::<unsafe extern "C" fn($($type),*) -> u32>(concat!(stringify!($name), "\0").as_bytes())
                                .map_err(|_| GpuError::MissingSymbol { name: stringify!($name) })?
                        }
                    },)*
                    cuGetErrorName: {
                        // SAFETY: as for the others; `CUresult cuGetErrorName(CUresult error, const char **pStr)` (cuda.h).
                        unsafe {
                            *sys::culib()
                                .get::<unsafe extern "C" fn(u32, *mut *const c_char) -> u32>(b"cuGetErrorName\0")
                                .map_err(|_| GpuError::MissingSymbol { name: "cuGetErrorName" })?
                        }
                    },
                })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut sys::CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    cuDeviceTotalMem_v2(*mut usize, sys::CUdevice);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
    cuCtxSetCurrent(sys::CUcontext);
    cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
    cuMemFree_v2(sys::CUdeviceptr);
    cuMemAllocAsync(*mut sys::CUdeviceptr, usize, sys::CUstream);
    cuMemFreeAsync(sys::CUdeviceptr, sys::CUstream);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemHostGetDevicePointer_v2(*mut sys::CUdeviceptr, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemsetD32Async(sys::CUdeviceptr, c_uint, usize, sys::CUstream);
    cuStreamCreateWithPriority(*mut sys::CUstream, c_uint, c_int);
    cuStreamDestroy_v2(sys::CUstream);
    cuStreamQuery(sys::CUstream);
    cuEventCreate(*mut sys::CUevent, c_uint);
    cuEventDestroy_v2(sys::CUevent);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventQuery(sys::CUevent);
    cuEventElapsedTime(*mut f32, sys::CUevent, sys::CUevent);
    cuModuleLoadDataEx(*mut sys::CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void);
    cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    cuFuncGetAttribute(*mut c_int, sys::CUfunction_attribute, sys::CUfunction);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, sys::CUfunction, c_int, usize);
    cuLaunchKernel(sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, sys::CUstream, *mut *mut c_void,
        *mut *mut c_void);
}

impl Driver {
    #[inline]
    pub(super) fn check(&self, call: &'static str, code: u32) -> Result<(), GpuError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    pub(super) fn error(&self, call: &'static str, code: u32) -> GpuError {
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: takes any number, known or not, and an out pointer, which it sets to null or to a static string.
        let known = unsafe { (self.cuGetErrorName)(code, &raw mut name) };
        let name = if known != SUCCESS || name.is_null() {
            "unnamed error".to_owned()
        } else {
            // SAFETY: not null, so a string of the driver that ends in zero and lives as long as the library.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        GpuError::Call { call, code, name, lost: ends_context(code) }
    }
}

macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        let driver: &$crate::cu::driver::Driver = $driver;
        let code = (driver.$name)($($argument),*);
        driver.check(stringify!($name), code)
    }};
}
pub(super) use call;

/// The driver with all its functions. Errors are not cached, because a driver may be installed later.
pub(super) fn driver() -> Result<&'static Driver, GpuError> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    // SAFETY: loads and unloads a library by name; its initialisers are as safe as any shared library's.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoDriver { tried: "libcuda.so, libcuda.so.1".to_owned() });
    }
    let driver = Driver::look_up()?;
    environment::settle(); // before `cuInit`, which needs the driver returned here
    Ok(DRIVER.get_or_init(|| driver))
}
