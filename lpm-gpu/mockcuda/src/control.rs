//! Switches and counters for tests: environment variables, read when the library is loaded, and functions `mockcuda_*` for tests in
//! the process, which are not counted as driver calls. Defaults are in parentheses.
//!
//! | environment | function | effect |
//! |---|---|---|
//! | `MOCKCUDA_NO_DEVICE=1` | | the driver finds no device |
//! | `MOCKCUDA_DEVICES=N` | `mockcuda_set_devices` | the driver finds N devices, which share their memory (1) |
//! | `MOCKCUDA_DRIVER_VERSION=N` | | version of the driver, e.g. 12040 |
//! | `MOCKCUDA_MEMORY_BYTES=N` | | memory of the device; an allocation beyond it returns 2 |
//! | `MOCKCUDA_FAIL_AT=N[:CODE[:COUNT]]` | `mockcuda_fail_at` | COUNT driver calls from call N (from 0) on return CODE (999) |
//! | `MOCKCUDA_FAIL_CALL=NAME:N[:CODE]` | `mockcuda_fail_call` | call N (from 0) of that function returns CODE |
//! | `MOCKCUDA_FAIL_OPERATION=N[:CODE]` | `mockcuda_fail_operation` | operation N of all streams fails with CODE (719), seen later |
//! | `MOCKCUDA_PLANT=N:FROM:TO` | | before operation N of all streams, each word FROM in device memory becomes TO |
//! | `MOCKCUDA_DELAY_US=N` | `mockcuda_set_delay_us` | random delays of up to N us before stream operations, and sometimes between blocks |
//! | `MOCKCUDA_SEED=N` | | the seed of these delays |
//! | `MOCKCUDA_STALL_AT=N` | `mockcuda_set_stalled` | all streams stall from operation N (copies and launches of all streams, from 0) on |
//! | `MOCKCUDA_WAIT_MS=N` | | a longer wait for a stream ends the context with 702 and a message (60,000) |
//! | `MOCKCUDA_LOG=N` | | call names kept for `mockcuda_call_name` (1,048,576) |
//! | `MOCKCUDA_QUIET=1` | | no messages on standard error |
//! | `MOCKCUDA_REPORT=1` | | calls, words and violations on standard error when the process ends |

use crate::error::{LAUNCH_FAILED, ResultCode, UNKNOWN, ends_context};
use crate::exec::warp::TRANSACTION_BYTES;
use crate::memory::{MemoryKind, memory};
use crate::stream::lock;
use std::ffi::{CStr, c_char};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

const NEVER: u64 = u64::MAX;
const LOG_MAX: usize = 1 << 20;
const MEMORY_BYTES: u64 = 8 << 30;
const DRIVER_VERSION: u32 = 12_040;

