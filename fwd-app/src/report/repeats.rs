//! Warnings that repeat: the same one is shown once a second, with how often it came meanwhile, and one place in the source shows
//! [`SITE_MAX`] different ones a second.

use rustc_hash::FxHashMap;
use std::panic::Location;
use std::time::{Duration, Instant};

/// How long a warning is not repeated.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// Different warnings of one place in a period.
const SITE_MAX: usize = 10;

/// The warnings of the last period.
#[derive(Default)]
pub(super) struct Repeats {
    sites: FxHashMap<&'static Location<'static>, WarningSite>,
}

/// The warnings of one place in the source since its period began.
struct WarningSite {
    start: Instant,
    /// Those that were shown, each with how often it came again.
    shown: Vec<(String, u64)>,
    /// Others, that were not shown.
    left_out: u64,
}

impl Repeats {
    /// Whether a warning is to be shown now.
    pub(super) fn admits(&mut self, now: Instant, site: &'static Location<'static>, text: &str) -> bool {
        let site = self.sites.entry(site).or_insert_with(|| WarningSite {
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

    /// Says what was left out in the periods that are over at `now`; those warnings are shown again when they come again.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let is_due = |_: &&Location<'_>, site: &mut WarningSite| now.duration_since(site.start) >= PERIOD;
        self.sites.extract_if(is_due).flat_map(|(_, site)| site.summary()).collect()
    }

    /// Whether there are warnings of a period that is not over.
    pub(super) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

impl WarningSite {
    fn summary(self) -> Vec<String> {
        let Self { shown, left_out, .. } = self;
        let repeated = shown.iter().filter(|(_, again)| *again > 0);
        let mut lines: Vec<_> =
            repeated.map(|(text, again)| format!("{text} ({again} times more within a second)")).collect();
        if let (1.., Some((text, _))) = (left_out, shown.last()) {
            lines.push(format!(
                "{left_out} other warnings were left out within a second, like this one: {text}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_shown_once_a_second_with_how_often_it_came() {
        let (start, mut repeats) = (Instant::now(), Repeats::default());
        let here = Location::caller();
        assert!(repeats.admits(start, here, "a"));
        assert!((0..3).all(|_| !repeats.admits(start, here, "a")));
        assert!(repeats.admits(start, here, "b"));
        assert!(repeats.take_due(start + PERIOD / 2).is_empty() && !repeats.is_empty());
        assert_eq!(repeats.take_due(start + PERIOD), ["a (3 times more within a second)"]);
        assert!(repeats.is_empty());
        assert!(repeats.admits(start + PERIOD, here, "a"), "the next second");
        assert!(repeats.take_due(start + PERIOD * 2).is_empty(), "it came once");
    }

    #[test]
    fn a_flood_of_different_warnings_has_a_limit() {
        let (start, mut repeats) = (Instant::now(), Repeats::default());
        let here = Location::caller();
        let shown = (0..100).filter(|n| repeats.admits(start, here, &n.to_string())).count();
        assert_eq!(shown, SITE_MAX);
        let due = repeats.take_due(start + PERIOD);
        assert_eq!(due, ["90 other warnings were left out within a second, like this one: 9"]);
    }
}
