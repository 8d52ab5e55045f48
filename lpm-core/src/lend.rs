//! A batch lent to other threads in place: they read the caller's keys and write its answers, without copies.
//!
//! All access of a thread to memory that another thread owns is in this file. The owner (a [`Lender`]) splits the keys of a batch into
//! piles, one per worker and one for itself. A [`Worker`] claims a grain of keys at a time, from the front of its pile, then from the back
//! of the others. The owner returns only when every claimed key is done.
//!
//! ```text
//! lend:   terms <- pointers to keys and answers;  piles <- ranges of positions  (release)
//! claim:  pile  <- shortened by a grain         (acquire: the thread that claims a grain sees the terms)
//! done:   done  <- increased by the grain       (release)
//! return: every grain of the loan is done       (acquire: no thread reads the terms any more, all answers are visible)
//! ```
//! Invariant: a thread without a grain never touches the terms, and a grain can be claimed only during its loan. A thread that is
//! preempted while it holds a grain keeps the owner waiting.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::time::Instant;
use crate::sync::{Arc, LOOKS_A_YIELD, UnsafeCell, hint, thread};
use crossbeam_utils::CachePadded;
use fib::{Keys, NextHopId};
use std::ops::Range;
use std::time::Duration;

/// The smallest and the largest grain, in keys; in between, an eighth of the pile, so that threads finish at about the same time.
const GRAIN: Range<usize> = 256..4096;
/// Piles and grains are multiples of this many keys: the lanes of a vector, and a cache line of answers.
const LINE: usize = 16;
/// The maximum number of keys of a loan: positions have 32 bits.
pub const LOAN_MAX: usize = 1 << 31;

#[derive(Clone, Copy)]
enum LentKeys {
    V4(*const u32),
    V6(*const u64, *const u64),
}

#[derive(Clone, Copy)]
struct Terms {
    keys: LentKeys,
    out: *mut NextHopId,
}

/// The keys of one thread. Each pile has a copy of the terms, on the cache line that a claim has just fetched.
struct Pile {
    /// The unclaimed positions: the first, and one past the last, 32 bits each.
    left: AtomicU64,
    terms: UnsafeCell<Terms>,
}

// SAFETY: `left` is atomic. Only the owner writes `terms`, and only while no grain of the pile is claimed; others read them only while
// they hold such a grain. `Lender::lend` and `Grain::run` keep both orders, which the module's documentation lists. The pointers in
// `terms` are to `u32`, `u64` and `NextHopId`, which any thread may use.
unsafe impl Send for Pile {}
// SAFETY: for the reasons given for `Send`.
unsafe impl Sync for Pile {}

/// Keys claimed by one thread, which must report them when they are done.
struct Grain<'a> {
    pile: &'a Pile,
    at: Range<usize>,
}

/// One worker's progress on the loan. During a loan only that worker writes it.
#[derive(Default)]
struct WorkerTally {
    done: AtomicU64,
    failed: AtomicBool,
    gone: AtomicBool,
}

struct Board {
    /// One per worker, then the owner's.
    piles: Box<[CachePadded<Pile>]>,
    tallies: Box<[CachePadded<WorkerTally>]>,
    /// One worker's share of the workers' keys, in 65536ths, rounded up.
    share: usize,
    rules: Rules,
}

/// How threads share the keys of a loan.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether a thread that has finished its own pile claims from the others.
    pub helps: bool,
    /// How long the owner waits before it takes back unclaimed keys; unused with `helps`.
    pub patience: Duration,
}

/// A worker's access to the board, for its thread.
pub struct Worker {
    board: Arc<Board>,
    at: usize,
}

/// The owner's access to the board.
pub struct Lender {
    board: Arc<Board>,
}

/// Why some answers are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The owner could not answer.
    Owner,
    /// A worker could not answer, or its thread has ended.
    Worker,
    /// A worker did not claim its keys in time.
    Stalled,
}

/// The result of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanOutcome {
    /// The keys that the workers had: all that the owner did not claim.
    pub keys: usize,
    /// Why answers are missing; `None` if there are all.
    pub missing: Option<Missing>,
}

