//! Messages on stderr that never block the sender.
//!
//! `eprintln!` panics when stderr is closed (`2>&1 | head`) and blocks while nothing reads it (a terminal stopped by Ctrl-S, a full pipe),
//! which could cost an lcore its packets. Here failed writes are ignored, and a [`Printer`]'s thread writes the lines from a bounded queue.
//! Lines that do not fit are dropped and counted. The thread also limits repeated warnings to one a second.
//!
//! When stderr is the journal, each line has its priority as the prefix `<N>` (sd-daemon(3)).

use super::repeats::{PERIOD, Repeats};
use crate::notice::{self, LogLevel};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::io::{self, Write};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const LINES_MAX: usize = 256;
/// How long the program's end waits for a blocked stderr or stdout.
const DRAIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);

static QUEUE: OnceLock<Queue> = OnceLock::new();

pub(crate) fn say(text: impl Display) {
    write(LogMessage { level: LogLevel::Error, site: None, text: format!("fwd-app: {text}") });
}

#[track_caller]
pub(crate) fn warn(text: impl Display) {
    if notice::is_on(LogLevel::Warn) {
        notice(LogLevel::Warn, Location::caller(), &text.to_string());
    }
}

/// Writes a notice to stderr. A warning or error with the same source location and text is shown once a second.
pub(crate) fn notice(level: LogLevel, site: &'static Location<'static>, text: &str) {
    let text = match level {
        LogLevel::Warn => format!("fwd-app: warning: {text}"),
        LogLevel::Debug => format!("fwd-app: debug: {text}"),
        LogLevel::Error => format!("fwd-app: error: {text}"),
        LogLevel::Info => format!("fwd-app: {text}"),
    };
    write(LogMessage { level, site: Some(site).filter(|_| level <= LogLevel::Warn), text });
}

/// Writes an unprefixed line to stderr, subject to the log level: the setup, DPDK's log.
pub(crate) fn line(level: LogLevel, text: impl Display) {
    if notice::is_on(level) {
        write(LogMessage { level, site: None, text: text.to_string() });
    }
}

pub(crate) fn asked(text: impl Display) {
    write(LogMessage { level: LogLevel::Info, site: None, text: text.to_string() });
}

fn write(message: LogMessage) {
    match QUEUE.get() {
        Some(queue) => queue.push(message),
        None => message.write_to(&mut io::stderr(), is_journal()),
    }
}

struct LogMessage {
    level: LogLevel,
    site: Option<&'static Location<'static>>,
    text: String,
}

impl LogMessage {
    /// Writes the text in one call, with a priority before each line for the journal. Errors are ignored.
    fn write_to(&self, out: &mut impl Write, is_journal: bool) {
        let mut lines = String::with_capacity(self.text.len() + 4);
        for line in self.text.split('\n') {
            if is_journal {
                lines.push_str(&format!("<{}>", self.level as u8));
            }
            lines.push_str(line);
            lines.push('\n');
        }
        drop(out.write_all(lines.as_bytes()));
    }
}

/// Whether stderr is the journal: systemd puts the stream's device and inode into `JOURNAL_STREAM`.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let stat = rustix::fs::fstat(io::stderr());
        let here = stat.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        here.is_ok_and(|here| std::env::var("JOURNAL_STREAM").is_ok_and(|stream| stream == here))
    })
}

/// Writes a result to stdout and waits for it; once `is_over` for at most a second more. A closed stdout is not an error.
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

/// A thread that writes lines to stderr, panics of all threads included. Dropping it waits for queued lines, for at most a second.
#[must_use = "dropping it waits for what was said"]
pub(crate) struct Printer(());

impl Printer {
    /// The thread inherits the caller's CPU affinity, so EAL must not have pinned it yet. Without a thread, senders write their messages.
    pub(crate) fn start() -> Self {
        if let Ok(queue) = Queue::start(io::stderr(), is_journal()) {
            // A second printer would share the first one's queue.
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
        drain();
    }
}

/// Waits for queued lines, for at most a second.
pub(crate) fn drain() {
    if let Some(queue) = QUEUE.get() {
        queue.drain(DRAIN);
    }
}

enum Task {
    Write(LogMessage),
    /// Dropped once all earlier lines are written.
    Drained {
        _done: Sender<()>,
    },
}

struct Queue {
    tasks: Sender<Task>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    fn start(out: impl Write + Send + 'static, is_journal: bool) -> io::Result<Self> {
        let (tasks, todo) = bounded(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&lost);
        thread::Builder::new()
            .name("printer".into())
            .spawn(move || write_all(&todo, &theirs, out, is_journal))?;
        Ok(Self { tasks, lost })
    }

