//! Device memory, pinned memory, copies and fills.

use super::{api, out};
use crate::control::control;
use crate::error::{
    ALREADY_REGISTERED, CallResult, INVALID_VALUE, NOT_REGISTERED, NOT_SUPPORTED, OUT_OF_MEMORY,
};
use crate::memory::MemoryKind;
use crate::state::{Context, driver};
use crate::stream::{Copy, CopyPlace, Operation, lock};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

/// Longest copy from pageable memory that the driver stages, so that the call returns at once.
const STAGED_MAX: usize = 64 << 10;

fn settle(context: &Context, what: &str) -> CallResult {
    let streams = lock(&context.streams).clone();
    for stream in streams {
        stream.wait(stream.last(), what)?;
    }
    context.fate.check()
}

fn address_of(pointer: *const c_void) -> usize {
    pointer.expose_provenance()
}

/// Whether host memory is pinned or registered: then copies are asynchronous.
fn is_pinned(address: usize) -> CallResult<bool> {
    let memory = driver().memory()?;
    let is_allocated = memory.find(address as u64).is_some_and(|a| a.kind == MemoryKind::Pinned);
    Ok(is_allocated || memory.registered(address as u64).is_some())
}

fn check_device_range(address: u64, bytes: usize) -> CallResult {
    driver().memory()?.range(address, bytes as u64).map(|_| ()).ok_or(INVALID_VALUE)
}

fn allocate(kind: MemoryKind, bytes: usize) -> CallResult<u64> {
    driver().current()?;
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let limit = if kind == MemoryKind::Device { control().memory_bytes } else { u64::MAX };
    driver().memory()?.allocate(kind, bytes as u64, limit).ok_or(OUT_OF_MEMORY)
}

/// Frees the allocation at `address` after all submitted operations of the context.
fn free(kind: MemoryKind, address: u64, what: &str) -> CallResult {
    settle(&*driver().current()?, what)?;
    if driver().memory()?.free(address, kind) { Ok(()) } else { Err(INVALID_VALUE) }
}

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        driver().current()?;
        let all = control().memory_bytes;
        let used = driver().memory()?.used(MemoryKind::Device);
        // SAFETY: out pointers of the caller.
        unsafe {
            out(free, all.saturating_sub(used) as usize)?;
            out(total, all as usize)
        }
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, allocate(MemoryKind::Device, bytes)?) }
    }

    fn cuMemFree_v2(address: u64) {
        free(MemoryKind::Device, address, "cuMemFree")
    }

    /// Allocates at once: the memory is valid before the stream reaches the call, which no correct program observes.
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) {
        if control().no_pools() {
            return Err(NOT_SUPPORTED);
        }
        driver().stream(stream)?;
        if address.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, allocate(MemoryKind::Device, bytes)?) }
    }

    fn cuMemFreeAsync(address: u64, stream: u64) {
        let stream = driver().stream(stream)?;
        if driver().memory()?.find(address).is_none_or(|a| a.address != address || a.kind != MemoryKind::Device) {
            return Err(INVALID_VALUE);
        }
        stream.submit(Operation::Free(address)).map(|_| ())
    }

    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) {
        if pointer.is_null() || flags & !7 != 0 {
            return Err(INVALID_VALUE);
        }
        let made = allocate(MemoryKind::Pinned, bytes)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(pointer, std::ptr::with_exposed_provenance_mut(made as usize)) }
    }

    fn cuMemFreeHost(pointer: *mut c_void) {
        free(MemoryKind::Pinned, address_of(pointer) as u64, "cuMemFreeHost")
    }

    fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: c_uint) {
        driver().current()?;
        let at = address_of(pointer);
        if flags != 0 || !is_pinned(at)? {
            return Err(INVALID_VALUE);
        }
        let mapped = driver().memory()?.registered(at as u64).unwrap_or(at as u64);
        // SAFETY: an out pointer of the caller.
        unsafe { out(address, mapped) }
    }

    /// Devices can only read memory registered with flag 8. The real driver rounds to pages, which overlap then, too.
    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) {
        driver().current()?;
        if pointer.is_null() || bytes == 0 || flags & !0b1011 != 0 {
            return Err(INVALID_VALUE);
        }
        let added = driver().memory()?.register(address_of(pointer) as u64, bytes as u64, flags & 8 != 0);
        if added { Ok(()) } else { Err(ALREADY_REGISTERED) }
    }

    /// Waits for all submitted operations of the context, as [`cuMemFreeHost`] does.
    fn cuMemHostUnregister(pointer: *mut c_void) {
        settle(&*driver().current()?, "cuMemHostUnregister")?;
        let removed = driver().memory()?.unregister(address_of(pointer) as u64);
        if removed { Ok(()) } else { Err(NOT_REGISTERED) }
    }

    /// From pageable memory the driver stages small copies and waits for large ones.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64) {
        let stream = driver().stream(stream)?;
        check_device_range(to, bytes)?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        let pageable = !is_pinned(address_of(from))?;
        control().pageable_copies.fetch_add(pageable.into(), Relaxed);
        let staged = pageable && bytes <= STAGED_MAX;
        let from = if staged {
            // SAFETY: the caller promises `bytes` readable bytes.
            CopyPlace::Staged(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.into())
        } else {
            CopyPlace::Host(address_of(from))
        };
        let ticket = stream.submit(Operation::Copy(Copy { to: CopyPlace::Device(to), from, bytes }))?;
        if pageable && !staged { stream.wait(ticket, "a copy to the device") } else { Ok(()) }
    }

    /// To pageable memory the driver waits until the copy is done.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64) {
        let stream = driver().stream(stream)?;
        check_device_range(from, bytes)?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let to = address_of(to);
        let ticket = stream.submit(Operation::Copy(Copy { to: CopyPlace::Host(to), from: CopyPlace::Device(from), bytes }))?;
        if is_pinned(to)? {
            return Ok(());
        }
        control().pageable_copies.fetch_add(1, Relaxed);
        stream.wait(ticket, "a copy to the host")
    }

    fn cuMemsetD32Async(address: u64, value: c_uint, count: usize, stream: u64) {
        let stream = driver().stream(stream)?;
        let bytes = count.checked_mul(4).filter(|_| address.is_multiple_of(4)).ok_or(INVALID_VALUE)?;
        check_device_range(address, bytes)?;
        stream.submit(Operation::Fill(address, count, value)).map(|_| ())
    }
}
