//! A batch lent to other threads: keys and the place of their answers stay where the caller has them, and nothing is copied.
//!
//! What a thread may do with memory that another one owns is the business of this file, and of this file alone. The owner (a
//! [`Lender`]) deals the keys of a batch out in piles, one a thread and one for itself, and does not return before every key that
//! somebody has begun is done. A [`Worker`] takes a grain of keys at a time, from the front of its own pile, then from the back of
//! the others'; so whoever ends first takes over what the others have not begun, and the owner waits for one grain at most.
//!
//! ```text
//! lend:   terms <- where keys and answers lie;  piles <- who has what  (release)
//! claim:  pile  <- less a grain                 (acquire: whoever has a grain sees the terms)
//! done:   done  <- more by a grain              (release)
//! return: every grain of the loan is done       (acquire: nobody looks at the terms any more, all answers are there)
//! ```
//! A thread without a grain never touches the terms, and a grain can only be had while its loan lasts: that is the invariant.
//! A thread that loses its CPU with a grain keeps the owner waiting until it is back, as a scoped thread would.

use crossbeam_utils::CachePadded;
use fib::{Keys, NextHopId};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys of a grain: an eighth of what is left of a pile, so that threads end together, between these two. The lower one is
/// some 0.5 us of lookups, ten times what a claim costs; the upper one some 10 us.
const GRAIN: Range<usize> = 256..4096;
/// Keys that go together: the lanes of a vector, and a line of answers.
const LINE: usize = 16;
/// Keys of a loan at most: positions are kept in 32 bits.
pub(crate) const LOAN_MAX: usize = 1 << 31;
/// Looks of an owner that waits, between two yields: the other thread may need this CPU.
const LOOKS_A_YIELD: u32 = 256;

/// Where the keys lie.
#[derive(Clone, Copy)]
enum Source {
    V4(*const u32),
    V6(*const u64, *const u64),
}

/// What is lent.
struct Terms {
    keys: Source,
    out: *mut NextHopId,
}

/// What one thread has to do.
struct Pile {
    /// Positions that nobody has begun: the first, and the one past the last, 32 bits each.
    left: AtomicU64,
}

/// What one worker has done of the loan. Only that worker writes while the loan lasts.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    failed: AtomicBool,
    /// Its thread has ended, for good.
    gone: AtomicBool,
}

/// What all threads of a loan share: see the module.
struct Board {
    terms: UnsafeCell<Terms>,
    /// One a worker, then the owner's.
    piles: Box<[CachePadded<Pile>]>,
    /// One a worker.
    tallies: Box<[CachePadded<Tally>]>,
    /// A worker's part of what all workers have, 65536ths, rounded up.
    share: usize,
    rules: Rules,
}

/// How a loan is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether a thread that has done its pile goes on with the others'.
    pub(crate) helps: bool,
    /// How long a worker may leave its pile untouched; only where nobody helps.
    pub(crate) patience: Duration,
}

// SAFETY: everything but `terms` is atomic or never changes. The owner alone writes `terms`, while no grain is out; others read it
// with a grain in hand. Both orders are those of the module, kept by `Lender::lend` and `Board::run`. The pointers within are to `u32`,
// `u64` and `NextHopId`, which any thread may use.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

/// One thread that works on what is lent.
pub(crate) struct Worker {
    board: Arc<Board>,
    at: usize,
}

/// Who lends.
pub(crate) struct Lender {
    board: Arc<Board>,
}

/// Why some answers are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The owner could not answer.
    Owner,
    /// A worker could not answer, or its thread has ended.
    Worker,
    /// A worker did not come in time.
    Stalled,
}

/// What became of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Keys that the workers had; the owner had the others.
    pub(crate) keys: usize,
    /// Whether all answers are there.
    pub(crate) missing: Option<Missing>,
}