/// Makes a lender and its `workers` workers (at least one).
pub fn board(workers: usize, rules: Rules) -> (Lender, Vec<Worker>) {
    let workers = workers.max(1);
    let pile = |_| {
        let nothing = Terms { keys: LentKeys::V4(std::ptr::null()), out: std::ptr::null_mut() };
        CachePadded::new(Pile { left: AtomicU64::new(0), terms: UnsafeCell::new(nothing) })
    };
    let board = Arc::new(Board {
        piles: (0..=workers).map(pile).collect(),
        tallies: (0..workers).map(|_| CachePadded::new(WorkerTally::default())).collect(),
        share: (1_usize << 16).div_ceil(workers),
        rules,
    });
    let workers = (0..workers).map(|at| Worker { board: Arc::clone(&board), at }).collect();
    (Lender { board }, workers)
}

const fn pack(from: usize, to: usize) -> u64 {
    (from as u64) << 32 | to as u64
}

const fn unpack(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, (word & 0xffff_ffff) as usize)
}

const fn grain_len(left: usize) -> usize {
    let part = (left / 8).next_multiple_of(LINE);
    let part = if part < GRAIN.start {
        GRAIN.start
    } else if part > GRAIN.end {
        GRAIN.end
    } else {
        part
    };
    // A remainder that is not worth a claim is added to this grain.
    if left < part + GRAIN.start / 2 { left } else { part }
}

impl Pile {
    #[inline]
    fn claim(&self, front: bool) -> Option<Grain<'_>> {
        let mut word = self.left.load(Ordering::Relaxed);
        loop {
            let (from, to) = unpack(word);
            if from >= to {
                return None;
            }
            let len = grain_len(to - from);
            let (rest, taken) = if front {
                (pack(from + len, to), from..from + len)
            } else {
                (pack(from, to - len), to - len..to)
            };
            match self.left.compare_exchange_weak(word, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Grain { pile: self, at: taken }),
                Err(now) => word = now,
            }
        }
    }
}

impl Board {
    #[inline]
    fn claim(&self, own: usize) -> Option<Grain<'_>> {
        let mut others = self.piles.iter().enumerate().filter(|(at, _)| *at != own && self.rules.helps);
        self.piles[own].claim(true).or_else(|| others.find_map(|(_, pile)| pile.claim(false)))
    }

    /// The end of the pile of worker `at` among the workers' `cut` keys: equal parts in whole lines, the rest for the last worker.
    #[inline]
    fn end_of(&self, at: usize, cut: usize) -> usize {
        let part = (((cut * self.share) >> 16) + LINE - 1) & !(LINE - 1);
        if at + 1 == self.tallies.len() { cut } else { ((at + 1) * part).min(cut) }
    }
}

impl Grain<'_> {
    #[inline]
    fn run<T>(self, run: impl FnOnce(Keys<'_>, &mut [NextHopId]) -> T) -> T {
        // SAFETY: a grain exists, so its loan lasts. Only the owner writes the terms, and not before this grain is reported; the
        // claim's acquire has made them visible.
        let Terms { keys, out } = self.pile.terms.with(|terms| unsafe { *terms });
        let (from, len) = (self.at.start, self.at.len());
        // SAFETY: `Lender::lend` checked that `out` has as many answers as there are keys, and the grain is within
        // them. The caller's slice is mutably borrowed for as long as the loan lasts, no position is in two grains, and
        // the owner too uses the answers only through a grain: there is no other reference to these answers.
        let out = unsafe { std::slice::from_raw_parts_mut(out.add(from), len) };
        let keys = match keys {
            // SAFETY: there are as many keys as answers. The keys are borrowed for as long, and are only read.
            LentKeys::V4(keys) => Keys::V4(unsafe { std::slice::from_raw_parts(keys.add(from), len) }),
            LentKeys::V6(hi, lo) => Keys::V6 {
                // SAFETY: as for the keys of IPv4.
                hi: unsafe { std::slice::from_raw_parts(hi.add(from), len) },
                // SAFETY: as for the high halves, and there are as many low ones.
                lo: unsafe { std::slice::from_raw_parts(lo.add(from), len) },
            },
        };
        run(keys, out)
    }
}

/// Reports a grain as done on drop, also after a panic.
struct GrainReport<'a> {
    tally: &'a WorkerTally,
    len: usize,
    failed: bool,
}

impl Drop for GrainReport<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.failed {
            self.tally.failed.store(true, Ordering::Relaxed);
        }
        let done = self.tally.done.load(Ordering::Relaxed) + self.len as u64;
        self.tally.done.store(done, Ordering::Release);
    }
}

