//! Modules from PTX text, kernels and what can be asked about them, launches.

use super::{api, memory::submit, out, out_if};
use crate::control::control;
use crate::error::{
    Answer, COOPERATIVE_TOO_LARGE, FILE_NOT_FOUND, INVALID_IMAGE, INVALID_PTX, INVALID_VALUE, NO_BINARY,
    NOT_FOUND, OUT_OF_MEMORY, OUT_OF_RESOURCES, UNSUPPORTED_PTX,
};
use crate::exec::grid::{Launch, MULTIPROCESSORS};
use crate::memory::{self, Kind};
use crate::ptx::code::Kernel;
use crate::ptx::parse::{Module as Parsed, Variable};
use crate::ptx::{PtxError, compile, parse};
use crate::state::{Function, Module, Object, driver};
use crate::stream::Operation;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Compute capability of the device, as in `sm_90`.
const CAPABILITY: u32 = 90;
const THREADS_MAX: u32 = 1024;
const THREADS_OF_MULTIPROCESSOR: u32 = 2048;
const SHARED_DEFAULT_MAX: u32 = 48 << 10;
const SHARED_MAX: u32 = 227 << 10;
/// Options of `cuModuleLoadDataEx`: an error log's buffer and its size.
const JIT_ERROR_LOG: u32 = 5;
const JIT_ERROR_LOG_BYTES: u32 = 6;

/// The driver's version that first took a PTX version: as 12040 for 12.4 (PTX manual, release history).
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

/// Loads `text`; on failure a message for the error log as well.
fn load(text: &str) -> Result<u64, (u32, String)> {
    let context = driver().current().map_err(|code| (code, String::new()))?;
    let wrong = |error: PtxError| (INVALID_PTX, error.to_string());
    let parsed = parse::parse(text).map_err(wrong)?;
    let wants = driver_for_ptx(parsed.version);
    if wants > control().driver_version() {
        let (major, minor) = parsed.version;
        return Err((UNSUPPORTED_PTX, format!("PTX {major}.{minor} wants a driver of {wants}")));
    }
    if parsed.target > CAPABILITY {
        return Err((NO_BINARY, format!("target sm_{} is above sm_{CAPABILITY}", parsed.target)));
    }
    let (variables, shared): (Vec<&Variable>, Vec<&Variable>) =
        parsed.variables.iter().partition(|v| v.space != "shared");
    let shared: Vec<Variable> = shared.into_iter().cloned().collect();
    let placed = place(&variables, context.id).ok_or((OUT_OF_MEMORY, String::new()))?;
    let addresses = placed.iter().map(|(name, address, _)| (name.clone(), *address)).collect();
    match kernels(&parsed, &addresses, &shared) {
        Ok(kernels) => {
            let handle = driver().new_handle();
            let kernels =
                kernels.into_iter().map(|kernel| (kernel.name.clone(), function(kernel, handle))).collect();
            driver().put(
                handle,
                Object::Module(Arc::new(Module { context: context.id, kernels, variables: placed })),
            );
            Ok(handle)
        }
        Err(error) => {
            free(&placed);
            Err(wrong(error))
        }
    }
}

fn kernels(
    parsed: &Parsed,
    addresses: &HashMap<String, u64>,
    shared: &[Variable],
) -> Result<Vec<Kernel>, PtxError> {
    parsed.entries.iter().map(|entry| compile::compile(entry, addresses, shared)).collect()
}

fn function(kernel: Kernel, module: u64) -> u64 {
    let function =
        Function { kernel: Arc::new(kernel), module, shared_dynamic_max: AtomicU32::new(SHARED_DEFAULT_MAX) };
    driver().add(Object::Function(Arc::new(function)))
}

