//! The progress of a long load, drawn on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// A bar over bytes on stderr; hidden when that is no terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar called `what`; `bytes_total` 0 means not known.
    pub(crate) fn new(what: &'static str, bytes_total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar =
            ProgressBar::with_draw_target(Some(bytes_total), ProgressDrawTarget::stderr()).with_message(what);
        Self(match ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    /// Draws it at `bytes` of `bytes_total`.
    pub(crate) fn draw(&self, bytes: u64, bytes_total: u64) {
        self.0.set_length(bytes_total);
        self.0.set_position(bytes);
    }

    /// Takes it off the terminal.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