impl Worker {
    /// Whether this worker's pile has unclaimed keys.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        let (from, to) = unpack(self.board.piles[self.at].left.load(Ordering::Relaxed));
        from < to
    }

    /// Works on the current loan, grain by grain; returns false if this worker's pile was empty. `run` writes the answers of its keys and
    /// returns whether it could. An idle worker polls only its own pile, whose cache line is not written until the next loan.
    #[inline]
    pub fn work(&mut self, mut run: impl FnMut(Keys<'_>, &mut [NextHopId]) -> bool) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let tally = &self.board.tallies[self.at];
        while let Some(grain) = self.board.claim(self.at) {
            let mut report = GrainReport { tally, len: grain.at.len(), failed: true };
            report.failed = !grain.run(&mut run);
        }
        true
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.board.tallies[self.at].gone.store(true, Ordering::Release);
    }
}

/// Dropping a loan takes back unclaimed keys and waits for claimed ones, so that no loan outlasts [`Lender::lend`], even after a panic.
struct Loan<'a> {
    board: &'a Board,
    len: usize,
    /// Keys that the owner has claimed or taken back.
    by_owner: usize,
}

impl Loan<'_> {
    #[inline]
    fn left(&self) -> usize {
        let done = |tally: &CachePadded<WorkerTally>| tally.done.load(Ordering::Acquire);
        let done = usize::try_from(self.board.tallies.iter().map(done).sum::<u64>()).unwrap_or(usize::MAX);
        self.len.saturating_sub(self.by_owner + done)
    }

    #[cold]
    fn take_back(&mut self, at: usize) -> bool {
        let (from, to) = unpack(self.board.piles[at].left.swap(0, Ordering::Acquire));
        self.by_owner += to.saturating_sub(from);
        from < to
    }

    /// Waits until no key is left; takes unclaimed keys back from workers that have ended, failed or are late.
    #[inline]
    fn finish(&mut self) -> Option<Missing> {
        let (mut polls, mut since, mut missing) = (0_u32, None, None);
        while self.left() > 0 {
            polls += 1;
            if polls < LOOKS_A_YIELD {
                hint::spin_loop();
                continue;
            }
            polls = 0;
            missing = self.give_up(*since.get_or_insert_with(Instant::now)).or(missing);
            thread::yield_now();
        }
        let lost = |tally: &CachePadded<WorkerTally>| {
            tally.failed.load(Ordering::Relaxed) || tally.gone.load(Ordering::Relaxed)
        };
        if self.board.tallies.iter().any(lost) { Some(Missing::Worker) } else { missing }
    }

    #[cold]
    fn give_up(&mut self, since: Instant) -> Option<Missing> {
        let mut missing = None;
        for (at, tally) in self.board.tallies.iter().enumerate() {
            let ended = tally.gone.load(Ordering::Acquire) || tally.failed.load(Ordering::Relaxed);
            let late = since.elapsed() > self.board.rules.patience;
            if (ended || late) && self.take_back(at) {
                missing = Some(if ended { Missing::Worker } else { Missing::Stalled });
            }
        }
        missing
    }
}

impl Drop for Loan<'_> {
    #[inline]
    fn drop(&mut self) {
        // Keys are left only if the owner panicked before `finish`.
        if self.left() > 0 {
            for at in 0..self.board.piles.len() {
                self.take_back(at);
            }
            self.finish();
        }
    }
}