/// Allocates the module's variables and gives them their first values.
fn place(variables: &[&Variable], context: u64) -> Option<Vec<(String, u64, u64)>> {
    let memory = driver().memory().ok()?;
    let mut placed = Vec::new();
    for variable in variables {
        let bytes = variable.bytes.max(1) as u64;
        let Some(address) = memory.allocate(Kind::Device, bytes, 0, context, control().memory_bytes()) else {
            free(&placed);
            return None;
        };
        placed.push((variable.name.clone(), address, variable.bytes as u64));
        let at = memory.range(address, bytes)?;
        memory::fill_words(at, variable.bytes, 0);
        for (offset, byte) in variable.init.iter().enumerate().take(variable.bytes) {
            memory::store(at + offset, 1, (*byte).into());
        }
    }
    Some(placed)
}

fn free(placed: &[(String, u64, u64)]) {
    if let Ok(memory) = driver().memory() {
        for (_, address, _) in placed {
            memory.free(*address, Kind::Device);
        }
    }
}

/// # Safety
/// `image` is null or a C string.
unsafe fn load_image(module: *mut u64, image: *const c_void, log: Option<(*mut u8, usize)>) -> Answer {
    if module.is_null() || image.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise; an image that is no text (a cubin) has a zero byte within its header.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_str().map_err(|_| INVALID_IMAGE)?;
    match load(text) {
        // SAFETY: not null, an out pointer of the caller.
        Ok(handle) => unsafe { out(module, handle) },
        Err((code, what)) => {
            if !what.is_empty() {
                control().say(&what);
            }
            if let Some((buffer, room)) = log {
                for (i, byte) in what.bytes().chain([0]).take(room).enumerate() {
                    // SAFETY: the caller gave a buffer of `room` bytes, and `i` is below it.
                    unsafe { out(buffer.wrapping_add(i), byte) }?;
                }
            }
            Err(code)
        }
    }
}

/// Checks a launch and takes its parameters along.
///
/// # Safety
/// `params` is null or points to as many pointers as the kernel has parameters, each to a value of its size; `extra` is null
/// or a list as `cuLaunchKernel` has it.
pub(super) unsafe fn launch(
    function: &Function,
    grid: [u32; 3],
    block: [u32; 3],
    shared_dynamic: u32,
    (params, extra): (*mut *mut c_void, *mut *mut c_void),
) -> Answer<Arc<Launch>> {
    let kernel = &function.kernel;
    let threads = block.iter().try_fold(1_u32, |all, &n| all.checked_mul(n)).unwrap_or(u32::MAX);
    if grid.contains(&0)
        || threads == 0
        || grid[1] > 65_535
        || grid[2] > 65_535
        || block[2] > 64
        || grid[0] > i32::MAX as u32
    {
        return Err(INVALID_VALUE);
    }
    if threads > THREADS_MAX || kernel.threads_max.is_some_and(|max| threads > max) {
        return Err(INVALID_VALUE);
    }
    if shared_dynamic as usize + kernel.shared_bytes > function.shared_dynamic_max.load(Relaxed) as usize {
        return Err(INVALID_VALUE);
    }
    // 64 Ki registers a multiprocessor; the count is that of the PTX, an upper bound of the real one, so a wide margin is left.
    if kernel.registers.min(64).saturating_mul(threads) > 65_536 {
        return Err(OUT_OF_RESOURCES);
    }
    // SAFETY: the caller's promise.
    let params = unsafe { parameters(kernel, params, extra) }?;
    Ok(Arc::new(Launch { kernel: Arc::clone(kernel), params, grid, block, shared_dynamic }))
}

/// # Safety
/// As [`launch`].
unsafe fn parameters(kernel: &Kernel, params: *mut *mut c_void, extra: *mut *mut c_void) -> Answer<Vec<u8>> {
    let mut block = vec![0_u8; kernel.param_bytes];
    if kernel.params.is_empty() {
        return Ok(block);
    }
    if params.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { packed_parameters(extra, block) };
    }
    for (i, param) in kernel.params.iter().enumerate() {
        // SAFETY: the caller gives one pointer for each parameter.
        let value = unsafe { params.add(i).read() };
        let Some(place) = block.get_mut(param.offset..param.offset + param.bytes) else {
            return Err(INVALID_VALUE);
        };
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller's pointer is to a value of the parameter's size; `place` is as long.
        unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), place.as_mut_ptr(), param.bytes) };
    }
    Ok(block)
}