    fn push(&self, message: LogMessage) {
        if self.tasks.try_send(Task::Write(message)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits up to `limit` for the queue to drain, and returns whether it did.
    fn drain(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let (done, drained) = bounded::<()>(0);
        self.tasks.send_deadline(Task::Drained { _done: done }, end).is_ok()
            && drained.recv_deadline(end) == Err(RecvTimeoutError::Disconnected)
    }
}

/// The loop of the printing thread. A line that stderr refuses is not retried.
fn write_all(todo: &Receiver<Task>, lost: &AtomicU64, mut out: impl Write, is_journal: bool) {
    let mut repeats = Repeats::default();
    let write = |out: &mut _, level, text: String| {
        LogMessage { level, site: None, text }.write_to(out, is_journal);
    };
    loop {
        let task = if repeats.is_empty() {
            todo.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            todo.recv_timeout(PERIOD)
        };
        // At the end the suppressed messages are reported at once.
        let is_end = !matches!(task, Ok(Task::Write(_)) | Err(RecvTimeoutError::Timeout));
        let now = Instant::now() + if is_end { PERIOD } else { Duration::ZERO };
        repeats.take_due(now).into_iter().for_each(|(level, text)| write(&mut out, level, text));
        if let Ok(Task::Write(message)) = &task
            && message.site.is_none_or(|site| repeats.admits(now, site, message.level, &message.text))
        {
            message.write_to(&mut out, is_journal);
        }
        if todo.is_empty() {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let text = "lines were lost here: stderr was not read in time";
                write(&mut out, LogLevel::Warn, format!("fwd-app: warning: {lost} {text}"));
            }
        }
        if matches!(task, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        drop(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Accepts one write per permit; fails once the sender of permits is dropped.
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

    fn info(text: impl Display) -> LogMessage {
        LogMessage { level: LogLevel::Info, site: None, text: text.to_string() }
    }

    #[test]
    fn in_the_journal_each_line_has_its_priority() {
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];
        let mut out = Vec::new();
        for level in levels {
            LogMessage { level, site: None, text: "a\nb".to_owned() }.write_to(&mut out, true);
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "<3>a\n<3>b\n<4>a\n<4>b\n<6>a\n<6>b\n<7>a\n<7>b\n");
    }

    #[test]
    fn a_warning_that_repeats_is_written_once_and_at_the_end_with_how_often_it_came() {
        let (permit, permits) = bounded(100);
        (0..100).for_each(|_| permit.send(()).unwrap());
        let written = Arc::new(Mutex::new(String::new()));
        let queue = Queue::start(Slow(permits, Arc::clone(&written)), false).unwrap();
        let site = Location::caller();
        for _ in 0..50 {
            queue.push(LogMessage { level: LogLevel::Warn, site: Some(site), text: "again".to_owned() });
        }
        queue.push(info("other"));
        assert!(queue.drain(Duration::from_secs(10)));
        let written = written.lock().unwrap();
        assert!(written.starts_with("again\n") && written.contains("other\n"), "{written}");
        assert!(written.contains("again (") && written.lines().count() < 10, "{written}");
    }

    #[test]
    fn lines_wait_in_order_and_what_does_not_fit_is_counted() {
        let (permit, permits) = bounded(10_000);
        let written = Arc::new(Mutex::new(String::new()));
        let queue = Queue::start(Slow(permits, Arc::clone(&written)), false).unwrap();
        let lines = (LINES_MAX + 100) as u64;
        queue.push(info(0));
        while !queue.tasks.is_empty() {
            thread::yield_now();
        }
        // The thread holds a line, and the queue takes as many as fit; the rest is lost.
        (1..lines).for_each(|i| queue.push(info(i)));
        let lost = queue.lost.load(Ordering::Relaxed);
        assert_eq!(lost, 99);
        assert!(!queue.drain(Duration::from_millis(20)), "nothing was written");
        for _ in 0..lines {
            permit.send(()).unwrap();
        }
        assert!(queue.drain(Duration::from_secs(10)));
        queue.push(info("the last"));
        assert!(queue.drain(Duration::from_secs(10)));
        let mut wanted: String = (0..lines - lost).map(|i| format!("{i}\n")).collect();
        wanted += &format!(
            "fwd-app: warning: {lost} lines were lost here: stderr was not read in time\nthe last\n"
        );
        assert_eq!(*written.lock().unwrap(), wanted);
        drop(permit);
        (0..lines).for_each(|i| queue.push(info(i)));
        assert!(queue.drain(Duration::from_secs(10)));
    }
}