impl Lender {
    /// Looks up `keys` into `out`. The workers start with the first `cut` keys and this thread with the rest. `wake` is called once the
    /// piles are filled; `run` is as in [`Worker::work`].
    ///
    /// # Panics
    /// If `out` is not as long as `keys`, there are more keys than [`LOAN_MAX`] or fewer than `cut`, or `wake` or `run` panics.
    #[inline]
    pub fn lend(
        &mut self,
        keys: Keys<'_>,
        out: &mut [NextHopId],
        cut: usize,
        wake: impl FnOnce(),
        mut run: impl FnMut(Keys<'_>, &mut [NextHopId]) -> bool,
    ) -> LoanOutcome {
        let len = out.len();
        let as_many = keys.check_answers(out).is_ok();
        let source = match keys {
            Keys::V4(keys) => LentKeys::V4(keys.as_ptr()),
            Keys::V6 { hi, lo } => LentKeys::V6(hi.as_ptr(), lo.as_ptr()),
        };
        assert!(
            as_many && len <= LOAN_MAX && cut <= len,
            "a loan needs as many answers as keys, within its limits"
        );
        let board = &*self.board;
        for tally in &board.tallies {
            tally.done.store(0, Ordering::Relaxed);
            tally.failed.store(false, Ordering::Relaxed);
        }
        let mut loan = Loan { board, len, by_owner: 0 };
        let out = out.as_mut_ptr();
        let (owner, mut from) = (board.tallies.len(), 0);
        for (at, pile) in board.piles.iter().enumerate() {
            let to = if at == owner { len } else { board.end_of(at, cut) };
            // SAFETY: no other loan is in progress: the last one ended in `Loan::drop` with all its grains done, which
            // the acquire there orders before this write, and only `&mut self` can begin one. This pile is empty until
            // the store below, so no other thread reads or writes the terms.
            pile.terms.with_mut(|terms| unsafe { *terms = Terms { keys: source, out } });
            pile.left.store(pack(from, to), Ordering::Release);
            from = to;
        }
        wake();
        let mut answered = true;
        while let Some(grain) = board.claim(owner) {
            loan.by_owner += grain.at.len(); // before anything can panic
            answered &= grain.run(&mut run);
        }
        let keys = len - loan.by_owner;
        let missing = loan.finish();
        LoanOutcome { keys, missing: if answered { missing } else { Some(Missing::Owner) } }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const PATIENT: Duration = Duration::from_secs(30);
    const HELPING: Rules = Rules { helps: true, patience: PATIENT };
    const BY_HAND: Rules = Rules { helps: false, patience: PATIENT };

    fn answer(keys: Keys<'_>, out: &mut [NextHopId]) -> bool {
        let id = |key: u64| NextHopId::new(u32::try_from(key % 0xff_fff1).unwrap() + 1).unwrap();
        match keys {
            Keys::V4(keys) => {
                keys.iter().zip(out).for_each(|(key, out)| {
                    assert_eq!(*out, NextHopId::NONE, "answered twice");
                    *out = id((*key).into());
                });
            }
            Keys::V6 { hi, lo } => {
                hi.iter().zip(lo).zip(out).for_each(|((hi, lo), out)| *out = id(hi ^ lo));
            }
        }
        true
    }

    fn with_workers<T>(count: usize, rules: Rules, work: impl FnOnce(&mut Lender) -> T) -> T {
        let (mut lender, workers) = board(count, rules);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mut worker in workers {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if !worker.work(answer) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let done = catch_unwind(AssertUnwindSafe(|| work(&mut lender)));
            over.store(true, Ordering::Relaxed);
            done.unwrap()
        })
    }

    #[test]
    fn every_key_is_answered_once_in_its_place_by_any_number_of_workers() {
        let hi: Vec<u64> = (0..20_000).map(|at| at << 33 | at).collect();
        let lo: Vec<u64> = (0..20_000).map(|at| at * 7919).collect();
        let v4: Vec<u32> = (0..20_000).map(|at: u32| at.wrapping_mul(2_654_435_761)).collect();
        for count in [1, 2, 3, 5] {
            for rules in [HELPING, BY_HAND] {
                with_workers(count, rules, |lender| {
                    for len in [0, 1, 15, 16, 17, 255, 256, 400, 1000, 4096, 20_000] {
                        for cut in [0, len / 100, len / 2, len] {
                            let all = [Keys::V4(&v4[..len]), Keys::V6 { hi: &hi[..len], lo: &lo[..len] }];
                            for keys in all {
                                let mut out = vec![NextHopId::NONE; len];
                                let outcome = lender.lend(keys, &mut out, cut, || (), answer);
                                let mut wanted = vec![NextHopId::NONE; len];
                                answer(keys, &mut wanted);
                                assert_eq!(
                                    out, wanted,
                                    "{count} workers, {len} keys cut at {cut}, {rules:?}"
                                );
                                assert!(outcome.missing.is_none() && outcome.keys <= len);
                                assert!(rules.helps || outcome.keys == cut, "exactly the cut");
                            }
                        }
                    }
                });
            }
        }
    }

    #[test]
    fn workers_that_do_not_come_are_helped_or_given_up() {
        let keys: Vec<u32> = (0..3000).collect();
        for (rules, missing) in [
            (HELPING, None),
            (Rules { patience: Duration::from_millis(2), ..BY_HAND }, Some(Missing::Stalled)),
        ] {
            let (mut lender, mut workers) = board(2, rules);
            let mut out = vec![NextHopId::NONE; 3000];
            let outcome = lender.lend(Keys::V4(&keys), &mut out, 1500, || (), answer);
            assert_eq!(outcome.missing, missing);
            let answered = if missing.is_none() { 0 } else { 1500 };
            assert!(out[answered..].iter().all(|answer| *answer != NextHopId::NONE));
            let late =
                |worker: &mut Worker| worker.is_wanted() || worker.work(|_, _| panic!("a loan that is over"));
            assert!(!workers.iter_mut().any(late));
        }
    }

    #[test]
    fn a_worker_that_fails_panics_or_ends_is_reported_and_not_waited_for() {
        let keys = [5_u32; 3000];
        for rules in [HELPING, BY_HAND] {
            for trouble in ["fails", "panics", "is gone"] {
                let (mut lender, mut workers) = board(1, rules);
                let mut worker = workers.pop().unwrap();
                let mut out = vec![NextHopId::NONE; 3000];
                let begun = AtomicBool::new(false);
                let notify = &begun;
                let outcome = std::thread::scope(|scope| {
                    let thread = scope.spawn(move || {
                        let broken = |_: Keys<'_>, _: &mut [NextHopId]| {
                            notify.store(true, Ordering::Relaxed);
                            assert!(trouble != "panics", "on purpose");
                            false
                        };
                        while trouble != "is gone" && !worker.work(broken) {
                            std::thread::yield_now();
                        }
                    });
                    let wait = || {
                        while trouble != "is gone" && !notify.load(Ordering::Relaxed) {
                            std::thread::yield_now();
                        }
                    };
                    if trouble == "is gone" {
                        while !thread.is_finished() {
                            std::thread::yield_now();
                        }
                    }
                    let outcome = lender.lend(Keys::V4(&keys), &mut out, 2000, wait, answer);
                    assert_eq!(thread.join().is_err(), trouble == "panics");
                    outcome
                });
                assert_eq!(outcome.missing, Some(Missing::Worker), "{trouble}, {rules:?}");
            }
        }
    }

