//! A batch lent to other threads: each key is looked up once, the owner returns only when no thread works on it, and terms do not change.

use crate::check::check;
use crate::lend::{Missing, Rules, Worker, board};
use crate::sync::{Arc, UnsafeCell, thread};
use fib::{Keys, NextHopId};
use std::time::Duration;

const GRAIN: usize = 256;

/// Access to the answers of each grain: loom detects a thread that reads them while another may be writing.
#[derive(Clone)]
struct Access(Arc<[UnsafeCell<()>]>);

impl Access {
    /// The upper half of a key is the loan's number.
    fn answer(&self, keys: Keys<'_>, out: &mut [NextHopId]) -> bool {
        let Keys::V4(keys) = keys else { panic!("keys of IPv6") };
        self.0[(keys[0] as usize % 0x1_0000) / GRAIN].with_mut(|_| ());
        for (key, out) in keys.iter().zip(out) {
            assert_eq!(*out, NextHopId::NONE, "answered twice");
            *out = NextHopId::new(key + 1).unwrap();
        }
        true
    }
}

/// A worker that polls `looks` times, and is returned: the owner gives up on a dropped one. Without helping, each poll waits for work.
fn work(mut worker: Worker, access: &Access, looks: usize, helps: bool) -> Worker {
    for _ in 0..looks {
        while !worker.work(|keys, out| access.answer(keys, out)) && !helps {
            thread::yield_now();
        }
    }
    worker
}

fn model(workers: usize, loans: usize, cut: usize, helps: bool) {
    const LEN: usize = 2 * GRAIN;
    let rules = Rules { helps, patience: Duration::MAX };
    let (mut lender, theirs) = board(workers, rules);
    let access = Access((0..LEN / GRAIN).map(|_| UnsafeCell::new(())).collect());
    let threads: Vec<_> = theirs
        .into_iter()
        .map(|worker| {
            let access = access.clone();
            thread::spawn(move || work(worker, &access, loans, helps))
        })
        .collect();
    for loan in 0..loans {
        let keys: Vec<u32> =
            (0..u32::try_from(LEN).unwrap()).map(|at| u32::try_from(loan).unwrap() << 16 | at).collect();
        let mut out = vec![NextHopId::NONE; LEN];
        let outcome =
            lender.lend(Keys::V4(&keys), &mut out, cut, || (), |keys, out| access.answer(keys, out));
        assert_eq!(outcome.missing, None);
        assert!(helps || outcome.keys == cut);
        access.0.iter().for_each(|cell| cell.with_mut(|_| ()));
        assert!(keys.iter().zip(&out).all(|(key, out)| out.get() == key + 1), "not answered");
    }
    let workers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(!workers.iter().any(Worker::is_wanted), "a pile is left");
}

/// A worker that fails or exits at once: the owner notices, and no thread accesses the answers when it returns.
fn trouble(fails: bool) {
    const LEN: usize = 2 * GRAIN;
    let (mut lender, mut theirs) = board(1, Rules { helps: false, patience: Duration::MAX });
    let (access, mut worker) =
        (Access((0..LEN / GRAIN).map(|_| UnsafeCell::new(())).collect()), theirs.pop().unwrap());
    let thread = {
        let access = access.clone();
        thread::spawn(move || {
            let fail = |keys: Keys<'_>, out: &mut [NextHopId]| {
                access.answer(keys, out);
                false
            };
            while fails && !worker.work(fail) {
                thread::yield_now();
            }
        })
    };
    let keys: Vec<u32> = (0..u32::try_from(LEN).unwrap()).collect();
    let mut out = vec![NextHopId::NONE; LEN];
    let outcome = lender.lend(Keys::V4(&keys), &mut out, LEN, || (), |_, _| panic!("nobody helps"));
    assert_eq!(outcome.missing, Some(Missing::Worker));
    access.0.iter().for_each(|cell| cell.with_mut(|_| ()));
    thread.join().unwrap();
}

const GONE: [(&str, &str); 2] = [
    (
        "tally.gone.load(Ordering::Acquire)",
        "`done` publishes what a worker has done; `gone` concerns only what it has not done",
    ),
    ("gone.store(true, Ordering::Release)", "as above"),
];

#[test]
fn a_worker_that_keeps_to_its_pile_answers_it() {
    check(|| model(1, 1, GRAIN, false), &GONE);
}

#[test]
fn who_is_done_helps_and_nothing_is_answered_twice() {
    check(|| model(1, 1, GRAIN, true), &GONE);
}

#[test]
fn two_workers_share_a_batch() {
    check(|| model(2, 1, 2 * GRAIN, true), &GONE);
}

#[test]
fn the_next_loan_finds_nobody_with_the_last_one() {
    check(|| model(1, 2, GRAIN, true), &GONE);
}

#[test]
fn a_worker_that_fails_or_goes_is_told_of() {
    let [load, store] = GONE;
    let back = ("left.swap(0, Ordering::Acquire)", "what is taken back is answered by nobody");
    check(|| trouble(true), &[load, store, back]);
    let nothing = [
        ("pile.left.store(pack(from, to)", "nobody claims anything"),
        ("tally.done.load(Ordering::Acquire)", "nobody does anything"),
    ];
    check(|| trouble(false), &[load, store, back, nothing[0], nothing[1]]);
}
