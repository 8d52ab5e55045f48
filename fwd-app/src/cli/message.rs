//! Messages for the person at the terminal: one line on stderr, the program's name first.
//!
//! `eprintln!` panics when stderr cannot be written to (a full disk behind `2>log`). Nobody would read the message then,
//! and the work goes on.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes `fwd-app: TEXT` to stderr.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "fwd-app: {text}");
}

/// Writes `fwd-app: warning: TEXT` to stderr: something is not as it should be, and the work goes on.
pub(crate) fn warn(text: impl Display) {
    say(format_args!("warning: {text}"));
}
