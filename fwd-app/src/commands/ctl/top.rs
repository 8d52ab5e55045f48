//! `fwd-app ctl top`: `show rates` every second.
//!
//! On a terminal each answer replaces the last on the alternate screen until q or Ctrl-C, and the terminal is restored on every exit. A
//! forwarder that does not answer is retried. Elsewhere answers are separated by blank lines, and the first error ends them.

use super::RemoteForwarder;
use crate::commands::exit;
use crate::report::output::is_broken_pipe;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);
const WAIT: Duration = Duration::from_secs(2);
/// Enters the alternate screen and hides the cursor, and back (xterm's private modes 1049 and 25).
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const ERASE_RIGHT: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";
/// Ctrl-C as input, without its signal.
const CTRL_C: u8 = 3;

/// Shows the rates `count` times, or until ended.
///
/// # Errors
/// The first request fails; without a terminal, any request.
pub(super) fn main(forwarder: &RemoteForwarder, count: Option<NonZeroU64>) -> anyhow::Result<()> {
    let forwarder = RemoteForwarder { timeout: forwarder.timeout.or(Some(WAIT)), ..forwarder.clone() };
    let first = ask(&forwarder)?;
    if !forwarder.json && io::stdout().is_terminal() {
        on_terminal(&forwarder, first, count).context("cannot use this terminal")
    } else {
        match in_a_row(&forwarder, first, count) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            other => other,
        }
    }
}

fn ask(forwarder: &RemoteForwarder) -> anyhow::Result<String> {
    let mut answer = String::new();
    let mut take = |part: &str| {
        answer.push_str(part);
        Ok(ControlFlow::Continue(()))
    };
    let _ = forwarder.ask("show rates", None, forwarder.json, &mut take)?;
    Ok(answer)
}

fn in_a_row(forwarder: &RemoteForwarder, first: String, count: Option<NonZeroU64>) -> anyhow::Result<()> {
    let (mut answer, mut out) = (first, io::stdout().lock());
    for number in 1_u64.. {
        let begun = Instant::now();
        // Answers in JSON are separate lines already.
        let gap = if forwarder.json || number == 1 { "" } else { "\n" };
        let end = if answer.ends_with('\n') { "" } else { "\n" };
        write!(out, "{gap}{answer}{end}")?;
        out.flush()?;
        if count.is_some_and(|count| number >= count.get()) {
            break;
        }
        std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
        answer = ask(forwarder)?;
    }
    Ok(())
}

fn on_terminal(forwarder: &RemoteForwarder, first: String, count: Option<NonZeroU64>) -> io::Result<()> {
    let mut answer = first;
    let screen = Screen::enter()?;
    for number in 1_u64.. {
        let due = Instant::now() + PERIOD;
        screen.draw(&format!("fwd-app at {}; q ends\n{answer}", forwarder.socket.display()))?;
        if count.is_some_and(|count| number >= count.get()) || screen.is_ended_by(due)? {
            break;
        }
        answer = ask(forwarder).unwrap_or_else(|error| format!("{}\n", exit::message(&error)));
    }
    drop(screen);
    // A requested number of screens leaves the last one visible.
    if count.is_some() { io::stdout().write_all(answer.as_bytes()) } else { Ok(()) }
}

struct Screen {
    before: Option<Termios>,
    signals: &'static EndSignals,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let signals = EndSignals::get()?;
        signals.is_default.store(false, Ordering::Relaxed);
        // From here on `drop` restores the terminal.
        let mut screen = Self { before: None, signals };
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let before = tcgetattr(&stdin)?;
            let mut keys = before.clone();
            // Without ISIG, Ctrl-Z cannot leave the alternate screen behind.
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            tcsetattr(&stdin, OptionalActions::Now, &keys)?;
            screen.before = Some(before);
        }
        write(ENTER)?;
        Ok(screen)
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())?;
        // A terminal of unknown size counts as 24 lines of 80 columns.
        let or = |size: u16, usual: usize| if size == 0 { usual } else { size.into() };
        write(&screenful(text, or(size.ws_row, 24), or(size.ws_col, 80)))
    }

    /// Waits until `due`; returns whether a key or a signal ended the display.
    fn is_ended_by(&self, due: Instant) -> io::Result<bool> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if self.signals.is_ended.load(Ordering::Relaxed) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            let stdin = io::stdin();
            let mut keyboard = [PollFd::new(&stdin, PollFlags::IN)];
            let keyboard = if self.before.is_some() { &mut keyboard[..] } else { &mut [] };
            match poll(keyboard, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let mut keys = [0; 64];
            let count = rustix::io::read(&stdin, &mut keys)?;
            // End of file: the terminal is gone.
            if count == 0 || keys[..count].iter().any(|key| matches!(*key, b'q' | b'Q' | CTRL_C)) {
                return Ok(true);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: the terminal may be gone.
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        self.signals.is_default.store(true, Ordering::Relaxed);
        self.signals.is_ended.store(false, Ordering::Relaxed);
    }
}

/// Signals that end the program: flags on the alternate screen, otherwise immediate.
struct EndSignals {
    is_ended: Arc<AtomicBool>,
    is_default: Arc<AtomicBool>,
}

impl EndSignals {
    /// Registered once, since a registered signal never returns to the system's default.
    fn get() -> io::Result<&'static Self> {
        static TAKEN: OnceLock<EndSignals> = OnceLock::new();
        if let Some(taken) = TAKEN.get() {
            return Ok(taken);
        }
        let signals = Self { is_ended: Arc::default(), is_default: Arc::new(AtomicBool::new(true)) };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_conditional_default(signal, Arc::clone(&signals.is_default))?;
            flag::register(signal, Arc::clone(&signals.is_ended))?;
        }
        Ok(TAKEN.get_or_init(|| signals))
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn screenful(text: &str, rows: usize, columns: usize) -> String {
    let (mut out, lines) = (HOME.to_owned(), text.lines().count());
    let shown = if lines > rows { rows.saturating_sub(1) } else { lines };
    let rest = (lines > rows).then(|| format!("{} more lines", lines - shown));
    let last = text.lines().take(shown).map(str::to_owned).chain(rest);
    for (number, line) in last.enumerate() {
        let line: String = line.chars().take(columns).collect();
        // A line end after the last line would scroll.
        let _ = write!(out, "{}{line}{ERASE_RIGHT}", if number == 0 { "" } else { "\n" });
    }
    out.push_str(ERASE_BELOW);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_has_what_there_is_room_for() {
        assert_eq!(screenful("ab\nc\n", 2, 80), "\x1b[Hab\x1b[K\nc\x1b[K\x1b[J");
        assert_eq!(screenful("abcd\nc\nd\ne\n", 3, 3), "\x1b[Habc\x1b[K\nc\x1b[K\n2 m\x1b[K\x1b[J");
        assert_eq!(screenful("", 24, 80), "\x1b[H\x1b[J");
    }
}
