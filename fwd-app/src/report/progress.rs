//! Progress of a long load, shown on terminals only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;

/// A byte progress bar on stderr; hidden if that is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// `bytes_total` 0 means unknown.
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

    pub(crate) fn draw(&self, bytes: u64, bytes_total: u64) {
        self.0.set_length(bytes_total);
        self.0.set_position(bytes);
    }

    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
