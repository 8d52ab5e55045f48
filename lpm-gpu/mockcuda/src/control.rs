//! What tests turn and read: switches from the environment when the library is loaded, and functions `mockcuda_*` for tests
//! that run in the process. None of them is a driver call, and none is counted as one.
//!
//! | environment | function | what |
//! |---|---|---|
//! | `MOCKCUDA_NO_DEVICE=1` | | the driver finds no device |
//! | `MOCKCUDA_DRIVER_VERSION=N` | | version of the driver, as 12040 |
//! | | `mockcuda_set_no_pools` | the device has no memory pools: `cuMemAllocAsync` answers 801 |
//! | `MOCKCUDA_MEMORY_BYTES=N` | `mockcuda_set_memory_bytes` | memory of the device; more is code 2 |
//! | `MOCKCUDA_FAIL_AT=N[:CODE[:COUNT]]` | `mockcuda_fail_at` | driver call N (from 0) answers CODE (999), COUNT times |
//! | `MOCKCUDA_FAIL_CALL=NAME:N[:CODE]` | `mockcuda_fail_call` | call N (from 0) of that function answers CODE |
//! | `MOCKCUDA_FAIL_OPERATION=N[:CODE]` | `mockcuda_fail_operation` | operation N of all streams fails with CODE (719): found out later |
//! | `MOCKCUDA_DELAY_US=N` | `mockcuda_set_delay_us` | up to N us of waiting before an operation of a stream, and now and then between blocks |
//! | `MOCKCUDA_SEED=N` | `mockcuda_set_seed` | the seed of these delays |
//! | `MOCKCUDA_STALL_AT=N` | `mockcuda_set_stalled` | from operation N of all streams (copies and launches, from 0) on no stream gets on |
//! | `MOCKCUDA_WAIT_MS=N` | | a wait for a stream that takes longer ends the context with 702 and says so (60,000) |
//! | `MOCKCUDA_LOG=N` | | calls whose names are kept for `mockcuda_call_name` (1,048,576) |
//! | `MOCKCUDA_QUIET=1` | | no messages on standard error |
//! | `MOCKCUDA_REPORT=1` | | calls, words and violations on standard error when the process ends |

use crate::error::{Code, LAUNCH_FAILED, UNKNOWN, ends_context};
use crate::memory::{Kind, memory};
use crate::stream::lock;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

const NEVER: u64 = u64::MAX;
/// Names of calls that are kept unless told otherwise, for a test that asks which call a fault hit.
const LOG_MAX: usize = 1 << 20;
/// Memory of the mock's device, unless told otherwise.
const MEMORY_BYTES: u64 = 8 << 30;
/// A driver of CUDA 12.4 is common where this runs for real.
const DRIVER_VERSION: u32 = 12_040;

/// The switches and counters.
pub(crate) struct Control {
    pub(crate) no_device: bool,
    no_pools: AtomicBool,
    pub(crate) driver_version: u32,
    memory_bytes: AtomicU64,
    fail_first: AtomicU64,
    fail_count: AtomicU64,
    fail_code: AtomicU32,
    fail_name: Mutex<Option<(Vec<u8>, u64, Code)>>,
    operation_failing: AtomicU64,
    operation_code: AtomicU32,
    delay_us: AtomicU32,
    seed: AtomicU64,
    stall_at: AtomicU64,
    stalled: AtomicBool,
    pub(crate) wait_ms: u64,
    log_max: usize,
    quiet: bool,
    calls: AtomicU64,
    operations: AtomicU64,
    /// Index and name of the last calls; not in order where threads race.
    log: Mutex<Vec<(u64, &'static CStr)>>,
    pub(crate) words_read: AtomicU64,
    pub(crate) words_written: AtomicU64,
    pub(crate) instructions: AtomicU64,
    pub(crate) launches: AtomicU64,
    pub(crate) bytes_to_device: AtomicU64,
}

/// The process's controls.
pub(crate) fn control() -> &'static Control {
    static CONTROL: OnceLock<Control> = OnceLock::new();
    CONTROL.get_or_init(Control::from_environment)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.trim().parse().ok()
}

fn numbers(name: &str) -> Vec<u64> {
    std::env::var(name).unwrap_or_default().split(':').filter_map(|part| part.trim().parse().ok()).collect()
}

fn flag(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}

fn code_of(number: Option<&u64>, otherwise: Code) -> Code {
    number.and_then(|&n| Code::try_from(n).ok()).unwrap_or(otherwise)
}

