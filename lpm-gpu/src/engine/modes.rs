//! The mode of a reader: the user's, or with `mode=auto` the mode that is the fastest for readers of its slots and batch size,
//! measured on the current tables when the first such reader is made.

use super::gpu::{BATCH, Gpu};
use super::params::{GpuParams, Mode};
use super::trial::{Effort, Measured, measure};
use fib::{Details, EngineError, EngineReader, Family};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Effort for a mode and a family, at least: a batch of 1,024 keys takes 7 to 25 us on an H200.
const EFFORT: Effort = Effort { runs: 3, batches: 64, limit: Duration::from_millis(4) };

/// No further mode is measured after this time from the end of the first measurement.
const LIMIT: Duration = Duration::from_millis(200);

/// Modes whose rates differ by less are equally fast; the lower latency decides.
const NEAR: f64 = 0.05;

pub(super) struct Modes {
    /// Modes that the device can do, at least one.
    all: Vec<Mode>,
    choices: Choices,
}

enum Choices {
    /// The order of `all` is the order of preference.
    InOrder,
    Measured(Mutex<Vec<ModeChoice>>),
}

/// The modes for readers of `slots` slots of `batch` keys.
#[derive(Clone, Debug)]
struct ModeChoice {
    slots: u16,
    batch: usize,
    best_first: Vec<Mode>,
}

impl Modes {
    /// The modes that `params` allow on a device with or without memory pools. `copy` comes first: it measures nothing.
    pub(super) fn new(params: &GpuParams, memory_pools: bool) -> Result<Self, EngineError> {
        match params.mode {
            Some(Mode::Persistent) if !memory_pools => Err(EngineError::Parameter {
                parameter: "mode",
                value: "persistent".to_owned(),
                wanted: "wanted auto, copy or mapped: this device has no memory pools, so it could not free replaced \
                         tables while a persistent kernel runs",
            }),
            Some(mode) => Ok(Self::in_order(&[mode])),
            None => {
                let all = Mode::ALL.map(|(mode, _)| mode).into_iter();
                let all = all.filter(|&mode| memory_pools || mode != Mode::Persistent).collect();
                Ok(Self { all, choices: Choices::Measured(Mutex::default()) })
            }
        }
    }

    /// `modes`, best first; at least one.
    pub(super) fn in_order(modes: &[Mode]) -> Self {
        Self { all: modes.to_vec(), choices: Choices::InOrder }
    }

    pub(super) fn all(&self) -> &[Mode] {
        &self.all
    }

    pub(super) fn have(&self, mode: Mode) -> bool {
        self.all.contains(&mode)
    }

    /// The modes for a reader of `slots` slots of `batch_max` keys, best first; at least one. Calls `measure` once for a mode, slots
    /// and keys.
    ///
    /// # Errors
    /// An error of `measure` that says that the device is lost.
    pub(super) fn best_first(
        &self,
        slots: u16,
        batch_max: usize,
        measure: impl Fn(Mode, u16, usize) -> Result<ModeTimes, EngineError>,
    ) -> Result<Vec<Mode>, EngineError> {
        let Choices::Measured(choices) = &self.choices else { return Ok(self.all.clone()) };
        // A single key, of a user's question, is no reason to measure while packets flow.
        if (slots, batch_max) == (1, 1) {
            return Ok(self.all.clone());
        }
        // Larger batches are bound by the same bus.
        let (slots, batch) = (slots.max(1), batch_max.clamp(1, BATCH));
        let mut choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = choices.iter().find(|known| (known.slots, known.batch) == (slots, batch)) {
            return Ok(known.best_first.clone());
        }
        // The first measurement also pays for the driver's first calls.
        let mut first_done: Option<Instant> = None;
        let mut found = Vec::new();
        let mut rest = Vec::new();
        for &mode in &self.all {
            if first_done.is_some_and(|at| at.elapsed() > LIMIT) {
                rest.push(mode);
                continue;
            }
            match measure(mode, slots, batch) {
                Ok(times) => found.push((mode, times)),
                Err(error @ EngineError::Device { lost: true, .. }) => return Err(error),
                // The device cannot do it now; a reader may try it last.
                Err(_refused) => rest.push(mode),
            }
            first_done.get_or_insert_with(Instant::now);
        }
        let best_first: Vec<_> = sort(found).chain(rest).collect();
        choices.push(ModeChoice { slots, batch, best_first: best_first.clone() });
        Ok(best_first)
    }

