//! The clocks of a measurement.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// CPU time of the looking-up thread.
    Cpu,
    /// Wall time, when other threads or a device do the work.
    Wall,
}

impl Clock {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
        }
    }
}

pub(crate) fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_still_while_the_thread_sleeps() {
        let before = cpu_s();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = cpu_s() - before;
        let mut value = 1_u64;
        while cpu_s() - before < slept + 0.001 {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        assert!(slept < 0.05, "50 ms of sleep cost {slept} CPU seconds");
    }
}
