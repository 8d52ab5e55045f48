//! Streams: queues of operations, each with a thread that runs them in order. Events are positions in a queue.

use crate::control::control;
use crate::error::{
    CONTEXT_DESTROYED, CallResult, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, NOT_READY, OUT_OF_MEMORY, ResultCode,
    UNKNOWN,
};
use crate::exec::grid::{self, Launch, Owner};
use crate::exec::warp::WarpCounters;
use crate::memory::{self, MemoryKind, MockMemory};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// One of this many loads of a warp is delayed, at most this long: a batch of a million keys takes about 0.1 s more.
const LOADS_A_DELAY: u64 = 256;
const LOAD_DELAY_US_MAX: u64 = 200;
/// Polls of an unfinished operation before later polls wait for the stream, and their longest wait.
const BUSY_POLLS: u32 = 16;
const POLL_WAIT: Duration = Duration::from_micros(50);
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// Error code that ended the context, or 0.
    code: AtomicU32,
    /// The context is destroyed: threads exit.
    gone: AtomicBool,
}

impl Fate {
    pub(crate) fn end(&self, code: ResultCode, what: &str) {
        if self.code.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            control().say(what);
        }
    }

    pub(crate) fn check(&self) -> CallResult {
        match self.code.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum CopyPlace {
    /// Address of host memory, for which the caller vouches.
    Host(usize),
    /// Address within an allocation, checked.
    Device(u64),
    Staged(Arc<[u8]>),
}

#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) to: CopyPlace,
    pub(crate) from: CopyPlace,
    pub(crate) bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Kernel(Arc<Launch>),
    Copy(Copy),
    /// 32-bit words: address, count, value.
    Fill(u64, usize, u32),
    Record(Arc<OnceLock<Instant>>),
    Free(u64),
}

