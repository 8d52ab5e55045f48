//! Notices: messages about unsolicited events, such as an engine that goes out of service.
//!
//! Modules below the commands do not print. They post a notice, and the program registers at its start who receives it
//! ([`listen`]). Posting may happen on an lcore, so a listener must not block. What nobody wants to see, by its [`LogLevel`], is not even
//! put into words.

use std::fmt::Display;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// How important a message is, as `--log-level` names it. The number is that of syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LogLevel {
    /// Why something failed.
    Error = 3,
    /// Something is not as it should be, and the work goes on.
    Warn = 4,
    /// What is done, and how the forwarder is set up.
    Info = 6,
    /// Details for whoever looks for a fault.
    Debug = 7,
}

impl LogLevel {
    /// All of them, the most important first.
    pub(crate) const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Messages above this level are left out.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);

/// Takes a message, and the place in the source that has it.
type Listener = fn(LogLevel, &'static Location<'static>, &str);

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Registers `listener` for all notices of this process. Only the first call has an effect; earlier notices are lost.
pub(crate) fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Leaves out all messages that are less important than `level`, from now on.
pub(crate) fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether messages of `level` are wanted.
pub(crate) fn is_on(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Posts a notice.
#[track_caller]
pub(crate) fn post(text: impl Display) {
    send(LogLevel::Info, text);
}

/// Posts a warning: something is wrong, but the program goes on. The same warning is shown once a second.
#[track_caller]
pub(crate) fn warn(text: impl Display) {
    send(LogLevel::Warn, text);
}

/// Posts a detail. Not for what happens with each packet.
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
