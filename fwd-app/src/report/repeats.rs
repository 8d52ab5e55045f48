//! Suppression of repeats: a message is shown once a second with its count, and at most [`SITE_MAX`] of one source location.

use crate::notice::LogLevel;
use rustc_hash::FxHashMap;
use std::panic::Location;
use std::time::{Duration, Instant};

pub(super) const PERIOD: Duration = Duration::from_secs(1);
const SITE_MAX: usize = 10;

#[derive(Default)]
pub(super) struct Repeats {
    sites: FxHashMap<&'static Location<'static>, MessageSite>,
}

struct MessageSite {
    level: LogLevel,
    start: Instant,
    /// Shown messages, each with the number of its repetitions.
    shown: Vec<(String, u64)>,
    left_out: u64,
}

impl Repeats {
    pub(super) fn admits(
        &mut self,
        now: Instant,
        site: &'static Location<'static>,
        level: LogLevel,
        text: &str,
    ) -> bool {
        let site = self.sites.entry(site).or_insert_with(|| MessageSite {
            level,
            start: now,
            shown: Vec::new(),
            left_out: 0,
        });
        if let Some((_, again)) = site.shown.iter_mut().find(|(shown, _)| shown == text) {
            *again += 1;
            return false;
        }
        if site.shown.len() >= SITE_MAX {
            site.left_out += 1;
            return false;
        }
        site.shown.push((text.to_owned(), 0));
        true
    }

    /// Summaries of the periods over at `now`; their messages will be shown again.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(LogLevel, String)> {
        let is_due = |_: &&Location<'_>, site: &mut MessageSite| now.duration_since(site.start) >= PERIOD;
        self.sites.extract_if(is_due).flat_map(|(_, site)| site.summary()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

impl MessageSite {
    fn summary(self) -> Vec<(LogLevel, String)> {
        let Self { level, shown, left_out, .. } = self;
        let repeated = shown.iter().filter(|(_, again)| *again > 0);
        let mut lines: Vec<_> =
            repeated.map(|(text, again)| format!("{text} ({again} more times within a second)")).collect();
        if let (1.., Some((text, _))) = (left_out, shown.last()) {
            lines.push(format!(
                "{left_out} other messages were left out within a second, like this one: {text}"
            ));
        }
        lines.into_iter().map(|line| (level, line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARN: LogLevel = LogLevel::Warn;

    #[test]
    fn a_warning_is_shown_once_a_second_with_how_often_it_came() {
        let (start, mut repeats) = (Instant::now(), Repeats::default());
        let here = Location::caller();
        assert!(repeats.admits(start, here, WARN, "a"));
        assert!((0..3).all(|_| !repeats.admits(start, here, WARN, "a")));
        assert!(repeats.admits(start, here, WARN, "b"));
        assert!(repeats.take_due(start + PERIOD / 2).is_empty() && !repeats.is_empty());
        assert_eq!(repeats.take_due(start + PERIOD), [(WARN, "a (3 more times within a second)".to_owned())]);
        assert!(repeats.is_empty());
        assert!(repeats.admits(start + PERIOD, here, WARN, "a"), "the next second");
        assert!(repeats.take_due(start + PERIOD * 2).is_empty(), "it came once");
    }

    #[test]
    fn a_flood_of_different_warnings_has_a_limit() {
        let (start, mut repeats) = (Instant::now(), Repeats::default());
        let here = Location::caller();
        let shown = (0..100).filter(|n| repeats.admits(start, here, WARN, &n.to_string())).count();
        assert_eq!(shown, SITE_MAX);
        let due = repeats.take_due(start + PERIOD);
        assert_eq!(
            due,
            [(WARN, "90 other messages were left out within a second, like this one: 9".to_owned())]
        );
    }
}
