//! Notices: messages about unsolicited events. Modules below the commands do not print but post a notice, and the program registers the
//! receiver at its start ([`listen`]). Posting may happen on an lcore, so a listener must not block.

use std::fmt::Display;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Severity of a message, as in `--log-level`. The numbers are syslog's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LogLevel {
    Error = 3,
    Warn = 4,
    Info = 6,
    Debug = 7,
}

impl LogLevel {
    pub(crate) const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Messages above this level are discarded.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

type NoticeListener = fn(LogLevel, &'static Location<'static>, &str);

static LISTENER: OnceLock<NoticeListener> = OnceLock::new();

/// Registers `listener` for all notices of this process. Only the first call has an effect; earlier notices are lost.
pub(crate) fn listen(listener: NoticeListener) {
    let _ = LISTENER.set(listener);
}

pub(crate) fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

pub(crate) fn is_on(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

#[track_caller]
pub(crate) fn post(text: impl Display) {
    send(LogLevel::Info, text);
}

/// Posts a warning: something is wrong, but the program goes on. The same warning is shown once a second.
#[track_caller]
pub(crate) fn warn(text: impl Display) {
    send(LogLevel::Warn, text);
}

/// Posts an error: packets may have been forwarded wrongly. Repeats are suppressed as in [`warn`].
#[track_caller]
pub(crate) fn error(text: impl Display) {
    send(LogLevel::Error, text);
}

/// Posts a detail. Not for per-packet events.
#[track_caller]
pub(crate) fn debug(text: impl Display) {
    send(LogLevel::Debug, text);
}

#[track_caller]
fn send(level: LogLevel, text: impl Display) {
    if is_on(level)
        && let Some(listener) = LISTENER.get()
    {
        listener(level, Location::caller(), &text.to_string());
    }
}
