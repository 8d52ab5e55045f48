//! DPDK's log, passed to the program line by line, from before EAL starts to the end of the process.

use std::panic::catch_unwind;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::DpdkError;
use crate::sys;

/// The level of a line of DPDK's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DpdkLogLevel {
    /// A failure.
    Error,
    /// An unexpected state.
    Warning,
    /// A normal event.
    Info,
    /// Details, enabled by EAL's `--log-level`.
    Debug,
}

impl DpdkLogLevel {
    const fn from_rte(level: u32) -> Self {
        match level {
            0..=4 => Self::Error,
            5 => Self::Warning,
            6 | 7 => Self::Info,
            _ => Self::Debug,
        }
    }
}

type LogListener = fn(DpdkLogLevel, &str);

static LISTENER: OnceLock<LogListener> = OnceLock::new();

static AT_END: OnceLock<fn()> = OnceLock::new();

/// The start of an unfinished line. stdio's lock of the stream admits one thread at a time, so the mutex is uncontended.
static STARTED: Mutex<String> = Mutex::new(String::new());

/// The maximum length of a line; longer lines are cut.
const LINE_BYTES_MAX: usize = 4096;

/// Passes all lines of DPDK's log to `listener` from now on. Call it before [`Eal::init`](crate::Eal::init), which logs at once. The
/// listener may be called on any thread, an lcore's too, and after EAL's cleanup; it must not block. Only the first call has an effect.
/// `at_end` is called when the process ends, to write queued lines: EAL since DPDK 25.11 ends the process after a wrong argument.
///
/// # Errors
/// [`DpdkError::Call`] if memory for a stream is short; DPDK then logs to standard error.
pub fn listen_to_log(listener: LogListener, at_end: fn()) -> Result<(), DpdkError> {
    if LISTENER.set(listener).is_err() {
        return Ok(());
    }
    let _ = AT_END.set(at_end);
    // SAFETY: `on_text` may be called from any thread until the process ends, and `on_exit` at its end; neither unwinds.
    match unsafe { sys::dffi_log_to(Some(on_text), Some(on_exit)) } {
        0 => Ok(()),
        errno => Err(DpdkError::call("rte_openlog_stream", errno)),
    }
}

unsafe extern "C" fn on_exit() {
    drop(catch_unwind(|| AT_END.get().map(|at_end| at_end())));
}

unsafe extern "C" fn on_text(level: u32, text: *const std::ffi::c_char, bytes: usize) {
    // SAFETY: stdio gives its buffer, which holds this many bytes during this call.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    // Panics are caught here, as the caller is C code.
    drop(catch_unwind(|| {
        let Some(listener) = LISTENER.get() else { return };
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        split(&mut started, &String::from_utf8_lossy(text), |line| {
            listener(DpdkLogLevel::from_rte(level), line)
        });
    }));
}

/// Passes on the lines that end within `text`, the first of which begins with `started`; keeps the start of the next one.
fn split(started: &mut String, text: &str, mut give: impl FnMut(&str)) {
    for part in text.split_inclusive('\n') {
        let line = part.trim_end_matches(['\n', '\r']);
        let room = LINE_BYTES_MAX.saturating_sub(started.len());
        started.push_str(&line[..line.floor_char_boundary(room)]);
        if part.ends_with('\n') {
            if !started.is_empty() {
                give(started);
            }
            started.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_is_written_at_once() {
        let (mut started, mut lines) = (String::new(), Vec::new());
        for text in ["EAL: one\nEAL: t", "w", "o\r\n\n", "EAL: three\nEAL: four\n", "EAL: fi"] {
            split(&mut started, text, |line| lines.push(line.to_owned()));
        }
        assert_eq!(lines, ["EAL: one", "EAL: two", "EAL: three", "EAL: four"]);
        assert_eq!(started, "EAL: fi");
        let long = "é".repeat(LINE_BYTES_MAX);
        split(&mut started, &long, |_| panic!("it has no end"));
        split(&mut started, "\n", |line| assert!(line.len() <= LINE_BYTES_MAX && line.ends_with('é')));
        assert_eq!(started, "");
    }

    #[test]
    fn levels_of_dpdk() {
        use DpdkLogLevel::{Debug, Error, Info, Warning};
        assert_eq!(
            [1, 4, 5, 6, 7, 8, 9].map(DpdkLogLevel::from_rte),
            [Error, Error, Warning, Info, Info, Debug, Debug]
        );
    }
}
