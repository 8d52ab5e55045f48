//! Notices: messages about unsolicited events, such as an engine that goes out of service.
//!
//! Modules below the commands do not print. They post a notice, and the program registers at its start who receives it
//! ([`listen`]). Posting may happen on an lcore, so a listener must not block.

use std::fmt::Display;
use std::sync::OnceLock;

static LISTENER: OnceLock<fn(String)> = OnceLock::new();

/// Registers `listener` for all notices of this process. Only the first call has an effect; earlier notices are lost.
pub(crate) fn listen(listener: fn(String)) {
    let _ = LISTENER.set(listener);
}

/// Posts a notice.
pub(crate) fn post(text: impl Display) {
    if let Some(listener) = LISTENER.get() {
        listener(text.to_string());
    }
}

/// Posts a warning: something is wrong, but the program goes on.
pub(crate) fn warn(text: impl Display) {
    post(format_args!("warning: {text}"));
}
