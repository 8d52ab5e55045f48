//! Initialisation, the device and its primary context, names of errors.

use super::{api, out, unsupported};
use crate::control::control;
use crate::error::{CallResult, INVALID_VALUE, NO_DEVICE, name};
use crate::state::{driver, set_current};
use std::ffi::{c_char, c_int, c_uint};

fn name_of(device: c_int) -> String {
    match device {
        0 => "mockcuda interpreter\0".to_owned(),
        _ => format!("mockcuda interpreter {device}\0"),
    }
}

/// Device attributes by their number in `CUdevice_attribute`, with the values of an H200.
fn attribute(number: u32) -> CallResult<u32> {
    Ok(match number {
        13 => 1_980_000,
        16 => 132,
        // Bus, device and domain of its PCI address, which no host has.
        33 => 0xc1,
        34 => 0x1f,
        50 => 0x10ff,
        // Memory clock in kHz, bus width in bits.
        36 => 3_201_000,
        37 => 6_144,
        // L2 cache, and its part for persisting accesses, bytes.
        38 => 50 << 20,
        108 => 32 << 20,
        40 => 3,
        75 => 9,
        76 => 0,
        113 => 1,
        115 => u32::from(!control().no_pools()),
        _ => return unsupported(&format!("attribute {number} of the device")),
    })
}

api! {
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

    fn cuDriverGetVersion(version: *mut c_int) {
        // SAFETY: an out pointer of the caller.
        unsafe { out(version, control().driver_version.cast_signed()) }
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        driver().check_initialised()?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(count, control().devices()) }
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        driver().check_device(ordinal)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(device, ordinal) }
    }

    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        driver().check_device(device)?;
        let length = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
        for (i, byte) in name_of(device).bytes().take(length).enumerate() {
            // SAFETY: the caller gives room for `length` bytes, and `i` is below it.
            unsafe { out(name.wrapping_add(i), byte.cast_signed()) }?;
        }
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        driver().check_device(device)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(bytes, control().memory_bytes as usize) }
    }

    fn cuDeviceGetAttribute(value: *mut c_int, number: c_uint, device: c_int) {
        driver().check_device(device)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(value, attribute(number)?.cast_signed()) }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) {
        driver().check_device(device)?;
        if context.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(context, driver().retain_primary(device)) }
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        driver().check_device(device)?;
        driver().release_primary(device, false)
    }

    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        driver().check_device(device)?;
        driver().release_primary(device, true)
    }

    fn cuCtxSetCurrent(context: u64) {
        driver().check_initialised()?;
        if context != 0 {
            driver().context(context)?;
        }
        set_current(context);
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        driver().current()?;
        // SAFETY: out pointers of the caller.
        unsafe {
            out(least, 0)?;
            out(greatest, -5)
        }
    }
}

/// The name of an error code. Not counted as a driver call, because tests call it to report errors.
///
/// # Safety
/// `to` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_uint, to: *mut *const c_char) -> c_uint {
    let found = name(code);
    // SAFETY: an out pointer of the caller.
    match unsafe { out(to, found.map_or(std::ptr::null(), |name| name.as_ptr())) } {
        Ok(()) if found.is_some() => 0,
        _ => INVALID_VALUE,
    }
}
