//! Messages for the person at the terminal: lines on stderr, which nobody waits for while packets flow.
//!
//! `eprintln!` panics when stderr cannot be written to (`2>&1 | head`), and waits for as long as nobody reads it (a terminal stopped
//! by Ctrl-S, a full pipe): it may cost the process its signals, or an lcore its packets. So here a write that fails is ignored, and
//! while a [`Printer`] lives its thread does the writing: who has something to say leaves the line in a queue. What does not fit there
//! is dropped, and how much that was is said as soon as stderr takes lines again.

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait for stderr.
const LINES_MAX: usize = 256;
/// How long the end of the program waits for a stderr, or stdout, that takes nothing.
const DRAIN: Duration = Duration::from_secs(1);
/// How often a wait for stdout looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// The queue of this process's [`Printer`].
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Writes `fwd-app: TEXT` to stderr.
pub(crate) fn say(text: impl Display) {
    line(format_args!("fwd-app: {text}"));
}

/// Writes `fwd-app: warning: TEXT` to stderr: something is not as it should be, and the work goes on.
pub(crate) fn warn(text: impl Display) {
    say(format_args!("warning: {text}"));
}

/// Writes a line to stderr as it is: how the forwarder is set up, statistics.
pub(crate) fn line(text: impl Display) {
    let line = format!("{text}\n");
    match QUEUE.get() {
        Some(queue) => queue.push(line),
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Writes a result to stdout and waits until it is written, but once `is_over` for a second only. A stdout that is closed is no
/// failure.
pub(crate) fn print(text: String, is_over: impl Fn() -> bool) {
    let (done, written) = bounded::<()>(0);
    let text: Arc<str> = text.into();
    let theirs = Arc::clone(&text);
    let write = |text: &str| {
        let mut out = io::stdout().lock();
        drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    };
    let thread = thread::Builder::new().name("report".into()).spawn(move || {
        write(&theirs);
        drop(done);
    });
    if thread.is_err() {
        return write(&text);
    }
    let mut end = None;
    while written.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        if is_over() && Instant::now() >= *end.get_or_insert_with(|| Instant::now() + DRAIN) {
            break;
        }
    }
}

/// Writes lines to stderr on a thread of its own, panics of all threads among them. Dropping it waits until what was said is
/// written, for a second at most.
#[must_use = "dropping it waits for what was said"]
pub(crate) struct Printer(());

impl Printer {
    /// Starts the thread. It runs on the CPUs of the calling thread, so EAL must not have pinned that yet. Where the system refuses a
    /// thread, who says something writes it.
    pub(crate) fn start() -> Self {
        if let Ok(queue) = Queue::start(io::stderr()) {
            // A second printer would use the queue of the first.
            let _ = QUEUE.set(queue);
        }
        std::panic::set_hook(Box::new(|panic| {
            let (thread, backtrace) = (thread::current(), Backtrace::capture());
            let name = thread.name().unwrap_or("without a name");
            match backtrace.status() {
                BacktraceStatus::Captured => say(format_args!("thread {name} {panic}\n{backtrace}")),
                _ => say(format_args!("thread {name} {panic}")),
            }
        }));
        Self(())
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        if let Some(queue) = QUEUE.get() {
            queue.drain(DRAIN);
        }
    }
}

/// What the printing thread is to do.
enum Task {
    Write(String),
    /// All before it is written when this is dropped.
    Drained {
        _done: Sender<()>,
    },
}

/// Lines on their way to the printing thread.
struct Queue {
    tasks: Sender<Task>,
    /// Lines that found no room.
    lost: Arc<AtomicU64>,
}

impl Queue {
    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (tasks, todo) = bounded(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&lost);
        thread::Builder::new().name("printer".into()).spawn(move || write_all(&todo, &theirs, out))?;
        Ok(Self { tasks, lost })
    }

    /// Never waits.
    fn push(&self, line: String) {
        if self.tasks.try_send(Task::Write(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for `limit` at most; answers whether it is.
    fn drain(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let (done, drained) = bounded::<()>(0);
        self.tasks.send_deadline(Task::Drained { _done: done }, end).is_ok()
            && drained.recv_deadline(end) == Err(RecvTimeoutError::Disconnected)
    }
}

/// The printing thread: a stderr that refuses a line does not get it again.
fn write_all(todo: &Receiver<Task>, lost: &AtomicU64, mut out: impl Write) {
    for task in todo {
        if let Task::Write(line) = &task {
            drop(out.write_all(line.as_bytes()));
        }
        // What was lost came after all that waits here.
        if todo.is_empty() {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                drop(writeln!(
                    out,
                    "fwd-app: warning: {lost} lines are missing here: nobody read them in time"
                ));
            }
        }
        drop(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Takes a line whenever the test gives it a permit; refuses all once the permits have gone.
    struct Slow(Receiver<()>, Arc<Mutex<String>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            self.1.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_wait_in_order_and_what_does_not_fit_is_counted() {
        let (permit, permits) = bounded(10_000);
        let written = Arc::new(Mutex::new(String::new()));
        let queue = Queue::start(Slow(permits, Arc::clone(&written))).unwrap();
        let lines = (LINES_MAX + 100) as u64;
        for i in 0..lines {
            queue.push(format!("{i}\n"));
        }
        // One may be with the thread, the queue is full, the rest is lost.
        let lost = queue.lost.load(Ordering::Relaxed);
        assert!((99..=100).contains(&lost), "{lost}");
        assert!(!queue.drain(Duration::from_millis(20)), "nothing was written");
        for _ in 0..lines {
            permit.send(()).unwrap();
        }
        assert!(queue.drain(Duration::from_secs(10)));
        queue.push("the last\n".into());
        assert!(queue.drain(Duration::from_secs(10)));
        let mut wanted: String = (0..lines - lost).map(|i| format!("{i}\n")).collect();
        wanted +=
            &format!("fwd-app: warning: {lost} lines are missing here: nobody read them in time\nthe last\n");
        assert_eq!(*written.lock().unwrap(), wanted);
        // Closed: each line is gone, and nothing waits.
        drop(permit);
        (0..lines).for_each(|i| queue.push(format!("{i}\n")));
        assert!(queue.drain(Duration::from_secs(10)));
    }
}