/// # Safety
/// `extra` is null or a list of pairs that ends in 0: 1 and the buffer, 2 and the address of its size.
unsafe fn packed_parameters(extra: *mut *mut c_void, mut block: Vec<u8>) -> Answer<Vec<u8>> {
    let (mut buffer, mut bytes) = (std::ptr::null::<u8>(), 0_usize);
    if extra.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut at = extra;
    // SAFETY: the caller's list, read up to its end; the size's address is valid.
    unsafe {
        loop {
            match at.read().expose_provenance() {
                1 => buffer = at.add(1).read().cast(),
                2 => bytes = at.add(1).read().cast::<usize>().read(),
                _ => break,
            }
            at = at.add(2);
        }
    }
    if buffer.is_null() || bytes < block.len() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's buffer holds `bytes`, at least as many as are copied.
    unsafe { std::ptr::copy_nonoverlapping(buffer, block.as_mut_ptr(), block.len()) };
    Ok(block)
}

/// Blocks of `threads` threads and `shared` bytes that a multiprocessor holds.
fn resident_blocks(kernel: &Kernel, threads: u32, shared_dynamic: usize) -> u32 {
    if threads == 0 || threads > THREADS_MAX {
        return 0;
    }
    let shared = u32::try_from(kernel.shared_bytes + shared_dynamic).unwrap_or(u32::MAX);
    (THREADS_OF_MULTIPROCESSOR / threads.next_multiple_of(32))
        .min(32)
        .min((SHARED_MAX + 1024) / (shared + 1024))
}

fn occupancy(function: u64, block: c_int, shared: usize) -> Answer<c_int> {
    let function = driver().function(function)?;
    let threads = u32::try_from(block).map_err(|_| INVALID_VALUE)?;
    Ok(resident_blocks(&function.kernel, threads, shared).cast_signed())
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> Answer<&'a str> {
    if name.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| INVALID_VALUE)
}