pub(crate) struct MockControl {
    no_device: bool,
    devices: AtomicU32,
    threads_block_max: AtomicU32,
    no_pools: AtomicBool,
    pub(crate) driver_version: u32,
    pub(crate) memory_bytes: u64,
    fail_first: AtomicU64,
    fail_count: AtomicU64,
    fail_code: AtomicU32,
    fail_name: Mutex<Option<(Vec<u8>, u64, ResultCode)>>,
    operation_failing: AtomicU64,
    operation_code: AtomicU32,
    plant_at: u64,
    planted: [u32; 2],
    delay_us: AtomicU32,
    pub(crate) seed: u64,
    stall_at: AtomicU64,
    stalled: AtomicBool,
    pub(crate) wait_ms: u64,
    log_max: usize,
    quiet: bool,
    calls: AtomicU64,
    operations: AtomicU64,
    /// Index and name of the last calls; racing threads may swap neighbours.
    log: Mutex<Vec<(u64, &'static CStr)>>,
    pub(crate) pageable_copies: AtomicU64,
    pub(crate) bytes_copied_in: AtomicU64,
    pub(crate) words_read: AtomicU64,
    pub(crate) words_written: AtomicU64,
    /// Start and end of the watched memory; empty by default.
    watched: [AtomicU64; 2],
    pub(crate) transactions: [AtomicU64; 2],
    pub(crate) instructions: AtomicU64,
    pub(crate) launches: AtomicU64,
}

pub(crate) fn control() -> &'static MockControl {
    static CONTROL: OnceLock<MockControl> = OnceLock::new();
    CONTROL.get_or_init(MockControl::from_environment)
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

fn code_of(number: Option<&u64>, otherwise: ResultCode) -> ResultCode {
    number.and_then(|&n| ResultCode::try_from(n).ok()).unwrap_or(otherwise)
}

impl MockControl {
    fn from_environment() -> Self {
        let fail = numbers("MOCKCUDA_FAIL_AT");
        let operation = numbers("MOCKCUDA_FAIL_OPERATION");
        let plant = numbers("MOCKCUDA_PLANT");
        let control = Self {
            no_device: flag("MOCKCUDA_NO_DEVICE"),
            devices: AtomicU32::new(code_of(number("MOCKCUDA_DEVICES").as_ref(), 1)),
            threads_block_max: AtomicU32::new(u32::MAX),
            no_pools: AtomicBool::new(false),
            driver_version: code_of(number("MOCKCUDA_DRIVER_VERSION").as_ref(), DRIVER_VERSION),
            memory_bytes: number("MOCKCUDA_MEMORY_BYTES").unwrap_or(MEMORY_BYTES),
            fail_first: AtomicU64::new(fail.first().copied().unwrap_or(NEVER)),
            fail_code: AtomicU32::new(code_of(fail.get(1), UNKNOWN)),
            fail_count: AtomicU64::new(fail.get(2).copied().unwrap_or(1)),
            fail_name: Mutex::new(failing_name()),
            operation_failing: AtomicU64::new(operation.first().copied().unwrap_or(NEVER)),
            operation_code: AtomicU32::new(code_of(operation.get(1), LAUNCH_FAILED)),
            plant_at: plant.first().copied().unwrap_or(NEVER),
            planted: [1, 2].map(|at| code_of(plant.get(at), 0)),
            delay_us: AtomicU32::new(code_of(number("MOCKCUDA_DELAY_US").as_ref(), 0)),
            seed: number("MOCKCUDA_SEED").unwrap_or(1),
            stall_at: AtomicU64::new(number("MOCKCUDA_STALL_AT").unwrap_or(NEVER)),
            stalled: AtomicBool::new(false),
            wait_ms: number("MOCKCUDA_WAIT_MS").unwrap_or(60_000),
            log_max: number("MOCKCUDA_LOG").and_then(|most| usize::try_from(most).ok()).unwrap_or(LOG_MAX),
            quiet: flag("MOCKCUDA_QUIET"),
            calls: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            log: Mutex::default(),
            pageable_copies: AtomicU64::new(0),
            bytes_copied_in: AtomicU64::new(0),
            words_read: AtomicU64::new(0),
            words_written: AtomicU64::new(0),
            watched: Default::default(),
            transactions: Default::default(),
            instructions: AtomicU64::new(0),
            launches: AtomicU64::new(0),
        };
        if flag("MOCKCUDA_REPORT") {
            // SAFETY: registers a function that takes nothing, uses statics that are never freed, and does not unwind.
            unsafe { libc::atexit(report_at_exit) };
        }
        control
    }

    pub(crate) fn devices(&self) -> i32 {
        if self.no_device { 0 } else { self.devices.load(Relaxed).cast_signed() }
    }

    pub(crate) fn no_device(&self) -> bool {
        self.devices() <= 0
    }

    pub(crate) fn threads_block_max(&self) -> u32 {
        self.threads_block_max.load(Relaxed)
    }

    pub(crate) fn no_pools(&self) -> bool {
        self.no_pools.load(Relaxed)
    }

    pub(crate) fn watched(&self) -> Option<Range<u64>> {
        let [first, end] = self.watched.each_ref().map(|address| address.load(Relaxed));
        (first < end).then_some(first..end)
    }

    pub(crate) fn delay_us(&self) -> u32 {
        self.delay_us.load(Relaxed)
    }

    pub(crate) fn stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    pub(crate) fn call(&self, name: &'static CStr) -> Option<ResultCode> {
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

    /// Approximate, since threads race.
    fn log_slot(&self, index: u64) -> usize {
        usize::try_from(index).unwrap_or(0) % self.log_max.max(1)
    }

    fn call_by_name(&self, name: &CStr) -> Option<ResultCode> {
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

    pub(crate) fn operation(&self) -> Option<ResultCode> {
        let index = self.operations.fetch_add(1, Relaxed);
        if index >= self.stall_at.load(Relaxed) {
            self.stalled.store(true, Relaxed);
        }
        if index == self.plant_at
            && let Some(memory) = memory()
        {
            memory.plant(self.planted);
        }
        (index == self.operation_failing.load(Relaxed)).then(|| self.operation_code.load(Relaxed))
    }

    pub(crate) fn say(&self, what: &str) {
        if !self.quiet {
            eprintln!("mockcuda: {what}");
        }
    }
}

fn failing_name() -> Option<(Vec<u8>, u64, ResultCode)> {
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

/// Driver calls so far, without `cuGetErrorName`.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_calls() -> u64 {
    control().calls.load(Relaxed)
}

/// Name of driver call `index`, from 0: a C string that lives as long as the library; null if there is no such call in the log.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_call_name(index: u64) -> *const c_char {
    let log = lock(&control().log);
    let guess = control().log_slot(index);
    let near = log.iter().skip(guess.saturating_sub(64)).take(128);
    near.chain(log.iter()).find(|entry| entry.0 == index).map_or(std::ptr::null(), |entry| entry.1.as_ptr())
}

/// Driver call `index` returns `code` once. A code that ends the context ends it. `u64::MAX` cancels.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_fail_at(index: u64, code: u32) {
    let c = control();
    c.fail_first.store(NEVER, Relaxed);
    c.fail_code.store(code, Relaxed);
    c.fail_count.store(1, Relaxed);
    c.fail_first.store(index, Relaxed);
}

/// Call `index` (from 0, counted from now) of function `name` returns `code` once, however often streams are polled. Null
/// cancels.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mockcuda_fail_call(name: *const c_char, index: u64, code: u32) {
    let failing = if name.is_null() {
        None
    } else {
        // SAFETY: not null, so a C string (the caller's promise), read before the return.
        let name = unsafe { CStr::from_ptr(name) };
        Some((name.to_bytes().to_vec(), index, code))
    };
    *lock(&control().fail_name) = failing;
}

