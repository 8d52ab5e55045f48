//! The last samples of counters, and rates between two of them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The newest sample and ten seconds before it.
const SAMPLES: usize = 11;
/// Longest span of the ten-second rates. A late sample must not stretch it to fifteen.
const LONG: Duration = Duration::from_millis(10_500);

/// A value over about 1 s and about 10 s; `None` without two samples.
pub(crate) type Over<T = f64> = [Option<T>; 2];

/// Timed samples, oldest first.
#[derive(Debug)]
pub(super) struct History<T>(VecDeque<(Instant, T)>);

impl<T> Default for History<T> {
    fn default() -> Self {
        Self(VecDeque::with_capacity(SAMPLES))
    }
}

impl<T> History<T> {
    pub(super) fn push(&mut self, at: Instant, sample: T) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((at, sample));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.0.back().map(|(_, sample)| sample)
    }

    /// Pairs the newest sample with its predecessor, and with the oldest of ten seconds: seconds between them, older, newest.
    fn spans(&self) -> Over<(f64, &T, &T)> {
        let mut samples = self.0.iter().rev();
        let (Some((end, now)), Some((start, before))) = (samples.next(), samples.next()) else {
            return [None; 2];
        };
        let seconds = |start: &Instant| end.duration_since(*start).as_secs_f64();
        let oldest = self.0.iter().find(|(at, _)| end.duration_since(*at) <= LONG);
        // A sample that is later than that is still compared with its predecessor.
        let (long_start, long_before) =
            oldest.filter(|(at, _)| at < start).map_or((start, before), |(at, sample)| (at, sample));
        let spans = [(seconds(start), before, now), (seconds(long_start), long_before, now)];
        spans.map(|span| Some(span).filter(|(seconds, ..)| *seconds > 0.0))
    }

    pub(super) fn seconds(&self) -> Over {
        self.spans().map(|span| span.map(|(seconds, ..)| seconds))
    }

    /// Increase of `count` a second; 0 if it decreased.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(super) fn per_second(&self, count: impl Fn(&T) -> u64) -> Over {
        self.spans().map(|span| {
            span.map(|(seconds, before, now)| count(now).saturating_sub(count(before)) as f64 / seconds)
        })
    }

    /// The increase of `part` relative to `whole`, at most 1.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(super) fn share(&self, part: impl Fn(&T) -> u64, whole: impl Fn(&T) -> u64) -> Over {
        self.spans().map(|span| {
            let (_, before, now) = span?;
            let grown = |count: &dyn Fn(&T) -> u64| count(now).saturating_sub(count(before)) as f64;
            Some((grown(&part) / grown(&whole).max(1.0)).min(1.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(samples: &[(u64, u64)]) -> History<u64> {
        let (mut history, start) = (History::default(), Instant::now());
        for (ms, count) in samples {
            history.push(start + Duration::from_millis(*ms), *count);
        }
        history
    }

    #[test]
    fn rates_are_over_the_time_between_samples() {
        let rates = |samples: &[(u64, u64)]| history(samples).per_second(|count| *count);
        assert_eq!(rates(&[]), [None, None]);
        assert_eq!(rates(&[(0, 7)]), [None, None]);
        assert_eq!(rates(&[(0, 7), (1000, 107)]), [Some(100.0), Some(100.0)]);
        let three = history(&[(0, 0), (1000, 100), (2000, 100), (3000, 160)]);
        assert_eq!(three.per_second(|count| *count), [Some(60.0), Some(160.0 / 3.0)]);
        assert_eq!(three.seconds(), [Some(1.0), Some(3.0)]);
        // Late by half a second: still exact.
        assert_eq!(rates(&[(0, 0), (1000, 100), (2500, 250)]), [Some(100.0), Some(100.0)]);
        // Two samples at the same time.
        assert_eq!(rates(&[(0, 0), (0, 1)]), [None, None]);
    }

    #[test]
    fn the_oldest_sample_is_ten_seconds_old() {
        let steady: Vec<_> = (0..30).map(|i| (i * 1000, if i < 19 { 0 } else { (i - 19) * 50 })).collect();
        let history_of = |samples: &[(u64, u64)]| history(samples);
        let steady = history_of(&steady);
        assert_eq!(steady.seconds(), [Some(1.0), Some(10.0)]);
        assert_eq!(steady.per_second(|count| *count), [Some(50.0), Some(50.0)]);
        // The control thread was held up for six seconds: earlier samples do not count.
        let late: Vec<_> = (0..11).map(|i| (if i < 8 { i * 1000 } else { i * 1000 + 6000 }, i)).collect();
        assert_eq!(history_of(&late).seconds(), [Some(1.0), Some(10.0)]);
        let very_late = history_of(&[(0, 0), (1000, 10), (31_000, 310)]);
        assert_eq!(very_late.seconds(), [Some(30.0), Some(30.0)]);
        assert_eq!(very_late.per_second(|count| *count), [Some(10.0), Some(10.0)]);
    }

    #[test]
    fn a_share_is_of_what_passed_and_at_most_all() {
        let (mut history, start) = (History::default(), Instant::now());
        for (s, cycles) in [(0, [0, 0]), (1, [500, 1000]), (2, [2100, 2000])] {
            history.push(start + Duration::from_secs(s), cycles);
        }
        assert_eq!(history.share(|cycles| cycles[0], |cycles| cycles[1]), [Some(1.0), Some(1.0)]);
        let mut idle = History::default();
        idle.push(start, [5, 0]);
        idle.push(start + Duration::from_secs(1), [5, 1000]);
        assert_eq!(idle.share(|cycles| cycles[0], |cycles| cycles[1]), [Some(0.0), Some(0.0)]);
    }
}
