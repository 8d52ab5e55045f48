//! Initialisation, the device, contexts, error names, and the look-up of functions.

use super::{api, functions, out, out_if};
use crate::control::control;
use crate::error::{INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, NOT_FOUND, describe};
use crate::exec::grid::MULTIPROCESSORS;
use crate::state::{current_handle, driver, pop_current, push_current, set_current};
use crate::stream::lock;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// The device's name.
const NAME: &[u8] = b"mockcuda interpreter\0";
const UUID: [u8; 16] = *b"mockcuda--------";

/// Attributes of the device by their number in `CUdevice_attribute`: those of an H200 where a program may ask for them.
fn attribute(number: u32) -> i32 {
    match number {
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        9 | 12 | 82 => 65_536,
        10 => 32,
        11 => i32::MAX,
        13 => 1_980_000,
        14 => 512,
        // GPU_OVERLAP, CAN_MAP_HOST_MEMORY, CONCURRENT_KERNELS, UNIFIED_ADDRESSING, STREAM_PRIORITIES, L1 caches,
        // HOST_REGISTER and using its pointers, stream memory operations, cooperative launch.
        115 => i32::from(!control().no_pools()),
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 91 | 92 | 95 | 99 => 1,
        16 => MULTIPROCESSORS.cast_signed(),
        33 => 1,
        36 => 3_201_000,
        37 => 6_144,
        38 => 50 << 20,
        39 => 2_048,
        40 => 3,
        75 => 9,
        76 => 0,
        81 => 228 << 10,
        97 => 227 << 10,
        106 => 32,
        108 => 32 << 20,
        109 => 128 << 20,
        _ => 0,
    }
}

