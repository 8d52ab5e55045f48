//! Modules from PTX text, kernels and their attributes, launches.

use super::{api, out, unsupported};
use crate::control::control;
use crate::error::{
    CallResult, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY, NOT_FOUND, OUT_OF_RESOURCES,
    UNSUPPORTED_PTX,
};
use crate::exec::grid::Launch;
use crate::ptx::code::PtxKernel;
use crate::ptx::{PtxError, compile, parse};
use crate::state::{Object, driver};
use crate::stream::{Operation, lock};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex};

const CAPABILITY: u32 = 90;
const THREADS_MAX: u32 = 1024;
const THREADS_OF_MULTIPROCESSOR: u32 = 2048;
const SHARED_MAX: u32 = 48 << 10;
const SHARED_OF_MULTIPROCESSOR: u32 = 228 << 10;
const JIT_ERROR_LOG: u32 = 5;
const JIT_ERROR_LOG_BYTES: u32 = 6;

/// The first driver version that supports a PTX version, in the encoding of 12040 for 12.4 (PTX manual, release history).
fn driver_for_ptx(version: (u32, u32)) -> u32 {
    match version {
        (0..=5, _) => 8_000,
        (6, minor) if minor <= 3 => 9_000 + 500 * u32::from(minor > 1) + 500 * u32::from(minor > 2),
        (6, 4) => 10_010,
        (6, _) => 10_020,
        (7, minor) => 11_000 + 10 * minor,
        (major, minor) => 12_000 + 10 * minor + 1_000 * (major - 8),
    }
}

fn threads_max(kernel: &PtxKernel) -> u32 {
    kernel.threads_max.unwrap_or(THREADS_MAX).min(control().threads_block_max()).min(THREADS_MAX)
}

type Kernels = Arc<[Arc<PtxKernel>]>;

/// Compiles `text` once a process: a test opens a device hundreds of times, each time with all modules.
fn compiled(text: &str) -> Result<Kernels, (u32, String)> {
    static COMPILED: Mutex<BTreeMap<String, Kernels>> = Mutex::new(BTreeMap::new());
    if let Some(known) = lock(&COMPILED).get(text) {
        return Ok(Arc::clone(known));
    }
    let wrong = |error: PtxError| (INVALID_PTX, error.to_string());
    let parsed = parse::parse(text).map_err(wrong)?;
    let wants = driver_for_ptx(parsed.version);
    if wants > control().driver_version {
        let (major, minor) = parsed.version;
        return Err((UNSUPPORTED_PTX, format!("PTX {major}.{minor} wants a driver of {wants}")));
    }
    if parsed.target > CAPABILITY {
        return Err((NO_BINARY, format!("target sm_{} is above sm_{CAPABILITY}", parsed.target)));
    }
    let kernels = parsed.entries.iter().map(|entry| compile::compile(entry, &parsed.shared).map(Arc::new));
    let kernels: Kernels = kernels.collect::<Result<_, _>>().map_err(wrong)?;
    lock(&COMPILED).insert(text.to_owned(), Arc::clone(&kernels));
    Ok(kernels)
}

fn load(text: &str) -> Result<u64, (u32, String)> {
    driver().current().map_err(|code| (code, String::new()))?;
    let kernels = compiled(text)?;
    let handles = kernels
        .iter()
        .map(|kernel| (kernel.name.clone(), driver().add(Object::Function(Arc::clone(kernel)))));
    Ok(driver().add(Object::Module(Arc::new(handles.collect()))))
}

/// # Safety
/// `image` is null or a C string; `log` is a buffer and its size in bytes.
unsafe fn load_image(module: *mut u64, image: *const c_void, log: (*mut u8, usize)) -> CallResult {
    if module.is_null() || image.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise; an image that is not text (a cubin) has a zero byte in its header.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().map_err(|_| INVALID_IMAGE)?;
    match load(text) {
        // SAFETY: not null, an out pointer of the caller.
        Ok(handle) => unsafe { out(module, handle) },
        Err((code, what)) => {
            if !what.is_empty() {
                control().say(&what);
            }
            for (i, byte) in what.bytes().chain([0]).take(log.1).enumerate() {
                // SAFETY: the caller gave a buffer of that size, and `i` is below it.
                unsafe { out(log.0.wrapping_add(i), byte) }?;
            }
            Err(code)
        }
    }
}

pub(super) struct Launched {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
    pub(super) params: *mut *mut c_void,
    pub(super) extra: *mut *mut c_void,
}