/// A lender and `workers` workers (one at least).
pub(crate) fn board(workers: usize, rules: Rules) -> (Lender, Vec<Worker>) {
    let workers = workers.max(1);
    let nothing = Terms { keys: Source::V4(std::ptr::null()), out: std::ptr::null_mut() };
    let board = Arc::new(Board {
        terms: UnsafeCell::new(nothing),
        piles: (0..=workers).map(|_| CachePadded::new(Pile { left: AtomicU64::new(0) })).collect(),
        tallies: (0..workers).map(|_| CachePadded::new(Tally::default())).collect(),
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

/// How many of `left` keys are taken at once.
const fn grain(left: usize) -> usize {
    let part = (left / 8).next_multiple_of(LINE);
    let part = if part < GRAIN.start {
        GRAIN.start
    } else if part > GRAIN.end {
        GRAIN.end
    } else {
        part
    };
    // What would be left for the next one is not worth a claim.
    if left < part + GRAIN.start / 2 { left } else { part }
}

impl Pile {
    /// Takes a grain, from the front or from the back.
    #[inline]
    fn claim(&self, front: bool) -> Option<Range<usize>> {
        let mut word = self.left.load(Ordering::Relaxed);
        loop {
            let (from, to) = unpack(word);
            if from >= to {
                return None;
            }
            let len = grain(to - from);
            let (rest, taken) = if front {
                (pack(from + len, to), from..from + len)
            } else {
                (pack(from, to - len), to - len..to)
            };
            match self.left.compare_exchange_weak(word, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(now) => word = now,
            }
        }
    }
}

impl Board {
    /// A grain of pile `own`, else of another.
    #[inline]
    fn claim(&self, own: usize) -> Option<Range<usize>> {
        let mut others = self.piles.iter().enumerate().filter(|(at, _)| *at != own && self.rules.helps);
        self.piles[own].claim(true).or_else(|| others.find_map(|(_, pile)| pile.claim(false)))
    }

    /// Where the pile of worker `at` ends among the `cut` keys of all of them: equal parts in whole lines, the last one's what
    /// the others' leave.
    #[inline]
    fn end_of(&self, at: usize, cut: usize) -> usize {
        let part = (((cut * self.share) >> 16) + LINE - 1) & !(LINE - 1);
        if at + 1 == self.tallies.len() { cut } else { ((at + 1) * part).min(cut) }
    }

    /// Does `run` with the grain `at`, which the caller has claimed and not yet reported.
    #[inline]
    fn run<T>(&self, at: &Range<usize>, run: impl FnOnce(Keys<'_>, &mut [NextHopId]) -> T) -> T {
        // SAFETY: the caller has a grain, so the loan lasts and its owner, who alone writes the terms, waits; the claim's acquire
        // has made what it wrote visible.
        let Terms { keys, out } = unsafe { &*self.terms.get() };
        let (from, len) = (at.start, at.len());
        // SAFETY: `Lender::lend` checked that as many answers as keys lie at `out`, and the grain is within them. The slice they
        // were lent as is borrowed mutably for as long as the loan lasts, no position is in two grains, and the owner too comes
        // to them through a grain alone: nobody else has a reference to these answers.
        let out = unsafe { std::slice::from_raw_parts_mut(out.add(from), len) };
        let keys = match *keys {
            // SAFETY: as for the answers, of which there are as many; keys are only read, by whomever.
            Source::V4(keys) => Keys::V4(unsafe { std::slice::from_raw_parts(keys.add(from), len) }),
            Source::V6(hi, lo) => Keys::V6 {
                // SAFETY: as above.
                hi: unsafe { std::slice::from_raw_parts(hi.add(from), len) },
                // SAFETY: as above, and there are as many low halves as high ones.
                lo: unsafe { std::slice::from_raw_parts(lo.add(from), len) },
            },
        };
        run(keys, out)
    }
}

/// Reports a grain when it goes, also when the thread panics over it.
struct Report<'a> {
    tally: &'a Tally,
    len: usize,
    failed: bool,
}

impl Drop for Report<'_> {
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
    /// Whether a pile waits for this thread.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        let (from, to) = unpack(self.board.piles[self.at].left.load(Ordering::Relaxed));
        from < to
    }

    /// Does what there is to do, grain by grain; `run` answers keys into a slice as long, and says whether it could. Whether there
    /// was anything. An idle thread looks at its own pile alone, whose line nobody else writes until there is something.
    #[inline]
    pub(crate) fn work(&mut self, mut run: impl FnMut(Keys<'_>, &mut [NextHopId]) -> bool) -> bool {
        if !self.is_wanted() {
            return false;
        }
        let tally = &self.board.tallies[self.at];
        while let Some(at) = self.board.claim(self.at) {
            let mut report = Report { tally, len: at.len(), failed: true };
            report.failed = !self.board.run(&at, &mut run);
        }
        true
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.board.tallies[self.at].gone.store(true, Ordering::Release);
    }
}

/// A loan that lasts until it goes: then what nobody has begun is taken back, and what somebody has is waited for. So no loan
/// outlasts [`Lender::lend`], whatever happens there.
struct Loan<'a> {
    board: &'a Board,
    len: usize,
    /// Keys that the owner has, begun or taken back.
    mine: usize,
}

impl Loan<'_> {
    /// Keys that are not done yet.
    #[inline]
    fn left(&self) -> usize {
        let done = |tally: &CachePadded<Tally>| tally.done.load(Ordering::Acquire);
        // At most the keys of the loan.
        let done = usize::try_from(self.board.tallies.iter().map(done).sum::<u64>()).unwrap_or(usize::MAX);
        self.len.saturating_sub(self.mine + done)
    }

    /// Takes back what nobody has begun of pile `at`. Whether there was anything.
    #[cold]
    fn take_back(&mut self, at: usize) -> bool {
        let (from, to) = unpack(self.board.piles[at].left.swap(0, Ordering::Acquire));
        self.mine += to.saturating_sub(from);
        from < to
    }

    /// Waits until all is done; takes back what a worker cannot do any more.
    #[inline]
    fn finish(&mut self) -> Option<Missing> {
        let (mut looks, mut since, mut missing) = (0_u32, None, None);
        while self.left() > 0 {
            looks += 1;
            if looks < LOOKS_A_YIELD {
                std::hint::spin_loop();
                continue;
            }
            looks = 0;
            missing = self.give_up(*since.get_or_insert_with(Instant::now)).or(missing);
            std::thread::yield_now();
        }
        let lost = |tally: &CachePadded<Tally>| {
            tally.failed.load(Ordering::Relaxed) || tally.gone.load(Ordering::Relaxed)
        };
        if self.board.tallies.iter().any(lost) { Some(Missing::Worker) } else { missing }
    }

    /// Takes back what is left to a worker that is gone, or has failed, or has not come `since` then.
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
        // After `finish` there is nothing left; else the owner panics.
        if self.left() > 0 {
            for at in 0..self.board.piles.len() {
                self.take_back(at);
            }
            self.finish();
        }
    }
}

