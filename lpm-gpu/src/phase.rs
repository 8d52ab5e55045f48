//! Durations of the phases of a rebuild, for `EngineStats::details`. A phase costs two clock reads, and rebuilds are rare.

use fib::Details;
use std::time::{Duration, Instant};

/// The duration of a phase in the last rebuild, and the longest one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PhaseTime {
    last: Duration,
    longest: Duration,
}

impl PhaseTime {
    /// Runs `phase` and records its duration.
    pub(crate) fn time<T>(&mut self, phase: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = phase();
        self.record(start.elapsed());
        result
    }

    pub(crate) fn record(&mut self, duration: Duration) {
        self.last = duration;
        self.longest = self.longest.max(duration);
    }

    /// As `rebuild_NAME_us` and `rebuild_NAME_us_max`.
    pub(crate) fn details(&self, name: &str) -> Details {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).into();
        Details::from([
            (format!("rebuild_{name}_us").as_str(), us(self.last)),
            (format!("rebuild_{name}_us_max").as_str(), us(self.longest)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_duration_and_the_longest_are_kept() {
        let mut phase = PhaseTime::default();
        phase.record(Duration::from_micros(70));
        assert_eq!(phase.time(|| 5), 5);
        phase.record(Duration::from_micros(30));
        let details = phase.details("plan");
        assert_eq!(details.get("rebuild_plan_us"), Some(30.0));
        assert!(details.get("rebuild_plan_us_max") >= Some(70.0));
    }
}