impl Launched {
    /// # Safety
    /// `params` is null or points to a pointer for each of the kernel's parameters, each to a value of its size.
    pub(super) unsafe fn check(&self, function: u64) -> CallResult<Operation> {
        let kernel = driver().function(function)?;
        let ([columns, rows, layers], [threads, y, z]) = (self.grid, self.block);
        if (layers, y, z, self.shared) != (1, 1, 1, 0) || !self.extra.is_null() {
            return unsupported("a launch with dynamic shared memory, packed parameters or more dimensions");
        }
        let size = (1..=i32::MAX as u32).contains(&columns) && (1..=65_535).contains(&rows);
        let fits = (1..=THREADS_MAX).contains(&threads) && kernel.shared_bytes <= SHARED_MAX as usize;
        if !size || !fits {
            return Err(INVALID_VALUE);
        }
        if threads > threads_max(&kernel) {
            return Err(OUT_OF_RESOURCES);
        }
        let mut params = vec![0_u8; kernel.param_bytes];
        for (i, param) in kernel.params.iter().enumerate() {
            if self.params.is_null() {
                return Err(INVALID_VALUE);
            }
            // SAFETY: the caller gives one pointer for each parameter.
            let value = unsafe { self.params.add(i).read() };
            let Some(place) =
                params.get_mut(param.offset..param.offset + param.bytes).filter(|_| !value.is_null())
            else {
                return Err(INVALID_VALUE);
            };
            // SAFETY: the caller's pointer is to a value of the parameter's size, and `place` has the same size.
            unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), place.as_mut_ptr(), param.bytes) };
        }
        Ok(Operation::Kernel(Arc::new(Launch { kernel, params, grid: [columns, rows], threads })))
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> CallResult<&'a str> {
    if name.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| INVALID_VALUE)
}

api! {
    fn cuModuleLoadDataEx(
        module: *mut u64,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        let mut log = (std::ptr::null_mut::<u8>(), 0);
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: the caller gives `count` options and values.
            let (option, value) = unsafe { (options.add(i).read(), values.add(i).read()) };
            match option {
                JIT_ERROR_LOG => log.0 = value.cast(),
                JIT_ERROR_LOG_BYTES => log.1 = value.expose_provenance(),
                _ => return unsupported("an option of cuModuleLoadDataEx other than an error log"),
            }
        }
        if log.0.is_null() {
            log.1 = 0;
        }
        // SAFETY: the caller's image and log buffer.
        unsafe { load_image(module, image, log) }
    }

    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) {
        driver().current()?;
        let module = driver().module(module)?;
        // SAFETY: the caller's string.
        let name = unsafe { name_of(name) }?;
        let found = module.iter().find(|k| k.0 == name).ok_or(NOT_FOUND)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(function, found.1) }
    }

    /// Threads (0), shared memory (1), local memory (3) or registers (4) of a kernel.
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: u64) {
        driver().current()?;
        let kernel = driver().function(function)?;
        let found = match attribute {
            0 => threads_max(&kernel),
            1 => u32::try_from(kernel.shared_bytes).unwrap_or(u32::MAX),
            3 => 0,
            4 => kernel.registers.min(255),
            _ => return unsupported(&format!("attribute {attribute} of a kernel")),
        };
        // SAFETY: an out pointer of the caller.
        unsafe { out(value, found.cast_signed()) }
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: u64, block: c_int, shared: usize) {
        let kernel = driver().function(function)?;
        let threads = u32::try_from(block).map_err(|_| INVALID_VALUE)?;
        // A block takes 1 KiB of shared memory in addition.
        let shared = u32::try_from(kernel.shared_bytes + shared).unwrap_or(SHARED_OF_MULTIPROCESSOR) + 1024;
        let found = match threads {
            1.. if threads <= threads_max(&kernel) => {
                let warps = THREADS_OF_MULTIPROCESSOR / threads.next_multiple_of(32);
                warps.min(32).min(SHARED_OF_MULTIPROCESSOR / shared)
            }
            _ => 0,
        };
        // SAFETY: an out pointer of the caller.
        unsafe { out(blocks, found.cast_signed()) }
    }

    fn cuLaunchKernel(
        function: u64,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: u64,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        let stream = driver().stream(stream)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: the caller's parameters.
        let kernel = unsafe { Launched { grid, block, shared, params, extra }.check(function) }?;
        stream.submit(kernel).map(|_| ())
    }
}