impl Lender {
    /// Has `keys` answered into `out`, as many: the first `cut` by the workers, the others by this thread, as far as nobody
    /// who is done before takes them over. `wake` is called once there is something to do; `run` is as for [`Worker::work`].
    ///
    /// # Panics
    /// When there are not as many answers as keys, or more than [`LOAN_MAX`]; when `wake` or `run` do.
    #[inline]
    pub(crate) fn lend(
        &mut self,
        keys: Keys<'_>,
        out: &mut [NextHopId],
        cut: usize,
        wake: impl FnOnce(),
        mut run: impl FnMut(Keys<'_>, &mut [NextHopId]) -> bool,
    ) -> Outcome {
        let len = out.len();
        let (source, as_many) = match keys {
            Keys::V4(keys) => (Source::V4(keys.as_ptr()), keys.len() == len),
            Keys::V6 { hi, lo } => (Source::V6(hi.as_ptr(), lo.as_ptr()), hi.len() == len && lo.len() == len),
        };
        assert!(as_many && len <= LOAN_MAX && cut <= len, "a loan is of keys with a place for each answer");
        let board = &*self.board;
        // SAFETY: no loan lasts: the last one ended in `Loan::drop` with every grain of it done, which the acquire there has ordered
        // before this, and `&mut self` is the only way to begin one. So nobody else reads or writes the terms.
        unsafe { *board.terms.get() = Terms { keys: source, out: out.as_mut_ptr() } };
        for tally in &board.tallies {
            tally.done.store(0, Ordering::Relaxed);
            tally.failed.store(false, Ordering::Relaxed);
        }
        let mut loan = Loan { board, len, mine: 0 };
        let (owner, mut from) = (board.tallies.len(), 0);
        for (at, pile) in board.piles.iter().enumerate() {
            let to = if at == owner { len } else { board.end_of(at, cut) };
            pile.left.store(pack(from, to), Ordering::Release);
            from = to;
        }
        wake();
        let mut answered = true;
        while let Some(at) = board.claim(owner) {
            loan.mine += at.len(); // before anything can panic
            answered &= board.run(&at, &mut run);
        }
        let keys = len - loan.mine;
        let missing = loan.finish();
        Outcome { keys, missing: if answered { missing } else { Some(Missing::Owner) } }
    }
}