impl Control {
    fn from_environment() -> Self {
        let fail = numbers("MOCKCUDA_FAIL_AT");
        let operation = numbers("MOCKCUDA_FAIL_OPERATION");
        let control = Self {
            no_device: flag("MOCKCUDA_NO_DEVICE"),
            no_pools: AtomicBool::new(false),
            driver_version: code_of(number("MOCKCUDA_DRIVER_VERSION").as_ref(), DRIVER_VERSION),
            memory_bytes: AtomicU64::new(number("MOCKCUDA_MEMORY_BYTES").unwrap_or(MEMORY_BYTES)),
            fail_first: AtomicU64::new(fail.first().copied().unwrap_or(NEVER)),
            fail_code: AtomicU32::new(code_of(fail.get(1), UNKNOWN)),
            fail_count: AtomicU64::new(fail.get(2).copied().unwrap_or(1)),
            fail_name: Mutex::new(failing_name()),
            operation_failing: AtomicU64::new(operation.first().copied().unwrap_or(NEVER)),
            operation_code: AtomicU32::new(code_of(operation.get(1), LAUNCH_FAILED)),
            delay_us: AtomicU32::new(code_of(number("MOCKCUDA_DELAY_US").as_ref(), 0)),
            seed: AtomicU64::new(number("MOCKCUDA_SEED").unwrap_or(1)),
            stall_at: AtomicU64::new(number("MOCKCUDA_STALL_AT").unwrap_or(NEVER)),
            stalled: AtomicBool::new(false),
            wait_ms: number("MOCKCUDA_WAIT_MS").unwrap_or(60_000),
            log_max: number("MOCKCUDA_LOG").and_then(|most| usize::try_from(most).ok()).unwrap_or(LOG_MAX),
            quiet: flag("MOCKCUDA_QUIET"),
            calls: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            log: Mutex::default(),
            words_read: AtomicU64::new(0),
            words_written: AtomicU64::new(0),
            instructions: AtomicU64::new(0),
            launches: AtomicU64::new(0),
            bytes_to_device: AtomicU64::new(0),
        };
        if flag("MOCKCUDA_REPORT") {
            // SAFETY: registers a function that takes nothing, uses statics that are never freed, and does not unwind.
            unsafe { libc::atexit(report_at_exit) };
        }
        control
    }

    pub(crate) fn no_pools(&self) -> bool {
        self.no_pools.load(Relaxed)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    pub(crate) fn delay_us(&self) -> u32 {
        self.delay_us.load(Relaxed)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(Relaxed)
    }

    pub(crate) fn stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Counts a driver call, and says with which code it must fail.
    pub(crate) fn call(&self, name: &'static CStr) -> Option<Code> {
        let index = self.calls.fetch_add(1, Relaxed);
        let mut log = lock(&self.log);
        if log.len() < self.log_max {
            log.push((index, name));
        } else if let Some(oldest) = log.get_mut(self.log_slot(index)) {
            *oldest = (index, name);
        }
        drop(log);
        let first = self.fail_first.load(Relaxed);
        if index >= first && index - first < self.fail_count.load(Relaxed) {
            return Some(self.fail_code.load(Relaxed));
        }
        self.call_by_name(name)
    }

    /// Where call `index` lies in the log, about: threads race.
    fn log_slot(&self, index: u64) -> usize {
        usize::try_from(index).unwrap_or(0) % self.log_max.max(1)
    }

    fn call_by_name(&self, name: &CStr) -> Option<Code> {
        let mut failing = lock(&self.fail_name);
        let (wanted, left, code) = failing.as_mut()?;
        if wanted != name.to_bytes() {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let code = *code;
        *failing = None;
        Some(code)
    }

    /// Counts an operation of a stream, and says with which code it must fail.
    pub(crate) fn operation(&self) -> Option<Code> {
        let index = self.operations.fetch_add(1, Relaxed);
        if index >= self.stall_at.load(Relaxed) {
            self.stalled.store(true, Relaxed);
        }
        (index == self.operation_failing.load(Relaxed)).then(|| self.operation_code.load(Relaxed))
    }

    /// Prints a message, unless told to be quiet.
    pub(crate) fn say(&self, what: &str) {
        if !self.quiet {
            eprintln!("mockcuda: {what}");
        }
    }
}

fn failing_name() -> Option<(Vec<u8>, u64, Code)> {
    let value = std::env::var("MOCKCUDA_FAIL_CALL").ok()?;
    let mut parts = value.split(':');
    let name = parts.next()?.as_bytes().to_vec();
    let after = parts.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Some((name, after, parts.next().and_then(|n| n.parse().ok()).unwrap_or(UNKNOWN)))
}

extern "C" fn report_at_exit() {
    let c = control();
    let violations = mockcuda_violations();
    eprintln!(
        "mockcuda: {} calls, {} operations, {} launches, {} warp instructions, {} words read, {} words written, {violations} violations",
        c.calls.load(Relaxed),
        c.operations.load(Relaxed),
        c.launches.load(Relaxed),
        c.instructions.load(Relaxed),
        c.words_read.load(Relaxed),
        c.words_written.load(Relaxed),
    );
}

/// Driver calls so far. Asking for an error's name is none.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_calls() -> u64 {
    control().calls.load(Relaxed)
}

/// The name of driver call `index`, counted from 0: a C string that lives as long as the library; null when there was none, or too long ago.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_call_name(index: u64) -> *const c_char {
    let log = lock(&control().log);
    let guess = control().log_slot(index);
    let near = log.iter().skip(guess.saturating_sub(64)).take(128);
    near.chain(log.iter()).find(|entry| entry.0 == index).map_or(std::ptr::null(), |entry| entry.1.as_ptr())
}

