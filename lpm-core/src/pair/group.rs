//! Helper threads that make a synchronous engine asynchronous: the paper's "second AVX-512 group".
//!
//! The keys of a slot are copied and travel in jobs (`helper`): a thread may still read them when the caller has given up the batch and
//! reuses its memory. The keys of a lookup, whose caller waits, are lent
//! ([`crate::lend`]) if the threads read the same table as the caller's thread.

use super::helper::{Helper, lock};
use super::{FIRST, SECOND, Why};
use crate::lend::{self, Lender, LoanOutcome, Missing, Rules};
use crate::sync::atomic::{Ordering, fence};
use fib::keys::copy;
use fib::{EngineError, EngineReader, Keys, NextHopId};
use rustix::thread::CpuSet;
use std::task::{Poll, ready};
use std::time::Duration;

/// The keys of one cache line of answers: no two threads write the same line.
const GRAIN: usize = 16;

/// The helper threads of one reader.
pub struct HelperGroup {
    helpers: Vec<Helper>,
    /// The number of keys of a slot's batch, by slot and helper.
    lens: Vec<Vec<usize>>,
    /// One thread's share of a batch, in 65536ths, rounded up.
    share: usize,
    lender: Option<Lender>,
}

impl HelperGroup {
    /// Starts a thread for each of `readers` (at least one), on the CPU given with it or else on one of `allowed`, with
    /// `slots` slots of `batch_max` keys. With `rules` the threads also work on lent keys.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for a CPU that is not available, [`EngineError::Memory`] when a thread cannot be started.
    pub fn new(
        readers: Vec<(Box<dyn EngineReader>, Option<usize>)>,
        (slots, batch_max): (usize, usize),
        allowed: Option<CpuSet>,
        stall: Duration,
        rules: Option<Rules>,
    ) -> Result<Self, EngineError> {
        let count = readers.len().max(1);
        let share = (1_usize << 16).div_ceil(count);
        // The last thread takes the remainder: at most one key per thread more than the others.
        let piece_max = batch_max.min(part(batch_max, share) + GRAIN + count);
        let (lender, workers) = rules.map(|rules| lend::board(count, rules)).unzip();
        let mut workers = workers.unwrap_or_default().into_iter();
        let helpers = readers
            .into_iter()
            .map(|(reader, cpu)| {
                Helper::spawn(reader, workers.next(), (slots, piece_max), cpu, allowed, stall)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { lens: vec![vec![0; helpers.len()]; slots], helpers, share, lender })
    }

    #[inline]
    pub(super) const fn lends(&self) -> bool {
        self.lender.is_some()
    }

    /// Looks up `keys` into `out` on the threads and on this thread's `reader`, see [`Lender::lend`]. Returns how many the threads had.
    ///
    /// # Errors
    /// The half whose answers are missing, and why.
    #[inline]
    pub fn lend(
        &mut self,
        keys: Keys<'_>,
        out: &mut [NextHopId],
        cut: usize,
        reader: &mut dyn EngineReader,
    ) -> Result<usize, (usize, Why)> {
        let Self { helpers, lender: Some(lender), .. } = self else {
            return Err((FIRST, Why::Died { during: "submit" }));
        };
        let wake = || {
            // Pairs with the fence of `sleep`: either a thread sees the loan, or this thread sees that it sleeps.
            fence(Ordering::SeqCst);
            helpers.iter().for_each(Helper::wake);
        };
        let mut error = None;
        let answer = |keys: Keys<'_>, out: &mut [NextHopId]| {
            reader.lookup(keys, out).map_err(|why| error = Some(why)).is_ok()
        };
        let LoanOutcome { keys, missing } = lender.lend(keys, out, cut, wake, answer);
        match missing {
            None => Ok(keys),
            Some(missing) => Err(self.blame(missing, error)),
        }
    }

