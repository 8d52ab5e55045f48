//! Counts the lookups of each half.

use super::balance::Balance;
use crate::pair::reader::Split;
use crate::pair::{FIRST, HALVES, SECOND, Service, Why};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, PoisonError};
use crossbeam_utils::CachePadded;
use fib::{Details, Family};
use serde::Serialize;

#[derive(Debug, Default)]
pub(super) struct ReaderTally {
    keys: [AtomicU64; HALVES],
    /// The first half's share by family, in units of 1/65536.
    share: [AtomicU64; HALVES],
}

impl ReaderTally {
    /// Adds `keys` to `figure`. There is one writer, so this needs no locked instruction.
    #[inline]
    fn add(figure: &AtomicU64, keys: usize) {
        figure.store(figure.load(Ordering::Relaxed) + keys as u64, Ordering::Relaxed);
    }
}

pub(super) struct CountedBalance {
    pub(super) balance: Balance,
    pub(super) tally: Arc<CachePadded<ReaderTally>>,
}

impl Split for CountedBalance {
    const CUTS: bool = true;

    #[inline]
    fn cut(&mut self, family: Family, len: usize) -> usize {
        self.balance.cut(family, len)
    }

    #[inline]
    fn handed(&mut self, half: usize, keys: usize) {
        ReaderTally::add(&self.tally.keys[half], keys);
    }

    #[inline]
    fn judge(&mut self, family: Family, len: usize, cut: usize, first_late: bool) {
        self.balance.judge(family, len, cut, first_late);
        let share = &self.tally.share[usize::from(family == Family::V6)];
        share.store(self.balance.share(family).into(), Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
pub(super) struct Tallies(Mutex<ReaderTallies>);

#[derive(Debug, Default)]
struct ReaderTallies {
    readers: Vec<Arc<CachePadded<ReaderTally>>>,
    keys: [u64; HALVES],
}

impl Tallies {
    pub(super) fn register(&self) -> Arc<CachePadded<ReaderTally>> {
        let tally = Arc::new(CachePadded::<ReaderTally>::default());
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ReaderTallies { readers, keys } = &mut *inner;
        readers.retain(|reader| {
            let lives = Arc::strong_count(reader) > 1;
            if !lives {
                for (sum, keys) in keys.iter_mut().zip(&reader.keys) {
                    *sum += keys.load(Ordering::Relaxed);
                }
            }
            lives
        });
        readers.push(Arc::clone(&tally));
        tally
    }

    /// Keys by half over all readers, the newest reader's shares, and for each half 0 or the [`number`] of its failure.
    #[expect(clippy::cast_precision_loss, reason = "a share of 65536")]
    pub(super) fn details(&self, service: &Service) -> Details {
        #[derive(Serialize)]
        struct CoopFigures {
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
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = |half: usize| {
            let of = |reader: &Arc<CachePadded<ReaderTally>>| reader.keys[half].load(Ordering::Relaxed);
            inner.keys[half] + inner.readers.iter().map(of).sum::<u64>()
        };
        let share = |family: Family| {
            let newest = inner.readers.last()?;
            Some(newest.share[usize::from(family == Family::V6)].load(Ordering::Relaxed) as f64 / 65536.0)
        };
        let out = service.why().map(|why| why.map_or(0, number));
        Details::new(&CoopFigures {
            coop_first_out: out[FIRST],
            coop_second_out: out[SECOND],
            coop_first_keys: keys(FIRST),
            coop_second_keys: keys(SECOND),
            coop_again_keys: service.looked_up_again(),
            coop_first_share_v4: share(Family::V4),
            coop_first_share_v6: share(Family::V6),
        })
    }
}

/// A reason as a number: 1 submit, 2 collect, 3 apply, 4 reader, 5 short, 6 stalled, 7 died, 8 wrong.
fn number(why: &Why) -> u8 {
    match why {
        Why::Failed { during: "submit", .. } => 1,
        Why::Failed { during: "collect", .. } => 2,
        Why::Failed { during: "apply", .. } => 3,
        Why::Failed { .. } | Why::Absent(_) => 4,
        Why::Short { .. } => 5,
        Why::Stalled { .. } => 6,
        Why::Died { .. } => 7,
        Why::Wrong { .. } => 8,
    }
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_readers_that_are_gone_still_count() {
        let (tallies, service) = (Tallies::default(), Service::new(["a", "b"]));
        for _ in 0..10 {
            ReaderTally::add(&tallies.register().keys[FIRST], 5);
        }
        let _newest = tallies.register();
        service.fail(SECOND, Why::Stalled { during: "collect", limit_us: 7 }).unwrap();
        service.count_again(10);
        let details = tallies.details(&service);
        for figure in [
            ("coop_first_keys", 50.0),
            ("coop_again_keys", 10.0),
            ("coop_second_out", 6.0),
            ("coop_first_out", 0.0),
        ] {
            assert_eq!(details.get(figure.0), Some(figure.1), "{figure:?}: {details:?}");
        }
        assert_eq!(tallies.0.lock().unwrap().readers.len(), 1);
    }
}