api! {
    /// Initialises the driver.
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if control().no_device() {
            return Err(NO_DEVICE);
        }
        driver().initialise();
        Ok(())
    }

    /// The driver's version.
    fn cuDriverGetVersion(version: *mut c_int) {
        // SAFETY: an out pointer of the caller.
        unsafe { out(version, control().driver_version().cast_signed()) }
    }

    /// One device, or none.
    fn cuDeviceGetCount(count: *mut c_int) {
        driver().check_initialised()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(count, c_int::from(!control().no_device())) }
    }

    /// The device number.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        driver().check_device(ordinal)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(device, ordinal) }
    }

    /// The device's name.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        driver().check_device(device)?;
        let length = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
        for (i, byte) in NAME.iter().take(length).enumerate() {
            // SAFETY: the caller gives room for `length` bytes, and `i` is below it.
            unsafe { out(name.wrapping_add(i), byte.cast_signed()) }?;
        }
        Ok(())
    }

    /// A made-up identifier.
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) {
        driver().check_device(device)?;
        // SAFETY: an out pointer of the caller, 16 bytes.
        unsafe { out(uuid, UUID) }
    }

    /// As `cuDeviceGetUuid`.
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) {
        driver().check_device(device)?;
        // SAFETY: an out pointer of the caller, 16 bytes.
        unsafe { out(uuid, UUID) }
    }

    /// The device's memory.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        driver().check_device(device)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(bytes, control().memory_bytes() as usize) }
    }

    /// An attribute.
    fn cuDeviceGetAttribute(value: *mut c_int, number: c_uint, device: c_int) {
        driver().check_device(device)?;
        if !(1..=200).contains(&number) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(value, attribute(number)) }
    }

    /// The PCI address, which is made up.
    fn cuDeviceGetPCIBusId(name: *mut c_char, length: c_int, device: c_int) {
        driver().check_device(device)?;
        let length = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
        for (i, byte) in b"0000:01:00.0\0".iter().take(length).enumerate() {
            // SAFETY: the caller gives room for `length` bytes, and `i` is below it.
            unsafe { out(name.wrapping_add(i), byte.cast_signed()) }?;
        }
        Ok(())
    }

    /// Retains the primary context.
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) {
        driver().check_device(device)?;
        if context.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, driver().retain_primary()) }
    }

    /// Releases it; the last release ends it.
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        driver().check_device(device)?;
        driver().release_primary()
    }

    /// Ends it at once, however often it is retained.
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        driver().check_device(device)?;
        driver().reset_primary()
    }

    /// Whether it is retained.
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        driver().check_device(device)?;
        // SAFETY: out pointers of the caller.
        unsafe {
            out(flags, 0)?;
            out(active, c_int::from(driver().primary_active()))
        }
    }

    /// Flags mean nothing here.
    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) {
        driver().check_device(device)
    }

    /// A context of its own, made current.
    fn cuCtxCreate_v2(context: *mut u64, _flags: c_uint, device: c_int) {
        driver().check_device(device)?;
        let handle = driver().new_context();
        push_current(handle);
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, handle) }
    }

    /// As `cuCtxCreate_v2`; affinities mean nothing here.
    fn cuCtxCreate_v3(context: *mut u64, _affinities: *mut c_void, _count: c_int, _flags: c_uint, device: c_int) {
        driver().check_device(device)?;
        let handle = driver().new_context();
        push_current(handle);
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, handle) }
    }

    /// Ends a context of its own.
    fn cuCtxDestroy_v2(context: u64) {
        if current_handle() == context {
            pop_current();
        }
        driver().destroy_context(context)
    }

    /// Makes a context current in this thread.
    fn cuCtxSetCurrent(context: u64) {
        driver().check_initialised()?;
        if context != 0 {
            driver().context(context).map_err(|_| INVALID_CONTEXT)?;
        }
        set_current(context);
        Ok(())
    }

    /// The context that is current in this thread, or null.
    fn cuCtxGetCurrent(context: *mut u64) {
        driver().check_initialised()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, current_handle()) }
    }

    /// Makes a context current until the pop.
    fn cuCtxPushCurrent_v2(context: u64) {
        driver().context(context).map_err(|_| INVALID_CONTEXT)?;
        push_current(context);
        Ok(())
    }

    /// Back to the one before.
    fn cuCtxPopCurrent_v2(context: *mut u64) {
        let popped = pop_current().ok_or(INVALID_CONTEXT)?;
        // SAFETY: null or an out pointer of the caller.
        unsafe { out_if(context, popped) };
        Ok(())
    }

    /// The device of the current context.
    fn cuCtxGetDevice(device: *mut c_int) {
        driver().current_even_lost()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(device, 0) }
    }

    /// Flags mean nothing here.
    fn cuCtxGetFlags(flags: *mut c_uint) {
        driver().current()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(flags, 0) }
    }

    /// Flags mean nothing here.
    fn cuCtxSetFlags(_flags: c_uint) {
        driver().current().map(|_| ())
    }

    /// Waits for all streams of the context.
    fn cuCtxSynchronize() {
        let context = driver().current()?;
        let streams = lock(&context.streams).clone();
        for stream in streams {
            if lock(&stream.capture).is_some() {
                return Err(crate::error::CAPTURE_UNSUPPORTED);
            }
            stream.wait(stream.last(), "cuCtxSynchronize")?;
        }
        context.fate.check()
    }

    /// Keeps a limit, and does nothing with it.
    fn cuCtxSetLimit(limit: c_uint, value: usize) {
        let context = driver().current()?;
        lock(&context.limits).insert(limit, value as u64);
        Ok(())
    }

    /// The limit that was set, or 0.
    fn cuCtxGetLimit(value: *mut usize, limit: c_uint) {
        let context = driver().current()?;
        let kept = lock(&context.limits).get(&limit).copied().unwrap_or(0);
        // SAFETY: an out pointer of the caller.
        unsafe { out(value, kept as usize) }
    }

    /// There is no cache.
    fn cuCtxResetPersistingL2Cache() {
        driver().current().map(|_| ())
    }

    /// There is no cache.
    fn cuCtxGetCacheConfig(config: *mut c_uint) {
        driver().current()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(config, 0) }
    }

    /// There is no cache.
    fn cuCtxSetCacheConfig(_config: c_uint) {
        driver().current().map(|_| ())
    }

    /// The mock's version of the interface.
    fn cuCtxGetApiVersion(_context: u64, version: *mut c_uint) {
        // SAFETY: an out pointer of the caller.
        unsafe { out(version, 3020) }
    }

    /// Priorities as a current device has them; they mean nothing here.
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        driver().current()?;
        // SAFETY: null or out pointers of the caller.
        unsafe {
            out_if(least, 0);
            out_if(greatest, -5);
        }
        Ok(())
    }

    /// The address of a function: the newest version of its name.
    fn cuGetProcAddress_v2(name: *const c_char, function: *mut usize, version: c_int, _flags: u64, status: *mut c_uint) {
        let found = look_up(name, version)?;
        // SAFETY: out pointers of the caller; the second may be null.
        unsafe {
            out_if(status, if found == 0 { 1 } else { 0 });
            out(function, found)
        }
    }

    /// As `cuGetProcAddress_v2`, with an error when there is none.
    fn cuGetProcAddress(name: *const c_char, function: *mut usize, version: c_int, _flags: u64) {
        let found = look_up(name, version)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(function, found) }?;
        if found == 0 { Err(NOT_FOUND) } else { Ok(()) }
    }
}

fn look_up(name: *const c_char, _version: c_int) -> Result<usize, u32> {
    if name.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: a C string of the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| INVALID_VALUE)?;
    let names = [format!("{name}_v2\0"), format!("{name}\0")];
    let found = names.iter().find_map(|n| functions().iter().find(|row| row.0 == n));
    Ok(found.map_or(0, |row| row.1))
}

/// The name of a code. Not counted as a driver call: it is how calls are reported.
///
/// # Safety
/// `name` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, name: *mut *const c_char) -> c_uint {
    // SAFETY: an out pointer of the caller.
    unsafe { text(describe(code).map(|d| d.0), name) }
}

/// The description of a code. Not counted.
///
/// # Safety
/// `text_out` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_uint, text_out: *mut *const c_char) -> c_uint {
    // SAFETY: an out pointer of the caller.
    unsafe { text(describe(code).map(|d| d.1), text_out) }
}

/// # Safety
/// `to` is null or valid for a write.
unsafe fn text(text: Option<&'static str>, to: *mut *const c_char) -> c_uint {
    let found = text.map_or(std::ptr::null(), |t| t.as_ptr().cast());
    // SAFETY: the caller's promise.
    match unsafe { out(to, found) } {
        Ok(()) if text.is_some() => 0,
        _ => INVALID_VALUE,
    }
}
