//! Progress on standard error, drawn on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar of `steps` in the form of `template`.
#[must_use]
pub fn bar(template: &str, steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The same with a spinner that turns during a step.
#[must_use]
pub fn wheel(template: &str, steps: usize) -> ProgressBar {
    let bar = bar(template, steps);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
