//! The feeder's time in a trial: whether the feeder bounds the rate, and its rate alone.

/// The feeder bounds the rate when it is at its limit for at least this part of the time.
const BOUND_RATIO: f64 = 0.9;

/// Cycles are counted on the feeder's lcore, without stages on the same lcore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeederTime {
    pub(crate) fed: u64,
    /// From the first packet until all are accounted for, stages included.
    pub(crate) cycles: u64,
    /// In turns in which packets entered or left the forwarder.
    work_cycles: u64,
    /// In turns in which more packets were due and had room than one turn feeds.
    limit_cycles: u64,
}

impl FeederTime {
    /// Adds a turn of the loop that feeds packets and takes them back.
    #[inline]
    pub(crate) fn add_turn(&mut self, cycles: u64, has_moved: bool, is_at_limit: bool) {
        self.work_cycles += if has_moved { cycles } else { 0 };
        self.limit_cycles += if is_at_limit { cycles } else { 0 };
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.fed += other.fed;
        self.cycles += other.cycles;
        self.work_cycles += other.work_cycles;
        self.limit_cycles += other.limit_cycles;
    }

    /// Packets a second of working time. Turns with few packets cost more a packet, so a feeder that had to wait could be faster.
    #[expect(clippy::cast_precision_loss, reason = "counts and cycles below 2^53")]
    pub(crate) fn alone_pps(&self, tsc_hz: u64) -> Option<f64> {
        (self.fed > 0 && self.work_cycles > 0)
            .then(|| self.fed as f64 * tsc_hz as f64 / self.work_cycles as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "cycles below 2^53")]
    pub(crate) fn limit_ratio(&self) -> f64 {
        (self.limit_cycles as f64 / self.cycles.max(1) as f64).min(1.0)
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.limit_ratio() >= BOUND_RATIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 256 packets, with more that are due and have room; of fewer, since the forwarder has no more room; of none.
    const BURST: (u64, bool, bool) = (256, true, true);
    const FULL: (u64, bool, bool) = (32, true, false);
    const IDLE: (u64, bool, bool) = (0, false, false);

    /// Turns of 100 cycles, of which stages take `stage_cycles`.
    fn time_of(turns: &[((u64, bool, bool), u64)], stage_cycles: u64) -> FeederTime {
        let mut time = FeederTime::default();
        for ((fed, has_moved, is_at_limit), times) in turns {
            time.fed += fed * times;
            time.cycles += 100 * times;
            (0..*times).for_each(|_| time.add_turn(100 - stage_cycles, *has_moved, *is_at_limit));
        }
        time
    }

    #[test]
    fn the_feeder_bounds_the_rate_when_it_never_waits() {
        for (turns, stage_cycles, percent, is_bound) in [
            (&[(BURST, 100)][..], 0, 100, true),
            (&[(BURST, 90), (IDLE, 10)], 0, 90, true),
            (&[(BURST, 89), (FULL, 11)], 0, 89, false),
            (&[(BURST, 16), (FULL, 84)], 0, 16, false),
            (&[(IDLE, 100)], 0, 0, false),
            (&[(BURST, 100)], 50, 50, false),
            (&[], 0, 0, false),
        ] {
            let time = time_of(turns, stage_cycles);
            assert!((time.limit_ratio() - f64::from(percent) / 100.0).abs() < 1e-9, "{turns:?}");
            assert_eq!(time.is_bound(), is_bound, "{turns:?}");
        }
    }

    #[test]
    fn its_rate_alone_is_of_its_own_working_time() {
        let pps =
            |turns: &[_], stage_cycles| time_of(turns, stage_cycles).alone_pps(1_000_000).map(f64::round);
        assert_eq!(pps(&[(BURST, 10)], 0), Some(2_560_000.0));
        assert_eq!(pps(&[(BURST, 10), (IDLE, 1000)], 0), Some(2_560_000.0));
        assert_eq!(pps(&[(BURST, 10)], 75), Some(10_240_000.0));
        assert_eq!(pps(&[(IDLE, 5)], 0), None);
        let mut sum = time_of(&[(BURST, 3)], 0);
        sum.merge(&time_of(&[(FULL, 5), (IDLE, 2)], 0));
        assert_eq!(sum, time_of(&[(BURST, 3), (FULL, 5), (IDLE, 2)], 0));
    }
}
