//! Device memory, pinned memory, copies and fills.

use super::{api, out, out_if};
use crate::control::control;
use crate::error::{
    ALREADY_REGISTERED, Answer, CAPTURE_UNSUPPORTED, INVALID_VALUE, NOT_REGISTERED, NOT_SUPPORTED,
    OUT_OF_MEMORY,
};
use crate::memory::Kind;
use crate::state::{Context, driver};
use crate::stream::{Copy, End, Fill, Operation, Stream, lock};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Longest copy from pageable memory that the driver takes along at once.
const STAGED_MAX: usize = 64 << 10;

/// Waits for all that was asked of the context's streams: what freeing memory does.
fn settle(context: &Context, what: &str) -> Answer {
    let streams = lock(&context.streams).clone();
    for stream in streams {
        stream.wait(stream.last(), what)?;
    }
    context.fate.check()
}

fn address_of(pointer: *const c_void) -> usize {
    pointer.expose_provenance()
}

/// Whether host memory is known to the driver: then a copy is asynchronous.
fn is_pinned(address: usize) -> bool {
    driver().memory().is_ok_and(|m| m.find(address as u64).is_some_and(|a| a.kind != Kind::Device))
}

/// Hands over an operation of `stream`, ordered with the default stream.
pub(super) fn submit(stream: &Arc<Stream>, operation: Operation) -> Answer<u64> {
    order_with_default(stream)?;
    stream.submit(operation)
}

/// The default stream waits for all blocking ones, and they for it.
pub(super) fn order_with_default(stream: &Arc<Stream>) -> Answer {
    if !stream.blocking || lock(&stream.capture).is_some() {
        return Ok(());
    }
    let context = driver().current()?;
    if stream.id != 0 {
        let last = context.null.last();
        if !context.null.is_done(last) {
            stream.submit(Operation::Wait(Arc::clone(&context.null), last))?;
        }
        return Ok(());
    }
    let others = lock(&context.streams).clone();
    for other in others.iter().filter(|other| other.blocking && other.id != 0) {
        if lock(&other.capture).is_some() {
            return Err(crate::error::CAPTURE_IMPLICIT);
        }
        let last = other.last();
        if !other.is_done(last) {
            stream.submit(Operation::Wait(Arc::clone(other), last))?;
        }
    }
    Ok(())
}

fn check_device_range(address: u64, bytes: usize) -> Answer {
    let memory = driver().memory()?;
    if bytes == 0 || memory.range(address, bytes as u64).is_some() { Ok(()) } else { Err(INVALID_VALUE) }
}

/// Host memory to the device. From pageable memory the driver takes small copies along and waits for large ones.
fn to_device(to: u64, from: *const c_void, bytes: usize, stream: &Arc<Stream>, synchronous: bool) -> Answer {
    check_device_range(to, bytes)?;
    if from.is_null() && bytes > 0 {
        return Err(INVALID_VALUE);
    }
    let address = address_of(from);
    let capturing = lock(&stream.capture).is_some();
    let pageable = !is_pinned(address);
    let staged = pageable && !capturing && bytes <= STAGED_MAX;
    let from = if staged {
        // SAFETY: the caller of the copy promises `bytes` readable bytes.
        End::Staged(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.into())
    } else {
        End::Host(address)
    };
    let ticket = submit(stream, Operation::Copy(Copy { to: End::Device(to), from, bytes }))?;
    if capturing || (staged && !synchronous) || !(pageable || synchronous) {
        return Ok(());
    }
    stream.wait(ticket, "a copy to the device")
}

/// Device memory to the host. To pageable memory the driver waits for the copy.
fn to_host(to: *mut c_void, from: u64, bytes: usize, stream: &Arc<Stream>, synchronous: bool) -> Answer {
    check_device_range(from, bytes)?;
    if to.is_null() && bytes > 0 {
        return Err(INVALID_VALUE);
    }
    let address = address_of(to);
    let capturing = lock(&stream.capture).is_some();
    let ticket =
        submit(stream, Operation::Copy(Copy { to: End::Host(address), from: End::Device(from), bytes }))?;
    if capturing || (!synchronous && is_pinned(address)) {
        return Ok(());
    }
    stream.wait(ticket, "a copy to the host")
}

