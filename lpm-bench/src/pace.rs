//! Application of updates: alone and unlimited, contenders in turn; or at a rate during lookups.

use crate::args::UpdateRate;
use crate::fault::Fault;
use crate::table::Measurable;
use crate::updates::Player;
use lpm_bench::stats::{median, quantile};
use std::time::{Duration, Instant};

/// A writer sleeps for longer waits, and yields for shorter ones.
const SLEEP_MIN: Duration = Duration::from_micros(200);

#[derive(Debug, Default)]
pub(crate) struct Undisturbed {
    rates: Vec<f64>,
    took_us: Vec<f64>,
    own_s: f64,
    own_changes: u64,
    is_whole: bool,
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
}

impl Undisturbed {
    /// A round: deltas for at least `round_s` seconds; in the first round all deltas.
    pub(crate) fn round(
        &mut self,
        table: &mut dyn Measurable,
        player: &mut Player<'_>,
        round_s: f64,
    ) -> Result<(), Fault> {
        let deadline = Instant::now() + Duration::from_secs_f64(round_s);
        let (mut changes, before) = (0, self.took_us.len());
        while let Some(delta) = player.step() {
            let start = Instant::now();
            let applied = table.apply(delta)?;
            let end = Instant::now();
            self.took_us.push((end - start).as_secs_f64() * 1e6);
            changes += applied.changes;
            if let Some(took_s) = applied.own_s {
                self.own_s += took_s;
                self.own_changes += applied.changes;
            }
            self.refused += applied.refused;
            if self.first_refusal.is_none() {
                self.first_refusal = applied.first_refusal;
            }
            self.is_whole |= player.is_at_end();
            if end >= deadline && self.is_whole {
                break;
            }
        }
        let took_s: f64 = self.took_us[before..].iter().sum::<f64>() / 1e6;
        self.rates.push(changes as f64 / took_s);
        Ok(())
    }

    pub(crate) fn updates_per_s(&self) -> f64 {
        median(&self.rates)
    }

    pub(crate) fn engine_updates_per_s(&self) -> Option<f64> {
        (self.own_s > 0.0).then(|| self.own_changes as f64 / self.own_s)
    }

    /// Ratio to the rate of `other`, median of the ratios within a round.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        let ratios: Vec<_> = self.rates.iter().zip(&other.rates).map(|(rate, other)| rate / other).collect();
        median(&ratios)
    }

    pub(crate) fn apply_us(&self, share: f64) -> f64 {
        quantile(&self.took_us, share)
    }
}

/// A writer that applies updates at a rate; when late it catches up with the schedule.
pub(crate) struct UpdatePace {
    rate: UpdateRate,
    changes: u64,
    took_s: f64,
}

impl UpdatePace {
    pub(crate) fn new(rate: UpdateRate) -> Self {
        Self { rate, changes: 0, took_s: 0.0 }
    }

    /// Applies deltas until `deadline`; returns the number of refused changes.
    pub(crate) fn run(
        &mut self,
        table: &mut dyn Measurable,
        player: &mut Player<'_>,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let (start, mut refused) = (Instant::now(), 0);
        loop {
            let now = Instant::now();
            if now >= deadline {
                break;
            }
            if let UpdateRate::PerSecond(rate) = self.rate {
                let due = start + Duration::from_secs_f64(self.changes as f64 / rate);
                if due > now {
                    wait(due.min(deadline) - now);
                    continue;
                }
            }
            let Some(delta) = player.step() else { break };
            let applied = table.apply(delta)?;
            self.changes += applied.changes + applied.refused;
            refused += applied.refused;
        }
        self.took_s = start.elapsed().as_secs_f64();
        Ok(refused)
    }

    pub(crate) fn reached(&self) -> f64 {
        if self.took_s > 0.0 { self.changes as f64 / self.took_s } else { 0.0 }
    }
}

fn wait(left: Duration) {
    if left > SLEEP_MIN {
        std::thread::sleep(left - SLEEP_MIN / 2);
    } else {
        std::thread::yield_now();
    }
}
