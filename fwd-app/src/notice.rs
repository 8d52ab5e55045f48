//! Notices: what happens at a moment when nobody has asked, such as an engine that goes out of service.
//!
//! Modules below the commands do not print. They post a notice, and the program decides at its start who gets it
//! ([`listen`]). Posting may happen on an lcore, so a listener must not wait.

use std::fmt::Display;
use std::sync::OnceLock;

static LISTENER: OnceLock<fn(String)> = OnceLock::new();

/// Gives all notices of this process to `listener`. Only the first call counts; notices before it are lost.
pub(crate) fn listen(listener: fn(String)) {
    let _ = LISTENER.set(listener);
}

/// Posts a notice.
pub(crate) fn post(text: impl Display) {
    if let Some(listener) = LISTENER.get() {
        listener(text.to_string());
    }
}

/// Posts a warning: something is not as it should be, and the work goes on.
pub(crate) fn warn(text: impl Display) {
    post(format_args!("warning: {text}"));
}