    #[test]
    fn an_owner_that_cannot_answer_says_so() {
        with_workers(1, BY_HAND, |lender| {
            let mut out = vec![NextHopId::NONE; 1000];
            let outcome = lender.lend(Keys::V4(&[3; 1000]), &mut out, 500, || (), |_, _| false);
            assert_eq!(outcome, LoanOutcome { keys: 500, missing: Some(Missing::Owner) });
        });
    }

    #[test]
    fn a_panic_of_the_owner_waits_for_the_workers() {
        let (mut lender, mut workers) = board(1, HELPING);
        let mut worker = workers.pop().unwrap();
        let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slow = |keys: Keys<'_>, out: &mut [NextHopId]| {
                    begun.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                    ended.store(true, Ordering::Relaxed);
                    answer(keys, out)
                };
                while !worker.work(slow) {
                    std::thread::yield_now();
                }
            });
            let mut out = vec![NextHopId::NONE; 1000];
            let wait = || {
                while !begun.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            };
            let owner = catch_unwind(AssertUnwindSafe(|| {
                lender.lend(Keys::V4(&[3; 1000]), &mut out, 500, wait, |_, _| panic!("on purpose"))
            }));
            assert!(owner.is_err() && ended.load(Ordering::Relaxed), "returned while a worker had a grain");
            let answered = out.iter().filter(|answer| **answer != NextHopId::NONE).count();
            assert!((1..1000).contains(&answered), "{answered}: the grain is done, the rest was taken back");
        });
        let mut out = vec![NextHopId::NONE; 1000];
        lender.lend(Keys::V4(&[3; 1000]), &mut out, 500, || (), answer);
        assert!(out.iter().all(|answer| *answer != NextHopId::NONE));
    }

    #[test]
    #[should_panic(expected = "as many answers as keys")]
    fn keys_without_a_place_for_their_answers_are_not_lent() {
        let mut out = [NextHopId::NONE; 3];
        board(1, HELPING).0.lend(Keys::V6 { hi: &[1; 3], lo: &[1; 2] }, &mut out, 1, || (), answer);
    }

    #[test]
    fn grains_are_part_of_what_is_left() {
        for left in (1..5000).chain([1 << 16, 1 << 20, LOAN_MAX]) {
            let len = grain_len(left);
            assert!(len > 0 && len <= left && len < GRAIN.end + GRAIN.start, "{len} of {left}");
            assert!(
                len == left || len.is_multiple_of(LINE) && left - len >= GRAIN.start / 2,
                "{len} of {left}"
            );
        }
    }
}