/// Stream operations so far: kernels, copies, fills, records.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_operations() -> u64 {
    control().operations.load(Relaxed)
}

/// Operation `index` of all streams is not executed, and ends the context with `code`.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_fail_operation(index: u64, code: u32) {
    let c = control();
    c.operation_code.store(if ends_context(code) { code } else { LAUNCH_FAILED }, Relaxed);
    c.operation_failing.store(index, Relaxed);
}

/// Sets the number of devices.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_devices(devices: u32) {
    control().devices.store(devices, Relaxed);
}

/// Limits the threads of a block.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_threads_block_max(threads: u32) {
    control().threads_block_max.store(threads, Relaxed);
}

/// Copies between the device and pageable memory so far.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_pageable_copies() -> u64 {
    control().pageable_copies.load(Relaxed)
}

/// Bytes of all copies to device memory so far.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_bytes_copied_in() -> u64 {
    control().bytes_copied_in.load(Relaxed)
}

/// While not 0, the device has no memory pools: `cuMemAllocAsync` returns 801.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_no_pools(on: u32) {
    control().no_pools.store(on != 0, Relaxed);
}

/// Sets random delays of up to `max` microseconds before stream operations.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_delay_us(max: u32) {
    control().delay_us.store(max, Relaxed);
}

/// While not 0, all streams stall: operations are accepted but not executed, running kernels stop.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_set_stalled(stalled: u32) {
    control().stall_at.store(NEVER, Relaxed);
    control().stalled.store(stalled != 0, Relaxed);
}

/// Allocated device memory, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_memory_used() -> u64 {
    memory().map_or(0, |m| m.used(MemoryKind::Device))
}

/// Allocated page-locked host memory, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_host_used() -> u64 {
    memory().map_or(0, |m| m.used(MemoryKind::Pinned))
}

/// Registered host memory, bytes.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_registered() -> u64 {
    memory().map_or(0, crate::memory::MockMemory::registered_bytes)
}

/// 32-bit words that kernels wrote to global memory, including mapped host memory.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_words_written() -> u64 {
    control().words_written.load(Relaxed)
}

/// 32-bit words that kernels read from global memory.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_words_read() -> u64 {
    control().words_read.load(Relaxed)
}

/// Starts counting memory transactions of loads from `bytes` bytes at device address `address`; 0 bytes: none.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_watch_loads(address: u64, bytes: u64) {
    let c = control();
    c.watched[0].store(address, Relaxed);
    c.watched[1].store(address.saturating_add(bytes), Relaxed);
    c.transactions.iter().for_each(|count| count.store(0, Relaxed));
}

/// Transactions of `bytes` bytes (32 or 128): aligned blocks of the watched memory that a warp's load accesses, over all loads.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_transactions(bytes: u64) -> u64 {
    let counts = TRANSACTION_BYTES.iter().zip(&control().transactions);
    counts.filter(|(size, _)| **size == bytes).map(|(_, count)| count.load(Relaxed)).sum()
}

/// Marks `words` words from device address `address` on as freed, until they are written or unmarked.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_mark_freed(address: u64, words: u64) {
    if let Some(m) = memory() {
        m.mark(address, words, true);
    }
}

/// Unmarks words.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_unmark_freed(address: u64, words: u64) {
    if let Some(m) = memory() {
        m.mark(address, words, false);
    }
}

/// Kernel reads of words marked as freed.
#[unsafe(no_mangle)]
pub extern "C" fn mockcuda_violations() -> u64 {
    memory().map_or(0, |m| m.bad_reads.load(Relaxed))
}

/// Resets counters to 0, and switches to their defaults without environment. Memory, marks and contexts stay.
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
        &c.pageable_copies,
        &c.bytes_copied_in,
    ] {
        counter.store(0, Relaxed);
    }
    lock(&c.log).clear();
    *lock(&c.fail_name) = None;
    c.fail_first.store(NEVER, Relaxed);
    c.operation_failing.store(NEVER, Relaxed);
    c.delay_us.store(0, Relaxed);
    mockcuda_watch_loads(0, 0);
    mockcuda_set_stalled(0);
    mockcuda_set_no_pools(0);
    mockcuda_set_devices(1);
    mockcuda_set_threads_block_max(u32::MAX);
    if let Some(m) = memory() {
        m.bad_reads.store(0, Relaxed);
    }
}
