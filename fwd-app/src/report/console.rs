//! Messages for the person at the terminal: lines on stderr, which nobody waits for while packets flow.
//!
//! `eprintln!` panics when stderr cannot be written to (`2>&1 | head`), and waits for as long as nobody reads it (a terminal stopped
//! by Ctrl-S, a full pipe): it may cost the process its signals, or an lcore its packets. So here a write that fails is ignored, and
//! while a [`Printer`] lives its thread does the writing: who has something to say leaves the line in a queue. What does not fit there
//! is dropped, and how much that was is said as soon as stderr takes lines again. The same thread shows a warning that repeats once a
//! second.
//!
//! When stderr is the journal, each line begins with its priority as `<N>`, which journald takes off (sd-daemon(3)).

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

/// Lines that may wait for stderr.
const LINES_MAX: usize = 256;
/// How long the end of the program waits for a stderr, or stdout, that takes nothing.
const DRAIN: Duration = Duration::from_secs(1);
/// How often a wait for stdout looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// The queue of this process's [`Printer`].
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Writes `fwd-app: TEXT` to stderr: why something failed.
pub(crate) fn say(text: impl Display) {
    write(LogMessage { level: LogLevel::Error, site: None, text: format!("fwd-app: {text}") });
}

/// Writes `fwd-app: warning: TEXT` to stderr: something is not as it should be, and the work goes on.
#[track_caller]
pub(crate) fn warn(text: impl Display) {
    if notice::is_on(LogLevel::Warn) {
        notice(LogLevel::Warn, Location::caller(), &text.to_string());
    }
}

/// Writes a notice to stderr. A warning of the same place in the source with the same text is shown once a second.
pub(crate) fn notice(level: LogLevel, site: &'static Location<'static>, text: &str) {
    let text = match level {
        LogLevel::Warn => format!("fwd-app: warning: {text}"),
        LogLevel::Debug => format!("fwd-app: debug: {text}"),
        LogLevel::Error | LogLevel::Info => format!("fwd-app: {text}"),
    };
    write(LogMessage { level, site: Some(site).filter(|_| level == LogLevel::Warn), text });
}

/// Writes a line to stderr as it is, if lines of `level` are wanted: how the forwarder is set up, what DPDK says.
pub(crate) fn line(level: LogLevel, text: impl Display) {
    if notice::is_on(level) {
        write(LogMessage { level, site: None, text: text.to_string() });
    }
}

/// Writes a line to stderr that somebody has asked for, whatever the level: statistics.
pub(crate) fn asked(text: impl Display) {
    write(LogMessage { level: LogLevel::Info, site: None, text: text.to_string() });
}

fn write(message: LogMessage) {
    match QUEUE.get() {
        Some(queue) => queue.push(message),
        None => message.write_to(&mut io::stderr(), is_journal()),
    }
}

/// Text on its way to stderr.
struct LogMessage {
    level: LogLevel,
    /// Of a warning: where it is in the source.
    site: Option<&'static Location<'static>>,
    text: String,
}

impl LogMessage {
    /// Writes it in one go, each of its lines with its priority if `out` is the journal. What cannot be written is gone.
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

/// Whether stderr is the journal's stream, whose device and inode systemd puts into `JOURNAL_STREAM`.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let stat = rustix::fs::fstat(io::stderr());
        let here = stat.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        here.is_ok_and(|here| std::env::var("JOURNAL_STREAM").is_ok_and(|stream| stream == here))
    })
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
        if let Ok(queue) = Queue::start(io::stderr(), is_journal()) {
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
        drain();
    }
}

/// Waits until all lines are written, for a second at most.
pub(crate) fn drain() {
    if let Some(queue) = QUEUE.get() {
        queue.drain(DRAIN);
    }
}

/// What the printing thread is to do.
enum Task {
    Write(LogMessage),
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
    fn start(out: impl Write + Send + 'static, is_journal: bool) -> io::Result<Self> {
        let (tasks, todo) = bounded(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&lost);
        thread::Builder::new()
            .name("printer".into())
            .spawn(move || write_all(&todo, &theirs, out, is_journal))?;
        Ok(Self { tasks, lost })
    }

    /// Never waits.
    fn push(&self, message: LogMessage) {
        if self.tasks.try_send(Task::Write(message)).is_err() {
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
fn write_all(todo: &Receiver<Task>, lost: &AtomicU64, mut out: impl Write, is_journal: bool) {
    let mut repeats = Repeats::default();
    let warn = |out: &mut _, text: String| {
        LogMessage { level: LogLevel::Warn, site: None, text }.write_to(out, is_journal);
    };
    loop {
        let task = if repeats.is_empty() {
            todo.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            todo.recv_timeout(PERIOD)
        };
        // At the end of the program what has been left out is said at once.
        let is_end = !matches!(task, Ok(Task::Write(_)) | Err(RecvTimeoutError::Timeout));
        let now = Instant::now() + if is_end { PERIOD } else { Duration::ZERO };
        repeats.take_due(now).into_iter().for_each(|text| warn(&mut out, text));
        if let Ok(Task::Write(message)) = &task
            && message.site.is_none_or(|site| repeats.admits(now, site, &message.text))
        {
            message.write_to(&mut out, is_journal);
        }
        // What was lost came after all that waits here.
        if todo.is_empty() {
            let lost = lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let text = "lines are missing here: nobody read them in time";
                warn(&mut out, format!("fwd-app: warning: {lost} {text}"));
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
        // A slow machine may need more than a second for this.
        assert!(written.starts_with("again\n") && written.contains("other\n"), "{written}");
        assert!(written.contains("again (") && written.lines().count() < 10, "{written}");
    }

    #[test]
    fn lines_wait_in_order_and_what_does_not_fit_is_counted() {
        let (permit, permits) = bounded(10_000);
        let written = Arc::new(Mutex::new(String::new()));
        let queue = Queue::start(Slow(permits, Arc::clone(&written)), false).unwrap();
        let lines = (LINES_MAX + 100) as u64;
        for i in 0..lines {
            queue.push(info(i));
        }
        // One may be with the thread, the queue is full, the rest is lost.
        let lost = queue.lost.load(Ordering::Relaxed);
        assert!((99..=100).contains(&lost), "{lost}");
        assert!(!queue.drain(Duration::from_millis(20)), "nothing was written");
        for _ in 0..lines {
            permit.send(()).unwrap();
        }
        assert!(queue.drain(Duration::from_secs(10)));
        queue.push(info("the last"));
        assert!(queue.drain(Duration::from_secs(10)));
        let mut wanted: String = (0..lines - lost).map(|i| format!("{i}\n")).collect();
        wanted +=
            &format!("fwd-app: warning: {lost} lines are missing here: nobody read them in time\nthe last\n");
        assert_eq!(*written.lock().unwrap(), wanted);
        // Closed: each line is gone, and nothing waits.
        drop(permit);
        (0..lines).for_each(|i| queue.push(info(i)));
        assert!(queue.drain(Duration::from_secs(10)));
    }
}