fn device_to_device(to: u64, from: u64, bytes: usize, stream: &Arc<Stream>) -> Answer<u64> {
    check_device_range(to, bytes)?;
    check_device_range(from, bytes)?;
    submit(stream, Operation::Copy(Copy { to: End::Device(to), from: End::Device(from), bytes }))
}

fn fill(address: u64, value: u32, unit: u8, count: usize, stream: u64, synchronous: bool) -> Answer {
    let bytes = count.checked_mul(unit.into()).ok_or(INVALID_VALUE)?;
    if !address.is_multiple_of(u64::from(unit)) {
        return Err(INVALID_VALUE);
    }
    let stream = driver().stream(stream)?;
    check_device_range(address, bytes)?;
    let ticket =
        submit(&stream, Operation::Fill(Fill { address, value, unit, width: count, height: 1, pitch: 0 }))?;
    if synchronous && lock(&stream.capture).is_none() { stream.wait(ticket, "a fill") } else { Ok(()) }
}

/// The end of a unified copy: an allocation, or any host address.
fn unified(address: u64) -> End {
    let known = driver().memory().is_ok_and(|m| m.find(address).is_some());
    if known { End::Device(address) } else { End::Host(address as usize) }
}

fn allocate(kind: Kind, bytes: usize, flags: u32) -> Answer<u64> {
    let context = driver().current()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if lock(&context.streams).iter().any(|s| lock(&s.capture).is_some()) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    let memory = driver().memory()?;
    memory.allocate(kind, bytes as u64, flags, context.id, control().memory_bytes()).ok_or(OUT_OF_MEMORY)
}

