//! Which halves are in service, why one is not any more, and how much each has looked up.

use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, PoisonError};
use crossbeam_utils::CachePadded;
use fib::{Details, EngineError, Family};
use serde::Serialize;
use std::fmt;

/// Halves of a batch, and of the engine.
pub(super) const HALVES: usize = 2;
/// The half whose share comes first in a batch; the one that is handed over.
pub(super) const FIRST: usize = 0;
/// The other half; the one that the caller's own thread looks up, unless it is a device too.
pub(super) const SECOND: usize = 1;
/// Both are in service.
pub(super) const BOTH: u8 = 0b11;

/// Why a half is out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// It answered with an error.
    Failed {
        /// What it was doing: `submit`, `collect`, `apply` or `reader`.
        during: &'static str,
        /// What it said.
        error: EngineError,
    },
    /// It answered with another number of answers than there were keys.
    Short {
        /// The keys.
        keys: usize,
        /// The answers.
        answers: usize,
    },
    /// It kept a batch for too long.
    Stalled {
        /// What it was doing.
        during: &'static str,
        /// The limit, microseconds.
        limit_us: u64,
    },
    /// Its thread has ended: it broke an invariant of its own.
    Died {
        /// What it was doing.
        during: &'static str,
    },
}

impl Why {
    /// As a figure among figures; 0 is for a half in service.
    fn number(&self) -> u8 {
        match self {
            Self::Failed { during: "submit", .. } => 1,
            Self::Failed { during: "collect", .. } => 2,
            Self::Failed { during: "apply", .. } => 3,
            Self::Failed { .. } => 4,
            Self::Short { .. } => 5,
            Self::Stalled { .. } => 6,
            Self::Died { .. } => 7,
        }
    }

    /// As the error of the engine `engine`.
    #[cold]
    pub(super) fn into_error(self, engine: &'static str) -> EngineError {
        match self {
            Self::Failed { error, .. } => error,
            Self::Died { .. } => EngineError::Device { engine, reason: self.to_string(), lost: true },
            Self::Short { .. } | Self::Stalled { .. } => {
                EngineError::Device { engine, reason: self.to_string(), lost: false }
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { during, error } => write!(f, "{during} failed: {error}"),
            Self::Short { keys, answers } => write!(f, "collect gave {answers} answers to {keys} keys"),
            Self::Stalled { during, limit_us } => write!(f, "{during} took more than {limit_us} us"),
            Self::Died { during } => write!(f, "its thread ended during {during}"),
        }
    }
}

/// What one reader has done. Only that reader writes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Keys that each half was handed.
    pub(super) keys: [AtomicU64; HALVES],
    /// Keys that were looked up again because the half that had them is out of service.
    pub(super) again: AtomicU64,
    /// The first half's share by family, 65536ths.
    pub(super) share: [AtomicU64; HALVES],
}

