//! Several threads over one table (section 4.3.1 of the Bloomfwd paper), each with a looker and pinned to a CPU.
//!
//! Threads take a few calls of a sweep at a time, like the paper's dynamic OpenMP loop, so a descheduled thread delays only its part. Time is
//! wall time from the start of the first thread, once all are ready, to the end of the last.

use crate::clock::{Clock, cpu_s};
use crate::fault::Fault;
use crate::keys::KeySet;
use crate::table::{Looker, Sweep, calls};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

/// Calls that a thread takes at once: enough work to make taking them cheap, and short enough for an even end of a sweep.
pub(crate) const CALLS_A_PART: usize = 16;
const SPINS_A_YIELD: u32 = 1 << 10;

/// How threads share a sweep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deal {
    /// A thread takes this many calls at once.
    Calls(usize),
    /// Each thread has an equal share, so that batches in flight are drained once.
    Shares,
}

struct PinnedLooker {
    looker: Box<dyn Looker>,
    cpu: Option<usize>,
}

pub(crate) struct Threads {
    lanes: Vec<PinnedLooker>,
    deal: Deal,
}

struct ThreadRun {
    start: Instant,
    end: Instant,
    cpu_s: f64,
}

struct SharedSweep {
    next: AtomicUsize,
    end: usize,
    part: usize,
    ready: AtomicUsize,
}

impl Threads {
    /// At least one thread, pinned to `cpus` in turn, or not pinned without CPUs.
    pub(crate) fn new(
        count: usize,
        cpus: &[usize],
        deal: Deal,
        mut make: impl FnMut() -> Result<Box<dyn Looker>, Fault>,
    ) -> Result<Self, Fault> {
        let mut lane = |at: usize| -> Result<PinnedLooker, Fault> {
            let cpu = (!cpus.is_empty()).then(|| cpus[at % cpus.len()]);
            Ok(PinnedLooker { looker: make()?, cpu })
        };
        Ok(Self { lanes: (0..count.max(1)).map(&mut lane).collect::<Result<_, _>>()?, deal })
    }
}

/// Runs each lane on a thread. Results, and the first error, are in the order of the lanes; a panic is [`Fault::Measurement`].
fn each<L: Send, T: Send>(
    lanes: &mut [L],
    work: impl Fn(usize, &mut L) -> Result<T, Fault> + Sync,
) -> Result<Vec<T>, Fault> {
    let work = &work;
    let results: Vec<_> = std::thread::scope(|scope| {
        let spawn = |(at, lane)| scope.spawn(move || work(at, lane));
        // Collected, so that all threads are spawned before the first join.
        let threads: Vec<_> = lanes.iter_mut().enumerate().map(spawn).collect();
        threads.into_iter().map(ScopedJoinHandle::join).collect()
    });
    results.into_iter().map(|result| result.map_err(Fault::panicked)?).collect()
}