    #[cold]
    fn blame(&self, missing: Missing, error: Option<EngineError>) -> (usize, Why) {
        let stall = self.helpers.first().map_or(Duration::ZERO, |helper| helper.stall);
        match (missing, error) {
            (Missing::Owner, Some(error)) => (SECOND, Why::Failed { during: "submit", error }),
            (Missing::Stalled, _) => (FIRST, Why::stalled("collect", stall)),
            (Missing::Owner | Missing::Worker, _) => {
                let error = self.helpers.iter().find_map(|helper| lock(&helper.trouble).take());
                let died = Why::Died { during: "collect" };
                (FIRST, error.map_or(died, |error| Why::Failed { during: "collect", error }))
            }
        }
    }

    /// Hands `keys` to the threads in equal parts. Waits first if `slot` is in flight.
    #[inline]
    pub(super) fn submit(&mut self, slot: usize, keys: Keys<'_>) -> Result<(), Why> {
        let len = keys.len();
        let (part, last) = (part(len, self.share), self.helpers.len() - 1);
        let mut from = 0;
        for (at, helper) in self.helpers.iter_mut().enumerate() {
            if !helper.is_home(slot) {
                helper.await_home(slot)?;
            }
            let to = if at == last { len } else { (from + part).min(len) };
            self.lens[slot][at] = to - from;
            if to > from {
                helper.send(slot, keys.part(from..to))?;
            }
            from = to;
        }
        Ok(())
    }