/// The driver call that is number `index` answers `code`, once. A code that ends the context ends it. `u64::MAX`: none does.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_fail_at(index: u64, code: u32) {
    let c = control();
    c.fail_first.store(NEVER, Relaxed);
    c.fail_code.store(code, Relaxed);
    c.fail_count.store(1, Relaxed);
    c.fail_first.store(index, Relaxed);
}

/// Call number `index`, from 0 and from now on, of the function `name` answers `code`, once; the way to hit the same call in every run,
/// however often a stream is asked in between. Null: none does.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mockcuda_fail_call(name: *const c_char, index: u64, code: u32) {
    let failing = if name.is_null() {
        None
    } else {
        // SAFETY: not null, so a C string (the caller's promise), read before we return.
        let name = unsafe { CStr::from_ptr(name) };
        Some((name.to_bytes().to_vec(), index, code))
    };
    *lock(&control().fail_name) = failing;
}

/// Operations of streams so far: kernels, copies, fills, records.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_operations() -> u64 {
    control().operations.load(Relaxed)
}

/// The operation of a stream that is number `index` is not done, and ends the context with `code`.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_fail_operation(index: u64, code: u32) {
    let c = control();
    c.operation_code.store(if ends_context(code) { code } else { LAUNCH_FAILED }, Relaxed);
    c.operation_failing.store(index, Relaxed);
}

/// While not 0, the device has no memory pools.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_no_pools(on: u32) {
    control().no_pools.store(on != 0, Relaxed);
}

/// The device's memory, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_memory_bytes(bytes: u64) {
    control().memory_bytes.store(bytes, Relaxed);
}

/// Up to `max` microseconds are waited before an operation of a stream begins, by chance.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_delay_us(max: u32) {
    control().delay_us.store(max, Relaxed);
}

/// The seed of what happens by chance, for streams that are created from now on.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_seed(seed: u64) {
    control().seed.store(seed, Relaxed);
}

/// While set, no stream gets on: operations are taken, none is done, running kernels stand still.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_stalled(stalled: u32) {
    control().stall_at.store(NEVER, Relaxed);
    control().stalled.store(stalled != 0, Relaxed);
}

/// Device memory that is allocated, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_memory_used() -> u64 {
    memory().map_or(0, |m| m.used(Kind::Device))
}

/// Page-locked host memory that is allocated, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_host_used() -> u64 {
    memory().map_or(0, |m| m.used(Kind::Pinned))
}

/// 32-bit words that kernels have written to global memory, mapped host memory included.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_words_written() -> u64 {
    control().words_written.load(Relaxed)
}

/// 32-bit words that kernels have read from global memory.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_words_read() -> u64 {
    control().words_read.load(Relaxed)
}

/// Instructions that warps have run.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_instructions() -> u64 {
    control().instructions.load(Relaxed)
}

/// Bytes that were copied to the device.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_bytes_to_device() -> u64 {
    control().bytes_to_device.load(Relaxed)
}

/// Kernels must not read `words` words from device address `address` on, until they are written or unmarked.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_mark_freed(address: u64, words: u64) {
    if let Some(m) = memory() {
        m.mark(address, words, true);
    }
}

/// They may.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_unmark_freed(address: u64, words: u64) {
    if let Some(m) = memory() {
        m.mark(address, words, false);
    }
}

/// Words that kernels read though they were marked as freed.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_violations() -> u64 {
    memory().map_or(0, |m| m.bad_reads.load(Relaxed))
}

/// Puts counters to 0 and switches to what they are without environment. Memory, marks, contexts stay.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_reset() {
    let c = control();
    for counter in [
        &c.calls,
        &c.operations,
        &c.words_read,
        &c.words_written,
        &c.instructions,
        &c.launches,
        &c.bytes_to_device,
    ] {
        counter.store(0, Relaxed);
    }
    lock(&c.log).clear();
    *lock(&c.fail_name) = None;
    c.fail_first.store(NEVER, Relaxed);
    c.operation_failing.store(NEVER, Relaxed);
    c.delay_us.store(0, Relaxed);
    mockcuda_set_stalled(0);
    mockcuda_set_no_pools(0);
    mockcuda_set_memory_bytes(MEMORY_BYTES);
    if let Some(m) = memory() {
        m.bad_reads.store(0, Relaxed);
    }
}