impl SharedSweep {
    fn await_all(&self, all: usize) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0_u32;
        while self.ready.load(Ordering::Acquire) < all {
            spins += 1;
            if spins.is_multiple_of(SPINS_A_YIELD) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn next_part(&self) -> Option<Range<usize>> {
        let from = self.next.fetch_add(self.part, Ordering::Relaxed);
        (from < self.end).then(|| from..self.end.min(from + self.part))
    }
}

impl Looker for Threads {
    fn sweep(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<(), Fault> {
        if let [lane] = &mut self.lanes[..] {
            // On this thread: the caller measures the time, and spawning one takes as long as some hundred thousand lookups of a device.
            return lane.looker.sweep(keys, range, call);
        }
        self.timed(keys, range, call).map(|_| ())
    }

    fn timed(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<Sweep, Fault> {
        let all = self.lanes.len();
        let part = match self.deal {
            Deal::Calls(calls) => call.max(1) * calls,
            Deal::Shares => range.len().div_ceil(all).max(1),
        };
        let deal = SharedSweep { next: range.start.into(), end: range.end, part, ready: AtomicUsize::new(0) };
        let stints = each(&mut self.lanes, |_, lane| {
            let pinned = crate::pin(lane.cpu);
            deal.await_all(all); // before the check of `pinned`, since the others wait for this thread
            pinned?;
            let (start, cpu_start_s) = (Instant::now(), cpu_s());
            while let Some(part) = deal.next_part() {
                lane.looker.sweep(keys, part, call)?;
            }
            Ok(ThreadRun { start, end: Instant::now(), cpu_s: cpu_s() - cpu_start_s })
        })?;
        let (start, end) = (stints.iter().map(|one| one.start).min(), stints.iter().map(|one| one.end).max());
        let took_s = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
        let cpu_s: f64 = stints.iter().map(|one| one.cpu_s).sum();
        Ok(Sweep { took_s, on_cpu: cpu_s / (took_s * all as f64) })
    }

    fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault> {
        // Every thread answers a share, so that every looker is checked.
        let share = keys.len().div_ceil(self.lanes.len()).max(1);
        let shares: Vec<_> = calls(0..keys.len(), share).collect();
        let answers = each(&mut self.lanes, |at, lane| match shares.get(at) {
            Some(share) => {
                let positions: Vec<usize> = share.clone().collect();
                lane.looker.answers(&keys.pick(&positions), call)
            }
            None => Ok(Vec::new()),
        })?;
        Ok(answers.concat())
    }

    fn clock(&self) -> Clock {
        Clock::Wall
    }

    fn threads(&self) -> usize {
        self.lanes.len()
    }

    fn fibs(&self) -> u32 {
        self.lanes.first().map_or(1, |lane| lane.looker.fibs())
    }

    fn grain(&self) -> usize {
        self.lanes.iter().map(|lane| lane.looker.grain()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Measurable;
    use crate::table::tests::{Liar, oracle};
    use crate::tables::RouteSet;
    use fib::Family;
    use fib::traffic::Traffic;
    use std::sync::Mutex;

    #[test]
    fn every_thread_answers_its_share_and_in_order() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1", "10.1.0.0/16 2", "2001:db8::/32 3"]);
        for family in [Family::V4, Family::V6] {
            let keys = KeySet::make(&Traffic::Table, family, &tables, 1000, 1, false).unwrap();
            let mut table = oracle(&tables, family, 64);
            let wanted = table.looker().unwrap().answers(&keys, 64).unwrap();
            for count in [1, 2, 3, 7] {
                let mut threads =
                    Threads::new(count, &[], Deal::Calls(CALLS_A_PART), || table.looker()).unwrap();
                assert_eq!(threads.answers(&keys, 64).unwrap(), wanted, "{count} threads");
                assert_eq!((threads.threads(), threads.clock()), (count, Clock::Wall));
                let sweep = threads.timed(&keys, 0..1000, 64).unwrap();
                assert!(sweep.took_s > 0.0 && sweep.on_cpu > 0.0, "{sweep:?}");
            }
            let few = KeySet::make(&Traffic::Table, family, &tables, 3, 1, false).unwrap();
            assert_eq!(
                Threads::new(7, &[], Deal::Calls(CALLS_A_PART), || table.looker())
                    .unwrap()
                    .answers(&few, 64)
                    .unwrap()
                    .len(),
                3
            );
        }
    }

    #[test]
    fn a_liar_among_them_is_found() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1"]);
        let keys = KeySet::make(&Traffic::Table, Family::V4, &tables, 1000, 1, false).unwrap();
        let mut honest = oracle(&tables, Family::V4, 64);
        let mut threads = Threads::new(3, &[], Deal::Calls(CALLS_A_PART), || honest.looker()).unwrap();
        threads.lanes[2].looker = Liar(oracle(&tables, Family::V4, 64)).looker().unwrap();
        let answers = threads.answers(&keys, 64).unwrap();
        assert_eq!(answers.iter().filter(|answer| **answer != 1).count(), 1);
    }

    struct Scribe<'a>(&'a Mutex<Vec<(Range<usize>, usize)>>);

    impl Looker for Scribe<'static> {
        fn sweep(&mut self, _: &KeySet, range: Range<usize>, _: usize) -> Result<(), Fault> {
            let cpus = core_affinity::get_core_ids().unwrap_or_default().len();
            self.0.lock().unwrap().push((range, cpus));
            Ok(())
        }
        fn answers(&mut self, _: &KeySet, _: usize) -> Result<Vec<u32>, Fault> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_sweep_is_dealt_out_once_and_by_pinned_threads() {
        static SWEPT: Mutex<Vec<(Range<usize>, usize)>> = Mutex::new(Vec::new());
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1"]);
        let keys = KeySet::make(&Traffic::Table, Family::V4, &tables, 10_000, 1, false).unwrap();
        let allowed: Vec<_> = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
        let mut threads =
            Threads::new(3, &allowed, Deal::Calls(CALLS_A_PART), || oracle(&tables, Family::V4, 64).looker())
                .unwrap();
        threads.lanes.iter_mut().for_each(|lane| lane.looker = Box::new(Scribe(&SWEPT)));
        for (deal, part) in [(Deal::Calls(CALLS_A_PART), 64 * CALLS_A_PART), (Deal::Shares, 3_330)] {
            threads.deal = deal;
            threads.sweep(&keys, 10..9_999, 64).unwrap();
            let mut swept = std::mem::take(&mut *SWEPT.lock().unwrap());
            assert!(swept.iter().all(|(_, cpus)| *cpus == 1), "each on a CPU of its own");
            swept.sort_unstable_by_key(|(range, _)| range.start);
            let mut next = 10;
            for (range, _) in swept {
                assert!(range.start == next && range.len() <= part);
                next = range.end;
            }
            assert_eq!(next, 9_999);
        }
        threads.lanes[1].cpu = Some(1000);
        assert!(matches!(threads.sweep(&keys, 0..100, 64), Err(Fault::Pin { cpu: 1000, .. })));
    }
}