api! {
    /// Loads PTX text.
    fn cuModuleLoadData(module: *mut u64, image: *const c_void) {
        // SAFETY: the caller's image.
        unsafe { load_image(module, image, None) }
    }

    /// Loads PTX text; an error goes into the error log, if there is one.
    fn cuModuleLoadDataEx(
        module: *mut u64,
        image: *const c_void,
        count: c_uint,
        options: *mut c_uint,
        values: *mut *mut c_void,
    ) {
        let (mut buffer, mut room) = (std::ptr::null_mut::<u8>(), 0);
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(INVALID_VALUE);
        }
        for i in 0..count as usize {
            // SAFETY: the caller gives `count` options and values.
            let (option, value) = unsafe { (options.add(i).read(), values.add(i).read()) };
            match option {
                JIT_ERROR_LOG => buffer = value.cast(),
                JIT_ERROR_LOG_BYTES => room = value.expose_provenance(),
                _ => {}
            }
        }
        // SAFETY: the caller's image and log buffer.
        unsafe { load_image(module, image, (!buffer.is_null()).then_some((buffer, room))) }
    }

    /// Loads PTX text from a file.
    fn cuModuleLoad(module: *mut u64, path: *const c_char) {
        // SAFETY: the caller's string.
        let path = unsafe { name_of(path) }?;
        let text = std::fs::read_to_string(path).map_err(|_| FILE_NOT_FOUND)?;
        let handle = load(&text).map_err(|(code, what)| {
            control().say(&what);
            code
        })?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(module, handle) }
    }

    /// Forgets a module. Kernels that run keep running.
    fn cuModuleUnload(module: u64) {
        driver().current()?;
        let found = driver().module(module)?;
        for (_, function) in &found.kernels {
            driver().remove(*function);
        }
        free(&found.variables);
        driver().remove(module);
        Ok(())
    }

    /// A kernel by its name.
    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char) {
        driver().current()?;
        let module = driver().module(module)?;
        // SAFETY: the caller's string.
        let name = unsafe { name_of(name) }?;
        let found = module.kernels.iter().find(|k| k.0 == name).ok_or(NOT_FOUND)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(function, found.1) }
    }

    /// A variable by its name.
    fn cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: u64, name: *const c_char) {
        driver().current()?;
        let module = driver().module(module)?;
        // SAFETY: the caller's string.
        let name = unsafe { name_of(name) }?;
        let found = module.variables.iter().find(|v| v.0 == name).ok_or(NOT_FOUND)?;
        // SAFETY: null or out pointers of the caller.
        unsafe {
            out_if(address, found.1);
            out_if(bytes, found.2 as usize);
        }
        Ok(())
    }

    /// An attribute of a kernel.
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: u64) {
        driver().current()?;
        let function = driver().function(function)?;
        let kernel = &function.kernel;
        let found = match attribute {
            0 => kernel.threads_max.unwrap_or(THREADS_MAX).cast_signed(),
            1 => c_int::try_from(kernel.shared_bytes).unwrap_or(c_int::MAX),
            2 | 3 | 7 | 9 => 0,
            4 => kernel.registers.min(255).cast_signed(),
            5 => 63,
            6 => CAPABILITY.cast_signed(),
            8 => function.shared_dynamic_max.load(Relaxed).cast_signed(),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: an out pointer of the caller.
        unsafe { out(value, found) }
    }

    /// Dynamic shared memory above 48 KiB (attribute 8); other attributes mean nothing here.
    fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) {
        driver().current()?;
        let function = driver().function(function)?;
        if attribute == 8 {
            let bytes = u32::try_from(value).map_err(|_| INVALID_VALUE)?;
            if bytes as usize + function.kernel.shared_bytes > SHARED_MAX as usize {
                return Err(INVALID_VALUE);
            }
            function.shared_dynamic_max.store(bytes.max(SHARED_DEFAULT_MAX), Relaxed);
        }
        Ok(())
    }

    /// There is no cache.
    fn cuFuncSetCacheConfig(function: u64, _config: c_uint) {
        driver().function(function).map(|_| ())
    }

    /// The module of a kernel.
    fn cuFuncGetModule(module: *mut u64, function: u64) {
        let function = driver().function(function)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(module, function.module) }
    }

    /// Blocks that a multiprocessor would hold by threads and shared memory.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: u64, block: c_int, shared: usize) {
        let found = occupancy(function, block, shared)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(blocks, found) }
    }

    /// As without flags.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        function: u64,
        block: c_int,
        shared: usize,
        _flags: c_uint,
    ) {
        let found = occupancy(function, block, shared)?;
        // SAFETY: an out pointer of the caller.
        unsafe { out(blocks, found) }
    }

    /// Blocks of 256 threads on all multiprocessors.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: u64,
        _shared_of_block: usize,
        shared: usize,
        limit: c_int,
    ) {
        let threads = if limit > 0 { limit.min(256) } else { 256 };
        let found = occupancy(function, threads, shared)?;
        // SAFETY: out pointers of the caller.
        unsafe {
            out(grid, found * MULTIPROCESSORS.cast_signed())?;
            out(block, threads)
        }
    }

    /// Launches a kernel.
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
        let function = driver().function(function)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: the caller's parameters.
        let launch = unsafe { launch(&function, grid, block, shared, (params, extra)) }?;
        submit(&stream, Operation::Kernel(launch)).map(|_| ())
    }

    /// Launches a kernel whose blocks are all resident: they are here in any case.
    fn cuLaunchCooperativeKernel(
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
    ) {
        let stream = driver().stream(stream)?;
        let function = driver().function(function)?;
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: the caller's parameters.
        let launch = unsafe { launch(&function, grid, block, shared, (params, std::ptr::null_mut())) }?;
        let threads: u32 = block.iter().product();
        let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
        let room = resident_blocks(&function.kernel, threads, shared as usize) * MULTIPROCESSORS;
        if blocks > u64::from(room) {
            return Err(COOPERATIVE_TOO_LARGE);
        }
        submit(&stream, Operation::Kernel(launch)).map(|_| ())
    }

    /// Modules are loaded at once.
    fn cuModuleGetLoadingMode(mode: *mut c_uint) {
        // SAFETY: an out pointer of the caller; 1 is eager.
        unsafe { out(mode, 1) }
    }
}