impl Tally {
    /// Counts `keys` more in `figure`, which nobody else writes: no locked instruction.
    #[inline]
    pub(super) fn add(figure: &AtomicU64, keys: usize) {
        figure.store(figure.load(Ordering::Relaxed) + keys as u64, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Tallies {
    readers: Vec<Arc<CachePadded<Tally>>>,
    /// Of readers that are gone.
    keys: [u64; HALVES],
    again: u64,
}

/// What the writer and the readers share: see the module.
#[derive(Debug)]
pub struct Service {
    names: [&'static str; HALVES],
    /// One bit a half. Never 0: the last half in service stays, and its errors are the caller's.
    mask: AtomicU8,
    why: [OnceLock<Why>; HALVES],
    tallies: Mutex<Tallies>,
}

impl Service {
    /// Both halves in service.
    pub(super) fn new(names: [&'static str; HALVES]) -> Arc<Self> {
        Arc::new(Self {
            names,
            mask: AtomicU8::new(BOTH),
            why: [const { OnceLock::new() }; HALVES],
            tallies: Mutex::default(),
        })
    }

    /// One bit a half, the first half's the lowest.
    #[inline]
    pub(super) fn mask(&self) -> u8 {
        self.mask.load(Ordering::Acquire)
    }

    /// Whether `half` is in service.
    #[inline]
    pub(super) fn has(&self, half: usize) -> bool {
        self.mask() >> half & 1 == 1
    }

    /// The engines' names, first and second.
    #[must_use]
    pub fn names(&self) -> [&'static str; HALVES] {
        self.names
    }

    /// Why the first and the second half are out of service; `None` for one that is in service. At most one is out.
    #[must_use]
    pub fn why(&self) -> [Option<&Why>; HALVES] {
        [self.why[FIRST].get(), self.why[SECOND].get()]
    }

    /// Takes `half` out of service for good; the first reason is kept. Returns whether the other one is there to go on; when
    /// it is not, `half` stays.
    #[cold]
    pub(super) fn fail(&self, half: usize, why: &Why) -> bool {
        let without = BOTH & !(1 << half);
        match self.mask.compare_exchange(BOTH, without, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let _ = self.why[half].set(why.clone());
                true
            }
            Err(now) => now >> half & 1 == 0,
        }
    }

    /// A tally for a new reader.
    pub(super) fn register(&self) -> Arc<CachePadded<Tally>> {
        let tally = Arc::new(CachePadded::<Tally>::default());
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let tallies = &mut *tallies;
        tallies.readers.retain(|reader| {
            let lives = Arc::strong_count(reader) > 1;
            if !lives {
                for (sum, keys) in tallies.keys.iter_mut().zip(&reader.keys) {
                    *sum += keys.load(Ordering::Relaxed);
                }
                tallies.again += reader.again.load(Ordering::Relaxed);
            }
            lives
        });
        tallies.readers.push(Arc::clone(&tally));
        tally
    }

    /// Figures for [`fib::EngineStats::details`]: keys by half over all readers, the newest reader's shares, and for each half
    /// 0 or the number of [`Why`] it is out of service (1 submit, 2 collect, 3 apply, 4 reader, 5 short, 6 stalled, 7 died).
    #[expect(clippy::cast_precision_loss, reason = "counts for people")]
    pub(super) fn details(&self) -> Details {
        #[derive(Serialize)]
        struct Figures {
            coop_first_out: u8,
            coop_second_out: u8,
            coop_first_keys: u64,
            coop_second_keys: u64,
            coop_again_keys: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            coop_first_share_v4: Option<f64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            coop_first_share_v6: Option<f64>,
        }
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |base: u64, figure: &dyn Fn(&Tally) -> u64| {
            tallies.readers.iter().map(|reader| figure(reader)).sum::<u64>() + base
        };
        let keys = |half: usize| sum(tallies.keys[half], &|tally| tally.keys[half].load(Ordering::Relaxed));
        let out = |half: usize| self.why[half].get().map_or(0, Why::number);
        let share = |family: Family| {
            let newest = tallies.readers.last()?;
            Some(newest.share[usize::from(family == Family::V6)].load(Ordering::Relaxed) as f64 / 65536.0)
        };
        Details::of(&Figures {
            coop_first_out: out(FIRST),
            coop_second_out: out(SECOND),
            coop_first_keys: keys(FIRST),
            coop_second_keys: keys(SECOND),
            coop_again_keys: sum(tallies.again, &|tally| tally.again.load(Ordering::Relaxed)),
            coop_first_share_v4: share(Family::V4),
            coop_first_share_v6: share(Family::V6),
        })
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    const WHY: Why = Why::Stalled { during: "collect", limit_us: 7 };

    #[test]
    fn one_half_can_go_and_the_last_one_stays() {
        let service = Service::new(["a", "b"]);
        assert!(service.has(FIRST) && service.has(SECOND));
        assert!(service.fail(SECOND, &WHY));
        assert!(service.fail(SECOND, &Why::Died { during: "submit" }), "out already: the other goes on");
        assert_eq!(service.why(), [None, Some(&WHY)]);
        assert!(!service.fail(FIRST, &WHY), "the last one");
        assert!(service.has(FIRST) && !service.has(SECOND));
        let details = service.details();
        assert_eq!([details.get("coop_second_out"), details.get("coop_first_out")], [Some(6.0), Some(0.0)]);
    }

    #[test]
    fn keys_of_readers_that_are_gone_still_count() {
        let service = Service::new(["a", "b"]);
        for _ in 0..10 {
            let tally = service.register();
            Tally::add(&tally.keys[FIRST], 5);
            Tally::add(&tally.again, 1);
        }
        let _newest = service.register();
        let details = service.details();
        assert_eq!(
            [details.get("coop_first_keys"), details.get("coop_again_keys")],
            [Some(50.0), Some(10.0)]
        );
        assert_eq!(service.tallies.lock().unwrap().readers.len(), 1);
    }
}