#[derive(Debug, Default)]
struct Queue {
    operations: VecDeque<Operation>,
    submitted: u64,
    has_thread: bool,
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct MockStream {
    pub(crate) id: u64,
    pub(crate) fate: Arc<Fate>,
    queue: Mutex<Queue>,
    changed: Condvar,
    completed: AtomicU64,
    busy_polls: AtomicU32,
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MockStream {
    pub(crate) fn new(id: u64, fate: Arc<Fate>) -> Arc<Self> {
        Arc::new(Self {
            id,
            fate,
            queue: Mutex::default(),
            changed: Condvar::new(),
            completed: AtomicU64::new(0),
            busy_polls: AtomicU32::new(0),
        })
    }

    pub(crate) fn submit(self: &Arc<Self>, operation: Operation) -> CallResult<u64> {
        let mut queue = lock(&self.queue);
        if !queue.has_thread {
            let stream = Arc::clone(self);
            let name = format!("mock stream {}", self.id & 0xffff);
            let spawned = std::thread::Builder::new().name(name).spawn(move || stream.work());
            if spawned.is_err() {
                return Err(OUT_OF_MEMORY);
            }
            queue.has_thread = true;
        }
        queue.operations.push_back(operation);
        queue.submitted += 1;
        self.changed.notify_all();
        Ok(queue.submitted)
    }

    pub(crate) fn last(&self) -> u64 {
        lock(&self.queue).submitted
    }

    pub(crate) fn is_done(&self, ticket: u64) -> bool {
        self.completed.load(Ordering::Acquire) >= ticket
    }

    pub(crate) fn query(&self) -> CallResult {
        self.query_ticket(self.last())
    }

    fn query_ticket(&self, ticket: u64) -> CallResult {
        let done = self.is_done(ticket);
        self.fate.check()?;
        if done {
            self.busy_polls.store(0, Ordering::Relaxed);
            return Ok(());
        }
        // Unlike with a device, a polling thread may hold the CPU that the stream's thread needs.
        if self.busy_polls.fetch_add(1, Ordering::Relaxed) < BUSY_POLLS {
            std::thread::yield_now();
        } else {
            let queue = lock(&self.queue);
            if !self.is_done(ticket) {
                drop(self.sleep(queue, POLL_WAIT));
            }
        }
        Err(NOT_READY)
    }

    /// Waits until operation `ticket` is done. The driver would wait forever for a kernel that never ends; the mock fails instead.
    pub(crate) fn wait(&self, ticket: u64, what: &str) -> CallResult {
        let begin = Instant::now();
        let limit = Duration::from_millis(control().wait_ms);
        let mut queue = lock(&self.queue);
        while !self.is_done(ticket) {
            if self.fate.is_gone() {
                return Ok(());
            }
            if begin.elapsed() > limit {
                // The context ends, so that nothing writes to the caller's memory after the failed call.
                self.fate.end(
                    LAUNCH_TIMEOUT,
                    &format!(
                        "{what} has waited {} ms for a stream: a kernel that does not end, or a stall? The driver would wait on",
                        limit.as_millis()
                    ),
                );
                return Err(LAUNCH_TIMEOUT);
            }
            queue = self.sleep(queue, CHECK_INTERVAL);
        }
        drop(queue);
        self.fate.check()
    }

    fn sleep<'a>(&self, queue: MutexGuard<'a, Queue>, limit: Duration) -> MutexGuard<'a, Queue> {
        self.changed.wait_timeout(queue, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends the thread after the operations already submitted.
    pub(crate) fn close(&self) {
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn join(&self) {
        let begin = Instant::now();
        let mut queue = lock(&self.queue);
        while queue.has_thread && begin.elapsed() < LEAVE_LIMIT {
            queue = self.sleep(queue, CHECK_INTERVAL);
        }
    }

    fn work(self: Arc<Self>) {
        let mut worker = StreamWorker { chance: Chance::new(control().seed ^ self.id), stream: self };
        while let Some(operation) = worker.next() {
            // A panic here loses the context; the process continues.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run(&operation)));
            if done.is_err() {
                worker.stream.fate.end(UNKNOWN, "the mock itself failed: see the panic above");
            }
            drop(operation);
            // Under the lock; otherwise a waiter could check before the count and sleep after the notification.
            let stream = &worker.stream;
            let queue = lock(&stream.queue);
            stream.completed.fetch_add(1, Ordering::Release);
            drop(queue);
            stream.changed.notify_all();
        }
    }
}

struct StreamWorker {
    stream: Arc<MockStream>,
    chance: Chance,
}

impl StreamWorker {
    fn next(&mut self) -> Option<Operation> {
        let stream = Arc::clone(&self.stream);
        let mut queue = lock(&stream.queue);
        loop {
            if stream.fate.is_gone() {
                // The remaining operations count as done: no thread waits for them.
                stream.completed.store(queue.submitted, Ordering::Release);
                queue.operations.clear();
                queue.has_thread = false;
                stream.changed.notify_all();
                return None;
            }
            if let Some(operation) = queue.operations.pop_front() {
                return Some(operation);
            }
            if queue.closed {
                queue.has_thread = false;
                stream.changed.notify_all();
                return None;
            }
            queue = stream.sleep(queue, CHECK_INTERVAL);
        }
    }

    fn run(&mut self, operation: &Operation) {
        self.wait_while_stalled();
        self.delay(1, u64::MAX);
        if self.stream.fate.check().is_err() {
            return;
        }
        // A free changes only the driver's bookkeeping; it is not an operation of the device.
        if !matches!(operation, Operation::Free(_))
            && let Some(code) = control().operation()
        {
            self.stream.fate.end(code, &format!("injected fault: an operation fails with {code}"));
            return;
        }
        let Some(memory) = memory::memory() else { return };
        let outcome = match operation {
            Operation::Kernel(launch) => self.kernel(launch, memory),
            Operation::Copy(copy) => run_copy(memory, copy),
            Operation::Fill(address, words, word) => run_fill(memory, *address, *words, *word),
            Operation::Record(time) => {
                let _ = time.set(Instant::now());
                Ok(())
            }
            Operation::Free(address) => {
                if memory.free(*address, MemoryKind::Device) {
                    Ok(())
                } else {
                    Err(ILLEGAL_ADDRESS)
                }
            }
        };
        if let Err(code) = outcome {
            self.stream.fate.end(code, &format!("{operation:?} failed with {code}"));
        }
    }

    fn kernel(&mut self, launch: &Launch, memory: &'static MockMemory) -> CallResult {
        let mut counters = WarpCounters::default();
        let outcome = grid::run(launch, memory, self, &mut counters);
        let c = control();
        c.words_read.fetch_add(counters.loads, Ordering::Relaxed);
        c.words_written.fetch_add(counters.stores, Ordering::Relaxed);
        for (all, of_launch) in c.transactions.iter().zip(counters.transactions) {
            all.fetch_add(of_launch, Ordering::Relaxed);
        }
        c.instructions.fetch_add(counters.instructions, Ordering::Relaxed);
        c.launches.fetch_add(1, Ordering::Relaxed);
        if let Err(fault) = outcome
            && !self.stream.fate.is_gone()
        {
            self.stream.fate.end(fault.code, &fault.what);
        }
        Ok(())
    }

    fn wait_while_stalled(&self) {
        while control().stalled() && !self.stream.fate.is_gone() {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sleeps once in `odds` calls, at most `most` microseconds.
    fn delay(&mut self, odds: u64, most: u64) {
        let max = u64::from(control().delay_us()).min(most);
        if max > 0 && self.chance.next().is_multiple_of(odds) {
            std::thread::sleep(Duration::from_micros(self.chance.next() % (max + 1)));
        }
    }
}

impl Owner for StreamWorker {
    fn stop(&mut self) -> Option<u32> {
        self.wait_while_stalled();
        let fate = &self.stream.fate;
        if fate.is_gone() { Some(CONTEXT_DESTROYED) } else { fate.check().err() }
    }

    fn delays(&self) -> bool {
        control().delay_us() > 0
    }

    fn between_blocks(&mut self) {
        self.delay(16, u64::MAX);
    }

    fn before_load(&mut self) {
        self.delay(LOADS_A_DELAY, LOAD_DELAY_US_MAX);
    }
}

struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn host_address(memory: &MockMemory, end: &CopyPlace, bytes: usize) -> CallResult<usize> {
    match end {
        CopyPlace::Host(at) => Ok(*at),
        CopyPlace::Device(address) => memory.range(*address, bytes as u64).ok_or(ILLEGAL_ADDRESS),
        CopyPlace::Staged(staged) => Ok(staged.as_ptr().expose_provenance()),
    }
}

fn run_copy(memory: &MockMemory, copy: &Copy) -> CallResult {
    let (to, from) =
        (host_address(memory, &copy.to, copy.bytes)?, host_address(memory, &copy.from, copy.bytes)?);
    if let CopyPlace::Device(address) = copy.to {
        unmark_written(memory, address, copy.bytes);
        control().bytes_copied_in.fetch_add(copy.bytes as u64, Ordering::Relaxed);
    }
    memory::copy(to, from, copy.bytes);
    Ok(())
}

fn run_fill(memory: &MockMemory, address: u64, words: usize, word: u32) -> CallResult {
    let at = memory.range(address, 4 * words as u64).ok_or(ILLEGAL_ADDRESS)?;
    unmark_written(memory, address, 4 * words);
    memory::fill_words(at, 4 * words, word);
    Ok(())
}

fn unmark_written(memory: &MockMemory, address: u64, bytes: usize) {
    if memory.has_marks() {
        memory.check_marks(address, bytes as u64, true);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) stream: Arc<MockStream>,
    pub(crate) ticket: u64,
    pub(crate) time: Arc<OnceLock<Instant>>,
}

#[derive(Debug, Default)]
pub(crate) struct MockEvent {
    pub(crate) timed: bool,
    pub(crate) recorded: Mutex<Option<Recorded>>,
}

impl MockEvent {
    /// Whether the operations before the record are done; true if never recorded.
    pub(crate) fn query(&self) -> CallResult {
        let recorded = lock(&self.recorded).clone();
        recorded.map_or(Ok(()), |recorded| recorded.stream.query_ticket(recorded.ticket))
    }
}