api! {
    /// Free and total memory.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        driver().current()?;
        let all = control().memory_bytes();
        let used = driver().memory()?.used(false);
        // SAFETY: out pointers of the caller.
        unsafe {
            out(free, all.saturating_sub(used) as usize)?;
            out(total, all as usize)
        }
    }

    /// Allocates device memory, full of poison.
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = allocate(Kind::Device, bytes, 0)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, made) }
    }

    /// Frees device memory, after all that was asked of the context is done.
    fn cuMemFree_v2(address: u64) {
        let context = driver().current()?;
        if address == 0 {
            return Ok(());
        }
        settle(&context, "cuMemFree")?;
        if driver().memory()?.free(address, Kind::Device) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Allocates at once: valid before the stream gets there, which no right program can tell.
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) {
        if control().no_pools() {
            return Err(NOT_SUPPORTED);
        }
        driver().stream(stream)?;
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = allocate(Kind::Device, bytes, 0)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, made) }
    }

    /// Frees when the stream gets there, without a wait for other streams.
    fn cuMemFreeAsync(address: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        if driver().memory()?.find(address).is_none_or(|a| a.address != address || a.kind != Kind::Device) {
            return Err(INVALID_VALUE);
        }
        submit(&stream, Operation::Free(address)).map(|_| ())
    }

    /// The allocation around an address.
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        driver().current()?;
        let found = driver().memory()?.find(address).ok_or(crate::error::NOT_FOUND)?;
        // SAFETY: null or out pointers of the caller.
        unsafe {
            out_if(base, found.address);
            out_if(bytes, found.bytes as usize);
        }
        Ok(())
    }

    /// Allocates pinned host memory.
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        if pointer.is_null() || flags & !7 != 0 {
            return Err(INVALID_VALUE);
        }
        let made = allocate(Kind::Pinned, bytes, flags)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(pointer, std::ptr::with_exposed_provenance_mut(made as usize)) }
    }

    /// As `cuMemHostAlloc` without flags.
    fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) {
        if pointer.is_null() {
            return Err(INVALID_VALUE);
        }
        let made = allocate(Kind::Pinned, bytes, 0)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(pointer, std::ptr::with_exposed_provenance_mut(made as usize)) }
    }

    /// Frees pinned host memory, after all that was asked of the context is done.
    fn cuMemFreeHost(pointer: *mut c_void) {
        let context = driver().current()?;
        settle(&context, "cuMemFreeHost")?;
        if driver().memory()?.free(address_of(pointer) as u64, Kind::Pinned) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// The device's address of pinned memory: the same.
    fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: c_uint) {
        driver().current()?;
        let at = address_of(pointer) as u64;
        if flags != 0 || driver().memory()?.find(at).is_none_or(|a| a.kind == Kind::Device) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, at) }
    }

    /// The flags of pinned memory.
    fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) {
        driver().current()?;
        let found = driver().memory()?.find(address_of(pointer) as u64).filter(|a| a.kind != Kind::Device);
        let found = found.ok_or(INVALID_VALUE)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(flags, found.flags) }
    }

    /// Lets kernels reach memory of the program.
    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) {
        let context = driver().current()?;
        if pointer.is_null() || bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let fresh = driver().memory()?.register(address_of(pointer) as u64, bytes as u64, flags, context.id);
        if fresh { Ok(()) } else { Err(ALREADY_REGISTERED) }
    }

    /// Takes that back.
    fn cuMemHostUnregister(pointer: *mut c_void) {
        let context = driver().current()?;
        settle(&context, "cuMemHostUnregister")?;
        let known = driver().memory()?.free(address_of(pointer) as u64, Kind::Registered);
        if known { Ok(()) } else { Err(NOT_REGISTERED) }
    }

    /// Managed memory is not modelled.
    fn cuMemAllocManaged(_address: *mut u64, _bytes: usize, _flags: c_uint) {
        Err(NOT_SUPPORTED)
    }

    /// Copies between any two ends.
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        let stream = driver().stream(0)?;
        let ticket = submit(&stream, Operation::Copy(Copy { to: unified(to), from: unified(from), bytes }))?;
        stream.wait(ticket, "cuMemcpy")
    }

    /// Copies between any two ends when the stream gets there.
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) {
        let stream = driver().stream(stream)?;
        submit(&stream, Operation::Copy(Copy { to: unified(to), from: unified(from), bytes })).map(|_| ())
    }

    /// Copies to the device, and waits.
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        to_device(to, from, bytes, &driver().stream(0)?, true)
    }

    /// Copies to the device.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) {
        to_device(to, from, bytes, &driver().stream(stream)?, false)
    }

    /// Copies to the host, and waits.
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        to_host(to, from, bytes, &driver().stream(0)?, true)
    }

    /// Copies to the host.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        to_host(to, from, bytes, &driver().stream(stream)?, false)
    }

    /// Copies on the device.
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        let stream = driver().stream(0)?;
        let ticket = device_to_device(to, from, bytes, &stream)?;
        stream.wait(ticket, "cuMemcpyDtoD")
    }

    /// Copies on the device.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        device_to_device(to, from, bytes, &driver().stream(stream)?).map(|_| ())
    }

    /// Fills with bytes, and waits.
    fn cuMemsetD8_v2(address: u64, value: u8, count: usize) {
        fill(address, value.into(), 1, count, 0, true)
    }

    /// Fills with bytes.
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: u64) {
        fill(address, value.into(), 1, count, stream, false)
    }

    /// Fills with 16-bit words.
    fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: u64) {
        fill(address, value.into(), 2, count, stream, false)
    }

    /// Fills with words, and waits.
    fn cuMemsetD32_v2(address: u64, value: c_uint, count: usize) {
        fill(address, value, 4, count, 0, true)
    }

    /// Fills with words.
    fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, stream: u64) {
        fill(address, value, 4, count, stream, false)
    }

    /// Kind of memory (attribute 2), its context (1), device address (3), host address (4).
    fn cuPointerGetAttribute(data: *mut c_void, attribute: c_int, address: u64) {
        driver().check_initialised()?;
        let found = driver().memory()?.find(address).ok_or(INVALID_VALUE)?;
        // SAFETY: the caller gives room for the attribute's type.
        unsafe {
            match attribute {
                1 => out(data.cast(), found.context),
                2 => out(data.cast(), if found.kind == Kind::Device { 2_u32 } else { 1 }),
                3 => out(data.cast(), address),
                4 if found.kind != Kind::Device => out(data.cast(), address),
                _ => Err(INVALID_VALUE),
            }
        }
    }
}