    /// Ready once no thread works on `slot`.
    #[inline]
    pub(super) fn await_jobs(&mut self, slot: usize) -> Poll<Result<(), Why>> {
        for helper in &mut self.helpers {
            if !helper.is_home(slot) {
                let lives = helper.drain();
                if !helper.is_home(slot) {
                    let died = Why::Died { during: "collect" };
                    return if lives { Poll::Pending } else { Poll::Ready(Err(died)) };
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    pub(super) fn collect(&mut self, slot: usize, out: &mut [NextHopId]) -> Poll<Result<(), Why>> {
        if let Err(why) = ready!(self.await_jobs(slot)) {
            return Poll::Ready(Err(why));
        }
        let mut from = 0;
        for (helper, len) in self.helpers.iter().zip(&self.lens[slot]) {
            let Some(job) = &helper.home[slot] else { return Poll::Pending };
            if *len == 0 {
                continue; // the job holds an older batch
            }
            if let Err(error) = &job.result {
                return Poll::Ready(Err(Why::Failed { during: "collect", error: error.clone() }));
            }
            copy(&job.answers[..*len], &mut out[from..from + len]);
            from += len;
        }
        Poll::Ready(Ok(()))
    }
}

/// One thread's part of `len` keys, in whole lines.
#[inline]
const fn part(len: usize, share: usize) -> usize {
    (((len * share) >> 16) + GRAIN - 1) & !(GRAIN - 1)
}

impl Drop for HelperGroup {
    fn drop(&mut self) {
        self.helpers.iter_mut().for_each(Helper::dismiss);
        let Some(deadline) = self.helpers.first().map(Helper::deadline) else { return };
        self.helpers.iter_mut().for_each(|helper| helper.await_end(deadline));
    }
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::super::helper::place;
    use super::*;
    use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
    use fib::faulty::{Call, Faults, FaultyEngine, How};
    use fib::oracle::OracleEngine;
    use fib::reader::{Answer, SlotReader};
    use fib::{EngineOptions, EngineWriter};
    use rustix::thread::sched_getaffinity;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::{Arc, Mutex};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn group(threads: usize, cpu: Option<usize>) -> Result<HelperGroup, EngineError> {
        let mut engine = OracleEngine::new(&EngineOptions::default());
        let mut rib = fib::Rib::new();
        for block in 0..=255_u32 {
            rib.set(format!("{block}.0.0.0/8").parse().unwrap(), NextHopId::new(block + 1).unwrap());
        }
        rib.commit_to(&mut engine).unwrap();
        let readers = (0..threads).map(|_| (engine.reader(1, 512).unwrap(), cpu)).collect();
        HelperGroup::new(readers, (4, 512), None, PATIENCE, None)
    }

    fn collect(group: &mut HelperGroup, slot: usize, out: &mut [NextHopId]) {
        loop {
            if let Poll::Ready(answers) = group.collect(slot, out) {
                return answers.unwrap();
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn any_number_of_threads_keeps_the_order_and_every_length() {
        for threads in [1, 2, 3, 5] {
            let mut group = group(threads, None).unwrap();
            for len in [0, 1, 15, 16, 17, 31, 33, 100, 511, 512] {
                let keys: Vec<Vec<u32>> =
                    (0..4).map(|slot| (0..len).map(|at| ((at * 7 + slot) % 256) << 24).collect()).collect();
                for (slot, keys) in keys.iter().enumerate() {
                    group.submit(slot, Keys::V4(keys)).unwrap();
                }
                for slot in [2, 0, 3, 1] {
                    let mut out = vec![NextHopId::MAX; keys[slot].len()];
                    collect(&mut group, slot, &mut out);
                    for (key, answer) in keys[slot].iter().zip(out) {
                        assert_eq!(answer.get(), (key >> 24) + 1, "{threads} threads, {len} keys");
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_handed_over_again_loses_its_first_batch() {
        let mut group = group(2, None).unwrap();
        for round in 0..200_u32 {
            group.submit(0, Keys::V4(&[round << 24; 300])).unwrap();
            group.submit(0, Keys::V4(&[1 << 24; 20])).unwrap();
            let mut out = [NextHopId::NONE; 20];
            collect(&mut group, 0, &mut out);
            assert!(out.iter().all(|answer| answer.get() == 2), "{out:?}");
        }
    }

    /// One thread and this thread's reader of the same table; every answer is 7. `faults` names the reader that fails (0: the group's).
    fn lending(faults: &Arc<Faults>, helps: bool) -> (HelperGroup, Box<dyn EngineReader>) {
        let mut engine = FaultyEngine::new(faults);
        let mut rib = fib::Rib::new();
        rib.set("0.0.0.0/0".parse().unwrap(), NextHopId::from_answer(7));
        rib.commit_to(&mut engine).unwrap();
        let readers = vec![(engine.reader(1, 512).unwrap(), None)];
        let rules = Rules { helps, patience: PATIENCE };
        let group = HelperGroup::new(readers, (1, 512), None, PATIENCE, Some(rules)).unwrap();
        (group, engine.reader(1, 512).unwrap())
    }

    #[test]
    fn missing_answers_are_reported_with_the_half_to_blame() {
        for helps in [true, false] {
            for (reader, dies) in [(None, false), (Some(0), false), (Some(0), true), (Some(1), false)] {
                let faults = Arc::new(Faults::default());
                let (mut group, mut lookups) = lending(&faults, helps);
                faults.reader.store(reader.unwrap_or(2), SeqCst);
                faults.die.store(dies, SeqCst);
                faults.fail_from(Call::Submit, 0, How::Full);
                let mut out = [NextHopId::NONE; 4096];
                let outcome = loop {
                    match group.lend(Keys::V4(&[9; 4096]), &mut out, 4000, lookups.as_mut()) {
                        Ok(0) => std::thread::yield_now(),
                        outcome => break outcome,
                    }
                };
                let failed = |during| move |why: &Why| matches!(why, Why::Failed { during: at, error: EngineError::Full { .. } } if *at == during);
                let case = format!("{reader:?} {dies} {helps}: {outcome:?}");
                match (reader, outcome) {
                    (None, Ok(keys)) => {
                        assert!(helps && keys <= 4096 || keys == 4000, "{case}");
                        assert!(out.iter().all(|answer| answer.get() == 7), "{case}");
                    }
                    (Some(0), Err((FIRST, Why::Died { during: "collect" }))) => assert!(dies, "{case}"),
                    (Some(0), Err((FIRST, why))) => assert!(!dies && failed("collect")(&why), "{case}"),
                    (Some(1), Err((SECOND, why))) => assert!(failed("submit")(&why), "{case}"),
                    _ => panic!("{case}"),
                }
            }
        }
    }

    fn await_sleep(group: &HelperGroup) {
        while !group.helpers[0].asleep.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn threads_wake_from_sleep_for_what_is_lent() {
        let (mut group, mut reader) = lending(&Arc::default(), false);
        for _ in 0..3 {
            await_sleep(&group);
            let mut out = [NextHopId::NONE; 64];
            let keys = group.lend(Keys::V4(&[9; 64]), &mut out, 32, reader.as_mut());
            assert!(keys == Ok(32) && out.iter().all(|answer| answer.get() == 7));
        }
    }

    #[test]
    fn threads_wake_from_sleep() {
        let mut group = group(1, None).unwrap();
        for _ in 0..3 {
            await_sleep(&group);
            let mut out = [NextHopId::NONE; 3];
            group.submit(1, Keys::V4(&[0, 1 << 24, 2 << 24])).unwrap();
            collect(&mut group, 1, &mut out);
            assert_eq!(out.map(NextHopId::get), [1, 2, 3]);
        }
    }

    type Seen = Arc<Mutex<Option<CpuSet>>>;

    /// A table whose readers record their CPUs, and close a channel on drop.
    struct Scout {
        cpus: Seen,
        _gone: Sender<()>,
    }

    impl Answer for Scout {
        fn answer(&mut self, _: Keys<'_>, _: &mut [NextHopId]) {
            *self.cpus.lock().unwrap() = Some(sched_getaffinity(None).unwrap());
        }
    }

    fn scout() -> (Seen, Box<dyn EngineReader>, Receiver<()>) {
        let (sender, gone) = bounded(1);
        let cpus = Arc::default();
        let scout = Scout { cpus: Arc::clone(&cpus), _gone: sender };
        (cpus, Box::new(SlotReader::new(scout, 1, 512)), gone)
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let Err(error) = group(1, Some(4000)) else { panic!("pinned to CPU 4000") };
        assert!(matches!(error, EngineError::Parameter { parameter: "cpus", .. }), "{error}");
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        assert!(group(1, Some(cpu)).is_ok());
    }

    #[test]
    fn a_group_that_cannot_be_made_leaves_no_thread() {
        let (_, first, gone) = scout();
        let (_, second, _) = scout();
        let made =
            HelperGroup::new(vec![(first, None), (second, Some(4000))], (4, 512), None, PATIENCE, None);
        assert!(matches!(made, Err(EngineError::Parameter { .. })));
        assert_eq!(gone.try_recv(), Err(TryRecvError::Disconnected), "a thread lives on with its reader");
    }

    #[test]
    fn threads_keep_off_the_cpu_that_their_maker_is_pinned_to() {
        let allowed = sched_getaffinity(None).unwrap();
        if allowed.count() < 2 {
            return eprintln!("SKIPPED: this process has one CPU");
        }
        let makers = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
        let maker = std::thread::spawn(move || {
            assert!(place(Some(makers), None, None));
            let (cpus, reader, _gone) = scout();
            let mut group =
                HelperGroup::new(vec![(reader, None)], (1, 512), Some(allowed), PATIENCE, None).unwrap();
            group.submit(0, Keys::V4(&[7])).unwrap();
            collect(&mut group, 0, &mut [NextHopId::NONE]);
            cpus.lock().unwrap().unwrap()
        });
        let helpers = maker.join().unwrap();
        assert!(!helpers.is_set(makers) && helpers.count() + 1 == allowed.count(), "{helpers:?}");
    }
}