    /// `mode`: its number, or 3 for `auto`. `mode_8_slots_of_1024`: the best mode for such readers, if measured.
    pub(super) fn details(&self) -> Details {
        let Choices::Measured(choices) = &self.choices else {
            return Details::from([("mode", (self.all[0] as u8).into())]);
        };
        let choices = choices.lock().unwrap_or_else(PoisonError::into_inner);
        choices.iter().fold(Details::from([("mode", Mode::ALL.len().into())]), |details, choice| {
            let name = format!("mode_{}_slots_of_{}", choice.slots, choice.batch);
            details.and(Details::from([(name.as_str(), (choice.best_first[0] as u8).into())]))
        })
    }
}

/// The time of a key of each family, and the latencies, together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModeTimes {
    s_per_key: f64,
    latency: Duration,
}

/// Measures batches of `batch` keys of IPv4, and with `has_v6` of IPv6.
pub(super) fn measure_mode(
    gpu: &Gpu,
    reader: &mut dyn EngineReader,
    has_v6: bool,
    batch: usize,
) -> Result<ModeTimes, EngineError> {
    let effort = Effort { batches: EFFORT.batches.max(4 * usize::from(reader.slots())), ..EFFORT };
    let families = [Family::V4].into_iter().chain(has_v6.then_some(Family::V6));
    families.into_iter().try_fold(ModeTimes::default(), |sum, family| {
        let Measured { latency, keys_per_s } = measure(gpu, reader, (family, batch), effort)?;
        Ok(ModeTimes { s_per_key: sum.s_per_key + keys_per_s.recip(), latency: sum.latency + latency })
    })
}

/// Best first: the highest rate, and among rates [`NEAR`] it the lowest latency.
fn sort(mut found: Vec<(Mode, ModeTimes)>) -> impl Iterator<Item = Mode> {
    std::iter::from_fn(move || {
        let fastest = found.iter().map(|(_, times)| times.s_per_key).min_by(f64::total_cmp)?;
        let near =
            found.iter().enumerate().filter(|(_, (_, times))| times.s_per_key * (1.0 - NEAR) <= fastest);
        let (best, _) = near.min_by_key(|(_, (_, times))| times.latency)?;
        Some(found.remove(best).0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::gpu::LaunchPlan;
    use crate::engine::{GAMT, GpuEngine, HostTables};
    use Mode::{Copy, Mapped, Persistent};
    use fib::{EngineWriter, Keys, NextHopId};

    fn sorted(found: &[(Mode, f64, u64)]) -> Vec<Mode> {
        let times =
            |&(mode, ns, us)| (mode, ModeTimes { s_per_key: ns * 1e-9, latency: Duration::from_micros(us) });
        sort(found.iter().map(times).collect()).collect()
    }

    #[test]
    fn the_highest_rate_wins_and_the_lower_latency_among_equals() {
        let small = [(Copy, 6.6, 23), (Mapped, 4.1, 15), (Persistent, 1.4, 7)];
        assert_eq!(sorted(&small), [Persistent, Mapped, Copy]);
        let large = [(Copy, 1.00, 900), (Mapped, 1.03, 800), (Persistent, 1.10, 700)];
        assert_eq!(sorted(&large), [Mapped, Copy, Persistent], "5 % of a rate are a tie, 10 % are not");
        assert_eq!(sorted(&[]), []);
    }

    #[test]
    fn a_reader_without_room_in_the_best_mode_has_the_next() {
        let Some((_one, mock)) = crate::cu::testing::exclusive_mock() else { return };
        mock.set_connections(4); // for one reader: two kernels, updates, and the memory pool
        for (modes, second) in [(&[Persistent][..], false), (&[Persistent, Mapped], true)] {
            let params = GpuParams::default();
            let host = HostTables::new(GAMT, &params).unwrap();
            let gpu = Gpu::open(GAMT, 0).unwrap();
            let plan = LaunchPlan::new(&params, gpu.device.facts().multiprocessors);
            let plan = (plan, Modes::in_order(modes));
            let engine = GpuEngine::assemble(GAMT, params, host, gpu, plan).unwrap();
            let _first = engine.reader(1, 8).unwrap();
            match engine.reader(1, 8) {
                Ok(mut reader) => {
                    assert!(second, "{modes:?}");
                    reader.lookup(Keys::V4(&[1, 2]), &mut [NextHopId::MAX; 2]).unwrap();
                }
                Err(refused) => assert!(!second, "{modes:?}: {refused}"),
            }
        }
    }
}
